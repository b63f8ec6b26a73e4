/* sim_cache.c - see the header. */
#include "replay/sim_cache.h"

#include "base/base.h"

#include <radish/kv_allocator.h>
#include <radish/match_handle.h>
#include <stdio.h>

struct sim_cache {
    rad_env env;
    rad_kv_allocator *alloc;
    rad_cache *cache;
    rad_slot *slots; /* of one request */
    rad_page *pages;
    uint32_t page_size;
    uint32_t room; /* entries of slots and pages */
};

rad_status sim_cache_create(const rad_env *env, const sim_cache_params *p, sim_cache **out,
                            rad_error *err)
{
    *out = NULL;
    rad_env full = rad_env_or_default(env);
    if (p->num_pages < 1 || p->num_pages >= INT32_MAX / p->page_size)
        return rad_fail(err, RAD_E_INVAL, "a capacity of %llu key elements is not between one page and %d",
                        (unsigned long long)p->num_pages * p->page_size, INT32_MAX);
    sim_cache *c = rad_alloc(&full, sizeof *c);
    if (!c) return rad_fail(err, RAD_E_NOMEM, "no memory for a cache");
    *c = (sim_cache){.env = full, .page_size = p->page_size, .room = p->longest + p->page_size};
    rad_kv_allocator_params a = {sizeof a, (uint32_t)p->num_pages, p->page_size};
    rad_status status = rad_kv_allocator_create(env, &a, &c->alloc, err);
    /* A node for every page: what is found must depend on the pool, not on its metadata. */
    rad_cache_params params = {.struct_size = sizeof params,
                               .kind = RAD_CACHE_RADIX,
                               .page_size = p->page_size,
                               .kv_allocator = c->alloc,
                               .max_nodes = (uint32_t)p->num_pages,
                               .eviction = p->eviction};
    if (status == RAD_OK) status = rad_cache_create(env, &params, &c->cache, err);
    c->slots = rad_alloc(&full, rad_mul(c->room, sizeof *c->slots));
    c->pages = rad_alloc(&full, rad_mul(c->room, sizeof *c->pages));
    if (status == RAD_OK && (!c->slots || !c->pages))
        status = rad_fail(err, RAD_E_NOMEM, "no memory for a request");
    if (status == RAD_OK)
        *out = c;
    else
        sim_cache_destroy(c);
    return status;
}

void sim_cache_destroy(sim_cache *c)
{
    if (!c) return;
    rad_env env = c->env;
    rad_free(&env, c->slots, rad_mul(c->room, sizeof *c->slots));
    rad_free(&env, c->pages, rad_mul(c->room, sizeof *c->pages));
    rad_cache_destroy(c->cache);
    rad_kv_allocator_destroy(c->alloc);
    rad_free(&env, c, sizeof *c);
}

typedef char namespace_name[12];

static rad_key key_of(const trace_request *r, uint32_t count, namespace_name name)
{
    snprintf(name, sizeof(namespace_name), "%u", r->number);
    return (rad_key){
        .tokens = r->elements, .num_tokens = count, .extra_key = r->number ? name : NULL};
}

uint32_t sim_cache_lookup(const sim_cache *c, const trace_request *r)
{
    namespace_name name;
    rad_match match = {0};
    const rad_key key = key_of(r, r->num_match, name);
    return rad_cache_lookup(c->cache, &key, &match) == RAD_OK ? match.prefix_tokens : 0;
}

/* Slots for elements [from, to), whole new pages; false when the pool cannot give them. */
static bool take_slots(sim_cache *c, uint32_t from, uint32_t to)
{
    uint32_t need = (to + c->page_size - 1) / c->page_size - from / c->page_size;
    uint32_t have = rad_kv_available_pages(c->alloc);
    if (need > have) rad_cache_evict(c->cache, (uint64_t)(need - have) * c->page_size, NULL, NULL);
    if (rad_kv_alloc(c->alloc, c->pages, need) != RAD_OK) return false;
    for (uint32_t i = from; i < to; i++)
        c->slots[i] = c->pages[(i - from) / c->page_size] * (rad_slot)c->page_size +
                      (rad_slot)(i % c->page_size);
    return true;
}

/* Behind the `hit` elements at `node`, which is locked. */
static rad_status insert(sim_cache *c, const trace_request *r, rad_ref node, uint32_t hit)
{
    namespace_name name;
    rad_inserted in;
    uint32_t all = r->num_elements;
    const rad_key key = key_of(r, all, name);
    rad_match_handle at = {.node = node, .num_tokens = hit};
    rad_status status = rad_cache_insert_from(c->cache, &at, &key, c->slots + hit, NULL, &in, NULL);
    /* Where the tree took nothing, all that is new goes back. */
    uint32_t had = status ? all : in.prefix_tokens;
    uint32_t whole = all / c->page_size * c->page_size;
    uint32_t back = RAD_MIN(had, whole);
    if (back > hit) rad_kv_free_slots(c->alloc, c->slots + hit, back - hit, NULL);
    if (all > whole) rad_kv_free_slots(c->alloc, c->slots + whole, all - whole, NULL);
    return status;
}

rad_status sim_cache_play(sim_cache *c, const trace_request *r, uint32_t *hit, bool *kept,
                          rad_error *err)
{
    namespace_name name;
    rad_match match = {0};
    rad_receipt lock = {0};
    const rad_key key = key_of(r, r->num_match, name);
    rad_status status = rad_cache_match_prefix(c->cache, &key, c->slots, &match, err);
    if (status) return status;
    *hit = match.prefix_tokens;
    rad_cache_inc_lock_ref(c->cache, match.last_node, &lock, NULL);
    *kept = take_slots(c, *hit, r->num_elements);
    if (*kept) status = insert(c, r, match.last_node, *hit);
    rad_cache_dec_lock_ref(c->cache, &lock, NULL);
    return status ? rad_fail(err, status, "insert: %s", rad_status_name(status)) : RAD_OK;
}

uint64_t sim_cache_evicted(const sim_cache *c)
{
    rad_cache_stats stats;
    rad_cache_get_stats(c->cache, &stats);
    return stats.evicted_tokens;
}

rad_status sim_cache_check(const sim_cache *c, rad_error *err)
{
    return rad_cache_check(c->cache, err);
}
