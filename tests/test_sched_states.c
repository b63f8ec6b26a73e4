/* test_sched_states.c - a scheduler over a runner with a recurrent layer: where snapshots are left,
 * told by what the next request finds, to the token; and that one from elsewhere shows. Random
 * courses are test_scheduler_random.c's. */
#include "gear/retract.h"
#include "scheduler_rig.h"

enum { TURN = 7, OWN = 20, ANSWER = 30, MOST_TEXT = 3000 }; /* TURN: begins each message */

static scheduler_params state_params(uint32_t page_size, uint32_t chunk)
{
    scheduler_params p = rig_params(4096, page_size, chunk);
    p.state_interval = 1 << 20; /* none but those that something names */
    p.turn_token = TURN;
    return p;
}

static void start(rig *g, scheduler_params params)
{
    rig_fake.states = 1;
    rig_start(g, params);
}

static void stop(rig *g)
{
    rig_stop(g);
    rig_fake = (runner_fake_params){.vocab_size = RIG_VOCAB};
}

/* A text as a template writes it: TURN, two more, what is said. */
typedef struct text {
    rad_token ids[MOST_TEXT];
    uint32_t n;
    uint32_t message; /* where its last message begins, */
    uint32_t opening; /* and the one that is to be answered */
    uint64_t seed;
} text;

static void say(text *t, uint32_t n)
{
    t->message = t->n;
    t->ids[t->n++] = TURN;
    for (uint32_t i = 0; i < n; i++) {
        rad_token id = (rad_token)(test_random(&t->seed) % RIG_VOCAB);
        t->ids[t->n++] = id == TURN ? TURN + 1 : id;
    }
}

static void ask_for_answer(text *t)
{
    static const rad_token opening[] = {TURN, 100, 101};
    t->opening = t->n;
    memcpy(t->ids + t->n, opening, sizeof opening);
    t->n += RAD_COUNT(opening);
}

/* Answers with max_new tokens, all checked; what of the prompt was cached. */
static uint32_t ask(rig *g, text *t, uint32_t max_new)
{
    rig_req *q = rig_add(g, t->ids, t->n, max_new);
    rig_run(g);
    uint32_t cached = q->cached_tokens;
    memcpy(t->ids + t->n, q->out, max_new * sizeof *t->ids);
    t->n += max_new;
    rig_expect(q, max_new);
    return cached;
}

static uint32_t whole(uint32_t tokens, uint32_t page_size)
{
    return tokens - tokens % page_size;
}

static const struct {
    uint32_t page_size, chunk;
} forms[] = {{1, 0}, {1, 24}, {16, 0}, {16, 24}, {16, 64}};

#define FOR_EACH_FORM(page, chunk)                                                                 \
    for (size_t f = 0; f < RAD_COUNT(forms); f++)                                                  \
        for (uint32_t page = forms[f].page_size, chunk = forms[f].chunk, once = 1; once; once = 0)

/* Each turn computes what is new in it: the answer's last token, which had no K/V, what was said
 * since, and the rest of a page. */
TEST(a_chat_of_ten_turns_computes_what_is_new_in_each)
{
    FOR_EACH_FORM(page, chunk)
    {
        rig g;
        text t = {.seed = 5};
        start(&g, state_params(page, chunk));
        uint32_t before = 0;
        say(&t, 100);
        for (int turn = 0; turn < 10; turn++) {
            say(&t, OWN);
            ask_for_answer(&t);
            uint32_t cached = ask(&g, &t, turn % 2 ? 3 : ANSWER),
                     want = before ? whole(before - 1, page) : 0;
            CHECKF(cached == want, "page %u, chunk %u, turn %d: %u cached, not %u\n", page, chunk,
                   turn, cached, want);
            before = t.n;
        }
        stop(&g);
    }
}

/* Regenerated: the opening of the answer is computed again; edited: the last message; with the
 * reasoning left out of what was said: all from the opening on. At most a page more. */
TEST(a_regenerated_or_edited_last_message_computes_itself)
{
    FOR_EACH_FORM(page, chunk)
    {
        rig g;
        text t = {.seed = 6};
        start(&g, state_params(page, chunk));
        say(&t, 90);
        for (int turn = 0; turn < 3; turn++) {
            say(&t, OWN);
            ask_for_answer(&t);
            text asked = t, edited = t;
            ask(&g, &t, ANSWER);
            uint32_t cached = ask(&g, &asked, ANSWER);
            CHECKF(cached == whole(asked.opening, page), "page %u: %u of %u cached\n", page, cached,
                   asked.opening);
            edited.n = edited.message;
            say(&edited, OWN + 7);
            ask_for_answer(&edited);
            cached = ask(&g, &edited, ANSWER);
            CHECKF(cached == whole(edited.message, page), "page %u: %u of %u cached\n", page,
                   cached, edited.message);
        }
        /* A template that leaves the reasoning out of what was said before. */
        say(&t, OWN);
        ask_for_answer(&t);
        text next = t;
        ask(&g, &t, ANSWER);
        memcpy(next.ids + next.opening, t.ids + next.opening, 2 * sizeof *t.ids);
        next.n = next.opening + 2;
        for (uint32_t i = 12; i < ANSWER; i++)
            next.ids[next.n++] = t.ids[next.opening + 3 + i];
        say(&next, OWN);
        ask_for_answer(&next);
        uint32_t opening = t.opening, cached = ask(&g, &next, ANSWER);
        CHECKF(cached == whole(opening, page), "page %u: %u of %u cached\n", page, cached, opening);
        stop(&g);
    }
}

/* Five users, and states for two answers or so at a time: what the fourth's answer began with is
 * there still when the template leaves its reasoning out, since the answer's end has not taken its
 * place. */
TEST(an_answers_end_does_not_push_out_what_it_began_with)
{
    FOR_EACH_FORM(page, chunk)
    {
        rig g;
        text t[5];
        scheduler_params p = state_params(page, chunk);
        p.max_states = page > 1 ? 7 : 6;
        start(&g, p);
        for (uint64_t i = 0; i < 5; i++) {
            t[i] = (text){.seed = 70 + i};
            say(&t[i], 70);
            ask_for_answer(&t[i]);
            text asked = t[i];
            ask(&g, &t[i], ANSWER);
            t[i].n = asked.n;
        }
        t[3].n = t[3].opening + 2;
        say(&t[3], OWN);
        ask_for_answer(&t[3]);
        uint32_t opening = 71, cached = ask(&g, &t[3], ANSWER);
        CHECKF(cached == whole(opening, page), "page %u: %u cached\n", page, cached);
        stop(&g);
    }
}

/* Where turns are not known, a prompt that comes again goes on before its last token. */
TEST(without_turns_the_last_page_of_a_prompt_is_left)
{
    FOR_EACH_FORM(page, chunk)
    {
        rig g;
        text t = {.seed = 8};
        scheduler_params p = state_params(page, chunk);
        p.turn_token = 0;
        start(&g, p);
        say(&t, 150);
        text again = t;
        CHECK(ask(&g, &t, 1) == 0);
        uint32_t n = again.n, cached = ask(&g, &again, 0);
        CHECKF(cached == whole(n - 1, page), "%u of %u cached\n", cached, n);
        stop(&g);
    }
}

/* 16 requests behind one text, one after the other: the first finds nothing, the second K/V but no
 * state behind the text, and leaves one; the others compute their own. All at once: the first
 * leaves it, since others wait for it. */
TEST(sixteen_branches_compute_their_stem_twice_or_once)
{
    enum { BRANCHES = 16, STEM = 300 };
    FOR_EACH_FORM(page, chunk)
    {
        for (int together = 0; together < 2; together++) {
            rig g;
            text t[BRANCHES];
            rig_req *q[BRANCHES];
            scheduler_params p = state_params(page, chunk);
            p.turn_token = 0;
            start(&g, p);
            t[0] = (text){.seed = 9};
            say(&t[0], STEM - 1);
            for (uint32_t i = 1; i < BRANCHES; i++)
                t[i] = t[0];
            for (uint32_t i = 0; i < BRANCHES; i++) {
                t[i].seed = 1000 + i;
                say(&t[i], OWN);
                t[i].ids[STEM] = (rad_token)(200 + i); /* here they part */
                q[i] = rig_add(&g, t[i].ids, t[i].n, 4);
                if (!together) rig_run(&g);
            }
            rig_run(&g);
            uint64_t computed = rig_stats(&g).prefill_tokens;
            const uint32_t own = t[0].n - whole(STEM, page);
            for (uint32_t i = 0; i < BRANCHES; i++) {
                uint32_t want = i > !together ? whole(STEM, page) : 0;
                CHECKF(q[i]->cached_tokens == want, "page %u, branch %u: %u cached, not %u\n", page,
                       i, q[i]->cached_tokens, want);
                if (!together) /* and the second one is told why it found nothing */
                    CHECK((q[i]->r.why.device.why == RAD_END_STATE) == (i == 1));
                rig_expect(q[i], 4);
            }
            uint32_t stems = together ? 1 : 2;
            CHECK(computed == stems * t[0].n + (BRANCHES - stems) * own);
            stop(&g);
        }
    }
}

/* n > 1: siblings compute the last token, and what of its page is before it. */
TEST(siblings_of_one_prompt_compute_it_once)
{
    FOR_EACH_FORM(page, chunk)
    {
        rig g;
        text t = {.seed = 11};
        rig_req *q[4];
        start(&g, state_params(page, chunk));
        say(&t, 200);
        ask_for_answer(&t);
        for (int i = 0; i < 4; i++)
            q[i] = rig_add(&g, t.ids, t.n, ANSWER);
        rig_run(&g);
        for (int i = 0; i < 4; i++) {
            uint32_t want = i ? whole(t.n - 1, page) : 0;
            CHECKF(q[i]->cached_tokens == want, "%u cached, not %u\n", q[i]->cached_tokens, want);
            rig_expect(q[i], ANSWER);
        }
        stop(&g);
    }
}

/* A long prompt leaves one every interval; of many that there is no room for, every second. */
TEST(a_long_prompt_leaves_snapshots_on_the_way)
{
    FOR_EACH_FORM(page, chunk)
    {
        for (uint32_t states = 0; states < 2; states++) {
            rig g;
            text t = {.seed = 12};
            scheduler_params p = state_params(page, chunk);
            p.turn_token = 0;
            p.state_interval = 96;
            p.max_states = states ? 16 : 0; /* a quarter of 16 is less than ten */
            start(&g, p);
            say(&t, 1050);
            CHECK(ask(&g, &t, 1) == 0);
            const uint32_t interval = states ? 384 : 96;
            for (uint32_t n = 999; n > 300; n -= 333) {
                text cut = t;
                cut.n = n;
                cut.ids[n - 1] ^= 1; /* it parts one token before its end */
                rig_req *q = rig_add(&g, cut.ids, n, 0);
                rig_run(&g);
                uint32_t want = (n - 1) / interval * interval;
                CHECKF(q->cached_tokens == want, "page %u: %u of %u cached, not %u\n", page,
                       q->cached_tokens, n, want);
                rig_expect(q, 0);
            }
            stop(&g);
        }
    }
}

static rig_req *add_turn(rig *g, uint32_t session, const text *t)
{
    return rig_add_as(g, (req_params){.ids = t->ids,
                                      .num_ids = t->n,
                                      .max_new_tokens = ANSWER,
                                      .sampling = {.top_p = 1},
                                      .session = session});
}

static rig_req *run_turn(rig *g, uint32_t session, const text *t)
{
    rig_req *q = add_turn(g, session, t);
    rig_run(g);
    return q;
}

/* A streaming session goes on within a page, from the state that its last turn worked with; when it
 * was given back, from its last whole page. */
TEST(a_streaming_session_goes_on_from_its_own_state)
{
    FOR_EACH_FORM(page, chunk)
    {
        rig g;
        text t = {.seed = 14};
        scheduler_params p = state_params(page, chunk);
        p.max_sessions = 3;
        p.streaming_sessions = true;
        p.max_states = 6;
        start(&g, p);
        uint32_t session, before = 0;
        CHECK_OK(scheduler_session_open(g.s, &session, NULL));
        for (int turn = 0; turn < 6; turn++) {
            say(&t, OWN);
            ask_for_answer(&t);
            rig_req *q = run_turn(&g, session, &t);
            uint32_t want = !before ? 0 : turn == 4 ? whole(before - 1, page) : before - 1;
            CHECKF(q->cached_tokens == want, "page %u, turn %d: %u of %u cached\n", page, turn,
                   q->cached_tokens, before);
            memcpy(t.ids + t.n, q->out, ANSWER * sizeof *t.ids);
            before = t.n += ANSWER;
            rig_expect(q, ANSWER);
            if (turn == 3) CHECK(rad_session_release_idle(g.s->pools.tree_cache, 1) == 1);
        }
        CHECK_OK(scheduler_session_close(g.s, session, NULL));
        stop(&g);
    }
}

/* All other states are held by somebody who gives none back: the request is told so, although each
 * attempt leaves its session idle with what it matched, and that could be released once more. */
TEST(a_session_that_cannot_get_on_is_not_tried_for_ever)
{
    rig g;
    text t = {.seed = 18};
    scheduler_params p = state_params(16, 0);
    p.max_sessions = 2;
    p.streaming_sessions = true;
    p.max_states = 6;
    start(&g, p);
    say(&t, 100);
    ask(&g, &t, 1);
    rad_state_pool *pool = g.s->pools.states.pool;
    rad_state held[6] = {0};
    for (uint32_t n = 0; rad_state_alloc(pool, &held[n]) == RAD_OK; n++)
        CHECK(n < 5);
    rad_key key = {.tokens = t.ids, .num_tokens = t.n};
    rad_match match;
    rad_receipt receipt;
    CHECK_OK(rad_cache_match_prefix(g.s->pools.tree_cache, &key, NULL, &match, NULL));
    CHECK(match.prefix_tokens == 96 && rad_cache_state_evictable_size(g.s->pools.tree_cache) == 1);
    CHECK_OK(rad_cache_inc_lock_ref(g.s->pools.tree_cache, match.last_node, &receipt, NULL));
    uint32_t session;
    CHECK_OK(scheduler_session_open(g.s, &session, NULL));
    rig_req *q = add_turn(&g, session, &t);
    for (int i = 0; i < 10 && !q->finish; i++) /* the rig's own check would miss what is held */
        (void)scheduler_step(g.s);
    CHECK(q->finish == REQ_FINISH_ERROR && q->r.error.status == RAD_E_NOMEM);
    CHECKF(strstr(q->r.error.text, "6 recurrent states has none"), "%s\n", q->r.error.text);
    rig_drop(q);
    CHECK_OK(rad_cache_dec_lock_ref(g.s->pools.tree_cache, &receipt, NULL));
    for (uint32_t n = 0; n < 6 && held[n]; n++)
        CHECK_OK(rad_state_free(pool, held[n]));
    q = run_turn(&g, session, &t);
    CHECK(q->cached_tokens == 96);
    rig_expect(q, ANSWER);
    CHECK_OK(scheduler_session_close(g.s, session, NULL));
    stop(&g);
}

/* A later turn leaves nothing in the tree. One that is sent otherwise goes on where it began all
 * the same, with pages of one token; with larger ones from what the tree has of the first prompt.
 */
TEST(a_streaming_turn_that_is_taken_back_goes_on_where_it_began)
{
    FOR_EACH_FORM(page, chunk)
    {
        rig g;
        text t = {.seed = 15};
        scheduler_params p = state_params(page, chunk);
        p.max_sessions = 2;
        p.streaming_sessions = true;
        start(&g, p);
        uint32_t session, before = 0;
        CHECK_OK(scheduler_session_open(g.s, &session, NULL));
        for (int turn = 0; turn < 7; turn++) {
            text again = t;
            again.seed += 100;
            for (int time = 0; time < 2; time++) { /* the second one is another's words */
                text *now = time ? &again : &t;
                say(now, OWN);
                ask_for_answer(now);
                rig_req *q = run_turn(&g, session, now);
                bool exact = before && (page == 1 || !time);
                CHECKF(!exact || q->cached_tokens == before - 1,
                       "page %u, turn %d, time %d: %u of %u cached\n", page, turn, time,
                       q->cached_tokens, before);
                memcpy(now->ids + now->n, q->out, ANSWER * sizeof *now->ids);
                now->n += ANSWER;
                rig_expect(q, ANSWER);
            }
            t = again;
            before = t.n;
        }
        CHECK_OK(scheduler_session_close(g.s, session, NULL));
        stop(&g);
    }
}

/* Idle sessions are in nobody's way, with the fewest states that there can be. */
TEST(an_idle_session_gives_its_states_up)
{
    FOR_EACH_FORM(page, chunk)
    {
        rig g;
        text t[2] = {{.seed = 15}, {.seed = 16}};
        scheduler_params p = state_params(page, chunk);
        p.max_sessions = 2;
        p.streaming_sessions = true;
        p.max_states = STATE_LEAST;
        start(&g, p);
        uint32_t session[2];
        for (int i = 0; i < 2; i++)
            CHECK_OK(scheduler_session_open(g.s, &session[i], NULL));
        for (int turn = 0; turn < 6; turn++) {
            text *mine = &t[turn % 2];
            say(mine, OWN);
            ask_for_answer(mine);
            rig_req *q = run_turn(&g, session[turn % 2], mine);
            memcpy(mine->ids + mine->n, q->out, ANSWER * sizeof *mine->ids);
            mine->n += ANSWER;
            rig_expect(q, ANSWER);
        }
        CHECK(rig_stats(&g).sessions.dropped > 0);
        for (int i = 0; i < 2; i++)
            CHECK_OK(scheduler_session_close(g.s, session[i], NULL));
        stop(&g);
    }
}

/* What was computed before an abort or a retraction is gone on from. */
TEST(an_aborted_prompt_is_gone_on_from_where_it_was)
{
    for (uint32_t page = 1; page <= 16; page += 15) {
        rig g;
        text t = {.seed = 13};
        start(&g, state_params(page, 64));
        say(&t, 400);
        rig_req *q = rig_add(&g, t.ids, t.n, 5);
        rig_step(&g);
        rig_step(&g);
        scheduler_cancel(g.s, &q->r, REQ_FINISH_ABORT);
        rig_run(&g);
        CHECK(q->finish == REQ_FINISH_ABORT);
        rig_drop(q);
        CHECK(ask(&g, &t, 5) == 128);

        gear_retract_every(4); /* requests come back again and again, and lose what a page holds */
        text more[3];
        rig_req *r[3];
        for (int i = 0; i < 3; i++) {
            more[i] = (text){.seed = 20 + (uint64_t)i};
            say(&more[i], 100);
            r[i] = rig_add(&g, more[i].ids, more[i].n, ANSWER);
        }
        uint64_t before = rig_stats(&g).prefill_tokens;
        rig_run(&g);
        gear_retract_every(0);
        scheduler_stats st = rig_stats(&g);
        CHECK(st.num_retractions > 3);
        uint64_t again = st.prefill_tokens - before - 3 * (uint64_t)more[0].n;
        CHECKF(again <= st.num_retractions * page, "%llu tokens for %llu retractions\n",
               (unsigned long long)again, (unsigned long long)st.num_retractions);
        for (int i = 0; i < 3; i++)
            rig_expect(r[i], ANSWER);
        stop(&g);
    }
}

/* The fewest states there can be, for many requests: one at a time, and none is lost. */
TEST(requests_take_turns_when_states_are_few)
{
    for (uint32_t states = STATE_LEAST; states < 8; states += 2) {
        for (uint32_t page = 1; page <= 16; page += 15) {
            rig g;
            text t[6];
            rig_req *q[6];
            scheduler_params p = state_params(page, 24);
            p.max_states = states;
            start(&g, p);
            for (uint32_t i = 0; i < 6; i++) {
                t[i] = (text){.seed = i < 3 ? 31 : 40 + i};
                say(&t[i], 120 + 10 * i);
                q[i] = rig_add(&g, t[i].ids, t[i].n, ANSWER);
            }
            uint32_t most = 0;
            while (!scheduler_is_idle(g.s)) {
                CHECK(rig_step(&g));
                most = RAD_MAX(most, rig_stats(&g).num_running);
            }
            CHECKF(most >= 1 && most <= states, "%u of %u states\n", most, states);
            for (uint32_t i = 0; i < 6; i++)
                rig_expect(q[i], ANSWER);
            CHECK(rig_stats(&g).num_retractions == 0);
            stop(&g);
        }
    }
}

/* A request's own and what it goes on from are all there is: the chat goes on from the last page of
 * each prompt all the same, however short the answers are. */
static uint32_t foretell(void *user, const req *r, rad_token *out, uint32_t room)
{
    (void)user;
    rad_token ids[MOST_TEXT];
    uint32_t n = req_num_fill(r);
    memcpy(ids, r->fill_ids, n * sizeof *ids);
    for (uint32_t i = 0; i < room; i++, n++)
        out[i] = ids[n] = runner_fake_next_of(&rig_fake, ids, n);
    return room;
}

/* What stands behind each guess takes a state: all that are left, but none that somebody waits
 * for. */
TEST(guesses_hold_nobody_up)
{
    enum { LONG = 300 };
    FOR_EACH_FORM(page, chunk)
    {
        rig g;
        text a = {.seed = 5}, b = {.seed = 6};
        scheduler_params p = state_params(page, chunk);
        p.max_states = 8;
        p.max_draft_tokens = 16;
        p.draft_given.propose = foretell;
        start(&g, p);
        g.s->drafts.at_any_price = true;
        say(&a, 70);
        say(&b, 20);
        rig_req *first = rig_add(&g, a.ids, a.n, LONG);
        while (first->num_out < LONG / 4)
            rig_step(&g);
        CHECK(rig_stats(&g).drafts.accepted[DRAFT_GIVEN] > LONG / 8);
        rig_req *second = rig_add(&g, b.ids, b.n, ANSWER);
        rig_step(&g);
        CHECKF(second->admissions == 1, "page %u, chunk %u\n", page, chunk);
        rig_run(&g);
        rig_expect(first, LONG);
        rig_expect(second, ANSWER);
        stop(&g);
    }
}

/* A pool full of snapshots loses few of them to guesses, which are made all the same. */
TEST(guesses_push_out_few_snapshots)
{
    enum { STATES = 32, TEXTS = 24, LONG = 300 };
    FOR_EACH_FORM(page, chunk)
    {
        uint64_t evicted[2];
        for (int drafts = 0; drafts < 2; drafts++) {
            static text texts[TEXTS + 1];
            rig g;
            scheduler_params p = state_params(page, chunk);
            p.max_total_tokens = 16384;
            p.max_states = STATES;
            p.max_draft_tokens = 16;
            p.draft_given.propose = foretell;
            start(&g, p);
            g.s->drafts.at_any_price = true;
            scheduler_set_drafts(g.s, false);
            for (uint32_t i = 0; i < TEXTS; i++) {
                texts[i] = (text){.seed = 100 + i};
                say(&texts[i], 60);
                ask(&g, &texts[i], ANSWER);
            }
            const scheduler_stats before = rig_stats(&g);
            CHECK(before.states_available <= STATE_LEAST &&
                  before.states_evictable >= STATES - STATE_LEAST);
            scheduler_set_drafts(g.s, drafts);
            texts[TEXTS] = (text){.seed = 99};
            say(&texts[TEXTS], 60);
            ask(&g, &texts[TEXTS], LONG);
            const scheduler_stats after = rig_stats(&g);
            evicted[drafts] = after.states_evicted - before.states_evicted;
            CHECK(!drafts || after.drafts.accepted[DRAFT_GIVEN] > LONG / 2);
            stop(&g);
        }
        CHECKF(evicted[1] <= evicted[0] + STATES / 8, "page %u, chunk %u: %llu, not %llu\n", page,
               chunk, (unsigned long long)evicted[1], (unsigned long long)evicted[0]);
    }
}

TEST(a_chat_goes_on_with_two_states)
{
    FOR_EACH_FORM(page, chunk)
    {
        for (uint32_t answer = 1; answer <= ANSWER; answer += ANSWER - 1) {
            rig g;
            text t = {.seed = 19};
            scheduler_params p = state_params(page, chunk);
            p.max_states = STATE_LEAST;
            start(&g, p);
            uint32_t before = 0;
            say(&t, 100);
            for (int turn = 0; turn < 8; turn++) {
                say(&t, OWN);
                ask_for_answer(&t);
                uint32_t cached = ask(&g, &t, answer), want = before ? whole(before - 1, page) : 0;
                CHECKF(cached == want, "page %u, chunk %u, turn %d: %u cached, not %u\n", page,
                       chunk, turn, cached, want);
                before = t.n;
            }
            stop(&g);
        }
    }
}

/* Where the cache keeps nothing, a request takes a state to work with and no other. */
TEST(without_a_cache_nobody_takes_snapshots)
{
    FOR_EACH_FORM(page, chunk)
    {
        rig g;
        text t = {.seed = 20};
        scheduler_params p = state_params(page, chunk);
        p.cache_kind = RAD_CACHE_CHUNK;
        p.state_interval = 32;
        p.max_states = 4;
        start(&g, p);
        say(&t, 100);
        say(&t, OWN);
        ask_for_answer(&t);
        rig_req *q[4];
        for (int i = 0; i < 4; i++)
            q[i] = rig_add(&g, t.ids, t.n, ANSWER);
        uint32_t most = 0;
        while (!scheduler_is_idle(g.s)) {
            CHECK(rig_step(&g));
            scheduler_stats st = rig_stats(&g);
            CHECK(g.s->batch.num_saves == 0);
            CHECK(st.states_total - st.states_available == st.num_running);
            most = RAD_MAX(most, st.num_running);
        }
        CHECK(most == 4 && rig_stats(&g).states_unsaved == 0);
        for (int i = 0; i < 4; i++)
            rig_expect(q[i], ANSWER);
        stop(&g);
    }
}

/* The cache goes and comes back in the same memory; without one a request has its own state. */
TEST(the_cache_is_changed_over_the_same_states)
{
    rig g;
    text t = {.seed = 17};
    start(&g, state_params(1, 24));
    say(&t, 100);
    text again = t;
    CHECK(ask(&g, &t, 5) == 0);
    CHECK_OK(scheduler_set_cache(g.s, RAD_CACHE_CHUNK, true, NULL));
    CHECK(rig_stats(&g).states_available == rig_stats(&g).states_total);
    for (int i = 0; i < 2; i++) {
        t = again;
        CHECK(ask(&g, &t, 5) == 0);
    }
    CHECK_OK(scheduler_set_cache(g.s, RAD_CACHE_RADIX, true, NULL));
    t = again;
    CHECK(ask(&g, &t, 5) == 0);
    CHECK(ask(&g, &again, 5) == 100);
    stop(&g);
}

/* ---- a snapshot of elsewhere ---- */

static struct {
    const runner_ops *real;
    runner_ops ops;
    forward_state_save saves[STATE_MOST_POINTS];
    enum { FAULT_SAVE, FAULT_IN } fault;
    uint64_t faults;
} tampered;

/* Each save of a chunk is made a token early, or a request goes on from another's state. (A batch
 * that names a state of another's for it is refused, see batch_check.) */
static rad_status tampered_forward(runner *self, const forward_batch *b, const float **logits,
                                   rad_error *err)
{
    forward_batch batch = *b;
    if (tampered.fault == FAULT_SAVE && b->num_state_saves) {
        memcpy(tampered.saves, b->state_saves, b->num_state_saves * sizeof *b->state_saves);
        for (uint32_t i = 0; i < b->num_state_saves; i++)
            if (tampered.saves[i].tokens > 1) tampered.saves[i].tokens--, tampered.faults++;
        batch.state_saves = tampered.saves;
    }
    if (tampered.fault == FAULT_IN && b->num_reqs > 1 && b->state_in[0] && b->state_in[1])
        tampered.faults += rad_state_copy(b->state_pool, b->state_in[1], b->state_in[0]) == RAD_OK;
    return tampered.real->forward(self, &batch, logits, err);
}

TEST(a_snapshot_at_another_position_and_a_state_of_another_request_are_noticed)
{
    for (int fault = FAULT_SAVE; fault <= FAULT_IN; fault++) {
        rig g;
        text t = {.seed = 50};
        start(&g, state_params(1, 0));
        memset(&tampered, 0, sizeof tampered);
        tampered.fault = fault;
        tampered.real = g.runner->ops;
        tampered.ops = *g.runner->ops;
        tampered.ops.forward = tampered_forward;
        g.runner->ops = &tampered.ops;
        say(&t, 60);
        say(&t, OWN);
        ask_for_answer(&t);
        rig_req *q[2];
        for (int i = 0; i < 2; i++) {
            if (fault == FAULT_IN) t.ids[1] = (rad_token)i; /* two that share nothing */
            q[i] = rig_add(&g, t.ids, t.n, 8);
            if (fault == FAULT_SAVE) rig_run(&g);
        }
        rig_run(&g);
        uint32_t wrong = 0;
        for (int i = 0; i < 2; i++) {
            rad_token ids[200];
            memcpy(ids, q[i]->r.fill_ids, t.n * sizeof *ids);
            for (uint32_t k = 0; k < q[i]->num_out; k++) {
                wrong += q[i]->out[k] != runner_fake_next_of(&rig_fake, ids, t.n + k);
                ids[t.n + k] = q[i]->out[k];
            }
            CHECK(q[i]->finish == REQ_FINISH_LENGTH);
            rig_drop(q[i]);
        }
        CHECKF(tampered.faults > 0 && wrong > 0, "%d: %llu faults, %u wrong tokens\n", fault,
               (unsigned long long)tampered.faults, wrong);
        g.runner->ops = tampered.real;
        stop(&g);
    }
}

/* ---- create ---- */

TEST(states_that_cannot_work_are_refused_and_create_survives_want_of_memory)
{
    rig_fake.states = 1;
    runner *fake;
    scheduler *s;
    rad_error err = {0};
    scheduler_params p = state_params(1, 0);
    p.max_states = 1;
    CHECK_OK(runner_fake_create(NULL, &rig_fake, &fake, NULL));
    p.runner = fake;
    p.on_output = rig_on_output;
    CHECK(scheduler_create(NULL, &p, &s, &err) == RAD_E_INVAL && !s);
    CHECKF(strstr(err.text, "needs 2 states at least, not 1"), "%s\n", err.text);
    runner_destroy(fake);
    p.max_states = 0;
    rig_create_failing(p);
    rig_fake.states = 0;
    rig g; /* without recurrent layers nothing is made */
    p.max_states = 10;
    rig_start(&g, p);
    CHECK(rig_stats(&g).states_total == 0);
    rig_stop(&g);
}

TEST_MAIN()
