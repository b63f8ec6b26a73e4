/* admin.c - health, what is served, figures, and emptying the cache.
 *
 * /server_info has figures from the scheduler thread between two steps, and a step can take a second;
 * the event loop must not wait for that. So a worker asks. /metrics and /get_load have what that
 * thread has told last, at once. */
#include "base/cpu.h"
#include "server/api_fields.h"
#include "server/cached_tokens.h"
#include "server/server_priv.h"

#include <event2/keyvalq_struct.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- answers at once ---- */

enum { MAX_BODY = 64 << 10 }; /* it is read between two events of others */

static void write_healthy(const call *c, json_writer *w)
{
    (void)c;
    jw_json(w, json_pack("{s:s}", "status", "ok"));
}

static void write_nothing(const call *c, call_item *item, json_writer *w)
{
    (void)c;
    (void)item;
    (void)w;
}

static void write_end(const call *c, json_writer *w)
{
    (void)c;
    (void)w;
}

static const call_ops health_ops = {.kind = API_GENERATE,
                                    .id_prefix = "health-",
                                    .write_head = write_healthy,
                                    .write_item = write_nothing,
                                    .write_tail = write_end};

void handle_health(server *s, struct evhttp_request *http)
{
    (void)s;
    reply_json(http, 200, json_pack("{s:s}", "status", "ok"));
}

/* One token is computed: the whole way works. */
void handle_health_generate(server *s, struct evhttp_request *http)
{
    static const char body[] = "{\"input_ids\":[0],\"extra_key\":\"health\","
                               "\"sampling_params\":{\"max_new_tokens\":1,\"temperature\":0}}";
    struct evbuffer *in = evhttp_request_get_input_buffer(http);
    evbuffer_drain(in, evbuffer_get_length(in));
    (void)evbuffer_add(in, body, strlen(body)); /* without memory: an empty body, and words */
    call_start(s, &health_ops, http);
}

json_t *read_small_body(struct evhttp_request *http, api_error *err)
{
    struct evbuffer *in = evhttp_request_get_input_buffer(http);
    size_t len = evbuffer_get_length(in);
    if (len <= MAX_BODY)
        return json_in_object(len ? (const char *)evbuffer_pullup(in, -1) : "", len, NULL, err);
    api_fail(err, 413, NULL, "the body is longer than %d bytes", MAX_BODY);
    return NULL;
}

void handle_abort_request(server *s, struct evhttp_request *http)
{
    const char *rid = NULL;
    bool all = false;
    api_error err;
    json_t *json = read_small_body(http, &err);
    bool fine = json && api_check_fields(json, IN_ABORT, &err) &&
                json_in_string(json, "rid", &rid, &err) &&
                json_in_bool(json, "abort_all", &all, &err);
    if (fine && !all && (!rid || !*rid))
        fine = api_fail(&err, 400, "rid", "give a 'rid', or 'abort_all': true");
    if (fine)
        reply_json(
            http, 200,
            json_pack("{s:I}", "aborted", (json_int_t)calls_abort(s, all ? NULL : rid, s->owner)));
    else
        reply_error(http, &err);
    json_decref(json);
}

void handle_model_info(server *s, struct evhttp_request *http)
{
    const engine_info *info = engine_get_info(s->engine);
    char calls[32], reasoning[32];
    reply_json(http, 200,
               json_pack("{s:s, s:s, s:b, s:s, s:s, s:s, s:s, s:s, s:I, s:I}", "model_path",
                         info->model_path, "tokenizer_path", info->model_path, "is_generation", 1,
                         "served_model_name", models_name(s, 0), "architecture", info->architecture,
                         "chat_template", info->chat_template, "tool_call_parser",
                         tool_format_name(s->output.calls, calls, sizeof calls), "reasoning_parser",
                         reasoning_format_name(s->output.reasoning, reasoning, sizeof reasoning),
                         "vocab_size", (json_int_t)info->vocab_size, "context_length",
                         (json_int_t)info->context_length));
}

/* ---- answers from the admin thread ---- */

static call_progress work_stats(call *c)
{
    engine_get_stats(c->server->engine, &c->stats);
    return CALL_DONE;
}

static void flush(server *s, uint32_t tiers)
{
    rad_error why = {0};
    flush_result *r = &s->flushed;
    r->begun_ns = server_now_ns(s);
    r->tiers = tiers;
    r->status = tiers ? engine_flush_tiers(s->engine, tiers, &why) : engine_flush_cache(s->engine);
    snprintf(r->words, sizeof r->words, "%.*s", (int)sizeof r->words - 1, why.text);
}

/* SGLang's `timeout`: asked again until nothing is running. A flush that began after this call
 * came is a flush for it too, so a thousand that wait are through with the first that succeeds. */
static call_progress work_flush(call *c)
{
    uint32_t tiers = c->work_arg ? *(const uint32_t *)c->work_arg : 0; /* 0: all of memory */
    const flush_result *r = &c->server->flushed;
    bool known = r->begun_ns > c->created_ns && r->tiers == tiers;
    if (!known || (c->waited && r->status == RAD_AGAIN)) flush(c->server, tiers);
    c->status = r->status;
    if (c->status != RAD_OK && tiers) api_fail(&c->error, 400, NULL, "%s", r->words);
    return c->status != RAD_AGAIN || call_is_overdue(c, server_now_ns(c->server)) ? CALL_DONE
                                                                                  : CALL_WAIT;
}

/* Without `cache_figures` none from which one request's cached tokens could be told. */
static json_t *figures_json(const server_figures *f, bool cache_figures)
{
    json_t *json = json_object();
    size_t count;
    const figure *rows = figures_table(&count);
    for (size_t i = 0; i < count; i++)
        if (rows[i].name && (cache_figures || !rows[i].tells))
            json_object_set_new(json, rows[i].name,
                                figure_is_real(&rows[i])
                                    ? json_real(figure_value(&rows[i], f))
                                    : json_integer((json_int_t)figure_count(&rows[i], f)));
    return json;
}

static server_figures figures_of(const server *s, const engine_stats *stats)
{
    server_figures f = {.engine = *stats,
                        .http_requests = s->num_http_requests,
                        .http_failed = s->num_failed_requests};
    figures_derive(&f);
    return f;
}

static void answer_server_info(call *c)
{
    const engine_info *i = engine_get_info(c->server->engine);
    server_figures f = figures_of(c->server, &c->stats);
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:[o]}",
        "model_path", i->model_path, "served_model_name", models_name(c->server, 0), "architecture",
        i->architecture, "chat_template", i->chat_template, "attention_backend", i->attn_backend,
        "dtype", i->dtype, "kv_cache_dtype", i->kv_cache_dtype, "host", c->server->params.host,
        "port", (json_int_t)c->server->port, "context_length", (json_int_t)i->context_length,
        "page_size", (json_int_t)i->page_size, "max_running_requests",
        (json_int_t)i->max_running_requests, "chunked_prefill_size",
        (json_int_t)i->chunked_prefill_size, "max_total_num_tokens",
        (json_int_t)i->max_total_tokens, "kv_bytes_per_token", (json_int_t)i->kv_bytes_per_token,
        "disable_radix_cache", !i->radix_cache, "internal_states",
        figures_json(&f, cached_figures(&c->server->params)));
    if (json && i->window_total_tokens) {
        json_object_set_new(json, "swa_max_total_num_tokens",
                            json_integer((json_int_t)i->window_total_tokens));
        json_object_set_new(json, "swa_kv_bytes_per_token",
                            json_integer((json_int_t)i->window_kv_bytes_per_token));
        json_object_set_new(json, "sliding_window_size", json_integer(i->sliding_window));
    }
    if (json && i->max_states) {
        json_object_set_new(json, "max_mamba_cache_size", json_integer((json_int_t)i->max_states));
        json_object_set_new(json, "mamba_state_bytes", json_integer((json_int_t)i->state_bytes));
        json_object_set_new(json, "mamba_track_interval", json_integer(i->state_interval));
    }
    if (json && i->draft_model_path[0]) {
        json_object_set_new(json, "speculative_draft_model_path", json_string(i->draft_model_path));
        json_object_set_new(json, "draft_kv_bytes_per_token",
                            json_integer((json_int_t)i->draft_bytes_per_token));
    }
    if (json) json_object_set_new(json, "max_sessions", json_integer(i->max_sessions));
    if (json)
        json_object_set_new(json, "enable_streaming_session", json_boolean(i->streaming_sessions));
    if (json) json_object_set_new(json, "threads", json_integer(i->num_threads));
    if (json) json_object_set_new(json, "device", json_string(i->device));
    if (json && i->device_bytes)
        json_object_set_new(json, "device_name", json_string(i->device_name));
    if (json && i->why_no_gpu[0])
        json_object_set_new(json, "why_no_gpu", json_string(i->why_no_gpu));
    if (json && i->guarantee) json_object_set_new(json, "guarantee", json_string(i->guarantee));
    if (json && cpu_cap()) json_object_set_new(json, "isa_cap", json_string(cpu_cap()));
    if (json && i->speculative_algorithm) {
        json_object_set_new(json, "speculative_algorithm", json_string(i->speculative_algorithm));
        json_object_set_new(json, "speculative_num_draft_tokens",
                            json_integer(i->speculative_num_draft_tokens));
    }
    if (json) json_object_set_new(json, "schedule_policy", json_string(i->schedule_policy));
    if (json && i->kv_events) json_object_set_new(json, "kv_events", json_kv_events(i));
    call_reply_json(c, 200, json);
}


static void answer_flush(call *c)
{
    if (c->status == RAD_OK) {
        call_reply_json(c, 200, json_pack("{s:s}", "status", "the cache is empty"));
        return;
    }
    api_error err;
    if (c->work_arg)
        err = c->error;
    else if (c->status == RAD_AGAIN)
        api_fail(&err, 400, NULL, "requests are running or waiting; the cache was not flushed");
    else
        api_fail(&err, 500, NULL, "the cache could not be flushed: %s", rad_status_name(c->status));
    call_reply_json(c, err.http_status, error_json(&err));
}

static const call_ops server_info_ops = {.answer = answer_server_info, .work = work_stats};
static const call_ops flush_ops = {.answer = answer_flush, .work = work_flush};

void handle_server_info(server *s, struct evhttp_request *http)
{
    call_start_work(s, &s->workers[WORKER_ADMIN], &server_info_ops, http, 0, NULL);
}

/* ---- figures that nobody waits for: routers and Prometheus ask again and again ---- */

/* A list, as of several ranks. */
void handle_get_load(server *s, struct evhttp_request *http)
{
    engine_stats stats;
    engine_peek_stats(s->engine, &stats);
    const scheduler_stats *f = &stats.sched;
    const json_int_t used = (json_int_t)(f->max_total_tokens - f->available_tokens);
    reply_json(http, 200,
               json_pack("[{s:i, s:I, s:I, s:I}]", "dp_rank", 0, "num_reqs",
                         (json_int_t)f->num_running + f->num_waiting, "num_waiting_reqs",
                         (json_int_t)f->num_waiting, "num_tokens", used));
}

void handle_metrics(server *s, struct evhttp_request *http)
{
    engine_stats stats;
    struct evbuffer *body = evbuffer_new();
    engine_peek_stats(s->engine, &stats);
    server_figures f = figures_of(s, &stats);
    process_figures_get(&f.process);
    if (s->otlp) otlp_get_stats(s->otlp, &f.otlp);
    for (int kind = 0; kind < LATENCY_KINDS; kind++)
        engine_get_latency(s->engine, (latency_kind)kind, &f.latency[kind]);
    if (body)
        prometheus_write(body, engine_get_info(s->engine), &f, &s->answers,
                         cached_figures(&s->params));
    turn_spend(s, UNITS_METRICS);
    reply_body(http, "text/plain; version=0.0.4; charset=utf-8", body);
}

/* "host,storage" as bits; NULL when nothing is named, or it is not known. */
static uint32_t *read_tiers(const char *text, bool *known)
{
    static const struct {
        const char *name;
        uint32_t bit;
    } names[] = {
        {"device", RAD_TIER_DEVICE}, {"host", RAD_TIER_HOST}, {"storage", RAD_TIER_STORAGE}};
    uint32_t bits = 0, *out;
    while (text && *text) {
        size_t len = strcspn(text, ","), i = 0;
        while (i < RAD_COUNT(names) &&
               (strlen(names[i].name) != len || strncmp(names[i].name, text, len) != 0))
            i++;
        if (i == RAD_COUNT(names)) *known = false;
        if (!*known) return NULL;
        bits |= names[i].bit;
        text += len + (text[len] == ',');
    }
    if (!bits || !(out = malloc(sizeof *out))) return NULL;
    *out = bits;
    return out;
}

/* A misspelt `tiers` would empty others than it names. */
static bool check_flush_query(struct evkeyvalq *query, api_error *err)
{
    for (const struct evkeyval *at = query->tqh_first; at; at = at->next.tqe_next)
        if (strcmp(at->key, "timeout") != 0 && strcmp(at->key, "tiers") != 0)
            return api_refuse_field(at->key, "the query: timeout, tiers", err);
    return true;
}

/* Seconds; NULL: none. What is below zero would have waited for nothing, without a word. */
static bool read_timeout(const char *text, double *seconds, api_error *err)
{
    char *end = NULL;
    if (!text) return true;
    *seconds = strtod(text, &end);
    if (end > text && !*end && *seconds >= 0) return true; /* NaN is not */
    return api_fail(err, 400, "timeout", "timeout is a number of seconds, 0 or more: '%.40s'",
                    text);
}

void handle_flush_cache(server *s, struct evhttp_request *http)
{
    struct evkeyvalq query;
    const char *text = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(http));
    double timeout_s = 0;
    uint32_t *tiers = NULL;
    if (text && *text) {
        api_error err;
        if (evhttp_parse_query_str(text, &query) != 0) { /* `?tiers` would empty all of them */
            api_fail(&err, 400, NULL, "the query is not name=value&...: timeout, tiers");
            reply_error(http, &err);
            return;
        }
        bool known = true;
        tiers = read_tiers(evhttp_find_header(&query, "tiers"), &known);
        if (!known) api_fail(&err, 400, "tiers", "tiers are device, host and storage, with commas");
        known = known && check_flush_query(&query, &err) &&
                read_timeout(evhttp_find_header(&query, "timeout"), &timeout_s, &err);
        evhttp_clear_headers(&query);
        if (!known) {
            free(tiers);
            reply_error(http, &err);
            return;
        }
    }
    uint64_t timeout_ms = (uint64_t)(fmin(timeout_s, 60) * 1000);
    if (!tiers || !(*tiers & RAD_TIER_STORAGE)) {
        call_start_work(s, &s->workers[WORKER_WAITER], &flush_ops, http, timeout_ms, tiers);
        return;
    }
    flush_storage(s, http, *tiers, timeout_ms);
    free(tiers);
}
