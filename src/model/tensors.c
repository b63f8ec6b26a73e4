/* tensors.c - the table; see tensors.h. */
#include "model/tensors.h"
#include "base/base.h"
#include "model/weights.h"

#include <stdio.h>

#define VECTOR(when, tensor, n, to)                                                                \
    {                                                                                              \
        tensor, when, TENSOR_VECTOR, 0, n, offsetof(layer_weights, to), 0                          \
    }
#define MATRIX(when, tensor, rows, cols, to)                                                       \
    {                                                                                              \
        tensor ".weight", when, TENSOR_MATRIX, rows, cols, offsetof(layer_weights, to), 0          \
    }
#define MATRICES(when, count, tensor, rows, cols, to)                                              \
    {                                                                                              \
        tensor ".weight", when, TENSOR_MATRICES, rows, cols, offsetof(layer_weights, to), count    \
    }
#define EXPERTS(tensor, rows, cols, to) MATRICES(WHEN_EXPERTS, SIZE_EXPERTS, tensor, rows, cols, to)
#define EXPERT_VECTORS(tensor, n, to)                                                              \
    {                                                                                              \
        tensor ".bias", WHEN_EXPERT_BIAS, TENSOR_VECTORS, 0, n, offsetof(layer_weights, to),       \
            SIZE_EXPERTS                                                                           \
    }

#define COLUMNS(when, count, tensor, n, to)                                                        \
    {                                                                                              \
        tensor ".weight", when, TENSOR_COLUMNS, 0, n, offsetof(layer_weights, to), count           \
    }
#define VECTORS(when, count, tensor, n, to)                                                        \
    {                                                                                              \
        tensor, when, TENSOR_VECTORS, 0, n, offsetof(layer_weights, to), count                     \
    }

/* In the order in which a forward pass reads them: each matrix knows the one behind it. Rows of one
 * field stand together. */
const tensor_def tensor_defs[] = {
    VECTOR(WHEN_NEXTN, "nextn.enorm.weight", SIZE_DIM, nextn_token_norm),
    VECTOR(WHEN_NEXTN, "nextn.hnorm.weight", SIZE_DIM, nextn_hidden_norm),
    MATRIX(WHEN_NEXTN, "nextn.eh_proj", SIZE_DIM, SIZE_2_DIM, nextn_proj),
    VECTOR(WHEN_PRE_NORMS, "attn_norm.weight", SIZE_DIM, attn_norm),
    MATRIX(WHEN_SPLIT_QKV, "attn_q", SIZE_Q, SIZE_DIM, qkv),
    MATRIX(WHEN_SPLIT_QKV, "attn_k", SIZE_K, SIZE_DIM, qkv),
    MATRIX(WHEN_SPLIT_QKV, "attn_v", SIZE_V, SIZE_DIM, qkv),
    MATRIX(WHEN_SOLE_Q | WHEN_SPLIT_QK, "attn_q", SIZE_Q, SIZE_DIM, qkv),
    MATRIX(WHEN_SPLIT_QK, "attn_k", SIZE_K, SIZE_DIM, qkv),
    MATRIX(WHEN_FUSED_QKV, "attn_qkv", SIZE_QKV, SIZE_DIM, qkv),
    MATRIX(WHEN_GATED_QKV, "attn_q", SIZE_GATED_Q, SIZE_DIM, qkv),
    MATRIX(WHEN_GATED_QKV, "attn_k", SIZE_K, SIZE_DIM, qkv),
    MATRIX(WHEN_GATED_QKV, "attn_v", SIZE_V, SIZE_DIM, qkv),
    MATRIX(WHEN_DELTA, "attn_qkv", SIZE_CONV, SIZE_DIM, qkv),
    MATRIX(WHEN_DELTA, "attn_gate", SIZE_STATE_INNER, SIZE_DIM, qkv),
    MATRIX(WHEN_MAMBA, "ssm_in", SIZE_MAMBA_IN, SIZE_DIM, qkv),
    MATRIX(WHEN_CONV, "shortconv.in_proj", SIZE_CONV_IN, SIZE_DIM, qkv),
    MATRIX(WHEN_LATENT_Q, "attn_q_a", SIZE_LATENT_Q, SIZE_DIM, qkv),
    MATRIX(WHEN_LATENT_PLAIN_Q, "attn_q", SIZE_LATENT_HEADS, SIZE_DIM, qkv),
    MATRIX(WHEN_LATENT, "attn_kv_a_mqa", SIZE_LATENT_ROW, SIZE_DIM, qkv),
    MATRIX(WHEN_DELTA, "ssm_alpha", SIZE_STATE_HEADS, SIZE_DIM, ssm_gates),
    MATRIX(WHEN_DELTA, "ssm_beta", SIZE_STATE_HEADS, SIZE_DIM, ssm_gates),
    COLUMNS(WHEN_DELTA | WHEN_MAMBA, SIZE_CONV, "ssm_conv1d", SIZE_TAPS, conv),
    COLUMNS(WHEN_CONV, SIZE_CONV, "shortconv.conv", SIZE_TAPS, conv),
    VECTOR(WHEN_MAMBA, "ssm_conv1d.bias", SIZE_CONV, conv_bias),
    VECTOR(WHEN_DELTA | WHEN_MAMBA, "ssm_dt.bias", SIZE_STATE_HEADS, ssm_dt),
    VECTOR(WHEN_DELTA, "ssm_a", SIZE_STATE_HEADS, ssm_a),
    VECTORS(WHEN_MAMBA, SIZE_STATE_HEADS, "ssm_a", SIZE_ONE, ssm_a),
    VECTORS(WHEN_MAMBA, SIZE_STATE_HEADS, "ssm_d", SIZE_ONE, ssm_d),
    VECTOR(WHEN_DELTA, "ssm_norm.weight", SIZE_STATE_VALUE, ssm_norm),
    VECTORS(WHEN_MAMBA, SIZE_STATE_GROUPS, "ssm_norm.weight", SIZE_STATE_GROUP, ssm_norm),
    VECTOR(WHEN_QKV_BIAS, "attn_q.bias", SIZE_Q, qkv_bias),
    VECTOR(WHEN_QKV_BIAS, "attn_k.bias", SIZE_K, qkv_bias),
    VECTOR(WHEN_QKV_BIAS, "attn_v.bias", SIZE_V, qkv_bias),
    VECTOR(WHEN_HEAD_NORMS, "attn_q_norm.weight", SIZE_HEAD, q_norm),
    VECTOR(WHEN_ROW_NORMS, "attn_q_norm.weight", SIZE_Q, q_norm),
    VECTOR(WHEN_LATENT_Q, "attn_q_a_norm.weight", SIZE_LATENT_Q, q_norm),
    VECTOR(WHEN_K_NORM, "attn_k_norm.weight", SIZE_HEAD, k_norm),
    VECTOR(WHEN_ROW_NORMS, "attn_k_norm.weight", SIZE_K, k_norm),
    VECTOR(WHEN_LATENT, "attn_kv_a_norm.weight", SIZE_LATENT, k_norm),
    MATRIX(WHEN_LATENT_Q, "attn_q_b", SIZE_LATENT_HEADS, SIZE_LATENT_Q, latent_q),
    MATRICES(WHEN_LATENT, SIZE_HEADS, "attn_k_b", SIZE_LATENT, SIZE_LATENT_PLAIN, latent_k),
    MATRICES(WHEN_LATENT, SIZE_HEADS, "attn_v_b", SIZE_LATENT_VALUE, SIZE_LATENT, latent_v),
    MATRIX(WHEN_LATENT, "attn_output", SIZE_DIM, SIZE_LATENT_OUT, attn_output),
    MATRIX(WHEN_DELTA | WHEN_MAMBA, "ssm_out", SIZE_DIM, SIZE_STATE_INNER, attn_output),
    MATRIX(WHEN_CONV, "shortconv.out_proj", SIZE_DIM, SIZE_DIM, attn_output),
    MATRIX(WHEN_ATTENTION, "attn_output", SIZE_DIM, SIZE_ATTN, attn_output),
    VECTOR(WHEN_SINKS, "attn_sinks.weight", SIZE_HEADS, sinks),
    VECTOR(WHEN_OUTPUT_BIAS, "attn_output.bias", SIZE_DIM, output_bias),
    VECTOR(WHEN_POST_NORMS, "post_attention_norm.weight", SIZE_DIM, post_attn_norm),
    VECTOR(WHEN_FFN_NORM, "ffn_norm.weight", SIZE_DIM, ffn_norm),
    VECTOR(WHEN_LATE_FFN_NORM, "post_attention_norm.weight", SIZE_DIM, ffn_norm),
    VECTOR(WHEN_SOLE_FFN_NORM, "attn_norm.weight", SIZE_DIM, ffn_norm),
    MATRIX(WHEN_UNGATED_FFN, "ffn_up", SIZE_FFN, SIZE_DIM, gate_up),
    MATRIX(WHEN_SPLIT_FFN, "ffn_gate", SIZE_FFN, SIZE_DIM, gate_up),
    MATRIX(WHEN_SPLIT_FFN, "ffn_up", SIZE_FFN, SIZE_DIM, gate_up),
    MATRIX(WHEN_FUSED_FFN, "ffn_up", SIZE_2_FFN, SIZE_DIM, gate_up),
    MATRIX(WHEN_DENSE, "ffn_down", SIZE_DIM, SIZE_FFN, ffn_down),
    VECTOR(WHEN_BESIDE, "post_ffw_norm_1.weight", SIZE_DIM, dense_norm),
    VECTOR(WHEN_BESIDE, "ffn_gate_inp.scale", SIZE_DIM, router_norm),
    VECTOR(WHEN_BESIDE, "pre_ffw_norm_2.weight", SIZE_DIM, experts_norm),
    {"ffn_gate_inp.weight", WHEN_EXPERTS, TENSOR_F32_MATRIX, SIZE_EXPERTS, SIZE_DIM,
     offsetof(layer_weights, router), 0},
    VECTOR(WHEN_EXPERT_BIAS, "ffn_gate_inp.bias", SIZE_EXPERTS, router_bias),
    VECTOR(WHEN_SELECT_BIAS, "exp_probs_b.bias", SIZE_EXPERTS, select_bias),
    MATRICES(WHEN_EXPERT_GATES, SIZE_EXPERTS, "ffn_gate_exps", SIZE_EXPERT, SIZE_DIM,
             expert_gate_up),
    MATRICES(WHEN_EXPERT_UPS, SIZE_EXPERTS, "ffn_up_exps", SIZE_EXPERT, SIZE_DIM, expert_gate_up),
    MATRICES(WHEN_EXPERT_PAIRS, SIZE_EXPERTS, "ffn_gate_up_exps", SIZE_2_EXPERT, SIZE_DIM,
             expert_gate_up),
    EXPERT_VECTORS("ffn_gate_exps", SIZE_EXPERT, expert_gate_up_bias),
    EXPERT_VECTORS("ffn_up_exps", SIZE_EXPERT, expert_gate_up_bias),
    EXPERTS("ffn_down_exps", SIZE_DIM, SIZE_EXPERT, expert_down),
    EXPERT_VECTORS("ffn_down_exps", SIZE_DIM, expert_down_bias),
    VECTOR(WHEN_EXPERT_SCALES, "ffn_down_exps.scale", SIZE_EXPERTS, expert_scales),
    VECTOR(WHEN_BESIDE, "post_ffw_norm_2.weight", SIZE_DIM, post_experts_norm),
    VECTOR(WHEN_SHARED_GATE, "ffn_gate_inp_shexp.weight", SIZE_DIM, shared_gate),
    MATRIX(WHEN_SHARED_GATES, "ffn_gate_shexp", SIZE_SHARED, SIZE_DIM, shared_gate_up),
    MATRIX(WHEN_SHARED, "ffn_up_shexp", SIZE_SHARED, SIZE_DIM, shared_gate_up),
    MATRIX(WHEN_SHARED, "ffn_down_shexp", SIZE_DIM, SIZE_SHARED, shared_down),
    VECTOR(WHEN_POST_NORMS, "post_ffw_norm.weight", SIZE_DIM, post_ffn_norm),
    MATRIX(WHEN_LAYER_EMBD, "inp_gate", SIZE_LAYER_EMBD, SIZE_DIM, embd_gate),
    MATRIX(WHEN_LAYER_EMBD, "proj", SIZE_DIM, SIZE_LAYER_EMBD, embd_proj),
    VECTOR(WHEN_LAYER_EMBD, "post_norm.weight", SIZE_DIM, embd_norm),
    VECTOR(WHEN_OUTPUT_SCALE, "layer_output_scale.weight", SIZE_ONE, output_scale),
    VECTOR(WHEN_NEXTN_NORM, "nextn.shared_head_norm.weight", SIZE_DIM, nextn_last_norm),
};
const uint32_t num_tensor_defs = RAD_COUNT(tensor_defs);

/* Those that no layer has; and the last norm's, whatever it is called. */
static const char *const whole[] = {"token_embd.weight", "output.weight", "rope_freqs.weight",
                                    "rope_factors_long.weight", "rope_factors_short.weight"};
static const char *const of_layer_embd[] = {
    "per_layer_token_embd.weight", "per_layer_model_proj.weight", "per_layer_proj_norm.weight"};

/* What it does with a token's past. */
static tensor_when tensors_of_mixer(const model_config *c, const layer_config *l)
{
    const model_arch *a = c->arch;
    switch (l->mixer) {
    case MIXER_DELTA: return WHEN_DELTA;
    case MIXER_MAMBA: return WHEN_MAMBA;
    case MIXER_CONV: return WHEN_CONV;
    case MIXER_NONE: return 0;
    case MIXER_LATENT:
        return WHEN_LATENT | (c->latent.q_rank ? WHEN_LATENT_Q : WHEN_LATENT_PLAIN_Q);
    case MIXER_ATTENTION: break;
    }
    tensor_when set = WHEN_ATTENTION;
    set |= l->shares_kv   ? WHEN_SOLE_Q
           : l->v_is_k    ? WHEN_SPLIT_QK
           : a->fused_qkv ? WHEN_FUSED_QKV
           : l->gated     ? WHEN_GATED_QKV
                          : WHEN_SPLIT_QKV;
    if (a->qkv_bias || a->biases) set |= WHEN_QKV_BIAS;
    if (a->qk_norm == QK_NORM_HEAD) set |= WHEN_HEAD_NORMS | (l->shares_kv ? 0 : WHEN_K_NORM);
    if (a->qk_norm == QK_NORM_ROW) set |= WHEN_ROW_NORMS;
    if (a->biases) set |= WHEN_OUTPUT_BIAS;
    if (a->sinks) set |= WHEN_SINKS;
    return set;
}

tensor_when tensors_of_layer(const model_config *c, const layer_config *l)
{
    const model_arch *a = c->arch;
    const bool gates = a->ffn != FFN_RELU2, beside = l->experts && a->experts_beside;
    tensor_when set = tensors_of_mixer(c, l);
    if (c->layer_embd) set |= WHEN_LAYER_EMBD;
    if (l->scaled) set |= WHEN_OUTPUT_SCALE;
    if (l->guesses) set |= WHEN_NEXTN | (l->own_last_norm ? WHEN_NEXTN_NORM : 0);
    if (!a->no_pre_norms && l->mixer != MIXER_NONE) set |= WHEN_PRE_NORMS;
    if (a->post_norms) set |= WHEN_POST_NORMS;
    if (l->no_ffn) return set;
    if (l->experts)
        set |= WHEN_EXPERTS | (c->experts.pairs ? WHEN_EXPERT_PAIRS
                               : gates          ? WHEN_EXPERT_GATES | WHEN_EXPERT_UPS
                                                : WHEN_EXPERT_UPS);
    if (beside) set |= WHEN_BESIDE | (c->experts.scaled ? WHEN_EXPERT_SCALES : 0);
    if (!l->experts || beside)
        set |= WHEN_DENSE | (a->fused_ffn ? WHEN_FUSED_FFN
                             : gates      ? WHEN_SPLIT_FFN
                                          : WHEN_UNGATED_FFN);
    if (l->experts && c->experts.shared_dim) set |= WHEN_SHARED | (gates ? WHEN_SHARED_GATES : 0);
    if (l->experts && a->shared == SHARED_GATED) set |= WHEN_SHARED_GATE;
    if (l->experts && a->biases) set |= WHEN_EXPERT_BIAS;
    if (l->experts && c->experts.select_bias) set |= WHEN_SELECT_BIAS;
    if (!a->no_pre_norms)
        set |= a->one_block       ? WHEN_SOLE_FFN_NORM
               : a->late_ffn_norm ? WHEN_LATE_FFN_NORM
                                  : WHEN_FFN_NORM;
    return set;
}

uint32_t tensor_size_of(const model_config *c, const layer_config *l, tensor_size size)
{
    switch (size) {
    case SIZE_DIM: return c->dim;
    case SIZE_HEAD: return l->head_dim;
    case SIZE_Q: return layer_q_dim(l);
    case SIZE_K: return layer_k_dim(l);
    case SIZE_V: return layer_v_dim(l);
    case SIZE_QKV: return layer_qkv_dim(l);
    case SIZE_LATENT_Q: return c->latent.q_rank;
    case SIZE_LATENT: return c->latent.kv_rank;
    case SIZE_LATENT_ROW: return c->latent.kv_rank + c->rope_dim;
    case SIZE_LATENT_HEADS: return l->num_heads * (c->latent.plain + c->rope_dim);
    case SIZE_LATENT_PLAIN: return c->latent.plain;
    case SIZE_LATENT_VALUE: return c->latent.value;
    case SIZE_LATENT_OUT: return l->num_heads * c->latent.value;
    case SIZE_HEADS: return l->num_heads;
    case SIZE_ATTN: return layer_attn_dim(l);
    case SIZE_FFN: return l->ffn_dim;
    case SIZE_2_FFN: return 2 * l->ffn_dim;
    case SIZE_EXPERTS: return c->experts.count;
    case SIZE_EXPERT: return c->experts.dim;
    case SIZE_SHARED: return c->experts.shared_dim;
    case SIZE_GATED_Q: return layer_q_rows(l);
    case SIZE_TAPS: return c->recurrent.taps;
    case SIZE_CONV: return c->recurrent.conv_dim;
    case SIZE_CONV_IN: return 3 * c->dim;
    case SIZE_STATE_HEADS: return c->recurrent.heads;
    case SIZE_STATE_VALUE: return c->recurrent.value;
    case SIZE_STATE_INNER: return state_inner(&c->recurrent);
    case SIZE_STATE_GROUPS: return c->recurrent.groups;
    case SIZE_STATE_GROUP: return state_inner(&c->recurrent) / c->recurrent.groups;
    case SIZE_MAMBA_IN:
        return state_inner(&c->recurrent) + c->recurrent.conv_dim + c->recurrent.heads;
    case SIZE_ONE: return 1;
    case SIZE_2_EXPERT: return 2 * c->experts.dim;
    case SIZE_LAYER_EMBD: return c->layer_embd;
    case SIZE_2_DIM: return 2 * c->dim;
    }
    return 0;
}

uint32_t tensor_field_end(uint32_t first)
{
    uint32_t end = first;
    while (end < num_tensor_defs && tensor_defs[end].field == tensor_defs[first].field)
        end++;
    return end;
}

uint32_t tensors_widest(const model_config *c)
{
    uint32_t widest = RAD_MAX(c->dim, c->num_layers * c->layer_embd);
    for (uint32_t i = 0; i < config_all_layers(c); i++) {
        const layer_config *l = &c->layers[i];
        const tensor_when set = tensors_of_layer(c, l);
        for (uint32_t r = 0; r < num_tensor_defs; r++)
            if (!tensor_is_vector(tensor_defs[r].form) && (set & tensor_defs[r].when))
                widest = RAD_MAX(widest, tensor_size_of(c, l, tensor_defs[r].cols));
    }
    return widest;
}

tensor_name tensor_name_of(uint32_t layer, const tensor_def *row)
{
    tensor_name n;
    snprintf(n.text, sizeof n.text, "blk.%u.%s", layer, row->name);
    return n;
}

static bool name_is(gguf_str name, const char *text)
{
    return name.len == strlen(text) && !memcmp(name.data, text, name.len);
}

bool tensor_known(const model_config *c, gguf_str name, bool *skipped)
{
    *skipped = false;
    for (size_t i = 0; i < RAD_COUNT(whole); i++)
        if (name_is(name, whole[i])) return true;
    if (name_is(name, tensor_last_norm(c))) return true;
    for (size_t i = 0; c->layer_embd && i < RAD_COUNT(of_layer_embd); i++)
        if (name_is(name, of_layer_embd[i])) return true;

    char text[sizeof(tensor_name)];
    uint32_t layer;
    int dots = 0;
    size_t len = RAD_MIN(name.len, sizeof text - 1);
    memcpy(text, name.data, len);
    text[len] = 0;
    if (sscanf(text, "blk.%9u.%n", &layer, &dots) != 1 || !dots) return false;
    const uint32_t all = config_all_layers(c);
    *skipped = layer >= all && layer < all + c->num_skipped;
    if (*skipped) return true;
    if (layer >= all || len < name.len) return false;
    const tensor_when set = tensors_of_layer(c, &c->layers[layer]);
    for (uint32_t r = 0; r < num_tensor_defs; r++) /* the whole name: "blk.03." is another */
        if ((set & tensor_defs[r].when) &&
            !strcmp(text, tensor_name_of(layer, &tensor_defs[r]).text))
            return true;
    return *skipped = c->layers[layer].guesses;
}
