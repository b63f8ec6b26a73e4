/* swa_insert.c - pages enter the tree of a sliding-window cache.
 *
 *     key      | in the tree already, and here again | fresh ...
 *              from                                  pos.pages          pages
 *     tree     | o     .     o |                          o: with a window side
 *     comes    | o     o     . | o   o                    .: a tombstone
 *     stays    | tree  new   tree | new
 *
 * A tombstone that a lock holds is in use and cannot be exchanged: what comes ends before it.
 *
 * Invariant, verified by check: a bit of `cached` is set for exactly the pages of the tree. */
#include "cache/swa_cache_impl.h"

/* What lies between `from` and the end of what the tree has: the first page of which the
 * tombstone is in use and the one that comes is better. */
static uint32_t first_conflict(const rad_swa_cache *c, radix_pos pos, const rad_slot *slots,
                               uint32_t from)
{
    const radix_tree *t = &c->tree;
    uint32_t best = UINT32_MAX, end = pos.pages, ps = c->page_size;
    uint32_t id = pos.child ? pos.child : pos.node, len = pos.child ? pos.part : t->nodes[id].pages;
    for (; t->nodes[id].parent && end > from; id = t->nodes[id].parent, len = t->nodes[id].pages) {
        const radix_node *n = &t->nodes[id];
        for (uint32_t k = len; k > 0 && end > from; k--) {
            end--;
            if (n->lock_ref && !swa_has(c, t->regions[n->at + k - 1]) &&
                swa_has(c, slots[(size_t)(end - from) * ps] / (rad_slot)ps))
                best = end;
        }
    }
    return best;
}

/* The pages [from, end) of the slots and of the path to `node`, which ends at page `end`, become
 * the same; of each pair one is freed. */
static rad_status unite(rad_swa_cache *c, uint32_t node, uint32_t end, rad_slot *slots,
                        uint32_t from, rad_error *err)
{
    radix_tree *t = &c->tree;
    uint32_t ps = c->page_size;
    rad_status status = RAD_OK;
    for (uint32_t id = node; end > from; id = t->nodes[id].parent) {
        const radix_node *n = &t->nodes[id];
        uint32_t start = end - n->pages;
        for (uint32_t p = RAD_MAX(start, from); p < end; p++) {
            rad_page *theirs = &t->regions[n->at + p - start];
            rad_slot *place = slots + (size_t)(p - from) * ps;
            rad_page ours = *place / (rad_slot)ps, loser = ours;
            if (ours == *theirs) continue;
            if (!swa_has(c, *theirs) && swa_has(c, ours)) {
                loser = *theirs;
                swa_forget_pages(c, &loser, 1);
                *theirs = ours;
                bits_set(c->cached, (size_t)ours);
                c->swa_cached++;
                swa_file_window(c, id);
            } else {
                radix_expand(t, theirs, 1, place);
            }
            rad_status freed = rad_swa_free(c->kv, &loser, 1, err);
            if (!status) status = freed;
        }
        end = start;
    }
    return status;
}

static void unclaim(rad_swa_cache *c, const rad_slot *slots, uint32_t pages)
{
    for (uint32_t i = 0; i < pages; i++)
        bits_flip(c->cached, (size_t)slots[(size_t)i * c->page_size] / c->page_size);
}

/* Marks the pages as the tree's; false, and none is, when one stands there twice. */
static bool claim(rad_swa_cache *c, const rad_slot *slots, uint32_t pages)
{
    for (uint32_t i = 0; i < pages; i++) {
        size_t page = (size_t)slots[(size_t)i * c->page_size] / c->page_size;
        if (bits_get(c->cached, page)) {
            unclaim(c, slots, i);
            return false;
        }
        bits_flip(c->cached, page);
    }
    return true;
}

rad_status swa_insert(rad_swa_cache *c, const swa_insertion *what, uint32_t *end,
                      uint32_t *published, rad_error *err)
{
    radix_tree *t = &c->tree;
    uint32_t ps = c->page_size, pages = what->pages, from = what->from;
    const rad_key *key = what->key;
    rad_slot *slots = what->slots;
    *end = *published = 0;
    if (!pages) return RAD_OK;
    if (!namespace_fits(key->extra_key, key->cache_salt)) return RAD_FULL;
    uint32_t root = swa_root(c, key);
    radix_pos pos = root ? radix_walk(t, root, key->tokens, pages) : (radix_pos){0};
    if (pos.pages < from)
        return rad_fail(err, RAD_E_STATE, "swa_cache: the tree does not have the %u pages before",
                        from);
    uint32_t conflict = root ? first_conflict(c, pos, slots, from) : UINT32_MAX;
    if (conflict != UINT32_MAX) {
        pages = conflict;
        if (!pages) return RAD_OK;
        pos = radix_walk(t, root, key->tokens, pages);
    }
    uint32_t fresh = pages - pos.pages;
    uint64_t merges = t->merges;
    const rad_slot *news = slots + (size_t)(pos.pages - from) * ps;
    if (!claim(c, news, fresh)) return rad_fail(err, RAD_E_STATE, "swa_cache: a page stands twice");
    if (!radix_make_room(t, (pos.child != 0) + (fresh != 0), fresh, !root,
                         pos.child ? pos.child : pos.node, swa_drop, c)) {
        unclaim(c, news, fresh);
        if (root) radix_drop_root_if_empty(t, root);
        return RAD_FULL;
    }
    if (t->merges != merges) pos = radix_walk(t, root, key->tokens, pages);

    t->clock++;
    if (!root) pos.node = root = radix_add_root(t, key->extra_key, key->cache_salt);
    namespace_touch(&t->names, t->nodes[root].ns, false);
    if (pos.child) {
        pos.node = radix_split(t, pos.child, pos.part, t->clock);
        swa_file_window(c, pos.node);
    }
    for (uint32_t id = pos.node; id; id = t->nodes[id].parent) {
        t->nodes[id].last_access = t->clock;
        t->nodes[id].priority = RAD_MAX(t->nodes[id].priority, what->priority);
    }
    rad_status status = unite(c, pos.node, pos.pages, slots, from, err);
    *end = pos.node;
    *published = pages;
    if (fresh) {
        *end = radix_add_leaf(t, pos.node, key->tokens + (size_t)pos.pages * ps, news, fresh, NULL,
                              0, what->priority);
        c->swa_cached += swa_pages_of(c, *end);
        t->window_used[*end] = t->clock;
        swa_file_window(c, *end);
    }
    swa_use_window(c, *end, fresh);
    return status;
}
