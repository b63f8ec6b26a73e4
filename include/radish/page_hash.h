/* page_hash.h - the name of a page: SHA-256 of all tokens up to its end, as a chain.
 *
 *     hash(page) = SHA-256( prior hash, 32 bytes, if there is one || its tokens )
 *
 * A token is 4 bytes, little-endian; a page of bigrams feeds both tokens of each pair.
 * The first page of a prompt has no prior in the default namespace (neither extra_key nor
 * cache_salt), so its chain has SGLang's bytes. In every other namespace the prior of the
 * first page is the namespace's seed:
 *
 *     seed = SHA-256( "radish-page-hash-v1" 00 || part(extra_key) || part(cache_salt) )
 *     part(name) = 00                                         when name is NULL
 *                = 01 || length, 4 bytes little-endian || bytes   otherwise
 *
 * so NULL, "" and "a" differ, and ("a", "bc") from ("ab", "c"). The framing is ours.
 *
 * A hasher is the state of one SHA-256 in libcrypto; hashing takes no memory. One thread at a
 * time. */
#ifndef RADISH_PAGE_HASH_H
#define RADISH_PAGE_HASH_H

#include <radish/env.h>
#include <radish/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rad_page_hash {
    uint8_t bytes[32];
} rad_page_hash;

typedef struct rad_page_hasher rad_page_hasher;

/* RAD_E_NOMEM. */
RAD_API rad_status rad_page_hasher_create(const rad_env *env, rad_page_hasher **out,
                                          rad_error *err);
RAD_API void rad_page_hasher_destroy(rad_page_hasher *h); /* NULL is fine */

/* The seed of a namespace. RAD_NONE, and *seed is zero: the default namespace has none.
 * Names are at most 65536 bytes long (RAD_E_LIMIT). */
RAD_API rad_status rad_page_hash_seed(rad_page_hasher *h, const char *extra_key,
                                      const char *cache_salt, rad_page_hash *seed);

/* The hash of the page tokens[0..page_size) that follows `prior`; NULL: nothing is before
 * it. About 0.3 us for 16 tokens. RAD_E_UNSUPPORTED: libcrypto failed. */
RAD_API rad_status rad_page_hash_tokens(rad_page_hasher *h, const rad_page_hash *prior,
                                        const rad_token *tokens, uint32_t page_size,
                                        rad_page_hash *hash);

/* The same for a page of page_size pairs (first, tokens[0]) (tokens[0], tokens[1]) ... */
RAD_API rad_status rad_page_hash_bigrams(rad_page_hasher *h, const rad_page_hash *prior,
                                         rad_token first, const rad_token *tokens,
                                         uint32_t page_size, rad_page_hash *hash);

/* The form that events carry: the first 8 bytes, big-endian, as a signed number. */
RAD_API int64_t rad_page_hash_event(const rad_page_hash *hash);

#ifdef __cplusplus
}
#endif
#endif
