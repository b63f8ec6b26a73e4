/* attn_cpu_neon.c - the kernels with vectors of four lanes, of which every aarch64 has 32. */
#include "attn/attn_kernels.h"

#include <math.h>

#if defined(__aarch64__)
#include <arm_neon.h>

/* 6 x 4 sums in 32 registers; of one and two rows wider tiles, since an fma takes four cycles and
 * two to four begin in each: 1 x 8, 2 x 8. */
enum { W = 4, TILE_VECTORS = 4, MOST_VECTORS = 8 };
#define VECTORS_OF(rows) ((rows) <= 2 ? 8 : TILE_VECTORS)
typedef float32x4_t vf;

#define HELPER static inline __attribute__((always_inline, unused))

HELPER vf vf_load(const float *p)
{
    return vld1q_f32(p);
}
HELPER vf vf_load_n(const float *p, uint32_t n)
{
    float some[W] = {0};
    memcpy(some, p, n * sizeof *p);
    return vld1q_f32(some);
}
HELPER vf widen(uint16x4_t halves)
{
    return vreinterpretq_f32_u32(vshll_n_u16(halves, 16));
}
HELPER vf vf_load_bf16(const uint16_t *p)
{
    return widen(vld1_u16(p));
}
HELPER vf vf_load_bf16_n(const uint16_t *p, uint32_t n)
{
    uint16_t some[W] = {0};
    memcpy(some, p, n * sizeof *p);
    return widen(vld1_u16(some));
}
HELPER void vf_store(float *p, vf v)
{
    vst1q_f32(p, v);
}
HELPER void vf_store_n(float *p, vf v, uint32_t n)
{
    float some[W];
    vst1q_f32(some, v);
    memcpy(p, some, n * sizeof *p);
}
HELPER void vf_load_bf16_pairs(const uint16_t *p, vf *even, vf *odd)
{
    const uint32x4_t pairs = vreinterpretq_u32_u16(vld1q_u16(p));
    *even = vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
    *odd = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000)));
}
HELPER void vf_split(vf *a, vf *b)
{
    const vf even = vuzp1q_f32(*a, *b), odd = vuzp2q_f32(*a, *b);
    *a = even, *b = odd;
}
HELPER void vf_join(vf *a, vf *b)
{
    const vf low = vzip1q_f32(*a, *b), high = vzip2q_f32(*a, *b);
    *a = low, *b = high;
}
HELPER vf vf_set1(float x)
{
    return vdupq_n_f32(x);
}
HELPER vf vf_add(vf a, vf b)
{
    return vaddq_f32(a, b);
}
HELPER vf vf_sub(vf a, vf b)
{
    return vsubq_f32(a, b);
}
HELPER vf vf_mul(vf a, vf b)
{
    return vmulq_f32(a, b);
}
HELPER vf vf_div(vf a, vf b)
{
    return vdivq_f32(a, b);
}
/* b when one is NaN, and when both are zeros: FMAX says otherwise. */
HELPER vf vf_max(vf a, vf b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
HELPER vf vf_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}
HELPER vf vf_abs(vf a)
{
    return vabsq_f32(a);
}
HELPER vf vf_with_sign(vf a, vf b)
{
    return vbslq_f32(vdupq_n_u32(0x80000000), b, a);
}
HELPER vf vf_zero_below(vf x, vf limit, vf y)
{
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(y), vcltq_f32(x, limit)));
}
HELPER vf vf_exp2_of_magic(vf t)
{
    const uint32x4_t n = vaddq_u32(vreinterpretq_u32_f32(t), vdupq_n_u32(127));
    return vreinterpretq_f32_u32(vshlq_n_u32(n, 23));
}
HELPER vf vf_keep(vf v, vf other, uint32_t from, uint32_t begin, uint32_t end)
{
    static const uint32_t lanes[W] = {0, 1, 2, 3};
    const uint32x4_t at = vaddq_u32(vdupq_n_u32(from), vld1q_u32(lanes));
    const uint32x4_t inside =
        vandq_u32(vcgeq_u32(at, vdupq_n_u32(begin)), vcltq_u32(at, vdupq_n_u32(end)));
    return vbslq_f32(inside, v, other);
}
/* Lanes i and i + 2, then the two that are left. */
HELPER float vf_fold_vf_add(vf v)
{
    const float32x2_t half = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(half, 0) + vget_lane_f32(half, 1);
}
HELPER float vf_fold_vf_max(vf v)
{
    const float32x2_t a = vget_low_f32(v), b = vget_high_f32(v);
    const float32x2_t half = vbsl_f32(vcgt_f32(a, b), a, b);
    const float first = vget_lane_f32(half, 0), second = vget_lane_f32(half, 1);
    return first > second ? first : second;
}

/* Four words of each of four rows become four vectors of one word of every row. */
HELPER void transpose_words(const char *const row[W], size_t at, vf to[W])
{
    vf r[W];
#pragma GCC unroll 4
    for (int i = 0; i < W; i++)
        r[i] = vld1q_f32((const float *)(row[i] + at));
    const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1]));
    const float64x2_t b = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
    const float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3]));
    const float64x2_t d = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
    to[0] = vreinterpretq_f32_f64(vzip1q_f64(a, c));
    to[1] = vreinterpretq_f32_f64(vzip1q_f64(b, d));
    to[2] = vreinterpretq_f32_f64(vzip2q_f64(a, c));
    to[3] = vreinterpretq_f32_f64(vzip2q_f64(b, d));
}

/* Four keys from byte `at` on: `some` dimensions of them, a vector of words at most, to kt. */
HELPER void load_words_of_keys(const bool bf16, const char *const key[W], size_t at, uint32_t some,
                               float *kt)
{
    const uint32x4_t high = vdupq_n_u32(0xffff0000);
    vf word[W];
    transpose_words(key, at, word);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < W; i++) {
        const uint32x4_t bits = vreinterpretq_u32_f32(word[i]);
        if (!bf16 && i < some) vf_store(kt + i * ATTN_BLOCK, word[i]);
        if (bf16 && 2 * i < some)
            vf_store(kt + 2 * i * ATTN_BLOCK, vreinterpretq_f32_u32(vshlq_n_u32(bits, 16)));
        if (bf16 && 2 * i + 1 < some)
            vf_store(kt + (2 * i + 1) * ATTN_BLOCK, vreinterpretq_f32_u32(vandq_u32(bits, high)));
    }
}

#include "attn/attn_load_keys_body.h"

#include "attn/attn_kernels_body.h"

const attn_isa attn_isa_neon = ATTN_ISA;
#else
const attn_isa attn_isa_neon = {.f32 = {.attend = NULL}}; /* not this architecture */
#endif
