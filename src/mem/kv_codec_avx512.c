/* kv_codec_avx512.c - the same loops in sixteen lanes. */
#if defined(__x86_64__)
#include "mem/kv_e4m3_avx512.h"

#include <stdint.h>

#define KV_STEP 32

typedef struct kv_vectors {
    __m512 low, high;
} kv_vectors;

#define VECTOR static inline __attribute__((always_inline))

VECTOR kv_vectors widen_f16(__m512i halves)
{
    return (kv_vectors){_mm512_cvtph_ps(_mm512_castsi512_si256(halves)),
                        _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1))};
}

VECTOR kv_vectors read_f16(const uint16_t *src)
{
    return (kv_vectors){
        _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)src)),
        _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(src + 16)))};
}

/* e5m2 is the upper byte of an f16. */
VECTOR kv_vectors read_e5m2(const uint8_t *src)
{
    __m512i codes = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)src));
    return widen_f16(_mm512_slli_epi16(codes, 8));
}

VECTOR kv_vectors read_e4m3(const uint8_t *src)
{
    return widen_f16(kv_e4m3_to_f16(_mm256_loadu_si256((const __m256i *)(const void *)src)));
}

VECTOR kv_vectors scaled(kv_vectors v, float by)
{
    return (kv_vectors){_mm512_mul_ps(v.low, _mm512_set1_ps(by)),
                        _mm512_mul_ps(v.high, _mm512_set1_ps(by))};
}

VECTOR void store(float *dst, kv_vectors v)
{
    _mm512_storeu_ps(dst, v.low);
    _mm512_storeu_ps(dst + 16, v.high);
}

#include "mem/kv_codec_loops.h"

const kv_codec kv_codec_avx512 = KV_CODEC("avx512");
#endif
