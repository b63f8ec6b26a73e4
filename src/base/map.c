/* map.c - linear probing with removal by backward shift.
 *
 * Invariant: from an entry's home (hash & mask) to its place no slot is empty. */
#include "base/map.h"

static uint32_t slots_for(uint32_t capacity)
{
    uint64_t want = (uint64_t)capacity + capacity / 2 + 1, slots = 8;
    while (slots < want)
        slots *= 2;
    return slots > UINT32_MAX ? 0 : (uint32_t)slots;
}

size_t map_bytes(uint32_t capacity)
{
    return (size_t)slots_for(capacity) * sizeof(map_entry);
}

bool map_init(map *m, const rad_env *env, uint32_t capacity)
{
    uint32_t slots = slots_for(capacity);
    *m = (map){.mask = slots - 1, .slots = slots, .env = *env};
    m->entries = rad_alloc_sparse(env, (size_t)slots * sizeof *m->entries);
    return m->entries != NULL;
}

void map_fini(map *m)
{
    rad_free_sparse(&m->env, m->entries, (size_t)m->slots * sizeof *m->entries);
    *m = (map){0};
}

void map_keep_small(map *m)
{
    enum { SMALL = 1024 };
    m->mask = RAD_MIN(m->slots, (uint32_t)SMALL) - 1;
}

static void place(map *m, map_entry entry)
{
    uint32_t at = entry.hash & m->mask;
    while (m->entries[at].id)
        at = (at + 1) & m->mask;
    m->entries[at] = entry;
}

/* Doubles the part in use. A home stays, or moves on by the old size; the entries are moved one by
 * one, each run from its front. So each finds its new place among those moved before it, at its old
 * place or the one an old size behind that at the latest, and none that moves later leaves a hole
 * in front of it. */
static void grow(map *m)
{
    uint32_t old = m->mask, gap = 0;
    while (m->entries[gap].id) /* behind an empty slot a run begins */
        gap++;
    m->mask = 2 * old + 1;
    for (uint32_t i = 1; i <= old; i++) {
        map_entry *from = &m->entries[(gap + i) & old], entry = *from;
        *from = (map_entry){0, 0};
        if (entry.id) place(m, entry);
    }
}

void map_insert(map *m, uint32_t hash, uint32_t id)
{
    if (m->mask + 1 < m->slots && m->count >= m->mask / 6) grow(m);
    RAD_ASSERT_ENV(&m->env, m->count < m->mask);
    place(m, (map_entry){hash, id});
    m->count++;
}

bool map_move(map *m, const rad_env *env, uint32_t capacity)
{
    map larger;
    if (!map_init(&larger, env, capacity)) return false;
    for (uint32_t at = 0; m->entries && at <= m->mask; at++)
        if (m->entries[at].id) map_insert(&larger, m->entries[at].hash, m->entries[at].id);
    map_fini(m);
    *m = larger;
    return true;
}

static map_entry *find(map *m, uint32_t hash, uint32_t id)
{
    for (uint32_t at = hash & m->mask; m->entries[at].id; at = (at + 1) & m->mask)
        if (m->entries[at].id == id) return &m->entries[at];
    return NULL;
}

bool map_remove(map *m, uint32_t hash, uint32_t id)
{
    map_entry *entry = find(m, hash, id);
    if (!entry) return false;
    uint32_t hole = (uint32_t)(entry - m->entries);
    for (uint32_t at = (hole + 1) & m->mask; m->entries[at].id; at = (at + 1) & m->mask) {
        uint32_t home = m->entries[at].hash & m->mask;
        /* It may move back unless its home lies behind the hole. */
        if (((at - home) & m->mask) >= ((at - hole) & m->mask)) {
            m->entries[hole] = m->entries[at];
            hole = at;
        }
    }
    m->entries[hole] = (map_entry){0, 0};
    m->count--;
    return true;
}

bool map_replace(map *m, uint32_t hash, uint32_t id, uint32_t with_id)
{
    map_entry *entry = find(m, hash, id);
    if (entry) entry->id = with_id;
    return entry != NULL;
}

void map_clear(map *m)
{
    memset(m->entries, 0, ((size_t)m->mask + 1) * sizeof *m->entries);
    m->count = 0;
}
