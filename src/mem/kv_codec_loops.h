/* kv_codec_loops.h - the loops of a codec, compiled once for each instruction set.
 *
 * One loop per dtype, each simple enough for the compiler to make vectors of. Only IEEE f32
 * and integer operations, which give the same bits in a vector of any width as alone; no
 * reciprocal stands in for a division, no fused operation for two.
 *
 * gcc makes vectors at O3, and of these selects only when it may compute both sides of one;
 * traps are not used here. The pragma stands before the includes so that what they define
 * can be inlined. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3,no-trapping-math")
#endif

#include "base/bf16.h"
#include "base/minifloat.h"
#include "mem/kv_codec.h"

#include <float.h>
#include <math.h>
#include <radish/token_to_kv_pool.h>

/* Round to nearest even; NaN stays NaN (its payload is cut, so one bit is set). */
static void to_bf16(uint16_t *restrict dst, const float *restrict src, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = bf16_from_f32(src[i]);
}

static void from_bf16(float *restrict dst, const uint16_t *restrict src, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = bf16_to_f32(src[i]);
}

static void to_f16(uint16_t *restrict dst, const float *restrict src, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = f16_from_f32(src[i]);
}

static void from_f16(float *restrict dst, const uint16_t *restrict src, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = f16_to_f32(src[i]);
}

static void to_e4m3(uint8_t *restrict dst, const float *restrict src, size_t count, float scale)
{
    if (scale == 1)
        for (size_t i = 0; i < count; i++)
            dst[i] = e4m3_from_f32(src[i]);
    else
        for (size_t i = 0; i < count; i++)
            dst[i] = e4m3_from_f32(src[i] / scale);
}

static void from_e4m3(float *restrict dst, const uint8_t *restrict src, size_t count, float scale)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = e4m3_to_f32(src[i]) * scale;
}

static void to_e5m2(uint8_t *restrict dst, const float *restrict src, size_t count, float scale)
{
    if (scale == 1)
        for (size_t i = 0; i < count; i++)
            dst[i] = e5m2_from_f32(src[i]);
    else
        for (size_t i = 0; i < count; i++)
            dst[i] = e5m2_from_f32(src[i] / scale);
}

static void from_e5m2(float *restrict dst, const uint8_t *restrict src, size_t count, float scale)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = e5m2_to_f32(src[i]) * scale;
}

static void from_i8(float *restrict dst, const int8_t *restrict src, size_t count, float scale)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = (float)src[i] * scale;
}

/* Adding 1.5 * 2^23 leaves a number rounded to nearest even in the low bits of the sum;
 * what comes here is at most 127 and a half unit of its last place. */
static void divide_to_i8(int8_t *restrict dst, const float *restrict src, size_t count, float scale)
{
    const float magic = 0x1.8p23f;
    for (size_t i = 0; i < count; i++)
        dst[i] = (int8_t)(int32_t)(f32_bits(src[i] / scale + magic) - f32_bits(magic));
}

/* The bits of a magnitude order like the magnitude, inf and then NaN on top. */
static uint32_t largest_bits(const float *src, size_t count)
{
    int32_t most = 0;
    for (size_t i = 0; i < count; i++) {
        int32_t bits = (int32_t)(f32_bits(src[i]) & 0x7fffffff);
        most = bits > most ? bits : most;
    }
    return (uint32_t)most;
}

static float encode_i8(int8_t *dst, const float *src, size_t count)
{
    uint32_t most = largest_bits(src, count);
    if (most >= 0x7f800000) {
        memset(dst, 0, count);
        return NAN;
    }
    float scale = RAD_MAX(f32_of_bits(most) / 127, FLT_MIN);
    if (isinf(scale * 127)) scale = f32_of_bits(f32_bits(scale) - 1); /* the largest comes back */
    divide_to_i8(dst, src, count, scale);
    return scale;
}

static void encode(uint32_t dtype, void *dst, const float *src, size_t count, float scale)
{
    switch (dtype) {
    case RAD_F32: memcpy(dst, src, count * sizeof *src); break;
    case RAD_BF16: to_bf16(dst, src, count); break;
    case RAD_F16: to_f16(dst, src, count); break;
    case RAD_F8_E4M3: to_e4m3(dst, src, count, scale); break;
    case RAD_F8_E5M2: to_e5m2(dst, src, count, scale); break;
    default: RAD_ASSERT(!"a dtype that encode knows");
    }
}

static void decode(uint32_t dtype, float *dst, const void *src, size_t count, float scale)
{
    switch (dtype) {
    case RAD_F32: memcpy(dst, src, count * sizeof *dst); break;
    case RAD_BF16: from_bf16(dst, src, count); break;
    case RAD_F16: from_f16(dst, src, count); break;
    case RAD_F8_E4M3: from_e4m3(dst, src, count, scale); break;
    case RAD_F8_E5M2: from_e5m2(dst, src, count, scale); break;
    case RAD_I8: from_i8(dst, src, count, scale); break;
    default: RAD_ASSERT(!"a dtype that decode knows");
    }
}

#define KV_CODEC(isa) ((kv_codec){isa, encode, decode, encode_i8})
