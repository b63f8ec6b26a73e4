/* hash_rule.h - a token_rule that a hash makes: which tokens may come depends on all of the answer
 * so far. Now one token alone (a forced one), now a few, now all; and at a length of its own the
 * end token alone. A naive function says the same of any answer, without rolling anything back. */
#ifndef TESTS_HASH_RULE_H
#define TESTS_HASH_RULE_H

#include "base/base.h"
#include "base/mix64.h"
#include "sched/token_rule.h"

enum { HASH_RULE_MOST = 512 };

typedef struct hash_rule {
    token_rule base;
    uint64_t seed;
    uint32_t vocab;
    uint32_t ends_at; /* tokens before the end token; more than are asked for: it does not end */
    rad_token end;
    uint32_t count;
    uint64_t hash[HASH_RULE_MOST + 1]; /* behind so many tokens */
    uint32_t most_back;                /* tokens that were rolled back at one time */
} hash_rule;

/* One token, of which nobody is asked; or -1. */
static inline rad_token hash_rule_only(const hash_rule *r, uint64_t hash, uint32_t count)
{
    if (count >= r->ends_at) return r->end;
    return hash % 3 == 0 ? (rad_token)(mix64(hash) % r->vocab) : -1;
}

static inline bool hash_rule_allows(const hash_rule *r, uint64_t hash, uint32_t count, rad_token t)
{
    rad_token only = hash_rule_only(r, hash, count);
    if (only >= 0) return t == only;
    return hash % 3 == 1 || t == (rad_token)(hash % r->vocab) || mix64(hash + (uint64_t)t) % 4 == 0;
}

static inline uint64_t hash_rule_next(uint64_t hash, rad_token t)
{
    return mix64(hash ^ mix64((uint64_t)(uint32_t)t + 1));
}

/* Whether a whole answer is one that the rule allows. */
static inline bool hash_rule_allows_all(const hash_rule *r, const rad_token *answer, uint32_t n)
{
    uint64_t hash = mix64(r->seed);
    for (uint32_t i = 0; i < n; i++) {
        if (!hash_rule_allows(r, hash, i, answer[i])) return false;
        hash = hash_rule_next(hash, answer[i]);
    }
    return true;
}

static inline token_mask hash_rule_mask(token_rule *self, uint32_t *bits)
{
    const hash_rule *r = (const hash_rule *)self;
    const uint64_t hash = r->hash[r->count];
    if (r->count > r->ends_at) return TOKEN_MASK_NONE;
    if (hash_rule_only(r, hash, r->count) < 0 && hash % 3 == 1) return TOKEN_MASK_ALL;
    memset(bits, 0, (r->vocab + 31) / 32 * sizeof *bits);
    for (uint32_t t = 0; t < r->vocab; t++)
        if (hash_rule_allows(r, hash, r->count, (rad_token)t)) bits[t / 32] |= 1u << t % 32;
    return TOKEN_MASK_SOME;
}

static inline bool hash_rule_accept(token_rule *self, rad_token t)
{
    hash_rule *r = (hash_rule *)self;
    if (r->count > r->ends_at || r->count == HASH_RULE_MOST ||
        !hash_rule_allows(r, r->hash[r->count], r->count, t))
        return false;
    r->hash[r->count + 1] = hash_rule_next(r->hash[r->count], t);
    r->count++;
    return true;
}

static inline void hash_rule_back(token_rule *self, uint32_t count)
{
    hash_rule *r = (hash_rule *)self;
    RAD_ASSERT(count <= r->count && count <= TOKEN_RULE_BACK);
    r->most_back = RAD_MAX(r->most_back, count);
    r->count -= count;
}

static inline bool hash_rule_ended(const token_rule *self)
{
    const hash_rule *r = (const hash_rule *)self;
    return r->count > r->ends_at;
}

static inline uint32_t hash_rule_forced(token_rule *self, rad_token *out, uint32_t room)
{
    const hash_rule *r = (const hash_rule *)self;
    uint64_t hash = r->hash[r->count];
    uint32_t n = 0;
    for (rad_token t; n < room; hash = hash_rule_next(hash, t), n++) {
        if (r->count + n >= r->ends_at || (t = hash_rule_only(r, hash, r->count + n)) < 0) break;
        out[n] = t;
    }
    return n;
}

static inline token_rule *hash_rule_init(hash_rule *r, uint64_t seed, uint32_t vocab,
                                         uint32_t ends_at, rad_token end)
{
    static const token_rule_ops ops = {.mask = hash_rule_mask,
                                       .accept = hash_rule_accept,
                                       .roll_back = hash_rule_back,
                                       .has_ended = hash_rule_ended,
                                       .forced = hash_rule_forced};
    *r = (hash_rule){.base = {&ops}, .seed = seed, .vocab = vocab, .ends_at = ends_at, .end = end};
    r->hash[0] = mix64(seed);
    return &r->base;
}

#endif
