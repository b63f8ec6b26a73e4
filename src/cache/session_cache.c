/* session_cache.c - SGLang's streaming sessions: a cache in front of a cache.
 *
 * Between two turns a session's record lies in a slot, with its row:
 *
 *     tokens  0 ....... protected ................ committed
 *             | the tree's, locked | the slot's, the partial last page too |
 *
 *     match    how far the key agrees with the slot's tokens; a virtual node as the end
 *     begin    the record moves into the request: from now on the request holds it
 *     finish   it moves back; of the first turn only the prompt went into the tree
 *     abort    everything is freed; the session stays open and empty
 *     pressure the record is finished in the cache behind, like any request's
 *
 * A record is at one place at a time, in the slot or in the request, and so each page is
 * counted once. Where the two would differ from SGLang: the tokens are kept and compared
 * (there the client's word is taken for it), and idle slots can always be evicted (there
 * they wedge the pool).
 *
 * The turns are in session_turn.c; here are the table of operations, what goes to the cache
 * behind, create and the checker.
 *
 * Invariant, verified by check: `held` has a bit for exactly the pages of idle slots
 * behind their protected length, each handed out and not the inner cache's; the list from
 * oldest to newest holds exactly the idle slots with a row. */
#include "base/params.h"
#include "cache/radix_cache.h"
#include "cache/session_cache_impl.h"

/* --- what goes to the cache behind --- */

static rad_status session_insert(rad_cache *cache, const rad_key *key, const rad_slot *slots,
                                 const rad_insert_params *params, rad_inserted *inserted,
                                 rad_error *err)
{
    session_cache *c = session_of(cache);
    uint32_t ps = cache->page_size;
    for (uint32_t i = 0; i < key->num_tokens / ps * ps; i += ps) {
        uint64_t page = (uint64_t)(uint32_t)slots[i] / ps;
        if (page < c->num_pages && bits_get(c->held, page))
            return rad_fail(err, RAD_E_STATE,
                            "session_cache: slot %d at position %u is an idle session's", slots[i],
                            i);
    }
    return rad_cache_insert(c->base.inner, key, slots, params, inserted, err);
}

static void session_empty_idle(rad_cache *cache)
{
    session_cache *c = session_of(cache);
    while (c->oldest)
        session_empty(c, c->oldest, 0);
}

static rad_status session_reset(rad_cache *cache)
{
    session_empty_idle(cache);
    return rad_cache_reset(cache->inner);
}

static cache_sizes session_sizes(const rad_cache *cache)
{
    const session_cache *c = session_of_const(cache);
    cache_sizes sizes = c->base.inner->ops->sizes(c->base.inner);
    sizes.evictable += c->stats.held_tokens;
    sizes.window_evictable += c->held_window;
    sizes.state_evictable += c->kept_states;
    return sizes;
}

static void session_get_stats(const rad_cache *cache, rad_session_stats *stats)
{
    *stats = session_of_const(cache)->stats;
}

static size_t own_bytes(const session_cache *c)
{
    size_t places = (size_t)c->max_sessions + 1;
    return sizeof *c + slab_bytes(c->max_sessions) + places * sizeof *c->slots +
           rad_mul(rad_mul(places, c->row_tokens), sizeof *c->tokens) +
           bits_words(c->num_pages) * sizeof *c->held +
           bits_words(c->num_states) * sizeof *c->held_states;
}

static void session_cache_stats(const rad_cache *cache, rad_cache_stats *stats)
{
    rad_cache_get_stats(cache->inner, stats);
    stats->metadata_bytes += own_bytes(session_of_const(cache));
}

static void session_visit_pages(const rad_cache *cache, cache_page_fn visit, void *user)
{
    const session_cache *c = session_of_const(cache);
    c->base.inner->ops->visit_pages(c->base.inner, visit, user);
    for (uint32_t id = c->oldest; id; id = c->slots[id].newer) {
        const session_slot *s = &c->slots[id];
        const rad_slot *row = rad_req_to_token_row(cache->rows, s->row);
        for (uint32_t at = s->protected_len; at < s->committed_len; at += cache->page_size)
            visit(user, row[at] / (rad_slot)cache->page_size);
    }
}

static bool session_owns_state(const rad_cache *cache, rad_state state)
{
    const session_cache *c = session_of_const(cache);
    bool is_one = state > 0 && (uint32_t)state < c->num_states;
    return (is_one && bits_get(c->held_states, (size_t)state)) ||
           cache_owns_state(c->base.inner, state);
}

static void session_visit_states(const rad_cache *cache, cache_state_fn visit, void *user)
{
    const session_cache *c = session_of_const(cache);
    const rad_cache *inner = c->base.inner;
    CACHE_WITH(inner, visit_states);
    if (inner->ops->visit_states) inner->ops->visit_states(inner, visit, user);
    for (uint32_t id = c->oldest; id; id = c->slots[id].newer) {
        if (c->slots[id].state) visit(user, c->slots[id].state);
        if (c->slots[id].spare_state) visit(user, c->slots[id].spare_state);
    }
}

static bool session_owns_any(const rad_cache *cache, kv_run pages)
{
    const session_cache *c = session_of_const(cache);
    bits_lane held = {c->held, 1};
    return !lane_range_is(held, (size_t)pages.first, pages.count, false) ||
           c->base.inner->ops->owns_any(c->base.inner, pages);
}

static bool session_owns_prefix(const rad_cache *cache, const rad_receipt *lock,
                                const rad_slot *row, uint32_t protected_len)
{
    const session_cache *c = session_of_const(cache);
    if (session_is_virtual(lock)) {
        uint32_t id = lock->node.index & ~SESSION_NODE;
        const session_slot *s = &c->slots[id];
        if (!s->row || row != rad_req_to_token_row(cache->rows, s->row)) return !protected_len;
        lock = &s->lock;
    }
    return cache_owns_prefix(c->base.inner, lock, row, protected_len);
}

static rad_status check_slot(const session_cache *c, uint32_t id, uint64_t *pages, rad_error *err)
{
    const session_slot *s = &c->slots[id];
    uint32_t ps = c->base.page_size;
    if (!slab_is_live(&c->ids, id) || s->active || !s->row ||
        !rad_req_to_token_is_taken(c->base.rows, s->row) || s->protected_len % ps ||
        s->protected_len > s->committed_len || s->committed_len > c->row_tokens)
        return rad_fail(err, RAD_E_CORRUPT,
                        "session_check: slot %u is filed as idle, row %u, %u "
                        "protected, %u committed",
                        id, s->row, s->protected_len, s->committed_len);
    const rad_slot *row = rad_req_to_token_row(c->base.rows, s->row);
    if (!cache_owns_prefix(c->base.inner, &s->lock, row, s->protected_len))
        return rad_fail(err, RAD_E_CORRUPT, "session_check: slot %u does not hold its prefix", id);
    for (uint32_t at = s->protected_len; at < s->committed_len; at += ps, ++*pages) {
        rad_page page = row[at] / (rad_slot)ps;
        if (!rad_kv_is_taken(c->base.kv, page) || !bits_get(c->held, (size_t)page) ||
            c->base.inner->ops->owns_any(c->base.inner, (kv_run){page, 1}) ||
            (c->base.window_pages &&
             (rad_kv_has_window(c->base.kv, page) != 0) != (at >= s->window_len)))
            return rad_fail(err, RAD_E_CORRUPT, "session_check: page %d of slot %u is not its own",
                            page, id);
    }
    return RAD_OK;
}

/* The states of idle slots are handed out, marked, and nobody else's. */
static rad_status check_states(const session_cache *c, rad_error *err)
{
    uint64_t kept = 0, bits = 0;
    for (uint32_t id = c->oldest; id; id = c->slots[id].newer) {
        const session_slot *s = &c->slots[id];
        const rad_state states[] = {s->state, s->spare_state};
        for (int i = 0; i < 2; i++) {
            if (!states[i]) continue;
            kept++;
            if (!c->base.states || !rad_state_is_taken(c->base.states, states[i]) ||
                !bits_get(c->held_states, (size_t)states[i]) ||
                cache_owns_state(c->base.inner, states[i]))
                return rad_fail(err, RAD_E_CORRUPT,
                                "session_check: state %d of slot %u is not its own", states[i], id);
        }
    }
    for (size_t i = 0; i < bits_words(c->num_states); i++)
        bits += (uint64_t)__builtin_popcountll(c->held_states[i]);
    if (kept == bits && kept == c->kept_states) return RAD_OK;
    return rad_fail(
        err, RAD_E_CORRUPT, "session_check: %llu states in idle slots, %llu marked, %llu counted",
        (unsigned long long)kept, (unsigned long long)bits, (unsigned long long)c->kept_states);
}

static rad_status session_check(const rad_cache *cache, rad_error *err)
{
    const session_cache *c = session_of_const(cache);
    uint64_t pages = 0, bits = 0, idle = 0, active = 0, rows = 0, window = 0;
    rad_status status = rad_cache_check(c->base.inner, err);
    for (uint32_t id = c->oldest; !status && id; id = c->slots[id].newer, idle++)
        status = idle > c->max_sessions
                     ? rad_fail(err, RAD_E_CORRUPT, "session_check: a circle of idle slots")
                     : check_slot(c, id, &pages, err);
    if (!status) status = check_states(c, err);
    if (status) return status;
    for (uint32_t id = 1; id <= c->ids.num_fresh; id++) {
        active += c->slots[id].active;
        rows += c->slots[id].row && !c->slots[id].active;
    }
    for (uint32_t id = c->oldest; id; id = c->slots[id].newer)
        window += session_window_tokens(c, &c->slots[id]);
    if (window != c->held_window)
        return rad_fail(err, RAD_E_CORRUPT,
                        "session_check: %llu tokens of idle slots have a window side, %llu counted",
                        (unsigned long long)window, (unsigned long long)c->held_window);
    for (size_t i = 0; i < bits_words(c->num_pages); i++)
        bits += (uint64_t)__builtin_popcountll(c->held[i]);
    if (bits != pages || pages * cache->page_size != c->stats.held_tokens ||
        idle != c->stats.held || rows != idle || active != c->stats.active ||
        c->ids.num_live != c->stats.open)
        return rad_fail(err, RAD_E_CORRUPT,
                        "session_check: %llu pages in %llu idle slots, %llu marked, %llu counted",
                        (unsigned long long)pages, (unsigned long long)idle,
                        (unsigned long long)bits, (unsigned long long)c->stats.held_tokens);
    return RAD_OK;
}

static void free_own(session_cache *c)
{
    rad_env env = c->base.env;
    size_t places = (size_t)c->max_sessions + 1;
    slab_fini(&c->ids);
    rad_free(&env, c->slots, places * sizeof *c->slots);
    rad_free(&env, c->tokens, rad_mul(rad_mul(places, c->row_tokens), sizeof *c->tokens));
    rad_free(&env, c->held, bits_words(c->num_pages) * sizeof *c->held);
    rad_free(&env, c->held_states, bits_words(c->num_states) * sizeof *c->held_states);
    rad_free(&env, c, sizeof *c);
}

static void session_destroy(rad_cache *cache)
{
    rad_cache_destroy(cache->inner);
    free_own(session_of(cache));
}

static const cache_ops session_ops = {
    .destroy = session_destroy,
    .match_prefix = session_match_prefix,
    .lookup = session_lookup,
    .insert = session_insert,
    .inc_lock_ref = session_inc_lock_ref,
    .dec_lock_ref = session_dec_lock_ref,
    .evict = session_evict,
    .evict_window = session_evict_window,
    .hold_window = session_hold_window,
    .put_state = session_put_state,
    .evict_state = session_evict_state,
    .owns_state = session_owns_state,
    .visit_states = session_visit_states,
    .receipt_holds = session_receipt_holds,
    .owns_any = session_owns_any,
    .unfinished_req = session_unfinished_req,
    .finished_req = session_finished_req,
    .reset = session_reset,
    .sizes = session_sizes,
    .get_stats = session_cache_stats,
    .visit_pages = session_visit_pages,
    .check = session_check,
    .owns_prefix = session_owns_prefix,
    .session_open = session_open,
    .session_begin = session_begin,
    .session_close = session_close,
    .session_check = session_check_req,
    .session_release_idle = session_release_idle,
    .session_empty_idle = session_empty_idle,
    .session_stats = session_get_stats,
};

/* Their names would be taken for ours. */
static bool has_sessions(rad_cache *cache)
{
    rad_session session;
    rad_status status = rad_session_open(cache, &session);
    if (!status) rad_session_close(cache, session);
    return status != RAD_E_UNSUPPORTED;
}

rad_status rad_streaming_cache_create(const rad_env *env, const rad_streaming_cache_params *params,
                                      rad_cache **out, rad_error *err)
{
    rad_streaming_cache_params p;
    if (!out) return rad_fail(err, RAD_E_INVAL, "streaming_cache: no place for the result");
    *out = NULL;
    rad_status status = rad_params_read(&p, sizeof p, params, "streaming_cache", err);
    if (status) return status;
    if (!p.inner || !p.inner->rows || has_sessions(p.inner))
        return rad_fail(err, RAD_E_INVAL,
                        "streaming_cache: the inner cache is missing, has no rows or has sessions");
    const radix_cache *radix = radix_cache_of(p.inner);
    if (radix && radix->bigram)
        return rad_fail(err, RAD_E_UNSUPPORTED, "streaming_cache: bigram keys have no sessions");
    if (!p.max_sessions)
        p.max_sessions = RAD_MIN(rad_req_to_token_num_rows(p.inner->rows), (uint32_t)SESSION_MOST);
    if (p.max_sessions > SESSION_MOST || p.reserved)
        return rad_fail(err, RAD_E_INVAL, "streaming_cache: %u sessions (%d at most)",
                        p.max_sessions, SESSION_MOST);
    rad_env full = rad_env_or_default(env);
    session_cache *c = rad_alloc(&full, sizeof *c);
    if (!c) return rad_fail(err, RAD_E_NOMEM, "streaming_cache: no memory");
    c->base = (rad_cache){.ops = &session_ops,
                          .inner = p.inner,
                          .env = full,
                          .page_size = p.inner->page_size,
                          .window_pages = p.inner->window_pages,
                          .states = p.inner->states,
                          .kv = p.inner->kv,
                          .rows = p.inner->rows};
    c->max_sessions = p.max_sessions;
    c->row_tokens = rad_req_to_token_row_tokens(c->base.rows);
    c->num_pages = rad_kv_num_pages(c->base.kv) + 1;
    c->num_states = c->base.states ? rad_state_pool_num_states(c->base.states) + 1 : 0;
    size_t places = (size_t)p.max_sessions + 1;
    bool ok = slab_init(&c->ids, &full, p.max_sessions);
    c->slots = rad_alloc(&full, places * sizeof *c->slots);
    c->tokens = rad_alloc(&full, rad_mul(rad_mul(places, c->row_tokens), sizeof *c->tokens));
    c->held = rad_alloc(&full, bits_words(c->num_pages) * sizeof *c->held);
    c->held_states = rad_alloc(&full, bits_words(c->num_states) * sizeof *c->held_states);
    if (!ok || !c->slots || !c->tokens || !c->held || (c->num_states && !c->held_states)) {
        uint32_t row_tokens = c->row_tokens;
        free_own(c);
        return rad_fail(err, RAD_E_NOMEM, "streaming_cache: no memory for %u sessions of %u tokens",
                        p.max_sessions, row_tokens);
    }
    *out = &c->base;
    return RAD_OK;
}

/* --- the door: each call to the cache that has sessions --- */

rad_status rad_session_open(rad_cache *cache, rad_session *session)
{
    if (!session) return RAD_E_INVAL;
    *session = 0;
    CACHE_WITH(cache, session_open);
    return cache->ops->session_open ? cache->ops->session_open(cache, session) : RAD_E_UNSUPPORTED;
}

rad_status rad_session_close(rad_cache *cache, rad_session session)
{
    CACHE_WITH(cache, session_close);
    if (!cache->ops->session_close) return RAD_E_UNSUPPORTED;
    return cache->ops->session_close(cache, session);
}

rad_status rad_session_begin(rad_cache *cache, rad_req_kv *req, rad_error *err)
{
    if (!req) return rad_fail(err, RAD_E_INVAL, "session: no request");
    if (!req->key.session) return RAD_OK;
    CACHE_WITH(cache, session_begin);
    if (!cache->ops->session_begin)
        return rad_fail(err, RAD_E_UNSUPPORTED, "session: this cache has no sessions");
    return cache->ops->session_begin(cache, req, err);
}

uint32_t rad_session_release_idle(rad_cache *cache, uint32_t count)
{
    return cache->ops->session_release_idle ? cache->ops->session_release_idle(cache, count) : 0;
}

void rad_session_get_stats(const rad_cache *cache, rad_session_stats *stats)
{
    *stats = (rad_session_stats){0};
    CACHE_WITH(cache, session_stats);
    if (cache->ops->session_stats) cache->ops->session_stats(cache, stats);
}
