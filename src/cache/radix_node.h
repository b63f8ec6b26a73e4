/* radix_node.h - a node of the radix tree, in two halves, and what only some trees have of it: on
 * which tiers it is (radix_tiers), its worth.
 *
 * The hot half is what a walk reads and writes: one cache line. The rest lies in a
 * parallel array under the same id. Ids are 1..max_nodes; 0 is none. */
#ifndef CACHE_RADIX_NODE_H
#define CACHE_RADIX_NODE_H

#include <assert.h>

#include <radish/types.h>

#include "base/base.h"

typedef struct radix_node {
    uint32_t at;    /* its first page in the arenas of tokens and pages */
    uint32_t pages; /* length of its edge; 0 only in a root */
    uint32_t span;  /* the counted run that `at` lies in; 0 in a root */
    uint32_t parent;
    uint32_t num_children;
    uint32_t first_child;
    uint32_t next; /* siblings, in no order */
    uint32_t prev;
    uint32_t hash; /* its place in the map of children */
    uint32_t lock_ref;
    uint64_t last_access; /* in operations, not seconds */
    uint32_t hit_count;
    int32_t priority;
    uint32_t ns;    /* its namespace */
    rad_token lead; /* below a root and under bigram keys: the key's token 0 */
} radix_node;
static_assert(sizeof(radix_node) == 64, "the hot half of a node is one cache line");

typedef struct radix_cold {
    uint64_t created; /* in operations */
    uint32_t own;     /* locks that were taken on this very node, not on one below it */
    uint32_t reserved;
} radix_cold;

/* In a tree with a host tier: where the pages of a node are, beside its value there. A tree without
 * has no such records, all its nodes are on the device.
 *
 *     root == [both] -+- [both] -- [device alone]        each tier's pages are closed towards the
 *                     +- [host alone] -- [host alone]    root: a node has them if its parent has
 *
 * A node has on a tier the pages of its whole key, or none: where a tier ends within an edge, the
 * edge is cut. Both tiers' pages lie at the node's offset, each in an arena of its own. */
typedef struct radix_tiers {
    uint32_t on_device;       /* 0 or 1 */
    uint32_t device_children; /* children that are on the device */
    uint32_t host_children;   /* children that are on the host */
    uint32_t own;             /* locks on the host that were taken on this very node */
    uint32_t promised;        /* pages of its front that the host has, or gets when the writes
                               * that are under way are through */
    uint32_t below;           /* of a walk in progress: its next node down */
} radix_tiers;

/* What only the policies cost and user need to know. */
typedef struct radix_worth {
    uint64_t heat;  /* of the cost policy */
    uint32_t above; /* pages between the root and its first one */
    uint32_t reserved;
} radix_worth;

#endif
