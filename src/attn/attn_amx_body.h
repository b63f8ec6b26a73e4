/* attn_amx_body.h - attention by tiles, over the operations of base/amx.h.
 *
 * Both layouts of `pairs` (attn_wide.h) already lie as tiles want them: a tile on the left has
 * rows of pairs, one on the right a pair in each of 16 columns.
 *
 *     narrow   S [row][key] = q [row][dims]  x  K^T [pair of dims][key]
 *              O [row][dim] = P [row][keys]  x  V   [pair of keys][dim]
 *     wide     S [key][row] = K [key][dims]  x  Q^T [pair of dims][row]
 *              O [dim][row] = V^T [dim][keys] x P^T [pair of keys][row]
 *
 * Between the two products everything is as attn_pairs_narrow.h and attn_pairs_wide.h have it.
 *
 * Invariant (P1): a number of S or O is the same chain in either layout, its dimensions or the
 * block's 64 keys in ascending steps of 32, each in the instruction's own order
 * (amx_tiles.h); a factor on the left or on the right is the same factor, and rows and
 * columns do not see each other. All 64 keys take part: what a row does not see has weight 0,
 * which changes no number that is not 0, and a 0 loses its sign. Where an unseen value is no
 * finite number, products are made again for each row, the unseen values replaced by 0. */
#ifndef ATTN_ATTN_AMX_BODY_H
#define ATTN_ATTN_AMX_BODY_H

#include "attn/attn_amx_multiply.h"
#include "attn/attn_pairs_narrow.h"
#include "attn/attn_pairs_wide.h"

enum {
    STEP = AMX_ROWS,          /* pairs of a step */
    KEY_STEPS = PAIRS / STEP, /* of a block */
    NOT_FINITE = 0x7f80,      /* the exponent */
    NARROW_LINES = 8          /* fetched ahead each step, what load_values leaves to do */
};

/* The halves of 16 pairs that are not finite. */
TILE __mmask32 odd_halves(__m512i pairs)
{
    const __m512i exponent = _mm512_set1_epi16(NOT_FINITE);
    return _mm512_cmpeq_epi16_mask(_mm512_and_si512(pairs, exponent), exponent);
}

/* A bit for each key that a row sees. */
TILE uint64_t seen_keys(uint32_t begin, uint32_t end)
{
    return begin < end ? ~(uint64_t)0 >> (BLOCK - end) & ~(uint64_t)0 << begin : 0;
}

/* No number is a 0 with a sign. */
TILE vf without_sign_of_zero(vf v)
{
    return vf_add(v, vf_set1(0));
}

/* Narrow. */

static uint32_t steps_of(uint32_t dim)
{
    return (dim + 2 * STEP - 1) / (2 * STEP);
}

/* Whole steps: zeros behind the last dimension, as attn_q_bytes has room. */
static void prepare_steps(const radix_attention *layer, const float *q, void *to)
{
    uint32_t dim = layer->head_dim;
    prepare_pairs(layer, q, to);
    memset((uint16_t *)to + dim, 0, (steps_of(dim) * 2 * STEP - dim) * 2);
}

static void load_key_steps(const attn_rows_at *keys, uint32_t dim, void *to, attn_ahead *ahead)
{
    uint32_t pairs = (dim + 1) / 2;
    load_keys(keys, dim, to, ahead);
    memset((uint32_t *)to + pairs * BLOCK, 0, (steps_of(dim) * STEP - pairs) * BLOCK * 4);
}

static void narrow_scores(const attn_tile *t, uint32_t steps, float *s)
{
    _Alignas(64) uint32_t q[ATTN_TILE_ROWS][ATTN_MOST_DIM / 2];
    for (uint32_t r = 0; r < t->rows; r++)
        memcpy(q[r], t->q[r], steps * AMX_ROW_BYTES);
    for (uint32_t key = 0; key < BLOCK; key += TWO_TILES)
        multiply(&(attn_amx_product){.rows = t->rows,
                                     .tiles = 2,
                                     .steps = steps,
                                     .a = q,
                                     .a_pitch = sizeof q[0],
                                     .b = (const uint32_t *)t->keys + key,
                                     .b_pitch = BLOCK * 4,
                                     .b_next = AMX_ROW_BYTES,
                                     .c = s + key,
                                     .c_pitch = BLOCK * 4,
                                     .ahead = t->ahead,
                                     .lines = NARROW_LINES});
}

/* Keys whose values are not all finite. */
static uint64_t narrow_odd_keys(const uint32_t *values, size_t columns)
{
    uint64_t odd = 0;
    for (uint32_t i = 0; i < PAIRS; i++) {
        const uint32_t even_halves = 0x55555555;
        uint32_t halves = 0;
        for (size_t at = 0; at < columns; at += W)
            halves |= odd_halves(_mm512_load_si512(values + i * columns + at));
        odd |= (uint64_t)((halves & even_halves) != 0) << (2 * i) |
               (uint64_t)((halves & ~even_halves) != 0) << (2 * i + 1);
    }
    return odd;
}

/* Row `r` of `p`, which does not see all that is no number. */
static void narrow_row_again(const attn_tile *t, uint32_t r, const attn_amx_product *p)
{
    _Alignas(64) uint32_t values[PAIRS][TWO_TILES];
    _Alignas(64) float part[ATTN_TILE_ROWS][TWO_TILES];
    const uint64_t seen = seen_keys(t->begin[r], t->end[r]);
    const uint32_t columns = p->tiles * W;
    for (uint32_t i = 0; i < PAIRS; i++) {
        uint32_t both = (uint32_t)(seen >> (2 * i) & 3);
        uint32_t keep = (both & 1 ? 0xffff : 0) | (both & 2 ? 0xffff0000 : 0);
        const uint32_t *from = (const uint32_t *)((const char *)p->b + i * p->b_pitch);
        for (uint32_t n = 0; n < columns; n++)
            values[i][n] = from[n] & keep;
    }
    attn_amx_product again = *p;
    again.b = values;
    again.b_pitch = sizeof values[0];
    again.c = part[0];
    again.c_pitch = sizeof part[0];
    again.ahead = NULL;
    multiply(&again);
    memcpy((char *)p->c + r * p->c_pitch, part[r], columns * 4);
}

static void narrow_values(attn_tile *t, const bool all, const uint32_t *weights)
{
    const size_t columns = value_lanes(t->v_dim);
    const uint64_t odd = all ? 0 : narrow_odd_keys(t->values, columns);
    for (size_t at = 0; at < columns; at += TWO_TILES) {
        attn_amx_product p = {.rows = t->rows,
                              .tiles = columns - at > W ? 2 : 1,
                              .steps = KEY_STEPS,
                              .a = weights,
                              .a_pitch = PAIRS * 4,
                              .b = (const uint32_t *)t->values + at,
                              .b_pitch = columns * 4,
                              .b_next = AMX_ROW_BYTES,
                              .c = t->part + at,
                              .c_pitch = t->part_ld * 4,
                              .ahead = t->ahead,
                              .lines = NARROW_LINES};
        multiply(&p);
        for (uint32_t r = 0; r < t->rows; r++) {
            float *part = t->part + r * t->part_ld + at;
            if (odd & ~seen_keys(t->begin[r], t->end[r])) narrow_row_again(t, r, &p);
            for (uint32_t n = 0; n < p.tiles * W; n += W)
                vf_store(part + n, without_sign_of_zero(vf_load(part + n)));
        }
    }
}

TILE void attend_rows(const uint32_t rows, attn_tile *t)
{
    _Alignas(64) float s[ATTN_TILE_ROWS * BLOCK];
    _Alignas(64) uint32_t p[ATTN_TILE_ROWS][PAIRS];
    bool all = true;
    for (uint32_t r = 0; r < rows; r++)
        all &= t->begin[r] == 0 && t->end[r] == BLOCK;
    configure(rows);
    narrow_scores(t, steps_of(t->dim), s);
    if (all && !(t->logit_cap > 0))
        softmax(t, rows, true, s, p);
    else
        softmax(t, rows, false, s, p);
    narrow_values(t, all, p[0]);
    AMX_RELEASE();
}

/* Wide. */

/* V^T: [dim][pair of keys]. Two tiles of dims at a time. */
static void load_turned_values(const attn_rows_at *values, uint32_t v_dim, void *to,
                               attn_ahead *ahead)
{
    _Alignas(64) uint32_t pairs[PAIRS * TWO_TILES];
    uint32_t *turned = to;
    for (uint32_t d = 0; d < v_dim; d += TWO_TILES) {
        const uint32_t some = RAD_MIN(v_dim - d, TWO_TILES), columns = (uint32_t)value_lanes(some);
        attn_rows_at part = *values;
        part.base += d * sizeof(uint16_t);
        load_values(&part, some, pairs, ahead);
        for (uint32_t e = 0; e < columns; e += W, turned += W * PAIRS)
            for (uint32_t i = 0; i < PAIRS; i += W) {
                __m512i tile[W];
#pragma GCC unroll 16
                for (uint32_t j = 0; j < W; j++)
                    tile[j] = _mm512_load_si512(pairs + (i + j) * columns + e);
                transpose(tile);
#pragma GCC unroll 16
                for (uint32_t j = 0; j < W; j++)
                    _mm512_store_si512(turned + j * PAIRS + i, tile[j]);
            }
    }
}

/* The scores of all keys, and the maxima of what is seen. */
TILE void wide_scores(const int groups, const bool plain, const wide *t, middle *m)
{
    for (uint32_t key = 0; key < BLOCK; key += TWO_TILES) {
        fetch_ahead(t, TWO_TILES / EIGHT);
        multiply(&(attn_amx_product){.rows = TWO_TILES,
                                     .tiles = (uint32_t)groups,
                                     .steps = steps_of(t->dim),
                                     .a = t->keys + key * key_stride(t->dim),
                                     .a_pitch = key_stride(t->dim) * 2,
                                     .b = t->q,
                                     .b_pitch = AMX_ROW_BYTES,
                                     .b_next = attn_wide_q_pairs(t->dim) * AMX_ROW_BYTES,
                                     .c = m->s + key * (uint32_t)groups * W,
                                     .c_pitch = (size_t)groups * W * 4});
    }
    for (int g = 0; g < groups; g++) {
        vf max = vf_set1(-INFINITY);
        for (uint32_t key = 0; key < BLOCK; key++) {
            float *at = m->s + (key * (uint32_t)groups + (uint32_t)g) * W;
            vf s = vf_load(at);
            if (t->key_scales) {
                s = vf_mul(s, vf_set1(t->key_scales[key]));
                vf_store(at, s);
            }
            if (!plain) {
                if (t->logit_cap > 0) s = vf_mul(cap_vf(s, t->logit_cap), vf_set1(LOG2_E));
                s = _mm512_mask_mov_ps(vf_set1(-INFINITY), seeing(t, g, key), s);
                vf_store(at, s);
            }
            max = vf_max(max, s);
        }
        m->max[g] = max;
        if (!plain)
            m->live[g] = _mm512_cmplt_epi32_mask(_mm512_load_si512(t->begin + g * W),
                                                 _mm512_load_si512(t->end + g * W));
    }
}

/* As narrow_odd_keys, of V^T. */
static uint64_t wide_odd_keys(const uint32_t *values, size_t dims)
{
    uint64_t odd[KEY_STEPS] = {0};
    for (size_t d = 0; d < dims; d++)
        for (uint32_t i = 0; i < KEY_STEPS; i++)
            odd[i] |= odd_halves(_mm512_load_si512(values + d * PAIRS + i * STEP));
    return odd[0] | odd[1] << (BLOCK / KEY_STEPS);
}

/* Column `row` of `p`, as narrow_row_again. */
static void wide_row_again(const wide *t, uint32_t row, const attn_amx_product *p)
{
    _Alignas(64) uint32_t values[TWO_TILES][PAIRS];
    _Alignas(64) float part[TWO_TILES][GROUPS * W];
    const uint64_t seen = seen_keys((uint32_t)t->begin[row], (uint32_t)t->end[row]);
    const uint32_t *from = p->a;
    for (uint32_t d = 0; d < p->rows; d++)
        for (uint32_t i = 0; i < KEY_STEPS; i++) {
            const __mmask32 keep = (__mmask32)(seen >> (i * 2 * STEP));
            __m512i pairs = _mm512_load_si512(from + d * PAIRS + i * STEP);
            _mm512_store_si512(values[d] + i * STEP, _mm512_maskz_mov_epi16(keep, pairs));
        }
    attn_amx_product again = *p;
    again.a = values;
    again.c = part[0];
    again.c_pitch = sizeof part[0];
    multiply(&again);
    for (uint32_t d = 0; d < p->rows; d++)
        p->c[d * p->c_pitch / 4 + row] = part[d][row];
}

TILE void wide_values(const int groups, const bool plain, const wide *t, const middle *m)
{
    _Alignas(64) float part[TWO_TILES * GROUPS * W];
    const uint32_t dims = (uint32_t)value_lanes(t->v_dim);
    const uint32_t row_floats = (uint32_t)groups * W;
    const uint64_t odd = plain || t->all ? 0 : wide_odd_keys(t->values, dims);
    for (uint32_t d = 0; d < dims; d += TWO_TILES) {
        attn_amx_product p = {.rows = RAD_MIN(dims - d, TWO_TILES),
                              .tiles = (uint32_t)groups,
                              .steps = KEY_STEPS,
                              .a = t->values + d * PAIRS,
                              .a_pitch = PAIRS * 4,
                              .b = m->p,
                              .b_pitch = row_floats * 4,
                              .b_next = AMX_ROW_BYTES,
                              .c = part,
                              .c_pitch = row_floats * 4};
        fetch_ahead(t, TWO_TILES / EIGHT);
        multiply(&p);
        for (uint32_t row = 0; row < row_floats && odd; row++)
            if (odd & ~seen_keys((uint32_t)t->begin[row], (uint32_t)t->end[row]))
                wide_row_again(t, row, &p);
        for (uint32_t e = 0; e < p.rows; e++)
#pragma GCC unroll 2
            for (int g = 0; g < groups; g++) {
                float *to = t->total + ((size_t)g * dims + d + e) * W;
                vf of_block =
                    without_sign_of_zero(vf_load(part + e * row_floats + (uint32_t)g * W));
                vf total = vf_fma(of_block, m->block_scale[g], vf_mul(vf_load(to), m->scale[g]));
                _mm512_mask_storeu_ps(to, plain ? 0xffff : m->live[g], total);
            }
    }
}

TILE void attend_groups(const int groups, const bool plain, const wide *t)
{
    middle m;
    configure(TWO_TILES);
    wide_scores(groups, plain, t, &m);
    weights(groups, plain, t, &m);
    wide_values(groups, plain, t, &m);
    AMX_RELEASE();
}

static void attend_wide(const wide *t)
{
    const bool plain = t->all && !(t->logit_cap > 0);
    if (t->groups == 2 && plain)
        attend_groups(2, true, t);
    else if (t->groups == 2)
        attend_groups(2, false, t);
    else if (plain)
        attend_groups(1, true, t);
    else
        attend_groups(1, false, t);
}

#define ATTN_AMX_WIDE                                                                              \
    {                                                                                              \
        .pack_q = pack_q, .load_keys = load_wide_keys, .load_values = load_turned_values,          \
        .attend = attend_wide, .load_rows = load_rows, .store_rows = store_rows                    \
    }
#define ATTN_AMX_KERNELS(wide_kernels)                                                             \
    {                                                                                              \
        .pairs = true, .prepare_q = prepare_steps, .load_keys = load_key_steps,                    \
        .load_values = load_values, .attend = attend, .fold = fold, .merge = merge,                \
        .divide = divide, .exp = exp_one, .wide = wide_kernels                                     \
    }

#endif
