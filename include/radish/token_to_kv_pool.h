/* token_to_kv_pool.h - the memory behind the slots (MHA: K and V per layer).
 *
 * Per layer one K buffer [num_slots][num_kv_heads][head_dim] and one V buffer
 * [num_slots][num_kv_heads][v_head_dim], in the store dtype. num_slots counts
 * the dummy page. A token's K (all heads) is contiguous, and a page's tokens
 * follow each other, so a page is one block per layer and side.
 *
 * The pool knows nothing of who owns a slot. Reading and writing different
 * slots from different threads is fine; the same slot is the caller's care. */
#ifndef RADISH_TOKEN_TO_KV_POOL_H
#define RADISH_TOKEN_TO_KV_POOL_H

#include <radish/env.h>
#include <radish/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rad_dtype { RAD_F32 = 0, RAD_BF16 = 1, RAD_F16 = 2 } rad_dtype;

typedef struct rad_token_to_kv_pool rad_token_to_kv_pool;

typedef struct rad_token_to_kv_pool_params {
    size_t struct_size;  /* sizeof(rad_token_to_kv_pool_params) */
    uint32_t num_pages;  /* page 0 not counted */
    uint32_t page_size;  /* tokens; 0 means 1 */
    uint32_t num_layers;
    uint32_t num_kv_heads;
    uint32_t head_dim;   /* of K */
    uint32_t v_head_dim; /* of V; 0 means head_dim */
    uint32_t dtype;      /* rad_dtype: RAD_F32 or RAD_BF16 */
    uint32_t reserved;
    /* Called before a layer is read, when not NULL: returns once the layer's
     * pages that are still being loaded have arrived. */
    void (*wait_layer)(void *user, uint32_t layer);
    void *wait_user;
} rad_token_to_kv_pool_params;

RAD_API rad_status rad_token_to_kv_pool_create(const rad_env *env,
                                               const rad_token_to_kv_pool_params *params,
                                               rad_token_to_kv_pool **out, rad_error *err);
RAD_API void rad_token_to_kv_pool_destroy(rad_token_to_kv_pool *pool); /* NULL is fine */

/* Bytes of one token over all layers, K and V: what a planner multiplies by. */
RAD_API size_t rad_kv_pool_bytes_per_token(const rad_token_to_kv_pool_params *params);

RAD_API const rad_token_to_kv_pool_params *
rad_kv_pool_params(const rad_token_to_kv_pool *pool); /* defaults filled in */

/* Waits for the layer (wait_layer) and returns its buffer. Slot s starts at
 * element s * num_kv_heads * head_dim (V: v_head_dim). */
RAD_API void *rad_kv_pool_key_buffer(rad_token_to_kv_pool *pool, uint32_t layer);
RAD_API void *rad_kv_pool_value_buffer(rad_token_to_kv_pool *pool, uint32_t layer);

/* Stores K and V of `count` tokens at loc[i], converting from f32 to the store
 * dtype (round to nearest even). k is [count][num_kv_heads][head_dim], v is
 * [count][num_kv_heads][v_head_dim]. */
RAD_API void rad_kv_pool_set_kv_buffer(rad_token_to_kv_pool *pool, uint32_t layer,
                                       const rad_slot *loc, uint32_t count, const float *k,
                                       const float *v);

/* Copies one page of all layers out of, or into, the pool; `bytes` must be
 * page_size * bytes_per_token. Order: layer by layer, K then V. */
RAD_API rad_status rad_kv_pool_get_page(rad_token_to_kv_pool *pool, rad_page page, void *dst,
                                        size_t bytes);
RAD_API rad_status rad_kv_pool_set_page(rad_token_to_kv_pool *pool, rad_page page,
                                        const void *src, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
