/* gemm_quant.c - blocks of a GGUF file into panels, and rows back out of them.
 *
 * A block's words go to places GEMM_PANEL words apart; 16 rows are packed together, so each
 * line of the panel is written once and whole. */
#include "model/gemm_quant.h"

#include "gguf/quant.h"

#include <assert.h>

static_assert(sizeof(gemm_xblock) == 48, "");
static_assert(sizeof(gemm_q8_0_step) == 34 * GEMM_PANEL, "");
static_assert(sizeof(gemm_q4_0_step) == 18 * GEMM_PANEL, "");
static_assert(sizeof(gemm_q4_1_step) == 20 * GEMM_PANEL, "");
static_assert(sizeof(gemm_q5_0_step) == 22 * GEMM_PANEL, "");
static_assert(sizeof(gemm_q5_1_step) == 24 * GEMM_PANEL, "");
static_assert(sizeof(gemm_mxfp4_step) == 17 * GEMM_PANEL, "");
static_assert(sizeof(gemm_q2_k_step) == 84 * GEMM_PANEL, "");
static_assert(sizeof(gemm_q3_k_step) == 114 * GEMM_PANEL, "");
static_assert(sizeof(gemm_q4_k_step) == 148 * GEMM_PANEL, "");
static_assert(sizeof(gemm_q5_k_step) == 180 * GEMM_PANEL, "");
static_assert(sizeof(gemm_q6_k_step) == 210 * GEMM_PANEL, "");
static_assert(sizeof(gemm_iq4_xs_step) == 138 * GEMM_PANEL, "");

static uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t load_word(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

static void pack_q8_0(gemm_q8_0_step *step, uint32_t row, const uint8_t *block)
{
    step->d[row] = load_u16(block);
    for (int g = 0; g < 8; g++)
        step->q[g][row] = load_word(block + 2 + 4 * g) ^ 0x80808080;
}

/* 16 bytes of nibbles: k = i in the low halves, k = i + 16 in the high ones. */
static void pack_words(uint32_t q[4][GEMM_PANEL], uint32_t row, const uint8_t *qs)
{
    for (int g = 0; g < 4; g++)
        q[g][row] = load_word(qs + 4 * g);
}

static void pack_q4_0(gemm_q4_0_step *step, uint32_t row, const uint8_t *block)
{
    step->d[row] = load_u16(block);
    pack_words(step->q, row, block + 2);
}

static void pack_q4_1(gemm_q4_1_step *step, uint32_t row, const uint8_t *block)
{
    step->d[row] = load_u16(block);
    step->m[row] = load_u16(block + 2);
    pack_words(step->q, row, block + 4);
}

/* In the file bit i of qh is the fifth bit of k = i. */
static uint32_t fifth_bits(const uint8_t *qh)
{
    uint32_t bits = load_word(qh), fifth = 0;
    for (int k = 0; k < GEMM_XBLOCK; k++)
        fifth |= (bits >> k & 1) << (k % 4 * 8 + k / 4);
    return fifth;
}

static void pack_q5_0(gemm_q5_0_step *step, uint32_t row, const uint8_t *block)
{
    step->d[row] = load_u16(block);
    step->fifth[row] = fifth_bits(block + 2);
    pack_words(step->q, row, block + 6);
}

static void pack_q5_1(gemm_q5_1_step *step, uint32_t row, const uint8_t *block)
{
    step->d[row] = load_u16(block);
    step->m[row] = load_u16(block + 2);
    step->fifth[row] = fifth_bits(block + 4);
    pack_words(step->q, row, block + 8);
}

static void pack_mxfp4(gemm_mxfp4_step *step, uint32_t row, const uint8_t *block)
{
    step->e[row] = block[0];
    pack_words(step->q, row, block + 1);
}

static void pack_iq4_nl(gemm_iq4_nl_step *step, uint32_t row, const uint8_t *block)
{
    pack_q4_0(step, row, block);
}

static void pack_iq4_xs(gemm_iq4_xs_step *step, uint32_t row, const uint8_t *block)
{
    int8_t scales[GEMM_K_GROUPS];
    ggml_iq4_xs_scales(block + 2, scales);
    step->d[row] = load_u16(block);
    for (int j = 0; j < GEMM_K_GROUPS; j++) {
        step->group[j].scale[row] = scales[j];
        pack_words(step->group[j].q, row, block + 8 + 16 * j);
    }
}

/* In the file a group is one half of 32 bytes, k = i; here it has 16 bytes of its own, k = i
 * in the low and k = i + 16 in the high halves. `down` is 0 for the low half in the file, 4 for
 * the high one. */
static void pack_nibbles(uint32_t q[4][GEMM_PANEL], uint32_t row, const uint8_t *qs, int down)
{
    for (int g = 0; g < 4; g++) {
        uint32_t low = load_word(qs + 4 * g) >> down & 0x0f0f0f0f;
        uint32_t high = load_word(qs + 16 + 4 * g) >> down & 0x0f0f0f0f;
        q[g][row] = low | high << 4;
    }
}

static void pack_q4_k(gemm_q4_k_step *step, uint32_t row, const uint8_t *block)
{
    uint8_t scales[GEMM_K_GROUPS], mins[GEMM_K_GROUPS];
    ggml_k_scales(block + 4, scales, mins);
    step->d[row] = load_u16(block);
    step->dmin[row] = load_u16(block + 2);
    for (int j = 0; j < GEMM_K_GROUPS; j++) {
        step->group[j].scale[row] = scales[j];
        step->group[j].min[row] = mins[j];
        pack_nibbles(step->group[j].q, row, block + 16 + j / 2 * 32, j % 2 * 4);
    }
}

/* In the file bit j of byte i of `bits` belongs to k = i of group j. */
static uint32_t bits_of_group(const uint8_t *bits, int j)
{
    uint32_t of = 0;
    for (int g = 0; g < 8; g++)
        of |= (load_word(bits + 4 * g) >> j & 0x01010101) << g;
    return of;
}

static void pack_q5_k(gemm_q5_k_step *step, uint32_t row, const uint8_t *block)
{
    uint8_t scales[GEMM_K_GROUPS], mins[GEMM_K_GROUPS];
    ggml_k_scales(block + 4, scales, mins);
    step->d[row] = load_u16(block);
    step->dmin[row] = load_u16(block + 2);
    for (int j = 0; j < GEMM_K_GROUPS; j++) {
        step->group[j].scale[row] = scales[j];
        step->group[j].min[row] = mins[j];
        step->group[j].fifth[row] = bits_of_group(block + 16, j);
        pack_nibbles(step->group[j].q, row, block + 48 + j / 2 * 32, j % 2 * 4);
    }
}

/* In the file four groups share 64 bytes of nibbles (two the low halves, two the high ones) and
 * 32 bytes of upper bits, two bits each. */
static void pack_q6_k(gemm_q6_k_step *step, uint32_t row, const uint8_t *block)
{
    step->d[row] = load_u16(block + 208);
    for (int j = 0; j < GEMM_K_GROUPS; j++)
        for (int half = 0; half < 2; half++) {
            const uint8_t *ql = block + j / 4 * 64 + j % 2 * 32 + half * 16;
            const uint8_t *qh = block + 128 + j / 4 * 32 + half * 16;
            uint32_t q[4]; /* four k each, six bits a byte */
            for (int g = 0; g < 4; g++)
                q[g] = (load_word(ql + 4 * g) >> j % 4 / 2 * 4 & 0x0f0f0f0f) |
                       (load_word(qh + 4 * g) >> j % 4 * 2 & 0x03030303) << 4;
            step->group[j].scale[half][row] = (int8_t)block[192 + 2 * j + half];
            for (int g = 0; g < 3; g++)
                step->group[j].q[half][g][row] = q[g] | (q[3] >> 2 * g & 0x03030303) << 6;
        }
}

/* In the file four groups share 32 bytes, two bits of each byte a group's. */
static void pack_two_bits(uint32_t low[2][GEMM_PANEL], uint32_t row, const uint8_t *qs, int j)
{
    for (int half = 0; half < 2; half++) {
        uint32_t word = 0;
        for (int g = 0; g < 4; g++)
            word |= (load_word(qs + j / 4 * 32 + half * 16 + 4 * g) >> j % 4 * 2 & 0x03030303)
                    << 2 * g;
        low[half][row] = word;
    }
}

static void pack_q3_k(gemm_q3_k_step *step, uint32_t row, const uint8_t *block)
{
    int8_t scales[2 * GEMM_K_GROUPS];
    ggml_q3_k_scales(block + 96, scales);
    step->d[row] = load_u16(block + 108);
    for (int j = 0; j < GEMM_K_GROUPS; j++) {
        step->group[j].scale[0][row] = scales[2 * j];
        step->group[j].scale[1][row] = scales[2 * j + 1];
        step->group[j].third[row] = bits_of_group(block, j);
        pack_two_bits(step->group[j].low, row, block + 32, j);
    }
}

static void pack_q2_k(gemm_q2_k_step *step, uint32_t row, const uint8_t *block)
{
    step->d[row] = load_u16(block + 80);
    step->dmin[row] = load_u16(block + 82);
    for (int j = 0; j < GEMM_K_GROUPS; j++) {
        step->group[j].scale[0][row] = block[2 * j];
        step->group[j].scale[1][row] = block[2 * j + 1];
        pack_two_bits(step->group[j].low, row, block + 16, j);
    }
}

void gemm_quant_round_block(const float *x, uint32_t n, uint8_t block[2 + GEMM_XBLOCK])
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = RAD_MAX(most, f32_bits(x[i]) & 0x7fffffff);
    uint16_t d = most < 0x7f800000 ? f16_from_f32(f32_of_bits(most) / 127) : 0x7e00;
    float scale = f16_to_f32(d);
    memset(block, 0, 2 + GEMM_XBLOCK);
    block[0] = (uint8_t)d;
    block[1] = (uint8_t)(d >> 8);
    for (uint32_t i = 0; i < n && scale > 0; i++) {
        float q = RAD_MIN(RAD_MAX(x[i] / scale, -127.0f), 127.0f);
        block[2 + i] = (uint8_t)(int8_t)(f32_bits(q + 0x1.8p23f) - 0x4b400000);
    }
}

void gemm_quant_round_row(void *panel, uint32_t row, uint32_t k, const float *x)
{
    for (gemm_q8_0_step *step = panel; k; step++) {
        uint32_t n = RAD_MIN(k, (uint32_t)GEMM_XBLOCK);
        uint8_t block[2 + GEMM_XBLOCK];
        gemm_quant_round_block(x, n, block);
        pack_q8_0(step, row, block);
        x += n, k -= n;
    }
}

static int nibble(uint32_t word, uint32_t i) /* i < 8: the low halves, then the high ones */
{
    return word >> (i % 4 * 8 + i / 4 * 4) & 15;
}

/* The words of a group of 32 nibbles hold k and k + 16. */
static int q4_at(const uint32_t q[4][GEMM_PANEL], uint32_t row, uint32_t i)
{
    return nibble(q[i % 16 / 4][row], i % 4 + i / 16 * 4);
}

static float q8_0_at(const gemm_q8_0_step *s, uint32_t row, uint32_t i)
{
    int q = (int)(s->q[i / 4][row] >> (i % 4 * 8) & 255) - GEMM_Q8_0_OFFSET;
    return f16_to_f32(s->d[row]) * (float)q;
}

static float q4_0_at(const gemm_q4_0_step *s, uint32_t row, uint32_t i)
{
    return f16_to_f32(s->d[row]) * (float)(q4_at(s->q, row, i) - GEMM_Q4_0_OFFSET);
}

static float q4_1_at(const gemm_q4_1_step *s, uint32_t row, uint32_t i)
{
    return f16_to_f32(s->d[row]) * (float)q4_at(s->q, row, i) + f16_to_f32(s->m[row]);
}

/* A bit of each k in one word, byte b: k = b, 4 + b, ... */
static int bit_at(const uint32_t bits[GEMM_PANEL], uint32_t row, uint32_t i)
{
    return bits[row] >> (i % 4 * 8 + i / 4) & 1;
}

static float q5_0_at(const gemm_q5_0_step *s, uint32_t row, uint32_t i)
{
    int q = q4_at(s->q, row, i) + 16 * bit_at(s->fifth, row, i);
    return f16_to_f32(s->d[row]) * (float)(q - GEMM_Q5_0_OFFSET);
}

static float q5_1_at(const gemm_q5_1_step *s, uint32_t row, uint32_t i)
{
    int q = q4_at(s->q, row, i) + 16 * bit_at(s->fifth, row, i);
    return f16_to_f32(s->d[row]) * (float)q + f16_to_f32(s->m[row]);
}

static float mxfp4_at(const gemm_mxfp4_step *s, uint32_t row, uint32_t i)
{
    return ggml_mxfp4_scale(s->e[row]) * (float)ggml_mxfp4_codes[q4_at(s->q, row, i)];
}

static float iq4_nl_at(const gemm_iq4_nl_step *s, uint32_t row, uint32_t i)
{
    return f16_to_f32(s->d[row]) * (float)ggml_iq4_codes[q4_at(s->q, row, i)];
}

static float iq4_xs_at(const gemm_iq4_xs_step *s, uint32_t row, uint32_t i)
{
    uint32_t j = i / GEMM_XBLOCK;
    float d = f16_to_f32(s->d[row]) * (float)s->group[j].scale[row];
    return d * (float)ggml_iq4_codes[q4_at(s->group[j].q, row, i % GEMM_XBLOCK)];
}

static float q4_k_at(const gemm_q4_k_step *s, uint32_t row, uint32_t i)
{
    uint32_t j = i / GEMM_XBLOCK;
    float d = f16_to_f32(s->d[row]) * (float)s->group[j].scale[row];
    float min = f16_to_f32(s->dmin[row]) * (float)s->group[j].min[row];
    return d * (float)q4_at(s->group[j].q, row, i % GEMM_XBLOCK) - min;
}

static float q5_k_at(const gemm_q5_k_step *s, uint32_t row, uint32_t i)
{
    uint32_t j = i / GEMM_XBLOCK;
    i %= GEMM_XBLOCK;
    float d = f16_to_f32(s->d[row]) * (float)s->group[j].scale[row];
    float min = f16_to_f32(s->dmin[row]) * (float)s->group[j].min[row];
    int q = q4_at(s->group[j].q, row, i) + 16 * bit_at(s->group[j].fifth, row, i);
    return d * (float)q - min;
}

static float q6_k_at(const gemm_q6_k_step *s, uint32_t row, uint32_t i)
{
    uint32_t j = i / GEMM_XBLOCK, half = i % GEMM_XBLOCK / 16, g = i % 16 / 4, q = 0;
    float d = f16_to_f32(s->d[row]) * (float)s->group[j].scale[half][row];
    for (uint32_t w = 0; w < 3; w++) {
        uint32_t byte = s->group[j].q[half][w][row] >> (i % 4 * 8) & 255;
        if (w == g) q = byte & 63;
        if (g == 3) q |= byte >> 6 << 2 * w;
    }
    return d * (float)((int)q - GEMM_Q6_K_OFFSET);
}

/* The lower two bits of k = i of a group. */
static int two_bits_at(const uint32_t low[2][GEMM_PANEL], uint32_t row, uint32_t i)
{
    return low[i / 16][row] >> (i % 4 * 8 + i % 16 / 4 * 2) & 3;
}

static float q3_k_at(const gemm_q3_k_step *s, uint32_t row, uint32_t i)
{
    uint32_t j = i / GEMM_XBLOCK;
    i %= GEMM_XBLOCK;
    float d = f16_to_f32(s->d[row]) * (float)s->group[j].scale[i / 16][row];
    int q = two_bits_at(s->group[j].low, row, i) + 4 * bit_at(s->group[j].third, row, i);
    return d * (float)(q - GEMM_Q3_K_OFFSET);
}

static float q2_k_at(const gemm_q2_k_step *s, uint32_t row, uint32_t i)
{
    uint32_t j = i / GEMM_XBLOCK;
    i %= GEMM_XBLOCK;
    uint8_t scale = s->group[j].scale[i / 16][row];
    float d = f16_to_f32(s->d[row]) * (float)(scale & 15);
    float min = f16_to_f32(s->dmin[row]) * (float)(scale >> 4);
    return d * (float)two_bits_at(s->group[j].low, row, i) - min;
}

/* Each type's loops over its steps, so that what they call is inlined: values in a step, bytes
 * of the file's block. */
#define FORMAT(name, values, bytes)                                                                \
    static void pack_rows_##name(void *panel, uint32_t row, uint32_t count, uint32_t depth,        \
                                 const uint8_t *from, size_t pitch)                                \
    {                                                                                              \
        for (uint32_t s = 0; s < depth; s++)                                                       \
            for (uint32_t r = 0; r < count; r++)                                                   \
                pack_##name((gemm_##name##_step *)panel + s, row + r,                              \
                            from + r * pitch + (size_t)s * (bytes));                               \
    }                                                                                              \
    static void get_row_##name(const void *panel, uint32_t row, uint32_t k, float *out)            \
    {                                                                                              \
        for (uint32_t i = 0; i < k; i++)                                                           \
            out[i] =                                                                               \
                name##_at((const gemm_##name##_step *)panel + i / (values), row, i % (values));    \
    }

FORMAT(q8_0, 32, 34)
FORMAT(q4_0, 32, 18)
FORMAT(q4_1, 32, 20)
FORMAT(q5_0, 32, 22)
FORMAT(q5_1, 32, 24)
FORMAT(iq4_nl, 32, 18)
FORMAT(mxfp4, 32, 17)
FORMAT(q2_k, 256, 84)
FORMAT(q3_k, 256, 110)
FORMAT(q4_k, 256, 144)
FORMAT(q5_k, 256, 176)
FORMAT(q6_k, 256, 210)
FORMAT(iq4_xs, 256, 136)

static const struct format {
    void (*pack_rows)(void *panel, uint32_t row, uint32_t count, uint32_t depth,
                      const uint8_t *from, size_t pitch);
    void (*get_row)(const void *panel, uint32_t row, uint32_t k, float *out);
} formats[GEMM_NUM_TYPES] = {
    [GEMM_Q8_0] = {pack_rows_q8_0, get_row_q8_0},
    [GEMM_Q4_0] = {pack_rows_q4_0, get_row_q4_0},
    [GEMM_Q4_1] = {pack_rows_q4_1, get_row_q4_1},
    [GEMM_Q5_0] = {pack_rows_q5_0, get_row_q5_0},
    [GEMM_Q5_1] = {pack_rows_q5_1, get_row_q5_1},
    [GEMM_IQ4_NL] = {pack_rows_iq4_nl, get_row_iq4_nl},
    [GEMM_MXFP4] = {pack_rows_mxfp4, get_row_mxfp4},
    [GEMM_Q2_K] = {pack_rows_q2_k, get_row_q2_k},
    [GEMM_Q3_K] = {pack_rows_q3_k, get_row_q3_k},
    [GEMM_Q4_K] = {pack_rows_q4_k, get_row_q4_k},
    [GEMM_Q5_K] = {pack_rows_q5_k, get_row_q5_k},
    [GEMM_Q6_K] = {pack_rows_q6_k, get_row_q6_k},
    [GEMM_IQ4_XS] = {pack_rows_iq4_xs, get_row_iq4_xs},
};

void gemm_quant_pack(gemm_type type, void *panel, uint32_t row, uint32_t count, uint32_t depth,
                     const void *from, size_t pitch)
{
    formats[type].pack_rows(panel, row, count, depth, from, pitch);
}

void gemm_quant_get_row(gemm_type type, const void *panel, uint32_t row, uint32_t k, float *out)
{
    formats[type].get_row(panel, row, k, out);
}
