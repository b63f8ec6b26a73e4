/* quant_many_plan.c - the tiles that take the fewest cycles by an estimate that counts
 * instructions.
 *
 * Nothing here was measured: `slots` are what ptxas makes of a 16x8x32 product in the kernel's loop
 * (gemm_quant_many.cu), and those of the kernels for few tokens, whose W and x come through shared
 * memory for 16 rows at a time, are counted likewise. A scheduler with one warp alone waits for
 * results as long again as 0.6 of what it computes. */
#include "cuda/quant_many_plan.h"

enum { WARP_ROWS = 32, STAGES = 3, MOST_WARPS = 4, FEW_WARPS = 6, TILE_K = 32 };

static const struct many {
    const char *names[2]; /* of 64 and of 128 tokens */
    uint32_t slots, few_slots, scales;
} kernels[CUDA_GEMM_KINDS] = {
    [CUDA_GEMM_Q8_0] = {{"gemm_q8_0_many_64", "gemm_q8_0_many_128"}, 16, 26, 1},
    [CUDA_GEMM_MXFP4] = {{"gemm_mxfp4_many_64", "gemm_mxfp4_many_128"}, 18, 28, 1},
    [CUDA_GEMM_Q4_K] = {{"gemm_q4_k_many_64", "gemm_q4_k_many_128"}, 21, 32, 2},
    [CUDA_GEMM_Q6_K] = {{"gemm_q6_k_many_64", "gemm_q6_k_many_128"}, 31, 40, 1}};

static uint32_t tiles_of(uint32_t n, uint32_t tokens, uint32_t tile_tokens, uint32_t warps)
{
    return cuda_div_up(tokens, tile_tokens) * cuda_div_up(n, warps * WARP_ROWS);
}

bool cuda_quant_many_plan_of(cuda_gemm_kind kind, uint32_t n, uint32_t tokens, cuda_gemm_room room,
                             uint32_t tile_tokens, uint32_t warps, cuda_gemm_plan *out)
{
    const struct many *many = &kernels[kind];
    if (!many->names[0] || (tile_tokens != 64 && tile_tokens != 128) || !warps ||
        warps > MOST_WARPS)
        return false;
    *out = (cuda_gemm_plan){.kernel = many->names[tile_tokens == 128],
                            .grid = tiles_of(n, tokens, tile_tokens, warps),
                            .threads = 32 * warps,
                            .shared_bytes = STAGES * tile_tokens * (128 + 16 * many->scales),
                            .warps = warps,
                            .stages = STAGES};
    return out->shared_bytes <= room.shared_bytes;
}

/* Cycles of the busiest multiprocessor, which has four schedulers: `each` of a warp. */
static uint64_t cycles(uint32_t units, uint32_t warps, uint64_t each, uint32_t multiprocessors)
{
    const uint64_t most = (uint64_t)cuda_div_up(units, multiprocessors) * warps;
    return RAD_MAX(most * each * 10 / 4, each * 16) / 10;
}

cuda_gemm_plan cuda_quant_many_plan(cuda_gemm_kind kind, uint32_t n, uint32_t k, uint32_t tokens,
                                    cuda_gemm_room room)
{
    const struct many *many = &kernels[kind];
    cuda_gemm_plan best = {0}, plan;
    if (tokens <= GEMM_FEW_TOKENS) return best;
    const uint64_t blocks = k / TILE_K;
    uint64_t least = cycles(cuda_div_up(tokens, GEMM_FEW_TOKENS) * cuda_div_up(n, 16 * FEW_WARPS),
                            FEW_WARPS, blocks * many->few_slots * (GEMM_FEW_TOKENS / 8),
                            room.multiprocessors);
    for (uint32_t tile = 128; tile >= 64; tile /= 2)
        for (uint32_t warps = MOST_WARPS; warps; warps /= 2) {
            const uint64_t time = cycles(tiles_of(n, tokens, tile, warps), warps,
                                         blocks * many->slots * (tile / 8) * (WARP_ROWS / 16),
                                         room.multiprocessors);
            if (time >= least ||
                !cuda_quant_many_plan_of(kind, n, tokens, room, tile, warps, &plan))
                continue;
            best = plan;
            least = time;
        }
    return best;
}
