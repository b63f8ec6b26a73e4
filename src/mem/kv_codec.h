/* kv_codec.h - f32 into the pool's store dtype and back, a row of numbers at a time.
 *
 * Encoding depends on the numbers of the row alone, and never on the instruction set: the
 * same K and V give the same bytes wherever and whenever they are stored (promise P1). */
#ifndef MEM_KV_CODEC_H
#define MEM_KV_CODEC_H

#include "base/base.h"

/* Bytes of one number; 0 for what is not a rad_dtype. */
uint32_t kv_dtype_bytes(uint32_t dtype);
bool kv_dtype_is_fp8(uint32_t dtype);

/* dst[i] = src[i] / scale, rounded to nearest even; any dtype but int8. For a scale of 1
 * nothing is divided. O(count). */
void kv_encode(uint32_t dtype, void *dst, const float *src, size_t count, float scale);

/* dst[i] = src[i] * scale; any dtype, int8 with the scale that kv_encode_i8 returned. */
void kv_decode(uint32_t dtype, float *dst, const void *src, size_t count, float scale);

/* Stores a group of numbers as int8 in -127..127 and returns its scale: the largest
 * magnitude / 127, but never less than FLT_MIN, so that it is a normal number; a number is
 * off by at most half of it. A group that holds inf or NaN gets codes 0 and scale NaN: it
 * reads back as NaN, since int8 could only hide it. O(count). */
float kv_encode_i8(int8_t *dst, const float *src, size_t count);

#endif
