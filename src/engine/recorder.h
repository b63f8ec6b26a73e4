/* recorder.h - `--record FILE`: the cache's operations, in order, on their way to a file.
 *
 *     scheduler --tap, flush--> messages --> kv_queue --> thread --> FILE (trace/record_format.h)
 *
 * Tokens become salted hashes on the scheduler's thread and go no further. The scheduler never
 * waits: what does not fit into the queue, or comes when the file is at its limit or could not be
 * written, is dropped and counted, and the record says so where it happened.
 *
 * A file that is there already is left alone: the record becomes FILE.1, or .2 ... What is there and
 * is no file (a pipe, a device, a directory, a link to nothing) is refused: whoever named it wants
 * the record there and not beside it, and a pipe's reader could stall or leave. */
#ifndef ENGINE_RECORDER_H
#define ENGINE_RECORDER_H

#include <radish/cache.h>

#include "trace/record_format.h"

#define RECORDER_LIMIT_BYTES 1000000000 /* the default */

typedef struct recorder recorder;
struct cache_tap_op;    /* sched/cache_tap.h */
struct scheduler_stats; /* sched/scheduler_stats.h */

typedef struct recorder_params {
    const char *path; /* copied */
    uint64_t limit_bytes;
    uint64_t max_queue_bytes; /* of messages; 0: 64 MiB */
} recorder_params;

typedef struct recorder_stats {
    uint64_t bytes;      /* written */
    uint64_t operations; /* written */
    uint64_t dropped;    /* operations that are not in the file: its replay is no longer exact */
} recorder_stats;

/* Opens the file. RAD_E_IO, RAD_E_INVAL (it is there and no file) in words, RAD_E_NOMEM. */
rad_status recorder_create(const rad_env *env, const recorder_params *params, recorder **out,
                           rad_error *err);

/* Writes the head, and the thread begins. */
rad_status recorder_start(recorder *r, const record_head *head, rad_error *err);

/* What is queued is written, and the end behind it. Once nobody calls the functions below. NULL is
 * fine. */
void recorder_destroy(recorder *r);

const char *recorder_path(const recorder *r);
void recorder_get_stats(const recorder *r, recorder_stats *stats); /* any thread */

/* ---- the scheduler's thread ---- */

void recorder_tap(recorder *r, const struct cache_tap_op *op);
void recorder_inexact(recorder *r, record_inexact why);

typedef struct recorder_prices { /* ns, as sched/step_cost.h has learned them; all 0: not yet */
    double prompt_token, pair, decode, step;
} recorder_prices;

/* What has been counted so far, for readers to compare with, and what steps cost. */
void recorder_counters(recorder *r, const struct scheduler_stats *stats,
                       const rad_cache_stats *cache, const recorder_prices *prices);
/* Some seconds have passed since the last ones, and steps. */
bool recorder_wants_counters(const recorder *r, uint64_t forward_steps);

void recorder_flush(recorder *r); /* what was told goes to the thread */

#endif
