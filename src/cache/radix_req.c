/* radix_req.c - a request publishes what it computed, and leaves.
 *
 *     tokens  0 ........ P ............ X ............ A ....... C ....... allocated
 *             | the      | duplicates:  | adopted by   | partial | slots
 *             | tree's   | free [P, X)  | the tree     | page    | only
 *
 * P is protected_len, X what the tree had when the request came to publish, C is
 * committed_len and A the last page boundary at or before it (under bigram keys, before
 * its last token: a pair needs the token behind it). [P, X) was computed by
 * somebody else meanwhile; both have the same K/V, and the tree's stay.
 *
 * Order, in both functions: the row is pointed at the tree's pages before the
 * duplicates are freed, and the new end is locked before the old one is released. At
 * no moment does a row name a page that somebody else may be given. */
#include "cache/radix_cache.h"
#include "cache/radix_path.h"

/* Points the row's pages [from, to) at the tree's, in which `end` ends page number
 * end_page, and frees those that were in their place. */
static rad_status adopt_tree_pages(radix_cache *c, uint32_t end, uint32_t end_page, rad_slot *row,
                                   uint32_t from, uint32_t to, rad_error *err)
{
    const radix_tree *t = &c->tree;
    uint32_t ps = c->base.page_size;
    rad_status status = RAD_OK;
    for (radix_path p = radix_path_of(t, end, end_page); p.end > from; radix_path_up(t, &p)) {
        const rad_page *region = t->regions + t->nodes[p.node].at;
        for (uint32_t page = RAD_MAX(p.begin, from); page < RAD_MIN(p.end, to);) {
            rad_page theirs[128], duplicates[128];
            uint32_t lot = RAD_MIN(RAD_MIN(p.end, to) - page, (uint32_t)RAD_COUNT(theirs));
            uint32_t count = 0;
            page_runs_expand(region, page - p.begin, lot, 1, theirs); /* as pages */
            for (uint32_t i = 0; i < lot; i++, page++) {
                rad_page ours = radix_page_of(t, row[(size_t)page * ps]);
                if (ours == theirs[i]) continue;
                radix_expand(t, &theirs[i], 1, row + (size_t)page * ps);
                duplicates[count++] = ours;
            }
            rad_status freed = rad_kv_free(c->base.kv, duplicates, count, err);
            if (!status) status = freed;
        }
    }
    return status;
}

/* The time on the clock when the request took its lock. Receipts carry the low half;
 * no request lives for 2^32 operations. */
static uint64_t came_at(const radix_cache *c, const rad_req_kv *req)
{
    uint64_t now = c->tree.clock;
    return req->lock.held ? now - (uint32_t)((uint32_t)now - req->lock.stamp) : now;
}

/* Publishes [0, committed_len), rounded down to pages, and leaves in the row the slots
 * of the tree. *end is the node that ends them, *pages their number; 0: there was nothing to
 * publish, or no room for it. */
static rad_status publish(radix_cache *c, rad_req_kv *req, bool count_hits, uint32_t *end,
                          uint32_t *pages, rad_error *err)
{
    uint32_t ps = c->base.page_size, protected_pages = req->protected_len / ps;
    rad_slot *row = rad_req_to_token_row(c->base.rows, req->row);
    rad_key key = req->key;
    uint32_t whole = key_length(req->committed_len, c->bigram) / ps * ps;
    *end = *pages = 0;
    if (whole < req->protected_len) return RAD_OK; /* the last pair's second half is not there */
    key.num_tokens = whole + (whole ? c->bigram : 0);
    radix_insert how = {.priority = req->priority,
                        .count_hits = count_hits,
                        .before = came_at(c, req),
                        .from = req->lock.held ? req->lock.node.index : 0,
                        .from_pages = protected_pages};
    radix_inserted in;
    rad_error words;
    rad_status status = radix_cache_publish(c, &key, row, &how, &in, &words);
    if (status == RAD_E_LIMIT) return RAD_FULL; /* a namespace that is never cached */
    if (status < 0)
        return rad_fail(err, status, "row %u cannot be published: %.400s", req->row, words.text);
    if (status) return status;
    *end = in.end;
    if (!in.end) return RAD_OK;
    *pages = whole / ps;
    return adopt_tree_pages(c, in.end, whole / ps, row, protected_pages, in.matched_pages, err);
}

rad_status radix_unfinished_req(rad_cache *cache, rad_req_kv *req, int chunked, rad_error *err)
{
    radix_cache *c = (radix_cache *)cache;
    uint32_t end, pages;
    if (!req->lock.held) req->lock.stamp = (uint32_t)c->tree.clock;
    rad_status status = publish(c, req, !chunked && !req->published, &end, &pages, err);
    if (status == RAD_FULL || (status && !end)) return status;
    if (end) {
        rad_receipt old = req->lock;
        req->lock = (rad_receipt){.node = radix_cache_ref(c, end), .held = 1, .stamp = old.stamp};
        radix_cache_hold(c, &req->lock);
        radix_cache_let_go_state(c, &req->lock); /* it has gone on from there already */
        if (old.held && old.node.index) radix_cache_let_go(c, &old);
        req->protected_len = pages * cache->page_size;
    }
    if (!chunked) req->published = 1;
    rad_status dropped = radix_cache_take_drop_status(c);
    return status ? status : dropped;
}

/* Of what the request worked with, what has seen most becomes the snapshot where it stands, if that
 * is the end of a page of the path to `node` and not behind page `pages`. */
static void leave_state(radix_cache *c, rad_req_kv *req, uint32_t node, uint32_t pages)
{
    uint32_t ps = c->base.page_size;
    bool spare_first = req->spare_len > req->state_len;
    for (int i = 0; i < 2 && node; i++) {
        bool spare = spare_first == (i == 0);
        rad_state *state = spare ? &req->spare_state : &req->state;
        uint32_t len = spare ? req->spare_len : req->state_len;
        if (!*state || !len || len % ps || len / ps > pages) continue;
        radix_cache_put_state(c, node, len / ps, *state);
        *state = 0;
        return;
    }
}

rad_status radix_cache_finish(radix_cache *c, rad_req_kv *req, bool is_insert, uint32_t *end,
                              uint32_t *pages, rad_error *err)
{
    uint32_t ps = c->base.page_size, kept = req->protected_len;
    rad_status status = RAD_OK;
    *end = *pages = 0;
    bool has_news = !req->published ||
                    key_length(req->committed_len, c->bigram) / ps > req->protected_len / ps;
    if (is_insert && req->row && has_news) {
        status = publish(c, req, !req->published, end, pages, err);
        if (*end) kept = *pages * ps; /* else no room to publish: all of it goes back */
    }
    if (status == RAD_FULL) status = RAD_OK;
    if (is_insert && req->row)
        leave_state(c, req, *end ? *end : req->lock.held ? req->lock.node.index : 0, kept / ps);
    rad_status freed = req_kv_free(&c->base, req, kept, req->allocated_len, err);
    if (!status) status = freed;
    if (req->lock.held && req->lock.node.index) radix_cache_let_go(c, &req->lock);
    rad_status dropped = radix_cache_take_drop_status(c);
    return status ? status : dropped;
}

rad_status radix_finished_req(rad_cache *cache, rad_req_kv *req, int is_insert, rad_error *err)
{
    uint32_t end, pages;
    return radix_cache_finish((radix_cache *)cache, req, is_insert, &end, &pages, err);
}
