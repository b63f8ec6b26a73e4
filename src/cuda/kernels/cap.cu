/* cap.cu - logits that are to stay below a bound, in place: cap * tanh(x / cap). Four a thread, by
 * the operations of ops_kernels.h in their order. */
#define ONE_FORM
#include "cuda/kernels/glu.h"
#include "cuda/kernels/kernel_args.h"
#include "cuda/kernels/vectors.h"
#include "device/kernels/dialect.h"

/* tanh(y) = (1 - e) / (1 + e) with e = e^-2|y|, and y's sign; the series where y is small and 1 - e
 * has few bits left. */
INLINE float capped(float x, float cap)
{
    const float y = divide(x, cap), y2 = y * y;
    const float size = bits_float(float_bits(y) & 0x7fffffff);
    const float e = exp_clamped(size * -2.0f);
    const float big = divide(1.0f - e, 1.0f + e);
    float small = y2 * (62.0f / 2835) - 17.0f / 315;
    small = small * y2 + 2.0f / 15;
    small = small * y2 - 1.0f / 3;
    small = (small * y2 + 1.0f) * y;
    return (size < 0.1f ? small : bits_float(float_bits(big) | (float_bits(y) & 0x80000000))) * cap;
}

/* Constant: `whole`, see vectors.h. */
INLINE void cap_part(const cap_args *a, const int whole)
{
    launch_next();
    wait_previous();
    const u32 at = 4 * (BLOCK_Y * CAP_THREADS + THREAD_X);
    float *row = a->x + (u64)BLOCK_X * a->ld;
    if (at >= a->n) return;
    float v[4];
    read4(v, row, at, a->n, whole);
    UNROLL
    for (int e = 0; e < 4; e++)
        v[e] = capped(v[e], a->cap);
    write4(row, at, a->n, whole, v);
}

KERNEL(cap_rows, CAP_THREADS, cap_args)
{
    if ((a.n | a.ld) % 4 == 0 && aligned16((u64)a.x))
        cap_part(&a, 1);
    else
        cap_part(&a, 0);
}
