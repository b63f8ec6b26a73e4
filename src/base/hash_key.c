/* hash_key.c - drawing secrets, and the hash of bytes. */
#include "base/hash_key.h"

#include "base/mix64.h"

#include <sys/random.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* All of the key from one number. */
static void key_from(hash_key *k, uint64_t seed)
{
    uint64_t words[sizeof *k / sizeof(uint64_t)];
    for (size_t i = 0; i < RAD_COUNT(words); i++)
        words[i] = mix64(seed + i * 0x9e3779b97f4a7c15u);
    memcpy(k, words, sizeof words);
}

void hash_key_init(hash_key *k, const rad_env *env)
{
    if (env->hash_seed) {
        key_from(k, env->hash_seed);
    } else if (getrandom(k, sizeof *k, GRND_NONBLOCK) != (ssize_t)sizeof *k) {
        /* Too early after a boot, or a sandbox without the call. */
        struct timespec now = {0};
        clock_gettime(CLOCK_REALTIME, &now);
        key_from(k, mix64((uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 30) ^
                        mix64((uintptr_t)k) ^ mix64((uintptr_t)&now));
    }
    k->odd[0] |= 1; /* an even multiplier would lose bits */
    k->odd[1] |= 1;
}

uint64_t hash_bytes(const hash_key *k, const void *bytes, size_t len)
{
    return XXH3_64bits_withSecret(bytes, len, k->secret, sizeof k->secret);
}
