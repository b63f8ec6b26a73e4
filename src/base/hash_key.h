/* hash_key.h - the secret of a hash table that is filled from what users send.
 *
 * Who knows a hash function can choose thousands of keys that fall into one place of a table, and
 * every lookup then walks all of them. So each object that has such a table draws a secret of its
 * own, from the system's random numbers or, for a replay, from env->hash_seed.
 *
 *     a number (a parent and a token, a pair of symbols)   hash_mix: two secret multipliers
 *     a few words (a page of tokens)                       hash_words: NH, the hash of UMAC
 *     bytes (names, text, long pages)                      hash_bytes: XXH3 with a secret of ours
 *
 * Of two different runs of words NH makes the same number with a chance of 2^-32 over the secret,
 * whatever the words (Black et al. 1999). None is meant to hide the secret from somebody who reads
 * hashes; nobody outside ever sees one. They are chosen over SipHash since a lookup of the tree
 * has some 5 ns for its hash. */
#ifndef BASE_HASH_KEY_H
#define BASE_HASH_KEY_H

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/base.h"

enum { HASH_SECRET_WORDS = 48 }; /* 192 bytes, what XXH3 has of its own */

typedef struct hash_key {
    uint64_t flip;
    uint64_t odd[2]; /* multipliers */
    uint64_t reserved;
    uint32_t secret[HASH_SECRET_WORDS]; /* of XXH3 and of hash_words */
} hash_key;

/* `env` must come from rad_env_or_default. Cannot fail: where the system has no random numbers to
 * give, the time and the places of our memory stand in. */
void hash_key_init(hash_key *k, const rad_env *env);

/* The secret flip decides which numbers meet in the first product, the secret multipliers where
 * they go from there; the shift carries the high half into the low one between them. */
static inline uint32_t hash_mix(const hash_key *k, uint64_t number)
{
    uint64_t h = (number ^ k->flip) * k->odd[0];
    return (uint32_t)((h ^ h >> 29) * k->odd[1] >> 32);
}

/* `count` words; all runs that are put in one table have the same. To be mixed, as its low bits are
 * no better than those of a product. */
static inline uint64_t hash_words(const hash_key *k, const int32_t *words, uint32_t count)
{
    uint64_t sum = 0;
    uint32_t i = 0;
#if defined(__SSE2__) /* two products a step, the same sum */
    __m128i sums = _mm_setzero_si128();
    for (; i + 4 <= count; i += 4) {
        __m128i four = _mm_add_epi32(_mm_loadu_si128((const __m128i *)(words + i)),
                                     _mm_loadu_si128((const __m128i *)(k->secret + i)));
        sums = _mm_add_epi64(sums, _mm_mul_epu32(four, _mm_srli_epi64(four, 32)));
    }
    uint64_t half[2];
    memcpy(half, &sums, sizeof half);
    sum = half[0] + half[1];
#endif
    for (; i + 2 <= count; i += 2)
        sum += (uint64_t)((uint32_t)words[i] + k->secret[i]) *
               ((uint32_t)words[i + 1] + k->secret[i + 1]);
    if (i < count) sum += (uint64_t)((uint32_t)words[i] + k->secret[i]) * k->secret[i + 1];
    return sum;
}

uint64_t hash_bytes(const hash_key *k, const void *bytes, size_t len);

#endif
