#define HOPPER
#include "toy_kernels.h"

KERNEL_ALONE(toy_wgmma, 128, toy_wgmma_args)
{
    SHARED_DYNAMIC(u8, boxes);
    SHARED u64 full[1];
    enum { BOX = 8192 };
    float d[32];
    if (THREAD_X == 0) {
        barrier_init(full, 1);
        barriers_ready();
    }
    SYNC_BLOCK();
    wait_previous();
    if (THREAD_X == 0) {
        barrier_expect(full, (a.variant == TOO_MANY_BYTES ? 3 : 2) * BOX);
        copy_box(boxes, ARGUMENT_ADDRESS(toy_wgmma, toy_wgmma_args, x), 0, 0, full);
        copy_box(boxes + BOX, ARGUMENT_ADDRESS(toy_wgmma, toy_wgmma_args, y), 0, 0, full);
    }
    if (a.variant != BOX_NOT_AWAITED) barrier_wait(full, 0);
    warpgroup_fence();
    for (u32 k = 0; k < 4; k++)
        warpgroup_mma(64, d, matrix_descriptor(boxes) + k * 2,
                      matrix_descriptor(boxes + BOX) + k * 2, k > 0);
    warpgroup_commit();
    if (a.variant == OPERAND_OVERWRITTEN && THREAD_X == 5) boxes[0] ^= 1;
    if (a.variant != PRODUCT_NOT_AWAITED) WARPGROUP_WAIT(0);
    for (u32 i = 0; i < 32; i++) {
        u32 row = WARP * 16 + LANE / 4 + (i >> 1 & 1) * 8,
            column = i / 4 * 8 + LANE % 4 * 2 + i % 2;
        a.d[row * 64 + column] = d[i];
    }
    if (a.variant == BOX_NOT_AWAITED) barrier_wait(full, 0);
    WARPGROUP_WAIT(0);
}
