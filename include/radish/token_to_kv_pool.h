/* token_to_kv_pool.h - the memory behind the slots (K and V per layer).
 *
 * Per layer one K buffer [num_slots][num_kv_heads][head_dim] and one V buffer
 * [num_slots][num_kv_heads][v_head_dim], in the store dtype. num_slots counts the dummy
 * page. A token's K (all heads) is contiguous, and a page's tokens follow each other, so
 * a page is one block per layer and side. mla_kv_pool.h makes the second kind of pool:
 * one latent + rope buffer per layer.
 *
 * Store dtypes, and what a number becomes (round to nearest even everywhere):
 *
 *     RAD_F32      itself
 *     RAD_BF16     the upper half; overflow rounds to inf
 *     RAD_F16      IEEE half; past 65504 rounds to inf
 *     RAD_F8_E4M3  x / scale in e4m3fn; saturates at 448 (inf too), NaN stays NaN
 *     RAD_F8_E5M2  x / scale in e5m2; past 57344 rounds to inf, NaN stays NaN
 *     RAD_I8       x / s as an integer in -127..127, with an f32 s per token and head:
 *                  s = max(largest magnitude of the head's numbers / 127, FLT_MIN), so a
 *                  number is off by at most s / 2 (and s / 2^16 of rounding). inf or NaN
 *                  among them: s is NaN and the head reads back as NaN.
 *
 * fp8 has one scale per layer and side, given at create. int8 keeps its scales beside the
 * codes: [num_slots][num_kv_heads] f32 per layer and side, so a token takes
 * num_layers * num_kv_heads * (head_dim + 4 + v_head_dim + 4) bytes.
 *
 * A layer is named by its number in the model; a pool holds layers start_layer ..
 * start_layer + num_layers - 1 (pipeline stages hold some each). Slots of page 0, the
 * dummy page, may be written by anyone and mean nothing.
 *
 * The pool knows nothing of who owns a slot. Reading and writing different slots from
 * different threads is fine; the same slot is the caller's care. After create nothing here
 * touches the heap. */
#ifndef RADISH_TOKEN_TO_KV_POOL_H
#define RADISH_TOKEN_TO_KV_POOL_H

#include <radish/device.h>
#include <radish/env.h>
#include <radish/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rad_dtype {
    RAD_F32 = 0,
    RAD_BF16 = 1,
    RAD_F16 = 2,
    RAD_F8_E4M3 = 3,
    RAD_F8_E5M2 = 4,
    RAD_I8 = 5
} rad_dtype;

typedef enum rad_kv_kind {
    RAD_KV_MHA = 0, /* K and V per head; grouped and multi-query attention too */
    RAD_KV_MLA = 1  /* one latent + rope row per token; V is its latent part */
} rad_kv_kind;

typedef struct rad_token_to_kv_pool rad_token_to_kv_pool;

/* Where one layer's numbers lie. Slot s is at k + s * k_stride, its scales (int8) at
 * k_scale + s * k_scale_stride, and likewise V; strides in bytes. For MLA v is k, and V is
 * the first v_head_dim numbers of the row. This struct does not grow. */
typedef struct rad_kv_buffers {
    void *k;
    void *v;
    float *k_scale; /* NULL unless int8: per slot a scale per head (MLA: latent, rope) */
    float *v_scale;
    size_t k_stride;
    size_t v_stride;
    size_t k_scale_stride;
    size_t v_scale_stride;
} rad_kv_buffers;

typedef struct rad_token_to_kv_pool_params {
    size_t struct_size; /* sizeof(rad_token_to_kv_pool_params) */
    uint32_t num_pages; /* page 0 not counted */
    uint32_t page_size; /* tokens; 0 means 1 */
    uint32_t num_layers;
    uint32_t num_kv_heads;
    uint32_t head_dim;   /* of K */
    uint32_t v_head_dim; /* of V; 0 means head_dim */
    uint32_t dtype;      /* rad_dtype */
    uint32_t reserved;
    uint32_t kind;        /* rad_kv_kind; for MLA use mla_kv_pool.h, which fills this */
    uint32_t start_layer; /* the first layer's number in the model */

    /* fp8 only: what numbers are divided by before they are rounded, [num_layers] each,
     * finite and > 0; NULL means all 1. Copied. MLA has k_scales only. */
    const float *k_scales;
    const float *v_scales;

    /* [num_layers] or NULL. The caller's memory instead of the pool's own: it must hold
     * (num_pages + 1) * page_size slots, outlive the pool, and be aligned to a number of
     * the store dtype (scales to 4). A stride of 0 means packed; a larger one leaves room
     * between tokens, so K and V may be interleaved. Create does not touch the memory and
     * destroy does not free it. The array itself is copied. */
    const rad_kv_buffers *buffers;

    /* Where the memory lives (device.h), also that of `buffers`; not owned. NULL: the host's own.
     * Of another device's memory nothing is touched: set_kv_buffer and get_kv convert on the
     * host and copy. */
    rad_device *device;
} rad_token_to_kv_pool_params;

/* RAD_E_INVAL, RAD_E_UNSUPPORTED, RAD_E_LIMIT or RAD_E_NOMEM in words; *out is NULL then.
 * The pool's own memory reads as zeros; unless an env brings its own alloc, no page of it is
 * touched before K and V are written there, or rad_kv_pool_populate asks for it. */
RAD_API rad_status rad_token_to_kv_pool_create(const rad_env *env,
                                               const rad_token_to_kv_pool_params *params,
                                               rad_token_to_kv_pool **out, rad_error *err);
RAD_API void rad_token_to_kv_pool_destroy(rad_token_to_kv_pool *pool); /* NULL is fine */

/* Makes the memory of slots [first, first + count) of one layer ready before K and V are written
 * there. The system provides memory when it is first written, some microseconds for each of its
 * pages; in a virtual machine whose host provides it likewise a huge page of 2 MB may take 5 ms,
 * and a step that begins such pages in all layers is late by a tenth of a second. Numbers stay as
 * they are, and any thread may read and write any slot meanwhile.
 *
 * A row's neighbours within a stride are made ready with it. Threads that map or unmap memory may
 * wait meanwhile: ask for some MB at a time. And see to it that there is so much: a kernel that has
 * not enough ends a program rather than say so.
 *
 * RAD_E_INVAL for a layer or slots that are not the pool's. RAD_E_UNSUPPORTED: this system (Linux
 * before 5.14) or this kind of memory cannot; RAD_E_NOMEM: the system gave none. Nothing is lost
 * then. O(bytes). */
RAD_API rad_status rad_kv_pool_populate(rad_token_to_kv_pool *pool, uint32_t layer, size_t first,
                                        size_t count);

/* Bytes of one token over all layers, K, V and scales: what a planner multiplies by.
 * 0 when the params make no sense or the number does not fit. O(1), no side effect. */
RAD_API size_t rad_kv_pool_bytes_per_token(const rad_token_to_kv_pool_params *params);

/* Bytes of all slots, the dummy page included, without gaps between tokens. O(1). */
RAD_API size_t rad_kv_pool_size_bytes(const rad_token_to_kv_pool *pool);

/* Defaults filled in; the pool's own. k_scales and v_scales point to the pool's copies for
 * fp8; `buffers` is always NULL, so that a copy of the params makes a pool with memory of
 * its own. O(1). */
RAD_API const rad_token_to_kv_pool_params *rad_kv_pool_params(const rad_token_to_kv_pool *pool);

/* 1 when K and V of every layer are separate and without gaps, as described at the top: so
 * for every MHA pool with memory of its own, never for MLA. O(1). */
RAD_API int rad_kv_pool_is_packed(const rad_token_to_kv_pool *pool);

/* Who brings K and V into the pool while it is in use (tiers do, hicache.h; an engine may, beside
 * them) registers a function that is called before a layer is read: it returns once what its owner
 * still brings of the layer is there. It is called by whoever reads, with the layer's number in
 * the model, in the order of registration; who registers first does not matter. `user` tells two
 * of one kind apart.
 *
 * Registered and unregistered while nobody reads the pool. RAD_E_LIMIT in words: RAD_KV_WAITERS
 * are there already. RAD_E_STATE: this one is there already; or, unregistering, it is not.
 * O(RAD_KV_WAITERS). */
enum { RAD_KV_WAITERS = 4 };
typedef void (*rad_kv_wait_fn)(void *user, uint32_t layer);
RAD_API rad_status rad_kv_pool_add_wait(rad_token_to_kv_pool *pool, rad_kv_wait_fn wait, void *user,
                                        rad_error *err);
RAD_API rad_status rad_kv_pool_remove_wait(rad_token_to_kv_pool *pool, rad_kv_wait_fn wait,
                                           void *user);

/* Waits for the layer and says where it lies, for any pool. When
 * rad_kv_pool_is_packed, slot s starts at element s * num_kv_heads * head_dim (V: v_head_dim).
 * RAD_E_INVAL for a layer that is not the pool's. The memory stays its owner's. */
RAD_API rad_status rad_kv_pool_get_buffers(rad_token_to_kv_pool *pool, uint32_t layer,
                                           rad_kv_buffers *out);

/* Stores K and V of `count` tokens at loc[i], converting from f32 to the store dtype as
 * described at the top. k is [count][num_kv_heads][head_dim], v is
 * [count][num_kv_heads][v_head_dim]; NULL leaves that side as it is. MLA: k is
 * [count][head_dim], v is not looked at. A layer or slot that is not the pool's is the
 * caller's bug: panic. RAD_E_IO: the device failed, and the rows are undefined. O(numbers). */
RAD_API rad_status rad_kv_pool_set_kv_buffer(rad_token_to_kv_pool *pool, uint32_t layer,
                                             const rad_slot *loc, uint32_t count, const float *k,
                                             const float *v);

/* Reads K and V of `count` tokens back as f32, after waiting for the layer: exactly the
 * number that the stored code stands for, rounded to f32 once where there is a scale.
 * Shapes as in set_kv_buffer (MLA: v is [count][v_head_dim]); k or v may be NULL. What a
 * kernel reads is judged by this. RAD_E_INVAL, and nothing written, for a layer or slot
 * that is not the pool's. O(numbers). */
RAD_API rad_status rad_kv_pool_get_kv(rad_token_to_kv_pool *pool, uint32_t layer,
                                      const rad_slot *loc, uint32_t count, float *k, float *v);

/* Copies `count` slots of all layers out of the pool, and into it: slots in any order, for
 * a request that gives up its slots and comes back at others, or for a tier that moves
 * pages. Stored bytes are moved, nothing is converted. `bytes` must be
 * count * bytes_per_token. Order: layer by layer K, scales of K, V, scales of V; each
 * [count] tokens in the order of `slots`. One call of the device's table for each.
 *
 * RAD_E_INVAL, and nothing copied, for a slot that is not the pool's or other bytes.
 * RAD_E_IO when the device failed: what was written by then is undefined. */
RAD_API rad_status rad_kv_pool_get_cpu_copy(rad_token_to_kv_pool *pool, const rad_slot *slots,
                                            uint32_t count, void *dst, size_t bytes);
RAD_API rad_status rad_kv_pool_load_cpu_copy(rad_token_to_kv_pool *pool, const rad_slot *slots,
                                             uint32_t count, const void *src, size_t bytes);

/* Copies what slots [from, from + count) hold to [to, to + count) of all layers, within the pool:
 * for rad_cache_params.copy_slots. Waits for no layer: the K/V of a cached page are complete.
 * RAD_E_INVAL, and nothing copied: a slot that is not the pool's, or the two overlap. RAD_E_IO as
 * above. O(bytes). */
RAD_API rad_status rad_kv_pool_copy_slots(rad_token_to_kv_pool *pool, rad_slot from, rad_slot to,
                                          uint32_t count);

/* get_cpu_copy and load_cpu_copy for one page: the bytes are those of its slots in order. `bytes`
 * must be page_size * bytes_per_token. Errors as above. */
RAD_API rad_status rad_kv_pool_get_page(rad_token_to_kv_pool *pool, rad_page page, void *dst,
                                        size_t bytes);
RAD_API rad_status rad_kv_pool_set_page(rad_token_to_kv_pool *pool, rad_page page, const void *src,
                                        size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
