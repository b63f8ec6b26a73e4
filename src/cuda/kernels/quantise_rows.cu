/* quantise_rows.cu - rows of activations as int8 in blocks of 32: the bits of gemm_round_to_blocks
 * (model/gemm_quant.h). A lane has one number. */
#define ONE_FORM
#include "device/kernels/dialect.h"

#include "cuda/kernels/experts_quant_args.h"
#include "cuda/kernels/glu.h"
#include "cuda/kernels/kernel_args.h"

INLINE float number_at(const quantise_args a, u32 row, u32 i)
{
    if (i >= a.k) return 0;
    if (a.from == QUANTISE_BF16) return bf16_float(((const u16 *)a.x)[(u64)row * a.ldx + i]);
    const float *x = (const float *)a.x + (u64)row * a.ldx + i;
    float v = x[0], up = a.from == QUANTISE_SWIGLU ? x[a.k] : 0;
    for (u32 p = 1; p < a.parts; p++) {
        x += (u64)a.rows * a.ldx;
        v += x[0];
        if (a.from == QUANTISE_SWIGLU) up += x[a.k];
    }
    return a.from == QUANTISE_SWIGLU ? swiglu(v, up) : v;
}

/* A block of 32, of which a lane has one number: q, and d and d * (sum of q), which lie `to_sums`
 * apart. */
INLINE void round_block(float x, i8 *q_at, float *to, u64 to_sums)
{
    u32 most = float_bits(x) & 0x7fffffff; /* bits of positive floats are ordered as they are */
    UNROLL
    for (u32 lanes = 16; lanes; lanes /= 2) {
        const u32 other = shuffle_xor_u32(most, lanes);
        most = other > most ? other : most;
    }
    const u32 finite = most < 0x7f800000, counts = finite && most >= 0x0d800000; /* 2^-100 */
    const float largest = bits_float(counts ? most : 0x3f800000);
    const float up = counts ? divide(127.0f, largest) : 0;
    const float value = finite ? x * up : 0;
    /* Adding 3 * 2^22 rounds to an integer and leaves it in the low bits. */
    const i32 q = (i32)(float_bits(value + 12582912.0f) - 0x4b400000u);
    i32 sum = q;
    UNROLL
    for (u32 lanes = 16; lanes; lanes /= 2)
        sum += (i32)shuffle_xor_u32((u32)sum, lanes);
    q_at[LANE] = (i8)q;
    if (LANE) return;
    const float d = counts ? divide(largest, 127.0f) : finite ? 0 : bits_float(0x7fc00000);
    to[0] = d;
    to[to_sums] = d * (float)sum;
}

KERNEL(quantise_rows, QUANTISE_THREADS, quantise_args)
{
    const u32 row = BLOCK_X, block = BLOCK_Y * (QUANTISE_THREADS / 32) + WARP;
    launch_next();
    wait_previous();
    if (block >= a.padded_k / 32) return;
    round_block(number_at(a, row, block * 32 + LANE), a.q + (u64)row * a.padded_k + block * 32,
                a.scales + (u64)block * a.ld_tokens + row, (u64)(a.padded_k / 32) * a.ld_tokens);
}

/* Number i of what a place has to say, which is of `row` of x. */
INLINE float number_of_place(const quantise_places_args a, u32 place, u32 row, u32 i)
{
    if (i >= a.k) return 0;
    const u64 at = (u64)row * a.ldx + i;
    if (a.from == QUANTISE_BF16) return bf16_float(((const u16 *)a.x)[at]);
    const float *x = (const float *)a.x + at;
    if (a.from == QUANTISE_F32) return x[0];
    float gate = x[0], up = x[a.k];
    if (a.bias) {
        const float *bias = a.bias + (u64)a.by.tiles[place / a.by.width].expert * 2 * a.k + i;
        gate += bias[0];
        up += bias[a.k];
    }
    return a.from == QUANTISE_SWIGLU ? swiglu(gate, up) : swiglu_clamped(gate, up);
}

KERNEL(quantise_places, QUANTISE_THREADS, quantise_places_args)
{
    const u32 place = BLOCK_X, block = BLOCK_Y * (QUANTISE_THREADS / 32) + WARP;
    launch_next();
    wait_previous();
    if (block >= a.padded_k / 32 || place >= *a.by.num_tiles * a.by.width) return;
    const u32 token = a.by.row_of[place];
    if (token == EXPERTS_NONE) return;
    const float v = number_of_place(a, place, a.gathered ? token : place, block * 32 + LANE);
    if (a.act) {
        a.act[(u64)place * a.padded_k + block * 32 + LANE] = (u16)pack_bf16(v, 0);
        return;
    }
    round_block(v, a.q + (u64)place * a.padded_k + block * 32,
                a.scales + (u64)block * a.ld_places + place, (u64)(a.padded_k / 32) * a.ld_places);
}
