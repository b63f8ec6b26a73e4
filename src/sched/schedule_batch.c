/* schedule_batch.c - from a plan to what the runner wants.
 *
 * Invariant after prepare: for every request, row[0..seq_len) holds a slot for each
 * position, allocated_len == seq_len, and committed_len is still what it was before:
 * it advances only when the forward pass has succeeded (promise P3).
 *
 * Slots mostly come in ascending runs, so a request that decodes among n others gets one slot
 * of every n. When n is a power of two, its tokens' K/V compete for the same few places of the
 * caches: 64 tokens, that is, for 16 ways. So the requests take turns (page size 1; longer
 * pages have neighbours enough):
 *
 *     n = 4, slots of steps 0, 1, 2      every 4th slot | 0 1 2 3 | 0 1 2 3 | 0 1 2 3 |
 *                                        in turn        | 0 1 2 3 | 3 0 1 2 | 2 3 0 1 |
 *
 * An odd distance meets all places of a power of two. */
#include "sched/schedule_batch.h"

#define FOR_EACH_ARRAY(X)                                                                          \
    X(reqs, max_reqs)                                                                              \
    X(extend_prefix_lens, max_reqs)                                                                \
    X(extend_seq_lens, max_reqs)                                                                   \
    X(extend_start_loc, max_reqs)                                                                  \
    X(seq_lens, max_reqs)                                                                          \
    X(req_pool_indices, max_reqs)                                                                  \
    X(last_loc, max_reqs)                                                                          \
    X(num_drafts, max_reqs)                                                                        \
    X(logits_reqs, max_logits)                                                                     \
    X(logits_indices, max_logits)                                                                  \
    X(hidden, max_reqs)                                                                            \
    X(input_ids, max_tokens)                                                                       \
    X(positions, max_tokens)                                                                       \
    X(out_cache_loc, max_tokens)                                                                   \
    X(window_out_cache_loc, max_tokens)                                                            \
    X(state_in, max_reqs)                                                                          \
    X(state_out, max_reqs)                                                                         \
    X(state_saves, max_saves)                                                                      \
    X(draft_states, max_logits)

rad_status schedule_batch_init(schedule_batch *b, const rad_env *env, uint32_t max_reqs,
                               uint32_t max_tokens, uint32_t max_logits, uint32_t max_saves)
{
    *b = (schedule_batch){.max_reqs = max_reqs,
                          .max_tokens = max_tokens,
                          .max_logits = max_logits,
                          .max_saves = RAD_MAX(max_saves, 1u)};
    bool ok = true;
#define ALLOC(array, count)                                                                        \
    b->array = rad_alloc(env, rad_mul(b->count, sizeof *b->array));                                \
    ok = ok && b->array;
    FOR_EACH_ARRAY(ALLOC)
#undef ALLOC
    return ok ? RAD_OK : RAD_E_NOMEM;
}

void schedule_batch_fini(schedule_batch *b, const rad_env *env)
{
#define FREE(array, count) rad_free(env, b->array, b->count * sizeof *b->array);
    FOR_EACH_ARRAY(FREE)
#undef FREE
    memset(b, 0, sizeof *b);
}

void schedule_batch_clear(schedule_batch *b)
{
    b->num_reqs = b->num_tokens = b->num_logits = b->num_hidden = 0;
    b->num_pages = 0;
    b->num_states = b->num_saves = 0;
}

static void add_logits(schedule_batch *b, uint32_t i, uint32_t token)
{
    RAD_ASSERT(b->num_logits < b->max_logits);
    b->logits_reqs[b->num_logits] = i;
    b->logits_indices[b->num_logits++] = token;
}

/* Rows that the request wants of its prompt. */
static void add_rows(schedule_batch *b, uint32_t i)
{
    const req *r = b->reqs[i];
    const uint32_t prefix = b->extend_prefix_lens[i];
    const uint32_t count = req_rows_within(r, prefix, b->seq_lens[i]);
    if (!count) return;
    RAD_ASSERT(r->next_row >= prefix); /* no match went past it */
    const uint32_t first = b->extend_start_loc[i] + r->next_row - prefix;
    if (r->pooling)
        b->hidden[b->num_hidden++] = (forward_pool){first, count, r->hidden_sum};
    else
        for (uint32_t t = 0; t < count; t++)
            add_logits(b, i, first + t);
}

void schedule_batch_add(schedule_batch *b, req *r, uint32_t num_tokens, uint32_t page_size)
{
    const uint32_t drafts = r->draft.count, num_rows = num_tokens + drafts;
    const uint32_t end = r->kv.committed_len + num_tokens;
    RAD_ASSERT(num_tokens >= 1 && b->num_reqs < b->max_reqs);
    RAD_ASSERT(num_rows <= b->max_tokens - b->num_tokens);
    RAD_ASSERT(r->kv.allocated_len == r->kv.committed_len);
    RAD_ASSERT(num_tokens <= req_num_fill(r) - r->kv.committed_len);
    RAD_ASSERT(!drafts || (end == req_num_fill(r) && end + drafts <= r->fill_capacity));

    uint32_t i = b->num_reqs++;
    b->reqs[i] = r;
    b->extend_prefix_lens[i] = r->kv.committed_len;
    b->extend_seq_lens[i] = num_rows;
    b->extend_start_loc[i] = b->num_tokens;
    b->seq_lens[i] = end + drafts;
    b->num_drafts[i] = drafts;
    b->req_pool_indices[i] = r->kv.row;
    b->num_tokens += num_rows;
    b->num_pages += pages_for(r->kv.allocated_len, num_rows, page_size);
    b->num_states += !r->kv.state + drafts;
    add_rows(b, i);
    if (end < req_num_fill(r) || r->num_output >= r->max_new_tokens) return;
    for (uint32_t row = b->num_tokens - 1 - drafts; row < b->num_tokens; row++)
        add_logits(b, i, row);
}

/* Without a window side that one has no end. */
static kv_pages free_pages(const schedule_pools *pools)
{
    const rad_kv_allocator *kv = pools->kv_allocator;
    kv_pages pages = {.full = rad_kv_available_pages(kv), .window = UINT64_MAX / 2};
    if (pools->window.tokens) pages.window = rad_kv_window_available_pages(kv);
    return pages;
}

kv_pages kv_room(const schedule_pools *pools)
{
    const rad_cache *cache = pools->tree_cache;
    kv_pages room = free_pages(pools);
    room.full += rad_cache_evictable_size(cache) / pools->page_size;
    if (pools->window.tokens)
        room.window += rad_cache_window_evictable_size(cache) / pools->page_size;
    room.states = state_room(&pools->states, cache);
    return room;
}

bool evict_until_free(const schedule_pools *pools, uint64_t pages, rad_error *err)
{
    rad_cache *cache = pools->tree_cache;
    uint64_t page_size = pools->page_size;
    kv_pages have = free_pages(pools);
    rad_status status = RAD_OK;
    if (have.full < pages) {
        const uint64_t asked = (pages - have.full) * page_size;
        uint64_t evicted;
        status = rad_cache_evict(cache, asked, &evicted, err);
        CACHE_TAP(&pools->tap, TAP_EVICT, .asked = asked, .answer = evicted);
        have = free_pages(pools); /* pages of the window side went with those */
    }
    if (have.window < pages) {
        const uint64_t asked = (pages - have.window) * page_size;
        uint64_t evicted;
        (void)rad_cache_evict_window(cache, asked, &evicted);
        CACHE_TAP(&pools->tap, TAP_EVICT_WINDOW, .asked = asked, .answer = evicted);
        have = free_pages(pools);
    }
    if (have.full >= pages && have.window >= pages) return true;
    if (status >= 0)
        rad_fail(err, RAD_FULL, "%llu pages are wanted, %llu%s are free after evicting",
                 (unsigned long long)pages, (unsigned long long)RAD_MIN(have.full, have.window),
                 have.window < have.full ? " of the window side" : "");
    return false;
}

forward_batch schedule_batch_forward(const schedule_batch *b, const schedule_pools *pools,
                                     uint32_t num_reqs, uint32_t num_tokens)
{
    return (forward_batch){
        .num_reqs = num_reqs,
        .num_tokens = num_tokens,
        .input_ids = b->input_ids,
        .positions = b->positions,
        .out_cache_loc = b->out_cache_loc,
        .req_pool_indices = b->req_pool_indices,
        .seq_lens = b->seq_lens,
        .extend_prefix_lens = b->extend_prefix_lens,
        .extend_seq_lens = b->extend_seq_lens,
        .extend_start_loc = b->extend_start_loc,
        .num_logits = b->num_logits,
        .logits_indices = b->logits_indices,
        .num_pools = b->num_hidden,
        .pools = b->hidden,
        .req_to_token_pool = pools->req_to_token_pool,
        .token_to_kv_pool = pools->token_to_kv_pool,
        .window_rows = pools->window.rows,
        .window_kv_pool = pools->window.kv_pool,
        .window_out_cache_loc = pools->window.tokens ? b->window_out_cache_loc : NULL,
        .state_pool = pools->states.pool,
        .state_in = pools->states.pool ? b->state_in : NULL,
        .state_out = pools->states.pool ? b->state_out : NULL,
        .num_state_saves = b->num_saves,
        .state_saves = b->num_saves ? b->state_saves : NULL,
    };
}

static void reverse(rad_slot *begin, rad_slot *end)
{
    for (; begin < end && begin < --end; begin++) {
        rad_slot slot = *begin;
        *begin = *end;
        *end = slot;
    }
}

/* slots[i] becomes what slots[(i + by) % count] was. */
static void rotate(rad_slot *slots, uint32_t count, uint32_t by)
{
    reverse(slots, slots + by);
    reverse(slots + by, slots + count);
    reverse(slots, slots + count);
}

/* Gives the first requests of the step, those with one new token, each other's slots. One step
 * takes as many slots as the next, mostly: an even number is made odd by going one further. */
static void take_turns(schedule_batch *b)
{
    uint32_t n = 0;
    while (n < b->num_reqs && b->extend_seq_lens[n] == 1)
        n++;
    if (n < 2) return;
    if (b->num_tokens % 2 == 0) b->turn++;
    rotate(b->out_cache_loc, n, b->turn % n);
}

static void drop_draft_states(schedule_batch *b, const schedule_pools *pools)
{
    while (b->num_draft_states)
        (void)rad_state_free(pools->states.pool, b->draft_states[--b->num_draft_states]);
}

/* A working copy for each request that has none yet, and what stands behind each token of a draft's
 * step but the last, where the working copy will: which of them it goes on from is not known. */
static rad_status take_working_copies(schedule_batch *b, const schedule_pools *pools,
                                      rad_error *err)
{
    for (uint32_t i = 0; pools->states.pool && i < b->num_reqs; i++) {
        rad_req_kv *kv = &b->reqs[i]->kv;
        bool ok = kv->state || state_take(&pools->states, pools->tree_cache, &kv->state);
        for (uint32_t k = 0; ok && k < b->num_drafts[i]; k++) {
            ok = state_take_draft(&pools->states, pools->tree_cache,
                                  &b->draft_states[b->num_draft_states]);
            b->num_draft_states += ok;
        }
        if (ok) continue;
        drop_draft_states(b, pools);
        return rad_fail(err, RAD_FULL, "none of %u states is free after evicting",
                        rad_state_pool_num_states(pools->states.pool));
    }
    return RAD_OK;
}

static void save_drafts(schedule_batch *b, uint32_t i, uint32_t *next)
{
    for (uint32_t k = 0; k < b->num_drafts[i]; k++) {
        RAD_ASSERT(b->num_saves < b->max_saves && *next < b->num_draft_states);
        b->state_saves[b->num_saves++] =
            (forward_state_save){.req = i, .tokens = k + 1, .state = b->draft_states[(*next)++]};
    }
}

/* The prompt's last whole page leaves its state in the spare, unless a snapshot is there anyway:
 * the answer may end before the next page. */
static void take_spare(schedule_batch *b, schedule_pools *pools, uint32_t i)
{
    rad_req_kv *kv = &b->reqs[i]->kv;
    const uint32_t at = state_spare_point(&pools->states, b->reqs[i], b->seq_lens[i]);
    const uint32_t tokens = at - RAD_MIN(at, b->extend_prefix_lens[i]);
    const forward_state_save *last = b->num_saves ? &b->state_saves[b->num_saves - 1] : NULL;
    if (!at || b->num_saves == b->max_saves || (last && last->req == i && last->tokens >= tokens))
        return;
    if (!kv->spare_state && !state_take_spare(&pools->states, pools->tree_cache, &kv->spare_state))
        return;
    b->state_saves[b->num_saves++] =
        (forward_state_save){.req = i, .tokens = tokens, .state = kv->spare_state};
}

/* Those that can be had of the snapshots that a prompt's chunk should leave; the deepest first,
 * since what follows this prompt goes on behind it. */
static void take_saves(schedule_batch *b, schedule_pools *pools, uint32_t i)
{
    const req *r = b->reqs[i];
    uint32_t points[STATE_MOST_POINTS], prefix = b->extend_prefix_lens[i];
    uint32_t count =
        state_points(&pools->states, r, r->forks, r->num_forks, prefix, b->seq_lens[i], points);
    uint32_t skip = count - RAD_MIN(count, b->max_saves - b->num_saves), first = b->num_saves;
    rad_state states[STATE_MOST_POINTS];
    uint32_t at = count;
    while (at > skip && state_take_spare(&pools->states, pools->tree_cache, &states[at - 1]))
        at--;
    pools->states.unsaved += at;
    for (; at < count; at++)
        b->state_saves[b->num_saves++] =
            (forward_state_save){.req = i, .tokens = points[at] - prefix, .state = states[at]};
    RAD_ASSERT(b->num_saves - first <= count);
    take_spare(b, pools, i);
}

/* Whether what r leaves in the tree can be found by others: a streaming session's later turns keep
 * all to themselves. */
static bool leaves_snapshots(const req *r)
{
    return r->state == REQ_PREFILL && !(r->kv.turn && r->kv.published);
}

/* Whether r's working copy stays where it is, as its spare, and the step writes to another. With
 * pages of several tokens: where a page ends, for the tree, which takes whole ones. With pages of
 * one: where a streaming session's later turn begins, which leaves nothing in the tree; so one that
 * takes that turn back, or sends it otherwise, goes on from there. */
static bool turns_over(const schedule_batch *b, const state_memory *m, uint32_t i)
{
    const req *r = b->reqs[i];
    const uint32_t prefix = b->extend_prefix_lens[i], end = b->seq_lens[i];
    if (m->page_size == 1) return r->kv.turn && r->kv.published && prefix == r->match_tokens;
    /* How far a draft goes is not known yet; state_keep takes the spare from further on. */
    const bool last = end == req_num_fill(r) && end / m->page_size == prefix / m->page_size;
    return last || b->num_drafts[i];
}

static void take_states(schedule_batch *b, schedule_pools *pools)
{
    const state_memory *m = &pools->states;
    for (uint32_t i = 0; m->pool && i < b->num_reqs; i++) {
        req *r = b->reqs[i];
        state_begin_step(m, pools->tree_cache, &r->kv, r->state_from, turns_over(b, m, i),
                         &b->state_in[i], &b->state_out[i]);
    }
    uint32_t next = 0;
    for (uint32_t i = 0; m->pool && i < b->num_reqs; i++) {
        save_drafts(b, i, &next);
        if (leaves_snapshots(b->reqs[i])) take_saves(b, pools, i);
    }
    b->num_draft_states = 0;
}

void schedule_batch_drop_saves(schedule_batch *b, const schedule_pools *pools, uint32_t first,
                               uint32_t end)
{
    for (; first < end; first++) {
        forward_state_save *save = &b->state_saves[first];
        const bool is_spare = save->state == b->reqs[save->req]->kv.spare_state;
        if (save->state && !is_spare) (void)rad_state_free(pools->states.pool, save->state);
        save->state = 0;
    }
}

rad_status schedule_batch_prepare_for_extend(schedule_batch *b, schedule_pools *pools,
                                             forward_batch *out, rad_error *err)
{
    for (uint32_t i = 0; i < b->num_reqs; i++) {
        const rad_slot *row = rad_req_to_token_row(pools->req_to_token_pool, b->reqs[i]->kv.row);
        uint32_t prefix = b->extend_prefix_lens[i];
        b->last_loc[i] = prefix ? row[prefix - 1] : -1;
    }
    if (!evict_until_free(pools, b->num_pages, err)) return RAD_FULL;
    rad_status status = take_working_copies(b, pools, err);
    if (status != RAD_OK) return status;
    status = rad_kv_alloc_extend(pools->kv_allocator, b->num_reqs, b->extend_prefix_lens,
                                 b->seq_lens, b->last_loc, b->out_cache_loc, err);
    if (status != RAD_OK) {
        drop_draft_states(b, pools);
        return status;
    }
    if (pools->page_size == 1) take_turns(b);
    take_states(b, pools);

    for (uint32_t i = 0; i < b->num_reqs; i++) {
        req *r = b->reqs[i];
        rad_slot *row = rad_req_to_token_row(pools->req_to_token_pool, r->kv.row);
        uint32_t prefix = b->extend_prefix_lens[i];
        uint32_t start = b->extend_start_loc[i];
        uint32_t count = b->extend_seq_lens[i];
        memcpy(row + prefix, b->out_cache_loc + start, count * sizeof *row);
        window_row_extend(&pools->window, pools->kv_allocator, r->kv.row, row, prefix,
                          b->seq_lens[i], b->window_out_cache_loc + start);
        memcpy(b->input_ids + start, r->fill_ids + prefix, count * sizeof *b->input_ids);
        for (uint32_t t = 0; t < count; t++)
            b->positions[start + t] = prefix + t;
        r->kv.allocated_len = b->seq_lens[i];
    }

    *out = schedule_batch_forward(b, pools, b->num_reqs, b->num_tokens);
    return RAD_OK;
}
