/* quant_pack.h - how quantised weights lie in a GPU's memory, for gemm_quant.cu.
 *
 * 16 rows and 256 k follow one another, tiles of a row of tiles in ascending k:
 *
 *     Q8_0  4352 bytes: d [16][8] f16 | q [8 blocks][32 lanes][4 words]
 *     MXFP4 2176 bytes: exponents [16][8] | codes [4 pairs][32 lanes][4 words]
 *     Q4_K  2368 bytes: scale, minimum [16][8] | d, dmin [16] f16 | q [4 pairs][32 lanes][4 words]
 *     Q6_K  3360 bytes: scales [16][16] | d [16] f16 | low halves of q as Q4_K's q |
 *           two upper bits of q [4 pairs][32 lanes][2 words]
 *
 * A word has 4 k of a row; word i of lane l is of row l / 4 + 8 * (i % 2), and of
 * k = 4 * (l % 4) + 16 * (i / 2) on of its block, as m16n8k32 takes them. Words of Q4_K have an
 * even group of 32 in the low halves of their bytes and the odd one behind it in the high halves;
 * words of MXFP4 have the even block's four codes in their lower 16 bits, k ascending with the
 * bits.
 *
 * k is padded to a multiple of 256 and n to one of 16, with zeros; of Q8_0 and MXFP4 the rest of a
 * row's last block is the caller's to fill. */
#ifndef CUDA_QUANT_PACK_H
#define CUDA_QUANT_PACK_H

#include "model/gemm.h"

static inline uint32_t cuda_quant_k(uint32_t k)
{
    return (k + 255) / 256 * 256;
}

/* There are kernels for matrices of this type. */
bool cuda_quant_packs(gemm_type type);

/* Bytes of an n x k matrix. */
size_t cuda_quant_bytes(gemm_type type, uint32_t n, uint32_t k);

/* Of 256 k of 16 rows, the last ones of a matrix: bytes up to the last that k's padding has not all
 * to itself. */
uint32_t cuda_quant_last_bytes(gemm_type type, uint32_t k);

/* Row `row` of the matrix at `to`, which was zeros, from the row's blocks in a GGUF file. Different
 * rows may be packed by different threads. */
void cuda_quant_pack(gemm_type type, void *to, uint32_t k, uint32_t row, const void *blocks);

#endif
