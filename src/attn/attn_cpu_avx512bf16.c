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
#include "attn/attn_wide.h"

#include <math.h>

#if defined(__AVX512BF16__)
#include "attn/attn_pairs_avx512bf16.h"

#include "attn/attn_merge_body.h"

/* 16 keys x up to 32 dimensions: a pair travels as one lane. */
TILE void load_tile(const attn_rows_at *keys, const uint32_t some, uint32_t j, uint32_t d,
                    uint32_t *to)
{
    const char *base = keys->base + (size_t)d * 2;
    const __mmask32 mask = (__mmask32)(((uint64_t)1 << some) - 1);
    __m512i tile[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        const char *key = base + (size_t)keys->slots[j + i] * keys->stride;
        tile[i] = some == 32 ? _mm512_loadu_si512(key) : _mm512_maskz_loadu_epi16(mask, key);
    }
    transpose(tile);
#pragma GCC unroll 16
    for (uint32_t i = 0; i < 16; i++)
        if (2 * i < some) _mm512_store_si512(to + i * BLOCK, tile[i]);
}

static void load_keys(const attn_rows_at *keys, uint32_t dim, void *to, attn_ahead *ahead)
{
    uint32_t *kt = to;
    for (uint32_t j = 0; j < BLOCK; j += 16) {
        uint32_t d = 0;
        for (; d + 32 <= dim; d += 32) {
            attn_ahead_fetch(ahead, 16);
            load_tile(keys, 32, j, d, kt + d / 2 * BLOCK + j);
        }
        if (d < dim) {
            attn_ahead_fetch(ahead, 16);
            load_tile(keys, dim - d, j, d, kt + d / 2 * BLOCK + j);
        }
    }
}

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
        if (ahead) attn_ahead_fetch(ahead, 1);
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

/* All columns: four vectors at a time, then one by one. */
TILE void product_rows(const uint32_t rows, uint32_t depth, const uint32_t *const *x,
                       const uint32_t *w, size_t columns, float *to, size_t ld, attn_ahead *ahead)
{
    size_t at = 0;
    for (; at + 4 * W <= columns; at += 4 * W)
        product(rows, 4, depth, x, w + at, columns, to + at, ld, ahead);
    for (; at < columns; at += W)
        product(rows, 1, depth, x, w + at, columns, to + at, ld, ahead);
}

/* Eight vectors to their eight folds, at once: a tree for each, the same for all. */
#define FOLD_EIGHT(name, op)                                                                       \
    TILE vf name##_two(vf a, vf b)                                                                 \
    {                                                                                              \
        return _mm512_##op##_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));               \
    }                                                                                              \
    TILE vf name##_four(vf a, vf b)                                                                \
    {                                                                                              \
        return _mm512_##op##_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));     \
    }                                                                                              \
    TILE __m256 name(const vf v[8])                                                                \
    {                                                                                              \
        vf a = name##_four(name##_two(v[0], v[1]), name##_two(v[2], v[3]));                        \
        vf b = name##_four(name##_two(v[4], v[5]), name##_two(v[6], v[7]));                        \
        vf c =                                                                                     \
            _mm512_##op##_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));  \
        __m256 low = _mm512_castps512_ps256(c), high = _mm512_extractf32x8_ps(c, 1);               \
        return _mm256_##op##_ps(_mm256_permute2f128_ps(low, high, 0x20),                           \
                                _mm256_permute2f128_ps(low, high, 0x31));                          \
    }
FOLD_EIGHT(fold_max, max)
FOLD_EIGHT(fold_sum, add)

/* A row's scores, or minus infinity where it sees no key. */
TILE void scores_of(const attn_tile *t, uint32_t r, const bool all, float *s, vf v[VECTORS])
{
#pragma GCC unroll 4
    for (int i = 0; i < VECTORS; i++) {
        v[i] = vf_load(s + i * W);
        if (all) continue;
        if (t->logit_cap > 0) v[i] = vf_mul(cap_vf(v[i], t->logit_cap), vf_set1(LOG2_E));
        v[i] = vf_keep(v[i], vf_set1(-INFINITY), (uint32_t)(i * W), t->begin[r], t->end[r]);
        vf_store(s + i * W, v[i]);
    }
}

/* The tile's scores to bf16 weights p, and their maxima and sums. `all`: all rows see all
 * keys, and nothing is capped. */
TILE void softmax(attn_tile *t, const uint32_t rows, const bool all, float *s, uint32_t p[][PAIRS])
{
    const __m512bh ones = (__m512bh)_mm512_set1_epi32(0x3f803f80);
    vf most[8], sum[8], v[VECTORS];
#pragma GCC unroll 8
    for (uint32_t r = rows; r < 8; r++)
        most[r] = sum[r] = vf_set1(0);
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        scores_of(t, r, all, s + r * BLOCK, v);
        most[r] = vf_max(vf_max(v[0], v[1]), vf_max(v[2], v[3]));
    }
    _mm256_storeu_ps(t->max, fold_max(most));
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        const vf max = vf_set1(t->max[r]);
#pragma GCC unroll 4
        for (int i = 0; i < VECTORS; i++)
            v[i] = vf_sub(vf_load(s + r * BLOCK + i * W), max);
        weights_of(VECTORS, v);
#pragma GCC unroll 4
        for (int i = 0; i < VECTORS && !all; i++)
            v[i] = vf_keep(v[i], vf_set1(0), (uint32_t)(i * W), t->begin[r], t->end[r]);
        __m512bh low = _mm512_cvtne2ps_pbh(v[1], v[0]), high = _mm512_cvtne2ps_pbh(v[3], v[2]);
        _mm512_store_si512(p[r], (__m512i)low);
        _mm512_store_si512(p[r] + W, (__m512i)high);
        sum[r] = _mm512_dpbf16_ps(_mm512_dpbf16_ps(vf_set1(0), low, ones), high, ones);
    }
    _mm256_storeu_ps(t->sum, fold_sum(sum));
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

static void attend(attn_tile *t)
{
    switch (t->rows) {
    case 1: attend_rows(1, t); break;
    case 2: attend_rows(2, t); break;
    case 3: attend_rows(3, t); break;
    case 4: attend_rows(4, t); break;
    case 5: attend_rows(5, t); break;
    default: attend_rows(6, t); break;
    }
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
                                            .wide = &attn_wide_avx512bf16};
#else
const attn_kernels attn_pairs_avx512bf16 = {.attend = NULL}; /* not this architecture */
#endif
