/* attn_waves.c - few rows over long contexts: a context's blocks spread over the threads.
 *
 * Each block's (max, sum, values) is stored, and merged afterwards in ascending order, as if
 * one unit had gone through all of them. The memory for that is bounded, so it goes in waves:
 *
 *     wave 0: blocks 0..w-1 in parallel, merge   wave 1: blocks w..2w-1, merge ...
 *
 * A wave is cut into a few pieces for each thread; long pieces start seldom. */
#include "attn/attn_plan.h"

#include <math.h>

enum {
    MOST_LINES = 512,
    LEAST_BLOCKS = 16,         /* worth the trouble; */
    LEAST_DECODED = 4,         /* of one token each: else no thread reads whole rows of K and V */
    LEAST_ROOM = 8,            /* blocks of a wave */
    PARTIAL_FLOATS = 128 << 10 /* of all partial results of a wave: 512 KiB of stack */
};

/* A wave: blocks [begin, end) in pieces of a few for every request. */
typedef struct attn_wave {
    attn_call *call;
    attn_partials partials;
    uint32_t end, piece, num_pieces, strips, sides;
    uint32_t merged; /* heads of a unit that merges */
    attn_walks walks;
} attn_wave;

/* Piece `index` but for its tokens; which request it is of. */
static uint32_t piece_range(const attn_wave *wave, uint32_t index, attn_unit *u)
{
    const attn_call *call = wave->call;
    const forward_batch *batch = call->batch;
    uint32_t strip = index % wave->strips, piece = index / wave->strips % wave->num_pieces;
    uint32_t request = index / wave->strips / wave->num_pieces;
    uint32_t begin = wave->partials.first_block + piece * wave->piece;
    uint32_t first = attn_first_key(call->layer, batch->extend_prefix_lens[request]);
    u->slots = rad_req_to_token_row(batch->req_to_token_pool, batch->req_pool_indices[request]);
    u->num_slots = batch->seq_lens[request];
    u->first_block = RAD_MAX(begin, first / ATTN_BLOCK);
    u->end_block = RAD_MIN(RAD_MIN(begin + wave->piece, wave->end), attn_end_block(u->num_slots));
    u->side_begin = strip * wave->sides;
    u->side_end = RAD_MIN(u->side_begin + wave->sides, call->num_sides);
    u->first = u->last = false;
    u->partials = &wave->partials;
    return request;
}

static void piece_unit(void *arg, uint32_t index, uint32_t thread)
{
    attn_wave *wave = arg;
    const forward_batch *batch = wave->call->batch;
    attn_unit u, next;
    attn_walk alone;
    uint32_t request = piece_range(wave, index, &u), then;
    if (u.first_block >= u.end_block) return;
    u.num_tokens = batch->extend_seq_lens[request];
    for (uint32_t t = 0; t < u.num_tokens; t++) {
        u.token[t] = batch->extend_start_loc[request] + t;
        u.position[t] = batch->extend_prefix_lens[request] + t;
    }
    attn_walk *walk = attn_walk_at(&wave->walks, index, thread, &alone, &then);
    const bool more = then < wave->walks.num_units;
    if (more) piece_range(wave, then, &next);
    attn_unit_run(wave->call, &u, walk, more ? &next : NULL);
}

/* Some neighbouring heads over all tokens. */
static void merge_unit(void *arg, uint32_t index, uint32_t thread)
{
    const attn_wave *wave = arg;
    const attn_call *call = wave->call;
    const forward_batch *batch = call->batch;
    const uint32_t heads = call->layer->num_heads, first = index * wave->merged;
    (void)thread;
    for (uint32_t request = 0; request < batch->num_reqs; request++)
        for (uint32_t t = 0; t < batch->extend_seq_lens[request]; t++) {
            uint32_t end = RAD_MIN(wave->end, attn_end_block(batch->seq_lens[request]));
            size_t token = (size_t)batch->extend_start_loc[request] + t;
            attn_merge_partials(call, &wave->partials, batch->extend_prefix_lens[request] + t,
                                token * heads + first, RAD_MIN(wave->merged, heads - first),
                                wave->partials.first_block, end);
        }
}

static void run_waves(attn_wave *wave, uint32_t first_block, uint32_t end_block, uint32_t room,
                      compute_pool *pool)
{
    const forward_batch *batch = wave->call->batch;
    uint32_t threads = compute_pool_num_threads(pool);
    uint32_t per_piece = batch->num_reqs * wave->strips, heads = wave->call->layer->num_heads;
    wave->merged = RAD_MIN(attn_div_up(heads, threads), ATTN_FOLD_ROWS);
    for (uint32_t b = first_block; b < end_block; b = wave->end) {
        wave->partials.first_block = b;
        wave->end = RAD_MIN(end_block, b + room);
        /* Long pieces start seldom; but there should be a few for every thread. */
        uint32_t blocks = wave->end - b;
        wave->num_pieces = RAD_MIN(blocks, attn_div_up(4 * threads, per_piece));
        wave->piece = attn_div_up(blocks, wave->num_pieces);
        wave->num_pieces = attn_div_up(blocks, wave->piece);
        attn_walks_begin(&wave->walks, wave->num_pieces * per_piece, threads);
        compute_pool_run_near(pool, wave->num_pieces * per_piece, piece_unit, wave);
        compute_pool_run(pool, attn_div_up(heads, wave->merged), merge_unit, wave);
    }
}

bool attn_forward_waves(attn_call *call, compute_pool *pool)
{
    const forward_batch *batch = call->batch;
    uint32_t threads = compute_pool_num_threads(pool), num_heads = call->layer->num_heads;
    size_t lines = (size_t)batch->num_tokens * num_heads;
    if (threads == 1 || batch->num_reqs >= 2 * threads || lines > MOST_LINES) return false;
    size_t room = PARTIAL_FLOATS / (lines * (call->v_dim + 2));
    uint32_t first_block = UINT32_MAX, end_block = 0, most_fresh = 0;
    for (uint32_t i = 0; i < batch->num_reqs; i++) {
        uint32_t first = attn_first_key(call->layer, batch->extend_prefix_lens[i]);
        first_block = RAD_MIN(first_block, first / ATTN_BLOCK);
        end_block = RAD_MAX(end_block, attn_end_block(batch->seq_lens[i]));
        most_fresh = RAD_MAX(most_fresh, batch->extend_seq_lens[i]);
    }
    uint32_t least = most_fresh == 1 ? LEAST_DECODED : LEAST_BLOCKS;
    if (room < LEAST_ROOM || end_block - first_block < least) return false;
    uint32_t sides = attn_unit_sides(call, most_fresh * call->heads);
    if (sides == 0) return false;

    float partials[PARTIAL_FLOATS], states[2 * MOST_LINES];
    attn_wave wave;
    wave.call = call;
    wave.sides = sides;
    wave.strips = attn_div_up(call->num_sides, sides);
    wave.partials = (attn_partials){.numbers = partials, .num_blocks = (uint32_t)room};
    call->states = states;
    for (size_t line = 0; line < lines; line++) {
        states[2 * line] = -INFINITY;
        states[2 * line + 1] = 0;
    }
    memset(call->out, 0, lines * call->v_dim * sizeof *call->out);
    run_waves(&wave, first_block, end_block, (uint32_t)room, pool);
    for (size_t line = 0; line < lines; line++)
        call->kernels->divide(
            call->v_dim, call->out + line * call->v_dim,
            attn_sum_with_sink(call, line, states[2 * line], states[2 * line + 1]) / call->v_scale);
    return true;
}
