/* bench.h - time, percentiles, and how fast this machine reads memory. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "base/base.h"
#include "base/compute_pool.h"
#include "base/read_words.h"
#include "base/thread_time.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Wall time; or, with BENCH_CPU_TIME set in the environment, the CPU time of this
 * process: what a run with one thread costs on a machine that others use meanwhile. */
static inline double bench_now(void)
{
    struct timespec t;
    clock_gettime(getenv("BENCH_CPU_TIME") ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of CPU time, of this thread alone. */
static inline double bench_thread_now(void)
{
    return 1e-9 * (double)thread_time_ns();
}

static inline int bench_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them all. */
static inline double bench_median(double *of, uint32_t count)
{
    qsort(of, count, sizeof *of, bench_compare);
    return of[count / 2];
}

/* Seconds that one call takes: p10, p50 and p90 over as many calls as fit in `budget`
 * seconds (at least 5, at most 1000), after one warm-up. */
typedef struct bench_times {
    double p10, p50, p90;
    int runs;
} bench_times;

static inline bench_times bench_measure(void (*call)(void *), void *arg, double budget)
{
    enum { MOST = 1000 };
    double seconds[MOST];
    int runs = 0;
    call(arg);
    for (double start = bench_now(); runs < MOST && (runs < 5 || bench_now() - start < budget);) {
        double t = bench_now();
        call(arg);
        seconds[runs++] = bench_now() - t;
    }
    qsort(seconds, (size_t)runs, sizeof *seconds, bench_compare);
    return (bench_times){seconds[runs / 10], seconds[runs / 2], seconds[runs * 9 / 10], runs};
}

typedef struct bench_reader {
    const uint64_t *words;
    size_t count, per_tile;
    compute_pool *pool;
    uint64_t sums[256];
} bench_reader;

static inline void bench_read_tile(void *arg, uint32_t tile, uint32_t thread)
{
    bench_reader *r = arg;
    r->sums[thread] += read_words(r->words + tile * r->per_tile, r->per_tile);
}

static inline void bench_read_all(void *arg)
{
    bench_reader *r = arg;
    compute_pool_run_near(r->pool, (uint32_t)(r->count / r->per_tile), bench_read_tile, r);
}

/* GB/s at which all threads together sum up a buffer of `bytes`, median. In huge pages, as
 * weights are: in small ones it reads slower than a product reads its weight. */
static inline double bench_read_rate(size_t bytes, compute_pool *pool)
{
    const size_t huge = 2 << 20;
    uint64_t *words = aligned_alloc(huge, (bytes + huge - 1) & ~(huge - 1));
    if (!words) return 0;
#ifdef MADV_HUGEPAGE
    madvise(words, bytes, MADV_HUGEPAGE);
#endif
    memset(words, 1, bytes);
    bench_reader r = {.words = words, .count = bytes / 8, .per_tile = 8192, .pool = pool};
    bench_times t = bench_measure(bench_read_all, &r, 0.5);
    volatile uint64_t sink = r.sums[0];
    (void)sink;
    free(words);
    return (double)bytes / t.p50 * 1e-9;
}

static inline void bench_print_machine(compute_pool *pool)
{
    char line[256], model[256] = "unknown CPU\n";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "model name", 10) == 0) {
            char *colon = strchr(line, ':');
            if (colon) snprintf(model, sizeof model, "%s", colon + 2);
        }
    if (f) fclose(f);
    printf("# %u threads, %s", compute_pool_num_threads(pool), model);
    double load = 0;
    f = fopen("/proc/loadavg", "r");
    if (f && fscanf(f, "%lf", &load) == 1) printf("# load average %.1f before the run\n", load);
    if (f) fclose(f);
}

#endif
