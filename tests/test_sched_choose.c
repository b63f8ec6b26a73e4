/* test_sched_choose.c - runners that choose tokens themselves: the same answers, and logits only
 * where somebody looks at them: of what is chosen, and of prompts. And rules, which say what may be
 * chosen. */
#include "hash_rule.h"
#include "scheduler_rig.h"

#include "model/model_runner.h"
#include "sched/grammar_rule.h"
#include "tiny_models.h"

#include <math.h>

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
        rad_free(&env, outputs[i].logprobs, req_logprobs_bytes(&outputs[i].req->sampling, 1));
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

/* ---- of prompts ---- */

enum { PROMPT = 90, TOP = 2, EACH = 1 + TOP + 1 };

/* One request's: positions [from, PROMPT) of a prompt, as they came. */
typedef struct told {
    token_logprob all[PROMPT][EACH];
    uint32_t count, outputs;
    float answer; /* of the id that was asked for, behind the whole prompt */
} told;

static told tellings[REQS];

static void tell(void *user, const req_output *outputs, uint32_t count)
{
    const rad_env env = rad_env_or_default(NULL);
    rig_on_output(user, outputs, count);
    for (uint32_t i = 0; i < count; i++) {
        const req_output *o = &outputs[i];
        const sampling_params *p = &o->req->sampling;
        told *t = &tellings[(rig_req *)o->req->user - by_runner];
        CHECK(t->count + o->num_prompt_logprobs <= PROMPT);
        if (o->num_prompt_logprobs)
            memcpy(t->all + t->count, o->prompt_logprobs, o->num_prompt_logprobs * sizeof *t->all);
        t->count += o->num_prompt_logprobs;
        t->outputs += o->num_prompt_logprobs > 0;
        if (o->logprobs) t->answer = o->logprobs[sampler_num_logprobs(p) - 1].logprob;
        rad_free(&env, o->prompt_logprobs, req_logprobs_bytes(p, o->num_prompt_logprobs));
        rad_free(&env, o->logprobs, req_logprobs_bytes(p, o->logprobs ? 1 : 0));
    }
}

static rig_req *add_telling(rig *g, int i, const rad_token *ids, uint32_t n, const req_params *more)
{
    rig_req *q = &by_runner[i];
    req_params p = *more;
    tellings[i] = (told){0};
    *q = (rig_req){0};
    p.ids = ids, p.num_ids = n, p.user = q;
    p.sampling.top_p = 1;
    CHECK_OK(req_init(&q->r, NULL, &p, NULL));
    CHECK_OK(scheduler_add(g->s, &q->r, NULL));
    return q;
}

static void start_telling(rig *g, uint64_t tokens, uint32_t page_size, uint32_t chunk)
{
    rig_start(g, rig_params(tokens, page_size, chunk));
    g->s->params.on_output = tell;
}

/* To its end, with one thrown back every few steps. */
static void run_retracting(rig *g)
{
    while (!scheduler_is_idle(g->s)) {
        rig_step(g);
        if (g->steps % 3 == 0 && g->s->num_running > 1) scheduler_retract_one(g->s);
    }
    CHECK(rig_stats(g).num_retractions > REQS);
}

/* The oracle: the likeliest is what comes next without any cache, and the token's own logprob what
 * a request for one token behind those before it says of its id, whose K/V are found. */
TEST(logprobs_of_a_prompt_are_those_of_decoding_it_token_by_token)
{
    rig g;
    rad_token ids[PROMPT];
    told want;
    rig_prompt(ids, PROMPT, 31);
    rig_fake.chooses = 1;
    start_telling(&g, 2048, 1, 64);
    const req_params all = {
        .prompt_logprobs = true,
        .sampling = {.num_top_logprobs = TOP, .num_id_logprobs = 1, .id_logprobs = ids}};
    rig_req *q = add_telling(&g, 0, ids, PROMPT, &all);
    rig_run(&g);
    want = tellings[0];
    CHECK(want.count == PROMPT && want.outputs > 1 && q->cached_tokens == 0 && !q->num_out);
    CHECK(want.all[0]->id == ids[0] && isnan(want.all[0]->logprob) && want.all[0][1].id == -1);
    req_fini(&q->r);
    for (uint32_t i = 1; i < PROMPT; i++) {
        const token_logprob *row = want.all[i];
        const req_params one = {
            .max_new_tokens = 1,
            .sampling = {.logprobs = true, .num_id_logprobs = 1, .id_logprobs = ids + i}};
        CHECK(row[0].id == ids[i] && row[EACH - 1].id == ids[0]);
        CHECK(row[1].id == runner_fake_next(RIG_VOCAB, ids, i) && row[2].logprob <= row[1].logprob);
        q = add_telling(&g, 0, ids, i, &one);
        rig_run(&g);
        CHECK(q->cached_tokens == i - 1 && tellings[0].answer == row[0].logprob);
        req_fini(&q->r);
    }

    /* From somewhere on: what lies before it is found, and nothing past it. */
    for (uint32_t from = 0; from < PROMPT; from += from < PROMPT - 8 ? 7 : 1) {
        req_params some = all;
        some.prompt_logprobs_from = from;
        some.max_new_tokens = from % 2;
        q = add_telling(&g, 0, ids, PROMPT, &some);
        rig_run(&g);
        const told *t = &tellings[0];
        CHECK(q->cached_tokens == from && t->count == PROMPT - from && q->num_out == from % 2);
        CHECK(t->all[0]->id == ids[from] && isnan(t->all[0]->logprob));
        CHECK(!memcmp(t->all + 1, want.all + from + 1, (PROMPT - from - 1) * sizeof *t->all));
        req_fini(&q->r);
    }
    rig_stop(&g);

    /* Many at a time, short of memory: chunks, evictions and retractions change nothing. */
    for (uint32_t page_size = 1; page_size <= 16; page_size *= 16)
        for (int chunk = 0; chunk <= 32; chunk += 32) {
            start_telling(&g, 3 * PROMPT, page_size, (uint32_t)chunk);
            for (int i = 0; i < REQS; i++) {
                req_params some = all;
                some.prompt_logprobs = i != 2;
                some.prompt_logprobs_from = (uint32_t)i * 11;
                some.max_new_tokens = 30;
                add_telling(&g, i, ids, PROMPT, &some);
            }
            run_retracting(&g);
            for (int i = 0; i < REQS; i++) {
                const told *t = &tellings[i];
                const uint32_t from = (uint32_t)i * 11;
                CHECK(by_runner[i].finish == REQ_FINISH_LENGTH && by_runner[i].num_out == 30);
                CHECK(t->count == (i == 2 ? 0 : PROMPT - from));
                if (t->count)
                    CHECK(!memcmp(t->all + 1, want.all + from + 1,
                                  (PROMPT - from - 1) * sizeof *t->all));
            }
            drop_all(by_runner);
            rig_stop(&g);
        }
    rig_fake.chooses = 0;
}

/* Sums of hidden states, whatever is cached: of all tokens or of the last one. */
TEST(hidden_states_are_added_up_once_each)
{
    rig g;
    rad_token ids[PROMPT];
    double each[PROMPT][RUNNER_FAKE_HIDDEN] = {{0}};
    rig_prompt(ids, PROMPT, 32);
    start_telling(&g, 2048, 1, 64);
    for (uint32_t n = 1; n <= PROMPT; n++) { /* each as the last of a prompt */
        const req_params last = {.pooling = POOL_LAST, .hidden_dim = RUNNER_FAKE_HIDDEN};
        rig_req *q = add_telling(&g, 0, ids, n, &last);
        rig_run(&g);
        CHECK(q->finish == REQ_FINISH_LENGTH && !q->num_out && q->cached_tokens == n - 1);
        memcpy(each[n - 1], q->r.hidden_sum, sizeof *each);
        req_fini(&q->r);
    }
    rig_stop(&g);
    for (int pooling = POOL_LAST; pooling <= POOL_MEAN; pooling++) {
        const req_params some = {.pooling = (hidden_pooling)pooling,
                                 .hidden_dim = RUNNER_FAKE_HIDDEN,
                                 .max_new_tokens = 30};
        start_telling(&g, 3 * PROMPT, 4, 16);
        for (int i = 0; i < REQS; i++)
            add_telling(&g, i, ids, PROMPT - (uint32_t)i, &some);
        run_retracting(&g);
        for (int i = 0; i < REQS; i++) {
            const uint32_t n = PROMPT - (uint32_t)i;
            double want[RUNNER_FAKE_HIDDEN] = {0};
            for (uint32_t t = pooling == POOL_MEAN ? 0 : n - 1; t < n; t++)
                for (int d = 0; d < RUNNER_FAKE_HIDDEN; d++)
                    want[d] += each[t][d];
            CHECK(by_runner[i].num_out == 30 && req_pooled(&by_runner[i].r) <= n);
            CHECK(!memcmp(want, by_runner[i].r.hidden_sum, sizeof want));
            CHECK(pooling == POOL_LAST || !by_runner[i].cached_tokens);
        }
        drop_all(by_runner);
        rig_stop(&g);
    }
}

TEST(what_is_wanted_of_a_prompt_is_checked)
{
    const rad_token ids[3] = {1, 2, 3};
    req r;
    rad_error err;
    req_params p = {.ids = ids, .num_ids = 3, .prompt_logprobs = true, .prompt_logprobs_from = 3};
    CHECK(req_init(&r, NULL, &p, &err) == RAD_E_INVAL && strstr(err.text, "from token 3"));
    p.prompt_logprobs_from = 0, p.pooling = POOL_MEAN, p.hidden_dim = 4;
    CHECK(req_init(&r, NULL, &p, &err) == RAD_E_INVAL);
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

static rig_req *add_with_rule(rig *g, const rad_token *ids, uint32_t max_new, token_rule *rule,
                              sampling_params sampling)
{
    return rig_add_as(g, (req_params){.ids = ids,
                                      .num_ids = IDS,
                                      .max_new_tokens = max_new,
                                      .sampling = sampling,
                                      .rule = rule,
                                      .ignore_eos = true});
}

/* Rules that end their answers beside such that are cut, and requests without one, whoever samples:
 * each rule is kept to the letter, and who has none does not notice. What a rule forces is drafted
 * then, or not: the answers are the same, in fewer steps. */
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
    for (int round = 0; round < 4; round++) {
        rig g;
        hash_rule rules[6];
        rig_req *with[6], *without[2];
        rad_token ids[IDS];
        const bool drafts = round >= 2;
        rig_fake.chooses = round % 2;
        scheduler_params params = rig_params(2048, 1, 16);
        params.max_draft_tokens = drafts ? 8 : 0;
        rig_start(&g, params);
        g.s->drafts.at_any_price = true;
        rig_prompt(ids, IDS, 31);
        for (int i = 0; i < 6; i++) {
            hash_rule_init(&rules[i], 70 + i, RIG_VOCAB, i % 2 ? ENDS : NEW, end);
            with[i] = add_with_rule(&g, ids, NEW, &rules[i].base, kinds[i / 2]);
        }
        for (int i = 0; i < 2; i++) {
            ids[0] = i;
            without[i] = rig_add(&g, ids, IDS, NEW);
        }
        rig_run(&g);
        scheduler_stats st = rig_stats(&g);
        CHECK(st.masks == 3 * (ENDS + 1 + NEW));
        CHECK(st.drafts.accepted[DRAFT_FORCED] == st.drafts.proposed[DRAFT_FORCED]);
        CHECK(drafts == (st.drafts.accepted[DRAFT_FORCED] > 20));
        for (int i = 0; i < 6; i++) {
            const rig_req *q = with[i];
            CHECKF(q->finish == (i % 2 ? REQ_FINISH_STOP : REQ_FINISH_LENGTH), "request %d: %s\n",
                   i, q->r.error.text);
            CHECK(q->num_out == (i % 2 ? ENDS + 1 : NEW));
            CHECK(q->r.matched_token == (i % 2 ? end : -1));
            CHECK(hash_rule_allows_all(&rules[i], q->out, q->num_out));
            if (!round) memcpy(first[i], q->out, sizeof first[i]);
            CHECK(!memcmp(first[i], q->out, q->num_out * sizeof(rad_token)));
            rig_drop(with[i]);
        }
        rig_expect(without[0], NEW);
        rig_expect(without[1], NEW);
        rig_stop(&g);
    }
    rig_fake.chooses = 0;
}

/* A grammar over single bytes, token 0 ends. Random answers have its form to the letter, whoever
 * samples; what it forces is drafted or not. */
TEST(answers_have_the_form_of_their_grammar)
{
    enum { WITH = 6, LONGEST = 200 };
    static const char form[] = "\\{\"name\": \"[a-z]{1,12}\", \"size\": [0-9]{1,4}, \"tags\": "
                               "\\[\"(red|green)\"(, \"(blue|black)\"){0,3}\\]\\}";
    char bytes[RIG_VOCAB];
    grammar_piece pieces[RIG_VOCAB];
    for (int i = 0; i < RIG_VOCAB; i++) {
        bytes[i] = (char)i;
        pieces[i] = (grammar_piece){.bytes = &bytes[i], .len = 1, .control = i == 0};
    }
    const rad_token end = 0;
    const grammar_vocab_params of = {
        .pieces = pieces, .vocab_size = RIG_VOCAB, .end_tokens = &end, .num_end_tokens = 1};
    const grammar_spec spec = {.kind = GRAMMAR_REGEX, .text = form, .len = sizeof form - 1};
    grammar_vocab *v;
    grammar *compiled;
    rad_error err = {0};
    CHECK_OK(grammar_vocab_create(NULL, &of, &v, NULL));
    rad_status status = grammar_compile(v, &spec, NULL, &compiled, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    static rad_token first[WITH][LONGEST];
    uint64_t steps[2] = {0};
    for (int round = 0; round < 4; round++) {
        rig g;
        grammar_rule rules[WITH];
        rig_req *with[WITH], *without;
        rad_token ids[IDS];
        scheduler_params params = rig_params(4096, 1, 64);
        rig_fake.chooses = round % 2;
        params.max_draft_tokens = round >= 2 ? 16 : 0;
        rig_start(&g, params);
        g.s->drafts.at_any_price = true;
        rig_prompt(ids, IDS, 34);
        for (int i = 0; i < WITH; i++) {
            const sampling_params p = {.temperature = i ? 1 : 0, .top_p = 1, .seed = 7 + i};
            CHECK_OK(grammar_rule_init(&rules[i], compiled, NULL));
            with[i] = add_with_rule(&g, ids, LONGEST, &rules[i].base, p);
        }
        ids[0] = 1;
        without = rig_add(&g, ids, IDS, NEW);
        rig_run(&g);
        scheduler_stats st = rig_stats(&g);
        steps[round / 2] += st.forward_steps;
        CHECK((st.drafts.accepted[DRAFT_FORCED] > 100) == (round >= 2));
        for (int i = 0; i < WITH; i++) {
            char text[LONGEST];
            const rig_req *q = with[i];
            CHECKF(q->finish == REQ_FINISH_STOP && q->r.matched_token == end, "%s\n",
                   q->r.error.text);
            for (uint32_t k = 0; k < q->num_out; k++)
                text[k] = (char)q->out[k];
            CHECK_OK(grammar_try(compiled, text, q->num_out - 1, true));
            if (!round) memcpy(first[i], q->out, sizeof first[i]);
            CHECK(!memcmp(first[i], q->out, q->num_out * sizeof(rad_token)));
            grammar_rule_fini(&rules[i]);
            rig_drop(with[i]);
        }
        rig_expect(without, NEW);
        rig_stop(&g);
    }
    CHECKF(steps[1] * 2 < steps[0], "%llu steps, %llu with drafts\n", (unsigned long long)steps[0],
           (unsigned long long)steps[1]);
    rig_fake.chooses = 0;
    grammar_unref(compiled);
    grammar_vocab_destroy(v);
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
    rig_req *q = add_with_rule(&g, ids, NEW, &rule.base, p);
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
        rig_req *q = add_with_rule(&g, ids, NEW, &rule.base, (sampling_params){.top_p = 1});
        rig_run(&g);
        CHECK(q->finish == REQ_FINISH_ERROR && rig_fake.chooses == (q->num_out != 3));
        CHECKF(strstr(q->r.error.text, rig_fake.chooses ? "does not allow" : "no token of the"),
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
    uint64_t seed = 5;
    gguf_file *file = tiny_model_open(&w, &m, &seed);
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
