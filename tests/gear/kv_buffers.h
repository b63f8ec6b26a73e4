/* kv_buffers.h - one side of a layer of a pool, for tests that look at its bytes. */
#ifndef GEAR_KV_BUFFERS_H
#define GEAR_KV_BUFFERS_H

#include <radish/token_to_kv_pool.h>

/* Waits for the layer; NULL: it is not the pool's. */
static inline void *kv_key_buffer(rad_token_to_kv_pool *pool, uint32_t layer)
{
    rad_kv_buffers b = {0};
    return rad_kv_pool_get_buffers(pool, layer, &b) ? NULL : b.k;
}

static inline void *kv_value_buffer(rad_token_to_kv_pool *pool, uint32_t layer)
{
    rad_kv_buffers b = {0};
    return rad_kv_pool_get_buffers(pool, layer, &b) ? NULL : b.v;
}

#endif
