/* test_draft_model.c - what a small model guesses: as far as it pays, on a clock that only a script
 * moves. */
#include "draft_rig.h"

#include "sched/draft_recent.h"

enum { NEW = 400 };

/* So many requests one after the other, `at_once` at a time, each with a prompt of its own. */
typedef struct small_story {
    uint32_t num_reqs, at_once, prompt, num_new;
    double step, row; /* ns, of the small model */
    bool wrong;       /* it is another model */
} small_story;

static struct {
    double step, row;
    uint64_t rows;
    bool wrong;
    const runner_ops *real;
    runner_ops ops;
} small;

static rad_status small_forward(runner *self, const forward_batch *b, const float **logits,
                                rad_error *err)
{
    small.rows += b->num_tokens;
    script.clock.now += (uint64_t)(small.step + small.row * (b->num_tokens - 1.0));
    const rad_status status = small.real->forward(self, b, logits, err);
    static float other[DRAFT_FULL * RIG_VOCAB];
    if (!small.wrong || !logits) return status;
    for (uint32_t i = 0; i < b->num_logits * RIG_VOCAB; i++) /* the least likely is chosen */
        other[i] = -(*logits)[i];
    *logits = other;
    return status;
}

static runner *small_runner(const small_story *story)
{
    runner *r;
    memset(&small, 0, sizeof small);
    CHECK_OK(runner_fake_create(NULL, &rig_fake, &r, NULL));
    small.wrong = story->wrong;
    small.step = story->step;
    small.row = story->row;
    small.real = r->ops;
    small.ops = *r->ops;
    small.ops.forward = small_forward;
    r->ops = &small.ops;
    return r;
}

/* Returns the time that it takes, ns. */
static double tell(const small_story *story, bool with, draft_stats *drafts)
{
    enum { MOST_PROMPT = 800 };
    rig g;
    rig_req *q[DRAFT_FULL];
    rad_token ids[MOST_PROMPT];
    scheduler_params params = rig_params(20000, 1, 512);
    params.max_draft_tokens = 8;
    params.max_running_requests = DRAFT_FULL;
    params.draft_runner = small_runner(story);
    rad_env env = test_env_init(&script.clock);
    runner *draft = params.draft_runner;
    if (!with) params.draft_runner = NULL;
    rig_start_on(&g, &env, params, 0);
    script_begin(&(draft_script){.row = 2e5}, g.runner);
    for (uint32_t i = 0; i < story->num_reqs; i += story->at_once) {
        for (uint32_t k = 0; k < story->at_once; k++) {
            rig_prompt(ids, story->prompt, i + k);
            q[k] = rig_add(&g, ids, story->prompt, story->num_new);
        }
        rig_run(&g);
        for (uint32_t k = 0; k < story->at_once; k++)
            rig_expect(q[k], story->num_new);
    }
    *drafts = rig_stats(&g).drafts;
    rig_stop(&g);
    runner_destroy(draft);
    return (double)script.clock.now;
}

/* By what its own steps take, catching up included. */
TEST(a_small_model_is_asked_as_far_as_it_pays)
{
    static const struct {
        small_story story;
        double least, most; /* of the time without it */
    } cases[] = {
        {{.num_reqs = 1, 1, IDS, NEW, .step = 4e5, .row = 2e4}, 0.2, 0.45},
        {{.num_reqs = 4, 4, IDS, NEW, .step = 4e5, .row = 2e4}, 0.2, 0.55},
        {{.num_reqs = 1, 1, 800, NEW, .step = 4e5, .row = 5e4}, 0.2, 0.6}, /* 40 ms to catch up */
        {{.num_reqs = 1, 1, IDS, NEW, .step = 4e5, .row = 2e4, .wrong = true}, 0.98, 1.06},
        {{.num_reqs = 4, 4, IDS, NEW, .step = 4e5, .row = 2e4, .wrong = true}, 0.98, 1.06},
        {{.num_reqs = 1, 1, IDS, NEW, .step = 4e6, .row = 2e5},
         0.98,
         1.06}, /* as slow as the other */
        {{.num_reqs = 3 * DRAFT_FULL, DRAFT_FULL, 100, 60, .step = 4e5, .row = 2e4},
         0.98,
         1.005}, /* full */
        {{.num_reqs = 12, 1, 800, 8, .step = 4e5, .row = 1e5},
         0.98,
         1.06}, /* not worth catching up */
    };
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        draft_stats drafts;
        const double without = tell(&cases[i].story, false, &drafts);
        CHECK(!drafts.proposed[DRAFT_MODEL] && !small.rows);
        const double share = tell(&cases[i].story, true, &drafts) / without;
        print_message("  case %zu: %llu of %llu right, %llu rows of its own, %.3f of the time "
                      "without\n",
                      i, (unsigned long long)drafts.accepted[DRAFT_MODEL],
                      (unsigned long long)drafts.proposed[DRAFT_MODEL],
                      (unsigned long long)small.rows, share);
        CHECK(share >= cases[i].least && share <= cases[i].most);
    }
}

/* Rows that the small model computes of a prompt that it has seen, by slot and namespace. */
TEST(a_cached_prefix_is_not_computed_by_the_small_model_again)
{
    enum { LONG = 300, SAID = 20 };
    static const char *const salts[] = {NULL, NULL, "another", NULL, "another"};
    const small_story story = {.step = 1};
    for (uint32_t page_size = 1; page_size <= 16; page_size += 15) {
        rig g;
        rad_token ids[LONG];
        scheduler_params params = rig_params(4096, page_size, 64);
        params.max_draft_tokens = 4;
        runner *draft = params.draft_runner = small_runner(&story);
        rig_start(&g, params);
        g.s->drafts.at_any_price = true;
        rig_prompt(ids, LONG, 1);
        for (size_t i = 0; i < RAD_COUNT(salts); i++) {
            const uint64_t rows = small.rows;
            rig_req *q = rig_add_as(&g, (req_params){.ids = ids,
                                                     .num_ids = LONG,
                                                     .max_new_tokens = SAID,
                                                     .sampling = {.top_p = 1},
                                                     .cache_salt = salts[i]});
            rig_run(&g);
            rig_expect(q, SAID);
            const uint64_t computed = small.rows - rows;
            const bool seen = i == 1 || i == 3 || i == 4;
            CHECKF(seen ? computed < SAID + 2 * page_size : computed >= LONG,
                   "page %u, request %zu: %llu rows\n", page_size, i, (unsigned long long)computed);
        }
        const draft_stats d = rig_stats(&g).drafts;
        CHECK(d.proposed[DRAFT_MODEL] && d.accepted[DRAFT_MODEL] == d.proposed[DRAFT_MODEL]);
        rig_stop(&g);
        runner_destroy(draft);
    }
}

/* Its third batch fails: the answer is the same, and nothing is guessed from then on. One with
 * recurrent layers is refused, and what fails in between leaves nothing behind. */
TEST(a_small_model_that_fails_is_not_asked_again)
{
    rig g;
    rad_token ids[IDS];
    runner_fake_params fake = rig_fake;
    scheduler_params params = rig_params(4096, 16, 64);
    rad_error err = {0};
    fake.fail_every = 3;
    params.max_draft_tokens = 4;
    CHECK_OK(runner_fake_create(NULL, &fake, &params.draft_runner, NULL));
    rig_start(&g, params);
    g.s->drafts.at_any_price = true;
    rig_prompt(ids, IDS, 1);
    for (int i = 0; i < 2; i++) {
        rig_req *q = rig_add(&g, ids, IDS, NEW / 10);
        rig_run(&g);
        rig_expect(q, NEW / 10);
        CHECK(runner_fake_asked(params.draft_runner).forwards == 3);
    }
    const draft_stats d = rig_stats(&g).drafts;
    CHECK(d.accepted[DRAFT_MODEL] == d.proposed[DRAFT_MODEL]);
    rig_stop(&g);
    params.draft_sources = draft_bit(DRAFT_RECENT);
    params.draft_recent_tokens = RECENT_LEAST;
    rig_create_failing(params);
    runner_destroy(params.draft_runner);

    fake = rig_fake;
    fake.states = 1;
    scheduler *s = NULL;
    CHECK_OK(runner_fake_create(NULL, &rig_fake, &params.runner, NULL));
    CHECK_OK(runner_fake_create(NULL, &fake, &params.draft_runner, NULL));
    params.on_output = rig_on_output;
    CHECK(scheduler_create(NULL, &params, &s, &err) == RAD_E_UNSUPPORTED && !s);
    CHECKF(strstr(err.text, "recurrent layers"), "%s\n", err.text);
    runner_destroy(params.draft_runner);
    runner_destroy(params.runner);
}

TEST_MAIN()
