/* hiradix_cache.c - one tree over the pages of two tiers, and what moves between them.
 *
 *     [system prompt] -+- [question 1] -- [answer 1]      both tiers, both, the host alone
 *                      +- [question 2]                    the device alone
 *
 * The tree is a RadixCache's, whose nodes have host pages besides (cache/radix_host.h). A match is
 * one walk: it goes on on the host where the device ends. Demoting is evicting on the device what
 * the host has; a host copy of what is also on the device is a leaf like others and goes when host
 * space is short; what is loaded back becomes the node's device pages when its request publishes
 * it.
 *
 * What is published or pinned here begins its own way down (hi_write_backup). When an eviction
 * falls short, writes that hold device pages are given up (hi_evict_by).
 *
 * What is in flight is in no tier. It belongs to a ticket (tickets.h) until its copy is
 * complete and acknowledged, and only then becomes a node's: so nothing half-copied can be found.
 *
 * Invariant, verified by check: the host pool's pages are free, a node's or of one
 * ticket; the device's are free, a node's, of a request, or of a load whose request went. */
#include "hicache/hiradix_impl.h"

hiradix_cache *hiradix_of(const rad_cache *cache)
{
    return cache && cache->ops == &hiradix_ops ? (hiradix_cache *)cache : NULL;
}

static hiradix_cache *of(rad_cache *cache)
{
    return (hiradix_cache *)cache;
}

static const hiradix_cache *of_const(const rad_cache *cache)
{
    return (const hiradix_cache *)cache;
}

static void hi_inserted(rad_cache *cache, const rad_key *key, const rad_insert_params *params,
                        rad_inserted *inserted)
{
    hiradix_cache *c = of(cache);
    uint32_t end = inserted->node.index, pages = hi_key_pages(c, key);
    if (!end || (params && params->chunked)) return;
    uint64_t before = rad_cache_evictable_size(cache);
    (void)hi_write_backup(c, end, pages, pages, false); /* locks what it copies */
    inserted->evictable_change += (int64_t)(rad_cache_evictable_size(cache) - before);
}

static rad_status hi_insert(rad_cache *cache, const rad_key *key, const rad_slot *slots,
                            const rad_insert_params *params, rad_inserted *inserted, rad_error *err)
{
    rad_status status = rad_cache_insert(of(cache)->device, key, slots, params, inserted, err);
    if (!status) hi_inserted(cache, key, params, inserted);
    return status;
}

rad_status hi_evict_by(hiradix_cache *c, hi_evict_fn evict, ticket_holds_fn holds, uint64_t count,
                       uint64_t *evicted)
{
    uint64_t done = 0, more = 0;
    rad_status status = evict(c->device, count, &done);
    for (; done < count && tickets_give_up_a_write(&c->out, holds); done += more) {
        rad_status again = evict(c->device, count - done, &more);
        if (!status) status = again;
    }
    if (evicted) *evicted = done;
    return status;
}

static rad_status evict_device(rad_cache *device, uint64_t num_tokens, uint64_t *evicted_tokens)
{
    return rad_cache_evict(device, num_tokens, evicted_tokens, NULL);
}

static rad_status hi_evict(rad_cache *cache, uint64_t num_tokens, uint64_t *evicted_tokens)
{
    return hi_evict_by(of(cache), evict_device, NULL, num_tokens, evicted_tokens);
}

static bool holds_window(const hi_ticket *k)
{
    return k->num_windows > 0;
}

static rad_status hi_evict_window(rad_cache *cache, uint64_t window_tokens,
                                  uint64_t *evicted_tokens)
{
    return hi_evict_by(of(cache), rad_cache_evict_window, holds_window, window_tokens,
                       evicted_tokens);
}

/* Loads whose requests went still own their device pages. */
static const hi_ticket *next_orphan(const hiradix_cache *c, const hi_ticket *k)
{
    if (!c->out.orphans) return NULL;
    while ((k = tickets_next(&c->out, k)) && !(k->t.kind == TRANSFER_LOAD && k->orphan)) {
    }
    return k;
}

static bool any_is_orphaned(const hiradix_cache *c, kv_run pages)
{
    for (const hi_ticket *k = NULL; (k = next_orphan(c, k));)
        for (uint32_t i = 0; i < k->count; i++)
            if ((uint32_t)k->device[i] - (uint32_t)pages.first < pages.count) return true;
    return false;
}

static bool hi_owns_any(const rad_cache *cache, kv_run pages)
{
    const hiradix_cache *c = of_const(cache);
    return c->device->ops->owns_any(c->device, pages) || any_is_orphaned(c, pages);
}

static void hi_visit_pages(const rad_cache *cache, cache_page_fn visit, void *user)
{
    const hiradix_cache *c = of_const(cache);
    c->device->ops->visit_pages(c->device, visit, user);
    for (const hi_ticket *k = NULL; (k = next_orphan(c, k));)
        for (uint32_t i = 0; i < k->count; i++)
            visit(user, k->device[i]);
}

static rad_status hi_settle_load(rad_cache *cache, rad_req_kv *req, rad_error *err)
{
    return tickets_settle_load(&of(cache)->out, &req->load, req->row, err);
}

static rad_status hi_unfinished_req(rad_cache *cache, rad_req_kv *req, int chunked, rad_error *err)
{
    hiradix_cache *c = of(cache);
    uint32_t loaded = req->load && hi_states(c) ? req->spare_len : 0;
    rad_status status = hi_settle_load(cache, req, err);
    if (status) return status;
    hi_write_shared_window(c, req);
    status = c->device->ops->unfinished_req(c->device, req, chunked, err);
    uint32_t pages = req->protected_len / c->page_size, node = req->lock.node.index;
    /* What came from the host stays on the device for the next one. */
    if (!status && loaded && req->spare_len == loaded && loaded <= req->protected_len) {
        radix_cache_put_state(c->nodes, node, loaded / c->page_size, req->spare_state);
        req->spare_state = 0;
        req->spare_len = 0;
    }
    if (!status && !chunked && req->lock.held && pages) {
        uint32_t depth = radix_depth(c->tree, node);
        (void)hi_write_backup(c, node, depth, pages, false);
    }
    return status;
}

static rad_status hi_finished_req(rad_cache *cache, rad_req_kv *req, int is_insert, rad_error *err)
{
    hiradix_cache *c = of(cache);
    rad_status left = hi_load_leave(c, req, err);
    uint32_t before = req->lock.held && req->row ? req->lock.node.index : 0, end, pages;
    uint32_t protected_pages = req->protected_len / c->page_size;
    rad_status status = radix_cache_finish(c->nodes, req, is_insert, &end, &pages, err);
    if (!status && end)
        (void)hi_write_backup(c, end, pages, pages, false);
    else if (!status && is_insert && before) /* nothing new: what it had published in time */
        (void)hi_write_backup(c, before, radix_depth(c->tree, before), protected_pages, false);
    return status ? status : left;
}

static rad_status hi_poll_op(rad_cache *cache)
{
    tickets_poll(&of(cache)->out);
    return RAD_OK;
}

static cache_sizes hi_sizes(const rad_cache *cache)
{
    const hiradix_cache *c = of_const(cache);
    cache_sizes sizes = c->device->ops->sizes(c->device);
    sizes.protected_ += c->out.orphan_pages * c->page_size;
    sizes.window_protected += c->out.orphan_windows * c->page_size;
    sizes.state_protected += hi_orphaned_states(c);
    return sizes;
}

static void hi_get_stats(const rad_cache *cache, rad_cache_stats *stats)
{
    const hiradix_cache *c = of_const(cache);
    rad_cache_get_stats(c->device, stats);
    stats->metadata_bytes += hi_own_bytes(c);
}

static void hi_namespace_stats(const rad_cache *cache, rad_namespace_stats *stats)
{
    const hiradix_cache *c = of_const(cache);
    c->device->ops->namespace_stats(c->device, stats);
    stats->host_most = stats->most; /* one tree, one table */
    stats->host_used = c->tree->host.namespaces;
    stats->host_given_up = stats->given_up;
}

/* A pin orders eviction on both tiers, and what is pinned gets a copy whatever the policy:
 * so pressure on the device demotes it. */
static rad_status hi_pin_prefix(rad_cache *cache, const rad_key *key, uint64_t ttl_ns,
                                uint32_t *pinned_tokens)
{
    hiradix_cache *c = of(cache);
    rad_status status = rad_cache_pin_prefix(c->device, key, ttl_ns, pinned_tokens);
    radix_pos pos = status < 0 ? (radix_pos){0} : hi_follow(c, key, hi_key_pages(c, key), 0, 0, 0);
    if (!pos.node) return status;
    radix_to_tier(c->tree, &pos, RADIX_DEVICE);
    uint32_t depth, node = hi_end_of(c, &pos, &depth);
    (void)hi_write_backup(c, node, depth, pos.pages, true);
    return status;
}

static rad_cache *hi_nodes_of(const rad_cache *cache)
{
    return of_const(cache)->device;
}

static rad_status hi_reset(rad_cache *cache)
{
    hiradix_cache *c = of(cache);
    tickets_abandon_all(&c->out);
    c->epoch++;
    (void)rad_kv_free_group_begin(c->host_pages); /* as the device's */
    rad_status status = rad_cache_reset(c->device);
    (void)rad_kv_free_group_end(c->host_pages);
    hi_events_cleared(c, RAD_TIER_DEVICE | RAD_TIER_HOST);
    return status;
}

/* The rest is the RadixCache's, which is base.inner. */
const cache_ops hiradix_ops = {
    .destroy = hi_destroy,
    .insert = hi_insert,
    .inserted = hi_inserted,
    .evict = hi_evict,
    .evict_window = hi_evict_window,
    .put_state = hi_put_state,
    .evict_state = hi_evict_state,
    .owns_state = hi_owns_state,
    .visit_states = hi_visit_states,
    .owns_any = hi_owns_any,
    .unfinished_req = hi_unfinished_req,
    .finished_req = hi_finished_req,
    .settle_load = hi_settle_load,
    .reset = hi_reset,
    .poll = hi_poll_op,
    .sizes = hi_sizes,
    .get_stats = hi_get_stats,
    .namespace_stats = hi_namespace_stats,
    .visit_pages = hi_visit_pages,
    .check = hi_check,
    .pin_prefix = hi_pin_prefix,
    .nodes_of = hi_nodes_of,
};
