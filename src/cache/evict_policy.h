/* evict_policy.h - which leaf goes first.
 *
 * A policy turns a node into a key; the lowest key leaves first, and equal keys go by
 * node id, so the order is total and a replay is exact. Policies only score: they
 * cannot keep a node from being evicted when nothing else is left.
 *
 * Keys are cached in the heap of evictable leaves. Under a policy whose keys only grow
 * when a node is used (`grows`), the cached key may lag behind: it is brought up to
 * date when it comes to the top, which costs a match nothing. */
#ifndef CACHE_EVICT_POLICY_H
#define CACHE_EVICT_POLICY_H

#include "cache/radix_node.h"

typedef struct evict_policy {
    const char *name; /* SGLang's: "lru" */
    uint64_t (*key)(const radix_node *node, const radix_cold *cold);
    bool grows;
} evict_policy;

extern const evict_policy evict_policy_lru; /* the default */

#endif
