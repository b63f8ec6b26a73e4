/* test_engine_sizes.c - how the engine divides memory: tokens of K/V, windows, states and rows,
 * from what is there and what was asked. */
#include "engine_rig.h"

#include "base/available.h"

static rad_status size_pool(const rad_env *env, const engine_params *params,
                            const runner_info *model, uint64_t available, uint64_t *tokens,
                            rad_error *err)
{
    kv_sizes sizes = {0};
    rad_status status =
        size_kv_pool(env, params, model, available, memory_available(), 0, &sizes, err);
    CHECK(!sizes.window_tokens); /* the models here have no window */
    *tokens = sizes.tokens;
    return status;
}

/* The fraction is of what there was before the model was loaded, whatever others do meanwhile. */
TEST(memory_that_others_gave_back_is_not_the_pools)
{
    SKIP_UNLESS(memory_available() > 1000000, "nothing says how much memory there is");
    const runner_info model = {.context_length = 1024, .full_token_bytes = 2048};
    const engine_params params = {.page_size = 1, .mem_fraction_static = 0.5};
    const rad_env env = rad_env_or_default(NULL);
    rad_error err = {0};
    uint64_t tokens = 0;
    CHECK_OK(size_pool(&env, &params, &model, 1000000, &tokens, &err));
    CHECKF(tokens > 200 && tokens < 500000 / 2048, "%llu\n", (unsigned long long)tokens);
    CHECK(size_pool(&env, &params, &model, 100000, &tokens, &err) == RAD_E_NOMEM);
    CHECK(strstr(err.text, "mem_fraction_static 0.50") != NULL);
}

static char last_warning[512];

static void keep_warning(void *user, rad_log_level level, const char *message)
{
    (void)user;
    if (level == RAD_LOG_WARN) snprintf(last_warning, sizeof last_warning, "%s", message);
}

/* 2 KiB of K/V a token, as in memory_that_others_gave_back_is_not_the_pools. */
static const runner_info small_model = {.context_length = 16, .full_token_bytes = 2048};

TEST(a_pool_larger_than_what_fits_is_a_warning_and_the_smaller)
{
    SKIP_UNLESS(memory_available() > 1000000, "nothing says how much memory there is");
    const rad_env env =
        rad_env_or_default(&(rad_env){.struct_size = sizeof env, .log = keep_warning});
    engine_params params = {
        .page_size = 16, .mem_fraction_static = 0.5, .max_total_tokens = 1ull << 40};
    uint64_t tokens = 0;
    rad_error err = {0};
    last_warning[0] = 0;
    CHECK_OK(size_pool(&env, &params, &small_model, 1000000, &tokens, &err));
    CHECKF(tokens > 200 && tokens < 500000 / 2048 && tokens % 16 == 0, "%llu\n",
           (unsigned long long)tokens);
    CHECKF(strstr(last_warning, "max_total_tokens 1099511627776 is more"), "%s\n", last_warning);
    last_warning[0] = 0;
    params.max_total_tokens = 128;
    CHECK_OK(size_pool(&env, &params, &small_model, 1000000, &tokens, &err));
    CHECK(tokens == 128 && !last_warning[0]);
    CHECK(size_pool(&env, &params, &small_model, 100000, &tokens, &err) == RAD_E_NOMEM);
}

/* A node for each page is 188 bytes that a model with a small K/V would feel. */
TEST(the_pool_leaves_room_for_a_node_to_each_page)
{
    SKIP_UNLESS(memory_available() > 1000000, "nothing says how much memory there is");
    const rad_env env = rad_env_or_default(NULL);
    uint64_t one = 0, sixteen = 0;
    rad_error err = {0};
    engine_params params = {.page_size = 1, .mem_fraction_static = 0.5};
    CHECK_OK(size_pool(&env, &params, &small_model, 1000000, &one, &err));
    params.page_size = 16;
    CHECK_OK(size_pool(&env, &params, &small_model, 1000000, &sixteen, &err));
    CHECKF(one * (2048 + 188) <= 500000 && one < sixteen, "%llu and %llu\n",
           (unsigned long long)one, (unsigned long long)sixteen);
}

TEST(only_where_nothing_is_said_of_memory_64_contexts_are_enough)
{
    SKIP_UNLESS(memory_available() > 64 << 20, "nothing says how much memory there is");
    const rad_env env = rad_env_or_default(NULL);
    engine_params params = {.page_size = 1};
    uint64_t tokens = 0;
    rad_error err = {0};
    CHECK_OK(size_pool(&env, &params, &small_model, 32 << 20, &tokens, &err));
    CHECK(tokens == 64 * 16);
    params.max_running_requests = 100;
    CHECK_OK(size_pool(&env, &params, &small_model, 32 << 20, &tokens, &err));
    CHECK(tokens == 100 * 16);
    params.mem_fraction_static = 0.8;
    CHECK_OK(size_pool(&env, &params, &small_model, 32 << 20, &tokens, &err));
    CHECKF(tokens > 10000, "%llu\n", (unsigned long long)tokens);
}

/* K/V of a token: 8 KiB in 8 layers. Every other one has a window of 4096, or all of them have. */
static runner_info window_model(uint32_t context, uint32_t window_layers)
{
    runner_info info = {.context_length = context,
                        .num_layers = 8,
                        .num_kv_heads = 2,
                        .head_dim = 64,
                        .v_head_dim = 64,
                        .kv_dtype = RAD_F32,
                        .window_layers = window_layers,
                        .sliding_window = 4096};
    return runner_with_token_bytes(info);
}

enum { WINDOW_MEMORY = 1 << 29, WINDOW_PAGE = 16, INDEX = 32 + 188 / 16, WINDOW_INDEX = 16 };

static kv_sizes size_windows(const engine_params *params, const runner_info *model)
{
    const rad_env env = rad_env_or_default(NULL);
    kv_sizes sizes = {0};
    rad_error err = {0};
    rad_status status = size_kv_pool(&env, params, model, 2 * (uint64_t)WINDOW_MEMORY,
                                     memory_available(), 0, &sizes, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    return sizes;
}

/* The arithmetic of engine_size.c, for half of 1 GiB: a token costs 4 KiB on each side and its
 * index; the window side has W / C of the tokens and a chunk of 2048. Both pools together are the
 * memory, and hold so much more than one pool that masks. */
TEST(memory_is_divided_between_the_pools_as_full_contexts_need_it)
{
    SKIP_UNLESS(memory_available() > 1 << 30, "there is not 1 GiB to divide");
    static const struct {
        uint32_t context, window_layers;
        double gain;
    } cases[] = {{32768, 4, 1.7}, {8192, 4, 1.3}, {32768, 8, 5}, {8192, 8, 1.9}};
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        const runner_info model = window_model(cases[i].context, cases[i].window_layers);
        const uint64_t window_bytes = 1024 * (uint64_t)cases[i].window_layers + WINDOW_INDEX;
        const uint64_t full_bytes = 8192 - 1024 * (uint64_t)cases[i].window_layers + INDEX;
        engine_params p = {.page_size = WINDOW_PAGE, .mem_fraction_static = 0.5};
        const kv_sizes apart = size_windows(&p, &model);
        const double ratio = (4096.0 + WINDOW_PAGE) / cases[i].context;
        const double want = (WINDOW_MEMORY - 2048.0 * (double)window_bytes) /
                            ((double)full_bytes + ratio * (double)window_bytes);
        CHECKF(apart.tokens % WINDOW_PAGE == 0 && (double)apart.tokens <= want &&
                   (double)apart.tokens > want - 2 * WINDOW_PAGE,
               "%zu: %llu tokens, not %g\n", i, (unsigned long long)apart.tokens, want);
        CHECK(apart.window_tokens == (uint64_t)(ratio * (double)apart.tokens) + 2048);
        CHECK(apart.tokens * full_bytes + apart.window_tokens * window_bytes <= WINDOW_MEMORY);

        p.disable_hybrid_swa_memory = true;
        const kv_sizes masked = size_windows(&p, &model);
        CHECK(masked.window_tokens == 0 && masked.tokens <= WINDOW_MEMORY / (8192 + INDEX));
        CHECKF((double)apart.tokens > cases[i].gain * (double)masked.tokens,
               "%zu: %llu tokens, masked %llu\n", i, (unsigned long long)apart.tokens,
               (unsigned long long)masked.tokens);
        print_message("  contexts of %u, %u of 8 layers with a window of 4096: %llu and %llu "
                      "tokens in 512 MiB, masked %llu\n",
                      cases[i].context, cases[i].window_layers, (unsigned long long)apart.tokens,
                      (unsigned long long)apart.window_tokens, (unsigned long long)masked.tokens);
    }
}

TEST(the_window_side_is_as_large_as_was_asked_and_never_too_small_for_a_request)
{
    SKIP_UNLESS(memory_available() > 1 << 30, "there is not 1 GiB to divide");
    const runner_info model = window_model(32768, 4);
    engine_params p = {.page_size = 1, .max_total_tokens = 20000, .swa_full_tokens_ratio = 0.6};
    kv_sizes s = size_windows(&p, &model);
    CHECK(s.tokens == 20000 && s.window_tokens == 12000 + 2048);
    p.swa_full_tokens_ratio = 1; /* never more than the other side */
    s = size_windows(&p, &model);
    CHECK(s.tokens == 20000 && s.window_tokens == 20000);
    p.swa_full_tokens_ratio = 0; /* an eighth is less than a request holds, 64 not given back yet */
    s = size_windows(&p, &model);
    CHECKF(s.tokens == 20000 && s.window_tokens == 4096 + 64 + 3 + 2048, "%llu\n",
           (unsigned long long)s.window_tokens);
    p.max_total_tokens = 5000; /* a pool that even the least does not fit in */
    s = size_windows(&p, &model);
    CHECK(s.tokens == 5000 && s.window_tokens == 5000);
    /* Nothing is said of memory, and there is more than 64 contexts need: no ratio is needed. */
    const runner_info small = {.context_length = 256,
                               .full_token_bytes = 128,
                               .window_token_bytes = 128,
                               .num_layers = 2,
                               .window_layers = 1,
                               .sliding_window = 64};
    p = (engine_params){.page_size = 1};
    s = size_windows(&p, &small);
    CHECK(s.tokens == 64 * 256 && s.window_tokens == s.tokens);
    /* What a context never reaches is no window memory. */
    p.context_length = 64;
    CHECK(size_windows(&p, &small).window_tokens == 0);
    /* Over tiers there are both sides, too. */
    p = (engine_params){.page_size = 1, .enable_hierarchical_cache = true};
    s = size_windows(&p, &small);
    CHECK(s.window_tokens > 64 && s.window_tokens <= s.tokens);
    p = (engine_params){.swa_full_tokens_ratio = 1.5};
    rad_error err = {0};
    const rad_env env = rad_env_or_default(NULL);
    CHECK(size_kv_pool(&env, &p, &small, 1 << 29, memory_available(), 0, &s, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "swa_full_tokens_ratio 1.5") != NULL);
}

/* 512 MiB, K/V of 4 KiB a token, and a state as large as so many tokens' of them. */
static kv_sizes size_states(const engine_params *params, uint32_t state_tokens, rad_error *err)
{
    const runner_info model = {.context_length = 8192,
                               .full_token_bytes = 4096,
                               .num_layers = 4,
                               .state_layers = 12,
                               .state_bytes = (size_t)state_tokens * 4096};
    const rad_env env = rad_env_or_default(NULL);
    kv_sizes sizes = {0};
    rad_status status = size_kv_pool(&env, params, &model, 2 * (uint64_t)WINDOW_MEMORY,
                                     memory_available(), 0, &sizes, err);
    CHECKF(status == RAD_OK || status == RAD_E_NOMEM, "%s\n", err->text);
    return sizes;
}

TEST(states_get_their_part_of_the_memory_as_far_as_there_is_use_for_them)
{
    SKIP_UNLESS(memory_available() > 1 << 30, "there is not 1 GiB to divide");
    rad_error err = {0};
    const uint64_t token = 4096 + 32 + 188;
    engine_params p = {.page_size = 1, .mem_fraction_static = 0.5};
    kv_sizes s = size_states(&p, 1024, &err); /* large ones: by the ratio */
    const double share = (double)WINDOW_MEMORY * 0.9 / 1.9;
    CHECKF(s.states == (uint64_t)(share / (1024 * 4096.0)), "%llu\n", (unsigned long long)s.states);
    CHECK(s.tokens == (WINDOW_MEMORY - s.states * 1024 * 4096) / token);
    CHECK(rows_for(&s) == s.states / 3);

    s = size_states(&p, 4, &err); /* small ones: as many as are of use */
    CHECKF(s.states == 2 + 3 * 242 + 124391 / 256, "%llu states\n", (unsigned long long)s.states);
    CHECK(rows_for(&s) == default_max_running(s.tokens));

    p.mamba_full_memory_ratio = 0.25;
    s = size_states(&p, 1024, &err);
    CHECK(s.states == WINDOW_MEMORY / 5 / (1024 * 4096));
    p.max_mamba_cache_size = 10;
    s = size_states(&p, 1024, &err);
    CHECK(s.states == 10 && s.tokens == (WINDOW_MEMORY - 10 * 1024 * 4096) / token);
    CHECK(rows_for(&s) == 3);
    p.max_mamba_cache_size = 1000;
    size_states(&p, 1024, &err);
    CHECKF(strstr(err.text, "max_mamba_cache_size 1000"), "%s\n", err.text);

    p = (engine_params){.page_size = 1, .mem_fraction_static = 0.5, .max_total_tokens = 100000};
    s = size_states(&p, 1024, &err); /* the tokens that were asked for come first */
    CHECKF(s.tokens == 100000 && s.states == (WINDOW_MEMORY - 100000 * token) / (1024 * 4096),
           "%llu tokens, %llu states\n", (unsigned long long)s.tokens,
           (unsigned long long)s.states);
    p.max_total_tokens = 0;
    s = size_states(&p, 16384, &err); /* and one context does: 64 MiB a state */
    CHECKF(s.states == 4, "%llu states\n", (unsigned long long)s.states);
    CHECK(s.tokens == (WINDOW_MEMORY - 4ull * 16384 * 4096) / token);
}

TEST(rows_follow_the_pool_and_memory_up_to_4096)
{
    const struct {
        uint64_t tokens;
        double fraction;
        uint32_t running;
        uint64_t row_bytes, available;
        uint32_t want;
    } cases[] = {
        {4096, 0, 0, 1 << 10, 1ull << 33, 64},          /* a pool for few */
        {1 << 20, 0, 0, 1 << 10, 1ull << 33, 2048},     /* a row for 512 tokens */
        {1ull << 40, 0, 0, 1 << 10, 1ull << 40, 4096},  /* never more */
        {1ull << 40, 0, 0, 1 << 20, 1ull << 33, 256},   /* rows of 1 MiB: a 32nd of 0.8 * 8 GiB */
        {1ull << 40, 0, 0, 1 << 20, 1ull << 35, 819},   /* and of 32 GiB */
        {1ull << 40, 0.4, 0, 1 << 20, 1ull << 36, 819}, /* half the part of twice the memory */
        {0, 0, 0, 1 << 10, 1ull << 33, 64},             /* 64 contexts of 16 */
        {0, 0.8, 0, 1 << 10, 1ull << 33, 4096},         /* all that fits */
        {0, 0.8, 0, 1 << 10, 1ull << 30, 739},          /* 0.8 GiB of 2,268 bytes a token */
        {1 << 20, 0, 0, 1 << 10, 0, 256},               /* nobody knows */
        {1 << 20, 0, 7, 1 << 20, 1ull << 33, 7},        /* what is asked for */
        {1 << 20, 9, 0, 1 << 10, 1ull << 33, 64},       /* refused later */
    };
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        engine_params p = {.page_size = 1,
                           .max_total_tokens = cases[i].tokens,
                           .mem_fraction_static = cases[i].fraction,
                           .max_running_requests = cases[i].running};
        uint32_t rows = rows_to_load_for(&p, &small_model, cases[i].row_bytes, cases[i].available);
        CHECKF(rows == cases[i].want, "%zu: %u rows, not %u\n", i, rows, cases[i].want);
    }
    CHECK(default_max_running(0) == 64 && default_max_running(300 * 512) == 300);
    CHECK(default_max_running(UINT64_MAX) == 4096);
}

TEST_MAIN()
