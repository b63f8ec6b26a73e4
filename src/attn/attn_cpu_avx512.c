/* attn_cpu_avx512.c - the kernels with vectors of 16 lanes. */
#include "attn/attn_strip.h"

#include <math.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include "attn/attn_codes_avx512.h"
#include "attn/attn_vector_avx512.h"

/* 16 keys x `some` dimensions of f32, or pairs of bf16: those travel as one lane and
 * are taken apart on the way out, which is half the work of moving them one by one. */
HELPER void load_tile(const bool bf16, const uint32_t some, const attn_rows_at *keys, uint32_t j,
                      uint32_t d, float *to, attn_ahead *ahead)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    const size_t size = bf16 ? 2 : 4;
    const char *base = keys->base + d * size;
    const rad_slot *slots = keys->slots + j;
    __m512i tile[16];
    attn_ahead_fetch(ahead, 16);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        const char *key = base + (size_t)slots[i] * keys->stride;
        tile[i] = some * size == 64 ? _mm512_loadu_si512(key)
                                    : _mm512_maskz_loadu_epi16(
                                          (__mmask32)(((uint64_t)1 << some * size / 2) - 1), key);
    }
    transpose(tile);
#pragma GCC unroll 16
    for (uint32_t i = 0; i < 16; i++) {
        if (!bf16 && i < some) _mm512_storeu_si512(to + i * ATTN_BLOCK, tile[i]);
        if (bf16 && 2 * i < some)
            _mm512_storeu_si512(to + 2 * i * ATTN_BLOCK, _mm512_slli_epi32(tile[i], 16));
        if (bf16 && 2 * i + 1 < some)
            _mm512_storeu_si512(to + (2 * i + 1) * ATTN_BLOCK, _mm512_and_si512(tile[i], high));
    }
}

HELPER void load_keys(const bool bf16, const attn_rows_at *keys, uint32_t dim, float *kt,
                      attn_ahead *ahead)
{
    const uint32_t step = bf16 ? 32 : 16;
    for (uint32_t j = 0; j < ATTN_BLOCK; j += 16) {
        uint32_t d = 0;
        for (; d + step <= dim; d += step)
            load_tile(bf16, step, keys, j, d, kt + (size_t)d * ATTN_BLOCK + j, ahead);
        if (d < dim) load_tile(bf16, dim - d, keys, j, d, kt + (size_t)d * ATTN_BLOCK + j, ahead);
    }
}

static void load_keys_f32(const attn_rows_at *keys, uint32_t dim, void *to, attn_ahead *ahead)
{
    load_keys(false, keys, dim, to, ahead);
}

static void load_keys_bf16(const attn_rows_at *keys, uint32_t dim, void *to, attn_ahead *ahead)
{
    load_keys(true, keys, dim, to, ahead);
}

/* Of 256 bits: decoding waits for memory. */
#define ATTN_STRIP(type) attn_strip_avx2_##type
#include "attn/attn_kernels_body.h"

const attn_isa attn_isa_avx512 = ATTN_ISA;
#else
const attn_isa attn_isa_avx512 = {.f32 = {.attend = NULL}}; /* not this architecture */
#endif
