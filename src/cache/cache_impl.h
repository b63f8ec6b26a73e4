/* cache_impl.h - the table behind rad_cache, what all caches share, and the index of this room.
 *
 *     the door         cache.c checks arguments and hands on. Likewise for the other headers of the
 *                      ABI: session_cache.c, radix_keep.c, explain.c, kv_events.c, match_handle.c,
 *                      partial_page.c, cache_dump.c, node_info.c, page_hash.c
 *     the caches       radix_cache.c, chunk_cache.c, session_cache.c with session_turn.c, and
 *                      hicache/hiradix_cache.c; each fills in a cache_ops
 *     a request        radix_req.c: publishes, leaves. ownership.c: is its record sound, and P2
 *     a key enters     radix_publish.c, with radix_claim.c (pages) and radix_unite.c (windows)
 *     the tree         radix_tree.h; radix_tree.c makes and changes nodes, radix_walk.c finds them,
 *                      radix_lock.c, radix_evict.c, radix_check.c
 *     a node           radix_node.h; its pages: page_runs.h; its key: radix_key.h; from a node up:
 *                      radix_path.h
 *     with a node      radix_part.h is the table. On the host: radix_host.h. Windows:
 *                      radix_window.h. Snapshots: radix_state.h. Pins: radix_keep.h. Sessions:
 *                      radix_tags.h. Heat: radix_worth.h. Hashes, events: radix_journal.h
 *     tools            namespace.h, evict_policy.h, event_ring.h, eviction_log.h */
#ifndef CACHE_CACHE_IMPL_H
#define CACHE_CACHE_IMPL_H

#include <radish/cache.h>
#include <radish/session.h>

#include "base/base.h"
#include "mem/kv_runs.h"

enum { SESSION_MOST = 0xffff }; /* open at a time: names of slab_name */
#define SESSION_NODE                                                                               \
    0x80000000u /* set in nodes that are sessions: trees have INT32_MAX / 2 at most */

/* Calls visit for each page that the cache owns. */
typedef void (*cache_page_fn)(void *user, rad_page page);

typedef void (*cache_state_fn)(void *user, rad_state state);

typedef struct cache_sizes {
    uint64_t evictable; /* tokens */
    uint64_t protected_;
    uint64_t window_evictable;
    uint64_t window_protected;
    uint64_t state_evictable; /* states */
    uint64_t state_protected;
} cache_sizes;

typedef struct cache_ops {
    void (*destroy)(rad_cache *cache);

    /* match is all 0 before. These two, evict, reset and walk are NULL for a cache that keeps
     * nothing. */
    void (*match_prefix)(rad_cache *cache, const rad_key *key, rad_slot *slots, rad_match *match);
    void (*lookup)(const rad_cache *cache, const rad_key *key, rad_match *match);
    rad_status (*insert)(rad_cache *cache, const rad_key *key, const rad_slot *slots,
                         const rad_insert_params *params, rad_inserted *inserted, rad_error *err);
    /* Called behind an insert that went past the call above, with its answer, whose
     * evictable_change it keeps true. NULL: nothing else begins with an insert. */
    void (*inserted)(rad_cache *cache, const rad_key *key, const rad_insert_params *params,
                     rad_inserted *inserted);
    rad_status (*inc_lock_ref)(rad_cache *cache, rad_ref node, rad_receipt *receipt,
                               rad_error *err);
    rad_status (*dec_lock_ref)(rad_cache *cache, rad_receipt *receipt, rad_error *err);
    rad_status (*evict)(rad_cache *cache, uint64_t num_tokens, uint64_t *evicted_tokens);

    /* <radish/cache.h>; NULL: a cache that knows no windows. hold_window: of what the receipt locks
     * only the window side from position `from` (whole pages, not before window_from) stays held.
     */
    rad_status (*evict_window)(rad_cache *cache, uint64_t window_tokens, uint64_t *evicted_tokens);
    void (*hold_window)(rad_cache *cache, rad_receipt *receipt, uint32_t from);

    /* The same of states; NULL: a cache that keeps none. Of put_state the arguments have been
     * checked. visit_states calls visit for each state that the cache owns. */
    rad_status (*put_state)(rad_cache *cache, rad_ref node, uint32_t depth_tokens, rad_state state,
                            rad_error *err);
    rad_status (*evict_state)(rad_cache *cache, uint64_t count, uint64_t *evicted);
    bool (*owns_state)(const rad_cache *cache, rad_state state);
    void (*visit_states)(const rad_cache *cache, cache_state_fn visit, void *user);

    /* Whether a receipt was issued here and can be returned. */
    bool (*receipt_holds)(const rad_cache *cache, const rad_receipt *receipt);

    /* Whether the cache owns any of these pages, which are all the allocator's. */
    bool (*owns_any)(const rad_cache *cache, kv_run pages);

    /* The record has been checked by req_kv_check. finished always ends the request, a
     * negative status only reports what went wrong on the way; the row, the states that are still
     * in the record, and the record are then the caller's to clear. */
    rad_status (*unfinished_req)(rad_cache *cache, rad_req_kv *req, int chunked, rad_error *err);
    rad_status (*finished_req)(rad_cache *cache, rad_req_kv *req, int is_insert, rad_error *err);

    /* What unfinished_req begins with: the request's load has arrived and is one no more, or it
     * has not, or is lost. NULL: nothing is loaded. */
    rad_status (*settle_load)(rad_cache *cache, rad_req_kv *req, rad_error *err);

    rad_status (*reset)(rad_cache *cache);
    rad_status (*poll)(rad_cache *cache); /* NULL: nothing comes from elsewhere */
    cache_sizes (*sizes)(const rad_cache *cache);
    void (*get_stats)(const rad_cache *cache, rad_cache_stats *stats);
    /* Fills what is 0, the device's part or the host's too; NULL: there are no namespaces. */
    void (*namespace_stats)(const rad_cache *cache, rad_namespace_stats *stats);
    rad_status (*walk)(const rad_cache *cache, rad_cache_visit_fn visit, void *user);
    void (*visit_pages)(const rad_cache *cache, cache_page_fn visit, void *user);
    rad_status (*check)(const rad_cache *cache, rad_error *err);

    /* Whether the receipt's path ends with exactly the slots row[0..protected_len). */
    bool (*owns_prefix)(const rad_cache *cache, const rad_receipt *lock, const rad_slot *row,
                        uint32_t protected_len);

    /* <radish/retention.h>; NULL: this cache keeps nothing longer. */
    rad_status (*pin_prefix)(rad_cache *cache, const rad_key *key, uint64_t ttl_ns,
                             uint32_t *pinned_tokens);
    rad_status (*retain_prefix)(rad_cache *cache, const rad_key *key, int32_t priority,
                                uint64_t idle_ns, uint32_t *retained_tokens);
    uint64_t (*pinned_size)(const rad_cache *cache);

    /* <radish/session.h>; all NULL: no sessions. session_check says in words whether the
     * record may be published and ended as far as its session is concerned. */
    rad_status (*session_open)(rad_cache *cache, rad_session *session);
    rad_status (*session_begin)(rad_cache *cache, rad_req_kv *req, rad_error *err);
    rad_status (*session_close)(rad_cache *cache, rad_session session);
    rad_status (*session_check)(const rad_cache *cache, const rad_req_kv *req, rad_error *err);
    uint32_t (*session_release_idle)(rad_cache *cache, uint32_t count);
    void (*session_empty_idle)(rad_cache *cache); /* all of them, nothing is published */
    void (*session_stats)(const rad_cache *cache, rad_session_stats *stats);

    /* The cache whose nodes this one's refs name, when that is another; NULL: its own. What
     * asks about nodes (handles, explanations, events, dumps) asks that one. */
    rad_cache *(*nodes_of)(const rad_cache *cache);
} cache_ops;

/* First member of every implementation. */
struct rad_cache {
    const cache_ops *ops;
    rad_cache *inner; /* the cache that this one stands before: what it has no operation for is that
                       * one's to answer; or NULL */
    rad_env env;
    uint32_t page_size;
    uint32_t never_insert_finished;
    uint32_t window_pages; /* 0: no windows */
    uint32_t reserved;
    rad_state_pool *states;      /* NULL: no recurrent layers */
    rad_kv_allocator *kv;        /* NULL: index-only, or with the engine's own free list */
    rad_req_to_token_pool *rows; /* NULL: index-only */
};

/* From a cache to the first of those behind it that has the operation; else to the last. */
#define CACHE_WITH(cache, op)                                                                      \
    while (!(cache)->ops->op && (cache)->inner)                                                    \
    (cache) = (cache)->inner

static inline bool cache_receipt_holds(const rad_cache *cache, const rad_receipt *receipt)
{
    CACHE_WITH(cache, receipt_holds);
    return cache->ops->receipt_holds(cache, receipt);
}

static inline bool cache_owns_prefix(const rad_cache *cache, const rad_receipt *lock,
                                     const rad_slot *row, uint32_t protected_len)
{
    CACHE_WITH(cache, owns_prefix);
    return cache->ops->owns_prefix(cache, lock, row, protected_len);
}

static inline bool cache_owns_state(const rad_cache *cache, rad_state state)
{
    CACHE_WITH(cache, owns_state);
    return cache->ops->owns_state && cache->ops->owns_state(cache, state);
}

/* Without windows nothing. */
static inline void cache_hold_window(rad_cache *cache, rad_receipt *receipt, uint32_t from)
{
    CACHE_WITH(cache, hold_window);
    if (receipt->held && cache->ops->hold_window) cache->ops->hold_window(cache, receipt, from);
}

/* Where nothing is loaded, RAD_OK. */
static inline rad_status cache_settle_load(rad_cache *cache, rad_req_kv *kv, rad_error *err)
{
    CACHE_WITH(cache, settle_load);
    return cache->ops->settle_load ? cache->ops->settle_load(cache, kv, err) : RAD_OK;
}

struct radix_host_params;

/* `host`: the tier below it, NULL for none. */
rad_status radix_cache_create(const rad_env *env, const rad_cache_params *params,
                              const struct radix_host_params *host, rad_cache **out,
                              rad_error *err);
rad_status chunk_cache_create(const rad_env *env, const rad_cache_params *params, rad_cache **out,
                              rad_error *err);

/* Whether a key can be looked at: tokens where it says there are some. */
bool cache_key_is_sound(const rad_key *key);

/* Whether a request's record makes sense: RAD_E_INVAL or RAD_E_STATE in words. O(runs of pages, and
 * pages / 64); the first slot that is wrong is looked for one by one. */
rad_status req_kv_check(const rad_cache *cache, const rad_req_kv *req, rad_error *err);

/* Frees the slots of positions [from, to) of the request's row; `from` starts a page. */
rad_status req_kv_free(rad_cache *cache, const rad_req_kv *req, uint32_t from, uint32_t to,
                       rad_error *err);

#endif
