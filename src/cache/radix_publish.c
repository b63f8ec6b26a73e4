/* radix_publish.c - a key's pages enter the tree.
 *
 *     key      | cursor: not walked again | match | fresh: claimed, and a new leaf |
 *              0                          from    pos                              num_pages
 *
 * Order: the fresh pages are claimed before room is made, and given back when there is none;
 * making room may merge nodes on the path, and then its end is looked for anew. Until all is
 * certain nothing of the key is in the tree, so RAD_FULL leaves nothing of it behind. Pages that
 * the host alone has are in the tree already: their nodes get the fresh pages on the device.
 *
 * Hits: a node's hit_count tells how often later requests came back to it. A new node
 * has 0 and a match counts nothing; an insert adds 1 to the nodes it passes, except to
 * those younger than the request it belongs to (its own chunks, and what its neighbours
 * of the same batch put there). */
#include "cache/radix_cache.h"
#include "cache/radix_host.h"
#include "cache/radix_path.h"

/* The nodes from `node` up have been used by an insert. */
static void touch_path(radix_tree *t, uint32_t node, const radix_insert *how)
{
    for (uint32_t id = node; id; id = t->nodes[id].parent) {
        radix_node *n = &t->nodes[id];
        n->last_access = t->clock;
        n->priority = RAD_MAX(n->priority, how->priority);
        if (!how->count_hits || t->cold[id].created > how->before) continue;
        n->hit_count++;
        if (t->worth) t->worth[id].heat = evict_heat_add(t->worth[id].heat, t->heat_now);
    }
    radix_used(t, node);
}

/* Where the key's whole pages end in the tree, whatever tiers they are on; from the cursor if there
 * is one. */
static radix_pos find_end(const radix_cache *c, uint32_t root, const rad_key *key,
                          const radix_insert *how)
{
    const radix_tree *t = &c->tree;
    uint32_t ps = c->base.page_size, num_pages = radix_cache_pages(c, key);
    uint32_t from = how->from_pages;
    if (!root) return (radix_pos){0};
    const rad_token *tokens = radix_cache_tokens(c, key);
    if (!how->from || radix_depth(t, how->from) != from)
        return radix_walk(t, root, tokens, num_pages);
    radix_pos pos = radix_walk(t, how->from, tokens + (size_t)from * ps, num_pages - from);
    pos.pages += from;
    return pos;
}

/* With a handful of nodes the leaf in which the key ends may be all that could go. Then
 * it goes, and its part of the key enters anew with the caller's slots, which must be
 * theirs to give. Behind the match are `fresh` pages, at `slots`; returns how many pages
 * before them are to be inserted too, 0 when that does not help. */
static uint32_t give_up_own_leaf(radix_cache *c, const rad_slot *slots, uint32_t fresh,
                                 uint32_t floor, radix_pos *pos)
{
    radix_tree *t = &c->tree;
    uint32_t leaf = pos->child ? pos->child : pos->node, ps = c->base.page_size;
    uint32_t own = pos->child ? pos->part : t->nodes[leaf].pages, parent = t->nodes[leaf].parent;
    if (!leaf || !radix_is_evictable_leaf(t, leaf) || t->nodes[leaf].num_children ||
        radix_on_host(t, leaf) || pos->pages - own < floor)
        return 0;
    kv_run runs[PAGE_RUNS];
    uint32_t num_runs;
    slots -= (size_t)own * ps;
    if (radix_claim(c, slots, own, 0, runs, &num_runs, NULL)) return 0;
    radix_lock(t, parent); /* it is where the key goes on, and a leaf once `leaf` has gone */
    /* Asked before the leaf goes, since nothing brings it back: with every unlocked page evicted,
     * is there room? Then radix_make_room cannot say no. */
    bool ok = t->locked + own + fresh <= t->limits.max_pages;
    if (ok) {
        radix_drop_leaf(t, leaf, radix_cache_drop, c);
        ok = radix_make_room(t, 1, own + fresh, false, parent, radix_cache_drop, c);
        RAD_ASSERT_ENV(&t->env, ok);
        *pos = (radix_pos){.node = parent, .pages = pos->pages - own};
    } else {
        radix_unclaim(c, slots, own);
    }
    radix_unlock(t, parent);
    return ok ? own : 0;
}

rad_status radix_cache_publish(radix_cache *c, const rad_key *key, const rad_slot *slots,
                               const radix_insert *how, radix_inserted *result, rad_error *err)
{
    radix_tree *t = &c->tree;
    uint32_t ps = c->base.page_size, num_pages = radix_cache_pages(c, key);
    *result = (radix_inserted){0};
    if (!num_pages) return RAD_OK;
    if (!namespace_fits(key->extra_key, key->cache_salt))
        return rad_fail(err, RAD_E_LIMIT, "cache: extra_key and cache_salt are too long");

    uint32_t root = radix_cache_root(c, key), before = RAD_MAX(how->from_pages, how->slots_from);
    /* Without a root (0) the namespace is new, and no cursor can be in it: nodes[0].ns is none. */
    bool foreign = how->from && t->nodes[how->from].ns != t->nodes[root].ns;
    if (foreign || how->from_pages > num_pages)
        return rad_fail(err, RAD_E_STATE, "cache: node %u at %u tokens is not on the key's path",
                        how->from, how->from_pages * ps);
    /* Two ends: `pos` on any tier, `device` on the device. The pages from `device` on are fresh. Up
     * to `pos` they fill nodes that only the host has, behind it they make a new leaf. */
    radix_pos pos = find_end(c, root, key, how), device = pos;
    if (root) radix_to_tier(t, &device, RADIX_DEVICE);
    if (device.pages < before)
        return rad_fail(err, RAD_E_STATE,
                        "cache: the tree has %u of the %u tokens before the first slot",
                        device.pages * ps, before * ps);
    uint32_t fresh = num_pages - device.pages;
    slots += (size_t)(device.pages - how->slots_from) * ps; /* slots[0] is the first fresh page's */
    kv_run runs[PAGE_RUNS];
    uint32_t num_runs;
    /* Before anything is evicted: slots that are refused leave the tree as it was. */
    rad_status claimed = radix_claim(c, slots, fresh, device.pages * ps, runs, &num_runs, err);
    if (claimed) return claimed;

    uint32_t nodes = (pos.child != 0) + (pos.pages < num_pages); /* a split's, a leaf's */
    uint32_t pin = device.child ? device.child : device.node;
    uint32_t end = pos.child ? pos.child : pos.node; /* what the host alone has must stay too */
    /* Making room merges chains and cuts leaves, also on this path. Nodes then have other ids or
     * lengths, and `pos` is stale; counters and the cursor's generation tell. */
    uint64_t changes = t->merges + t->splits;
    uint32_t from_generation = how->from ? t->ids.generation[how->from] : 0;
    bool on_host = pos.pages > device.pages;
    if (on_host) radix_host_lock(t, end);
    bool room = radix_make_room(t, nodes, fresh, root == 0, pin, radix_cache_drop, c);
    if (on_host) radix_host_unlock(t, end);
    if (!room) {
        bool same = t->merges + t->splits == changes; /* else `pos` may name a node that is gone */
        uint32_t more = fresh && same && !on_host ? give_up_own_leaf(c, slots, fresh, before, &pos)
                                                  : 0;
        if (!more) {
            radix_unclaim(c, slots, fresh);
            if (root) radix_drop_root_if_empty(t, root);
            return RAD_FULL;
        }
        slots -= (size_t)more * ps; /* the pages of the leaf that went are fresh again */
        fresh += more;
        num_runs = page_runs_find(slots, fresh, ps, runs);
        device = pos;
    } else if (t->merges + t->splits != changes) {
        /* The path has other nodes, the cursor's perhaps not among them. */
        radix_insert again = *how;
        if (again.from && t->ids.generation[again.from] != from_generation) again.from = 0;
        device = pos = find_end(c, root, key, &again);
        if (root) radix_to_tier(t, &device, RADIX_DEVICE);
        if (device.pages != num_pages - fresh) { /* compared from the root it ends elsewhere */
            radix_unclaim(c, slots, fresh);
            return rad_fail(err, RAD_E_STATE, "cache: the tree has other tokens than the key");
        }
    }

    /* Memory, nodes and pages are there: nothing fails from here on. */
    t->clock++;
    if (!root) device.node = pos.node = root = radix_add_root(t, key->extra_key, key->cache_salt);
    namespace_touch(&t->names, t->nodes[root].ns, false);
    /* The key ends inside a node: cut there, so that its end has a name. */
    if (pos.child) pos.node = radix_split(t, pos.child, pos.part, t->clock);
    uint32_t adopted = pos.pages - device.pages;
    if (adopted) radix_adopt(t, pos.node, adopted, slots); /* what the host alone had */
    touch_path(t, pos.node, how);
    result->end = pos.node;
    result->matched_pages = device.pages;
    c->inserted += fresh;
    if (t->windows[RADIX_DEVICE] && device.pages > before)
        radix_unite_windows(c, adopted ? device.node : pos.node, device.pages,
                            slots - (size_t)(device.pages - before) * ps, before, how->window_from);
    for (radix_path p = radix_path_of(t, pos.node, pos.pages);
         t->windows[RADIX_DEVICE] && p.end > device.pages; radix_path_up(t, &p))
        radix_adopt_windows(c, p.node, p.begin, how->window_from);
    if (fresh > adopted) {
        const rad_token *rest = radix_cache_tokens(c, key) + (size_t)pos.pages * ps;
        slots += (size_t)adopted * ps;
        fresh -= adopted;
        if (adopted) num_runs = page_runs_find(slots, fresh, ps, runs); /* of the rest alone */
        result->end =
            radix_add_leaf(t, pos.node, rest, slots, fresh, runs, num_runs, how->priority);
        if (t->windows[RADIX_DEVICE])
            radix_adopt_windows(c, result->end, pos.pages, how->window_from);
    }
    radix_components_used(t, result->end, fresh);
    if (t->tags.refs && key->session) tags_move(t, key->session, result->end);
    return RAD_OK;
}

rad_status radix_cache_insert(radix_cache *c, const rad_key *key, const rad_slot *slots,
                              const rad_insert_params *params, const radix_insert *cursor,
                              rad_inserted *inserted, rad_error *err)
{
    static const rad_insert_params defaults;
    const rad_insert_params *p = params ? params : &defaults;
    uint32_t ps = c->base.page_size;
    radix_insert how = *cursor;
    radix_inserted result;
    if (p->window_from && !(c->list.num_pages && c->tree.windows[RADIX_DEVICE]))
        return rad_fail(err, RAD_E_INVAL,
                        "cache: window_from %u is for caches with windows and a free list",
                        p->window_from);
    how.before = UINT64_MAX;
    how.count_hits = !p->chunked;
    how.priority = p->priority;
    how.window_from = p->window_from / ps + (p->window_from % ps != 0);
    uint64_t before = c->tree.evictable;
    rad_status status = radix_cache_publish(c, key, slots, &how, &result, err);
    inserted->evictable_change = (int64_t)(c->tree.evictable - before) * ps;
    if (status) return status;
    inserted->prefix_tokens = result.matched_pages * ps;
    inserted->node = radix_cache_ref(c, result.end);
    return RAD_OK;
}

rad_status radix_insert_key(rad_cache *cache, const rad_key *key, const rad_slot *slots,
                            const rad_insert_params *params, rad_inserted *inserted, rad_error *err)
{
    radix_cache *c = (radix_cache *)cache;
    radix_insert from_root = {0};
    rad_status status = radix_cache_insert(c, key, slots, params, &from_root, inserted, err);
    return status ? status : radix_cache_take_drop_status(c);
}
