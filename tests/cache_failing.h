/* cache_failing.h - a cache that is made while memory fails. */
#ifndef TESTS_CACHE_FAILING_H
#define TESTS_CACHE_FAILING_H

#include "test.h"

#include <radish/cache.h>

/* Fails the 1st allocation of create, then the 2nd, ... until it succeeds. Whatever breaks, create
 * says so and gives every byte back. Returns the cache; `t` counts its memory. */
static inline rad_cache *cache_after_every_failure(const rad_cache_params *params, test_env *t)
{
    rad_cache *cache = NULL;
    for (long n = 0; !cache; n++) {
        rad_env env = test_env_failing_at(t, n);
        rad_status status = rad_cache_create(&env, params, &cache, NULL);
        CHECK(status == (cache ? RAD_OK : RAD_E_NOMEM));
        CHECK(n < 100 && (cache || t->bytes == 0));
    }
    return cache;
}

static inline uint64_t metadata_bytes(const rad_cache *cache)
{
    rad_cache_stats stats;
    rad_cache_get_stats(cache, &stats);
    return stats.metadata_bytes;
}

#endif
