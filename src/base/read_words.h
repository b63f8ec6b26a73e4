/* read_words.h - plain reading, as fast as was found: the limit that measurements stand beside.
 *
 * Asks for what comes 4 KB later, or for nothing when that is no memory. Let each thread go
 * through a range of its own: tiles handed out in turn read at half of it, and the hardware's
 * own look ahead alone at four fifths. */
#ifndef BASE_READ_WORDS_H
#define BASE_READ_WORDS_H

#include "base/base.h"

#include <stddef.h>
#include <stdint.h>

/* All bits of `count` words, a multiple of 32, folded into one. */
RAD_VECTORIZE __attribute__((target_clones("default", "avx2", "avx512f"))) static uint64_t
read_words(const uint64_t *p, size_t count)
{
    uint64_t s[32] = {0}, all = 0;
    for (size_t i = 0; i < count; i += 32) {
        for (size_t line = 0; line < 4; line++)
            __builtin_prefetch(p + i + 8 * line + 4096 / 8, 0, 3);
        for (int j = 0; j < 32; j++)
            s[j] ^= p[i + (size_t)j];
    }
    for (int j = 0; j < 32; j++)
        all ^= s[j];
    return all;
}

#endif
