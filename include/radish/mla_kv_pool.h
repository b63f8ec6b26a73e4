/* mla_kv_pool.h - KV memory for multi-head latent attention (DeepSeek's MLA).
 *
 * MLA keeps one row per token and layer, shared by all heads: a compressed latent and the
 * part of the key that carries the position (rope). The value is the latent again.
 *
 *     row    | latent: kv_lora_rank numbers | rope: rope_dim numbers |
 *     K      |------------------------- all of it -------------------|
 *     V      |------------------------------|
 *
 * The result is a rad_token_to_kv_pool like any other: copies, pages, buffers and reading
 * back are in token_to_kv_pool.h. There it shows kind RAD_KV_MLA, num_kv_heads 1, head_dim
 * kv_lora_rank + rope_dim and v_head_dim kv_lora_rank; K and V are one pointer with one stride, and
 * rad_kv_pool_is_packed says 0. A tensor-parallel group holds the same row on every rank.
 *
 * With int8 a row has two scales, of the latent and of the rope part, because their
 * magnitudes differ: num_layers * (kv_lora_rank + rope_dim + 8) bytes per token. */
#ifndef RADISH_MLA_KV_POOL_H
#define RADISH_MLA_KV_POOL_H

#include <radish/token_to_kv_pool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rad_mla_kv_pool_params {
    size_t struct_size; /* sizeof(rad_mla_kv_pool_params) */
    uint32_t num_pages; /* page 0 not counted */
    uint32_t page_size; /* tokens; 0 means 1 */
    uint32_t num_layers;
    uint32_t start_layer;  /* the first layer's number in the model */
    uint32_t kv_lora_rank; /* 512 in DeepSeek-V2 and V3 */
    uint32_t rope_dim;     /* 64 there; may be 0 */
    uint32_t dtype;        /* rad_dtype */
    uint32_t reserved;
    const float *scales;           /* fp8: [num_layers] or NULL for all 1; copied */
    const rad_kv_buffers *buffers; /* the caller's memory or NULL: k (and k_scale) only */
    rad_device *device; /* where the memory lives, NULL: the host; not owned */
} rad_mla_kv_pool_params;

/* As rad_token_to_kv_pool_create; destroy with rad_token_to_kv_pool_destroy. */
RAD_API rad_status rad_mla_kv_pool_create(const rad_env *env, const rad_mla_kv_pool_params *params,
                                          rad_token_to_kv_pool **out, rad_error *err);

/* Stores the rows of `count` tokens at loc[i]: latent is [count][kv_lora_rank], rope is
 * [count][rope_dim]; NULL leaves that part as it is. The same numbers as one row through
 * rad_kv_pool_set_kv_buffer give the same bytes. Not an MLA pool, a layer or a slot that is
 * not the pool's: the caller's bug, panic. RAD_E_IO: the device failed. O(numbers). */
RAD_API rad_status rad_mla_kv_pool_set_kv_buffer(rad_token_to_kv_pool *pool, uint32_t layer,
                                                 const rad_slot *loc, uint32_t count,
                                                 const float *latent, const float *rope);

#ifdef __cplusplus
}
#endif
#endif
