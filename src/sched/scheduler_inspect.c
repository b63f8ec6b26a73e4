/* scheduler_inspect.c - what the owner asks for between two steps: figures, sessions, flush, and
 * what becomes of the store. Promise P2: self_check.c. */
#include "sched/scheduler_impl.h"

#include <radish/retention.h>

static void get_state_stats(const scheduler *s, const rad_cache_stats *cache,
                            scheduler_stats *stats)
{
    const state_memory *m = &s->pools.states;
    if (!m->pool) return;
    stats->states_total = rad_state_pool_num_states(m->pool);
    stats->states_available = rad_state_available(m->pool);
    stats->states_evictable = rad_cache_state_evictable_size(s->pools.tree_cache);
    stats->states_protected = rad_cache_state_protected_size(s->pools.tree_cache);
    stats->states_held = stats->states_total - stats->states_available - stats->states_evictable -
                         stats->states_protected;
    stats->states_saved = cache->states_put;
    stats->states_unsaved = m->unsaved;
    stats->states_evicted = cache->states_evicted;
    stats->states_dropped = cache->states_dropped;
}

void scheduler_get_stats(const scheduler *s, scheduler_stats *stats)
{
    rad_cache_stats cache = {0};
    rad_cache_get_stats(s->pools.tree_cache, &cache);
    *stats = s->stats;
    stats->tiers = (rad_hicache_stats){0};
    (void)rad_hicache_get_stats(s->pools.inner_cache, &stats->tiers); /* or there are none */
    stats->evicted_tokens = cache.evicted_tokens;
    stats->namespaces = (rad_namespace_stats){.struct_size = sizeof stats->namespaces};
    (void)rad_cache_get_namespace_stats(s->pools.tree_cache, &stats->namespaces);
    rad_session_get_stats(s->pools.tree_cache, &stats->sessions);
    stats->pinned_tokens = rad_cache_pinned_size(s->pools.tree_cache);
    stats->num_running = s->num_running;
    stats->num_waiting = s->waiting.count + s->tiers.num_fetching;
    stats->verify = s->verify.stats;
    stats->self_check.age_ns = s->env.now_ns(s->env.user) - s->check.last_ns;
    stats->group_updates = s->groups.num_computed;
    stats->num_held_back = s->waiting.num_held;
    stats->tokens_compared = s->waiting.tokens_compared + s->waiting.tree.tokens_compared;
    stats->available_tokens = rad_kv_available_size(s->pools.kv_allocator);
    stats->evictable_tokens = rad_cache_evictable_size(s->pools.tree_cache);
    stats->protected_tokens = rad_cache_protected_size(s->pools.tree_cache);
    stats->held_tokens = stats->max_total_tokens - stats->available_tokens -
                         stats->evictable_tokens - stats->protected_tokens;
    get_state_stats(s, &cache, stats);
    if (!s->pools.window.tokens) return;
    uint64_t page_size = s->pools.page_size;
    stats->window_total_tokens = rad_kv_window_num_pages(s->pools.kv_allocator) * page_size;
    stats->window_available_tokens = rad_kv_window_available_pages(s->pools.kv_allocator) *
                                     page_size;
    stats->window_evictable_tokens = rad_cache_window_evictable_size(s->pools.tree_cache);
    stats->window_protected_tokens = rad_cache_window_protected_size(s->pools.tree_cache);
    stats->window_held_tokens = stats->window_total_tokens - stats->window_available_tokens -
                                stats->window_evictable_tokens - stats->window_protected_tokens;
}

void scheduler_visit_reqs(const scheduler *s, scheduler_visit_fn visit, void *user)
{
    for (uint32_t i = 0; i < s->num_running; i++)
        if (!visit(user, s->running[i], false)) return;
    for (uint32_t i = 0; i < s->tiers.num_fetching; i++)
        if (!visit(user, s->tiers.fetching[i], true)) return;
    for (const req *r = s->waiting.first; r; r = r->wait_next)
        if (!visit(user, r, false)) return;
}

const rad_cache *scheduler_cache(const scheduler *s)
{
    return s->pools.tree_cache;
}

uint32_t scheduler_window(const scheduler *s)
{
    return s->pools.window.tokens;
}

uint64_t scheduler_forward_steps(const scheduler *s)
{
    return s->stats.forward_steps;
}

const step_cost *scheduler_step_cost(const scheduler *s)
{
    return &s->cost;
}

rad_status scheduler_take_events(scheduler *s, rad_kv_event_fn visit, void *user)
{
    return rad_cache_take_events(s->pools.inner_cache, visit, user);
}

rad_status scheduler_snapshot_events(scheduler *s, rad_kv_event_fn visit, void *user)
{
    return rad_cache_snapshot_events(s->pools.inner_cache, visit, user);
}

rad_status scheduler_session_open(scheduler *s, uint32_t *session, rad_error *err)
{
    if (!s->params.max_sessions)
        return rad_fail(err, RAD_E_UNSUPPORTED, "scheduler: there are no sessions (max_sessions)");
    rad_status status = rad_session_open(s->pools.tree_cache, session);
    CACHE_TAP(&s->pools.tap, TAP_OPEN, .status = status, .asked = status ? 0 : *session);
    if (status == RAD_FULL)
        rad_fail(err, RAD_FULL, "%u sessions are open, as many as may be", s->params.max_sessions);
    return status;
}

rad_status scheduler_session_close(scheduler *s, uint32_t session, rad_error *err)
{
    rad_status status = RAD_E_UNSUPPORTED;
    if (s->params.max_sessions) {
        status = rad_session_close(s->pools.tree_cache, session);
        CACHE_TAP(&s->pools.tap, TAP_CLOSE, .status = status, .asked = session);
    }
    if (status != RAD_OK) rad_fail(err, status, "session %u is not open", session);
    return status;
}

rad_status scheduler_pin_prefix(scheduler *s, const rad_key *key, uint64_t ttl_ns,
                                uint32_t *num_tokens, rad_error *err)
{
    rad_status status = rad_cache_pin_prefix(s->pools.tree_cache, key, ttl_ns, num_tokens);
    CACHE_TAP(&s->pools.tap, TAP_PIN, .key = key, .num_tokens = key->num_tokens, .asked = ttl_ns);
    if (status == RAD_E_UNSUPPORTED)
        rad_fail(err, status, "nothing can be pinned here (max_pinned_tokens)");
    else if (status)
        rad_fail(err, status, "the prefix cannot be pinned: its namespace's name is too long");
    return status;
}

rad_status scheduler_flush_cache(scheduler *s)
{
    if (!scheduler_is_idle(s)) return RAD_AGAIN;
    return reset_cache(s);
}

rad_status scheduler_flush_tiers(scheduler *s, uint32_t tiers, rad_error *err)
{
    if (!scheduler_is_idle(s)) return rad_fail(err, RAD_AGAIN, "scheduler: requests are running");
    if (s->tiers.on) {
        rad_status status = rad_hicache_clear(s->pools.tree_cache, tiers, err);
        CACHE_TAP(&s->pools.tap, TAP_CLEAR, .asked = tiers, .status = status);
        if (status == RAD_OK && tiers & RAD_TIER_DEVICE) draft_recent_clear(&s->drafts.recent);
        begin_anew(s);
        return status;
    }
    if (tiers != RAD_TIER_DEVICE)
        return rad_fail(err, RAD_E_UNSUPPORTED, "scheduler: there is only the device");
    return reset_cache(s);
}

rad_status scheduler_attach_storage(scheduler *s, const rad_storage *storage, rad_error *err)
{
    if (!scheduler_is_idle(s)) return rad_fail(err, RAD_AGAIN, "scheduler: requests are running");
    CACHE_TAP(&s->pools.tap, TAP_STORE);
    return rad_hicache_attach_storage(s->pools.inner_cache, storage, err);
}

rad_status scheduler_detach_storage(scheduler *s, rad_storage *was, rad_error *err)
{
    if (!scheduler_is_idle(s)) return rad_fail(err, RAD_AGAIN, "scheduler: requests are running");
    return rad_hicache_detach_storage(s->pools.inner_cache, was, err);
}

rad_status scheduler_identify_storage(scheduler *s, const rad_storage_identity *identity,
                                      rad_error *err)
{
    return rad_hicache_identify(s->pools.inner_cache, identity, err);
}

rad_status scheduler_hold_storage(scheduler *s, rad_storage *store, rad_error *err)
{
    return rad_hicache_hold_storage(s->pools.inner_cache, store, err);
}

void scheduler_release_storage(scheduler *s, bool cleared)
{
    (void)rad_hicache_release_storage(s->pools.inner_cache, cleared);
}
