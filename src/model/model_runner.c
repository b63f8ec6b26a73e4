/* model_runner.c - config, weights, buffers and threads put together behind runner.h.
 *
 * Everything is allocated in create; forward allocates nothing and looks over the
 * batch before it computes. A draw from 152,000 logits takes most of a millisecond, so the rows
 * of a step are spread over the threads that have just computed them. */
#include "model/model_runner.h"

#include "base/cpu.h"
#include "model/batch_check.h"
#include "model/forward.h"
#include "model/nextn.h"

#include <stdio.h>

typedef struct model_runner {
    runner base;
    rad_env env;
    compute_pool *pool;
    bool others_threads; /* the pool is another's */
    model_weights weights;
    forward_buffers buffers;
    char *sample_scratch; /* sampler_scratch_bytes for each thread */
    forward_pass pass;
} model_runner;

static rad_status model_forward(runner *self, const forward_batch *batch, const float **logits,
                                rad_error *err)
{
    model_runner *r = (model_runner *)self;
    rad_status status =
        batch_check(&self->info, batch, r->buffers.max_tokens, r->buffers.max_logits, err);
    if (status != RAD_OK) return status;
    status = forward_run(&r->pass, batch, err);
    if (status == RAD_OK && logits) *logits = r->buffers.logits;
    return status;
}

uint64_t model_runner_experts_read(const runner *r)
{
    return ((const model_runner *)r)->buffers.moe.experts_read;
}

typedef struct sample_rows {
    model_runner *r;
    const runner_sample *rows;
    rad_token *tokens;
} sample_rows;

static void sample_row(void *arg, uint32_t i, uint32_t thread)
{
    const sample_rows *a = arg;
    const runner_sample *row = &a->rows[i];
    if (!row->params) return;
    uint32_t vocab_size = a->r->base.info.vocab_size;
    a->tokens[i] = sampler_next(a->r->buffers.logits + (size_t)i * vocab_size, vocab_size,
                                row->params, row->output, row->num_output, row->position,
                                row->allowed,
                                a->r->sample_scratch + thread * sampler_scratch_bytes(vocab_size));
}

static rad_status model_sample(runner *self, const runner_sample *rows, uint32_t num_rows,
                               rad_token *tokens, rad_error *err)
{
    model_runner *r = (model_runner *)self;
    sample_rows arg = {r, rows, tokens};
    (void)err;
    compute_pool_run(num_rows > 1 ? r->pool : NULL, num_rows, sample_row, &arg);
    return RAD_OK;
}

static rad_status model_create_pool(runner *self, const rad_env *env,
                                    const runner_pool_params *params, rad_token_to_kv_pool **out,
                                    rad_error *err)
{
    return runner_make_pool(&self->info, NULL, env, params, out, err);
}

static rad_status model_create_state_pool(runner *self, const rad_env *env, uint32_t num_states,
                                          rad_state_pool **out, rad_error *err)
{
    return runner_make_state_pool(&self->info, NULL, env, num_states, out, err);
}

static void model_keep_hidden(runner *self, uint32_t row, uint32_t place)
{
    const model_runner *r = (model_runner *)self;
    if (row < r->buffers.max_logits && place < RUNNER_PLACES) nextn_keep(&r->pass, row, place);
}

static rad_status model_guess(runner *self, const forward_batch *batch, const uint32_t *from,
                              const uint32_t *to, const float **logits, rad_error *err)
{
    model_runner *r = (model_runner *)self;
    const uint32_t most = RAD_MIN(r->buffers.nextn.rows, r->buffers.max_logits);
    runner_info head = self->info;
    head.state_bytes = 0; /* it is a layer with attention */
    rad_status status = batch_check(&head, batch, most, most, err);
    if (status != RAD_OK) return status;
    for (uint32_t i = 0; i < batch->num_reqs; i++)
        if (batch->extend_seq_lens[i] != 1 || from[i] >= RUNNER_PLACES ||
            (batch->num_logits && to[i] >= RUNNER_PLACES))
            return rad_fail(err, RAD_E_INVAL,
                            "batch: a guess behind %u tokens, from place %u to another of %d",
                            batch->extend_seq_lens[i], from[i], RUNNER_PLACES);
    status = nextn_guess(&r->pass, batch, from, to, err);
    if (status == RAD_OK && logits) *logits = r->buffers.logits;
    return status;
}

static size_t sample_bytes(const model_runner *r)
{
    return rad_mul(sampler_scratch_bytes(r->weights.config.vocab_size),
                   compute_pool_num_threads(r->pool));
}

static void model_destroy(runner *self)
{
    model_runner *r = (model_runner *)self;
    rad_env env = r->env;
    rad_free(&env, r->sample_scratch, sample_bytes(r));
    forward_buffers_fini(&env, &r->buffers);
    model_weights_fini(&env, &r->weights);
    if (!r->others_threads) compute_pool_destroy(r->pool);
    rad_free(&env, r, sizeof *r);
}

static const runner_ops model_ops_table = {.forward = model_forward,
                                           .create_pool = model_create_pool,
                                           .create_state_pool = model_create_state_pool,
                                           .destroy = model_destroy,
                                           .sample = model_sample,
                                           .keep_hidden = model_keep_hidden,
                                           .guess = model_guess};

runner_info model_runner_info(const model_config *c, rad_dtype kv_dtype)
{
    const layer_config *full = config_attention_of(c, false), *near = config_attention_of(c, true);
    const layer_config *attention = full ? full : near;
    runner_info info = {.vocab_size = c->vocab_size,
                        .hidden_dim = c->dim,
                        .pooling = c->pooling,
                        .context_length = c->context_length,
                        .num_layers = c->num_attention + c->num_nextn,
                        .nextn_layers = c->num_nextn,
                        .num_kv_heads = attention->num_kv_heads,
                        .head_dim = attention->head_dim,
                        .v_head_dim = attention->v_head_dim,
                        .kv_dtype = kv_dtype,
                        .kv_lora_rank = c->latent.kv_rank,
                        .window_layers = config_window_layers(c),
                        .sliding_window = c->sliding_window,
                        .state_layers = c->num_recurrent,
                        .state_bytes = c->state_floats * sizeof(float)};
    if (near && (near->num_kv_heads != info.num_kv_heads || near->head_dim != info.head_dim ||
                 near->v_head_dim != info.v_head_dim)) {
        info.window_kv_heads = near->num_kv_heads;
        info.window_head_dim = near->head_dim;
        info.window_v_head_dim = near->v_head_dim;
    }
    return runner_with_token_bytes(info);
}

static rad_status make_buffers(const rad_env *env, const model_weights *weights,
                               const model_runner_params *p, forward_buffers *out, rad_error *err)
{
    uint32_t max_tokens = p->max_batch_tokens ? p->max_batch_tokens : 2048;
    uint32_t max_logits = p->max_batch_logits ? p->max_batch_logits : 256;
    return forward_buffers_init(env, weights, max_tokens, RAD_MIN(max_logits, max_tokens), out,
                                err);
}

/* A head that cannot be used is said once, and done without. */
static rad_status read_config(const rad_env *env, const gguf_file *file,
                              const model_runner_params *p, model_config *config, rad_error *err)
{
    rad_error why;
    rad_status status = model_config_read(file, p->context_length, config, err);
    if (status != RAD_OK || !p->nextn) return status;
    if (model_config_use_nextn(file, config, &why) == RAD_E_UNSUPPORTED && env)
        rad_log(env, RAD_LOG_WARN, "%s", why.text);
    return RAD_OK;
}

rad_status model_runner_measure(const rad_env *env, const gguf_file *file,
                                const model_runner_params *p, model_sizes *out, rad_error *err)
{
    rad_env full = rad_env_or_default(env);
    const weights_loader loader = {.policy = p->weights, .gemm = p->gemm, .sizes_only = true};
    model_config config;
    model_weights weights;
    forward_buffers buffers;
    *out = (model_sizes){0};
    rad_status status = read_config(NULL, file, p, &config, err);
    if (status == RAD_OK)
        status = model_weights_load(&full, file, &config, p->dtype, &loader, &weights, err);
    if (status != RAD_OK) return status;
    status = make_buffers(&full, &weights, p, &buffers, err);
    if (status == RAD_OK) {
        out->weights_bytes = weights.bytes;
        memcpy(out->matrix_bytes, weights.matrix_bytes, sizeof out->matrix_bytes);
        out->buffers_bytes = buffers.bytes;
        forward_buffers_fini(&full, &buffers);
    }
    model_weights_fini(&full, &weights);
    return status;
}

static rad_status load(model_runner *r, const gguf_file *file, const model_runner_params *p,
                       rad_error *err)
{
    model_config config;
    rad_status status = read_config(&r->env, file, p, &config, err);
    r->others_threads = p->threads_of != NULL;
    if (p->threads_of)
        r->pool = ((const model_runner *)p->threads_of)->pool;
    else if (status == RAD_OK)
        status = compute_pool_create(&r->env, p->num_threads, &r->pool, err);
    if (status != RAD_OK) return status;
    const weights_loader loader = {r->pool, p->progress, p->progress_user, p->weights, p->gemm};
    status = model_weights_load(&r->env, file, &config, p->dtype, &loader, &r->weights, err);
    if (status != RAD_OK) return status;

    status = make_buffers(&r->env, &r->weights, p, &r->buffers, err);
    if (status != RAD_OK) return status;
    r->sample_scratch = rad_alloc(&r->env, sample_bytes(r));
    if (!r->sample_scratch)
        return rad_fail(err, RAD_E_NOMEM, "model: no memory to sample from %u logits",
                        config.vocab_size);
    r->base.info = model_runner_info(&config, p->set_kv_dtype ? p->kv_dtype : p->dtype);
    r->pass = (forward_pass){.weights = &r->weights,
                             .buffers = &r->buffers,
                             .ops = model_ops_find(NULL),
                             .scan = scan_find(NULL),
                             .attn = p->attn ? p->attn : attn_cpu(NULL),
                             .pool = r->pool};
    r->base.info.num_threads = compute_pool_num_threads(r->pool);
    return RAD_OK;
}

void model_types_name(const uint64_t matrix_bytes[GEMM_NUM_TYPES], char *out, size_t size)
{
    *out = 0;
    for (int t = 0; t < GEMM_NUM_TYPES; t++) {
        size_t used = strlen(out);
        if (matrix_bytes[t])
            snprintf(out + used, size - used, "%s%s", used ? "+" : "",
                     gemm_type_name((gemm_type)t));
    }
}

static void name_weights(model_runner *r, const gemm_isa *gemm)
{
    if (!gemm) gemm = gemm_isa_find(NULL);
    snprintf(r->base.info.gemm, sizeof r->base.info.gemm, "%s", gemm_isa_name(gemm));
    model_types_name(r->weights.matrix_bytes, r->base.info.weights, sizeof r->base.info.weights);
}

/* "model: llama, 12 layers, 133 MB of weights (q8_0 106), ..." */
static void log_loaded(const model_runner *r, double seconds)
{
    char types[GEMM_NUM_TYPES * 20] = "";
    for (int t = 0; t < GEMM_NUM_TYPES; t++) {
        const size_t used = strlen(types);
        uint64_t bytes = r->weights.matrix_bytes[t];
        if (bytes)
            snprintf(types + used, sizeof types - used, "%s%s %.1f", used ? ", " : "",
                     gemm_type_name((gemm_type)t), (double)bytes * 1e-6);
    }
    rad_log(&r->env, RAD_LOG_INFO,
            "model: %s, %u layers, %.1f MB of weights (%s) in %.2f s, %.1f MB for batches of %u "
            "tokens",
            r->weights.config.arch->name, r->weights.config.num_layers,
            (double)r->weights.bytes * 1e-6, types, seconds, (double)r->buffers.bytes * 1e-6,
            r->buffers.max_tokens);
    if (cpu_cap())
        rad_log(&r->env, RAD_LOG_INFO, "model: instructions up to %s, as RADISH_ISA says: %s",
                cpu_cap(), r->base.info.gemm);
    if (gemm_amx_refusal())
        rad_log(&r->env, RAD_LOG_WARN, "model: this CPU has AMX, but %s; products by %s instead",
                gemm_amx_refusal(), r->base.info.gemm);
    if (gemm_amx_int8_refusal())
        rad_log(&r->env, RAD_LOG_WARN,
                "model: this CPU has AMX, but %s; products of quantised weights by VNNI instead",
                gemm_amx_int8_refusal());
    if (attn_amx_refusal())
        rad_log(&r->env, RAD_LOG_WARN, "model: this CPU has AMX, but %s; attention by %s instead",
                attn_amx_refusal(), r->pass.attn->name);
}

rad_status model_runner_create(const rad_env *env, const gguf_file *file,
                               const model_runner_params *params, runner **out, rad_error *err)
{
    *out = NULL;
    if (params->dtype != RAD_F32 && params->dtype != RAD_BF16)
        return rad_fail(err, RAD_E_UNSUPPORTED, "model: dtype %d, supported are f32 and bf16",
                        (int)params->dtype);
    if (cpu_cap_check(err) != RAD_OK) return RAD_E_INVAL;
    rad_env full = rad_env_or_default(env);
    model_runner *r = rad_alloc(&full, sizeof *r);
    if (!r) return rad_fail(err, RAD_E_NOMEM, "model: no memory");
    r->env = full;
    r->base.ops = &model_ops_table;

    uint64_t start = full.now_ns(full.user);
    rad_status status = load(r, file, params, err);
    if (status != RAD_OK) {
        model_destroy(&r->base);
        return status;
    }
    name_weights(r, params->gemm);
    log_loaded(r, (double)(full.now_ns(full.user) - start) * 1e-9);
    *out = &r->base;
    return RAD_OK;
}
