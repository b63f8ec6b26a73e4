/* attn_strip_avx512bf16.c - strips (attn_strip.h) of a bf16 pool.
 *
 *     scores   16 keys x 32 dimensions are transposed in registers: a lane is a key, and 16
 *              pairs of a row of q are added to its 16 scores, ascending
 *     values   two keys x 32 dimensions are mixed to pairs in registers: a lane is a dimension */
#include "attn/attn_strip.h"

#if defined(__AVX512BF16__)
#include "attn/attn_pairs_softmax.h"

enum {
    TOKENS = ATTN_STRIP_TOKENS,
    TILES = 1,
    DIMS = 2 * W,
    AHEAD = ATTN_STRIP_AHEAD,
    FIRST = 40,
    AGAIN = 24
};

/* Which numbers of two keys make pairs. */
typedef struct reader {
    __m512i low, high;
} reader;

/* More sums than these do not fit beside a tile, or beside values. */
#define most_together(sharing) ((sharing) <= 4 ? 2 : 1)
#define most_vectors(sharing)  ((sharing) <= 6 ? 4 : 2)

#include "attn/attn_strip_body.h"

TILE reader reader_of(const attn_strip *s)
{
    (void)s;
    return (reader){pairs_low(), pairs_high()};
}

/* Twice: once more reads 5 to 9% more from memory than without the second. */
TILE void ask_again(const char *const *rows, size_t at)
{
    __builtin_prefetch(rows[AGAIN] + at, 0, 3);
    __builtin_prefetch(rows[TOKENS] + at, 0, 3);
}

/* 16 keys x 32 dimensions: tile[i] gets pair i of each. */
TILE void load_tile(const char *const *rows, size_t offset, __m512i tile[TOKENS])
{
#pragma GCC unroll 16
    for (int i = 0; i < TOKENS; i++)
        tile[i] = _mm512_loadu_si512(rows[i] + offset);
    transpose(tile);
}

/* 32 dimensions of a head after those of the other: a tile fills half of the registers. */
TILE void add_scores(const uint32_t dtype, const reader *with, const uint32_t sharing,
                     const uint32_t heads, const strip_keys *keys, attn_strip *s,
                     strip_scores *sums)
{
    (void)dtype, (void)with;
    for (uint32_t d = 0; d < s->dim; d += DIMS)
#pragma GCC unroll 2
        for (uint32_t n = 0; n < heads; n++) {
            const size_t offset = keys->at + n * s->head_bytes + d * 2;
            const uint32_t *pair[ATTN_STRIP_SHARING];
            __m512i tile[TOKENS];
            load_tile(keys->rows, offset, tile);
#pragma GCC unroll 8
            for (uint32_t r = 0; r < sharing; r++) {
                pair[r] = (const uint32_t *)(keys->q + (n * sharing + r) * s->q_bytes + d * 2);
                __asm__("" : "+r"(pair[r])); /* one register each: else 16 addresses are kept */
            }
#pragma GCC unroll 16
            for (int i = 0; i < TOKENS; i++) {
                if (i % 8 == 0) attn_strip_ask(s, i == 0 || n == 0 ? 2 : 1);
                ask_again(keys->rows + i, offset);
#pragma GCC unroll 8
                for (uint32_t r = 0; r < sharing; r++)
                    sums->of[n][0][r] =
                        _mm512_dpbf16_ps(sums->of[n][0][r], (__m512bh)tile[i],
                                         (__m512bh)_mm512_set1_epi32((int)pair[r][i]));
            }
        }
}

TILE void value_pairs(const uint32_t dtype, const reader *with, const int vectors, const char *x,
                      const char *y, __m512i pair[4])
{
    (void)dtype;
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v += 2) {
        __m512i a = _mm512_loadu_si512(x + v * W * 2), b = _mm512_loadu_si512(y + v * W * 2);
        pair[v] = _mm512_permutex2var_epi16(a, with->low, b);
        pair[v + 1] = _mm512_permutex2var_epi16(a, with->high, b);
    }
}

void attn_strip_avx512bf16(attn_strip *s)
{
    strip(RAD_BF16, s);
}
#endif
