/* radix_evict.c - giving pages and nodes back, coldest first.
 *
 * The heap of leaves is lazy. A leaf is filed when it becomes evictable; when it is
 * locked, gets a child or is used again, nothing happens until it comes to the top:
 * there it is dropped, or filed anew under its present key. So a match and a lock do
 * not touch the heap, and each correction at the top is paid for by the lock, child or
 * use that made it necessary.
 *
 * On a tier: what the other tier has stays in the tree for it (leave_tier); under write_back what
 * the host lacks is saved first (host.save).
 *
 * Victims lose exactly what is asked, from their tails: the front of a prompt is worth
 * more than its end, to its own next turn as to its siblings. */
#include "cache/radix_host.h"
#include "cache/radix_journal.h"
#include "cache/radix_state.h"
#include "cache/radix_window.h"

static bool is_evictable_leaf(const radix_tree *t, uint32_t node, radix_tier tier)
{
    return tier == RADIX_DEVICE ? radix_is_evictable_leaf(t, node)
                                : radix_is_evictable_host_leaf(t, node);
}

uint32_t radix_coldest_leaf(radix_tree *t, radix_tier tier)
{
    heap *leaves = tier == RADIX_DEVICE ? &t->leaves : &t->host.leaves;
    bool grows = (tier == RADIX_DEVICE ? t->policy : t->host.policy)->grows;
    while (leaves->count) {
        heap_entry top = leaves->entries[0];
        uint32_t id = heap_entry_id(&top);
        if (!is_evictable_leaf(t, id, tier)) {
            heap_remove(leaves, id);
            continue;
        }
        if (!grows) return id; /* refiled whenever it changed */
        heap_key key = radix_leaf_key(t, id, tier);
        if (key == heap_entry_key(&top)) return id;
        heap_rekey(leaves, id, key);
    }
    return 0;
}

static bool parts_equal(const radix_tree *t, uint32_t upper, uint32_t lower)
{
    for (uint32_t i = 0; i < t->num_parts; i++)
        if (t->parts[i].ops->equal && !t->parts[i].ops->equal(t->parts[i].self, t, upper, lower))
            return false;
    return true;
}

static bool parts_can_merge(const radix_tree *t, uint32_t upper, uint32_t lower)
{
    for (uint32_t i = 0; i < t->num_parts; i++)
        if (t->parts[i].ops->can_merge &&
            !t->parts[i].ops->can_merge(t->parts[i].self, t, upper, lower))
            return false;
    return true;
}

/* Whether a node and its only child are what a split made of one node: they differ in nothing. */
static bool is_one_node(const radix_tree *t, uint32_t parent, uint32_t child)
{
    const radix_node *p = &t->nodes[parent], *c = &t->nodes[child];
    return c->span == p->span && c->lock_ref == p->lock_ref && c->hit_count == p->hit_count &&
           c->last_access == p->last_access && c->priority == p->priority &&
           parts_equal(t, parent, child);
}

void radix_rejoin(radix_tree *t, uint32_t node)
{
    const radix_node *n = &t->nodes[node];
    if (n->parent && n->num_children == 1 && is_one_node(t, node, n->first_child))
        radix_merge(t, node, n->first_child);
}

void radix_child_is_gone(radix_tree *t, uint32_t parent)
{
    radix_node *p = &t->nodes[parent];
    if (!p->parent) {
        radix_drop_root_if_empty(t, parent);
        return;
    }
    radix_consider_leaf(t, parent);
    if (t->host.of) radix_host_consider_leaf(t, parent);
    radix_rejoin(t, parent);
}

/* What dropping a leaf reads lies in places that were not touched for long: each is a miss,
 * and where one has to come before the next is known, they add up. So it is asked for ahead,
 * in two steps: the nodes that stand next to the top of the heap when an eviction begins,
 * what these point to when it ends. A wrong guess costs nothing. */
static void prefetch_heirs(const radix_tree *t)
{
    for (uint32_t i = 1; i < RAD_MIN(t->leaves.count, 1u + HEAP_ARITY); i++)
        __builtin_prefetch(&t->nodes[heap_entry_id(&t->leaves.entries[i])], 1);
}

static void prefetch_leaf(const radix_tree *t, const heap_entry *entry)
{
    const radix_node *n = &t->nodes[heap_entry_id(entry)];
    __builtin_prefetch(t->regions + n->at, 1);
    __builtin_prefetch(&t->spans.spans[n->span], 1);
    __builtin_prefetch(&t->nodes[n->parent], 1);
    map_prefetch(&t->children, n->hash);
}

/* The top is often the rest of a leaf that lost its tail: then its heir goes next. */
static void prefetch_next(const radix_tree *t)
{
    const heap_entry *e = t->leaves.entries;
    uint32_t end = RAD_MIN(t->leaves.count, 1u + HEAP_ARITY), heir = 1;
    if (!end) return;
    prefetch_leaf(t, &e[0]);
    for (uint32_t i = 2; i < end; i++)
        if (e[i].key_and_id < e[heir].key_and_id) heir = i;
    if (heir < end) prefetch_leaf(t, &e[heir]);
}

/* The leaf's pages behind the first `kept` are on the other tier alone from now on: the leaf's
 * child there takes them over, or they become a node of their own. `kept` 0: the node itself stays
 * for the other tier. */
static void leave_tier(radix_tree *t, uint32_t leaf, radix_tier tier, uint32_t kept)
{
    radix_node *n = &t->nodes[leaf];
    if (kept && radix_host_shift(t, leaf, kept, tier == RADIX_HOST)) return;
    if (kept) (void)radix_split(t, leaf, kept, n->last_access); /* `leaf` names the deep half now */
    uint32_t parent = n->parent;
    if (tier == RADIX_HOST) {
        radix_leave_host(t, leaf);
        radix_rejoin(t, leaf);
        radix_host_consider_leaf(t, parent);
    } else {
        radix_leave_device(t, leaf);
        radix_rejoin(t, leaf);
        radix_consider_leaf(t, parent);
    }
}

uint32_t radix_trim(radix_tree *t, uint32_t leaf, radix_tier tier, uint64_t num_pages,
                    radix_drop_fn drop, void *user)
{
    radix_node *n = &t->nodes[leaf];
    RAD_ASSERT_ENV(&t->env, is_evictable_leaf(t, leaf, tier));
    /* write_back: the last chance to copy it, or its window, where the host has the pages alone.
     * Saving evicts on the host, which may heal a cut above: the leaf may be longer afterwards, so
     * its length is read only then. */
    if (tier == RADIX_DEVICE && t->host.save &&
        (!radix_on_host(t, leaf) || radix_window_is_unsaved(t, leaf) ||
         radix_state_is_unsaved(t, leaf)))
        t->host.save(t->host.user, leaf, (uint32_t)RAD_MIN(num_pages, (uint64_t)n->pages));
    bool stays = radix_is_on(t, leaf, tier == RADIX_DEVICE ? RADIX_HOST : RADIX_DEVICE);
    uint32_t count = (uint32_t)RAD_MIN(num_pages, (uint64_t)n->pages);
    if (stays && !radix_can_cut(t)) count = n->pages; /* no node for a cut: all of it */
    uint32_t kept = n->pages - count;
    kv_run runs[PAGE_RUNS];
    rad_page *region = radix_regions(t, tier) + n->at;
    uint32_t num_runs = page_runs_tail(region, kept, runs);
    /* Before the node changes: the allocator and the parts read these pages in its region. */
    drop(user, num_runs ? NULL : region + kept, runs, num_runs ? num_runs : count);
    RADIX_TELL(t, on_cut, leaf, tier, kept);
    *(tier == RADIX_DEVICE ? &t->evictable : &t->host.evictable) -= count;
    if (stays)
        leave_tier(t, leaf, tier, kept);
    else
        radix_cut_leaf(t, leaf, kept, region);
    return count;
}

void radix_cut_leaf(radix_tree *t, uint32_t leaf, uint32_t kept, rad_page *region)
{
    radix_node *n = &t->nodes[leaf];
    uint32_t count = n->pages - kept, parent = n->parent;
    RADIX_TELL(t, on_trim, leaf, kept);
    n->pages = kept;
    if (kept) {
        page_runs_cut(region, kept);
        RAD_ASSERT_ENV(&t->env, n->at + kept + count ==
                                    t->spans.spans[n->span].at + t->spans.spans[n->span].len);
        span_cut_tail(&t->spans, n->span, count);
        radix_refile_used(t, leaf);
    } else {
        radix_leave_span(t, n->span, n->at, count);
        radix_unhook(t, leaf);
        radix_child_is_gone(t, parent);
    }
}

void radix_drop_leaf(radix_tree *t, uint32_t leaf, radix_drop_fn drop, void *user)
{
    void (*save)(void *, uint32_t, uint32_t) = t->host.save;
    t->host.save = NULL;
    radix_trim(t, leaf, RADIX_DEVICE, t->nodes[leaf].pages, drop, user);
    t->host.save = save;
}

void radix_before_eviction(radix_tree *t)
{
    for (uint32_t i = 0; i < t->num_parts; i++)
        if (t->parts[i].ops->on_evict) t->parts[i].ops->on_evict(t->parts[i].self, t);
}

uint64_t radix_evict(radix_tree *t, uint64_t num_pages, radix_drop_fn drop, void *user)
{
    uint64_t done = 0;
    radix_before_eviction(t);
    for (uint32_t leaf; done < num_pages && (leaf = radix_coldest_leaf(t, RADIX_DEVICE));) {
        prefetch_heirs(t);
        done += radix_trim(t, leaf, RADIX_DEVICE, num_pages - done, drop, user);
    }
    prefetch_next(t);
    return done;
}

/* Whether `node` and the one above it could be one node: nothing else hangs there, and
 * the same receipts hold both. */
static bool can_join_parent(const radix_tree *t, uint32_t node)
{
    const radix_node *n = &t->nodes[node], *p = &t->nodes[n->parent];
    return n->parent && p->parent && p->num_children == 1 && p->lock_ref == n->lock_ref &&
           (p->span == n->span || p->pages + n->pages <= t->spans.free_units) &&
           parts_can_merge(t, n->parent, node);
}

/* Nodes that merging along the path to `node` would free. */
static uint32_t count_joints(const radix_tree *t, uint32_t node)
{
    uint32_t joints = 0;
    for (uint32_t id = node; id; id = t->nodes[id].parent)
        joints += can_join_parent(t, id);
    return joints;
}

/* Merges along the path to `node` until `nodes` are available. */
static void merge_path(radix_tree *t, uint32_t node, uint32_t nodes)
{
    for (uint32_t id = node; id && radix_nodes_available(t) < nodes;)
        if (!can_join_parent(t, id) || !radix_merge(t, t->nodes[id].parent, id))
            id = t->nodes[id].parent;
}

/* Joins a cold leaf with the node above it, of which it is the only child: costs the
 * tree a point where it could be cut, and no token. Looks at the top of the heap, where
 * the cold ones are. */
static bool merge_cold_chain(radix_tree *t)
{
    uint32_t best = 0;
    heap_key best_key = 0;
    uint32_t end = RAD_MIN(t->leaves.count, 64u);
    for (uint32_t i = 0; i < end; i++) {
        uint32_t id = heap_entry_id(&t->leaves.entries[i]);
        if (!radix_is_evictable_leaf(t, id) || !can_join_parent(t, id)) continue;
        heap_key key = t->policy->grows ? radix_leaf_key(t, id, RADIX_DEVICE)
                                        : heap_key_of(&t->leaves, id);
        if (!best || key < best_key) {
            best = id;
            best_key = key;
        }
    }
    return best && radix_merge(t, t->nodes[best].parent, best);
}

/* The least useful namespace that is not in use, 0 when all are. Those in use, which are no more
 * than there are locks, are set aside and put back. */
static uint32_t take_least_namespace(const radix_tree *t, namespaces *names)
{
    uint32_t ns, in_use = 0;
    while ((ns = namespaces_take_least(names)) && !radix_is_unlocked(t, names->entries[ns].root)) {
        names->worth[ns].next = in_use;
        in_use = ns;
    }
    for (uint32_t next; in_use; in_use = next) {
        next = names->worth[in_use].next;
        namespaces_put_back(names, in_use);
    }
    return ns;
}

/* A node without children and locks goes, from all tiers. Nothing of it is saved. */
static void drop_node(radix_tree *t, uint32_t leaf, radix_drop_fn drop, void *user)
{
    bool has_host = radix_on_host(t, leaf);
    if (radix_on_device(t, leaf)) radix_drop_leaf(t, leaf, drop, user);
    if (has_host) radix_host_drop_leaf(t, leaf);
}

/* Gives up the least useful namespace with all that is in it. */
static bool drop_least_namespace(radix_tree *t, radix_drop_fn drop, void *user)
{
    uint32_t ns = take_least_namespace(t, &t->names), before = t->names.ids.num_live;
    if (!ns) return false;
    uint32_t root = t->names.entries[ns].root;
    namespaces_give_up(&t->names, ns);
    while (t->names.ids.num_live == before) {
        uint32_t leaf = t->nodes[root].first_child;
        while (t->nodes[leaf].num_children)
            leaf = t->nodes[leaf].first_child;
        drop_node(t, leaf, drop, user);
    }
    return true;
}

static bool can_drop(const radix_tree *t, uint32_t leaf)
{
    return leaf && !t->nodes[leaf].num_children && radix_is_unlocked(t, leaf);
}

/* A node goes to make room for another: the coldest leaf of the device, or, where the host has more
 * behind that, the host's; then any that has nothing behind it. False: there is none. */
static bool drop_some_node(radix_tree *t, radix_drop_fn drop, void *user)
{
    uint32_t leaf = radix_coldest_leaf(t, RADIX_DEVICE);
    if (t->host.of && !can_drop(t, leaf)) leaf = radix_coldest_leaf(t, RADIX_HOST);
    for (uint32_t id = 1; t->host.of && !can_drop(t, leaf) && id <= t->ids.num_fresh; id++)
        leaf = slab_is_live(&t->ids, id) && t->nodes[id].parent ? id : 0;
    if (!can_drop(t, leaf)) leaf = 0;
    if (leaf) drop_node(t, leaf, drop, user);
    return leaf != 0;
}

/* What is needed is compared with all that could be had before anything is evicted, so
 * that a no leaves the tree as it was. */
bool radix_make_room(radix_tree *t, uint32_t nodes, uint32_t pages, bool root, uint32_t pin,
                     radix_drop_fn drop, void *user)
{
    radix_before_eviction(t);
    if (pin) radix_lock(t, pin);
    bool ok = t->locked + pages <= t->limits.max_pages;
    if (ok && radix_nodes_available(t) + t->unlocked_nodes < nodes)
        ok = radix_nodes_available(t) + t->unlocked_nodes + count_joints(t, pin) >= nodes;
    if (ok && root && !slab_available(&t->names.ids)) ok = drop_least_namespace(t, drop, user);
    while (ok && radix_nodes_available(t) < nodes)
        if (!merge_cold_chain(t) && !drop_some_node(t, drop, user)) break;
    if (ok) merge_path(t, pin, nodes);
    ok = ok && radix_nodes_available(t) >= nodes;
    uint64_t used = t->evictable + t->locked;
    t->kept_nodes = nodes;
    if (ok && used + pages > t->limits.max_pages)
        radix_evict(t, used + pages - t->limits.max_pages, drop, user);
    t->kept_nodes = 0;
    if (pin) radix_unlock(t, pin);
    return ok;
}

void radix_clear_device(radix_tree *t, radix_drop_fn drop, void *user)
{
    void (*save)(void *, uint32_t, uint32_t) = t->host.save;
    uint32_t depth;
    if (t->journal) t->journal->muted = true; /* nothing of it is told as an eviction, */
    t->host.save = NULL;                      /* nor kept from it */
    for (uint32_t ns = 1; ns <= t->names.ids.num_fresh; ns++)
        if (slab_is_live(&t->names.ids, ns)) t->nodes[t->names.entries[ns].root].lock_ref = 0;
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));) {
        bool was_unlocked = radix_is_unlocked(t, id);
        t->nodes[id].lock_ref = t->cold[id].own = 0;
        t->unlocked_nodes += radix_is_unlocked(t, id) && !was_unlocked;
        radix_consider_leaf(t, id);
    }
    for (uint32_t i = 0; i < t->num_components; i++)
        if (t->components[i].ops->forget_locks)
            t->components[i].ops->forget_locks(t->components[i].self, t);
    t->evictable += t->locked;
    t->locked = 0;
    (void)radix_evict(t, UINT64_MAX, drop, user);
    t->host.save = save;
    if (!t->journal) return;
    t->journal->muted = false;
    radix_journal_cleared(t->journal, true, false);
}
