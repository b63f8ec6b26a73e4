/* gemm_avx512.c - AVX-512 without BF16 instructions: bf16 weights are widened to f32
 * on the way into the register, low half of the pair first. */
#include "model/gemm_kernels.h"

#if defined(__AVX512F__)
#include "model/gemm_tile_avx512.h"

TILE void tile_widened(const uint32_t rows, const gemm_tile *t)
{
    const float *x = t->x;
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    __m512 sum[GEMM_TILE_ROWS][VECTORS];
    load_sums(rows, sum, t);
    for (uint32_t k = 0; k < t->depth; k++) {
        __m512i pair[VECTORS];
        __m512 full[VECTORS];
        load_weight(pair, t, k);
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            full[v] = _mm512_castsi512_ps(_mm512_slli_epi32(pair[v], 16));
        step_f32(rows, sum, x + 2 * k, t->ldx, full);
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            full[v] = _mm512_castsi512_ps(_mm512_and_si512(pair[v], high));
        step_f32(rows, sum, x + 2 * k + 1, t->ldx, full);
    }
    store_sums(rows, sum, t);
}

TILE void tile_f16(const uint32_t rows, const gemm_tile *t)
{
    const float *x = t->x;
    const uint16_t *w = t->w;
    __m512 sum[GEMM_TILE_ROWS][VECTORS];
    load_sums(rows, sum, t);
    for (uint32_t k = 0; k < 2 * t->depth; k++, w += GEMM_PANEL) {
        __m512i here[VECTORS];
        __m512 full[VECTORS];
        if (k % 2 == 0) load_weight(here, t, k / 2); /* for what it asks for */
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            full[v] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(w + 16 * v)));
        step_f32(rows, sum, x + k, t->ldx, full);
    }
    store_sums(rows, sum, t);
}

void gemm_avx512_f16(const gemm_tile *t)
{
    switch (t->rows) {
    case 1: tile_f16(1, t); break;
    case 2: tile_f16(2, t); break;
    case 3: tile_f16(3, t); break;
    case 4: tile_f16(4, t); break;
    case 5: tile_f16(5, t); break;
    default: tile_f16(6, t); break;
    }
}

void gemm_avx512_widened(const gemm_tile *t)
{
    switch (t->rows) {
    case 1: tile_widened(1, t); break;
    case 2: tile_widened(2, t); break;
    case 3: tile_widened(3, t); break;
    case 4: tile_widened(4, t); break;
    case 5: tile_widened(5, t); break;
    default: tile_widened(6, t); break;
    }
}

const gemm_isa gemm_avx512 = {.name = "avx512",
                              .f32 = avx512_f32,
                              .bf16 = gemm_avx512_widened,
                              .bf16w = gemm_avx512_widened,
                              .f16w = gemm_avx512_f16,
                              .quant = &gemm_quant_avx2,
                              .widens = true,
                              .round_row = gemm_round_to_f32};

/* The same with integer dot products. */
const gemm_isa gemm_avx512vnni = {.name = "avx512vnni",
                                  .f32 = avx512_f32,
                                  .bf16 = gemm_avx512_widened,
                                  .bf16w = gemm_avx512_widened,
                                  .f16w = gemm_avx512_f16,
                                  .quant = &gemm_quant_avx512vnni,
                                  .widens = true,
                                  .round_row = gemm_round_to_f32};
#else
const gemm_isa gemm_avx512vnni = {.name = "avx512vnni"};
const gemm_isa gemm_avx512 = {.name = "avx512"}; /* not this architecture */
#endif
