/* redis_store.h - the inside of the Redis backend, shared by its files.
 *
 *     storage_redis.c   the backend's table, and a lane for each caller
 *     redis_ask.c       a question per page, to all nodes at once, in rounds
 *     redis_link.c      a connection to one node
 *     redis_map.c       which node has which slot; redis_refresh.c asks the cluster for it
 *     redis_clear.c     forgets all pages under our prefix */
#ifndef STORAGE_REDIS_STORE_H
#define STORAGE_REDIS_STORE_H

#include <radish/storage_redis.h>

#include "storage/redis_link.h"
#include "storage/redis_map.h"

#include <pthread.h>

enum { REDIS_NAME = 64 + 64, REDIS_HEAD = REDIS_NAME + 160 };

/* What one caller at a time uses: a connection to each node that it has met. */
typedef struct redis_lane {
    pthread_mutex_t busy;
    redis_link links[REDIS_NODES];
    char names[REDIS_CHUNK][REDIS_NAME + 1];
    char heads[REDIS_CHUNK][REDIS_HEAD]; /* of commands, before the payload */
} redis_lane;

typedef struct redis_store {
    rad_env env;
    uint32_t ttl_seconds, connect_timeout_ms, timeout_ms, num_lanes;
    uint64_t max_backoff_ns;
    char prefix[65];
    bool has_user, has_password;
    char user[256], password[512];

    pthread_mutex_t lock; /* map, stats, refresh_after_ns */
    redis_map map;
    rad_storage_stats stats;
    uint64_t refresh_after_ns;
    atomic_bool clear_cancelled; /* by end_clear: a clear ends in an error, and none begins */

    redis_lane *lanes;
} redis_store;

typedef enum redis_what { REDIS_EXISTS, REDIS_GET, REDIS_SET, REDIS_DEL } redis_what;

/* What a call found out. */
typedef struct redis_found {
    uint8_t *there;    /* [count]: got, stored, exists, deleted */
    uint32_t answered; /* questions with a definite answer, yes or no */
    uint32_t errors;
    bool full;     /* Redis has no memory for it */
    char why[160]; /* the last error */
} redis_found;

/* Asks about batch->keys[from..from+count), count <= REDIS_CHUNK; returns when each has an
 * answer or is given up, at the deadline at the latest. redis_ask.c */
void redis_ask(redis_store *s, redis_lane *lane, redis_what what, const rad_storage_batch *b,
               uint32_t from, uint32_t count, uint64_t deadline_ns, redis_found *found);

/* An open link to a node, or NULL: it is left alone, or cannot be reached (`why`). */
redis_link *redis_reach(redis_store *s, redis_lane *lane, uint16_t node, uint64_t deadline_ns,
                        char *why, size_t why_bytes);
void redis_blame(redis_store *s, uint16_t node); /* it failed */

/* Asks for the map of slots, of any node that answers; at most every 100 ms. True when there
 * is a new map. redis_refresh.c */
bool redis_refresh(redis_store *s, redis_lane *lane, uint64_t deadline_ns, char *why,
                   size_t why_bytes);

/* Deletes all pages under the prefix, within a minute; RAD_E_IO in words. redis_clear.c */
rad_status redis_clear(redis_store *s, redis_lane *lane, rad_error *err);

/* Logs a warning where Redis has a policy under which pages would fill it up. */
void redis_advise(redis_store *s, redis_lane *lane, uint64_t deadline_ns);

#endif
