/* swa_hi_create.c - the tiers of a sliding-window cache are made of params and pools, and taken
 * apart.
 *
 *     read_params -> device tree -> sides -> host tree -> what is its own -> tickets -> stores
 *                                                              -> both wait_layers hooked
 *
 * Invariant: free_own takes whatever of this there is, so that each step may fail; and the device
 * pools' wait_layers are ours from the last step of create to the first of destroy. */
#include "hicache/swa_hi_impl.h"

#include "base/params.h"
#include "mem/host_kv_pool.h"
#include "mem/kv_pool.h"

static rad_status read_params(const rad_swa_hicache_params *params, rad_swa_hicache_params *p,
                              rad_error *err)
{
    rad_status status = rad_params_read(p, sizeof *p, params, "swa_hicache", err);
    if (status) return status;
    if (!p->cache || !p->host_pool || !p->swa_host_pool || p->host_pool == p->swa_host_pool ||
        !p->cache->allocator || !p->cache->req_to_token_pool)
        return rad_fail(
            err, RAD_E_INVAL,
            "swa_hicache: it needs two host pools, and a cache with allocator and rows");
    if (p->write_policy > RAD_WRITE_BACK)
        return rad_fail(err, RAD_E_INVAL, "swa_hicache: write policy %u", p->write_policy);
    if (!p->load_back_threshold) p->load_back_threshold = 10;
    if (!p->prefetch_threshold) p->prefetch_threshold = 256;
    if (!p->max_transfers) p->max_transfers = 256;
    if (!p->copy_threads) p->copy_threads = 1;
    if (!p->store_threads) p->store_threads = 2;
    if (!p->timeout_max_ns) p->timeout_max_ns = 30000000000;
    p->timeout_max_ns = RAD_MIN(p->timeout_max_ns, (uint64_t)INT64_MAX / 2); /* it is added */
    if (p->max_transfers > TICKETS_MOST || p->copy_threads > 64 || p->store_threads > 64)
        return rad_fail(err, RAD_E_LIMIT, "swa_hicache: %u transfers, %u and %u threads",
                        p->max_transfers, p->copy_threads, p->store_threads);
    if (!p->storage != !p->swa_storage || (p->storage && !p->identity))
        return rad_fail(err, RAD_E_INVAL,
                        "swa_hicache: storage is a store for each side, and an identity");
    return RAD_OK;
}

/* Nobody else shall take pages of a host pool: who has which is in host_kv. */
static rad_status occupy(rad_host_kv_pool *pool, rad_error *err)
{
    rad_kv_allocator *pages = rad_host_kv_pool_allocator(pool);
    rad_page page;
    if (rad_kv_available_pages(pages) != rad_host_kv_pool_num_pages(pool))
        return rad_fail(err, RAD_E_INVAL, "swa_hicache: somebody else uses a host pool");
    while (rad_kv_alloc(pages, &page, 1) == RAD_OK) {
    }
    return RAD_OK;
}

static rad_status create_side(rad_swa_hicache *c, int which, rad_host_kv_pool *pool,
                              uint32_t num_pages, rad_error *err)
{
    swa_side *s = &c->side[which];
    rad_token_to_kv_pool *d = host_kv_pool_device_pool(pool);
    if (d->params.page_size != c->page_size || d->params.num_pages < num_pages)
        return rad_fail(err, RAD_E_INVAL,
                        "swa_hicache: the %s side's device pool has %u pages of %u tokens, the "
                        "allocator %u of %u",
                        which == SIDE_FULL ? "full" : "window", d->params.num_pages,
                        d->params.page_size, num_pages, c->page_size);
    rad_status status = occupy(pool, err);
    if (status) return status;
    s->pool = pool;
    s->device_pool = d;
    s->tiers = c;
    s->num_layers = d->params.num_layers;
    s->num_host_pages = rad_host_kv_pool_num_pages(pool);
    s->step = rad_alloc(&c->env, s->num_layers * sizeof *s->step);
    return s->step ? RAD_OK : rad_fail(err, RAD_E_NOMEM, "swa_hicache: no memory");
}

/* The two trees, and who has which page on the host. */
static rad_status create_trees(rad_swa_hicache *c, const rad_swa_hicache_params *p, rad_error *err)
{
    rad_status status = rad_swa_cache_create(&c->env, p->cache, &c->device, err);
    if (status) return status;
    c->page_size = c->device->page_size;
    c->window = c->device->window;
    c->num_device_pages = c->device->num_pages;
    status = create_side(c, SIDE_FULL, p->host_pool, c->num_device_pages, err);
    if (!status)
        status = create_side(c, SIDE_SWA, p->swa_host_pool,
                             rad_swa_swa_num_pages(p->cache->allocator), err);
    if (status) return status;
    rad_swa_allocator_params pages = {.struct_size = sizeof pages,
                                      .num_pages = c->side[SIDE_FULL].num_host_pages,
                                      .swa_num_pages = c->side[SIDE_SWA].num_host_pages,
                                      .page_size = c->page_size};
    status = rad_swa_allocator_create(&c->env, &pages, &c->host_kv, err);
    if (status) return status;
    rad_swa_cache_params host = {.struct_size = sizeof host,
                                 .window_tokens = p->cache->window_tokens,
                                 .max_namespaces = p->cache->max_namespaces,
                                 .allocator = c->host_kv};
    return rad_swa_cache_create(&c->env, &host, &c->host, err);
}

static bool create_own(rad_swa_hicache *c)
{
    const rad_env *env = &c->env;
    uint64_t below = c->num_host_pages, above = c->num_device_pages;
    c->num_tokens = (size_t)(RAD_MAX(above, below) + 1) * c->page_size;
    c->num_slots = RAD_MAX((uint32_t)SWA_HI_WRITE_TOKENS / c->page_size, 1u) * c->page_size;
    c->tokens = rad_alloc(env, c->num_tokens * sizeof *c->tokens);
    c->path = rad_alloc(env, (above + 1) * sizeof *c->path);
    c->on_host = rad_alloc(env, (below + 1) * sizeof *c->on_host);
    c->slots = rad_alloc(env, c->num_slots * sizeof *c->slots);
    c->looked_at = rad_alloc(env, ((size_t)c->device->tree.num_nodes + 1) * sizeof *c->looked_at);
    return c->tokens && c->path && c->on_host && c->slots && c->looked_at;
}

static rad_status create_tickets(rad_swa_hicache *c, rad_error *err)
{
    const rad_swa_hicache_params *p = &c->params;
    /* Loads have four entries for each device page, the rest four for each host page. */
    uint64_t units = 4 * ((uint64_t)c->num_device_pages + c->num_host_pages);
    if (c->has_identity) units += p->prefetch_tokens / c->page_size * (4 + TICKET_HASH_UNITS);
    ticket_params out = {.ops = &swa_ticket_ops,
                         .user = c,
                         .record_bytes = sizeof(swa_op),
                         .max = p->max_transfers,
                         .lists = 4,
                         .list_units = units,
                         .load_steps = swa_hi_load_steps(c),
                         .copy_threads = p->copy_threads,
                         .store_threads = c->has_identity ? p->store_threads : 0,
                         .deterministic = p->deterministic != 0};
    return tickets_init(&c->out, &c->env, &out, err);
}

static void free_own(rad_swa_hicache *c)
{
    rad_env env = c->env;
    size_t nodes = c->device ? (size_t)c->device->tree.num_nodes + 1 : 0;
    tickets_fini(&c->out);
    swa_hi_close_storage(c);
    rad_free(&env, c->tokens, c->num_tokens * sizeof *c->tokens);
    rad_free(&env, c->path, ((size_t)c->num_device_pages + 1) * sizeof *c->path);
    rad_free(&env, c->on_host, ((size_t)c->num_host_pages + 1) * sizeof *c->on_host);
    rad_free(&env, c->slots, c->num_slots * sizeof *c->slots);
    rad_free(&env, c->looked_at, nodes * sizeof *c->looked_at);
    for (int s = 0; s < 2; s++) {
        rad_free(&env, c->side[s].step, c->side[s].num_layers * sizeof *c->side[s].step);
        if (c->side[s].pool) rad_kv_clear(rad_host_kv_pool_allocator(c->side[s].pool));
    }
    rad_swa_cache_destroy(c->device);
    rad_swa_cache_destroy(c->host);
    rad_swa_allocator_destroy(c->host_kv);
    rad_free(&env, c, sizeof *c);
}

void rad_swa_hicache_destroy(rad_swa_hicache *c)
{
    if (!c) return;
    tickets_abandon_all(&c->out);
    for (int s = 0; s < 2; s++) {
        c->side[s].device_pool->params.wait_layer = c->side[s].next_wait_layer;
        c->side[s].device_pool->params.wait_user = c->side[s].next_wait_user;
    }
    free_own(c);
}

static uint64_t demote_pages(const rad_swa_hicache *c, uint64_t side_pages)
{
    if (c->params.demote_tokens == UINT64_MAX) return 0;
    return c->params.demote_tokens ? c->params.demote_tokens / c->page_size : side_pages / 4;
}

rad_status rad_swa_hicache_create(const rad_env *env, const rad_swa_hicache_params *params,
                                  rad_swa_hicache **out, rad_error *err)
{
    rad_swa_hicache_params p;
    if (!out) return rad_fail(err, RAD_E_INVAL, "swa_hicache: no place for the result");
    *out = NULL;
    rad_status status = read_params(params, &p, err);
    if (status) return status;
    rad_env full = rad_env_or_default(env);
    rad_swa_hicache *c = rad_alloc(&full, sizeof *c);
    if (!c) return rad_fail(err, RAD_E_NOMEM, "swa_hicache: no memory");
    c->env = full;
    c->params = p;
    c->has_identity = p.identity != NULL;
    c->epoch = 1;
    status = create_trees(c, &p, err);
    c->num_host_pages = c->side[SIDE_FULL].num_host_pages;
    uint64_t host_tokens = (uint64_t)c->num_host_pages * c->page_size;
    if (!p.prefetch_tokens) c->params.prefetch_tokens = host_tokens / 2;
    c->params.prefetch_tokens = RAD_MIN(c->params.prefetch_tokens, host_tokens);
    if (!status && !create_own(c))
        status = rad_fail(err, RAD_E_NOMEM, "swa_hicache: no memory for %u host pages",
                          c->num_host_pages);
    if (!status) status = create_tickets(c, err);
    if (!status && p.identity) status = swa_hi_open_storage(c, &p, err);
    if (status) {
        free_own(c);
        return status;
    }
    c->demote_pages[SIDE_FULL] = demote_pages(c, c->num_device_pages);
    c->demote_pages[SIDE_SWA] = demote_pages(c, rad_swa_swa_num_pages(c->device->kv));
    c->params.cache = NULL;
    c->params.identity = NULL;
    c->params.storage = c->params.swa_storage = NULL;
    swa_hi_order_layers(c);
    for (int s = 0; s < 2; s++) {
        rad_token_to_kv_pool_params *d = &c->side[s].device_pool->params;
        c->side[s].next_wait_layer = d->wait_layer;
        c->side[s].next_wait_user = d->wait_user;
        d->wait_layer = swa_hi_wait_layer;
        d->wait_user = &c->side[s];
    }
    *out = c;
    return RAD_OK;
}
