/* runner_fake.c - a hash that reads its context through the pool, as attention does.
 *
 * Each token stores one 64-bit value v in layer 0, a byte per element, as small
 * whole numbers: they survive every store dtype exactly. K holds v, V holds
 * mix64(v), so that swapped sides show too. What a token sees is a digest of
 * all positions before it, read back from the pool through the row:
 *
 *     digest(p) = sum over i < p of mix64(position i, K bytes, V bytes at row[i])
 *     v(p)      = mix64(token, p, digest(p))             -> stored at row[p]
 *     logits(p) = hash(digest(p + 1), id) for every id
 *
 * so every slot of the row matters at every step, the nearest and the farthest,
 * and a wrong one changes all answers after it. As with attention the work is
 * linear in the length of the row.
 *
 * With a window, layer 0 stores mix64(v) and a second digest sums what the pool has there of the
 * last `window` positions. So a slot of window memory that was given back too early, or was never
 * translated, shows just the same.
 *
 * With states, a recurrent layer comes before the others: its state is a hash of all tokens so far
 * and their number. What a token stores depends on the state that it leaves, and so do the logits
 * behind it: a snapshot of another text, or of this one at another position, shows from there on.
 *
 * One that chooses itself keeps the digests, as a GPU its logits, and makes logits of them where
 * somebody asks.
 *
 * K/V on a device are read and written by the pool's calls.
 *
 * Invariant, which the tests hold against runner_fake_next(): the answer depends on
 * the tokens alone, however they were batched, chunked or cached. */
#include "gear/runner_fake.h"
#include "base/base.h"
#include "base/mix64.h"
#include "gear/device_guarded.h"
#include "gear/kv_buffers.h"
#include "mem/kv_pool.h"
#include "model/batch_check.h"

#include <math.h>
#include <radish/mla_kv_pool.h>
#include <radish/state_pool.h>
#include <stdlib.h>

enum { VALUE_BYTES = 8 };

typedef struct runner_fake {
    runner base;
    rad_env env;
    uint32_t max_batch_logits;
    uint32_t fail_every;
    bool full; /* a layer sees everything */
    bool states;
    bool mla;
    rad_device *device;
    device_guarded guarded;
    runner_fake_counts asked;
    float *logits; /* [max_batch_logits][vocab_size] */
    size_t logits_bytes;
    uint64_t *digests; /* [max_batch_logits] what each row of logits of the last forward is of; */
    uint32_t num_digests;
    char *scratch; /* sampler_scratch_bytes, and a row of logits; NULL as digests: the scheduler
                    * chooses */
} runner_fake;

static uint64_t value_of(rad_token token, uint32_t position, uint64_t digest)
{
    return mix64(digest ^ mix64(((uint64_t)position << 32) | (uint32_t)token));
}

static uint64_t seen(uint32_t position, uint64_t k, uint64_t v)
{
    return mix64(k + mix64(v + position));
}

/* What a token sees of the two kinds of layers; without a window `near` is 0 and changes nothing.
 */
static uint64_t joined(uint64_t far, uint64_t near)
{
    return near ? far + mix64(near) : far;
}

static uint64_t near_value(uint64_t value)
{
    return mix64(value);
}

/* The state of the recurrent layer. Zeros are the beginning. */
typedef struct fake_state {
    uint64_t hash, tokens;
} fake_state;

static void advance(fake_state *state, rad_token token)
{
    state->tokens++;
    state->hash = mix64(state->hash ^ mix64((state->tokens << 32) | (uint32_t)token));
}

/* What it adds to all that a token sees; nothing without a recurrent layer. */
static uint64_t of_state(const fake_state *state)
{
    return state->tokens ? mix64(state->hash + state->tokens) : 0;
}

/* The first position that a token with `before` others before it sees. */
static uint32_t first_near(uint32_t window, uint32_t before)
{
    return before < window ? 0 : before + 1 - window;
}

/* 24 bits, so that every value is exact and ties are rare. */
static float logit_of(uint64_t digest, uint32_t id)
{
    return (float)(mix64(digest + id) >> 40) * (1.0f / (1 << 20));
}

static float element(const void *buffer, rad_dtype dtype, size_t i)
{
    if (dtype == RAD_F32) return ((const float *)buffer)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)buffer)[i] << 16; /* bf16 */
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Any bytes are possible in a stale slot: what is no whole byte reads as 0. */
static uint64_t load_value(const void *buffer, rad_dtype dtype, rad_slot slot)
{
    uint64_t value = 0;
    for (size_t i = 0; i < VALUE_BYTES; i++) {
        float f = element(buffer, dtype, (size_t)slot * VALUE_BYTES + i);
        uint64_t byte = f >= 0 && f < 256 ? (uint64_t)f : 0;
        value |= byte << (8 * i);
    }
    return value;
}

static void spread(uint64_t value, float out[VALUE_BYTES])
{
    for (size_t i = 0; i < VALUE_BYTES; i++)
        out[i] = (float)((value >> (8 * i)) & 255);
}

/* An MLA pool has one row: the latent is what K is else, the rope part what V is. */
void runner_fake_store(rad_token_to_kv_pool *pool, uint32_t layer, rad_slot slot, uint64_t value)
{
    float row[2 * VALUE_BYTES];
    spread(value, row);
    spread(mix64(value), row + VALUE_BYTES);
    rad_kv_pool_set_kv_buffer(pool, layer, &slot, 1, row, row + VALUE_BYTES);
}

typedef struct view { /* a layer of a pool */
    bool by_calls;    /* k and v are not looked at */
    bool mla;
    const void *k, *v;
    rad_dtype dtype;
    rad_token_to_kv_pool *kv;
    uint32_t layer;
} view;

static view view_of(rad_token_to_kv_pool *kv, uint32_t layer)
{
    const rad_token_to_kv_pool_params *params = rad_kv_pool_params(kv);
    return (view){.mla = params->kind == RAD_KV_MLA,
                  .by_calls = params->kind == RAD_KV_MLA || !device_is_cpu(kv->device),
                  .k = kv_key_buffer(kv, layer),
                  .v = kv_value_buffer(kv, layer),
                  .dtype = (rad_dtype)params->dtype,
                  .kv = kv,
                  .layer = layer};
}

static uint64_t value_in(const float *numbers)
{
    return load_value(numbers, RAD_F32, 0);
}

static uint64_t look_at(const view *pool, uint32_t position, rad_slot slot)
{
    if (pool->by_calls) {
        float row[2 * VALUE_BYTES], *v = pool->mla ? NULL : row + VALUE_BYTES;
        rad_status status = rad_kv_pool_get_kv(pool->kv, pool->layer, &slot, 1, row, v);
        RAD_ASSERT(status == RAD_OK);
        return seen(position, value_in(row), value_in(row + VALUE_BYTES));
    }
    return seen(position, load_value(pool->k, pool->dtype, slot),
                load_value(pool->v, pool->dtype, slot));
}

static void write_logits(const runner_fake *f, uint64_t digest, float *out)
{
    for (uint32_t id = 0; id < f->base.info.vocab_size; id++)
        out[id] = logit_of(digest, id);
}

static void end_row(runner_fake *f, uint32_t row, uint64_t digest, bool wanted)
{
    float *out = f->logits + (size_t)row * f->base.info.vocab_size;
    if (f->digests) f->digests[row] = digest;
    if (wanted)
        write_logits(f, digest, out);
    else /* a row that nobody asked for is not looked at */
        *out = NAN;
}

/* One request's rows, of both kinds of layers. */
typedef struct fake_rows {
    const view *far, *near;
    const rad_slot *far_row, *near_row;
    uint32_t window;
} fake_rows;

static uint64_t near_digest(const fake_rows *rows, uint32_t begin, uint32_t end)
{
    uint64_t digest = 0;
    for (uint32_t p = begin; rows->window && p < end; p++)
        digest += look_at(rows->near, p, rows->near_row[p]);
    return digest;
}

/* States lie where the pool's device has them. */
static void copy_state(rad_state_pool *pool, void *to, const void *from)
{
    rad_device *device = rad_state_pool_device(pool);
    const rad_device_rows dst = {to, sizeof(fake_state), NULL};
    const rad_device_rows src = {(void *)(uintptr_t)from, sizeof(fake_state), NULL};
    rad_status status = device_copy_rows(device, dst, src, sizeof(fake_state), 1);
    RAD_ASSERT(device_fence(device, status) == RAD_OK);
}

/* A forward that fails leaves nonsense here, too. */
static void put_state(rad_state_pool *pool, rad_state to, fake_state state, bool fail)
{
    if (fail) state.hash = ~state.hash;
    copy_state(pool, rad_state_address(pool, to), &state);
}

/* The state behind the request's prefix, and then its saves one by one. */
typedef struct fake_states {
    rad_state_pool *pool; /* NULL: there is no recurrent layer */
    fake_state now;
    uint32_t next_save; /* of the batch's */
} fake_states;

static void begin_states(fake_states *states, const forward_batch *batch, uint32_t r)
{
    if (!states->pool) return;
    copy_state(states->pool, &states->now, rad_state_address(states->pool, batch->state_in[r]));
}

static void save_states(fake_states *states, const forward_batch *batch, uint32_t r,
                        uint32_t tokens, bool fail)
{
    while (states->next_save < batch->num_state_saves) {
        const forward_state_save *save = &batch->state_saves[states->next_save];
        if (save->req != r || save->tokens != tokens) return;
        put_state(states->pool, save->state, states->now, fail);
        states->next_save++;
    }
}

/* The hidden state of a token is the digest that its logits are made of, 16 bits a number. */
static void add_hidden(const forward_batch *batch, uint32_t t, uint64_t digest)
{
    for (uint32_t i = 0; i < batch->num_pools; i++) {
        const forward_pool *p = &batch->pools[i];
        for (uint32_t d = 0; t >= p->first && t - p->first < p->count && d < RUNNER_FAKE_HIDDEN;
             d++)
            p->sum[d] += (double)(digest >> (16 * d) & 0xffff);
    }
}

static void run_request(runner_fake *f, const forward_batch *batch, uint32_t r,
                        const fake_rows *rows, fake_states *states, bool fail, bool wanted,
                        uint32_t *next_logits)
{
    uint32_t prefix = batch->extend_prefix_lens[r], start = batch->extend_start_loc[r];
    uint64_t far = 0;
    begin_states(states, batch, r);
    for (uint32_t p = 0; f->full && p < prefix; p++)
        far += look_at(rows->far, p, rows->far_row[p]);
    for (uint32_t i = 0; i < batch->extend_seq_lens[r]; i++) {
        uint32_t p = prefix + i, t = start + i, first = first_near(rows->window, p);
        uint64_t near = near_digest(rows, first, p);
        if (states->pool) advance(&states->now, batch->input_ids[t]);
        const uint64_t before = of_state(&states->now);
        uint64_t value = value_of(batch->input_ids[t], p, joined(far, near) + before);
        /* A forward that fails leaves nonsense behind, as a real one may. */
        uint64_t stored = fail ? ~value : value;
        if (f->full) {
            runner_fake_store(rows->far->kv, rows->far->layer, rows->far_row[p], stored);
            far += look_at(rows->far, p, rows->far_row[p]);
        }
        if (rows->window) {
            runner_fake_store(rows->near->kv, rows->near->layer, rows->near_row[p],
                              near_value(stored));
            near = near_digest(rows, first, p + 1);
        }
        add_hidden(batch, t, joined(far, near) + before);
        if (*next_logits < batch->num_logits && batch->logits_indices[*next_logits] == t)
            end_row(f, (*next_logits)++, joined(far, near) + before, wanted);
        save_states(states, batch, r, i + 1, fail);
    }
    if (states->pool) put_state(states->pool, batch->state_out[r], states->now, fail);
}

static rad_status fake_forward(runner *self, const forward_batch *batch, const float **logits,
                               rad_error *err)
{
    runner_fake *f = (runner_fake *)self;
    rad_status status = batch_check(&self->info, batch, UINT32_MAX, f->max_batch_logits, err);
    if (status != RAD_OK) return status;

    f->asked.forwards++;
    f->asked.with_logits += logits != NULL;
    bool fail = f->fail_every && f->asked.forwards % f->fail_every == 0;
    const bool apart = batch->window_kv_pool, slides = self->info.window_layers;
    view far = {0}, near = {0};
    if (f->full) far = view_of(batch->token_to_kv_pool, slides && !apart);
    if (slides) near = view_of(apart ? batch->window_kv_pool : batch->token_to_kv_pool, 0);
    uint32_t next_logits = 0;
    fake_states states = {.pool = f->states ? batch->state_pool : NULL};

    for (uint32_t r = 0; r < batch->num_reqs; r++) {
        rad_row row = batch->req_pool_indices[r];
        const rad_req_to_token_pool *near_rows = apart ? batch->window_rows
                                                       : batch->req_to_token_pool;
        const fake_rows rows = {.far = &far,
                                .near = &near,
                                .far_row = rad_req_to_token_row(batch->req_to_token_pool, row),
                                .near_row = rad_req_to_token_row(near_rows, row),
                                .window = self->info.sliding_window};
        run_request(f, batch, r, &rows, &states, fail, logits || !f->digests, &next_logits);
    }
    f->num_digests = next_logits;
    if (fail)
        return rad_fail(err, RAD_E_IO, "runner_fake: forward %llu fails, as was asked for",
                        (unsigned long long)f->asked.forwards);
    if (logits) *logits = f->logits;
    return RAD_OK;
}

static rad_status fake_sample(runner *self, const runner_sample *rows, uint32_t num_rows,
                              rad_token *tokens, rad_error *err)
{
    runner_fake *f = (runner_fake *)self;
    uint32_t vocab_size = self->info.vocab_size;
    float *row = (float *)(void *)(f->scratch + sampler_scratch_bytes(vocab_size));
    if (num_rows != f->num_digests)
        return rad_fail(err, RAD_E_INVAL, "runner_fake: %u rows, the last forward had %u", num_rows,
                        f->num_digests);
    for (uint32_t i = 0; i < num_rows; i++) {
        const runner_sample *a = &rows[i];
        if (!a->params) continue;
        write_logits(f, f->digests[i], row);
        tokens[i] = sampler_next(row, vocab_size, a->params, a->output, a->num_output, a->position,
                                 a->allowed, f->scratch);
    }
    f->asked.sampled += num_rows;
    return RAD_OK;
}

static rad_status fake_create_pool(runner *self, const rad_env *env,
                                   const runner_pool_params *params, rad_token_to_kv_pool **out,
                                   rad_error *err)
{
    const runner_fake *f = (const runner_fake *)self;
    const runner_info *info = &self->info;
    if (!f->mla) return runner_make_pool(info, f->device, env, params, out, err);
    const rad_mla_kv_pool_params p = {.struct_size = sizeof p,
                                      .num_pages = params->num_pages,
                                      .page_size = params->page_size,
                                      .num_layers = info->num_layers,
                                      .kv_lora_rank = info->v_head_dim,
                                      .rope_dim = info->head_dim - info->v_head_dim,
                                      .dtype = info->kv_dtype,
                                      .device = f->device};
    return rad_mla_kv_pool_create(env, &p, out, err);
}

static rad_status fake_create_state_pool(runner *self, const rad_env *env, uint32_t num_states,
                                         rad_state_pool **out, rad_error *err)
{
    const rad_state_pool_params p = {.struct_size = sizeof p,
                                     .state_bytes = self->info.state_bytes,
                                     .num_states = num_states,
                                     .device = ((const runner_fake *)self)->device};
    return rad_state_pool_create(env, &p, out, err);
}

runner_fake_counts runner_fake_asked(const runner *fake)
{
    return ((const runner_fake *)fake)->asked;
}

static size_t scratch_bytes(const runner_fake *f)
{
    return sampler_scratch_bytes(f->base.info.vocab_size) + f->base.info.vocab_size * sizeof(float);
}

static void fake_destroy(runner *self)
{
    runner_fake *f = (runner_fake *)self;
    rad_env env = f->env;
    rad_free(&env, f->logits, f->logits_bytes);
    rad_free(&env, f->digests, f->max_batch_logits * sizeof *f->digests);
    rad_free(&env, f->scratch, scratch_bytes(f));
    rad_free(&env, f, sizeof *f);
}

static const runner_ops fake_ops = {.forward = fake_forward,
                                    .create_pool = fake_create_pool,
                                    .create_state_pool = fake_create_state_pool,
                                    .destroy = fake_destroy};
static const runner_ops choosing_ops = {.forward = fake_forward,
                                        .create_pool = fake_create_pool,
                                        .create_state_pool = fake_create_state_pool,
                                        .destroy = fake_destroy,
                                        .sample = fake_sample};

rad_status runner_fake_create(const rad_env *env, const runner_fake_params *params, runner **out,
                              rad_error *err)
{
    *out = NULL;
    runner_fake_params p = params ? *params : (runner_fake_params){0};
    if (!p.vocab_size) p.vocab_size = 256;
    if (!p.context_length) p.context_length = 4096;
    if (!p.max_batch_logits) p.max_batch_logits = 256;

    rad_env full = rad_env_or_default(env);
    runner_fake *f = rad_alloc(&full, sizeof *f);
    if (!f) return rad_fail(err, RAD_E_NOMEM, "runner_fake: no memory");
    f->env = full;
    f->base.ops = p.chooses ? &choosing_ops : &fake_ops;
    f->base.info = (runner_info){.vocab_size = p.vocab_size,
                                 .context_length = p.context_length,
                                 .num_layers = p.window && !p.window_only ? 2 : 1,
                                 .window_layers = p.window ? 1 : 0,
                                 .sliding_window = p.window,
                                 .num_kv_heads = 1,
                                 .head_dim = p.mla ? 2 * VALUE_BYTES : VALUE_BYTES,
                                 .v_head_dim = VALUE_BYTES,
                                 .kv_dtype = p.kv_dtype,
                                 .hidden_dim = RUNNER_FAKE_HIDDEN,
                                 .state_layers = p.states ? 1 : 0,
                                 .state_bytes = p.states ? sizeof(fake_state) : 0,
                                 .num_threads = 1};
    f->base.info = runner_with_token_bytes(f->base.info);
    f->mla = p.mla;
    f->states = p.states;
    f->device = p.device;
    if (!p.device && device_guarded_asked()) {
        device_guarded_init(&f->guarded);
        f->device = &f->guarded.base;
    }
    f->max_batch_logits = p.max_batch_logits;
    f->fail_every = p.fail_every;
    f->full = !p.window || !p.window_only;
    f->logits_bytes = rad_mul(rad_mul(p.max_batch_logits, p.vocab_size), sizeof(float));
    f->logits = rad_alloc(&full, f->logits_bytes);
    if (p.chooses) {
        f->digests = rad_alloc(&full, p.max_batch_logits * sizeof *f->digests);
        f->scratch = rad_alloc(&full, scratch_bytes(f));
    }
    if (!f->logits || (p.chooses && (!f->digests || !f->scratch))) {
        fake_destroy(&f->base);
        return rad_fail(err, RAD_E_NOMEM, "runner_fake: no memory for %u rows of %u logits",
                        p.max_batch_logits, p.vocab_size);
    }
    *out = &f->base;
    return RAD_OK;
}

rad_token runner_fake_next_of(const runner_fake_params *params, const rad_token *tokens,
                              uint32_t num_tokens)
{
    const uint32_t window = params->window, vocab_size = params->vocab_size;
    const bool full = !window || !params->window_only;
    uint64_t far = 0, near = 0;
    fake_state state = {0};
    uint64_t *seen_near = window ? calloc(num_tokens, sizeof *seen_near) : NULL;
    RAD_ASSERT(!window || seen_near);
    for (uint32_t p = 0; p < num_tokens; p++) {
        if (window && p >= window) near -= seen_near[p - window]; /* what p sees no more */
        if (params->states) advance(&state, tokens[p]);
        uint64_t value = value_of(tokens[p], p, joined(far, near) + of_state(&state));
        if (full) far += seen(p, value, mix64(value));
        if (!window) continue;
        seen_near[p] = seen(p, near_value(value), mix64(near_value(value)));
        near += seen_near[p];
    }
    free(seen_near);
    uint64_t digest = joined(far, near) + of_state(&state);
    uint32_t best = 0;
    for (uint32_t id = 1; id < vocab_size; id++)
        if (logit_of(digest, id) > logit_of(digest, best)) best = id;
    return (rad_token)best;
}

rad_token runner_fake_next(uint32_t vocab_size, const rad_token *tokens, uint32_t num_tokens)
{
    const runner_fake_params plain = {.vocab_size = vocab_size};
    return runner_fake_next_of(&plain, tokens, num_tokens);
}

void runner_fake_values(const rad_token *tokens, uint32_t num_tokens, uint64_t *values)
{
    uint64_t digest = 0;
    for (uint32_t p = 0; p < num_tokens; p++) {
        values[p] = value_of(tokens[p], p, digest);
        digest += seen(p, values[p], mix64(values[p]));
    }
}
