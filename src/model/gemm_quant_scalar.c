/* gemm_quant_scalar.c - the quantised kernels in plain C: any CPU, and the judge of the
 * others. gemm_quant.h draws the layouts and the chain. */
#include "gguf/quant.h"
#include "model/gemm_kernels.h"

#include <math.h>

/* The low and the high four bits of each byte of a word, as words. */
static uint32_t low(uint32_t word)
{
    return word & 0x0f0f0f0f;
}
static uint32_t high(uint32_t word)
{
    return word >> 4 & 0x0f0f0f0f;
}

static int32_t dot4(uint32_t w, const int8_t *x)
{
    int32_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (int32_t)(w >> 8 * i & 255) * x[i];
    return sum;
}

static int32_t dot_q8(const uint32_t q[8][GEMM_PANEL], uint32_t j, const gemm_xblock *x)
{
    int32_t sum = x->start;
    for (int g = 0; g < 8; g++)
        sum += dot4(q[g][j], x->q + 4 * g);
    return sum;
}

static int32_t dot_q4(const uint32_t q[4][GEMM_PANEL], uint32_t j, const gemm_xblock *x)
{
    int32_t sum = 0;
    for (int g = 0; g < 4; g++)
        sum += dot4(low(q[g][j]), x->q + 4 * g) + dot4(high(q[g][j]), x->q + 16 + 4 * g);
    return sum;
}

static int32_t dot_codes(const uint32_t q[4][GEMM_PANEL], uint32_t j, const gemm_xblock *x,
                         const int8_t codes[16])
{
    int32_t sum = 0;
    for (int i = 0; i < GEMM_XBLOCK; i++) {
        const uint32_t word = i < 16 ? low(q[i / 4][j]) : high(q[i / 4 - 4][j]);
        sum += codes[word >> i % 4 * 8 & 15] * x->q[i];
    }
    return sum;
}

/* Bit g of each byte of `fifth` is the fifth bit of k = 4g..4g+3: the sum of these alone. */
static int32_t dot_fifth(uint32_t fifth, const gemm_xblock *x)
{
    int32_t sum = 0;
    for (int g = 0; g < 8; g++)
        sum += dot4((fifth >> g & 0x01010101) << 4, x->q + 4 * g);
    return sum;
}

/* Half a group of q6_K. */
static int32_t dot_q6(const uint32_t q[3][GEMM_PANEL], uint32_t j, int half, const gemm_xblock *x)
{
    int32_t sum = gemm_start_q6_k(x, half);
    uint32_t last = 0;
    for (int g = 0; g < 3; g++) {
        sum += dot4(q[g][j] & 0x3f3f3f3f, x->q + 16 * half + 4 * g);
        last |= (q[g][j] >> 6 & 0x03030303) << 2 * g;
    }
    return sum + dot4(last, x->q + 16 * half + 12);
}

/* Half a group of q2_K, and of q3_K without its third bits. */
static int32_t dot_q2(uint32_t word, int half, const gemm_xblock *x)
{
    int32_t sum = 0;
    for (int g = 0; g < 4; g++)
        sum += dot4(word >> 2 * g & 0x03030303, x->q + 16 * half + 4 * g);
    return sum;
}

static int32_t dot_q3(uint32_t word, uint32_t third, int half, const gemm_xblock *x)
{
    int32_t sum = gemm_start_q3_k(x, half) + dot_q2(word, half, x);
    for (int g = 0; g < 4; g++)
        sum += dot4((third >> (4 * half + g) & 0x01010101) << 2, x->q + 16 * half + 4 * g);
    return sum;
}

/* One output of a tile: `s` counts steps. */
static float chain_q8_0(const gemm_tile *t, const gemm_xblock *x, uint32_t j, float acc)
{
    const gemm_q8_0_step *w = t->w;
    for (uint32_t s = 0; s < t->depth; s++)
        acc = fmaf((float)dot_q8(w[s].q, j, x + s), f16_to_f32(w[s].d[j]) * x[s].d, acc);
    return acc;
}

static float chain_q4_0(const gemm_tile *t, const gemm_xblock *x, uint32_t j, float acc)
{
    const gemm_q4_0_step *w = t->w;
    for (uint32_t s = 0; s < t->depth; s++)
        acc = fmaf((float)(gemm_start_q4_0(x + s) + dot_q4(w[s].q, j, x + s)),
                   f16_to_f32(w[s].d[j]) * x[s].d, acc);
    return acc;
}

static float chain_q4_1(const gemm_tile *t, const gemm_xblock *x, uint32_t j, float acc)
{
    const gemm_q4_1_step *w = t->w;
    for (uint32_t s = 0; s < t->depth; s++) {
        acc = fmaf((float)dot_q4(w[s].q, j, x + s), f16_to_f32(w[s].d[j]) * x[s].d, acc);
        acc = fmaf(f16_to_f32(w[s].m[j]), x[s].sum, acc);
    }
    return acc;
}

static float chain_q5_0(const gemm_tile *t, const gemm_xblock *x, uint32_t j, float acc)
{
    const gemm_q5_0_step *w = t->w;
    for (uint32_t s = 0; s < t->depth; s++) {
        int32_t sum = gemm_start_q5_0(x + s) + dot_q4(w[s].q, j, x + s);
        sum += dot_fifth(w[s].fifth[j], x + s);
        acc = fmaf((float)sum, f16_to_f32(w[s].d[j]) * x[s].d, acc);
    }
    return acc;
}

static float chain_q5_1(const gemm_tile *t, const gemm_xblock *x, uint32_t j, float acc)
{
    const gemm_q5_1_step *w = t->w;
    for (uint32_t s = 0; s < t->depth; s++) {
        int32_t sum = dot_q4(w[s].q, j, x + s) + dot_fifth(w[s].fifth[j], x + s);
        acc = fmaf((float)sum, f16_to_f32(w[s].d[j]) * x[s].d, acc);
        acc = fmaf(f16_to_f32(w[s].m[j]), x[s].sum, acc);
    }
    return acc;
}

static float chain_mxfp4(const gemm_tile *t, const gemm_xblock *x, uint32_t j, float acc)
{
    const gemm_mxfp4_step *w = t->w;
    for (uint32_t s = 0; s < t->depth; s++)
        acc = fmaf((float)dot_codes(w[s].q, j, x + s, ggml_mxfp4_codes),
                   ggml_mxfp4_scale(w[s].e[j]) * x[s].d, acc);
    return acc;
}

static float chain_iq4_nl(const gemm_tile *t, const gemm_xblock *x, uint32_t j, float acc)
{
    const gemm_iq4_nl_step *w = t->w;
    for (uint32_t s = 0; s < t->depth; s++)
        acc = fmaf((float)dot_codes(w[s].q, j, x + s, ggml_iq4_codes),
                   f16_to_f32(w[s].d[j]) * x[s].d, acc);
    return acc;
}

static float chain_iq4_xs(const gemm_tile *t, const gemm_xblock *x, uint32_t j, float acc)
{
    const gemm_iq4_xs_step *w = t->w;
    for (uint32_t s = 0; s < t->depth; s++)
        for (int g = 0; g < GEMM_K_GROUPS; g++, x++) {
            float d = f16_to_f32(w[s].d[j]) * (float)w[s].group[g].scale[j];
            int32_t sum = dot_codes(w[s].group[g].q, j, x, ggml_iq4_codes);
            acc = fmaf((float)sum, d * x->d, acc);
        }
    return acc;
}

static float chain_q2_k(const gemm_tile *t, const gemm_xblock *x, uint32_t j, float acc)
{
    const gemm_q2_k_step *w = t->w;
    for (uint32_t s = 0; s < t->depth; s++)
        for (int g = 0; g < GEMM_K_GROUPS; g++, x++)
            for (int half = 0; half < 2; half++) {
                uint8_t scale = w[s].group[g].scale[half][j];
                float d = f16_to_f32(w[s].d[j]) * (float)(scale & 15);
                float min = f16_to_f32(w[s].dmin[j]) * (float)(scale >> 4);
                acc = fmaf((float)dot_q2(w[s].group[g].low[half][j], half, x), d * x->d, acc);
                acc = fmaf(-min, gemm_half_sum(x, half), acc);
            }
    return acc;
}

static float chain_q3_k(const gemm_tile *t, const gemm_xblock *x, uint32_t j, float acc)
{
    const gemm_q3_k_step *w = t->w;
    for (uint32_t s = 0; s < t->depth; s++)
        for (int g = 0; g < GEMM_K_GROUPS; g++, x++)
            for (int half = 0; half < 2; half++) {
                float d = f16_to_f32(w[s].d[j]) * (float)w[s].group[g].scale[half][j];
                int32_t sum = dot_q3(w[s].group[g].low[half][j], w[s].group[g].third[j], half, x);
                acc = fmaf((float)sum, d * x->d, acc);
            }
    return acc;
}

static float chain_q4_k(const gemm_tile *t, const gemm_xblock *x, uint32_t j, float acc)
{
    const gemm_q4_k_step *w = t->w;
    for (uint32_t s = 0; s < t->depth; s++)
        for (int g = 0; g < GEMM_K_GROUPS; g++, x++) {
            float d = f16_to_f32(w[s].d[j]) * (float)w[s].group[g].scale[j];
            float min = f16_to_f32(w[s].dmin[j]) * (float)w[s].group[g].min[j];
            acc = fmaf((float)dot_q4(w[s].group[g].q, j, x), d * x->d, acc);
            acc = fmaf(-min, x->sum, acc);
        }
    return acc;
}

static float chain_q5_k(const gemm_tile *t, const gemm_xblock *x, uint32_t j, float acc)
{
    const gemm_q5_k_step *w = t->w;
    for (uint32_t s = 0; s < t->depth; s++)
        for (int g = 0; g < GEMM_K_GROUPS; g++, x++) {
            float d = f16_to_f32(w[s].d[j]) * (float)w[s].group[g].scale[j];
            float min = f16_to_f32(w[s].dmin[j]) * (float)w[s].group[g].min[j];
            int32_t sum = dot_q4(w[s].group[g].q, j, x) + dot_fifth(w[s].group[g].fifth[j], x);
            acc = fmaf((float)sum, d * x->d, acc);
            acc = fmaf(-min, x->sum, acc);
        }
    return acc;
}

static float chain_q6_k(const gemm_tile *t, const gemm_xblock *x, uint32_t j, float acc)
{
    const gemm_q6_k_step *w = t->w;
    for (uint32_t s = 0; s < t->depth; s++)
        for (int g = 0; g < GEMM_K_GROUPS; g++, x++)
            for (int half = 0; half < 2; half++) {
                float d = f16_to_f32(w[s].d[j]) * (float)w[s].group[g].scale[half][j];
                int32_t sum = dot_q6(w[s].group[g].q[half], j, half, x);
                acc = fmaf((float)sum, d * x->d, acc);
            }
    return acc;
}

static void tile(const gemm_tile *t,
                 float (*chain)(const gemm_tile *, const gemm_xblock *, uint32_t, float))
{
    for (uint32_t r = 0; r < t->rows; r++) {
        const gemm_xblock *x = (const gemm_xblock *)t->x + r * t->ldx;
        float *c = t->c + r * t->ldc;
        for (uint32_t j = 0; j < GEMM_PANEL; j++)
            c[j] = chain(t, x, j, t->fresh ? 0 : c[j]);
    }
}

#define KERNEL(name)                                                                               \
    static void scalar_##name(const gemm_tile *t)                                                  \
    {                                                                                              \
        tile(t, chain_##name);                                                                     \
    }

GEMM_EACH_QUANT(KERNEL)

#define FIELD(name) .name = scalar_##name,

const gemm_quant_isa gemm_quant_scalar = {.round_row = gemm_round_to_blocks,
                                          GEMM_EACH_QUANT(FIELD)};
