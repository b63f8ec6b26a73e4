/* hiradix_check.c - counts, and walking everything on all tiers against them. */
#include "hicache/hiradix_impl.h"

#include "base/bits.h"

rad_status rad_hicache_get_stats(const rad_cache *cache, rad_hicache_stats *stats)
{
    const hiradix_cache *c = hiradix_of(cache);
    if (!c) return RAD_E_UNSUPPORTED;
    rad_cache_stats host;
    rad_cache_get_stats(c->host, &host);
    uint64_t ps = c->page_size;
    *stats = c->stats;
    stats->host_tokens = c->num_host_pages * ps;
    stats->host_used_tokens =
        ((uint64_t)c->num_host_pages - rad_kv_available_pages(c->host_pages)) * ps;
    stats->host_cached_tokens = rad_cache_total_size(c->host);
    stats->host_evicted_tokens = host.evicted_tokens;
    stats->bad_pages = atomic_load(&c->bad_pages);
    stats->storage_errors = atomic_load(&c->storage_errors);
    stats->prefetch_reserved_tokens = c->prefetch_reserved * ps;
    stats->tickets = c->ids.num_live;
    stats->max_tickets = c->params.max_transfers;
    for (int kind = 0; kind < TRANSFER_KINDS; kind++) {
        stats->queued[kind] = controller_queued(c->controller, kind);
        stats->running[kind] = controller_running(c->controller, kind);
    }
    stats->storage_attached = c->storage.ops != NULL;
    stats->device_holds = c->orphans;
    for (const hi_op *op = c->oldest_write; op; op = op->newer)
        stats->device_holds++;
    return RAD_OK;
}

typedef struct host_check {
    const hiradix_cache *c;
    uint64_t *seen;
    uint64_t pages;
    rad_status status;
    rad_error *err;
} host_check;

static void check_host_page(void *user, rad_page page)
{
    host_check *check = user;
    if (check->status) return;
    if (!rad_kv_is_taken(check->c->host_pages, page) || bits_get(check->seen, (size_t)page))
        check->status = rad_fail(check->err, RAD_E_CORRUPT,
                                 "hicache_check: host page %d is free, or has two owners", page);
    bits_set(check->seen, (size_t)page);
    check->pages++;
}

static rad_status check_tickets(const hiradix_cache *c, host_check *check)
{
    uint64_t reserved = 0, orphans = 0, orphan_pages = 0, pending = 0, storage = 0, writes = 0;
    for (uint32_t id = 1; id <= c->ids.num_fresh; id++) {
        const hi_op *op = &c->ops[id];
        if (!slab_is_live(&c->ids, id)) continue;
        if (op->t.kind == TRANSFER_WRITE || op->t.kind == TRANSFER_FETCH)
            for (uint32_t i = op->hung; i < hi_op_host_pages(op); i++)
                check_host_page(check, op->host[i]);
        reserved += op->reserve;
        storage += op->t.kind >= TRANSFER_FETCH;
        writes += op->t.kind == TRANSFER_WRITE;
        if (op->t.kind != TRANSFER_LOAD) continue;
        pending += !op->submitted;
        orphans += op->orphan;
        orphan_pages += op->orphan ? op->count : 0;
    }
    for (const hi_op *op = c->oldest_write; op; op = op->newer)
        writes--;
    if (reserved != c->prefetch_reserved || orphans != c->orphans || pending != c->pending_loads ||
        orphan_pages != c->orphan_pages || storage != c->storage_ops || writes != 0)
        return rad_fail(check->err, RAD_E_CORRUPT,
                        "hicache_check: the counters of tickets are wrong");
    return check->status;
}

rad_status hi_check(const rad_cache *cache, rad_error *err)
{
    const hiradix_cache *c = hiradix_of(cache);
    rad_status status = rad_cache_check(c->device, err);
    if (!status) status = rad_cache_check(c->host, err);
    if (!status && !span_arena_check(&c->runs))
        status = rad_fail(err, RAD_E_CORRUPT, "hicache_check: the arena of lists is inconsistent");
    if (status) return status;
    size_t bytes = bits_words((size_t)c->num_host_pages + 1) * sizeof(uint64_t);
    host_check check = {.c = c, .seen = rad_alloc(&cache->env, bytes), .err = err};
    if (!check.seen) return rad_fail(err, RAD_E_NOMEM, "hicache_check: no scratch memory");
    c->host->ops->visit_pages(c->host, check_host_page, &check);
    status = check_tickets(c, &check);
    uint64_t taken = (uint64_t)c->num_host_pages - rad_kv_available_pages(c->host_pages);
    if (!status && check.pages != taken)
        status = rad_fail(err, RAD_E_CORRUPT,
                          "hicache_check: %llu host pages are taken, %llu have an owner",
                          (unsigned long long)taken, (unsigned long long)check.pages);
    rad_free(&cache->env, check.seen, bytes);
    return status;
}
