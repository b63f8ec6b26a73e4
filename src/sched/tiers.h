/* tiers.h - what the tiers below the device mean for a step.
 *
 *     arrives    a prefetch from storage begins; while waiting for it pays, the request stands
 *                in `fetching` and not in the queue
 *     admitted   what the host has is taken: slots now, numbers while the layers run
 *     computed   if its load failed, the request goes back and is computed without the host
 *
 * Without tiers every function here does nothing. */
#ifndef SCHED_TIERS_H
#define SCHED_TIERS_H

#include <radish/hicache.h>

#include "sched/prefill_adder.h"

struct scheduler;

typedef struct sched_tiers {
    rad_host_kv_pool *host_pool;        /* NULL: every layer has a window, or there are no tiers */
    rad_host_kv_pool *window_host_pool; /* of window memory; NULL: there is none */
    rad_state_pool *host_states; /* of recurrent layers; NULL: there are none, or no room for one */
    req **fetching;              /* by arrival */
    uint32_t num_fetching;
    uint32_t max_fetching;
    uint64_t releases; /* rad_hicache_stats.device_releases when the step was planned */
    bool on;           /* else there is only the device */
    bool waits;        /* the policy is not best_effort */
    bool took_a_load;  /* since tiers_ready_to_load */
} sched_tiers;

/* The cache of `tree`, with the tiers that s->params ask for. */
rad_status tiers_create_cache(struct scheduler *s, const rad_cache_params *tree, rad_error *err);
void tiers_fini(struct scheduler *s); /* before the pools go */

/* What transfers have brought becomes visible. Also without tiers. */
void tiers_poll(struct scheduler *s);

/* A request has arrived. True: it is fetching; else it goes to the queue. */
bool tiers_arrive(struct scheduler *s, req *r);

/* Requests whose prefetch has ended, or is not worth waiting for any more, go to the queue. */
void tiers_admit_fetched(struct scheduler *s);

/* It is cancelled: out of `fetching`, and its prefetch back. Fine for others. */
void tiers_leave(struct scheduler *s, req *r);

/* Just before r is matched; and once its prefix is locked and there is room for it. */
void tiers_end_prefetch(struct scheduler *s, req *r, const rad_key *key);
void tiers_load_back(struct scheduler *s, const prefill_adder *adder, req *r, const rad_key *key,
                     rad_load_result *loaded);

/* The batch is formed. */
void tiers_ready_to_load(struct scheduler *s);

/* After the forward pass: r's load failed, and it is in the queue again. */
bool tiers_lost(struct scheduler *s, req *r);

/* Before a step is planned, and when the plan fails for want of pages: waits a moment for those
 * that transfers hold on the device. False: they hold none, nor let go of any since. */
void tiers_note_releases(struct scheduler *s);
bool tiers_wait_for_pages(struct scheduler *s);

/* Nothing else is to be done: waits a moment for any transfer. False: none is under way. */
bool tiers_wait(struct scheduler *s);

#endif
