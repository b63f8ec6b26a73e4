/* attn_amx.h - the arithmetic `tiles` of attn_kernels.h: `pairs` with its two products made by
 * AMX, 32 dimensions or keys an instruction. */
#ifndef ATTN_ATTN_AMX_H
#define ATTN_ATTN_AMX_H

#include "attn/attn_kernels.h"

/* c[m][n] = sum over k of a[m][k] * b[k][n], k in steps of 32, both of pairs of bf16:
 *
 *     a   [rows][16 * steps pairs]   rows: 1..16, or 32
 *     b   [16 * steps pairs][16] for each tile of 16 columns; the second one (tiles: 1 or 2)
 *         lies b_next bytes behind the first
 *     c   [rows][16 * tiles] floats */
typedef struct attn_amx_product {
    uint32_t rows, tiles, steps;
    const void *a, *b;
    size_t a_pitch, b_pitch, b_next; /* bytes */
    float *c;
    size_t c_pitch;    /* bytes */
    attn_ahead *ahead; /* to fetch from at each step, so many lines; or NULL */
    uint32_t lines;
} attn_amx_product;

/* The product alone; on a thread whose tiles are not in use. */
typedef void attn_amx_multiply(const attn_amx_product *p);

/* By instructions. attend is NULL where they are not compiled. */
extern const attn_kernels attn_tiles_amx;
attn_amx_multiply attn_amx_multiply_tiles;

#endif
