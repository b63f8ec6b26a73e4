/* req_rig.h - requests over a cache with one pool, or with one for windows besides.
 *
 * "K/V" are a hash of all tokens up to a position, written on both sides. After every step
 * each committed position of each running request reads its own hash on the full side, and
 * the last `window` of them on the window side too; each page has one owner on each side. */
#ifndef TESTS_REQ_RIG_H
#define TESTS_REQ_RIG_H

#include "slot_content.h"
#include "test.h"
#include "window_slots.h"

#include <radish/radish.h>

enum { MOST_SLOTS = 4096, MOST_REQS = 8, MOST_LEN = 200 };

typedef struct req {
    rad_req_kv kv;
    rad_token tokens[MOST_LEN];
    uint32_t len; /* tokens known; the last one has no K/V yet */
    uint32_t prompt_len;
    bool live;
} req;

typedef struct world {
    uint32_t ps;
    uint32_t window; /* tokens; 0: none */
    rad_kv_allocator *kv;
    rad_req_to_token_pool *rows;
    rad_cache *cache;
    uint64_t full[MOST_SLOTS], window_kv[MOST_SLOTS];
    req reqs[MOST_REQS];
    uint64_t seed;
} world;

static inline uint64_t namespace_seed(const rad_key *key)
{
    return key->cache_salt ? 1000 + (uint64_t)key->cache_salt[0] : 7;
}

/* The cache that `params` describes, over pools of its own. */
static inline void world_make(world *w, rad_cache_params params, uint32_t pages,
                              uint32_t window_pages)
{
    *w = (world){.ps = params.page_size, .window = params.window_tokens};
    CHECK((pages + 1) * w->ps <= MOST_SLOTS);
    rad_kv_allocator_params kv = {.struct_size = sizeof kv,
                                  .num_pages = pages,
                                  .page_size = w->ps,
                                  .swa_num_pages = window_pages};
    rad_req_to_token_pool_params rows = {sizeof rows, MOST_REQS, MOST_LEN};
    CHECK_OK(rad_kv_allocator_create(NULL, &kv, &w->kv, NULL));
    CHECK_OK(rad_req_to_token_pool_create(NULL, &rows, &w->rows, NULL));
    params.struct_size = sizeof params;
    params.kv_allocator = w->kv;
    params.req_to_token_pool = w->rows;
    CHECK_OK(rad_cache_create(NULL, &params, &w->cache, NULL));
}

static inline void world_check(world *w)
{
    const rad_req_kv *held[MOST_REQS];
    uint32_t num = 0;
    rad_error err = {0};
    for (int i = 0; i < MOST_REQS; i++) {
        req *r = &w->reqs[i];
        if (!r->live) continue;
        held[num++] = &r->kv;
        if (!r->kv.row) continue;
        const rad_slot *row = rad_req_to_token_row(w->rows, r->kv.row);
        uint32_t end = r->kv.committed_len;
        uint64_t before = namespace_seed(&r->kv.key);
        uint32_t at = first_foreign(w->full, row, r->tokens, 0, end, before);
        CHECKF(at == end, "request %d reads foreign K/V at %u, seed %llu\n", i, at,
               (unsigned long long)w->seed);
        if (!w->window) continue;
        rad_slot there[MOST_LEN];
        window_slots(w->kv, row, end, there);
        uint32_t window = end > w->window ? end - w->window : 0;
        at = first_foreign(w->window_kv, there, r->tokens, window, end,
                           before); /* slot 0 is never written */
        CHECKF(at == end, "request %d has no window at %u of %u, seed %llu\n", i, at, end,
               (unsigned long long)w->seed);
    }
    CHECKF(rad_cache_check(w->cache, &err) == RAD_OK, "%s, seed %llu\n", err.text,
           (unsigned long long)w->seed);
    CHECKF(rad_cache_check_ownership(w->cache, held, num, &err) == RAD_OK, "%s, seed %llu\n",
           err.text, (unsigned long long)w->seed);
}

/* Everybody has left: free + cached == all, and nothing is locked. */
static inline void world_fini(world *w)
{
    uint64_t all = (uint64_t)rad_kv_num_pages(w->kv) * w->ps;
    world_check(w);
    CHECK(rad_cache_protected_size(w->cache) == 0 &&
          rad_cache_window_protected_size(w->cache) == 0);
    CHECK(rad_kv_available_size(w->kv) + rad_cache_total_size(w->cache) == all);
    CHECK(rad_kv_available_size(w->kv) + rad_cache_evictable_size(w->cache) == all);
    CHECK(rad_req_to_token_available(w->rows) == MOST_REQS);
    CHECK_OK(rad_req_to_token_check(w->rows, NULL));
    CHECK_OK(rad_cache_reset(w->cache));
    CHECK(rad_kv_available_size(w->kv) == all);
    world_check(w);
    rad_cache_destroy(w->cache);
    rad_req_to_token_pool_destroy(w->rows);
    rad_kv_allocator_destroy(w->kv);
}

/* A row for the request, its first `prefix` slots the tree's. */
static inline void take_row(world *w, req *r, const rad_slot *slots, uint32_t prefix)
{
    CHECK_OK(rad_req_to_token_alloc(w->rows, &r->kv.row));
    memcpy(rad_req_to_token_row(w->rows, r->kv.row), slots, prefix * sizeof *slots);
    r->kv.protected_len = r->kv.committed_len = r->kv.allocated_len = prefix;
}

/* Slots for positions up to `len`. */
static inline rad_status extend(world *w, req *r, uint32_t len)
{
    rad_slot *row = rad_req_to_token_row(w->rows, r->kv.row);
    uint32_t from = r->kv.allocated_len;
    rad_slot last = from ? row[from - 1] : -1;
    rad_status status = rad_kv_alloc_extend(w->kv, 1, &from, &len, &last, row + from, NULL);
    CHECK(status == RAD_OK || status == RAD_FULL);
    if (!status) r->kv.allocated_len = len;
    return status;
}

/* Writes the K/V of positions up to `len`, which have slots. */
static inline void commit(world *w, req *r, uint32_t len)
{
    const rad_slot *row = rad_req_to_token_row(w->rows, r->kv.row);
    uint32_t from = r->kv.committed_len;
    uint64_t before = namespace_seed(&r->kv.key);
    write_content(w->full, row, r->tokens, from, len, before);
    if (w->window) {
        rad_slot there[MOST_LEN];
        window_slots(w->kv, row, len, there);
        for (uint32_t at = from; at < len; at++)
            CHECK(there[at]);
        write_content(w->window_kv, there, r->tokens, from, len, before);
    }
    r->kv.committed_len = len;
}

#endif
