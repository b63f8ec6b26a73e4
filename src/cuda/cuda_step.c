/* cuda_step.c - see cuda_step.h. */
#include "cuda/cuda_step.h"

enum { BLOCK_ALIGN = 16, COUNTS_BYTES = 64 };

static uint32_t take(size_t *used, size_t count, size_t size)
{
    const size_t at = *used;
    *used = (at + count * size + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
    return (uint32_t)at;
}

static uint32_t most_units(const cuda_step_limits *l)
{
    return cuda_attention_most_units(l->tokens, l->most_parts);
}

static uint32_t most_unit_tokens(const cuda_step_limits *l)
{
    return cuda_attention_most_unit_tokens(l->tokens);
}

/* Places of everything that has one in every step of as many tokens; returns what it takes. */
static size_t place(const cuda_step_limits *l, uint32_t tokens, uint32_t logits, uint32_t patches,
                    cuda_step *s)
{
    size_t used = COUNTS_BYTES;
    *s = (cuda_step){.tokens = tokens, .logits = logits, .patches = patches};
    s->at_num_tokens = CUDA_VIEWS * sizeof(uint32_t);
    s->at_ids = take(&used, tokens, sizeof(rad_token));
    s->at_positions = take(&used, tokens, sizeof(uint32_t));
    s->at_slots = take(&used, tokens, sizeof(rad_slot));
    s->at_window_slots = take(&used, l->window ? tokens : 0, sizeof(rad_slot));
    s->at_rows = take(&used, logits, sizeof(uint32_t));
    s->at_patches = take(&used, patches, sizeof(slot_patch));
    for (uint32_t v = 0; v < l->num_views; v++) {
        cuda_step_view *view = &s->views[v];
        view->window = l->views[v].window;
        view->at_count = v * sizeof(uint32_t);
        view->at_parts_at = take(&used, tokens, sizeof(uint32_t));
    }
    return used;
}

/* In a graph the units of a view that is not the last have a fixed number of places. */
static uint32_t units_in_graph(uint32_t padded)
{
    return 16 * padded + 16;
}

size_t cuda_step_block_bytes(const cuda_step_limits *l)
{
    cuda_step s;
    size_t used = place(l, l->tokens, RAD_MAX(l->logits, 1u), cuda_step_slot_rows(l), &s);
    for (uint32_t v = 0; v < l->num_views; v++) {
        take(&used, most_units(l), sizeof(attention_unit));
        take(&used, most_unit_tokens(l), sizeof(uint32_t));
    }
    take(&used, l->most_values, sizeof(rad_slot));
    return used;
}

size_t cuda_step_scratch_bytes(const cuda_step_limits *l)
{
    size_t used = 0;
    take(&used, rad_mul(l->num_views, most_unit_tokens(l)), sizeof(uint32_t));
    take(&used, 1, cuda_attention_scratch_bytes(l->tokens, l->requests, l->most_parts));
    return used;
}

typedef struct build {
    const cuda_step_limits *l;
    const forward_batch *batch;
    cuda_slots *slots;
    cuda_send_slots *send;
    void *user;
    char *block;
    cuda_step *step;
    size_t used;
    rad_error *err;
} build;

static void fill_slots(const build *b, uint32_t at, const rad_slot *slots)
{
    const uint32_t n = b->batch->num_tokens;
    rad_slot *to = (rad_slot *)(void *)(b->block + at);
    memcpy(to, slots, n * sizeof *to);
    memset(to + n, 0, (b->step->tokens - n) * sizeof *to); /* page 0 is the dummy */
}

static void fill_tokens(const build *b)
{
    const forward_batch *batch = b->batch;
    const cuda_step *s = b->step;
    const uint32_t n = batch->num_tokens, more = s->tokens - n;
    memcpy(b->block + s->at_num_tokens, &n, sizeof n);
    rad_token *ids = (rad_token *)(void *)(b->block + s->at_ids);
    uint32_t *positions = (uint32_t *)(void *)(b->block + s->at_positions);
    uint32_t *rows = (uint32_t *)(void *)(b->block + s->at_rows);
    memcpy(ids, batch->input_ids, n * sizeof *ids);
    memset(ids + n, 0, more * sizeof *ids);
    memcpy(positions, batch->positions, n * sizeof *positions);
    memset(positions + n, 0, more * sizeof *positions);
    fill_slots(b, s->at_slots, batch->out_cache_loc);
    if (batch->window_kv_pool) fill_slots(b, s->at_window_slots, batch->window_out_cache_loc);
    memcpy(rows, batch->logits_indices, batch->num_logits * sizeof *rows);
    memset(rows + batch->num_logits, 0, (s->logits - batch->num_logits) * sizeof *rows);
}

/* The units of each view, and behind all of them the tokens that they are of. */
static rad_status fill_views(build *b, bool padded, char *scratch)
{
    const cuda_step_limits *l = b->l;
    uint32_t counts[CUDA_VIEWS];
    uint32_t *tokens = (uint32_t *)(void *)scratch;
    size_t used = 0;
    take(&used, rad_mul(l->num_views, most_unit_tokens(l)), sizeof(uint32_t));
    for (uint32_t v = 0; v < l->num_views; v++) {
        cuda_step_view *view = &b->step->views[v];
        uint32_t *parts_at = (uint32_t *)(void *)(b->block + view->at_parts_at);
        cuda_attention_plan plan = {.units = (attention_unit *)(void *)(b->block + b->used),
                                    .unit_tokens = tokens + (size_t)v * most_unit_tokens(l),
                                    .parts_at = parts_at,
                                    .scratch = scratch + used,
                                    .max_tokens = l->tokens,
                                    .max_requests = l->requests,
                                    .max_parts = l->most_parts};
        view->at_units = (uint32_t)b->used;
        cuda_attention_plan_make(&plan, b->batch, &l->views[v], &l->attention);
        memset(parts_at + b->batch->num_tokens, 0xff,
               (b->step->tokens - b->batch->num_tokens) * sizeof *parts_at);
        view->num_units = plan.num_units;
        view->merges = padded || plan.num_parts;
        memcpy(b->block + view->at_count, &view->num_units, sizeof view->num_units);
        counts[v] = plan.num_unit_tokens;
        uint32_t places = plan.num_units;
        if (padded && v + 1 < l->num_views) places = units_in_graph(b->step->tokens);
        if (plan.num_units > places) return RAD_FULL;
        take(&b->used, places, sizeof(attention_unit));
    }
    for (uint32_t v = 0; v < l->num_views; v++) {
        const cuda_step_view *view = &b->step->views[v];
        attention_unit *units = (attention_unit *)(void *)(b->block + view->at_units);
        const uint32_t at = (uint32_t)(b->used / sizeof(uint32_t));
        for (uint32_t i = 0; i < view->num_units; i++)
            units[i].first += at;
        memcpy(b->block + b->used, tokens + (size_t)v * most_unit_tokens(l),
               counts[v] * sizeof *tokens);
        take(&b->used, counts[v], sizeof *tokens);
    }
    return RAD_OK;
}

/* The slots [from, ...) of a request's row as the step sees it, which the device has as row `to`.
 * Rows whose new slots do not fit go on their own. */
static rad_status fill_row(build *b, const rad_slot *slots, uint32_t to, uint32_t from,
                           uint32_t count, uint32_t at, uint32_t *values, slot_patch *patch)
{
    const uint32_t changed = cuda_slots_compare(b->slots, to, slots, from, count,
                                                (rad_slot *)(void *)b->block, at + *values,
                                                b->l->most_values - *values, patch);
    if (changed != UINT32_MAX) {
        *values += changed;
        return RAD_OK;
    }
    const uint32_t first = cuda_slots_take(b->slots, to, slots, from, count);
    return b->send(b->user, ((uint64_t)to * b->slots->ld + first) * sizeof *slots, slots + first,
                   count - first, b->err);
}

/* The request's row of one kind. */
static rad_status fill_kind(build *b, uint32_t req, bool window, uint32_t at, uint32_t *values,
                            slot_patch *patch)
{
    const forward_batch *batch = b->batch;
    const rad_row row = batch->req_pool_indices[req];
    const uint32_t count = batch->seq_lens[req], prefix = batch->extend_prefix_lens[req];
    if ((uint32_t)row >= b->l->requests || count > b->slots->ld)
        return rad_fail(b->err, RAD_E_LIMIT,
                        "cuda: request %u has %u tokens and is on row %d; the GPU was set up for "
                        "%u rows of %u tokens",
                        req, count, (int)row, b->l->requests - 1, b->slots->ld);
    if (window)
        return fill_row(b, rad_req_to_token_row(batch->window_rows, row),
                        b->l->requests + (uint32_t)row, forward_first_key(b->l->window, prefix),
                        count, at, values, patch);
    return fill_row(b, rad_req_to_token_row(batch->req_to_token_pool, row), (uint32_t)row, 0, count,
                    at, values, patch);
}

static rad_status fill_rows(build *b, bool padded)
{
    const uint32_t at = (uint32_t)(b->used / sizeof(rad_slot));
    slot_patch *patches = (slot_patch *)(void *)(b->block + b->step->at_patches);
    uint32_t values = 0, num_patches = 0;
    for (uint32_t i = 0; i < b->batch->num_reqs; i++)
        for (int window = 0; window <= (b->batch->window_kv_pool != NULL); window++) {
            slot_patch patch = {0};
            rad_status status = fill_kind(b, i, window, at, &values, &patch);
            if (status != RAD_OK) return status;
            if (patch.count) patches[num_patches++] = patch;
        }
    if (padded)
        memset(patches + num_patches, 0, (b->step->patches - num_patches) * sizeof *patches);
    else
        b->step->patches = num_patches;
    take(&b->used, values, sizeof(rad_slot));
    return RAD_OK;
}

rad_status cuda_step_build(const cuda_step_limits *l, const forward_batch *batch, uint32_t padded,
                           cuda_slots *slots, cuda_send_slots *send, void *user, void *scratch,
                           char *block, cuda_step *out, rad_error *err)
{
    const uint32_t tokens = padded ? padded : batch->num_tokens;
    const uint32_t logits = padded ? padded : batch->num_logits;
    const uint32_t patches = (padded ? padded : batch->num_reqs) * (batch->window_kv_pool ? 2 : 1);
    build b = {l,  batch, slots, send, user, block, out, place(l, tokens, logits, patches, out),
               err};
    fill_tokens(&b);
    rad_status status = fill_views(&b, padded, scratch);
    if (status == RAD_OK) status = fill_rows(&b, padded);
    out->bytes = b.used;
    return status;
}
