/* engine_store.c - opens, clears, closes and asks a store, beside the scheduler.
 *
 *     clear     scheduler: hold -> here: ops->clear -> scheduler: release
 *     attach    here: digest of the model, open -> scheduler: identify, attach
 *     detach    scheduler: detach -> here: close
 *     look      here: ops->get_stats
 *
 * What the scheduler does of it is a few pointers. Whoever asked may stop waiting; the change
 * goes on, and its outcome is kept for a while.
 *
 * Invariant: e->tiers.store and has_store are changed by this thread only while it runs, under the
 * lock, so no store is closed under a call of it from here, nor while it is told to end. */
#include "engine/engine_impl.h"

#include <stddef.h>
#include <stdio.h>
#include <time.h>

enum { RETRY_MS = 5 };

static uint64_t now(const engine *e)
{
    return e->env.now_ns(e->env.user);
}

/* ---- on the scheduler's thread ---- */

/* What a change hands over, and what comes back. */
typedef struct errand {
    rad_status status;
    uint32_t tiers;
    bool cleared;
    rad_storage store;
    const rad_storage_identity *identity;
    rad_error *err;
} errand;

/* Other tiers go first: they want an idle scheduler, and until then the store need not be held. */
static void do_hold(engine *e, void *user)
{
    errand *x = user;
    uint32_t others = x->tiers & ~(uint32_t)RAD_TIER_STORAGE;
    x->status = others ? scheduler_flush_tiers(e->scheduler, others, x->err) : RAD_OK;
    if (!x->status) x->tiers = RAD_TIER_STORAGE;
    if (!x->status) x->status = scheduler_hold_storage(e->scheduler, &x->store, x->err);
}

static void do_release(engine *e, void *user)
{
    scheduler_release_storage(e->scheduler, ((errand *)user)->cleared);
}

static void do_attach(engine *e, void *user)
{
    errand *x = user;
    x->status = scheduler_identify_storage(e->scheduler, x->identity, x->err);
    if (!x->status) x->status = scheduler_attach_storage(e->scheduler, &x->store, x->err);
}

static void do_detach(engine *e, void *user)
{
    errand *x = user;
    x->status = scheduler_detach_storage(e->scheduler, &x->store, x->err);
}

/* Tries until nothing is in the way, or for wait_ns. */
static rad_status try_for(engine *e, void (*fn)(engine *e, void *user), errand *x, uint64_t wait_ns)
{
    uint64_t begin = now(e);
    for (;;) {
        rad_status gone = engine_run_on_scheduler(e, fn, x);
        if (gone) return rad_fail(x->err, gone, "the engine is ending");
        if (x->status != RAD_AGAIN || now(e) - begin >= wait_ns) return x->status;
        pthread_mutex_lock(&e->store.lock);
        bool stop = e->store.stop;
        pthread_mutex_unlock(&e->store.lock);
        if (stop) return RAD_AGAIN;
        nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000}, NULL);
    }
}

/* ---- on the store's thread ---- */

static rad_status clear(engine *e, const engine_store_change *change, rad_error *err)
{
    errand x = {.tiers = change->tiers, .err = err};
    if (!e->tiers.has_store || !e->tiers.store.ops->clear)
        return rad_fail(err, RAD_E_UNSUPPORTED, "no storage, or none that can be cleared");
    rad_status status = try_for(e, do_hold, &x, change->wait_ns);
    if (!status) {
        status = x.store.ops->clear(x.store.self, err);
        x.cleared = true; /* some of it, where it failed */
    }
    (void)engine_run_on_scheduler(e, do_release, &x);
    return status;
}

static rad_status attach(engine *e, const engine_store_change *change, rad_error *err)
{
    errand x = {.identity = &e->tiers.identity, .err = err};
    rad_status status = RAD_OK;
    if (e->tiers.has_store)
        status = rad_fail(err, RAD_AGAIN, "hicache: a store is attached, or is being let go");
    if (!status) status = engine_tiers_identify(&e->tiers, err);
    if (!status)
        status = engine_store_open(&e->env,
                                   &(engine_store_words){.spec = change->spec,
                                                         .extra_config = change->extra_config,
                                                         .mode = e->tiers.mode,
                                                         .from_client = true},
                                   &x.store, err);
    if (!status) status = try_for(e, do_attach, &x, change->wait_ns);
    if (!status) {
        pthread_mutex_lock(&e->store.lock);
        e->tiers.store = x.store;
        e->tiers.has_store = true;
        pthread_mutex_unlock(&e->store.lock);
    } else if (x.store.ops && x.store.ops->close) {
        x.store.ops->close(x.store.self);
    }
    return status;
}

static rad_status detach(engine *e, const engine_store_change *change, rad_error *err)
{
    errand x = {.err = err};
    if (!e->tiers.has_store) return RAD_NONE;
    rad_status status = try_for(e, do_detach, &x, change->wait_ns);
    if (status) return status;
    pthread_mutex_lock(&e->store.lock);
    e->tiers.has_store = false;
    pthread_mutex_unlock(&e->store.lock);
    if (x.store.ops->close) x.store.ops->close(x.store.self);
    return RAD_OK;
}

static rad_status make_change(engine *e, const engine_store_change *change, rad_error *err)
{
    switch (change->kind) {
    case ENGINE_STORE_CLEAR: return clear(e, change, err);
    case ENGINE_STORE_ATTACH: return attach(e, change, err);
    default: return detach(e, change, err);
    }
}

static void ask(engine *e, rad_storage_stats *stats)
{
    const rad_storage *store = &e->tiers.store;
    *stats = (rad_storage_stats){0};
    if (e->tiers.has_store && store->ops->get_stats) store->ops->get_stats(store->self, stats);
}

/* Under the lock: the change has ended, and is told. */
static void end_change(engine *e, rad_status status, const rad_error *err)
{
    engine_store *s = &e->store;
    uint32_t at = s->ticket % STORE_RESULTS;
    s->results[at].ticket = s->ticket;
    s->results[at].status = status;
    s->results[at].err = *err;
    bool was = s->known.attached;
    s->known.attached = e->tiers.has_store;
    if (!s->known.attached)
        s->known.spec[0] = 0;
    else if (!was)
        snprintf(s->known.spec, sizeof s->known.spec, "%s", s->change.spec);
    if (was != s->known.attached) s->known.store = (rad_storage_stats){0};
    rad_free(&e->env, s->words, s->words_bytes);
    s->words = NULL;
    s->busy = false;
    pthread_cond_broadcast(&s->ended);
}

static void *store_main(void *arg)
{
    engine *e = arg;
    engine_store *s = &e->store;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->stop && !s->busy && s->wanted == s->heard)
            pthread_cond_wait(&s->wake, &s->lock);
        if (s->stop) break;
        if (s->busy) {
            rad_error err = {0};
            pthread_mutex_unlock(&s->lock); /* nobody touches a change that is under way */
            rad_status status = make_change(e, &s->change, &err);
            pthread_mutex_lock(&s->lock);
            end_change(e, status, &err);
            continue;
        }
        uint64_t look = s->wanted;
        rad_storage_stats stats;
        pthread_mutex_unlock(&s->lock);
        ask(e, &stats);
        pthread_mutex_lock(&s->lock);
        s->known.store = stats;
        s->heard = look;
        s->heard_ns = now(e);
        pthread_cond_broadcast(&s->ended);
    }
    if (s->busy) {
        rad_error err = {0};
        end_change(e, rad_fail(&err, RAD_E_STATE, "the engine is ending"), &err);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- life ---- */

void engine_store_init(engine *e)
{
    pthread_mutex_init(&e->store.lock, NULL);
    pthread_cond_init(&e->store.wake, NULL);
    pthread_cond_init(&e->store.ended, NULL);
}

rad_status engine_store_start(engine *e, rad_error *err)
{
    engine_store *s = &e->store;
    s->known = (engine_storage_status){.enabled = e->tiers.enabled, .attached = e->tiers.has_store};
    if (!e->tiers.enabled) return RAD_OK;
    if (s->known.attached) snprintf(s->known.spec, sizeof s->known.spec, "%s", e->tiers.spec);
    ask(e, &s->known.store);
    s->heard_ns = now(e);
    if (compute_thread_create(&s->thread, store_main, e))
        return rad_fail(err, RAD_E_NOMEM, "engine: no more threads");
    s->started = true;
    return RAD_OK;
}

/* Under the lock. A store that is walked through page by page would keep us for a minute. */
static void end_clear(engine *e)
{
    const rad_storage_ops *ops = e->tiers.has_store ? e->tiers.store.ops : NULL;
    size_t needed = offsetof(rad_storage_ops, end_clear) + sizeof ops->end_clear;
    if (ops && ops->struct_size >= needed && ops->end_clear) ops->end_clear(e->tiers.store.self);
}

void engine_store_stop(engine *e)
{
    engine_store *s = &e->store;
    if (!s->started) return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    end_clear(e);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    s->started = false;
}

void engine_store_fini(engine *e)
{
    pthread_cond_destroy(&e->store.ended);
    pthread_cond_destroy(&e->store.wake);
    pthread_mutex_destroy(&e->store.lock);
}

/* ---- doors ---- */

/* The words of a change in one block; NULL and 0 where there are none. */
static rad_status copy_words(engine *e, const engine_store_change *change, char **words,
                             size_t *bytes, rad_error *err)
{
    *words = NULL;
    *bytes = 0;
    if (change->kind != ENGINE_STORE_ATTACH) return RAD_OK;
    if (!change->spec || strlen(change->spec) >= sizeof e->store.known.spec)
        return rad_fail(err, RAD_E_INVAL, "hicache: a storage backend is missing, or too long");
    size_t spec = strlen(change->spec) + 1;
    size_t extra = change->extra_config ? strlen(change->extra_config) + 1 : 0;
    *bytes = spec + extra;
    *words = rad_alloc(&e->env, *bytes);
    if (!*words) return rad_fail(err, RAD_E_NOMEM, "engine: no memory");
    memcpy(*words, change->spec, spec);
    if (extra) memcpy(*words + spec, change->extra_config, extra);
    return RAD_OK;
}

rad_status engine_store_begin(engine *e, const engine_store_change *change, uint64_t *ticket,
                              rad_error *err)
{
    engine_store *s = &e->store;
    char *words;
    size_t bytes;
    *ticket = 0;
    if (!s->started)
        return rad_fail(err, RAD_E_UNSUPPORTED, "the server runs without a hierarchical cache");
    rad_status status = copy_words(e, change, &words, &bytes, err);
    if (status) return status;
    pthread_mutex_lock(&s->lock);
    if (s->busy || s->stop) {
        status =
            rad_fail(err, RAD_FULL, "the store is already being attached, cleared or detached");
    } else {
        s->change = *change;
        s->words = words;
        s->words_bytes = bytes;
        s->change.spec = words;
        s->change.extra_config = words && change->extra_config ? words + strlen(words) + 1 : NULL;
        s->busy = true;
        s->busy_since_ns = now(e);
        *ticket = ++s->ticket;
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    if (status) rad_free(&e->env, words, bytes);
    return status;
}

/* Under the lock. */
static bool has_ended(const engine_store *s, uint64_t ticket, rad_status *status, rad_error *err)
{
    uint32_t at = ticket % STORE_RESULTS;
    if (s->busy && ticket == s->ticket) return false;
    bool known = ticket && s->results[at].ticket == ticket;
    *status = known ? s->results[at].status : RAD_NONE;
    if (known && *status && err) *err = s->results[at].err;
    return true;
}

bool engine_store_ended(engine *e, uint64_t ticket, rad_status *status, rad_error *err)
{
    pthread_mutex_lock(&e->store.lock);
    bool ended = has_ended(&e->store, ticket, status, err);
    pthread_mutex_unlock(&e->store.lock);
    return ended;
}

static rad_status change_and_wait(engine *e, const engine_store_change *change, rad_error *err)
{
    uint64_t ticket;
    rad_status status = engine_store_begin(e, change, &ticket, err);
    if (status) return status;
    pthread_mutex_lock(&e->store.lock);
    while (!has_ended(&e->store, ticket, &status, err))
        pthread_cond_wait(&e->store.ended, &e->store.lock);
    pthread_mutex_unlock(&e->store.lock);
    return status;
}

static void do_flush(engine *e, void *user)
{
    errand *x = user;
    x->status = scheduler_flush_tiers(e->scheduler, x->tiers, x->err);
}

rad_status engine_flush_tiers(engine *e, uint32_t tiers, rad_error *err)
{
    if (tiers & RAD_TIER_STORAGE)
        return change_and_wait(
            e, &(engine_store_change){.kind = ENGINE_STORE_CLEAR, .tiers = tiers}, err);
    errand x = {.tiers = tiers, .err = err};
    return try_for(e, do_flush, &x, 0);
}

rad_status engine_attach_storage(engine *e, const char *spec, const char *extra_config,
                                 rad_error *err)
{
    return change_and_wait(e,
                           &(engine_store_change){.kind = ENGINE_STORE_ATTACH,
                                                  .spec = spec,
                                                  .extra_config = extra_config},
                           err);
}

rad_status engine_detach_storage(engine *e, rad_error *err)
{
    return change_and_wait(e, &(engine_store_change){.kind = ENGINE_STORE_DETACH}, err);
}

uint64_t engine_store_look(engine *e)
{
    engine_store *s = &e->store;
    pthread_mutex_lock(&s->lock);
    uint64_t look = ++s->wanted;
    if (!s->started) s->heard = s->wanted; /* there is nobody to ask */
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    return look;
}

bool engine_store_looked(engine *e, uint64_t look)
{
    pthread_mutex_lock(&e->store.lock);
    bool heard = e->store.heard >= look;
    pthread_mutex_unlock(&e->store.lock);
    return heard;
}

void engine_get_storage_status(engine *e, engine_storage_status *status)
{
    engine_store *s = &e->store;
    pthread_mutex_lock(&s->lock);
    *status = s->known;
    status->store_age_ns = now(e) - s->heard_ns;
    if (s->busy) {
        status->busy = s->change.kind;
        status->busy_ns = now(e) - s->busy_since_ns;
    }
    pthread_mutex_unlock(&s->lock);
}
