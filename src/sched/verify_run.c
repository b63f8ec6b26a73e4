/* verify_run.c - one request, cold and alone, chunk by chunk.
 *
 * Rows of logits are compared in ascending order, so the first that differs is the first
 * that was wrong: what comes after it was drawn from another context. */
#include "sched/verify_run.h"

void verify_release(scheduler *s)
{
    verifier *v = &s->verify;
    if (!v->kv.row) return;
    rad_error err;
    if (rad_cache_finished_req(s->pools.tree_cache, &v->kv, false, &err) < 0) {
        s->stats.kv_errors++;
        rad_log(&s->env, RAD_LOG_ERROR, "verify: giving pages back: %s", err.text);
    }
    memset(&v->kv, 0, sizeof v->kv);
    v->next = 0;
}

static verify_record *take_first(verifier *v)
{
    verify_record *record = v->first;
    v->first = record->next;
    if (!v->first) v->last = NULL;
    record->next = NULL;
    return record;
}

/* The first in the queue is done with. */
static void end_first(scheduler *s)
{
    verifier *v = &s->verify;
    verify_release(s);
    verify_free(v, take_first(v));
    v->stats.num_pending--;
}

kv_pages verify_held_pages(const scheduler *s)
{
    const rad_req_kv *kv = &s->verify.kv;
    kv_pages held = {.full = pages_for(0, kv->allocated_len, s->pools.page_size)};
    if (s->pools.window.tokens) held.window = window_held_pages(&s->pools.window, kv);
    held.states = state_held(kv);
    return held;
}

bool verify_yield(scheduler *s)
{
    verifier *v = &s->verify;
    if (!v->kv.allocated_len && !v->kv.state) return false; /* a row alone is in nobody's way */
    rad_log(&s->env, RAD_LOG_DEBUG,
            "verify: request %llu gives its %u tokens of K/V up to others and is verified later",
            (unsigned long long)v->first->arrival, v->kv.allocated_len);
    verify_release(s);
    v->stats.num_given_up++;
    verify_queue(v, take_first(v));
    return true;
}

static bool begin(scheduler *s, const verify_record *record)
{
    rad_row row;
    if (rad_req_to_token_alloc(s->pools.req_to_token_pool, &row) != RAD_OK) return false;
    s->verify.kv =
        (rad_req_kv){.row = row, .key = {.tokens = record->ids, .num_tokens = record->num_ids}};
    s->verify.next = 0;
    window_row_changed(&s->pools.window, row, 0);
    return true;
}

/* One request of `num_tokens` more tokens as a batch, in the arrays of the scheduler's own,
 * which nobody uses now. */
static bool prepare(scheduler *s, const verify_record *record, uint32_t num_tokens,
                    forward_batch *out, rad_error *err)
{
    schedule_batch *b = &s->batch;
    rad_req_kv *kv = &s->verify.kv;
    rad_slot *row = rad_req_to_token_row(s->pools.req_to_token_pool, kv->row);
    uint32_t prefix = kv->allocated_len;
    const state_memory *states = &s->pools.states;
    /* The last step's: where its hidden states went is a request's, which may be gone. */
    schedule_batch_clear(b);
    b->extend_prefix_lens[0] = prefix;
    b->extend_seq_lens[0] = num_tokens;
    b->extend_start_loc[0] = 0;
    b->seq_lens[0] = prefix + num_tokens;
    b->req_pool_indices[0] = kv->row;
    b->last_loc[0] = prefix ? row[prefix - 1] : -1;
    if (states->pool && !kv->state && !state_take(states, s->pools.tree_cache, &kv->state)) {
        rad_fail(err, RAD_FULL, "no state is free");
        return false;
    }
    if (!evict_until_free(&s->pools, pages_for(prefix, num_tokens, s->pools.page_size), err) ||
        rad_kv_alloc_extend(s->pools.kv_allocator, 1, b->extend_prefix_lens, b->seq_lens,
                            b->last_loc, b->out_cache_loc, err) != RAD_OK)
        return false;
    if (states->pool)
        state_begin_step(states, s->pools.tree_cache, kv, 0, false, b->state_in, b->state_out);
    kv->allocated_len = prefix + num_tokens;
    memcpy(row + prefix, b->out_cache_loc, num_tokens * sizeof *row);
    window_row_extend(&s->pools.window, s->pools.kv_allocator, kv->row, row, prefix,
                      kv->allocated_len, b->window_out_cache_loc);
    memcpy(b->input_ids, record->ids + prefix, num_tokens * sizeof *b->input_ids);
    for (uint32_t i = 0; i < num_tokens; i++) {
        b->positions[i] = prefix + i;
        if (prefix + i + 1 >= record->num_input) b->logits_indices[b->num_logits++] = i;
    }
    *out = schedule_batch_forward(b, &s->pools, 1, num_tokens);
    return true;
}

/* Tokens of the next chunk: as many logits as a batch may have, and not across the place
 * where the logits begin, so that the rest of the prompt needs none. */
static uint32_t chunk_of(const scheduler *s, const verify_record *record, uint32_t max_tokens)
{
    uint32_t done = s->verify.kv.committed_len;
    uint32_t end = record->num_input - 1 + record->num_digests;
    uint32_t tokens = RAD_MIN(end - done, RAD_MIN((uint32_t)VERIFY_CHUNK, max_tokens));
    tokens = RAD_MIN(tokens, s->batch.max_tokens);
    if (done + 1 < record->num_input) return RAD_MIN(tokens, record->num_input - 1 - done);
    return RAD_MIN(tokens, s->batch.max_reqs);
}

/* False at the first difference. */
static bool compare(scheduler *s, const verify_record *record, const float *logits)
{
    verifier *v = &s->verify;
    uint32_t vocab_size = s->params.runner->info.vocab_size;
    for (uint32_t i = 0; i < s->batch.num_logits; i++, v->next++) {
        const float *row = logits + (size_t)i * vocab_size;
        if (verify_digest(row, vocab_size) == record->digests[v->next]) continue;
        const sampling_params greedy = {.top_p = 1};
        rad_log(&s->env, RAD_LOG_ERROR,
                "verify: request %llu (%u prompt tokens) computed alone and without the cache has "
                "other logits from output %u on (it was %d; the likeliest is %d now)",
                (unsigned long long)record->arrival, record->num_input, v->next,
                record->num_input + v->next < record->num_ids
                    ? record->ids[record->num_input + v->next]
                    : -1,
                sampler_sample(row, vocab_size, &greedy, 0, NULL));
        return false;
    }
    return true;
}

/* One chunk of the first in the queue. */
static void run_chunk(scheduler *s, uint32_t max_tokens)
{
    verifier *v = &s->verify;
    verify_record *record = v->first;
    forward_batch batch;
    const float *logits = NULL;
    rad_error err = {0};
    bool ok = (v->kv.row || begin(s, record)) &&
              prepare(s, record, chunk_of(s, record, max_tokens), &batch, &err);
    if (!ok && !scheduler_is_idle(s)) { /* those that run need the memory: another time */
        if (!verify_yield(s)) verify_release(s);
        return;
    }
    ok = ok && runner_forward(s->params.runner, &batch, &logits, &err) == RAD_OK;
    if (!ok) {
        rad_log(&s->env, RAD_LOG_WARN, "verify: request %llu is not verified: %s",
                (unsigned long long)record->arrival, err.text[0] ? err.text : "no row");
        v->stats.num_skipped++;
        end_first(s);
        return;
    }
    v->kv.committed_len = v->kv.allocated_len;
    state_end_step(&s->pools.states, &v->kv, v->kv.state, v->kv.committed_len);
    release_window(s, NULL, &v->kv);
    bool same = compare(s, record, logits);
    if (same && v->next < record->num_digests) return;
    v->stats.num_verified++;
    v->stats.num_mismatches += !same;
    end_first(s);
}

bool verify_idle_step(scheduler *s)
{
    if (!s->verify.first) return false;
    run_chunk(s, VERIFY_CHUNK);
    return true;
}

/* What decodes in the next step: also who ended its prompt in this one, and was handed a token. */
static step_work next_decodes(const scheduler *s)
{
    step_work work = {0};
    for (uint32_t i = 0; i < s->num_running; i++) {
        if (s->running[i]->state != REQ_DECODE) continue;
        work.num_decodes++;
        work.pairs += step_pairs(s->running[i]->kv.committed_len, 1);
    }
    return work;
}

void verify_busy_step(scheduler *s)
{
    verifier *v = &s->verify;
    v->busy_ns = 0;
    if (!v->first || ++v->busy_steps < VERIFY_EVERY) return;
    uint32_t max_tokens = VERIFY_CHUNK;
    step_work decodes = next_decodes(s), nothing = {0};
    if (s->params.max_itl_ns && decodes.num_decodes) { /* half of what the next step has left */
        double ns = itl_left_ns(s, &decodes) / 2 - step_cost_ns(&s->cost, &nothing);
        bool sampled = v->kv.committed_len + 1 >= v->first->num_input; /* see chunk_of */
        uint32_t fit = step_cost_fit(&s->cost, v->kv.committed_len, sampled, ns);
        max_tokens = RAD_MIN(max_tokens, RAD_MIN(fit, step_cost_trusted_tokens(&s->cost)));
        if (!max_tokens) return;
    }
    v->busy_steps = 0;
    uint64_t start = s->env.now_ns(s->env.user);
    run_chunk(s, max_tokens);
    v->busy_ns = s->env.now_ns(s->env.user) - start;
}
