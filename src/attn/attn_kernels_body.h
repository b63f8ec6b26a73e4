/* attn_kernels_body.h - the kernels of `chain`, written once over a vector of W lanes.
 *
 * A file that includes this has defined W, TILE_VECTORS, VECTORS_OF(rows) (how wide a tile of so
 * many rows is, MOST_VECTORS at most), the type vf and:
 *
 *     vf_load, vf_store           W floats, any alignment
 *     vf_load_n, vf_store_n       the first n of them, 0 < n < W; no other is touched
 *     vf_load_bf16, _n            the same from bf16
 *     vf_load_bf16_pairs          2 W bf16, the even ones to one vector, the odd to another
 *     vf_split, vf_join           two vectors in order to even and odd, and back
 *     vf_set1 vf_add vf_sub vf_mul vf_div vf_max vf_fma (a * b + c, rounded once)
 *     vf_exp2_of_magic(t)         2^n as a float, for t = EXP_MAGIC + n
 *     vf_zero_below(x, limit, y)  y, but 0 in lanes where x < limit
 *     vf_abs, vf_with_sign(a, b)  |a|, and |a| with the sign of b
 *     vf_keep(v, other, from, begin, end)  lane i of v where begin <= from + i < end
 *     load_keys_f32, load_keys_bf16  the keys as f32, transposed
 *
 * fma has one meaning everywhere, so that all instruction sets agree bit by bit. */

#define TILE static inline __attribute__((always_inline))

enum { BLOCK = ATTN_BLOCK, VECTORS = BLOCK / W };

#define EXP_MAGIC 0x1.8p23f
#define EXP_LEAST (-86.0f) /* exp below is 0: far under one unit of a sum that holds 1 */

/* exp(x) for x <= 0 (NaN stays NaN): x = n ln2 + r, a polynomial in r, times 2^n.
 * Off by less than 2 units in the last place; exp(0) is exactly 1. */
TILE vf exp_vf(vf x)
{
    vf magic = vf_set1(EXP_MAGIC);
    vf t = vf_fma(vf_max(x, vf_set1(EXP_LEAST)), vf_set1(0x1.715476p+0f), magic);
    vf n = vf_sub(t, magic);
    vf r = vf_fma(n, vf_set1(-0x1.62e400p-1f), x);
    r = vf_fma(n, vf_set1(-0x1.7f7d1cp-20f), r);
    vf p = vf_set1(0x1.6c16c2p-10f);
    p = vf_fma(p, r, vf_set1(0x1.111112p-7f));
    p = vf_fma(p, r, vf_set1(0x1.555556p-5f));
    p = vf_fma(p, r, vf_set1(0x1.555556p-3f));
    p = vf_fma(p, r, vf_set1(0.5f));
    p = vf_fma(p, r, vf_set1(1.0f));
    p = vf_fma(p, r, vf_set1(1.0f));
    return vf_zero_below(x, vf_set1(EXP_LEAST), vf_mul(p, vf_exp2_of_magic(t)));
}

/* cap * tanh(s / cap), through exp. */
TILE vf cap_vf(vf s, float cap)
{
    vf y = vf_div(s, vf_set1(cap)), one = vf_set1(1.0f);
    vf e = exp_vf(vf_mul(vf_abs(y), vf_set1(-2.0f)));
    vf tanh_abs = vf_div(vf_sub(one, e), vf_add(one, e));
    return vf_mul(vf_with_sign(tanh_abs, y), vf_set1(cap));
}

/* Folds 64 lanes: i with i + 32, then i + 16, ... down to one. */
#define FOLD(name, op)                                                                             \
    TILE float name(vf v[VECTORS])                                                                 \
    {                                                                                              \
        for (int half = VECTORS / 2; half > 0; half /= 2)                                          \
            for (int i = 0; i < half; i++)                                                         \
                v[i] = op(v[i], v[i + half]);                                                      \
        return vf_fold_##op(v[0]);                                                                 \
    }
FOLD(fold_sum, vf_add)
FOLD(fold_max, vf_max)

static float softmax(float *s, uint32_t begin, uint32_t end, float scaling, float logit_cap,
                     float *max)
{
    vf v[VECTORS], w[VECTORS];
    for (int i = 0; i < VECTORS; i++) {
        v[i] = vf_mul(vf_load(s + i * W), vf_set1(scaling));
        if (logit_cap > 0) v[i] = cap_vf(v[i], logit_cap);
        v[i] = w[i] = vf_keep(v[i], vf_set1(-INFINITY), (uint32_t)(i * W), begin, end);
    }
    *max = fold_max(w);
    for (int i = 0; i < VECTORS; i++) {
        w[i] =
            vf_keep(exp_vf(vf_sub(v[i], vf_set1(*max))), vf_set1(0), (uint32_t)(i * W), begin, end);
        vf_store(s + i * W, w[i]);
    }
    return fold_sum(w);
}

/* sum[r][v] += FACTOR of row r times VECTOR v. Of the two sides the shorter one is kept in
 * registers, the other comes one at a time. */
#define TILE_STEP(rows, count, FACTOR, VECTOR, sum)                                                \
    if ((int)(rows) < (count)) {                                                                   \
        vf factor_[ATTN_TILE_ROWS];                                                                \
        _Pragma("GCC unroll 6") for (uint32_t r = 0; r < (rows); r++) factor_[r] = (FACTOR);       \
        _Pragma("GCC unroll 8") for (int v = 0; v < (count); v++)                                  \
        {                                                                                          \
            const vf vector_ = (VECTOR);                                                           \
            _Pragma("GCC unroll 6") for (uint32_t r = 0; r < (rows); r++)                          \
                sum[r][v] = vf_fma(factor_[r], vector_, sum[r][v]);                                \
        }                                                                                          \
    } else {                                                                                       \
        vf vector_[MOST_VECTORS];                                                                  \
        _Pragma("GCC unroll 8") for (int v = 0; v < (count); v++) vector_[v] = (VECTOR);           \
        _Pragma("GCC unroll 6") for (uint32_t r = 0; r < (rows); r++)                              \
        {                                                                                          \
            const vf factor_ = (FACTOR);                                                           \
            _Pragma("GCC unroll 8") for (int v = 0; v < (count); v++)                              \
                sum[r][v] = vf_fma(factor_, vector_[v], sum[r][v]);                                \
        }                                                                                          \
    }

TILE void scores_tile(const uint32_t rows, uint32_t dim, const float *const *q, const float *kt,
                      float *s, attn_ahead *ahead)
{
    const int count = VECTORS_OF(rows);
    for (uint32_t key = 0; key < BLOCK; key += (uint32_t)count * W) {
        vf sum[ATTN_TILE_ROWS][MOST_VECTORS];
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 8
            for (int v = 0; v < count; v++)
                sum[r][v] = vf_set1(0);
        for (uint32_t d = 0; d < dim; d++) {
            const float *k = kt + (size_t)d * BLOCK + key;
            if (ahead) attn_ahead_fetch(ahead, (uint32_t)(count / TILE_VECTORS));
            TILE_STEP(rows, count, vf_set1(q[r][d]), vf_load(k + v * W), sum)
        }
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 8
            for (int v = 0; v < count; v++)
                vf_store(s + r * BLOCK + key + v * W, sum[r][v]);
    }
}

static void scores(uint32_t rows, uint32_t dim, const float *const *q, const float *kt, float *s,
                   attn_ahead *ahead)
{
    switch (rows) {
    case 1: scores_tile(1, dim, q, kt, s, ahead); break;
    case 2: scores_tile(2, dim, q, kt, s, ahead); break;
    case 3: scores_tile(3, dim, q, kt, s, ahead); break;
    case 4: scores_tile(4, dim, q, kt, s, ahead); break;
    case 5: scores_tile(5, dim, q, kt, s, ahead); break;
    default: scores_tile(6, dim, q, kt, s, ahead); break;
    }
}

/* `count` vectors of dimensions that start at element `at`; `lanes` < W only for a
 * single last one. Compiled for constant rows, count and bf16. */
typedef struct values_args {
    const float *p; /* [rows][BLOCK] */
    const attn_rows_at *values;
    uint32_t begin, end; /* keys that all rows see */
    float *acc;
    size_t ld;
    bool fresh; /* sums start at 0, else at acc */
    attn_ahead *ahead;
    uint32_t ahead_bytes;
} values_args;

TILE void values_tile(const uint32_t rows, const int count, const bool bf16, const values_args *a,
                      uint32_t at, uint32_t lanes)
{
    const size_t size = bf16 ? 2 : 4;
    const bool whole = lanes == W;
    /* Widening bf16 in order costs a shuffle, taking pairs apart does not: so the sums
     * are kept as even and odd dimensions, and put in order at the end. */
    const bool pairs = bf16 && count % 2 == 0;
    vf sum[ATTN_TILE_ROWS][MOST_VECTORS], x[MOST_VECTORS];
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int v = 0; v < count; v++) {
            const float *from = a->acc + r * a->ld + at + v * W;
            sum[r][v] = a->fresh ? vf_set1(0) : whole ? vf_load(from) : vf_load_n(from, lanes);
        }
#pragma GCC unroll 8
        for (int v = 0; v < count && pairs; v += 2)
            vf_split(&sum[r][v], &sum[r][v + 1]);
    }
    const char *base = a->values->base + at * size;
    const rad_slot *slots = a->values->slots;
    const size_t stride = a->values->stride;
    for (uint32_t j = a->begin; j < a->end; j++) {
        const char *row = base + (size_t)slots[j] * stride;
        if (a->ahead) attn_ahead_fetch(a->ahead, attn_lines_of((size_t)count * W * a->ahead_bytes));
#pragma GCC unroll 8
        for (int v = 0; v < count; v++) {
            const char *from = row + v * W * size;
            if (pairs && v % 2 == 0)
                vf_load_bf16_pairs((const uint16_t *)from, &x[v], &x[v + 1]);
            else if (!pairs && whole)
                x[v] = bf16 ? vf_load_bf16((const uint16_t *)from) : vf_load((const float *)from);
            else if (!pairs)
                x[v] = bf16 ? vf_load_bf16_n((const uint16_t *)from, lanes)
                            : vf_load_n((const float *)from, lanes);
        }
        TILE_STEP(rows, count, vf_set1(a->p[r * BLOCK + j]), x[v], sum)
    }
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (int v = 0; v < count && pairs; v += 2)
            vf_join(&sum[r][v], &sum[r][v + 1]);
#pragma GCC unroll 8
        for (int v = 0; v < count; v++) {
            float *to = a->acc + r * a->ld + at + v * W;
            if (whole)
                vf_store(to, sum[r][v]);
            else
                vf_store_n(to, sum[r][v], lanes);
        }
    }
}

TILE void values_rows(const uint32_t rows, const bool bf16, uint32_t dim, const values_args *a)
{
    uint32_t at = 0;
    for (; at + VECTORS_OF(rows) * W <= dim; at += VECTORS_OF(rows) * W)
        values_tile(rows, VECTORS_OF(rows), bf16, a, at, W);
    for (; at + TILE_VECTORS * W <= dim; at += TILE_VECTORS * W)
        values_tile(rows, TILE_VECTORS, bf16, a, at, W);
    for (; at + W <= dim; at += W)
        values_tile(rows, 1, bf16, a, at, W);
    if (at < dim) values_tile(rows, 1, bf16, a, at, dim - at);
}

TILE void values_any(const bool bf16, uint32_t rows, uint32_t dim, const values_args *a)
{
    switch (rows) {
    case 1: values_rows(1, bf16, dim, a); break;
    case 2: values_rows(2, bf16, dim, a); break;
    case 3: values_rows(3, bf16, dim, a); break;
    case 4: values_rows(4, bf16, dim, a); break;
    case 5: values_rows(5, bf16, dim, a); break;
    default: values_rows(6, bf16, dim, a); break;
    }
}

/* The tile's rows over the values, each over the keys that it sees: what all see
 * together, what only some see row by row before and behind it. */
TILE void weigh_values(const bool bf16, attn_tile *t, const float *p)
{
    uint32_t from = 0, to = BLOCK, least = BLOCK;
    for (uint32_t r = 0; r < t->rows; r++) {
        from = RAD_MAX(from, t->begin[r]);
        least = RAD_MIN(least, t->begin[r]);
        to = RAD_MIN(to, t->end[r]);
    }
    bool together = from < to, fresh = from == least;
    for (uint32_t r = 0; r < t->rows && !(together && fresh); r++)
        values_any(bf16, 1, t->v_dim,
                   &(values_args){.p = p + r * BLOCK,
                                  .values = t->values_at,
                                  .begin = t->begin[r],
                                  .end = together ? from : t->end[r],
                                  .acc = t->part + r * t->part_ld,
                                  .fresh = true});
    if (!together) return;
    values_any(bf16, t->rows, t->v_dim,
               &(values_args){p, t->values_at, from, to, t->part, t->part_ld, fresh, t->ahead,
                              t->ahead_bytes});
    for (uint32_t r = 0; r < t->rows; r++)
        if (t->end[r] > to)
            values_any(bf16, 1, t->v_dim,
                       &(values_args){.p = p + r * BLOCK,
                                      .values = t->values_at,
                                      .begin = to,
                                      .end = t->end[r],
                                      .acc = t->part + r * t->part_ld});
}

TILE void attend(const bool bf16, attn_tile *t)
{
    _Alignas(64) float s[ATTN_TILE_ROWS * BLOCK];
    scores(t->rows, t->dim, (const float *const *)t->q, t->keys, s, t->ahead);
    for (uint32_t r = 0; r < t->rows; r++)
        t->sum[r] =
            softmax(s + r * BLOCK, t->begin[r], t->end[r], t->scaling, t->logit_cap, &t->max[r]);
    weigh_values(bf16, t, s);
}

static void attend_f32(attn_tile *t)
{
    attend(false, t);
}

static void attend_bf16(attn_tile *t)
{
    attend(true, t);
}

static void prepare_f32(const radix_attention *layer, const float *q, void *to)
{
    memcpy(to, q, layer->head_dim * sizeof *q);
}

#include "attn/attn_merge_body.h"

#if !defined(ATTN_LOAD_CODES)
#define ATTN_LOAD_CODES NULL
#endif

#if !defined(ATTN_STRIP)
#define ATTN_STRIP(type) NULL
#endif

#define ATTN_CHAIN(type)                                                                           \
    {                                                                                              \
        .prepare_q = prepare_f32, .load_keys = load_keys_##type, .load_codes = ATTN_LOAD_CODES,    \
        .attend = attend_##type, .fold = fold, .merge = merge, .divide = divide, .exp = exp_one,   \
        .strip = ATTN_STRIP(type)                                                                  \
    }
#define ATTN_ISA                                                                                   \
    {                                                                                              \
        .f32 = ATTN_CHAIN(f32), .bf16 = ATTN_CHAIN(bf16)                                           \
    }
