/* instruction_peak.h - how many GFLOP/s all threads reach on registers alone: the limit of
 * any kernel made of one instruction (an addition and a product are two operations).
 *
 * Measured in chunks of tiles through the pool, like a GEMM, so that other processes and the
 * clock take from both alike. */
#ifndef BENCH_INSTRUCTION_PEAK_H
#define BENCH_INSTRUCTION_PEAK_H

#include "amx_peak.h"
#include "bench.h"

typedef enum peak_kind { PEAK_F32, PEAK_BF16, PEAK_INT8 } peak_kind;

enum { PEAK_ROUNDS = 2000, PEAK_TILES = 16, PEAK_CHAINS = 12 };

#if defined(__x86_64__)
/* Twelve chains hide four cycles of latency on two, or three, pipes. */
#define PEAK_TWELVE(op, reg)                                                                       \
    op " %%" reg "12, %%" reg "13, %%" reg "0\n" op " %%" reg "12, %%" reg "13, %%" reg "1\n" op   \
       " %%" reg "12, %%" reg "13, %%" reg "2\n" op " %%" reg "12, %%" reg "13, %%" reg "3\n" op   \
       " %%" reg "12, %%" reg "13, %%" reg "4\n" op " %%" reg "12, %%" reg "13, %%" reg "5\n" op   \
       " %%" reg "12, %%" reg "13, %%" reg "6\n" op " %%" reg "12, %%" reg "13, %%" reg "7\n" op   \
       " %%" reg "12, %%" reg "13, %%" reg "8\n" op " %%" reg "12, %%" reg "13, %%" reg "9\n" op   \
       " %%" reg "12, %%" reg "13, %%" reg "10\n" op " %%" reg "12, %%" reg "13, %%" reg "11\n"
#define PEAK_TILE(name, op, reg)                                                                   \
    static void name(void *arg, uint32_t tile, uint32_t thread)                                    \
    {                                                                                              \
        (void)arg, (void)tile, (void)thread;                                                       \
        for (int i = 0; i < PEAK_ROUNDS; i++)                                                      \
            __asm__ volatile("" PEAK_TWELVE(op, reg)::                                             \
                                 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", \
                                   "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13");            \
    }
PEAK_TILE(peak_fma_512, "vfmadd231ps", "zmm")
PEAK_TILE(peak_fma_256, "vfmadd231ps", "ymm")
PEAK_TILE(peak_bf16_512, "vdpbf16ps", "zmm")
PEAK_TILE(peak_int8_512, "vpdpbusd", "zmm")
#endif

typedef struct peak_job {
    compute_pool *pool;
    compute_fn tile;
} peak_job;

static inline void peak_run(void *arg)
{
    peak_job *j = arg;
    compute_pool_run(j->pool, PEAK_TILES, j->tile, NULL);
}

/* 0 where the CPU has no such instruction. Registers hold whatever they held: zeros and
 * small integers usually; no CPU with AVX-512 is slower for others. */
static inline double instruction_peak_gflops(peak_kind kind, compute_pool *pool)
{
#if defined(__x86_64__)
    bool wide = __builtin_cpu_supports("avx512f");
    peak_job j = {.pool = pool};
    if (kind == PEAK_BF16 && amx_permitted(NULL)) {
        j.tile = amx_peak;
        return (double)AMX_PEAK_OPS * PEAK_TILES / bench_measure(peak_run, &j, 0.2).p50 * 1e-9;
    }
    double ops = 0;
    if (kind == PEAK_F32 && wide)
        j.tile = peak_fma_512, ops = 32;
    else if (kind == PEAK_F32 && __builtin_cpu_supports("fma"))
        j.tile = peak_fma_256, ops = 16;
    else if (kind == PEAK_BF16 && __builtin_cpu_supports("avx512bf16"))
        j.tile = peak_bf16_512, ops = 64;
    else if (kind == PEAK_INT8 && __builtin_cpu_supports("avx512vnni"))
        j.tile = peak_int8_512, ops = 128;
    else
        return 0;
    double seconds = bench_measure(peak_run, &j, 0.2).p50;
    return ops * PEAK_CHAINS * PEAK_ROUNDS * PEAK_TILES / seconds * 1e-9;
#else
    (void)kind, (void)pool;
    return 0;
#endif
}

#endif
