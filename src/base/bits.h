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

#endif
