/* radix_rig.h - a radix cache whose slots are the test's own numbers, and calls after each of which
 * the tree is checked. */
#ifndef TESTS_RADIX_RIG_H
#define TESTS_RADIX_RIG_H

#include "cache_literals.h"
#include "test.h"

static inline rad_cache *make(uint32_t page_size)
{
    rad_cache_params params = {.struct_size = sizeof params, .page_size = page_size};
    rad_cache *cache = NULL;
    CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
    return cache;
}

static inline void check(const rad_cache *cache)
{
    rad_error err = {0};
    CHECKF(rad_cache_check(cache, &err) == RAD_OK, "%s", err.text);
}

/* Returns how many of the key's tokens were there already. */
static inline uint32_t insert(rad_cache *cache, const rad_key *key, const rad_slot *slots)
{
    rad_inserted in;
    CHECK_OK(rad_cache_insert(cache, key, slots, NULL, &in, NULL));
    check(cache);
    return in.prefix_tokens;
}

/* A lookup before it must have said the same. */
static inline rad_match match(rad_cache *cache, const rad_key *key, rad_slot *slots)
{
    rad_match before, m;
    CHECK_OK(rad_cache_lookup(cache, key, &before));
    CHECK_OK(rad_cache_match_prefix(cache, key, slots, &m, NULL));
    CHECK(before.prefix_tokens == m.prefix_tokens);
    check(cache);
    return m;
}

static inline bool matches(rad_cache *cache, const rad_key *key, const rad_slot *want,
                           uint32_t count)
{
    rad_slot slots[64];
    rad_match m = match(cache, key, slots);
    return m.prefix_tokens == count && memcmp(slots, want, count * sizeof *want) == 0;
}

#endif
