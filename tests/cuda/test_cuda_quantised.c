/* test_cuda_quantised.c - models whose weights stay quantised on a GPU, over an emulated driver: in
 * which types they are there, how near the CPU's logits, and the same bits in every batch. */
#include "runner_rig.h"

#define K_SIZES                                                                                    \
    .vocab = 40, .layers = 2, .dim = 256, .ffn = 256, .heads = 8, .kv_heads = 2, .head_dim = 32,   \
    .v_head_dim = 32, .rope_dim = 32, .context = BENCH_ROW_TOKENS

enum { TOKENS = 20, MOST_VOCAB = 83 };

static const struct {
    tiny_model shape;
    weights_policy weights;
    const char *types;
    double near, first; /* at most, of all logits and of the first token's */
} all[] = {
    /* Products have the CPU's bits; attention, whose K, V and result are bf16, and sums of norms
     * have not. Of one token alone it is the same. */
    {{.arch = "llama", NEAR_SIZES, .tied = true, .one_type = GGML_Q8_0},
     WEIGHTS_AS_FILE,
     "q8_0",
     0.08,
     1e-5},
    {{.arch = "qwen3", K_SIZES, .one_type = GGML_Q4_K, .other_type = GGML_Q6_K},
     WEIGHTS_AS_FILE,
     "q4_K+q6_K",
     0.08,
     1e-5},
    {{.arch = "qwen2", K_SIZES, .tied = true, .one_type = GGML_Q6_K},
     WEIGHTS_AS_FILE,
     "q6_K",
     0.08,
     1e-5},
    {{.arch = "llama", NEAR_SIZES, .tied = true, .one_type = GGML_MXFP4},
     WEIGHTS_AS_FILE,
     "mxfp4",
     0.08,
     1e-5},
    /* Experts in the types of files that people have: gpt-oss in MXFP4, whose attention is Q8_0 in
     * part (sinks take some of the first token's weight, and what is left is rounded to bf16);
     * Q8_0; Q4_K whose downs are Q6_K, Q8_0 or a type that becomes bf16. */
    {{.arch = "gpt-oss",
      NEAR_SIZES,
      .window = 24,
      .experts = 4,
      .used = 2,
      .expert_ffn = 96,
      .rope_type = "yarn",
      .rope_factor = 4,
      .original_context = 32,
      .one_type = GGML_MXFP4},
     WEIGHTS_AS_FILE,
     "mxfp4",
     0.08,
     0.06},
    {{.arch = "gpt-oss",
      NEAR_SIZES,
      .window = 24,
      .experts = 4,
      .used = 2,
      .expert_ffn = 96,
      .one_type = GGML_MXFP4,
      .other_type = GGML_Q8_0},
     WEIGHTS_AS_FILE,
     "q8_0+mxfp4",
     0.08,
     0.06},
    {{.arch = "qwen3moe",
      NEAR_SIZES,
      .experts = 5,
      .used = 2,
      .expert_ffn = 32,
      .one_type = GGML_Q8_0},
     WEIGHTS_AS_FILE,
     "q8_0",
     0.08,
     1e-5},
    {{.arch = "qwen3moe",
      K_SIZES,
      .experts = 3,
      .used = 2,
      .expert_ffn = 256,
      .one_type = GGML_Q4_K,
      .other_type = GGML_Q6_K},
     WEIGHTS_AS_FILE,
     "q4_K+q6_K",
     0.08,
     1e-5},
    {{.arch = "qwen2moe",
      K_SIZES,
      .experts = 3,
      .used = 2,
      .expert_ffn = 256,
      .shared_ffn = 256,
      .one_type = GGML_Q4_K,
      .other_type = GGML_Q5_K},
     WEIGHTS_AS_FILE,
     "bf16+q4_K",
     0.08,
     0.03},
    {{.arch = "qwen2moe",
      K_SIZES,
      .experts = 3,
      .used = 2,
      .expert_ffn = 256,
      .shared_ffn = 256,
      .one_type = GGML_Q5_K,
      .other_type = GGML_Q4_K},
     WEIGHTS_AS_FILE,
     "bf16+q4_K",
     0.08,
     0.03},
    /* No kernels for one of a stack: all of it is bf16, and others stay. */
    {{.arch = "llama", K_SIZES, .tied = true, .one_type = GGML_Q4_K, .other_type = GGML_Q5_K},
     WEIGHTS_AS_FILE,
     "bf16+q4_K",
     0.08,
     0.03},
    {{.arch = "llama", K_SIZES, .one_type = GGML_Q5_K, .other_type = GGML_Q8_0},
     WEIGHTS_AS_FILE,
     "bf16+q8_0",
     0.08,
     0.03},
    /* Rounded to it, with rows that have no whole blocks. */
    {{.arch = "qwen3",
      .vocab = 70,
      .layers = 2,
      .dim = 72,
      .ffn = 100,
      .heads = 2,
      .kv_heads = 1,
      .head_dim = 32,
      .v_head_dim = 32,
      .rope_dim = 20,
      .context = BENCH_ROW_TOKENS,
      .one_type = GGML_BF16},
     WEIGHTS_AS_Q8_0,
     "q8_0",
     0.08,
     1e-5},
    {{.arch = "qwen3moe",
      NEAR_SIZES,
      .experts = 5,
      .used = 2,
      .expert_ffn = 40,
      .one_type = GGML_BF16},
     WEIGHTS_AS_Q8_0,
     "q8_0",
     0.08,
     1e-5},
    {{.arch = "llama", NEAR_SIZES, .one_type = GGML_Q8_0}, WEIGHTS_AS_DTYPE, "bf16", 0.04, 1e-5},
};

/* Tokens that are further than `near`. A router's scores of two experts may be so close that the
 * GPU chooses the other one: such a token says something else, and those behind it hardly. */
static uint32_t count_far(const float *cpu, const float *gpu, uint32_t vocab, double near)
{
    uint32_t far = 0;
    for (uint32_t t = 0; t < TOKENS; t++, cpu += vocab, gpu += vocab)
        far += distance(cpu, gpu, vocab) >= near;
    return far;
}

TEST(weights_stay_as_the_file_has_them_and_logits_near_the_cpus)
{
    static float cpu[TOKENS * MOST_VOCAB], gpu[TOKENS * MOST_VOCAB];
    for (size_t i = 0; i < RAD_COUNT(all); i++) {
        const tiny_model *shape = &all[i].shape;
        cuda_runner_params params = params_of(64, 64, BENCH_ROWS);
        params.model.weights = all[i].weights;
        rad_token ids[TOKENS];
        uint64_t state = 3 + i;
        model_sizes sizes;
        model m;
        start_gpu(i % 2 ? 90 : 80);
        make_model(&m, shape, 11 + i);
        CHECK_OK(cuda_runner_measure(NULL, m.file, &params, &sizes, NULL));
        runner *r = make_runner(m.file, &params);
        CHECKF(!strcmp(r->info.weights, all[i].types), "%zu: %s\n", i, r->info.weights);
        (void)check_device_bytes(&sizes);

        bench on_cpu = bench_create_with(m.file, RAD_BF16, all[i].weights, 1, NULL, 1);
        const char *types = on_cpu.model->info.weights; /* a router is no matrix on the GPU */
        types += shape->experts && !strncmp(types, "f32+", 4) ? 4 : 0;
        CHECKF(strstr(all[i].types, "bf16") || !strcmp(types, r->info.weights),
               "%zu: %s on the CPU\n", i, types);
        bench on_gpu = bench_of(r, 1);
        for (uint32_t k = 0; k < TOKENS; k++)
            ids[k] = (rad_token)(test_random(&state) % shape->vocab);
        bench_prefill(&on_cpu, 1, ids, TOKENS, cpu);
        run_cut(&on_gpu, ids, TOKENS / 2, TOKENS, gpu);
        const double d = distance(cpu, gpu, TOKENS * shape->vocab);
        const double first = distance(cpu, gpu, shape->vocab);
        print_message("  %s in %s: %.2g from the CPU's, the first token's %.2g\n", shape->arch,
                      all[i].types, d, first);
        CHECKF(d < all[i].near || shape->experts, "%zu: %g\n", i, d);
        CHECKF(first < all[i].first, "%zu: %g\n", i, first);
        CHECK(!shape->experts || count_far(cpu, gpu, shape->vocab, 0.1) <= 2);
        bench_destroy(&on_cpu);
        bench_destroy(&on_gpu);
        end_model(&m);
        nothing_is_left();
    }
}

/* A quarter of the bytes of Q4_K, half of those of Q8_0 and their scales. */
TEST(quantised_weights_take_less_memory)
{
    static const tiny_model shapes[] = {{.arch = "llama", K_SIZES, .one_type = GGML_Q8_0},
                                        {.arch = "llama", K_SIZES, .one_type = GGML_Q4_K}};
    static const double most[] = {0.54, 0.3};
    for (size_t i = 0; i < RAD_COUNT(shapes); i++) {
        cuda_runner_params params = params_of(64, 64, BENCH_ROWS);
        model_sizes file, bf16;
        model m;
        make_model(&m, &shapes[i], 5);
        CHECK_OK(cuda_runner_measure(NULL, m.file, &params, &bf16, NULL));
        params.model.weights = WEIGHTS_AS_FILE;
        CHECK_OK(cuda_runner_measure(NULL, m.file, &params, &file, NULL));
        const gemm_type type = i ? GEMM_Q4_K : GEMM_Q8_0;
        CHECK(file.matrix_bytes[GEMM_BF16] == 0 && bf16.matrix_bytes[type] == 0);
        CHECK((double)file.matrix_bytes[type] < most[i] * (double)bf16.matrix_bytes[GEMM_BF16]);
        CHECK(file.weights_bytes < bf16.weights_bytes);
        end_model(&m);
    }
}

/* More tokens than a kernel takes at a time, and few; in graphs and not; launches that see memory
 * as it was before all that they do not wait for. */
TEST(crowds_give_the_bits_of_a_prefill)
{
    static const tiny_model small = {.arch = "qwen3",
                                     .vocab = 40,
                                     .layers = 2,
                                     .dim = 32,
                                     .ffn = 32,
                                     .heads = 2,
                                     .kv_heads = 1,
                                     .head_dim = 16,
                                     .v_head_dim = 16,
                                     .rope_dim = 16,
                                     .context = 96,
                                     .one_type = GGML_Q8_0};
    static const tiny_model of_k = {.arch = "llama",
                                    .vocab = 40,
                                    .layers = 1,
                                    .dim = 256,
                                    .ffn = 256,
                                    .heads = 4,
                                    .kv_heads = 1,
                                    .head_dim = 64,
                                    .v_head_dim = 64,
                                    .rope_dim = 64,
                                    .context = 96,
                                    .one_type = GGML_Q4_K,
                                    .other_type = GGML_Q6_K,
                                    .tied = true};
    /* Enough rows that a prompt's gates and ups are products for many tokens. */
    tiny_model wide = small;
    wide.layers = 1;
    wide.ffn = 512;
    run_crowd(&small, WEIGHTS_AS_FILE, 80, (uint32_t)test_scale(8, 40), false);
    run_crowd(&wide, WEIGHTS_AS_FILE, 90, 2, false);
    run_crowd(&small, WEIGHTS_AS_FILE, 90, 3, true);
    run_crowd(&of_k, WEIGHTS_AS_FILE, 90, (uint32_t)test_scale(4, 17), false);
    static const tiny_model experts = {.arch = "gpt-oss",
                                       .vocab = 40,
                                       .layers = 2,
                                       .dim = 64,
                                       .ffn = 32,
                                       .heads = 2,
                                       .kv_heads = 1,
                                       .head_dim = 16,
                                       .v_head_dim = 16,
                                       .rope_dim = 16,
                                       .context = 96,
                                       .window = 24,
                                       .experts = 4,
                                       .used = 2,
                                       .expert_ffn = 32,
                                       .one_type = GGML_MXFP4,
                                       .other_type = GGML_Q8_0};
    run_crowd(&experts, WEIGHTS_AS_FILE, 80, (uint32_t)test_scale(5, 40), false);
    run_crowd(&experts, WEIGHTS_AS_FILE, 90, 3, true);
}

/* Which has 99 KB for a block, of which a plan once took all: more than the kernels had asked for.
 */
TEST(a_gpu_with_less_shared_memory_has_the_same_bits)
{
    enum { VOCAB = 340, MOST = 6 };
    static const tiny_model shape = {.arch = "llama",
                                     .vocab = VOCAB,
                                     .layers = 1,
                                     .dim = 256,
                                     .ffn = 256,
                                     .heads = 4,
                                     .kv_heads = 1,
                                     .head_dim = 64,
                                     .v_head_dim = 64,
                                     .rope_dim = 64,
                                     .context = BENCH_ROW_TOKENS,
                                     .one_type = GGML_Q4_K,
                                     .tied = true};
    static const rad_token ids[MOST] = {3, 339, 1, 200, 7, 8};
    static float rows[2][MOST * VOCAB];
    for (int i = 0; i < 2; i++) {
        cuda_runner_params params = params_of(64, 64, BENCH_ROWS);
        params.model.weights = WEIGHTS_AS_FILE;
        model m;
        start_gpu(i ? 89 : 80);
        make_model(&m, &shape, 4);
        bench b = bench_of(make_runner(m.file, &params), 1);
        run_cut(&b, ids, MOST - 1, MOST, rows[i]);
        bench_destroy(&b);
        end_model(&m);
        nothing_is_left();
    }
    CHECK(!memcmp(rows[0], rows[1], sizeof rows[0]));
}

TEST_MAIN()
