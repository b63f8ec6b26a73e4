/* gemm_plan.h - how the products of gemm_few.cu, gemm_quant.cu and, by tiles, gemm_experts.cu and
 * gemm_quant_experts.cu are launched. The bits do not depend on it.
 *
 * A plan is a matter of time alone: which of the kernels, how many rows of W a block takes at a
 * time, and how many copies it has under way. The memory of an H100 gives a multiprocessor 14 bytes
 * a cycle, after some 1,000 cycles; so 32 to 64 KB must be under way in each, and what a wait for
 * the previous kernel leaves of them is what the next one already has. */
#ifndef CUDA_GEMM_PLAN_H
#define CUDA_GEMM_PLAN_H

#include "base/base.h"
#include "cuda/kernels/kernel_args.h"
#include "model/gemm.h"

enum {
    GEMM_FEW_TOKENS = 64, /* of gemm_few.cu, at most; gemm_quant.cu takes any number */
    /* Dynamic shared memory at most, where the GPU has it; of an H100's 228 KB some are left for
     * blocks of the kernels between products. */
    GEMM_FEW_SHARED = 222 << 10
};

/* What W is. */
typedef enum cuda_gemm_kind {
    CUDA_GEMM_BF16,
    CUDA_GEMM_Q8_0,
    CUDA_GEMM_Q4_K,
    CUDA_GEMM_Q6_K,
    CUDA_GEMM_MXFP4,
    CUDA_GEMM_KINDS
} cuda_gemm_kind;

/* Of a type that cuda_quant_packs. */
cuda_gemm_kind cuda_gemm_kind_of(gemm_type type);

typedef struct cuda_gemm_plan {
    const char *kernel;
    uint32_t grid, threads, shared_bytes;
    uint32_t warps, stages; /* gemm_args and gemm_quant_args have them */
} cuda_gemm_plan;

/* What a GPU has: cuda_gpu says so. */
typedef struct cuda_gemm_room {
    uint32_t multiprocessors, shared_bytes; /* of a block */
} cuda_gemm_room;

/* The product of a matrix [n][k], padded, by `tokens` rows of x, in `splits` ranges of k
 * (cuda_splits; the quantised: 1). */
cuda_gemm_plan cuda_gemm_few_plan(cuda_gemm_kind kind, uint32_t n, uint32_t k, uint32_t tokens,
                                  uint32_t splits, cuda_gemm_room room);

/* The products of a matrix of each expert's, [n][k], by tiles of `width` places (8, 16, 32 or 64),
 * of which there are `most_tiles` at most (experts_plan.h): gemm_experts.cu and
 * gemm_quant_experts.cu. */
cuda_gemm_plan cuda_gemm_tiles_plan(cuda_gemm_kind kind, uint32_t n, uint32_t k, uint32_t width,
                                    uint32_t most_tiles, cuda_gemm_room room);

/* What else a plan may be: `warps` warps that multiply, `stages` stages, at most `blocks` blocks a
 * multiprocessor, and tokens kept in shared memory (bf16). */
typedef struct cuda_gemm_choice {
    uint32_t warps, stages, blocks;
    bool kept;
} cuda_gemm_choice;

/* A plan of one's own choice, for measurements and tests. False: does not fit. */
bool cuda_gemm_few_plan_of(cuda_gemm_kind kind, uint32_t n, uint32_t k, uint32_t tokens,
                           uint32_t splits, cuda_gemm_room room, cuda_gemm_choice choice,
                           cuda_gemm_plan *out);
bool cuda_gemm_tiles_plan_of(cuda_gemm_kind kind, uint32_t n, uint32_t k, uint32_t width,
                             uint32_t most_tiles, cuda_gemm_room room, cuda_gemm_choice choice,
                             cuda_gemm_plan *out);

static inline uint32_t cuda_div_up(uint32_t count, uint32_t of)
{
    return (count + of - 1) / of;
}

#endif
