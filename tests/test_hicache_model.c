/* test_hicache_model.c - random histories of requests over all tiers, with transfers that fail,
 * tear, come late and out of order, a store that lies, restarts and resets.
 *
 * The model is the map from a prefix of tokens to its bytes that hicache_rig.h computes: after
 * any history, whatever any tier offers under a key is exactly that, every page of both pools
 * has one owner, and when nothing runs no ticket is out. */
#include "hicache_rig.h"
#include "history_rig.h"

typedef struct history {
    hrig r;
    hrig_options o;
    dice dice;
    hreq reqs[REQS];
    req_stage state[REQS];
    tally sum;
} history;

static void start(history *h, hrig *keep)
{
    hrig_start(&h->r, &h->o, keep);
    dice_rule(&h->dice, &h->r.sim, &h->r.store, 1);
}

static void arrive(history *h, uint32_t i)
{
    hreq *q = &h->reqs[i];
    *q = (hreq){0};
    q->extra_key = dice_draw_name(&h->dice);
    q->cache_salt = dice_draw_name(&h->dice);
    q->num_tokens = dice_draw_prompt(&h->dice, q->tokens);
    h->state[i] = ARRIVED;
    if (below(&h->dice, 3) == 0) return;
    rad_key key = hreq_key(q, q->num_tokens - 1);
    uint64_t recompute = below(&h->dice, 2) ? 1000 : 0;
    rad_status status = rad_hicache_prefetch_start(h->r.cache, &key, recompute, &q->prefetch);
    CHECK(status == RAD_OK || status == RAD_NONE || status == RAD_FULL);
}

static void admit(history *h, uint32_t i)
{
    hreq *q = &h->reqs[i];
    rad_key key = hreq_key(q, q->num_tokens - 1);
    rad_status status =
        rad_hicache_prefetch_progress(h->r.cache, &q->prefetch, &key, &q->prefetched);
    if (status == RAD_AGAIN) return;
    CHECK(status == RAD_OK || status == RAD_E_STATE); /* a reset forgot it */
    q->prefetch = 0;
    if (hreq_admit(&h->r, q) == RAD_FULL) return;
    h->state[i] = ADMITTED;
    if (hreq_extend(&h->r, q) == RAD_OK) return;
    hreq_finish(&h->r, q, false); /* no room for now */
    h->state[i] = ARRIVED;
}

static void end(history *h, uint32_t i, bool is_insert)
{
    hreq *q = &h->reqs[i];
    CHECK(rad_hicache_prefetch_revoke(h->r.cache, &q->prefetch) != RAD_E_INVAL);
    if (q->live) hreq_finish(&h->r, q, is_insert);
    h->state[i] = IDLE;
}

/* Gives back what the window has passed, as a scheduler does now and then. */
static void slide(history *h, hreq *q)
{
    rad_error err = {0};
    uint32_t keep = h->o.window + h->o.page_size;
    if (!h->o.window || q->kv.committed_len <= keep || below(&h->dice, 2)) return;
    rad_status status =
        rad_cache_release_window(h->r.cache, &q->kv, q->kv.committed_len - keep, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
}

static void compute(history *h, uint32_t i)
{
    hreq *q = &h->reqs[i];
    rad_error err = {0};
    if (hreq_forward(&h->r, q) != RAD_OK) {
        h->sum.io++;
        q->kv.committed_len = q->kv.allocated_len; /* as one who did not look */
        CHECK(rad_cache_unfinished_req(h->r.cache, &q->kv, 0, &err) == RAD_E_IO);
        end(h, i, below(&h->dice, 2)); /* is_insert or not: nothing of it may be published */
        return;
    }
    rad_status status = rad_cache_unfinished_req(h->r.cache, &q->kv, below(&h->dice, 3) == 0, &err);
    CHECKF(status == RAD_OK || status == RAD_FULL, "%s\n", err.text);
    h->state[i] = COMPUTED;
    slide(h, q);
    hreq_put_state(&h->r, q);
}

/* Some output tokens. */
static void decode(history *h, uint32_t i)
{
    hreq *q = &h->reqs[i];
    uint32_t had = q->num_tokens, more = 1 + below(&h->dice, 20);
    if (had + more > HRIG_ROW_TOKENS) return;
    for (uint32_t t = 0; t < more; t++)
        q->tokens[had + t] = (rad_token)below(&h->dice, 3);
    q->num_tokens += more;
    q->kv.key = hreq_key(q, q->num_tokens);
    if (hreq_extend(&h->r, q) != RAD_OK) {
        q->num_tokens = had;
        q->kv.key = hreq_key(q, had);
        return;
    }
    CHECK_OK(hreq_forward(&h->r, q));
    slide(h, q);
}

static void count(history *h)
{
    rad_hicache_stats s = hrig_stats(&h->r);
    h->sum.loaded += s.loaded_tokens;
    h->sum.windows += s.loaded_window_tokens;
    h->sum.states += s.loaded_states;
    h->sum.fetched_states += s.fetched_states;
    h->sum.written += s.written_tokens;
    h->sum.fetched += s.fetched_tokens;
    h->sum.bad += s.bad_pages;
    h->sum.failed += s.failed_loads + s.failed_writes + s.storage_errors;
}

static void all_end(history *h)
{
    for (uint32_t i = 0; i < REQS; i++)
        end(h, i, true);
    hrig_check_idle(&h->r);
}

static void restart(history *h)
{
    all_end(h);
    count(h);
    hrig_stop(&h->r, true);
    hrig old = h->r;
    start(h, &old);
    h->sum.restarts++;
}

/* Somebody takes the store, or clears it meanwhile, or gives it back. */
static void hold(history *h)
{
    rad_storage store;
    rad_status status = rad_hicache_hold_storage(h->r.cache, &store, NULL);
    CHECK(status == RAD_OK || status == RAD_AGAIN);
    bool clears = status == RAD_OK && below(&h->dice, 2);
    if (clears) CHECK_OK(store.ops->clear(store.self, NULL));
    if (clears || below(&h->dice, 2)) CHECK_OK(rad_hicache_release_storage(h->r.cache, clears));
}

static void one_thing(history *h)
{
    rad_cache *cache = h->r.cache;
    uint32_t i = below(&h->dice, REQS), what = below(&h->dice, 100);
    if (what < 40) {
        if (h->state[i] == IDLE)
            arrive(h, i);
        else if (h->state[i] == ARRIVED)
            admit(h, i);
        else if (h->state[i] == ADMITTED)
            compute(h, i);
        else if (below(&h->dice, 3))
            end(h, i, true);
        else
            decode(h, i);
    } else if (what < 65) {
        uint64_t pick = test_random(&h->dice.rng);
        if (h->o.no_threads)
            (void)hi_pump(cache, pick);
        else /* a busy machine lets the workers run too */
            (void)rad_hicache_wait(cache, 1000000);
    } else if (what < 80) {
        CHECK_OK(rad_cache_poll(cache));
    } else if (what < 88) {
        if (h->o.states && below(&h->dice, 4) == 0)
            CHECK_OK(rad_cache_evict_state(cache, below(&h->dice, 4), NULL));
        if (h->o.window && below(&h->dice, 2))
            CHECK_OK(rad_cache_evict_window(cache, below(&h->dice, 100), NULL));
        else
            CHECK_OK(rad_cache_evict(cache, below(&h->dice, 100), NULL, NULL));
    } else if (what < 93) {
        if (h->state[i] != IDLE) end(h, i, below(&h->dice, 2));
    } else if (what < 95) {
        CHECK_OK(rad_hicache_ready_to_load(cache));
    } else if (what < 97) {
        if (h->r.has_store)
            storage_mem_spoil(&h->r.store, (uint32_t)test_random(&h->dice.rng),
                              below(&h->dice, 16));
    } else if (what < 98 && h->o.pinned_tokens && h->state[i] != IDLE) {
        rad_key key = hreq_key(&h->reqs[i], h->reqs[i].num_tokens);
        CHECK(rad_cache_pin_prefix(cache, &key, 1 + below(&h->dice, 1000000), NULL) >= 0);
    } else if (what == 98 && h->r.has_store && below(&h->dice, 2)) {
        hold(h);
    } else if (what == 98) {
        rad_status status = rad_hicache_clear(cache, RAD_TIER_HOST, NULL);
        CHECK(status == RAD_OK || status == RAD_AGAIN);
    } else if (what == 99 && below(&h->dice, 4) == 0) {
        if (below(&h->dice, 2)) {
            restart(h);
        } else {
            for (uint32_t k = 0; k < REQS; k++)
                if (h->reqs[k].live) end(h, k, false);
            CHECK_OK(rad_cache_reset(cache)); /* prefetches and writes may be under way */
        }
    }
}

static void run(hrig_options o, uint64_t seed, uint64_t fault_every, uint32_t steps, tally *sum)
{
    static history h;
    h = (history){.o = o, .dice = {.rng = seed, .fault_every = fault_every}};
    dice_draw_docs(&h.dice);
    start(&h, NULL);
    hreq *reqs[REQS];
    for (int i = 0; i < REQS; i++)
        reqs[i] = &h.reqs[i];
    for (uint32_t step = 0; step < steps; step++) {
        one_thing(&h);
        if (step % 8 == 0) hrig_check(&h.r, reqs, REQS);
        /* Only when nobody copies: a load under way writes what is not in a tree, a write reads. */
        if (step % 32 == 0) hrig_check_bytes(&h.r);
    }
    all_end(&h);
    count(&h);
    CHECK(hrig_stats(&h.r).tickets == 0);
    hrig_stop(&h.r, false);
    tally_add(sum, &h.sum);
}

/* Some or all layers see a window, and their memory is short on either tier. */
static void draw_windows(hrig_options *o, uint64_t round, uint64_t bits)
{
    static const uint32_t page_sizes[] = {1, 2, 16};
    uint32_t ps = o->page_size = page_sizes[round % 3];
    o->window = 1 + bits % 40;
    o->window_only = round % 4 == 3;
    o->mla = o->mla && !o->window_only;
    o->device_pages = (320 + (bits >> 10 & 255)) / ps;
    o->window_pages = RAD_MIN((200 + (bits >> 18 & 127)) / ps, o->device_pages);
    o->host_pages = (200 + (bits >> 26 & 511)) / ps;
    o->host_window_pages = (40 + (bits >> 35 & 255)) / ps;
    if (o->max_nodes) o->host_pages = RAD_MIN(o->host_pages, 24u);
    if (o->cached_pages) o->cached_pages = 1 + o->device_pages / 2;
}

/* Some layers carry a state; the host may have more places for them than the device, or none. */
static void draw_states(hrig_options *o, uint64_t bits)
{
    o->states = 3 * REQS + (uint32_t)(bits & 15);
    o->host_states = bits >> 4 & 7 ? 2 + (uint32_t)(bits >> 8 & 31) : 0;
}

enum { WINDOWS = 1, STATE = 2 };

static void histories(bool threads, int kinds, uint64_t rounds, uint32_t steps)
{
    bool windows = kinds & WINDOWS;
    uint64_t seed = test_told_seed(), rng = seed;
    tally sum = {0};
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t bits = test_random(&rng);
        hrig_options o = {.page_size = bits & 1 ? 16 : 1,
                          .layout = bits >> 1 & 1,
                          .mla = bits >> 2 & 1,
                          .dtype = (uint32_t)(bits >> 3) % 6,
                          .storage = bits >> 6 & 3,
                          .no_threads = !threads,
                          .pinned_tokens = bits >> 8 & 1 ? 64 : 0,
                          .demote_tokens = bits >> 9 & 1 ? 0 : 100,
                          .eviction = (uint32_t)(bits >> 44) % 8};
        o.device_pages = (320 + (bits >> 10 & 255)) / o.page_size;
        o.host_pages = (200 + (bits >> 18 & 511)) / o.page_size;
        if (bits >> 48 & 1) { /* nodes are short: cuts between tiers may not be made */
            o.max_nodes = 2 + (uint32_t)(bits >> 50) % 6;
            o.host_pages = RAD_MIN(o.host_pages, 24u);
            if (bits >> 53 & 1) o.cached_pages = 1 + o.device_pages / 2;
        }
        if (windows) draw_windows(&o, round, test_random(&rng));
        if (kinds & STATE || (windows && round % 5 == 4)) draw_states(&o, test_random(&rng));
        o.tiers = (rad_hicache_params){.write_policy = (bits >> 28) % 3,
                                       .prefetch_policy = (bits >> 30) % 3,
                                       .prefetch_threshold = 16,
                                       .host_eviction = {.policy = (uint32_t)(bits >> 40) % 8},
                                       .recheck_ns = round / 2 % 2 ? 20000 : 0,
                                       .max_transfers = bits >> 32 & 1 ? 8 : 0,
                                       .timeout_base_ns = 1000000,
                                       .timeout_max_ns = 20000000};
        run(o, test_random(&rng), round % 5 ? 20 << (bits >> 35 & 3) : 0, steps, &sum);
    }
    tally_print(&sum);
    CHECK(sum.written && sum.failed && (threads || sum.loaded));
    CHECK(!windows || threads || sum.windows);
    CHECK(!(kinds & STATE) || threads || sum.states);
}

TEST(random_histories_in_any_order_of_transfers)
{
    histories(false, 0, test_scale(30, 1000), 1500);
}

TEST(random_histories_with_threads)
{
    histories(true, 0, test_scale(12, 300), 1500);
}

TEST(random_histories_with_windows)
{
    histories(false, WINDOWS, test_scale(14, 700), 1500);
}

TEST(random_histories_with_windows_and_threads)
{
    histories(true, WINDOWS, test_scale(4, 60), 1500);
}

TEST(random_histories_with_states)
{
    histories(false, STATE, test_scale(14, 700), 1500);
}

TEST(random_histories_with_states_and_threads)
{
    histories(true, STATE, test_scale(3, 60), 1500);
}

TEST_MAIN()
