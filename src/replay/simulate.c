/* simulate.c - one cache, one allocator, one request after the other. */
#include "replay/simulate.h"

#include "base/base.h"

#include <radish/kv_allocator.h>
#include <radish/match_handle.h>

typedef struct sim {
    rad_env env;
    rad_kv_allocator *alloc;
    rad_cache *cache;
    rad_slot *slots; /* of one request */
    rad_page *pages;
    uint32_t page_size;
    uint32_t room; /* entries of slots and pages */
    uint32_t tokens_per_element;
    uint32_t attention_tokens;
} sim;

static rad_status sim_init(sim *s, const rad_env *env, const trace *t, const simulate_params *p,
                           rad_error *err)
{
    s->env = rad_env_or_default(env);
    s->page_size = p->page_size ? p->page_size : 1;
    s->tokens_per_element = trace_tokens_per_element(t);
    s->room = trace_longest(t) + s->page_size;
    rad_eviction_options eviction = p->eviction;
    if (p->policy && rad_eviction_policy_parse(p->policy, &eviction.policy, err))
        return RAD_E_INVAL;
    uint32_t attention = eviction.cost_attention_tokens ? eviction.cost_attention_tokens : 16384;
    eviction.cost_attention_tokens = RAD_MAX(attention / s->tokens_per_element, 1u);
    s->attention_tokens = attention;
    uint64_t num_pages = p->capacity_elements / s->page_size;
    if (num_pages < 1 || num_pages >= INT32_MAX / s->page_size)
        return rad_fail(err, RAD_E_INVAL, "a capacity of %llu is not between one page and %d",
                        (unsigned long long)p->capacity_elements, INT32_MAX);
    rad_kv_allocator_params a = {sizeof a, (uint32_t)num_pages, s->page_size};
    rad_status status = rad_kv_allocator_create(env, &a, &s->alloc, err);
    if (status) return status;
    /* A node for every page: what is found must depend on the pool, not on its metadata. */
    rad_cache_params c = {.struct_size = sizeof c,
                          .kind = RAD_CACHE_RADIX,
                          .page_size = s->page_size,
                          .kv_allocator = s->alloc,
                          .max_nodes = (uint32_t)num_pages,
                          .eviction = eviction};
    status = rad_cache_create(env, &c, &s->cache, err);
    if (status) return status;
    s->slots = rad_alloc(&s->env, rad_mul(s->room, sizeof *s->slots));
    s->pages = rad_alloc(&s->env, rad_mul(s->room, sizeof *s->pages));
    if (!s->slots || !s->pages) return rad_fail(err, RAD_E_NOMEM, "no memory for a request");
    return RAD_OK;
}

static void sim_fini(sim *s)
{
    rad_free(&s->env, s->slots, rad_mul(s->room, sizeof *s->slots));
    rad_free(&s->env, s->pages, rad_mul(s->room, sizeof *s->pages));
    rad_cache_destroy(s->cache);
    rad_kv_allocator_destroy(s->alloc);
}

/* Slots for elements [from, to), whole new pages; false when the pool cannot give them. */
static bool take_slots(sim *s, uint32_t from, uint32_t to)
{
    uint32_t need = (to + s->page_size - 1) / s->page_size - from / s->page_size;
    uint32_t have = rad_kv_available_pages(s->alloc);
    if (need > have) rad_cache_evict(s->cache, (uint64_t)(need - have) * s->page_size, NULL, NULL);
    if (rad_kv_alloc(s->alloc, s->pages, need) != RAD_OK) return false;
    for (uint32_t i = from; i < to; i++)
        s->slots[i] = s->pages[(i - from) / s->page_size] * (rad_slot)s->page_size +
                      (rad_slot)(i % s->page_size);
    return true;
}

/* Of computing the first `tokens` of a prompt. */
static double cost_of(const sim *s, uint64_t tokens)
{
    return (double)tokens * (1 + 0.5 * (double)tokens / s->attention_tokens);
}

static rad_status play(sim *s, const trace_request *r, simulate_result *sum, rad_error *err)
{
    rad_key key = {.tokens = r->elements, .num_tokens = r->num_prompt};
    rad_match match;
    rad_receipt lock = {0};
    rad_status status = rad_cache_match_prefix(s->cache, &key, s->slots, &match, err);
    if (status) return status;

    uint32_t hit = match.prefix_tokens, all = r->num_elements;
    sum->requests++;
    sum->prompt_blocks += (r->num_prompt + s->page_size - 1) / s->page_size;
    sum->prompt_tokens += r->prompt_tokens;
    sum->hit_blocks += hit / s->page_size;
    uint64_t hit_tokens = RAD_MIN((uint64_t)hit * s->tokens_per_element, r->prompt_tokens);
    sum->hit_tokens += hit_tokens;
    sum->prompt_cost += cost_of(s, r->prompt_tokens);
    sum->hit_cost += cost_of(s, hit_tokens);

    rad_cache_inc_lock_ref(s->cache, match.last_node, &lock, NULL);
    if (take_slots(s, hit, all)) {
        rad_inserted in;
        key.num_tokens = all;
        rad_match_handle at = {.node = match.last_node, .num_tokens = hit};
        status = rad_cache_insert_from(s->cache, &at, &key, s->slots + hit, NULL, &in, NULL);
        /* Where the tree took nothing, all that is new goes back. */
        uint32_t had = status ? all : in.prefix_tokens;
        uint32_t whole = all / s->page_size * s->page_size;
        uint32_t back = RAD_MIN(had, whole);
        if (back > hit) rad_kv_free_slots(s->alloc, s->slots + hit, back - hit, NULL);
        if (all > whole) rad_kv_free_slots(s->alloc, s->slots + whole, all - whole, NULL);
    } else {
        sum->too_large++;
    }
    rad_cache_dec_lock_ref(s->cache, &lock, NULL);
    return status ? rad_fail(err, status, "insert: %s", rad_status_name(status)) : RAD_OK;
}

rad_status simulate(const rad_env *env, trace *t, const simulate_params *params,
                    simulate_result *result, rad_error *err)
{
    sim s = {0};
    *result = (simulate_result){0};
    rad_status status = sim_init(&s, env, t, params, err);
    uint64_t start = s.env.now_ns(s.env.user);
    for (uint64_t i = 0; !status && i < trace_num_requests(t); i++) {
        trace_request r;
        trace_get(t, i, &r);
        status = play(&s, &r, result, err);
    }
    result->seconds = 1e-9 * (double)(s.env.now_ns(s.env.user) - start);
    if (!status) status = rad_cache_check(s.cache, err);
    if (s.cache) {
        rad_cache_stats stats;
        rad_cache_get_stats(s.cache, &stats);
        result->evicted_elements = stats.evicted_tokens;
    }
    sim_fini(&s);
    return status;
}
