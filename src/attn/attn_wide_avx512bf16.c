/* attn_wide_avx512bf16.c - the arithmetic `pairs` with rows of q in the lanes.
 *
 *     scores   S[key][row] = sum over pairs of dims   of key's pair (one, to all lanes) x q's
 *     weights  P[pair of keys][row], sums down a column, folded as attn_cpu_avx512bf16.c does
 *     values   O[dim][row] = sum over pairs of keys   of V's pair (one, to all lanes) x P
 *
 * Eight keys, or dims, times two groups are 16 chains of products: enough for an instruction
 * of 6 cycles started twice a cycle, and few loads. Everything that depends on a row alone
 * (maximum, scale) is one vector for 16 rows.
 *
 * Rows that do not see all of the block take the general way: scores outside are minus
 * infinity, and a pair is multiplied only in lanes that see one of its keys, the other one
 * of them replaced by 0. */
#include "attn/attn_wide.h"

#include <math.h>

#if defined(__AVX512BF16__)
#include "attn/attn_pairs_wide.h"

static void load_wide_values(const attn_rows_at *values, uint32_t v_dim, void *to,
                             attn_ahead *ahead)
{
    load_values(values, v_dim, to, ahead);
}

/* Which pairs are seen: by any, by all; and what of the others each lane sees. */
static void find_seen(const wide *t, middle *m)
{
    const __m512i none = _mm512_setzero_si512();
    int32_t least = BLOCK, most = 0, all_begin = 0, all_end = BLOCK;
    for (uint32_t g = 0; g < t->groups; g++) {
        __m512i begin = _mm512_load_si512(t->begin + g * W),
                end = _mm512_load_si512(t->end + g * W);
        m->live[g] = _mm512_cmplt_epi32_mask(begin, end);
        least = RAD_MIN(least, _mm512_mask_reduce_min_epi32(m->live[g], begin));
        most = RAD_MAX(most, _mm512_reduce_max_epi32(_mm512_maskz_mov_epi32(m->live[g], end)));
        all_begin = RAD_MAX(all_begin, _mm512_reduce_max_epi32(begin));
        all_end = RAD_MIN(all_end, m->live[g] == 0xffff ? _mm512_reduce_min_epi32(end) : 0);
    }
    m->low = (uint32_t)least / 2;
    m->high = (uint32_t)(most + 1) / 2;
    m->all_low = RAD_MIN((uint32_t)(all_begin + 1) / 2, m->high);
    m->all_high = (uint32_t)all_end / 2;
    if (m->all_low >= m->all_high) m->all_low = m->all_high = m->high;
    for (uint32_t i = m->low; i < m->high; i++)
        for (uint32_t g = 0; g < t->groups; g++) {
            __m512i even = _mm512_mask_set1_epi32(none, seeing(t, (int)g, 2 * i), 0xffff);
            __m512i odd =
                _mm512_mask_set1_epi32(none, seeing(t, (int)g, 2 * i + 1), (int)0xffff0000);
            _mm512_store_si512(m->seen + (i * t->groups + g) * W, _mm512_or_si512(even, odd));
        }
}

enum { CHAINS = 16 }; /* of products: keys or dims times groups */

/* The scores of the keys that are seen, and their maxima. */
TILE void scores(const int groups, const bool plain, const wide *t, middle *m)
{
    const uint32_t pairs = (t->dim + 1) / 2;
    const size_t ld = key_stride(t->dim) / 2;
    const uint32_t step = CHAINS / (uint32_t)groups; /* keys */
    uint32_t first = plain ? 0 : m->low * 2 / step * step, end = plain ? BLOCK : m->high * 2;
    vf max[GROUPS];
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++)
        max[g] = vf_set1(-INFINITY);
    for (uint32_t key = first; key < end; key += step) {
        const uint32_t *k = (const uint32_t *)t->keys + key * ld;
        const uint32_t *q = t->q;
        vf sum[CHAINS][GROUPS];
        attn_ahead_fetch(t->ahead, t->lines * (step / EIGHT));
#pragma GCC unroll 16
        for (uint32_t j = 0; j < step; j++)
#pragma GCC unroll 2
            for (int g = 0; g < groups; g++)
                sum[j][g] = vf_set1(0);
        for (uint32_t i = 0; i < pairs; i++, k++) {
            const uint32_t *upper = k + EIGHT * ld; /* few registers reach eight keys */
            __m512bh x[GROUPS];
#pragma GCC unroll 2
            for (int g = 0; g < groups; g++)
                x[g] = (__m512bh)_mm512_load_si512(
                    q + ((uint32_t)g * attn_wide_q_pairs(t->dim) + i) * W);
#pragma GCC unroll 16
            for (uint32_t j = 0; j < step; j++) {
                const uint32_t *at = (j < EIGHT ? k : upper) + j % EIGHT * ld;
                __m512bh one = (__m512bh)_mm512_set1_epi32((int)*at);
#pragma GCC unroll 2
                for (int g = 0; g < groups; g++)
                    sum[j][g] = _mm512_dpbf16_ps(sum[j][g], x[g], one);
            }
        }
#pragma GCC unroll 16
        for (uint32_t j = 0; j < step; j++)
#pragma GCC unroll 2
            for (int g = 0; g < groups; g++) {
                vf s = sum[j][g];
                if (t->key_scales) s = vf_mul(s, vf_set1(t->key_scales[key + j]));
                if (!plain) {
                    if (t->logit_cap > 0) s = vf_mul(cap_vf(s, t->logit_cap), vf_set1(LOG2_E));
                    s = _mm512_mask_mov_ps(vf_set1(-INFINITY), seeing(t, g, key + j), s);
                }
                max[g] = vf_max(max[g], s);
                vf_store(m->s + ((key + j) * (uint32_t)groups + (uint32_t)g) * W, s);
            }
    }
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++)
        m->max[g] = max[g];
}

/* A step of dims over the pairs [i, end). `whole`: all lanes see all of them. */
TILE void some_values(const int groups, const bool whole, const middle *m, const uint32_t *v,
                      size_t ld, uint32_t i, uint32_t end, vf sum[CHAINS][GROUPS])
{
    for (; i < end; i++) {
        __m512bh p[GROUPS];
        __m512i seen[GROUPS];
        __mmask16 any[GROUPS];
#pragma GCC unroll 2
        for (int g = 0; g < groups; g++) {
            const size_t at = (i * (uint32_t)groups + (uint32_t)g) * W;
            p[g] = (__m512bh)_mm512_load_si512(m->p + at);
            if (whole) continue;
            seen[g] = _mm512_load_si512(m->seen + at);
            any[g] = _mm512_test_epi32_mask(seen[g], seen[g]);
        }
#pragma GCC unroll 16
        for (int d = 0; d < CHAINS / groups; d++) {
            __m512i one = _mm512_set1_epi32((int)v[i * ld + (uint32_t)d]);
#pragma GCC unroll 2
            for (int g = 0; g < groups; g++)
                sum[d][g] = whole ? _mm512_dpbf16_ps(sum[d][g], p[g], (__m512bh)one)
                                  : _mm512_mask_dpbf16_ps(sum[d][g], any[g], p[g],
                                                          (__m512bh)_mm512_and_si512(one, seen[g]));
        }
    }
}

TILE void values(const int groups, const bool plain, const wide *t, const middle *m)
{
    const size_t ld = value_lanes(t->v_dim);
    const uint32_t step = CHAINS / (uint32_t)groups; /* dims; there is room for 16 */
    for (uint32_t d = 0; d < t->v_dim; d += step) {
        const uint32_t *v = t->values + d;
        vf sum[CHAINS][GROUPS];
        attn_ahead_fetch(t->ahead, t->lines * (step / EIGHT));
#pragma GCC unroll 16
        for (uint32_t e = 0; e < step; e++)
#pragma GCC unroll 2
            for (int g = 0; g < groups; g++)
                sum[e][g] = vf_set1(0);
        if (plain) {
            some_values(groups, true, m, v, ld, 0, PAIRS, sum);
        } else {
            some_values(groups, false, m, v, ld, m->low, m->all_low, sum);
            some_values(groups, true, m, v, ld, m->all_low, m->all_high, sum);
            some_values(groups, false, m, v, ld, m->all_high, m->high, sum);
        }
#pragma GCC unroll 16
        for (uint32_t e = 0; e < step; e++)
#pragma GCC unroll 2
            for (int g = 0; g < groups; g++) {
                float *to = t->total + ((size_t)g * ld + d + e) * W;
                vf total = vf_fma(sum[e][g], m->block_scale[g], vf_mul(vf_load(to), m->scale[g]));
                if (plain)
                    vf_store(to, total);
                else
                    _mm512_mask_storeu_ps(to, m->live[g], total);
            }
    }
}

TILE void attend_groups(const int groups, const bool plain, const wide *t)
{
    middle m;
    if (!plain) find_seen(t, &m);
    scores(groups, plain, t, &m);
    weights(groups, plain, t, &m);
    values(groups, plain, t, &m);
}

static __attribute__((noinline)) void attend_one(const wide *t)
{
    attend_groups(1, true, t);
}
static __attribute__((noinline)) void attend_two(const wide *t)
{
    attend_groups(2, true, t);
}
static __attribute__((noinline)) void attend_one_edge(const wide *t)
{
    attend_groups(1, false, t);
}
static __attribute__((noinline)) void attend_two_edge(const wide *t)
{
    attend_groups(2, false, t);
}

static void attend(const wide *t)
{
    const bool plain = t->all && !(t->logit_cap > 0);
    if (t->groups == 2)
        (plain ? attend_two : attend_two_edge)(t);
    else
        (plain ? attend_one : attend_one_edge)(t);
}

const attn_wide_kernels attn_wide_avx512bf16 = {.pack_q = pack_q,
                                                .load_keys = load_wide_keys,
                                                .load_values = load_wide_values,
                                                .attend = attend,
                                                .load_rows = load_rows,
                                                .store_rows = store_rows};
#else
const attn_wide_kernels attn_wide_avx512bf16 = {.attend = NULL}; /* not this architecture */
#endif
