/* ops_avx512.c - the kernels of ops_kernels.h for AVX-512. */
#if defined(__x86_64__)
#include "model/ops_isa.h"

#include <immintrin.h>

#define OPS_HAS_PICK
#include "model/ops_kernels.h"

/* Compressed in a register: a store that compresses takes 100 cycles and more on some cores. What
 * is written behind the last one is written over, or not used; it ends before out[n], for no more
 * were picked than were read. */
static uint32_t ops_pick(float *out, const float *x, const uint32_t *bits, uint32_t n)
{
    uint32_t count = 0, i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __mmask16 lanes = (__mmask16)(bits[i / 32] >> i % 32);
        if (!lanes) continue;
        _mm512_storeu_ps(out + count, _mm512_maskz_compress_ps(lanes, _mm512_loadu_ps(x + i)));
        count += (uint32_t)__builtin_popcount(lanes);
    }
    for (; i < n; i++)
        if (bits[i / 32] >> i % 32 & 1) out[count++] = x[i];
    return count;
}

const model_ops model_ops_avx512 = OPS_TABLE("avx512");
#else
typedef int no_avx512_here;
#endif
