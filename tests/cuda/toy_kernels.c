#include "toy_kernels.h"

/* to = from, reversed inside each block of 256 */
KERNEL(toy_reverse, 256, toy_args)
{
    SHARED u32 numbers[256];
    u32 first = BLOCK_X * 256;
    if (a.variant == WRITES_EARLY) a.to[first + THREAD_X] = 7;
    if (a.variant != READS_EARLY) wait_previous();
    if (a.variant == READS_AS_CONSTANT) {
        u32 four[4];
        load16(four, a.from + first + THREAD_X / 4 * 4);
        numbers[THREAD_X] = four[THREAD_X % 4];
    } else {
        numbers[THREAD_X] = a.from[first + THREAD_X];
    }
    if (a.variant == READS_EARLY) wait_previous();
    if (a.variant != NO_BARRIER) SYNC_BLOCK();
    a.to[first + THREAD_X] = numbers[255 - THREAD_X];
}

/* to[0] = the sum of `from`, by the block that comes last; to[1] counts, to[2 ...] are 0 before */
KERNEL(toy_sum, 32, toy_args)
{
    a.to[2 + BLOCK_X * 32 + LANE] = a.from[BLOCK_X * 32 + LANE];
    SYNC_BLOCK();
    u32 before = 0;
    if (LANE == 0) {
        if (a.variant != NO_FENCE) fence_device();
        before = atomic_add_u32(&a.to[1], 1);
        fence_device();
    }
    if (shuffle_u32(before, 0) != GRID_X - 1) return;
    u32 sum = 0;
    for (u32 i = 0; i < GRID_X; i++)
        sum += a.to[2 + i * 32 + LANE];
    for (u32 i = 1; i < 32; i *= 2)
        sum += shuffle_xor_u32(sum, i);
    if (LANE == 0) a.to[0] = sum;
}

/* to[lane] = what lanes say to each other, in `variant` ways, some of which are wrong */
KERNEL(toy_talk, 64, toy_args)
{
    u32 v = a.from[THREAD_X];
    if (a.variant == ONE_LANE_LEAVES && THREAD_X == 37) return;
    if (a.variant == LINES_DIFFER && THREAD_X == 37)
        v = shuffle_u32(v, 3);
    else
        v = shuffle_u32(v, 31 - LANE);
    if (a.variant == HALF_AT_A_BARRIER && LANE < 16) SYNC_BLOCK();
    v += shuffle_xor_u32(v, 1);
    v ^= ballot(v & 1);
    if (a.variant == OTHER_BARRIER && WARP)
        SYNC_BLOCK();
    else
        SYNC_BLOCK();
    if (a.variant == MISALIGNED) {
        SHARED u32 words[8];
        copy16_async(words + 1, a.from);
    }
    a.to[THREAD_X] = v;
}

/* A product of one warp: d [16][8] f32 = a [16][k] bf16 by b [8][k] bf16, k in steps of 16 by
 * copies one step ahead. Wrong: computes before its copies have landed. */
KERNEL(toy_product, 32, toy_product_args)
{
    SHARED_DYNAMIC(u16, stages); /* [2][24][16]: 16 rows of x, 8 of y */
    float d[4] = {0, 0, 0, 0};
    u32 row = LANE / 2, column = LANE % 2 * 8, steps = a.k / 16;
    for (u32 i = 0; i <= steps; i++) {
        if (i < steps) {
            u16 *stage = stages + i % 2 * 24 * 16;
            copy16_async(stage + row * 16 + column, a.x + row * a.k + i * 16 + column);
            if (LANE < 16)
                copy16_async(stage + (16 + row) * 16 + column, a.y + row * a.k + i * 16 + column);
        }
        copy_commit();
        if (i == 0) continue;
        if (!a.too_early) COPY_WAIT(1);
        sync_warp();
        const u16 *stage = stages + (i - 1) % 2 * 24 * 16;
        u32 left[4], right[4];
        load_matrix4(left, stage + (LANE % 16) * 16 + LANE / 16 * 8);
        load_matrix4(right, stage + (16 + LANE % 8) * 16 + LANE / 8 % 2 * 8);
        mma_bf16(d, left, right);
        sync_warp();
    }
    u32 m = LANE / 4, n = LANE % 4 * 2;
    for (u32 i = 0; i < 4; i++)
        a.d[(m + i / 2 * 8) * 8 + n + i % 2] = d[i];
}
