/* test_available.c - the least of what the machine has and what control groups grant. */
#define _GNU_SOURCE /* nftw, in storage_rig.h */
#include "storage_rig.h"

#include "base/available.h"

#include <sched.h>
#include <sys/stat.h>

static char root[64], proc[80], groups[80];

/* The file and the folders above it. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = 0;
        (void)mkdir(full, 0700);
        *at = '/';
    }
    FILE *file = fopen(full, "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static uint64_t available(void)
{
    return memory_available_by(proc, groups);
}

/* Instead of the one there was. */
static void new_machine(void)
{
    if (*root) rig_remove_dir(root);
    CHECK(mkdir(rig_dir(root), 0700) == 0);
    snprintf(proc, sizeof proc, "%s/proc", root);
    snprintf(groups, sizeof groups, "%s/groups", root);
    put("proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:   5000 kB\n");
}

TEST(without_groups_it_is_the_machines)
{
    new_machine();
    CHECK(available() == 5000 * 1024);
    put("groups/memory.max", "3000000\n"); /* no list of groups, and one all the same */
    put("groups/memory.current", "1000000\n");
    CHECK(available() == 2000000);
    put("groups/memory.max", "max\n");
    put("proc/meminfo", "MemTotal:  9000 kB\n");
    CHECK(available() == 0);
    put("proc/self/cgroup", "nonsense\n7:cpu\n0::\n1:memory:");
    CHECK(available() == 0);
}

TEST(a_container_sees_its_own_group_as_the_root)
{
    new_machine();
    put("proc/self/cgroup", "0::/\n");
    put("groups/memory.max", "max\n");
    put("groups/memory.current", "1000000\n");
    CHECK(available() == 5000 * 1024);
    put("groups/memory.max", "3000000\n");
    CHECK(available() == 2000000);
    put("groups/memory.stat", "anon 5\ninactive_file 400000\n");
    CHECK(available() == 2400000);
    put("groups/memory.current", "9000000\n");
    put("groups/memory.stat", "anon 5\n");
    CHECK(available() == 1); /* full is not unknown */
}

TEST(a_service_has_the_least_of_all_groups_above_it)
{
    new_machine();
    put("proc/self/cgroup", "0::/system.slice/x.service\n");
    put("groups/system.slice/x.service/memory.max", "4000000\n");
    put("groups/system.slice/x.service/memory.current", "1000000\n");
    CHECK(available() == 3000000);
    put("groups/system.slice/memory.max", "2500000\n");
    put("groups/system.slice/memory.current", "1100000\n");
    CHECK(available() == 1400000);
    put("proc/self/cgroup", "0::/../elsewhere\n"); /* outside of what is mounted */
    CHECK(available() == 5000 * 1024);
    put("proc/self/cgroup", "0::/not/mounted/here\n");
    CHECK(available() == 5000 * 1024);
}

TEST(version_1_has_a_folder_for_memory)
{
    new_machine();
    put("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x/y\n");
    put("groups/memory/x/y/memory.limit_in_bytes", "9223372036854771712\n");
    put("groups/memory/x/y/memory.usage_in_bytes", "77\n");
    CHECK(available() == 5000 * 1024);
    put("groups/memory/x/memory.limit_in_bytes", "2000000\n");
    put("groups/memory/x/memory.usage_in_bytes", "1500000\n");
    put("groups/memory/x/memory.stat", "inactive_file 1\ntotal_inactive_file 500000\n");
    CHECK(available() == 1000000);
}

static uint64_t cpus(void)
{
    return cpus_granted_by(proc, groups);
}

TEST(a_quota_of_time_is_cpus)
{
    new_machine();
    CHECK(cpus() == UINT64_MAX);
    put("groups/cpu.max", "200000 100000\n"); /* no list of groups */
    CHECK(cpus() == 2);
    put("proc/self/cgroup", "0::/kubepods/pod7/x\n");
    put("groups/cpu.max", "max 100000\n");
    CHECK(cpus() == UINT64_MAX);
    put("groups/kubepods/pod7/x/cpu.max", "1600000 100000\n");
    CHECK(cpus() == 16);
    put("groups/kubepods/pod7/cpu.max", "350000 100000\n");
    CHECK(cpus() == 4); /* what is left of a CPU is used too */
    put("groups/kubepods/cpu.max", "1000 100000\n");
    CHECK(cpus() == 1);
    static const char *const none[] = {"", "max", "5", "5 0\n", "x 100000", "-1 100000\n"};
    for (size_t i = 0; i < RAD_COUNT(none); i++) {
        put("groups/kubepods/cpu.max", none[i]);
        CHECKF(cpus() == 4, "\"%s\"\n", none[i]);
    }
}

TEST(version_1_has_a_folder_for_cpus)
{
    new_machine();
    put("proc/self/cgroup", "9:cpuset:/s\n5:cpu,cpuacct:/x/y\n4:memory:/x\n0::/\n");
    put("groups/cpu/x/y/cpu.cfs_quota_us", "-1\n");
    put("groups/cpu/x/y/cpu.cfs_period_us", "100000\n");
    put("groups/cpuset/s/cpu.cfs_quota_us", "1\n");
    put("groups/cpuset/s/cpu.cfs_period_us", "1\n");
    CHECK(cpus() == UINT64_MAX);
    put("groups/cpu/x/cpu.cfs_quota_us", "150000\n");
    CHECK(cpus() == UINT64_MAX); /* of no known period */
    put("groups/cpu/x/cpu.cfs_period_us", "50000\n");
    CHECK(cpus() == 3);
    put("proc/self/cgroup", "5:cpuacct,cpu:/x\n");
    CHECK(cpus() == 3);
    put("proc/self/cgroup", "5:cpuacct:/x\n");
    CHECK(cpus() == UINT64_MAX);
    rig_remove_dir(root);
}

TEST(there_is_a_cpu_and_none_that_is_not_allowed)
{
    cpu_set_t all, one;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    CHECK(cpus_available() >= 1 && cpus_available() <= (uint32_t)CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0 && cpus_available() == 1);
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
}

TEST_MAIN()
