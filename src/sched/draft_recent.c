/* draft_recent.c - a ring of answers under a suffix index.
 *
 * Invariant: the positions [end - filled, end) are there, and every answer but the oldest, whose
 * front may have been overwritten, has its -1 before it; so whoever compares to the left stays in
 * one answer, and one answer is of one namespace. */
#include "sched/draft_recent.h"

enum { SLOTS_A_TOKEN_LOG2 = 2, BEGIN = -1 };

uint32_t draft_recent_capacity(uint32_t tokens)
{
    uint32_t capacity = RECENT_LEAST;
    while (capacity < tokens && capacity < RECENT_MOST)
        capacity *= 2;
    return capacity;
}

static uint32_t slots_log2(uint32_t capacity)
{
    return (uint32_t)__builtin_ctz(capacity) + SLOTS_A_TOKEN_LOG2;
}

static uint32_t num_names(uint32_t capacity)
{
    const uint32_t count = RAD_MAX(capacity / RECENT_TOKENS_A_NAMESPACE, (uint32_t)RECENT_NAMES);
    return RAD_MIN(count, (uint32_t)NAMESPACE_MOST);
}

size_t draft_recent_bytes(uint32_t capacity)
{
    return capacity * (sizeof(rad_token) + sizeof(uint32_t)) +
           suffix_index_bytes(slots_log2(capacity)) + namespaces_bytes(num_names(capacity));
}

bool draft_recent_init(draft_recent *d, const rad_env *env, uint32_t capacity)
{
    *d = (draft_recent){.capacity = capacity};
    d->ids = rad_alloc_sparse(env, capacity * sizeof *d->ids);
    d->realms = rad_alloc_sparse(env, capacity * sizeof *d->realms);
    return namespaces_init(&d->names, env, num_names(capacity)) && d->ids && d->realms &&
           suffix_index_init(&d->suffixes, env, slots_log2(capacity));
}

void draft_recent_fini(draft_recent *d, const rad_env *env)
{
    if (!d->capacity) return;
    if (d->ids) rad_free_sparse(env, d->ids, d->capacity * sizeof *d->ids);
    if (d->realms) rad_free_sparse(env, d->realms, d->capacity * sizeof *d->realms);
    suffix_index_fini(&d->suffixes, env);
    namespaces_fini(&d->names);
    *d = (draft_recent){0};
}

void draft_recent_clear(draft_recent *d)
{
    d->filled = 0;
}

/* 0: names too long to be kept. */
static uint32_t realm_to_add(draft_recent *d, const char *extra_key, const char *cache_salt)
{
    namespaces *n = &d->names;
    if (!namespace_fits(extra_key, cache_salt)) return 0;
    uint32_t id = namespace_find(n, extra_key, cache_salt);
    if (!id && !slab_available(&n->ids)) {
        const uint32_t least = namespaces_take_least(n);
        namespaces_give_up(n, least);
        namespace_remove(n, least);
    }
    if (!id) {
        if (++d->last_realm == 0) d->last_realm = 1; /* those of 2^32 namespaces ago are gone */
        id = namespace_add(n, extra_key, cache_salt, d->last_realm);
    }
    namespace_touch(n, id, false);
    return n->entries[id].root;
}

static void put(draft_recent *d, uint32_t realm, rad_token token)
{
    const uint32_t at = d->end++ & (d->capacity - 1);
    d->ids[at] = token;
    d->realms[at] = realm;
    d->filled += d->filled < d->capacity;
}

void draft_recent_add(draft_recent *d, const char *extra_key, const char *cache_salt,
                      const rad_token *ids, uint32_t num_ids, uint32_t lead)
{
    const uint32_t skip = num_ids - RAD_MIN(num_ids, d->capacity - 1); /* the last stay */
    if (lead >= num_ids || !num_ids) return;
    const uint32_t realm = realm_to_add(d, extra_key, cache_salt);
    if (!realm) return;
    put(d, realm, BEGIN);
    const suffix_text text = {
        .ids = d->ids, .mask = d->capacity - 1, .begin = d->end, .end = d->end + num_ids - skip};
    for (uint32_t i = skip; i < num_ids; i++)
        put(d, realm, ids[i]);
    suffix_index_enter(&d->suffixes, realm, &text, text.begin + lead - RAD_MIN(lead, skip),
                       text.end);
}

uint32_t draft_recent_propose(draft_recent *d, const char *extra_key, const char *cache_salt,
                              const rad_token *ids, uint32_t num_ids, rad_token *out, uint32_t room,
                              uint32_t *match)
{
    const suffix_text text = {
        .ids = d->ids, .mask = d->capacity - 1, .begin = d->end - d->filled, .end = d->end};
    uint32_t at = 0, count = 0;
    *match = 0;
    if (!d->filled || !namespace_fits(extra_key, cache_salt)) return 0;
    const uint32_t id = namespace_find(&d->names, extra_key, cache_salt);
    if (!id) return 0;
    const uint32_t realm = d->names.entries[id].root;
    const uint32_t same = suffix_index_find(&d->suffixes, realm, &text, ids, num_ids, &at);
    if (!same || d->realms[at & text.mask] != realm) return 0;
    for (; count < room && at != text.end && d->ids[at & text.mask] != BEGIN; count++)
        out[count] = d->ids[at++ & text.mask];
    if (!count) return 0;
    *match = same;
    namespace_touch(&d->names, id, true);
    return count;
}
