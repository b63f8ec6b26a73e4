/* cuda_forward.h - the launches of a step.
 *
 *     patch_slots                       what changed in the requests' rows
 *     x = embed(ids)
 *     per layer:
 *         norm = rms(x += y)            y: what the layer before added, as parts
 *         y    = qkv . norm
 *         row_scales(y)                 where q and k have norms over all heads
 *         q, K, V = qkv(y)              bias, norms, RoPE; K and V go to the pool
 *         attn = attention(q), merged
 *         y    = attn_output . attn
 *         norm = rms(x += y)
 *         act  = glu(gate_up . norm)    in the product's epilogue, where the matrix is paired
 *         y    = ffn_down . act         or what a mixture of experts says (cuda_experts.h)
 *     logits = output . rms(x + y)      of the rows that are asked for; capped
 *
 * What a quantised matrix multiplies is rounded to int8 in blocks in front of it: the norm from
 * f32, the gated unit from the parts of its product where that is quantised too, as on the CPU, the
 * rest from bf16.
 *
 * Invariant (P1): a row's numbers are sums in an order that follows from the matrix and from
 * positions alone (kernel_args.h). */
#ifndef CUDA_CUDA_FORWARD_H
#define CUDA_CUDA_FORWARD_H

#include "cuda/cuda_buffers.h"
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_layout.h"
#include "cuda/cuda_step.h"

typedef struct cuda_pass {
    const model_config *config;
    const cuda_layout *layout;
    const cuda_buffers *buffers;
    const cuda_step_limits *limits;
    cuda_ptr weights;
    rad_token_to_kv_pool *pool; /* a layer is waited for just before it is launched */
    /* of layers with a window; NULL: `pool` has them, too */
    rad_token_to_kv_pool *window_pool;
} cuda_pass;

/* Where a layer's K and V lie in its pool, and what those of fp8 were divided by. Waits for the
 * layer. RAD_E_INVAL: the pool lacks it. */
typedef struct cuda_kv {
    rad_kv_buffers at;
    float k_scale, v_scale;
} cuda_kv;
rad_status cuda_pass_kv(const cuda_pass *p, uint32_t layer, cuda_kv *out, rad_error *err);

/* Launches all of a step whose block is uploaded. RAD_E_INVAL: the pool lacks a layer; or the
 * launch's. */
rad_status cuda_forward(const cuda_pass *p, const cuda_step *s, cuda_queue *q);

#endif
