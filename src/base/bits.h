/* bits.h - one bit per thing, in an array of 64-bit words that the caller placed. */
#ifndef BASE_BITS_H
#define BASE_BITS_H

#include "base/base.h"

static inline size_t bits_words(size_t count)
{
    return (count + 63) / 64;
}

static inline bool bits_get(const uint64_t *words, size_t i)
{
    return words[i / 64] >> (i % 64) & 1;
}

static inline void bits_flip(uint64_t *words, size_t i)
{
    words[i / 64] ^= (uint64_t)1 << (i % 64);
}

static inline void bits_set(uint64_t *words, size_t i)
{
    words[i / 64] |= (uint64_t)1 << (i % 64);
}

/* Ids are mostly handed out and given back in runs, so whoever keeps a bit per id does 64
 * at a time: this is how many of ids[0..count) follow each other from the first on. */
static inline uint32_t bits_run(const int32_t *ids, uint32_t count)
{
    typedef uint32_t four __attribute__((vector_size(16)));
    enum { BLOCK = 16 };
    uint32_t n = 0, first = count ? (uint32_t)ids[0] : 0;
    four want = (four){0, 1, 2, 3} + first;
    for (; count - n >= BLOCK; n += BLOCK) {
        four wrong = {0};
        for (uint32_t k = 0; k < BLOCK; k += 4, want += 4) {
            four got;
            memcpy(&got, ids + n + k, sizeof got);
            wrong |= got ^ want;
        }
        uint64_t halves[2];
        memcpy(halves, &wrong, sizeof halves);
        if (halves[0] | halves[1]) break;
    }
    while (n < count && (uint32_t)ids[n] == first + n)
        n++;
    return n;
}

/* The bits of [first, first + count) that lie in one word, from `at` on. */
static inline uint64_t bits_mask(size_t at, size_t end)
{
    size_t n = RAD_MIN(64 - at % 64, end - at);
    return (~(uint64_t)0 >> (64 - n)) << (at % 64);
}

/* Whether all of [first, first + count) are `on`. */
static inline bool bits_range_is(const uint64_t *words, size_t first, size_t count, bool on)
{
    uint64_t wrong = 0;
    for (size_t at = first, end = first + count; at < end; at = (at / 64 + 1) * 64)
        wrong |= (on ? ~words[at / 64] : words[at / 64]) & bits_mask(at, end);
    return !wrong;
}

static inline void bits_flip_range(uint64_t *words, size_t first, size_t count)
{
    for (size_t at = first, end = first + count; at < end; at = (at / 64 + 1) * 64)
        words[at / 64] ^= bits_mask(at, end);
}

#endif
