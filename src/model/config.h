/* config.h - the hyper-parameters of a model, read from GGUF keys and checked.
 *
 * All architectures are one forward pass over layers. What sets an architecture apart stands in
 * one table (model_arch, config_arch.c); what sets a layer apart is the layer's own
 * (layer_config): its kind, heads, RoPE table, window, whether it is a mixture of experts, and
 * where its K/V lie. The rest of the code asks the layer. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "gguf/gguf.h"
#include "model/pooling.h"

#include <radish/status.h>
#include <stdbool.h>

typedef enum rope_kind {
    ROPE_INTERLEAVED, /* rotates (2i, 2i+1) */
    ROPE_NEOX         /* rotates (i, i + rope_dim/2) */
} rope_kind;

typedef enum ffn_kind {
    FFN_SWIGLU,        /* silu(gate) * up */
    FFN_GEGLU,         /* gelu(gate) * up, the form with tanh */
    FFN_RELU2,         /* max(up, 0)^2: there are no gates */
    FFN_SWIGLU_CLAMPED /* g sigmoid(1.702 g) (u + 1), g = min(gate, 7), u = up within -7..7 */
} ffn_kind;

/* Which layers look no further back than the sliding window, if the file sets one. */
typedef enum window_layers {
    WINDOW_NONE, /* none may: such a file is refused */
    WINDOW_ALL,
    WINDOW_BUT_LAST /* all but the last of every window_period layers, unless a key says other */
} window_layers;

/* How layers with a window rotate. */
typedef enum window_rope {
    WINDOW_ROPE_SAME,     /* as the others */
    WINDOW_ROPE_PLAIN,    /* with the others' base, not stretched */
    WINDOW_ROPE_OWN_BASE, /* with a base of their own, not stretched */
} window_rope;

typedef enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD, /* RMS norm of each head of q and k before RoPE */
    QK_NORM_ROW   /* of all heads of q together, and of k */
} qk_norm;

/* Whether feed-forward layers are mixtures of experts. */
typedef enum experts_where {
    EXPERTS_NEVER,
    EXPERTS_MAYBE, /* where the key expert_count is > 0 */
    EXPERTS_ALWAYS
} experts_where;

typedef enum shared_expert {
    SHARED_NEVER,
    SHARED_MAYBE, /* where the key expert_shared_feed_forward_length is > 0 */
    SHARED_GATED, /* always, times the sigmoid of a product of its own */
    SHARED_COUNT  /* as wide as expert_shared_count experts, or so many times the former key */
} shared_expert;

/* What a layer does with a token's past: it keeps K/V of every token, or a state of one size. */
typedef enum mixer_kind {
    MIXER_ATTENTION,
    MIXER_LATENT, /* MLA: one latent row a token, of which K and V are made */
    MIXER_NONE,   /* nothing: the layer is its feed-forward block */
    MIXER_DELTA,  /* state: the gated delta rule behind a short convolution, */
    MIXER_MAMBA,  /* Mamba 2, likewise, */
    MIXER_CONV    /* or a gated short convolution and nothing else */
} mixer_kind;

/* What a router makes of its scores. */
typedef enum router_kind {
    ROUTER_SOFTMAX = 1, /* GGUF's numbers: softmax over all experts, the largest are chosen */
    ROUTER_SIGMOID = 2,
    ROUTER_SOFTMAX_OF_CHOSEN = 3 /* the largest scores are chosen, softmax over those */
} router_kind;

/* What one family does unlike the first: RMS norms before attention and feed-forward,
 * which are added to the residual stream. */
typedef struct model_arch {
    const char *name; /* general.architecture */
    rope_kind rope;
    ffn_kind ffn;
    window_layers window;
    uint32_t window_period;
    uint32_t window_absent; /* the window of files that do not name one; 0 = none */
    window_rope window_rope;
    uint32_t no_rope_period; /* the last of so many layers does not rotate; 0 = all do */
    qk_norm qk_norm;
    bool qkv_bias;        /* added to q, k and v */
    bool biases;          /* the same, and to what attention adds, to routers and in experts */
    bool sinks;           /* each head has one more score, which takes weight and has no value */
    bool late_ffn_norm;   /* the feed-forward's norm is called post_attention_norm */
    bool fused_qkv;       /* q, k, v are one tensor (attn_qkv); */
    bool fused_ffn;       /* gate and up, too (ffn_up) */
    bool no_pre_norms;    /* attention and feed-forward read the residual stream as it is */
    bool post_norms;      /* RMS norm of what attention and feed-forward add */
    bool scale_embedding; /* by sqrt(dim) */
    bool logit_caps;      /* cap * tanh(x / cap), of attention's scores and of the logits */
    bool final_cap;       /* of the logits alone, where the file names one */
    bool window_heads;    /* layers with a window have heads of their own number and width */
    bool shared_kv;       /* the last layers may have no K/V of their own: they read those of the
                           * last one before them that sees as far */
    bool v_norm;          /* V's heads are normed, without weights; a layer without attn_v takes K
                           * for it, as K was before its norm */
    bool scores_as_are;   /* q . k is not scaled */
    bool
        layer_embeddings; /* a second embedding, of which each layer adds its part (block_embd.c) */
    bool output_scale;    /* a layer may multiply all that it leaves by a number of its own */
    bool experts_beside;  /* a mixture adds to its layer's other block, each behind a norm */
    bool scales;          /* embedding_scale, residual_scale, logit_scale; whether RoPE is at all */
    bool rope_sections;   /* multi-axis RoPE: of text all axes are one */
    bool q_temperature;   /* q grows with the position's logarithm */
    bool latent;          /* attention is MLA */
    mixer_kind recurrent; /* what other layers are; MIXER_ATTENTION: there are none. They are */
    uint32_t attention_period; /* all but the last of every so many, unless a key says other; 0:
                                * those without KV heads */
    bool gated_attention;      /* each head's q has as many gates behind it, whose sigmoids multiply
                                * what the head attended to */
    bool one_block;            /* a layer is a mixer or a feed-forward block, whose norm is called
                                * attn_norm all the same: that, where feed_forward_length is > 0 */
    bool no_rope;
    const char *last_norm;  /* the tensor before the logits; NULL: output_norm.weight */
    uint32_t layers_of_dim; /* the model of so many layers scales q . k by dim / heads, which its
                             * files do not say */
    experts_where experts;
    bool ffn_of_all;      /* feed_forward_length is that of all used experts together */
    router_kind router;   /* unless a key says other */
    bool raw_weights;     /* the chosen weights are not divided by their sum */
    shared_expert shared; /* an expert that every token uses */
    bool select_bias;     /* tensors exp_probs_b may be there: scores plus these are chosen by */
    bool nextn;           /* a head that guesses is as its papers have it: see nextn.h */
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

/* One table of angles. */
typedef struct rope_config {
    uint32_t dim; /* numbers of a head that turn: even, <= head_dim */
    float base;
    rope_scaling scaling;
} rope_config;

enum { MODEL_MOST_LAYERS = 512, MODEL_ROPES = 2, ROPE_NONE = MODEL_ROPES };

typedef struct layer_config {
    mixer_kind mixer;
    bool experts;          /* a mixture; else one feed-forward block of ffn_dim */
    uint8_t rope;          /* of config.ropes; ROPE_NONE: it does not rotate */
    bool gated;            /* attention: see model_arch */
    bool no_ffn;           /* its mixer is all there is */
    bool shares_kv;        /* kv_layer and attn_layer are another's: there are no K/V of its own */
    bool v_is_k;           /* no attn_v: see model_arch.v_norm */
    bool scaled;           /* what it leaves is multiplied by a number */
    bool guesses;          /* it is a head's, behind the layers: see nextn.h */
    bool own_last_norm;    /* and has a norm of its own before the logits */
    uint32_t num_heads;    /* 0, and so are the next three: the layer is recurrent */
    uint32_t num_kv_heads; /* divides num_heads */
    uint32_t head_dim;
    uint32_t v_head_dim;
    uint32_t ffn_dim;
    uint32_t window;     /* tokens, the newest included; 0 = all */
    uint32_t kv_layer;   /* its number among those that slide, or among those that do not: which
                          * layer of that kind's KV pool it is */
    uint32_t attn_layer; /* its number among all with K/V: its layer of a pool of both */
    size_t state_at;     /* recurrent: where in a state its part begins, in floats */
} layer_config;

/* Of all recurrent layers. A state's part of one is
 *
 *     [taps - 1][conv_dim]                 what the convolution still reads, the oldest first
 *     [heads][strips][key][STATE_STRIP]    sums, the columns of a head's values in strips;
 *                                          those past `value` are zeros
 *
 * each beginning at a multiple of 64 bytes. Delta rule and Mamba convolve q, k and v together
 * (Mamba calls them C, B and x). */
enum { STATE_STRIP = 32, MOST_TAPS = 16 };
typedef struct recurrent_config {
    uint32_t taps;     /* tokens that the convolution reads, the newest included */
    uint32_t conv_dim; /* channels that it convolves */
    uint32_t heads;    /* 0: it is all there is */
    uint32_t groups;   /* of heads with one q and k; divides heads */
    uint32_t key;      /* numbers of a head's key */
    uint32_t value;    /* and of its value */
} recurrent_config;

typedef struct experts_config {
    uint32_t count;      /* 0 = the model has none */
    uint32_t used;       /* of them, by each token */
    uint32_t dim;        /* ffn_dim of one */
    uint32_t shared_dim; /* of the expert that every token uses; 0 = there is none */
    router_kind router;
    bool select_bias;             /* scores plus a bias are what is chosen by */
    bool pairs;                   /* files have gates and ups in one tensor */
    bool scaled;                  /* each expert's answer is multiplied by a number of its own */
    bool normed;                  /* the chosen weights are divided by their sum */
    uint32_t groups, groups_used; /* experts of the best groups alone are chosen; 1 and 1: all */
    float scale;                  /* and multiplied by this */
} experts_config;

typedef struct latent_config {
    uint32_t q_rank;  /* q is made of so many numbers; 0: of the residual stream itself */
    uint32_t kv_rank; /* of the latent */
    uint32_t plain;   /* numbers of a head's key that are not rotated; rope_dim more are */
    uint32_t value;   /* numbers of a head's value */
} latent_config;

typedef struct model_config {
    const model_arch *arch;
    uint32_t vocab_size; /* rows of token_embd.weight */
    uint32_t context_length;
    uint32_t num_layers;
    uint32_t num_nextn;   /* of the layers behind them, which are heads that guess further tokens,
                           * so many are in use: one, layers[num_layers], or none */
    uint32_t num_skipped; /* and so many are left out */
    uint32_t dim;         /* embedding_length */
    uint32_t rope_dim;    /* of the first RoPE, and none has more: rope_config */
    uint32_t
        layer_embd; /* numbers of a token's second embedding for each layer; 0: there is none */
    latent_config latent; /* of layers that are MIXER_LATENT; their heads are as attention sees
                           * them: one KV head of latent and rotated part, V its latent */
    recurrent_config recurrent;
    uint32_t num_attention; /* layers with K/V, */
    uint32_t num_recurrent; /* and with a state */
    size_t state_floats;    /* of one state; 0: none are */
    rope_config ropes[MODEL_ROPES];
    uint32_t num_ropes;
    float rms_eps;
    float embedding_scale; /* what a token's row is multiplied by */
    float residual_scale;  /* what attention and feed-forward add is multiplied by */
    float logit_scale;     /* logits are divided by it */
    float attn_scale;      /* q . k times this */
    float attn_logit_cap;  /* 0 = none */
    float final_logit_cap; /* 0 = none */
    float q_temperature;   /* q at position p times 1 + this * ln(1 + floor(p / q_period)); 0 */
    uint32_t q_period;
    uint32_t sliding_window; /* of the layers that slide; 0 = none, or past the context */
    bool tied;               /* no output.weight: token_embd.weight serves */
    hidden_pooling pooling;  /* of a model for embeddings; else POOL_NONE */
    experts_config experts;
    layer_config layers[MODEL_MOST_LAYERS];
} model_config;

/* `context` is the context that will be in force (0: the model's): some models have other
 * RoPE divisors for contexts past the one they were trained on. RAD_E_UNSUPPORTED names an
 * architecture, RoPE scaling or other feature that we do not have; RAD_E_FORMAT a key
 * that is missing, zero, absurd, or contradicts another. */
rad_status model_config_read(const gguf_file *file, uint32_t context, model_config *out,
                             rad_error *err);

/* Takes the first head that predicts a further token into use, out of those that are left out.
 * RAD_NONE: the file has none. RAD_E_UNSUPPORTED in words: it has one that we cannot use; the
 * config is as it was. */
rad_status model_config_use_nextn(const gguf_file *file, model_config *config, rad_error *err);

/* Those whose tensors are loaded: layers, and the head that is in use. */
static inline uint32_t config_all_layers(const model_config *c)
{
    return c->num_layers + c->num_nextn;
}

/* What sets this model apart, in words for a person: "NEOX RoPE over 64 of 64, ...". Cut
 * where the room ends. */
void model_config_describe(const model_config *config, char *text, size_t room);

/* Of one layer, as radix_attention wants it: -1 = none. */
static inline int32_t layer_window(const layer_config *l)
{
    return l->window ? (int32_t)l->window : -1;
}

static inline bool layer_is_recurrent(const layer_config *l)
{
    return l->mixer == MIXER_DELTA || l->mixer == MIXER_MAMBA || l->mixer == MIXER_CONV;
}

/* The first with K/V, and the first of those with a window or without; NULL: there is none. All
 * that see as far have K/V heads of one shape. */
const layer_config *config_attention(const model_config *c);
const layer_config *config_attention_of(const model_config *c, bool window);

/* How many layers slide and have K/V of their own. */
uint32_t config_window_layers(const model_config *c);

/* Widths in elements, for matrices and buffers. No overflow: model_config_read limits them. */
static inline uint32_t layer_q_dim(const layer_config *l)
{
    return l->num_heads * l->head_dim;
}
static inline uint32_t layer_k_dim(const layer_config *l)
{
    return l->num_kv_heads * l->head_dim;
}
static inline uint32_t layer_v_dim(const layer_config *l)
{
    return l->num_kv_heads * l->v_head_dim;
}
static inline uint32_t layer_attn_dim(const layer_config *l)
{
    return l->num_heads * l->v_head_dim;
}
static inline uint32_t layer_q_rows(const layer_config *l) /* gates counted */
{
    return layer_q_dim(l) * (l->gated ? 2 : 1);
}
static inline uint32_t layer_k_rows(const layer_config *l) /* of a matrix of its own */
{
    return l->shares_kv ? 0 : layer_k_dim(l);
}
static inline uint32_t layer_v_rows(const layer_config *l)
{
    return l->shares_kv || l->v_is_k ? 0 : layer_v_dim(l);
}
static inline uint32_t layer_qkv_dim(const layer_config *l)
{
    return layer_q_rows(l) + layer_k_rows(l) + layer_v_rows(l);
}

/* Of recurrent layers. */
static inline uint32_t state_inner(const recurrent_config *r) /* values of all heads */
{
    return r->heads * r->value;
}
static inline uint32_t state_strips(const recurrent_config *r)
{
    return (r->value + STATE_STRIP - 1) / STATE_STRIP;
}
static inline size_t state_head_floats(const recurrent_config *r)
{
    return (size_t)state_strips(r) * r->key * STATE_STRIP;
}
static inline size_t state_conv_floats(const recurrent_config *r)
{
    return ((size_t)(r->taps - 1) * r->conv_dim + 15) / 16 * 16;
}

/* The largest of any layer, for buffers that all of them use. */
typedef struct config_widths {
    uint32_t q, k, v, attn, qkv, ffn;
    uint32_t unpacked; /* q or what was attended to, as a MIXER_LATENT's heads have it; gates; a
                        * recurrent layer's values */
} config_widths;
config_widths config_widest(const model_config *c);

#endif
