/* explain.h - where a match ends, and why.
 *
 * For people who ask why a prompt was computed again. What was evicted is remembered as
 * a 64-bit fingerprint of all tokens up to the page's end, seeded by its namespace, in a ring of
 * rad_cache_params.explain_pages entries: no tokens and no names are kept. A page that was
 * never seen is taken for an evicted one with probability explain_pages / 2^64. What the
 * ring has forgotten again counts as never seen.
 *
 * Of a cache with tiers this explains the device; hicache_explain.h has the rest.
 *
 * Under is_eagle every count of tokens below is one of pairs.
 *
 * Namespaces: an explanation speaks about the key's own namespace. Whether the same tokens are
 * cached in another one is itself a secret (who may ask can test guesses of others'
 * prompts), so it is answered only with rad_cache_params.explain_namespaces, for operators
 * who own all namespaces; never show that part to tenants. Even then no name is revealed. */
#ifndef RADISH_EXPLAIN_H
#define RADISH_EXPLAIN_H

#include <radish/cache.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rad_match_end {
    RAD_END_COMPLETE = 0,        /* the whole key is cached */
    RAD_END_PAGE_ROUNDING = 1,   /* all its whole pages are; the rest is less than a page */
    RAD_END_NEVER_SEEN = 2,      /* or forgotten by the ring */
    RAD_END_EVICTED = 3,         /* the next page was cached once; see `eviction` */
    RAD_END_OTHER_NAMESPACE = 4, /* it is cached, but not for this namespace */
    RAD_END_TOO_LONG_NAME = 5,   /* such namespaces are never cached */
    RAD_END_WINDOW = 6,          /* more is cached, but the window before its end was given back */
    RAD_END_STATE = 7            /* more is cached, but behind its end there is no state snapshot */
} rad_match_end;

typedef enum rad_eviction_cause {
    RAD_EVICTION_ASKED = 0, /* rad_cache_evict: pages were needed */
    RAD_EVICTION_ROOM = 1   /* an insert needed nodes, key memory or a namespace */
} rad_eviction_cause;

typedef struct rad_eviction {
    uint64_t operation; /* on the cache's own clock, which counts operations */
    uint64_t time_ns;   /* of the env */
    const char *policy; /* "lru"; static */
    uint32_t cause;     /* rad_eviction_cause */
    uint32_t reserved;
} rad_eviction;

typedef struct rad_explained_node {
    rad_ref node;
    uint32_t tokens; /* of this node that matched */
    uint32_t reserved;
} rad_explained_node;

enum { RAD_EXPLAIN_NODES = 32 };

typedef struct rad_explanation {
    uint32_t prefix_tokens; /* what a match would answer */
    uint32_t why;           /* rad_match_end */

    /* Tokens that were there but lost to page rounding: the tail of the key that is no whole
     * page, or what the next page shares with a cached one. */
    uint32_t rounded_tokens;
    uint32_t evicted_tokens;         /* behind the prefix, in one run known to be evicted */
    uint32_t other_namespace_tokens; /* longest prefix elsewhere if longer; else, or off: 0 */
    uint32_t num_nodes;              /* of the whole path */
    rad_eviction eviction;           /* of the page where the match ended, when evicted */

    /* The deepest nodes of the path, in order; min(num_nodes, RAD_EXPLAIN_NODES). */
    rad_explained_node nodes[RAD_EXPLAIN_NODES];
} rad_explanation;

/* Explains what a match of `key` would give, and changes nothing. RAD_E_UNSUPPORTED: this
 * kind of cache has no tree. O(num_tokens), with explain_namespaces times the
 * namespaces that are looked into: the 256 used last. */
RAD_API rad_status rad_cache_explain(const rad_cache *cache, const rad_key *key,
                                     rad_explanation *explanation);

#ifdef __cplusplus
}
#endif
#endif
