/* schedule_policy.h - who is next, and who had better wait a moment.
 *
 * The order of the waiting queue is one thing (fcfs, lpm). Hold-back is another and
 * applies under every policy: a request whose uncached prefix is being computed for
 * somebody else right now waits until that prefix is published, so that siblings that
 * arrive together compute what they share once. */
#ifndef SCHED_SCHEDULE_POLICY_H
#define SCHED_SCHEDULE_POLICY_H

#include "sched/req.h"

typedef enum schedule_policy {
    SCHEDULE_FCFS = 0, /* first come, first served */
    SCHEDULE_LPM = 1   /* longest prefix match first; nobody is passed over for ever */
} schedule_policy;

enum {
    SCHEDULE_HOLD_TOKENS = 32,    /* hold back for a gain of at least so many tokens */
    SCHEDULE_MAX_HOLDS = 8,       /* leaders that one request waits for, at most */
    SCHEDULE_MAX_PASSED_OVER = 64 /* lpm: after so many it goes by arrival */
};

/* Puts the queue into the policy's order. Stable; O(waiting tokens) for lpm. */
void schedule_policy_order(schedule_policy policy, const rad_cache *cache, req **waiting,
                           uint32_t num_waiting);

/* True while `r` should wait for one of `prefills`, the requests whose prompt is being
 * computed (state REQ_PREFILL). The first call for a leader compares tokens, later ones
 * are O(num_prefills). */
bool schedule_policy_hold_back(const rad_cache *cache, req *r, req *const *prefills,
                               uint32_t num_prefills, uint32_t page_size);

#endif
