/* swap_pages.c - exchanges the K/V of two cached pages; see the header. */
#include "gear/swap_pages.h"

/* The page under a position of a cached key. */
static rad_status find_page(scheduler *s, const rad_key *key, uint32_t pos, rad_page *page)
{
    if (pos >= key->num_tokens) return RAD_NONE;
    size_t bytes = key->num_tokens * sizeof(rad_slot);
    rad_slot *slots = rad_alloc(&s->env, bytes);
    if (!slots) return RAD_E_NOMEM;
    rad_match match = {0};
    rad_status status = rad_cache_match_prefix(s->pools.tree_cache, key, slots, &match, NULL);
    if (status == RAD_OK && pos >= match.prefix_tokens) status = RAD_NONE;
    if (status == RAD_OK) *page = slots[pos] / (rad_slot)s->pools.page_size;
    rad_free(&s->env, slots, bytes);
    return status;
}

static rad_status swap_in_pool(scheduler *s, rad_token_to_kv_pool *pool, rad_page a, rad_page b)
{
    if (!pool || !a || !b) return RAD_OK;
    size_t bytes = s->pools.page_size * rad_kv_pool_bytes_per_token(rad_kv_pool_params(pool));
    char *both = rad_alloc(&s->env, 2 * bytes);
    if (!both) return RAD_E_NOMEM;
    rad_status status = rad_kv_pool_get_page(pool, a, both, bytes);
    if (status == RAD_OK) status = rad_kv_pool_get_page(pool, b, both + bytes, bytes);
    if (status == RAD_OK) status = rad_kv_pool_set_page(pool, b, both, bytes);
    if (status == RAD_OK) status = rad_kv_pool_set_page(pool, a, both + bytes, bytes);
    rad_free(&s->env, both, 2 * bytes);
    return status;
}

rad_status gear_swap_pages(scheduler *s, const rad_key *a, uint32_t pos_a, const rad_key *b,
                           uint32_t pos_b)
{
    rad_page page_a, page_b;
    rad_status status = find_page(s, a, pos_a, &page_a);
    if (status == RAD_OK) status = find_page(s, b, pos_b, &page_b);
    if (status != RAD_OK) return status;

    const rad_page *window = rad_kv_window_page_map(s->pools.kv_allocator);
    status = swap_in_pool(s, s->pools.token_to_kv_pool, page_a, page_b);
    if (status == RAD_OK && window)
        status = swap_in_pool(s, s->pools.window.kv_pool, window[page_a], window[page_b]);
    return status;
}

typedef struct errand {
    const rad_key *a, *b;
    uint32_t pos_a, pos_b;
    rad_status status;
} errand;

static void run(engine *e, void *user)
{
    errand *x = user;
    x->status = gear_swap_pages(e->scheduler, x->a, x->pos_a, x->b, x->pos_b);
}

rad_status gear_engine_swap_pages(engine *e, const rad_key *a, uint32_t pos_a, const rad_key *b,
                                  uint32_t pos_b)
{
    errand x = {a, b, pos_a, pos_b, RAD_OK};
    rad_status gone = engine_run_on_scheduler(e, run, &x);
    return gone ? gone : x.status;
}
