/* state_pool.h - memory for recurrent states: what linear attention and short convolutions carry.
 *
 * A layer without K/V (delta rule, Mamba, short convolution) sums up all tokens that it has seen
 * in a block of fixed size. A *state* is that of all such layers of a model behind one position:
 * opaque bytes that the runner fills. What a running request works with and what the tree keeps
 * for later ones (rad_cache_params.state_pool) are slots of one pool, so that the one becomes
 * the other without a copy.
 *
 *     state   0       1            2            3            ...  num_states
 *           | zeros | a request's | a snapshot | free      | ...             each state_bytes
 *
 * State 0 is the beginning of every text: it reads as zeros, is never handed out and never
 * written.
 *
 * One thread owns a pool. Addresses and copies are any thread's. After create nothing here
 * touches the heap. */
#ifndef RADISH_STATE_POOL_H
#define RADISH_STATE_POOL_H

#include <radish/device.h>
#include <radish/env.h>
#include <radish/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rad_state_pool rad_state_pool;

typedef struct rad_state_pool_params {
    size_t struct_size;  /* sizeof(rad_state_pool_params) */
    size_t state_bytes;  /* of one state; rounded up to a multiple of 64 */
    uint32_t num_states; /* to hand out, state 0 not counted */
    uint32_t on_host;    /* 1: host memory, pinned where the device has such: a tier of states
                          * (hicache.h), copied by the device; 128 bytes and more each beside */
    rad_device *device;  /* where the memory lives and what copies; not owned; NULL: the host */

    /* The caller's memory instead of the pool's own: num_states + 1 states, aligned to 64 bytes,
     * the first of them zeros, there as long as the pool. Create does not touch it and destroy
     * does not free it. Not with on_host. NULL: the device's, or the host's where on_host. */
    void *memory;
} rad_state_pool_params;

/* RAD_E_INVAL (no bytes, no states, memory that is not aligned), RAD_E_LIMIT (more than 31 bits
 * of states) or RAD_E_NOMEM in words; *out is NULL then. */
RAD_API rad_status rad_state_pool_create(const rad_env *env, const rad_state_pool_params *params,
                                         rad_state_pool **out, rad_error *err);
RAD_API void rad_state_pool_destroy(rad_state_pool *pool); /* NULL is fine */

/* Hands out a state, whose content is undefined. RAD_FULL: all are out, and *state is
 * untouched. O(1). */
RAD_API rad_status rad_state_alloc(rad_state_pool *pool, rad_state *state);

/* RAD_E_STATE: it is not handed out (freed twice, or no state of this pool). O(1). */
RAD_API rad_status rad_state_free(rad_state_pool *pool, rad_state state);

/* Copies a state to another; from 0 it is the beginning. RAD_E_INVAL, and nothing copied: one of
 * them is not the pool's, or `to` is 0. RAD_E_IO: the device failed, and `to` is undefined.
 * O(state_bytes). */
RAD_API rad_status rad_state_copy(rad_state_pool *pool, rad_state from, rad_state to);

/* The memory of a state in the device's words, aligned to 64 bytes; of state 0, zeros. NULL: it is
 * not the pool's. It stays where it is as long as the pool; what a tier is bringing there
 * (hicache.h) has come on return. O(1). */
RAD_API void *rad_state_address(const rad_state_pool *pool, rad_state state);

/* O(1) all of them. */
RAD_API uint32_t rad_state_available(const rad_state_pool *pool);
RAD_API uint32_t rad_state_pool_num_states(const rad_state_pool *pool);
RAD_API size_t rad_state_bytes(const rad_state_pool *pool); /* of one, rounded up */
RAD_API int rad_state_is_taken(const rad_state_pool *pool, rad_state state);

/* Where its memory lives; the pool's own cpu where the params named none. */
RAD_API rad_device *rad_state_pool_device(const rad_state_pool *pool);

/* Each state is free or handed out, never both; RAD_E_CORRUPT says which is not. RAD_E_NOMEM: no
 * scratch memory. O(states). */
RAD_API rad_status rad_state_pool_check(const rad_state_pool *pool, rad_error *err);

#ifdef __cplusplus
}
#endif
#endif
