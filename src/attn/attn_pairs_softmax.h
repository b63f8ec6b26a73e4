/* attn_pairs_softmax.h - what lies between the two products of `pairs` where lanes are keys: the
 * scores of a tile of rows become weights, maxima and sums. */
#ifndef ATTN_ATTN_PAIRS_SOFTMAX_H
#define ATTN_ATTN_PAIRS_SOFTMAX_H

#include "attn/attn_pairs_avx512bf16.h"

#include <math.h>

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
        if (t->key_scales[r]) {
            v[i] = vf_mul(v[i], vf_load(t->key_scales[r] + i * W));
            vf_store(s + i * W, v[i]);
        }
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
        sum[r] = _mm512_dpbf16_ps(_mm512_dpbf16_ps(vf_set1(0), low, ones), high, ones);
        if (t->value_scales[r]) {
#pragma GCC unroll 4
            for (int i = 0; i < VECTORS; i++) {
                v[i] = vf_mul(v[i], vf_load(t->value_scales[r] + i * W));
                if (!all) /* a scale that is not seen may be no number */
                    v[i] = vf_keep(v[i], vf_set1(0), (uint32_t)(i * W), t->begin[r], t->end[r]);
            }
            low = _mm512_cvtne2ps_pbh(v[1], v[0]);
            high = _mm512_cvtne2ps_pbh(v[3], v[2]);
        }
        _mm512_store_si512(p[r], (__m512i)low);
        _mm512_store_si512(p[r] + W, (__m512i)high);
    }
    _mm256_storeu_ps(t->sum, fold_sum(sum));
}

#endif
