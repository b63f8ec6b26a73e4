/* gemm_avx512bf16.c - VDPBF16PS: two products a lane and instruction, so twice the
 * rate of f32. Its rounding is its own (denormals are zero, the two products are
 * added one after the other), which is why every product of a bf16 weight goes
 * through it, with one row as with many. */
#include "model/gemm_kernels.h"

#if defined(__AVX512BF16__)
#include "model/gemm_tile_avx512.h"

TILE void tile_bf16(const uint32_t rows, const gemm_tile *t)
{
    const uint32_t *x = t->x;
    __m512 sum[GEMM_TILE_ROWS][VECTORS];
    load_sums(rows, sum, t);
    for (uint32_t k = 0; k < t->depth; k++) {
        __m512i pair[VECTORS];
        load_weight(pair, t, k);
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++) {
            __m512bh one = (__m512bh)_mm512_set1_epi32((int)x[r * t->ldx + k]);
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++)
                sum[r][v] = _mm512_dpbf16_ps(sum[r][v], one, (__m512bh)pair[v]);
        }
    }
    store_sums(rows, sum, t);
}

static void avx512_bf16(const gemm_tile *t)
{
    switch (t->rows) {
    case 1: tile_bf16(1, t); break;
    case 2: tile_bf16(2, t); break;
    case 3: tile_bf16(3, t); break;
    case 4: tile_bf16(4, t); break;
    case 5: tile_bf16(5, t); break;
    default: tile_bf16(6, t); break;
    }
}

const gemm_isa gemm_avx512bf16 = {.name = "avx512bf16",
                                  .f32 = avx512_f32,
                                  .bf16 = avx512_bf16,
                                  .bf16w = gemm_avx512_widened,
                                  .f16w = gemm_avx512_f16,
                                  .quant = &gemm_quant_avx512vnni,
                                  .widens = false,
                                  .round_row = gemm_round_to_bf16};
#else
const gemm_isa gemm_avx512bf16 = {.name = "avx512bf16"}; /* not this architecture */
#endif
