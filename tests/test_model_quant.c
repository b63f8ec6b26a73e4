/* test_model_quant.c - a model with quantised matrices: its answers do not depend on the
 * batch (P1), and lie near those of the float64 reference; also when the matrices of a stack are
 * of several types. */
#include "model_bench.h"
#include "tiny_models.h"

#include "base/base.h"
#include "gear/model_reference.h"
#include "model/weights.h"
#include "model/weights_ahead.h"
#include "model/weights_pack.h"

#include <math.h>
#include <sched.h>

enum { TOKENS = 150 };

static gguf_file *open_shipped(void)
{
    gguf_file *file = NULL;
    rad_error err = {0};
    rad_status status = gguf_open(NULL, RADISH_SOURCE_DIR "/models/radish-tiny.gguf", &file, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    return file;
}

/* A model whose stacks are of several quantised types, as files of mixtures have them. */
static gguf_file *open_mixture(tiny_writer *w, uint64_t *seed, bool tied)
{
    static tiny_model m = {.arch = "qwen2",
                           .vocab = 300,
                           .layers = 3,
                           .dim = 256,
                           .ffn = 512,
                           .heads = 5,
                           .kv_heads = 1,
                           .head_dim = 32, /* q, k and v: 160, 32 and 32 rows */
                           .v_head_dim = 32,
                           .rope_dim = 32,
                           .context = 512,
                           .quantised = true};
    m.tied = tied;
    return tiny_model_open(w, &m, seed);
}

/* All logits of TOKENS tokens: alone in one batch, and in pieces of any size beside another
 * request's. */
static void check_batches(const gguf_file *file, weights_policy policy, uint64_t *seed)
{
    bench b = bench_create_with(file, RAD_F32, policy, 1, NULL, 2);
    uint32_t vocab = b.model->info.vocab_size;
    rad_token ids[2][TOKENS];
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < TOKENS; i++)
            ids[s][i] = (rad_token)(test_random(seed) % vocab);

    float *alone = malloc(sizeof(float) * TOKENS * vocab),
          *got = malloc(sizeof(float) * TOKENS * vocab);
    bench_prefill(&b, 1, ids[0], TOKENS, alone);
    for (uint32_t at = 0; at < TOKENS;) {
        uint32_t n = 1 + (uint32_t)(test_random(seed) % 20);
        uint32_t end = RAD_MIN(at + n, (uint32_t)TOKENS);
        piece pieces[2] = {{2, ids[0], at, end}, {3, ids[1], at, end}};
        float *logits[2] = {got + (size_t)at * vocab, NULL};
        bench_run(&b, pieces, test_random(seed) % 2 ? 2 : 1, logits);
        at = end;
    }
    CHECK(memcmp(got, alone, sizeof(float) * TOKENS * vocab) == 0);
    free(alone);
    free(got);
    bench_destroy(&b);
}

TEST(logits_do_not_depend_on_the_batch)
{
    uint64_t seed = test_told_seed();
    gguf_file *file = open_shipped();
    check_batches(file, WEIGHTS_AS_Q8_0, &seed);
    gguf_close(file);
}

TEST(logits_of_mixed_types_do_not_depend_on_the_batch)
{
    uint64_t seed = test_told_seed();
    for (uint64_t round = 0; round < test_scale(2, 20); round++) {
        tiny_writer w;
        gguf_file *file = open_mixture(&w, &seed, round % 2);
        check_batches(file, WEIGHTS_AS_FILE, &seed);
        gguf_close(file);
        tiny_model_fini(&w);
    }
}

/* Layers of both kinds, all of a recurrent layer's matrices in types of their own. */
static gguf_file *open_recurrent(tiny_writer *w, const char *arch, bool quantised, uint64_t *seed)
{
    static tiny_model m;
    m = (tiny_model){.arch = arch,
                     .vocab = 100,
                     .layers = 4,
                     .dim = 64,
                     .ffn = 96,
                     .heads = 4,
                     .kv_heads = 2,
                     .head_dim = 32,
                     .v_head_dim = 32,
                     .rope_dim = 16,
                     .context = 512,
                     .taps = 4,
                     .attention = 2,

                     .quantised = quantised};
    if (tiny_is(&m, "granitehybrid")) m.logit_scale = 2;
    if (!tiny_is(&m, "lfm2"))
        m.state_heads = 4, m.state_groups = 2, m.state_key = 24, m.state_value = 40;
    return tiny_model_open(w, &m, seed);
}

TEST(logits_of_recurrent_layers_do_not_depend_on_the_batch)
{
    static const char *const archs[] = {"qwen35", "lfm2", "granitehybrid"};
    uint64_t seed = test_told_seed();
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
        for (int quantised = 0; quantised < 2; quantised++) {
            tiny_writer w;
            gguf_file *file = open_recurrent(&w, archs[i], quantised, &seed);
            check_batches(file, WEIGHTS_AS_FILE, &seed);
            check_batches(file, WEIGHTS_AS_Q8_0, &seed);
            gguf_close(file);
            tiny_model_fini(&w);
        }
}

/* A file's bf16 stays 16 bits wide beside f32 activations: the logits of f32 copies, bit by bit,
 * and P1. Every other model has experts, some layers' in f32. */
TEST(bf16_that_stays_has_the_logits_of_f32)
{
    uint64_t seed = test_told_seed();
    uint64_t stayed = 0;
    for (uint64_t round = 0; round < test_scale(6, 60); round++) {
        const tiny_model m = {.arch = round % 2 ? "qwen3moe" : "llama",
                              .vocab = 300,
                              .layers = 3,
                              .dim = 72, /* no blocks of 32: f32 and bf16 alone */
                              .ffn = 100,
                              .heads = 3,
                              .kv_heads = 1,
                              .head_dim = 24,
                              .v_head_dim = 24,
                              .rope_dim = 24,
                              .context = 512,
                              .experts = round % 2 ? 5 : 0,
                              .used = round % 2 ? 2 : 0,
                              .expert_ffn = round % 2 ? 50 : 0,
                              .tied = round % 3 == 0};
        tiny_writer w;
        gguf_file *file = tiny_model_open(&w, &m, &seed);
        rad_token ids[TOKENS];
        for (int i = 0; i < TOKENS; i++)
            ids[i] = (rad_token)(test_random(&seed) % m.vocab);
        const size_t bytes = sizeof(float) * TOKENS * m.vocab;
        float *logits[2];
        for (int wide = 0; wide < 2; wide++) {
            bench b = bench_create_with(file, RAD_F32, wide ? WEIGHTS_AS_DTYPE : WEIGHTS_AS_FILE, 1,
                                        NULL, 2);
            logits[wide] = malloc(bytes);
            bench_prefill(&b, 1, ids, 1, logits[wide]);
            CHECK(model_runner_experts_read(b.model) == (uint64_t)m.layers * m.used);
            bench_prefill(&b, 1, ids, TOKENS, logits[wide]);
            const uint64_t all = model_runner_experts_read(b.model);
            CHECK(all <= (uint64_t)m.layers * m.experts);
            if (m.experts) { /* without logits the last layer reads none */
                float *none = NULL;
                bench_run(&b, &(piece){2, ids, 0, TOKENS}, 1, &none);
                CHECK(model_runner_experts_read(b.model) < all);
            }
            if (!wide) stayed += strstr(b.model->info.weights, "bf16w") != NULL;
            CHECK(!wide || !strcmp(b.model->info.weights, "f32"));
            bench_destroy(&b);
        }
        CHECKF(memcmp(logits[0], logits[1], bytes) == 0, "round %d\n", (int)round);
        check_batches(file, WEIGHTS_AS_FILE, &seed);
        free(logits[0]);
        free(logits[1]);
        gguf_close(file);
        tiny_model_fini(&w);
    }
    CHECK(stayed);
}

/* And a file's F16 likewise, of the embedding, too. */
TEST(f16_that_stays_has_the_logits_of_f32)
{
    gguf_file *file = open_shipped();
    rad_token ids[TOKENS];
    float *logits[2];
    size_t bytes = 0;
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (rad_token)(i * 7919 % 3000);
    for (int wide = 0; wide < 2; wide++) {
        bench b =
            bench_create_with(file, RAD_F32, wide ? WEIGHTS_AS_DTYPE : WEIGHTS_AS_FILE, 1, NULL, 2);
        CHECK(!strcmp(b.model->info.weights, wide ? "f32" : "f16w"));
        bytes = sizeof(float) * TOKENS * b.model->info.vocab_size;
        logits[wide] = malloc(bytes);
        bench_prefill(&b, 1, ids, TOKENS, logits[wide]);
        bench_destroy(&b);
    }
    CHECK(memcmp(logits[0], logits[1], bytes) == 0);
    free(logits[0]);
    free(logits[1]);
    gguf_close(file);
}

/* Experts of several types, whose rows lie by expert while they are computed: P1 as for any. */
TEST(logits_of_quantised_experts_do_not_depend_on_the_batch)
{
    uint64_t seed = test_told_seed();
    for (uint64_t round = 0; round < test_scale(4, 40); round++) {
        const tiny_model m = {.arch = round % 2 ? "qwen3moe" : "qwen2moe",
                              .vocab = 300,
                              .layers = 3,
                              .dim = 256,
                              .ffn = 512,
                              .heads = 5,
                              .kv_heads = 1,
                              .head_dim = 32,
                              .v_head_dim = 32,
                              .rope_dim = 32,
                              .context = 512,
                              .experts = 10,
                              .used = 3,
                              .expert_ffn = round % 4 < 2 ? 256 : 96,
                              .shared_ffn = round % 2 ? 0 : 160,
                              .dense = round % 3 == 2,
                              .quantised = true};
        tiny_writer w;
        gguf_file *file = tiny_model_open(&w, &m, &seed);
        check_batches(file, WEIGHTS_AS_FILE, &seed);
        check_batches(file, WEIGHTS_AS_DTYPE, &seed);
        gguf_close(file);
        tiny_model_fini(&w);
    }
}

/* How far 40 tokens' logits are from the reference, of the reference's norm. */
static double off_reference(const gguf_file *file, weights_policy policy)
{
    bench b = bench_create_with(file, RAD_F32, policy, 1, NULL, 1);
    uint32_t vocab = b.model->info.vocab_size;
    rad_token ids[40];
    for (int i = 0; i < 40; i++)
        ids[i] = (rad_token)((i * 7919 + 300) % (int)vocab);
    float *got = malloc(sizeof(float) * 40 * vocab);
    double *want = malloc(sizeof(double) * 40 * vocab);
    bench_prefill(&b, 1, ids, 40, got);
    rad_error err = {0};
    CHECK_OK(model_reference_logits(NULL, file, ids, 40, want, &err));
    double error = 0, size = 0;
    for (size_t i = 0; i < (size_t)40 * vocab; i++) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    print_message("%s: off by %.6f of the logits' norm\n", b.model->info.weights,
                  sqrt(error / size));
    free(got);
    free(want);
    bench_destroy(&b);
    return sqrt(error / size);
}

TEST(q8_0_logits_are_near_the_reference)
{
    gguf_file *file = open_shipped();
    double off = off_reference(file, WEIGHTS_AS_Q8_0);
    CHECK(off < 0.02 && off > 0);
    gguf_close(file);
}

/* Every tensor's numbers, in f32 and rounded to int8 on the way. The types are the file's. */
TEST(logits_of_mixed_types_are_near_the_reference)
{
    uint64_t seed = test_told_seed();
    for (uint64_t round = 0; round < test_scale(4, 40); round++) {
        tiny_writer w;
        gguf_file *file = open_mixture(&w, &seed, round % 2);
        double plain = off_reference(file, WEIGHTS_AS_DTYPE);
        double native = off_reference(file, WEIGHTS_AS_FILE);
        CHECK(plain < 1e-4);
        CHECK(native < 0.2 && native > plain); /* random layers make errors larger */
        gguf_close(file);
        tiny_model_fini(&w);
    }
}

/* A file of Q4_K and Q6_K is held in its own bytes, but for q4_K's scales: nothing is made
 * wider because it shares a stack. */
TEST(mixed_types_take_no_more_memory_than_in_the_file)
{
    uint64_t seed = test_told_seed();
    for (int round = 0; round < 8; round++) {
        tiny_writer w;
        gguf_file *file = open_mixture(&w, &seed, false);
        model_config config;
        model_weights weights;
        rad_error err = {0};
        const rad_env env = rad_env_or_default(NULL);
        const weights_loader loader = {.policy = WEIGHTS_AS_FILE};
        CHECK_OK(model_config_read(file, 0, &config, &err));
        CHECK_OK(model_weights_load(&env, file, &config, RAD_BF16, &loader, &weights, &err));
        CHECK(weights.matrix_bytes[GEMM_F32] == 0 && weights.matrix_bytes[GEMM_BF16] == 0);
        uint64_t held = 0, wanted = 0, have[GEMM_NUM_TYPES] = {0};
        for (int t = 0; t < GEMM_NUM_TYPES; t++)
            held += weights.matrix_bytes[t];
        for (uint64_t i = 0; i < gguf_num_tensors(file); i++) {
            const gguf_tensor *t = gguf_tensor_at(file, i);
            if (t->num_dims != 2 || t == gguf_find_tensor(file, "token_embd.weight")) continue;
            const gemm_type type = weights_native_type(t->type);
            uint32_t rows = (uint32_t)(t->dims[1] + GEMM_PANEL - 1) / GEMM_PANEL * GEMM_PANEL;
            wanted += gemm_weight_bytes(type, rows, (uint32_t)t->dims[0]);
            have[type] = 1;
        }
        for (int t = 0; t < GEMM_NUM_TYPES; t++)
            CHECK(!have[t] == !weights.matrix_bytes[t]);
        CHECK(held == weights.matrices_bytes); /* the block they all lie in */
        CHECKF(held <= wanted, "%llu bytes instead of %llu\n", (unsigned long long)held,
               (unsigned long long)wanted);
        CHECK(weights.token_embd.type == gguf_find_tensor(file, "token_embd.weight")->type);
        model_weights_fini(&env, &weights);
        gguf_close(file);
        tiny_model_fini(&w);
    }
}

/* A thread asks for bytes no further ahead than its window, goes on as they are packed, and ends
 * when told to wherever it is. */
TEST(bytes_are_asked_for_within_the_window)
{
    gguf_file *file = open_shipped();
    const rad_env env = rad_env_or_default(NULL);
    const uint64_t fields = gguf_num_tensors(file) / 2;
    for (uint64_t round = 0; round < 3; round++) {
        weights_ahead a;
        uint64_t total = 0;
        CHECK_OK(weights_ahead_init(&a, &env, file, fields, NULL));
        a.window = round ? 1 << 20 : 1;
        for (uint64_t i = 0; i <= fields; i++) { /* one too many is left out */
            const gguf_tensor *t[2] = {gguf_tensor_at(file, 2 * i),
                                       gguf_tensor_at(file, 2 * i + 1)};
            const ahead_field field = {{t[0], t[1]}, 2, 2};
            if (i < fields) total += t[0]->bytes + t[1]->bytes;
            weights_ahead_note(&a, i < fields ? &field : &(ahead_field){{t[0]}, 1, 1});
        }
        weights_ahead_start(&a);
        CHECK(a.started);
        const uint64_t until = round == 2 ? total / 2 : total;
        while (a.packed < until) {
            const uint64_t asked = a.asked, packed = a.packed;
            CHECK(asked <= total && asked < packed + a.window + WEIGHTS_AHEAD_PIECE);
            if (asked > packed) weights_ahead_advance(&a, asked - packed);
            sched_yield();
        }
        CHECK(a.asked >= until);
        weights_ahead_fini(&a);
    }
    weights_ahead_fini(&(weights_ahead){0});
    gguf_close(file);
}

/* Loading says no and gives everything back, whichever allocation fails. */
static void check_failing(const gguf_file *file, weights_policy policy)
{
    runner *model = NULL;
    const model_runner_params params = {.dtype = RAD_F32,
                                        .weights = policy,
                                        .max_batch_tokens = 8,
                                        .max_batch_logits = 8,
                                        .num_threads = 1};
    for (long n = 0; !model; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_status status = model_runner_create(&env, file, &params, &model, NULL);
        CHECK(status == (model ? RAD_OK : RAD_E_NOMEM));
        runner_destroy(model);
        CHECK(t.bytes == 0);
    }
}

TEST(loading_survives_every_allocation_failing)
{
    gguf_file *file = open_shipped();
    check_failing(file, WEIGHTS_AS_Q8_0);
    gguf_close(file);
    uint64_t seed = 3;
    tiny_writer w;
    file = open_mixture(&w, &seed, false);
    check_failing(file, WEIGHTS_AS_FILE);
    gguf_close(file);
    tiny_model_fini(&w);
}

TEST_MAIN()
