/* gemm_many_plan.c - tiles are chosen so that all multiprocessors have as much to compute.
 *
 * A launch takes as long as the multiprocessor with the most tiles; large tiles are computed
 * faster, small ones are dealt out more evenly. */
#include "cuda/gemm_many_plan.h"

#include <assert.h>
#include <string.h>

/* `percent` of what a multiprocessor computes with the largest tiles, `blocks` on one at a time. */
static const struct many {
    const char *name;
    bool wgmma, adds;
    uint32_t tokens, rows, threads, shared_bytes, blocks, percent;
} kernels[] = {
    {"gemm_many_256", false, false, 128, 256, 256, 4 * 384 * 64, 1, 100},
    {"gemm_many_128", false, false, 128, 128, 128, 4 * 256 * 64, 2, 95},
    {"gemm_many_64", false, false, 64, 64, 128, 4 * 128 * 64, 4, 70},
    {"gemm_many_128_sum", false, true, 128, 128, 256, 4 * 256 * 64, 1, 85},
    {"gemm_many_64_sum", false, true, 64, 64, 128, 4 * 128 * 64, 3, 65},
    {"gemm_wgmma_256", true, false, 128, 256, 384, 4 * 6 * 8192, 1, 200},
    {"gemm_wgmma_128", true, false, 128, 128, 384, 6 * 4 * 8192, 1, 170},
    {"gemm_wgmma_64", true, false, 128, 64, 384, 8 * 3 * 8192, 1, 130},
    {"gemm_wgmma_128_sum", true, true, 128, 128, 384, 6 * 4 * 8192, 1, 170},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static uint32_t tiles_of(const struct many *many, uint32_t n, uint32_t tokens)
{
    return (tokens + many->tokens - 1) / many->tokens * ((n + many->rows - 1) / many->rows);
}

bool cuda_gemm_many_plan_of(uint32_t number, uint32_t n, uint32_t k, uint32_t tokens,
                            uint32_t splits, cuda_gemm_many_room room, cuda_gemm_many_plan *out)
{
    *out = (cuda_gemm_many_plan){0};
    if (number >= KERNELS) return false;
    const struct many *many = &kernels[number];
    const uint32_t parts = many->adds ? 1 : splits;
    RAD_ASSERT(tokens > 0 && n % 16 == 0 && k % (64 * splits) == 0);
    const uint32_t tiles = tiles_of(many, n, tokens) * parts;
    *out = (cuda_gemm_many_plan){.kernel = many->name,
                                 .wgmma = many->wgmma,
                                 /* Blocks of gemm_wgmma.cu stay and take tile after tile. */
                                 .grid = many->wgmma ? RAD_MIN(tiles, room.multiprocessors) : tiles,
                                 .threads = many->threads,
                                 .shared_bytes = many->shared_bytes,
                                 .parts = parts};
    return (!many->wgmma || room.wgmma) && many->shared_bytes + 1024 <= room.shared_bytes &&
           many->adds == (splits > 1 && parts == 1) &&
           (parts == 1 || (uint64_t)parts * tokens <= room.part_rows);
}

/* In numbers of a tile's k: the busiest multiprocessor's tiles, each with what it costs to fill the
 * ring, to write a tile, and to read it again where it is a part. */
static uint64_t time_of(const struct many *many, uint32_t n, uint32_t k, uint32_t tokens,
                        uint32_t parts, uint32_t multiprocessors)
{
    const uint32_t tiles = tiles_of(many, n, tokens) * parts;
    const uint32_t at_once = multiprocessors * many->blocks;
    const uint32_t most = (tiles + at_once - 1) / at_once * many->blocks;
    return (uint64_t)RAD_MIN(most, tiles) * many->tokens * many->rows *
           (k / parts + 192 + (parts > 1 ? 128 : 0)) * 100 / many->percent;
}

cuda_gemm_many_plan cuda_gemm_many_plan_make(uint32_t n, uint32_t k, uint32_t tokens,
                                             uint32_t splits, cuda_gemm_many_room room)
{
    cuda_gemm_many_plan best = {0}, plan;
    uint64_t best_time = 0;
    for (uint32_t i = 0; i < KERNELS; i++) {
        if (!cuda_gemm_many_plan_of(i, n, k, tokens, splits, room, &plan)) continue;
        uint64_t time = time_of(&kernels[i], n, k, tokens, plan.parts, room.multiprocessors);
        if (best.kernel && time >= best_time) continue;
        best = plan;
        best_time = time;
    }
    RAD_ASSERT(best.kernel); /* 64 KB at most for the smaller ones; sm_80 and newer have 99 */
    return best;
}

rad_status cuda_matrix_map(const cuda_driver *cu, cuda_ptr memory, uint32_t rows, uint32_t k,
                           tensor_map *out, rad_error *err)
{
    enum { BF16 = 9, SWIZZLE_128 = 3, PROMOTION_256 = 3 };
    static_assert(sizeof(tensor_map) == sizeof(cuda_tensor_map), "");
    const uint64_t sizes[] = {k, rows}, strides[] = {(uint64_t)k * 2};
    const uint32_t box[] = {64, 64}, steps[] = {1, 1};
    cuda_tensor_map map;
    if (!cu->tensor_map_tiled)
        return rad_fail(err, RAD_E_UNSUPPORTED, "cuda: this driver makes no tensor maps");
    rad_status status =
        cuda_ok(cu,
                cu->tensor_map_tiled(&map, BF16, 2, (void *)(uintptr_t)memory, sizes, strides, box,
                                     steps, 0, SWIZZLE_128, PROMOTION_256, 0),
                "cuTensorMapEncodeTiled", err);
    if (status == RAD_OK) memcpy(out, &map, sizeof map);
    return status;
}
