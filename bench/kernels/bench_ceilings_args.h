/* bench_ceilings_args.h - what the kernels of bench_ceilings.cu are launched with. */
#ifndef BENCH_KERNELS_BENCH_CEILINGS_ARGS_H
#define BENCH_KERNELS_BENCH_CEILINGS_ARGS_H

enum {
    CEILING_THREADS = 512,     /* of blocks that read */
    CEILING_MMA_THREADS = 256, /* of blocks that multiply */
    CEILING_WGMMA_THREADS = 256,
    CEILING_CHAINS = 8,                  /* of a warp, in mma_loop */
    CEILING_MMA_FLOPS = 16 * 8 * 16 * 2, /* of one mma.sync; of int8 twice as many */
    CEILING_WGMMA_FLOPS = 64 * 256 * 16 * 2,
    CEILING_WGMMA_STEPS = 32,                   /* of a round; then the warpgroup waits for them */
    CEILING_WGMMA_SHARED = (2 * 64 + 256) * 128 /* bytes of dynamic shared memory */
};

typedef struct ceiling_args {
    const void *from; /* pieces of 16 bytes */
    void *to;         /* what comes of it, at least 16 MB */
    unsigned long long pieces;
    unsigned rounds;
    unsigned pad;
} ceiling_args;

#ifndef DEVICE_KERNELS_DIALECT_H /* the host: operations of a launch of so many blocks */
static inline double ceiling_mma_flops(unsigned blocks, unsigned rounds)
{
    return (double)blocks * (CEILING_MMA_THREADS / 32) * rounds * CEILING_CHAINS *
           CEILING_MMA_FLOPS;
}
static inline double ceiling_wgmma_flops(unsigned blocks, unsigned rounds)
{
    return (double)blocks * (CEILING_WGMMA_THREADS / 128) * rounds * CEILING_WGMMA_STEPS *
           CEILING_WGMMA_FLOPS;
}
#endif

#endif
