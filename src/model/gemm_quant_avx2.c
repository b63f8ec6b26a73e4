/* gemm_quant_avx2.c - quantised kernels without integer dot products: VPMADDUBSW makes two
 * products of bytes a 16-bit lane, and VPMADDWD adds the pairs.
 *
 * Two products must fit into 16 bits with a sign. Those of q4 do: 2 * 15 * 127; those of q5_K
 * and q6_K: 2 * 63 * 127. Those of q8_0, moved up by 128, would not: so the sign goes from w
 * over to x, 2 * 128 * 127 fits, and the sum starts at 0. Either way the integers are the ones
 * of gemm_quant.h.
 *
 * A tile is up to 6 rows x 8 outputs; the panel is eight such columns. */
#include "model/gemm_kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>

#define TILE static inline __attribute__((always_inline))

enum { COLUMN = 8 };

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

TILE __m256i add_products(__m256i sum, __m256i w, __m256i x)
{
    __m256i pairs = _mm256_maddubs_epi16(w, x);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

TILE void dot_q8(const uint32_t rows, __m256i sum[], const gemm_xblock *x, size_t ldx,
                 const uint32_t *q)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
        sum[r] = _mm256_setzero_si256();
    for (uint32_t g = 0; g < 8; g++) {
        __m256i w = _mm256_xor_si256(load_words(q + g * GEMM_PANEL), _mm256_set1_epi8(-128));
        __m256i size = _mm256_abs_epi8(w);
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++)
            sum[r] = add_products(sum[r], size, _mm256_sign_epi8(four_of(x + r * ldx, 4 * g), w));
    }
}

/* Word g of the low halves of x's blocks, and of the high ones. */
TILE void add_halves(const uint32_t rows, __m256i sum[], const gemm_xblock *x, size_t ldx,
                     uint32_t g, __m256i low, __m256i high)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        sum[r] = add_products(sum[r], low, four_of(x + r * ldx, 4 * g));
        sum[r] = add_products(sum[r], high, four_of(x + r * ldx, 16 + 4 * g));
    }
}

/* Adds to the sums; they start at 0 but for q4_0. */
TILE void dot_q4(const uint32_t rows, __m256i sum[], const gemm_xblock *x, size_t ldx,
                 const uint32_t *q)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    for (uint32_t g = 0; g < 4; g++) {
        __m256i both = load_words(q + g * GEMM_PANEL), low = _mm256_and_si256(both, nibble);
        __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
        add_halves(rows, sum, x, ldx, g, low, high);
    }
}

/* What the codes stand for, times 2 and moved up by GEMM_MXFP4_OFFSET. */
TILE void dot_mxfp4(const uint32_t rows, __m256i sum[], const gemm_xblock *x, size_t ldx,
                    const uint32_t *q)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i codes = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    for (uint32_t g = 0; g < 4; g++) {
        __m256i both = load_words(q + g * GEMM_PANEL), low = _mm256_and_si256(both, nibble);
        __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
        add_halves(rows, sum, x, ldx, g, _mm256_shuffle_epi8(codes, low),
                   _mm256_shuffle_epi8(codes, high));
    }
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

/* The nibbles of q with the fifth bits above them; as dot_q4. */
TILE void dot_q5(const uint32_t rows, __m256i sum[], const gemm_xblock *x, size_t ldx,
                 const uint32_t *q, const uint32_t *fifth)
{
    const __m256i nibble = _mm256_set1_epi8(15), bit = _mm256_set1_epi8(16);
    __m256i bits = load_words(fifth);
    for (uint32_t g = 0; g < 4; g++) {
        __m256i both = load_words(q + g * GEMM_PANEL), low = _mm256_and_si256(both, nibble);
        __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
        __m128i to_bit_4 = _mm_cvtsi32_si128((int)(4 - g)), from_above = _mm_cvtsi32_si128((int)g);
        low = _mm256_or_si256(low, _mm256_and_si256(_mm256_sll_epi32(bits, to_bit_4), bit));
        high = _mm256_or_si256(high, _mm256_and_si256(_mm256_srl_epi32(bits, from_above), bit));
        add_halves(rows, sum, x, ldx, g, low, high);
    }
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

TILE void dot_q6(const uint32_t rows, __m256i sum[], const gemm_xblock *x, size_t ldx,
                 const uint32_t *q, int half)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
        sum[r] = _mm256_set1_epi32(gemm_start_q6_k(x + r * ldx, half));
#pragma GCC unroll 4
    for (uint32_t g = 0; g < 4; g++) {
        __m256i w = g == 3 ? last_of_q6(q)
                           : _mm256_and_si256(load_words(q + g * GEMM_PANEL), _mm256_set1_epi8(63));
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++)
            sum[r] = add_products(sum[r], w, four_of(x + r * ldx, 16 * (uint32_t)half + 4 * g));
    }
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

TILE void finish(const uint32_t rows, __m256 acc[], __m256i sum[], const gemm_xblock *x, size_t ldx,
                 __m256 d)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
        acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r]),
                                 _mm256_mul_ps(d, _mm256_set1_ps(x[r * ldx].d)), acc[r]);
}

TILE void take_min(const uint32_t rows, __m256 acc[], const gemm_xblock *x, size_t ldx, __m256 min)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
        acc[r] = _mm256_fnmadd_ps(min, _mm256_set1_ps(x[r * ldx].sum), acc[r]);
}

TILE void load_sums(const uint32_t rows, __m256 acc[], const gemm_tile *t, uint32_t j)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
        acc[r] = t->fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(t->c + r * t->ldc + j);
}

TILE void store_sums(const uint32_t rows, __m256 acc[], const gemm_tile *t, uint32_t j)
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
        _mm256_storeu_ps(t->c + r * t->ldc + j, acc[r]);
}

/* An eighth of what this step fetches for the next chunk. */
TILE void prefetch(const gemm_tile *t, uint32_t step, uint32_t j)
{
    const char *ahead = t->ahead + step * t->ahead_stride;
    for (size_t i = (size_t)j * (64 / COLUMN); i < t->ahead_stride; i += 64 * GEMM_PANEL / COLUMN)
        _mm_prefetch(ahead + i, _MM_HINT_T1);
}

TILE void column_q8_0(const uint32_t rows, const gemm_tile *t, uint32_t j)
{
    const gemm_xblock *x = t->x;
    const gemm_q8_0_step *step = t->w;
    __m256 acc[GEMM_TILE_ROWS];
    load_sums(rows, acc, t, j);
    for (uint32_t s = 0; s < t->depth; s++, step++, x++) {
        __m256i sum[GEMM_TILE_ROWS];
        prefetch(t, s, j);
        dot_q8(rows, sum, x, t->ldx, step->q[0] + j);
        finish(rows, acc, sum, x, t->ldx, load_f16(step->d + j));
    }
    store_sums(rows, acc, t, j);
}

TILE void column_q4_0(const uint32_t rows, const gemm_tile *t, uint32_t j)
{
    const gemm_xblock *x = t->x;
    const gemm_q4_0_step *step = t->w;
    __m256 acc[GEMM_TILE_ROWS];
    load_sums(rows, acc, t, j);
    for (uint32_t s = 0; s < t->depth; s++, step++, x++) {
        __m256i sum[GEMM_TILE_ROWS];
        prefetch(t, s, j);
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++)
            sum[r] = _mm256_set1_epi32(gemm_start_q4_0(x + r * t->ldx));
        dot_q4(rows, sum, x, t->ldx, step->q[0] + j);
        finish(rows, acc, sum, x, t->ldx, load_f16(step->d + j));
    }
    store_sums(rows, acc, t, j);
}

TILE void column_mxfp4(const uint32_t rows, const gemm_tile *t, uint32_t j)
{
    const gemm_xblock *x = t->x;
    const gemm_mxfp4_step *step = t->w;
    __m256 acc[GEMM_TILE_ROWS];
    load_sums(rows, acc, t, j);
    for (uint32_t s = 0; s < t->depth; s++, step++, x++) {
        __m256i sum[GEMM_TILE_ROWS];
        prefetch(t, s, j);
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++)
            sum[r] = _mm256_set1_epi32(gemm_start_mxfp4(x + r * t->ldx));
        dot_mxfp4(rows, sum, x, t->ldx, step->q[0] + j);
        finish(rows, acc, sum, x, t->ldx, scale_e8(step->e + j));
    }
    store_sums(rows, acc, t, j);
}

TILE void column_q4_k(const uint32_t rows, const gemm_tile *t, uint32_t j)
{
    const gemm_xblock *x = t->x;
    const gemm_q4_k_step *step = t->w;
    __m256 acc[GEMM_TILE_ROWS];
    load_sums(rows, acc, t, j);
    for (uint32_t s = 0; s < t->depth; s++, step++) {
        prefetch(t, s, j);
        for (uint32_t g = 0; g < GEMM_K_GROUPS; g++, x++) {
            __m256i sum[GEMM_TILE_ROWS] = {0};
            dot_q4(rows, sum, x, t->ldx, step->group[g].q[0] + j);
            finish(rows, acc, sum, x, t->ldx, scale_f16(step->d + j, step->group[g].scale + j));
            take_min(rows, acc, x, t->ldx, scale_f16(step->dmin + j, step->group[g].min + j));
        }
    }
    store_sums(rows, acc, t, j);
}

TILE void column_q5_k(const uint32_t rows, const gemm_tile *t, uint32_t j)
{
    const gemm_xblock *x = t->x;
    const gemm_q5_k_step *step = t->w;
    __m256 acc[GEMM_TILE_ROWS];
    load_sums(rows, acc, t, j);
    for (uint32_t s = 0; s < t->depth; s++, step++) {
        prefetch(t, s, j);
        for (uint32_t g = 0; g < GEMM_K_GROUPS; g++, x++) {
            __m256i sum[GEMM_TILE_ROWS] = {0};
            dot_q5(rows, sum, x, t->ldx, step->group[g].q[0] + j, step->group[g].fifth + j);
            finish(rows, acc, sum, x, t->ldx, scale_f16(step->d + j, step->group[g].scale + j));
            take_min(rows, acc, x, t->ldx, scale_f16(step->dmin + j, step->group[g].min + j));
        }
    }
    store_sums(rows, acc, t, j);
}

TILE void column_q6_k(const uint32_t rows, const gemm_tile *t, uint32_t j)
{
    const gemm_xblock *x = t->x;
    const gemm_q6_k_step *step = t->w;
    __m256 acc[GEMM_TILE_ROWS];
    load_sums(rows, acc, t, j);
    for (uint32_t s = 0; s < t->depth; s++, step++) {
        prefetch(t, s, j);
        for (uint32_t g = 0; g < GEMM_K_GROUPS; g++, x++)
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                __m256i sum[GEMM_TILE_ROWS];
                dot_q6(rows, sum, x, t->ldx, step->group[g].q[half][0] + j, half);
                finish(rows, acc, sum, x, t->ldx,
                       scale_signed(step->d + j, step->group[g].scale[half] + j));
            }
    }
    store_sums(rows, acc, t, j);
}

/* One kernel: the column of `name` at every height, eight times. */
#define KERNEL(name)                                                                               \
    static void avx2_##name(const gemm_tile *t)                                                    \
    {                                                                                              \
        for (uint32_t j = 0; j < GEMM_PANEL; j += COLUMN) {                                        \
            switch (t->rows) {                                                                     \
            case 1: column_##name(1, t, j); break;                                                 \
            case 2: column_##name(2, t, j); break;                                                 \
            case 3: column_##name(3, t, j); break;                                                 \
            case 4: column_##name(4, t, j); break;                                                 \
            case 5: column_##name(5, t, j); break;                                                 \
            default: column_##name(6, t, j); break;                                                \
            }                                                                                      \
        }                                                                                          \
    }

KERNEL(q8_0)
KERNEL(q4_0)
KERNEL(mxfp4)
KERNEL(q4_k)
KERNEL(q5_k)
KERNEL(q6_k)

RAD_VECTORIZE static void round_row(const float *x, uint32_t k, gemm_xblock *dst)
{
    gemm_round_to_blocks(x, k, dst);
}

const gemm_quant_isa gemm_quant_avx2 = {.q8_0 = avx2_q8_0,
                                        .q4_0 = avx2_q4_0,
                                        .mxfp4 = avx2_mxfp4,
                                        .q4_k = avx2_q4_k,
                                        .q5_k = avx2_q5_k,
                                        .q6_k = avx2_q6_k,
                                        .round_row = round_row};
#else
const gemm_quant_isa gemm_quant_avx2 = {0}; /* not this architecture */
#endif
