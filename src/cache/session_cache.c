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
 * Invariant, verified by check: `held` has a bit for exactly the pages of idle slots
 * behind their protected length, each handed out and not the inner cache's; the list from
 * oldest to newest holds exactly the idle slots with a row. */
#include <radish/retention.h>

#include "base/bits.h"
#include "base/params.h"
#include "cache/cache_impl.h"
#include "cache/radix_cache.h"
#include "cache/radix_key.h"
#include "cache/session_names.h"

typedef struct session_slot {
    rad_row row;            /* 0: nothing is kept */
    uint32_t protected_len; /* as in rad_req_kv; allocated_len is committed_len */
    uint32_t committed_len;
    int32_t priority;
    rad_receipt lock; /* the inner cache's */
    uint32_t turn;    /* grows with each begin */
    uint32_t kept;    /* grows whenever what was kept is gone: virtual nodes become stale */
    uint32_t older;   /* idle slots with a row, by last use */
    uint32_t newer;
    bool active;
    bool closing; /* when the turn ends */
    bool has_extra, has_salt;
    uint32_t salt_at;
    char text[NAMESPACE_TEXT];
} session_slot;

typedef struct session_cache {
    rad_cache base;
    rad_cache *inner;
    uint32_t max_sessions;
    uint32_t row_tokens;
    slab ids;
    session_slot *slots; /* [max_sessions + 1] */
    rad_token *tokens;   /* [max_sessions + 1][row_tokens]: of the committed positions */
    uint64_t *held;      /* a bit for each page */
    uint32_t num_pages;  /* bits in `held` */
    uint32_t oldest, newest;
    rad_session_stats stats;
} session_cache;

static session_cache *of(rad_cache *cache)
{
    return (session_cache *)cache;
}

static const session_cache *of_const(const rad_cache *cache)
{
    return (const session_cache *)cache;
}

static rad_token *slot_tokens(const session_cache *c, uint32_t id)
{
    return c->tokens + (size_t)id * c->row_tokens;
}

static rad_ref slot_node(const session_cache *c, uint32_t id)
{
    return (rad_ref){SESSION_NODE | id, c->slots[id].kept};
}

static bool is_virtual(const rad_receipt *r)
{
    return rad_session_is_kept(r->node);
}

/* --- names --- */

static void keep_names(session_slot *s, const rad_key *key)
{
    s->has_extra = key->extra_key != NULL;
    s->has_salt = key->cache_salt != NULL;
    size_t extra = s->has_extra ? strlen(key->extra_key) + 1 : 0;
    s->salt_at = (uint32_t)extra;
    if (s->has_extra) memcpy(s->text, key->extra_key, extra);
    if (s->has_salt) memcpy(s->text + extra, key->cache_salt, strlen(key->cache_salt) + 1);
}

static bool same_name(bool has, const char *mine, const char *theirs)
{
    return has ? theirs && strcmp(mine, theirs) == 0 : !theirs;
}

static bool same_names(const session_slot *s, const rad_key *key)
{
    return same_name(s->has_extra, s->text, key->extra_key) &&
           same_name(s->has_salt, s->text + s->salt_at, key->cache_salt);
}

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

static void become_idle(session_cache *c, uint32_t id)
{
    session_slot *s = &c->slots[id];
    s->newer = 0;
    s->older = c->newest;
    *(s->older ? &c->slots[s->older].newer : &c->oldest) = id;
    c->newest = id;
    c->stats.held++;
    flip_pages(c, s);
}

static void leave_idle(session_cache *c, uint32_t id)
{
    session_slot *s = &c->slots[id];
    *(s->older ? &c->slots[s->older].newer : &c->oldest) = s->newer;
    *(s->newer ? &c->slots[s->newer].older : &c->newest) = s->older;
    s->older = s->newer = 0;
    c->stats.held--;
    flip_pages(c, s);
}

/* The end of what an idle slot keeps: a request with its record is finished in the cache
 * behind, which publishes it or not, and takes its row back. */
static rad_status empty_slot(session_cache *c, uint32_t id, int is_insert)
{
    session_slot *s = &c->slots[id];
    if (!s->row) return RAD_OK;
    leave_idle(c, id);
    rad_req_kv req = {.row = s->row,
                      .protected_len = s->protected_len,
                      .committed_len = s->committed_len,
                      .allocated_len = s->committed_len,
                      .key = {.tokens = slot_tokens(c, id),
                              .num_tokens = s->committed_len,
                              .extra_key = s->has_extra ? s->text : NULL,
                              .cache_salt = s->has_salt ? s->text + s->salt_at : NULL},
                      .lock = s->lock,
                      .priority = s->priority,
                      .published = 1};
    s->row = 0;
    s->committed_len = s->protected_len = 0;
    s->lock = (rad_receipt){0};
    s->kept++;
    return rad_cache_finished_req(c->inner, &req, is_insert, NULL);
}

static void forget_slot(session_cache *c, uint32_t id)
{
    uint32_t kept = c->slots[id].kept, turn = c->slots[id].turn;
    c->slots[id] = (session_slot){.kept = kept + 1, .turn = turn};
    slab_free(&c->ids, id);
    c->stats.open--;
}

/* --- what a turn finds --- */

/* How many positions of the slot the key can go on from; 0: nothing, ask the cache behind. */
static uint32_t agreeing(const session_cache *c, uint32_t id, const rad_key *key,
                         uint32_t num_tokens)
{
    const session_slot *s = &c->slots[id];
    if (!s->row || s->active || s->closing || !same_names(s, key)) return 0;
    uint32_t most = RAD_MIN(s->committed_len, num_tokens);
    uint32_t len = key_match_len(slot_tokens(c, id), key->tokens, most);
    return len >= s->protected_len ? len : 0;
}

static uint32_t find_kept(const session_cache *c, const rad_key *key, uint32_t *len)
{
    uint32_t id = key->session ? session_find(&c->ids, key->session) : 0;
    *len = id ? agreeing(c, id, key, key->num_tokens) : 0;
    return *len ? id : 0;
}

static rad_status session_match_prefix(rad_cache *cache, const rad_key *key, rad_slot *slots,
                                       rad_match *match)
{
    session_cache *c = of(cache);
    uint32_t len, id = find_kept(c, key, &len);
    if (!id) return rad_cache_match_prefix(c->inner, key, slots, match);
    if (slots)
        memcpy(slots, rad_req_to_token_row(cache->rows, c->slots[id].row), len * sizeof *slots);
    match->prefix_tokens = len;
    match->last_node = slot_node(c, id);
    return RAD_OK;
}

static rad_status session_lookup(const rad_cache *cache, const rad_key *key, rad_match *match)
{
    const session_cache *c = of_const(cache);
    uint32_t len, id = find_kept(c, key, &len);
    if (!id) return rad_cache_lookup(c->inner, key, match);
    match->prefix_tokens = len;
    match->last_node = slot_node(c, id);
    return RAD_OK;
}

static rad_status session_inc_lock_ref(rad_cache *cache, rad_ref node, rad_receipt *receipt,
                                       rad_error *err)
{
    session_cache *c = of(cache);
    if (!rad_session_is_kept(node)) return rad_cache_inc_lock_ref(c->inner, node, receipt, err);
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
static bool session_receipt_holds(const rad_cache *cache, const rad_receipt *r)
{
    const session_cache *c = of_const(cache);
    if (!is_virtual(r)) return c->inner->ops->receipt_holds(c->inner, r);
    uint32_t id = r->node.index & ~SESSION_NODE;
    return r->held && id >= 1 && id <= c->max_sessions;
}

static rad_status session_dec_lock_ref(rad_cache *cache, rad_receipt *receipt, rad_error *err)
{
    if (!is_virtual(receipt)) return rad_cache_dec_lock_ref(of(cache)->inner, receipt, err);
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
    uint32_t stale_to = s->committed_len;
    s->committed_len = len;
    c->stats.restored++;
    return req_kv_free(&c->base, req, end, stale_to, err);
}

static rad_status session_begin(rad_cache *cache, rad_req_kv *req, rad_error *err)
{
    session_cache *c = of(cache);
    uint32_t id = session_find(&c->ids, req->key.session);
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
    if (is_virtual(&req->lock)) {
        uint32_t most = req->key.num_tokens ? req->key.num_tokens - 1 : 0;
        uint32_t len = agreeing(c, id, &req->key, most);
        rad_ref node = slot_node(c, id);
        if (!len || req->lock.node.index != node.index ||
            req->lock.node.generation != node.generation) {
            req->lock = (rad_receipt){0};
            return RAD_AGAIN;
        }
        dropped = restore(c, id, len, req, err);
    } else {
        dropped = empty_slot(c, id, 1); /* it starts anew, with another history */
    }
    if (!++s->turn) s->turn = 1;
    req->turn = s->turn;
    s->active = true;
    c->stats.active++;
    return dropped;
}

static rad_status session_check_req(const rad_cache *cache, const rad_req_kv *req, rad_error *err)
{
    const session_cache *c = of_const(cache);
    if (!req->turn) {
        if (!req->row || (!req->key.session && !is_virtual(&req->lock))) return RAD_OK;
        return rad_fail(err, RAD_E_STATE, "session %u: row %u has not begun its turn",
                        req->key.session, req->row);
    }
    uint32_t id = session_find(&c->ids, req->key.session);
    const session_slot *s = &c->slots[id];
    if (!id || !s->active || s->turn != req->turn || (s->row && s->row != req->row) ||
        is_virtual(&req->lock) != (s->row != 0))
        return rad_fail(err, RAD_E_STATE, "session %u: turn %u is not the one that is running",
                        req->key.session, req->turn);
    return RAD_OK;
}

static rad_status session_unfinished_req(rad_cache *cache, rad_req_kv *req, int chunked,
                                         rad_error *err)
{
    session_cache *c = of(cache);
    if (!req->turn) return c->inner->ops->unfinished_req(c->inner, req, chunked, err);
    /* The prompt of a first turn goes into the tree once and as a whole; later turns are
     * the session's alone. */
    if (is_virtual(&req->lock) || chunked || req->published) {
        if (!chunked) req->published = 1;
        return RAD_OK;
    }
    return c->inner->ops->unfinished_req(c->inner, req, chunked, err);
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
        keep_names(s, &req->key);
    }
    s->row = req->row;
    s->protected_len = req->protected_len;
    s->committed_len = req->committed_len;
    s->priority = req->priority;
    known = RAD_MIN(known, req->committed_len);
    memcpy(slot_tokens(c, id) + known, req->key.tokens + known,
           (req->committed_len - known) * sizeof(rad_token));
    s->kept++;
    req->row = 0; /* it is ours now */
    become_idle(c, id);
    return status;
}

/* The end of a request that is not kept: as in the cache behind, with its real lock. */
static rad_status drop(session_cache *c, uint32_t id, rad_req_kv *req, int is_insert,
                       rad_error *err)
{
    session_slot *s = &c->slots[id];
    if (is_virtual(&req->lock)) req->lock = s->lock;
    s->row = 0;
    s->committed_len = s->protected_len = 0;
    s->lock = (rad_receipt){0};
    s->kept++;
    return c->inner->ops->finished_req(c->inner, req, is_insert, err);
}

static rad_status session_finished_req(rad_cache *cache, rad_req_kv *req, int is_insert,
                                       rad_error *err)
{
    session_cache *c = of(cache);
    if (!req->turn) {
        if (is_virtual(&req->lock)) return RAD_OK; /* matched, never begun */
        return c->inner->ops->finished_req(c->inner, req, is_insert, err);
    }
    uint32_t id = session_find(&c->ids, req->key.session);
    session_slot *s = &c->slots[id];
    bool kept = is_insert && req->row && req->committed_len && !s->closing &&
                namespace_fits(req->key.extra_key, req->key.cache_salt);
    rad_status status = kept ? keep(c, id, req, err) : drop(c, id, req, is_insert, err);
    s->active = false;
    c->stats.active--;
    if (s->closing) forget_slot(c, id);
    return status;
}

/* --- open, close, pressure --- */

static rad_status session_open(rad_cache *cache, rad_session *session)
{
    session_cache *c = of(cache);
    uint32_t id = slab_alloc(&c->ids);
    if (!id) return RAD_FULL;
    c->stats.open++;
    *session = session_name(&c->ids, id);
    return RAD_OK;
}

static rad_status session_close(rad_cache *cache, rad_session session)
{
    session_cache *c = of(cache);
    uint32_t id = session_find(&c->ids, session);
    if (!id || c->slots[id].closing) return RAD_E_STATE;
    if (c->slots[id].active) {
        c->slots[id].closing = true;
        return RAD_OK;
    }
    rad_status status = empty_slot(c, id, 0);
    forget_slot(c, id);
    return status;
}

static uint32_t session_release_idle(rad_cache *cache, uint32_t count)
{
    session_cache *c = of(cache);
    uint32_t done = 0;
    for (; done < count && c->oldest; done++) {
        empty_slot(c, c->oldest, 1);
        c->stats.dropped++;
    }
    return done;
}

static rad_status session_evict(rad_cache *cache, uint64_t num_tokens, uint64_t *evicted_tokens)
{
    session_cache *c = of(cache);
    uint64_t done = 0, part = 0;
    rad_status status;
    while (!(status = rad_cache_evict(c->inner, num_tokens - done, &part))) {
        done += part;
        if (done >= num_tokens || !c->oldest) break;
        uint64_t before = rad_kv_available_size(cache->kv);
        status = empty_slot(c, c->oldest, 1); /* frees its last page, or all it had */
        c->stats.dropped++;
        done += rad_kv_available_size(cache->kv) - before;
        if (status || done >= num_tokens) break;
    }
    if (evicted_tokens) *evicted_tokens = done;
    return status;
}

/* --- the rest goes to the cache behind --- */

static rad_status session_insert(rad_cache *cache, const rad_key *key, const rad_slot *slots,
                                 const rad_insert_params *params, uint32_t *prefix_tokens)
{
    session_cache *c = of(cache);
    uint32_t ps = cache->page_size;
    for (uint32_t i = 0; i < key->num_tokens / ps * ps; i += ps) {
        uint64_t page = (uint64_t)(uint32_t)slots[i] / ps;
        if (page < c->num_pages && bits_get(c->held, page)) return RAD_E_STATE;
    }
    return rad_cache_insert(c->inner, key, slots, params, prefix_tokens);
}

static rad_status session_reset(rad_cache *cache)
{
    session_cache *c = of(cache);
    while (c->oldest)
        empty_slot(c, c->oldest, 0);
    return rad_cache_reset(c->inner);
}

static cache_sizes session_sizes(const rad_cache *cache)
{
    const session_cache *c = of_const(cache);
    cache_sizes sizes = c->inner->ops->sizes(c->inner);
    sizes.evictable += c->stats.held_tokens;
    return sizes;
}

static void session_get_stats(const rad_cache *cache, rad_session_stats *stats)
{
    *stats = of_const(cache)->stats;
}

static size_t own_bytes(const session_cache *c)
{
    size_t places = (size_t)c->max_sessions + 1;
    return sizeof *c + slab_bytes(c->max_sessions) + places * sizeof *c->slots +
           rad_mul(rad_mul(places, c->row_tokens), sizeof *c->tokens) +
           bits_words(c->num_pages) * sizeof *c->held;
}

static void session_cache_stats(const rad_cache *cache, rad_cache_stats *stats)
{
    rad_cache_get_stats(of_const(cache)->inner, stats);
    stats->metadata_bytes += own_bytes(of_const(cache));
}

static rad_status session_walk(const rad_cache *cache, rad_cache_visit_fn visit, void *user)
{
    return rad_cache_walk(of_const(cache)->inner, visit, user);
}

static void session_visit_pages(const rad_cache *cache, cache_page_fn visit, void *user)
{
    const session_cache *c = of_const(cache);
    c->inner->ops->visit_pages(c->inner, visit, user);
    for (uint32_t id = c->oldest; id; id = c->slots[id].newer) {
        const session_slot *s = &c->slots[id];
        const rad_slot *row = rad_req_to_token_row(cache->rows, s->row);
        for (uint32_t at = s->protected_len; at < s->committed_len; at += cache->page_size)
            visit(user, row[at] / (rad_slot)cache->page_size);
    }
}

static bool session_owns_page(const rad_cache *cache, rad_page page)
{
    const session_cache *c = of_const(cache);
    return bits_get(c->held, (size_t)page) || c->inner->ops->owns_page(c->inner, page);
}

static bool session_owns_prefix(const rad_cache *cache, const rad_receipt *lock,
                                const rad_slot *row, uint32_t protected_len)
{
    const session_cache *c = of_const(cache);
    if (is_virtual(lock)) {
        uint32_t id = lock->node.index & ~SESSION_NODE;
        const session_slot *s = &c->slots[id];
        if (!s->row || row != rad_req_to_token_row(cache->rows, s->row)) return !protected_len;
        lock = &s->lock;
    }
    return c->inner->ops->owns_prefix(c->inner, lock, row, protected_len);
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
    if (!c->inner->ops->owns_prefix(c->inner, &s->lock, row, s->protected_len))
        return rad_fail(err, RAD_E_CORRUPT, "session_check: slot %u does not hold its prefix", id);
    for (uint32_t at = s->protected_len; at < s->committed_len; at += ps, ++*pages) {
        rad_page page = row[at] / (rad_slot)ps;
        if (!rad_kv_is_taken(c->base.kv, page) || !bits_get(c->held, (size_t)page) ||
            c->inner->ops->owns_page(c->inner, page))
            return rad_fail(err, RAD_E_CORRUPT, "session_check: page %d of slot %u is not its own",
                            page, id);
    }
    return RAD_OK;
}

static rad_status session_check(const rad_cache *cache, rad_error *err)
{
    const session_cache *c = of_const(cache);
    uint64_t pages = 0, bits = 0, idle = 0, active = 0, rows = 0;
    rad_status status = rad_cache_check(c->inner, err);
    for (uint32_t id = c->oldest; !status && id; id = c->slots[id].newer, idle++)
        status = idle > c->max_sessions
                     ? rad_fail(err, RAD_E_CORRUPT, "session_check: a circle of idle slots")
                     : check_slot(c, id, &pages, err);
    if (status) return status;
    for (uint32_t id = 1; id <= c->ids.num_fresh; id++) {
        active += c->slots[id].active;
        rows += c->slots[id].row && !c->slots[id].active;
    }
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
    slab_fini(&c->ids, &env);
    rad_free(&env, c->slots, places * sizeof *c->slots);
    rad_free(&env, c->tokens, rad_mul(rad_mul(places, c->row_tokens), sizeof *c->tokens));
    rad_free(&env, c->held, bits_words(c->num_pages) * sizeof *c->held);
    rad_free(&env, c, sizeof *c);
}

static void session_destroy(rad_cache *cache)
{
    rad_cache_destroy(of(cache)->inner);
    free_own(of(cache));
}

static rad_status session_pin_prefix(rad_cache *cache, const rad_key *key, uint64_t ttl_ns,
                                     uint32_t *pinned_tokens)
{
    return rad_cache_pin_prefix(of(cache)->inner, key, ttl_ns, pinned_tokens);
}

static rad_status session_retain_prefix(rad_cache *cache, const rad_key *key, int32_t priority,
                                        uint64_t idle_ns, uint32_t *retained_tokens)
{
    return rad_cache_retain_prefix(of(cache)->inner, key, priority, idle_ns, retained_tokens);
}

static uint64_t session_pinned_size(const rad_cache *cache)
{
    return rad_cache_pinned_size(of_const(cache)->inner);
}

static const cache_ops session_ops = {
    .destroy = session_destroy,
    .match_prefix = session_match_prefix,
    .lookup = session_lookup,
    .insert = session_insert,
    .inc_lock_ref = session_inc_lock_ref,
    .dec_lock_ref = session_dec_lock_ref,
    .evict = session_evict,
    .receipt_holds = session_receipt_holds,
    .owns_page = session_owns_page,
    .unfinished_req = session_unfinished_req,
    .finished_req = session_finished_req,
    .reset = session_reset,
    .sizes = session_sizes,
    .get_stats = session_cache_stats,
    .walk = session_walk,
    .visit_pages = session_visit_pages,
    .check = session_check,
    .owns_prefix = session_owns_prefix,
    .pin_prefix = session_pin_prefix,
    .retain_prefix = session_retain_prefix,
    .pinned_size = session_pinned_size,
    .session_open = session_open,
    .session_begin = session_begin,
    .session_close = session_close,
    .session_check = session_check_req,
    .session_release_idle = session_release_idle,
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
                          .env = full,
                          .page_size = p.inner->page_size,
                          .kv = p.inner->kv,
                          .rows = p.inner->rows};
    c->inner = p.inner;
    c->max_sessions = p.max_sessions;
    c->row_tokens = rad_req_to_token_row_tokens(c->base.rows);
    c->num_pages = rad_kv_num_pages(c->base.kv) + 1;
    size_t places = (size_t)p.max_sessions + 1;
    bool ok = slab_init(&c->ids, &full, p.max_sessions);
    c->slots = rad_alloc(&full, places * sizeof *c->slots);
    c->tokens = rad_alloc(&full, rad_mul(rad_mul(places, c->row_tokens), sizeof *c->tokens));
    c->held = rad_alloc(&full, bits_words(c->num_pages) * sizeof *c->held);
    if (!ok || !c->slots || !c->tokens || !c->held) {
        uint32_t row_tokens = c->row_tokens;
        free_own(c);
        return rad_fail(err, RAD_E_NOMEM, "streaming_cache: no memory for %u sessions of %u tokens",
                        p.max_sessions, row_tokens);
    }
    *out = &c->base;
    return RAD_OK;
}
