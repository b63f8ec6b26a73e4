/* heap.h - a min-heap of small ids with cached keys.
 *
 * Four children to a parent: the entries compared in one step share a cache line, and
 * a million of them are ten levels. `pos` finds an id's entry without a search, so a
 * member can be removed or get another key in O(log n). The order is total: key, then
 * id. Keys have 96 bits, what fills a quarter of a cache line with the id. Ids are 1..capacity;
 * each is in the heap at most once. */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include "base/base.h"

enum { HEAP_ARITY = 4 };

__extension__ typedef unsigned __int128 heap_key; /* below 2^96 */

/* Key and id as one number, so that one comparison without a branch orders them. */
typedef struct heap_entry {
    heap_key key_and_id; /* the key, 32 places higher than itself, and the id */
} heap_entry;

static inline heap_key heap_entry_key(const heap_entry *e)
{
    return e->key_and_id >> 32;
}

static inline uint32_t heap_entry_id(const heap_entry *e)
{
    return (uint32_t)e->key_and_id;
}

typedef struct heap {
    heap_entry *entries; /* [capacity] */
    uint32_t *pos;       /* [capacity + 1] place + 1, or 0 when absent */
    uint32_t count;
    uint32_t capacity;
    rad_env env; /* of its memory, and for its panic */
} heap;

/* False when there is no memory; heap_fini copes with what there is then. */
bool heap_init(heap *h, const rad_env *env, uint32_t capacity);
void heap_fini(heap *h);
size_t heap_bytes(uint32_t capacity);

static inline bool heap_contains(const heap *h, uint32_t id)
{
    return h->pos[id] != 0;
}

static inline heap_key heap_key_of(const heap *h, uint32_t id) /* must be present */
{
    return heap_entry_key(&h->entries[h->pos[id] - 1]);
}

void heap_push(heap *h, uint32_t id, heap_key key);  /* must be absent */
void heap_remove(heap *h, uint32_t id);              /* absent is fine */
void heap_rekey(heap *h, uint32_t id, heap_key key); /* must be present */
void heap_clear(heap *h);

/* Whether places, ids and order are consistent. O(n). */
bool heap_check(const heap *h);

#endif
