/* gemm_quant.c - blocks of a GGUF file into panels, and rows back out of them.
 *
 * A block's words go to places GEMM_PANEL words apart; 16 rows are packed together, so each
 * line of the panel is written once and whole. */
#include "model/gemm_quant.h"

#include "gguf/quant.h"

#include <assert.h>

enum {
    Q8_0_BYTES = 34,
    Q4_0_BYTES = 18,
    MXFP4_BYTES = 17,
    Q4_K_BYTES = 144,
    Q5_K_BYTES = 176,
    Q6_K_BYTES = 210
};

static_assert(sizeof(gemm_xblock) == 48, "");
static_assert(sizeof(gemm_q8_0_step) == 34 * GEMM_PANEL, "");
static_assert(sizeof(gemm_q4_0_step) == 18 * GEMM_PANEL, "");
static_assert(sizeof(gemm_mxfp4_step) == 17 * GEMM_PANEL, "");
static_assert(sizeof(gemm_q4_k_step) == 148 * GEMM_PANEL, "");
static_assert(sizeof(gemm_q5_k_step) == 180 * GEMM_PANEL, "");
static_assert(sizeof(gemm_q6_k_step) == 210 * GEMM_PANEL, "");

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

static void pack_q4_0(gemm_q4_0_step *step, uint32_t row, const uint8_t *block)
{
    step->d[row] = load_u16(block);
    for (int g = 0; g < 4; g++)
        step->q[g][row] = load_word(block + 2 + 4 * g);
}

static void pack_mxfp4(gemm_mxfp4_step *step, uint32_t row, const uint8_t *block)
{
    step->e[row] = block[0];
    for (int g = 0; g < 4; g++)
        step->q[g][row] = load_word(block + 1 + 4 * g);
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

/* In the file bit j of byte i of qh is the fifth bit of k = i of group j. */
static void pack_q5_k(gemm_q5_k_step *step, uint32_t row, const uint8_t *block)
{
    uint8_t scales[GEMM_K_GROUPS], mins[GEMM_K_GROUPS];
    ggml_k_scales(block + 4, scales, mins);
    step->d[row] = load_u16(block);
    step->dmin[row] = load_u16(block + 2);
    for (int j = 0; j < GEMM_K_GROUPS; j++) {
        uint32_t fifth = 0;
        for (int g = 0; g < 8; g++)
            fifth |= (load_word(block + 16 + 4 * g) >> j & 0x01010101) << g;
        step->group[j].scale[row] = scales[j];
        step->group[j].min[row] = mins[j];
        step->group[j].fifth[row] = fifth;
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

void gemm_quant_pack(gemm_type type, void *panel, uint32_t row, uint32_t count, uint32_t depth,
                     const void *from, size_t pitch)
{
    for (uint32_t s = 0; s < depth; s++)
        for (uint32_t r = 0; r < count; r++) {
            const uint8_t *blocks = (const uint8_t *)from + r * pitch;
            switch (type) {
            case GEMM_Q8_0:
                pack_q8_0((gemm_q8_0_step *)panel + s, row + r, blocks + (size_t)s * Q8_0_BYTES);
                break;
            case GEMM_Q4_0:
                pack_q4_0((gemm_q4_0_step *)panel + s, row + r, blocks + (size_t)s * Q4_0_BYTES);
                break;
            case GEMM_MXFP4:
                pack_mxfp4((gemm_mxfp4_step *)panel + s, row + r, blocks + (size_t)s * MXFP4_BYTES);
                break;
            case GEMM_Q4_K:
                pack_q4_k((gemm_q4_k_step *)panel + s, row + r, blocks + (size_t)s * Q4_K_BYTES);
                break;
            case GEMM_Q5_K:
                pack_q5_k((gemm_q5_k_step *)panel + s, row + r, blocks + (size_t)s * Q5_K_BYTES);
                break;
            default:
                pack_q6_k((gemm_q6_k_step *)panel + s, row + r, blocks + (size_t)s * Q6_K_BYTES);
            }
        }
}

void gemm_quant_round_row(void *panel, uint32_t row, uint32_t k, const float *x)
{
    for (gemm_q8_0_step *step = panel; k; step++) {
        uint32_t n = RAD_MIN(k, (uint32_t)GEMM_XBLOCK);
        uint8_t block[Q8_0_BYTES] = {0};
        uint32_t most = 0;
        for (uint32_t i = 0; i < n; i++)
            most = RAD_MAX(most, f32_bits(x[i]) & 0x7fffffff);
        uint16_t d = most < 0x7f800000 ? f16_from_f32(f32_of_bits(most) / 127) : 0x7e00;
        float scale = f16_to_f32(d);
        block[0] = (uint8_t)d;
        block[1] = (uint8_t)(d >> 8);
        for (uint32_t i = 0; i < n && scale > 0; i++) {
            float q = RAD_MIN(RAD_MAX(x[i] / scale, -127.0f), 127.0f);
            block[2 + i] = (uint8_t)(int8_t)(f32_bits(q + 0x1.8p23f) - 0x4b400000);
        }
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

/* Value i of group j. */
static float mxfp4_at(const gemm_mxfp4_step *s, uint32_t row, uint32_t i)
{
    return ggml_mxfp4_scale(s->e[row]) * (float)ggml_mxfp4_codes[q4_at(s->q, row, i)];
}

static float q4_k_at(const gemm_q4_k_step *s, uint32_t row, uint32_t j, uint32_t i)
{
    float d = f16_to_f32(s->d[row]) * (float)s->group[j].scale[row];
    float min = f16_to_f32(s->dmin[row]) * (float)s->group[j].min[row];
    return d * (float)q4_at(s->group[j].q, row, i) - min;
}

static float q5_k_at(const gemm_q5_k_step *s, uint32_t row, uint32_t j, uint32_t i)
{
    float d = f16_to_f32(s->d[row]) * (float)s->group[j].scale[row];
    float min = f16_to_f32(s->dmin[row]) * (float)s->group[j].min[row];
    uint32_t fifth = s->group[j].fifth[row] >> (i % 4 * 8 + i / 4) & 1;
    return d * (float)(q4_at(s->group[j].q, row, i) + 16 * (int)fifth) - min;
}

static float q6_k_at(const gemm_q6_k_step *s, uint32_t row, uint32_t j, uint32_t i)
{
    float d = f16_to_f32(s->d[row]) * (float)s->group[j].scale[i / 16][row];
    uint32_t g = i % 16 / 4, q = 0;
    for (uint32_t w = 0; w < 3; w++) {
        uint32_t byte = s->group[j].q[i / 16][w][row] >> (i % 4 * 8) & 255;
        if (w == g) q = byte & 63;
        if (g == 3) q |= byte >> 6 << 2 * w;
    }
    return d * (float)((int)q - GEMM_Q6_K_OFFSET);
}

void gemm_quant_get_row(gemm_type type, const void *panel, uint32_t row, uint32_t k, float *out)
{
    for (uint32_t i = 0; i < k; i++) {
        uint32_t at = i % GEMM_XBLOCK, step = i / GEMM_XBLOCK;
        uint32_t group = step % GEMM_K_GROUPS, super = step / GEMM_K_GROUPS;
        switch (type) {
        case GEMM_Q8_0: out[i] = q8_0_at((const gemm_q8_0_step *)panel + step, row, at); break;
        case GEMM_Q4_0: out[i] = q4_0_at((const gemm_q4_0_step *)panel + step, row, at); break;
        case GEMM_MXFP4: out[i] = mxfp4_at((const gemm_mxfp4_step *)panel + step, row, at); break;
        case GEMM_Q4_K:
            out[i] = q4_k_at((const gemm_q4_k_step *)panel + super, row, group, at);
            break;
        case GEMM_Q5_K:
            out[i] = q5_k_at((const gemm_q5_k_step *)panel + super, row, group, at);
            break;
        default: out[i] = q6_k_at((const gemm_q6_k_step *)panel + super, row, group, at);
        }
    }
}
