/* sampler_next.c - what stands before and beside the choice: masks, penalties, bias, logprobs.
 *
 * Penalties need to know how often each token was said. That is counted anew at each step
 * from the output itself, in scratch that nobody has to clear: no table per request that a
 * retraction could leave wrong, and less work than attention spends on the same tokens.
 *
 *     scratch   | counts (first 4 bytes per token), later the sampler's | changed logits | */
#include "base/base.h"
#include "model/ops.h"
#include "model/sampler.h"

#include <math.h>

enum { BLOCK = 256 };

bool sampling_has_penalties(const sampling_params *p)
{
    return (p->repetition_penalty != 0 && p->repetition_penalty != 1) || p->presence_penalty != 0 ||
           p->frequency_penalty != 0;
}

static float penalised(const sampling_params *p, float logit, uint32_t count)
{
    logit -= p->presence_penalty + p->frequency_penalty * (float)count;
    if (p->repetition_penalty == 0) return logit;
    return logit > 0 ? logit / p->repetition_penalty : logit * p->repetition_penalty;
}

/* counts is not initialised: only the entries of tokens in the output are ever used. */
static void apply_penalties(float *logits, const sampling_params *p, const rad_token *output,
                            uint32_t num_output, uint32_t *counts)
{
    for (uint32_t i = 0; i < num_output; i++)
        counts[output[i]] = 0;
    for (uint32_t i = 0; i < num_output; i++)
        counts[output[i]]++;
    for (uint32_t i = 0; i < num_output; i++) {
        uint32_t *count = &counts[output[i]];
        if (*count) logits[output[i]] = penalised(p, logits[output[i]], *count);
        *count = 0; /* once for each token */
    }
}

/* Whole words are mostly alike: nearly nothing is allowed, or nearly everything. */
static void copy_allowed(float *own, const float *logits, uint32_t vocab_size,
                         const uint32_t *allowed)
{
    for (uint32_t first = 0; first < vocab_size; first += 32) {
        const uint32_t bits = allowed[first / 32], n = RAD_MIN(32u, vocab_size - first);
        if (bits == UINT32_MAX) {
            memcpy(own + first, logits + first, n * sizeof *own);
            continue;
        }
        for (uint32_t i = 0; i < n; i++)
            own[first + i] = -INFINITY;
        for (uint32_t left = bits; left; left &= left - 1) {
            const uint32_t i = (uint32_t)__builtin_ctz(left);
            if (i < n) own[first + i] = logits[first + i];
        }
    }
}

/* Which token the `index`th is that is allowed. */
static rad_token nth_allowed(const uint32_t *allowed, uint32_t index)
{
    for (uint32_t word = 0;; word++) {
        const uint32_t n = (uint32_t)__builtin_popcount(allowed[word]);
        uint32_t left = allowed[word];
        if (index >= n) {
            index -= n;
            continue;
        }
        while (index--)
            left &= left - 1;
        return (rad_token)(word * 32 + (uint32_t)__builtin_ctz(left));
    }
}

/* The first that is allowed, of those whose logits are numbers. */
static rad_token first_allowed(const float *logits, uint32_t vocab_size, const uint32_t *allowed)
{
    for (uint32_t id = 0; id < vocab_size; id++)
        if (allowed[id / 32] >> id % 32 & 1 && !isnan(logits[id])) return (rad_token)id;
    return -1;
}

/* The likeliest that is allowed, the smallest id among equals. What is allowed of a block is looked
 * at where it was just read. */
static rad_token best_allowed(const float *logits, uint32_t vocab_size, const uint32_t *allowed)
{
    enum { MANY = 1024 };
    const model_ops *ops = model_ops_find(NULL);
    float max = -INFINITY, some[MANY];
    uint32_t from = vocab_size;
    for (uint32_t first = 0; first < vocab_size; first += MANY) {
        const uint32_t n = RAD_MIN((uint32_t)MANY, vocab_size - first);
        const float most = ops->max(some, ops->pick(some, logits + first, allowed + first / 32, n));
        if (!(most > max)) continue;
        max = most;
        from = first;
    }
    for (uint32_t id = from; id < vocab_size; id++)
        if (logits[id] == max && allowed[id / 32] >> id % 32 & 1) return (rad_token)id;
    return first_allowed(logits, vocab_size, allowed);
}

rad_token sampler_next(const float *logits, uint32_t vocab_size, const sampling_params *p,
                       const rad_token *output, uint32_t num_output, uint32_t position,
                       const uint32_t *allowed, void *scratch)
{
    bool penalties = num_output && sampling_has_penalties(p), bias = p->num_bias;
    bool no_end = num_output < p->min_new_tokens && p->num_end_ids;
    if (!penalties && !bias && !no_end && !allowed)
        return sampler_sample(logits, vocab_size, p, position, scratch);

    float *own = (float *)scratch + 2 * (size_t)vocab_size;
    if (allowed && !penalties && !bias && !no_end) { /* few, mostly: others are not looked at */
        if (sampler_choice_of(p, vocab_size, position).greedy)
            return best_allowed(logits, vocab_size, allowed);
        const uint32_t count = model_ops_find(NULL)->pick(own, logits, allowed, vocab_size);
        const rad_token at = sampler_sample_some(own, count, vocab_size, p, position, scratch);
        return at >= 0 && own[at] > -INFINITY ? nth_allowed(allowed, (uint32_t)at)
                                              : first_allowed(logits, vocab_size, allowed);
    }
    if (allowed)
        copy_allowed(own, logits, vocab_size, allowed);
    else
        memcpy(own, logits, vocab_size * sizeof *own);
    if (penalties) apply_penalties(own, p, output, num_output, scratch);
    for (uint32_t i = 0; i < p->num_bias; i++)
        own[p->bias[i].id] += p->bias[i].bias;
    for (uint32_t i = 0; no_end && i < p->num_end_ids; i++)
        own[p->end_ids[i]] = -INFINITY;
    rad_token token = sampler_sample(own, vocab_size, p, position, scratch);
    if (!allowed || (token >= 0 && own[token] > -INFINITY)) return token;
    if (!no_end) return first_allowed(logits, vocab_size, allowed);
    sampling_params may_end = *p;
    may_end.min_new_tokens = 0;
    return sampler_next(logits, vocab_size, &may_end, output, num_output, position, allowed,
                        scratch);
}

/* ---- logprobs ---- */

static bool before(const token_logprob *a, float x, rad_token id)
{
    return a->logprob > x || (a->logprob == x && a->id < id);
}

/* Into a list in order, whose last falls out when it is full. */
static void keep_best(token_logprob *best, uint32_t *count, uint32_t most, rad_token id, float x)
{
    if (*count == most && before(&best[most - 1], x, id)) return;
    uint32_t at = *count < most ? (*count)++ : most - 1;
    for (; at && !before(&best[at - 1], x, id); at--)
        best[at] = best[at - 1];
    best[at] = (token_logprob){id, x};
}

void sampler_logprobs(const float *logits, uint32_t vocab_size, rad_token token,
                      const sampling_params *p, token_logprob *out)
{
    const uint32_t num_top = p->num_top_logprobs;
    const model_ops *ops = model_ops_find(NULL);
    float max = ops->max(logits, vocab_size), x[BLOCK], weight[BLOCK];
    double total = 0;
    uint32_t count = 0;
    token_logprob *best = out + 1;
    out[0] = (token_logprob){token, -INFINITY};
    for (uint32_t first = 0; first < vocab_size; first += BLOCK) {
        uint32_t n = RAD_MIN((uint32_t)BLOCK, vocab_size - first);
        ops->scale_logits(x, logits + first, max, 1, n);
        ops->exps(weight, x, n);
        for (uint32_t i = 0; i < n; i++) {
            if (isnan(x[i])) continue;
            if (x[i] > -87.0f) total += (double)weight[i]; /* exps clamps what is smaller */
            rad_token id = (rad_token)(first + i);
            if (id == token) out[0].logprob = logits[id];
            if (num_top) keep_best(best, &count, num_top, id, logits[id]);
        }
    }
    float log_total = (float)log(total);
    for (uint32_t i = 0; i < p->num_id_logprobs; i++) {
        const rad_token id = p->id_logprobs[i];
        best[num_top + i] = (token_logprob){id, isnan(logits[id]) ? -INFINITY : logits[id]};
    }
    for (uint32_t i = 0; i < sampler_num_logprobs(p); i++) {
        if (i > count && i <= num_top) { /* the vocabulary ended */
            out[i] = (token_logprob){-1, -INFINITY};
            continue;
        }
        ops->scale_logits(x, &out[i].logprob, max, 1, 1);
        out[i].logprob = x[0] - log_total;
    }
}
