/* connection.h - what evhttp does not do for its connections: limits in time and number.
 *
 *     accept -> IDLE --first byte--> READING --whole request--> BUSY --answer is out--> IDLE
 *                |                     |                          |
 *                keep-alive timeout    request timeout: 408       the call watches over it
 *
 * evhttp's own timeouts begin anew with every byte, so a client that sends one a minute
 * would stay for ever. Here a request has one deadline from its first byte to its last,
 * which moves by what has come (MIN_BYTES_PER_S). Past max_connections the connection that has
 * waited longest without a whole request makes room, so that those who hold many cannot keep
 * others out; only when all are busy do new ones wait in the kernel.
 *
 * evhttp answers broken requests in HTML; those answers are replaced by our JSON here, and
 * what the client still sends is read and dropped for a while, so that it gets to see them.
 *
 * The server's thread only. */
#ifndef SERVER_CONNECTION_H
#define SERVER_CONNECTION_H

#include "server/server.h"

#include <event2/http.h>

typedef struct http_conn http_conn;
typedef struct lingerer lingerer;

typedef struct connections {
    http_conn **by_fd; /* NULL where there is none */
    size_t num_fds;
    uint32_t count;             /* all of them */
    uint32_t num_busy;          /* with a request that we answer */
    http_conn *oldest, *newest; /* not busy, by when they began to wait */
    http_conn *newborn;         /* accepted; evhttp is not done with them */
    http_conn *refused;         /* evhttp wrote an answer of its own */
    lingerer *lingering;        /* answered and closed; what they send is dropped */
    uint32_t num_lingering;
    struct event *later; /* newborn and refused are looked at */
} connections;

/* Hooks into s->http. connections_fini comes after evhttp_free; fine if init never was. */
rad_status connections_init(server *s, rad_error *err);
void connections_fini(server *s);

/* Ends what is past its deadline. O(connections); from the tick. */
void connections_tick(server *s, uint64_t now_ns);

/* evhttp handed us a whole request; and its answer is out. */
void connection_busy(server *s, struct evhttp_connection *http);
void connection_done(server *s, struct evhttp_connection *http);

/* As evhttp_connection_set_closecb, which belongs to this file; NULL: nobody is told. */
void connection_set_closecb(server *s, struct evhttp_connection *http,
                            void (*closed)(struct evhttp_connection *, void *), void *arg);

#endif
