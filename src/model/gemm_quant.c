/* gemm_quant.c - blocks of a GGUF file into panels, and rows back out of them.
 *
 * A block's words go to places GEMM_PANEL words apart; 16 rows are packed together, so each
 * line of the panel is written once and whole. */
#include "model/gemm_quant.h"

#include "gguf/quant.h"

#include <assert.h>

enum { Q8_0_BYTES = 34, Q4_0_BYTES = 18, Q4_K_BYTES = 144 };

static_assert(sizeof(gemm_xblock) == 48, "");
static_assert(sizeof(gemm_q8_0_step) == 34 * GEMM_PANEL, "");
static_assert(sizeof(gemm_q4_0_step) == 18 * GEMM_PANEL, "");
static_assert(sizeof(gemm_q4_k_step) == 148 * GEMM_PANEL, "");

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

/* In the file a group is one half of 32 bytes, k = i; here it has 16 bytes of its own, k = i
 * in the low and k = i + 16 in the high halves. */
static void pack_q4_k(gemm_q4_k_step *step, uint32_t row, const uint8_t *block)
{
    uint8_t scales[GEMM_K_GROUPS], mins[GEMM_K_GROUPS];
    ggml_k_scales(block + 4, scales, mins);
    step->d[row] = load_u16(block);
    step->dmin[row] = load_u16(block + 2);
    for (int j = 0; j < GEMM_K_GROUPS; j++) {
        const uint8_t *qs = block + 16 + j / 2 * 32;
        step->group[j].scale[row] = scales[j];
        step->group[j].min[row] = mins[j];
        for (int g = 0; g < 4; g++) {
            uint32_t low = load_word(qs + 4 * g) >> (j % 2 * 4) & 0x0f0f0f0f;
            uint32_t high = load_word(qs + 16 + 4 * g) >> (j % 2 * 4) & 0x0f0f0f0f;
            step->group[j].q[g][row] = low | high << 4;
        }
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
            default:
                pack_q4_k((gemm_q4_k_step *)panel + s, row + r, blocks + (size_t)s * Q4_K_BYTES);
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

void gemm_quant_get_row(gemm_type type, const void *panel, uint32_t row, uint32_t k, float *out)
{
    for (uint32_t i = 0; i < k; i++) {
        uint32_t at = i % GEMM_XBLOCK;
        if (type == GEMM_Q8_0) {
            const gemm_q8_0_step *s = (const gemm_q8_0_step *)panel + i / GEMM_XBLOCK;
            int q = (int)(s->q[at / 4][row] >> (at % 4 * 8) & 255) - 128;
            out[i] = f16_to_f32(s->d[row]) * (float)q;
        } else if (type == GEMM_Q4_0) {
            const gemm_q4_0_step *s = (const gemm_q4_0_step *)panel + i / GEMM_XBLOCK;
            out[i] = f16_to_f32(s->d[row]) * (float)(q4_at(s->q, row, at) - 8);
        } else {
            const gemm_q4_k_step *s = (const gemm_q4_k_step *)panel + i / 256;
            uint32_t j = i % 256 / GEMM_XBLOCK;
            float d = f16_to_f32(s->d[row]) * (float)s->group[j].scale[row];
            float min = f16_to_f32(s->dmin[row]) * (float)s->group[j].min[row];
            out[i] = d * (float)q4_at(s->group[j].q, row, at) - min;
        }
    }
}
