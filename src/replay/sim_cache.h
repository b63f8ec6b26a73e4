/* sim_cache.h - one cache of libradish's own over an allocator, indices only: a tier of a server.
 *
 * Per request: match the prompt, lock what was found, evict what prompt and output are short of,
 * allocate, insert both, give the rest back, unlock. */
#ifndef REPLAY_SIM_CACHE_H
#define REPLAY_SIM_CACHE_H

#include <radish/cache.h>
#include <radish/evict_policy.h>

#include "replay/trace.h"

typedef struct sim_cache sim_cache;

typedef struct sim_cache_params {
    rad_eviction_options eviction;
    uint64_t num_pages;
    uint32_t page_size; /* elements */
    uint32_t longest;   /* elements of the longest request */
} sim_cache_params;

/* RAD_E_INVAL in words: no page, or more than slots have numbers; RAD_E_NOMEM. */
rad_status sim_cache_create(const rad_env *env, const sim_cache_params *params, sim_cache **out,
                            rad_error *err);
void sim_cache_destroy(sim_cache *c); /* NULL is fine */

/* Elements of the prompt that are there. Nothing is touched. */
uint32_t sim_cache_lookup(const sim_cache *c, const trace_request *r);

/* A request comes and leaves what it has: *hit elements of its prompt were there. *kept false: it
 * did not fit even alone, and nothing of it was inserted. */
rad_status sim_cache_play(sim_cache *c, const trace_request *r, uint32_t *hit, bool *kept,
                          rad_error *err);

uint64_t sim_cache_evicted(const sim_cache *c); /* elements, so far */
rad_status sim_cache_check(const sim_cache *c, rad_error *err);

#endif
