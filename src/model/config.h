/* config.h - the hyper-parameters of a model, read from GGUF keys and checked.
 *
 * All architectures are one forward pass with a few differences; those stand in one table
 * here (model_arch), and the rest of the code asks the table. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "gguf/gguf.h"

#include <radish/status.h>
#include <stdbool.h>

typedef enum rope_kind {
    ROPE_INTERLEAVED, /* rotates (2i, 2i+1) */
    ROPE_NEOX         /* rotates (i, i + rope_dim/2) */
} rope_kind;

typedef enum ffn_kind {
    FFN_SWIGLU, /* silu(gate) * up */
    FFN_GEGLU   /* gelu(gate) * up, the form with tanh */
} ffn_kind;

/* Which layers look no further back than the sliding window, if the file sets one. */
typedef enum window_layers {
    WINDOW_NONE, /* none may: such a file is refused */
    WINDOW_ALL,
    WINDOW_EVEN /* 0, 2, 4, ... */
} window_layers;

/* What one family does unlike the first: RMS norms before attention and feed-forward,
 * which are added to the residual stream. */
typedef struct model_arch {
    const char *name; /* general.architecture */
    rope_kind rope;
    ffn_kind ffn;
    window_layers window;
    uint32_t window_absent; /* the window of files that do not name one; 0 = none */
    bool qk_norm;           /* RMS norm of each head of q and k before RoPE */
    bool qkv_bias;          /* added to q, k and v */
    bool fused;             /* q, k, v are one tensor (attn_qkv); gate and up too (ffn_up) */
    bool post_norms;        /* RMS norm of what attention and feed-forward add */
    bool scale_embedding;   /* by sqrt(dim) */
    bool logit_caps;        /* cap * tanh(x / cap), of attention's scores and of the logits */
} model_arch;

/* How RoPE was stretched past the context it was trained on. Rotation i of a head turns by
 *
 *     angle = position * base^(-2i / rope_dim) / divisor[i] * (1 or 1/factor, see rope.c)
 *
 * and what is rotated is multiplied by `magnitude`. */
typedef struct rope_scaling {
    float factor; /* 1 = not stretched */
    bool yarn;    /* only the slow rotations are; else all alike */
    float ext_factor, beta_fast, beta_slow;
    uint32_t original_context;
    float magnitude;
    const char *divisors; /* tensor [rope_dim / 2], or NULL: all 1 */
} rope_scaling;

typedef struct model_config {
    const model_arch *arch;
    uint32_t vocab_size; /* rows of token_embd.weight */
    uint32_t context_length;
    uint32_t num_layers;
    uint32_t dim; /* embedding_length */
    uint32_t ffn_dim;
    uint32_t num_heads;
    uint32_t num_kv_heads; /* divides num_heads */
    uint32_t head_dim;
    uint32_t v_head_dim;
    uint32_t rope_dim; /* even, <= head_dim; what lies behind is not rotated */
    float rope_base;
    rope_scaling scaling;
    float rms_eps;
    float attn_scale;        /* q . k times this */
    float attn_logit_cap;    /* 0 = none */
    float final_logit_cap;   /* 0 = none */
    uint32_t sliding_window; /* tokens, the newest included; 0 = none, or past the context */
    bool tied;               /* no output.weight: token_embd.weight serves */
} model_config;

/* `context` is the context that will be in force (0: the model's): some models have other
 * RoPE divisors for contexts past the one they were trained on. RAD_E_UNSUPPORTED names an
 * architecture, RoPE scaling or other feature that we do not have; RAD_E_FORMAT a key
 * that is missing, zero, absurd, or contradicts another. */
rad_status model_config_read(const gguf_file *file, uint32_t context, model_config *out,
                             rad_error *err);

/* What sets this model apart, in words for a person: "NEOX RoPE over 64 of 64, ...". Cut
 * where the room ends. */
void model_config_describe(const model_config *config, char *text, size_t room);

/* Whether a layer looks no further back than the window. */
static inline bool config_slides(const model_config *c, uint32_t layer)
{
    return c->sliding_window && (c->arch->window == WINDOW_ALL || layer % 2 == 0);
}

/* Of one layer, as radix_attention wants it: -1 = none. */
static inline int32_t config_window(const model_config *c, uint32_t layer)
{
    return config_slides(c, layer) ? (int32_t)c->sliding_window : -1;
}

/* How many layers slide. */
static inline uint32_t config_window_layers(const model_config *c)
{
    if (!c->sliding_window) return 0;
    return c->arch->window == WINDOW_ALL ? c->num_layers : (c->num_layers + 1) / 2;
}

/* A layer's number among those of its kind (all that slide, or all that do not): which layer of
 * that kind's KV pool it is. */
static inline uint32_t config_kv_layer(const model_config *c, uint32_t layer)
{
    return c->sliding_window && c->arch->window == WINDOW_EVEN ? layer / 2 : layer;
}

/* Widths in elements, for matrices and buffers. No overflow: model_config_read limits them. */
static inline uint32_t config_q_dim(const model_config *c)
{
    return c->num_heads * c->head_dim;
}
static inline uint32_t config_k_dim(const model_config *c)
{
    return c->num_kv_heads * c->head_dim;
}
static inline uint32_t config_v_dim(const model_config *c)
{
    return c->num_kv_heads * c->v_head_dim;
}
static inline uint32_t config_attn_dim(const model_config *c)
{
    return c->num_heads * c->v_head_dim;
}
static inline uint32_t config_qkv_dim(const model_config *c)
{
    return config_q_dim(c) + config_k_dim(c) + config_v_dim(c);
}

#endif
