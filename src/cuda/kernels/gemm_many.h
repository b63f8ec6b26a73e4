/* gemm_many.h - what the kernels of gemm_many.cu and gemm_wgmma.cu have in common: which tile a
 * block computes, and how a tile's numbers leave registers.
 *
 * Tokens are the M side of the instructions, rows of W their N side, so that a lane has
 * neighbouring numbers of one token:
 *
 *     block of 8 columns    lane 4r + q has columns 2q, 2q + 1 of rows r and r + 8
 *
 * Two lanes swap halves of two blocks, and each has 4 numbers of one: 16 bytes to write. */
#ifndef CUDA_KERNELS_GEMM_MANY_H
#define CUDA_KERNELS_GEMM_MANY_H

#include "device/kernels/dialect.h"

#include "glu.h"
#include "kernel_args.h"
#include "vectors.h"

/* What a product is written to; `tokens` and `columns` bound what exists. */
typedef struct product {
    void *out;
    u32 ld, tokens, columns, swiglu;
} product;

/* A tile's place: its first token and first row of W, and which range of k. */
typedef struct tile {
    u32 token, row, part;
} tile;

/* Tiles in the order of their computation. Those of as many tokens as the L2 holds with ease
 * (TILE_GROUP tiles) come one after another for each rows of W, which are then read once. */
enum { TILE_GROUP = 16 };
INLINE tile tile_of(u32 index, u32 token_tiles, u32 row_tiles, u32 tokens_a_tile, u32 rows_a_tile)
{
    const u32 of_part = token_tiles * row_tiles, part = index / of_part;
    index -= part * of_part;
    const u32 of_group = TILE_GROUP * row_tiles, group = index / of_group;
    index -= group * of_group;
    const u32 left = token_tiles - group * TILE_GROUP;
    const u32 wide = left < TILE_GROUP ? left : TILE_GROUP;
    const u32 row = index / wide, token = index - row * wide + group * TILE_GROUP;
    tile t = {token * tokens_a_tile, row * rows_a_tile, part};
    return t;
}

/* What this lane has of two blocks' row becomes four neighbours: of the first block in even lanes,
 * of the second in odd ones. */
INLINE void four_neighbours(float four[4], const float first[2], const float second[2])
{
    /* Loaded before one is chosen: a choice of addresses would keep the tile in memory. */
    const float f0 = first[0], f1 = first[1], s0 = second[0], s1 = second[1];
    const u32 odd = LANE & 1;
    const float a = shuffle_xor(odd ? f0 : s0, 1), b = shuffle_xor(odd ? f1 : s1, 1);
    four[0] = odd ? a : f0;
    four[1] = odd ? b : f1;
    four[2] = odd ? s0 : a;
    four[3] = odd ? s1 : b;
}

/* Four columns of a row. Rows begin at multiples of 16 bytes, so only the last column's matter. */
INLINE void put4_f32(const product *p, u32 row, u32 column, const float four[4])
{
    if (row >= p->tokens) return;
    float *to = (float *)p->out + (u64)row * p->ld + column;
    if (column + 4 <= p->columns) {
        const u32 bits[4] = {float_bits(four[0]), float_bits(four[1]), float_bits(four[2]),
                             float_bits(four[3])};
        write16(to, bits);
    } else {
        UNROLL for (u32 e = 0; e < 4; e++) if (column + e < p->columns) to[e] = four[e];
    }
}

/* Rows `row` and `row` + 8 of this lane, blocks at `column` and `column` + 8. */
INLINE void put_f32(const product *p, u32 row, u32 column, const float first[4],
                    const float second[4])
{
    float four[4];
    column += (LANE & 1) * 8 + (LANE >> 1 & 1) * 4;
    four_neighbours(four, first, second);
    put4_f32(p, row, column, four);
    four_neighbours(four, first + 2, second + 2);
    put4_f32(p, row + 8, column, four);
}

INLINE void put4_bf16(const product *p, u32 row, u32 column, const float four[4])
{
    if (row >= p->tokens) return;
    u16 *to = (u16 *)p->out + (u64)row * p->ld + column;
    if (column + 4 <= p->columns) {
        write8(to, pack_bf16(four[0], four[1]), pack_bf16(four[2], four[3]));
    } else {
        UNROLL for (u32 e = 0; e < 4; e++) if (column + e < p->columns)
            to[e] = (u16)float_bf16(four[e]);
    }
}

/* Four blocks: gate, up, gate, up. `column` is of the first, so its outputs are at half of it. */
INLINE void put_swiglu(const product *p, u32 row, u32 column, const float gate0[4],
                       const float up0[4], const float gate1[4], const float up1[4])
{
    float first[4], second[4], four[4];
    UNROLL for (u32 e = 0; e < 4; e++)
    {
        first[e] = swiglu(gate0[e], up0[e]);
        second[e] = swiglu(gate1[e], up1[e]);
    }
    column = column / 2 + (LANE & 1) * 8 + (LANE >> 1 & 1) * 4;
    four_neighbours(four, first, second);
    put4_bf16(p, row, column, four);
    four_neighbours(four, first + 2, second + 2);
    put4_bf16(p, row + 8, column, four);
}

#endif
