/* gemm_quant_experts.cu - products of experts' quantised matrices with the places of their tiles:
 * the numbers that gemm_quant.cu makes of the same rows, and so the CPU's.
 *
 * A unit is a tile of places times a block's rows of W, tiles first: those of one expert follow one
 * another, so its rows come out of the L2 for all but the first. Blocks of threads and their ring
 * of stages are those of gemm_quant.cu:
 *
 *     stage | 16 rows of warp 0 | 16 rows of warp 1 | ... | q of places | d of them | d * sums
 *
 * Which expert a tile is of is known when the kernels in front have ended, so nothing is copied
 * before. A tile is looked up a unit ahead, or each warp would wait for it between two stages. */
#define ONE_FORM
#include "device/kernels/dialect.h"

#include "cuda/kernels/experts_quant_args.h"
#include "cuda/kernels/gemm_quant.h"

typedef expert_tile tile_pair __attribute__((aligned(8))); /* loaded by one instruction */

/* What a thread copies next: of a unit, of an expert's rows of W (its warp's) or of a tile's
 * places. */
typedef struct copier {
    u32 unit, step, slot, first;
    u32 row;                 /* of W, its warp's first; of x: the first place */
    expert_tile tile, later; /* of this unit and of the block's next */
} copier;

INLINE expert_tile tile_of(const gemm_quant_experts_args a, u32 unit, u32 units, u32 groups)
{
    const expert_tile none = {0, 0};
    return unit < units ? ((const tile_pair *)a.by.tiles)[unit / groups] : none;
}

INLINE void begin_unit(copier *c, const gemm_quant_experts_args a, u32 units, u32 groups, u32 of_x)
{
    const u32 tile = c->unit / groups;
    c->row = c->first + (of_x ? tile * a.by.width : (c->unit - tile * groups) * a.warps * 16);
    c->tile = c->later;
    c->later = tile_of(a, c->unit + GRID_X, units, groups);
}

/* What a warp of x copies of a stage: 16 places of its tile (or fewer), from the copier's on. */
INLINE void copy_places(const gemm_quant_experts_args a, const copier *c, u8 *q, u8 *d, u32 columns,
                        u32 sums)
{
    const u32 most = columns == 1 ? 8 : 16, row = LANE >> 4;
    const i8 *from = a.x + (u64)(c->row + row) * a.k + c->step * STAGE_K + (LANE & 15) * 16;
    UNROLL
    for (u32 r = 0; r < most; r += 2)
        if (c->first + r + row < c->tile.count)
            copy16_async(q + (c->first + r + row) * PITCH + (LANE & 15) * 16, from + (u64)r * a.k);
    /* Four places of a block a lane. */
    const u32 block = LANE / (most / 4), four = LANE % (most / 4) * 4;
    if (block >= BLOCKS || c->first + four >= c->tile.count) return;
    const float *scales = a.scales + (u64)(c->step * BLOCKS + block) * a.ld_places + c->row + four;
    u8 *to = d + (block * columns * 8 + c->first + four) * 4;
    copy16_async(to, scales);
    if (sums) copy16_async(to + BLOCKS * columns * 8 * 4, scales + (u64)(a.k / 32) * a.ld_places);
}

/* 16 rows and 8 places; the tile has `left` taken ones from `place` on. */
INLINE void store_places(const gemm_quant_experts_args a, u32 row, u32 place, i32 left,
                         const float acc[4])
{
    row += LANE >> 2;
    const i32 token = (i32)(LANE & 3) * 2;
    float *out = a.out + (u64)(place + (u32)token) * a.ld_out + row;
    UNROLL
    for (u32 i = 0; i < 4; i++)
        if (token + (i32)(i & 1) < left && row + (i >> 1) * 8 < a.n_out)
            out[(u64)(i & 1) * a.ld_out + (i >> 1) * 8] = acc[i];
}

/* A kernel for tiles of columns * 8 places, with_sums: 0 or 1; `loop` over a stage. */
#define GEMM_EXPERTS(name, add, w_bytes_of, with_sums, columns, loop)                              \
    KERNEL(name, 320, gemm_quant_experts_args)                                                     \
    {                                                                                              \
        enum { PLACES = (columns)*8, D_BYTES = PLACES * BLOCKS * 4 };                              \
        SHARED_DYNAMIC(u8, ring);                                                                  \
        launch_next();                                                                             \
        wait_previous();                                                                           \
        const u32 rows = a.warps * 16, steps = a.k / STAGE_K, groups = div_up(a.n, rows);          \
        const u32 units = *a.by.num_tiles * groups, ahead = a.stages - 1;                          \
        if (BLOCK_X >= units) return;                                                              \
        const u32 x_at = a.warps * (w_bytes_of), d_at = x_at + PLACES * PITCH;                     \
        const u32 stage_bytes = d_at + D_BYTES * (1 + (with_sums));                                \
        const u32 total = div_up(units - BLOCK_X, GRID_X) * steps;                                 \
        const u32 of_x = WARP >= a.warps, first = (of_x ? WARP - a.warps : WARP) * 16;             \
        float acc[columns][4];                                                                     \
        UNROLL                                                                                     \
        for (u32 c = 0; c < (columns); c++)                                                        \
            acc[c][0] = acc[c][1] = acc[c][2] = acc[c][3] = 0;                                     \
        copier next = {.unit = BLOCK_X, .first = first};                                           \
        next.later = tile_of(a, BLOCK_X, units, groups);                                           \
        begin_unit(&next, a, units, groups, of_x);                                                 \
        u32 unit = BLOCK_X, step = 0, slot = 0;                                                    \
        for (u32 i = 0; i < total + ahead; i++) {                                                  \
            if (i >= ahead) {                                                                      \
                wait_copies(ahead - 1);                                                            \
                SYNC_BLOCK();                                                                      \
            }                                                                                      \
            if (i < total) {                                                                       \
                u8 *to = ring + next.slot * stage_bytes;                                           \
                if (of_x)                                                                          \
                    copy_places(a, &next, to + x_at, to + d_at, columns, with_sums);               \
                else if (next.row < a.n)                                                           \
                    copy_rows(to + WARP * (w_bytes_of),                                            \
                              a.w + next.tile.expert * a.w_bytes +                                 \
                                  ((u64)(next.row / 16) * steps + next.step) * (w_bytes_of),       \
                              next.step + 1 < steps ? (w_bytes_of) : a.last_bytes, w_bytes_of);    \
                if (++next.slot == a.stages) next.slot = 0;                                        \
                if (++next.step == steps) {                                                        \
                    next.step = 0;                                                                 \
                    next.unit += GRID_X;                                                           \
                    begin_unit(&next, a, units, groups, of_x);                                     \
                }                                                                                  \
            }                                                                                      \
            copy_commit();                                                                         \
            if (i < ahead) continue;                                                               \
            const u8 *w = ring + slot * stage_bytes + WARP * (w_bytes_of);                         \
            const u8 *x = ring + slot * stage_bytes + x_at + (LANE & 7) * PITCH +                  \
                          (LANE >> 3) * 16;                                                        \
            const u8 *d = ring + slot * stage_bytes + d_at + (LANE & 3) * 8;                       \
            if (++slot == a.stages) slot = 0;                                                      \
            if (of_x) continue;                                                                    \
            loop for (u32 two = 0; two < BLOCKS / 2; two++) add(acc, columns, w, two, x, d);       \
            if (++step < steps) continue;                                                          \
            step = 0;                                                                              \
            const u32 tile = unit / groups, row = (unit - tile * groups) * rows + first;           \
            const i32 count = (i32)a.by.tiles[tile].count;                                         \
            unit += GRID_X;                                                                        \
            UNROLL                                                                                 \
            for (u32 c = 0; c < (columns); c++) {                                                  \
                store_places(a, row, tile *PLACES + c * 8, count - (i32)(c * 8), acc[c]);          \
                acc[c][0] = acc[c][1] = acc[c][2] = acc[c][3] = 0;                                 \
            }                                                                                      \
        }                                                                                          \
    }

GEMM_EXPERTS(gemm_experts_q8_0_8, add_q8_0, Q8_0_BYTES, 0, 1, UNROLL)
GEMM_EXPERTS(gemm_experts_q8_0_16, add_q8_0, Q8_0_BYTES, 0, 2, UNROLL)
GEMM_EXPERTS(gemm_experts_q8_0_32, add_q8_0, Q8_0_BYTES, 0, 4, ROLLED)
GEMM_EXPERTS(gemm_experts_q8_0_64, add_q8_0, Q8_0_BYTES, 0, 8, ROLLED)
GEMM_EXPERTS(gemm_experts_mxfp4_8, add_mxfp4, MXFP4_BYTES, 0, 1, UNROLL)
GEMM_EXPERTS(gemm_experts_mxfp4_16, add_mxfp4, MXFP4_BYTES, 0, 2, UNROLL)
GEMM_EXPERTS(gemm_experts_mxfp4_32, add_mxfp4, MXFP4_BYTES, 0, 4, ROLLED)
GEMM_EXPERTS(gemm_experts_mxfp4_64, add_mxfp4, MXFP4_BYTES, 0, 8, ROLLED)
GEMM_EXPERTS(gemm_experts_q4_k_8, add_q4_k, Q4_K_BYTES, 1, 1, UNROLL)
GEMM_EXPERTS(gemm_experts_q4_k_16, add_q4_k, Q4_K_BYTES, 1, 2, UNROLL)
GEMM_EXPERTS(gemm_experts_q4_k_32, add_q4_k, Q4_K_BYTES, 1, 4, ROLLED)
GEMM_EXPERTS(gemm_experts_q4_k_64, add_q4_k, Q4_K_BYTES, 1, 8, ROLLED)
GEMM_EXPERTS(gemm_experts_q6_k_8, add_q6_k, Q6_K_BYTES, 0, 1, ROLLED)
GEMM_EXPERTS(gemm_experts_q6_k_16, add_q6_k, Q6_K_BYTES, 0, 2, ROLLED)
GEMM_EXPERTS(gemm_experts_q6_k_32, add_q6_k, Q6_K_BYTES, 0, 4, ROLLED)
GEMM_EXPERTS(gemm_experts_q6_k_64, add_q6_k, Q6_K_BYTES, 0, 8, ROLLED)
