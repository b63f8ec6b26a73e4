/* simulate.h - plays a trace through libradish itself, indices only.
 *
 * For each request, one at a time: match the prompt, lock what was found, evict what
 * prompt and output are short of, allocate, insert both, give the rest back, unlock. */
#ifndef REPLAY_SIMULATE_H
#define REPLAY_SIMULATE_H

#include <radish/evict_policy.h>

#include "replay/trace.h"

typedef struct simulate_params {
    const char *policy; /* NULL: what eviction.policy says */
    uint32_t page_size; /* in elements; 0 means 1 */
    uint32_t reserved;
    uint64_t capacity_elements;    /* of the pool; whole pages are used */
    rad_eviction_options eviction; /* its cost_attention_tokens in tokens, whatever an element is */
} simulate_params;

typedef struct simulate_result { /* one cell of the report */
    uint64_t requests;
    uint64_t too_large;     /* did not fit the pool even alone: matched, not inserted */
    uint64_t prompt_blocks; /* pages of all prompts, the last one may be partial */
    uint64_t prompt_tokens;
    uint64_t hit_blocks;
    uint64_t hit_tokens;
    uint64_t evicted_elements;
    double prompt_cost; /* of computing all prompts, where a token at position p costs */
    double hit_cost;    /* 1 + p / cost_attention_tokens; and what the hits saved of it */
    double seconds;     /* of the simulation alone */
} simulate_result;

/* RAD_E_INVAL when the capacity is below one page or there is no such policy; RAD_E_NOMEM. */
rad_status simulate(const rad_env *env, trace *t, const simulate_params *params,
                    simulate_result *result, rad_error *err);

#endif
