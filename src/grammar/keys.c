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
    GR_DROP(k->mem, k->slots, k->cap_slots);
    *k = (gr_keys){0};
}

uint32_t keys_find(const gr_keys *k, uint64_t key)
{
    if (!k->cap_slots) return NO_KEY;
    uint64_t h = mix64(key);
    for (uint32_t id; (id = k->slots[h & (k->cap_slots - 1)]); h++)
        if (k->key[id - 1] == key) return id - 1;
    return NO_KEY;
}

static bool grow(gr_keys *k)
{
    uint32_t *slots = NULL, cap = 0;
    if (!GR_GROW(k->mem, slots, cap, RAD_MAX((uint64_t)k->cap_slots * 2, 64u))) return false;
    for (uint32_t i = 0; i < k->count; i++) {
        uint64_t h = mix64(k->key[i]);
        while (slots[h & (cap - 1)])
            h++;
        slots[h & (cap - 1)] = i + 1;
    }
    GR_DROP(k->mem, k->slots, k->cap_slots);
    k->slots = slots;
    k->cap_slots = cap;
    return true;
}

uint32_t keys_add(gr_keys *k, uint64_t key)
{
    uint32_t id = keys_find(k, key);
    gr_work(k->mem, 1);
    if (id != NO_KEY) return id;
    if (((uint64_t)k->count * 2 >= k->cap_slots && !grow(k)) ||
        !GR_GROW(k->mem, k->key, k->cap, (uint64_t)k->count + 1))
        return 0;
    uint64_t h = mix64(key);
    while (k->slots[h & (k->cap_slots - 1)])
        h++;
    k->slots[h & (k->cap_slots - 1)] = k->count + 1;
    k->key[k->count] = key;
    return k->count++;
}
