/* next_token.c - from a request's logits to its next token, and how likely it was.
 *
 * Logprobs are few requests' wish and of unknown length, so they are the one thing in a
 * step that takes memory: as much as one output needs, given back by who receives it. */
#include "sched/scheduler_impl.h"

rad_token choose_token(scheduler *s, req *r, const float *logits)
{
    uint32_t vocab_size = s->params.runner->info.vocab_size, position = req_num_fill(r);
    /* The position makes the draw the same however the request was batched. */
    rad_token token = sampler_next(logits, vocab_size, &r->sampling, r->fill_ids + r->num_input,
                                   r->num_output, position, s->sample_scratch);
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
