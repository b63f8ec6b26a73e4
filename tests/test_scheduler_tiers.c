/* test_scheduler_tiers.c - promise P1 with tiers: a device pool of an eighth of the working set,
 * prompts that leave it and come back from the host and from storage, copies that fail: every
 * answer is the oracle's, and when all is done nothing is held. Case by case it is looked at in
 * test_scheduler_tiers_cases.c. */
#include "gear/retract.h"
#include "tiers_rig.h"

#include <radish/retention.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 9 }; /* in the short run: tenfold as slow */
#else
enum { ROUNDS = 18 };
#endif

/* `windows`: some or all layers of the runner see one, and have window memory. `states`: one is
 * recurrent, and there are few states. */
static void answers(bool windows, bool states, uint64_t rounds)
{
    uint64_t seed = test_told_seed(), rng = seed, loaded = 0, fetched = 0, lost = 0, near = 0;
    uint64_t brought = 0;
    static rad_token docs[NUM_DOCS][DOC_TOKENS];
    /* Few rounds may come to no fetch by chance: then some more. */
    const uint64_t most = states ? rounds : 4 * rounds;
    for (uint64_t round = 0; round < rounds || (!fetched && round < most); round++) {
        tiers_rig t = {0};
        scheduler_stats st;
        tiers_docs(docs, test_random(&rng));
        uint32_t page = round % 2 ? 16 : 1;
        bool stored = round / 2 % 3 != 0;
        t.tiers.write_policy = round % 3;
        t.tiers.prefetch_policy = below(&rng, 3);
        if (round % 4) t.tiers.prefetch_policy = RAD_PREFETCH_WAIT_COMPLETE; /* despite the clock */
        t.tiers.prefetch_threshold = 32;
        t.tiers.recheck_ns = below(&rng, 2) ? 1000000 : 0;
        t.tiers.deterministic = below(&rng, 2);
        t.host.ratio = 1 + below(&rng, 6);
        t.host.layout = below(&rng, 2);
        t.fault_every = round % 3 ? 10 + below(&rng, 60) : 0;
        if (stored) CHECK_OK(storage_mem_init(&t.store, NULL, 4096, tiers_record_bytes(page)));
        scheduler_params params = rig_params(256 + below(&rng, 100), page, below(&rng, 2) ? 48 : 0);
        params.max_running_requests = 1 + below(&rng, 6);
        params.max_queued_requests = NUM_REQS;
        params.policy = below(&rng, SCHEDULE_NUM_POLICIES);
        if (windows) {
            rig_fake.window = 8 + below(&rng, 40);
            rig_fake.window_only = below(&rng, 3) == 0;
            params.window_total_tokens = 2 * rig_fake.window + 4 * page + 20 + below(&rng, 100);
        }
        rig_fake.states = states;
        if (states) {
            params.max_states = STATE_LEAST + below(&rng, 14);
            params.state_interval = 16 + below(&rng, 40);
        }
        gear_retract_every(below(&rng, 2) ? 0 : 9);
        tiers_start(&t, params, stored);
        for (int restarts = 0; restarts < (stored ? 2 : 1); restarts++) {
            if (restarts) tiers_start(&t, params, stored);
            tiers_serve(&t, docs, &rng, &st);
            CHECK(st.cached_tokens >= st.loaded_tokens && st.loaded_tokens >= st.fetched_tokens);
            loaded += st.loaded_tokens;
            fetched += st.fetched_tokens;
            lost += st.lost_loads;
            rad_hicache_stats tiers = tiers_stop(&t);
            near += tiers.loaded_window_tokens;
            brought += tiers.loaded_states;
        }
        if (stored) storage_mem_fini(&t.store);
    }
    gear_retract_every(0);
    rig_fake.window = rig_fake.window_only = rig_fake.states = 0;
    print_message("  %llu prompt tokens from the host, %llu of them from storage, %llu of windows, "
                  "%llu states; %llu loads lost\n",
                  (unsigned long long)loaded, (unsigned long long)fetched, (unsigned long long)near,
                  (unsigned long long)brought, (unsigned long long)lost);
    CHECK(loaded && lost && (fetched || (states && rounds < 50)));
    CHECK(!windows == !near && !states == !brought);
}

static struct {
    bool on, refused;
    uint64_t count;
} short_of_pages;

rad_status __real_schedule_batch_prepare_for_extend(schedule_batch *b, schedule_pools *pools,
                                                    forward_batch *forward, rad_error *err);
rad_status __wrap_schedule_batch_prepare_for_extend(schedule_batch *b, schedule_pools *pools,
                                                    forward_batch *forward, rad_error *err);

/* Refuses each step once while copies to the host hold pages. */
rad_status __wrap_schedule_batch_prepare_for_extend(schedule_batch *b, schedule_pools *pools,
                                                    forward_batch *forward, rad_error *err)
{
    rad_hicache_stats stats = {0};
    if (short_of_pages.on) CHECK_OK(rad_hicache_get_stats(pools->inner_cache, &stats));
    short_of_pages.refused = stats.device_holds && !short_of_pages.refused;
    if (!short_of_pages.refused)
        return __real_schedule_batch_prepare_for_extend(b, pools, forward, err);
    short_of_pages.count++;
    return rad_fail(err, RAD_FULL, "copies hold them");
}

/* A slot that was emptied for a step's pages is published, and the host gets a copy of just these.
 */
TEST(a_step_waits_for_pages_that_a_copy_holds)
{
    uint64_t rng = 1;
    static rad_token docs[NUM_DOCS][DOC_TOKENS];
    tiers_rig t = {.host.ratio = 4, .tiers.deterministic = 1};
    scheduler_stats st;
    tiers_docs(docs, 1);
    scheduler_params params = rig_params(300, 1, 0);
    params.max_queued_requests = NUM_REQS;
    tiers_start(&t, params, false);
    short_of_pages.on = true;
    tiers_serve(&t, docs, &rng, &st);
    short_of_pages.on = false;
    CHECK(short_of_pages.count > 0 && st.kv_errors == 0);
    tiers_stop(&t);
}

TEST(answers_are_the_same_whatever_tier_they_come_from)
{
    answers(false, false, test_scale(ROUNDS, 300));
}

TEST(answers_are_the_same_with_windows_on_all_tiers)
{
    answers(true, false, test_scale(ROUNDS, 300));
}

TEST(answers_are_the_same_with_states_on_all_tiers)
{
    answers(false, true, test_scale(9, 300));
    answers(true, true, test_scale(3, 100));
}

/* ---- conversations ---- */

enum { SESSIONS = 3, TURNS = 40 };

static void begin_turn(tiers_rig *t, tiers_talk *k, const rad_token *doc, uint64_t *rng)
{
    if (!k->len || k->len > MOST_PROMPT - 20) { /* another begins */
        k->len = 1 + below(rng, DOC_TOKENS);
        memcpy(k->said, doc, k->len * sizeof *doc);
    } else if (below(rng, 4) == 0) {
        k->len -= below(rng, k->len);
    }
    uint32_t own = 1 + below(rng, 20);
    rig_prompt(k->said + k->len, own, test_random(rng));
    k->len += own;
    const uint32_t max_new = 1 + below(rng, MOST_NEW);
    const uint64_t pin_ns = below(rng, 4) ? 0 : 1000000 * below(rng, 100);
    tiers_add_turn(t, k, max_new, pin_ns, below(rng, 4) ? 0 : 1 + (int32_t)below(rng, 99));
}

static void converse(tiers_rig *t, rad_token docs[NUM_DOCS][DOC_TOKENS], uint64_t *rng)
{
    tiers_talk talks[2 * SESSIONS] = {0};
    rad_error err = {0};
    for (uint32_t i = 0; i < SESSIONS; i++)
        CHECK_OK(scheduler_session_open(t->g.s, &talks[i].session, &err));
    for (uint32_t turns = 0; turns < TURNS || !scheduler_is_idle(t->g.s);) {
        tiers_talk *k = &talks[below(rng, RAD_COUNT(talks))];
        if (!k->q && turns < TURNS && below(rng, 3) == 0) {
            begin_turn(t, k, docs[below(rng, NUM_DOCS)], rng);
            turns++;
        }
        if (k->q && !k->q->finish && below(rng, 40) == 0)
            scheduler_cancel(t->g.s, &k->q->r, REQ_FINISH_ABORT);
        rig_step(&t->g);
        if (k->q && k->q->finish) tiers_end_turn(k);
        if (!k->q && k->session && below(rng, 30) == 0) {
            CHECK_OK(scheduler_session_close(t->g.s, k->session, &err));
            CHECK_OK(scheduler_session_open(t->g.s, &k->session, &err));
        }
        CHECK(t->g.steps < 200000);
    }
    for (uint32_t i = 0; i < RAD_COUNT(talks); i++) {
        if (talks[i].q) tiers_end_turn(&talks[i]);
        if (talks[i].session) CHECK_OK(scheduler_session_close(t->g.s, talks[i].session, &err));
    }
}

/* Slots of sessions, pins and retention over both tiers, with little memory of windows. */
TEST(conversations_go_on_with_windows_on_all_tiers)
{
    uint64_t seed = test_told_seed(), rng = seed, loaded = 0, restored = 0;
    static rad_token docs[NUM_DOCS][DOC_TOKENS];
    for (uint64_t round = 0; round < test_scale(ROUNDS, 400); round++) {
        tiers_rig t = {0};
        tiers_docs(docs, test_random(&rng));
        uint32_t page = round % 2 ? 16 : 1;
        t.tiers.write_policy = round % 3;
        t.tiers.deterministic = below(&rng, 2);
        t.tiers.load_back_threshold = 1 + below(&rng, 32);
        t.host.ratio = 1 + below(&rng, 6);
        t.fault_every = round % 3 ? 10 + below(&rng, 60) : 0;
        scheduler_params params = rig_params(256 + below(&rng, 100), page, below(&rng, 4) ? 48 : 0);
        params.max_running_requests = 1 + below(&rng, 6);
        params.max_sessions = SESSIONS;
        params.streaming_sessions = round % 4 != 3;
        params.retention = true;
        params.max_pinned_tokens = below(&rng, 2) ? 64 : 0;
        rig_fake.window = below(&rng, 5) ? 1 + below(&rng, 40) : 0;
        rig_fake.window_only = rig_fake.window && below(&rng, 3) == 0;
        if (rig_fake.window)
            params.window_total_tokens = 2 * rig_fake.window + 4 * page + 20 + below(&rng, 100);
        rig_fake.states = round % 3 == 0; /* a third of them have a recurrent layer, too */
        if (rig_fake.states) params.max_states = STATE_LEAST + below(&rng, 14);
        gear_retract_every(below(&rng, 2) ? 0 : 9);
        tiers_start(&t, params, false);
        converse(&t, docs, &rng);
        scheduler_stats st = rig_stats(&t.g);
        CHECK(st.kv_errors == 0);
        restored += st.sessions.restored;
        loaded += st.loaded_tokens;
        tiers_stop(&t);
    }
    gear_retract_every(0);
    rig_fake.window = rig_fake.window_only = rig_fake.states = 0;
    print_message("  %llu tokens from the host, %llu turns went on\n", (unsigned long long)loaded,
                  (unsigned long long)restored);
    CHECK(loaded && restored);
}

TEST_MAIN()
