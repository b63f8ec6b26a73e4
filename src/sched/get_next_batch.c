/* get_next_batch.c - plans a step.
 *
 *     | decode: 1 token each, and drafts | chunks of prefills in flight | admitted |
 *       first: they hold most   next: others may be held       what room is left
 *
 * Pages run short in one of two ways. Decoding requests lack one: evict, then retract.
 * Prefills in flight cannot go on because decoding ones took more than was guessed: they
 * wait while something decodes, since that ends; if nothing does, retract as well.
 *
 * Why this always ends: the last running request is never retracted, everything else
 * can then be evicted, and scheduler_add accepts nothing that is larger than the pool.
 * So in every step somebody gets on, and the one with most outputs gets to its end. */
#include "sched/draft_plan.h"
#include "sched/prefill_adder.h"
#include "sched/verify_run.h"

#include <radish/partial_page.h>
#include <radish/session.h>

/* SGLang's constants: the part of what requests may still generate that admission
 * reserves starts high, and falls while no retraction says that it was too low. */
static const double INIT_NEW_TOKEN_RATIO = 0.7;
static const double MIN_NEW_TOKEN_RATIO = 0.7 * 0.14;
static const double ITL_MARGIN = 0.9; /* steps differ from what is expected of them */
enum { RATIO_DECAY_STEPS = 600, RETRACT_DECODE_STEPS = 20, MAX_PREFILL_TOKENS = 16384 };
enum { LEAST_LOGITS = 64 }; /* rows of logits; drafts, and logprobs of prompts, take what others leave */

uint32_t scheduler_max_batch_tokens(const scheduler_params *p, uint32_t context_length)
{
    uint32_t most = p->chunked_prefill_size;
    if (!most) most = RAD_MAX(context_length, (uint32_t)MAX_PREFILL_TOKENS);
    return most + p->max_running_requests + draft_max_rows(p->max_draft_tokens);
}

uint32_t scheduler_max_batch_logits(uint32_t max_running_requests)
{
    return RAD_MAX(max_running_requests, (uint32_t)LEAST_LOGITS);
}

uint32_t scheduler_num_rows(const scheduler_params *p)
{
    return p->max_running_requests + (p->verify_rate > 0) +
           (p->streaming_sessions ? p->max_sessions : 0);
}

/* ---- retraction ---- */

/* Fewest outputs first, among equals the longest input: the least is lost, and most
 * pages come back. */
static bool retract_before(const req *a, const req *b)
{
    if (a->num_output != b->num_output) return a->num_output < b->num_output;
    if (a->num_input != b->num_input) return a->num_input > b->num_input;
    return a->arrival > b->arrival;
}

void scheduler_retract_one(scheduler *s)
{
    req *victim = s->running[0];
    for (uint32_t i = 1; i < s->num_running; i++)
        if (retract_before(s->running[i], victim)) victim = s->running[i];

    req_release_kv(s, victim, true);
    wait_queue_remove(&s->waiting, victim);
    remove_running(s, victim);
    victim->state = REQ_WAITING;
    victim->num_retractions++;
    s->stats.num_retractions++;
    wait_queue_add(&s->waiting, victim);

    uint64_t outputs = 0, limits = 1;
    for (uint32_t i = 0; i < s->num_running; i++) {
        outputs += s->running[i]->num_output + RETRACT_DECODE_STEPS;
        limits += s->running[i]->max_new_tokens;
    }
    double ratio = (double)outputs / (double)limits;
    s->new_token_ratio = RAD_MAX(s->new_token_ratio, RAD_MIN(ratio, 1.0));
}

/* The memory that everything else left is not enough for one request. By construction
 * it is; should it not be, say so, and of which, rather than try for ever. */
static void fail_for_memory(scheduler *s, req *r)
{
    const window_memory *w = &s->pools.window;
    const rad_state_pool *states = s->pools.states.pool;
    const uint32_t tokens = req_num_fill(r);
    const kv_pages room = kv_room(&s->pools);
    if (states && !r->kv.state && room.states < STATE_LEAST)
        rad_fail(&r->error, RAD_E_NOMEM,
                 "the pool of %u recurrent states has none for this request (%u tokens)",
                 rad_state_pool_num_states(states), tokens);
    else if (w->tokens && room.window < room.full)
        rad_fail(&r->error, RAD_E_NOMEM,
                 "window memory of %llu tokens has no room for this request alone (%u tokens)",
                 (unsigned long long)w->num_pages * w->page_size, tokens);
    else
        rad_fail(&r->error, RAD_E_NOMEM,
                 "the KV pool of %llu tokens has no room for this request alone (%u tokens)",
                 (unsigned long long)s->stats.max_total_tokens, tokens);
    finish_req(s, r, REQ_FINISH_ERROR, -1, false);
}

/* ---- decode ---- */

static uint64_t decode_pages(const scheduler *s, uint32_t *num_decodes)
{
    uint64_t pages = 0;
    *num_decodes = 0;
    for (uint32_t i = 0; i < s->num_running; i++) {
        const req *r = s->running[i];
        if (r->state != REQ_DECODE) continue;
        pages += pages_for(r->kv.allocated_len, 1, s->pools.page_size);
        ++*num_decodes;
    }
    return pages;
}

/* Returns true when it had to retract: then nobody is admitted in this step. */
static bool make_room_for_decode(scheduler *s)
{
    bool retracted = false;
    uint32_t num_decodes;
    uint64_t pages = decode_pages(s, &num_decodes);
    if (!num_decodes) return false;

    while (num_decodes && !evict_until_free(&s->pools, pages, NULL)) {
        if (verify_yield(s)) continue;
        if (tiers_wait_for_pages(s)) continue;
        if (s->num_running > 1)
            scheduler_retract_one(s);
        else
            fail_for_memory(s, s->running[0]);
        retracted = true;
        pages = decode_pages(s, &num_decodes);
    }
    if (!retracted) {
        double decay = (INIT_NEW_TOKEN_RATIO - MIN_NEW_TOKEN_RATIO) / RATIO_DECAY_STEPS;
        s->new_token_ratio = RAD_MAX(s->new_token_ratio - decay, MIN_NEW_TOKEN_RATIO);
    }
    return retracted;
}

/* With their drafts, where there is room and nobody was retracted for the lack of it. */
static uint32_t add_decodes(scheduler *s, bool retracted)
{
    uint32_t num_decodes;
    uint64_t pages = decode_pages(s, &num_decodes);
    if (!retracted) draft_plan(s, num_decodes, pages);
    for (uint32_t i = 0; i < s->num_running; i++)
        if (s->running[i]->state == REQ_DECODE)
            schedule_batch_add(&s->batch, s->running[i], 1, s->pools.page_size);
    return s->batch.num_reqs;
}

/* Decoding tokens count against the chunk, but half of it is always for prompts. */
static uint32_t prompt_budget(const scheduler *s, uint32_t num_decodes)
{
    uint32_t chunk = s->params.chunked_prefill_size;
    if (!chunk) return MAX_PREFILL_TOKENS;
    uint32_t left = chunk > num_decodes ? chunk - num_decodes : 0;
    return RAD_MAX(left, (chunk + 1) / 2);
}

/* ---- admission ---- */

/* Nobody waits for pages of a request that is only computed again, nor gets a shorter chunk. */
static void take_from_verifier(scheduler *s, const prefill_adder *adder, const req *r, bool alone)
{
    kv_pages held = verify_held_pages(s);
    if (held.full && prefill_adder_gains(adder, r, alone, held)) verify_yield(s);
}

/* Copies the front of a cached page that begins like the request goes on (radish/partial_page.h):
 * a copy of a few tokens' K/V costs some microseconds, computing them a forward pass's share. Only
 * into a page that this step has not planned with, and one that is free by then: so that eviction
 * goes through the tiers. What a load brought reaches further than any partial page. */
static uint32_t reuse_partial(scheduler *s, const prefill_adder *adder, req *r, const rad_key *key,
                              const rad_match *match)
{
    rad_slot *row = rad_req_to_token_row(s->pools.req_to_token_pool, r->kv.row);
    uint32_t copied = 0, at = match->prefix_tokens;
    if (r->kv.allocated_len != at || prefill_adder_room(adder, r) < s->pools.page_size ||
        !evict_until_free(&s->pools, 1, NULL))
        return 0;
    rad_status status =
        rad_cache_reuse_partial(s->pools.inner_cache, key, match, row + at, &copied);
    if (status < 0)
        rad_log(&s->env, RAD_LOG_WARN, "scheduler: the front of a page could not be copied: %s",
                rad_status_name(status));
    r->kv.committed_len += copied;
    r->kv.allocated_len += copied;
    return copied;
}

/* Finds what the request can go on from, locks it and begins the session's turn: r->kv then has a
 * row, and the prefix in it. RAD_FULL: no row is free, nothing happened. RAD_E_STATE in r->error:
 * its session is closed or busy, and r holds nothing.
 *
 * A streaming session brings its own row along. Whether it will is known only after the match, and
 * the match wants a row for its slots: so one is taken, and given back then. */
static rad_status find_prefix(scheduler *s, req *r, const rad_key *key, rad_match *match)
{
    rad_cache *cache = s->pools.tree_cache;
    rad_row row;
    if (rad_req_to_token_alloc(s->pools.req_to_token_pool, &row) != RAD_OK) return RAD_FULL;
    rad_slot *slots = rad_req_to_token_row(s->pools.req_to_token_pool, row);
    rad_status status = RAD_OK;
    uint32_t prefix;
    do {
        /* A turn leaves the key's last token to be computed: no row that is wanted is before it. */
        r->kv = (rad_req_kv){.key = req_session_key(r, req_most_cached(r) + 1),
                             .priority = r->priority};
        *match = (rad_match){0};
        prefix = 0;
        if (rad_cache_match_prefix(cache, key, slots, match, NULL) == RAD_OK &&
            rad_cache_inc_lock_ref(cache, match->last_node, &r->kv.lock, NULL) == RAD_OK)
            prefix = match->prefix_tokens;
        CACHE_TAP(&s->pools.tap, TAP_MATCH, r, key->num_tokens, .answer = prefix);
        if (r->session) {
            status = rad_session_begin(cache, &r->kv, &r->error);
            CACHE_TAP(&s->pools.tap, TAP_BEGIN, r, .status = status);
        }
        r->state_from = prefix ? match->state : 0;
        r->match_tokens = prefix;
        r->seen_tokens = match->seen_tokens;
    } while (status == RAD_AGAIN);
    if (status < 0 && !r->kv.turn) {
        (void)rad_cache_dec_lock_ref(cache, &r->kv.lock, NULL);
        CACHE_TAP(&s->pools.tap, TAP_DROP, r);
        (void)rad_req_to_token_free(s->pools.req_to_token_pool, row);
        r->kv = (rad_req_kv){0};
        return RAD_E_STATE;
    }
    if (status < 0) s->stats.kv_errors++; /* begun all the same */
    r->kv.key = req_session_key(r, req_num_fill(r));
    if (r->kv.row) {
        (void)rad_req_to_token_free(s->pools.req_to_token_pool, row);
    } else {
        r->kv.row = row;
        r->kv.protected_len = r->kv.committed_len = r->kv.allocated_len = prefix;
    }
    window_row_changed(&s->pools.window, r->kv.row, 0);
    return RAD_OK;
}

/* Matches, locks, and adds to the step; or leaves everything as it was. True also when the request
 * was ended: then there is a next one. */
static bool admit(scheduler *s, prefill_adder *adder, req *r)
{
    rad_key key = req_session_key(r, req_most_cached(r));
    rad_match match;
    if (!rad_req_to_token_available(s->pools.req_to_token_pool)) return false;
    tiers_end_prefetch(s, r, &key);
    rad_status status = find_prefix(s, r, &key, &match);
    if (status == RAD_E_STATE) finish_req(s, r, REQ_FINISH_ERROR, -1, false);
    if (status != RAD_OK) return status == RAD_E_STATE;
    rad_load_result loaded = {.why = match.host_hit_tokens ? RAD_LOAD_OVER_QUOTA
                                                           : RAD_LOAD_NOTHING};
    bool alone = s->num_running == 0;
    take_from_verifier(s, adder, r, alone);
    if (alone && match.host_hit_tokens && !prefill_adder_has_room(adder, r, false))
        verify_yield(s); /* its pages shorten what is loaded, too */
    if (match.host_hit_tokens && prefill_adder_has_room(adder, r, alone)) {
        if (!alone && !prefill_adder_has_state_to_load(adder, r, alone)) {
            req_put_back_kv(s, r); /* it waits rather than computes */
            return false;
        }
        tiers_load_back(s, adder, r, &key, &loaded);
    }

    uint32_t copied = 0;
    if (match.partial_tokens && prefill_adder_has_room(adder, r, alone))
        copied = reuse_partial(s, adder, r, &key, &match);
    uint32_t cached = r->kv.committed_len;
    if (!prefill_adder_admit(adder, r, alone)) {
        req_put_back_kv(s, r);
        return false;
    }
    r->state = REQ_PREFILL;
    s->running[s->num_running++] = r;
    wait_queue_admitted(&s->waiting, r);
    if (r->admitted) return true;
    r->admitted = true;
    r->hits = (prompt_hits){.cached = cached,
                            .loaded = loaded.tokens,
                            .fetched = loaded.storage_tokens,
                            .copied = copied};
    r->counted_load = r->kv.load;
    req_why_admitted(s, r, &key, &loaded);
    s->stats.prompt_tokens += r->num_input;
    s->stats.cached_tokens += r->hits.cached;
    s->stats.loaded_tokens += r->hits.loaded;
    s->stats.fetched_tokens += r->hits.fetched;
    s->stats.copied_tokens += r->hits.copied;
    CACHE_TAP(&s->pools.tap, TAP_ADMIT, r);
    if (s->params.on_admit) s->params.on_admit(s->params.user, r);
    return true;
}

/* In the queue's order until one does not fit: that one stops the rest, so that small
 * requests cannot starve a large one. */
static void admit_waiting(scheduler *s, prefill_adder *adder)
{
    while (adder->rem_tokens && s->num_running < s->params.max_running_requests) {
        req *r = wait_queue_next(&s->waiting);
        if (!r) return;
        if (!admit(s, adder, r)) return;
    }
}

/* Nobody could get on although there is work. True: something changed, plan again.
 *
 * A session that is released gives room: its prefix was locked. That is progress, since whoever is
 * looked at and not admitted leaves no more idle sessions and no more copies under way than there
 * were (req_put_back_kv): so there are fewer of them each time, and then comes what always ends. */
static bool unstick(scheduler *s)
{
    if (!s->num_running && !s->waiting.count) return false; /* some may still be fetching */
    if (verify_yield(s) || tiers_wait_for_pages(s)) return true;
    const uint32_t released = rad_session_release_idle(s->pools.tree_cache, 1);
    CACHE_TAP(&s->pools.tap, TAP_RELEASE_IDLE, .asked = 1, .answer = released);
    if (released) return true;
    if (s->num_running > 1) {
        scheduler_retract_one(s);
    } else if (s->num_running) {
        fail_for_memory(s, s->running[0]);
    } else {
        fail_for_memory(s, wait_queue_next(&s->waiting));
    }
    return true;
}

double itl_left_ns(const scheduler *s, const step_work *decodes)
{
    return ITL_MARGIN * (double)s->params.max_itl_ns - step_cost_ns(&s->cost, decodes) -
           (double)s->verify.busy_ns - (double)s->drafts.prepare_ns;
}

/* --max-itl-ms: whoever decodes waits for this step's prompts, so these are cut to what the
 * step may take. Chunk sizes never change an answer. */
static void limit_step(const scheduler *s, prefill_adder *adder, uint32_t num_decodes)
{
    if (!s->params.max_itl_ns || !s->params.chunked_prefill_size) return;
    step_work decodes = {.num_decodes = num_decodes};
    for (uint32_t i = 0; i < s->batch.num_reqs; i++) {
        decodes.pairs += step_pairs(s->batch.extend_prefix_lens[i], s->batch.extend_seq_lens[i]);
        decodes.draft_rows += s->batch.num_drafts[i];
    }
    prefill_adder_limit_ns(adder, &s->cost, itl_left_ns(s, &decodes));
}

bool get_next_batch_to_run(scheduler *s)
{
    if (!s->num_running) s->new_token_ratio = INIT_NEW_TOKEN_RATIO; /* nothing is known yet */
    do {
        schedule_batch_clear(&s->batch);
        tiers_note_releases(s);
        bool retracted = make_room_for_decode(s);
        uint32_t num_decodes = add_decodes(s, retracted);

        prefill_adder adder;
        prefill_adder_init(&adder, &s->pools, &s->batch, s->running, s->num_running,
                           s->new_token_ratio, prompt_budget(s, num_decodes),
                           s->params.chunked_prefill_size != 0);
        if (num_decodes) limit_step(s, &adder, num_decodes);
        for (uint32_t i = 0; i < s->num_running; i++) {
            if (s->running[i]->state != REQ_PREFILL) continue;
            take_from_verifier(s, &adder, s->running[i], true);
            prefill_adder_continue(&adder, s->running[i]);
        }
        if (!retracted || !s->num_running) admit_waiting(s, &adder);
    } while (!s->batch.num_reqs && unstick(s));
    return s->batch.num_reqs > 0;
}
