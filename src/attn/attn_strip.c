/* attn_strip.c - walks the blocks of a unit of one token, all its KV heads at a time
 * (attn_strip.h).
 *
 * Invariant (P1): as in attn_unit.c. */
#include "attn/attn_strip.h"

#include "attn/attn_plan.h"

/* The values of a token that is not seen: what it has may be no number, and 0 times that too. */
static _Alignas(64) const char no_values[ATTN_MOST_SIDES * ATTN_STRIP_DIM * sizeof(float)];

typedef struct workspace {
    _Alignas(64) char q[ATTN_STRIP_ROWS * ATTN_STRIP_DIM * sizeof(float)];
    _Alignas(64) float weights[ATTN_STRIP_ROWS * ATTN_BLOCK];
    _Alignas(64) float part[ATTN_STRIP_ROWS * ATTN_STRIP_DIM];
    attn_strip strip;
    attn_scales scales; /* of int8 */
    uint32_t rows;
    float max[ATTN_STRIP_ROWS + ATTN_FOLD_ROWS], sum[ATTN_STRIP_ROWS + ATTN_FOLD_ROWS]; /* so far */
} workspace;

bool attn_strip_takes(const attn_call *call, const attn_unit *u)
{
    const uint32_t dim = call->layer->head_dim;
    const bool decoded = call->decoded && call->kv.dtype != RAD_F16; /* which strips read */
    return call->kernels->strip && !call->mla && !decoded && u->num_tokens == 1 &&
           call->parts == 1 && call->heads <= ATTN_STRIP_SHARING &&
           call->heads * (u->side_end - u->side_begin) <= ATTN_STRIP_ROWS && dim == call->v_dim &&
           dim % 32 == 0 && dim <= ATTN_STRIP_DIM;
}

/* The first row's, of all heads of the layer. */
static size_t first_line(const attn_call *call, const attn_unit *u)
{
    return (size_t)u->token[0] * call->layer->num_heads + u->side_begin * call->heads;
}

static void open_rows(const attn_call *call, const attn_unit *u, workspace *ws)
{
    const uint32_t dim = call->layer->head_dim;
    const size_t line = first_line(call, u);
    attn_strip *s = &ws->strip;
    s->kv_heads = u->side_end - u->side_begin;
    s->sharing = call->heads;
    s->dim = dim;
    s->dtype = call->kv.dtype;
    s->q = ws->q;
    s->q_bytes = attn_q_bytes(call->kernels, dim);
    s->scaling = call->layer->scaling;
    s->logit_cap = call->layer->logit_cap;
    s->head_bytes = call->kv.plane[ATTN_K].head_bytes;
    s->weights = ws->weights;
    s->part = ws->part;
    s->key_scales = ws->scales.of[ATTN_K][0];
    s->value_scales = ws->scales.of[ATTN_V][0];
    ws->rows = s->kv_heads * s->sharing;
    s->step = call->codes ? ATTN_STRIP_CODE_TOKENS : ATTN_STRIP_TOKENS;
    s->ahead = call->codes ? ATTN_STRIP_CODE_AHEAD : ATTN_STRIP_AHEAD;
    for (uint32_t r = 0; r < ws->rows; r++)
        attn_open_row(call, u, line + r, ws->q + r * s->q_bytes, &ws->max[r], &ws->sum[r]);
}

static const char *row_of(const attn_call *call, attn_kv_side side, rad_slot slot, uint32_t kv_head)
{
    const attn_kv_plane *p = &call->kv.plane[side];
    return p->base + (size_t)slot * p->stride + kv_head * p->head_bytes;
}

/* The keys of the first tokens of a block; places behind the last one repeat the first. */
static void first_keys(const attn_call *call, const attn_unit *u, uint32_t block, uint32_t count,
                       const char **to)
{
    const rad_slot *slots = u->slots + (size_t)block * ATTN_BLOCK;
    uint32_t there = RAD_MIN(u->num_slots - block * ATTN_BLOCK, RAD_MIN(count, ATTN_BLOCK));
    for (uint32_t j = 0; j < count; j++)
        to[j] = row_of(call, ATTN_K, slots[j < there ? j : 0], u->side_begin);
}

static void find_rows(const attn_call *call, const attn_unit *u, uint32_t block, attn_strip *s)
{
    const rad_slot *slots = u->slots + (size_t)block * ATTN_BLOCK;
    s->tokens = (s->end + s->step - 1) / s->step * s->step;
    for (uint32_t j = 0; j < s->tokens; j++) {
        const bool seen = j >= s->begin && j < s->end;
        s->rows[j] = row_of(call, ATTN_K, slots[seen ? j : s->begin], u->side_begin);
        s->rows[s->tokens + j] = seen ? row_of(call, ATTN_V, slots[j], u->side_begin) : no_values;
    }
}

/* The scales of a block, all at once. */
static void fetch_scales(const attn_call *call, const attn_unit *u, uint32_t block)
{
    attn_fetch_scales(call, u, u->slots + (size_t)block * ATTN_BLOCK, 0,
                      RAD_MIN(u->num_slots - block * ATTN_BLOCK, ATTN_BLOCK));
}

/* What is read next: a block's first keys go to `rows`. */
static void fetch_block(const attn_call *call, const attn_unit *u, uint32_t block, uint32_t count,
                        const char **rows)
{
    first_keys(call, u, block, count, rows);
    if (call->scaled) fetch_scales(call, u, block);
}

/* What comes after `block`: of this unit, of the thread's next one, or nothing new. */
static void look_behind(const attn_call *call, const attn_unit *u, uint32_t block,
                        const attn_unit *next, attn_strip *s)
{
    const char **soon = s->rows + 2 * s->tokens;
    attn_fetch_slots(u, block + 2);
    if (block + 1 < u->end_block)
        fetch_block(call, u, block + 1, s->ahead, soon);
    else if (next && next->first_block < next->end_block)
        fetch_block(call, next, next->first_block, s->ahead, soon);
    else
        for (uint32_t j = 0; j < s->ahead; j++)
            soon[j] = s->rows[j % s->step];
}

static void fetch_first(const attn_call *call, const attn_unit *u, uint32_t step)
{
    const char *rows[ATTN_STRIP_CODE_TOKENS];
    fetch_block(call, u, u->first_block, step, rows);
    attn_fetch_slots(u, u->first_block + 1);
    size_t bytes = (u->side_end - u->side_begin) * call->kv.plane[ATTN_K].head_bytes;
    for (uint32_t j = 0; j < step; j++)
        for (size_t at = 0; at < bytes; at += 64)
            __builtin_prefetch(rows[j] + at, 0, 3);
}

/* Where no token is seen there are those of one that is: what they have may be anything. */
static void find_scales(const attn_call *call, const attn_unit *u, uint32_t block, workspace *ws)
{
    const rad_slot *from = u->slots + (size_t)block * ATTN_BLOCK;
    const attn_strip *s = &ws->strip;
    rad_slot slots[ATTN_BLOCK];
    for (uint32_t j = 0; j < ATTN_BLOCK; j++)
        slots[j] = from[j >= s->begin && j < s->end ? j : s->begin];
    attn_scales_of(call, slots, u->side_begin, s->kv_heads, &ws->scales);
}

static void fold_rows(const attn_call *call, const attn_unit *u, workspace *ws)
{
    const attn_strip *s = &ws->strip;
    float *out = call->out + first_line(call, u) * s->dim;
    for (uint32_t first = 0; first < ws->rows; first += ATTN_FOLD_ROWS) {
        uint32_t count = RAD_MIN(ws->rows - first, ATTN_FOLD_ROWS);
        float max[ATTN_FOLD_ROWS] = {0}, sum[ATTN_FOLD_ROWS] = {0};
        float scale[ATTN_FOLD_ROWS], block_scale[ATTN_FOLD_ROWS];
        memcpy(max, s->max + first, count * sizeof *max);
        memcpy(sum, s->sum + first, count * sizeof *sum);
        call->kernels->fold(ws->max + first, ws->sum + first, max, sum, scale, block_scale);
        for (uint32_t i = 0; i < count; i++) {
            size_t at = (size_t)(first + i) * s->dim;
            call->kernels->merge(s->dim, out + at, scale[i], s->part + at, block_scale[i]);
        }
    }
}

__attribute__((noinline)) void attn_strip_run(const attn_call *call, const attn_unit *u,
                                              const attn_unit *next)
{
    const size_t line = first_line(call, u);
    workspace ws;
    memset(ws.max, 0, sizeof ws.max); /* folded in whole vectors */
    memset(ws.sum, 0, sizeof ws.sum);
    void (*strip)(attn_strip *) = call->codes ? call->codes->strip : call->kernels->strip;
    open_rows(call, u, &ws);
    if (next) attn_fetch_slots(next, next->first_block);
    if (u->first_block < u->end_block) fetch_first(call, u, ws.strip.step);
    for (uint32_t block = u->first_block; block < u->end_block; block++) {
        attn_strip *s = &ws.strip;
        if (!attn_sees(call->layer, u->position[0], block, &s->begin, &s->end)) continue;
        find_rows(call, u, block, s);
        if (call->scaled) find_scales(call, u, block, &ws);
        look_behind(call, u, block, next, s);
        strip(s);
        if (!u->partials) {
            fold_rows(call, u, &ws);
            continue;
        }
        for (uint32_t r = 0; r < ws.rows; r++)
            attn_store_partial(call, u, line + r, block, s->max[r], s->sum[r],
                               s->part + (size_t)r * s->dim);
    }
    for (uint32_t r = 0; r < ws.rows && !u->partials; r++)
        attn_close_row(call, u, line + r, ws.max[r], ws.sum[r]);
}
