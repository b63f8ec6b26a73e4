/* replay_record.h - a server's recorded operations, once more, in a cache like the server's.
 *
 * Every call that the server's scheduler made is made again, in its order, on a cache of the same
 * params, and every answer is compared with the recorded one: what was matched, published, evicted.
 * As long as they are the same, the replay's tree is the server's tree, and its counters are the
 * server's counters. What is not the same is counted, and the first difference told in words. */
#ifndef REPLAY_REPLAY_RECORD_H
#define REPLAY_REPLAY_RECORD_H

#include "trace/record_read.h"

typedef struct record_counters { /* of RECORD_COUNTERS */
    uint64_t prompt_tokens, cached_tokens, evicted_tokens, inserted_tokens;
    uint64_t num_nodes, splits, merges;
    uint64_t written_tokens, loaded_tokens, host_evicted_tokens; /* of RECORD_TIER_COUNTERS */
} record_counters;

typedef struct replay_result {
    record_head head; /* how the server's cache was made */
    uint64_t operations;
    uint64_t requests, finished, aborted, failed;
    uint64_t differences;     /* answers that are not the recorded ones */
    uint64_t unknown;         /* operations of requests whose arrival is not in the record */
    uint64_t lost;            /* operations that the record says it lacks */
    uint64_t comparisons;     /* times that all counters were compared */
    record_counters ours;     /* at the end of what was replayed */
    record_counters recorded; /* when they were compared last */
    bool has_tiers;           /* below the device */
    record_inexact inexact;   /* why the replay cannot be exact; 0: it can */
    record_end end;
    uint64_t duration_us;
    char first_difference[200]; /* "": none */
} replay_result;

/* Nothing was missing, nothing was different, and the counters are the server's. */
bool replay_is_exact(const replay_result *result);

/* RAD_E_FORMAT, RAD_E_LIMIT in words for a record that no server writes; RAD_E_NOMEM. */
rad_status replay_record(const rad_env *env, const void *bytes, uint64_t size,
                         replay_result *result, rad_error *err);

#endif
