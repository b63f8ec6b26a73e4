/* instruction_peak.h - how many GFLOP/s all threads reach on registers alone: the limit of
 * any kernel made of one instruction (an addition and a product are two operations).
 *
 * Measured in chunks of tiles through the pool, like a GEMM, so that other processes and the
 * clock take from both alike. */
#ifndef BENCH_INSTRUCTION_PEAK_H
#define BENCH_INSTRUCTION_PEAK_H

#include "amx_peak.h"
#include "bench.h"

/* The last one: VPDPBUSD with what a block of 32 needs besides, for every eight of it a
 * conversion, a product of two scales and an fma. No kernel of q8_0 made of it is faster. */
typedef enum peak_kind { PEAK_F32, PEAK_BF16, PEAK_INT8, PEAK_INT8_SCALED } peak_kind;

enum { PEAK_ROUNDS = 2000, PEAK_TILES = 16, PEAK_CHAINS_256 = 12, PEAK_CHAINS_512 = 20 };
enum { PEAK_SCALED = 24 }; /* dot products in a round of the last kind, for three blocks */

#if defined(__x86_64__)
/* So many chains that no CPU waits for a result: twelve for the sixteen registers of AVX2,
 * twenty for AVX-512 (VDPBF16PS takes six cycles on CPUs that begin two in each). Those
 * beyond the fifteenth need not be named as clobbered: code that may use them would have to
 * be compiled for AVX-512, and this is not. */
#define PEAK_ONE(op, reg, a, b, sum) op " %%" reg a ", %%" reg b ", %%" reg sum "\n"
#define PEAK_FOUR(op, reg, a, b, s0, s1, s2, s3)                                                   \
    PEAK_ONE(op, reg, a, b, s0)                                                                    \
    PEAK_ONE(op, reg, a, b, s1) PEAK_ONE(op, reg, a, b, s2) PEAK_ONE(op, reg, a, b, s3)
#define PEAK_TWELVE(op, reg, a, b)                                                                 \
    PEAK_FOUR(op, reg, a, b, "0", "1", "2", "3")                                                   \
    PEAK_FOUR(op, reg, a, b, "4", "5", "6", "7") PEAK_FOUR(op, reg, a, b, "8", "9", "10", "11")
#define PEAK_TWENTY(op, reg, a, b)                                                                 \
    PEAK_TWELVE(op, reg, a, b)                                                                     \
    PEAK_FOUR(op, reg, a, b, "12", "13", "14", "15")                                               \
    PEAK_FOUR(op, reg, a, b, "16", "17", "18", "19")
#define PEAK_TILE(name, body)                                                                      \
    static void name(void *arg, uint32_t tile, uint32_t thread)                                    \
    {                                                                                              \
        (void)arg, (void)tile, (void)thread;                                                       \
        for (int i = 0; i < PEAK_ROUNDS; i++)                                                      \
            __asm__ volatile("" body::                                                             \
                                 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", \
                                   "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",    \
                                   "xmm15");                                                       \
    }
PEAK_TILE(peak_fma_512, PEAK_TWENTY("vfmadd231ps", "zmm", "20", "21"))
PEAK_TILE(peak_fma_256, PEAK_TWELVE("vfmadd231ps", "ymm", "12", "13"))
PEAK_TILE(peak_bf16_512, PEAK_TWENTY("vdpbf16ps", "zmm", "20", "21"))
PEAK_TILE(peak_int8_512, PEAK_TWENTY("vpdpbusd", "zmm", "20", "21"))
#define PEAK_SCALE(out, sum)                                                                       \
    "vcvtdq2ps %%zmm20, %%zmm" out "\n" PEAK_ONE("vmulps", "zmm", "20", "21", out)                 \
        PEAK_ONE("vfmadd231ps", "zmm", "20", "21", sum)
PEAK_TILE(peak_int8_scaled_512,
          PEAK_TWENTY("vpdpbusd", "zmm", "20", "21") PEAK_SCALE("22", "27") PEAK_SCALE("23", "28")
              PEAK_SCALE("24", "29") PEAK_FOUR("vpdpbusd", "zmm", "20", "21", "0", "1", "2", "3"))
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
    bool int8_tiles = kind == PEAK_INT8 && amx_int8_permitted(NULL);
    if (int8_tiles || (kind == PEAK_BF16 && amx_permitted(NULL))) {
        j.tile = int8_tiles ? amx_peak_int8 : amx_peak;
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
    else if (kind == PEAK_INT8_SCALED && __builtin_cpu_supports("avx512vnni"))
        j.tile = peak_int8_scaled_512, ops = 128.0 * PEAK_SCALED / PEAK_CHAINS_512;
    else
        return 0;
    double seconds = bench_measure(peak_run, &j, 0.2).p50;
    double chains = wide ? PEAK_CHAINS_512 : PEAK_CHAINS_256;
    return ops * chains * PEAK_ROUNDS * PEAK_TILES / seconds * 1e-9;
#else
    (void)kind, (void)pool;
    return 0;
#endif
}

#endif
