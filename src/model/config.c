/* config.c - see config.h. Each number is checked against limits far above any real
 * model's but low enough that no product of two of them overflows 32 bits; how much
 * memory a model may take is then decided by its tensors, which lie in the file. */
#include "base/base.h"
#include "model/config_reader.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

static const model_arch archs[] = {
    {.name = "llama", .rope = ROPE_INTERLEAVED, .window = WINDOW_ALL}, /* Mistral has a window */
    {.name = "qwen2", .rope = ROPE_NEOX, .qkv_bias = true},
    {.name = "qwen3", .rope = ROPE_NEOX, .qk_norm = true},
    {.name = "phi3", .rope = ROPE_NEOX, .window = WINDOW_ALL, .fused = true},
    {.name = "gemma2",
     .rope = ROPE_NEOX,
     .ffn = FFN_GEGLU,
     .window = WINDOW_EVEN,
     .window_absent = 4096,
     .post_norms = true,
     .scale_embedding = true,
     .logit_caps = true},
};

enum {
    MOST_LAYERS = 1024,
    MOST_HEADS = 4096,
    MOST_HEAD_DIM = 4096,
    MOST_DIM = 1 << 20,
    MOST_FFN = 1 << 24,
    MOST_VOCAB = 1 << 24,
};

static rad_status find_arch(const gguf_file *file, const model_arch **out, rad_error *err)
{
    gguf_str name = {0};
    rad_status status = gguf_get_str(file, "general.architecture", &name, err);
    if (status == RAD_NONE)
        return rad_fail(err, RAD_E_FORMAT, "model: key general.architecture is missing");
    if (status != RAD_OK) return status;
    char known[128] = "";
    for (size_t i = 0; i < RAD_COUNT(archs); i++) {
        if (config_str_is(name, archs[i].name)) {
            *out = &archs[i];
            return RAD_OK;
        }
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", archs[i].name);
    }
    return rad_fail(err, RAD_E_UNSUPPORTED,
                    "model: architecture \"%s\" is not supported (these "
                    "are: %s)",
                    gguf_show(name).text, known);
}

/* What would change the numbers and is not built must not be ignored. */
static void refuse_features(config_reader *r, const model_arch *arch)
{
    static const struct {
        const char *name;
        double neutral;
    } features[] = {
        {"expert_count", 0},
        {"attention.causal", 1},
        {"attention.clamp_kqv", 0},
        {"attention.max_alibi_bias", 0},
        {"attention.sliding_window_pattern", NAN},
        {"attention.temperature_length", 0},
        {"attention.temperature_scale", 0},
        {"attention.key_length_mla", 0},
        {"embedding_scale", 1},
        {"residual_scale", 1},
        {"logit_scale", 1},
        {"pooling_type", 0},
        {"swin_norm", 0},
        {"use_parallel_residual", 0},
    };
    for (size_t i = 0; i < RAD_COUNT(features); i++)
        config_refuse(r, features[i].name, features[i].neutral);
    static const char *const caps[] = {"attn_logit_softcapping", "final_logit_softcapping"};
    for (size_t i = 0; i < RAD_COUNT(caps) && !arch->logit_caps; i++)
        config_refuse(r, caps[i], 0);
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

static rad_status read_heads(config_reader *r, model_config *c)
{
    c->num_heads = config_u32(r, "attention.head_count", 0, MOST_HEADS);
    c->num_kv_heads = config_u32(r, "attention.head_count_kv", c->num_heads, MOST_HEADS);
    if (r->status != RAD_OK) return r->status;
    if (c->num_heads % c->num_kv_heads)
        return rad_fail(r->err, RAD_E_FORMAT, "model: %u heads do not divide by %u KV heads (%s)",
                        c->num_heads, c->num_kv_heads, r->key);

    uint32_t share = c->dim % c->num_heads ? 0 : c->dim / c->num_heads;
    c->head_dim = config_u32(r, "attention.key_length", share, MOST_HEAD_DIM);
    c->v_head_dim =
        config_u32(r, "attention.value_length", share ? share : c->head_dim, MOST_HEAD_DIM);
    c->rope_dim = config_u32(r, "rope.dimension_count", c->head_dim, MOST_HEAD_DIM);
    if (r->status != RAD_OK) return r->status;
    if (c->rope_dim % 2 || c->rope_dim > c->head_dim)
        return rad_fail(r->err, RAD_E_FORMAT,
                        "model: key %s is %u, expected an even number up to %u", r->key,
                        c->rope_dim, c->head_dim);
    return RAD_OK;
}

/* A window that no context reaches masks nothing. */
static void read_window(config_reader *r, model_config *c)
{
    uint32_t window = config_u32_or_0(r, "attention.sliding_window", UINT32_MAX);
    if (r->status != RAD_OK) return;
    if (!gguf_find_kv(r->file, r->key)) window = c->arch->window_absent;
    c->sliding_window = window < c->context_length ? window : 0;
    if (c->sliding_window && c->arch->window == WINDOW_NONE)
        config_refuse(r, "attention.sliding_window", 0);
}

/* Gemma 2 has a query_pre_attn_scalar of its own, which its files leave out: the width of a
 * head, but dim / heads in the model of 46 layers. */
static float scale_absent(const model_config *c)
{
    bool by_dim = c->arch->logit_caps && c->num_layers == 46;
    return 1.0f / sqrtf(by_dim ? (float)c->dim / (float)c->num_heads : (float)c->head_dim);
}

rad_status model_config_read(const gguf_file *file, uint32_t context, model_config *out,
                             rad_error *err)
{
    model_config c = {0};
    rad_status status = find_arch(file, &c.arch, err);
    if (status != RAD_OK) return status;

    config_reader r = {.file = file, .arch = c.arch->name, .err = err, .status = RAD_OK};
    refuse_features(&r, c.arch);
    c.context_length = config_u32(&r, "context_length", 0, INT32_MAX);
    c.num_layers = config_u32(&r, "block_count", 0, MOST_LAYERS);
    c.dim = config_u32(&r, "embedding_length", 0, MOST_DIM);
    c.ffn_dim = config_u32(&r, "feed_forward_length", 0, MOST_FFN);
    c.rms_eps = config_f32(&r, "attention.layer_norm_rms_epsilon", 0);
    read_window(&r, &c);
    if (r.status != RAD_OK) return r.status;
    status = read_heads(&r, &c);
    if (status == RAD_OK) status = config_read_rope(&r, context, &c);
    if (status != RAD_OK) return status;

    c.attn_scale = config_f32_or_0(&r, "attention.scale", 0);
    if (c.attn_scale == 0) c.attn_scale = scale_absent(&c);
    if (c.arch->logit_caps) {
        c.attn_logit_cap = config_f32_or_0(&r, "attn_logit_softcapping", 50);
        c.final_logit_cap = config_f32_or_0(&r, "final_logit_softcapping", 30);
    }
    if (r.status != RAD_OK) return r.status;
    status = read_vocab(&r, &c);
    if (status != RAD_OK) return status;
    *out = c;
    return RAD_OK;
}

/* ---- in words ---- */

typedef struct words {
    char *text;
    size_t room, len;
} words;

__attribute__((format(printf, 2, 3))) static void say(words *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(w->text + w->len, w->room - w->len, format, args);
    va_end(args);
    if (n > 0) w->len = RAD_MIN(w->len + (size_t)n, w->room - 1);
}

static void describe_rope(words *w, const model_config *c)
{
    const rope_scaling *s = &c->scaling;
    say(w, "%s RoPE over %u of %u, base %g", c->arch->rope == ROPE_NEOX ? "NEOX" : "interleaved",
        c->rope_dim, c->head_dim, (double)c->rope_base);
    if (s->yarn)
        say(w, ", YaRN x%g from %u", (double)s->factor, s->original_context);
    else if (s->factor != 1)
        say(w, ", linear x%g", (double)s->factor);
    if (s->divisors) say(w, ", divisors %s", s->divisors);
    if (s->magnitude != 1) say(w, ", magnitude %.6g", (double)s->magnitude);
}

void model_config_describe(const model_config *c, char *text, size_t room)
{
    if (!room) return;
    words w = {.text = text, .room = room};
    const model_arch *a = c->arch;
    text[0] = 0;
    describe_rope(&w, c);
    say(&w, "; %s", a->ffn == FFN_GEGLU ? "GEGLU" : "SwiGLU");
    if (a->qkv_bias) say(&w, "; q/k/v biases");
    if (a->qk_norm) say(&w, "; q/k norms");
    if (a->fused) say(&w, "; fused q/k/v and gate/up");
    if (a->post_norms) say(&w, "; post-norms");
    if (a->scale_embedding) say(&w, "; embedding x sqrt(dim)");
    if (c->attn_logit_cap > 0) say(&w, "; scores capped at %g", (double)c->attn_logit_cap);
    if (c->final_logit_cap > 0) say(&w, "; logits capped at %g", (double)c->final_logit_cap);
    if (c->sliding_window)
        say(&w, "; sliding window of %u in %s layers", c->sliding_window,
            a->window == WINDOW_ALL ? "all" : "even");
    if (c->tied) say(&w, "; tied embedding");
}
