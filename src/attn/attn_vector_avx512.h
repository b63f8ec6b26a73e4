/* attn_vector_avx512.h - vectors of 16 lanes, as attn_kernels_body.h wants them. */
#ifndef ATTN_ATTN_VECTOR_AVX512_H
#define ATTN_ATTN_VECTOR_AVX512_H

#include "attn/attn_kernels.h"

#include <immintrin.h>

enum { W = 16, TILE_VECTORS = 4, MOST_VECTORS = TILE_VECTORS }; /* 6 x 4 sums in 32 registers */
#define VECTORS_OF(rows) TILE_VECTORS
typedef __m512 vf;

#define HELPER static inline __attribute__((always_inline, unused))

HELPER __mmask16 lanes_below(uint32_t n)
{
    return (__mmask16)((1u << n) - 1);
}
HELPER vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
HELPER vf vf_load_n(const float *p, uint32_t n)
{
    return _mm512_maskz_loadu_ps(lanes_below(n), p);
}
HELPER vf widen(__m256i halves)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
HELPER vf vf_load_bf16(const uint16_t *p)
{
    return widen(_mm256_loadu_si256((const __m256i *)p));
}
HELPER vf vf_load_bf16_n(const uint16_t *p, uint32_t n)
{
    return widen(_mm256_maskz_loadu_epi16(lanes_below(n), p));
}
HELPER void vf_store(float *p, vf v)
{
    _mm512_storeu_ps(p, v);
}
HELPER void vf_store_n(float *p, vf v, uint32_t n)
{
    _mm512_mask_storeu_ps(p, lanes_below(n), v);
}
HELPER void vf_load_bf16_pairs(const uint16_t *p, vf *even, vf *odd)
{
    __m512i pairs = _mm512_loadu_si512(p);
    *even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    *odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000)));
}
HELPER void vf_split(vf *a, vf *b)
{
    __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __m512 e = _mm512_permutex2var_ps(*a, even, *b);
    *b = _mm512_permutex2var_ps(*a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), *b);
    *a = e;
}
HELPER void vf_join(vf *a, vf *b)
{
    __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    __m512 first = _mm512_permutex2var_ps(*a, low, *b);
    *b = _mm512_permutex2var_ps(*a, _mm512_add_epi32(low, _mm512_set1_epi32(8)), *b);
    *a = first;
}
HELPER vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}
HELPER vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
HELPER vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
HELPER vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
HELPER vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
HELPER vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
HELPER vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
HELPER vf vf_abs(vf a)
{
    return _mm512_abs_ps(a);
}
HELPER vf vf_with_sign(vf a, vf b)
{
    __m512 sign = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(sign, a), _mm512_and_ps(sign, b));
}
HELPER vf vf_zero_below(vf x, vf limit, vf y)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), y);
}
HELPER vf vf_exp2_of_magic(vf t)
{
    __m512i n = _mm512_add_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(n, 23));
}
HELPER vf vf_keep(vf v, vf other, uint32_t from, uint32_t begin, uint32_t end)
{
    uint64_t inside = (end < 64 ? ((uint64_t)1 << end) - 1 : ~(uint64_t)0) &
                      (~(uint64_t)0 << begin);
    return _mm512_mask_mov_ps(other, (__mmask16)(inside >> from), v);
}
#define FOLD_VECTOR(op, op256, op128, op1)                                                         \
    HELPER float vf_fold_##op(vf v)                                                                \
    {                                                                                              \
        __m256 q = op256(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));                 \
        __m128 h = op128(_mm256_castps256_ps128(q), _mm256_extractf128_ps(q, 1));                  \
        h = op128(h, _mm_movehl_ps(h, h));                                                         \
        return _mm_cvtss_f32(op1(h, _mm_shuffle_ps(h, h, 1)));                                     \
    }
FOLD_VECTOR(vf_add, _mm256_add_ps, _mm_add_ps, _mm_add_ss)
FOLD_VECTOR(vf_max, _mm256_max_ps, _mm_max_ps, _mm_max_ss)

/* r[c], r[c + 4], r[c + 8], r[c + 12], c < 4, as 4 x 4 quarters: to columns of those. */
HELPER void transpose_quarters(__m512i r[16])
{
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        __m512i even01 = _mm512_shuffle_i32x4(r[c], r[c + 4], 0x88);
        __m512i odd01 = _mm512_shuffle_i32x4(r[c], r[c + 4], 0xdd);
        __m512i even23 = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0x88);
        __m512i odd23 = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0xdd);
        r[c] = _mm512_shuffle_i32x4(even01, even23, 0x88);
        r[c + 8] = _mm512_shuffle_i32x4(even01, even23, 0xdd);
        r[c + 4] = _mm512_shuffle_i32x4(odd01, odd23, 0x88);
        r[c + 12] = _mm512_shuffle_i32x4(odd01, odd23, 0xdd);
    }
}

/* 16 rows of 16 lanes of 32 bits to 16 columns: singles, pairs, fours, eights. */
HELPER void transpose(__m512i r[16])
{
    __m512i a[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    /* Within each group of four rows: r[4g + c] holds columns c, c+4, c+8, c+12. */
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    transpose_quarters(r);
}

#endif
