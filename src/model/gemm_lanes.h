/* gemm_lanes.h - sixteen numbers at a time: AVX-512 where a file is compiled for it, else
 * C that computes the same bits. So one source serves the instructions and their emulation. */
#ifndef MODEL_GEMM_LANES_H
#define MODEL_GEMM_LANES_H

#include "base/minifloat.h"

#include <stdint.h>

enum { LANES = 16 };

/* Sixteen words that lie in memory, for the operators of the language. */
typedef uint32_t words __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

#if defined(__AVX512F__)
#include <immintrin.h>

typedef __m512 lanes;

#define lanes_zero()        _mm512_setzero_ps()
#define lanes_all(v)        _mm512_set1_ps(v)
#define lanes_load(from)    _mm512_loadu_ps(from)
#define lanes_store(to, v)  _mm512_storeu_ps(to, v)
/* Of 16 integers; of 16 f16. */
#define lanes_of_int(from)  _mm512_cvtepi32_ps(_mm512_loadu_si512(from))
#define lanes_of_f16(from)  _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from)))
#define lanes_mul(a, b)     _mm512_mul_ps(a, b)
/* a * b + c and c - a * b, rounded once. */
#define lanes_fma(a, b, c)  _mm512_fmadd_ps(a, b, c)
#define lanes_fnma(a, b, c) _mm512_fnmadd_ps(a, b, c)
#else
#include <math.h>

typedef struct lanes {
    float at[LANES];
} lanes;

#define LANES_OF(name, parameters, value)                                                          \
    static inline lanes name parameters                                                            \
    {                                                                                              \
        lanes out;                                                                                 \
        for (int i = 0; i < LANES; i++)                                                            \
            out.at[i] = value;                                                                     \
        return out;                                                                                \
    }
LANES_OF(lanes_zero, (void), 0)
LANES_OF(lanes_all, (float v), v)
LANES_OF(lanes_load, (const float *from), from[i])
LANES_OF(lanes_of_int, (const int32_t *from), (float)from[i])
LANES_OF(lanes_of_f16, (const uint16_t *from), f16_to_f32(from[i]))
LANES_OF(lanes_mul, (lanes a, lanes b), a.at[i] * b.at[i])
LANES_OF(lanes_fma, (lanes a, lanes b, lanes c), fmaf(a.at[i], b.at[i], c.at[i]))
LANES_OF(lanes_fnma, (lanes a, lanes b, lanes c), fmaf(-a.at[i], b.at[i], c.at[i]))
#undef LANES_OF

static inline void lanes_store(float *to, lanes v)
{
    for (int i = 0; i < LANES; i++)
        to[i] = v.at[i];
}
#endif

#endif
