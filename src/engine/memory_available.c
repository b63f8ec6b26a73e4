/* memory_available.c - what the kernel says a program can take without swapping, or less where a
 * control group of this process, or one above it, grants less.
 *
 *     /proc/self/cgroup   0::/system.slice/x.service   version 2: a folder below /sys/fs/cgroup
 *                         4:memory:/x                  version 1: below /sys/fs/cgroup/memory
 *
 * What a group's files fill of the page cache, and nobody used of late, counts as granted. */
#include "engine/engine_impl.h"

#include <stdio.h>
#include <stdlib.h>

enum { PATH_BYTES = 512 };

static const uint64_t NO_LIMIT = (uint64_t)1 << 60; /* version 1 writes a number near 2^63 */

typedef struct group_files {
    const char *below, *limit, *used, *cached;
} group_files;

static const group_files v1 = {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file "};
static const group_files v2 = {"", "memory.max", "memory.current", "inactive_file "};

/* A number behind `key` in a file of "key number" lines (or at its start for NULL). */
static bool read_number(const char *folder, const char *name, const char *key, uint64_t *out)
{
    char path[PATH_BYTES], line[256];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path) return false;
    FILE *file = fopen(path, "r");
    if (!file) return false;
    bool found = false;
    while (!found && fgets(line, sizeof line, file)) {
        size_t skip = key ? strlen(key) : 0;
        if (key && strncmp(line, key, skip) != 0) continue;
        char *end;
        *out = strtoull(line + skip, &end, 10);
        found = end != line + skip; /* "max" is no number */
    }
    fclose(file);
    return found;
}

/* What the group of a folder still grants, at least 1; UINT64_MAX: it has no limit. */
static uint64_t granted_by(const char *folder, const group_files *names)
{
    uint64_t limit, used, cached = 0;
    if (!read_number(folder, names->limit, NULL, &limit) || limit >= NO_LIMIT ||
        !read_number(folder, names->used, NULL, &used))
        return UINT64_MAX;
    read_number(folder, "memory.stat", names->cached, &cached);
    const uint64_t taken = used - RAD_MIN(used, cached);
    return limit > taken ? limit - taken : 1;
}

/* The least of a group and all above it, up to where the groups are mounted. A path that is not
 * there is another mount's: then the mount's own limit counts. */
static uint64_t granted_along(const char *mount, const char *path, const group_files *names)
{
    char folder[PATH_BYTES];
    if (strstr(path, "..") || !strcmp(path, "/")) path = "";
    const int top = snprintf(folder, sizeof folder, "%s%s", mount, names->below);
    if (top < 0 || (size_t)top + strlen(path) >= sizeof folder) return UINT64_MAX;
    strcpy(folder + top, path);
    uint64_t least = UINT64_MAX;
    for (;;) {
        least = RAD_MIN(least, granted_by(folder, names));
        char *last = strrchr(folder + top, '/');
        if (!last) return least;
        *last = 0;
    }
}

uint64_t memory_available_by(const char *proc, const char *groups)
{
    char path[PATH_BYTES], line[PATH_BYTES];
    uint64_t available = 0, granted = UINT64_MAX;
    bool is_v2 = false;
    if (read_number(proc, "meminfo", "MemAvailable:", &available)) available *= 1024;
    snprintf(path, sizeof path, "%s/self/cgroup", proc);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *kinds = strchr(line, ':'), *where = kinds ? strchr(kinds + 1, ':') : NULL;
        if (!where) continue;
        *where = 0;
        if (!strcmp(kinds, ":")) {
            granted = RAD_MIN(granted, granted_along(groups, where + 1, &v2));
            is_v2 = true;
        } else if (strstr(kinds, "memory")) {
            granted = RAD_MIN(granted, granted_along(groups, where + 1, &v1));
        }
    }
    if (file) fclose(file);
    if (!is_v2) granted = RAD_MIN(granted, granted_by(groups, &v2));
    return granted == UINT64_MAX || (available && available < granted) ? available : granted;
}

uint64_t memory_available(void)
{
    return memory_available_by("/proc", "/sys/fs/cgroup");
}
