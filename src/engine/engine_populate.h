/* engine_populate.h - the thread that makes the KV pool's memory ready ahead of its use.
 *
 *     slots   0 ........... used ........ ready ........ wanted ......... num_slots
 *             handed out once | there is memory | being made ready | comes when it is written
 *                             |<--- ahead (kv_populate_ahead) --->|
 *
 * Where the system gives memory when it is first written, the forward pass waits for it: for some
 * microseconds a page, and for milliseconds where the machine is a guest whose host gives it
 * likewise (rad_kv_pool_populate). The thread works while no request runs or waits, a layer after
 * the other, so that a request that comes waits for the two to four huge pages of one at most. An
 * engine that is never idle uses up what is ahead, and then waits as it would without.
 *
 * It leaves memory alone that the machine is short of, until requests have come and gone: what the
 * kernel cannot give, it takes from programs by ending them. On a machine of several nodes the
 * memory is the thread's node's. */
#ifndef ENGINE_ENGINE_POPULATE_H
#define ENGINE_ENGINE_POPULATE_H

#include <pthread.h>
#include <radish/token_to_kv_pool.h>
#include <stdatomic.h>

#include "base/base.h"

typedef struct engine_populate {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;   /* there may be something to do, or the thread is to stop */
    pthread_cond_t asleep; /* there is nothing more to do */

    /* Guarded by `lock`: */
    bool ended;   /* the kernel cannot populate memory: the thread is done for good */
    bool refused; /* the machine is short of memory: tried again after the next requests */
    size_t used, wanted, ready; /* `used` is written by the scheduler's thread alone */

    atomic_bool idle, stop;      /* no request runs or waits, as the scheduler last said */
    bool told_why;               /* the thread's: one line of the log is enough */
    size_t ahead, num_slots;     /* constant, as the next three */
    size_t step;                 /* slots at a time: about a huge page of a layer and side */
    size_t tell;                 /* slots by which `used` must have grown to be told */
    size_t token_bytes;          /* of all layers */
    uint64_t (*available)(void); /* bytes of the machine, 0 = unknown: memory_available */
    const rad_env *env;
    rad_token_to_kv_pool *pool;
    bool started; /* its owner's */
} engine_populate;

void engine_populate_init(engine_populate *p);

/* Begins with `ahead_bytes` of the pool, once follow says that nothing runs (0: no thread, nothing
 * happens). RAD_E_NOMEM in words. */
rad_status engine_populate_start(engine_populate *p, const rad_env *env, rad_token_to_kv_pool *pool,
                                 uint64_t ahead_bytes, rad_error *err);

/* The scheduler's thread says between two steps how many slots were handed out at some time, and
 * whether no request runs or waits. O(1). */
void engine_populate_follow(engine_populate *p, size_t used, bool idle);

/* Returns when all that is wanted is ready: true, or cannot be had; not while requests run. Any
 * thread. */
bool engine_populate_wait(engine_populate *p);

uint64_t engine_populate_bytes(engine_populate *p); /* ready or written */

/* Waits for those of one layer at most; one that never started is fine. While there is a pool. */
void engine_populate_stop(engine_populate *p);
void engine_populate_fini(engine_populate *p);

#endif
