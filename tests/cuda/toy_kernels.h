/* toy_kernels.h - kernels of the emulator's own tests, some of them wrong on request. */
#ifndef TESTS_CUDA_TOY_KERNELS_H
#define TESTS_CUDA_TOY_KERNELS_H

#include "device/kernels/dialect.h"

typedef struct toy_args {
    const u32 *from;
    u32 *to;
    u32 variant;
} toy_args;

enum { WHOLE, NO_BARRIER };

enum { TALK, ONE_LANE_LEAVES, LINES_DIFFER, HALF_AT_A_BARRIER, OTHER_BARRIER, MISALIGNED };

typedef struct toy_product_args {
    const u16 *x, *y;
    float *d;
    u32 k, too_early;
} toy_product_args;

#endif
