/* mask_cache.c - what states allow, kept below a limit for all grammars of a vocabulary.
 *
 * Entries are found by grammar and state; those of the rules that every grammar of JSON has
 * (json_rules.c) belong to no grammar and outlive them. Whoever uses an entry holds it: it is not
 * freed meanwhile. What was used longest ago goes first. An entry for which there is no room is
 * used once. */
#include "grammar/grammar_impl.h"

#include "base/list.h"
#include "base/mix64.h"

static uint32_t bucket_of(const grammar *owner, uint32_t state, uint64_t left)
{
    const uint64_t name = (uint64_t)state << 40 ^ state ^ left * 0x9e3779b97f4a7c15u;
    return (uint32_t)(mix64((uintptr_t)owner ^ name) % MASK_BUCKETS);
}

/* A shared state has one name in all grammars. */
static void name_of(grammar *g, uint32_t state, grammar **owner, uint32_t *name)
{
    uint32_t shared = g->a.states[state].shared;
    *owner = shared ? NULL : g;
    *name = shared ? shared : state;
}

rad_status mask_entry_make(grammar_vocab *v, const uint32_t *bits, trie_piece *pieces,
                           uint32_t num_pieces, bool direct, mask_entry **out)
{
    const rad_env *env = &v->env;
    uint32_t count = 0;
    *out = NULL;
    mask_entry *e = rad_alloc(env, sizeof *e);
    if (!e) return RAD_E_NOMEM;
    e->direct = direct;
    e->refs = 1;
    for (uint32_t i = 0; i < v->words && !direct; i++)
        count += (uint32_t)__builtin_popcount(bits[i]);
    bool ok = true;
    if (count >= v->words / 4) {
        e->bits = rad_alloc(env, v->words * sizeof *bits);
        ok = e->bits != NULL;
        if (ok) memcpy(e->bits, bits, v->words * sizeof *bits);
        e->bytes = v->words * sizeof *bits;
    } else if (count) {
        e->tokens = rad_alloc(env, count * sizeof *e->tokens);
        ok = e->tokens != NULL;
        for (uint32_t i = 0; ok && i < v->words; i++)
            for (uint32_t left = bits[i]; left; left &= left - 1)
                e->tokens[e->num_tokens++] = (rad_token)(i * 32 + (uint32_t)__builtin_ctz(left));
        e->bytes = count * sizeof *e->tokens;
    }
    if (ok && num_pieces) ok = trie_make(&e->rest, env, pieces, num_pieces);
    e->bytes += sizeof *e + trie_bytes(&e->rest);
    if (!ok) {
        mask_entry_free(v, e);
        return RAD_E_NOMEM;
    }
    *out = e;
    return RAD_OK;
}

void mask_entry_free(grammar_vocab *v, mask_entry *e)
{
    trie_fini(&e->rest, &v->env);
    rad_free(&v->env, e->bits, v->words * sizeof *e->bits);
    rad_free(&v->env, e->tokens, e->num_tokens * sizeof *e->tokens);
    rad_free(&v->env, e, sizeof *e);
}

/* Out of the lists, with the lock held. */
static void take_out(grammar_vocab *v, mask_entry *e)
{
    mask_entry **at = &v->buckets[bucket_of(e->owner, e->state, e->left)];
    while (*at != e)
        at = &(*at)->next_in_bucket;
    *at = e->next_in_bucket;
    LIST_REMOVE(&v->used, e, used_before, used_after);
    if (e->owner) LIST_REMOVE(&e->owner->masks, e, owned_before, owned_after);
    v->cache_bytes -= e->bytes;
    e->kept = false;
}

static mask_entry *look_up(grammar_vocab *v, const grammar *owner, uint32_t name, uint64_t left)
{
    mask_entry *e = v->buckets[bucket_of(owner, name, left)];
    while (e && (e->owner != owner || e->state != name || e->left != left))
        e = e->next_in_bucket;
    return e;
}

mask_entry *mask_cache_find(grammar_vocab *v, grammar *g, uint32_t state, uint64_t left)
{
    grammar *owner;
    uint32_t name;
    name_of(g, state, &owner, &name);
    pthread_mutex_lock(&v->lock);
    mask_entry *e = look_up(v, owner, name, left);
    if (e) {
        e->refs++;
        v->hits++;
        LIST_REMOVE(&v->used, e, used_before, used_after);
        LIST_APPEND(&v->used, e, used_before, used_after);
    } else {
        v->misses++;
    }
    pthread_mutex_unlock(&v->lock);
    return e;
}

void mask_cache_keep(grammar_vocab *v, grammar *g, uint32_t state, uint64_t left, mask_entry *e)
{
    name_of(g, state, &e->owner, &e->state);
    e->left = left;
    pthread_mutex_lock(&v->lock);
    if (look_up(v, e->owner, e->state, left) || e->bytes > v->cache_limit) {
        pthread_mutex_unlock(&v->lock);
        return;
    }
    for (mask_entry *old = v->used.first, *next; old && v->cache_bytes + e->bytes > v->cache_limit;
         old = next) {
        next = old->used_after;
        if (old->refs) continue;
        take_out(v, old);
        mask_entry_free(v, old);
        v->evicted++;
    }
    if (v->cache_bytes + e->bytes <= v->cache_limit) {
        uint32_t bucket = bucket_of(e->owner, e->state, left);
        e->next_in_bucket = v->buckets[bucket];
        v->buckets[bucket] = e;
        LIST_APPEND(&v->used, e, used_before, used_after);
        if (e->owner) LIST_APPEND(&e->owner->masks, e, owned_before, owned_after);
        v->cache_bytes += e->bytes;
        e->kept = true;
    }
    pthread_mutex_unlock(&v->lock);
}

void mask_cache_release(grammar_vocab *v, mask_entry *e)
{
    pthread_mutex_lock(&v->lock);
    bool last = !--e->refs && !e->kept;
    pthread_mutex_unlock(&v->lock);
    if (last) mask_entry_free(v, e);
}

void mask_cache_drop(grammar_vocab *v, grammar *g)
{
    pthread_mutex_lock(&v->lock);
    while (g->masks.first) { /* nobody computes with a grammar that has no references */
        mask_entry *e = g->masks.first;
        take_out(v, e);
        mask_entry_free(v, e);
    }
    pthread_mutex_unlock(&v->lock);
}

void mask_cache_fini(grammar_vocab *v)
{
    while (v->used.first) {
        mask_entry *e = v->used.first;
        take_out(v, e);
        mask_entry_free(v, e);
    }
}
