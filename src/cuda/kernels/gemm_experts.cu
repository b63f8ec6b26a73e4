/* gemm_experts.cu - bf16 products with the matrices of experts: a tile of places by its expert's W.
 *
 * Blocks, warps and their ring of stages are those of gemm_few.cu: warps [0, warps) copy 16 rows of
 * W each (gemm_experts_64: 32) and multiply, the rest copy what they multiply by, 16 places each.
 *
 * A unit of work is a tile times a block's rows of W; a tile's units follow one another, so an
 * expert's tiles are read at about the same time, and all but the first out of the L2. How many
 * units there are is known on the device alone: block b takes units b, b + GRID_X, ... while there
 * are such. What the next unit is of is asked for while this one's stages are copied.
 *
 * A product of gates and ups reads rows of tokens, wherever the tile's tokens lie among those of
 * the step; that of downs reads places. Places that nobody has are neither copied nor written.
 *
 * P1: one chain of mma over ascending k, in one thread group's registers. */
#define ONE_FORM
#include "device/kernels/dialect.h"

#include "cuda/kernels/experts_args.h"
#include "cuda/kernels/gemm_few.h"
#include "cuda/kernels/glu.h"

/* What a thread copies, stage after stage: of W two rows at a time from `from` on, of places those
 * in `rows`. */
typedef struct copier {
    const u16 *from; /* this lane's part of the next stage; of places, of row 0 */
    u8 *to;          /* in the first slot */
    u32 rows; /* of W, that exist; of places, lane l has the row of its warp's place l % 16 */
    u32 next; /* of the unit behind this one: its expert, or the rows */
    u32 left; /* k of the unit */
    u32 unit, slot;
} copier;

/* Asks what the copier's next unit is of. `place`: of its warp in a tile. */
INLINE void ask(copier *c, const gemm_experts_args a, u32 unit, u32 units, u32 groups, u32 of_x,
                u32 place, u32 of_warp)
{
    const u32 tile = unit / groups;
    c->next = EXPERTS_NONE;
    if (unit >= units) return;
    if (!of_x)
        c->next = a.by.tiles[tile].expert;
    else if ((LANE & 15) < of_warp)
        c->next = a.by.row_of[tile * a.by.width + place + (LANE & 15)];
}

/* Begins the unit that was asked about. `rows` is a block's of W, `first` the warp's among them or
 * among the tile's places. */
INLINE void begin_unit(copier *c, const gemm_experts_args a, u32 units, u32 groups, u32 of_x,
                       u32 rows, u32 first, u32 of_warp)
{
    const u32 tile = c->unit / groups;
    const u32 now = c->next;
    c->left = a.k;
    if (of_x) {
        c->from = a.x + (LANE & 15) * 8;
        c->rows = now == EXPERTS_NONE || a.gathered ? now : tile * a.by.width + first + (LANE & 15);
    } else {
        const u32 row = (c->unit - tile * groups) * rows + first;
        c->rows = now != EXPERTS_NONE && row < a.n ? a.n - row : 0;
        c->from = (const u16 *)((const u8 *)a.w + (now != EXPERTS_NONE ? now * a.w_bytes : 0)) +
                  (u64)(row + (LANE >> 4)) * a.k + (LANE & 15) * 8;
    }
    ask(c, a, c->unit + GRID_X, units, groups, of_x, first, of_warp);
}

/* A stage's copies of a warp of x. */
INLINE void copy_places(const copier *c, u8 *to, u32 k, const u32 most)
{
    UNROLL
    for (u32 r = 0; r < most; r += 2) {
        const u32 row = shuffle_u32(c->rows, r + (LANE >> 4));
        if ((LANE & 15) * 8 < c->left && row != EXPERTS_NONE)
            copy16_async(to + r * PITCH, c->from + (u64)row * k);
    }
}

INLINE expert_tile tile_of(const gemm_experts_args a, u32 tile)
{
    return a.by.tiles[tile];
}

/* Of rows of W from `row` on: this lane's gate and up. */
typedef struct biases {
    float gate, up;
} biases;
INLINE biases biases_of(const gemm_experts_args a, u32 expert, u32 row)
{
    const u32 number = (row >> 4) * 8 + (LANE >> 2), half = a.n_bias / 2;
    biases b = {0, 0};
    if (!a.bias || number >= half) return b;
    const float *of = a.bias + (u64)expert * a.n_bias + number;
    b.gate = of[0];
    b.up = of[half];
    return b;
}

/* A tile's numbers: this lane has rows r and r + 8 of places p and p + 1. */
INLINE void store_tile(const gemm_experts_args a, expert_tile tile, u32 first_place, u32 row,
                       u32 place, biases b, const float acc[4])
{
    row += LANE >> 2;
    place += (LANE & 3) * 2;
    if (a.epilogue == GEMM_PARTS) {
        float *out = (float *)a.out + (u64)(first_place + place) * a.ld_out + row;
        UNROLL
        for (u32 i = 0; i < 4; i++)
            if (place + (i & 1) < tile.count && row + (i >> 1) * 8 < a.n_out)
                out[(u64)(i & 1) * a.ld_out + (i >> 1) * 8] = acc[i];
        return;
    }
    u16 *out = (u16 *)a.out + (u64)(first_place + place) * a.ld_out + (row >> 4) * 8 + (row & 7);
    UNROLL
    for (u32 i = 0; i < 2; i++) {
        const float gate = acc[i] + b.gate, up = acc[2 + i] + b.up;
        const float both = a.epilogue == GEMM_SWIGLU ? swiglu(gate, up) : swiglu_clamped(gate, up);
        if (place + i < tile.count && row < a.n_out) out[(u64)i * a.ld_out] = (u16)float_bf16(both);
    }
}

/* A kernel for tiles of columns * 8 places, whose warps have tiles * 16 rows of W each. */
#define GEMM_EXPERTS(name, threads, tiles, columns)                                                \
    KERNEL(name, threads, gemm_experts_args)                                                       \
    {                                                                                              \
        enum { PLACES = (columns)*8, OF_WARP = PLACES < 16 ? PLACES : 16 };                        \
        SHARED_DYNAMIC(u8, ring);                                                                  \
        launch_next();                                                                             \
        wait_previous(); /* which experts there are is the kernels' in front */                    \
        const u32 rows = a.warps * (tiles)*16, groups = div_up(a.n, rows);                         \
        const u32 units = *a.by.num_tiles * groups, stage_bytes = (rows + PLACES) * PITCH;         \
        if (BLOCK_X >= units) return;                                                              \
        const u32 total = div_up(units - BLOCK_X, GRID_X) * div_up(a.k, STAGE_K);                  \
        const u32 ahead = a.stages - 1, of_x = WARP >= a.warps;                                    \
        const u32 first = of_x ? (WARP - a.warps) * 16 : WARP * (tiles)*16;                        \
        copier next = {.unit = BLOCK_X, .slot = 0};                                                \
        next.to = ring + ((of_x ? rows : 0) + first + (LANE >> 4)) * PITCH + (LANE & 15) * 16;     \
        ask(&next, a, BLOCK_X, units, groups, of_x, first, OF_WARP);                               \
        begin_unit(&next, a, units, groups, of_x, rows, first, OF_WARP);                           \
        float acc[tiles][columns][4];                                                              \
        UNROLL                                                                                     \
        for (u32 m = 0; m < (tiles); m++)                                                          \
            UNROLL                                                                                 \
        for (u32 c = 0; c < (columns); c++)                                                        \
            acc[m][c][0] = acc[m][c][1] = acc[m][c][2] = acc[m][c][3] = 0;                         \
        u32 unit = BLOCK_X, slot = 0, left = a.k;                                                  \
        expert_tile now = tile_of(a, unit / groups);                                               \
        biases bias[tiles];                                                                        \
        for (u32 i = 0; i < total + ahead; i++) {                                                  \
            const u8 *w_rows = ring + slot * stage_bytes + (first + (LANE & 15)) * PITCH +         \
                               (LANE >> 4) * 16;                                                   \
            const u8 *x_rows = ring + slot * stage_bytes + (rows + (LANE & 7)) * PITCH +           \
                               (LANE >> 3) * 16;                                                   \
            u32 wf[2][tiles][2][4], xf[2][columns][4];                                             \
            if (i >= ahead) {                                                                      \
                wait_copies(ahead - 1);                                                            \
                SYNC_BLOCK();                                                                      \
                if (!of_x) {                                                                       \
                    LOAD(tiles, columns, 0, 0)                                                     \
                }                                                                                  \
            }                                                                                      \
            if (i < total) {                                                                       \
                u8 *to = next.to + next.slot * stage_bytes;                                        \
                if (of_x)                                                                          \
                    copy_places(&next, to, a.k, OF_WARP);                                          \
                else                                                                               \
                    copy_rows(to, next.from, 2 * (u64)a.k, next.rows, next.left, (tiles)*16);      \
                if (++next.slot == a.stages) next.slot = 0;                                        \
                next.from += STAGE_K;                                                              \
                if (next.left > STAGE_K) {                                                         \
                    next.left -= STAGE_K;                                                          \
                } else {                                                                           \
                    next.unit += GRID_X;                                                           \
                    begin_unit(&next, a, units, groups, of_x, rows, first, OF_WARP);               \
                }                                                                                  \
            }                                                                                      \
            copy_commit();                                                                         \
            if (i < ahead) continue;                                                               \
            if (++slot == a.stages) slot = 0;                                                      \
            if (of_x) continue;                                                                    \
            const u32 row = (unit - unit / groups * groups) * rows + first;                        \
            if (left == a.k) {                                                                     \
                UNROLL                                                                             \
                for (u32 m = 0; m < (tiles); m++)                                                  \
                    bias[m] = biases_of(a, now.expert, row + m * 16);                              \
            }                                                                                      \
            MULTIPLY_STAGE(tiles, columns)                                                         \
            if (left > STAGE_K) {                                                                  \
                left -= STAGE_K;                                                                   \
                continue;                                                                          \
            }                                                                                      \
            left = a.k;                                                                            \
            STORE_UNIT(tiles, columns,                                                             \
                       store_tile(a, now, unit / groups * a.by.width, row + m * 16, c * 8,         \
                                  bias[m], acc[m][0]))                                             \
            unit += GRID_X;                                                                        \
            if (unit < units) now = tile_of(a, unit / groups);                                     \
        }                                                                                          \
    }

GEMM_EXPERTS(gemm_experts_8, 288, 1, 1)
GEMM_EXPERTS(gemm_experts_16, 288, 1, 2)
GEMM_EXPERTS(gemm_experts_32, 320, 1, 4)
GEMM_EXPERTS(gemm_experts_64, 256, 2, 8)
