/* gemm_amx_int8_body.h - quantised products by tiles, over the operations of base/amx.h. Few
 * rows go by gemm_quant_isa's kernels instead.
 *
 * A scale holds for 32 k, so 32 k is what a tile of integers may sum: 8 rows of the weight
 * with four k of 16 outputs each, half of what the tile holds. Its sums go out through
 * memory, and AVX-512 makes them a link of the chain in gemm_quant.h. The sums are exact, so
 * the bits are those of every other instruction set.
 *
 *     panel, 32 k   opened: words as tiles want them, signed; scales as f32
 *     x             12 rows x 32 bytes, read where round_row left them
 *
 *     x (12 x 32) . w (32 x 16)  ->  12 x 16 sums  ->  memory  -+->  24 chains of 16
 *     x (12 x 32) . w (32 x 16)  ->  12 x 16 sums  ->  memory  -+    in registers
 *
 * A panel is opened once per chunk of k for all rows of the block. Then 12 rows go over one
 * side of it, 32 outputs, through the whole chunk. While tiles multiply one block of 32 k,
 * the sums of an earlier one are scaled: two sets of tiles take turns, and sums wait for
 * three blocks, as no CPU hands stored bytes to a load at once.
 *
 * Why it should pay. Cycles of a Sapphire Rapids core for 16 x 16 outputs and 32 k, counted
 * in the compiled loops: two 512-bit operations, two loads, one store of 64 bytes a cycle,
 * and a cycle a row of x for the product of two tiles.
 *
 *                          operations  loads  stores  tiles
 *     VPDPBUSD, 6 x 32             88     52       -      -   128 products, 48 to scale
 *     tiles, 16 x 16               24     29      16     16   to float, d * d, fma
 *     tiles, 12 x 32               24     26      16     16   x and its d serve two tiles
 *
 * The product is gone, the scaling is not: 88 against 26 at best. On a Zen 5, which has no
 * tiles, all that surrounds them (their stores too) takes 0.51 to 0.59 of VPDPBUSD's time
 * for 96 and 512 rows, 0.58 to 0.66 for 32, 0.73 to 0.83 for 17. So it is less than twice as
 * fast, where the tiles hide behind the rest as they should, and not worth it up to
 * GEMM_FEW_ROWS. No AMX has said so yet.
 *
 * Invariant (P1): a chain is the blocks of 32 k in ascending order; chunks of k store it and
 * load it again, which keeps its bits. */
#ifndef MODEL_GEMM_AMX_INT8_BODY_H
#define MODEL_GEMM_AMX_INT8_BODY_H

#include "model/gemm_kernels.h"
#include "model/gemm_lanes.h"

enum {
    TILE_WORDS = GEMM_XBLOCK / 4, /* rows of a tile of the weight */
    TILE_PITCH = LANES * 4,       /* bytes */
    SIDE = 2,                     /* tiles of the weight that go together */
    SIDE_COLUMNS = SIDE * LANES,
    CHUNK = 16,     /* blocks of 32 k that are open at a time */
    MOST_ROWS = 96, /* under one opening */
    LAG = 3,        /* blocks from their sums to their scaling */
    RING = 4        /* places where sums wait */
};

/* A block of 32 k of a panel. 2.5 KB, most of which a side of the panel shares with none. */
typedef struct opened_block {
    uint32_t q[GEMM_PANEL / LANES][TILE_WORDS][LANES]; /* four signed bytes a word */
    float d[GEMM_PANEL];
    float min[GEMM_PANEL]; /* q4_K alone: dmin * min */
} opened_block;

/* Rows of x over one side of the panel, blocks [0, blocks) of a chunk. */
typedef struct int8_pass {
    const char *x; /* gemm_xblock, bytes */
    size_t x_pitch;
    const char *w, *d, *min; /* in the first opened_block: this side's */
    float *c;
    size_t ldc;
    uint32_t blocks;
    bool fresh;
    /* `lines` lines from each `ahead_stride` bytes on are fetched meanwhile. */
    const char *ahead;
    size_t ahead_stride;
    uint32_t lines;
} int8_pass;

/* Where the sums of one block wait: x of 12 rows, two tiles of the weight. */
typedef struct int8_sums {
    _Alignas(64) int32_t at[SIDE][GEMM_AMX_INT8_ROWS][LANES];
} int8_sums;

/* Tiles 0, 1 sums of even blocks, 2, 3 of odd ones; x 4 and 5, w 6 and 7. */
static void int8_configure(uint32_t rows)
{
    amx_config c = {.palette = 1};
    for (int t = 0; t < AMX_TILES; t++) {
        c.rows[t] = (uint8_t)(t < 6 ? rows : TILE_WORDS);
        c.row_bytes[t] = t == 4 || t == 5 ? GEMM_XBLOCK : AMX_ROW_BYTES;
    }
    AMX_CONFIGURE(&c);
}

#define INT8_MULTIPLY(p, block, c0, c1, a)                                                         \
    do {                                                                                           \
        const char *w_ = (p).w + (block) * sizeof(opened_block);                                   \
        AMX_LOAD(a, (p).x + (block) * sizeof(gemm_xblock), (p).x_pitch);                           \
        AMX_ZERO(c0);                                                                              \
        AMX_LOAD(6, w_, TILE_PITCH);                                                               \
        AMX_DP_INT8(c0, a, 6);                                                                     \
        AMX_ZERO(c1);                                                                              \
        AMX_LOAD(7, w_ + TILE_WORDS * TILE_PITCH, TILE_PITCH);                                     \
        AMX_DP_INT8(c1, a, 7);                                                                     \
    } while (0)

#define INT8_STORE(sums, c0, c1)                                                                   \
    do {                                                                                           \
        AMX_STORE(c0, (sums)->at[0], TILE_PITCH);                                                  \
        AMX_STORE(c1, (sums)->at[1], TILE_PITCH);                                                  \
    } while (0)

#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#define ROWS_UNROLL _Pragma("GCC unroll 12")
#else
#define ROWS_UNROLL
#endif

/* To the L2 cache: the L1 cache is full of what is being worked on. */
INLINE void int8_fetch(const int8_pass *p, size_t block)
{
    const char *from = p->ahead + block * p->ahead_stride;
    for (uint32_t i = 0; i < p->lines; i++)
        __builtin_prefetch(from + (size_t)i * 64, 0, 2);
}

/* One link of every chain. */
INLINE void int8_scale(const uint32_t rows, const bool has_min, const int8_pass *p, size_t block,
                       const int8_sums *sums, lanes acc[][SIDE])
{
    const char *x = p->x + block * sizeof(gemm_xblock);
    const float *d_at = (const float *)(p->d + block * sizeof(opened_block));
    const float *min_at = (const float *)(p->min + block * sizeof(opened_block));
    lanes d[SIDE], min[SIDE];
#pragma GCC unroll 2
    for (int v = 0; v < SIDE; v++) {
        d[v] = lanes_load(d_at + v * LANES);
        min[v] = has_min ? lanes_load(min_at + v * LANES) : lanes_zero();
    }
    ROWS_UNROLL
    for (uint32_t r = 0; r < rows; r++, x += p->x_pitch) {
        const gemm_xblock *one = (const gemm_xblock *)x;
        lanes xd = lanes_all(one->d);
#pragma GCC unroll 2
        for (int v = 0; v < SIDE; v++)
            acc[r][v] = lanes_fma(lanes_of_int(sums->at[v][r]), lanes_mul(d[v], xd), acc[r][v]);
        if (!has_min) continue;
        lanes sum = lanes_all(one->sum);
#pragma GCC unroll 2
        for (int v = 0; v < SIDE; v++)
            acc[r][v] = lanes_fnma(min[v], sum, acc[r][v]);
    }
}

/* What belongs to turn `t`: tiles begin with block t + 1, leave what they made of block t,
 * and block t - LAG is scaled. */
#define INT8_TURN(t, c0, c1, n0, n1, na)                                                           \
    do {                                                                                           \
        if ((t) + 1 < p.blocks) INT8_MULTIPLY(p, (t) + 1, n0, n1, na);                             \
        if ((t) < p.blocks) INT8_STORE(&ring[(t) % RING], c0, c1);                                 \
        if ((t) >= LAG && (t) < p.blocks + LAG) {                                                  \
            int8_fetch(&p, (t)-LAG);                                                               \
            int8_scale(rows, has_min, &p, (t)-LAG, &ring[((t)-LAG) % RING], acc);                  \
        }                                                                                          \
    } while (0)

INLINE void int8_rows(const uint32_t rows, const bool has_min, const int8_pass *of)
{
    const int8_pass p = *of; /* in registers: the compiler sees the tiles write any memory */
    lanes acc[GEMM_AMX_INT8_ROWS][SIDE];
    int8_sums ring[RING];
    ROWS_UNROLL
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < SIDE; v++)
            acc[r][v] = p.fresh ? lanes_zero() : lanes_load(p.c + r * p.ldc + v * LANES);
    INT8_MULTIPLY(p, 0, 0, 1, 4);
    for (size_t t = 0; t < p.blocks + LAG; t += 2) {
        INT8_TURN(t, 0, 1, 2, 3, 5);
        INT8_TURN(t + 1, 2, 3, 0, 1, 4);
    }
    ROWS_UNROLL
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < SIDE; v++)
            lanes_store(p.c + r * p.ldc + v * LANES, acc[r][v]);
}

#if defined(__AVX512F__)
/* A pass of its own for every height, since chains in registers want one. */
#define INT8_HEIGHTS(name, has_min)                                                                \
    static void name(const int8_pass *p, uint32_t rows)                                            \
    {                                                                                              \
        switch (rows) {                                                                            \
        case 1: int8_rows(1, has_min, p); break;                                                   \
        case 2: int8_rows(2, has_min, p); break;                                                   \
        case 3: int8_rows(3, has_min, p); break;                                                   \
        case 4: int8_rows(4, has_min, p); break;                                                   \
        case 5: int8_rows(5, has_min, p); break;                                                   \
        case 6: int8_rows(6, has_min, p); break;                                                   \
        case 7: int8_rows(7, has_min, p); break;                                                   \
        case 8: int8_rows(8, has_min, p); break;                                                   \
        case 9: int8_rows(9, has_min, p); break;                                                   \
        case 10: int8_rows(10, has_min, p); break;                                                 \
        case 11: int8_rows(11, has_min, p); break;                                                 \
        default: int8_rows(GEMM_AMX_INT8_ROWS, has_min, p); break;                                 \
        }                                                                                          \
    }
#else
/* In plain C they are in memory anyhow, and one pass compiles sooner than twelve. */
#define INT8_HEIGHTS(name, has_min)                                                                \
    static void name(const int8_pass *p, uint32_t rows)                                            \
    {                                                                                              \
        int8_rows(rows, has_min, p);                                                               \
    }
#endif
INT8_HEIGHTS(int8_pass_plain, false)
INT8_HEIGHTS(int8_pass_min, true)

static void open_scales(const uint16_t from[GEMM_PANEL], float to[GEMM_PANEL])
{
    for (int n = 0; n < GEMM_PANEL; n += LANES)
        lanes_store(to + n, lanes_of_f16(from + n));
}

static void open_q8_0(const gemm_q8_0_step *step, opened_block *to)
{
    for (uint32_t g = 0; g < TILE_WORDS; g++)
        for (uint32_t n = 0; n < GEMM_PANEL; n += LANES)
            *(words *)to->q[n / LANES][g] = *(const words *)&step->q[g][n] ^ 0x80808080;
    open_scales(step->d, to->d);
}

/* Nibbles less 0 or 8, byte by byte: `set` is what a byte may borrow from. */
static void open_nibbles(const uint32_t from[4][GEMM_PANEL], bool minus_eight, opened_block *to)
{
    const uint32_t set = minus_eight ? 0x80808080 : 0, less = minus_eight ? 0x08080808 : 0;
    for (uint32_t g = 0; g < 4; g++)
        for (uint32_t n = 0; n < GEMM_PANEL; n += LANES) {
            words both = *(const words *)&from[g][n];
            words low = both & 0x0f0f0f0f, high = both >> 4 & 0x0f0f0f0f;
            *(words *)to->q[n / LANES][g] = ((low | set) - less) ^ set;
            *(words *)to->q[n / LANES][4 + g] = ((high | set) - less) ^ set;
        }
}

RAD_VECTORIZE static void open_q4_k(const gemm_q4_k_step *step, opened_block *to)
{
    float d[GEMM_PANEL], dmin[GEMM_PANEL];
    open_scales(step->d, d);
    open_scales(step->dmin, dmin);
    for (uint32_t j = 0; j < GEMM_K_GROUPS; j++, to++) {
        open_nibbles(step->group[j].q, false, to);
        for (uint32_t n = 0; n < GEMM_PANEL; n++) {
            to->d[n] = d[n] * (float)step->group[j].scale[n];
            to->min[n] = dmin[n] * (float)step->group[j].min[n];
        }
    }
}

/* Blocks [first, first + blocks) of the panel; whole steps of it. */
static void open_chunk(gemm_type type, const void *panel, uint32_t first, uint32_t blocks,
                       opened_block *to)
{
    if (type == GEMM_Q8_0) {
        for (uint32_t b = 0; b < blocks; b++)
            open_q8_0((const gemm_q8_0_step *)panel + first + b, to + b);
    } else if (type == GEMM_Q4_0) {
        for (uint32_t b = 0; b < blocks; b++) {
            const gemm_q4_0_step *step = (const gemm_q4_0_step *)panel + first + b;
            open_nibbles(step->q, true, to + b);
            open_scales(step->d, to[b].d);
        }
    } else {
        for (uint32_t b = 0; b < blocks; b += GEMM_K_GROUPS)
            open_q4_k((const gemm_q4_k_step *)panel + (first + b) / GEMM_K_GROUPS, to + b);
    }
}

/* Bytes of a panel per 32 k. */
static size_t block_bytes(gemm_type type)
{
    return type == GEMM_Q8_0   ? sizeof(gemm_q8_0_step)
           : type == GEMM_Q4_0 ? sizeof(gemm_q4_0_step)
                               : sizeof(gemm_q4_k_step) / GEMM_K_GROUPS;
}

/* Sums of a block of rows between chunks: nearer together than in `c`, whose rows may compete
 * for the same few places of the cache. */
typedef struct int8_block {
    gemm_type type;
    const gemm_tile *of;
    uint32_t tiles, sides;
    _Alignas(64) float sums[MOST_ROWS][GEMM_PANEL];
    _Alignas(64) opened_block open[CHUNK];
} int8_block;

/* A chunk for all rows, in tiles of nearly equal height. The tiles have as many rows as the
 * taller ones need, so these come last: a lower one reads a row that exists, and leaves
 * its sums alone. */
static void run_open(int8_block *b, uint32_t first, int8_pass *p)
{
    const gemm_tile *of = b->of;
    uint32_t low = of->rows / b->tiles, lower = b->tiles - of->rows % b->tiles;
    for (uint32_t side = 0; side < b->sides; side++) {
        uint32_t column = side * SIDE_COLUMNS;
        p->w = (const char *)b->open->q[column / LANES];
        p->d = (const char *)(b->open->d + column);
        p->min = (const char *)(b->open->min + column);
        for (uint32_t t = 0, i = 0, rows; t < b->tiles; t++, i += rows) {
            rows = low + (t >= lower);
            p->x = (const char *)((const gemm_xblock *)of->x + i * of->ldx + first);
            p->c = b->sums[i] + column;
            if (b->type == GEMM_Q4_K)
                int8_pass_min(p, rows);
            else
                int8_pass_plain(p, rows);
            p->ahead += (size_t)p->lines * 64;
        }
    }
}

/* At most MOST_ROWS rows. */
static void run_rows(gemm_type type, const gemm_tile *of, uint32_t columns)
{
    int8_block b; /* sums and open are not touched for nothing */
    b.type = type;
    b.of = of;
    b.tiles = (of->rows + GEMM_AMX_INT8_ROWS - 1) / GEMM_AMX_INT8_ROWS;
    b.sides = (columns + SIDE_COLUMNS - 1) / SIDE_COLUMNS;
    uint32_t blocks = of->depth * (type == GEMM_Q4_K ? GEMM_K_GROUPS : 1);
    uint32_t passes = b.tiles * b.sides, stride = (uint32_t)block_bytes(type);
    int8_pass p = {.x_pitch = of->ldx * sizeof(gemm_xblock),
                   .ldc = GEMM_PANEL,
                   .ahead_stride = stride,
                   .lines = (stride / 64 + passes - 1) / passes};
    for (uint32_t r = 0; r < of->rows && !of->fresh; r++)
        memcpy(b.sums[r], of->c + r * of->ldc, columns * sizeof(float));
    int8_configure((of->rows + b.tiles - 1) / b.tiles);
    for (uint32_t k = 0; k < blocks; k += p.blocks) {
        const char *next = (const char *)of->w + (size_t)(k + CHUNK) * stride;
        p.blocks = RAD_MIN(CHUNK, blocks - k);
        p.fresh = of->fresh && k == 0;
        p.ahead = k + CHUNK < blocks ? next : of->ahead;
        open_chunk(type, of->w, k, p.blocks, b.open);
        run_open(&b, k, &p);
    }
    AMX_RELEASE();
    for (uint32_t r = 0; r < of->rows; r++)
        memcpy(of->c + r * of->ldc, b.sums[r], columns * sizeof(float));
}

static void amx_int8_block(gemm_type type, const gemm_tile *of, uint32_t columns)
{
    gemm_tile some = *of;
    for (uint32_t i = 0; i < of->rows; i += some.rows) {
        some.rows = RAD_MIN(MOST_ROWS, of->rows - i);
        some.x = (const gemm_xblock *)of->x + i * of->ldx;
        some.c = of->c + i * of->ldc;
        run_rows(type, &some, columns);
    }
}

#undef INLINE
#endif
