/* next_token.c - from a request's logits to its next token, and how likely it was.
 *
 * A runner that samples has done so where its logits are, with whatever threads it has; for one
 * that does not, it is done here. Then the logits are only asked of it where somebody looks at
 * them: on a GPU that is a copy of 0.6 MB a row.
 *
 * Logprobs are few requests' wish and of unknown length, so they are the one thing in a
 * step that takes memory: as much as one output needs, given back by who receives it. Those of a
 * prompt go out chunk by chunk, so that no logits wait for the rest of it. */
#include "sched/scheduler_impl.h"

#include <math.h>

static const req *req_of_row(const scheduler *s, uint32_t row)
{
    return s->batch.reqs[s->batch.logits_reqs[row]];
}

/* Drafts of the row's request that stand before the token which is chosen from it. */
static uint32_t drafts_before(const scheduler *s, uint32_t row)
{
    const schedule_batch *b = &s->batch;
    const uint32_t i = b->logits_reqs[row];
    const uint32_t last = b->extend_start_loc[i] + b->extend_seq_lens[i] - 1;
    return b->num_drafts[i] - (last - b->logits_indices[row]);
}

bool wants_logits(const scheduler *s)
{
    if (!s->params.runner->ops->sample) return true;
    for (uint32_t row = 0; row < s->batch.num_logits; row++) {
        const req *r = req_of_row(s, row);
        if (r->sampling.logprobs || !schedule_batch_chooses(&s->batch, row) ||
            verify_notes(&s->verify, r))
            return true;
    }
    return false;
}

void begin_masks(scheduler *s)
{
    rule_masks_clear(&s->masks);
    for (uint32_t row = 0, rows; row < s->batch.num_logits; row += rows) {
        const req *r = req_of_row(s, row);
        rows = 1;
        if (!schedule_batch_chooses(&s->batch, row)) continue;
        rows += r->draft.count;
        if (!r->rule) continue;
        rule_masks_add(&s->masks, (mask_job){.rule = r->rule,
                                             .drafts = r->fill_ids + req_num_fill(r),
                                             .num_drafts = r->draft.count,
                                             .row = row});
        s->stats.masks += rows;
    }
    rule_masks_begin(&s->masks);
}

void wait_for_masks(scheduler *s)
{
    if (!s->masks.num_jobs) return;
    uint64_t start = s->env.now_ns(s->env.user);
    s->stats.mask_ns += rule_masks_wait(&s->masks);
    s->stats.mask_wait_ns += s->env.now_ns(s->env.user) - start;
}

/* A row of which nothing may be said has no bit: no token comes of it, and accept_token says why.
 */
static const uint32_t *allowed_bits(scheduler *s, uint32_t row)
{
    uint32_t *bits = rule_masks_bits(&s->masks, row);
    if (rule_masks_kind(&s->masks, row) == TOKEN_MASK_NONE)
        memset(bits, 0, s->masks.words * sizeof *bits);
    return bits;
}

rad_status sample_batch(scheduler *s, const float *logits, rad_error *err)
{
    runner *run = s->params.runner;
    uint32_t vocab_size = run->info.vocab_size, num_rows = s->batch.num_logits;
    for (uint32_t row = 0; row < num_rows; row++) {
        const req *r = req_of_row(s, row);
        s->samples[row] = (runner_sample){0};
        if (!schedule_batch_chooses(&s->batch, row)) continue;
        const uint32_t before = drafts_before(s, row);
        /* The position makes the draw the same however the request was batched. */
        s->samples[row] = (runner_sample){.params = &r->sampling,
                                          .output = r->fill_ids + r->num_input,
                                          .num_output = r->num_output + before,
                                          .position = req_num_fill(r) + before};
        if (r->rule && rule_masks_kind(&s->masks, row) != TOKEN_MASK_ALL)
            s->samples[row].allowed = allowed_bits(s, row);
    }
    if (run->ops->sample) /* 0 rows: a chunk that no token follows */
        return num_rows ? run->ops->sample(run, s->samples, num_rows, s->next_tokens, err) : RAD_OK;
    for (uint32_t row = 0; row < num_rows; row++) {
        const runner_sample *a = &s->samples[row];
        if (!a->params) continue;
        s->next_tokens[row] = sampler_next(logits + (size_t)row * vocab_size, vocab_size, a->params,
                                           a->output, a->num_output, a->position, a->allowed,
                                           s->sample_scratch);
    }
    return RAD_OK;
}

rad_token accept_token(scheduler *s, req *r, uint32_t row, const float *logits)
{
    uint32_t vocab_size = s->params.runner->info.vocab_size, position = req_num_fill(r);
    rad_token token = r->num_output < r->num_told ? r->told[r->num_output] : s->next_tokens[row];
    if (r->rule && rule_masks_kind(&s->masks, row) == TOKEN_MASK_NONE) {
        const char *why = r->rule->ops->problem ? r->rule->ops->problem(r->rule) : NULL;
        rad_fail(&r->error, RAD_E_STATE, "after %u tokens of the answer none may follow: %s",
                 r->num_output, why ? why : "no token of the vocabulary has the form asked for");
        return -1;
    }
    if (token < 0) { /* appended, it would fail the next step for everybody in it */
        rad_fail(&r->error, RAD_E_CORRUPT, "the model's logits after %u tokens are not numbers",
                 position);
        return -1;
    }
    if ((uint32_t)token >= vocab_size) { /* a runner that samples is not believed */
        rad_fail(&r->error, RAD_E_CORRUPT, "token %d was chosen, the vocabulary has %u", token,
                 vocab_size);
        return -1;
    }
    if (r->rule && !r->rule->ops->accept(r->rule, token)) { /* nor one that is handed a mask */
        rad_fail(&r->error, RAD_E_CORRUPT, "token %d was chosen, which the request does not allow",
                 token);
        return -1;
    }
    if (!r->sampling.logprobs) return token;
    r->logprobs = rad_alloc(&s->env, req_logprobs_bytes(&r->sampling, 1));
    if (!r->logprobs) {
        rad_fail(&r->error, RAD_E_NOMEM, "no memory for %u logprobs",
                 r->sampling.num_top_logprobs + 1);
        return -1;
    }
    sampler_logprobs(logits, vocab_size, token, &r->sampling, r->logprobs);
    return token;
}

/* The first position has no logits behind another one. */
static void put_first(const req *r, token_logprob *to)
{
    for (size_t i = 0; i < sampler_num_logprobs(&r->sampling); i++)
        to[i] = (token_logprob){-1, -INFINITY};
    *to = (token_logprob){r->fill_ids[r->prompt_logprobs_from], NAN};
}

bool take_prompt_rows(scheduler *s, req *r, const float *logits, uint32_t rows)
{
    const uint32_t end = req_end_of_rows(r), from = r->next_row;
    const bool first = from == r->prompt_logprobs_from && from < r->kv.committed_len;
    const size_t each = sampler_num_logprobs(&r->sampling);
    if (r->prompt_logprobs && rows + first) {
        token_logprob *to = rad_alloc(&s->env, req_logprobs_bytes(&r->sampling, rows + first));
        if (!to) {
            rad_fail(&r->error, RAD_E_NOMEM, "no memory for the logprobs of %u tokens", rows);
            return false;
        }
        r->new_prompt_logprobs = to;
        r->num_prompt_logprobs = rows + first;
        if (first) put_first(r, to);
        for (uint32_t i = 0; i < rows; i++) /* what stands behind a position is of the next token */
            sampler_logprobs(logits + (size_t)i * s->params.runner->info.vocab_size,
                             s->params.runner->info.vocab_size, r->fill_ids[from + i + 1],
                             &r->sampling, to + (i + first) * each);
    }
    if (from < r->kv.committed_len) r->next_row = from + rows < end ? from + rows : UINT32_MAX;
    return true;
}
