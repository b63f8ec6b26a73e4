/* hiradix_create.c - a cache with tiers is made of params and pools, and taken apart.
 *
 *     read_params -> the tree over two tiers -> tickets and their workers -> what is its own ->
 *     registered with the device pool as one that layers wait for
 *
 * With windows there are two pools, each with its memory on both tiers, and an allocator of our own
 * gives the host's pages a window side, as the device's allocator does:
 *
 *     host page     5  6  9  7        of the full pool, or, where all layers see a window, of none
 *     window page         2  4        of the window pool
 *
 * Invariant: free_own takes whatever of this there is, so that each step may fail; readers of the
 * device pools wait for our loads from the last step of create to the first of destroy. */
#include "hicache/hiradix_impl.h"

#include "base/bits.h"
#include "base/params.h"
#include "mem/host_kv_pool.h"
#include "mem/kv_pool.h"
#include "mem/state_pool.h"

/* A layer has come when the load's step is done with which it comes (hiradix_load.c). */
static void hi_wait_layer(void *user, uint32_t layer)
{
    const hi_pool *p = user;
    uint64_t steps = (uint64_t)(layer - p->start_layer + 1) * p->of->load_steps;
    controller_gate(p->of->out.controller, (uint32_t)((steps - 1) / p->num_layers));
}

/* A load brings its state before its first layer. */
static void hi_wait_states(void *user)
{
    controller_gate(((hiradix_cache *)user)->out.controller, 0);
}

static rad_status hook(hi_pool *p, rad_error *err)
{
    return p->host ? rad_kv_pool_add_wait(p->device, hi_wait_layer, p, err) : RAD_OK;
}

static void unhook(hi_pool *p)
{
    if (p->host) (void)rad_kv_pool_remove_wait(p->device, hi_wait_layer, p);
}

static void read_pool(hiradix_cache *c, hi_pool *p, rad_host_kv_pool *host)
{
    p->of = c;
    p->host = host;
    if (!host) return;
    p->device = host_kv_pool_device_pool(host);
    p->num_layers = p->device->params.num_layers;
    p->start_layer = p->device->params.start_layer;
    c->load_steps = RAD_MAX(c->load_steps, p->num_layers);
}

size_t hi_own_bytes(const hiradix_cache *c)
{
    size_t host = (size_t)c->num_host_pages + 1;
    size_t nodes = (size_t)c->tree->num_nodes + 1;
    return sizeof *c + tickets_bytes(&c->out) + 2 * nodes * sizeof *c->looked_at +
           hi_events_bytes(c) + page_store_bytes(&c->store) + page_store_bytes(&c->window_store) +
           page_store_bytes(&c->state_store) + page_store_bytes(&c->mark_store) +
           (c->has_identity ? host * sizeof *c->stored_at + bits_words(host) * sizeof *c->fetched +
                                  nodes * sizeof *c->settled
                            : 0);
}

static void free_own(hiradix_cache *c)
{
    rad_env env = c->base.env;
    size_t host = (size_t)c->num_host_pages + 1, words = bits_words(host);
    size_t nodes = c->tree ? (size_t)c->tree->num_nodes + 1 : 0;
    tickets_fini(&c->out);
    rad_free(&env, c->looked_at, nodes * sizeof *c->looked_at);
    rad_free(&env, c->looked_gen, nodes * sizeof *c->looked_gen);
    rad_free(&env, c->fetched, words * sizeof *c->fetched);
    rad_free(&env, c->in_storage, hi_events_bytes(c));
    rad_free(&env, c->stored_at, host * sizeof *c->stored_at);
    rad_free(&env, c->settled, nodes * sizeof *c->settled);
    page_store_fini(&c->store, &env);
    page_store_fini(&c->window_store, &env);
    page_store_fini(&c->state_store, &env);
    page_store_fini(&c->mark_store, &env);
    rad_cache_destroy(c->device);
    rad_kv_allocator_destroy(c->own_pages);
    rad_free(&env, c, sizeof *c);
}

static void give_back(void *cache, rad_page page)
{
    hi_drop_host(cache, &page, NULL, 1);
}

void hi_destroy(rad_cache *cache)
{
    hiradix_cache *c = hiradix_of(cache);
    unhook(&c->full);
    unhook(&c->window);
    state_pool_drop_wait(c->base.states, c);
    tickets_abandon_all(&c->out);
    radix_visit_pages(c->tree, RADIX_HOST, give_back, c); /* the host pool lives on, */
    radix_state_drop_all(c->tree, RADIX_HOST);            /* and that of states */
    free_own(c);
}

static rad_status read_params(const rad_hicache_params *params, rad_hicache_params *p,
                              rad_error *err)
{
    rad_status status = rad_params_read(p, sizeof *p, params, "hicache", err);
    if (status) return status;
    if (!p->cache || !(p->host_pool || p->window_host_pool) || !p->cache->kv_allocator ||
        !p->cache->req_to_token_pool || p->cache->kind != RAD_CACHE_RADIX || p->cache->disable)
        return rad_fail(err, RAD_E_INVAL,
                        "hicache: it needs a host pool, and a radix cache with allocator and rows");
    if (p->write_policy > RAD_WRITE_BACK || p->prefetch_policy > RAD_PREFETCH_TIMEOUT)
        return rad_fail(err, RAD_E_INVAL, "hicache: write policy %u, prefetch policy %u",
                        p->write_policy, p->prefetch_policy);
    if (!p->load_back_threshold) p->load_back_threshold = RAD_HICACHE_LOAD_BACK_THRESHOLD;
    if (!p->prefetch_threshold) p->prefetch_threshold = RAD_HICACHE_PREFETCH_THRESHOLD;
    if (!p->max_transfers) p->max_transfers = RAD_HICACHE_MAX_TRANSFERS;
    if (!p->copy_threads) p->copy_threads = RAD_HICACHE_COPY_THREADS;
    if (!p->store_threads) p->store_threads = RAD_HICACHE_STORE_THREADS;
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

/* The tree over both tiers. */
static rad_status create_tree(hiradix_cache *c, const rad_hicache_params *p, rad_error *err)
{
    rad_cache_params tree;
    rad_status status = rad_params_read(&tree, sizeof tree, p->cache, "hicache", err);
    if (status) return status;
    tree.struct_size = sizeof tree;
    if (!tree.window_tokens != !c->window.host)
        return rad_fail(err, RAD_E_INVAL, "hicache: a window of %u tokens, and %s host pool for it",
                        tree.window_tokens, c->window.host ? "a" : "no");
    if (c->host_states && !tree.state_pool)
        return rad_fail(err, RAD_E_INVAL, "hicache: states on the host, but the cache has none");
    if (c->has_identity) tree.enable_page_hashes = 1; /* storage knows pages by them */
    hi_events_params(c, &tree);
    uint64_t pinned = p->host_max_pinned_tokens;
    radix_host_params host = {.pages = c->num_host_pages,
                              .eviction = p->host_eviction,
                              .max_pinned_tokens = pinned ? pinned : tree.max_pinned_tokens,
                              .events = p->tier_events != 0,
                              .drop = hi_drop_host,
                              .drop_windows = hi_drop_host_windows,
                              .drop_state = hi_drop_host_state,
                              .save = p->write_policy == RAD_WRITE_BACK ? hi_save_leaf : NULL,
                              .user = c};
    if (c->host_states) host.states = rad_state_pool_num_states(c->host_states);
    status = radix_cache_create_tiered(&c->base.env, &tree, &host, &c->device, err);
    if (status) return status;
    c->nodes = radix_cache_of(c->device);
    c->tree = &c->nodes->tree;
    rad_env env = c->base.env;
    c->base = *c->device;
    c->base.env = env;
    c->base.ops = &hiradix_ops;
    c->base.inner = c->device;
    c->page_size = c->base.page_size;
    c->bigram = c->nodes->bigram;
    return hi_events_begin(c, err);
}

/* Where there are windows a page has two records, of its full layers and of the others; neither may
 * be taken for the other, nor for that of one who keeps all layers in one pool. Snapshots and their
 * marks are filed under the hash of the page before them. */
rad_status hi_set_fingerprint(hiradix_cache *c, const rad_storage_fingerprint *fingerprint,
                              rad_error *err)
{
    static const rad_page_hash sides[4] = {{"full layers beside windows"},
                                           {"window layers"},
                                           {"snapshots of states"},
                                           {"their marks"}};
    rad_storage_fingerprint *to[4] = {&c->store.fingerprint, &c->window_store.fingerprint,
                                      &c->state_store.fingerprint, &c->mark_store.fingerprint};
    c->store.fingerprint = *fingerprint;
    for (int i = 0; i < 4; i++) {
        if (i < 2 ? !c->window.host : !c->host_states) continue;
        rad_storage_key key;
        rad_status status = rad_storage_key_of(fingerprint, &sides[i], &key);
        if (status) return rad_fail(err, status, "hicache: libcrypto failed");
        memcpy(to[i]->bytes, key.bytes, sizeof to[i]->bytes);
    }
    return RAD_OK;
}

static bool create_storage_side(hiradix_cache *c)
{
    size_t host = (size_t)c->num_host_pages + 1;
    const rad_env *env = &c->base.env;
    c->fetched = rad_alloc(env, bits_words(host) * sizeof *c->fetched);
    c->stored_at = rad_alloc(env, host * sizeof *c->stored_at);
    c->settled = rad_alloc(env, ((size_t)c->tree->num_nodes + 1) * sizeof *c->settled);
    radix_add_part(c->tree, &hi_settled_part, c);
    return page_store_init(&c->store, env, c->full.host, c->num_host_pages, &c->out.workers,
                           &c->out.trouble) &&
           page_store_init(&c->window_store, env, c->window.host, c->num_host_pages,
                           &c->out.workers, &c->out.trouble) &&
           (!c->host_states || (page_store_init_states(&c->state_store, env, c->host_states,
                                                       c->page_size, &c->out.trouble) &&
                                page_store_init_marks(&c->mark_store, env, c->page_size,
                                                      &c->out.workers, &c->out.trouble))) &&
           c->fetched && c->stored_at && c->settled;
}

static bool create_own(hiradix_cache *c)
{
    const rad_env *env = &c->base.env;
    size_t nodes = (size_t)c->tree->num_nodes + 1;
    c->looked_at = rad_alloc(env, nodes * sizeof *c->looked_at);
    c->looked_gen = rad_alloc(env, nodes * sizeof *c->looked_gen);
    return c->looked_at && c->looked_gen && (!c->has_identity || create_storage_side(c));
}

static rad_status create_tickets(hiradix_cache *c, rad_error *err)
{
    const rad_hicache_params *p = &c->params;
    /* Room for loads by the device's pages, for the rest by the host's. */
    uint64_t units = TICKET_LISTS * ((uint64_t)rad_kv_num_pages(c->base.kv) + c->num_host_pages +
                                     rad_kv_window_num_pages(c->base.kv) +
                                     rad_kv_window_num_pages(c->host_pages)) +
                     p->max_transfers; /* of states */
    if (c->has_identity)               /* a page of the host's is in one backup at most */
        units += p->prefetch_tokens / c->page_size * (TICKET_LISTS + TICKET_HASH_UNITS) +
                 (uint64_t)c->num_host_pages * TICKET_HASH_UNITS;
    ticket_params out = {.ops = &hi_ticket_ops,
                         .user = c,
                         .record_bytes = sizeof(hi_op),
                         .max = p->max_transfers,
                         .load_steps = c->load_steps,
                         .list_units = units,
                         .copy_threads = p->copy_threads,
                         .store_threads = c->has_identity ? p->store_threads : 0,
                         .deterministic = p->deterministic != 0};
    return tickets_init(&c->out, &c->base.env, &out, err);
}

static rad_status check_pool(const hiradix_cache *c, const hi_pool *p, uint32_t num_pages,
                             rad_error *err)
{
    if (!p->host) return RAD_OK;
    const rad_token_to_kv_pool_params *d = &p->device->params;
    const rad_kv_allocator *host = host_kv_pool_allocator(p->host);
    if (d->page_size != c->page_size || d->num_pages < num_pages)
        return rad_fail(err, RAD_E_INVAL,
                        "hicache: the device pool has %u pages of %u tokens, the cache's %u of %u",
                        d->num_pages, d->page_size, num_pages, c->page_size);
    if (rad_kv_available_pages(host) != rad_kv_num_pages(host))
        return rad_fail(err, RAD_E_INVAL, "hicache: somebody else uses the host pool");
    return RAD_OK;
}

static rad_status check_pools(const hiradix_cache *c, rad_error *err)
{
    rad_status status = check_pool(c, &c->full, rad_kv_num_pages(c->base.kv), err);
    const rad_state_pool *host = c->host_states;
    if (!status && host && rad_state_bytes(host) != rad_state_bytes(c->base.states))
        return rad_fail(err, RAD_E_INVAL,
                        "hicache: states of %zu bytes on the host, of %zu on the device",
                        rad_state_bytes(host), rad_state_bytes(c->base.states));
    if (!status && host && rad_state_available(host) != rad_state_pool_num_states(host))
        return rad_fail(err, RAD_E_INVAL, "hicache: somebody else uses the host's states");
    return status ? status : check_pool(c, &c->window, rad_kv_window_num_pages(c->base.kv), err);
}

/* Host pages: the full pool's own; with windows ours. Without a full pool they are but numbers, and
 * as many for each window page as on the device. */
static rad_status create_host_pages(hiradix_cache *c, const rad_kv_allocator *device,
                                    rad_error *err)
{
    if (c->full.host) {
        c->host_pages = host_kv_pool_allocator(c->full.host);
        c->num_host_pages = host_kv_pool_num_pages(c->full.host);
    }
    if (!c->window.host) return RAD_OK;
    uint32_t windows = host_kv_pool_num_pages(c->window.host);
    uint32_t on_device = RAD_MAX(rad_kv_window_num_pages(device), 1u);
    uint64_t numbers = (uint64_t)windows * rad_kv_num_pages(device) / on_device;
    if (!c->full.host)
        c->num_host_pages =
            (uint32_t)RAD_MIN(RAD_MAX(numbers, (uint64_t)windows), (uint64_t)INT32_MAX / 4);
    rad_kv_allocator_params pages = {.struct_size = sizeof pages,
                                     .num_pages = c->num_host_pages,
                                     .page_size = 1, /* of the host's no slots are made */
                                     .swa_num_pages = windows};
    rad_status status = rad_kv_allocator_create(&c->base.env, &pages, &c->own_pages, err);
    c->host_pages = c->own_pages;
    return status;
}

rad_status rad_hicache_create(const rad_env *env, const rad_hicache_params *params, rad_cache **out,
                              rad_error *err)
{
    rad_hicache_params p;
    if (!out) return rad_fail(err, RAD_E_INVAL, "hicache: no place for the result");
    *out = NULL;
    rad_status status = read_params(params, &p, err);
    if (!status && p.storage) status = page_store_check_backend(p.storage, err);
    if (status) return status;
    rad_env full = rad_env_or_default(env);
    hiradix_cache *c = rad_alloc(&full, sizeof *c);
    if (!c) return rad_fail(err, RAD_E_NOMEM, "hicache: no memory");
    c->base.env = full;
    c->params = p;
    read_pool(c, &c->full, p.host_pool);
    read_pool(c, &c->window, p.window_host_pool);
    c->host_states = p.host_states;
    c->has_identity = p.identity != NULL;
    c->epoch = 1;
    status = create_host_pages(c, p.cache->kv_allocator, err);
    if (!status) status = create_tree(c, &p, err);
    if (!status) status = check_pools(c, err);
    if (!status && p.identity) {
        rad_storage_fingerprint fingerprint;
        status = rad_storage_fingerprint_of(p.identity, &fingerprint, err);
        if (!status) status = hi_set_fingerprint(c, &fingerprint, err);
    }
    uint64_t host_tokens = (uint64_t)c->num_host_pages * c->page_size;
    if (!p.prefetch_tokens) c->params.prefetch_tokens = host_tokens / 2;
    c->params.prefetch_tokens = RAD_MIN(c->params.prefetch_tokens, host_tokens);
    if (!status) status = create_tickets(c, err);
    if (!status && !create_own(c))
        status =
            rad_fail(err, RAD_E_NOMEM, "hicache: no memory for %u host pages", c->num_host_pages);
    if (!status) status = hook(&c->full, err);
    if (!status) status = hook(&c->window, err);
    if (!status && c->host_states)
        status = state_pool_set_wait(c->base.states, hi_wait_states, c, err);
    if (status) {
        unhook(&c->full);
        unhook(&c->window);
        free_own(c);
        return status;
    }
    uint64_t device_tokens = (uint64_t)rad_kv_num_pages(c->base.kv) * c->page_size;
    uint64_t demote = p.demote_tokens ? p.demote_tokens : device_tokens / 4;
    c->demote_pages = p.demote_tokens == UINT64_MAX ? 0 : demote / c->page_size;
    if (p.storage) hi_set_store(c, p.storage);
    c->params.cache = NULL;
    c->params.identity = NULL;
    c->params.storage = NULL;
    *out = &c->base;
    return RAD_OK;
}
