/* instruction_peak.h - how many GFLOP/s all threads reach on registers alone: the limit of
 * any kernel made of the same instructions (an addition and a product are two operations).
 *
 * The instructions are those of the kernels that this process chooses: of the CPU, up to
 * RADISH_ISA. Measured in chunks of tiles through the pool, like a GEMM, so that other processes
 * and the clock take from both alike. */
#ifndef BENCH_INSTRUCTION_PEAK_H
#define BENCH_INSTRUCTION_PEAK_H

#include "amx_peak.h"
#include "base/cpu.h"
#include "bench.h"
#include "model/gemm.h"

/* What is multiplied. Where there is no VDPBF16PS, pairs of bf16 are widened, so it is f32's.
 * Bytes: VPDPBUSD, or what does its work on AVX2, VPMADDUBSW, VPMADDWD and VPADDD; of numbers of up
 * to six bits VPMADDUBSW and VPADDW do it. Scaled: with what a block of 32 needs besides, for every
 * eight of these a conversion, a product of two scales and an fma (and on AVX2 the sign of w, which
 * bytes move over to x; and what adds up the pairs of small numbers). No kernel that keeps a scale
 * for every 32 is faster. */
typedef enum peak_kind {
    PEAK_F32,
    PEAK_BF16,
    PEAK_INT8,
    PEAK_SMALL_INT,
    PEAK_INT8_SCALED,
    PEAK_SMALL_INT_SCALED,
    PEAK_NUM_KINDS
} peak_kind;

enum { PEAK_ROUNDS = 2000, PEAK_TILES = 16, PEAK_CHAINS_256 = 12, PEAK_CHAINS_512 = 20 };
enum { PEAK_CHAINS_VNNI = 10 };
enum { PEAK_SCALED = 24 }; /* VPDPBUSD of 512 bits in a round of the scaled kinds: three blocks */
enum { PEAK_SCALED_256 = 32 }; /* of four blocks in 256 bits */

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

/* AVX2: the words of four blocks by turns, their sums in 0 to 3, the outputs in 4 to 7. Factors are
 * zeros: not every CPU is as fast with what is no normal number. */
#define PEAK_ZEROS                                                                                 \
    "vpxor %%xmm12, %%xmm12, %%xmm12\nvpxor %%xmm13, %%xmm13, %%xmm13\n"                           \
    "vpxor %%xmm14, %%xmm14, %%xmm14\n"
#define PEAK_BYTES(sum)                                                                            \
    "vpmaddubsw %%ymm12, %%ymm13, %%ymm8\nvpmaddwd %%ymm8, %%ymm14, %%ymm8\n"                      \
    "vpaddd %%ymm8, %%ymm" sum ", %%ymm" sum "\n"
#define PEAK_SIGNED(sum)                                                                           \
    "vpsignb %%ymm12, %%ymm13, %%ymm8\nvpmaddubsw %%ymm8, %%ymm13, %%ymm8\n"                       \
    "vpmaddwd %%ymm8, %%ymm14, %%ymm8\nvpaddd %%ymm8, %%ymm" sum ", %%ymm" sum "\n"
#define PEAK_PAIRS(sum)                                                                            \
    "vpmaddubsw %%ymm12, %%ymm13, %%ymm8\nvpaddw %%ymm8, %%ymm" sum ", %%ymm" sum "\n"
#define PEAK_TURN(one) one("0") one("1") one("2") one("3")
#define PEAK_EIGHT_TURNS(one)                                                                      \
    PEAK_TURN(one)                                                                                 \
    PEAK_TURN(one)                                                                                 \
    PEAK_TURN(one) PEAK_TURN(one) PEAK_TURN(one) PEAK_TURN(one) PEAK_TURN(one) PEAK_TURN(one)
#define PEAK_SCALE_256(sum, out)                                                                   \
    "vcvtdq2ps %%ymm" sum ", %%ymm8\nvmulps %%ymm12, %%ymm13, %%ymm9\n"                            \
    "vfmadd231ps %%ymm8, %%ymm9, %%ymm" out "\n"
#define PEAK_SCALE_OF(sum, out)                                                                    \
    "vcvtdq2ps %%ymm" sum ", %%ymm8\nvmulps %%ymm12, %%ymm13, %%ymm11\n"                           \
    "vfmadd231ps %%ymm8, %%ymm11, %%ymm" out "\n"
#define PEAK_FLUSH(sum) "vpmaddwd %%ymm" sum ", %%ymm14, %%ymm" sum "\n"
PEAK_TILE(peak_int8_256, PEAK_ZEROS PEAK_EIGHT_TURNS(PEAK_BYTES))
PEAK_TILE(peak_small_int_256, PEAK_ZEROS PEAK_EIGHT_TURNS(PEAK_PAIRS))
PEAK_TILE(peak_int8_scaled_256,
          PEAK_ZEROS PEAK_EIGHT_TURNS(PEAK_SIGNED) PEAK_SCALE_256("0", "4") PEAK_SCALE_256("1", "5")
              PEAK_SCALE_256("2", "6") PEAK_SCALE_256("3", "7"))
PEAK_TILE(peak_small_int_scaled_256,
          PEAK_ZEROS PEAK_EIGHT_TURNS(PEAK_PAIRS) PEAK_TURN(PEAK_FLUSH) PEAK_SCALE_256("0", "4")
              PEAK_SCALE_256("1", "5") PEAK_SCALE_256("2", "6") PEAK_SCALE_256("3", "7"))

/* AVX-VNNI: ten sums by turns; or eight, and the scales of a block for every eight products. */
#define PEAK_DOT(sum) "%{vex%} vpdpbusd %%ymm12, %%ymm13, %%ymm" sum "\n"
#define PEAK_DOTS                                                                                  \
    PEAK_DOT("0")                                                                                  \
    PEAK_DOT("1")                                                                                  \
    PEAK_DOT("2") PEAK_DOT("3") PEAK_DOT("4") PEAK_DOT("5") PEAK_DOT("6") PEAK_DOT("7")
PEAK_TILE(peak_vnni_256,
          PEAK_ZEROS PEAK_DOTS PEAK_DOT("8") PEAK_DOT("9") PEAK_DOTS PEAK_DOT("8") PEAK_DOT("9"))
PEAK_TILE(peak_vnni_scaled_256,
          PEAK_ZEROS PEAK_DOTS PEAK_SCALE_OF("0", "9") PEAK_DOTS PEAK_SCALE_OF("1", "10")
              PEAK_DOTS PEAK_SCALE_OF("2", "9") PEAK_DOTS PEAK_SCALE_OF("3", "10"))

/* The loop of a kind and the operations of a round; no loop where the kernels are plain C. */
typedef struct peak_loop {
    compute_fn tile;
    double ops;
} peak_loop;

static inline peak_loop peak_loop_of(peak_kind kind)
{
    const bool scaled = kind == PEAK_INT8_SCALED || kind == PEAK_SMALL_INT_SCALED;
    if (kind == PEAK_BF16 && cpu_has(CPU_AVX512BF16))
        return (peak_loop){peak_bf16_512, 64 * PEAK_CHAINS_512};
    if (kind == PEAK_F32 || kind == PEAK_BF16) {
        if (cpu_has(CPU_AVX512)) return (peak_loop){peak_fma_512, 32 * PEAK_CHAINS_512};
        if (cpu_has(CPU_AVX2)) return (peak_loop){peak_fma_256, 16 * PEAK_CHAINS_256};
        return (peak_loop){NULL, 0};
    }
    if (cpu_has(CPU_AVX512VNNI))
        return scaled ? (peak_loop){peak_int8_scaled_512, 128 * PEAK_SCALED}
                      : (peak_loop){peak_int8_512, 128 * PEAK_CHAINS_512};
    if (cpu_has(CPU_AVXVNNI))
        return scaled ? (peak_loop){peak_vnni_scaled_256, 64 * PEAK_SCALED_256}
                      : (peak_loop){peak_vnni_256, 64 * 2 * PEAK_CHAINS_VNNI};
    if (!cpu_has(CPU_AVX2)) return (peak_loop){NULL, 0};
    const compute_fn loops[] = {[PEAK_INT8] = peak_int8_256,
                                [PEAK_SMALL_INT] = peak_small_int_256,
                                [PEAK_INT8_SCALED] = peak_int8_scaled_256,
                                [PEAK_SMALL_INT_SCALED] = peak_small_int_scaled_256};
    return (peak_loop){loops[kind], 64 * PEAK_SCALED_256};
}
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

/* 0 where there are no such instructions. Registers hold whatever they held: zeros and
 * small integers usually; no CPU with AVX-512 is slower for others. */
static inline double instruction_peak_gflops(peak_kind kind, compute_pool *pool)
{
#if defined(__x86_64__)
    peak_job j = {.pool = pool};
    bool int8_tiles = (kind == PEAK_INT8 || kind == PEAK_SMALL_INT) && amx_int8_permitted(NULL);
    if (int8_tiles || (kind == PEAK_BF16 && amx_permitted(NULL))) {
        j.tile = int8_tiles ? amx_peak_int8 : amx_peak;
        return (double)AMX_PEAK_OPS * PEAK_TILES / bench_measure(peak_run, &j, 0.2).p50 * 1e-9;
    }
    const peak_loop loop = peak_loop_of(kind);
    if (!loop.tile) return 0;
    j.tile = loop.tile;
    double seconds = bench_measure(peak_run, &j, 0.2).p50;
    return loop.ops * PEAK_ROUNDS * PEAK_TILES / seconds * 1e-9;
#else
    (void)kind, (void)pool;
    return 0;
#endif
}

static inline peak_kind peak_kind_of(gemm_type type)
{
    switch (type) {
    case GEMM_F32:
    case GEMM_BF16W:
    case GEMM_F16W: return PEAK_F32;
    case GEMM_BF16: return PEAK_BF16;
    case GEMM_Q8_0: return PEAK_INT8;
    default: return PEAK_SMALL_INT;
    }
}

#endif
