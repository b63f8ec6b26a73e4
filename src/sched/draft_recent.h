/* draft_recent.h - what stood behind the same tokens in recent answers of the namespace.
 *
 *     ids    | - a a a a a - b b b - a a a - c c c c c c c |     a ring; - begins an answer
 *     realms | 1 1 1 1 1 1 2 2 2 2 1 1 1 1 3 3 3 3 3 3 3 3 |     each a namespace
 *
 * The tree knows what came behind the same beginning; this knows what came behind the same words,
 * wherever: the same calls of tools, the same phrases. An answer comes in when it ends, with the
 * few tokens of its prompt before it, and the oldest tokens go.
 *
 * Isolation: a namespace is what it is in the cache, (extra_key, cache_salt), names compared whole;
 * it has a number that no other has had, and of each place that is found the number is compared. So
 * nothing from another namespace is ever proposed. A namespace that was given up (the table of
 * names is bounded as well) begins anew under another number.
 *
 * Memory: draft_recent_bytes, taken by init, written to as tokens come. Costs: suffix_index.h. */
#ifndef SCHED_DRAFT_RECENT_H
#define SCHED_DRAFT_RECENT_H

#include "cache/namespace.h"
#include "sched/suffix_index.h"

enum {
    RECENT_LEAD = 8,                 /* tokens of the prompt that stand before an answer */
    RECENT_LEAST = 1 << 10,          /* tokens of the ring */
    RECENT_MOST = 1 << 28,           /* likewise */
    RECENT_NAMES = 8,                /* at least; and as many as */
    RECENT_TOKENS_A_NAMESPACE = 2048 /* allow */
};

typedef struct draft_recent {
    rad_token *ids;   /* [capacity]; -1: here an answer begins */
    uint32_t *realms; /* [capacity] */
    uint32_t capacity;
    uint32_t end;    /* position, modulo 2^32 */
    uint32_t filled; /* tokens that are there */
    uint32_t last_realm;
    namespaces names; /* root: the realm */
    suffix_index suffixes;
} draft_recent;

/* Tokens that are kept where `tokens` are asked for: the next power of two. */
uint32_t draft_recent_capacity(uint32_t tokens);
size_t draft_recent_bytes(uint32_t capacity);

/* False: no memory; fini in any case. */
bool draft_recent_init(draft_recent *d, const rad_env *env, uint32_t capacity);
void draft_recent_fini(draft_recent *d, const rad_env *env); /* a zeroed one is fine */
void draft_recent_clear(draft_recent *d);

/* ids[0..num_ids) were said in the namespace, the first `lead` of them by the prompt. */
void draft_recent_add(draft_recent *d, const char *extra_key, const char *cache_salt,
                      const rad_token *ids, uint32_t num_ids, uint32_t lead);

/* Up to `room` tokens that stood behind the last ones of ids[0..num_ids), of which *match were the
 * same. */
uint32_t draft_recent_propose(draft_recent *d, const char *extra_key, const char *cache_salt,
                              const rad_token *ids, uint32_t num_ids, rad_token *out, uint32_t room,
                              uint32_t *match);

#endif
