/* attn_cpu_avx512bf16.c - the arithmetic `pairs` of attn_kernels.h: VDPBF16PS, two
 * products a lane and instruction.
 *
 * Scores and values are the same small product, rows of bf16 pairs times a packed matrix:
 *
 *     scores   q [rows][dim / 2]  x  keys   [dim / 2][64 keys]      pairs of dimensions
 *     values   p [rows][32]       x  values [32][v_dim]             pairs of keys
 *
 * The instruction adds its two products one after the other and takes denormals for zero;
 * a weight of 0 adds nothing, whatever finite value it meets. A value that a row does not
 * see may be no number at all, so at an odd edge it is replaced by 0. */
#include "attn/attn_strip.h"
#include "attn/attn_wide.h"

#if defined(__AVX512BF16__)
#include "attn/attn_pairs_narrow.h"

/* to[r][0..16 * vectors) = sum over pairs i < depth of x[r][i] times w[i]. */
TILE void product(const uint32_t rows, const int vectors, uint32_t depth, const uint32_t *const *x,
                  const uint32_t *w, size_t ldw, float *to, size_t ld, attn_ahead *ahead)
{
    __m512 sum[ATTN_TILE_ROWS][4];
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            sum[r][v] = _mm512_setzero_ps();
    for (uint32_t i = 0; i < depth; i++) {
        __m512i pair[4];
        if (ahead && i % 4 == 0) attn_ahead_fetch(ahead, 4); /* one by one costs more */
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            pair[v] = _mm512_load_si512(w + i * ldw + 16 * v);
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++) {
            __m512bh one = (__m512bh)_mm512_set1_epi32((int)x[r][i]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                sum[r][v] = _mm512_dpbf16_ps(sum[r][v], one, (__m512bh)pair[v]);
        }
    }
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            _mm512_store_ps(to + r * ld + 16 * v, sum[r][v]);
}

/* All columns: four vectors at a time, then two, then one: of few sums each waits for the last. */
TILE void product_rows(const uint32_t rows, uint32_t depth, const uint32_t *const *x,
                       const uint32_t *w, size_t columns, float *to, size_t ld, attn_ahead *ahead)
{
    size_t at = 0;
    for (; at + 4 * W <= columns; at += 4 * W)
        product(rows, 4, depth, x, w + at, columns, to + at, ld, ahead);
    for (; at + 2 * W <= columns; at += 2 * W)
        product(rows, 2, depth, x, w + at, columns, to + at, ld, ahead);
    for (; at < columns; at += W)
        product(rows, 1, depth, x, w + at, columns, to + at, ld, ahead);
}

/* One row's values from pair `first` to key `end`, unseen ones as 0; onto what `part` holds
 * unless `fresh`. */
static void edge_values(const uint32_t *p, const uint32_t *vp, size_t columns, uint32_t first,
                        uint32_t begin, uint32_t end, float *part, bool fresh)
{
    for (size_t at = 0; at < columns; at += W) {
        __m512 sum = fresh ? _mm512_setzero_ps() : _mm512_load_ps(part + at);
        for (uint32_t i = first; 2 * i < end; i++) {
            uint32_t seen = (2 * i >= begin ? 0xffff : 0) | (2 * i + 1 < end ? 0xffff0000 : 0);
            __m512i value = _mm512_and_si512(_mm512_load_si512(vp + i * columns + at),
                                             _mm512_set1_epi32((int)seen));
            sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32((int)p[i]), (__m512bh)value);
        }
        _mm512_store_ps(part + at, sum);
    }
}

TILE void attend_rows(const uint32_t rows, attn_tile *t)
{
    _Alignas(64) float s[ATTN_TILE_ROWS * BLOCK];
    _Alignas(64) uint32_t p[ATTN_TILE_ROWS][PAIRS];
    const uint32_t *weights[ATTN_TILE_ROWS];
    const size_t columns = value_lanes(t->v_dim);
    uint32_t most_begin = 0, least_end = BLOCK;
    product_rows(rows, (t->dim + 1) / 2, (const uint32_t *const *)t->q, t->keys, BLOCK, s, BLOCK,
                 t->ahead);
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        most_begin = RAD_MAX(most_begin, t->begin[r]);
        least_end = RAD_MIN(least_end, t->end[r]);
        weights[r] = p[r];
    }
    const bool all = most_begin == 0 && least_end == BLOCK;
    if (all && !(t->logit_cap > 0))
        softmax(t, rows, true, s, p);
    else
        softmax(t, rows, false, s, p);
    /* What all see, then the rest row by row. */
    uint32_t depth = most_begin ? 0 : least_end / 2;
    if (depth)
        product_rows(rows, depth, weights, t->values, columns, t->part, t->part_ld, t->ahead);
    if (all) return;
    for (uint32_t r = 0; r < rows; r++)
        if (!depth || t->end[r] > 2 * depth)
            edge_values(p[r], t->values, columns, depth ? depth : t->begin[r] / 2, t->begin[r],
                        t->end[r], t->part + r * t->part_ld, !depth);
}

const attn_kernels attn_pairs_avx512bf16 = {.pairs = true,
                                            .prepare_q = prepare_pairs,
                                            .load_keys = load_keys,
                                            .load_values = load_values,
                                            .attend = attend,
                                            .fold = fold,
                                            .merge = merge,
                                            .divide = divide,
                                            .exp = exp_one,
                                            .wide = &attn_wide_avx512bf16,
                                            .strip = attn_strip_avx512bf16};
#else
const attn_kernels attn_pairs_avx512bf16 = {.attend = NULL}; /* not this architecture */
#endif
