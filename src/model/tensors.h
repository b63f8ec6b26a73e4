/* tensors.h - which tensors a model has: one table, a row each, for all who check, load, link or
 * free them.
 *
 * A row says how the tensor is called, when a layer has it, what shape it then has, and which
 * field of layer_weights it goes into. Rows of one field stand together and are stacked in their
 * order: q, k and v become one matrix, because they read the same row. */
#ifndef MODEL_TENSORS_H
#define MODEL_TENSORS_H

#include "model/config.h"

#include <stddef.h>

/* What a layer is, as a set: a layer has the tensors whose `when` is in it. */
typedef enum tensor_when {
    WHEN_ATTENTION = 1 << 0,
    WHEN_SPLIT_QKV = 1 << 1,
    WHEN_FUSED_QKV = 1 << 2,
    WHEN_QKV_BIAS = 1 << 3,
    WHEN_HEAD_NORMS = 1 << 4,
    WHEN_ROW_NORMS = 1 << 5,
    WHEN_PRE_NORMS = 1 << 6,
    WHEN_POST_NORMS = 1 << 7,
    WHEN_SPLIT_FFN = 1 << 8,
    WHEN_FUSED_FFN = 1 << 9,
    WHEN_DENSE = 1 << 10,
    WHEN_EXPERTS = 1 << 11,
    WHEN_SHARED = 1 << 12,
    WHEN_SHARED_GATE = 1 << 13,
    WHEN_EXPERT_BIAS = 1 << 14,
    WHEN_SELECT_BIAS = 1 << 15,
    WHEN_OUTPUT_BIAS = 1 << 16,
    WHEN_SINKS = 1 << 17,
    WHEN_FFN_NORM = 1 << 18,
    WHEN_LATENT = 1 << 20,
    WHEN_LATENT_Q = 1 << 21,       /* whose q is made of a few numbers, */
    WHEN_LATENT_PLAIN_Q = 1 << 22, /* or of the residual stream itself */
    WHEN_LATE_FFN_NORM = 1 << 19,  /* which files call by the name of another norm */
    WHEN_GATED_QKV = 1 << 23,      /* instead of WHEN_SPLIT_QKV: q's rows are twice as many */
    WHEN_DELTA = 1 << 24,
    WHEN_MAMBA = 1 << 25,
    WHEN_CONV = 1 << 26,
    WHEN_SOLE_FFN_NORM = 1 << 27, /* likewise, of a layer without a mixer */
    WHEN_UNGATED_FFN = 1 << 28,   /* instead of WHEN_SPLIT_FFN: no gates */
    WHEN_EXPERT_GATES = 1 << 29,
    WHEN_SHARED_GATES = 1 << 30, /* of the shared expert's units; WHEN_SHARED_GATE is one for all */
} tensor_when;

typedef enum tensor_form {
    TENSOR_VECTOR,     /* floats; `cols` of them */
    TENSOR_MATRIX,     /* a gemm_weight */
    TENSOR_F32_MATRIX, /* one of f32, whatever the others are */
    TENSOR_MATRICES,   /* an array of gemm_weights, `count` out of one tensor */
    TENSOR_VECTORS,    /* floats; `count` times `cols` */
    TENSOR_COLUMNS,    /* the same, turned: `cols` times `count` */
} tensor_form;

/* Sizes that a configuration gives. */
typedef enum tensor_size {
    SIZE_DIM,
    SIZE_HEAD,
    SIZE_Q,
    SIZE_K,
    SIZE_V,
    SIZE_QKV,
    SIZE_LATENT_Q,     /* q's few numbers */
    SIZE_LATENT,       /* K's, the rotated part not counted */
    SIZE_LATENT_ROW,   /* the rotated part counted */
    SIZE_LATENT_HEADS, /* q as heads have it, all of them */
    SIZE_LATENT_PLAIN, /* numbers of a head's key that are not rotated */
    SIZE_LATENT_VALUE, /* and of its value */
    SIZE_LATENT_OUT,   /* of all heads' */
    SIZE_HEADS,        /* how many there are */
    SIZE_ATTN,         /* what attention leaves, all heads */
    SIZE_FFN,
    SIZE_2_FFN,
    SIZE_EXPERTS, /* how many there are */
    SIZE_EXPERT,  /* ffn_dim of one */
    SIZE_SHARED,
    SIZE_GATED_Q, /* with the gates behind each head */
    SIZE_TAPS,
    SIZE_CONV, /* channels that are convolved */
    SIZE_CONV_IN,
    SIZE_STATE_HEADS,
    SIZE_STATE_VALUE, /* numbers of a head's value, */
    SIZE_STATE_INNER, /* of all heads' */
    SIZE_STATE_GROUPS,
    SIZE_STATE_GROUP, /* and of those of a group */
    SIZE_MAMBA_IN,
    SIZE_ONE,
} tensor_size;

typedef struct tensor_def {
    const char *name; /* behind "blk.N." */
    tensor_when when;
    tensor_form form;
    tensor_size rows, cols; /* of a vector: cols alone */
    size_t field;           /* where in layer_weights */
    tensor_size count;      /* of those that one tensor has several of */
} tensor_def;

extern const tensor_def tensor_defs[];
extern const uint32_t num_tensor_defs;

/* Which rows a layer has: a set of tensor_when. */
uint32_t tensors_of_layer(const model_config *c, const layer_config *l);

uint32_t tensor_size_of(const model_config *c, const layer_config *l, tensor_size size);

/* One behind the last row of the field that begins with row `first`. */
uint32_t tensor_field_end(uint32_t first);

static inline bool tensor_is_vector(tensor_form form)
{
    return form == TENSOR_VECTOR || form == TENSOR_VECTORS || form == TENSOR_COLUMNS;
}

/* The norm's before the logits. */
static inline const char *tensor_last_norm(const model_config *c)
{
    return c->arch->last_norm ? c->arch->last_norm : "output_norm.weight";
}

/* The most columns of any matrix. */
uint32_t tensors_widest(const model_config *c);

/* "blk.3.attn_q.weight" */
typedef struct tensor_name {
    char text[64];
} tensor_name;
tensor_name tensor_name_of(uint32_t layer, const tensor_def *row);

/* Whether the tensor is part of the model; one that is not would change the numbers, so such a
 * model is refused. *skipped: it is, but of a layer that is left out. */
bool tensor_known(const model_config *c, gguf_str name, bool *skipped);

#endif
