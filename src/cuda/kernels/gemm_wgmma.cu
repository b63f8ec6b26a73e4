/* gemm_wgmma.cu - bf16 products for many tokens on Hopper: warpgroup_mma on tiles that bulk copies
 * bring. It exists for HOPPER alone.
 *
 *     warpgroup 0      one thread copies: 64 k of the tile's tokens and rows of W a stage
 *     warpgroups 1, 2  each multiplies 64 of the 128 tokens by all rows, from shared memory
 *
 *     stage | tokens 0-63 | tokens 64-127 | rows 0-63 | ... |   boxes of 64 x 64 numbers, 8 KB
 *
 * full[s]   ends a phase when a stage's bytes have come
 * empty[s]  ends a phase when all 8 warps have multiplied by it; copying begins one phase ahead
 *
 * Blocks stay: block b computes tiles b, b + GRID_X, ..., and while a tile's numbers are written
 * the copies of the next are under way. The second warpgroup begins HEAD_START stages after the
 * first and stays behind it, so that one writes while the other multiplies.
 *
 * P1: kernel_args.h. A number's chain of mma is in one warpgroup's registers, in ascending k; where
 * a matrix has ranges, gemm_wgmma_*_sum adds them up in a second set of registers. wgmma rounds as
 * mma.sync does: a sum of 16 products and c, whatever n is.
 *
 * Run on an H100: gemm_wgmma_256, _128, _64 and _128_sum (their bits, and 480 to 785 TFLOP/s at
 * 2,048 tokens). gemm_wgmma_192_sum and gemm_wgmma_few_* have run on the emulator alone, so that no
 * plan takes them yet (gemm_many_plan.c). */
#include "device/kernels/dialect.h"

#ifdef HOPPER
#include "gemm_many.h"

enum { TOKENS = 128, STAGE_K = 64, BOX = 8192, STAGES_MOST = 8, THREADS = 384, HEAD_START = 2 };

typedef struct shape {
    u32 steps;  /* of STAGE_K in a range of k */
    u32 ranges; /* that a tile adds up */
    u32 token_tiles, row_tiles, tiles;
    u32 stages;
} shape;

/* The copying thread. */
INLINE void copy_tiles(const shape *s, u64 x, u64 w, u8 *ring, u64 *full, u64 *empty, u32 rows)
{
    const u32 boxes = (TOKENS + rows) / 64;
    u32 stage = 0, phase = 1;
    for (u32 index = BLOCK_X; index < s->tiles; index += GRID_X) {
        const tile t = tile_of(index, s->token_tiles, s->row_tiles, TOKENS, rows);
        u32 k = t.part * s->steps * STAGE_K;
        for (u32 step = s->steps * s->ranges; step; step--) {
            barrier_wait(&empty[stage], phase);
            barrier_expect(&full[stage], boxes * BOX);
            u8 *to = ring + stage * boxes * BOX;
            UNROLL
            for (u32 b = 0; b < 2; b++)
                copy_box(to + b * BOX, x, k, t.token + b * 64, &full[stage]);
            UNROLL
            for (u32 b = 0; b < rows / 64; b++)
                copy_box(to + (2 + b) * BOX, w, k, t.row + b * 64, &full[stage]);
            k += STAGE_K;
            if (++stage == s->stages) stage = 0, phase ^= 1;
        }
    }
}

/* This warp is done with a stage: nothing of it is read any more. */
INLINE void release(u64 *empty)
{
    if (LANE == 0) barrier_arrive(empty);
}

/* 64 columns of a warp's 16 rows. */
INLINE void write_64(const product *p, u32 row, u32 column, const float *d)
{
    if (p->swiglu) {
        UNROLL
        for (u32 c = 0; c < 64; c += 32)
            put_swiglu(p, row, column + c, d + c / 2, d + c / 2 + 4, d + c / 2 + 8, d + c / 2 + 12);
    } else {
        UNROLL
        for (u32 c = 0; c < 64; c += 16)
            put_f32(p, row, column + c, d + c / 2, d + c / 2 + 4);
    }
}

/* What a multiplying warpgroup does, with `rows` / 2 numbers of a tile in a thread's registers. */
#define MULTIPLY_TILES(rows, adds)                                                                 \
    const u32 group = shuffle_u32(THREAD_X / 128 - 1, 0); /* the same in a warp, for all to see */ \
    const u32 stage_bytes = (TOKENS + (rows)) / 64 * BOX;                                          \
    const u64 ring_at = matrix_descriptor(ring);                                                   \
    u32 stage = 0, phase = 0;                                                                      \
    if (group) barrier_wait(&full[head_start], 0);                                                 \
    for (u32 index = BLOCK_X; index < s.tiles; index += GRID_X) {                                  \
        const tile t = tile_of(index, s.token_tiles, s.row_tiles, TOKENS, rows);                   \
        float d[(rows) / 2], sum[(adds) ? (rows) / 2 : 1];                                         \
        for (u32 range = 0; range < s.ranges; range++) {                                           \
            u32 before = 0;                                                                        \
            for (u32 step = 0; step < s.steps; step++) {                                           \
                const u64 at = ring_at + stage * (stage_bytes / 16);                               \
                barrier_wait(&full[stage], phase);                                                 \
                warpgroup_fence();                                                                 \
                UNROLL                                                                             \
                for (u32 k = 0; k < STAGE_K / 16; k++)                                             \
                    warpgroup_mma(rows, d, at + group * (BOX / 16) + k * 2,                        \
                                  at + 2 * (BOX / 16) + k * 2, step + k > 0);                      \
                warpgroup_commit();                                                                \
                WARPGROUP_WAIT(1); /* the stage before has been read; this one multiplies on */    \
                if (step) release(&empty[before]);                                                 \
                before = stage;                                                                    \
                if (++stage == s.stages) stage = 0, phase ^= 1;                                    \
            }                                                                                      \
            WARPGROUP_WAIT(0);                                                                     \
            release(&empty[before]);                                                               \
            if (adds) UNROLL                                                                       \
            for (u32 i = 0; i < (rows) / 2; i++)                                                   \
                sum[i] = range ? sum[i] + d[i] : d[i];                                             \
        }                                                                                          \
        p.out = (u8 *)a.out + t.part * part_bytes;                                                 \
        /* One copy of the code: numbers move to where it has them. */                             \
        ROLLED for (u32 c = 0; c < (rows); c += 64)                                                \
        {                                                                                          \
            write_64(&p, t.token + group * 64 + (WARP & 3) * 16 + (LANE >> 2), t.row + c,          \
                     (adds) ? sum : d);                                                            \
            UNROLL                                                                                 \
            for (u32 i = 0; i + 32 < (rows) / 2; i++)                                              \
                ((adds) ? sum : d)[i] = ((adds) ? sum : d)[i + 32];                                \
        }                                                                                          \
    }

/* Tiles of TOKENS tokens and `rows` rows of W, through `stages_` stages. adds: a tile is all ranges
 * of k, added; else each of them is a tile of its own, and a part of the output. */
#define GEMM_WGMMA(name, rows, stages_, adds)                                                      \
    KERNEL_ALONE(name, THREADS, gemm_wgmma_args)                                                   \
    {                                                                                              \
        SHARED_DYNAMIC(u8, ring);                                                                  \
        SHARED u64 full[STAGES_MOST];                                                              \
        SHARED u64 empty[STAGES_MOST];                                                             \
        const u32 token_tiles = div_up(a.tokens, TOKENS), row_tiles = div_up(a.n, rows);           \
        const shape s = {.steps = a.k / a.splits / STAGE_K,                                        \
                         .ranges = (adds) ? a.splits : 1,                                          \
                         .token_tiles = token_tiles,                                               \
                         .row_tiles = row_tiles,                                                   \
                         .tiles = token_tiles * row_tiles * ((adds) ? 1 : a.splits),               \
                         .stages = stages_};                                                       \
        launch_next();                                                                             \
        if (THREAD_X == 0) {                                                                       \
            UNROLL                                                                                 \
            for (u32 i = 0; i < (stages_); i++) {                                                  \
                barrier_init(&full[i], 1);                                                         \
                barrier_init(&empty[i], 8);                                                        \
            }                                                                                      \
            barriers_ready();                                                                      \
        }                                                                                          \
        SYNC_BLOCK();                                                                              \
        wait_previous();                                                                           \
        if (THREAD_X < 128) {                                                                      \
            REGISTERS_AT_MOST((rows) == 192 ? 24 : 40);                                            \
            if (THREAD_X == 0)                                                                     \
                copy_tiles(&s, ARGUMENT_ADDRESS(name, gemm_wgmma_args, x),                         \
                           ARGUMENT_ADDRESS(name, gemm_wgmma_args, w), ring, full, empty, rows);   \
        } else {                                                                                   \
            REGISTERS_AT_LEAST((rows) == 192 ? 240 : 232);                                         \
            const u64 part_bytes = (u64)a.tokens * a.ld_out * 4;                                   \
            const u32 head_start = s.steps * s.ranges > HEAD_START ? HEAD_START : 0;               \
            product p = {a.out, a.ld_out, a.tokens,                                                \
                         !(adds) && a.epilogue == GEMM_SWIGLU ? a.n_out / 2 : a.n_out,             \
                         !(adds) && a.epilogue == GEMM_SWIGLU};                                    \
            MULTIPLY_TILES(rows, adds)                                                             \
        }                                                                                          \
    }

GEMM_WGMMA(gemm_wgmma_256, 256, 4, 0)
GEMM_WGMMA(gemm_wgmma_128, 128, 6, 0)
GEMM_WGMMA(gemm_wgmma_64, 64, 8, 0)
GEMM_WGMMA(gemm_wgmma_192_sum, 192, 5, 1)
GEMM_WGMMA(gemm_wgmma_128_sum, 128, 6, 1)

/* ---- few tokens: as fast as W can be read ----
 * Rows of W are the M side here, all tokens the N side. A unit of work is 64 rows in one range of
 * k:
 *
 *     warp 4      one lane copies: 64 k of 64 rows and of all tokens a stage
 *     warps 0-3   multiply
 *
 * The ring takes less than half of a multiprocessor's shared memory, so that the next kernel's
 * blocks begin beside this one's: what they copy of W before wait_previous is under way meanwhile.
 */
enum { FEW_THREADS = 160, FEW_STAGES_MOST = 12 };

typedef struct few {
    u32 steps, row_tiles, total; /* stages of a range, units of a range, stages of this block */
    u32 stage_bytes;
    u8 *ring;
    u64 *full;
} few;

INLINE void copy_w(const few *f, u64 w, u32 i, u32 stage)
{
    const u32 unit = BLOCK_X + i / f->steps * GRID_X, part = unit / f->row_tiles;
    barrier_expect(&f->full[stage], f->stage_bytes);
    copy_box(f->ring + stage * f->stage_bytes, w, (part * f->steps + i % f->steps) * STAGE_K,
             (unit - part * f->row_tiles) * 64, &f->full[stage]);
}
INLINE void copy_x(const few *f, u64 x, u32 i, u32 stage)
{
    const u32 unit = BLOCK_X + i / f->steps * GRID_X, part = unit / f->row_tiles;
    copy_box(f->ring + stage * f->stage_bytes + BOX, x, (part * f->steps + i % f->steps) * STAGE_K,
             0, &f->full[stage]);
}

/* This lane's row and row + 8 of W, tokens `token` and the next. */
INLINE void put_few(const product *p, u32 row, u32 token, const float d[4])
{
    if (p->swiglu) {
        u16 *out = (u16 *)p->out + (row >> 4) * 8 + (row & 7);
        UNROLL
        for (u32 i = 0; i < 2; i++)
            if (token + i < p->tokens && (row >> 4) * 8 < p->columns)
                out[(u64)(token + i) * p->ld] = (u16)float_bf16(swiglu(d[i], d[2 + i]));
        return;
    }
    float *out = (float *)p->out + row;
    UNROLL
    for (u32 i = 0; i < 4; i++)
        if (token + (i & 1) < p->tokens && row + (i >> 1) * 8 < p->columns)
            out[(u64)(token + (i & 1)) * p->ld + (i >> 1) * 8] = d[i];
}

#define GEMM_WGMMA_FEW(name, most, stages)                                                         \
    KERNEL(name, FEW_THREADS, gemm_wgmma_args)                                                     \
    {                                                                                              \
        SHARED_DYNAMIC(u8, ring);                                                                  \
        SHARED u64 full[FEW_STAGES_MOST];                                                          \
        SHARED u64 empty[FEW_STAGES_MOST];                                                         \
        const u32 row_tiles = div_up(a.n, 64), units = row_tiles * a.splits;                       \
        const u32 steps = a.k / a.splits / STAGE_K;                                                \
        const few f = {.steps = steps,                                                             \
                       .row_tiles = row_tiles,                                                     \
                       .total = div_up(units - BLOCK_X, GRID_X) * steps, /* GRID_X <= units */     \
                       .stage_bytes = BOX + (most)*128,                                            \
                       .ring = ring,                                                               \
                       .full = full};                                                              \
        launch_next();                                                                             \
        if (THREAD_X == 0) {                                                                       \
            UNROLL                                                                                 \
            for (u32 i = 0; i < (stages); i++) {                                                   \
                barrier_init(&full[i], 1);                                                         \
                barrier_init(&empty[i], 4);                                                        \
            }                                                                                      \
            barriers_ready();                                                                      \
        }                                                                                          \
        SYNC_BLOCK();                                                                              \
        if (WARP == 4) {                                                                           \
            if (LANE == 0) {                                                                       \
                const u64 w = ARGUMENT_ADDRESS(name, gemm_wgmma_args, w);                          \
                const u64 x = ARGUMENT_ADDRESS(name, gemm_wgmma_args, x);                          \
                const u32 head = f.total < (stages) ? f.total : (stages);                          \
                for (u32 i = 0; i < head; i++)                                                     \
                    copy_w(&f, w, i, i);                                                           \
                wait_previous();                                                                   \
                for (u32 i = 0; i < head; i++)                                                     \
                    copy_x(&f, x, i, i);                                                           \
                for (u32 i = head; i < f.total; i++) {                                             \
                    barrier_wait(&empty[i % (stages)], i / (stages) % 2 ^ 1);                      \
                    copy_w(&f, w, i, i % (stages));                                                \
                    copy_x(&f, x, i, i % (stages));                                                \
                }                                                                                  \
            }                                                                                      \
        } else {                                                                                   \
            const u32 glu = a.epilogue == GEMM_SWIGLU;                                             \
            const u64 ring_at = matrix_descriptor(ring);                                           \
            u32 stage = 0, phase = 0;                                                              \
            wait_previous();                                                                       \
            for (u32 unit = BLOCK_X; unit < units; unit += GRID_X) {                               \
                const u32 part = unit / row_tiles;                                                 \
                const product p = {(u8 *)a.out + (u64)part * a.tokens * a.ld_out * 4, a.ld_out,    \
                                   a.tokens, glu ? a.n_out / 2 : a.n_out, glu};                    \
                const u32 row = (unit - part * row_tiles) * 64 + WARP * 16 + (LANE >> 2);          \
                u32 before = 0;                                                                    \
                float d[(most) / 2];                                                               \
                for (u32 step = 0; step < steps; step++) {                                         \
                    const u64 at = ring_at + stage * ((BOX + (most)*128) / 16);                    \
                    barrier_wait(&full[stage], phase);                                             \
                    warpgroup_fence();                                                             \
                    UNROLL                                                                         \
                    for (u32 k = 0; k < STAGE_K / 16; k++)                                         \
                        warpgroup_mma(most, d, at + k * 2, at + BOX / 16 + k * 2, step + k > 0);   \
                    warpgroup_commit();                                                            \
                    WARPGROUP_WAIT(1);                                                             \
                    if (step) release(&empty[before]);                                             \
                    before = stage;                                                                \
                    if (++stage == (stages)) stage = 0, phase ^= 1;                                \
                }                                                                                  \
                WARPGROUP_WAIT(0);                                                                 \
                release(&empty[before]);                                                           \
                ROLLED                                                                             \
                for (u32 c = 0; c < (most); c += 16) {                                             \
                    put_few(&p, row, c + (LANE & 3) * 2, d);                                       \
                    put_few(&p, row, c + (LANE & 3) * 2 + 8, d + 4);                               \
                    UNROLL                                                                         \
                    for (u32 i = 0; i + 8 < (most) / 2; i++)                                       \
                        d[i] = d[i + 8];                                                           \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

GEMM_WGMMA_FEW(gemm_wgmma_few_16, 16, 10)
GEMM_WGMMA_FEW(gemm_wgmma_few_32, 32, 8)
GEMM_WGMMA_FEW(gemm_wgmma_few_64, 64, 6)
GEMM_WGMMA_FEW(gemm_wgmma_few_128, 128, 4)
#endif
