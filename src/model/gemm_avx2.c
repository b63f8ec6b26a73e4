/* gemm_avx2.c - tiles of 6 rows x 16 outputs: 12 sums in flight and no spills in 16
 * registers. A panel is four such columns, one after the other; each fetches a quarter
 * of what comes next. */
#include "model/gemm_kernels.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

enum { COLUMN = 16 };
#define TILE static inline __attribute__((always_inline))

/* The line of `ahead` that belongs to this column. */
TILE void prefetch(const gemm_tile *t, uint32_t k, uint32_t column)
{
    _mm_prefetch(t->ahead + k * t->ahead_stride + column * 4, _MM_HINT_T1);
}

TILE void load_sums(const uint32_t rows, __m256 sum[][2], const float *c, size_t ldc, bool fresh)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        sum[r][0] = fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(c + r * ldc);
        sum[r][1] = fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(c + r * ldc + 8);
    }
}

TILE void store_sums(const uint32_t rows, __m256 sum[][2], float *c, size_t ldc)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        _mm256_storeu_ps(c + r * ldc, sum[r][0]);
        _mm256_storeu_ps(c + r * ldc + 8, sum[r][1]);
    }
}

TILE void step(const uint32_t rows, __m256 sum[][2], const float *x, size_t ldx, __m256 w0,
               __m256 w1)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        __m256 one = _mm256_broadcast_ss(x + r * ldx);
        sum[r][0] = _mm256_fmadd_ps(one, w0, sum[r][0]);
        sum[r][1] = _mm256_fmadd_ps(one, w1, sum[r][1]);
    }
}

TILE void column_f32(const uint32_t rows, const gemm_tile *t, uint32_t column)
{
    const float *x = t->x, *w = (const float *)t->w + column;
    float *c = t->c + column;
    __m256 sum[GEMM_TILE_ROWS][2];
    load_sums(rows, sum, c, t->ldc, t->fresh);
    for (uint32_t k = 0; k < t->depth; k++, w += GEMM_PANEL) {
        prefetch(t, k, column);
        step(rows, sum, x + k, t->ldx, _mm256_loadu_ps(w), _mm256_loadu_ps(w + 8));
    }
    store_sums(rows, sum, c, t->ldc);
}

TILE void column_bf16(const uint32_t rows, const gemm_tile *t, uint32_t column)
{
    const float *x = t->x;
    const uint32_t *w = (const uint32_t *)t->w + column;
    float *c = t->c + column;
    const __m256i high = _mm256_set1_epi32((int)0xffff0000);
    __m256 sum[GEMM_TILE_ROWS][2];
    load_sums(rows, sum, c, t->ldc, t->fresh);
    for (uint32_t k = 0; k < t->depth; k++, w += GEMM_PANEL) {
        prefetch(t, k, column);
        __m256i pair0 = _mm256_loadu_si256((const __m256i *)w);
        __m256i pair1 = _mm256_loadu_si256((const __m256i *)(w + 8));
        step(rows, sum, x + 2 * k, t->ldx, _mm256_castsi256_ps(_mm256_slli_epi32(pair0, 16)),
             _mm256_castsi256_ps(_mm256_slli_epi32(pair1, 16)));
        step(rows, sum, x + 2 * k + 1, t->ldx, _mm256_castsi256_ps(_mm256_and_si256(pair0, high)),
             _mm256_castsi256_ps(_mm256_and_si256(pair1, high)));
    }
    store_sums(rows, sum, c, t->ldc);
}

static void avx2_f32(const gemm_tile *t)
{
    for (uint32_t j = 0; j < GEMM_PANEL; j += COLUMN) {
        switch (t->rows) {
        case 1: column_f32(1, t, j); break;
        case 2: column_f32(2, t, j); break;
        case 3: column_f32(3, t, j); break;
        case 4: column_f32(4, t, j); break;
        case 5: column_f32(5, t, j); break;
        default: column_f32(6, t, j); break;
        }
    }
}

static void avx2_bf16(const gemm_tile *t)
{
    for (uint32_t j = 0; j < GEMM_PANEL; j += COLUMN) {
        switch (t->rows) {
        case 1: column_bf16(1, t, j); break;
        case 2: column_bf16(2, t, j); break;
        case 3: column_bf16(3, t, j); break;
        case 4: column_bf16(4, t, j); break;
        case 5: column_bf16(5, t, j); break;
        default: column_bf16(6, t, j); break;
        }
    }
}

const gemm_isa gemm_avx2 = {.name = "avx2",
                            .f32 = avx2_f32,
                            .bf16 = avx2_bf16,
                            .bf16w = avx2_bf16,
                            .quant = &gemm_quant_avx2,
                            .widens = true,
                            .round_row = gemm_round_to_f32};
#else
const gemm_isa gemm_avx2 = {.name = "avx2"}; /* not this architecture */
#endif
