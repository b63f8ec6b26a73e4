/* attn_wide.c - walks a unit of many rows in the wide layout (attn_wide.h).
 *
 *     open      q's rows packed in groups of 16, their totals from `out` (or 0)
 *     block b   keys and values of the side -> the workspace
 *       tile:   two groups: the block is folded into their totals
 *     close     totals back to `out`
 *
 * Where the kernels can, the next block is loaded beside the products, and a tile's scores are made
 * during the end of the tile before it, across blocks too:
 *
 *     scores 0 | end 0, scores 1 | ... | end n, next block's scores 0 | ...
 *
 * Most blocks are seen whole by all rows of a tile; what each row sees is looked at only
 * where that is not so: the diagonal, and the edge of a window. */
#include "attn/attn_wide.h"
#include "attn/attn_plan.h"

#include <math.h>

enum {
    MOST_GROUPS = ATTN_MOST_ROWS / ATTN_LANES,
    Q_BYTES = 160 << 10, /* a unit's rows fill ATTN_Q_BYTES, its last group may not */
    TOTAL_BYTES = 320 << 10,
    MOST_DIM_BESIDE = 64 /* larger blocks beside the products cost more than before them */
};

/* What the rows of a group see lies between these. */
typedef struct group_span {
    uint32_t least_first, most_first, least_position, most_position;
} group_span;

typedef struct wide_space {
    _Alignas(64) uint32_t q[Q_BYTES / 4];
    _Alignas(64) float total[TOTAL_BYTES / 4];
    _Alignas(64) uint16_t keys[2][ATTN_BLOCK * ATTN_MOST_DIM]; /* of this block and the next */
    _Alignas(64) uint32_t values[3][ATTN_BLOCK / 2 * ATTN_MOST_DIM]; /* and of the last one */
    _Alignas(64) uint16_t codes[ATTN_BLOCK * ATTN_MOST_DIM];         /* values in rows */
    attn_scales scales[2]; /* of codes: this block, the last */
    attn_wide_work work;
    _Alignas(64) float max[ATTN_MOST_ROWS];
    _Alignas(64) float sum[ATTN_MOST_ROWS];
    _Alignas(64) int32_t begin[ATTN_WIDE_TILE * ATTN_LANES];
    _Alignas(64) int32_t end[ATTN_WIDE_TILE * ATTN_LANES];
    group_span span[MOST_GROUPS];
    rad_slot slots[2][ATTN_BLOCK]; /* of this block and the next */
    attn_wide_ahead ahead;         /* the next block */
    attn_wide_tile tile[2], *open; /* the one whose scores are made, or NULL */
    uint32_t head, heads, rows, groups;
    size_t q_words, total_floats; /* of a group */
} wide_space;

static size_t q_words_of(const attn_call *call)
{
    return (size_t)attn_wide_q_pairs(call->layer->head_dim) * ATTN_LANES;
}

static size_t total_floats_of(const attn_call *call)
{
    return ((size_t)call->v_dim + 15) / 16 * 16 * ATTN_LANES;
}

bool attn_wide_takes(const attn_call *call, const attn_unit *u)
{
    uint32_t head, rows = u->num_tokens * attn_side_heads(call, u->side_begin, &head);
    size_t groups = attn_div_up(rows, ATTN_LANES);
    return call->kernels->wide && !u->partials && u->side_end - u->side_begin == 1 &&
           rows >= ATTN_WIDE_LEAST && groups * q_words_of(call) * 4 <= Q_BYTES &&
           groups * total_floats_of(call) * 4 <= TOTAL_BYTES;
}

static size_t line_of(const attn_call *call, const attn_unit *u, const wide_space *ws, uint32_t row)
{
    return (size_t)u->token[row / ws->heads] * call->layer->num_heads + ws->head + row % ws->heads;
}

/* The rows of `group` in `out`; NULL behind the last one. */
static void rows_of(const attn_call *call, const attn_unit *u, const wide_space *ws, uint32_t group,
                    float *rows[ATTN_LANES])
{
    for (uint32_t i = 0; i < ATTN_LANES; i++) {
        uint32_t row = group * ATTN_LANES + i;
        rows[i] = row < ws->rows ? call->out + line_of(call, u, ws, row) * call->v_dim : NULL;
    }
}

static group_span span_of(const attn_call *call, const attn_unit *u, const wide_space *ws,
                          uint32_t group)
{
    group_span s = {UINT32_MAX, 0, UINT32_MAX, 0};
    uint32_t end = RAD_MIN((group + 1) * ATTN_LANES, ws->rows);
    for (uint32_t row = group * ATTN_LANES; row < end; row++) {
        uint32_t position = u->position[row / ws->heads];
        uint32_t first = attn_first_key(call->layer, position);
        s.least_first = RAD_MIN(s.least_first, first);
        s.most_first = RAD_MAX(s.most_first, first);
        s.least_position = RAD_MIN(s.least_position, position);
        s.most_position = RAD_MAX(s.most_position, position);
    }
    return s;
}

/* A row of floats that is needed soon, to be written or read. */
static inline void fetch_row(const float *row, uint32_t floats, const bool write)
{
    for (uint32_t i = 0; i < floats; i += 16) {
        if (write)
            __builtin_prefetch(row + i, 1, 3);
        else
            __builtin_prefetch(row + i, 0, 3);
    }
}

/* q of a group, or its rows of `out`: they come from far, and a group's work is too short to
 * wait for them. */
static void fetch_group(const attn_call *call, const attn_unit *u, const wide_space *ws,
                        uint32_t group, bool write)
{
    uint32_t end = RAD_MIN((group + 1) * ATTN_LANES, ws->rows);
    for (uint32_t row = group * ATTN_LANES; row < end; row++) {
        size_t line = line_of(call, u, ws, row);
        if (write)
            fetch_row(call->out + line * call->v_dim, call->v_dim, true);
        else
            fetch_row(call->q + line * call->layer->head_dim, call->layer->head_dim, false);
    }
}

static void open_group(const attn_call *call, const attn_unit *u, wide_space *ws, uint32_t group)
{
    const float *q[ATTN_LANES] = {NULL};
    fetch_group(call, u, ws, group + 1, false);
    float *total = ws->total + group * ws->total_floats;
    for (uint32_t i = 0; i < ATTN_LANES; i++) {
        uint32_t row = group * ATTN_LANES + i;
        ws->max[row] = -INFINITY;
        ws->sum[row] = 0;
        if (row >= ws->rows) continue;
        size_t line = line_of(call, u, ws, row);
        q[i] = call->q + line * call->layer->head_dim;
        if (u->first) continue;
        ws->max[row] = call->states[2 * line];
        ws->sum[row] = call->states[2 * line + 1];
    }
    call->kernels->wide->pack_q(&call->q_layer, q, ws->q + group * ws->q_words);
    ws->span[group] = span_of(call, u, ws, group);
    if (u->first) {
        memset(total, 0, ws->total_floats * sizeof *total);
    } else {
        float *rows[ATTN_LANES];
        rows_of(call, u, ws, group, rows);
        call->kernels->wide->load_rows(call->v_dim, (const float *const *)rows, total);
    }
}

static void close_group(const attn_call *call, const attn_unit *u, wide_space *ws, uint32_t group)
{
    float *rows[ATTN_LANES];
    fetch_group(call, u, ws, group + 1, true);
    rows_of(call, u, ws, group, rows);
    for (uint32_t i = 0; i < ATTN_LANES && u->last; i++) {
        const uint32_t row = group * ATTN_LANES + i;
        if (row < ws->rows)
            ws->sum[row] =
                attn_sum_with_sink(call, line_of(call, u, ws, row), ws->max[row], ws->sum[row]);
        ws->sum[row] /= call->v_scale;
    }
    call->kernels->wide->store_rows(call->v_dim, ws->total + group * ws->total_floats,
                                    u->last ? ws->sum + group * ATTN_LANES : NULL, rows);
    for (uint32_t i = 0; i < ATTN_LANES && !u->last; i++) {
        uint32_t row = group * ATTN_LANES + i;
        if (row >= ws->rows) break;
        size_t line = line_of(call, u, ws, row);
        call->states[2 * line] = ws->max[row];
        call->states[2 * line + 1] = ws->sum[row];
    }
}

static bool sees_any(const group_span *s, uint32_t block)
{
    return s->most_position >= block * ATTN_BLOCK && s->least_first < (block + 1) * ATTN_BLOCK;
}

static bool sees_all(const group_span *s, uint32_t block)
{
    return s->least_position >= block * ATTN_BLOCK + ATTN_BLOCK - 1 &&
           s->most_first <= block * ATTN_BLOCK;
}

/* What the rows of a tile see of the block; the empty places of a last group see what the
 * last row sees. False: nothing at all. */
static bool find_edges(const attn_call *call, const attn_unit *u, wide_space *ws, uint32_t group,
                       uint32_t groups, uint32_t block)
{
    bool any = false;
    for (uint32_t i = 0; i < groups * ATTN_LANES; i++) {
        uint32_t row = RAD_MIN(group * ATTN_LANES + i, ws->rows - 1), begin, end;
        bool sees = attn_sees(call->layer, u->position[row / ws->heads], block, &begin, &end);
        ws->begin[i] = sees ? (int32_t)begin : 0;
        ws->end[i] = sees ? (int32_t)end : 0;
        any |= sees;
    }
    return any;
}

/* Codes become rows first, keys in their place; MLA's values are the beginnings of those. */
static void load_codes(const attn_call *call, wide_space *ws, uint32_t kv_head, uint32_t block)
{
    attn_ahead none = {.left = UINT32_MAX};
    const uint32_t dim = call->layer->head_dim, v_dim = call->v_dim, place = block & 1;
    const size_t ld = (dim + 31) & ~(size_t)31, v_ld = (v_dim + 31) & ~(size_t)31;
    const rad_slot *slots = ws->slots[place];
    attn_rows_at at = {(const char *)ws->keys[place], attn_in_order, ld * sizeof(uint16_t)};
    attn_rows_of_codes(call, ATTN_K, slots, kv_head, ws->keys[place], ld);
    if (!call->mla) {
        attn_rows_of_codes(call, ATTN_V, slots, kv_head, ws->codes, v_ld);
        at.base = (const char *)ws->codes;
        at.stride = v_ld * sizeof *ws->codes;
    }
    call->kernels->wide->load_values(&at, v_dim, ws->values[block % 3], &none);
    if (call->scaled) attn_scales_of(call, slots, kv_head, 1, &ws->scales[place]);
}

/* What was not loaded on the way. */
static void load_block(const attn_call *call, const attn_unit *u, wide_space *ws, uint32_t block)
{
    attn_ahead none = {.left = UINT32_MAX};
    const attn_wide_kernels *kernels = call->kernels->wide;
    if (call->codes) {
        load_codes(call, ws, u->side_begin / call->parts, block);
    } else if (ws->ahead.keys) {
        kernels->load_ahead(&ws->ahead, call->layer->head_dim, call->v_dim);
    } else {
        kernels->load_keys(&ws->ahead.rows[ATTN_K], call->layer->head_dim, ws->keys[block & 1]);
        kernels->load_values(&ws->ahead.rows[ATTN_V], call->v_dim, ws->values[block % 3], &none);
    }
    ws->ahead.next = ATTN_BLOCK + ws->ahead.lag; /* nothing to do any more */
}

/* The end of the tile whose scores there are, if any; and the scores of `next`, or NULL. */
static void finish_open(const attn_call *call, wide_space *ws, const attn_wide_tile *next)
{
    const attn_wide_kernels *kernels = call->kernels->wide;
    if (ws->open)
        kernels->finish(ws->open, next, &ws->work);
    else if (next)
        kernels->scores(next, &ws->work);
    ws->open = NULL;
}

static void run_tile(const attn_call *call, const attn_unit *u, wide_space *ws, uint32_t group,
                     uint32_t block)
{
    const attn_wide_kernels *kernels = call->kernels->wide;
    const attn_scales *scales = &ws->scales[block & 1];
    attn_wide_tile *tile = &ws->tile[ws->open == ws->tile];
    *tile = (attn_wide_tile){.groups = RAD_MIN(ws->groups - group, ATTN_WIDE_TILE),
                             .dim = call->layer->head_dim,
                             .v_dim = call->v_dim,
                             .q = ws->q + group * ws->q_words,
                             .keys = ws->keys[block & 1],
                             .values = ws->values[block % 3],
                             .all = true,
                             .begin = ws->begin,
                             .end = ws->end,
                             .logit_cap = call->layer->logit_cap,
                             .key_scales = call->scaled ? scales->of[ATTN_K][0] : NULL,
                             .value_scales = call->scaled ? scales->of[ATTN_V][0] : NULL,
                             .max = ws->max + group * ATTN_LANES,
                             .sum = ws->sum + group * ATTN_LANES,
                             .total = ws->total + group * ws->total_floats,
                             .ahead = &ws->ahead};
    for (uint32_t g = 0; g < tile->groups; g++)
        tile->all &= sees_all(&ws->span[group + g], block);
    bool edges = !tile->all || tile->logit_cap > 0;
    if (edges && !find_edges(call, u, ws, group, tile->groups, block)) return;
    bool in_parts = kernels->in_parts && kernels->in_parts(tile);
    finish_open(call, ws, in_parts ? tile : NULL);
    if (in_parts)
        ws->open = tile;
    else
        kernels->attend(tile);
}

/* Makes `block` the next one, in so many steps at least. Scales of codes are few, and fetched
 * at once. */
static void look_ahead(const attn_call *call, const attn_unit *u, wide_space *ws, uint32_t block,
                       uint32_t steps)
{
    enum { LAG_STEPS = 8, LEAST_STEPS = 16 };
    attn_ahead from;
    attn_wide_ahead *a = &ws->ahead;
    attn_look_ahead(call, u, block, ws->slots[block & 1], &from);
    const uint32_t sides = call->mla ? 1 : 2, lag = steps > 2 * LEAST_STEPS ? LAG_STEPS : 3;
    const bool loads = call->kernels->wide->load_ahead && !call->codes &&
                       call->layer->head_dim <= MOST_DIM_BESIDE;
    *a = (attn_wide_ahead){.step = attn_div_up(ATTN_BLOCK / 2, RAD_MAX(steps, LEAST_STEPS) - lag) *
                                   2,
                           .keys = loads ? ws->keys[block & 1] : NULL,
                           .values = loads ? ws->values[block % 3] : NULL};
    a->lag = lag * a->step;
    for (uint32_t side = 0; side < 2; side++) {
        const attn_kv_plane *p = &call->kv.plane[side];
        a->rows[side] = (attn_rows_at){p->base + u->side_begin / call->parts * p->head_bytes,
                                       from.slots, p->stride};
        if (side < sides) a->lines[side] = attn_lines_of(p->head_bytes);
    }
    for (uint32_t side = sides; side < from.sides; side++)
        for (uint32_t t = 0; t < from.count; t++)
            __builtin_prefetch(from.base[side] + (size_t)from.slots[t] * from.stride[side], 0, 3);
}

void attn_wide_run(const attn_call *call, const attn_unit *u)
{
    wide_space ws;
    ws.open = NULL;
    ws.heads = attn_side_heads(call, u->side_begin, &ws.head);
    ws.rows = u->num_tokens * ws.heads;
    ws.groups = attn_div_up(ws.rows, ATTN_LANES);
    ws.q_words = q_words_of(call);
    ws.total_floats = total_floats_of(call);
    for (uint32_t g = 0; g < ws.groups; g++)
        open_group(call, u, &ws, g);
    if (u->first_block < u->end_block) look_ahead(call, u, &ws, u->first_block, 0);
    for (uint32_t block = u->first_block; block < u->end_block; block++) {
        uint32_t tiles = 0;
        for (uint32_t g = 0; g < ws.groups; g++)
            tiles += sees_any(&ws.span[g], block);
        tiles = attn_div_up(tiles, ATTN_WIDE_TILE);
        if (tiles)
            load_block(call, u, &ws, block);
        else
            finish_open(call, &ws, NULL); /* its block's values stay for the next one, no longer */
        if (block + 1 < u->end_block)
            look_ahead(call, u, &ws, block + 1, tiles * attn_wide_steps(call->v_dim));
        for (uint32_t g = 0; g < ws.groups && tiles; g += ATTN_WIDE_TILE)
            run_tile(call, u, &ws, g, block);
    }
    finish_open(call, &ws, NULL);
    for (uint32_t g = 0; g < ws.groups; g++)
        close_group(call, u, &ws, g);
}
