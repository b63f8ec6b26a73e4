/* host_kv_pool.h - the second tier's memory: pages of K/V that left the device, or may.
 *
 * A host page holds what a device page holds, all layers, byte for byte. Two layouts:
 *
 *     layer_first   layer 0: K | page 0 | page 1 | ...   V | page 0 | ...   layer 1: ...
 *     page_first    page 0 | page 1 | ...    each a record, ready to be stored (storage.h):
 *                   | room for the header, 128 | layer 0: K, its scales, V, its scales | ...
 *
 * In layer_first neighbouring pages move as one block; in page_first a page goes to storage
 * and comes back without a copy. The payload of a record is what rad_kv_pool_get_page
 * gives, in both layouts.
 *
 * Pages are handed out by a rad_kv_allocator of the pool's own, so a page freed twice is
 * refused. One thread owns the pool; the tiers that it is given to (hicache.h) copy in others.
 * After create nothing here touches the heap. */
#ifndef RADISH_HOST_KV_POOL_H
#define RADISH_HOST_KV_POOL_H

#include <radish/kv_allocator.h>
#include <radish/token_to_kv_pool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rad_host_layout { RAD_HOST_LAYER_FIRST = 0, RAD_HOST_PAGE_FIRST = 1 } rad_host_layout;

typedef struct rad_host_kv_pool rad_host_kv_pool;

typedef struct rad_host_kv_pool_params {
    size_t struct_size;                /* sizeof(rad_host_kv_pool_params) */
    rad_token_to_kv_pool *device_pool; /* not owned; outlives this one */
    double ratio;                      /* pages, as a multiple of the device pool's; 0 means 2 */
    uint64_t bytes;                    /* not 0: so much memory instead, rounded down to pages */
    uint32_t layout;                   /* rad_host_layout */
    uint32_t pinned;    /* 1: locked into memory (mlock), never swapped out; where the
                         * device has pinned memory of its own, that */
    rad_device *device; /* copies by this one; not owned; NULL: the device pool's */
} rad_host_kv_pool_params;

/* Takes and touches all its memory now. RAD_E_INVAL (no device pool, a ratio that is no
 * number), RAD_E_LIMIT (less than a page, slots past 31 bits, or the system does not let us
 * lock so much), RAD_E_NOMEM in words; *out is NULL then. */
RAD_API rad_status rad_host_kv_pool_create(const rad_env *env,
                                           const rad_host_kv_pool_params *params,
                                           rad_host_kv_pool **out, rad_error *err);
RAD_API void rad_host_kv_pool_destroy(rad_host_kv_pool *pool); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
