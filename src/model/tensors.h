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
#include <stdint.h>

/* What a layer is, as a set: a layer has the tensors whose `when` is in it. */
typedef uint64_t tensor_when;
#define WHEN_BIT(n)         ((tensor_when)1 << (n))
#define WHEN_ATTENTION      WHEN_BIT(0)
#define WHEN_SPLIT_QKV      WHEN_BIT(1)
#define WHEN_FUSED_QKV      WHEN_BIT(2)
#define WHEN_QKV_BIAS       WHEN_BIT(3)
#define WHEN_HEAD_NORMS     WHEN_BIT(4)
#define WHEN_ROW_NORMS      WHEN_BIT(5)
#define WHEN_PRE_NORMS      WHEN_BIT(6)
#define WHEN_POST_NORMS     WHEN_BIT(7)
#define WHEN_SPLIT_FFN      WHEN_BIT(8)
#define WHEN_FUSED_FFN      WHEN_BIT(9)
#define WHEN_DENSE          WHEN_BIT(10)
#define WHEN_EXPERTS        WHEN_BIT(11)
#define WHEN_SHARED         WHEN_BIT(12)
#define WHEN_SHARED_GATE    WHEN_BIT(13)
#define WHEN_EXPERT_BIAS    WHEN_BIT(14)
#define WHEN_SELECT_BIAS    WHEN_BIT(15)
#define WHEN_OUTPUT_BIAS    WHEN_BIT(16)
#define WHEN_SINKS          WHEN_BIT(17)
#define WHEN_FFN_NORM       WHEN_BIT(18)
#define WHEN_LATE_FFN_NORM  WHEN_BIT(19) /* which files call by the name of another norm */
#define WHEN_LATENT         WHEN_BIT(20)
#define WHEN_LATENT_Q       WHEN_BIT(21) /* whose q is made of a few numbers, */
#define WHEN_LATENT_PLAIN_Q WHEN_BIT(22) /* or of the residual stream itself */
#define WHEN_GATED_QKV      WHEN_BIT(23) /* instead of WHEN_SPLIT_QKV: q's rows are twice as many */
#define WHEN_DELTA          WHEN_BIT(24)
#define WHEN_MAMBA          WHEN_BIT(25)
#define WHEN_CONV           WHEN_BIT(26)
#define WHEN_SOLE_FFN_NORM  WHEN_BIT(27) /* likewise, of a layer without a mixer */
#define WHEN_UNGATED_FFN    WHEN_BIT(28) /* instead of WHEN_SPLIT_FFN: no gates */
#define WHEN_EXPERT_GATES   WHEN_BIT(29)
#define WHEN_SHARED_GATES                                                                          \
    WHEN_BIT(30) /* of the shared expert's units; WHEN_SHARED_GATE is one for all */
#define WHEN_K_NORM       WHEN_BIT(31) /* of K's heads; WHEN_HEAD_NORMS is of Q's */
#define WHEN_SOLE_Q       WHEN_BIT(32) /* instead of WHEN_SPLIT_QKV: K and V are another layer's, */
#define WHEN_SPLIT_QK     WHEN_BIT(33) /* or V is K */
#define WHEN_LAYER_EMBD   WHEN_BIT(34)
#define WHEN_OUTPUT_SCALE WHEN_BIT(35)
#define WHEN_BESIDE                                                                                \
    WHEN_BIT(36) /* a mixture beside a dense block: norms of both, and what its router reads */
#define WHEN_EXPERT_UPS    WHEN_BIT(37)
#define WHEN_EXPERT_PAIRS  WHEN_BIT(39) /* instead of both: gates and ups in one tensor */
#define WHEN_EXPERT_SCALES WHEN_BIT(38)
#define WHEN_NEXTN         WHEN_BIT(40)
#define WHEN_NEXTN_NORM    WHEN_BIT(41)

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
    SIZE_2_EXPERT,
    SIZE_LAYER_EMBD,
    SIZE_2_DIM,
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
tensor_when tensors_of_layer(const model_config *c, const layer_config *l);

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
 * model is refused. *skipped: it is, but of a layer that is left out, or of a head that guesses,
 * which does without it. */
bool tensor_known(const model_config *c, gguf_str name, bool *skipped);

#endif
