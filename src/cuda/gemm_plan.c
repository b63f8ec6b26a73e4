/* gemm_plan.c - rows of a block are chosen so that all multiprocessors have as much to read.
 *
 * What is chosen follows what bench_gemm_cuda found on an H100: rings as large as there is place
 * (8B's down, one token: 48 us with 3 stages, 41 with 6), and half of the multiprocessors for
 * small matrices (0.6B's gate_up, one token: 5.7 us on 128, 5.2 on 64: the other half already has
 * the next product's W). The forms that keep tokens are not measured yet, so nothing chooses
 * them. */
#include "cuda/gemm_plan.h"

enum { STAGE_COST = 8 << 10, FEWEST_TOKENS = 8, SMALL_STEPS = 8 };

/* Those whose copies wait_copies of the kernels waits for exactly. */
static const uint32_t stages_of[] = {8, 6, 4, 3};
enum { MOST_STAGES = 8, LEAST_STAGES = 3 };

/* A kernel: what it takes at a time, and what that takes of a stage. */
typedef struct few {
    const char *name, *kept; /* kept: its form that keeps tokens */
    const char *by_tiles;    /* of experts' matrices */
    uint32_t tokens;
    uint32_t rows, warps; /* rows of a warp, warps at most */
    uint32_t w_bytes;     /* of a warp */
    uint32_t x_bytes;
} few;

/* A row of W or x has 256 bytes of k and 16 that keep banks apart; x of the quantised has scales,
 * and, for Q4_K, sums. */
#define ROWS(rows)   ((rows)*272)
#define SCALES(rows) ((rows)*8 * 4)
#define QUANT_OF(name, w_bytes, sums, tokens, warps)                                               \
    {                                                                                              \
        "gemm_" name "_" #tokens, NULL, "gemm_experts_" name "_" #tokens, tokens, 16, warps,       \
            w_bytes, ROWS(tokens) + (1 + (sums)) * SCALES(tokens)                                  \
    }
#define QUANT(name, w_bytes, sums)                                                                 \
    {                                                                                              \
        QUANT_OF(name, w_bytes, sums, 8, 8), QUANT_OF(name, w_bytes, sums, 16, 8),                 \
            QUANT_OF(name, w_bytes, sums, 32, 8), QUANT_OF(name, w_bytes, sums, 64, 6)             \
    }
static const few kernels[][4] =
    {[CUDA_GEMM_BF16] =
         {{"gemm_few_8", "gemm_few_8_kept", "gemm_experts_8", 8, 16, 8, ROWS(16), ROWS(8)},
          {"gemm_few_16", "gemm_few_16_kept", "gemm_experts_16", 16, 16, 8, ROWS(16), ROWS(16)},
          {"gemm_few_32", "gemm_few_32_kept", "gemm_experts_32", 32, 16, 8, ROWS(16), ROWS(32)},
          {"gemm_few_64", "gemm_few_64_kept", "gemm_experts_64", 64, 32, 4, ROWS(32), ROWS(64)}},
     [CUDA_GEMM_Q8_0] = QUANT("q8_0", 4352, 0),
     [CUDA_GEMM_Q4_K] = QUANT("q4_k", 2368, 1),
     [CUDA_GEMM_Q6_K] = QUANT("q6_k", 3360, 0),
     [CUDA_GEMM_MXFP4] = QUANT("mxfp4", 2176, 0)};

cuda_gemm_kind cuda_gemm_kind_of(gemm_type type)
{
    switch (type) {
    case GEMM_Q8_0: return CUDA_GEMM_Q8_0;
    case GEMM_MXFP4: return CUDA_GEMM_MXFP4;
    case GEMM_Q4_K: return CUDA_GEMM_Q4_K;
    case GEMM_Q6_K: return CUDA_GEMM_Q6_K;
    default: break;
    }
    RAD_ASSERT(type == GEMM_BF16);
    return CUDA_GEMM_BF16;
}

/* The smallest that takes them at a time, or the largest. */
static const few *kernel_for(cuda_gemm_kind kind, uint32_t tokens)
{
    for (const few *f = kernels[kind];; f++)
        if (f->tokens >= tokens || f == &kernels[kind][3]) return f;
}

/* Stages of a range. */
static uint32_t steps_of(cuda_gemm_kind kind, uint32_t k, uint32_t splits)
{
    return cuda_div_up(k / splits, kind == CUDA_GEMM_BF16 ? 128 : 256);
}

static uint32_t shared_bytes(const few *f, uint32_t steps, uint32_t warps, uint32_t stages,
                             bool kept)
{
    return stages * warps * f->w_bytes + (kept ? steps : stages) * f->x_bytes;
}

/* A unit: the rows of a block, a range of k, as many tokens as the kernel takes. */
static uint32_t units(const few *f, uint32_t n, uint32_t tokens, uint32_t splits, uint32_t warps)
{
    return cuda_div_up(n, warps * f->rows) * splits * cuda_div_up(tokens, f->tokens);
}

/* What is launched: `tokens` of all tiles together. */
typedef struct product {
    const few *f;
    cuda_gemm_kind kind;
    uint32_t n, k, tokens, splits;
    bool by_tiles;
} product;

static bool plan_of(const product *p, cuda_gemm_room room, cuda_gemm_choice c, cuda_gemm_plan *out)
{
    const few *f = p->f;
    const uint32_t steps = steps_of(p->kind, p->k, p->splits);
    const uint32_t shared = shared_bytes(f, steps, c.warps, c.stages, c.kept);
    if (!c.warps || c.warps > f->warps || c.stages < LEAST_STAGES || c.stages > MOST_STAGES ||
        !c.blocks || shared > room.shared_bytes || (c.kept && (!f->kept || p->by_tiles)))
        return false;
    *out = (cuda_gemm_plan){.kernel = p->by_tiles ? f->by_tiles
                                      : c.kept    ? f->kept
                                                  : f->name,
                            .grid = RAD_MIN(units(f, p->n, p->tokens, p->splits, c.warps),
                                            room.multiprocessors * c.blocks),
                            .threads = 32 * (c.warps + cuda_div_up(f->tokens, 16)),
                            .shared_bytes = shared,
                            .warps = c.warps,
                            .stages = c.stages};
    return true;
}

static product few_product(cuda_gemm_kind kind, uint32_t n, uint32_t k, uint32_t tokens,
                           uint32_t splits)
{
    RAD_ASSERT(tokens > 0 && (kind != CUDA_GEMM_BF16 || tokens <= GEMM_FEW_TOKENS));
    return (product){kernel_for(kind, tokens), kind, n, k, tokens, splits, false};
}

static product tiles_product(cuda_gemm_kind kind, uint32_t n, uint32_t k, uint32_t width,
                             uint32_t most_tiles)
{
    const few *f = kernel_for(kind, width);
    RAD_ASSERT(f->tokens == width && most_tiles > 0);
    return (product){f, kind, n, k, width * most_tiles, 1, true};
}

bool cuda_gemm_few_plan_of(cuda_gemm_kind kind, uint32_t n, uint32_t k, uint32_t tokens,
                           uint32_t splits, cuda_gemm_room room, cuda_gemm_choice c,
                           cuda_gemm_plan *out)
{
    const product p = few_product(kind, n, k, tokens, splits);
    return plan_of(&p, room, c, out);
}

bool cuda_gemm_tiles_plan_of(cuda_gemm_kind kind, uint32_t n, uint32_t k, uint32_t width,
                             uint32_t most_tiles, cuda_gemm_room room, cuda_gemm_choice c,
                             cuda_gemm_plan *out)
{
    const product p = tiles_product(kind, n, k, width, most_tiles);
    return plan_of(&p, room, c, out);
}

/* The busiest multiprocessor's units: rows of W, which come from memory, tokens, which come from
 * the L2 at twice the speed, and what a stage takes whatever it holds. */
static uint64_t time_of(const product *p, uint32_t warps, uint32_t multiprocessors)
{
    const few *f = p->f;
    const uint32_t most = cuda_div_up(units(f, p->n, p->tokens, p->splits, warps), multiprocessors);
    const uint32_t x_bytes = f->x_bytes / f->tokens * RAD_MIN(p->tokens, f->tokens);
    return (uint64_t)most * (2 * warps * f->w_bytes + x_bytes + STAGE_COST);
}

/* The most stages that `most` bytes have room for; 0: too few. */
static uint32_t stages_in(const few *f, uint32_t most, uint32_t warps)
{
    for (size_t i = 0; i < RAD_COUNT(stages_of); i++)
        if (shared_bytes(f, 0, warps, stages_of[i], false) <= most) return stages_of[i];
    return 0;
}

static cuda_gemm_plan best_plan(const product *p, cuda_gemm_room room)
{
    const few *f = p->f;
    const uint32_t most = RAD_MIN(room.shared_bytes, (uint32_t)GEMM_FEW_SHARED);
    const uint32_t steps = steps_of(p->kind, p->k, p->splits);
    /* Where few units are left with the most rows, and a ring has all or most of one's W. */
    const uint32_t half = room.multiprocessors / 2;
    const bool small = p->tokens <= FEWEST_TOKENS && steps <= SMALL_STEPS &&
                       units(f, p->n, p->tokens, p->splits, f->warps) <= half;
    const uint32_t multiprocessors = small ? half : room.multiprocessors;
    cuda_gemm_choice c = {.warps = 1, .blocks = 1};
    for (uint32_t w = 2; w <= f->warps && stages_in(f, most, w); w++)
        if (time_of(p, w, multiprocessors) <= time_of(p, c.warps, multiprocessors)) c.warps = w;
    c.stages = stages_in(f, most, c.warps);
    /* No more than a block's own work fills, so that the next product's finds place beside it. */
    const uint32_t work =
        steps * cuda_div_up(units(f, p->n, p->tokens, p->splits, c.warps), room.multiprocessors);
    for (size_t i = 0; !small && i < RAD_COUNT(stages_of); i++)
        if (stages_of[i] > work && stages_of[i] < c.stages) c.stages = stages_of[i];
    cuda_gemm_plan plan;
    const bool fits = plan_of(p, room, c, &plan);
    RAD_ASSERT(fits); /* 3 stages of one warp: 78 KB at most; sm_80 and newer have 99 KB */
    return plan;
}

cuda_gemm_plan cuda_gemm_few_plan(cuda_gemm_kind kind, uint32_t n, uint32_t k, uint32_t tokens,
                                  uint32_t splits, cuda_gemm_room room)
{
    const product p = few_product(kind, n, k, tokens, splits);
    return best_plan(&p, room);
}

cuda_gemm_plan cuda_gemm_tiles_plan(cuda_gemm_kind kind, uint32_t n, uint32_t k, uint32_t width,
                                    uint32_t most_tiles, cuda_gemm_room room)
{
    const product p = tiles_product(kind, n, k, width, most_tiles);
    return best_plan(&p, room);
}
