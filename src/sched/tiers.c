/* tiers.c - the scheduler's side of HiRadixCache; see the header.
 *
 * A request that fetches is not in the queue, so it neither holds others up nor is passed
 * over; how long that may last is the cache's to say (is it still worth it?), so whatever
 * the store does, the request reaches the queue. */
#include "sched/scheduler_impl.h"

#include "hicache/completion.h"

#include <radish/session.h>

enum { WAIT_NS = 2000000, DRAIN_S = 10, MOST_WAITS = 500 };

static rad_status create_host_pool(const scheduler *s, rad_token_to_kv_pool *device, uint64_t bytes,
                                   rad_host_kv_pool **out, rad_error *err)
{
    const rad_host_kv_pool_params *asked = s->params.host_pool;
    rad_host_kv_pool_params host = {.struct_size = sizeof host};
    if (asked) host = *asked;
    host.device_pool = device;
    host.bytes = bytes;
    return device ? rad_host_kv_pool_create(&s->env, &host, out, err) : RAD_OK;
}

/* States on the host, as many as so many bytes have room for; 0: by the ratio. */
static rad_status create_host_states(scheduler *s, uint64_t bytes, rad_error *err)
{
    enum { RATIO = 2 }; /* host_kv_pool.h */
    const rad_host_kv_pool_params *asked = s->params.host_pool;
    const rad_state_pool *device = s->pools.states.pool;
    if (!device) return RAD_OK;
    const double ratio = asked && asked->ratio > 0 ? asked->ratio : RATIO;
    const uint64_t by_ratio = (uint64_t)(ratio * rad_state_pool_num_states(device));
    const uint64_t count = bytes ? bytes / rad_state_bytes(device) : by_ratio;
    rad_state_pool_params p = {.struct_size = sizeof p,
                               .state_bytes = rad_state_bytes(device),
                               .num_states = (uint32_t)RAD_MIN(count, (uint64_t)INT32_MAX - 1),
                               .on_host = 1,
                               .device = rad_state_pool_device(device)};
    return count ? rad_state_pool_create(&s->env, &p, &s->tiers.host_states, err) : RAD_OK;
}

/* A host pool below each device pool. So many bytes are shared out as the device's are; by a ratio
 * each gets its own. */
static rad_status create_host_pools(scheduler *s, rad_error *err)
{
    rad_token_to_kv_pool *full = s->pools.token_to_kv_pool, *window = s->pools.window.kv_pool;
    const rad_state_pool *states = s->pools.states.pool;
    const double of_full = full ? (double)rad_kv_pool_size_bytes(full) : 0;
    const double of_window = window ? (double)rad_kv_pool_size_bytes(window) : 0;
    const double of_states =
        states ? (double)rad_state_bytes(states) * rad_state_pool_num_states(states) : 0;
    const uint64_t bytes = s->params.host_pool ? s->params.host_pool->bytes : 0;
    const double each = (double)bytes / (of_full + of_window + of_states);
    const uint64_t below_states = (uint64_t)(of_states * each);
    uint64_t below_full = (uint64_t)(of_full * each);
    if (!window) below_full = bytes - below_states;
    rad_status status = create_host_pool(s, full, below_full, &s->tiers.host_pool, err);
    if (status == RAD_OK)
        status = create_host_pool(s, window, bytes - below_full - below_states,
                                  &s->tiers.window_host_pool, err);
    return status ? status : create_host_states(s, below_states, err);
}

static void tell_completion(void *scheduler_, const hi_completion *done)
{
    const scheduler *s = scheduler_;
    CACHE_TAP(&s->pools.tap, TAP_COMPLETED, .ticket = done->ticket, .asked = done->look,
              .status = done->status);
}

/* The cache itself, over the tiers if there are some. */
static rad_status create_inner(scheduler *s, const rad_cache_params *tree, rad_error *err)
{
    const scheduler_params *p = &s->params;
    if (!p->hicache || p->cache_kind != RAD_CACHE_RADIX)
        return rad_cache_create(&s->env, tree, &s->pools.inner_cache, err);
    rad_status status = create_host_pools(s, err);
    if (status != RAD_OK) return status;
    s->tiers.on = true;
    s->tiers.max_fetching = p->max_queued_requests;
    s->tiers.fetching = rad_alloc(&s->env, p->max_queued_requests * sizeof *s->tiers.fetching);
    if (!s->tiers.fetching) return rad_fail(err, RAD_E_NOMEM, "scheduler: no memory");
    rad_hicache_params tiers = *p->hicache;
    s->tiers.waits = tiers.prefetch_policy != RAD_PREFETCH_BEST_EFFORT;
    tiers.cache = tree;
    tiers.host_pool = s->tiers.host_pool;
    tiers.window_host_pool = s->tiers.window_host_pool;
    tiers.host_states = s->tiers.host_states;
    tiers.tier_events = s->params.kv_events;
    status = rad_hicache_create(&s->env, &tiers, &s->pools.inner_cache, err);
    if (status == RAD_OK && s->pools.tap.fn)
        (void)hi_tell_completions(s->pools.inner_cache, tell_completion, s);
    return status;
}

rad_status tiers_create_cache(scheduler *s, const rad_cache_params *tree, rad_error *err)
{
    rad_status status = create_inner(s, tree, err);
    s->pools.tree_cache = s->pools.inner_cache;
    if (status != RAD_OK || !s->params.streaming_sessions) return status;
    rad_streaming_cache_params wrapper = {.struct_size = sizeof wrapper,
                                          .inner = s->pools.inner_cache,
                                          .max_sessions = s->params.max_sessions};
    rad_cache *cache;
    status = rad_streaming_cache_create(&s->env, &wrapper, &cache, err);
    if (status == RAD_OK) s->pools.tree_cache = cache; /* which owns the inner one now */
    return status;
}

void tiers_fini(scheduler *s)
{
    if (s->pools.tree_cache && s->tiers.on) {
        rad_status status = rad_hicache_drain(s->pools.inner_cache, (uint64_t)DRAIN_S * 1000000000);
        if (status)
            rad_log(&s->env, RAD_LOG_WARN,
                    "scheduler: copies to the host or to storage were not through in %d s",
                    DRAIN_S);
    }
    rad_cache_destroy(s->pools.tree_cache);
    rad_host_kv_pool_destroy(s->tiers.host_pool);
    rad_host_kv_pool_destroy(s->tiers.window_host_pool);
    rad_state_pool_destroy(s->tiers.host_states);
    rad_free(&s->env, s->tiers.fetching, s->tiers.max_fetching * sizeof *s->tiers.fetching);
}

void tiers_poll(scheduler *s)
{
    const uint32_t free_pages = rad_kv_available_pages(s->pools.kv_allocator);
    rad_cache_poll(s->pools.tree_cache);
    if (s->tiers.on) CACHE_TAP(&s->pools.tap, TAP_POLL, .free_pages = free_pages);
}

/* Waits for a transfer, and polls. */
static rad_status wait_for_any(const scheduler *s)
{
    const uint32_t free_pages = rad_kv_available_pages(s->pools.kv_allocator);
    const rad_status status = rad_hicache_wait(s->pools.inner_cache, WAIT_NS);
    CACHE_TAP(&s->pools.tap, TAP_POLL, .free_pages = free_pages);
    return status;
}

/* ---- prefetches ---- */

/* What a prompt token costs to compute, 0 before anything was computed. */
static uint64_t recompute_ns(const scheduler *s, uint32_t num_tokens)
{
    if (!s->cost.most_prompt_tokens || !num_tokens) return 0;
    double ns = step_cost_prompt_ns(&s->cost, 0, num_tokens) / num_tokens;
    return ns > 0 ? (uint64_t)ns : 0;
}

bool tiers_arrive(scheduler *s, req *r)
{
    if (!s->tiers.on) return false;
    uint32_t most = req_most_cached(r);
    rad_key key = req_key(r, most);
    rad_status status =
        rad_hicache_prefetch_start(s->pools.inner_cache, &key, recompute_ns(s, most), &r->prefetch);
    req_why_prefetched(s, r);
    if (status != RAD_OK) return false;
    if (s->tiers.waits && s->tiers.num_fetching < s->tiers.max_fetching) {
        s->tiers.fetching[s->tiers.num_fetching++] = r;
        return true;
    }
    return false;
}

void tiers_end_prefetch(scheduler *s, req *r, const rad_key *key)
{
    if (!r->prefetch) return;
    (void)rad_hicache_prefetch_progress(s->pools.inner_cache, &r->prefetch, key, NULL);
    if (r->prefetch) (void)rad_hicache_prefetch_revoke(s->pools.inner_cache, &r->prefetch);
    req_why_prefetched(s, r);
}

static void take_out(scheduler *s, uint32_t i)
{
    sched_tiers *t = &s->tiers;
    memmove(&t->fetching[i], &t->fetching[i + 1], (--t->num_fetching - i) * sizeof *t->fetching);
}

void tiers_admit_fetched(scheduler *s)
{
    for (uint32_t i = 0; i < s->tiers.num_fetching;) {
        req *r = s->tiers.fetching[i];
        rad_key key = req_key(r, req_most_cached(r));
        if (rad_hicache_prefetch_progress(s->pools.inner_cache, &r->prefetch, &key, NULL) ==
            RAD_AGAIN) {
            i++;
            continue;
        }
        req_why_prefetched(s, r);
        take_out(s, i);
        wait_queue_add(&s->waiting, r);
    }
}

void tiers_leave(scheduler *s, req *r)
{
    if (!s->tiers.on) return;
    if (r->prefetch) (void)rad_hicache_prefetch_revoke(s->pools.inner_cache, &r->prefetch);
    for (uint32_t i = 0; i < s->tiers.num_fetching; i++)
        if (s->tiers.fetching[i] == r) {
            take_out(s, i);
            return;
        }
}

/* ---- loads ---- */

void tiers_load_back(scheduler *s, const prefill_adder *adder, req *r, const rad_key *key,
                     rad_load_result *loaded)
{
    *loaded = (rad_load_result){.why = RAD_LOAD_NOTHING};
    if (!s->tiers.on || r->no_load) return;
    /* Where nobody else runs it waits for what copies to the host hold: they end in less time than
     * the prompt takes to be computed. */
    int waits = s->num_running ? 0 : MOST_WAITS;
    do {
        /* A page is left, so that what is loaded is not in the way of the rest. */
        uint64_t room = prefill_adder_load_room(adder, r), page = s->pools.page_size;
        loaded->why = RAD_LOAD_OVER_QUOTA;
        if (room <= page || !prefill_adder_has_state_to_load(adder, r, !s->num_running)) continue;
        const uint32_t free_pages = rad_kv_available_pages(s->pools.kv_allocator);
        (void)rad_hicache_load_back(s->pools.inner_cache, &r->kv, key, room - page, loaded);
        CACHE_TAP(&s->pools.tap, TAP_LOAD, r, key->num_tokens, (int32_t)loaded->why, room - page,
                  loaded->tokens, .free_pages = free_pages);
        s->tiers.took_a_load |= loaded->why == RAD_LOAD_TAKEN;
    } while ((loaded->why == RAD_LOAD_NO_DEVICE_PAGES || loaded->why == RAD_LOAD_OVER_QUOTA) &&
             waits-- > 0 && tiers_wait_for_pages(s));
}

void tiers_ready_to_load(scheduler *s)
{
    if (!s->tiers.on) return;
    (void)rad_hicache_ready_to_load(s->pools.inner_cache);
    if (s->tiers.took_a_load) CACHE_TAP(&s->pools.tap, TAP_READY);
    s->tiers.took_a_load = false;
}

bool tiers_lost(scheduler *s, req *r)
{
    if (!r->kv.load) return false;
    const rad_status status = rad_hicache_load_status(s->pools.inner_cache, &r->kv);
    CACHE_TAP(&s->pools.tap, TAP_LOADED, r, .status = status);
    if (status == RAD_OK) return false;
    rad_log(&s->env, RAD_LOG_WARN,
            "scheduler: a load from the host failed, its tokens are computed");
    s->stats.lost_loads++;
    if (r->kv.load == r->counted_load) { /* they did not come from the cache after all */
        r->hits.cached -= r->hits.loaded;
        r->hits.loaded = r->hits.fetched = 0;
        r->why.load_failed = true;
    }
    req_release_kv(s, r, false);
    wait_queue_remove(&s->waiting, r);
    remove_running(s, r);
    r->state = REQ_WAITING;
    r->no_load = true;
    wait_queue_add(&s->waiting, r);
    s->groups.num_reqs = 0; /* it comes back with other pages: no step is as the one before */
    return true;
}

/* ---- waiting ---- */

void tiers_note_releases(scheduler *s)
{
    rad_hicache_stats stats = {0};
    if (s->tiers.on) (void)rad_hicache_get_stats(s->pools.inner_cache, &stats);
    s->tiers.releases = stats.device_releases;
}

bool tiers_wait_for_pages(scheduler *s)
{
    rad_hicache_stats stats;
    if (!s->tiers.on) return false;
    uint64_t before = s->tiers.releases;
    tiers_poll(s);
    tiers_note_releases(s);
    if (s->tiers.releases != before) return true; /* they came free meanwhile */
    (void)rad_hicache_get_stats(s->pools.inner_cache, &stats);
    if (!stats.device_holds) return false;
    (void)wait_for_any(s);
    tiers_note_releases(s);
    return true;
}

bool tiers_wait(scheduler *s)
{
    return s->tiers.on && wait_for_any(s) != RAD_NONE;
}
