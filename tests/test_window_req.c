/* test_window_req.c - a running request has its window and lets go of what it has passed: locks,
 * sliding, publishing, aborting. Matches and evictions are test_window_cache.c. */
#include "below.h"
#include "window_rig.h"

TEST(the_window_slides_and_the_lock_keeps_the_last_one)
{
    static world w;
    world_init(&w, 2, 100, 40, 8, 0);
    req *r = &w.reqs[0];
    say_times(r, "ten tokens", 10);
    CHECK(start(&w, r) == 0);
    for (uint32_t len = 10; len <= 100; len += 10) {
        CHECK(compute(&w, r, len));
        slide(&w, r);
        CHECK(r->kv.window_len == (len > 8 ? len - 8 : 0) / 2 * 2);
    }
    publish(&w, r);
    sizes s = sizes_of(w.cache);
    CHECK(s.full_protected == 100 && s.window_protected == 8);
    evicted e = evict(w.cache, 1000, 1000);
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
    say_times(r, "ten tokens", 4);
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

/* A lock held whole nodes once: a node of 64 tokens kept 64 where the window has 4, and a pool of
 * windows ran full of what nobody looks at. */
TEST(a_lock_holds_the_last_window_of_a_long_node)
{
    static world w;
    world_init(&w, 1, 200, 100, 4, 0);
    req *r = &w.reqs[0];
    say_times(r, "8 tokens", 8);
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
    say_times(more, "8 tokens", 8);
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

/* An engine with its own requests: two of them behind one node, each with a receipt. */
TEST(a_receipt_gives_back_what_its_request_has_passed)
{
    static world w;
    world_init(&w, 2, 100, 40, 8, 0);
    req *r = &w.reqs[0];
    rad_error err = {0};
    say_times(r, "ten tokens", 2);
    start(&w, r);
    CHECK(compute(&w, r, 20));
    publish(&w, r);
    rad_ref node = r->kv.lock.node;
    finish(&w, r, 1);
    rad_receipt one, two, none = {0};
    CHECK_OK(rad_cache_inc_lock_ref(w.cache, node, &one, NULL));
    CHECK_OK(rad_cache_inc_lock_ref(w.cache, node, &two, NULL));
    CHECK(one.window_from == 12 && sizes_of(w.cache).window_protected == 8);

    CHECK_OK(rad_cache_release_lock_window(w.cache, &one, UINT32_MAX, NULL));
    CHECK(one.window_from == 20 && sizes_of(w.cache).window_protected == 8); /* the other's */
    CHECK_OK(rad_cache_release_lock_window(w.cache, &two, 17, NULL));
    CHECK(two.window_from == 16 && sizes_of(w.cache).window_protected == 4);
    CHECK_OK(rad_cache_release_lock_window(w.cache, &two, 3, NULL)); /* never goes back */
    CHECK(two.window_from == 16);
    world_check(&w);
    evicted e = evict(w.cache, 1000, 1000);
    CHECK(e.full == 0 && e.window == 16); /* the path stays */

    CHECK(rad_cache_release_lock_window(w.cache, &none, 0, &err) == RAD_E_STATE);
    CHECK(strstr(err.text, "holds nothing"));
    CHECK(rad_cache_release_lock_window(w.cache, NULL, 0, &err) == RAD_E_INVAL);
    CHECK_OK(rad_cache_dec_lock_ref(w.cache, &one, NULL));
    CHECK(rad_cache_release_lock_window(w.cache, &one, 20, &err) == RAD_E_STATE);
    CHECK_OK(rad_cache_dec_lock_ref(w.cache, &two, NULL));
    CHECK(sizes_of(w.cache).window_protected == 0 && sizes_of(w.cache).full_protected == 0);
    world_fini(&w);
}

TEST(a_running_request_gives_back_what_it_has_passed)
{
    static world w;
    world_init(&w, 2, 100, 40, 8, 0);
    req *r = &w.reqs[0];
    rad_error err = {0};
    say_times(r, "ten tokens", 6);
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
    say_times(r, "ten tokens", 6);
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
        say_times(r, "ten tokens", 4);
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

enum { RUNNING = 6, LONG = 130 };

/* Returns how many tokens a request that begins has found. */
static uint32_t random_step(world *w, uint64_t *random)
{
    uint32_t prefix = 0;
    req *r = &w->reqs[below(random, RUNNING)];
    if (!r->live) {
        *r = (req){0};
        for (uint32_t pages = 1 + below(random, 80 / w->ps); pages; pages--) {
            rad_token t = (rad_token)below(random, 8) ? 1 : 2;
            for (uint32_t k = 0; k < w->ps; k++)
                r->tokens[r->len++] = t;
        }
        r->tokens[r->len++] = 3;
        prefix = start(w, r);
    } else if (r->kv.committed_len < r->len) {
        if (!compute(w, r, r->kv.committed_len + 1 + below(random, r->len - r->kv.committed_len)))
            finish(w, r, (int)below(random, 2));
    } else if (r->len < LONG && below(random, 3)) {
        r->tokens[r->len++] = (rad_token)below(random, 3);
        r->kv.key.num_tokens = r->len;
    } else {
        finish(w, r, below(random, 4) != 0);
    }
    if (r->live && below(random, 2)) slide(w, r);
    if (r->live && below(random, 3) == 0) publish(w, r);
    if (below(random, 16) == 0) {
        uint32_t full = below(random, 2) * below(random, 20);
        evict(w->cache, full, below(random, 40));
        world_check(w);
    }
    return prefix;
}

TEST(random_requests_never_miss_a_window)
{
    static world w;
    uint32_t page_sizes[] = {1, 2, 16};
    uint64_t found = 0;
    for (uint32_t i = 0; i < 9; i++) {
        uint32_t ps = page_sizes[i % 3], windows[] = {1, 10, 37};
        uint64_t seed = test_seed() + i, random = seed;
        world_init(&w, ps, 480 / ps, 320 / ps, windows[i / 3], i % 2 ? 0 : 12);
        w.seed = seed;
        for (uint64_t n = test_scale(2000, 60000); n; n--)
            found += random_step(&w, &random);
        for (int k = 0; k < RUNNING; k++)
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
