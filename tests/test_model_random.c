/* test_model_random.c - models of random odd shapes against the scalar reference: head
 * counts and widths that no vector length divides, V narrower or wider than K, partial
 * RoPE, tied or not, either family, tensors of mixed types. */
#include "gguf_builder.h"
#include "model_bench.h"

#include "model/model_reference.h"

#include <math.h>

enum { MOST_TOKENS = 90 };

typedef struct shape {
    const char *arch;
    uint32_t vocab, layers, dim, ffn, heads, kv_heads, head_dim, v_head_dim, rope_dim;
    bool tied;
} shape;

static uint32_t between(uint64_t *state, uint32_t least, uint32_t most)
{
    return least + (uint32_t)(test_random(state) % (most - least + 1));
}

static shape random_shape(uint64_t *state)
{
    shape s = {.arch = test_random(state) % 2 ? "llama" : "qwen3",
               .vocab = between(state, 2, 150),
               .layers = between(state, 1, 3),
               .dim = between(state, 1, 5) * (test_random(state) % 2 ? 32 : 7),
               .ffn = between(state, 1, 5) * (test_random(state) % 2 ? 32 : 5),
               .kv_heads = between(state, 1, 3),
               .head_dim = between(state, 2, 40),
               .v_head_dim = between(state, 1, 40),
               .tied = test_random(state) % 2};
    s.heads = s.kv_heads * between(state, 1, 4);
    s.rope_dim = 2 * between(state, 1, s.head_dim / 2);
    return s;
}

typedef struct writer {
    gguf_builder b;
    uint64_t *state;
    uint8_t *data;
    size_t len, cap;
} writer;

static void put_u32(writer *w, const shape *s, const char *name, uint32_t value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", s->arch, name);
    gguf_put_kv_u32(&w->b, key, value);
}

static float number(writer *w)
{
    return (float)((double)(test_random(w->state) >> 11) * 0x1p-52 - 1);
}

static void put_bytes(writer *w, const void *bytes, size_t len)
{
    if (w->len + len > w->cap) {
        w->cap = 2 * (w->len + len);
        w->data = realloc(w->data, w->cap);
        if (!w->data) abort();
    }
    memcpy(w->data + w->len, bytes, len);
    w->len += len;
}

/* A matrix of any type, or (rows 0) a vector around 1. */
static void put_tensor(writer *w, uint32_t cols, uint32_t rows, const char *fmt, uint32_t layer)
{
    char name[64];
    if (layer == UINT32_MAX)
        snprintf(name, sizeof name, "%s.weight", fmt);
    else
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, fmt);
    uint32_t type = GGML_F32;
    if (rows && test_random(w->state) % 2) type = GGML_BF16;
    if (rows && cols % 32 == 0 && test_random(w->state) % 2) type = GGML_Q8_0;
    gguf_put_tensor(&w->b, name, type, rows ? 2 : 1, (uint64_t[]){cols, rows}, w->len);
    size_t count = (size_t)cols * (rows ? rows : 1);
    float scale = 1.7f / sqrtf((float)cols);
    for (size_t i = 0; i < count; i++) {
        float value = rows ? number(w) * scale : 1 + number(w) / 4;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (type == GGML_F32) put_bytes(w, &value, sizeof value);
        if (type == GGML_BF16) put_bytes(w, &(uint16_t){(uint16_t)(bits >> 16)}, 2);
        if (type == GGML_Q8_0 && i % 32 == 0) put_bytes(w, &(uint16_t){0x1400}, 2); /* 2^-10 */
        if (type == GGML_Q8_0) put_bytes(w, &(int8_t){(int8_t)(value / scale * 100)}, 1);
    }
    while (w->len % 32)
        put_bytes(w, "", 1);
}

static void write_model(writer *w, const shape *s, uint64_t *state)
{
    *w = (writer){.state = state};
    gguf_builder_init(&w->b, 3);
    gguf_put_kv_str(&w->b, "general.architecture", s->arch);
    put_u32(w, s, "context_length", MOST_TOKENS);
    put_u32(w, s, "embedding_length", s->dim);
    put_u32(w, s, "block_count", s->layers);
    put_u32(w, s, "feed_forward_length", s->ffn);
    put_u32(w, s, "attention.head_count", s->heads);
    put_u32(w, s, "attention.head_count_kv", s->kv_heads);
    put_u32(w, s, "attention.key_length", s->head_dim);
    put_u32(w, s, "attention.value_length", s->v_head_dim);
    put_u32(w, s, "rope.dimension_count", s->rope_dim);
    char key[96];
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", s->arch);
    gguf_put_key(&w->b, key, GGUF_F32);
    gguf_put(&w->b, &(float){1e-5f}, 4);

    const uint32_t whole = UINT32_MAX;
    put_tensor(w, s->dim, s->vocab, "token_embd", whole);
    for (uint32_t l = 0; l < s->layers; l++) {
        put_tensor(w, s->dim, 0, "attn_norm", l);
        put_tensor(w, s->dim, s->heads * s->head_dim, "attn_q", l);
        put_tensor(w, s->dim, s->kv_heads * s->head_dim, "attn_k", l);
        put_tensor(w, s->dim, s->kv_heads * s->v_head_dim, "attn_v", l);
        put_tensor(w, s->heads * s->v_head_dim, s->dim, "attn_output", l);
        if (!strcmp(s->arch, "qwen3")) {
            put_tensor(w, s->head_dim, 0, "attn_q_norm", l);
            put_tensor(w, s->head_dim, 0, "attn_k_norm", l);
        }
        put_tensor(w, s->dim, 0, "ffn_norm", l);
        put_tensor(w, s->dim, s->ffn, "ffn_gate", l);
        put_tensor(w, s->dim, s->ffn, "ffn_up", l);
        put_tensor(w, s->ffn, s->dim, "ffn_down", l);
    }
    put_tensor(w, s->dim, 0, "output_norm", whole);
    if (!s->tied) put_tensor(w, s->dim, s->vocab, "output", whole);
    gguf_builder_end(&w->b, w->data, w->len);
}

/* f32: the largest difference in units of the largest logit. bf16: the root mean square of
 * the differences in units of that of the logits, for in models this small a
 * single element can be ill-conditioned. */
static double difference(const float *got, const double *want, size_t n, bool bf16)
{
    double most = 0, largest = 0, squares = 0, scale = 0;
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - want[i]);
        if (!(off <= most)) most = off;
        largest = fmax(largest, fabs(want[i]));
        squares += off * off, scale += want[i] * want[i];
    }
    return bf16 ? sqrt(squares / scale) : most / largest;
}

static void check_shape(const shape *s, uint64_t *state, uint64_t seed, const attn_backend *attn)
{
    writer w;
    write_model(&w, s, state);
    gguf_file *file = NULL;
    rad_error err = {0};
    rad_status status = gguf_open_memory(NULL, w.b.bytes, w.b.len, &file, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);

    rad_token tokens[MOST_TOKENS];
    uint32_t n = between(state, 2, MOST_TOKENS), split = between(state, 1, n - 1);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (rad_token)between(state, 0, s->vocab - 1);
    size_t count = (size_t)n * s->vocab;
    double *want = malloc(count * sizeof *want);
    float *got = malloc(count * sizeof *got), *chunked = malloc(count * sizeof *chunked);
    CHECK_OK(model_reference_logits(NULL, file, tokens, n, want, NULL));

    for (int d = 0; d < 2; d++) {
        bench b = bench_create(file, d ? RAD_BF16 : RAD_F32, 16, attn, NULL);
        bench_prefill(&b, 2, tokens, n, got);
        double off = difference(got, want, count, d), most = d ? 6e-2 : 1e-4;
        CHECKF(off < most,
               "%s %s: off by %g; vocab %u layers %u dim %u ffn %u heads %u/%u of %u and %u, "
               "rope %u, tied %d, %u tokens, seed %llu\n",
               s->arch, d ? "bf16" : "f32", off, s->vocab, s->layers, s->dim, s->ffn, s->heads,
               s->kv_heads, s->head_dim, s->v_head_dim, s->rope_dim, s->tied, n,
               (unsigned long long)seed);
        float *rest = chunked + (size_t)split * s->vocab;
        bench_run(&b, &(piece){3, tokens, 0, split}, 1, &chunked);
        bench_run(&b, &(piece){3, tokens, split, n}, 1, &rest);
        CHECKF(!memcmp(got, chunked, count * sizeof *got),
               "%s: cut at %u of %u tokens the logits differ, seed %llu\n", s->arch, split, n,
               (unsigned long long)seed);
        bench_destroy(&b);
    }
    free(want), free(got), free(chunked), free(w.data);
    gguf_close(file);
    gguf_builder_fini(&w.b);
}

TEST(odd_shapes_agree_with_the_reference)
{
    uint64_t seed = test_seed(), state = seed;
    for (uint64_t i = 0; i < test_scale(25, 1000); i++) {
        shape s = random_shape(&state);
        check_shape(&s, &state, seed, i % 4 == 3 ? attn_ref() : NULL);
    }
}

/* The reference once had no room for a q_norm wider than every other row. */
TEST(heads_may_be_wider_than_all_else)
{
    uint64_t state = 1;
    check_shape(&(shape){.arch = "qwen3",
                         .vocab = 9,
                         .layers = 1,
                         .dim = 7,
                         .ffn = 5,
                         .heads = 1,
                         .kv_heads = 1,
                         .head_dim = 40,
                         .v_head_dim = 3,
                         .rope_dim = 40},
                &state, 1, NULL);
}

TEST(the_smallest_model_there_can_be)
{
    uint64_t state = 1;
    check_shape(&(shape){.arch = "llama",
                         .vocab = 2,
                         .layers = 1,
                         .dim = 1,
                         .ffn = 1,
                         .heads = 1,
                         .kv_heads = 1,
                         .head_dim = 2,
                         .v_head_dim = 1,
                         .rope_dim = 2},
                &state, 1, NULL);
}

TEST_MAIN()
