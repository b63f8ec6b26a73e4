/* available.c - what the kernel and this process's control groups say.
 *
 *     /proc/self/cgroup   0::/system.slice/x.service   version 2: a folder below /sys/fs/cgroup
 *                         4:memory:/x                  version 1: below /sys/fs/cgroup/memory
 *                         3:cpu,cpuacct:/x             below /sys/fs/cgroup/cpu
 *
 * What a group's files fill of the page cache, and nobody used of late, counts as granted. */
#define _GNU_SOURCE
#include "base/available.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 512, LINE_BYTES = 256 };

static const uint64_t NO_LIMIT = (uint64_t)1 << 60; /* version 1 writes a number near 2^63, or -1 */

/* What the group of a folder grants, at least 1; UINT64_MAX: it has no limit. */
typedef uint64_t (*granted_by)(const char *folder);

typedef struct controller {
    const char *name; /* in the list of groups, and version 1's folder */
    granted_by v1, v2;
} controller;

/* Numbers behind `key` in a file of "key number" lines (or at its start for NULL). */
static bool read_numbers(const char *folder, const char *name, const char *key, uint32_t count,
                         uint64_t *out)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path) return false;
    FILE *file = fopen(path, "r");
    if (!file) return false;
    uint32_t found = 0;
    while (!found && fgets(line, sizeof line, file)) {
        const size_t skip = key ? strlen(key) : 0;
        if (key && strncmp(line, key, skip) != 0) continue;
        for (char *at = line + skip, *end; found < count; at = end, found++) {
            out[found] = strtoull(at, &end, 10);
            if (end == at) break; /* "max" is no number */
        }
    }
    fclose(file);
    return found == count;
}

static uint64_t memory_left(const char *folder, const char *limit_in, const char *used_in,
                            const char *cached_in)
{
    uint64_t limit, used, cached = 0;
    if (!read_numbers(folder, limit_in, NULL, 1, &limit) || limit >= NO_LIMIT ||
        !read_numbers(folder, used_in, NULL, 1, &used))
        return UINT64_MAX;
    if (!read_numbers(folder, "memory.stat", cached_in, 1, &cached)) cached = 0;
    const uint64_t taken = used - RAD_MIN(used, cached);
    return limit > taken ? limit - taken : 1;
}

static uint64_t memory_v1(const char *folder)
{
    return memory_left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes",
                       "total_inactive_file ");
}

static uint64_t memory_v2(const char *folder)
{
    return memory_left(folder, "memory.max", "memory.current", "inactive_file ");
}

/* Of time in a period: what is left of a CPU is used too. */
static uint64_t whole_cpus(uint64_t quota, uint64_t period)
{
    if (!period || quota >= NO_LIMIT) return UINT64_MAX;
    return RAD_MAX(quota / period + (quota % period != 0), (uint64_t)1);
}

static uint64_t cpus_v1(const char *folder)
{
    uint64_t quota, period;
    if (!read_numbers(folder, "cpu.cfs_quota_us", NULL, 1, &quota) ||
        !read_numbers(folder, "cpu.cfs_period_us", NULL, 1, &period))
        return UINT64_MAX;
    return whole_cpus(quota, period);
}

static uint64_t cpus_v2(const char *folder)
{
    uint64_t max[2]; /* quota, period */
    return read_numbers(folder, "cpu.max", NULL, 2, max) ? whole_cpus(max[0], max[1]) : UINT64_MAX;
}

static const controller memory = {"memory", memory_v1, memory_v2};
static const controller cpu = {"cpu", cpus_v1, cpus_v2};

/* The least of a group and all above it, up to where the groups are mounted. A path that is not
 * there is another mount's: then the mount's own limit counts. */
static uint64_t granted_along(const char *mount, const char *below, const char *path, granted_by by)
{
    char folder[PATH_BYTES];
    if (strstr(path, "..") || !strcmp(path, "/")) path = "";
    const int top = snprintf(folder, sizeof folder, "%s/%s", mount, below);
    if (top < 0 || (size_t)top + strlen(path) >= sizeof folder) return UINT64_MAX;
    strcpy(folder + top, path);
    uint64_t least = UINT64_MAX;
    for (;;) {
        least = RAD_MIN(least, by(folder));
        char *last = strrchr(folder + top, '/');
        if (!last) return least;
        *last = 0;
    }
}

/* `name` is one of the words between commas. */
static bool names(const char *words, const char *name)
{
    const size_t len = strlen(name);
    for (const char *at = words; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, len) == 0 && (at[len] == ',' || !at[len])) return true;
    }
    return false;
}

static uint64_t granted(const char *proc, const char *groups, const controller *of)
{
    char path[PATH_BYTES], line[PATH_BYTES];
    uint64_t least = UINT64_MAX;
    bool is_v2 = false;
    snprintf(path, sizeof path, "%s/self/cgroup", proc);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *kinds = strchr(line, ':'), *where = kinds ? strchr(kinds + 1, ':') : NULL;
        if (!where) continue;
        *where++ = 0;
        if (!kinds[1]) {
            least = RAD_MIN(least, granted_along(groups, "", where, of->v2));
            is_v2 = true;
        } else if (names(kinds + 1, of->name)) {
            least = RAD_MIN(least, granted_along(groups, of->name, where, of->v1));
        }
    }
    if (file) fclose(file);
    return is_v2 ? least : RAD_MIN(least, of->v2(groups));
}

uint64_t memory_available_by(const char *proc, const char *groups)
{
    uint64_t available = 0;
    if (read_numbers(proc, "meminfo", "MemAvailable:", 1, &available)) available *= 1024;
    const uint64_t left = granted(proc, groups, &memory);
    return left == UINT64_MAX || (available && available < left) ? available : left;
}

uint64_t cpus_granted_by(const char *proc, const char *groups)
{
    return granted(proc, groups, &cpu);
}

uint64_t memory_available(void)
{
    return memory_available_by("/proc", "/sys/fs/cgroup");
}

uint32_t cpus_available(void)
{
    cpu_set_t set;
    uint64_t cpus = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        cpus = (uint64_t)CPU_COUNT(&set);
    else if (sysconf(_SC_NPROCESSORS_ONLN) > 0)
        cpus = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
    return (uint32_t)RAD_MIN(cpus, cpus_granted_by("/proc", "/sys/fs/cgroup"));
}
