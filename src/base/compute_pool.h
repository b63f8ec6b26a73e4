/* compute_pool.h - the threads that do the arithmetic of a step.
 *
 * A step has about 85 short parallel regions, many of them a few microseconds
 * apart, on machines that others use too. So a waiting thread spins for at most
 * ~50 us and then sleeps on a futex; and a region's tiles are claimed one by one,
 * so that a descheduled thread delays one tile and not a fixed share. Which thread
 * takes a tile must never matter for its result.
 *
 * One thread (the owner) calls run, and not from a tile; it takes part in the work. */
#ifndef BASE_COMPUTE_POOL_H
#define BASE_COMPUTE_POOL_H

#include <radish/env.h>

#include <pthread.h>

typedef struct compute_pool compute_pool;

/* `tile` is 0..num_tiles-1, `thread` is 0..num_threads-1 (for scratch memory). */
typedef void (*compute_fn)(void *arg, uint32_t tile, uint32_t thread);

/* num_threads counts the owner; 0 means one per CPU that this process may use
 * (cpus_available), at most 256. */
rad_status compute_pool_create(const rad_env *env, uint32_t num_threads, compute_pool **out,
                               rad_error *err);
void compute_pool_destroy(compute_pool *pool); /* NULL is fine */
uint32_t compute_pool_num_threads(const compute_pool *pool);

/* What a thread that computes has for its stack at least. Attention works on its stack (see
 * attn_backend.h), and what a thread gets by default is `ulimit -s` here and 128 KB with
 * some C libraries. Pages that are never touched cost nothing. */
enum { COMPUTE_STACK_BYTES = 4 << 20 };

/* pthread_create with such a stack, or the default one where that is larger. 0 or an error
 * number. The pool's workers have it; whoever owns a pool should. */
int compute_thread_create(pthread_t *thread, void *(*main)(void *), void *arg);

/* Runs fn for every tile and returns when all are done; everything the tiles
 * wrote is then visible to the caller. A NULL pool runs them in order, here. */
void compute_pool_run(compute_pool *pool, uint32_t num_tiles, compute_fn fn, void *arg);

/* The same, for tiles whose neighbours lie side by side in memory: thread t takes
 * [near(t), near(t + 1)) in ascending order, so it knows what it will read next, in this
 * region and in the one behind it; and who has done its share takes the others' last ones. */
void compute_pool_run_near(compute_pool *pool, uint32_t num_tiles, compute_fn fn, void *arg);

/* Where thread `thread` of num_threads begins in a near region of num_tiles. */
uint32_t compute_pool_near(uint32_t num_tiles, uint32_t num_threads, uint32_t thread);

#endif
