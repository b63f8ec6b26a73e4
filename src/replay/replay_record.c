/* replay_record.c - see the header.
 *
 * A token of page p is p itself, page_size times: pages are equal where the server's were, which is
 * all that a tree of whole pages knows. Slots are taken when a request publishes them, not when the
 * server took them: evictions are in the record, and so nothing here ever has to evict.
 *
 * Not trusted: lengths are checked against what the record has told of the request, and what a call
 * of the cache refuses is a difference. */
#include "replay/replay_record.h"

#include "replay/replay_private.h"

#include <radish/hicache.h>
#include <radish/retention.h>
#include <radish/session.h>

#include <stdarg.h>
#include <stdio.h>

enum { MOST_LIVE = 1 << 20 };

/* ---- life ---- */

static void forget(replay *p, live **at)
{
    live *q = *at;
    *at = q->next;
    rad_free(&p->env, q->tokens, q->cap * sizeof *q->tokens);
    rad_free(&p->env, q, sizeof *q);
    p->num_live--;
}

static void replay_fini(replay *p)
{
    record_cache_fini(&p->c);
    for (uint32_t i = 0; i < BUCKETS; i++)
        while (p->buckets[i])
            forget(p, &p->buckets[i]);
    rad_free(&p->env, p->pages, rad_mul(p->c.room, sizeof *p->pages));
    record_close(p->reader);
}

/* ---- what is different ---- */

void replay_differ(replay *p, const record_op *op, const char *fmt, ...)
{
    replay_result *r = p->result;
    char what[128];
    if (r->differences++) return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    snprintf(r->first_difference, sizeof r->first_difference, "operation %llu (%s) at %.3f s: %s",
             (unsigned long long)record_num_ops(p->reader), record_shape_of(op->kind)->name,
             1e-6 * (double)op->time_us, what);
}

void replay_compare(replay *p, const record_op *op, const char *what, uint64_t ours,
                    uint64_t recorded)
{
    if (ours != recorded)
        replay_differ(p, op, "%s: %llu here, %llu recorded", what, (unsigned long long)ours,
                      (unsigned long long)recorded);
}

void replay_compare_status(replay *p, const record_op *op, rad_status ours, uint64_t recorded)
{
    const int64_t was = record_unzigzag(recorded);
    if ((int64_t)ours != was)
        replay_differ(p, op, "%s here, %s recorded", rad_status_name(ours),
                      rad_status_name((rad_status)was));
}

/* ---- requests ---- */

static live **find(replay *p, uint64_t id)
{
    live **at = &p->buckets[id % BUCKETS];
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

/* Its tokens up to `num_tokens`: pages as far as they are known, and a rest that no page has. */
static rad_status know(replay *p, live *q, const record_op *op, uint64_t num_tokens, rad_error *err)
{
    if (num_tokens > p->c.room)
        return rad_fail(err, RAD_E_FORMAT,
                        "operation %llu: request %llu has %llu tokens, more than "
                        "the server's context of %u",
                        (unsigned long long)record_num_ops(p->reader), (unsigned long long)q->id,
                        (unsigned long long)num_tokens, p->c.room);
    if (op->num_pages > num_tokens / p->page_size || op->num_pages < q->num_pages)
        return rad_fail(err, RAD_E_FORMAT,
                        "operation %llu: request %llu has %u pages of %u tokens "
                        "in %llu tokens",
                        (unsigned long long)record_num_ops(p->reader), (unsigned long long)q->id,
                        op->num_pages, p->page_size, (unsigned long long)num_tokens);
    if (num_tokens > q->cap) {
        uint64_t cap = RAD_MAX(num_tokens, 2 * q->cap);
        rad_token *tokens = rad_alloc(&p->env, cap * sizeof *tokens);
        if (!tokens) return rad_fail(err, RAD_E_NOMEM, "no memory for a request's tokens");
        rad_free(&p->env, q->tokens, q->cap * sizeof *tokens);
        q->tokens = tokens;
        q->cap = cap;
    }
    q->page = op->page;
    q->num_pages = op->num_pages;
    q->num_tokens = (uint32_t)num_tokens;
    record_chain(p->reader, q->page, (uint32_t *)p->pages);
    for (uint32_t i = 0; i < q->num_tokens; i++)
        q->tokens[i] = i / p->page_size < q->num_pages ? p->pages[i / p->page_size] : 0;
    return RAD_OK;
}

static rad_status arrive(replay *p, const record_op *op, rad_error *err)
{
    if (*find(p, op->field[0])) {
        p->result->unknown++; /* two of one name: whose the next operations are is not known */
        return RAD_OK;
    }
    live *q = p->num_live < MOST_LIVE ? rad_alloc(&p->env, sizeof *q) : NULL;
    if (!q) return rad_fail(err, RAD_E_NOMEM, "no memory for more than %u requests", p->num_live);
    *q = (live){.id = op->field[0],
                .number = (uint32_t)op->field[1],
                .session = (uint32_t)op->field[2],
                .num_prompt = (uint32_t)op->field[4],
                .priority = (int32_t)record_unzigzag(op->field[3]),
                .next = p->buckets[op->field[0] % BUCKETS]};
    p->buckets[q->id % BUCKETS] = q;
    p->num_live++;
    p->result->requests++;
    return know(p, q, op, op->field[4], err);
}

static const char *name_of(replay *p, uint32_t number)
{
    snprintf(p->name, sizeof p->name, "%u", number);
    return number ? p->name : NULL;
}

static rad_key key_of(replay *p, const live *q, uint32_t num_tokens)
{
    return (rad_key){.tokens = q->tokens,
                     .num_tokens = RAD_MIN(num_tokens, q->num_tokens),
                     .session = q->session,
                     .extra_key = name_of(p, q->number)};
}

/* What it gives back that did not come to anything: the server would have told. */
static void put_back(replay *p, live *q)
{
    rad_req_kv *kv = &q->kv;
    kv->key = key_of(p, q, q->num_tokens);
    if (kv->row)
        (void)rad_cache_finished_req(p->c.cache, kv, 0, NULL);
    else if (kv->lock.held)
        (void)rad_cache_dec_lock_ref(p->c.cache, &kv->lock, NULL);
    *kv = (rad_req_kv){0};
}

/* scheduler: find_prefix. A row comes with the match, and a session's turn may bring another. */
static rad_status match(replay *p, live *q, const record_op *op, rad_error *err)
{
    const uint32_t asked = (uint32_t)op->field[1];
    if (op->field[1] > q->num_tokens)
        return rad_fail(err, RAD_E_FORMAT, "operation %llu: a match of %llu tokens of %u",
                        (unsigned long long)record_num_ops(p->reader),
                        (unsigned long long)op->field[1], q->num_tokens);
    if (q->kv.row || q->kv.lock.held) put_back(p, q);
    rad_row row;
    if (rad_req_to_token_alloc(p->c.rows, &row) != RAD_OK) {
        replay_differ(p, op, "no row is free here");
        return RAD_OK;
    }
    rad_match m = {0};
    const rad_key key = key_of(p, q, asked);
    uint32_t prefix = 0;
    q->kv = (rad_req_kv){.key = key_of(p, q, asked + 1), .priority = q->priority};
    rad_slot *slots = rad_req_to_token_row(p->c.rows, row);
    if (rad_cache_match_prefix(p->c.cache, &key, slots, &m, NULL) == RAD_OK &&
        rad_cache_inc_lock_ref(p->c.cache, m.last_node, &q->kv.lock, NULL) == RAD_OK)
        prefix = m.prefix_tokens;
    replay_compare(p, op, "tokens found", prefix, op->field[2]);
    q->kv.row = row;
    q->kv.protected_len = q->kv.committed_len = q->kv.allocated_len = prefix;
    return RAD_OK;
}

static void begin(replay *p, live *q, const record_op *op)
{
    const rad_row row = q->kv.row;
    const uint32_t prefix = q->kv.protected_len;
    q->kv.row = 0;
    q->kv.protected_len = q->kv.committed_len = q->kv.allocated_len = 0;
    q->kv.key = key_of(p, q, q->kv.key.num_tokens);
    const rad_status status = rad_session_begin(p->c.cache, &q->kv, NULL);
    replay_compare_status(p, op, status, op->field[1]);
    if (q->kv.row || (status < 0 && !q->kv.turn) || status == RAD_AGAIN) {
        (void)rad_req_to_token_free(p->c.rows, row); /* it has another; or it matches again */
    } else {
        q->kv.row = row;
        q->kv.protected_len = q->kv.committed_len = q->kv.allocated_len = prefix;
    }
}

/* What it was found to have, with the front of a page that was copied: copies change no tree. */
static void admit(replay *p, const live *q, const record_op *op)
{
    record_counters *ours = &p->result->ours;
    const uint64_t cached = q->kv.committed_len + op->field[4];
    ours->prompt_tokens += q->num_prompt;
    ours->cached_tokens += cached;
    replay_compare(p, op, "cached tokens", cached, op->field[1]);
}

/* Slots up to what the server had computed when it published. */
static rad_status commit(replay *p, live *q, const record_op *op, uint64_t committed,
                         rad_error *err)
{
    rad_req_kv *kv = &q->kv;
    const uint32_t ps = p->page_size;
    if (committed > q->num_tokens) {
        /* The rest of a page that is not whole: nobody's key has it. */
        const record_op same = {.page = q->page, .num_pages = q->num_pages};
        rad_status status = know(p, q, &same, committed, err);
        if (status != RAD_OK) return status;
    }
    kv->key = key_of(p, q, q->num_tokens);
    if (!kv->row || committed < kv->committed_len) {
        replay_differ(p, op, "%llu tokens are computed, %u were cached",
                      (unsigned long long)committed, kv->committed_len);
        return RAD_OK;
    }
    const uint32_t have = (kv->allocated_len + ps - 1) / ps;
    const uint32_t need = ((uint32_t)committed + ps - 1) / ps;
    if (need > have) record_cache_make_room(&p->c, need - have);
    if (need > have && rad_kv_alloc(p->c.alloc, p->pages, need - have) != RAD_OK) {
        replay_differ(p, op, "no %u pages are free here", need - have);
        return RAD_OK;
    }
    rad_slot *row = rad_req_to_token_row(p->c.rows, kv->row);
    for (uint32_t i = kv->allocated_len; i < committed; i++)
        row[i] = i / ps < have ? row[i - 1] + 1
                               : p->pages[i / ps - have] * (rad_slot)ps + (rad_slot)(i % ps);
    kv->committed_len = kv->allocated_len = (uint32_t)committed;
    return RAD_OK;
}

/* What its states have seen. The server has them from a request's first step on; only what may
 * become a snapshot is needed here. */
static void set_states(replay *p, rad_req_kv *kv, const record_op *op, uint64_t state_len,
                       uint64_t spare_len)
{
    if (!p->c.states) return;
    if ((state_len && !kv->state && rad_state_alloc(p->c.states, &kv->state) != RAD_OK) ||
        (spare_len && !kv->spare_state && rad_state_alloc(p->c.states, &kv->spare_state) != RAD_OK))
        replay_differ(p, op, "no state is free here");
    kv->state_len = kv->state ? (uint32_t)RAD_MIN(state_len, kv->committed_len) : 0;
    kv->spare_len = kv->spare_state ? (uint32_t)RAD_MIN(spare_len, kv->committed_len) : 0;
}

static rad_status release_window(replay *p, live *q, const record_op *op, rad_error *err)
{
    rad_status status = commit(p, q, op, op->field[1], err);
    if (status != RAD_OK) return status;
    replay_compare_status(p, op,
                          rad_cache_release_window(p->c.cache, &q->kv,
                                                   (uint32_t)RAD_MIN(op->field[2], UINT32_MAX),
                                                   NULL),
                          op->field[3]);
    return RAD_OK;
}

static void put_state(replay *p, const live *q, const record_op *op)
{
    rad_state state = 0;
    if (p->c.states && rad_state_alloc(p->c.states, &state) != RAD_OK) {
        replay_differ(p, op, "no state is free here");
        return;
    }
    const rad_status status =
        rad_cache_put_state(p->c.cache, q->kv.lock.node,
                            (uint32_t)RAD_MIN(op->field[1], (uint64_t)INT32_MAX), state, NULL);
    replay_compare_status(p, op, status, op->field[2]);
    if (status != RAD_OK && state) (void)rad_state_free(p->c.states, state);
}

static rad_status unfinished(replay *p, live *q, const record_op *op, rad_error *err)
{
    rad_status status = commit(p, q, op, op->field[1], err);
    if (status != RAD_OK) return status;
    set_states(p, &q->kv, op, op->field[5], op->field[6]);
    replay_compare_status(
        p, op, rad_cache_unfinished_req(p->c.cache, &q->kv, op->field[2] != 0, NULL), op->field[3]);
    replay_compare(p, op, "tokens that are the tree's", q->kv.protected_len, op->field[4]);
    return RAD_OK;
}

static rad_status finished(replay *p, live *q, const record_op *op, rad_error *err)
{
    rad_status status = commit(p, q, op, op->field[1], err);
    if (status != RAD_OK) return status;
    set_states(p, &q->kv, op, op->field[4], op->field[5]);
    replay_compare_status(
        p, op, rad_cache_finished_req(p->c.cache, &q->kv, op->field[2] != 0, NULL), op->field[3]);
    if (q->kv.row || q->kv.lock.held) put_back(p, q);
    return RAD_OK;
}

static uint64_t ns_of(uint64_t us)
{
    return RAD_MIN(us, UINT64_MAX / 2000) * 1000;
}

static void retain(replay *p, const live *q, const record_op *op)
{
    const uint32_t tokens = (uint32_t)RAD_MIN(op->field[1], (uint64_t)q->num_tokens);
    rad_key key = key_of(p, q, tokens);
    key.session = 0;
    if (op->kind == RECORD_PIN)
        (void)rad_cache_pin_prefix(p->c.cache, &key, ns_of(op->field[2]), NULL);
    else
        (void)rad_cache_retain_prefix(p->c.cache, &key, (int32_t)record_unzigzag(op->field[2]),
                                      ns_of(op->field[3]), NULL);
}

static void leave(replay *p, live **at, const record_op *op)
{
    replay_result *r = p->result;
    live *q = *at;
    r->finished += op->field[1] == 1 || op->field[1] == 2;
    r->aborted += op->field[1] == 3;
    r->failed += op->field[1] == 4;
    if (q->kv.row || q->kv.lock.held) {
        replay_differ(p, op, "request %llu has ended and holds pages", (unsigned long long)q->id);
        put_back(p, q);
    }
    forget(p, at);
}

static rad_status of_request(replay *p, const record_op *op, rad_error *err)
{
    live **at = find(p, op->field[0]), *q = *at;
    if (!q) {
        p->result->unknown++;
        return RAD_OK;
    }
    switch (op->kind) {
    case RECORD_GROW: return know(p, q, op, op->field[1], err);
    case RECORD_MATCH: return match(p, q, op, err);
    case RECORD_BEGIN: begin(p, q, op); return RAD_OK;
    case RECORD_DROP: put_back(p, q); return RAD_OK;
    case RECORD_ADMIT: admit(p, q, op); return RAD_OK;
    case RECORD_UNFINISHED: return unfinished(p, q, op, err);
    case RECORD_FINISHED: return finished(p, q, op, err);
    case RECORD_WINDOW: return release_window(p, q, op, err);
    case RECORD_PUT_STATE: put_state(p, q, op); return RAD_OK;
    case RECORD_PIN:
    case RECORD_RETAIN: retain(p, q, op); return RAD_OK;
    case RECORD_LEAVE: leave(p, at, op); return RAD_OK;
    case RECORD_LOAD: {
        const uint32_t asked = (uint32_t)RAD_MIN(op->field[1], (uint64_t)q->num_tokens);
        const rad_key key = key_of(p, q, asked);
        q->kv.key = key_of(p, q, q->num_tokens);
        replay_load_back(p, q, op, &key);
        return RAD_OK;
    }
    case RECORD_LOADED:
        replay_compare_status(p, op, rad_hicache_load_status(p->c.tiers, &q->kv), op->field[1]);
        return RAD_OK;
    default: return RAD_OK;
    }
}

/* ---- operations ---- */

/* Prompt and cached tokens are counted as requests are admitted. */
static void count_ours(replay *p)
{
    record_counters *ours = &p->result->ours;
    rad_cache_stats stats;
    rad_cache_get_stats(p->c.cache, &stats);
    ours->evicted_tokens = stats.evicted_tokens;
    ours->inserted_tokens = stats.inserted_tokens;
    ours->num_nodes = stats.num_nodes;
    ours->splits = stats.splits;
    ours->merges = stats.merges;
    if (p->c.tiers) replay_count_tiers(p);
}

static void compare_counters(replay *p, const record_op *op)
{
    replay_result *r = p->result;
    count_ours(p);
    r->comparisons++;
    r->recorded.prompt_tokens = op->field[0];
    r->recorded.cached_tokens = op->field[1];
    r->recorded.evicted_tokens = op->field[2];
    r->recorded.inserted_tokens = op->field[3];
    r->recorded.num_nodes = op->field[4];
    r->recorded.splits = op->field[5];
    r->recorded.merges = op->field[6];
    replay_compare(p, op, "prompt tokens", r->ours.prompt_tokens, r->recorded.prompt_tokens);
    replay_compare(p, op, "cached tokens", r->ours.cached_tokens, r->recorded.cached_tokens);
    replay_compare(p, op, "evicted tokens", r->ours.evicted_tokens, r->recorded.evicted_tokens);
    replay_compare(p, op, "inserted tokens", r->ours.inserted_tokens, r->recorded.inserted_tokens);
    replay_compare(p, op, "nodes", r->ours.num_nodes, r->recorded.num_nodes);
    replay_compare(p, op, "splits", r->ours.splits, r->recorded.splits);
    replay_compare(p, op, "merges", r->ours.merges, r->recorded.merges);
}

static void open_session(replay *p, const record_op *op)
{
    rad_session session = 0;
    const rad_status status = rad_session_open(p->c.cache, &session);
    replay_compare_status(p, op, status, op->field[1]);
    if (status == RAD_OK) replay_compare(p, op, "the session's name", session, op->field[0]);
}

/* Of a prefix that no request has: as far as one could have it. */
static rad_status pin_key(replay *p, const record_op *op, rad_error *err)
{
    const uint32_t ps = p->page_size, count = RAD_MIN(op->num_pages, p->c.room / ps);
    uint32_t *chain = rad_alloc(&p->env, op->num_pages * sizeof *chain);
    rad_token *tokens = rad_alloc(&p->env, (size_t)count * ps * sizeof *tokens);
    rad_status status = RAD_OK;
    if (chain && tokens) {
        record_chain(p->reader, op->page, chain);
        for (uint32_t i = 0; i < count * ps; i++)
            tokens[i] = (rad_token)chain[i / ps];
        const rad_key key = {.tokens = tokens,
                             .num_tokens = count * ps,
                             .extra_key = name_of(p, (uint32_t)op->field[1])};
        (void)rad_cache_pin_prefix(p->c.cache, &key, ns_of(op->field[2]), NULL);
    } else if (count) {
        status = rad_fail(err, RAD_E_NOMEM, "no memory for a pinned prefix");
    }
    rad_free(&p->env, chain, op->num_pages * sizeof *chain);
    rad_free(&p->env, tokens, (size_t)count * ps * sizeof *tokens);
    return status;
}

static rad_status play_one(replay *p, const record_op *op, rad_error *err)
{
    uint64_t evicted;
    p->c.now_us = op->time_us;
    if (replay_of_tiers(p, op)) return RAD_OK;
    switch (op->kind) {
    case RECORD_ARRIVE: return arrive(p, op, err);
    case RECORD_EVICT:
        (void)rad_cache_evict(p->c.cache, op->field[0], &evicted, NULL);
        replay_compare(p, op, "tokens evicted", evicted, op->field[1]);
        return RAD_OK;
    case RECORD_EVICT_WINDOW:
        (void)rad_cache_evict_window(p->c.cache, op->field[0], &evicted);
        replay_compare(p, op, "window tokens evicted", evicted, op->field[1]);
        return RAD_OK;
    case RECORD_EVICT_STATE:
        (void)rad_cache_evict_state(p->c.cache, op->field[0], &evicted);
        replay_compare(p, op, "snapshots evicted", evicted, op->field[1]);
        return RAD_OK;
    case RECORD_RELEASE_IDLE:
        replay_compare(
            p, op, "sessions released",
            rad_session_release_idle(p->c.cache, (uint32_t)RAD_MIN(op->field[0], UINT32_MAX)),
            op->field[1]);
        return RAD_OK;
    case RECORD_OPEN: open_session(p, op); return RAD_OK;
    case RECORD_CLOSE:
        replay_compare_status(p, op, rad_session_close(p->c.cache, (rad_session)op->field[0]),
                              op->field[1]);
        return RAD_OK;
    case RECORD_PIN_KEY: return pin_key(p, op, err);
    case RECORD_RESET: return rad_cache_reset(p->c.cache);
    case RECORD_COUNTERS: compare_counters(p, op); return RAD_OK;
    case RECORD_INEXACT:
        if (!p->result->inexact) p->result->inexact = (record_inexact)RAD_MIN(op->field[0], 255u);
        return RAD_OK;
    case RECORD_NAMESPACE:
    case RECORD_PRICES:
    case RECORD_LOST: return RAD_OK;
    default: return of_request(p, op, err);
    }
}

static rad_status play(replay *p, const record_op *op, rad_error *err)
{
    const rad_status status = play_one(p, op, err);
    replay_end_of_call(p, op);
    return status;
}

bool replay_is_exact(const replay_result *r)
{
    return !r->differences && !r->unknown && !r->lost && !r->inexact && r->comparisons;
}

rad_status replay_record(const rad_env *env, const void *bytes, uint64_t size,
                         replay_result *result, rad_error *err)
{
    replay p = {.env = rad_env_or_default(env), .result = result};
    *result = (replay_result){0};
    rad_status status = record_cache_init(&p.c, &p.env, bytes, size, err);
    if (status == RAD_OK) status = record_open(&p.env, bytes, size, &p.reader, err);
    if (status != RAD_OK) {
        replay_fini(&p);
        return status;
    }
    const record_head *h = record_get_head(p.reader);
    result->head = *h;
    p.page_size = (uint32_t)h->page_size;
    p.pages = rad_alloc(&p.env, rad_mul(p.c.room, sizeof *p.pages));
    if (!p.pages) status = rad_fail(err, RAD_E_NOMEM, "no memory for a request");
    record_op op;
    while (status == RAD_OK && (status = record_next(p.reader, &op, err)) == RAD_OK) {
        status = play(&p, &op, err);
        result->duration_us = op.time_us;
    }
    if (status == RAD_NONE) {
        count_ours(&p); /* of a record that was cut, more than was compared last */
        status = rad_cache_check(p.c.cache, err);
    }
    result->operations = record_num_ops(p.reader);
    result->lost = record_get_lost(p.reader);
    result->end = record_get_end(p.reader);
    replay_fini(&p);
    return status;
}
