/* test_model_quant.c - a model with quantised matrices: its answers do not depend on the
 * batch (P1), and lie near those of the float64 reference. */
#include "model_bench.h"

#include "base/base.h"
#include "model/model_reference.h"

#include <math.h>

enum { TOKENS = 150 };

static gguf_file *open_shipped(void)
{
    gguf_file *file = NULL;
    rad_error err = {0};
    rad_status status = gguf_open(NULL, RADISH_SOURCE_DIR "/models/radish-tiny.gguf", &file, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    return file;
}

TEST(logits_do_not_depend_on_the_batch)
{
    uint64_t seed = test_seed();
    print_message("seed %llu\n", (unsigned long long)seed);
    gguf_file *file = open_shipped();
    compute_pool *pool;
    CHECK_OK(compute_pool_create(NULL, 2, &pool, NULL));
    bench b = bench_create_with(file, RAD_F32, WEIGHTS_AS_Q8_0, 1, NULL, pool);
    uint32_t vocab = b.model->info.vocab_size;
    rad_token ids[2][TOKENS];
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < TOKENS; i++)
            ids[s][i] = (rad_token)(test_random(&seed) % vocab);

    float *alone = malloc(sizeof(float) * TOKENS * vocab),
          *got = malloc(sizeof(float) * TOKENS * vocab);
    bench_prefill(&b, 1, ids[0], TOKENS, alone);
    for (uint32_t at = 0; at < TOKENS;) { /* pieces of any size, beside another request's */
        uint32_t n = 1 + (uint32_t)(test_random(&seed) % 20);
        uint32_t end = RAD_MIN(at + n, (uint32_t)TOKENS);
        piece pieces[2] = {{2, ids[0], at, end}, {3, ids[1], at, end}};
        float *logits[2] = {got + (size_t)at * vocab, NULL};
        bench_run(&b, pieces, test_random(&seed) % 2 ? 2 : 1, logits);
        at = end;
    }
    CHECK(memcmp(got, alone, sizeof(float) * TOKENS * vocab) == 0);
    free(alone);
    free(got);
    bench_destroy(&b);
    compute_pool_destroy(pool);
    gguf_close(file);
}

TEST(q8_0_logits_are_near_the_reference)
{
    gguf_file *file = open_shipped();
    bench b = bench_create_with(file, RAD_F32, WEIGHTS_AS_Q8_0, 1, NULL, NULL);
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
    print_message("off by %.4f of the logits' norm\n", sqrt(error / size));
    CHECK(error < 0.02 * 0.02 * size && error > 0);
    free(got);
    free(want);
    bench_destroy(&b);
    gguf_close(file);
}

/* Loading says no and gives everything back, whichever allocation fails. */
TEST(loading_survives_every_allocation_failing)
{
    gguf_file *file = open_shipped();
    runner *model = NULL;
    const model_runner_params params = {
        .dtype = RAD_F32, .weights = WEIGHTS_AS_Q8_0, .max_batch_tokens = 8, .max_batch_logits = 8};
    for (long n = 0; !model; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_status status = model_runner_create(&env, file, &params, &model, NULL);
        CHECK(status == (model ? RAD_OK : RAD_E_NOMEM));
        runner_destroy(model);
        CHECK(t.bytes == 0);
    }
    gguf_close(file);
}

TEST_MAIN()
