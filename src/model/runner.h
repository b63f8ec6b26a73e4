/* runner.h - what the scheduler knows of a model: a batch goes in, logits come out.
 *
 * model_runner is a GGUF model on this CPU. */
#ifndef MODEL_RUNNER_H
#define MODEL_RUNNER_H

#include "attn/forward_batch.h"

typedef struct runner_info {
    uint32_t vocab_size;
    uint32_t context_length; /* what the model was made for, in tokens */
    uint32_t num_layers;
    uint32_t num_kv_heads;
    uint32_t head_dim;
    uint32_t v_head_dim;
    rad_dtype kv_dtype;      /* store dtype the runner wants */
    uint32_t window_layers;  /* of num_layers: those that see sliding_window tokens and no more */
    uint32_t sliding_window; /* the newest token included; 0 when window_layers is */
    uint32_t reserved;
    char weights[40]; /* what matrices are held as: "bf16", "bf16+q8_0"; "" for none */
    char gemm[16];    /* the instructions of its products: "amx", "avx512bf16"; "" for none */
} runner_info;

typedef struct runner runner;
typedef struct runner_ops {
    /* Computes the batch, writes its K/V into the pool, and returns the logits of
     * batch->logits_indices as [num_logits][vocab_size], in memory of the runner that
     * stays valid until the next call. On an error nothing may be read from the pages
     * of out_cache_loc. */
    rad_status (*forward)(runner *self, const forward_batch *batch, const float **logits,
                          rad_error *err);
    void (*destroy)(runner *self);
} runner_ops;

/* First member of every implementation. */
struct runner {
    const runner_ops *ops;
    runner_info info;
};

/* Params of a KV pool that fits the runner and has all of its layers; whoever makes one only adds
 * to them. */
static inline rad_token_to_kv_pool_params runner_kv_params(const runner_info *info,
                                                           uint32_t num_pages, uint32_t page_size)
{
    return (rad_token_to_kv_pool_params){.struct_size = sizeof(rad_token_to_kv_pool_params),
                                         .num_pages = num_pages,
                                         .page_size = page_size,
                                         .num_layers = info->num_layers,
                                         .num_kv_heads = info->num_kv_heads,
                                         .head_dim = info->head_dim,
                                         .v_head_dim = info->v_head_dim,
                                         .dtype = info->kv_dtype};
}

/* With window memory there are two pools, either of which may have no layer at all: then there is
 * none. */
static inline rad_token_to_kv_pool_params runner_full_params(const runner_info *info,
                                                             uint32_t num_pages, uint32_t page_size)
{
    rad_token_to_kv_pool_params p = runner_kv_params(info, num_pages, page_size);
    p.num_layers -= info->window_layers;
    return p;
}
static inline rad_token_to_kv_pool_params
runner_window_params(const runner_info *info, uint32_t num_pages, uint32_t page_size)
{
    rad_token_to_kv_pool_params p = runner_kv_params(info, num_pages, page_size);
    p.num_layers = info->window_layers;
    return p;
}

static inline rad_status runner_forward(runner *r, const forward_batch *batch, const float **logits,
                                        rad_error *err)
{
    return r->ops->forward(r, batch, logits, err);
}

static inline void runner_destroy(runner *r)
{
    if (r) r->ops->destroy(r);
}

#endif
