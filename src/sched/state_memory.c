/* state_memory.c - see the header.
 *
 * Invariant between two steps: a request that has computed anything holds a working copy, and that
 * stands behind its last computed token. A spare that stands nowhere (spare_len is 0) is a slot
 * that was written by nobody, or by a step that failed. */
#include "sched/state_memory.h"

#include "mem/state_pool.h"

enum { LEAST_INTERVAL = 256, MOST_INTERVAL = 4096, SHARE_OF_PROMPT = 4 };
enum { MOST_READY = 16 /* drafts that a step has in most cases; the rest it makes ready itself */ };

rad_status state_memory_init(state_memory *m, const rad_env *env, runner *model,
                             uint32_t num_states, uint32_t page_size, rad_error *err)
{
    *m = (state_memory){.page_size = page_size, .keeps = true, .turn_token = -1};
    if (!model->info.state_bytes) return RAD_OK;
    if (num_states < STATE_LEAST)
        return rad_fail(err, RAD_E_INVAL,
                        "a model with recurrent layers needs %d states at least, not %u",
                        STATE_LEAST, num_states);
    m->interval = state_default_interval(&model->info);
    return runner_create_state_pool(model, env, num_states, &m->pool, err);
}

void state_memory_fini(state_memory *m)
{
    rad_state_pool_destroy(m->pool);
    *m = (state_memory){0};
}

uint32_t state_default_interval(const runner_info *model)
{
    size_t token_bytes = runner_token_bytes(model, RUNNER_ALL_LAYERS);
    size_t tokens = model->state_bytes / RAD_MAX(token_bytes, (size_t)1);
    uint32_t interval = LEAST_INTERVAL;
    while (interval < tokens && interval < MOST_INTERVAL)
        interval *= 2;
    return interval;
}

uint64_t state_default_count(uint32_t interval, uint64_t max_requests, uint64_t max_total_tokens)
{
    return STATE_LEAST + 3 * max_requests + max_total_tokens / RAD_MAX(interval, 1u);
}

uint64_t state_room(const state_memory *m, const rad_cache *cache)
{
    if (!m->pool) return UINT64_MAX / 2;
    return rad_state_available(m->pool) + rad_cache_state_evictable_size(cache);
}

bool state_take(const state_memory *m, rad_cache *cache, rad_state *out)
{
    if (rad_state_alloc(m->pool, out) == RAD_OK) return true;
    uint64_t evicted;
    (void)rad_cache_evict_state(cache, 1, &evicted);
    CACHE_TAP(&m->tap, TAP_EVICT_STATE, .asked = 1, .answer = evicted);
    return rad_state_alloc(m->pool, out) == RAD_OK;
}

bool state_take_spare(const state_memory *m, rad_cache *cache, rad_state *out)
{
    if (!rad_state_available(m->pool) && !rad_cache_state_evictable_size(cache)) return false;
    return state_take(m, cache, out);
}

uint32_t state_held(const rad_req_kv *kv)
{
    return (kv->state != 0) + (kv->spare_state != 0);
}

uint32_t state_to_come(const state_memory *m, const rad_req_kv *kv)
{
    if (!m->pool) return 0;
    return !kv->state + (m->keeps && m->page_size > 1 && !kv->spare_state);
}

void state_expect_drafts(const state_memory *m, uint32_t rows)
{
    if (!m->pool || !rows) return;
    const uint32_t share = rad_state_pool_num_states(m->pool) / STATE_DRAFTS_SHARE;
    state_pool_make_ready(m->pool, RAD_MIN(RAD_MIN(rows, share), (uint32_t)MOST_READY));
}

bool state_take_draft(const state_memory *m, rad_cache *cache, rad_state *out)
{
    return state_pool_alloc_ready(m->pool, out) == RAD_OK || state_take_spare(m, cache, out);
}

/* ---- a step ---- */

void state_begin_step(const state_memory *m, rad_cache *cache, rad_req_kv *kv, rad_state from,
                      bool turns, rad_state *in, rad_state *out)
{
    const uint32_t prefix = kv->committed_len;
    const bool own = prefix && kv->state_len == prefix;
    const bool loaded = prefix && kv->spare_len == prefix; /* beside its match's */
    *in = !prefix ? 0 : own ? kv->state : loaded ? kv->spare_state : from;
    *out = kv->state;
    RAD_ASSERT(kv->state && (!prefix || *in));
    if (!turns || !own || !m->keeps || prefix % m->page_size) return;
    if (!kv->spare_state && !state_take_spare(m, cache, &kv->spare_state)) return;
    kv->spare_len = 0; /* it is written now */
    *out = kv->spare_state;
}

uint32_t state_spare_point(const state_memory *m, const req *r, uint32_t seq_len)
{
    const uint32_t at = seq_len - seq_len % m->page_size;
    if (!m->keeps || m->page_size == 1 || seq_len < req_num_fill(r) || r->kv.spare_len) return 0;
    return at > r->kv.committed_len && at < seq_len ? at : 0;
}

bool state_wants_cut(const state_memory *m, const req *r, uint64_t room)
{
    return m->pool && r->state_from && !r->kv.spare_state && !room &&
           state_spare_point(m, r, req_num_fill(r));
}

void state_end_step(const state_memory *m, rad_req_kv *kv, rad_state out, uint32_t seq_len)
{
    if (!m->pool) return;
    if (out != kv->state) {
        kv->spare_state = kv->state;
        kv->spare_len = kv->state_len;
        kv->state = out;
    }
    kv->state_len = seq_len;
}

static void swap_states(rad_state *a, rad_state *b)
{
    const rad_state state = *a;
    *a = *b;
    *b = state;
}

void state_keep(const state_memory *m, rad_req_kv *kv, uint32_t prefix, uint32_t kept,
                forward_state_save *saves, uint32_t num_saves)
{
    const uint32_t end = prefix + kept, page_end = end - end % m->page_size;
    if (!m->pool) return;
    RAD_ASSERT(kept >= 1 && kept <= num_saves + 1 && kv->state_len == prefix + num_saves + 1);
    if (kept <= num_saves) swap_states(&kv->state, &saves[kept - 1].state);
    kv->state_len = end;
    if (!m->keeps || page_end <= prefix || page_end == end) return;
    swap_states(&kv->spare_state, &saves[page_end - prefix - 1].state);
    kv->spare_len = page_end;
}

/* ---- where ---- */

/* The last message that the prompt holds, and the opening of the one that is to be generated: both
 * begin with the token that each message begins with. */
void state_find_turns(const state_memory *m, req *r)
{
    r->turn_start = r->message_start = 0;
    if (!m->pool || m->turn_token < 0) return;
    for (uint32_t i = r->num_input; i-- > 0 && !r->message_start;) {
        if (r->fill_ids[i] != m->turn_token) continue;
        *(r->turn_start ? &r->message_start : &r->turn_start) = i;
    }
}

typedef struct point_list {
    uint32_t *points;
    uint32_t count;
    uint32_t page_size, after, upto;
} point_list;

/* In its place, unless it is there already. */
static void add_point(point_list *l, uint32_t at)
{
    at -= at % l->page_size;
    if (at <= l->after || at > l->upto || l->count == STATE_MOST_POINTS) return;
    uint32_t i = l->count;
    while (i && l->points[i - 1] > at)
        i--;
    if (i && l->points[i - 1] == at) return;
    memmove(l->points + i + 1, l->points + i, (l->count++ - i) * sizeof *l->points);
    l->points[i] = at;
}

/* Whole pages; and so many that one long prompt does not push all others' snapshots out. */
static uint32_t interval_for(const state_memory *m, uint32_t num_tokens)
{
    const uint64_t page = m->page_size;
    uint64_t interval = (m->interval + page - 1) / page * page,
             most = rad_state_pool_num_states(m->pool) / SHARE_OF_PROMPT;
    while (num_tokens / interval > most)
        interval *= 2;
    return (uint32_t)RAD_MIN(interval, (uint64_t)UINT32_MAX);
}

/* Every so many tokens; but not where another one follows soon. */
static void add_intervals(const state_memory *m, point_list *l, uint32_t num_tokens)
{
    uint32_t interval = interval_for(m, num_tokens), named = l->count, near = 0;
    uint32_t others[STATE_MOST_POINTS];
    memcpy(others, l->points, named * sizeof *others);
    for (uint64_t at = l->after - l->after % interval + (uint64_t)interval; at <= l->upto;
         at += interval) {
        while (near < named && others[near] < at)
            near++;
        if (near == named || others[near] >= at + interval / 2) add_point(l, (uint32_t)at);
    }
}

uint32_t state_points(const state_memory *m, const req *r, const uint32_t *forks,
                      uint32_t num_forks, uint32_t prefix, uint32_t seq_len, uint32_t *points)
{
    if (!m->pool || !m->keeps) return 0;
    const uint32_t most = req_num_fill(r) - 1; /* no match covers more */
    point_list list = {.points = points,
                       .page_size = m->page_size,
                       .after = prefix,
                       .upto = RAD_MIN(seq_len, most)};
    if (r->turn_start) add_point(&list, r->turn_start);
    if (!r->turn_start || most - r->turn_start > STATE_NEAR) add_point(&list, most);
    add_point(&list, r->message_start);
    const uint32_t near = r->match_tokens + STATE_NEAR;
    if (r->seen_tokens >= near) add_point(&list, r->seen_tokens);
    for (uint32_t i = 0; i < num_forks; i++)
        if (forks[i] >= near) add_point(&list, forks[i]);
    add_intervals(m, &list, most);
    return list.count;
}

rad_status state_check(const state_memory *m, const rad_req_kv *kv, rad_error *err)
{
    if (!m->pool) return RAD_OK;
    if (!kv->state || kv->state_len != kv->committed_len || kv->spare_state == kv->state ||
        (!kv->spare_state && kv->spare_len) || kv->spare_len % m->page_size ||
        kv->spare_len > kv->state_len)
        return rad_fail(err, RAD_E_CORRUPT,
                        "row %u with %u tokens works with state %d behind %u, spare %d behind %u",
                        kv->row, kv->committed_len, kv->state, kv->state_len, kv->spare_state,
                        kv->spare_len);
    return RAD_OK;
}
