/* test_engine_room.c - whether a model fits is said before anything of it is read, from what
 * loading then really takes; the default fraction grows for one that fits with 1 GB to spare.
 *
 * memory_available is the test's: so much, less what is loaded. */
#include "engine_rig.h"

#include "base/available.h"
#include "engine/engine_plan.h"

#define MODEL RADISH_SOURCE_DIR "/models/radish-tiny.gguf"

static uint64_t machine_bytes, loaded_bytes;

uint64_t __wrap_memory_available(void);
uint64_t __wrap_memory_available(void)
{
    return machine_bytes - RAD_MIN(loaded_bytes, machine_bytes - 1);
}

static char warnings[2048], infos[4096];

static void keep_words(void *user, rad_log_level level, const char *message)
{
    (void)user;
    char *to = level == RAD_LOG_WARN ? warnings : infos;
    size_t room = level == RAD_LOG_WARN ? sizeof warnings : sizeof infos, used = strlen(to);
    if (level <= RAD_LOG_INFO) snprintf(to + used, room - used, "%s\n", message);
}

static uint64_t clock_ns, clock_step;

static uint64_t tick(void *user)
{
    (void)user;
    return clock_ns += clock_step;
}

static rad_env watched(void)
{
    warnings[0] = infos[0] = 0;
    loaded_bytes = 0;
    return rad_env_or_default(
        &(rad_env){.struct_size = sizeof(rad_env), .log = keep_words, .now_ns = tick});
}

static uint32_t calls;

static void count_calls(void *user, uint64_t done, uint64_t total)
{
    const uint64_t *weights = user;
    (void)total;
    calls++;
    if (done) loaded_bytes = *weights;
}

static load_plan plan_of(const engine_params *p, uint64_t available)
{
    load_plan plan;
    gguf_file *file = NULL;
    rad_error err = {0};
    rad_env env = watched();
    CHECK_OK(gguf_open(NULL, p->model_path, &file, &err));
    rad_status status = plan_load(&env, file, p, available, &plan, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    gguf_close(file);
    return plan;
}

static rad_status start(const engine_params *p, engine **e, rad_error *err)
{
    rad_env env = watched();
    static uint64_t weights;
    engine_params mine = *p;
    weights = plan_of(p, 0).sizes.weights_bytes;
    warnings[0] = infos[0] = 0;
    mine.progress = count_calls;
    mine.progress_user = &weights;
    calls = 0;
    *err = (rad_error){0};
    return engine_create(&env, &mine, e, err);
}

/* The measure is what the load allocates, to the byte. */
TEST(what_is_foretold_is_what_is_allocated)
{
    static const struct {
        rad_dtype dtype;
        weights_policy policy;
    } cases[] = {
        {RAD_F32, WEIGHTS_AS_FILE}, {RAD_BF16, WEIGHTS_AS_FILE}, {RAD_F32, WEIGHTS_AS_Q8_0}};
    static const char *const names[] = {"tiny-llama-q8_0", "tiny-llama-f16", "tiny-qwen3-bf16",
                                        "story"};
    for (size_t m = 0; m < 1 + RAD_COUNT(names); m++)
        for (size_t i = 0; i < RAD_COUNT(cases); i++) {
            const char *path = MODEL;
            char weights[40], buffers[40];
            if (m) {
                snprintf(weights, sizeof weights, "%s.gguf", names[m - 1]);
                path = test_made(weights);
            }
            engine_params p = {.model_path = path,
                               .dtype = cases[i].dtype,
                               .weights = cases[i].policy,
                               .max_total_tokens = 512,
                               .num_threads = 1};
            const model_sizes sizes = plan_of(&p, 0).sizes;
            engine *e = NULL;
            rad_error err;
            machine_bytes = 8000000000;
            rad_status status = start(&p, &e, &err);
            CHECKF(status == RAD_OK && calls, "%s: %s\n", path, err.text);
            snprintf(weights, sizeof weights, " %.1f MB of weights",
                     (double)sizes.weights_bytes * 1e-6);
            snprintf(buffers, sizeof buffers, " %.1f MB for batches",
                     (double)sizes.buffers_bytes * 1e-6);
            CHECKF(strstr(infos, weights) && strstr(infos, buffers), "%s %s: %s\n", weights,
                   buffers, infos);
            engine_destroy(e);
        }
}

/* What is asked for is obeyed: refused before a byte of a tensor is read, with the numbers. */
TEST(a_fraction_that_is_asked_for_is_obeyed)
{
    engine_params p = {.model_path = MODEL, .num_threads = 1, .mem_fraction_static = 0.01};
    const uint64_t weights = plan_of(&p, 0).sizes.weights_bytes;
    engine *e = NULL;
    rad_error err;
    machine_bytes = 90 * weights; /* 0.9 of what the weights alone take */
    CHECK(start(&p, &e, &err) == RAD_E_NOMEM && !e && !calls);
    CHECKF(strstr(err.text, "does not fit") && strstr(err.text, "GB of weights"), "%s\n", err.text);
    CHECKF(strstr(err.text, "mem_fraction_static 0.01"), "%s\n", err.text);
    machine_bytes = 400 * weights; /* 4 times */
    rad_status status = start(&p, &e, &err);
    CHECKF(status == RAD_OK && calls && !warnings[0], "%s%s\n", err.text, warnings);
    engine_destroy(e);
}

/* Nothing is read of a model that no fraction fits; it is said what would. */
TEST(a_model_that_does_not_fit_is_not_read)
{
    engine_params p = {.model_path = MODEL, .num_threads = 1, .dtype = RAD_F32};
    const load_plan plan = plan_of(&p, 0);
    engine *e = NULL;
    rad_error err;
    machine_bytes = plan.sizes.weights_bytes / 8;
    CHECK(start(&p, &e, &err) == RAD_E_NOMEM && !e && !calls);
    CHECKF(strstr(err.text, "a model of") && strstr(err.text, "would do"), "%s\n", err.text);
    CHECK(plan.need.least_weights && plan.need.least_weights < plan.need.weights / 3);
    machine_bytes = plan.sizes.weights_bytes; /* there is room for a third */
    CHECK(start(&p, &e, &err) == RAD_E_NOMEM && !e && !calls);
    CHECKF(strstr(err.text, "--dtype q8_0 would do"), "%s\n", err.text);
    p.weights = WEIGHTS_AS_Q8_0;
    rad_status status = start(&p, &e, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    engine_destroy(e);
}

/* A model of 20 GB in K/V of 64 KB a token, as fit_memory sees it. */
static const runner_info large = {.context_length = 16384, .full_token_bytes = 65536};
static const memory_need need = {.weights = 20000000000, .buffers = 300000000};

static rad_status fit(const engine_params *p, double gb, double *fraction, rad_error *err)
{
    rad_env env = watched();
    *err = (rad_error){0};
    return fit_memory(&env, p, &large, &need, (uint64_t)(gb * 1e9), fraction, err);
}

/* 20 GB, 0.3 for batches, 1.1 for a context: 22.6 GB are enough, and 0.80 are not in force. */
TEST(the_default_grows_for_one_context_and_leaves_a_gigabyte)
{
    engine_params p = {.page_size = 1};
    double fraction = 0, before = 1;
    rad_error err;
    CHECK_OK(fit(&p, 40, &fraction, &err)); /* plenty */
    CHECK(fraction == 0.8 && !warnings[0]);
    for (double gb = 26.25; gb > 22.7; gb -= 0.25) {
        CHECK_OK(fit(&p, gb, &fraction, &err));
        CHECKF(fraction * gb >= 21.1 && fraction * gb < 21.3, "%g of %g\n", fraction, gb);
        CHECK((1 - fraction) * gb >= 1.3); /* batches and 1 GB */
        CHECKF(strstr(warnings, "mem_fraction_static is 0."), "%s\n", warnings);
        CHECKF(strstr(warnings, "20.00 GB of weights"), "%s\n", warnings);
    }
    CHECK_OK(fit(&p, 21.8, &fraction, &err)); /* less than a context, and the gigabyte stays */
    CHECKF((1 - fraction) * 21.8 >= 1.2999 && (1 - fraction) * 21.8 < 1.31, "%g\n", fraction);
    CHECK(fit(&p, 21.2, &fraction, &err) == RAD_E_NOMEM);
    CHECKF(strstr(err.text, "20.00 GB of weights") && strstr(err.text, "21.20 GB"), "%s\n",
           err.text);
    CHECKF(strstr(err.text, "a context of 16384 tokens (65"), "%s\n", err.text);
    before = fraction;
    p.mem_fraction_static = 0.8; /* asked for: it stays */
    CHECK(fit(&p, 24, &fraction, &err) == RAD_E_NOMEM && fraction == 0.8 && before > 0.8);
    CHECKF(strstr(err.text, "--mem-fraction-static 0.8") && strstr(err.text, "would do"), "%s\n",
           err.text);
    CHECK_OK(fit(&p, 26, &fraction, &err));
    CHECK(fraction == 0.8 && !warnings[0]);
    p = (engine_params){.page_size = 1, .enable_hierarchical_cache = true, .hicache_size = 30};
    CHECK(fit(&p, 24, &fraction, &err) == RAD_E_NOMEM);
    CHECKF(strstr(err.text, "hicache_size 30 GB: only 24.00 GB"), "%s\n", err.text);
    p = (engine_params){.page_size = 1};
    CHECK_OK(fit(&p, 0, &fraction, &err)); /* nobody knows how much there is */
    CHECK(fraction == 0.8 && !warnings[0]);
}

/* A pool that is asked for is what must fit, up to a context. */
TEST(a_smaller_pool_or_context_needs_less)
{
    double fraction = 0;
    rad_error err;
    engine_params p = {.page_size = 1, .max_total_tokens = 1000};
    CHECK_OK(fit(&p, 26, &fraction, &err));
    CHECK(fraction == 0.8);
    p = (engine_params){.page_size = 1, .context_length = 1000};
    CHECK_OK(fit(&p, 26, &fraction, &err));
    CHECK(fraction == 0.8);
    p = (engine_params){.page_size = 1, .max_total_tokens = 1u << 30};
    CHECK_OK(fit(&p, 26, &fraction, &err));
    CHECKF(fraction > 0.81 && fraction < 0.82, "%g\n", fraction);
}

/* On a GPU the pool has what SGLang's formula gives it: what is free behind the weights, less
 * (1 - fraction) of what was free before them. The index and the host tier are not there. */
TEST(a_gpu_pool_is_of_the_gpus_memory_alone)
{
    const uint64_t before = 80000000000, after = 60000000000;
    engine_params p = {.page_size = 1, .on_gpu = true, .mem_fraction_static = 0.9};
    for (int tiers = 0; tiers < 2; tiers++) {
        kv_sizes sizes;
        rad_error err = {0};
        rad_env env = watched();
        p.enable_hierarchical_cache = tiers;
        CHECK_OK(size_kv_pool(&env, &p, &large, before, after, 0, &sizes, &err));
        const uint64_t wanted = (after - before / 10) / 65536;
        CHECKF(sizes.tokens <= wanted && sizes.tokens + 1 >= wanted, "%llu, %llu\n",
               (unsigned long long)sizes.tokens, (unsigned long long)wanted);
    }
    double fraction;
    rad_error err;
    CHECK(fit(&p, 21, &fraction, &err) == RAD_E_NOMEM);
    CHECKF(strstr(err.text, "does not fit on the GPU: 20.00 GB of weights"), "%s\n", err.text);
}

/* Its host tier is pinned memory of the machine: as large as was asked for, or nothing is started;
 * where nobody asked, as large as may be. */
TEST(a_gpu_host_tier_is_of_this_machines_memory)
{
    const kv_sizes sizes = {.tokens = 500000}; /* 32.8 GB on the GPU, twice that here */
    const uint64_t enough = 100000000000, little = 50000000000;
    engine_params p = {.page_size = 1, .on_gpu = true, .enable_hierarchical_cache = true};
    rad_env env = watched();
    rad_error err = {0};
    CHECK_OK(fit_host_tier(&env, &p, &large, &sizes, enough, &err));
    CHECK(p.hicache_size == 0 && !warnings[0]);
    CHECK_OK(fit_host_tier(&env, &p, &large, &sizes, 0, &err)); /* nobody knows */
    CHECK(p.hicache_size == 0 && !warnings[0]);
    CHECK_OK(fit_host_tier(&env, &p, &large, &sizes, little, &err));
    CHECKF(p.hicache_size > 39.99 && p.hicache_size < 40.01, "%g\n", p.hicache_size);
    CHECKF(strstr(warnings, "40.00 GB of pinned memory in place of 65.54"), "%s\n", warnings);
    p.hicache_size = 0;
    p.hicache_ratio = 2;
    CHECK(fit_host_tier(&env, &p, &large, &sizes, little, &err) == RAD_E_NOMEM);
    CHECKF(strstr(err.text, "--hicache-size 40 would do"), "%s\n", err.text);
    p.hicache_ratio = 0;
    p.hicache_size = 41;
    CHECK(fit_host_tier(&env, &p, &large, &sizes, little, &err) == RAD_E_NOMEM);
    p.on_gpu = false; /* there it was part of the pool's memory */
    CHECK_OK(fit_host_tier(&env, &p, &large, &sizes, little, &err));
}

/* A whole start in little memory: the pool has a context, and 1 GB stays. */
TEST(a_model_that_fits_with_a_gigabyte_to_spare_is_served)
{
    engine_params p = {.model_path = MODEL, .num_threads = 1, .dtype = RAD_F32};
    p.max_running_requests = 8;
    const load_plan plan = plan_of(&p, 0);
    const uint64_t token = runner_token_bytes(&plan.info, RUNNER_ALL_LAYERS) + 400;
    /* The shipped model is small: a context that costs as much as 5 GB is what 0.80 has not. */
    p.context_length = (uint32_t)RAD_MIN((uint64_t)plan.context, UINT64_C(1) << 20);
    const uint64_t least = plan.sizes.weights_bytes + plan.sizes.buffers_bytes +
                           p.context_length * token + 1100000000;
    engine *e = NULL;
    rad_error err;
    machine_bytes = least;
    rad_status status = start(&p, &e, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    CHECKF(engine_get_info(e)->context_length == p.context_length, "%u\n",
           engine_get_info(e)->context_length);
    engine_destroy(e);
}

/* Every 5 seconds of the load leave a line. */
TEST(a_long_load_says_how_far_it_is)
{
    engine_params p = {.model_path = MODEL, .num_threads = 1, .max_total_tokens = 512};
    engine *e = NULL;
    rad_error err;
    machine_bytes = 8000000000;
    clock_step = 1000000000; /* a second from each look to the next */
    CHECK_OK(start(&p, &e, &err));
    clock_step = 0;
    uint32_t lines = 0;
    for (const char *at = infos; (at = strstr(at, "% loaded, ")); at++)
        lines++;
    CHECKF(lines >= 3 && lines < calls / 2, "%u lines, %u calls: %s\n", lines, calls, infos);
    engine_destroy(e);
    CHECK_OK(start(&p, &e, &err)); /* a short one none */
    CHECKF(!strstr(infos, "% loaded"), "%s\n", infos);
    engine_destroy(e);
}

TEST_MAIN()
