/* attn_cpu_scalar.c - the kernels with vectors of one lane: any CPU. fmaf rounds once,
 * as the vector instructions do. */
#include "attn/attn_kernels.h"

#include <math.h>

enum { W = 1, TILE_VECTORS = 4, MOST_VECTORS = TILE_VECTORS };
#define VECTORS_OF(rows) TILE_VECTORS
typedef float vf;

#define HELPER static inline __attribute__((always_inline, unused))

HELPER vf vf_load(const float *p)
{
    return *p;
}
HELPER vf vf_load_bf16(const uint16_t *p)
{
    return bf16_to_f32(*p);
}
HELPER void vf_store(float *p, vf v)
{
    *p = v;
}
/* With one lane there is never a part of a vector. */
HELPER vf vf_load_n(const float *p, uint32_t n)
{
    return n ? *p : 0;
}
HELPER vf vf_load_bf16_n(const uint16_t *p, uint32_t n)
{
    return n ? bf16_to_f32(*p) : 0;
}
HELPER void vf_store_n(float *p, vf v, uint32_t n)
{
    if (n) *p = v;
}
HELPER void vf_load_bf16_pairs(const uint16_t *p, vf *even, vf *odd)
{
    *even = bf16_to_f32(p[0]);
    *odd = bf16_to_f32(p[1]);
}
HELPER void vf_split(vf *a, vf *b)
{
    (void)a, (void)b;
} /* one lane each: in order already */
HELPER void vf_join(vf *a, vf *b)
{
    (void)a, (void)b;
}
HELPER vf vf_set1(float x)
{
    return x;
}
HELPER vf vf_add(vf a, vf b)
{
    return a + b;
}
HELPER vf vf_sub(vf a, vf b)
{
    return a - b;
}
HELPER vf vf_mul(vf a, vf b)
{
    return a * b;
}
HELPER vf vf_div(vf a, vf b)
{
    return a / b;
}
HELPER vf vf_max(vf a, vf b)
{
    return a > b ? a : b;
} /* as MAXPS: b when one is NaN */
HELPER vf vf_fma(vf a, vf b, vf c)
{
    return fmaf(a, b, c);
}
HELPER vf vf_abs(vf a)
{
    return fabsf(a);
}
HELPER vf vf_with_sign(vf a, vf b)
{
    return copysignf(a, b);
}
HELPER vf vf_zero_below(vf x, vf limit, vf y)
{
    return x < limit ? 0 : y;
}
HELPER vf vf_exp2_of_magic(vf t)
{
    uint32_t bits;
    memcpy(&bits, &t, sizeof bits);
    bits = (bits + 127) << 23;
    memcpy(&t, &bits, sizeof bits);
    return t;
}
HELPER vf vf_keep(vf v, vf other, uint32_t from, uint32_t begin, uint32_t end)
{
    return begin <= from && from < end ? v : other;
}
HELPER float vf_fold_vf_add(vf v)
{
    return v;
}
HELPER float vf_fold_vf_max(vf v)
{
    return v;
}

static void load_keys_f32(const attn_rows_at *keys, uint32_t dim, void *to, attn_ahead *ahead)
{
    float *kt = to;
    (void)ahead; /* arithmetic is what takes time here */
    for (uint32_t j = 0; j < ATTN_BLOCK; j++) {
        const float *key = (const float *)attn_row_at(keys, j);
        for (uint32_t d = 0; d < dim; d++)
            kt[(size_t)d * ATTN_BLOCK + j] = key[d];
    }
}

static void load_keys_bf16(const attn_rows_at *keys, uint32_t dim, void *to, attn_ahead *ahead)
{
    float *kt = to;
    (void)ahead; /* arithmetic is what takes time here */
    for (uint32_t j = 0; j < ATTN_BLOCK; j++) {
        const uint16_t *key = (const uint16_t *)attn_row_at(keys, j);
        for (uint32_t d = 0; d < dim; d++)
            kt[(size_t)d * ATTN_BLOCK + j] = bf16_to_f32(key[d]);
    }
}

#include "attn/attn_kernels_body.h"

const attn_isa attn_isa_scalar = ATTN_ISA;
