/* cache_controller.h - who moves pages between the tiers while the scheduler goes on.
 *
 * Four kinds. A backup is a copy one tier down; to storage is always said:
 *
 *     load             host -> device      SGLang's load_back
 *     write            device -> host      SGLang's write_backup
 *     fetch            storage -> host     SGLang's prefetch
 *     storage backup   host -> storage     SGLang's write_backup_storage
 *
 * A transfer is placed by its owner, submitted, run once by a worker, and comes back to
 * the owner in controller_take: the acknowledgement. Two lanes, so that a store that
 * hangs cannot hold up a copy:
 *
 *     copy lane    loads before writes
 *     store lane   fetches before storage backups; one worker is always left for fetches where
 *                  there are two
 *
 * Queues are lists through the transfers themselves, so submitting cannot fail, and they
 * are as bounded as the transfers that the owner has.
 *
 * Without threads (deterministic) a transfer runs when controller_pump picks it, when
 * somebody waits for it, or never: so a test delays and reorders as it likes.
 *
 * submit, cancel, take, pump and wait are the owner thread's; gate may be called by any
 * thread that is about to read a layer. */
#ifndef HICACHE_CACHE_CONTROLLER_H
#define HICACHE_CACHE_CONTROLLER_H

#include <stdatomic.h>

#include "base/base.h"

typedef enum transfer_kind {
    TRANSFER_LOAD = 0,
    TRANSFER_WRITE,
    TRANSFER_FETCH,
    TRANSFER_BACKUP_STORAGE,
    TRANSFER_KINDS
} transfer_kind;

typedef enum transfer_state {
    TRANSFER_IDLE = 0, /* the owner's */
    TRANSFER_QUEUED,
    TRANSFER_RUNNING,
    TRANSFER_DONE /* waits to be taken */
} transfer_state;

typedef struct transfer {
    transfer_kind kind;
    transfer_state state; /* under the controller's lock */
    rad_status status;    /* once taken: what run gave; RAD_NONE: cancelled before it ran */
    uint32_t reserved;
    atomic_bool cancelled; /* run looks at it and ends early */
    atomic_uint layers_done;
    struct transfer *next, *prev;           /* its queue, or what is done */
    struct transfer *next_load, *prev_load; /* loads that are not done */
} transfer;

/* Runs a transfer in a worker's thread. `worker` is 0..num_workers-1, for scratch memory;
 * a load may also be run by a thread that waits for it, as worker UINT32_MAX. */
typedef rad_status (*transfer_run_fn)(void *user, transfer *t, uint32_t worker);

typedef struct cache_controller cache_controller;

typedef struct controller_params {
    uint32_t copy_threads;  /* at least 1 */
    uint32_t store_threads; /* 0: no storage lane, nothing of its kinds is ever submitted */
    bool deterministic;     /* no threads at all; worker 0 is whoever pumps */
    transfer_run_fn run;
    void *user;
} controller_params;

rad_status controller_create(const rad_env *env, const controller_params *params,
                             cache_controller **out, rad_error *err);
/* Ends the threads after what they are at; the owner has taken everything before. */
void controller_destroy(cache_controller *c); /* NULL is fine */

static inline uint32_t controller_workers(const controller_params *p)
{
    return p->deterministic ? 1 : p->copy_threads + p->store_threads;
}

void controller_submit(cache_controller *c, transfer *t);

/* A queued transfer is done at once with RAD_NONE; a running one is asked to end early.
 * Either way it is taken later like any other. */
void controller_cancel(cache_controller *c, transfer *t);

/* The transfer that was done first, NULL when there is none. O(1), one atomic load then. */
transfer *controller_take(cache_controller *c);

/* Returns once the transfer is done (not taken). Without threads it is run here. */
void controller_wait(cache_controller *c, transfer *t);

/* Waits until something is done or timeout_ns have passed. Without threads: runs one transfer.
 * False: nothing was or became done. */
bool controller_wait_any(cache_controller *c, uint64_t timeout_ns);

/* Deterministic only: runs the (pick % queued)-th of all queued transfers. False: none. */
bool controller_pump(cache_controller *c, uint64_t pick);

/* Deterministic only: from now on nothing runs a transfer, cancelling one changes nothing but its
 * flag, and waiting for one ends it with RAD_NONE: they end by controller_end. */
void controller_begin_script(cache_controller *c);

/* Ends a transfer that nobody runs, as a worker would with this status. */
void controller_end(cache_controller *c, transfer *t, rad_status status);

/* A load's `layers` first layers are on the device. Called by run. */
void controller_layers_done(cache_controller *c, transfer *t, uint32_t layers);

/* Returns once every load submitted so far has layer `layer` (counted from 0) on the
 * device, or is done in whatever way. A load that no worker has begun is run here. */
void controller_gate(cache_controller *c, uint32_t layer);

uint32_t controller_queued(const cache_controller *c, transfer_kind kind);  /* any thread */
uint32_t controller_running(const cache_controller *c, transfer_kind kind); /* any thread */

/* Of `most` tickets, those that a transfer of this kind must leave: some are for loads only,
 * and some more not for what can be done later. */
uint32_t controller_kept_tickets(transfer_kind kind, uint32_t most);

/* "load", "write", "fetch", "backup" (a storage backup). */
const char *transfer_name(transfer_kind kind);

/* A line for each kind: how many are queued and running. Returns the length of all of them,
 * which may not fit into `bytes` (at least 1; what does is terminated). */
size_t controller_describe(const cache_controller *c, char *text, size_t bytes);

#endif
