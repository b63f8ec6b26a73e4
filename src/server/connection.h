/* connection.h - what stands between a socket and evhttp: one strict reading, and limits.
 *
 *     accept -> IDLE --first byte--> READING --whole request--> BUSY --answer is out--> IDLE
 *                |                     |                          |
 *                keep-alive timeout    request timeout: 408       the client takes too long: closed
 *
 * evhttp takes much for a request that is none, and leaves the bodies of some methods on the
 * connection, where they are the next request: behind a proxy that is another client's. So it does
 * not read here. We do, by http_reader.h, and evhttp gets whole requests, one at a time and
 * written anew; what is refused never reaches it and is answered by us, as JSON, after which the
 * connection ends. What a client sends ahead waits here, in order and up to a limit.
 *
 * A request has one deadline from its first byte to its last, which moves by what has come
 * (min_bytes_per_s), and so has the time in which an answer waits for its client. Past
 * max_connections the connection that has waited longest without a whole request makes room, so
 * that those who hold many cannot keep others out (and so within a client's own number); when all
 * are busy new ones wait in the kernel, and those whose clients do not take their answers are given
 * up sooner.
 *
 * A client may shut down its side after its request and gets its answer all the same. One that
 * is gone looks alike until something is sent: so it is sent the first byte of the answer, which
 * is always the same, and answers with a reset if it is gone.
 *
 * The server's thread only. */
#ifndef SERVER_CONNECTION_H
#define SERVER_CONNECTION_H

#include "server/clients.h"
#include "server/http_reader.h"
#include "server/json_in.h"
#include "server/server.h"

#include <event2/http.h>

typedef struct http_conn http_conn;
typedef struct lingerer lingerer;

typedef struct conn_list {
    http_conn *first, *last;
} conn_list;

typedef struct connections {
    http_conn **by_fd; /* NULL where there is none */
    size_t num_fds;
    uint32_t count;     /* all of them */
    uint32_t num_busy;  /* with a request that we answer */
    conn_list waiting;  /* not busy, by when they began to wait */
    conn_list due;      /* looked at in the next turn of the loop */
    http_conn *newborn; /* accepted; evhttp is not done with them */
    struct {
        lingerer *first, *last;
    } lingering; /* answered and closed; what they send is dropped */
    uint32_t num_lingering;
    struct event *later; /* newborn and due are looked at */
    struct event *probe; /* who shut down its side: is it gone? */
    http_limits limits;
    uint64_t ticked_ns;
} connections;

/* Hooks into s->http. connections_fini comes after evhttp_free; fine if init never was. */
rad_status connections_init(server *s, rad_error *err);
void connections_fini(server *s);

/* Ends what is past its deadline. O(descriptors); from the tick. */
void connections_tick(server *s, uint64_t now_ns);

/* evhttp handed us a whole request; false: nobody watches over its connection (there was no memory
 * when it came), so it must be the last one there. And its answer is out. */
bool connection_busy(server *s, struct evhttp_connection *http);
void connection_done(server *s, struct evhttp_connection *http);

/* A request came on it, with the key of that client, or with none (NULL): its client has not too
 * many connections. False: a 429 in err. */
bool connection_admit(server *s, struct evhttp_connection *http, client *by_key, api_error *err);
client *connection_client(server *s, struct evhttp_connection *http); /* or NULL */

/* Bytes of its answer that are not in the socket yet. */
size_t connection_unsent(server *s, struct evhttp_connection *http);

/* As evhttp_connection_set_closecb, which belongs to this file; NULL: nobody is told. */
void connection_set_closecb(server *s, struct evhttp_connection *http,
                            void (*closed)(struct evhttp_connection *, void *), void *arg);

/* ---- linger.c ---- */

/* Reads and drops what still comes on a copy of fd, so that closing fd destroys no answer on its
 * way. Without memory, or with many already, that may happen. */
void linger(server *s, int fd);
void linger_tick(server *s, uint64_t now_ns);
void linger_fini(server *s);

#endif
