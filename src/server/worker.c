/* worker.c - threads for what the event loop must not wait for.
 *
 * A job is a call (its `own` item); its work runs here, and its end comes back the way the
 * engine's events do. The lists are bounded by the calls, and those by the connections.
 *
 *     list     never tried, or with more to do at once     in turn
 *     waiting  "not yet" was the answer                    one attempt RETRY_MS after the last,
 *                                                          and only while `list` is empty
 *
 * So those that wait, however many, cost one attempt now and then, and none of them stands before
 * new work. Whose time is up is done with what its last attempt found. When a stop is in a hurry
 * nothing is tried any more: what was tried answers likewise, the rest that we are stopping. */
#include "server/server_priv.h"

#include "base/timed_wait.h"

#include <malloc.h>

enum { RETRY_MS = 5 };

static call_item *pop(item_list *list)
{
    call_item *item = list->first;
    if (item) list->first = item->next;
    return item;
}

/* One that waits may be tried now. */
static bool attempt_is_due(const worker *w)
{
    return w->waiting.first && (w->server->hurry || monotonic_ns() >= w->attempt_at_ns);
}

/* The first one whose time is up, else the first. O(waiting). */
static call_item *pop_waiting(worker *w)
{
    uint64_t now_ns = server_now_ns(w->server);
    call_item *before = NULL;
    for (call_item *item = w->waiting.first; item; before = item, item = item->next) {
        if (!call_is_overdue(item->call, now_ns)) continue;
        if (before)
            before->next = item->next;
        else
            w->waiting.first = item->next;
        if (w->waiting.last == item) w->waiting.last = before;
        return item;
    }
    return pop(&w->waiting);
}

/* Until there is new work, or an attempt is due, or a stop. With the lock. */
static void rest(worker *w)
{
    if (w->waiting.first)
        (void)wait_until(&w->wake, &w->server->lock, w->attempt_at_ns);
    else
        pthread_cond_wait(&w->wake, &w->server->lock);
}

/* malloc keeps what is freed; after large requests that is most of what they took. Each arena is
 * locked while its free pages go, so it is done while there is not much of them. */
static void trim(worker *w)
{
    w->trim = false;
    pthread_mutex_unlock(&w->server->lock);
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    pthread_mutex_lock(&w->server->lock);
}

/* What to do next, NULL when there is nothing and a stop. With the lock, which it lets go of
 * while it waits. */
static call_item *next_job(worker *w)
{
    for (;;) {
        call_item *item = pop(&w->list);
        if (!item && attempt_is_due(w)) item = pop_waiting(w);
        if (item || (w->stop && !w->waiting.first)) return item;
        if (w->trim)
            trim(w);
        else
            rest(w);
    }
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    server *s = w->server;
    pthread_mutex_lock(&s->lock);
    for (call_item *item; (item = next_job(w));) {
        call *c = item->call;
        bool waited = c->waited;
        bool over = waited && call_is_overdue(c, server_now_ns(s));
        bool try = (!s->hurry || c->must_finish) && !over;
        pthread_mutex_unlock(&s->lock);
        call_progress progress = try ? c->work(c) : CALL_DONE;
        if (!try && !waited) c->not_done = true;
        c->waited = progress == CALL_WAIT;
        if (progress == CALL_DONE) call_work_done(c);
        pthread_mutex_lock(&s->lock);
        if (progress == CALL_GO_ON) item_list_push(&w->list, item);
        if (progress != CALL_WAIT) continue;
        /* One that is new puts off nobody's attempt. */
        if (waited || !w->waiting.first) w->attempt_at_ns = monotonic_in(RETRY_MS * 1000000);
        item_list_push(&w->waiting, item);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

rad_status worker_start(server *s, worker *w, rad_error *err)
{
    w->server = s;
    cond_init_monotonic(&w->wake);
    if (pthread_create(&w->thread, NULL, worker_main, w) == 0) {
        w->started = true;
        return RAD_OK;
    }
    pthread_cond_destroy(&w->wake);
    return rad_fail(err, RAD_E_IO, "server: cannot start a thread");
}

void worker_join(worker *w)
{
    if (!w->started) return;
    pthread_mutex_lock(&w->server->lock);
    w->stop = true;
    w->server->hurry = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->server->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wake);
    w->started = false;
}

void worker_push(worker *w, call_item *item)
{
    pthread_mutex_lock(&w->server->lock);
    item_list_push(&w->list, item);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->server->lock);
}

void worker_trim(worker *w)
{
    pthread_mutex_lock(&w->server->lock);
    w->trim = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->server->lock);
}

void worker_wake(worker *w)
{
    if (w->started) pthread_cond_signal(&w->wake);
}
