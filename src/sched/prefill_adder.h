/* prefill_adder.h - may one more request start now?
 *
 * Each needs states of its own where there are recurrent layers. All else is in pages, on both
 * sides where there is window memory: a request takes a window page with each page, but gives those
 * back that its window has passed, so that between two steps it holds a window's at most; beside
 * what the running ones will hold so, room for a chunk stays. What can be had is free + evictable;
 * what is spoken for is what the running requests will still take: the rest of their prompts for
 * certain, and of the tokens they may still generate a part (new_token_ratio), since most end
 * before their limit. Too high a ratio runs few requests at a time; too low a one ends in
 * retractions, after which the ratio goes up. */
#ifndef SCHED_PREFILL_ADDER_H
#define SCHED_PREFILL_ADDER_H

#include "sched/schedule_batch.h"
#include "sched/step_cost.h"

enum { CLIP_MAX_NEW_TOKENS = 4096 }; /* nobody reserves for more than so many tokens */

typedef struct prefill_adder {
    const schedule_pools *pools;
    schedule_batch *batch;
    uint32_t num_running; /* before this step's admissions */
    double new_token_ratio;
    kv_pages spoken_for;   /* that running requests still take, this step's included */
    uint32_t rem_tokens;   /* new prompt tokens that this step may still compute */
    bool chunked;          /* else a prompt is computed whole */
    const step_cost *cost; /* NULL: the step may take as long as it takes */
    uint32_t few_tokens;   /* that get on whatever rem_ns says */
    uint32_t rem_ends;     /* prompts that may still end in this step */
    double rem_ns;         /* that prompts may still add to the step */
} prefill_adder;

/* `reqs` run already (also those that `batch` holds). O(num_reqs). */
void prefill_adder_init(prefill_adder *a, const schedule_pools *pools, schedule_batch *batch,
                        req *const *reqs, uint32_t num_reqs, double new_token_ratio,
                        uint32_t rem_tokens, bool chunked);

/* Limits the step to what it may take beside what is in the batch already; a few prompt
 * tokens get on all the same, so that prompts do not starve in turn. Only for chunked
 * prompts. */
void prefill_adder_limit_ns(prefill_adder *a, const step_cost *cost, double ns);

/* Adds the next chunk of a running prefill as far as the step and the memory allow.
 * False when that is no token at all. */
bool prefill_adder_continue(prefill_adder *a, req *r);

/* Whether there is memory for r beside what is spoken for; tokens that fit into the pages which
 * this step has not planned. For who takes pages for r before it is admitted. */
bool prefill_adder_has_room(const prefill_adder *a, const req *r, bool alone);
uint64_t prefill_adder_room(const prefill_adder *a, const req *r);

/* Whether r, for which there is memory, has a state for a load to bring, beside its own. */
bool prefill_adder_has_state_to_load(const prefill_adder *a, const req *r, bool alone);

/* Tokens of what is loaded from the host: of that only a window needs pages of the window side.
 */
uint64_t prefill_adder_load_room(const prefill_adder *a, const req *r);

/* Whether this step would compute more of r (nothing at all included) if so many more pages were
 * free. `alone` as below; true also for one that runs already. */
bool prefill_adder_gains(const prefill_adder *a, const req *r, bool alone, kv_pages more);

/* Adds a request that has a row, its prefix locked and nothing else. `alone`: nobody
 * else runs, then only the memory of this step counts. False: no room now. */
bool prefill_adder_admit(prefill_adder *a, req *r, bool alone);

#endif
