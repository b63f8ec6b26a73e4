/* namespace.c - a slab of names, a map by hash, a list by last use. */
#include "cache/namespace.h"

#include "cache/radix_key.h"

#include <assert.h>

static_assert(sizeof(namespace_entry) == 512, "a namespace is eight cache lines");

size_t namespaces_bytes(uint32_t capacity)
{
    return ((size_t)capacity + 1) * sizeof(namespace_entry) + slab_bytes(capacity) +
           map_bytes(capacity);
}

bool namespaces_init(namespaces *n, const rad_env *env, uint32_t capacity)
{
    *n = (namespaces){0};
    bool ids = slab_init(&n->ids, env, capacity), names = map_init(&n->by_name, env, capacity);
    n->entries = rad_alloc(env, rad_mul((size_t)capacity + 1, sizeof *n->entries));
    return ids && names && n->entries;
}

void namespaces_fini(namespaces *n, const rad_env *env)
{
    rad_free(env, n->entries, ((size_t)n->ids.capacity + 1) * sizeof *n->entries);
    slab_fini(&n->ids, env);
    map_fini(&n->by_name, env);
    n->entries = NULL;
}

bool namespace_fits(const char *extra_key, const char *cache_salt)
{
    size_t extra = extra_key ? strnlen(extra_key, NAMESPACE_TEXT) + 1 : 0;
    size_t salt = cache_salt ? strnlen(cache_salt, NAMESPACE_TEXT) + 1 : 0;
    return extra + salt <= NAMESPACE_TEXT;
}

static bool same(const char *given, const char *kept, bool has)
{
    return given ? has && strcmp(given, kept) == 0 : !has;
}

uint32_t namespace_find(const namespaces *n, const char *extra_key, const char *cache_salt)
{
    uint32_t hash = key_namespace_hash(extra_key, cache_salt);
    uint32_t at = map_start(&n->by_name, hash);
    for (uint32_t id; (id = map_next(&n->by_name, hash, &at));) {
        const namespace_entry *e = &n->entries[id];
        if (same(extra_key, e->text, e->has_extra) &&
            same(cache_salt, e->text + e->salt_at, e->has_salt))
            return id;
    }
    return 0;
}

static void list_append(namespaces *n, uint32_t id)
{
    namespace_entry *e = &n->entries[id];
    e->older = n->newest;
    e->newer = 0;
    *(n->newest ? &n->entries[n->newest].newer : &n->oldest) = id;
    n->newest = id;
}

static void list_remove(namespaces *n, uint32_t id)
{
    namespace_entry *e = &n->entries[id];
    *(e->older ? &n->entries[e->older].newer : &n->oldest) = e->newer;
    *(e->newer ? &n->entries[e->newer].older : &n->newest) = e->older;
}

uint32_t namespace_add(namespaces *n, const char *extra_key, const char *cache_salt, uint32_t root)
{
    uint32_t id = slab_alloc(&n->ids);
    RAD_ASSERT(id != 0 && namespace_fits(extra_key, cache_salt));
    namespace_entry *e = &n->entries[id];
    *e = (namespace_entry){.root = root, .hash = key_namespace_hash(extra_key, cache_salt)};
    if (extra_key) {
        e->has_extra = 1;
        e->salt_at = (uint32_t)strlen(extra_key) + 1;
        memcpy(e->text, extra_key, e->salt_at);
    }
    if (cache_salt) {
        e->has_salt = 1;
        memcpy(e->text + e->salt_at, cache_salt, strlen(cache_salt) + 1);
    }
    map_insert(&n->by_name, e->hash, id);
    list_append(n, id);
    return id;
}

void namespace_remove(namespaces *n, uint32_t id)
{
    RAD_ASSERT(map_remove(&n->by_name, n->entries[id].hash, id));
    list_remove(n, id);
    slab_free(&n->ids, id);
}

void namespace_touch(namespaces *n, uint32_t id)
{
    if (n->newest == id) return;
    list_remove(n, id);
    list_append(n, id);
}
