/* keys.c - a hash table of 64-bit keys; they are chosen by users, hence the steps that are counted.
 */
#include "grammar/keys.h"

#include "base/mix64.h"

void keys_init(gr_keys *k, gr_mem *mem)
{
    *k = (gr_keys){.mem = mem};
}

void keys_fini(gr_keys *k)
{
    if (!k->mem) return;
    GR_DROP(k->mem, k->key, k->cap);
    gr_slots_drop(k->mem, &k->slots);
    *k = (gr_keys){0};
}

uint32_t keys_find(const gr_keys *k, uint64_t key)
{
    if (!k->slots.cap) return NO_KEY;
    uint64_t h = mix64(key);
    for (uint32_t id; (id = *gr_slot(&k->slots, h)); h++)
        if (k->key[id - 1] == key) return id - 1;
    return NO_KEY;
}

static uint64_t key_hash(const void *owner, uint32_t id)
{
    return mix64(((const gr_keys *)owner)->key[id]);
}

uint32_t keys_add(gr_keys *k, uint64_t key)
{
    uint32_t id = keys_find(k, key);
    gr_work(k->mem, 1);
    if (id != NO_KEY) return id;
    if (!gr_slots_room(k->mem, &k->slots, 0, k->count, key_hash, k) ||
        !GR_GROW(k->mem, k->key, k->cap, (uint64_t)k->count + 1))
        return 0;
    uint64_t h = mix64(key);
    while (*gr_slot(&k->slots, h))
        h++;
    *gr_slot(&k->slots, h) = k->count + 1;
    k->key[k->count] = key;
    return k->count++;
}
