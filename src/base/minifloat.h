/* minifloat.h - floats smaller than bf16 knows: f16, and the 8-bit e4m3 and e5m2.
 *
 *     f16    s eeeee mmmmmmmmmm   largest 65504, has inf and NaN
 *     e5m2   s eeeee mm           largest 57344, has inf and NaN: the upper byte of an f16
 *     e4m3   s eeee mmm           largest 448, no inf, one NaN (0x7f): "e4m3fn"
 *
 * Rounding is to nearest even, into subnormals too. Past the largest number f16 and e5m2
 * round to inf as IEEE 754 says; e4m3, which has none, saturates at 448, inf included.
 * NaN stays NaN and keeps its sign. No branch and no table, so that a compiler makes
 * vectors of a loop over these, and no f32 subnormal is ever computed with, so that a
 * thread which flushes them gets the same bits. */
#ifndef BASE_MINIFLOAT_H
#define BASE_MINIFLOAT_H

#include <stdint.h>
#include <string.h>

static inline uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The code, without sign, of a finite positive f32 given as bits, in a format with `mant`
 * mantissa bits whose smallest normal number is 2^min_exp; may come out past the largest.
 *
 * A normal number is rounded in place: half a unit less one, plus the bit that makes ties
 * even, and the carry walks into the exponent by itself. A subnormal one is added to the
 * power of two whose last place is the format's smallest step: the sum's low bits are it. */
static inline uint32_t minifloat_round(uint32_t bits, uint32_t mant, int32_t min_exp)
{
    uint32_t shift = 23 - mant, smallest = (uint32_t)(127 + min_exp) << 23;
    uint32_t magic = (uint32_t)(127 + 23 + min_exp - (int32_t)mant) << 23;
    uint32_t normal = bits + ((1u << (shift - 1)) - 1) + (bits >> shift & 1);
    normal = (normal >> shift) - ((uint32_t)(127 + min_exp - 1) << mant);
    uint32_t tiny = f32_bits(f32_of_bits(bits) + f32_of_bits(magic)) - magic;
    return bits < smallest ? tiny : normal;
}

/* The f32 bits of a finite code without sign. Exact: every code is a normal f32 or 0. */
static inline uint32_t minifloat_widen(uint32_t code, uint32_t mant, int32_t min_exp)
{
    float step = f32_of_bits((uint32_t)(127 + min_exp - (int32_t)mant) << 23);
    uint32_t tiny = f32_bits((float)(int32_t)code * step);
    uint32_t normal = (code << (23 - mant)) + ((uint32_t)(127 + min_exp - 1) << 23);
    return code >> mant ? normal : tiny;
}

static inline uint16_t f16_from_f32(float value)
{
    uint32_t bits = f32_bits(value), size = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    uint32_t code = minifloat_round(size, 10, -14);
    code = size >= 0x477ff000 ? 0x7c00 : code; /* 65520, halfway past the largest */
    code = size > 0x7f800000 ? 0x7e00 | (bits >> 13 & 0x1ff) : code;
    return (uint16_t)(sign | code);
}

static inline float f16_to_f32(uint16_t half)
{
    uint32_t code = half & 0x7fff, sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t bits = minifloat_widen(code, 10, -14);
    bits = code >= 0x7c00 ? 0x7f800000 | code << 13 : bits;
    bits = code > 0x7c00 ? bits | 0x400000 : bits;
    return f32_of_bits(sign | bits);
}

static inline uint8_t e5m2_from_f32(float value)
{
    uint32_t bits = f32_bits(value), size = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
    uint32_t code = minifloat_round(size, 2, -14);
    code = size >= 0x47700000 ? 0x7c : code; /* 61440, halfway past the largest */
    code = size > 0x7f800000 ? 0x7e : code;
    return (uint8_t)(sign | code);
}

static inline float e5m2_to_f32(uint8_t quarter)
{
    return f16_to_f32((uint16_t)(quarter << 8));
}

static inline uint8_t e4m3_from_f32(float value)
{
    uint32_t bits = f32_bits(value), size = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
    uint32_t code = minifloat_round(size, 3, -6);
    code = size > 0x43e00000 ? 0x7e : code; /* 448 */
    code = size > 0x7f800000 ? 0x7f : code;
    return (uint8_t)(sign | code);
}

static inline float e4m3_to_f32(uint8_t quarter)
{
    uint32_t code = quarter & 0x7f, sign = (uint32_t)(quarter & 0x80) << 24;
    uint32_t bits = minifloat_widen(code, 3, -6);
    bits = code == 0x7f ? 0x7fc00000 : bits;
    return f32_of_bits(sign | bits);
}

#endif
