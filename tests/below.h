/* below.h - a number drawn below another. */
#ifndef TESTS_BELOW_H
#define TESTS_BELOW_H

#include "test.h"

static inline uint32_t below(uint64_t *rng, uint32_t n)
{
    return (uint32_t)(test_random(rng) % n);
}

#endif
