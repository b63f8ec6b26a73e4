/* attn_amx_multiply.h - the product of attn_amx.h over the operations of base/amx.h, of which a
 * file has included either kind before. Both layouts of attention make all of their products
 * here. */
#ifndef ATTN_ATTN_AMX_MULTIPLY_H
#define ATTN_ATTN_AMX_MULTIPLY_H

#include "attn/attn_amx.h"
#include "base/amx.h"

enum { TWO_TILES = 2 * AMX_ROWS }; /* columns, or rows, of a product at most */

/* Sums 0, 1 (upper rows), 2, 3 (lower); left 4 (upper), 5 (lower); right 6, 7. */
static void configure(uint32_t rows)
{
    amx_config c = {.palette = 1};
    for (int t = 0; t < AMX_TILES; t++) {
        bool upper = t == 0 || t == 1 || t == 4;
        c.rows[t] = (uint8_t)(upper ? RAD_MIN(rows, AMX_ROWS) : AMX_ROWS);
        c.row_bytes[t] = AMX_ROW_BYTES;
    }
    AMX_CONFIGURE(&c);
}

/* Up to 16 rows: one or two tiles. */
static void multiply_upper(const attn_amx_product *p)
{
    const char *a = p->a, *b = p->b;
    AMX_ZERO(0);
    AMX_ZERO(1);
    for (uint32_t s = 0; s < p->steps; s++, a += AMX_ROW_BYTES, b += AMX_ROWS * p->b_pitch) {
        AMX_LOAD(4, a, p->a_pitch);
        AMX_LOAD(6, b, p->b_pitch);
        AMX_DP(0, 4, 6);
        if (p->tiles == 2) {
            AMX_LOAD(7, b + p->b_next, p->b_pitch);
            AMX_DP(1, 4, 7);
        }
        if (p->ahead) attn_ahead_fetch(p->ahead, p->lines);
    }
    AMX_STORE(0, p->c, p->c_pitch);
    if (p->tiles == 2) AMX_STORE(1, p->c + AMX_ROWS, p->c_pitch);
}

/* 32 rows: two or four tiles. */
static void multiply_both(const attn_amx_product *p)
{
    const char *a = p->a, *b = p->b;
    float *lower = (float *)((char *)p->c + AMX_ROWS * p->c_pitch);
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
    for (uint32_t s = 0; s < p->steps; s++, a += AMX_ROW_BYTES, b += AMX_ROWS * p->b_pitch) {
        AMX_LOAD(4, a, p->a_pitch);
        AMX_LOAD(6, b, p->b_pitch);
        AMX_DP(0, 4, 6);
        AMX_LOAD(5, a + AMX_ROWS * p->a_pitch, p->a_pitch);
        AMX_DP(2, 5, 6);
        if (p->tiles == 2) {
            AMX_LOAD(7, b + p->b_next, p->b_pitch);
            AMX_DP(1, 4, 7);
            AMX_DP(3, 5, 7);
        }
        if (p->ahead) attn_ahead_fetch(p->ahead, p->lines);
    }
    AMX_STORE(0, p->c, p->c_pitch);
    AMX_STORE(2, lower, p->c_pitch);
    if (p->tiles == 2) {
        AMX_STORE(1, p->c + AMX_ROWS, p->c_pitch);
        AMX_STORE(3, lower + AMX_ROWS, p->c_pitch);
    }
}

/* On tiles that are configured for its rows, or for more where it has 16. */
static void multiply(const attn_amx_product *p)
{
    if (p->rows <= AMX_ROWS)
        multiply_upper(p);
    else
        multiply_both(p);
}

static void multiply_alone(const attn_amx_product *p)
{
    configure(p->rows);
    multiply(p);
    AMX_RELEASE();
}

#endif
