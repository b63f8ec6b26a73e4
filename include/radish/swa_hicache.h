/* swa_hicache.h - host memory and storage behind the cache of a sliding-window model.
 *
 * As hicache.h, whose words and rules hold here too, with two sides on every tier: a page of the
 * layers that see everything (the full side) and, while it lives, its page of the layers with a
 * window. On the host as on the device a page may have lost its window side: a tombstone.
 *
 *     device   full     o o o o o o . . . .        match_prefix ends behind the o, for there its
 *              window   . . . o o o . . . .        last window is complete
 *     host     full     o o o o o o o o o o        load_back brings the rest of the full side, and
 *              window   . . . . . . . o o o        of the window side only the last window
 *
 * A hit on the host ends where the last `window_tokens` before its end are there, each on the
 * device (in front of what matched there) or on the host; else it ends earlier. Copies of the
 * window side are made of what has one; where the host has lost one, it is copied anew when
 * a prompt that ends in it is published.
 *
 * Storage has a record for each side of a page, of another size and under another key: neither can
 * be taken for the other, nor for a page of a model without windows. The stores of the two sides
 * may be one, if it takes records of two sizes, as storage_file.h and storage_redis.h do. A fetch
 * takes all full records up to its end and the window records of the last window; one that does
 * not get all of them brings nothing.
 *
 *     arrives    rad_swa_hicache_prefetch_start
 *     admission  rad_swa_hicache_prefetch_progress  (RAD_AGAIN: not in this step)
 *                rad_swa_hicache_match_prefix, rad_swa_cache_inc_lock_ref
 *                rad_swa_hicache_load_back          slots into the row
 *     the step   rad_swa_hicache_ready_to_load, forward
 *                rad_swa_hicache_load_status        RAD_E_IO: discard the output
 *     then       rad_swa_hicache_unfinished_req, rad_swa_hicache_finished_req
 *
 * One thread owns the tiers together with all they were given. No heap after create (libcrypto's
 * small blocks apart, when there is storage). */
#ifndef RADISH_SWA_HICACHE_H
#define RADISH_SWA_HICACHE_H

#include <radish/hicache.h>
#include <radish/swa_cache.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rad_swa_hicache rad_swa_hicache;

typedef struct rad_swa_hicache_params {
    size_t struct_size;                /* sizeof(rad_swa_hicache_params) */
    const rad_swa_cache_params *cache; /* the device tier, with rows */
    rad_host_kv_pool *host_pool;       /* of the full side; its device pool is the allocator's */
    rad_host_kv_pool *swa_host_pool;   /* of the window side, likewise. Neither is owned, and no
                                        * page of theirs is anybody else's */
    uint32_t write_policy;             /* rad_write_policy */
    uint32_t load_back_threshold;      /* tokens; fewer are computed. 0 means 10 */
    uint32_t prefetch_threshold;       /* tokens; 0 means 256 */
    uint32_t max_transfers;            /* tickets at one time; 0 means 256, at most 65535 */
    uint32_t copy_threads;             /* 0 means 1 */
    uint32_t store_threads;            /* 0 means 2; used when there is an identity */
    uint32_t deterministic;            /* 1: no threads, transfers run in rad_swa_hicache_pump */
    uint32_t reserved;                 /* 0 */
    uint64_t demote_tokens; /* while fewer are free on either side, what is evicted next and has no
                             * copy gets one. 0: a quarter of the side; UINT64_MAX: never */
    uint64_t prefetch_tokens; /* that prefetches may reserve at a time; 0: half the host */
    uint64_t timeout_max_ns;  /* the longest that a prefetch is waited for; 0: 30 s */

    /* What pages are stored under; of it the model and the build count, the rest is taken from the
     * pools. Without one there will never be storage. Copied. */
    const rad_storage_identity *identity;
    const rad_storage *storage;     /* of the full side, and of the window side; NULL and NULL: */
    const rad_storage *swa_storage; /* none. Not owned */
} rad_swa_hicache_params;

/* Makes the device tier too, takes all its memory and starts its threads; from here on the
 * wait_layer of both device pools waits for loads (and then calls the one it had). RAD_E_INVAL,
 * RAD_E_LIMIT, RAD_E_NOMEM, RAD_E_UNSUPPORTED in words; *out is NULL then. destroy waits for the
 * transfer that each worker is at, then ends; the stores stay open. */
RAD_API rad_status rad_swa_hicache_create(const rad_env *env, const rad_swa_hicache_params *params,
                                          rad_swa_hicache **out, rad_error *err);
RAD_API void rad_swa_hicache_destroy(rad_swa_hicache *tiers); /* NULL is fine */

/* The device tier, for locks, sizes and rad_swa_cache_free_out_of_window. What has a function
 * below is done by that one. */
RAD_API rad_swa_cache *rad_swa_hicache_device(rad_swa_hicache *tiers);

/* As rad_swa_cache_match_prefix; match->host_hit_tokens more are on the host. O(num_tokens). */
RAD_API rad_status rad_swa_hicache_match_prefix(rad_swa_hicache *tiers, const rad_key *key,
                                                rad_slot *slots, rad_match *match);

/* As rad_hicache_load_back: full pages for all of it, window pages for the last window;
 * swa_evicted_len tells where those begin. */
RAD_API rad_status rad_swa_hicache_load_back(rad_swa_hicache *tiers, rad_swa_req *req,
                                             const rad_key *key, uint64_t max_tokens,
                                             rad_load_result *result);

/* As rad_hicache_ready_to_load and rad_hicache_load_status. */
RAD_API rad_status rad_swa_hicache_ready_to_load(rad_swa_hicache *tiers);
RAD_API rad_status rad_swa_hicache_load_status(rad_swa_hicache *tiers, const rad_swa_req *req);

/* As rad_swa_cache_unfinished_req and rad_swa_cache_finished_req, and what the policy wants is
 * copied. RAD_AGAIN, RAD_E_IO: the request's load has not arrived, or failed; it can only be
 * finished then, and nothing of the load is published. `chunked` as in
 * rad_cache_unfinished_req: more of the prompt follows. */
RAD_API rad_status rad_swa_hicache_unfinished_req(rad_swa_hicache *tiers, rad_swa_req *req,
                                                  int chunked, rad_error *err);
RAD_API rad_status rad_swa_hicache_finished_req(rad_swa_hicache *tiers, rad_swa_req *req,
                                                int is_insert, rad_error *err);

/* As rad_swa_cache_evict. Writes that hold what is wanted are given up, if need be. */
RAD_API rad_status rad_swa_hicache_evict(rad_swa_hicache *tiers, uint64_t full_tokens,
                                         uint64_t swa_tokens, rad_swa_evicted *evicted);

/* Takes what is finished; looks after demotion. Once a step. */
RAD_API rad_status rad_swa_hicache_poll(rad_swa_hicache *tiers);

/* As the functions of hicache.h. */
RAD_API rad_status rad_swa_hicache_prefetch_start(rad_swa_hicache *tiers, const rad_key *key,
                                                  uint64_t recompute_ns_per_token,
                                                  rad_prefetch *ticket);
RAD_API rad_status rad_swa_hicache_prefetch_progress(rad_swa_hicache *tiers, rad_prefetch *ticket,
                                                     const rad_key *key, uint32_t *tokens);
RAD_API rad_status rad_swa_hicache_prefetch_revoke(rad_swa_hicache *tiers, rad_prefetch *ticket);
RAD_API rad_status rad_swa_hicache_drain(rad_swa_hicache *tiers, uint64_t timeout_ns);
RAD_API rad_status rad_swa_hicache_wait(rad_swa_hicache *tiers, uint64_t timeout_ns);
RAD_API rad_status rad_swa_hicache_pump(rad_swa_hicache *tiers, uint64_t pick);
RAD_API rad_status rad_swa_hicache_describe(const rad_swa_hicache *tiers, char *text, size_t bytes);

/* As rad_hicache_attach_storage and rad_hicache_detach_storage, both stores at once; was[2] (may be
 * NULL) gets the full side's and the window side's. */
RAD_API rad_status rad_swa_hicache_attach_storage(rad_swa_hicache *tiers,
                                                  const rad_storage *storage,
                                                  const rad_storage *swa_storage, rad_error *err);
RAD_API rad_status rad_swa_hicache_detach_storage(rad_swa_hicache *tiers, rad_storage *was,
                                                  rad_error *err);

/* Forgets tiers (RAD_TIER_...), as rad_hicache_clear. */
RAD_API rad_status rad_swa_hicache_clear(rad_swa_hicache *tiers, uint32_t which, rad_error *err);

/* Forgets device and host, whatever is under way, as rad_swa_cache_reset. */
RAD_API rad_status rad_swa_hicache_reset(rad_swa_hicache *tiers);

/* This struct grows with MINOR versions only. Tokens and counts since create where no other
 * moment is named; [0] is the full side, [1] the window side. */
typedef struct rad_swa_hicache_stats {
    uint64_t host_tokens[2];        /* capacity */
    uint64_t host_used_tokens[2];   /* now: cached, and reserved by transfers */
    uint64_t host_cached_tokens[2]; /* now */
    uint64_t written_tokens[2];     /* device -> host, completed */
    uint64_t loaded_tokens[2];      /* host -> device */
    uint64_t fetched_tokens[2];     /* storage -> host */
    uint64_t backed_up_tokens[2];   /* host -> storage, acknowledged by the store */
    uint64_t dropped_write_tokens;  /* not copied: no host page, ticket or metadata, or a failure */
    uint64_t dropped_backup_tokens; /* of either side */
    uint64_t failed_loads;
    uint64_t failed_writes;
    uint64_t bad_pages;      /* of storage, that did not verify */
    uint64_t storage_errors; /* calls that failed */
    uint64_t prefetches;
    uint64_t revoked_prefetches;
    uint64_t prefetch_reserved_tokens; /* now */
    uint32_t tickets;                  /* out now */
    uint32_t max_tickets;
    uint32_t queued[4];        /* now: loads, writes, fetches, backups */
    uint32_t running[4];       /* now */
    uint64_t refused_loads[6]; /* by rad_load_refusal; [0] counts those taken */
} rad_swa_hicache_stats;
RAD_API rad_status rad_swa_hicache_get_stats(const rad_swa_hicache *tiers,
                                             rad_swa_hicache_stats *stats);

/* As rad_swa_cache_check, of all tiers: with `reqs`, every page of both sides on the device and
 * on the host is free, cached, of one request or of one ticket. */
RAD_API rad_status rad_swa_hicache_check(const rad_swa_hicache *tiers,
                                         const rad_swa_req *const *reqs, uint32_t num_reqs,
                                         rad_error *err);

#ifdef __cplusplus
}
#endif
#endif
