/* attn_kernels.h - what one instruction set brings to attn_cpu.c.
 *
 * A kernel works on one block of ATTN_BLOCK keys of one KV head and on up to
 * ATTN_TILE_ROWS query rows (a row is one head of one token). Every result is
 * elementwise or one chain in a fixed order, so it has the same bits on every
 * instruction set, alone or beside other rows:
 *
 *     score    fma chain over ascending dimension
 *     sum      a fixed tree over the 64 weights, 0 where the row sees no key
 *     value    fma chain over the ascending keys that the row sees */
#ifndef ATTN_ATTN_KERNELS_H
#define ATTN_ATTN_KERNELS_H

#include "attn/attn_common.h"

enum { ATTN_TILE_ROWS = 6 };

/* The keys or the values of one KV head in a block: number j is at base + slots[j] *
 * stride bytes. What next_base and next_slots describe likewise is prefetched. */
typedef struct attn_rows_at {
    const char *base, *next_base;
    const rad_slot *slots, *next_slots; /* [ATTN_BLOCK] */
    size_t stride;
} attn_rows_at;

typedef struct attn_isa {
    const char *name;

    /* kt[dim][ATTN_BLOCK] = the keys as f32, transposed. [0] from f32, [1] from bf16. */
    void (*load_keys[2])(const attn_rows_at *keys, uint32_t dim, float *kt);

    /* s[r][0..ATTN_BLOCK) = q[r] . key, r < rows <= ATTN_TILE_ROWS. */
    void (*scores)(uint32_t rows, uint32_t dim, const float *const *q, const float *kt, float *s);

    /* s[0..ATTN_BLOCK) from scores to weights exp(score - max), 0 outside [begin, end)
     * (not empty). Returns their sum and writes the maximum. */
    float (*softmax)(float *s, uint32_t begin, uint32_t end, float scaling, float logit_cap,
                     float *max);

    /* acc[r][0..dim) = (`fresh`: 0, else itself) + sum of p[r][j] * values[j] over j in
     * [begin, end); p is [rows][ATTN_BLOCK], acc rows lie `ld` floats apart. */
    void (*values[2])(uint32_t rows, uint32_t dim, const float *p, const attn_rows_at *values,
                      uint32_t begin, uint32_t end, float *acc, size_t ld, bool fresh);

    /* total = fma(part, part_scale, total * scale), and out = total / sum. */
    void (*merge)(uint32_t dim, float *total, float scale, const float *part, float part_scale);
    void (*divide)(uint32_t dim, float *total, float sum);

    float (*exp)(float x); /* of x <= 0, as softmax computes it */
} attn_isa;

extern const attn_isa attn_isa_scalar, attn_isa_avx2, attn_isa_avx512;

#endif
