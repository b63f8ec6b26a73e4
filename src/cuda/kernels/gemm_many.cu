/* gemm_many.cu - bf16 products for many tokens by mma.sync: every GPU from sm_80 on.
 *
 * A block computes a tile of tokens (the M side) by rows of W (the N side), 32 k at a time, which
 * all its threads copy into a ring of STAGES stages of shared memory:
 *
 *     stage | tokens | rows of W |      a row: 32 k in four pieces of 16 bytes; piece c of row r
 *                                       lies at c ^ (r / 2 & 3), so that no two of the 8 rows that
 *                                       ldmatrix reads at once, nor of those written, share banks
 *
 * One barrier a stage: after it everyone's copies of the next stage are seen, and everyone is done
 * with the stage before, whose place the next copies take. What the next 16 k are multiplied from
 * is loaded into a second set of registers while these are multiplied.
 *
 * P1: kernel_args.h. A number's chain of mma is in one warp's registers, in ascending k; where a
 * matrix has ranges, gemm_many_*_sum adds them up in a second set of registers. */
#define ONE_FORM
#include "device/kernels/dialect.h"

#include "gemm_many.h"

enum { STAGE_K = 32, STAGES = 4, ROW_BYTES = STAGE_K * 2 };

/* Byte of piece c of row r. */
INLINE u32 piece_at(u32 row, u32 c)
{
    return row * ROW_BYTES + ((c ^ (row >> 1 & 3)) << 4);
}

/* This thread's pieces of `rows` rows of a matrix, of every threads / 4 th. */
INLINE void copy_rows(u8 *to, const u16 *from, u32 ld, u32 first, u32 last, u32 rows, u32 threads)
{
    const u32 c = THREAD_X & 3;
    UNROLL
    for (u32 i = 0; i < rows * 4 / threads; i++) {
        const u32 r = i * (threads / 4) + (THREAD_X >> 2);
        const u32 row = first + r < last ? first + r : last; /* rows past the end: the last one */
        copy16_async(to + piece_at(r, c), from + (u64)row * ld + c * 8);
    }
}

/* Tiles of wm * high tokens by wn * wide rows of W, a warp high by wide. adds: a tile is all
 * ranges of k, added; else each range is a tile of its own, and a part of the output. */
#define GEMM_MANY(name, wm, wn, high, wide, adds)                                                  \
    KERNEL(name, (wm) * (wn)*32, gemm_args)                                                        \
    {                                                                                              \
        enum { TOKENS = (wm) * (high), ROWS = (wn) * (wide), THREADS = (wm) * (wn)*32 };           \
        enum { STAGE = (TOKENS + ROWS) * ROW_BYTES };                                              \
        SHARED_DYNAMIC(u8, ring);                                                                  \
        launch_next();                                                                             \
        const u32 ranges = (adds) ? a.splits : 1, steps = a.k / a.splits / STAGE_K;                \
        const tile t =                                                                             \
            tile_of(BLOCK_X, div_up(a.tokens, TOKENS), div_up(a.n, ROWS), TOKENS, ROWS);           \
        const u32 total = steps * ranges;                                                          \
        const u16 *x = a.x + (u64)t.part * steps * STAGE_K;                                        \
        const u16 *w = a.w + (u64)t.part * steps * STAGE_K;                                        \
        const u32 warp_m = WARP % (wm) * (high), warp_n = WARP / (wm) * (wide);                    \
        /* What this lane points ldmatrix to, for the first 16 k; the second's are at ^ 32. */     \
        const u32 x_at = piece_at(warp_m + (LANE & 15), LANE >> 4);                                \
        const u32 w_at = TOKENS * ROW_BYTES +                                                      \
                         piece_at(warp_n + (LANE & 7) + (LANE >> 4) * 8, LANE >> 3 & 1);           \
        float acc[(high) / 16][(wide) / 8][4],                                                     \
            sum[(adds) ? (high) / 16 : 1][(adds) ? (wide) / 8 : 1][4];                             \
        u32 xf[2][(high) / 16][4], wf[2][(wide) / 16][4];                                          \
        EACH(acc[i][j][e] = 0, high, wide);                                                        \
        wait_previous();                                                                           \
        UNROLL                                                                                     \
        for (u32 s = 0; s < STAGES - 1; s++) {                                                     \
            if (s < total) COPY_STAGE(s, s);                                                       \
            copy_commit();                                                                         \
        }                                                                                          \
        COPY_WAIT(STAGES - 2);                                                                     \
        SYNC_BLOCK();                                                                              \
        LOAD(0, ring, 0, high, wide);                                                              \
        u32 of_range = 0, range = 0;                                                               \
        for (u32 step = 0; step < total; step++) {                                                 \
            LOAD(1, ring + step % STAGES * STAGE, 32, high, wide);                                 \
            if (step + STAGES - 1 < total)                                                         \
                COPY_STAGE((step + STAGES - 1) % STAGES, step + STAGES - 1);                       \
            copy_commit();                                                                         \
            MULTIPLY(0, high, wide);                                                               \
            COPY_WAIT(STAGES - 2);                                                                 \
            SYNC_BLOCK();                                                                          \
            if (step + 1 < total) LOAD(0, ring + (step + 1) % STAGES * STAGE, 0, high, wide);      \
            MULTIPLY(1, high, wide);                                                               \
            if ((adds) && ++of_range == steps) {                                                   \
                EACH(OF_SUM(adds) = range ? OF_SUM(adds) + acc[i][j][e] : acc[i][j][e], high,      \
                     wide);                                                                        \
                EACH(acc[i][j][e] = 0, high, wide);                                                \
                of_range = 0;                                                                      \
                range++;                                                                           \
            }                                                                                      \
        }                                                                                          \
        const product p = {(u8 *)a.out + (u64)t.part * a.tokens * a.ld_out * 4, a.ld_out,          \
                           a.tokens, a.epilogue == GEMM_SWIGLU ? a.n_out / 2 : a.n_out,            \
                           a.epilogue == GEMM_SWIGLU};                                             \
        const u32 row = t.token + warp_m + (LANE >> 2), column = t.row + warp_n;                   \
        if (adds) EACH(acc[i][j][e] = OF_SUM(adds), high, wide);                                   \
        WRITE(acc, high, wide)                                                                     \
    }

#define EACH(what, high, wide)                                                                     \
    UNROLL                                                                                         \
    for (u32 i = 0; i < (high) / 16; i++)                                                          \
        UNROLL                                                                                     \
    for (u32 j = 0; j < (wide) / 8; j++)                                                           \
        UNROLL                                                                                     \
    for (u32 e = 0; e < 4; e++)                                                                    \
    what
#define OF_SUM(adds) sum[(adds) ? i : 0][(adds) ? j : 0][e]

#define COPY_STAGE(slot, step)                                                                     \
    do {                                                                                           \
        u8 *to_ = ring + (slot)*STAGE;                                                             \
        copy_rows(to_, x + (step)*STAGE_K, a.k, t.token, a.tokens - 1, TOKENS, THREADS);           \
        copy_rows(to_ + TOKENS * ROW_BYTES, w + (step)*STAGE_K, a.k, t.row, a.n - 1, ROWS,         \
                  THREADS);                                                                        \
    } while (0)

#define LOAD(set, stage, second, high, wide)                                                       \
    do {                                                                                           \
        const u8 *x_ = (stage) + (x_at ^ (second)), *w_ = (stage) + (w_at ^ (second));             \
        UNROLL                                                                                     \
        for (u32 i = 0; i < (high) / 16; i++)                                                      \
            load_matrix4(xf[set][i], x_ + i * 16 * ROW_BYTES);                                     \
        UNROLL                                                                                     \
        for (u32 j = 0; j < (wide) / 16; j++)                                                      \
            load_matrix4(wf[set][j], w_ + j * 16 * ROW_BYTES);                                     \
    } while (0)

#define MULTIPLY(set, high, wide)                                                                  \
    UNROLL                                                                                         \
    for (u32 i = 0; i < (high) / 16; i++)                                                          \
        UNROLL                                                                                     \
    for (u32 j = 0; j < (wide) / 8; j++)                                                           \
    mma_bf16(acc[i][j], xf[set][i], wf[set][j / 2] + j % 2 * 2)

/* One copy of the code: numbers move to where it has them. */
#define WRITE(d, high, wide)                                                                       \
    ROLLED for (u32 i = 0; i < (high) / 16; i++)                                                   \
    {                                                                                              \
        if (p.swiglu) {                                                                            \
            UNROLL                                                                                 \
            for (u32 j = 0; j < (wide) / 8; j += 4)                                                \
                put_swiglu(&p, row + i * 16, column + j * 8, d[0][j], d[0][j + 1], d[0][j + 2],    \
                           d[0][j + 3]);                                                           \
        } else {                                                                                   \
            UNROLL                                                                                 \
            for (u32 j = 0; j < (wide) / 8; j += 2)                                                \
                put_f32(&p, row + i * 16, column + j * 8, d[0][j], d[0][j + 1]);                   \
        }                                                                                          \
        UNROLL                                                                                     \
        for (u32 m = 0; m + 1 < (high) / 16; m++)                                                  \
            UNROLL                                                                                 \
        for (u32 j = 0; j < (wide) / 8; j++)                                                       \
            UNROLL                                                                                 \
        for (u32 e = 0; e < 4; e++)                                                                \
            d[m][j][e] = d[m + 1][j][e];                                                           \
    }

GEMM_MANY(gemm_many_256, 2, 4, 64, 64, 0)
GEMM_MANY(gemm_many_128, 2, 2, 64, 64, 0)
GEMM_MANY(gemm_many_64, 2, 2, 32, 32, 0)
GEMM_MANY(gemm_many_128_sum, 2, 4, 64, 32, 1)
GEMM_MANY(gemm_many_64_sum, 2, 2, 32, 32, 1)
