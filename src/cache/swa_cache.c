/* swa_cache.c - one tree, two sides.
 *
 * The tree holds full pages and knows nothing of windows. A page's window side is in the
 * allocator's map, so a tombstone is no state here: a split, a merge and an eviction have
 * nothing to carry over. Only locks of the window side have a count of their own for each
 * node (tree.window_lock): a segment of whole nodes, from the locked node upwards until a
 * window is covered.
 *
 *     root -- [ a ] -- [ b ] -- [ c ]     window = c and half of b
 *     lock      1        1        1
 *     window    0        1        1       boundary: where b starts
 *
 * The boundary is kept as a position. A split of b copies its count to both halves, and
 * the upper one starts at the same position: so the way back finds all of the segment. Only
 * nodes with equal counts are merged.
 *
 * Invariants, verified by check: window_lock <= lock_ref; `swa_cached` and `swa_locked`
 * are the pages of the tree with a window side, and those of them in nodes with a window
 * lock; each cached page is handed out. Nodes with an unlocked window side are in the heap
 * `windows` with a key that is not above their own, unless nodes were merged since. */
#include "cache/swa_cache_impl.h"

#include "base/params.h"

void swa_forget_pages(rad_swa_cache *c, const rad_page *pages, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        c->swa_cached -= swa_has(c, pages[i]);
        bits_flip(c->cached, (size_t)pages[i]);
    }
}

/* Pages leave the tree, in which they stand one by one: they are looked at and exchanged one
 * by one, and each has a map entry of its own anyway. */
void swa_drop(void *user, const rad_page *pages, const kv_run *runs, uint32_t count)
{
    rad_swa_cache *c = user;
    (void)runs;
    swa_forget_pages(c, pages, count);
    rad_status status = rad_swa_free(c->kv, pages, count, NULL);
    if (status && !c->drop_status) c->drop_status = status;
}

uint32_t swa_pages_of(const rad_swa_cache *c, uint32_t node)
{
    const radix_node *n = &c->tree.nodes[node];
    uint32_t count = 0;
    for (uint32_t i = 0; i < n->pages; i++)
        count += swa_has(c, c->tree.regions[n->at + i]);
    return count;
}

/* --- match --- */

uint32_t swa_usable(const rad_swa_cache *c, uint32_t node, uint32_t part, uint32_t pages,
                    uint32_t floor, uint32_t *end, uint32_t *at)
{
    const radix_tree *t = &c->tree;
    uint32_t best = pages, i = pages, len = part ? part : t->nodes[node].pages;
    *end = node;
    *at = len;
    for (uint32_t id = node; t->nodes[id].parent;
         id = t->nodes[id].parent, len = t->nodes[id].pages)
        for (uint32_t k = len; k > 0; k--) {
            if (best - i >= c->window || i <= floor) return best;
            i--;
            if (swa_has(c, t->regions[t->nodes[id].at + k - 1])) continue;
            best = i;
            *end = k > 1 ? id : t->nodes[id].parent;
            *at = k > 1 ? k - 1 : t->nodes[*end].pages;
        }
    return best;
}

rad_status rad_swa_cache_match_prefix(rad_swa_cache *c, const rad_key *key, rad_slot *slots,
                                      rad_match *match)
{
    radix_tree *t = &c->tree;
    if (!match || !cache_key_is_sound(key)) return RAD_E_INVAL;
    *match = (rad_match){0};
    uint32_t root = swa_root(c, key), num_pages = key->num_tokens / c->page_size;
    if (!root || !num_pages) return RAD_OK;
    uint64_t now = ++t->clock;
    radix_pos pos = radix_match(t, root, key->tokens, num_pages, now, slots);
    namespace_touch(&t->names, t->nodes[root].ns, pos.pages > 0);
    uint32_t node, at, last = pos.child ? pos.child : pos.node;
    uint32_t pages = swa_usable(c, last, pos.part, pos.pages, 0, &node, &at);
    if (!pages) return RAD_OK;
    if (at < t->nodes[node].pages) {
        if (radix_nodes_available(t)) {
            node = radix_split(t, node, at, now);
            swa_file_window(c, node);
        } else { /* no place to cut: end above it, where a window may be missing too */
            uint32_t above = t->nodes[node].parent;
            pages = swa_usable(c, above, 0, pages - at, 0, &node, &at);
            while (pages && at < t->nodes[node].pages) {
                above = t->nodes[node].parent;
                pages = swa_usable(c, above, 0, pages - at, 0, &node, &at);
            }
        }
    }
    if (!pages) return RAD_OK;
    swa_use_window(c, node, 0);
    match->prefix_tokens = pages * c->page_size;
    match->last_node = (rad_ref){node, t->ids.generation[node]};
    return RAD_OK;
}

/* --- locks --- */

/* Adds 1 to the window locks of the segment that ends with `node`, at page `end`, and goes
 * up to the node that starts at or before `from`; or takes 1 away. */
static void lock_window(rad_swa_cache *c, uint32_t node, uint32_t end, uint32_t from, bool on)
{
    radix_tree *t = &c->tree;
    for (uint32_t id = node; t->nodes[id].parent && end > from; id = t->nodes[id].parent) {
        bool changes = on ? t->window_lock[id]++ == 0 : --t->window_lock[id] == 0;
        if (changes && on) c->swa_locked += swa_pages_of(c, id);
        if (changes && !on) {
            c->swa_locked -= swa_pages_of(c, id);
            swa_file_window(c, id);
        }
        end -= t->nodes[id].pages;
    }
}

rad_swa_receipt swa_lock_from(rad_swa_cache *c, uint32_t node, uint32_t want)
{
    radix_tree *t = &c->tree;
    uint32_t end = swa_depth(t, node), from = end;
    for (uint32_t id = node; t->nodes[id].parent && (end - from < c->window || from > want);
         id = t->nodes[id].parent)
        from -= t->nodes[id].pages;
    radix_lock(t, node);
    lock_window(c, node, end, from, true);
    return (rad_swa_receipt){
        .node = {node, t->ids.generation[node]}, .held = 1, .from_tokens = from * c->page_size};
}

rad_swa_receipt swa_lock_node(rad_swa_cache *c, uint32_t node)
{
    return swa_lock_from(c, node, UINT32_MAX);
}

static bool is_root(rad_ref r)
{
    return !r.index && !r.generation;
}

rad_status rad_swa_cache_inc_lock_ref(rad_swa_cache *c, rad_ref node, rad_swa_receipt *receipt,
                                      rad_error *err)
{
    if (!receipt) return rad_fail(err, RAD_E_INVAL, "swa_cache: no place for the receipt");
    if (is_root(node)) {
        *receipt = (rad_swa_receipt){.held = 1};
        return RAD_OK;
    }
    if (!radix_is_ref(&c->tree, node))
        return radix_refuse_ref(&c->tree, "swa inc_lock_ref", node, err);
    uint32_t ns = c->tree.nodes[node.index].ns;
    if (c->tree.nodes[c->tree.names.entries[ns].root].lock_ref == UINT32_MAX)
        return rad_fail(err, RAD_E_LIMIT,
                        "swa inc_lock_ref: node %u (generation %u): too many locks", node.index,
                        node.generation);
    *receipt = swa_lock_node(c, node.index);
    return RAD_OK;
}

/* Whether the segment from `from_tokens` to the node's end is one that can have been locked:
 * it begins where a node does, covers a window or all there is, and each of its nodes has
 * a window lock. (A receipt is the caller's memory: what it says is checked, so that no count
 * goes below zero.) O(depth). */
static bool segment_holds(const rad_swa_cache *c, const rad_swa_receipt *r)
{
    const radix_tree *t = &c->tree;
    uint32_t end = swa_depth(t, r->node.index), at = end, from = r->from_tokens / c->page_size;
    if (r->from_tokens % c->page_size || from >= end) return false;
    for (uint32_t id = r->node.index; t->nodes[id].parent && at > from; id = t->nodes[id].parent) {
        if (!t->window_lock[id]) return false;
        at -= t->nodes[id].pages;
    }
    return at == from && (!from || end - from >= c->window);
}

bool swa_receipt_holds(const rad_swa_cache *c, const rad_swa_receipt *r)
{
    if (!r->held) return false;
    return is_root(r->node) || (radix_is_ref(&c->tree, r->node) &&
                                c->tree.cold[r->node.index].own && segment_holds(c, r));
}

rad_status rad_swa_cache_dec_lock_ref(rad_swa_cache *c, rad_swa_receipt *receipt, rad_error *err)
{
    if (!receipt) return rad_fail(err, RAD_E_INVAL, "swa_cache: no receipt");
    if (!swa_receipt_holds(c, receipt)) {
        rad_ref r = receipt->node;
        if (receipt->held && radix_is_ref(&c->tree, r) && c->tree.cold[r.index].own)
            return rad_fail(err, RAD_E_STATE,
                            "swa dec_lock_ref: node %u (generation %u) has no window locked from "
                            "position %u on",
                            r.index, r.generation, receipt->from_tokens);
        return radix_refuse_ref(&c->tree, "swa dec_lock_ref", r, err);
    }
    uint32_t node = receipt->node.index;
    if (node) {
        uint32_t end = swa_depth(&c->tree, node);
        lock_window(c, node, end, receipt->from_tokens / c->page_size, false);
        radix_unlock(&c->tree, node);
    }
    *receipt = (rad_swa_receipt){0};
    return RAD_OK;
}

/* --- eviction --- */

/* The order looks at when a window could last have been used, and not at when somebody walked
 * through, as every turn of a chat does through all that was said before:
 *
 *     long chat    | turn 1 . . . | turn 2 . . . | turn 3 . w w w |     window = 3
 *     short chat   | . w w w |
 *
 * First go pages that are before no known end (the dots), those walked through least recently
 * before others; then the windows before ends (w), by when a match or an insert ended there. An
 * end at which a chat was continued is one no more, until another match ends there. */
void swa_use_window(rad_swa_cache *c, uint32_t node, uint32_t fresh)
{
    radix_tree *t = &c->tree;
    uint64_t old_window = fresh ? (uint64_t)fresh + c->window : 0, back = 0;
    for (uint32_t id = node; t->nodes[id].parent; id = t->nodes[id].parent) {
        if (back < c->window) {
            t->window_used[id] = t->clock;
        } else {
            /* Behind a fork others may end. */
            if (back >= old_window || t->nodes[id].num_children != 1) return;
            t->window_used[id] = 0;
            if (heap_contains(&c->windows, id)) swa_file_window(c, id);
        }
        back += t->nodes[id].pages;
    }
}

/* How many pages at the front of the node stand before more than a window of its own; 0 when none
 * of them has a window side any more. O(pages). */
static uint32_t dead_pages(const rad_swa_cache *c, uint32_t node)
{
    const radix_node *n = &c->tree.nodes[node];
    uint32_t front = n->pages > c->window ? n->pages - c->window : 0;
    for (uint32_t i = 0; i < front; i++)
        if (swa_has(c, c->tree.regions[n->at + i])) return front;
    return 0;
}

/* Takes the window side of up to `most` of the node's first `front` pages. */
static uint64_t make_tombstones(rad_swa_cache *c, uint32_t node, uint32_t front, uint64_t most)
{
    const radix_node *n = &c->tree.nodes[node];
    uint64_t done = 0;
    for (uint32_t i = 0; i < front && done < most; i++) {
        rad_page page = c->tree.regions[n->at + i];
        if (!swa_has(c, page)) continue;
        rad_status status = rad_swa_free_swa(c->kv, &page, 1, NULL);
        if (status && !c->drop_status) c->drop_status = status;
        c->swa_cached--;
        done++;
    }
    return done;
}

/* A merge may have given pages to a node that was taken out of the heap. */
static void file_all(rad_swa_cache *c)
{
    uint32_t depth;
    if (c->merges == c->tree.merges) return;
    for (uint32_t id = 0; (id = radix_next(&c->tree, id, &depth));)
        swa_file_window(c, id);
    c->merges = c->tree.merges;
}

static uint64_t evict_windows(rad_swa_cache *c, uint64_t pages)
{
    radix_tree *t = &c->tree;
    uint64_t done = 0;
    file_all(c);
    while (done < pages && c->windows.count) {
        heap_entry top = c->windows.entries[0];
        uint32_t id = heap_entry_id(&top);
        if (!slab_is_live(&t->ids, id) || !t->nodes[id].parent || t->window_lock[id]) {
            heap_remove(&c->windows, id); /* filed again when it has something to give */
            continue;
        }
        uint32_t dead = dead_pages(c, id), front = dead ? dead : t->nodes[id].pages;
        heap_key key = dead ? (heap_key)t->nodes[id].last_access : swa_tail_key(c, id);
        if (key != heap_entry_key(&top)) {
            heap_rekey(&c->windows, id, key);
            continue;
        }
        uint64_t part = make_tombstones(c, id, front, pages - done);
        if (!dead && part < pages - done) heap_remove(&c->windows, id);
        done += part;
    }
    return done;
}

rad_status rad_swa_cache_evict(rad_swa_cache *c, uint64_t full_tokens, uint64_t swa_tokens,
                               rad_swa_evicted *evicted)
{
    uint32_t ps = c->page_size;
    uint64_t before = c->swa_cached;
    evict_windows(c, swa_tokens / ps + (swa_tokens % ps != 0));
    uint64_t full = radix_evict(&c->tree, full_tokens / ps + (full_tokens % ps != 0), swa_drop, c);
    if (evicted)
        *evicted = (rad_swa_evicted){.full_tokens = full * ps,
                                     .swa_tokens = (before - c->swa_cached) * ps};
    return swa_take_drop_status(c);
}

rad_swa_cache_sizes rad_swa_cache_get_sizes(const rad_swa_cache *c)
{
    uint64_t ps = c->page_size;
    return (rad_swa_cache_sizes){.full_evictable = c->tree.evictable * ps,
                                 .full_protected = c->tree.locked * ps,
                                 .swa_evictable = (c->swa_cached - c->swa_locked) * ps,
                                 .swa_protected = c->swa_locked * ps};
}

rad_status rad_swa_cache_reset(rad_swa_cache *c)
{
    radix_tree *t = &c->tree;
    uint32_t depth;
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));)
        swa_drop(c, t->regions + t->nodes[id].at, NULL, t->nodes[id].pages);
    memset(t->window_lock, 0, ((size_t)t->num_nodes + 1) * sizeof *t->window_lock);
    memset(t->window_used, 0, ((size_t)t->num_nodes + 1) * sizeof *t->window_used);
    heap_clear(&c->windows);
    c->swa_locked = 0;
    radix_clear(t);
    return swa_take_drop_status(c);
}

/* --- create --- */

rad_status rad_swa_cache_create(const rad_env *env, const rad_swa_cache_params *params,
                                rad_swa_cache **out, rad_error *err)
{
    rad_swa_cache_params p;
    if (!out) return rad_fail(err, RAD_E_INVAL, "swa_cache: no place for the result");
    *out = NULL;
    rad_status status = rad_params_read(&p, sizeof p, params, "swa_cache", err);
    if (status) return status;
    if (!p.window_tokens || !p.allocator)
        return rad_fail(err, RAD_E_INVAL, "swa_cache: a window and an allocator are needed");
    uint32_t ps = rad_swa_page_size(p.allocator), num_pages = rad_swa_num_pages(p.allocator);
    radix_limits limits = {.page_size = ps,
                           .max_nodes = p.max_nodes ? p.max_nodes : num_pages,
                           .max_namespaces = p.max_namespaces ? p.max_namespaces
                                                              : RAD_MIN(num_pages, NAMESPACE_MOST),
                           .max_pages = num_pages};
    if ((uint64_t)limits.max_nodes + limits.max_namespaces > INT32_MAX / 2)
        return rad_fail(err, RAD_E_LIMIT, "swa_cache: %u nodes are too many", limits.max_nodes);
    rad_env full = rad_env_or_default(env);
    rad_swa_cache *c = rad_alloc(&full, sizeof *c);
    if (!c) return rad_fail(err, RAD_E_NOMEM, "swa_cache: no memory");
    c->env = full;
    c->kv = p.allocator;
    c->rows = p.req_to_token_pool;
    c->page_size = ps;
    c->window = p.window_tokens / ps + (p.window_tokens % ps != 0);
    c->num_pages = num_pages;
    bool ok = radix_tree_init(&c->tree, &full, &limits) == RAD_OK;
    ok = ok && heap_init(&c->windows, &full, c->tree.num_nodes);
    c->tree.window_lock =
        rad_alloc(&full, ((size_t)c->tree.num_nodes + 1) * sizeof *c->tree.window_lock);
    c->tree.window_used =
        rad_alloc(&full, ((size_t)c->tree.num_nodes + 1) * sizeof *c->tree.window_used);
    c->cached = rad_alloc(&full, bits_words((size_t)c->num_pages + 1) * sizeof *c->cached);
    if (!ok || !c->tree.window_lock || !c->tree.window_used || !c->cached) {
        rad_swa_cache_destroy(c);
        return rad_fail(err, RAD_E_NOMEM, "swa_cache: no memory for %u pages", num_pages);
    }
    *out = c;
    return RAD_OK;
}

void rad_swa_cache_destroy(rad_swa_cache *c)
{
    if (!c) return;
    rad_env env = c->env;
    rad_free(&env, c->tree.window_lock,
             ((size_t)c->tree.num_nodes + 1) * sizeof *c->tree.window_lock);
    rad_free(&env, c->tree.window_used,
             ((size_t)c->tree.num_nodes + 1) * sizeof *c->tree.window_used);
    rad_free(&env, c->cached, bits_words((size_t)c->num_pages + 1) * sizeof *c->cached);
    heap_fini(&c->windows);
    radix_tree_fini(&c->tree);
    rad_free(&env, c, sizeof *c);
}
