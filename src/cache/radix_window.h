/* radix_window.h - the window component: which pages still have the K/V of window layers. */
#ifndef CACHE_RADIX_WINDOW_H
#define CACHE_RADIX_WINDOW_H

#include "cache/radix_tree.h"

typedef struct window_node {
    uint64_t used;      /* when the window before the node's end was of use; 0: of no use known */
    uint32_t held_from; /* pages from here on are locked; the node's length: none is */
    uint32_t own;       /* locks that end with this node */
    uint32_t promised;  /* pages from here on have a window side, or get one when the writes that
                         * are under way are through; of the host */
    uint32_t
        end; /* where that use ended: this node or one below, if it is still there; 0: unknown */
} window_node;

typedef struct radix_window {
    uint32_t pages; /* of a window */
    radix_tier tier;
    window_node *nodes; /* [num_nodes + 1] */
    uint32_t *starts;   /* [arena pages]: how many locks begin at this page */
    heap order;         /* of eviction: nodes with something to give */
    uint64_t there;     /* pages with a window side */
    uint64_t held;      /* those of them that are locked */
    radix_drop_fn drop; /* takes what is given back */
    void *user;
} radix_window;

/* Adds the component, or its part on the host, which comes behind it, to a tree without nodes;
 * `pages` > 0. RAD_E_NOMEM: what there is goes with the tree. */
rad_status radix_window_init(radix_tree *t, radix_tier tier, uint32_t pages, radix_drop_fn drop,
                             void *user);

/* The window side of pages [first, what was there) of the node has come. */
void radix_window_grow(radix_tree *t, radix_tier tier, uint32_t node, uint32_t first);

/* Whether a match may need the window before the node's end, of which the device has pages that the
 * host neither has nor gets. */
bool radix_window_is_unsaved(const radix_tree *t, uint32_t node);

/* Gives up to `pages` of the tier back, least useful first; returns how many. */
uint64_t radix_window_evict(radix_tree *t, radix_tier tier, uint64_t pages);

/* Locks the window side of pages [from, end) of the path to `node`, which is locked on the tier and
 * ends at page `end`; or takes such a lock away. from >= end: nothing. */
void radix_window_lock(radix_tree *t, radix_tier tier, uint32_t node, uint32_t end, uint32_t from);
void radix_window_unlock(radix_tree *t, radix_tier tier, uint32_t node, uint32_t end,
                         uint32_t from);

/* The lock that ends with `node` and begins at page `from` of its path begins at page `to` from now
 * on; at the node's end it holds nothing. Returns where it begins: it does not go back. */
uint32_t radix_window_advance(radix_tree *t, uint32_t node, uint32_t from, uint32_t to);

/* Of pages [from, end of `node`), how many stand before those that have a window side without a gap
 * up to the node's end. O(nodes of a window) where `from` is a lock's. */
uint32_t radix_window_missing(const radix_tree *t, uint32_t node, uint32_t from);

static inline const radix_value *radix_window_of(const radix_tree *t, radix_tier tier,
                                                 uint32_t node)
{
    return &t->values[RADIX_WINDOW][tier][node];
}

#endif
