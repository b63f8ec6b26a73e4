/* gemm_quant.cu - products with Q8_0, MXFP4, Q4_K and Q6_K weights that have the CPU's bits, for
 * any number of tokens; gemm_quant_many.cu is made for many.
 *
 * Blocks of threads, their ring of stages and their units are those of gemm_few.cu; a stage holds
 * 256 k, and tokens beyond a kernel's are units of their own:
 *
 *     stage | 16 rows of warp 0 | 16 rows of warp 1 | ... | q of tokens | d of them | d * sums
 *
 * How a warp's rows lie and what is done with them: gemm_quant.h. */
#define ONE_FORM
#include "device/kernels/dialect.h"

#include "cuda/kernels/gemm_quant.h"
#include "cuda/kernels/kernel_args.h"

/* What a thread copies next: of a unit, of its rows of W (its warp's first) or its tokens. */
typedef struct copier {
    u32 unit, step, slot, row;
} copier;

INLINE void store_tile(const gemm_quant_args a, u32 row, u32 token, const float acc[4])
{
    row += LANE >> 2;
    token += (LANE & 3) * 2;
    float *out = a.out + (u64)token * a.ld_out + row;
    UNROLL
    for (u32 i = 0; i < 4; i++)
        if (token + (i & 1) < a.tokens && row + (i >> 1) * 8 < a.n_out)
            out[(u64)(i & 1) * a.ld_out + (i >> 1) * 8] = acc[i];
}

/* What a warp of x copies of a stage: its 16 tokens (or fewer), from `token` on. */
INLINE void copy_tokens(const gemm_quant_args a, u8 *q, u8 *d, u32 columns, u32 sums, u32 first,
                        u32 token, u32 step)
{
    const u32 most = columns == 1 ? 8 : 16, row = LANE >> 4;
    const i8 *from = a.x + (u64)(token + row) * a.k + step * STAGE_K + (LANE & 15) * 16;
    UNROLL
    for (u32 r = 0; r < most; r += 2)
        if (token + r + row < a.tokens)
            copy16_async(q + (first + r + row) * PITCH + (LANE & 15) * 16, from + (u64)r * a.k);
    /* Four tokens of a block a lane. */
    const u32 block = LANE / (most / 4), four = LANE % (most / 4) * 4;
    if (block >= BLOCKS || token + four >= a.ld_tokens) return;
    const float *scales = a.scales + (u64)(step * BLOCKS + block) * a.ld_tokens + token + four;
    u8 *to = d + (block * columns * 8 + first + four) * 4;
    copy16_async(to, scales);
    if (sums) copy16_async(to + BLOCKS * columns * 8 * 4, scales + (u64)(a.k / 32) * a.ld_tokens);
}

/* The copier's unit begins: a block's `rows` of W by `tokens`, of which its warp has those from
 * `first` on. */
INLINE void begin_unit(copier *c, u32 groups, u32 of_x, u32 rows, u32 tokens, u32 first)
{
    const u32 tile = c->unit / groups;
    c->row = first + (of_x ? tile * tokens : (c->unit - tile * groups) * rows);
}

/* A kernel that takes columns * 8 tokens at a time, with_sums: 0 or 1; `loop` over a stage. */
#define GEMM_QUANT(name, add, w_bytes, with_sums, columns, loop)                                   \
    KERNEL(name, 320, gemm_quant_args)                                                             \
    {                                                                                              \
        enum { TOKENS = (columns)*8, D_BYTES = TOKENS * BLOCKS * 4 };                              \
        SHARED_DYNAMIC(u8, ring);                                                                  \
        launch_next();                                                                             \
        const u32 rows = a.warps * 16, steps = a.k / STAGE_K, groups = div_up(a.n, rows);          \
        const u32 units = groups * div_up(a.tokens, TOKENS), ahead = a.stages - 1;                 \
        const u32 x_at = a.warps * (w_bytes), d_at = x_at + TOKENS * PITCH;                        \
        const u32 stage_bytes = d_at + D_BYTES * (1 + (with_sums));                                \
        const u32 total = div_up(units - BLOCK_X, GRID_X) * steps; /* GRID_X <= units */           \
        const u32 of_x = WARP >= a.warps, first = (of_x ? WARP - a.warps : WARP) * 16;             \
        float acc[columns][4];                                                                     \
        UNROLL                                                                                     \
        for (u32 c = 0; c < (columns); c++)                                                        \
            acc[c][0] = acc[c][1] = acc[c][2] = acc[c][3] = 0;                                     \
        copier next = {BLOCK_X, 0, 0, 0};                                                          \
        begin_unit(&next, groups, of_x, rows, TOKENS, first);                                      \
        u32 unit = BLOCK_X, step = 0, slot = 0;                                                    \
        if (of_x) wait_previous();                                                                 \
        for (u32 i = 0; i < total + ahead; i++) {                                                  \
            if (i >= ahead) {                                                                      \
                wait_copies(ahead - 1);                                                            \
                SYNC_BLOCK();                                                                      \
            }                                                                                      \
            if (i < total) {                                                                       \
                u8 *to = ring + next.slot * stage_bytes;                                           \
                if (of_x)                                                                          \
                    copy_tokens(a, to + x_at, to + d_at, columns, with_sums, first, next.row,      \
                                next.step);                                                        \
                else if (next.row < a.n)                                                           \
                    copy_rows(to + WARP * (w_bytes),                                               \
                              a.w + ((u64)(next.row / 16) * steps + next.step) * (w_bytes),        \
                              w_bytes, w_bytes);                                                   \
                if (++next.slot == a.stages) next.slot = 0;                                        \
                if (++next.step == steps) {                                                        \
                    next.step = 0;                                                                 \
                    next.unit += GRID_X;                                                           \
                    begin_unit(&next, groups, of_x, rows, TOKENS, first);                          \
                }                                                                                  \
            }                                                                                      \
            copy_commit();                                                                         \
            if (i < ahead) continue;                                                               \
            const u8 *w = ring + slot * stage_bytes + WARP * (w_bytes);                            \
            const u8 *x = ring + slot * stage_bytes + x_at + (LANE & 7) * PITCH +                  \
                          (LANE >> 3) * 16;                                                        \
            const u8 *d = ring + slot * stage_bytes + d_at + (LANE & 3) * 8;                       \
            if (++slot == a.stages) slot = 0;                                                      \
            if (of_x) continue;                                                                    \
            loop for (u32 two = 0; two < BLOCKS / 2; two++) add(acc, columns, w, two, x, d);       \
            if (++step < steps) continue;                                                          \
            step = 0;                                                                              \
            const u32 tile = unit / groups, row = (unit - tile * groups) * rows + first;           \
            unit += GRID_X;                                                                        \
            wait_previous();                                                                       \
            UNROLL                                                                                 \
            for (u32 c = 0; c < (columns); c++) {                                                  \
                store_tile(a, row, tile *TOKENS + c * 8, acc[c]);                                  \
                acc[c][0] = acc[c][1] = acc[c][2] = acc[c][3] = 0;                                 \
            }                                                                                      \
        }                                                                                          \
    }

GEMM_QUANT(gemm_q8_0_8, add_q8_0, Q8_0_BYTES, 0, 1, UNROLL)
GEMM_QUANT(gemm_q8_0_16, add_q8_0, Q8_0_BYTES, 0, 2, UNROLL)
GEMM_QUANT(gemm_q8_0_32, add_q8_0, Q8_0_BYTES, 0, 4, ROLLED)
GEMM_QUANT(gemm_q8_0_64, add_q8_0, Q8_0_BYTES, 0, 8, ROLLED)
GEMM_QUANT(gemm_mxfp4_8, add_mxfp4, MXFP4_BYTES, 0, 1, UNROLL)
GEMM_QUANT(gemm_mxfp4_16, add_mxfp4, MXFP4_BYTES, 0, 2, UNROLL)
GEMM_QUANT(gemm_mxfp4_32, add_mxfp4, MXFP4_BYTES, 0, 4, ROLLED)
GEMM_QUANT(gemm_mxfp4_64, add_mxfp4, MXFP4_BYTES, 0, 8, ROLLED)
GEMM_QUANT(gemm_q4_k_8, add_q4_k, Q4_K_BYTES, 1, 1, UNROLL)
GEMM_QUANT(gemm_q4_k_16, add_q4_k, Q4_K_BYTES, 1, 2, UNROLL)
GEMM_QUANT(gemm_q4_k_32, add_q4_k, Q4_K_BYTES, 1, 4, ROLLED)
GEMM_QUANT(gemm_q4_k_64, add_q4_k, Q4_K_BYTES, 1, 8, ROLLED)
GEMM_QUANT(gemm_q6_k_8, add_q6_k, Q6_K_BYTES, 0, 1, ROLLED)
GEMM_QUANT(gemm_q6_k_16, add_q6_k, Q6_K_BYTES, 0, 2, ROLLED)
GEMM_QUANT(gemm_q6_k_32, add_q6_k, Q6_K_BYTES, 0, 4, ROLLED)
GEMM_QUANT(gemm_q6_k_64, add_q6_k, Q6_K_BYTES, 0, 8, ROLLED)
