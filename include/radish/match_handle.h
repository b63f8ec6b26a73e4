/* match_handle.h - a match as a value: kept, compared, locked, read and continued later.
 *
 * A handle names a position in the tree: so many tokens (pairs under is_eagle) from the
 * root, ending in this node. It owns nothing and holds nothing; copy it, keep it, throw
 * it away. While its node is locked it stays good. Without a lock it stays good until the
 * tokens that it names are evicted or merged away; then it is stale, and whoever is
 * handed it answers RAD_E_STATE and does nothing. All zero is the empty prefix.
 *
 * The ChunkCache has no tree: every handle it gives is the empty prefix. */
#ifndef RADISH_MATCH_HANDLE_H
#define RADISH_MATCH_HANDLE_H

#include <radish/cache.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rad_match_handle {
    rad_ref node;
    uint32_t num_tokens; /* whole pages */
    uint32_t reserved;   /* 0 */
} rad_match_handle;

/* The longest cached prefix of `key` in whole pages. Touches access times like
 * match_prefix, but leaves the tree's shape alone: the position may lie inside a node.
 * O(num_tokens). */
RAD_API rad_status rad_cache_match_handle(rad_cache *cache, const rad_key *key,
                                          rad_match_handle *handle);

/* Locks the handle's node (a little more than the prefix when that ends inside a node; with windows
 * the node is cut there, RAD_FULL when there is none left for that). The receipt goes back through
 * rad_cache_dec_lock_ref. RAD_E_STATE, in words that name the node: the handle is stale, or the
 * window before its end was given back since. O(depth). */
RAD_API rad_status rad_match_handle_lock(rad_cache *cache, const rad_match_handle *handle,
                                         rad_receipt *receipt, rad_error *err);

/* Writes the slots of positions [first, first + count) of the handle's prefix. RAD_E_INVAL
 * when they are not all in it. O(depth + count). */
RAD_API rad_status rad_match_handle_slots(const rad_cache *cache, const rad_match_handle *handle,
                                          uint32_t first, uint32_t count, rad_slot *slots);

/* How many leading tokens two handles have in common (0 across namespaces). They name the
 * same prefix when that is the length of both. O(depth). */
RAD_API rad_status rad_match_handle_common(const rad_cache *cache, const rad_match_handle *a,
                                           const rad_match_handle *b, uint32_t *num_tokens);

/* Inserts like rad_cache_insert, but begins at *at instead of at the root, so that a step
 * costs its new tokens and not the whole context: O(depth + tokens behind *at).
 *
 * `key` is the whole key; its first at->num_tokens must be what the handle was made for.
 * That is the caller's word: only the namespace and the last page before *at are compared.
 * slots[i] belongs to position at->num_tokens + i. inserted->prefix_tokens counts
 * from the key's beginning; `inserted` may be NULL. On RAD_OK *at becomes the end of the key's
 * whole pages, from where the next insert may go on.
 *
 * RAD_E_STATE, in words that name the node, and nothing changed: the handle is stale or not
 * this key's. Others as rad_cache_insert. */
RAD_API rad_status rad_cache_insert_from(rad_cache *cache, rad_match_handle *at, const rad_key *key,
                                         const rad_slot *slots, const rad_insert_params *params,
                                         rad_inserted *inserted, rad_error *err);

/* A run of consecutive cached pages. `pages` points into the tree and is good until the
 * next call that may change the cache (anything whose cache is not const). */
typedef struct rad_page_span {
    const rad_page *pages;
    uint32_t num_pages;
    uint32_t first_token; /* position of its first token in the key */
} rad_page_span;

/* match_prefix without the copy: the same match, touches and splits, and instead of slots
 * the runs of pages that hold them, front to back. *count is how many runs there are;
 * only the first `max` are written. O(num_tokens) to compare, O(depth) to answer. */
RAD_API rad_status rad_cache_match_spans(rad_cache *cache, const rad_key *key, rad_page_span *spans,
                                         uint32_t max, uint32_t *count, rad_match *match);

#ifdef __cplusplus
}
#endif
#endif
