/* retention.h - asking the cache to keep a prefix longer than its policy would.
 *
 * Both ways only order eviction: what is not kept goes first, then what is retained, by
 * its retention priority, then what is pinned; within each the policy decides. When
 * nothing else is left, pinned tokens are evicted as well, so neither can wedge the pool.
 * Locks (requests in flight) are another thing and always hold.
 *
 * Time is env->now_ns. Nothing runs in the background: what is over is noticed by the
 * next eviction, hit or call of these functions, each at O(log n).
 *
 * Both belong to the nodes of the tree. A split keeps them on both halves; what is later
 * inserted behind a kept prefix is not kept. */
#ifndef RADISH_RETENTION_H
#define RADISH_RETENTION_H

#include <radish/cache.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Pins the longest cached prefix of `key` for ttl_ns; each hit (match or insert) starts
 * the time anew. Pinning again takes the longer of the two. At most
 * rad_cache_params.max_pinned_tokens are pinned at one time: of a prefix that does not
 * fit, the front is. ttl_ns 0 unpins. Does not count as an access.
 *
 * *pinned_tokens (may be NULL): how many leading tokens of the key are pinned (or were
 * unpinned) now. RAD_E_UNSUPPORTED: the cache has no budget for pins (max_pinned_tokens
 * 0, or no radix cache). RAD_E_INVAL: the key is not sound. O(key). */
RAD_API rad_status rad_cache_pin_prefix(rad_cache *cache, const rad_key *key, uint64_t ttl_ns,
                                        uint32_t *pinned_tokens);

/* Retains the longest cached prefix of `key` with a priority, cut to 0..99, until
 * it was idle (no match, no insert) for idle_ns; 0 = for good. When idle for longer the
 * retention is over: its priority is 0, like everybody's. A node that is retained already
 * keeps the stronger: the higher priority, among equals the longer time. Priority 0 ends
 * a retention.
 *
 * *retained_tokens (may be NULL): leading tokens of the key that are retained now (for
 * priority 0: that no longer are). RAD_E_UNSUPPORTED: rad_cache_params.retention is 0.
 * O(key). */
RAD_API rad_status rad_cache_retain_prefix(rad_cache *cache, const rad_key *key, int32_t priority,
                                           uint64_t idle_ns, uint32_t *retained_tokens);

/* Tokens pinned now, some of which may be over but not yet noticed. O(1). */
RAD_API uint64_t rad_cache_pinned_size(const rad_cache *cache);

#ifdef __cplusplus
}
#endif
#endif
