/* radix_cache.h - what radix_cache.c and radix_req.c share. */
#ifndef CACHE_RADIX_CACHE_H
#define CACHE_RADIX_CACHE_H

#include "cache/cache_impl.h"
#include "cache/radix_tree.h"

typedef struct radix_cache {
    rad_cache base;
    radix_tree tree;
    uint64_t evicted;  /* pages that left the tree since create */
    uint64_t inserted; /* pages that entered it */
    rad_status drop_status;
    uint32_t cached_pages; /* bits in `cached`, with the dummy page; 0: index-only */
    uint64_t *cached;      /* which of the allocator's pages the tree owns */
    bool retains;          /* rad_cache_params.retention */
} radix_cache;

typedef struct radix_insert {
    int32_t priority;
    bool count_hits;
    uint64_t before; /* nodes created after this time do not count the hit */

    /* Optional cursor: a locked node at or behind the end of the key's first from_pages
     * pages, which are in the tree already. */
    uint32_t from;
    uint32_t from_pages;
} radix_insert;

typedef struct radix_inserted {
    uint32_t matched_pages; /* the tree had them before */
    uint32_t end;           /* the node that ends the key; 0 when the key has no page */
} radix_inserted;

/* Inserts the whole pages of `key`. RAD_FULL: nothing changed. RAD_E_STATE, and
 * nothing changed: the key is not the one that the cursor belongs to, or one of its new
 * pages is not handed out or is the tree's already. */
rad_status radix_cache_publish(radix_cache *c, const rad_key *key, const rad_slot *slots,
                               const radix_insert *how, radix_inserted *result);

/* The cache if it is a tree, else NULL. */
radix_cache *radix_cache_of(const rad_cache *cache);

/* Gives pages that left the tree back to the allocator. */
void radix_cache_drop(void *user, const rad_page *pages, uint32_t count);

/* What went wrong since the last call when pages were given back; RAD_OK mostly. */
static inline rad_status radix_cache_take_drop_status(radix_cache *c)
{
    rad_status status = c->drop_status;
    c->drop_status = RAD_OK;
    return status;
}

/* Pages from the root to the node's end. O(depth). */
static inline uint32_t radix_cache_depth(const radix_cache *c, uint32_t node)
{
    uint32_t pages = 0;
    for (uint32_t id = node; id; id = c->tree.nodes[id].parent)
        pages += c->tree.nodes[id].pages;
    return pages;
}

/* <radish/retention.h> */
rad_status radix_pin_prefix(rad_cache *cache, const rad_key *key, uint64_t ttl_ns,
                            uint32_t *pinned_tokens);
rad_status radix_retain_prefix(rad_cache *cache, const rad_key *key, int32_t priority,
                               uint64_t idle_ns, uint32_t *retained_tokens);
uint64_t radix_pinned_size(const rad_cache *cache);

/* The root of the key's namespace; 0 when there is none. */
uint32_t radix_cache_root(const radix_cache *c, const rad_key *key);

rad_status radix_unfinished_req(rad_cache *cache, rad_req_kv *req, int chunked, rad_error *err);
rad_status radix_finished_req(rad_cache *cache, rad_req_kv *req, int is_insert, rad_error *err);

#endif
