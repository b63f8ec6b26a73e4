/* test_model_hostile.c - models that lie, and machines without memory: clear errors, nothing
 * leaked. The files are a micro Llama made in memory with one thing changed. */
#include "gguf_builder.h"
#include "model_bench.h"

#include "gear/model_reference.h"

enum { DIM = 32, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 8, FFN = 64, VOCAB = 5, LAYERS = 2 };

/* One change to the good model. A tensor's rows of 0 make it a vector. */
typedef struct change {
    const char *key;  /* this key becomes `value` ... */
    const char *text; /* ... or this text; with neither (and NONE) it is left out */
    uint32_t value;
    const char *tensor; /* this tensor is left out, or with `cols` has another shape and type */
    uint64_t cols, rows;
    uint32_t type;
    uint32_t tokens;      /* entries of tokenizer.ggml.tokens, when not 0 */
    rad_status want;      /* expected status ... */
    const char *words[2]; /* ... and what its message must name */
} change;

enum { LEFT_OUT = UINT32_MAX };

typedef struct micro {
    gguf_builder b;
    const char *arch;
    const change *c;
    uint64_t offset;
} micro;

static void put_float(micro *m, const char *key, float value)
{
    gguf_put_key(&m->b, key, GGUF_F32);
    gguf_put(&m->b, &value, sizeof value);
}

/* arch.name = value, unless the change says otherwise. 1 in `real`: a float. */
static void put_kv(micro *m, const char *name, uint32_t value, float real)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", m->arch, name);
    bool changed = m->c->key && !strcmp(m->c->key, name);
    if (changed && m->c->value == LEFT_OUT) return;
    if (changed && m->c->text)
        gguf_put_kv_str(&m->b, key, m->c->text);
    else if (real != 0)
        put_float(m, key, changed ? (float)m->c->value : real);
    else
        gguf_put_kv_u32(&m->b, key, changed ? m->c->value : value);
}

static uint64_t type_bytes(uint32_t type, uint64_t count)
{
    return type == GGML_F32 ? count * 4 : type == GGML_Q8_0 ? count / 32 * 34 : count * 2;
}

static void put_tensor(micro *m, const char *name, uint64_t cols, uint64_t rows)
{
    uint32_t type = GGML_F32;
    if (m->c->tensor && !strcmp(m->c->tensor, name)) {
        if (!m->c->cols) return;
        cols = m->c->cols, rows = m->c->rows, type = m->c->type;
    }
    gguf_put_tensor(&m->b, name, type, rows ? 2 : 1, (uint64_t[]){cols, rows}, m->offset);
    m->offset += (type_bytes(type, cols * (rows ? rows : 1)) + 31) / 32 * 32;
}

static void put_layer(micro *m, uint32_t layer)
{
    static const struct {
        const char *name;
        uint64_t cols, rows;
    } tensors[] = {{"attn_norm", DIM, 0},
                   {"attn_q", DIM, HEADS * HEAD_DIM},
                   {"attn_k", DIM, KV_HEADS * HEAD_DIM},
                   {"attn_v", DIM, KV_HEADS * HEAD_DIM},
                   {"attn_output", HEADS * HEAD_DIM, DIM},
                   {"attn_q_norm", HEAD_DIM, 0},
                   {"attn_k_norm", HEAD_DIM, 0},
                   {"ffn_norm", DIM, 0},
                   {"ffn_gate", DIM, FFN},
                   {"ffn_up", DIM, FFN},
                   {"ffn_down", FFN, DIM}};
    bool qwen3 = !strcmp(m->arch, "qwen3");
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, tensors[i].name);
        bool head_norm = strstr(name, "q_norm") || strstr(name, "k_norm");
        if (qwen3 || !head_norm) put_tensor(m, name, tensors[i].cols, tensors[i].rows);
    }
}

/* The model's bytes are m->b.bytes; every weight is zero. */
static void micro_init(micro *m, const char *arch, const change *c)
{
    *m = (micro){.arch = arch, .c = c};
    gguf_builder_init(&m->b, 3);
    bool renamed = c->key && !strcmp(c->key, "general.architecture");
    if (!renamed || c->text)
        gguf_put_kv_str(&m->b, "general.architecture", renamed ? c->text : arch);
    put_kv(m, "context_length", 64, 0);
    put_kv(m, "embedding_length", DIM, 0);
    put_kv(m, "block_count", LAYERS, 0);
    put_kv(m, "feed_forward_length", FFN, 0);
    put_kv(m, "attention.head_count", HEADS, 0);
    put_kv(m, "attention.head_count_kv", KV_HEADS, 0);
    put_kv(m, "attention.key_length", HEAD_DIM, 0);
    put_kv(m, "attention.value_length", HEAD_DIM, 0);
    put_kv(m, "attention.layer_norm_rms_epsilon", 0, 1e-5f);
    put_kv(m, "rope.freq_base", 0, 10000.0f);
    put_kv(m, "rope.dimension_count", HEAD_DIM, 0);
    if (!strcmp(arch, "qwen35")) {
        put_kv(m, "full_attention_interval", LAYERS, 0);
        put_kv(m, "ssm.conv_kernel", 4, 0);
        put_kv(m, "ssm.state_size", 8, 0);
        put_kv(m, "ssm.group_count", 2, 0);
        put_kv(m, "ssm.time_step_rank", 4, 0);
        put_kv(m, "ssm.inner_size", 32, 0);
    }
    if (!strcmp(arch, "lfm2")) put_kv(m, "shortconv.l_cache", 3, 0);
    static const char *const extra[] = {
        "rope.scaling.type", "expert_count", "attention.causal", "attention.sliding_window",
        "residual_scale", "nextn_predict_layers", "attention.shared_kv_layers",
        "attention.key_length_swa", "embedding_length_per_layer_input",
        /* floats */
        "rope.scale_linear", "rope.scaling.factor", "rope.scaling.attn_factor",
        "rope.scaling.yarn_log_multiplier", "attention.clamp_kqv", "attn_logit_softcapping"};
    for (size_t i = 0; i < sizeof extra / sizeof extra[0]; i++)
        if (c->key && !strcmp(c->key, extra[i])) put_kv(m, extra[i], 0, i >= 9);
    if (c->tokens) {
        gguf_put_kv_arr(&m->b, "tokenizer.ggml.tokens", GGUF_STR, c->tokens);
        for (uint32_t i = 0; i < c->tokens; i++)
            gguf_put_str(&m->b, "t");
    }
    put_tensor(m, "token_embd.weight", DIM, VOCAB);
    for (uint32_t i = 0; i < LAYERS; i++)
        put_layer(m, i);
    put_tensor(m, "output_norm.weight", DIM, 0);
    if (c->tensor && c->cols &&
        (strstr(c->tensor, "bias") || strstr(c->tensor, "rope_") || strstr(c->tensor, "qkv") ||
         strstr(c->tensor, "post_") || !strcmp(c->tensor, "output.weight")))
        put_tensor(m, c->tensor, c->cols, c->rows);
    void *zeros = calloc(1, m->offset + 1);
    gguf_builder_end(&m->b, zeros, m->offset);
    free(zeros);
}

static void check_change(const char *arch, const change *c)
{
    micro m;
    micro_init(&m, arch, c);
    gguf_file *file = NULL;
    rad_error err = {0};
    rad_status status = gguf_open_memory(NULL, m.b.bytes, m.b.len, &file, &err);
    CHECKF(status == RAD_OK, "not a GGUF: %s\n", err.text);
    for (int d = 0; d < 2; d++) {
        test_env t;
        rad_env env = test_env_init(&t);
        const model_runner_params params = {
            .dtype = d ? RAD_BF16 : RAD_F32, .max_batch_tokens = 8, .num_threads = 1};
        runner *r = NULL;
        err = (rad_error){0};
        status = model_runner_create(&env, file, &params, &r, &err);
        CHECKF(status == c->want, "%s (key %s, tensor %s)\n", err.text, c->key ? c->key : "-",
               c->tensor ? c->tensor : "-");
        for (int w = 0; w < 2 && c->words[w]; w++)
            CHECKF(strstr(err.text, c->words[w]), "\"%s\" does not name %s\n", err.text,
                   c->words[w]);
        CHECK((r != NULL) == (status == RAD_OK));
        runner_destroy(r);
        CHECK(t.bytes == 0);
    }
    double logits[VOCAB];
    status = model_reference_logits(NULL, file, &(rad_token){0}, 1, logits, &err);
    CHECKF(status == c->want, "reference: %s\n", err.text);
    gguf_close(file);
    gguf_builder_fini(&m.b);
}

TEST(the_micro_models_are_fine)
{
    check_change("llama", &(change){0});
    check_change("qwen3", &(change){0});
    check_change("llama", &(change){.tokens = VOCAB});
    check_change("llama", &(change){.tensor = "output.weight", .cols = DIM, .rows = VOCAB});
    check_change("llama", &(change){.key = "attention.key_length", .value = LEFT_OUT});
    check_change("llama", &(change){.key = "rope.dimension_count", .value = 4});
    check_change("llama", &(change){.key = "rope.dimension_count", .value = LEFT_OUT});
    check_change("llama", &(change){.key = "rope.freq_base", .value = LEFT_OUT});
    check_change("llama", &(change){.key = "rope.scaling.type", .text = "none"});
    check_change("llama", &(change){.key = "rope.scaling.type", .text = "linear"});
    check_change("llama", &(change){.key = "rope.scale_linear", .value = 2});
    check_change("llama", &(change){.key = "attention.sliding_window", .value = 5});
    check_change("llama", &(change){.key = "attention.sliding_window", .value = UINT32_MAX - 1});
    check_change("qwen3", &(change){.key = "attention.sliding_window", .value = 64});
}

static void note_left_out(void *user, rad_log_level level, const char *text)
{
    (void)level;
    if (strstr(text, "left out")) snprintf(user, 256, "%s", text);
}

/* Experts that a file names and does not have, or not in this number. */
TEST(mixtures_that_make_no_sense_are_refused)
{
    static const change changes[] = {
        {.key = "expert_count", .value = 8, .words = {"llama.expert_used_count", "missing"}},
        {.key = "expert_count", .value = 1u << 20, .words = {"llama.expert_count", "1 to"}},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        change c = changes[i];
        c.want = RAD_E_FORMAT;
        if (i) c.words[1] = "expected";
        check_change("llama", &c);
    }
    check_change("qwen3", &(change){.key = "expert_count",
                                    .value = 8,
                                    .want = RAD_E_UNSUPPORTED,
                                    .words = {"qwen3.expert_count = 8"}});
}

TEST(recurrent_layers_that_make_no_sense_are_refused)
{
    static const char interval[] = "full_attention_interval", tokens[] = "32 values";
    static const change changes[] = {
        {.key = "ssm.conv_kernel", .value = 0, .words = {"qwen35.ssm.conv_kernel", "1 to 16"}},
        {.key = "ssm.conv_kernel", .value = 17, .words = {"qwen35.ssm.conv_kernel", "1 to 16"}},
        {.key = "ssm.conv_kernel", .value = LEFT_OUT, .words = {"ssm.conv_kernel", "missing"}},
        {.key = "ssm.state_size", .value = 0, .words = {"qwen35.ssm.state_size", "expected"}},
        {.key = "ssm.state_size", .value = 5000, .words = {"qwen35.ssm.state_size", "expected"}},
        {.key = "ssm.group_count", .value = 3, .words = {tokens, "3 groups"}},
        {.key = "ssm.group_count", .value = 8, .words = {tokens, "8 groups"}},
        {.key = "ssm.time_step_rank", .value = 5, .words = {tokens, "5 heads"}},
        {.key = "ssm.inner_size",
         .value = 1u << 30,
         .words = {"qwen35.ssm.inner_size", "expected"}},
        {.key = interval, .value = 0, .words = {"qwen35.full_attention_interval", "expected"}},
        {.key = "attention.value_length", .value = 4, .words = {"heads of 8 and 4", "gates"}},
        {.key = "attention.head_count_kv", .value = 0, .words = {"head_count_kv", "expected"}},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        change c = changes[i];
        c.want = RAD_E_FORMAT;
        check_change("qwen35", &c);
    }
    check_change("qwen35", &(change){.key = interval,
                                     .value = LAYERS + 1,
                                     .want = RAD_E_UNSUPPORTED,
                                     .words = {"no layer of 2 has attention", "qwen35"}});
    check_change("lfm2", &(change){.key = "attention.head_count_kv",
                                   .value = 0,
                                   .want = RAD_E_UNSUPPORTED,
                                   .words = {"no layer of 2 has attention", "lfm2"}});
}

TEST(layers_that_differ_and_make_no_sense_are_refused)
{
    static const change changes[] = {
        {.key = "attention.shared_kv_layers",
         .value = LAYERS,
         .want = RAD_E_FORMAT,
         .words = {"gemma4.attention.shared_kv_layers", "expected"}},
        {.key = "attention.key_length_swa",
         .value = 1 << 20,
         .want = RAD_E_FORMAT,
         .words = {"gemma4.attention.key_length_swa", "expected"}},
        {.key = "attention.value_length",
         .value = 4,
         .want = RAD_E_UNSUPPORTED,
         .words = {"heads of 8 and 4", "gemma4"}},
        {.key = "embedding_length_per_layer_input",
         .value = 1 << 20,
         .want = RAD_E_FORMAT,
         .words = {"embedding_length_per_layer_input", "expected"}},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        check_change("gemma4", &changes[i]);
    check_change("llama", &(change){.key = "attention.shared_kv_layers",
                                    .value = 1,
                                    .want = RAD_E_UNSUPPORTED,
                                    .words = {"llama.attention.shared_kv_layers = 1"}});
}

/* Those of a head that predicts further tokens: here the second of two layers. */
TEST(layers_of_next_token_prediction_are_left_out)
{
    check_change("llama", &(change){.key = "nextn_predict_layers", .value = 1});
    check_change("llama", &(change){.key = "nextn_predict_layers",
                                    .value = 2,
                                    .want = RAD_E_FORMAT,
                                    .words = {"llama.nextn_predict_layers is 2", "0 to 1"}});
    micro m;
    micro_init(&m, "qwen3", &(change){.key = "nextn_predict_layers", .value = 1});
    gguf_file *file;
    CHECK_OK(gguf_open_memory(NULL, m.b.bytes, m.b.len, &file, NULL));
    char said[256] = "";
    const rad_env env = {.struct_size = sizeof env, .user = said, .log = note_left_out};
    runner *r;
    const model_runner_params params = {.dtype = RAD_F32, .max_batch_tokens = 4};
    CHECK_OK(model_runner_create(&env, file, &params, &r, NULL));
    CHECK(r->info.num_layers == 1 && strstr(said, "11 tensors"));
    runner_destroy(r);
    gguf_close(file);
    gguf_builder_fini(&m.b);
}

TEST(every_missing_tensor_is_named)
{
    static const char *const names[] = {
        "token_embd.weight",        "output_norm.weight",       "blk.0.attn_norm.weight",
        "blk.1.attn_q.weight",      "blk.0.attn_k.weight",      "blk.1.attn_v.weight",
        "blk.0.attn_output.weight", "blk.1.attn_q_norm.weight", "blk.1.attn_k_norm.weight",
        "blk.1.ffn_norm.weight",    "blk.1.ffn_gate.weight",    "blk.0.ffn_up.weight",
        "blk.1.ffn_down.weight"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_change(
            "qwen3",
            &(change){.tensor = names[i], .want = RAD_E_FORMAT, .words = {names[i], "missing"}});
}

TEST(wrong_shapes_are_named)
{
    static const change changes[] = {
        {.tensor = "blk.1.attn_q.weight", .cols = DIM, .rows = 31},
        {.tensor = "blk.1.attn_q.weight", .cols = 16, .rows = 32},
        {.tensor = "blk.0.attn_k.weight", .cols = DIM, .rows = 32},
        {.tensor = "blk.0.attn_output.weight", .cols = 64, .rows = DIM},
        {.tensor = "blk.0.attn_norm.weight", .cols = DIM, .rows = 2},
        {.tensor = "blk.0.attn_norm.weight", .cols = 31},
        {.tensor = "blk.1.ffn_down.weight", .cols = DIM, .rows = FFN},
        {.tensor = "output_norm.weight", .cols = 1},
        {.tensor = "output.weight", .cols = DIM, .rows = VOCAB + 1},
        {.tensor = "token_embd.weight", .cols = 16, .rows = VOCAB},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        change c = changes[i];
        c.want = RAD_E_FORMAT;
        c.words[0] = c.tensor, c.words[1] = "expected";
        check_change("llama", &c);
    }
}

TEST(what_we_do_not_have_is_refused_by_name)
{
    static const change changes[] = {
        {.key = "general.architecture",
         .text = "mamba",
         .words = {"mamba", "llama, qwen2, qwen3, phi3, gemma2"}},
        {.key = "general.architecture", .text = "a\nb\x80", .words = {"a?b?"}},
        {.key = "rope.scaling.type", .text = "ntk", .words = {"ntk", "llama.rope.scaling.type"}},
        {.key = "rope.scaling.yarn_log_multiplier", .value = 2, .words = {"yarn_log_multiplier"}},
        {.key = "attention.causal", .value = 0, .words = {"llama.attention.causal = 0"}},
        {.key = "attention.clamp_kqv", .value = 3, .words = {"clamp_kqv = 3"}},
        {.key = "attn_logit_softcapping", .value = 3, .words = {"softcapping = 3"}},
        {.key = "residual_scale", .text = "half", .words = {"llama.residual_scale"}},
        {.tensor = "blk.0.attn_q.bias", .cols = DIM, .words = {"blk.0.attn_q.bias", "llama"}},
        {.tensor = "blk.0.attn_qkv.weight", .cols = DIM, .rows = 4, .words = {"attn_qkv"}},
        {.tensor = "blk.1.post_ffw_norm.weight", .cols = DIM, .words = {"post_ffw_norm"}},
        {.tensor = "blk.0.ffn_up.weight",
         .cols = DIM,
         .rows = FFN,
         .type = 99,
         .words = {"blk.0.ffn_up.weight", "type 99"}},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        change c = changes[i];
        c.want = RAD_E_UNSUPPORTED;
        check_change("llama", &c);
    }
}

TEST(stretched_contexts_that_make_no_sense_are_refused)
{
    static const change changes[] = {
        {.tensor = "rope_freqs.weight", .cols = 4, .words = {"rope_freqs.weight", "is 0"}},
        {.tensor = "rope_freqs.weight", .cols = 3, .words = {"rope_freqs.weight", "expected 4"}},
        {.tensor = "rope_factors_long.weight",
         .cols = 4,
         .words = {"rope_factors_short.weight", "missing"}},
        {.key = "rope.scaling.type", .text = "longrope", .words = {"rope_factors_long.weight"}},
        {.key = "rope.scaling.factor", .text = "two", .words = {"rope.scaling.factor"}},
        {.key = "rope.scaling.attn_factor", .value = 0, .words = {"rope.scaling.attn_factor"}},
        {.key = "attention.sliding_window", .text = "all", .words = {"attention.sliding_window"}},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        change c = changes[i];
        c.want = RAD_E_FORMAT;
        check_change("llama", &c);
    }
    check_change("qwen3", &(change){.key = "attention.sliding_window",
                                    .value = 5,
                                    .want = RAD_E_UNSUPPORTED,
                                    .words = {"qwen3.attention.sliding_window = 5"}});
}

TEST(numbers_that_make_no_sense_are_refused_by_key)
{
    static const change changes[] = {
        {.key = "general.architecture"},
        {.key = "context_length", .value = 0},
        {.key = "context_length", .value = LEFT_OUT},
        {.key = "embedding_length", .value = 0},
        {.key = "embedding_length", .value = 0xfffffff0},
        {.key = "block_count", .value = 0},
        {.key = "block_count", .value = 1u << 30},
        {.key = "feed_forward_length", .value = 0},
        {.key = "feed_forward_length", .value = 0x7fffffff},
        {.key = "attention.head_count", .value = 0},
        {.key = "attention.head_count", .value = LEFT_OUT},
        {.key = "attention.head_count", .value = 1u << 31},
        {.key = "attention.head_count_kv", .value = 0},
        {.key = "attention.head_count_kv", .value = 3},
        {.key = "attention.head_count_kv", .value = 8},
        {.key = "attention.key_length", .value = 0},
        {.key = "attention.key_length", .value = 1u << 30},
        {.key = "attention.layer_norm_rms_epsilon", .value = LEFT_OUT},
        {.key = "attention.layer_norm_rms_epsilon", .value = 0},
        {.key = "rope.freq_base", .value = 0},
        {.key = "rope.dimension_count", .value = 3},
        {.key = "rope.dimension_count", .value = 10},
        {.key = "block_count", .text = "two"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        change c = changes[i];
        c.want = RAD_E_FORMAT;
        c.words[0] = c.key;
        check_change("llama", &c);
    }
    /* Sizes that make sense by themselves but are not the tensors'. */
    check_change("llama", &(change){.key = "block_count",
                                    .value = 3,
                                    .want = RAD_E_FORMAT,
                                    .words = {"blk.2.attn_norm.weight"}});
    check_change("llama", &(change){.key = "embedding_length",
                                    .value = 1u << 20,
                                    .want = RAD_E_FORMAT,
                                    .words = {"token_embd.weight", "1048576"}});
    check_change(
        "llama",
        &(change){.tokens = VOCAB - 1, .want = RAD_E_FORMAT, .words = {"4 tokens", "5 rows"}});
}

/* 2 GB and not more, as if that were the machine's. */
static void *small_machine(void *user, size_t bytes)
{
    *(size_t *)user = bytes;
    return bytes > (size_t)2 << 30 ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void small_machine_free(void *user, void *memory, size_t bytes)
{
    (void)user, (void)bytes;
    free(memory);
}

TEST(params_that_cannot_be_served_are_refused)
{
    micro m;
    micro_init(&m, "llama", &(change){0});
    gguf_file *file;
    CHECK_OK(gguf_open_memory(NULL, m.b.bytes, m.b.len, &file, NULL));
    size_t asked;
    const rad_env env = {.struct_size = sizeof env,
                         .user = &asked,
                         .alloc = small_machine,
                         .free = small_machine_free};
    runner *r;
    rad_error err = {0};
    model_runner_params params = {.dtype = RAD_F16};
    CHECK(model_runner_create(&env, file, &params, &r, &err) == RAD_E_UNSUPPORTED);
    CHECK(strstr(err.text, "dtype") && !r);
    params =
        (model_runner_params){.dtype = RAD_F32, .max_batch_tokens = UINT32_MAX, .num_threads = 1};
    CHECK(model_runner_create(&env, file, &params, &r, &err) == RAD_E_NOMEM);
    CHECK(strstr(err.text, "4294967295 tokens") && !r);
    CHECK(asked > (size_t)UINT32_MAX * (2 * DIM + 2 * FFN) * sizeof(float));
    gguf_close(file);
    gguf_builder_fini(&m.b);
}

TEST(create_survives_every_allocation_failing)
{
    micro m;
    micro_init(&m, "qwen3", &(change){.tensor = "output.weight", .cols = DIM, .rows = VOCAB});
    gguf_file *file;
    CHECK_OK(gguf_open_memory(NULL, m.b.bytes, m.b.len, &file, NULL));
    bench_fail_every_allocation(file, RAD_BF16);
    gguf_close(file);
    gguf_builder_fini(&m.b);
}

typedef struct seen_progress {
    uint64_t done, total;
    uint32_t calls;
} seen_progress;

static void see_progress(void *user, uint64_t done, uint64_t total)
{
    seen_progress *s = user;
    CHECK(done >= s->done && done <= total && (!s->calls || total == s->total));
    *s = (seen_progress){done, total, s->calls + 1};
}

TEST(loading_reports_its_progress_to_the_end)
{
    micro m;
    micro_init(&m, "qwen3", &(change){0});
    gguf_file *file;
    CHECK_OK(gguf_open_memory(NULL, m.b.bytes, m.b.len, &file, NULL));
    seen_progress seen = {0};
    const model_runner_params params = {.dtype = RAD_F32,
                                        .max_batch_tokens = 4,
                                        .num_threads = 1,
                                        .progress = see_progress,
                                        .progress_user = &seen};
    runner *r;
    CHECK_OK(model_runner_create(NULL, file, &params, &r, NULL));
    CHECK(seen.calls > 10 && seen.total > 0 && seen.done == seen.total);
    runner_destroy(r);
    gguf_close(file);
    gguf_builder_fini(&m.b);
}

TEST_MAIN()
