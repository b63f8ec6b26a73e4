/* linger.c - a socket that stays a while after its connection is over.
 *
 * Closing a socket with unread input resets it, and a reset destroys the answer on its way. So a
 * copy of the descriptor stays behind, what still comes is read and dropped, and it is closed
 * when the client closes, says nothing for LINGER_IDLE_MS, or LINGER_MS are over. At most
 * MOST_LINGERING of them. */
#include "base/list.h"
#include "server/server_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MOST_LINGERING = 256,
    LINGER_MS = 10000,    /* in all */
    LINGER_IDLE_MS = 1000 /* without a byte */
};

struct lingerer {
    server *server;
    int fd;
    uint64_t since_ns, last_ns;
    struct event *event;
    lingerer *prev, *next;
};

static void end(lingerer *l)
{
    connections *all = &l->server->connections;
    LIST_REMOVE(&all->lingering, l, prev, next);
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
        end(l);
}

void linger(server *s, int fd)
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
    LIST_APPEND(&all->lingering, l, prev, next);
    all->num_lingering++;
}

void linger_tick(server *s, uint64_t now_ns)
{
    const uint64_t ms = 1000000;
    for (lingerer *l = s->connections.lingering.first, *next; l; l = next) {
        next = l->next;
        if (now_ns > l->since_ns + LINGER_MS * ms || now_ns > l->last_ns + LINGER_IDLE_MS * ms)
            end(l);
    }
}

void linger_fini(server *s)
{
    while (s->connections.lingering.first)
        end(s->connections.lingering.first);
}
