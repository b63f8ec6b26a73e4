/* window_rig.h - requests over a cache of a model whose layers see a window: req_rig.h. */
#ifndef TESTS_WINDOW_RIG_H
#define TESTS_WINDOW_RIG_H

#include "req_rig.h"

typedef struct sizes {
    uint64_t full_evictable, full_protected, window_evictable, window_protected;
} sizes;

static inline sizes sizes_of(const rad_cache *c)
{
    return (sizes){rad_cache_evictable_size(c), rad_cache_protected_size(c),
                   rad_cache_window_evictable_size(c), rad_cache_window_protected_size(c)};
}

/* Windows first, then off the tails of leaves, whose windows go with them: as an engine does that
 * is short on both sides. `window` counts both ways. */
typedef struct evicted {
    uint64_t full, window;
} evicted;

static inline evicted evict(rad_cache *c, uint64_t full, uint64_t window)
{
    evicted e = {0};
    uint64_t before = sizes_of(c).window_evictable;
    CHECK_OK(rad_cache_evict_window(c, window, &e.window));
    CHECK_OK(rad_cache_evict(c, full, &e.full, NULL));
    e.window = before - sizes_of(c).window_evictable;
    return e;
}

static inline void world_init(world *w, uint32_t ps, uint32_t pages, uint32_t window_pages,
                              uint32_t window, uint32_t max_nodes)
{
    rad_cache_params params = {.page_size = ps, .window_tokens = window, .max_nodes = max_nodes};
    world_make(w, params, pages, window_pages);
}

static inline void say(req *r, const char *text)
{
    for (; *text; text++)
        r->tokens[r->len++] = *text;
}

static inline void say_times(req *r, const char *text, int times)
{
    for (int i = 0; i < times; i++)
        say(r, text);
}

static inline uint32_t start(world *w, req *r)
{
    rad_slot slots[MOST_LEN];
    rad_match m;
    r->kv = (rad_req_kv){.key = {.tokens = r->tokens, .num_tokens = r->len - 1}};
    CHECK_OK(rad_cache_match_prefix(w->cache, &r->kv.key, slots, &m, NULL));
    r->kv.key.num_tokens = r->len;
    CHECK_OK(rad_cache_inc_lock_ref(w->cache, m.last_node, &r->kv.lock, NULL));
    take_row(w, r, slots, m.prefix_tokens);
    r->live = true;
    world_check(w);
    return m.prefix_tokens;
}

/* Positions up to `len`; evicts when short, and as much as was asked for or all there is. */
static inline bool compute(world *w, req *r, uint32_t len)
{
    rad_status status = extend(w, r, len);
    if (status == RAD_FULL) {
        uint64_t need = len - r->kv.allocated_len + w->ps, full = rad_kv_available_size(w->kv),
                 swa = window_size(w->kv);
        sizes s = sizes_of(w->cache);
        evicted e = evict(w->cache, full < need ? need - full : 0, swa < need ? need - swa : 0);
        CHECK(rad_kv_available_size(w->kv) == full + e.full);
        CHECK(window_size(w->kv) == swa + e.window);
        CHECK(full + e.full >= need || e.full == s.full_evictable);
        CHECK(swa + e.window >= need || e.window == s.window_evictable);
        world_check(w);
        status = extend(w, r, len);
    }
    if (status) return false;
    commit(w, r, len);
    world_check(w);
    return true;
}

/* No token to come looks before it. */
static inline uint32_t out_of_window(const world *w, const req *r)
{
    return r->kv.committed_len > w->window ? r->kv.committed_len - w->window : 0;
}

static inline void slide(world *w, req *r)
{
    rad_error err = {0};
    uint32_t before = r->kv.window_len;
    CHECKF(rad_cache_release_window(w->cache, &r->kv, out_of_window(w, r), &err) == RAD_OK, "%s\n",
           err.text);
    CHECK(r->kv.window_len >= before && r->kv.window_len % w->ps == 0);
    world_check(w);
}

static inline void publish(world *w, req *r)
{
    rad_error err = {0};
    rad_status status = rad_cache_unfinished_req(w->cache, &r->kv, 0, &err);
    CHECKF(status == RAD_OK || status == RAD_FULL, "%s, seed %llu\n", err.text,
           (unsigned long long)w->seed);
    world_check(w);
}

static inline void finish(world *w, req *r, int is_insert)
{
    rad_error err = {0};
    CHECKF(rad_cache_finished_req(w->cache, &r->kv, is_insert, &err) == RAD_OK, "%s, seed %llu\n",
           err.text, (unsigned long long)w->seed);
    r->live = false;
    world_check(w);
}

static inline uint32_t whole(world *w, req *r, const char *text)
{
    *r = (req){0};
    say(r, text);
    uint32_t prefix = start(w, r);
    CHECK(compute(w, r, r->len));
    publish(w, r);
    finish(w, r, 1);
    return prefix;
}

static inline uint32_t found(world *w, const req *r)
{
    rad_match m;
    rad_key key = {.tokens = r->tokens, .num_tokens = r->len};
    CHECK_OK(rad_cache_match_prefix(w->cache, &key, NULL, &m, NULL));
    return m.prefix_tokens;
}

#endif
