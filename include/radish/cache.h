/* cache.h - the prefix cache: which KV pages a prompt can reuse.
 *
 * Two caches stand behind one interface: the RadixCache (a radix tree over
 * token ids; SGLang's RadixCache) and the ChunkCache (no reuse at all; what
 * --disable-radix-cache selects). Both know indices only, never K/V numbers.
 *
 * A request's life:
 *
 *     match_prefix -> inc_lock_ref -> alloc the rest, run the model
 *        -> unfinished_req (prompt, or a chunk of it, is computed: publish)
 *        -> ... decode ... -> finished_req (publish, give back, unlock)
 *
 * An engine that keeps the slots of its requests itself, and its free pages too (free_list.h), has
 * the same life by raw calls:
 *
 *     match_prefix -> inc_lock_ref -> pages of its own for the rest, run the model
 *        -> insert -> inc_lock_ref of the node that it names, dec_lock_ref of the old one
 *        -> evict, when pages are short: what goes is told to the free list
 *
 * Models in which some layers see only a window (rad_cache_params.window_tokens) need the K/V of
 * these layers for the last few hundred tokens only. Then a cached page has a window side or has
 * lost it (kv_allocator.h):
 *
 *     page      o o o o o o o o o o        cached
 *     window    . . o o . . o o o o        window_tokens = 3 pages
 *                                 ^        a match may end here (3 before it are there)
 *                       ^                  not here: it goes back to where it may
 *
 * A match ends only where the window before its end is there. A lock keeps the whole path, and of
 * the window side the last window. Evicting windows takes first those that no match is known to
 * end behind, those walked through least recently before others; then the windows before ends, by
 * when a match or an insert ended there.
 *
 * Models with recurrent layers (rad_cache_params.state_pool) cannot go on from K/V alone: they need
 * the state that these layers had at just that place. The tree keeps snapshots of it, each behind
 * a whole page that somebody chose (rad_cache_put_state):
 *
 *     page      o o o o o o o o o o
 *     state         ^         ^            a match ends at one of these, or is empty
 *
 * A match names the snapshot that it ends at, and how far the tree knew the key beyond it: where
 * requests part that share a prefix, the second one to come leaves a snapshot for the third.
 * Evicting states takes first those behind which a later one of the same text was put with nothing
 * between them that others share (one that a finished request leaves does not count: the next turn
 * may part before it); then those that no match ended at, and no put hung in, for the longest time.
 *
 * One thread owns a cache together with the allocator, the row pool and the state pool that it
 * was given. Nothing here blocks or touches the heap after create. */
#ifndef RADISH_CACHE_H
#define RADISH_CACHE_H

#include <radish/env.h>
#include <radish/evict_policy.h>
#include <radish/free_list.h>
#include <radish/kv_allocator.h>
#include <radish/req_to_token_pool.h>
#include <radish/state_pool.h>
#include <radish/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rad_cache rad_cache;

typedef enum rad_cache_kind { RAD_CACHE_RADIX = 0, RAD_CACHE_CHUNK = 1 } rad_cache_kind;

/* Copies the K/V of `count` consecutive slots; see partial_page.h. Must not call the cache. */
typedef rad_status (*rad_copy_slots_fn)(void *user, rad_slot from, rad_slot to, uint32_t count);

typedef struct rad_cache_params {
    size_t struct_size; /* sizeof(rad_cache_params) */
    uint32_t kind;      /* rad_cache_kind */
    uint32_t page_size; /* tokens; must equal the allocator's when there is one; 0 means 1 */

    /* Not owned. Without a req_to_token_pool the *_req functions are refused; without a
     * kv_allocator too, the cache is index-only: what it evicts goes to the free_list below, and
     * without that it never frees slots anywhere. */
    rad_kv_allocator *kv_allocator;
    rad_req_to_token_pool *req_to_token_pool;

    /* Limits of the metadata, all allocated in create. 0 = derived from the pool:
     *
     *                     default                      bytes each
     *     max_tokens      the allocator's              4, and 4 a page
     *     max_nodes       one for each page            176 to 188
     *     max_namespaces  one for each page, 65,536    some 700
     *                     at most
     *
     * So neither short branches nor many users meet a limit before the pool is full. At page
     * size 1 that is some 180 bytes for each token of the pool, at 16 some 16, and 47 MB for the
     * most namespaces; under the default allocator (env.h) the tables of nodes and namespaces
     * take memory only as far as they are used. Past max_nodes chains are merged and cold leaves
     * evicted, past max_namespaces the least useful namespace is given up (see
     * rad_cache_get_namespace_stats). Without allocator and max_tokens: 1 Mi tokens, 64 Ki nodes,
     * 4 Ki namespaces. */
    uint32_t max_nodes;      /* tree nodes */
    uint32_t max_namespaces; /* different (extra_key, cache_salt) at one time */
    uint64_t max_tokens;     /* tokens the tree can hold keys for */

    /* Eviction (evict_policy.h) and what is to be kept longer (retention.h). */
    rad_eviction_options eviction; /* all 0: lru */
    rad_evict_key_fn evict_key;    /* for RAD_EVICT_USER */
    void *evict_user;
    uint64_t max_pinned_tokens; /* budget of pins; 0: pins are off */
    uint32_t retention;         /* 1: nodes can be retained */
    uint32_t max_sessions;      /* open at one time, at most 65535 (session.h); 0: none */

    /* 1: keys are bigrams, as EAGLE's draft model needs them. n tokens are n - 1 pairs
     * (t0 t1)(t1 t2)..., a slot belongs to a pair, and every length that the cache is
     * given for slots or answers counts pairs. Keys stay the raw tokens. A request that
     * is published keeps the slot of its last token. */
    uint32_t is_eagle;
    uint32_t disable;                 /* 1: a radix cache that never caches: the ChunkCache */
    uint32_t disable_finished_insert; /* 1: finished_req publishes nothing, whatever is_insert */
    uint32_t reserved;                /* 0 */

    /* Set: matches look for the front of a page too (partial_page.h). NULL: they do not. */
    rad_copy_slots_fn copy_slots;
    void *copy_user;

    /* What is written down beside the pages; all 0 costs nothing. */
    uint32_t enable_kv_events;   /* 1: kv_events.h; brings page hashes along */
    uint32_t kv_event_pages;     /* the queue, 32 bytes and the tokens of each; 0: as many as
                                  * the tree can hold, but 64 Ki at least and 1 Mi at most */
    uint32_t enable_page_hashes; /* 1: page_hash.h, 32 bytes a page, and some 0.1 us to insert
                                  * one */
    uint32_t explain_pages;      /* evicted pages that explain.h remembers, some 56 bytes each,
                                  * and 8 for each cached page; 0: none */
    uint32_t explain_namespaces; /* 1: explanations look into other namespaces too */
    uint32_t journal_reserved;   /* 0 */

    /* Some layers see only the last so many tokens: their K/V are the window side of the allocator
     * or of the free list, which it must have. 0: no such layers. At least 1; rounded up to whole
     * pages. */
    uint32_t window_tokens;
    uint32_t window_reserved; /* 0 */

    /* The engine's own free pages, in the place of a kv_allocator; copied. NULL: it has none. */
    const rad_free_list *free_list;

    /* Some layers carry a state from token to token: snapshots and what requests work with are
     * this pool's. Not owned. Not together with is_eagle; partial pages are not looked for then.
     * NULL: no such layers. */
    rad_state_pool *state_pool;
} rad_cache_params;

/* Takes all its memory now (rad_cache_stats.metadata_bytes). RAD_E_INVAL (page sizes differ,
 * a row pool without an allocator, an allocator and a free list, no such kind), RAD_E_LIMIT or
 * RAD_E_NOMEM in words; *out is NULL then. */
RAD_API rad_status rad_cache_create(const rad_env *env, const rad_cache_params *params,
                                    rad_cache **out, rad_error *err);

/* NULL is fine. Before the allocator and the row pool are; the tree's pages stay handed out
 * in the allocator, and a free list is not told of them: where these live on, reset the cache
 * first. */
RAD_API void rad_cache_destroy(rad_cache *cache);

/* What is looked up. Equal tokens under different (extra_key, cache_salt) never
 * meet; NULL, "" and "a" are three different namespaces. The two names together,
 * with their terminating zeros, have at most 488 bytes: longer ones are never
 * cached (a match is a miss, an insert is RAD_E_LIMIT, unfinished_req RAD_FULL). */
typedef struct rad_key {
    const rad_token *tokens;
    uint32_t num_tokens;
    uint32_t session; /* <radish/session.h>; 0: none */
    const char *extra_key;
    const char *cache_salt;
} rad_key;

typedef struct rad_match {
    uint32_t prefix_tokens;   /* on the device; a multiple of page_size; pairs under is_eagle */
    uint32_t host_hit_tokens; /* behind them, in the host tier */
    rad_ref last_node;        /* lock this one to keep the prefix */
    uint32_t partial_tokens;  /* of the next page, to be had by copying; see partial_page.h */
    uint32_t seen_tokens; /* how far the tree knows the key, on any tier: more than the two above
                           * where it lacks a window or a snapshot to go on from there */
    rad_state state;      /* with states: the snapshot behind prefix_tokens; 0: the beginning */
    uint32_t reserved;
} rad_match;

/* The longest cached prefix of `key`, rounded down to whole pages. Its slots
 * are written to slots[0..prefix_tokens) unless `slots` is NULL (room for
 * num_tokens). Touches access times and may split a node, as SGLang does; does
 * not lock and does not count as a hit. Nothing cached is RAD_OK with 0 tokens; RAD_E_INVAL
 * for a key without tokens or no place for the answer. `err` may be NULL. O(num_tokens). */
RAD_API rad_status rad_cache_match_prefix(rad_cache *cache, const rad_key *key, rad_slot *slots,
                                          rad_match *match, rad_error *err);

/* The matches of `count` keys, as so many calls of match_prefix in this order would answer them;
 * `slots` may be NULL, and so may slots[i]. What it saves is the calls, which counts where each
 * crosses into another language: the tree is walked for each key. RAD_E_INVAL names the first key
 * that is wrong, and nothing was matched. */
RAD_API rad_status rad_cache_match_batch(rad_cache *cache, const rad_key *keys, uint32_t count,
                                         rad_slot *const *slots, rad_match *matches,
                                         rad_error *err);

/* Like match_prefix, but neither touches nor splits: for schedulers that order
 * a queue, for routers and for explanations. last_node is the deepest node that
 * shares at least a page. O(num_tokens). */
RAD_API rad_status rad_cache_lookup(const rad_cache *cache, const rad_key *key, rad_match *match);

/* What requests that began with `key` went on with: up to `room` tokens that stand behind it in its
 * namespace, of several ways the one that was used last. A guess at what is to come, for drafts
 * that are verified; *num_tokens is 0 where nobody went this way. `node` is known to end the key's
 * first node_tokens tokens, so that only the rest is compared: a match's last_node or a request's
 * lock, {0, 0} and 0 for none. Neither touches nor splits. RAD_E_STATE: a stale ref, or one of
 * another namespace; RAD_E_UNSUPPORTED: a cache without nodes, or with bigram keys; RAD_E_INVAL:
 * lengths that do not go together. O(tokens compared + room * 64). */
RAD_API rad_status rad_cache_continuation(const rad_cache *cache, const rad_key *key, rad_ref node,
                                          uint32_t node_tokens, rad_token *tokens, uint32_t room,
                                          uint32_t *num_tokens);

/* This struct does not grow. */
typedef struct rad_insert_params {
    int32_t priority;     /* a node keeps the maximum over its inserts */
    uint32_t chunked;     /* 1: a chunk of a prompt in flight; does not count hits */
    uint32_t window_from; /* with windows and a free list: the slots of positions before it have no
                           * window side (any more); of a page that it divides, none has. An
                           * allocator knows it itself: 0 there */
    uint32_t reserved;    /* 0 */
} rad_insert_params;

/* This struct does not grow. */
typedef struct rad_inserted {
    uint32_t prefix_tokens;   /* leading tokens that the tree had already */
    uint32_t reserved;        /* 0 */
    rad_ref node;             /* ends the key's last whole page: lock it before the next call, and
                               * all of the key stays. {0, 0}: there is no whole page */
    int64_t evictable_change; /* of rad_cache_evictable_size: what came, less what went for it */
} rad_inserted;

/* Gives the slots of key to the tree. slots[i] belongs to tokens[i]; only whole
 * pages are taken. The slots of the first prefix_tokens stay whose they are: the tree's where the
 * caller has them from a match, else the caller's, duplicates to be freed. The rest, up to
 * the last whole page, now belong to the tree. `params` and `inserted` may be NULL; *inserted is
 * all 0 when nothing changed.
 *
 * RAD_FULL: the metadata limits are reached and nothing can be merged or
 * evicted; nothing changed. Refused in words that name the first slot and its position, and
 * nothing changed: RAD_E_INVAL, the slots are not whole pages of the allocator's or the list's;
 * RAD_E_STATE, a new page is not handed out, stands there twice, or the tree has it already
 * under another key. RAD_E_UNSUPPORTED: a ChunkCache keeps nothing. RAD_E_LIMIT: names that
 * are too long. `err` may be NULL. O(num_tokens). */
RAD_API rad_status rad_cache_insert(rad_cache *cache, const rad_key *key, const rad_slot *slots,
                                    const rad_insert_params *params, rad_inserted *inserted,
                                    rad_error *err);

/* Keeps a node and its path to the root from being evicted. The receipt names
 * what was locked; hand the same receipt back to dec_lock_ref, which clears it but for
 * evictable_change.
 * Locking the root ({0,0}) is fine and does nothing. RAD_E_STATE, in words that name the
 * node by index and generation, and nothing changed: stale ref, or a receipt that was
 * already returned; a copy of one is told from the original as long as no other receipt
 * ends at the same node. RAD_E_LIMIT: 2^32 - 1 locks. `err` may be NULL. O(depth).
 *
 * With windows the lock holds what is there of the last window. Windows may have been given back
 * since the match: then window_missing is not 0, and a request cannot go on behind the node: give
 * the receipt back and match again, which ends where the window is whole. With states it holds the
 * snapshot behind the node, where there is one still (state_held); the lock that unfinished_req
 * moves on holds none, since its request has what it works with. */
typedef struct rad_receipt {
    rad_ref node;
    uint32_t held;            /* 1 between inc and dec */
    uint32_t stamp;           /* when it was taken, on the cache's own clock */
    uint32_t window_from;     /* tokens: from here to the node's end the window side is held */
    uint32_t window_missing;  /* tokens: from window_from + window_missing to the node's end the
                               * window side was there when inc_lock_ref locked it; 0: all of it */
    int64_t evictable_change; /* what the inc_lock_ref or dec_lock_ref added to
                               * rad_cache_evictable_size: it is 0 or less, or 0 or more */
    uint32_t state_held;      /* 1: the snapshot behind the node is held too */
    uint32_t reserved;
} rad_receipt;

RAD_API rad_status rad_cache_inc_lock_ref(rad_cache *cache, rad_ref node, rad_receipt *receipt,
                                          rad_error *err);
RAD_API rad_status rad_cache_dec_lock_ref(rad_cache *cache, rad_receipt *receipt, rad_error *err);

/* No token to come will look before position `upto` with a window layer: of the window side only
 * what lies from there on stays held (window_from grows), and at or past the node's end nothing.
 * The path stays locked. Rounded down to a page; never goes back. For engines that keep their
 * requests themselves; others have rad_cache_release_window. RAD_E_UNSUPPORTED: a cache without
 * windows; RAD_E_STATE in words: the receipt holds nothing. `err` may be NULL. O(nodes of a
 * window). */
RAD_API rad_status rad_cache_release_lock_window(rad_cache *cache, rad_receipt *receipt,
                                                 uint32_t upto, rad_error *err);

/* What a node is now. Lengths are tokens (pairs under is_eagle). */
typedef struct rad_node_info {
    size_t struct_size;    /* sizeof(rad_node_info), set by the caller */
    rad_ref parent;        /* {0, 0}: the root */
    uint32_t num_tokens;   /* of its own edge: [depth_tokens - num_tokens, depth_tokens) */
    uint32_t depth_tokens; /* from the root to its end */
    uint32_t num_children; /* on whatever tier */
    uint32_t is_evictable; /* 1: an eviction may take of it now: on the device, not locked, and
                            * none of its children is on the device */
    uint32_t hit_count;    /* requests that came back to it */
    int32_t priority;      /* the highest of its inserts */

    uint32_t on_device;       /* 1: with its slots */
    uint32_t lock_ref;        /* there, with the locks of the nodes behind it */
    uint32_t window_tokens;   /* with windows: its last so many tokens have a window side */
    uint32_t window_lock_ref; /* locks that hold any of these */

    uint32_t on_host; /* the same of the host tier (hicache.h); all 0 without one */
    uint32_t host_lock_ref;
    uint32_t host_window_tokens;
    uint32_t host_window_lock_ref;

    uint64_t last_access; /* in operations of the cache, as evict_policy.h counts */
    uint64_t created;     /* likewise */

    rad_state state;         /* with states: the snapshot behind its end, 0: none */
    uint32_t state_lock_ref; /* locks that hold it */
    rad_state host_state;    /* the same of the host tier, in that tier's pool */
    uint32_t host_state_lock_ref;
} rad_node_info;

/* Asks about the node that `node` names; {0, 0} names the root, of which all is 0. So a walk from a
 * match's last_node up to the root follows `parent` until its index is 0. RAD_E_STATE in words: a
 * stale ref; RAD_E_UNSUPPORTED: a cache without nodes; RAD_E_INVAL: no struct, or one that is older
 * than any. `err` may be NULL. O(depth), and nothing is touched. */
RAD_API rad_status rad_cache_get_node_info(const rad_cache *cache, rad_ref node,
                                           rad_node_info *info, rad_error *err);

/* Frees unlocked cached tokens, least valuable first, from the tails of leaves:
 * num_tokens rounded up to whole pages, or less when no more is evictable. The
 * pages go back to the allocator, or to the free list. `evicted_tokens` and `err` may be NULL.
 * O(log n) a leaf.
 * RAD_E_STATE: the allocator did not know a page as handed out (it was cleared under the
 * cache); all else was done. */
RAD_API rad_status rad_cache_evict(rad_cache *cache, uint64_t num_tokens, uint64_t *evicted_tokens,
                                   rad_error *err);

/* Gives back the window side of unlocked cached pages, in the order told above: window_tokens
 * rounded up to whole pages, or less when no more is evictable. The pages stay cached. A page that
 * rad_cache_evict takes gives its window side back with it. `evicted` may be NULL. O(log n) a
 * node. RAD_E_UNSUPPORTED: a cache without windows; RAD_E_STATE as in rad_cache_evict. */
RAD_API rad_status rad_cache_evict_window(rad_cache *cache, uint64_t window_tokens,
                                          uint64_t *evicted);

/* Hangs a snapshot in behind the first depth_tokens (whole pages, at least one) of the path to
 * `node`, which the caller has locked or was told of by the call before this: what the recurrent
 * layers carry behind just that token. A node is cut there if need be. `state` is the cache's from
 * now on; it goes back to the pool at once if there is a snapshot already, or no node left to cut
 * with, or the path does not reach so far on the device any more.
 *
 * RAD_E_UNSUPPORTED: a cache without states; RAD_E_INVAL: depth_tokens; RAD_E_STATE: a stale ref,
 * or `state` is not handed out, or the cache's already. Then it stays the caller's, with words in
 * `err`, which may be NULL. O(depth). */
RAD_API rad_status rad_cache_put_state(rad_cache *cache, rad_ref node, uint32_t depth_tokens,
                                       rad_state state, rad_error *err);

/* Gives back up to `count` snapshots that no lock holds, in the order told above. Their pages stay
 * cached. `evicted` may be NULL. O(log n) each. RAD_E_UNSUPPORTED: a cache without states;
 * RAD_E_STATE: the pool did not know one as handed out; all else was done. */
RAD_API rad_status rad_cache_evict_state(rad_cache *cache, uint64_t count, uint64_t *evicted);

/* The KV record of one request: filled by the scheduler, advanced by the cache.
 *
 *     tokens 0 ...... protected_len ...... committed_len ... allocated_len
 *            | the tree's      | the request's, K/V written | slots only  */
typedef struct rad_req_kv {
    rad_row row;            /* 0 = none */
    uint32_t protected_len; /* leading positions that belong to the tree */
    uint32_t committed_len; /* positions whose K/V are completely written */
    uint32_t allocated_len; /* positions that have a slot; >= committed_len */
    rad_key key;      /* fill_ids (input + output) and namespace; num_tokens >= committed_len */
    rad_receipt lock; /* on the node that ends the protected prefix */
    int32_t priority;
    uint32_t published;  /* 1 after the first publication; set by the cache */
    uint32_t turn;       /* of its session; set by rad_session_begin */
    uint32_t load;       /* the ticket of a load (hicache.h), 0: none; set by the cache */
    uint32_t window_len; /* positions before it have no window side of the request's own; a
                          * multiple of page_size; set by the cache, 0 at first */

    /* With states: what the request works with, and a second one (the last whole page's, while the
     * first goes on), each handed out by the pool, or 0; and how many of the tokens each has
     * seen, at most committed_len; 0: nothing of use is in it. */
    rad_state state;
    uint32_t state_len;
    rad_state spare_state;
    uint32_t spare_len;
    uint32_t reserved;
} rad_req_kv;

/* A prefill, or a chunk of one, is complete: publish [0, committed_len) so that
 * others can share it at once. The row is first remapped to the tree's slots
 * for what others had inserted meanwhile, then the duplicates are freed, the
 * lock moves to the new end and protected_len grows. Slots behind the last whole
 * page stay the request's. `chunked`: more chunks follow.
 *
 * RAD_FULL: the metadata limits leave no room; nothing changed, the request goes on
 * unshared and may try again. RAD_E_STATE, RAD_E_INVAL: the record is wrong (stale
 * lock, slots that are not handed out, lengths that do not go together); nothing
 * changed, words in `err`. RAD_E_UNSUPPORTED: a cache without a row pool. O(positions not yet
 * protected), plus the nodes on the way of the lock. */
RAD_API rad_status rad_cache_unfinished_req(rad_cache *cache, rad_req_kv *req, int chunked,
                                            rad_error *err);

/* The one exit of a request: finished, cancelled, retracted, failed. Publishes
 * [0, committed_len) when is_insert, else drops everything unprotected; frees
 * duplicates, the partial page and what was only allocated; unlocks; gives the
 * row back. Of its states the one that has seen more, if it ends with a whole page of what is
 * published, becomes the snapshot there, else the other one under the same condition; the rest
 * go back to the pool. The record is empty afterwards. A request without a row (never admitted)
 * only unlocks. A wrong record is refused like above, and nothing changes; a record
 * that was accepted is always ended. Cost as above. */
RAD_API rad_status rad_cache_finished_req(rad_cache *cache, rad_req_kv *req, int is_insert,
                                          rad_error *err);

/* No token to come will look before position `upto` (at most committed_len) with a window layer:
 * while the request runs, the window side of its own pages before it goes back to the allocator
 * (window_len grows), and of what the tree has for it only the window side from there on stays
 * locked (lock.window_from grows). Rounded down to a page; never goes back. `upto` is mostly
 * committed_len less the window and a page: then what is published can be matched to its last whole
 * page. RAD_E_UNSUPPORTED: a cache without windows; RAD_E_STATE, RAD_E_INVAL as in
 * rad_cache_unfinished_req. O(pages given back), plus the nodes of a window. */
RAD_API rad_status rad_cache_release_window(rad_cache *cache, rad_req_kv *req, uint32_t upto,
                                            rad_error *err);

/* Foreign completions (transfers) become visible here: call it once a step. O(1) when there
 * are none. */
RAD_API rad_status rad_cache_poll(rad_cache *cache);

/* Forgets everything. The pages of the tree go back to the allocator or to the free list, locked or
 * not; outstanding refs and receipts become stale. Only while no request holds a
 * prefix: its record could not be finished afterwards. O(everything). */
RAD_API rad_status rad_cache_reset(rad_cache *cache);

/* Tokens. total = evictable + protected. O(1). */
RAD_API uint64_t rad_cache_evictable_size(const rad_cache *cache);
RAD_API uint64_t rad_cache_protected_size(const rad_cache *cache);
RAD_API uint64_t rad_cache_total_size(const rad_cache *cache);

/* The same of the window side: cached tokens that have one. 0 without windows. O(1). */
RAD_API uint64_t rad_cache_window_evictable_size(const rad_cache *cache);
RAD_API uint64_t rad_cache_window_protected_size(const rad_cache *cache);

/* Snapshots in the tree, and what idle sessions keep (session.h). 0 without states. O(1). */
RAD_API uint64_t rad_cache_state_evictable_size(const rad_cache *cache);
RAD_API uint64_t rad_cache_state_protected_size(const rad_cache *cache);

typedef struct rad_cache_stats {
    uint64_t num_nodes;
    uint64_t num_namespaces;
    uint64_t metadata_bytes;  /* allocated in create */
    uint64_t evicted_tokens;  /* since create, from the device */
    uint64_t inserted_tokens; /* adopted by the tree since create */
    uint64_t splits;
    uint64_t merges;
    uint64_t host_evicted_tokens; /* since create, from the host tier */

    /* Snapshots since create; what is there is those hung in less the other two. */
    uint64_t states_put;     /* hung in */
    uint64_t states_evicted; /* by rad_cache_evict_state */
    uint64_t states_dropped; /* with the pages before them */
} rad_cache_stats;

/* O(1). */
RAD_API void rad_cache_get_stats(const rad_cache *cache, rad_cache_stats *stats);

/* How the places for namespaces are used. When a new one needs a place and none is free, the least
 * useful one that no request holds goes with all its pages: the one with the fewest hits, those of
 * long ago counting less; of equals the youngest, so that users who come in turn and are more
 * than fit do not push out each other. */
typedef struct rad_namespace_stats {
    size_t struct_size; /* sizeof(rad_namespace_stats), set by the caller */
    uint32_t most;      /* places; 0: this kind of cache has no namespaces */
    uint32_t used;
    uint64_t given_up;  /* since create, for want of a place */
    uint32_t host_most; /* with a host tier: the same places, 0: there is none; */
    uint32_t host_used; /* those with something on the host */
    uint64_t host_given_up;
} rad_namespace_stats;

/* RAD_E_INVAL: no struct, or one that is older than any. O(1). */
RAD_API rad_status rad_cache_get_namespace_stats(const rad_cache *cache,
                                                 rad_namespace_stats *stats);

/* Calls visit(user, node, depth, ...) for every node below the roots, parents
 * first. `slots` has num_tokens entries, and so has `tokens`; under is_eagle `tokens` has
 * one more, and pair i is tokens[i], tokens[i + 1]. They are valid during the call. For dumps
 * and tests; O(everything). RAD_E_INVAL without `visit`, RAD_E_NOMEM without scratch memory. */
typedef void (*rad_cache_visit_fn)(void *user, rad_ref node, uint32_t depth,
                                   const rad_token *tokens, const rad_slot *slots,
                                   uint32_t num_tokens, uint32_t lock_ref, uint32_t hit_count);
RAD_API rad_status rad_cache_walk(const rad_cache *cache, rad_cache_visit_fn visit, void *user);

/* Walks everything and compares it with every counter and the allocator.
 * RAD_E_CORRUPT with words that name the node or slot; RAD_E_NOMEM without scratch memory.
 * O(everything). */
RAD_API rad_status rad_cache_check(const rad_cache *cache, rad_error *err);

/* P2, slot by slot: each slot of the allocator is free, or cached, or held by
 * exactly one of the given requests; and so is each state of the state pool. RAD_E_CORRUPT names
 * the first that is lost or owned twice, with its owners. O(all slots); uses scratch memory. */
RAD_API rad_status rad_cache_check_ownership(const rad_cache *cache, const rad_req_kv *const *reqs,
                                             uint32_t num_reqs, rad_error *err);

/* The same, and goes on behind the first fault: calls fault(user, words) for each page that is
 * lost or owned twice, and for each record that is wrong. NULL: nobody listens. */
typedef void (*rad_ownership_fault_fn)(void *user, const char *words);
RAD_API rad_status rad_cache_report_ownership(const rad_cache *cache, const rad_req_kv *const *reqs,
                                              uint32_t num_reqs, rad_ownership_fault_fn fault,
                                              void *user, rad_error *err);

#ifdef __cplusplus
}
#endif
#endif
