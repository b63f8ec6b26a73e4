/* test_page_chain_swa.c - as test_page_chain.c, for the tiers of a sliding-window cache. */
#include "page_hash_failing.h"
#include "swa_rig.h"

static void start(srig *r)
{
    srig_options o = {.page_size = 4,
                      .window = 20,
                      .pages = {80, 40},
                      .host_pages = {160, 80},
                      .storage = true,
                      .no_threads = true,
                      .tiers = {.write_policy = RAD_WRITE_THROUGH, .prefetch_threshold = 16}};
    srig_start(r, &o, NULL);
}

static void restart(srig *r)
{
    srig_options o = r->o;
    srig_check_idle(r);
    storage_mem *stores = srig_stop(r, true);
    srig_start(r, &o, stores);
}

static uint32_t serve(srig *r, const char *salt, uint32_t *fetched)
{
    sreq q = {.cache_salt = salt};
    sreq_ask(&q, 0, 81, 1000);
    rad_key key = sreq_key(&q, 80);
    *fetched = 0;
    rad_status status = rad_swa_hicache_prefetch_start(r->tiers, &key, 0, &q.prefetch);
    CHECK((status == RAD_OK) == (q.prefetch != 0));
    while (q.prefetch) {
        status = rad_swa_hicache_prefetch_progress(r->tiers, &q.prefetch, &key, fetched);
        if (status == RAD_AGAIN) CHECK_OK(rad_swa_hicache_pump(r->tiers, 0));
    }
    uint32_t found = srig_serve(r, &q);
    srig_check_idle(r);
    return found;
}

static uint64_t play(uint64_t seeds_at, uint64_t pages_at, bool every)
{
    srig r;
    uint32_t fetched;
    start(&r);
    hashes_fail(seeds_at, pages_at, every);
    CHECK(serve(&r, "mine", &fetched) == 0 && !fetched);
    restart(&r);
    (void)serve(&r, "mine", &fetched);
    uint64_t failed = failing_seeds.failed + failing_pages.failed;
    hashes_fail(0, 0, false);
    restart(&r);
    CHECK(serve(&r, NULL, &fetched) == 0 && !fetched);
    CHECK(serve(&r, "yours", &fetched) == 0 && !fetched);
    (void)serve(&r, "mine", &fetched);
    restart(&r);
    CHECK(serve(&r, "mine", &fetched) == 80);
    (void)srig_stop(&r, false);
    return failed;
}

TEST(a_seed_that_fails_is_not_the_default_namespace)
{
    for (int every = 0; every < 2; every++)
        for (uint64_t n = 1; play(n, 0, every); n++)
            CHECK(n < 1000);
}

TEST(a_page_without_a_hash_is_nobodys)
{
    for (int every = 0; every < 2; every++)
        for (uint64_t n = 1; play(0, n, every); n += n < 40 ? 1 : 7)
            CHECK(n < 2000);
}

TEST_MAIN()
