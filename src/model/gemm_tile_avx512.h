/* gemm_tile_avx512.h - tiles of 6 rows x 64 outputs: 24 sums in registers, 4 of the
 * weight, the broadcast of x folded into the instruction. The weight is read once per
 * tile, 256 bytes a step, so one or two rows run at the speed of memory. */
#ifndef MODEL_GEMM_TILE_AVX512_H
#define MODEL_GEMM_TILE_AVX512_H

#include "model/gemm_kernels.h"

#include <immintrin.h>

#define TILE static inline __attribute__((always_inline))

enum { VECTORS = GEMM_PANEL / 16 };

TILE void load_sums(const uint32_t rows, __m512 sum[][VECTORS], const gemm_tile *t)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            sum[r][v] = t->fresh ? _mm512_setzero_ps()
                                 : _mm512_loadu_ps(t->c + r * t->ldc + 16 * v);
}

TILE void store_sums(const uint32_t rows, __m512 sum[][VECTORS], const gemm_tile *t)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            _mm512_storeu_ps(t->c + r * t->ldc + 16 * v, sum[r][v]);
}

/* One step's 256 bytes of the weight, and as many asked for, all the way to the L1 cache: of a
 * panel that this tile reads alone those a few KB further on, else its share of what comes next. */
TILE void load_weight(__m512i w[VECTORS], const gemm_tile *t, uint32_t k)
{
    enum { BYTES = VECTORS * 64 };
    const char *here = (const char *)t->w + (size_t)k * BYTES;
    const char *ahead = t->ahead + k * t->ahead_stride;
    const uint32_t near = gemm_near_steps(BYTES);
    if (t->ahead_stride == BYTES)
        ahead = k + near < t->depth ? here + near * BYTES
                                    : t->ahead + (size_t)(k + near - t->depth) * BYTES;
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++)
        w[v] = _mm512_loadu_si512(here + 64 * v);
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++)
        _mm_prefetch(ahead + 64 * v, _MM_HINT_T0);
}

TILE void step_f32(const uint32_t rows, __m512 sum[][VECTORS], const float *x, size_t ldx,
                   const __m512 w[VECTORS])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        __m512 one = _mm512_set1_ps(x[r * ldx]);
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            sum[r][v] = _mm512_fmadd_ps(one, w[v], sum[r][v]);
    }
}

TILE void tile_f32(const uint32_t rows, const gemm_tile *t)
{
    const float *x = t->x;
    __m512 sum[GEMM_TILE_ROWS][VECTORS];
    load_sums(rows, sum, t);
    for (uint32_t k = 0; k < t->depth; k++) {
        __m512i bits[VECTORS];
        __m512 full[VECTORS];
        load_weight(bits, t, k);
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            full[v] = _mm512_castsi512_ps(bits[v]);
        step_f32(rows, sum, x + k, t->ldx, full);
    }
    store_sums(rows, sum, t);
}

static void avx512_f32(const gemm_tile *t)
{
    switch (t->rows) {
    case 1: tile_f32(1, t); break;
    case 2: tile_f32(2, t); break;
    case 3: tile_f32(3, t); break;
    case 4: tile_f32(4, t); break;
    case 5: tile_f32(5, t); break;
    default: tile_f32(6, t); break;
    }
}

#endif
