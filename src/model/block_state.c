/* block_state.c - see block_state.h. */
#include "model/block_state.h"

/* Tokens for which a head's state is taken through the L1 cache, strip by strip: their keys and
 * values stay in the L2 cache meanwhile. */
enum { TOKENS_AT_A_TIME = 32 };

/* The request whose row this is. */
static uint32_t req_of(const forward_batch *batch, uint32_t row)
{
    uint32_t first = 0, end = batch->num_reqs;
    while (end - first > 1) {
        const uint32_t middle = first + (end - first) / 2;
        if (batch->extend_start_loc[middle] <= row)
            first = middle;
        else
            end = middle;
    }
    return first;
}

/* The layer's part of a state. */
static float *part_of(const step *s, rad_state state)
{
    return (float *)rad_state_address(s->batch->state_pool, state) + s->l->state_at;
}

/* Inputs of the request's new token t, or of one before them (t < 0), which the state has. */
static const float *input_at(const step *s, const state_inputs *in, uint32_t req,
                             const float *state, int64_t t)
{
    const recurrent_config *x = &s->c->recurrent;
    if (t < 0) return state + (size_t)(t + x->taps - 1) * x->conv_dim;
    return in->at + (s->batch->extend_start_loc[req] + (size_t)t) * in->ld;
}

void block_convolve(const step *s, const state_inputs *in, uint32_t i, float *out)
{
    const recurrent_config *x = &s->c->recurrent;
    const uint32_t req = req_of(s->batch, i);
    const float *state = part_of(s, s->batch->state_in[req]), *rows[MOST_TAPS];
    const int64_t t = i - s->batch->extend_start_loc[req];
    for (uint32_t tap = 0; tap < x->taps; tap++)
        rows[tap] = input_at(s, in, req, state, t + tap - (x->taps - 1));
    s->m->ops->convolve(out, rows, s->w->conv, s->w->conv_bias, x->taps, x->conv_dim);
}

typedef struct scan_region {
    const step *s;
    const state_inputs *in;
    const state_scan *scan;
    uint32_t heads;
} scan_region;

/* What the convolution reads behind `tokens` of the request's new ones. The oldest first, since
 * `to` may be where they come from. */
static void keep_inputs(const scan_region *a, uint32_t req, uint32_t tokens, rad_state state)
{
    const step *s = a->s;
    const recurrent_config *x = &s->c->recurrent;
    const float *from = part_of(s, s->batch->state_in[req]);
    float *to = part_of(s, state);
    for (uint32_t i = 0; i + 1 < x->taps; i++)
        memmove(to + (size_t)i * x->conv_dim,
                input_at(s, a->in, req, from, (int64_t)tokens + i - (x->taps - 1)),
                x->conv_dim * sizeof *to);
    const size_t used = (size_t)(x->taps - 1) * x->conv_dim; /* no byte of a state is undefined */
    memset(to + used, 0, (state_conv_floats(x) - used) * sizeof *to);
}

/* The first of the batch's saves that is the request's, or a later one's. */
static uint32_t first_save(const forward_batch *batch, uint32_t req)
{
    uint32_t i = 0;
    while (i < batch->num_state_saves && batch->state_saves[i].req < req)
        i++;
    return i;
}

/* Tokens [t, t + tokens) of the request through all strips of the head. */
static void scan_tokens(const scan_region *a, uint32_t req, uint32_t head, uint32_t t,
                        uint32_t tokens, const float *from, float *to)
{
    const step *s = a->s;
    const recurrent_config *x = &s->c->recurrent;
    const uint32_t group = a->scan->tiled ? head % x->groups : head / (x->heads / x->groups);
    const size_t row = s->batch->extend_start_loc[req] + (size_t)t, inner = state_inner(x);
    const float *in = s->b->q + row * x->conv_dim;
    const float *gates = s->b->k + row * a->scan->gate_ld;
    scan_job job = {.tokens = tokens,
                    .rows = x->key,
                    .key = in + a->scan->key_at + (size_t)group * x->key,
                    .query = in + a->scan->query_at + (size_t)group * x->key,
                    .key_ld = x->conv_dim,
                    .value_ld = x->conv_dim,
                    .decay = gates + head,
                    .weight = gates + x->heads + head,
                    .product = gates + 2 * (size_t)x->heads + group,
                    .gate_ld = a->scan->gate_ld,
                    .out_ld = inner};
    for (uint32_t strip = 0; strip < state_strips(x); strip++) {
        const uint32_t first = strip * STATE_STRIP;
        const size_t column = (size_t)head * x->value + first,
                     at = (size_t)strip * x->key * STATE_STRIP;
        job.columns = RAD_MIN(x->value - first, (uint32_t)STATE_STRIP);
        job.value = in + a->scan->value_at + column;
        job.out = s->b->unpacked + row * inner + column;
        job.from = from + at, job.to = to + at;
        a->scan->run(&job);
    }
}

static void scan_head(const scan_region *a, uint32_t req, uint32_t head)
{
    const step *s = a->s;
    const forward_batch *batch = s->batch;
    const recurrent_config *x = &s->c->recurrent;
    const size_t floats = state_head_floats(x), at = state_conv_floats(x) + head * floats;
    const uint32_t end = batch->extend_seq_lens[req];
    const float *from = part_of(s, batch->state_in[req]) + at;
    float *to = part_of(s, batch->state_out[req]) + at;
    uint32_t save = first_save(batch, req);
    for (uint32_t t = 0, next; t < end; t = next, from = to) {
        const forward_state_save *wanted = NULL;
        if (save < batch->num_state_saves && batch->state_saves[save].req == req)
            wanted = &batch->state_saves[save];
        next = RAD_MIN(end, t + TOKENS_AT_A_TIME);
        if (wanted) next = RAD_MIN(next, wanted->tokens);
        scan_tokens(a, req, head, t, next - t, from, to);
        if (!wanted || wanted->tokens > next) continue;
        memcpy(part_of(s, wanted->state) + at, to, floats * sizeof *to);
        save++;
    }
}

static void scan_tile(void *arg, uint32_t tile, uint32_t thread)
{
    (void)thread;
    const scan_region *a = arg;
    const forward_batch *batch = a->s->batch;
    const uint32_t req = tile / (a->heads + 1), head = tile % (a->heads + 1);
    if (head < a->heads) {
        scan_head(a, req, head);
        return;
    }
    for (uint32_t i = first_save(batch, req);
         i < batch->num_state_saves && batch->state_saves[i].req == req; i++)
        keep_inputs(a, req, batch->state_saves[i].tokens, batch->state_saves[i].state);
    keep_inputs(a, req, batch->extend_seq_lens[req], batch->state_out[req]);
}

void block_scan(step *s, const state_inputs *in, const state_scan *scan)
{
    scan_region region = {s, in, scan, scan ? s->c->recurrent.heads : 0};
    compute_pool_run(s->m->pool, s->batch->num_reqs * (region.heads + 1), scan_tile, &region);
}
