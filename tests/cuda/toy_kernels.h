/* toy_kernels.h - kernels of the emulator's own tests, some of them wrong on request. */
#ifndef TESTS_CUDA_TOY_KERNELS_H
#define TESTS_CUDA_TOY_KERNELS_H

#include "device/kernels/dialect.h"

typedef struct toy_args {
    const u32 *from;
    u32 *to;
    u32 variant;
} toy_args;

enum {
    WHOLE,
    NO_BARRIER,
    READS_EARLY, /* where it may begin early */
    WRITES_EARLY,
    READS_AS_CONSTANT, /* what the kernel before wrote, behind wait_previous */
    NO_FENCE
};

enum { TALK, ONE_LANE_LEAVES, LINES_DIFFER, HALF_AT_A_BARRIER, OTHER_BARRIER, MISALIGNED };

typedef struct toy_product_args {
    const u16 *x, *y;
    float *d;
    u32 k, too_early;
} toy_product_args;

/* By bulk copies and wgmma: d [64][64] f32 = x [64][64] bf16 by y [64][64]. What may go wrong: */
enum { NOTHING, BOX_NOT_AWAITED, PRODUCT_NOT_AWAITED, OPERAND_OVERWRITTEN, TOO_MANY_BYTES };

typedef struct toy_wgmma_args {
    u64 x[16] __attribute__((aligned(64))), y[16]; /* tensor maps of boxes of 64 x 64 */
    float *d;
    u32 variant;
} toy_wgmma_args;

#endif
