/* ownership.c - requests' records, and the equation of promise P2:
 *
 *     free + cached + held by requests == all,    page by page
 *
 * Each page gets the names of its owners; what has none is lost, what has two is about
 * to be written by one and read by the other. A window side goes with its page, so the same
 * holds for it once each owner has it where it says; for the cached ones rad_cache_check says. */
#include "base/bits.h"
#include "cache/cache_impl.h"
#include "mem/kv_bits.h"

#include <stdarg.h>
#include <stdio.h>

/* The slots behind the protected ones are whole pages, but for the last, handed out and nobody
 * else's. What is allocated in a row is mostly a few runs of pages, and a run is looked at 64 pages
 * at a time, as an insert does. */
static bool own_slots_are_sound(const rad_cache *cache, const rad_req_kv *req)
{
    const rad_slot *row = rad_req_to_token_row(cache->rows, req->row);
    bits_lane taken = kv_taken_lane(cache->kv);
    uint32_t ps = cache->page_size, num_pages = rad_kv_num_pages(cache->kv);
    for (uint32_t i = req->protected_len, run; i < req->allocated_len; i += run) {
        run = bits_run(row + i, req->allocated_len - i);
        bool is_last = i + run == req->allocated_len;
        if (row[i] < 0 || (uint32_t)row[i] % ps || (run % ps && !is_last)) return false;
        kv_run pages = {row[i] / (rad_slot)ps, run / ps + (run % ps != 0)};
        if (pages.first < 1 || pages.count > num_pages ||
            (uint32_t)pages.first > num_pages - pages.count + 1)
            return false;
        if (!lane_range_is(taken, (size_t)pages.first, pages.count, true) ||
            cache->ops->owns_any(cache, pages))
            return false;
    }
    return true;
}

/* The first slot that is wrong, in words. */
static rad_status refuse_slots(const rad_cache *cache, const rad_req_kv *req, rad_error *err)
{
    const rad_slot *row = rad_req_to_token_row(cache->rows, req->row);
    uint32_t ps = cache->page_size;
    for (uint32_t i = req->protected_len; i < req->allocated_len; i++) {
        rad_slot first = row[i - i % ps];
        if (first < 0 || (uint32_t)first % ps || (uint32_t)row[i] != (uint32_t)first + i % ps)
            return rad_fail(err, RAD_E_STATE,
                            "cache: row %u: slot %d at position %u is not in its page's place",
                            req->row, row[i], i);
        if (i % ps) continue;
        rad_page page = first / (rad_slot)ps;
        bool taken = rad_kv_is_taken(cache->kv, page);
        if (!taken || cache->ops->owns_any(cache, (kv_run){page, 1}))
            return rad_fail(err, RAD_E_STATE, "cache: row %u: slot %d at position %u is %s",
                            req->row, row[i], i, taken ? "the cache's" : "not handed out");
    }
    return rad_fail(err, RAD_E_STATE, "cache: row %u: its slots changed while they were checked",
                    req->row);
}

/* The same of what recurrent layers carry. */
static rad_status states_check(const rad_cache *cache, const rad_req_kv *req, rad_error *err)
{
    const rad_state states[] = {req->state, req->spare_state};
    const uint32_t lens[] = {req->state_len, req->spare_len};
    for (int i = 0; i < 2; i++) {
        bool taken = cache->states && rad_state_is_taken(cache->states, states[i]);
        if (lens[i] > req->committed_len || (lens[i] && !states[i]))
            return rad_fail(err, RAD_E_INVAL,
                            "cache: row %u: state %d has seen %u of %u committed positions",
                            req->row, states[i], lens[i], req->committed_len);
        if (states[i] && (!taken || cache_owns_state(cache, states[i]) || states[0] == states[1]))
            return rad_fail(err, RAD_E_STATE, "cache: row %u: state %d is %s", req->row, states[i],
                            !cache->states           ? "none: the cache has no state pool"
                            : !taken                 ? "not handed out"
                            : states[0] == states[1] ? "both of the request's"
                                                     : "the cache's");
    }
    return RAD_OK;
}

rad_status req_kv_check(const rad_cache *cache, const rad_req_kv *req, rad_error *err)
{
    if (!req) return rad_fail(err, RAD_E_INVAL, "cache: no request");
    if (!cache->rows)
        return rad_fail(err, RAD_E_UNSUPPORTED, "cache: an index-only cache has no requests");
    uint32_t ps = cache->page_size;
    if (req->lock.held ? !cache_receipt_holds(cache, &req->lock) : req->protected_len != 0)
        return rad_fail(err, RAD_E_STATE,
                        "cache: row %u: its lock (node %u, generation %u) is stale or missing, "
                        "with %u protected positions",
                        req->row, req->lock.node.index, req->lock.node.generation,
                        req->protected_len);
    rad_status status = states_check(cache, req, err);
    if (status) return status;
    if (!req->row) {
        if (!req->allocated_len && !req->committed_len) return RAD_OK;
        return rad_fail(err, RAD_E_INVAL, "cache: %u positions without a row", req->allocated_len);
    }
    if (!rad_req_to_token_is_taken(cache->rows, req->row))
        return rad_fail(err, RAD_E_STATE, "cache: row %u is not handed out", req->row);
    if (req->protected_len > req->committed_len || req->committed_len > req->allocated_len ||
        req->allocated_len > rad_req_to_token_row_tokens(cache->rows) ||
        req->committed_len > req->key.num_tokens || req->protected_len % ps ||
        req->window_len > req->committed_len || req->window_len % ps ||
        (req->committed_len && !req->key.tokens))
        return rad_fail(err, RAD_E_INVAL,
                        "cache: row %u: %u protected, %u committed, %u allocated positions, %u "
                        "tokens and %u out of the window do not go together",
                        req->row, req->protected_len, req->committed_len, req->allocated_len,
                        req->key.num_tokens, req->window_len);
    return own_slots_are_sound(cache, req) ? RAD_OK : refuse_slots(cache, req, err);
}

rad_status req_kv_free(rad_cache *cache, const rad_req_kv *req, uint32_t from, uint32_t to,
                       rad_error *err)
{
    if (!req->row || from >= to) return RAD_OK;
    const rad_slot *row = rad_req_to_token_row(cache->rows, req->row);
    return rad_kv_free_slots(cache->kv, row + from, to - from, err);
}

enum { NOBODY = 0, THE_CACHE = 1, FIRST_REQ = 2 };

/* Of pages, or of states. */
typedef struct ledger {
    const char *what; /* "page" */
    uint32_t *owner;  /* [most + 1] */
    uint32_t most;
    rad_status status;
    rad_error *err; /* the first fault */
    rad_ownership_fault_fn fault;
    void *user;
} ledger;

static void tell(ledger *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void tell(ledger *l, const char *format, ...)
{
    char words[256];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    if (!l->status) rad_fail(l->err, RAD_E_CORRUPT, "ownership: %s", words);
    l->status = RAD_E_CORRUPT;
    if (l->fault) l->fault(l->user, words);
}

static const char *owner_name(uint32_t owner, char text[32])
{
    if (owner == THE_CACHE) return "the cache";
    snprintf(text, 32, "request %u", owner - FIRST_REQ);
    return text;
}

static void enter(ledger *l, int64_t id, uint32_t owner)
{
    char a[32], b[32];
    if (id < 1 || id > l->most)
        tell(l, "%s holds %s %lld of 1..%u", owner_name(owner, a), l->what, (long long)id, l->most);
    else if (l->owner[id])
        tell(l, "%s %lld is held by %s and by %s", l->what, (long long)id,
             owner_name(l->owner[id], a), owner_name(owner, b));
    else
        l->owner[id] = owner;
}

static void enter_cached(void *user, int32_t id)
{
    enter(user, id, THE_CACHE);
}

static void enter_req(ledger *l, const rad_cache *cache, const rad_req_kv *req, uint32_t index)
{
    uint32_t ps = cache->page_size;
    const rad_slot *row = rad_req_to_token_row(cache->rows, req->row);
    rad_error why;
    if (!req->row) return;
    if (req_kv_check(cache, req, &why)) {
        tell(l, "request %u: %s", index, why.text);
        return; /* its row cannot be read; what it held is told as lost */
    }
    if (!cache_owns_prefix(cache, &req->lock, row, req->protected_len))
        tell(l,
             "request %u: the %u protected positions of row %u are not the slots of the node it "
             "holds",
             index, req->protected_len, req->row);
    for (uint32_t at = req->protected_len; at < req->allocated_len; at += ps) {
        rad_page page = row[at] / (rad_slot)ps;
        enter(l, page, FIRST_REQ + index);
        bool has = rad_kv_has_window(cache->kv, page);
        if (cache->window_pages && has != (at >= req->window_len))
            tell(l,
                 "request %u: page %d at position %u %s a window side, with %u out of the window",
                 index, page, at, has ? "has" : "lacks", req->window_len);
    }
}

rad_status rad_cache_check_ownership(const rad_cache *cache, const rad_req_kv *const *reqs,
                                     uint32_t num_reqs, rad_error *err)
{
    return rad_cache_report_ownership(cache, reqs, num_reqs, NULL, NULL, err);
}

/* free + cached + held == all, of states: likewise, state by state. */
static void report_states(const rad_cache *cache, const rad_req_kv *const *reqs, uint32_t num_reqs,
                          ledger *l)
{
    char text[32];
    const rad_cache *owner = cache;
    CACHE_WITH(owner, visit_states);
    if (owner->ops->visit_states) owner->ops->visit_states(owner, enter_cached, l);
    for (uint32_t i = 0; i < num_reqs; i++) {
        if (reqs[i]->state) enter(l, reqs[i]->state, FIRST_REQ + i);
        if (reqs[i]->spare_state) enter(l, reqs[i]->spare_state, FIRST_REQ + i);
    }
    for (uint32_t state = 1; state <= l->most; state++) {
        bool taken = rad_state_is_taken(cache->states, (rad_state)state);
        if (taken && !l->owner[state])
            tell(l, "state %u is lost: taken, and neither cached nor held by a request", state);
        else if (!taken && l->owner[state])
            tell(l, "state %u is free, and held by %s", state, owner_name(l->owner[state], text));
    }
}

static void report_pages(const rad_cache *cache, const rad_req_kv *const *reqs, uint32_t num_reqs,
                         ledger *l)
{
    char text[32];
    cache->ops->visit_pages(cache, enter_cached, l);
    for (uint32_t i = 0; i < num_reqs; i++)
        enter_req(l, cache, reqs[i], i);
    for (uint32_t page = 1; page <= l->most; page++) {
        bool taken = rad_kv_is_taken(cache->kv, (rad_page)page);
        uint32_t first_slot = page * cache->page_size;
        if (taken && !l->owner[page])
            tell(l,
                 "page %u (slots %u..%u) is lost: taken, and neither cached nor held by a request",
                 page, first_slot, first_slot + cache->page_size - 1);
        else if (!taken && l->owner[page])
            tell(l, "page %u is free, and held by %s", page, owner_name(l->owner[page], text));
    }
}

rad_status rad_cache_report_ownership(const rad_cache *cache, const rad_req_kv *const *reqs,
                                      uint32_t num_reqs, rad_ownership_fault_fn fault, void *user,
                                      rad_error *err)
{
    if (!cache->rows) return cache->ops->check(cache, err);
    ledger l = {.what = "page",
                .most = rad_kv_num_pages(cache->kv),
                .err = err,
                .fault = fault,
                .user = user};
    uint32_t states = cache->states ? rad_state_pool_num_states(cache->states) : 0;
    size_t bytes = ((size_t)RAD_MAX(l.most, states) + 1) * sizeof *l.owner;
    l.owner = rad_alloc(&cache->env, bytes);
    if (!l.owner) return rad_fail(err, RAD_E_NOMEM, "ownership: no scratch memory");
    report_pages(cache, reqs, num_reqs, &l);
    if (states) {
        memset(l.owner, 0, bytes);
        l.what = "state";
        l.most = states;
        report_states(cache, reqs, num_reqs, &l);
    }
    rad_free(&cache->env, l.owner, bytes);
    return l.status;
}
