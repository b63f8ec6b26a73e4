/* runner_playback.c - the pool as a tape of tokens.
 *
 * A token stores itself and a hash of all tokens up to it, 32 bits each, as eight small whole
 * numbers in K, and a hash of both in V. Reading position p back, the hash of p - 1 is known: so
 * one look says whether this slot was written for this very context.
 *
 * Invariant: contexts[row] are the tokens behind which the last forward's row of logits stands. */
#include "gear/runner_playback.h"

#include "base/base.h"
#include "base/mix64.h"
#include "model/batch_check.h"

#include <stdlib.h>

enum { VALUE_BYTES = 8, READ_AT_ONCE = 256, HIDDEN = RUNNER_PLAYBACK_HIDDEN };

typedef struct tape { /* what stands in front of a row of logits */
    rad_token *tokens;
    uint32_t len, cap;
} tape;

typedef struct runner_playback {
    runner base;
    rad_env env;
    runner_playback_params params;
    tape *contexts; /* [max_batch_logits] */
    uint32_t num_contexts;
    float *logits; /* all 0: who looks at them learns nothing */
} runner_playback;

static uint32_t chain(uint32_t before, rad_token token)
{
    return (uint32_t)mix64((uint64_t)before << 32 | (uint32_t)token);
}

static void spread(uint64_t value, float out[VALUE_BYTES])
{
    for (size_t i = 0; i < VALUE_BYTES; i++)
        out[i] = (float)((value >> (8 * i)) & 255);
}

static uint64_t gather(const float in[VALUE_BYTES])
{
    uint64_t value = 0;
    for (size_t i = 0; i < VALUE_BYTES; i++)
        value |= (uint64_t)(in[i] >= 0 && in[i] < 256 ? in[i] : 0) << (8 * i);
    return value;
}

static bool tape_push(tape *t, rad_token token)
{
    if (t->len == t->cap) {
        uint32_t cap = t->cap ? 2 * t->cap : 256;
        rad_token *tokens = realloc(t->tokens, cap * sizeof *tokens);
        if (!tokens) return false;
        t->tokens = tokens;
        t->cap = cap;
    }
    t->tokens[t->len++] = token;
    return true;
}

/* The first `count` tokens of the row onto the tape, and the hash of them. */
static rad_status read_back(rad_token_to_kv_pool *pool, const rad_slot *row, uint32_t count,
                            tape *t, uint32_t *hash, rad_error *err)
{
    float k[READ_AT_ONCE][VALUE_BYTES], v[READ_AT_ONCE][VALUE_BYTES];
    for (uint32_t p = 0; p < count; p++) {
        uint32_t i = p % READ_AT_ONCE, n = RAD_MIN(count - p, (uint32_t)READ_AT_ONCE);
        rad_status status = i ? RAD_OK : rad_kv_pool_get_kv(pool, 0, row + p, n, k[0], v[0]);
        if (status) return status;
        uint64_t value = gather(k[i]);
        *hash = chain(*hash, (rad_token)(uint32_t)value);
        if (value >> 32 != *hash || gather(v[i]) != mix64(value))
            return rad_fail(err, RAD_E_CORRUPT,
                            "playback: slot %d, position %u, was not written for this context",
                            row[p], p);
        if (!tape_push(t, (rad_token)(uint32_t)value)) return RAD_E_NOMEM;
    }
    return RAD_OK;
}

static void add_hidden(const forward_batch *b, uint32_t t, rad_token token)
{
    for (uint32_t i = 0; i < b->num_pools; i++) {
        const forward_pool *p = &b->pools[i];
        for (uint32_t d = 0; t >= p->first && t - p->first < p->count && d < HIDDEN; d++)
            p->sum[d] += (uint32_t)token >> d & 1;
    }
}

static rad_status run_request(runner_playback *f, const forward_batch *b, uint32_t r,
                              rad_error *err)
{
    uint32_t prefix = b->extend_prefix_lens[r], start = b->extend_start_loc[r], hash = 0;
    const rad_slot *row = rad_req_to_token_row(b->req_to_token_pool, b->req_pool_indices[r]);
    tape t = {0};
    rad_status status = read_back(b->token_to_kv_pool, row, prefix, &t, &hash, err);
    for (uint32_t i = 0; i < b->extend_seq_lens[r] && !status; i++) {
        rad_token token = b->input_ids[start + i];
        float k[VALUE_BYTES], v[VALUE_BYTES];
        hash = chain(hash, token);
        uint64_t value = (uint64_t)hash << 32 | (uint32_t)token;
        spread(value, k);
        spread(mix64(value), v);
        rad_kv_pool_set_kv_buffer(b->token_to_kv_pool, 0, &row[prefix + i], 1, k, v);
        add_hidden(b, start + i, token);
        if (!tape_push(&t, token)) status = RAD_E_NOMEM;
        if (f->num_contexts == b->num_logits || b->logits_indices[f->num_contexts] != start + i ||
            status)
            continue;
        tape *to = &f->contexts[f->num_contexts++];
        to->len = 0;
        for (uint32_t p = 0; p < t.len && !status; p++)
            if (!tape_push(to, t.tokens[p])) status = RAD_E_NOMEM;
    }
    free(t.tokens);
    return status;
}

static rad_status playback_forward(runner *self, const forward_batch *batch, const float **logits,
                                   rad_error *err)
{
    runner_playback *f = (runner_playback *)self;
    rad_status status =
        batch_check(&self->info, batch, UINT32_MAX, f->params.max_batch_logits, err);
    f->num_contexts = 0;
    for (uint32_t r = 0; r < batch->num_reqs && !status; r++)
        status = run_request(f, batch, r, err);
    if (logits) *logits = f->logits;
    return status;
}

/* What is not allowed is not said, whatever was to be said: the first token that is instead. */
static rad_token allowed_or_first(const runner_playback *f, const uint32_t *allowed,
                                  rad_token token)
{
    if (token >= 0 && allowed[token / 32] >> token % 32 & 1) return token;
    for (uint32_t id = 0; id < f->params.vocab_size; id++)
        if (allowed[id / 32] >> id % 32 & 1) return (rad_token)id;
    return -1;
}

static rad_status playback_sample(runner *self, const runner_sample *rows, uint32_t num_rows,
                                  rad_token *tokens, rad_error *err)
{
    runner_playback *f = (runner_playback *)self;
    for (uint32_t i = 0; i < num_rows; i++) {
        const tape *t = &f->contexts[i];
        if (!rows[i].params) continue;
        if (i >= f->num_contexts || rows[i].num_output > t->len)
            return rad_fail(err, RAD_E_INVAL, "playback: row %u is of no forward", i);
        uint32_t num_prompt = t->len - rows[i].num_output;
        tokens[i] = f->params.choose(f->params.user, t->tokens, num_prompt, t->tokens + num_prompt,
                                     rows[i].num_output);
        if (rows[i].allowed) tokens[i] = allowed_or_first(f, rows[i].allowed, tokens[i]);
    }
    return RAD_OK;
}

static rad_status playback_create_pool(runner *self, const rad_env *env,
                                       const runner_pool_params *params, rad_token_to_kv_pool **out,
                                       rad_error *err)
{
    return runner_make_pool(&self->info, NULL, env, params, out, err);
}

static void playback_destroy(runner *self)
{
    runner_playback *f = (runner_playback *)self;
    rad_env env = f->env;
    const runner_playback_params p = f->params;
    for (uint32_t i = 0; f->contexts && i < p.max_batch_logits; i++)
        free(f->contexts[i].tokens);
    rad_free(&env, f->contexts, p.max_batch_logits * sizeof *f->contexts);
    rad_free(&env, f->logits, (size_t)p.max_batch_logits * p.vocab_size * sizeof *f->logits);
    rad_free(&env, f, sizeof *f);
    if (p.destroy) p.destroy(p.user);
}

static const runner_ops playback_ops = {.forward = playback_forward,
                                        .create_pool = playback_create_pool,
                                        .destroy = playback_destroy,
                                        .sample = playback_sample};

rad_status runner_playback_create(const rad_env *env, const runner_playback_params *params,
                                  runner **out, rad_error *err)
{
    rad_env full = rad_env_or_default(env);
    runner_playback *f = rad_alloc(&full, sizeof *f);
    *out = NULL;
    if (!f) {
        if (params->destroy) params->destroy(params->user);
        return rad_fail(err, RAD_E_NOMEM, "playback: no memory");
    }
    f->env = full;
    f->params = *params;
    f->base.ops = &playback_ops;
    f->base.info = runner_with_token_bytes((runner_info){.vocab_size = params->vocab_size,
                                                         .context_length = params->context_length,
                                                         .num_layers = 1,
                                                         .hidden_dim = HIDDEN,
                                                         .num_kv_heads = 1,
                                                         .head_dim = VALUE_BYTES,
                                                         .v_head_dim = VALUE_BYTES,
                                                         .kv_dtype = RAD_F32,
                                                         .num_threads = 1});
    f->contexts = rad_alloc(&full, params->max_batch_logits * sizeof *f->contexts);
    f->logits =
        rad_alloc(&full, (size_t)params->max_batch_logits * params->vocab_size * sizeof *f->logits);
    if (!f->contexts || !f->logits) {
        playback_destroy(&f->base);
        return rad_fail(err, RAD_E_NOMEM, "playback: no memory");
    }
    *out = &f->base;
    return RAD_OK;
}
