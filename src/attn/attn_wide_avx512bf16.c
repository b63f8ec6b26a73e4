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
 * Weights need few of the units that multiply, so those of a tile are made between the products
 * of the next tile's scores (`finish`). So is the next block loaded, two tokens a step.
 *
 * Rows that do not see all of the block take the general way: scores outside are minus
 * infinity, and a pair is multiplied only in lanes that see one of its keys, the other one
 * of them replaced by 0. */
#include "attn/attn_wide.h"

#include <assert.h>
#include <math.h>

#if defined(__AVX512BF16__)
#include "attn/attn_pairs_wide.h"

TILE void load_two(const attn_wide_ahead *a, uint32_t dim, uint32_t v_dim, uint32_t j)
{
    const size_t ld = key_stride(dim), v_ld = value_lanes(v_dim);
    load_wide_key(&a->rows[0], j, dim, a->keys + j * ld);
    load_wide_key(&a->rows[0], j + 1, dim, a->keys + (j + 1) * ld);
    load_value_pair(&a->rows[1], j, v_dim, a->values + j / 2 * v_ld);
}

/* Tokens from `j` on. */
TILE void load_tokens(const attn_wide_ahead *a, uint32_t dim, uint32_t v_dim, uint32_t j,
                      uint32_t end)
{
    for (; j < end; j += 2)
        load_two(a, dim, v_dim, j);
}

static void load_ahead(attn_wide_ahead *a, uint32_t dim, uint32_t v_dim)
{
    load_tokens(a, dim, v_dim, a->next < a->lag ? 0 : a->next - a->lag, BLOCK);
    a->next = BLOCK + a->lag;
}

/* Two tokens of a head with `dim` numbers of each kind: no loops, whose ends the core would
 * have to guess. */
TILE void fetch_two(const attn_wide_ahead *a, const uint32_t dim, uint32_t j)
{
#pragma GCC unroll 2
    for (uint32_t i = j; i < j + 2; i++) {
        const char *key = attn_row_at(&a->rows[0], i), *value = attn_row_at(&a->rows[1], i);
#pragma GCC unroll 4
        for (uint32_t d = 0; d < dim; d += 32) {
            __builtin_prefetch(key + 2 * d, 0, 3);
            __builtin_prefetch(value + 2 * d, 0, 3);
        }
    }
}

/* `known`: dim and v_dim are the same and a constant. */
TILE void step_of(attn_wide_ahead *a, const bool known, const uint32_t dim, const uint32_t v_dim)
{
    const uint32_t next = a->next;
    const bool loads = next >= a->lag && a->keys;
    if (known && a->step == 2) {
        if (next < BLOCK) fetch_two(a, dim, next);
        if (loads) load_two(a, dim, v_dim, next - a->lag);
    } else if (known) {
        const uint32_t end = RAD_MIN(next + a->step, BLOCK);
        for (uint32_t j = next; j < end; j += 2)
            fetch_two(a, dim, j);
        if (loads)
            load_tokens(a, dim, v_dim, next - a->lag, RAD_MIN(next - a->lag + a->step, BLOCK));
    } else {
        if (next < BLOCK) attn_wide_fetch(a);
        if (loads)
            load_tokens(a, dim, v_dim, next - a->lag, RAD_MIN(next - a->lag + a->step, BLOCK));
    }
    a->next = next + a->step;
}

/* Calls, so that the products' loops keep all registers. */
static __attribute__((noinline)) void step_32(attn_wide_ahead *a)
{
    step_of(a, true, 32, 32);
}
static __attribute__((noinline)) void step_64(attn_wide_ahead *a)
{
    step_of(a, true, 64, 64);
}
static __attribute__((noinline)) void step_128(attn_wide_ahead *a)
{
    step_of(a, true, 128, 128);
}
static __attribute__((noinline)) void step_any(attn_wide_ahead *a, uint32_t dim, uint32_t v_dim)
{
    step_of(a, false, dim, v_dim);
}

/* `dim`: of keys and values where it is known, else 0. */
TILE void steps_ahead(const wide *t, const uint32_t dim, uint32_t steps)
{
    for (; steps > 0; steps--) {
        if (t->ahead->next >= BLOCK + t->ahead->lag) return;
        if (dim == 64)
            step_64(t->ahead);
        else if (dim == 128)
            step_128(t->ahead);
        else if (t->dim == 32 && t->v_dim == 32)
            step_32(t->ahead);
        else
            step_any(t->ahead, t->dim, t->v_dim);
    }
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

/* A pair of dims for CHAINS / groups keys. */
TILE void one_step(const int groups, const uint32_t *q, size_t q_ld, const uint32_t *k, size_t ld,
                   vf sum[CHAINS][GROUPS])
{
    const uint32_t *upper = k + EIGHT * ld; /* few registers reach eight keys */
    __m512bh x[GROUPS];
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++)
        x[g] = (__m512bh)_mm512_load_si512(q + (size_t)g * q_ld);
#pragma GCC unroll 16
    for (int j = 0; j < CHAINS / groups; j++) {
        __m512bh one =
            (__m512bh)_mm512_set1_epi32((int)*((j < EIGHT ? k : upper) + (size_t)j % EIGHT * ld));
#pragma GCC unroll 2
        for (int g = 0; g < groups; g++)
            sum[j][g] = _mm512_dpbf16_ps(sum[j][g], x[g], one);
    }
}

/* The scores of the keys that are seen, and their maxima. On the way, where it is not NULL, the
 * weights of the tile `before` of as many groups, whose scores are in `m`: they take other
 * units of the core than the products, and make room for this tile's scores key by key.
 * `dim`: the tile's where it is known, else 0, and there is no tile before. */
TILE void scores(const int groups, const bool plain, const uint32_t dim, const wide *t, middle *m,
                 const wide *before)
{
    const uint32_t pairs = ((dim ? dim : t->dim) + 1) / 2;
    const size_t ld = key_stride(2 * pairs) / 2, q_ld = attn_wide_q_pairs(2 * pairs) * W;
    const uint32_t step = CHAINS / (uint32_t)groups; /* keys */
    const float *key_scales = t->key_scales, *scales_before = before ? before->value_scales : NULL;
    uint32_t first = plain ? 0 : m->low * 2 / step * step, end = plain ? BLOCK : m->high * 2;
    vf max[GROUPS], max_before[GROUPS];
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++) {
        max[g] = vf_set1(-INFINITY);
        if (before) max_before[g] = m->max[g];
    }
    for (uint32_t key = first; key < end; key += step) {
        const uint32_t *k = (const uint32_t *)t->keys + key * ld, *end_k = k + pairs;
        const uint32_t *q = t->q;
        vf sum[CHAINS][GROUPS];
        steps_ahead(t, dim, step / EIGHT);
#pragma GCC unroll 16
        for (uint32_t j = 0; j < step; j++)
#pragma GCC unroll 2
            for (int g = 0; g < groups; g++)
                sum[j][g] = vf_set1(0);
        if (before) {
            const __mmask16 later = key < BLOCK / 2 ? 0 : 0xffff;
            pair_at at = pair_of_keys(groups, m, key / 2, 0);
            for (uint32_t i = key / 2; i < (key + step) / 2; i++) {
#pragma GCC unroll 2
                for (int g = 0; g < groups; g++) {
                    const pair_at here = {at.s + g * W, at.p + g * W, at.sum + g * W};
#pragma GCC unroll 16
                    for (uint32_t n = 0; n < dim / 16; n++, k++, q += W)
                        one_step(groups, q, q_ld, k, ld, sum);
                    pair_weights(groups, true, before, &here, max_before[g], later, scales_before,
                                 i, (uint32_t)g);
                }
                at.s += 2 * groups * W;
                at.p += groups * W;
                at.sum += groups * W;
            }
        } else {
            for (; k < end_k; k++, q += W)
                one_step(groups, q, q_ld, k, ld, sum);
        }
#pragma GCC unroll 16
        for (uint32_t j = 0; j < step; j++)
#pragma GCC unroll 2
            for (int g = 0; g < groups; g++) {
                vf s = sum[j][g];
                if (key_scales) s = vf_mul(s, vf_set1(key_scales[key + j]));
                if (!plain) {
                    if (t->logit_cap > 0) s = vf_mul(cap_vf(s, t->logit_cap), vf_set1(LOG2_E));
                    s = _mm512_mask_mov_ps(vf_set1(-INFINITY), seeing(t, g, key + j), s);
                }
                max[g] = vf_max(max[g], s);
                vf_store(m->s + ((key + j) * (uint32_t)groups + (uint32_t)g) * W, s);
            }
    }
    if (before) fold_weights(groups, true, before, m, max_before);
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++)
        m->max[g] = max[g];
}

/* In lanes of `any`. (gcc 12 takes the mask of the masked instruction for one of 8 bits: where it
 * copies it, half of the lanes are lost. It does at -Og.) */
TILE vf add_seen(vf sum, __mmask16 any, __m512bh p, __m512i one, __m512i seen)
{
    return _mm512_mask_mov_ps(sum, any,
                              _mm512_dpbf16_ps(sum, p, (__m512bh)_mm512_and_si512(one, seen)));
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
                                  : add_seen(sum[d][g], any[g], p[g], one, seen[g]);
        }
    }
}

/* `dim`: the tile's, and its v_dim, where it is known, else 0. */
TILE void values(const int groups, const bool plain, const uint32_t dim, const wide *t,
                 const middle *m)
{
    const uint32_t v_dim = dim ? dim : t->v_dim;
    const size_t ld = value_lanes(v_dim);
    const uint32_t step = CHAINS / (uint32_t)groups; /* dims; there is room for 16 */
    for (uint32_t d = 0; d < v_dim; d += step) {
        const uint32_t *v = t->values + d;
        vf sum[CHAINS][GROUPS];
        steps_ahead(t, dim, step / EIGHT);
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
    scores(groups, plain, 0, t, &m, NULL);
    weights(groups, plain, t, &m);
    values(groups, plain, 0, t, &m);
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

static_assert(sizeof(middle) <= sizeof(attn_wide_work), "a tile's middle finds room");

/* Few heads are of other sizes, and a loop that knows its length leaves room for the weights. */
static bool in_parts(const wide *t)
{
    return t->all && !(t->logit_cap > 0) && t->groups == GROUPS && t->dim == t->v_dim &&
           (t->dim == 64 || t->dim == 128);
}

static void scores_of_tile(const wide *t, attn_wide_work *work)
{
    scores(GROUPS, true, 0, t, (middle *)work, NULL);
}

static __attribute__((noinline)) void finish_last(const wide *t, middle *m)
{
    weights(GROUPS, true, t, m);
    values(GROUPS, true, 0, t, m);
}
static __attribute__((noinline)) void finish_64(const wide *t, const wide *next, middle *m)
{
    scores(GROUPS, true, 64, next, m, t);
    values(GROUPS, true, 64, t, m);
}
static __attribute__((noinline)) void finish_128(const wide *t, const wide *next, middle *m)
{
    scores(GROUPS, true, 128, next, m, t);
    values(GROUPS, true, 128, t, m);
}

static void finish(const wide *t, const wide *next, attn_wide_work *work)
{
    if (!next)
        finish_last(t, (middle *)work);
    else if (t->dim == 64)
        finish_64(t, next, (middle *)work);
    else
        finish_128(t, next, (middle *)work);
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
                                                .load_values = load_values,
                                                .attend = attend,
                                                .load_ahead = load_ahead,
                                                .in_parts = in_parts,
                                                .scores = scores_of_tile,
                                                .finish = finish,
                                                .load_rows = load_rows,
                                                .store_rows = store_rows};
#else
const attn_wide_kernels attn_wide_avx512bf16 = {.attend = NULL}; /* not this architecture */
#endif
