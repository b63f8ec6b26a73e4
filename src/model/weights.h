/* weights.h - the tensors of a GGUF file, checked, converted and packed.
 *
 * Matrices become gemm_weights; those that read the same row are stacked into one (q, k, v;
 * gate, up). Vectors stay f32. Nothing points into the file afterwards.
 *
 * What a matrix is held as is the policy's choice. The tensors of a stack may differ in type
 * (files mix Q4_K and Q6_K). Where one is not quantised, all of its stack is converted to the
 * runner's dtype and takes 2 or 4 bytes a value.
 *
 * The embedding table: a model without output.weight uses one packed matrix for both
 * ends and reads rows back from it; otherwise the table is kept unpacked: as the file has
 * it when the policy keeps quantised types, else in the runner's dtype. */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include "base/base.h"
#include "base/compute_pool.h"
#include "model/config.h"
#include "model/gemm.h"
#include "model/weights_policy.h"

#include <radish/token_to_kv_pool.h>

/* Which tensors go into which field is said in tensors.c; a field that a layer has none for is
 * NULL. */
typedef struct layer_weights {
    float *attn_norm; /* [dim] */
    float *ffn_norm;  /* [dim] */
    float *q_norm;    /* [head_dim], or of all heads */
    float *k_norm;
    float *qkv_bias;       /* [q_dim + k_dim + v_dim] */
    float *sinks;          /* [num_heads] */
    float *output_bias;    /* [dim] of attention */
    float *post_attn_norm; /* [dim] */
    float *post_ffn_norm;
    gemm_weight *qkv;         /* [q_dim + k_dim + v_dim][dim] */
    gemm_weight *attn_output; /* [dim][attn_dim] */
    gemm_weight *latent_q;    /* MIXER_LATENT: [heads' q][latent.q_rank], */
    gemm_weight **latent_k;   /* of each head [latent.kv_rank][latent.plain], */
    gemm_weight **latent_v;   /* of each head [latent.value][latent.kv_rank]; qkv is q's numbers (or
                               * heads), then K's row; q_norm and k_norm are of these */
    gemm_weight *ssm_gates; /* MIXER_DELTA: [2 heads][dim], decays and weights; qkv is q, k, v and z
                             * there, all of MIXER_MAMBA's or MIXER_CONV's input, and attn_output
                             * what takes their values back to [dim] */
    float *conv;            /* [taps][conv_dim] of recurrent layers */
    float *conv_bias;       /* [conv_dim] */
    float *ssm_a, *ssm_dt;  /* [heads] */
    float *ssm_d;
    float *ssm_norm;       /* [value], or of all groups */
    gemm_weight *gate_up;  /* [2 * ffn_dim][dim]; without gates [ffn_dim][dim], and likewise */
    gemm_weight *ffn_down; /* [dim][ffn_dim] */

    gemm_weight *router;          /* [experts.count][dim] of f32 */
    float *router_bias;           /* [experts.count] */
    float *select_bias;           /* [experts.count], counts in the choice only */
    gemm_weight **expert_gate_up; /* [experts.count], each [2 * experts.dim][dim] */
    gemm_weight **expert_down;    /* [experts.count], each [dim][experts.dim] */
    float *expert_gate_up_bias;   /* [experts.count][2 * experts.dim] */
    float *expert_down_bias;      /* [experts.count][dim] */
    float *shared_gate;           /* [dim] */
    gemm_weight *shared_gate_up;  /* [2 * experts.shared_dim][dim] */
    gemm_weight *shared_down;     /* [dim][experts.shared_dim] */

    float *dense_norm;        /* [dim] of a mixture beside a dense block: behind that, */
    float *router_norm;       /* before the router, by sqrt(dim) smaller than in the file, */
    float *experts_norm;      /* before the experts */
    float *post_experts_norm; /* and behind them */
    float *expert_scales;     /* [experts.count] */

    gemm_weight *embd_gate; /* [layer_embd][dim] */
    gemm_weight *embd_proj; /* [dim][layer_embd] */
    float *embd_norm;       /* [dim] */
    float *output_scale;    /* [1] */

    float *nextn_token_norm;  /* [dim] of a head that guesses, see nextn.h, */
    float *nextn_hidden_norm; /* [dim] */
    gemm_weight *nextn_proj;  /* [dim][2 * dim] of the token's part, then the hidden state's */
    float *nextn_last_norm;   /* [dim] NULL: the model's */
} layer_weights;

/* Rows of numbers that stay as the file has them, or become the runner's dtype. */
typedef struct weights_table {
    void *data; /* NULL: there is none */
    size_t bytes;
    size_t row;    /* bytes of one */
    uint32_t type; /* ggml_type */
} weights_table;

typedef struct model_weights {
    model_config config;
    rad_dtype dtype;
    layer_weights *layers; /* [config_all_layers] */
    float *output_norm;    /* [dim] */
    float *rope_divisors;  /* [rope_dim / 2], NULL unless ropes[0].scaling.divisors */
    gemm_weight *output;   /* [vocab_size][dim] */
    void *matrices;        /* where all packed ones lie, see weights.c */
    size_t matrices_bytes;
    weights_table token_embd;              /* [vocab_size][dim]; none when config.tied */
    weights_table layer_embd;              /* [vocab_size][num_layers * layer_embd] */
    gemm_weight *layer_embd_proj;          /* [num_layers * layer_embd][dim] */
    float *layer_embd_norm;                /* [layer_embd] */
    uint64_t bytes;                        /* of all of it, for people who plan memory */
    uint64_t matrix_bytes[GEMM_NUM_TYPES]; /* of packed matrices, by type */
} model_weights;

typedef struct weights_loader {
    compute_pool *pool; /* converts and packs; may be NULL */
    void (*progress)(void *user, uint64_t done, uint64_t total); /* of tensor bytes; may be NULL */
    void *progress_user;
    weights_policy policy;
    const gemm_isa *gemm; /* what products run on; NULL: the best that this CPU has */
    bool sizes_only;      /* nothing is read: `out` has sizes, and weights that are shapes */
} weights_loader;

/* RAD_E_UNSUPPORTED names a tensor that this architecture does not have (a bias,
 * experts): it would change the numbers, so such a model is refused instead of
 * being run wrongly. */
rad_status model_tensors_check(const gguf_file *file, const model_config *config, rad_error *err);

/* RAD_E_FORMAT: a tensor is missing or misshapen. RAD_E_UNSUPPORTED: as above, or a tensor
 * of a type that we do not have. RAD_E_NOMEM. On an error `out` is empty again. */
rad_status model_weights_load(const rad_env *env, const gguf_file *file, const model_config *config,
                              rad_dtype dtype, const weights_loader *loader, model_weights *out,
                              rad_error *err);
void model_weights_fini(const rad_env *env, model_weights *weights); /* half-loaded is fine */

/* The embedding of token `id` as dim floats; and what layers add of it, num_layers * layer_embd. */
void model_weights_embed(const model_weights *weights, rad_token id, float *out);
void model_weights_embed_layers(const model_weights *weights, rad_token id, float *out);

#endif
