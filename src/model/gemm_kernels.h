/* gemm_kernels.h - what one instruction set brings to gemm.c.
 *
 * A kernel computes a tile of 1..GEMM_TILE_ROWS rows of x times one panel of the
 * weight, over a range of k. The tile's sums live in registers; between two ranges
 * of k they are stored to `c` and loaded again, which does not change their bits. */
#ifndef MODEL_GEMM_KERNELS_H
#define MODEL_GEMM_KERNELS_H

#include "base/base.h"
#include "base/bf16.h"
#include "model/gemm.h"
#include "model/gemm_quant.h"

enum { GEMM_TILE_ROWS = 6, GEMM_LOW_ROWS = 3 };

/* Of quant_block: rows that it likes at a time, and so few that it is not asked. */
enum { GEMM_AMX_INT8_ROWS = 12, GEMM_FEW_ROWS = 16 };

/* c[r][0..GEMM_PANEL) += the products, r < rows; with `fresh` the sums start at 0
 * and c is not read.
 *
 * f32: `x` holds f32, `w` is [depth][GEMM_PANEL] f32, one k a step. bf16: `w` is
 * [depth][GEMM_PANEL][2] bf16, two k a step, and `x` holds pairs of bf16 or, when the
 * ISA has no instruction for those (widens), pairs of f32 that were rounded to bf16.
 * ldx counts f32, or pairs of bf16; ldc counts f32.
 *
 * Quantised: `w` is [depth] steps as gemm_quant.h draws them, 32 k a step (K types: 256),
 * `x` is gemm_xblock, one per 32 k, and ldx counts those.
 *
 * Meanwhile the lines that come next may be prefetched: those of a step's bytes at
 * ahead + step * ahead_stride, at every step of depth. They need not exist. A stride of a whole
 * step says that no other tile reads this panel. */
typedef struct gemm_tile {
    uint32_t rows, depth;
    uint32_t side; /* 0; or of a kernel with two_sides */
    const void *x;
    size_t ldx;
    const void *w;
    float *c;
    size_t ldc;
    const char *ahead;
    size_t ahead_stride;
    bool fresh;
} gemm_tile;

typedef void gemm_kernel(const gemm_tile *tile);

/* How many steps ahead a tile fetches that reads its panel alone: about 8 KB, what memory has under
 * way at a time, and so little that it is still in the L1 cache when its turn comes. */
static inline uint32_t gemm_near_steps(size_t step_bytes)
{
    enum { NEAR_BYTES = 8 << 10 };
    return (uint32_t)RAD_MAX((NEAR_BYTES + step_bytes / 2) / step_bytes, (size_t)1);
}

/* The first `columns` of a panel for any number of rows, over the whole of k (depth counts
 * all its steps). `ahead` is the panel that comes next; ahead_stride is not used. */
typedef void gemm_quant_block(gemm_type type, const gemm_tile *block, uint32_t columns);

struct gemm_isa {
    const char *name;
    gemm_kernel *f32;
    gemm_kernel *bf16;
    gemm_kernel *bf16w; /* as bf16 where it widens; x is pairs of f32 that were not rounded */
    gemm_kernel *f16w;  /* x as bf16w's; `w` is [depth][2][GEMM_PANEL] f16 */
    /* Instead of bf16, where set: the first `columns` of a panel for any number of rows,
     * over the whole of k (depth counts all its pairs). `ahead` is the panel that comes
     * next; ahead_stride is not used. */
    void (*bf16_block)(const gemm_tile *block, uint32_t columns);
    const gemm_quant_isa *quant;
    /* Instead of quant's kernels, where set, for q8_0, q4_0 and q4_K and more than
     * GEMM_FEW_ROWS rows: the same bits, sooner. */
    gemm_quant_block *quant_block;
    bool widens;
    /* Rounds k floats to bf16 pairs, or to f32 pairs when it widens; an odd k gets a
     * zero to pair with. */
    void (*round_row)(const float *x, uint32_t k, void *dst);
};

/* Every quantised type that has kernels, once: what each instruction set says of each. */
#define GEMM_EACH_QUANT(SAY)                                                                       \
    SAY(q8_0)                                                                                      \
    SAY(q4_0)                                                                                      \
    SAY(q4_1)                                                                                      \
    SAY(q5_0)                                                                                      \
    SAY(q5_1)                                                                                      \
    SAY(iq4_nl)                                                                                    \
    SAY(mxfp4)                                                                                     \
    SAY(q2_k)                                                                                      \
    SAY(q3_k)                                                                                      \
    SAY(q4_k)                                                                                      \
    SAY(q5_k)                                                                                      \
    SAY(q6_k)                                                                                      \
    SAY(iq4_xs)

#define GEMM_QUANT_FIELD(name) gemm_kernel *name;

/* The kernels of quantised weights, of one instruction set. */
struct gemm_quant_isa {
    GEMM_EACH_QUANT(GEMM_QUANT_FIELD)
    /* Of a tile of more than GEMM_LOW_ROWS rows a call computes half of the panel's outputs, as
     * `side` says; all rows of x go over one side before the other's turn, so that only it
     * has to stay in the L1 cache. Lower tiles are done with side 0. */
    bool two_sides;
    /* gemm_round_to_blocks, compiled for the instruction set. */
    void (*round_row)(const float *x, uint32_t k, gemm_xblock *dst);
};

extern const gemm_isa gemm_scalar, gemm_avx2, gemm_avxvnni, gemm_avx512, gemm_avx512vnni,
    gemm_avx512bf16;
extern const gemm_isa gemm_neon, gemm_dotprod, gemm_i8mm;
extern const gemm_isa gemm_amx;
extern const gemm_isa gemm_amx_vnni; /* gemm_amx without quant_block */
extern const gemm_quant_isa gemm_quant_scalar, gemm_quant_avx2, gemm_quant_avxvnni;
extern const gemm_quant_isa gemm_quant_avx512vnni;
extern const gemm_quant_isa gemm_quant_neon, gemm_quant_dotprod, gemm_quant_i8mm;

gemm_quant_block gemm_amx_int8_block;

/* For those that bring none of their own. */
gemm_kernel gemm_scalar_f32, gemm_scalar_bf16, gemm_scalar_f16, gemm_avx512_widened;
gemm_kernel gemm_avx512_f16;

/* The bodies of round_row, for each file to compile with its own instructions. */
RAD_VECTORIZE static inline void gemm_round_to_bf16(const float *x, uint32_t k, void *dst)
{
    uint16_t *half = dst;
    for (uint32_t i = 0; i < k; i++)
        half[i] = bf16_from_f32(x[i]);
    if (k & 1) half[k] = 0;
}

RAD_VECTORIZE static inline void gemm_round_to_f32(const float *x, uint32_t k, void *dst)
{
    float *full = dst;
    for (uint32_t i = 0; i < k; i++)
        full[i] = bf16_to_f32(bf16_from_f32(x[i]));
    if (k & 1) full[k] = 0;
}

/* The lower and upper half of a pair as it lies in memory (little endian). */
static inline float gemm_pair_low(uint32_t pair)
{
    return bf16_to_f32((uint16_t)pair);
}
static inline float gemm_pair_high(uint32_t pair)
{
    return bf16_to_f32((uint16_t)(pair >> 16));
}

#endif
