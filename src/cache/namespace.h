/* namespace.h - interned (extra_key, cache_salt) pairs, one tree root each.
 *
 * The table is of fixed size, names included, so a client that sends a new salt with
 * every request cannot grow it: when it is full the caller gives up the least useful
 * namespace. Names are kept and compared whole; the hash, which is keyed, only proposes.
 *
 * Worth: how often a namespace was hit, on top of the most that any given up was worth when
 * it was last used.
 *
 *     worth = age + 1 + hits           age: the most that one given up was worth
 *
 * So what was used often outlives what came once; what is used no more falls behind as the age
 * grows; and of those that came once the youngest goes first. With more users than places, each
 * coming in turn, an order by last use would give up just the one that comes next, and nobody
 * would be found; this way most places keep their users. */
#ifndef CACHE_NAMESPACE_H
#define CACHE_NAMESPACE_H

#include "base/hash_key.h"
#include "base/heap.h"
#include "base/map.h"
#include "base/slab.h"

/* Most bytes of the two names together, their terminating zeros counted. */
enum { NAMESPACE_TEXT = 512 - 24 };

/* Places where nobody says how many: one for each page, up to this. */
enum { NAMESPACE_MOST = 1 << 16 };

/* An (extra_key, cache_salt), either of which may be NULL. */
typedef struct namespace_name {
    uint32_t salt_at; /* of cache_salt in text */
    uint16_t has_extra;
    uint16_t has_salt;
    char text[NAMESPACE_TEXT];
} namespace_name;

typedef struct namespace_entry {
    uint32_t root; /* tree node */
    uint32_t hash;
    uint32_t older; /* by last use; 0 = none */
    uint32_t newer;
    namespace_name name;
} namespace_entry;

typedef struct namespace_worth {
    uint64_t worth;
    uint64_t created; /* how many were added before it */
    uint32_t hits;    /* up to a limit */
    uint32_t next;    /* of a list of the caller's */
} namespace_worth;

typedef struct namespaces {
    rad_env env;
    namespace_entry *entries; /* [capacity + 1] */
    namespace_worth *worth;   /* [capacity + 1] */
    slab ids;
    map by_name;
    hash_key key;   /* of by_name */
    heap by_worth;  /* keys may be lower than they should be: worth only grows */
    uint64_t age;   /* the most that one given up was worth */
    uint64_t added; /* since the start */
    uint64_t given_up;
    uint32_t oldest;
    uint32_t newest;
    uint32_t nameless; /* the id of what has neither name, which most requests ask for; or 0 */
} namespaces;

bool namespaces_init(namespaces *n, const rad_env *env, uint32_t capacity);
void namespaces_fini(namespaces *n);
size_t namespaces_bytes(uint32_t capacity);

/* Whether names of this length can be interned. */
bool namespace_fits(const char *extra_key, const char *cache_salt);

/* Keeps names that fit, reads them back, compares. */
void namespace_name_set(namespace_name *n, const char *extra_key, const char *cache_salt);
bool namespace_name_is(const namespace_name *n, const char *extra_key, const char *cache_salt);
static inline const char *namespace_extra_key(const namespace_name *n)
{
    return n->has_extra ? n->text : NULL;
}
static inline const char *namespace_cache_salt(const namespace_name *n)
{
    return n->has_salt ? n->text + n->salt_at : NULL;
}

uint32_t namespace_find(const namespaces *n, const char *extra_key, const char *cache_salt);

/* The names must fit and be absent, and an id be available. */
uint32_t namespace_add(namespaces *n, const char *extra_key, const char *cache_salt, uint32_t root);
void namespace_remove(namespaces *n, uint32_t id);

/* More hits than this count as this many, so that no namespace stays for ever. */
enum { NAMESPACE_MOST_HITS = 255 };

void namespace_move_last(namespaces *n, uint32_t id); /* in the order of use */

/* Now the one used last; `hit`: something of it was of use. O(1). */
static inline void namespace_touch(namespaces *n, uint32_t id, bool hit)
{
    namespace_worth *w = &n->worth[id];
    w->hits += hit & (w->hits < NAMESPACE_MOST_HITS);
    w->worth = n->age + 1 + w->hits;
    if (n->newest != id) namespace_move_last(n, id);
}

/* Takes the least useful one out of the order, 0 when there is none left in it. It is given up
 * (counted, and to be removed by the caller), or put back unchanged. O(log n). */
uint32_t namespaces_take_least(namespaces *n);
void namespaces_put_back(namespaces *n, uint32_t id);
void namespaces_give_up(namespaces *n, uint32_t id);

#endif
