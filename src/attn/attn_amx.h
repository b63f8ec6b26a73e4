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

/* By instructions, and by C that computes the same bits for tests (thousand times slower, and
 * for CPUs with AVX512_BF16 too). attend is NULL where they are not compiled. */
extern const attn_kernels attn_tiles_amx, attn_tiles_emulated;
attn_amx_multiply attn_amx_multiply_tiles, attn_amx_multiply_emulated;

/* Whether the instructions may be used and compute what the C does; checked the first time.
 * The caller has made sure of AVX512_BF16. `why` as amx_permitted has it (base/amx.h). */
bool attn_amx_usable(const char **why);

/* The check itself: products by `multiply`, and a small attention by `kernels` in both
 * layouts, have the bits of attn_amx_multiply_emulated and attn_tiles_emulated. */
bool attn_amx_agrees(attn_amx_multiply *multiply, const attn_kernels *kernels);

#endif
