/* cuda_layout.h - which matrices and vectors a model has on the GPU, and where they lie there.
 *
 * All of them are in one block of device memory; a place is an offset into it, and 0 means that
 * there is none. What each is made of comes from the table of tensors (model/tensors.h), so nothing
 * here but cuda_layout_init knows an architecture.
 *
 *     vectors     f32; a router is `count` rows of them, biases of experts are one row an expert
 *     matrices    bf16 [n][k], n padded with rows of zeros to 16, k with zeros to 64; or pieces of
 *                 quantised types, one behind the other, each as quant_pack.h has it
 *     gate_up     8 rows of gate, 8 of up, and so on, where the product's kernel makes one number
 *                 of each pair (SwiGLU in bf16: paired); else all of gate, then all of up
 *     experts     `count` matrices of one shape, one every `bytes` bytes
 *     output      also the embedding table, where the model has one tensor for both
 *     rope        for each of the model's RoPEs [context][dim] pairs of cosine and sine
 *     q_factors   [context] what q at a position is multiplied by, of models with a q_temperature
 *
 * A matrix stays quantised where the policy keeps that and there are kernels for the types of all
 * tensors that it is stacked of: they read one x, which is rounded for all of them in one way. */
#ifndef CUDA_CUDA_LAYOUT_H
#define CUDA_CUDA_LAYOUT_H

#include "cuda/kernels/kernel_args.h"
#include "device/cuda_driver.h"
#include "model/config.h"
#include "model/gemm.h"
#include "model/tensors.h"
#include "model/weights_policy.h"

enum { CUDA_MOST_PARTS = 3, CUDA_PLACE_ALIGN = 256 };

/* Neighbouring rows of one quantised type; of several matrices, the first one's. */
typedef struct cuda_piece {
    uint64_t at;
    gemm_type type;
    uint32_t rows;
} cuda_piece;

typedef struct cuda_matrix {
    uint64_t at;         /* 0: the layer has none */
    uint32_t n, k;       /* as the model has them */
    uint32_t rows, ld;   /* padded; of the quantised, ld is that of x as int8 */
    uint32_t x_ld;       /* of what it reads as bf16: k padded to 64 */
    uint32_t splits;     /* ranges of k that are summed each for itself (cuda_splits) */
    bool paired;         /* see above */
    uint32_t count;      /* 1, or one for each expert */
    uint64_t bytes;      /* from one to the next */
    uint32_t num_pieces; /* 0: it is of bf16 */
    cuda_piece pieces[CUDA_MOST_PARTS];
    tensor_map map; /* what kernels of sm_90 read it by, see cuda_layout_map */
} cuda_matrix;

typedef struct cuda_layer {
    cuda_matrix qkv, attn_output, gate_up, ffn_down;
    uint64_t attn_norm, ffn_norm, q_norm, k_norm, qkv_bias, output_bias, sinks;
    uint64_t post_attn_norm, post_ffn_norm; /* of what the blocks add */
    /* Of a mixture of experts, which has no gate_up and ffn_down: */
    cuda_matrix expert_gate_up, expert_down, shared_gate_up, shared_down;
    uint64_t router, router_bias, select_bias, expert_gate_up_bias, expert_down_bias, shared_gate;
} cuda_layer;

typedef struct cuda_layout {
    cuda_layer *layers;             /* [num_layers] */
    cuda_matrix output, token_embd; /* token_embd.at is 0: output is both */
    uint64_t output_norm;
    uint64_t rope[MODEL_ROPES];
    uint64_t q_factors;
    uint32_t context;                      /* positions of a table of RoPE */
    uint64_t bytes;                        /* of the block */
    uint64_t matrix_bytes[GEMM_NUM_TYPES]; /* of those that are multiplied by */
    bool quantised;                        /* one of the matrices is */
    bool experts;                          /* a layer has them */
} cuda_layout;

/* A matrix or vector, and the tensors that it is stacked of. */
typedef struct cuda_part {
    tensor_name name;
    uint32_t rows; /* of a vector: its numbers */
} cuda_part;
typedef struct cuda_field {
    cuda_matrix *matrix; /* or, of a vector, */
    uint64_t *vector;
    cuda_part parts[CUDA_MOST_PARTS];
    uint32_t num_parts;
    uint32_t rows, cols; /* of all parts; of a vector cols is 1 */
    uint32_t count;      /* of such matrices or vectors, one behind the other */
    bool gate_up, experts;
    bool router; /* a vector for each expert, of numbers that are multiplied by */
    float scale; /* its numbers are multiplied by this; 1 but for output_norm */
} cuda_field;

/* Calls `visit` for everything but the RoPE tables, in the order in which it lies on the device,
 * until that fails. RAD_E_UNSUPPORTED names a tensor that has no place here. */
typedef rad_status cuda_visit(void *user, const cuda_field *field, rad_error *err);
rad_status cuda_layout_visit(const model_config *c, cuda_layout *layout, cuda_visit *visit,
                             void *user, rad_error *err);

/* The tensors of a field's parts; errors as tensor_find's. */
rad_status cuda_field_tensors(const gguf_file *file, const cuda_field *field,
                              const gguf_tensor *out[CUDA_MOST_PARTS], rad_error *err);

/* Finds a place for everything. `context`: positions that requests have at most. `file` says which
 * types there are that the policy may keep; NULL: none. Errors as cuda_field_tensors'. */
rad_status cuda_layout_init(const rad_env *env, const model_config *c, const gguf_file *file,
                            weights_policy policy, uint32_t context, cuda_layout *out,
                            rad_error *err);
void cuda_layout_fini(const rad_env *env, const model_config *c, cuda_layout *layout);

/* Makes the matrices' maps, when the block lies at `block`. */
rad_status cuda_layout_map(const cuda_driver *cu, const model_config *c, cuda_layout *layout,
                           cuda_ptr block, rad_error *err);

/* Which row of the field's parts, stacked, is row `row` of the matrix; UINT32_MAX: zeros. */
uint32_t cuda_matrix_source(const cuda_matrix *m, uint32_t row);

static inline uint32_t cuda_pad(uint32_t n, uint32_t to)
{
    return (n + to - 1) / to * to;
}

#endif
