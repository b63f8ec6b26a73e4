/* match_handle.c - positions in the tree as values, and inserts that start at one.
 *
 * A handle is (node, tokens from the root). A node's depth never grows while it keeps its
 * name: eviction takes tokens off its end, a split leaves it the deep half, a merge gives
 * it what stood above. So a live name whose node is still deep enough names the same
 * tokens as on the day the handle was made, and one walk up the parents finds them. */
#include <radish/match_handle.h>

#include "cache/radix_cache.h"
#include "cache/radix_path.h"

rad_status radix_cache_seek(const radix_cache *c, rad_ref name, uint32_t pages, radix_pos *pos)
{
    const radix_tree *t = &c->tree;
    *pos = (radix_pos){.pages = pages};
    if (!name.index && !name.generation) return pages ? RAD_E_STATE : RAD_OK;
    if (!radix_is_ref(t, name) || !radix_on_device(t, name.index)) return RAD_E_STATE;
    radix_path p = radix_path_of(t, name.index, radix_depth(t, name.index));
    if (p.end < pages) return RAD_E_STATE;
    while (radix_path_is(t, &p) && p.begin >= pages)
        radix_path_up(t, &p);
    pos->node = p.node;
    if (p.end == pages) return RAD_OK;
    pos->child = p.node;
    pos->node = t->nodes[p.node].parent;
    pos->part = pages - p.begin;
    return RAD_OK;
}

static rad_status seek(const rad_cache *cache, const rad_match_handle *h, radix_pos *pos)
{
    const radix_cache *c = radix_cache_of(cache);
    if (!h || h->num_tokens % cache->page_size) return RAD_E_INVAL;
    *pos = (radix_pos){0};
    if (!c) return h->num_tokens || h->node.index ? RAD_E_STATE : RAD_OK;
    return radix_cache_seek(c, h->node, h->num_tokens / cache->page_size, pos);
}

rad_status rad_cache_match_handle(rad_cache *cache, const rad_key *key, rad_match_handle *handle)
{
    radix_cache *c = radix_cache_of(cache);
    if (!handle || !cache_key_is_sound(key)) return RAD_E_INVAL;
    *handle = (rad_match_handle){0};
    uint32_t root = c ? radix_cache_root(c, key) : 0;
    uint32_t num_pages = c ? radix_cache_pages(c, key) : 0;
    if (!root || !num_pages) return RAD_OK;
    radix_tree *t = &c->tree;
    uint64_t now = ++t->clock;
    radix_pos pos = radix_match(t, root, radix_cache_tokens(c, key), num_pages, now, NULL);
    namespace_touch(&t->names, t->nodes[root].ns, pos.pages > 0);
    if (pos.child) t->nodes[pos.child].last_access = now;
    radix_used(t, pos.child ? pos.child : pos.node);
    radix_components_used(t, pos.child ? pos.child : pos.node, 0);
    handle->node = radix_cache_ref(c, pos.child ? pos.child : pos.node);
    handle->num_tokens = pos.pages * cache->page_size;
    return RAD_OK;
}

static rad_status refuse_handle(const rad_match_handle *h, rad_status status, rad_error *err)
{
    if (!h) return rad_fail(err, status, "match_handle: no handle");
    return rad_fail(err, status,
                    "match_handle: node %u (generation %u) does not hold %u tokens: the handle is "
                    "stale, or another cache's",
                    h->node.index, h->node.generation, h->num_tokens);
}

rad_status rad_match_handle_lock(rad_cache *cache, const rad_match_handle *handle,
                                 rad_receipt *receipt, rad_error *err)
{
    radix_pos pos;
    rad_status status = seek(cache, handle, &pos);
    if (status) return refuse_handle(handle, status, err);
    radix_cache *c = radix_cache_of(cache);
    rad_ref node = handle->node;
    if (c && c->tree.num_components && pos.pages) { /* they need what is before the prefix's end */
        radix_tree *t = &c->tree;
        radix_pos usable = pos;
        if (pos.child && !radix_nodes_available(t))
            return rad_fail(err, RAD_FULL, "match_handle: no node left to lock %u tokens apart",
                            handle->num_tokens);
        radix_usable(t, &usable);
        if (usable.pages != pos.pages)
            return rad_fail(err, RAD_E_STATE,
                            "match_handle: node %u (generation %u): the window before its %u "
                            "tokens' end was given back",
                            handle->node.index, handle->node.generation, handle->num_tokens);
        if (pos.child)
            pos.node = radix_split(t, pos.child, pos.part, t->nodes[pos.child].last_access);
        node = radix_cache_ref(c, pos.node); /* the handle's own may end behind a later cut */
    }
    return rad_cache_inc_lock_ref(cache, node, receipt, err);
}

rad_status rad_match_handle_slots(const rad_cache *cache, const rad_match_handle *handle,
                                  uint32_t first, uint32_t count, rad_slot *slots)
{
    const radix_cache *c = radix_cache_of(cache);
    radix_pos pos;
    rad_status status = seek(cache, handle, &pos);
    if (status) return status;
    if (first > handle->num_tokens || count > handle->num_tokens - first || (count && !slots))
        return RAD_E_INVAL;
    if (!count) return RAD_OK;
    const radix_tree *t = &c->tree;
    uint32_t ps = cache->page_size, left = first + count;
    /* From the back: positions [first, left) are still to be written. */
    for (radix_path p = radix_path_to(t, &pos); left > first; radix_path_up(t, &p)) {
        uint32_t begin = p.begin * ps, from = RAD_MAX(first, begin);
        if (from >= left) continue;
        page_runs_expand_part(&t->env, t->regions + t->nodes[p.node].at, from - begin, left - from,
                              ps, slots + (from - first));
        left = from;
    }
    return RAD_OK;
}

rad_status rad_match_handle_common(const rad_cache *cache, const rad_match_handle *a,
                                   const rad_match_handle *b, uint32_t *num_tokens)
{
    const radix_cache *c = radix_cache_of(cache);
    radix_pos pos;
    rad_status status = seek(cache, a, &pos);
    if (!status) status = seek(cache, b, &pos);
    if (status) return status;
    if (!num_tokens) return RAD_E_INVAL;
    *num_tokens = 0;
    if (!a->num_tokens || !b->num_tokens) return RAD_OK;
    const radix_tree *t = &c->tree;
    uint32_t x = a->node.index, y = b->node.index;
    uint32_t x_end = radix_depth(t, x), y_end = radix_depth(t, y);
    while (x != y) { /* the deeper one climbs; of two equally deep ones both do */
        bool climb_x = x_end >= y_end, climb_y = y_end >= x_end;
        if (!x_end && !y_end) return RAD_OK; /* two roots */
        if (climb_x) {
            x_end -= t->nodes[x].pages;
            x = t->nodes[x].parent;
        }
        if (climb_y) {
            y_end -= t->nodes[y].pages;
            y = t->nodes[y].parent;
        }
    }
    uint32_t common = x_end * cache->page_size;
    common = RAD_MIN(common, a->num_tokens);
    *num_tokens = RAD_MIN(common, b->num_tokens);
    return RAD_OK;
}

/* Whether the key's page that ends at `pos` is the tree's. */
static bool last_page_agrees(const radix_cache *c, const rad_key *key, radix_pos pos)
{
    const radix_tree *t = &c->tree;
    size_t ps = c->base.page_size;
    const radix_node *n = &t->nodes[pos.child ? pos.child : pos.node];
    const rad_token *ours = radix_tokens(t, n) + ((pos.child ? pos.part : n->pages) - 1) * ps;
    const rad_token *theirs = radix_cache_tokens(c, key) + (pos.pages - 1) * ps;
    if (c->bigram && pos.pages == 1 && key->tokens[0] != radix_lead(t, n)) return false;
    return memcmp(ours, theirs, ps * sizeof *ours) == 0;
}

rad_status rad_cache_insert_from(rad_cache *cache, rad_match_handle *at, const rad_key *key,
                                 const rad_slot *slots, const rad_insert_params *params,
                                 rad_inserted *inserted, rad_error *err)
{
    radix_cache *c = radix_cache_of(cache);
    rad_inserted unused;
    if (!inserted) inserted = &unused;
    *inserted = (rad_inserted){0};
    if (!at || !cache_key_is_sound(key) || (!slots && key->num_tokens > at->num_tokens))
        return rad_fail(err, RAD_E_INVAL,
                        "match_handle: no handle, or a key without tokens, or without slots");
    if (!c) return rad_fail(err, RAD_E_UNSUPPORTED, "match_handle: this cache has no tree");
    radix_pos pos;
    rad_status status = seek(cache, at, &pos);
    if (status) return refuse_handle(at, status, err);
    uint32_t root = radix_cache_root(c, key), num_pages = radix_cache_pages(c, key);
    if (pos.pages) {
        if (pos.pages > num_pages || !root ||
            c->tree.nodes[pos.node].ns != c->tree.nodes[root].ns || !last_page_agrees(c, key, pos))
            return rad_fail(err, RAD_E_STATE,
                            "match_handle: node %u (generation %u) with %u tokens is not on the "
                            "key's path",
                            at->node.index, at->node.generation, at->num_tokens);
    }
    bool below_root = pos.pages && c->tree.nodes[pos.node].parent;
    radix_insert cursor = {.from = below_root ? pos.node : 0,
                           .from_pages = below_root ? pos.pages - pos.part : 0,
                           .slots_from = pos.pages};
    status = radix_cache_insert(c, key, slots, params, &cursor, inserted, err);
    if (status) return status;
    for (rad_cache *outer = cache; outer; outer = outer->inner)
        if (outer->ops->inserted) outer->ops->inserted(outer, key, params, inserted);
    *at = (rad_match_handle){.node = inserted->node, .num_tokens = num_pages * cache->page_size};
    return radix_cache_take_drop_status(c);
}

rad_status rad_cache_match_spans(rad_cache *cache, const rad_key *key, rad_page_span *spans,
                                 uint32_t max, uint32_t *count, rad_match *match)
{
    radix_cache *c = radix_cache_of(cache);
    if (!count || (max && !spans)) return RAD_E_INVAL;
    *count = 0;
    rad_status status = rad_cache_match_prefix(cache, key, NULL, match, NULL);
    if (status || !c || !match->prefix_tokens) return status;
    const radix_tree *t = &c->tree;
    uint32_t ps = cache->page_size, end = match->prefix_tokens / ps, runs = 0;
    uint32_t over = radix_depth(t, match->last_node.index) - end;
    for (int writing = 0; writing < 2; writing++) {
        uint32_t first = end, run = runs; /* of the run that the walk up is in */
        for (uint32_t id = match->last_node.index; t->nodes[id].parent;) {
            const radix_node *n = &t->nodes[id], *p = &t->nodes[n->parent];
            uint32_t last = first;
            if (!writing) page_runs_make_plain(t->regions + n->at, n->pages);
            for (first -= n->pages - (id == match->last_node.index ? over : 0);
                 p->parent && p->at + p->pages == n->at; p = &t->nodes[n->parent]) {
                id = n->parent; /* the two halves of a split lie side by side */
                n = p;
                first -= n->pages;
                if (!writing) page_runs_make_plain(t->regions + n->at, n->pages);
            }
            if (!writing)
                runs++;
            else if (--run < max)
                spans[run] = (rad_page_span){t->regions + n->at, last - first, first * ps};
            id = n->parent;
        }
    }
    *count = runs;
    return RAD_OK;
}
