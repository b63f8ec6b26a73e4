/* cuda_shapes.h - shapes of models that are in no file, for a GPU: weights are drawn there. */
#ifndef BENCH_CUDA_SHAPES_H
#define BENCH_CUDA_SHAPES_H

#include "../tests/gguf_builder.h"
#include "model/config.h"

#include <math.h>
#include <sys/mman.h>

typedef struct cuda_shape {
    const char *name, *architecture;
    uint32_t dim, layers, heads, kv_heads, head_dim, ffn, vocab, context;
    float rope_base;
    bool tied;
    uint32_t experts, used; /* of a mixture, each `ffn` wide; 0: there is one block */
} cuda_shape;

static const cuda_shape cuda_shapes[] = {
    {"qwen3-0.6b", "qwen3", 1024, 28, 16, 8, 128, 3072, 151936, 40960, 1e6f, true, 0, 0},
    {"llama-8b", "llama", 4096, 32, 32, 8, 128, 14336, 128256, 131072, 5e5f, false, 0, 0},
    {"qwen3-30b-a3b", "qwen3moe", 2048, 48, 32, 4, 128, 768, 151936, 40960, 1e6f, false, 128, 8},
    {"moe-0.7b", "qwen3moe", 1024, 8, 16, 8, 128, 384, 32768, 8192, 1e6f, true, 64, 8},
    {"toy", "qwen3", 64, 2, 4, 2, 16, 128, 320, 2048, 1e4f, true, 0, 0},
    {"toy-moe", "qwen3moe", 64, 1, 4, 2, 16, 32, 320, 2048, 1e4f, true, 8, 2},
};

static inline const cuda_shape *cuda_shape_find(const char *name)
{
    for (size_t i = 0; i < RAD_COUNT(cuda_shapes); i++)
        if (!strcmp(cuda_shapes[i].name, name)) return &cuda_shapes[i];
    return NULL;
}

/* Numbers of a layer's gates, ups and downs: of one expert, where there are any. */
static inline double cuda_shape_ffn(const cuda_shape *s)
{
    return 3.0 * (double)s->ffn * s->dim;
}

/* Numbers of all matrices that a token's step multiplies by; of the layers alone. A router counts,
 * too, though it is f32. */
static inline double cuda_shape_layers(const cuda_shape *s)
{
    const double qkv = (double)(s->heads + 2 * s->kv_heads) * s->head_dim * s->dim;
    const double ffn = s->experts ? s->used * cuda_shape_ffn(s) + (double)s->experts * s->dim
                                  : cuda_shape_ffn(s);
    return s->layers * (qkv + (double)s->heads * s->head_dim * s->dim + ffn);
}

/* The same, of a step of `tokens` tokens: of a mixture's experts those that one of them uses, as
 * many as are to be expected where each token's are drawn anew. */
static inline double cuda_shape_layers_read(const cuda_shape *s, double tokens)
{
    if (!s->experts) return cuda_shape_layers(s);
    const double idle = pow(1 - (double)s->used / s->experts, tokens);
    const double read = s->experts * (1 - idle) - s->used;
    return cuda_shape_layers(s) + s->layers * read * cuda_shape_ffn(s);
}

static inline double cuda_shape_head(const cuda_shape *s)
{
    return (double)s->vocab * s->dim;
}

static inline void cuda_shape_key(gguf_builder *b, const cuda_shape *s, const char *name,
                                  uint32_t v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", s->architecture, name);
    gguf_put_kv_u32(b, key, v);
}

static inline void cuda_shape_key_f32(gguf_builder *b, const cuda_shape *s, const char *name,
                                      float v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", s->architecture, name);
    gguf_put_key(b, key, GGUF_F32);
    gguf_put(b, &v, sizeof v);
}

/* As if read from a file of that shape, whose tensors nobody has to have: there is address space
 * where they would be, and none of it is touched. */
static inline rad_status cuda_shape_config(const cuda_shape *s, model_config *out, rad_error *err)
{
    enum { BF16 = 30 };
    gguf_builder b;
    gguf_builder_init(&b, 3);
    gguf_put_kv_str(&b, "general.architecture", s->architecture);
    cuda_shape_key(&b, s, "context_length", s->context);
    cuda_shape_key(&b, s, "embedding_length", s->dim);
    cuda_shape_key(&b, s, "block_count", s->layers);
    cuda_shape_key(&b, s, "feed_forward_length", s->ffn);
    if (s->experts) {
        cuda_shape_key(&b, s, "expert_count", s->experts);
        cuda_shape_key(&b, s, "expert_used_count", s->used);
        cuda_shape_key(&b, s, "expert_feed_forward_length", s->ffn);
    }
    cuda_shape_key(&b, s, "attention.head_count", s->heads);
    cuda_shape_key(&b, s, "attention.head_count_kv", s->kv_heads);
    cuda_shape_key(&b, s, "attention.key_length", s->head_dim);
    cuda_shape_key(&b, s, "attention.value_length", s->head_dim);
    cuda_shape_key(&b, s, "rope.dimension_count", s->head_dim);
    cuda_shape_key_f32(&b, s, "rope.freq_base", s->rope_base);
    cuda_shape_key_f32(&b, s, "attention.layer_norm_rms_epsilon", 1e-6f);
    const uint64_t dims[2] = {s->dim, s->vocab};
    gguf_put_tensor(&b, "token_embd.weight", BF16, 2, dims, 0);
    if (!s->tied) gguf_put_tensor(&b, "output.weight", BF16, 2, dims, 0);
    gguf_builder_end(&b, "", 0);

    const size_t bytes = b.len + (size_t)s->vocab * s->dim * 2;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return rad_fail(err, RAD_E_NOMEM, "no address space for a shape");
    memcpy(memory, b.bytes, b.len);
    gguf_file *file = NULL;
    rad_status status = gguf_open_memory(NULL, memory, bytes, &file, err);
    if (status == RAD_OK) status = model_config_read(file, 0, out, err);
    gguf_close(file);
    munmap(memory, bytes);
    gguf_builder_fini(&b);
    return status;
}

#endif
