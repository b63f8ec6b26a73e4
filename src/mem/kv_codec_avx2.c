/* kv_codec_avx2.c - the same loops in eight lanes. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>

#define KV_STEP 16

typedef struct kv_vectors {
    __m256 low, high;
} kv_vectors;

#define VECTOR static inline __attribute__((always_inline))

VECTOR kv_vectors widen_f16(__m256i halves)
{
    return (kv_vectors){_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
                        _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}

VECTOR kv_vectors read_f16(const uint16_t *src)
{
    return widen_f16(_mm256_loadu_si256((const __m256i *)(const void *)src));
}

/* e5m2 is the upper byte of an f16. */
VECTOR kv_vectors read_e5m2(const uint8_t *src)
{
    __m256i codes = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)src));
    return widen_f16(_mm256_slli_epi16(codes, 8));
}

/* Exponent and mantissa put where f16 has them mean 2^(15 - 7) too little; the NaN is made
 * f16's. The sign fills the upper byte, and bit 14 must not have it. */
VECTOR kv_vectors read_e4m3(const uint8_t *src)
{
    const __m256i nan = _mm256_set1_epi16(0x3f80);
    __m256i codes = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)src));
    codes = _mm256_and_si256(_mm256_slli_epi16(codes, 7), _mm256_set1_epi16((short)0xbfff));
    __m256i is_nan = _mm256_cmpeq_epi16(_mm256_and_si256(codes, nan), nan);
    return widen_f16(
        _mm256_xor_si256(codes, _mm256_and_si256(is_nan, _mm256_set1_epi16(0x3f80 ^ 0x7e00))));
}

VECTOR kv_vectors scaled(kv_vectors v, float by)
{
    return (kv_vectors){_mm256_mul_ps(v.low, _mm256_set1_ps(by)),
                        _mm256_mul_ps(v.high, _mm256_set1_ps(by))};
}

VECTOR void store(float *dst, kv_vectors v)
{
    _mm256_storeu_ps(dst, v.low);
    _mm256_storeu_ps(dst + 8, v.high);
}

#include "mem/kv_codec_loops.h"

const kv_codec kv_codec_avx2 = KV_CODEC("avx2");
#endif
