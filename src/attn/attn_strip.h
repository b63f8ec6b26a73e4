/* attn_strip.h - a third layout for units of one token: decoding, where memory is the limit.
 *
 *     narrow  a KV head after the other: its 64 keys and values are packed, then read
 *     strip   a few tokens after the other: the keys of all heads, as they lie; the softmax of
 *             all heads; then the values, likewise
 *
 * Each line is loaded once, in memory order, and used from registers: f32, bf16 and f16 16
 * tokens at a time, codes (attn_codes.h) 32. Prefetches run ahead of the loads. A core keeps some
 * 48 line fills in flight and silently drops a prefetch beyond these (docs/kernels.md); a dropped
 * line is a cache miss in the middle of the products. Two measures against that: prefetches are
 * issued at a constant rate, also in the softmax, which loads nothing; and each line is prefetched
 * a second time (attn_strip_body.h).
 *
 * A row's operations and their order are those of the narrow layout: which one is taken never
 * shows in a bit (P1). */
#ifndef ATTN_ATTN_STRIP_H
#define ATTN_ATTN_STRIP_H

#include "attn/attn_kernels.h"

enum {
    ATTN_STRIP_TOKENS = 16,
    ATTN_STRIP_CODE_TOKENS = 32, /* of fp8 and int8: as many bytes */
    ATTN_STRIP_AHEAD = 64,       /* rows known behind a block's */
    ATTN_STRIP_CODE_AHEAD = 96,  /* likewise of codes */
    ATTN_STRIP_SHARING = 8,      /* query heads of a KV head, at most */
    ATTN_STRIP_ROWS = 96,        /* of all heads together, at most */
    ATTN_STRIP_DIM = 256         /* at most, and a multiple of 32 */
};

/* A block of some KV heads for the rows of one token. Arrays are aligned to 64. */
typedef struct attn_strip {
    uint32_t kv_heads, sharing; /* row i of KV head h is number h * sharing + i */
    uint32_t dim;               /* of K and of V */
    uint32_t dtype;             /* of them */
    const char *q;              /* prepared, q_bytes each */
    size_t q_bytes;
    float scaling; /* of scores; `pairs` has it in q */
    float logit_cap;

    uint32_t step;       /* tokens at a time: ATTN_STRIP_TOKENS, or of codes */
    uint32_t ahead;      /* rows behind the block's: ATTN_STRIP_AHEAD, or of codes */
    uint32_t tokens;     /* of the block, whole steps */
    uint32_t begin, end; /* which of them are seen; the others' values are 0, or not read */
    const char *rows[2 * ATTN_BLOCK + ATTN_STRIP_CODE_AHEAD]; /* K, V, the K that comes next */
    size_t head_bytes;                                        /* from a KV head to the next */
    const float *key_scales, *value_scales; /* [kv_heads][ATTN_BLOCK], int8 only */

    float *weights;                                   /* [rows][ATTN_BLOCK]: room */
    float max[ATTN_STRIP_ROWS], sum[ATTN_STRIP_ROWS]; /* results, and */
    float *part;                                      /* [rows][dim] */

    /* The kernel's own: what it asks for next, in rows[ask_row], and where that row ends. It is
     * here because in registers, which are short there, it makes the kernel a tenth slower. */
    uint32_t ask_row;
    const char *ask_line, *ask_end;
} attn_strip;

enum { ATTN_STRIP_LINE = 64, ATTN_STRIP_PIECE = 4 * ATTN_STRIP_LINE };

/* For kernels: asks for what comes next, PIECE by PIECE, row by row, lines as they lie. A row that
 * is no whole number of pieces has its last one end behind it. */
static inline __attribute__((always_inline)) void attn_strip_ask(attn_strip *s, uint32_t pieces)
{
    for (uint32_t i = 0; i < pieces; i++) {
        const char *line = s->ask_line;
        __builtin_prefetch(line, 0, 3);
        __builtin_prefetch(line + ATTN_STRIP_LINE, 0, 3);
        __builtin_prefetch(line + 2 * ATTN_STRIP_LINE, 0, 3);
        __builtin_prefetch(line + 3 * ATTN_STRIP_LINE, 0, 3);
        line += ATTN_STRIP_PIECE;
        if (line >= s->ask_end) {
            line = s->rows[++s->ask_row];
            s->ask_end = line + s->kv_heads * s->head_bytes;
        }
        s->ask_line = line;
    }
}

/* Where a block begins to ask. */
static inline void attn_strip_ask_from(attn_strip *s, uint32_t row)
{
    s->ask_row = row;
    s->ask_line = s->rows[row];
    s->ask_end = s->ask_line + s->kv_heads * s->head_bytes;
}

void attn_strip_avx512bf16(attn_strip *strip); /* bf16 */
void attn_strip_avx512vbmi(attn_strip *strip); /* fp8 and int8 as in attn_codes.h */
void attn_strip_avx2_f32(attn_strip *strip);   /* `chain`: f32, and f16 as it lies */
void attn_strip_avx2_bf16(attn_strip *strip);

#endif
