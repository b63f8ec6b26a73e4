/* attn_strip_avx512vbmi.c - strips (attn_strip.h) of a pool whose codes are words of bf16
 * (attn_codes.h).
 *
 *     scores   16 keys x 64 dimensions are transposed as codes, a quarter of a vector having
 *              two pairs of four keys; then their words, which unpacking leaves pair by pair
 *     values   the codes of two keys side by side; then their words */
#include "attn/attn_codes.h"
#include "attn/attn_strip.h"

#if defined(__AVX512VBMI__) && defined(__AVX512BF16__)
#include "attn/attn_pairs_softmax.h"
#include "attn/attn_words_avx512vbmi.h"

enum {
    TOKENS = ATTN_STRIP_CODE_TOKENS,
    TILES = TOKENS / W,
    DIMS = CODES,
    AHEAD = ATTN_STRIP_CODE_AHEAD,
    FIRST = 64
};

/* Beside the table: orders of two keys' codes, side by side such that unpacking their words
 * leaves 16 dimensions and then the next 16. From a vector each, the lower or the upper half of
 * them; and from the halves of one vector. */
typedef struct reader {
    lookup table;
    __m512i first, second, halves;
} reader;

/* More sums than 16 do not fit beside all that. */
#define most_together(sharing) ((sharing) <= 4 ? 2 : 1)
#define most_vectors(sharing)  ((sharing) <= 4 ? 4 : 2)

#include "attn/attn_strip_body.h"

TILE reader reader_of(const attn_strip *s)
{
    /* Quarter n: of each key the dimensions 4n .. 4n + 3, then 16 + 4n .. 16 + 4n + 3. */
    const __m128i four = _mm_setr_epi8(0, 64, 1, 65, 2, 66, 3, 67, 16, 80, 17, 81, 18, 82, 19, 83);
    const __m512i quarters = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512i steps = _mm512_mullo_epi32(quarters, _mm512_set1_epi32(0x04040404));
    const __m512i first = _mm512_add_epi8(_mm512_broadcast_i32x4(four), steps);
    const __m512i other = _mm512_srli_epi16(_mm512_and_si512(first, _mm512_set1_epi8(64)), 1);
    return (reader){
        .table = lookup_of(s->dtype),
        .first = first,
        .second = _mm512_add_epi8(first, _mm512_set1_epi8(32)),
        .halves = _mm512_or_si512(_mm512_andnot_si512(_mm512_set1_epi8(64), first), other)};
}

/* Once: to ask 48 rows ahead too costs more than it gains, there is more to compute for a line. */
TILE void ask_again(const char *const *rows, size_t at)
{
    __builtin_prefetch(rows[TOKENS] + at, 0, 3);
}

/* 16 keys x `dims` dimensions: tile[i] gets the dimensions 4i .. 4i + 3, quarter n of it those of
 * the keys 4n .. 4n + 3: two of each, then the other two of each. */
TILE void load_tile(const uint32_t dims, const char *const *rows, size_t offset, __m512i tile[W])
{
    __m512i a[W], b[W];
#pragma GCC unroll 16
    for (int i = 0; i < W; i++)
        b[i] = dims == CODES ? _mm512_loadu_si512(rows[i] + offset)
                             : _mm512_zextsi256_si512(_mm256_loadu_si256(
                                   (const __m256i *)(const void *)(rows[i] + offset)));
#pragma GCC unroll 8
    for (int i = 0; i < W; i += 2) {
        a[i] = _mm512_unpacklo_epi16(b[i], b[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi16(b[i], b[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < W; i += 4) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 2]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 2]);
        b[i + 2] = _mm512_unpacklo_epi32(a[i + 1], a[i + 3]);
        b[i + 3] = _mm512_unpackhi_epi32(a[i + 1], a[i + 3]);
    }
    transpose_quarters(b);
#pragma GCC unroll 16
    for (int i = 0; i < W; i++)
        tile[i] = b[i];
}

TILE void load_tiles(const uint32_t dims, const uint32_t heads, const strip_keys *keys,
                     const attn_strip *s, uint32_t d, __m512i tile[2][TILES][W])
{
#pragma GCC unroll 2
    for (uint32_t n = 0; n < heads; n++)
#pragma GCC unroll 2
        for (uint32_t g = 0; g < TILES; g++)
            load_tile(dims, keys->rows + g * W, keys->at + n * s->head_bytes + d, tile[n][g]);
}

/* Tiles wait in memory: in registers there is room for one, and for the chains of one head. */
TILE void add_scores(const uint32_t dtype, const reader *with, const uint32_t sharing,
                     const uint32_t heads, const strip_keys *keys, attn_strip *s,
                     strip_scores *sums)
{
    __m512i tile[ATTN_STRIP_DIM / CODES][2][TILES][W];
    uint32_t whole = 0;
    for (; whole + CODES <= s->dim; whole += CODES)
        load_tiles(CODES, heads, keys, s, whole, tile[whole / CODES]);
    if (whole < s->dim) load_tiles(CODES / 2, heads, keys, s, whole, tile[whole / CODES]);
    for (uint32_t d = 0; d < s->dim; d += 4)
#pragma GCC unroll 2
        for (uint32_t n = 0; n < heads; n++) {
            const char *q = keys->q + n * sharing * s->q_bytes + d * 2;
            __m512i pair[TILES][2];
            const uint32_t i = d % CODES / 4;
            if (i % 2 == 0) attn_strip_ask(s, i == 14 && n ? 0 : 1);
#pragma GCC unroll 2
            for (uint32_t g = 0; g < TILES; g++) {
                ask_again(keys->rows + g * W + i, keys->at + n * s->head_bytes + d / CODES * CODES);
                __m512i lower, upper;
                __m512i codes = tile[d / CODES][n][g][i];
                __asm__("" : "+v"(codes)); /* loaded once: else for each of its uses */
                words_of(dtype, &with->table, codes, &lower, &upper);
                pair[g][0] = _mm512_unpacklo_epi8(lower, upper);
                pair[g][1] = _mm512_unpackhi_epi8(lower, upper);
            }
#pragma GCC unroll 2
            for (uint32_t k = 0; k < 2; k++)
#pragma GCC unroll 8
                for (uint32_t r = 0; r < sharing; r++) {
                    int two;
                    memcpy(&two, q + r * s->q_bytes + k * 4, sizeof two);
                    const __m512bh one = (__m512bh)_mm512_set1_epi32(two);
#pragma GCC unroll 2
                    for (uint32_t g = 0; g < TILES; g++)
                        sums->of[n][g][r] =
                            _mm512_dpbf16_ps(sums->of[n][g][r], (__m512bh)pair[g][k], one);
                }
        }
}

TILE void value_pairs(const uint32_t dtype, const reader *with, const int vectors, const char *x,
                      const char *y, __m512i pair[4])
{
    __m512i lower, upper;
    if (vectors == 2) {
        __m512i both = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)x));
        both = _mm512_inserti64x4(both, _mm256_loadu_si256((const __m256i *)(const void *)y), 1);
        words_of(dtype, &with->table, _mm512_permutexvar_epi8(with->halves, both), &lower, &upper);
        pair[0] = _mm512_unpacklo_epi8(lower, upper);
        pair[1] = _mm512_unpackhi_epi8(lower, upper);
        return;
    }
    const __m512i a = _mm512_loadu_si512(x), b = _mm512_loadu_si512(y);
    words_of(dtype, &with->table, _mm512_permutex2var_epi8(a, with->first, b), &lower, &upper);
    pair[0] = _mm512_unpacklo_epi8(lower, upper);
    pair[1] = _mm512_unpackhi_epi8(lower, upper);
    words_of(dtype, &with->table, _mm512_permutex2var_epi8(a, with->second, b), &lower, &upper);
    pair[2] = _mm512_unpacklo_epi8(lower, upper);
    pair[3] = _mm512_unpackhi_epi8(lower, upper);
}

void attn_strip_avx512vbmi(attn_strip *s)
{
    if (s->dtype == RAD_I8)
        strip(RAD_I8, s);
    else
        strip(RAD_F8_E4M3, s);
}
#endif
