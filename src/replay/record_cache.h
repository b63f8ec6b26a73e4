/* record_cache.h - a cache like the one that a record (trace/record_read.h) was made with.
 *
 * Of the same params, over indices only, with as many rows as the record's requests need, and with
 * the record's time: what is pinned or retained expires when it did in the server. */
#ifndef REPLAY_RECORD_CACHE_H
#define REPLAY_RECORD_CACHE_H

#include "trace/record_read.h"

#include <radish/cache.h>
#include <radish/host_kv_pool.h>

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
    rad_cache *tiers; /* the one with a host tier, `cache` or what it wraps; NULL: there is none */
    rad_token_to_kv_pool *numbers; /* which moves nothing, but a tier is made of it */
    rad_host_kv_pool *host;
    rad_page *kept; /* [num_pages]: free pages that the server's requests had taken */
    uint32_t num_kept, num_pages;
} record_cache;

/* Reads all of the record first. It stays where it is until record_cache_fini, which is right after
 * a failure, too. RAD_E_FORMAT, RAD_E_LIMIT in words for a record that no server writes;
 * RAD_E_NOMEM. `env` must come from rad_env_or_default. */
rad_status record_cache_init(record_cache *c, const rad_env *env, const void *bytes, uint64_t size,
                             rad_error *err);
void record_cache_fini(record_cache *c);

/* As many pages are free as in the server, whose requests have theirs before they publish them: the
 * rest is kept. False: there are not so many. For calls with tiers, which look at them. */
bool record_cache_keep(record_cache *c, uint64_t free_pages);

/* `count` are to be taken: so many are free, if they are there at all. */
void record_cache_make_room(record_cache *c, uint32_t count);

#endif
