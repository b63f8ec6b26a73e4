/* test_set_cache.c - one scheduler, and one engine, with its cache on, off and on again: as if made
 * so each time, and in the same memory. */
#include "engine_rig.h"
#include "scheduler_rig.h"

enum { PROMPT = 100, OUT = 12, SIBLINGS = 4 };

static void set_cache(rig *g, uint32_t kind, bool tree_attention)
{
    rad_error err = {0};
    rad_status status = scheduler_set_cache(g->s, kind, tree_attention, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    scheduler_stats st = rig_stats(g);
    CHECK(st.available_tokens == st.max_total_tokens); /* empty, whatever was there */
    rig_check(g);
}

/* The prompt `of`, then some at one time that go on from it. */
static void run_siblings(rig *g, uint64_t of, uint32_t cached_of_first, uint32_t cached_of_rest)
{
    rad_token ids[PROMPT + 8];
    rig_req *q[1 + SIBLINGS];
    rig_prompt(ids, PROMPT, of);
    q[0] = rig_add(g, ids, PROMPT, OUT);
    rig_run(g);
    for (uint64_t i = 1; i <= SIBLINGS; i++) {
        rig_prompt(ids + PROMPT, 8, 50 + i);
        q[i] = rig_add(g, ids, PROMPT + 8, OUT);
    }
    rig_run(g);
    for (int i = 0; i <= SIBLINGS; i++) {
        uint32_t want = i ? cached_of_rest : cached_of_first;
        CHECKF(q[i]->cached_tokens == want, "%d: %u, not %u\n", i, q[i]->cached_tokens, want);
        rig_expect(q[i], OUT);
    }
}

/* Positions that tree attention has spared so far. */
static uint64_t spared(const rig *g)
{
    scheduler_stats st = rig_stats(g);
    return st.context_tokens - st.distinct_context_tokens;
}

static void go_and_come_back(uint64_t window_tokens)
{
    static const uint32_t page_sizes[] = {1, 16};
    for (size_t p = 0; p < RAD_COUNT(page_sizes); p++) {
        uint32_t page = page_sizes[p], whole = PROMPT / page * page;
        scheduler_params params = rig_params(2048, page, 256);
        params.window_total_tokens = window_tokens;
        rig g;
        rig_start(&g, params);
        say_all_groups(&g);
        for (uint64_t round = 0; round < 3; round++) {
            run_siblings(&g, 1, 0, whole);
            run_siblings(&g, 1, PROMPT - 1, PROMPT + 7);
            uint64_t before = spared(&g);
            CHECK(before > 0);
            set_cache(&g, RAD_CACHE_CHUNK, true);
            run_siblings(&g, 1, 0, 0);
            run_siblings(&g, 1, 0, 0);
            CHECK(spared(&g) == before && rig_stats(&g).evictable_tokens == 0);
            set_cache(&g, RAD_CACHE_RADIX, false);
            run_siblings(&g, 1, 0, whole);
            CHECK(spared(&g) == before);
            set_cache(&g, RAD_CACHE_RADIX, true);
        }
        rig_stop(&g);
    }
}

TEST(the_cache_goes_and_comes_back)
{
    go_and_come_back(0);
}

/* Without a cache, too, what windows pass is given back. */
TEST(and_so_it_does_with_window_memory)
{
    rig_fake.window = 40;
    go_and_come_back(1024);
    rig_fake.window = 0;
}

TEST(an_emptied_cache_begins_at_the_first_page_again)
{
    rig g;
    rig_start(&g, rig_params(4096, 1, 256));
    run_siblings(&g, 1, 0, PROMPT);
    const size_t used = scheduler_used_slots(g.s);
    CHECK(used > PROMPT + SIBLINGS * (8 + OUT - 1) && used < 512);
    for (int i = 0; i < 5; i++) {
        if (i < 2)
            CHECK_OK(scheduler_flush_cache(g.s));
        else
            set_cache(&g, i == 3 ? RAD_CACHE_CHUNK : RAD_CACHE_RADIX, true);
        if (i == 3) continue; /* nothing is shared: more slots */
        run_siblings(&g, 1, 0, PROMPT);
        CHECK(scheduler_used_slots(g.s) == used);
        rig_check(&g);
    }
    rig_stop(&g);
}

TEST(it_stays_as_it_is_while_requests_run_or_for_a_kind_that_is_none)
{
    rig g;
    rad_token ids[PROMPT];
    rad_error err = {0};
    rig_prompt(ids, PROMPT, 2);
    rig_start(&g, rig_params(1024, 1, 256));
    rig_req *q = rig_add(&g, ids, PROMPT, OUT);
    CHECK(scheduler_set_cache(g.s, RAD_CACHE_CHUNK, true, &err) == RAD_AGAIN); /* it waits */
    CHECK(rig_step(&g));
    CHECK(scheduler_set_cache(g.s, RAD_CACHE_CHUNK, true, &err) == RAD_AGAIN); /* it runs */
    CHECK(strstr(err.text, "running") != NULL);
    rig_run(&g);
    rig_expect(q, OUT);
    CHECK(scheduler_set_cache(g.s, 7, true, &err) == RAD_E_INVAL);
    q = rig_add(&g, ids, PROMPT, OUT);
    rig_run(&g);
    CHECK(q->cached_tokens == PROMPT - 1);
    rig_expect(q, OUT);
    rig_stop(&g);
}

TEST(a_change_survives_every_allocation_failing)
{
    for (uint32_t from = 0; from < 2; from++) {
        uint32_t to = 1 - from;
        test_env t;
        rad_env env = test_env_init(&t);
        scheduler_params params = rig_params(512, 1, 256);
        params.cache_kind = from;
        rig g;
        rig_start_on(&g, &env, params, 0);
        rad_status status = RAD_E_NOMEM;
        long n = 0;
        for (; status != RAD_OK; n++) {
            size_t bytes = t.bytes;
            run_siblings(&g, 3, from == RAD_CACHE_RADIX && n ? PROMPT - 1 : 0,
                         from == RAD_CACHE_CHUNK ? 0
                         : n                     ? PROMPT + 7
                                                 : PROMPT);
            t.allocs = 0;
            t.fail_at = n;
            status = scheduler_set_cache(g.s, to, true, NULL);
            t.fail_at = -1;
            CHECKF(status == RAD_OK || status == RAD_E_NOMEM, "allocation %ld: %d\n", n, status);
            if (status != RAD_OK) CHECK(t.bytes == bytes);
            rig_check(&g);
        }
        CHECK(n > 2);
        run_siblings(&g, 3, 0, to == RAD_CACHE_CHUNK ? 0 : PROMPT);
        rig_stop(&g);
        CHECK(t.bytes == 0);
    }
}

/* ---- the engine ---- */

static void ask(engine *e, const rad_token *ids, uint32_t cached, answer *out)
{
    answer_init(out);
    engine_request q = erig_request(out, ids, PROMPT, OUT);
    erig_serve(e, &q);
    CHECK(out->finish == ENGINE_FINISH_LENGTH && out->cached_tokens == cached);
}

TEST(an_engine_answers_the_same_either_way)
{
    engine *e = erig_start(erig_params(), 0);
    rad_token ids[PROMPT];
    rad_error err = {0};
    erig_prompt(e, ids, PROMPT, 4);
    for (int round = 0; round < 6; round++) {
        bool off = round % 3 == 1;
        answer a, b;
        CHECK_OK(engine_set_cache(e, off, round % 3 == 2, &err));
        ask(e, ids, 0, &a);
        ask(e, ids, off ? 0 : PROMPT - 1, &b);
        CHECK(memcmp(a.ids, b.ids, OUT * sizeof *a.ids) == 0);
        answer_fini(&a);
        answer_fini(&b);
        erig_check_idle(e);
    }
    engine_destroy(e);
}

typedef struct first_step {
    uint32_t steps, prefill_tokens;
} first_step;

static void see_step(void *user, const step_info *step)
{
    first_step *f = user;
    if (!f->steps++) f->prefill_tokens = step->prefill_tokens;
}

/* However long it takes to submit them, the first step has them all. */
TEST(what_is_submitted_in_a_pause_begins_together)
{
    enum { REQUESTS = 8, TOKENS = 20 };
    for (int round = 0; round < 4; round++) {
        first_step first = {0};
        engine_params params = erig_params();
        params.chunked_prefill_size = 1024;
        params.on_step = see_step;
        params.step_user = &first;
        engine *e = erig_start(params, 0);
        rad_token ids[TOKENS];
        answer a[REQUESTS];
        uint64_t id;
        engine_stats st;
        engine_pause(e);
        for (int i = 0; i < REQUESTS; i++) {
            answer_init(&a[i]);
            erig_prompt(e, ids, TOKENS, 10 + (uint64_t)i);
            engine_request q = erig_request(&a[i], ids, TOKENS, OUT);
            erig_submit(e, &q, &id);
            engine_get_stats(e, &st); /* it answers, and does nothing else */
            CHECK(st.sched.forward_steps == 0 && st.sched.num_running == 0);
        }
        if (round == 1) engine_abort(e, id);
        if (round != 2) engine_continue(e); /* else its end is the pause's */
        if (round == 3) engine_continue(e); /* twice is no mistake */
        for (int i = 0; i < REQUESTS && round != 2; i++)
            answer_wait(&a[i]);
        if (round != 2) CHECK(first.prefill_tokens == (REQUESTS - (round == 1)) * TOKENS);
        engine_destroy(e);
        for (int i = 0; i < REQUESTS; i++) {
            CHECK(a[i].done && (round == 2 || round == 1 || a[i].finish == ENGINE_FINISH_LENGTH));
            answer_fini(&a[i]);
        }
        if (round == 2) CHECK(first.steps == 0);
    }
}

TEST_MAIN()
