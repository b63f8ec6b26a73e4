/* page_hash_failing.h - page hashes that fail on request: CMake links the tests that include this
 * with --wrap, so that the tiers' calls come here first. */
#ifndef TESTS_PAGE_HASH_FAILING_H
#define TESTS_PAGE_HASH_FAILING_H

#include "test.h"

#include <radish/page_hash.h>
#include <stdbool.h>

typedef struct failing_hash {
    uint64_t at, every; /* the at-th call, and with `every` all from there on */
    uint64_t calls, failed;
} failing_hash;

static failing_hash failing_seeds, failing_pages; /* at 0: none */

static bool hash_fails(failing_hash *f)
{
    f->calls++;
    bool fails = f->at && (f->every ? f->calls >= f->at : f->calls == f->at);
    f->failed += fails;
    return fails;
}

rad_status __real_rad_page_hash_seed(rad_page_hasher *h, const char *extra_key,
                                     const char *cache_salt, rad_page_hash *seed);
rad_status __wrap_rad_page_hash_seed(rad_page_hasher *h, const char *extra_key,
                                     const char *cache_salt, rad_page_hash *seed);
rad_status __real_rad_page_hash_tokens(rad_page_hasher *h, const rad_page_hash *prior,
                                       const rad_token *tokens, uint32_t page_size,
                                       rad_page_hash *hash);
rad_status __wrap_rad_page_hash_tokens(rad_page_hasher *h, const rad_page_hash *prior,
                                       const rad_token *tokens, uint32_t page_size,
                                       rad_page_hash *hash);

/* Only the seeds of named spaces can fail: the default one has none. */
rad_status __wrap_rad_page_hash_seed(rad_page_hasher *h, const char *extra_key,
                                     const char *cache_salt, rad_page_hash *seed)
{
    if ((extra_key || cache_salt) && hash_fails(&failing_seeds)) return RAD_E_UNSUPPORTED;
    return __real_rad_page_hash_seed(h, extra_key, cache_salt, seed);
}

rad_status __wrap_rad_page_hash_tokens(rad_page_hasher *h, const rad_page_hash *prior,
                                       const rad_token *tokens, uint32_t page_size,
                                       rad_page_hash *hash)
{
    if (hash_fails(&failing_pages)) return RAD_E_UNSUPPORTED;
    return __real_rad_page_hash_tokens(h, prior, tokens, page_size, hash);
}

static void hashes_fail(uint64_t seeds_at, uint64_t pages_at, bool every)
{
    failing_seeds = (failing_hash){.at = seeds_at, .every = every};
    failing_pages = (failing_hash){.at = pages_at, .every = every};
}

static uint64_t hashes_failed(void)
{
    return failing_seeds.failed + failing_pages.failed;
}

/* A test's course with these hashes failing; returns how many did. */
typedef uint64_t failing_course(uint64_t seeds_at, uint64_t pages_at, bool every);

/* Each seed fails once, and all from there on, as long as one is asked for. */
static void fail_each_seed(failing_course *play)
{
    for (int every = 0; every < 2; every++)
        for (uint64_t n = 1; play(n, 0, every); n++)
            CHECK(n < 1000);
}

/* So do pages: of the later ones each seventh. */
static void fail_each_page(failing_course *play)
{
    for (int every = 0; every < 2; every++)
        for (uint64_t n = 1; play(0, n, every); n += n < 40 ? 1 : 7)
            CHECK(n < 2000);
}

#endif
