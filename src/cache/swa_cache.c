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
 * `windows` with a time that is not later than their own, unless nodes were merged since. */
#include <radish/swa_cache.h>

#include "base/bits.h"
#include "base/params.h"
#include "cache/radix_tree.h"

struct rad_swa_cache {
    rad_env env;
    radix_tree tree;
    rad_swa_allocator *kv;
    rad_req_to_token_pool *rows;
    uint32_t page_size;
    uint32_t window; /* pages */
    uint32_t num_pages;
    heap windows;
    uint64_t *cached; /* a bit for each page of the tree */
    uint64_t swa_cached;
    uint64_t swa_locked;
    uint64_t merges; /* the tree's when `windows` was complete */
    rad_status drop_status;
};

static bool has_swa(const rad_swa_cache *c, rad_page page)
{
    return rad_swa_has_swa(c->kv, page);
}

static void forget_pages(rad_swa_cache *c, const rad_page *pages, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        c->swa_cached -= has_swa(c, pages[i]);
        bits_flip(c->cached, (size_t)pages[i]);
    }
}

/* Pages leave the tree, in which they stand one by one: they are looked at and exchanged one
 * by one, and each has a map entry of its own anyway. */
static void drop(void *user, const rad_page *pages, const kv_run *runs, uint32_t count)
{
    rad_swa_cache *c = user;
    (void)runs;
    forget_pages(c, pages, count);
    rad_status status = rad_swa_free(c->kv, pages, count, NULL);
    if (status && !c->drop_status) c->drop_status = status;
}

static rad_status take_drop_status(rad_swa_cache *c)
{
    rad_status status = c->drop_status;
    c->drop_status = RAD_OK;
    return status;
}

static uint32_t find_root(const rad_swa_cache *c, const rad_key *key)
{
    if (!namespace_fits(key->extra_key, key->cache_salt)) return 0;
    uint32_t ns = namespace_find(&c->tree.names, key->extra_key, key->cache_salt);
    return ns ? c->tree.names.entries[ns].root : 0;
}

static uint32_t depth_of(const radix_tree *t, uint32_t node)
{
    uint32_t pages = 0;
    for (uint32_t id = node; id; id = t->nodes[id].parent)
        pages += t->nodes[id].pages;
    return pages;
}

static uint32_t swa_pages_of(const rad_swa_cache *c, uint32_t node)
{
    const radix_node *n = &c->tree.nodes[node];
    uint32_t count = 0;
    for (uint32_t i = 0; i < n->pages; i++)
        count += has_swa(c, c->tree.regions[n->at + i]);
    return count;
}

static void file_window(rad_swa_cache *c, uint32_t node)
{
    if (!heap_contains(&c->windows, node))
        heap_push(&c->windows, node, c->tree.nodes[node].last_access);
}

static bool key_is_sound(const rad_key *key)
{
    return key && (key->tokens || !key->num_tokens) && key->num_tokens <= INT32_MAX;
}

/* --- match --- */

/* The longest front of the `pages` pages that end in `node` (or in its first `part`, when
 * that is not 0) behind which a window is there; *end is the node in which it ends and
 * *at how many of its pages it has. */
static uint32_t usable(const rad_swa_cache *c, uint32_t node, uint32_t part, uint32_t pages,
                       uint32_t *end, uint32_t *at)
{
    const radix_tree *t = &c->tree;
    uint32_t best = pages, i = pages, len = part ? part : t->nodes[node].pages;
    *end = node;
    *at = len;
    for (uint32_t id = node; t->nodes[id].parent;
         id = t->nodes[id].parent, len = t->nodes[id].pages)
        for (uint32_t k = len; k > 0; k--) {
            if (best - i >= c->window) return best;
            i--;
            if (has_swa(c, t->regions[t->nodes[id].at + k - 1])) continue;
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
    if (!match || !key_is_sound(key)) return RAD_E_INVAL;
    *match = (rad_match){0};
    uint32_t root = find_root(c, key), num_pages = key->num_tokens / c->page_size;
    if (!root || !num_pages) return RAD_OK;
    uint64_t now = ++t->clock;
    namespace_touch(&t->names, t->nodes[root].ns);
    radix_pos pos = radix_match(t, root, key->tokens, num_pages, now, slots);
    uint32_t node, at, last = pos.child ? pos.child : pos.node;
    uint32_t pages = usable(c, last, pos.part, pos.pages, &node, &at);
    if (!pages) return RAD_OK;
    if (at < t->nodes[node].pages) {
        if (radix_nodes_available(t)) {
            node = radix_split(t, node, at, now);
            file_window(c, node);
        } else { /* no place to cut: end above it, where a window may be missing too */
            uint32_t above = t->nodes[node].parent;
            pages = usable(c, above, 0, pages - at, &node, &at);
            while (pages && at < t->nodes[node].pages) {
                above = t->nodes[node].parent;
                pages = usable(c, above, 0, pages - at, &node, &at);
            }
        }
    }
    if (!pages) return RAD_OK;
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
            file_window(c, id);
        }
        end -= t->nodes[id].pages;
    }
}

static rad_swa_receipt lock_node(rad_swa_cache *c, uint32_t node)
{
    radix_tree *t = &c->tree;
    uint32_t end = depth_of(t, node), from = end;
    for (uint32_t id = node; t->nodes[id].parent && end - from < c->window;
         id = t->nodes[id].parent)
        from -= t->nodes[id].pages;
    radix_lock(t, node);
    lock_window(c, node, end, from, true);
    return (rad_swa_receipt){
        .node = {node, t->ids.generation[node]}, .held = 1, .from_tokens = from * c->page_size};
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
    *receipt = lock_node(c, node.index);
    return RAD_OK;
}

/* Whether the segment from `from_tokens` to the node's end is one that can have been locked:
 * it begins where a node does, covers a window or all there is, and each of its nodes has
 * a window lock. (A receipt is the caller's memory: what it says is checked, so that no count
 * goes below zero.) O(depth). */
static bool segment_holds(const rad_swa_cache *c, const rad_swa_receipt *r)
{
    const radix_tree *t = &c->tree;
    uint32_t end = depth_of(t, r->node.index), at = end, from = r->from_tokens / c->page_size;
    if (r->from_tokens % c->page_size || from >= end) return false;
    for (uint32_t id = r->node.index; t->nodes[id].parent && at > from; id = t->nodes[id].parent) {
        if (!t->window_lock[id]) return false;
        at -= t->nodes[id].pages;
    }
    return at == from && (!from || end - from >= c->window);
}

static bool receipt_holds(const rad_swa_cache *c, const rad_swa_receipt *r)
{
    if (!r->held) return false;
    return is_root(r->node) || (radix_is_ref(&c->tree, r->node) &&
                                c->tree.cold[r->node.index].own && segment_holds(c, r));
}

rad_status rad_swa_cache_dec_lock_ref(rad_swa_cache *c, rad_swa_receipt *receipt, rad_error *err)
{
    if (!receipt) return rad_fail(err, RAD_E_INVAL, "swa_cache: no receipt");
    if (!receipt_holds(c, receipt)) {
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
        uint32_t end = depth_of(&c->tree, node);
        lock_window(c, node, end, receipt->from_tokens / c->page_size, false);
        radix_unlock(&c->tree, node);
    }
    *receipt = (rad_swa_receipt){0};
    return RAD_OK;
}

/* --- eviction --- */

/* Takes the window side of up to `most` pages at the front of the node. */
static uint64_t make_tombstones(rad_swa_cache *c, uint32_t node, uint64_t most)
{
    const radix_node *n = &c->tree.nodes[node];
    uint64_t done = 0;
    for (uint32_t i = 0; i < n->pages && done < most; i++) {
        rad_page page = c->tree.regions[n->at + i];
        if (!has_swa(c, page)) continue;
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
        file_window(c, id);
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
        if (t->nodes[id].last_access != heap_entry_key(&top)) {
            heap_rekey(&c->windows, id, t->nodes[id].last_access);
            continue;
        }
        uint64_t part = make_tombstones(c, id, pages - done);
        if (part < pages - done) heap_remove(&c->windows, id);
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
    uint64_t full = radix_evict(&c->tree, full_tokens / ps + (full_tokens % ps != 0), drop, c);
    if (evicted)
        *evicted = (rad_swa_evicted){.full_tokens = full * ps,
                                     .swa_tokens = (before - c->swa_cached) * ps};
    return take_drop_status(c);
}

/* --- requests --- */

static rad_status check_req(const rad_swa_cache *c, const rad_swa_req *req, rad_error *err)
{
    uint32_t ps = c->page_size;
    if (!req || !key_is_sound(&req->key))
        return rad_fail(err, RAD_E_INVAL, "swa_cache: no request");
    if (req->lock.held ? !receipt_holds(c, &req->lock) : req->protected_len != 0)
        return rad_fail(err, RAD_E_STATE,
                        "swa_cache: row %u: its lock (node %u) is stale or missing", req->row,
                        req->lock.node.index);
    if (!req->row) {
        if (!req->allocated_len && !req->committed_len) return RAD_OK;
        return rad_fail(err, RAD_E_INVAL, "swa_cache: %u positions without a row",
                        req->allocated_len);
    }
    if (!rad_req_to_token_is_taken(c->rows, req->row))
        return rad_fail(err, RAD_E_STATE, "swa_cache: row %u is not handed out", req->row);
    if (req->protected_len > req->committed_len || req->committed_len > req->allocated_len ||
        req->allocated_len > rad_req_to_token_row_tokens(c->rows) ||
        req->committed_len > req->key.num_tokens || req->protected_len % ps ||
        req->swa_evicted_len > req->committed_len || req->swa_evicted_len % ps)
        return rad_fail(err, RAD_E_INVAL,
                        "swa_cache: row %u: %u protected, %u committed, %u allocated positions, %u "
                        "tokens and %u out of the window do not go together",
                        req->row, req->protected_len, req->committed_len, req->allocated_len,
                        req->key.num_tokens, req->swa_evicted_len);
    const rad_slot *row = rad_req_to_token_row(c->rows, req->row);
    for (uint32_t i = req->protected_len; i < req->allocated_len; i++) {
        rad_slot first = row[i - i % ps];
        rad_page page = first / (rad_slot)ps;
        if (first < 0 || (uint32_t)first % ps || (uint32_t)row[i] != (uint32_t)first + i % ps ||
            !rad_swa_is_taken(c->kv, page) || bits_get(c->cached, (size_t)page))
            return rad_fail(err, RAD_E_STATE,
                            "swa_cache: row %u: slot %d at position %u is not the request's own",
                            req->row, row[i], i);
    }
    return RAD_OK;
}

rad_status rad_swa_cache_free_out_of_window(rad_swa_cache *c, rad_swa_req *req, rad_error *err)
{
    rad_status status = check_req(c, req, err);
    uint32_t ps = c->page_size;
    uint64_t keep = (uint64_t)c->window * ps; /* past 2^32 when all is in the window */
    if (status || req->committed_len <= keep) return status;
    uint32_t to = (req->committed_len - (uint32_t)keep) / ps * ps;
    uint32_t from = RAD_MAX(req->protected_len, req->swa_evicted_len);
    if (to <= req->swa_evicted_len) return RAD_OK;
    if (from < to)
        status = rad_swa_free_swa_slots(c->kv, rad_req_to_token_row(c->rows, req->row) + from,
                                        to - from, err);
    if (!status) req->swa_evicted_len = to;
    return status;
}

/* What lies between the request's protected positions and the end of what the tree has:
 * the first page of which the tombstone is in use and the request's own is better. */
static uint32_t first_conflict(const rad_swa_cache *c, radix_pos pos, const rad_slot *row,
                               uint32_t from)
{
    const radix_tree *t = &c->tree;
    uint32_t best = UINT32_MAX, end = pos.pages, ps = c->page_size;
    uint32_t id = pos.child ? pos.child : pos.node, len = pos.child ? pos.part : t->nodes[id].pages;
    for (; t->nodes[id].parent && end > from; id = t->nodes[id].parent, len = t->nodes[id].pages) {
        const radix_node *n = &t->nodes[id];
        for (uint32_t k = len; k > 0 && end > from; k--) {
            end--;
            if (n->lock_ref && !has_swa(c, t->regions[n->at + k - 1]) &&
                has_swa(c, row[(size_t)end * ps] / (rad_slot)ps))
                best = end;
        }
    }
    return best;
}

/* The pages [from, end) of the row and of the path to `node`, which ends at page `end`, become
 * the same; of each pair one is freed. */
static rad_status unite(rad_swa_cache *c, uint32_t node, uint32_t end, uint32_t to, rad_slot *row,
                        uint32_t from, rad_error *err)
{
    radix_tree *t = &c->tree;
    uint32_t ps = c->page_size;
    rad_status status = RAD_OK;
    for (uint32_t id = node; end > from; id = t->nodes[id].parent) {
        const radix_node *n = &t->nodes[id];
        uint32_t start = end - n->pages;
        for (uint32_t p = RAD_MAX(start, from); p < RAD_MIN(end, to); p++) {
            rad_page *theirs = &t->regions[n->at + p - start];
            rad_page ours = row[(size_t)p * ps] / (rad_slot)ps, loser = ours;
            if (ours == *theirs) continue;
            if (!has_swa(c, *theirs) && has_swa(c, ours)) {
                loser = *theirs;
                forget_pages(c, &loser, 1);
                *theirs = ours;
                bits_set(c->cached, (size_t)ours);
                c->swa_cached++;
                file_window(c, id);
            } else {
                radix_expand(t, theirs, 1, row + (size_t)p * ps);
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

/* Publishes [0, committed_len). *end is the node that ends the *published positions, 0 when
 * there is nothing to publish. */
static rad_status publish(rad_swa_cache *c, rad_swa_req *req, uint32_t *end, uint32_t *published,
                          rad_error *err)
{
    radix_tree *t = &c->tree;
    uint32_t ps = c->page_size, pages = req->committed_len / ps, from = req->protected_len / ps;
    const rad_key *key = &req->key;
    rad_slot *row = rad_req_to_token_row(c->rows, req->row);
    *end = 0;
    if (!pages) return RAD_OK;
    if (!namespace_fits(key->extra_key, key->cache_salt)) return RAD_FULL;
    uint32_t root = find_root(c, key);
    if (req->lock.held && req->lock.node.index &&
        t->nodes[req->lock.node.index].ns != t->nodes[root].ns)
        return rad_fail(err, RAD_E_STATE, "swa_cache: row %u changed its namespace", req->row);
    radix_pos pos = root ? radix_walk(t, root, key->tokens, pages) : (radix_pos){0};
    if (pos.pages < from)
        return rad_fail(err, RAD_E_STATE, "swa_cache: row %u: the tree does not have its prefix",
                        req->row);
    uint32_t conflict = root ? first_conflict(c, pos, row, from) : UINT32_MAX;
    if (conflict != UINT32_MAX) {
        pages = conflict;
        if (!pages) return RAD_OK;
        pos = radix_walk(t, root, key->tokens, pages);
    }
    uint32_t fresh = pages - pos.pages;
    uint64_t merges = t->merges;
    const rad_slot *news = row + (size_t)pos.pages * ps;
    if (!claim(c, news, fresh))
        return rad_fail(err, RAD_E_STATE, "swa_cache: row %u has a page twice", req->row);
    if (!radix_make_room(t, (pos.child != 0) + (fresh != 0), fresh, !root,
                         pos.child ? pos.child : pos.node, drop, c)) {
        unclaim(c, news, fresh);
        if (root) radix_drop_root_if_empty(t, root);
        return RAD_FULL;
    }
    if (t->merges != merges) pos = radix_walk(t, root, key->tokens, pages);

    t->clock++;
    if (!root) pos.node = root = radix_add_root(t, key->extra_key, key->cache_salt);
    namespace_touch(&t->names, t->nodes[root].ns);
    if (pos.child) {
        pos.node = radix_split(t, pos.child, pos.part, t->clock);
        file_window(c, pos.node);
    }
    for (uint32_t id = pos.node; id; id = t->nodes[id].parent) {
        t->nodes[id].last_access = t->clock;
        t->nodes[id].priority = RAD_MAX(t->nodes[id].priority, req->priority);
    }
    rad_status status = unite(c, pos.node, pos.pages, pos.pages, row, from, err);
    *end = pos.node;
    *published = pages * ps;
    if (fresh) {
        size_t at = (size_t)pos.pages * ps;
        *end =
            radix_add_leaf(t, pos.node, key->tokens + at, row + at, fresh, NULL, 0, req->priority);
        const radix_node *n = &t->nodes[*end];
        for (uint32_t i = 0; i < fresh; i++)
            c->swa_cached += has_swa(c, t->regions[n->at + i]);
        file_window(c, *end);
    }
    return status;
}

rad_status rad_swa_cache_unfinished_req(rad_swa_cache *c, rad_swa_req *req, rad_error *err)
{
    uint32_t end, published = 0;
    rad_status status = check_req(c, req, err);
    if (!status && !req->row)
        status = rad_fail(err, RAD_E_INVAL, "swa_cache: without a row there is nothing to publish");
    if (status) return status;
    status = publish(c, req, &end, &published, err);
    if (end && published >= req->protected_len) {
        rad_swa_receipt old = req->lock;
        req->lock = lock_node(c, end);
        if (old.held) rad_swa_cache_dec_lock_ref(c, &old, NULL);
        req->protected_len = published;
    }
    rad_status dropped = take_drop_status(c);
    return status ? status : dropped;
}

rad_status rad_swa_cache_finished_req(rad_swa_cache *c, rad_swa_req *req, int is_insert,
                                      rad_error *err)
{
    rad_status status = check_req(c, req, err);
    if (status) return status;
    uint32_t end = 0, published = 0, kept = req->protected_len;
    if (req->row) {
        if (is_insert) status = publish(c, req, &end, &published, err);
        if (end) kept = RAD_MAX(kept, published);
        if (status == RAD_FULL) status = RAD_OK;
        const rad_slot *row = rad_req_to_token_row(c->rows, req->row);
        rad_status freed = RAD_OK;
        if (kept < req->allocated_len)
            freed = rad_swa_free_slots(c->kv, row + kept, req->allocated_len - kept, err);
        if (!status) status = freed;
    }
    if (req->lock.held) rad_swa_cache_dec_lock_ref(c, &req->lock, NULL);
    if (req->row) {
        rad_status freed = rad_req_to_token_free(c->rows, req->row);
        if (!status) status = freed;
    }
    *req = (rad_swa_req){0};
    rad_status dropped = take_drop_status(c);
    return status ? status : dropped;
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
        drop(c, t->regions + t->nodes[id].at, NULL, t->nodes[id].pages);
    memset(t->window_lock, 0, ((size_t)t->num_nodes + 1) * sizeof *t->window_lock);
    heap_clear(&c->windows);
    c->swa_locked = 0;
    radix_clear(t);
    return take_drop_status(c);
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
    if (!p.window_tokens || !p.allocator || !p.req_to_token_pool)
        return rad_fail(err, RAD_E_INVAL, "swa_cache: a window, an allocator and rows are needed");
    uint32_t ps = rad_swa_page_size(p.allocator), num_pages = rad_swa_num_pages(p.allocator);
    radix_limits limits = {.page_size = ps,
                           .max_nodes = p.max_nodes ? p.max_nodes : RAD_MIN(num_pages, 1u << 20),
                           .max_namespaces = p.max_namespaces ? p.max_namespaces : 256,
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
    c->cached = rad_alloc(&full, bits_words((size_t)c->num_pages + 1) * sizeof *c->cached);
    if (!ok || !c->tree.window_lock || !c->cached) {
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
    rad_free(&env, c->cached, bits_words((size_t)c->num_pages + 1) * sizeof *c->cached);
    heap_fini(&c->windows, &env);
    radix_tree_fini(&c->tree);
    rad_free(&env, c, sizeof *c);
}

/* --- the checker --- */

static rad_status check_tree(const rad_swa_cache *c, uint32_t *owner, rad_error *err)
{
    const radix_tree *t = &c->tree;
    uint64_t cached = 0, locked = 0, pages = 0, bits = 0;
    uint32_t depth;
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));) {
        const radix_node *n = &t->nodes[id];
        uint32_t with = swa_pages_of(c, id);
        cached += with;
        locked += t->window_lock[id] ? with : 0;
        pages += n->pages;
        if (t->window_lock[id] > n->lock_ref)
            return rad_fail(err, RAD_E_CORRUPT, "swa_check: node %u: window locks without locks",
                            id);
        if (with && !t->window_lock[id] && c->merges == t->merges &&
            !heap_contains(&c->windows, id))
            return rad_fail(err, RAD_E_CORRUPT, "swa_check: node %u cannot be evicted", id);
        for (uint32_t i = 0; i < n->pages; i++) {
            rad_page page = t->regions[n->at + i];
            if (page < 1 || (uint32_t)page > c->num_pages || owner[page] ||
                !rad_swa_is_taken(c->kv, page) || !bits_get(c->cached, (size_t)page))
                return rad_fail(err, RAD_E_CORRUPT, "swa_check: page %d of node %u is not its own",
                                page, id);
            owner[page] = 1;
        }
    }
    for (size_t i = 0; i < bits_words((size_t)c->num_pages + 1); i++)
        bits += (uint64_t)__builtin_popcountll(c->cached[i]);
    if (cached != c->swa_cached || locked != c->swa_locked || bits != pages)
        return rad_fail(err, RAD_E_CORRUPT,
                        "swa_check: %llu window pages, %llu locked; counted %llu, %llu",
                        (unsigned long long)cached, (unsigned long long)locked,
                        (unsigned long long)c->swa_cached, (unsigned long long)c->swa_locked);
    return RAD_OK;
}

/* The request's protected positions are the slots of its node's path. */
static bool owns_prefix(const rad_swa_cache *c, const rad_swa_req *req, const rad_slot *row)
{
    const radix_tree *t = &c->tree;
    uint32_t ps = c->page_size, pages = req->protected_len / ps;
    if (!pages) return true;
    uint32_t end = depth_of(t, req->lock.node.index);
    if (end < pages) return false;
    for (uint32_t id = req->lock.node.index; t->nodes[id].parent; id = t->nodes[id].parent) {
        const radix_node *n = &t->nodes[id];
        end -= n->pages;
        for (uint32_t i = 0; i < n->pages && end + i < pages; i++)
            if (row[(size_t)(end + i) * ps] != t->regions[n->at + i] * (rad_slot)ps) return false;
    }
    return true;
}

static rad_status check_pages(const rad_swa_cache *c, const rad_swa_req *const *reqs,
                              uint32_t num_reqs, uint32_t *owner, rad_error *err)
{
    rad_status status = check_tree(c, owner, err);
    for (uint32_t r = 0; r < num_reqs && !status; r++) {
        const rad_swa_req *req = reqs[r];
        status = check_req(c, req, err) ? RAD_E_CORRUPT : RAD_OK;
        if (status || !req->row) continue;
        const rad_slot *row = rad_req_to_token_row(c->rows, req->row);
        if (!owns_prefix(c, req, row))
            status = rad_fail(err, RAD_E_CORRUPT, "swa_check: request %u: wrong prefix", r);
        for (uint32_t at = req->protected_len; at < req->allocated_len; at += c->page_size) {
            rad_page page = row[at] / (rad_slot)c->page_size;
            if (owner[page])
                status = rad_fail(err, RAD_E_CORRUPT, "swa_check: page %d has two owners", page);
            owner[page] = 2 + r;
        }
    }
    for (uint32_t page = 1; reqs && page <= c->num_pages && !status; page++)
        if (rad_swa_is_taken(c->kv, (rad_page)page) != (owner[page] != 0))
            status = rad_fail(err, RAD_E_CORRUPT, "swa_check: page %u is %s", page,
                              owner[page] ? "held and free" : "lost");
    return status;
}

rad_status rad_swa_cache_check(const rad_swa_cache *c, const rad_swa_req *const *reqs,
                               uint32_t num_reqs, rad_error *err)
{
    rad_status status = radix_check(&c->tree, err);
    if (!status) status = rad_swa_check(c->kv, err);
    if (status) return status;
    size_t bytes = ((size_t)c->num_pages + 1) * sizeof(uint32_t);
    uint32_t *owner = rad_alloc(&c->env, bytes);
    if (!owner) return rad_fail(err, RAD_E_NOMEM, "swa_check: no scratch memory");
    status = check_pages(c, reqs, num_reqs, owner, err);
    rad_free(&c->env, owner, bytes);
    return status;
}
