/* namespace.h - interned (extra_key, cache_salt) pairs, one tree root each.
 *
 * The table is of fixed size, names included, so a client that sends a new salt with
 * every request cannot grow it: when it is full the caller gives up the namespace used
 * least recently. Names are kept and compared whole; the hash only proposes. */
#ifndef CACHE_NAMESPACE_H
#define CACHE_NAMESPACE_H

#include "base/map.h"
#include "base/slab.h"

/* Most bytes of the two names together, their terminating zeros counted. */
enum { NAMESPACE_TEXT = 512 - 24 };

typedef struct namespace_entry {
    uint32_t root; /* tree node */
    uint32_t hash;
    uint32_t older; /* by last use; 0 = none */
    uint32_t newer;
    uint32_t salt_at; /* of cache_salt in text */
    uint16_t has_extra;
    uint16_t has_salt;
    char text[NAMESPACE_TEXT];
} namespace_entry;

typedef struct namespaces {
    namespace_entry *entries; /* [capacity + 1] */
    slab ids;
    map by_name;
    uint32_t oldest;
    uint32_t newest;
} namespaces;

bool namespaces_init(namespaces *n, const rad_env *env, uint32_t capacity);
void namespaces_fini(namespaces *n, const rad_env *env);
size_t namespaces_bytes(uint32_t capacity);

/* Whether names of this length can be interned. */
bool namespace_fits(const char *extra_key, const char *cache_salt);

uint32_t namespace_find(const namespaces *n, const char *extra_key, const char *cache_salt);

/* The names must fit and be absent, and an id be available. */
uint32_t namespace_add(namespaces *n, const char *extra_key, const char *cache_salt, uint32_t root);
void namespace_remove(namespaces *n, uint32_t id);
void namespace_touch(namespaces *n, uint32_t id); /* now the one used last */

#endif
