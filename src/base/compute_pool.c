/* compute_pool.c - ranges to claim tiles from, and a count of what is done.
 *
 *     owner:   fn, arg = ...                worker:  round, until it is another one
 *              done = 0                              CAS a range: next -> next + 1
 *              ranges = all tiles                    fn(arg, next)
 *              round += 1             ---->          ... until all ranges are empty
 *              ... claims tiles too ...              done += the tiles it ran
 *              waits for done == the others' tiles  <----
 *
 * A region has one range that all claim from, or, a `near` one, a range for each thread, which
 * takes the next tile of its own or, when that is used up, the last of another's:
 *
 *     range of thread 0  | . . 2 3 4 5 |   its own next is 2, who has nothing left takes 5
 *     range of thread 1  | . . . . . . |
 *
 * So in a near region a thread shares no line with others but when it begins and when it ends: a
 * line that two threads write moves between them at every claim, in the time of which a thread
 * reads a few KB of memory, and a claim lets nothing behind it begin.
 *
 * `round` is also what idle workers sleep on (a futex), so that publishing a region and waking
 * need no second word. A worker reads fn and arg only after its claim succeeded.
 * That makes late wakers harmless: a successful claim is a tile of the region that is running
 * now, whichever round the worker had in mind, and that region cannot end before the tile
 * is counted.
 *
 * Invariant: from the first range that is filled until done == the others' tiles, the owner
 * does not touch fn and arg; every tile is claimed exactly once. */
#define _GNU_SOURCE
#include "base/compute_pool.h"

#include "base/available.h"
#include "base/base.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST_THREADS = 256, SPIN_NS = 50000, PAUSES_PER_LOOK = 32 };

/* Tiles [next, end) that nobody has, as next | end << 32. */
typedef struct range {
    _Alignas(64) _Atomic uint64_t left;
} range;

typedef struct worker {
    compute_pool *pool;
    pthread_t thread;
    uint32_t index;
} worker;

struct compute_pool {
    rad_env env;
    uint32_t num_threads;
    uint32_t num_started; /* workers that run, num_threads - 1 after create */
    uint64_t spin_ns;
    worker *workers;
    range *ranges; /* [num_threads]: of near regions; empty in others */

    compute_fn fn; /* the region, see the invariant */
    void *arg;

    range common; /* of regions that are not near; else empty */
    /* 2 * the number of regions so far, + 1 if the last one is near; regions of one tile do
     * not count. */
    _Alignas(64) _Atomic uint32_t round;
    _Atomic uint32_t sleeping; /* workers in, or about to enter, the futex */
    _Atomic bool stop;         /* at the next round: workers go home */
    _Alignas(64) _Atomic uint32_t done;
    _Atomic uint32_t owner_sleeps;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t while_equal)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_equal, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, uint32_t threads)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

static void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Not env->now_ns: this bounds a wait and is in no result, and an env's clock may
 * be one that only the owner's thread can read. */
static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Spins until *word is unlike (or, with want_equal, like) `value`, at most spin_ns.
 * True when that came about. */
static bool spin(const compute_pool *pool, _Atomic uint32_t *word, uint32_t value, bool want_equal)
{
    uint64_t until = 0;
    do {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            uint32_t now = atomic_load_explicit(word, memory_order_relaxed);
            if ((now == value) == want_equal) return true;
            cpu_pause();
        }
        if (!until) until = clock_ns() + pool->spin_ns;
    } while (clock_ns() < until);
    return false;
}

uint32_t compute_pool_near(uint32_t num_tiles, uint32_t num_threads, uint32_t thread)
{
    return (uint32_t)((uint64_t)num_tiles * thread / num_threads);
}

/* The first tile of a range, or the last one; false: it is empty. The order is that of the
 * owner's store, so who has a tile sees the region. */
static bool claim(range *r, bool first, uint32_t *tile)
{
    uint64_t left = atomic_load_explicit(&r->left, memory_order_relaxed);
    while ((uint32_t)left < left >> 32) {
        uint64_t less = first ? left + 1 : left - ((uint64_t)1 << 32);
        if (!atomic_compare_exchange_weak_explicit(&r->left, &left, less, memory_order_acquire,
                                                   memory_order_relaxed))
            continue;
        *tile = first ? (uint32_t)left : (uint32_t)(less >> 32);
        return true;
    }
    return false;
}

/* `near`: the kind of the region that this thread last saw published. If a region of the other
 * kind runs by now, the thread finds empty ranges, claims nothing and reads `round` again. */
static bool claim_any(compute_pool *pool, uint32_t thread, bool near, uint32_t *tile)
{
    if (!near) return claim(&pool->common, true, tile);
    for (uint32_t i = 0, from = thread; i < pool->num_threads; i++) {
        if (claim(&pool->ranges[from], i == 0, tile)) return true;
        from = from + 1 == pool->num_threads ? 0 : from + 1;
    }
    return false;
}

/* Claims and runs tiles until none is left to claim. Returns how many they were. */
static uint32_t work(compute_pool *pool, uint32_t thread, bool near)
{
    uint32_t count = 0;
    for (uint32_t tile; claim_any(pool, thread, near, &tile); count++)
        pool->fn(pool->arg, tile, thread);
    return count;
}

static void *worker_main(void *arg)
{
    worker *self = arg;
    compute_pool *pool = self->pool;
    for (uint32_t seen = 0;;) {
        while (!spin(pool, &pool->round, seen, false)) {
            /* The owner stores `round` and then looks at `sleeping`; here it is the
             * other way round, so one of the two sees the other. */
            atomic_fetch_add(&pool->sleeping, 1);
            futex_wait(&pool->round, seen);
            atomic_fetch_sub(&pool->sleeping, 1);
        }
        seen = atomic_load_explicit(&pool->round, memory_order_acquire);
        if (atomic_load_explicit(&pool->stop, memory_order_relaxed)) return NULL;
        uint32_t count = work(pool, self->index, seen & 1);
        if (!count) continue;
        /* From here on the region may be over. */
        atomic_fetch_add(&pool->done, count);
        if (atomic_load(&pool->owner_sleeps)) futex_wake(&pool->done, 1);
    }
}

int compute_thread_create(pthread_t *thread, void *(*main)(void *), void *arg)
{
    pthread_attr_t attr;
    size_t bytes;
    int error = pthread_attr_init(&attr);
    if (error) return error;
    if (pthread_attr_getstacksize(&attr, &bytes) != 0 || bytes < COMPUTE_STACK_BYTES)
        error = pthread_attr_setstacksize(&attr, COMPUTE_STACK_BYTES);
    if (!error) error = pthread_create(thread, &attr, main, arg);
    pthread_attr_destroy(&attr);
    return error;
}

/* Workers get no signals: those are for the thread that set the handlers. */
static int start_worker(worker *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = compute_thread_create(&w->thread, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

rad_status compute_pool_create(const rad_env *env, uint32_t num_threads, compute_pool **out,
                               rad_error *err)
{
    *out = NULL;
    if (num_threads > MOST_THREADS)
        return rad_fail(err, RAD_E_INVAL, "compute_pool: %u threads, at most %d are possible",
                        num_threads, MOST_THREADS);
    rad_env full = rad_env_or_default(env);
    uint32_t num_cpus = cpus_available();
    if (!num_threads) num_threads = RAD_MAX(1, RAD_MIN(num_cpus, MOST_THREADS));

    compute_pool *pool = rad_alloc(&full, sizeof *pool);
    if (!pool) goto nomem;
    pool->env = full;
    pool->num_threads = num_threads;
    /* More threads than CPUs: whoever spins keeps the one that it waits for away. */
    pool->spin_ns = num_threads > num_cpus ? 0 : SPIN_NS;
    pool->workers = rad_alloc(&full, num_threads * sizeof *pool->workers);
    pool->ranges = rad_alloc(&full, num_threads * sizeof *pool->ranges);
    if (!pool->workers || !pool->ranges) goto nomem;
    for (uint32_t i = 1; i < num_threads; i++) {
        worker *w = &pool->workers[i];
        *w = (worker){.pool = pool, .index = i};
        int error = start_worker(w);
        if (error) {
            compute_pool_destroy(pool);
            return rad_fail(err, RAD_E_LIMIT, "compute_pool: cannot start thread %u of %u: %s", i,
                            num_threads, strerror(error));
        }
        pool->num_started++;
    }
    *out = pool;
    return RAD_OK;

nomem:
    compute_pool_destroy(pool);
    return rad_fail(err, RAD_E_NOMEM, "compute_pool: no memory for %u threads", num_threads);
}

void compute_pool_destroy(compute_pool *pool)
{
    if (!pool) return;
    atomic_store_explicit(&pool->stop, true, memory_order_relaxed);
    atomic_fetch_add(&pool->round, 2);
    futex_wake(&pool->round, INT32_MAX);
    for (uint32_t i = 1; i <= pool->num_started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    rad_env env = pool->env;
    rad_free(&env, pool->workers, pool->num_threads * sizeof *pool->workers);
    rad_free(&env, pool->ranges, pool->num_threads * sizeof *pool->ranges);
    rad_free(&env, pool, sizeof *pool);
}

uint32_t compute_pool_num_threads(const compute_pool *pool)
{
    return pool ? pool->num_threads : 1;
}

/* Until the workers are done with `num_tiles`. */
static void wait_until_done(compute_pool *pool, uint32_t num_tiles)
{
    if (!spin(pool, &pool->done, num_tiles, true)) {
        atomic_store(&pool->owner_sleeps, 1);
        for (;;) {
            uint32_t done = atomic_load(&pool->done);
            if (done == num_tiles) break;
            futex_wait(&pool->done, done);
        }
        atomic_store(&pool->owner_sleeps, 0);
    }
    /* Pairs with the workers' additions: what the tiles wrote is visible now. */
    (void)atomic_load_explicit(&pool->done, memory_order_acquire);
}

static void fill(range *r, uint64_t next, uint64_t end)
{
    atomic_store_explicit(&r->left, next | end << 32, memory_order_release);
}

static void run(compute_pool *pool, uint32_t num_tiles, compute_fn fn, void *arg, bool near)
{
    if (!pool || pool->num_threads == 1 || num_tiles <= 1) {
        for (uint32_t tile = 0; tile < num_tiles; tile++)
            fn(arg, tile, 0);
        return;
    }
    pool->fn = fn;
    pool->arg = arg;
    atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
    if (!near) fill(&pool->common, 0, num_tiles);
    for (uint32_t i = 0, next = 0, end; near && i < pool->num_threads; i++, next = end) {
        end = compute_pool_near(num_tiles, pool->num_threads, i + 1);
        fill(&pool->ranges[i], next, end);
    }
    uint32_t round = atomic_load_explicit(&pool->round, memory_order_relaxed);
    atomic_store(&pool->round, (round & ~1u) + 2 + near);
    uint32_t sleeping = atomic_load(&pool->sleeping);
    if (sleeping) futex_wake(&pool->round, RAD_MIN(sleeping, num_tiles - 1));
    wait_until_done(pool, num_tiles - work(pool, 0, near));
}

void compute_pool_run(compute_pool *pool, uint32_t num_tiles, compute_fn fn, void *arg)
{
    run(pool, num_tiles, fn, arg, false);
}

void compute_pool_run_near(compute_pool *pool, uint32_t num_tiles, compute_fn fn, void *arg)
{
    run(pool, num_tiles, fn, arg, true);
}
