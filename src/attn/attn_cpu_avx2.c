/* attn_cpu_avx2.c - the kernels with vectors of 8 lanes. */
#include "attn/attn_strip.h"

#include <math.h>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

/* 6 x 2 sums in 16 registers; of few rows wider tiles, as an fma takes four cycles and two begin in
 * each: 1 x 8, 2 x 4, 3 x 4. */
enum { W = 8, TILE_VECTORS = 2, MOST_VECTORS = 8 };
#define VECTORS_OF(rows) ((rows) == 1 ? 8 : (rows) <= 3 ? 4 : TILE_VECTORS)
typedef __m256 vf;

#define HELPER static inline __attribute__((always_inline, unused))

HELPER __m256i lanes_below(uint32_t n)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}
HELPER vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
HELPER vf vf_load_n(const float *p, uint32_t n)
{
    return _mm256_maskload_ps(p, lanes_below(n));
}
HELPER vf widen(__m128i halves)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
HELPER vf vf_load_bf16(const uint16_t *p)
{
    return widen(_mm_loadu_si128((const __m128i *)p));
}
HELPER vf vf_load_bf16_n(const uint16_t *p, uint32_t n)
{
    uint16_t some[W] = {0};
    memcpy(some, p, n * sizeof *p);
    return widen(_mm_loadu_si128((const __m128i *)some));
}
HELPER void vf_store(float *p, vf v)
{
    _mm256_storeu_ps(p, v);
}
HELPER void vf_store_n(float *p, vf v, uint32_t n)
{
    _mm256_maskstore_ps(p, lanes_below(n), v);
}
HELPER void vf_load_bf16_pairs(const uint16_t *p, vf *even, vf *odd)
{
    __m256i pairs = _mm256_loadu_si256((const __m256i *)p);
    *even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    *odd = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000)));
}
HELPER void vf_split(vf *a, vf *b)
{
    __m256 low = _mm256_permute2f128_ps(*a, *b, 0x20);  /* a0-a3 b0-b3 */
    __m256 high = _mm256_permute2f128_ps(*a, *b, 0x31); /* a4-a7 b4-b7 */
    *a = _mm256_shuffle_ps(low, high, 0x88);
    *b = _mm256_shuffle_ps(low, high, 0xdd);
}
HELPER void vf_join(vf *a, vf *b)
{
    __m256 low = _mm256_unpacklo_ps(*a, *b), high = _mm256_unpackhi_ps(*a, *b);
    *a = _mm256_permute2f128_ps(low, high, 0x20);
    *b = _mm256_permute2f128_ps(low, high, 0x31);
}
HELPER vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}
HELPER vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
HELPER vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
HELPER vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
HELPER vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
HELPER vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
HELPER vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
HELPER vf vf_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
HELPER vf vf_with_sign(vf a, vf b)
{
    __m256 sign = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(sign, a), _mm256_and_ps(sign, b));
}
HELPER vf vf_zero_below(vf x, vf limit, vf y)
{
    return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LT_OQ), y);
}
HELPER vf vf_exp2_of_magic(vf t)
{
    __m256i n = _mm256_add_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(n, 23));
}
HELPER vf vf_keep(vf v, vf other, uint32_t from, uint32_t begin, uint32_t end)
{
    __m256i at =
        _mm256_add_epi32(_mm256_set1_epi32((int)from), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i before = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)begin), at);
    __m256i inside = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)end), at);
    return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(_mm256_andnot_si256(before, inside)));
}
#define FOLD_VECTOR(op, op128, op1)                                                                \
    HELPER float vf_fold_##op(vf v)                                                                \
    {                                                                                              \
        __m128 h = op128(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));                  \
        h = op128(h, _mm_movehl_ps(h, h));                                                         \
        return _mm_cvtss_f32(op1(h, _mm_shuffle_ps(h, h, 1)));                                     \
    }
FOLD_VECTOR(vf_add, _mm_add_ps, _mm_add_ss)
FOLD_VECTOR(vf_max, _mm_max_ps, _mm_max_ss)

/* Four words of each of eight rows, from byte `at` on, become four vectors of one word of every
 * row. Rows i and i + 4 share a register from the load on, so no word has to cross its middle. */
HELPER void transpose_words(const char *const row[W], size_t at, __m256 to[W / 2])
{
    __m256 r[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m128 low = _mm_loadu_ps((const float *)(row[i] + at));
        __m128 high = _mm_loadu_ps((const float *)(row[i + 4] + at));
        r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
    }
    __m256 a = _mm256_unpacklo_ps(r[0], r[1]), b = _mm256_unpacklo_ps(r[2], r[3]);
    __m256 c = _mm256_unpackhi_ps(r[0], r[1]), d = _mm256_unpackhi_ps(r[2], r[3]);
    to[0] = _mm256_shuffle_ps(a, b, 0x44);
    to[1] = _mm256_shuffle_ps(a, b, 0xee);
    to[2] = _mm256_shuffle_ps(c, d, 0x44);
    to[3] = _mm256_shuffle_ps(c, d, 0xee);
}

/* Eight keys from byte `at` on: `some` dimensions of them, a vector of words at most, to kt. */
HELPER void load_words_of_keys(const bool bf16, const char *const key[W], size_t at, uint32_t some,
                               float *kt)
{
    const __m256 high = _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffff0000));
    __m256 word[W];
    transpose_words(key, at, word);
    transpose_words(key, at + W / 2 * sizeof(float), word + W / 2);
#pragma GCC unroll 8
    for (uint32_t i = 0; i < W; i++) {
        if (!bf16 && i < some) vf_store(kt + i * ATTN_BLOCK, word[i]);
        if (bf16 && 2 * i < some) {
            __m256i even = _mm256_slli_epi32(_mm256_castps_si256(word[i]), 16);
            vf_store(kt + 2 * i * ATTN_BLOCK, _mm256_castsi256_ps(even));
        }
        if (bf16 && 2 * i + 1 < some)
            vf_store(kt + (2 * i + 1) * ATTN_BLOCK, _mm256_and_ps(word[i], high));
    }
}

#include "attn/attn_load_keys_body.h"

#define ATTN_STRIP(type) attn_strip_avx2_##type
#include "attn/attn_kernels_body.h"
#include "attn/attn_strip_chain.h"

const attn_isa attn_isa_avx2 = ATTN_ISA;
#else
const attn_isa attn_isa_avx2 = {.f32 = {.attend = NULL}}; /* not this architecture */
#endif
