/* evict_policy.h - in which order cached tokens are given up.
 *
 * A policy gives every evictable leaf of the tree a key. The leaf with the lowest key is
 * evicted first, from its tail and as far as needed; equal keys go by the node's id, so
 * the order is total and a replay is exact. Policies only order: what is unlocked can
 * always be evicted.
 *
 *     LRU       last access
 *     LFU       (hit count, last access)
 *     FIFO      creation
 *     MRU       the reverse of LRU
 *     FILO      the reverse of FIFO
 *     PRIORITY  (priority, last access); a node keeps the maximum over its inserts
 *     SLRU      (hit count >= protected_threshold, last access)
 *     COST      decayed hits times the cost of computing the token at the tail again
 *     USER      your function
 *
 * "Last access" counts operations, not seconds. A hit is the first publication of a
 * request (or a raw insert) that came back to a node; matches and chunks do not count.
 *
 * Beside SGLang's: there the insert that makes a node counts as its first hit, here it does not.
 * So SLRU protects at the same visit with a protected_threshold one lower: 2, the default here, is
 * its 3 (its own default, 2, is 1 here). And where a match or an insert ends inside a node, the
 * node is split, and only the front half, which was walked through, gets the new access time; the
 * rest keeps the time at which it was last of use. SGLang gives both halves the new one, so that
 * what nobody asked for stays longer there. Both halves keep the creation time here; there the
 * front half is new, and FIFO takes it for younger than what hangs on it.
 *
 * COST keeps for each node the sum of 2^(-age / half-life) over its first insertion and
 * its hits (LRFU: Lee et al., IEEE Trans. Computers 50(12), 2001), and values a token at
 * position p with that sum times (1 + p / cost_attention_tokens): recomputing it takes a
 * constant for the weights and, in attention, as much as stands before it. All tokens
 * have the same bytes, so this is the cost saved per byte of GreedyDual-Size-Frequency
 * (Cherkasova, HP Labs 1998). Age is counted in tokens inserted since, the half-life as a
 * part of the cache: so the order does not depend on when one looks, and the same setting
 * serves a small and a large cache. A short half-life comes close to LRU, a long one to
 * LFU. */
#ifndef RADISH_EVICT_POLICY_H
#define RADISH_EVICT_POLICY_H

#include <radish/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rad_eviction_policy {
    RAD_EVICT_LRU = 0,
    RAD_EVICT_LFU = 1,
    RAD_EVICT_FIFO = 2,
    RAD_EVICT_MRU = 3,
    RAD_EVICT_FILO = 4,
    RAD_EVICT_PRIORITY = 5,
    RAD_EVICT_SLRU = 6,
    RAD_EVICT_COST = 7,
    RAD_EVICT_USER = 8 /* stays the last: its number grows with a new policy */
} rad_eviction_policy;

/* What is known of a leaf when its key is asked for. */
typedef struct rad_evict_facts {
    uint64_t last_access;  /* in operations of the cache */
    uint64_t created;      /* likewise */
    uint32_t num_tokens;   /* in the leaf */
    uint32_t depth_tokens; /* from the start of the context to the leaf's end */
    uint32_t hit_count;
    int32_t priority;
    uint32_t page_size;
    uint32_t reserved;
} rad_evict_facts;

/* The key of a leaf; the lowest goes first. Called while a leaf is filed or refiled: when
 * it appears or is unlocked, when a match or an insert ends at it, when it is split,
 * merged, cut short, pinned or retained. In between the key is remembered and not asked
 * for again, so it should depend on the facts alone; if it depends on more, a leaf keeps
 * the key of the last occasion. Must not call the cache. Any value is safe. */
typedef uint64_t (*rad_evict_key_fn)(void *user, const rad_evict_facts *facts);

#define RAD_EVICT_PROTECTED_THRESHOLD    2  /* the defaults of the options below */
#define RAD_EVICT_COST_HALF_LIFE_PERCENT 25 /* numbers alone: manuals put them into words */
#define RAD_EVICT_COST_ATTENTION_TOKENS  16384

/* Options of policies; 0 = the default. It stands inside rad_cache_params and does not grow. */
typedef struct rad_eviction_options {
    uint32_t policy;                 /* rad_eviction_policy */
    uint32_t protected_threshold;    /* SLRU: hits that protect; default 2 (SGLang's 3) */
    uint32_t cost_half_life_percent; /* COST: of the cache's tokens; default 25 */
    uint32_t cost_attention_tokens;  /* COST: where a token costs twice the first; default 16384:
                                      * about parameters / (2 * layers * hidden size) */
} rad_eviction_options;

/* SGLang's names: "lru", "lfu", "fifo", "mru", "filo", "priority", "slru"; ours: "cost",
 * "user". parse: RAD_E_INVAL for another name, with words that list them (*policy is
 * untouched); "user" is known but needs a function. name: NULL for no policy. */
RAD_API rad_status rad_eviction_policy_parse(const char *name, uint32_t *policy, rad_error *err);
RAD_API const char *rad_eviction_policy_name(uint32_t policy);

#ifdef __cplusplus
}
#endif
#endif
