/* engine_populate.c - see the header. */
#include "engine/engine_populate.h"

#include "base/available.h"
#include "base/compute_pool.h"
#include "engine/engine_impl.h"

enum { HUGE_PAGE = 2 << 20, LEFT_TO_OTHERS = 256 << 20 };

void engine_populate_init(engine_populate *p)
{
    *p = (engine_populate){.available = memory_available};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->asleep, NULL);
}

void engine_populate_fini(engine_populate *p)
{
    pthread_cond_destroy(&p->asleep);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
}

static const char *why_not(rad_status status)
{
    switch (status) {
    case RAD_E_UNSUPPORTED: return "this kernel gives none before (Linux 5.14 does)";
    case RAD_FULL: return "little more is available";
    default: return "the kernel gave none before";
    }
}

/* Slots [begin, end) of every layer. RAD_AGAIN: it was interrupted, and some may not be ready. */
static rad_status populate_slots(engine_populate *p, size_t begin, size_t end)
{
    const rad_token_to_kv_pool_params *params = rad_kv_pool_params(p->pool);
    const size_t bytes = (end - begin) * p->token_bytes +
                         (size_t)params->num_layers * 2 * HUGE_PAGE; /* rounded up */
    const uint64_t available = p->available();
    if (available && available < bytes + LEFT_TO_OTHERS) return RAD_FULL;
    rad_status status = RAD_OK;
    for (uint32_t i = 0; i < params->num_layers && status == RAD_OK; i++) {
        if (!atomic_load(&p->idle) || atomic_load(&p->stop)) return RAD_AGAIN;
        status = rad_kv_pool_populate(p->pool, params->start_layer + i, begin, end - begin);
    }
    return status;
}

/* With the lock. */
static bool is_done(engine_populate *p)
{
    p->ready = RAD_MAX(p->ready, p->used); /* written meanwhile */
    return p->ended || p->refused || p->ready >= p->wanted;
}

/* With the lock, which it lets go meanwhile. */
static void populate_step(engine_populate *p)
{
    const size_t begin = p->ready, end = RAD_MIN(begin + p->step, p->wanted);
    pthread_mutex_unlock(&p->lock);
    rad_status status = populate_slots(p, begin, end);
    const bool failed = status != RAD_OK && status != RAD_AGAIN;
    if (failed && !p->told_why)
        rad_log(p->env, RAD_LOG_INFO,
                "engine: from slot %zu of %zu on the KV pool's memory comes when it is written: %s",
                begin, p->num_slots, why_not(status));
    p->told_why |= failed;
    pthread_mutex_lock(&p->lock);
    if (status == RAD_OK) p->ready = RAD_MAX(p->ready, end);
    p->refused = status == RAD_FULL;
    p->ended = failed && !p->refused;
}

static void *populate_main(void *arg)
{
    engine_populate *p = arg;
    pthread_mutex_lock(&p->lock);
    while (!atomic_load(&p->stop) && !p->ended) {
        const bool done = is_done(p);
        if (done) pthread_cond_broadcast(&p->asleep);
        if (done || !atomic_load(&p->idle))
            pthread_cond_wait(&p->wake, &p->lock);
        else
            populate_step(p);
    }
    pthread_cond_broadcast(&p->asleep);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

rad_status engine_populate_start(engine_populate *p, const rad_env *env, rad_token_to_kv_pool *pool,
                                 uint64_t ahead_bytes, rad_error *err)
{
    const rad_token_to_kv_pool_params *params = rad_kv_pool_params(pool);
    rad_kv_buffers first;
    if (!ahead_bytes || rad_kv_pool_get_buffers(pool, params->start_layer, &first) != RAD_OK)
        return RAD_OK;
    p->env = env;
    p->pool = pool;
    p->token_bytes = rad_kv_pool_bytes_per_token(params);
    p->num_slots = rad_kv_pool_size_bytes(pool) / p->token_bytes;
    p->ahead = (size_t)RAD_MIN(ahead_bytes / p->token_bytes, p->num_slots);
    p->step = RAD_MAX(HUGE_PAGE / first.k_stride, 1u);
    p->tell = RAD_MAX(RAD_MIN(p->step, p->ahead / 4), 1u);
    p->wanted = p->ahead;
    if (compute_thread_create(&p->thread, populate_main, p))
        return rad_fail(err, RAD_E_NOMEM, "engine: no more threads");
    p->started = true;
    return RAD_OK;
}

void engine_populate_stop(engine_populate *p)
{
    if (!p->started) return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stop, true);
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    p->started = false;
}

void engine_populate_follow(engine_populate *p, size_t used, bool idle)
{
    if (!p->started) return;
    const bool was_idle = atomic_exchange(&p->idle, idle);
    const bool grown = used >= p->used + p->tell; /* nobody else writes it */
    if (!grown && idle <= was_idle) return;
    pthread_mutex_lock(&p->lock);
    if (grown) p->used = used;
    p->wanted = RAD_MIN(p->used + p->ahead, p->num_slots);
    p->refused = false; /* another try */
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

bool engine_populate_wait(engine_populate *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->started && !atomic_load(&p->stop) && !is_done(p))
        pthread_cond_wait(&p->asleep, &p->lock);
    const bool ready = p->ready >= p->wanted;
    pthread_mutex_unlock(&p->lock);
    return ready;
}

uint64_t engine_populate_bytes(engine_populate *p)
{
    if (!p->started) return 0;
    pthread_mutex_lock(&p->lock);
    size_t slots = RAD_MAX(p->ready, p->used);
    pthread_mutex_unlock(&p->lock);
    return slots * p->token_bytes;
}
