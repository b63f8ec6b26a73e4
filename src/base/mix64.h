/* mix64.h - a 64-bit integer in, a well mixed one out (the finalizer of
 * splitmix64). A bijection, the same on every machine; not for adversaries. */
#ifndef BASE_MIX64_H
#define BASE_MIX64_H

#include <stdint.h>

static inline uint64_t mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
