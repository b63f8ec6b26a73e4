/* bench_start.c - from nothing to ready for a request: what a restart costs.
 *
 * The whole of it, as `radish serve` does it before it listens: reading the file, packing (or
 * rounding) the weights, the KV pool, the threads. The first time may read from the disk, the
 * others find the file in memory. Nobody starts faster than the file can be read. */
#include "cli/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

enum { STARTS = 3, PIECE = 1 << 20 };

static double seconds_since(const rad_env *env, uint64_t start)
{
    return (double)(env->now_ns(env->user) - start) * 1e-9;
}

/* Of all threads: says the same on a machine that others use too. */
static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static rad_status read_file(const rad_env *env, const char *path, uint64_t *bytes, double *seconds,
                            rad_error *err)
{
    char *piece = rad_alloc(env, PIECE);
    if (!piece) return rad_fail(err, RAD_E_NOMEM, "no memory to read '%s'", path);
    uint64_t start = env->now_ns(env->user);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = -1;
    *bytes = 0;
    while (fd >= 0 && (got = read(fd, piece, PIECE)) > 0)
        *bytes += (uint64_t)got;
    rad_status status = RAD_OK;
    if (got < 0) status = rad_fail(err, RAD_E_IO, "cannot read '%s': %s", path, strerror(errno));
    *seconds = seconds_since(env, start);
    if (fd >= 0) close(fd);
    rad_free(env, piece, PIECE);
    return status;
}

rad_status bench_start(bench_plan *plan, rad_error *err)
{
    bench_engine *b = &plan->engine;
    double seconds[STARTS], cpu[STARTS], first, read_s = 0;
    uint64_t bytes = 0;
    for (int i = 0; i < STARTS; i++) {
        bench_engine_free(plan);
        uint64_t start = plan->env.now_ns(plan->env.user);
        cpu[i] = cpu_seconds();
        rad_status status = bench_engine_start(plan, err);
        if (status != RAD_OK) return status;
        seconds[i] = seconds_since(&plan->env, start);
        cpu[i] = cpu_seconds() - cpu[i];
    }
    const engine_info *info = engine_get_info(b->e);
    rad_status status = read_file(&plan->env, plan->model->model, &bytes, &read_s, err);
    if (status != RAD_OK) return status;
    first = seconds[0];
    sort_seconds(seconds, STARTS);
    sort_seconds(cpu, STARTS);
    if (plan->json)
        printf("{\"bench\":\"start\",\"ready_s\":%.4f,\"first_s\":%.4f,\"cpu_s\":%.4f,\"file_"
               "bytes\":%llu,"
               "\"read_s\":%.4f}\n",
               seconds[STARTS / 2], first, cpu[STARTS / 2], (unsigned long long)bytes, read_s);
    else
        printf("%s, %s, %s: ready for requests after %.2f s (the first of %d times %.2f), "
               "%.2f s of CPU time; reading the %.0f MB of the file takes %.2f s\n",
               info->model_name, info->dtype, info->computes_on, seconds[STARTS / 2], STARTS, first,
               cpu[STARTS / 2], (double)bytes * 1e-6, read_s);
    bench_engine_free(plan);
    return RAD_OK;
}
