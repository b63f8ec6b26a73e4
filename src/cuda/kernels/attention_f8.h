/* attention_f8.h - K and V that lie in the pool as fp8 (f8.h): copied as they are, half of bf16's
 * bytes, and widened on the way to the tensor cores. A score's chain is over ascending k16 as in
 * attention_tile.h, but of each 16 dims the even ones are the first half; so Q lies (qkv_args).
 *
 * With few rows every number is multiplied by one warp alone, so it widens what it multiplies. A
 * piece of 16 codes is in shared memory what a piece of 8 bf16 is elsewhere, and ldmatrix, which
 * takes two codes for one number, leaves to each thread
 *
 *     of K    dims 4c .. 4c + 3 of a key       mma's k  2c, 2c + 1 (dims 4c, 4c + 2), + 8 (the odd)
 *     of V    dims 2g, 2g + 1 of keys 2c,      mma's n  g of two tiles: even dims, odd dims
 *             2c + 1, by a transposed load
 *
 * which is what f8_even and f8_odd take apart. With many rows all warps multiply the same keys: a
 * warp widens the 8 keys that it has copied, once for all, into blocks of bf16 as attention_many.h
 * reads them, even dims of each 16 as one piece of 8 numbers and odd ones as the next.
 *
 * So in either way tile n of O, whose columns are 8 dims elsewhere, has dims 16 (n / 2) + 2i + n % 2
 * for its columns i. */
#ifndef CUDA_KERNELS_ATTENTION_F8_H
#define CUDA_KERNELS_ATTENTION_F8_H

#include "cuda/kernels/attention_tile.h"
#include "cuda/kernels/f8.h"

/* Numbers of 16 bits that a head's row in the pool is long: where bf16 has `dim`. */
INLINE u32 pool_dim(u32 dim, const int f8)
{
    return f8 ? dim / 2 : dim;
}

/* One step of 16 dims: 8 keys by their codes. */
INLINE void score_f8(float s[4], const u32 q[4], const u32 kv, u32 codes)
{
    u32 b[2] = {f8_even(kv, codes), f8_odd(kv, codes)};
    mma_bf16(s, q, b);
}

/* scores(), of 16 keys in fp8 with Q held; 4 matrices are 32 dims of 16 keys. */
INLINE void scores_f8(float s[MOST_KEY_TILES][4], u32 q[MOST_STEPS][4], const u8 *k, u32 first,
                      u32 dim, const u32 kv)
{
    u32 row = dim / 2, turn = chunk_turn(row), lane = lane_now(), matrix = lane >> 3;
    u32 key = first + (matrix >> 1) * 8 + (lane & 7), b[4];
    const u8 *k_at[MOST_TURN];
    UNROLL for (u32 n = 0; n < 2; n++) UNROLL for (u32 i = 0; i < 4; i++) s[n][i] = 0;
    if (dim == 16) { /* a piece a row: two of the matrices are the same */
        load_matrix4(b, k + chunk_at(row, key, 0));
        score_f8(s[0], q[0], kv, b[0]);
        score_f8(s[1], q[0], kv, b[2]);
        return;
    }
    EACH(c, MOST_TURN / 2, turn / 2) k_at[c] = k + chunk_at(row, key, c * 2 + (matrix & 1));
    EACH(pair, MOST_STEPS / 2, dim / 32) {
        load_matrix4_at(b, k_at[pair % (turn / 2)], pair / (turn / 2) * turn * 16);
        UNROLL for (u32 i = 0; i < 4; i++) score_f8(s[i >> 1], q[pair * 2 + (i & 1)], kv, b[i]);
    }
}

/* 32 keys for a tile: weights of 16 and 16, codes of 8 each, of which the tile has every second. */
INLINE void weigh_codes(float v[4], const u32 p[2][4], const u32 kv, const u32 codes[4], int odd)
{
    UNROLL for (u32 i = 0; i < 2; i++) {
        u32 b[2];
        UNROLL for (u32 j = 0; j < 2; j++) b[j] = odd ? f8_odd(kv, codes[i * 2 + j])
                                                      : f8_even(kv, codes[i * 2 + j]);
        mma_bf16(v, p[i], b);
    }
}

/* weigh(), of 64 keys in fp8; 4 matrices are 16 dims of 32 keys. */
INLINE void weigh_f8(tile_sums *t, const u32 p[4][4], const u8 *v, u32 first, u32 dim_tiles,
                     u32 dim, const u32 kv)
{
    const u32 ones[2] = {0x3f803f80, 0x3f803f80};
    u32 row = dim / 2, lane = lane_now(), codes[4];
    UNROLL for (u32 step = 0; step < 4; step++) mma_bf16(t->sum, p[step], ones);
    EACH_PAIR(n, MOST_DIM_TILES, dim_tiles) {
        const u8 *v_at = v + chunk_at(row, lane, (first + n) / 2);
        UNROLL for (u32 step = 0; step < 4; step += 2) {
            load_matrix4_transposed_at(codes, v_at, step * 16 * row * 2);
            if (dim_tiles == 1) { /* one of the two tiles is this warp's */
                UNROLL for (u32 i = 0; i < 4; i++) codes[i] <<= first % 2 ? 0 : 8;
                weigh_codes(t->v[0], p + step, kv, codes, 1);
            } else {
                weigh_codes(t->v[n], p + step, kv, codes, 0);
                weigh_codes(t->v[n + 1], p + step, kv, codes, 1);
            }
        }
    }
}

/* The codes of rows [row, row + 8) of `count` rows of K and V become bf16: `from` [2][KEYS][dim]
 * codes, `to` [2][KEYS][dim] bf16. By one warp. */
INLINE void widen_rows(u8 *to, const u8 *from, u32 row, u32 dim, const u32 kv)
{
    u32 lane = lane_now(), chunks = dim / 16;
    row += lane & 7;
    EACH(i, 2 * MOST_STEPS / 4, div_up(2 * chunks, 4)) {
        u32 at = i * 4 + (lane >> 3), chunk = at % chunks, side = at / chunks;
        chunk16 even, odd;
        if (at >= 2 * chunks) continue;
        const chunk16 codes =
            *(const chunk16 *)(from + side * KEYS * dim + chunk_at(dim / 2, row, chunk));
        UNROLL for (u32 w = 0; w < 4; w++) {
            even.words[w] = f8_even(kv, codes.words[w]);
            odd.words[w] = f8_odd(kv, codes.words[w]);
        }
        u8 *block = to + side * KEYS * dim * 2;
        *(chunk16 *)(block + chunk_at(dim, row, chunk * 2)) = even;
        *(chunk16 *)(block + chunk_at(dim, row, chunk * 2 + 1)) = odd;
    }
}

/* A span is through: its V becomes what the codes stand for. */
INLINE void scale_span(tile_sums *t, float scale, u32 dim_tiles)
{
    EACH(n, MOST_DIM_TILES, dim_tiles) UNROLL for (u32 i = 0; i < 4; i++) t->v[n][i] *= scale;
}

#endif
