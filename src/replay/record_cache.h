/* record_cache.h - a cache like the one that a record (trace/record_read.h) was made with.
 *
 * Of the same params, over indices only, with as many rows as the record's requests need, and with
 * the record's time: what is pinned or retained expires when it did in the server. */
#ifndef REPLAY_RECORD_CACHE_H
#define REPLAY_RECORD_CACHE_H

#include "trace/record_read.h"

#include <radish/cache.h>

typedef struct record_cache {
    rad_env env;   /* the caller's, for memory */
    rad_env clock; /* the same; its time is now_us */
    uint64_t now_us;
    uint32_t room; /* tokens of a row: more than the longest request has */
    uint32_t reserved;
    rad_kv_allocator *alloc;
    rad_req_to_token_pool *rows;
    rad_state_pool *states; /* NULL: no recurrent layers */
    rad_cache *cache;
} record_cache;

/* Reads all of the record first. It stays where it is until record_cache_fini, which is right after
 * a failure, too. RAD_E_FORMAT, RAD_E_LIMIT in words for a record that no server writes;
 * RAD_E_NOMEM. `env` must come from rad_env_or_default. */
rad_status record_cache_init(record_cache *c, const rad_env *env, const void *bytes, uint64_t size,
                             rad_error *err);
void record_cache_fini(record_cache *c);

#endif
