/* test_sched_windows.c - a scheduler over a runner with sliding windows: what windows have passed
 * comes back while requests run, so that a small pool is enough for long contexts; what they still
 * see never does. Random courses are test_scheduler_random.c's. */
#include "scheduler_rig.h"

enum { WINDOW = 32, MOST = 2000 };

static scheduler_params window_params(uint64_t tokens, uint64_t window_tokens, uint32_t page_size,
                                      uint32_t chunk)
{
    scheduler_params p = rig_params(tokens, page_size, chunk);
    p.window_total_tokens = window_tokens;
    return p;
}

static rig_req *rig_run_one(rig *g, const rad_token *ids, uint32_t n, uint32_t max_new)
{
    rig_req *q = rig_add(g, ids, n, max_new);
    rig_run(g);
    return q;
}

/* Every step is checked: rows, ownership on both sides, and the oracle at the end. */
TEST(a_context_far_longer_than_window_memory_is_served)
{
    rig_fake.window = WINDOW;
    for (uint32_t only = 0; only < 2; only++) {
        rig_fake.window_only = only;
        for (uint32_t page = 1; page <= 16; page += 15) {
            for (uint32_t chunk = 0; chunk <= 24; chunk += 24) { /* 0: whole, as far as it can */
                rig g;
                rad_token ids[600];
                rig_prompt(ids, 600, 1);
                rig_start(&g, window_params(1024, 6 * 16 + WINDOW, page, chunk));
                rig_req *q = rig_add(&g, ids, 600, 60);
                uint64_t most = 0;
                while (!scheduler_is_idle(g.s)) {
                    CHECK(rig_step(&g));
                    scheduler_stats st = rig_stats(&g);
                    if (q->num_out)
                        most = RAD_MAX(most, st.window_held_tokens + st.window_protected_tokens);
                }
                /* While it decodes, it has the window, a sixteenth of it, and a page at either end.
                 */
                CHECKF(most >= WINDOW && most <= WINDOW + WINDOW / 16 + 3 * page, "%llu tokens\n",
                       (unsigned long long)most);
                rig_expect(q, 60);
                CHECK(rig_stats(&g).window_total_tokens == (6 * 16 + WINDOW) / page * page);
                rig_stop(&g);
            }
        }
    }
    rig_fake.window = rig_fake.window_only = 0;
}

/* The arithmetic of a pool in a step: contexts of C tokens need W / C of their tokens on the window
 * side. 8 contexts of 512 with a window of 64, and room for a chunk, run at one time without
 * anybody being sent back; masked, half of the layers' memory would have been 4 contexts more. */
TEST(as_many_contexts_run_as_their_windows_fit)
{
    enum { CONTEXTS = 8, TOKENS = 512, OWN = 64, CHUNK = 32, OUT = 300 };
    rig_fake.window = OWN;
    rig g;
    rad_token ids[CONTEXTS][TOKENS];
    rig_req *q[CONTEXTS];
    scheduler_params p =
        window_params(CONTEXTS * (TOKENS + OUT), CONTEXTS * (OWN + OWN / 16 + 4) + CHUNK, 1, CHUNK);
    p.max_running_requests = CONTEXTS;
    rig_start(&g, p);
    for (int i = 0; i < CONTEXTS; i++) {
        rig_prompt(ids[i], TOKENS, 100 + (uint64_t)i);
        q[i] = rig_add(&g, ids[i], TOKENS, OUT);
    }
    uint32_t most = 0;
    while (!scheduler_is_idle(g.s)) {
        CHECK(rig_step(&g));
        most = RAD_MAX(most, rig_stats(&g).num_running);
    }
    CHECKF(most >= CONTEXTS - 1, "%u ran at one time\n", most);
    CHECK(rig_stats(&g).num_retractions == 0);
    for (int i = 0; i < CONTEXTS; i++)
        rig_expect(q[i], OUT);
    rig_stop(&g);
    rig_fake.window = 0;
}

/* A conversation's next turn, siblings of one prompt, and a fork in the middle of it. */
TEST(what_is_cached_is_found_where_its_window_is_there)
{
    rig_fake.window = WINDOW;
    for (uint32_t page = 1; page <= 16; page += 15) {
        rig g;
        rad_token ids[700];
        rig_prompt(ids, 300, 7);
        rig_start(&g, window_params(2048, 1024, page, 64));
        rig_req *q = rig_add(&g, ids, 300, 20);
        rig_run(&g);
        memcpy(ids + 300, q->out, 20 * sizeof *ids);
        rig_expect(q, 20);

        rig_prompt(ids + 320, 30, 8); /* the next turn */
        q = rig_add(&g, ids, 350, 20);
        rig_run(&g);
        CHECKF(q->cached_tokens == 319 / page * page, "%u\n", q->cached_tokens);
        rig_expect(q, 20);

        rig_req *sibling[4]; /* n > 1: the prompt is computed once */
        rad_token own[200];
        rig_prompt(own, 200, 9);
        for (int i = 0; i < 4; i++)
            sibling[i] = rig_add(&g, own, 200, 30);
        rig_run(&g);
        for (int i = 0; i < 4; i++) {
            CHECK(sibling[i]->cached_tokens == (i ? 199 / page * page : 0));
            rig_expect(sibling[i], 30);
        }

        ids[150] ^= 1; /* a fork: the windows of a prompt are kept while there is room */
        q = rig_add(&g, ids, 300, 5);
        rig_run(&g);
        CHECKF(q->cached_tokens == 150 && q->r.hits.copied == 150 % page, "%u\n", q->cached_tokens);
        rig_expect(q, 5);
        rig_stop(&g);
    }
    rig_fake.window = 0;
}

/* Windows are given up before pages are, and then a prompt is computed again from where one is. */
TEST(a_prompt_whose_windows_went_is_computed_again)
{
    rig_fake.window = WINDOW;
    rig g;
    rad_token ids[4][300];
    rig_start(&g, window_params(4096, 200, 1, 64));
    for (int i = 0; i < 4; i++) {
        rig_prompt(ids[i], 300, 20 + (uint64_t)i);
        rig_req *q = rig_add(&g, ids[i], 300, 10);
        rig_run(&g);
        rig_expect(q, 10);
    }
    CHECK(rig_stats(&g).evicted_tokens == 0); /* all keys of the other layers are there */
    rig_req *q = rig_add(&g, ids[3], 300, 10);
    rig_run(&g);
    CHECK(q->cached_tokens == 299);
    rig_expect(q, 10);
    q = rig_add(&g, ids[0], 300, 10);
    rig_run(&g);
    CHECKF(q->cached_tokens < 299, "%u\n", q->cached_tokens);
    rig_expect(q, 10);
    rig_stop(&g);
    rig_fake.window = 0;
}

/* One side as large as the other, and both too small for a window and a page: then it masks. */
TEST(a_pool_hardly_larger_than_the_window_masks)
{
    rig_fake.window = WINDOW;
    for (uint32_t more = 1; more < 12; more++) {
        rig g;
        rad_token ids[WINDOW];
        rig_prompt(ids, WINDOW, more);
        rig_start(&g, window_params(WINDOW + more, WINDOW + more, 1, 8));
        CHECK(rig_stats(&g).window_total_tokens == (more < WINDOW / 16 + 3 ? 0 : WINDOW + more));
        rig_expect(rig_run_one(&g, ids, WINDOW, more), more);
        rig_stop(&g);
    }
    rig_fake.window = 0;
}

static rad_status create_refused(scheduler_params p, rad_error *err)
{
    runner *fake;
    scheduler *s = NULL;
    CHECK_OK(runner_fake_create(NULL, &rig_fake, &fake, NULL));
    p.runner = fake;
    p.on_output = rig_on_output;
    rad_status status = scheduler_create(NULL, &p, &s, err);
    CHECK(!s || status == RAD_OK);
    scheduler_destroy(s);
    runner_destroy(fake);
    return status;
}

TEST(window_memory_that_cannot_work_is_refused_in_words)
{
    rad_error err = {0};
    rig_fake.window = WINDOW;
    /* The window, a sixteenth of it that is not given back yet, a page at either end, and the next
     * token's. */
    const uint64_t least = WINDOW + WINDOW / 16 + 3;
    CHECK_OK(create_refused(window_params(1024, least, 1, 16), &err));
    CHECK(create_refused(window_params(1024, least - 1, 1, 16), &err) == RAD_E_INVAL);
    CHECKF(strstr(err.text, "too small for a window of 32"), "%s\n", err.text);
    scheduler_params p;
    /* No context reaches the window's end: one pool, and nothing is masked. */
    p = window_params(1024, 512, 1, 16);
    p.context_length = WINDOW;
    rig g;
    rig_start(&g, p);
    CHECK(rig_stats(&g).window_total_tokens == 0);
    rig_stop(&g);
    rig_fake.window = 0;
}

TEST(create_survives_every_allocation_failing)
{
    rig_fake.window = WINDOW;
    rig_create_failing(window_params(256, 128, 16, 16));
    rig_fake.window = 0;
}

TEST_MAIN()
