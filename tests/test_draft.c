/* test_draft.c - what is guessed from a request's own text, and how much of a guess is tried: by
 * what rows cost and how often the guess was right, on a clock that only a script moves. */
#include "scheduler_rig.h"

#include "sched/draft_ngram.h"

/* ---- the index of a text ---- */

/* The longest of all places, the latest among equals, looked for in the plain way. */
static uint32_t naive_match(const rad_token *ids, uint32_t n, uint32_t *at)
{
    uint32_t best = 0;
    for (uint32_t end = 1; end < n; end++) {
        uint32_t same = 0;
        while (same < end && same < NGRAM_LONGEST && ids[end - 1 - same] == ids[n - 1 - same])
            same++;
        if (same >= best) best = same, *at = end;
    }
    return best;
}

/* Few kinds of tokens, so that nearly everything stood there before, at more places than are
 * looked at; so what is found may be shorter than the longest, and is never wrong. */
TEST(a_proposal_is_what_stood_behind_the_same_tokens)
{
    uint64_t seed = test_told_seed();
    const rad_env env = rad_env_or_default(NULL);
    ngram_pool pool = {0};
    uint32_t longest = 0, found = 0;
    for (int round = 0; round < 40; round++) {
        ngram_index *index = ngram_take(&pool, &env);
        rad_token ids[400], out[16];
        uint32_t n = (uint32_t)(test_random(&seed) % 50), kinds = 2 + round % 20;
        for (uint32_t i = 0; i < 400; i++) {
            ids[i] = (rad_token)(test_random(&seed) % kinds);
            if (i > 60 && test_random(&seed) % 8) ids[i] = ids[i - 50];
        }
        for (; n < 400; n += 1 + (uint32_t)(test_random(&seed) % 3)) {
            uint32_t match = 99, at = 0, want = naive_match(ids, n, &at);
            uint32_t count = ngram_propose(index, ids, n, out, 16, &match);
            CHECK(match <= want && count == (match ? 16 : 0));
            CHECK(want < NGRAM_KEY ? !match : match >= NGRAM_KEY);
            longest += match == want;
            found += match > 0;
            if (!match) continue;
            bool somewhere = false; /* behind a place with so many equal tokens */
            for (uint32_t end = match; end < n && !somewhere; end++) {
                somewhere = !memcmp(ids + end - match, ids + n - match, match * sizeof *ids);
                for (uint32_t i = 0; i < 16; i++) /* which may go on behind its own end */
                    somewhere = somewhere &&
                                out[i] == (end + i < n ? ids[end + i] : out[end + i - n]);
            }
            CHECKF(somewhere, "round %d, %u tokens\n", round, n);
        }
        ngram_put_back(&pool, index);
    }
    CHECK(found > 1000 && longest > found / 2);
    ngram_pool_fini(&pool, &env);
}

/* A text longer than the ring, and one token repeated: neither is found wrongly, nor for long. */
TEST(an_index_knows_the_last_tokens_of_a_text_of_any_length)
{
    enum { LENGTH = 3 * NGRAM_TOKENS };
    static rad_token ids[LENGTH + 64];
    const rad_env env = rad_env_or_default(NULL);
    ngram_pool pool = {0};
    ngram_index *index = ngram_take(&pool, &env);
    rad_token out[4];
    uint32_t match;
    for (uint32_t i = 0; i < LENGTH; i++)
        ids[i] = (rad_token)i;
    for (uint32_t back = NGRAM_TOKENS / 2; back <= 2 * NGRAM_TOKENS; back *= 2) {
        memcpy(ids + LENGTH, ids + LENGTH - back, 40 * sizeof *ids);
        uint32_t count = ngram_propose(index, ids, LENGTH + 40, out, 4, &match);
        CHECK(count == (back < NGRAM_TOKENS ? 4 : 0) && match == (count ? NGRAM_LONGEST : 0));
        CHECK(!count || out[3] == (rad_token)(LENGTH - back + 43));
        ngram_put_back(&pool, index); /* the text is another one */
        CHECK(ngram_take(&pool, &env) == index);
    }
    for (uint32_t i = 0; i < LENGTH; i++) {
        ids[i] = 7;
        if (i % 64) continue;
        uint32_t count = ngram_propose(index, ids, i + 1, out, 4, &match);
        CHECK(i < NGRAM_KEY || (count == 4 && out[0] == 7 && out[3] == 7));
    }
    ngram_put_back(&pool, index);
    ngram_index *all[NGRAM_INDEXES];
    for (int i = 0; i < NGRAM_INDEXES; i++)
        CHECK((all[i] = ngram_take(&pool, &env)));
    CHECK(!ngram_take(&pool, &env)); /* bounded */
    for (int i = 0; i < NGRAM_INDEXES; i++)
        ngram_put_back(&pool, all[i]);
    ngram_pool_fini(&pool, &env);
}

/* ---- how many ---- */

static struct {
    double step, row; /* ns: a step of one row, and what a further one adds */
    uint64_t forwards, rows;
    test_env clock;
    const runner_ops *real;
    runner_ops ops;
    uint32_t wrong_from; /* of a proposal: tokens from there on are wrong */
    uint32_t asked;
} script;

static rad_status scripted_forward(runner *self, const forward_batch *b, const float **logits,
                                   rad_error *err)
{
    script.forwards++;
    script.rows += b->num_tokens;
    script.clock.now += (uint64_t)(script.step + script.row * (b->num_tokens - 1.0));
    return script.real->forward(self, b, logits, err);
}

/* What the oracle says, up to wrong_from. */
static uint32_t oracle(void *user, const req *r, rad_token *out, uint32_t room)
{
    (void)user;
    static rad_token ids[4096];
    uint32_t n = req_num_fill(r);
    memcpy(ids, r->fill_ids, n * sizeof *ids);
    for (uint32_t i = 0; i < room; i++, n++) {
        ids[n] = runner_fake_next_of(&rig_fake, ids, n);
        out[i] = i < script.wrong_from ? ids[n] : (ids[n] + 1) % RIG_VOCAB;
    }
    script.asked++;
    return room;
}

enum { IDS = 40, NEW = 400 };

/* Answers of `num_reqs` requests at one time; returns the decode steps that they took. */
static uint64_t run_script(uint32_t num_reqs, uint32_t num_new, double row, uint32_t wrong_from,
                           bool ngrams, draft_stats *drafts)
{
    rig g = {.end_token = -1};
    rig_req *q[DRAFT_FULL];
    rad_token ids[IDS];
    memset(&script, 0, sizeof script);
    script.step = 4e6;
    script.row = row;
    script.wrong_from = wrong_from;
    CHECK_OK(runner_fake_create(NULL, &rig_fake, &g.runner, NULL));
    script.real = g.runner->ops;
    script.ops = *script.real;
    script.ops.forward = scripted_forward;
    g.runner->ops = &script.ops;
    rad_env env = test_env_init(&script.clock);
    scheduler_params params = rig_params(20000, 1, 0);
    params.max_running_requests = DRAFT_FULL;
    params.runner = g.runner;
    params.on_output = rig_on_output;
    params.is_end_token = rig_is_end_token;
    params.user = &g;
    params.max_draft_tokens = 8;
    params.draft_ngrams = ngrams;
    if (!ngrams) params.draft_source.propose = oracle;
    CHECK_OK(scheduler_create(&env, &params, &g.s, NULL));
    for (uint32_t i = 0; i < num_reqs; i++) {
        rig_prompt(ids, IDS, i);
        q[i] = malloc(sizeof *q[i]);
        rig_req_init(q[i], ids, IDS, num_new);
        CHECK_OK(scheduler_add(g.s, &q[i]->r, NULL));
    }
    rig_run(&g);
    scheduler_stats st = rig_stats(&g);
    *drafts = st.drafts;
    for (uint32_t i = 0; i < num_reqs; i++) {
        CHECK(q[i]->finish == REQ_FINISH_LENGTH && q[i]->num_out == num_new);
        rig_check_answer(q[i]);
        rig_drop(q[i]);
    }
    rig_stop(&g);
    CHECK(drafts->req_steps == (uint64_t)num_reqs * (num_new - 1) - drafts->accepted[DRAFT_GIVEN] -
                                   drafts->accepted[DRAFT_NGRAM]);
    return script.forwards - 1;
}

TEST(right_drafts_of_cheap_rows_take_fewer_steps)
{
    draft_stats drafts;
    uint64_t steps = run_script(1, NEW, 2e5, UINT32_MAX, false, &drafts);
    CHECKF(steps < NEW / 6, "%llu steps\n", (unsigned long long)steps);
    CHECK(drafts.proposed[DRAFT_GIVEN] == drafts.accepted[DRAFT_GIVEN]);
    steps = run_script(4, NEW, 2e5, UINT32_MAX, false, &drafts);
    CHECKF(steps < NEW / 6, "%llu steps for 4\n", (unsigned long long)steps);
}

/* Time is what matters: with these prices it must not be more than without drafts, and a try. */
TEST(drafts_that_do_not_pay_are_hardly_tried)
{
    static const struct {
        double row;
        uint32_t num_reqs, wrong_from;
    } cases[] = {
        {2e5, 1, 0},                  /* always wrong */
        {8e6, 1, UINT32_MAX},         /* right, and dearer than steps */
        {3e6, 1, 1},                  /* one of each right, at three quarters of a step */
        {2e5, DRAFT_FULL, UINT32_MAX} /* a full batch */
    };
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        draft_stats drafts;
        const uint32_t num_new = cases[i].num_reqs == 1 ? NEW : 40;
        run_script(cases[i].num_reqs, num_new, cases[i].row, cases[i].wrong_from, false, &drafts);
        double without = (num_new - 1) * (script.step + script.row * (cases[i].num_reqs - 1)) +
                         script.step + script.row * (IDS * cases[i].num_reqs - 1);
        double share = (double)script.clock.now / without;
        print_message("  case %zu: %llu of %llu right, %.3f of the time without\n", i,
                      (unsigned long long)drafts.accepted[DRAFT_GIVEN],
                      (unsigned long long)drafts.proposed[DRAFT_GIVEN], share);
        CHECK(share < 1.06);
        CHECK(i < 3 || !script.asked);
    }
}

TEST_MAIN()
