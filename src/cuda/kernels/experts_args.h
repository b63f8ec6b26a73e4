/* experts_args.h - kernel_args.h for mixtures of experts. What a step does of a layer with them:
 *
 *     experts_scores   scores[t][e] = router[e] . x[t]
 *     experts_choose   scores -> which experts a token uses, by rank, and their weights
 *     experts_order    (token, rank) -> a place among places of the same expert
 *     products         by tiles of places: gates and ups of rows that are gathered, then downs
 *     experts_sum      y[t] = sum over ranks of weight * (down[place of rank] + bias)
 *
 * All of it stays on the device: a graph is replayed whatever is chosen.
 *
 * A tile is `width` places (8, 16, 32 or 64) of one expert, of which the first `count` are taken;
 * place = tile * width + i. Tiles are in ascending order of experts, a token's place among an
 * expert's in ascending order of tokens. So there are at most experts_most_tiles of them.
 *
 * P1: choices and weights follow from the token alone. A place decides where numbers lie and what
 * they are beside, never their order: a product with an expert's matrix is one chain over ascending
 * k (splits 1), for tiles of any width. */
#ifndef CUDA_KERNELS_EXPERTS_ARGS_H
#define CUDA_KERNELS_EXPERTS_ARGS_H

#include "cuda/kernels/kernel_args.h"

enum { EXPERTS_MOST = 256, EXPERTS_MOST_USED = 32 };
#define EXPERTS_NONE 0xffffffffu
INLINE u32 experts_most_tiles(u32 tokens, u32 used, u32 count, u32 width)
{
    const u32 pairs = tokens * used, full = pairs / width + count;
    return pairs < full ? pairs : full;
}
typedef struct expert_tile {
    u32 expert, count;
} expert_tile;
typedef struct expert_tiles { /* what products by tiles read of experts_order's */
    const expert_tile *tiles;
    const u32 *num_tiles; /* one number: graphs are replayed with other tiles */
    const u32 *row_of;    /* [num_tiles * width] token of a place, or EXPERTS_NONE */
    u32 width, pad;
} expert_tiles;

/* One order for every number, whatever the grid: lane l adds x[k] * w[k], k = 128 i + 4 l .. + 3 in
 * ascending order, then lanes 16 apart, 8, 4, 2, 1. Rows of router and x are dim f32. Row `count`
 * of the scores is of `shared_gate`, where that is not NULL.
 * experts_scores: grid (div_up(rows, EXPERTS_SCORES_ROWS), div_up(tokens, EXPERTS_SCORES_TOKENS)),
 * experts_scores_many likewise with the numbers of the second line. */
enum {
    EXPERTS_SCORES_THREADS = 128,
    EXPERTS_SCORES_ROWS = 4,
    EXPERTS_SCORES_TOKENS = 4,
    EXPERTS_SCORES_MANY_THREADS = 256,
    EXPERTS_SCORES_MANY_ROWS = 16,
    EXPERTS_SCORES_MANY_TOKENS = 16
};
typedef struct experts_scores_args {
    const float *router;      /* [count][dim] */
    const float *shared_gate; /* [dim] or NULL */
    const float *x;           /* [tokens][dim] */
    float *scores;            /* [tokens][ld] */
    u32 tokens, dim, count, ld;
} experts_scores_args;

/* A warp a token: grid (div_up(tokens, EXPERTS_CHOOSE_TOKENS)), EXPERTS_CHOOSE_THREADS. As
 * block_moe.c chooses and weighs: of equal scores the lower id; of what cannot be compared the
 * first that is not chosen. */
enum { EXPERTS_CHOOSE_THREADS = 128, EXPERTS_CHOOSE_TOKENS = EXPERTS_CHOOSE_THREADS / 32 };
/* router_kind of model/config.h */
enum experts_router { EXPERTS_SOFTMAX = 1, EXPERTS_SIGMOID, EXPERTS_SOFTMAX_OF_CHOSEN };
typedef struct experts_choose_args {
    const float *scores;      /* [tokens][ld] */
    const float *router_bias; /* [count] added to scores, or NULL */
    const float *select_bias; /* [count] added to what is chosen by, or NULL */
    u32 *chosen;              /* [tokens][used] ids by rank */
    float *weights;           /* [tokens][used] */
    u32 tokens, ld, count, used, router, normed;
    u32 groups, groups_used; /* experts of the best groups alone are chosen; equal: all */
    float scale;
    u32 pad;
} experts_choose_args;

/* One block of a.threads, a multiple of 32, at most EXPERTS_ORDER_THREADS. Tokens from *num_tokens
 * on, which fill up a graph, have no places: their place_of is EXPERTS_NONE. */
enum { EXPERTS_ORDER_THREADS = 512 };
typedef struct experts_order_args {
    const u32 *chosen;     /* [tokens][used] */
    const u32 *num_tokens; /* at most `tokens` */
    expert_tile *tiles;    /* room for experts_most_tiles */
    u32 *num_tiles;
    u32 *row_of;   /* [num_tiles * width] */
    u32 *place_of; /* [tokens][used] */
    u32 tokens, used, count, width, threads, pad;
} experts_order_args;

/* y[t] = ((0 + weights[t][0] * (down[place 0] + bias)) + ...) in the order of ranks, each step one
 * fma; behind them, where there is a shared expert, its parts' sum times 1 / (1 + e^-gate), gate
 * being scores[t][count] (without shared_gated: times 1). `shared` may be `y`. Grid (tokens,
 * experts_sum_blocks(dim)), EXPERTS_SUM_THREADS. */
enum { EXPERTS_SUM_THREADS = 128 };
INLINE u32 experts_sum_blocks(u32 dim)
{
    return (dim + 4 * EXPERTS_SUM_THREADS - 1) / (4 * EXPERTS_SUM_THREADS);
}
typedef struct experts_sum_args {
    const float *down;    /* [places][ld_down] */
    const float *bias;    /* [count][dim] or NULL */
    const u32 *chosen;    /* [tokens][used] */
    const u32 *place_of;  /* [tokens][used] */
    const float *weights; /* [tokens][used] */
    const float *shared;  /* [shared_parts][tokens][ld_y] or NULL */
    const float *scores;  /* [tokens][ld_scores] */
    float *y;             /* [tokens][ld_y] */
    u32 tokens, dim, used, count, ld_down, ld_y, ld_scores, shared_parts, shared_gated, pad;
} experts_sum_args;

/* An epilogue beside those of gemm_epilogue: as GEMM_SWIGLU, of swiglu_clamped (glu.h). */
enum { GEMM_SWIGLU_CLAMPED = GEMM_SWIGLU + 1 };

/* gemm_experts.cu: bf16 products by tiles, for tiles of 8, 16, 32 and 64 places a kernel of its
 * own. A unit is a tile times a block's rows of W; block b takes units b, b + GRID_X, ... */
typedef struct gemm_experts_args {
    const u16 *w;      /* [count] of [n][k] */
    u64 w_bytes;       /* from one expert's to the next */
    const u16 *x;      /* [tokens][k]; or [places][k] where not `gathered` */
    const float *bias; /* [count][n_bias] of gates, then of ups, or NULL; not of GEMM_PARTS */
    void *out;         /* [places][ld_out] */
    expert_tiles by;
    u32 n, n_out, k, ld_out, epilogue, gathered, n_bias;
    u32 warps, stages; /* cuda_gemm_tiles_plan sets them (gemm_plan.h) */
    u32 pad;
} gemm_experts_args;

#endif
