/* attn_pairs_wide.h - the wide layout of `pairs` but for its two products, which are made by
 * who includes this: how q, keys and totals come into it, and the weights. */
#ifndef ATTN_ATTN_PAIRS_WIDE_H
#define ATTN_ATTN_PAIRS_WIDE_H

#include "attn/attn_pairs_avx512bf16.h"
#include "attn/attn_wide.h"

enum { GROUPS = ATTN_WIDE_TILE, EIGHT = 8 };

typedef struct attn_wide_tile wide;

/* What a tile has between its three parts. */
typedef struct middle {
    _Alignas(64) float s[BLOCK * GROUPS * W];        /* [key][group][16] */
    _Alignas(64) uint32_t p[PAIRS * GROUPS * W];     /* [pair][group][16] */
    _Alignas(64) float sums[BLOCK / 4 * GROUPS * W]; /* [pair % 16][group][16], of weights */
    _Alignas(64) uint32_t seen[PAIRS * GROUPS * W];  /* likewise: which half, where not all */
    vf max[GROUPS], scale[GROUPS], block_scale[GROUPS];
    __mmask16 live[GROUPS];     /* lanes that see anything */
    uint32_t low, high;         /* pairs that any row sees any of */
    uint32_t all_low, all_high; /* pairs that all rows see whole */
} middle;

static uint32_t key_stride(uint32_t dim)
{
    return (dim + 31) & ~31u;
}

TILE void load_wide_key(const attn_rows_at *keys, uint32_t j, uint32_t dim, uint16_t *to)
{
    const uint32_t whole = dim & ~31u;
    const __mmask32 rest = (__mmask32)(((uint64_t)1 << (dim - whole)) - 1);
    const char *key = attn_row_at(keys, j);
#pragma GCC unroll 4
    for (size_t d = 0; d < whole; d += 32)
        _mm512_store_si512(to + d, _mm512_loadu_si512(key + 2 * d));
    if (rest) _mm512_store_si512(to + whole, _mm512_maskz_loadu_epi16(rest, key + 2 * whole));
}

static void load_wide_keys(const attn_rows_at *keys, uint32_t dim, uint16_t *to)
{
    for (uint32_t j = 0; j < BLOCK; j++, to += key_stride(dim))
        load_wide_key(keys, j, dim, to);
}

TILE void fetch_ahead(const wide *t, uint32_t steps)
{
    for (; steps > 0; steps--, t->ahead->next += t->ahead->step)
        attn_wide_fetch(t->ahead);
}

static void pack_q(const radix_attention *layer, const float *const *q, uint32_t *to)
{
    _Alignas(64) uint32_t rows[W][ATTN_MOST_DIM / 2];
    const uint32_t pairs = (layer->head_dim + 1) / 2;
    for (int r = 0; r < W; r++)
        if (q[r]) prepare_pairs(layer, q[r], rows[r]);
    for (uint32_t d = 0; d < pairs; d += W) {
        const __mmask16 some = lanes_below(RAD_MIN(pairs - d, W));
        __m512i tile[W];
#pragma GCC unroll 16
        for (int r = 0; r < W; r++)
            tile[r] = q[r] ? _mm512_maskz_loadu_epi32(some, rows[r] + d) : _mm512_setzero_si512();
        transpose(tile);
#pragma GCC unroll 16
        for (uint32_t i = 0; i < W; i++)
            _mm512_store_si512(to + (d + i) * W, tile[i]); /* zeros behind the last pair */
    }
}

static void load_rows(uint32_t v_dim, const float *const *rows, float *total)
{
    for (uint32_t d = 0; d < v_dim; d += W) {
        const __mmask16 some = lanes_below(RAD_MIN(v_dim - d, W));
        __m512i tile[W];
#pragma GCC unroll 16
        for (int r = 0; r < W; r++)
            tile[r] = rows[r] ? _mm512_maskz_loadu_epi32(some, rows[r] + d)
                              : _mm512_setzero_si512();
        transpose(tile);
#pragma GCC unroll 16
        for (int i = 0; i < W; i++)
            _mm512_store_si512(total + (d + i) * W, tile[i]);
    }
}

static void store_rows(uint32_t v_dim, const float *total, const float *sum, float *const *rows)
{
    for (uint32_t d = 0; d < v_dim; d += W) {
        const __mmask16 some = lanes_below(RAD_MIN(v_dim - d, W));
        __m512i tile[W];
#pragma GCC unroll 16
        for (int i = 0; i < W; i++) {
            vf v = vf_load(total + (d + i) * W);
            tile[i] = _mm512_castps_si512(sum ? vf_div(v, vf_load(sum)) : v);
        }
        transpose(tile);
#pragma GCC unroll 16
        for (int r = 0; r < W; r++)
            if (rows[r]) _mm512_mask_storeu_epi32(rows[r] + d, some, tile[r]);
    }
}

/* Lanes that see key `j`. */
TILE __mmask16 seeing(const wide *t, int g, uint32_t j)
{
    const __m512i key = _mm512_set1_epi32((int)j);
    return _mm512_cmple_epi32_mask(_mm512_load_si512(t->begin + g * W), key) &
           _mm512_cmpgt_epi32_mask(_mm512_load_si512(t->end + g * W), key);
}

/* Weights of two keys to a pair in each lane. */
TILE __m512bh pair_of(__m512i side_by_side, vf even, vf odd)
{
    return (__m512bh)_mm512_permutexvar_epi16(side_by_side,
                                              (__m512i)_mm512_cvtne2ps_pbh(odd, even));
}

/* Where a pair of keys has its scores, its weights and its part of their sum, in one group. */
typedef struct pair_at {
    const float *s;
    uint32_t *p;
    float *sum; /* of pairs i and i + 16, in the order of the narrow layout's lanes */
} pair_at;

TILE pair_at pair_of_keys(const int groups, middle *m, uint32_t i, uint32_t g)
{
    const uint32_t step = (uint32_t)groups * W;
    return (pair_at){m->s + 2 * i * step + g * W, m->p + i * step + g * W,
                     m->sums + i % (PAIRS / 2) * step + g * W};
}

/* The weights of the keys 2i and 2i + 1 in group `g`, whose rows have the maxima `max`.
 * `later`: all lanes when i is the second pair of its sum. */
TILE void pair_weights(const int groups, const bool plain, const wide *t, const pair_at *at, vf max,
                       __mmask16 later, const float *scales, uint32_t i, uint32_t g)
{
    const __m512bh ones = (__m512bh)_mm512_set1_epi32(0x3f803f80);
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i side_by_side = _mm512_or_si512(
        lanes, _mm512_slli_epi32(_mm512_add_epi32(lanes, _mm512_set1_epi32(W)), 16));
    vf x[2] = {vf_sub(vf_load(at->s), max), vf_sub(vf_load(at->s + groups * W), max)};
    weights_of(2, x);
#pragma GCC unroll 2
    for (uint32_t k = 0; k < 2 && !plain; k++)
        x[k] = _mm512_maskz_mov_ps(seeing(t, (int)g, 2 * i + k), x[k]);
    __m512bh pair = pair_of(side_by_side, x[0], x[1]);
    vf_store(at->sum, _mm512_dpbf16_ps(_mm512_maskz_loadu_ps(later, at->sum), pair, ones));
    if (scales) {
#pragma GCC unroll 2
        for (uint32_t k = 0; k < 2; k++) {
            x[k] = vf_mul(x[k], vf_set1(scales[2 * i + k]));
            if (!plain) x[k] = _mm512_maskz_mov_ps(seeing(t, (int)g, 2 * i + k), x[k]);
        }
        pair = pair_of(side_by_side, x[0], x[1]);
    }
    _mm512_store_si512(at->p, (__m512i)pair);
}

/* The sums of the weights, and the fold. */
TILE void fold_weights(const int groups, const bool plain, const wide *t, middle *m, const vf max[])
{
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++) {
        const uint32_t step = (uint32_t)groups * W;
        const float *x = m->sums + g * W;
        vf quad[4];
#pragma GCC unroll 4
        for (uint32_t c = 0; c < 4; c++, x += 4 * step)
            quad[c] = vf_add(vf_add(vf_load(x), vf_load(x + 2 * step)),
                             vf_add(vf_load(x + step), vf_load(x + 3 * step)));
        const vf block_sum = vf_add(vf_add(quad[0], quad[1]), vf_add(quad[2], quad[3]));
        const __mmask16 live = plain ? 0xffff : m->live[g];
        const vf old = vf_load(t->max + g * W), sum = vf_load(t->sum + g * W);
        const vf larger = vf_max(max[g], old); /* `old` for a NaN, as in attn_merge_body.h */
        m->scale[g] = exp_vf(vf_sub(old, larger));
        m->block_scale[g] = exp_vf(vf_sub(max[g], larger));
        _mm512_mask_storeu_ps(t->max + g * W, live, larger);
        _mm512_mask_storeu_ps(t->sum + g * W, live,
                              vf_fma(block_sum, m->block_scale[g], vf_mul(sum, m->scale[g])));
    }
}

TILE void weights(const int groups, const bool plain, const wide *t, middle *m)
{
    const float *scales = t->value_scales;
    const vf max[GROUPS] = {m->max[0], m->max[groups - 1]};
    for (uint32_t i = 0; i < PAIRS; i++)
#pragma GCC unroll 2
        for (uint32_t g = 0; g < (uint32_t)groups; g++) {
            const pair_at at = pair_of_keys(groups, m, i, g);
            pair_weights(groups, plain, t, &at, max[g], i < PAIRS / 2 ? 0 : 0xffff, scales, i, g);
        }
    fold_weights(groups, plain, t, m, max);
}

#endif
