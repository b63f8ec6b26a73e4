/* attn_backend.h - one implementation of attention over the paged KV pool.
 *
 * Every backend obeys promise P1: a query's result depends on the query and on
 * the keys and values of its own context alone. Keys are reduced in canonical
 * blocks of ATTN_BLOCK absolute positions ([0,64), [64,128), ...), each block to
 * (max, sum, weighted V), and blocks are merged in ascending order; the last one
 * may be partial. Whether a query is computed alone (decode), together with its
 * neighbours (prefill), in a group (forward_batch.h), after a cache hit or without, the
 * same operations happen in the same order. Fresh K/V are read back from the pool like
 * cached ones, so the store dtype rounds both alike.
 *
 * Within a block a backend uses one arithmetic for each store dtype. attn_cpu's has the
 * same bits on every CPU, except that a pool of bf16 (or fp8, or int8, where the CPU has
 * AVX512_VBMI too) on a CPU with AMX or AVX512_BF16 is computed with these instructions: q and
 * the weights are rounded to bf16 too, as the pool's numbers are. Against a softmax in float64 over
 * the stored numbers, the result is off by less than 1e-4 of its size (f32 arithmetic) or 1e-2
 * (bf16).
 *
 * Pools of every kind and store dtype are read: MHA and MLA (absorbed: the pool's one head
 * serves all query heads, V is the beginning of K), packed or strided, the caller's memory
 * or the pool's own. A number is what rad_kv_pool_get_kv gives. */
#ifndef ATTN_ATTN_BACKEND_H
#define ATTN_ATTN_BACKEND_H

#include "attn/forward_batch.h"
#include "base/compute_pool.h"

enum { ATTN_BLOCK = 64 };

/* What one layer's attention is, from the model's side. */
typedef struct radix_attention {
    uint32_t layer_id;
    uint32_t num_heads;     /* tp_q_head_num */
    uint32_t num_kv_heads;  /* tp_k_head_num; divides num_heads */
    uint32_t head_dim;      /* qk_head_dim */
    uint32_t v_head_dim;    /* 0 means head_dim */
    float scaling;          /* usually 1/sqrt(head_dim) */
    float logit_cap;        /* 0 = none; else cap * tanh(score / cap) */
    int32_t sliding_window; /* -1 = none; else a query at p sees keys in (p - window, p] */
    const float *sinks;     /* [num_heads], or NULL: one score more for each head, which takes its
                             * weight in the softmax and has no value */
} radix_attention;

typedef struct attn_backend attn_backend;
struct attn_backend {
    const char *name; /* "ref", "cpu-avx512", ... */

    /* out[num_tokens][num_heads][v_head_dim] = attention of q[num_tokens][num_heads]
     * [head_dim] over the rows of the batch, causal. K/V of the new tokens are in the
     * pool already. */
    void (*forward)(const attn_backend *self, const radix_attention *layer,
                    const forward_batch *batch, const float *q, float *out, compute_pool *pool);
};

/* The judge: scalar, obvious, slow. Any ISA. */
const attn_backend *attn_ref(void);

/* The fast one: picks AMX, AVX-512, AVX2, NEON or portable C at run time. `isa` NULL means the best
 * this CPU has; or "amx", "avx512bf16", "avx512", "avx2", "neon", "scalar". NULL when the CPU lacks
 * it. It takes groups unless the batch has more than 1024 requests or 65536 rows (token x head), or
 * there are more than two threads per KV head: then members read for themselves. It uses up to 2 MB
 * of stack on the calling thread, 1 MB on the pool's: see compute_thread_create. */
const attn_backend *attn_cpu(const char *isa);

/* What a backend's answers over a pool of this dtype are filed under: two names, two
 * arithmetics. The backend's own name, but for narrow numbers that are read as bf16
 * ("cpu-amx-codes"; attn_codes.h). Lives for ever. Any thread. */
const char *attn_name(const attn_backend *backend, uint32_t kv_dtype);

/* Why a CPU with AMX attends without, in words that live for ever; NULL when it is used or
 * there is none. Any thread. */
const char *attn_amx_refusal(void);

/* The layer: stores k/v of the batch at out_cache_loc when `save_kv_cache` and they
 * are not NULL (NULL: the pool already holds them, reuse), then attends.
 * k is [num_tokens][num_kv_heads][head_dim], v [..][v_head_dim]; for an MLA pool v is not
 * looked at. RAD_E_INVAL in words when the layer does not fit the pool, or the batch or its
 * groups contradict themselves. That the members of a group really have the same slots is
 * the caller's promise. */
rad_status radix_attention_forward(const radix_attention *layer, const attn_backend *backend,
                                   const forward_batch *batch, const float *q, const float *k,
                                   const float *v, int save_kv_cache, float *out,
                                   compute_pool *pool, rad_error *err);

/* The layer alone, for a model that has looked at all of this once for the step, before the first
 * layer wrote anything: each layer and its pool by radix_attention_check, the batch's groups by
 * forward_batch_check_groups, its rows and lengths by batch_check (model/batch_check.h). What was
 * not looked at is not noticed here. RAD_E_IO in words: the pool's device failed. */
rad_status radix_attention_run(const radix_attention *layer, const attn_backend *backend,
                               const forward_batch *batch, const float *q, const float *k,
                               const float *v, int save_kv_cache, float *out, compute_pool *pool,
                               rad_error *err);
rad_status radix_attention_check(const radix_attention *layer, const rad_token_to_kv_pool *pool,
                                 rad_error *err);
rad_status forward_batch_check_groups(const forward_batch *batch, rad_error *err);

#endif
