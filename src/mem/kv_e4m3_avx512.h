/* kv_e4m3_avx512.h - 32 codes of e4m3 as f16, for the codec and for what reads past it. */
#ifndef MEM_KV_E4M3_AVX512_H
#define MEM_KV_E4M3_AVX512_H

#include <immintrin.h>

/* Exponent and mantissa put where f16 has them: exactly 1/256 of each number, subnormal ones
 * too, and the NaN made f16's. The sign fills the upper byte, and bit 14 must not have it. */
static inline __attribute__((always_inline)) __m512i kv_e4m3_to_f16(__m256i codes)
{
    const __m512i nan = _mm512_set1_epi16(0x3f80);
    __m512i words = _mm512_slli_epi16(_mm512_cvtepi8_epi16(codes), 7);
    words = _mm512_and_si512(words, _mm512_set1_epi16((short)0xbfff));
    __mmask32 is_nan = _mm512_cmpeq_epi16_mask(_mm512_and_si512(words, nan), nan);
    return _mm512_mask_add_epi16(words, is_nan, words, _mm512_set1_epi16(0x7e00 - 0x3f80));
}

#endif
