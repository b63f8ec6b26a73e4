/* test_engine_populate.c - the KV pool's memory is there before it is used: how far ahead, how
 * it follows, and that it ends. Also run under tsan. */
#include "engine_rig.h"
#include "resident.h"

#include "base/available.h"

#include <time.h>

/* 16 MB a side and layer, and scales of 1 MB: what is smaller is there from the start. */
enum { LAYERS = 3, HEADS = 4, DIM = 64, PAGES = 65536 };

static rad_token_to_kv_pool *make_pool(uint32_t pages, const rad_kv_buffers *buffers)
{
    rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                     .num_pages = pages,
                                     .num_layers = LAYERS,
                                     .start_layer = 2,
                                     .num_kv_heads = HEADS,
                                     .head_dim = DIM,
                                     .dtype = RAD_I8,
                                     .buffers = buffers};
    rad_token_to_kv_pool *pool = NULL;
    CHECK_OK(rad_token_to_kv_pool_create(NULL, &p, &pool, NULL));
    return pool;
}

static size_t token_bytes(rad_token_to_kv_pool *pool)
{
    return rad_kv_pool_bytes_per_token(rad_kv_pool_params(pool));
}

/* Whether slots [begin, end) of all layers have memory. */
static bool is_ready(rad_token_to_kv_pool *pool, size_t begin, size_t end)
{
    const rad_token_to_kv_pool_params *p = rad_kv_pool_params(pool);
    bool all = true;
    for (uint32_t i = 0; i < p->num_layers; i++) {
        rad_kv_buffers b;
        CHECK_OK(rad_kv_pool_get_buffers(pool, p->start_layer + i, &b));
        const struct {
            const void *rows;
            size_t stride;
        } parts[] = {{b.k, b.k_stride},
                     {b.v, b.v_stride},
                     {b.k_scale, b.k_scale_stride},
                     {b.v_scale, b.v_scale_stride}};
        for (size_t k = 0; k < RAD_COUNT(parts); k++)
            all &= !parts[k].rows || resident_share((char *)parts[k].rows + begin * parts[k].stride,
                                                    (end - begin) * parts[k].stride) == 1;
    }
    return all;
}

static uint64_t unknown(void)
{
    return 0;
}

static uint64_t little(void)
{
    return 256 << 20;
}

static rad_env env;

/* Starts as an engine does in which nothing runs. */
static void start(engine_populate *p, rad_token_to_kv_pool *pool, uint64_t ahead)
{
    env = rad_env_or_default(NULL);
    engine_populate_init(p);
    p->available = unknown;
    CHECK_OK(engine_populate_start(p, &env, pool, ahead, NULL));
    engine_populate_follow(p, 1, true);
}

static void stop(engine_populate *p, rad_token_to_kv_pool *pool)
{
    engine_populate_stop(p);
    engine_populate_stop(p);
    engine_populate_wait(p);
    engine_populate_fini(p);
    rad_token_to_kv_pool_destroy(pool);
}

TEST(nothing_happens_where_nothing_is_asked_for)
{
    rad_token_to_kv_pool *pool = make_pool(16, NULL);
    engine_populate p;
    start(&p, pool, 0);
    CHECK(!p.started && engine_populate_bytes(&p) == 0);
    engine_populate_wait(&p);
    stop(&p, pool);
}

TEST(as_much_is_ready_as_was_asked_for_and_no_more)
{
    NEED_POPULATE();
    rad_token_to_kv_pool *pool = make_pool(PAGES, NULL);
    const size_t token = token_bytes(pool);
    engine_populate p;
    start(&p, pool, 1000 * token + 1);
    CHECK(engine_populate_wait(&p));
    CHECK(engine_populate_bytes(&p) == 1000 * token && is_ready(pool, 0, 1000));
    CHECK(!is_ready(pool, PAGES - 1000, PAGES)); /* a huge page is 8192 slots */

    /* What is used moves on: by too little to tell, then by more. */
    engine_populate_follow(&p, 10, true);
    engine_populate_wait(&p);
    CHECK(engine_populate_bytes(&p) == 1000 * token);
    engine_populate_follow(&p, 40000, true);
    engine_populate_wait(&p);
    CHECK(engine_populate_bytes(&p) == 41000 * token && is_ready(pool, 40000, 41000));

    /* To the end, and not past it. */
    engine_populate_follow(&p, PAGES + 1, true);
    engine_populate_wait(&p);
    CHECK(engine_populate_bytes(&p) == (PAGES + 1) * token);
    stop(&p, pool);
}

TEST(it_waits_while_requests_run)
{
    NEED_POPULATE();
    rad_token_to_kv_pool *pool = make_pool(PAGES, NULL);
    const size_t token = token_bytes(pool);
    engine_populate p;
    start(&p, pool, 100 * token);
    engine_populate_wait(&p);
    for (size_t used = 1000; used < 50000; used += 1000) { /* it is told, and does nothing */
        engine_populate_follow(&p, used, false);
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    CHECK(engine_populate_bytes(&p) == 49000 * token);
    CHECK(!is_ready(pool, 49000, 49100));
    engine_populate_follow(&p, 49000, true);
    engine_populate_wait(&p);
    CHECK(engine_populate_bytes(&p) == 49100 * token && is_ready(pool, 49000, 49100));
    stop(&p, pool);
}

TEST(it_can_be_stopped_at_any_time)
{
    NEED_POPULATE();
    engine_populate p;
    for (long us = 0; us < 100000; us = 2 * us + 50) {
        rad_token_to_kv_pool *pool = make_pool(2 * PAGES, NULL);
        start(&p, pool, UINT64_MAX);
        nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
        stop(&p, pool);
    }
    rad_token_to_kv_pool *pool = make_pool(PAGES, NULL);
    engine_populate_init(&p); /* and one that was never told that nothing runs has done nothing */
    CHECK_OK(engine_populate_start(&p, &env, pool, UINT64_MAX, NULL));
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    engine_populate_stop(&p);
    CHECK(p.ready == 0);
    stop(&p, pool);
}

TEST(memory_that_cannot_be_had_ends_it)
{
    NEED_POPULATE();
    /* A file that all layers share, with gaps between its slots, and too short for the last. */
    enum { GAP = 1 << 16, ROWS = 3 };
    FILE *file = tmpfile();
    CHECK(file && ftruncate(fileno(file), (ROWS - 1) * GAP) == 0);
    char *memory = mmap(NULL, ROWS * GAP, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    CHECK(memory != MAP_FAILED);
    rad_kv_buffers buffers[LAYERS];
    for (int i = 0; i < LAYERS; i++)
        buffers[i] = (rad_kv_buffers){.k = memory,
                                      .v = memory + 1024,
                                      .k_scale = (float *)(memory + 2048),
                                      .v_scale = (float *)(memory + 3072),
                                      .k_stride = GAP,
                                      .v_stride = GAP,
                                      .k_scale_stride = GAP,
                                      .v_scale_stride = GAP};
    rad_token_to_kv_pool *pool = make_pool(ROWS - 1, buffers);
    engine_populate p;
    start(&p, pool, UINT64_MAX);
    CHECK(!engine_populate_wait(&p));
    CHECK(engine_populate_bytes(&p) < ROWS * token_bytes(pool));
    engine_populate_follow(&p, 2, false);
    engine_populate_follow(&p, 3, true);
    engine_populate_wait(&p);
    stop(&p, pool);
    CHECK(munmap(memory, ROWS * GAP) == 0 && fclose(file) == 0);
}

TEST(memory_that_the_machine_is_short_of_is_left_alone_for_now)
{
    NEED_POPULATE();
    rad_token_to_kv_pool *pool = make_pool(PAGES, NULL);
    engine_populate p;
    start(&p, pool, 0);
    p.available = little;
    CHECK_OK(engine_populate_start(&p, &env, pool, UINT64_MAX, NULL));
    for (int i = 0; i < 3; i++) { /* it tries when requests have come and gone */
        engine_populate_follow(&p, 1, false);
        engine_populate_follow(&p, 1, true);
        CHECK(!engine_populate_wait(&p));
        CHECK(p.ready <= 1 && !is_ready(pool, 0, PAGES));
    }
    pthread_mutex_lock(&p.lock);
    p.available = unknown;
    pthread_mutex_unlock(&p.lock);
    engine_populate_follow(&p, 1, false);
    engine_populate_follow(&p, 1, true);
    CHECK(engine_populate_wait(&p) && is_ready(pool, 0, PAGES));
    stop(&p, pool);
}

TEST(an_engine_has_memory_ahead_of_its_requests)
{
    NEED_POPULATE();
    const uint64_t memory = memory_available();
    SKIP_UNLESS(!memory || memory > 1 << 29, "too little memory: 256 MB are left to others");
    enum { TOKENS = 1 << 20, AHEAD = 1 << 16, PROMPT = 400 };
    engine_params params = erig_params();
    params.max_total_tokens = TOKENS;
    params.kv_populate_ahead = AHEAD;
    engine *e = erig_start(params, 0);
    const uint64_t token = engine_get_info(e)->kv_bytes_per_token;
    rad_token_to_kv_pool *pool = scheduler_kv_pool(e->scheduler);
    engine_await_populated(e);
    engine_stats st;
    engine_get_stats(e, &st);
    CHECK(st.kv_populated_bytes == AHEAD / token * token);
    CHECK(is_ready(pool, 0, AHEAD / token));
    CHECK(!is_ready(pool, TOKENS / 2, TOKENS));

    /* Requests behind one another walk through the pool; it is ahead of them. */
    static rad_token ids[PROMPT];
    uint64_t used = 0;
    for (uint64_t i = 0; used < 3 * AHEAD; i++) {
        answer a;
        erig_prompt(e, ids, PROMPT, 100 + i);
        engine_request q = erig_ask(&a, ids, PROMPT, 1);
        erig_serve(e, &q);
        answer_fini(&a);
        used += PROMPT * token;
    }
    engine_get_stats(e, &st); /* by then the scheduler's thread has told */
    engine_await_populated(e);
    engine_get_stats(e, &st);
    CHECK(st.kv_populated_bytes > used + AHEAD / 2);
    CHECK(st.kv_populated_bytes <= used + 2 * AHEAD);
    CHECK(is_ready(pool, 0, st.kv_populated_bytes / token));
    erig_stop(e);
}

/* Of nine bytes that are ahead the window pool, an eighth as large as the other, gets one. */
TEST(window_memory_gets_its_part_of_what_is_ahead)
{
    NEED_POPULATE();
    const uint64_t memory = memory_available();
    SKIP_UNLESS(!memory || memory > 1 << 29, "too little memory: 256 MB are left to others");
    enum { TOKENS = 1 << 16, WINDOW_TOKENS = 1 << 13, PROMPT = 400 };
    engine_params params = erig_params();
    params.max_total_tokens = TOKENS;
    params.kv_populate_ahead = 64 * 1024 * 9;
    engine_parts parts = erig_parts(0);
    const runner_fake_params fake = {.vocab_size = tokenizer_vocab_size(parts.tok), .window = 64};
    runner_destroy(parts.runner);
    CHECK_OK(runner_fake_create(NULL, &fake, &parts.runner, NULL));
    parts.window_total_tokens = WINDOW_TOKENS;
    engine *e = erig_start_with(params, parts);
    const engine_info *info = engine_get_info(e);
    CHECK(info->window_total_tokens == WINDOW_TOKENS && info->sliding_window == 64);
    CHECK(info->kv_bytes_per_token == 64 && info->window_kv_bytes_per_token == 64);
    engine_await_populated(e);
    engine_stats st;
    engine_get_stats(e, &st);
    const double ahead = 64 * 1024 * 9, off = (double)st.kv_populated_bytes - ahead;
    CHECKF(off <= 0 && off > -200, "%llu\n", (unsigned long long)st.kv_populated_bytes);
    const size_t window_slots = (size_t)(ahead / 9 / 64) - 2;
    CHECK(is_ready(scheduler_window_pool(e->scheduler), 0, window_slots));
    CHECK(is_ready(scheduler_kv_pool(e->scheduler), 0, 8 * window_slots));

    static rad_token ids[PROMPT]; /* a request is behind both */
    answer a;
    erig_prompt(e, ids, PROMPT, 7);
    engine_request q = erig_ask(&a, ids, PROMPT, 1);
    erig_serve(e, &q);
    answer_fini(&a);
    engine_get_stats(e, &st);
    CHECK(st.sched.window_total_tokens == WINDOW_TOKENS && st.sched.window_held_tokens == 0);
    erig_stop(e);
}

TEST_MAIN()
