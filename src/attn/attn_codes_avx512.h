/* attn_codes_avx512.h - the keys of a pool of narrow numbers, decoded and transposed at once: for
 * f16, and for fp8 and int8 where they are not computed with as bf16 (attn_codes.h).
 *
 * Two neighbouring dimensions travel as one lane of 32 bits, f16 or integers: half the moves
 * that floats would take, and no floats written only to be read again.
 *
 *     16 keys x 32 dims:  codes -> words -> transpose -> even and odd words -> f32 x scale
 *
 * fp8 is made f16 first (exactly; e4m3 256 times too small, which the scale makes up for).
 * The numbers are those of kv_codec, bit by bit. */
#ifndef ATTN_ATTN_CODES_AVX512_H
#define ATTN_ATTN_CODES_AVX512_H

#include "attn/attn_vector_avx512.h"
#include "mem/kv_e4m3_avx512.h"

#include <math.h>

/* Up to 32 codes of a key as words. */
HELPER __m512i words_of(const uint32_t dtype, const char *codes, const __mmask32 some)
{
    if (dtype == RAD_F16) return _mm512_maskz_loadu_epi16(some, codes);
    const __m256i bytes = _mm256_maskz_loadu_epi8(some, codes);
    if (dtype == RAD_I8) return _mm512_cvtepi8_epi16(bytes);
    if (dtype == RAD_F8_E5M2) return _mm512_slli_epi16(_mm512_cvtepu8_epi16(bytes), 8);
    return kv_e4m3_to_f16(bytes);
}

/* A column of pairs to two columns of floats; `scale` is of its 16 keys. */
HELPER void two_columns(const uint32_t dtype, __m512i pairs, vf scale, float *even, float *odd)
{
    vf a, b;
    if (dtype == RAD_I8) {
        a = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(pairs, 16), 16));
        b = _mm512_cvtepi32_ps(_mm512_srai_epi32(pairs, 16));
    } else {
        const __m512i apart = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5,
                                               3, 1, 30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8,
                                               6, 4, 2, 0);
        const __m512i words = _mm512_permutexvar_epi16(apart, pairs);
        a = _mm512_cvtph_ps(_mm512_castsi512_si256(words));
        b = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(words, 1));
    }
    if (dtype != RAD_F16) a = vf_mul(a, scale), b = vf_mul(b, scale);
    vf_store(even, a);
    if (odd) vf_store(odd, b);
}

/* The scales of 16 keys. Gathered: stored one by one, they could not be read as a vector
 * before the last store is through. */
HELPER vf scales_of(const kv_rows *keys, uint32_t j)
{
    __m256 half[2];
    for (uint32_t i = 0; i < 2; i++) {
        const rad_slot *slots = keys->slots + j + 8 * i;
        __m512i at =
            _mm512_cvtepi32_epi64(_mm256_loadu_si256((const __m256i *)(const void *)slots));
        at = _mm512_mullo_epi64(at, _mm512_set1_epi64((long long)keys->scale_stride));
        half[i] = _mm512_i64gather_ps(at, keys->scales, 1);
    }
    return _mm512_insertf32x8(_mm512_castps256_ps512(half[0]), half[1], 1);
}

/* 16 keys x `some` dimensions from `d` on, up to 32. */
HELPER void codes_tile(const uint32_t dtype, const uint32_t some, const char *const *key,
                       uint32_t d, vf scale, float *to)
{
    const size_t at = (size_t)d * (dtype == RAD_F16 ? 2 : 1);
    const __mmask32 mask = (__mmask32)(((uint64_t)1 << some) - 1);
    __m512i tile[16];
#pragma GCC unroll 16
    for (uint32_t i = 0; i < 16; i++)
        tile[i] = words_of(dtype, key[i] + at, mask);
    transpose(tile);
#pragma GCC unroll 16
    for (uint32_t i = 0; i < 16; i++, to += 2 * ATTN_BLOCK)
        if (2 * i < some)
            two_columns(dtype, tile[i], scale, to, 2 * i + 1 < some ? to + ATTN_BLOCK : NULL);
}

HELPER void load_codes_of(const uint32_t dtype, const kv_rows *keys, uint32_t dim, float *kt,
                          attn_ahead *ahead)
{
    /* Half of what is read here, the other half while it is worked with; scales come on top. */
    const uint32_t lines = 16 * attn_lines_of((size_t)dim * (dtype == RAD_F16 ? 2 : 1)) /
                           (dtype == RAD_I8 ? 1 : 2);
    vf scale = vf_set1(dtype == RAD_F8_E4M3 ? keys->scale * 256 : keys->scale);
    for (uint32_t j = 0; j < ATTN_BLOCK; j += 16) {
        const char *key[16];
        uint32_t d = 0;
        for (uint32_t i = 0; i < 16; i++)
            key[i] = keys->base + (size_t)keys->slots[j + i] * keys->stride;
        if (dtype == RAD_I8) scale = scales_of(keys, j);
        attn_ahead_fetch(ahead, lines);
        for (; d + 32 <= dim; d += 32)
            codes_tile(dtype, 32, key, d, scale, kt + (size_t)d * ATTN_BLOCK + j);
        if (d < dim) codes_tile(dtype, dim - d, key, d, scale, kt + (size_t)d * ATTN_BLOCK + j);
    }
}

static bool load_codes(uint32_t dtype, const kv_rows *keys, uint32_t dim, void *to,
                       attn_ahead *ahead)
{
    switch (dtype) {
    case RAD_F16: load_codes_of(RAD_F16, keys, dim, to, ahead); return true;
    case RAD_F8_E4M3:
        if (isinf(keys->scale * 256)) return false;
        load_codes_of(RAD_F8_E4M3, keys, dim, to, ahead);
        return true;
    case RAD_F8_E5M2: load_codes_of(RAD_F8_E5M2, keys, dim, to, ahead); return true;
    case RAD_I8: load_codes_of(RAD_I8, keys, dim, to, ahead); return true;
    default: return false;
    }
}

#define ATTN_LOAD_CODES load_codes

#endif
