/* state_pool.h - what only this library's own rooms may do with a state pool. */
#ifndef MEM_STATE_POOL_H
#define MEM_STATE_POOL_H

#include <radish/state_pool.h>

#include "base/base.h"

/* Copies a state between a pool on the host and another, by the host pool's device. RAD_E_IO: the
 * target is undefined. */
rad_status state_pool_move(const rad_state_pool *host, rad_state host_state,
                           const rad_state_pool *device, rad_state device_state, bool to_device);

/* The record of a state on the host (storage.h), header room included, and its bytes. */
void *state_pool_record(const rad_state_pool *host, rad_state state);
size_t state_pool_record_bytes(const rad_state_pool *host);

/* For who takes states and gives them back in every step, and cannot wait for the kernel to give
 * memory for them: makes the memory of `count` states ready that nobody has had, or of as many as
 * there are. From now on rad_state_alloc takes such as nobody has had while there are any, so that
 * these stay with state_pool_alloc_ready, which takes the one that was given back last. Where the
 * device makes nothing ready the first write does. */
void state_pool_make_ready(rad_state_pool *pool, uint32_t count);
rad_status state_pool_alloc_ready(rad_state_pool *pool, rad_state *state);

/* Who brings states into the pool while it is in use: `wait` returns once what was begun is there.
 * It is called by whoever asks where a state is. Registered while nobody uses the pool; RAD_E_LIMIT
 * in words: somebody else is registered. */
typedef void (*state_wait_fn)(void *user);
rad_status state_pool_set_wait(rad_state_pool *pool, state_wait_fn wait, void *user,
                               rad_error *err);
void state_pool_drop_wait(rad_state_pool *pool, void *user);

#endif
