/* heap.c - sift up, sift down.
 *
 * Invariant: no entry is less than its parent, and pos[] is the inverse of entries[]. */
#include "base/heap.h"

size_t heap_bytes(uint32_t capacity)
{
    return (size_t)capacity * sizeof(heap_entry) + ((size_t)capacity + 1) * sizeof(uint32_t);
}

bool heap_init(heap *h, const rad_env *env, uint32_t capacity)
{
    *h = (heap){.capacity = capacity, .env = *env};
    h->entries = rad_alloc_sparse(env, rad_mul(capacity, sizeof *h->entries));
    h->pos = rad_alloc_sparse(env, ((size_t)capacity + 1) * sizeof *h->pos);
    return h->entries && h->pos;
}

void heap_fini(heap *h)
{
    rad_free_sparse(&h->env, h->entries, (size_t)h->capacity * sizeof *h->entries);
    rad_free_sparse(&h->env, h->pos, ((size_t)h->capacity + 1) * sizeof *h->pos);
    *h = (heap){0};
}

static bool less(const heap_entry *a, const heap_entry *b)
{
    return a->key_and_id < b->key_and_id;
}

static heap_entry entry_of(uint32_t id, heap_key key)
{
    return (heap_entry){key << 32 | id};
}

static void put(heap *h, uint32_t at, heap_entry entry)
{
    h->entries[at] = entry;
    h->pos[heap_entry_id(&entry)] = at + 1;
}

static void sift_up(heap *h, uint32_t at, heap_entry entry)
{
    while (at > 0) {
        uint32_t parent = (at - 1) / HEAP_ARITY;
        if (!less(&entry, &h->entries[parent])) break;
        put(h, at, h->entries[parent]);
        at = parent;
    }
    put(h, at, entry);
}

static void sift_down(heap *h, uint32_t at, heap_entry entry)
{
    for (;;) {
        uint64_t first = (uint64_t)at * HEAP_ARITY + 1;
        if (first >= h->count) break;
        uint32_t end = (uint32_t)RAD_MIN(first + HEAP_ARITY, (uint64_t)h->count);
        uint32_t best = (uint32_t)first;
        for (uint32_t i = best + 1; i < end; i++)
            if (less(&h->entries[i], &h->entries[best])) best = i;
        if (!less(&h->entries[best], &entry)) break;
        put(h, at, h->entries[best]);
        at = best;
    }
    put(h, at, entry);
}

void heap_push(heap *h, uint32_t id, heap_key key)
{
    RAD_ASSERT_ENV(&h->env, id >= 1 && id <= h->capacity && !h->pos[id]);
    sift_up(h, h->count++, entry_of(id, key));
}

/* The entry at `at` has another key now, or is another one. */
static void settle(heap *h, uint32_t at, heap_entry entry)
{
    if (at > 0 && less(&entry, &h->entries[(at - 1) / HEAP_ARITY]))
        sift_up(h, at, entry);
    else
        sift_down(h, at, entry);
}

void heap_remove(heap *h, uint32_t id)
{
    if (!h->pos[id]) return;
    uint32_t at = h->pos[id] - 1;
    h->pos[id] = 0;
    heap_entry last = h->entries[--h->count];
    if (at < h->count) settle(h, at, last);
}

void heap_rekey(heap *h, uint32_t id, heap_key key)
{
    RAD_ASSERT_ENV(&h->env, h->pos[id] != 0);
    settle(h, h->pos[id] - 1, entry_of(id, key));
}

void heap_clear(heap *h)
{
    for (uint32_t i = 0; i < h->count; i++)
        h->pos[heap_entry_id(&h->entries[i])] = 0;
    h->count = 0;
}

bool heap_check(const heap *h)
{
    uint32_t present = 0;
    for (uint32_t i = 0; i < h->count; i++) {
        const heap_entry *e = &h->entries[i];
        uint32_t id = heap_entry_id(e);
        if (id < 1 || id > h->capacity || h->pos[id] != i + 1) return false;
        if (i && less(e, &h->entries[(i - 1) / HEAP_ARITY])) return false;
    }
    for (uint32_t id = 1; id <= h->capacity; id++)
        present += h->pos[id] != 0;
    return present == h->count;
}
