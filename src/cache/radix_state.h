/* radix_state.h - the state component: which nodes have a snapshot of the recurrent layers. */
#ifndef CACHE_RADIX_STATE_H
#define CACHE_RADIX_STATE_H

#include <radish/state_pool.h>

#include "cache/radix_tree.h"

typedef struct state_node {
    uint64_t used; /* when the snapshot came, or a match last ended at it */
    uint32_t live; /* 0: one behind it has taken its place */
    uint32_t promised; /* 1: a write that is under way brings it; of the host */
} state_node;

/* Takes a snapshot that leaves the tree. */
typedef void (*radix_drop_state_fn)(void *user, rad_state state);

typedef struct radix_state {
    radix_tier tier;
    uint32_t num_states; /* of the pool */
    state_node *nodes;   /* [num_nodes + 1] */
    uint64_t *owned;     /* a bit for each of 0..num_states: it is in the tree */
    heap order;          /* of eviction: nodes with a snapshot, and others that had one */
    uint64_t there;
    uint64_t held;    /* those of them that are locked */
    uint64_t put;     /* since the start: hung in, */
    uint64_t evicted; /* gone because they were asked for, */
    uint64_t dropped; /* and with the pages before them */
    radix_drop_state_fn drop;
    void *user;
} radix_state;

/* Adds the component, or its part on the host, which comes behind it, to a tree without nodes.
 * RAD_E_NOMEM: what there is goes with the tree. */
rad_status radix_state_init(radix_tree *t, radix_tier tier, uint32_t num_states,
                            radix_drop_state_fn drop, void *user);

/* The snapshot at the node's end on a tier, 0: there is none. */
static inline rad_state radix_state_of(const radix_tree *t, radix_tier tier, uint32_t node)
{
    return (rad_state)t->values[RADIX_STATE][tier][node].at;
}

/* Hangs a snapshot in at the end of a node that is on the tier and has none there. */
void radix_state_put(radix_tree *t, radix_tier tier, uint32_t node, rad_state state);

/* A prompt left the one at the node's end: those before it are of less use, on both tiers. */
void radix_state_supersede(radix_tree *t, uint32_t node);

/* Whether it is the tree's. */
bool radix_state_owns(const radix_tree *t, radix_tier tier, rad_state state);

/* Whether the device has a snapshot at the node's end that a host with states neither has nor
 * gets. */
bool radix_state_is_unsaved(const radix_tree *t, uint32_t node);

/* Gives up to `count` of the tier back, least useful first; returns how many. */
uint64_t radix_state_evict(radix_tree *t, radix_tier tier, uint64_t count);

/* Keeps the node's snapshot on the tier, if there is one: 1, else 0; and lets go what that kept. */
uint32_t radix_state_lock(radix_tree *t, radix_tier tier, uint32_t node);
void radix_state_unlock(radix_tree *t, radix_tier tier, uint32_t node, uint32_t held);

/* Gives back all of the tier, locked or not, where the tree is about to be forgotten or cleared. */
void radix_state_drop_all(radix_tree *t, radix_tier tier);

/* Calls visit for each snapshot of the tier. */
void radix_state_visit(const radix_tree *t, radix_tier tier,
                       void (*visit)(void *user, rad_state state), void *user);

#endif
