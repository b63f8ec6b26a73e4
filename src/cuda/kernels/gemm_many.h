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

/* What a product is written to; `tokens` and `columns` bound what exists. `more`: f32 numbers are
 * added to what this thread wrote there before. */
typedef struct product {
    void *out;
    u32 ld, tokens, columns, swiglu, more;
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
INLINE void get4_f32(const product *p, u32 row, u32 column, float four[4])
{
    const float *from = (const float *)p->out + (u64)row * p->ld;
    if (row < p->tokens) read4(four, from, column, p->columns, column + 4 <= p->columns);
}
INLINE void put4_f32(const product *p, u32 row, u32 column, const float four[4])
{
    float *to = (float *)p->out + (u64)row * p->ld;
    if (row < p->tokens) write4(to, column, p->columns, column + 4 <= p->columns, four);
}

/* Which of the blocks at `column` and `column` + 8 this lane has four columns of. */
INLINE u32 column_of_four(u32 column)
{
    return column + (LANE & 1) * 8 + (LANE >> 1 & 1) * 4;
}

/* What rows `row` and `row` + 8 have there already: of many blocks before one of them is put, or
 * each would wait for its own. */
INLINE void get_f32(const product *p, u32 row, u32 column, float old[2][4])
{
    get4_f32(p, row, column_of_four(column), old[0]);
    get4_f32(p, row + 8, column_of_four(column), old[1]);
}
INLINE void put_f32(const product *p, u32 row, u32 column, const float first[4],
                    const float second[4], float old[2][4])
{
    UNROLL
    for (u32 r = 0; r < 2; r++) {
        float four[4];
        four_neighbours(four, first + r * 2, second + r * 2);
        UNROLL
        for (u32 e = 0; e < 4; e++)
            four[e] = p->more ? old[r][e] + four[e] : four[e];
        put4_f32(p, row + r * 8, column_of_four(column), four);
    }
}

/* x / y as IEEE has it, where neither they nor the quotient are near the ends of f32's range: what
 * divide does there, without the branch that it takes elsewhere, so that many are computed at once.
 * Two remainders make the quotient exact to the last bit, whatever the reciprocal began with. */
INLINE float divide_usual(float x, float y)
{
#ifdef ON_GPU
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y));
    r = FMA(r, FMA(-y, r, 1.0f), r);
    float q = x * r;
    q = FMA(FMA(-y, q, x), r, q);
    return FMA(FMA(-y, q, x), r, q);
#else
    return x / y;
#endif
}

/* Gates that swiglu_usual is for: 0, and magnitudes from 2^-90 to 87, which exp does not clamp. */
INLINE int is_usual(float gate)
{
    const u32 bits = float_bits(gate);
    return bits == 0 || (bits & 0x7fffffff) - 0x12800000u <= 0x42ae0000u - 0x12800000u;
}
INLINE float swiglu_usual(float gate, float up)
{
    return divide_usual(gate, exp_unclamped(-gate) + 1.0f) * up;
}

/* Eight numbers of a lane, rounded, in pairs. All are computed the usual way, and again in the rare
 * case that this way is not for one of them. */
INLINE void swiglu8(u32 pairs[4], const float gate[8], const float up[8])
{
    float out[8];
    int usual = 1;
    UNROLL
    for (u32 e = 0; e < 8; e++) {
        out[e] = swiglu_usual(gate[e], up[e]);
        usual &= is_usual(gate[e]) & (out[e] == out[e]);
    }
    UNROLL
    for (u32 i = 0; i < 4; i++)
        pairs[i] = pack_bf16_numbers(out[2 * i], out[2 * i + 1]);
    if (usual) return;
    UNROLL
    for (u32 i = 0; i < 4; i++)
        pairs[i] =
            pack_bf16(swiglu(gate[2 * i], up[2 * i]), swiglu(gate[2 * i + 1], up[2 * i + 1]));
}

INLINE void put4_bf16(const product *p, u32 row, u32 column, u32 first, u32 second)
{
    const u32 odd = LANE & 1, other = shuffle_xor_u32(odd ? first : second, 1);
    if (row < p->tokens && column < p->columns) /* a multiple of 8 */
        write8((u16 *)p->out + (u64)row * p->ld + column, odd ? other : first,
               odd ? second : other);
}

/* Four blocks: gate, up, gate, up. `column` is of the first, so its outputs are at half of it. */
INLINE void put_swiglu(const product *p, u32 row, u32 column, const float gate0[4],
                       const float up0[4], const float gate1[4], const float up1[4])
{
    float gate[8], up[8];
    u32 pairs[4]; /* of `row`: the first and the second block; of row + 8 */
    UNROLL
    for (u32 e = 0; e < 8; e++) {
        gate[e] = e & 2 ? gate1[(e >> 1 & 2) + (e & 1)] : gate0[(e >> 1 & 2) + (e & 1)];
        up[e] = e & 2 ? up1[(e >> 1 & 2) + (e & 1)] : up0[(e >> 1 & 2) + (e & 1)];
    }
    swiglu8(pairs, gate, up);
    column = column_of_four(column / 2);
    put4_bf16(p, row, column, pairs[0], pairs[1]);
    put4_bf16(p, row + 8, column, pairs[2], pairs[3]);
}

#endif
