/* engine_plan.c - what a model will take, said before anything of it but metadata is read.
 *
 *     weights   as the policy holds them: exactly what loading allocates
 *     batches   buffers for the largest batch; a step touches as much of them as it has rows
 *     K/V       of the layers with and without a window, and what finds it
 *     text      the tokenizer and the chat template
 *
 * model_runner_measure goes the way of the load, without its bytes. So the two cannot disagree. */
#include "engine/engine_plan.h"
#include "base/available.h"
#include "mem/kv_codec.h"
#include "sched/draft_ngram.h"
#include "sched/draft_recent.h"
#include "sched/draft_source.h"
#include "sched/state_memory.h"

#include <assert.h>
#include <stdio.h>

/* What one more row costs the runner's buffers: its line in the table of slots, and one in each
 * buffer, nearly a batch's tokens and logits; see forward_buffers_init. */
static uint64_t row_bytes(const model_config *c, uint32_t context)
{
    uint64_t lines = c->sliding_window ? 2ull * context : context; /* window rows, too */
    const config_widths most = config_widest(c);
    const experts_config *x = &c->experts;
    uint64_t numbers = lines + c->vocab_size + 3ull * c->dim + 3ull * most.ffn + 2ull * most.qkv;
    numbers += most.q + most.k + most.v + most.unpacked;
    numbers += (uint64_t)c->num_layers * c->layer_embd;
    if (x->count) numbers += x->used * (2ull * c->dim + 3ull * x->dim) + 2ull * x->count + c->dim;
    return numbers * sizeof(float);
}

/* How large a batch the runner must be made for. */
static uint32_t max_batch_tokens(const engine_params *p, uint32_t context, uint32_t rows)
{
    scheduler_params s = {.chunked_prefill_size = prefill_chunk(p),
                          .max_running_requests = rows,
                          .max_draft_tokens = p->speculative_num_draft_tokens};
    return scheduler_max_batch_tokens(&s, context);
}

/* A head that guesses joins the configuration, if it is wanted and the file has one that we can
 * use. It is an error that there is none only where nobody else is to guess. */
static rad_status find_nextn(const gguf_file *file, const engine_params *p, model_config *config,
                             load_plan *plan, bool *wanted, rad_error *err)
{
    uint32_t sources;
    rad_error why = {0};
    rad_status status = draft_sources_wanted(p, &sources, err);
    *wanted = false;
    if (status != RAD_OK || !(sources & draft_bit(DRAFT_NEXTN))) return status;
    *wanted = !plan->on_gpu;
    if (*wanted && model_config_use_nextn(file, config, &why) == RAD_OK) return RAD_OK;
    if (plan->on_gpu && config->num_skipped)
        rad_fail(&why, RAD_E_UNSUPPORTED, "heads that guess compute on the CPU alone so far");
    snprintf(plan->why_no_nextn, sizeof plan->why_no_nextn, "%.399s", why.text);
    if (sources != (draft_bit(DRAFT_FORCED) | draft_bit(DRAFT_NEXTN))) return RAD_OK;
    return rad_fail(err, RAD_E_UNSUPPORTED, "speculative_algorithm 'nextn': %s",
                    why.text[0] ? why.text : "the model's file has no head that guesses");
}

static rad_status begin_plan(const rad_env *env, const gguf_file *file, const engine_params *p,
                             bool on_gpu, uint64_t available, load_plan *plan, rad_error *err)
{
    model_config config;
    *plan = (load_plan){.on_gpu = on_gpu, .available = available};
    rad_dtype kv_dtype = on_gpu && p->dtype_by_device ? RAD_BF16 : p->dtype;
    bool set = p->kv_cache_dtype && strcmp(p->kv_cache_dtype, "auto") != 0;
    if (set) kv_dtype_find(p->kv_cache_dtype, &kv_dtype); /* checked */
    rad_status status = model_config_read(file, p->context_length, &config, err);
    if (status != RAD_OK) return status;
    bool nextn;
    status = find_nextn(file, p, &config, plan, &nextn, err);
    if (status != RAD_OK) return status;
    plan->context = p->context_length ? p->context_length : config.context_length;
    plan->info = on_gpu ? cuda_runner_info(&config, kv_dtype)
                        : model_runner_info(&config, kv_dtype);
    plan->rows = rows_to_load_for(p, &plan->info, row_bytes(&config, plan->context), available);
    plan->model =
        (model_runner_params){.dtype = p->dtype,
                              .weights = p->weights,
                              .kv_dtype = kv_dtype,
                              .set_kv_dtype = set,
                              .max_batch_tokens = max_batch_tokens(p, plan->context, plan->rows),
                              .max_batch_logits = scheduler_max_batch_logits(plan->rows),
                              .context_length = p->context_length,
                              .attn = p->use_attn_ref ? attn_ref() : attn_cpu(NULL),
                              .num_threads = p->num_threads,
                              .nextn = nextn};
    if (on_gpu && p->speculative_draft_model_path)
        return rad_fail(err, RAD_E_UNSUPPORTED, "a draft model computes on the CPU alone so far");
    return draft_plan_load(env, file, p, &plan->model, &plan->draft, err);
}

/* What a runner with so large a batch takes of the memory of where it computes. */
static rad_status measure(const rad_env *env, const gguf_file *file, const load_plan *plan,
                          uint32_t max_tokens, uint32_t max_logits, model_sizes *sizes,
                          rad_error *err)
{
    model_runner_params model = plan->model;
    cuda_runner_params cuda = plan->cuda;
    model.max_batch_tokens = cuda.model.max_batch_tokens = max_tokens;
    model.max_batch_logits = cuda.model.max_batch_logits = max_logits;
    return plan->on_gpu ? cuda_runner_measure(env, file, &cuda, sizes, err)
                        : model_runner_measure(env, file, &model, sizes, err);
}

/* Weights in Q8_0, where these would be smaller. */
static void find_smaller(const rad_env *env, const gguf_file *file, load_plan *plan)
{
    load_plan smaller = *plan;
    model_sizes sizes;
    smaller.model.weights = smaller.cuda.model.weights = WEIGHTS_AS_Q8_0;
    if (measure(env, file, &smaller, plan->model.max_batch_tokens, plan->model.max_batch_logits,
                &sizes, NULL) != RAD_OK ||
        sizes.weights_bytes >= plan->sizes.weights_bytes)
        return;
    plan->need.least_weights = sizes.weights_bytes;
    plan->need.least_type = "q8_0";
}

static rad_status end_plan(const rad_env *env, const gguf_file *file, const engine_params *p,
                           load_plan *plan, rad_error *err)
{
    rad_status status = measure(env, file, plan, plan->model.max_batch_tokens,
                                plan->model.max_batch_logits, &plan->sizes, err);
    if (status != RAD_OK) return status;
    const model_sizes *draft = &plan->draft.sizes;
    plan->need = (memory_need){.weights = plan->sizes.weights_bytes + draft->weights_bytes,
                               .buffers = plan->sizes.buffers_bytes + draft->buffers_bytes};
    find_smaller(env, file, plan);
    const engine_params there = params_where(p, plan);
    return fit_memory(env, &there, &plan->info, &plan->need, plan->available, &plan->fraction, err);
}

rad_status plan_load_on_cpu(const rad_env *env, const gguf_file *file, const engine_params *p,
                            uint64_t available, const char *why_no_gpu, load_plan *plan,
                            rad_error *err)
{
    rad_status status = begin_plan(env, file, p, false, available, plan, err);
    snprintf(plan->why_no_gpu, sizeof plan->why_no_gpu, "%.399s", why_no_gpu);
    return status == RAD_OK ? end_plan(env, file, p, plan, err) : status;
}

/* The rows of slots that a scheduler will have: more than run at one time, and a GPU keeps each. */
static uint32_t slot_rows(const engine_params *p, uint32_t running)
{
    const scheduler_params s = {.max_running_requests = running,
                                .verify_rate = p->verify_rate,
                                .streaming_sessions = p->streaming_sessions,
                                .max_sessions = engine_max_sessions(p)};
    return scheduler_num_rows(&s);
}

/* With the GPU's memory in the place of this machine's. */
static rad_status plan_load_on_gpu(const rad_env *env, const gguf_file *file,
                                   const engine_params *p, uint32_t ordinal, load_plan *plan,
                                   rad_error *err)
{
    cuda_gpu_info gpu;
    engine_params there = *p;
    there.on_gpu = true;
    rad_status status = cuda_gpu_look(NULL, ordinal, &gpu, err);
    if (status == RAD_OK) status = begin_plan(env, file, &there, true, gpu.free_bytes, plan, err);
    if (status != RAD_OK) return status;
    const engine_gpu_wish wish = {.ordinal = ordinal,
                                  .dtype_by_device = p->dtype_by_device,
                                  .attn_ref = p->use_attn_ref,
                                  .model = plan->model};
    plan->gpu = gpu;
    status = engine_gpu_params(file, &wish, &plan->cuda, err);
    plan->cuda.max_requests = slot_rows(p, plan->rows);
    return status == RAD_OK ? end_plan(env, file, &there, plan, err) : status;
}

rad_status plan_load(const rad_env *env, const gguf_file *file, const engine_params *p,
                     uint64_t available, load_plan *plan, rad_error *err)
{
    engine_device device;
    rad_error why = {0};
    *plan = (load_plan){0};
    rad_status status = engine_device_parse(p->device, &device, err);
    if (status != RAD_OK) return status;
    if (device.kind == ENGINE_DEVICE_CPU)
        return plan_load_on_cpu(env, file, p, available, "", plan, err);
    status = plan_load_on_gpu(env, file, p, device.ordinal, plan, &why);
    plan->gpu_or_cpu = device.kind == ENGINE_DEVICE_AUTO;
    if (status == RAD_OK) return RAD_OK;
    if (!plan->gpu_or_cpu) return engine_gpu_refuse(p->device, status, &why, err);
    return plan_load_on_cpu(env, file, p, available, engine_gpu_words(&why), plan, err);
}

engine_params params_where(const engine_params *params, const load_plan *plan)
{
    engine_params p = *params;
    p.on_gpu = plan->on_gpu;
    p.draft_token_bytes = plan->draft.token_bytes;
    if (p.on_gpu) p.kv_populate_ahead = 0; /* it is there */
    return p;
}

/* ---- for people ---- */

/* What a server of a small model holds beside all that is told apart here, and for each token of
 * its pool, more where tokens can be pinned: measured, x86-64 Linux; test_info.py holds it. */
enum {
    PROGRAM_BYTES = 22500000,
    SERVER_BYTES =
        3000000, /* more, where many ask: code and threads that one conversation leaves */
    POOL_TOKEN_BYTES = 47,
    PINS_TOKEN_BYTES = 88,
    TAGS_TOKEN_BYTES = 8
};

/* An env that counts what is held through it. */
typedef struct counting_env {
    rad_env below;
    uint64_t bytes;
} counting_env;

static void *count_alloc(void *user, size_t bytes)
{
    counting_env *c = user;
    void *memory = c->below.alloc(c->below.user, bytes);
    if (memory) c->bytes += bytes;
    return memory;
}

static void count_free(void *user, void *memory, size_t bytes)
{
    counting_env *c = user;
    c->below.free(c->below.user, memory, bytes);
    if (memory) c->bytes -= bytes;
}

static rad_status measure_text(const rad_env *below, const gguf_file *file, const engine_params *p,
                               uint64_t *bytes, rad_error *err)
{
    counting_env count = {.below = *below};
    rad_env env = rad_env_or_default(&(rad_env){
        .struct_size = sizeof(rad_env), .user = &count, .alloc = count_alloc, .free = count_free});
    tokenizer *tok = NULL;
    chat_template *chat = NULL;
    rad_status status = tokenizer_create(&env, file, &tok, err);
    if (status != RAD_OK) return status;
    if (chat_template_create(&env, file, tok, p->chat_template, &chat, NULL) != RAD_OK) chat = NULL;
    *bytes = count.bytes;
    chat_template_destroy(chat);
    tokenizer_destroy(tok);
    return RAD_OK;
}

static void tell_weights(const load_plan *plan, engine_memory *m)
{
    m->weights_bytes = plan->sizes.weights_bytes;
    static_assert((int)GEMM_NUM_TYPES <= (int)ENGINE_MOST_WEIGHT_TYPES, "each has its place");
    for (int t = 0; t < GEMM_NUM_TYPES; t++) {
        if (!plan->sizes.matrix_bytes[t]) continue;
        m->types[m->num_types].name = gemm_type_name((gemm_type)t);
        m->types[m->num_types++].bytes = plan->sizes.matrix_bytes[t];
    }
}

/* Of one request with the whole context: chunk by chunk, one row of logits. */
static rad_status measure_batch(const rad_env *env, const gguf_file *file, const engine_params *p,
                                const load_plan *plan, uint64_t *bytes, rad_error *err)
{
    model_sizes sizes;
    const uint32_t chunk = prefill_chunk(p);
    rad_status status = measure(
        env, file, plan, chunk ? RAD_MIN(chunk, plan->context) : plan->context, 1, &sizes, err);
    *bytes = sizes.buffers_bytes;
    return status;
}

static void tell_cache(const engine_params *p, const load_plan *plan, engine_memory *m)
{
    const runner_info *model = &plan->info;
    const uint64_t window = kv_window_tokens_for_context(p, model, plan->context);
    const uint64_t of_window = model->window_layers && !window ? plan->context : window;
    m->window_layers = model->window_layers;
    m->full_layers = model->num_layers - model->window_layers;
    m->nextn_layers = model->nextn_layers;
    snprintf(m->why_no_nextn, sizeof m->why_no_nextn, "%s", plan->why_no_nextn);
    m->sliding_window = model->sliding_window;
    m->full_token_bytes = model->full_token_bytes;
    m->window_token_bytes = model->window_token_bytes;
    m->kv_cache_dtype = kv_dtype_name(model->kv_dtype);
    m->kv_bytes = plan->context * m->full_token_bytes + of_window * m->window_token_bytes;
    m->state_layers = model->state_layers;
    m->state_bytes = model->state_bytes;
    if (!m->state_bytes) return;
    m->state_interval = p->mamba_track_interval ? p->mamba_track_interval
                                                : state_default_interval(model);
    m->context_states = STATE_LEAST + plan->context / m->state_interval;
    m->kv_bytes += m->context_states * m->state_bytes;
}

/* A draft model that has seen one context. */
static uint64_t tell_draft_bytes(const load_plan *plan, const engine_memory *m)
{
    return m->draft_weights_bytes + plan->draft.sizes.buffers_bytes +
           plan->context * m->draft_token_bytes;
}

/* What answers are guessed from, when all of it was written to. */
static uint64_t tell_guess_bytes(const engine_params *p)
{
    const uint32_t recent = p->speculative_ngram_capacity;
    uint32_t sources;
    uint64_t bytes = 0;
    if (draft_sources_wanted(p, &sources, NULL) != RAD_OK) return 0;
    if (sources & draft_bit(DRAFT_NGRAM)) bytes += ngram_pool_bytes();
    if (recent && sources & draft_bit(DRAFT_RECENT))
        bytes += draft_recent_bytes(draft_recent_capacity(recent));
    return bytes;
}

/* What a server would make of the machine as it is. */
static void tell_server(const engine_params *p, const load_plan *plan, engine_memory *m)
{
    const runner_info *model = &plan->info;
    const uint64_t taken = plan->on_gpu ? m->weights_bytes + plan->sizes.buffers_bytes
                                        : m->weights_bytes + m->draft_weights_bytes + m->text_bytes;
    const kv_sizes sizes = kv_sizes_foretold(p, model, taken, m->available_bytes, plan->fraction);
    const bool apart = sizes.window_tokens > 0;
    m->mem_fraction_static = plan->fraction;
    m->max_total_tokens = sizes.tokens;
    m->window_total_tokens = sizes.window_tokens;
    m->max_states = sizes.states;
    m->guess_bytes = tell_guess_bytes(p);
    const uint64_t pool =
        sizes.tokens * runner_token_bytes(model, apart ? RUNNER_FULL_LAYERS : RUNNER_ALL_LAYERS) +
        sizes.window_tokens * m->window_token_bytes;
    m->index_bytes = (sizes.tokens + sizes.window_tokens) * POOL_TOKEN_BYTES;
    if (p->max_pinned_tokens) m->index_bytes += sizes.tokens * PINS_TOKEN_BYTES;
    if (p->max_sessions && !p->streaming_sessions)
        m->index_bytes += sizes.tokens * TAGS_TOKEN_BYTES;
    if (plan->on_gpu) { /* all of it at once */
        m->resident_bytes = taken + pool;
        return;
    }
    /* Of K/V some is made ready; a state is there when it was used. */
    const uint64_t kv_alone = m->kv_bytes - m->context_states * m->state_bytes;
    const uint64_t kv = RAD_MIN(kv_alone + p->kv_populate_ahead, pool) +
                        RAD_MIN(m->context_states, sizes.states) * m->state_bytes;
    m->resident_bytes = m->weights_bytes + m->batch_bytes + m->text_bytes + m->program_bytes +
                        SERVER_BYTES + m->index_bytes + kv + tell_draft_bytes(plan, m);
}

/* Where it would be, and what there is. */
static void tell_device(const load_plan *plan, engine_memory *m)
{
    engine_device_name(plan->on_gpu ? &plan->gpu : NULL, m->device, sizeof m->device);
    snprintf(m->why_no_gpu, sizeof m->why_no_gpu, "%s", plan->why_no_gpu);
    m->available_bytes = plan->available;
    if (!plan->on_gpu) return;
    snprintf(m->device_name, sizeof m->device_name, "%s", plan->gpu.name);
    m->device_bytes = plan->gpu.total_bytes;
}

rad_status engine_foretell(const rad_env *env, const gguf_file *file, const engine_params *asked,
                           engine_memory *m, rad_error *err)
{
    rad_env full = rad_env_or_default(env);
    load_plan plan;
    rad_error why = {0};
    *m = (engine_memory){.program_bytes = PROGRAM_BYTES};
    rad_status status = plan_load(&full, file, asked, memory_available(), &plan, &why);
    const engine_params there = params_where(asked, &plan), *p = &there;
    const bool fits = status != RAD_E_NOMEM || !plan.sizes.weights_bytes;
    if (status != RAD_OK && fits) return rad_fail(err, status, "%s", why.text);
    if (plan.context > plan.info.context_length)
        return rad_fail(err, RAD_E_INVAL, "context_length %u is more than the model's %u",
                        plan.context, plan.info.context_length);
    m->context_length = plan.context;
    tell_device(&plan, m);
    tell_weights(&plan, m);
    m->draft_weights_bytes = plan.draft.sizes.weights_bytes;
    m->draft_token_bytes = plan.draft.token_bytes;
    tell_cache(p, &plan, m);
    status = measure_text(&full, file, p, &m->text_bytes, err);
    if (status == RAD_OK) status = measure_batch(&full, file, p, &plan, &m->batch_bytes, err);
    if (status != RAD_OK) return status;
    if (fits)
        tell_server(p, &plan, m);
    else
        snprintf(m->why, sizeof m->why, "%.399s", why.text);
    m->total_bytes = m->weights_bytes + m->batch_bytes + m->kv_bytes + m->text_bytes +
                     m->program_bytes + plan.context * (uint64_t)POOL_TOKEN_BYTES +
                     tell_draft_bytes(&plan, m);
    return RAD_OK;
}
