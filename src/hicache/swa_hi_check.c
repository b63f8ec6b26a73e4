/* swa_hi_check.c - counts, and walking both sides of both tiers against them. */
#include "hicache/swa_hi_impl.h"

rad_status rad_swa_hicache_get_stats(const rad_swa_hicache *c, rad_swa_hicache_stats *stats)
{
    if (!stats) return RAD_E_INVAL;
    uint64_t ps = c->page_size;
    rad_swa_cache_sizes host = rad_swa_cache_get_sizes(c->host);
    *stats = c->stats;
    stats->host_tokens[SIDE_FULL] = rad_swa_num_pages(c->host_kv) * ps;
    stats->host_tokens[SIDE_SWA] = rad_swa_swa_num_pages(c->host_kv) * ps;
    stats->host_used_tokens[SIDE_FULL] = stats->host_tokens[SIDE_FULL] -
                                         rad_swa_full_available_size(c->host_kv);
    stats->host_used_tokens[SIDE_SWA] = stats->host_tokens[SIDE_SWA] -
                                        rad_swa_swa_available_size(c->host_kv);
    stats->host_cached_tokens[SIDE_FULL] = host.full_evictable + host.full_protected;
    stats->host_cached_tokens[SIDE_SWA] = host.swa_evictable + host.swa_protected;
    stats->bad_pages = atomic_load(&c->out.trouble.bad_records);
    stats->storage_errors = atomic_load(&c->out.trouble.failed_calls);
    stats->prefetch_reserved_tokens = c->out.reserved * ps;
    stats->tickets = c->out.ids.num_live;
    stats->max_tickets = c->params.max_transfers;
    tickets_count_queues(&c->out, stats->queued, stats->running);
    return RAD_OK;
}

/* The pages of tickets get an owner: what they hold on the host, or the orphans on the device. */
static rad_status mark_tickets(const rad_swa_hicache *c, bool host, uint32_t *owner, rad_error *err)
{
    const rad_swa_allocator *kv = host ? c->host_kv : c->device->kv;
    for (const hi_ticket *k = NULL; (k = tickets_next(&c->out, k));) {
        bool is_orphan = k->t.kind == TRANSFER_LOAD && k->orphan;
        uint32_t count = host ? ticket_host_pages(k) : is_orphan ? k->count : 0;
        const rad_page *pages = host ? k->host : k->device;
        for (uint32_t i = 0; i < count; i++) {
            if (!rad_swa_is_taken(kv, pages[i]) || owner[pages[i]])
                return rad_fail(err, RAD_E_CORRUPT,
                                "swa_hicache_check: %s page %d of ticket %u is not its own",
                                host ? "host" : "device", pages[i], k->id);
            owner[pages[i]] = UINT32_MAX;
        }
    }
    return RAD_OK;
}

static rad_status check_tier(const rad_swa_hicache *c, bool host, const rad_swa_req *const *reqs,
                             uint32_t num_reqs, rad_error *err)
{
    const rad_swa_cache *tree = host ? c->host : c->device;
    rad_status status = radix_check(&tree->tree, err);
    if (!status) status = rad_swa_check(tree->kv, err);
    if (status) return status;
    size_t bytes = ((size_t)tree->num_pages + 1) * sizeof(uint32_t);
    uint32_t *owner = rad_alloc(&c->env, bytes);
    if (!owner) return rad_fail(err, RAD_E_NOMEM, "swa_hicache_check: no scratch memory");
    status = mark_tickets(c, host, owner, err);
    if (!status) status = swa_check_pages(tree, reqs, num_reqs, owner, err);
    rad_free(&c->env, owner, bytes);
    return status;
}

rad_status rad_swa_hicache_check(const rad_swa_hicache *c, const rad_swa_req *const *reqs,
                                 uint32_t num_reqs, rad_error *err)
{
    const rad_swa_req *const nobody[1] = {NULL};
    rad_status status = tickets_check(&c->out, err);
    if (!status) status = check_tier(c, false, reqs, num_reqs, err);
    if (!status) status = check_tier(c, true, nobody, 0, err);
    return status;
}
