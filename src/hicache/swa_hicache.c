/* swa_hicache.c - two sliding-window trees over the same keys, one for each tier's pages.
 *
 *     device   full     [system prompt] -+- [question 1]
 *              window        . . . . o o     . o o
 *     host     full     [system prompt] -+- [question 1] -- [answer 1]
 *              window        . . . . . .     o o o         . . o o
 *
 * hiradix_cache.c tells why each tier is a tree of its own. Here each is a rad_swa_cache: what
 * holds for tombstones, for where a match may end and for what a lock keeps holds on the host
 * as on the device, and is checked by the same check. What is in flight is in neither tree; it
 * belongs to a ticket (tickets.h).
 *
 * Invariant, verified by check: on the host a page is free, in the tree or of one ticket; on the
 * device it is free, in the tree, of a request, or of a load whose request went. */
#include "hicache/swa_hi_impl.h"

#include "hicache/store_call.h"

/* ---- keys, paths, places ---- */

rad_key swa_hi_front(const rad_swa_hicache *c, const rad_key *key, uint32_t pages)
{
    rad_key front = *key;
    front.num_tokens = pages * c->page_size;
    return front;
}

rad_key swa_hi_path_key(rad_swa_hicache *c, const radix_tree *t, uint32_t node, uint32_t pages)
{
    size_t ps = c->page_size;
    uint32_t end = swa_depth(t, node);
    const namespace_entry *e = &t->names.entries[t->nodes[node].ns];
    for (uint32_t id = node; t->nodes[id].parent; id = t->nodes[id].parent) {
        const radix_node *n = &t->nodes[id];
        uint32_t start = end - n->pages;
        if (start < pages)
            memcpy(c->tokens + start * ps, radix_tokens(t, n),
                   (RAD_MIN(end, pages) - start) * ps * sizeof *c->tokens);
        end = start;
    }
    return (rad_key){.tokens = c->tokens,
                     .num_tokens = (uint32_t)(pages * ps),
                     .extra_key = e->has_extra ? e->text : NULL,
                     .cache_salt = e->has_salt ? e->text + e->salt_at : NULL};
}

void swa_hi_path_pages(const radix_tree *t, uint32_t node, uint32_t end, rad_page *pages)
{
    uint32_t at = swa_depth(t, node);
    for (uint32_t id = node; t->nodes[id].parent; id = t->nodes[id].parent) {
        const radix_node *n = &t->nodes[id];
        at -= n->pages;
        if (at < end)
            memcpy(pages + at, t->regions + n->at, RAD_MIN(n->pages, end - at) * sizeof *pages);
    }
}

swa_hi_place swa_hi_find(rad_swa_cache *tree, const rad_key *key, uint32_t pages, bool touch)
{
    radix_tree *t = &tree->tree;
    uint32_t root = swa_root(tree, key);
    if (!root || !pages) return (swa_hi_place){0};
    radix_pos pos;
    if (touch) {
        uint64_t now = ++t->clock;
        pos = radix_match(t, root, key->tokens, pages, now, NULL);
        namespace_touch(&t->names, t->nodes[root].ns, pos.pages > 0);
        if (pos.child) t->nodes[pos.child].last_access = now;
    } else {
        pos = radix_walk(t, root, key->tokens, pages);
    }
    if (!pos.pages) return (swa_hi_place){0};
    return (swa_hi_place){
        .node = pos.child ? pos.child : pos.node, .part = pos.part, .pages = pos.pages};
}

uint32_t swa_hi_usable(const rad_swa_hicache *c, swa_hi_place place, uint32_t floor)
{
    uint32_t node, at;
    if (place.pages <= floor) return 0;
    return swa_usable(c->host, place.node, place.part, place.pages, floor, &node, &at);
}

/* ---- what passes through to the device ---- */

rad_swa_cache *rad_swa_hicache_device(rad_swa_hicache *c)
{
    return c->device;
}

rad_status rad_swa_hicache_match_prefix(rad_swa_hicache *c, const rad_key *key, rad_slot *slots,
                                        rad_match *match)
{
    rad_status status = rad_swa_cache_match_prefix(c->device, key, slots, match);
    if (status) return status;
    uint32_t ps = c->page_size, pages = key->num_tokens / ps, have = match->prefix_tokens / ps;
    uint32_t end = swa_hi_usable(c, swa_hi_find(c->host, key, pages, false), have);
    if (end > have) match->host_hit_tokens = (end - have) * ps;
    return RAD_OK;
}

/* The nodes that a request was given at admission have been come back to. Counted when it first
 * publishes, as in a RadixCache: what is matched and not used does not count. */
static void count_hits(rad_swa_hicache *c, rad_swa_req *req)
{
    radix_tree *t = &c->device->tree;
    if (req->counted) return;
    req->counted = 1;
    if (!req->lock.held || !req->lock.node.index) return;
    for (uint32_t id = req->lock.node.index; t->nodes[id].parent; id = t->nodes[id].parent)
        t->nodes[id].hit_count++;
}

/* The first `pages` pages on the path to a node have been published. */
static void publish_copies(rad_swa_hicache *c, uint32_t node, uint32_t pages)
{
    const radix_tree *t = &c->device->tree;
    if (c->params.write_policy == RAD_WRITE_BACK) return;
    if (c->params.write_policy == RAD_WRITE_THROUGH_SELECTIVE) {
        uint32_t end = swa_depth(t, node);
        for (; t->nodes[node].parent && !t->nodes[node].hit_count; node = t->nodes[node].parent)
            end -= t->nodes[node].pages;
        pages = RAD_MIN(pages, end);
    }
    if (pages) (void)swa_hi_back_up(c, node, pages);
}

rad_status rad_swa_hicache_unfinished_req(rad_swa_hicache *c, rad_swa_req *req, int chunked,
                                          rad_error *err)
{
    rad_status status = swa_check_req(c->device, req, err);
    if (!status) status = tickets_settle_load(&c->out, &req->load, req->row, err);
    if (status) return status;
    count_hits(c, req);
    status = rad_swa_cache_unfinished_req(c->device, req, err);
    if (!status && !chunked && req->lock.held && req->protected_len)
        publish_copies(c, req->lock.node.index, req->protected_len / c->page_size);
    return status;
}

rad_status rad_swa_hicache_finished_req(rad_swa_hicache *c, rad_swa_req *req, int is_insert,
                                        rad_error *err)
{
    rad_status status = swa_check_req(c->device, req, err);
    if (status) return status;
    rad_status left = swa_hi_load_leave(c, req, err);
    rad_key key = req->key;
    uint32_t pages = req->row && is_insert ? req->committed_len / c->page_size : 0;
    if (pages) count_hits(c, req);
    status = rad_swa_cache_finished_req(c->device, req, is_insert, err);
    swa_hi_place place = {0};
    if (!status && pages) place = swa_hi_find(c->device, &key, pages, false);
    if (place.pages) publish_copies(c, place.node, place.pages);
    return status ? status : left;
}

rad_status rad_swa_hicache_evict(rad_swa_hicache *c, uint64_t full_tokens, uint64_t swa_tokens,
                                 rad_swa_evicted *evicted)
{
    rad_swa_evicted done = {0}, more;
    rad_status status = rad_swa_cache_evict(c->device, full_tokens, swa_tokens, &done);
    /* What waits to be copied is locked; whoever needs pages now needs them more. */
    while ((done.full_tokens < full_tokens || done.swa_tokens < swa_tokens) &&
           tickets_give_up_a_write(&c->out)) {
        rad_status again =
            rad_swa_cache_evict(c->device, full_tokens - RAD_MIN(done.full_tokens, full_tokens),
                                swa_tokens - RAD_MIN(done.swa_tokens, swa_tokens), &more);
        done.full_tokens += more.full_tokens;
        done.swa_tokens += more.swa_tokens;
        if (!status) status = again;
    }
    if (evicted) *evicted = done;
    return status;
}

rad_status rad_swa_hicache_reset(rad_swa_hicache *c)
{
    tickets_abandon_all(&c->out);
    c->epoch++;
    rad_status host = rad_swa_cache_reset(c->host), status = rad_swa_cache_reset(c->device);
    return status ? status : host;
}

rad_status rad_swa_hicache_clear(rad_swa_hicache *c, uint32_t which, rad_error *err)
{
    if (which & ~(uint32_t)(RAD_TIER_DEVICE | RAD_TIER_HOST | RAD_TIER_STORAGE))
        return rad_fail(err, RAD_E_INVAL, "swa_hicache: there are no tiers %u", which);
    tickets_take_done(&c->out);
    if (c->out.ids.num_live)
        return rad_fail(err, RAD_AGAIN, "swa_hicache: %u transfers are under way",
                        c->out.ids.num_live);
    for (int s = 0; s < 2; s++)
        if ((which & RAD_TIER_STORAGE) &&
            (!c->side[s].store.backend.ops || !STORE_HAS(c->side[s].store.backend.ops, clear)))
            return rad_fail(err, RAD_E_UNSUPPORTED,
                            "swa_hicache: no storage, or none that can be cleared");
    rad_status status = RAD_OK;
    if (which & RAD_TIER_DEVICE) status = rad_swa_cache_reset(c->device);
    if (!status && (which & RAD_TIER_HOST)) status = rad_swa_cache_reset(c->host);
    for (int s = 0; s < 2 && !status && (which & RAD_TIER_STORAGE); s++) {
        page_store *store = &c->side[s].store;
        status = store->backend.ops->clear(store->backend.self, err);
        page_store_forget(store);
    }
    c->epoch++;
    return status;
}
