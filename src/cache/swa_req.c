/* swa_req.c - a request of a sliding-window model publishes what it computed, and leaves; and
 * the checker, which counts what requests hold.
 *
 * As in radix_req.c, with a second side: a request gives back the window side of what its
 * window has passed, the tree may have tombstones where the request still has both sides, and
 * the other way round. Of two pages for the same tokens the one with the window side stays.
 *
 * Invariant, verified by check: a page is free, or the tree's, or one request's. */
#include "cache/swa_cache_impl.h"

rad_status swa_check_req(const rad_swa_cache *c, const rad_swa_req *req, rad_error *err)
{
    uint32_t ps = c->page_size;
    if (!req || !cache_key_is_sound(&req->key))
        return rad_fail(err, RAD_E_INVAL, "swa_cache: no request");
    if (req->lock.held ? !swa_receipt_holds(c, &req->lock) : req->protected_len != 0)
        return rad_fail(err, RAD_E_STATE,
                        "swa_cache: row %u: its lock (node %u) is stale or missing", req->row,
                        req->lock.node.index);
    if (!req->row) {
        if (!req->allocated_len && !req->committed_len) return RAD_OK;
        return rad_fail(err, RAD_E_INVAL, "swa_cache: %u positions without a row",
                        req->allocated_len);
    }
    if (!c->rows || !rad_req_to_token_is_taken(c->rows, req->row))
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

/* A worker may be writing to its pages: swa_hicache.h knows when it has let go. */
static rad_status refuse_loading(const rad_swa_req *req, rad_error *err)
{
    if (!req->load) return RAD_OK;
    return rad_fail(err, RAD_E_STATE, "swa_cache: row %u is being loaded", req->row);
}

rad_status rad_swa_cache_free_out_of_window(rad_swa_cache *c, rad_swa_req *req, rad_error *err)
{
    rad_status status = swa_check_req(c, req, err);
    uint32_t ps = c->page_size;
    uint64_t keep = (uint64_t)c->window * ps; /* past 2^32 when all is in the window */
    if (!status) status = refuse_loading(req, err);
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

/* Publishes [0, committed_len). *end is the node that ends the *published positions, 0 when
 * there is nothing to publish. */
static rad_status publish(rad_swa_cache *c, rad_swa_req *req, uint32_t *end, uint32_t *published,
                          rad_error *err)
{
    const radix_tree *t = &c->tree;
    uint32_t ps = c->page_size, from = req->protected_len / ps, root = swa_root(c, &req->key);
    *end = 0;
    if (root && req->lock.held && req->lock.node.index &&
        t->nodes[req->lock.node.index].ns != t->nodes[root].ns)
        return rad_fail(err, RAD_E_STATE, "swa_cache: row %u changed its namespace", req->row);
    swa_insertion what = {.key = &req->key,
                          .slots = rad_req_to_token_row(c->rows, req->row) + req->protected_len,
                          .from = from,
                          .pages = req->committed_len / ps,
                          .priority = req->priority};
    rad_status status = swa_insert(c, &what, end, published, err);
    *published *= ps;
    return status;
}

rad_status rad_swa_cache_unfinished_req(rad_swa_cache *c, rad_swa_req *req, rad_error *err)
{
    uint32_t end, published = 0;
    rad_status status = swa_check_req(c, req, err);
    if (!status) status = refuse_loading(req, err);
    if (!status && !req->row)
        status = rad_fail(err, RAD_E_INVAL, "swa_cache: without a row there is nothing to publish");
    if (status) return status;
    status = publish(c, req, &end, &published, err);
    if (end && published >= req->protected_len) {
        rad_swa_receipt old = req->lock;
        req->lock = swa_lock_node(c, end);
        if (old.held) rad_swa_cache_dec_lock_ref(c, &old, NULL);
        req->protected_len = published;
    }
    rad_status dropped = swa_take_drop_status(c);
    return status ? status : dropped;
}

rad_status rad_swa_cache_finished_req(rad_swa_cache *c, rad_swa_req *req, int is_insert,
                                      rad_error *err)
{
    rad_status status = swa_check_req(c, req, err);
    if (!status) status = refuse_loading(req, err);
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
    rad_status dropped = swa_take_drop_status(c);
    return status ? status : dropped;
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
    uint32_t end = swa_depth(t, req->lock.node.index);
    if (end < pages) return false;
    for (uint32_t id = req->lock.node.index; t->nodes[id].parent; id = t->nodes[id].parent) {
        const radix_node *n = &t->nodes[id];
        end -= n->pages;
        for (uint32_t i = 0; i < n->pages && end + i < pages; i++)
            if (row[(size_t)(end + i) * ps] != t->regions[n->at + i] * (rad_slot)ps) return false;
    }
    return true;
}

rad_status swa_check_pages(const rad_swa_cache *c, const rad_swa_req *const *reqs,
                           uint32_t num_reqs, uint32_t *owner, rad_error *err)
{
    rad_status status = check_tree(c, owner, err);
    for (uint32_t r = 0; r < num_reqs && !status; r++) {
        const rad_swa_req *req = reqs[r];
        status = swa_check_req(c, req, err) ? RAD_E_CORRUPT : RAD_OK;
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
    status = swa_check_pages(c, reqs, num_reqs, owner, err);
    rad_free(&c->env, owner, bytes);
    return status;
}
