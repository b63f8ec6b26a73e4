/* config.c - see config.h. Each number is checked against limits far above any real
 * model's but low enough that no product of two of them overflows 32 bits; how much
 * memory a model may take is then decided by its tensors, which lie in the file. */
#include "base/base.h"
#include "model/config_reader.h"

#include <math.h>
#include <stdio.h>

enum { MOST_DIM = 1 << 20, MOST_VOCAB = 1 << 24, MOST_LAYER_EMBD = 1 << 16 };

/* What would change the numbers and is not built must not be ignored. */
static void refuse_features(config_reader *r, const model_arch *a)
{
    const struct {
        const char *name;
        double neutral;
        bool built;
    } features[] = {
        {"expert_count", 0, a->experts != EXPERTS_NEVER},
        {"attention.causal", 1, false},
        {"attention.clamp_kqv", 0, false},
        {"attention.max_alibi_bias", 0, false},
        {"attention.temperature_length", 0, false},
        {"attention.temperature_scale", 0, a->q_temperature},
        {"attention.key_length_mla", 0, a->latent},
        {"embedding_scale", 1, a->scales},
        {"residual_scale", 1, a->scales},
        {"logit_scale", 1, a->scales},
        {"swin_norm", 0, false},
        {"use_parallel_residual", 0, false},
        {"attn_logit_softcapping", 0, a->logit_caps},
        {"final_logit_softcapping", 0, a->logit_caps || a->final_cap},
        {"attention.shared_kv_layers", 0, a->shared_kv},
        {"embedding_length_per_layer_input", 0, a->layer_embeddings},
    };
    for (size_t i = 0; i < RAD_COUNT(features); i++)
        if (!features[i].built) config_refuse(r, features[i].name, features[i].neutral);
}

static rad_status read_vocab(config_reader *r, model_config *c)
{
    const gguf_tensor *embd = gguf_find_tensor(r->file, "token_embd.weight");
    if (!embd) return rad_fail(r->err, RAD_E_FORMAT, "model: tensor token_embd.weight is missing");
    if (embd->dims[1] < 1 || embd->dims[1] > MOST_VOCAB)
        return rad_fail(r->err, RAD_E_FORMAT,
                        "model: token_embd.weight has %llu rows, expected 1 to %u",
                        (unsigned long long)embd->dims[1], MOST_VOCAB);
    c->vocab_size = (uint32_t)embd->dims[1];
    c->tied = !gguf_find_tensor(r->file, "output.weight");

    gguf_array tokens;
    rad_status status = gguf_get_arr(r->file, "tokenizer.ggml.tokens", GGUF_STR, &tokens, r->err);
    if (status == RAD_NONE) return RAD_OK;
    if (status == RAD_OK && tokens.count != c->vocab_size)
        return rad_fail(r->err, RAD_E_FORMAT,
                        "model: the vocabulary has %llu tokens, but token_embd.weight %u rows",
                        (unsigned long long)tokens.count, c->vocab_size);
    return status;
}

/* block_count has the layers and, behind them, those of heads that predict further tokens, which
 * an ordinary forward pass does not go through. */
static void read_num_layers(config_reader *r, model_config *c)
{
    uint32_t all = config_u32(r, "block_count", 0, MODEL_MOST_LAYERS);
    c->num_skipped = config_u32_or_0(r, "nextn_predict_layers", all ? all - 1 : 0);
    c->num_layers = all - c->num_skipped;
}

/* Gemma has a query_pre_attn_scalar of its own, which its files leave out: the width of a
 * head, but dim / heads in one model of each generation. */
static float scale_absent(const model_config *c)
{
    const layer_config *l = config_attention(c);
    bool by_dim = c->arch->layers_of_dim && c->num_layers == c->arch->layers_of_dim;
    return 1.0f / sqrtf(by_dim ? (float)c->dim / (float)l->num_heads : (float)l->head_dim);
}

/* What numbers are multiplied by on their way, and where they are capped. */
static void read_scales(config_reader *r, model_config *c)
{
    const model_arch *a = c->arch;
    c->embedding_scale = a->scale_embedding ? sqrtf((float)c->dim) : 1;
    c->residual_scale = c->logit_scale = 1;
    if (a->scales) {
        c->embedding_scale = config_f32_or_0(r, "embedding_scale", 0);
        c->residual_scale = config_f32_or_0(r, "residual_scale", 0);
        c->logit_scale = config_f32(r, "logit_scale", 0);
        if (c->embedding_scale == 0) c->embedding_scale = 1; /* 0 is how files say none */
        if (c->residual_scale == 0) c->residual_scale = 1;
    }
    c->attn_scale = config_f32_or_0(r, "attention.scale", 0);
    if (a->latent)
        c->attn_scale = config_latent_scale(r, c);
    else if (c->attn_scale == 0)
        c->attn_scale = a->scores_as_are ? 1 : scale_absent(c);
    if (a->logit_caps) {
        c->attn_logit_cap = config_f32_or_0(r, "attn_logit_softcapping", 50);
        c->final_logit_cap = config_f32_or_0(r, "final_logit_softcapping", 30);
    }
    if (a->final_cap) c->final_logit_cap = config_f32_or_0(r, "final_logit_softcapping", 0);
    if (a->q_temperature) {
        c->q_temperature = config_f32_or_0(r, "attention.temperature_scale", 0);
        c->q_period = c->ropes[0].scaling.original_context;
    }
}

/* Models for embeddings say which one. What else there is needs a head or attention that looks
 * ahead. */
static void read_pooling(config_reader *r, model_config *c)
{
    enum { MEAN = 1, LAST = 3, MOST = 4 };
    const uint32_t type = config_u32_or_0(r, "pooling_type", MOST);
    if (type == MEAN || type == LAST)
        c->pooling = type == MEAN ? POOL_MEAN : POOL_LAST;
    else
        config_refuse(r, "pooling_type", 0);
}

rad_status model_config_read(const gguf_file *file, uint32_t context, model_config *out,
                             rad_error *err)
{
    model_config c = {0};
    rad_status status = config_find_arch(file, &c.arch, err);
    if (status != RAD_OK) return status;

    config_reader r = {.file = file, .arch = c.arch->name, .err = err, .status = RAD_OK};
    refuse_features(&r, c.arch);
    read_pooling(&r, &c);
    c.context_length = config_u32(&r, "context_length", 0, INT32_MAX);
    read_num_layers(&r, &c);
    c.dim = config_u32(&r, "embedding_length", 0, MOST_DIM);
    c.rms_eps = config_f32(&r, "attention.layer_norm_rms_epsilon", 0);
    if (r.status != RAD_OK) return r.status;
    status = config_read_layers(&r, &c);
    if (status == RAD_OK) status = config_read_recurrent(&r, &c);
    if (status == RAD_OK && c.arch->latent) status = config_read_latent(&r, &c);
    if (status == RAD_OK) status = config_read_rope(&r, context, &c);
    if (status != RAD_OK) return status;
    config_read_experts(&r, &c);
    if (c.arch->layer_embeddings)
        c.layer_embd = config_u32_or_0(&r, "embedding_length_per_layer_input", MOST_LAYER_EMBD);
    read_scales(&r, &c);
    if (r.status != RAD_OK) return r.status;
    status = read_vocab(&r, &c);
    if (status != RAD_OK) return status;
    *out = c;
    return RAD_OK;
}
