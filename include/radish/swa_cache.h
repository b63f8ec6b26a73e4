/* swa_cache.h - the radix cache of a model in which some layers see only a window.
 *
 * One tree over full pages; which of them have K/V on the window side is the allocator's
 * map (swa_allocator.h). A cached page without one is a tombstone: good for the layers that
 * see everything, gone for those with a window.
 *
 *     full     o o o o o o o o o o        cached
 *     window   . . o o . . o o o o        window = 3 pages
 *                                ^        a match may end here (3 before it are there)
 *                      ^                  not here: it goes back to where it may
 *
 * So a match ends only where the last `window_tokens` before the end are on both sides. A
 * lock keeps the whole path on the full side, and on the window side the last window. The
 * window side is evicted by making tombstones: first of pages that lie before more than a window of
 * any place where a match or an insert ended, then of the windows before such places, the one used
 * least recently first; the full side as in any radix cache, from the tails of leaves.
 *
 * Host memory and storage behind it: swa_hicache.h.
 *
 * One thread owns a cache with its allocator and rows; no heap after create. */
#ifndef RADISH_SWA_CACHE_H
#define RADISH_SWA_CACHE_H

#include <radish/cache.h>
#include <radish/swa_allocator.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rad_swa_cache rad_swa_cache;

typedef struct rad_swa_cache_params {
    size_t struct_size;                       /* sizeof(rad_swa_cache_params) */
    uint32_t window_tokens;                   /* at least 1; rounded up to whole pages */
    uint32_t max_nodes;                       /* 0: from the pool */
    uint32_t max_namespaces;                  /* 0: from the pool, as in rad_cache_params */
    uint32_t reserved;                        /* 0 */
    rad_swa_allocator *allocator;             /* not owned, like the next */
    rad_req_to_token_pool *req_to_token_pool; /* NULL: there are no requests */
} rad_swa_cache_params;

/* RAD_E_INVAL, RAD_E_LIMIT or RAD_E_NOMEM in words; *out is NULL then. The allocator and the rows
 * must outlive the cache, as in rad_cache_create. */
RAD_API rad_status rad_swa_cache_create(const rad_env *env, const rad_swa_cache_params *params,
                                        rad_swa_cache **out, rad_error *err);
RAD_API void rad_swa_cache_destroy(rad_swa_cache *cache); /* NULL is fine */

/* As rad_cache_match_prefix, ending where both sides allow it. O(num_tokens). */
RAD_API rad_status rad_swa_cache_match_prefix(rad_swa_cache *cache, const rad_key *key,
                                              rad_slot *slots, rad_match *match);

/* from_tokens is the boundary: the window side is kept from there to the node's end. */
typedef struct rad_swa_receipt {
    rad_ref node;
    uint32_t held;
    uint32_t from_tokens;
} rad_swa_receipt;

/* As rad_cache_inc_lock_ref and rad_cache_dec_lock_ref; a receipt whose boundary is not where
 * a locked segment begins is refused as well. O(depth), and O(pages) of the window for what
 * was not locked. */
RAD_API rad_status rad_swa_cache_inc_lock_ref(rad_swa_cache *cache, rad_ref node,
                                              rad_swa_receipt *receipt, rad_error *err);
RAD_API rad_status rad_swa_cache_dec_lock_ref(rad_swa_cache *cache, rad_swa_receipt *receipt,
                                              rad_error *err);

/* Makes room on each side: first up to swa_tokens of tombstones, then full_tokens off the
 * tails of leaves (their window side goes with them). Both rounded up to pages, or less when no
 * more is evictable; `evicted` may be NULL. RAD_E_STATE as in rad_cache_evict. */
typedef struct rad_swa_evicted {
    uint64_t full_tokens;
    uint64_t swa_tokens; /* both ways */
} rad_swa_evicted;
RAD_API rad_status rad_swa_cache_evict(rad_swa_cache *cache, uint64_t full_tokens,
                                       uint64_t swa_tokens, rad_swa_evicted *evicted);

/* rad_req_kv for two sides. */
typedef struct rad_swa_req {
    rad_row row;
    uint32_t protected_len;
    uint32_t committed_len;
    uint32_t allocated_len;
    uint32_t swa_evicted_len; /* positions before it have no window side of the request's own */
    int32_t priority;
    rad_key key;
    rad_swa_receipt lock;
    uint32_t load;    /* swa_hicache.h: a transfer that is writing to its pages; else 0 */
    uint32_t counted; /* swa_hicache.h: 1 once its hits are */
} rad_swa_req;

/* Gives the window side of the request's own pages back that no token from committed_len on
 * will see: behind protected_len and before committed_len - max(window, page), down to a page.
 * swa_evicted_len never goes back. O(pages freed). */
RAD_API rad_status rad_swa_cache_free_out_of_window(rad_swa_cache *cache, rad_swa_req *req,
                                                    rad_error *err);

/* As rad_cache_unfinished_req and rad_cache_finished_req. A request that is being loaded
 * (swa_hicache.h) is refused here and above, RAD_E_STATE. Where the tree has a tombstone and
 * the request the window side, the request's page takes the tombstone's place; when the
 * tombstone is in use, publishing ends before it and the request goes on with its own. */
RAD_API rad_status rad_swa_cache_unfinished_req(rad_swa_cache *cache, rad_swa_req *req,
                                                rad_error *err);
RAD_API rad_status rad_swa_cache_finished_req(rad_swa_cache *cache, rad_swa_req *req, int is_insert,
                                              rad_error *err);

/* Tokens, on each side; O(1). */
typedef struct rad_swa_cache_sizes {
    uint64_t full_evictable;
    uint64_t full_protected;
    uint64_t swa_evictable;
    uint64_t swa_protected;
} rad_swa_cache_sizes;
RAD_API rad_swa_cache_sizes rad_swa_cache_get_sizes(const rad_swa_cache *cache);

/* Forgets everything, as rad_cache_reset. */
RAD_API rad_status rad_swa_cache_reset(rad_swa_cache *cache);

/* Walks everything against every counter and the allocator; with `reqs`, page by page on
 * both sides: free, or cached, or held by exactly one request. RAD_E_CORRUPT in words. */
RAD_API rad_status rad_swa_cache_check(const rad_swa_cache *cache, const rad_swa_req *const *reqs,
                                       uint32_t num_reqs, rad_error *err);

#ifdef __cplusplus
}
#endif
#endif
