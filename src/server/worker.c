/* worker.c - threads for what the event loop must not wait for.
 *
 * A job is an item of a call; ops->work runs here, and its end comes back the way the
 * engine's events do. Work that says "not yet" goes to the end of the list and is tried
 * again, so that one job that waits does not hold up the others. The list is bounded by the
 * calls, and those by the connections. */
#include "server/server_priv.h"

#include <time.h>

static void push(worker *w, call_item *item)
{
    item->next = NULL;
    if (w->list)
        w->last->next = item;
    else
        w->list = item;
    w->last = item;
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    server *s = w->server;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!w->list && !w->stop)
            pthread_cond_wait(&w->wake, &s->lock);
        call_item *item = w->list;
        if (!item) break;
        w->list = item->next;
        bool hurry = s->hurry;
        pthread_mutex_unlock(&s->lock);
        bool done = item->call->ops->work(item->call) || hurry;
        if (done)
            call_work_done(item->call);
        else
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        pthread_mutex_lock(&s->lock);
        if (!done) push(w, item);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

rad_status worker_start(server *s, worker *w, rad_error *err)
{
    w->server = s;
    pthread_cond_init(&w->wake, NULL);
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
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->server->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wake);
    w->started = false;
}

void worker_push(worker *w, call_item *item)
{
    pthread_mutex_lock(&w->server->lock);
    push(w, item);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->server->lock);
}
