/* kv_numbers.h - what one number becomes in each store dtype, and what is read back: the judge of
 * the loops that do whole rows. It asks base/minifloat.h, which has a test of its own. */
#ifndef TESTS_KV_NUMBERS_H
#define TESTS_KV_NUMBERS_H

#include "base/bf16.h"
#include "base/minifloat.h"
#include "mem/kv_codec.h"

#include <radish/token_to_kv_pool.h>

/* Any dtype but int8, whose code follows from its row. */
static inline uint32_t encode(uint32_t dtype, float x)
{
    return dtype == RAD_F32       ? f32_bits(x)
           : dtype == RAD_BF16    ? bf16_from_f32(x)
           : dtype == RAD_F16     ? f16_from_f32(x)
           : dtype == RAD_F8_E4M3 ? e4m3_from_f32(x)
                                  : e5m2_from_f32(x);
}

static inline float decode(uint32_t dtype, uint32_t code)
{
    return dtype == RAD_F32       ? f32_of_bits(code)
           : dtype == RAD_BF16    ? bf16_to_f32((uint16_t)code)
           : dtype == RAD_F16     ? f16_to_f32((uint16_t)code)
           : dtype == RAD_F8_E4M3 ? e4m3_to_f32((uint8_t)code)
           : dtype == RAD_F8_E5M2 ? e5m2_to_f32((uint8_t)code)
                                  : (float)(int8_t)code;
}

static inline uint32_t code_at(uint32_t dtype, const void *row, size_t i)
{
    uint32_t size = kv_dtype_bytes(dtype);
    return size == 4   ? ((const uint32_t *)row)[i]
           : size == 2 ? ((const uint16_t *)row)[i]
                       : ((const uint8_t *)row)[i];
}

#endif
