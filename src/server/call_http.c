/* call_http.c - what a call says to its client, and what evhttp tells of that client.
 *
 * The headers of a stream go out with its first event, not before: what turns out to be
 * wrong while tokenizing then is a plain 400 in a stream too.
 *
 * Invariant: from call_watch until the answer's last byte is out, exactly one callback of ours
 * learns that the connection closes: on_close while c->http is set, on_close_late after it; none
 * once call_unwatch gave the request away. */
#include "server/call_parts.h"
#include "server/memory_reserve.h"

#include <event2/bufferevent.h>
#include <sys/socket.h>

enum { MAX_UNSENT = 64 << 10 }; /* bytes in a client's buffer past which we hold back */

static void on_close(struct evhttp_connection *connection, void *arg)
{
    (void)connection;
    call *c = arg;
    struct evhttp_request *http = c->http;
    c->http = NULL;
    /* evhttp has cut the request loose when it still waits for us; else it frees it */
    if (!evhttp_request_get_connection(http)) evhttp_request_free(http);
    call_client_left(c);
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
    connection_set_closecb(s, connection, NULL, NULL);
    connection_done(s, connection);
    s->num_unsent--;
    server_leave_when_done(s);
}

void call_watch(call *c)
{
    struct evhttp_connection *connection = evhttp_request_get_connection(c->http);
    c->lost = memory_reserve_lost();
    connection_set_closecb(c->server, connection, on_close, c);
    evhttp_request_set_on_complete_cb(c->http, on_complete, c->server);
}

/* An allocation that failed since the call came may have left a hole in what was built for it, or
 * for another; better no answer than half of one. The connection ends, and with it the call. */
static void cut_where_memory_was_lost(call *c)
{
    if (memory_reserve_lost() == c->lost) return;
    struct evhttp_connection *connection = evhttp_request_get_connection(c->http);
    shutdown(bufferevent_getfd(evhttp_connection_get_bufferevent(connection)), SHUT_RDWR);
}

/* evhttp may free the request, even the connection, in the reply that follows. Until the
 * last byte is out the server counts it, because a stop must not cut it off. */
static struct evhttp_request *let_go(call *c)
{
    struct evhttp_request *http = c->http;
    cut_where_memory_was_lost(c);
    connection_set_closecb(c->server, evhttp_request_get_connection(http), on_close_late,
                           c->server);
    c->server->num_unsent++;
    c->http = NULL;
    return http;
}

static const dialect *dialect_of(const call *c)
{
    return c->ops->dialect ? c->ops->dialect : &openai_dialect;
}

void call_reply_json(call *c, int http_status, json_t *json)
{
    c->access.status = send_json(let_go(c), http_status, json);
}

void call_reply_text(call *c, const char *content_type, struct evbuffer *body)
{
    struct evhttp_request *http = let_go(c);
    evhttp_add_header(evhttp_request_get_output_headers(http), "Content-Type", content_type);
    c->access.status = 200;
    send_bytes(http, 200, body);
}

static size_t unsent(const call *c)
{
    return connection_unsent(c->server, evhttp_request_get_connection(c->http));
}

bool call_lags(const call *c)
{
    return unsent(c) > MAX_UNSENT;
}

/* ---- streams ---- */

static void start_stream(call *c)
{
    if (c->started) return;
    c->started = true;
    c->access.status = 200;
    struct evkeyvalq *headers = evhttp_request_get_output_headers(c->http);
    evhttp_add_header(headers, "Content-Type", dialect_of(c)->stream_type);
    evhttp_add_header(headers, "Cache-Control", "no-cache");
    evhttp_add_header(headers, "X-Accel-Buffering", "no");
    evhttp_send_reply_start(c->http, 200, "OK");
}

static void on_drained(struct evhttp_connection *connection, void *arg)
{
    (void)connection;
    call_client_read(arg);
}

void call_send(call *c, struct evbuffer *bytes)
{
    cut_where_memory_was_lost(c);
    start_stream(c);
    evhttp_send_reply_chunk_with_cb(c->http, bytes, on_drained, c);
    c->last_sent_ns = server_now_ns(c->server);
}

static void send_error(call *c, json_t *json)
{
    const dialect *d = dialect_of(c);
    if (!json) return;
    struct evbuffer *bytes = evbuffer_new();
    if (bytes && evbuffer_add(bytes, d->error_before, strlen(d->error_before)) == 0 &&
        json_to_buffer(json, bytes) &&
        evbuffer_add(bytes, d->error_after, strlen(d->error_after)) == 0)
        call_send(c, bytes);
    if (bytes) evbuffer_free(bytes);
    json_decref(json);
}

static void send_words(call *c, const char *words)
{
    struct evbuffer *bytes = *words ? evbuffer_new() : NULL;
    if (bytes && evbuffer_add(bytes, words, strlen(words)) == 0) call_send(c, bytes);
    if (bytes) evbuffer_free(bytes);
}

void call_end_stream(call *c)
{
    send_words(c, dialect_of(c)->stream_end);
    start_stream(c); /* without memory for a single chunk there are no headers yet */
    evhttp_send_reply_end(let_go(c));
}

void call_reply_error(call *c, const api_error *err)
{
    const dialect *d = dialect_of(c);
    if (!c->started) {
        call_reply_json(c, dialect_http_status(d, err->http_status),
                        dialect_error_json(d, err, c->access.id));
        return;
    }
    c->access.failed = true;
    send_error(c, c->ops->stream_error ? c->ops->stream_error(c, err)
                                       : dialect_error_json(d, err, c->access.id));
    evhttp_send_reply_end(let_go(c));
}

static void ping(call *c)
{
    if (!c->ops->write_ping) {
        send_words(c, dialect_of(c)->ping);
        return;
    }
    json_writer w;
    struct evbuffer *bytes = evbuffer_new();
    json_writer_begin(&w, bytes);
    c->ops->write_ping(c, &w);
    if (json_writer_end(&w)) call_send(c, bytes);
    if (bytes) evbuffer_free(bytes);
}

void calls_ping(server *s, uint64_t now_ns)
{
    uint64_t silence_ns = s->params.ping_ms * UINT64_C(1000000);
    for (call *c = s->calls.first; c; c = c->next) {
        if (!c->http || c->busy || !c->request.stream || now_ns - c->last_sent_ns < silence_ns)
            continue;
        if (!unsent(c)) ping(c); /* else it does not even take what we said */
    }
}
