/* test_window_cache.c - a match never ends where the window is gone.
 *
 * "K/V" are a hash of all tokens up to a position, written on both sides. After every step
 * each committed position of each running request reads its own hash on the full side, and
 * the last `window` of them on the window side too; each page has one owner on each side. */
#include "slot_content.h"
#include "test.h"

#include <radish/radish.h>

enum { MOST_SLOTS = 4096, MOST_REQS = 6, MOST_LEN = 160 };

typedef struct req {
    rad_req_kv kv;
    rad_token tokens[MOST_LEN];
    uint32_t len;
    bool live;
} req;

typedef struct world {
    uint32_t ps, window;
    rad_kv_allocator *kv;
    rad_req_to_token_pool *rows;
    rad_cache *cache;
    uint64_t full[MOST_SLOTS], window_kv[MOST_SLOTS];
    req reqs[MOST_REQS];
    uint64_t seed, random;
    uint64_t found;
} world;

typedef struct sizes {
    uint64_t full_evictable, full_protected, window_evictable, window_protected;
} sizes;

static sizes sizes_of(const rad_cache *c)
{
    return (sizes){rad_cache_evictable_size(c), rad_cache_protected_size(c),
                   rad_cache_window_evictable_size(c), rad_cache_window_protected_size(c)};
}

static uint64_t window_size(const rad_kv_allocator *a)
{
    return (uint64_t)rad_kv_window_available_pages(a) * rad_kv_page_size(a);
}

/* Windows first, then off the tails of leaves, whose windows go with them: as an engine does that
 * is short on both sides. `window` counts both ways. */
typedef struct evicted {
    uint64_t full, window;
} evicted;

static evicted evict(rad_cache *c, uint64_t full, uint64_t window)
{
    evicted e = {0};
    uint64_t before = sizes_of(c).window_evictable;
    CHECK_OK(rad_cache_evict_window(c, window, &e.window));
    CHECK_OK(rad_cache_evict(c, full, &e.full, NULL));
    e.window = before - sizes_of(c).window_evictable;
    return e;
}

/* The window layers' slots of these, 0 for those without a window side. */
static void translate(const rad_kv_allocator *a, const rad_slot *slots, uint32_t count,
                      rad_slot *there)
{
    rad_slot ps = (rad_slot)rad_kv_page_size(a);
    for (uint32_t i = 0; i < count; i++) {
        rad_page page = rad_kv_window_page_map(a)[slots[i] / ps];
        there[i] = page ? page * ps + slots[i] % ps : 0;
    }
}

static void world_init(world *w, uint32_t ps, uint32_t pages, uint32_t swa_pages, uint32_t window,
                       uint32_t max_nodes)
{
    *w = (world){.ps = ps, .window = window};
    CHECK((pages + 1) * ps <= MOST_SLOTS);
    rad_kv_allocator_params kv = {
        .struct_size = sizeof kv, .num_pages = pages, .page_size = ps, .swa_num_pages = swa_pages};
    rad_req_to_token_pool_params rows = {sizeof rows, MOST_REQS, MOST_LEN};
    CHECK_OK(rad_kv_allocator_create(NULL, &kv, &w->kv, NULL));
    CHECK_OK(rad_req_to_token_pool_create(NULL, &rows, &w->rows, NULL));
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = ps,
                               .window_tokens = window,
                               .max_nodes = max_nodes,
                               .kv_allocator = w->kv,
                               .req_to_token_pool = w->rows};
    CHECK_OK(rad_cache_create(NULL, &params, &w->cache, NULL));
}

static void world_check(world *w)
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
        rad_slot there[MOST_LEN];
        translate(w->kv, row, r->kv.committed_len, there);
        uint32_t end = r->kv.committed_len, window = end > w->window ? end - w->window : 0;
        uint32_t at = first_foreign(w->full, row, r->tokens, 0, end, 7);
        CHECKF(at == end, "request %d reads foreign K/V at %u, seed %llu\n", i, at,
               (unsigned long long)w->seed);
        at = first_foreign(w->window_kv, there, r->tokens, window, end,
                           7); /* slot 0 is never written */
        CHECKF(at == end, "request %d has no window at %u of %u, seed %llu\n", i, at, end,
               (unsigned long long)w->seed);
    }
    CHECKF(rad_cache_check(w->cache, &err) == RAD_OK, "%s, seed %llu\n", err.text,
           (unsigned long long)w->seed);
    CHECKF(rad_cache_check_ownership(w->cache, held, num, &err) == RAD_OK, "%s, seed %llu\n",
           err.text, (unsigned long long)w->seed);
}

static void world_fini(world *w)
{
    world_check(w);
    sizes s = sizes_of(w->cache);
    CHECK(s.full_protected == 0 && s.window_protected == 0);
    CHECK(rad_req_to_token_available(w->rows) == MOST_REQS);
    CHECK(rad_kv_available_size(w->kv) + s.full_evictable ==
          (uint64_t)rad_kv_num_pages(w->kv) * w->ps);
    CHECK_OK(rad_cache_reset(w->cache));
    CHECK(rad_kv_available_size(w->kv) == (uint64_t)rad_kv_num_pages(w->kv) * w->ps);
    world_check(w);
    rad_cache_destroy(w->cache);
    rad_req_to_token_pool_destroy(w->rows);
    rad_kv_allocator_destroy(w->kv);
}

static void say(req *r, const char *text)
{
    for (; *text; text++)
        r->tokens[r->len++] = *text;
}

static uint32_t start(world *w, req *r)
{
    rad_slot slots[MOST_LEN];
    rad_match m;
    r->kv = (rad_req_kv){.key = {.tokens = r->tokens, .num_tokens = r->len - 1}};
    CHECK_OK(rad_cache_match_prefix(w->cache, &r->kv.key, slots, &m, NULL));
    r->kv.key.num_tokens = r->len;
    CHECK_OK(rad_cache_inc_lock_ref(w->cache, m.last_node, &r->kv.lock, NULL));
    CHECK_OK(rad_req_to_token_alloc(w->rows, &r->kv.row));
    memcpy(rad_req_to_token_row(w->rows, r->kv.row), slots, m.prefix_tokens * sizeof *slots);
    r->kv.protected_len = r->kv.committed_len = r->kv.allocated_len = m.prefix_tokens;
    r->live = true;
    world_check(w);
    return m.prefix_tokens;
}

static bool compute(world *w, req *r, uint32_t len)
{
    rad_slot *row = rad_req_to_token_row(w->rows, r->kv.row);
    uint32_t from = r->kv.allocated_len;
    rad_slot last = from ? row[from - 1] : -1;
    rad_status status = rad_kv_alloc_extend(w->kv, 1, &from, &len, &last, row + from, NULL);
    if (status == RAD_FULL) {
        uint64_t need = len - from + w->ps, full = rad_kv_available_size(w->kv),
                 swa = window_size(w->kv);
        sizes s = sizes_of(w->cache);
        evicted e;
        e = evict(w->cache, full < need ? need - full : 0, swa < need ? need - swa : 0);
        CHECK(rad_kv_available_size(w->kv) == full + e.full);
        CHECK(window_size(w->kv) == swa + e.window);
        CHECK(full + e.full >= need || e.full == s.full_evictable);
        CHECK(swa + e.window >= need || e.window == s.window_evictable);
        world_check(w);
        status = rad_kv_alloc_extend(w->kv, 1, &from, &len, &last, row + from, NULL);
    }
    if (status) return false;
    r->kv.allocated_len = len;
    rad_slot there[MOST_LEN];
    translate(w->kv, row, len, there);
    for (uint32_t at = r->kv.committed_len; at < len; at++)
        CHECK(there[at]);
    write_content(w->full, row, r->tokens, r->kv.committed_len, len, 7);
    write_content(w->window_kv, there, r->tokens, r->kv.committed_len, len, 7);
    r->kv.committed_len = len;
    world_check(w);
    return true;
}

/* No token to come looks before it. */
static uint32_t out_of_window(const world *w, const req *r)
{
    return r->kv.committed_len > w->window ? r->kv.committed_len - w->window : 0;
}

static void slide(world *w, req *r)
{
    rad_error err = {0};
    uint32_t before = r->kv.window_len;
    CHECKF(rad_cache_release_window(w->cache, &r->kv, out_of_window(w, r), &err) == RAD_OK, "%s\n",
           err.text);
    CHECK(r->kv.window_len >= before && r->kv.window_len % w->ps == 0);
    world_check(w);
}

static void publish(world *w, req *r)
{
    rad_error err = {0};
    rad_status status = rad_cache_unfinished_req(w->cache, &r->kv, 0, &err);
    CHECKF(status == RAD_OK || status == RAD_FULL, "%s, seed %llu\n", err.text,
           (unsigned long long)w->seed);
    world_check(w);
}

static void finish(world *w, req *r, int is_insert)
{
    rad_error err = {0};
    CHECKF(rad_cache_finished_req(w->cache, &r->kv, is_insert, &err) == RAD_OK, "%s, seed %llu\n",
           err.text, (unsigned long long)w->seed);
    r->live = false;
    world_check(w);
}

static uint32_t whole(world *w, req *r, const char *text)
{
    *r = (req){0};
    say(r, text);
    uint32_t prefix = start(w, r);
    CHECK(compute(w, r, r->len));
    publish(w, r);
    finish(w, r, 1);
    return prefix;
}

TEST(a_tombstone_moves_the_end_of_a_match_back)
{
    static world w;
    for (uint32_t ps = 1; ps <= 2; ps++) {
        world_init(&w, ps, 100, 100, 4, 0);
        req *r = &w.reqs[0];
        CHECK(whole(&w, r, "0123456789abcdefghij") == 0);
        CHECK(whole(&w, r, "0123456789abcdefghij!") == 20);
        evicted e;
        /* Ten tokens of window go, from the front: the end is as good as before. */
        e = evict(w.cache, 0, 10);
        CHECK(e.window == 10 && e.full == 0);
        world_check(&w);
        CHECK(whole(&w, r, "0123456789abcdefghij?") == 20);
        /* A prompt that ends early finds no window: it starts over, and its pages, which
         * have one, take the places of the tombstones. */
        CHECK(whole(&w, r, "0123456789") == 0);
        CHECK(whole(&w, r, "0123456789x") == 10);
        world_fini(&w);
    }
}

TEST(the_window_slides_and_the_lock_keeps_the_last_one)
{
    static world w;
    world_init(&w, 2, 100, 40, 8, 0);
    req *r = &w.reqs[0];
    *r = (req){0};
    for (int i = 0; i < 10; i++)
        say(r, "ten tokens");
    CHECK(start(&w, r) == 0);
    for (uint32_t len = 10; len <= 100; len += 10) {
        CHECK(compute(&w, r, len));
        slide(&w, r);
        CHECK(r->kv.window_len == (len > 8 ? len - 8 : 0) / 2 * 2);
    }
    publish(&w, r);
    sizes s = sizes_of(w.cache);
    CHECK(s.full_protected == 100 && s.window_protected == 8);
    evicted e;
    e = evict(w.cache, 1000, 1000);
    CHECK(e.full == 0 && e.window == 0);
    rad_receipt stale = r->kv.lock;
    rad_error err = {0};
    char want[64];
    snprintf(want, sizeof want, "node %u (generation %u)", stale.node.index, stale.node.generation);
    finish(&w, r, 1);
    CHECK(rad_cache_dec_lock_ref(w.cache, &stale, &err) == RAD_E_STATE);
    CHECK(err.status == RAD_E_STATE && strstr(err.text, want));
    e = evict(w.cache, 0, 1000);
    CHECK(e.window == 8);
    CHECK(whole(&w, r, "ten tokensten tokens") == 0);
    world_fini(&w);
}

/* A receipt is the caller's memory. Whatever stands in it, no count goes below zero. */
TEST(a_receipt_with_another_boundary_is_refused)
{
    static world w;
    world_init(&w, 2, 100, 40, 8, 0);
    req *r = &w.reqs[0];
    *r = (req){0};
    for (int i = 0; i < 4; i++)
        say(r, "ten tokens");
    for (uint32_t len = 10; len <= 40; len += 10) { /* a node for each ten */
        CHECK(len > 10 || start(&w, r) == 0);
        CHECK(compute(&w, r, len));
        publish(&w, r);
    }
    rad_receipt lock = r->kv.lock;
    rad_error err = {0};
    CHECK(lock.window_from == 32);
    for (uint32_t from = 0; from < 100; from++) {
        rad_receipt bent = lock;
        bent.window_from = from;
        if (from == 32) continue;
        CHECK(rad_cache_dec_lock_ref(w.cache, &bent, &err) == RAD_E_STATE);
        CHECK(strstr(err.text, "position"));
        CHECK_OK(rad_cache_check(w.cache, NULL));
    }
    sizes s = sizes_of(w.cache);
    CHECK(s.full_protected == 40 && s.window_protected == 8);
    finish(&w, r, 1);
    s = sizes_of(w.cache);
    CHECK(s.full_protected == 0 && s.window_protected == 0);
    world_fini(&w);
}

TEST(an_abort_at_any_point_leaves_nothing_behind)
{
    static world w;
    for (uint32_t ps = 1; ps <= 16; ps *= 4)
        for (int point = 0; point < 10; point++) {
            world_init(&w, ps, 100, 60, 6, 0);
            req *r = &w.reqs[0];
            if (point >= 5) whole(&w, r, "a long enough common beginning of both");
            *r = (req){0};
            say(r, "a long enough common beginning of both, and an end");
            start(&w, r);
            int at = point % 5;
            if (at >= 1) CHECK(compute(&w, r, r->kv.committed_len + 5));
            if (at >= 2) slide(&w, r);
            if (at >= 3) publish(&w, r);
            if (at >= 4) CHECK(compute(&w, r, r->len));
            finish(&w, r, 0);
            world_fini(&w);
        }
}

TEST(wrong_records_are_refused_in_words)
{
    static world w;
    world_init(&w, 2, 100, 60, 6, 0);
    req *r = &w.reqs[0];
    rad_error err = {0};
    *r = (req){0};
    say(r, "something to be cached");
    start(&w, r);
    CHECK(compute(&w, r, 20));
    rad_req_kv bad = r->kv;
    bad.committed_len = 21;
    CHECK(rad_cache_unfinished_req(w.cache, &bad, 0, &err) == RAD_E_INVAL);
    bad = r->kv;
    bad.protected_len = 2;
    bad.lock.held = 0;
    CHECK(rad_cache_finished_req(w.cache, &bad, 1, &err) == RAD_E_STATE);
    bad = r->kv;
    rad_slot *row = rad_req_to_token_row(w.rows, r->kv.row), saved[2];
    memcpy(saved, row, sizeof saved);
    memcpy(row, row + 2, sizeof saved); /* a page twice */
    CHECK(rad_cache_unfinished_req(w.cache, &bad, 0, &err) == RAD_E_STATE);
    memcpy(row, saved, sizeof saved);
    world_check(&w);
    finish(&w, r, 1);
    CHECK(rad_cache_inc_lock_ref(w.cache, (rad_ref){77, 1}, &bad.lock, NULL) == RAD_E_STATE);
    world_fini(&w);
}

static void turn(world *w, req *r, const char *text, uint32_t want)
{
    say(r, text);
    uint32_t have = start(w, r);
    CHECKF(have == want, "found %u of %u\n", have, want);
    CHECK(compute(w, r, r->len));
    CHECK_OK(rad_cache_finished_req(w->cache, &r->kv, 1, NULL));
    r->live = false;
    world_check(w);
}

static uint32_t found(world *w, const req *r)
{
    rad_match m;
    rad_key key = {.tokens = r->tokens, .num_tokens = r->len};
    CHECK_OK(rad_cache_match_prefix(w->cache, &key, NULL, &m, NULL));
    return m.prefix_tokens;
}

/* A lock held whole nodes once: a node of 64 tokens kept 64 where the window has 4, and a pool of
 * windows ran full of what nobody looks at. */
TEST(a_lock_holds_the_last_window_of_a_long_node)
{
    static world w;
    world_init(&w, 1, 200, 100, 4, 0);
    req *r = &w.reqs[0];
    for (int i = 0; i < 8; i++)
        say(r, "8 tokens");
    CHECK(start(&w, r) == 0);
    CHECK(compute(&w, r, 64));
    publish(&w, r);
    sizes s = sizes_of(w.cache);
    CHECK(s.full_protected == 64 && s.window_protected == 4 && s.window_evictable == 60);
    CHECK(r->kv.lock.window_from == 60);
    evicted e = evict(w.cache, 0, 1000);
    CHECK(e.window == 60);
    world_check(&w);

    /* A node of one token behind it: its lock reaches up into the long one. */
    req *more = &w.reqs[1];
    for (int i = 0; i < 8; i++)
        say(more, "8 tokens");
    say(more, "!?");
    CHECK(start(&w, more) == 64);
    CHECK(compute(&w, more, 65));
    publish(&w, more);
    CHECK(more->kv.lock.window_from == 61 && sizes_of(w.cache).window_protected == 5);
    finish(&w, r, 1);
    CHECK(sizes_of(w.cache).window_protected == 4);
    e = evict(w.cache, 0, 1000);
    CHECK(e.window == 1);
    finish(&w, more, 1);
    CHECK(sizes_of(w.cache).window_protected == 0);
    world_fini(&w);
}

TEST(a_running_request_gives_back_what_it_has_passed)
{
    static world w;
    world_init(&w, 2, 100, 40, 8, 0);
    req *r = &w.reqs[0];
    rad_error err = {0};
    for (int i = 0; i < 6; i++)
        say(r, "ten tokens");
    start(&w, r);
    CHECK(compute(&w, r, 20));
    publish(&w, r);
    CHECK(r->kv.lock.window_from == 12 && sizes_of(w.cache).window_protected == 8);
    CHECK(rad_cache_release_window(w.cache, &r->kv, 21, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "position 21 of 20"));

    /* What the tree has for it is let go bit by bit, what is its own goes back to the pool. */
    CHECK(compute(&w, r, 25));
    CHECK_OK(rad_cache_release_window(w.cache, &r->kv, 25 - 8, NULL));
    CHECK(r->kv.lock.window_from == 16 && r->kv.window_len == 16);
    CHECK(sizes_of(w.cache).window_protected == 4 && sizes_of(w.cache).window_evictable == 16);
    CHECK_OK(rad_cache_release_window(w.cache, &r->kv, 3, NULL)); /* never goes back */
    CHECK(r->kv.lock.window_from == 16 && r->kv.window_len == 16);
    CHECK(compute(&w, r, 40));
    CHECK_OK(rad_cache_release_window(w.cache, &r->kv, 32, NULL));
    CHECK(r->kv.lock.window_from == 20 && r->kv.window_len == 32);
    CHECK(sizes_of(w.cache).window_protected == 0 && sizes_of(w.cache).full_protected == 20);
    CHECK(rad_kv_window_available_pages(w.kv) == 40 - 10 - 4);
    world_check(&w);

    /* The whole window of the pool is enough for it, however long it gets. */
    evicted e = evict(w.cache, 0, 1000);
    CHECK(e.window == 20);
    for (uint32_t len = 45; len <= 60; len += 5) {
        CHECK(compute(&w, r, len));
        slide(&w, r);
        CHECK(rad_kv_window_available_pages(w.kv) >= 40 - 6);
    }
    publish(&w, r);
    CHECK(r->kv.protected_len == 60 && r->kv.lock.window_from == 52);
    CHECK(found(&w, r) == 60);
    rad_receipt stale = r->kv.lock;
    finish(&w, r, 1);
    CHECK(rad_cache_dec_lock_ref(w.cache, &stale, NULL) == RAD_E_STATE);
    world_fini(&w);

    rad_cache *plain;
    CHECK_OK(rad_cache_create(NULL, &(rad_cache_params){.struct_size = sizeof(rad_cache_params)},
                              &plain, NULL));
    uint64_t done = 7;
    CHECK(rad_cache_evict_window(plain, 1, &done) == RAD_E_UNSUPPORTED && done == 0);
    CHECK(rad_cache_release_window(plain, &r->kv, 0, &err) == RAD_E_UNSUPPORTED);
    CHECK(rad_cache_window_evictable_size(plain) == 0);
    rad_cache_destroy(plain);
}

/* Two requests compute the same, and of the first one's pages the window sides have gone, while
 * somebody reads them: publishing ended before such a page once. */
TEST(a_duplicate_leaves_its_window_side_to_the_tree)
{
    static world w;
    world_init(&w, 2, 100, 60, 6, 0);
    req *a = &w.reqs[0], *b = &w.reqs[1];
    const char *text = "twenty four tokens here and more";
    say(a, text), say(b, text);
    start(&w, a);
    start(&w, b);
    CHECK(compute(&w, a, 24));
    publish(&w, a);
    CHECK(evict(w.cache, 0, 1000).window == 18);
    CHECK(compute(&w, b, 24));
    slide(&w, b);
    rad_page shared = rad_req_to_token_row(w.rows, a->kv.row)[18] / 2;
    uint32_t free_pages = rad_kv_window_available_pages(w.kv);
    publish(&w, b);
    CHECK(b->kv.protected_len == 24);
    CHECK(rad_req_to_token_row(w.rows, b->kv.row)[18] / 2 == shared);
    CHECK(rad_kv_window_available_pages(w.kv) == free_pages + 3);
    finish(&w, a, 1);
    finish(&w, b, 1);

    /* Gone for good, and computed anew by a third one, in the middle of a node. */
    CHECK(evict(w.cache, 0, 1000).window == 6);
    CHECK(whole(&w, a, "twenty four tok") == 0);
    CHECK(whole(&w, a, "twenty four token") == 14);
    CHECK(sizes_of(w.cache).full_evictable == 24);
    world_fini(&w);
}

/* What an insert brings has a window side from some page on; what stands before a gap is of no use
 * to anybody and goes back. */
TEST(a_window_side_before_a_gap_goes_back)
{
    static world w;
    world_init(&w, 2, 20, 20, 4, 0);
    rad_page pages[8];
    rad_slot slots[16];
    rad_token tokens[16];
    rad_key key = {.tokens = tokens, .num_tokens = 16};
    rad_match m;
    for (int gap = 0; gap < 8; gap++) {
        CHECK_OK(rad_kv_alloc(w.kv, pages, 8));
        CHECK_OK(rad_kv_free_window(w.kv, &pages[gap], 1, NULL));
        for (int i = 0; i < 16; i++) {
            tokens[i] = 16 * gap + i;
            slots[i] = pages[i / 2] * 2 + i % 2;
        }
        CHECK_OK(rad_cache_insert(w.cache, &key, slots, NULL, NULL, NULL));
        world_check(&w);
        CHECK(sizes_of(w.cache).window_evictable == 2 * (7 - (uint64_t)gap));
        CHECK(rad_kv_window_available_pages(w.kv) == 20 - (7 - (uint32_t)gap));
        CHECK_OK(rad_cache_lookup(w.cache, &key, &m));
        CHECK(m.prefix_tokens == (gap <= 5 ? 16 : 0));
        CHECK_OK(rad_cache_reset(w.cache));
        CHECK(rad_kv_window_available_pages(w.kv) == 20);
    }
    world_fini(&w);
}

TEST(a_cache_without_reuse_has_windows_too)
{
    static world w;
    world_init(&w, 2, 40, 10, 8, 0);
    rad_cache_destroy(w.cache);
    rad_cache_params params = {.struct_size = sizeof params,
                               .kind = RAD_CACHE_CHUNK,
                               .page_size = 2,
                               .window_tokens = 8,
                               .kv_allocator = w.kv,
                               .req_to_token_pool = w.rows};
    CHECK_OK(rad_cache_create(NULL, &params, &w.cache, NULL));
    req *r = &w.reqs[0];
    for (int i = 0; i < 6; i++)
        say(r, "ten tokens");
    start(&w, r);
    for (uint32_t len = 10; len <= 60; len += 10) {
        CHECK(compute(&w, r, len));
        slide(&w, r);
    }
    CHECK(rad_kv_window_available_pages(w.kv) == 10 - 4);
    finish(&w, r, 1);
    CHECK(rad_kv_window_available_pages(w.kv) == 10);
    world_fini(&w);
}

static rad_status copy_slots(void *user, rad_slot from, rad_slot to, uint32_t count)
{
    world *w = user;
    rad_slot a, b;
    translate(w->kv, &from, 1, &a);
    translate(w->kv, &to, 1, &b);
    CHECK(a && b);
    memcpy(w->full + to, w->full + from, count * sizeof *w->full);
    memcpy(w->window_kv + b, w->window_kv + a, count * sizeof *w->window_kv);
    return RAD_OK;
}

static rad_status add_bytes(void *user, const char *text, size_t bytes)
{
    char *all = user;
    CHECK(strlen(all) + bytes < 4096);
    strncat(all, text, bytes);
    return RAD_OK;
}

/* Whatever asks about a match is told where it may end; what is there besides goes on. */
TEST(what_asks_about_matches_knows_of_windows)
{
    static world w;
    world_init(&w, 2, 60, 60, 4, 0);
    rad_cache_destroy(w.cache);
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = 2,
                               .window_tokens = 4,
                               .kv_allocator = w.kv,
                               .req_to_token_pool = w.rows,
                               .max_pinned_tokens = 40,
                               .retention = 1,
                               .explain_pages = 64,
                               .enable_kv_events = 1,
                               .enable_page_hashes = 1,
                               .copy_slots = copy_slots,
                               .copy_user = &w};
    CHECK_OK(rad_cache_create(NULL, &params, &w.cache, NULL));
    req *r = &w.reqs[0];
    CHECK(whole(&w, r, "0123456789abcdef") == 0);
    CHECK(evict(w.cache, 0, 8).window == 8); /* pages 0..3 of 8 */

    /* A prefix of 14 has its window, one of 10 has not. */
    rad_match m;
    rad_explanation e;
    rad_match_handle h;
    rad_receipt lock;
    rad_token *t = r->tokens;
    for (uint32_t n = 2; n <= 16; n += 2) {
        rad_key key = {.tokens = t, .num_tokens = n};
        uint32_t want = n >= 12 ? n : 0;
        CHECK_OK(rad_cache_lookup(w.cache, &key, &m));
        CHECK(m.prefix_tokens == want);
        CHECK_OK(rad_cache_explain(w.cache, &key, &e));
        CHECK(e.prefix_tokens == want && e.why == (want ? RAD_END_COMPLETE : RAD_END_WINDOW));
        CHECK_OK(rad_cache_match_handle(w.cache, &key, &h));
        CHECK(h.num_tokens == want);
        CHECK_OK(rad_match_handle_lock(w.cache, &h, &lock, NULL));
        CHECK(lock.window_from == (want ? want - 4 : 0));
        CHECK(rad_cache_window_protected_size(w.cache) == (want ? 4 : 0));
        CHECK_OK(rad_cache_dec_lock_ref(w.cache, &lock, NULL));
        world_check(&w);
    }

    /* Of a page that has its window side the front can be copied. */
    *r = (req){0};
    say(r, "0123456789abcXY");
    CHECK(start(&w, r) == 12);
    rad_slot slots[2];
    uint32_t count;
    rad_key key = {.tokens = r->tokens, .num_tokens = 14};
    CHECK_OK(rad_cache_match_prefix(w.cache, &key, NULL, &m, NULL));
    CHECK(m.partial_tokens == 1);
    CHECK_OK(rad_cache_reuse_partial(w.cache, &key, &m, slots, &count));
    CHECK(count == 1);
    rad_req_to_token_row(w.rows, r->kv.row)[12] = slots[0];
    r->kv.committed_len = r->kv.allocated_len = 13;
    world_check(&w);
    CHECK(compute(&w, r, 15));
    finish(&w, r, 1);
    CHECK(evict(w.cache, 0, 100).window > 0);
    CHECK_OK(rad_cache_match_prefix(w.cache, &key, NULL, &m, NULL));
    CHECK(m.prefix_tokens == 0 && m.partial_tokens == 0);

    /* Pins, retention and dumps are about pages, with or without a window side. */
    CHECK_OK(rad_cache_pin_prefix(w.cache, &key, 1000000, &count));
    CHECK(count == 14 && rad_cache_pinned_size(w.cache) == 14);
    CHECK_OK(rad_cache_retain_prefix(w.cache, &key, 5, 0, &count));
    CHECK(count == 14);
    char text[4096] = "";
    CHECK_OK(rad_cache_dump(w.cache, RAD_CACHE_DUMP_JSON, add_bytes, text));
    CHECK(strstr(text, "\"window_pages\":0"));
    world_fini(&w);
}

static uint32_t begin_turn(world *w, req *r, rad_session session)
{
    rad_slot slots[MOST_LEN];
    rad_match m;
    r->kv = (rad_req_kv){.key = {.tokens = r->tokens, .num_tokens = r->len, .session = session}};
    CHECK_OK(rad_cache_match_prefix(w->cache, &r->kv.key, slots, &m, NULL));
    CHECK_OK(rad_cache_inc_lock_ref(w->cache, m.last_node, &r->kv.lock, NULL));
    CHECK_OK(rad_session_begin(w->cache, &r->kv, NULL));
    if (!r->kv.row) CHECK_OK(rad_req_to_token_alloc(w->rows, &r->kv.row));
    r->live = true;
    world_check(w);
    return m.prefix_tokens;
}

/* A session's own pages slide as a request's do; a history that was cut back to where the window
 * has gone is computed again. */
TEST(a_streaming_session_goes_on_where_its_window_is)
{
    static const uint32_t agrees[] = {39, 38, 36}, found_then[] = {39, 38, 0};
    for (int cut = 0; cut < 3; cut++) {
        static world w;
        world_init(&w, 2, 100, 40, 8, 0);
        rad_streaming_cache_params params = {
            .struct_size = sizeof params, .inner = w.cache, .max_sessions = 2};
        CHECK_OK(rad_streaming_cache_create(NULL, &params, &w.cache, NULL));
        rad_session session;
        CHECK_OK(rad_session_open(w.cache, &session));
        req *r = &w.reqs[0];
        for (int i = 0; i < 4; i++)
            say(r, "ten tokens");
        CHECK(begin_turn(&w, r, session) == 0);
        CHECK(compute(&w, r, 20));
        publish(&w, r);
        CHECK(compute(&w, r, 39));
        slide(&w, r);
        CHECK(r->kv.window_len == 30 && r->kv.lock.window_from == 20);
        finish(&w, r, 1);
        CHECK(sizes_of(w.cache).window_evictable == 20 + 10);
        uint64_t done;
        CHECK_OK(rad_cache_evict_window(w.cache, 20, &done)); /* the tree's */

        r->len = agrees[cut];
        say(r, "and what is new");
        CHECK(begin_turn(&w, r, session) == found_then[cut]);
        CHECK(compute(&w, r, r->len));
        slide(&w, r);
        finish(&w, r, 1);

        /* An idle session gives way when windows are short. */
        CHECK_OK(rad_cache_evict_window(w.cache, 1000, &done));
        CHECK(rad_kv_window_available_pages(w.kv) == 40 && done > 0);
        CHECK_OK(rad_session_close(w.cache, session));
        world_fini(&w);
    }
}

static void evict_windows_of(world *w, uint64_t tokens)
{
    evicted e;
    e = evict(w->cache, 0, tokens);
    CHECK(e.window == tokens && e.full == 0);
    world_check(w);
}

/* Each turn of a long chat walks through all its turns, and so kept windows alive behind which no
 * match can end any more, while a short chat lost the one it needs: 0 of its 6 tokens were found
 * and 12 dead ones of the long chat were kept. (SGLang mended the same: #26615.) */
TEST(windows_that_nobody_can_use_go_before_those_of_a_short_chat)
{
    for (int merged = 0; merged < 2; merged++) {
        static world w;
        world_init(&w, 1, 64, 64, 4, 0);
        req *short_chat = &w.reqs[0], *long_chat = &w.reqs[1];
        turn(&w, long_chat, "aaaaaa", 0);
        turn(&w, short_chat, "xxxxxx", 0);
        if (merged) { /* the long one comes in one piece instead */
            turn(&w, long_chat, "bbbbbbcccccc", 6);
        } else {
            turn(&w, long_chat, "bbbbbb", 6);
            turn(&w, long_chat, "cccccc", 12);
        }
        evict_windows_of(&w, 6);
        CHECK(found(&w, short_chat) == 6 && found(&w, long_chat) == 18);
        evict_windows_of(&w, 10); /* the rest of what is dead: 14 of the long one, 2 of the short */
        CHECK(found(&w, short_chat) == 6 && found(&w, long_chat) == 18);
        CHECK(sizes_of(w.cache).window_evictable == 8);
        CHECK(found(&w, short_chat) == 6); /* now the long one was used less recently */
        evict_windows_of(&w, 1);
        CHECK(found(&w, short_chat) == 6 && found(&w, long_chat) == 0);
        world_fini(&w);
    }
}

/* What others branch off from is an end for each of them, however long ago it was written. */
TEST(the_window_at_a_fork_stays_while_it_is_used)
{
    static world w;
    world_init(&w, 1, 96, 96, 4, 0);
    turn(&w, &w.reqs[0], "ssssssssss1111111111", 0);
    turn(&w, &w.reqs[1], "ssssssssss2222222222", 10);
    turn(&w, &w.reqs[2], "ssssssssss3333333333", 10);
    evict_windows_of(&w, 24); /* all dead ones: 6 of each of the four nodes */
    req asks = {0};
    say(&asks, "ssssssssss4");
    CHECK(found(&w, &asks) == 10);
    for (int i = 0; i < 3; i++)
        CHECK(found(&w, &w.reqs[i]) == 20);
    CHECK(found(&w, &asks) == 10);
    evict_windows_of(&w, 12); /* the three ends */
    CHECK(found(&w, &asks) == 10);
    world_fini(&w);
}

TEST(a_window_of_all_numbers_keeps_everything)
{
    static world w;
    world_init(&w, 4, 16, 16, UINT32_MAX, 0);
    req *r = &w.reqs[0];
    say(r, "sixteen letters!");
    start(&w, r);
    CHECK(compute(&w, r, 16));
    CHECK_OK(rad_cache_release_window(w.cache, &r->kv, out_of_window(&w, r), NULL));
    CHECK(r->kv.window_len == 0);
    CHECK_OK(rad_cache_finished_req(w.cache, &r->kv, 0, NULL));
    r->live = false;
    world_fini(&w);
}

TEST(create_survives_every_allocation_failing)
{
    static world w;
    world_init(&w, 2, 100, 60, 6, 0);
    rad_cache *c = NULL;
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = 2,
                               .kv_allocator = w.kv,
                               .req_to_token_pool = w.rows};
    params.window_tokens = 8;
    rad_kv_allocator *plain;
    rad_error err = {0};
    CHECK_OK(rad_kv_allocator_create(
        NULL, &(rad_kv_allocator_params){sizeof(rad_kv_allocator_params), 4, 2}, &plain, NULL));
    params.kv_allocator = plain;
    CHECK(rad_cache_create(NULL, &params, &c, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "no allocator with a window side"));
    rad_kv_allocator_destroy(plain);
    params.kv_allocator = w.kv;
    for (long n = 0; !c; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        CHECK(rad_cache_create(&env, &params, &c, NULL) == (c ? RAD_OK : RAD_E_NOMEM));
        CHECK(n < 100 && (c || t.bytes == 0));
        if (c) rad_cache_destroy(c);
        CHECK(t.bytes == 0);
    }
    world_fini(&w);
}

static uint32_t below(world *w, uint32_t n)
{
    return (uint32_t)(test_random(&w->random) % n);
}

static void random_step(world *w)
{
    req *r = &w->reqs[below(w, MOST_REQS)];
    if (!r->live) {
        *r = (req){0};
        for (uint32_t pages = 1 + below(w, 80 / w->ps); pages; pages--) {
            rad_token t = (rad_token)below(w, 8) ? 1 : 2;
            for (uint32_t k = 0; k < w->ps; k++)
                r->tokens[r->len++] = t;
        }
        r->tokens[r->len++] = 3;
        w->found += start(w, r);
    } else if (r->kv.committed_len < r->len) {
        if (!compute(w, r, r->kv.committed_len + 1 + below(w, r->len - r->kv.committed_len)))
            finish(w, r, (int)below(w, 2));
    } else if (r->len < MOST_LEN - 30 && below(w, 3)) {
        r->tokens[r->len++] = (rad_token)below(w, 3);
        r->kv.key.num_tokens = r->len;
    } else {
        finish(w, r, below(w, 4) != 0);
    }
    if (r->live && below(w, 2)) slide(w, r);
    if (r->live && below(w, 3) == 0) publish(w, r);
    if (below(w, 16) == 0) {
        uint32_t full = below(w, 2) * below(w, 20);
        evict(w->cache, full, below(w, 40));
        world_check(w);
    }
}

TEST(random_requests_never_miss_a_window)
{
    static world w;
    uint32_t page_sizes[] = {1, 2, 16};
    uint64_t found = 0;
    for (uint32_t i = 0; i < 9; i++) {
        uint32_t ps = page_sizes[i % 3], windows[] = {1, 10, 37};
        uint64_t seed = test_seed() + i;
        world_init(&w, ps, 480 / ps, 320 / ps, windows[i / 3], i % 2 ? 0 : 12);
        w.seed = w.random = seed;
        for (uint64_t n = test_scale(2000, 60000); n; n--)
            random_step(&w);
        found += w.found;
        for (int k = 0; k < MOST_REQS; k++)
            if (w.reqs[k].live) finish(&w, &w.reqs[k], 1);
        world_fini(&w);
    }
    CHECKF(found > 10000, "found only %llu tokens\n", (unsigned long long)found);
}

/* A handle is kept while others cut its node where it ends, or while windows are evicted: what its
 * lock holds is the window before its own end, and where that is gone there is no lock. */
TEST(a_handle_locks_the_window_before_its_own_end)
{
    world w;
    world_init(&w, 1, 64, 64, 4, 0);
    CHECK(whole(&w, &w.reqs[0], "0123456789abcdefghij") == 0);
    rad_key ten = {.tokens = w.reqs[0].tokens, .num_tokens = 10};
    rad_match_handle h;
    rad_match m;
    rad_receipt lock;
    CHECK_OK(rad_cache_match_handle(w.cache, &ten, &h));
    CHECK(h.num_tokens == 10);
    CHECK_OK(rad_cache_match_prefix(w.cache, &ten, NULL, &m, NULL)); /* cuts it */
    CHECK_OK(rad_match_handle_lock(w.cache, &h, &lock, NULL));
    CHECK(lock.window_from == 6);
    (void)evict(w.cache, 0, 100);
    CHECK(rad_cache_window_protected_size(w.cache) == 4);
    CHECK_OK(rad_cache_lookup(w.cache, &ten, &m));
    CHECK(m.prefix_tokens == 10);
    CHECK_OK(rad_cache_dec_lock_ref(w.cache, &lock, NULL));

    (void)evict(w.cache, 0, 100);
    rad_error err;
    CHECK(rad_match_handle_lock(w.cache, &h, &lock, &err) == RAD_E_STATE);
    CHECK(strstr(err.text, "was given back"));
    world_fini(&w);
}

TEST_MAIN()
