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
    uint32_t tokens;
    uint32_t rows, warps; /* rows of a warp, warps at most */
    uint32_t w_bytes;     /* of a warp */
    uint32_t x_bytes;
} few;

/* A row of W or x has 256 bytes of k and 16 that keep banks apart; x of the quantised has scales,
 * and, for Q4_K, sums. */
#define ROWS(rows)   ((rows)*272)
#define SCALES(rows) ((rows)*8 * 4)
static const few kernels[][4] = {
    [CUDA_GEMM_BF16] = {{"gemm_few_8", "gemm_few_8_kept", 8, 16, 8, ROWS(16), ROWS(8)},
                        {"gemm_few_16", "gemm_few_16_kept", 16, 16, 8, ROWS(16), ROWS(16)},
                        {"gemm_few_32", "gemm_few_32_kept", 32, 16, 8, ROWS(16), ROWS(32)},
                        {"gemm_few_64", "gemm_few_64_kept", 64, 32, 4, ROWS(32), ROWS(64)}},
    [CUDA_GEMM_Q8_0] = {{"gemm_q8_0_8", NULL, 8, 16, 8, 4352, ROWS(8) + SCALES(8)},
                        {"gemm_q8_0_16", NULL, 16, 16, 8, 4352, ROWS(16) + SCALES(16)},
                        {"gemm_q8_0_32", NULL, 32, 16, 8, 4352, ROWS(32) + SCALES(32)},
                        {"gemm_q8_0_64", NULL, 64, 16, 6, 4352, ROWS(64) + SCALES(64)}},
    [CUDA_GEMM_Q4_K] = {{"gemm_q4_k_8", NULL, 8, 16, 8, 2368, ROWS(8) + 2 * SCALES(8)},
                        {"gemm_q4_k_16", NULL, 16, 16, 8, 2368, ROWS(16) + 2 * SCALES(16)},
                        {"gemm_q4_k_32", NULL, 32, 16, 8, 2368, ROWS(32) + 2 * SCALES(32)},
                        {"gemm_q4_k_64", NULL, 64, 16, 6, 2368, ROWS(64) + 2 * SCALES(64)}},
    [CUDA_GEMM_Q6_K] = {{"gemm_q6_k_8", NULL, 8, 16, 8, 3360, ROWS(8) + SCALES(8)},
                        {"gemm_q6_k_16", NULL, 16, 16, 8, 3360, ROWS(16) + SCALES(16)},
                        {"gemm_q6_k_32", NULL, 32, 16, 8, 3360, ROWS(32) + SCALES(32)},
                        {"gemm_q6_k_64", NULL, 64, 16, 6, 3360, ROWS(64) + SCALES(64)}},
    [CUDA_GEMM_MXFP4] = {{"gemm_mxfp4_8", NULL, 8, 16, 8, 2176, ROWS(8) + SCALES(8)},
                         {"gemm_mxfp4_16", NULL, 16, 16, 8, 2176, ROWS(16) + SCALES(16)},
                         {"gemm_mxfp4_32", NULL, 32, 16, 8, 2176, ROWS(32) + SCALES(32)},
                         {"gemm_mxfp4_64", NULL, 64, 16, 6, 2176, ROWS(64) + SCALES(64)}}};

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

static const few *kernel_for(cuda_gemm_kind kind, uint32_t tokens)
{
    RAD_ASSERT(tokens > 0 && (kind != CUDA_GEMM_BF16 || tokens <= GEMM_FEW_TOKENS));
    for (const few *f = kernels[kind];; f++)
        if (f->tokens >= tokens || f == &kernels[kind][3]) return f;
}

static uint32_t div_up(uint32_t count, uint32_t of)
{
    return (count + of - 1) / of;
}

/* Stages of a range. */
static uint32_t steps_of(cuda_gemm_kind kind, uint32_t k, uint32_t splits)
{
    return div_up(k / splits, kind == CUDA_GEMM_BF16 ? 128 : 256);
}

static uint32_t shared_bytes(const few *f, uint32_t steps, uint32_t warps, uint32_t stages,
                             bool kept)
{
    return stages * warps * f->w_bytes + (kept ? steps : stages) * f->x_bytes;
}

/* A unit: the rows of a block, a range of k, as many tokens as the kernel takes. */
static uint32_t units(const few *f, uint32_t n, uint32_t tokens, uint32_t splits, uint32_t warps)
{
    return div_up(n, warps * f->rows) * splits * div_up(tokens, f->tokens);
}

bool cuda_gemm_few_plan_of(cuda_gemm_kind kind, uint32_t n, uint32_t k, uint32_t tokens,
                           uint32_t splits, cuda_gemm_room room, cuda_gemm_choice c,
                           cuda_gemm_plan *out)
{
    const few *f = kernel_for(kind, tokens);
    const uint32_t shared = shared_bytes(f, steps_of(kind, k, splits), c.warps, c.stages, c.kept);
    if (!c.warps || c.warps > f->warps || c.stages < LEAST_STAGES || c.stages > MOST_STAGES ||
        !c.blocks || shared > room.shared_bytes || (c.kept && !f->kept))
        return false;
    *out = (cuda_gemm_plan){
        .kernel = c.kept ? f->kept : f->name,
        .grid = RAD_MIN(units(f, n, tokens, splits, c.warps), room.multiprocessors * c.blocks),
        .threads = 32 * (c.warps + div_up(f->tokens, 16)),
        .shared_bytes = shared,
        .warps = c.warps,
        .stages = c.stages};
    return true;
}

/* The busiest multiprocessor's units: rows of W, which come from memory, tokens, which come from
 * the L2 at twice the speed, and what a stage takes whatever it holds. */
static uint64_t time_of(const few *f, uint32_t n, uint32_t tokens, uint32_t splits, uint32_t warps,
                        uint32_t multiprocessors)
{
    const uint32_t most = div_up(units(f, n, tokens, splits, warps), multiprocessors);
    const uint32_t x_bytes = f->x_bytes / f->tokens * RAD_MIN(tokens, f->tokens);
    return (uint64_t)most * (2 * warps * f->w_bytes + x_bytes + STAGE_COST);
}

/* The most stages that `most` bytes have room for; 0: too few. */
static uint32_t stages_in(const few *f, uint32_t most, uint32_t warps)
{
    for (size_t i = 0; i < RAD_COUNT(stages_of); i++)
        if (shared_bytes(f, 0, warps, stages_of[i], false) <= most) return stages_of[i];
    return 0;
}

cuda_gemm_plan cuda_gemm_few_plan(cuda_gemm_kind kind, uint32_t n, uint32_t k, uint32_t tokens,
                                  uint32_t splits, cuda_gemm_room room)
{
    const few *f = kernel_for(kind, tokens);
    const uint32_t most = RAD_MIN(room.shared_bytes, (uint32_t)GEMM_FEW_SHARED);
    /* Where few units are left with the most rows, and a ring has all or most of one's W. */
    const uint32_t half = room.multiprocessors / 2;
    const bool small = tokens <= FEWEST_TOKENS && steps_of(kind, k, splits) <= SMALL_STEPS &&
                       units(f, n, tokens, splits, f->warps) <= half;
    const uint32_t multiprocessors = small ? half : room.multiprocessors;
    cuda_gemm_choice c = {.warps = 1, .blocks = 1};
    for (uint32_t w = 2; w <= f->warps && stages_in(f, most, w); w++)
        if (time_of(f, n, tokens, splits, w, multiprocessors) <=
            time_of(f, n, tokens, splits, c.warps, multiprocessors))
            c.warps = w;
    c.stages = stages_in(f, most, c.warps);
    /* No more than a block's own work fills, so that the next product's finds place beside it. */
    const uint32_t work = steps_of(kind, k, splits) *
                          div_up(units(f, n, tokens, splits, c.warps), room.multiprocessors);
    for (size_t i = 0; !small && i < RAD_COUNT(stages_of); i++)
        if (stages_of[i] > work && stages_of[i] < c.stages) c.stages = stages_of[i];
    cuda_gemm_plan plan;
    const bool fits = cuda_gemm_few_plan_of(kind, n, k, tokens, splits, room, c, &plan);
    RAD_ASSERT(fits); /* 3 stages of one warp: 78 KB at most; sm_80 and newer have 99 KB */
    return plan;
}
