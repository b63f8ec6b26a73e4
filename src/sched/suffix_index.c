/* suffix_index.c - six hashes of what stands before a place.
 *
 *     h(n + 1) = h(n) * B + token            n tokens; of a fixed length it slides:
 *     h(n)'    = h(n) * B + new - old * B^n
 *
 * Two runs with the same hash are told apart by comparing them. */
#include "sched/suffix_index.h"

#include "base/base.h"

static const uint64_t B = 0x9e3779b97f4a7c15u;

bool suffix_index_init(suffix_index *x, const rad_env *env, uint32_t bits)
{
    *x = (suffix_index){.bits = bits};
    x->slots = rad_alloc_sparse(env, suffix_index_bytes(bits));
    if (x->slots) hash_key_init(&x->key, env);
    return x->slots;
}

void suffix_index_fini(suffix_index *x, const rad_env *env)
{
    if (x->slots) rad_free_sparse(env, x->slots, suffix_index_bytes(x->bits));
    x->slots = NULL;
}

static rad_token token_at(const suffix_text *t, uint32_t at)
{
    return t->ids[at & t->mask];
}

/* Of the hash of 1 << length tokens. */
static uint32_t *slot_of(suffix_index *x, uint32_t realm, uint32_t length, uint64_t hash)
{
    const uint64_t number = hash + ((uint64_t)realm * SUFFIX_LENGTHS + length) * B;
    x->work++;
    return &x->slots[hash_mix(&x->key, number) >> (32 - x->bits)];
}

static uint64_t add(uint64_t hash, rad_token token)
{
    return hash * B + (uint32_t)token + 1;
}

void suffix_index_enter(suffix_index *x, uint32_t realm, const suffix_text *text, uint32_t from,
                        uint32_t to)
{
    uint64_t hash[SUFFIX_LENGTHS] = {0}, power[SUFFIX_LENGTHS];
    uint32_t known = RAD_MIN(from - text->begin, (uint32_t)SUFFIX_LONGEST); /* tokens before it */
    power[0] = B;
    for (uint32_t k = 1; k < SUFFIX_LENGTHS; k++)
        power[k] = power[k - 1] * power[k - 1];
    if (from == to) return;
    for (uint32_t k = 0; k < SUFFIX_LENGTHS; k++)
        for (uint32_t i = RAD_MIN(known, 1u << k); i > 0; i--)
            hash[k] = add(hash[k], token_at(text, from - i));
    x->work += 2 * known;
    for (uint32_t at = from; at != to; at++) {
        const uint32_t before = at - text->begin;
        for (uint32_t k = 0; k < SUFFIX_LENGTHS; k++) {
            const uint32_t length = 1u << k;
            if (before >= length) *slot_of(x, realm, k, hash[k]) = at;
            hash[k] = add(hash[k], token_at(text, at));
            if (before >= length)
                hash[k] -= power[k] * ((uint64_t)(uint32_t)token_at(text, at - length) + 1);
            x->work += 2;
        }
    }
}

uint32_t suffix_match(const suffix_text *text, uint32_t at, const rad_token *ids, uint32_t num_ids)
{
    const uint32_t most = RAD_MIN(RAD_MIN(at - text->begin, num_ids), (uint32_t)SUFFIX_LONGEST);
    uint32_t n = 0;
    while (n < most && token_at(text, at - 1 - n) == ids[num_ids - 1 - n])
        n++;
    return n;
}

uint32_t suffix_index_find(suffix_index *x, uint32_t realm, const suffix_text *text,
                           const rad_token *ids, uint32_t num_ids, uint32_t *at)
{
    uint64_t hash[SUFFIX_LENGTHS] = {0}, all = 0, power = 1;
    const uint32_t most = RAD_MIN(num_ids, (uint32_t)SUFFIX_LONGEST);
    uint32_t best = 0, longest = 0;
    for (uint32_t n = 1; n <= most; n++) { /* to the left, so that each length is on the way */
        all += power * ((uint64_t)(uint32_t)ids[num_ids - n] + 1);
        power *= B;
        if (!(n & (n - 1))) hash[longest++] = all;
    }
    x->work += most;
    for (; longest > 0 && best < 1u << (longest - 1); longest--) {
        const uint32_t place = *slot_of(x, realm, longest - 1, hash[longest - 1]);
        if (place - text->begin >= text->end - text->begin) continue;
        const uint32_t same = suffix_match(text, place, ids, num_ids);
        x->work += same + 1;
        if (same > best) best = same, *at = place;
    }
    return best;
}
