/* gemm_amx_body.h - bf16 products by tiles, over the operations of base/amx.h.
 *
 * A panel's 16 pairs of k are 4 KB in one piece, and already four tiles: row p holds the
 * pairs of 16 outputs, and the next row is 256 bytes on.
 *
 *     panel   pair 0  | w0 .. w15 | w16 .. w31 | w32 .. w47 | w48 .. w63 |
 *             ...
 *             pair 15 |  tile 0   |   tile 1   |   tile 2   |   tile 3   |
 *
 * Of x a tile is 16 rows x 16 pairs, read where round_row left them. A step of 32 k
 * multiplies tiles in one of two ways:
 *
 *     low   1..16 rows: 1 tile of x, 4 of w, 4 of sums. Each byte of the weight is
 *           loaded once, so it goes at the speed of memory.
 *     high  17..32 rows: 2 tiles of x, 2 of w, 4 of sums, for either half of the panel:
 *           as many loads as products, and a load takes half as long.
 *
 * Invariant (P1): an output's chain is its steps of 32 k in ascending order, each by the
 * instruction's own order (amx_tiles.h). A row of a tile does not see the others, and a
 * sum that waits in memory between two chunks of k keeps its bits. The last step, when 32
 * does not divide K, has zeros on both sides. */
#ifndef MODEL_GEMM_AMX_BODY_H
#define MODEL_GEMM_AMX_BODY_H

#include "model/gemm_kernels.h"

enum {
    STEP_PAIRS = AMX_ROWS,                 /* of k */
    W_PITCH = GEMM_PANEL * 4,              /* bytes from pair to pair */
    STEP_BYTES = STEP_PAIRS * W_PITCH,     /* of the panel */
    X_STEP = STEP_PAIRS * 4,               /* bytes of a row of x */
    HIGH = 2 * AMX_ROWS,                   /* rows */
    CHUNK_STEPS = (32 << 10) / STEP_BYTES, /* of the panel, stays in L1 under all rows */
    LINE = 64
};

/* Steps [0, steps) of a chunk for some rows. */
typedef struct amx_pass {
    const char *x, *w;
    size_t x_pitch;
    float *c;
    size_t c_pitch; /* bytes */
    uint32_t steps;
    bool fresh;
    /* Lines [first, first + lines) of each step from `ahead` on are fetched meanwhile; at
     * step `turn` they go on in the next panel. */
    const char *ahead, *next;
    uint32_t turn, first_line, lines;
} amx_pass;

/* Tiles 0-3 sums, then x and w. Rows of x that do not exist are no rows of a tile. */
static void configure_low(uint32_t rows)
{
    amx_config c = {.palette = 1};
    for (int t = 0; t < AMX_TILES; t++) {
        c.rows[t] = (uint8_t)(t < 5 ? rows : AMX_ROWS);
        c.row_bytes[t] = AMX_ROW_BYTES;
    }
    AMX_CONFIGURE(&c);
}

/* Sums of the upper rows 0, 1, of the lower 2, 3; x 4 (upper), 5 (lower); w 6, 7. */
static void configure_high(uint32_t lower_rows)
{
    amx_config c = {.palette = 1};
    for (int t = 0; t < AMX_TILES; t++) {
        bool lower = t == 2 || t == 3 || t == 5;
        c.rows[t] = (uint8_t)(lower ? lower_rows : AMX_ROWS);
        c.row_bytes[t] = AMX_ROW_BYTES;
    }
    AMX_CONFIGURE(&c);
}

static void configure(uint32_t rows)
{
    if (rows <= AMX_ROWS)
        configure_low(rows);
    else
        configure_high(rows - AMX_ROWS);
}

/* To the L2 cache: the L1 cache is full of what is being worked on. */
static inline void fetch_ahead(const amx_pass *p, uint32_t step)
{
    const char *from = step < p->turn ? p->ahead + (size_t)step * STEP_BYTES
                                      : p->next + (size_t)(step - p->turn) * STEP_BYTES;
    from += (size_t)p->first_line * LINE;
    for (uint32_t i = 0; i < p->lines; i++)
        __builtin_prefetch(from + (size_t)i * LINE, 0, 2);
}

static void pass_low(const amx_pass *p)
{
    const char *x = p->x, *w = p->w;
    if (p->fresh) {
        AMX_ZERO(0);
        AMX_ZERO(1);
        AMX_ZERO(2);
        AMX_ZERO(3);
    } else {
        AMX_LOAD(0, p->c, p->c_pitch);
        AMX_LOAD(1, p->c + 16, p->c_pitch);
        AMX_LOAD(2, p->c + 32, p->c_pitch);
        AMX_LOAD(3, p->c + 48, p->c_pitch);
    }
    for (uint32_t s = 0; s < p->steps; s++, x += X_STEP, w += STEP_BYTES) {
        AMX_LOAD(4, x, p->x_pitch);
        AMX_LOAD(5, w, W_PITCH);
        AMX_DP(0, 4, 5);
        AMX_LOAD(6, w + 64, W_PITCH);
        AMX_DP(1, 4, 6);
        AMX_LOAD(7, w + 128, W_PITCH);
        AMX_DP(2, 4, 7);
        AMX_LOAD(5, w + 192, W_PITCH);
        AMX_DP(3, 4, 5);
        fetch_ahead(p, s);
    }
    AMX_STORE(0, p->c, p->c_pitch);
    AMX_STORE(1, p->c + 16, p->c_pitch);
    AMX_STORE(2, p->c + 32, p->c_pitch);
    AMX_STORE(3, p->c + 48, p->c_pitch);
}

/* One half of the panel: w and c point to it. */
static void pass_high(const amx_pass *p)
{
    const char *x = p->x, *w = p->w;
    float *lower = (float *)((char *)p->c + AMX_ROWS * p->c_pitch);
    if (p->fresh) {
        AMX_ZERO(0);
        AMX_ZERO(1);
        AMX_ZERO(2);
        AMX_ZERO(3);
    } else {
        AMX_LOAD(0, p->c, p->c_pitch);
        AMX_LOAD(1, p->c + 16, p->c_pitch);
        AMX_LOAD(2, lower, p->c_pitch);
        AMX_LOAD(3, lower + 16, p->c_pitch);
    }
    for (uint32_t s = 0; s < p->steps; s++, x += X_STEP, w += STEP_BYTES) {
        AMX_LOAD(4, x, p->x_pitch);
        AMX_LOAD(6, w, W_PITCH);
        AMX_DP(0, 4, 6);
        AMX_LOAD(5, x + AMX_ROWS * p->x_pitch, p->x_pitch);
        AMX_DP(2, 5, 6);
        AMX_LOAD(7, w + 64, W_PITCH);
        AMX_DP(1, 4, 7);
        AMX_DP(3, 5, 7);
        fetch_ahead(p, s);
    }
    AMX_STORE(0, p->c, p->c_pitch);
    AMX_STORE(1, p->c + 16, p->c_pitch);
    AMX_STORE(2, lower, p->c_pitch);
    AMX_STORE(3, lower + 16, p->c_pitch);
}

/* All 64 outputs of `rows` <= HIGH rows over a chunk. */
static void pass_rows(amx_pass *p, uint32_t rows)
{
    if (rows <= AMX_ROWS) {
        pass_low(p);
        p->first_line += p->lines;
        return;
    }
    for (int half = 0; half < 2; half++) {
        pass_high(p);
        p->first_line += p->lines;
        p->w += W_PITCH / 2;
        p->c += GEMM_PANEL / 2;
    }
}

/* The last panel when N is no multiple of GEMM_PANEL: tiles are whole, so they work
 * beside `c`, and what belongs there is copied. */
static void pass_beside(amx_pass *p, uint32_t rows, uint32_t columns)
{
    float sums[HIGH * GEMM_PANEL] = {0};
    char *c = (char *)p->c;
    size_t pitch = p->c_pitch;
    for (uint32_t r = 0; r < rows && !p->fresh; r++)
        memcpy(sums + r * GEMM_PANEL, c + r * pitch, columns * sizeof *sums);
    p->c = sums;
    p->c_pitch = GEMM_PANEL * sizeof *sums;
    pass_rows(p, rows);
    for (uint32_t r = 0; r < rows; r++)
        memcpy(c + r * pitch, sums + r * GEMM_PANEL, columns * sizeof *sums);
}

/* Steps [begin, begin + steps) of the panel for all rows of the block; `w` is where they
 * lie. With up to HIGH rows there is one configuration for all chunks. */
static void run_chunk(const gemm_tile *b, uint32_t columns, const char *w, uint32_t begin,
                      uint32_t steps)
{
    uint32_t whole = b->depth / STEP_PAIRS, passes = 0;
    for (uint32_t i = 0; i < b->rows; i += HIGH)
        passes += b->rows - i > AMX_ROWS ? 2 : 1;
    uint32_t turn = whole > begin + CHUNK_STEPS ? whole - begin - CHUNK_STEPS : 0;
    amx_pass p = {.x_pitch = b->ldx * 4,
                  .steps = steps,
                  .fresh = b->fresh && begin == 0,
                  .ahead = (const char *)b->w + (size_t)(begin + CHUNK_STEPS) * STEP_BYTES,
                  .next = b->ahead,
                  .turn = turn,
                  .lines = begin < whole ? (STEP_BYTES / LINE + passes - 1) / passes : 0};
    if (begin + CHUNK_STEPS > whole) /* ahead is then a way into the next panel */
        p.next += (size_t)(begin + CHUNK_STEPS - whole) * STEP_BYTES;
    for (uint32_t i = 0, configured = 0; i < b->rows; i += HIGH) {
        uint32_t rows = RAD_MIN(HIGH, b->rows - i);
        if (rows != configured) configure(configured = rows);
        p.x = (const char *)b->x + i * p.x_pitch + (size_t)begin * X_STEP;
        p.w = w;
        p.c = b->c + i * b->ldc;
        p.c_pitch = b->ldc * sizeof *b->c;
        if (columns == GEMM_PANEL)
            pass_rows(&p, rows);
        else
            pass_beside(&p, rows, columns);
    }
}

static void amx_block(const gemm_tile *b, uint32_t columns)
{
    uint32_t whole = b->depth / STEP_PAIRS, rest = b->depth % STEP_PAIRS;
    /* The sums of few rows stay in their tiles from the first k to the last. */
    uint32_t most = b->rows <= AMX_ROWS ? whole : CHUNK_STEPS;
    for (uint32_t s = 0, steps; s < whole; s += steps) {
        steps = RAD_MIN(most, whole - s);
        run_chunk(b, columns, (const char *)b->w + (size_t)s * STEP_BYTES, s, steps);
    }
    if (rest) {
        char last[STEP_BYTES] = {0};
        memcpy(last, (const char *)b->w + (size_t)whole * STEP_BYTES, rest * W_PITCH);
        run_chunk(b, columns, last, whole, 1);
    }
    AMX_RELEASE();
}

/* Pairs of bf16, and zeros up to a whole step. */
static void amx_round_row(const float *x, uint32_t k, void *dst)
{
    uint16_t *half = dst;
    uint32_t whole = (k + 2 * STEP_PAIRS - 1) & ~(2u * STEP_PAIRS - 1);
    gemm_round_to_bf16(x, k, dst);
    memset(half + k, 0, (whole - k) * sizeof *half);
}

#endif
