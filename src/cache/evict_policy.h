/* evict_policy.h - which leaf goes first.
 *
 * A policy turns a node into a key; the lowest key leaves first, and equal keys go by
 * node id, so the order is total and a replay is exact. Policies only score: they
 * cannot keep a node from being evicted when nothing else is left.
 *
 * A key of the heap has 96 bits. What is to be kept longer (radix_keep.h) stands above
 * what the policy says, and refs are open sessions (radix_tags.h):
 *
 *     95       | 94 93 | 92 .. 86            | 85 ............ 0
 *     pinned   | refs  | retention priority  | the policy's key
 *
 * Keys are cached in the heap of evictable leaves. Two kinds of policies:
 *
 *   `grows`  whatever happens to a leaf by being used, its key never gets lower (lru, lfu,
 *            fifo, priority, slru). The cached key may lag behind: it is brought up to date
 *            when it comes to the top, and since every cached key is a lower bound, what is
 *            on top with its present key is the minimum. A match costs nothing.
 *   others   a key may get lower (mru, user) or depends on where the leaf ends (cost).
 *            Then the leaf is refiled at once; a walk ends at one leaf at most, so that is
 *            one O(log n) step for each match or insert. The cached key is always right.
 *
 * What lowers a key of either kind without a use (a cut, a split, a merge, the end of a pin)
 * refiles the leaf at once. Invariant, verified by radix_check(): of an evictable leaf, the
 * cached key is at most the present one, and equal to it under a policy that does not grow. */
#ifndef CACHE_EVICT_POLICY_H
#define CACHE_EVICT_POLICY_H

#include <radish/evict_policy.h>

#include "base/heap.h"

struct radix_tree;

enum {
    EVICT_POLICY_BITS = 86, /* of the key, at most */
    EVICT_TIME_BITS = 54,   /* of the operation counter: 2^54 operations are a long time */
    EVICT_HEAT_BITS = 24    /* binary places of heat */
};

typedef struct evict_policy {
    const char *name; /* SGLang's: "lru" */
    heap_key (*key)(const struct radix_tree *t, uint32_t node, const rad_eviction_options *options);
    bool grows;
    bool wants_worth; /* asks what stands before a node, and how hot it is */
} evict_policy;

/* NULL for no policy. */
const evict_policy *evict_policy_of(uint32_t policy);

/* Heat, of the cost policy: log2 of a sum of 2^(-age / half-life), as of the time when the
 * clock stood at zero: a fixed number between two hits, that grows with each.
 *
 * evict_heat_at: of something that was used once, when the clock stood at `clock`.
 * evict_heat_add: of both uses together. */
uint64_t evict_heat_at(uint64_t clock, uint64_t half_life);
uint64_t evict_heat_add(uint64_t a, uint64_t b);

/* log2(1 + tokens / attention_tokens), in the units of heat. */
uint64_t evict_cost(uint64_t tokens, uint32_t attention_tokens);

#endif
