/* gemm_avx2.c - up to 6 rows x a column of the panel: 8 to 12 sums in flight and no spills in 16
 * registers.
 *
 *     rows   column   sums
 *        1      64      8    the whole panel: every line is read once, in order
 *        2      32      8
 *     3..6      16   6..12
 *
 * A tile that no other shares the panel with takes its columns in turn every few KB (a burst), and
 * asks for what lies 8 KB further on: so memory sees one stream, and what comes stays in the L1
 * cache until the last column has read it. Else the columns follow one another over the whole
 * chunk, and each fetches its share of what comes next. */
#include "model/gemm_kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>

enum { LANES = 8, MOST_VECTORS = GEMM_PANEL / LANES };
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
        for (int line = 0; line < V / 2; line++)
            _mm_prefetch(ahead + at * 4 + 64 * line, _MM_HINT_T0);
        return;
    }
#pragma GCC unroll 4
    for (int line = 0; line < V / 2; line++)
        _mm_prefetch(t->ahead + k * t->ahead_stride + at * 4 + 64 * line, _MM_HINT_T1);
}

TILE void load_sums(const uint32_t rows, const int V, __m256 sum[][MOST_VECTORS], const float *c,
                    size_t ldc, bool fresh)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            sum[r][v] = fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(c + r * ldc + LANES * v);
}

TILE void store_sums(const uint32_t rows, const int V, __m256 sum[][MOST_VECTORS], float *c,
                     size_t ldc)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            _mm256_storeu_ps(c + r * ldc + LANES * v, sum[r][v]);
}

TILE void step(const uint32_t rows, const int V, __m256 sum[][MOST_VECTORS], const float *x,
               size_t ldx, const __m256 w[MOST_VECTORS])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        __m256 one = _mm256_broadcast_ss(x + r * ldx);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            sum[r][v] = _mm256_fmadd_ps(one, w[v], sum[r][v]);
    }
}

/* Steps [from, to) of the column at `at`. */
TILE void column_f32(const uint32_t rows, const int V, const bool alone, const gemm_tile *t,
                     uint32_t at, uint32_t from, uint32_t to)
{
    const float *x = t->x, *w = (const float *)t->w + (size_t)from * GEMM_PANEL + at;
    __m256 sum[GEMM_TILE_ROWS][MOST_VECTORS];
    load_sums(rows, V, sum, t->c + at, t->ldc, t->fresh && !from);
    for (uint32_t k = from; k < to; k++, w += GEMM_PANEL) {
        __m256 full[MOST_VECTORS];
        prefetch(t, alone, k, V, at);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            full[v] = _mm256_loadu_ps(w + LANES * v);
        step(rows, V, sum, x + k, t->ldx, full);
    }
    store_sums(rows, V, sum, t->c + at, t->ldc);
}

TILE void column_bf16(const uint32_t rows, const int V, const bool alone, const gemm_tile *t,
                      uint32_t at, uint32_t from, uint32_t to)
{
    const float *x = t->x;
    const uint32_t *w = (const uint32_t *)t->w + (size_t)from * GEMM_PANEL + at;
    const __m256i high = _mm256_set1_epi32((int)0xffff0000);
    __m256 sum[GEMM_TILE_ROWS][MOST_VECTORS];
    load_sums(rows, V, sum, t->c + at, t->ldc, t->fresh && !from);
    for (uint32_t k = from; k < to; k++, w += GEMM_PANEL) {
        __m256 full[MOST_VECTORS];
        prefetch(t, alone, k, V, at);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            __m256i pair = _mm256_loadu_si256((const __m256i *)(w + LANES * v));
            full[v] = _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
        }
        step(rows, V, sum, x + 2 * k, t->ldx, full);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            __m256i pair = _mm256_loadu_si256((const __m256i *)(w + LANES * v));
            full[v] = _mm256_castsi256_ps(_mm256_and_si256(pair, high));
        }
        step(rows, V, sum, x + 2 * k + 1, t->ldx, full);
    }
    store_sums(rows, V, sum, t->c + at, t->ldc);
}

TILE void column_f16(const uint32_t rows, const int V, const bool alone, const gemm_tile *t,
                     uint32_t at, uint32_t from, uint32_t to)
{
    const float *x = t->x;
    const uint16_t *w = (const uint16_t *)t->w + (size_t)from * 2 * GEMM_PANEL + at;
    __m256 sum[GEMM_TILE_ROWS][MOST_VECTORS];
    load_sums(rows, V, sum, t->c + at, t->ldc, t->fresh && !from);
    for (uint32_t k = from; k < to; k++) {
        prefetch(t, alone, k, V, at);
#pragma GCC unroll 2
        for (int second = 0; second < 2; second++, w += GEMM_PANEL) {
            __m256 full[MOST_VECTORS];
#pragma GCC unroll 8
            for (int v = 0; v < V; v++)
                full[v] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(w + LANES * v)));
            step(rows, V, sum, x + 2 * k + second, t->ldx, full);
        }
    }
    store_sums(rows, V, sum, t->c + at, t->ldc);
}

/* One kernel: its columns at every height. `alone` is a constant in each: asked step by step, tiles
 * of six rows take a third longer. */
#define COLUMNS(name, rows, V, alone)                                                              \
    for (uint32_t at = 0; at < GEMM_PANEL; at += LANES * V)                                        \
        column_##name(rows, V, alone, t, at, from, to);                                            \
    break
#define HEIGHTS(name, alone)                                                                       \
    switch (t->rows) {                                                                             \
    case 1: COLUMNS(name, 1, 8, alone);                                                            \
    case 2: COLUMNS(name, 2, 4, alone);                                                            \
    case 3: COLUMNS(name, 3, 2, alone);                                                            \
    case 4: COLUMNS(name, 4, 2, alone);                                                            \
    case 5: COLUMNS(name, 5, 2, alone);                                                            \
    default: COLUMNS(name, 6, 2, alone);                                                           \
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
    static void avx2_##name(const gemm_tile *t)                                                    \
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

const gemm_isa gemm_avx2 = {.name = "avx2",
                            .f32 = avx2_f32,
                            .bf16 = avx2_bf16,
                            .bf16w = avx2_bf16,
                            .f16w = avx2_f16,
                            .quant = &gemm_quant_avx2,
                            .widens = true,
                            .round_row = gemm_round_to_f32};

/* The same with integer dot products. */
const gemm_isa gemm_avxvnni = {.name = "avxvnni",
                               .f32 = avx2_f32,
                               .bf16 = avx2_bf16,
                               .bf16w = avx2_bf16,
                               .f16w = avx2_f16,
                               .quant = &gemm_quant_avxvnni,
                               .widens = true,
                               .round_row = gemm_round_to_f32};
#else
const gemm_isa gemm_avxvnni = {.name = "avxvnni"};
const gemm_isa gemm_avx2 = {.name = "avx2"}; /* not this architecture */
#endif
