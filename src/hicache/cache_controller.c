/* cache_controller.c - two lanes of workers, one lock.
 *
 *     submit -> queue[kind] -> worker: run -> done -> take
 *                     \-> cancelled ---------/
 *
 * One lock guards all lists. It is held for a few pointers and never while a page moves,
 * and a transfer is many pages, so it is not where time goes.
 *
 * Invariant: a transfer between submit and take is in exactly one of: a queue, running,
 * the list of what is done; and a load is in `loads` until it is done. */
#include "hicache/cache_controller.h"

#include "base/list.h"
#include "base/timed_wait.h"

#include <stdio.h>

typedef struct list {
    transfer *first, *last;
} list;

typedef struct worker {
    cache_controller *controller;
    pthread_t thread;
    uint32_t index;
    bool stores;
} worker;

struct cache_controller {
    rad_env env;
    controller_params params;
    pthread_mutex_t lock;
    pthread_cond_t copy_work, store_work;
    pthread_cond_t progress; /* a layer arrived, or something is done */
    bool stop;
    bool scripted;    /* transfers end by controller_end alone */
    uint32_t waiters; /* for progress */
    list queue[TRANSFER_KINDS];
    atomic_uint queued[TRANSFER_KINDS];
    atomic_uint running[TRANSFER_KINDS];
    list done;
    atomic_uint num_done;
    transfer *loads;
    atomic_uint num_loads;
    worker *workers;
    uint32_t num_workers, num_started;
};

/* ---- under the lock ---- */

static void begin(cache_controller *c, transfer *t)
{
    LIST_REMOVE(&c->queue[t->kind], t, prev, next);
    atomic_fetch_sub(&c->queued[t->kind], 1);
    atomic_fetch_add(&c->running[t->kind], 1);
    t->state = TRANSFER_RUNNING;
}

static void finish(cache_controller *c, transfer *t, rad_status status)
{
    t->status = status;
    t->state = TRANSFER_DONE;
    if (t->kind == TRANSFER_LOAD) {
        *(t->prev_load ? &t->prev_load->next_load : &c->loads) = t->next_load;
        if (t->next_load) t->next_load->prev_load = t->prev_load;
        atomic_fetch_sub(&c->num_loads, 1);
    }
    LIST_APPEND(&c->done, t, prev, next);
    atomic_fetch_add(&c->num_done, 1);
    if (c->waiters) pthread_cond_broadcast(&c->progress);
}

/* It is in its queue, and nobody runs it. */
static void end_queued(cache_controller *c, transfer *t, rad_status status)
{
    LIST_REMOVE(&c->queue[t->kind], t, prev, next);
    atomic_fetch_sub(&c->queued[t->kind], 1);
    finish(c, t, status);
}

/* Runs a transfer that is in its queue; the lock is given up meanwhile. */
static void run_here(cache_controller *c, transfer *t, uint32_t index)
{
    begin(c, t);
    pthread_mutex_unlock(&c->lock);
    rad_status status = c->params.run(c->params.user, t, index);
    pthread_mutex_lock(&c->lock);
    atomic_fetch_sub(&c->running[t->kind], 1);
    finish(c, t, status);
}

/* ---- workers ---- */

static transfer *next_for(const cache_controller *c, const worker *w)
{
    if (!w->stores)
        return c->queue[TRANSFER_LOAD].first ? c->queue[TRANSFER_LOAD].first
                                             : c->queue[TRANSFER_WRITE].first;
    if (c->queue[TRANSFER_FETCH].first) return c->queue[TRANSFER_FETCH].first;
    uint32_t most = RAD_MAX(c->params.store_threads - 1, 1u);
    return atomic_load(&c->running[TRANSFER_BACKUP_STORAGE]) < most
               ? c->queue[TRANSFER_BACKUP_STORAGE].first
               : NULL;
}

static void *work(void *arg)
{
    worker *w = arg;
    cache_controller *c = w->controller;
    pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        transfer *t = next_for(c, w);
        if (!t) {
            pthread_cond_wait(w->stores ? &c->store_work : &c->copy_work, &c->lock);
            continue;
        }
        run_here(c, t, w->index);
        if (t->kind == TRANSFER_BACKUP_STORAGE)
            pthread_cond_signal(&c->store_work); /* its turn is free */
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

rad_status controller_create(const rad_env *env, const controller_params *params,
                             cache_controller **out, rad_error *err)
{
    *out = NULL;
    cache_controller *c = rad_alloc(env, sizeof *c);
    if (!c) return rad_fail(err, RAD_E_NOMEM, "cache_controller: no memory");
    c->env = *env;
    c->params = *params;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->copy_work, NULL);
    pthread_cond_init(&c->store_work, NULL);
    cond_init_monotonic(&c->progress);
    c->num_workers = params->deterministic ? 0 : params->copy_threads + params->store_threads;
    if (c->num_workers) {
        c->workers = rad_alloc(env, c->num_workers * sizeof *c->workers);
        if (!c->workers) {
            controller_destroy(c);
            return rad_fail(err, RAD_E_NOMEM, "cache_controller: no memory");
        }
    }
    for (uint32_t i = 0; i < c->num_workers; i++) {
        c->workers[i] = (worker){.controller = c, .index = i, .stores = i >= params->copy_threads};
        if (pthread_create(&c->workers[i].thread, NULL, work, &c->workers[i]) != 0) {
            controller_destroy(c);
            return rad_fail(err, RAD_E_NOMEM, "cache_controller: a thread cannot be started");
        }
        c->num_started++;
    }
    *out = c;
    return RAD_OK;
}

void controller_destroy(cache_controller *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_broadcast(&c->copy_work);
    pthread_cond_broadcast(&c->store_work);
    pthread_mutex_unlock(&c->lock);
    for (uint32_t i = 0; i < c->num_started; i++)
        pthread_join(c->workers[i].thread, NULL);
    pthread_cond_destroy(&c->copy_work);
    pthread_cond_destroy(&c->store_work);
    pthread_cond_destroy(&c->progress);
    pthread_mutex_destroy(&c->lock);
    rad_env env = c->env;
    rad_free(&env, c->workers, c->num_workers * sizeof *c->workers);
    rad_free(&env, c, sizeof *c);
}

/* ---- the owner's side ---- */

void controller_submit(cache_controller *c, transfer *t)
{
    pthread_mutex_lock(&c->lock);
    RAD_ASSERT_ENV(&c->env, t->state == TRANSFER_IDLE && !c->stop);
    atomic_store(&t->cancelled, false);
    atomic_store(&t->layers_done, 0);
    t->state = TRANSFER_QUEUED;
    LIST_APPEND(&c->queue[t->kind], t, prev, next);
    atomic_fetch_add(&c->queued[t->kind], 1);
    if (t->kind == TRANSFER_LOAD) {
        t->prev_load = NULL;
        t->next_load = c->loads;
        if (c->loads) c->loads->prev_load = t;
        c->loads = t;
        atomic_fetch_add(&c->num_loads, 1);
    }
    pthread_cond_signal(t->kind <= TRANSFER_WRITE ? &c->copy_work : &c->store_work);
    pthread_mutex_unlock(&c->lock);
}

void controller_cancel(cache_controller *c, transfer *t)
{
    pthread_mutex_lock(&c->lock);
    atomic_store(&t->cancelled, true);
    if (t->state == TRANSFER_QUEUED && !c->scripted) end_queued(c, t, RAD_NONE);
    pthread_mutex_unlock(&c->lock);
}

void controller_begin_script(cache_controller *c)
{
    RAD_ASSERT_ENV(&c->env, c->params.deterministic);
    c->scripted = true;
}

void controller_end(cache_controller *c, transfer *t, rad_status status)
{
    pthread_mutex_lock(&c->lock);
    if (t->state == TRANSFER_QUEUED) end_queued(c, t, status);
    pthread_mutex_unlock(&c->lock);
}

transfer *controller_take(cache_controller *c)
{
    if (!atomic_load(&c->num_done)) return NULL;
    pthread_mutex_lock(&c->lock);
    transfer *t = c->done.first;
    if (t) {
        LIST_REMOVE(&c->done, t, prev, next);
        atomic_fetch_sub(&c->num_done, 1);
        t->state = TRANSFER_IDLE;
    }
    pthread_mutex_unlock(&c->lock);
    return t;
}

/* One more thread sleeps until something moves. */
static void await_progress(cache_controller *c)
{
    c->waiters++;
    pthread_cond_wait(&c->progress, &c->lock);
    c->waiters--;
}

void controller_wait(cache_controller *c, transfer *t)
{
    pthread_mutex_lock(&c->lock);
    while (t->state == TRANSFER_QUEUED || t->state == TRANSFER_RUNNING)
        if (c->scripted)
            end_queued(c, t, RAD_NONE);
        else if (c->params.deterministic && t->state == TRANSFER_QUEUED)
            run_here(c, t, 0);
        else
            await_progress(c);
    pthread_mutex_unlock(&c->lock);
}

bool controller_wait_any(cache_controller *c, uint64_t timeout_ns)
{
    if (c->params.deterministic) return controller_pump(c, 0) || atomic_load(&c->num_done);
    const uint64_t end = monotonic_in(timeout_ns);
    pthread_mutex_lock(&c->lock);
    c->waiters++;
    while (!c->done.first && wait_until(&c->progress, &c->lock, end)) {
    }
    c->waiters--;
    bool any = c->done.first != NULL;
    pthread_mutex_unlock(&c->lock);
    return any;
}

bool controller_pump(cache_controller *c, uint64_t pick)
{
    pthread_mutex_lock(&c->lock);
    uint32_t queued = 0;
    for (int kind = 0; kind < TRANSFER_KINDS; kind++)
        queued += atomic_load(&c->queued[kind]);
    uint64_t left = queued ? pick % queued : 0;
    transfer *t = NULL;
    for (int kind = 0; kind < TRANSFER_KINDS && !t; kind++)
        for (t = c->queue[kind].first; t && left; t = t->next)
            left--;
    if (t) run_here(c, t, 0);
    pthread_mutex_unlock(&c->lock);
    return t != NULL;
}

/* ---- layers ---- */

void controller_layers_done(cache_controller *c, transfer *t, uint32_t layers)
{
    atomic_store(&t->layers_done, layers);
    pthread_mutex_lock(&c->lock); /* else a waiter could look before and sleep after */
    if (c->waiters) pthread_cond_broadcast(&c->progress);
    pthread_mutex_unlock(&c->lock);
}

void controller_gate(cache_controller *c, uint32_t layer)
{
    if (!atomic_load(&c->num_loads)) return;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        transfer *t = c->loads;
        while (t && atomic_load(&t->layers_done) > layer)
            t = t->next_load;
        if (!t) break;
        if (t->state == TRANSFER_QUEUED)
            run_here(c, t, UINT32_MAX);
        else
            await_progress(c);
    }
    pthread_mutex_unlock(&c->lock);
}

uint32_t controller_queued(const cache_controller *c, transfer_kind kind)
{
    return atomic_load(&c->queued[kind]);
}

uint32_t controller_running(const cache_controller *c, transfer_kind kind)
{
    return atomic_load(&c->running[kind]);
}

uint32_t controller_kept_tickets(transfer_kind kind, uint32_t most)
{
    static const uint8_t kept[TRANSFER_KINDS] = {0, 64, 32, 96}; /* of 256 */
    return (uint32_t)((uint64_t)most * kept[kind] / 256);
}

const char *transfer_name(transfer_kind kind)
{
    static const char *const names[TRANSFER_KINDS] = {"load", "write", "fetch", "backup"};
    return names[kind];
}

size_t controller_describe(const cache_controller *c, char *text, size_t bytes)
{
    size_t at = 0;
    for (transfer_kind kind = 0; kind < TRANSFER_KINDS && at < bytes; kind++)
        at += (size_t)snprintf(text + at, bytes - at, "%s: %u queued, %u running\n",
                               transfer_name(kind), controller_queued(c, kind),
                               controller_running(c, kind));
    return at;
}
