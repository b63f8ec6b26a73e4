/* attn_wide.h - a second layout for units of many rows: the rows lie in the lanes.
 *
 *     narrow  lanes are keys, six rows at a time: any number of rows
 *     wide    lanes are rows, 16 in a group: maxima, sums and scales of 16 rows are one
 *             vector, nothing is folded across lanes, and keys are read as they lie
 *
 * Row r is lane r % 16 of group r / 16. Both layouts do the same operations for a row, in the
 * same order: which one is taken never shows in a bit (P1). */
#ifndef ATTN_ATTN_WIDE_H
#define ATTN_ATTN_WIDE_H

#include "attn/attn_kernels.h"

enum {
    ATTN_LANES = 16,
    ATTN_WIDE_TILE = 2,  /* groups worked on together */
    ATTN_WIDE_LEAST = 13 /* rows from which it is faster than `narrow` */
};

/* The next block, fetched while this one is computed. Each step of a tile prefetches the K and V
 * rows of `step` tokens. `lag` tokens later, if `keys` is not NULL, the tile packs them into keys
 * and values. Few prefetched lines wait in L1 that way: rows a power of two apart map to the same
 * few cache sets and would evict each other.
 *
 * `step` is constant over a block: a variable trip count mispredicts the branch at the end of the
 * loop, and the core discards the products that it had started. */
typedef struct attn_wide_ahead {
    attn_rows_at rows[2]; /* K, V; [ATTN_BLOCK] slots */
    uint32_t lines[2];    /* of a row, to be fetched */
    uint32_t step;        /* tokens of a step, even */
    uint32_t lag;         /* tokens between fetching and loading, a multiple of it */
    uint32_t next;        /* token to be fetched; and that less `lag` is to be loaded */
    uint16_t *keys;
    uint32_t *values;
} attn_wide_ahead;

static inline void attn_wide_fetch(const attn_wide_ahead *a)
{
    const uint32_t end = RAD_MIN(a->next + a->step, ATTN_BLOCK);
    for (uint32_t j = a->next; j < end; j++)
        for (int side = 0; side < 2; side++) {
            const attn_rows_at *rows = &a->rows[side];
            const char *row = attn_row_at(rows, j);
            for (uint32_t i = 0; i < a->lines[side]; i++)
                __builtin_prefetch(row + (size_t)i * 64, 0, 3);
        }
}

/* One block for up to ATTN_WIDE_TILE groups. Arrays are aligned to 64. */
typedef struct attn_wide_tile {
    uint32_t groups, dim, v_dim;
    const uint32_t *q;      /* [group][attn_wide_q_pairs][16], see pack_q */
    const uint16_t *keys;   /* as load_keys leaves them */
    const uint32_t *values; /* as these kernels' load_values leaves them */
    bool all;               /* all rows see all keys; else: */
    const int32_t *begin;   /* [group][16]: a row sees the keys [begin, end), or */
    const int32_t *end;     /* none when they are equal; some row sees some */
    float logit_cap;
    const float *key_scales, *value_scales; /* as in attn_tile */
    float *max, *sum;                       /* [group][16], folded with the block's */
    float *total;                           /* [group][v_dim rounded up to 16][16], likewise */
    attn_wide_ahead *ahead;                 /* goes on by a step at each of attn_wide_steps */
} attn_wide_tile;

/* Pairs of dims of a group of q: 32 dims at a time, as the keys are; zeros at the end. */
static inline uint32_t attn_wide_q_pairs(uint32_t dim)
{
    return (dim + 31) / 32 * 16;
}

static inline uint32_t attn_wide_steps(uint32_t v_dim)
{
    return ATTN_BLOCK / 8 + (v_dim + 7) / 8;
}

/* What the kernels keep from a tile's scores to its end. */
typedef struct attn_wide_work {
    _Alignas(64) char bytes[20 << 10];
} attn_wide_work;

typedef struct attn_wide_kernels {
    /* 16 rows of q, NULL: zeros, to one group. */
    void (*pack_q)(const radix_attention *layer, const float *const *q, uint32_t *to);

    /* The keys side by side: [ATTN_BLOCK][dim rounded up to 32]. */
    void (*load_keys)(const attn_rows_at *keys, uint32_t dim, uint16_t *to);

    /* What attend wants of the values, ATTN_BLOCK / 2 words for each of v_dim rounded up to
     * 16: as in attn_kernels, or [dim][pair of keys]. */
    void (*load_values)(const attn_rows_at *values, uint32_t v_dim, void *to, attn_ahead *ahead);

    void (*attend)(const attn_wide_tile *tile);

    /* What `ahead` has not loaded yet. NULL: it only fetches, load_keys and load_values it is. */
    void (*load_ahead)(attn_wide_ahead *ahead, uint32_t dim, uint32_t v_dim);

    /* `attend` in two parts, for tiles one after the other: `scores`, then `finish`, which on
     * its way makes the scores of `next` (or NULL) in less time than alone. `in_parts` tells
     * whether that is to be had for a tile; all NULL where it never is. */
    bool (*in_parts)(const attn_wide_tile *tile);
    void (*scores)(const attn_wide_tile *tile, attn_wide_work *work);
    void (*finish)(const attn_wide_tile *tile, const attn_wide_tile *next, attn_wide_work *work);

    /* A group's totals from 16 rows, and back divided by `sum` (NULL: as they are). NULL rows
     * are left out. */
    void (*load_rows)(uint32_t v_dim, const float *const *rows, float *total);
    void (*store_rows)(uint32_t v_dim, const float *total, const float *sum, float *const *rows);
} attn_wide_kernels;

extern const attn_wide_kernels attn_wide_avx512bf16;

#endif
