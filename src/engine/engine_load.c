/* engine_load.c - from a path to an engine: opens the file, asks engine_plan.c where it is computed
 * and whether there is room for what it holds, loads it, sizes the pool by what memory is left, and
 * hands the parts to engine_create_with. */
#include "base/available.h"
#include "engine/engine_plan.h"
#include "mem/kv_codec.h"
#include "model/model_runner.h"

#include <stdio.h>

enum { NAME_BYTES = 256 };

/* general.name, or the file's own name without directory, extension and number of a part. */
static void find_name(const gguf_file *file, const char *path, char *name)
{
    gguf_str str;
    if (gguf_get_str(file, "general.name", &str, NULL) == RAD_OK && str.len) {
        snprintf(name, NAME_BYTES, "%.*s", (int)RAD_MIN(str.len, NAME_BYTES - 1), str.data);
        return;
    }
    const char *slash = strrchr(path, '/');
    snprintf(name, NAME_BYTES, "%s", slash ? slash + 1 : path);
    size_t len = strlen(name);
    if (len > 5 && strcmp(name + len - 5, ".gguf") == 0) name[len -= 5] = 0;
    enum { PART = 15 }; /* "-00001-of-00003" */
    if (gguf_num_parts(file) > 1 && len > PART) name[len - PART] = 0;
}

/* Buffers are made for the largest batch; past these it is a slip of the keyboard. */
enum { MOST_CHUNK = 1 << 20, MOST_RUNNING = 1 << 16 };

/* Says in the log how far it is, where somebody waits for long. */
typedef struct load_progress {
    const rad_env *env;
    const engine_params *params;
    uint64_t started_ns, next_ns;
} load_progress;

static const uint64_t PROGRESS_NS = 5000000000;

static void on_progress(void *user, uint64_t done, uint64_t total)
{
    load_progress *l = user;
    if (l->params->progress) l->params->progress(l->params->progress_user, done, total);
    const uint64_t now = l->env->now_ns(l->env->user);
    if (now < l->next_ns || done >= total) return;
    l->next_ns = now + PROGRESS_NS;
    rad_log(l->env, RAD_LOG_INFO, "model: %.0f%% loaded, %.2f of %.2f GB, %.2f GB/s",
            (double)done / (double)total * 100, (double)done / 1e9, (double)total / 1e9,
            (double)done / (double)(now - l->started_ns));
}

/* Weights, and threads or a GPU to compute with. */
static rad_status create_planned(const rad_env *env, const gguf_file *file, const engine_params *p,
                                 load_plan *plan, engine_parts *parts, rad_error *err)
{
    const uint64_t now = env->now_ns(env->user);
    load_progress progress = {env, p, now, now + PROGRESS_NS};
    model_runner_params *model = plan->on_gpu ? &plan->cuda.model : &plan->model;
    model->progress = on_progress;
    model->progress_user = &progress;
    if (!plan->on_gpu) {
        parts->attn_backend = attn_name(model->attn, plan->info.kv_dtype);
        return model_runner_create(env, file, model, &parts->runner, err);
    }
    rad_status status = cuda_runner_create(env, file, &plan->cuda, &parts->runner, err);
    if (status != RAD_OK) return status;
    parts->attn_backend = cuda_runner_attn(parts->runner);
    parts->gpu = &plan->gpu;
    return RAD_OK;
}

/* A GPU that any device would do for is no reason to fail. */
static rad_status create_runner(const rad_env *env, const gguf_file *file, const engine_params *p,
                                load_plan *plan, engine_parts *parts, rad_error *err)
{
    rad_error why = {0};
    rad_status status = create_planned(env, file, p, plan, parts, plan->on_gpu ? &why : err);
    const bool failed_there = status != RAD_OK && plan->on_gpu;
    if (failed_there && !plan->gpu_or_cpu) return engine_gpu_refuse(p->device, status, &why, err);
    if (failed_there) {
        const char *words = engine_gpu_words(&why);
        rad_log(env, RAD_LOG_WARN, "engine: computes on the CPU: %s", words);
        status = plan_load_on_cpu(env, file, p, parts->available, words, plan, err);
        if (status == RAD_OK) status = create_planned(env, file, p, plan, parts, err);
    }
    parts->why_no_gpu = plan->why_no_gpu;
    return status;
}

static rad_status load(const rad_env *env, const gguf_file *file, const engine_params *p,
                       load_plan *plan, engine_parts *parts, char *chat_error, rad_error *err)
{
    rad_status status = tokenizer_create(env, file, &parts->tok, err);
    if (status != RAD_OK) return status;
    rad_error why = {0};
    if (p->chat_template && strcmp(p->chat_template, "none") == 0)
        snprintf(chat_error, NAME_BYTES, "chat: no chat template is in use");
    else
        status = chat_template_create(env, file, parts->tok, p->chat_template, &parts->chat, &why);
    if (status != RAD_OK) {
        bool named = p->chat_template && strcmp(p->chat_template, "auto") != 0;
        if (named || status != RAD_E_UNSUPPORTED) return rad_fail(err, status, "%s", why.text);
        parts->chat = NULL; /* only an error when somebody sends messages */
        snprintf(chat_error, NAME_BYTES, "%.255s", why.text);
    }
    const char *unknown = parts->chat ? chat_template_unknown(parts->chat) : "";
    if (*unknown)
        rad_log(env, RAD_LOG_WARN,
                "chat: the template has a %s that radish has not; conversations that reach it fail",
                unknown);

    status = create_runner(env, file, p, plan, parts, err);
    if (status == RAD_OK)
        status = draft_load(env, p, &plan->draft, parts->runner, &parts->draft_runner, err);
    parts->draft_weights_bytes = plan->draft.sizes.weights_bytes;
    parts->max_rows = plan->rows;
    return status;
}

/* Loads what there is room for, and makes sure that it was one file's bytes where pages are to be
 * filed under them. */
static rad_status load_from(const rad_env *env, const gguf_file *file, const engine_params *p,
                            load_plan *plan, engine_parts *parts, char *chat_error, rad_error *err)
{
    rad_status status = plan_load(env, file, p, parts->available, plan, err);
    if (status == RAD_OK && p->enable_hierarchical_cache)
        status =
            gguf_source_create(env, file, p->hicache_storage_backend != NULL, &parts->source, err);
    if (status == RAD_OK) status = load(env, file, p, plan, parts, chat_error, err);
    if (status == RAD_OK && parts->source) status = gguf_source_check(parts->source, err);
    return status;
}

/* By what memory is left where the model is. */
static rad_status size_pools(const rad_env *env, engine_params *p, const load_plan *plan,
                             const engine_parts *parts, kv_sizes *sizes, rad_error *err)
{
    const runner_info *model = &parts->runner->info;
    uint64_t now = memory_available(), total;
    *p = params_where(p, plan);
    rad_status status = p->on_gpu ? cuda_runner_memory(parts->runner, &now, &total) : RAD_OK;
    if (status != RAD_OK) return rad_fail(err, status, "engine: the GPU does not say what is free");
    status = size_kv_pool(env, p, model, plan->available, now, plan->fraction, sizes, err);
    if (status == RAD_OK) status = fit_host_tier(env, p, model, sizes, memory_available(), err);
    return status;
}

rad_status engine_create(const rad_env *env, const engine_params *params, engine **out,
                         rad_error *err)
{
    *out = NULL;
    rad_env full = rad_env_or_default(env);
    if (!params->model_path) return rad_fail(err, RAD_E_INVAL, "engine: a model is needed");
    if (check_scheduling(params, err) != RAD_OK) return RAD_E_INVAL; /* before it loads */
    if (params->chunked_prefill_size > MOST_CHUNK || params->max_running_requests > MOST_RUNNING)
        return rad_fail(err, RAD_E_INVAL,
                        "chunked_prefill_size %d and max_running_requests %u: at most %d and %d",
                        params->chunked_prefill_size, params->max_running_requests, MOST_CHUNK,
                        MOST_RUNNING);
    rad_dtype kv_dtype;
    if (params->kv_cache_dtype && strcmp(params->kv_cache_dtype, "auto") != 0 &&
        !kv_dtype_find(params->kv_cache_dtype, &kv_dtype))
        return rad_fail(err, RAD_E_INVAL,
                        "kv_cache_dtype is auto, f32, bf16, f16, fp8_e4m3, fp8_e5m2 or int8, not "
                        "'%s'",
                        params->kv_cache_dtype);
    uint64_t available_before = memory_available();
    gguf_file *file;
    rad_status status = gguf_open(&full, params->model_path, &file, err);
    if (status != RAD_OK) return status;

    char name[NAME_BYTES], architecture[NAME_BYTES] = "", chat_error[NAME_BYTES] = "";
    gguf_str arch;
    find_name(file, params->model_path, name);
    if (gguf_get_str(file, "general.architecture", &arch, NULL) == RAD_OK)
        snprintf(architecture, sizeof architecture, "%.*s", (int)RAD_MIN(arch.len, 64u), arch.data);

    load_plan plan;
    engine_params p = *params;
    engine_parts parts = {.model_name = name,
                          .model_path = p.model_path,
                          .architecture = architecture,
                          .available = available_before};
    status = load_from(&full, file, &p, &plan, &parts, chat_error, err);
    parts.chat_error = chat_error[0] ? chat_error : NULL;
    gguf_close(file);
    kv_sizes sizes = {0};
    if (status == RAD_OK) status = size_pools(&full, &p, &plan, &parts, &sizes, err);
    p.max_total_tokens = sizes.tokens;
    parts.window_total_tokens = sizes.window_tokens;
    p.max_mamba_cache_size = (uint32_t)RAD_MIN(sizes.states, (uint64_t)INT32_MAX - 1);
    if (status == RAD_OK && !p.max_running_requests)
        p.max_running_requests = RAD_MIN(rows_for(&sizes), parts.max_rows);
    if (status != RAD_OK) {
        engine_parts_destroy(&parts);
        return status;
    }
    return engine_create_with(&full, &p, &parts, out, err);
}
