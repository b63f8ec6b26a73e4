/* gemm_tile_avx512.h - tiles of 6 rows x 64 outputs: 24 sums in registers, 4 of the
 * weight, the broadcast of x folded into the instruction. The weight is read once per
 * tile, 256 bytes a step, so one or two rows run at the speed of memory. */
#ifndef MODEL_GEMM_TILE_AVX512_H
#define MODEL_GEMM_TILE_AVX512_H

#include "model/gemm_kernels.h"

#include <immintrin.h>

#define TILE static inline __attribute__((always_inline))

enum { VECTORS = GEMM_PANEL / 16, PREFETCH_BYTES = 4096 };

TILE void load_sums(const uint32_t rows, __m512 sum[][VECTORS], const float *c, size_t ldc,
                    bool fresh)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            sum[r][v] = fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(c + r * ldc + 16 * v);
}

TILE void store_sums(const uint32_t rows, __m512 sum[][VECTORS], float *c, size_t ldc)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            _mm512_storeu_ps(c + r * ldc + 16 * v, sum[r][v]);
}

/* One step's 256 bytes of the weight. With few rows memory is what bounds, and the
 * CPU's own prefetcher stops at page ends. */
TILE void load_weight(const uint32_t rows, __m512i w[VECTORS], const void *panel)
{
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
        const char *line = (const char *)panel + 64 * v;
        if (rows <= 2) _mm_prefetch(line + PREFETCH_BYTES, _MM_HINT_T0);
        w[v] = _mm512_loadu_si512(line);
    }
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

TILE void tile_f32(const uint32_t rows, uint32_t depth, const float *x, size_t ldx, const float *w,
                   float *c, size_t ldc, bool fresh)
{
    __m512 sum[GEMM_TILE_ROWS][VECTORS];
    load_sums(rows, sum, c, ldc, fresh);
    for (uint32_t k = 0; k < depth; k++, w += GEMM_PANEL) {
        __m512i bits[VECTORS];
        __m512 full[VECTORS];
        load_weight(rows, bits, w);
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            full[v] = _mm512_castsi512_ps(bits[v]);
        step_f32(rows, sum, x + k, ldx, full);
    }
    store_sums(rows, sum, c, ldc);
}

static void avx512_f32(uint32_t rows, uint32_t depth, const void *x, size_t ldx, const void *w,
                       float *c, size_t ldc, bool fresh)
{
    switch (rows) {
    case 1: tile_f32(1, depth, x, ldx, w, c, ldc, fresh); break;
    case 2: tile_f32(2, depth, x, ldx, w, c, ldc, fresh); break;
    case 3: tile_f32(3, depth, x, ldx, w, c, ldc, fresh); break;
    case 4: tile_f32(4, depth, x, ldx, w, c, ldc, fresh); break;
    case 5: tile_f32(5, depth, x, ldx, w, c, ldc, fresh); break;
    default: tile_f32(6, depth, x, ldx, w, c, ldc, fresh); break;
    }
}

#endif
