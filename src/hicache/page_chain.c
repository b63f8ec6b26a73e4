/* page_chain.c - see the header. */
#include "hicache/page_chain.h"

/* What stands before page 0: *prior is NULL in the default namespace, and only there. */
static rad_status find_seed(const page_chain *c, const rad_key *key, rad_page_hash *seed,
                            const rad_page_hash **prior)
{
    rad_status status = rad_page_hash_seed(c->hasher, key->extra_key, key->cache_salt, seed);
    *prior = status == RAD_OK ? seed : NULL;
    return status == RAD_NONE ? RAD_OK : status;
}

rad_status page_chain_hash(const page_chain *c, const rad_key *key, uint32_t begin, uint32_t count,
                           const rad_page_hash *prior, rad_page_hash *hashes)
{
    rad_page_hash seed;
    uint32_t ps = c->page_size;
    rad_status status = begin ? RAD_OK : find_seed(c, key, &seed, &prior);
    for (uint32_t i = 0; !status && i < count; prior = &hashes[i++]) {
        const rad_token *page = key->tokens + (size_t)(begin + i) * ps;
        status = c->bigram
                     ? rad_page_hash_bigrams(c->hasher, prior, page[0], page + 1, ps, &hashes[i])
                     : rad_page_hash_tokens(c->hasher, prior, page, ps, &hashes[i]);
    }
    return status;
}

bool page_chain_is_of(const page_chain *c, const rad_key *key, uint32_t begin, uint32_t count,
                      const rad_page_hash *prior, const rad_page_hash *hashes)
{
    rad_page_hash hash;
    uint32_t last = count - 1;
    if (page_chain_hash(c, key, begin, 1, prior, &hash)) return false;
    if (memcmp(&hash, hashes, sizeof hash) != 0) return false;
    if (!last) return true;
    if (page_chain_hash(c, key, begin + last, 1, &hashes[last - 1], &hash)) return false;
    return memcmp(&hash, &hashes[last], sizeof hash) == 0;
}

rad_status page_chain_digest(const page_chain *c, const rad_key *key, uint64_t *digest)
{
    rad_page_hash seed;
    const rad_page_hash *prior;
    rad_status status = find_seed(c, key, &seed, &prior);
    *digest = prior && !status ? (uint64_t)rad_page_hash_event(prior) : 0;
    return status;
}
