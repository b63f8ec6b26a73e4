/* f8.h - fp8 of a KV pool: floats become codes, and codes the bf16 that tensor cores multiply.
 *
 *     e4m3    s eeee mmm    largest 448, no inf, one NaN (0x7f)
 *     e5m2    s eeeee mm    largest 57344, inf and NaN: the upper byte of an f16
 *
 * Codes are those of base/minifloat.h, bit for bit. Every code is a bf16 exactly, the tiniest ones
 * included, so that widening rounds nothing. GPUs before sm_89 have no instructions for either way,
 * and all have the ones that are used here.
 *
 * Codes are widened in fours, two and two: a word's codes 0 and 2, then 1 and 3, which is what costs
 * least. Whoever multiplies them by something brings that in the same order. */
#ifndef CUDA_KERNELS_F8_H
#define CUDA_KERNELS_F8_H

#include "cuda/kernels/kernel_args.h"
#include "device/kernels/dialect.h"

/* The code of a finite number's size with `mant` bits of mantissa whose smallest normal number is
 * 2^min_exp; may come out past the largest. Tiny ones are added to the power of two whose last place
 * is the smallest step. */
INLINE u32 f8_round(u32 bits, const u32 mant, const i32 min_exp)
{
    const u32 shift = 23 - mant, smallest = (u32)(127 + min_exp) << 23;
    const u32 magic = (u32)(127 + 23 + min_exp - (i32)mant) << 23;
    const u32 normal = bits + ((1u << (shift - 1)) - 1) + (bits >> shift & 1);
    const u32 tiny = float_bits(bits_float(bits) + bits_float(magic)) - magic;
    return bits < smallest ? tiny : (normal >> shift) - ((u32)(127 + min_exp - 1) << mant);
}

INLINE u32 e4m3_of(float v) /* saturates, inf too; NaN stays NaN */
{
    const u32 bits = float_bits(v), size = bits & 0x7fffffff;
    u32 code = f8_round(size, 3, -6);
    code = size > 0x43e00000 ? 0x7e : code; /* 448 */
    code = size > 0x7f800000 ? 0x7f : code;
    return (bits >> 24 & 0x80) | code;
}

INLINE u32 e5m2_of(float v) /* to inf behind the largest; NaN stays NaN */
{
    const u32 bits = float_bits(v), size = bits & 0x7fffffff;
    u32 code = f8_round(size, 2, -14);
    code = size >= 0x47700000 ? 0x7c : code; /* 61440, halfway past the largest */
    code = size > 0x7f800000 ? 0x7e : code;
    return (bits >> 24 & 0x80) | code;
}

/* What is stored of v: as kv_codec.h, nothing is divided where the scale is 1. */
INLINE u32 f8_of(u32 kv, float v, float scale)
{
    if (scale != 1.0f) v = divide(v, scale);
    return kv == ATTN_KV_E4M3 ? e4m3_of(v) : e5m2_of(v);
}

/* Codes as the tops of halves: sign, exponent and mantissa where bf16 has them are a number 2^-120
 * times as large, tiny ones too. NaN, which would be 480, is what overflows behind a second
 * multiplication: inf, and inf times 0 is NaN. */
INLINE u32 e4m3_numbers(u32 placed)
{
    const u32 none = 0x80008000; /* -0: adding it leaves the sign of a zero */
    u32 numbers = fma_bf16x2(placed, 0x7b807b80 /* 2^120 */, none);
    u32 past = fma_bf16x2(numbers, 0x7b107b10 /* 1.125 * 2^119 */, none);
    return fma_bf16x2(past, 0, numbers);
}

INLINE u32 e4m3_odd(u32 codes) /* 1 and 3 of a word */
{
    return e4m3_numbers((codes & 0x80008000) | (codes >> 4 & 0x07f007f0));
}

INLINE u32 e4m3_even(u32 codes) /* 0 and 2 */
{
    return e4m3_numbers((codes << 8 & 0x80008000) | (codes << 4 & 0x07f007f0));
}

INLINE u32 e5m2_odd(u32 codes)
{
    u32 halves = codes & 0xff00ff00;
    return pack_bf16_numbers(half_float(halves & 0xffff), half_float(halves >> 16));
}

INLINE u32 e5m2_even(u32 codes)
{
    return e5m2_odd(codes << 8);
}

/* kv: a constant */
INLINE u32 f8_odd(const u32 kv, u32 codes)
{
    return kv == ATTN_KV_E4M3 ? e4m3_odd(codes) : e5m2_odd(codes);
}

INLINE u32 f8_even(const u32 kv, u32 codes)
{
    return kv == ATTN_KV_E4M3 ? e4m3_even(codes) : e5m2_even(codes);
}

#endif
