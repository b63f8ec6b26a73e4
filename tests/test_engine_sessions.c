/* test_engine_sessions.c - sessions, pins and retention as an engine's requests ask for them: over
 * the plain cache and over tiers, with tags and with streaming slots. */
#include "engine_rig.h"
#include "scheduler_rig.h"

#include "sched/scheduler_impl.h"

enum { PROMPT = 60, TURN = 10, OUT = 8 };

/* A turn: the history and some new tokens; the answer goes on the history. */
static uint32_t turn(engine *e, uint32_t session, rad_token *history, uint32_t *len, uint32_t own)
{
    answer a;
    rad_token *more = history + *len;
    erig_prompt(e, more, own, 1000 + *len);
    *len += own;
    engine_request q = erig_ask(&a, history, *len, OUT);
    q.session = session;
    erig_serve(e, &q);
    CHECKF(a.finish == ENGINE_FINISH_LENGTH, "%s\n", a.message);
    CHECK(erig_is_oracle(e, &a, history, *len));
    memcpy(history + *len, a.ids, OUT * sizeof *history);
    *len += OUT;
    uint32_t cached = a.cached_tokens;
    answer_fini(&a);
    return cached;
}

static engine_stats stats_of(engine *e)
{
    engine_stats st;
    engine_get_stats(e, &st);
    return st;
}

static engine_params params_of(int streaming, int tiers, uint32_t page_size)
{
    engine_params p = erig_params();
    p.page_size = page_size;
    p.max_total_tokens = 512;
    p.context_length = 400;
    p.max_sessions = 4;
    p.streaming_sessions = streaming;
    p.enable_hierarchical_cache = tiers;
    return p;
}

TEST(a_conversation_goes_on_where_it_ended)
{
    for (int way = 0; way < 8; way++) {
        int streaming = way & 1, tiers = way >> 1 & 1;
        uint32_t page = way & 4 ? 16 : 1;
        engine *e = erig_start(params_of(streaming, tiers, page), 0);
        uint32_t session, len = 0;
        rad_token history[300];
        rad_error err = {0};
        CHECK_OK(engine_session_open(e, &session, &err));
        CHECK(turn(e, session, history, &len, PROMPT) == 0);
        for (int i = 0; i < 5; i++) {
            uint32_t computed = len - 1; /* the last output has no K/V */
            uint32_t cached = turn(e, session, history, &len, TURN);
            /* A streaming session has the partial last page, too. */
            CHECKF(cached == (streaming ? computed : computed / page * page), "%d: %u of %u\n", way,
                   cached, computed);
        }
        CHECK(stats_of(e).sched.sessions.open == 1 && stats_of(e).sched.sessions.held == 1);
        CHECK_OK(engine_check(e, &err));
        CHECK_OK(engine_session_close(e, session, &err));
        CHECK(engine_session_close(e, session, &err) == RAD_E_STATE && err.text[0]);

        answer a;
        engine_request q = erig_ask(&a, history, len, OUT);
        q.session = session;
        erig_serve(e, &q);
        CHECK(a.finish == ENGINE_FINISH_ERROR && strstr(a.message, "is not open"));
        answer_fini(&a);
        turn(e, 0, history, &len, TURN); /* as anybody's */
        erig_stop(e);
    }
}

/* More conversations than the pool holds: each answer is right, nothing is lost, and a turn that
 * was dropped is computed. */
TEST(sessions_are_given_up_under_pressure)
{
    for (int way = 0; way < 4; way++) {
        engine *e = erig_start(params_of(way & 1, way >> 1, 16), 0);
        enum { MOST = 4, ROUNDS = 5 };
        uint32_t session[MOST], len[MOST] = {0};
        static rad_token history[MOST][300];
        rad_error err = {0};
        for (int i = 0; i < MOST; i++)
            CHECK_OK(engine_session_open(e, &session[i], &err));
        uint32_t none;
        CHECK(engine_session_open(e, &none, &err) == RAD_FULL && err.text[0]);
        for (int round = 0; round < ROUNDS; round++)
            for (int i = 0; i < MOST; i++) {
                rad_token other[120];
                turn(e, session[i], history[i], &len[i], round ? TURN + 10 : PROMPT + 7 * i);
                uint32_t other_len = 0; /* somebody without a session */
                (void)turn(e, 0, other, &other_len, 90);
                CHECK_OK(engine_check(e, &err));
            }
        engine_stats st = stats_of(e);
        CHECK(st.sched.evicted_tokens > 0 || st.sched.sessions.dropped > 0);
        CHECK(st.sched.kv_errors == 0 && st.requests.num_failed == 0);
        for (int i = 0; i < MOST; i++)
            CHECK_OK(engine_session_close(e, session[i], &err));
        erig_stop(e);
    }
}

/* Two turns of one session at a time: with tags both run, a streaming one refuses the second. */
TEST(turns_of_a_session_overlap_or_are_refused)
{
    for (int streaming = 0; streaming < 2; streaming++) {
        engine *e = erig_start(params_of(streaming, 0, 1), 0);
        uint32_t session;
        rad_token ids[2][40];
        answer a[2];
        engine_request q[2];
        CHECK_OK(engine_session_open(e, &session, NULL));
        engine_pause(e);
        for (int i = 0; i < 2; i++) {
            erig_prompt(e, ids[i], 40, 5 + (uint64_t)i);
            q[i] = erig_ask(&a[i], ids[i], 40, 30);
            q[i].session = session;
            uint64_t id;
            erig_submit(e, &q[i], &id);
        }
        engine_continue(e);
        int failed = 0;
        for (int i = 0; i < 2; i++) {
            answer_wait(&a[i]);
            failed += a[i].finish == ENGINE_FINISH_ERROR;
            if (a[i].finish == ENGINE_FINISH_ERROR)
                CHECKF(strstr(a[i].message, "already has an active request"), "%s\n", a[i].message);
            else
                CHECK(erig_is_oracle(e, &a[i], ids[i], 40));
            answer_fini(&a[i]);
        }
        CHECK(failed == streaming);
        CHECK_OK(engine_session_close(e, session, NULL));
        erig_stop(e);
    }
}

/* What was asked to be kept is there after a flood that carries off what was not. */
TEST(pinned_and_retained_prompts_outlive_others)
{
    for (int way = 0; way < 3; way++) { /* nothing, pinned, retained */
        engine_params p = erig_params();
        p.max_total_tokens = 512;
        p.context_length = 400;
        p.max_pinned_tokens = 200;
        p.retention = true;
        engine *e = erig_start(p, 0);
        rad_token kept[80], other[80];
        answer a;
        erig_prompt(e, kept, 80, 1);
        engine_request q = erig_ask(&a, kept, 80, OUT);
        q.pin_ns = way == 1 ? (uint64_t)3600 * 1000000000 : 0;
        q.retention_priority = way == 2 ? 50 : 0;
        erig_serve(e, &q);
        answer_fini(&a);
        CHECK(stats_of(e).sched.pinned_tokens == (way == 1 ? 80 + OUT - 1 : 0));
        for (uint64_t i = 0; i < 20; i++) {
            erig_prompt(e, other, 80, 100 + i);
            q = erig_ask(&a, other, 80, OUT);
            erig_serve(e, &q);
            answer_fini(&a);
        }
        q = erig_ask(&a, kept, 80, OUT);
        erig_serve(e, &q);
        CHECKF(a.cached_tokens == (way ? 79 : 0), "%d: %u\n", way, a.cached_tokens);
        CHECK(erig_is_oracle(e, &a, kept, 80));
        answer_fini(&a);
        erig_stop(e);
    }
}

/* A request pins up to where it says; a prefix is pinned, and no longer, by a call. */
TEST(a_part_of_a_prompt_is_pinned)
{
    for (int streaming = 0; streaming < 2; streaming++) {
        engine_params p = erig_params();
        p.max_total_tokens = 512;
        p.context_length = 400;
        p.max_pinned_tokens = 60;
        p.max_sessions = 2;
        p.streaming_sessions = streaming;
        engine *e = erig_start(p, 0);
        rad_token ids[80];
        answer a;
        uint32_t pinned = 0;
        erig_prompt(e, ids, 80, 1);
        engine_request q = erig_ask(&a, ids, 80, OUT);
        q.pin_ns = UINT64_C(3600) * 1000000000;
        q.pin_tokens = 40;
        erig_serve(e, &q);
        answer_fini(&a);
        CHECK(stats_of(e).sched.pinned_tokens == 40);
        rad_key key = {.tokens = ids, .num_tokens = 80};
        CHECK_OK(engine_pin_prefix(e, &key, q.pin_ns, &pinned, NULL));
        CHECK(pinned == 60 && stats_of(e).sched.pinned_tokens == 60); /* all that may be */
        CHECK_OK(engine_pin_prefix(e, &key, 0, &pinned, NULL));
        CHECK(pinned == 80 && stats_of(e).sched.pinned_tokens == 0);
        key.cache_salt = "another";
        CHECK_OK(engine_pin_prefix(e, &key, q.pin_ns, &pinned, NULL));
        CHECK(pinned == 0);
        CHECK_OK(engine_check(e, NULL));
        erig_stop(e);
    }
    engine *e = erig_start(erig_params(), 0);
    const rad_token id = 1;
    rad_error err = {0};
    uint32_t pinned;
    CHECK(engine_pin_prefix(e, &(rad_key){.tokens = &id, .num_tokens = 1}, 1, &pinned, &err) ==
          RAD_E_UNSUPPORTED);
    CHECK(strstr(err.text, "max_pinned_tokens"));
    erig_stop(e);
}

TEST(what_an_engine_was_not_made_for_is_refused)
{
    engine *e = erig_start(erig_params(), 0);
    rad_token ids[20];
    rad_error err = {0};
    uint32_t session;
    uint64_t id;
    erig_prompt(e, ids, 20, 1);
    for (int what = 0; what < 3; what++) {
        answer a;
        engine_request q = erig_ask(&a, ids, 20, 5);
        if (what == 0) q.session = 1;
        if (what == 1) q.pin_ns = 1;
        if (what == 2) q.retention_priority = 1;
        CHECK(engine_submit(e, &q, &id, &err) == RAD_E_UNSUPPORTED && err.text[0]);
        answer_fini(&a);
    }
    CHECK(engine_session_open(e, &session, &err) == RAD_E_UNSUPPORTED && err.text[0]);
    erig_stop(e);

    engine_params p = erig_params();
    p.retention = true;
    e = erig_start(p, 0);
    answer a;
    engine_request q = erig_ask(&a, ids, 20, 5);
    q.retention_priority = 100;
    CHECK(engine_submit(e, &q, &id, &err) == RAD_E_INVAL && strstr(err.text, "from 1 to 99"));
    answer_fini(&a);
    erig_stop(e);

    engine_parts parts = erig_parts(0);
    p = erig_params();
    p.max_sessions = 2;
    p.disable_radix_cache = true;
    CHECK(engine_create_with(NULL, &p, &parts, &e, &err) == RAD_E_INVAL);
    CHECKF(strstr(err.text, "a cache that keeps something"), "%s\n", err.text);
}

/* Random turns of a few sessions, with retractions, aborts and small pools; slot by slot checked
 * after each step (scheduler_rig.h), each answer the oracle's. */
TEST(random_turns_lose_no_slot_and_change_no_answer)
{
    uint64_t restored = 0, retracted = 0;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        enum { MOST = 3, TURNS = 40 };
        uint64_t rng = seed;
        uint32_t page = seed % 3 == 0 ? 16 : seed % 3 == 1 ? 4 : 1;
        scheduler_params p = rig_params(320 + 16 * (seed % 5), page, seed % 2 ? 32 : 0);
        p.max_sessions = MOST;
        p.streaming_sessions = seed % 4 != 0;
        p.max_running_requests = 3;
        rig_fake.window = seed % 5 == 0 ? 33 : 0; /* layers with a window, in memory of their own */
        if (rig_fake.window) p.window_total_tokens = 200;
        p.retention = true;
        p.max_pinned_tokens = 64;
        rig g;
        rig_start(&g, p);
        uint32_t session[MOST], len[MOST] = {0};
        rad_token history[MOST][240];
        rig_req *running[MOST] = {0};
        for (int i = 0; i < MOST; i++)
            CHECK_OK(scheduler_session_open(g.s, &session[i], NULL));
        for (int t = 0; t < TURNS; t++) {
            uint32_t i = (uint32_t)(test_random(&rng) % MOST);
            rig_req *q = running[i];
            if (q && q->finish) { /* its answer goes on the history */
                if (q->finish == REQ_FINISH_LENGTH) {
                    memcpy(history[i] + len[i], q->out, q->num_out * sizeof(rad_token));
                    len[i] += q->num_out;
                    rig_check_answer(q);
                }
                rig_drop(q);
                running[i] = q = NULL;
            }
            if (!q) {
                if (len[i] > 120) len[i] = (uint32_t)(test_random(&rng) % 60);
                uint32_t own = 1 + (uint32_t)(test_random(&rng) % 40);
                rig_prompt(history[i] + len[i], own, test_random(&rng));
                len[i] += own;
                q = malloc(sizeof *q);
                rig_req_init(q, history[i], len[i], 1 + (uint32_t)(test_random(&rng) % 20));
                q->r.session = session[i];
                q->r.pin_ns = test_random(&rng) % 4 ? 0 : 1000000;
                q->r.retention_priority = (int32_t)(test_random(&rng) % 3);
                CHECK_OK(scheduler_add(g.s, &q->r, NULL));
                running[i] = q;
            } else if (test_random(&rng) % 12 == 0) {
                scheduler_cancel(g.s, &q->r, REQ_FINISH_ABORT);
            }
            for (uint64_t steps = test_random(&rng) % 12; steps && !scheduler_is_idle(g.s); steps--)
                rig_step(&g);
            if (seed % 2 && g.s->num_running > 1) scheduler_retract_one(g.s);
            rig_check(&g);
        }
        rig_run(&g);
        scheduler_stats st;
        scheduler_get_stats(g.s, &st);
        CHECK(st.kv_errors == 0 && st.num_failed == 0);
        restored += st.sessions.restored;
        retracted += st.num_retractions;
        for (int i = 0; i < MOST; i++) {
            if (running[i]) rig_check_answer(running[i]), rig_drop(running[i]);
            CHECK_OK(scheduler_session_close(g.s, session[i], NULL));
        }
        rig_check(&g);
        rig_stop(&g);
    }
    rig_fake.window = 0;
    CHECKF(restored > 50 && retracted > 0, "%llu restored, %llu retracted\n",
           (unsigned long long)restored, (unsigned long long)retracted);
}

/* Whatever is missing, the wrapper and what is behind it are given back once. */
TEST(a_scheduler_with_sessions_survives_every_allocation_failing)
{
    for (int streaming = 0; streaming < 2; streaming++) {
        scheduler_params p = rig_params(64, 4, 16);
        p.max_sessions = 3;
        p.streaming_sessions = streaming;
        p.retention = true;
        p.max_pinned_tokens = 16;
        rig_create_failing(p);
    }
}

TEST_MAIN()
