/* attn_strip_avx512bf16.c - strips (attn_strip.h) of `pairs`, by VDPBF16PS.
 *
 *     scores   16 keys x 32 dimensions are transposed in registers: a lane is a key, and 16
 *              pairs of a row of q are added to its 16 scores, ascending
 *     values   two keys x 32 dimensions are mixed to pairs in registers: a lane is a dimension */
#include "attn/attn_strip.h"

#if defined(__AVX512BF16__)
#include "attn/attn_pairs_softmax.h"

enum { TOKENS = ATTN_STRIP_TOKENS, DIMS = 2 * W, MOST = ATTN_STRIP_SHARING };

/* How many rows ahead a line is asked for, first and again (attn_strip.h). The first asking goes
 * on by pieces of four lines, a little slower than lines are read: the rest is asked for where
 * none is read. */
enum {
    FIRST = 40,
    AGAIN = 24,
    LAST = TOKENS,
    PIECE = 4 * 64,
    BEFORE_SOFTMAX = 20 /* pieces */
};

/* A piece takes it one row ahead at most, and there are no more pieces than rows for the lines
 * that are read; so it stays within what is known. */
_Static_assert(FIRST + BEFORE_SOFTMAX < ATTN_STRIP_AHEAD, "");

/* A row that is no whole number of pieces has its last one end behind it. */
TILE void ask(attn_strip *s, uint32_t pieces)
{
    for (uint32_t i = 0; i < pieces; i++) {
        const char *line = s->ask_line;
        __builtin_prefetch(line, 0, 3);
        __builtin_prefetch(line + 64, 0, 3);
        __builtin_prefetch(line + 128, 0, 3);
        __builtin_prefetch(line + 192, 0, 3);
        line += PIECE;
        if (line >= s->ask_end) {
            line = s->rows[++s->ask_row];
            s->ask_end = line + s->kv_heads * s->head_bytes;
        }
        s->ask_line = line;
    }
}

/* 16 keys x 32 dimensions: tile[i] gets pair i of each. */
TILE void load_tile(const char *const *rows, size_t offset, __m512i tile[TOKENS])
{
#pragma GCC unroll 16
    for (int i = 0; i < TOKENS; i++)
        tile[i] = _mm512_loadu_si512(rows[i] + offset);
    transpose(tile);
}

/* Onto the scores of a head's rows, whose q begins at these 32 dimensions. Asks for `pieces`. */
TILE void add_scores(attn_strip *s, const uint32_t sharing, const __m512i tile[TOKENS],
                     const char *q, size_t q_bytes, const char *const *rows, size_t offset,
                     const uint32_t pieces, vf sum[MOST])
{
    const uint32_t *pair[MOST];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < sharing; r++) {
        pair[r] = (const uint32_t *)(q + r * q_bytes);
        __asm__("" : "+r"(pair[r])); /* one register each: else 16 addresses are kept for each */
    }
#pragma GCC unroll 16
    for (int i = 0; i < TOKENS; i++) {
        if (i % 8 == 0) ask(s, i == 0 ? 2 : pieces - 2);
        __builtin_prefetch(rows[AGAIN + i] + offset, 0, 3);
        __builtin_prefetch(rows[LAST + i] + offset, 0, 3);
#pragma GCC unroll 8
        for (uint32_t r = 0; r < sharing; r++)
            sum[r] = _mm512_dpbf16_ps(sum[r], (__m512bh)tile[i],
                                      (__m512bh)_mm512_set1_epi32((int)pair[r][i]));
    }
}

/* The scores of `heads` KV heads, h and what follows, with 16 keys. A score is one chain of
 * additions: those of two heads go side by side. */
TILE void score(const uint32_t sharing, const uint32_t heads, attn_strip *s, uint32_t h,
                uint32_t token)
{
    vf sum[2][MOST];
    const char *const *rows = s->rows + token, *q = s->q + h * sharing * s->q_bytes;
    float *to = s->weights + (size_t)h * sharing * BLOCK + token;
#pragma GCC unroll 2
    for (uint32_t n = 0; n < heads; n++)
#pragma GCC unroll 8
        for (uint32_t r = 0; r < sharing; r++)
            sum[n][r] = vf_set1(0);
    for (uint32_t d = 0; d < s->dim; d += DIMS)
#pragma GCC unroll 2
        for (uint32_t n = 0; n < heads; n++) {
            const size_t at = (h + n) * s->head_bytes + d * 2;
            __m512i tile[TOKENS];
            load_tile(rows, at, tile);
            add_scores(s, sharing, tile, q + n * sharing * s->q_bytes + d * 2, s->q_bytes, rows, at,
                       n ? 3 : 4, sum[n]);
        }
#pragma GCC unroll 2
    for (uint32_t n = 0; n < heads; n++)
#pragma GCC unroll 8
        for (uint32_t r = 0; r < sharing; r++)
            vf_store(to + (n * sharing + r) * BLOCK, sum[n][r]);
}

/* Scores to weights, in place: a row's 32 pairs at the beginning of its 64 floats. */
TILE void weigh(const uint32_t rows, attn_strip *s, uint32_t first)
{
    _Alignas(64) uint32_t p[ATTN_TILE_ROWS][PAIRS];
    float *scores = s->weights + (size_t)first * BLOCK;
    attn_tile t;
    t.logit_cap = s->logit_cap;
    for (uint32_t r = 0; r < rows; r++) {
        t.begin[r] = s->begin, t.end[r] = s->end;
        t.key_scales[r] = t.value_scales[r] = NULL;
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

static void weigh_all(attn_strip *s)
{
    const uint32_t rows = s->kv_heads * s->sharing;
    uint32_t r = 0;
    for (; r + 6 <= rows; r += 6)
        weigh(6, s, r);
    for (; r + 2 <= rows; r += 2)
        weigh(2, s, r);
    if (r < rows) weigh(1, s, r);
}

/* 16 * vectors dimensions of the values of 16 tokens, from `at` in their rows on, times the
 * pairs of weights p, onto the first `sharing` rows of part. */
TILE void add_values(const uint32_t sharing, const int vectors, attn_strip *s,
                     const char *const *rows, size_t at, const uint32_t *p, bool fresh, float *part)
{
    const __m512i low = pairs_low(), high = pairs_high();
    const int every = 8 / vectors;
    vf sum[MOST][4];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < sharing; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            sum[r][v] = fresh ? vf_set1(0) : vf_load(part + r * s->dim + v * W);
#pragma GCC unroll 8
    for (int i = 0; i < TOKENS / 2; i++) {
        __m512i pair[4];
        if (i % every == 0) ask(s, i + every < TOKENS / 2 ? 2 : 1);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v += 2) {
            const char *const *row = rows + 2 * i;
            const size_t offset = at + v * W * 2;
            __builtin_prefetch(row[AGAIN] + offset, 0, 3);
            __builtin_prefetch(row[AGAIN + 1] + offset, 0, 3);
            __builtin_prefetch(row[LAST] + offset, 0, 3);
            __builtin_prefetch(row[LAST + 1] + offset, 0, 3);
            __m512i x = _mm512_loadu_si512(row[0] + offset);
            __m512i y = _mm512_loadu_si512(row[1] + offset);
            pair[v] = _mm512_permutex2var_epi16(x, low, y);
            pair[v + 1] = _mm512_permutex2var_epi16(x, high, y);
        }
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

TILE void strip(const uint32_t sharing, attn_strip *s)
{
    const uint32_t together = sharing <= 4 ? 2 : 1; /* heads; sums that fit beside a tile */
    s->ask_row = FIRST;
    s->ask_line = s->rows[FIRST];
    s->ask_end = s->ask_line + s->kv_heads * s->head_bytes;
    for (uint32_t token = 0; token < s->tokens; token += TOKENS) {
        uint32_t h = 0;
        for (; h + together <= s->kv_heads; h += together)
            score(sharing, together, s, h, token);
        if (h < s->kv_heads) score(sharing, 1, s, h, token);
    }
    ask(s, BEFORE_SOFTMAX);
    weigh_all(s);
    const int vectors = sharing <= 6 ? 4 : 2;
    for (uint32_t token = 0; token < s->tokens; token += TOKENS)
        for (uint32_t h = 0; h < s->kv_heads; h++) {
            const char *const *rows = s->rows + s->tokens + token;
            const uint32_t *p = (const uint32_t *)(s->weights + (size_t)h * sharing * BLOCK);
            float *part = s->part + (size_t)h * sharing * s->dim;
            uint32_t d = 0;
            for (; d + vectors * W <= s->dim; d += vectors * W)
                add_values(sharing, vectors, s, rows, h * s->head_bytes + d * 2, p + token / 2,
                           token == 0, part + d);
            if (d < s->dim)
                add_values(sharing, 2, s, rows, h * s->head_bytes + d * 2, p + token / 2,
                           token == 0, part + d);
        }
    while (s->ask_row < 2 * s->tokens + FIRST) /* where the next block begins to ask */
        ask(s, 1);
}

void attn_strip_avx512bf16(attn_strip *s)
{
    switch (s->sharing) {
    case 1: strip(1, s); break;
    case 2: strip(2, s); break;
    case 3: strip(3, s); break;
    case 4: strip(4, s); break;
    case 5: strip(5, s); break;
    case 6: strip(6, s); break;
    case 7: strip(7, s); break;
    default: strip(8, s); break;
    }
}
#endif
