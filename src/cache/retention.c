/* retention.c - pins and retention at the door of the cache, and what the radix cache does
 * with them; the rules are in radix_keep.c. */
#include <radish/retention.h>

#include "cache/radix_cache.h"

rad_status rad_cache_pin_prefix(rad_cache *cache, const rad_key *key, uint64_t ttl_ns,
                                uint32_t *pinned_tokens)
{
    uint32_t unused, *result = pinned_tokens ? pinned_tokens : &unused;
    *result = 0;
    if (!cache_key_is_sound(key)) return RAD_E_INVAL;
    CACHE_WITH(cache, pin_prefix);
    if (!cache->ops->pin_prefix) return RAD_E_UNSUPPORTED;
    return cache->ops->pin_prefix(cache, key, ttl_ns, result);
}

rad_status rad_cache_retain_prefix(rad_cache *cache, const rad_key *key, int32_t priority,
                                   uint64_t idle_ns, uint32_t *retained_tokens)
{
    uint32_t unused, *result = retained_tokens ? retained_tokens : &unused;
    *result = 0;
    if (!cache_key_is_sound(key)) return RAD_E_INVAL;
    CACHE_WITH(cache, retain_prefix);
    if (!cache->ops->retain_prefix) return RAD_E_UNSUPPORTED;
    return cache->ops->retain_prefix(cache, key, priority, idle_ns, result);
}

uint64_t rad_cache_pinned_size(const rad_cache *cache)
{
    CACHE_WITH(cache, pinned_size);
    return cache->ops->pinned_size ? cache->ops->pinned_size(cache) : 0;
}

rad_status radix_pin_prefix(rad_cache *cache, const rad_key *key, uint64_t ttl_ns,
                            uint32_t *pinned_tokens)
{
    radix_cache *c = (radix_cache *)cache;
    if (!c->tree.keep.max_pinned[RADIX_DEVICE]) return RAD_E_UNSUPPORTED;
    keep_expire(&c->tree);
    uint32_t root = radix_cache_root(c, key), pages = radix_cache_pages(c, key);
    if (!root || !pages) return RAD_OK;
    *pinned_tokens = keep_pin(&c->tree, root, radix_cache_tokens(c, key), pages, ttl_ns) *
                     cache->page_size;
    return RAD_OK;
}

rad_status radix_retain_prefix(rad_cache *cache, const rad_key *key, int32_t priority,
                               uint64_t idle_ns, uint32_t *retained_tokens)
{
    radix_cache *c = (radix_cache *)cache;
    if (!c->retains) return RAD_E_UNSUPPORTED;
    keep_expire(&c->tree);
    uint32_t root = radix_cache_root(c, key), pages = radix_cache_pages(c, key);
    uint32_t strength = (uint32_t)RAD_MAX(0, RAD_MIN(priority, 99));
    if (!root || !pages) return RAD_OK;
    *retained_tokens =
        keep_retain(&c->tree, root, radix_cache_tokens(c, key), pages, strength, idle_ns) *
        cache->page_size;
    return RAD_OK;
}

uint64_t radix_pinned_size(const rad_cache *cache)
{
    return ((const radix_cache *)cache)->tree.keep.pinned[RADIX_DEVICE] * cache->page_size;
}
