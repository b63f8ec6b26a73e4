/* event_ring.h - a bounded queue of page events, in parallel arrays.
 *
 * One entry is one page, so that neighbours in the ring which continue each other are one
 * event without copying: the arrays of hashes and tokens that a consumer sees are slices of the
 * ring's. What lies across the ring's end comes as two events, the second with the
 * last hash of the first as its parent. A ring of pairs (bigram keys) has both tokens of
 * each pair, since that is what a consumer is shown.
 *
 * Once something was dropped, everything is until the ring is emptied: what follows a gap
 * means nothing to a consumer without a snapshot. */
#ifndef CACHE_EVENT_RING_H
#define CACHE_EVENT_RING_H

#include <radish/kv_events.h>

#include "base/base.h"

enum { EVENT_HAS_EXTRA_KEY = 1, EVENT_HAS_CACHE_SALT = 2 };

/* Where a block is, by the names that consumers know: see kv_events.h. */
typedef enum event_medium {
    EVENT_GPU = 0,
    EVENT_CPU_PINNED = 1,
    EVENT_DISK = 2,
    EVENT_EXTERNAL = 3
} event_medium;

typedef struct event_entry {
    int64_t parent;
    uint64_t space;
    uint8_t type;
    uint8_t has_parent;
    uint8_t spaces; /* EVENT_HAS_... */
    uint8_t medium; /* event_medium */
    uint8_t reserved[4];
} event_entry;

typedef struct event_ring {
    event_entry *entries; /* [capacity] */
    int64_t *hashes;
    rad_token *tokens; /* [capacity][tokens_per_page] */
    uint32_t capacity;
    uint32_t first;
    uint32_t count;
    uint32_t page_size;
    uint32_t tokens_per_page; /* page_size, or twice as many in a ring of pairs */
    uint32_t pairs;           /* 0 or 1 */
    uint64_t lost;
} event_ring;

typedef struct event_page {
    event_entry entry;
    int64_t hash;
    const rad_token *tokens; /* NULL unless stored; in a ring of pairs their second halves */
    rad_token lead;          /* in a ring of pairs the token before tokens[0] */
} event_page;

bool event_ring_init(event_ring *r, const rad_env *env, uint32_t capacity, uint32_t page_size,
                     bool pairs);
void event_ring_fini(event_ring *r, const rad_env *env);
size_t event_ring_bytes(const event_ring *r);

/* Copies the page's event into the ring, or counts it as lost. O(1). */
void event_ring_push(event_ring *r, const event_page *page);
void event_ring_take(event_ring *r, rad_kv_event_fn visit, void *user);

static inline void event_ring_forget(event_ring *r)
{
    r->first = r->count = 0;
    r->lost = 0;
}

#endif
