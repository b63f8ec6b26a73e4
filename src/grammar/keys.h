/* keys.h - numbers 0, 1, 2 ... for 64-bit keys, in the order of their coming. Private. */
#ifndef GRAMMAR_KEYS_H
#define GRAMMAR_KEYS_H

#include "grammar/memory.h"

#define NO_KEY UINT32_MAX

typedef struct gr_keys {
    gr_mem *mem;
    uint64_t *key; /* by number */
    uint32_t count, cap;
    gr_slots slots;
} gr_keys;

void keys_init(gr_keys *k, gr_mem *mem);
void keys_fini(gr_keys *k);
uint32_t keys_find(const gr_keys *k, uint64_t key); /* NO_KEY: it did not come yet */
uint32_t keys_add(gr_keys *k, uint64_t key);        /* after a failure 0 */

#endif
