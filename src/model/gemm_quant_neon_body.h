/* gemm_quant_neon_body.h - the quantised kernels over vectors of 128 bits, of gemm_quant_neon.c,
 * gemm_quant_dotprod.c and gemm_quant_i8mm.c: each is compiled for one way to multiply bytes.
 *
 *     neon      SMULL, SMLAL: two words' products in 16 bits (2 * 128 * 127 fits); SADALP adds
 *               pairs of them to 32. A vector of sums is two outputs, in two parts each
 *     dotprod   SDOT, by the word of x that stands in a lane: four outputs of one row
 *     i8mm      SMMLA, two words at a time: two outputs of two rows. A last odd row by SDOT
 *
 * Bytes of weights are multiplied with their sign: of q8_0 and iq4 what they are moved up by goes
 * first, and their sums start at 0; what is moved up by less than 128 fits a signed byte as it is.
 * Either way the integers are the ones of gemm_quant.h.
 *
 * A tile is one row x 32 outputs, 2 x 16 or 3..6 x 8 (a column; of SMULL's 5 and 6 x 4): float and
 * integer sums of all stay in the 32 registers over all of its steps. */
#ifndef MODEL_GEMM_QUANT_NEON_BODY_H
#define MODEL_GEMM_QUANT_NEON_BODY_H

#include "gguf/quant.h"
#include "model/gemm_kernels.h"

#include <arm_neon.h>

#define TILE static inline __attribute__((always_inline))

enum { LANES = 4, MOST_VECTORS = 8, BURST_BYTES = 4 << 10 };

typedef enum quant_kind {
#define KIND(name) KIND_##name,
    GEMM_EACH_QUANT(KIND)
#undef KIND
} quant_kind;

/* ---- words of weights: four k of four outputs, from output j on, with their signs ---- */

TILE uint8x16_t bytes_of(const uint32_t *words)
{
    return vreinterpretq_u8_u32(vld1q_u32(words));
}

/* Word g of a block in halves of bytes. */
TILE uint8x16_t nibbles(const uint32_t q[4][GEMM_PANEL], const uint32_t g, uint32_t j)
{
    if (g < 4) return vandq_u8(bytes_of(&q[g][j]), vdupq_n_u8(15));
    return vshrq_n_u8(bytes_of(&q[g % 4][j]), 4);
}

/* Bit `bit` of each byte, as bit `to`. */
TILE uint8x16_t bit_of(const uint32_t *words, const int bit, const int to)
{
    const int8x16_t by = vdupq_n_s8((int8_t)(to - bit));
    return vandq_u8(vshlq_u8(bytes_of(words), by), vdupq_n_u8((uint8_t)(1 << to)));
}

/* Bits [2 * at, 2 * at + 2) of each byte, as bits `to` and `to` + 1. */
TILE uint8x16_t two_bits_of(const uint32_t *words, const int at, const int to)
{
    const int8x16_t by = vdupq_n_s8((int8_t)(to - 2 * at));
    return vandq_u8(vshlq_u8(bytes_of(words), by), vdupq_n_u8((uint8_t)(3 << to)));
}

TILE uint8x16_t code_of(const int8_t codes[16], uint8x16_t nibble)
{
    return vreinterpretq_u8_s8(vqtbl1q_s8(vld1q_s8(codes), nibble));
}

/* Word g (0..7) of a group of the step at `step`. */
TILE int8x16_t word_of(const quant_kind kind, const void *step, int group, const uint32_t g,
                       uint32_t j)
{
    const int half = g / 4, at = g % 4;
    uint8x16_t w = vdupq_n_u8(0);
    switch (kind) {
    case KIND_q8_0:
        w = veorq_u8(bytes_of(&((const gemm_q8_0_step *)step)->q[g][j]), vdupq_n_u8(128));
        break;
    case KIND_q4_0: w = nibbles(((const gemm_q4_0_step *)step)->q, g, j); break;
    case KIND_q4_1: w = nibbles(((const gemm_q4_1_step *)step)->q, g, j); break;
    case KIND_q5_0: {
        const gemm_q5_0_step *s = step;
        w = vorrq_u8(nibbles(s->q, g, j), bit_of(&s->fifth[j], (int)g, 4));
        break;
    }
    case KIND_q5_1: {
        const gemm_q5_1_step *s = step;
        w = vorrq_u8(nibbles(s->q, g, j), bit_of(&s->fifth[j], (int)g, 4));
        break;
    }
    case KIND_iq4_nl:
        w = code_of(ggml_iq4_codes, nibbles(((const gemm_iq4_nl_step *)step)->q, g, j));
        break;
    case KIND_mxfp4:
        w = code_of(ggml_mxfp4_codes, nibbles(((const gemm_mxfp4_step *)step)->q, g, j));
        break;
    case KIND_iq4_xs:
        w = code_of(ggml_iq4_codes,
                    nibbles(((const gemm_iq4_xs_step *)step)->group[group].q, g, j));
        break;
    case KIND_q2_k:
        w = two_bits_of(&((const gemm_q2_k_step *)step)->group[group].low[half][j], at, 0);
        break;
    case KIND_q3_k: {
        const gemm_q3_k_step *s = step;
        w = vorrq_u8(two_bits_of(&s->group[group].low[half][j], at, 0),
                     bit_of(&s->group[group].third[j], (int)g, 2));
        break;
    }
    case KIND_q4_k: w = nibbles(((const gemm_q4_k_step *)step)->group[group].q, g, j); break;
    case KIND_q5_k: {
        const gemm_q5_k_step *s = step;
        w = vorrq_u8(nibbles(s->group[group].q, g, j),
                     bit_of(&s->group[group].fifth[j], (int)g, 4));
        break;
    }
    case KIND_q6_k: {
        const uint32_t(*q)[GEMM_PANEL] = ((const gemm_q6_k_step *)step)->group[group].q[half];
        if (at < 3)
            w = vandq_u8(bytes_of(&q[at][j]), vdupq_n_u8(63));
        else
            w = vorrq_u8(two_bits_of(&q[0][j], 3, 0),
                         vorrq_u8(two_bits_of(&q[1][j], 3, 2), two_bits_of(&q[2][j], 3, 4)));
        break;
    }
    }
    return vreinterpretq_s8_u8(w);
}

/* ---- what the integers of a block are multiplied with, and start at ---- */

TILE bool has_groups(const quant_kind kind)
{
    return kind == KIND_q2_k || kind == KIND_q3_k || kind == KIND_q4_k || kind == KIND_q5_k ||
           kind == KIND_q6_k || kind == KIND_iq4_xs;
}

TILE bool has_halves(const quant_kind kind)
{
    return kind == KIND_q2_k || kind == KIND_q3_k || kind == KIND_q6_k;
}

TILE bool has_min(const quant_kind kind)
{
    return kind == KIND_q2_k || kind == KIND_q4_k || kind == KIND_q5_k || kind == KIND_q4_1 ||
           kind == KIND_q5_1;
}

TILE bool has_start(const quant_kind kind)
{
    return kind == KIND_q4_0 || kind == KIND_q5_0 || kind == KIND_q6_k || kind == KIND_q3_k;
}

TILE int32_t start_of(const quant_kind kind, const gemm_xblock *x, int half)
{
    switch (kind) {
    case KIND_q4_0: return gemm_start_q4_0(x);
    case KIND_q5_0: return gemm_start_q5_0(x);
    case KIND_q6_k: return gemm_start_q6_k(x, half);
    case KIND_q3_k: return gemm_start_q3_k(x, half);
    default: return 0;
    }
}

TILE float32x4_t four_f16(const uint16_t *from)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
}

/* Four bytes, widened. */
TILE float32x4_t four_u8(const uint8_t *from, const int shift, const uint8_t mask)
{
    uint32_t word;
    memcpy(&word, from, sizeof word);
    const uint8x8_t bytes = vreinterpret_u8_u32(vdup_n_u32(word >> shift));
    const uint16x4_t wide = vget_low_u16(vmovl_u8(vand_u8(bytes, vdup_n_u8(mask))));
    return vcvtq_f32_u32(vmovl_u16(wide));
}

TILE float32x4_t four_s8(const int8_t *from)
{
    uint32_t word;
    memcpy(&word, from, sizeof word);
    const int16x4_t wide = vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(word))));
    return vcvtq_f32_s32(vmovl_s16(wide));
}

/* d of w, times the group's scale where there are groups. */
TILE float32x4_t scale_of(const quant_kind kind, const void *step, int g, int half, uint32_t j)
{
    switch (kind) {
    case KIND_q8_0: return four_f16(&((const gemm_q8_0_step *)step)->d[j]);
    case KIND_q4_0: return four_f16(&((const gemm_q4_0_step *)step)->d[j]);
    case KIND_q4_1: return four_f16(&((const gemm_q4_1_step *)step)->d[j]);
    case KIND_q5_0: return four_f16(&((const gemm_q5_0_step *)step)->d[j]);
    case KIND_q5_1: return four_f16(&((const gemm_q5_1_step *)step)->d[j]);
    case KIND_iq4_nl: return four_f16(&((const gemm_iq4_nl_step *)step)->d[j]);
    case KIND_mxfp4: {
        float scale[LANES];
        for (int i = 0; i < LANES; i++)
            scale[i] = ggml_mxfp4_scale(((const gemm_mxfp4_step *)step)->e[j + (uint32_t)i]);
        return vld1q_f32(scale);
    }
    case KIND_iq4_xs: {
        const gemm_iq4_xs_step *s = step;
        return vmulq_f32(four_f16(&s->d[j]), four_s8(&s->group[g].scale[j]));
    }
    case KIND_q2_k: {
        const gemm_q2_k_step *s = step;
        return vmulq_f32(four_f16(&s->d[j]), four_u8(&s->group[g].scale[half][j], 0, 15));
    }
    case KIND_q3_k: {
        const gemm_q3_k_step *s = step;
        return vmulq_f32(four_f16(&s->d[j]), four_s8(&s->group[g].scale[half][j]));
    }
    case KIND_q4_k: {
        const gemm_q4_k_step *s = step;
        return vmulq_f32(four_f16(&s->d[j]), four_u8(&s->group[g].scale[j], 0, 255));
    }
    case KIND_q5_k: {
        const gemm_q5_k_step *s = step;
        return vmulq_f32(four_f16(&s->d[j]), four_u8(&s->group[g].scale[j], 0, 255));
    }
    case KIND_q6_k: {
        const gemm_q6_k_step *s = step;
        return vmulq_f32(four_f16(&s->d[j]), four_s8(&s->group[g].scale[half][j]));
    }
    }
    return vdupq_n_f32(0);
}

/* What the sum of x is multiplied with. */
TILE float32x4_t min_of(const quant_kind kind, const void *step, int g, int half, uint32_t j)
{
    switch (kind) {
    case KIND_q4_1: return four_f16(&((const gemm_q4_1_step *)step)->m[j]);
    case KIND_q5_1: return four_f16(&((const gemm_q5_1_step *)step)->m[j]);
    case KIND_q2_k: {
        const gemm_q2_k_step *s = step;
        const float32x4_t min = four_u8(&s->group[g].scale[half][j], 4, 15);
        return vnegq_f32(vmulq_f32(four_f16(&s->dmin[j]), min));
    }
    case KIND_q4_k: {
        const gemm_q4_k_step *s = step;
        const float32x4_t min = four_u8(&s->group[g].min[j], 0, 255);
        return vnegq_f32(vmulq_f32(four_f16(&s->dmin[j]), min));
    }
    case KIND_q5_k: {
        const gemm_q5_k_step *s = step;
        const float32x4_t min = four_u8(&s->group[g].min[j], 0, 255);
        return vnegq_f32(vmulq_f32(four_f16(&s->dmin[j]), min));
    }
    default: return vdupq_n_f32(0);
    }
}

/* ---- sums of products of bytes ---- */

/* The integers of a tile's block; what stands where is the instruction's. TALL: vectors of outputs
 * of a tile of 5 and 6 rows. */
#if defined(NEON_DOT)
enum { PARTS = 1, TALL = 2 };
#else
enum { PARTS = 2, TALL = 1 };
#endif
typedef int32x4_t quant_sums[GEMM_TILE_ROWS][MOST_VECTORS][PARTS];

#if defined(NEON_MMLA)
/* How many rows go by pairs. */
#define PAIRED(rows) ((rows) / 2 * 2)
#else
#define PAIRED(rows) 0u
#endif

#if defined(NEON_DOT)
TILE int32x4_t dot_lane(int32x4_t sum, int8x16_t w, int8x16_t x, const int lane)
{
    switch (lane) { /* an immediate */
    case 0: return vdotq_laneq_s32(sum, w, x, 0);
    case 1: return vdotq_laneq_s32(sum, w, x, 1);
    case 2: return vdotq_laneq_s32(sum, w, x, 2);
    default: return vdotq_laneq_s32(sum, w, x, 3);
    }
}
#endif

/* Words g and g + 1 of all outputs: a[v] and b[v]. */
TILE void add_words(const uint32_t rows, const int V, quant_sums sum, const gemm_xblock *x,
                    size_t ldx, const uint32_t g, const int8x16_t a[MOST_VECTORS],
                    const int8x16_t b[MOST_VECTORS])
{
#if defined(NEON_MMLA)
#pragma GCC unroll 3
    for (uint32_t r = 0; r < PAIRED(rows); r += 2) {
        const int8x16_t two =
            vcombine_s8(vld1_s8(x[r * ldx].q + 4 * g), vld1_s8(x[(r + 1) * ldx].q + 4 * g));
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            const int32x4_t lo = vzip1q_s32(vreinterpretq_s32_s8(a[v]), vreinterpretq_s32_s8(b[v]));
            const int32x4_t hi = vzip2q_s32(vreinterpretq_s32_s8(a[v]), vreinterpretq_s32_s8(b[v]));
            sum[r][v][0] = vmmlaq_s32(sum[r][v][0], vreinterpretq_s8_s32(lo), two);
            sum[r + 1][v][0] = vmmlaq_s32(sum[r + 1][v][0], vreinterpretq_s8_s32(hi), two);
        }
    }
#endif
#pragma GCC unroll 6
    for (uint32_t r = PAIRED(rows); r < rows; r++) {
#if defined(NEON_DOT)
        const int8x16_t four = vld1q_s8(x[r * ldx].q + 16 * (g / 4));
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            sum[r][v][0] = dot_lane(dot_lane(sum[r][v][0], a[v], four, (int)g % 4), b[v], four,
                                    (int)g % 4 + 1);
#else
        int32_t first, second;
        memcpy(&first, x[r * ldx].q + 4 * g, sizeof first);
        memcpy(&second, x[r * ldx].q + 4 * g + 4, sizeof second);
        const int8x16_t xa = vreinterpretq_s8_s32(vdupq_n_s32(first));
        const int8x16_t xb = vreinterpretq_s8_s32(vdupq_n_s32(second));
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            int16x8_t lo = vmull_s8(vget_low_s8(a[v]), vget_low_s8(xa));
            int16x8_t hi = vmull_high_s8(a[v], xa);
            lo = vmlal_s8(lo, vget_low_s8(b[v]), vget_low_s8(xb));
            hi = vmlal_high_s8(hi, b[v], xb);
            sum[r][v][0] = vpadalq_s16(sum[r][v][0], lo);
            sum[r][v][1] = vpadalq_s16(sum[r][v][1], hi);
        }
#endif
    }
}

/* The four sums of row r's outputs, in order. */
TILE int32x4_t sums_of(const uint32_t rows, quant_sums sum, uint32_t r, int v)
{
#if defined(NEON_MMLA)
    if (r < PAIRED(rows)) {
        const uint32_t first = r & ~1u;
        return r % 2 ? vuzp2q_s32(sum[first][v][0], sum[first + 1][v][0])
                     : vuzp1q_s32(sum[first][v][0], sum[first + 1][v][0]);
    }
#endif
    (void)rows;
#if defined(NEON_DOT)
    return sum[r][v][0];
#else
    return vpaddq_s32(sum[r][v][0], sum[r][v][1]);
#endif
}

/* One block of a column, or one half of it: words [begin, end), and what comes of them. */
TILE void add_block(const quant_kind kind, const uint32_t rows, const int V,
                    float32x4_t acc[][MOST_VECTORS], const gemm_xblock *x, size_t ldx,
                    const void *step, int group, const int half, uint32_t j)
{
    const uint32_t begin = has_halves(kind) ? 4 * (uint32_t)half : 0;
    const uint32_t end = has_halves(kind) ? begin + 4 : 8;
    quant_sums sum;
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
#pragma GCC unroll 2
            for (int part = 0; part < PARTS; part++)
                sum[r][v][part] = vdupq_n_s32(0);
#pragma GCC unroll 4
    for (uint32_t g = begin; g < end; g += 2) {
        int8x16_t a[MOST_VECTORS], b[MOST_VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            a[v] = word_of(kind, step, group, g, j + LANES * (uint32_t)v);
            b[v] = word_of(kind, step, group, g + 1, j + LANES * (uint32_t)v);
        }
        add_words(rows, V, sum, x, ldx, g, a, b);
        __asm__("" ::
                    : "memory"); /* else GCC loads the next words so early that sums leave the
                                    registers */
    }
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
        const uint32_t at = j + LANES * (uint32_t)v;
        const float32x4_t d = scale_of(kind, step, group, half, at);
        const float32x4_t min = min_of(kind, step, group, half, at);
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++) {
            const gemm_xblock *row = x + r * ldx;
            int32x4_t integers = sums_of(rows, sum, r, v);
            if (has_start(kind))
                integers = vaddq_s32(integers, vdupq_n_s32(start_of(kind, row, half)));
            acc[r][v] = vfmaq_f32(acc[r][v], vcvtq_f32_s32(integers), vmulq_n_f32(d, row->d));
            if (has_min(kind))
                acc[r][v] = vfmaq_n_f32(acc[r][v], min,
                                        has_halves(kind) ? gemm_half_sum(row, half) : row->sum);
        }
    }
}

/* Steps [from, to) of the V * 4 outputs from j on. */
TILE void column(const quant_kind kind, const size_t step_bytes, const uint32_t rows, const int V,
                 const gemm_tile *t, uint32_t j, uint32_t from, uint32_t to)
{
    const int groups = has_groups(kind) ? GEMM_K_GROUPS : 1;
    const gemm_xblock *x = (const gemm_xblock *)t->x + (size_t)from * (uint32_t)groups;
    const char *step = (const char *)t->w + from * step_bytes;
    float32x4_t acc[GEMM_TILE_ROWS][MOST_VECTORS];
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            acc[r][v] = t->fresh && !from ? vdupq_n_f32(0)
                                          : vld1q_f32(t->c + r * t->ldc + j + LANES * (uint32_t)v);
    for (uint32_t s = from; s < to; s++, step += step_bytes)
#pragma GCC unroll 1
        for (int group = 0; group < groups; group++, x++) {
            add_block(kind, rows, V, acc, x, t->ldx, step, group, 0, j);
            if (has_halves(kind)) add_block(kind, rows, V, acc, x, t->ldx, step, group, 1, j);
        }
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            vst1q_f32(t->c + r * t->ldc + j + LANES * (uint32_t)v, acc[r][v]);
}

/* What step `s` asks for: of a tile alone the step that lies 8 KB further on, else its share of the
 * next chunk. */
TILE void prefetch(const gemm_tile *t, uint32_t s, const size_t step_bytes)
{
    const char *ahead = t->ahead + s * t->ahead_stride;
    const uint32_t at = s + gemm_near_steps(step_bytes);
    if (t->ahead_stride == step_bytes)
        ahead = at < t->depth ? (const char *)t->w + at * step_bytes
                              : t->ahead + (at - t->depth) * step_bytes;
    for (size_t i = 0; i < t->ahead_stride; i += 64)
        __builtin_prefetch(ahead + i, 0, 3);
}

/* Columns take turns every few KB, so that each line is read by all of them while it is near. */
TILE void columns(const quant_kind kind, const size_t step_bytes, const uint32_t rows, const int V,
                  const gemm_tile *t)
{
    const uint32_t burst = (uint32_t)RAD_MAX(BURST_BYTES / step_bytes, (size_t)1);
    for (uint32_t from = 0, to; from < t->depth; from = to) {
        to = RAD_MIN(t->depth, from + burst);
        for (uint32_t s = from; s < to; s++)
            prefetch(t, s, step_bytes);
        for (uint32_t j = 0; j < GEMM_PANEL; j += LANES * (uint32_t)V)
            column(kind, step_bytes, rows, V, t, j, from, to);
    }
}

#define KERNEL(name)                                                                               \
    static void quant_##name(const gemm_tile *t)                                                   \
    {                                                                                              \
        switch (t->rows) {                                                                         \
        case 1: columns(KIND_##name, sizeof(gemm_##name##_step), 1, 8, t); break;                  \
        case 2: columns(KIND_##name, sizeof(gemm_##name##_step), 2, 4, t); break;                  \
        case 3: columns(KIND_##name, sizeof(gemm_##name##_step), 3, 2, t); break;                  \
        case 4: columns(KIND_##name, sizeof(gemm_##name##_step), 4, 2, t); break;                  \
        case 5: columns(KIND_##name, sizeof(gemm_##name##_step), 5, TALL, t); break;               \
        default: columns(KIND_##name, sizeof(gemm_##name##_step), 6, TALL, t); break;              \
        }                                                                                          \
    }

GEMM_EACH_QUANT(KERNEL)

#define FIELD(name) .name = quant_##name,
#define QUANT_NEON                                                                                 \
    {                                                                                              \
        .round_row = gemm_round_to_blocks, GEMM_EACH_QUANT(FIELD)                                  \
    }

#endif
