/* radix_node.h - a node of the radix tree, in two halves.
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

/* What only the policies cost and user need to know. */
typedef struct radix_worth {
    uint64_t heat;  /* of the cost policy */
    uint32_t above; /* pages between the root and its first one */
    uint32_t reserved;
} radix_worth;

#endif
