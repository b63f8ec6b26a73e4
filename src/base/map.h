/* map.h - an open-addressing table from 32-bit hashes to ids.
 *
 * The table holds (hash, id) and nothing of the keys: whoever looks up walks the ids
 * with an equal hash and compares the real keys. Eight bytes an entry, linear probing,
 * at most two thirds full; a removal shifts its followers back, so there are no
 * tombstones and a table that was busy for a year is as fast as a new one. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/base.h"

typedef struct map_entry {
    uint32_t hash;
    uint32_t id; /* 0 = empty */
} map_entry;

typedef struct map {
    map_entry *entries;
    uint32_t mask; /* entries - 1, a power of two less one */
    uint32_t count;
    uint32_t slots; /* there are, of which mask + 1 are used */
    rad_env env;    /* of its memory, and for its panic */
} map;

/* Room for `capacity` entries. False when there is no memory. */
bool map_init(map *m, const rad_env *env, uint32_t capacity);
void map_fini(map *m); /* a zeroed one is fine */
size_t map_bytes(uint32_t capacity);

/* Moves the entries to a larger table, with room for `capacity` of them; a zeroed map has none yet.
 * False when there is no memory: then it is as it was. O(capacity). */
bool map_move(map *m, const rad_env *env, uint32_t capacity);

/* A map that has room for many and mostly has few uses a part of its memory, so that lookups stay
 * in the CPU's caches; at most a sixth full, as long as there is more: a lookup that finds nothing
 * then mostly looks at one place, and the branch that ends it is predicted. This is for an empty
 * map and goes back to the smallest part; inserts double it. */
void map_keep_small(map *m);

/* O(1); O(the part in use) where that doubles. */
void map_insert(map *m, uint32_t hash, uint32_t id);
bool map_remove(map *m, uint32_t hash, uint32_t id);                    /* false: absent */
bool map_replace(map *m, uint32_t hash, uint32_t id, uint32_t with_id); /* false: absent */
void map_clear(map *m);

/* Asks for the place of this hash, which is looked up soon. */
static inline void map_prefetch(const map *m, uint32_t hash)
{
    __builtin_prefetch(&m->entries[hash & m->mask], 1);
}

/* The ids with this hash, one after the other:
 *     uint32_t at = map_start(m, hash);
 *     for (uint32_t id; (id = map_next(m, hash, &at));) ... */
static inline uint32_t map_start(const map *m, uint32_t hash)
{
    return hash & m->mask;
}

static inline uint32_t map_next(const map *m, uint32_t hash, uint32_t *at)
{
    for (;;) {
        map_entry e = m->entries[*at];
        if (!e.id) return 0;
        *at = (*at + 1) & m->mask;
        if (e.hash == hash) return e.id;
    }
}

#endif
