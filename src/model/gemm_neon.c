/* gemm_neon.c - f32, bf16 and f16 over vectors of four lanes, of which every aarch64 has 32.
 *
 *     rows   column   sums
 *        1      64     16    the whole panel: every line is read once, in order
 *        2      32     16
 *     3..6      16     12..24
 *
 * fmla rounds once, so the chain of gemm.h has the bits of any other set. BFDOT and BFMMLA are not
 * used: they add two products (four) before they round, in a way of their own, and round to odd
 * where FEAT_EBF16 is not switched on; so bf16 is widened in registers. As in gemm_avx2.c a tile
 * that no other shares the panel with takes its columns in turn every few KB, and asks for what
 * lies 8 KB further on. */
#include "model/gemm_kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>

enum { LANES = 4, MOST_VECTORS = GEMM_PANEL / LANES };
enum { STEP_BYTES = GEMM_PANEL * 4, BURST_STEPS = 32 };
#define TILE static inline __attribute__((always_inline))

/* The lines that belong to column `at`, of the step that is to be asked for at step k. */
TILE void prefetch(const gemm_tile *t, const bool alone, uint32_t k, const int V, uint32_t at)
{
    enum { NEAR = (8 << 10) / STEP_BYTES };
    const char *ahead = t->ahead + k * t->ahead_stride;
    if (alone)
        ahead = k + NEAR < t->depth ? (const char *)t->w + (size_t)(k + NEAR) * STEP_BYTES
                                    : t->ahead + (size_t)(k + NEAR - t->depth) * STEP_BYTES;
#pragma GCC unroll 4
    for (int line = 0; line < V / 4; line++)
        __builtin_prefetch(ahead + at * 4 + 64 * line, 0, 3);
}

TILE void load_sums(const uint32_t rows, const int V, float32x4_t sum[][MOST_VECTORS],
                    const float *c, size_t ldc, bool fresh)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < V; v++)
            sum[r][v] = fresh ? vdupq_n_f32(0) : vld1q_f32(c + r * ldc + LANES * v);
}

TILE void store_sums(const uint32_t rows, const int V, float32x4_t sum[][MOST_VECTORS], float *c,
                     size_t ldc)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < V; v++)
            vst1q_f32(c + r * ldc + LANES * v, sum[r][v]);
}

TILE void step(const uint32_t rows, const int V, float32x4_t sum[][MOST_VECTORS], const float *x,
               size_t ldx, const float32x4_t w[MOST_VECTORS])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
#pragma GCC unroll 16
        for (int v = 0; v < V; v++)
            sum[r][v] = vfmaq_n_f32(sum[r][v], w[v], x[r * ldx]);
        if (r % 2) __asm__("" ::: "memory"); /* six x at a time would drive sums out of registers */
    }
}

/* Steps [from, to) of the column at `at`. */
TILE void column_f32(const uint32_t rows, const int V, const bool alone, const gemm_tile *t,
                     uint32_t at, uint32_t from, uint32_t to)
{
    const float *x = t->x, *w = (const float *)t->w + (size_t)from * GEMM_PANEL + at;
    float32x4_t sum[GEMM_TILE_ROWS][MOST_VECTORS];
    load_sums(rows, V, sum, t->c + at, t->ldc, t->fresh && !from);
    for (uint32_t k = from; k < to; k++, w += GEMM_PANEL) {
        float32x4_t full[MOST_VECTORS];
        prefetch(t, alone, k, V, at);
#pragma GCC unroll 16
        for (int v = 0; v < V; v++)
            full[v] = vld1q_f32(w + LANES * v);
        step(rows, V, sum, x + k, t->ldx, full);
    }
    store_sums(rows, V, sum, t->c + at, t->ldc);
}

TILE void column_bf16(const uint32_t rows, const int V, const bool alone, const gemm_tile *t,
                      uint32_t at, uint32_t from, uint32_t to)
{
    const float *x = t->x;
    const uint32_t *w = (const uint32_t *)t->w + (size_t)from * GEMM_PANEL + at;
    const uint32x4_t high = vdupq_n_u32(0xffff0000);
    float32x4_t sum[GEMM_TILE_ROWS][MOST_VECTORS];
    load_sums(rows, V, sum, t->c + at, t->ldc, t->fresh && !from);
    for (uint32_t k = from; k < to; k++, w += GEMM_PANEL) {
        float32x4_t full[MOST_VECTORS];
        prefetch(t, alone, k, V, at);
#pragma GCC unroll 16
        for (int v = 0; v < V; v++)
            full[v] = vreinterpretq_f32_u32(vshlq_n_u32(vld1q_u32(w + LANES * v), 16));
        step(rows, V, sum, x + 2 * k, t->ldx, full);
#pragma GCC unroll 16
        for (int v = 0; v < V; v++)
            full[v] = vreinterpretq_f32_u32(vandq_u32(vld1q_u32(w + LANES * v), high));
        step(rows, V, sum, x + 2 * k + 1, t->ldx, full);
    }
    store_sums(rows, V, sum, t->c + at, t->ldc);
}

TILE void column_f16(const uint32_t rows, const int V, const bool alone, const gemm_tile *t,
                     uint32_t at, uint32_t from, uint32_t to)
{
    const float *x = t->x;
    const uint16_t *w = (const uint16_t *)t->w + (size_t)from * 2 * GEMM_PANEL + at;
    float32x4_t sum[GEMM_TILE_ROWS][MOST_VECTORS];
    load_sums(rows, V, sum, t->c + at, t->ldc, t->fresh && !from);
    for (uint32_t k = from; k < to; k++) {
        prefetch(t, alone, k, V, at);
#pragma GCC unroll 2
        for (int second = 0; second < 2; second++, w += GEMM_PANEL) {
            float32x4_t full[MOST_VECTORS];
#pragma GCC unroll 16
            for (int v = 0; v < V; v++)
                full[v] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(w + LANES * v)));
            step(rows, V, sum, x + 2 * k + second, t->ldx, full);
        }
    }
    store_sums(rows, V, sum, t->c + at, t->ldc);
}

/* One kernel: its columns at every height. */
#define COLUMNS(name, rows, V, alone)                                                              \
    for (uint32_t at = 0; at < GEMM_PANEL; at += LANES * V)                                        \
        column_##name(rows, V, alone, t, at, from, to);                                            \
    break
#define HEIGHTS(name, alone)                                                                       \
    switch (t->rows) {                                                                             \
    case 1: COLUMNS(name, 1, 16, alone);                                                           \
    case 2: COLUMNS(name, 2, 8, alone);                                                            \
    case 3: COLUMNS(name, 3, 4, alone);                                                            \
    case 4: COLUMNS(name, 4, 4, alone);                                                            \
    case 5: COLUMNS(name, 5, 4, alone);                                                            \
    default: COLUMNS(name, 6, 4, alone);                                                           \
    }
#define KERNEL(name)                                                                               \
    static void name##_alone(const gemm_tile *t)                                                   \
    {                                                                                              \
        const uint32_t burst = t->rows == 1 ? t->depth : BURST_STEPS;                              \
        for (uint32_t from = 0, to; from < t->depth; from = to) {                                  \
            to = RAD_MIN(t->depth, from + burst);                                                  \
            HEIGHTS(name, true)                                                                    \
        }                                                                                          \
    }                                                                                              \
    static void neon_##name(const gemm_tile *t)                                                    \
    {                                                                                              \
        const uint32_t from = 0, to = t->depth;                                                    \
        if (t->ahead_stride == STEP_BYTES) {                                                       \
            name##_alone(t);                                                                       \
            return;                                                                                \
        }                                                                                          \
        HEIGHTS(name, false)                                                                       \
    }

KERNEL(f32)
KERNEL(bf16)
KERNEL(f16)

/* The sets differ in their integer products alone. */
#define ISA(text, integers)                                                                        \
    {                                                                                              \
        .name = text, .f32 = neon_f32, .bf16 = neon_bf16, .bf16w = neon_bf16, .f16w = neon_f16,    \
        .quant = &integers, .widens = true, .round_row = gemm_round_to_f32                         \
    }

const gemm_isa gemm_neon = ISA("neon", gemm_quant_neon);
const gemm_isa gemm_dotprod = ISA("dotprod", gemm_quant_dotprod);
const gemm_isa gemm_i8mm = ISA("i8mm", gemm_quant_i8mm);
#else
const gemm_isa gemm_neon = {.name = "neon"}; /* not this architecture */
const gemm_isa gemm_dotprod = {.name = "dotprod"};
const gemm_isa gemm_i8mm = {.name = "i8mm"};
#endif
