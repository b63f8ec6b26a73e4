/* test_sched_verify.c - --verify: silent where nothing is wrong, whatever happened on the
 * way; and a planted fault is found. */
#include "engine_rig.h"
#include "gear/retract.h"
#include "gear/swap_pages.h"
#include "scheduler_rig.h"

#include "sched/verify_run.h"

static verify_stats stats_of(const rig *g)
{
    return rig_stats(g).verify;
}

/* Steps of the idle scheduler, each checked. */
static void verify_all(rig *g)
{
    for (int i = 0; scheduler_has_background(g->s); i++) {
        CHECK(i < 10000 && scheduler_is_idle(g->s));
        CHECK(rig_step(g));
    }
    CHECK(!rig_step(g) && stats_of(g).num_pending == 0);
}

TEST(every_request_is_verified_and_leaves_no_trace)
{
    for (uint32_t page = 1; page <= 16; page += 15) {
        rig g;
        rad_token ids[8][200];
        rig_req *q[8];
        scheduler_params params = rig_params(1200, page, 64);
        params.verify_rate = 1;
        gear_retract_every(7);
        rig_start(&g, params);
        for (int i = 0; i < 8; i++) {
            rig_prompt(ids[i], 150, 900);
            rig_prompt(ids[i] + 150, 50, 901 + i);
            q[i] = rig_add(&g, ids[i], 200, i == 7 ? 0 : 100);
        }
        rig_run(&g);
        CHECK(stats_of(&g).num_pending + stats_of(&g).num_verified == 7); /* one had no logits */
        scheduler_stats before, after;
        scheduler_get_stats(g.s, &before);
        verify_all(&g);
        CHECK(stats_of(&g).num_verified == 7 && stats_of(&g).num_mismatches == 0);
        CHECK(stats_of(&g).num_skipped == 0);
        scheduler_get_stats(g.s, &after); /* nothing of it is in the tree */
        CHECK(after.evictable_tokens <= before.evictable_tokens);
        CHECK(after.forward_steps == before.forward_steps);
        for (int i = 0; i < 8; i++)
            rig_expect(q[i], i == 7 ? 0 : 100);
        rig_stop(&g);
    }
    gear_retract_every(0);
}

TEST(a_share_is_a_share)
{
    rig g;
    enum { REQS = 400 };
    scheduler_params params = rig_params(4096, 1, 64);
    params.verify_rate = 0.25;
    params.random_seed = 3;
    rig_start(&g, params);
    for (int i = 0; i < REQS; i++) {
        rad_token ids[4] = {i % 200, i / 200, 1, 2};
        rig_req *q = rig_add(&g, ids, 4, 2);
        rig_run(&g);
        rig_expect(q, 2);
        verify_all(&g);
    }
    uint64_t n = stats_of(&g).num_verified;
    CHECKF(n > 60 && n < 140, "%llu of %d\n", (unsigned long long)n, REQS);
    rig_stop(&g);
}

/* A page of the prefix is exchanged under the tree: who hits it gets another answer, and
 * is found; who ran before is not blamed. */
TEST(a_planted_fault_is_found)
{
    rig g;
    rad_token a[64], b[64];
    rig_prompt(a, 64, 910);
    rig_prompt(b, 64, 911);
    scheduler_params params = rig_params(1024, 16, 0);
    params.verify_rate = 1;
    rig_start(&g, params);
    rig_req *qa = rig_add(&g, a, 64, 20), *qb = rig_add(&g, b, 64, 20);
    rig_run(&g);
    rad_key ka = {.tokens = a, .num_tokens = 64}, kb = {.tokens = b, .num_tokens = 64};
    CHECK_OK(gear_swap_pages(g.s, &ka, 40, &kb, 40));
    rig_req *again = rig_add(&g, a, 64, 20);
    rig_run(&g);
    CHECK(memcmp(again->out, qa->out, sizeof *qa->out * 20) != 0);
    verify_all(&g);
    CHECK(stats_of(&g).num_verified == 3 && stats_of(&g).num_mismatches == 1);
    rig_expect(qa, 20);
    rig_expect(qb, 20);
    rig_drop(again);
    rig_stop(&g);
}

/* Of the rows of one request a single one was other: the first, the last, the first or last of a
 * chunk (8 rows, as many as may run), whichever. */
TEST(a_single_wrong_row_is_found_wherever_it_is)
{
    enum { ROWS = 20 };
    rig g;
    rad_token ids[40];
    rig_prompt(ids, 40, 912);
    scheduler_params params = rig_params(1024, 1, 64);
    params.verify_rate = 1;
    rig_start(&g, params);
    for (uint32_t row = 0; row <= ROWS; row++) {
        rig_req *q = rig_add(&g, ids, 40, ROWS);
        rig_run(&g);
        verify_record *record = g.s->verify.first;
        CHECK(record && !record->next && record->num_digests == ROWS);
        if (row < ROWS) record->digests[row] ^= 1;
        verify_all(&g);
        CHECKF(stats_of(&g).num_verified == row + 1 &&
                   stats_of(&g).num_mismatches == RAD_MIN(row + 1, (uint32_t)ROWS),
               "row %u\n", row);
        rig_expect(q, ROWS);
    }
    rig_stop(&g);
}

/* Whoever comes while it verifies runs at the next step; short of memory, the verifier
 * gives its pages back and begins anew later. */
TEST(it_yields_to_whoever_comes)
{
    rig g;
    rad_token ids[2][400];
    rig_prompt(ids[0], 400, 920);
    rig_prompt(ids[1], 400, 921);
    scheduler_params params = rig_params(600, 1, 512);
    params.verify_rate = 1;
    rig_start(&g, params);
    rig_req *first = rig_add(&g, ids[0], 400, 5);
    rig_run(&g);
    for (int i = 0; i < 4; i++) /* 256 of 404 tokens */
        rig_step(&g);
    scheduler_stats st;
    scheduler_get_stats(g.s, &st);
    CHECK(st.held_tokens == 256 && st.verify.num_pending == 1);

    rad_token small[2] = {1, 2};
    rig_req *quick = rig_add(&g, small, 2, 1);
    rig_step(&g);
    CHECK(quick->finish);
    scheduler_get_stats(g.s, &st);
    CHECK(st.held_tokens == 256); /* there was room for both */

    rig_req *large = rig_add(&g, ids[1], 400, 150); /* 550 of 600 */
    rig_step(&g);
    CHECK(large->admissions == 1);
    rig_run(&g);
    verify_all(&g);
    CHECK(stats_of(&g).num_verified == 3 && stats_of(&g).num_mismatches == 0);
    CHECK(stats_of(&g).num_skipped == 0);
    rig_expect(first, 5);
    rig_expect(quick, 1);
    rig_expect(large, 150);
    rig_stop(&g);
}

/* A step of the one whose prompt is under way takes what the verifier holds. */
TEST(a_prefill_under_way_does_not_wait_for_its_pages)
{
    for (uint32_t page = 1; page <= 16; page += 15) {
        rig g;
        rad_token ids[3][400];
        for (int i = 0; i < 3; i++)
            rig_prompt(ids[i], 400, 960 + i);
        scheduler_params params = rig_params(620, page, 64);
        params.verify_rate = 1;
        rig_start(&g, params);
        rig_req *first = rig_add(&g, ids[0], 300, 1);
        rig_run(&g);
        rig_req *slow = rig_add(&g, ids[1], 400, 1);
        rig_step(&g); /* 64 of its tokens are there; now more is verified than is left for it */
        for (int i = 0; i < 4; i++) {
            g.s->verify.busy_steps = VERIFY_EVERY;
            verify_busy_step(g.s);
        }
        scheduler_stats st;
        scheduler_get_stats(g.s, &st);
        CHECK(st.held_tokens + st.protected_tokens == 64 + 256 && st.verify.num_given_up == 0);
        uint32_t before = slow->r.kv.committed_len;
        for (uint64_t done = before; !slow->finish; done += 64) {
            rig_step(&g);
            CHECK(slow->finish || slow->r.kv.committed_len == done + 64);
        }
        CHECK(stats_of(&g).num_given_up == 1);
        verify_all(&g);
        CHECK(stats_of(&g).num_verified == 2 && stats_of(&g).num_mismatches == 0);
        CHECK(stats_of(&g).num_skipped == 0);
        rig_expect(first, 1);
        rig_expect(slow, 1);
        rig_stop(&g);
    }
}

/* Two schedulers get the same requests, one verifies: every output comes in the same step.
 * Nothing is shared (a hit would depend on what the verifier has evicted). */
static void run_in_step(uint64_t seed, uint32_t page, uint32_t chunk, verify_stats *sum)
{
    enum { REQS = 60, BOTH = 2 };
    rig g[BOTH];
    rig_req *q[BOTH][REQS];
    scheduler_params params = rig_params(480, page, chunk);
    params.cache_kind = RAD_CACHE_CHUNK;
    params.max_running_requests = 5;
    rig_start(&g[0], params);
    params.verify_rate = 1;
    rig_start(&g[1], params);
    uint64_t state = seed;
    for (uint32_t added = 0, step = 0;; step++) {
        if (added < REQS && test_random(&state) % 6 == 0) {
            uint32_t n = 1 + (uint32_t)(test_random(&state) % (test_random(&state) % 4 ? 60 : 330));
            uint32_t out = 1 + (uint32_t)(test_random(&state) % 120);
            rad_token ids[400];
            rig_prompt(ids, n, seed + 7919 * added);
            for (int i = 0; i < BOTH; i++)
                q[i][added] = rig_add(&g[i], ids, n, out);
            added++;
        }
        for (int i = 0; i < BOTH; i++)
            rig_step(&g[i]);
        for (uint32_t r = 0; r < added; r++)
            CHECKF(q[0][r]->num_out == q[1][r]->num_out && q[0][r]->finish == q[1][r]->finish &&
                       q[0][r]->r.kv.committed_len == q[1][r]->r.kv.committed_len,
                   "seed %llu, step %u, page %u: request %u has %u outputs beside a verifier, %u "
                   "without\n",
                   (unsigned long long)seed, step, page, r, q[1][r]->num_out, q[0][r]->num_out);
        if (added == REQS && scheduler_is_idle(g[0].s)) break;
        CHECK(step < 100000);
    }
    CHECK(scheduler_is_idle(g[1].s));
    verify_all(&g[1]);
    verify_stats v = stats_of(&g[1]);
    CHECK(v.num_mismatches == 0 && v.num_verified + v.num_skipped == REQS);
    sum->num_verified += v.num_verified;
    sum->num_given_up += v.num_given_up;
    for (int i = 0; i < BOTH; i++) {
        for (uint32_t r = 0; r < REQS; r++)
            rig_expect(q[i][r], q[i][r]->r.max_new_tokens);
        rig_stop(&g[i]);
    }
}

TEST(nobody_gets_on_more_slowly_for_want_of_its_pages)
{
    static const uint32_t chunks[] = {32, 64, 512, 0};
    verify_stats sum = {0};
    uint64_t seed = test_seed();
    for (uint32_t i = 0; i < 12; i++)
        run_in_step(seed + i, i % 2 ? 16 : 1, chunks[i / 2 % 4], &sum);
    print_message("  verified %llu, given up %llu times\n", (unsigned long long)sum.num_verified,
                  (unsigned long long)sum.num_given_up);
    CHECK(sum.num_verified > 300 && sum.num_given_up > 10);
}

/* One that never fits beside the others is put off again and again, and keeps nobody else
 * from being verified; when there is room it is verified as well. */
TEST(one_that_does_not_fit_beside_others_lets_others_go_first)
{
    rig g;
    rad_token large[300], ids[8];
    rig_prompt(large, 300, 970);
    scheduler_params params = rig_params(400, 1, 512);
    params.verify_rate = 1;
    rig_start(&g, params);
    rig_req *first = rig_add(&g, large, 300, 1);
    rig_run(&g);
    rig_expect(first, 1);
    for (int i = 0; i < 40; i++) { /* 260 of 400 tokens, so that 256 are too many */
        rig_prompt(ids, 8, 971 + i);
        rig_req *q[5];
        for (int k = 0; k < 5; k++) {
            ids[0] = k;
            q[k] = rig_add(&g, ids, 8, 45);
        }
        rig_step(&g);
        while (!q[0]->finish || !q[1]->finish || !q[2]->finish || !q[3]->finish || !q[4]->finish)
            rig_step(&g);
        for (int k = 0; k < 5; k++)
            rig_expect(q[k], 45);
    }
    verify_stats v = stats_of(&g);
    CHECKF(v.num_given_up >= 1 && v.num_verified >= 8, "%llu given up, %llu verified\n",
           (unsigned long long)v.num_given_up, (unsigned long long)v.num_verified);
    CHECK(v.num_pending <= VERIFY_QUEUE && v.num_mismatches == 0);
    verify_all(&g);
    v = stats_of(&g);
    CHECK(v.num_verified + v.num_skipped == 201);
    rig_stop(&g);
}

/* The last step added up hidden states for a request that is over now, or gone: what is verified
 * behind that step adds nothing there. */
TEST(verifying_leaves_the_hidden_states_of_the_last_step_alone)
{
    enum { TOKENS = 3 };
    double sums[2][RUNNER_FAKE_HIDDEN];
    rad_token ids[200];
    rig_prompt(ids, 200, 925);
    for (int verifying = 0; verifying < 2; verifying++) {
        rig g;
        rig_req embedded = {0};
        const req_params p = {.ids = ids,
                              .num_ids = TOKENS,
                              .pooling = POOL_MEAN,
                              .hidden_dim = RUNNER_FAKE_HIDDEN,
                              .user = &embedded,
                              .sampling = {.top_p = 1}};
        scheduler_params params = rig_params(1024, 16, 0);
        params.verify_rate = verifying;
        rig_start(&g, params);
        rig_req *q = rig_add(&g, ids + TOKENS, 50, 2), *other = rig_add(&g, ids, 200, 20);
        while (!q->finish)
            rig_step(&g);
        CHECK(!other->finish && (!verifying || g.s->verify.first));
        CHECK_OK(req_init(&embedded.r, NULL, &p, NULL));
        CHECK_OK(scheduler_add(g.s, &embedded.r, NULL));
        g.s->verify.busy_steps = VERIFY_EVERY - 1;
        rig_step(&g);
        CHECK(embedded.finish && (!verifying || g.s->verify.kv.committed_len >= TOKENS));
        memcpy(sums[verifying], embedded.r.hidden_sum, sizeof sums[0]);
        req_fini(&embedded.r);
        rig_run(&g);
        verify_all(&g);
        CHECK(stats_of(&g).num_skipped == 0 && stats_of(&g).num_mismatches == 0);
        rig_expect(q, 2);
        rig_expect(other, 20);
        rig_stop(&g);
    }
    CHECK(!memcmp(sums[0], sums[1], sizeof sums[0]));
}

/* A flush needs nobody to run or wait; what is being verified is neither. */
TEST(a_flush_in_the_middle_of_verifying_loses_nothing)
{
    for (uint32_t page = 1; page <= 16; page += 15) {
        rig g;
        rad_token ids[400];
        rig_prompt(ids, 400, 922);
        scheduler_params params = rig_params(1024, page, 512);
        params.verify_rate = 1;
        rig_start(&g, params);
        rig_req *first = rig_add(&g, ids, 400, 5);
        rig_run(&g);
        rig_step(&g);
        scheduler_stats st;
        scheduler_get_stats(g.s, &st);
        CHECK(st.held_tokens == 64 && st.verify.num_pending == 1);
        CHECK_OK(scheduler_flush_cache(g.s));
        CHECK_OK(scheduler_check(g.s, NULL));
        verify_all(&g);
        scheduler_get_stats(g.s, &st);
        CHECK(st.verify.num_verified == 1 && st.verify.num_mismatches == 0);
        CHECK(st.available_tokens == st.max_total_tokens && st.kv_errors == 0);
        rig_expect(first, 5);
        rig_stop(&g);
    }
}

/* Somebody always runs, and the memory is small enough that the verifier has to give its pages
 * back now and then: requests are verified all the same, and the fault is found. */
TEST(a_scheduler_that_is_never_idle_verifies_too)
{
    rig g;
    enum { REQS = 800 };
    rad_token a[64], b[64];
    rig_prompt(a, 64, 950);
    rig_prompt(b, 64, 951);
    scheduler_params params = rig_params(400, 1, 64);
    params.verify_rate = 1;
    rig_start(&g, params);
    rig_req *q[REQS];
    for (int i = 0; i < REQS; i++) {
        q[i] = rig_add(&g, i % 2 ? a : b, 64 - (uint32_t)i % 8, 40);
        if (i < 2) continue;
        while (!q[i - 1]->finish)
            CHECK(!scheduler_is_idle(g.s) && rig_step(&g));
        if (i < 100) CHECK(stats_of(&g).num_mismatches == 0);
        if (i == 100) {
            rad_key ka = {.tokens = a, .num_tokens = 64}, kb = {.tokens = b, .num_tokens = 64};
            CHECK_OK(gear_swap_pages(g.s, &ka, 40, &kb, 40));
        }
    }
    verify_stats v = stats_of(&g);
    CHECKF(v.num_verified >= 8, "%llu\n", (unsigned long long)v.num_verified);
    CHECKF(v.num_mismatches, "of %llu\n", (unsigned long long)v.num_verified);
    rig_run(&g);
    verify_all(&g);
    for (int i = 0; i < REQS; i++) {
        if (i < 99) rig_check_answer(q[i]);
        rig_drop(q[i]);
    }
    rig_stop(&g);
}

/* More than VERIFY_QUEUE at once are not recorded; what fails on the way is skipped. */
TEST(the_queue_is_bounded_and_failures_are_skipped)
{
    rig g;
    enum { REQS = VERIFY_QUEUE + 30 };
    scheduler_params params = rig_params(8192, 1, 64);
    params.verify_rate = 1;
    params.max_queued_requests = REQS;
    rig_start_failing(&g, params, 40);
    rig_req *q[REQS];
    for (int i = 0; i < REQS; i++) {
        rad_token ids[4] = {i % 200, i / 200, 1, 2};
        q[i] = rig_add(&g, ids, 4, 2);
    }
    rig_run(&g);
    uint64_t failed = 0;
    for (int i = 0; i < REQS; i++) {
        failed += q[i]->finish == REQ_FINISH_ERROR;
        rig_check_answer(q[i]);
        rig_drop(q[i]);
    }
    CHECK(stats_of(&g).num_pending <= VERIFY_QUEUE && stats_of(&g).num_skipped >= 20);
    verify_all(&g);
    verify_stats v = stats_of(&g);
    CHECK(v.num_mismatches == 0 && v.num_verified > 40);
    CHECK(v.num_verified + v.num_skipped <= REQS &&
          v.num_verified + v.num_skipped >= REQS - failed);
    rig_stop(&g);
}

TEST(destroying_it_in_the_middle_leaves_nothing_behind)
{
    for (int steps = 0; steps < 12; steps++) {
        rig g;
        rad_token ids[100];
        rig_prompt(ids, 100, 930);
        test_env t;
        rad_env env = test_env_init(&t);
        scheduler_params params = rig_params(512, 1, 64);
        params.verify_rate = 1;
        gear_retract_every(3);
        rig_start_on(&g, &env, params, 0);
        rig_req *a = rig_add(&g, ids, 100, 4), *b = rig_add(&g, ids, 90, 30);
        for (int i = 0; i < steps * 4; i++)
            scheduler_step(g.s);
        scheduler_destroy(g.s);
        CHECK(t.bytes == 0);
        runner_destroy(g.runner);
        rig_drop(a);
        rig_drop(b);
    }
    gear_retract_every(0);
}

/* Memory that fails while recording costs the verification, not the request. */
TEST(no_memory_to_record_is_no_reason_to_fail)
{
    for (long n = 0; n < 6; n++) {
        rig g;
        rad_token ids[100];
        rig_prompt(ids, 100, 940);
        test_env t;
        rad_env env = test_env_init(&t);
        scheduler_params params = rig_params(512, 1, 64);
        params.verify_rate = 1;
        rig_start_on(&g, &env, params, 0);
        rig_req *a = rig_add(&g, ids, 100, 100);
        t.fail_at = n;
        t.allocs = 0;
        while (!scheduler_is_idle(g.s))
            scheduler_step(g.s);
        t.fail_at = -1;
        rig_expect(a, 100);
        verify_all(&g);
        verify_stats v = stats_of(&g);
        CHECK(v.num_verified + v.num_skipped == 1 && v.num_mismatches == 0);
        CHECK(n ? true : v.num_skipped == 1);
        rig_stop(&g);
        CHECK(t.bytes == 0);
    }
}

/* Through the engine's threads: it verifies while nobody asks for anything. */
TEST(the_engine_verifies_when_it_is_idle)
{
    engine_params params = erig_params();
    params.verify_rate = 1;
    params.page_size = 16;
    engine *e = erig_start(params, 0);
    rad_token a[64], b[64];
    erig_prompt(e, a, 64, 1);
    erig_prompt(e, b, 64, 2);
    engine_stats st;
    for (int run = 0; run < 3; run++) {
        answer x;
        engine_request q = erig_ask(&x, run == 1 ? b : a, 64, 20);
        erig_serve(e, &q);
        answer_fini(&x);
        for (int i = 0; i == 0 || st.sched.verify.num_pending; i++) {
            CHECK(i < 100000);
            engine_get_stats(e, &st);
        }
        CHECK(st.sched.verify.num_verified == (uint64_t)run + 1 &&
              st.sched.verify.num_mismatches == (run == 2));
        rad_key ka = {.tokens = a, .num_tokens = 64}, kb = {.tokens = b, .num_tokens = 64};
        if (run == 1) CHECK_OK(gear_engine_swap_pages(e, &ka, 20, &kb, 20));
    }
    erig_stop(e);
}

TEST_MAIN()
