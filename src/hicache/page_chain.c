/* page_chain.c - see the header. */
#include "hicache/page_chain.h"

void page_chain_hash(const page_chain *c, const rad_key *key, uint32_t begin, uint32_t count,
                     const rad_page_hash *prior, rad_page_hash *hashes)
{
    rad_page_hash seed;
    uint32_t ps = c->page_size;
    if (!begin)
        prior = rad_page_hash_seed(c->hasher, key->extra_key, key->cache_salt, &seed) == RAD_OK
                    ? &seed
                    : NULL;
    for (uint32_t i = 0; i < count; i++, prior = &hashes[i - 1]) {
        const rad_token *page = key->tokens + (size_t)(begin + i) * ps;
        rad_status status =
            c->bigram ? rad_page_hash_bigrams(c->hasher, prior, page[0], page + 1, ps, &hashes[i])
                      : rad_page_hash_tokens(c->hasher, prior, page, ps, &hashes[i]);
        RAD_ASSERT_ENV(c->env, status == RAD_OK);
    }
}

bool page_chain_is_of(const page_chain *c, const rad_key *key, uint32_t begin, uint32_t count,
                      const rad_page_hash *prior, const rad_page_hash *hashes)
{
    rad_page_hash hash;
    uint32_t last = count - 1;
    page_chain_hash(c, key, begin, 1, prior, &hash);
    if (memcmp(&hash, hashes, sizeof hash) != 0) return false;
    if (!last) return true;
    page_chain_hash(c, key, begin + last, 1, &hashes[last - 1], &hash);
    return memcmp(&hash, &hashes[last], sizeof hash) == 0;
}

uint64_t page_chain_digest(const page_chain *c, const rad_key *key)
{
    rad_page_hash seed;
    if (rad_page_hash_seed(c->hasher, key->extra_key, key->cache_salt, &seed) != RAD_OK) return 0;
    return (uint64_t)rad_page_hash_event(&seed);
}
