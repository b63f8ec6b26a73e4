/* record_hash.h - names of pages that tell nothing of their text.
 *
 * SipHash-2-4 (Aumasson and Bernstein 2012) under a key of 128 random bits that is never written
 * down: without it nobody can test a guess at a prompt, and equal prompts of two records have
 * different names. A page's name covers the name before it, so it stands for all the text up to
 * its end. */
#ifndef TRACE_RECORD_HASH_H
#define TRACE_RECORD_HASH_H

#include "base/base.h"

typedef struct record_salt {
    uint64_t key[2];
} record_salt;

/* `len` bytes behind the number `before`. */
uint64_t record_hash(const record_salt *salt, uint64_t before, const void *bytes, size_t len);

#endif
