/* gemm_quant.h - how quantised weights and the rows of x that meet them lie in memory.
 *
 * A step of a panel holds the same 32 k (q4_K: 256) of all 64 rows. Four k of a row are one
 * word, as integer dot products want them; word g of a row holds k = 4g..4g+3:
 *
 *     scales of 64 rows | word 0 of 64 rows | word 1 of 64 rows | ...
 *
 *     q8_0  q + 128: unsigned, since VPDPBUSD multiplies unsigned by signed bytes
 *     q4_0  two words in one, k in the low and k + 16 in the high halves: q + 8, as in the file
 *     q4_K  likewise, a group of 32 after the other, each behind its scales and minima
 *
 * That the weights' integers are moved up costs nothing: x's block brings along what must be
 * taken off the sum. An output's chain is, over blocks b in ascending order,
 *
 *     sum = integers: the q of x times the q of w             exact
 *     acc = fma(sum, d of w * d of x, acc)                    q4_K: d of w is d * scale
 *     acc = fma(-(dmin * min), d of x * sum of x's q, acc)    q4_K alone
 *
 * The same on every instruction set, so the bits are too. */
#ifndef MODEL_GEMM_QUANT_H
#define MODEL_GEMM_QUANT_H

#include "base/base.h"
#include "base/minifloat.h"
#include "model/gemm.h"

enum { GEMM_XBLOCK = 32, GEMM_K_GROUPS = 8 };

/* 32 values of x: x = d * q, |q| <= 127. */
typedef struct gemm_xblock {
    int8_t q[GEMM_XBLOCK];
    float d;
    int32_t start;   /* where the sum of products starts: -offset * the sum of q */
    float sum;       /* d * the sum of q */
    uint32_t unused; /* 48 bytes: three quarters of a line */
} gemm_xblock;

typedef struct gemm_q8_0_step {
    uint16_t d[GEMM_PANEL]; /* f16 */
    uint32_t q[8][GEMM_PANEL];
} gemm_q8_0_step;

typedef struct gemm_q4_0_step {
    uint16_t d[GEMM_PANEL];
    uint32_t q[4][GEMM_PANEL];
} gemm_q4_0_step;

typedef struct gemm_q4_k_step {
    uint16_t d[GEMM_PANEL], dmin[GEMM_PANEL];
    struct {
        uint8_t scale[GEMM_PANEL], min[GEMM_PANEL];
        uint32_t q[4][GEMM_PANEL];
    } group[GEMM_K_GROUPS];
} gemm_q4_k_step;

/* What the stored integers of a type are larger than the numbers they stand for. */
static inline int32_t gemm_quant_offset(gemm_type type)
{
    return type == GEMM_Q8_0 ? 128 : type == GEMM_Q4_0 ? 8 : 0;
}

/* Rows [row, row + count) of the panel at `panel`, `depth` steps of blocks each, from
 * `from`, the rows `pitch` bytes apart. Other rows of the panel are not touched. */
void gemm_quant_pack(gemm_type type, void *panel, uint32_t row, uint32_t count, uint32_t depth,
                     const void *from, size_t pitch);

/* Rounds a row of k floats to q8_0 into the panel: d = the largest / 127, as f16; a block
 * with a NaN or an infinity becomes NaN. */
void gemm_quant_round_row(void *panel, uint32_t row, uint32_t k, const float *x);

/* The row back as k floats, exactly what it stands for. */
void gemm_quant_get_row(gemm_type type, const void *panel, uint32_t row, uint32_t k, float *out);

typedef struct gemm_quant_isa gemm_quant_isa;

/* Rounds k floats to blocks, the last one filled up with zeros: d = the largest / 127, q to
 * nearest even. A block with a NaN or an infinity gets d = NaN; one below 2^-100, where the
 * division would overflow, counts as zeros. Written for a compiler that makes vectors. */
RAD_VECTORIZE static inline void gemm_round_to_blocks(const float *x, uint32_t k, int32_t offset,
                                                      gemm_xblock *dst)
{
    for (; k; dst++) {
        float block[GEMM_XBLOCK] = {0};
        uint32_t n = RAD_MIN(k, (uint32_t)GEMM_XBLOCK);
        memcpy(block, x, n * sizeof *x);
        x += n, k -= n;

        uint32_t bits[GEMM_XBLOCK];
        memcpy(bits, block, sizeof bits);
        uint32_t most = 0; /* bits of positive floats are ordered as they are */
        for (int i = 0; i < GEMM_XBLOCK; i++) {
            uint32_t size = bits[i] & 0x7fffffff;
            most = size > most ? size : most;
        }
        bool finite = most < 0x7f800000, counts = finite && most >= 0x0d800000; /* 2^-100 */
        float largest = f32_of_bits(counts ? most : 0x3f800000);
        float up = counts ? 127.0f / largest : 0;
        int32_t sum = 0;
        for (int i = 0; i < GEMM_XBLOCK; i++) {
            /* Adding 3 * 2^22 rounds to an integer and leaves it in the low bits. */
            float value = finite ? block[i] * up : 0;
            int32_t q = (int32_t)(f32_bits(value + 0x1.8p23f) - 0x4b400000);
            dst->q[i] = (int8_t)q;
            sum += q;
        }
        dst->d = counts ? largest / 127.0f : finite ? 0 : f32_of_bits(0x7fc00000);
        dst->start = -offset * sum;
        dst->sum = dst->d * (float)sum;
        dst->unused = 0;
    }
}

#endif
