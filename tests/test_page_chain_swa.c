/* test_page_chain_swa.c - as test_page_chain.c, for the tiers of a sliding-window cache. */
#include "page_hash_failing.h"
#include "swa_rig.h"

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
    srig_options o = srig_stored(4, RAD_WRITE_THROUGH);
    srig_start(&r, &o, NULL);
    hashes_fail(seeds_at, pages_at, every);
    CHECK(serve(&r, "mine", &fetched) == 0 && !fetched);
    srig_restart(&r);
    (void)serve(&r, "mine", &fetched);
    uint64_t failed = hashes_failed();
    hashes_fail(0, 0, false);
    srig_restart(&r);
    CHECK(serve(&r, NULL, &fetched) == 0 && !fetched);
    CHECK(serve(&r, "yours", &fetched) == 0 && !fetched);
    (void)serve(&r, "mine", &fetched);
    srig_restart(&r);
    CHECK(serve(&r, "mine", &fetched) == 80);
    (void)srig_stop(&r, false);
    return failed;
}

TEST(a_seed_that_fails_is_not_the_default_namespace)
{
    fail_each_seed(play);
}

TEST(a_page_without_a_hash_is_nobodys)
{
    fail_each_page(play);
}

TEST_MAIN()
