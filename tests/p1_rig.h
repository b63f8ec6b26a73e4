/* p1_rig.h - histories of requests through a scheduler over a real model, each of whose rows
 * of logits must be, bit by bit, the one that it would get alone and cold.
 *
 * A runner around the model's (the witness) takes a digest of every row of logits of which a token
 * came: of drafts that were wrong there is none. When a history has ended, its whole text is
 * computed again in one prefill on empty pools, all digests must agree, and each token must be the
 * one that these logits give (by its rule, if it has one). Which prompts there are is the test's to
 * say (w.make_prompt), and it may tamper with a step (w.before, w.after) to see the comparison
 * fail. */
#ifndef TESTS_P1_RIG_H
#define TESTS_P1_RIG_H

#include "gear/amx_gear.h"
#include "gear/retract.h"
#include "one_cpu.h"
#include "p1_models.h"
#include "p1_rules.h"
#include "test.h"

#include "mem/kv_codec.h"
#include "model/model_runner.h"
#include "sched/scheduler_impl.h"

#include <math.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    IN_FLIGHT = 12,
    USUAL_NEW = 8,
    MOST_NEW = 24,
    KEPT = 8,
    MOST_ROWS = CONTEXT,
    SESSIONS = 2
};

typedef struct history {
    req r;
    bool live;
    uint64_t digest[CONTEXT + 1]; /* of the logits behind so many tokens; 0: none were asked */
    uint32_t told;                /* logprobs of its prompt */
    token_logprob logprobs[MOST_NEW][2]; /* of its answer, if they are asked for */
    uint32_t num_logprobs;
    p1_rule rule;
    prediction *foretold; /* what its client says of the answer; NULL: nothing */
    rad_token foreseen[MOST_NEW]; /* what it will say; num_foreseen is 0 until somebody asks */
    uint32_t num_foreseen;
} history;

/* A row of logits of the last step. */
typedef struct witness_row {
    history *h;
    uint32_t before; /* tokens that it stands behind */
    uint64_t digest;
} witness_row;

typedef struct witness {
    runner *model;
    const runner_ops *real;
    runner_ops ops;
    scheduler *s;
    history slots[IN_FLIGHT];
    rad_token kept[KEPT][CONTEXT]; /* what earlier histories were */
    uint32_t kept_len[KEPT];
    uint64_t state, seed;
    char what[96];

    rad_req_to_token_pool *rows; /* of the cold runs */
    rad_token_to_kv_pool *kv;
    rad_token_to_kv_pool *window; /* of layers whose K/V are of another shape, in the same slots */
    rad_state_pool *states;       /* NULL: the model has no recurrent layers */

    uint32_t (*make_prompt)(rad_token *ids); /* at most CONTEXT - MOST_NEW - 1 tokens */
    void (*before)(forward_batch *batch);    /* around each forward pass; NULL: nothing */
    void (*after)(void);
    witness_row rows_of_step[MOST_ROWS];
    uint32_t num_rows_of_step;
    bool drafts, rules; /* of some histories */
    p1_grammars grammars;
    uint64_t ruled; /* histories that kept to one of these */
    uint64_t foretold, foretold_right;
    bool sessions;      /* likewise: two that are open all the time */
    uint32_t session[SESSIONS];
    history *in_session[SESSIONS]; /* NULL: it is idle */
    rad_token said[SESSIONS][CONTEXT];
    uint32_t num_said[SESSIONS]; /* at its last turn's end */
    uint64_t turns;
    uint64_t proposed, accepted;
    uint32_t abort_every; /* of so many steps */
    uint64_t now;         /* the scheduler's clock, ns */
    bool wrong_is_meant;  /* a fault is planted */
    uint64_t faults;      /* how often it was */
    uint64_t rows_checked, prompt_rows_checked, hidden_checked, wrong, histories, grouped_steps;
} witness;

static witness w;
static weights_policy witness_weights; /* of the models that are started */

static inline uint32_t below(uint32_t n)
{
    return (uint32_t)(test_random(&w.state) % n);
}

static inline uint64_t digest_of(const float *logits)
{
    uint64_t d = XXH3_64bits(logits, w.model->info.vocab_size * sizeof *logits);
    return d ? d : 1;
}

/* ---- the runner around the model's ---- */

static inline rad_status witness_forward(runner *self, const forward_batch *b, const float **logits,
                                         rad_error *err)
{
    forward_batch batch = *b;
    w.grouped_steps += b->num_groups > 0;
    if (w.before) w.before(&batch);
    const float *all; /* also where the scheduler wants none */
    rad_status status = w.real->forward(self, &batch, &all, err);
    if (w.after) w.after();
    if (status != RAD_OK) return status;
    if (logits) *logits = all;
    w.now += 100000 + 5000 * (uint64_t)b->num_tokens;
    CHECK(b->num_logits <= MOST_ROWS);
    for (uint32_t row = 0; row < b->num_logits; row++) {
        const uint32_t i = w.s->batch.logits_reqs[row], at = b->logits_indices[row];
        w.rows_of_step[row] =
            (witness_row){.h = w.s->batch.reqs[i]->user,
                          .before = b->extend_prefix_lens[i] + at - b->extend_start_loc[i] + 1,
                          .digest = digest_of(all + (size_t)row * w.model->info.vocab_size)};
    }
    w.num_rows_of_step = b->num_logits;
    return RAD_OK;
}

/* Those of the step's rows that a token came of: the others stood behind a wrong draft. */
static inline void keep_rows(void)
{
    for (uint32_t row = 0; row < w.num_rows_of_step; row++) {
        const witness_row *r = &w.rows_of_step[row];
        uint64_t *seen = &r->h->digest[r->before];
        if (r->before >= req_num_fill(&r->h->r)) continue;
        if (*seen && *seen != r->digest) w.wrong++; /* computed twice: retracted in between */
        *seen = r->digest;
    }
    w.num_rows_of_step = 0;
}

/* ---- alone and cold ---- */

/* The logits of `num_rows` of a text's tokens [from, n), computed at once behind the last call's.
 */
static inline const float *cold_logits(const rad_token *ids, uint32_t from, uint32_t n,
                                       const uint32_t *indices, uint32_t num_rows,
                                       const forward_pool *pool)
{
    uint32_t positions[CONTEXT], num_new = n - from;
    rad_slot loc[CONTEXT], *row = rad_req_to_token_row(w.rows, 1);
    for (uint32_t p = 0; p < n; p++)
        row[p] = loc[p] = (rad_slot)p + 1, positions[p] = p;
    const forward_batch batch = {.num_reqs = 1,
                                 .num_tokens = num_new,
                                 .input_ids = ids + from,
                                 .positions = positions + from,
                                 .out_cache_loc = loc + from,
                                 .req_pool_indices = &(rad_row){1},
                                 .seq_lens = &n,
                                 .extend_prefix_lens = &from,
                                 .extend_seq_lens = &num_new,
                                 .extend_start_loc = &(uint32_t){0},
                                 .num_logits = num_rows,
                                 .logits_indices = indices,
                                 .num_pools = pool != NULL,
                                 .pools = pool,
                                 .req_to_token_pool = w.rows,
                                 .token_to_kv_pool = w.kv,
                                 .window_rows = w.window ? w.rows : NULL,
                                 .window_kv_pool = w.window,
                                 .window_out_cache_loc = w.window ? loc + from : NULL,
                                 .state_pool = w.states,
                                 .state_in = w.states ? &(rad_state){from > 0} : NULL,
                                 .state_out = w.states ? &(rad_state){1} : NULL};
    const float *logits;
    CHECK_OK(w.real->forward(w.model, &batch, &logits, NULL));
    return logits;
}

/* What is said behind `n` tokens that have these logits; the rule stands there. */
static inline rad_token cold_token(const history *h, token_rule *rule, const rad_token *ids,
                                   uint32_t n, const float *logits)
{
    enum { MOST_VOCAB = 4096 };
    static uint64_t scratch[MOST_VOCAB * 12 / 8];
    static uint32_t allowed[MOST_VOCAB / 32];
    const uint32_t vocab = w.model->info.vocab_size, num_input = h->r.num_input;
    CHECK(vocab <= MOST_VOCAB);
    bool masks = h->r.rule && rule->ops->mask(rule, allowed) == TOKEN_MASK_SOME;
    rad_token token = sampler_next(logits, vocab, &h->r.sampling, ids + num_input, n - num_input, n,
                                   masks ? allowed : NULL, scratch);
    if (h->r.rule) CHECK(rule->ops->accept(rule, token));
    return token;
}

static inline void check_logprobs(const history *h, const float *logits, rad_token token,
                                  const token_logprob told[2])
{
    token_logprob own[2];
    sampler_logprobs(logits, w.model->info.vocab_size, token, &h->r.sampling, own);
    CHECK(told->id == token && !memcmp(own, told, sizeof own));
}

static inline void check_cold(history *h)
{
    uint32_t n = 0, num_rows = 0, indices[CONTEXT];
    for (uint32_t p = 1; p <= CONTEXT; p++)
        if (h->digest[p]) indices[num_rows++] = p - 1, n = p;
    const bool pooled = h->r.pooling && h->r.finish == REQ_FINISH_LENGTH;
    if (pooled) n = RAD_MAX(n, h->r.num_input);
    double sum[1024] = {0};
    CHECK(w.model->info.hidden_dim <= RAD_COUNT(sum));
    const forward_pool pool = {h->r.num_input - req_pooled(&h->r), req_pooled(&h->r), sum};
    w.histories++;
    if (!n) return;
    const float *logits =
        cold_logits(h->r.fill_ids, 0, n, indices, num_rows, pooled ? &pool : NULL);
    p1_rule copy;
    token_rule *rule = p1_rule_anew(&h->rule, &copy);
    uint32_t said = 0;
    for (uint32_t i = 0; i < num_rows; i++) {
        const float *row = logits + (size_t)i * w.model->info.vocab_size;
        uint64_t cold = digest_of(row);
        w.rows_checked++;
        w.prompt_rows_checked += indices[i] + 1 < h->r.num_input;
        if (cold == h->digest[indices[i] + 1]) {
            if (indices[i] + 1 < h->r.num_input) continue;
            rad_token token = cold_token(h, rule, h->r.fill_ids, indices[i] + 1, row);
            CHECK(token == h->r.fill_ids[indices[i] + 1]);
            if (h->r.sampling.logprobs)
                check_logprobs(h, row, token, h->logprobs[indices[i] + 1 - h->r.num_input]);
            said++;
            continue;
        }
        w.wrong++;
        CHECKF(w.wrong_is_meant,
               "%s, seed %llu: history %llu differs from its cold run at token %u of %u\n", w.what,
               (unsigned long long)w.seed, (unsigned long long)w.histories, indices[i], n);
    }
    p1_rule_fini(&copy);
    CHECK(said == h->r.num_output || w.wrong);
    CHECK(h->num_logprobs == (h->r.sampling.logprobs ? h->r.num_output : 0));
    if (!pooled) return;
    w.hidden_checked++;
    if (!memcmp(sum, h->r.hidden_sum, h->r.hidden_dim * sizeof *sum)) return;
    w.wrong++;
    CHECKF(w.wrong_is_meant, "%s, seed %llu: history %llu of %u tokens has other hidden states\n",
           w.what, (unsigned long long)w.seed, (unsigned long long)w.histories, n);
}

/* ---- drafts ---- */

/* What the history would say, cold and alone. The runner's logits are nobody's now. */
static inline void foresee(history *h)
{
    rad_token ids[CONTEXT];
    p1_rule copy;
    token_rule *rule = p1_rule_anew(&h->rule, &copy);
    uint32_t n = h->r.num_input, from = 0;
    memcpy(ids, h->r.fill_ids, n * sizeof *ids);
    for (; h->num_foreseen < h->r.max_new_tokens; h->num_foreseen++, from = n++) {
        const float *logits = cold_logits(ids, from, n, &(uint32_t){n - from - 1}, 1, NULL);
        ids[n] = cold_token(h, rule, ids, n, logits);
        h->foreseen[h->num_foreseen] = ids[n];
        if (h->r.rule && rule->ops->has_ended(rule)) {
            h->num_foreseen++;
            break;
        }
    }
    p1_rule_fini(&copy);
}

/* What a client foretells: the answer, the answer with a token changed and one left out, or another
 * one. */
static inline void foretell(history *h)
{
    rad_token ids[MOST_NEW];
    const uint32_t how = below(3), vocab = w.model->info.vocab_size;
    foresee(h);
    uint32_t n = h->num_foreseen;
    memcpy(ids, h->foreseen, n * sizeof *ids);
    if (how == 1 && n > 2) {
        const uint32_t out = below(--n);
        memmove(ids + out, ids + out + 1, (n - out) * sizeof *ids);
        ids[below(n)] = (rad_token)below(vocab);
    }
    for (uint32_t i = 0; i < n && how == 2; i++)
        ids[i] = (rad_token)below(vocab);
    const rad_env env = rad_env_or_default(NULL);
    CHECK_OK(prediction_create(&env, ids, n, &h->foretold, NULL));
    h->r.prediction = h->foretold;
}

/* Some right, some wrong ones, in any order; nonsense behind the end. */
static inline uint32_t witness_guess(void *user, const req *r, rad_token *out, uint32_t room)
{
    (void)user;
    history *h = r->user;
    const uint32_t vocab = w.model->info.vocab_size, n = below(room + 1), wrong = below(4);
    if (!h->num_foreseen) foresee(h);
    for (uint32_t i = 0, at = r->num_output; i < n; i++, at++) {
        bool right = at < h->num_foreseen && (!wrong || below(3 * wrong));
        out[i] = right ? h->foreseen[at] : (rad_token)below(vocab + 2) - 1;
    }
    return n;
}

/* ---- histories ---- */

static inline void on_output(void *user, const req_output *outputs, uint32_t count)
{
    (void)user;
    const rad_env env = rad_env_or_default(NULL);
    for (uint32_t i = 0; i < count; i++) {
        history *h = outputs[i].req->user;
        const token_logprob *told = outputs[i].prompt_logprobs;
        if (outputs[i].logprobs) {
            CHECK(outputs[i].token >= 0 && h->num_logprobs < MOST_NEW);
            memcpy(h->logprobs[h->num_logprobs++], outputs[i].logprobs, sizeof h->logprobs[0]);
            rad_free(&env, outputs[i].logprobs, req_logprobs_bytes(&h->r.sampling, 1));
        }
        for (uint32_t k = 0; k < outputs[i].num_prompt_logprobs; k++, h->told++) {
            CHECK(told[2 * k].id == h->r.fill_ids[h->r.prompt_logprobs_from + h->told]);
            CHECK(isnan(told[2 * k].logprob) == !h->told);
        }
        rad_free(&env, outputs[i].prompt_logprobs,
                 req_logprobs_bytes(&h->r.sampling, outputs[i].num_prompt_logprobs));
        if (!outputs[i].finish) continue;
        if (h->r.prompt_logprobs && h->r.finish != REQ_FINISH_ABORT)
            CHECK(h->told == h->r.num_input - h->r.prompt_logprobs_from);
        CHECKF(h->r.finish != REQ_FINISH_ERROR, "%s\n", h->r.error.text);
        h->live = false; /* checked after the step: the batch is still in use */
    }
}

/* A turn of an idle session: what it said last, whole or cut, and some more. 0: none is idle. */
static inline uint32_t begin_turn(history *h, rad_token *ids, uint32_t *n)
{
    const uint32_t i = below(SESSIONS), most = CONTEXT - MOST_NEW - 1;
    if (!w.sessions || below(4) || w.in_session[i]) return 0;
    *n = RAD_MIN(w.num_said[i], most - 30);
    if (*n && below(4) == 0) *n = below(*n);
    memcpy(ids, w.said[i], *n * sizeof *ids);
    if (*n >= most - 30) *n = 0; /* another conversation */
    for (uint32_t k = 1 + below(30); k > 0; k--)
        ids[(*n)++] = (rad_token)below(w.model->info.vocab_size);
    w.in_session[i] = h;
    w.turns++;
    return w.session[i];
}

static inline void end_turn(const history *h)
{
    for (uint32_t i = 0; i < SESSIONS; i++) {
        if (w.in_session[i] != h) continue;
        w.in_session[i] = NULL;
        w.num_said[i] = RAD_MIN(req_num_fill(&h->r), (uint32_t)CONTEXT);
        memcpy(w.said[i], h->r.fill_ids, w.num_said[i] * sizeof *w.said[i]);
    }
}

/* What an answer before this place has a say in: penalties, and ends that it may not have yet. */
static inline void draw_sampling(req_params *p)
{
    static const rad_token stop = 9;
    sampling_params *sampling = &p->sampling;
    if (below(3) == 0) {
        sampling->temperature = 0.8f;
        sampling->top_p = 0.95f;
        sampling->top_k = 20;
        sampling->seed = test_random(&w.state);
    }
    if (below(3) == 0) {
        sampling->repetition_penalty = 1.5f;
        sampling->presence_penalty = 0.5f;
        sampling->frequency_penalty = 0.5f;
    }
    if (below(3) == 0) {
        static const logit_bias bias = {9, 4}; /* so that it comes */
        p->stop_token_ids = sampling->end_ids = &stop;
        p->num_stop_token_ids = sampling->num_end_ids = 1;
        sampling->min_new_tokens = below(USUAL_NEW);
        sampling->bias = &bias;
        sampling->num_bias = 1;
    }
    sampling->logprobs = below(4) == 0; /* with one alternative each */
    sampling->num_top_logprobs = 1;
}

static inline void start_history(history *h)
{
    rad_token ids[CONTEXT];
    uint32_t n = 0;
    const uint32_t session = begin_turn(h, ids, &n);
    if (!session) n = w.make_prompt(ids);
    req_params p = {.ids = ids,
                    .num_ids = n,
                    .max_new_tokens = 1 + below(w.drafts ? MOST_NEW : USUAL_NEW),
                    .priority = (int32_t)below(3),
                    .user = h,
                    .sampling = {.top_p = 1}};
    draw_sampling(&p);
    if (below(8) == 0 && !session) p.cache_salt = "another tenant";
    p.session = session;
    const uint32_t of_prompt = below(12);
    if (of_prompt < 2) { /* its own logprobs, with one alternative each, or its hidden states */
        p.prompt_logprobs = true;
        p.prompt_logprobs_from = of_prompt ? below(n) : 0;
    } else if (of_prompt < 4 && w.model->info.hidden_dim) {
        p.pooling = of_prompt == 2 ? POOL_LAST : POOL_MEAN;
        p.hidden_dim = w.model->info.hidden_dim;
        p.max_new_tokens *= below(2);
    }
    memset(h, 0, sizeof *h);
    if (w.rules && below(2))
        p.rule = p1_rule_draw(&h->rule, &w.state, &w.grammars, w.model->info.vocab_size, MOST_NEW);
    CHECK_OK(req_init(&h->r, NULL, &p, NULL));
    if (w.drafts && below(3) == 0) foretell(h);
    rad_error err = {0};
    rad_status status = scheduler_add(w.s, &h->r, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    h->live = true;
}

static inline void end_history(history *h)
{
    uint32_t slot = below(KEPT), n = RAD_MIN(req_num_fill(&h->r), (uint32_t)CONTEXT);
    memcpy(w.kept[slot], h->r.fill_ids, n * sizeof *w.kept[slot]);
    w.kept_len[slot] = n;
    end_turn(h);
    check_cold(h);
    w.ruled += h->rule.of && h->r.num_output;
    p1_rule_fini(&h->rule);
    prediction_destroy(&h->r.env, h->foretold);
    req_fini(&h->r);
    memset(&h->r, 0, sizeof h->r);
}

static inline void run_histories(uint32_t count)
{
    uint32_t started = 0;
    w.histories = 0;
    for (int i = 0; i < SESSIONS && w.sessions; i++)
        CHECK_OK(scheduler_session_open(w.s, &w.session[i], NULL));
    while (w.histories < count) {
        for (int i = 0; i < IN_FLIGHT && started < count; i++) {
            if (w.slots[i].r.user || below(2)) continue;
            start_history(&w.slots[i]);
            started++;
        }
        if (below(w.abort_every) == 0) {
            history *h = &w.slots[below(IN_FLIGHT)];
            if (h->live) scheduler_cancel(w.s, &h->r, REQ_FINISH_ABORT);
        }
        scheduler_step(w.s);
        keep_rows();
        for (int i = 0; i < IN_FLIGHT; i++)
            if (w.slots[i].r.user && !w.slots[i].live) end_history(&w.slots[i]);
    }
    CHECK(scheduler_is_idle(w.s));
    CHECK_OK(scheduler_check(w.s, NULL));
    for (int i = 0; i < SESSIONS && w.sessions; i++) {
        CHECK_OK(scheduler_session_close(w.s, w.session[i], NULL));
        w.num_said[i] = 0;
    }
    CHECK_OK(scheduler_check(w.s, NULL));
    scheduler_stats st;
    scheduler_get_stats(w.s, &st);
    for (int kind = 0; kind < DRAFT_KINDS; kind++) {
        w.proposed += st.drafts.proposed[kind];
        w.accepted += st.drafts.accepted[kind];
    }
    w.foretold += st.drafts.proposed[DRAFT_PREDICTION];
    w.foretold_right += st.drafts.accepted[DRAFT_PREDICTION];
}

/* ---- models and pools ---- */

/* A test sets it for the runs that follow. */
static bool witness_few_states;
static bool witness_nextn; /* the models' heads guess */

/* Over `model`, which is the witness's from now on. What the test sets of the witness it sets after
 * this. */
static inline void witness_take(runner *model, const char *what)
{
    memset(&w, 0, sizeof w);
    w.seed = w.state = test_seed();
    w.abort_every = 12;
    snprintf(w.what, sizeof w.what, "%s", what);
    w.model = model;
    w.real = w.model->ops;
    w.ops = *w.real;
    w.ops.forward = witness_forward;
    w.model->ops = &w.ops;
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = 1, .row_tokens = CONTEXT};
    CHECK_OK(rad_req_to_token_pool_create(NULL, &rows, &w.rows, NULL));
    const bool apart = runner_layers_differ(&w.model->info);
    CHECK_OK(runner_create_pool(w.model, NULL, apart ? RUNNER_FULL_LAYERS : RUNNER_ALL_LAYERS,
                                CONTEXT, 1, &w.kv, NULL));
    if (apart)
        CHECK_OK(
            runner_create_pool(w.model, NULL, RUNNER_WINDOW_LAYERS, CONTEXT, 1, &w.window, NULL));
    CHECK_OK(runner_create_state_pool(w.model, NULL, 1, &w.states, NULL));
    rad_state state;
    if (w.states) CHECK_OK(rad_state_alloc(w.states, &state));
}

/* Over a model on this CPU. `kernels` are those of products and attention by name, "amx-emulated";
 * NULL: the best. */
static inline void witness_start_on(const char *kernels, const gguf_file *file, const char *name,
                                    rad_dtype dtype, rad_dtype kv_dtype)
{
    rad_error err = {0};
    char what[sizeof w.what];
    runner *model;
    snprintf(what, sizeof what, "%s %s%s, %s KV%s%s", name, kv_dtype_name(dtype),
             witness_weights == WEIGHTS_AS_Q8_0 ? " of q8_0" : "", kv_dtype_name(kv_dtype),
             kernels ? " by " : "", kernels ? kernels : "");
    model_runner_params params = {.dtype = dtype,
                                  .weights = witness_weights,
                                  .kv_dtype = kv_dtype,
                                  .set_kv_dtype = true,
                                  .max_batch_tokens = 4 * CONTEXT,
                                  .max_batch_logits = CONTEXT,
                                  .context_length = CONTEXT,
                                  .attn = gear_attn_cpu(kernels),
                                  .gemm = gear_gemm_isa(kernels),
                                  .num_threads = 2,
                                  .nextn = witness_nextn};
    CHECK(params.attn && params.gemm);
    rad_status status = model_runner_create(NULL, file, &params, &model, &err);
    CHECKF(status == RAD_OK, "%s: %s\n", name, err.text);
    witness_take(model, what);
}

static inline void witness_start(const gguf_file *file, const char *name, rad_dtype dtype,
                                 rad_dtype kv_dtype)
{
    witness_start_on(NULL, file, name, dtype, kv_dtype);
}

static inline void witness_end(void)
{
    rad_req_to_token_pool_destroy(w.rows);
    rad_token_to_kv_pool_destroy(w.kv);
    rad_token_to_kv_pool_destroy(w.window);
    rad_state_pool_destroy(w.states);
    runner_destroy(w.model);
    p1_grammars_fini(&w.grammars);
}

/* What every run wants of its scheduler; chunks, policy, --max-itl-ms and retractions are drawn. */
static inline scheduler_params witness_params(uint32_t page_size, uint64_t max_total_tokens)
{
    static const uint32_t chunks[] = {0, 16, 48, 100};
    /* None; so little that prompts crawl; about a step of witness_forward; the server's default. */
    static const uint64_t max_itl_ns[] = {0, 1, 300000, 500000000};
    gear_retract_every(7 + below(10));
    const draft_guesser guesses = {.propose = witness_guess};
    return (scheduler_params){.runner = w.model,
                              .page_size = page_size,
                              .max_total_tokens = max_total_tokens,
                              .max_running_requests = 8,
                              .max_queued_requests = IN_FLIGHT,
                              .chunked_prefill_size = chunks[below(4)],
                              .context_length = CONTEXT,
                              .policy = (schedule_policy)below(SCHEDULE_NUM_POLICIES),
                              .enable_priority_scheduling = below(4) == 0,
                              .random_seed = w.seed,
                              .max_itl_ns = max_itl_ns[below(4)],
                              .max_states = STATE_LEAST + below(witness_few_states ? 2 : 42),
                              .state_interval = 1 + below(100),
                              .turn_token = (rad_token)below(w.model->info.vocab_size),
                              .max_draft_tokens = w.drafts ? 1 + below(MOST_NEW) : 0,
                              .draft_sources = (w.drafts ? below(1u << DRAFT_KINDS) : 0) |
                                               (witness_nextn ? draft_bit(DRAFT_NEXTN) : 0),
                              .draft_recent_tokens = 1,
                              .draft_given = w.drafts && below(4) ? guesses : (draft_guesser){0},
                              .max_sessions = w.sessions ? SESSIONS : 0,
                              .streaming_sessions = w.sessions && below(2),
                              .on_output = on_output,
                              .user = &w};
}

static inline uint64_t witness_now(void *user)
{
    (void)user;
    return w.now;
}

static inline void witness_scheduler(const scheduler_params *params)
{
    rad_error err = {0};
    rad_env env = rad_env_or_default(NULL);
    /* So that the seed decides where max_itl_ns cuts. (Tiers have threads and deadlines.) */
    if (!params->hicache) env.now_ns = witness_now;
    rad_status status = scheduler_create(&env, params, &w.s, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    w.s->drafts.at_any_price = below(4); /* else as they pay */
}

#endif
