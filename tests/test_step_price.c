/* test_step_price.c - steps are priced by their shape, and an engine tells each step. */
#include "engine_rig.h"

#include "workload/step_price.h"

#include <stdatomic.h>

static const step_costs costs = {
    .prefill = {.count = 3, .at = {1, 100, 200}, .seconds = {1, 10, 30}},
    .decode = {.count = 2, .at = {1, 9}, .seconds = {2, 18}},
    .prefill_context_s = 0.5,
    .decode_context_s = 0.25,
    .decode_spared_s = 0.125,
};

static bool near(double a, double b)
{
    return a > b - 1e-9 && a < b + 1e-9;
}

TEST(a_step_is_priced_between_the_measured_points)
{
    CHECK(near(step_cost(&costs, &(step_info){.prefill_tokens = 100}), 10));
    CHECK(near(step_cost(&costs, &(step_info){.prefill_tokens = 150}), 20));
    CHECK(near(step_cost(&costs, &(step_info){.prefill_tokens = 300}), 50)); /* goes on */
    CHECK(near(step_cost(&costs, &(step_info){.decode_tokens = 5}), 10));
    CHECK(near(step_cost(&costs, &(step_info){.decode_tokens = 1, .decode_context = 8}), 4));
    CHECK(near(step_cost(&costs, &(step_info){.prefill_tokens = 1, .prefill_context = 4}), 3));
    CHECK(near(step_cost(&costs, &(step_info){0}), 0));
}

/* A mixed step is a prefill of all its tokens, and what decoding costs beyond that. */
TEST(a_mixed_step_pays_for_both)
{
    const step_info mixed = {.prefill_tokens = 99, .decode_tokens = 1, .logits_rows = 1};
    CHECK(near(step_cost(&costs, &mixed), 10 + (2 - 1)));
}

/* Eight cached prompts of which a token each is left, and one that decodes: nine rows. */
TEST(a_prompt_that_ends_pays_for_its_logits)
{
    step_info step = {.prefill_tokens = 99, .decode_tokens = 1, .logits_rows = 9};
    double of_prefill = 1 + 9 * (9 - 1.0) / 99;
    CHECK(near(step_cost(&costs, &step), 10 + (18 - of_prefill)));
}

TEST(what_is_read_once_for_all_costs_less)
{
    step_info step = {.decode_tokens = 9, .decode_context = 800};
    step.kv_read_bytes = step.kv_unshared_bytes = 4000;
    CHECK(near(step_cost(&costs, &step), 18 + 800 * 0.25));
    step.kv_read_bytes = 1000;
    CHECK(near(step_cost(&costs, &step), 18 + 800 * (0.25 * 0.25 + 0.75 * 0.125)));
}

/* Drafts are rows as others, but the K/V that they see is read for their request anyway. */
TEST(drafts_are_rows_that_read_nothing_of_their_own)
{
    const step_info plain = {.decode_tokens = 9, .decode_context = 800};
    step_info step = {.decode_tokens = 3, .decode_context = 800, .draft_tokens = 6};
    CHECK(near(step_cost(&costs, &step), step_cost(&costs, &plain)));
    step.draft_context = 80;
    CHECK(near(step_cost(&costs, &step), step_cost(&costs, &plain) + 80 * 0.125));
    step_log log;
    step_log_init(&log, NULL);
    step_log_add(&log, &step);
    CHECK(!step_log_median(&log, 0, 3)); /* not a step of three requests and nothing else */
    step_log_fini(&log);
}

TEST(the_mean_of_two_measurements_lies_between_them)
{
    step_costs twice = costs;
    for (uint32_t i = 0; i < twice.prefill.count; i++)
        twice.prefill.seconds[i] *= 2;
    twice.decode = (cost_line){.count = 3, .at = {1, 5, 9}, .seconds = {4, 20, 36}}; /* 2 of 3 */
    twice.prefill_context_s *= 2, twice.decode_context_s *= 2, twice.decode_spared_s *= 2;
    const step_costs mean = step_costs_mean(&costs, &twice);
    const step_info steps[] = {
        {.prefill_tokens = 150, .prefill_context = 7},
        {.decode_tokens = 9, .decode_context = 8, .kv_read_bytes = 1, .kv_unshared_bytes = 3},
        {.prefill_tokens = 99, .decode_tokens = 1, .logits_rows = 1, .decode_context = 5}};
    for (size_t i = 0; i < RAD_COUNT(steps); i++)
        CHECK(near(step_cost(&mean, &steps[i]), 1.5 * step_cost(&costs, &steps[i])));
    const step_costs none = {0};
    CHECK(step_costs_mean(&none, &costs).decode.count == 2); /* what one could not measure */
}

TEST(only_the_prompt_tokens_part_is_scaled)
{
    step_log log;
    step_log_init(&log, NULL);
    for (int i = 0; i < 5000; i++) /* more than one growth */
        step_log_add(&log, &(step_info){.decode_tokens = 1});
    step_log_add(&log, &(step_info){.prefill_tokens = 99, .decode_tokens = 1, .logits_rows = 1});
    CHECK(log.count == 5001 && log.lost == 0);
    CHECK(near(step_log_cost(&costs, &log, 1), 5000 * 2 + 11));
    CHECK(near(step_log_cost(&costs, &log, 0), 5001 * 2));
    step_log_clear(&log);
    CHECK(near(step_log_cost(&costs, &log, 1), 0));
    step_log_fini(&log);
}

TEST(the_median_step_is_one_of_its_shape)
{
    static const uint64_t times[] = {50, 10, 40, 20, 30};
    step_log log;
    step_log_init(&log, NULL);
    CHECK(step_log_median(&log, 0, 2) == NULL);
    for (int i = 0; i < 5; i++) {
        step_log_add(&log, &(step_info){.decode_tokens = 2, .forward_ns = times[i]});
        step_log_add(&log, &(step_info){.decode_tokens = 3, .forward_ns = 1});
        step_log_add(&log, &(step_info){.prefill_tokens = 9, .decode_tokens = 2, .forward_ns = 99});
    }
    CHECK(step_log_median(&log, 0, 2)->forward_ns == 30);
    CHECK(step_log_median(&log, 9, 2)->forward_ns == 99);
    CHECK(step_log_median(&log, 0, 4) == NULL && log.count == 15); /* nothing is lost */
    step_log_fini(&log);
}

TEST(the_median_step_behind_a_context_is_one_of_those_near_it)
{
    step_log log;
    step_log_init(&log, NULL);
    CHECK(step_log_median_behind(&log, 2, 96, 8) == NULL);
    for (uint32_t c = 65; c < 129; c++) /* of each of two: c; a longer one takes longer */
        step_log_add(&log,
                     &(step_info){.decode_tokens = 2, .decode_context = 2 * c, .forward_ns = c});
    step_log_add(&log, &(step_info){.decode_tokens = 3, .decode_context = 2 * 96, .forward_ns = 1});
    step_log_add(&log, &(step_info){.decode_tokens = 2,
                                    .decode_context = 2 * 96,
                                    .prefill_tokens = 1,
                                    .forward_ns = 1});
    CHECK(step_log_median_behind(&log, 2, 96, 8)->forward_ns == 96);
    CHECK(step_log_median_behind(&log, 2, 120, 0)->forward_ns == 120);
    CHECK(step_log_median_behind(&log, 2, 60, 5)->forward_ns == 65);
    CHECK(step_log_median_behind(&log, 2, 4, UINT32_MAX)->forward_ns == 97);
    CHECK(step_log_median_behind(&log, 2, 60, 4) == NULL);
    CHECK(step_log_median_behind(&log, 4, 96, 8) == NULL && log.count == 66);
    step_log_fini(&log);
}

/* An engine's, whose steps go into `log`. */
static engine_params logged_params(step_log *log)
{
    step_log_init(log, NULL);
    engine_params params = erig_params();
    params.on_step = step_log_add;
    params.step_user = log;
    return params;
}

/* Over the fake model, whose answers are a function of the prompt: steps add up to the
 * tokens of the run, a second run finds the first one's prompts, answers stay the same. */
TEST(a_run_is_told_step_by_step)
{
    step_log log;
    engine_params params = logged_params(&log);
    engine *e = erig_start(params, 0);

    workload w;
    workload_init(&w, NULL, "two turns", "");
    uint32_t prompt[3];
    for (uint32_t user = 0; user < 4; user++) {
        prompt[0] = workload_add_segment(&w, 30 + user);
        uint32_t first = workload_add_call(&w, user, prompt, 1, 5, NULL, 0);
        prompt[1] = workload_output(&w, first);
        prompt[2] = workload_add_segment(&w, 7);
        workload_add_call(&w, user, prompt, 3, 6, &first, 1);
    }
    run_result r[2];
    rad_error err = {0};
    for (int i = 0; i < 2; i++) {
        engine_stats st;
        run_params p = {.concurrency = 3, .seed = 1};
        step_log_clear(&log);
        CHECK_OK(workload_run(e, &w, &p, &r[i], &err));
        engine_get_stats(e, &st);
        uint64_t prefilled = 0, decoded = 0, rows = 0;
        for (uint32_t s = 0; s < log.count; s++) {
            prefilled += log.steps[s].prefill_tokens;
            decoded += log.steps[s].decode_tokens;
            rows += log.steps[s].logits_rows;
        }
        CHECK(rows == r[i].output_tokens); /* each was chosen from one */
        CHECK(r[i].longest_gap_s > 0 && r[i].longest_gap_s <= r[i].latency_p99_s);
        CHECK(prefilled + r[i].cached_tokens == r[i].prompt_tokens);
        CHECK(decoded == r[i].output_tokens - w.num_calls); /* the first comes from the prompt */
    }
    CHECK(r[0].calls == 8 && r[0].output_tokens == 4 * (5 + 6));
    CHECK(r[0].prompt_tokens == 2 * (30 + 31 + 32 + 33) + 4 * (5 + 7));
    CHECK(r[0].cached_tokens == 30 + 31 + 32 + 33 + 4 * 4); /* the last output has no K/V */
    CHECK(r[1].cached_tokens == r[1].prompt_tokens - 8);    /* all but each last token */
    CHECK(r[0].digest == r[1].digest);

    uint32_t long_one = workload_add_segment(&w, 100000);
    workload_add_call(&w, 9, &long_one, 1, 1, NULL, 0);
    CHECK(workload_run(e, &w, &(run_params){.concurrency = 1}, &r[0], &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "context"));
    workload_fini(&w);
    erig_stop(e);
    step_log_fini(&log);
}

/* The fake model takes next to no time, so only what was measured is looked at, not the result. */
TEST(costs_are_measured_at_points_up_to_the_limits)
{
    step_log log;
    engine_params params = logged_params(&log);
    engine *e = erig_start(params, 0);
    step_costs c;
    rad_error err = {0};
    CHECK_OK(step_costs_measure(e, &log, 1000, &c, &err));
    CHECK(c.prefill.count == 7 && c.prefill.at[0] == 1 && c.prefill.at[6] == 64); /* a chunk */
    CHECK(c.decode.count >= 1 && c.decode.count <= 4 && c.decode.at[c.decode.count - 1] <= 8);
    CHECK(c.decode_spared_s >= 0 && c.decode_spared_s <= c.decode_context_s);
    CHECK(log.count == 0);
    erig_stop(e);

    params.max_total_tokens = 500;
    e = erig_start(params, 0);
    CHECK(step_costs_measure(e, &log, 4, &c, &err) == RAD_E_INVAL && strstr(err.text, "512"));
    engine_destroy(e);
    step_log_fini(&log);
}

/* A runner whose steps take what a script says, on a clock that only it moves. */
static _Atomic uint64_t clock_ns = 1;
static const runner_ops *real_ops;
static double slowness = 1;

static uint64_t scripted_now(void *user)
{
    (void)user;
    return atomic_load(&clock_ns);
}

static rad_status scripted_forward(runner *self, const forward_batch *b, const float **logits,
                                   rad_error *err)
{
    double ns = 2e6 + 4e4 * b->num_tokens + 3e5 * b->num_logits;
    for (uint32_t i = 0; i < b->num_reqs; i++)
        ns += 50.0 * b->extend_seq_lens[i] *
              (b->extend_prefix_lens[i] + 0.5 * (b->extend_seq_lens[i] + 1.0));
    atomic_fetch_add(&clock_ns, (uint64_t)(ns * slowness));
    return real_ops->forward(self, b, logits, err);
}

/* Prompts of many lengths, found in part, beside others that decode: the prices of such a run's
 * steps add up to what it took. When the machine is slower afterwards, the mean lies between. */
TEST(a_run_is_priced_at_what_it_took)
{
    step_log log;
    engine_params params = logged_params(&log);
    params.chunked_prefill_size = 256;
    engine_parts parts = erig_parts(0);
    real_ops = parts.runner->ops;
    runner_ops ops = *real_ops;
    ops.forward = scripted_forward;
    parts.runner->ops = &ops;
    const rad_env env = {.struct_size = sizeof env, .now_ns = scripted_now};
    rad_error err = {0};
    engine *e = NULL;
    CHECK_OK(engine_create_with(&env, &params, &parts, &e, &err));
    step_costs before, after;
    CHECK_OK(step_costs_measure(e, &log, 8, &before, &err));

    workload w;
    workload_init(&w, NULL, "mixed", "");
    uint32_t prompt[2] = {workload_add_segment(&w, 150)};
    for (uint32_t i = 0; i < 40; i++) {
        prompt[1] = workload_add_segment(&w, 1 + i * 37 % 101);
        workload_add_call(&w, i, prompt + i % 3 / 2, 2 - i % 3 / 2, 1 + i * 13 % 17, NULL, 0);
    }
    run_result r;
    engine_stats st;
    CHECK_OK(workload_run(e, &w, &(run_params){.concurrency = 8, .seed = 3}, &r, &err));
    engine_get_stats(e, &st);
    CHECK(r.cached_tokens > 0);
    double took = step_log_seconds(&log), price = step_log_cost(&before, &log, 1);
    CHECKF(price > 0.99 * took && price < 1.01 * took, "%g s, priced at %g\n", took, price);

    step_log kept = log; /* what is measured goes to the log, too */
    step_log_init(&log, NULL);
    slowness = 2;
    CHECK_OK(step_costs_measure(e, &log, 8, &after, &err));
    const step_costs mean = step_costs_mean(&before, &after);
    price = step_log_cost(&mean, &kept, 1);
    CHECKF(price > 1.48 * took && price < 1.52 * took, "%g s, priced at %g\n", took, price);
    workload_fini(&w);
    erig_stop(e);
    step_log_fini(&kept);
    step_log_fini(&log);
}

TEST_MAIN()
