/* wire.c - see wire.h.
 *
 * Invariant, with TLS: but within a callback of its own the output holds records alone, and is not
 * empty while `plain` is not. */
#include "server/wire.h"

#include "base/base.h"

#include <errno.h>
#include <sys/socket.h>

bool wire_init(wire *w, int fd, tls *t)
{
    *w = (wire){.fd = fd};
    if (!t) return true;
    w->plain = evbuffer_new();
    w->records = evbuffer_new();
    if (w->plain && w->records) w->tls = tls_accept(t, fd, w->records);
    return w->tls != NULL;
}

void wire_fini(wire *w)
{
    tls_close(w->tls);
    if (w->plain) evbuffer_free(w->plain);
    if (w->records) evbuffer_free(w->records);
    *w = (wire){.fd = -1};
}

bool wire_is_open(const wire *w)
{
    return !w->tls || tls_is_open(w->tls);
}

static bool send_now(int fd, const void *bytes, size_t len)
{
    return send(fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)len;
}

/* What does not fit into an empty socket buffer was not going to be read. */
static bool send_records(wire *w)
{
    size_t len = evbuffer_get_length(w->records);
    const void *bytes = len ? evbuffer_pullup(w->records, -1) : NULL;
    bool sent = !len || (bytes && send_now(w->fd, bytes, len));
    evbuffer_drain(w->records, len);
    w->flights += len > 0;
    return sent;
}

/* Behind what is on its way, else the order would break. */
static bool place_records(wire *w, struct evbuffer *output)
{
    if (!evbuffer_get_length(w->records)) return true;
    if (!evbuffer_get_length(output)) return send_records(w);
    w->moving = true;
    bool placed = evbuffer_add_buffer(output, w->records) == 0;
    w->moving = false;
    return placed;
}

ssize_t wire_recv(wire *w, struct evbuffer *output, void *bytes, size_t size)
{
    if (!w->tls) return recv(w->fd, bytes, size, MSG_DONTWAIT);
    ssize_t n = tls_recv(w->tls, bytes, size);
    int why = errno;
    if (!tls_met_http(w->tls) && !place_records(w, output)) { /* an alert is nothing to him */
        n = -1;
        why = EPROTO;
    }
    errno = why;
    return n;
}

bool wire_send(wire *w, const void *bytes, size_t len)
{
    if (!w->tls) return send_now(w->fd, bytes, len);
    bool sealed = tls_write(w->tls, bytes, len);
    return send_records(w) && sealed;
}

void wire_send_end(wire *w)
{
    if (!w->tls) return;
    tls_say_end(w->tls);
    (void)send_records(w); /* the end comes with the close, too */
}

/* ---- the answer ---- */

/* Nothing of it may go out as it is, and nothing in its place. */
static void fail(wire *w, struct evbuffer *output)
{
    evbuffer_drain(output, evbuffer_get_length(output));
    evbuffer_drain(w->plain, evbuffer_get_length(w->plain));
    evbuffer_drain(w->records, evbuffer_get_length(w->records));
    shutdown(w->fd, SHUT_RDWR);
}

/* The records before the last n bytes of the output go to `front`. libevent says that it has
 * removed what it had no memory to add. */
static bool take_front(struct evbuffer *output, struct evbuffer *front, size_t sealed)
{
    return front && evbuffer_remove_buffer(output, front, sealed) == (int)sealed &&
           evbuffer_get_length(front) == sealed;
}

/* The last n bytes of the output, behind records, go to the end of `plain`. */
static bool take_tail(wire *w, struct evbuffer *output, size_t n)
{
    size_t sealed = evbuffer_get_length(output) - n;
    struct evbuffer *front = sealed ? evbuffer_new() : NULL;
    bool taken = (!sealed || take_front(output, front, sealed)) &&
                 evbuffer_add_buffer(w->plain, output) == 0 &&
                 (!sealed || evbuffer_add_buffer(output, front) == 0);
    if (front) evbuffer_free(front);
    return taken;
}

/* Records of what is in `plain` into an empty output. */
static bool seal(wire *w, struct evbuffer *output)
{
    char some[TLS_RECORD_BYTES];
    while (evbuffer_get_length(w->plain) && evbuffer_get_length(w->records) < WIRE_SEALED_BYTES) {
        ev_ssize_t n = evbuffer_remove(w->plain, some, sizeof some);
        if (n <= 0 || !tls_write(w->tls, some, (size_t)n)) return false;
    }
    return evbuffer_add_buffer(output, w->records) == 0;
}

/* What is left of n when the first bytes, which are out, are gone from the end of the output. */
static bool skip_first(struct evbuffer *output, size_t n, size_t skip)
{
    size_t there = evbuffer_get_length(output);
    RAD_ASSERT(there == n); /* nothing waits before it */
    RAD_ASSERT(skip <= n);
    return evbuffer_drain(output, skip) == 0;
}

void wire_output(wire *w, struct evbuffer *output, size_t n, size_t skip)
{
    if (!w->tls && !skip) return;
    w->moving = true;
    evbuffer_unfreeze(output, 1); /* the bufferevent lets nobody take from the front */
    bool done = !skip || skip_first(output, n, skip);
    if (w->tls) {
        if (n > skip) done = done && take_tail(w, output, n - skip);
        if (done && !evbuffer_get_length(output)) done = seal(w, output);
        if (!done) fail(w, output);
    }
    evbuffer_freeze(output, 1);
    w->moving = false;
}

size_t wire_unsent(const wire *w, struct evbuffer *output)
{
    return evbuffer_get_length(output) + (w->plain ? evbuffer_get_length(w->plain) : 0);
}
