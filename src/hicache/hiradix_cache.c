/* hiradix_cache.c - two trees over the same keys, one for each tier's pages.
 *
 *     device   [system prompt] -+- [question 1]            evicting takes tails off
 *     host     [system prompt] -+- [question 1] -- [answer 1]
 *                               +- [question 2]
 *
 * SGLang keeps both tiers in one node and has to say for every operation what becomes of
 * the other half. Here each tier is a RadixCache of its own: closed towards the front by
 * construction, split, merged and evicted on its own, checked by its own check. A position
 * is "device", "host" or "both" according to which tree has it; demoting is evicting on the
 * device what the host has; a host copy of what is also on the device is a leaf like others
 * and goes when host space is short; and an insert on the device needs to know nothing
 * of the host. The price is a second walk in a match and a second copy of the keys.
 *
 * What is in flight is in neither tree. It belongs to a ticket (tickets.h) until its copy is
 * complete and acknowledged, and only then enters the tree of its tier: so nothing
 * half-copied can be found.
 *
 * Invariant, verified by check: the host pool's pages are free, in the host tree or of one
 * ticket; the device's are free, in the device tree, of a request, or of a load whose
 * request went. */
#include "hicache/hiradix_impl.h"

#include <stdio.h>

#include "base/bits.h"
#include "base/params.h"
#include "hicache/store_call.h"
#include "mem/host_kv_pool.h"
#include "mem/kv_pool.h"

static const cache_ops hiradix_ops;

hiradix_cache *hiradix_of(const rad_cache *cache)
{
    return cache && cache->ops == &hiradix_ops ? (hiradix_cache *)cache : NULL;
}

/* ---- the cache's table ---- */

static hiradix_cache *of(rad_cache *cache)
{
    return (hiradix_cache *)cache;
}

static const hiradix_cache *of_const(const rad_cache *cache)
{
    return (const hiradix_cache *)cache;
}

static void add_host_hit(const hiradix_cache *c, const rad_key *key, rad_match *match)
{
    uint32_t pages = hi_key_pages(c, key);
    if (match->prefix_tokens >= pages * c->page_size) return;
    rad_key front = hi_key_front(c, key, pages);
    rad_match host = {0};
    if (rad_cache_lookup(c->host, &front, &host) == RAD_OK &&
        host.prefix_tokens > match->prefix_tokens)
        match->host_hit_tokens = host.prefix_tokens - match->prefix_tokens;
}

static rad_status hi_match_prefix(rad_cache *cache, const rad_key *key, rad_slot *slots,
                                  rad_match *match)
{
    rad_status status = rad_cache_match_prefix(of(cache)->device, key, slots, match);
    if (!status) add_host_hit(of(cache), key, match);
    return status;
}

static rad_status hi_lookup(const rad_cache *cache, const rad_key *key, rad_match *match)
{
    rad_status status = rad_cache_lookup(of_const(cache)->device, key, match);
    if (!status) add_host_hit(of_const(cache), key, match);
    return status;
}

/* The first `tokens` of `key` are in the device tree: finds the node and backs them up. */
static void back_up_key(hiradix_cache *c, const rad_key *key, uint64_t pin_ttl, bool force)
{
    rad_match match;
    uint32_t pages = hi_key_pages(c, key);
    if (!pages || (c->params.write_policy == RAD_WRITE_BACK && !force)) return;
    rad_key front = hi_key_front(c, key, pages);
    if (rad_cache_lookup(c->device, &front, &match) == RAD_OK && match.prefix_tokens)
        (void)hi_back_up(c, &front, match.last_node, match.prefix_tokens / c->page_size, force,
                         pin_ttl);
}

static rad_status hi_insert(rad_cache *cache, const rad_key *key, const rad_slot *slots,
                            const rad_insert_params *params, uint32_t *prefix_tokens,
                            rad_error *err)
{
    rad_status status = rad_cache_insert(of(cache)->device, key, slots, params, prefix_tokens, err);
    if (!status && !(params && params->chunked)) back_up_key(of(cache), key, 0, false);
    return status;
}

static rad_status hi_inc_lock_ref(rad_cache *cache, rad_ref node, rad_receipt *receipt,
                                  rad_error *err)
{
    return rad_cache_inc_lock_ref(of(cache)->device, node, receipt, err);
}

static rad_status hi_dec_lock_ref(rad_cache *cache, rad_receipt *receipt, rad_error *err)
{
    return rad_cache_dec_lock_ref(of(cache)->device, receipt, err);
}

static rad_status hi_evict(rad_cache *cache, uint64_t num_tokens, uint64_t *evicted_tokens)
{
    hiradix_cache *c = of(cache);
    uint64_t done = 0, more = 0;
    rad_status status = rad_cache_evict(c->device, num_tokens, &done);
    /* What waits to be copied is locked; whoever needs pages now needs them more. */
    for (; done < num_tokens && tickets_give_up_a_write(&c->out); done += more) {
        rad_status again = rad_cache_evict(c->device, num_tokens - done, &more);
        if (!status) status = again;
    }
    if (evicted_tokens) *evicted_tokens = done;
    return status;
}

static bool hi_receipt_holds(const rad_cache *cache, const rad_receipt *receipt)
{
    const rad_cache *d = of_const(cache)->device;
    return d->ops->receipt_holds(d, receipt);
}

/* Loads whose requests went still own their device pages. */
static const hi_ticket *next_orphan(const hiradix_cache *c, const hi_ticket *k)
{
    if (!c->out.orphans) return NULL;
    while ((k = tickets_next(&c->out, k)) && !(k->t.kind == TRANSFER_LOAD && k->orphan)) {
    }
    return k;
}

static bool is_orphaned(const hiradix_cache *c, rad_page page)
{
    for (const hi_ticket *k = NULL; (k = next_orphan(c, k));)
        for (uint32_t i = 0; i < k->count; i++)
            if (k->device[i] == page) return true;
    return false;
}

static bool hi_owns_page(const rad_cache *cache, rad_page page)
{
    const hiradix_cache *c = of_const(cache);
    return c->device->ops->owns_page(c->device, page) || is_orphaned(c, page);
}

static void hi_visit_pages(const rad_cache *cache, cache_page_fn visit, void *user)
{
    const hiradix_cache *c = of_const(cache);
    c->device->ops->visit_pages(c->device, visit, user);
    for (const hi_ticket *k = NULL; (k = next_orphan(c, k));)
        for (uint32_t i = 0; i < k->count; i++)
            visit(user, k->device[i]);
}

static rad_status hi_unfinished_req(rad_cache *cache, rad_req_kv *req, int chunked, rad_error *err)
{
    hiradix_cache *c = of(cache);
    rad_status status = tickets_settle_load(&c->out, &req->load, req->row, err);
    if (status) return status;
    status = c->device->ops->unfinished_req(c->device, req, chunked, err);
    if (!status && !chunked && req->lock.held && req->protected_len)
        (void)hi_back_up(c, &req->key, req->lock.node, req->protected_len / c->page_size, false, 0);
    return status;
}

static rad_status hi_finished_req(rad_cache *cache, rad_req_kv *req, int is_insert, rad_error *err)
{
    hiradix_cache *c = of(cache);
    rad_status left = hi_load_leave(c, req, err);
    rad_key key = req->key;
    key.num_tokens = req->committed_len;
    bool had_row = req->row != 0;
    rad_status status = c->device->ops->finished_req(c->device, req, is_insert, err);
    if (!status && is_insert && had_row && key.num_tokens) back_up_key(c, &key, 0, false);
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
    return sizes;
}

static size_t own_bytes(const hiradix_cache *c)
{
    size_t host = (size_t)c->num_host_pages + 1;
    size_t nodes = (size_t)c->device_tree->tree.num_nodes + 1;
    return sizeof *c + tickets_bytes(&c->out) + c->num_tokens * sizeof *c->tokens +
           c->num_slots * sizeof *c->slots + 2 * nodes * sizeof *c->looked_at + hi_events_bytes(c) +
           page_store_bytes(&c->store) +
           (c->has_identity ? host * (sizeof *c->hashes + sizeof *c->stored_at) +
                                  bits_words(host) * sizeof *c->fetched
                            : 0);
}

static void hi_get_stats(const rad_cache *cache, rad_cache_stats *stats)
{
    const hiradix_cache *c = of_const(cache);
    rad_cache_stats host;
    rad_cache_get_stats(c->device, stats);
    rad_cache_get_stats(c->host, &host);
    stats->metadata_bytes += host.metadata_bytes + own_bytes(c);
}

static rad_status hi_walk(const rad_cache *cache, rad_cache_visit_fn visit, void *user)
{
    return rad_cache_walk(of_const(cache)->device, visit, user);
}

static bool hi_owns_prefix(const rad_cache *cache, const rad_receipt *lock, const rad_slot *row,
                           uint32_t protected_len)
{
    const rad_cache *d = of_const(cache)->device;
    return d->ops->owns_prefix(d, lock, row, protected_len);
}

/* A pin orders eviction on both tiers, and what is pinned gets a copy whatever the policy:
 * so pressure on the device demotes it. */
static rad_status hi_pin_prefix(rad_cache *cache, const rad_key *key, uint64_t ttl_ns,
                                uint32_t *pinned_tokens)
{
    hiradix_cache *c = of(cache);
    rad_status status = rad_cache_pin_prefix(c->device, key, ttl_ns, pinned_tokens);
    if (status < 0) return status;
    (void)rad_cache_pin_prefix(c->host, key, ttl_ns, NULL);
    back_up_key(c, key, ttl_ns, true);
    return status;
}

static rad_status hi_retain_prefix(rad_cache *cache, const rad_key *key, int32_t priority,
                                   uint64_t idle_ns, uint32_t *retained_tokens)
{
    return rad_cache_retain_prefix(of(cache)->device, key, priority, idle_ns, retained_tokens);
}

static uint64_t hi_pinned_size(const rad_cache *cache)
{
    return rad_cache_pinned_size(of_const(cache)->device);
}

static rad_status hi_session_open(rad_cache *cache, rad_session *session)
{
    return rad_session_open(of(cache)->device, session);
}

static rad_status hi_session_begin(rad_cache *cache, rad_req_kv *req, rad_error *err)
{
    return of(cache)->device->ops->session_begin(of(cache)->device, req, err);
}

static rad_status hi_session_close(rad_cache *cache, rad_session session)
{
    return rad_session_close(of(cache)->device, session);
}

static void hi_session_stats(const rad_cache *cache, rad_session_stats *stats)
{
    of_const(cache)->device->ops->session_stats(of_const(cache)->device, stats);
}

static rad_cache *hi_nodes_of(const rad_cache *cache)
{
    return of_const(cache)->device;
}

static void abandon_all(hiradix_cache *c)
{
    tickets_abandon_all(&c->out);
    c->epoch++;
}

static rad_status hi_reset(rad_cache *cache)
{
    hiradix_cache *c = of(cache);
    abandon_all(c);
    rad_status host = rad_cache_reset(c->host), status = rad_cache_reset(c->device);
    hi_events_cleared(c, RAD_TIER_DEVICE | RAD_TIER_HOST);
    return status ? status : host;
}

/* ---- create and destroy ---- */

static void hi_wait_layer(void *user, uint32_t layer)
{
    hiradix_cache *c = user;
    controller_gate(c->out.controller, layer - c->start_layer);
    if (c->next_wait_layer) c->next_wait_layer(c->next_wait_user, layer);
}

static void free_own(hiradix_cache *c)
{
    rad_env env = c->base.env;
    size_t host = (size_t)c->num_host_pages + 1, words = bits_words(host);
    size_t nodes = c->device_tree ? (size_t)c->device_tree->tree.num_nodes + 1 : 0;
    tickets_fini(&c->out);
    rad_free(&env, c->tokens, c->num_tokens * sizeof *c->tokens);
    rad_free(&env, c->slots, c->num_slots * sizeof *c->slots);
    rad_free(&env, c->looked_at, nodes * sizeof *c->looked_at);
    rad_free(&env, c->looked_gen, nodes * sizeof *c->looked_gen);
    rad_free(&env, c->hashes, host * sizeof *c->hashes);
    rad_free(&env, c->fetched, words * sizeof *c->fetched);
    rad_free(&env, c->in_storage, hi_events_bytes(c));
    rad_free(&env, c->stored_at, host * sizeof *c->stored_at);
    page_store_fini(&c->store, &env);
    rad_page_hasher_destroy(c->chain.hasher);
    rad_cache_destroy(c->device);
    rad_cache_destroy(c->host);
    rad_free(&env, c, sizeof *c);
}

static void hi_destroy(rad_cache *cache)
{
    hiradix_cache *c = of(cache);
    abandon_all(c);
    c->device_pool->params.wait_layer = c->next_wait_layer;
    c->device_pool->params.wait_user = c->next_wait_user;
    rad_cache_reset(c->host); /* its pool lives on */
    free_own(c);
}

static rad_status read_params(const rad_hicache_params *params, rad_hicache_params *p,
                              rad_error *err)
{
    rad_status status = rad_params_read(p, sizeof *p, params, "hicache", err);
    if (status) return status;
    if (!p->cache || !p->host_pool || !p->cache->kv_allocator || !p->cache->req_to_token_pool ||
        p->cache->kind != RAD_CACHE_RADIX || p->cache->disable)
        return rad_fail(err, RAD_E_INVAL,
                        "hicache: it needs a host pool, and a radix cache with allocator and rows");
    if (p->write_policy > RAD_WRITE_BACK || p->prefetch_policy > RAD_PREFETCH_TIMEOUT)
        return rad_fail(err, RAD_E_INVAL, "hicache: write policy %u, prefetch policy %u",
                        p->write_policy, p->prefetch_policy);
    if (!p->load_back_threshold) p->load_back_threshold = 10;
    if (!p->prefetch_threshold) p->prefetch_threshold = 256;
    if (!p->max_transfers) p->max_transfers = 256;
    if (!p->copy_threads) p->copy_threads = 1;
    if (!p->store_threads) p->store_threads = 2;
    if (!p->timeout_base_ns) p->timeout_base_ns = 2000000000;
    if (!p->timeout_per_ki_ns) p->timeout_per_ki_ns = 100000000;
    if (!p->timeout_max_ns) p->timeout_max_ns = 30000000000;
    if (!p->recheck_ns) p->recheck_ns = 60000000000;
    p->timeout_max_ns = RAD_MIN(p->timeout_max_ns, (uint64_t)INT64_MAX / 2); /* it is added */
    if (p->max_transfers > TICKETS_MOST || p->copy_threads > 64 || p->store_threads > 64)
        return rad_fail(err, RAD_E_LIMIT, "hicache: %u transfers, %u and %u threads",
                        p->max_transfers, p->copy_threads, p->store_threads);
    if (p->storage && !p->identity)
        return rad_fail(err, RAD_E_INVAL, "hicache: storage without an identity");
    if (p->tier_events && !p->cache->enable_kv_events)
        return rad_fail(err, RAD_E_INVAL, "hicache: events of tiers, but the cache's are off");
    return RAD_OK;
}

/* The two trees. */
static rad_status create_trees(hiradix_cache *c, const rad_hicache_params *p, rad_error *err)
{
    rad_cache_params tree;
    rad_status status = rad_params_read(&tree, sizeof tree, p->cache, "hicache", err);
    if (status) return status;
    tree.struct_size = sizeof tree;
    rad_cache_params host = {.struct_size = sizeof host};
    hi_events_params(c, &tree, &host);
    status = rad_cache_create(&c->base.env, &tree, &c->device, err);
    if (status) return status;
    c->device_tree = radix_cache_of(c->device);
    host.page_size = c->device->page_size;
    host.kv_allocator = c->host_pages;
    host.max_namespaces = c->device_tree->tree.limits.max_namespaces;
    host.eviction = p->host_eviction;
    host.max_pinned_tokens = p->host_max_pinned_tokens ? p->host_max_pinned_tokens
                                                       : tree.max_pinned_tokens;
    host.is_eagle = tree.is_eagle;
    host.explain_pages = tree.explain_pages;
    status = rad_cache_create(&c->base.env, &host, &c->host, err);
    if (status) return status;
    static const uint32_t by_use = 1u << RAD_EVICT_LFU | 1u << RAD_EVICT_PRIORITY |
                                   1u << RAD_EVICT_SLRU | 1u << RAD_EVICT_COST;
    if (by_use >> p->host_eviction.policy & 1) c->counted = radix_cache_of(c->host);
    rad_env env = c->base.env;
    c->base = *c->device;
    c->base.env = env;
    c->base.ops = &hiradix_ops;
    c->page_size = c->base.page_size;
    c->bigram = c->device_tree->bigram;
    return hi_events_join(c, err);
}

static bool create_storage_side(hiradix_cache *c)
{
    size_t host = (size_t)c->num_host_pages + 1;
    const rad_env *env = &c->base.env;
    c->hashes = rad_alloc(env, host * sizeof *c->hashes);
    c->fetched = rad_alloc(env, bits_words(host) * sizeof *c->fetched);
    c->stored_at = rad_alloc(env, host * sizeof *c->stored_at);
    return page_store_init(&c->store, env, c->pool, &c->out.workers, STORE_LOT_PAGES,
                           &c->out.trouble) &&
           c->hashes && c->fetched && c->stored_at;
}

static bool create_own(hiradix_cache *c)
{
    const rad_env *env = &c->base.env;
    size_t nodes = (size_t)c->device_tree->tree.num_nodes + 1;
    c->num_tokens = (size_t)c->device_tree->tree.limits.max_pages * c->page_size + 1;
    c->num_slots = RAD_MAX((uint32_t)HI_SLOTS / c->page_size, 1u) * c->page_size;
    c->tokens = rad_alloc(env, c->num_tokens * sizeof *c->tokens);
    c->slots = rad_alloc(env, c->num_slots * sizeof *c->slots);
    c->looked_at = rad_alloc(env, nodes * sizeof *c->looked_at);
    c->looked_gen = rad_alloc(env, nodes * sizeof *c->looked_gen);
    bool ok = c->tokens && c->slots && c->looked_at && c->looked_gen;
    return ok && (!c->has_identity || create_storage_side(c));
}

static rad_status create_tickets(hiradix_cache *c, rad_error *err)
{
    const rad_hicache_params *p = &c->params;
    /* Loads have two entries for each device page, the rest two for each host page. */
    uint64_t units = 2 * ((uint64_t)rad_kv_num_pages(c->base.kv) + c->num_host_pages);
    if (c->has_identity) units += p->prefetch_tokens / c->page_size * (2 + TICKET_HASH_UNITS);
    ticket_params out = {.ops = &hi_ticket_ops,
                         .user = c,
                         .record_bytes = sizeof(hi_op),
                         .max = p->max_transfers,
                         .lists = 2,
                         .list_units = units,
                         .load_steps = c->num_layers,
                         .copy_threads = p->copy_threads,
                         .store_threads = c->has_identity ? p->store_threads : 0,
                         .deterministic = p->deterministic != 0};
    return tickets_init(&c->out, &c->base.env, &out, err);
}

rad_status rad_hicache_create(const rad_env *env, const rad_hicache_params *params, rad_cache **out,
                              rad_error *err)
{
    rad_hicache_params p;
    if (!out) return rad_fail(err, RAD_E_INVAL, "hicache: no place for the result");
    *out = NULL;
    rad_status status = read_params(params, &p, err);
    if (!status && p.storage) status = page_store_check_backend(p.storage, "hicache", err);
    if (status) return status;
    rad_env full = rad_env_or_default(env);
    hiradix_cache *c = rad_alloc(&full, sizeof *c);
    if (!c) return rad_fail(err, RAD_E_NOMEM, "hicache: no memory");
    c->base.env = full;
    c->params = p;
    c->pool = p.host_pool;
    c->device_pool = host_kv_pool_device_pool(p.host_pool);
    c->host_pages = rad_host_kv_pool_allocator(p.host_pool);
    c->num_host_pages = rad_host_kv_pool_num_pages(p.host_pool);
    c->num_layers = c->device_pool->params.num_layers;
    c->start_layer = c->device_pool->params.start_layer;
    c->has_identity = p.identity != NULL;
    c->epoch = 1;
    status = create_trees(c, &p, err);
    if (!status && (c->device_pool->params.page_size != c->page_size ||
                    c->device_pool->params.num_pages < rad_kv_num_pages(c->base.kv)))
        status =
            rad_fail(err, RAD_E_INVAL,
                     "hicache: the device pool has %u pages of %u tokens, the cache's %u of %u",
                     c->device_pool->params.num_pages, c->device_pool->params.page_size,
                     rad_kv_num_pages(c->base.kv), c->page_size);
    if (!status && rad_kv_available_pages(c->host_pages) != c->num_host_pages)
        status = rad_fail(err, RAD_E_INVAL, "hicache: somebody else uses the host pool");
    if (!status && p.identity) {
        status = rad_storage_fingerprint_of(p.identity, &c->store.fingerprint, err);
        if (!status) status = rad_page_hasher_create(&full, &c->chain.hasher, err);
        c->chain.env = &c->base.env;
        c->chain.page_size = c->page_size;
        c->chain.bigram = c->bigram;
    }
    uint64_t host_tokens = (uint64_t)c->num_host_pages * c->page_size;
    if (!p.prefetch_tokens) c->params.prefetch_tokens = host_tokens / 2;
    c->params.prefetch_tokens = RAD_MIN(c->params.prefetch_tokens, host_tokens);
    if (!status) status = create_tickets(c, err);
    if (!status && !create_own(c))
        status =
            rad_fail(err, RAD_E_NOMEM, "hicache: no memory for %u host pages", c->num_host_pages);
    if (status) {
        free_own(c);
        return status;
    }
    uint64_t device_tokens = (uint64_t)rad_kv_num_pages(c->base.kv) * c->page_size;
    uint64_t demote = p.demote_tokens ? p.demote_tokens : device_tokens / 4;
    c->demote_pages = p.demote_tokens == UINT64_MAX ? 0 : demote / c->page_size;
    if (p.storage) c->store.backend = *p.storage;
    c->params.cache = NULL;
    c->params.identity = NULL;
    c->params.storage = NULL;
    c->next_wait_layer = c->device_pool->params.wait_layer;
    c->next_wait_user = c->device_pool->params.wait_user;
    c->device_pool->params.wait_layer = hi_wait_layer;
    c->device_pool->params.wait_user = c;
    *out = &c->base;
    return RAD_OK;
}

static const cache_ops hiradix_ops = {
    .destroy = hi_destroy,
    .match_prefix = hi_match_prefix,
    .lookup = hi_lookup,
    .insert = hi_insert,
    .inc_lock_ref = hi_inc_lock_ref,
    .dec_lock_ref = hi_dec_lock_ref,
    .evict = hi_evict,
    .receipt_holds = hi_receipt_holds,
    .owns_page = hi_owns_page,
    .unfinished_req = hi_unfinished_req,
    .finished_req = hi_finished_req,
    .reset = hi_reset,
    .poll = hi_poll_op,
    .sizes = hi_sizes,
    .get_stats = hi_get_stats,
    .walk = hi_walk,
    .visit_pages = hi_visit_pages,
    .check = hi_check,
    .owns_prefix = hi_owns_prefix,
    .pin_prefix = hi_pin_prefix,
    .retain_prefix = hi_retain_prefix,
    .pinned_size = hi_pinned_size,
    .session_open = hi_session_open,
    .session_begin = hi_session_begin,
    .session_close = hi_session_close,
    .session_stats = hi_session_stats,
    .nodes_of = hi_nodes_of,
};
