/* forward.h - one forward pass for all architectures: the embedding, layers of two blocks each,
 * the logits.
 *
 * What a layer is its layer_config says; each kind of block has a file of its own (block.h). */
#ifndef MODEL_FORWARD_H
#define MODEL_FORWARD_H

#include "attn/attn_backend.h"
#include "model/ops.h"
#include "model/runner.h"
#include "model/scan.h"
#include "model/weights.h"

/* Memory of a step, allocated once for max_tokens. Per token, in floats:
 *
 *     x    | norm | wide: qkv, then attention's output, then gate|up | q | k | v | rope */
/* A token's choice of an expert. */
typedef struct block_choice {
    uint32_t expert;
    uint32_t place; /* of its row among all choices, by expert */
    float weight;
} block_choice;

/* Of a mixture of experts; `pairs` is max_tokens * used. */
typedef struct forward_moe {
    float *scores;         /* [max_tokens][2][count] */
    block_choice *choices; /* [max_tokens][used], by rank */
    uint32_t *rows;        /* [count] */
    uint32_t *chosen;      /* [count] the expert of each item */
    gemm_item *items;      /* [count] */
    float *x;              /* [pairs][dim], or NULL: products read rounded rows */
    float *wide;           /* [pairs][2 * experts.dim] */
    float *out;            /* [pairs][dim] */
    float *shared;         /* [max_tokens][dim], and its weight: */
    float *shared_weight;  /* [max_tokens] */
    void *scratch;         /* rounded rows of all pairs, for gates and ups, */
    void *then_scratch;    /* and for downs */
    uint64_t experts_read; /* in a forward pass: experts that some row chose, over all layers */
} forward_moe;

/* One of nextn.h's entries that is to be made. */
typedef struct nextn_entry {
    const float *hidden;
    rad_token token;
    uint32_t position;
    rad_slot slot;
} nextn_entry;

/* Of a head that guesses; rows is 0 without one. */
typedef struct forward_nextn_buffers {
    uint32_t rows;        /* entries that are made at one time */
    float *x;             /* [rows][dim] what stands in the place of x and norm meanwhile */
    float *norm;          /* [rows][dim] */
    float *hidden;        /* [max_logits][dim] of the last forward pass's rows of logits */
    float *places;        /* [RUNNER_PLACES][dim] */
    nextn_entry *entries; /* [rows] */
    rad_slot *slots;      /* [rows] */
} forward_nextn_buffers;

typedef struct forward_buffers {
    uint32_t max_tokens;
    uint32_t max_logits; /* <= max_tokens */
    uint32_t wide_dim;
    float *x;           /* [max_tokens][dim] the residual stream */
    float *norm;        /* [max_tokens][dim]; also what a block adds, until it is normed */
    float *wide;        /* [max_tokens][wide_dim] */
    float *q;           /* [max_tokens][q_dim]; or what a recurrent layer's convolution leaves, */
    float *k;           /* [max_tokens][k_dim]; decays and weights of its heads, */
    float *v;           /* [max_tokens][v_dim]; what these are made of, */
    float *unpacked;    /* [max_tokens][unpacked_dim]; its values; gates of attention; of latent
                         * attention see block_latent.c */
    float *rope;        /* [max_tokens][num_ropes][2 * rope_dim] */
    float *logits;      /* [max_logits][vocab_size] */
    float *embd;        /* [max_tokens][num_layers][layer_embd] what layers add of the token */
    float *ones;        /* [head_dim] the weights of a norm without any */
    void *gemm_scratch; /* rounded rows of what the next product reads, */
    void *ffn_scratch;  /* and of what ffn_down reads, */
    void *head_scratch; /* and of what each head's products read */
    gemm_item *heads;   /* [num_heads], of latent attention */
    double *freqs;      /* [num_ropes][rope_dim / 2] */
    forward_moe moe;
    forward_nextn_buffers nextn;
    void *memory; /* all of the above */
    size_t bytes;
} forward_buffers;

/* One allocation; RAD_E_NOMEM with the bytes that were wanted. */
rad_status forward_buffers_init(const rad_env *env, const model_weights *weights,
                                uint32_t max_tokens, uint32_t max_logits, forward_buffers *out,
                                rad_error *err);
void forward_buffers_fini(const rad_env *env, forward_buffers *buffers);

typedef struct forward_pass {
    const model_weights *weights;
    forward_buffers *buffers;
    const model_ops *ops;
    const scan_isa *scan;
    const attn_backend *attn;
    compute_pool *pool; /* may be NULL */
} forward_pass;

/* Runs a batch that batch_check has let through; the logits of its logits_indices are
 * in buffers->logits afterwards, and its pools have their hidden states. Fails only when the
 * attention layer refuses the pool. A row's numbers do not depend on the other rows (P1). */
rad_status forward_run(const forward_pass *pass, const forward_batch *batch, rad_error *err);

#endif
