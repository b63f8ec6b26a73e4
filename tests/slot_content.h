/* slot_content.h - "K/V" that are a hash of all tokens up to a position, kept by slot as a pool
 * would keep them: any slot that is shared too early, freed too early or owned twice shows as a
 * wrong number. */
#ifndef TESTS_SLOT_CONTENT_H
#define TESTS_SLOT_CONTENT_H

#include "test.h"

#include <radish/cache.h>

static inline uint64_t mix(uint64_t h, uint64_t x)
{
    uint64_t state = h * 31 + x;
    return test_random(&state);
}

/* Computes positions [from, to) of a row. `h` is the hash of what is before the first token. */
static inline void write_content(uint64_t *content, const rad_slot *row, const rad_token *tokens,
                                 uint32_t from, uint32_t to, uint64_t h)
{
    for (uint32_t at = 0; at < to; at++) {
        h = mix(h, (uint64_t)tokens[at]);
        if (at >= from) content[row[at]] = h;
    }
}

/* The first of the positions [from, to) that does not read its own hash; `to` when all do. */
static inline uint32_t first_foreign(const uint64_t *content, const rad_slot *row,
                                     const rad_token *tokens, uint32_t from, uint32_t to,
                                     uint64_t h)
{
    for (uint32_t at = 0; at < to; at++) {
        h = mix(h, (uint64_t)tokens[at]);
        if (at >= from && content[row[at]] != h) return at;
    }
    return to;
}

#endif
