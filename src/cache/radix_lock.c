/* radix_lock.c - locks on the way from a node up to its root, and the leaves that eviction may
 * take.
 *
 *     root -- A (2) -+- B (1)      one lock each on B and C; A cannot go before them
 *                    +- C (1)
 *
 * Invariants, verified by radix_check(): a node's lock_ref is the sum of its children's and of its
 * own locks' number; `evictable` and `locked` are the pages of the nodes without and with locks;
 * every leaf without a lock is filed among the leaves. `unlocked_nodes` are without locks of any
 * tier. */
#include "cache/radix_host.h"

rad_status radix_refuse_ref(const radix_tree *t, const char *who, rad_ref ref, rad_error *err)
{
    if (!ref.index && !ref.generation)
        return rad_fail(err, RAD_E_STATE,
                        "%s: node 0 (generation 0): the receipt is not held (given back already?)",
                        who);
    if (!ref.index || ref.index > t->ids.num_fresh)
        return rad_fail(err, RAD_E_STATE, "%s: node %u (generation %u) was never one", who,
                        ref.index, ref.generation);
    if (!radix_is_ref(t, ref))
        return rad_fail(err, RAD_E_STATE,
                        "%s: node %u (generation %u) is stale: generation %u has its place", who,
                        ref.index, ref.generation, t->ids.generation[ref.index]);
    if (!radix_on_device(t, ref.index))
        return rad_fail(err, RAD_E_STATE,
                        "%s: node %u (generation %u) has no pages on the device any more", who,
                        ref.index, ref.generation);
    return rad_fail(err, RAD_E_STATE,
                    "%s: node %u (generation %u) is not locked by this receipt (given back "
                    "already?)",
                    who, ref.index, ref.generation);
}

void radix_lock(radix_tree *t, uint32_t node)
{
    radix_node *nodes = t->nodes;
    uint32_t pages = 0, newly = 0;
    t->cold[node].own++;
    for (uint32_t id = node; id; id = nodes[id].parent) {
        radix_node *n = &nodes[id];
        uint32_t first = n->lock_ref++ == 0;
        pages += first ? n->pages : 0;
        newly += first && n->parent && !radix_host_locks(t, id);
    }
    t->evictable -= pages;
    t->locked += pages;
    t->unlocked_nodes -= newly;
}

void radix_unlock(radix_tree *t, uint32_t node)
{
    radix_node *nodes = t->nodes;
    uint32_t pages = 0, newly = 0, held = UINT32_MAX;
    RAD_ASSERT_ENV(&t->env, t->cold[node].own > 0);
    t->cold[node].own--;
    for (uint32_t id = node; id; id = nodes[id].parent) {
        radix_node *n = &nodes[id];
        held = RAD_MIN(held, n->lock_ref);
        uint32_t last = --n->lock_ref == 0;
        pages += last ? n->pages : 0;
        newly += last && n->parent && !radix_host_locks(t, id);
    }
    RAD_ASSERT_ENV(&t->env, held > 0);
    t->evictable += pages;
    t->locked -= pages;
    t->unlocked_nodes += newly;
    radix_consider_leaf(t, node); /* the nodes above have a child */
}

void radix_consider_leaf(radix_tree *t, uint32_t node)
{
    if (!radix_is_evictable_leaf(t, node)) return;
    if (!heap_contains(&t->leaves, node))
        heap_push(&t->leaves, node, radix_leaf_key(t, node, RADIX_DEVICE));
    else if (t->watches) /* filed before it was locked or got a child */
        radix_refile(t, node);
}
