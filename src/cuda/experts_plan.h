/* experts_plan.h - how many places a step's choices of experts take, and in tiles of which width
 * (experts_args.h). The host knows how many choices there are, not which: it launches for the most
 * tiles that there can be. */
#ifndef CUDA_EXPERTS_PLAN_H
#define CUDA_EXPERTS_PLAN_H

#include "base/base.h"
#include "cuda/kernels/experts_args.h"

typedef struct cuda_experts_plan {
    uint32_t width;      /* places of a tile: 8, 16, 32 or 64 */
    uint32_t most_tiles; /* that there can be */
    uint32_t places;     /* of them */
} cuda_experts_plan;

/* For `tokens` that use `used` experts each, out of `count`. */
cuda_experts_plan cuda_experts_plan_of(uint32_t tokens, uint32_t used, uint32_t count);

/* The most tiles and places of any step of up to `tokens`; width is 0. */
cuda_experts_plan cuda_experts_most(uint32_t tokens, uint32_t used, uint32_t count);

#endif
