/* connection_room.c - who may have a connection, and for how long.
 *
 * Past max_connections the connection that has waited longest without a whole request makes room;
 * past a client's own number that client's does. Where none of its own waits, the new one may ask
 * and is told so (429), and is its longest waiting one for the next that comes: so a client has one
 * more than it may at most, and hears why in its protocol's words.
 *
 * A client is known by the key of a request where keys are wanted: before that a connection is
 * nobody's, and only all connections together are limited. */
#include "server/connection_parts.h"

#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <stdlib.h>

enum { CROWDED_SEND_MS = 10000 }; /* a lagging client's time while all places are busy */

/* ---- clients ---- */

void conn_set_client(http_conn *c, client *now)
{
    if (now == c->client) return;
    client_disconnect(c->client);
    client_let_go(c->client);
    c->client = client_hold(now);
    client_connect(c->client);
}

/* Of the same client's others, the one that has waited longest. False: all are busy. */
static bool make_room(http_conn *c)
{
    for (http_conn *w = c->server->connections.waiting.first; w; w = w->next) {
        if (w == c || w->client != c->client) continue;
        evhttp_connection_free(w->http);
        return true;
    }
    return false;
}

bool connection_admit(server *s, struct evhttp_connection *http, client *by_key, api_error *err)
{
    http_conn *c = conn_find(s, http);
    if (!c) return true;
    if (by_key) conn_set_client(c, by_key);
    if (!client_is_crowded(c->client) || make_room(c)) return true;
    api_fail(err, 429, NULL,
             "this client has %u connections with requests already (--max-connections-per-client)",
             client_limits_of(c->client)->connections);
    err->code = "too_many_connections";
    return false;
}

client *connection_client(server *s, struct evhttp_connection *http)
{
    http_conn *c = conn_find(s, http);
    return c ? c->client : NULL;
}

/* Without a record, which there are more of than connections, it would be nobody's: it goes. */
static void name_by_address(http_conn *c)
{
    server *s = c->server;
    if (!s->clients || api_keys_wanted(s->params.api_keys)) return;
    client *who = clients_by_fd(s->clients, c->fd);
    conn_set_client(c, who);
    client_let_go(who);
    if (!who)
        evhttp_connection_free(c->http);
    else if (client_is_crowded(who))
        (void)make_room(c);
}

/* ---- room for all ---- */

void conn_watch_listener(server *s)
{
    if (!s->listener) return;
    if (s->connections.num_busy >= s->params.max_connections)
        evconnlistener_disable(s->listener);
    else if (!event_pending(s->accept_event, EV_TIMEOUT, NULL)) /* no pause after an error */
        evconnlistener_enable(s->listener);
}

void conn_adopt(http_conn *c)
{
    server *s = c->server;
    connections *all = &s->connections;
    struct timeval patience = {.tv_sec = s->params.send_timeout_ms / 1000,
                               .tv_usec = s->params.send_timeout_ms % 1000 * 1000};
    void *http = NULL;
    bufferevent_getcb(c->bev, NULL, NULL, NULL, &http);
    c->http = http;
    c->fd = bufferevent_getfd(c->bev);
    bool watched = http && c->fd >= 0 && conn_start(c);
    bufferevent_decref(c->bev); /* evhttp's own remains */
    if (!watched) {
        if (c->readable) event_free(c->readable);
        wire_fini(&c->wire);
        if (http) evhttp_connection_free(http);
        all->count--;
        free(c);
        return;
    }
    RAD_ASSERT(!all->by_fd[c->fd]);
    all->by_fd[c->fd] = c;
    conn_set_state(c, IDLE);
    bufferevent_set_timeouts(c->bev, NULL, &patience);
    evhttp_connection_set_closecb(c->http, conn_on_gone, c);
    name_by_address(c);
}

struct bufferevent *conn_on_accept(struct event_base *base, void *arg)
{
    server *s = arg;
    connections *all = &s->connections;
    if (all->count >= s->params.max_connections && all->waiting.first)
        evhttp_connection_free(all->waiting.first->http);
    http_conn *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->server = s;
    c->bev = bufferevent_socket_new(base, -1, 0);
    if (!c->bev) {
        free(c);
        return NULL;
    }
    http_reader_init(&c->reader, &all->limits);
    bufferevent_incref(c->bev);
    all->count++;
    c->next = all->newborn;
    all->newborn = c;
    event_active(all->later, EV_TIMEOUT, 1);
    return c->bev;
}

/* ---- time ---- */

/* The answer waits for its client, whose time is over when it waited long for what was taken. What
 * is there at a tick may have been written a moment ago: the client lags when it has not taken by
 * now what was there at the tick before. */
static bool lags(http_conn *c, uint64_t passed_ms)
{
    const server *s = c->server;
    uint64_t patience_ms = s->params.send_timeout_ms;
    bool lagged = c->taken - c->taken_at_tick < c->unsent_at_tick;
    c->taken_at_tick = c->taken;
    c->unsent_at_tick = wire_unsent(&c->wire, bufferevent_get_output(c->bev));
    if (!lagged) return false;
    c->lag_ms += passed_ms;
    if (s->connections.num_busy >= s->params.max_connections && patience_ms > CROWDED_SEND_MS)
        patience_ms = CROWDED_SEND_MS;
    return c->lag_ms > patience_ms + c->taken * 1000 / s->params.min_bytes_per_s;
}

static void tick_busy(http_conn *c, uint64_t passed_ms)
{
    if (lags(c, passed_ms))
        conn_drop(c);
    else if (c->ended)
        conn_probe(c);
}

static void tick_waiting(http_conn *c, uint64_t now_ns)
{
    const server_params *p = &c->server->params;
    uint64_t waited_ms = now_ns > c->since_ns ? (now_ns - c->since_ns) / 1000000 : 0;
    api_error err;
    if (c->state == IDLE && waited_ms > p->keep_alive_ms) {
        evhttp_connection_free(c->http);
    } else if (c->state == READING &&
               waited_ms > p->request_timeout_ms + c->bytes * 1000 / p->min_bytes_per_s) {
        api_fail(&err, 408, NULL, "the request did not come within %u seconds",
                 (p->request_timeout_ms + 999) / 1000);
        conn_refuse(c, &err);
    }
}

void connections_tick(server *s, uint64_t now_ns)
{
    connections *all = &s->connections;
    uint64_t passed_ms = all->ticked_ns ? (now_ns - all->ticked_ns) / 1000000 : 0;
    all->ticked_ns = now_ns;
    for (size_t i = 0; i < all->num_fds; i++) {
        http_conn *c = all->by_fd[i];
        if (c && c->state == BUSY)
            tick_busy(c, passed_ms);
        else if (c)
            tick_waiting(c, now_ns);
    }
    linger_tick(s, now_ns);
}
