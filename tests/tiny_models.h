/* tiny_models.h - models of every architecture with random weights, made in memory.
 *
 *     tiny_model m = {.arch = "gemma2", .vocab = 60, ...};
 *     tiny_writer w;
 *     tiny_model_write(&w, &m, &random_state);   // w.b.bytes, w.b.len: a GGUF file
 *     tiny_model_fini(&w);
 *
 * tiny_model_open() opens it as well.
 *
 * Which keys and tensors an architecture has is written down here once more, from GGUF's
 * conventions and not from src/model. */
#ifndef TESTS_TINY_MODELS_H
#define TESTS_TINY_MODELS_H

#include "test.h"
#include "tiny_vocab.h"

#include "base/base.h"
#include "base/minifloat.h"

#include <math.h>
#include <stdio.h>

typedef struct tiny_model {
    const char *arch;
    uint32_t vocab, layers, dim, ffn, heads, kv_heads, head_dim, v_head_dim, rope_dim, context;
    bool tied;
    uint32_t window;       /* attention.sliding_window; 0 = no such key */
    const char *rope_type; /* rope.scaling.type; NULL = no such key */
    float rope_factor;     /* these: 0 = no such key */
    float attn_factor;
    float beta_fast, beta_slow, ext_factor;
    uint32_t original_context;
    float attn_scale;
    float attn_cap, final_cap;
    float embedding_scale, residual_scale, logit_scale; /* granite; logit_scale must be there */
    bool no_rope;         /* granite: rope.scaling.finetuned = false */
    float window_base;    /* rope.freq_base_swa */
    uint32_t pattern;     /* sliding_window_pattern: 1 a period of 3, 2 a bool for each layer */
    float temperature;    /* mistral3: attention.temperature_scale */
    float log_multiplier; /* mistral3: rope.scaling.yarn_log_multiplier */
    uint32_t experts, used, expert_ffn, shared_ffn; /* expert_count ...; 0 = no such key */
    uint32_t dense;                                 /* leading_dense_block_count */
    uint32_t gating;                                /* expert_gating_func */
    float expert_scale;                             /* expert_weights_scale */
    int normed;                           /* expert_weights_norm: 1 yes, -1 no, 0 no such key */
    uint32_t groups, groups_used;         /* expert_group_count ... */
    uint32_t shared_experts;              /* expert_shared_count */
    uint32_t q_rank, kv_rank, key, value; /* deepseek2: head_dim is kv_rank + rope_dim */
    uint32_t taps;                        /* recurrent layers: ssm.conv_kernel, shortconv.l_cache */
    uint32_t state_heads, state_groups, state_key,
        state_value;    /* of them: ssm.time_step_rank ... */
    uint32_t attention; /* which are not: every so many-th, and at least one */
    uint32_t moe_step;  /* interleave_moe_layer_step; 0: no such key */
    bool select_bias;   /* ernie4_5-moe: tensors exp_probs_b */
    bool no_ffn;        /* no feed_forward_length: all layers are mixtures */
    bool flat_router;   /* all its weights are 0: every choice is a tie */
    bool arrays;        /* heads and widths as arrays, widths that differ */
    bool rope_freqs;    /* a tensor of divisors */
    bool longrope;      /* two of them */
    /* gemma4, where two of three layers slide: their heads' width (0: as the others') and KV heads,
     * layers without K/V of their own, widths of second embeddings; the full ones have no attn_v;
     * a number for each layer's output; gates and ups in one tensor; a number for each expert. */
    uint32_t window_head_dim, window_kv_heads, shared_kv, layer_embd;
    bool v_is_k, output_scale, pairs, expert_scales;
    bool quantised;      /* matrices in quantised types that differ within a layer; */
    uint32_t one_type;   /* or all of this one of ggml_type, where their rows have whole blocks; */
    uint32_t other_type; /* but attn_v, ffn_down and output of this one; 0: of that */
    bool with_vocab;     /* tiny_vocab.h's BPE: `vocab` must be TINY_BPE_TOKENS */
    uint32_t nextn;      /* nextn_predict_layers: heads behind the layers */
    bool nextn_knows;    /* the first head says what the model says: see tiny_nextn */
} tiny_model;

enum { TINY_F32 = 1 << 16 }; /* F32 as tiny_model.one_type */
enum { TINY_BPE_TOKENS = 256 + TINY_MERGES - 1 + TINY_SPECIALS };

typedef struct tiny_writer {
    gguf_builder b;
    const tiny_model *m;
    uint64_t *state;
    uint8_t *data;
    size_t len, cap;
    uint32_t many; /* matrices in the next tensors, which then have three dimensions; 0: one */
    float gain;    /* of their numbers */
    bool plain;    /* they are of f32 */
} tiny_writer;

static inline const char *tiny_key(const tiny_writer *w, const char *name)
{
    static char key[96];
    snprintf(key, sizeof key, "%s.%s", w->m->arch, name);
    return key;
}

static inline void tiny_u32(tiny_writer *w, const char *name, uint32_t value)
{
    gguf_put_kv_u32(&w->b, tiny_key(w, name), value);
}

/* 0: left out. */
static inline void tiny_f32(tiny_writer *w, const char *name, float value)
{
    if (value == 0) return;
    gguf_put_key(&w->b, tiny_key(w, name), GGUF_F32);
    gguf_put(&w->b, &value, sizeof value);
}

static inline bool tiny_is(const tiny_model *m, const char *archs)
{
    size_t n = strlen(m->arch);
    for (const char *at = archs; (at = strstr(at, m->arch)); at += n)
        if ((at == archs || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return true;
    return false;
}

/* Of one layer. */
static inline uint32_t tiny_ffn(const tiny_model *m, uint32_t layer)
{
    return m->arrays ? m->ffn + 32 * (layer % 2) : m->ffn;
}

static inline void tiny_bool(tiny_writer *w, const char *name, bool value)
{
    gguf_put_key(&w->b, tiny_key(w, name), GGUF_BOOL);
    gguf_put(&w->b, &(uint8_t){value}, 1);
}

static inline bool tiny_slides(const tiny_model *m, uint32_t layer)
{
    return tiny_is(m, "gemma4") && layer % 3 != 2;
}

static inline uint32_t tiny_head_dim(const tiny_model *m, uint32_t layer)
{
    return m->window_head_dim && tiny_slides(m, layer) ? m->window_head_dim : m->head_dim;
}

static inline uint32_t tiny_kv_heads(const tiny_model *m, uint32_t layer)
{
    return m->window_kv_heads && tiny_slides(m, layer) ? m->window_kv_heads : m->kv_heads;
}

/* Nemotron's layers are one block each: Mamba, feed-forward, attention, and so on. */
static inline bool tiny_one_block(const tiny_model *m)
{
    return tiny_is(m, "nemotron_h nemotron_h_moe");
}

static inline bool tiny_recurrent(const tiny_model *m, uint32_t layer)
{
    if (tiny_one_block(m)) return layer % 3 == 0;
    return m->taps && layer < m->layers && layer % m->attention != m->attention - 1;
}

/* A number for each layer, in an array where the model has arrays. */
static inline void tiny_layers_u32(tiny_writer *w, const char *name, uint32_t value, uint32_t more)
{
    if (!w->m->arrays) {
        tiny_u32(w, name, value);
        return;
    }
    gguf_put_kv_arr(&w->b, tiny_key(w, name), GGUF_I32, w->m->layers);
    for (uint32_t l = 0; l < w->m->layers; l++)
        gguf_put(&w->b, &(int32_t){(int32_t)(value + more * (l % 2))}, 4);
}

static inline float tiny_number(uint64_t *state) /* [-1, 1) */
{
    return (float)((double)(test_random(state) >> 11) * 0x1p-52 - 1);
}

static inline void tiny_bytes(tiny_writer *w, const void *bytes, size_t len)
{
    if (w->len + len > w->cap) {
        w->cap = 2 * (w->len + len);
        w->data = realloc(w->data, w->cap);
        if (!w->data) abort();
    }
    memcpy(w->data + w->len, bytes, len);
    w->len += len;
}

/* The one type that a matrix is to have; 0: any. */
static inline uint32_t tiny_one_type(const tiny_writer *w, const char *name)
{
    const bool other = strstr(name, "attn_v") || strstr(name, "ffn_down") ||
                       strcmp(name, "output.weight") == 0;
    return other && w->m->other_type ? w->m->other_type : w->m->one_type;
}

/* A quantised matrix of random blocks, numbers about 0 and `scale` large at most. */
static inline void tiny_quantised(tiny_writer *w, const char *name, uint32_t cols, uint32_t rows,
                                  float scale)
{
    static const struct {
        uint32_t type, values, bytes, at; /* `at`: where d lies; dmin, if any, is behind it */
        float most, min;                  /* in units of d; dmin in units of d */
    } all[] = {{GGML_Q8_0, 32, 34, 0, 128, 0},         {GGML_Q4_0, 32, 18, 0, 8, 0},
               {GGML_Q4_1, 32, 20, 0, 7.5f, -7.5f},    {GGML_Q5_0, 32, 22, 0, 16, 0},
               {GGML_Q5_1, 32, 24, 0, 15.5f, -15.5f},  {GGML_IQ4_NL, 32, 18, 0, 127, 0},
               {GGML_MXFP4, 32, 17, 0, 0, 0},          {GGML_Q2_K, 256, 84, 80, 15 * 1.5f, 1.5f},
               {GGML_Q3_K, 256, 110, 108, 32 * 4, 0},  {GGML_Q4_K, 256, 144, 0, 63 * 7.5f, 7.5f},
               {GGML_Q5_K, 256, 176, 0, 63 * 15, 15},  {GGML_Q6_K, 256, 210, 208, 128 * 32, 0},
               {GGML_IQ4_XS, 256, 136, 0, 32 * 127, 0}};
    enum { BLOCKS_OF_32 = 7 };
    size_t i = test_random(w->state) % (cols % 256 ? BLOCKS_OF_32 : RAD_COUNT(all));
    const uint32_t one = tiny_one_type(w, name);
    for (size_t k = 0; one && k < RAD_COUNT(all); k++)
        if (all[k].type == one) i = k;
    const size_t many = w->many ? w->many : 1;
    gguf_put_tensor(&w->b, name, all[i].type, w->many ? 3 : 2, (uint64_t[]){cols, rows, many},
                    w->len);
    for (size_t b = 0; b < (size_t)cols * rows * many / all[i].values; b++) {
        uint8_t block[256];
        const float unit = all[i].most > 0 ? scale / all[i].most : 0;
        uint16_t d = f16_from_f32(unit), min = f16_from_f32(unit * all[i].min);
        for (uint32_t at = 0; at < all[i].bytes; at++)
            block[at] = (uint8_t)(test_random(w->state) >> 20);
        if (all[i].most > 0)
            memcpy(block + all[i].at, &d, sizeof d);
        else /* a power of two, and 6 at most */
            block[0] = (uint8_t)(127 + (int)floorf(log2f(scale / 6)));
        if (all[i].min != 0) memcpy(block + all[i].at + 2, &min, sizeof min);
        tiny_bytes(w, block, all[i].bytes);
    }
    while (w->len % 32)
        tiny_bytes(w, "", 1);
}

/* A matrix of any of four types, or (rows 0) a vector around `middle`. The layer's number
 * replaces %u in the name. */
static inline void tiny_tensor(tiny_writer *w, const char *name, uint32_t layer, uint32_t cols,
                               uint32_t rows, float middle)
{
    char full[64] = "";
    const char *rest = strstr(name, "%u");
    if (rest)
        snprintf(full, sizeof full, "blk.%u%s", layer, rest + 2);
    else
        snprintf(full, sizeof full, "%s", name);
    const uint32_t one = rows && !w->plain ? tiny_one_type(w, full) : 0;
    if (rows &&
        (w->m->quantised || (one && one != GGML_F16 && one != GGML_BF16 && one != TINY_F32)) &&
        cols % 32 == 0 && !w->plain) {
        tiny_quantised(w, full, cols, rows, 3 / sqrtf((float)cols));
        return;
    }
    uint32_t type = GGML_F32;
    if (rows && test_random(w->state) % 2) type = GGML_BF16;
    if (rows && cols % 32 == 0 && test_random(w->state) % 2) type = GGML_Q8_0;
    if (one == GGML_F16 || one == GGML_BF16) type = one;
    if (one == TINY_F32) type = GGML_F32;
    if (w->plain) type = GGML_F32;
    const size_t many = w->many ? w->many : 1;
    gguf_put_tensor(&w->b, full, type,
                    w->many ? 3
                    : rows  ? 2
                            : 1,
                    (uint64_t[]){cols, rows, many}, w->len);
    size_t count = (size_t)cols * (rows ? rows : 1) * many;
    float scale = w->gain * 1.7f / sqrtf((float)cols);
    for (size_t i = 0; i < count; i++) {
        float value = rows ? tiny_number(w->state) * scale : middle + tiny_number(w->state) / 4;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (type == GGML_F32) tiny_bytes(w, &value, sizeof value);
        if (type == GGML_F16) tiny_bytes(w, &(uint16_t){f16_from_f32(value)}, 2);
        if (type == GGML_BF16) tiny_bytes(w, &(uint16_t){(uint16_t)(bits >> 16)}, 2);
        if (type == GGML_Q8_0 && i % 32 == 0) tiny_bytes(w, &(uint16_t){0x1400}, 2); /* 2^-10 */
        if (type == GGML_Q8_0) tiny_bytes(w, &(int8_t){(int8_t)(value / scale * 100)}, 1);
    }
    while (w->len % 32)
        tiny_bytes(w, "", 1);
}

static inline void tiny_keys(tiny_writer *w)
{
    const tiny_model *m = w->m;
    gguf_put_kv_str(&w->b, "general.architecture", m->arch);
    tiny_u32(w, "context_length", m->context);
    tiny_u32(w, "embedding_length", m->dim);
    tiny_u32(w, "block_count", m->layers + m->nextn);
    if (m->nextn) tiny_u32(w, "nextn_predict_layers", m->nextn);
    if (tiny_one_block(m)) {
        gguf_put_kv_arr(&w->b, tiny_key(w, "feed_forward_length"), GGUF_I32, m->layers);
        for (uint32_t l = 0; l < m->layers; l++)
            gguf_put(&w->b, &(int32_t){l % 3 == 1 ? (int32_t)m->ffn : 0}, 4);
    } else if (!m->no_ffn)
        tiny_layers_u32(w, "feed_forward_length", m->ffn, 32);
    tiny_layers_u32(w, "attention.head_count", m->heads, 0);
    if (m->taps && !tiny_is(m, "qwen35 qwen35moe")) {
        gguf_put_kv_arr(&w->b, tiny_key(w, "attention.head_count_kv"), GGUF_I32, m->layers);
        for (uint32_t l = 0; l < m->layers; l++)
            gguf_put(&w->b,
                     &(int32_t){tiny_recurrent(m, l) || (tiny_one_block(m) && l % 3 == 1)
                                    ? 0
                                    : (int32_t)m->kv_heads},
                     4);
    } else if (m->window_kv_heads) {
        gguf_put_kv_arr(&w->b, tiny_key(w, "attention.head_count_kv"), GGUF_I32, m->layers);
        for (uint32_t l = 0; l < m->layers; l++)
            gguf_put(&w->b, &(int32_t){(int32_t)tiny_kv_heads(m, l)}, 4);
    } else {
        tiny_layers_u32(w, "attention.head_count_kv", m->kv_heads, 0);
    }
    tiny_u32(w, "attention.key_length", m->head_dim);
    tiny_u32(w, "attention.value_length", m->v_head_dim);
    tiny_u32(w, "rope.dimension_count", m->rope_dim);
    /* The delta rule norms what may be next to nothing, as do Gemma 4's layers what they add of a
     * second embedding: a small number makes much of rounding. */
    tiny_f32(w, "attention.layer_norm_rms_epsilon",
             tiny_is(m, "qwen35 qwen35moe gemma4") ? 1e-3f : 1e-5f);
    if (m->window) tiny_u32(w, "attention.sliding_window", m->window);
    if (m->rope_type) gguf_put_kv_str(&w->b, tiny_key(w, "rope.scaling.type"), m->rope_type);
    tiny_f32(w, "rope.scaling.factor", m->rope_factor);
    tiny_f32(w, "rope.scaling.attn_factor", m->attn_factor);
    tiny_f32(w, "rope.scaling.yarn_beta_fast", m->beta_fast);
    tiny_f32(w, "rope.scaling.yarn_beta_slow", m->beta_slow);
    tiny_f32(w, "rope.scaling.yarn_ext_factor", m->ext_factor);
    if (m->original_context)
        tiny_u32(w, "rope.scaling.original_context_length", m->original_context);
    tiny_f32(w, "attention.scale", m->attn_scale);
    tiny_f32(w, "attn_logit_softcapping", m->attn_cap);
    tiny_f32(w, "final_logit_softcapping", m->final_cap);
    tiny_f32(w, "expert_weights_scale", m->expert_scale);
    const struct {
        const char *name;
        uint32_t value;
    } experts[] = {
        {"expert_count", m->experts},
        {"expert_used_count", m->used},
        {"expert_feed_forward_length", m->expert_ffn},
        {"expert_shared_feed_forward_length", m->shared_ffn},
        {"leading_dense_block_count", m->dense},
        {"expert_gating_func", m->gating},
        {"expert_group_count", m->groups},
        {"expert_group_used_count", m->groups_used},
        {"expert_shared_count", m->shared_experts},
        {"attention.q_lora_rank", m->q_rank},
        {"attention.kv_lora_rank", m->kv_rank},
        {"attention.key_length_mla", m->kv_rank ? m->key : 0},
        {"attention.value_length_mla", m->kv_rank ? m->value : 0},
        {"interleave_moe_layer_step", m->moe_step},
        {"attention.key_length_swa", m->window_head_dim},
        {"attention.value_length_swa", m->window_head_dim},
        {"rope.dimension_count_swa", m->window_head_dim > 3 ? m->window_head_dim / 4 * 2 : 0},
        {"attention.shared_kv_layers", m->shared_kv},
        {"embedding_length_per_layer_input", m->layer_embd},
        {"shortconv.l_cache", tiny_is(m, "lfm2 lfm2moe") ? m->taps : 0},
        {"ssm.conv_kernel", m->state_heads ? m->taps : 0},
        {"ssm.time_step_rank", m->state_heads},
        {"ssm.group_count", m->state_groups},
        {"ssm.state_size", m->state_key},
        {"ssm.inner_size", m->state_heads * m->state_value},
        {"full_attention_interval",
         tiny_is(m, "qwen35 qwen35moe") && m->attention != 4 ? m->attention : 0}};
    for (size_t i = 0; i < RAD_COUNT(experts); i++)
        if (experts[i].value) tiny_u32(w, experts[i].name, experts[i].value);
    if (m->normed) tiny_bool(w, "expert_weights_norm", m->normed > 0);
    tiny_f32(w, "embedding_scale", m->embedding_scale);
    tiny_f32(w, "residual_scale", m->residual_scale);
    tiny_f32(w, "logit_scale", m->logit_scale);
    tiny_f32(w, "rope.freq_base_swa", m->window_base);
    tiny_f32(w, "attention.temperature_scale", m->temperature);
    tiny_f32(w, "rope.scaling.yarn_log_multiplier", m->log_multiplier);
    if (m->no_rope) tiny_bool(w, "rope.scaling.finetuned", false);
    if (m->pattern == 1) tiny_u32(w, "attention.sliding_window_pattern", 3);
    if (tiny_is(m, "gemma4")) {
        gguf_put_kv_arr(&w->b, tiny_key(w, "attention.sliding_window_pattern"), GGUF_BOOL,
                        m->layers);
        for (uint32_t l = 0; l < m->layers; l++)
            gguf_put(&w->b, &(uint8_t){tiny_slides(m, l)}, 1);
    }
    if (m->pattern == 2) {
        gguf_put_kv_arr(&w->b, tiny_key(w, "attention.sliding_window_pattern"), GGUF_BOOL,
                        m->layers);
        for (uint32_t l = 0; l < m->layers; l++)
            gguf_put(&w->b, &(uint8_t){l % 3 == 1}, 1);
    }
    if (tiny_is(m, "qwen3vl qwen35 qwen35moe")) {
        const int32_t sections[4] = {(int32_t)m->rope_dim / 2 - 1, 1, 0, 0};
        gguf_put_kv_arr(&w->b, tiny_key(w, "rope.dimension_sections"), GGUF_I32, 4);
        gguf_put(&w->b, sections, sizeof sections);
    }
}

/* Of one expert. */
static inline uint32_t tiny_expert_ffn(const tiny_model *m)
{
    if (m->expert_ffn) return m->expert_ffn;
    return tiny_is(m, "qwen2moe qwen3moe") ? m->ffn / m->used : m->ffn;
}

/* Multi-head latent attention, but for its output. */
static inline void tiny_latent(tiny_writer *w, uint32_t l)
{
    const tiny_model *m = w->m;
    const uint32_t all = m->heads * m->key;
    if (m->q_rank) {
        tiny_tensor(w, "blk.%u.attn_q_a.weight", l, m->dim, m->q_rank, 0);
        tiny_tensor(w, "blk.%u.attn_q_a_norm.weight", l, m->q_rank, 0, 1);
        tiny_tensor(w, "blk.%u.attn_q_b.weight", l, m->q_rank, all, 0);
    } else {
        tiny_tensor(w, "blk.%u.attn_q.weight", l, m->dim, all, 0);
    }
    tiny_tensor(w, "blk.%u.attn_kv_a_mqa.weight", l, m->dim, m->kv_rank + m->rope_dim, 0);
    tiny_tensor(w, "blk.%u.attn_kv_a_norm.weight", l, m->kv_rank, 0, 1);
    w->many = m->heads;
    tiny_tensor(w, "blk.%u.attn_k_b.weight", l, m->key - m->rope_dim, m->kv_rank, 0);
    tiny_tensor(w, "blk.%u.attn_v_b.weight", l, m->kv_rank, m->value, 0);
    w->many = 0;
}

static inline void tiny_experts(tiny_writer *w, uint32_t l)
{
    const tiny_model *m = w->m;
    const uint32_t ffn = tiny_expert_ffn(m);
    const uint32_t shared = m->shared_experts
                                ? m->shared_experts * (m->shared_ffn ? m->shared_ffn : ffn)
                            : tiny_is(m, "bailingmoe2") ? 0
                                                        : m->shared_ffn;
    w->gain = m->flat_router ? 0 : 3; /* so that choices are clear */
    w->plain = true;
    tiny_tensor(w, "blk.%u.ffn_gate_inp.weight", l, m->dim, m->experts, 0);
    w->gain = 1;
    if (tiny_is(m, "gpt-oss")) {
        tiny_tensor(w, "blk.%u.ffn_gate_inp.bias", l, m->experts, 0, 0);
        tiny_tensor(w, "blk.%u.ffn_gate_exps.bias", l, ffn, m->experts, 0);
        tiny_tensor(w, "blk.%u.ffn_up_exps.bias", l, ffn, m->experts, 0);
        tiny_tensor(w, "blk.%u.ffn_down_exps.bias", l, m->dim, m->experts, 0);
    }
    if (m->select_bias ||
        (m->gating == 2 && tiny_is(m, "deepseek2 lfm2moe bailingmoe2"))) /* DeepSeek-V3 */
        tiny_tensor(w, "blk.%u.exp_probs_b.bias", l, m->experts, 0, 0);
    w->plain = false;
    if (tiny_is(m, "gemma4")) {
        tiny_tensor(w, "blk.%u.ffn_gate_inp.scale", l, m->dim, 0, sqrtf((float)m->dim));
        tiny_tensor(w, "blk.%u.post_ffw_norm_1.weight", l, m->dim, 0, 1);
        tiny_tensor(w, "blk.%u.pre_ffw_norm_2.weight", l, m->dim, 0, 1);
        tiny_tensor(w, "blk.%u.post_ffw_norm_2.weight", l, m->dim, 0, 1);
        if (m->expert_scales) tiny_tensor(w, "blk.%u.ffn_down_exps.scale", l, m->experts, 0, 1);
    }
    w->many = m->experts;
    const bool gates = !tiny_one_block(m);
    if (m->pairs) tiny_tensor(w, "blk.%u.ffn_gate_up_exps.weight", l, m->dim, 2 * ffn, 0);
    if (gates && !m->pairs) tiny_tensor(w, "blk.%u.ffn_gate_exps.weight", l, m->dim, ffn, 0);
    if (!m->pairs) tiny_tensor(w, "blk.%u.ffn_up_exps.weight", l, m->dim, ffn, 0);
    tiny_tensor(w, "blk.%u.ffn_down_exps.weight", l, ffn, m->dim, 0);
    w->many = 0;
    if (tiny_is(m, "qwen2moe qwen35moe"))
        tiny_tensor(w, "blk.%u.ffn_gate_inp_shexp.weight", l, m->dim, 0, 0);
    if (!shared) return;
    if (gates) tiny_tensor(w, "blk.%u.ffn_gate_shexp.weight", l, m->dim, shared, 0);
    tiny_tensor(w, "blk.%u.ffn_up_shexp.weight", l, m->dim, shared, 0);
    tiny_tensor(w, "blk.%u.ffn_down_shexp.weight", l, shared, m->dim, 0);
}

/* A vector of numbers about `middle` in a tensor of `count` rows. */
static inline void tiny_f32_rows(tiny_writer *w, const char *name, uint32_t l, uint32_t cols,
                                 uint32_t count, float middle, float spread)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%u.%s", l, name);
    gguf_put_tensor(&w->b, full, GGML_F32, count ? 2 : 1, (uint64_t[]){cols, count}, w->len);
    for (size_t i = 0; i < (size_t)cols * (count ? count : 1); i++) {
        const float value = middle + spread * tiny_number(w->state);
        tiny_bytes(w, &value, sizeof value);
    }
    while (w->len % 32)
        tiny_bytes(w, "", 1);
}

/* All of a recurrent layer but its norms and feed-forward. */
static inline void tiny_state_layer(tiny_writer *w, uint32_t l)
{
    const tiny_model *m = w->m;
    const uint32_t inner = m->state_heads * m->state_value,
                   conv = inner + 2 * m->state_groups * m->state_key;
    if (!m->state_heads) {
        tiny_f32_rows(w, "shortconv.conv.weight", l, m->taps, m->dim, 0, 1);
        tiny_tensor(w, "blk.%u.shortconv.in_proj.weight", l, m->dim, 3 * m->dim, 0);
        tiny_tensor(w, "blk.%u.shortconv.out_proj.weight", l, m->dim, m->dim, 0);
        return;
    }
    const bool delta = tiny_is(m, "qwen35 qwen35moe");
    tiny_f32_rows(w, "ssm_conv1d.weight", l, m->taps, conv, 0, 1);
    tiny_f32_rows(w, "ssm_dt.bias", l, m->state_heads, 0, 0, 1);
    tiny_f32_rows(w, "ssm_a", l, delta ? m->state_heads : 1, delta ? 0 : m->state_heads, -1, 0.95f);
    if (delta) {
        tiny_tensor(w, "blk.%u.attn_qkv.weight", l, m->dim, conv, 0);
        tiny_tensor(w, "blk.%u.attn_gate.weight", l, m->dim, inner, 0);
        tiny_tensor(w, "blk.%u.ssm_beta.weight", l, m->dim, m->state_heads, 0);
        tiny_tensor(w, "blk.%u.ssm_alpha.weight", l, m->dim, m->state_heads, 0);
        tiny_tensor(w, "blk.%u.ssm_norm.weight", l, m->state_value, 0, 1);
    } else {
        tiny_tensor(w, "blk.%u.ssm_in.weight", l, m->dim, inner + conv + m->state_heads, 0);
        tiny_f32_rows(w, "ssm_conv1d.bias", l, conv, 0, 0, 0.3f);
        tiny_f32_rows(w, "ssm_d", l, 1, m->state_heads, 1, 0.5f);
        tiny_f32_rows(w, "ssm_norm.weight", l, inner / m->state_groups, m->state_groups, 1, 0.2f);
    }
    tiny_tensor(w, "blk.%u.ssm_out.weight", l, inner, m->dim, 0);
}

/* Attention, but for its norm; `q` rows of queries, and of gates, where there are such. */
static inline void tiny_attention(tiny_writer *w, uint32_t l)
{
    const tiny_model *m = w->m;
    const uint32_t width = tiny_head_dim(m, l), kv = tiny_kv_heads(m, l);
    const uint32_t v_width = tiny_slides(m, l) ? width : m->v_head_dim;
    const bool own = l < m->layers - m->shared_kv || l >= m->layers;
    uint32_t q = m->heads * width, k = kv * width, v = kv * v_width;
    if (m->kv_rank) {
        tiny_latent(w, l);
    } else if (tiny_is(m, "phi3 bailingmoe2")) {
        tiny_tensor(w, "blk.%u.attn_qkv.weight", l, m->dim, q + k + v, 0);
    } else {
        tiny_tensor(w, "blk.%u.attn_q.weight", l, m->dim,
                    tiny_is(m, "qwen35 qwen35moe") ? 2 * q : q, 0);
        if (own) tiny_tensor(w, "blk.%u.attn_k.weight", l, m->dim, k, 0);
        if (own && (!m->v_is_k || tiny_slides(m, l)))
            tiny_tensor(w, "blk.%u.attn_v.weight", l, m->dim, v, 0);
    }
    if (tiny_is(m, "qwen2 qwen2moe gpt-oss")) {
        tiny_tensor(w, "blk.%u.attn_q.bias", l, q, 0, 0);
        tiny_tensor(w, "blk.%u.attn_k.bias", l, k, 0, 0);
        tiny_tensor(w, "blk.%u.attn_v.bias", l, v, 0, 0);
    }
    const bool of_heads =
                   tiny_is(m, "qwen3 qwen3vl qwen3moe gemma3 gemma4 qwen35 qwen35moe lfm2 lfm2moe "
                              "bailingmoe2"),
               of_rows = tiny_is(m, "olmo2 olmoe");
    if (of_heads || of_rows) {
        /* Gemma 4 does not scale scores: its queries are small instead. */
        tiny_tensor(w, "blk.%u.attn_q_norm.weight", l, of_rows ? q : width, 0,
                    tiny_is(m, "gemma4") ? 0.3f : 1);
        if (own) tiny_tensor(w, "blk.%u.attn_k_norm.weight", l, of_rows ? k : width, 0, 1);
    }
    tiny_tensor(w, "blk.%u.attn_output.weight", l, m->heads * (m->kv_rank ? m->value : v_width),
                m->dim, 0);
}

static inline void tiny_layer(tiny_writer *w, uint32_t l)
{
    const tiny_model *m = w->m;
    const uint32_t ffn = tiny_one_block(m) ? m->ffn : tiny_ffn(m, l);
    const bool phi3 = tiny_is(m, "phi3"), pre_norms = !tiny_is(m, "olmo2"),
               post_norms = tiny_is(m, "gemma2 gemma3 gemma4 olmo2");
    if (pre_norms) tiny_tensor(w, "blk.%u.attn_norm.weight", l, m->dim, 0, 1);
    if (tiny_recurrent(m, l))
        tiny_state_layer(w, l);
    else if (!tiny_one_block(m) || l % 3 == 2)
        tiny_attention(w, l);
    if (tiny_one_block(m) && l % 3 != 1) return;
    if (tiny_is(m, "gpt-oss")) {
        tiny_tensor(w, "blk.%u.attn_output.bias", l, m->dim, 0, 0);
        tiny_tensor(w, "blk.%u.attn_sinks.weight", l, m->heads, 0, 0.5f);
    }
    if (post_norms) tiny_tensor(w, "blk.%u.post_attention_norm.weight", l, m->dim, 0, 1);
    const bool late = tiny_is(m, "gpt-oss qwen35 qwen35moe");
    if (late) tiny_tensor(w, "blk.%u.post_attention_norm.weight", l, m->dim, 0, 1); /* ffn_norm */
    if (pre_norms && !late && !tiny_one_block(m))
        tiny_tensor(w, "blk.%u.ffn_norm.weight", l, m->dim, 0, 1);
    const bool experts = m->experts && l >= m->dense &&
                         (!m->moe_step || (l + 1) % m->moe_step == 0);
    if (experts) tiny_experts(w, l);
    if (!experts || tiny_is(m, "gemma4")) {
        if (!phi3 && !tiny_one_block(m))
            tiny_tensor(w, "blk.%u.ffn_gate.weight", l, m->dim, ffn, 0);
        tiny_tensor(w, "blk.%u.ffn_up.weight", l, m->dim, ffn * (phi3 ? 2 : 1), 0);
        tiny_tensor(w, "blk.%u.ffn_down.weight", l, ffn, m->dim, 0);
    }
    if (post_norms) tiny_tensor(w, "blk.%u.post_ffw_norm.weight", l, m->dim, 0, 1);
    if (m->layer_embd) {
        tiny_tensor(w, "blk.%u.inp_gate.weight", l, m->dim, m->layer_embd, 0);
        tiny_tensor(w, "blk.%u.proj.weight", l, m->layer_embd, m->dim, 0);
        tiny_tensor(w, "blk.%u.post_norm.weight", l, m->dim, 0, 1);
    }
    if (m->output_scale) tiny_tensor(w, "blk.%u.layer_output_scale.weight", l, 1, 0, 0.8f);
}

/* One after another: the numbers that one tensor has, of f32. */
static inline void tiny_plain(tiny_writer *w, const char *name, uint32_t cols, uint32_t rows,
                              const float *numbers)
{
    gguf_put_tensor(&w->b, name, GGML_F32, rows ? 2 : 1, (uint64_t[]){cols, rows}, w->len);
    tiny_bytes(w, numbers, (size_t)cols * (rows ? rows : 1) * sizeof *numbers);
    while (w->len % 32)
        tiny_bytes(w, "", 1);
}

/* Rows whose root mean square is 1. */
static inline void tiny_unit_rows(tiny_writer *w, const char *name, uint32_t cols, uint32_t rows)
{
    float *x = malloc((size_t)cols * rows * sizeof *x);
    for (uint32_t r = 0; r < rows; r++) {
        double squares = 0;
        for (uint32_t i = 0; i < cols; i++)
            x[(size_t)r * cols + i] = tiny_number(w->state);
        for (uint32_t i = 0; i < cols; i++)
            squares += (double)x[(size_t)r * cols + i] * (double)x[(size_t)r * cols + i];
        for (uint32_t i = 0; i < cols; i++)
            x[(size_t)r * cols + i] /= (float)sqrt(squares / cols);
    }
    tiny_plain(w, name, cols, rows, x);
    free(x);
}

/* The layer whose copy a head that knows is. */
static inline bool tiny_is_copied(const tiny_model *m, uint32_t l)
{
    return m->nextn_knows && l == m->layers - 1;
}

/* The heads. One that knows is the model's last layer once more, which reads the next token's
 * embedding and nothing else; embeddings have the size that its norm gives them, and what other
 * layers add is next to nothing (tiny_layer). So it says of the next token what the model will say
 * of it, but for what the text's first token has to do with it. */
static inline void tiny_nextn(tiny_writer *w, const uint64_t *copied)
{
    const tiny_model *m = w->m;
    for (uint32_t l = m->layers; l < m->layers + m->nextn; l++) {
        const bool knows = m->nextn_knows && l == m->layers;
        char name[64];
        uint64_t again = *copied, *state = w->state;
        if (knows) w->state = &again;
        tiny_layer(w, l);
        w->state = state;
        tiny_f32_rows(w, "nextn.enorm.weight", l, m->dim, 0, 1, knows ? 0 : 0.25f);
        tiny_f32_rows(w, "nextn.hnorm.weight", l, m->dim, 0, 1, knows ? 0 : 0.25f);
        snprintf(name, sizeof name, "blk.%u.nextn.eh_proj.weight", l);
        if (knows) {
            float *proj = calloc(2 * (size_t)m->dim * m->dim, sizeof *proj);
            for (size_t i = 0; i < m->dim; i++)
                proj[i * 2 * m->dim + i] = 1;
            tiny_plain(w, name, 2 * m->dim, m->dim, proj);
            free(proj);
        } else {
            tiny_tensor(w, "blk.%u.nextn.eh_proj.weight", l, 2 * m->dim, m->dim, 0);
            tiny_tensor(w, "blk.%u.nextn.shared_head_norm.weight", l, m->dim, 0, 1);
        }
        /* As some files have them: the model's own once more. */
        if (!knows) tiny_tensor(w, "blk.%u.nextn.embed_tokens.weight", l, m->dim, m->vocab, 0);
    }
}

static inline void tiny_model_write(tiny_writer *w, const tiny_model *m, uint64_t *state)
{
    *w = (tiny_writer){.m = m, .state = state, .gain = 1};
    if (m->with_vocab)
        tiny_bpe(&w->b, NULL);
    else
        gguf_builder_init(&w->b, 3);
    tiny_keys(w);
    if (m->nextn_knows)
        tiny_unit_rows(w, "token_embd.weight", m->dim, m->vocab);
    else
        tiny_tensor(w, "token_embd.weight", 0, m->dim, m->vocab, 0);
    uint64_t copied = 0;
    for (uint32_t l = 0; l < m->layers; l++) {
        if (tiny_is_copied(m, l)) copied = *state;
        w->gain = m->nextn_knows && !tiny_is_copied(m, l) ? 1e-4f : 1;
        tiny_layer(w, l);
    }
    w->gain = 1;
    tiny_nextn(w, &copied);
    tiny_tensor(w, tiny_is(m, "lfm2 lfm2moe") ? "token_embd_norm.weight" : "output_norm.weight", 0,
                m->dim, 0, 1);
    if (!m->tied) tiny_tensor(w, "output.weight", 0, m->dim, m->vocab, 0);
    if (m->layer_embd) {
        const uint32_t all = m->layers * m->layer_embd;
        tiny_tensor(w, "per_layer_token_embd.weight", 0, all, m->vocab, 0);
        tiny_tensor(w, "per_layer_model_proj.weight", 0, m->dim, all, 0);
        tiny_tensor(w, "per_layer_proj_norm.weight", 0, m->layer_embd, 0, 1);
    }
    if (m->rope_freqs) tiny_tensor(w, "rope_freqs.weight", 0, m->rope_dim / 2, 0, 3);
    if (m->longrope) {
        tiny_tensor(w, "rope_factors_long.weight", 0, m->rope_dim / 2, 0, 5);
        tiny_tensor(w, "rope_factors_short.weight", 0, m->rope_dim / 2, 0, 1.5f);
    }
    gguf_builder_end(&w->b, w->data, w->len);
}

/* The file, whose bytes the writer has: that is the caller's to end after the file. */
static inline gguf_file *tiny_model_open(tiny_writer *w, const tiny_model *m, uint64_t *state)
{
    gguf_file *file = NULL;
    rad_error err = {0};
    tiny_model_write(w, m, state);
    rad_status status = gguf_open_memory(NULL, w->b.bytes, w->b.len, &file, &err);
    CHECKF(status == RAD_OK, "%s: %s\n", m->arch, err.text);
    return file;
}

static inline void tiny_model_fini(tiny_writer *w)
{
    free(w->data);
    gguf_builder_fini(&w->b);
}

#endif
