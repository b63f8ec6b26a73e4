/* kv_codec_loops.h - the loops of a codec, compiled once for each instruction set.
 *
 * One loop per dtype, each simple enough for the compiler to make vectors of. Only IEEE f32
 * and integer operations, which give the same bits in a vector of any width as alone; no
 * reciprocal stands in for a division, no fused operation for two.
 *
 * Reading narrow floats is what attention over such a pool waits for, and a compiler's
 * vectors of it are long: an instruction set that widens f16 by itself (F16C: exact, quiets
 * NaN as minifloat.h does, and knows no flushing of denormals) brings its own, by defining
 * KV_STEP before it includes this:
 *
 *     kv_vectors           KV_STEP floats
 *     read_f16, read_e5m2  from so many codes, exactly
 *     read_e4m3            likewise, 1/256 of them
 *     scaled, store        each float times a number; to memory, any alignment
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

/* Into both `decode` and `decode_rows`, there with the loop over rows around it. */
#define READING static inline __attribute__((always_inline))

/* Round to nearest even; NaN stays NaN (its payload is cut, so one bit is set). */
static void to_bf16(uint16_t *restrict dst, const float *restrict src, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = bf16_from_f32(src[i]);
}

READING void from_bf16(float *restrict dst, const uint16_t *restrict src, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = bf16_to_f32(src[i]);
}

static void to_f16(uint16_t *restrict dst, const float *restrict src, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = f16_from_f32(src[i]);
}

READING void from_f16(float *restrict dst, const uint16_t *restrict src, size_t count)
{
    size_t i = 0;
#if defined(KV_STEP)
    for (; i + KV_STEP <= count; i += KV_STEP)
        store(dst + i, read_f16(src + i));
#endif
    for (; i < count; i++)
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

READING void from_e4m3(float *restrict dst, const uint8_t *restrict src, size_t count, float scale)
{
    size_t i = 0;
#if defined(KV_STEP)
    /* 256 * scale is exact, and so the product is rounded once, to what it would be. */
    const float larger = scale * 256;
    for (; i + KV_STEP <= count && !isinf(larger); i += KV_STEP)
        store(dst + i, scaled(read_e4m3(src + i), larger));
#endif
    for (; i < count; i++)
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

READING void from_e5m2(float *restrict dst, const uint8_t *restrict src, size_t count, float scale)
{
    size_t i = 0;
#if defined(KV_STEP)
    for (; i + KV_STEP <= count; i += KV_STEP)
        store(dst + i, scaled(read_e5m2(src + i), scale));
#endif
    for (; i < count; i++)
        dst[i] = e5m2_to_f32(src[i]) * scale;
}

READING void from_i8(float *restrict dst, const int8_t *restrict src, size_t count, float scale)
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

/* In both: a rad_dtype without a case here is a warning of the compiler's. That a pool's dtype is
 * one was checked when it was created. */
static void encode(uint32_t dtype, void *dst, const float *src, size_t count, float scale)
{
    switch ((rad_dtype)dtype) {
    case RAD_F32: memcpy(dst, src, count * sizeof *src); break;
    case RAD_BF16: to_bf16(dst, src, count); break;
    case RAD_F16: to_f16(dst, src, count); break;
    case RAD_F8_E4M3: to_e4m3(dst, src, count, scale); break;
    case RAD_F8_E5M2: to_e5m2(dst, src, count, scale); break;
    case RAD_I8: break; /* encode_i8 */
    }
}

READING void decode_one(const uint32_t dtype, float *dst, const void *src, size_t count,
                        float scale)
{
    switch ((rad_dtype)dtype) {
    case RAD_F32: memcpy(dst, src, count * sizeof *dst); break;
    case RAD_BF16: from_bf16(dst, src, count); break;
    case RAD_F16: from_f16(dst, src, count); break;
    case RAD_F8_E4M3: from_e4m3(dst, src, count, scale); break;
    case RAD_F8_E5M2: from_e5m2(dst, src, count, scale); break;
    case RAD_I8: from_i8(dst, src, count, scale); break;
    }
}

static void decode(uint32_t dtype, float *dst, const void *src, size_t count, float scale)
{
    decode_one(dtype, dst, src, count, scale);
}

READING void decode_each(const uint32_t dtype, float *dst, size_t ld, const kv_rows *rows,
                         uint32_t first, uint32_t count, size_t dim)
{
    float scale = rows->scale;
    for (uint32_t i = first; i < first + count; i++, dst += ld) {
        const size_t slot = rows->slots[i];
        if (rows->scales) memcpy(&scale, rows->scales + slot * rows->scale_stride, sizeof scale);
        decode_one(dtype, dst, rows->base + slot * rows->stride, dim, scale);
    }
}

static void decode_rows(uint32_t dtype, float *dst, size_t ld, const kv_rows *rows, uint32_t first,
                        uint32_t count, size_t dim)
{
    switch (dtype) {
    case RAD_F16: decode_each(RAD_F16, dst, ld, rows, first, count, dim); break;
    case RAD_F8_E4M3: decode_each(RAD_F8_E4M3, dst, ld, rows, first, count, dim); break;
    case RAD_F8_E5M2: decode_each(RAD_F8_E5M2, dst, ld, rows, first, count, dim); break;
    case RAD_I8: decode_each(RAD_I8, dst, ld, rows, first, count, dim); break;
    default: decode_each(dtype, dst, ld, rows, first, count, dim);
    }
}

#define KV_CODEC(isa) ((kv_codec){isa, encode, decode, decode_rows, encode_i8})
