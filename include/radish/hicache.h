/* hicache.h - HiRadixCache: a RadixCache whose evicted pages live on, in host memory and in
 * storage.
 *
 *     device   the KV pool           what match_prefix finds
 *     host     rad_host_kv_pool      what load_back brings to the device
 *     storage  rad_storage           what a prefetch brings to the host; survives the process
 *
 * The result is a rad_cache: every rad_cache_* call works on it, a match says with
 * host_hit_tokens how many more tokens the host has. A position is on the device, on both
 * or on the host; on each tier what is there is closed towards the front of a prompt. Both tiers
 * are values in the nodes of one tree: what is used counts on both, and moving a page walks
 * nothing again.
 *
 * Copies run in worker threads; the owner's calls submit and return, and rad_cache_poll
 * takes what is finished. The rules that nothing breaks:
 *
 *   - A page is found on a tier only once it is there completely (P3). Whatever fails,
 *     tears, is cancelled or comes late leaves a miss and nothing else.
 *   - No call waits for a write, with one exception. Under RAD_WRITE_BACK a page that is evicted
 *     without a copy is copied first, with what the host lacks in front of it, by the call that
 *     evicts; what the host has no room for, or what cannot be copied, is lost and counted
 *     (dropped_write_tokens). Under the other policies what has no copy yet is lost. So copies are
 *     begun early, see demote_tokens.
 *   - Whatever a transfer holds is one of its ticket's: pages, locks, list space. Tickets
 *     end on every path; how many are out is in the stats.
 *
 * A request with the tiers, in a scheduler's step:
 *
 *     arrives    rad_hicache_prefetch_start
 *     admission  rad_hicache_prefetch_progress  (RAD_AGAIN: not in this step)
 *                rad_cache_match_prefix, rad_cache_inc_lock_ref
 *                rad_hicache_load_back          slots into the row, numbers on their way
 *     the step   rad_hicache_ready_to_load, forward: a layer is read when it has arrived
 *                rad_hicache_load_status        RAD_E_IO: discard the output, start anew
 *     then       rad_cache_unfinished_req ...   as ever
 *
 * KV events (kv_events.h) tell of the device alone unless rad_hicache_params.tier_events is set:
 * what is evicted there is a removal although the host still has it, and a store again when it
 * has been loaded back and published. With tier_events each tier has events of its own, told
 * apart by their medium, in one queue and in the order in which things happened:
 *
 *     "GPU"         device   as without
 *     "CPU_PINNED"  host     stored when a copy is complete and can be found, or a prefetch was
 *                            taken at admission; removed when the host evicts it
 *     "DISK" or     storage  as the store's table says (rad_storage_medium): stored when the
 *     "EXTERNAL"             store acknowledged it, or a prefetch got it there; removed
 *                            when a page that the store had turns out bad or gone
 *
 * On the device and on the host alike a block's parent is stored before it and removed after
 * it, no block is stored twice, and whoever replays the events has exactly what is
 * cached. A block enters storage while the host has it. What a store evicts by its own rules,
 * what others put there, and what was there before is not known: the blocks of storage are a
 * hint, may be told again, and may come without their parent. RAD_KV_CLEARED is of all tiers, as
 * in the formats of SGLang and vLLM: a tier that is cleared alone, or a store that is detached,
 * gives RAD_KV_CLEARED and then stores of what is left. A snapshot has of storage what the
 * host has too. A page is hashed once, whatever tiers it comes to.
 *
 * A cache with windows has them on the host as well: of what is published the window before its end
 * is copied besides. A load reaches to the last place behind the device's match before which the
 * host has a window, and brings no more of the window side than that. Its memory is a second host
 * pool (window_host_pool); what of it goes first is what no match needs, as on the device. A window
 * that is evicted on the device before it was copied is lost, except under RAD_WRITE_BACK. Storage
 * has a record of a page's window side beside the page's own; a fetch reaches to the last place
 * before which the store, with what is there already, has a window. A window record that the store
 * loses while the host has the window is stored anew when that turns out of the page's own record
 * (recheck_ns), so not where all layers see a window: there are no other records then.
 *
 * States. Where the cache has a state_pool, a snapshot goes down with the pages before it, into a
 * second state pool (host_states), and a hit on the host ends where one is there. The load brings
 * it into the request's spare state; where the device has the pages still, it comes alone. Storage
 * has a record of it and a small mark that says where it is; a fetch reaches to the last place
 * behind which the store has one. Under RAD_WRITE_BACK a live one is copied before it is evicted.
 *
 * One thread owns the cache together with all it was given. Nothing here touches the heap
 * after create, but for what attaching a store takes. */
#ifndef RADISH_HICACHE_H
#define RADISH_HICACHE_H

#include <radish/cache.h>
#include <radish/host_kv_pool.h>
#include <radish/storage.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rad_write_policy {
    RAD_WRITE_THROUGH = 0,           /* to the host when a request publishes it */
    RAD_WRITE_THROUGH_SELECTIVE = 1, /* when a later request comes back to it */
    RAD_WRITE_BACK = 2               /* before it is evicted: ahead of that, see demote_tokens, or
                                      * at the last moment */
} rad_write_policy;

typedef enum rad_prefetch_policy {
    RAD_PREFETCH_BEST_EFFORT = 0,   /* admission takes what has come */
    RAD_PREFETCH_WAIT_COMPLETE = 1, /* waits for all of it */
    RAD_PREFETCH_TIMEOUT = 2        /* waits for all of it, but not for ever */
} rad_prefetch_policy;

enum { RAD_TIER_DEVICE = 1, RAD_TIER_HOST = 2, RAD_TIER_STORAGE = 4 };

#define RAD_HICACHE_LOAD_BACK_THRESHOLD 10 /* what 0 means in the params below */
#define RAD_HICACHE_PREFETCH_THRESHOLD  256
#define RAD_HICACHE_MAX_TRANSFERS       256
#define RAD_HICACHE_COPY_THREADS        1
#define RAD_HICACHE_STORE_THREADS       2

typedef struct rad_hicache_params {
    size_t struct_size;            /* sizeof(rad_hicache_params) */
    const rad_cache_params *cache; /* the device tier: a RadixCache with allocator and rows */
    rad_host_kv_pool *host_pool;   /* not owned, nobody else's; its device pool is the cache's.
                                    * With windows see window_host_pool */

    uint32_t write_policy;           /* rad_write_policy */
    uint32_t prefetch_policy;        /* rad_prefetch_policy */
    uint32_t load_back_threshold;    /* tokens; fewer are computed. 0 means 10 */
    uint32_t prefetch_threshold;     /* tokens; 0 means 256 */
    uint32_t max_transfers;          /* tickets at one time; 0 means 256, at most 65535 */
    uint32_t copy_threads;           /* 0 means 1 */
    uint32_t store_threads;          /* 0 means 2; used when there is an identity */
    uint32_t deterministic;          /* 1: no threads, transfers run in rad_hicache_wait */
    uint64_t demote_tokens;          /* while fewer are free on the device, the coldest pages that
                                      * have no copy get one. 0: a quarter; UINT64_MAX: never */
    uint64_t prefetch_tokens;        /* that prefetches may reserve at a time; 0: half the host */
    uint64_t timeout_base_ns;        /* RAD_PREFETCH_TIMEOUT: base + per_ki * tokens / 1024, but */
    uint64_t timeout_per_ki_ns;      /* at most max. 0 means 2 s, 0.1 s, 30 s; max bounds the  */
    uint64_t timeout_max_ns;         /* other policies' calls to the store too */
    uint64_t host_max_pinned_tokens; /* of copies of pinned prefixes; 0: as on the device */
    rad_eviction_options host_eviction; /* all 0: lru. Uses, hits and priority are those of the
                                         * prefix, on whatever tier it was used; not "user" */

    /* What pages are stored under; without one there will never be storage, and no page is
     * hashed. Copied. */
    const rad_storage_identity *identity;
    const rad_storage *storage; /* attached from the start; NULL: none. Not owned */
    uint32_t tier_events;       /* 1: KV events of the host and of storage too; wants the
                                 * cache's enable_kv_events */
    uint32_t reserved;          /* 0 */

    /* A store loses pages by its own rules while the host has them still. A page that was stored
     * so long ago and that a request comes by is looked up there, and stored anew if it is gone;
     * then it is not looked up again for twice as long, and so on until it is found there, so
     * that a store which keeps nothing is not written for ever. 0 means 60 s; UINT64_MAX: never.
     * With RAD_WRITE_BACK a page is looked up when it is about to be evicted. */
    uint64_t recheck_ns;

    /* The host's memory for the layers that see a window, where the cache has window_tokens; not
     * owned, nobody else's; its device pool is the one that the allocator's window pages name.
     * host_pool then holds the other layers, and is NULL where there are none. */
    rad_host_kv_pool *window_host_pool;

    /* The host's memory for snapshots of states, where the cache has a state_pool: on_host, of as
     * many bytes each; not owned, nobody else's. NULL: snapshots are on the device alone, and a hit
     * ends where one is there. */
    rad_state_pool *host_states;
} rad_hicache_params;

/* Takes all its memory and starts its threads now; from here on, until it is destroyed, who reads a
 * layer of the device pool waits for loads (rad_kv_pool_add_wait). RAD_E_INVAL, RAD_E_LIMIT,
 * RAD_E_NOMEM, RAD_E_UNSUPPORTED in words; *out is NULL then. rad_cache_destroy waits for the
 * transfer that each worker is at, then ends; the storage stays open. */
RAD_API rad_status rad_hicache_create(const rad_env *env, const rad_hicache_params *params,
                                      rad_cache **out, rad_error *err);

/* ---- host -> device ---- */

typedef enum rad_load_refusal {
    RAD_LOAD_TAKEN = 0,           /* not refused */
    RAD_LOAD_NOTHING = 1,         /* the host has no more than the device, or no window for it */
    RAD_LOAD_BELOW_THRESHOLD = 2, /* so few are computed faster */
    RAD_LOAD_OVER_QUOTA = 3,      /* more than max_tokens */
    RAD_LOAD_NO_DEVICE_PAGES = 4, /* not even after evicting */
    RAD_LOAD_NO_TICKET = 5        /* too many transfers */
} rad_load_refusal;

/* This struct does not grow. */
typedef struct rad_load_result {
    uint32_t tokens;         /* that come from the host */
    uint32_t storage_tokens; /* of them: prefetched, and loaded for the first time */
    uint32_t why;            /* rad_load_refusal */
    uint32_t reserved;
} rad_load_result;

/* Brings what the host has of `key` behind the request's prefix to the device: all of it or
 * nothing. `req` has a row and nothing but its protected prefix (protected_len ==
 * allocated_len), `key` is what was matched. Device pages are taken, evicting if need be, and
 * written into the row; committed_len and allocated_len grow. The numbers follow after
 * rad_hicache_ready_to_load, layer by layer. With states the snapshot at the end comes as well,
 * into the record's spare_state, one that it brought (spare_len 0) or a new one, and spare_len is
 * committed_len: go on from there; the snapshot at the match is not held any more. What the device
 * has of the pages before it still is not loaded again: it is the request's prefix then
 * (protected_len grows), and result->tokens counts it. When the request publishes, what is in
 * spare_state still becomes the device's snapshot. The pages are the request's own, not shared,
 * until it publishes them.
 *
 * RAD_OK: loaded, result->tokens > 0. RAD_NONE: refused, nothing changed, result->why says
 * why. RAD_E_INVAL, RAD_E_STATE for a record that is wrong, RAD_E_UNSUPPORTED for another
 * cache. O(tokens). */
RAD_API rad_status rad_hicache_load_back(rad_cache *cache, rad_req_kv *req, const rad_key *key,
                                         uint64_t max_tokens, rad_load_result *result);

/* Starts all loads taken so far; once, when the batch is formed. */
RAD_API rad_status rad_hicache_ready_to_load(rad_cache *cache);

/* RAD_OK: the request has no load, or it arrived. RAD_AGAIN: it has not (never after a forward
 * pass that read all layers). RAD_E_IO: it failed; what was computed on it is worthless: end
 * the request with is_insert 0, and it can be computed without the host. O(1). */
RAD_API rad_status rad_hicache_load_status(rad_cache *cache, const rad_req_kv *req);

/* ---- storage -> host ---- */

typedef uint32_t rad_prefetch; /* a ticket; 0: none */

/* A request with this key has arrived: fetches what storage has of it behind what the device
 * and the host have. Pages are reserved on the host for as much as the key has, as the budget
 * allows.
 *
 * recompute_ns_per_token: what a token costs to compute; then no policy waits longer than
 * fetching is worth: the request loses at most an eighth of what its missing tokens would
 * cost to compute, however slow or dead the store is. 0: not known.
 *
 * RAD_OK with a ticket; RAD_NONE without: no storage, or too little to fetch. RAD_FULL: the
 * budget is used up. RAD_E_LIMIT: a name of the namespace is longer than page hashes take, so its
 * pages are in no store. O(tokens), some 0.2 us a page in SHA-256. */
RAD_API rad_status rad_hicache_prefetch_start(rad_cache *cache, const rad_key *key,
                                              uint64_t recompute_ns_per_token,
                                              rad_prefetch *ticket);

/* At admission. RAD_AGAIN: wait for it. RAD_OK: it has ended, what came is on the host now
 * (*tokens, may be NULL) and the ticket is cleared. `key` begins with the one of the start.
 * RAD_E_STATE: not a ticket that is out. A ticket of 0 is RAD_OK. */
RAD_API rad_status rad_hicache_prefetch_progress(rad_cache *cache, rad_prefetch *ticket,
                                                 const rad_key *key, uint32_t *tokens);

/* The request is gone: all is given back, at once or as soon as the store lets go. */
RAD_API rad_status rad_hicache_prefetch_revoke(rad_cache *cache, rad_prefetch *ticket);

/* Another store, or none. RAD_AGAIN: transfers to or from storage are under way (drain first),
 * or one is attached already. The cache needs an identity (RAD_E_UNSUPPORTED). Detaching
 * deletes nothing; *was (may be NULL) is then the caller's to close. */
RAD_API rad_status rad_hicache_attach_storage(rad_cache *cache, const rad_storage *storage,
                                              rad_error *err);
RAD_API rad_status rad_hicache_detach_storage(rad_cache *cache, rad_storage *was, rad_error *err);

/* For work with the store that may take its time (clearing it), on another thread than the
 * owner's: from hold to release no transfer with the store begins. What would have gone there
 * is counted as dropped and goes when a request next comes its way; nothing is prefetched.
 *
 * RAD_OK: no transfer uses the store, *store (may be NULL) is its table, which any thread may
 * call. RAD_AGAIN: held, but some are under way still; call it again, or release. RAD_NONE: no
 * store. RAD_E_UNSUPPORTED: another cache. O(1). */
RAD_API rad_status rad_hicache_hold_storage(rad_cache *cache, rad_storage *store, rad_error *err);

/* `cleared`: records may be gone, so what was known to be there is not known any more. Fine
 * for one that is not held. */
RAD_API rad_status rad_hicache_release_storage(rad_cache *cache, int cleared);

/* Another identity, for an owner to whom it comes dear (a digest of the weights) and who has
 * attached no store yet. As at create; RAD_AGAIN while one is attached or being let go,
 * RAD_E_UNSUPPORTED for a cache that was made without one. */
RAD_API rad_status rad_hicache_identify(rad_cache *cache, const rad_storage_identity *identity,
                                        rad_error *err);

/* ---- all of it ---- */

/* A poll (rad_cache_poll) logs queues and tickets, RAD_LOG_WARN, when something is under way and
 * nothing has ended for a minute. */

/* Waits until nothing is written to the host or to storage any more, at most timeout_ns: RAD_AGAIN
 * then. Polls. For an orderly end and for tests; prefetches and loads are requests' and stay. */
RAD_API rad_status rad_hicache_drain(rad_cache *cache, uint64_t timeout_ns);

/* For a scheduler that can do nothing else: returns when a transfer is done, after timeout_ns at
 * the latest (RAD_AGAIN), at once when none is under way (RAD_NONE). Then polls. */
RAD_API rad_status rad_hicache_wait(rad_cache *cache, uint64_t timeout_ns);

/* Forgets tiers (RAD_TIER_...). `cache` is the hierarchical one, or the one of streaming sessions
 * before it, whose idle sessions then keep nothing of the device. RAD_AGAIN: transfers are under
 * way, the store is held, or somebody holds a prefix of the device that is to be forgotten.
 * rad_cache_reset forgets device and host, whatever is under way. RAD_E_UNSUPPORTED: the store
 * cannot be cleared. The store is cleared here and now; who cannot wait for that holds it instead.
 */
RAD_API rad_status rad_hicache_clear(rad_cache *cache, uint32_t tiers, rad_error *err);

/* Gives up what the host has of num_tokens tokens, rounded up to whole pages, in the order in which
 * the host evicts when it is short; less when the rest is held. What the device has too stays
 * there. `evicted_tokens` may be NULL. For an engine that gives the memory to something else, and
 * for tests. RAD_E_UNSUPPORTED: another cache. O(log n) a leaf. */
RAD_API rad_status rad_hicache_evict_host(rad_cache *cache, uint64_t num_tokens,
                                          uint64_t *evicted_tokens);

/* This struct grows with MINOR versions only. Tokens and counts since create where no other
 * moment is named. */
typedef struct rad_hicache_stats {
    uint64_t host_tokens;        /* capacity */
    uint64_t host_used_tokens;   /* now: cached, and reserved by transfers */
    uint64_t host_cached_tokens; /* now */
    uint64_t written_tokens;     /* device -> host, completed */
    uint64_t loaded_tokens;      /* host -> device */
    uint64_t fetched_tokens;     /* storage -> host, of use */
    uint64_t backed_up_tokens;   /* host -> storage, acknowledged by the store */
    uint64_t host_evicted_tokens;
    uint64_t dropped_write_tokens; /* not copied: no host page, ticket or metadata, or a failure */
    uint64_t dropped_backup_tokens;
    uint64_t failed_loads;
    uint64_t failed_writes;
    uint64_t device_releases; /* transfers that have let go of device pages which they had locked,
                               * or which were nobody's any more */
    uint64_t bad_pages;       /* of storage, that did not verify */
    uint64_t storage_errors;  /* calls that failed */
    uint64_t prefetches;
    uint64_t revoked_prefetches;       /* too little there, too slow, or the request went */
    uint64_t asked_tokens;             /* by prefetches; what storage had; what was of use is */
    uint64_t present_tokens;           /* fetched_tokens */
    uint64_t prefetch_reserved_tokens; /* now */
    uint32_t tickets;                  /* out now */
    uint32_t max_tickets;
    uint32_t queued[4];        /* now: loads, writes, fetches, backups */
    uint32_t running[4];       /* now */
    uint64_t refused_loads[6]; /* by rad_load_refusal; [0] counts those taken */
    uint32_t storage_attached;
    uint32_t device_holds; /* now: transfers of the kind that device_releases counts */

    uint64_t rechecked_tokens;   /* looked up in the store, see recheck_ns, and found there */
    uint64_t stored_anew_tokens; /* and not found, but stored; also in backed_up_tokens */

    uint64_t host_window_tokens;        /* capacity of the window side; 0: there is none */
    uint64_t host_window_used_tokens;   /* now: cached, and on their way */
    uint64_t host_window_cached_tokens; /* now */
    uint64_t written_window_tokens;     /* of written_tokens' kind, of the window side */
    uint64_t loaded_window_tokens;
    uint64_t dropped_window_tokens; /* not copied, to the host or to storage */
    uint64_t backed_up_window_tokens;
    uint64_t fetched_window_tokens;

    uint64_t host_states;        /* snapshots: capacity; 0: there are none on the host */
    uint64_t host_used_states;   /* now: cached, and on their way */
    uint64_t host_cached_states; /* now */
    uint64_t written_states;     /* since create, as of tokens above */
    uint64_t loaded_states;
    uint64_t dropped_states;
    uint64_t backed_up_states;
    uint64_t fetched_states;
} rad_hicache_stats;

/* RAD_E_UNSUPPORTED: not a cache with tiers. O(1). */
RAD_API rad_status rad_hicache_get_stats(const rad_cache *cache, rad_hicache_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
