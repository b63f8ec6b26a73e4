/* attn_kernels.h - what one arithmetic brings to attn_unit.c.
 *
 * A kernel works on one block of ATTN_BLOCK keys of one KV head and on a tile of up to
 * ATTN_TILE_ROWS query rows (a row is one head of one token). What it computes for a row
 * never depends on the rows beside it. There are three arithmetics:
 *
 *     chain   score    one f32 fma per dimension, ascending
 *             weight   exp(score - max), 0 where the row sees no key
 *             sum      a fixed tree over the 64 weights
 *             value    one f32 fma per key that the row sees, ascending
 *             The same bits on every instruction set, whatever the store dtype.
 *
 *     pairs   score    q times scaling and log2 e, rounded to bf16; one VDPBF16PS per two
 *                      dimensions, ascending (with a logit cap log2 e comes after it)
 *             weight   2^(score - max), rounded to bf16
 *             sum      VDPBF16PS over the rounded weights, then a fixed tree
 *             value    one VDPBF16PS per two keys (2i, 2i + 1) of which the row sees one
 *             For a bf16 pool on CPUs with AVX512_BF16, and for fp8 and int8 where the CPU has
 *             AVX512_VBMI too: their codes are bf16 numbers, their scales stay outside of the
 *             products (attn_codes.h). Twice the rate of f32; other bits than `chain`, so two
 *             machines may differ, one machine never.
 *
 *     tiles   `pairs`, but scores and values are made by TDPBF16PS, 32 dimensions or keys a
 *             step, ascending, from the first of the block's keys to the last (attn_amx_body.h)
 *             For the same pools on CPUs with AMX. Other bits than `pairs`. */
#ifndef ATTN_ATTN_KERNELS_H
#define ATTN_ATTN_KERNELS_H

#include "attn/attn_common.h"
#include "mem/kv_codec.h"

enum {
    ATTN_TILE_ROWS = 6,
    ATTN_FOLD_ROWS = 16 /* arrays of `fold`: whole vectors */
};

/* The keys or the values of one KV head in a block: number j is at base + slots[j] *
 * stride bytes. */
typedef struct attn_rows_at {
    const char *base;
    const rad_slot *slots; /* [ATTN_BLOCK] */
    size_t stride;
} attn_rows_at;

static inline const char *attn_row_at(const attn_rows_at *rows, uint32_t j)
{
    return rows->base + (size_t)rows->slots[j] * rows->stride;
}

/* Memory that will be read soon, line by line: the unit's part of the next block's rows,
 * all of K and then all of V. Kernels fetch a line now and then, as many in a block as they
 * read themselves and spread over their arithmetic: a core has only so many misses in
 * flight, so whatever time passes without one is lost. Whole token rows in ascending order,
 * whatever part of them is worked on: memory likes that best. */
typedef struct attn_ahead {
    const char *next; /* line */
    uint32_t left;    /* lines of this row */
    uint32_t step;    /* 64, or 0 when all was fetched */
    uint32_t token;   /* the next row's: tokens of K, tokens of V, then of their scales */
    uint32_t side;    /* which of those */
    uint32_t count;   /* tokens */
    uint32_t sides;   /* 2; MLA: 1; each with its scales, if any, behind it all */
    const rad_slot *slots;
    const char *base[4];
    size_t stride[4], bytes[4];
} attn_ahead;

static inline void attn_ahead_row(attn_ahead *a)
{
    if (a->token == a->count) {
        a->token = 0;
        a->side++;
    }
    if (a->side == a->sides) {
        a->step = 0;
        a->left = UINT32_MAX;
        return;
    }
    a->next = a->base[a->side] + (size_t)a->slots[a->token++] * a->stride[a->side];
    a->left = (uint32_t)((a->bytes[a->side] + 63) / 64);
    a->step = 64;
}

static inline void attn_ahead_fetch(attn_ahead *a, uint32_t lines)
{
    while (lines > 0 && a->step) {
        uint32_t some = lines < a->left ? lines : a->left;
        const char *line = a->next;
        for (uint32_t i = 0; i < some; i++, line += 64)
            __builtin_prefetch(line, 0, 3);
        a->next = line;
        a->left -= some;
        lines -= some;
        if (a->left == 0) attn_ahead_row(a);
    }
}

static inline uint32_t attn_lines_of(size_t bytes)
{
    return (uint32_t)((bytes + 63) / 64);
}

/* One block of keys for a few rows. Keys outside [begin, end) are not seen; that range is
 * never empty. */
typedef struct attn_tile {
    uint32_t rows, dim, v_dim;
    const void *q[ATTN_TILE_ROWS];                       /* prepared */
    uint32_t begin[ATTN_TILE_ROWS], end[ATTN_TILE_ROWS]; /* within the block */
    const void *keys;                                    /* loaded */
    const void *values;                                  /* loaded; NULL: read in place */
    const attn_rows_at *values_at;
    attn_ahead *ahead;    /* to fetch from on the way, or NULL */
    uint32_t ahead_bytes; /* for each number of the values */
    float scaling, logit_cap;

    /* int8 as bf16 (attn_codes.h): for each row, of each key, times its score and times its
     * weight where the values are summed; else NULL. `pairs` and `tiles`. */
    const float *key_scales[ATTN_TILE_ROWS], *value_scales[ATTN_TILE_ROWS];

    /* Results: the block's maximum and sum per row, and its weighted values. */
    float max[ATTN_FOLD_ROWS], sum[ATTN_FOLD_ROWS];
    float *part; /* [rows][part_ld], part_ld >= v_dim rounded up to 16; aligned to 64 */
    size_t part_ld;
} attn_tile;

struct attn_strip;

typedef struct attn_kernels {
    bool pairs; /* q is kept as pairs of bf16, else as f32 */

    /* One row of q as the tiles want it, attn_q_bytes of it. */
    void (*prepare_q)(const radix_attention *layer, const float *q, void *to);

    /* The keys transposed, [dim or pairs of dims][ATTN_BLOCK] of 4 bytes each. */
    void (*load_keys)(const attn_rows_at *keys, uint32_t dim, void *to, attn_ahead *ahead);

    /* The same from a pool of narrow numbers, those that kv_codec decodes them to. False,
     * and nothing is done, for a dtype or a scale that it does not know. NULL: for all. */
    bool (*load_codes)(uint32_t dtype, const kv_rows *keys, uint32_t dim, void *to,
                       attn_ahead *ahead);

    /* Pairs of keys side by side, [ATTN_BLOCK / 2][v_dim rounded up to 16] of two bf16.
     * NULL: the kernel reads values in place. */
    void (*load_values)(const attn_rows_at *values, uint32_t v_dim, void *to, attn_ahead *ahead);

    void (*attend)(attn_tile *tile);

    /* Puts a block's (max, sum) into what the rows have so far. Their values are to be
     * merged with these scales. All arrays have ATTN_FOLD_ROWS. */
    void (*fold)(float *max, float *sum, const float *block_max, const float *block_sum,
                 float *scale, float *block_scale);

    /* total = fma(part, part_scale, total * scale), and total = total / sum. */
    void (*merge)(uint32_t dim, float *total, float scale, const float *part, float part_scale);
    void (*divide)(uint32_t dim, float *total, float sum);

    float (*exp)(float x); /* of x <= 0, as weights are computed (pairs: 2^x) */

    const struct attn_wide_kernels *wide; /* attn_wide.h; NULL: no such layout */
    void (*strip)(struct attn_strip *s);  /* attn_strip.h; likewise */
} attn_kernels;

/* Of a prepared row; a multiple of 64. */
static inline size_t attn_q_bytes(const attn_kernels *k, uint32_t dim)
{
    return (((size_t)dim + k->pairs) / (k->pairs ? 2 : 1) * 4 + 63) & ~(size_t)63;
}

/* What one instruction set has. attend is NULL where it is not compiled for this
 * architecture. bf16 reads a bf16 pool, f32 anything that was read as f32. */
typedef struct attn_isa {
    attn_kernels f32, bf16;
} attn_isa;

extern const attn_isa attn_isa_scalar, attn_isa_avx2, attn_isa_avx512, attn_isa_neon;
extern const attn_kernels attn_pairs_avx512bf16;

/* What attn_cpu() gives: a backend that attends by these kernels. */
typedef struct attn_cpu_backend {
    attn_backend base; /* its forward is attn_cpu_forward */
    const attn_isa *isa;
    const attn_kernels *bf16;  /* for bf16 pools, and narrow ones' codes, when not the ISA's own */
    const char *name_of_codes; /* then: what computes those */
} attn_cpu_backend;

void attn_cpu_forward(const attn_backend *self, const radix_attention *layer,
                      const forward_batch *batch, const float *q, float *out, compute_pool *pool);

#endif
