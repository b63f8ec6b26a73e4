/* test_swa_hicache_model.c - random histories of sliding-window requests over all tiers, with
 * transfers that fail, tear, come late and out of order, stores that lie, restarts and resets.
 *
 * The model is the map from a prefix of tokens to its bytes that swa_rig.h computes: after any
 * history, whatever any tier offers under a key is exactly that, on both sides; every page of all
 * four pools has one owner, and when nothing runs no ticket is out. */
#include "history_rig.h"
#include "swa_rig.h"

typedef struct history {
    srig r;
    srig_options o;
    dice dice;
    sreq reqs[REQS];
    req_stage state[REQS];
    tally sum;
} history;

static void start(history *h, storage_mem *stores)
{
    uint64_t seed = h->r.seed;
    srig_start(&h->r, &h->o, stores);
    h->r.seed = seed;
    dice_rule(&h->dice, &h->r.sim, h->r.store, h->r.store ? 2 : 0);
}

static void arrive(history *h, uint32_t i)
{
    sreq *q = &h->reqs[i];
    *q = (sreq){0};
    q->extra_key = dice_draw_name(&h->dice);
    q->cache_salt = dice_draw_name(&h->dice);
    q->num_tokens = dice_draw_prompt(&h->dice, q->tokens);
    h->state[i] = ARRIVED;
    if (below(&h->dice, 3) == 0) return;
    rad_key key = sreq_key(q, q->num_tokens - 1);
    uint64_t recompute = below(&h->dice, 2) ? 1000000 : 0;
    rad_status status = rad_swa_hicache_prefetch_start(h->r.tiers, &key, recompute, &q->prefetch);
    CHECK(status == RAD_OK || status == RAD_NONE || status == RAD_FULL);
}

static void end(history *h, uint32_t i, bool is_insert)
{
    sreq *q = &h->reqs[i];
    CHECK(rad_swa_hicache_prefetch_revoke(h->r.tiers, &q->prefetch) != RAD_E_INVAL);
    if (q->live) sreq_finish(&h->r, q, is_insert);
    h->state[i] = IDLE;
}

static void admit(history *h, uint32_t i)
{
    sreq *q = &h->reqs[i];
    rad_key key = sreq_key(q, q->num_tokens - 1);
    rad_status status = rad_swa_hicache_prefetch_progress(h->r.tiers, &q->prefetch, &key, NULL);
    if (status == RAD_AGAIN) return;
    CHECK(status == RAD_OK || status == RAD_E_STATE); /* a reset forgot it */
    q->prefetch = 0;
    if (sreq_admit(&h->r, q) == RAD_FULL) return;
    h->state[i] = ADMITTED;
    uint32_t first = below(&h->dice, 2) ? q->num_tokens : q->kv.allocated_len + 1;
    if (sreq_extend(&h->r, q, RAD_MIN(first, q->num_tokens)) == RAD_OK) return;
    sreq_finish(&h->r, q, false); /* no room for now */
    h->state[i] = ARRIVED;
}

/* A chunk, or some output tokens. */
static void compute(history *h, uint32_t i)
{
    sreq *q = &h->reqs[i];
    rad_error err = {0};
    if (sreq_forward(&h->r, q) != RAD_OK) {
        h->sum.io++;
        q->kv.committed_len = q->kv.allocated_len; /* as one who did not look */
        CHECK(rad_swa_hicache_unfinished_req(h->r.tiers, &q->kv, 0, &err) == RAD_E_IO);
        end(h, i, below(&h->dice, 2)); /* is_insert or not: nothing of it may be published */
        return;
    }
    if (below(&h->dice, 4) == 0) sreq_slide(&h->r, q); /* refused while it is loaded */
    uint32_t left = q->num_tokens - q->kv.allocated_len;
    if (q->kv.load || below(&h->dice, 2)) {
        rad_status status = rad_swa_hicache_unfinished_req(h->r.tiers, &q->kv, left != 0, &err);
        CHECKF(status == RAD_OK || status == RAD_FULL, "%s\n", err.text);
    }
    if (below(&h->dice, 2)) sreq_slide(&h->r, q);
    h->state[i] = COMPUTED;
    if (!left && q->num_tokens + 20 < SRIG_ROW_TOKENS && below(&h->dice, 2)) {
        for (left = 1 + below(&h->dice, 19); q->num_tokens < q->kv.allocated_len + left;)
            q->tokens[q->num_tokens++] = (rad_token)below(&h->dice, 3);
        q->kv.key = sreq_key(q, q->num_tokens);
    }
    if (!left) return;
    uint32_t to = q->kv.allocated_len + 1 + below(&h->dice, left);
    if (sreq_extend(&h->r, q, to) == RAD_OK)
        h->state[i] = ADMITTED;
    else
        end(h, i, below(&h->dice, 2));
}

static void count(history *h)
{
    rad_swa_hicache_stats s = srig_stats(&h->r);
    h->sum.loaded += s.loaded_tokens[0];
    h->sum.windows += s.loaded_tokens[1];
    h->sum.written += s.written_tokens[0];
    h->sum.fetched += s.fetched_tokens[0];
    h->sum.bad += s.bad_pages;
    h->sum.failed += s.failed_loads + s.failed_writes + s.storage_errors;
}

static void all_end(history *h)
{
    for (uint32_t i = 0; i < REQS; i++)
        end(h, i, true);
    srig_check_idle(&h->r);
}

static void restart(history *h)
{
    all_end(h);
    count(h);
    start(h, srig_stop(&h->r, true));
    h->sum.restarts++;
}

static void one_thing(history *h)
{
    rad_swa_hicache *tiers = h->r.tiers;
    uint32_t i = below(&h->dice, REQS), what = below(&h->dice, 100);
    if (what < 45) {
        if (h->state[i] == IDLE)
            arrive(h, i);
        else if (h->state[i] == ARRIVED)
            admit(h, i);
        else if (h->state[i] == ADMITTED)
            compute(h, i);
        else
            end(h, i, true);
    } else if (what < 68) {
        uint64_t pick = test_random(&h->dice.rng);
        if (h->o.no_threads)
            (void)rad_swa_hicache_pump(tiers, pick);
        else /* a busy machine lets the workers run too */
            (void)rad_swa_hicache_wait(tiers, 1000000);
    } else if (what < 82) {
        CHECK_OK(rad_swa_hicache_poll(tiers));
    } else if (what < 90) {
        CHECK_OK(rad_swa_hicache_evict(tiers, below(&h->dice, 2) * below(&h->dice, 100),
                                       below(&h->dice, 60), NULL));
        srig_poison(&h->r);
    } else if (what < 92) { /* without giving up writes */
        CHECK_OK(rad_swa_cache_evict(below(&h->dice, 2) ? h->r.device : tiers->host,
                                     below(&h->dice, 50), below(&h->dice, 60), NULL));
        srig_poison(&h->r);
    } else if (what < 95) {
        if (h->state[i] != IDLE) end(h, i, below(&h->dice, 2));
    } else if (what < 96) {
        CHECK_OK(rad_swa_hicache_ready_to_load(tiers));
    } else if (what < 98) {
        if (h->r.store)
            storage_mem_spoil(&h->r.store[below(&h->dice, 2)], (uint32_t)test_random(&h->dice.rng),
                              below(&h->dice, 16));
    } else if (what == 98) {
        rad_status status = rad_swa_hicache_clear(tiers, RAD_TIER_HOST, NULL);
        CHECK(status == RAD_OK || status == RAD_AGAIN);
    } else if (below(&h->dice, 4) == 0) {
        if (below(&h->dice, 2)) {
            restart(h);
        } else {
            for (uint32_t k = 0; k < REQS; k++)
                if (h->reqs[k].live) end(h, k, false);
            CHECK_OK(rad_swa_hicache_reset(tiers)); /* prefetches and writes may be under way */
        }
    }
}

static void run(srig_options o, uint64_t rig_seed, uint64_t seed, uint64_t fault_every,
                uint32_t steps, tally *sum)
{
    static history h;
    h = (history){.o = o, .dice = {.rng = seed, .fault_every = fault_every}};
    h.r.seed = rig_seed;
    dice_draw_docs(&h.dice);
    start(&h, NULL);
    sreq *reqs[REQS];
    for (int i = 0; i < REQS; i++)
        reqs[i] = &h.reqs[i];
    for (uint32_t step = 0; step < steps; step++) {
        one_thing(&h);
        if (step % 8 == 0) srig_check(&h.r, reqs, REQS);
        if (step % 32 == 0) (void)srig_check_bytes(&h.r);
    }
    all_end(&h);
    count(&h);
    (void)srig_stop(&h.r, false);
    tally_add(sum, &h.sum);
}

static void histories(bool threads, uint64_t rounds, uint32_t steps)
{
    uint64_t seed = test_told_seed(), rng = seed;
    tally sum = {0};
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t bits = test_random(&rng);
        static const uint32_t windows[] = {1, 10, 37, 64};
        srig_options o = {.page_size = bits & 1 ? 16 : 1,
                          .layout = bits >> 1 & 1,
                          .mla = bits >> 2 & 1,
                          .dtype = (uint32_t)(bits >> 48) % 6,
                          .window = windows[bits >> 3 & 3],
                          .storage = bits >> 5 & 3,
                          .no_threads = !threads};
        o.pages[0] = (320 + (bits >> 7 & 255)) / o.page_size;
        o.pages[1] = (200 + (bits >> 15 & 127)) / o.page_size;
        o.host_pages[0] = (200 + (bits >> 22 & 511)) / o.page_size;
        o.host_pages[1] = (80 + (bits >> 31 & 511)) / o.page_size;
        o.tiers = (rad_swa_hicache_params){.write_policy = (bits >> 40) % 3,
                                           .prefetch_threshold = 16,
                                           .max_transfers = bits >> 42 & 1 ? 8 : 0,
                                           .demote_tokens = bits >> 43 & 1 ? 0 : 100,
                                           .timeout_max_ns = 20000000};
        run(o, seed, test_random(&rng), round % 4 ? 20 << (bits >> 46 & 3) : 0, steps, &sum);
    }
    tally_print(&sum);
    CHECK(sum.written && sum.failed && (threads || (sum.loaded && sum.windows)));
}

TEST(random_histories_in_any_order_of_transfers)
{
    histories(false, test_scale(24, 1000), 1200);
}

TEST(random_histories_with_threads)
{
    histories(true, test_scale(8, 300), 1200);
}

TEST_MAIN()
