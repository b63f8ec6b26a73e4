/* record_hash.c - SipHash-2-4 of a number and bytes. */
#include "trace/record_hash.h"

#include "trace/record_format.h"

typedef struct sip {
    uint64_t a, b, c, d;
} sip;

static inline uint64_t turn(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static inline void mix(sip *s, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        s->a += s->b;
        s->c += s->d;
        s->b = turn(s->b, 13) ^ s->a;
        s->d = turn(s->d, 16) ^ s->c;
        s->a = turn(s->a, 32);
        s->c += s->b;
        s->a += s->d;
        s->b = turn(s->b, 17) ^ s->c;
        s->d = turn(s->d, 21) ^ s->a;
        s->c = turn(s->c, 32);
    }
}

static inline void take(sip *s, uint64_t word)
{
    s->d ^= word;
    mix(s, 2);
    s->a ^= word;
}

uint64_t record_hash(const record_salt *salt, uint64_t before, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    sip s = {salt->key[0] ^ 0x736f6d6570736575u, salt->key[1] ^ 0x646f72616e646f6du,
             salt->key[0] ^ 0x6c7967656e657261u, salt->key[1] ^ 0x7465646279746573u};
    take(&s, before);
    size_t at = 0;
    for (; at + 8 <= len; at += 8)
        take(&s, record_fixed_at(p + at, 8));
    take(&s, record_fixed_at(p + at, len - at) | (uint64_t)((len + 8) & 0xff) << 56);
    s.c ^= 0xff;
    mix(&s, 4);
    return s.a ^ s.b ^ s.c ^ s.d;
}
