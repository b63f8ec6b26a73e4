/* process_figures.c - see the header. */
#include "server/process_figures.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* All of a small file of /proc, "" where there is none. */
static void read_small(const char *path, char *text, size_t size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);
    text[n > 0 ? n : 0] = 0;
    if (fd >= 0) close(fd);
}

static double boot_unix_s(void)
{
    char text[4096]; /* btime stands behind a line for each CPU and one for interrupts */
    FILE *f = fopen("/proc/stat", "re");
    double found = 0;
    while (f && !found && fgets(text, sizeof text, f))
        if (strncmp(text, "btime ", 6) == 0) found = strtod(text + 6, NULL);
    if (f) fclose(f);
    return found;
}

/* Since Linux 6.2 the folder's size is how many there are; before it they are counted. */
static uint64_t count_fds(void)
{
    struct stat s;
    uint64_t count = 0;
    if (stat("/proc/self/fd", &s) != 0) return 0;
    if (s.st_size) return (uint64_t)s.st_size;
    DIR *d = opendir("/proc/self/fd");
    for (const struct dirent *e; d && (e = readdir(d));)
        count += e->d_name[0] != '.';
    if (d) closedir(d);
    return count ? count - 1 : 0; /* but for our own look at it */
}

void process_figures_get(process_figures *out)
{
    static double boot; /* the event loop's thread */
    char text[1024];
    struct rlimit files;
    unsigned long long user = 0, system = 0, threads = 0, start = 0, bytes = 0;
    long long pages = 0;
    const double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
    *out = (process_figures){0};
    read_small("/proc/self/stat", text, sizeof text);
    const char *at = strrchr(text, ')'); /* a name may have anything in it */
    if (at && sscanf(at,
                     ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %llu "
                     "%*d %llu %llu %lld",
                     &user, &system, &threads, &start, &bytes, &pages) == 6) {
        if (!boot) boot = boot_unix_s();
        out->cpu_s = (double)(user + system) * tick;
        out->start_unix_s = boot ? boot + (double)start * tick : 0;
        out->threads = threads;
        out->virtual_bytes = bytes;
        out->resident_bytes = (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
    }
    out->open_fds = count_fds();
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY)
        out->max_fds = files.rlim_cur;
}
