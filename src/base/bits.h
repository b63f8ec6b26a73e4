/* bits.h - one bit per thing, in an array of 64-bit words that the caller placed. */
#ifndef BASE_BITS_H
#define BASE_BITS_H

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

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

static inline void bits_clear(uint64_t *words, size_t i)
{
    words[i / 64] &= ~((uint64_t)1 << (i % 64));
}

/* Clears the bits of ids[0..count); returns how many of them were set. */
static inline uint32_t bits_take(uint64_t *words, const int32_t *ids, uint32_t count)
{
    uint32_t set = 0;
    for (uint32_t i = 0; i < count; i++) {
        set += bits_get(words, (size_t)ids[i]);
        bits_clear(words, (size_t)ids[i]);
    }
    return set;
}

/* A bit for each of ids[0..16): whether it is want, want + 1, ... */
#if defined(__SSE2__)
static inline uint32_t bits_follow16(const int32_t *ids, uint32_t want)
{
    const __m128i *four = (const __m128i *)ids, step = _mm_set1_epi32(4);
    __m128i w0 = _mm_add_epi32(_mm_set1_epi32((int32_t)want), _mm_setr_epi32(0, 1, 2, 3));
    __m128i w1 = _mm_add_epi32(w0, step), w2 = _mm_add_epi32(w1, step);
    __m128i w3 = _mm_add_epi32(w2, step);
    __m128i low = _mm_packs_epi32(_mm_cmpeq_epi32(_mm_loadu_si128(four), w0),
                                  _mm_cmpeq_epi32(_mm_loadu_si128(four + 1), w1));
    __m128i high = _mm_packs_epi32(_mm_cmpeq_epi32(_mm_loadu_si128(four + 2), w2),
                                   _mm_cmpeq_epi32(_mm_loadu_si128(four + 3), w3));
    return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(low, high));
}
#else
static inline uint32_t bits_follow16(const int32_t *ids, uint32_t want)
{
    uint32_t same = 0;
    for (uint32_t k = 0; k < 16; k++)
        same |= (uint32_t)((uint32_t)ids[k] == want + k) << k;
    return same;
}
#endif

/* Ids are mostly handed out and given back in runs, so whoever keeps a bit per id does 64
 * at a time: this is how many of ids[0..count) follow each other from the first on. */
static inline uint32_t bits_run(const int32_t *ids, uint32_t count)
{
    uint32_t n = 0, first = count ? (uint32_t)ids[0] : 0;
    for (; count - n >= 16; n += 16) {
        uint32_t wrong = bits_follow16(ids + n, first + n) ^ 0xffff;
        if (wrong) return n + (uint32_t)__builtin_ctz(wrong);
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

/* A lane: words[0], words[step], words[2 * step], ... are the words of an array of bits. Two
 * arrays that are read for the same ids share their cache lines as the lanes of one. */
typedef struct bits_lane {
    uint64_t *words;
    size_t step;
} bits_lane;

static inline bool lane_get(bits_lane l, size_t i)
{
    return l.words[i / 64 * l.step] >> (i % 64) & 1;
}

static inline void lane_flip(bits_lane l, size_t i)
{
    l.words[i / 64 * l.step] ^= (uint64_t)1 << (i % 64);
}

/* Whether all of [first, first + count) are `on`. */
static inline bool lane_range_is(bits_lane l, size_t first, size_t count, bool on)
{
    uint64_t wrong = 0;
    for (size_t at = first, end = first + count; at < end; at = (at / 64 + 1) * 64) {
        uint64_t word = l.words[at / 64 * l.step];
        wrong |= (on ? ~word : word) & bits_mask(at, end);
    }
    return !wrong;
}

static inline void lane_flip_range(bits_lane l, size_t first, size_t count)
{
    for (size_t at = first, end = first + count; at < end; at = (at / 64 + 1) * 64)
        l.words[at / 64 * l.step] ^= bits_mask(at, end);
}

/* Asks for the words of [first, first + count), which are flipped soon: bits of things that
 * were not used for long are each a miss of their own, but not one after the other. */
static inline void lane_prefetch_range(bits_lane l, size_t first, size_t count)
{
    size_t words_in_a_line = 8 / l.step, last = (first + count - 1) / 64;
    for (size_t w = first / 64; w < last; w += words_in_a_line)
        __builtin_prefetch(l.words + w * l.step, 1);
    __builtin_prefetch(l.words + last * l.step, 1);
}

#endif
