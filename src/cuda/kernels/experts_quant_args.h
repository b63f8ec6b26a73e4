/* experts_quant_args.h - experts_args.h for experts whose matrices are quantised:
 *
 *     quantise_places     a token's row, rounded to each of its places
 *     gemm_quant_experts  gates and ups, f32 by place
 *     quantise_places     the gated unit of a place, rounded to the place
 *     gemm_quant_experts  downs, f32 by place, for experts_sum
 *
 * All numbers are the CPU's for the same row: x is rounded as quantise_rows does, and a product is
 * one chain over all blocks of 32, as gemm_quant.cu's. Places that are not taken are not written.
 */
#ifndef CUDA_KERNELS_EXPERTS_QUANT_ARGS_H
#define CUDA_KERNELS_EXPERTS_QUANT_ARGS_H

#include "cuda/kernels/experts_args.h"

/* Behind those of quantise_from: swiglu_clamped (glu.h). */
enum { QUANTISE_SWIGLU_CLAMPED = QUANTISE_BF16 + 1 };

/* quantise_rows.cu. Grid (places, quantise_blocks(padded_k)), QUANTISE_THREADS; places: at least
 * *num_tiles * width. `act`: numbers of bf16 for a product with such, in the place of q and scales,
 * zeros from k to padded_k. */
typedef struct quantise_places_args {
    const void *x;     /* [tokens][ldx] f32 where gathered, else [places][ldx] f32 or bf16 */
    const float *bias; /* of gated units [count][2 k], gates then ups, or NULL */
    i8 *q;             /* [places][padded_k] */
    float *scales;     /* [2][padded_k / 32][ld_places] */
    u16 *act;          /* [places][padded_k] or NULL */
    expert_tiles by;
    u32 k, padded_k, ldx, ld_places;
    u32 from; /* quantise_from */
    u32 gathered;
} quantise_places_args;

/* gemm_quant_experts.cu: for each type and for tiles of 8, 16, 32 and 64 places a kernel of its
 * own. A unit is a tile times a block's rows of W; block b takes units b, b + GRID_X, ... Of the
 * last 256 k of 16 rows `last_bytes` are read: the others are zeros that k is padded with. */
typedef struct gemm_quant_experts_args {
    const u8 *w;         /* the first expert's */
    u64 w_bytes;         /* from one expert's to the next */
    const i8 *x;         /* [places][k] */
    const float *scales; /* [2][k / 32][ld_places] */
    float *out;          /* [places][ld_out] */
    expert_tiles by;
    u32 n, n_out, k; /* as gemm_quant_args has them */
    u32 ld_places, ld_out, last_bytes;
    u32 warps, stages; /* cuda_gemm_tiles_plan sets them (gemm_plan.h) */
} gemm_quant_experts_args;

#endif
