/* radix_check.c - walking all of the tree, and holding it against every counter. */
#include "cache/radix_host.h"
#include "cache/radix_key.h"

/* The first child of the root of the first namespace behind `ns` that has one. */
static uint32_t next_root(const radix_tree *t, uint32_t ns, uint32_t *depth)
{
    for (ns++; ns <= t->names.ids.num_fresh; ns++) {
        if (!slab_is_live(&t->names.ids, ns)) continue;
        uint32_t first = t->nodes[t->names.entries[ns].root].first_child;
        if (!first) continue;
        *depth = 1;
        return first;
    }
    return 0;
}

uint32_t radix_next(const radix_tree *t, uint32_t node, uint32_t *depth)
{
    if (!node) return next_root(t, 0, depth);
    const radix_node *n = &t->nodes[node];
    uint32_t ns = n->ns;
    if (n->first_child) {
        ++*depth;
        return n->first_child;
    }
    while (!n->next) {
        n = &t->nodes[n->parent];
        if (!n->parent) return next_root(t, ns, depth);
        --*depth;
    }
    return n->next;
}

void radix_visit_pages(const radix_tree *t, radix_tier tier,
                       void (*visit)(void *user, rad_page page), void *user)
{
    uint32_t depth;
    if (tier == RADIX_HOST && !t->host.of) return;
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));)
        if (radix_is_on(t, id, tier))
            page_runs_visit(radix_regions(t, tier) + t->nodes[id].at, t->nodes[id].pages, visit,
                            user);
}

/* Facts about one node and its neighbours; NULL when all hold. */
static const char *node_fault(const radix_tree *t, uint32_t id)
{
    const radix_node *n = &t->nodes[id], *p = &t->nodes[n->parent];
    uint32_t children = 0, span_end;
    uint64_t locks = 0;
    if (!slab_is_live(&t->ids, id)) return "is reachable but free";
    if (!n->parent || !slab_is_live(&t->ids, n->parent)) return "has no parent";
    if (!n->pages) return "is empty";
    if (radix_on_device(t, id) && !page_runs_check(t->regions + n->at, n->pages))
        return "miscounts its runs of pages";
    if (n->ns != p->ns) return "is in another namespace than its parent";
    if (!radix_is_filed(t, id)) return "is not found by its key, or not alone";
    if (n->lead && (!t->limits.bigram || p->parent)) return "has a lead where none belongs";
    for (uint32_t c = n->first_child, prev = 0; c; prev = c, c = t->nodes[c].next) {
        if (t->nodes[c].parent != id || t->nodes[c].prev != prev) return "has a wrong child list";
        if (++children > t->num_nodes) return "has a circle of children";
        locks += t->nodes[c].lock_ref;
    }
    if (children != n->num_children) return "has a wrong number of children";
    if (locks + t->cold[id].own != n->lock_ref) return "has other locks than its receipts say";
    if (!n->span || n->span > t->spans.num_fresh || !t->spans.spans[n->span].refs)
        return "lies in no span";
    const span_run *s = &t->spans.spans[n->span];
    span_end = s->at + s->len;
    if (n->at < s->at || n->at + n->pages > span_end) return "lies outside its span";
    if (n->at == s->at ? p->span == n->span : p->span != n->span || p->at + p->pages != n->at)
        return "does not continue its span";
    if (n->at + n->pages < span_end) {
        uint32_t c = n->first_child;
        while (c && t->nodes[c].span != n->span)
            c = t->nodes[c].next;
        if (!c) return "is not at the end of its span, nor is a child";
    }
    if (radix_is_evictable_leaf(t, id)) {
        if (!heap_contains(&t->leaves, id)) return "is evictable and not in the heap";
        heap_key cached = heap_key_of(&t->leaves, id), key = radix_leaf_key(t, id, RADIX_DEVICE);
        bool asks = t->limits.eviction.policy == RAD_EVICT_USER; /* may have changed its mind */
        if (t->policy->grows ? cached > key : cached != key && !asks)
            return "has a wrong key in the heap";
    }
    const char *fault = NULL;
    for (uint32_t i = 0; i < t->num_parts && !fault; i++)
        if (t->parts[i].ops->fault) fault = t->parts[i].ops->fault(t->parts[i].self, t, id);
    return fault;
}

static const char *root_fault(const radix_tree *t, uint32_t ns)
{
    uint32_t id = t->names.entries[ns].root;
    const radix_node *r = &t->nodes[id];
    uint64_t locks = 0, children = 0;
    if (!slab_is_live(&t->ids, id) || r->ns != ns) return "has no root";
    if (r->parent || r->pages || r->span) return "has a root with a parent or tokens";
    for (uint32_t c = r->first_child; c; c = t->nodes[c].next) {
        locks += t->nodes[c].lock_ref;
        children++;
    }
    if (!children || children != r->num_children) return "is empty or miscounts its children";
    if (locks != r->lock_ref) return "has a root with wrong locks";
    return t->host.of ? radix_host_fault(t, id) : NULL;
}

rad_status radix_check(const radix_tree *t, rad_error *err)
{
    uint64_t evictable = 0, locked = 0, pages = 0;
    uint32_t nodes = 0, unlocked = 0, refs = 0, depth = 0, roots = t->names.ids.num_live;
    const char *fault;
    if (!span_arena_check(&t->spans))
        return rad_fail(err, RAD_E_CORRUPT, "radix_check: the arena of spans is inconsistent");
    if (!heap_check(&t->leaves))
        return rad_fail(err, RAD_E_CORRUPT, "radix_check: the heap of leaves is inconsistent");
    for (uint32_t ns = 1; ns <= t->names.ids.num_fresh; ns++)
        if (slab_is_live(&t->names.ids, ns) && (fault = root_fault(t, ns)))
            return rad_fail(err, RAD_E_CORRUPT, "radix_check: namespace %u %s", ns, fault);
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));) {
        const radix_node *n = &t->nodes[id];
        if ((fault = node_fault(t, id)))
            return rad_fail(err, RAD_E_CORRUPT, "radix_check: node %u %s", id, fault);
        if (++nodes > t->num_nodes)
            return rad_fail(err, RAD_E_CORRUPT, "radix_check: the walk does not end");
        pages += n->pages;
        if (radix_on_device(t, id)) *(n->lock_ref ? &locked : &evictable) += n->pages;
        unlocked += radix_is_unlocked(t, id);
    }
    if (nodes > t->limits.max_nodes)
        return rad_fail(err, RAD_E_CORRUPT, "radix_check: %u nodes, %u at most", nodes,
                        t->limits.max_nodes);
    for (uint32_t id = 1; id <= t->spans.num_fresh; id++)
        refs += t->spans.spans[id].refs;
    if (refs != nodes)
        return rad_fail(err, RAD_E_CORRUPT, "radix_check: %u users of spans, %u nodes", refs,
                        nodes);
    if (nodes + roots != t->ids.num_live || nodes != t->children.count)
        return rad_fail(err, RAD_E_CORRUPT, "radix_check: %u nodes and %u roots, %u live, %u filed",
                        nodes, roots, t->ids.num_live, t->children.count);
    if (evictable != t->evictable || locked != t->locked || unlocked != t->unlocked_nodes)
        return rad_fail(err, RAD_E_CORRUPT,
                        "radix_check: %llu evictable and %llu locked pages, %u unlocked nodes; the "
                        "counters say %llu, %llu, %u",
                        (unsigned long long)evictable, (unsigned long long)locked, unlocked,
                        (unsigned long long)t->evictable, (unsigned long long)t->locked,
                        t->unlocked_nodes);
    if (t->spans.capacity - t->spans.free_units != pages)
        return rad_fail(err, RAD_E_CORRUPT, "radix_check: spans hold %u pages, nodes %llu",
                        t->spans.capacity - t->spans.free_units, (unsigned long long)pages);
    for (uint32_t i = 0; i < t->num_parts; i++)
        if (t->parts[i].ops->check) {
            rad_status status = t->parts[i].ops->check(t->parts[i].self, t, err);
            if (status) return status;
        }
    return RAD_OK;
}
