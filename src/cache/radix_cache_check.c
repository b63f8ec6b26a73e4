/* radix_cache_check.c - whose pages, window sides and states are which: what the tree says, held
 * against the allocator's word, the bits of `cached` and what a request claims. */
#include "cache/radix_cache.h"

#include "base/bits.h"
#include "cache/radix_path.h"
#include "cache/radix_state.h"
#include "cache/radix_window.h"
#include "mem/kv_bits.h"

typedef struct page_check {
    const radix_cache *c;
    uint64_t *seen;
    rad_status status;
    rad_error *err;
} page_check;

static void check_page(void *user, rad_page page)
{
    page_check *check = user;
    const rad_kv_allocator *kv = check->c->base.kv;
    if (check->status) return;
    if (kv ? !rad_kv_is_taken(kv, page) : (uint32_t)page >= check->c->cached_pages)
        check->status = rad_fail(check->err, RAD_E_CORRUPT,
                                 "radix_check: page %d is cached but not handed out", page);
    else if (bits_get(check->seen, (size_t)page))
        check->status =
            rad_fail(check->err, RAD_E_CORRUPT, "radix_check: page %d is cached twice", page);
    else
        bits_set(check->seen, (size_t)page);
}

/* What the tree says of its pages' window sides, against the allocator. */
static rad_status check_windows(const radix_cache *c, rad_error *err)
{
    const radix_tree *t = &c->tree;
    uint32_t depth;
    for (uint32_t id = 0;
         t->windows[RADIX_DEVICE] && c->base.kv && (id = radix_next(t, id, &depth));)
        for (uint32_t i = 0; radix_on_device(t, id) && i < t->nodes[id].pages; i++) {
            rad_page page = radix_page_at(t, &t->nodes[id], i);
            bool there = i >= radix_window_of(t, RADIX_DEVICE, id)->first;
            if (there != (rad_kv_has_window(c->base.kv, page) != 0))
                return rad_fail(err, RAD_E_CORRUPT,
                                "radix_check: page %d of node %u %s a window side, the tree says "
                                "otherwise",
                                page, id, there ? "lacks" : "has");
        }
    return RAD_OK;
}

typedef struct state_check {
    const rad_state_pool *pool;
    rad_status status;
    rad_error *err;
} state_check;

static void check_state(void *user, rad_state state)
{
    state_check *check = user;
    if (!check->status && !rad_state_is_taken(check->pool, state))
        check->status = rad_fail(check->err, RAD_E_CORRUPT,
                                 "radix_check: state %d is cached but not handed out", state);
}

static rad_status check_states(const radix_cache *c, rad_error *err)
{
    state_check check = {.pool = c->base.states, .err = err};
    if (!check.pool) return RAD_OK;
    radix_state_visit(&c->tree, RADIX_DEVICE, check_state, &check);
    return check.status ? check.status : rad_state_pool_check(check.pool, err);
}

rad_status radix_check_all(const rad_cache *cache, rad_error *err)
{
    const radix_cache *c = (const radix_cache *)cache;
    rad_status status = radix_check(&c->tree, err);
    if (!status) status = check_windows(c, err);
    if (!status) status = check_states(c, err);
    if (status || !c->cached.words) return status;
    size_t bytes = bits_words(c->cached_pages) * sizeof(uint64_t);
    page_check check = {.c = c, .seen = rad_alloc(&cache->env, bytes), .err = err};
    if (!check.seen) return rad_fail(err, RAD_E_NOMEM, "radix_check: no scratch memory");
    radix_visit_pages(&c->tree, RADIX_DEVICE, check_page, &check);
    bool same = true;
    for (size_t w = 0; w < bytes / sizeof *check.seen; w++)
        same = same && check.seen[w] == c->cached.words[w * c->cached.step];
    if (!check.status && !same)
        check.status = rad_fail(err, RAD_E_CORRUPT,
                                "radix_check: the bits of cached pages are not the tree's pages");
    rad_free(&cache->env, check.seen, bytes);
    if (check.status || !cache->kv) return check.status;
    return rad_kv_check(cache->kv, err);
}

bool radix_owns_prefix(const rad_cache *cache, const rad_receipt *lock, const rad_slot *row,
                       uint32_t protected_len)
{
    const radix_cache *c = (const radix_cache *)cache;
    const radix_tree *t = &c->tree;
    uint32_t ps = cache->page_size, pages = protected_len / ps;
    if (!pages) return true;
    if (!radix_receipt_holds(cache, lock) || !lock->node.index) return false;
    uint32_t end = radix_depth(t, lock->node.index);
    if (end < pages) return false;
    for (radix_path p = radix_path_of(t, lock->node.index, end); radix_path_is(t, &p);
         radix_path_up(t, &p))
        for (uint32_t at = p.begin; at < RAD_MIN(p.end, pages); at++) {
            rad_page page = radix_page_at(t, &t->nodes[p.node], at - p.begin);
            if (row[(size_t)at * ps] != page * (rad_slot)ps) return false;
        }
    return true;
}

bool radix_owns_any(const rad_cache *cache, kv_run pages)
{
    return !lane_range_is(((const radix_cache *)cache)->cached, (size_t)pages.first, pages.count,
                          false);
}
