/* gemm_quant_avx512vnni.c - VPDPBUSD: 64 products of bytes an instruction, four to a lane.
 *
 * A tile needs two sums an output, the block's integers and the chain in f32, so half as
 * many outputs fit as in gemm_tile_avx512.h: up to three rows go over the whole width of the
 * panel (decode reads every line once, in order), four to six over one half of it a
 * call. In a block of 32 an output costs 8 dot products, a conversion, a product of two
 * scales and an fma. */
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
    case GEMM_Q8_0: return x->start;
    case GEMM_Q4_0: return gemm_start_q4_0(x);
    case GEMM_Q6_K: return gemm_start_q6_k(x, half);
    case GEMM_MXFP4: return gemm_start_mxfp4(x);
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

/* A block of 32 nibbles: q points at this half's first row. */
TILE void dot_q4(const uint32_t rows, const int V, __m512i sum[][WIDE], const gemm_xblock *x,
                 size_t ldx, const uint32_t *q)
{
    const __m512i nibble = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (uint32_t g = 0; g < 4; g++) {
        __m512i w[WIDE], half[WIDE];
        load_words(V, w, q + g * GEMM_PANEL);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            half[v] = _mm512_and_si512(w[v], nibble);
        dot(rows, V, sum, x, ldx, 4 * g, half);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            half[v] = _mm512_and_si512(_mm512_srli_epi16(w[v], 4), nibble);
        dot(rows, V, sum, x, ldx, 16 + 4 * g, half);
    }
}

/* The same of codes: what they stand for, times 2 and moved up by GEMM_MXFP4_OFFSET. */
TILE void dot_mxfp4(const uint32_t rows, const int V, __m512i sum[][WIDE], const gemm_xblock *x,
                    size_t ldx, const uint32_t *q)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512i codes = _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
#pragma GCC unroll 4
    for (uint32_t g = 0; g < 4; g++) {
        __m512i w[WIDE], half[WIDE];
        load_words(V, w, q + g * GEMM_PANEL);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            half[v] = _mm512_shuffle_epi8(codes, _mm512_and_si512(w[v], nibble));
        dot(rows, V, sum, x, ldx, 4 * g, half);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            half[v] =
                _mm512_shuffle_epi8(codes, _mm512_and_si512(_mm512_srli_epi16(w[v], 4), nibble));
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

TILE void tile_q8_0(const uint32_t rows, const int V, const gemm_tile *t, int v0)
{
    const gemm_xblock *x = t->x;
    const gemm_q8_0_step *step = t->w;
    __m512 acc[GEMM_TILE_ROWS][WIDE];
    load_sums(rows, V, acc, t, v0);
    for (uint32_t s = 0; s < t->depth; s++, step++, x++) {
        __m512i sum[GEMM_TILE_ROWS][WIDE], w[WIDE];
        __m512 d[WIDE];
        prefetch(t, s, 0, 1, sizeof *step, V, v0);
        start(rows, V, sum, x, t->ldx, GEMM_Q8_0, 0);
#pragma GCC unroll 8
        for (uint32_t g = 0; g < 8; g++) {
            load_words(V, w, step->q[g] + 16 * v0);
            dot(rows, V, sum, x, t->ldx, 4 * g, w);
        }
        load_f16(V, d, step->d + 16 * v0);
        finish(rows, V, acc, sum, x, t->ldx, d);
    }
    store_sums(rows, V, acc, t, v0);
}

TILE void tile_q4_0(const uint32_t rows, const int V, const gemm_tile *t, int v0)
{
    const gemm_xblock *x = t->x;
    const gemm_q4_0_step *step = t->w;
    __m512 acc[GEMM_TILE_ROWS][WIDE];
    load_sums(rows, V, acc, t, v0);
    for (uint32_t s = 0; s < t->depth; s++, step++, x++) {
        __m512i sum[GEMM_TILE_ROWS][WIDE];
        __m512 d[WIDE];
        prefetch(t, s, 0, 1, sizeof *step, V, v0);
        start(rows, V, sum, x, t->ldx, GEMM_Q4_0, 0);
        dot_q4(rows, V, sum, x, t->ldx, step->q[0] + 16 * v0);
        load_f16(V, d, step->d + 16 * v0);
        finish(rows, V, acc, sum, x, t->ldx, d);
    }
    store_sums(rows, V, acc, t, v0);
}

TILE void tile_mxfp4(const uint32_t rows, const int V, const gemm_tile *t, int v0)
{
    const gemm_xblock *x = t->x;
    const gemm_mxfp4_step *step = t->w;
    __m512 acc[GEMM_TILE_ROWS][WIDE];
    load_sums(rows, V, acc, t, v0);
    for (uint32_t s = 0; s < t->depth; s++, step++, x++) {
        __m512i sum[GEMM_TILE_ROWS][WIDE];
        __m512 d[WIDE];
        prefetch(t, s, 0, 1, sizeof *step, V, v0);
        start(rows, V, sum, x, t->ldx, GEMM_MXFP4, 0);
        dot_mxfp4(rows, V, sum, x, t->ldx, step->q[0] + 16 * v0);
        scale_e8(V, d, step->e + 16 * v0);
        finish(rows, V, acc, sum, x, t->ldx, d);
    }
    store_sums(rows, V, acc, t, v0);
}

TILE void tile_q4_k(const uint32_t rows, const int V, const gemm_tile *t, int v0)
{
    const gemm_xblock *x = t->x;
    const gemm_q4_k_step *step = t->w;
    __m512 acc[GEMM_TILE_ROWS][WIDE];
    load_sums(rows, V, acc, t, v0);
    for (uint32_t s = 0; s < t->depth; s++, step++) {
        for (uint32_t j = 0; j < GEMM_K_GROUPS; j++, x++) {
            __m512i sum[GEMM_TILE_ROWS][WIDE];
            __m512 d[WIDE];
            prefetch(t, s, j, GEMM_K_GROUPS, sizeof *step, V, v0);
            start(rows, V, sum, x, t->ldx, GEMM_Q4_K, 0);
            dot_q4(rows, V, sum, x, t->ldx, step->group[j].q[0] + 16 * v0);
            scale_f16(V, d, step->d + 16 * v0, step->group[j].scale + 16 * v0);
            finish(rows, V, acc, sum, x, t->ldx, d);
            scale_f16(V, d, step->dmin + 16 * v0, step->group[j].min + 16 * v0);
            take_min(rows, V, acc, x, t->ldx, d);
        }
    }
    store_sums(rows, V, acc, t, v0);
}

TILE void tile_q5_k(const uint32_t rows, const int V, const gemm_tile *t, int v0)
{
    const gemm_xblock *x = t->x;
    const gemm_q5_k_step *step = t->w;
    __m512 acc[GEMM_TILE_ROWS][WIDE];
    load_sums(rows, V, acc, t, v0);
    for (uint32_t s = 0; s < t->depth; s++, step++) {
        for (uint32_t j = 0; j < GEMM_K_GROUPS; j++, x++) {
            __m512i sum[GEMM_TILE_ROWS][WIDE];
            __m512 d[WIDE];
            prefetch(t, s, j, GEMM_K_GROUPS, sizeof *step, V, v0);
            start(rows, V, sum, x, t->ldx, GEMM_Q5_K, 0);
            dot_q5(rows, V, sum, x, t->ldx, step->group[j].q[0] + 16 * v0,
                   step->group[j].fifth + 16 * v0);
            scale_f16(V, d, step->d + 16 * v0, step->group[j].scale + 16 * v0);
            finish(rows, V, acc, sum, x, t->ldx, d);
            scale_f16(V, d, step->dmin + 16 * v0, step->group[j].min + 16 * v0);
            take_min(rows, V, acc, x, t->ldx, d);
        }
    }
    store_sums(rows, V, acc, t, v0);
}

TILE void tile_q6_k(const uint32_t rows, const int V, const gemm_tile *t, int v0)
{
    const gemm_xblock *x = t->x;
    const gemm_q6_k_step *step = t->w;
    __m512 acc[GEMM_TILE_ROWS][WIDE];
    load_sums(rows, V, acc, t, v0);
    for (uint32_t s = 0; s < t->depth; s++, step++) {
        for (uint32_t j = 0; j < GEMM_K_GROUPS; j++, x++) {
            prefetch(t, s, j, GEMM_K_GROUPS, sizeof *step, V, v0);
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                __m512i sum[GEMM_TILE_ROWS][WIDE];
                __m512 d[WIDE];
                start(rows, V, sum, x, t->ldx, GEMM_Q6_K, half);
                dot_q6(rows, V, sum, x, t->ldx, step->group[j].q[half][0] + 16 * v0, half);
                scale_signed(V, d, step->d + 16 * v0, step->group[j].scale[half] + 16 * v0);
                finish(rows, V, acc, sum, x, t->ldx, d);
            }
        }
    }
    store_sums(rows, V, acc, t, v0);
}

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

KERNEL(q8_0)
KERNEL(q4_0)
KERNEL(mxfp4)
KERNEL(q4_k)
KERNEL(q5_k)
KERNEL(q6_k)

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

const gemm_quant_isa gemm_quant_avx512vnni = {.q8_0 = avx512_q8_0,
                                              .q4_0 = avx512_q4_0,
                                              .mxfp4 = avx512_mxfp4,
                                              .q4_k = avx512_q4_k,
                                              .q5_k = avx512_q5_k,
                                              .q6_k = avx512_q6_k,
                                              .two_sides = true,
                                              .round_row = round_row};
#else
const gemm_quant_isa gemm_quant_avx512vnni = {0}; /* not this architecture */
#endif
