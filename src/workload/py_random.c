/* py_random.c - MT19937 and what Python makes of it. */
#include "workload/py_random.h"

enum { N = 624, M = 397 };

void py_random_seed(py_random *r, uint32_t seed)
{
    uint32_t *s = r->state;
    s[0] = 19650218;
    for (uint32_t i = 1; i < N; i++)
        s[i] = 1812433253u * (s[i - 1] ^ s[i - 1] >> 30) + i;
    uint32_t i = 1; /* a key of one word: the seed */
    for (uint32_t k = 0; k < N; k++) {
        s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1664525u) + seed;
        if (++i == N) s[0] = s[N - 1], i = 1;
    }
    for (uint32_t k = 0; k < N - 1; k++) {
        s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1566083941u) - i;
        if (++i == N) s[0] = s[N - 1], i = 1;
    }
    s[0] = 0x80000000u;
    r->next = N;
}

static uint32_t next_word(py_random *r)
{
    uint32_t *s = r->state;
    if (r->next == N) {
        for (uint32_t i = 0; i < N; i++) {
            uint32_t y = (s[i] & 0x80000000u) | (s[(i + 1) % N] & 0x7fffffffu);
            s[i] = s[(i + M) % N] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        r->next = 0;
    }
    uint32_t y = s[r->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

double py_random_random(py_random *r)
{
    uint32_t high = next_word(r) >> 5, low = next_word(r) >> 6;
    return (high * 67108864.0 + low) / 9007199254740992.0;
}

double py_random_uniform(py_random *r, double low, double high)
{
    return low + (high - low) * py_random_random(r);
}

/* [0, n), n > 0: as many bits as n has, drawn again until they are below n. */
static uint32_t below(py_random *r, uint32_t n)
{
    int bits = 32 - __builtin_clz(n);
    uint32_t x;
    do
        x = next_word(r) >> (32 - bits);
    while (x >= n);
    return x;
}

uint32_t py_random_randint(py_random *r, uint32_t low, uint32_t high)
{
    return low + below(r, high - low + 1);
}

void py_random_shuffle(py_random *r, uint32_t *items, uint32_t count)
{
    for (uint32_t i = count; i-- > 1;) {
        uint32_t j = below(r, i + 1), item = items[i];
        items[i] = items[j];
        items[j] = item;
    }
}

uint32_t py_random_choice(py_random *r, const double *weights, uint32_t count)
{
    double total = 0, sum = 0;
    for (uint32_t i = 0; i < count; i++)
        total += weights[i];
    double x = py_random_random(r) * total;
    for (uint32_t i = 0; i + 1 < count; i++) {
        sum += weights[i];
        if (x < sum) return i;
    }
    return count - 1;
}
