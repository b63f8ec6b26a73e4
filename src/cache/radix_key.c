/* radix_key.c - comparing keys at the speed of memcmp.
 *
 * memcmp says whether two blocks are equal, fast, but not where they part. So blocks
 * grow fourfold as long as they are equal, and only the block in which the keys part
 * is looked at again. A cached prompt thus costs one pass over its tokens whatever its
 * length, and a miss a few instructions. */
#include "cache/radix_key.h"

enum { SHORT = 24, FIRST_BLOCK = 256, MOST_BLOCK = 16384 }; /* tokens */

/* Eight tokens a step; for blocks that are short or known to differ. */
static uint32_t first_difference(const rad_token *a, const rad_token *b, uint32_t count)
{
    uint32_t i = 0;
#if defined(__SSE2__) && defined(__GNUC__)
    typedef int32_t quad __attribute__((vector_size(16)));
    for (; i + 8 <= count; i += 8) {
        quad a0, a1, b0, b1;
        memcpy(&a0, a + i, 16);
        memcpy(&b0, b + i, 16);
        memcpy(&a1, a + i + 4, 16);
        memcpy(&b1, b + i + 4, 16);
        quad differ = (a0 ^ b0) | (a1 ^ b1);
        uint64_t half[2];
        memcpy(half, &differ, 16);
        if (half[0] | half[1]) break;
    }
#endif
    while (i < count && a[i] == b[i])
        i++;
    return i;
}

uint32_t key_match_len(const rad_token *a, const rad_token *b, uint32_t count)
{
    uint32_t at = 0;
    if (count < SHORT || a[0] != b[0]) return first_difference(a, b, count);
    for (uint32_t block = FIRST_BLOCK; at < count; block = RAD_MIN(block * 4, MOST_BLOCK)) {
        uint32_t len = RAD_MIN(block, count - at);
        if (memcmp(a + at, b + at, (size_t)len * sizeof *a) != 0)
            return at + first_difference(a + at, b + at, len);
        at += len;
    }
    return count;
}

uint64_t key_page_hash(const hash_key *k, const rad_token *page, uint32_t page_size)
{
    if (page_size == 16) return hash_words(k, page, 16); /* the usual one: without a loop */
    if (page_size < HASH_SECRET_WORDS) return hash_words(k, page, page_size);
    return hash_bytes(k, page, (size_t)page_size * sizeof *page);
}

uint32_t key_namespace_hash(const hash_key *k, const char *extra_key, const char *cache_salt)
{
    uint64_t h = 0;
    const char *names[2] = {extra_key, cache_salt};
    for (int i = 0; i < 2; i++)
        h = names[i] ? hash_bytes(k, names[i], strlen(names[i])) + (h * 3 + 1) : h * 3 + 2;
    return hash_mix(k, h);
}
