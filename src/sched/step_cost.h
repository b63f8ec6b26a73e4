/* step_cost.h - what a step will take, learned from the steps before.
 *
 * It may not experiment and must answer at once, so it knows only what happened to run. To price
 * steps that have run, and to bound what is possible at all, there are workload/step_price.h
 * and cli/bench_bound.h.
 *
 *     ns = a + b * decoding requests + c * prompt tokens + d * (query, key) pairs
 *          + e * prompts that end + f * rows of drafts (draft.h)
 *
 * Pairs are attention: they are why the prompt tokens that fit into a step grow fewer with
 * their context. A prompt that ends costs a row of logits and a sampled token, which is all
 * that a burst of cached prompts costs. The six are found by least squares over all steps, older
 * ones counting less (a machine that others use too changes). --max-itl-ms asks it how many prompt
 * tokens a step may take so that the requests decoding beside them are not kept waiting longer. */
#ifndef SCHED_STEP_COST_H
#define SCHED_STEP_COST_H

#include "sched/least_squares.h"

enum { STEP_COST_TERMS = 6 };

typedef struct step_cost {
    least_squares ls;            /* ns per unit of a scaled term */
    uint32_t most_prompt_tokens; /* in a step that was seen */
    uint32_t most_prompt_ends;   /* likewise */
    bool drafts_seen;            /* the last term's covariance has begun */
} step_cost;

typedef struct step_work {
    uint32_t num_decodes;
    uint32_t prompt_tokens;
    uint32_t prompt_ends; /* prompts whose last token is among them, if an answer follows; and
                           * tokens whose logprobs are wanted */
    uint32_t draft_rows;
    double pairs;       /* of a new token and a position it sees, all requests */
    double draft_pairs; /* of these, such as drafts see */
} step_work;

void step_cost_init(step_cost *c);
void step_cost_observe(step_cost *c, const step_work *work, double ns);
double step_cost_ns(const step_cost *c, const step_work *work);

/* Pairs of `tokens` new tokens behind `context` positions. */
static inline double step_pairs(uint32_t context, uint32_t tokens)
{
    return (double)tokens * ((double)context + 0.5 * ((double)tokens + 1));
}

/* How many prompt tokens behind `context` positions fit into `ns`; `sampled`: with a row of
 * logits each. */
uint32_t step_cost_fit(const step_cost *c, uint32_t context, bool sampled, double ns);

/* What prompt tokens add to a step, and what the end of a prompt adds to that. */
double step_cost_prompt_ns(const step_cost *c, uint32_t context, uint32_t tokens);
double step_cost_prompt_end_ns(const step_cost *c);

/* Prompt tokens, and ends of prompts, that a step may take as far as anything is known: what
 * was seen, doubled. */
uint32_t step_cost_trusted_tokens(const step_cost *c);
uint32_t step_cost_trusted_ends(const step_cost *c);

#endif
