/* attn_strip.h - a third layout for units of one token: decoding, where memory is the limit.
 *
 *     narrow  a KV head after the other: its 64 keys and values are packed, then read
 *     strip   16 tokens after the other: the keys of all heads, as they lie; the softmax of all
 *             heads; then the values, likewise
 *
 * What is read is read once, in the order in which it lies, and used in registers. It is asked
 * for before, and more than once: a core keeps some 48 lines under way, and what it is asked for
 * beyond these it forgets (docs/kernels.md). A line forgotten would be missed just when it is
 * computed with. So asking goes on evenly, also where nothing is read, and it goes round again:
 *
 *     40 rows ahead         row by row, lines as they lie
 *     24 and 16 rows ahead  the line at the place of the one being read; mostly there by now
 *
 * A row's operations and their order are those of the narrow layout: which one is taken never
 * shows in a bit (P1). */
#ifndef ATTN_ATTN_STRIP_H
#define ATTN_ATTN_STRIP_H

#include "attn/attn_kernels.h"

enum {
    ATTN_STRIP_TOKENS = 16,
    ATTN_STRIP_AHEAD = 64,  /* rows known behind a block's */
    ATTN_STRIP_SHARING = 8, /* query heads of a KV head, at most */
    ATTN_STRIP_ROWS = 96,   /* of all heads together, at most */
    ATTN_STRIP_DIM = 256    /* at most, and a multiple of 32 */
};

/* A block of some KV heads for the rows of one token. Arrays are aligned to 64. */
typedef struct attn_strip {
    uint32_t kv_heads, sharing; /* row i of KV head h is number h * sharing + i */
    uint32_t dim;               /* of K and of V */
    const char *q;              /* prepared, q_bytes each */
    size_t q_bytes;
    float logit_cap;

    uint32_t tokens;     /* of the block, a multiple of 16 */
    uint32_t begin, end; /* which of them are seen; the others' values are to be 0 */
    const char *rows[2 * ATTN_BLOCK + ATTN_STRIP_AHEAD]; /* K, V, the K that comes next */
    size_t head_bytes;                                   /* from a KV head to the next */

    float *weights;                                   /* [rows][ATTN_BLOCK]: room */
    float max[ATTN_STRIP_ROWS], sum[ATTN_STRIP_ROWS]; /* results, and */
    float *part;                                      /* [rows][dim] */

    /* The kernel's own: what it asks for next, in rows[ask_row], and where that row ends. It is
     * here because in registers, which are short there, it makes the kernel a tenth slower. */
    uint32_t ask_row;
    const char *ask_line, *ask_end;
} attn_strip;

void attn_strip_avx512bf16(attn_strip *strip);

#endif
