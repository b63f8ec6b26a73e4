/* attn_pairs_narrow.h - the narrow layout of `pairs` but for its two products, which are made
 * by who includes this: keys transposed, tiles of one to six rows. */
#ifndef ATTN_ATTN_PAIRS_NARROW_H
#define ATTN_ATTN_PAIRS_NARROW_H

#include "attn/attn_pairs_softmax.h"

#include "attn/attn_merge_body.h"

/* 16 keys x up to 32 dimensions: a pair travels as one lane. */
TILE void load_tile(const attn_rows_at *keys, const uint32_t some, uint32_t j, uint32_t d,
                    uint32_t *to)
{
    const char *base = keys->base + (size_t)d * 2;
    const __mmask32 mask = (__mmask32)(((uint64_t)1 << some) - 1);
    __m512i tile[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        const char *key = base + (size_t)keys->slots[j + i] * keys->stride;
        tile[i] = some == 32 ? _mm512_loadu_si512(key) : _mm512_maskz_loadu_epi16(mask, key);
    }
    transpose(tile);
#pragma GCC unroll 16
    for (uint32_t i = 0; i < 16; i++)
        if (2 * i < some) _mm512_store_si512(to + i * BLOCK, tile[i]);
}

static void load_keys(const attn_rows_at *keys, uint32_t dim, void *to, attn_ahead *ahead)
{
    uint32_t *kt = to;
    for (uint32_t j = 0; j < BLOCK; j += 16) {
        uint32_t d = 0;
        for (; d + 32 <= dim; d += 32) {
            attn_ahead_fetch(ahead, 16);
            load_tile(keys, 32, j, d, kt + d / 2 * BLOCK + j);
        }
        if (d < dim) {
            attn_ahead_fetch(ahead, 16);
            load_tile(keys, dim - d, j, d, kt + d / 2 * BLOCK + j);
        }
    }
}

/* A block for a tile of rows: scores, softmax, values. By who includes this. */
TILE void attend_rows(const uint32_t rows, attn_tile *t);

static void attend(attn_tile *t)
{
    switch (t->rows) {
    case 1: attend_rows(1, t); break;
    case 2: attend_rows(2, t); break;
    case 3: attend_rows(3, t); break;
    case 4: attend_rows(4, t); break;
    case 5: attend_rows(5, t); break;
    default: attend_rows(6, t); break;
    }
}

#endif
