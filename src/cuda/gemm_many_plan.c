/* gemm_many_plan.c - tiles are chosen so that all multiprocessors have as much to compute.
 *
 * A launch takes as long as the multiprocessor with the most tiles; large tiles are computed
 * faster, small ones are dealt out more evenly. */
#include "cuda/gemm_many_plan.h"

#include <assert.h>
#include <string.h>

/* A tile of gemm_wgmma_few_* has all tokens, and a block goes on with the next where one ends.
 * `macs`: what a multiprocessor of an H100 was seen to multiply in a cycle with these tiles;
 * `blocks` on one at a time. UNTRIED: no GPU has run it yet, so that it has to be asked for. */
enum { FEW = 1, ADDS = 2, WGMMA = 4, UNTRIED = 8 };
static const struct many {
    const char *name;
    uint32_t kind, tokens, rows, threads, shared_bytes, blocks, macs;
} kernels[] = {
    {"gemm_many_256", 0, 128, 256, 256, 4 * 384 * 64, 1, 1080},
    {"gemm_many_128", 0, 128, 128, 128, 4 * 256 * 64, 2, 1060},
    {"gemm_many_64", 0, 64, 64, 128, 4 * 128 * 64, 4, 620},
    {"gemm_many_128_sum", ADDS, 128, 128, 256, 4 * 256 * 64, 1, 570},
    {"gemm_many_64_sum", ADDS, 64, 64, 128, 4 * 128 * 64, 3, 460},
    {"gemm_wgmma_256", WGMMA, 128, 256, 384, 4 * 6 * 8192, 1, 1790},
    {"gemm_wgmma_128", WGMMA, 128, 128, 384, 6 * 4 * 8192, 1, 1540},
    {"gemm_wgmma_64", WGMMA, 128, 64, 384, 8 * 3 * 8192, 1, 1140},
    {"gemm_wgmma_192_sum", WGMMA | ADDS | UNTRIED, 128, 192, 384, 5 * 5 * 8192, 1, 1650},
    {"gemm_wgmma_128_sum", WGMMA | ADDS, 128, 128, 384, 6 * 4 * 8192, 1, 1500},
    {"gemm_wgmma_few_16", WGMMA | FEW | UNTRIED, 16, 64, 160, 10 * 10240, 1, 260},
    {"gemm_wgmma_few_32", WGMMA | FEW | UNTRIED, 32, 64, 160, 8 * 12288, 1, 500},
    {"gemm_wgmma_few_64", WGMMA | FEW | UNTRIED, 64, 64, 160, 6 * 16384, 1, 700},
    {"gemm_wgmma_few_128", WGMMA | FEW | UNTRIED, 128, 64, 160, 4 * 24576, 1, 900},
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
    const bool adds = many->kind & ADDS, wgmma = many->kind & WGMMA, few = many->kind & FEW;
    const uint32_t parts = adds ? 1 : splits, tiles = tiles_of(many, n, tokens) * parts;
    RAD_ASSERT(tokens > 0 && n % 16 == 0 && k % (64 * splits) == 0);
    *out = (cuda_gemm_many_plan){.kernel = many->name,
                                 .wgmma = wgmma,
                                 .x_box = few ? many->tokens : 64,
                                 /* Blocks of gemm_wgmma.cu stay and take tile after tile. */
                                 .grid = wgmma ? RAD_MIN(tiles, room.multiprocessors) : tiles,
                                 .threads = many->threads,
                                 .shared_bytes = many->shared_bytes,
                                 .parts = parts};
    return (!wgmma || room.wgmma) && many->shared_bytes + 1024 <= room.shared_bytes &&
           adds == (splits > 1 && parts == 1) && (!few || tokens <= many->tokens) &&
           (parts == 1 || (uint64_t)parts * tokens <= room.part_rows);
}

/* Cycles: the busiest multiprocessor's tiles, each with what it costs to fill the ring and to write
 * a tile, fewer blocks at a time being slower each; reading W once, of which the shorter of the two
 * is hidden for the most part; and writing and reading all parts but the first. */
static uint64_t time_of(const struct many *many, uint32_t n, uint32_t k, uint32_t tokens,
                        uint32_t parts, uint32_t multiprocessors)
{
    enum { BYTES_A_CYCLE = 13 }; /* of a multiprocessor, of memory */
    const uint32_t tiles = tiles_of(many, n, tokens) * parts;
    const uint32_t at_once = multiprocessors * many->blocks;
    const uint32_t last = (tiles % at_once + multiprocessors - 1) / multiprocessors; /* blocks */
    const uint64_t size = (uint64_t)many->tokens * many->rows;
    const uint64_t each = size * (k / parts) / many->macs + size / 8;
    const uint64_t computing = tiles / at_once * many->blocks * each +
                               last * each * (many->blocks + 1) / (last + 1);
    const uint64_t reading = (uint64_t)n * k * 2 / multiprocessors / BYTES_A_CYCLE;
    const uint64_t more = (uint64_t)tokens * n * (parts - 1) * 8 / multiprocessors / BYTES_A_CYCLE;
    return RAD_MAX(computing, reading) + RAD_MIN(computing, reading) / 8 + more;
}

cuda_gemm_many_plan cuda_gemm_many_plan_make(uint32_t n, uint32_t k, uint32_t tokens,
                                             uint32_t splits, cuda_gemm_many_room room)
{
    cuda_gemm_many_plan best = {0}, plan;
    uint64_t best_time = 0;
    for (uint32_t i = 0; i < KERNELS; i++) {
        if (kernels[i].kind & UNTRIED ||
            !cuda_gemm_many_plan_of(i, n, k, tokens, splits, room, &plan))
            continue;
        uint64_t time = time_of(&kernels[i], n, k, tokens, plan.parts, room.multiprocessors);
        if (best.kernel && time >= best_time) continue;
        best = plan;
        best_time = time;
    }
    RAD_ASSERT(best.kernel); /* 64 KB at most for the smaller ones; sm_80 and newer have 99 */
    return best;
}

rad_status cuda_matrix_map(const cuda_driver *cu, cuda_ptr memory, uint32_t rows, uint32_t k,
                           uint32_t box_rows, tensor_map *out, rad_error *err)
{
    enum { BF16 = 9, SWIZZLE_128 = 3, PROMOTION_256 = 3 };
    static_assert(sizeof(tensor_map) == sizeof(cuda_tensor_map), "");
    const uint64_t sizes[] = {k, rows}, strides[] = {(uint64_t)k * 2};
    const uint32_t box[] = {64, box_rows}, steps[] = {1, 1};
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
