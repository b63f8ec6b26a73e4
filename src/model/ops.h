/* ops.h - the arithmetic between the matrix products, one row at a time.
 *
 * Promise P1: every function reads one row and writes one row, in a fixed order of
 * operations; so a row's bits depend on that row alone. They are even the same on
 * every instruction set: sums run in 16 interleaved lanes that are added in one
 * order, and products are not fused. Rows may be done by different threads. */
#ifndef MODEL_OPS_H
#define MODEL_OPS_H

#include "model/config.h"

typedef struct model_ops {
    const char *name; /* "avx512", "avx2", "portable" */

    /* out = x / sqrt(mean(x^2) + eps) * weight. out may be x. */
    void (*rms_norm)(float *out, const float *x, const float *weight, uint32_t n, float eps);

    /* gate = silu(gate) * up, with silu(g) = g / (1 + e^-g). */
    void (*swiglu)(float *gate, const float *up, uint32_t n);

    /* gate = gelu(gate) * up, with gelu(g) = g / 2 (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))). */
    void (*geglu)(float *gate, const float *up, uint32_t n);

    /* gate = g sigmoid(1.702 g) (u + 1), g = min(gate, 7) and u = up, cut to -7..7. */
    void (*swiglu_clamped)(float *gate, const float *up, uint32_t n);

    /* x = cap * tanh(x / cap), cap > 0; within 1e-6 of cap. */
    void (*cap)(float *x, uint32_t n, float cap);

    /* x += y */
    void (*add)(float *x, const float *y, uint32_t n);

    /* x += a * y */
    void (*add_scaled)(float *x, const float *y, float a, uint32_t n);

    /* out = e^x, within 2 units in the last place for |x| < 87; clamped outside. */
    void (*exps)(float *out, const float *x, uint32_t n);

    /* x *= y */
    void (*mul)(float *x, const float *y, uint32_t n);

    float (*dot)(const float *x, const float *y, uint32_t n);

    /* x = x / (1 + e^-x) */
    void (*silu)(float *x, uint32_t n);

    /* out = 1 / (1 + e^-x) */
    void (*sigmoids)(float *out, const float *x, uint32_t n);

    /* x = max(x, 0)^2 */
    void (*relu2)(float *x, uint32_t n);

    /* x = ln(1 + e^x), within 4 units in the last place. */
    void (*softplus)(float *x, uint32_t n);

    /* out[i] = bias[i] + sum over taps of rows[tap][i] * weight[tap * n + i], in their order;
     * bias NULL: 0. */
    void (*convolve)(float *out, const float *const *rows, const float *weight, const float *bias,
                     uint32_t taps, uint32_t n);

    /* The largest x that is not NaN; -INFINITY when there is none. */
    float (*max)(const float *x, uint32_t n);

    /* out = (x - max) / temperature, and 0 where x is max, also an infinite one. */
    void (*scale_logits)(float *out, const float *x, float max, float temperature, uint32_t n);

    /* x[i] for each i < n whose bit is set, bit i % 32 of bits[i / 32], one behind the other in
     * out[n], of which any may be written. Returns how many. */
    uint32_t (*pick)(float *out, const float *x, const uint32_t *bits, uint32_t n);

    /* Rotates the first rope_dim elements of a head in place; table from rope_fill in rope.h. */
    void (*rope)(rope_kind kind, float *head, const float *table, uint32_t rope_dim);
} model_ops;

/* The kernels of "avx512", "avx2", "portable", or NULL for the best that this CPU has.
 * NULL when the CPU lacks it or the name is unknown. */
const model_ops *model_ops_find(const char *isa);

#endif
