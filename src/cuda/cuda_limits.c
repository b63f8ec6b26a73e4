/* cuda_limits.c - what a step on the GPU can have, from a model and from what its caller asks for.
 */
#include "cuda/cuda_layout.h"
#include "cuda/cuda_state.h"

enum { MOST_TOKENS = 2048, MOST_LOGITS = 256, MOST_REQUESTS = 256, MOST_PARTS = 8192 };

static uint32_t context_of(const model_config *c, const cuda_runner_params *p)
{
    const uint32_t wanted = p->model.context_length;
    return wanted ? RAD_MIN(wanted, c->context_length) : c->context_length;
}

/* Layers that see as far have one view. False: there are more kinds than views. */
static bool add_view(const layer_config *l, uint32_t kv, cuda_step_limits *limits)
{
    uint32_t v = 0;
    while (v < limits->num_views && limits->views[v].window != l->window)
        v++;
    if (v == CUDA_VIEWS) return false;
    if (v == limits->num_views) limits->num_views++;
    if (l->window) limits->window = l->window;
    limits->views[v] = (cuda_attention_shape){.heads = l->num_heads,
                                              .kv_heads = l->num_kv_heads,
                                              .head_dim = l->head_dim,
                                              .window = l->window,
                                              .kv = kv};
    return true;
}

rad_status cuda_limits_find(const model_config *c, const cuda_runner_params *p,
                            uint32_t multiprocessors, uint32_t shared_bytes, cuda_step_limits *out,
                            rad_error *err)
{
    cuda_step_limits l = {.tokens = p->model.max_batch_tokens, .logits = p->model.max_batch_logits};
    if (!l.tokens) l.tokens = MOST_TOKENS;
    if (!l.logits) l.logits = MOST_LOGITS;
    l.logits = RAD_MIN(l.logits, l.tokens);
    l.requests = (p->max_requests ? p->max_requests : MOST_REQUESTS) + 1; /* row 0 is a dummy */
    l.context = context_of(c, p);
    l.most_values = l.tokens + 16384;
    l.most_parts =
        RAD_MIN(cuda_attention_parts(CUDA_GRAPH_TOKENS, l.context), (uint32_t)MOST_PARTS);
    for (uint32_t i = 0; i < c->num_layers; i++)
        if (!add_view(&c->layers[i], cuda_attention_kv(cuda_kv_dtype(p)), &l))
            return rad_fail(err, RAD_E_UNSUPPORTED,
                            "cuda: %s has layers that see %u tokens, and others that see others; "
                            "--device cpu runs it",
                            c->arch->name, c->layers[i].window);
    l.attention = cuda_attention_launch_of(&l.views[0], multiprocessors, shared_bytes);
    if (!l.attention.kernel)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "cuda: %s has %u heads of %u numbers for each of K, for which there is no "
                        "kernel of attention; --device cpu runs it",
                        c->arch->name, l.views[0].heads / l.views[0].kv_heads, l.views[0].head_dim);
    l.sample =
        cuda_sample_limits_of(c->vocab_size, cuda_pad(c->vocab_size, 16), l.context, l.logits);
    *out = l;
    return RAD_OK;
}
