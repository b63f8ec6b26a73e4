/* attention_math.h - the softmax of attention.h and attention_merge.cu, bit for bit the same.
 *
 * Scores are compared as they are and turned into powers of two by `factor`. A maximum of
 * -infinity says that nothing was seen; every function here leaves what it is merged with as it
 * is, so that a block or span of which a query sees nothing changes no bit of it. */
#ifndef CUDA_KERNELS_ATTENTION_MATH_H
#define CUDA_KERNELS_ATTENTION_MATH_H

#include "device/kernels/dialect.h"

#define LOG2_E 1.44269504f

/* 2^x for x <= 0, exactly 1 at 0; exactly 0 below -127 and for NaN. 2 units of the last place.
 * At -127 the polynomial is 1, whose exponent becomes 0 and makes the number 0. */
INLINE float exp2_negative(float x)
{
    x = larger(x, -127.0f);
    float t = x + 12582912.0f, r = x - (t - 12582912.0f);
    float p = FMA(r, 1.5353362e-4f, 1.3398875e-3f);
    p = FMA(p, r, 9.618437e-3f);
    p = FMA(p, r, 5.5503324e-2f);
    p = FMA(p, r, 2.4022648e-1f);
    p = FMA(p, r, 6.9314718e-1f);
    p = FMA(p, r, 1.0f);
    return bits_float(float_bits(p) + (float_bits(t) << 23));
}

/* The same to 1 part in 10,000: for a weight, which is rounded to bf16's 1 in 256. */
INLINE float exp2_weight(float x)
{
    x = larger(x, -127.0f);
    float t = x + 12582912.0f, r = x - (t - 12582912.0f);
    float p = FMA(r, 5.5008933e-2f, 2.4221097e-1f);
    p = FMA(p, r, 6.9328290e-1f);
    p = FMA(p, r, 1.0f);
    return bits_float(float_bits(p) + (float_bits(t) << 23));
}

/* What a score is multiplied with to be an exponent of 2. Capped scores are scaled already. */
INLINE float score_factor(float scale, float cap)
{
    return cap > 0 ? LOG2_E : scale * LOG2_E;
}

INLINE float capped_score(float s, float share, float cap) /* share: scale / cap */
{
    float x = s * share, size = x < 0 ? -x : x;
    float e = exp2_negative(size * (-2 * LOG2_E));
    float t = divide(1.0f - e, 1.0f + e);
    return cap * (x < 0 ? -t : t);
}

/* What is subtracted from scores: the maximum, if anything was seen. */
INLINE float max_base(float max)
{
    return max == NEG_INFINITY ? 0 : max;
}

/* The next span's maximum comes to *max: the total is to be `*keep` of itself and `*add` of the
 * span, by fold(). */
INLINE void fold_weights(float *max, float span_max, float factor, float *keep, float *add)
{
    float both = larger(*max, span_max), base = max_base(both);
    *keep = exp2_negative((*max - base) * factor);
    *add = exp2_negative((span_max - base) * factor);
    *max = both;
}

INLINE float fold(float total, float span, float keep, float add)
{
    return FMA(total, keep, span * add);
}

/* What a row's V is multiplied with at the end. A sink takes its weight and has no value. */
INLINE float close_weight(float max, float sum, float factor, const float *sinks, u32 head)
{
    if (!sinks) return divide(1.0f, sum);
    float m = max * factor, sink = sinks[head] * LOG2_E, base = larger(m, sink);
    float keep = exp2_negative(m - base);
    return divide(keep, FMA(sum, keep, exp2_negative(sink - base)));
}

/* + 0: which blocks were looked at in vain may decide the sign of a zero. */
INLINE float close_row(float total, float weight)
{
    return total * weight + 0.0f;
}

#endif
