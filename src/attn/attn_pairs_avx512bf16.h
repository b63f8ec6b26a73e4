/* attn_pairs_avx512bf16.h - what both layouts of the arithmetic `pairs` have in common: its
 * exponential, how q and the values become pairs, and how blocks are folded.
 *
 * The narrow layout (attn_cpu_avx512bf16.c) has keys in the lanes, the wide one
 * (attn_wide_avx512bf16.c) rows of q; what is computed for a row is the same. */
#ifndef ATTN_ATTN_PAIRS_AVX512BF16_H
#define ATTN_ATTN_PAIRS_AVX512BF16_H

#include "attn/attn_vector_avx512.h"

#define TILE static inline __attribute__((always_inline))

enum { BLOCK = ATTN_BLOCK, PAIRS = ATTN_BLOCK / 2, VECTORS = BLOCK / W };

#define LOG2_E 0x1.715476p+0f

/* 2^x for x <= 0, off by less than 2^-18, which is little beside the rounding of a weight
 * to bf16; exactly 1 at 0, NaN at NaN. */
TILE vf exp_vf(vf x)
{
    x = _mm512_max_ps(vf_set1(-1000), x); /* the second operand when there is a NaN */
    vf n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf f = vf_sub(x, n);
    vf p = vf_set1(0x1.3a02c8p-7f);
    p = vf_fma(p, f, vf_set1(0x1.c9fc48p-5f));
    p = vf_fma(p, f, vf_set1(0x1.ec0378p-3f));
    p = vf_fma(p, f, vf_set1(0x1.62e12cp-1f));
    p = vf_fma(p, f, vf_set1(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* Weights, 2^x for x <= 0, before they are rounded to bf16: off by less than 2^-13, a
 * sixteenth of that rounding. Exactly 1 at 0, NaN at NaN. Below -126 it is 0, or so small that
 * it is rounded to 0. By additions mostly, which leave the multipliers to the products; and
 * `count` vectors step by step, since one alone is a long chain. */
TILE void weights_of(const int count, vf x[])
{
    const vf magic = vf_set1(0x1.8p23f); /* the last bits of a sum with it are round(x) */
    vf t[8], p[8];
#pragma GCC unroll 8
    for (int i = 0; i < count; i++)
        x[i] = _mm512_max_ps(vf_set1(-127), x[i]); /* the second operand when there is a NaN */
#pragma GCC unroll 8
    for (int i = 0; i < count; i++)
        t[i] = vf_add(x[i], magic);
#pragma GCC unroll 8
    for (int i = 0; i < count; i++)
        p[i] = vf_sub(t[i], magic);
#pragma GCC unroll 8
    for (int i = 0; i < count; i++)
        x[i] = vf_sub(x[i], p[i]);
#pragma GCC unroll 8
    for (int i = 0; i < count; i++)
        p[i] = vf_fma(x[i], vf_set1(0x1.c2a218p-5f), vf_set1(0x1.f00c4ep-3f));
#pragma GCC unroll 8
    for (int i = 0; i < count; i++)
        p[i] = vf_fma(p[i], x[i], vf_set1(0x1.62f5fap-1f));
#pragma GCC unroll 8
    for (int i = 0; i < count; i++)
        p[i] = vf_fma(p[i], x[i], vf_set1(1.0f));
#pragma GCC unroll 8
    for (int i = 0; i < count; i++)
        x[i] = _mm512_castsi512_ps(_mm512_add_epi32(
            _mm512_castps_si512(p[i]), _mm512_slli_epi32(_mm512_castps_si512(t[i]), 23)));
}

/* cap * tanh(s / cap) */
TILE vf cap_vf(vf s, float cap)
{
    vf y = vf_div(s, vf_set1(cap)), one = vf_set1(1.0f);
    vf e = exp_vf(vf_mul(vf_abs(y), vf_set1(-2 * LOG2_E)));
    vf tanh_abs = vf_div(vf_sub(one, e), vf_add(one, e));
    return vf_mul(vf_with_sign(tanh_abs, y), vf_set1(cap));
}

/* q is scaled before it is rounded, so that a score is a power of 2 as it comes. */
HELPER void prepare_pairs(const radix_attention *layer, const float *q, void *to)
{
    const float scale = layer->logit_cap > 0 ? layer->scaling : layer->scaling * LOG2_E;
    const uint32_t dim = layer->head_dim;
    const vf by = vf_set1(scale);
    uint16_t *half = to;
    uint32_t d = 0;
    for (; d + 2 * W <= dim; d += 2 * W) {
        __m512bh both =
            _mm512_cvtne2ps_pbh(vf_mul(vf_load(q + d + W), by), vf_mul(vf_load(q + d), by));
        _mm512_storeu_si512(half + d, (__m512i)both);
    }
    for (; d < dim; d++)
        half[d] = bf16_from_f32(q[d] * scale);
    if (dim & 1) half[dim] = 0;
}

HELPER size_t value_lanes(uint32_t v_dim)
{
    return (v_dim + W - 1) / W * W;
}

#define TWICE(i)      (uint32_t)(i) | (uint32_t)(i + 32) << 16
#define TWICE_FOUR(i) TWICE(i), TWICE(i + 1), TWICE(i + 2), TWICE(i + 3)

/* Which numbers of two keys make pairs: of the first 16 dimensions, of the next 16. */
static const _Alignas(64) uint32_t pairs_of_two[2][W] = {
    {TWICE_FOUR(0), TWICE_FOUR(4), TWICE_FOUR(8), TWICE_FOUR(12)},
    {TWICE_FOUR(16), TWICE_FOUR(20), TWICE_FOUR(24), TWICE_FOUR(28)}};

TILE __m512i pairs_low(void)
{
    return _mm512_load_si512(pairs_of_two[0]);
}

TILE __m512i pairs_high(void)
{
    return _mm512_load_si512(pairs_of_two[1]);
}

/* The values of keys j and j + 1, side by side. */
TILE void load_value_pair(const attn_rows_at *values, uint32_t j, const uint32_t v_dim,
                          uint32_t *to)
{
    const __m512i low = pairs_low(), high = pairs_high();
    const uint32_t whole = v_dim & ~31u, rest = v_dim - whole;
    const __mmask32 mask = (__mmask32)(((uint64_t)1 << rest) - 1);
    const char *a = attn_row_at(values, j), *b = attn_row_at(values, j + 1);
#pragma GCC unroll 4
    for (size_t d = 0; d < whole; d += 2 * W) {
        __m512i x = _mm512_loadu_si512(a + 2 * d), y = _mm512_loadu_si512(b + 2 * d);
        _mm512_store_si512(to + d, _mm512_permutex2var_epi16(x, low, y));
        _mm512_store_si512(to + d + W, _mm512_permutex2var_epi16(x, high, y));
    }
    if (rest == 0) return;
    __m512i x = _mm512_maskz_loadu_epi16(mask, a + 2 * whole);
    __m512i y = _mm512_maskz_loadu_epi16(mask, b + 2 * whole);
    _mm512_store_si512(to + whole, _mm512_permutex2var_epi16(x, low, y));
    if (rest > W) _mm512_store_si512(to + whole + W, _mm512_permutex2var_epi16(x, high, y));
}

HELPER void load_values(const attn_rows_at *values, uint32_t v_dim, void *to, attn_ahead *ahead)
{
    uint32_t *pair = to;
    const size_t ld = value_lanes(v_dim);
    const uint32_t lines = attn_lines_of((size_t)v_dim * 2);
    for (uint32_t j = 0; j < BLOCK; j += 2, pair += ld) {
        attn_ahead_fetch(ahead, lines); /* the other half during the products */
        load_value_pair(values, j, v_dim, pair);
    }
}

#endif
