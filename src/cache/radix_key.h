/* radix_key.h - token keys: how far two agree, and where a page's child is found.
 *
 * A child is named by the hash of (parent, first page); a hash only proposes, the
 * tokens decide. Everything here counts raw tokens; callers round to pages.
 *
 * Bigram keys (EAGLE) are a view on the raw tokens t0 t1 ... tn: pair i is (t[i], t[i+1]).
 * Two keys that agree in pairs 0..i-1 agree in t[i], so pair i adds one token only:
 *
 *     raw      t0   t1   t2   t3   t4
 *     pairs    (t0 t1)(t1 t2)(t2 t3)(t3 t4)
 *     edges   lead  | t1   t2 | t3   t4 |        one token per pair, as without bigrams
 *
 * So the tree keeps and compares the tokens from t1 on, and t0 is kept once, as the
 * `lead` of the nodes below the root. */
#ifndef CACHE_RADIX_KEY_H
#define CACHE_RADIX_KEY_H

#include <radish/types.h>

#include "base/hash_key.h"

/* The number of leading tokens in which a and b agree, at most `count`. */
uint32_t key_match_len(const rad_token *a, const rad_token *b, uint32_t count);

/* A page of more than one token as one number. */
uint64_t key_page_hash(const hash_key *k, const rad_token *page, uint32_t page_size);

/* The hash under which the child of `parent` that begins with this page is found. */
static inline uint32_t key_child_hash(const hash_key *k, uint32_t parent, const rad_token *page,
                                      uint32_t page_size)
{
    uint64_t first = page_size == 1 ? (uint32_t)page[0] : key_page_hash(k, page, page_size);
    return hash_mix(k, (uint64_t)parent << 32 ^ first);
}

/* The hash of a namespace's two names; NULL, "" and "a" differ. */
uint32_t key_namespace_hash(const hash_key *k, const char *extra_key, const char *cache_salt);

/* How many elements a key of num_tokens raw tokens has; `bigram` is 0 or 1. */
static inline uint32_t key_length(uint32_t num_tokens, uint32_t bigram)
{
    return num_tokens < bigram ? 0 : num_tokens - bigram;
}

/* The hash of a child of a root under bigram keys: the lead is part of its first page. */
static inline uint32_t key_lead_hash(const hash_key *k, uint32_t hash, rad_token lead)
{
    return hash_mix(k, (uint64_t)hash << 32 | (uint32_t)lead);
}

#endif
