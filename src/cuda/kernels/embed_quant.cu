/* embed_quant.cu - x[t] = scale * row ids[t] of a table that is Q8_0, MXFP4, Q4_K or Q6_K: the
 * numbers that ggml_decode (gguf/quant.h) makes of it. One block a token.
 *
 * The table lies as the products want it (cuda/quant_pack.h), so that it can be the output matrix,
 * too: rows of 16 are mixed, and eight neighbouring k of one of them are two words. */
#define ONE_FORM
#include "cuda/kernels/gemm_quant.h"
#include "cuda/kernels/kernel_args.h"
#include "device/kernels/dialect.h"

enum { Q6_K_UPPER = Q6_K_SCALES + 2048 };

INLINE float half_at(const u8 *at)
{
    return half_float(*(const u16 *)at);
}

/* Words of k = `in` .. `in` + 7 of 32, of a row of a tile. */
INLINE void two_words(u32 to[2], const u8 *lanes, u32 row, u32 in)
{
    UNROLL
    for (u32 e = 0; e < 2; e++) {
        const u32 word = in / 4 + e;
        to[e] = ((const u32 *)lanes)[((row % 8) * 4 + word % 4) * 4 + row / 8 + word / 4 * 2];
    }
}

/* Numbers k .. k + 7 of a row of 16; k is a multiple of 8. */
INLINE void eight_q8_0(float v[8], const u8 *tile, u32 row, u32 k)
{
    u32 words[2];
    const u32 block = k / 32;
    const float d = half_at(tile + (row * 8 + block) * 2);
    two_words(words, tile + Q8_0_SCALES + block * 512, row, k % 32);
    UNROLL
    for (u32 i = 0; i < 8; i++)
        v[i] = d * (float)(i8)(words[i / 4] >> i % 4 * 8);
}

INLINE void eight_mxfp4(float v[8], const u8 *tile, u32 row, u32 k)
{
    u32 words[2];
    const u32 block = k / 32;
    const float d = mxfp4_scale(tile[row * 8 + block]);
    two_words(words, tile + MXFP4_SCALES + block / 2 * 512, row, k % 32);
    UNROLL
    for (u32 i = 0; i < 8; i++) {
        const u32 numbers = mxfp4_numbers(words[i / 4] >> block % 2 * 16);
        v[i] = d * (float)(i8)(numbers >> i % 4 * 8);
    }
}

INLINE void eight_q4_k(float v[8], const u8 *tile, u32 row, u32 k)
{
    u32 words[2];
    const u32 group = k / 32;
    const u8 *scale = tile + (row * 8 + group) * 2, *both = tile + 256 + row * 4;
    const float d = half_at(both) * (float)scale[0], min = half_at(both + 2) * (float)scale[1];
    two_words(words, tile + Q4_K_SCALES + group / 2 * 512, row, k % 32);
    UNROLL
    for (u32 i = 0; i < 8; i++)
        v[i] = d * (float)(words[i / 4] >> (i % 4 * 8 + group % 2 * 4) & 15) - min;
}

INLINE void eight_q6_k(float v[8], const u8 *tile, u32 row, u32 k)
{
    u32 words[2];
    const u32 group = k / 32, in = k % 32;
    const float d = half_at(tile + 256 + row * 2) * (float)(i8)tile[row * 16 + k / 16];
    two_words(words, tile + Q6_K_SCALES + group / 2 * 512, row, in);
    const u8 *upper = tile + Q6_K_UPPER + group / 2 * 256 + row / 8 * 4;
    UNROLL
    for (u32 i = 0; i < 8; i++) {
        const u32 low = words[i / 4] >> (i % 4 * 8 + group % 2 * 4) & 15;
        const u32 bits = upper[(row % 8 * 4 + (in + i) / 4 % 4) * 8 + i % 4];
        const u32 high = bits >> (group % 2 * 4 + in / 16 * 2) & 3;
        v[i] = d * (float)((i32)(low | high << 4) - 32);
    }
}

#define EMBED(name, eight, tile_bytes)                                                             \
    KERNEL(name, EMBED_THREADS, embed_args)                                                        \
    {                                                                                              \
        launch_next();                                                                             \
        wait_previous(); /* ids may be what a kernel chose */                                      \
        const u32 id = (u32)a.ids[BLOCK_X];                                                        \
        const u8 *tiles = (const u8 *)a.table + (u64)(id / 16) * (a.ld / STAGE_K) * (tile_bytes);  \
        float *x = a.x + (u64)BLOCK_X * a.dim;                                                     \
        for (u32 at = 8 * THREAD_X; at < a.dim; at += 8 * EMBED_THREADS) {                         \
            float v[8];                                                                            \
            eight(v, tiles + (u64)(at / STAGE_K) * (tile_bytes), id % 16, at % STAGE_K);           \
            UNROLL                                                                                 \
            for (u32 e = 0; e < 8; e++)                                                            \
                if (at + e < a.dim) x[at + e] = v[e] * a.scale;                                    \
        }                                                                                          \
    }

EMBED(embed_q8_0, eight_q8_0, Q8_0_BYTES)
EMBED(embed_mxfp4, eight_mxfp4, MXFP4_BYTES)
EMBED(embed_q4_k, eight_q4_k, Q4_K_BYTES)
EMBED(embed_q6_k, eight_q6_k, Q6_K_BYTES)
