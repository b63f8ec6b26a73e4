/* test_runner_fake.c - the fake answers by the tokens alone, and any wrong slot shows. */
#include "test.h"

#include "gear/runner_fake.h"
#include "model/batch_check.h"

enum { MOST = 200, PAGES = 300 };

/* Rows, a KV pool and slots handed out in a scattered order. */
typedef struct bench {
    rad_req_to_token_pool *rows;
    rad_token_to_kv_pool *kv;
    runner *fake;
    rad_slot next_slot;
} bench;

static bench bench_create(rad_dtype dtype, uint32_t fail_every)
{
    bench b = {.next_slot = 1};
    runner_fake_params fake = {.vocab_size = 100, .fail_every = fail_every};
    CHECK_OK(runner_fake_create(NULL, &fake, &b.fake, NULL));
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = 4, .row_tokens = MOST};
    CHECK_OK(rad_req_to_token_pool_create(NULL, &rows, &b.rows, NULL));
    rad_token_to_kv_pool_params kv = {.struct_size = sizeof kv,
                                      .num_pages = PAGES,
                                      .page_size = 1,
                                      .num_layers = b.fake->info.num_layers,
                                      .num_kv_heads = b.fake->info.num_kv_heads,
                                      .head_dim = b.fake->info.head_dim,
                                      .v_head_dim = b.fake->info.v_head_dim,
                                      .dtype = dtype};
    CHECK_OK(rad_token_to_kv_pool_create(NULL, &kv, &b.kv, NULL));
    return b;
}

static void bench_destroy(bench *b)
{
    runner_destroy(b->fake);
    rad_token_to_kv_pool_destroy(b->kv);
    rad_req_to_token_pool_destroy(b->rows);
}

/* 7 has no factor in common with 300: every slot once before any comes twice. */
static rad_slot take_slot(bench *b)
{
    return (b->next_slot = (b->next_slot + 7) % PAGES) + 1;
}

/* One request's tokens [from, to) behind a prefix that is in the pool; the greedy
 * token after the last. */
static rad_status run(bench *b, rad_row row, const rad_token *tokens, uint32_t from, uint32_t to,
                      rad_token *next)
{
    uint32_t positions[MOST], extend = to - from, start = 0, last = extend - 1;
    rad_slot loc[MOST], *slots = rad_req_to_token_row(b->rows, row);
    for (uint32_t i = 0; i < extend; i++) {
        positions[i] = from + i;
        loc[i] = slots[from + i] = take_slot(b);
    }
    forward_batch batch = {.num_reqs = 1,
                           .num_tokens = extend,
                           .input_ids = tokens + from,
                           .positions = positions,
                           .out_cache_loc = loc,
                           .req_pool_indices = &row,
                           .seq_lens = &to,
                           .extend_prefix_lens = &from,
                           .extend_seq_lens = &extend,
                           .extend_start_loc = &start,
                           .num_logits = 1,
                           .logits_indices = &last,
                           .req_to_token_pool = b->rows,
                           .token_to_kv_pool = b->kv};
    const float *logits;
    rad_status status = runner_forward(b->fake, &batch, &logits, NULL);
    if (status != RAD_OK) return status;
    *next = 0;
    for (uint32_t i = 1; i < b->fake->info.vocab_size; i++)
        if (logits[i] > logits[*next]) *next = (rad_token)i;
    return RAD_OK;
}

static void random_tokens(rad_token *tokens, uint32_t n, uint64_t *state)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (rad_token)(test_random(state) % 100);
}

TEST(any_chunking_gives_the_oracles_token)
{
    uint64_t seed = test_seed(), state = seed;
    for (int run_no = 0; run_no < 60; run_no++) {
        bench b = bench_create(run_no % 2 ? RAD_BF16 : RAD_F32, 0);
        rad_token tokens[MOST], next = -1;
        uint32_t n = 1 + (uint32_t)(test_random(&state) % (MOST - 1));
        random_tokens(tokens, n, &state);
        for (uint32_t at = 0; at < n;) {
            uint32_t end = at + 1 + (uint32_t)(test_random(&state) % (n - at));
            CHECK_OK(run(&b, 2, tokens, at, end, &next));
            CHECKF(next == runner_fake_next(100, tokens, end), "seed %llu, %u tokens\n",
                   (unsigned long long)seed, end);
            at = end;
        }
        bench_destroy(&b);
    }
}

TEST(every_wrong_slot_of_a_row_changes_the_answer)
{
    uint64_t state = 5;
    bench b = bench_create(RAD_F32, 0);
    rad_token tokens[MOST], others[MOST], next;
    random_tokens(tokens, 100, &state);
    random_tokens(others, 100, &state);
    CHECK_OK(run(&b, 1, tokens, 0, 50, &next));
    CHECK_OK(run(&b, 3, others, 0, 50, &next));
    rad_slot *row = rad_req_to_token_row(b.rows, 1), *other = rad_req_to_token_row(b.rows, 3);
    const rad_token right = runner_fake_next(100, tokens, 51);
    uint32_t same = 0;
    for (uint32_t i = 0; i < 50; i++) {
        rad_slot keep = row[i];
        row[i] = other[i]; /* another request's page */
        CHECK_OK(run(&b, 1, tokens, 50, 51, &next));
        same += next == right;
        row[i] = 0; /* never written */
        CHECK_OK(run(&b, 1, tokens, 50, 51, &next));
        same += next == right;
        row[i] = row[(i + 1) % 50]; /* its own, one off */
        CHECK_OK(run(&b, 1, tokens, 50, 51, &next));
        same += next == right;
        row[i] = keep;
    }
    CHECKF(same < 10, "%u of 150 wrong rows gave the right token\n", same); /* 1.5 by chance */
    CHECK_OK(run(&b, 1, tokens, 50, 51, &next));
    CHECK(next == right);
    bench_destroy(&b);
}

TEST(every_nth_forward_fails_when_asked)
{
    bench b = bench_create(RAD_F32, 3);
    rad_token tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, next;
    for (uint32_t i = 0; i < 9; i++)
        CHECK(run(&b, 1, tokens, i, i + 1, &next) == ((i + 1) % 3 ? RAD_OK : RAD_E_IO));
    bench_destroy(&b);
}

/* A fake of a window of 4, with window memory or without: one request of 9 ids, in two steps. What
 * its last 4 do not see is nowhere in window memory. */
typedef struct windows {
    bench b;
    rad_req_to_token_pool *rows;
    rad_token_to_kv_pool *near;
    rad_row row;
    uint32_t positions[9], zero, first, rest, all, at[1];
    rad_token ids[9];
    rad_slot loc[9], window_loc[9];
    forward_batch batch;
} windows;

enum { FIRST = 7, ALL = 9, WINDOW = 4 };

static void windows_start(windows *w, uint32_t window_only)
{
    const runner_fake_params fake = {
        .vocab_size = 100, .window = WINDOW, .window_only = window_only};
    *w = (windows){.row = 1, .first = FIRST, .rest = ALL - FIRST, .all = ALL, .at = {1}};
    CHECK_OK(runner_fake_create(NULL, &fake, &w->b.fake, NULL));
    const runner_info *info = &w->b.fake->info;
    CHECK(info->window_layers == 1 && info->num_layers == 2 - window_only);
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = 2, .row_tokens = 16};
    CHECK_OK(rad_req_to_token_pool_create(NULL, &rows, &w->b.rows, NULL));
    CHECK_OK(rad_req_to_token_pool_create(NULL, &rows, &w->rows, NULL));
    runner *fake_runner = w->b.fake;
    CHECK_OK(runner_create_pool(fake_runner, NULL, RUNNER_FULL_LAYERS, 20, 1, &w->b.kv, NULL));
    CHECK_OK(runner_create_pool(fake_runner, NULL, RUNNER_WINDOW_LAYERS, 10, 1, &w->near, NULL));
    CHECK((w->b.kv == NULL) == window_only);
    rad_slot *row = rad_req_to_token_row(w->b.rows, 1), *wrow = rad_req_to_token_row(w->rows, 1);
    for (uint32_t i = 0; i < ALL; i++) {
        w->ids[i] = (rad_token)(i * i % 100);
        w->positions[i] = i;
        row[i] = w->loc[i] = (rad_slot)(20 - i);
        wrow[i] = w->window_loc[i] = (rad_slot)(1 + i);
    }
    w->batch = (forward_batch){.num_reqs = 1,
                               .num_tokens = FIRST,
                               .input_ids = w->ids,
                               .positions = w->positions,
                               .out_cache_loc = w->loc,
                               .window_out_cache_loc = w->window_loc,
                               .req_pool_indices = &w->row,
                               .seq_lens = &w->first,
                               .extend_prefix_lens = &w->zero,
                               .extend_seq_lens = &w->first,
                               .extend_start_loc = &w->zero,
                               .num_logits = 0,
                               .logits_indices = w->at,
                               .req_to_token_pool = w->b.rows,
                               .token_to_kv_pool = w->b.kv,
                               .window_rows = w->rows,
                               .window_kv_pool = w->near};
    const float *logits;
    CHECK_OK(runner_forward(w->b.fake, &w->batch, &logits, NULL));
    w->batch.num_tokens = w->rest;
    w->batch.input_ids += FIRST;
    w->batch.positions += FIRST;
    w->batch.out_cache_loc += FIRST;
    w->batch.window_out_cache_loc += FIRST;
    w->batch.seq_lens = &w->all;
    w->batch.extend_prefix_lens = &w->first;
    w->batch.extend_seq_lens = &w->rest;
    w->batch.num_logits = 1;
    memset(wrow, 0, (FIRST + 1 - WINDOW) * sizeof *wrow); /* given back */
}

static void windows_end(windows *w)
{
    rad_req_to_token_pool_destroy(w->rows);
    rad_token_to_kv_pool_destroy(w->near);
    bench_destroy(&w->b);
}

static rad_token windows_next(const windows *w, rad_error *err)
{
    const float *logits;
    rad_status status = runner_forward(w->b.fake, &w->batch, &logits, err);
    if (status != RAD_OK) return -1;
    rad_token next = 0;
    for (uint32_t i = 1; i < w->b.fake->info.vocab_size; i++)
        if (logits[i] > logits[next]) next = (rad_token)i;
    return next;
}

TEST(a_window_is_read_from_its_own_memory)
{
    for (uint32_t only = 0; only < 2; only++) {
        windows w;
        rad_error err = {0};
        const runner_fake_params fake = {.vocab_size = 100, .window = WINDOW, .window_only = only};
        windows_start(&w, only);
        const rad_token right = runner_fake_next_of(&fake, w.ids, ALL);
        CHECK(windows_next(&w, &err) == right);
        rad_slot *row = rad_req_to_token_row(w.rows, 1);
        uint32_t same = 0;
        for (uint32_t i = FIRST + 1 - WINDOW; i < FIRST; i++) {
            rad_slot keep = row[i];
            row[i] = row[FIRST]; /* one for another */
            same += windows_next(&w, &err) == right;
            row[i] = keep;
        }
        CHECKF(same < 2, "%u of 3 wrong slots gave the right token\n", same);
        CHECK(windows_next(&w, &err) == right);
        windows_end(&w);
    }
}

TEST(window_memory_that_does_not_fit_the_batch_is_refused_in_words)
{
    windows w;
    rad_error err = {0};
    windows_start(&w, 0);
    const forward_batch good = w.batch;
    rad_slot *row = rad_req_to_token_row(w.rows, 1);
#define REFUSED(words, ...)                                                                        \
    do {                                                                                           \
        err.text[0] = 0;                                                                           \
        __VA_ARGS__;                                                                               \
        CHECK(windows_next(&w, &err) == -1);                                                       \
        CHECKF(strstr(err.text, words), "%s\n", err.text);                                         \
        w.batch = good;                                                                            \
    } while (0)
    REFUSED("rows or slots", w.batch.window_rows = NULL);
    REFUSED("rows or slots", w.batch.window_out_cache_loc = NULL);
    REFUSED("KV pool is missing", w.batch.token_to_kv_pool = NULL);
    REFUSED("goes to window slot", w.batch.window_out_cache_loc = (rad_slot[]){9, 8});
    for (uint32_t i = FIRST + 1 - WINDOW; i < ALL; i++) { /* given back too early, or no slot */
        rad_slot keep = row[i];
        REFUSED("has window slot 0", row[i] = 0);
        REFUSED("has window slot 11", row[i] = 11);
        row[i] = keep;
    }
    CHECK(windows_next(&w, &err) >= 0);
    bench plain = bench_create(RAD_F32, 0);
    runner *with = w.b.fake; /* a runner without windows has no use for it */
    w.b.fake = plain.fake;
    REFUSED("a layer that has a window", (void)0);
    w.b.fake = with;
    bench_destroy(&plain);
#undef REFUSED
    windows_end(&w);
}

TEST(batches_that_do_not_fit_are_refused_in_words)
{
    bench b = bench_create(RAD_F32, 0);
    rad_slot *slots = rad_req_to_token_row(b.rows, 1);
    const rad_token ids[] = {5, 6, 7};
    const uint32_t positions[] = {2, 3, 4}, two = 2, three = 3, five = 5, zero = 0, at[] = {0, 2};
    const rad_slot loc[] = {13, 14, 15};
    const rad_row row = 1;
    for (rad_slot i = 0; i < 5; i++)
        slots[i] = 11 + i;
    const forward_batch good = {.num_reqs = 1,
                                .num_tokens = 3,
                                .input_ids = ids,
                                .positions = positions,
                                .out_cache_loc = loc,
                                .req_pool_indices = &row,
                                .seq_lens = &five,
                                .extend_prefix_lens = &two,
                                .extend_seq_lens = &three,
                                .extend_start_loc = &zero,
                                .num_logits = 2,
                                .logits_indices = at,
                                .req_to_token_pool = b.rows,
                                .token_to_kv_pool = b.kv};
    const float *logits;
    rad_error err;
    CHECK_OK(runner_forward(b.fake, &good, &logits, &err));

#define REFUSED(want, ...)                                                                         \
    do {                                                                                           \
        forward_batch bad = good;                                                                  \
        err.text[0] = 0;                                                                           \
        __VA_ARGS__;                                                                               \
        CHECK(runner_forward(b.fake, &bad, &logits, &err) == (want));                              \
        CHECK(strlen(err.text) > 10);                                                              \
    } while (0)
    REFUSED(RAD_E_INVAL, bad.input_ids = ((rad_token[]){5, 100, 7}));
    REFUSED(RAD_E_INVAL, bad.input_ids = ((rad_token[]){5, -1, 7}));
    REFUSED(RAD_E_INVAL, bad.positions = ((uint32_t[]){2, 3, 5}));
    REFUSED(RAD_E_INVAL, bad.out_cache_loc = ((rad_slot[]){13, 14, 16}));
    REFUSED(RAD_E_INVAL, bad.seq_lens = &three);
    REFUSED(RAD_E_INVAL, bad.extend_start_loc = &two);
    REFUSED(RAD_E_INVAL, bad.num_tokens = 4);
    REFUSED(RAD_E_INVAL, bad.num_tokens = 2);
    REFUSED(RAD_E_INVAL, bad.num_reqs = 0);
    REFUSED(RAD_E_INVAL, bad.req_pool_indices = &five);
    REFUSED(RAD_E_INVAL, bad.logits_indices = ((uint32_t[]){0, 3}));
    REFUSED(RAD_E_INVAL, bad.logits_indices = ((uint32_t[]){1, 1}));
    REFUSED(RAD_E_INVAL, bad.token_to_kv_pool = NULL);
    REFUSED(RAD_E_INVAL, bad.num_groups = 1);
    REFUSED(RAD_E_INVAL, bad.num_groups = 1;
            bad.groups = (&(forward_group){.begin = 0, .end = 64, .first = 0, .count = 2});
            bad.group_reqs = (&(uint32_t){0}));
    double sum[RUNNER_FAKE_HIDDEN] = {0};
#define POOLS(count, ...) bad.num_pools = count, bad.pools = ((forward_pool[]){__VA_ARGS__})
    REFUSED(RAD_E_INVAL, bad.num_pools = 1);
    REFUSED(RAD_E_INVAL, POOLS(1, {0, 0, sum}));
    REFUSED(RAD_E_INVAL, POOLS(1, {0, 1, NULL}));
    REFUSED(RAD_E_INVAL, POOLS(1, {0, 4, sum}));
    REFUSED(RAD_E_INVAL, POOLS(1, {4, 1, sum}));
    REFUSED(RAD_E_INVAL, POOLS(1, {2, UINT32_MAX, sum}));
    REFUSED(RAD_E_INVAL, POOLS(2, {0, 2, sum}, {1, 1, sum}));
#undef POOLS
    REFUSED(RAD_E_LIMIT, bad.num_logits = 257);
    REFUSED(RAD_E_LIMIT, bad.extend_prefix_lens = ((uint32_t[]){9998});
            bad.seq_lens = ((uint32_t[]){10001}));
#undef REFUSED
    slots[1] = PAGES + 1; /* outside of the pool */
    CHECK(runner_forward(b.fake, &good, &logits, &err) == RAD_E_INVAL);
    bench_destroy(&b);
}

/* Two requests: three tokens behind two, and one behind none. */
TEST(states_that_do_not_fit_the_batch_are_refused_in_words)
{
    enum { STATES = 40000 }; /* more than are looked at in one round */
    bench b = bench_create(RAD_F32, 0);
    for (rad_row row = 1; row <= 2; row++)
        for (rad_slot i = 0; i < 5; i++)
            rad_req_to_token_row(b.rows, row)[i] = 10 * row + i;
    rad_state_pool *pool, *narrow;
    rad_state_pool_params params = {
        .struct_size = sizeof params, .state_bytes = 100, .num_states = STATES};
    CHECK_OK(rad_state_pool_create(NULL, &params, &pool, NULL));
    params.state_bytes = 64;
    CHECK_OK(rad_state_pool_create(NULL, &params, &narrow, NULL));
    rad_state last = 0;
    for (int i = 0; i < STATES; i++)
        CHECK_OK(rad_state_alloc(pool, &last));
    CHECK_OK(rad_state_free(pool, 9));
    const forward_state_save saves[] = {{0, 1, 4}, {0, 3, 5}, {1, 1, STATES}};
    const forward_batch good = {.num_reqs = 2,
                                .num_tokens = 4,
                                .input_ids = (rad_token[]){5, 6, 7, 8},
                                .positions = (uint32_t[]){2, 3, 4, 0},
                                .out_cache_loc = (rad_slot[]){12, 13, 14, 20},
                                .req_pool_indices = (rad_row[]){1, 2},
                                .seq_lens = (uint32_t[]){5, 1},
                                .extend_prefix_lens = (uint32_t[]){2, 0},
                                .extend_seq_lens = (uint32_t[]){3, 1},
                                .extend_start_loc = (uint32_t[]){0, 3},
                                .req_to_token_pool = b.rows,
                                .token_to_kv_pool = b.kv,
                                .state_pool = pool,
                                .state_in = (rad_state[]){1, 0},
                                .state_out = (rad_state[]){1, 2},
                                .num_state_saves = 3,
                                .state_saves = saves};
    runner_info info = b.fake->info;
    rad_error err = {0};
    CHECK(batch_check(&info, &good, 9, 9, &err) == RAD_E_INVAL);
    CHECKF(strstr(err.text, "the model has none"), "%s\n", err.text);
    info.state_bytes = 100;
    CHECK_OK(batch_check(&info, &good, 9, 9, &err));

#define REFUSED(words, ...)                                                                        \
    do {                                                                                           \
        forward_batch bad = good;                                                                  \
        __VA_ARGS__;                                                                               \
        CHECK(batch_check(&info, &bad, 9, 9, &err) == RAD_E_INVAL);                                \
        CHECKF(strstr(err.text, words), "%s\n", err.text);                                         \
    } while (0)
#define SAVES(...) bad.state_saves = (forward_state_save[]){__VA_ARGS__}, bad.num_state_saves = 2
    REFUSED("states are missing", bad.state_pool = NULL);
    REFUSED("states are missing", bad.state_in = NULL);
    REFUSED("states are missing", bad.state_out = NULL);
    REFUSED("saves are missing", bad.state_saves = NULL);
    REFUSED("of 64 bytes", bad.state_pool = narrow);
    REFUSED("state 0 behind 2", bad.state_in = ((rad_state[]){0, 0}));
    REFUSED("state 3 behind 0", bad.state_in = ((rad_state[]){1, 3}));
    REFUSED("not taken", bad.state_in = ((rad_state[]){9, 0}));
    REFUSED("not taken", bad.state_out = ((rad_state[]){0, 2}));
    REFUSED("not taken", bad.state_out = ((rad_state[]){1, STATES + 1}));
    REFUSED("not taken", SAVES({0, 1, 4}, {0, 2, -1}));
    REFUSED("which is read", bad.state_out = ((rad_state[]){3, 1}));
    REFUSED("which is read", SAVES({0, 1, 1}, {0, 2, 3})); /* its own, too */
    REFUSED("which is read", SAVES({0, 1, 3}, {1, 1, 1}));
    REFUSED("once more", bad.state_out = ((rad_state[]){2, 2}));
    REFUSED("once more", SAVES({0, 1, STATES}, {1, 1, STATES}));
    REFUSED("once more", SAVES({0, 1, 2}, {1, 1, 3}));
    REFUSED("save 1", SAVES({1, 1, 4}, {0, 1, 5}));
    REFUSED("save 1", SAVES({0, 2, 4}, {0, 2, 5}));
    REFUSED("save 0", SAVES({0, 0, 4}, {0, 2, 5}));
    REFUSED("save 1", SAVES({0, 2, 4}, {0, 4, 5}));
    REFUSED("save 1", SAVES({0, 2, 4}, {2, 1, 5}));
#undef SAVES
#undef REFUSED
    /* A snapshot that both go on from is nobody's to write. */
    forward_batch two = good;
    two.extend_prefix_lens = (uint32_t[]){2, 1}, two.seq_lens = (uint32_t[]){5, 2};
    two.positions = (uint32_t[]){2, 3, 4, 1};
    two.out_cache_loc = (rad_slot[]){12, 13, 14, 21};
    two.state_in = (rad_state[]){1, 1}, two.state_out = (rad_state[]){3, 2};
    CHECK_OK(batch_check(&info, &two, 9, 9, &err));
    two.state_out = (rad_state[]){1, 2};
    CHECK(batch_check(&info, &two, 9, 9, &err) == RAD_E_INVAL);
    rad_state_pool_destroy(pool);
    rad_state_pool_destroy(narrow);
    bench_destroy(&b);
}

TEST(create_survives_every_allocation_failing)
{
    runner *r = NULL;
    for (long n = 0; !r; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_status status = runner_fake_create(&env, NULL, &r, NULL);
        CHECK(status == (r ? RAD_OK : RAD_E_NOMEM));
        runner_destroy(r);
        CHECK(t.bytes == 0);
    }
}

TEST_MAIN()
