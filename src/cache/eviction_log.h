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

/* ---- what went last, for people who look (tree_look.h) ---- */

enum { EVICTION_NOTES = 64 };

/* Tokens that a node lost in one go, or in several without another's between them. */
typedef struct eviction_note {
    uint64_t time_ns;
    uint64_t idle_operations; /* since a match or an insert last went through the node */
    uint32_t node, generation;
    uint32_t namespace_id;
    uint32_t tokens;
    uint32_t hit_count;
    uint16_t cause; /* rad_eviction_cause */
    bool on_host;   /* it left the host; else the device */
    bool whole;     /* nothing of the node is left on that tier */
} eviction_note;

typedef struct eviction_notes {
    eviction_note last[EVICTION_NOTES]; /* number i lies at i % EVICTION_NOTES */
    uint64_t count;                     /* since the start */
    uint64_t tokens[2][2];              /* [on_host][cause], since the start */
} eviction_notes;

void eviction_notes_add(eviction_notes *notes, const eviction_note *note);

/* The latest eviction of this page, or NULL. */
const eviction_record *eviction_log_find(const eviction_log *l, uint64_t fingerprint);

#endif
