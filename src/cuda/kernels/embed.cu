/* embed.cu - x[t] = scale * row ids[t] of the table. One block a token. */
#define ONE_FORM
#include "cuda/kernels/kernel_args.h"
#include "cuda/kernels/vectors.h"
#include "device/kernels/dialect.h"

/* Eight numbers a thread and round, so that a row of bf16 is read 16 bytes at a time.
 * Constant: `whole`, see vectors.h. */
INLINE void embed_row(const embed_args *a, const int whole)
{
    launch_next();
    wait_previous(); /* ids may be what a kernel chose */
    const u64 id = (u64)(u32)a->ids[BLOCK_X];
    float *x = a->x + (u64)BLOCK_X * a->dim;
    for (u32 at = 8 * THREAD_X; at < a->dim; at += 8 * EMBED_THREADS) {
        const int more = at + 4 < a->dim;
        float v[8];
        if (a->is_f32) {
            const float *row = (const float *)a->table + id * a->ld;
            load4(v, row, at, a->dim, whole);
            if (more) load4(v + 4, row, at + 4, a->dim, whole);
        } else if (whole) { /* ld is a multiple of 8: eight can be read where four are left */
            u32 bits[4];
            load16(bits, (const u16 *)a->table + id * a->ld + at);
            UNROLL
            for (int i = 0; i < 4; i++) {
                v[2 * i] = bf16_float(bits[i]);
                v[2 * i + 1] = bf16_float(bits[i] >> 16);
            }
        } else {
            const u16 *row = (const u16 *)a->table + id * a->ld;
            UNROLL
            for (u32 e = 0; e < 8; e++)
                v[e] = at + e < a->dim ? bf16_float(row[at + e]) : 0.0f;
        }
        UNROLL
        for (int e = 0; e < 8; e++)
            v[e] *= a->scale;
        write4(x, at, a->dim, whole, v);
        if (more) write4(x, at + 4, a->dim, whole, v + 4);
    }
}

KERNEL(embed, EMBED_THREADS, embed_args)
{
    if (a.dim % 4 == 0 && a.ld % 8 == 0 && aligned16((u64)a.table | (u64)a.x))
        embed_row(&a, 1);
    else
        embed_row(&a, 0);
}
