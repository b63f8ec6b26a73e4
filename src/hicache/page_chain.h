/* page_chain.h - the hashes of a key's pages, each made of its tokens and of the hash before.
 *
 *     seed of the namespace -> page 0 -> page 1 -> ...
 *
 * They are made in the owner's thread; the workers make keys of stores of them (page_store.h). */
#ifndef HICACHE_PAGE_CHAIN_H
#define HICACHE_PAGE_CHAIN_H

#include <radish/cache.h>
#include <radish/page_hash.h>

#include "base/base.h"

typedef struct page_chain {
    rad_page_hasher *hasher;
    uint32_t page_size;
    uint32_t bigram; /* 1: pages are of pairs of tokens */
} page_chain;

/* Hashes of pages [begin, begin + count) of a key. `prior` is the hash of page begin - 1; where
 * begin is 0 it is not looked at, the namespace's seed stands there. What cannot be hashed has no
 * hash: negative (RAD_E_LIMIT: a name of the namespace is too long), and `hashes` is not to be
 * used. A seed that failed is never taken for the default namespace's none. */
rad_status page_chain_hash(const page_chain *c, const rad_key *key, uint32_t begin, uint32_t count,
                           const rad_page_hash *prior, rad_page_hash *hashes);

/* Whether hashes[0..count), which hang together, are those of these pages: the first and the last
 * are hashed. False also where they cannot be hashed. The key is long enough, count is not 0. */
bool page_chain_is_of(const page_chain *c, const rad_key *key, uint32_t begin, uint32_t count,
                      const rad_page_hash *prior, const rad_page_hash *hashes);

/* What stands for the namespace in a record: 0 for the default one. Negative when it cannot be
 * made; then nothing may be stored. */
rad_status page_chain_digest(const page_chain *c, const rad_key *key, uint64_t *digest);

#endif
