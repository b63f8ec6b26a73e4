/* kv_events.h - what entered and left the cache, for routers that follow it.
 *
 * With rad_cache_params.enable_kv_events the cache queues an event for every page that
 * enters or leaves it. Whoever takes them all and replays them knows exactly what is
 * cached: a stored block's parent is known before it, a removed block was stored, a
 * block's children are removed before it. Splits and merges of nodes say nothing, since
 * hashes belong to pages.
 *
 * The queue is a ring of fixed size and never blocks. When it is full the event is
 * dropped, and so are all after it until the queue is taken; its last event is then
 * RAD_KV_LOST with the number of blocks that are missing. The consumer must start again
 * from rad_cache_snapshot_events().
 *
 * Under is_eagle a block is page_size pairs, and its tokens are both of each pair: of the raw
 * tokens 1 2 3 4 5 and a page size of 2 the blocks are 1 2 2 3 and 3 4 4 5, 2 * page_size
 * tokens each, while block_size stays the page size.
 *
 * A cache with tiers below the device (hicache.h) tells of these too, when it is asked to: all
 * this holds for each medium then, and events of all of them come in one order.
 *
 * Namespaces are separate: their names are never in an event, only that there are some and a
 * number that equal names share. Hashes are those of page_hash.h. */
#ifndef RADISH_KV_EVENTS_H
#define RADISH_KV_EVENTS_H

#include <radish/cache.h>
#include <radish/page_hash.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rad_kv_event_type {
    RAD_KV_STORED = 0,  /* BlockStored: a chain of blocks, each the parent of the next */
    RAD_KV_REMOVED = 1, /* BlockRemoved: deepest first */
    RAD_KV_CLEARED = 2, /* AllBlocksCleared: nothing is cached, in no namespace, on no medium */
    RAD_KV_LOST = 3     /* a gap: events were dropped here; resync */
} rad_kv_event_type;

typedef struct rad_kv_event {
    uint32_t type;       /* rad_kv_event_type */
    uint32_t num_blocks; /* stored, removed: hashes in block_hashes; lost: 0 */
    const int64_t *block_hashes;

    /* RAD_KV_STORED only. */
    const rad_token *token_ids; /* of all blocks; under is_eagle two for each pair */
    uint32_t num_token_ids;
    uint32_t block_size;       /* tokens (or pairs) of a block: the page size */
    int64_t parent_block_hash; /* of the first block, when has_parent */
    uint32_t has_parent;       /* 0: the block begins a prompt */

    /* RAD_KV_STORED and RAD_KV_REMOVED. */
    uint32_t has_extra_key;
    uint32_t has_cache_salt;
    uint32_t reserved;
    uint64_t namespace_id; /* the first 8 bytes of the seed, big-endian; 0: the default one */
    const char *medium;    /* the tier in the consumers' word, static: "GPU" is the device's;
                            * with rad_hicache_params.tier_events also "CPU_PINNED", "DISK" and
                            * "EXTERNAL". In events of no medium "GPU" */

    uint64_t lost_blocks; /* RAD_KV_LOST only */
} rad_kv_event;

/* Called in order. What the event points at is valid during the call. Must not call the
 * cache. */
typedef void (*rad_kv_event_fn)(void *user, const rad_kv_event *event);

/* Hands over all queued events and empties the queue. Stores that continue each other and
 * consecutive removals come as one event. RAD_E_STATE: events are off. O(blocks). */
RAD_API rad_status rad_cache_take_events(rad_cache *cache, rad_kv_event_fn visit, void *user);

/* Tells everything that is cached now: RAD_KV_CLEARED, then stores, parents first. What is
 * in the queue is contained in it and therefore forgotten, a gap too. RAD_E_STATE:
 * events are off. O(cached pages). */
RAD_API rad_status rad_cache_snapshot_events(rad_cache *cache, rad_kv_event_fn visit, void *user);

/* The hashes of the leading pages of `key` that are cached, at most `room`; *count says how
 * many. Changes nothing. RAD_E_STATE: page hashes are off. O(num_tokens). */
RAD_API rad_status rad_cache_get_page_hashes(const rad_cache *cache, const rad_key *key,
                                             rad_page_hash *hashes, uint32_t room, uint32_t *count);

#ifdef __cplusplus
}
#endif
#endif
