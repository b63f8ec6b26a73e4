/* test_cuda_runner_f8.c - models on a GPU whose K and V are fp8, over an emulated driver: near the
 * CPU's logits over such a pool, and the same bits however requests are batched. */
#include "runner_rig.h"

#include "mem/kv_codec.h"

static const tiny_model models[] = {
    {.arch = "llama", NEAR_SIZES},
    {.arch = "qwen3", ODD_SIZES, .tied = true},
    {.arch = "llama",
     NEAR_SIZES,
     .window = 24,
     .arrays = true,
     .rope_factor = 4,
     .quantised = true},
};

static const float k_scales[] = {0.07f, 1.3f, 0.5f}, v_scales[] = {2.1f, 0.01f, 0.4f};

static runner *on_cpu(const gguf_file *file, rad_dtype kv)
{
    runner *r;
    const model_runner_params params = {.dtype = RAD_BF16,
                                        .kv_dtype = kv,
                                        .set_kv_dtype = true,
                                        .max_batch_tokens = BENCH_ROWS * BENCH_ROW_TOKENS,
                                        .max_batch_logits = BENCH_ROWS * BENCH_ROW_TOKENS,
                                        .num_threads = 1};
    CHECK_OK(model_runner_create(NULL, file, &params, &r, NULL));
    return r;
}

static runner *on_gpu(const gguf_file *file, rad_dtype kv)
{
    cuda_runner_params params = params_of(2 * BENCH_ROW_TOKENS, BENCH_ROW_TOKENS, BENCH_ROWS);
    params.model.kv_dtype = kv;
    params.model.set_kv_dtype = true;
    return make_runner(file, &params);
}

/* Another pool in the place of the bench's: numbers are divided by these before they are rounded.
 */
static void scale_pool(bench *b, const float *k, const float *v)
{
    rad_token_to_kv_pool_params p = *rad_kv_pool_params(b->kv);
    p.k_scales = k, p.v_scales = v;
    rad_token_to_kv_pool_destroy(b->kv);
    CHECK_OK(rad_token_to_kv_pool_create(NULL, &p, &b->kv, NULL));
}

static void make_ids(rad_token *ids, uint32_t n, uint32_t vocab, uint64_t seed)
{
    for (uint32_t k = 0; k < n; k++)
        ids[k] = (rad_token)(test_random(&seed) % vocab);
}

/* Nearer to the CPU's over codes of the same type than that is to the CPU's without rounding. */
TEST(logits_are_near_the_cpus_with_the_same_type)
{
    enum { TOKENS = 70, BEGIN = 30, MOST_VOCAB = 83 };
    static float cpu[TOKENS * MOST_VOCAB], gpu[TOKENS * MOST_VOCAB], exact[TOKENS * MOST_VOCAB];
    for (size_t i = 0; i < RAD_COUNT(models); i++) {
        const rad_dtype kv = i % 2 ? RAD_F8_E4M3 : RAD_F8_E5M2;
        const size_t n = TOKENS * models[i].vocab;
        rad_token ids[TOKENS];
        model m;
        start_gpu(i % 2 ? 90 : 80);
        make_model(&m, &models[i], 5 + i);
        make_ids(ids, TOKENS, models[i].vocab, 7 + i);
        bench a = bench_of(on_cpu(m.file, kv), 1), b = bench_of(on_gpu(m.file, kv), i % 3 ? 16 : 1);
        bench c = bench_of(on_cpu(m.file, RAD_BF16), 1);
        CHECK(b.model->info.kv_dtype == kv);
        CHECK(models[i].window || /* the CPU's pool of those layers is another */
              b.model->info.full_token_bytes == a.model->info.full_token_bytes);
        if (i) scale_pool(&a, k_scales, v_scales), scale_pool(&b, k_scales, v_scales);
        bench_prefill(&a, 1, ids, TOKENS, cpu);
        bench_prefill(&c, 1, ids, TOKENS, exact);
        run_cut(&b, ids, BEGIN, TOKENS, gpu);
        const double d = distance(cpu, gpu, n), rounded = distance(exact, cpu, n);
        print_message("  %s, %s: %.3g of the CPU's, which is %.3g of bf16's\n", models[i].arch,
                      kv_dtype_name(kv), d, rounded);
        CHECKF(d < 0.1 && d < rounded, "%zu, %s: %g, %g\n", i, models[i].arch, d, rounded);
        bench_destroy(&a);
        bench_destroy(&b);
        bench_destroy(&c);
        end_model(&m);
        nothing_is_left();
    }
}

TEST(decoding_in_a_crowd_gives_the_bits_of_a_prefill)
{
    run_crowd_kv(&models[0], WEIGHTS_AS_DTYPE, RAD_F8_E5M2, 80, 3, false);
    run_crowd_kv(&models[1], WEIGHTS_AS_DTYPE, RAD_F8_E4M3, 90, (uint32_t)test_scale(5, MANY),
                 false);
    run_crowd_kv(&models[1], WEIGHTS_AS_DTYPE, RAD_F8_E4M3, 90, 2, true);
}

/* A graph has the scales of the pool that it was captured for: a pool of others at the same place
 * is captured anew. */
TEST(graphs_are_of_a_pools_scales)
{
    enum { PROMPT = 20, TOKENS = 24 };
    static float all[TOKENS * 83], each[83];
    rad_token ids[TOKENS];
    model m;
    start_gpu(90);
    make_model(&m, &models[0], 3);
    make_ids(ids, TOKENS, models[0].vocab, 3);
    bench b = bench_of(on_gpu(m.file, RAD_F8_E4M3), 1);
    const void *place = NULL;
    for (uint32_t i = 0; i < 2; i++) {
        rad_kv_buffers at;
        float *to = all, *none = NULL;
        if (i) scale_pool(&b, k_scales, v_scales);
        CHECK_OK(rad_kv_pool_get_buffers(b.kv, 0, &at));
        CHECK(!i || at.k == place);
        place = at.k;
        bench_run(&b, &(piece){1, ids, 0, TOKENS}, 1, &to);
        bench_run(&b, &(piece){2, ids, 0, PROMPT}, 1, &none);
        for (uint32_t p = PROMPT; p < TOKENS; p++) {
            to = each;
            bench_run(&b, &(piece){2, ids, p, p + 1}, 1, &to);
            CHECKF(!memcmp(each, all + p * models[0].vocab, models[0].vocab * sizeof *each),
                   "pool %u, position %u\n", i, p);
        }
    }
    const cuda_runner_stats stats = cuda_runner_get_stats(b.model);
    CHECK(stats.graph_steps == 2 * (TOKENS - PROMPT) && stats.captured == 2);
    bench_destroy(&b);
    end_model(&m);
    nothing_is_left();
}

/* A pool of another type is none that this runner made. */
TEST(a_runner_takes_pools_of_its_type)
{
    rad_token ids[2] = {1, 2};
    rad_error err = {0};
    uint32_t two = 2, zero = 0, positions[] = {0, 1};
    rad_row row = 1;
    model m;
    start_gpu(80);
    make_model(&m, &models[0], 3);
    bench b = bench_of(on_gpu(m.file, RAD_F8_E4M3), 1);
    rad_token_to_kv_pool_params p = *rad_kv_pool_params(b.kv);
    p.dtype = RAD_F8_E5M2;
    p.k_scales = p.v_scales = NULL;
    rad_token_to_kv_pool_destroy(b.kv);
    CHECK_OK(rad_token_to_kv_pool_create(NULL, &p, &b.kv, NULL));
    const forward_batch batch = {.num_reqs = 1,
                                 .num_tokens = 2,
                                 .input_ids = ids,
                                 .positions = positions,
                                 .out_cache_loc = rad_req_to_token_row(b.rows, row),
                                 .req_pool_indices = &row,
                                 .seq_lens = &two,
                                 .extend_prefix_lens = &zero,
                                 .extend_seq_lens = &two,
                                 .extend_start_loc = &zero,
                                 .req_to_token_pool = b.rows,
                                 .token_to_kv_pool = b.kv};
    CHECK(runner_forward(b.model, &batch, NULL, &err) == RAD_E_INVAL);
    CHECKF(strstr(err.text, "not one that this runner made"), "%s\n", err.text);
    bench_destroy(&b);
    end_model(&m);
    nothing_is_left();
}

TEST_MAIN()
