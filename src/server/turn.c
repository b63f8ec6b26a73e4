/* turn.c - how much is done before the event loop looks at others again.
 *
 * libevent calls back for all that is ready before it polls once more, so a turn is as long as the
 * sum of what its callbacks do: a hundred bodies of 30 KB that came together are three megabytes
 * of JSON. Each callback that does work which depends on what a client sent says how much. What a
 * turn has no place for goes to a worker (parsing, writing) or stays in its list (events).
 *
 * A timer of no time ends the turn: it is called in the next one, at the latest after what came in
 * there, so that what counts as one turn is one or two. */
#include "server/server_priv.h"

static void on_over(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    ((server *)arg)->turn.units = 0;
}

rad_status turn_init(server *s, rad_error *err)
{
    s->turn.over = event_new(s->base, -1, 0, on_over, s);
    return s->turn.over ? RAD_OK : rad_fail(err, RAD_E_NOMEM, "server: no memory");
}

void turn_fini(server *s)
{
    if (s->turn.over) event_free(s->turn.over);
}

bool turn_has(const server *s, uint64_t units)
{
    return s->turn.units + units <= TURN_UNITS;
}

void turn_spend(server *s, uint64_t units)
{
    static const struct timeval now = {0};
    if (!s->turn.units && event_add(s->turn.over, &now) != 0) return; /* it would never end */
    s->turn.units += units;
    s->turn.most = RAD_MAX(s->turn.most, s->turn.units);
}

uint64_t server_most_per_turn(const server *s)
{
    return s->turn.most;
}
