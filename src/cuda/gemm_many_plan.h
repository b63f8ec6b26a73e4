/* gemm_many_plan.h - how a product for many tokens is launched. The bits do not depend on it.
 *
 * A plan says which kernel of gemm_many.cu or gemm_wgmma.cu, hence which tiles, and whether ranges
 * of k (cuda_splits) are added by the kernel or left as parts for the one that reads them: as
 * parts they are tiles of their own, which is worth it where tokens are few. It is a matter of
 * time alone.
 *
 * Kernels of gemm_wgmma.cu take gemm_wgmma_args, whose maps are made once for a matrix of weights
 * and once for a buffer of tokens, with as many rows as it has place for; the others gemm_args. */
#ifndef CUDA_GEMM_MANY_PLAN_H
#define CUDA_GEMM_MANY_PLAN_H

#include "cuda/kernels/kernel_args.h"
#include "device/cuda_driver.h"

typedef struct cuda_gemm_many_plan {
    const char *kernel;
    bool wgmma;     /* of gemm_wgmma.cu */
    uint32_t x_box; /* rows of a box of x's map; those of W's have 64 */
    uint32_t grid, threads, shared_bytes;
    uint32_t parts; /* that it leaves: 1 or `splits` */
} cuda_gemm_many_plan;

typedef struct cuda_gemm_many_room {
    uint32_t multiprocessors, shared_bytes; /* of a block: cuda_gpu says so */
    bool wgmma;                             /* sm_90, and maps can be made */
    uint32_t part_rows; /* [parts][tokens] that `out` has place for; 0: one part is wanted */
} cuda_gemm_many_room;

/* The product of a matrix [n][k] in `splits` ranges with `tokens`, 1 at least, by a kernel whose
 * bits and speed were seen on a GPU. */
cuda_gemm_many_plan cuda_gemm_many_plan_make(uint32_t n, uint32_t k, uint32_t tokens,
                                             uint32_t splits, cuda_gemm_many_room room);

/* The same with the kernel of that number, for measurements and tests. False: it does not fit,
 * or is not for such a matrix; *out is what it would be where there is one of that number, and
 * its name NULL where there is not. */
bool cuda_gemm_many_plan_of(uint32_t number, uint32_t n, uint32_t k, uint32_t tokens,
                            uint32_t splits, cuda_gemm_many_room room, cuda_gemm_many_plan *out);

/* What gemm_wgmma.cu reads a matrix [rows][k] of bf16 by, at `memory` on the device: for W with 64
 * rows a box, for x with those of the plan. */
rad_status cuda_matrix_map(const cuda_driver *cu, cuda_ptr memory, uint32_t rows, uint32_t k,
                           uint32_t box_rows, tensor_map *out, rad_error *err);

#endif
