/* config.h - the hyper-parameters of a model, read from GGUF keys and checked.
 *
 * The Llama family is one forward pass with a few differences; they stand in one
 * table here (model_arch), and the rest of the code asks the table. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "gguf/gguf.h"

#include <radish/status.h>
#include <stdbool.h>

typedef enum rope_kind {
    ROPE_INTERLEAVED, /* rotates (2i, 2i+1) */
    ROPE_NEOX         /* rotates (i, i + rope_dim/2) */
} rope_kind;

typedef struct model_arch {
    const char *name; /* general.architecture */
    rope_kind rope;
    bool qk_norm; /* RMS norm of each head of q and k before RoPE */
} model_arch;

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
    float rms_eps;
    bool tied; /* no output.weight: token_embd.weight serves */
} model_config;

/* RAD_E_UNSUPPORTED names an architecture, RoPE scaling or other feature that we do not
 * have; RAD_E_FORMAT a key that is missing, zero, absurd, or contradicts another. */
rad_status model_config_read(const gguf_file *file, model_config *out, rad_error *err);

/* Widths in elements, for matrices and buffers. No overflow: config_read limits them. */
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
