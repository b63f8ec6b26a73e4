/* hicache_counts.h - single counts for those who ask many times a step, where
 * rad_hicache_get_stats fills a page of figures and walks the transfers that are under way.
 * The thread that owns the cache; O(1). */
#ifndef HICACHE_HICACHE_COUNTS_H
#define HICACHE_HICACHE_COUNTS_H

#include <radish/hicache.h>

/* Tokens evicted since create, from the device and, where there is one, from the host. Any
 * kind of cache. */
uint64_t hicache_evicted_tokens(const rad_cache *cache);

/* rad_hicache_stats.device_releases; 0 of a cache without tiers. */
uint64_t hicache_device_releases(const rad_cache *cache);

#endif
