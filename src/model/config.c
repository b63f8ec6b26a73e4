/* config.c - see config.h. Each number is checked against limits far above any real
 * model's but low enough that no product of two of them overflows 32 bits; how much
 * memory a model may take is then decided by its tensors, which lie in the file. */
#include "model/config.h"
#include "base/base.h"

#include <math.h>
#include <stdio.h>

static const model_arch archs[] = {
    {.name = "llama", .rope = ROPE_INTERLEAVED, .qk_norm = false},
    {.name = "qwen3", .rope = ROPE_NEOX, .qk_norm = true},
};

enum {
    MOST_LAYERS = 1024,
    MOST_HEADS = 4096,
    MOST_HEAD_DIM = 4096,
    MOST_DIM = 1 << 20,
    MOST_FFN = 1 << 24,
    MOST_VOCAB = 1 << 24,
};

typedef struct reader {
    const gguf_file *file;
    const char *arch;
    rad_error *err;
    rad_status status; /* the first failure; later reads do nothing */
    char key[128];     /* the one read last, for messages */
} reader;

static bool str_is(gguf_str s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

static void make_key(reader *r, const char *name)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch, name);
}

/* An integer in [1, most]. `absent` is its default; 0: the key must be there. */
static uint32_t read_u32(reader *r, const char *name, uint32_t absent, uint32_t most)
{
    uint32_t value = absent;
    if (r->status != RAD_OK) return 0;
    make_key(r, name);
    rad_status status = gguf_get_u32(r->file, r->key, &value, r->err);
    if (status == RAD_NONE && !absent)
        r->status = rad_fail(r->err, RAD_E_FORMAT, "model: key %s is missing", r->key);
    else if (status != RAD_NONE && status != RAD_OK)
        r->status = status;
    else if (value < 1 || value > most)
        r->status = rad_fail(r->err, RAD_E_FORMAT, "model: key %s is %u, expected 1 to %u", r->key,
                             value, most);
    return value;
}

static float read_f32(reader *r, const char *name, float absent)
{
    float value = absent;
    if (r->status != RAD_OK) return 0;
    make_key(r, name);
    rad_status status = gguf_get_f32(r->file, r->key, &value, r->err);
    if (status == RAD_NONE && absent == 0)
        r->status = rad_fail(r->err, RAD_E_FORMAT, "model: key %s is missing", r->key);
    else if (status != RAD_NONE && status != RAD_OK)
        r->status = status;
    else if (!(value > 0) || isinf(value))
        r->status = rad_fail(r->err, RAD_E_FORMAT, "model: key %s is %g, expected a number > 0",
                             r->key, (double)value);
    return value;
}

static rad_status find_arch(const gguf_file *file, const model_arch **out, rad_error *err)
{
    gguf_str name = {0};
    rad_status status = gguf_get_str(file, "general.architecture", &name, err);
    if (status == RAD_NONE)
        return rad_fail(err, RAD_E_FORMAT, "model: key general.architecture is missing");
    if (status != RAD_OK) return status;
    char known[128] = "";
    for (size_t i = 0; i < RAD_COUNT(archs); i++) {
        if (str_is(name, archs[i].name)) {
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

/* What would change the numbers and is not built yet must not be ignored. */
static rad_status refuse_features(reader *r)
{
    gguf_str scaling = {0};
    make_key(r, "rope.scaling.type");
    rad_status status = gguf_get_str(r->file, r->key, &scaling, r->err);
    if (status == RAD_OK && !str_is(scaling, "none")) {
        return rad_fail(r->err, RAD_E_UNSUPPORTED,
                        "model: RoPE scaling \"%s\" (%s) is not "
                        "supported",
                        gguf_show(scaling).text, r->key);
    }
    if (status != RAD_OK && status != RAD_NONE) return status;

    float linear = 1;
    make_key(r, "rope.scale_linear");
    status = gguf_get_f32(r->file, r->key, &linear, r->err);
    if (status != RAD_OK && status != RAD_NONE) return status;
    if (!(linear == 1 || linear == 0))
        return rad_fail(r->err, RAD_E_UNSUPPORTED,
                        "model: RoPE scaling by %g (%s) is not "
                        "supported",
                        (double)linear, r->key);

    uint32_t experts = 0;
    make_key(r, "expert_count");
    status = gguf_get_u32(r->file, r->key, &experts, r->err);
    if (status != RAD_OK && status != RAD_NONE) return status;
    if (experts)
        return rad_fail(r->err, RAD_E_UNSUPPORTED,
                        "model: a mixture of %u experts (%s) is not supported", experts, r->key);
    return RAD_OK;
}

static rad_status read_vocab(reader *r, model_config *c)
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

static rad_status read_heads(reader *r, model_config *c)
{
    c->num_heads = read_u32(r, "attention.head_count", 0, MOST_HEADS);
    c->num_kv_heads = read_u32(r, "attention.head_count_kv", c->num_heads, MOST_HEADS);
    if (r->status != RAD_OK) return r->status;
    if (c->num_heads % c->num_kv_heads)
        return rad_fail(r->err, RAD_E_FORMAT, "model: %u heads do not divide by %u KV heads (%s)",
                        c->num_heads, c->num_kv_heads, r->key);

    uint32_t share = c->dim % c->num_heads ? 0 : c->dim / c->num_heads;
    c->head_dim = read_u32(r, "attention.key_length", share, MOST_HEAD_DIM);
    c->v_head_dim =
        read_u32(r, "attention.value_length", share ? share : c->head_dim, MOST_HEAD_DIM);
    c->rope_dim = read_u32(r, "rope.dimension_count", c->head_dim, MOST_HEAD_DIM);
    if (r->status != RAD_OK) return r->status;
    if (c->rope_dim % 2 || c->rope_dim > c->head_dim)
        return rad_fail(r->err, RAD_E_FORMAT,
                        "model: key %s is %u, expected an even number up to %u", r->key,
                        c->rope_dim, c->head_dim);
    return RAD_OK;
}

rad_status model_config_read(const gguf_file *file, model_config *out, rad_error *err)
{
    model_config c = {0};
    rad_status status = find_arch(file, &c.arch, err);
    if (status != RAD_OK) return status;

    reader r = {.file = file, .arch = c.arch->name, .err = err, .status = RAD_OK};
    status = refuse_features(&r);
    if (status != RAD_OK) return status;
    c.context_length = read_u32(&r, "context_length", 0, INT32_MAX);
    c.num_layers = read_u32(&r, "block_count", 0, MOST_LAYERS);
    c.dim = read_u32(&r, "embedding_length", 0, MOST_DIM);
    c.ffn_dim = read_u32(&r, "feed_forward_length", 0, MOST_FFN);
    c.rms_eps = read_f32(&r, "attention.layer_norm_rms_epsilon", 0);
    c.rope_base = read_f32(&r, "rope.freq_base", 10000.0f);
    if (r.status != RAD_OK) return r.status;
    status = read_heads(&r, &c);
    if (status != RAD_OK) return status;
    status = read_vocab(&r, &c);
    if (status != RAD_OK) return status;
    *out = c;
    return RAD_OK;
}
