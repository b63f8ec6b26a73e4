/* attn_unit.h - a unit of attention's work: some query tokens that read the same slots, some
 * KV heads, and a range of blocks. One thread computes it, on its own stack.
 *
 *     private part of a request      tokens of one request over its own slots
 *     shared part of a group         tokens of all members over the slots they share
 *
 * A row (a head of a token) takes its blocks in ascending order, whichever units they
 * belong to: what it has so far waits in `out` and `states` between two of them. */
#ifndef ATTN_ATTN_UNIT_H
#define ATTN_ATTN_UNIT_H

#include "attn/attn_codes.h"

enum {
    ATTN_MOST_ROWS = 1024,
    ATTN_MOST_SIDES = 32,
    ATTN_Q_BYTES = 128 << 10 /* of a unit's rows of q, prepared */
};

/* What a forward pass is, the same for all of its units. */
typedef struct attn_call {
    const attn_kernels *kernels;
    const radix_attention *layer;
    const forward_batch *batch;
    attn_kv kv;
    const attn_codes *codes; /* narrow numbers are read as bf16 (attn_codes.h), or NULL: */
    bool decoded;            /* rows are read as f32 first: neither f32 nor bf16 is stored */
    bool mla;                /* V is the beginning of K */
    bool scaled;             /* codes: each key with its scales */
    bool rounded;            /* codes: numbers are decoded and rounded, scales and all */
    float v_scale;           /* codes: of all values; else 1 */
    radix_attention q_layer; /* the layer with K's scale in its scaling, for q */
    uint32_t v_dim;
    const float *q;
    float *out;
    float *states; /* [token * num_heads + head][max, sum]; NULL when no unit needs it */

    /* A side is a KV head, or a part of its query heads where those are very many. */
    uint32_t sharing;   /* query heads per KV head */
    uint32_t heads;     /* per side; the last part of a KV head may have fewer */
    uint32_t parts;     /* sides per KV head */
    uint32_t num_sides; /* of all */
    uint32_t most_rows; /* of a unit, all its sides together */
} attn_call;

/* `codes`: with kernels for bf16, where attn_codes_take; else NULL. */
attn_call attn_call_of(const attn_kernels *kernels, const attn_codes *codes,
                       const radix_attention *layer, const forward_batch *batch, const float *q,
                       float *out);

/* codes: the block's rows as bf16, row i at to + i * ld, zeros up to ld (a multiple of 32).
 * Of both sides, but for MLA of K alone. */
void attn_rows_of_codes(const attn_call *call, attn_kv_side side, const rad_slot *slots,
                        uint32_t kv_head, uint16_t *to, size_t ld);

/* scaled: what the tiles of the block need beside its codes, for KV heads in a row. */
typedef struct attn_scales {
    _Alignas(64) float of[2][ATTN_MOST_SIDES][ATTN_BLOCK]; /* ATTN_K, ATTN_V */
} attn_scales;
void attn_scales_of(const attn_call *call, const rad_slot *slots, uint32_t kv_head, uint32_t heads,
                    attn_scales *to);

/* Slots of rows that were copied: 0, 1, 2 ... */
extern const rad_slot attn_in_order[ATTN_BLOCK];

/* The query heads of a side: *first .. *first + the returned number. */
uint32_t attn_side_heads(const attn_call *call, uint32_t side, uint32_t *first);

/* The keys of `block` that a query at `position` sees: [*begin, *end) within the block;
 * false when there are none. */
bool attn_sees(const radix_attention *layer, uint32_t position, uint32_t block, uint32_t *begin,
               uint32_t *end);

/* Blocks' results stored one by one, to be merged later: [line][block][max, sum, values]
 * for line = token * num_heads + head and blocks from `first_block` on. */
typedef struct attn_partials {
    float *numbers;
    uint32_t first_block, num_blocks;
} attn_partials;

static inline float *attn_partial(const attn_partials *p, uint32_t v_dim, size_t line,
                                  uint32_t block)
{
    return p->numbers + (line * p->num_blocks + (block - p->first_block)) * (v_dim + 2);
}

typedef struct attn_unit {
    const rad_slot *slots; /* of position 0 on */
    uint32_t num_slots;
    uint32_t first_block, end_block;
    uint32_t side_begin, side_end;     /* at most ATTN_MOST_SIDES */
    uint32_t num_tokens;               /* num_tokens * heads * sides <= most_rows */
    bool first;                        /* these rows have no state yet */
    bool last;                         /* out is to be their result, not their state */
    const attn_partials *partials;     /* not NULL: store, merge nothing */
    uint32_t token[ATTN_MOST_ROWS];    /* in the batch */
    uint32_t position[ATTN_MOST_ROWS]; /* of it */
} attn_unit;

/* What a thread takes from unit to unit: the block that it will read next, whose lines are
 * being fetched. Zeroed at first. */
typedef struct attn_walk {
    rad_slot slots[2][ATTN_BLOCK]; /* of this block and the next */
    uint32_t turn;                 /* which of them is this one */
    bool ready;                    /* the next one is the first block of the unit to come */
    uint32_t unit;                 /* for who hands out units: which one that is */
    attn_ahead ahead;
} attn_walk;

/* O(rows * blocks). `next`, of which only the slots, the blocks and the sides count, is the
 * unit that this thread will probably run after this one: its first block is fetched during
 * the last one here, and walk->ready tells. NULL: nothing is known. */
void attn_unit_run(const attn_call *call, const attn_unit *unit, attn_walk *walk,
                   const attn_unit *next);

/* Merges the stored blocks [first, end) of one token's rows, up to ATTN_FOLD_ROWS heads of
 * which `line` is the first, in order. */
void attn_merge_partials(const attn_call *call, const attn_partials *partials, uint32_t position,
                         size_t line, uint32_t rows, uint32_t first, uint32_t end);

#endif
