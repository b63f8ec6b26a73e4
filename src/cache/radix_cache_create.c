/* radix_cache_create.c - a RadixCache from its params: what the tree may grow to, which components
 * it has, whose pages it holds; and its end. */
#include "cache/radix_cache.h"

#include "base/bits.h"
#include "cache/radix_journal.h"
#include "cache/radix_state.h"
#include "cache/radix_window.h"
#include "mem/kv_bits.h"

/* Of a cache that is told neither tokens nor a pool. */
#define UNKNOWN_NODES      ((uint64_t)1 << 16)
#define UNKNOWN_NAMESPACES ((uint64_t)1 << 12)

static rad_status read_eviction(rad_eviction_options *e, bool has_key, rad_error *err)
{
    if (!rad_eviction_policy_name(e->policy))
        return rad_fail(err, RAD_E_INVAL, "radix_cache: there is no eviction policy %u", e->policy);
    if (e->policy == RAD_EVICT_USER && !has_key)
        return rad_fail(err, RAD_E_INVAL, "radix_cache: a user's eviction policy needs evict_key");
    if (!e->protected_threshold) e->protected_threshold = RAD_EVICT_PROTECTED_THRESHOLD;
    if (!e->cost_half_life_percent) e->cost_half_life_percent = RAD_EVICT_COST_HALF_LIFE_PERCENT;
    if (!e->cost_attention_tokens) e->cost_attention_tokens = RAD_EVICT_COST_ATTENTION_TOKENS;
    return RAD_OK;
}

/* A node has a page at least and a namespace a node, so with one of each for a page neither limit
 * is met before the pool is full: short branches and many users cost no hit. */
static rad_status limits_from(const rad_cache_params *p, const radix_host_params *host,
                              radix_limits *l, rad_error *err)
{
    uint64_t max_tokens = p->max_tokens;
    if (!max_tokens)
        max_tokens = p->kv_allocator ? (uint64_t)rad_kv_num_pages(p->kv_allocator) * p->page_size
                     : p->free_list  ? (uint64_t)p->free_list->num_pages * p->page_size
                                     : 1u << 20;
    uint64_t pages = max_tokens / p->page_size + (max_tokens % p->page_size != 0);
    bool unknown = !p->max_tokens && !p->kv_allocator && !p->free_list;
    uint64_t below = host ? host->pages : 0; /* a node may be on the host alone */
    uint64_t nodes = RAD_MIN(pages, unknown ? UNKNOWN_NODES : (uint64_t)INT32_MAX / 4);
    uint64_t spaces = RAD_MIN(pages + below, unknown ? UNKNOWN_NAMESPACES : NAMESPACE_MOST);
    if (p->max_nodes) nodes = p->max_nodes;
    if (p->max_namespaces) spaces = p->max_namespaces;
    nodes += below;
    if (pages + below > INT32_MAX || nodes + spaces > INT32_MAX / 2)
        return rad_fail(
            err, RAD_E_LIMIT, "radix_cache: %llu pages, %llu nodes, %llu namespaces are too many",
            (unsigned long long)pages, (unsigned long long)nodes, (unsigned long long)spaces);
    *l = (radix_limits){.page_size = p->page_size,
                        .max_nodes = (uint32_t)nodes,
                        .max_namespaces = (uint32_t)spaces,
                        .max_pages = (uint32_t)pages,
                        .bigram = p->is_eagle != 0,
                        .eviction = p->eviction,
                        .evict_key = p->evict_key,
                        .evict_user = p->evict_user,
                        .max_pinned_pages = p->max_pinned_tokens / p->page_size,
                        .keeps = p->max_pinned_tokens || p->retention,
                        .max_sessions = p->max_sessions};
    if (p->max_sessions > SESSION_MOST)
        return rad_fail(err, RAD_E_LIMIT, "radix_cache: %u sessions (%d at most)", p->max_sessions,
                        SESSION_MOST);
    if (host) {
        l->host_pages = host->pages;
        l->host_eviction = host->eviction;
        l->host_max_pinned_pages = host->max_pinned_tokens / p->page_size;
        rad_status status = read_eviction(&l->host_eviction, false, err);
        if (status) return status;
    }
    return read_eviction(&l->eviction, p->evict_key != NULL, err);
}

void radix_cache_destroy(rad_cache *cache)
{
    radix_cache *c = (radix_cache *)cache;
    rad_env env = c->base.env;
    radix_tree_fini(&c->tree);
    if (c->own_bits)
        rad_free(&env, c->own_bits, bits_words(c->cached_pages) * sizeof *c->own_bits);
    else if (c->cached.words)
        kv_return_lane(c->base.kv);
    rad_free(&env, c, sizeof *c);
}

rad_status radix_cache_create(const rad_env *env, const rad_cache_params *params,
                              const radix_host_params *host, rad_cache **out, rad_error *err)
{
    radix_limits limits;
    rad_status status = limits_from(params, host, &limits, err);
    if (status) return status;
    radix_cache *c = rad_alloc(env, sizeof *c);
    if (!c) return rad_fail(err, RAD_E_NOMEM, "radix_cache: no memory");
    c->base.ops = &radix_cache_ops;
    c->base.env = *env;
    c->bigram = limits.bigram;
    c->copy_slots = params->page_size > 1 && !params->state_pool ? params->copy_slots : NULL;
    c->copy_user = params->copy_user;
    c->retains = params->retention != 0;
    bool ok = radix_tree_init(&c->tree, env, &limits) == RAD_OK;
    if (ok && params->window_tokens) {
        uint32_t ps = params->page_size, w = params->window_tokens;
        uint32_t pages = w / ps + (w % ps != 0);
        ok = radix_window_init(&c->tree, RADIX_DEVICE, pages, radix_cache_drop_windows, c) ==
             RAD_OK;
        if (ok && host)
            ok = radix_window_init(&c->tree, RADIX_HOST, pages, host->drop_windows, host->user) ==
                 RAD_OK;
    }
    if (params->state_pool) {
        c->base.states = params->state_pool;
        uint32_t states = rad_state_pool_num_states(params->state_pool);
        ok = ok &&
             radix_state_init(&c->tree, RADIX_DEVICE, states, radix_cache_drop_state, c) == RAD_OK;
        if (ok && host && host->states)
            ok = radix_state_init(&c->tree, RADIX_HOST, host->states, host->drop_state,
                                  host->user) == RAD_OK;
    }
    if (params->kv_allocator) {
        c->cached_pages = rad_kv_num_pages(params->kv_allocator) + 1;
        c->base.kv = params->kv_allocator;
        c->cached = kv_borrow_lane(c->base.kv);
        if (!c->cached.words) { /* another cache has it */
            c->own_bits = rad_alloc(env, bits_words(c->cached_pages) * sizeof *c->own_bits);
            c->cached = (bits_lane){c->own_bits, 1};
        }
        ok = ok && c->cached.words;
    } else if (params->free_list) {
        c->list = *params->free_list;
        c->cached_pages = c->list.num_pages;
        c->own_bits = rad_alloc(env, bits_words(c->cached_pages) * sizeof *c->own_bits);
        c->cached = (bits_lane){c->own_bits, 1};
        ok = ok && c->own_bits;
    }
    if (!ok) {
        radix_cache_destroy(&c->base);
        return rad_fail(err, RAD_E_NOMEM, "radix_cache: no memory for %u pages and %u nodes",
                        limits.max_pages, limits.max_nodes);
    }
    status = radix_journal_create(env, params, &c->tree, err);
    if (status) {
        radix_cache_destroy(&c->base);
        return status;
    }
    if (host) {
        c->tree.host.drop = host->drop;
        c->tree.host.save = host->save;
        c->tree.host.user = host->user;
        if (c->tree.journal) c->tree.journal->has_tier_events = host->events;
    }
    *out = &c->base;
    return RAD_OK;
}
