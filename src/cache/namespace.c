/* namespace.c - a slab of names, a map by hash, a list by last use, a heap by worth.
 *
 * The heap is lazy: a use changes the worth and not the place, which is put right when the
 * namespace comes to the top. Worth only grows, so nothing less useful is ever below it. */
#include "cache/namespace.h"

#include "cache/radix_key.h"

#include <assert.h>

static_assert(sizeof(namespace_entry) == 512, "a namespace is eight cache lines");

size_t namespaces_bytes(uint32_t capacity)
{
    return ((size_t)capacity + 1) * (sizeof(namespace_entry) + sizeof(namespace_worth)) +
           slab_bytes(capacity) + map_bytes(capacity) + heap_bytes(capacity);
}

bool namespaces_init(namespaces *n, const rad_env *env, uint32_t capacity)
{
    *n = (namespaces){.env = *env};
    hash_key_init(&n->key, env);
    bool ids = slab_init(&n->ids, env, capacity), names = map_init(&n->by_name, env, capacity);
    bool order = heap_init(&n->by_worth, env, capacity);
    n->entries = rad_alloc_sparse(env, rad_mul((size_t)capacity + 1, sizeof *n->entries));
    n->worth = rad_alloc_sparse(env, rad_mul((size_t)capacity + 1, sizeof *n->worth));
    return ids && names && order && n->entries && n->worth;
}

void namespaces_fini(namespaces *n)
{
    size_t places = (size_t)n->ids.capacity + 1;
    rad_free_sparse(&n->env, n->entries, places * sizeof *n->entries);
    rad_free_sparse(&n->env, n->worth, places * sizeof *n->worth);
    slab_fini(&n->ids);
    map_fini(&n->by_name);
    heap_fini(&n->by_worth);
    *n = (namespaces){0};
}

bool namespace_fits(const char *extra_key, const char *cache_salt)
{
    size_t extra = extra_key ? strnlen(extra_key, NAMESPACE_TEXT) + 1 : 0;
    size_t salt = cache_salt ? strnlen(cache_salt, NAMESPACE_TEXT) + 1 : 0;
    return extra + salt <= NAMESPACE_TEXT;
}

void namespace_name_set(namespace_name *n, const char *extra_key, const char *cache_salt)
{
    n->has_extra = extra_key != NULL;
    n->has_salt = cache_salt != NULL;
    n->salt_at = extra_key ? (uint32_t)strlen(extra_key) + 1 : 0;
    if (extra_key) memcpy(n->text, extra_key, n->salt_at);
    if (cache_salt) memcpy(n->text + n->salt_at, cache_salt, strlen(cache_salt) + 1);
}

static bool same(const char *given, const char *kept)
{
    return given && kept ? strcmp(given, kept) == 0 : given == kept;
}

bool namespace_name_is(const namespace_name *n, const char *extra_key, const char *cache_salt)
{
    return same(extra_key, namespace_extra_key(n)) && same(cache_salt, namespace_cache_salt(n));
}

uint32_t namespace_find(const namespaces *n, const char *extra_key, const char *cache_salt)
{
    if (!extra_key && !cache_salt) return n->nameless;
    uint32_t hash = key_namespace_hash(&n->key, extra_key, cache_salt);
    uint32_t at = map_start(&n->by_name, hash);
    for (uint32_t id; (id = map_next(&n->by_name, hash, &at));)
        if (namespace_name_is(&n->entries[id].name, extra_key, cache_salt)) return id;
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

/* Lowest first: the least worth, and of those equal in it the youngest. */
static heap_key order_of(const namespaces *n, uint32_t id)
{
    const namespace_worth *w = &n->worth[id];
    const uint64_t most = ((uint64_t)1 << 40) - 1;
    return (heap_key)w->worth << 40 | (most - (w->created & most));
}

uint32_t namespace_add(namespaces *n, const char *extra_key, const char *cache_salt, uint32_t root)
{
    uint32_t id = slab_alloc(&n->ids);
    RAD_ASSERT_ENV(&n->env, id != 0 && namespace_fits(extra_key, cache_salt));
    namespace_entry *e = &n->entries[id];
    *e =
        (namespace_entry){.root = root, .hash = key_namespace_hash(&n->key, extra_key, cache_salt)};
    namespace_name_set(&e->name, extra_key, cache_salt);
    map_insert(&n->by_name, e->hash, id);
    list_append(n, id);
    if (!extra_key && !cache_salt) n->nameless = id;
    n->worth[id] = (namespace_worth){.worth = n->age + 1, .created = n->added++};
    heap_push(&n->by_worth, id, order_of(n, id));
    return id;
}

void namespace_remove(namespaces *n, uint32_t id)
{
    bool found = map_remove(&n->by_name, n->entries[id].hash, id);
    RAD_ASSERT_ENV(&n->env, found);
    if (n->nameless == id) n->nameless = 0;
    list_remove(n, id);
    heap_remove(&n->by_worth, id);
    slab_free(&n->ids, id);
}

void namespace_move_last(namespaces *n, uint32_t id)
{
    list_remove(n, id);
    list_append(n, id);
}

uint32_t namespaces_take_least(namespaces *n)
{
    while (n->by_worth.count) {
        heap_entry top = n->by_worth.entries[0];
        uint32_t id = heap_entry_id(&top);
        heap_key now = order_of(n, id);
        if (now != heap_entry_key(&top)) { /* used since it was filed */
            heap_rekey(&n->by_worth, id, now);
            continue;
        }
        heap_remove(&n->by_worth, id);
        return id;
    }
    return 0;
}

void namespaces_put_back(namespaces *n, uint32_t id)
{
    heap_push(&n->by_worth, id, order_of(n, id));
}

void namespaces_give_up(namespaces *n, uint32_t id)
{
    n->age = RAD_MAX(n->age, n->worth[id].worth); /* one that was in use may be worth less */
    n->given_up++;
}
