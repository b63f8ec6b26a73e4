/* gemm_quant_many.cu - products with quantised weights for many tokens, made for the rate at which
 * sums are added. The bits are the CPU's and those of gemm_quant.cu, whatever the tile.
 *
 * A block of threads has `warps` times 32 rows of W and 64 or 128 tokens; a warp has its 32 rows
 * with all of the tokens. So each W is unpacked once a tile, and no other warp wants it: it goes
 * from memory to this warp's registers, a block of 32 k ahead. Tokens come through a ring of STAGES
 * stages of STEP blocks in shared memory:
 *
 *     stage | tokens, 128 k each | d of them [STEP][tokens] | d * sums likewise (Q4_K)
 *
 * Piece c (16 bytes) of token t lies at c ^ key(t), so that the 8 rows that ldmatrix reads at once
 * share no banks. A lane's four columns of two matrices are four neighbouring tokens: row r of
 * column block c is token 16 * (c / 2) + 4 * (r / 2) + r % 2 + 2 * (c % 2), so one load of 16 bytes
 * has what two blocks of columns need of d.
 *
 * What bounds it (estimates; it has not run on hardware). For 16 rows, 8 tokens and 32 k a lane has
 * one mma and, four times, sum to float, d * d, and fma: the CPU rounds d * d, so that none of the
 * three can be left out. 13 instructions at one a cycle and scheduler: 584 Tera-operations a second
 * of an H100 at 1,755 MHz, where bf16 by mma.sync reaches 658 and its s8 unit is busy for 4 to 7 of
 * the 13 cycles. Of the instructions that ptxas makes, a block of 32 k has 15.2 a mma (Q8_0), 18.0
 * (MXFP4), 20.8 (Q4_K: 17 with the minima's fma) and 31 (Q6_K: two mma of 16 k): 500, 420, 365 and
 * 245. An A100 adds 16 numbers a cycle and scheduler: 20 cycles a mma, 250.
 *
 * A conversion from integer is thought to take 8 cycles of an A100's scheduler, an addition 2. So
 * the sum begins at 3 * 2^22 as a float's bits, which makes it that float plus the sum, and 3 *
 * 2^22 is taken off: exact, as sums are below 2^19.1. The A100's form converts two of four, so that
 * both units work; sm_90's converts none. */
#include "cuda/kernels/gemm_quant.h"
#include "cuda/kernels/kernel_args.h"
#include "device/kernels/dialect.h"

enum { Q8_0, MXFP4, Q4_K, Q6_K };
enum {
    HIGH = 2, /* 16 rows that a warp has, so often */
    STAGES = 3,
    STEP = 4,           /* blocks of a stage */
    TOKEN = STEP * 32,  /* bytes of a token in it */
    START = 0x4b400000, /* 3 * 2^22 as a float, whose lowest bit is 1 */
    MOST_COLUMNS = 16   /* of 8 tokens */
};
#ifdef HOPPER
enum { CONVERTED = 0 };
#else
enum { CONVERTED = 2 };
#endif

/* A lane's part of 16 rows of W and a block, as it is in memory. */
typedef struct stored {
    quad q;
    u32 upper[2];           /* of Q6_K */
    u32 scales[2], both[2]; /* of rows r and r + 8; d (and dmin) of 256 k */
} stored;

/* And as it is multiplied: d of halves (of Q6_K, else there is one) and rows, -dmin * min. */
typedef struct unpacked {
    u32 w[4];
    float d[2][2], min[2];
} unpacked;

typedef struct four {
    float of[4];
} __attribute__((aligned(16))) four;

INLINE u32 tile_bytes(const u32 type)
{
    return type == Q8_0    ? Q8_0_BYTES
           : type == MXFP4 ? MXFP4_BYTES
           : type == Q4_K  ? Q4_K_BYTES
                           : Q6_K_BYTES;
}

/* What this lane has of 16 rows at `w`, of a block. */
INLINE void load_rows(stored *s, const u8 *w, u32 block, const u32 type)
{
    const u8 *tile = w + (block >> 3) * tile_bytes(type);
    const u32 row = LANE >> 2, b = block & 7;
    if (type == Q8_0) s->q = ((const quad *)(tile + Q8_0_SCALES))[b * 32 + LANE];
    if (type == MXFP4) s->q = ((const quad *)(tile + MXFP4_SCALES))[(b >> 1) * 32 + LANE];
    if (type == Q4_K) s->q = ((const quad *)(tile + Q4_K_SCALES))[(b >> 1) * 32 + LANE];
    if (type == Q6_K) {
        s->q = ((const quad *)(tile + Q6_K_SCALES))[(b >> 1) * 32 + LANE];
        const u32 *upper = (const u32 *)(tile + Q6_K_SCALES + 4 * 512) + ((b >> 1) * 32 + LANE) * 2;
        s->upper[0] = upper[0];
        s->upper[1] = upper[1];
    }
    UNROLL
    for (u32 r = 0; r < 2; r++) {
        const u32 at = (row + r * 8) * BLOCKS + b;
        s->scales[r] = type == MXFP4 ? tile[at] : ((const u16 *)tile)[at];
        if (type == Q4_K) s->both[r] = ((const u32 *)(tile + 16 * BLOCKS * 2))[row + r * 8];
        if (type == Q6_K) s->both[r] = ((const u16 *)(tile + 16 * BLOCKS * 2))[row + r * 8];
    }
}

/* `odd`: the second block of two that share words. */
INLINE void unpack(unpacked *u, const stored *s, u32 odd, const u32 type)
{
    UNROLL
    for (u32 i = 0; i < 4; i++) {
        const u32 q = s->q.of[i], low = q >> 4 * odd & 0x0f0f0f0f;
        if (type == Q8_0) u->w[i] = q;
        if (type == MXFP4) u->w[i] = mxfp4_numbers(q >> 16 * odd);
        if (type == Q4_K) u->w[i] = low;
        if (type == Q6_K) {
            const u32 high = s->upper[i & 1] >> (2 * (i >> 1) + 4 * odd) & 0x03030303;
            u->w[i] = q6_k_numbers(low | high << 4);
        }
    }
    UNROLL
    for (u32 r = 0; r < 2; r++) {
        const u32 scale = s->scales[r];
        if (type == Q8_0) u->d[0][r] = half_float(scale);
        if (type == MXFP4) u->d[0][r] = mxfp4_scale(scale);
        if (type == Q4_K) {
            u->d[0][r] = half_float(s->both[r] & 0xffff) * (float)(scale & 255);
            u->min[r] = -(half_float(s->both[r] >> 16) * (float)(scale >> 8));
        }
        if (type == Q6_K) {
            u->d[0][r] = half_float(s->both[r]) * (float)(i8)scale;
            u->d[1][r] = half_float(s->both[r]) * (float)(i8)(scale >> 8);
        }
    }
}

/* A block's sums: those of rows r and r + 8, of two tokens each. */
INLINE void add_sums(float acc[4], const i32 sum[4], const float dw[2], const float *dx)
{
    float of[4];
    UNROLL
    for (u32 i = 0; i < 4; i++)
        of[i] = (i32)i < CONVERTED ? (float)sum[i] : bits_float((u32)sum[i]) - 12582912.0f;
    UNROLL
    for (u32 i = 0; i < 4; i++)
        acc[i] = FMA(of[i], dw[i >> 1] * dx[i & 1], acc[i]);
}

INLINE void add_column(float acc[4], const unpacked *u, const u32 x[2], const float *dx,
                       const float *sums, const i32 start[4], const u32 type)
{
    if (type == Q6_K) {
        UNROLL
        for (u32 h = 0; h < 2; h++) {
            i32 sum[4];
            mma_i8_16(sum, u->w + 2 * h, x + h, start);
            add_sums(acc, sum, u->d[h], dx);
        }
        return;
    }
    i32 sum[4];
    mma_i8_from(sum, u->w, x, start);
    add_sums(acc, sum, u->d[0], dx);
    if (type != Q4_K) return;
    UNROLL
    for (u32 i = 0; i < 4; i++)
        acc[i] = FMA(u->min[i >> 1], sums[i & 1], acc[i]);
}

/* Byte of piece c of a token of a stage. */
INLINE u32 piece_at(u32 token, u32 c)
{
    return token * TOKEN + ((c ^ (token & 1) ^ (token >> 1 & 6)) << 4);
}

/* A stage of this tile's tokens; what lies behind the last token is never stored. */
INLINE void copy_step(const gemm_quant_args *a, u8 *to, u32 first, u32 step, const u32 tokens,
                      const u32 type)
{
    const u32 threads = a->warps * 32, c = THREAD_X & 7;
    const i8 *x = a->x + step * TOKEN + c * 16;
    ROLLED
    for (u32 t = THREAD_X >> 3; t < tokens; t += threads >> 3)
        if (first + t < a->tokens) copy16_async(to + piece_at(t, c), x + (u64)(first + t) * a->k);
    to += tokens * TOKEN;
    const float *scales = a->scales + (u64)(step * STEP) * a->ld_tokens + first;
    ROLLED
    for (u32 i = THREAD_X; i < STEP * tokens / 4; i += threads) {
        const u32 block = i / (tokens / 4), t = i % (tokens / 4) * 4;
        if (first + t >= a->ld_tokens) continue;
        const float *from = scales + (u64)block * a->ld_tokens + t;
        copy16_async(to + i * 16, from);
        if (type == Q4_K)
            copy16_async(to + STEP * tokens * 4 + i * 16, from + (u64)(a->k / 32) * a->ld_tokens);
    }
}

INLINE void store(const gemm_quant_args *a, u32 token, u32 row, float number)
{
    if (token < a->tokens && row < a->n_out) a->out[(u64)token * a->ld_out + row] = number;
}

/* What every sum begins at. The product adds nothing: it is there so that the assembler takes the
 * four registers for numbers that it cannot make again, and does not before every mma. */
INLINE void begin_sums(i32 start[4])
{
    const u32 zeros[4] = {0, 0, 0, 0};
    i32 from[4];
    UNROLL
    for (u32 i = 0; i < 4; i++)
        from[i] = (i32)i < CONVERTED ? 0 : START;
    mma_i8_from(start, zeros, zeros, from);
}

/* A tile of pairs * 16 tokens; `pairs` and `type` are constants. */
INLINE void multiply(const gemm_quant_args *a, u8 *ring, const u32 pairs, const u32 type)
{
    const u32 tokens = pairs * 16, rows = a->warps * HIGH * 16, groups = div_up(a->n, rows);
    const u32 tile = BLOCK_X / groups, first = tile * tokens,
              row = (BLOCK_X - tile * groups) * rows + WARP * HIGH * 16;
    const u32 stage = tokens * TOKEN + tokens * STEP * 4 * (type == Q4_K ? 2 : 1);
    const u32 steps = a->k / TOKEN, blocks = a->k / 32;
    const u8 *w[HIGH];
    stored next[HIGH];
    unpacked u[HIGH];
    float acc[HIGH][MOST_COLUMNS][4];
    i32 start[4];
    begin_sums(start);
    launch_next();
    UNROLL
    for (u32 m = 0; m < HIGH; m++) {
        const u32 of = row / 16 + m, last = a->n / 16 - 1;
        w[m] = a->w + (u64)(of < last ? of : last) * (blocks / 8) * tile_bytes(type);
        load_rows(&next[m], w[m], 0, type);
        UNROLL
        for (u32 c = 0; c < MOST_COLUMNS; c++)
            acc[m][c][0] = acc[m][c][1] = acc[m][c][2] = acc[m][c][3] = 0;
    }
    wait_previous();
    ROLLED
    for (u32 s = 0; s < STAGES - 1; s++) {
        if (s < steps) copy_step(a, ring + s * stage, first, s, tokens, type);
        copy_commit();
    }
    const u32 n = LANE & 7, x_at = ((n >> 1) * 4 + (n & 1) + (LANE >> 4) * 2) * TOKEN +
                                   (((LANE >> 3 & 1) ^ n) << 4);
    u32 slot = 0, free = STAGES - 1;
    ROLLED
    for (u32 step = 0; step < steps; step++) {
        COPY_WAIT(STAGES - 2);
        SYNC_BLOCK();
        if (step + STAGES - 1 < steps)
            copy_step(a, ring + free * stage, first, step + STAGES - 1, tokens, type);
        copy_commit();
        const u8 *x = ring + slot * stage, *d = x + tokens * TOKEN + (LANE & 3) * 16;
        if (++slot == STAGES) slot = 0;
        if (++free == STAGES) free = 0;
        ROLLED
        for (u32 b = 0; b < STEP; b++) {
            const u32 block = step * STEP + b, then = block + 1 < blocks ? block + 1 : block;
            UNROLL
            for (u32 m = 0; m < HIGH; m++) {
                unpack(&u[m], &next[m], b & 1, type);
                load_rows(&next[m], w[m], then, type);
            }
            UNROLL
            for (u32 j = 0; j < pairs; j++) {
                u32 xf[4];
                load_matrix4(xf, x + (x_at ^ b << 5) + j * 16 * TOKEN);
                const four dx = *(const four *)(d + (b * tokens + j * 16) * 4);
                four sums = {{0}};
                if (type == Q4_K) sums = *(const four *)(d + ((STEP + b) * tokens + j * 16) * 4);
                UNROLL
                for (u32 m = 0; m < HIGH; m++) {
                    add_column(acc[m][2 * j], &u[m], xf, dx.of, sums.of, start, type);
                    add_column(acc[m][2 * j + 1], &u[m], xf + 2, dx.of + 2, sums.of + 2, start,
                               type);
                }
            }
        }
    }
    UNROLL
    for (u32 j = 0; j < pairs; j++)
        UNROLL
    for (u32 t = 0; t < 4; t++)
        UNROLL
    for (u32 i = 0; i < HIGH * 2; i++)
        store(a, first + j * 16 + (LANE & 3) * 4 + t, row + i * 8 + (LANE >> 2),
              acc[i >> 1][2 * j + (t >> 1)][(i & 1) * 2 + (t & 1)]);
}

#define GEMM_QUANT_MANY(name, pairs, type)                                                         \
    KERNEL(name, 128, gemm_quant_args)                                                             \
    {                                                                                              \
        SHARED_DYNAMIC(u8, ring);                                                                  \
        multiply(&a, ring, pairs, type);                                                           \
    }

GEMM_QUANT_MANY(gemm_q8_0_many_128, 8, Q8_0)
GEMM_QUANT_MANY(gemm_q8_0_many_64, 4, Q8_0)
GEMM_QUANT_MANY(gemm_mxfp4_many_128, 8, MXFP4)
GEMM_QUANT_MANY(gemm_mxfp4_many_64, 4, MXFP4)
GEMM_QUANT_MANY(gemm_q4_k_many_128, 8, Q4_K)
GEMM_QUANT_MANY(gemm_q4_k_many_64, 4, Q4_K)
GEMM_QUANT_MANY(gemm_q6_k_many_128, 8, Q6_K)
GEMM_QUANT_MANY(gemm_q6_k_many_64, 4, Q6_K)
