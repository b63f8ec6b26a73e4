/* test_sched_itl.c - --max-itl-ms over a runner whose steps take what a script says, on a
 * clock that only the script moves. */
#include "scheduler_rig.h"

#include "sched/step_cost.h"

typedef struct script { /* ns */
    double step, decode, token, pair, end, noise, verify_rate;
    test_env clock;
    uint64_t calls;
    uint64_t told; /* when the last tokens were handed out */
    uint64_t rng;
    const runner_ops *real;
    runner_ops ops;
} script;

static script script_now;

static rad_status scripted_forward(runner *self, const forward_batch *b, const float **logits,
                                   rad_error *err)
{
    script *s = &script_now;
    double ns = s->step;
    uint32_t decodes = 0;
    s->calls++;
    for (uint32_t i = 0; i < b->num_reqs; i++) {
        bool decode = b->extend_seq_lens[i] == 1;
        decodes += decode;
        ns += decode ? s->decode : s->token * b->extend_seq_lens[i];
        ns += s->pair * step_pairs(b->extend_prefix_lens[i], b->extend_seq_lens[i]);
    }
    ns += s->end * RAD_MAX(b->num_logits, decodes) - s->end * decodes;
    double random = (double)(test_random(&s->rng) >> 11) * 0x1p-53;
    s->clock.now += (uint64_t)(ns * (1 + s->noise * (2 * random - 1)));
    return s->real->forward(self, b, logits, err);
}

static void note_output(void *user, const req_output *outputs, uint32_t count)
{
    script_now.told = script_now.clock.now;
    rig_on_output(user, outputs, count);
}

static void start(rig *g, scheduler_params params, script s)
{
    *g = (rig){.end_token = -1};
    runner_fake_params fake = {.vocab_size = RIG_VOCAB, .context_length = 16384};
    CHECK_OK(runner_fake_create(NULL, &fake, &g->runner, NULL));
    s.real = g->runner->ops;
    script_now = s;
    rad_env env = test_env_init(&script_now.clock);
    script_now.ops = *s.real;
    script_now.ops.forward = scripted_forward;
    g->runner->ops = &script_now.ops;
    params.runner = g->runner;
    params.on_output = note_output;
    params.verify_rate = s.verify_rate;
    params.on_admit = rig_on_admit;
    params.is_end_token = rig_is_end_token;
    params.user = g;
    CHECK_OK(scheduler_create(&env, &params, &g->s, NULL));
}

/* One request decodes while long prompts come in one after the other. Returns the longest
 * gap between two of its tokens, in ns, the first few mixed steps apart. */
static uint64_t verified; /* chunks, while others ran */
static uint64_t longest_gap(uint64_t max_itl_ns, script s, uint32_t *steps, uint32_t longest)
{
    rig g;
    static rad_token ids[10000];
    rig_prompt(ids, 10000, 800);
    scheduler_params params = rig_params(60000, 1, 2048);
    params.max_itl_ns = max_itl_ns;
    start(&g, params, s);
    rig_req *decoding = rig_add(&g, ids, 20, 500);
    rig_prompt(ids, 10000, 799);
    rig_req *early = rig_add(&g, ids, 3000, 1); /* something to verify beside the others */
    while (decoding->num_out < 5 || !early->finish)
        scheduler_step(g.s);
    rig_check_answer(early);
    rig_drop(early);
    rig_req *prompts[3];
    for (int i = 0; i < 3; i++) {
        rig_prompt(ids, 10000, 801 + i);
        prompts[i] = rig_add(&g, ids, longest, 3);
    }
    uint64_t gap = 0, before = script_now.told;
    *steps = 0;
    while (!(prompts[0]->finish && prompts[1]->finish && prompts[2]->finish)) {
        uint32_t outputs = decoding->num_out;
        scheduler_step(g.s);
        ++*steps;
        CHECK(decoding->finish || decoding->num_out == outputs + 1); /* a token in every step */
        if (decoding->finish) break;
        if (*steps > 3) gap = RAD_MAX(gap, script_now.told - before);
        before = script_now.told;
    }
    CHECK(prompts[0]->finish || decoding->finish);
    rig_run(&g);
    scheduler_stats st;
    scheduler_get_stats(g.s, &st);
    verified = script_now.calls - st.forward_steps;
    while (scheduler_step(g.s)) {
    }
    rig_check_answer(decoding);
    rig_drop(decoding);
    for (int i = 0; i < 3; i++) { /* chunks are not what they were, the answers are */
        CHECK(prompts[i]->finish == REQ_FINISH_LENGTH && prompts[i]->num_out == 3);
        rig_check_answer(prompts[i]);
        rig_drop(prompts[i]);
    }
    rig_stop(&g);
    return gap;
}

/* One request that decodes all the time: what a step costs apart from it is not known, but what
 * both cost together is, whatever the noise; and what prompts cost is as it was. */
TEST(the_cost_of_what_always_comes_together_is_its_sum)
{
    step_cost c;
    uint64_t rng = test_told_seed();
    step_cost_init(&c);
    const step_work prompt = {.prompt_tokens = 400, .prompt_ends = 1, .pairs = step_pairs(0, 400)};
    step_cost_observe(&c, &prompt, 2e6 + 5e4 * 400);
    for (uint32_t i = 0; i < 3000; i++) {
        const step_work w = {.num_decodes = 1, .pairs = 400 + i};
        const double random = (double)(test_random(&rng) >> 11) * 0x1p-53;
        step_cost_observe(&c, &w, 4e6 * (1 + 0.2 * (random - 0.5)));
        const double ns = step_cost_ns(&c, &w);
        if (i > 20) CHECKF(ns > 3.6e6 && ns < 4.4e6, "step %u: %.0f\n", i, ns);
        for (int k = 0; k < STEP_COST_TERMS; k++)
            CHECK(c.ls.theta[k] >= 0);
    }
    const double ns = step_cost_ns(&c, &prompt);
    CHECKF(ns > 1e7 && ns < 4e7, "%.0f\n", ns);
}

static const script plain = {.step = 2e6, .decode = 2e5, .token = 5e4, .rng = 1};

TEST(without_a_limit_a_gap_is_as_long_as_a_chunk)
{
    uint32_t steps;
    uint64_t gap = longest_gap(0, plain, &steps, 6000);
    CHECK(gap > 100000000 && steps < 16);
}

TEST(the_gap_between_two_tokens_stays_below_the_limit)
{
    uint32_t steps;
    for (uint64_t ms = 10; ms <= 80; ms *= 2) {
        uint64_t gap = longest_gap(ms * 1000000, plain, &steps, 6000);
        CHECKF(gap <= ms * 1000000, "%llu ms: %.3f\n", (unsigned long long)ms, (double)gap * 1e-6);
        /* and it is used: the prompts (18,000 tokens at 50 us) do not take twice their time */
        CHECKF(steps < 2 * 18000 * 5e4 / (ms * 1e6 - 2.2e6), "%llu ms: %u steps\n",
               (unsigned long long)ms, steps);
    }
}

TEST(attention_that_grows_with_the_context_is_learned)
{
    script s = plain;
    s.pair = 20; /* at 9,000 tokens of context a token costs 3.6 times as much */
    uint32_t steps;
    uint64_t gap = longest_gap(40000000, s, &steps, 9000);
    CHECKF(gap <= 40000000, "%.3f ms\n", (double)gap * 1e-6);
}

TEST(noise_of_a_tenth_is_within_the_margin)
{
    script s = plain;
    s.pair = 5;
    s.noise = 0.08;
    uint32_t steps;
    uint64_t gap = longest_gap(40000000, s, &steps, 6000);
    CHECKF(gap <= 44000000, "%.3f ms\n", (double)gap * 1e-6);
}

/* What is verified beside them takes its time from the prompts, not from those that decode. */
TEST(verifying_keeps_to_the_limit)
{
    script s = plain;
    s.verify_rate = 1;
    uint32_t steps;
    uint64_t gap = longest_gap(20000000, s, &steps, 6000);
    CHECKF(gap <= 20000000 && verified, "%.3f ms, %llu chunks verified\n", (double)gap * 1e-6,
           (unsigned long long)verified);
}

/* A chunk behind the step that ends a prompt: whoever got a first token waits for the second. */
TEST(a_first_token_does_not_wait_for_a_whole_chunk_to_be_verified)
{
    rig g;
    static rad_token ids[3000];
    script s = plain;
    s.verify_rate = 1;
    s.token = 5e5; /* VERIFY_CHUNK takes 32 ms */
    scheduler_params params = rig_params(60000, 1, 4096);
    params.max_itl_ns = 20000000;
    start(&g, params, s);
    rig_prompt(ids, 3000, 810);
    rig_req *early = rig_add(&g, ids, 3000, 1), *q;
    while (!early->finish)
        scheduler_step(g.s);
    rig_check_answer(early);
    rig_drop(early);
    for (int i = 0; i < 80; i++) { /* 3 steps each: sooner or later a chunk follows the first */
        q = rig_add(&g, ids + i, 20, 3);
        scheduler_step(g.s);
        for (uint64_t before = script_now.told; !q->finish; before = script_now.told) {
            scheduler_step(g.s);
            uint64_t gap = script_now.told - before;
            CHECKF(gap <= 20000000, "%d: %.3f ms\n", i, (double)gap * 1e-6);
        }
        rig_check_answer(q);
        rig_drop(q);
    }
    scheduler_stats st;
    scheduler_get_stats(g.s, &st);
    CHECK(script_now.calls - st.forward_steps >= 10);
    while (scheduler_step(g.s)) {
    }
    rig_stop(&g);
}

/* Nothing is learned yet: the first steps of a slow machine (qwen3-0.6b on two cores computes 711
 * prompt tokens a second), and a first one that has to read its weights from the disk. */
TEST(the_limit_holds_from_the_first_steps_on_and_is_used_soon)
{
    enum { LIMIT_MS = 500, LONG = 6000 };
    static rad_token ids[LONG];
    for (uint32_t round = 0; round < 6; round++) {
        rig g;
        script s = plain;
        s.step = 30e6;
        s.decode = 2e6;
        s.token = 1.4e6;
        s.pair = round % 2 ? 100 : 0;
        scheduler_params params = rig_params(60000, 1, 2048);
        params.max_itl_ns = LIMIT_MS * (uint64_t)1000000;
        start(&g, params, s);
        rig_prompt(ids, LONG, 820);
        rig_req *decoding = rig_add(&g, ids, 20, 60);
        rig_prompt(ids, LONG, 821);
        rig_req *slow = round < 4 ? rig_add(&g, ids, LONG, 2) : NULL; /* at one time, or after it */
        if (round / 2 == 1) script_now.step = 5e9;                    /* the disk */
        scheduler_step(g.s);
        script_now.step = s.step;
        if (!slow) slow = rig_add(&g, ids, LONG, 2);
        CHECK(decoding->num_out == 1);
        uint32_t steps = 0;
        for (uint64_t before = script_now.told; !slow->finish; before = script_now.told) {
            CHECK(!decoding->finish);
            scheduler_step(g.s);
            uint64_t gap = script_now.told - before;
            steps++;
            CHECKF(gap <= LIMIT_MS * (uint64_t)1000000, "round %u, step %u: %.1f ms\n", round,
                   steps, (double)gap * 1e-6);
        }
        double least = (LONG * s.token + s.pair * step_pairs(0, LONG)) / (LIMIT_MS * 1e6 - s.step);
        double most = (round / 2 == 1 ? 3 : 1.6) * least + 8; /* a bad start is forgotten slowly */
        CHECKF(steps < most, "round %u: %u steps, %.1f are needed\n", round, steps, least);
        rig_run(&g);
        rig_expect(decoding, 60);
        rig_expect(slow, 2);
        rig_stop(&g);
    }
}

/* On this clock nothing but the model takes time, so next to nothing is left for the scheduler. */
TEST(verifying_is_not_scheduling)
{
    rig g;
    rad_token ids[300];
    scheduler_stats st;
    script s = plain;
    s.verify_rate = 1;
    start(&g, rig_params(4096, 1, 64), s);
    rig_prompt(ids, 300, 811);
    rig_req *q = rig_add(&g, ids, 300, 30);
    rig_run(&g);
    rig_expect(q, 30);
    while (scheduler_step(g.s)) {
    }
    scheduler_get_stats(g.s, &st);
    CHECK(st.verify.num_verified == 1 && script_now.calls > st.forward_steps);
    CHECKF(st.schedule_ns < 1000000, "%.3f ms\n", (double)st.schedule_ns * 1e-6);
    rig_stop(&g);
}

/* Two hundred prompts that are cached but for three tokens: nearly all of their time is the row
 * of logits of each. The first step knows nothing of that, and takes few. */
TEST(a_burst_of_cached_prompts_keeps_to_the_limit)
{
    enum { PROMPTS = 200, SHARED = 2000, OWN = 3 };
    static rad_token ids[SHARED + OWN];
    static rig_req *burst[PROMPTS];
    rig g;
    script s = plain;
    s.end = 3e5;
    scheduler_params params = rig_params(60000, 1, 2048);
    params.max_itl_ns = 40000000;
    params.max_running_requests = params.max_queued_requests = PROMPTS + 8;
    start(&g, params, s);
    rig_prompt(ids, SHARED + OWN, 820);
    rig_req *decoding = rig_add(&g, ids, 20, 100), *first = rig_add(&g, ids, SHARED, 1);
    while (!first->finish)
        scheduler_step(g.s);
    rig_check_answer(first);
    rig_drop(first);
    for (int i = 0; i < PROMPTS; i++) {
        rig_prompt(ids + SHARED, OWN, 1000 + i);
        burst[i] = rig_add(&g, ids, SHARED + OWN, 1);
    }
    uint32_t steps = 0, left = PROMPTS;
    while (left) {
        uint64_t before = script_now.told;
        scheduler_step(g.s);
        steps++;
        CHECKF(script_now.told - before <= 40000000, "step %u: %.3f ms\n", steps,
               (double)(script_now.told - before) * 1e-6);
        left = 0;
        for (int i = 0; i < PROMPTS; i++)
            left += !burst[i]->finish;
    }
    CHECKF(steps <= 10, "%u steps\n", steps); /* 90 ms of work, in 3 steps at best */
    for (int i = 0; i < PROMPTS; i++) {
        rig_check_answer(burst[i]);
        rig_drop(burst[i]);
    }
    rig_run(&g);
    rig_check_answer(decoding);
    rig_drop(decoding);
    rig_stop(&g);
}

/* Decoding alone takes longer than the limit: prompts get on all the same, slowly. */
TEST(prompts_do_not_starve_in_turn)
{
    script s = plain;
    s.step = 20e6;
    uint32_t steps;
    uint64_t gap = longest_gap(10000000, s, &steps, 1000);
    CHECKF(gap <= 20000000 + 4 * 200000 + 17 * 50000 && steps >= 100 && steps <= 220,
           "%.3f ms, %u steps\n", (double)gap * 1e-6, steps);
}

TEST(costs_are_found_by_least_squares)
{
    step_cost c;
    step_cost_init(&c);
    uint64_t rng = 3;
    for (int i = 0; i < 60; i++) {
        step_work w = {.num_decodes = (uint32_t)(test_random(&rng) % 32),
                       .prompt_tokens = (uint32_t)(test_random(&rng) % 2000)};
        w.pairs = (double)(test_random(&rng) % 4000000);
        w.prompt_ends = (uint32_t)(test_random(&rng) % 32);
        step_cost_observe(&c, &w,
                          1e6 + 3e4 * w.num_decodes + 2e3 * w.prompt_tokens + 3 * w.pairs +
                              2e5 * w.prompt_ends);
    }
    double end = step_cost_prompt_end_ns(&c);
    CHECKF(end > 1.98e5 && end < 2.02e5, "%g\n", end);
    CHECK(step_cost_trusted_ends(&c) >= 32 && step_cost_trusted_ends(&c) <= 62);
    step_work w = {.num_decodes = 10, .prompt_tokens = 300, .prompt_ends = 3, .pairs = 1e6};
    double want = 1e6 + 3e5 + 6e5 + 3e6 + 6e5, got = step_cost_ns(&c, &w);
    CHECKF(got > 0.99 * want && got < 1.01 * want, "%g, not %g\n", got, want);
    for (uint32_t context = 0; context < 100000; context += 9999) {
        uint32_t n = step_cost_fit(&c, context, false, 1e7);
        CHECK(step_cost_prompt_ns(&c, context, n) <= 1e7 * 1.0001);
        CHECK(step_cost_prompt_ns(&c, context, n + 1) >= 1e7 * 0.9999);
        n = step_cost_fit(&c, context, true, 1e7);
        CHECK(step_cost_prompt_ns(&c, context, n) + n * end <= 1e7 * 1.0001);
        CHECK(step_cost_prompt_ns(&c, context, n + 1) + (n + 1) * end >= 1e7 * 0.9999);
    }
    for (int i = 0; i < 100000; i++) /* nothing but decoding for a long time */
        step_cost_observe(&c, &(step_work){.num_decodes = 4, .pairs = 4000}, 1e6 + 1.2e5 + 12000);
    got = step_cost_prompt_ns(&c, 0, 1000);
    CHECKF(got > 1e6 && got < 6e6, "%g\n", got); /* what was learned is not forgotten */
    CHECK(step_cost_fit(&c, 0, false, 0) == 0 && step_cost_fit(&c, 0, false, -1) == 0);
}

TEST_MAIN()
