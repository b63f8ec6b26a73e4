/* test_hicache_recheck.c - what a store has lost is stored again while the host has it, and no
 * store is written without end for it. */
#define _XOPEN_SOURCE 700 /* nftw */
#define _DEFAULT_SOURCE
#include "hicache_rig.h"
#include "redis_rig.h"

#include <radish/kv_events.h>

static const uint64_t PERIOD = 60000000000;

static uint64_t now_of_test;

static uint64_t test_now(void *user)
{
    (void)user;
    return now_of_test;
}

static hrig_options stored(void)
{
    return hrig_stored(16, 64, 64);
}

static void start(hrig *r, const hrig_options *o, hrig *keep)
{
    hrig_start(r, o, keep);
    hiradix_of(r->cache)->base.env.now_ns = test_now;
}

/* 12 pages and a bit more, with all transfers through; how many tokens were cached. */
static uint32_t serve(hrig *r, rad_token first)
{
    hreq q = {0};
    hreq_ask(&q, 0, 200, first);
    rad_key key = hreq_key(&q, 199);
    rad_status status = rad_hicache_prefetch_start(r->cache, &key, 0, &q.prefetch);
    CHECK(status == RAD_OK || status == RAD_NONE);
    while (rad_hicache_prefetch_progress(r->cache, &q.prefetch, &key, NULL) == RAD_AGAIN)
        (void)hi_pump(r->cache, 0);
    uint32_t cached = hrig_serve(r, &q);
    hrig_settle(r);
    return cached;
}

/* Without a word, as a FLUSHALL does. */
static void lose_all(hrig *r)
{
    CHECK_OK(r->opened.ops->clear(r->opened.self, NULL));
}

static void lose(hrig *r, uint32_t number)
{
    rad_storage_key key = r->store.keys[number % r->store.count];
    CHECK_OK(r->opened.ops->remove(r->opened.self, &key, NULL));
}

TEST(what_a_store_has_lost_is_stored_again_when_it_comes_by)
{
    hrig r;
    hrig_options o = stored();
    for (uint32_t layout = 0; layout < 2; layout++) {
        o.layout = layout;
        now_of_test = 0;
        start(&r, &o, NULL);
        serve(&r, 1000);
        CHECK(r.store.count == 12);
        lose_all(&r);
        now_of_test += PERIOD / 2;
        serve(&r, 1000); /* its mark is fresh: nobody asks */
        CHECK(r.store.count == 0 && hrig_stats(&r).rechecked_tokens == 0);
        now_of_test += PERIOD;
        serve(&r, 1000);
        CHECK(r.store.count == 12 && hrig_stats(&r).stored_anew_tokens == 192);
        CHECK(hrig_stats(&r).rechecked_tokens == 0);
        CHECK(hrig_stats(&r).backed_up_tokens == 384);
        hrig_check_idle(&r);
        hrig old = r;
        hrig_stop(&r, true);
        start(&r, &o, &old);
        CHECK(serve(&r, 1000) == 192); /* and right: it was verified, and compared */
        hrig_end(&r);
    }
}

static storage_fate count_sets(void *user, storage_call call, uint64_t number)
{
    (void)number;
    *(uint32_t *)user += call == STORAGE_SET;
    return STORAGE_WELL;
}

/* One is gone: nothing else is handed to the store, which may be one that writes what it has. */
TEST(one_lost_page_costs_one_write)
{
    for (uint32_t gone = 0; gone < 12; gone++) {
        hrig r;
        hrig_options o = stored();
        start(&r, &o, NULL);
        serve(&r, 1000);
        uint32_t sets = 0;
        r.store.script = count_sets;
        r.store.user = &sets;
        lose(&r, gone);
        now_of_test += PERIOD;
        serve(&r, 1000);
        CHECK(r.store.count == 12 && sets == 1);
        CHECK(hrig_stats(&r).stored_anew_tokens == 16);
        CHECK(hrig_stats(&r).rechecked_tokens == 11 * 16);
        hrig_end(&r);
    }
}

TEST(what_is_there_is_asked_for_once_in_a_period)
{
    hrig r;
    hrig_options o = stored();
    start(&r, &o, NULL);
    serve(&r, 1000);
    for (int i = 0; i < 400; i++) { /* ten periods */
        now_of_test += PERIOD / 40;
        serve(&r, 1000);
    }
    CHECK(hrig_stats(&r).rechecked_tokens >= 9 * 192);
    CHECK(hrig_stats(&r).rechecked_tokens <= 10 * 192);
    CHECK(hrig_stats(&r).stored_anew_tokens == 0 && r.store.stats.sets == 12);
    hrig_end(&r);

    o.tiers.recheck_ns = UINT64_MAX; /* never */
    start(&r, &o, NULL);
    serve(&r, 1000);
    lose_all(&r);
    now_of_test += (uint64_t)1 << 60;
    serve(&r, 1000);
    CHECK(r.store.count == 0 && hrig_stats(&r).rechecked_tokens == 0);
    hrig_stop(&r, false);
}

static storage_fate nothing_is_taken(void *user, storage_call call, uint64_t number)
{
    (void)user;
    (void)number;
    return call == STORAGE_SET ? STORAGE_MISSING : STORAGE_WELL;
}

/* The queue of a slow store is longer than a period. A check of a page whose backup was out took
 * the mark off that the backup's end had taken off already: so the page counted as stored. */
TEST(nobody_asks_about_a_page_that_is_on_its_way)
{
    hrig r;
    hreq q = {0};
    hrig_options o = stored();
    start(&r, &o, NULL);
    hreq_ask(&q, 0, 200, 1000);
    hrig_serve(&r, &q);
    CHECK_OK(hi_pump(r.cache, 0)); /* on the host, and a backup waits */
    CHECK_OK(rad_cache_poll(r.cache));
    CHECK(hrig_stats(&r).queued[TRANSFER_BACKUP_STORAGE] == 1);
    now_of_test += 100 * PERIOD;
    hrig_serve(&r, &q);
    CHECK(hrig_stats(&r).queued[TRANSFER_BACKUP_STORAGE] == 1);
    r.store.script = nothing_is_taken;
    hrig_settle(&r);
    r.store.script = NULL;
    serve(&r, 1000);
    CHECK(r.store.count == 12);
    now_of_test += PERIOD / 2; /* it counts from when the store said so */
    serve(&r, 1000);
    CHECK(hrig_stats(&r).rechecked_tokens == 0);
    hrig_end(&r);
}

/* A store that keeps nothing: a day, and a request each 10 s. */
TEST(a_store_that_keeps_nothing_is_not_written_for_ever)
{
    hrig r;
    hrig_options o = stored();
    start(&r, &o, NULL);
    for (int i = 0; i < 8640; i++) {
        serve(&r, 1000);
        lose_all(&r);
        now_of_test += 10000000000;
    }
    uint64_t times = hrig_stats(&r).stored_anew_tokens / 192;
    CHECKF(times >= 8 && times <= 11, "%u times\n", (unsigned)times);
    hrig_end(&r);
}

/* Long ago it was lost again and again: that is forgotten by and by. */
TEST(a_store_that_keeps_pages_again_is_trusted_again)
{
    hrig r;
    hrig_options o = stored();
    start(&r, &o, NULL);
    serve(&r, 1000);
    for (int i = 0; i < 3; i++) { /* then it is looked up each 8 periods */
        lose_all(&r);
        now_of_test += PERIOD << i;
        serve(&r, 1000);
        CHECK(r.store.count == 12);
    }
    for (int i = 3; i > 0; i--) {
        now_of_test += (PERIOD << i) - PERIOD / 2;
        serve(&r, 1000);
        CHECK(hrig_stats(&r).rechecked_tokens == (uint64_t)(3 - i) * 192);
        now_of_test += PERIOD / 2;
        serve(&r, 1000);
        CHECK(hrig_stats(&r).rechecked_tokens == (uint64_t)(4 - i) * 192);
    }
    lose_all(&r);
    now_of_test += PERIOD;
    serve(&r, 1000);
    CHECK(r.store.count == 12);
    hrig_end(&r);
}

static storage_fate always_fails(void *user, storage_call call, uint64_t number)
{
    (void)call;
    (void)number;
    *(uint64_t *)user += 1;
    return STORAGE_FAILS;
}

TEST(a_store_that_does_not_answer_is_asked_again_a_period_later)
{
    hrig r;
    uint64_t calls = 0;
    hrig_options o = stored();
    start(&r, &o, NULL);
    serve(&r, 1000);
    lose_all(&r);
    now_of_test += PERIOD;
    r.store.script = always_fails;
    r.store.user = &calls;
    for (int i = 0; i < 10; i++)
        serve(&r, 1000);
    CHECK(calls == 1 && hrig_stats(&r).dropped_backup_tokens == 0);
    r.store.script = NULL;
    serve(&r, 1000);
    CHECK(r.store.count == 0);
    now_of_test += PERIOD;
    serve(&r, 1000);
    CHECK(r.store.count == 12 && hrig_stats(&r).stored_anew_tokens == 192);
    hrig_end(&r);
}

static void count_stores(void *user, const rad_kv_event *e)
{
    if (e->type == RAD_KV_STORED && strcmp(e->medium, "EXTERNAL") == 0) *(uint32_t *)user += 1;
}

static uint32_t told(hrig *r)
{
    uint32_t count = 0;
    CHECK_OK(rad_cache_take_events(r->cache, count_stores, &count));
    return count;
}

/* What a check finds was told long ago, and what gave no answer is not known. */
TEST(only_what_is_stored_anew_is_told_anew)
{
    hrig r;
    uint64_t calls = 0;
    hrig_options o = stored();
    o.events = true;
    o.tiers.tier_events = 1;
    start(&r, &o, NULL);
    serve(&r, 1000);
    CHECK(told(&r) > 0);
    now_of_test += PERIOD;
    serve(&r, 1000);
    CHECK(hrig_stats(&r).rechecked_tokens == 192 && told(&r) == 0);
    r.store.script = always_fails;
    r.store.user = &calls;
    now_of_test += PERIOD;
    serve(&r, 1000);
    CHECK(calls > 0 && told(&r) == 0);
    r.store.script = NULL;
    lose_all(&r);
    now_of_test += PERIOD;
    serve(&r, 1000);
    CHECK(hrig_stats(&r).stored_anew_tokens == 192 && told(&r) > 0);
    hrig_end(&r);
}

/* Two prompts of 12 pages, a directory for 16. */
TEST(a_file_store_gets_back_what_its_budget_evicted)
{
    hrig r;
    char dir[64];
    rad_storage was;
    hrig_options o = stored();
    start(&r, &o, NULL);
    size_t record = r.store.record_bytes;
    rad_storage file = rig_open(rig_dir(dir), 16 * record);
    CHECK_OK(rad_hicache_detach_storage(r.cache, &was, NULL));
    CHECK_OK(rad_hicache_attach_storage(r.cache, &file, NULL));
    for (int round = 0; round < 2; round++) {
        serve(&r, 1000);
        serve(&r, 5000); /* takes the places of the first */
    }
    CHECKF(rig_stats(file).evicted > 0, "%u pages\n", (unsigned)rig_stats(file).pages);
    uint64_t sets = rig_stats(file).sets;
    now_of_test += PERIOD;
    CHECK(serve(&r, 1000) == 192); /* the device's */
    CHECK(hrig_stats(&r).stored_anew_tokens > 0 && rig_stats(file).sets > sets);
    hrig_check_idle(&r);
    CHECK_OK(rad_hicache_detach_storage(r.cache, NULL, NULL));
    hrig_stop(&r, false);
    file.ops->close(file.self);

    file = rig_open(dir, (uint64_t)1 << 30); /* a restart */
    hrig_start(&r, &o, NULL);                /* with the clock that the store has */
    CHECK_OK(rad_hicache_detach_storage(r.cache, &was, NULL));
    CHECK_OK(rad_hicache_attach_storage(r.cache, &file, NULL));
    CHECK(serve(&r, 1000) == 192 && hrig_stats(&r).fetched_tokens == 192);
    CHECK(hrig_stats(&r).bad_pages == 0);
    hrig_check_idle(&r);
    CHECK_OK(rad_hicache_detach_storage(r.cache, NULL, NULL));
    hrig_stop(&r, false);
    file.ops->close(file.self);
    rig_remove_dir(dir);
}

TEST(a_redis_gets_back_what_was_flushed)
{
    SKIP_UNLESS(redis_is_installed(), "no redis-server");
    hrig r;
    redis_server server;
    rad_storage was;
    hrig_options o = stored();
    redis_start(&server, NULL, "PONG");
    rad_storage redis = redis_open(server.port, (rad_storage_redis_params){0}, NULL);
    start(&r, &o, NULL);
    CHECK_OK(rad_hicache_detach_storage(r.cache, &was, NULL));
    CHECK_OK(rad_hicache_attach_storage(r.cache, &redis, NULL));
    serve(&r, 1000);
    CHECK(redis_number(server.port, "DBSIZE") == 12);
    CHECK(redis_says(server.port, "FLUSHALL", "OK"));
    serve(&r, 1000);
    CHECK(redis_number(server.port, "DBSIZE") == 0);
    now_of_test += PERIOD;
    serve(&r, 1000);
    CHECK(redis_number(server.port, "DBSIZE") == 12);
    CHECK(hrig_stats(&r).stored_anew_tokens == 192);
    hrig_check_idle(&r);
    CHECK_OK(rad_hicache_detach_storage(r.cache, NULL, NULL));
    hrig_stop(&r, false);
    redis.ops->close(redis.self);
    redis_end(&server);
}

/* Prompts, losses and time at random; then a quiet time, and all that the host has is stored. */
TEST(random_losses_are_made_good)
{
    uint64_t seed = test_seed(), rng = seed;
    for (uint64_t run = 0; run < test_scale(20, 1000); run++) {
        hrig r;
        hrig_options o = stored();
        o.layout = test_random(&rng) % 2;
        o.tiers.write_policy = test_random(&rng) % 2;
        start(&r, &o, NULL);
        uint64_t lost = 0;
        for (int i = 0; i < 60; i++) {
            serve(&r, 1000 * (rad_token)(1 + test_random(&rng) % 4));
            now_of_test += test_random(&rng) % PERIOD;
            for (uint64_t n = test_random(&rng) % 4; n && r.store.count; n--, lost++)
                lose(&r, (uint32_t)test_random(&rng));
            hrig_check(&r, NULL, 0);
        }
        now_of_test += PERIOD << 6; /* nothing was lost as often */
        for (rad_token p = 1; p < 5; p++)
            for (int twice = 0; twice < 2; twice++)
                serve(&r, 1000 * p);
        hrig_check_idle(&r);
        uint64_t on_host = hrig_stats(&r).host_cached_tokens / 16;
        CHECKF(r.store.count == on_host && on_host == 48,
               "run %u, seed %llu: %u pages in the store, %u on the host, %u were lost\n",
               (unsigned)run, (unsigned long long)seed, r.store.count, (unsigned)on_host,
               (unsigned)lost);
        CHECK(hrig_stats(&r).tickets == 0 && hiradix_of(r.cache)->checks == 0);
        hrig_stop(&r, false);
    }
}

TEST_MAIN()
