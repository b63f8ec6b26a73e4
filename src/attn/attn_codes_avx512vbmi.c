/* attn_codes_avx512vbmi.c - a block's codes as words of bf16, 64 codes at a time.
 *
 * attn_words_avx512vbmi.h looks them up. What follows is where the bytes go:
 *
 *     keys     16 rows x 64 dims are transposed as codes, four to a lane, which is half the
 *              moves of words; then each lane's two pairs of words
 *     values   the codes of two keys side by side; then their words
 *     rows     their words in order
 *
 * Code 0 is word 0, so what is masked off in a load is zero in the end. */
#include "attn/attn_codes.h"
#include "attn/attn_strip.h"

#if defined(__AVX512VBMI__) && defined(__AVX512BF16__)
#include "attn/attn_words_avx512vbmi.h"

enum { BLOCK = ATTN_BLOCK };

HELPER __mmask64 first_codes(uint32_t count)
{
    return ~(__mmask64)0 >> (CODES - count);
}

HELPER const char *row_at(const kv_rows *rows, uint32_t i)
{
    return rows->base + (size_t)rows->slots[i] * rows->stride;
}

/* 16 keys x `some` dimensions, up to 64. */
HELPER void key_tile(const uint32_t dtype, const lookup *t, const kv_rows *keys, uint32_t j,
                     uint32_t d, const uint32_t some, uint32_t *to)
{
    /* From a lane's lower bytes 0 1 2 3 and upper ones: 0 0 1 1, and 2 2 3 3. */
    const __m512i lanes =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60);
    const __m512i each = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(0x01010101));
    const __m512i first = _mm512_add_epi8(each, _mm512_set1_epi32(0x41014000));
    const __m512i second = _mm512_add_epi8(first, _mm512_set1_epi8(2));
    const __mmask64 mask = first_codes(some);
    __m512i tile[16], lower, upper;
#pragma GCC unroll 16
    for (uint32_t i = 0; i < 16; i++)
        tile[i] = _mm512_maskz_loadu_epi8(mask, row_at(keys, j + i) + d);
    transpose(tile);
#pragma GCC unroll 16
    for (uint32_t i = 0; i < 16; i++, to += 2 * BLOCK) {
        if (4 * i >= (some + 31) / 32 * 32) continue;
        words_of(dtype, t, tile[i], &lower, &upper);
        _mm512_store_si512(to, _mm512_permutex2var_epi8(lower, first, upper));
        _mm512_store_si512(to + BLOCK, _mm512_permutex2var_epi8(lower, second, upper));
    }
}

HELPER void load_keys_of(const uint32_t dtype, const kv_rows *keys, uint32_t dim, uint32_t *to,
                         attn_ahead *ahead)
{
    const lookup t = lookup_of(dtype);
    for (uint32_t j = 0; j < BLOCK; j += 16) {
        uint32_t d = 0;
        for (; d + CODES <= dim; d += CODES) {
            attn_ahead_fetch(ahead, 16);
            key_tile(dtype, &t, keys, j, d, CODES, to + d / 2 * BLOCK + j);
        }
        if (d == dim) continue;
        attn_ahead_fetch(ahead, 16);
        key_tile(dtype, &t, keys, j, d, dim - d, to + d / 2 * BLOCK + j);
    }
}

/* The words of two keys' codes side by side, `vectors` of 16 dimensions. */
HELPER void value_tile(const uint32_t dtype, const lookup *t, __m512i a, __m512i b,
                       const uint32_t vectors, uint32_t *to)
{
    __m512i lower, upper;
    words_of(dtype, t, _mm512_permutex2var_epi8(a, t->low_halves, b), &lower, &upper);
    _mm512_store_si512(to, _mm512_permutex2var_epi8(lower, t->low_halves, upper));
    if (vectors == 1) return;
    _mm512_store_si512(to + W, _mm512_permutex2var_epi8(lower, t->high_halves, upper));
    if (vectors == 2) return;
    words_of(dtype, t, _mm512_permutex2var_epi8(a, t->high_halves, b), &lower, &upper);
    _mm512_store_si512(to + 2 * W, _mm512_permutex2var_epi8(lower, t->low_halves, upper));
    if (vectors == 3) return;
    _mm512_store_si512(to + 3 * W, _mm512_permutex2var_epi8(lower, t->high_halves, upper));
}

HELPER void load_values_of(const uint32_t dtype, const kv_rows *values, uint32_t v_dim,
                           uint32_t *to, attn_ahead *ahead)
{
    const lookup t = lookup_of(dtype);
    const uint32_t whole = v_dim / CODES * CODES, rest = v_dim - whole;
    const uint32_t lines = attn_lines_of(v_dim);
    const size_t ld = (v_dim + W - 1) / W * W;
    const __mmask64 mask = rest ? first_codes(rest) : 0;
    for (uint32_t j = 0; j < BLOCK; j += 2, to += ld) {
        const char *a = row_at(values, j), *b = row_at(values, j + 1);
        if (j % 8 == 0) attn_ahead_fetch(ahead, 4 * lines); /* the other half: in the products */
        for (uint32_t d = 0; d < whole; d += CODES)
            value_tile(dtype, &t, _mm512_loadu_si512(a + d), _mm512_loadu_si512(b + d), 4, to + d);
        if (rest)
            value_tile(dtype, &t, _mm512_maskz_loadu_epi8(mask, a + whole),
                       _mm512_maskz_loadu_epi8(mask, b + whole), (rest + W - 1) / W, to + whole);
    }
}

HELPER void load_rows_of(const uint32_t dtype, const kv_rows *rows, uint32_t dim, uint16_t *to,
                         size_t ld)
{
    const lookup t = lookup_of(dtype);
    for (uint32_t j = 0; j < BLOCK; j++, to += ld) {
        const char *row = row_at(rows, j);
        for (uint32_t d = 0; d < ld; d += CODES) {
            __m512i lower, upper, codes = _mm512_setzero_si512();
            if (d < dim)
                codes = _mm512_maskz_loadu_epi8(first_codes(RAD_MIN(dim - d, CODES)), row + d);
            words_of(dtype, &t, codes, &lower, &upper);
            _mm512_storeu_si512(to + d, _mm512_permutex2var_epi8(lower, t.low_halves, upper));
            if (d + CODES / 2 < ld)
                _mm512_storeu_si512(to + d + CODES / 2,
                                    _mm512_permutex2var_epi8(lower, t.high_halves, upper));
        }
    }
}

static void load_keys(uint32_t dtype, const kv_rows *keys, uint32_t dim, void *to,
                      attn_ahead *ahead)
{
    switch (dtype) {
    case RAD_F8_E4M3: load_keys_of(RAD_F8_E4M3, keys, dim, to, ahead); break;
    case RAD_F8_E5M2: load_keys_of(RAD_F8_E5M2, keys, dim, to, ahead); break;
    default: load_keys_of(RAD_I8, keys, dim, to, ahead);
    }
}

static void load_values(uint32_t dtype, const kv_rows *values, uint32_t v_dim, void *to,
                        attn_ahead *ahead)
{
    switch (dtype) {
    case RAD_F8_E4M3: load_values_of(RAD_F8_E4M3, values, v_dim, to, ahead); break;
    case RAD_F8_E5M2: load_values_of(RAD_F8_E5M2, values, v_dim, to, ahead); break;
    default: load_values_of(RAD_I8, values, v_dim, to, ahead);
    }
}

static void load_rows(uint32_t dtype, const kv_rows *rows, uint32_t dim, uint16_t *to, size_t ld)
{
    switch (dtype) {
    case RAD_F8_E4M3: load_rows_of(RAD_F8_E4M3, rows, dim, to, ld); break;
    case RAD_F8_E5M2: load_rows_of(RAD_F8_E5M2, rows, dim, to, ld); break;
    default: load_rows_of(RAD_I8, rows, dim, to, ld);
    }
}

static void round_rows(const kv_rows *rows, uint32_t dim, uint16_t *to, size_t ld, uint32_t room)
{
    for (uint32_t j = 0; j < BLOCK; j++, to += ld) {
        const char *row = row_at(rows, j);
        float scale;
        memcpy(&scale, rows->scales + (size_t)rows->slots[j] * rows->scale_stride, sizeof scale);
        for (uint32_t d = 0; d < room; d += 2 * W) {
            const __mmask32 there = d < dim ? (__mmask32)first_codes(RAD_MIN(dim - d, 2 * W)) : 0;
            const __mmask32 wanted = (__mmask32)first_codes(RAD_MIN(room - d, 2 * W));
            const __m256i codes = _mm256_maskz_loadu_epi8(there, row + d);
            vf low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(codes)));
            vf high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(codes, 1)));
            __m512bh words =
                _mm512_cvtne2ps_pbh(vf_mul(high, vf_set1(scale)), vf_mul(low, vf_set1(scale)));
            /* 0 times a scale that is no number would be none either */
            _mm512_mask_storeu_epi16(to + d, wanted, _mm512_maskz_mov_epi16(there, (__m512i)words));
        }
    }
}

/* Four heads of a token lie side by side: 16 tokens make four vectors of four tokens, which
 * are turned as 4 x 4 numbers and then as 4 x 4 quarters. */
static void load_scales(const kv_rows *rows, uint32_t heads, float *to)
{
    const __m512i turn = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for (uint32_t h = 0; h < heads; h += 4, to += 4 * BLOCK) {
        const uint32_t some = RAD_MIN(heads - h, 4);
        const __mmask8 mask = (__mmask8)((1u << some) - 1);
        const char *scales = rows->scales + h * sizeof(float);
        for (uint32_t j = 0; j < BLOCK; j += 16) {
            vf four[4], half[4], head[4];
#pragma GCC unroll 4
            for (uint32_t i = 0; i < 4; i++) {
                __m128 token[4];
#pragma GCC unroll 4
                for (uint32_t k = 0; k < 4; k++) {
                    const size_t slot = (size_t)rows->slots[j + 4 * i + k];
                    token[k] = _mm_maskz_loadu_ps(mask, scales + slot * rows->scale_stride);
                }
                vf v = _mm512_castps128_ps512(token[0]);
                v = _mm512_insertf32x4(v, token[1], 1);
                v = _mm512_insertf32x4(v, token[2], 2);
                v = _mm512_insertf32x4(v, token[3], 3);
                four[i] = _mm512_permutexvar_ps(turn, v);
            }
            half[0] = _mm512_shuffle_f32x4(four[0], four[1], 0x44);
            half[1] = _mm512_shuffle_f32x4(four[0], four[1], 0xee);
            half[2] = _mm512_shuffle_f32x4(four[2], four[3], 0x44);
            half[3] = _mm512_shuffle_f32x4(four[2], four[3], 0xee);
            head[0] = _mm512_shuffle_f32x4(half[0], half[2], 0x88);
            head[1] = _mm512_shuffle_f32x4(half[0], half[2], 0xdd);
            head[2] = _mm512_shuffle_f32x4(half[1], half[3], 0x88);
            head[3] = _mm512_shuffle_f32x4(half[1], half[3], 0xdd);
#pragma GCC unroll 4
            for (uint32_t i = 0; i < 4; i++)
                if (i < some) vf_store(to + i * BLOCK + j, head[i]);
        }
    }
}

const attn_codes attn_codes_avx512vbmi = {load_keys,  load_values, load_rows,
                                          round_rows, load_scales, attn_strip_avx512vbmi};
#else
const attn_codes attn_codes_avx512vbmi = {.load_keys = NULL}; /* not this architecture */
#endif
