/* wait_queue.h - who waits, in which order they go, and who had better wait a moment.
 *
 * The waiting requests are the leaves of a tree of their own prompts (wait_tree.h). What
 * requests have in common is then one node, and so is every fact about it: how much of it
 * is cached, whether somebody computes it right now. A step therefore costs the requests
 * that it admits, however many wait:
 *
 *     top -- [namespace] -- [system prompt] -+- question 1     (waits)
 *                           cached 0..1024   +- question 2     (waits)
 *                           leader: q3       +- question 3     (running: its prefill)
 *
 * Order: every node knows the best request below it, in a heap per node.
 * Hold-back: a request whose uncached prefix is being computed for somebody else waits
 * until that is published, so that siblings compute what they share once. Requests in
 * their prefill stay in the tree as leaders for that; a node is closed while its leader
 * still has to publish SCHEDULE_HOLD_TOKENS or more of it.
 *
 * Why nobody waits for ever: a leader goes on in every step or leaves the tree; the oldest
 * request gets every (SCHEDULE_MAX_PASSED_OVER + 1)th admission and is held back by
 * SCHEDULE_MAX_HOLDS different leaders at most; everybody becomes the oldest. */
#ifndef SCHED_WAIT_QUEUE_H
#define SCHED_WAIT_QUEUE_H

#include "sched/req.h"
#include "sched/schedule_policy.h"
#include "sched/wait_tree.h"

typedef struct wait_queue_params {
    schedule_policy policy;
    bool by_priority; /* priority before the policy's own order */
    bool low_priority_values_first;
    bool shares; /* false: nothing is published, so nothing is held back either */
    uint32_t page_size;
    uint32_t max_waiting;
    uint32_t max_running;
    uint64_t random_seed;
} wait_queue_params;

typedef struct wait_queue {
    wait_queue_params params;
    const rad_cache *cache;
    wait_tree tree;
    req *first, *last; /* by arrival */
    uint32_t count;
    uint32_t passed_over;     /* admissions in a row that passed the oldest over */
    uint32_t cursor;          /* dfs-weight: the node that the walk is in */
    uint64_t num_held;        /* requests that were held back, counted once a leader */
    uint64_t tokens_compared; /* in look-ups of the cache; see also tree.tokens_compared */
} wait_queue;

rad_status wait_queue_init(wait_queue *q, const rad_env *env, const wait_queue_params *params,
                           const rad_cache *cache);
void wait_queue_fini(wait_queue *q, const rad_env *env);

/* Takes a request in; its `arrival` says where it stands (a retracted one comes back with
 * its old one). Costs its prompt, not the queue. There must be room. */
void wait_queue_add(wait_queue *q, req *r);

/* The request to be admitted next, NULL when nobody waits or all are held back. It stays in
 * the queue. Compares at most the prompts of a few requests with the cache. */
req *wait_queue_next(wait_queue *q);

/* `r`, which waited, has been admitted: r->kv.protected_len says what it found on the device,
 * committed_len what it has together with what comes from the host. */
void wait_queue_admitted(wait_queue *q, req *r);

/* `r` leaves the tree, whether it waits (cancelled) or computes its prompt (done, retracted,
 * failed); fine for one that is in neither. */
void wait_queue_remove(wait_queue *q, req *r);

/* The first num_tokens of r's fill_ids are in the cache from now on. */
void wait_queue_published(wait_queue *q, req *r, uint32_t num_tokens);

/* Positions of r's prompt where others that wait branch off: of many the outermost ones. `forks`
 * has room for REQ_MOST_FORKS; returns how many. */
uint32_t wait_queue_forks(const wait_queue *q, const req *r, uint32_t *forks);

/* Everything against everything. RAD_E_CORRUPT in words. O(n log n). */
rad_status wait_queue_check(const wait_queue *q, rad_error *err);

#endif
