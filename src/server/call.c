/* call.c - what a call says next, and when it is over.
 *
 * Three things can end first: the engine's requests, the client, or the server. So the call
 * counts what the engine still owes (num_open) and knows whether evhttp still waits (http);
 * `release` frees it when both are over. A client that leaves aborts its requests, and
 * what they still say is merged and thrown away.
 *
 * Invariant: every call is in s->calls once, from `create` to `release`. */
#include "server/call_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void abort_items(call *c)
{
    for (uint32_t i = 0; i < c->num_items; i++)
        if (c->items[i].submitted && !c->items[i].finished)
            engine_abort(c->server->engine, c->items[i].id);
}

static void log_call(const call *c)
{
    uint64_t prompt = 0, cached = 0, completion = 0;
    char more[320] = "";
    if (!c->access.id[0]) return; /* another call goes on with it */
    for (uint32_t i = 0; i < c->num_items; i++) {
        prompt += c->items[i].prompt_tokens;
        cached += c->items[i].cached_tokens;
        completion += c->items[i].completion_tokens;
    }
    if (c->id[0]) /* not for admin calls */
        snprintf(more, sizeof more, "%.200s: %llu prompt tokens, %llu cached, %llu out", c->id,
                 (unsigned long long)prompt, (unsigned long long)cached,
                 (unsigned long long)completion);
    access_end(c->server, &c->access, more);
}

/* Frees a call that neither evhttp nor the engine waits for any more. */
static void release(call *c)
{
    if (c->http || c->num_open) return;
    log_call(c);
    server *s = c->server;
    if (c->prev)
        c->prev->next = c->next;
    else
        s->calls = c->next;
    if (c->next) c->next->prev = c->prev;
    s->num_calls--;
    for (uint32_t i = 0; i < c->num_items; i++)
        inbox_item_fini(&c->items[i]);
    api_request_fini(&c->request);
    if (c->parsed) api_request_fini(c->parsed);
    free(c->parsed);
    if (c->body) evbuffer_free(c->body);
    free(c->work_arg);
    free(c->items);
    free(c);
}

/* ---- failures ---- */

/* What the engine refuses is the prompt (its length, ids, roles): what else a client may get
 * wrong was found in its JSON, but for the length of the two namespace keys together. */
static const char *refused_param(const call_item *item)
{
    const engine_request *r = &item->call->request.items[item->index];
    if (strncmp(item->message, "extra_key ", 10) == 0) return "extra_key";
    if (strncmp(item->message, "logit_bias", 10) == 0) return "logit_bias";
    if (strncmp(item->message, "'tools'", 7) == 0) return "tools";
    if (r->messages || r->chat_json) return "messages";
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
    call_reply_error(c, &err);
    abort_items(c);
}

/* ---- events ---- */

static void say(call *c, call_item *item)
{
    if (item->said_finish || !item->submitted) return;
    json_t *json = c->ops->chunk(c, item);
    item->text_sent = item->text.len;
    item->ids_sent = item->ids.len;
    if (item->finished) item->said_finish = true;
    call_send_event(c, json);
}

/* `item` has news, or NULL: any may have (an error never waits for a slow reader). */
static void progress(call *c, call_item *item)
{
    if (!c->http) return;
    if (c->not_done) {
        api_error err;
        api_fail(&err, 503, NULL, "the server is stopping");
        call_reply_error(c, &err);
        return;
    }
    if (item && item->finish == ENGINE_FINISH_ERROR) {
        fail_call(c, item);
        return;
    }
    if (!c->request.stream) {
        if (!c->num_open) c->ops->answer(c);
        return;
    }
    if (call_lags(c) && !c->server->aborted) { /* else nobody waits for it */
        c->stalled = true;
        return;
    }
    if (item) say(c, item);
    for (uint32_t i = 0; !item && i < c->num_items; i++)
        say(c, &c->items[i]);
    if (c->num_open) return;
    if (c->ops->usage_chunk) call_send_event(c, c->ops->usage_chunk(c));
    call_end_stream(c);
}

void call_client_left(call *c)
{
    abort_items(c);
    release(c);
}

/* Says what gathered meanwhile. */
void call_client_read(call *c)
{
    if (!c->stalled || !c->http) return;
    c->stalled = false;
    progress(c, NULL);
    release(c);
}

void calls_drain(server *s)
{
    for (call_item *item = inbox_take(s), *next; item; item = next) {
        call *c = item->call;
        next = inbox_merge(item);
        if (item->finished)
            c->num_open--;
        else if (item->lost)
            engine_abort(s->engine, item->id);
        progress(c, item);
        release(c);
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
    c->access = s->access;
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
    call_watch(c);
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

    api_error unknown;
    bool served = models_check(s, c->request.model, &unknown);
    if (!served) call_reply_error(c, &unknown);
    engine_share share = {0};
    for (uint32_t i = 0; served && i < c->num_items; i++) {
        call_item *item = &c->items[i];
        engine_request *r = &c->request.items[i];
        rad_error err = {0};
        r->share = &share;
        r->on_event = inbox_on_event;
        r->user = item;
        /* its first event may come before submit returns */
        rad_status status = engine_submit(s->engine, r, &item->id, &err);
        if (status != RAD_OK) {
            item->status = status;
            snprintf(item->message, sizeof item->message, "%s",
                     err.text[0] ? err.text : "the queue is full; try again soon");
            fail_call(c, item);
            break;
        }
        item->submitted = true;
        c->num_open++;
    }
    engine_share_end(&share);
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

/* ---- large bodies ---- */

static call_progress work_parse(call *c)
{
    size_t len = evbuffer_get_length(c->body);
    const char *bytes = (const char *)evbuffer_pullup(c->body, -1);
    api_request *parsed = calloc(1, sizeof *parsed);
    if (!bytes || !parsed)
        api_fail(&c->error, 503, NULL, "no memory for this request");
    else if (api_request_parse(c->kind, bytes, len, c->server->params.request_memory, parsed,
                               &c->error))
        c->parsed = parsed;
    if (!c->parsed) free(parsed);
    evbuffer_drain(c->body, len);
    return CALL_DONE;
}

/* The HTTP request goes on to a call of its own. */
static void answer_parse(call *c)
{
    if (!c->parsed) {
        call_reply_json(c, c->error.http_status, error_json(&c->error));
        return;
    }
    c->server->access = c->access;
    c->access.id[0] = 0;
    call_start(c->server, c->then, call_unwatch(c), c->parsed);
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
