/* test_swa_hicache_model.c - random histories of sliding-window requests over all tiers, with
 * transfers that fail, tear, come late and out of order, stores that lie, restarts and resets.
 *
 * The model is the map from a prefix of tokens to its bytes that swa_rig.h computes: after any
 * history, whatever any tier offers under a key is exactly that, on both sides; every page of all
 * four pools has one owner, and when nothing runs no ticket is out. */
#include "swa_rig.h"

enum { REQS = 6, DOCS = 5, DOC_TOKENS = 150 };

typedef struct history {
    srig r;
    srig_options o;
    uint64_t rng;
    sreq reqs[REQS];
    enum { IDLE, ARRIVED, ADMITTED, COMPUTED } state[REQS];
    rad_token docs[DOCS][DOC_TOKENS];
    atomic_uint_fast64_t fates; /* drawn so far; any thread */
    uint64_t fault_every;       /* 0: none */
    uint64_t loaded, windows, fetched, failed, bad, written, restarts, io;
} history;

static uint32_t below(history *h, uint32_t n)
{
    return (uint32_t)(test_random(&h->rng) % n);
}

static bool strikes(history *h, uint64_t *what)
{
    uint64_t drawn = mix64(atomic_fetch_add(&h->fates, 1) + h->fault_every);
    *what = drawn >> 32;
    return h->fault_every && drawn % h->fault_every == 0;
}

static sim_fate copy_fate(void *user, uint64_t copy)
{
    uint64_t what;
    (void)copy;
    return strikes(user, &what) ? (what % 2 ? SIM_FAIL : SIM_TORN) : SIM_COPY;
}

static storage_fate store_fate(void *user, storage_call call, uint64_t number)
{
    uint64_t what;
    (void)call;
    (void)number;
    return strikes(user, &what) ? (storage_fate)(1 + what % 4) : STORAGE_WELL;
}

static void start(history *h, storage_mem *stores)
{
    uint64_t seed = h->r.seed;
    srig_start(&h->r, &h->o, stores);
    h->r.seed = seed;
    h->r.sim.script = copy_fate;
    h->r.sim.user = h;
    for (int s = 0; s < 2 && h->r.store; s++) {
        h->r.store[s].script = store_fate;
        h->r.store[s].user = h;
    }
}

static void arrive(history *h, uint32_t i)
{
    static const char *const names[] = {NULL, "a", "b"};
    sreq *q = &h->reqs[i];
    *q = (sreq){.extra_key = below(h, 6) ? NULL : names[below(h, 3)],
                .cache_salt = below(h, 6) ? NULL : names[below(h, 3)]};
    uint32_t shared = 1 + below(h, DOC_TOKENS), own = below(h, 30);
    memcpy(q->tokens, h->docs[below(h, DOCS)], shared * sizeof *q->tokens);
    for (uint32_t t = 0; t < own; t++)
        q->tokens[shared + t] = (rad_token)below(h, 3);
    if (shared + own < 2) q->tokens[1] = 1;
    q->num_tokens = RAD_MAX(shared + own, 2u);
    h->state[i] = ARRIVED;
    if (below(h, 3) == 0) return;
    rad_key key = sreq_key(q, q->num_tokens - 1);
    uint64_t recompute = below(h, 2) ? 1000000 : 0;
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
    uint32_t first = below(h, 2) ? q->num_tokens : q->kv.allocated_len + 1;
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
        h->io++;
        q->kv.committed_len = q->kv.allocated_len; /* as one who did not look */
        CHECK(rad_swa_hicache_unfinished_req(h->r.tiers, &q->kv, 0, &err) == RAD_E_IO);
        end(h, i, below(h, 2)); /* is_insert or not: nothing of it may be published */
        return;
    }
    if (below(h, 4) == 0) sreq_slide(&h->r, q); /* refused while it is loaded */
    uint32_t left = q->num_tokens - q->kv.allocated_len;
    if (q->kv.load || below(h, 2)) {
        rad_status status = rad_swa_hicache_unfinished_req(h->r.tiers, &q->kv, left != 0, &err);
        CHECKF(status == RAD_OK || status == RAD_FULL, "%s\n", err.text);
    }
    if (below(h, 2)) sreq_slide(&h->r, q);
    h->state[i] = COMPUTED;
    if (!left && q->num_tokens + 20 < SRIG_ROW_TOKENS && below(h, 2)) {
        for (left = 1 + below(h, 19); q->num_tokens < q->kv.allocated_len + left;)
            q->tokens[q->num_tokens++] = (rad_token)below(h, 3);
        q->kv.key = sreq_key(q, q->num_tokens);
    }
    if (!left) return;
    uint32_t to = q->kv.allocated_len + 1 + below(h, left);
    if (sreq_extend(&h->r, q, to) == RAD_OK)
        h->state[i] = ADMITTED;
    else
        end(h, i, below(h, 2));
}

static void count(history *h)
{
    rad_swa_hicache_stats s = srig_stats(&h->r);
    h->loaded += s.loaded_tokens[0];
    h->windows += s.loaded_tokens[1];
    h->written += s.written_tokens[0];
    h->fetched += s.fetched_tokens[0];
    h->bad += s.bad_pages;
    h->failed += s.failed_loads + s.failed_writes + s.storage_errors;
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
    h->restarts++;
}

static void one_thing(history *h)
{
    rad_swa_hicache *tiers = h->r.tiers;
    uint32_t i = below(h, REQS), what = below(h, 100);
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
        uint64_t pick = test_random(&h->rng);
        if (h->o.no_threads)
            (void)rad_swa_hicache_pump(tiers, pick);
        else /* a busy machine lets the workers run too */
            (void)rad_swa_hicache_wait(tiers, 1000000);
    } else if (what < 82) {
        CHECK_OK(rad_swa_hicache_poll(tiers));
    } else if (what < 90) {
        CHECK_OK(rad_swa_hicache_evict(tiers, below(h, 2) * below(h, 100), below(h, 60), NULL));
        srig_poison(&h->r);
    } else if (what < 92) { /* without giving up writes */
        CHECK_OK(rad_swa_cache_evict(below(h, 2) ? h->r.device : tiers->host, below(h, 50),
                                     below(h, 60), NULL));
        srig_poison(&h->r);
    } else if (what < 95) {
        if (h->state[i] != IDLE) end(h, i, below(h, 2));
    } else if (what < 96) {
        CHECK_OK(rad_swa_hicache_ready_to_load(tiers));
    } else if (what < 98) {
        if (h->r.store)
            storage_mem_spoil(&h->r.store[below(h, 2)], (uint32_t)test_random(&h->rng),
                              below(h, 16));
    } else if (what == 98) {
        rad_status status = rad_swa_hicache_clear(tiers, RAD_TIER_HOST, NULL);
        CHECK(status == RAD_OK || status == RAD_AGAIN);
    } else if (below(h, 4) == 0) {
        if (below(h, 2)) {
            restart(h);
        } else {
            for (uint32_t k = 0; k < REQS; k++)
                if (h->reqs[k].live) end(h, k, false);
            CHECK_OK(rad_swa_hicache_reset(tiers)); /* prefetches and writes may be under way */
        }
    }
}

static void run(srig_options o, uint64_t seed, uint64_t fault_every, uint32_t steps, history *sum)
{
    static history h;
    h = (history){.o = o, .rng = seed, .fault_every = fault_every};
    h.r.seed = sum->r.seed;
    for (int d = 0; d < DOCS; d++)
        for (int t = 0; t < DOC_TOKENS; t++)
            h.docs[d][t] = d && t < 40 * (d % 3) ? h.docs[0][t] : (rad_token)below(&h, 50);
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
    sum->loaded += h.loaded;
    sum->windows += h.windows;
    sum->written += h.written;
    sum->fetched += h.fetched;
    sum->failed += h.failed;
    sum->bad += h.bad;
    sum->restarts += h.restarts;
    sum->io += h.io;
}

static void histories(bool threads, uint64_t rounds, uint32_t steps)
{
    uint64_t seed = test_seed(), rng = seed;
    history *sum = calloc(1, sizeof *sum);
    sum->r.seed = seed;
    print_message("RADISH_TEST_SEED=%llu\n", (unsigned long long)seed);
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
        run(o, test_random(&rng), bits >> 44 & 3 ? 20 << (bits >> 46 & 3) : 0, steps, sum);
    }
    print_message("  %llu tokens written, %llu loaded (%llu of window), %llu fetched; %llu calls "
                  "failed, %llu bad pages, %llu requests hit by them, %llu restarts\n",
                  (unsigned long long)sum->written, (unsigned long long)sum->loaded,
                  (unsigned long long)sum->windows, (unsigned long long)sum->fetched,
                  (unsigned long long)sum->failed, (unsigned long long)sum->bad,
                  (unsigned long long)sum->io, (unsigned long long)sum->restarts);
    CHECK(sum->written && sum->failed && (threads || (sum->loaded && sum->windows)));
    free(sum);
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
