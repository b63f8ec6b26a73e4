/* radix_component.h - the kinds of memory that a prefix has, behind one table.
 *
 *               pages of a node
 *     full      [0 .............. end)   K/V of every position; the node itself has first = 0,
 *                                        end = pages, lock_ref
 *     window       [first ....... end)   K/V of the layers that see a window; what lies before
 *                                        `first` was given back
 *     state                       [ ]    one snapshot at the node's end: there or not at all
 *
 * A prefix can be used up to the last place where every component can go on. The values stand in
 * arrays beside the nodes, one for each configured (component, tier); a component is a part
 * (radix_part.h) that also finds where a match may end, locks, and evicts in an order of its own.
 * It moves values only: pages and snapshots go back through the drop callback that it was given.
 *
 * All of this is asked of the device, where requests run. What a component has on the host moves
 * only host_hit_tokens, by `loadable` of the device's table, and never where a match ends. A
 * node that is not on a tier has no value of a component there. */
#ifndef CACHE_RADIX_COMPONENT_H
#define CACHE_RADIX_COMPONENT_H

#include "cache/radix_part.h"

/* A component of another kind takes a number behind these, in its own file. */
typedef enum radix_kind { RADIX_FULL, RADIX_WINDOW, RADIX_STATE, RADIX_KINDS = 8 } radix_kind;

/* Pages [first, end) of the node's key are there; first == end: nothing is. */
typedef struct radix_value {
    uint32_t at; /* of a state: its snapshot; else unused */
    uint32_t first;
    uint32_t end;
    uint32_t lock_ref;
} radix_value;

struct radix_pos;

typedef struct radix_component_ops {
    node_part_ops part;
    radix_kind kind;

    /* Moves the end of a match back to where this component can go on; leaves it if it can there.
     */
    void (*usable)(void *self, const struct radix_tree *t, struct radix_pos *pos);

    /* The same of a walk on the host, for one who has what he needs at page `from`: moves its end
     * back to where he can go on with what the host has behind that, to `from` or before it where
     * he cannot. NULL: he cannot, the host has nothing of this component. */
    void (*loadable)(void *self, const struct radix_tree *t, struct radix_pos *pos, uint32_t from);

    /* Whether page i of the node may be copied for a request that shares only its front. NULL: no.
     */
    bool (*can_copy)(void *self, const struct radix_tree *t, uint32_t node, uint32_t i);

    /* Keeps what a request needs that goes on behind `node`; `unlock` is told the page from which
     * `lock` said that it holds. `holds`: whether there is such a lock. */
    uint32_t (*lock)(void *self, struct radix_tree *t, uint32_t node);
    void (*unlock)(void *self, struct radix_tree *t, uint32_t node, uint32_t from);
    bool (*holds)(void *self, const struct radix_tree *t, uint32_t node, uint32_t from);

    /* Nothing is locked any more, whoever holds what receipts: the device is about to be cleared.
     */
    void (*forget_locks)(void *self, struct radix_tree *t);

    /* A match ended at `node`, or an insert, of which the last `fresh` pages are new. */
    void (*used)(void *self, struct radix_tree *t, uint32_t node, uint32_t fresh);

    /* Gives up to `pages` back, least useful first; returns how many. */
    uint64_t (*evict)(void *self, struct radix_tree *t, uint64_t pages);
} radix_component_ops;

typedef struct radix_component {
    const radix_component_ops *ops;
    void *self;
} radix_component;

#endif
