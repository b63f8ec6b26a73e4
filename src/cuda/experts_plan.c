/* experts_plan.c - see experts_plan.h.
 *
 * An expert's matrix is read once for each of its tiles, so a tile should have place for nearly all
 * tokens that choose the same expert; but its empty places are multiplied by too. Twice the average
 * holds all of them for most experts. */
#include "cuda/experts_plan.h"

cuda_experts_plan cuda_experts_plan_of(uint32_t tokens, uint32_t used, uint32_t count)
{
    cuda_experts_plan p = {.width = 8};
    while (p.width < 64 && (uint64_t)p.width * count < 2 * (uint64_t)tokens * used)
        p.width *= 2;
    p.most_tiles = experts_most_tiles(tokens, used, count, p.width);
    p.places = p.most_tiles * p.width;
    return p;
}

cuda_experts_plan cuda_experts_most(uint32_t tokens, uint32_t used, uint32_t count)
{
    cuda_experts_plan most = {0};
    for (uint32_t t = 1; t <= tokens; t++) {
        const cuda_experts_plan p = cuda_experts_plan_of(t, used, count);
        most.most_tiles = RAD_MAX(most.most_tiles, p.most_tiles);
        most.places = RAD_MAX(most.places, p.places);
    }
    return most;
}
