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

/* One body for each width of vectors, chosen when the program is loaded. That choice is an ifunc:
 * glibc's loader knows it, musl's does not, and a sanitizer's runtime is not there yet when it is
 * made, so that an instrumented resolver kills the program before main(). */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define READ_WORDS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define READ_WORDS_SANITIZED 1
#endif
#endif
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(READ_WORDS_SANITIZED)
#define READ_WORDS_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define READ_WORDS_CLONES
#endif

/* All bits of `count` words, a multiple of 32, folded into one. */
RAD_VECTORIZE READ_WORDS_CLONES static uint64_t read_words(const uint64_t *p, size_t count)
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
