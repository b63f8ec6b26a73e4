/* call.c - events in, chunks or one answer out.
 *
 * Three things can end first: the engine's requests, the client, or the server. So the call
 * counts what the engine still owes (num_open) and knows whether evhttp still waits (http);
 * call_release frees it when both are over. A client that leaves aborts its requests, and
 * what they still say is merged and thrown away.
 *
 * The headers of a stream go out with its first event, not before: what turns out to be
 * wrong while tokenizing then is a plain 400 in a stream too. */
#include "server/server_priv.h"

#include <event2/bufferevent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

enum {
    MAX_UNSENT = 64 << 10,   /* bytes in a client's buffer past which we hold back */
    MAX_PIPELINED = 64 << 10 /* bytes a client may send ahead of its answer */
};

bool byte_buf_append(byte_buf *b, const void *bytes, size_t len)
{
    if (!len) return true;
    if (len > b->cap - b->len) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap - b->len < len)
            cap *= 2;
        char *data = realloc(b->data, cap);
        if (!data) return false;
        b->data = data;
        b->cap = cap;
    }
    memcpy(b->data + b->len, bytes, len);
    b->len += len;
    return true;
}

static void byte_buf_fini(byte_buf *b)
{
    free(b->data);
    *b = (byte_buf){0};
}

/* ---- the connection under a call ---- */

static void abort_items(call *c)
{
    for (uint32_t i = 0; i < c->num_items; i++)
        if (c->items[i].submitted && !c->items[i].finished)
            engine_abort(c->server->engine, c->items[i].id);
}

static void log_call(const call *c)
{
    uint64_t prompt = 0, cached = 0, completion = 0;
    for (uint32_t i = 0; i < c->num_items; i++) {
        prompt += c->items[i].prompt_tokens;
        cached += c->items[i].cached_tokens;
        completion += c->items[i].completion_tokens;
    }
    char id[sizeof c->id]; /* may be the client's own words: one line in the log all the same */
    for (size_t i = 0; i < sizeof id; i++)
        id[i] = c->id[i] && ((unsigned char)c->id[i] < ' ' || c->id[i] == 0x7f) ? '?' : c->id[i];
    rad_log(&c->server->env, RAD_LOG_INFO, "%s: %llu prompt tokens, %llu cached, %llu out, %.3f s",
            id, (unsigned long long)prompt, (unsigned long long)cached,
            (unsigned long long)completion,
            (double)(server_now_ns(c->server) - c->created_ns) * 1e-9);
}

/* Frees a call that neither evhttp nor the engine waits for any more. */
static void release(call *c)
{
    if (c->http || c->num_open) return;
    if (c->id[0]) log_call(c); /* not for admin calls */
    server *s = c->server;
    if (c->prev)
        c->prev->next = c->next;
    else
        s->calls = c->next;
    if (c->next) c->next->prev = c->prev;
    s->num_calls--;
    for (uint32_t i = 0; i < c->num_items; i++) {
        call_item *item = &c->items[i];
        byte_buf_fini(&item->new_text);
        byte_buf_fini(&item->new_ids);
        byte_buf_fini(&item->new_logprobs);
        byte_buf_fini(&item->logprobs);
        byte_buf_fini(&item->text);
        byte_buf_fini(&item->ids);
        free(item->matched_stop);
    }
    api_request_fini(&c->request);
    if (c->parsed) api_request_fini(c->parsed);
    free(c->parsed);
    if (c->body) evbuffer_free(c->body);
    free(c->work_arg);
    free(c->items);
    free(c);
}

static void on_close(struct evhttp_connection *connection, void *arg)
{
    (void)connection;
    call *c = arg;
    struct evhttp_request *http = c->http;
    c->http = NULL;
    /* evhttp has cut the request loose when it still waits for us; else it frees it */
    if (!evhttp_request_get_connection(http)) evhttp_request_free(http);
    abort_items(c);
    release(c);
}

/* The client left between our answer and its last byte. */
static void on_close_late(struct evhttp_connection *connection, void *arg)
{
    (void)connection;
    server *s = arg;
    s->num_unsent--;
    server_leave_when_done(s);
}

/* The answer is out and the connection goes back to reading requests. */
static void on_complete(struct evhttp_request *http, void *arg)
{
    server *s = arg;
    struct evhttp_connection *connection = evhttp_request_get_connection(http);
    struct bufferevent *bev = evhttp_connection_get_bufferevent(connection);
    bufferevent_setwatermark(bev, EV_READ, 0, 0);
    connection_set_closecb(s, connection, NULL, NULL);
    connection_done(s, connection);
    s->num_unsent--;
    server_leave_when_done(s);
}

/* evhttp stops reading while a request is answered, and so would not see the client leave.
 * We read on, without a callback (evhttp's must not run now) and only so far. */
static void watch_connection(call *c)
{
    struct evhttp_connection *connection = evhttp_request_get_connection(c->http);
    struct bufferevent *bev = evhttp_connection_get_bufferevent(connection);
    bufferevent_data_cb write_cb;
    bufferevent_event_cb event_cb;
    void *arg;
    int on = 1;

    setsockopt(bufferevent_getfd(bev), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    bufferevent_getcb(bev, NULL, &write_cb, &event_cb, &arg);
    bufferevent_setcb(bev, NULL, write_cb, event_cb, arg);
    bufferevent_setwatermark(bev, EV_READ, 0, MAX_PIPELINED);
    connection_set_closecb(c->server, connection, on_close, c);
    evhttp_request_set_on_complete_cb(c->http, on_complete, c->server);
    bufferevent_enable(bev, EV_READ);
}

/* evhttp may free the request, even the connection, in the reply that follows. Until the
 * last byte is out the server counts it, because a stop must not cut it off. */
static struct evhttp_request *let_go(call *c)
{
    struct evhttp_request *http = c->http;
    connection_set_closecb(c->server, evhttp_request_get_connection(http), on_close_late,
                           c->server);
    c->server->num_unsent++;
    c->http = NULL;
    return http;
}

void call_reply_json(call *c, int http_status, json_t *json)
{
    reply_json(let_go(c), http_status, json);
}

void call_reply_text(call *c, const char *content_type, struct evbuffer *body)
{
    struct evhttp_request *http = let_go(c);
    evhttp_add_header(evhttp_request_get_output_headers(http), "Content-Type", content_type);
    reply_bytes(http, 200, body);
}

static size_t unsent(const call *c)
{
    struct bufferevent *bev =
        evhttp_connection_get_bufferevent(evhttp_request_get_connection(c->http));
    return evbuffer_get_length(bufferevent_get_output(bev));
}

/* ---- streams ---- */

static void start_stream(call *c)
{
    if (c->started) return;
    c->started = true;
    struct evkeyvalq *headers = evhttp_request_get_output_headers(c->http);
    evhttp_add_header(headers, "Content-Type", "text/event-stream; charset=utf-8");
    evhttp_add_header(headers, "Cache-Control", "no-cache");
    evhttp_add_header(headers, "X-Accel-Buffering", "no");
    evhttp_send_reply_start(c->http, 200, "OK");
}

static void progress(call *c, call_item *item);

/* The client has taken everything: say what gathered meanwhile. */
static void on_drained(struct evhttp_connection *connection, void *arg)
{
    (void)connection;
    call *c = arg;
    if (!c->stalled || !c->http) return;
    c->stalled = false;
    progress(c, NULL);
    release(c);
}

static void send_bytes(call *c, struct evbuffer *bytes)
{
    start_stream(c);
    evhttp_send_reply_chunk_with_cb(c->http, bytes, on_drained, c);
    c->last_sent_ns = server_now_ns(c->server);
}

/* Takes json; NULL sends nothing. */
static void send_event(call *c, json_t *json)
{
    if (!json) return;
    struct evbuffer *bytes = evbuffer_new();
    if (bytes && evbuffer_add(bytes, "data: ", 6) == 0 && json_to_buffer(json, bytes) &&
        evbuffer_add(bytes, "\n\n", 2) == 0)
        send_bytes(c, bytes);
    if (bytes) evbuffer_free(bytes);
    json_decref(json);
}

static void end_stream(call *c)
{
    if (c->ops->usage_chunk) send_event(c, c->ops->usage_chunk(c));
    struct evbuffer *bytes = evbuffer_new();
    if (bytes && evbuffer_add(bytes, "data: [DONE]\n\n", 14) == 0) send_bytes(c, bytes);
    if (bytes) evbuffer_free(bytes);
    start_stream(c); /* without memory for a single chunk there are no headers yet */
    evhttp_send_reply_end(let_go(c));
}

/* ---- failures ---- */

/* What the engine refuses is the prompt (its length, ids, roles): what else a client may get
 * wrong was found in its JSON, but for the length of the two namespace keys together. */
static const char *refused_param(const call_item *item)
{
    const engine_request *r = &item->call->request.items[item->index];
    if (strncmp(item->message, "extra_key ", 10) == 0) return "extra_key";
    if (strncmp(item->message, "logit_bias", 10) == 0) return "logit_bias";
    if (r->messages) return "messages";
    if (item->call->request.kind != API_GENERATE) return "prompt";
    return r->ids ? "input_ids" : "text";
}

static void error_of(const call_item *item, api_error *err)
{
    const char *param = NULL;
    int http_status = 500;
    switch (item->status) {
    case RAD_E_INVAL:
    case RAD_E_LIMIT:
        http_status = 400;
        param = refused_param(item);
        break;
    case RAD_E_UNSUPPORTED:
    case RAD_E_FORMAT: http_status = 400; break;
    case RAD_FULL: http_status = 429; break;
    case RAD_AGAIN:
    case RAD_E_NOMEM: http_status = 503; break;
    default: break;
    }
    const char *words = item->message[0] ? item->message : rad_status_name(item->status);
    uint32_t n = RAD_MAX(item->call->request.n, 1u);
    if (item->call->num_items > n)
        api_fail(err, http_status, param, "prompt %u: %s", item->index / n, words);
    else
        api_fail(err, http_status, param, "%s", words);
}

/* One prompt failed: the whole call does, in words, and its other prompts stop. */
static void fail_call(call *c, const call_item *item)
{
    api_error err;
    error_of(item, &err);
    if (c->started) {
        send_event(c, error_json(&err));
        evhttp_send_reply_end(let_go(c));
    } else {
        reply_error(let_go(c), &err);
    }
    abort_items(c);
}

/* ---- events ---- */

static void ready_push(server *s, call_item *item)
{
    if (item->queued) return;
    item->queued = true;
    item->next = NULL;
    if (s->ready)
        s->ready_last->next = item;
    else
        s->ready = item;
    s->ready_last = item;
    if (s->ready == item) server_wake(s); /* else somebody has */
}

static bool append_logprobs(call_item *item, const engine_event *event)
{
    if (!event->logprobs) return true;
    size_t each = 1 + (size_t)item->call->request.num_top_logprobs;
    return byte_buf_append(&item->new_logprobs, event->logprobs,
                           event->num_ids * each * sizeof *event->logprobs);
}

static void on_event(void *user, const engine_event *event)
{
    call_item *item = user;
    server *s = item->call->server;
    pthread_mutex_lock(&s->lock);
    if (!byte_buf_append(&item->new_text, event->text, event->text_len) ||
        !byte_buf_append(&item->new_ids, event->ids, event->num_ids * sizeof *event->ids) ||
        !append_logprobs(item, event))
        item->lost = true;
    item->new_prompt_tokens = event->prompt_tokens;
    item->new_completion_tokens = event->completion_tokens;
    item->new_cached_tokens = event->cached_tokens;
    item->new_loaded_tokens = event->loaded_tokens;
    item->new_fetched_tokens = event->fetched_tokens;
    if (event->why) item->new_why = *event->why;
    if (event->finish != ENGINE_FINISH_NONE) {
        item->status = event->status;
        item->matched_token = event->matched_token;
        item->e2e_latency_s = event->e2e_latency_s;
        if (event->message) snprintf(item->message, sizeof item->message, "%s", event->message);
        if (event->matched_stop) item->matched_stop = strdup(event->matched_stop);
        item->new_finish = event->finish;
    }
    ready_push(s, item);
    pthread_mutex_unlock(&s->lock);
}

/* What the inbox holds goes to the item; under the lock. */
static void merge(call_item *item)
{
    if (!byte_buf_append(&item->text, item->new_text.data, item->new_text.len) ||
        !byte_buf_append(&item->ids, item->new_ids.data, item->new_ids.len) ||
        !byte_buf_append(&item->logprobs, item->new_logprobs.data, item->new_logprobs.len))
        item->lost = true;
    item->new_text.len = item->new_ids.len = item->new_logprobs.len = 0;
    item->prompt_tokens = item->new_prompt_tokens;
    item->completion_tokens = item->new_completion_tokens;
    item->cached_tokens = item->new_cached_tokens;
    item->loaded_tokens = item->new_loaded_tokens;
    item->fetched_tokens = item->new_fetched_tokens;
    item->why = item->new_why;
    if (item->lost && item->new_finish != ENGINE_FINISH_ERROR) {
        item->status = RAD_E_NOMEM;
        snprintf(item->message, sizeof item->message, "no memory for the answer");
    }
    if (item->new_finish != ENGINE_FINISH_NONE) {
        item->finish = item->lost ? ENGINE_FINISH_ERROR : item->new_finish;
        item->finished = true;
    }
}

static void say(call *c, call_item *item)
{
    if (item->said_finish || !item->submitted) return;
    json_t *json = c->ops->chunk(c, item);
    item->text_sent = item->text.len;
    item->ids_sent = item->ids.len;
    if (item->finished) item->said_finish = true;
    send_event(c, json);
}

/* `item` has news, or NULL: any may have (an error never waits for a slow reader). */
static void progress(call *c, call_item *item)
{
    if (!c->http) return;
    if (item && item->finish == ENGINE_FINISH_ERROR) {
        fail_call(c, item);
        return;
    }
    if (!c->request.stream) {
        if (!c->num_open) c->ops->answer(c);
        return;
    }
    if (unsent(c) > MAX_UNSENT && !c->server->aborted) { /* else nobody waits for it */
        c->stalled = true;
        return;
    }
    if (item) say(c, item);
    for (uint32_t i = 0; !item && i < c->num_items; i++)
        say(c, &c->items[i]);
    if (!c->num_open) end_stream(c);
}

void calls_drain(server *s)
{
    pthread_mutex_lock(&s->lock);
    call_item *item = s->ready;
    s->ready = s->ready_last = NULL;
    pthread_mutex_unlock(&s->lock);
    while (item) {
        call *c = item->call;
        pthread_mutex_lock(&s->lock);
        call_item *next = item->next;
        item->queued = false;
        merge(item);
        pthread_mutex_unlock(&s->lock);
        if (item->finished)
            c->num_open--;
        else if (item->lost)
            engine_abort(s->engine, item->id);
        progress(c, item);
        release(c);
        item = next;
    }
}

/* ---- starting ---- */

static call *create(server *s, const call_ops *ops, struct evhttp_request *http, uint32_t num_items)
{
    call *c = calloc(1, sizeof *c);
    call_item *items = calloc(num_items, sizeof *items);
    if (!c || !items) {
        free(c);
        free(items);
        api_error err;
        api_fail(&err, 503, NULL, "no memory for this request");
        reply_error(http, &err);
        return NULL;
    }
    c->server = s;
    c->ops = ops;
    c->http = http;
    c->items = items;
    c->num_items = num_items;
    c->created_unix = (uint64_t)time(NULL);
    c->created_ns = c->last_sent_ns = server_now_ns(s);
    for (uint32_t i = 0; i < num_items; i++) {
        items[i].call = c;
        items[i].index = i;
        items[i].matched_token = -1;
    }
    c->next = s->calls;
    if (s->calls) s->calls->prev = c;
    s->calls = c;
    s->num_calls++;
    watch_connection(c);
    return c;
}

void call_start(server *s, const call_ops *ops, struct evhttp_request *http, api_request *request)
{
    call *c = create(s, ops, http, request->num_items);
    if (!c) {
        api_request_fini(request);
        return;
    }
    c->request = *request;
    *request = (api_request){0};
    if (c->request.rid)
        snprintf(c->id, sizeof c->id, "%s", c->request.rid);
    else
        snprintf(c->id, sizeof c->id, "%s%016llx", ops->id_prefix,
                 (unsigned long long)((s->next_id += 0x9e3779b97f4a7c15u)));

    for (uint32_t i = 0; i < c->num_items; i++) {
        call_item *item = &c->items[i];
        engine_request *r = &c->request.items[i];
        rad_error err = {0};
        r->on_event = on_event;
        r->user = item;
        /* its first event may come before submit returns */
        rad_status status = engine_submit(s->engine, r, &item->id, &err);
        if (status != RAD_OK) {
            item->status = status;
            snprintf(item->message, sizeof item->message, "%s",
                     status == RAD_FULL ? "the queue is full; try again soon" : err.text);
            fail_call(c, item);
            break;
        }
        item->submitted = true;
        c->num_open++;
    }
    if (s->aborted) abort_items(c); /* a large body that was parsed meanwhile */
    release(c);
}

void call_start_work(server *s, worker *w, const call_ops *ops, struct evhttp_request *http,
                     uint64_t timeout_ms, void *work_arg)
{
    call *c = create(s, ops, http, 1);
    if (!c) {
        free(work_arg);
        return;
    }
    c->work_arg = work_arg;
    c->timeout_ms = timeout_ms;
    c->num_open = 1;
    worker_push(w, &c->items[0]);
}

void call_work_done(call *c)
{
    server *s = c->server;
    pthread_mutex_lock(&s->lock);
    c->items[0].new_finish = ENGINE_FINISH_STOP;
    ready_push(s, &c->items[0]);
    pthread_mutex_unlock(&s->lock);
}

/* ---- large bodies ---- */

static bool work_parse(call *c)
{
    size_t len = evbuffer_get_length(c->body);
    const char *bytes = (const char *)evbuffer_pullup(c->body, -1);
    api_request *parsed = calloc(1, sizeof *parsed);
    if (!bytes || !parsed)
        api_fail(&c->error, 503, NULL, "no memory for this request");
    else if (api_request_parse(c->kind, bytes, len, parsed, &c->error))
        c->parsed = parsed;
    if (!c->parsed) free(parsed);
    evbuffer_drain(c->body, len);
    return true;
}

/* The HTTP request goes on to a call of its own. */
static void answer_parse(call *c)
{
    if (!c->parsed) {
        call_reply_json(c, c->error.http_status, error_json(&c->error));
        return;
    }
    struct evhttp_request *http = c->http;
    /* The next call may not come to be; this one must not hear of the connection again. */
    connection_set_closecb(c->server, evhttp_request_get_connection(http), NULL, NULL);
    c->http = NULL;
    call_start(c->server, c->then, http, c->parsed); /* watches the connection anew */
}

static const call_ops parse_ops = {.answer = answer_parse, .work = work_parse};

void call_start_large(server *s, const call_ops *ops, api_kind kind, struct evhttp_request *http)
{
    call *c = create(s, &parse_ops, http, 1);
    if (!c) return;
    c->then = ops;
    c->kind = kind;
    c->num_open = 1;
    c->body = evbuffer_new();
    if (!c->body || evbuffer_add_buffer(c->body, evhttp_request_get_input_buffer(http)) != 0) {
        c->num_open = 0;
        call_reply_json(c, 503, NULL);
        release(c);
        return;
    }
    worker_push(&s->parser, &c->items[0]);
}

/* ---- all calls ---- */

void calls_ping(server *s, uint64_t now_ns)
{
    uint64_t silence_ns = s->params.ping_ms * UINT64_C(1000000);
    for (call *c = s->calls; c; c = c->next) {
        if (!c->http || !c->request.stream || now_ns - c->last_sent_ns < silence_ns) continue;
        if (unsent(c)) continue; /* it does not even take what we said */
        struct evbuffer *bytes = evbuffer_new();
        if (bytes && evbuffer_add(bytes, ": ping\n\n", 8) == 0) send_bytes(c, bytes);
        if (bytes) evbuffer_free(bytes);
    }
}

/* Also what only waited for a slow reader is over now: nothing else would wake it. */
void calls_abort_all(server *s)
{
    for (call *c = s->calls, *next; c; c = next) {
        next = c->next;
        abort_items(c);
        if (c->stalled) progress(c, NULL);
        release(c);
    }
}
