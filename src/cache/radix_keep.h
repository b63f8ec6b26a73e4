/* radix_keep.h - pins and retention: nodes that are to be evicted later than others.
 *
 * Behind <radish/retention.h>. The records stand in an array of their own, which a cache
 * without pins and retention does not have. */
#ifndef CACHE_RADIX_KEEP_H
#define CACHE_RADIX_KEEP_H

#include <radish/types.h>

#include "base/heap.h"
#include "cache/radix_part.h"

struct radix_tree;

/* A pin is the node's; it counts on the tiers where the node has pages and the budget has room
 * for them, and orders eviction there. Retention orders it on all. */
typedef struct keep_record {
    uint64_t pin_ttl;   /* ns; 0 = not pinned */
    uint64_t pin_until; /* on the clock of env->now_ns */
    uint64_t idle_ns;   /* of the retention; 0 = for good */
    uint64_t used;      /* ns; when the retained node was used last */
    uint32_t retention; /* priority 1..99; 0 = not retained */
    uint32_t pinned_on; /* a bit for each tier; none exactly when it is not pinned */
} keep_record;

typedef struct radix_keep {
    keep_record *records;         /* [num_nodes + 1], or NULL: nothing can be kept */
    heap deadlines;               /* of records that end; a cached one may be early, never late */
    uint64_t pinned[RADIX_TIERS]; /* pages */
    uint64_t max_pinned[RADIX_TIERS];
} radix_keep;

/* Adds the part to a tree without nodes. False: no memory. */
bool keep_init(struct radix_tree *t, uint64_t max_pinned_pages, uint64_t host_max_pinned_pages);

/* The stronger of two retentions: the higher priority, else the longer time. */
bool keep_is_stronger(uint32_t priority, uint64_t idle_ns, const keep_record *than);

#endif
