/* test_free_list.c - a cache whose pages are the engine's own: what it takes, and what it tells of.
 * Random steps against a model are in test_radix_model.c. */
#include "cache_failing.h"
#include "cache_literals.h"
#include "own_pages.h"

typedef struct engine {
    own_pages own;
    rad_cache *cache;
    uint32_t ps;
    bool windows;
    test_env *t; /* counts memory; NULL: nobody does */
} engine;

static void init(engine *e, uint32_t ps, uint32_t pages, uint32_t window, uint64_t max_tokens)
{
    rad_error err = {0};
    *e = (engine){.ps = ps, .windows = window != 0};
    rad_free_list list = own_init(&e->own, pages, window ? pages : 0);
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = ps,
                               .max_tokens = max_tokens,
                               .window_tokens = window,
                               .free_list = &list};
    CHECKF(rad_cache_create(NULL, &params, &e->cache, &err) == RAD_OK, "%s\n", err.text);
    memset(&list, 0xff, sizeof list); /* it was copied */
}

/* Every page is free, held or cached, and the tree has just the cached ones. */
static void check(const engine *e, uint32_t held)
{
    rad_error err = {0};
    long fail_at = e->t ? e->t->fail_at : 0;
    if (e->t) e->t->fail_at = -1; /* a check may take memory */
    CHECKF(rad_cache_check(e->cache, &err) == RAD_OK, "%s\n", err.text);
    if (e->t) e->t->fail_at = fail_at;
    uint32_t of[3] = {0}, windows = 0;
    for (uint32_t i = 0; i < e->own.num_pages; i++) {
        of[e->own.of[i]]++;
        windows += e->own.of[i] == OWN_CACHED && e->own.has_window[i];
    }
    CHECK(of[OWN_FREE] == e->own.num_free && of[OWN_HELD] == held);
    CHECK(rad_cache_total_size(e->cache) == (uint64_t)of[OWN_CACHED] * e->ps);
    CHECK(rad_cache_window_evictable_size(e->cache) + rad_cache_window_protected_size(e->cache) ==
          (uint64_t)windows * e->ps);
}

/* A request with this key comes and goes; of its pages those before `slid` lose their window side.
 * Returns what the insert says. */
static rad_inserted serve(engine *e, const rad_key *key, uint32_t slid)
{
    uint32_t ps = e->ps, pages = key->num_tokens / ps;
    rad_page page[OWN_MOST];
    rad_slot slots[1024];
    rad_inserted in;
    rad_error err = {0};
    CHECK_OK(own_alloc(&e->own, page, pages, e->windows));
    for (uint32_t i = 0; i < pages * ps; i++)
        slots[i] = page[i / ps] * (rad_slot)ps + (rad_slot)(i % ps);
    for (uint32_t i = 0; i < slid; i++)
        own_drop_window(&e->own, page[i]);
    rad_insert_params how = {.window_from = slid * ps};
    CHECKF(rad_cache_insert(e->cache, key, slots, &how, &in, &err) == RAD_OK, "%s\n", err.text);
    uint32_t had = in.prefix_tokens / ps;
    own_pass(&e->own, page + had, pages - had, OWN_HELD, OWN_CACHED);
    own_pass(&e->own, page, had, OWN_HELD, OWN_FREE);
    check(e, 0);
    return in;
}

static uint32_t found(engine *e, const rad_key *key)
{
    rad_match m;
    CHECK_OK(rad_cache_match_prefix(e->cache, key, NULL, &m, NULL));
    check(e, 0);
    return m.prefix_tokens;
}

TEST(an_insert_names_its_end_and_says_what_became_evictable)
{
    engine e;
    init(&e, 2, 20, 0, 0);
    rad_inserted in = serve(&e, KEY(1, 2, 3, 4, 5), 0);
    CHECK(in.prefix_tokens == 0 && in.evictable_change == 4 && in.node.index);
    rad_receipt lock;
    CHECK_OK(rad_cache_inc_lock_ref(e.cache, in.node, &lock, NULL));
    CHECK(lock.evictable_change == -4);

    rad_inserted longer = serve(&e, KEY(1, 2, 3, 4, 5, 6, 7, 8), 0), inside, none;
    CHECK(longer.prefix_tokens == 4 && longer.evictable_change == 4);
    inside = serve(&e, KEY(1, 2), 0); /* its end is made by cutting the locked node */
    CHECK(inside.prefix_tokens == 2 && inside.evictable_change == 0 && inside.node.index);
    none = serve(&e, KEY(1), 0);
    CHECK(!none.node.index && !none.node.generation && !none.prefix_tokens);

    rad_receipt two = {0};
    CHECK_OK(rad_cache_inc_lock_ref(e.cache, longer.node, &two, NULL));
    CHECK(two.evictable_change == -4); /* the rest was locked before */
    CHECK_OK(rad_cache_dec_lock_ref(e.cache, &lock, NULL));
    CHECK(lock.evictable_change == 0 && !lock.held && !lock.node.index);
    uint64_t gone;
    CHECK_OK(rad_cache_evict(e.cache, 100, &gone, NULL));
    CHECK(gone == 0 && e.own.told == 0);
    CHECK_OK(rad_cache_dec_lock_ref(e.cache, &two, NULL));
    CHECK(two.evictable_change == 8);
    CHECK(rad_cache_dec_lock_ref(e.cache, &two, NULL) == RAD_E_STATE);
    CHECK_OK(rad_cache_evict(e.cache, 100, &gone, NULL));
    CHECK(gone == 8 && e.own.told == 4);
    check(&e, 0);
    rad_cache_destroy(e.cache);
}

TEST(what_goes_is_told_once_and_in_lots)
{
    engine e;
    rad_token tokens[250];
    init(&e, 1, 256, 0, 0);
    for (int i = 0; i < 250; i++)
        tokens[i] = i;
    rad_key key = {.tokens = tokens, .num_tokens = 250};
    serve(&e, &key, 0);
    CHECK_OK(rad_cache_evict(e.cache, 7, NULL, NULL));
    CHECK(e.own.told == 7 && e.own.calls == 1);
    for (rad_page page = 250 - 7; page < 250; page++) /* from the tail */
        CHECK(e.own.of[page] == OWN_FREE);
    check(&e, 0);
    CHECK_OK(rad_cache_evict(e.cache, 1000, NULL, NULL));
    CHECK(e.own.told == 250 && e.own.calls <= 4);
    check(&e, 0);
    rad_cache_destroy(e.cache);
}

TEST(an_insert_that_makes_room_tells_what_went_for_it)
{
    engine e;
    init(&e, 1, 20, 0, 6); /* keys of six tokens at most, in a pool of twenty */
    serve(&e, KEY(1, 2, 3, 4), 0);
    rad_inserted in = serve(&e, KEY(5, 6, 7, 8), 0);
    CHECK(in.evictable_change == 2 && e.own.told == 2 && found(&e, KEY(1, 2, 3, 4)) == 2);
    rad_receipt lock;
    CHECK_OK(rad_cache_inc_lock_ref(e.cache, in.node, &lock, NULL));
    CHECK(rad_cache_insert(e.cache, KEY(7, 8, 9), SLOTS(17, 18, 19), NULL, &in, NULL) == RAD_FULL);
    CHECK(!in.evictable_change && e.own.told == 2 && found(&e, KEY(1, 2, 3, 4)) == 2);
    in = serve(&e, KEY(9, 9), 0);
    CHECK(in.evictable_change == 0 && e.own.told == 4); /* two came and two went */
    CHECK_OK(rad_cache_dec_lock_ref(e.cache, &lock, NULL));
    rad_cache_destroy(e.cache);
}

TEST(a_reset_tells_everything_and_a_destroy_nothing)
{
    engine e;
    init(&e, 2, 30, 0, 0);
    rad_receipt lock;
    CHECK_OK(rad_cache_inc_lock_ref(e.cache, serve(&e, KEY(1, 2, 3, 4), 0).node, &lock, NULL));
    serve(&e, KEY(5, 6), 0);
    CHECK_OK(rad_cache_reset(e.cache));
    CHECK(e.own.told == 3 && e.own.num_free == 30);
    CHECK(rad_cache_dec_lock_ref(e.cache, &lock, NULL) == RAD_E_STATE);
    serve(&e, KEY(5, 6), 0);
    rad_cache_destroy(e.cache);
    CHECK(e.own.told == 3 && e.own.num_free == 29);
}

/* Without an allocator nobody else sees that a page has two owners. */
TEST(a_page_comes_in_once)
{
    engine e;
    rad_error err = {0};
    rad_inserted in = {.prefix_tokens = 7};
    init(&e, 2, 10, 0, 0);
    CHECK_OK(rad_cache_insert(e.cache, KEY(1, 2, 3, 4), SLOTS(0, 1, 18, 19), NULL, &in, NULL));
    CHECK(rad_cache_insert(e.cache, KEY(5, 6, 7, 8), SLOTS(4, 5, 18, 19), NULL, &in, &err) ==
          RAD_E_STATE);
    CHECK(strstr(err.text, "slot 18 at position 2 is the cache's already"));
    CHECK(!in.prefix_tokens && !in.node.index && !in.evictable_change);
    CHECK(rad_cache_insert(e.cache, KEY(5, 6, 7, 8), SLOTS(4, 5, 4, 5), NULL, NULL, &err) ==
          RAD_E_STATE);
    CHECK(strstr(err.text, "slot 4 at position 2 is of a page that stands there twice"));
    CHECK(rad_cache_insert(e.cache, KEY(5, 6), SLOTS(20, 21), NULL, NULL, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "slot 20 at position 0 "));
    CHECK(rad_cache_insert(e.cache, KEY(5, 6), SLOTS(-2, -1), NULL, NULL, NULL) == RAD_E_INVAL);
    CHECK(rad_cache_insert(e.cache, KEY(5, 6), SLOTS(5, 6), NULL, NULL, NULL) == RAD_E_INVAL);
    /* What the tree has of the key already may be named again: from a match, or as a duplicate. */
    CHECK_OK(rad_cache_insert(e.cache, KEY(1, 2, 3, 4, 5, 6), SLOTS(0, 1, 18, 19, 4, 5), NULL, &in,
                              NULL));
    CHECK(in.prefix_tokens == 4 && rad_cache_total_size(e.cache) == 6);
    CHECK_OK(rad_cache_check(e.cache, NULL));
    CHECK(e.own.told == 0);
    rad_cache_destroy(e.cache);
}

/* ps 2, a window of two pages. */
TEST(window_sides_go_come_back_and_are_told)
{
    engine e;
    const rad_key *key = KEY(1, 2, 3, 4, 5, 6, 7, 8);
    init(&e, 2, 20, 4, 0);
    rad_inserted in = serve(&e, key, 1); /* its first page has lost it on the way */
    CHECK(rad_cache_window_evictable_size(e.cache) == 6 && found(&e, key) == 8);
    uint64_t gone;
    CHECK_OK(rad_cache_evict_window(e.cache, 100, &gone));
    CHECK(gone == 6 && rad_cache_total_size(e.cache) == 8);
    CHECK(e.own.window_free == 20);
    check(&e, 0);
    CHECK(found(&e, key) == 0);

    rad_receipt lock; /* from before: it is told what has gone */
    CHECK_OK(rad_cache_inc_lock_ref(e.cache, in.node, &lock, NULL));
    CHECK(lock.window_from == 4 && lock.window_missing == 4);
    CHECK_OK(rad_cache_dec_lock_ref(e.cache, &lock, NULL));

    /* Slots of what the tree has already are nobody's business: these are no pages. */
    rad_error err = {0};
    CHECKF(rad_cache_insert(e.cache, key, SLOTS(-8, -7, -1, 2, 40, 41, INT32_MAX - 1, INT32_MAX),
                            NULL, &in, &err) == RAD_OK,
           "%s\n", err.text);
    CHECK(in.prefix_tokens == 8 && e.own.moved == 0);
    check(&e, 0);
    CHECK(found(&e, key) == 0);

    serve(&e, key, 3); /* computed again: one page with a window side comes */
    CHECK(e.own.moved == 1 && rad_cache_window_evictable_size(e.cache) == 2);
    CHECK(found(&e, key) == 0);
    CHECK_OK(rad_cache_inc_lock_ref(e.cache, in.node, &lock, NULL));
    CHECK(lock.window_missing == 2);
    CHECK_OK(rad_cache_dec_lock_ref(e.cache, &lock, NULL));
    serve(&e, key, 0); /* and all of them */
    CHECK(e.own.moved == 4 && found(&e, key) == 8 && e.own.told == 0);
    uint32_t calls = e.own.calls;
    CHECK_OK(rad_cache_evict(e.cache, 100, &gone, NULL)); /* a page takes its window side along */
    CHECK(gone == 8 && e.own.told == 4 && e.own.calls == calls + 1 && e.own.window_free == 20);
    check(&e, 0);
    rad_cache_destroy(e.cache);
}

TEST(a_list_that_does_not_fit_is_refused_in_words)
{
    own_pages own;
    rad_cache *cache;
    rad_error err = {0};
    rad_kv_allocator *kv;
    rad_free_list list = own_init(&own, 10, 0);
    rad_cache_params params = {.struct_size = sizeof params, .page_size = 2, .free_list = &list};
    CHECK_OK(rad_kv_allocator_create(
        NULL, &(rad_kv_allocator_params){sizeof(rad_kv_allocator_params), 4, 2}, &kv, NULL));
    params.kv_allocator = kv;
    CHECK(rad_cache_create(NULL, &params, &cache, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "one of the two"));
    params.kv_allocator = NULL;
    params.window_tokens = 4;
    CHECK(rad_cache_create(NULL, &params, &cache, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "free_windows"));
    params.window_tokens = 0;
    list.num_pages = 0x40000000;
    CHECK(rad_cache_create(NULL, &params, &cache, &err) == RAD_E_INVAL);
    list.num_pages = 0;
    CHECK(rad_cache_create(NULL, &params, &cache, NULL) == RAD_E_INVAL);
    list.num_pages = 10;
    list.free_pages = NULL;
    CHECK(rad_cache_create(NULL, &params, &cache, NULL) == RAD_E_INVAL);
    list.free_pages = own_on_free;
    list.struct_size = 0;
    CHECK(rad_cache_create(NULL, &params, &cache, NULL) == RAD_E_INVAL);
    rad_kv_allocator_destroy(kv);

    engine e;
    init(&e, 2, 10, 0, 0);
    CHECK(rad_cache_insert(e.cache, KEY(1, 2), SLOTS(0, 1), &(rad_insert_params){.window_from = 2},
                           NULL, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "window_from 2"));
    rad_req_kv req = {0};
    CHECK(rad_cache_unfinished_req(e.cache, &req, 0, NULL) == RAD_E_UNSUPPORTED);
    rad_cache_destroy(e.cache);
}

TEST(memory_is_taken_by_create_alone)
{
    for (uint32_t window = 0; window <= 4; window += 4) {
        test_env t;
        engine e = {.ps = 2, .windows = window != 0};
        rad_free_list list = own_init(&e.own, 40, window ? 40 : 0);
        rad_cache_params params = {.struct_size = sizeof params,
                                   .page_size = 2,
                                   .max_tokens = 12,
                                   .window_tokens = window,
                                   .free_list = &list};
        e.cache = cache_after_every_failure(&params, &t);
        CHECK(metadata_bytes(e.cache) == t.bytes);
        e.t = &t;
        t.fail_at = t.allocs; /* the next one fails */
        serve(&e, KEY(1, 2, 3, 4, 5, 6), 0);
        serve(&e, KEY(1, 2, 9, 9, 9, 9, 9, 9), 0);
        serve(&e, KEY(5, 6, 7, 8), 0);
        CHECK(e.own.told > 0);
        if (window) CHECK_OK(rad_cache_evict_window(e.cache, 3, NULL));
        CHECK_OK(rad_cache_evict(e.cache, 3, NULL, NULL));
        CHECK_OK(rad_cache_reset(e.cache));
        CHECK(e.own.num_free == 40 && t.allocs == t.fail_at);
        rad_cache_destroy(e.cache);
        CHECK(t.bytes == 0);
    }
}

TEST_MAIN()
