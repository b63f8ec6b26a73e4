/* radix_publish.c - a key's pages enter the tree.
 *
 *     key      | cursor: not walked again | match | fresh: claimed, and a new leaf |
 *              0                          from    pos                              num_pages
 *
 * Order: the fresh pages are claimed before room is made, and given back when there is none;
 * making room may merge nodes on the path, and then its end is looked for anew. Until all is
 * certain nothing of the key is in the tree, so RAD_FULL leaves nothing of it behind. Pages that
 * the host alone has are in the tree already: their nodes get the fresh pages on the device (radix_adopt).
 *
 * Hits: a node's hit_count tells how often later requests came back to it. A new node
 * has 0 and a match counts nothing; an insert adds 1 to the nodes it passes, except to
 * those younger than the request it belongs to (its own chunks, and what its neighbours
 * of the same batch put there). */
#include "cache/radix_cache.h"
#include "cache/radix_host.h"
#include "cache/radix_tags.h"
#include "cache/radix_path.h"

/* A key on its way in. */
typedef struct publication {
    const rad_key *key;
    const radix_insert *how;
    const rad_slot *slots; /* of the first fresh page and those behind it */
    uint32_t num_pages;    /* of the key */
    uint32_t before;       /* page of the key that the caller's slots begin with, or the cursor's */
    uint32_t root;         /* 0: the namespace is new */

    /* Where the tree ends on any tier, and on the device. The pages from `device` on are fresh: up
     * to `pos` they fill nodes that only the host has, behind it they make a new leaf. */
    radix_pos pos, device;
    uint32_t fresh;
    uint32_t num_runs;
    kv_run runs[PAGE_RUNS]; /* of the fresh pages */
} publication;

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

/* Finds both ends, from this cursor if it is one (`from` 0: none). */
static void find_ends(const radix_cache *c, publication *p, uint32_t from)
{
    const radix_tree *t = &c->tree;
    uint32_t from_pages = p->how->from_pages;
    const rad_token *tokens = radix_cache_tokens(c, p->key);
    p->pos = (radix_pos){0};
    if (from && radix_depth(t, from) == from_pages) {
        tokens += (size_t)from_pages * c->base.page_size;
        p->pos = radix_walk(t, from, tokens, p->num_pages - from_pages);
        p->pos.pages += from_pages;
    } else if (p->root) {
        p->pos = radix_walk(t, p->root, tokens, p->num_pages);
    }
    p->device = p->pos;
    if (p->root) radix_to_tier(t, &p->device, RADIX_DEVICE);
}

/* With a handful of nodes the leaf in which the key ends may be all that could go. Then
 * it goes, and its part of the key enters anew with the caller's slots, which must be
 * theirs to give. False, and nothing changed: that does not help. */
static bool give_up_own_leaf(radix_cache *c, publication *p)
{
    radix_tree *t = &c->tree;
    radix_pos *pos = &p->pos;
    uint32_t leaf = pos->child ? pos->child : pos->node, parent = t->nodes[leaf].parent;
    uint32_t own = pos->child ? pos->part : t->nodes[leaf].pages;
    if (!leaf || !radix_is_evictable_leaf(t, leaf) || t->nodes[leaf].num_children ||
        radix_on_host(t, leaf) || pos->pages - own < p->before)
        return false;
    const rad_slot *slots = p->slots - (size_t)own * c->base.page_size;
    if (radix_claim(c, slots, own, 0, p->runs, &p->num_runs, NULL)) return false;
    /* Asked before the leaf goes, since nothing brings it back: with every unlocked page evicted,
     * is there room? Then radix_make_room cannot say no. */
    radix_lock(t, parent); /* it is where the key goes on, and a leaf once `leaf` has gone */
    bool ok = t->locked + own + p->fresh <= t->limits.max_pages;
    if (ok) {
        radix_drop_leaf(t, leaf, radix_cache_drop, c);
        ok = radix_make_room(t, 1, own + p->fresh, false, parent, radix_cache_drop, c);
        RAD_ASSERT_ENV(&t->env, ok);
        p->device = *pos = (radix_pos){.node = parent, .pages = pos->pages - own};
        p->slots = slots;
        p->fresh += own;
        p->num_runs = page_runs_find(slots, p->fresh, c->base.page_size, p->runs);
    } else {
        radix_unclaim(c, slots, own);
    }
    radix_unlock(t, parent);
    return ok;
}

/* Where the key goes on, and what it brings. Nothing is changed. */
static rad_status begin(radix_cache *c, publication *p, const rad_slot *slots, rad_error *err)
{
    const radix_tree *t = &c->tree;
    const radix_insert *how = p->how;
    size_t ps = c->base.page_size;
    p->root = radix_cache_root(c, p->key);
    p->before = RAD_MAX(how->from_pages, how->slots_from);
    /* Without a root (0) the namespace is new, and no cursor can be in it: nodes[0].ns is none. */
    bool foreign = how->from && t->nodes[how->from].ns != t->nodes[p->root].ns;
    if (foreign || how->from_pages > p->num_pages)
        return rad_fail(err, RAD_E_STATE, "cache: node %u at %zu tokens is not on the key's path",
                        how->from, how->from_pages * ps);
    find_ends(c, p, how->from);
    if (p->device.pages < p->before)
        return rad_fail(err, RAD_E_STATE,
                        "cache: the tree has %zu of the %zu tokens before the first slot",
                        p->device.pages * ps, p->before * ps);
    p->fresh = p->num_pages - p->device.pages;
    p->slots = slots + (p->device.pages - how->slots_from) * ps;
    return RAD_OK;
}

/* Nodes and pages for what is fresh, and the ends where they are afterwards. */
static rad_status make_room(radix_cache *c, publication *p, rad_error *err)
{
    radix_tree *t = &c->tree;
    uint32_t nodes = (p->pos.child != 0) + (p->pos.pages < p->num_pages); /* a split's, a leaf's */
    uint32_t pin = p->device.child ? p->device.child : p->device.node;
    uint32_t end = p->pos.child ? p->pos.child : p->pos.node;
    bool on_host = p->pos.pages > p->device.pages; /* what the host alone has must stay too */
    /* Making room merges chains and cuts leaves, also on this path. Nodes then have other ids or
     * lengths, and the ends are stale; counters and the cursor's generation tell. */
    uint64_t changes = t->merges + t->splits;
    uint32_t from = p->how->from, generation = from ? t->ids.generation[from] : 0;
    if (on_host) radix_host_lock(t, end);
    bool room = radix_make_room(t, nodes, p->fresh, !p->root, pin, radix_cache_drop, c);
    if (on_host) radix_host_unlock(t, end);
    bool same = t->merges + t->splits == changes;
    if (room && same) return RAD_OK;
    if (room) { /* the path has other nodes, the cursor's perhaps not among them */
        find_ends(c, p, from && t->ids.generation[from] == generation ? from : 0);
        if (p->device.pages == p->num_pages - p->fresh) return RAD_OK;
        /* Compared from the root it ends elsewhere: the cursor was another key's. */
        return rad_fail(err, RAD_E_STATE, "cache: the tree has other tokens than the key");
    }
    /* Where something changed, the end may be a node that has gone. */
    if (p->fresh && same && !on_host && give_up_own_leaf(c, p)) return RAD_OK;
    if (p->root) radix_drop_root_if_empty(t, p->root);
    return RAD_FULL;
}

/* Memory, nodes and pages are there: nothing fails from here on. */
static void enter(radix_cache *c, publication *p, radix_inserted *result)
{
    radix_tree *t = &c->tree;
    const rad_key *key = p->key;
    uint32_t ps = c->base.page_size, window_from = p->how->window_from;
    bool windows = t->windows[RADIX_DEVICE] != NULL;
    radix_pos *pos = &p->pos, *device = &p->device;
    t->clock++;
    if (!p->root)
        device->node = pos->node = p->root = radix_add_root(t, key->extra_key, key->cache_salt);
    namespace_touch(&t->names, t->nodes[p->root].ns, false);
    /* The key ends inside a node: cut there, so that its end has a name. */
    if (pos->child) pos->node = radix_split(t, pos->child, pos->part, t->clock);
    uint32_t adopted = pos->pages - device->pages, end = pos->node;
    if (adopted) radix_adopt(t, end, adopted, p->slots); /* what the host alone had */
    touch_path(t, end, p->how);
    c->inserted += p->fresh;
    if (windows && device->pages > p->before)
        radix_unite_windows(c, adopted ? device->node : end, device->pages,
                            p->slots - (size_t)(device->pages - p->before) * ps, p->before,
                            window_from);
    for (radix_path path = radix_path_of(t, end, pos->pages); windows && path.end > device->pages;
         radix_path_up(t, &path))
        radix_adopt_windows(c, path.node, path.begin, window_from);
    uint32_t rest = p->fresh - adopted;
    if (rest) {
        const rad_token *tokens = radix_cache_tokens(c, key) + (size_t)pos->pages * ps;
        const rad_slot *slots = p->slots + (size_t)adopted * ps;
        if (adopted) p->num_runs = page_runs_find(slots, rest, ps, p->runs); /* of these alone */
        end = radix_add_leaf(t, end, tokens, slots, rest, p->runs, p->num_runs, p->how->priority);
        if (windows) radix_adopt_windows(c, end, pos->pages, window_from);
    }
    radix_components_used(t, end, rest ? rest : p->fresh);
    if (key->session) tags_move(t, key->session, end);
    *result = (radix_inserted){.matched_pages = device->pages, .end = end};
}

rad_status radix_cache_publish(radix_cache *c, const rad_key *key, const rad_slot *slots,
                               const radix_insert *how, radix_inserted *result, rad_error *err)
{
    publication p; /* not initialized as a whole: its runs are two kilobytes */
    p.key = key;
    p.how = how;
    p.num_pages = radix_cache_pages(c, key);
    *result = (radix_inserted){0};
    if (!p.num_pages) return RAD_OK;
    if (!namespace_fits(key->extra_key, key->cache_salt))
        return rad_fail(err, RAD_E_LIMIT, "cache: extra_key and cache_salt are too long");
    rad_status status = begin(c, &p, slots, err);
    if (status) return status;
    /* Before anything is evicted: slots that are refused leave the tree as it was. */
    status = radix_claim(c, p.slots, p.fresh, p.device.pages * c->base.page_size, p.runs,
                         &p.num_runs, err);
    if (status) return status;
    status = make_room(c, &p, err);
    if (status)
        radix_unclaim(c, p.slots, p.fresh);
    else
        enter(c, &p, result);
    return status;
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
