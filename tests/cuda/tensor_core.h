/* tensor_core.h - the sums that matrix instructions make, bit by bit.
 *
 * A tensor core adds the products of several k and the number that was there in one fused sum:
 *
 *     every addend is aligned to the largest exponent among them, cut towards zero at `bits` binary
 *     places below it, added exactly, and the sum is cut towards zero to f32
 *
 * sm_80 takes 8 products at a time and keeps 24 places, sm_90 takes 16 and keeps 25 (mma.sync and
 * wgmma alike). The exponent of a product is the sum of its factors', so it may be 1 short of the
 * product's own; that of a denormal number is -126, and what is zero has none. A sum beyond f32 is
 * infinite, NaN is 0x7fffffff.
 *
 * Published, with how it was measured, as MMA-Sim (arXiv 2511.10909); an H100 gave the same bits as
 * this for mma.sync and wgmma, sm_80 was not tried. */
#ifndef TESTS_CUDA_TENSOR_CORE_H
#define TESTS_CUDA_TENSOR_CORE_H

#include <stdint.h>

/* OTHER is no GPU's: 4 products at a time, 23 places; a chip that nobody has measured. */
typedef enum tensor_core_model {
    TENSOR_CORE_SM90,
    TENSOR_CORE_SM80,
    TENSOR_CORE_OTHER
} tensor_core_model;

/* d[m][n] += sum over k of a[m][k] * b[n][k]; a, b are bf16. */
void tensor_core_bf16(tensor_core_model model, float d[16][8], const uint16_t a[16][16],
                      const uint16_t b[8][16]);
void tensor_core_i8(int32_t d[16][8], const int8_t a[16][32], const int8_t b[8][32]);

#endif
