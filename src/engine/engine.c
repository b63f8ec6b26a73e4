/* engine.c - the engine's life, and the doors to it.
 *
 * The table of jobs is what bounds it all: a request takes a place in submit and leaves
 * it with its last event, and the rings before the scheduler have room for every place,
 * so that only the ring to the detokenizer can fill up, which drains by itself.
 *
 *     id = serial * max_jobs + place      an old id never names a new request
 *
 * Invariant: num_free_places + jobs in flight == max_jobs; num_queued counts the jobs
 * with `queued`. */
#include "engine/engine_device.h"
#include "engine/engine_draft.h"
#include "engine/engine_impl.h"
#include "sched/draft_recent.h"
#include "sched/state_memory.h"

#include "base/mix64.h"
#include "base/word_list.h"

#include <stdio.h>

enum { DETOK_RING = 4096 };

/* ---- create ---- */

rad_status check_scheduling(const engine_params *p, rad_error *err)
{
    schedule_policy policy = SCHEDULE_LPM;
    rad_status status = RAD_OK;
    uint32_t sources = 0;
    if (p->schedule_policy) status = schedule_policy_parse(p->schedule_policy, &policy, err);
    if (status != RAD_OK) return status;
    if (!(p->verify_rate >= 0 && p->verify_rate <= 1))
        return rad_fail(err, RAD_E_INVAL, "verify_rate %g is not a share, 0 to 1", p->verify_rate);
    if (!(p->self_check_interval_s >= 0 && p->self_check_interval_s <= 1e6))
        return rad_fail(err, RAD_E_INVAL, "self_check_interval_s %g is no time",
                        p->self_check_interval_s);
    if (p->pooling && strcmp(p->pooling, "auto") != 0 && strcmp(p->pooling, "last") != 0 &&
        strcmp(p->pooling, "mean") != 0)
        return rad_fail(err, RAD_E_INVAL, "pooling is auto, last or mean, not '%.60s'", p->pooling);
    if (p->speculative_algorithm)
        status = draft_sources_parse(p->speculative_algorithm, &sources, err);
    if (status != RAD_OK) return status;
    if (status == RAD_OK && sources & draft_bit(DRAFT_MODEL) && !p->speculative_draft_model_path)
        return rad_fail(err, RAD_E_INVAL,
                        "speculative_algorithm 'model' needs speculative_draft_model_path");
    if (p->speculative_draft_model_path && !p->speculative_num_draft_tokens)
        return rad_fail(err, RAD_E_INVAL,
                        "a draft model, and speculative_num_draft_tokens is 0: nothing is guessed");
    if (p->speculative_draft_model_path && sources == draft_bit(DRAFT_FORCED))
        return rad_fail(err, RAD_E_INVAL,
                        "a draft model, and speculative_algorithm is 'none': nothing is guessed; "
                        "'model' asks that model alone");
    if (p->speculative_num_draft_tokens > DRAFT_MOST)
        return rad_fail(err, RAD_E_INVAL, "speculative_num_draft_tokens is %d at most, not %u",
                        DRAFT_MOST, p->speculative_num_draft_tokens);
    if (p->speculative_ngram_capacity > RECENT_MOST)
        return rad_fail(err, RAD_E_INVAL, "speculative_ngram_capacity is %d at most, not %u",
                        RECENT_MOST, p->speculative_ngram_capacity);
    if (p->max_itl_ms && p->chunked_prefill_size == -1)
        return rad_fail(err, RAD_E_INVAL,
                        "max_itl_ms needs prompts in chunks, and chunked_prefill_size is -1");
    kv_events_config events;
    status = engine_events_check(p, &events, err);
    return status ? status : engine_tiers_check(p, err);
}

const char *engine_schedule_policies(char *text, size_t size)
{
    for (unsigned i = 0; i < SCHEDULE_NUM_POLICIES; i++) {
        char word[80];
        snprintf(word, sizeof word, "%s (%s%s)", schedule_policy_name(i), i ? "" : "default; ",
                 schedule_policy_about(i));
        word_list_add(text, size, i, SCHEDULE_NUM_POLICIES, "or", word);
    }
    return text;
}

static rad_status complete_params(engine_params *p, const runner_info *model, rad_error *err)
{
    if (!p->page_size) p->page_size = 1;
    if (!p->context_length) p->context_length = model->context_length;
    if (p->context_length > model->context_length)
        return rad_fail(err, RAD_E_INVAL, "context_length %u is more than the model's %u",
                        p->context_length, model->context_length);
    if (p->chunked_prefill_size < -1)
        return rad_fail(err, RAD_E_INVAL, "chunked_prefill_size %d is not a size (-1 = never)",
                        p->chunked_prefill_size);
    if (!p->max_total_tokens) return rad_fail(err, RAD_E_INVAL, "max_total_tokens is needed");
    if (p->max_pinned_tokens == ENGINE_PIN_QUARTER)
        p->max_pinned_tokens = p->disable_radix_cache ? 0 : p->max_total_tokens / 4;
    p->max_sessions = engine_max_sessions(p);
    if (!p->max_running_requests)
        p->max_running_requests = default_max_running(p->max_total_tokens);
    if (!p->max_queued_requests) p->max_queued_requests = ENGINE_MAX_QUEUED_REQUESTS;
    return check_scheduling(p, err);
}

static bool is_end_token(void *user, rad_token token)
{
    return tokenizer_is_eog(((engine *)user)->tok, token);
}

/* What each message of a conversation begins with, if that is one token that no text has: the first
 * of what a template adds where the model is to speak. */
static rad_token turn_token(const engine *e)
{
    enum { MOST = 4096 };
    const chat_message hello = {.role = "user", .content = "a", .content_len = 1};
    token_buf closed = {0}, open = {0};
    rad_token token = 0;
    if (e->chat && chat_template_encode(e->chat, &hello, 1, false, MOST, &closed, NULL) == RAD_OK &&
        chat_template_encode(e->chat, &hello, 1, true, MOST, &open, NULL) == RAD_OK) {
        uint32_t i = 0;
        while (i < open.len && i < closed.len && open.ids[i] == closed.ids[i])
            i++;
        if (i < open.len && tokenizer_is_control(e->tok, open.ids[i])) token = open.ids[i];
    }
    token_buf_fini(&closed);
    token_buf_fini(&open);
    return token;
}

/* Pages are filed under what made them; the scheduler needs that before the names are there. */
static rad_status init_tiers(engine *e, const engine_parts *parts, rad_error *err)
{
    const runner_info *model = &e->runner->info;
    char build[256];
    snprintf(build, sizeof build, "%s weights, attention %s, products %s",
             model->weights[0] ? model->weights : "plain",
             parts->attn_backend ? parts->attn_backend : "", model->gemm);
    rad_status status = engine_tiers_init(&e->tiers, &e->env, &e->params, parts->source,
                                          parts->model_name, build, err);
    rad_storage_identity *id = &e->tiers.identity;
    id->dtype = model->kv_dtype;
    id->page_size = RAD_MAX(e->params.page_size, 1u);
    id->num_layers = model->num_layers;
    id->num_kv_heads = model->num_kv_heads;
    id->head_dim = model->head_dim;
    id->v_head_dim = model->v_head_dim;
    return status;
}

static rad_status create_scheduler(engine *e, rad_error *err)
{
    const engine_params *p = &e->params;
    const runner_info *model = &e->runner->info;
    schedule_policy policy = SCHEDULE_LPM;
    uint32_t sources;
    if (p->schedule_policy) (void)schedule_policy_parse(p->schedule_policy, &policy, NULL);
    (void)draft_sources_wanted(p, &sources, NULL);
    if (model->state_bytes) {
        e->turn_token = turn_token(e);
        if (!e->params.mamba_track_interval)
            e->params.mamba_track_interval = state_default_interval(model);
    }
    scheduler_params s = {
        .runner = e->runner,
        .cache_kind = p->disable_radix_cache ? RAD_CACHE_CHUNK : RAD_CACHE_RADIX,
        .page_size = p->page_size,
        .eviction = p->eviction,
        .max_namespaces = p->max_namespaces,
        .on_step = p->on_step,
        .step_user = p->step_user,
        .max_total_tokens = p->max_total_tokens,
        .window_total_tokens = e->window_total_tokens,
        .max_states = p->max_mamba_cache_size,
        .state_interval = p->mamba_track_interval,
        .turn_token = e->turn_token,
        .max_running_requests = p->max_running_requests,
        .max_queued_requests = e->max_jobs, /* submit holds the real limit */
        .chunked_prefill_size = prefill_chunk(p),
        .context_length = p->context_length,
        .policy = policy,
        .enable_priority_scheduling = p->enable_priority_scheduling,
        .schedule_low_priority_values_first = p->schedule_low_priority_values_first,
        .random_seed = p->random_seed,
        .max_itl_ns = (uint64_t)p->max_itl_ms * 1000000,
        .max_draft_tokens = p->speculative_num_draft_tokens,
        .draft_runner = e->draft_runner,
        .draft_sources = sources,
        .draft_recent_tokens = p->speculative_ngram_capacity,
        .verify_rate = p->verify_rate,
        .self_check_ns = (uint64_t)(p->self_check_interval_s * 1e9),
        .max_sessions = p->max_sessions,
        .streaming_sessions = p->streaming_sessions,
        .retention = p->retention,
        .max_pinned_tokens = p->max_pinned_tokens,
        .disable_partial_reuse = p->disable_partial_reuse,
        .disable_tree_attention = p->disable_tree_attention,
        .hicache = e->tiers.enabled ? &e->tiers.hicache : NULL,
        .host_pool = e->tiers.enabled ? &e->tiers.host_pool : NULL,
        .is_end_token = is_end_token,
        .kv_events = e->kv_events.on,
        .explain_namespaces = p->explain_namespaces,
        .tap = {.fn = e->recorder ? engine_on_cache_op : NULL, .user = e},
        .on_output = engine_on_output,
        .on_admit = engine_on_admit,
        .user = e,
    };
    return scheduler_create(&e->env, &s, &e->scheduler, err);
}

static rad_status create_table(engine *e, rad_error *err)
{
    uint64_t places = (uint64_t)e->params.max_queued_requests + e->params.max_running_requests;
    if (places > 1u << 24)
        return rad_fail(err, RAD_E_INVAL, "too many requests at one time: %u running, %u queued",
                        e->params.max_running_requests, e->params.max_queued_requests);
    e->max_jobs = (uint32_t)places;
    e->max_queued = e->params.max_queued_requests;
    e->jobs = rad_alloc(&e->env, rad_mul(e->max_jobs, sizeof *e->jobs));
    e->free_places = rad_alloc(&e->env, rad_mul(e->max_jobs, sizeof *e->free_places));
    if (!e->jobs || !e->free_places ||
        message_ring_init(&e->to_tokenizer, &e->env, e->max_jobs, sizeof(engine_job *)) ||
        message_ring_init(&e->to_scheduler, &e->env, e->max_jobs, sizeof(sched_message)) ||
        message_ring_init(&e->to_detokenizer, &e->env, DETOK_RING, sizeof(detok_message)))
        return rad_fail(err, RAD_E_NOMEM, "engine: no memory for %u requests", e->max_jobs);
    while (e->num_free_places < e->max_jobs) {
        e->free_places[e->num_free_places] = e->max_jobs - 1 - e->num_free_places;
        e->num_free_places++;
    }
    return RAD_OK;
}

/* What min_new_tokens holds back: looked up once, since a vocabulary is long. */
static rad_status find_end_ids(engine *e, rad_error *err)
{
    for (int pass = 0; pass < 2; pass++) {
        uint32_t count = 0;
        for (uint32_t id = 0; id < e->info.vocab_size; id++) {
            if (!tokenizer_is_eog(e->tok, (rad_token)id)) continue;
            if (pass) e->end_ids[count] = (rad_token)id;
            count++;
        }
        if (pass || !count) break;
        e->end_ids = rad_alloc(&e->env, count * sizeof *e->end_ids);
        if (!e->end_ids) return rad_fail(err, RAD_E_NOMEM, "engine: no memory");
        e->num_end_ids = count;
    }
    return RAD_OK;
}

/* Each pool gets its part of kv_populate_ahead, by its size. */
static rad_status start_populating(engine *e, rad_error *err)
{
    rad_token_to_kv_pool *full = scheduler_kv_pool(e->scheduler);
    rad_token_to_kv_pool *window = scheduler_window_pool(e->scheduler);
    double full_bytes = full ? (double)rad_kv_pool_size_bytes(full) : 0;
    double window_bytes = window ? (double)rad_kv_pool_size_bytes(window) : 0;
    double ahead = (double)e->params.kv_populate_ahead / (full_bytes + window_bytes);
    rad_status status = RAD_OK;
    if (full)
        status =
            engine_populate_start(&e->populate, &e->env, full, (uint64_t)(ahead * full_bytes), err);
    if (window && status == RAD_OK)
        status = engine_populate_start(&e->populate_window, &e->env, window,
                                       (uint64_t)(ahead * window_bytes), err);
    return status;
}

static rad_status start_threads(engine *e, rad_error *err)
{
    struct {
        pthread_t *thread;
        void *(*main)(void *);
    } threads[] = {{&e->detokenizer_thread, detokenizer_manager},
                   {&e->scheduler_thread, scheduler_loop},
                   {&e->tokenizer_thread, tokenizer_manager}};
    for (size_t i = 0; i < RAD_COUNT(threads); i++) {
        if (compute_thread_create(threads[i].thread, threads[i].main, e))
            return rad_fail(err, RAD_E_NOMEM, "engine: no more threads");
        e->num_threads_started++;
    }
    return RAD_OK;
}

void engine_parts_destroy(const engine_parts *parts)
{
    chat_template_destroy(parts->chat);
    tokenizer_destroy(parts->tok);
    runner_destroy(parts->draft_runner); /* it has the other's threads */
    runner_destroy(parts->runner);
    gguf_source_destroy(parts->source);
}

rad_status engine_create_with(const rad_env *env, const engine_params *params,
                              const engine_parts *parts, engine **out, rad_error *err)
{
    *out = NULL;
    rad_env full = rad_env_or_default(env);
    engine *e = rad_alloc(&full, sizeof *e);
    if (!e) {
        engine_parts_destroy(parts);
        return rad_fail(err, RAD_E_NOMEM, "engine: no memory");
    }
    e->env = full;
    e->params = *params;
    e->runner = parts->runner;
    e->draft_runner = parts->draft_runner;
    e->tok = parts->tok;
    e->chat = parts->chat;
    e->tiers.source = parts->source;
    e->window_total_tokens = parts->window_total_tokens;
    const char *why = parts->chat_error;
    strncpy(e->chat_error, why ? why : "this model has no chat template", sizeof e->chat_error - 1);
    if (!e->params.random_seed) e->params.random_seed = full.now_ns(full.user);
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->notes.lock, NULL);
    engine_store_init(e);
    engine_populate_init(&e->populate);
    engine_populate_init(&e->populate_window);

    rad_status status = complete_params(&e->params, &e->runner->info, err);
    if (status == RAD_OK) status = create_table(e, err);
    if (status == RAD_OK) status = init_tiers(e, parts, err);
    if (status == RAD_OK) status = engine_events_check(&e->params, &e->kv_events, err);
    if (status == RAD_OK) status = engine_record_open(e, err);
    if (status == RAD_OK) status = create_scheduler(e, err);
    if (status == RAD_OK) status = engine_events_init(e, err);
    if (status == RAD_OK) status = engine_record_start(e, err);
    if (status == RAD_OK) status = engine_fill_info(e, parts, err);
    if (status == RAD_OK) status = find_end_ids(e, err);
    if (status == RAD_OK) status = start_populating(e, err);
    if (status == RAD_OK) engine_note_stats(e, true);
    if (status == RAD_OK) status = start_threads(e, err);
    if (status == RAD_OK) status = engine_store_start(e, err);
    if (status == RAD_OK && e->publisher) status = kv_publisher_start(e->publisher, err);
    if (status != RAD_OK) {
        engine_destroy(e);
        return status;
    }
    engine_log_info(e);
    e->params.served_model_name = e->params.model_path = e->params.chat_template = NULL;
    e->params.schedule_policy = e->params.pooling = e->params.device = NULL;
    e->params.speculative_algorithm = e->params.speculative_draft_model_path = NULL;
    e->params.hicache_write_policy = e->params.hicache_mem_layout = NULL;
    e->params.hicache_eviction_policy = e->params.kv_events_config = NULL;
    e->params.record = NULL;
    e->params.hicache_storage_backend = e->params.hicache_storage_prefetch_policy = NULL;
    e->params.hicache_storage_backend_extra_config = e->params.hicache_storage_mode = NULL;
    *out = e;
    return RAD_OK;
}

/* From the front to the back: once a thread has gone, nothing enters the next ring. */
void engine_destroy(engine *e)
{
    if (!e) return;
    pthread_mutex_lock(&e->lock);
    for (uint32_t i = 0; i < e->max_jobs && e->jobs; i++) {
        engine_job *job = e->jobs[i];
        if (!job) continue;
        job->aborted = true;
        if (job->req_ready) scheduler_cancel(e->scheduler, &job->r, REQ_FINISH_ABORT);
    }
    pthread_mutex_unlock(&e->lock);

    sched_message go_on = {0}; /* out of a pause */
    if (e->num_threads_started > 1) message_ring_push(&e->to_scheduler, &go_on, 1);
    engine_store_stop(e); /* while there is a scheduler to talk to */
    if (e->to_tokenizer.items) message_ring_close(&e->to_tokenizer);
    if (e->num_threads_started > 2) pthread_join(e->tokenizer_thread, NULL);
    if (e->to_scheduler.items) message_ring_close(&e->to_scheduler);
    if (e->num_threads_started > 1) pthread_join(e->scheduler_thread, NULL);
    if (e->to_detokenizer.items) message_ring_close(&e->to_detokenizer);
    if (e->num_threads_started > 0) pthread_join(e->detokenizer_thread, NULL);

    engine_populate_stop(&e->populate);
    engine_populate_stop(&e->populate_window);
    kv_publisher_destroy(e->publisher); /* it may wait for the scheduler's thread until that ends */
    engine_record_counters(e);
    scheduler_destroy(e->scheduler);
    recorder_destroy(e->recorder);
    answer_forms_fini(e);
    engine_tiers_fini(&e->tiers);
    engine_store_fini(e);
    engine_populate_fini(&e->populate);
    engine_populate_fini(&e->populate_window);
    message_ring_fini(&e->to_tokenizer);
    message_ring_fini(&e->to_scheduler);
    message_ring_fini(&e->to_detokenizer);
    rad_free(&e->env, e->jobs, e->max_jobs * sizeof *e->jobs);
    rad_free(&e->env, e->free_places, e->max_jobs * sizeof *e->free_places);
    rad_free(&e->env, e->end_ids, e->num_end_ids * sizeof *e->end_ids);
    engine_parts_destroy(&(engine_parts){
        .runner = e->runner, .draft_runner = e->draft_runner, .tok = e->tok, .chat = e->chat});
    engine_strfree(&e->env, e->draft_model_path);
    engine_strfree(&e->env, e->model_name);
    engine_strfree(&e->env, e->model_path);
    engine_strfree(&e->env, e->architecture);
    engine_strfree(&e->env, e->backend_name);
    pthread_mutex_destroy(&e->lock);
    pthread_mutex_destroy(&e->notes.lock);
    rad_env env = e->env;
    rad_free(&env, e, sizeof *e);
}

const engine_info *engine_get_info(const engine *e)
{
    return &e->info;
}

bool engine_await_populated(engine *e)
{
    bool ready = engine_populate_wait(&e->populate);
    return engine_populate_wait(&e->populate_window) && ready;
}

const tokenizer *engine_tokenizer(const engine *e)
{
    return e->tok;
}

const chat_template *engine_chat_template(const engine *e)
{
    return e->chat;
}

/* ---- requests ---- */

/* A place in the table, before anything is copied: an engine that is full says so cheaply. */
static rad_status take_place(engine *e, uint64_t *id, rad_error *err)
{
    rad_status status = RAD_OK;
    pthread_mutex_lock(&e->lock);
    if (e->num_queued >= e->max_queued || !e->num_free_places ||
        e->queued_bytes >= MAX_QUEUED_BYTES) {
        status =
            rad_fail(err, RAD_FULL, "the queue is full: %u requests are waiting", e->num_queued);
    } else {
        *id = ++e->serial * e->max_jobs + e->free_places[--e->num_free_places];
        e->num_queued++;
    }
    pthread_mutex_unlock(&e->lock);
    return status;
}

static void give_place_back(engine *e, uint64_t id)
{
    pthread_mutex_lock(&e->lock);
    e->free_places[e->num_free_places++] = (uint32_t)(id % e->max_jobs);
    e->num_queued--;
    pthread_mutex_unlock(&e->lock);
}

/* splitmix64 of the engine's seed and the request's number. */
static uint64_t draw_seed(const engine *e, uint64_t id)
{
    return mix64(e->params.random_seed + (id - 1) * 0x9e3779b97f4a7c15u);
}

rad_status engine_submit(engine *e, const engine_request *request, uint64_t *id, rad_error *err)
{
    uint64_t new_id = 0;
    rad_status status = take_place(e, &new_id, err);
    if (status != RAD_OK) return status;
    engine_job *job;
    status = job_create(e, request, &job, err);
    if (status != RAD_OK) {
        give_place_back(e, new_id);
        return status;
    }
    job->id = new_id;
    if (!request->has_seed) job->params.sampling.seed = draw_seed(e, new_id);
    if (id) *id = new_id; /* before the first event can come */

    pthread_mutex_lock(&e->lock);
    job->queued = true;
    e->counts.num_requests++;
    e->jobs[new_id % e->max_jobs] = job;
    pthread_mutex_unlock(&e->lock);
    message_ring_push(&e->to_tokenizer, &job, 1);
    return RAD_OK;
}

void engine_abort(engine *e, uint64_t id)
{
    pthread_mutex_lock(&e->lock);
    engine_job *job = e->jobs[id % e->max_jobs];
    if (job && job->id == id) {
        job->aborted = true;
        if (job->req_ready) scheduler_cancel(e->scheduler, &job->r, REQ_FINISH_ABORT);
    }
    pthread_mutex_unlock(&e->lock);
}

static bool leave_queue_locked(engine *e, engine_job *job)
{
    const bool was = job->queued;
    if (was) e->num_queued--;
    job->queued = false;
    return was;
}

bool engine_leave_queue(engine *e, engine_job *job)
{
    pthread_mutex_lock(&e->lock);
    const bool was = leave_queue_locked(e, job);
    pthread_mutex_unlock(&e->lock);
    return was;
}

void engine_forget_job(engine *e, engine_job *job)
{
    pthread_mutex_lock(&e->lock);
    leave_queue_locked(e, job);
    e->jobs[job->id % e->max_jobs] = NULL;
    e->free_places[e->num_free_places++] = (uint32_t)(job->id % e->max_jobs);
    pthread_mutex_unlock(&e->lock);
}
