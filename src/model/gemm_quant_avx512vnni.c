/* gemm_quant_avx512vnni.c - VPDPBUSD: 64 products of bytes an instruction, four to a lane.
 *
 * A tile needs two sums an output, the block's integers and the chain in f32, so half as
 * many outputs fit as in gemm_tile_avx512.h: up to three rows go over the whole width of the
 * panel (decode reads every line once, in order), four to six over one half of it a
 * call. In a block of 32 an output costs 8 dot products, a conversion, a product of two
 * scales and an fma. */
#include "gguf/quant.h"
#include "model/gemm_kernels.h"

#if defined(__AVX512VNNI__)
#include <immintrin.h>

#define TILE static inline __attribute__((always_inline))

enum { WIDE = GEMM_PANEL / 16, HALF = WIDE / 2 };

/* A tile and its share of the panel: V vectors from vector `v0` on. */
TILE void load_sums(const uint32_t rows, const int V, __m512 acc[][WIDE], const gemm_tile *t,
                    int v0)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            acc[r][v] = t->fresh ? _mm512_setzero_ps()
                                 : _mm512_loadu_ps(t->c + r * t->ldc + 16 * (v0 + v));
}

TILE void store_sums(const uint32_t rows, const int V, __m512 acc[][WIDE], const gemm_tile *t,
                     int v0)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            _mm512_storeu_ps(t->c + r * t->ldc + 16 * (v0 + v), acc[r][v]);
}

/* Asks for [from, to) behind `at`, to the L1 or to the L2 cache. One instruction that walks:
 * unrolled, the burst reads an eighth slower, it seems since the CPU's own look ahead knows a
 * stream by the instruction that asks. */
TILE void ask(const char *at, size_t from, size_t to, const bool near)
{
    if (near)
#pragma GCC unroll 1
        for (size_t i = from; i < to; i += 64)
            _mm_prefetch(at + i, _MM_HINT_T0);
    else
#pragma GCC unroll 1
        for (size_t i = from; i < to; i += 64)
            _mm_prefetch(at + i, _MM_HINT_T1);
}

/* Part `part` of `parts` (1, or the groups of the K types: with a step's 150 to 210 lines asked
 * for at once, memory has nothing to do while the groups are computed) of what comes with a step.
 *
 * A tile over the whole width that no other shares the panel with asks for what lies a few steps
 * further on (gemm_near_steps). Else it is the tile's share of the next chunk, of which a tile
 * that takes the sides in turn asks for the first half with side 0, and for the second with side
 * 1; alone it has small chunks (gemm.c), so that they go to the L1 cache. */
TILE void prefetch(const gemm_tile *t, uint32_t step, uint32_t part, const uint32_t parts,
                   const size_t step_bytes, const int V, int v0)
{
    const bool alone = t->ahead_stride == step_bytes;
    const size_t share = V == WIDE ? t->ahead_stride : t->ahead_stride / 2;
    const size_t some = share < 2048 ? 0 : share / parts & ~(size_t)63; /* small: with the last */
    const size_t from = part * some, to = part + 1 < parts ? from + some : share;
    const char *at = t->ahead + (step + (v0 ? t->depth : 0)) * share;
    if (alone && V == WIDE) {
        step += gemm_near_steps(step_bytes);
        at = step < t->depth ? (const char *)t->w + step * step_bytes
                             : t->ahead + (step - t->depth) * step_bytes;
    }
    if (alone)
        ask(at, from, to, true);
    else
        ask(at, from, to, false);
}

/* sum[r][v] += word `at` of each row's block times w[v]. */
TILE void dot(const uint32_t rows, const int V, __m512i sum[][WIDE], const gemm_xblock *x,
              size_t ldx, uint32_t at, const __m512i w[WIDE])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        int32_t word;
        memcpy(&word, x[r * ldx].q + at, sizeof word);
        __m512i four = _mm512_set1_epi32(word);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], w[v], four);
    }
}

/* Where the sums of a block start, of any type. */
static inline int32_t start_of(const gemm_xblock *x, const gemm_type type, const int half)
{
    switch (type) {
    case GEMM_Q8_0:
    case GEMM_IQ4_NL:
    case GEMM_IQ4_XS: return x->start;
    case GEMM_Q4_0: return gemm_start_q4_0(x);
    case GEMM_Q5_0: return gemm_start_q5_0(x);
    case GEMM_MXFP4: return gemm_start_mxfp4(x);
    case GEMM_Q3_K: return gemm_start_q3_k(x, half);
    case GEMM_Q6_K: return gemm_start_q6_k(x, half);
    default: return 0;
    }
}

TILE void start(const uint32_t rows, const int V, __m512i sum[][WIDE], const gemm_xblock *x,
                size_t ldx, const gemm_type type, const int half)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            sum[r][v] = _mm512_set1_epi32(start_of(x + r * ldx, type, half));
}

TILE void finish(const uint32_t rows, const int V, __m512 acc[][WIDE], __m512i sum[][WIDE],
                 const gemm_xblock *x, size_t ldx, const __m512 d[WIDE])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            acc[r][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][v]),
                                        _mm512_mul_ps(d[v], _mm512_set1_ps(x[r * ldx].d)),
                                        acc[r][v]);
}

TILE void load_words(const int V, __m512i w[WIDE], const uint32_t *words)
{
#pragma GCC unroll 4
    for (int v = 0; v < V; v++)
        w[v] = _mm512_loadu_si512(words + 16 * v);
}

TILE void dot_q8(const uint32_t rows, const int V, __m512i sum[][WIDE], const gemm_xblock *x,
                 size_t ldx, const uint32_t *q)
{
#pragma GCC unroll 8
    for (uint32_t g = 0; g < 8; g++) {
        __m512i w[WIDE];
        load_words(V, w, q + g * GEMM_PANEL);
        dot(rows, V, sum, x, ldx, 4 * g, w);
    }
}

/* What the codes of a type stand for, moved up until none is negative. */
TILE __m512i codes_of(const gemm_type type)
{
    const bool fp4 = type == GEMM_MXFP4;
    const __m128i codes =
        _mm_loadu_si128((const __m128i *)(fp4 ? ggml_mxfp4_codes : ggml_iq4_codes));
    const char up = (char)(fp4 ? GEMM_MXFP4_OFFSET : GEMM_IQ4_OFFSET);
    return _mm512_broadcast_i32x4(_mm_add_epi8(codes, _mm_set1_epi8(up)));
}

/* A block of 32 nibbles, numbers or codes: q points at this half's first row. */
TILE void dot_nibbles(const uint32_t rows, const int V, __m512i sum[][WIDE], const gemm_xblock *x,
                      size_t ldx, const uint32_t *q, const gemm_type type)
{
    const bool coded = type == GEMM_MXFP4 || type == GEMM_IQ4_NL || type == GEMM_IQ4_XS;
    const __m512i nibble = _mm512_set1_epi8(15), codes = codes_of(type);
#pragma GCC unroll 4
    for (uint32_t g = 0; g < 4; g++) {
        __m512i w[WIDE], half[WIDE];
        load_words(V, w, q + g * GEMM_PANEL);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
            half[v] = _mm512_and_si512(w[v], nibble);
            if (coded) half[v] = _mm512_shuffle_epi8(codes, half[v]);
        }
        dot(rows, V, sum, x, ldx, 4 * g, half);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
            half[v] = _mm512_and_si512(_mm512_srli_epi16(w[v], 4), nibble);
            if (coded) half[v] = _mm512_shuffle_epi8(codes, half[v]);
        }
        dot(rows, V, sum, x, ldx, 16 + 4 * g, half);
    }
}

/* 2^(e - 128), also where that is no normal number. */
TILE void scale_e8(const int V, __m512 out[WIDE], const uint8_t *e)
{
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) {
        __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(e + 16 * v)));
        __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(wide, _mm512_set1_epi32(1)), 23);
        __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), wide);
        __mmask16 is_small = _mm512_cmplt_epi32_mask(wide, _mm512_set1_epi32(2));
        out[v] = _mm512_castsi512_ps(_mm512_mask_blend_epi32(is_small, normal, small));
    }
}

/* (w & 15) | bits, the first of them moved down by 0 or 4. */
TILE __m512i nibble_and(__m512i w, int down, __m512i bits)
{
    if (down) w = _mm512_srli_epi16(w, 4);
    return _mm512_ternarylogic_epi32(w, _mm512_set1_epi8(15), bits, 0xea);
}

/* bits << up, or >> -up. */
TILE __m512i shift(__m512i bits, const int up)
{
    return up > 0   ? _mm512_slli_epi32(bits, (unsigned)up)
           : up < 0 ? _mm512_srli_epi32(bits, (unsigned)-up)
                    : bits;
}

/* A block of 32 nibbles with their fifth bits above them. */
TILE void dot_q5(const uint32_t rows, const int V, __m512i sum[][WIDE], const gemm_xblock *x,
                 size_t ldx, const uint32_t *q, const uint32_t *fifth)
{
    const __m512i bit = _mm512_set1_epi8(16);
    __m512i bits[WIDE];
    load_words(V, bits, fifth);
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        __m512i w[WIDE], five[WIDE];
        load_words(V, w, q + g * GEMM_PANEL);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            five[v] = nibble_and(w[v], 0, _mm512_and_si512(shift(bits[v], 4 - g), bit));
        dot(rows, V, sum, x, ldx, 4 * (uint32_t)g, five);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            five[v] = nibble_and(w[v], 4, _mm512_and_si512(shift(bits[v], -g), bit));
        dot(rows, V, sum, x, ldx, 16 + 4 * (uint32_t)g, five);
    }
}

/* The fourth word of half a group of q6_K, out of the upper bits of the three. */
TILE __m512i last_of_q6(const uint32_t *q)
{
    enum { EITHER = 0xca }; /* a ? b : c, bit by bit */
    __m512i w = _mm512_srli_epi32(_mm512_loadu_si512(q), 6);
    w = _mm512_ternarylogic_epi32(_mm512_set1_epi8(3), w,
                                  _mm512_srli_epi32(_mm512_loadu_si512(q + GEMM_PANEL), 4), EITHER);
    w = _mm512_ternarylogic_epi32(_mm512_set1_epi8(15), w,
                                  _mm512_srli_epi32(_mm512_loadu_si512(q + 2 * GEMM_PANEL), 2),
                                  EITHER);
    return _mm512_and_si512(w, _mm512_set1_epi8(63));
}

TILE void dot_q6(const uint32_t rows, const int V, __m512i sum[][WIDE], const gemm_xblock *x,
                 size_t ldx, const uint32_t *q, const int half)
{
#pragma GCC unroll 4
    for (uint32_t g = 0; g < 4; g++) {
        __m512i w[WIDE];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            w[v] = g == 3 ? last_of_q6(q + 16 * v)
                          : _mm512_and_si512(_mm512_loadu_si512(q + g * GEMM_PANEL + 16 * v),
                                             _mm512_set1_epi8(63));
        dot(rows, V, sum, x, ldx, 16 * (uint32_t)half + 4 * g, w);
    }
}

/* Half a group of two bits, with third bits above them where `third` is not NULL. */
TILE void dot_q2(const uint32_t rows, const int V, __m512i sum[][WIDE], const gemm_xblock *x,
                 size_t ldx, const uint32_t *low, const uint32_t *third, const int half)
{
    const __m512i two = _mm512_set1_epi8(3), bit = _mm512_set1_epi8(4);
    __m512i bits[WIDE], above[WIDE];
    load_words(V, bits, low);
    if (third) load_words(V, above, third);
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        __m512i w[WIDE];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
            w[v] = _mm512_and_si512(shift(bits[v], -2 * g), two);
            if (third) /* (a & b) | c */
                w[v] =
                    _mm512_ternarylogic_epi32(shift(above[v], 2 - 4 * half - g), bit, w[v], 0xea);
        }
        dot(rows, V, sum, x, ldx, 16 * (uint32_t)half + 4 * (uint32_t)g, w);
    }
}

TILE void load_f16(const int V, __m512 d[WIDE], const uint16_t *from)
{
#pragma GCC unroll 4
    for (int v = 0; v < V; v++)
        d[v] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from + 16 * v)));
}

/* d times a byte each: exact. */
TILE void scale_f16(const int V, __m512 out[WIDE], const uint16_t *from, const uint8_t *by)
{
    load_f16(V, out, from);
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) {
        __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(by + 16 * v)));
        out[v] = _mm512_mul_ps(out[v], _mm512_cvtepi32_ps(wide));
    }
}

/* The same with the low halves of the bytes, or (`down` 4) the high ones. */
TILE void scale_nibble(const int V, __m512 out[WIDE], const uint16_t *from, const uint8_t *by,
                       const unsigned down)
{
    load_f16(V, out, from);
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) {
        __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(by + 16 * v)));
        wide = _mm512_and_si512(_mm512_srli_epi32(wide, down), _mm512_set1_epi32(15));
        out[v] = _mm512_mul_ps(out[v], _mm512_cvtepi32_ps(wide));
    }
}

TILE void scale_signed(const int V, __m512 out[WIDE], const uint16_t *from, const int8_t *by)
{
    load_f16(V, out, from);
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) {
        __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(by + 16 * v)));
        out[v] = _mm512_mul_ps(out[v], _mm512_cvtepi32_ps(wide));
    }
}

TILE void take_min(const uint32_t rows, const int V, __m512 acc[][WIDE], const gemm_xblock *x,
                   size_t ldx, const __m512 min[WIDE])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            acc[r][v] = _mm512_fnmadd_ps(min[v], _mm512_set1_ps(x[r * ldx].sum), acc[r][v]);
}

/* min times the sum of one half. */
TILE void take_half_min(const uint32_t rows, const int V, __m512 acc[][WIDE], const gemm_xblock *x,
                        size_t ldx, const __m512 min[WIDE], const int half)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        const __m512 sum = _mm512_set1_ps(gemm_half_sum(x + r * ldx, half));
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            acc[r][v] = _mm512_fnmadd_ps(min[v], sum, acc[r][v]);
    }
}

TILE void add_min(const uint32_t rows, const int V, __m512 acc[][WIDE], const gemm_xblock *x,
                  size_t ldx, const __m512 min[WIDE])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            acc[r][v] = _mm512_fmadd_ps(min[v], _mm512_set1_ps(x[r * ldx].sum), acc[r][v]);
}

/* A tile over t->depth steps of `groups` blocks of 32 k each. BLOCK computes block g of *step from
 * `at`, the first of the outputs, on, and adds it to acc. */
#define TILE_OF(name, groups, BLOCK)                                                               \
    TILE void tile_##name(const uint32_t rows, const int V, const gemm_tile *t, int v0)            \
    {                                                                                              \
        const gemm_xblock *x = t->x;                                                               \
        const gemm_##name##_step *step = t->w;                                                     \
        const size_t ldx = t->ldx;                                                                 \
        const int at = 16 * v0;                                                                    \
        __m512 acc[GEMM_TILE_ROWS][WIDE];                                                          \
        load_sums(rows, V, acc, t, v0);                                                            \
        for (uint32_t s = 0; s < t->depth; s++, step++)                                            \
            for (uint32_t g = 0; g < (groups); g++, x++) {                                         \
                __m512i sum[GEMM_TILE_ROWS][WIDE];                                                 \
                __m512 d[WIDE];                                                                    \
                prefetch(t, s, g, groups, sizeof *step, V, v0);                                    \
                BLOCK                                                                              \
            }                                                                                      \
        store_sums(rows, V, acc, t, v0);                                                           \
    }

#define START(type) start(rows, V, sum, x, ldx, type, 0);
#define FINISH      finish(rows, V, acc, sum, x, ldx, d);
#define D_F16(from) load_f16(V, d, (from) + at);

TILE_OF(q8_0, 1, START(GEMM_Q8_0) dot_q8(rows, V, sum, x, ldx, step->q[0] + at);
        D_F16(step->d) FINISH)

/* Nibbles or codes under one f16. */
#define BLOCK_OF_NIBBLES(type)                                                                     \
    START(type)                                                                                    \
    dot_nibbles(rows, V, sum, x, ldx, step->q[0] + at, type);                                      \
    D_F16(step->d)                                                                                 \
    FINISH
TILE_OF(q4_0, 1, BLOCK_OF_NIBBLES(GEMM_Q4_0))
TILE_OF(iq4_nl, 1, BLOCK_OF_NIBBLES(GEMM_IQ4_NL))
TILE_OF(q4_1, 1, BLOCK_OF_NIBBLES(GEMM_Q4_1) D_F16(step->m) add_min(rows, V, acc, x, ldx, d);)
TILE_OF(mxfp4, 1, START(GEMM_MXFP4) dot_nibbles(rows, V, sum, x, ldx, step->q[0] + at, GEMM_MXFP4);
        scale_e8(V, d, step->e + at); FINISH)

#define BLOCK_OF_FIVE(type)                                                                        \
    START(type)                                                                                    \
    dot_q5(rows, V, sum, x, ldx, step->q[0] + at, step->fifth + at);                               \
    D_F16(step->d)                                                                                 \
    FINISH
TILE_OF(q5_0, 1, BLOCK_OF_FIVE(GEMM_Q5_0))
TILE_OF(q5_1, 1, BLOCK_OF_FIVE(GEMM_Q5_1) D_F16(step->m) add_min(rows, V, acc, x, ldx, d);)

/* q4_K and q5_K: the products, scaled, and the minimum taken away. */
#define SCALE_AND_TAKE_MIN                                                                         \
    scale_f16(V, d, step->d + at, step->group[g].scale + at);                                      \
    FINISH                                                                                         \
    scale_f16(V, d, step->dmin + at, step->group[g].min + at);                                     \
    take_min(rows, V, acc, x, ldx, d);
TILE_OF(q4_k, GEMM_K_GROUPS,
        START(GEMM_Q4_K) dot_nibbles(rows, V, sum, x, ldx, step->group[g].q[0] + at, GEMM_Q4_K);
        SCALE_AND_TAKE_MIN)
TILE_OF(q5_k, GEMM_K_GROUPS,
        START(GEMM_Q5_K)
            dot_q5(rows, V, sum, x, ldx, step->group[g].q[0] + at, step->group[g].fifth + at);
        SCALE_AND_TAKE_MIN)
TILE_OF(iq4_xs, GEMM_K_GROUPS,
        START(GEMM_IQ4_XS) dot_nibbles(rows, V, sum, x, ldx, step->group[g].q[0] + at, GEMM_IQ4_XS);
        scale_signed(V, d, step->d + at, step->group[g].scale + at); FINISH)

/* Each half of a group by its own scale. */
#define EACH_HALF(type, ...)                                                                       \
    _Pragma("GCC unroll 2") for (int half = 0; half < 2; half++)                                   \
    {                                                                                              \
        start(rows, V, sum, x, ldx, type, half);                                                   \
        __VA_ARGS__                                                                                \
    }
TILE_OF(q6_k, GEMM_K_GROUPS,
        EACH_HALF(GEMM_Q6_K, dot_q6(rows, V, sum, x, ldx, step->group[g].q[half][0] + at, half);
                  scale_signed(V, d, step->d + at, step->group[g].scale[half] + at); FINISH))
TILE_OF(q3_k, GEMM_K_GROUPS,
        EACH_HALF(GEMM_Q3_K, dot_q2(rows, V, sum, x, ldx, step->group[g].low[half] + at,
                                    step->group[g].third + at, half);
                  scale_signed(V, d, step->d + at, step->group[g].scale[half] + at); FINISH))
TILE_OF(q2_k, GEMM_K_GROUPS,
        EACH_HALF(GEMM_Q2_K,
                  dot_q2(rows, V, sum, x, ldx, step->group[g].low[half] + at, NULL, half);
                  scale_nibble(V, d, step->d + at, step->group[g].scale[half] + at, 0);
                  FINISH scale_nibble(V, d, step->dmin + at, step->group[g].scale[half] + at, 4);
                  take_half_min(rows, V, acc, x, ldx, d, half);))

/* One kernel: the tile of `name` at every height. */
#define KERNEL(name)                                                                               \
    static void avx512_##name(const gemm_tile *t)                                                  \
    {                                                                                              \
        switch (t->rows) {                                                                         \
        case 1: tile_##name(1, WIDE, t, 0); break;                                                 \
        case 2: tile_##name(2, WIDE, t, 0); break;                                                 \
        case GEMM_LOW_ROWS: tile_##name(GEMM_LOW_ROWS, WIDE, t, 0); break;                         \
        case 4: tile_##name(4, HALF, t, HALF *(int)t->side); break;                                \
        case 5: tile_##name(5, HALF, t, HALF *(int)t->side); break;                                \
        default: tile_##name(6, HALF, t, HALF *(int)t->side); break;                               \
        }                                                                                          \
    }

GEMM_EACH_QUANT(KERNEL)

/* gemm_round_to_blocks for whole blocks, the same operations 16 at a time. */
static void round_row(const float *x, uint32_t k, gemm_xblock *dst)
{
    const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);
    for (; k >= GEMM_XBLOCK; k -= GEMM_XBLOCK, x += GEMM_XBLOCK, dst++) {
        __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
        uint32_t most = _mm512_reduce_max_epu32(
            _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low), no_sign),
                             _mm512_and_si512(_mm512_castps_si512(high), no_sign)));
        if (most >= 0x7f800000 || most < 0x0d800000) { /* not finite, or next to nothing */
            gemm_round_to_blocks(x, GEMM_XBLOCK, dst);
            continue;
        }
        __m512 up = _mm512_set1_ps(127.0f / f32_of_bits(most));
        __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(low, up));
        __m512i b = _mm512_cvtps_epi32(_mm512_mul_ps(high, up));
        __m256i q = _mm256_set_m128i(_mm512_cvtepi32_epi8(b), _mm512_cvtepi32_epi8(a));
        _mm256_storeu_si256((__m256i *)dst->q, q);
        /* Sums of four, of eight, of the sixteen of each half. */
        __m256i sum = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
        sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0x4e));
        sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0xb1));
        dst->d = f32_of_bits(most) / 127.0f;
        gemm_finish_block(dst, _mm256_extract_epi32(sum, 0), _mm256_extract_epi32(sum, 4));
    }
    gemm_round_to_blocks(x, k, dst);
}

#define FIELD(name) .name = avx512_##name,

const gemm_quant_isa gemm_quant_avx512vnni = {
    .two_sides = true, .round_row = round_row, GEMM_EACH_QUANT(FIELD)};
#else
const gemm_quant_isa gemm_quant_avx512vnni = {0}; /* not this architecture */
#endif
