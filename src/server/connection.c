/* connection.c - a record beside each of evhttp's connections.
 *
 * evhttp shows a connection only when a whole request is there. We get in earlier: it asks
 * us for the bufferevent, whose callback argument is, from the moment evhttp has set it up,
 * the connection. So a newborn record waits for the next turn of the loop (nothing can have
 * happened to its socket before) with a reference to the bufferevent, in case evhttp ran
 * out of memory and gave it up. From then on two callbacks on its buffers tell about bytes, and
 * closecb about the end.
 *
 * Answers of our own go to the socket directly: evhttp's have not been written yet, and with
 * the connection freed they never are. A copy of the descriptor lingers, because closing a
 * socket with unread input resets it, and a reset destroys the answer on its way.
 *
 * Invariant: a record that is not newborn is in by_fd, and in the list of those that wait
 * unless it is busy. */
#include "server/connection.h"

#include "server/server_priv.h"

#include <errno.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MIN_BYTES_PER_S = 16 << 10, /* a body that comes faster has time to come */
    MOST_LINGERING = 256,
    LINGER_MS = 10000,    /* in all */
    LINGER_IDLE_MS = 1000 /* without a byte */
};

typedef enum state { NEWBORN, IDLE, READING, BUSY } state;

struct http_conn {
    server *server;
    struct bufferevent *bev;
    struct evhttp_connection *http;
    int fd;
    state state;
    bool refused;
    bool head_done;    /* the blank line has come */
    uint32_t line_len; /* of the line of the head that is coming in */
    uint64_t since_ns; /* in IDLE: idle since; in READING: its first byte */
    uint64_t bytes;    /* of the request that is being read */
    http_conn *prev, *next;
    http_conn *next_refused;
    void (*closed)(struct evhttp_connection *, void *); /* or NULL */
    void *closed_arg;
};

struct lingerer {
    server *server;
    int fd;
    uint64_t since_ns, last_ns;
    struct event *event;
    lingerer *prev, *next;
};

static http_conn *find(server *s, struct evhttp_connection *http)
{
    int fd = bufferevent_getfd(evhttp_connection_get_bufferevent(http));
    return fd >= 0 && (size_t)fd < s->connections.num_fds ? s->connections.by_fd[fd] : NULL;
}

/* ---- the list of those that wait ---- */

static void wait_begin(http_conn *c)
{
    connections *all = &c->server->connections;
    c->since_ns = server_now_ns(c->server);
    c->next = NULL;
    c->prev = all->newest;
    if (all->newest)
        all->newest->next = c;
    else
        all->oldest = c;
    all->newest = c;
}

static void wait_end(http_conn *c)
{
    connections *all = &c->server->connections;
    if (c->prev)
        c->prev->next = c->next;
    else
        all->oldest = c->next;
    if (c->next)
        c->next->prev = c->prev;
    else
        all->newest = c->prev;
    c->prev = c->next = NULL;
}

/* With every place busy there is nobody to make room: the others wait in the kernel. */
static void watch_listener(server *s)
{
    if (!s->listener) return;
    if (s->connections.num_busy >= s->params.max_connections)
        evconnlistener_disable(s->listener);
    else if (!event_pending(s->accept_event, EV_TIMEOUT, NULL)) /* no pause after an error */
        evconnlistener_enable(s->listener);
}

static void set_state(http_conn *c, state to)
{
    connections *all = &c->server->connections;
    bool was_busy = c->state == BUSY;
    if (c->state == IDLE || c->state == READING) wait_end(c);
    c->state = to;
    if (to == IDLE || to == READING) wait_begin(c);
    all->num_busy += (uint32_t)(to == BUSY) - (uint32_t)was_busy;
    if (was_busy != (to == BUSY)) watch_listener(c->server);
}

/* ---- the end ---- */

static void forget(http_conn *c)
{
    connections *all = &c->server->connections;
    set_state(c, NEWBORN); /* in no list, not busy */
    for (http_conn **at = &all->refused; *at; at = &(*at)->next_refused)
        if (*at == c) {
            *at = c->next_refused;
            break;
        }
    all->by_fd[c->fd] = NULL;
    all->count--;
    free(c);
}

static void on_gone(struct evhttp_connection *http, void *arg)
{
    http_conn *c = arg;
    void (*closed)(struct evhttp_connection *, void *) = c->closed;
    void *closed_arg = c->closed_arg;
    forget(c);
    if (closed) closed(http, closed_arg);
}

static void linger_end(lingerer *l)
{
    connections *all = &l->server->connections;
    if (l->prev)
        l->prev->next = l->next;
    else
        all->lingering = l->next;
    if (l->next) l->next->prev = l->prev;
    all->num_lingering--;
    event_free(l->event);
    close(l->fd);
    free(l);
}

static void on_late_input(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    lingerer *l = arg;
    ssize_t n = recv(fd, NULL, 1 << 20, MSG_TRUNC | MSG_DONTWAIT); /* dropped, not copied */
    if (n > 0)
        l->last_ns = server_now_ns(l->server);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        linger_end(l);
}

/* Without memory, or with many already, the client may see a reset instead of the answer. */
static void linger(server *s, int fd)
{
    connections *all = &s->connections;
    if (all->num_lingering == MOST_LINGERING) return;
    lingerer *l = calloc(1, sizeof *l);
    if (!l) return;
    l->server = s;
    l->since_ns = l->last_ns = server_now_ns(s);
    l->fd = dup(fd);
    l->event = l->fd < 0 ? NULL : event_new(s->base, l->fd, EV_READ | EV_PERSIST, on_late_input, l);
    if (!l->event || event_add(l->event, NULL) != 0) {
        if (l->event) event_free(l->event);
        if (l->fd >= 0) close(l->fd);
        free(l);
        return;
    }
    l->next = all->lingering;
    if (l->next) l->next->prev = l;
    all->lingering = l;
    all->num_lingering++;
}

/* ---- refusing ---- */

static void explain(const http_conn *c, int http_status, api_error *err)
{
    const server_params *p = &c->server->params;
    if (http_status == 400 && !c->head_done && c->bytes >= p->max_header_bytes) http_status = 431;
    switch (http_status) {
    case 408:
        api_fail(err, 408, NULL, "the request did not come within %u seconds",
                 (p->request_timeout_ms + 999) / 1000);
        break;
    case 413: /* evhttp says so of both */
        api_fail(err, 413, NULL, "the body is longer than %llu bytes, or a chunk of it has no size",
                 (unsigned long long)p->max_body_bytes);
        break;
    case 417: api_fail(err, 417, NULL, "no expectation but 100-continue can be met"); break;
    case 431:
        api_fail(err, 431, NULL, "the headers are longer than %u bytes", p->max_header_bytes);
        break;
    case 501: api_fail(err, 501, NULL, "this method is not known here"); break;
    default: api_fail(err, http_status, NULL, "this is no request in HTTP/1.1");
    }
}

/* Says what is wrong, and hangs up. */
static void refuse(http_conn *c, int http_status)
{
    server *s = c->server;
    api_error err;
    char answer[1200], id[ACCESS_MAX_ID + 1];
    explain(c, http_status, &err);
    access_refused(s, c->fd, err.http_status, id);
    json_t *json = error_json(&err);
    char *body = json ? json_dumps(json, JSON_COMPACT) : NULL;
    int len = snprintf(answer, sizeof answer,
                       "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n"
                       "Content-Length: %zu\r\nX-Request-Id: %s\r\nConnection: close\r\n\r\n%s",
                       err.http_status, http_reason(err.http_status), body ? strlen(body) : 0, id,
                       body ? body : "");
    free(body);
    json_decref(json);
    /* What does not fit into an empty socket buffer was not going to be read. */
    ssize_t sent = send(c->fd, answer, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == len) linger(s, c->fd);
    evhttp_connection_free(c->http); /* on_gone comes from here */
}

/* The status of the answer that evhttp has put into the output, 0 for none. It repeats the
 * client's version, whatever that is. */
static int status_of_output(struct bufferevent *bev)
{
    char head[128];
    const char *at = head;
    ev_ssize_t n = evbuffer_copyout(bufferevent_get_output(bev), head, sizeof head - 1);
    head[n > 0 ? n : 0] = 0;
    for (;;) {
        const char *space = strncmp(at, "HTTP/", 5) == 0 ? strchr(at, ' ') : NULL;
        int status = space ? atoi(space) : 0;
        const char *end = strstr(at, "\r\n\r\n");
        if (status != 100 || !end) return status; /* 100 Continue may be there still */
        at = end + 4;
    }
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

/* Follows the head line by line, until a blank one. */
static void look_at_head(http_conn *c, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len && !c->head_done; i++) {
        if (bytes[i] == '\n') {
            c->head_done = c->line_len == 0;
            c->line_len = 0;
        } else if (bytes[i] != '\r') {
            c->line_len++;
        }
    }
}

static void read_more(http_conn *c, struct evbuffer *buffer, size_t added)
{
    struct evbuffer_ptr at;
    struct evbuffer_iovec parts[16];
    if (c->state == IDLE) {
        set_state(c, READING);
        c->bytes = 0;
        c->line_len = 1; /* line breaks before a request end no head; a byte too many ends none */
        c->head_done = false;
    }
    c->bytes += added;
    if (c->head_done ||
        evbuffer_ptr_set(buffer, &at, evbuffer_get_length(buffer) - added, EVBUFFER_PTR_SET) != 0)
        return;
    int n = evbuffer_peek(buffer, (ev_ssize_t)added, &at, parts, (int)RAD_COUNT(parts));
    for (int i = 0; i < n && i < (int)RAD_COUNT(parts); i++)
        look_at_head(c, parts[i].iov_base, parts[i].iov_len);
}

static void on_input(struct evbuffer *buffer, const struct evbuffer_cb_info *info, void *arg)
{
    http_conn *c = arg;
    if (info->n_added && c->state != BUSY) read_more(c, buffer, info->n_added);
}

/* Output that nobody of us asked for. */
static void on_output(struct evbuffer *buffer, const struct evbuffer_cb_info *info, void *arg)
{
    (void)buffer;
    http_conn *c = arg;
    connections *all = &c->server->connections;
    if (!info->n_added || c->state == BUSY || c->refused) return;
    c->refused = true;
    c->next_refused = all->refused;
    all->refused = c;
    event_active(all->later, EV_TIMEOUT, 1);
}

static void adopt(http_conn *c)
{
    server *s = c->server;
    connections *all = &s->connections;
    struct timeval patience = {.tv_sec = s->params.send_timeout_ms / 1000,
                               .tv_usec = s->params.send_timeout_ms % 1000 * 1000};
    void *http = NULL;
    bufferevent_getcb(c->bev, NULL, NULL, NULL, &http);
    c->http = http;
    c->fd = bufferevent_getfd(c->bev);
    if (!http || c->fd < 0 || !reserve_fd(all, c->fd)) {
        bufferevent_decref(c->bev);
        all->count--;
        free(c);
        return;
    }
    bufferevent_decref(c->bev); /* evhttp's own remains */
    RAD_ASSERT(!all->by_fd[c->fd]);
    all->by_fd[c->fd] = c;
    set_state(c, IDLE);
    bufferevent_set_timeouts(c->bev, NULL, &patience);
    evbuffer_add_cb(bufferevent_get_input(c->bev), on_input, c);
    evbuffer_add_cb(bufferevent_get_output(c->bev), on_output, c);
    evhttp_connection_set_closecb(c->http, on_gone, c);
}

static void on_later(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    connections *all = &((server *)arg)->connections;
    for (http_conn *c; (c = all->newborn);) {
        all->newborn = c->next;
        c->next = NULL;
        adopt(c);
    }
    for (http_conn *c; (c = all->refused);) {
        int status = status_of_output(c->bev);
        all->refused = c->next_refused;
        c->refused = false;
        if (status >= 400) refuse(c, status);
    }
}

/* evhttp has accepted and asks for a bufferevent. With NULL it makes its own, which then has
 * no deadline. */
static struct bufferevent *on_accept(struct event_base *base, void *arg)
{
    server *s = arg;
    connections *all = &s->connections;
    if (all->count >= s->params.max_connections && all->oldest)
        evhttp_connection_free(all->oldest->http);
    http_conn *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->server = s;
    c->bev = bufferevent_socket_new(base, -1, 0);
    if (!c->bev) {
        free(c);
        return NULL;
    }
    bufferevent_incref(c->bev);
    all->count++;
    c->next = all->newborn;
    all->newborn = c;
    event_active(all->later, EV_TIMEOUT, 1);
    return c->bev;
}

/* ---- for the others ---- */

rad_status connections_init(server *s, rad_error *err)
{
    s->connections.later = event_new(s->base, -1, 0, on_later, s);
    if (!s->connections.later) return rad_fail(err, RAD_E_NOMEM, "server: no memory");
    evhttp_set_bevcb(s->http, on_accept, s);
    return RAD_OK;
}

void connections_fini(server *s)
{
    connections *all = &s->connections;
    while (all->lingering)
        linger_end(all->lingering);
    while (all->newborn) { /* evhttp has let go of it */
        http_conn *c = all->newborn;
        all->newborn = c->next;
        bufferevent_decref(c->bev);
        free(c);
    }
    if (all->later) event_free(all->later);
    free(all->by_fd);
}

void connections_tick(server *s, uint64_t now_ns)
{
    const uint64_t ms = 1000000;
    for (http_conn *c = s->connections.oldest, *next; c; c = next) {
        next = c->next;
        uint64_t waited_ms = now_ns > c->since_ns ? (now_ns - c->since_ns) / ms : 0;
        if (c->state == READING &&
            waited_ms > s->params.request_timeout_ms + c->bytes * 1000 / MIN_BYTES_PER_S)
            refuse(c, 408);
        else if (c->state == IDLE && waited_ms > s->params.keep_alive_ms)
            evhttp_connection_free(c->http);
    }
    for (lingerer *l = s->connections.lingering, *next; l; l = next) {
        next = l->next;
        if (now_ns > l->since_ns + LINGER_MS * ms || now_ns > l->last_ns + LINGER_IDLE_MS * ms)
            linger_end(l);
    }
}

void connection_busy(server *s, struct evhttp_connection *http)
{
    http_conn *c = find(s, http);
    if (c) set_state(c, BUSY);
}

/* What the client sent ahead is the beginning of its next request. */
void connection_done(server *s, struct evhttp_connection *http)
{
    http_conn *c = find(s, http);
    if (!c) return;
    struct evbuffer *input = bufferevent_get_input(c->bev);
    size_t ahead = evbuffer_get_length(input);
    set_state(c, IDLE);
    if (ahead) read_more(c, input, ahead);
}

void connection_set_closecb(server *s, struct evhttp_connection *http,
                            void (*closed)(struct evhttp_connection *, void *), void *arg)
{
    http_conn *c = find(s, http);
    if (!c) { /* there was no memory for a record */
        evhttp_connection_set_closecb(http, closed, arg);
        return;
    }
    c->closed = closed;
    c->closed_arg = arg;
}
