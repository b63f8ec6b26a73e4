/* hicache_counts.c - see the header. */
#include "hicache/hicache_counts.h"

#include "hicache/hiradix_impl.h"

uint64_t hicache_evicted_tokens(const rad_cache *cache)
{
    const hiradix_cache *c = hiradix_of(cache);
    rad_cache_stats device, host = {0};
    rad_cache_get_stats(c ? c->device : cache, &device);
    if (c) rad_cache_get_stats(c->host, &host);
    return device.evicted_tokens + host.evicted_tokens;
}

uint64_t hicache_device_releases(const rad_cache *cache)
{
    const hiradix_cache *c = hiradix_of(cache);
    return c ? c->stats.device_releases : 0;
}
