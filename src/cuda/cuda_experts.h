/* cuda_experts.h - the launches of a mixture of experts, and the memory between them:
 *
 *     scores = router . norm             f32
 *     which experts each token uses; a place for each of its choices (experts_args.h)
 *     act    = glu(gate_up . norm)       of each place by its expert, gathered by tokens
 *     down   = ffn_down . act
 *     y      = sum of a token's places, by rank, and of an expert that all use
 *
 * Either matrix of the experts may be quantised: the gated unit goes from one to the other as f32,
 * as bf16 or rounded, as the next one reads it. */
#ifndef CUDA_CUDA_EXPERTS_H
#define CUDA_CUDA_EXPERTS_H

#include "cuda/cuda_kernels.h"
#include "cuda/cuda_layout.h"

enum { CUDA_EXPERTS_BUFFERS = 12 };

/* Each begins somewhere in the runner's block. `places`: cuda_experts_most's. */
typedef union cuda_experts_buffers {
    struct {
        cuda_ptr scores;                    /* f32 [tokens][scores_ld] */
        cuda_ptr chosen, weights, place_of; /* [tokens][used] */
        cuda_ptr tiles, num_tiles, row_of;  /* experts_order's */
        cuda_ptr wide;                      /* f32 [places][gates and ups] of quantised ones */
        cuda_ptr act;                       /* bf16 [places][ffn, padded] */
        cuda_ptr down;                      /* f32 [places][dim, padded] */
        cuda_ptr rounded, scales;           /* [places], for quantised ones */
    };
    cuda_ptr all[CUDA_EXPERTS_BUFFERS];
} cuda_experts_buffers;

/* What each buffer has, in the order of `all`, for steps of up to `tokens`. */
typedef struct cuda_experts_room {
    size_t count, size; /* so many, of so many bytes each */
} cuda_experts_room;
void cuda_experts_rooms(const model_config *c, const cuda_layout *layout, uint32_t tokens,
                        cuda_experts_room rooms[CUDA_EXPERTS_BUFFERS]);

/* What a layer's mixture reads and writes of a step. */
typedef struct cuda_experts_pass {
    const model_config *config;
    const cuda_layer *layer;
    const cuda_experts_buffers *buffers;
    cuda_ptr weights;
    cuda_ptr norm_f32, norm;    /* [tokens][dim] f32, and bf16 [tokens][dim, padded] */
    const uint32_t *num_tokens; /* on the device: without those that fill up a graph */
    uint32_t tokens;
} cuda_experts_pass;

/* A product of this layer reads bf16: norm has to be there. */
bool cuda_experts_read_bf16(const cuda_layer *layer);

/* Everything up to `down`; and the sum, to y [tokens][ld], with a shared expert's parts that lie
 * there (0: it has none). */
void cuda_experts_run(cuda_queue *q, const cuda_experts_pass *p);
void cuda_experts_add(cuda_queue *q, const cuda_experts_pass *p, cuda_ptr y, uint32_t ld,
                      uint32_t shared_parts);

#endif
