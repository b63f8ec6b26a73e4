/* test_page_chain.c - hashes that cannot be made: what has none is stored nowhere and found
 * nowhere, least of all in the default namespace. Each hash fails once, and all from there on. */
#include "hicache_rig.h"
#include "page_hash_failing.h"

#include "cache/radix_journal.h"

/* Arrives, fetches what there is and is served; returns what was found. */
static uint32_t serve(hrig *r, const char *salt, uint32_t tokens, uint32_t *fetched)
{
    hreq q = {.cache_salt = salt};
    hreq_ask(&q, 0, tokens, 1000);
    rad_key key = hreq_key(&q, tokens - 1);
    rad_status status = rad_hicache_prefetch_start(r->cache, &key, 0, &q.prefetch);
    CHECK((status == RAD_OK) == (q.prefetch != 0));
    for (int i = 0; i < 1000 && q.prefetch; i++) {
        status = rad_hicache_prefetch_progress(r->cache, &q.prefetch, &key, &q.prefetched);
        if (status == RAD_AGAIN) (void)hi_pump(r->cache, 0);
    }
    CHECK(!q.prefetch);
    *fetched = q.prefetched;
    uint32_t found =
        hrig_serve(r, &q); /* compares every byte that was found with what it must be */
    hrig_settle(r);
    hrig_check_bytes(r);
    return found;
}

/* A salted prompt is served while hashes fail; then strangers look for it, and its owner. */
static uint64_t play(uint64_t seeds_at, uint64_t pages_at, bool every)
{
    hrig r;
    uint32_t fetched;
    hrig_options o = hrig_stored(16, 32, 64);
    hrig_start(&r, &o, NULL);
    hashes_fail(seeds_at, pages_at, every);
    CHECK(serve(&r, "tenant a", 200, &fetched) == 0 && !fetched);
    (void)serve(&r, "tenant a", 300, &fetched);
    uint64_t failed = hashes_failed();
    if (failed && every && seeds_at == 1) CHECK(r.store.count == 0);
    hrig_restart(&r);
    (void)serve(&r, "tenant a", 301, &fetched); /* it may fail to be fetched as well */
    failed = hashes_failed();
    hashes_fail(0, 0, false);
    hrig_restart(&r);
    CHECK(serve(&r, NULL, 301, &fetched) == 0 && !fetched);
    CHECK(serve(&r, "", 301, &fetched) == 0 && !fetched);
    CHECK(serve(&r, "tenant b", 301, &fetched) == 0 && !fetched);
    (void)serve(&r, "tenant a", 301, &fetched); /* its bytes are right, if they are there */
    hrig_restart(&r);
    CHECK(serve(&r, "tenant a", 301, &fetched) >= 288);
    hrig_end(&r);
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

TEST(what_cannot_be_hashed_is_an_error)
{
    hrig r;
    hrig_options o = hrig_stored(16, 32, 64);
    hrig_start(&r, &o, NULL);
    const radix_tree *t = hiradix_of(r.cache)->tree;
    const radix_journal *j = t->journal;
    rad_token tokens[64] = {1, 2, 3, 4, 5, 6, 7, 8};
    rad_page_hash hashes[2], plain[2];
    uint32_t fetched;
    uint64_t digest = 7;
    static char name[65536 + 2];
    memset(name, 'x', sizeof name - 1);
    rad_key key = {.tokens = tokens, .num_tokens = 2 * t->limits.page_size};
    rad_key named = key, longest = key;
    CHECK(key.num_tokens <= RAD_COUNT(tokens));
    named.cache_salt = "a";
    longest.extra_key = name;
    hashes_fail(0, 0, false);
    (void)serve(&r, NULL, 200, &fetched);
    (void)serve(&r, "a", 200, &fetched);
    uint32_t root = radix_cache_root(hiradix_of(r.cache)->nodes, &key);
    uint32_t named_root = radix_cache_root(hiradix_of(r.cache)->nodes, &named);
    CHECK(root && named_root);
    CHECK_OK(radix_journal_hash_key(j, t, &key, 0, 2, NULL, plain));
    CHECK(radix_journal_digest(j, t, root, &digest) && digest == 0);
    CHECK_OK(radix_journal_hash_key(j, t, &named, 0, 2, NULL, hashes));
    CHECK(memcmp(hashes, plain, sizeof hashes) != 0);
    CHECK_OK(radix_journal_hash_key(j, t, &named, 1, 1, &hashes[0], &plain[0]));
    CHECK(memcmp(&hashes[1], &plain[0], sizeof hashes[0]) == 0);
    CHECK(radix_journal_digest(j, t, named_root, &digest) && digest != 0);
    CHECK(radix_journal_hash_key(j, t, &longest, 0, 2, NULL, hashes) == RAD_E_LIMIT);
    hashes_fail(1, 0, true);
    CHECK(radix_journal_hash_key(j, t, &named, 0, 2, NULL, hashes) == RAD_E_UNSUPPORTED);
    CHECK(!radix_journal_digest(j, t, named_root, &digest));
    CHECK(radix_journal_digest(j, t, root, &digest) && digest == 0);
    hashes_fail(0, 2, true);
    CHECK(radix_journal_hash_key(j, t, &key, 0, 2, NULL, hashes) == RAD_E_UNSUPPORTED);
    hashes_fail(0, 0, false);
    hrig_end(&r);
}

TEST_MAIN()
