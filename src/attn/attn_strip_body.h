/* attn_strip_body.h - the kernel of strips (attn_strip.h) by VDPBF16PS, written once over how
 * numbers lie. A file that includes this has defined:
 *
 *     TOKENS                   of a step, 16 * TILES
 *     DIMS                     of a line, 32 or 64
 *     most_together(sharing)   heads whose scores are made side by side, 1 or 2: a score is one
 *                              chain of additions, each of which waits for the last
 *     most_vectors(sharing)    of sums for each row of q beside values, 2 or 4
 *     FIRST, AHEAD             rows ahead that are asked for; and known
 *     reader                   what it keeps in registers to read with
 *
 * and defines the functions that are declared here. The constant `dtype` tells what is read;
 * RAD_I8 has scales. */

/* Lines are asked for more than once: FIRST rows ahead, row by row, lines as they lie, PIECE by
 * PIECE; and again when the line at their place is read in an earlier row, mostly there by then.
 *
 * The first asking goes on a little slower than lines are read, seven for eight: the rest is asked
 * for where none is read, before the softmax and at the block's end. */
enum { LINE = ATTN_STRIP_LINE, BEFORE_SOFTMAX = 20 /* pieces */ };

/* A piece takes it one row ahead at most, and there are no more pieces than rows for the lines
 * that are read; so it stays within what is known. */
_Static_assert(FIRST + BEFORE_SOFTMAX < AHEAD, "");

/* Sums of the scores of some heads' rows with TOKENS keys. */
typedef struct strip_scores {
    vf of[2][TILES][ATTN_STRIP_SHARING];
} strip_scores;

typedef struct strip_keys {
    const char *const *rows; /* TOKENS, and those that are read next */
    size_t at;               /* the first head in them */
    const char *q;           /* of its first row */
} strip_keys;

TILE reader reader_of(const attn_strip *s);

/* Asks again for lines, when the one at `at` of rows[0] is read. */
TILE void ask_again(const char *const *rows, size_t at);

/* The keys of some heads times their rows of q, pair by pair of dimensions, ascending: a lane is
 * a key. Lines are asked for as they are read. */
TILE void add_scores(uint32_t dtype, const reader *with, uint32_t sharing, uint32_t heads,
                     const strip_keys *keys, attn_strip *s, strip_scores *sums);

/* 16 * vectors dimensions of two keys' values as pairs: a lane is a dimension. */
TILE void value_pairs(uint32_t dtype, const reader *with, int vectors, const char *x, const char *y,
                      __m512i pair[4]);

/* The scores of `heads` KV heads, h and what follows, with TOKENS keys. */
TILE void score(const uint32_t dtype, const reader *with, const uint32_t sharing,
                const uint32_t heads, attn_strip *s, uint32_t h, uint32_t token)
{
    strip_scores sums;
    float *to = s->weights + (size_t)h * sharing * BLOCK + token;
#pragma GCC unroll 2
    for (uint32_t n = 0; n < heads; n++)
#pragma GCC unroll 2
        for (uint32_t g = 0; g < TILES; g++)
#pragma GCC unroll 8
            for (uint32_t r = 0; r < sharing; r++)
                sums.of[n][g][r] = vf_set1(0);
    const strip_keys keys = {
        .rows = s->rows + token, .at = h * s->head_bytes, .q = s->q + h * sharing * s->q_bytes};
    add_scores(dtype, with, sharing, heads, &keys, s, &sums);
#pragma GCC unroll 2
    for (uint32_t n = 0; n < heads; n++)
#pragma GCC unroll 2
        for (uint32_t g = 0; g < TILES; g++)
#pragma GCC unroll 8
            for (uint32_t r = 0; r < sharing; r++)
                vf_store(to + (n * sharing + r) * BLOCK + g * W, sums.of[n][g][r]);
}

/* Scores to weights, in place: a row's 32 pairs at the beginning of its 64 floats. */
TILE void weigh(const uint32_t dtype, const uint32_t sharing, const uint32_t rows, attn_strip *s,
                uint32_t first)
{
    _Alignas(64) uint32_t p[ATTN_TILE_ROWS][PAIRS];
    float *scores = s->weights + (size_t)first * BLOCK;
    attn_tile t;
    t.logit_cap = s->logit_cap;
    for (uint32_t r = 0; r < rows; r++) {
        const size_t scales = (size_t)((first + r) / sharing) * BLOCK;
        t.begin[r] = s->begin, t.end[r] = s->end;
        t.key_scales[r] = dtype == RAD_I8 ? s->key_scales + scales : NULL;
        t.value_scales[r] = dtype == RAD_I8 ? s->value_scales + scales : NULL;
    }
    if (s->begin == 0 && s->end == BLOCK && !(s->logit_cap > 0))
        softmax(&t, rows, true, scores, p);
    else
        softmax(&t, rows, false, scores, p);
    for (uint32_t r = 0; r < rows; r++) {
        memcpy(scores + r * BLOCK, p[r], sizeof p[r]);
        s->max[first + r] = t.max[r];
        s->sum[first + r] = t.sum[r];
    }
}

static void weigh_all(uint32_t dtype, attn_strip *s)
{
    const uint32_t rows = s->kv_heads * s->sharing;
    uint32_t r = 0;
    for (; r + 6 <= rows; r += 6)
        weigh(dtype, s->sharing, 6, s, r);
    for (; r + 2 <= rows; r += 2)
        weigh(dtype, s->sharing, 2, s, r);
    if (r < rows) weigh(dtype, s->sharing, 1, s, r);
}

/* 16 * vectors dimensions of the values of TOKENS tokens, from `at` in their rows on, times the
 * pairs of weights p, onto the first `sharing` rows of part. */
TILE void add_values(const uint32_t dtype, const reader *with, const uint32_t sharing,
                     const int vectors, attn_strip *s, const char *const *rows, size_t at,
                     const uint32_t *p, bool fresh, float *part)
{
    /* Pairs of keys with eight lines; of a row's line, half may be read. */
    const int lines = RAD_MAX(vectors * W / DIMS, 1), every = 4 * DIMS / (vectors * W);
    vf sum[ATTN_STRIP_SHARING][4];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < sharing; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            sum[r][v] = fresh ? vf_set1(0) : vf_load(part + r * s->dim + v * W);
#pragma GCC unroll 8
    for (int i = 0; i < TOKENS / 2; i++) {
        __m512i pair[4];
        const char *const *row = rows + 2 * i;
        if (i % every == 0) attn_strip_ask(s, i + every < TOKENS / 2 ? 2 : 1);
        for (int line = 0; line < lines; line++) {
            ask_again(row, at + line * LINE);
            ask_again(row + 1, at + line * LINE);
        }
        value_pairs(dtype, with, vectors, row[0] + at, row[1] + at, pair);
#pragma GCC unroll 8
        for (uint32_t r = 0; r < sharing; r++) {
            __m512bh one = (__m512bh)_mm512_set1_epi32((int)p[r * BLOCK + i]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                sum[r][v] = _mm512_dpbf16_ps(sum[r][v], one, (__m512bh)pair[v]);
        }
    }
#pragma GCC unroll 8
    for (uint32_t r = 0; r < sharing; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            vf_store(part + r * s->dim + v * W, sum[r][v]);
}

TILE void strip_of(const uint32_t dtype, const uint32_t sharing, attn_strip *s)
{
    const reader with = reader_of(s);
    const uint32_t together = most_together(sharing);
    attn_strip_ask_from(s, FIRST);
    for (uint32_t token = 0; token < s->tokens; token += TOKENS) {
        uint32_t h = 0;
        for (; h + together <= s->kv_heads; h += together)
            score(dtype, &with, sharing, together, s, h, token);
        if (h < s->kv_heads) score(dtype, &with, sharing, 1, s, h, token);
    }
    attn_strip_ask(s, BEFORE_SOFTMAX);
    weigh_all(dtype, s);
    const int vectors = most_vectors(sharing);
    for (uint32_t token = 0; token < s->tokens; token += TOKENS) {
        const char *const *rows = s->rows + s->tokens + token;
        for (uint32_t h = 0; h < s->kv_heads; h++) {
            const uint32_t *p = (const uint32_t *)(s->weights + (size_t)h * sharing * BLOCK);
            float *part = s->part + (size_t)h * sharing * s->dim;
            size_t at = h * s->head_bytes;
            uint32_t d = 0;
            for (; d + vectors * W <= s->dim; d += vectors * W, at += vectors * W * 64 / DIMS)
                add_values(dtype, &with, sharing, vectors, s, rows, at, p + token / 2, token == 0,
                           part + d);
            if (d < s->dim)
                add_values(dtype, &with, sharing, 2, s, rows, at, p + token / 2, token == 0,
                           part + d);
        }
    }
    while (s->ask_row < 2 * s->tokens + FIRST) /* where the next block begins to ask */
        attn_strip_ask(s, 1);
}

#include "attn/attn_strip_sharing.h"
