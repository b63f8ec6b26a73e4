/* hiradix_check.c - counts, and walking everything on all tiers against them. */
#include "hicache/hiradix_impl.h"

#include "base/bits.h"

rad_status rad_hicache_get_stats(const rad_cache *cache, rad_hicache_stats *stats)
{
    const hiradix_cache *c = hiradix_of(cache);
    if (!c) return RAD_E_UNSUPPORTED;
    const radix_host *host = &c->tree->host;
    uint64_t ps = c->page_size;
    *stats = c->stats;
    stats->host_tokens = c->num_host_pages * ps;
    stats->host_used_tokens =
        ((uint64_t)c->num_host_pages - rad_kv_available_pages(c->host_pages)) * ps;
    stats->host_cached_tokens = (host->evictable + host->locked) * ps;
    stats->host_evicted_tokens = host->evicted * ps;
    stats->bad_pages = atomic_load(&c->out.trouble.bad_records);
    stats->storage_errors = atomic_load(&c->out.trouble.failed_calls);
    stats->prefetch_reserved_tokens = c->out.reserved * ps;
    stats->tickets = c->out.ids.num_live;
    stats->max_tickets = c->params.max_transfers;
    tickets_count_queues(&c->out, stats->queued, stats->running);
    stats->storage_attached = c->store.backend.ops != NULL;
    stats->device_holds = c->out.orphans + c->out.writes;
    const radix_state *s = hi_states(c);
    if (s) {
        stats->host_states = s->num_states;
        stats->host_used_states = s->num_states - rad_state_available(c->host_states);
        stats->host_cached_states = s->there;
    }
    const radix_window *w = hi_windows(c);
    if (!w) return RAD_OK;
    uint64_t windows = rad_kv_window_num_pages(c->host_pages);
    stats->host_window_tokens = windows * ps;
    stats->host_window_used_tokens = (windows - rad_kv_window_available_pages(c->host_pages)) * ps;
    stats->host_window_cached_tokens = w->there * ps;
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

/* What the tree says of its host pages' window sides, against the allocator; what writes have is
 * loose there. */
static rad_status check_host_windows(const hiradix_cache *c, rad_error *err)
{
    const radix_tree *t = c->tree;
    uint32_t depth;
    uint64_t there = 0;
    if (!hi_windows(c)) return RAD_OK;
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));)
        for (uint32_t i = 0; radix_on_host(t, id) && i < t->nodes[id].pages; i++) {
            rad_page page = radix_host_page_at(t, &t->nodes[id], i);
            bool has = i >= radix_window_of(t, RADIX_HOST, id)->first;
            there += has;
            if (has != (rad_kv_has_window(c->host_pages, page) != 0))
                return rad_fail(err, RAD_E_CORRUPT,
                                "hicache_check: host page %d of node %u %s a window side, the tree "
                                "says otherwise",
                                page, id, has ? "lacks" : "has");
        }
    for (const hi_ticket *k = NULL; (k = tickets_next(&c->out, k));)
        there += ticket_loose_windows(k);
    uint64_t taken = (uint64_t)rad_kv_window_num_pages(c->host_pages) -
                     rad_kv_window_available_pages(c->host_pages);
    if (there == taken) return RAD_OK;
    return rad_fail(err, RAD_E_CORRUPT,
                    "hicache_check: %llu window pages of the host are taken, %llu have an owner",
                    (unsigned long long)taken, (unsigned long long)there);
}

rad_status hi_check(const rad_cache *cache, rad_error *err)
{
    const hiradix_cache *c = hiradix_of(cache);
    rad_status status = rad_cache_check(c->device, err);
    if (!status) status = tickets_check(&c->out, err);
    if (!status) status = rad_kv_check(c->host_pages, err);
    if (!status) status = check_host_windows(c, err);
    if (!status) status = hi_check_states(c, err);
    if (status) return status;
    size_t bytes = bits_words((size_t)c->num_host_pages + 1) * sizeof(uint64_t);
    host_check check = {.c = c, .seen = rad_alloc(&cache->env, bytes), .err = err};
    if (!check.seen) return rad_fail(err, RAD_E_NOMEM, "hicache_check: no scratch memory");
    radix_visit_pages(c->tree, RADIX_HOST, check_host_page, &check);
    for (const hi_ticket *k = NULL; (k = tickets_next(&c->out, k));)
        for (uint32_t i = ((const hi_op *)k)->hung; i < ticket_host_pages(k); i++)
            check_host_page(&check, k->host[i]);
    status = check.status;
    uint32_t depth;
    for (uint32_t id = 0; c->has_identity && !status && (id = radix_next(c->tree, id, &depth));)
        if (radix_on_host(c->tree, id) && !hi_settled_is_sound(c, id))
            status = rad_fail(err, RAD_E_CORRUPT, "hicache_check: node %u is not settled", id);
    uint64_t taken = (uint64_t)c->num_host_pages - rad_kv_available_pages(c->host_pages);
    if (!status && check.pages != taken)
        status = rad_fail(err, RAD_E_CORRUPT,
                          "hicache_check: %llu host pages are taken, %llu have an owner",
                          (unsigned long long)taken, (unsigned long long)check.pages);
    rad_free(&cache->env, check.seen, bytes);
    return status;
}
