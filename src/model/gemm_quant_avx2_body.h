/* gemm_quant_avx2_body.h - the quantised kernels over vectors of 256 bits, of gemm_quant_avx2.c and
 * gemm_quant_avxvnni.c. A file that includes this is compiled for AVX2, FMA and F16C.
 *
 * Without integer dot products VPMADDUBSW makes two products of bytes a 16-bit lane, and VPMADDWD
 * adds the pairs. Two products must fit into 16 bits with a sign, and where more of them do, they
 * are added there: eight pairs of q4 (8 * 2 * 15 * 127 = 30,480), four of q5 (31,496), mxfp4
 * (24,384), q3_K (7,112) and q2_K, two of q6_K (32,004). Of q8_0 and iq4, moved up by 128, not even
 * one would: so the sign goes from w over to x, 2 * 128 * 127 fits, and the sum starts at 0.
 *
 * AVX-VNNI's VPDPBUSD adds four products of an unsigned by a signed byte to 32 bits: no pairs, and
 * q8_0 and iq4 are multiplied as they are, moved up. Either way the integers are the ones of
 * gemm_quant.h.
 *
 * A tile is one row x 32 outputs, 2 to 4 rows x 16 (q8_0: 4 x 8) or 5 and 6 rows x 8 (a column);
 * with VPDPBUSD one row x 64 or 2 to 4 x 16, since its sums wait for each other for longer.
 * One that no other shares the panel with takes its columns in turn every few KB (a burst) and asks
 * for what lies 8 KB further on, as in gemm_avx2.c; else columns go over the whole chunk. */
#ifndef MODEL_GEMM_QUANT_AVX2_BODY_H
#define MODEL_GEMM_QUANT_AVX2_BODY_H

#include "gguf/quant.h"
#include "model/gemm_kernels.h"

#include <immintrin.h>

#define TILE static inline __attribute__((always_inline))

enum { LANES = 8, MOST_VECTORS = 8, BURST_BYTES = 4 << 10 };

#if defined(__AVXVNNI__)
enum { VNNI = 1 };
#define UNROLL_WORDS _Pragma("GCC unroll 4")
#else
enum { VNNI = 0 };
#define UNROLL_WORDS                                                                               \
    _Pragma("GCC unroll 1") /* else sums of five and six rows leave the registers */
#endif

/* What step `s` asks for: of a tile alone, part `part` of `parts` of a step further on (one
 * instruction that walks); else with the column's first part its share of the next chunk. */
TILE void prefetch(const gemm_tile *t, uint32_t s, uint32_t j, const int V, uint32_t g,
                   const uint32_t groups, const size_t step_bytes)
{
    if (t->ahead_stride == step_bytes) {
        const uint32_t parts = groups * GEMM_PANEL / (LANES * (uint32_t)V);
        const size_t some = (step_bytes / 64 + parts - 1) / parts * 64;
        const uint32_t at = s + gemm_near_steps(step_bytes);
        const char *ahead = at < t->depth ? (const char *)t->w + at * step_bytes
                                          : t->ahead + (at - t->depth) * step_bytes;
        const size_t from = (j / (LANES * (uint32_t)V) * groups + g) * some;
        const size_t to = RAD_MIN(from + some, step_bytes);
#pragma GCC unroll 1
        for (size_t i = from; i < to; i += 64)
            _mm_prefetch(ahead + i, _MM_HINT_T0);
    } else if (!g) {
        const char *ahead = t->ahead + s * t->ahead_stride;
        const size_t columns = GEMM_PANEL / (LANES * (size_t)V);
#pragma GCC unroll 1
        for (size_t i = j / (LANES * (uint32_t)V) * 64; i < t->ahead_stride; i += columns * 64)
            _mm_prefetch(ahead + i, _MM_HINT_T1);
    }
}

TILE __m256i load_words(const uint32_t *words)
{
    return _mm256_loadu_si256((const __m256i *)words);
}

TILE __m256i four_of(const gemm_xblock *x, uint32_t at)
{
    int32_t word;
    memcpy(&word, x->q + at, sizeof word);
    return _mm256_set1_epi32(word);
}

/* Every sum of a tile starts at `value`, which may name the row's block, `row`. */
#define START(value)                                                                               \
    _Pragma("GCC unroll 6") for (uint32_t r = 0; r < rows; r++)                                    \
    {                                                                                              \
        const gemm_xblock *row = x + r * ldx;                                                      \
        (void)row;                                                                                 \
        _Pragma("GCC unroll 8") for (int v = 0; v < V; v++) sum[r][v] = _mm256_set1_epi32(value);  \
    }

TILE __m256i add_products(__m256i to, __m256i w, __m256i x)
{
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(to, w, x);
#else
    return _mm256_add_epi16(to, _mm256_maddubs_epi16(w, x));
#endif
}

/* pairs[r][v] += products of word `at` of each row's block with w[v]: bytes without a sign that
 * are small enough. With VPDPBUSD these are the sums themselves. */
TILE void add_pairs(const uint32_t rows, const int V, __m256i pairs[][MOST_VECTORS],
                    const gemm_xblock *x, size_t ldx, uint32_t at, const __m256i w[MOST_VECTORS])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        const __m256i four = four_of(x + r * ldx, at);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            pairs[r][v] = add_products(pairs[r][v], w[v], four);
    }
}

TILE void no_pairs(const uint32_t rows, const int V, __m256i pairs[][MOST_VECTORS])
{
    if (VNNI) return;
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            pairs[r][v] = _mm256_setzero_si256();
}

/* The pairs so far go to the sums, before they get too large. */
TILE void flush(const uint32_t rows, const int V, __m256i sum[][MOST_VECTORS],
                __m256i pairs[][MOST_VECTORS])
{
    if (VNNI) return;
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            sum[r][v] =
                _mm256_add_epi32(sum[r][v], _mm256_madd_epi16(pairs[r][v], _mm256_set1_epi16(1)));
        }
    no_pairs(rows, V, pairs);
}

/* The same of bytes with a sign, one word at a time; for VPDPBUSD they are moved up by 128, and the
 * sums have to start at the block's `start`. */
TILE void add_signed(const uint32_t rows, const int V, __m256i sum[][MOST_VECTORS],
                     const gemm_xblock *x, size_t ldx, uint32_t at, const __m256i w[MOST_VECTORS])
{
    if (VNNI) {
        add_pairs(rows, V, sum, x, ldx, at, w);
        return;
    }
    __m256i size[MOST_VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < V; v++)
        size[v] = _mm256_abs_epi8(w[v]);
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        const __m256i four = four_of(x + r * ldx, at);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            __m256i pairs = _mm256_maddubs_epi16(size[v], _mm256_sign_epi8(four, w[v]));
            sum[r][v] = _mm256_add_epi32(sum[r][v], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        }
    }
}

TILE void dot_q8_0(const uint32_t rows, const int V, __m256i sum[][MOST_VECTORS],
                   const gemm_xblock *x, size_t ldx, const uint32_t *q)
{
    START(VNNI ? row->start : 0)
    UNROLL_WORDS
    for (uint32_t g = 0; g < 8; g++) {
        __m256i w[MOST_VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            w[v] = _mm256_xor_si256(load_words(q + g * GEMM_PANEL + LANES * v),
                                    _mm256_set1_epi8(VNNI ? 0 : -128));
        add_signed(rows, V, sum, x, ldx, 4 * g, w);
    }
}

TILE __m256i table_of(const int8_t codes[16])
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)codes));
}

TILE void dot_iq4(const uint32_t rows, const int V, __m256i sum[][MOST_VECTORS],
                  const gemm_xblock *x, size_t ldx, const uint32_t *q)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i codes =
        _mm256_xor_si256(table_of(ggml_iq4_codes), _mm256_set1_epi8(VNNI ? -128 : 0));
    START(VNNI ? row->start : 0)
    UNROLL_WORDS
    for (uint32_t g = 0; g < 4; g++) {
        __m256i w[MOST_VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            w[v] = _mm256_shuffle_epi8(
                codes, _mm256_and_si256(load_words(q + g * GEMM_PANEL + LANES * v), nibble));
        add_signed(rows, V, sum, x, ldx, 4 * g, w);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            __m256i high = _mm256_srli_epi16(load_words(q + g * GEMM_PANEL + LANES * v), 4);
            w[v] = _mm256_shuffle_epi8(codes, _mm256_and_si256(high, nibble));
        }
        add_signed(rows, V, sum, x, ldx, 16 + 4 * g, w);
    }
}

/* A block of 32 nibbles, of the type's kind. How many words of x's block are added up as pairs
 * before they are flushed: all eight of q4, half of them where numbers are larger. */
typedef enum nibbles { Q4, Q5, MXFP4 } nibbles;

/* Words g and g + 4 of x's block, by the halves of word g of the weight's. */
TILE void add_nibbles(const uint32_t rows, const int V, __m256i pairs[][MOST_VECTORS],
                      const gemm_xblock *x, size_t ldx, const uint32_t *q, const uint32_t *fifth,
                      const nibbles kind, uint32_t g)
{
    const __m256i nibble = _mm256_set1_epi8(15), bit = _mm256_set1_epi8(16);
    const __m256i codes =
        _mm256_add_epi8(table_of(ggml_mxfp4_codes), _mm256_set1_epi8(GEMM_MXFP4_OFFSET));
    __m256i low[MOST_VECTORS], high[MOST_VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
        __m256i both = load_words(q + g * GEMM_PANEL + LANES * v);
        low[v] = _mm256_and_si256(both, nibble);
        high[v] = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
        if (kind == MXFP4) {
            low[v] = _mm256_shuffle_epi8(codes, low[v]);
            high[v] = _mm256_shuffle_epi8(codes, high[v]);
        }
        if (kind == Q5) {
            __m256i bits = load_words(fifth + LANES * v);
            __m256i first = _mm256_sll_epi32(bits, _mm_cvtsi32_si128((int)(4 - g)));
            __m256i second = _mm256_srl_epi32(bits, _mm_cvtsi32_si128((int)g));
            low[v] = _mm256_or_si256(low[v], _mm256_and_si256(first, bit));
            high[v] = _mm256_or_si256(high[v], _mm256_and_si256(second, bit));
        }
    }
    add_pairs(rows, V, pairs, x, ldx, 4 * g, low);
    add_pairs(rows, V, pairs, x, ldx, 16 + 4 * g, high);
}

TILE void dot_nibbles(const uint32_t rows, const int V, __m256i sum[][MOST_VECTORS],
                      const gemm_xblock *x, size_t ldx, const uint32_t *q, const uint32_t *fifth,
                      const nibbles kind)
{
    __m256i own[GEMM_TILE_ROWS][MOST_VECTORS], (*const pairs)[MOST_VECTORS] = VNNI ? sum : own;
    no_pairs(rows, V, pairs);
    if (kind == Q5) { /* shifts by constants are worth more than what leaves the registers */
#pragma GCC unroll 4
        for (uint32_t g = 0; g < 4; g++) {
            add_nibbles(rows, V, pairs, x, ldx, q, fifth, kind, g);
            if (g == 1) flush(rows, V, sum, pairs);
        }
    } else {
        UNROLL_WORDS
        for (uint32_t g = 0; g < 4; g++) {
            add_nibbles(rows, V, pairs, x, ldx, q, fifth, kind, g);
            if (kind == MXFP4 && g == 1) flush(rows, V, sum, pairs);
        }
    }
    flush(rows, V, sum, pairs);
}

/* The fourth word of half a group of q6_K, out of the upper bits of the three. */
TILE __m256i last_of_q6(const uint32_t *q)
{
    __m256i a = _mm256_srli_epi32(load_words(q), 6);
    __m256i b = _mm256_srli_epi32(load_words(q + GEMM_PANEL), 4);
    __m256i c = _mm256_srli_epi32(load_words(q + 2 * GEMM_PANEL), 2);
    return _mm256_or_si256(_mm256_and_si256(a, _mm256_set1_epi8(3)),
                           _mm256_or_si256(_mm256_and_si256(b, _mm256_set1_epi8(12)),
                                           _mm256_and_si256(c, _mm256_set1_epi8(48))));
}

TILE void dot_q6_k(const uint32_t rows, const int V, __m256i sum[][MOST_VECTORS],
                   const gemm_xblock *x, size_t ldx, const uint32_t *q, const int half)
{
    __m256i own[GEMM_TILE_ROWS][MOST_VECTORS], (*const pairs)[MOST_VECTORS] = VNNI ? sum : own;
    START(gemm_start_q6_k(row, half))
    no_pairs(rows, V, pairs);
#pragma GCC unroll 8
    for (uint32_t g = 0; g < 4; g++) {
        __m256i w[MOST_VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            w[v] = g == 3 ? last_of_q6(q + LANES * v)
                          : _mm256_and_si256(load_words(q + g * GEMM_PANEL + LANES * v),
                                             _mm256_set1_epi8(63));
        add_pairs(rows, V, pairs, x, ldx, 16 * (uint32_t)half + 4 * g, w);
        if (g == 1) flush(rows, V, sum, pairs);
    }
    flush(rows, V, sum, pairs);
}

/* Half a group of two bits, with third bits above them where `third` is not NULL. */
TILE void dot_q2(const uint32_t rows, const int V, __m256i sum[][MOST_VECTORS],
                 const gemm_xblock *x, size_t ldx, const uint32_t *low, const uint32_t *third,
                 const int half)
{
    const __m256i two = _mm256_set1_epi8(3), bit = _mm256_set1_epi8(4);
    __m256i own[GEMM_TILE_ROWS][MOST_VECTORS], (*const pairs)[MOST_VECTORS] = VNNI ? sum : own;
    no_pairs(rows, V, pairs);
#pragma GCC unroll 8
    for (int g = 0; g < 4; g++) {
        const int up = 2 - 4 * half - g; /* where the third bit of g has to go */
        __m256i w[MOST_VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            w[v] = _mm256_and_si256(_mm256_srli_epi32(load_words(low + LANES * v), 2 * g), two);
            if (!third) continue;
            __m256i above = load_words(third + LANES * v);
            above = up > 0 ? _mm256_slli_epi32(above, up) : _mm256_srli_epi32(above, -up);
            w[v] = _mm256_or_si256(w[v], _mm256_and_si256(above, bit));
        }
        add_pairs(rows, V, pairs, x, ldx, 16 * (uint32_t)half + 4 * (uint32_t)g, w);
    }
    flush(rows, V, sum, pairs);
}

TILE __m256 load_f16(const uint16_t *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
}

TILE __m256 scale_f16(const uint16_t *from, const uint8_t *by)
{
    __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)by));
    return _mm256_mul_ps(load_f16(from), _mm256_cvtepi32_ps(wide));
}

TILE __m256 scale_signed(const uint16_t *from, const int8_t *by)
{
    __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)by));
    return _mm256_mul_ps(load_f16(from), _mm256_cvtepi32_ps(wide));
}

/* With the low halves of the bytes, or (`down` 4) the high ones. */
TILE __m256 scale_nibble(const uint16_t *from, const uint8_t *by, const int down)
{
    __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)by));
    wide = _mm256_and_si256(_mm256_srli_epi32(wide, down), _mm256_set1_epi32(15));
    return _mm256_mul_ps(load_f16(from), _mm256_cvtepi32_ps(wide));
}

/* 2^(e - 128), also where that is no normal number. */
TILE __m256 scale_e8(const uint8_t *e)
{
    __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)e));
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(wide, _mm256_set1_epi32(1)), 23);
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), wide);
    __m256i is_normal = _mm256_cmpgt_epi32(wide, _mm256_set1_epi32(1));
    return _mm256_castsi256_ps(_mm256_blendv_epi8(small, normal, is_normal));
}

/* One fma a block adds its sum; d: of w, of each vector. */
TILE void finish(const uint32_t rows, const int V, __m256 acc[][MOST_VECTORS],
                 __m256i sum[][MOST_VECTORS], const gemm_xblock *x, size_t ldx,
                 const __m256 d[MOST_VECTORS])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        const __m256 dx = _mm256_set1_ps(x[r * ldx].d);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            acc[r][v] =
                _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][v]), _mm256_mul_ps(d[v], dx), acc[r][v]);
    }
}

TILE void take_min(const uint32_t rows, const int V, __m256 acc[][MOST_VECTORS],
                   const gemm_xblock *x, size_t ldx, const __m256 min[MOST_VECTORS])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        const __m256 total = _mm256_set1_ps(x[r * ldx].sum);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            acc[r][v] = _mm256_fnmadd_ps(min[v], total, acc[r][v]);
    }
}

TILE void load_sums(const uint32_t rows, const int V, __m256 acc[][MOST_VECTORS],
                    const gemm_tile *t, uint32_t j, bool fresh)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            acc[r][v] = fresh ? _mm256_setzero_ps()
                              : _mm256_loadu_ps(t->c + r * t->ldc + j + LANES * v);
}

TILE void store_sums(const uint32_t rows, const int V, __m256 acc[][MOST_VECTORS],
                     const gemm_tile *t, uint32_t j)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            _mm256_storeu_ps(t->c + r * t->ldc + j + LANES * v, acc[r][v]);
}

#define EACH_SCALE(value) _Pragma("GCC unroll 8") for (int v = 0; v < V; v++) d[v] = value

/* min times the sum of one half. */
TILE void take_half_min(const uint32_t rows, const int V, __m256 acc[][MOST_VECTORS],
                        const gemm_xblock *x, size_t ldx, const __m256 min[MOST_VECTORS],
                        const int half)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        const __m256 total = _mm256_set1_ps(gemm_half_sum(x + r * ldx, half));
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            acc[r][v] = _mm256_fnmadd_ps(min[v], total, acc[r][v]);
    }
}

TILE void add_min(const uint32_t rows, const int V, __m256 acc[][MOST_VECTORS],
                  const gemm_xblock *x, size_t ldx, const __m256 min[MOST_VECTORS])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        const __m256 total = _mm256_set1_ps(x[r * ldx].sum);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            acc[r][v] = _mm256_fmadd_ps(min[v], total, acc[r][v]);
    }
}

/* Steps [from, to) of the column that begins at output j, of `groups` blocks of 32 k each. BLOCK
 * computes block g of *step and adds it to acc. */
#define COLUMN_OF(name, groups, BLOCK)                                                             \
    TILE void column_##name(const uint32_t rows, const int V, const gemm_tile *t, uint32_t j,      \
                            uint32_t from, uint32_t to)                                            \
    {                                                                                              \
        const gemm_##name##_step *step = (const gemm_##name##_step *)t->w + from;                  \
        const gemm_xblock *x = (const gemm_xblock *)t->x + (size_t)from * (groups);                \
        const size_t ldx = t->ldx;                                                                 \
        __m256 acc[GEMM_TILE_ROWS][MOST_VECTORS];                                                  \
        load_sums(rows, V, acc, t, j, t->fresh && !from);                                          \
        for (uint32_t s = from; s < to; s++, step++)                                               \
            for (uint32_t g = 0; g < (groups); g++, x++) {                                         \
                __m256i sum[GEMM_TILE_ROWS][MOST_VECTORS];                                         \
                __m256 d[MOST_VECTORS];                                                            \
                prefetch(t, s, j, V, g, groups, sizeof *step);                                     \
                BLOCK                                                                              \
            }                                                                                      \
        store_sums(rows, V, acc, t, j);                                                            \
    }

#define FINISH                                                                                     \
    EACH_SCALE(load_f16(step->d + j + LANES * v));                                                 \
    finish(rows, V, acc, sum, x, ldx, d);
#define ADD_MIN                                                                                    \
    EACH_SCALE(load_f16(step->m + j + LANES * v));                                                 \
    add_min(rows, V, acc, x, ldx, d);
#define DOT_NIBBLES(begin, of, fifth, kind)                                                        \
    START(begin)                                                                                   \
    dot_nibbles(rows, V, sum, x, ldx, (of)->q[0] + j, fifth, kind);

COLUMN_OF(q8_0, 1, dot_q8_0(rows, V, sum, x, ldx, step->q[0] + j); FINISH)
COLUMN_OF(q4_0, 1, DOT_NIBBLES(gemm_start_q4_0(row), step, NULL, Q4) FINISH)
COLUMN_OF(q4_1, 1, DOT_NIBBLES(0, step, NULL, Q4) FINISH ADD_MIN)
COLUMN_OF(q5_0, 1, DOT_NIBBLES(gemm_start_q5_0(row), step, step->fifth + j, Q5) FINISH)
COLUMN_OF(q5_1, 1, DOT_NIBBLES(0, step, step->fifth + j, Q5) FINISH ADD_MIN)
COLUMN_OF(iq4_nl, 1, dot_iq4(rows, V, sum, x, ldx, step->q[0] + j); FINISH)
COLUMN_OF(mxfp4, 1,
          DOT_NIBBLES(gemm_start_mxfp4(row), step, NULL, MXFP4)
              EACH_SCALE(scale_e8(step->e + j + LANES * v));
          finish(rows, V, acc, sum, x, ldx, d);)

#define FINISH_SIGNED(of)                                                                          \
    EACH_SCALE(scale_signed(step->d + j + LANES * v, (of) + j + LANES * v));                       \
    finish(rows, V, acc, sum, x, ldx, d);
/* q4_K and q5_K: the products, scaled, and the minimum taken away. */
#define FINISH_AND_TAKE_MIN                                                                        \
    EACH_SCALE(scale_f16(step->d + j + LANES * v, step->group[g].scale + j + LANES * v));          \
    finish(rows, V, acc, sum, x, ldx, d);                                                          \
    EACH_SCALE(scale_f16(step->dmin + j + LANES * v, step->group[g].min + j + LANES * v));         \
    take_min(rows, V, acc, x, ldx, d);
/* q6_K, q3_K and q2_K: each half by its own scale. */
#define EACH_HALF(...)                                                                             \
    _Pragma("GCC unroll 2") for (int half = 0; half < 2; half++)                                   \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define NIBBLE(of, down)                                                                           \
    scale_nibble((of) + j + LANES * v, step->group[g].scale[half] + j + LANES * v, down)

COLUMN_OF(q4_k, GEMM_K_GROUPS, DOT_NIBBLES(0, &step->group[g], NULL, Q4) FINISH_AND_TAKE_MIN)
COLUMN_OF(q5_k, GEMM_K_GROUPS,
          DOT_NIBBLES(0, &step->group[g], step->group[g].fifth + j, Q5) FINISH_AND_TAKE_MIN)
COLUMN_OF(iq4_xs, GEMM_K_GROUPS, dot_iq4(rows, V, sum, x, ldx, step->group[g].q[0] + j);
          FINISH_SIGNED(step->group[g].scale))
COLUMN_OF(q6_k, GEMM_K_GROUPS,
          EACH_HALF(dot_q6_k(rows, V, sum, x, ldx, step->group[g].q[half][0] + j, half);
                    FINISH_SIGNED(step->group[g].scale[half])))
COLUMN_OF(q3_k, GEMM_K_GROUPS,
          EACH_HALF(START(gemm_start_q3_k(row, half))
                        dot_q2(rows, V, sum, x, ldx, step->group[g].low[half] + j,
                               step->group[g].third + j, half);
                    FINISH_SIGNED(step->group[g].scale[half])))
COLUMN_OF(q2_k, GEMM_K_GROUPS,
          EACH_HALF(START(0) dot_q2(rows, V, sum, x, ldx, step->group[g].low[half] + j, NULL, half);
                    EACH_SCALE(NIBBLE(step->d, 0)); finish(rows, V, acc, sum, x, ldx, d);
                    EACH_SCALE(NIBBLE(step->dmin, 4));
                    take_half_min(rows, V, acc, x, ldx, d, half);))

/* The tile without its first three rows; what comes next is fetched by these. */
TILE gemm_tile three_rows_below(const gemm_tile *t)
{
    gemm_tile below = *t;
    below.x = (const gemm_xblock *)t->x + 3 * t->ldx;
    below.c = t->c + 3 * t->ldc;
    below.ahead_stride = 0;
    return below;
}

/* One kernel: its columns at every height; V4: how wide they are for four rows. */
#define COLUMNS(name, rows, V)                                                                     \
    for (uint32_t j = 0; j < GEMM_PANEL; j += LANES * V)                                           \
        column_##name(rows, V, t, j, from, to);                                                    \
    break
/* Three rows and then the rest over each column: of more rows the sums leave no register free, or
 * each product has to load its factor. */
#define BY_THREES(name, rest)                                                                      \
    {                                                                                              \
        const gemm_tile below = three_rows_below(t);                                               \
        for (uint32_t j = 0; j < GEMM_PANEL; j += LANES * 2) {                                     \
            column_##name(3, 2, t, j, from, to);                                                   \
            column_##name(rest, 2, &below, j, from, to);                                           \
        }                                                                                          \
        break;                                                                                     \
    }
#define KERNEL(name, V4)                                                                           \
    static void tile_##name(const gemm_tile *t)                                                    \
    {                                                                                              \
        const size_t bytes = sizeof(gemm_##name##_step);                                           \
        const uint32_t burst = t->ahead_stride == bytes                                            \
                                   ? (uint32_t)RAD_MAX(BURST_BYTES / bytes, (size_t)1)             \
                                   : t->depth;                                                     \
        for (uint32_t from = 0, to; from < t->depth; from = to) {                                  \
            to = RAD_MIN(t->depth, from + burst);                                                  \
            switch (t->rows) {                                                                     \
            case 1: COLUMNS(name, 1, (VNNI ? 8 : 4));                                              \
            case 2: COLUMNS(name, 2, 2);                                                           \
            case 3: COLUMNS(name, 3, 2);                                                           \
            case 4: COLUMNS(name, 4, (VNNI ? 2 : V4));                                             \
            case 5:                                                                                \
                if (VNNI) BY_THREES(name, 2);                                                      \
                COLUMNS(name, 5, 1);                                                               \
            default:                                                                               \
                if (VNNI) BY_THREES(name, 3);                                                      \
                COLUMNS(name, 6, 1);                                                               \
            }                                                                                      \
        }                                                                                          \
    }

KERNEL(q8_0, 1)
KERNEL(q4_0, 2)
KERNEL(q4_1, 2)
KERNEL(q5_0, 2)
KERNEL(q5_1, 2)
KERNEL(iq4_nl, 1)
KERNEL(mxfp4, 2)
KERNEL(q2_k, 2)
KERNEL(q3_k, 2)
KERNEL(q4_k, 2)
KERNEL(q5_k, 2)
KERNEL(q6_k, 2)
KERNEL(iq4_xs, 1)

/* gemm_round_to_blocks for whole blocks, the same operations 8 at a time. */
static void round_row(const float *x, uint32_t k, gemm_xblock *dst)
{
    const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
    for (; k >= GEMM_XBLOCK; k -= GEMM_XBLOCK, x += GEMM_XBLOCK, dst++) {
        __m256 part[4];
        __m256i size[4], q[4];
#pragma GCC unroll 8
        for (int i = 0; i < 4; i++) {
            part[i] = _mm256_loadu_ps(x + LANES * i);
            size[i] = _mm256_and_si256(_mm256_castps_si256(part[i]), no_sign);
        }
        size[0] = _mm256_max_epu32(_mm256_max_epu32(size[0], size[1]),
                                   _mm256_max_epu32(size[2], size[3]));
        __m128i four =
            _mm_max_epu32(_mm256_castsi256_si128(size[0]), _mm256_extracti128_si256(size[0], 1));
        four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
        four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
        const uint32_t most = (uint32_t)_mm_cvtsi128_si32(four);
        if (most >= 0x7f800000 || most < 0x0d800000) { /* not finite, or next to nothing */
            gemm_round_to_blocks(x, GEMM_XBLOCK, dst);
            continue;
        }
        const __m256 up = _mm256_set1_ps(127.0f / f32_of_bits(most));
#pragma GCC unroll 8
        for (int i = 0; i < 4; i++)
            q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(part[i], up));
        __m256i bytes =
            _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256((__m256i *)dst->q, bytes);
        /* Sums of four, of eight, of the sixteen of each half. */
        __m256i sum = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes),
                                        _mm256_set1_epi16(1));
        sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0x4e));
        sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0xb1));
        dst->d = f32_of_bits(most) / 127.0f;
        gemm_finish_block(dst, _mm256_extract_epi32(sum, 0), _mm256_extract_epi32(sum, 4));
    }
    gemm_round_to_blocks(x, k, dst);
}

#define FIELD(name) .name = tile_##name,
#define GEMM_QUANT_ISA                                                                             \
    {                                                                                              \
        .round_row = round_row, GEMM_EACH_QUANT(FIELD)                                             \
    }

#endif
