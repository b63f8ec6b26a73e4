/* hicache_explain.h - where a match over all tiers ends, and why.
 *
 * The tiers' part of explain.h: for each tier how much it has, and what became of the rest. What
 * the host evicted is remembered like what the device did, in a ring of as many pages
 * (rad_cache_params.explain_pages). Of storage nothing is remembered; what a prefetch met there
 * is told by its report.
 *
 *     device   "evicted" and the host goes on behind it   demoted: a load brings it back
 *     device   "evicted" and the host has no more         see the host: evicted there as well, or
 *                                                         never seen: it never got a copy
 *
 * Namespaces are kept apart as there. Under is_eagle every count of tokens is one of pairs. */
#ifndef RADISH_HICACHE_EXPLAIN_H
#define RADISH_HICACHE_EXPLAIN_H

#include <radish/explain.h>
#include <radish/hicache.h>

#ifdef __cplusplus
extern "C" {
#endif

/* This struct grows at its end: set struct_size, no more than that is written. */
typedef struct rad_tier_explanation {
    size_t struct_size;      /* sizeof(rad_tier_explanation); the caller's */
    uint32_t device_tokens;  /* what a match would find */
    uint32_t host_tokens;    /* behind them on the host */
    uint32_t fetched_tokens; /* of these a prefetch brought so many, not loaded yet */
    uint32_t host_end;       /* how far the host's own copy of the key goes, from its start */
    uint32_t device_why;     /* rad_match_end: why the device has no more */
    uint32_t host_why;       /* rad_match_end: why the host has none behind host_end */
    uint32_t load;           /* rad_load_refusal that a load without a quota would meet: TAKEN,
                              * NOTHING, BELOW_THRESHOLD or NO_TICKET. Whether device pages can
                              * be had is not looked at */
    uint32_t device_evicted_tokens; /* behind the device's, in one run known to be evicted there */
    uint32_t host_evicted_tokens;   /* behind host_end, likewise */
    uint32_t reserved;
    rad_eviction device_eviction; /* when device_why is RAD_END_EVICTED */
    rad_eviction host_eviction;   /* when host_why is; RAD_EVICTION_ASKED: pages were needed for
                                   * other copies or for a prefetch */
} rad_tier_explanation;

/* Explains what a match of `key` and a load would give, and changes nothing. RAD_E_UNSUPPORTED:
 * a cache without tiers. O(num_tokens), twice what rad_cache_explain costs. */
RAD_API rad_status rad_hicache_explain(const rad_cache *cache, const rad_key *key,
                                       rad_tier_explanation *explanation);

typedef enum rad_prefetch_end {
    RAD_PREFETCH_NOT_ASKED = 0,   /* there is no store, or the pages have no names */
    RAD_PREFETCH_TOO_SHORT = 1,   /* fewer than the threshold are missing */
    RAD_PREFETCH_OVER_BUDGET = 2, /* other prefetches have all of prefetch_tokens */
    RAD_PREFETCH_NO_TICKET = 3,   /* too many transfers */
    RAD_PREFETCH_UNDER_WAY = 4,   /* it was started */
    RAD_PREFETCH_ALL = 5,         /* all that was asked for came: as much as the budget had left */
    RAD_PREFETCH_MISSED = 6,      /* the store has no more than what came, or nothing */
    RAD_PREFETCH_TOO_LITTLE = 7,  /* the store has fewer than the threshold: revoked */
    RAD_PREFETCH_NO_HOST_PAGES = 8, /* the host had no room for more */
    RAD_PREFETCH_LATE = 9,          /* not waited for any longer: policy, deadline, or computing
                                     * the tokens had become cheaper */
    RAD_PREFETCH_STORE_FAILED = 10, /* the store is down, failed, or did not answer in time */
    RAD_PREFETCH_BAD_PAGE = 11,     /* a page did not verify, or went before it was read */
    RAD_PREFETCH_REVOKED = 12       /* its request went */
} rad_prefetch_end;

/* This struct grows at its end: set struct_size, no more than that is written. */
typedef struct rad_prefetch_report {
    size_t struct_size;      /* sizeof(rad_prefetch_report); the caller's */
    uint32_t why;            /* rad_prefetch_end */
    uint32_t asked_tokens;   /* of the store, behind what the host had */
    uint32_t present_tokens; /* of them the store said it has */
    uint32_t tokens;         /* of them that are on the host now */
    uint64_t waited_ns;      /* from its start to its end */
} rad_prefetch_report;

/* What became of the prefetch that was last refused, started, ended or revoked: to be asked
 * right after rad_hicache_prefetch_start, _progress (unless it was RAD_AGAIN) or _revoke.
 * RAD_NONE: there was none yet. RAD_E_UNSUPPORTED: a cache without tiers. O(1). */
RAD_API rad_status rad_hicache_last_prefetch(const rad_cache *cache, rad_prefetch_report *report);

#ifdef __cplusplus
}
#endif
#endif
