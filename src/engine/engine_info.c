/* engine_info.c - what an engine is, once it is made: as values for whoever asks (engine_info), and as
 * lines of the log when it starts. */
#include "base/utf8.h"
#include "engine/engine_device.h"
#include "engine/engine_impl.h"
#include "mem/kv_codec.h"
#include "sched/draft_model.h"

#include <stdio.h>
#include <time.h>

/* The model's, or that of its last token, which has seen all others. */
static hidden_pooling choose_pooling(const engine *e)
{
    const char *asked = e->params.pooling;
    if (asked && strcmp(asked, "mean") == 0) return POOL_MEAN;
    if ((asked && strcmp(asked, "last") == 0) || !e->runner->info.pooling) return POOL_LAST;
    return e->runner->info.pooling;
}

/* A copy that can go into JSON and onto a terminal: a file's own name may be any bytes, and a
 * path too. What is no UTF-8 or drives a terminal becomes '?'. */
static char *printable_copy(const rad_env *env, const char *text)
{
    char *copy = engine_strdup(env, text);
    size_t len = copy ? strlen(copy) : 0;
    for (size_t i = 0; i < len;) {
        utf8_char c = utf8_next((const unsigned char *)copy + i, len - i);
        if (!c.valid || utf8_is_harmful(c.code)) memset(copy + i, '?', c.len);
        i += c.len;
    }
    return copy;
}

/* Who guesses, in the words of --speculative-algorithm, which names neither what grammars force nor
 * a source that is given. */
static void name_drafts(engine *e)
{
    const uint32_t sources = scheduler_draft_sources(e->scheduler);
    size_t len = 0;
    snprintf(e->draft_sources, sizeof e->draft_sources, "none");
    for (draft_kind kind = DRAFT_PREDICTION; kind < DRAFT_KINDS; kind++)
        if (sources & draft_bit(kind) && len < sizeof e->draft_sources)
            len += (size_t)snprintf(e->draft_sources + len, sizeof e->draft_sources - len, "%s%s",
                                    len ? "," : "", draft_source_of(kind)->name);
}

rad_status engine_fill_info(engine *e, const engine_parts *parts, rad_error *err)
{
    const char *name = e->params.served_model_name;
    e->model_name = printable_copy(&e->env, name ? name : parts->model_name);
    e->model_path = printable_copy(&e->env, parts->model_path ? parts->model_path : "");
    e->architecture = engine_strdup(&e->env, parts->architecture ? parts->architecture : "");
    e->backend_name = engine_strdup(&e->env, parts->attn_backend ? parts->attn_backend : "");
    const char *draft = e->draft_runner ? e->params.speculative_draft_model_path : NULL;
    e->draft_model_path = printable_copy(&e->env, draft ? draft : "");
    if (!e->draft_model_path || !e->model_name || !e->model_path || !e->architecture ||
        !e->backend_name)
        return rad_fail(err, RAD_E_NOMEM, "engine: no memory for its names");

    const cuda_gpu_info *gpu = parts->gpu;
    engine_device_name(gpu, e->device, sizeof e->device);
    snprintf(e->device_name, sizeof e->device_name, "%s", gpu ? gpu->name : "");
    if (gpu)
        snprintf(e->computes_on, sizeof e->computes_on, "%s (%s)", gpu->name, e->device);
    else
        snprintf(e->computes_on, sizeof e->computes_on, "%u threads", e->runner->info.num_threads);
    snprintf(e->why_no_gpu, sizeof e->why_no_gpu, "%s", parts->why_no_gpu ? parts->why_no_gpu : "");
    const runner_info *model = &e->runner->info;
    const char *weights = model->weights[0] ? model->weights : kv_dtype_name(model->kv_dtype);
    snprintf(e->guarantee, sizeof e->guarantee,
             "answers are bit-identical whatever the cache or the batch does: %s weights, %s KV, "
             "attention %s%s%s",
             weights, kv_dtype_name(model->kv_dtype), e->backend_name,
             model->gemm[0] ? ", products " : "", model->gemm);
    scheduler_stats pool;
    scheduler_get_stats(e->scheduler, &pool);
    const bool apart = pool.window_total_tokens;
    e->pooling = choose_pooling(e);
    name_drafts(e);
    e->info = (engine_info){
        .model_name = e->model_name,
        .model_path = e->model_path,
        .architecture = e->architecture,
        .chat_template = e->chat ? chat_template_name(e->chat) : "",
        .attn_backend = e->backend_name,
        .dtype = weights,
        .kv_cache_dtype = kv_dtype_name(model->kv_dtype),
        .vocab_size = model->vocab_size,
        .context_length = scheduler_context_length(e->scheduler),
        .page_size = e->params.page_size,
        .max_running_requests = e->params.max_running_requests,
        .chunked_prefill_size = prefill_chunk(&e->params),
        .num_threads = model->num_threads,
        .max_total_tokens = pool.max_total_tokens,
        .device = e->device,
        .device_name = e->device_name,
        .computes_on = e->computes_on,
        .device_bytes = gpu ? gpu->total_bytes : 0,
        .kv_events = e->publisher ? &e->kv_events : NULL,
        .record = e->recorder ? recorder_path(e->recorder) : NULL,
        .why_no_gpu = e->why_no_gpu,
        .kv_bytes_per_token =
            runner_token_bytes(model, apart ? RUNNER_FULL_LAYERS : RUNNER_ALL_LAYERS),
        .window_total_tokens = pool.window_total_tokens,
        .window_kv_bytes_per_token = apart ? runner_token_bytes(model, RUNNER_WINDOW_LAYERS) : 0,
        .sliding_window = model->sliding_window,
        .draft_model_path = e->draft_model_path,
        .draft_weights_bytes = parts->draft_weights_bytes,
        .draft_bytes_per_token = e->draft_runner ? draft_model_token_bytes(&e->draft_runner->info)
                                                 : 0,
        .max_states = pool.states_total,
        .state_bytes = model->state_bytes,
        .state_layers = model->state_layers,
        .state_interval = model->state_bytes ? e->params.mamba_track_interval : 0,
        .knows_turns = e->turn_token != 0,
        .created_unix = (uint64_t)time(NULL),
        .radix_cache = !e->params.disable_radix_cache,
        .hierarchical_cache = e->tiers.enabled,
        .host_tokens = pool.tiers.host_tokens,
        .host_window_tokens = pool.tiers.host_window_tokens,
        .host_states = pool.tiers.host_states,
        .eviction_policy = rad_eviction_policy_name(e->params.eviction.policy),
        .guarantee = e->guarantee,
        .max_pinned_tokens = e->params.max_pinned_tokens,
        .max_sessions = e->params.max_sessions,
        .streaming_sessions = e->params.streaming_sessions,
        .embedding_length = model->hidden_dim,
        .pooling = !model->hidden_dim        ? ""
                   : e->pooling == POOL_MEAN ? "mean"
                                             : "last",
        .schedule_policy = schedule_policy_name(scheduler_policy(e->scheduler)),
        .speculative_algorithm = e->draft_sources,
        .speculative_num_draft_tokens = e->params.speculative_num_draft_tokens,
    };
    return RAD_OK;
}

/* What becomes of layers with a window, if there are any. */
static void log_window(const engine *e)
{
    const engine_info *i = &e->info;
    const runner_info *model = &e->runner->info;
    const char *why = "the KV pool is hardly larger than the window";
    if (!model->window_layers) return;
    if (i->window_total_tokens) {
        rad_log(&e->env, RAD_LOG_INFO,
                "engine: swa_max_total_tokens=%llu (%.1f MB of KV, %llu bytes a token) for the %u "
                "of %u layers with a window of %u",
                (unsigned long long)i->window_total_tokens,
                (double)i->window_total_tokens * (double)i->window_kv_bytes_per_token / 1e6,
                (unsigned long long)i->window_kv_bytes_per_token, model->window_layers,
                model->num_layers, i->sliding_window);
        if (e->params.disable_hybrid_swa_memory)
            rad_log(&e->env, RAD_LOG_WARN,
                    "engine: --disable-hybrid-swa-memory is without effect: layers with a window "
                    "have heads of their own, whose K/V lie apart");
        return;
    }
    if (e->params.disable_hybrid_swa_memory)
        why = "--disable-hybrid-swa-memory";
    else if (i->sliding_window >= i->context_length)
        why = "no context is longer";
    rad_log(&e->env, RAD_LOG_INFO,
            "engine: layers with a window of %u mask, and keep every key: %s", i->sliding_window,
            why);
}

void engine_log_info(const engine *e)
{
    const engine_info *i = &e->info;
    rad_log(&e->env, RAD_LOG_INFO, "engine: computes on %s%s%s", i->computes_on,
            i->why_no_gpu[0] ? ", not on a GPU: " : "", i->why_no_gpu);
    rad_log(&e->env, RAD_LOG_INFO,
            "engine: max_total_tokens=%llu (%.1f MB of KV, %llu bytes a token), page_size=%u",
            (unsigned long long)i->max_total_tokens,
            (double)i->max_total_tokens * (double)i->kv_bytes_per_token / 1e6,
            (unsigned long long)i->kv_bytes_per_token, i->page_size);
    log_window(e);
    if (i->max_states)
        rad_log(&e->env, RAD_LOG_INFO,
                "engine: max_mamba_cache_size=%llu states (%.1f MB, %.3f MB each) of %u recurrent "
                "layers; a snapshot every %u tokens of long prompts%s",
                (unsigned long long)i->max_states,
                (double)i->max_states * (double)i->state_bytes / 1e6, (double)i->state_bytes / 1e6,
                i->state_layers, i->state_interval,
                i->knows_turns ? ", and where messages begin" : "");
    if (i->draft_model_path[0])
        rad_log(
            &e->env, RAD_LOG_INFO,
            "engine: draft model %s: %.1f MB of weights, and %llu bytes for each token of the KV "
            "pool (%.1f MB)",
            i->draft_model_path, (double)i->draft_weights_bytes / 1e6,
            (unsigned long long)i->draft_bytes_per_token,
            (double)i->max_total_tokens * (double)i->draft_bytes_per_token / 1e6);
    rad_log(&e->env, RAD_LOG_INFO,
            "engine: max_running_requests=%u, max_queued_requests=%u, chunked_prefill_size=%u, "
            "context_length=%u, radix cache %s, %u threads",
            i->max_running_requests, e->max_queued, i->chunked_prefill_size, i->context_length,
            i->radix_cache ? "on" : "off", i->num_threads);
    if (i->hierarchical_cache)
        rad_log(&e->env, RAD_LOG_INFO,
                "engine: the host tier has %llu tokens, %llu of window memory, %llu states, "
                "storage: %s",
                (unsigned long long)i->host_tokens, (unsigned long long)i->host_window_tokens,
                (unsigned long long)i->host_states, e->tiers.has_store ? e->tiers.spec : "none");
    if (i->kv_events)
        rad_log(&e->env, RAD_LOG_WARN,
                "engine: KV events are published at %s%s%s: whoever can connect there reads the token "
                "ids of all prompts",
                i->kv_events->endpoint, i->kv_events->replay_endpoint[0] ? ", replays at " : "",
                i->kv_events->replay_endpoint);
    if (i->record)
        rad_log(&e->env, RAD_LOG_INFO, "engine: what the cache does is recorded to %s", i->record);
    rad_log(&e->env, RAD_LOG_INFO, "engine: %s", i->guarantee);
    if (i->context_length < e->params.context_length)
        rad_log(&e->env, RAD_LOG_WARN,
                "engine: the KV pool is smaller than the context of %u: prompt and answer have "
                "%u tokens at most",
                e->params.context_length, i->context_length);
}
