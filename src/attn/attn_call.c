/* attn_call.c - what all units of a forward pass have in common, and what every walk through
 * blocks asks of it: the sides, what a query sees, a block's slots and lines, its codes, a
 * row's beginning and end.
 *
 *     side   a KV head with the query heads that share it; where those are more than
 *            SIDE_ROWS, or too long for a unit's room, a part of them
 *
 * Invariant: the sides of a call have every query head once, and a unit's rows of one side
 * find room in ATTN_Q_BYTES. */
#include "attn/attn_plan.h"
#include "attn/attn_strip.h"

#include <math.h>

enum {
    SIDE_ROWS = 96,
    UNIT_BYTES = 512 << 10 /* K and V of a unit's block; the next one is fetched to L2 */
};

const rad_slot attn_in_order[ATTN_BLOCK] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
    22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
    44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};

attn_call attn_call_of(const attn_kernels *kernels, const attn_codes *codes,
                       const radix_attention *layer, const forward_batch *batch, const float *q,
                       float *out)
{
    attn_call c = {.kernels = kernels,
                   .codes = codes,
                   .layer = layer,
                   .batch = batch,
                   .kv = attn_kv_of(batch->token_to_kv_pool, layer->layer_id),
                   .v_scale = 1,
                   .q_layer = *layer,
                   .v_dim = attn_v_dim(layer),
                   .q = q,
                   .out = out,
                   .sharing = layer->num_heads / layer->num_kv_heads};
    const attn_kv_plane *k = &c.kv.plane[ATTN_K], *v = &c.kv.plane[ATTN_V];
    c.decoded = !codes && c.kv.dtype != RAD_F32 && c.kv.dtype != RAD_BF16;
    c.mla = v->base == k->base;
    if (codes && k->scales) {
        c.rounded = !attn_kv_has_one_scale(&c.kv, ATTN_K);
        c.scaled = !c.rounded;
    } else if (codes) {
        c.q_layer.scaling *= k->scale;
        c.v_scale = v->scale;
    }
    c.parts = (c.sharing + SIDE_ROWS - 1) / SIDE_ROWS;
    c.heads = (c.sharing + c.parts - 1) / c.parts;
    c.parts = (c.sharing + c.heads - 1) / c.heads;
    c.num_sides = layer->num_kv_heads * c.parts;
    size_t rows = ATTN_Q_BYTES / attn_q_bytes(kernels, layer->head_dim);
    if (rows < c.heads) { /* the longest heads: fewer of them at a time */
        c.heads = (uint32_t)rows;
        c.parts = (c.sharing + c.heads - 1) / c.heads;
        c.num_sides = layer->num_kv_heads * c.parts;
    }
    c.most_rows = (uint32_t)RAD_MIN(rows, ATTN_MOST_ROWS);
    return c;
}

uint32_t attn_unit_sides(const attn_call *call, uint32_t rows)
{
    size_t side_bytes = RAD_MAX(1, call->kv.token_bytes / call->num_sides) * ATTN_BLOCK;
    size_t sides = RAD_MAX(1, UNIT_BYTES / side_bytes);
    sides = RAD_MIN(sides, call->most_rows / rows);
    if (call->kernels->strip && call->heads <= ATTN_STRIP_SHARING) /* what attn_strip_takes */
        sides = RAD_MIN(sides, ATTN_STRIP_ROWS / call->heads);
    return (uint32_t)RAD_MIN(sides, RAD_MIN(call->num_sides, ATTN_MOST_SIDES));
}

uint32_t attn_side_heads(const attn_call *call, uint32_t side, uint32_t *first)
{
    uint32_t within = side % call->parts * call->heads;
    *first = side / call->parts * call->sharing + within;
    return RAD_MIN(call->heads, call->sharing - within);
}

bool attn_sees(const radix_attention *layer, uint32_t position, uint32_t block, uint32_t *begin,
               uint32_t *end)
{
    uint32_t base = block * ATTN_BLOCK, first = attn_first_key(layer, position);
    if (position < base || first >= base + ATTN_BLOCK) return false;
    *begin = first > base ? first - base : 0;
    *end = RAD_MIN(position - base + 1, ATTN_BLOCK);
    return true;
}

void attn_fetch_slots(const attn_unit *u, uint32_t block)
{
    if (block >= u->end_block) return;
    const char *line = (const char *)(u->slots + (size_t)block * ATTN_BLOCK);
    for (size_t i = 0; i < ATTN_BLOCK * sizeof(rad_slot); i += 64)
        __builtin_prefetch(line + i, 0, 3);
}

void attn_fetch_scales(const attn_call *call, const attn_unit *u, const rad_slot *slots,
                       uint32_t begin, uint32_t end)
{
    const size_t first = u->side_begin / call->parts * sizeof(float);
    const size_t last = (u->side_end - 1) / call->parts * sizeof(float);
    for (int side = ATTN_K; side <= ATTN_V; side++) {
        const attn_kv_plane *p = &call->kv.plane[side];
        for (uint32_t j = begin; j < end; j++)
            for (size_t at = first; at <= last; at += 64)
                __builtin_prefetch(p->scales + (size_t)slots[j] * p->scale_stride + at, 0, 3);
    }
}

/* The slots of a block. Places behind the last position repeat the block's first one: keys
 * there are loaded, and never looked at. */
static void copy_slots(const attn_unit *u, uint32_t block, rad_slot *slots)
{
    const rad_slot *from = u->slots + (size_t)block * ATTN_BLOCK;
    uint32_t there = RAD_MIN(u->num_slots - block * ATTN_BLOCK, ATTN_BLOCK);
    memcpy(slots, from, there * sizeof *slots);
    for (uint32_t j = there; j < ATTN_BLOCK; j++)
        slots[j] = from[0];
}

void attn_look_ahead(const attn_call *call, const attn_unit *u, uint32_t block, rad_slot *slots,
                     attn_ahead *a)
{
    copy_slots(u, block, slots);
    attn_fetch_slots(u, block + 1);
    uint32_t first = u->side_begin / call->parts, end = (u->side_end - 1) / call->parts + 1;
    *a = (attn_ahead){.count = RAD_MIN(u->num_slots - block * ATTN_BLOCK, ATTN_BLOCK),
                      .slots = slots};
    for (int side = ATTN_K; side <= ATTN_V; side++) {
        const attn_kv_plane *p = &call->kv.plane[side];
        a->base[side] = p->base + first * p->head_bytes;
        a->stride[side] = p->stride;
        a->bytes[side] = (end - first) * p->head_bytes;
    }
    a->sides = call->mla ? 1 : 2;
    for (uint32_t side = 0, rows = a->sides; side < rows && call->kv.plane[ATTN_K].scales; side++) {
        const attn_kv_plane *p = &call->kv.plane[side];
        a->base[a->sides] = p->scales + first * sizeof(float);
        a->stride[a->sides] = p->scale_stride;
        a->bytes[a->sides++] = (end - first) * sizeof(float);
    }
    attn_ahead_row(a);
}

void attn_rows_of_codes(const attn_call *call, attn_kv_side side, const rad_slot *slots,
                        uint32_t kv_head, uint16_t *to, size_t ld)
{
    kv_rows rows = attn_kv_rows(&call->kv, side, slots, kv_head);
    const uint32_t dim = call->kv.plane[side].dim, split = call->kv.plane[side].split;
    if (!call->rounded) {
        call->codes->load_rows(call->kv.dtype, &rows, dim, to, ld);
        return;
    }
    call->codes->round_rows(&rows, split, to, ld, split);
    rows.base += split; /* a number is a byte */
    rows.scales += sizeof(float);
    call->codes->round_rows(&rows, dim - split, to + split, ld, (uint32_t)ld - split);
}

void attn_scales_of(const attn_call *call, const rad_slot *slots, uint32_t kv_head, uint32_t heads,
                    attn_scales *to)
{
    for (int side = ATTN_K; side <= ATTN_V; side++) {
        kv_rows rows = attn_kv_rows(&call->kv, side, slots, kv_head);
        call->codes->load_scales(&rows, heads, to->of[side][0]);
    }
}

void attn_open_row(const attn_call *call, const attn_unit *u, size_t line, void *q, float *max,
                   float *sum)
{
    uint32_t dim = call->layer->head_dim;
    call->kernels->prepare_q(&call->q_layer, call->q + line * dim, q);
    if (u->partials) return;
    *max = u->first ? -INFINITY : call->states[2 * line];
    *sum = u->first ? 0 : call->states[2 * line + 1];
    if (u->first) memset(call->out + line * call->v_dim, 0, call->v_dim * sizeof(float));
}

/* The weights' sum with the sink's, which is a weight behind all others: in units of e^max, as they
 * are. A sink that dwarfs all scores makes it infinite, and the row 0. */
float attn_sum_with_sink(const attn_call *call, size_t line, float max, float sum)
{
    static const float log2_e = 1.44269504f;
    if (!call->layer->sinks) return sum;
    const float sink = call->layer->sinks[line % call->layer->num_heads];
    const float above = (call->kernels->pairs ? sink * log2_e : sink) - max;
    return sum + (above > 0 ? 1 / call->kernels->exp(-above) : call->kernels->exp(above));
}

void attn_close_row(const attn_call *call, const attn_unit *u, size_t line, float max, float sum)
{
    if (u->last) {
        sum = attn_sum_with_sink(call, line, max, sum);
        call->kernels->divide(call->v_dim, call->out + line * call->v_dim, sum / call->v_scale);
    } else {
        call->states[2 * line] = max;
        call->states[2 * line + 1] = sum;
    }
}

void attn_store_partial(const attn_call *call, const attn_unit *u, size_t line, uint32_t block,
                        float max, float sum, const float *part)
{
    float *to = attn_partial(u->partials, call->v_dim, line, block);
    to[0] = max;
    to[1] = sum;
    memcpy(to + 2, part, call->v_dim * sizeof *to);
}
