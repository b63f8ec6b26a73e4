/* cuda_kernels.c - see cuda_kernels.h. */
#include "cuda/cuda_kernels.h"

#include "cuda/gemm_many_plan.h"
#include "cuda/gemm_plan.h"
#include "cuda/quant_many_plan.h"

#include <assert.h>

/* By kernel: its name, the file that has it, its arguments, and whether it wants as much dynamic
 * shared memory as the GPU has. Those of one X go by their numbers, the products by their names. */
#define KERNELS(X)                                                                                 \
    X(patch_slots, slots, patch_slots_args, false)                                                 \
    X(embed, embed, embed_args, false)                                                             \
    X(embed_q8_0, embed_quant, embed_args, false)                                                  \
    X(embed_mxfp4, embed_quant, embed_args, false)                                                 \
    X(embed_q4_k, embed_quant, embed_args, false)                                                  \
    X(embed_q6_k, embed_quant, embed_args, false)                                                  \
    X(quantise_rows, quantise_rows, quantise_args, false)                                          \
    X(quantise_places, quantise_rows, quantise_places_args, false)                                 \
    X(add_norm, norm, add_norm_args, false)                                                        \
    X(add_norm_many, norm, add_norm_args, false)                                                   \
    X(add_norm_wide, norm, add_norm_args, false)                                                   \
    X(add_norm_post, norm, add_norm_args, false)                                                   \
    X(add_norm_post_many, norm, add_norm_args, false)                                              \
    X(add_norm_post_wide, norm, add_norm_args, false)                                              \
    X(row_scales, norm, row_scales_args, false)                                                    \
    X(cap_rows, cap, cap_args, false)                                                              \
    X(qkv, qkv, qkv_args, false)                                                                   \
    X(qkv_wide, qkv, qkv_args, false)                                                              \
    X(glu, glu, glu_args, false)                                                                   \
    X(attention_merge, attention_merge, attention_merge_args, false)                               \
    X(sample_adjust, sample, sample_args, false)                                                   \
    X(sample_count, sample, sample_args, false)                                                    \
    X(sample_choose, sample, sample_args, false)                                                   \
    X(gemm_few_8, gemm_few, gemm_args, true)                                                       \
    X(gemm_few_8_kept, gemm_few, gemm_args, true)                                                  \
    X(gemm_few_16, gemm_few, gemm_args, true)                                                      \
    X(gemm_few_16_kept, gemm_few, gemm_args, true)                                                 \
    X(gemm_few_32, gemm_few, gemm_args, true)                                                      \
    X(gemm_few_32_kept, gemm_few, gemm_args, true)                                                 \
    X(gemm_few_64, gemm_few, gemm_args, true)                                                      \
    X(gemm_few_64_kept, gemm_few, gemm_args, true)                                                 \
    X(gemm_q8_0_8, gemm_quant, gemm_quant_args, true)                                              \
    X(gemm_q8_0_16, gemm_quant, gemm_quant_args, true)                                             \
    X(gemm_q8_0_32, gemm_quant, gemm_quant_args, true)                                             \
    X(gemm_q8_0_64, gemm_quant, gemm_quant_args, true)                                             \
    X(gemm_mxfp4_8, gemm_quant, gemm_quant_args, true)                                             \
    X(gemm_mxfp4_16, gemm_quant, gemm_quant_args, true)                                            \
    X(gemm_mxfp4_32, gemm_quant, gemm_quant_args, true)                                            \
    X(gemm_mxfp4_64, gemm_quant, gemm_quant_args, true)                                            \
    X(gemm_q4_k_8, gemm_quant, gemm_quant_args, true)                                              \
    X(gemm_q4_k_16, gemm_quant, gemm_quant_args, true)                                             \
    X(gemm_q4_k_32, gemm_quant, gemm_quant_args, true)                                             \
    X(gemm_q4_k_64, gemm_quant, gemm_quant_args, true)                                             \
    X(gemm_q6_k_8, gemm_quant, gemm_quant_args, true)                                              \
    X(gemm_q6_k_16, gemm_quant, gemm_quant_args, true)                                             \
    X(gemm_q6_k_32, gemm_quant, gemm_quant_args, true)                                             \
    X(gemm_q6_k_64, gemm_quant, gemm_quant_args, true)                                             \
    X(gemm_q8_0_many_64, gemm_quant_many, gemm_quant_args, true)                                   \
    X(gemm_q8_0_many_128, gemm_quant_many, gemm_quant_args, true)                                  \
    X(gemm_mxfp4_many_64, gemm_quant_many, gemm_quant_args, true)                                  \
    X(gemm_mxfp4_many_128, gemm_quant_many, gemm_quant_args, true)                                 \
    X(gemm_q4_k_many_64, gemm_quant_many, gemm_quant_args, true)                                   \
    X(gemm_q4_k_many_128, gemm_quant_many, gemm_quant_args, true)                                  \
    X(gemm_q6_k_many_64, gemm_quant_many, gemm_quant_args, true)                                   \
    X(gemm_q6_k_many_128, gemm_quant_many, gemm_quant_args, true)                                  \
    X(experts_scores, experts, experts_scores_args, false)                                         \
    X(experts_scores_many, experts, experts_scores_args, false)                                    \
    X(experts_choose, experts, experts_choose_args, false)                                         \
    X(experts_order, experts, experts_order_args, false)                                           \
    X(experts_sum, experts, experts_sum_args, false)                                               \
    X(gemm_experts_8, gemm_experts, gemm_experts_args, true)                                       \
    X(gemm_experts_16, gemm_experts, gemm_experts_args, true)                                      \
    X(gemm_experts_32, gemm_experts, gemm_experts_args, true)                                      \
    X(gemm_experts_64, gemm_experts, gemm_experts_args, true)                                      \
    X(gemm_experts_q8_0_8, gemm_quant_experts, gemm_quant_experts_args, true)                      \
    X(gemm_experts_q8_0_16, gemm_quant_experts, gemm_quant_experts_args, true)                     \
    X(gemm_experts_q8_0_32, gemm_quant_experts, gemm_quant_experts_args, true)                     \
    X(gemm_experts_q8_0_64, gemm_quant_experts, gemm_quant_experts_args, true)                     \
    X(gemm_experts_mxfp4_8, gemm_quant_experts, gemm_quant_experts_args, true)                     \
    X(gemm_experts_mxfp4_16, gemm_quant_experts, gemm_quant_experts_args, true)                    \
    X(gemm_experts_mxfp4_32, gemm_quant_experts, gemm_quant_experts_args, true)                    \
    X(gemm_experts_mxfp4_64, gemm_quant_experts, gemm_quant_experts_args, true)                    \
    X(gemm_experts_q4_k_8, gemm_quant_experts, gemm_quant_experts_args, true)                      \
    X(gemm_experts_q4_k_16, gemm_quant_experts, gemm_quant_experts_args, true)                     \
    X(gemm_experts_q4_k_32, gemm_quant_experts, gemm_quant_experts_args, true)                     \
    X(gemm_experts_q4_k_64, gemm_quant_experts, gemm_quant_experts_args, true)                     \
    X(gemm_experts_q6_k_8, gemm_quant_experts, gemm_quant_experts_args, true)                      \
    X(gemm_experts_q6_k_16, gemm_quant_experts, gemm_quant_experts_args, true)                     \
    X(gemm_experts_q6_k_32, gemm_quant_experts, gemm_quant_experts_args, true)                     \
    X(gemm_experts_q6_k_64, gemm_quant_experts, gemm_quant_experts_args, true)                     \
    X(gemm_many_256, gemm_many, gemm_args, true)                                                   \
    X(gemm_many_128, gemm_many, gemm_args, true)                                                   \
    X(gemm_many_64, gemm_many, gemm_args, true)                                                    \
    X(gemm_many_128_sum, gemm_many, gemm_args, true)                                               \
    X(gemm_many_64_sum, gemm_many, gemm_args, true)                                                \
    X(gemm_wgmma_256, gemm_wgmma, gemm_wgmma_args, true)                                           \
    X(gemm_wgmma_128, gemm_wgmma, gemm_wgmma_args, true)                                           \
    X(gemm_wgmma_64, gemm_wgmma, gemm_wgmma_args, true)                                            \
    X(gemm_wgmma_192_sum, gemm_wgmma, gemm_wgmma_args, true)                                       \
    X(gemm_wgmma_128_sum, gemm_wgmma, gemm_wgmma_args, true)                                       \
    X(gemm_wgmma_few_16, gemm_wgmma, gemm_wgmma_args, true)                                        \
    X(gemm_wgmma_few_32, gemm_wgmma, gemm_wgmma_args, true)                                        \
    X(gemm_wgmma_few_64, gemm_wgmma, gemm_wgmma_args, true)                                        \
    X(gemm_wgmma_few_128, gemm_wgmma, gemm_wgmma_args, true)

typedef enum cuda_kernel {
#define NUMBER(name, file, args, shared) KERNEL_##name,
    KERNELS(NUMBER)
#undef NUMBER
        NUM_KERNELS
} cuda_kernel;

/* What a kernel's own shared memory may take of that. */
enum { STATIC_SHARED = 1024 };

static const struct {
    const char *name;
    uint32_t file; /* of cuda_ptx_files */
    uint32_t args_bytes;
    bool much_shared;
} kernels[NUM_KERNELS] = {
#define ENTRY(name, file, args, shared) {#name, CUDA_PTX_OF_##file, sizeof(args), shared},
    KERNELS(ENTRY)
#undef ENTRY
};
static_assert((int)NUM_KERNELS <= (int)CUDA_MOST_KERNELS, "");

uint32_t cuda_kernels_arch(const cuda_gpu *gpu)
{
    /* PTX for sm_90a is for no other GPU, and drivers of CUDA 11 do not know it. */
    return gpu->capability == 90 && gpu->cu->version >= 12000 ? 90 : 80;
}

/* Text of one form, made the form for sm_90. */
static rad_status load_one_form(const rad_env *env, cuda_kernels *k, uint32_t file, rad_error *err)
{
    const cuda_ptx *p = &cuda_ptx_files[file];
    const size_t bytes = strlen(p->sm80) + 1;
    char *text = rad_alloc(env, bytes);
    if (!text) return rad_fail(err, RAD_E_NOMEM, "cuda: no memory for the text of %s", p->name);
    memcpy(text, p->sm80, bytes);
    cuda_ptx_for_sm90(text);
    rad_status status = cuda_module_load(k->gpu->cu, p->name, text, &k->modules[file], err);
    rad_free(env, text, bytes);
    return status;
}

/* Of attention, that of the model's heads and K and V alone: `attention`. */
static bool is_wanted(uint32_t file, const char *attention, bool quantised, bool experts)
{
    if (file >= CUDA_PTX_OF_attention_d16 && file <= CUDA_PTX_OF_attention_d256_f8)
        return !strcmp(cuda_ptx_files[file].name, attention);
    switch (file) {
    case CUDA_PTX_OF_embed_quant:
    case CUDA_PTX_OF_gemm_quant:
    case CUDA_PTX_OF_gemm_quant_many:
    case CUDA_PTX_OF_quantise_rows: return quantised;
    case CUDA_PTX_OF_experts:
    case CUDA_PTX_OF_gemm_experts: return experts;
    case CUDA_PTX_OF_gemm_quant_experts: return quantised && experts;
    default: return true;
    }
}

static rad_status load_module(const rad_env *env, cuda_kernels *k, uint32_t file, rad_error *err)
{
    const cuda_ptx *p = &cuda_ptx_files[file];
    const bool sm90 = cuda_kernels_arch(k->gpu) == 90;
    if (sm90 && !p->sm90) return load_one_form(env, k, file, err);
    const char *text = sm90 ? p->sm90 : p->sm80;
    return text ? cuda_module_load(k->gpu->cu, p->name, text, &k->modules[file], err) : RAD_OK;
}

static rad_status find_attention(cuda_kernels *k, const cuda_attention_launch *launch,
                                 rad_error *err)
{
    uint32_t file = 0;
    while (file < CUDA_NUM_PTX && strcmp(cuda_ptx_files[file].name, launch->kernel) != 0)
        file++;
    if (file == CUDA_NUM_PTX)
        return rad_fail(err, RAD_E_UNSUPPORTED, "cuda: this program has no %s", launch->kernel);
    return cuda_function_get(k->gpu->cu, k->modules[file], launch->kernel, sizeof(attention_args),
                             launch->shared_bytes, &k->attention, err);
}

rad_status cuda_kernels_load(const rad_env *env, const cuda_gpu *gpu,
                             const cuda_attention_launch *attention, bool quantised, bool experts,
                             cuda_kernels *out, rad_error *err)
{
    rad_status status = RAD_OK;
    *out = (cuda_kernels){.gpu = gpu};
    for (uint32_t i = 0; i < CUDA_NUM_PTX && status == RAD_OK; i++)
        if (is_wanted(i, attention->kernel, quantised, experts))
            status = load_module(env, out, i, err);
    for (uint32_t i = 0; i < NUM_KERNELS && status == RAD_OK; i++)
        if (out->modules[kernels[i].file])
            status = cuda_function_get(
                gpu->cu, out->modules[kernels[i].file], kernels[i].name, kernels[i].args_bytes,
                kernels[i].much_shared ? (uint32_t)gpu->shared_bytes - STATIC_SHARED : 0,
                &out->functions[i], err);
    if (status == RAD_OK) status = find_attention(out, attention, err);
    out->maps = out->functions[KERNEL_gemm_wgmma_128] && gpu->cu->tensor_map_tiled;
    if (status != RAD_OK) cuda_kernels_unload(out);
    return status;
}

void cuda_kernels_unload(cuda_kernels *k)
{
    for (uint32_t i = 0; i < CUDA_NUM_PTX; i++)
        if (k->modules[i]) k->gpu->cu->module_unload(k->modules[i]);
    *k = (cuda_kernels){0};
}

/* ---- launches ---- */

static void launch_function(cuda_queue *q, cuda_function function, uint32_t x, uint32_t y,
                            uint32_t threads, uint32_t shared_bytes, const void *args,
                            size_t args_bytes)
{
    if (q->status != RAD_OK || !x || !y) return;
    q->status = cuda_launch(q->kernels->gpu->cu, function, (const uint32_t[]){x, y, 1}, threads,
                            shared_bytes, q->stream, q->dependent && q->launched, args, args_bytes,
                            q->err);
    q->launched++;
}

static void launch(cuda_queue *q, cuda_kernel kernel, uint32_t x, uint32_t y, uint32_t threads,
                   const void *args)
{
    launch_function(q, q->kernels->functions[kernel], x, y, threads, 0, args,
                    kernels[kernel].args_bytes);
}

void launch_patch_slots(cuda_queue *q, const patch_slots_args *a, uint32_t num_patches)
{
    launch(q, KERNEL_patch_slots, num_patches, 1, PATCH_SLOTS_THREADS, a);
}

void launch_embed(cuda_queue *q, gemm_type table, const embed_args *a)
{
    const cuda_kernel kernel = table == GEMM_Q8_0    ? KERNEL_embed_q8_0
                               : table == GEMM_MXFP4 ? KERNEL_embed_mxfp4
                               : table == GEMM_Q4_K  ? KERNEL_embed_q4_k
                               : table == GEMM_Q6_K  ? KERNEL_embed_q6_k
                                                     : KERNEL_embed;
    launch(q, kernel, a->tokens, 1, EMBED_THREADS, a);
}

void launch_add_norm(cuda_queue *q, const add_norm_args *a)
{
    static const cuda_kernel kernels_of[2][3] = {
        {KERNEL_add_norm, KERNEL_add_norm_many, KERNEL_add_norm_wide},
        {KERNEL_add_norm_post, KERNEL_add_norm_post_many, KERNEL_add_norm_post_wide}};
    const bool many = a->count > GEMM_FEW_TOKENS && a->parts <= 1 &&
                      add_norm_whole(a->dim, a->ldy, a->ld);
    const uint32_t form = a->dim > ADD_NORM_DIM ? 2 : many;
    launch(q, kernels_of[a->post || !a->weight][form], a->count, 1, add_norm_threads(a->dim), a);
}

void launch_row_scales(cuda_queue *q, const row_scales_args *a)
{
    launch(q, KERNEL_row_scales, a->tokens, 2, ROW_SCALES_THREADS, a);
}

void launch_cap(cuda_queue *q, const cap_args *a)
{
    launch(q, KERNEL_cap_rows, a->rows, cap_blocks(a->n), CAP_THREADS, a);
}

void launch_qkv(cuda_queue *q, const qkv_args *a)
{
    const bool wide = RAD_MAX(a->head_dim, a->v_head_dim) > QKV_HEAD_DIM;
    launch(q, wide ? KERNEL_qkv_wide : KERNEL_qkv, a->tokens,
           qkv_blocks(a->heads + 2 * a->kv_heads), QKV_THREADS, a);
}

void launch_glu(cuda_queue *q, const glu_args *a)
{
    launch(q, KERNEL_glu, a->tokens, glu_blocks(a->ld), GLU_THREADS, a);
}

void launch_attention(cuda_queue *q, const attention_args *a, const cuda_attention_launch *how)
{
    launch_function(q, q->kernels->attention, how->grid, 1, how->threads, how->shared_bytes, a,
                    sizeof *a);
}

void launch_attention_merge(cuda_queue *q, const attention_merge_args *a)
{
    launch(q, KERNEL_attention_merge, a->tokens, a->heads,
           cuda_attention_merge_threads(a->v_head_dim), a);
}

void launch_sample(cuda_queue *q, const sample_args *a, bool draws)
{
    const uint32_t chunks = sample_chunks(a->vocab);
    launch(q, KERNEL_sample_adjust, chunks, a->num_rows, SAMPLE_THREADS, a);
    if (!draws) return;
    launch(q, KERNEL_sample_count, chunks, a->num_rows, SAMPLE_THREADS, a);
    launch(q, KERNEL_sample_choose, chunks, a->num_rows, SAMPLE_THREADS, a);
}

/* ---- products ---- */

static cuda_function function_named(const cuda_queue *q, const char *name)
{
    for (uint32_t i = 0; i < NUM_KERNELS; i++)
        if (!strcmp(kernels[i].name, name)) return q->kernels->functions[i];
    return NULL; /* which the driver refuses to launch */
}

/* What a block may ask for: cuda_kernels_load has said so of the functions. */
static cuda_gemm_room room_of(const cuda_queue *q)
{
    const cuda_gpu *gpu = q->kernels->gpu;
    return (cuda_gemm_room){(uint32_t)gpu->multiprocessors,
                            (uint32_t)gpu->shared_bytes - STATIC_SHARED};
}

static void launch_plan(cuda_queue *q, const cuda_gemm_plan *p, const void *args, size_t args_bytes)
{
    launch_function(q, function_named(q, p->kernel), p->grid, 1, p->threads, p->shared_bytes, args,
                    args_bytes);
}

static uint32_t launch_few(cuda_queue *q, gemm_args a)
{
    const cuda_gemm_plan plan =
        cuda_gemm_few_plan(CUDA_GEMM_BF16, a.n, a.k, a.tokens, a.splits, room_of(q));
    a.warps = plan.warps;
    a.stages = plan.stages;
    launch_plan(q, &plan, &a, sizeof a);
    return a.splits;
}

static uint32_t launch_many(cuda_queue *q, const cuda_product *p)
{
    const cuda_gpu *gpu = q->kernels->gpu;
    const gemm_args *a = &p->args;
    const cuda_gemm_many_room room = {.multiprocessors = (uint32_t)gpu->multiprocessors,
                                      .shared_bytes = (uint32_t)gpu->shared_bytes,
                                      .wgmma = q->kernels->maps && p->w_map && p->x_maps,
                                      .part_rows = p->part_rows};
    const cuda_gemm_many_plan plan =
        cuda_gemm_many_plan_make(a->n, a->k, a->tokens, a->splits, room);
    const cuda_function function = function_named(q, plan.kernel);
    if (!plan.wgmma) {
        launch_function(q, function, plan.grid, 1, plan.threads, plan.shared_bytes, a, sizeof *a);
        return plan.parts;
    }
    const gemm_wgmma_args with_maps = {.w = *p->w_map,
                                       .x = *cuda_x_map(p->x_maps, plan.x_box),
                                       .out = a->out,
                                       .n = a->n,
                                       .n_out = a->n_out,
                                       .k = a->k,
                                       .tokens = a->tokens,
                                       .splits = a->splits,
                                       .ld_out = a->ld_out,
                                       .epilogue = a->epilogue};
    launch_function(q, function, plan.grid, 1, plan.threads, plan.shared_bytes, &with_maps,
                    sizeof with_maps);
    return plan.parts;
}

uint32_t launch_gemm(cuda_queue *q, const cuda_product *p)
{
    const bool whole = !p->part_rows && p->args.splits > 1;
    if (p->args.tokens <= GEMM_FEW_TOKENS && !whole) return launch_few(q, p->args);
    return launch_many(q, p);
}

void launch_quantise(cuda_queue *q, const quantise_args *a)
{
    launch(q, KERNEL_quantise_rows, a->rows, quantise_blocks(a->padded_k), QUANTISE_THREADS, a);
}

void launch_gemm_quant(cuda_queue *q, gemm_type type, const gemm_quant_args *args)
{
    const cuda_gemm_kind kind = cuda_gemm_kind_of(type);
    if (!args->tokens) return;
    cuda_gemm_plan plan = cuda_quant_many_plan(kind, args->n, args->k, args->tokens, room_of(q));
    if (!plan.kernel)
        plan = cuda_gemm_few_plan(kind, args->n, args->k, args->tokens, 1, room_of(q));
    gemm_quant_args a = *args;
    a.warps = plan.warps;
    a.stages = plan.stages;
    launch_plan(q, &plan, &a, sizeof a);
}

void launch_experts_scores(cuda_queue *q, const experts_scores_args *a)
{
    const uint32_t rows = a->count + (a->shared_gate ? 1 : 0);
    if (a->tokens > GEMM_FEW_TOKENS)
        launch(q, KERNEL_experts_scores_many, cuda_div_up(rows, EXPERTS_SCORES_MANY_ROWS),
               cuda_div_up(a->tokens, EXPERTS_SCORES_MANY_TOKENS), EXPERTS_SCORES_MANY_THREADS, a);
    else
        launch(q, KERNEL_experts_scores, cuda_div_up(rows, EXPERTS_SCORES_ROWS),
               cuda_div_up(a->tokens, EXPERTS_SCORES_TOKENS), EXPERTS_SCORES_THREADS, a);
}

void launch_experts_choose(cuda_queue *q, const experts_choose_args *a)
{
    launch(q, KERNEL_experts_choose, cuda_div_up(a->tokens, EXPERTS_CHOOSE_TOKENS), 1,
           EXPERTS_CHOOSE_THREADS, a);
}

void launch_experts_order(cuda_queue *q, const experts_order_args *args)
{
    experts_order_args a = *args;
    a.threads = a.tokens > GEMM_FEW_TOKENS ? EXPERTS_ORDER_THREADS : 128;
    launch(q, KERNEL_experts_order, 1, 1, a.threads, &a);
}

void launch_experts_sum(cuda_queue *q, const experts_sum_args *a)
{
    launch(q, KERNEL_experts_sum, a->tokens, experts_sum_blocks(a->dim), EXPERTS_SUM_THREADS, a);
}

void launch_gemm_experts(cuda_queue *q, const gemm_experts_args *args, uint32_t most_tiles)
{
    const cuda_gemm_plan plan = cuda_gemm_tiles_plan(CUDA_GEMM_BF16, args->n, args->k,
                                                     args->by.width, most_tiles, room_of(q));
    gemm_experts_args a = *args;
    a.warps = plan.warps;
    a.stages = plan.stages;
    launch_plan(q, &plan, &a, sizeof a);
}

void launch_quantise_places(cuda_queue *q, const quantise_places_args *a, uint32_t most_tiles)
{
    launch(q, KERNEL_quantise_places, most_tiles * a->by.width, quantise_blocks(a->padded_k),
           QUANTISE_THREADS, a);
}

void launch_gemm_quant_experts(cuda_queue *q, gemm_type type, const gemm_quant_experts_args *args,
                               uint32_t most_tiles)
{
    const cuda_gemm_plan plan = cuda_gemm_tiles_plan(cuda_gemm_kind_of(type), args->n, args->k,
                                                     args->by.width, most_tiles, room_of(q));
    gemm_quant_experts_args a = *args;
    a.warps = plan.warps;
    a.stages = plan.stages;
    launch_plan(q, &plan, &a, sizeof a);
}
