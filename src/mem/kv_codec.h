/* kv_codec.h - f32 into the pool's store dtype and back, a row of numbers at a time.
 *
 * Encoding depends on the numbers of the row alone, and never on the instruction set: the
 * same K and V give the same bytes wherever and whenever they are stored (promise P1). */
#ifndef MEM_KV_CODEC_H
#define MEM_KV_CODEC_H

#include "base/base.h"

#include <radish/token_to_kv_pool.h>

/* Bytes of one number; 0 for what is not a rad_dtype. */
uint32_t kv_dtype_bytes(uint32_t dtype);
bool kv_dtype_is_fp8(uint32_t dtype);

/* "f32", "bf16", "f16", "fp8_e4m3", "fp8_e5m2", "int8": the name, "?" for none; and the
 * dtype of a name, false when there is none. */
const char *kv_dtype_name(uint32_t dtype);
bool kv_dtype_find(const char *name, rad_dtype *dtype);

/* Rows that lie apart: number i is at base + slots[i] * stride. */
typedef struct kv_rows {
    const char *base;
    const rad_slot *slots;
    size_t stride;
    float scale;        /* of all rows, unless each has its own (int8): a float at scales + */
    const char *scales; /* slots[i] * scale_stride; else NULL */
    size_t scale_stride;
} kv_rows;

/* One instruction set's loops. All are O(count); dst and src do not overlap. */
typedef struct kv_codec {
    const char *name;

    /* dst[i] = src[i] / scale, rounded to nearest even; any dtype but int8. The scale is
     * for fp8; for a scale of 1 nothing is divided. */
    void (*encode)(uint32_t dtype, void *dst, const float *src, size_t count, float scale);

    /* dst[i] = src[i] * scale; the scale is for fp8 and int8. */
    void (*decode)(uint32_t dtype, float *dst, const void *src, size_t count, float scale);

    /* The same for rows [first, first + count) of `rows`, `dim` numbers each: row i goes to
     * dst + (i - first) * ld. */
    void (*decode_rows)(uint32_t dtype, float *dst, size_t ld, const kv_rows *rows, uint32_t first,
                        uint32_t count, size_t dim);

    /* Stores a group of numbers as int8 in -127..127 and returns its scale: the largest
     * magnitude / 127, but never less than FLT_MIN, so that it is a normal number; a number
     * is off by at most half of it. A group that holds inf or NaN gets codes 0 and scale
     * NaN: it reads back as NaN, since int8 could only hide it. */
    float (*encode_i8)(int8_t *dst, const float *src, size_t count);
} kv_codec;

/* The best for this CPU (NULL), or "avx512", "avx2", "plain"; NULL when the CPU lacks it.
 * All give the same bits. */
const kv_codec *kv_codec_for(const char *isa);

extern const kv_codec kv_codec_avx2;   /* x86-64; called only where has_avx2 */
extern const kv_codec kv_codec_avx512; /* likewise */

#endif
