/* norm.cu - what a product adds to a row, and the row's norm, rounded for the next product; and the
 * norms over all heads of q and k, of which this is the sum alone (row_scales).
 *
 * One block a row. A thread has 4 neighbouring numbers in each round of 4 * threads; how many
 * threads follows from dim alone (add_norm_threads). Order of the sum of squares:
 *
 *     round   s = s + ((a a + b b) + (c c + d d))      of its numbers a, b, c, d
 *     warp    lanes 16 apart, then 8, 4, 2, 1
 *     block   warps 0 and 1, 2 and 3, ...; then these pairs' sums likewise
 *
 * All that a row needs is on its way before anything waits: weights, which no kernel writes, even
 * before the kernels in front are done.
 *
 * Where what is added has a norm of its own (add_norm_post), its sum of squares comes first, in the
 * same order: one more wait of the block. */
#define ONE_FORM
#include "cuda/kernels/kernel_args.h"
#include "cuda/kernels/vectors.h"
#include "device/kernels/dialect.h"

enum { WARPS = ADD_NORM_THREADS / 32 }; /* of ROW_SCALES_THREADS, too */

INLINE float block_sum(float s, float *warp_sums /* [WARPS] */, u32 warps)
{
    UNROLL
    for (u32 apart = 16; apart; apart /= 2)
        s += shuffle_xor(s, apart);
    if (LANE == 0) warp_sums[WARP] = s;
    SYNC_BLOCK();
    float sums[WARPS];
    UNROLL
    for (u32 w = 0; w < WARPS; w++)
        sums[w] = w < warps ? warp_sums[w] : 0.0f;
    UNROLL
    for (int n = WARPS / 2; n; n /= 2) {
        UNROLL
        for (int w = 0; w < WARPS / 2; w++)
            if (w < n) sums[w] = sums[2 * w] + sums[2 * w + 1];
    }
    return sums[0];
}

INLINE float squares_of(const float v[4])
{
    return (v[0] * v[0] + v[1] * v[1]) + (v[2] * v[2] + v[3] * v[3]);
}

/* What a row of n numbers is multiplied by: of the block's sums of squares. */
INLINE float rms_factor(float squares, float *warp_sums, u32 threads, u32 n, float eps)
{
    const float mean = divide(block_sum(squares, warp_sums, threads / 32), (float)n);
    return divide(1.0f, square_root(mean + eps));
}

/* Sums of parts, for two rounds at most: of all of them at_once parts are on their way together. */
INLINE void add_rounds(float sum[2][4], const float *y, u64 to_next, u32 parts, const int rounds,
                       const int at_once, u32 first, u32 step, u32 n, const int whole)
{
    UNROLL
    for (int i = 0; i < rounds; i++)
        if (first + i * step < n) read4(sum[i], y, first + i * step, n, whole);
    ROLLED
    for (u32 p = 1; p < parts; p += (u32)at_once) {
        float part[7][2][4];
        UNROLL
        for (int k = 0; k < at_once; k++) {
            UNROLL
            for (int i = 0; i < rounds; i++)
                if (p + k < parts && first + i * step < n)
                    read4(part[k][i], y + (p + k) * to_next, first + i * step, n, whole);
        }
        UNROLL
        for (int k = 0; k < at_once; k++) {
            UNROLL
            for (int i = 0; i < rounds; i++)
                if (p + k < parts && first + i * step < n) add4(sum[i], part[k][i]);
        }
    }
}
INLINE void add_scaled(const add_norm_args *a, float v[4], const float sum[4], float *x, u32 at,
                       const int whole)
{
    UNROLL
    for (int e = 0; e < 4; e++)
        v[e] += a->scale * sum[e];
    if (a->store) write4(x, at, a->dim, whole, v);
}
INLINE void add_sum(const add_norm_args *a, float v[4], float sum[4], float *x, u32 at,
                    const int whole)
{
    if (a->bias) add_loaded(sum, a->bias, at, a->dim, whole);
    add_scaled(a, v, sum, x, at, whole);
}

/* v += scale * rms(sum of parts), of all rounds. Of early rounds v and weights are there already;
 * else they come when the sums are about to leave their registers. */
INLINE void add_normed(const add_norm_args *a, float v[8][4], float weight[8][4], const float *y,
                       u64 to_next, float *x, const int rounds, const int at_once, const int whole,
                       float *warp_sums)
{
    const int early = rounds <= 2;
    const u32 threads = add_norm_threads(a->dim), step = 4 * threads;
    const u32 first = 4 * THREAD_X, n = a->dim;
    float sum[8][4], squares = 0;
    if (early) add_rounds(sum, y, to_next, a->parts, rounds, at_once, first, step, n, whole);
    UNROLL
    for (int i = 0; i < rounds; i++)
        if (first + i * step < n) {
            if (!early) add_parts(sum[i], y, to_next, a->parts, first + i * step, n, whole);
            if (a->bias) add_loaded(sum[i], a->bias, first + i * step, n, whole);
            squares += squares_of(sum[i]);
        }
    const float by = rms_factor(squares, warp_sums, threads, n, a->eps);
    UNROLL
    for (int i = 0; i < rounds; i++)
        if (first + i * step < n) {
            if (!early) {
                read4(v[i], x, first + i * step, n, whole);
                load4(weight[i], a->post, first + i * step, n, whole);
            }
            UNROLL
            for (int e = 0; e < 4; e++)
                sum[i][e] = sum[i][e] * by * weight[i][e];
            add_scaled(a, v[i], sum[i], x, first + i * step, whole);
        }
}

/* Constants of the kernels: `rounds`, `at_once` (parts behind the first that are on their way
 * together), `whole`, see vectors.h, and `post`: what is added may have a norm, and the row none. A
 * row of many rounds has no registers left for weights that wait. */
INLINE void add_norm_row(const add_norm_args *a, const int rounds, const int at_once,
                         const int whole, const int post, float warp_sums[2][WARPS])
{
    const int early = rounds <= 2;
    const u32 threads = add_norm_threads(a->dim), step = 4 * threads;
    const u32 first = 4 * THREAD_X, n = a->dim, r = BLOCK_X;
    const int normed = !post || a->weight, added_normed = post && a->post && a->parts;
    float w[8][4], v[8][4], p[8][4];
    launch_next();
    const u64 t = a->rows ? a->rows[r] : r;
    UNROLL
    for (int i = 0; i < rounds; i++)
        if (early && first + i * step < n) {
            if (normed) load4(w[i], a->weight, first + i * step, n, whole);
            if (added_normed) load4(p[i], a->post, first + i * step, n, whole);
        }

    wait_previous();
    float *x = a->x + t * n;
    UNROLL
    for (int i = 0; i < rounds; i++)
        if ((early || !added_normed) && first + i * step < n)
            read4(v[i], x, first + i * step, n, whole);
    if (a->parts) {
        const float *y = a->y + t * a->ldy;
        const u64 to_next = (u64)a->y_tokens * a->ldy;
        if (added_normed) {
            add_normed(a, v, p, y, to_next, x, rounds, at_once, whole, warp_sums[1]);
        } else if (early) {
            float sum[2][4];
            add_rounds(sum, y, to_next, a->parts, rounds, at_once, first, step, n, whole);
            UNROLL
            for (int i = 0; i < rounds; i++)
                if (first + i * step < n) add_sum(a, v[i], sum[i], x, first + i * step, whole);
        } else {
            UNROLL
            for (int i = 0; i < rounds; i++)
                if (first + i * step < n) {
                    float sum[4];
                    add_parts(sum, y, to_next, a->parts, first + i * step, n, whole);
                    add_sum(a, v[i], sum, x, first + i * step, whole);
                }
        }
    }
    if (!a->out && !a->out_f32) return; /* a launch's alone: no thread waits below */

    float squares = 0, by = 1;
    UNROLL
    for (int i = 0; i < rounds; i++)
        if (normed && first + i * step < n) {
            squares += squares_of(v[i]);
            if (!early) load4(w[i], a->weight, first + i * step, n, whole);
        }
    if (normed) by = rms_factor(squares, warp_sums[0], threads, n, a->eps);
    UNROLL
    for (int i = 0; i < rounds; i++)
        if (first + i * step < n) {
            float o[4];
            UNROLL
            for (int e = 0; e < 4; e++)
                o[e] = normed ? v[i][e] * by * w[i][e] : v[i][e];
            if (a->out) write4_bf16(a->out + (u64)r * a->ld, first + i * step, n, whole, o);
            if (a->out_f32) write4(a->out_f32 + (u64)r * n, first + i * step, n, whole, o);
        }
    if (a->out)
        for (u32 at = n + THREAD_X; at < a->ld; at += threads)
            a->out[(u64)r * a->ld + at] = 0;
}

INLINE int all_whole(const add_norm_args *a)
{
    return add_norm_whole(a->dim, a->ldy, a->ld) &&
           aligned16((u64)a->x | (u64)a->y | (u64)a->bias | (u64)a->weight | (u64)a->out |
                     (u64)a->out_f32 | (u64)a->post);
}
INLINE void add_norm_few(const add_norm_args *a, const int post, float warp_sums[2][WARPS])
{
    if (!all_whole(a))
        add_norm_row(a, 2, 1, 0, post, warp_sums);
    else if (a->dim <= 4 * add_norm_threads(a->dim))
        add_norm_row(a, 1, 7, 1, post, warp_sums);
    else
        add_norm_row(a, 2, 3, 1, post, warp_sums);
}
INLINE void add_norm_long(const add_norm_args *a, const int post, float warp_sums[2][WARPS])
{
    if (all_whole(a))
        add_norm_row(a, 8, 1, 1, post, warp_sums);
    else
        add_norm_row(a, 8, 1, 0, post, warp_sums);
}

KERNEL_ALONE(add_norm, ADD_NORM_THREADS, add_norm_args)
{
    SHARED float warp_sums[2][WARPS];
    add_norm_few(&a, 0, warp_sums);
}
KERNEL_ALONE(add_norm_post, ADD_NORM_THREADS, add_norm_args)
{
    SHARED float warp_sums[2][WARPS];
    add_norm_few(&a, 1, warp_sums);
}
/* For many rows: few registers, so that more of them are on a multiprocessor. */
KERNEL(add_norm_many, ADD_NORM_THREADS, add_norm_args)
{
    SHARED float warp_sums[2][WARPS];
    add_norm_row(&a, 2, 1, 1, 0, warp_sums);
}
KERNEL(add_norm_post_many, ADD_NORM_THREADS, add_norm_args)
{
    SHARED float warp_sums[2][WARPS];
    add_norm_row(&a, 2, 1, 1, 1, warp_sums);
}
KERNEL(add_norm_wide, ADD_NORM_THREADS, add_norm_args)
{
    SHARED float warp_sums[2][WARPS];
    add_norm_long(&a, 0, warp_sums);
}
KERNEL(add_norm_post_wide, ADD_NORM_THREADS, add_norm_args)
{
    SHARED float warp_sums[2][WARPS];
    add_norm_long(&a, 1, warp_sums);
}

/* Constant: `whole`, see vectors.h. */
INLINE void row_scale(const row_scales_args *a, const int whole, float *warp_sums)
{
    launch_next();
    const u32 of_k = BLOCK_Y, n = of_k ? a->k_dim : a->q_dim, begin = of_k ? a->q_dim : 0;
    const u64 t = BLOCK_X;
    const float *y = a->y + t * a->ldy + begin;
    float squares = 0;
    wait_previous();
    ROLLED
    for (u32 at = 4 * THREAD_X; at < n; at += 4 * ROW_SCALES_THREADS) {
        float v[4];
        add_parts(v, y, (u64)a->tokens * a->ldy, a->parts, at, n, whole);
        if (a->bias) add_loaded(v, a->bias + begin, at, n, whole);
        squares += squares_of(v);
    }
    const float by = rms_factor(squares, warp_sums, ROW_SCALES_THREADS, n, a->eps);
    if (THREAD_X == 0) a->scales[2 * t + of_k] = by;
}

KERNEL(row_scales, ROW_SCALES_THREADS, row_scales_args)
{
    SHARED float warp_sums[WARPS];
    if ((a.q_dim | a.k_dim | a.ldy) % 4 == 0 && aligned16((u64)a.y | (u64)a.bias))
        row_scale(&a, 1, warp_sums);
    else
        row_scale(&a, 0, warp_sums);
}
