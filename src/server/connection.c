/* connection.c - a record beside each of evhttp's connections, which does its reading.
 *
 *     wire --on_readable--> http_reader --hand_over--> bufferevent's input --> evhttp
 *                 |  while BUSY: `ahead`                        on_request (server.c)
 *     wire <------------------ bufferevent's output <------------ answers
 *
 * evhttp asks us for the bufferevent of a connection, whose callback argument is, from the moment
 * evhttp has set it up, the connection. So a newborn record waits for the next turn of the loop
 * (nothing can have happened to its socket before) with a reference to the bufferevent, in case
 * evhttp ran out of memory and gave it up.
 *
 * evhttp turns the bufferevent's reading on at many places. It stays off all the same because of
 * a stopper: one byte in the input and a watermark of one, at which a bufferevent does not read.
 * A request takes the stopper's place, evhttp reads it whole, and connection_busy puts the stopper
 * back before anything else can run.
 *
 * Refusals go to the wire directly: there is nothing in the output while a request is read.
 *
 * Under TLS (wire.h) the handshake counts as the beginning of a request: it has a request's time,
 * and what it costs the loop a turn's limit.
 *
 * Invariant: a record that is not newborn is in by_fd, and in the list of those that wait
 * unless it is busy; its bufferevent never reads. */
#include "server/connection_parts.h"

#include "base/list.h"

#include <errno.h>
#include <event2/bufferevent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    READ_BYTES = TLS_RECORD_BYTES, /* in one turn; of a body */
    BODY_BYTES = 64 << 10,
    MAX_AHEAD = 64 << 10, /* bytes a client may send ahead of its answer */
    PROBE_MS = 20
};

http_conn *conn_find(server *s, struct evhttp_connection *http)
{
    int fd = bufferevent_getfd(evhttp_connection_get_bufferevent(http));
    http_conn *c = fd >= 0 && (size_t)fd < s->connections.num_fds ? s->connections.by_fd[fd] : NULL;
    return c && c->http == http ? c : NULL;
}

/* ---- lists and states ---- */

static void due(http_conn *c)
{
    connections *all = &c->server->connections;
    if (c->is_due) return;
    c->is_due = true;
    LIST_APPEND(&all->due, c, prev_due, next_due);
    event_active(all->later, EV_TIMEOUT, 1);
}

static void not_due(http_conn *c)
{
    connections *all = &c->server->connections;
    if (!c->is_due) return;
    LIST_REMOVE(&all->due, c, prev_due, next_due);
    c->is_due = false;
}

void conn_set_state(http_conn *c, state to)
{
    connections *all = &c->server->connections;
    bool was_busy = c->state == BUSY;
    if (c->state == IDLE || c->state == READING) LIST_REMOVE(&all->waiting, c, prev, next);
    c->state = to;
    if (to == IDLE || to == READING) {
        c->since_ns = server_now_ns(c->server);
        LIST_APPEND(&all->waiting, c, prev, next);
    }
    all->num_busy += (uint32_t)(to == BUSY) - (uint32_t)was_busy;
    if (was_busy != (to == BUSY)) conn_watch_listener(c->server);
}

/* ---- the end ---- */

static void forget(http_conn *c)
{
    connections *all = &c->server->connections;
    if (c->state != BUSY && !evbuffer_get_length(bufferevent_get_output(c->bev)))
        wire_send_end(&c->wire);
    conn_set_state(c, NEWBORN); /* in no list, not busy */
    not_due(c);
    all->by_fd[c->fd] = NULL;
    all->count--;
    event_free(c->readable);
    wire_fini(&c->wire);
    conn_set_client(c, NULL);
    http_reader_next(&c->reader);
    if (c->body) evbuffer_free(c->body);
    if (c->ahead) evbuffer_free(c->ahead);
    free(c);
}

void conn_on_gone(struct evhttp_connection *http, void *arg)
{
    http_conn *c = arg;
    void (*closed)(struct evhttp_connection *, void *) = c->closed;
    void *closed_arg = c->closed_arg;
    forget(c);
    if (closed) closed(http, closed_arg);
}

/* evhttp learns that the client is gone and frees the connection: on_gone comes from here. */
void conn_drop(http_conn *c)
{
    bufferevent_trigger_event(c->bev, BEV_EVENT_READING | BEV_EVENT_EOF, 0);
}

/* Says what is wrong, and hangs up; the log hears `why`. Not while BUSY. Where TLS is not there yet
 * nothing can be said. */
static void refuse_for(http_conn *c, const api_error *err, const char *why)
{
    server *s = c->server;
    char answer[1400], body[1024], id[ACCESS_MAX_ID + 1];
    access_refused(s, c->fd, err->http_status, why, id);
    json_t *json = error_json(err);
    size_t body_len = json ? json_dumpb(json, body, sizeof body, JSON_COMPACT) : 0;
    json_decref(json);
    if (body_len > sizeof body) body_len = 0; /* without words, the status goes out */
    int len = snprintf(answer, sizeof answer,
                       "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n"
                       "Content-Length: %zu\r\nX-Request-Id: %s\r\nConnection: close\r\n\r\n%.*s",
                       err->http_status, http_reason(err->http_status), body_len, id,
                       c->reader.head_only ? 0 : (int)body_len, body);
    /* Behind records of an answer of evhttp's own, ours would be out of order. */
    bool sent = (!c->refused || !c->wire.tls) && wire_send(&c->wire, answer, (size_t)len);
    if (sent || !wire_is_open(&c->wire)) linger(s, c->fd); /* there may be an alert */
    evhttp_connection_free(c->http);                       /* on_gone comes from here */
}

void conn_refuse(http_conn *c, const api_error *err)
{
    refuse_for(c, err, "refused before it was read");
}

/* Whoever talks HTTP to the port hears it in HTTP. */
static void refuse_handshake(http_conn *c)
{
    api_error err;
    char why[200];
    bool http = tls_met_http(c->wire.tls);
    snprintf(why, sizeof why, "no TLS: %s", tls_why(c->wire.tls));
    api_fail(&err, 400, NULL, "this port speaks TLS: https:// instead of http://");
    if (http) wire_fini(&c->wire), (void)wire_init(&c->wire, c->fd, NULL);
    refuse_for(c, &err, why);
}

static void refuse_memory(http_conn *c)
{
    api_error err;
    api_fail(&err, 503, NULL, "no memory for this request");
    conn_refuse(c, &err);
}

/* ---- evhttp's side ---- */

/* Without memory for one byte the bufferevent would read: false. */
static bool put_stopper(http_conn *c)
{
    struct evbuffer *input = bufferevent_get_input(c->bev);
    evbuffer_unfreeze(input, 0);
    bool there = evbuffer_add(input, "-", 1) == 0;
    evbuffer_freeze(input, 0);
    return there;
}

/* The whole request goes to evhttp, which calls on_request. May free c. */
static void hand_over(http_conn *c)
{
    struct evbuffer *input = bufferevent_get_input(c->bev);
    size_t len = 0;
    char *head = http_reader_rewrite(&c->reader, &len);
    evbuffer_unfreeze(input, 0);
    bool whole = head && evbuffer_add(input, head, len) == 0 &&
                 (!c->body || evbuffer_add_buffer(input, c->body) == 0);
    evbuffer_freeze(input, 0);
    free(head);
    if (c->body) evbuffer_free(c->body);
    c->body = NULL;
    c->last = c->reader.last;
    c->answering = c->early = c->ignored = c->probed = false;
    c->lag_ms = c->taken = c->taken_at_tick = c->unsent_at_tick = 0;
    http_reader_next(&c->reader);
    if (!whole) { /* what evhttp has of it goes with the connection */
        refuse_memory(c);
        return;
    }
    evbuffer_drain(input, 1);             /* the stopper */
    bufferevent_disable(c->bev, EV_READ); /* else it would read as soon as its input is empty */
    bufferevent_trigger(c->bev, EV_READ, 0);
}

/* While a request is read there is no output of ours: evhttp has found something to refuse. */
static void on_output(struct evbuffer *buffer, const struct evbuffer_cb_info *info, void *arg)
{
    http_conn *c = arg;
    if (c->wire.moving) return;
    bool begins = info->n_added && c->state == BUSY && !c->answering;
    c->taken += info->n_deleted;
    if (begins) c->answering = true;
    if (info->n_added && c->state != BUSY) {
        c->refused = true;
        due(c);
    }
    wire_output(&c->wire, buffer, info->n_added, begins && c->early);
}

/* ---- reading ---- */

/* Bytes for which there is no room or memory are none we can do without: false, c is gone. */
static bool keep_ahead(http_conn *c, const char *bytes, size_t len)
{
    if (!c->ahead) c->ahead = evbuffer_new();
    if (!c->ahead || evbuffer_add(c->ahead, bytes, len) != 0) {
        conn_drop(c);
        return false;
    }
    if (evbuffer_get_length(c->ahead) >= MAX_AHEAD) event_del(c->readable);
    return true;
}

static bool keep_body(http_conn *c, const char *bytes, size_t len)
{
    if (!c->body) c->body = evbuffer_new();
    return c->body && evbuffer_add(c->body, bytes, len) == 0;
}

/* What the reader says after it has read all there is. May free c. */
static void judge(http_conn *c)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    http_reader *r = &c->reader;
    api_error err;
    if (r->part == HTTP_REFUSED) {
        api_fail(&err, r->status, NULL, "%s", r->words);
        conn_refuse(c, &err);
    } else if (r->part == HTTP_WHOLE) {
        hand_over(c);
    } else if (r->expects && r->head_done) {
        r->expects = false;
        if (!r->body_bytes && !wire_send(&c->wire, go_on, sizeof go_on - 1)) conn_drop(c);
    }
}

/* Of a request, and what is left of them ahead of its answer. May free c. */
static void read_request(http_conn *c, const char *bytes, size_t len)
{
    http_reader *r = &c->reader;
    size_t at = 0;
    while (at < len && (r->part == HTTP_LINES || r->part == HTTP_DATA)) {
        if (r->part == HTTP_LINES) {
            at += http_reader_take(r, bytes + at, len - at);
            continue;
        }
        size_t n = (size_t)RAD_MIN(r->left, (uint64_t)(len - at));
        if (!keep_body(c, bytes + at, n)) {
            refuse_memory(c);
            return;
        }
        http_reader_skip(r, n);
        at += n;
    }
    if (c->state == IDLE && r->begun) {
        conn_set_state(c, READING);
        c->bytes = 0;
    }
    c->bytes += at;
    if (at < len && r->part == HTTP_WHOLE) {
        if (r->last)
            c->ignored = true;
        else if (!keep_ahead(c, bytes + at, len - at))
            return;
    }
    judge(c);
}

static ssize_t receive(http_conn *c, void *bytes, size_t size)
{
    return wire_recv(&c->wire, bufferevent_get_output(c->bev), bytes, size);
}

/* Straight into the body, without a copy. May free c. */
static void read_body(http_conn *c)
{
    struct evbuffer_iovec room;
    size_t most = (size_t)RAD_MIN(c->reader.left, (uint64_t)BODY_BYTES);
    if (!c->body) c->body = evbuffer_new();
    if (!c->body || evbuffer_reserve_space(c->body, (ev_ssize_t)most, &room, 1) != 1) {
        refuse_memory(c);
        return;
    }
    ssize_t n = receive(c, room.iov_base, most);
    int why = errno;
    room.iov_len = n > 0 ? (size_t)n : 0;
    evbuffer_commit_space(c->body, &room, 1);
    if (n > 0) {
        c->bytes += (uint64_t)n;
        http_reader_skip(&c->reader, (uint64_t)n);
        judge(c);
    } else if (n == 0 || (why != EAGAIN && why != EINTR)) {
        conn_drop(c); /* an unfinished request has no answer */
    }
}

/* The client has shut down its side; what it asked for it gets. May free c. */
static void client_ended(http_conn *c)
{
    connections *all = &c->server->connections;
    struct timeval soon = {.tv_usec = PROBE_MS * 1000};
    c->ended = true;
    event_del(c->readable);
    if (c->state != BUSY) {
        if (!c->ahead) conn_drop(c);
        return;
    }
    if (!event_pending(all->probe, EV_TIMEOUT, NULL)) event_add(all->probe, &soon);
    if (c->answering) return;
    c->early = wire_send(&c->wire, "H", 1);
    if (!c->early && c->wire.tls) conn_drop(c); /* the rest of a record is missing */
}

/* Of TLS, with its first request where that is there already. The signature of a handshake costs
 * as much as many requests: at most a few in a turn, the sockets of the others stay readable.
 * True: n bytes are there, as recv has it. May free c. */
static bool shake_hands(http_conn *c, void *bytes, size_t size, ssize_t *n)
{
    server *s = c->server;
    if (!turn_has(s, UNITS_HANDSHAKE)) return false;
    if (c->state == IDLE) conn_set_state(c, READING);
    uint32_t flights = c->wire.flights;
    *n = receive(c, bytes, size);
    int why = errno;
    bool open = wire_is_open(&c->wire);
    if (c->wire.flights != flights) turn_spend(s, UNITS_HANDSHAKE);
    if (open)
        conn_set_state(c, IDLE);
    else if (*n == 0)
        conn_drop(c);
    else if (why != EAGAIN)
        refuse_handshake(c);
    errno = why;
    return open;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    http_conn *c = arg;
    char bytes[READ_BYTES];
    ssize_t n;
    bool ahead = c->state == BUSY || c->ahead;
    if (!ahead && c->reader.part == HTTP_DATA && c->reader.left >= sizeof bytes) {
        read_body(c);
        return;
    }
    if (wire_is_open(&c->wire))
        n = receive(c, bytes, sizeof bytes);
    else if (!shake_hands(c, bytes, sizeof bytes, &n))
        return;
    if (n == 0)
        client_ended(c);
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        conn_drop(c);
    else if (n > 0 && ahead && c->last)
        c->ignored = true;
    else if (n > 0 && ahead)
        keep_ahead(c, bytes, (size_t)n);
    else if (n > 0)
        read_request(c, bytes, (size_t)n);
}

/* What was sent ahead is read when the answer before it is out. May free c. */
static void read_ahead(http_conn *c)
{
    server *s = c->server;
    int fd = c->fd;
    struct evbuffer *ahead = c->ahead;
    size_t len = ahead ? evbuffer_get_length(ahead) : 0;
    const char *bytes = len ? (const char *)evbuffer_pullup(ahead, -1) : NULL;
    c->ahead = NULL;
    if (bytes)
        read_request(c, bytes, len);
    else if (len)
        conn_drop(c);
    if (ahead) evbuffer_free(ahead);
    if (s->connections.by_fd[fd] != c) return;
    if (c->state != BUSY && c->ended) conn_drop(c); /* no more will come */
}

/* Who shut down its side and has a reset behind it, or an error, is gone. */
void conn_probe(http_conn *c)
{
    struct pollfd socket = {.fd = c->fd};
    c->probed = true;
    if (poll(&socket, 1, 0) > 0) conn_drop(c);
}

static void on_probe(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    connections *all = &((server *)arg)->connections;
    for (size_t i = 0; i < all->num_fds; i++)
        if (all->by_fd[i] && all->by_fd[i]->ended && !all->by_fd[i]->probed)
            conn_probe(all->by_fd[i]);
}

/* ---- the beginning ---- */

static bool reserve_fd(connections *all, int fd)
{
    if ((size_t)fd < all->num_fds) return true;
    size_t more = RAD_MAX((size_t)fd + 1, all->num_fds * 2);
    http_conn **grown = realloc(all->by_fd, more * sizeof(http_conn *));
    if (!grown) return false;
    memset(grown + all->num_fds, 0, (more - all->num_fds) * sizeof(http_conn *));
    all->by_fd = grown;
    all->num_fds = more;
    return true;
}

/* False: the connection cannot be watched over, and evhttp must not have it either. */
bool conn_start(http_conn *c)
{
    server *s = c->server;
    int on = 1;
    c->readable = event_new(s->base, c->fd, EV_READ | EV_PERSIST, on_readable, c);
    if (!wire_init(&c->wire, c->fd, s->tls) || !c->readable ||
        !reserve_fd(&s->connections, c->fd) || !put_stopper(c) ||
        event_add(c->readable, NULL) != 0 ||
        !evbuffer_add_cb(bufferevent_get_output(c->bev), on_output, c))
        return false;
    bufferevent_setwatermark(c->bev, EV_READ, 0, 1);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return true;
}

static void on_later(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    connections *all = &((server *)arg)->connections;
    for (http_conn *c; (c = all->newborn);) {
        all->newborn = c->next;
        c->next = NULL;
        conn_adopt(c);
    }
    for (http_conn *c; (c = all->due.first);) {
        api_error err;
        not_due(c);
        if (c->state == BUSY) continue;
        if (!c->refused) {
            read_ahead(c);
            continue;
        }
        api_fail(&err, 400, NULL, "this is no request in HTTP/1.1");
        conn_refuse(c, &err);
    }
}

/* ---- for the others ---- */

rad_status connections_init(server *s, rad_error *err)
{
    connections *all = &s->connections;
    all->limits = (http_limits){s->params.max_header_bytes, s->params.max_body_bytes};
    all->later = event_new(s->base, -1, 0, on_later, s);
    all->probe = event_new(s->base, -1, 0, on_probe, s);
    if (!all->later || !all->probe) return rad_fail(err, RAD_E_NOMEM, "server: no memory");
    evhttp_set_bevcb(s->http, conn_on_accept, s);
    return RAD_OK;
}

void connections_fini(server *s)
{
    connections *all = &s->connections;
    linger_fini(s);
    while (all->newborn) { /* evhttp has let go of it */
        http_conn *c = all->newborn;
        all->newborn = c->next;
        bufferevent_decref(c->bev);
        free(c);
    }
    if (all->later) event_free(all->later);
    if (all->probe) event_free(all->probe);
    free(all->by_fd);
}

bool connection_busy(server *s, struct evhttp_connection *http)
{
    http_conn *c = conn_find(s, http);
    bufferevent_event_cb event_cb;
    bufferevent_data_cb write_cb;
    void *arg;
    if (!c) return false;
    conn_set_state(c, BUSY);
    bufferevent_getcb(c->bev, NULL, &write_cb, &event_cb, &arg);
    bufferevent_setcb(c->bev, NULL, write_cb, event_cb, arg); /* evhttp's must not run now */
    return put_stopper(c);
}

void connection_done(server *s, struct evhttp_connection *http)
{
    http_conn *c = conn_find(s, http);
    if (!c) return;
    conn_set_state(c, IDLE);
    if (c->last && c->ignored) linger(s, c->fd); /* evhttp closes it now */
    if (c->last) return;
    if (!c->ended) event_add(c->readable, NULL);
    if (c->ahead || c->ended) due(c);
}

size_t connection_unsent(server *s, struct evhttp_connection *http)
{
    const http_conn *c = conn_find(s, http);
    struct evbuffer *output = bufferevent_get_output(evhttp_connection_get_bufferevent(http));
    return c ? wire_unsent(&c->wire, output) : evbuffer_get_length(output);
}

void connection_set_closecb(server *s, struct evhttp_connection *http,
                            void (*closed)(struct evhttp_connection *, void *), void *arg)
{
    http_conn *c = conn_find(s, http);
    if (!c) { /* there was no memory for a record */
        evhttp_connection_set_closecb(http, closed, arg);
        return;
    }
    c->closed = closed;
    c->closed_arg = arg;
}
