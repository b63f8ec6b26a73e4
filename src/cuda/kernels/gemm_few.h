/* gemm_few.h - a stage of bf16 W and x, 128 k of both in shared memory, times each other: what
 * gemm_few.cu and gemm_experts.cu do with their rings, whatever their units of work.
 *
 * The macros are of a warp with tiles * 16 rows of W and columns * 8 of x, and use names of where
 * they stand: w_rows and x_rows, this lane's rows in the stage; wf[2][tiles][2][4] and
 * xf[2][columns][4], what is loaded of them; acc[tiles][columns][4]; and left, what is left of a
 * unit's k. */
#ifndef CUDA_KERNELS_GEMM_FEW_H
#define CUDA_KERNELS_GEMM_FEW_H

#include "device/kernels/dialect.h"

enum { STAGE_K = 128, PITCH = STAGE_K * 2 + 16 /* bytes: no two rows of eight share banks */ };

/* A warp's copies of a stage, two rows at a time: those of `rows` that are among `most`, a
 * constant, and of their `left` k those that there are. */
INLINE void copy_rows(u8 *to, const u16 *from, u64 two_rows, u32 rows, u32 left, const u32 most)
{
    if ((LANE & 15) * 8 >= left) return;
    UNROLL
    for (u32 r = 0; r < most; r += 2, from += two_rows)
        if (r + (LANE >> 4) < rows) copy16_async(to + r * PITCH, from);
}

/* 32 k of W and x, as the instruction wants them. */
#define LOAD(tiles, columns, to, at)                                                               \
    UNROLL                                                                                         \
    for (u32 m = 0; m < (tiles); m++) {                                                            \
        load_matrix4(wf[to][m][0], w_rows + m * 16 * PITCH + (at)*2);                              \
        load_matrix4(wf[to][m][1], w_rows + m * 16 * PITCH + (at)*2 + 32);                         \
    }                                                                                              \
    UNROLL                                                                                         \
    for (u32 c = 0; c < (columns); c++)                                                            \
        load_matrix4(xf[to][c], x_rows + c * 8 * PITCH + (at)*2);

/* acc[tile][column] += W * x; what does not depend on each other first. */
#define MULTIPLY(tiles, columns, of)                                                               \
    UNROLL                                                                                         \
    for (u32 half = 0; half < 2; half++)                                                           \
        UNROLL                                                                                     \
    for (u32 c = 0; c < (columns); c++)                                                            \
        UNROLL                                                                                     \
    for (u32 m = 0; m < (tiles); m++)                                                              \
        mma_bf16(acc[m][c], wf[of][m][half], xf[of][c] + 2 * half);

/* A stage, whose first 32 k are loaded: 128 k, or the last 64 of a unit. */
#define MULTIPLY_STAGE(tiles, columns)                                                             \
    if (left >= STAGE_K) {                                                                         \
        UNROLL                                                                                     \
        for (u32 k = 0; k < STAGE_K / 32; k++) {                                                   \
            if (k + 1 < STAGE_K / 32) {                                                            \
                LOAD(tiles, columns, (k + 1) & 1, (k + 1) * 32)                                    \
            }                                                                                      \
            MULTIPLY(tiles, columns, k & 1)                                                        \
        }                                                                                          \
    } else {                                                                                       \
        MULTIPLY(tiles, columns, 0)                                                                \
        LOAD(tiles, columns, 0, 32)                                                                \
        MULTIPLY(tiles, columns, 0)                                                                \
    }

/* One copy of the code of a store, which stores acc[m][0] as tile m and column c: numbers move to
 * it, zeros behind them. */
#define STORE_UNIT(tiles, columns, ...)                                                            \
    ROLLED                                                                                         \
    for (u32 c = 0; c < (columns); c++)                                                            \
        UNROLL                                                                                     \
    for (u32 m = 0; m < (tiles); m++) {                                                            \
        __VA_ARGS__;                                                                               \
        UNROLL                                                                                     \
        for (u32 j = 0; j < (columns); j++)                                                        \
            UNROLL                                                                                 \
        for (u32 e = 0; e < 4; e++)                                                                \
            acc[m][j][e] = j + 1 < (columns) ? acc[m][j + 1][e] : 0;                               \
    }

#endif
