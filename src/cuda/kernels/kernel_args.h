/* kernel_args.h - what each kernel is launched with: shared by kernels, runner and tests.
 *
 * Memory is the device's unless a comment says otherwise. T tokens are the new ones of a step, in
 * the order of forward_batch; all tables of a step lie in one block that is uploaded once.
 *
 * Matrices: bf16 [n][k], k contiguous; k is padded to a multiple of 64 with zeros, n to one of 16.
 * What they multiply, `act`, is bf16 [T][k], padded likewise. A product is f32 [T][n].
 *
 * P1: a product's numbers are sums in one order, whatever the kernel and T:
 *
 *     k   | range 0                | range 1                | ...     `splits` ranges of equal
 *           chain of mma over k16    chain of mma over k16            length, a multiple of 64
 *           from 0                   from 0
 *     number = ((range 0 + range 1) + range 2) ...
 *
 * `splits` follows from the matrix's shape alone (cuda_splits). Kernels for few tokens leave the
 * ranges as `splits` parts [splits][T][n], which the kernel that reads them adds; kernels for many
 * tokens add them themselves and leave one part. */
#ifndef CUDA_KERNELS_KERNEL_ARGS_H
#define CUDA_KERNELS_KERNEL_ARGS_H

#if defined(__CUDA__) || defined(__CUDACC__)
#include "device/kernels/dialect.h"
#elif !defined(DEVICE_KERNELS_DIALECT_H) /* the host */
#include <stdint.h>
typedef uint8_t u8;
typedef int8_t i8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef int32_t i32;
typedef unsigned long long u64;
#define INLINE static inline
#endif

/* Ranges of k of a matrix [n][k], both padded: enough chains for a GPU's multiprocessors when
 * tokens are few, and none shorter than 256. */
INLINE u32 cuda_splits(u32 n, u32 k)
{
    u32 splits = 1;
    while (splits < 8 && (n / 16) * splits < 1024 && k % (splits * 2 * 64) == 0 &&
           k / (splits * 2) >= 256)
        splits *= 2;
    return splits;
}

/* slots.cu: slots[p.to + i] = values[p.from + i], i < p.count, for each patch p. Grid (patches),
 * PATCH_SLOTS_THREADS. */
enum { PATCH_SLOTS_THREADS = 128 };
typedef struct slot_patch {
    u32 to, from, count, pad;
} slot_patch;
typedef struct patch_slots_args {
    const slot_patch *patches;
    const i32 *values;
    i32 *slots;
} patch_slots_args;

/* embed.cu: x[t] = scale * table[ids[t]]. Grid (tokens), EMBED_THREADS. embed_quant.cu: the same of a
 * quantised table, as gemm_quant.cu wants it; ld is k, padded to a multiple of 256. */
enum { EMBED_THREADS = 128 };
typedef struct embed_args {
    const void *table;           /* [vocab][ld] bf16, or f32 where is_f32, or quantised */
    const i32 *ids;              /* [tokens] */
    float *x;                    /* [tokens][dim] */
    u32 tokens, dim, ld, is_f32; /* ld: numbers of a row of the table, at least dim */
    float scale;
    u32 pad;
} embed_args;

/* norm.cu: one block a row: grid (count), add_norm_threads(dim). Row r of the output is of token
 * rows[r] (NULL: r).
 *     sum  = x[t] + scale * (((y[0][t] + y[1][t]) + ...) + bias)        parts 0: x[t]
 *     x[t] = sum                                                         where store
 *     out[r] = sum * (1 / sqrt(mean(sum^2) + eps)) * weight, as bf16; zeros from dim to ld
 * Kernel add_norm up to ADD_NORM_DIM, add_norm_wide up to ADD_NORM_WIDE_DIM: the same bits.
 * add_norm_many is for many rows of up to ADD_NORM_DIM with few parts, where add_norm_whole says so
 * and all pointers are multiples of 16. `rows`, weights and bias are read before what the kernels in
 * front wrote.
 * add_norm_post, add_norm_post_many and add_norm_post_wide are the same where what is added has a
 * norm, or the row has none:
 *     sum    = x[t] + scale * (y * (1 / sqrt(mean(y^2) + eps)) * post)   y: the parts' sum and bias
 *     out[r] = sum, as bf16                                              where weight is NULL */
enum { ADD_NORM_THREADS = 512, ADD_NORM_DIM = 4096, ADD_NORM_WIDE_DIM = 16384 };
INLINE u32 add_norm_threads(u32 dim)
{
    return dim <= 1024 ? 256 : ADD_NORM_THREADS;
}
INLINE int add_norm_whole(u32 dim, u32 ldy, u32 ld)
{
    return (dim | ldy | ld) % 4 == 0;
}
typedef struct add_norm_args {
    float *x;            /* [T][dim] */
    const float *y;      /* [parts][T][ldy], T = y_tokens; parts <= 8 */
    const float *bias;   /* [dim] or NULL; read where parts > 0 */
    const float *weight; /* [dim]; NULL: no norm */
    const float *post;   /* [dim] the norm of what is added, or NULL */
    const u32 *rows;     /* [count] or NULL */
    u16 *out;            /* [count][ld]; NULL: none is wanted */
    float *out_f32;      /* [count][dim] the same before rounding, or NULL */
    u32 count, dim, ld, ldy, parts, y_tokens, store, pad;
    float eps, scale;
} add_norm_args;

/* norm.cu: what heads are multiplied by whose norm is of all heads together: scales[t][0] is
 * 1 / sqrt(mean(q^2) + eps) of token t's q, the parts' sum with its bias, and scales[t][1] is k's.
 * Grid (tokens, 2), ROW_SCALES_THREADS. */
enum { ROW_SCALES_THREADS = 512 };
typedef struct row_scales_args {
    const float *y;    /* [parts][T][ldy] q, then k, then others; parts <= 8 */
    const float *bias; /* of q and k, or NULL */
    float *scales;     /* [tokens][2] */
    u32 tokens, q_dim, k_dim, ldy, parts;
    float eps;
} row_scales_args;

/* cap.cu: x[r][i] = cap * tanh(x[r][i] / cap), i < n, with the CPU's bits. Grid (rows,
 * cap_blocks(n)), CAP_THREADS. */
enum { CAP_THREADS = 256 };
INLINE u32 cap_blocks(u32 n)
{
    return (n + 4 * CAP_THREADS - 1) / (4 * CAP_THREADS);
}
typedef struct cap_args {
    float *x; /* [rows][ld] */
    u32 rows, n, ld;
    float cap; /* > 0 */
} cap_args;

/* How K and V lie in a pool: f8.h has the fp8 types. */
enum attention_kv { ATTN_KV_BF16, ATTN_KV_E4M3, ATTN_KV_E5M2 };
INLINE u32 attention_kv_bytes(u32 kv)
{
    return kv == ATTN_KV_BF16 ? 2 : 1;
}

/* qkv.cu: what stands between the product of q, k and v and attention, one warp a token and head:
 * grid (tokens, qkv_blocks(heads + 2 * kv_heads)), QKV_THREADS. Kernel qkv for heads of k and v of
 * up to QKV_HEAD_DIM numbers, qkv_wide up to QKV_WIDE_HEAD_DIM: the same bits.
 * q, k, v of token t: ((y[0][t] + y[1][t]) + ...) + bias; heads of q, then k, then v.
 * Norm over a head (q_norm, k_norm [head_dim], or NULL), or over all of them: then there are
 * row_scales, and weights of every head. Then rotation: pairs (i, i + rope_dim/2) or, interleaved,
 * (2i, 2i + 1) by rope[position][2i .. 2i+1] = cos, sin; and q is multiplied by
 * q_factors[position], if there are any. Rounded to bf16; q to [T][heads][head_dim]; k, v to the
 * pool's slot of the token (bytes: slot * stride).
 * A pool of fp8 has k / k_scale and v / v_scale (f8.h), and attention over it reads q in another
 * order: of each 16 numbers the even ones, then the odd ones; head_dim is a multiple of 16 there.
 * Positions, slots, bias, factors and the rotations are read before what the kernels in front wrote,
 * so no kernel of the same chain of dependent launches may write them. */
enum { QKV_THREADS = 128, QKV_HEAD_DIM = 128, QKV_WIDE_HEAD_DIM = 256 };
INLINE u32 qkv_blocks(u32 heads)
{
    return (heads + QKV_THREADS / 32 - 1) / (QKV_THREADS / 32);
}
typedef struct qkv_args {
    const float *y;         /* [parts][T][ldy]; parts <= 8 */
    const float *bias;      /* [heads' q, k, v] or NULL */
    const float *q_norm, *k_norm;
    const float *row_scales; /* [tokens][2] of row_scales_args, or NULL */
    const float *rope;      /* [context][rope_dim] pairs of cos and sin; NULL: does not rotate */
    const float *q_factors; /* [context] or NULL */
    const u32 *positions;   /* [tokens] */
    const i32 *slots;       /* [tokens] out_cache_loc */
    u16 *q;
    u8 *k, *v;
    u64 k_stride, v_stride; /* of a slot, in bytes */
    u32 tokens, heads, kv_heads, head_dim, v_head_dim, rope_dim, interleaved, parts, ldy;
    float eps;
    u32 kv;                 /* attention_kv */
    float k_scale, v_scale; /* fp8: what is divided by */
    u32 pad;
} qkv_args;

/* attention.h: units of work that the host makes for a step (attention_plan.h), the same for all
 * layers that see as far. Canonical order of a query's keys (P1):
 *
 *     blocks of 64 absolute positions, chained inside spans of 256 (running max, sum, V), spans
 *     merged in ascending order; a block of which a query sees nothing changes nothing.
 *
 * A unit is a number of query rows (a token times the `group` heads that share a KV head) and the
 * positions [begin, end) of one row of slots, of which each is seen by one of its tokens at least.
 * A unit leaves (max, sum, V) of each of its spans in parts, which attention_merge merges; `direct`
 * units go through all spans of their tokens, merge them as they go and write the result.
 *
 * A span is as short as that a single request behind 2,048 positions has 64 pieces of work (8 KV
 * heads), and as long as that its part is small beside its K and V: head_dim 128, 4 heads a group
 * write and read 2 KB for each 128 KB.
 *
 * Over fp8 there are kernels of their own, attention_dN_f8: each 16 dims of Q and K are multiplied
 * even ones first (qkv_args), the scale of K is part of `scale`, and the sums of a span's V are
 * multiplied by v_scale where the span ends. */
#ifndef ATTN_SPAN /* benchmarks have kernels of other spans */
#define ATTN_SPAN 256
#endif
enum { ATTN_KEYS = 64, ATTN_THREADS = 256, ATTN_FEW_ROWS = 16 };
enum { /* of shared memory, for maxima and weights between warps */
       ATTN_EXCHANGE_BYTES = 9728, /* attention_many.h, head_dim 256 alone */
       ATTN_FEW_BYTES = 4864       /* attention_few.h */
};
typedef struct attention_unit {
    u32 first;    /* of `unit_tokens`: which query tokens, */
    u32 count;    /* so many */
    u32 slot_row; /* of the slots' table */
    u32 begin;    /* the first position that any of its tokens sees */
    u32 end;      /* one past the last */
    u32 direct;
} attention_unit;

typedef struct attention_args {
    const u16 *q;              /* [T][heads][head_dim] bf16 */
    const u8 *k, *v;           /* the layer's pool; slot s at s * stride bytes */
    u64 k_stride, v_stride;    /* multiples of 16, as k and v are, and below 4 GB */
    const i32 *slots;          /* [rows][slots_ld] of positions */
    const attention_unit *units;
    const u32 *num_units;      /* one number: graphs are replayed with other counts */
    const u32 *unit_tokens;    /* indices of query tokens */
    const u32 *positions;      /* [T] a token sees keys at positions <= its own */
    const u32 *parts_at;       /* [T] where its parts begin, one for each span that it sees */
    float *part_v;             /* [parts][heads][v_head_dim] */
    float *part_ms;            /* [parts][heads][2] max and sum */
    const float *sinks;        /* [heads] or NULL */
    u16 *out;                  /* [T][out_ld] bf16, heads * v_head_dim numbers */
    u32 heads, kv_heads, head_dim, v_head_dim, slots_ld, out_ld, window; /* window 0: all */
    float scale, cap;          /* > 0; cap 0: none, else cap * tanh(s / cap) */
    u32 stages;                /* in shared memory: stages of attention_many.h, granules of
                                * attention_few.h << 8, rows of Q << 16, of fp8 also
                                * blocks of bf16 << 24 */
    u32 kv;                    /* attention_kv: which of fp8; those of bf16 do not look */
    float v_scale;             /* fp8 */
} attention_args;

/* Merges parts of tokens [0, tokens) whose parts_at is not ~0 (those were direct). */
typedef struct attention_merge_args {
    const float *part_v, *part_ms;
    const u32 *positions, *parts_at;
    const float *sinks;
    u16 *out;
    u32 tokens, heads, v_head_dim, out_ld, window;
    float scale, cap;
    u32 pad;
} attention_merge_args;

/* gemm_few.cu, gemm_many.cu */
enum gemm_epilogue {
    GEMM_PARTS, /* out f32 [parts][tokens][ld_out], n_out numbers of a row are written */
    GEMM_SWIGLU /* rows of W in groups of 16: 8 of gate, 8 of up; out bf16 [tokens][ld_out] of
                 * swiglu (glu.h): n / 2 numbers; splits must be 1 */
};
typedef struct gemm_args {
    const u16 *w;
    const u16 *x; /* [tokens][k] */
    void *out;
    u32 n, n_out, k; /* n padded; n_out numbers are written */
    u32 tokens, splits, ld_out, epilogue;
    u32 warps, stages; /* of gemm_few: cuda_gemm_few_plan sets them (gemm_plan.h) */
    u32 pad;
} gemm_args;

/* gemm_wgmma.cu: the same, with W and x as maps that bulk copies read them by (cuda_matrix_map). */
typedef struct tensor_map { /* the driver fills it */
    u64 words[16];
} __attribute__((aligned(64))) tensor_map;
typedef struct gemm_wgmma_args {
    tensor_map w, x; /* [n][k], [at least `tokens`][k] */
    void *out;
    u32 n, n_out, k, tokens, splits, ld_out, epilogue, pad;
    u64 pad8[3];
} gemm_wgmma_args;

/* gemm_quant.cu: W is Q8_0, MXFP4, Q4_K or Q6_K, the CPU's bits (model/gemm_quant.h): one chain over
 * all blocks of 32 in ascending order. k is padded to a multiple of 256 with zeros, which add nothing; n
 * to one of 16. How W lies in memory: cuda/quant_pack.h. */
typedef struct gemm_quant_args {
    const u8 *w;
    const i8 *x;       /* [tokens][k] */
    const float *scales; /* of x, d then d * (sum of q): [2][k / 32][ld_tokens] */
    float *out;        /* [tokens][ld_out] */
    u32 n, n_out, k;   /* k padded, n padded; n_out numbers of a row are written */
    u32 tokens, ld_tokens, ld_out; /* ld_tokens: a multiple of 4 */
    u32 warps, stages; /* cuda_gemm_few_plan sets them */
} gemm_quant_args;

/* quantise_rows.cu: what gemm_quant.cu multiplies by, from the sum of parts of f32, or of what a
 * gated layer makes of it, or of bf16. A warp a block of 32. */
enum quantise_from { QUANTISE_F32, QUANTISE_SWIGLU /* k of gate, then k of up */, QUANTISE_BF16 };
typedef struct quantise_args {
    const void *x; /* [parts][rows][ldx] f32, or [rows][ldx] bf16 */
    i8 *q;         /* [rows][padded_k] */
    float *scales; /* [2][padded_k / 32][ld_tokens] */
    u32 rows, k, padded_k, ldx, parts, ld_tokens, from, pad;
} quantise_args;
enum { QUANTISE_THREADS = 256 }; /* grid: (rows, quantise_blocks(padded_k)) */
INLINE u32 quantise_blocks(u32 padded_k)
{
    return (padded_k / 32 + QUANTISE_THREADS / 32 - 1) / (QUANTISE_THREADS / 32);
}

/* glu.cu, where it is no epilogue: act[t] = glu of ((y[0][t] + y[1][t]) + ...) + bias, gate then up,
 * with the bits of glu.h. Grid (tokens, glu_blocks(ld)), GLU_THREADS. */
enum { GLU_THREADS = 128 };
enum glu_kind { GLU_SWIGLU, GLU_SWIGLU_CLAMPED, GLU_GEGLU };
INLINE u32 glu_blocks(u32 ld)
{
    return (ld + 4 * GLU_THREADS - 1) / (4 * GLU_THREADS);
}
typedef struct glu_args {
    const float *y;    /* [parts][tokens][ldy]; parts <= 8 */
    const float *bias; /* [2 * dim] or NULL */
    u16 *out;          /* [tokens][ld] zeros from dim to ld */
    u32 tokens, dim, ld, ldy, parts, kind;
} glu_args;

/* sample.cu: the token behind each row of logits, exactly the one that sampler_next (sampler.h)
 * chooses. Three kernels, each with grid (sample_chunks(vocab), num_rows), SAMPLE_THREADS; rows that
 * are greedy need the first alone:
 *
 *     sample_adjust   mask, penalties, bias, end_ids; the largest logit, and the token where greedy
 *     sample_count    count and weight of 1,024 buckets of x; the one in which the choice ends
 *     sample_choose   candidates up to there (or of that bucket), in order; the token
 *
 * The last block of a row to arrive finishes it. Everything of a launch is at most SAMPLE_ROWS rows;
 * what the kernels need between them is zero before the first launch and left zero. */
enum {
    SAMPLE_THREADS = 256,
    SAMPLE_CHUNK = 2048,
    SAMPLE_BUCKETS = 1024,
    SAMPLE_ROWS = 64
};
#define SAMPLE_NONE 0xffffffffu
INLINE u32 sample_chunks(u32 vocab)
{
    return (vocab + SAMPLE_CHUNK - 1) / SAMPLE_CHUNK;
}
typedef struct sample_row { /* see sampling_params and sampler_choice in sampler.h */
    u64 random, top_p;      /* top_p 0: off */
    u32 logits_row;         /* SAMPLE_NONE: no token is to be chosen */
    u32 greedy;
    u32 top_k;              /* 0: off */
    float temperature, least, unit;
    float repetition_penalty, presence_penalty, frequency_penalty;
    u32 num_output, output_at; /* in `ids`; num_output 0: no penalties */
    u32 num_bias, bias_at;     /* ids in `ids`, values in `bias` */
    u32 bias_values_at;
    u32 num_end_ids, end_ids_at; /* in `ids`: not to be chosen now */
    u32 mask_at;                 /* words in `masks`; SAMPLE_NONE: every token */
    u32 pad;
} sample_row;
typedef struct sample_state { /* of a row, between the kernels */
    u64 want;
    u32 arrived, listed;
    u32 todo;
    float max;
    u32 from, bucket;
} sample_state;
typedef struct sample_args {
    const float *logits;    /* [..][ld] */
    const sample_row *rows; /* [num_rows] */
    const i32 *ids;
    const float *bias;
    const u32 *masks;
    i32 *tokens;            /* [num_rows]; -1 where no logit is a number */
    /* Scratch, of SAMPLE_ROWS rows; that of the first line is zero at first. */
    sample_state *states;   /* [rows] */
    u64 *masses;            /* [rows][SAMPLE_BUCKETS] */
    u32 *counts;            /* [rows][SAMPLE_BUCKETS] */
    u64 *bests;             /* [rows][sample_chunks(vocab)] */
    float *held;            /* as many as `ids` */
    float *work;            /* [rows][ld] logits after their changes; used where drawn from */
    u32 *list;              /* [rows][vocab] */
    u32 num_rows, vocab, ld, pad;
} sample_args;

#endif
