/* session_turn.c - the life of a session's record: matched, begun, kept, dropped.
 *
 * Slots without a running turn are idle; those with a row stand in a list, the one used last
 * at its end, and under pressure the one at its front is finished. */
#include "cache/radix_key.h"
#include "cache/session_cache_impl.h"

/* --- the list of idle slots, and whose their pages are --- */

static void flip_pages(session_cache *c, const session_slot *s)
{
    uint32_t ps = c->base.page_size;
    const rad_slot *row = rad_req_to_token_row(c->base.rows, s->row);
    for (uint32_t at = s->protected_len; at < s->committed_len; at += ps) {
        bits_flip(c->held, (size_t)row[at] / ps);
        c->stats.held_tokens += bits_get(c->held, (size_t)row[at] / ps) ? ps : -(uint64_t)ps;
    }
}

uint64_t session_window_tokens(const session_cache *c, const session_slot *s)
{
    uint32_t ps = c->base.page_size, from = RAD_MAX(s->protected_len, s->window_len);
    uint32_t end = (s->committed_len + ps - 1) / ps * ps;
    return c->base.window_pages && s->row && end > from ? end - from : 0;
}

/* Marks the slot's states as the session cache's, or takes that away. */
static void flip_states(session_cache *c, const session_slot *s)
{
    const rad_state states[] = {s->state, s->spare_state};
    for (int i = 0; i < 2; i++) {
        if (!states[i]) continue;
        bits_flip(c->held_states, (size_t)states[i]);
        c->kept_states += bits_get(c->held_states, (size_t)states[i]) ? 1 : UINT64_MAX;
    }
}

static void become_idle(session_cache *c, uint32_t id)
{
    session_slot *s = &c->slots[id];
    s->newer = 0;
    s->older = c->newest;
    *(s->older ? &c->slots[s->older].newer : &c->oldest) = id;
    c->newest = id;
    c->stats.held++;
    c->held_window += session_window_tokens(c, s);
    flip_pages(c, s);
    flip_states(c, s);
}

static void leave_idle(session_cache *c, uint32_t id)
{
    session_slot *s = &c->slots[id];
    *(s->older ? &c->slots[s->older].newer : &c->oldest) = s->newer;
    *(s->newer ? &c->slots[s->newer].older : &c->newest) = s->older;
    s->older = s->newer = 0;
    c->stats.held--;
    c->held_window -= session_window_tokens(c, s);
    flip_pages(c, s);
    flip_states(c, s);
}

/* What recurrent layers carry goes from the slot to the request. */
static void take_states(session_slot *s, rad_req_kv *req)
{
    req->state = s->state;
    req->state_len = s->state_len;
    req->spare_state = s->spare_state;
    req->spare_len = s->spare_len;
    s->state = s->spare_state = 0;
    s->state_len = s->spare_len = 0;
}

/* The end of what an idle slot keeps: a request with its record is finished in the cache
 * behind, which publishes it or not, and takes its row back. */
rad_status session_empty(session_cache *c, uint32_t id, int is_insert)
{
    session_slot *s = &c->slots[id];
    if (!s->row) return RAD_OK;
    leave_idle(c, id);
    rad_req_kv req = {.row = s->row,
                      .protected_len = s->protected_len,
                      .committed_len = s->committed_len,
                      .allocated_len = s->committed_len,
                      .key = {.tokens = session_tokens(c, id),
                              .num_tokens = s->committed_len,
                              .extra_key = namespace_extra_key(&s->name),
                              .cache_salt = namespace_cache_salt(&s->name)},
                      .lock = s->lock,
                      .priority = s->priority,
                      .published = 1,
                      .window_len = s->window_len};
    take_states(s, &req);
    s->row = 0;
    s->committed_len = s->protected_len = s->window_len = 0;
    s->lock = (rad_receipt){0};
    s->kept++;
    return rad_cache_finished_req(c->base.inner, &req, is_insert, NULL);
}

static void forget_slot(session_cache *c, uint32_t id)
{
    uint32_t kept = c->slots[id].kept, turn = c->slots[id].turn;
    c->slots[id] = (session_slot){.kept = kept + 1, .turn = turn};
    slab_free(&c->ids, id);
    c->stats.open--;
}

/* --- what a turn finds --- */

/* Whether the window before position `len` is there still: in the slot's own pages, or in what it
 * holds of the tree. */
static bool has_window(const session_cache *c, const session_slot *s, uint32_t len)
{
    uint32_t ps = c->base.page_size;
    uint64_t window = (uint64_t)c->base.window_pages * ps;
    uint32_t from = s->window_len > s->protected_len ? s->window_len : s->lock.window_from;
    return !window || from <= (len > window ? (len - window) / ps * ps : 0);
}

/* The last place at or before position `len` behind which the slot has what recurrent layers
 * carry; `len` itself without such layers, 0: there is none. */
static uint32_t state_end(const session_cache *c, const session_slot *s, uint32_t len)
{
    if (!c->base.states) return len;
    uint32_t state = s->state_len <= len ? s->state_len : 0;
    uint32_t spare = s->spare_len <= len ? s->spare_len : 0;
    return RAD_MAX(state, spare);
}

/* How many positions of the slot the key can go on from; 0: nothing, ask the cache behind. */
static uint32_t agreeing(const session_cache *c, uint32_t id, const rad_key *key,
                         uint32_t num_tokens)
{
    const session_slot *s = &c->slots[id];
    if (!s->row || s->active || s->closing ||
        !namespace_name_is(&s->name, key->extra_key, key->cache_salt))
        return 0;
    uint32_t most = RAD_MIN(s->committed_len, num_tokens);
    uint32_t len = state_end(c, s, key_match_len(session_tokens(c, id), key->tokens, most));
    return len >= s->protected_len && has_window(c, s, len) ? len : 0;
}

static uint32_t find_kept(const session_cache *c, const rad_key *key, uint32_t *len)
{
    uint32_t id = key->session ? slab_find(&c->ids, key->session) : 0;
    *len = id ? agreeing(c, id, key, key->num_tokens) : 0;
    return *len ? id : 0;
}

static void fill_kept(const session_cache *c, uint32_t id, uint32_t len, rad_match *match)
{
    const session_slot *s = &c->slots[id];
    match->prefix_tokens = match->seen_tokens = len;
    match->last_node = session_node(c, id);
    if (c->base.states) match->state = s->state_len == len ? s->state : s->spare_state;
}

void session_match_prefix(rad_cache *cache, const rad_key *key, rad_slot *slots, rad_match *match)
{
    session_cache *c = session_of(cache);
    uint32_t len, id = find_kept(c, key, &len);
    if (!id) {
        (void)rad_cache_match_prefix(c->base.inner, key, slots, match, NULL);
        return;
    }
    if (slots)
        memcpy(slots, rad_req_to_token_row(cache->rows, c->slots[id].row), len * sizeof *slots);
    fill_kept(c, id, len, match);
}

void session_lookup(const rad_cache *cache, const rad_key *key, rad_match *match)
{
    const session_cache *c = session_of_const(cache);
    uint32_t len, id = find_kept(c, key, &len);
    if (!id) {
        (void)rad_cache_lookup(c->base.inner, key, match);
        return;
    }
    fill_kept(c, id, len, match);
}

rad_status session_inc_lock_ref(rad_cache *cache, rad_ref node, rad_receipt *receipt,
                                rad_error *err)
{
    session_cache *c = session_of(cache);
    if (!session_is_kept(node)) return rad_cache_inc_lock_ref(c->base.inner, node, receipt, err);
    uint32_t id = node.index & ~SESSION_NODE;
    if (!slab_is_live(&c->ids, id) || node.generation != c->slots[id].kept)
        return rad_fail(err, RAD_E_STATE,
                        "session_cache: the node of session slot %u (generation %u) is stale", id,
                        node.generation);
    *receipt = (rad_receipt){.node = node, .held = 1};
    return RAD_OK;
}

/* A virtual node holds nothing, so its receipts are good as long as they were not given
 * back; whether the slot still has what was matched is begin's question. */
bool session_receipt_holds(const rad_cache *cache, const rad_receipt *r)
{
    const session_cache *c = session_of_const(cache);
    if (!session_is_virtual(r)) return cache_receipt_holds(c->base.inner, r);
    uint32_t id = r->node.index & ~SESSION_NODE;
    return r->held && id >= 1 && id <= c->max_sessions;
}

rad_status session_dec_lock_ref(rad_cache *cache, rad_receipt *receipt, rad_error *err)
{
    if (!session_is_virtual(receipt)) return rad_cache_dec_lock_ref(cache->inner, receipt, err);
    if (!session_receipt_holds(cache, receipt))
        return rad_fail(err, RAD_E_STATE,
                        "session_cache: the receipt of session slot %u (generation %u) is not held",
                        receipt->node.index & ~SESSION_NODE, receipt->node.generation);
    *receipt = (rad_receipt){0};
    return RAD_OK;
}

/* --- a turn --- */

/* Frees the pages behind position `len` and hands the record to the request. */
static rad_status restore(session_cache *c, uint32_t id, uint32_t len, rad_req_kv *req,
                          rad_error *err)
{
    session_slot *s = &c->slots[id];
    uint32_t ps = c->base.page_size;
    uint32_t end = (len + ps - 1) / ps * ps;
    leave_idle(c, id);
    req->row = s->row;
    req->protected_len = s->protected_len;
    req->committed_len = req->allocated_len = len;
    req->published = 1;
    req->window_len = s->window_len;
    take_states(s, req);
    if (req->state_len != len) { /* it went back to the other one */
        rad_state stale = req->state;
        req->state = req->spare_state;
        req->spare_state = stale;
        req->state_len = c->base.states ? len : 0;
        req->spare_len = 0;
    } else if (req->spare_len > len) {
        req->spare_len = 0;
    }
    uint32_t stale_to = s->committed_len;
    s->committed_len = len;
    c->stats.restored++;
    return req_kv_free(&c->base, req, end, stale_to, err);
}

rad_status session_begin(rad_cache *cache, rad_req_kv *req, rad_error *err)
{
    session_cache *c = session_of(cache);
    uint32_t id = slab_find(&c->ids, req->key.session);
    session_slot *s = &c->slots[id];
    if (!id || s->closing)
        return rad_fail(err, RAD_E_STATE, "session %u is not open", req->key.session);
    if (s->active)
        return rad_fail(err, RAD_E_STATE, "session %u already has an active request",
                        req->key.session);
    if (req->row || req->turn)
        return rad_fail(err, RAD_E_STATE, "session %u: the request has begun already",
                        req->key.session);
    rad_status status = req_kv_check(cache, req, err);
    if (status) return status;
    rad_status dropped = RAD_OK;
    if (session_is_virtual(&req->lock)) {
        if (req->state || req->spare_state)
            return rad_fail(err, RAD_E_INVAL,
                            "session %u: the request brings states %d and %d, the session keeps "
                            "its own",
                            req->key.session, req->state, req->spare_state);
        uint32_t most = req->key.num_tokens ? req->key.num_tokens - 1 : 0;
        uint32_t len = agreeing(c, id, &req->key, most);
        rad_ref node = session_node(c, id);
        if (!len || req->lock.node.index != node.index ||
            req->lock.node.generation != node.generation) {
            req->lock = (rad_receipt){0};
            return RAD_AGAIN;
        }
        dropped = restore(c, id, len, req, err);
    } else {
        dropped = session_empty(c, id, 1); /* it starts anew, with another history */
    }
    if (!++s->turn) s->turn = 1;
    req->turn = s->turn;
    s->active = true;
    c->stats.active++;
    return dropped;
}

rad_status session_check_req(const rad_cache *cache, const rad_req_kv *req, rad_error *err)
{
    const session_cache *c = session_of_const(cache);
    if (!req->turn) {
        if (!req->row || (!req->key.session && !session_is_virtual(&req->lock))) return RAD_OK;
        return rad_fail(err, RAD_E_STATE, "session %u: row %u has not begun its turn",
                        req->key.session, req->row);
    }
    uint32_t id = slab_find(&c->ids, req->key.session);
    const session_slot *s = &c->slots[id];
    if (!id || !s->active || s->turn != req->turn || (s->row && s->row != req->row) ||
        session_is_virtual(&req->lock) != (s->row != 0))
        return rad_fail(err, RAD_E_STATE, "session %u: turn %u is not the one that is running",
                        req->key.session, req->turn);
    return RAD_OK;
}

rad_status session_unfinished_req(rad_cache *cache, rad_req_kv *req, int chunked, rad_error *err)
{
    session_cache *c = session_of(cache);
    if (!req->turn) return c->base.inner->ops->unfinished_req(c->base.inner, req, chunked, err);
    /* The prompt of a first turn goes into the tree once and as a whole; later turns are
     * the session's alone. What was loaded for it is the request's own as soon as it is there. */
    if (session_is_virtual(&req->lock) || chunked || req->published) {
        rad_status status = cache_settle_load(c->base.inner, req, err);
        if (!status && !chunked) req->published = 1;
        return status;
    }
    return c->base.inner->ops->unfinished_req(c->base.inner, req, chunked, err);
}

/* Moves the record into the slot. */
static rad_status keep(session_cache *c, uint32_t id, rad_req_kv *req, rad_error *err)
{
    session_slot *s = &c->slots[id];
    uint32_t ps = c->base.page_size;
    uint32_t known = s->row ? s->committed_len : 0; /* tokens of the part that was restored */
    uint32_t end = (req->committed_len + ps - 1) / ps * ps;
    rad_status status = req_kv_free(&c->base, req, end, req->allocated_len, err);
    if (!s->row) {
        s->lock = req->lock;
        namespace_name_set(&s->name, req->key.extra_key, req->key.cache_salt);
    }
    s->row = req->row;
    s->protected_len = req->protected_len;
    s->committed_len = req->committed_len;
    s->window_len = req->window_len;
    s->state = req->state;
    s->state_len = req->state_len;
    s->spare_state = req->spare_state;
    s->spare_len = req->spare_len;
    req->state = req->spare_state = 0; /* they are ours now, and */
    s->priority = req->priority;
    known = RAD_MIN(known, req->committed_len);
    memcpy(session_tokens(c, id) + known, req->key.tokens + known,
           (req->committed_len - known) * sizeof(rad_token));
    s->kept++;
    req->row = 0; /* so is the row */
    become_idle(c, id);
    return status;
}

/* The end of a request that is not kept: as in the cache behind, with its real lock. */
static rad_status drop(session_cache *c, uint32_t id, rad_req_kv *req, int is_insert,
                       rad_error *err)
{
    session_slot *s = &c->slots[id];
    if (session_is_virtual(&req->lock)) req->lock = s->lock;
    s->row = 0;
    s->committed_len = s->protected_len = s->window_len = 0;
    s->lock = (rad_receipt){0};
    s->kept++;
    return c->base.inner->ops->finished_req(c->base.inner, req, is_insert, err);
}

rad_status session_finished_req(rad_cache *cache, rad_req_kv *req, int is_insert, rad_error *err)
{
    session_cache *c = session_of(cache);
    if (!req->turn) {
        if (session_is_virtual(&req->lock)) return RAD_OK; /* matched, never begun */
        return c->base.inner->ops->finished_req(c->base.inner, req, is_insert, err);
    }
    uint32_t id = slab_find(&c->ids, req->key.session);
    session_slot *s = &c->slots[id];
    /* A load that has not been seen through ends in the cache that has its ticket. */
    bool kept = is_insert && req->row && req->committed_len && !s->closing && !req->load &&
                namespace_fits(req->key.extra_key, req->key.cache_salt);
    rad_status status = kept ? keep(c, id, req, err) : drop(c, id, req, is_insert, err);
    s->active = false;
    c->stats.active--;
    if (s->closing) forget_slot(c, id);
    return status;
}

/* --- open, close, pressure --- */

rad_status session_open(rad_cache *cache, rad_session *session)
{
    session_cache *c = session_of(cache);
    uint32_t id = slab_alloc(&c->ids);
    if (!id) return RAD_FULL;
    c->stats.open++;
    *session = slab_name(&c->ids, id);
    return RAD_OK;
}

rad_status session_close(rad_cache *cache, rad_session session)
{
    session_cache *c = session_of(cache);
    uint32_t id = slab_find(&c->ids, session);
    if (!id || c->slots[id].closing) return RAD_E_STATE;
    if (c->slots[id].active) {
        c->slots[id].closing = true;
        return RAD_OK;
    }
    rad_status status = session_empty(c, id, 0);
    forget_slot(c, id);
    return status;
}

uint32_t session_release_idle(rad_cache *cache, uint32_t count)
{
    session_cache *c = session_of(cache);
    uint32_t done = 0;
    for (; done < count && c->oldest; done++) {
        session_empty(c, c->oldest, 1);
        c->stats.dropped++;
    }
    return done;
}

rad_status session_evict(rad_cache *cache, uint64_t num_tokens, uint64_t *evicted_tokens)
{
    session_cache *c = session_of(cache);
    uint64_t done = 0, part = 0;
    rad_status status;
    while (!(status = rad_cache_evict(c->base.inner, num_tokens - done, &part, NULL))) {
        done += part;
        if (done >= num_tokens || !c->oldest) break;
        uint64_t before = rad_kv_available_size(cache->kv);
        status = session_empty(c, c->oldest, 1); /* frees its last page, or all it had */
        c->stats.dropped++;
        done += rad_kv_available_size(cache->kv) - before;
        if (status || done >= num_tokens) break;
    }
    if (evicted_tokens) *evicted_tokens = done;
    return status;
}

rad_status session_evict_window(rad_cache *cache, uint64_t window_tokens, uint64_t *evicted_tokens)
{
    session_cache *c = session_of(cache);
    uint32_t ps = cache->page_size;
    uint64_t done = 0, part = 0;
    rad_status status;
    while (!(status = rad_cache_evict_window(c->base.inner, window_tokens - done, &part))) {
        done += part;
        if (done >= window_tokens || !c->oldest) break;
        uint32_t before = rad_kv_window_available_pages(cache->kv);
        status = session_empty(c, c->oldest, 1); /* the tree has its windows now */
        c->stats.dropped++;
        done += (uint64_t)(rad_kv_window_available_pages(cache->kv) - before) * ps;
        if (status || done >= window_tokens) break;
    }
    *evicted_tokens = done;
    return status;
}

/* What a later turn of a session computes is not in the tree, and neither is a place for it. */
rad_status session_put_state(rad_cache *cache, rad_ref node, uint32_t depth_tokens, rad_state state,
                             rad_error *err)
{
    if (session_is_kept(node)) return rad_state_free(cache->states, state);
    return rad_cache_put_state(cache->inner, node, depth_tokens, state, err);
}

rad_status session_evict_state(rad_cache *cache, uint64_t count, uint64_t *evicted)
{
    session_cache *c = session_of(cache);
    uint64_t done = 0, part = 0;
    rad_status status;
    while (!(status = rad_cache_evict_state(c->base.inner, count - done, &part))) {
        done += part;
        if (done >= count || !c->oldest) break;
        uint32_t before = rad_state_available(cache->states);
        status = session_empty(c, c->oldest, 1); /* the tree has one of them now, or none */
        c->stats.dropped++;
        done += rad_state_available(cache->states) - before;
        if (status || done >= count) break;
    }
    *evicted = done;
    return status;
}

void session_hold_window(rad_cache *cache, rad_receipt *receipt, uint32_t from)
{
    session_cache *c = session_of(cache);
    if (session_is_virtual(receipt)) receipt = &c->slots[receipt->node.index & ~SESSION_NODE].lock;
    cache_hold_window(c->base.inner, receipt, from);
}
