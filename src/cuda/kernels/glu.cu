/* glu.cu - act[t] = glu(gate, up) of a product's parts, rounded for the next product. Four numbers
 * a thread; gates in the front half of a row, ups behind them. */
#define ONE_FORM
#include "cuda/kernels/glu.h"
#include "cuda/kernels/kernel_args.h"
#include "cuda/kernels/vectors.h"
#include "device/kernels/dialect.h"

/* Constant: `whole`, see vectors.h. */
INLINE void glu_part(const glu_args *a, const int whole)
{
    launch_next();
    wait_previous();
    const u32 at = 4 * (BLOCK_Y * GLU_THREADS + THREAD_X), n = a->dim;
    const u64 t = BLOCK_X;
    u16 *out = a->out + t * a->ld;
    if (at < n) {
        const float *y = a->y + t * a->ldy;
        const u64 to_next = (u64)a->tokens * a->ldy;
        float gate[4], up[4], o[4];
        add_parts(gate, y, to_next, a->parts, at, n, whole);
        add_parts(up, y + n, to_next, a->parts, at, n, whole);
        if (a->bias) {
            add_loaded(gate, a->bias, at, n, whole);
            add_loaded(up, a->bias + n, at, n, whole);
        }
        UNROLL
        for (int e = 0; e < 4; e++)
            o[e] = a->kind == GLU_SWIGLU           ? swiglu(gate[e], up[e])
                   : a->kind == GLU_SWIGLU_CLAMPED ? swiglu_clamped(gate[e], up[e])
                                                   : geglu(gate[e], up[e]);
        write4_bf16(out, at, n, whole, o);
    }
    UNROLL
    for (u32 e = 0; e < 4; e++)
        if (at + e >= n && at + e < a->ld) out[at + e] = 0;
}

KERNEL(glu, GLU_THREADS, glu_args)
{
    if ((a.dim | a.ldy | a.ld) % 4 == 0 && aligned16((u64)a.y | (u64)a.bias | (u64)a.out))
        glu_part(&a, 1);
    else
        glu_part(&a, 0);
}
