/* cuda_kernels.h - our kernels, compiled by the driver, and how they are launched in one stream.
 *
 * A kernel is launched by the function of its name here, which knows its grid. Nothing is
 * launched behind a launch that failed: the words are the first failure's. */
#ifndef CUDA_CUDA_KERNELS_H
#define CUDA_CUDA_KERNELS_H

#include "cuda/attention_plan.h"
#include "cuda/cuda_ptx.h"
#include "cuda/kernels/experts_quant_args.h"
#include "cuda/kernels/kernel_args.h"
#include "device/cuda_driver.h"
#include "model/gemm.h"

enum { CUDA_MOST_KERNELS = 128 };

typedef struct cuda_kernels {
    const cuda_gpu *gpu;
    cuda_module modules[CUDA_NUM_PTX];
    cuda_function functions[CUDA_MOST_KERNELS]; /* as cuda_kernels.c lists them */
    cuda_function attention;
    bool maps; /* this GPU and driver have bulk copies by tensor maps */
} cuda_kernels;

/* Loads all from the PTX that this program carries; of attention, the kernel of that name, and
 * those of quantised weights and of experts where there are such. The context is current; `gpu`
 * outlives it. */
rad_status cuda_kernels_load(const rad_env *env, const cuda_gpu *gpu,
                             const cuda_attention_launch *attention, bool quantised, bool experts,
                             cuda_kernels *out, rad_error *err);
void cuda_kernels_unload(cuda_kernels *k); /* half-loaded is fine */

/* 90 where the second PTX of our kernels is used, else 80: what their arithmetic is. */
uint32_t cuda_kernels_arch(const cuda_gpu *gpu);

/* A row of launches. */
typedef struct cuda_queue {
    const cuda_kernels *kernels;
    cuda_stream stream;
    bool dependent; /* each may begin before the one before it has ended */
    rad_status status;
    rad_error *err;
    uint32_t launched;
} cuda_queue;

void launch_patch_slots(cuda_queue *q, const patch_slots_args *a, uint32_t num_patches);
void launch_embed(cuda_queue *q, gemm_type table, const embed_args *a);
void launch_add_norm(cuda_queue *q, const add_norm_args *a);
void launch_row_scales(cuda_queue *q, const row_scales_args *a);
void launch_qkv(cuda_queue *q, const qkv_args *a);
void launch_cap(cuda_queue *q, const cap_args *a);
void launch_glu(cuda_queue *q, const glu_args *a);
void launch_attention(cuda_queue *q, const attention_args *a, const cuda_attention_launch *how);
void launch_attention_merge(cuda_queue *q, const attention_merge_args *a);

/* The token behind each row; `draws`: not all of them are greedy. */
void launch_sample(cuda_queue *q, const sample_args *a, bool draws);

/* Maps of one buffer of tokens, by the rows of their boxes: 16, 32, 64 and 128. */
enum { CUDA_X_MAPS = 4 };
static inline const tensor_map *cuda_x_map(const tensor_map maps[CUDA_X_MAPS], uint32_t box_rows)
{
    return &maps[box_rows >= 128 ? 3 : box_rows >= 64 ? 2 : box_rows >= 32];
}

/* A product: `args` but for what a plan gives, and the maps of w and x, or NULL. */
typedef struct cuda_product {
    gemm_args args;
    const tensor_map *w_map, *x_maps; /* [CUDA_X_MAPS] */
    uint32_t part_rows; /* [parts][tokens] that `out` has place for; 0: one part is wanted */
} cuda_product;

/* The product with the kernel that is best for so many tokens. Returns how many parts it leaves. */
uint32_t launch_gemm(cuda_queue *q, const cuda_product *p);

/* Rows of x as quantised weights multiply them, and such a product: `args` but for what a plan
 * gives. In one order, whatever the kernel. */
void launch_quantise(cuda_queue *q, const quantise_args *a);
void launch_gemm_quant(cuda_queue *q, gemm_type type, const gemm_quant_args *args);

/* Mixtures of experts; products by tiles, of which there are at most so many. */
void launch_experts_scores(cuda_queue *q, const experts_scores_args *a);
void launch_experts_choose(cuda_queue *q, const experts_choose_args *a);
void launch_experts_order(cuda_queue *q, const experts_order_args *a); /* but for threads */
void launch_experts_sum(cuda_queue *q, const experts_sum_args *a);
void launch_gemm_experts(cuda_queue *q, const gemm_experts_args *args, uint32_t most_tiles);

/* Likewise for quantised experts. */
void launch_quantise_places(cuda_queue *q, const quantise_places_args *a, uint32_t most_tiles);
void launch_gemm_quant_experts(cuda_queue *q, gemm_type type, const gemm_quant_experts_args *args,
                               uint32_t most_tiles);

#endif
