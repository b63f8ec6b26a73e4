/* glu.h - gated units, for glu.cu and for the products that end in one.
 *
 * The same operations in the same order as ops_kernels.h has them, unfused: the CPU's bits. */
#ifndef CUDA_KERNELS_GLU_H
#define CUDA_KERNELS_GLU_H

#include "device/kernels/dialect.h"

/* e^x within 2 units in the last place for |x| < 87, clamped outside; NaN stays NaN. */
INLINE float exp_clamped(float x)
{
    x = x > 87.0f ? 87.0f : x;
    x = x < -87.0f ? -87.0f : x;
    float k = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to a whole number */
    const u32 power = (float_bits(k) - 0x4b400000u + 127) << 23;
    k -= 12582912.0f;
    float r = x - k * 0.693359375f;
    r -= k * -2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * bits_float(power);
}
INLINE float swiglu(float gate, float up)
{
    return divide(gate, exp_clamped(-gate) + 1.0f) * up;
}
INLINE float swiglu_clamped(float gate, float up)
{
    gate = gate > 7.0f ? 7.0f : gate;
    up = up > 7.0f ? 7.0f : up;
    up = up < -7.0f ? -7.0f : up;
    return divide(gate, exp_clamped(gate * -1.702f) + 1.0f) * (up + 1.0f);
}
INLINE float geglu(float gate, float up)
{
    const float u = gate * (gate * gate * 0.0713548163f + 1.59576912f);
    return divide(gate, exp_clamped(-u) + 1.0f) * up;
}

#endif
