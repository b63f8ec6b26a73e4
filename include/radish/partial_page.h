/* partial_page.h - reusing the front of a cached page.
 *
 * A match ends at a page boundary, although the next cached page may begin like the key
 * goes on: on average (page_size - 1) / 2 tokens are computed again for each match. With
 * a copy function in rad_cache_params they are copied instead:
 *
 *     key      | a b c d | e f x y |          page_size 4, tree has | a b c d | e f g h |
 *     match      4 tokens, partial_tokens 2
 *     reuse    a private page | e' f' . . |: the request goes on computing at x
 *
 * The cached page is complete and stays untouched; the private one belongs to the request
 * alone until the request publishes it, so nobody sees it half written. */
#ifndef RADISH_PARTIAL_PAGE_H
#define RADISH_PARTIAL_PAGE_H

#include <radish/cache.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Takes a page from the allocator, evicting for it if need be, and has the slots copied
 * into it that the key shares with the tree behind `match` (which match_prefix gave for
 * the same key: the caller's word, only the namespace is compared; it should be locked).
 * slots[0..*num_tokens) are the private page's: enter them in the row behind the prefix,
 * count them as committed and allocated, not as protected. *num_tokens is 0, and no page
 * was taken, when nothing is shared (any more).
 *
 * RAD_FULL: no page could be had. RAD_E_STATE: the match is stale. RAD_E_UNSUPPORTED: the
 * cache has no copy function, no allocator or pages of one token. What the copy function
 * refuses with is passed on. In all these cases no page changed hands.
 * O(depth + children of the last node, 64 at most). */
RAD_API rad_status rad_cache_reuse_partial(rad_cache *cache, const rad_key *key,
                                           const rad_match *match, rad_slot *slots,
                                           uint32_t *num_tokens);

#ifdef __cplusplus
}
#endif
#endif
