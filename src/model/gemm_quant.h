/* gemm_quant.h - how quantised weights and the rows of x that meet them lie in memory.
 *
 * A step of a panel holds the same 32 k (the K types: 256) of all 64 rows. Four k of a row are one
 * word, as integer dot products want them; word g of a row holds k = 4g..4g+3:
 *
 *     scales of 64 rows | word 0 of 64 rows | word 1 of 64 rows | ...
 *
 *     q8_0  q + 128: unsigned, since VPDPBUSD multiplies unsigned by signed bytes
 *     q4_0  two words in one, k in the low and k + 16 in the high halves: q + 8, as in the file
 *     q4_K  likewise, a group of 32 after the other, each behind its scales and minima
 *     q5_K  likewise, and one word of fifth bits: byte b holds those of k = b, 4 + b, ... 28 + b
 *     q6_K  three words for each half of a group: k = b, 4 + b and 8 + b of the half in the low six
 *           bits of their bytes b, and two bits of k = 12 + b in the upper two of each. q + 32, as
 *           in the file; a scale each half
 *     mxfp4 as q4_0, but codes; a scale is its exponent's byte
 *     q4_1  as q4_0, but q as it is, with a minimum m beside each scale
 *     q5_0, q5_1  as q4_0 and q4_1 with the fifth bits of q5_K
 *     iq4_nl, iq4_xs  as q4_0 and (with signed scales alone) q4_K, but codes
 *     q3_K  two words of two bits: k = b, 4 + b, 8 + b and 12 + b of a half of the group in byte b;
 *           one of third bits, as q5_K's. q + 4, as in the file; a scale each half
 *     q2_K  the two words; a byte of scale and minimum each half, as in the file
 *
 * That the weights' integers are moved up costs little: x's block brings along what must be
 * taken off the sum. An output's chain is, over blocks b in ascending order,
 *
 *     sum = integers: the q of x times the q of w             exact
 *     acc = fma(sum, d of w * d of x, acc)                    K types: d of w is d * scale
 *     acc = fma(-(dmin * min), d of x * sum of x's q, acc)    q2_K, q4_K, q5_K
 *     acc = fma(m, d of x * sum of x's q, acc)                q4_1, q5_1
 *
 * where a block is 32 k, of q2_K, q3_K and q6_K 16, as their scales are. One sum of 32 with both
 * scales in it would be exact too, but has twice as many integers under way, and no tile has room
 * for them. The same on every instruction set, so the bits are too.
 *
 * x is rounded in one way for all of these types: matrices of different ones can read it. */
#ifndef MODEL_GEMM_QUANT_H
#define MODEL_GEMM_QUANT_H

#include "base/base.h"
#include "base/minifloat.h"
#include "model/gemm.h"

enum { GEMM_XBLOCK = 32, GEMM_K_GROUPS = 8 };

/* What the integers that are multiplied are larger than the numbers they stand for; of types with a
 * minimum: not at all. */
enum {
    GEMM_Q8_0_OFFSET = 128,
    GEMM_IQ4_OFFSET = 128,
    GEMM_Q4_0_OFFSET = 8,
    GEMM_Q5_0_OFFSET = 16,
    GEMM_Q3_K_OFFSET = 4,
    GEMM_Q6_K_OFFSET = 32,
    GEMM_MXFP4_OFFSET = 12
};

/* 32 values of x: x = d * q, |q| <= 127. */
typedef struct gemm_xblock {
    int8_t q[GEMM_XBLOCK];
    float d;
    int32_t start;   /* -128 * the sum of q: where the sum of products of q8_0 and iq4 starts */
    float sum;       /* d * the sum of q */
    int16_t half[2]; /* the sums of q[0..16) and q[16..32) */
} gemm_xblock;       /* 48 bytes: three quarters of a line */

/* Where the others' sums start, and those of the halves of a group of q6_K and q3_K. */
static inline int32_t gemm_start_q4_0(const gemm_xblock *x)
{
    return x->start / (GEMM_Q8_0_OFFSET / GEMM_Q4_0_OFFSET);
}
static inline int32_t gemm_start_q5_0(const gemm_xblock *x)
{
    return x->start / (GEMM_Q8_0_OFFSET / GEMM_Q5_0_OFFSET);
}
static inline int32_t gemm_start_mxfp4(const gemm_xblock *x)
{
    return x->start / (GEMM_Q8_0_OFFSET / 4) * (GEMM_MXFP4_OFFSET / 4);
}
static inline int32_t gemm_start_q6_k(const gemm_xblock *x, int half)
{
    return -GEMM_Q6_K_OFFSET * x->half[half];
}
static inline int32_t gemm_start_q3_k(const gemm_xblock *x, int half)
{
    return -GEMM_Q3_K_OFFSET * x->half[half];
}

/* `sum` of one half. */
static inline float gemm_half_sum(const gemm_xblock *x, int half)
{
    return x->d * (float)x->half[half];
}

typedef struct gemm_q8_0_step {
    uint16_t d[GEMM_PANEL]; /* f16 */
    uint32_t q[8][GEMM_PANEL];
} gemm_q8_0_step;

typedef struct gemm_q4_0_step {
    uint16_t d[GEMM_PANEL];
    uint32_t q[4][GEMM_PANEL];
} gemm_q4_0_step;

typedef struct gemm_mxfp4_step {
    uint8_t e[GEMM_PANEL];
    uint32_t q[4][GEMM_PANEL];
} gemm_mxfp4_step;

typedef struct gemm_q4_1_step {
    uint16_t d[GEMM_PANEL], m[GEMM_PANEL];
    uint32_t q[4][GEMM_PANEL];
} gemm_q4_1_step;

typedef struct gemm_q5_0_step {
    uint16_t d[GEMM_PANEL];
    uint32_t fifth[GEMM_PANEL]; /* bit g of a byte: k = 4g..4g+3 */
    uint32_t q[4][GEMM_PANEL];
} gemm_q5_0_step;

typedef struct gemm_q5_1_step {
    uint16_t d[GEMM_PANEL], m[GEMM_PANEL];
    uint32_t fifth[GEMM_PANEL];
    uint32_t q[4][GEMM_PANEL];
} gemm_q5_1_step;

typedef gemm_q4_0_step gemm_iq4_nl_step;

typedef struct gemm_q2_k_step {
    uint16_t d[GEMM_PANEL], dmin[GEMM_PANEL];
    struct {
        uint8_t scale[2][GEMM_PANEL]; /* in the low halves; minima in the high ones */
        uint32_t low[2][GEMM_PANEL];
    } group[GEMM_K_GROUPS];
} gemm_q2_k_step;

typedef struct gemm_q3_k_step {
    uint16_t d[GEMM_PANEL];
    struct {
        int8_t scale[2][GEMM_PANEL];
        uint32_t low[2][GEMM_PANEL];
        uint32_t third[GEMM_PANEL]; /* bit g of a byte: k = 4g..4g+3 */
    } group[GEMM_K_GROUPS];
} gemm_q3_k_step;

typedef struct gemm_q4_k_step {
    uint16_t d[GEMM_PANEL], dmin[GEMM_PANEL];
    struct {
        uint8_t scale[GEMM_PANEL], min[GEMM_PANEL];
        uint32_t q[4][GEMM_PANEL];
    } group[GEMM_K_GROUPS];
} gemm_q4_k_step;

typedef struct gemm_q5_k_step {
    uint16_t d[GEMM_PANEL], dmin[GEMM_PANEL];
    struct {
        uint8_t scale[GEMM_PANEL], min[GEMM_PANEL];
        uint32_t fifth[GEMM_PANEL];
        uint32_t q[4][GEMM_PANEL];
    } group[GEMM_K_GROUPS];
} gemm_q5_k_step;

typedef struct gemm_iq4_xs_step {
    uint16_t d[GEMM_PANEL];
    struct {
        int8_t scale[GEMM_PANEL];
        uint32_t q[4][GEMM_PANEL];
    } group[GEMM_K_GROUPS];
} gemm_iq4_xs_step;

typedef struct gemm_q6_k_step {
    uint16_t d[GEMM_PANEL];
    struct {
        int8_t scale[2][GEMM_PANEL];
        uint32_t q[2][3][GEMM_PANEL];
    } group[GEMM_K_GROUPS];
} gemm_q6_k_step;

/* Rows [row, row + count) of the panel at `panel`, `depth` steps of blocks each, from
 * `from`, the rows `pitch` bytes apart. Other rows of the panel are not touched. */
void gemm_quant_pack(gemm_type type, void *panel, uint32_t row, uint32_t count, uint32_t depth,
                     const void *from, size_t pitch);

/* Rounds `n` floats, GEMM_XBLOCK at most, to a block of q8_0 as files have it: d = the largest /
 * 127, as f16; with a NaN or an infinity it becomes NaN. And a row of k floats, into the panel. */
void gemm_quant_round_block(const float *x, uint32_t n, uint8_t block[2 + GEMM_XBLOCK]);
void gemm_quant_round_row(void *panel, uint32_t row, uint32_t k, const float *x);

/* The row back as k floats, exactly what it stands for. */
void gemm_quant_get_row(gemm_type type, const void *panel, uint32_t row, uint32_t k, float *out);

typedef struct gemm_quant_isa gemm_quant_isa;

/* What goes with the q and d of a block, from the sums of its halves. */
static inline void gemm_finish_block(gemm_xblock *dst, int32_t first, int32_t second)
{
    dst->start = -GEMM_Q8_0_OFFSET * (first + second);
    dst->sum = dst->d * (float)(first + second);
    dst->half[0] = (int16_t)first;
    dst->half[1] = (int16_t)second;
}

/* Rounds k floats to blocks, the last one filled up with zeros: d = the largest / 127, q to
 * nearest even. A block with a NaN or an infinity gets d = NaN; one below 2^-100, where the
 * division would overflow, counts as zeros. Written for a compiler that makes vectors. */
RAD_VECTORIZE static inline void gemm_round_to_blocks(const float *x, uint32_t k, gemm_xblock *dst)
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
        int32_t half[2] = {0, 0};
        for (int i = 0; i < GEMM_XBLOCK; i++) {
            /* Adding 3 * 2^22 rounds to an integer and leaves it in the low bits. */
            float value = finite ? block[i] * up : 0;
            int32_t q = (int32_t)(f32_bits(value + 0x1.8p23f) - 0x4b400000);
            dst->q[i] = (int8_t)q;
            half[i / 16] += q;
        }
        dst->d = counts ? largest / 127.0f : finite ? 0 : f32_of_bits(0x7fc00000);
        gemm_finish_block(dst, half[0], half[1]);
    }
}

#endif
