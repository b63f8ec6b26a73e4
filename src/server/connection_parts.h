/* connection_parts.h - what the two files of a connection ask of each other.
 *
 *     connection_room.c -> connection.c -> evhttp
 *     who may have one,    what is read,
 *     and how long         and said */
#ifndef SERVER_CONNECTION_PARTS_H
#define SERVER_CONNECTION_PARTS_H

#include "server/server_priv.h"
#include "server/wire.h"

typedef enum state { NEWBORN, IDLE, READING, BUSY } state;

struct http_conn {
    server *server;
    struct bufferevent *bev;
    struct evhttp_connection *http;
    struct event *readable;
    wire wire;
    int fd;
    state state;
    bool is_due;       /* in that list */
    bool refused;      /* evhttp wrote an answer of its own */
    bool ended;        /* the client has shut down its side */
    bool probed;       /* and was looked at since */
    bool answering;    /* output has begun */
    bool early;        /* the answer's first byte is out before it */
    bool last;         /* after this request nothing is read */
    bool ignored;      /* but came all the same */
    uint64_t since_ns; /* in IDLE: idle since; in READING: its first byte */
    uint64_t bytes;    /* of the request that is being read */
    uint64_t lag_ms;   /* for how long the answer has waited for the client, in all */
    uint64_t taken;    /* bytes of it */
    uint64_t taken_at_tick, unsent_at_tick; /* at the last one: those taken, those in the buffer */
    http_reader reader;
    struct evbuffer *body;  /* of the request that is being read; NULL: none so far */
    struct evbuffer *ahead; /* what came after the request that is answered; NULL: nothing */
    client *client;         /* whose it is; NULL: nobody's yet, or there are no limits */
    http_conn *prev, *next;
    http_conn *prev_due, *next_due;
    void (*closed)(struct evhttp_connection *, void *); /* or NULL */
    void *closed_arg;
};

/* ---- connection.c ---- */
http_conn *conn_find(server *s, struct evhttp_connection *http); /* NULL: it has no record */
void conn_set_state(http_conn *c, state to);
/* evhttp learns that the client is gone and frees the connection. */
void conn_drop(http_conn *c);
/* Says what is wrong, and hangs up. Not while BUSY. */
void conn_refuse(http_conn *c, const api_error *err);
/* Who shut down its side and has a reset behind it, or an error, is gone. */
void conn_probe(http_conn *c);
/* False: the connection cannot be watched over, and evhttp must not have it either. */
bool conn_start(http_conn *c);
void conn_on_gone(struct evhttp_connection *http, void *arg); /* evhttp's closecb */

/* ---- connection_room.c ---- */
/* With every place busy there is nobody to make room: the others wait in the kernel. */
void conn_watch_listener(server *s);
void conn_adopt(http_conn *c); /* evhttp has set it up */
/* evhttp has accepted and asks for a bufferevent. With NULL it makes its own, on which only one
 * request is answered (connection_busy). */
struct bufferevent *conn_on_accept(struct event_base *base, void *arg);
void conn_set_client(http_conn *c, client *now); /* holds it; NULL is fine */

#endif
