/* radix_host.h - the host tier of the tree: a second value in the same nodes.
 *
 *     key              | a b c d e f | g h i |
 *     device region    | 7 8 9 4 5 6 |   -   |     the lower node was evicted on the device
 *     host region      | 1 2 3 7 8 9 | 4 5 6 |     and is found on the host
 *
 * A node is on a tier with all pages of its key or with none (radix_node.h), so a region belongs to
 * one node. Evicting the tail of a leaf on one tier cuts the node where the other tier goes on:
 * what is left behind is a node of the other tier alone. A cut that has lost its reason heals: two
 * nodes that differ in nothing are one again (radix_rejoin).
 *
 * Locks, a heap of leaves and counters are the host's own; recency, hits, priority, pins and hashes
 * are the node's. A host leaf is a node with host pages whose children have none.
 *
 * The region of a tier that a node is not on begins with 0, hence reads as a plain one: so regions
 * that lie side by side can be moved without asking whose they are.
 *
 * Invariants, verified by radix_check(): a node is on a tier only if its parent is; a node is on
 * one tier at least; the host's lock_ref is the sum of its children's and of its own; the counters
 * are the sums over the nodes. */
#ifndef CACHE_RADIX_HOST_H
#define CACHE_RADIX_HOST_H

#include "cache/radix_tree.h"

static inline radix_value *radix_host_value(const radix_tree *t, uint32_t node)
{
    return &t->values[RADIX_FULL][RADIX_HOST][node];
}

/* How many locks hold the node on the host. */
static inline uint32_t radix_host_locks(const radix_tree *t, uint32_t node)
{
    return t->host.of ? radix_host_value(t, node)->lock_ref : 0;
}

/* Adds the tier, by the limits, to a tree without nodes. RAD_E_NOMEM: what there is goes with the
 * tree. */
rad_status radix_host_init(radix_tree *t);

/* A root is on all tiers. */
void radix_host_add_root(radix_tree *t, uint32_t root);

/* A node that has no host children any more, or no locks, may be a leaf of the host. */
void radix_host_consider_leaf(radix_tree *t, uint32_t node);

/* The node, of which a tier is about to lose all pages behind the first `kept`, gives these pages
 * to its only child, which that tier does not have: as cutting it and making one node of the two
 * lower ones would, but without a node in between. The tier that stays has both nodes' pages;
 * false, and nothing changed, where the three differ in more than the time of their last use, or
 * where somebody knows the node by its end. */
bool radix_host_shift(radix_tree *t, uint32_t node, uint32_t kept, bool host_goes);

/* ---- pages come and go ---- */

/* The node, whose parent is on the host, gets host pages: pages[0..its pages), or, where that is
 * NULL, those that stand in its host region one by one. */
void radix_host_put(radix_tree *t, uint32_t node, const rad_page *pages);

/* The node, without the host pages that it had, stays for its device pages. */
void radix_leave_host(radix_tree *t, uint32_t node);

/* Evicts up to num_pages from the tails of the host's leaves; returns how many. */
uint64_t radix_host_evict(radix_tree *t, uint64_t num_pages);

/* Evicts this unlocked host leaf. */
void radix_host_drop_leaf(radix_tree *t, uint32_t leaf);

/* Gives back all of the host's pages; what the device has stays. Nothing on the host is locked. */
void radix_host_clear(radix_tree *t);

/* ---- locks ---- */

/* Adds 1 to the host's locks from `node`, which is on the host, up to its root, or takes 1 away. */
void radix_host_lock(radix_tree *t, uint32_t node);
void radix_host_unlock(radix_tree *t, uint32_t node);

/* ---- paths, from a node up ---- */

/* How much of a path the host has. */
typedef struct radix_covered {
    uint32_t on_host;  /* pages from the root on */
    uint32_t promised; /* the same with what is on its way */
    uint32_t node;     /* the last node that is on the host, which ends there; a root: none */
} radix_covered;

/* Of the path to `node`, which ends at `depth` pages. O(nodes that the host lacks). */
radix_covered radix_host_covered(const radix_tree *t, uint32_t node, uint32_t depth);

/* Writes of the path's pages up to `end` have begun; or those from `begin` on come to nothing. */
void radix_host_promise(radix_tree *t, uint32_t node, uint32_t depth, uint32_t end);
void radix_host_unpromise(radix_tree *t, uint32_t node, uint32_t depth, uint32_t begin);

/* The host gets the first `count` of these pages, [begin, begin + count) of the path to `node`,
 * which ends at `depth` pages and is on the device. Returns how many it has now: what it had
 * before is kept, and is given back of `pages`; what would leave a gap or needs a node that cannot
 * be had stays the caller's. *last: the node that has the last of them, and *last_depth its end. */
uint32_t radix_host_fill(radix_tree *t, uint32_t node, uint32_t depth, uint32_t begin,
                         const rad_page *pages, uint32_t count, uint32_t *last,
                         uint32_t *last_depth);

/* Pages [first, first + count) of the path to `node`, which ends at `depth` pages, on one tier;
 * and where in the arenas page number `at` of it stands. */
void radix_path_pages(const radix_tree *t, bool host, uint32_t node, uint32_t depth, uint32_t first,
                      uint32_t count, rad_page *pages);
uint32_t radix_path_unit(const radix_tree *t, uint32_t node, uint32_t depth, uint32_t at);

static inline rad_page radix_host_page_at(const radix_tree *t, const radix_node *n, uint32_t i)
{
    return page_runs_at(&t->env, t->host.regions + n->at, i);
}

/* What is wrong with the node's tiers, NULL when nothing is; roots too. */
const char *radix_host_fault(const radix_tree *t, uint32_t node);

#endif
