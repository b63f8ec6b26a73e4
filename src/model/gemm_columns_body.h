/* gemm_columns_body.h - the kernels of f32, bf16 and f16 weights by one fma a number, written once
 * over a vector of LANES lanes.
 *
 * A tile is up to 6 rows x a column of the panel, whose sums fit into the registers: of one row it
 * is wide, so that enough sums are in flight. A tile that no other shares the panel with takes its
 * columns in turn every few KB (a burst), and asks for what lies 8 KB further on: so memory sees
 * one stream, and what comes stays in the L1 cache until the last column has read it. Else the
 * columns follow one another over the whole chunk, and each fetches its share of what comes next.
 *
 * A file that includes this has defined LANES, the type vec and:
 *
 *     vec_zero, vec_load, vec_store
 *     vec_fma(sum, x, w)       sum + *x * w, rounded once; one number times a vector
 *     vec_of_low, vec_of_high  LANES pairs of bf16: the first of each, the second
 *     vec_of_f16               LANES f16
 *     ask_near, ask_next       a prefetch of a line that is read soon; in the next chunk
 *     rest_after(r)            what comes behind row r of a step, or nothing
 *     WIDTH_1, WIDTH_2, WIDTH_TALL  vectors of a column, of one row, of two and of more */
#ifndef MODEL_GEMM_COLUMNS_BODY_H
#define MODEL_GEMM_COLUMNS_BODY_H

#include "model/gemm_kernels.h"

enum { MOST_VECTORS = GEMM_PANEL / LANES, LINE_VECTORS = 16 / LANES };
enum { STEP_BYTES = GEMM_PANEL * 4, BURST_STEPS = 32 };
#define TILE static inline __attribute__((always_inline))

/* The lines that belong to column `at`, of the step that is to be asked for at step k. */
TILE void prefetch(const gemm_tile *t, const bool alone, uint32_t k, const int V, uint32_t at)
{
    enum { NEAR = (8 << 10) / STEP_BYTES };
    if (alone) {
        const char *ahead = k + NEAR < t->depth
                                ? (const char *)t->w + (size_t)(k + NEAR) * STEP_BYTES
                                : t->ahead + (size_t)(k + NEAR - t->depth) * STEP_BYTES;
#pragma GCC unroll 4
        for (int line = 0; line < V / LINE_VECTORS; line++)
            ask_near(ahead + at * 4 + 64 * line);
        return;
    }
#pragma GCC unroll 4
    for (int line = 0; line < V / LINE_VECTORS; line++)
        ask_next(t->ahead + k * t->ahead_stride + at * 4 + 64 * line);
}

TILE void load_sums(const uint32_t rows, const int V, vec sum[][MOST_VECTORS], const float *c,
                    size_t ldc, bool fresh)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < V; v++)
            sum[r][v] = fresh ? vec_zero() : vec_load(c + r * ldc + LANES * v);
}

TILE void store_sums(const uint32_t rows, const int V, vec sum[][MOST_VECTORS], float *c,
                     size_t ldc)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < V; v++)
            vec_store(c + r * ldc + LANES * v, sum[r][v]);
}

TILE void step(const uint32_t rows, const int V, vec sum[][MOST_VECTORS], const float *x,
               size_t ldx, const vec w[MOST_VECTORS])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
#pragma GCC unroll 16
        for (int v = 0; v < V; v++)
            sum[r][v] = vec_fma(sum[r][v], x + r * ldx, w[v]);
        rest_after(r);
    }
}

/* Steps [from, to) of the column at `at`. */
TILE void column_f32(const uint32_t rows, const int V, const bool alone, const gemm_tile *t,
                     uint32_t at, uint32_t from, uint32_t to)
{
    const float *x = t->x, *w = (const float *)t->w + (size_t)from * GEMM_PANEL + at;
    vec sum[GEMM_TILE_ROWS][MOST_VECTORS];
    load_sums(rows, V, sum, t->c + at, t->ldc, t->fresh && !from);
    for (uint32_t k = from; k < to; k++, w += GEMM_PANEL) {
        vec full[MOST_VECTORS];
        prefetch(t, alone, k, V, at);
#pragma GCC unroll 16
        for (int v = 0; v < V; v++)
            full[v] = vec_load(w + LANES * v);
        step(rows, V, sum, x + k, t->ldx, full);
    }
    store_sums(rows, V, sum, t->c + at, t->ldc);
}

TILE void column_bf16(const uint32_t rows, const int V, const bool alone, const gemm_tile *t,
                      uint32_t at, uint32_t from, uint32_t to)
{
    const float *x = t->x;
    const uint32_t *w = (const uint32_t *)t->w + (size_t)from * GEMM_PANEL + at;
    vec sum[GEMM_TILE_ROWS][MOST_VECTORS];
    load_sums(rows, V, sum, t->c + at, t->ldc, t->fresh && !from);
    for (uint32_t k = from; k < to; k++, w += GEMM_PANEL) {
        vec full[MOST_VECTORS];
        prefetch(t, alone, k, V, at);
#pragma GCC unroll 16
        for (int v = 0; v < V; v++)
            full[v] = vec_of_low(w + LANES * v);
        step(rows, V, sum, x + 2 * k, t->ldx, full);
#pragma GCC unroll 16
        for (int v = 0; v < V; v++)
            full[v] = vec_of_high(w + LANES * v);
        step(rows, V, sum, x + 2 * k + 1, t->ldx, full);
    }
    store_sums(rows, V, sum, t->c + at, t->ldc);
}

TILE void column_f16(const uint32_t rows, const int V, const bool alone, const gemm_tile *t,
                     uint32_t at, uint32_t from, uint32_t to)
{
    const float *x = t->x;
    const uint16_t *w = (const uint16_t *)t->w + (size_t)from * 2 * GEMM_PANEL + at;
    vec sum[GEMM_TILE_ROWS][MOST_VECTORS];
    load_sums(rows, V, sum, t->c + at, t->ldc, t->fresh && !from);
    for (uint32_t k = from; k < to; k++) {
        prefetch(t, alone, k, V, at);
#pragma GCC unroll 2
        for (int second = 0; second < 2; second++, w += GEMM_PANEL) {
            vec full[MOST_VECTORS];
#pragma GCC unroll 16
            for (int v = 0; v < V; v++)
                full[v] = vec_of_f16(w + LANES * v);
            step(rows, V, sum, x + 2 * k + second, t->ldx, full);
        }
    }
    store_sums(rows, V, sum, t->c + at, t->ldc);
}

/* One kernel: its columns at every height. `alone` is a constant in each: asked step by step, tiles
 * of six rows take a third longer (AVX2). */
#define COLUMNS(name, rows, V, alone)                                                              \
    for (uint32_t at = 0; at < GEMM_PANEL; at += LANES * V)                                        \
        column_##name(rows, V, alone, t, at, from, to);                                            \
    break
#define HEIGHTS(name, alone)                                                                       \
    switch (t->rows) {                                                                             \
    case 1: COLUMNS(name, 1, WIDTH_1, alone);                                                      \
    case 2: COLUMNS(name, 2, WIDTH_2, alone);                                                      \
    case 3: COLUMNS(name, 3, WIDTH_TALL, alone);                                                   \
    case 4: COLUMNS(name, 4, WIDTH_TALL, alone);                                                   \
    case 5: COLUMNS(name, 5, WIDTH_TALL, alone);                                                   \
    default: COLUMNS(name, 6, WIDTH_TALL, alone);                                                  \
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
    static void columns_##name(const gemm_tile *t)                                                 \
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

/* With these kernels, and whatever multiplies integers. */
#define GEMM_COLUMNS_ISA(text, integers)                                                           \
    {                                                                                              \
        .name = text, .f32 = columns_f32, .bf16 = columns_bf16, .bf16w = columns_bf16,             \
        .f16w = columns_f16, .quant = &integers, .widens = true, .round_row = gemm_round_to_f32    \
    }

#endif
