/* wire.h - bytes to and from one client's socket, in the clear or under TLS.
 *
 *     socket --wire_recv--> http_reader (connection.c)
 *     socket <--wire_send-- what connection.c says itself
 *     socket <-- bufferevent's output <--wire_output-- what evhttp adds to it
 *
 * evhttp's bufferevent writes to the socket whatever is in its output. Under TLS only records may
 * be there: what evhttp adds leaves the output in the same callback that tells of it, before
 * anything can be written, and waits in `plain`; whenever the output is empty the next records are
 * made of it, up to WIRE_SEALED_BYTES. So the output is empty when, and only when, all is out, as
 * evhttp and the rules for slow clients expect; small pieces (a line of the head each) become one
 * record; and what one turn of the loop encrypts is bounded.
 *
 * The server's thread only. */
#ifndef SERVER_WIRE_H
#define SERVER_WIRE_H

#include "server/tls.h"

#include <event2/buffer.h>
#include <stdint.h>

enum { WIRE_SEALED_BYTES = 64 << 10 };

typedef struct wire {
    int fd;
    bool moving;      /* changes of the output are ours */
    uint32_t flights; /* how often TLS has said something of its own, or for wire_send */
    tls_conn *tls;    /* NULL: in the clear */
    /* With TLS: */
    struct evbuffer *plain;   /* of the answer, no records yet */
    struct evbuffer *records; /* on their way from OpenSSL to the socket or the output */
} wire;

/* `t` NULL: in the clear. False: no memory; wire_fini is fine. */
bool wire_init(wire *w, int fd, tls *t);
void wire_fini(wire *w);

/* What is sent is read: always in the clear, with TLS once the sides know each other. */
bool wire_is_open(const wire *w);

/* As recv without waiting; room for TLS_RECORD_BYTES at least. What TLS has to say meanwhile goes
 * behind what is in `output`, or out; where it cannot the connection is at its end (EPROTO). */
ssize_t wire_recv(wire *w, struct evbuffer *output, void *bytes, size_t size);

/* All of it, at once, while the output is empty; false: only a part or nothing of it went out, and
 * nothing more can be said. */
bool wire_send(wire *w, const void *bytes, size_t len);

/* "Nothing follows": before a close after a whole answer. In the clear the close says that. */
void wire_send_end(wire *w);

/* From the output's callback: evhttp has added n bytes to it, of which the first `skip` are out
 * already; or it was written (0). Without memory the output is emptied and the socket shut down. */
void wire_output(wire *w, struct evbuffer *output, size_t n, size_t skip);

/* Bytes of the answer that are not in the socket yet. */
size_t wire_unsent(const wire *w, struct evbuffer *output);

#endif
