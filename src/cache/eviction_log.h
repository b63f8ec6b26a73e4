/* eviction_log.h - a ring of fingerprints of evicted pages, found by hash.
 *
 * A fingerprint is there at most once, with its latest eviction; the oldest entry is
 * overwritten. Fingerprints are compared whole, the map's 32 bits only propose. */
#ifndef CACHE_EVICTION_LOG_H
#define CACHE_EVICTION_LOG_H

#include "base/hash_key.h"
#include "base/map.h"

typedef struct eviction_record {
    uint64_t fingerprint;
    uint64_t operation;
    uint64_t time_ns;
    uint32_t cause; /* rad_eviction_cause */
    uint32_t live;  /* in the map */
} eviction_record;

typedef struct eviction_log {
    eviction_record *records; /* [capacity + 1]; the map's ids */
    map by_fingerprint;
    hash_key key; /* of the map: who sends tokens can choose their fingerprints */
    rad_env env;  /* of its memory, and for its panic */
    uint32_t capacity;
    uint32_t last; /* written last; 0: none */
} eviction_log;

bool eviction_log_init(eviction_log *l, const rad_env *env, uint32_t capacity);
void eviction_log_fini(eviction_log *l);
size_t eviction_log_bytes(const eviction_log *l);

void eviction_log_add(eviction_log *l, const eviction_record *record);
void eviction_log_forget(eviction_log *l); /* everything */

/* The latest eviction of this page, or NULL. */
const eviction_record *eviction_log_find(const eviction_log *l, uint64_t fingerprint);

#endif
