/* test_sched_choose.c - runners that choose tokens themselves: the same answers, and logits only
 * where somebody looks at them. And rules, which say what may be chosen. */
#include "hash_rule.h"
#include "scheduler_rig.h"

#include "model/model_runner.h"
#include "tiny_models.h"

enum { REQS = 8, IDS = 30, NEW = 40 };

/* Greedy ones among them, and all that changes logits before one is chosen. */
static void add_all(rig *g, rig_req *q, uint32_t vocab, bool logprobs)
{
    static const logit_bias bias[] = {{7, 3}, {9, -100}};
    static const rad_token ends[] = {1, 2, 3};
    for (int i = 0; i < REQS; i++) {
        rad_token ids[IDS];
        rig_prompt(ids, IDS, 970 + i);
        for (int t = 0; t < IDS; t++)
            ids[t] %= (rad_token)vocab;
        rig_req_init(&q[i], ids, IDS, NEW);
        q[i].r.sampling = (sampling_params){.temperature = i % 4 ? 1 + 0.1f * i : 0,
                                            .top_p = i % 3 ? 0.95f : 1,
                                            .top_k = i % 2 ? 20 : 0,
                                            .seed = 7 + i,
                                            .repetition_penalty = i % 3 ? 1.2f : 0,
                                            .frequency_penalty = i % 2 ? 0.5f : 0,
                                            .num_bias = i == 5 ? 2 : 0,
                                            .bias = bias,
                                            .num_end_ids = i == 6 ? 3 : 0,
                                            .end_ids = ends,
                                            .min_new_tokens = 10};
        q[i].r.sampling.logprobs = logprobs && i == 3;
        CHECK_OK(scheduler_add(g->s, &q[i].r, NULL));
    }
}

static void end_all(const rig_req *q, rig_req *want)
{
    for (int i = 0; i < REQS; i++) {
        CHECKF(q[i].finish == REQ_FINISH_LENGTH && q[i].num_out == NEW, "request %d: %s\n", i,
               q[i].r.error.text);
        if (q != want) CHECK(!memcmp(q[i].out, want[i].out, NEW * sizeof(rad_token)));
    }
}

static void drop_all(rig_req *q)
{
    for (int i = 0; i < REQS; i++)
        req_fini(&q[i].r);
}

static rig_req by_scheduler[REQS], by_runner[REQS];

TEST(whoever_samples_the_answers_are_the_same)
{
    for (uint32_t chunk = 16; chunk <= 256; chunk *= 16) {
        for (rig_fake.chooses = 0; rig_fake.chooses < 2; rig_fake.chooses++) {
            rig_req *q = rig_fake.chooses ? by_runner : by_scheduler;
            rig g;
            rig_start(&g, rig_params(2048, 1, chunk));
            CHECK((g.s->sample_scratch == NULL) == rig_fake.chooses);
            add_all(&g, q, RIG_VOCAB, false);
            rig_run(&g);
            end_all(q, by_scheduler);
            runner_fake_counts asked = runner_fake_asked(g.runner);
            CHECK(asked.sampled == (rig_fake.chooses ? REQS * NEW : 0));
            CHECK(asked.with_logits == (rig_fake.chooses ? 0 : asked.forwards));
            rig_stop(&g);
        }
        drop_all(by_runner), drop_all(by_scheduler);
    }
    rig_fake.chooses = 0;
}

static void free_logprobs(void *user, const req_output *outputs, uint32_t count)
{
    rig_on_output(user, outputs, count);
    for (uint32_t i = 0; i < count; i++) {
        if (!outputs[i].logprobs) continue;
        CHECK(outputs[i].logprobs->id == outputs[i].token && outputs[i].logprobs->logprob < 0);
        const rad_env env = rad_env_or_default(NULL);
        rad_free(&env, outputs[i].logprobs, req_logprobs_bytes(&outputs[i].req->sampling));
    }
}

/* Logprobs are of the host's logits: for the steps of the request that asked, no others. */
TEST(logprobs_bring_the_logits_of_their_steps)
{
    rig g;
    rig_fake.chooses = 1;
    rig_start(&g, rig_params(2048, 1, 256));
    g.s->params.on_output = free_logprobs;
    add_all(&g, by_runner, RIG_VOCAB, true);
    rad_token ids[IDS];
    rig_prompt(ids, IDS, 990);
    rig_req *longest = rig_add(&g, ids, IDS, 3 * NEW);
    rig_run(&g);
    end_all(by_runner, by_runner);
    runner_fake_counts asked = runner_fake_asked(g.runner);
    CHECKF(asked.with_logits == NEW && asked.forwards > 2 * NEW, "%llu of %llu\n",
           (unsigned long long)asked.with_logits, (unsigned long long)asked.forwards);
    rig_expect(longest, 3 * NEW);
    drop_all(by_runner);
    rig_stop(&g);
    rig_fake.chooses = 0;
}

/* What is computed again later is noted from the logits; others ask for none. */
TEST(verified_requests_bring_their_logits)
{
    rig g;
    rig_fake.chooses = 1;
    scheduler_params params = rig_params(2048, 1, 256);
    params.verify_rate = 1;
    rig_start(&g, params);
    add_all(&g, by_runner, RIG_VOCAB, false);
    rig_run(&g);
    end_all(by_runner, by_runner);
    while (scheduler_has_background(g.s))
        CHECK(rig_step(&g));
    scheduler_stats st = rig_stats(&g);
    CHECK(st.verify.num_verified == REQS && !st.verify.num_mismatches);
    runner_fake_counts asked = runner_fake_asked(g.runner);
    CHECK(asked.with_logits == asked.forwards);
    drop_all(by_runner);
    rig_stop(&g);
    rig_fake.chooses = 0;
}

/* A runner whose sampling goes wrong at its third step. */
static enum { SAMPLE_FAILS, SAMPLE_FOREIGN, SAMPLE_NONE } wrong;
static uint32_t num_sampled;
static const runner_ops *real_ops;

static rad_status sample_wrongly(runner *self, const runner_sample *rows, uint32_t num_rows,
                                 rad_token *tokens, rad_error *err)
{
    rad_status status = real_ops->sample(self, rows, num_rows, tokens, err);
    if (status != RAD_OK || ++num_sampled != 3) return status;
    if (wrong == SAMPLE_FAILS) return rad_fail(err, RAD_E_IO, "the device is gone");
    tokens[num_rows - 1] = wrong == SAMPLE_FOREIGN ? RIG_VOCAB : -1;
    return RAD_OK;
}

TEST(a_runner_that_samples_wrongly_fails_who_was_meant_alone)
{
    rig_fake.chooses = 1;
    for (int how = 0; how < 3; how++) {
        rig g;
        rad_token ids[3][20];
        rig_req *q[3];
        rig_start(&g, rig_params(512, 1, 64));
        real_ops = g.runner->ops;
        runner_ops ops = *real_ops;
        ops.sample = sample_wrongly;
        g.runner->ops = &ops;
        wrong = how, num_sampled = 0;
        for (int i = 0; i < 3; i++) {
            rig_prompt(ids[i], 20, 300 + i);
            q[i] = rig_add(&g, ids[i], 20, 8);
        }
        rig_run(&g);
        for (int i = 0; i < 3; i++) {
            if (how == SAMPLE_FAILS || i == 2) {
                CHECK(q[i]->finish == REQ_FINISH_ERROR && q[i]->num_out == 2);
                CHECK(q[i]->r.error.status == (how == SAMPLE_FAILS ? RAD_E_IO : RAD_E_CORRUPT));
                CHECKF(strstr(q[i]->r.error.text, how == SAMPLE_FAILS     ? "device is gone"
                                                  : how == SAMPLE_FOREIGN ? "token 256"
                                                                          : "not numbers"),
                       "%s\n", q[i]->r.error.text);
                rig_drop(q[i]);
            } else {
                rig_expect(q[i], 8);
            }
        }
        rig_stop(&g);
    }
    rig_fake.chooses = 0;
}

/* ---- rules ---- */

static rig_req *add_with_rule(rig *g, const rad_token *ids, uint32_t max_new, hash_rule *rule,
                              sampling_params sampling)
{
    rig_req *q = malloc(sizeof *q);
    memset(q, 0, sizeof *q);
    const req_params p = {.ids = ids,
                          .num_ids = IDS,
                          .max_new_tokens = max_new,
                          .sampling = sampling,
                          .rule = &rule->base,
                          .ignore_eos = true,
                          .user = q};
    CHECK_OK(req_init(&q->r, NULL, &p, NULL));
    CHECK_OK(scheduler_add(g->s, &q->r, NULL));
    return q;
}

/* Rules that end their answers beside such that are cut, and requests without one, whoever samples:
 * each rule is kept to the letter, and who has none does not notice. */
TEST(a_batch_mixes_requests_with_rules_and_without)
{
    enum { ENDS = 12 };
    static const rad_token end = 5;
    const sampling_params greedy = {.top_p = 1},
                          drawn = {.temperature = 1, .top_p = 0.9f, .top_k = 30, .seed = 4},
                          late = {
                              .top_p = 1, .end_ids = &end, .num_end_ids = 1, .min_new_tokens = NEW};
    const sampling_params kinds[] = {greedy, drawn, late};
    rad_token first[6][NEW];
    for (rig_fake.chooses = 0; rig_fake.chooses < 2; rig_fake.chooses++) {
        rig g;
        hash_rule rules[6];
        rig_req *with[6], *without[2];
        rad_token ids[IDS];
        rig_start(&g, rig_params(2048, 1, 16));
        rig_prompt(ids, IDS, 31);
        for (int i = 0; i < 6; i++) {
            hash_rule_init(&rules[i], 70 + i, RIG_VOCAB, i % 2 ? ENDS : NEW, end);
            with[i] = add_with_rule(&g, ids, NEW, &rules[i], kinds[i / 2]);
        }
        for (int i = 0; i < 2; i++) {
            ids[0] = i;
            without[i] = rig_add(&g, ids, IDS, NEW);
        }
        rig_run(&g);
        scheduler_stats st = rig_stats(&g);
        CHECK(st.masks == 3 * (ENDS + 1 + NEW));
        for (int i = 0; i < 6; i++) {
            const rig_req *q = with[i];
            CHECKF(q->finish == (i % 2 ? REQ_FINISH_STOP : REQ_FINISH_LENGTH), "request %d: %s\n",
                   i, q->r.error.text);
            CHECK(q->num_out == (i % 2 ? ENDS + 1 : NEW));
            CHECK(q->r.matched_token == (i % 2 ? end : -1));
            CHECK(hash_rule_allows_all(&rules[i], q->out, q->num_out));
            if (!rig_fake.chooses) memcpy(first[i], q->out, sizeof first[i]);
            CHECK(!memcmp(first[i], q->out, q->num_out * sizeof(rad_token)));
            rig_drop(with[i]);
        }
        rig_expect(without[0], NEW);
        rig_expect(without[1], NEW);
        rig_stop(&g);
    }
    rig_fake.chooses = 0;
}

static uint32_t likelier, masked_out;

/* Of the likeliest token of all, which the rule may forbid. */
static void look_at_logprobs(void *user, const req_output *outputs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const token_logprob *l = outputs[i].logprobs;
        CHECK(l[0].id == outputs[i].token && l[0].logprob <= l[1].logprob);
        likelier += l[0].id == l[1].id;
        masked_out += l[0].id != l[1].id;
    }
    free_logprobs(user, outputs, count);
}

TEST(logprobs_are_the_models_whatever_its_rule_allows)
{
    const sampling_params p = {.top_p = 1, .logprobs = true, .num_top_logprobs = 1};
    rig g;
    hash_rule rule;
    rad_token ids[IDS];
    rig_start(&g, rig_params(2048, 1, 64));
    g.s->params.on_output = look_at_logprobs;
    rig_prompt(ids, IDS, 32);
    hash_rule_init(&rule, 3, RIG_VOCAB, UINT32_MAX, -1);
    rig_req *q = add_with_rule(&g, ids, NEW, &rule, p);
    rig_run(&g);
    CHECK(hash_rule_allows_all(&rule, q->out, NEW) && likelier > 2 && masked_out > 2);
    rig_drop(q);
    rig_stop(&g);
}

static token_mask nothing_after_three(token_rule *self, uint32_t *bits)
{
    return ((hash_rule *)self)->count < 3 ? hash_rule_mask(self, bits) : TOKEN_MASK_NONE;
}

/* Samples without looking at masks. */
static rad_status sample_freely(runner *self, const runner_sample *rows, uint32_t num_rows,
                                rad_token *tokens, rad_error *err)
{
    for (uint32_t i = 0; i < num_rows; i++) {
        runner_sample row = rows[i];
        row.allowed = NULL;
        rad_status status = real_ops->sample(self, &row, num_rows, &tokens[i], err);
        if (status != RAD_OK) return status;
    }
    return RAD_OK;
}

TEST(a_rule_that_allows_nothing_fails_its_request_and_so_does_a_runner_that_ignores_it)
{
    for (rig_fake.chooses = 0; rig_fake.chooses < 2; rig_fake.chooses++) {
        rig g;
        hash_rule rule;
        rad_token ids[IDS];
        rig_start(&g, rig_params(512, 1, 64));
        real_ops = g.runner->ops;
        runner_ops ops = *real_ops;
        ops.sample = rig_fake.chooses ? sample_freely : NULL;
        g.runner->ops = &ops;
        rig_prompt(ids, IDS, 33);
        hash_rule_init(&rule, 3, RIG_VOCAB, UINT32_MAX, -1);
        token_rule_ops stuck = *rule.base.ops;
        if (!rig_fake.chooses) stuck.mask = nothing_after_three;
        rule.base.ops = &stuck;
        rig_req *q = add_with_rule(&g, ids, NEW, &rule, (sampling_params){.top_p = 1});
        rig_run(&g);
        CHECK(q->finish == REQ_FINISH_ERROR && rig_fake.chooses == (q->num_out != 3));
        CHECKF(strstr(q->r.error.text, rig_fake.chooses ? "does not allow" : "no token of this"),
               "%s\n", q->r.error.text);
        CHECK(q->r.error.status == (rig_fake.chooses ? RAD_E_CORRUPT : RAD_E_STATE));
        rig_drop(q);
        rig_stop(&g);
    }
    rig_fake.chooses = 0;
}

/* The model's own threads share the rows of a step: one, three, or the scheduler's alone. */
TEST(samples_of_a_model_do_not_depend_on_its_threads)
{
    static const tiny_model m = {.arch = "llama",
                                 .vocab = 300,
                                 .layers = 2,
                                 .dim = 64,
                                 .ffn = 96,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = 16,
                                 .v_head_dim = 16,
                                 .rope_dim = 16,
                                 .context = 256};
    static rig_req want[REQS], got[REQS];
    tiny_writer w;
    gguf_file *file;
    uint64_t seed = 5;
    tiny_model_write(&w, &m, &seed);
    CHECK_OK(gguf_open_memory(NULL, w.b.bytes, w.b.len, &file, NULL));
    for (uint32_t threads = 0; threads <= 3; threads++) {
        const model_runner_params p = {.dtype = RAD_F32, .num_threads = RAD_MAX(threads, 1u)};
        rig g = {.end_token = -1};
        CHECK_OK(model_runner_create(NULL, file, &p, &g.runner, NULL));
        CHECK(g.runner->info.num_threads == p.num_threads);
        runner_ops without = *g.runner->ops;
        without.sample = NULL;
        if (!threads) g.runner->ops = &without;
        scheduler_params params = rig_params(2048, 1, 256);
        params.runner = g.runner;
        params.on_output = rig_on_output;
        params.user = &g;
        CHECK_OK(scheduler_create(NULL, &params, &g.s, NULL));
        add_all(&g, threads ? got : want, m.vocab, false);
        rig_run(&g);
        end_all(threads ? got : want, want);
        if (threads) drop_all(got);
        rig_stop(&g);
    }
    drop_all(want);
    gguf_close(file);
    tiny_model_fini(&w);
}

TEST_MAIN()
