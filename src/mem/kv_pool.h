/* kv_pool.h - the inside of a KV pool, for the files of this room.
 *
 *     who has which page     kv_allocator_impl.h (its files are listed there); rows of requests:
 *                            req_to_token_pool.c
 *     the device's memory    token_to_kv_pool.c: where numbers lie; mla_kv_pool.c: for MLA;
 *                            kv_pool_access.c: in, out, copies; kv_codec.c: dtypes
 *     the host's memory      host_kv_pool.c, and copies between the two
 *     recurrent states       state_pool.c, of either
 *
 * A pool has one side (MLA) or two (K and V). A side's row, one token in one layer, is
 * `groups` runs of numbers, each with a scale of its own when the dtype is int8: the heads
 * of MHA, the latent and the rope part of MLA.
 *
 *     row     | dim numbers | dim numbers | ... | last_dim numbers |
 *     scales  | s0          | s1          | ... | s(groups - 1)    |    int8 only
 *
 * So a layer is up to four buffers, and whoever moves bytes moves those (kv_buffer). */
#ifndef MEM_KV_POOL_H
#define MEM_KV_POOL_H

#include <radish/token_to_kv_pool.h>

#include "device/device.h"
#include "mem/kv_codec.h"

typedef struct kv_side {
    uint32_t groups;
    uint32_t dim;
    uint32_t last_dim; /* of the last group; dim but for MLA */
    uint32_t reserved;
    size_t numbers;     /* of a row */
    size_t code_bytes;  /* of a row; 0 when that does not fit a size_t */
    size_t scale_bytes; /* of a row; 0 without scales */
} kv_side;

typedef struct kv_waiter {
    rad_kv_wait_fn wait;
    void *user;
} kv_waiter;

/* The codes of a side of a layer, or its scales. */
typedef struct kv_buffer {
    char *base;
    size_t stride;
    size_t row_bytes; /* of one token; 0: the pool has no such buffer */
} kv_buffer;

enum { KV_BUFFERS = 4 }; /* of a layer: K, scales of K, V, scales of V */

struct rad_token_to_kv_pool {
    rad_env env;
    device_cpu own;
    rad_device *device; /* `own`, or the caller's */
    const kv_codec *codec;
    rad_token_to_kv_pool_params params;
    size_t num_slots;   /* with the dummy page */
    size_t token_bytes; /* over all layers and sides */
    uint32_t num_sides;
    bool packed;
    bool owns_memory;
    kv_side side[2];
    kv_buffer *buffers; /* [num_layers][KV_BUFFERS] */
    float *scales;      /* fp8: [2][num_layers], K then V; else NULL */
    kv_waiter waiters[RAD_KV_WAITERS];
    uint32_t num_waiters;
};

/* The buffers of a layer; `index` counts from 0 within the pool. */
static inline kv_buffer *kv_buffers_of(const rad_token_to_kv_pool *pool, uint32_t index)
{
    return pool->buffers + (size_t)index * KV_BUFFERS;
}

/* One side of one layer; of MLA, V's numbers are the first of K's. */
typedef struct kv_plane {
    const kv_side *side;
    kv_buffer codes;
    kv_buffer scales; /* int8 */
    float scale;      /* fp8; else 1 */
} kv_plane;

static inline kv_plane kv_plane_of(const rad_token_to_kv_pool *pool, uint32_t index, uint32_t side)
{
    const kv_buffer *b = kv_buffers_of(pool, index) + (pool->num_sides == 2 ? 2 * side : 0);
    float scale = pool->scales ? pool->scales[(size_t)side * pool->params.num_layers + index] : 1;
    return (kv_plane){.side = &pool->side[side], .codes = b[0], .scales = b[1], .scale = scale};
}

/* The layer's number within the pool, or num_layers when it is not the pool's. */
static inline uint32_t kv_layer_index(const rad_token_to_kv_pool *pool, uint32_t layer)
{
    uint32_t index = layer - pool->params.start_layer; /* wraps when below */
    return RAD_MIN(index, pool->params.num_layers);
}

static inline bool kv_is_slot(const rad_token_to_kv_pool *pool, rad_slot slot)
{
    return slot >= 0 && (size_t)slot < pool->num_slots;
}

static inline void kv_wait_layer(const rad_token_to_kv_pool *pool, uint32_t layer)
{
    for (uint32_t i = 0; i < pool->num_waiters; i++)
        pool->waiters[i].wait(pool->waiters[i].user, layer);
}

enum { KV_STAGE_NUMBERS = 2048 }; /* of a group, at most, in memory of a caller's device */

/* Encodes groups [first, first + count) of a slot's row from src, their numbers. RAD_E_IO: the
 * device failed, and what is there is undefined. */
rad_status kv_plane_store(const rad_token_to_kv_pool *pool, const kv_plane *plane, rad_slot slot,
                          uint32_t first, uint32_t count, const float *src);

/* Decodes a slot's row. RAD_E_IO: the device failed. */
rad_status kv_plane_load(const rad_token_to_kv_pool *pool, const kv_plane *plane, rad_slot slot,
                         float *dst);

#endif
