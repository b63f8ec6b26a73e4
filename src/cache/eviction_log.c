/* eviction_log.c - a ring of fingerprints of evicted pages. */
#include "cache/eviction_log.h"

static uint32_t hash_of(const eviction_log *l, uint64_t fingerprint)
{
    return hash_mix(&l->key, fingerprint);
}

bool eviction_log_init(eviction_log *l, const rad_env *env, uint32_t capacity)
{
    *l = (eviction_log){.capacity = capacity, .env = *env};
    hash_key_init(&l->key, env);
    l->records = rad_alloc(env, rad_mul((size_t)capacity + 1, sizeof *l->records));
    return map_init(&l->by_fingerprint, env, capacity) && l->records;
}

void eviction_log_fini(eviction_log *l)
{
    rad_free(&l->env, l->records, ((size_t)l->capacity + 1) * sizeof *l->records);
    if (l->by_fingerprint.entries) map_fini(&l->by_fingerprint);
    *l = (eviction_log){0};
}

size_t eviction_log_bytes(const eviction_log *l)
{
    return l->capacity ? ((size_t)l->capacity + 1) * sizeof *l->records + map_bytes(l->capacity)
                       : 0;
}

static uint32_t find(const eviction_log *l, uint64_t fingerprint)
{
    uint32_t hash = hash_of(l, fingerprint), at = map_start(&l->by_fingerprint, hash);
    for (uint32_t id; (id = map_next(&l->by_fingerprint, hash, &at));)
        if (l->records[id].fingerprint == fingerprint) return id;
    return 0;
}

const eviction_record *eviction_log_find(const eviction_log *l, uint64_t fingerprint)
{
    uint32_t id = l->capacity ? find(l, fingerprint) : 0;
    return id ? &l->records[id] : NULL;
}

static void retire(eviction_log *l, uint32_t id)
{
    bool was = map_remove(&l->by_fingerprint, hash_of(l, l->records[id].fingerprint), id);
    RAD_ASSERT_ENV(&l->env, was);
    l->records[id].live = 0;
}

void eviction_log_add(eviction_log *l, const eviction_record *record)
{
    uint32_t id = l->last == l->capacity ? 1 : l->last + 1, older = find(l, record->fingerprint);
    if (older) retire(l, older);
    if (l->records[id].live) retire(l, id);
    l->records[id] = *record;
    l->records[id].live = 1;
    l->last = id;
    map_insert(&l->by_fingerprint, hash_of(l, record->fingerprint), id);
}

void eviction_log_forget(eviction_log *l)
{
    if (!l->capacity) return;
    map_clear(&l->by_fingerprint);
    memset(l->records, 0, ((size_t)l->capacity + 1) * sizeof *l->records);
    l->last = 0;
}

void eviction_notes_add(eviction_notes *notes, const eviction_note *note)
{
    eviction_note *last = &notes->last[(notes->count + EVICTION_NOTES - 1) % EVICTION_NOTES];
    notes->tokens[note->on_host][note->cause] += note->tokens;
    /* A leaf that loses its tail page by page is one line. */
    if (notes->count && last->node == note->node && last->generation == note->generation &&
        last->on_host == note->on_host && last->cause == note->cause) {
        const uint32_t before = last->tokens;
        *last = *note;
        last->tokens += before;
        return;
    }
    notes->last[notes->count++ % EVICTION_NOTES] = *note;
}
