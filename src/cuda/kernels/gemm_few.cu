/* gemm_few.cu - bf16 products for 1 to 64 tokens: as fast as W can be read.
 *
 * Rows of W are the M side of m16n8k16, tokens its N side. A block has warps of two kinds:
 *
 *     warps [0, warps)    each has 16 rows of W (gemm_few_64: 32), copies them and multiplies
 *     the rest            copy tokens, 16 each, which all of the former multiply by
 *
 * Both copy the same 128 k at a time into a ring of stages of shared memory:
 *
 *     stage | 16 rows of warp 0 | 16 rows of warp 1 | ... | tokens |     a row: 128 k and 16 bytes
 *                                                                        (no two rows of eight
 *                                                                         share banks)
 *
 * A thread waits for its copies of a stage, and SYNC_BLOCK makes everyone's seen; it also says that
 * the stage before has been multiplied by, whose place the next copies take. Copies of one thread
 * end in order: were tokens copied by the threads of W, whose first copies begin before
 * wait_previous, the first stage would be there only after all of those.
 *
 * A unit of work is a block's rows in one range of k; block b takes units b, b + GRID_X, ... and
 * the ring runs on from one to the next.
 *
 * Where a range of all tokens fits beside the ring there is gemm_few_N_kept: tokens are copied once
 * a range and stay, so a warp has its ring for itself, and nobody waits for others at a stage. It
 * has not run on hardware yet, and no plan takes it (gemm_plan.c).
 *
 *     warp 0's stages | warp 1's stages | ... | tokens, k 0 to 127 | tokens, k 128 to 255 | ...
 *
 * P1: kernel_args.h. A number's chain of mma is in one thread group's registers, in ascending k. */
#define ONE_FORM
#include "device/kernels/dialect.h"

#include "cuda/kernels/gemm_few.h"
#include "cuda/kernels/glu.h"
#include "cuda/kernels/kernel_args.h"

/* What a thread copies, stage after stage. */
typedef struct copier {
    const u16 *from; /* this lane's part of the next stage */
    u8 *to;          /* in the first slot */
    u64 two_rows;    /* numbers between rows that follow each other here */
    u32 rows;        /* that exist, of those of its warp */
    u32 left;        /* k of the unit */
    u32 unit, slot;
} copier;

/* The beginning of the copier's unit; `rows` is a block's, `first` the warp's in a block or among
 * tokens, of which it has `of_warp`. */
INLINE void begin_unit(copier *c, const gemm_args a, u32 of_x, u32 rows, u32 first, u32 of_warp)
{
    const u32 groups = div_up(a.n, rows), range = c->unit / groups;
    const u32 row = of_x ? first : (c->unit - range * groups) * rows + first;
    const u32 most = of_x ? a.tokens : a.n;
    c->left = a.k / a.splits;
    c->rows = row < most ? most - row : 0;
    if (of_x && c->rows > of_warp) c->rows = of_warp;
    c->from = (of_x ? a.x : a.w) + (u64)(row + (LANE >> 4)) * a.k + range * c->left +
              (LANE & 15) * 8;
}

/* A stage's copies of this warp, `most` rows at most, two at a time; a range's last stage may have
 * 64 k. */
INLINE void copy_stage(copier *c, const gemm_args a, u32 stage_bytes, u32 of_x, u32 rows, u32 first,
                       u32 of_warp, u32 most)
{
    copy_rows(c->to + c->slot * stage_bytes, c->from, c->two_rows, c->rows, c->left, most);
    if (++c->slot == a.stages) c->slot = 0;
    c->from += STAGE_K;
    if (c->left > STAGE_K) {
        c->left -= STAGE_K;
    } else {
        c->unit += GRID_X;
        begin_unit(c, a, of_x, rows, first, of_warp); /* of a unit that is none: not copied */
    }
}

/* A tile's numbers: this lane has rows r and r + 8 of tokens t and t + 1. */
INLINE void store_tile(const gemm_args a, u32 part, u32 row, u32 token, const float acc[4])
{
    row += LANE >> 2;
    token += (LANE & 3) * 2;
    if (a.epilogue == GEMM_SWIGLU) {
        u16 *out = (u16 *)a.out + (row >> 4) * 8 + (row & 7);
        UNROLL
        for (u32 i = 0; i < 2; i++)
            if (token + i < a.tokens && row < a.n_out)
                out[(u64)(token + i) * a.ld_out] = (u16)float_bf16(swiglu(acc[i], acc[2 + i]));
        return;
    }
    float *out = (float *)a.out + (u64)part * a.tokens * a.ld_out + row;
    UNROLL
    for (u32 i = 0; i < 4; i++)
        if (token + (i & 1) < a.tokens && row + (i >> 1) * 8 < a.n_out)
            out[(u64)(token + (i & 1)) * a.ld_out + (i >> 1) * 8] = acc[i];
}

/* A kernel for up to columns * 8 tokens, whose warps have tiles * 16 rows each. */
#define GEMM_FEW(name, threads, tiles, columns)                                                    \
    KERNEL(name, threads, gemm_args)                                                               \
    {                                                                                              \
        enum { TOKENS = (columns)*8, OF_WARP = TOKENS < 16 ? TOKENS : 16 };                        \
        SHARED_DYNAMIC(u8, ring);                                                                  \
        launch_next();                                                                             \
        const u32 rows = a.warps * (tiles)*16, groups = div_up(a.n, rows);                         \
        const u32 range_k = a.k / a.splits, stage_bytes = (rows + TOKENS) * PITCH;                 \
        const u32 mine = div_up(groups * a.splits - BLOCK_X, GRID_X); /* GRID_X <= units */        \
        const u32 total = mine * div_up(range_k, STAGE_K), ahead = a.stages - 1;                   \
        const u32 of_x = WARP >= a.warps;                                                          \
        const u32 first = of_x ? (WARP - a.warps) * 16 : WARP * (tiles)*16;                        \
        copier next = {.two_rows = 2 * (u64)a.k, .unit = BLOCK_X, .slot = 0};                      \
        next.to = ring + ((of_x ? rows : 0) + first + (LANE >> 4)) * PITCH + (LANE & 15) * 16;     \
        begin_unit(&next, a, of_x, rows, first, OF_WARP);                                          \
        float acc[tiles][columns][4];                                                              \
        UNROLL                                                                                     \
        for (u32 m = 0; m < (tiles); m++)                                                          \
            UNROLL                                                                                 \
        for (u32 c = 0; c < (columns); c++)                                                        \
            acc[m][c][0] = acc[m][c][1] = acc[m][c][2] = acc[m][c][3] = 0;                         \
        if (of_x) wait_previous();                                                                 \
        for (u32 i = 0; i < ahead; i++) {                                                          \
            if (i < total)                                                                         \
                copy_stage(&next, a, stage_bytes, of_x, rows, first, OF_WARP, (tiles)*16);         \
            copy_commit();                                                                         \
        }                                                                                          \
        u32 unit = BLOCK_X, slot = 0, left = range_k;                                              \
        for (u32 i = 0; i < total; i++) {                                                          \
            wait_copies(ahead - 1);                                                                \
            SYNC_BLOCK();                                                                          \
            const u8 *w_rows = ring + slot * stage_bytes + (first + (LANE & 15)) * PITCH +         \
                               (LANE >> 4) * 16;                                                   \
            const u8 *x_rows = ring + slot * stage_bytes + (rows + (LANE & 7)) * PITCH +           \
                               (LANE >> 3) * 16;                                                   \
            u32 wf[2][tiles][2][4], xf[2][columns][4];                                             \
            if (!of_x) {                                                                           \
                LOAD(tiles, columns, 0, 0)                                                         \
            }                                                                                      \
            if (i + ahead < total)                                                                 \
                copy_stage(&next, a, stage_bytes, of_x, rows, first, OF_WARP, (tiles)*16);         \
            copy_commit();                                                                         \
            if (++slot == a.stages) slot = 0;                                                      \
            if (of_x) continue;                                                                    \
            MULTIPLY_STAGE(tiles, columns)                                                         \
            if (left > STAGE_K) {                                                                  \
                left -= STAGE_K;                                                                   \
                continue;                                                                          \
            }                                                                                      \
            left = range_k;                                                                        \
            const u32 range = unit / groups, row = (unit - range * groups) * rows + first;         \
            unit += GRID_X;                                                                        \
            wait_previous();                                                                       \
            STORE_UNIT(tiles, columns, store_tile(a, range, row + m * 16, c * 8, acc[m][0]))       \
        }                                                                                          \
    }

/* What a warp of x copies of a range, its first token `first`; stages of all tokens follow each
 * other. */
INLINE void copy_tokens(const gemm_args a, u8 *to, u32 stage_bytes, u32 k, u32 range_k, u32 first,
                        u32 of_warp)
{
    const u32 row = LANE >> 4, at = (LANE & 15) * 8;
    const u16 *from = a.x + (u64)(first + row) * a.k + k + at;
    to += (first + row) * PITCH + at * 2;
    for (u32 done = 0; done + at < range_k; done += STAGE_K, from += STAGE_K, to += stage_bytes) {
        UNROLL
        for (u32 r = 0; r < of_warp; r += 2)
            if (first + row + r < a.tokens) copy16_async(to + r * PITCH, from + (u64)r * a.k);
    }
}

/* The same with a range's tokens kept. */
#define GEMM_FEW_KEPT(name, threads, tiles, columns)                                               \
    KERNEL_ALONE(name, threads, gemm_args)                                                         \
    {                                                                                              \
        enum { TOKENS = (columns)*8, OF_WARP = TOKENS < 16 ? TOKENS : 16 };                        \
        enum { W_BYTES = (tiles)*16 * PITCH, X_BYTES = TOKENS * PITCH, NONE = 0x7fffffff };        \
        SHARED_DYNAMIC(u8, ring);                                                                  \
        launch_next();                                                                             \
        const u32 rows = a.warps * (tiles)*16, groups = div_up(a.n, rows);                         \
        const u32 range_k = a.k / a.splits, units = groups * a.splits, ahead = a.stages - 1;       \
        const u32 total = div_up(units - BLOCK_X, GRID_X) * div_up(range_k, STAGE_K);              \
        const u32 of_x = WARP >= a.warps, first = WARP * (tiles)*16;                               \
        u8 *const x = ring + a.warps * a.stages * W_BYTES;                                         \
        u8 *const mine = ring + WARP * a.stages * W_BYTES;                                         \
        copier next = {.two_rows = 2 * (u64)a.k, .unit = BLOCK_X, .slot = 0};                      \
        next.to = mine + (LANE >> 4) * PITCH + (LANE & 15) * 16;                                   \
        u32 asked = 0, loaded = NONE, slot = 0;                                                    \
        if (!of_x) {                                                                               \
            begin_unit(&next, a, 0, rows, first, OF_WARP);                                         \
            for (; asked < ahead; asked++) {                                                       \
                if (asked < total)                                                                 \
                    copy_stage(&next, a, W_BYTES, 0, rows, first, OF_WARP, (tiles)*16);            \
                copy_commit();                                                                     \
            }                                                                                      \
        }                                                                                          \
        wait_previous();                                                                           \
        float acc[tiles][columns][4];                                                              \
        UNROLL                                                                                     \
        for (u32 m = 0; m < (tiles); m++)                                                          \
            UNROLL                                                                                 \
        for (u32 c = 0; c < (columns); c++)                                                        \
            acc[m][c][0] = acc[m][c][1] = acc[m][c][2] = acc[m][c][3] = 0;                         \
        for (u32 unit = BLOCK_X; unit < units; unit += GRID_X) {                                   \
            const u32 range = unit / groups, row = (unit - range * groups) * rows + first;         \
            if (range != loaded) { /* tokens take the place of others' range */                    \
                if (loaded != NONE) SYNC_BLOCK();                                                  \
                if (of_x) {                                                                        \
                    copy_tokens(a, x, X_BYTES, range *range_k, range_k, (WARP - a.warps) * 16,     \
                                OF_WARP);                                                          \
                    copy_commit();                                                                 \
                    COPY_WAIT(0);                                                                  \
                }                                                                                  \
                SYNC_BLOCK();                                                                      \
                loaded = range;                                                                    \
            }                                                                                      \
            if (of_x) continue;                                                                    \
            const u8 *x_rows = x + (LANE & 7) * PITCH + (LANE >> 3) * 16;                          \
            for (u32 left = range_k;;) {                                                           \
                wait_copies(ahead - 1);                                                            \
                sync_warp();                                                                       \
                const u8 *w_rows = mine + slot * W_BYTES + (LANE & 15) * PITCH + (LANE >> 4) * 16; \
                u32 wf[2][tiles][2][4], xf[2][columns][4];                                         \
                LOAD(tiles, columns, 0, 0)                                                         \
                if (asked++ < total)                                                               \
                    copy_stage(&next, a, W_BYTES, 0, rows, first, OF_WARP, (tiles)*16);            \
                copy_commit();                                                                     \
                if (++slot == a.stages) slot = 0;                                                  \
                MULTIPLY_STAGE(tiles, columns)                                                     \
                x_rows += X_BYTES;                                                                 \
                if (left <= STAGE_K) break;                                                        \
                left -= STAGE_K;                                                                   \
            }                                                                                      \
            STORE_UNIT(tiles, columns, store_tile(a, range, row + m * 16, c * 8, acc[m][0]))       \
        }                                                                                          \
    }

GEMM_FEW(gemm_few_8, 288, 1, 1)
GEMM_FEW(gemm_few_16, 288, 1, 2)
GEMM_FEW(gemm_few_32, 320, 1, 4)
GEMM_FEW(gemm_few_64, 256, 2, 8)
GEMM_FEW_KEPT(gemm_few_8_kept, 288, 1, 1)
GEMM_FEW_KEPT(gemm_few_16_kept, 288, 1, 2)
GEMM_FEW_KEPT(gemm_few_32_kept, 320, 1, 4)
GEMM_FEW_KEPT(gemm_few_64_kept, 256, 2, 8)
