/* test_window_cache.c - a match never ends where the window is gone, and the windows that no match
 * needs go first. What requests do to windows is test_window_req.c. */
#include "window_rig.h"

TEST(a_tombstone_moves_the_end_of_a_match_back)
{
    static world w;
    for (uint32_t ps = 1; ps <= 2; ps++) {
        world_init(&w, ps, 100, 100, 4, 0);
        req *r = &w.reqs[0];
        CHECK(whole(&w, r, "0123456789abcdefghij") == 0);
        CHECK(whole(&w, r, "0123456789abcdefghij!") == 20);
        /* Ten tokens of window go, from the front: the end is as good as before. */
        evicted e = evict(w.cache, 0, 10);
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

static rad_status copy_slots(void *user, rad_slot from, rad_slot to, uint32_t count)
{
    world *w = user;
    rad_slot a, b;
    window_slots(w->kv, &from, 1, &a);
    window_slots(w->kv, &to, 1, &b);
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

static void evict_windows_of(world *w, uint64_t tokens)
{
    evicted e = evict(w->cache, 0, tokens);
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

/* A lock says how much of the last window had gone before it came: here of a node's own window,
 * and of one that reaches into the node above. */
TEST(a_lock_tells_what_its_window_has_lost)
{
    static world w;
    rad_receipt lock;
    rad_match m[2];
    rad_slot slots[14];
    world_init(&w, 2, 40, 40, 6, 0);
    whole(&w, &w.reqs[0], "aabbccddee");
    whole(&w, &w.reqs[1], "aabbccddeeffgg");
    for (int i = 0; i < 2; i++) {
        rad_key key = {.tokens = w.reqs[i].tokens, .num_tokens = i ? 14 : 10};
        CHECK_OK(rad_cache_match_prefix(w.cache, &key, slots, &m[i], NULL));
        CHECK(m[i].prefix_tokens == key.num_tokens);
    }
    uint64_t gone = 1, most = 0;
    while (gone) {
        for (int i = 0; i < 2; i++) {
            uint32_t end = m[i].prefix_tokens, from = end - 6, missing = 0;
            for (uint32_t at = from; at < end; at += 2)
                if (!rad_kv_has_window(w.kv, slots[at] / 2)) missing = at + 2 - from;
            CHECK_OK(rad_cache_inc_lock_ref(w.cache, m[i].last_node, &lock, NULL));
            CHECK(lock.window_from == from && lock.window_missing == missing);
            CHECK((found(&w, &w.reqs[i]) == end) == !missing);
            CHECK_OK(rad_cache_dec_lock_ref(w.cache, &lock, NULL));
            most += missing == 2;
        }
        CHECK_OK(rad_cache_evict_window(w.cache, 2, &gone));
        world_check(&w);
    }
    CHECK(most > 0);
    world_fini(&w);
}

TEST(create_survives_every_allocation_failing)
{
    static world w;
    world_init(&w, 2, 100, 60, 6, 0);
    rad_cache *c = NULL;
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = 2,
                               .window_tokens = 8,
                               .kv_allocator = w.kv,
                               .req_to_token_pool = w.rows};
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

TEST_MAIN()
