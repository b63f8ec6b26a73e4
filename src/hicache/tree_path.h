/* tree_path.h - what the tiers ask of a RadixCache's tree and no public call answers. */
#ifndef HICACHE_TREE_PATH_H
#define HICACHE_TREE_PATH_H

#include "cache/radix_cache.h"

/* Writes the tokens of the first `pages` pages on the path to a live node into tokens[] (room
 * for pages * page_size + 1) and makes *key of them; the names point into the tree. */
void tree_path_key(const radix_cache *c, rad_ref node, uint32_t pages, rad_token *tokens,
                   rad_key *key);

/* How many of the first `pages` pages on the path to a node have been hit since they came. */
uint32_t tree_path_hit(const radix_cache *c, rad_ref node, uint32_t pages);

/* Names of unlocked leaves that will be evicted soon, the coldest first. Looks at the top of
 * the heap only, so the order is approximate. */
uint32_t tree_coldest_leaves(const radix_cache *c, rad_ref *leaves, uint32_t max);

/* How many places the heap of leaves has; and who is in one of them, and whether it could be
 * evicted now. Places are filled by coldness, roughly. O(1). */
static inline uint32_t tree_num_leaf_places(const radix_cache *c)
{
    return c->tree.leaves.count;
}
rad_ref tree_leaf_at(const radix_cache *c, uint32_t place, bool *evictable);

/* A request has come back to the path of a node: hits and priority as if it had been inserted,
 * the time is as it was. O(depth). */
void tree_path_hits(radix_cache *c, rad_ref node, int32_t priority);

/* The path of `to_node` spells the first pages of the one of `node`: what of it was hit more
 * often here, or has a higher priority, has so there as well. O(depth). */
void tree_path_carry(const radix_cache *c, rad_ref node, radix_cache *to, rad_ref to_node);

#endif
