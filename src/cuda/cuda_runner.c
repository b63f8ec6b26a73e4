/* cuda_runner.c - see cuda_runner.h: a runner is put together, runs steps, and comes apart. */
#include "cuda/cuda_state.h"

#include "cuda/cuda_weights.h"
#include "model/batch_check.h"

#include <radish/device_cuda.h>
#include <stdio.h>

/* ---- a step ---- */

rad_status cuda_runner_failed(cuda_runner *r, rad_status status, const rad_error *why)
{
    cuda_slots_forget(&r->slots);
    r->num_logits = 0;
    if (r->cu.stream_synchronize(r->stream) == CUDA_OK || r->broken.status) return status;
    r->broken = *why;
    r->broken.status = status;
    rad_log(&r->env, RAD_LOG_ERROR, "cuda: GPU %d is given up: %s", r->gpu.ordinal, why->text);
    return status;
}

static rad_status send_slots(void *user, uint64_t offset, const rad_slot *slots, uint32_t count,
                             rad_error *err)
{
    cuda_runner *r = user;
    rad_status status = cuda_ok(
        &r->cu,
        r->cu.copy_to_device(r->buffers.table + offset, slots, count * sizeof *slots, r->stream),
        "cuMemcpyHtoDAsync", err);
    if (status == RAD_OK) /* they are the scheduler's, and not pinned */
        status = cuda_runner_synchronize(r, err);
    return status;
}

/* Fills a block whose last upload has ended, and uploads it. */
static rad_status upload(cuda_runner *r, const forward_batch *batch, uint32_t *padded,
                         cuda_step *step, rad_error *err)
{
    cuda_step_block *b = &r->blocks[r->next_block];
    rad_status status =
        cuda_ok(&r->cu, r->cu.event_synchronize(b->uploaded), "cuEventSynchronize", err);
    if (status != RAD_OK) return status;
    status = cuda_step_build(&r->limits, batch, *padded, &r->slots, send_slots, r, r->scratch,
                             b->pinned.at, step, err);
    if (status == RAD_FULL) {
        *padded = 0;
        status = cuda_step_build(&r->limits, batch, 0, &r->slots, send_slots, r, r->scratch,
                                 b->pinned.at, step, err);
    }
    if (status != RAD_OK) return status;
    r->next_block = (r->next_block + 1) % CUDA_STEP_BLOCKS;
    status = cuda_ok(&r->cu,
                     r->cu.copy_to_device(r->buffers.step, b->pinned.at, step->bytes, r->stream),
                     "cuMemcpyHtoDAsync", err);
    if (status == RAD_OK)
        status = cuda_ok(&r->cu, r->cu.event_record(b->uploaded, r->stream), "cuEventRecord", err);
    r->stats.uploaded_bytes += step->bytes;
    return status;
}

static rad_status run_step(cuda_runner *r, const forward_batch *batch, bool wants_logits,
                           rad_error *err)
{
    const cuda_pass pass = {.config = &r->config,
                            .layout = &r->layout,
                            .buffers = &r->buffers,
                            .limits = &r->limits,
                            .weights = r->weights.at,
                            .pool = batch->token_to_kv_pool,
                            .window_pool = batch->window_kv_pool};
    uint32_t padded = cuda_graphs_tokens(&r->graphs, batch, &r->limits);
    cuda_step step;
    rad_status status = upload(r, batch, &padded, &step, err);
    if (status != RAD_OK) return status;
    /* Drivers before CUDA 12.3 capture no dependent launches. */
    const bool dependent = r->dependent && (!padded || r->cu.version >= 12030);
    cuda_queue queue = {
        .kernels = &r->kernels, .stream = r->stream, .dependent = dependent, .err = err};
    status = padded ? cuda_graphs_run(&r->graphs, &pass, &step, &queue)
                    : cuda_forward(&pass, &step, &queue);
    if (status != RAD_OK) return status;
    r->num_logits = batch->num_logits;
    r->stats.steps++;
    r->stats.graph_steps += padded > 0;
    if (wants_logits && r->num_logits) return cuda_runner_fetch_logits(r, err);
    /* Tokens are asked for next, and wait; where there are none, K and V are to be there. */
    return r->num_logits ? RAD_OK : cuda_runner_synchronize(r, err);
}

/* NULL is fine: batch_check says where there must be one. */
static bool is_ours(const cuda_runner *r, const rad_token_to_kv_pool *pool)
{
    if (!pool) return true;
    const rad_token_to_kv_pool_params *p = rad_kv_pool_params(pool);
    return p->device == r->device && p->dtype == r->base.info.kv_dtype && !p->start_layer;
}

static rad_status check_batch(cuda_runner *r, const forward_batch *batch, rad_error *err)
{
    if (r->broken.status)
        return rad_fail(err, RAD_E_IO, "cuda: GPU %d was given up, start anew: %.400s",
                        r->gpu.ordinal, r->broken.text);
    rad_status status = batch_check(&r->base.info, batch, r->limits.tokens, r->limits.logits, err);
    if (status != RAD_OK) return status;
    if (batch->num_reqs >= r->limits.requests)
        return rad_fail(err, RAD_E_LIMIT, "cuda: %u requests, at most %u are possible",
                        batch->num_reqs, r->limits.requests - 1);
    if (is_ours(r, batch->token_to_kv_pool) && is_ours(r, batch->window_kv_pool)) return RAD_OK;
    return rad_fail(err, RAD_E_INVAL, "cuda: the KV pool is not one that this runner made");
}

static void count_reads(const cuda_runner *r, const forward_batch *batch)
{
    const size_t token_bytes = runner_token_bytes(&r->base.info, RUNNER_ALL_LAYERS) /
                               RAD_MAX(r->config.num_attention, 1u);
    for (uint32_t v = 0; v < r->limits.num_views; v++) {
        const uint32_t window = r->limits.views[v].window;
        uint32_t layers = 0;
        for (uint32_t i = 0; i < r->config.num_layers; i++)
            layers += r->config.layers[i].window == window;
        forward_batch_count_reads(batch, window, batch->num_groups, layers * token_bytes);
    }
}

static rad_status cuda_runner_forward(runner *self, const forward_batch *batch,
                                      const float **logits, rad_error *err)
{
    cuda_runner *r = (cuda_runner *)self;
    rad_error words = {0};
    r->num_logits = 0;
    rad_status status = check_batch(r, batch, err);
    if (status != RAD_OK) return status;
    if (logits) *logits = r->logits;
    if (!batch->num_tokens) return RAD_OK;
    status = cuda_gpu_enter(&r->gpu, &words);
    if (status == RAD_OK) {
        status = run_step(r, batch, logits != NULL, &words);
        if (status != RAD_OK) cuda_runner_failed(r, status, &words);
        cuda_gpu_leave(&r->gpu);
    }
    if (status != RAD_OK) return rad_fail(err, status, "%s", words.text);
    count_reads(r, batch);
    return RAD_OK;
}

static rad_status cuda_runner_create_pool(runner *self, const rad_env *env,
                                          const runner_pool_params *params,
                                          rad_token_to_kv_pool **out, rad_error *err)
{
    return runner_make_pool(&self->info, ((cuda_runner *)self)->device, env, params, out, err);
}

static rad_status cuda_runner_create_state_pool(runner *self, const rad_env *env,
                                                uint32_t num_states, rad_state_pool **out,
                                                rad_error *err)
{
    return runner_make_state_pool(&self->info, ((cuda_runner *)self)->device, env, num_states, out,
                                  err);
}

/* ---- making and unmaking ---- */

/* Of the default env, from which the largest of a runner's tables take memory as it is written. */
static size_t logits_bytes(const cuda_runner *r)
{
    return rad_mul(rad_mul(r->limits.logits, r->config.vocab_size), sizeof *r->logits);
}

static void free_on_gpu(cuda_runner *r)
{
    if (r->stream) r->cu.stream_synchronize(r->stream);
    cuda_graphs_fini(&r->env, &r->graphs);
    for (uint32_t i = 0; i < CUDA_STEP_BLOCKS; i++) {
        if (r->blocks[i].uploaded) r->cu.event_destroy(r->blocks[i].uploaded);
        cuda_pinned_free(&r->gpu, &r->blocks[i].pinned);
    }
    cuda_pinned_free(&r->gpu, &r->sample_block);
    cuda_pinned_free(&r->gpu, &r->tokens);
    cuda_block_free(&r->gpu, &r->buffers.block);
    cuda_block_free(&r->gpu, &r->weights);
    cuda_kernels_unload(&r->kernels);
    if (r->stream) r->cu.stream_destroy(r->stream);
}

static void cuda_runner_destroy(runner *self)
{
    cuda_runner *r = (cuda_runner *)self;
    const rad_env env = r->env;
    if (r->gpu.context) {
        /* Where the context cannot be entered, what is left on the GPU goes with it. */
        if (cuda_gpu_enter(&r->gpu, NULL) == RAD_OK) {
            free_on_gpu(r);
            cuda_gpu_leave(&r->gpu);
        }
        rad_device_cuda_destroy(r->device);
        cuda_gpu_close(&r->gpu);
    }
    cuda_driver_close(&r->cu);
    cuda_slots_fini(&env, &r->slots);
    cuda_layout_fini(&env, &r->config, &r->layout);
    rad_free_sparse(&env, r->logits, logits_bytes(r));
    rad_free(&env, r->scratch, r->scratch_bytes);
    rad_free(&env, r, sizeof *r);
}

static const runner_ops cuda_ops = {.forward = cuda_runner_forward,
                                    .create_pool = cuda_runner_create_pool,
                                    .create_state_pool = cuda_runner_create_state_pool,
                                    .destroy = cuda_runner_destroy,
                                    .sample = cuda_runner_sample};

static rad_status make_blocks(cuda_runner *r, rad_error *err)
{
    rad_status status = RAD_OK;
    for (uint32_t i = 0; i < CUDA_STEP_BLOCKS && status == RAD_OK; i++) {
        status = cuda_pinned_alloc(&r->gpu, cuda_step_block_bytes(&r->limits), "a step's tables",
                                   &r->blocks[i].pinned, err);
        if (status == RAD_OK)
            status = cuda_ok(&r->cu,
                             r->cu.event_create(&r->blocks[i].uploaded, CUDA_EVENT_DISABLE_TIMING),
                             "cuEventCreate", err);
    }
    if (status == RAD_OK)
        status = cuda_pinned_alloc(&r->gpu, cuda_sample_block_bytes(&r->limits.sample),
                                   "what tokens are chosen by", &r->sample_block, err);
    if (status == RAD_OK)
        status = cuda_pinned_alloc(&r->gpu, r->limits.logits * sizeof(rad_token), "tokens",
                                   &r->tokens, err);
    if (status != RAD_OK) return status;
    r->scratch_bytes = cuda_step_scratch_bytes(&r->limits);
    r->scratch = rad_alloc(&r->env, r->scratch_bytes);
    r->logits = rad_alloc_sparse(&r->env, logits_bytes(r));
    if (r->scratch && r->logits) return RAD_OK;
    return rad_fail(err, RAD_E_NOMEM, "cuda: no memory of the host for steps of %u tokens",
                    r->limits.tokens);
}

static rad_status load_weights(cuda_runner *r, const gguf_file *file, uint64_t seed,
                               const cuda_runner_params *p, rad_error *err)
{
    compute_pool *pool = NULL;
    rad_status status = cuda_block_alloc(&r->gpu, r->layout.bytes, "weights", &r->weights, err);
    if (status == RAD_OK && r->kernels.maps)
        status = cuda_layout_map(&r->cu, &r->config, &r->layout, r->weights.at, err);
    if (status == RAD_OK) status = compute_pool_create(&r->env, p->model.num_threads, &pool, err);
    if (status != RAD_OK) return status;
    const cuda_weights_source source = {.file = file,
                                        .seed = seed,
                                        .progress = p->model.progress,
                                        .progress_user = p->model.progress_user,
                                        .pool = pool};
    status = cuda_weights_load(&r->env, &r->gpu, r->stream, &r->config, &r->layout, &source,
                               r->weights.at, err);
    compute_pool_destroy(pool);
    return status;
}

/* Everything that needs the context to be current. */
static rad_status set_up(cuda_runner *r, const gguf_file *file, uint64_t seed,
                         const cuda_runner_params *p, rad_error *err)
{
    rad_status status = cuda_ok(&r->cu, r->cu.stream_create(&r->stream, CUDA_STREAM_NON_BLOCKING),
                                "cuStreamCreate", err);
    if (status == RAD_OK)
        status = cuda_kernels_load(&r->env, &r->gpu, &r->limits.attention, r->layout.quantised,
                                   r->layout.experts, &r->kernels, err);
    if (status == RAD_OK) status = load_weights(r, file, seed, p, err);
    if (status == RAD_OK)
        status = cuda_buffers_init(&r->gpu, r->stream, r->kernels.maps, &r->config, &r->layout,
                                   &r->limits, &r->buffers, err);
    if (status == RAD_OK)
        status = cuda_slots_init(&r->env, cuda_step_slot_rows(&r->limits), r->limits.context,
                                 &r->slots, err);
    if (status == RAD_OK) status = make_blocks(r, err);
    if (status == RAD_OK)
        status = cuda_graphs_init(&r->env, &r->gpu, r->config.num_attention, p->no_graphs,
                                  &r->graphs, err);
    if (status == RAD_OK) status = cuda_runner_synchronize(r, err);
    return status;
}

static rad_status start(cuda_runner *r, const gguf_file *file, uint64_t seed,
                        const cuda_runner_params *p, rad_error *err)
{
    rad_status status = cuda_driver_open(p->library, &r->cu, err);
    if (status == RAD_OK) status = cuda_gpu_open(&r->cu, (int)p->ordinal, NULL, &r->gpu, err);
    if (status != RAD_OK) return status;
    status = cuda_limits_find(&r->config, p, (uint32_t)r->gpu.multiprocessors,
                              (uint32_t)r->gpu.shared_bytes, &r->limits, err);
    if (status == RAD_OK)
        status = cuda_layout_init(&r->env, &r->config, file, p->model.weights, r->limits.context,
                                  &r->layout, err);
    if (status != RAD_OK) return status;
    r->dependent = cuda_kernels_arch(&r->gpu) == 90 && !p->no_dependent;
    snprintf(r->attn, sizeof r->attn, "cuda-sm%d", r->gpu.capability);
    const rad_device_cuda_params device = {.struct_size = sizeof device,
                                           .ordinal = p->ordinal,
                                           .context = r->gpu.context,
                                           .library = p->library};
    status = rad_device_cuda_create(&r->env, &device, &r->device, err);
    if (status == RAD_OK) status = cuda_gpu_enter(&r->gpu, err);
    if (status != RAD_OK) return status;
    status = set_up(r, file, seed, p, err);
    cuda_gpu_leave(&r->gpu);
    return status;
}

runner_info cuda_runner_info(const model_config *config, rad_dtype kv_dtype)
{
    runner_info info = model_runner_info(config, kv_dtype);
    info.hidden_dim = 0;
    info.num_threads = 0;
    return runner_with_token_bytes(info);
}

static void describe(cuda_runner *r, rad_dtype kv_dtype, double seconds)
{
    runner_info info = cuda_runner_info(&r->config, kv_dtype);
    info.context_length = r->limits.context;
    model_types_name(r->layout.matrix_bytes, info.weights, sizeof info.weights);
    snprintf(info.gemm, sizeof info.gemm, "%s", cuda_runner_attn(&r->base));
    r->base.info = info;
    rad_log(&r->env, RAD_LOG_INFO,
            "cuda: %s on GPU %d (%s), %u layers, %.1f MB of weights (%s) in %.2f s, %.1f MB for "
            "batches of %u tokens",
            r->config.arch->name, r->gpu.ordinal, r->gpu.name, r->config.num_layers,
            (double)r->layout.bytes * 1e-6, info.weights, seconds,
            (double)r->buffers.block.bytes * 1e-6, r->limits.tokens);
}

/* Of a file, or by a seed; they are supported. */
static rad_status create(const rad_env *env, const gguf_file *file, const model_config *config,
                         uint64_t seed, const cuda_runner_params *p, runner **out, rad_error *err)
{
    const rad_env full = rad_env_or_default(env);
    cuda_runner *r = rad_alloc(&full, sizeof *r);
    if (!r) return rad_fail(err, RAD_E_NOMEM, "cuda: no memory");
    r->env = full;
    r->base.ops = &cuda_ops;
    r->config = *config;
    const uint64_t begin = full.now_ns(full.user);
    rad_status status = start(r, file, seed, p, err);
    if (status != RAD_OK) {
        cuda_runner_destroy(&r->base);
        return status;
    }
    describe(r, cuda_kv_dtype(p), (double)(full.now_ns(full.user) - begin) * 1e-9);
    *out = &r->base;
    return RAD_OK;
}

rad_status cuda_runner_create(const rad_env *env, const gguf_file *file,
                              const cuda_runner_params *params, runner **out, rad_error *err)
{
    model_config config;
    *out = NULL;
    rad_status status = cuda_runner_read(file, params, &config, err);
    return status == RAD_OK ? create(env, file, &config, 0, params, out, err) : status;
}

rad_status cuda_runner_create_random(const rad_env *env, const model_config *config, uint64_t seed,
                                     const cuda_runner_params *params, runner **out, rad_error *err)
{
    *out = NULL;
    rad_status status = cuda_params_supported(params, err);
    if (status == RAD_OK) status = cuda_config_supported(config, err);
    return status == RAD_OK ? create(env, NULL, config, seed, params, out, err) : status;
}

/* ---- questions ---- */

rad_status cuda_runner_measure(const rad_env *env, const gguf_file *file,
                               const cuda_runner_params *params, model_sizes *out, rad_error *err)
{
    const rad_env full = rad_env_or_default(env);
    model_config config;
    cuda_step_limits limits;
    cuda_layout layout;
    enum { ANY = 128, SHARED_BYTES = 99 << 10 }; /* sizes do not depend on them */
    *out = (model_sizes){0};
    rad_status status = cuda_runner_read(file, params, &config, err);
    if (status == RAD_OK)
        status = cuda_limits_find(&config, params, ANY, SHARED_BYTES, &limits, err);
    if (status == RAD_OK)
        status = cuda_layout_init(&full, &config, file, params->model.weights, limits.context,
                                  &layout, err);
    if (status != RAD_OK) return status;
    out->weights_bytes = layout.bytes;
    memcpy(out->matrix_bytes, layout.matrix_bytes, sizeof out->matrix_bytes);
    out->buffers_bytes = cuda_buffers_bytes(&config, &layout, &limits);
    cuda_layout_fini(&full, &config, &layout);
    return RAD_OK;
}

rad_status cuda_gpu_look(const char *library, uint32_t ordinal, cuda_gpu_info *out, rad_error *err)
{
    cuda_driver cu;
    cuda_gpu gpu = {0};
    size_t available = 0, total = 0;
    *out = (cuda_gpu_info){.ordinal = ordinal};
    rad_status status = cuda_driver_open(library, &cu, err);
    if (status != RAD_OK) return status;
    status = cuda_gpu_open(&cu, (int)ordinal, NULL, &gpu, err);
    if (status == RAD_OK) {
        status = cuda_gpu_enter(&gpu, err);
        if (status == RAD_OK) {
            status = cuda_ok(&cu, cu.mem_info(&available, &total), "cuMemGetInfo", err);
            cuda_gpu_leave(&gpu);
        }
        snprintf(out->name, sizeof out->name, "%.95s", gpu.name);
        out->arch = cuda_kernels_arch(&gpu);
        out->multiprocessors = (uint32_t)gpu.multiprocessors;
        out->driver_version = (uint32_t)cu.version;
        out->total_bytes = total;
        out->free_bytes = available;
    }
    cuda_gpu_close(&gpu);
    cuda_driver_close(&cu);
    return status == RAD_E_INVAL ? RAD_E_UNSUPPORTED : status;
}

rad_status cuda_runner_memory(const runner *self, uint64_t *free_bytes, uint64_t *total_bytes)
{
    const cuda_runner *r = (const cuda_runner *)self;
    size_t available = 0, total = 0;
    rad_status status = cuda_gpu_enter(&r->gpu, NULL);
    if (status != RAD_OK) return status;
    status = cuda_ok(&r->cu, r->cu.mem_info(&available, &total), "cuMemGetInfo", NULL);
    cuda_gpu_leave(&r->gpu);
    *free_bytes = available;
    *total_bytes = total;
    return status;
}

const char *cuda_runner_attn(const runner *r)
{
    return ((const cuda_runner *)r)->attn;
}

cuda_runner_stats cuda_runner_get_stats(const runner *self)
{
    const cuda_runner *r = (const cuda_runner *)self;
    cuda_runner_stats stats = r->stats;
    stats.captured = r->graphs.captured;
    stats.compared_slots = r->slots.compared;
    stats.patched_slots = r->slots.patched;
    return stats;
}
