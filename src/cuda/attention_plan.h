/* attention_plan.h - what a step's attention is launched with: units of work (kernel_args.h).
 *
 * A plan depends on the batch, its window, the GPU's size and what room there is for parts; results
 * do not depend on the plan. Nothing is allocated: the caller gives all room, of which the
 * functions below tell the size. Both kernels have a grid that depends on the model and the GPU
 * alone (the merge: on the number of tokens), so that a captured graph runs other plans.
 *
 *     requests   0: 1 new token, 1,000 positions      units   0: [512,768) [768,1000)    parts
 *                1: 1 new token, 900 positions                1: [512,768) [768,900)     parts
 *                2: 600 new tokens, 600 positions             0 and 1: [0,256) [256,512) parts
 *     group      0 and 1 share [0, 576)                       2: 64 tokens each, [0,64) ... direct
 *
 * A group's positions are read once where they fill whole spans; what is left of them its members
 * read one by one. */
#ifndef CUDA_ATTENTION_PLAN_H
#define CUDA_ATTENTION_PLAN_H

#include "attn/forward_batch.h"
#include "cuda/kernels/kernel_args.h"

typedef struct cuda_attention_shape { /* of a layer */
    uint32_t heads, kv_heads, head_dim;
    uint32_t window; /* 0: none; else a query at p sees keys in (p - window, p] */
    uint32_t kv;     /* attention_kv */
} cuda_attention_shape;

/* A pool's rad_dtype as an attention_kv; the GPU has no other types. */
static inline uint32_t cuda_attention_kv(uint32_t dtype)
{
    return dtype == RAD_F8_E4M3 ? ATTN_KV_E4M3 : dtype == RAD_F8_E5M2 ? ATTN_KV_E5M2 : ATTN_KV_BF16;
}

/* NULL: there is none for heads of so many numbers. kv: attention_kv. */
const char *cuda_attention_kernel(uint32_t head_dim, uint32_t kv);

/* How attention of this shape runs on a GPU of so many multiprocessors, whose blocks may have
 * shared_bytes of shared memory (CUDA_ATTR_SHARED_PER_BLOCK). */
typedef struct cuda_attention_launch {
    const char
        *kernel; /* NULL: no kernel for this head_dim, or one that needs more than there is */
    uint32_t grid, threads, shared_bytes;
    uint32_t stages;    /* attention_args has it, and says what it holds */
    uint32_t unit_rows; /* query rows of a unit at most: tokens times heads a KV head */
    uint32_t span;      /* ATTN_SPAN; only benchmarks know kernels of others */
} cuda_attention_launch;
cuda_attention_launch cuda_attention_launch_of(const cuda_attention_shape *shape,
                                               uint32_t multiprocessors, uint32_t shared_bytes);

/* attention_merge: a grid of [tokens][heads] blocks of so many threads. */
static inline uint32_t cuda_attention_merge_threads(uint32_t v_head_dim)
{
    return (v_head_dim + 31) / 32 * 32;
}

typedef struct cuda_attention_plan {
    /* the caller's room */
    attention_unit *units; /* [cuda_attention_most_units] */
    uint32_t *unit_tokens; /* [cuda_attention_most_unit_tokens] */
    uint32_t *parts_at;    /* [max_tokens] */
    void *scratch;         /* [cuda_attention_scratch_bytes], aligned to 8 */
    uint32_t max_tokens, max_requests, max_parts;

    /* what came out: the first so many of each are in use */
    uint32_t num_units, num_unit_tokens, num_parts; /* num_parts 0: nothing is to be merged */
} cuda_attention_plan;

uint32_t cuda_attention_most_units(uint32_t max_tokens, uint32_t max_parts);
uint32_t cuda_attention_most_unit_tokens(uint32_t max_tokens);
size_t cuda_attention_scratch_bytes(uint32_t max_tokens, uint32_t max_requests, uint32_t max_parts);

/* Parts with which `requests` that decode at `context` positions need no other way, and the bytes
 * of part_v and part_ms for so many. With fewer parts, down to 0, what finds no room is computed
 * without, which takes longer where requests are few and long. */
uint32_t cuda_attention_parts(uint32_t requests, uint32_t context);
size_t cuda_attention_part_v_bytes(const cuda_attention_shape *shape, uint32_t parts);
size_t cuda_attention_part_ms_bytes(const cuda_attention_shape *shape, uint32_t parts);

/* Fills the plan for a batch within its limits: units.slot_row is the request's number in
 * req_pool_indices, unit.first counts from unit_tokens, tokens are indices of input_ids.
 * O(tokens + units + members of groups). */
void cuda_attention_plan_make(cuda_attention_plan *plan, const forward_batch *batch,
                              const cuda_attention_shape *shape,
                              const cuda_attention_launch *launch);

#endif
