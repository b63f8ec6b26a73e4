/* next_token.c - from a request's logits to its next token, and how likely it was.
 *
 * A draw from 152,000 logits takes most of a millisecond, so the rows of a step are spread
 * over the threads that have just computed them. A token is a function of its own row, so
 * nothing depends on who draws it.
 *
 * Logprobs are few requests' wish and of unknown length, so they are the one thing in a
 * step that takes memory: as much as one output needs, given back by who receives it. */
#include "sched/scheduler_impl.h"

typedef struct sample_rows {
    scheduler *s;
    const float *logits;
} sample_rows;

static void sample_row(void *arg, uint32_t row, uint32_t thread)
{
    const sample_rows *a = arg;
    scheduler *s = a->s;
    const req *r = s->batch.reqs[s->batch.logits_reqs[row]];
    uint32_t vocab_size = s->params.runner->info.vocab_size;
    /* The position makes the draw the same however the request was batched. */
    s->next_tokens[row] =
        sampler_next(a->logits + (size_t)row * vocab_size, vocab_size, &r->sampling,
                     r->fill_ids + r->num_input, r->num_output, req_num_fill(r),
                     s->sample_scratch + thread * sampler_scratch_bytes(vocab_size));
}

void sample_batch(scheduler *s, const float *logits)
{
    sample_rows arg = {s, logits};
    compute_pool *pool = s->batch.num_logits > 1 ? s->params.pool : NULL;
    compute_pool_run(pool, s->batch.num_logits, sample_row, &arg);
}

rad_token accept_token(scheduler *s, req *r, const float *logits, rad_token token)
{
    uint32_t vocab_size = s->params.runner->info.vocab_size, position = req_num_fill(r);
    if (token < 0) { /* appended, it would fail the next step for everybody in it */
        rad_fail(&r->error, RAD_E_CORRUPT, "the model's logits after %u tokens are not numbers",
                 position);
        return -1;
    }
    if (!r->sampling.logprobs) return token;
    r->logprobs = rad_alloc(&s->env, req_logprobs_bytes(&r->sampling));
    if (!r->logprobs) {
        rad_fail(&r->error, RAD_E_NOMEM, "no memory for %u logprobs",
                 r->sampling.num_top_logprobs + 1);
        return -1;
    }
    sampler_logprobs(logits, vocab_size, token, r->sampling.num_top_logprobs, r->logprobs);
    return token;
}
