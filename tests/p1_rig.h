/* p1_rig.h - histories of requests through a scheduler over a real model, each of whose rows
 * of logits must be, bit by bit, the one that it would get alone and cold.
 *
 * A runner around the model's (the witness) takes a digest of every row of logits. When a
 * history has ended, its whole text is computed again in one prefill on empty pools, and all
 * digests must agree. Which prompts there are is the test's to say (w.make_prompt), and it
 * may tamper with a step (w.before, w.after) to see the comparison fail. */
#ifndef TESTS_P1_RIG_H
#define TESTS_P1_RIG_H

#include "gear/amx_gear.h"
#include "gear/retract.h"
#include "test.h"
#include "tiny_models.h"

#include "mem/kv_codec.h"
#include "model/model_runner.h"
#include "sched/scheduler_impl.h"

#include <math.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { CONTEXT = 320, IN_FLIGHT = 12, MOST_NEW = 8, KEPT = 8 };

typedef struct history {
    req r;
    bool live;
    uint64_t digest[CONTEXT + 1]; /* of the logits behind so many tokens; 0: none were asked */
    uint32_t told;                /* logprobs of its prompt */
} history;

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
    uint32_t abort_every; /* of so many steps */
    uint64_t now;         /* the scheduler's clock, ns */
    bool wrong_is_meant;  /* a fault is planted */
    uint64_t faults;      /* how often it was */
    uint64_t rows_checked, prompt_rows_checked, hidden_checked, wrong, histories, grouped_steps;
} witness;

static witness w;

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
    for (uint32_t next = 0, i = 0; next < b->num_logits; next++) {
        while (b->logits_indices[next] >= b->extend_start_loc[i] + b->extend_seq_lens[i])
            i++;
        history *h = w.s->batch.reqs[i]->user;
        uint64_t d = digest_of(all + (size_t)next * w.model->info.vocab_size);
        const uint32_t at = b->logits_indices[next] - b->extend_start_loc[i];
        uint64_t *seen = &h->digest[b->extend_prefix_lens[i] + at + 1];
        if (*seen && *seen != d) w.wrong++; /* computed twice: retracted in between */
        *seen = d;
    }
    return RAD_OK;
}

/* ---- alone and cold ---- */

static inline void check_cold(history *h)
{
    uint32_t n = 0, num_rows = 0, indices[CONTEXT], positions[CONTEXT];
    for (uint32_t p = 1; p <= CONTEXT; p++)
        if (h->digest[p]) indices[num_rows++] = p - 1, n = p;
    const bool pooled = h->r.pooling && h->r.finish == REQ_FINISH_LENGTH;
    if (pooled) n = RAD_MAX(n, h->r.num_input);
    double sum[1024] = {0};
    CHECK(w.model->info.hidden_dim <= RAD_COUNT(sum));
    const forward_pool pool = {h->r.num_input - req_pooled(&h->r), req_pooled(&h->r), sum};
    w.histories++;
    if (!n) return;
    rad_slot loc[CONTEXT], *row = rad_req_to_token_row(w.rows, 1);
    for (uint32_t p = 0; p < n; p++)
        row[p] = loc[p] = (rad_slot)p + 1, positions[p] = p;
    const forward_batch batch = {.num_reqs = 1,
                                 .num_tokens = n,
                                 .input_ids = h->r.fill_ids,
                                 .positions = positions,
                                 .out_cache_loc = loc,
                                 .req_pool_indices = &(rad_row){1},
                                 .seq_lens = &n,
                                 .extend_prefix_lens = &(uint32_t){0},
                                 .extend_seq_lens = &n,
                                 .extend_start_loc = &(uint32_t){0},
                                 .num_logits = num_rows,
                                 .logits_indices = indices,
                                 .num_pools = pooled,
                                 .pools = pooled ? &pool : NULL,
                                 .req_to_token_pool = w.rows,
                                 .token_to_kv_pool = w.kv,
                                 .window_rows = w.window ? w.rows : NULL,
                                 .window_kv_pool = w.window,
                                 .window_out_cache_loc = w.window ? loc : NULL,
                                 .state_pool = w.states,
                                 .state_in = w.states ? &(rad_state){0} : NULL,
                                 .state_out = w.states ? &(rad_state){1} : NULL};
    const float *logits;
    CHECK_OK(w.real->forward(w.model, &batch, &logits, NULL));
    for (uint32_t i = 0; i < num_rows; i++) {
        uint64_t cold = digest_of(logits + (size_t)i * w.model->info.vocab_size);
        w.rows_checked++;
        w.prompt_rows_checked += indices[i] + 1 < h->r.num_input;
        if (cold == h->digest[indices[i] + 1]) continue;
        w.wrong++;
        CHECKF(w.wrong_is_meant,
               "%s, seed %llu: history %llu differs from its cold run at token %u of %u\n", w.what,
               (unsigned long long)w.seed, (unsigned long long)w.histories, indices[i], n);
    }
    if (!pooled) return;
    w.hidden_checked++;
    if (!memcmp(sum, h->r.hidden_sum, h->r.hidden_dim * sizeof *sum)) return;
    w.wrong++;
    CHECKF(w.wrong_is_meant, "%s, seed %llu: history %llu of %u tokens has other hidden states\n",
           w.what, (unsigned long long)w.seed, (unsigned long long)w.histories, n);
}

/* ---- histories ---- */

static inline void on_output(void *user, const req_output *outputs, uint32_t count)
{
    (void)user;
    const rad_env env = rad_env_or_default(NULL);
    for (uint32_t i = 0; i < count; i++) {
        history *h = outputs[i].req->user;
        const token_logprob *told = outputs[i].prompt_logprobs;
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

static inline void start_history(history *h)
{
    rad_token ids[CONTEXT];
    uint32_t n = w.make_prompt(ids);
    req_params p = {.ids = ids,
                    .num_ids = n,
                    .max_new_tokens = 1 + below(MOST_NEW),
                    .priority = (int32_t)below(3),
                    .user = h,
                    .sampling = {.top_p = 1}};
    if (below(3) == 0)
        p.sampling = (sampling_params){
            .temperature = 0.9f, .top_p = 0.95f, .top_k = 20, .seed = test_random(&w.state)};
    if (below(8) == 0) p.cache_salt = "another tenant";
    const uint32_t of_prompt = below(12);
    if (of_prompt < 2) { /* its own logprobs, with one alternative each, or its hidden states */
        p.prompt_logprobs = true;
        p.prompt_logprobs_from = of_prompt ? below(n) : 0;
        p.sampling.num_top_logprobs = 1;
    } else if (of_prompt < 4) {
        p.pooling = of_prompt == 2 ? POOL_LAST : POOL_MEAN;
        p.hidden_dim = w.model->info.hidden_dim;
        p.max_new_tokens *= below(2);
    }
    memset(h, 0, sizeof *h);
    CHECK_OK(req_init(&h->r, NULL, &p, NULL));
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
    check_cold(h);
    req_fini(&h->r);
    memset(&h->r, 0, sizeof h->r);
}

static inline void run_histories(uint32_t count)
{
    uint32_t started = 0;
    w.histories = 0;
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
        for (int i = 0; i < IN_FLIGHT; i++)
            if (w.slots[i].r.user && !w.slots[i].live) end_history(&w.slots[i]);
    }
    CHECK(scheduler_is_idle(w.s));
    CHECK_OK(scheduler_check(w.s, NULL));
}

/* ---- models and pools ---- */

/* What the test sets of the witness it sets after this. `kernels` are those of products and
 * attention by name, "amx-emulated"; NULL: the best. */
static inline void witness_start_on(const char *kernels, const gguf_file *file, const char *name,
                                    rad_dtype dtype, rad_dtype kv_dtype)
{
    rad_error err = {0};
    memset(&w, 0, sizeof w);
    w.seed = w.state = test_seed();
    w.abort_every = 12;
    snprintf(w.what, sizeof w.what, "%s %s, %s KV%s%s", name, kv_dtype_name(dtype),
             kv_dtype_name(kv_dtype), kernels ? " by " : "", kernels ? kernels : "");
    model_runner_params params = {.dtype = dtype,
                                  .kv_dtype = kv_dtype,
                                  .set_kv_dtype = true,
                                  .max_batch_tokens = 4 * CONTEXT,
                                  .max_batch_logits = CONTEXT,
                                  .context_length = CONTEXT,
                                  .attn = gear_attn_cpu(kernels),
                                  .gemm = gear_gemm_isa(kernels),
                                  .num_threads = 2};
    CHECK(params.attn && params.gemm);
    rad_status status = model_runner_create(NULL, file, &params, &w.model, &err);
    CHECKF(status == RAD_OK, "%s: %s\n", name, err.text);
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
}

/* What every run wants of its scheduler; chunks, policy, --max-itl-ms and retractions are drawn. */
static inline scheduler_params witness_params(uint32_t page_size, uint64_t max_total_tokens)
{
    static const uint32_t chunks[] = {0, 16, 48, 100};
    /* None; so little that prompts crawl; about a step of witness_forward; the server's default. */
    static const uint64_t max_itl_ns[] = {0, 1, 300000, 500000000};
    gear_retract_every(7 + below(10));
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
                              .max_states = STATE_LEAST + below(42),
                              .state_interval = 1 + below(100),
                              .turn_token = (rad_token)below(w.model->info.vocab_size),
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
}

static const tiny_model p1_llama = {.arch = "llama",
                                    .vocab = 300,
                                    .layers = 2,
                                    .dim = 64,
                                    .ffn = 96,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .head_dim = 16,
                                    .v_head_dim = 16,
                                    .rope_dim = 16,
                                    .context = CONTEXT};
static const tiny_model p1_qwen3 = {.arch = "qwen3",
                                    .vocab = 200,
                                    .layers = 3,
                                    .dim = 64,
                                    .ffn = 128,
                                    .heads = 4,
                                    .kv_heads = 1,
                                    .head_dim = 32,
                                    .v_head_dim = 32,
                                    .rope_dim = 32,
                                    .context = CONTEXT,
                                    .tied = true};

/* What the small ones below agree in. */
#define P1_SMALL                                                                                   \
    .vocab = 200, .dim = 64, .ffn = 64, .head_dim = 16, .v_head_dim = 16, .rope_dim = 16,          \
    .context = CONTEXT
#define P1_HEADS   .heads = 4, .kv_heads = 2
#define P1_STATE   .taps = 4, .state_heads = 4, .state_groups = 2, .state_key = 16, .state_value = 16
#define P1_EXPERTS .experts = 6, .used = 2, .expert_ffn = 64

/* With layers that keep a state: delta rule, Mamba 2, short convolutions; then with experts, and
 * one whose layers are a block each. */
static const tiny_model p1_recurrent[] = {
    {.arch = "qwen35", P1_SMALL, P1_HEADS, P1_STATE, .layers = 4, .attention = 4},
    {.arch = "granitehybrid",
     P1_SMALL,
     P1_HEADS,
     P1_STATE,
     .layers = 3,
     .attention = 3,
     .embedding_scale = 2,
     .residual_scale = 0.5f,
     .logit_scale = 0.5f},
    {.arch = "lfm2", P1_SMALL, P1_HEADS, .layers = 3, .taps = 3, .attention = 3},
    {.arch = "qwen35moe",
     P1_SMALL,
     P1_HEADS,
     P1_STATE,
     P1_EXPERTS,
     .layers = 4,
     .attention = 4,
     .shared_ffn = 32},
    {.arch = "lfm2moe",
     P1_SMALL,
     P1_HEADS,
     P1_EXPERTS,
     .layers = 3,
     .taps = 3,
     .attention = 3,
     .dense = 1,
     .gating = 2},
    {.arch = "nemotron_h", P1_SMALL, P1_HEADS, P1_STATE, .layers = 3}};

static const tiny_model p1_moe = {.arch = "qwen3moe",
                                  .vocab = 200,
                                  .layers = 3,
                                  .dim = 64,
                                  .ffn = 96,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 16,
                                  .v_head_dim = 16,
                                  .rope_dim = 16,
                                  .context = CONTEXT,
                                  .experts = 9,
                                  .used = 3,
                                  .expert_ffn = 64};

/* Whose layers, all or some, see 40 or 70 tokens: Mistral, phi3, gemma2, gemma3, gpt-oss
 * with its sinks and experts, OLMo 3, gemma4 whose windows have wider heads and whose last layers
 * have no K/V. */
static const tiny_model p1_windowed[] = {{.arch = "llama",
                                          .vocab = 300,
                                          .layers = 2,
                                          .dim = 64,
                                          .ffn = 96,
                                          .heads = 4,
                                          .kv_heads = 2,
                                          .head_dim = 32,
                                          .v_head_dim = 32,
                                          .rope_dim = 32,
                                          .window = 40,
                                          .context = CONTEXT},
                                         {.arch = "phi3",
                                          .vocab = 200,
                                          .layers = 2,
                                          .dim = 64,
                                          .ffn = 64,
                                          .heads = 4,
                                          .kv_heads = 4,
                                          .head_dim = 16,
                                          .v_head_dim = 16,
                                          .rope_dim = 16,
                                          .window = 70,
                                          .context = CONTEXT},
                                         {.arch = "gemma2",
                                          .vocab = 200,
                                          .layers = 3,
                                          .dim = 64,
                                          .ffn = 64,
                                          .heads = 4,
                                          .kv_heads = 2,
                                          .head_dim = 16,
                                          .v_head_dim = 16,
                                          .rope_dim = 16,
                                          .window = 70,
                                          .context = CONTEXT,
                                          .attn_cap = 5,
                                          .final_cap = 10,
                                          .tied = true},
                                         {.arch = "gemma3",
                                          .vocab = 200,
                                          .layers = 7,
                                          .dim = 64,
                                          .ffn = 64,
                                          .heads = 2,
                                          .kv_heads = 1,
                                          .head_dim = 16,
                                          .v_head_dim = 16,
                                          .rope_dim = 16,
                                          .window = 40,
                                          .context = CONTEXT,
                                          .tied = true},
                                         {.arch = "gpt-oss",
                                          .vocab = 200,
                                          .layers = 4,
                                          .dim = 64,
                                          .ffn = 64,
                                          .heads = 4,
                                          .kv_heads = 2,
                                          .head_dim = 16,
                                          .v_head_dim = 16,
                                          .rope_dim = 16,
                                          .window = 40,
                                          .context = CONTEXT,
                                          .rope_type = "yarn",
                                          .rope_factor = 8,
                                          .original_context = 64,
                                          .experts = 6,
                                          .used = 2,
                                          .expert_ffn = 64},
                                         {.arch = "olmo2",
                                          .vocab = 200,
                                          .layers = 5,
                                          .dim = 64,
                                          .ffn = 64,
                                          .heads = 4,
                                          .kv_heads = 4,
                                          .head_dim = 16,
                                          .v_head_dim = 16,
                                          .rope_dim = 16,
                                          .window = 70,
                                          .context = CONTEXT},
                                         {.arch = "gemma4",
                                          P1_SMALL,
                                          P1_HEADS,
                                          P1_EXPERTS,
                                          .layers = 6,
                                          .window = 40,
                                          .window_head_dim = 32,
                                          .window_kv_heads = 1,
                                          .shared_kv = 3,
                                          .layer_embd = 16,
                                          .v_is_k = true,
                                          .output_scale = true,
                                          .expert_scales = true,
                                          .tied = true}};

/* One latent row a token (MLA), experts in groups and one that all use. */
static const tiny_model p1_latent = {.arch = "deepseek2",
                                     .vocab = 200,
                                     .layers = 3,
                                     .dim = 64,
                                     .ffn = 96,
                                     .heads = 4,
                                     .kv_heads = 1,
                                     .head_dim = 48,
                                     .v_head_dim = 32,
                                     .rope_dim = 16,
                                     .context = CONTEXT,
                                     .q_rank = 40,
                                     .kv_rank = 32,
                                     .key = 40,
                                     .value = 24,
                                     .experts = 8,
                                     .used = 2,
                                     .expert_ffn = 64,
                                     .shared_experts = 1,
                                     .dense = 1,
                                     .groups = 4,
                                     .groups_used = 2,
                                     .gating = 2};

/* The writer is the caller's to end after the file. */
static inline gguf_file *p1_open(const tiny_model *m, tiny_writer *writer)
{
    uint64_t state = 5;
    gguf_file *file;
    rad_error err = {0};
    tiny_model_write(writer, m, &state);
    rad_status status = gguf_open_memory(NULL, writer->b.bytes, writer->b.len, &file, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    return file;
}

#endif
