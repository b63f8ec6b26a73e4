/* quant.h - the numbers in a tensor's bytes, for every tensor type that we load.
 *
 *     F32 F16 BF16                 one value after the other
 *     Q4_0 Q4_1 Q5_0 Q5_1 Q8_0     blocks of 32 with a scale, some with a minimum
 *     MXFP4 IQ4_NL                 blocks of 32 with a scale, codes for numbers of a table
 *     Q2_K Q3_K Q4_K Q5_K Q6_K     blocks of 256 = 8 or 16 groups with small integer scales
 *     IQ4_XS                       the same with IQ4_NL's codes
 *
 * Decoding is exact: what comes out is the real number that the format defines, rounded
 * once to f32 where it has more than 24 bits. */
#ifndef GGUF_QUANT_H
#define GGUF_QUANT_H

#include "gguf/gguf.h"

#include <string.h>

/* Whether ggml_decode knows `type` (a subset of what ggml_type_layout knows). */
bool ggml_type_decodes(uint32_t type);

/* The types that decode, for error messages: "F32, F16, ...". */
const char *ggml_decodable_types(void);

/* `count` values, whole blocks, from `bytes` (any alignment) to out. The type must decode.
 * O(count). */
void ggml_decode(uint32_t type, const void *bytes, uint64_t count, float *out);

/* What MXFP4's codes stand for, times 2, and half of the power of two of a block's first byte: a
 * number is the product of these. */
extern const int8_t ggml_mxfp4_codes[16];
static inline float ggml_mxfp4_scale(uint8_t e)
{
    uint32_t bits = e < 2 ? (uint32_t)0x00200000 << e : (uint32_t)(e - 1) << 23;
    float scale; /* 2^(e - 128) */
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

/* What the codes of IQ4_NL and IQ4_XS stand for. */
extern const int8_t ggml_iq4_codes[16];

/* The eight groups' scales and minima of a Q4_K or Q5_K block: 6 bits each, packed into the
 * 12 bytes behind d and dmin. For code that computes on the blocks. */
void ggml_k_scales(const uint8_t packed[12], uint8_t scales[8], uint8_t mins[8]);

/* The scales of a Q3_K block's 16 groups, packed into the 12 bytes before d, and of an IQ4_XS
 * block's eight, packed into the 6 bytes behind d: -32 to 31. */
void ggml_q3_k_scales(const uint8_t packed[12], int8_t scales[16]);
void ggml_iq4_xs_scales(const uint8_t packed[6], int8_t scales[8]);

#endif
