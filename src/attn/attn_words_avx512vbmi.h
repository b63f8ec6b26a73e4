/* attn_words_avx512vbmi.h - codes of fp8 and int8 as words of bf16, looked up.
 *
 * A code's magnitude has 7 bits, and VPERMI2B looks 64 of those up in 128 bytes: one table for
 * the lower bytes of the words, one for the upper ones, to which the signs are put. Where the
 * bytes go then is for who includes this.
 *
 * Code 0 is word 0 in every table. */
#ifndef ATTN_ATTN_WORDS_AVX512VBMI_H
#define ATTN_ATTN_WORDS_AVX512VBMI_H

#include "attn/attn_vector_avx512.h"

enum { CODES = 64 }; /* of a vector */

/* The word of n * 2^e, for n < 128. */
#define LOG2(n)                                                                                    \
    ((n) < 2 ? 0 : (n) < 4 ? 1 : (n) < 8 ? 2 : (n) < 16 ? 3 : (n) < 32 ? 4 : (n) < 64 ? 5 : 6)
#define WORD(n, e)   ((n) == 0 ? 0 : (127 + LOG2(n) + (e)) << 7 | ((n) << (7 - LOG2(n)) & 0x7f))
#define NOT_A_NUMBER 0x7fc0
#define INFINITE     0x7f80

/* The words of the magnitudes 0 .. 127 of each kind. */
#define E4M3(c)                                                                                    \
    ((c) == 0x7f ? NOT_A_NUMBER : (c) < 8 ? WORD(c, -9) : WORD(8 | ((c)&7), ((c) >> 3) - 10))
#define E5M2(c)                                                                                    \
    ((c) > 0x7c    ? NOT_A_NUMBER                                                                  \
     : (c) == 0x7c ? INFINITE                                                                      \
     : (c) < 4     ? WORD(c, -16)                                                                  \
                   : WORD(4 | ((c)&3), ((c) >> 2) - 17))
#define I8(c) WORD(c, 0)

#define LOWER(word, c) (uint8_t)(word(c) & 0xff)
#define UPPER(word, c) (uint8_t)(word(c) >> 8)
#define FOUR(half, word, c)                                                                        \
    half(word, c), half(word, (c) + 1), half(word, (c) + 2), half(word, (c) + 3)
#define SIXTEEN(half, word, c)                                                                     \
    FOUR(half, word, c), FOUR(half, word, (c) + 4), FOUR(half, word, (c) + 8),                     \
        FOUR(half, word, (c) + 12)
#define HALF(half, word, c)                                                                        \
    SIXTEEN(half, word, c), SIXTEEN(half, word, (c) + 16), SIXTEEN(half, word, (c) + 32),          \
        SIXTEEN(half, word, (c) + 48)
#define TABLE(word)                                                                                \
    {                                                                                              \
        {HALF(LOWER, word, 0), HALF(LOWER, word, 64)},                                             \
        {                                                                                          \
            HALF(UPPER, word, 0), HALF(UPPER, word, 64)                                            \
        }                                                                                          \
    }

typedef struct table {
    _Alignas(64) uint8_t bytes[2][2 * CODES]; /* lower, upper */
} table;

static const table e4m3_table = {TABLE(E4M3)}, e5m2_table = {TABLE(E5M2)}, i8_table = {TABLE(I8)};

/* A table in registers, and two orders of bytes from two vectors: the lower halves of both
 * taken in turn, and the upper halves. */
typedef struct lookup {
    __m512i lower[2], upper[2];
    __m512i low_halves, high_halves;
} lookup;

HELPER lookup lookup_of(const uint32_t dtype)
{
    const table *t = dtype == RAD_F8_E4M3   ? &e4m3_table
                     : dtype == RAD_F8_E5M2 ? &e5m2_table
                                            : &i8_table;
    const __m512i bytes = _mm512_set_epi8(
        63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42, 41,
        40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18,
        17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i second = _mm512_set1_epi16(0x4000); /* odd bytes come from the other vector */
    __m512i turn = _mm512_and_si512(_mm512_srli_epi16(bytes, 1), _mm512_set1_epi8(0x3f));
    turn = _mm512_or_si512(turn, second);
    return (lookup){
        .lower = {_mm512_load_si512(t->bytes[0]), _mm512_load_si512(t->bytes[0] + CODES)},
        .upper = {_mm512_load_si512(t->bytes[1]), _mm512_load_si512(t->bytes[1] + CODES)},
        .low_halves = turn,
        .high_halves = _mm512_or_si512(turn, _mm512_set1_epi8(CODES / 2))};
}

/* 64 codes to the bytes of their words. */
HELPER void words_of(const uint32_t dtype, const lookup *t, __m512i codes, __m512i *lower,
                     __m512i *upper)
{
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    __m512i magnitude = dtype == RAD_I8 ? _mm512_abs_epi8(codes) : codes; /* 7 bits are looked at */
    *lower = _mm512_permutex2var_epi8(t->lower[0], magnitude, t->lower[1]);
    *upper = _mm512_permutex2var_epi8(t->upper[0], magnitude, t->upper[1]);
    *upper = _mm512_ternarylogic_epi32(*upper, codes, sign, 0xf8); /* upper | codes & sign */
    if (dtype == RAD_I8) { /* no codec writes -128, but a caller's memory may hold it */
        const __mmask64 least = _mm512_cmpeq_epi8_mask(codes, sign);
        *upper = _mm512_mask_mov_epi8(*upper, least, _mm512_set1_epi8((char)0xc3));
    }
}

#endif
