/* otlp.c - see the header.
 *
 * The lock guards the ring alone, while a span is copied into it or out of it: the event loop never
 * waits for the network. The thread has an event loop and a connection of its own. */
#include "server/otlp.h"

#include "base/compute_pool.h"
#include "base/timed_wait.h"
#include "server/json_write.h"

#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <radish/radish.h>
#include <stdio.h>

enum { BATCH = 256, EVERY_S = 1, TIMEOUT_S = 3, LAST_TIMEOUT_S = 2 };

struct otlp {
    rad_env env;
    char host[256], host_port[280], path[512], model[256];
    uint16_t port;
    pthread_t thread;
    bool started;

    pthread_mutex_t lock;
    pthread_cond_t wake;
    otlp_span *ring;
    uint32_t first, count; /* of them */
    bool stop;
    otlp_stats stats;

    /* The thread's: */
    struct event_base *base;
    struct evhttp_connection *connection;
    otlp_span *batch;
    bool failing; /* the last batch was not taken: told once */
    int answer;   /* the status of the answer that came; 0: none */
};

/* ---- one span as JSON ---- */

static uint64_t unix_offset(const rad_env *env)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec - env->now_ns(env->user);
}

static void write_word(json_writer *w, const char *name, const char *value)
{
    jw_name(w, name);
    jw_text(w, value, strlen(value));
}

static void open_attribute(json_writer *w, const char *key)
{
    jw_open(w, '{');
    write_word(w, "key", key);
    jw_name(w, "value");
    jw_open(w, '{');
}

static void close_attribute(json_writer *w)
{
    jw_close(w, '}');
    jw_close(w, '}');
}

static void text_attribute(json_writer *w, const char *key, const char *value)
{
    open_attribute(w, key);
    write_word(w, "stringValue", value);
    close_attribute(w);
}

/* 64 bits are text in protobuf's JSON. */
static void int_attribute(json_writer *w, const char *key, uint64_t value)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    open_attribute(w, key);
    write_word(w, "intValue", digits);
    close_attribute(w);
}

static void write_time(json_writer *w, const char *name, uint64_t unix_ns)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)unix_ns);
    write_word(w, name, digits);
}

typedef struct interval {
    uint64_t begin_ns, end_ns;
} interval;

/* Up to its attributes. Kinds: 1 internal, 2 server. */
static void open_span(json_writer *w, const trace_context *t, const char *id, const char *parent,
                      const char *name, int kind, interval at)
{
    jw_open(w, '{');
    write_word(w, "traceId", t->trace_id);
    write_word(w, "spanId", id);
    if (*parent) write_word(w, "parentSpanId", parent);
    write_word(w, "name", name);
    jw_name(w, "kind");
    jw_int(w, kind);
    write_time(w, "startTimeUnixNano", at.begin_ns);
    write_time(w, "endTimeUnixNano", at.end_ns);
}

static void write_part(json_writer *w, const trace_context *t, const char *name, interval at)
{
    char id[SPAN_ID_DIGITS + 1];
    trace_random(id, SPAN_ID_DIGITS);
    open_span(w, t, id, t->span_id, name, 1, at);
    jw_close(w, '}');
}

static void write_attributes(json_writer *w, const otlp *o, const access_record *a)
{
    const char *path = strchr(a->what, ' ');
    char method[16];
    snprintf(method, sizeof method, "%.*s", (int)strcspn(a->what, " "), a->what);
    jw_name(w, "attributes");
    jw_open(w, '[');
    text_attribute(w, "http.request.method", method);
    text_attribute(w, "url.path", path ? path + 1 : "");
    if (a->status) int_attribute(w, "http.response.status_code", (uint64_t)a->status);
    text_attribute(w, "client.address", a->peer);
    text_attribute(w, "radish.request_id", a->id);
    if (a->has_tokens) {
        text_attribute(w, "gen_ai.response.model", o->model);
        int_attribute(w, "gen_ai.usage.input_tokens", a->prompt_tokens);
        int_attribute(w, "gen_ai.usage.cache_read.input_tokens", a->cached_tokens);
        int_attribute(w, "gen_ai.usage.output_tokens", a->output_tokens);
    }
    jw_close(w, ']');
}

static void write_request(json_writer *w, const otlp *o, const otlp_span *s, uint64_t offset)
{
    const access_record *a = &s->access;
    const trace_context *t = &a->trace;
    const uint64_t begin = a->begun_ns + offset, end = s->end_ns + offset;
    open_span(w, t, t->span_id, t->parent_id, a->what, 2, (interval){begin, end});
    write_attributes(w, o, a);
    if (a->failed || !a->status || a->status >= 500) { /* what clients did wrong is none of ours */
        jw_name(w, "status");
        jw_open(w, '{');
        jw_name(w, "code");
        jw_int(w, 2);
        jw_close(w, '}');
    }
    jw_close(w, '}');
    if (!a->admitted_ns) return;
    const uint64_t admitted = a->admitted_ns + offset, first = a->first_ns + offset;
    write_part(w, t, "queue", (interval){begin, admitted});
    if (!a->first_ns || first < admitted) return;
    write_part(w, t, "prefill", (interval){admitted, first});
    write_part(w, t, "decode", (interval){first, end});
}

static bool write_batch(otlp *o, uint32_t count, struct evbuffer *out)
{
    json_writer w;
    const uint64_t offset = unix_offset(&o->env);
    json_writer_begin(&w, out);
    jw_open(&w, '{');
    jw_name(&w, "resourceSpans"), jw_open(&w, '['), jw_open(&w, '{');
    jw_name(&w, "resource"), jw_open(&w, '{'), jw_name(&w, "attributes"), jw_open(&w, '[');
    text_attribute(&w, "service.name", "radish");
    text_attribute(&w, "service.version", rad_version_string());
    jw_close(&w, ']'), jw_close(&w, '}');
    jw_name(&w, "scopeSpans"), jw_open(&w, '['), jw_open(&w, '{');
    jw_name(&w, "scope"), jw_open(&w, '{');
    write_word(&w, "name", "radish");
    jw_close(&w, '}');
    jw_name(&w, "spans"), jw_open(&w, '[');
    for (uint32_t i = 0; i < count; i++)
        write_request(&w, o, &o->batch[i], offset);
    jw_close(&w, ']'), jw_close(&w, '}'), jw_close(&w, ']');
    jw_close(&w, '}'), jw_close(&w, ']'), jw_close(&w, '}');
    return json_writer_end(&w);
}

/* ---- the thread ---- */

static void on_answer(struct evhttp_request *http, void *arg)
{
    otlp *o = arg;
    o->answer = http ? evhttp_request_get_response_code(http) : 0;
    event_base_loopbreak(o->base);
}

/* The collector has them. A connection that broke is made anew for the next. */
static bool send_batch(otlp *o, uint32_t count, int timeout_s)
{
    struct evhttp_request *http = evhttp_request_new(on_answer, o);
    if (!http) return false;
    if (!o->connection) o->connection = evhttp_connection_base_new(o->base, NULL, o->host, o->port);
    if (!o->connection || !write_batch(o, count, evhttp_request_get_output_buffer(http))) {
        evhttp_request_free(http);
        return false;
    }
    evhttp_connection_set_timeout(o->connection, timeout_s);
    struct evkeyvalq *headers = evhttp_request_get_output_headers(http);
    evhttp_add_header(headers, "Host", o->host_port);
    evhttp_add_header(headers, "Content-Type", "application/json");
    o->answer = 0;
    if (evhttp_make_request(o->connection, http, EVHTTP_REQ_POST, o->path) == 0)
        event_base_dispatch(o->base);
    const bool taken = o->answer >= 200 && o->answer < 300;
    if (!o->answer) {
        evhttp_connection_free(o->connection);
        o->connection = NULL;
    }
    return taken;
}

static void tell(otlp *o, bool taken)
{
    if (taken == !o->failing) return;
    o->failing = !taken;
    if (taken)
        rad_log(&o->env, RAD_LOG_INFO, "otlp: %s takes spans again", o->host_port);
    else if (o->answer)
        rad_log(&o->env, RAD_LOG_WARN, "otlp: %s answers spans with %d; they are dropped",
                o->host_port, o->answer);
    else
        rad_log(&o->env, RAD_LOG_WARN, "otlp: %s cannot be reached; spans are dropped",
                o->host_port);
}

static void *otlp_loop(void *arg)
{
    otlp *o = arg;
    pthread_mutex_lock(&o->lock);
    while (!o->stop || o->count) {
        const uint64_t at_ns = monotonic_in((uint64_t)EVERY_S * 1000000000);
        while (!o->stop && o->count < BATCH && wait_until(&o->wake, &o->lock, at_ns))
            ;
        const uint32_t count = RAD_MIN(o->count, (uint32_t)BATCH);
        const bool stop = o->stop;
        for (uint32_t i = 0; i < count; i++)
            o->batch[i] = o->ring[(o->first + i) % OTLP_QUEUE];
        o->first = (o->first + count) % OTLP_QUEUE;
        o->count -= count;
        if (!count) continue;
        pthread_mutex_unlock(&o->lock);
        const bool taken = send_batch(o, count, stop ? LAST_TIMEOUT_S : TIMEOUT_S);
        tell(o, taken);
        pthread_mutex_lock(&o->lock);
        *(taken ? &o->stats.sent : &o->stats.failed) += count;
        if (stop && !taken) break;
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* ---- the event loop's thread ---- */

void otlp_push(otlp *o, const otlp_span *span)
{
    pthread_mutex_lock(&o->lock);
    if (o->count == OTLP_QUEUE)
        o->stats.dropped++;
    else
        o->ring[(o->first + o->count++) % OTLP_QUEUE] = *span;
    if (o->count == BATCH) pthread_cond_signal(&o->wake);
    pthread_mutex_unlock(&o->lock);
}

void otlp_get_stats(otlp *o, otlp_stats *stats)
{
    pthread_mutex_lock(&o->lock);
    *stats = o->stats;
    pthread_mutex_unlock(&o->lock);
}

/* ---- life ---- */

static rad_status parse(otlp *o, const char *endpoint, rad_error *err)
{
    static const char traces[] = "/v1/traces";
    struct evhttp_uri *uri = evhttp_uri_parse(endpoint);
    const char *scheme = uri ? evhttp_uri_get_scheme(uri) : NULL;
    const char *host = uri ? evhttp_uri_get_host(uri) : NULL,
               *path = uri ? evhttp_uri_get_path(uri) : "";
    const int port = uri ? evhttp_uri_get_port(uri) : -1;
    rad_status status = RAD_OK;
    if (!scheme || strcmp(scheme, "http") != 0 || !host || !*host ||
        strlen(host) >= sizeof o->host || strlen(path) > 400 || port == 0 ||
        evhttp_uri_get_userinfo(uri) || evhttp_uri_get_query(uri)) /* nobody would send them */
        status = rad_fail(err, RAD_E_INVAL,
                          "otlp-endpoint is like http://127.0.0.1:4318, without TLS, user and "
                          "query, not '%.80s'",
                          endpoint);
    if (status == RAD_OK) {
        size_t len = strlen(path);
        while (len && path[len - 1] == '/')
            len--;
        const size_t end = sizeof traces - 1;
        const bool whole = len >= end && strncmp(path + len - end, traces, end) == 0;
        const size_t host_len = strlen(host); /* an address of IPv6 stands in brackets in a URL */
        const bool brackets = host[0] == '[' && host[host_len - 1] == ']';
        o->port = (uint16_t)(port < 0 ? 4318 : port);
        snprintf(o->host, sizeof o->host, "%.*s", (int)host_len - 2 * brackets, host + brackets);
        snprintf(o->host_port, sizeof o->host_port, "%s:%u", host, o->port);
        snprintf(o->path, sizeof o->path, "%.*s%s", (int)len, path, whole ? "" : traces);
    }
    if (uri) evhttp_uri_free(uri);
    return status;
}

rad_status otlp_check(const char *endpoint, rad_error *err)
{
    otlp o;
    return parse(&o, endpoint, err);
}

rad_status otlp_create(const rad_env *env, const char *endpoint, const char *model, otlp **out,
                       rad_error *err)
{
    *out = NULL;
    rad_env full = rad_env_or_default(env);
    otlp *o = rad_alloc(&full, sizeof *o);
    if (!o) return rad_fail(err, RAD_E_NOMEM, "otlp: no memory");
    o->env = full;
    pthread_mutex_init(&o->lock, NULL);
    cond_init_monotonic(&o->wake);
    snprintf(o->model, sizeof o->model, "%s", model);
    rad_status status = parse(o, endpoint, err);
    o->ring = rad_alloc_sparse(&full, OTLP_QUEUE * sizeof *o->ring);
    o->batch = rad_alloc(&full, BATCH * sizeof *o->batch);
    o->base = event_base_new();
    if (status == RAD_OK && (!o->ring || !o->batch || !o->base))
        status = rad_fail(err, RAD_E_NOMEM, "otlp: no memory");
    if (status == RAD_OK && compute_thread_create(&o->thread, otlp_loop, o) != 0)
        status = rad_fail(err, RAD_E_NOMEM, "otlp: no more threads");
    if (status != RAD_OK) {
        otlp_destroy(o);
        return status;
    }
    o->started = true;
    *out = o;
    return RAD_OK;
}

void otlp_destroy(otlp *o)
{
    if (!o) return;
    if (o->started) {
        pthread_mutex_lock(&o->lock);
        o->stop = true;
        pthread_cond_signal(&o->wake);
        pthread_mutex_unlock(&o->lock);
        pthread_join(o->thread, NULL);
    }
    if (o->connection) evhttp_connection_free(o->connection);
    if (o->base) event_base_free(o->base);
    if (o->ring) rad_free_sparse(&o->env, o->ring, OTLP_QUEUE * sizeof *o->ring);
    rad_free(&o->env, o->batch, BATCH * sizeof *o->batch);
    pthread_cond_destroy(&o->wake);
    pthread_mutex_destroy(&o->lock);
    rad_env env = o->env;
    rad_free(&env, o, sizeof *o);
}
