/* bench_ceilings.cu - what a GPU can do at most: the loops that other kernels' figures stand
 * beside.
 *
 *     read_all    every byte once, eight loads of 16 bytes under way in each thread
 *     mma_loop    mma.sync of registers alone, CEILING_CHAINS independent sums in a warp
 *     mma_i8_loop the same of int8
 *     wgmma_loop  wgmma of operands in shared memory, one sum in a warpgroup (sm_90)
 *     nothing     what a launch costs
 *
 * Numbers are drawn, not zeros: a GPU draws less power for zeros, and is faster with them. */
#include "device/kernels/dialect.h"

#include "bench_ceilings_args.h"

enum { IN_FLIGHT = 8 };

INLINE u32 mixed(u32 x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* Two bf16 numbers between 1/2 and 1, of either sign. */
INLINE u32 two_numbers(u32 seed)
{
    return (mixed(seed) & 0x807f807fu) | 0x3f003f00u;
}

KERNEL(read_all, CEILING_THREADS, ceiling_args)
{
    const u8 *from = (const u8 *)a.from;
    const u64 step = (u64)GRID_X * CEILING_THREADS;
    u32 sum = 0;
    for (u64 i = (u64)BLOCK_X * CEILING_THREADS + THREAD_X; i < a.pieces; i += IN_FLIGHT * step) {
        u32 piece[IN_FLIGHT][4];
        UNROLL
        for (u32 j = 0; j < IN_FLIGHT; j++) {
            const u64 at = i + j * step;
            load16(piece[j], from + (at < a.pieces ? at : i) * 16);
        }
        UNROLL
        for (u32 j = 0; j < IN_FLIGHT; j++)
            sum |= piece[j][0] & piece[j][1] & piece[j][2] & piece[j][3];
    }
    if (sum == 0xdeadbeefu) *(u32 *)a.to = sum; /* so that the loads are not left out */
}

/* `drawn` makes what mma multiplies; d is of one type, and what is stored of it, its sum, of
 * another. */
#define MMA_LOOP(name, mma, drawn, of_d, of_sum)                                                   \
    KERNEL(name, CEILING_MMA_THREADS, ceiling_args)                                                \
    {                                                                                              \
        const u32 thread = BLOCK_X * CEILING_MMA_THREADS + THREAD_X;                               \
        of_d d[CEILING_CHAINS][4];                                                                 \
        u32 x[4], y[CEILING_CHAINS][2];                                                            \
        UNROLL                                                                                     \
        for (u32 i = 0; i < 4; i++)                                                                \
            x[i] = drawn(thread * 4 + i);                                                          \
        UNROLL                                                                                     \
        for (u32 c = 0; c < CEILING_CHAINS; c++) {                                                 \
            UNROLL                                                                                 \
            for (u32 i = 0; i < 2; i++)                                                            \
                y[c][i] = drawn(0x10000000u + (thread * CEILING_CHAINS + c) * 2 + i);              \
            UNROLL                                                                                 \
            for (u32 i = 0; i < 4; i++)                                                            \
                d[c][i] = 0;                                                                       \
        }                                                                                          \
        for (u32 r = 0; r < a.rounds; r++) {                                                       \
            UNROLL                                                                                 \
            for (u32 c = 0; c < CEILING_CHAINS; c++)                                               \
                mma(d[c], x, y[c]);                                                                \
        }                                                                                          \
        of_sum sum = 0;                                                                            \
        UNROLL                                                                                     \
        for (u32 c = 0; c < CEILING_CHAINS; c++)                                                   \
            sum += (of_sum)d[c][0] + (of_sum)d[c][1] + (of_sum)d[c][2] + (of_sum)d[c][3];          \
        ((of_sum *)a.to)[thread] = sum;                                                            \
    }

MMA_LOOP(mma_loop, mma_bf16, two_numbers, float, float)
MMA_LOOP(mma_i8_loop, mma_i8, mixed, i32, u32) /* sums may wrap */

KERNEL(nothing, 32, ceiling_args)
{
    launch_next();
    wait_previous();
    if (a.rounds == ~0u) *(u32 *)a.to = 0;
}

#ifdef HOPPER
KERNEL_ALONE(wgmma_loop, CEILING_WGMMA_THREADS, ceiling_args)
{
    SHARED_DYNAMIC(u8, tiles);
    u32 *words = (u32 *)tiles;
    for (u32 i = THREAD_X; i < CEILING_WGMMA_SHARED / 4; i += CEILING_WGMMA_THREADS)
        words[i] = two_numbers(BLOCK_X * CEILING_WGMMA_SHARED + i);
    fence_shared();
    SYNC_BLOCK();
    const u64 x = matrix_descriptor(tiles + (THREAD_X / 128) * (64 * 128));
    const u64 y = matrix_descriptor(tiles + 2 * (64 * 128));
    float d[128];
    UNROLL
    for (u32 i = 0; i < 128; i++)
        d[i] = 0;
    for (u32 r = 0; r < a.rounds; r++) {
        warpgroup_fence();
        UNROLL
        for (u32 k = 0; k < CEILING_WGMMA_STEPS; k++)
            warpgroup_mma(256, d, x + 2 * (k & 3), y + 2 * (k & 3), 1);
        warpgroup_commit();
        WARPGROUP_WAIT(0);
    }
    float sum = 0;
    UNROLL
    for (u32 i = 0; i < 128; i++)
        sum += d[i];
    ((float *)a.to)[BLOCK_X * CEILING_WGMMA_THREADS + THREAD_X] = sum;
}
#endif
