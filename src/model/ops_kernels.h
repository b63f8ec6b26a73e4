/* ops_kernels.h - the kernels of ops.h, written once for every instruction set.
 *
 * ops.c, ops_avx2.c and ops_avx512.c include this file and are compiled for their
 * instruction set. All of it is vectors of 16
 * floats, which the compiler splits as far as it must. Every lane does the same
 * unfused operations everywhere (the build sets -ffp-contract=off), so all tables
 * give equal bits; test_ops holds that. A row's tail is padded with zeros in a
 * vector of its own instead of being another code path with another rounding. */
#include "model/ops.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };
typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES * 4)));

static inline vec load(const float *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store(float *p, vec v)
{
    memcpy(p, &v, sizeof v);
}

static inline vec load_part(const float *p, uint32_t n)
{
    vec v = {0};
    memcpy(&v, p, n * sizeof *p);
    return v;
}

static inline void store_part(float *p, vec v, uint32_t n)
{
    memcpy(p, &v, n * sizeof *p);
}

/* Always the same tree: halves, quarters, ... */
static inline float add_lanes(vec v)
{
    float lane[LANES];
    memcpy(lane, &v, sizeof lane);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static void ops_rms_norm(float *out, const float *x, const float *weight, uint32_t n, float eps)
{
    vec sum = {0};
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vec v = load(x + i);
        sum += v * v;
    }
    if (i < n) {
        vec v = load_part(x + i, n - i);
        sum += v * v;
    }
    vec scale = (vec){0} + 1.0f / sqrtf(add_lanes(sum) / (float)n + eps);
    for (i = 0; i + LANES <= n; i += LANES)
        store(out + i, load(x + i) * scale * load(weight + i));
    if (i < n)
        store_part(out + i, load_part(x + i, n - i) * scale * load_part(weight + i, n - i), n - i);
}

static inline vec blend(ivec mask, vec yes, vec no)
{
    return (vec)((mask & (ivec)yes) | (~mask & (ivec)no));
}

/* e^x within 2 units in the last place for |x| < 87; clamped outside. x = k ln 2 + r
 * with |r| <= ln 2 / 2, then the Taylor series of e^r (the first term left out is
 * below 6e-9) times 2^k. NaN stays NaN. */
static inline vec exp_vec(vec x)
{
    const vec one = (vec){0} + 1.0f;
    vec clamped = blend(x > 87.0f, one * 87.0f, x);
    clamped = blend(clamped < -87.0f, one * -87.0f, clamped);

    const float round_magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    vec k = clamped * 1.44269504f + round_magic;
    ivec whole = (ivec)k - (ivec)(one * round_magic);
    k -= round_magic;
    vec r = clamped - k * 0.693359375f; /* few bits: the product is exact */
    r -= k * -2.12194440e-4f;           /* the rest of ln 2 */

    vec p = one * (1.0f / 5040);
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * (vec)((whole + 127) << 23);
}

static inline vec swiglu_vec(vec gate, vec up)
{
    return gate / (exp_vec(-gate) + 1.0f) * up;
}

static void ops_swiglu(float *gate, const float *up, uint32_t n)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(gate + i, swiglu_vec(load(gate + i), load(up + i)));
    if (i < n)
        store_part(gate + i, swiglu_vec(load_part(gate + i, n - i), load_part(up + i, n - i)),
                   n - i);
}

/* The tanh form of GELU is a sigmoid: (1 + tanh(u)) / 2 = 1 / (1 + e^-2u). */
static inline vec geglu_vec(vec gate, vec up)
{
    const float slope = 1.59576912f, cubic = 0.0713548163f; /* 2 sqrt(2/pi), times 0.044715 */
    vec u = gate * (gate * gate * cubic + slope);
    return gate / (exp_vec(-u) + 1.0f) * up;
}

static void ops_geglu(float *gate, const float *up, uint32_t n)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(gate + i, geglu_vec(load(gate + i), load(up + i)));
    if (i < n)
        store_part(gate + i, geglu_vec(load_part(gate + i, n - i), load_part(up + i, n - i)),
                   n - i);
}

static inline vec swiglu_clamped_vec(vec gate, vec up)
{
    const vec most = (vec){0} + 7.0f;
    gate = blend(gate > most, most, gate); /* NaN stays */
    up = blend(up > most, most, up);
    up = blend(up < -most, -most, up);
    return gate / (exp_vec(gate * -1.702f) + 1.0f) * (up + 1.0f);
}

static void ops_swiglu_clamped(float *gate, const float *up, uint32_t n)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(gate + i, swiglu_clamped_vec(load(gate + i), load(up + i)));
    if (i < n)
        store_part(gate + i,
                   swiglu_clamped_vec(load_part(gate + i, n - i), load_part(up + i, n - i)), n - i);
}

/* tanh(y) = (1 - e) / (1 + e) with e = e^-2|y|, and y's sign. Where |y| is small 1 - e has
 * few bits left; there it is the series, whose next term is below 1e-12 of y. */
static inline vec cap_vec(vec x, vec cap)
{
    const vec one = (vec){0} + 1.0f;
    const ivec sign = (ivec)(one * -0.0f);
    vec y = x / cap, y2 = y * y, size = (vec)((ivec)y & ~sign);
    vec e = exp_vec(size * -2.0f);
    vec big = (vec)((ivec)((one - e) / (one + e)) | ((ivec)y & sign));
    vec small = y2 * (62.0f / 2835) - 17.0f / 315;
    small = small * y2 + 2.0f / 15;
    small = small * y2 - 1.0f / 3;
    small = (small * y2 + 1.0f) * y;
    return blend(size < 0.1f, small, big) * cap;
}

static void ops_cap(float *x, uint32_t n, float cap)
{
    vec caps = (vec){0} + cap;
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(x + i, cap_vec(load(x + i), caps));
    if (i < n) store_part(x + i, cap_vec(load_part(x + i, n - i), caps), n - i);
}

static void ops_add(float *x, const float *y, uint32_t n)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(x + i, load(x + i) + load(y + i));
    for (; i < n; i++)
        x[i] += y[i];
}

static void ops_add_scaled(float *x, const float *y, float a, uint32_t n)
{
    const vec by = (vec){0} + a;
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(x + i, load(x + i) + load(y + i) * by);
    for (; i < n; i++)
        x[i] += y[i] * a;
}

static void ops_exps(float *out, const float *x, uint32_t n)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(out + i, exp_vec(load(x + i)));
    if (i < n) store_part(out + i, exp_vec(load_part(x + i, n - i)), n - i);
}

static void ops_mul(float *x, const float *y, uint32_t n)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(x + i, load(x + i) * load(y + i));
    for (; i < n; i++)
        x[i] *= y[i];
}

static float ops_dot(const float *x, const float *y, uint32_t n)
{
    vec sum = {0};
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        sum += load(x + i) * load(y + i);
    if (i < n) sum += load_part(x + i, n - i) * load_part(y + i, n - i);
    return add_lanes(sum);
}

static void ops_silu(float *x, uint32_t n)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(x + i, swiglu_vec(load(x + i), (vec){0} + 1.0f));
    if (i < n) store_part(x + i, swiglu_vec(load_part(x + i, n - i), (vec){0} + 1.0f), n - i);
}

static inline vec relu2_vec(vec x)
{
    vec up = blend(x < 0.0f, (vec){0}, x); /* NaN stays */
    return up * up;
}

static void ops_relu2(float *x, uint32_t n)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(x + i, relu2_vec(load(x + i)));
    if (i < n) store_part(x + i, relu2_vec(load_part(x + i, n - i)), n - i);
}

static inline vec sigmoid_vec(vec x)
{
    return 1.0f / (exp_vec(-x) + 1.0f);
}

static void ops_sigmoids(float *out, const float *x, uint32_t n)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(out + i, sigmoid_vec(load(x + i)));
    if (i < n) store_part(out + i, sigmoid_vec(load_part(x + i, n - i)), n - i);
}

/* max(x, 0) + ln(1 + y) with y = e^-|x|, and ln(1 + y) = 2 atanh(z) with z = y / (2 + y), which is
 * 1/3 at most: the first term left out of the series is below 3e-9 of it. */
static inline vec softplus_vec(vec x)
{
    const vec zero = {0};
    const ivec sign = (ivec)((zero + 1.0f) * -0.0f);
    vec y = exp_vec((vec)((ivec)x | sign));
    vec z = y / (y + 2.0f), z2 = z * z;
    vec p = zero + 1.0f / 15;
    p = p * z2 + 1.0f / 13;
    p = p * z2 + 1.0f / 11;
    p = p * z2 + 1.0f / 9;
    p = p * z2 + 1.0f / 7;
    p = p * z2 + 1.0f / 5;
    p = p * z2 + 1.0f / 3;
    p = (p * z2 + 1.0f) * z;
    return blend(x > 0.0f, x, zero) + (p + p);
}

static void ops_softplus(float *x, uint32_t n)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(x + i, softplus_vec(load(x + i)));
    if (i < n) store_part(x + i, softplus_vec(load_part(x + i, n - i)), n - i);
}

static void ops_convolve(float *out, const float *const *rows, const float *weight,
                         const float *bias, uint32_t taps, uint32_t n)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vec sum = bias ? load(bias + i) : (vec){0};
        for (uint32_t t = 0; t < taps; t++)
            sum += load(rows[t] + i) * load(weight + (size_t)t * n + i);
        store(out + i, sum);
    }
    for (; i < n; i++) {
        float sum = bias ? bias[i] : 0;
        for (uint32_t t = 0; t < taps; t++)
            sum += rows[t][i] * weight[(size_t)t * n + i];
        out[i] = sum;
    }
}

static float ops_max(const float *x, uint32_t n)
{
    vec most = (vec){0} - INFINITY;
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vec v = load(x + i);
        most = blend(v > most, v, most);
    }
    float max = -INFINITY;
    for (uint32_t lane = 0; lane < LANES; lane++)
        max = most[lane] > max ? most[lane] : max;
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

#ifndef OPS_HAS_PICK
/* Words of a mask are all, none, or a mixture whose branches nobody predicts. */
static uint32_t ops_pick(float *out, const float *x, const uint32_t *bits, uint32_t n)
{
    uint32_t count = 0, i = 0;
    for (; i + 32 <= n; i += 32) {
        const uint32_t word = bits[i / 32];
        if (word == UINT32_MAX) {
            memcpy(out + count, x + i, 32 * sizeof *x);
            count += 32;
        } else if (word) {
            for (uint32_t k = 0; k < 32; k++) {
                out[count] = x[i + k];
                count += word >> k & 1;
            }
        }
    }
    for (; i < n; i++)
        if (bits[i / 32] >> i % 32 & 1) out[count++] = x[i];
    return count;
}
#endif

static inline vec scale_logits_vec(vec x, vec max, vec temperature)
{
    return blend(x == max, (vec){0}, (x - max) / temperature);
}

static void ops_scale_logits(float *out, const float *x, float max, float temperature, uint32_t n)
{
    vec maxes = (vec){0} + max, temperatures = (vec){0} + temperature;
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(out + i, scale_logits_vec(load(x + i), maxes, temperatures));
    if (i < n)
        store_part(out + i, scale_logits_vec(load_part(x + i, n - i), maxes, temperatures), n - i);
}

/* (a, b) -> (a cos - b sin, b cos + a sin), with a in the front half. */
static void rope_neox(float *head, const float *cosine, const float *sine, uint32_t half)
{
    float *back = head + half;
    uint32_t i = 0;
    for (; i + LANES <= half; i += LANES) {
        vec a = load(head + i), b = load(back + i), c = load(cosine + i), s = load(sine + i);
        store(head + i, a * c - b * s);
        store(back + i, b * c + a * s);
    }
    for (; i < half; i++) {
        float a = head[i], b = back[i];
        head[i] = a * cosine[i] - b * sine[i];
        back[i] = b * cosine[i] + a * sine[i];
    }
}

/* The same with a and b side by side. Each cosine stands twice in its table, and each
 * sine with both signs, so that a pair is a swap, two products and a sum. */
static void rope_interleaved(float *head, const float *cosine, const float *sine, uint32_t n)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vec v = load(head + i);
        vec swapped =
            __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
        store(head + i, v * load(cosine + i) + swapped * load(sine + i));
    }
    for (; i < n; i += 2) {
        float a = head[i], b = head[i + 1];
        head[i] = a * cosine[i] + b * sine[i];
        head[i + 1] = b * cosine[i + 1] + a * sine[i + 1];
    }
}

static void ops_rope(rope_kind kind, float *head, const float *table, uint32_t rope_dim)
{
    if (kind == ROPE_NEOX)
        rope_neox(head, table, table + rope_dim, rope_dim / 2);
    else
        rope_interleaved(head, table, table + rope_dim, rope_dim);
}

#define OPS_TABLE(isa_name)                                                                        \
    {                                                                                              \
        .name = isa_name, .rms_norm = ops_rms_norm, .swiglu = ops_swiglu, .geglu = ops_geglu,      \
        .swiglu_clamped = ops_swiglu_clamped, .cap = ops_cap, .add = ops_add,                      \
        .add_scaled = ops_add_scaled, .exps = ops_exps, .max = ops_max,                            \
        .scale_logits = ops_scale_logits, .rope = ops_rope, .mul = ops_mul, .dot = ops_dot,        \
        .silu = ops_silu, .sigmoids = ops_sigmoids, .softplus = ops_softplus, .relu2 = ops_relu2,  \
        .convolve = ops_convolve, .pick = ops_pick                                                 \
    }
