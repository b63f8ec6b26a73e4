/* cuda_buffers.h - the memory of a step's activations, in one block of the device.
 *
 * It is sized once for the largest step that limits allow, so places do not move and graphs of
 * steps can be replayed. Each buffer is as wide as the widest layer needs it. */
#ifndef CUDA_CUDA_BUFFERS_H
#define CUDA_CUDA_BUFFERS_H

#include "cuda/cuda_experts.h"
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_layout.h"
#include "cuda/cuda_memory.h"
#include "cuda/cuda_step.h"

typedef struct cuda_buffers {
    cuda_block block; /* all of the following */
    cuda_ptr x;       /* f32 [tokens][dim] */
    cuda_ptr norm;    /* bf16 [tokens][dim, padded] */
    cuda_ptr y;       /* f32 [y_numbers] parts of products */
    cuda_ptr q;       /* bf16 [tokens][heads][head_dim] */
    cuda_ptr attn;    /* bf16 [tokens][heads * head_dim, padded] */
    cuda_ptr act;     /* bf16 [tokens][ffn_dim, padded] */
    /* Of models with norms over all heads: */
    cuda_ptr row_scales; /* f32 [tokens][2] */
    /* Of models with quantised matrices: */
    cuda_ptr norm_f32; /* f32 [tokens][dim]; of those with experts, too */
    cuda_ptr rounded;  /* i8 [tokens][widest, padded], what is multiplied next */
    cuda_ptr scales;   /* f32 [2][widest / 32][tokens, padded] */
    cuda_experts_buffers experts;
    cuda_ptr part_v, part_ms;
    cuda_ptr step;                         /* the block of a step (cuda_step.h) */
    cuda_ptr table;                        /* cuda_slots.h */
    cuda_ptr logits;                       /* f32 [logits][logits_ld] */
    cuda_ptr sample_block, sample_scratch; /* sample_plan.h */
    cuda_ptr tokens;                       /* [logits] that were chosen */
    uint32_t logits_ld;
    size_t y_numbers;
    uint32_t norm_ld, attn_ld, act_ld;
    bool maps; /* there are: */
    tensor_map norm_maps[CUDA_X_MAPS], attn_maps[CUDA_X_MAPS], act_maps[CUDA_X_MAPS];
} cuda_buffers;

/* Zeroed. RAD_E_NOMEM as cuda_block_alloc; cuda_buffers_bytes is what it takes. */
rad_status cuda_buffers_init(const cuda_gpu *gpu, cuda_stream stream, bool maps,
                             const model_config *c, const cuda_layout *layout,
                             const cuda_step_limits *l, cuda_buffers *out, rad_error *err);
size_t cuda_buffers_bytes(const model_config *c, const cuda_layout *layout,
                          const cuda_step_limits *l);

/* Tokens that scales of rounded rows have place for: gemm_quant copies four at a time. */
static inline uint32_t cuda_rounded_tokens(uint32_t tokens)
{
    return cuda_pad(tokens, 4);
}

#endif
