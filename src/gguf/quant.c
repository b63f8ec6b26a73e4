/* quant.c - the block formats, one decoder each and one table.
 *
 * Little endian, any alignment: bytes are copied before they are looked at. d, m and dmin
 * are f16; "lo" and "hi" are the two halves of a byte of qs.
 *
 *   32 values
 *     Q4_0   d qs[16]            d * (q - 8)        q = lo of qs[0..16), then hi
 *     Q4_1   d m qs[16]          d * q + m
 *     Q5_0   d qh[4] qs[16]      d * (q - 16)       bit i of qh is the fifth bit of value i
 *     Q5_1   d m qh[4] qs[16]    d * q + m
 *     Q8_0   d q[32]             d * q              signed
 *     MXFP4  e qs[16]            2^(e - 127) * v    v of 4 bits: 0 .5 1 1.5 2 3 4 6, then these
 *                                                   negative (OCP's E2M1)
 *     IQ4_NL d qs[16]            d * v              v of 4 bits: a place in ggml_iq4_codes
 *   256 values
 *     Q4_K   d dmin s[12] qs[128]         d * s * q - dmin * m      groups of 32: 64 values
 *     Q5_K   d dmin s[12] qh[32] qs[128]  the same, q of 5 bits     take 32 bytes, lo then hi
 *     Q6_K   ql[128] qh[64] s[16] d       d * s * (q - 32)          groups of 16, s signed
 *     Q3_K   qh[32] qs[64] s[12] d        d * (s - 32) * (q - 4)    groups of 16, s of 6 bits
 *     Q2_K   s[16] qs[64] d dmin          d * lo * q - dmin * hi    groups of 16, lo and hi of s
 *     IQ4_XS d sh[2] sl[4] qs[128]        d * (s - 32) * v          groups of 32, 16 bytes each
 *
 * Why it is exact: d * s has at most 19 bits and d * q at most 18, d * s * v 23, so in f32 they
 * are; what follows is one operation and rounds once. */
#include "gguf/quant.h"

#include "base/base.h"
#include "base/minifloat.h"

#include <string.h>

enum { BLOCK = 32, SUPER = 256 };

static float load_f16(const uint8_t *p)
{
    return f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static void block_f32(const uint8_t *p, float *out)
{
    memcpy(out, p, sizeof *out);
}

static void block_f16(const uint8_t *p, float *out)
{
    *out = load_f16(p);
}

static void block_bf16(const uint8_t *p, float *out)
{
    *out = f32_of_bits((uint32_t)(p[0] | p[1] << 8) << 16);
}

static void block_q4_0(const uint8_t *p, float *out)
{
    float d = load_f16(p);
    const uint8_t *qs = p + 2;
    for (int i = 0; i < BLOCK / 2; i++) {
        out[i] = d * (float)((qs[i] & 15) - 8);
        out[i + BLOCK / 2] = d * (float)((qs[i] >> 4) - 8);
    }
}

static void block_q4_1(const uint8_t *p, float *out)
{
    float d = load_f16(p), m = load_f16(p + 2);
    const uint8_t *qs = p + 4;
    for (int i = 0; i < BLOCK / 2; i++) {
        out[i] = d * (float)(qs[i] & 15) + m;
        out[i + BLOCK / 2] = d * (float)(qs[i] >> 4) + m;
    }
}

/* The 32 five-bit numbers of qh[4] qs[16]. */
static void five_bits(const uint8_t *qh, const uint8_t *qs, uint8_t *q)
{
    for (int i = 0; i < BLOCK / 2; i++) {
        q[i] = (uint8_t)((qs[i] & 15) | (qh[i / 8] >> (i % 8) & 1) << 4);
        q[i + BLOCK / 2] = (uint8_t)((qs[i] >> 4) | (qh[2 + i / 8] >> (i % 8) & 1) << 4);
    }
}

static void block_q5_0(const uint8_t *p, float *out)
{
    float d = load_f16(p);
    uint8_t q[BLOCK];
    five_bits(p + 2, p + 6, q);
    for (int i = 0; i < BLOCK; i++)
        out[i] = d * (float)(q[i] - 16);
}

static void block_q5_1(const uint8_t *p, float *out)
{
    float d = load_f16(p), m = load_f16(p + 2);
    uint8_t q[BLOCK];
    five_bits(p + 4, p + 8, q);
    for (int i = 0; i < BLOCK; i++)
        out[i] = d * (float)q[i] + m;
}

static void block_q8_0(const uint8_t *p, float *out)
{
    float d = load_f16(p);
    for (int i = 0; i < BLOCK; i++)
        out[i] = d * (float)(int8_t)p[2 + i];
}

const int8_t ggml_mxfp4_codes[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void block_mxfp4(const uint8_t *p, float *out)
{
    const float half = ggml_mxfp4_scale(p[0]);
    for (int i = 0; i < BLOCK / 2; i++) {
        out[i] = half * (float)ggml_mxfp4_codes[p[1 + i] & 15];
        out[i + BLOCK / 2] = half * (float)ggml_mxfp4_codes[p[1 + i] >> 4];
    }
}

const int8_t ggml_iq4_codes[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};

static void codes_iq4(float scale, const uint8_t *qs, float *out)
{
    for (int i = 0; i < BLOCK / 2; i++) {
        out[i] = scale * (float)ggml_iq4_codes[qs[i] & 15];
        out[i + BLOCK / 2] = scale * (float)ggml_iq4_codes[qs[i] >> 4];
    }
}

static void block_iq4_nl(const uint8_t *p, float *out)
{
    codes_iq4(load_f16(p), p + 2, out);
}

/* Two bits of each scale lie in the 16 bits of sh, four in the halves of sl. */
void ggml_iq4_xs_scales(const uint8_t s[6], int8_t scales[8])
{
    for (int g = 0; g < 8; g++) {
        int low = s[2 + g / 2] >> (g % 2 * 4) & 15, high = s[g / 4] >> (g % 4 * 2) & 3;
        scales[g] = (int8_t)((low | high << 4) - 32);
    }
}

static void block_iq4_xs(const uint8_t *p, float *out)
{
    float d = load_f16(p);
    int8_t scales[8];
    ggml_iq4_xs_scales(p + 2, scales);
    for (int g = 0; g < 8; g++)
        codes_iq4(d * (float)scales[g], p + 8 + g * 16, out + g * BLOCK);
}

/* Groups 0..3 lie in the low six bits of s[0..4) and s[4..8). Of groups 4..7 the low four
 * bits are halves of s[8..12), the upper two the spare bits of the first eight bytes. */
void ggml_k_scales(const uint8_t s[12], uint8_t scales[8], uint8_t mins[8])
{
    for (int g = 0; g < 4; g++) {
        scales[g] = s[g] & 63;
        mins[g] = s[g + 4] & 63;
        scales[g + 4] = (uint8_t)((s[g + 8] & 15) | s[g] >> 6 << 4);
        mins[g + 4] = (uint8_t)(s[g + 8] >> 4 | s[g + 4] >> 6 << 4);
    }
}

/* Q4_K, and Q5_K when qh is there: bit g of qh[i] is the fifth bit of value i of group g. */
static void block_k(const uint8_t *p, const uint8_t *qh, const uint8_t *qs, float *out)
{
    float d = load_f16(p), dmin = load_f16(p + 2);
    uint8_t scales[8], mins[8];
    ggml_k_scales(p + 4, scales, mins);
    for (int g = 0; g < 8; g++) {
        float scale = d * (float)scales[g], min = dmin * (float)mins[g];
        for (int i = 0; i < BLOCK; i++) {
            int q = qs[g / 2 * BLOCK + i] >> (g % 2 * 4) & 15;
            if (qh) q |= (qh[i] >> g & 1) << 4;
            out[g * BLOCK + i] = scale * (float)q - min;
        }
    }
}

static void block_q4_k(const uint8_t *p, float *out)
{
    block_k(p, NULL, p + 16, out);
}

static void block_q5_k(const uint8_t *p, float *out)
{
    block_k(p, p + 16, p + 48, out);
}

/* Two halves of 128 values: 64 bytes of ql, 32 of qh, 8 scales. A byte of qh serves four
 * values that lie 32 apart. */
static void block_q6_k(const uint8_t *p, float *out)
{
    float d = load_f16(p + 208);
    for (int half = 0; half < 2; half++) {
        const uint8_t *ql = p + half * 64, *qh = p + 128 + half * 32, *s = p + 192 + half * 8;
        for (int i = 0; i < 128; i++) {
            int low = ql[i % 64] >> (i / 64 * 4) & 15;
            int high = qh[i % 32] >> (i / 32 * 2) & 3;
            out[half * 128 + i] = d * (float)(int8_t)s[i / 16] * (float)((low | high << 4) - 32);
        }
    }
}

/* Four bits of a scale lie in the low halves of s[0..8), then in the high ones; the upper two of
 * scale g are those of s[8 + g % 4] from bit g / 4 * 2 on. */
void ggml_q3_k_scales(const uint8_t s[12], int8_t scales[16])
{
    for (int g = 0; g < 16; g++) {
        int low = s[g % 8] >> (g / 8 * 4) & 15, high = s[8 + g % 4] >> (g / 4 * 2) & 3;
        scales[g] = (int8_t)((low | high << 4) - 32);
    }
}

/* The two bits of value i in the qs of Q2_K and Q3_K: a byte serves four values that lie 32
 * apart. */
static int two_bits(const uint8_t *qs, int i)
{
    return qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

/* Bit g of qh[i] is the third bit of values 32 * g + i. */
static void block_q3_k(const uint8_t *p, float *out)
{
    float d = load_f16(p + 108);
    int8_t scales[16];
    ggml_q3_k_scales(p + 96, scales);
    for (int i = 0; i < SUPER; i++) {
        int high = p[i % 32] >> (i / 32) & 1;
        out[i] = d * (float)scales[i / 16] * (float)((two_bits(p + 32, i) | high << 2) - 4);
    }
}

static void block_q2_k(const uint8_t *p, float *out)
{
    float d = load_f16(p + 80), dmin = load_f16(p + 82);
    for (int i = 0; i < SUPER; i++) {
        float scale = d * (float)(p[i / 16] & 15), min = dmin * (float)(p[i / 16] >> 4);
        out[i] = scale * (float)two_bits(p + 16, i) - min;
    }
}

static void (*const decoders[])(const uint8_t *, float *) = {
    [GGML_F32] = block_f32,       [GGML_F16] = block_f16,   [GGML_BF16] = block_bf16,
    [GGML_Q4_0] = block_q4_0,     [GGML_Q4_1] = block_q4_1, [GGML_Q5_0] = block_q5_0,
    [GGML_Q5_1] = block_q5_1,     [GGML_Q8_0] = block_q8_0, [GGML_Q4_K] = block_q4_k,
    [GGML_Q5_K] = block_q5_k,     [GGML_Q6_K] = block_q6_k, [GGML_MXFP4] = block_mxfp4,
    [GGML_Q2_K] = block_q2_k,     [GGML_Q3_K] = block_q3_k, [GGML_IQ4_NL] = block_iq4_nl,
    [GGML_IQ4_XS] = block_iq4_xs,
};

bool ggml_type_decodes(uint32_t type)
{
    return type < RAD_COUNT(decoders) && decoders[type];
}

const char *ggml_decodable_types(void)
{
    return "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, "
           "IQ4_XS, MXFP4";
}

void ggml_decode(uint32_t type, const void *bytes, uint64_t count, float *out)
{
    const uint8_t *p = bytes;
    uint32_t values = 1, size = 0;
    bool known = ggml_type_decodes(type) && ggml_type_layout(type, &values, &size);
    RAD_ASSERT(known);
    RAD_ASSERT(count % values == 0);
    switch (type) { /* without a call a value */
    case GGML_F32: memcpy(out, p, (size_t)count * sizeof *out); return;
    case GGML_F16:
        for (uint64_t i = 0; i < count; i++)
            block_f16(p + 2 * i, out + i);
        return;
    case GGML_BF16:
        for (uint64_t i = 0; i < count; i++)
            block_bf16(p + 2 * i, out + i);
        return;
    default: break;
    }
    for (uint64_t i = 0; i < count; i += values, p += size)
        decoders[type](p, out + i);
}
