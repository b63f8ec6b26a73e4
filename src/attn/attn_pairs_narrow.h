/* attn_pairs_narrow.h - the narrow layout of `pairs` but for its two products, which are made
 * by who includes this: keys transposed, and the softmax of a tile of rows. */
#ifndef ATTN_ATTN_PAIRS_NARROW_H
#define ATTN_ATTN_PAIRS_NARROW_H

#include "attn/attn_pairs_avx512bf16.h"

#include <math.h>

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
        if (t->key_scales) {
            v[i] = vf_mul(v[i], vf_load(t->key_scales + i * W));
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
        if (t->value_scales) {
#pragma GCC unroll 4
            for (int i = 0; i < VECTORS; i++) {
                v[i] = vf_mul(v[i], vf_load(t->value_scales + i * W));
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

/* A block for a tile of rows: scores, softmax, values. By who includes this. */
TILE void attend_rows(const uint32_t rows, attn_tile *t);

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

#endif
