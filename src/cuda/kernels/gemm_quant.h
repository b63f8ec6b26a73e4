/* gemm_quant.h - blocks of Q8_0, MXFP4, Q4_K and Q6_K weights times those of tokens: what the kernels of
 * quantised weights do with a stage of W and x, whatever their tiles.
 *
 * The sum of 32 products is an integer: m16n8k32 makes it exactly. What is added to a number, block
 * after block, is written in model/gemm_quant.h, and done here in the same order:
 *
 *     acc = fma(sum, d of w * d of x, acc)               Q4_K: d of w is d * scale,
 *     acc = fma(-(dmin * min), d of x * sum of q, acc)   and this beside
 *
 * Blocks of Q6_K have 16: one of 32 is multiplied twice, with one half of W's registers zero. Codes
 * of MXFP4 become what they stand for, times 2, by a table of eight bytes in two registers.
 *
 * A warp's 16 rows and 256 k are contiguous in memory, in the order in which its lanes want them
 * (cuda/quant_pack.h): scales, then 16 bytes a lane for 32 k of Q8_0 or 64 k of Q4_K, registers of
 * the instruction as they are. Those of Q4_K and Q6_K have an even group in the low halves of their
 * bytes, the odd one behind it in the high ones; Q6_K has the upper two bits beside. MXFP4 has an even
 * block's codes of four k in the lower 16 bits of a word, the odd one's in the upper. Those of Q6_K
 * and MXFP4 have not run on hardware yet; there is no other form of them. */
#ifndef CUDA_KERNELS_GEMM_QUANT_H
#define CUDA_KERNELS_GEMM_QUANT_H

#include "device/kernels/dialect.h"

enum {
    STAGE_K = 256,
    BLOCKS = STAGE_K / 32,
    PITCH = STAGE_K + 16, /* of a token: no two of eight share banks */
    Q8_0_BYTES = 16 * (STAGE_K / 32) * 34,
    Q4_K_BYTES = 16 * 148,
    Q6_K_BYTES = 16 * 210,
    MXFP4_BYTES = 16 * BLOCKS * 17,
    Q8_0_SCALES = 16 * BLOCKS * 2,      /* [16][8] f16 */
    Q4_K_SCALES = 16 * BLOCKS * 2 + 64, /* [16][8] scale and minimum, [16] d and dmin in f16 */
    Q6_K_SCALES = 16 * BLOCKS * 2 + 32, /* [16][16] i8, [16] d in f16 */
    MXFP4_SCALES = 16 * BLOCKS          /* [16][8] exponents */
};

/* As it is loaded and stored by one instruction. */
typedef struct quad {
    u32 of[4];
} __attribute__((aligned(16))) quad;
typedef struct pair {
    float of[2];
} __attribute__((aligned(8))) pair;

/* A warp copies `bytes`, which follow one another; at most `most`, a constant. */
INLINE void copy_rows(u8 *to, const u8 *from, u32 bytes, const u32 most)
{
    UNROLL
    for (u32 at = 0; at < most; at += 512)
        if (at + LANE * 16 < bytes) copy16_async(to + at + LANE * 16, from + at + LANE * 16);
}

/* mma_i8 whose sums begin at c, and the same of 16 k: a has rows r and r + 8. */
#ifdef ON_GPU
INLINE void mma_i8_from(i32 d[4], const u32 a[4], const u32 b[2], const i32 c[4])
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}
INLINE void mma_i8_16(i32 d[4], const u32 a[2], const u32 b[1], const i32 c[4])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
                 "{%7, %8, %9, %10};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}
#else
INLINE void mma_i8_from(i32 d[4], const u32 a[4], const u32 b[2], const i32 c[4])
{
    memcpy(d, c, 16);
    mma_i8(d, a, b);
}
INLINE void mma_i8_16(i32 d[4], const u32 a[2], const u32 b[1], const i32 c[4])
{
    const u32 wide_a[4] = {a[0], a[1], 0, 0}, wide_b[2] = {b[0], 0};
    mma_i8_from(d, wide_a, wide_b, c);
}
#endif

/* acc[0..3] of 16 rows and 8 tokens, of a block: w as the instruction wants it, two registers of x,
 * d of rows r and r + 8, d of tokens t and t + 1. */
INLINE void add_block(float acc[4], const u32 w[4], const u32 x[2], const float dw[2], pair dx)
{
    i32 sum[4] = {0, 0, 0, 0};
    mma_i8(sum, w, x);
    UNROLL
    for (u32 i = 0; i < 4; i++)
        acc[i] = FMA((float)sum[i], dw[i >> 1] * dx.of[i & 1], acc[i]);
}

/* Two blocks that have one scale a row, of all tokens. */
INLINE void add_two(float acc[][4], u32 columns, const u32 w0[4], const u32 w1[4],
                    const float d0[2], const float d1[2], u32 two, const u8 *x, const u8 *d)
{
    UNROLL
    for (u32 c = 0; c < columns; c++) {
        u32 xf[4];
        load_matrix4(xf, x + c * 8 * PITCH + two * 64);
        const pair *dx = (const pair *)(d + two * 64 * columns + c * 32);
        add_block(acc[c], w0, xf, d0, dx[0]);
        add_block(acc[c], w1, xf + 2, d1, dx[columns * 4]);
    }
}

/* Two blocks of Q8_0, of all tokens. */
INLINE void add_q8_0(float acc[][4], u32 columns, const u8 *w, u32 two, const u8 *x, const u8 *d)
{
    const quad *q = (const quad *)(w + Q8_0_SCALES) + two * 64 + LANE;
    const quad w0 = q[0], w1 = q[32];
    const u32 *scales = (const u32 *)w + (LANE >> 2) * (BLOCKS / 2) + two;
    const u32 s0 = scales[0], s8 = scales[8 * (BLOCKS / 2)];
    const float d0[2] = {half_float(s0 & 0xffff), half_float(s8 & 0xffff)};
    const float d1[2] = {half_float(s0 >> 16), half_float(s8 >> 16)};
    add_two(acc, columns, w0.of, w1.of, d0, d1, two, x, d);
}

/* Four codes, of a nibble each, as what they stand for, times 2. Those from 8 on are negative: a
 * selector of them has the signs of sizes, which are 0. */
INLINE u32 mxfp4_numbers(u32 codes)
{
    const u32 plus = permute_bytes(0x03020100, 0x0c080604, codes);
    const u32 minus = permute_bytes(0x03020100, 0x0c080604, codes ^ 0x8888);
    return ((plus | 0x80808080) - minus) ^ 0x80808080; /* no byte borrows from the next */
}

INLINE float mxfp4_scale(u32 e) /* 2^(e - 128) */
{
    return bits_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

/* Two blocks of MXFP4. */
INLINE void add_mxfp4(float acc[][4], u32 columns, const u8 *w, u32 two, const u8 *x, const u8 *d)
{
    const quad q = ((const quad *)(w + MXFP4_SCALES))[two * 32 + LANE];
    const u16 *scales = (const u16 *)w + (LANE >> 2) * (BLOCKS / 2) + two;
    const u32 s0 = scales[0], s8 = scales[8 * (BLOCKS / 2)];
    const float d0[2] = {mxfp4_scale(s0 & 255), mxfp4_scale(s8 & 255)};
    const float d1[2] = {mxfp4_scale(s0 >> 8), mxfp4_scale(s8 >> 8)};
    u32 w0[4], w1[4];
    UNROLL
    for (u32 i = 0; i < 4; i++) {
        w0[i] = mxfp4_numbers(q.of[i]);
        w1[i] = mxfp4_numbers(q.of[i] >> 16);
    }
    add_two(acc, columns, w0, w1, d0, d1, two, x, d);
}

INLINE void add_minima(float acc[4], const float min[2], pair sums)
{
    UNROLL
    for (u32 i = 0; i < 4; i++)
        acc[i] = FMA(-min[i >> 1], sums.of[i & 1], acc[i]);
}

/* Two groups of Q4_K. */
INLINE void add_q4_k(float acc[][4], u32 columns, const u8 *w, u32 two, const u8 *x, const u8 *d)
{
    const quad q = ((const quad *)(w + Q4_K_SCALES))[two * 32 + LANE];
    const u32 *scales = (const u32 *)w + (LANE >> 2) * (BLOCKS / 2) + two;
    const u32 *both = (const u32 *)(w + 16 * BLOCKS * 2) + (LANE >> 2);
    float dw[2][2], min[2][2]; /* [of the two groups][row] */
    UNROLL
    for (u32 r = 0; r < 2; r++) {
        const u32 s = scales[r * 8 * (BLOCKS / 2)], ds = both[r * 8];
        const float of_row = half_float(ds & 0xffff), min_of_row = half_float(ds >> 16);
        dw[0][r] = of_row * (float)(s & 255);
        min[0][r] = min_of_row * (float)(s >> 8 & 255);
        dw[1][r] = of_row * (float)(s >> 16 & 255);
        min[1][r] = min_of_row * (float)(s >> 24);
    }
    u32 w0[4], w1[4];
    UNROLL
    for (u32 i = 0; i < 4; i++) {
        w0[i] = q.of[i] & 0x0f0f0f0f;
        w1[i] = q.of[i] >> 4 & 0x0f0f0f0f;
    }
    UNROLL
    for (u32 c = 0; c < columns; c++) {
        u32 xf[4];
        load_matrix4(xf, x + c * 8 * PITCH + two * 64);
        const pair *dx = (const pair *)(d + two * 64 * columns + c * 32);
        const pair *sums = dx + BLOCKS * columns * 4;
        add_block(acc[c], w0, xf, dw[0], dx[0]);
        add_minima(acc[c], min[0], sums[0]);
        add_block(acc[c], w1, xf + 2, dw[1], dx[columns * 4]);
        add_minima(acc[c], min[1], sums[columns * 4]);
    }
}

/* Four numbers, which are stored 32 larger than they are. */
INLINE u32 q6_k_numbers(u32 stored)
{
    return ((stored | 0x80808080) - 0x20202020) ^ 0x80808080; /* no byte borrows from the next */
}

/* Two groups of Q6_K. */
INLINE void add_q6_k(float acc[][4], u32 columns, const u8 *w, u32 two, const u8 *x, const u8 *d)
{
    const quad q = ((const quad *)(w + Q6_K_SCALES))[two * 32 + LANE];
    const u32 *bits = (const u32 *)(w + Q6_K_SCALES + 4 * 512) + (two * 32 + LANE) * 2;
    const u32 *scales = (const u32 *)w + (LANE >> 2) * (BLOCKS / 2) + two;
    const u16 *both = (const u16 *)(w + 16 * BLOCKS * 2) + (LANE >> 2);
    float dw[4][2]; /* [half of a group][row] */
    UNROLL
    for (u32 r = 0; r < 2; r++) {
        const u32 s = scales[r * 8 * (BLOCKS / 2)];
        const float of_row = half_float(both[r * 8]);
        UNROLL
        for (u32 h = 0; h < 4; h++)
            dw[h][r] = of_row * (float)(i8)(s >> 8 * h);
    }
    const u32 upper[2] = {bits[0], bits[1]}; /* of rows r and r + 8 */
    u32 w0[2][4] = {{0}}, w1[2][4] = {{0}};  /* a group's halves */
    UNROLL
    for (u32 i = 0; i < 4; i++) {
        const u32 of_row = upper[i & 1] >> 2 * (i >> 1);
        const u32 even = (q.of[i] & 0x0f0f0f0f) | (of_row & 0x03030303) << 4;
        const u32 odd = (q.of[i] >> 4 & 0x0f0f0f0f) | (of_row >> 4 & 0x03030303) << 4;
        w0[i >> 1][i] = q6_k_numbers(even);
        w1[i >> 1][i] = q6_k_numbers(odd);
    }
    UNROLL
    for (u32 c = 0; c < columns; c++) {
        u32 xf[4];
        load_matrix4(xf, x + c * 8 * PITCH + two * 64);
        const pair *dx = (const pair *)(d + two * 64 * columns + c * 32);
        add_block(acc[c], w0[0], xf, dw[0], dx[0]);
        add_block(acc[c], w0[1], xf, dw[1], dx[0]);
        add_block(acc[c], w1[0], xf + 2, dw[2], dx[columns * 4]);
        add_block(acc[c], w1[1], xf + 2, dw[3], dx[columns * 4]);
    }
}

#endif
