/* quant_many_plan.h - whether a product of quantised weights is one for many tokens
 * (gemm_quant_many.cu), and by which tiles. The bits do not depend on it. */
#ifndef CUDA_QUANT_MANY_PLAN_H
#define CUDA_QUANT_MANY_PLAN_H

#include "cuda/gemm_plan.h"

/* kernel NULL: the kernels for few tokens (cuda_gemm_few_plan) are thought to be faster, or this
 * GPU has no place for a tile. Always so for GEMM_FEW_TOKENS tokens and fewer. */
cuda_gemm_plan cuda_quant_many_plan(cuda_gemm_kind kind, uint32_t n, uint32_t k, uint32_t tokens,
                                    cuda_gemm_room room);

/* Tiles of one's own choice, for measurements and tests: 64 or 128 tokens, 1 to 4 warps of 32 rows.
 * False: there are no such, or they do not fit. */
bool cuda_quant_many_plan_of(cuda_gemm_kind kind, uint32_t n, uint32_t tokens, cuda_gemm_room room,
                             uint32_t tile_tokens, uint32_t warps, cuda_gemm_plan *out);

#endif
