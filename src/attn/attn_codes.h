/* attn_codes.h - pools of narrow numbers in the arithmetic of a bf16 pool.
 *
 * Every code of fp8 (e4m3, e5m2) and of int8 has at most 8 significant bits: it is a bf16
 * number, exactly. So a block's codes become words of bf16, the kernels of `pairs` and `tiles`
 * take them like any others, and the scales stay outside of the products:
 *
 *     fp8    one scale for K: in q's scaling, before q is rounded
 *            one for V:       the row's sum is divided by it before the total is by the sum
 *     int8   one for a token's K: times its score, before a cap and the maximum
 *            one for its V:       times its weight, before that is rounded to bf16; the sum of
 *                                 the weights is over those without it
 *     MLA's int8 has two scales in a row, which no product of the whole row could tell apart:
 *            its numbers are decoded and rounded to bf16, and nothing is left outside
 *
 * What is rounded: q and the weights, as for a bf16 pool; and MLA's int8.
 *
 * Invariant (P1): which layout is taken, and whether codes are loaded in the order that it
 * wants or as rows first, never shows: the words are the same. */
#ifndef ATTN_ATTN_CODES_H
#define ATTN_ATTN_CODES_H

#include "attn/attn_kernels.h"
#include "attn/attn_kv.h"

/* All for 64 rows, RAD_F8_E4M3, RAD_F8_E5M2 or RAD_I8; codes come without their scales, and
 * nothing is read behind a row's last code or scale. O(dim). */
typedef struct attn_codes {
    /* As load_keys and load_values of attn_kernels; zeros up to the next 32 dimensions of the
     * keys, the next 16 of the values. */
    void (*load_keys)(uint32_t dtype, const kv_rows *keys, uint32_t dim, void *to,
                      attn_ahead *ahead);
    void (*load_values)(uint32_t dtype, const kv_rows *values, uint32_t v_dim, void *to,
                        attn_ahead *ahead);

    /* As they lie: row i at to + i * ld, zeros up to ld, which is a multiple of 32. */
    void (*load_rows)(uint32_t dtype, const kv_rows *rows, uint32_t dim, uint16_t *to, size_t ld);

    /* RAD_I8: numbers with their scale, each rounded to bf16: to[i * ld .. i * ld + room), zeros
     * behind the last. */
    void (*round_rows)(const kv_rows *rows, uint32_t dim, uint16_t *to, size_t ld, uint32_t room);

    /* The scales of `heads` heads from the rows' own on: head h's to[h * ATTN_BLOCK ...). */
    void (*load_scales)(const kv_rows *rows, uint32_t heads, float *to);

    void (*strip)(struct attn_strip *s); /* attn_strip.h, beside kernels that have strips */
} attn_codes;

/* NULL when this CPU has no AVX512_VBMI with AVX512_BF16. Any thread. */
const attn_codes *attn_codes_of_cpu(void);
extern const attn_codes attn_codes_avx512vbmi; /* load_keys NULL: not compiled */

/* Whether a layer of the pool is computed with so: narrow numbers, under scales that leave q
 * and the sums room (fp8; anybody's real scale does). */
bool attn_codes_take(const rad_token_to_kv_pool_params *pool, uint32_t layer);

#endif
