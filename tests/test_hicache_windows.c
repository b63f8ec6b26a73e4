/* test_hicache_windows.c - windows on the host: what is copied of them, how far a load reaches with
 * them, what of them goes first. Random histories are test_hicache_model.c's. */
#include "hicache_rig.h"

#include <radish/hicache_explain.h>
#include <radish/session.h>

#include "cache/radix_journal.h"

enum { WINDOW = 8 };

static hrig_options windowed(uint32_t page_size, uint32_t pages)
{
    return (hrig_options){.page_size = page_size,
                          .device_pages = pages,
                          .host_pages = 2 * pages,
                          .window = WINDOW,
                          .window_pages = pages,
                          .host_window_pages = pages,
                          .no_threads = true,
                          .demote_tokens = UINT64_MAX,
                          .tiers = {.load_back_threshold = 1}};
}

/* A prompt of so many tokens is computed, and all transfers end. Returns how many were cached. */
static uint32_t serve(hrig *r, hreq *q, uint32_t tokens, rad_token first)
{
    *q = (hreq){0};
    hreq_ask(q, 0, tokens, first);
    uint32_t cached = hrig_serve(r, q);
    hrig_settle(r);
    return cached;
}

static void leave_device(hrig *r)
{
    CHECK_OK(rad_cache_evict(r->cache, 100000, NULL, NULL));
    CHECK(rad_cache_total_size(r->cache) == 0);
}

static rad_match look(hrig *r, const hreq *q, uint32_t tokens)
{
    rad_match m;
    rad_key key = hreq_key(q, tokens);
    CHECK_OK(rad_cache_lookup(r->cache, &key, &m));
    return m;
}

/* Pages that wait to be copied hold no window side: to end their copies frees none. */
TEST(need_of_windows_gives_up_only_copies_of_windows)
{
    hrig r;
    hrig_options o = windowed(4, 64);
    hrig_start(&r, &o, NULL);
    hreq q[2] = {0};
    for (int i = 0; i < 2; i++) {
        hreq_ask(&q[i], 0, 32, 1000 * (1 + i));
        CHECK(hrig_serve(&r, &q[i]) == 0);
    }
    CHECK(hrig_stats(&r).queued[TRANSFER_WRITE] == 4); /* of each the pages, and its window */
    uint64_t evicted;
    CHECK_OK(rad_cache_evict_window(r.cache, 1000, &evicted));
    CHECK(evicted > 0 && hrig_stats(&r).queued[TRANSFER_WRITE] == 2);
    CHECK(hrig_stats(&r).dropped_window_tokens >= 2 * WINDOW);
    CHECK(hrig_stats(&r).dropped_write_tokens == 0);
    hrig_settle(&r);
    CHECK(hrig_stats(&r).written_tokens == 64 && hrig_stats(&r).written_window_tokens == 0);
    hrig_end(&r);
}

static uint64_t evict_host_windows(hrig *r, uint32_t tokens)
{
    uint64_t done = radix_window_evict(hiradix_of(r->cache)->tree, RADIX_HOST, tokens / r->ps);
    CHECK_OK(rad_cache_check(r->cache, NULL));
    return done * r->ps;
}

/* All of a prompt comes back, and of the window side the window before its end. */
TEST(a_load_brings_the_window_before_its_end)
{
    for (uint32_t ps = 1; ps <= 4; ps *= 2)
        for (int only = 0; only < 2; only++) {
            hrig r;
            hreq q;
            hrig_options o = windowed(ps, 200);
            o.window_only = only;
            hrig_start(&r, &o, NULL);
            CHECK(serve(&r, &q, 101, 5) == 0);
            /* A page more, since of the same prompt the last token is computed again. */
            CHECK(hrig_stats(&r).written_window_tokens == WINDOW + ps);
            leave_device(&r);
            CHECK(look(&r, &q, 100).host_hit_tokens == 100);
            CHECK(serve(&r, &q, 101, 5) == 100);
            rad_hicache_stats s = hrig_stats(&r);
            CHECK(s.loaded_tokens == 100 && s.loaded_window_tokens == WINDOW);
            CHECK(s.dropped_window_tokens == 0 && s.dropped_write_tokens == 0);
            CHECK(serve(&r, &q, 101, 5) == 100); /* from the device, where it is found now */
            CHECK(hrig_stats(&r).loaded_tokens == 100);
            hrig_end(&r);
        }
}

/* The pages are there behind the last place before which there is a window; they are no use. */
TEST(a_load_ends_where_the_host_has_a_window)
{
    hrig r;
    hreq q, longer;
    hrig_options o = windowed(2, 200);
    hrig_start(&r, &o, NULL);
    CHECK(serve(&r, &q, 40, 5) == 0);
    CHECK(serve(&r, &longer, 100, 5) == 40);
    leave_device(&r);
    CHECK(look(&r, &longer, 100).host_hit_tokens == 100);
    /* The end of the shorter one was used less recently: its window goes first. */
    CHECK(evict_host_windows(&r, WINDOW + 2) == WINDOW + 2);
    CHECK(look(&r, &longer, 100).host_hit_tokens == 100 && look(&r, &q, 40).host_hit_tokens == 0);
    rad_tier_explanation e = {.struct_size = sizeof e};
    rad_key key = hreq_key(&q, 40);
    CHECK_OK(rad_hicache_explain(r.cache, &key, &e));
    CHECK(e.host_why == RAD_END_WINDOW && e.host_tokens == 0 && e.load == RAD_LOAD_NOTHING);
    CHECK(serve(&r, &q, 40, 5) == 0);
    CHECK(hrig_stats(&r).refused_loads[RAD_LOAD_NOTHING] == 0); /* the match told so */
    /* Computed anew, and found again up to there; the longer one goes on behind. */
    leave_device(&r);
    CHECK(look(&r, &q, 40).host_hit_tokens == 40);
    CHECK(evict_host_windows(&r, 4) == 4);
    CHECK(look(&r, &longer, 100).host_hit_tokens == 40);
    key = hreq_key(&longer, 100);
    e = (rad_tier_explanation){.struct_size = sizeof e};
    CHECK_OK(rad_hicache_explain(r.cache, &key, &e));
    CHECK(e.host_why == RAD_END_WINDOW && e.host_end == 40 && e.host_tokens == 40);
    CHECK(serve(&r, &longer, 100, 5) == 40);
    CHECK(hrig_stats(&r).loaded_window_tokens == WINDOW);
    hrig_end(&r);
}

/* The device has all pages still, and not the windows: these come back, with new pages, of which
 * the tree takes the window sides. */
TEST(windows_that_the_device_lost_come_from_the_host)
{
    hrig r;
    hreq q;
    hrig_options o = windowed(2, 200);
    hrig_start(&r, &o, NULL);
    CHECK(serve(&r, &q, 61, 5) == 0);
    CHECK_OK(rad_cache_evict_window(r.cache, 1000, NULL));
    CHECK(rad_cache_total_size(r.cache) == 60 && look(&r, &q, 60).prefix_tokens == 0);
    CHECK(look(&r, &q, 60).host_hit_tokens == 60);
    CHECK(serve(&r, &q, 61, 5) == 60);
    CHECK(rad_cache_total_size(r.cache) == 60 && look(&r, &q, 60).prefix_tokens == 60);
    CHECK(rad_cache_window_evictable_size(r.cache) == WINDOW);
    hrig_end(&r);
}

/* The window before the last end lies in three nodes, of which the first goes first; the window
 * before its own end is gone by then. */
TEST(write_back_copies_a_window_of_several_nodes_as_a_whole)
{
    for (uint32_t step = 1; step <= 12; step += 5) {
        hrig r;
        hreq q;
        hrig_options o = windowed(1, 300);
        o.tiers.write_policy = RAD_WRITE_BACK;
        hrig_start(&r, &o, NULL);
        CHECK(serve(&r, &q, 38, 5) == 0 && serve(&r, &q, 41, 5) == 38);
        CHECK(serve(&r, &q, 44, 5) == 41 && serve(&r, &q, 46, 5) == 44);
        for (uint64_t done = 1; done;)
            CHECK_OK(rad_cache_evict_window(r.cache, step, &done));
        CHECK(hrig_stats(&r).written_window_tokens >= WINDOW);
        leave_device(&r);
        CHECK(look(&r, &q, 46).host_hit_tokens == 46);
        CHECK(serve(&r, &q, 47, 5) == 46);
        hrig_end(&r);
    }
}

/* Nobody's prompt ends with the shared prefix. Its window goes to the host when a second one goes
 * on behind it, for a third that comes when the device has lost all. */
TEST(a_shared_prefix_is_found_on_the_host)
{
    for (uint32_t policy = RAD_WRITE_THROUGH; policy <= RAD_WRITE_THROUGH_SELECTIVE; policy++) {
        hrig r;
        hreq q[3];
        hrig_options o = windowed(2, 300);
        o.tiers.write_policy = policy;
        hrig_start(&r, &o, NULL);
        for (rad_token i = 0; i < 3; i++) {
            q[i] = (hreq){0};
            hreq_ask(&q[i], 0, 40, 5);
            hreq_ask(&q[i], 40, 80, 1000 + 100 * i);
            if (i == 2) leave_device(&r);
            CHECK(hrig_serve(&r, &q[i]) == (i ? 40 : 0));
            hrig_settle(&r);
        }
        CHECK(hrig_stats(&r).loaded_window_tokens == WINDOW);
        hrig_end(&r);
    }
}

/* What the device has up to its match needs no window on the host. */
TEST(a_load_goes_on_behind_a_window_of_the_device)
{
    hrig r;
    hreq q, other;
    hrig_options o = windowed(2, 200);
    hrig_start(&r, &o, NULL);
    CHECK(serve(&r, &q, 41, 5) == 0);
    CHECK(serve(&r, &other, 45, 5) == 40);
    hreq_ask(&other, 44, 100, 1000);
    CHECK(hrig_serve(&r, &other) == 44);
    hrig_settle(&r);
    /* Of the last one the device keeps the front, with the window at 40. */
    CHECK_OK(rad_cache_evict(r.cache, 56, NULL, NULL));
    CHECK(look(&r, &other, 100).prefix_tokens == 44);
    CHECK_OK(rad_cache_evict(r.cache, 4, NULL, NULL));
    rad_match m = look(&r, &other, 100);
    CHECK(m.prefix_tokens == 40 && m.host_hit_tokens == 60);
    CHECK(hrig_serve(&r, &other) == 98); /* the last token is computed */
    hrig_end(&r);
}

/* A request that has gone on by more than a window holds nothing of the tree's window side any
 * more. */
TEST(a_window_that_is_passed_is_let_go_over_tiers)
{
    hrig r;
    hreq q;
    rad_error err = {0};
    hrig_options o = windowed(2, 200);
    hrig_start(&r, &o, NULL);
    CHECK(serve(&r, &q, 41, 5) == 0);
    hreq_ask(&q, 41, 80, 1000);
    CHECK_OK(hreq_admit(&r, &q));
    CHECK(q.kv.protected_len == 40 && rad_cache_window_protected_size(r.cache) == WINDOW);
    CHECK_OK(hreq_extend(&r, &q));
    CHECK_OK(hreq_forward(&r, &q));
    CHECK_OK(rad_cache_release_window(r.cache, &q.kv, 36, &err));
    CHECK(rad_cache_window_protected_size(r.cache) == 4 && q.kv.lock.window_from == 36);
    CHECK_OK(rad_cache_release_window(r.cache, &q.kv, 70, &err));
    CHECK(rad_cache_window_protected_size(r.cache) == 0);
    hreq *all[] = {&q};
    hrig_check(&r, all, 1);
    hreq_finish(&r, &q, true);
    hrig_end(&r);
}

/* The first turn of a streaming session enters the tree as a whole; its chunks are not published,
 * yet what it has loaded is its own as soon as it is there, to be given back behind the window. */
TEST(a_session_settles_its_load_with_the_first_chunk)
{
    hrig r;
    hreq q;
    rad_cache *front;
    rad_session session;
    rad_row row;
    rad_error err = {0};
    hrig_options o = windowed(2, 200);
    hrig_start(&r, &o, NULL);
    CHECK(serve(&r, &q, 61, 5) == 0);
    leave_device(&r);
    rad_streaming_cache_params p = {.struct_size = sizeof p, .inner = r.cache, .max_sessions = 1};
    CHECK_OK(rad_streaming_cache_create(NULL, &p, &front, NULL));
    CHECK_OK(rad_session_open(front, &session));

    hreq_ask(&q, 61, 100, 1000);
    q.kv = (rad_req_kv){.key = hreq_key(&q, 100)};
    q.kv.key.session = session;
    rad_key key = hreq_key(&q, 99);
    CHECK_OK(rad_cache_match_prefix(front, &key, NULL, &q.match, NULL));
    CHECK_OK(rad_cache_inc_lock_ref(front, q.match.last_node, &q.kv.lock, NULL));
    CHECK_OK(rad_session_begin(front, &q.kv, &err));
    CHECK_OK(rad_req_to_token_alloc(r.rows, &row));
    q.kv.row = row;
    CHECK_OK(rad_hicache_load_back(r.cache, &q.kv, &key, UINT64_MAX, &q.loaded));
    CHECK(q.loaded.tokens == 60 && q.kv.load);
    q.num_tokens = 80;
    CHECK_OK(hreq_extend(&r, &q));
    CHECK_OK(hreq_forward(&r, &q));
    CHECK_OK(rad_cache_unfinished_req(front, &q.kv, 1, &err));
    CHECK(q.kv.load == 0 && q.kv.protected_len == 0);
    rad_status status = rad_cache_release_window(front, &q.kv, 70, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    CHECK(q.kv.window_len == 70);
    CHECK_OK(rad_cache_finished_req(front, &q.kv, 1, &err));
    CHECK_OK(rad_session_close(front, session));
    r.cache = front; /* which owns the other */
    CHECK_OK(rad_cache_check(front, &err));
    hrig_stop(&r, false);
}

/* write_back: a prompt that others began with is copied with the first of them that leaves the
 * device; its own window goes with its last pages, and is copied before that. */
TEST(a_window_of_pages_that_the_host_has_already_is_saved)
{
    hrig r;
    hreq shared, q;
    hrig_options o = windowed(2, 200);
    o.tiers.write_policy = RAD_WRITE_BACK;
    hrig_start(&r, &o, NULL);
    CHECK(serve(&r, &shared, 40, 5) == 0);
    for (int i = 0; i < 3; i++) {
        q = shared;
        hreq_ask(&q, 40, 80, 1000 * (i + 1));
        CHECK(hrig_serve(&r, &q) == 40);
    }
    leave_device(&r);
    CHECK(look(&r, &q, 80).host_hit_tokens == 80);
    CHECK(look(&r, &shared, 40).host_hit_tokens == 40);
    hreq_ask(&q, 40, 80, 9000);
    CHECK(hrig_serve(&r, &q) == 40);
    CHECK(hrig_stats(&r).loaded_window_tokens == WINDOW);
    hrig_end(&r);
}

/* As on the device: windows before which no match can end any more go first, then those that were
 * of use least recently. */
TEST(host_windows_go_by_what_they_are_good_for)
{
    hrig r;
    hreq shorter, longer;
    hrig_options o = windowed(1, 300);
    hrig_start(&r, &o, NULL);
    CHECK(serve(&r, &longer, 30, 5) == 0);
    CHECK(serve(&r, &shorter, 20, 500) == 0);
    CHECK(serve(&r, &longer, 60, 5) == 30);
    CHECK(serve(&r, &longer, 90, 5) == 60);
    leave_device(&r);
    /* Two ends of the longer one that it has gone on from. */
    CHECK(evict_host_windows(&r, 2 * WINDOW + 2) == 2 * WINDOW + 2);
    CHECK(look(&r, &shorter, 20).host_hit_tokens == 20);
    CHECK(look(&r, &longer, 90).host_hit_tokens == 90);
    CHECK(look(&r, &longer, 60).host_hit_tokens == 0);
    hrig_end(&r);
}

/* Host window memory that is full is no reason not to copy pages, and what does not fit is counted;
 * what a load holds stays. */
TEST(host_windows_that_are_held_are_not_evicted)
{
    hrig r;
    hreq q, other;
    hrig_options o = windowed(1, 300);
    o.host_window_pages = WINDOW + 3;
    hrig_start(&r, &o, NULL);
    CHECK(serve(&r, &q, 50, 5) == 0);
    leave_device(&r);
    CHECK_OK(hreq_admit(&r, &q));
    CHECK(q.kv.allocated_len == 49);
    CHECK(serve(&r, &other, 50, 1000) == 0); /* its window finds no room beside */
    rad_hicache_stats s = hrig_stats(&r);
    CHECK(s.dropped_window_tokens > 0 && s.dropped_write_tokens == 0);
    CHECK(s.host_cached_tokens == 100);
    CHECK_OK(hreq_extend(&r, &q));
    CHECK_OK(hreq_forward(&r, &q));
    hreq_finish(&r, &q, true);
    hrig_end(&r);
}

/* ---- storage ---- */

static hrig_options stored(uint32_t page_size, bool only)
{
    hrig_options o = windowed(page_size, 200);
    o.storage = true;
    o.window_only = only;
    o.layout = page_size % 2;
    o.tiers.prefetch_policy = RAD_PREFETCH_WAIT_COMPLETE;
    o.tiers.prefetch_threshold = 1;
    return o;
}

/* What storage brings to the host of a key of so many tokens. */
static uint32_t fetch(hrig *r, const hreq *q, uint32_t tokens)
{
    rad_key key = hreq_key(q, tokens);
    rad_prefetch ticket;
    uint32_t came = 0;
    rad_status status = rad_hicache_prefetch_start(r->cache, &key, 0, &ticket);
    CHECK(status == RAD_OK || status == RAD_NONE);
    while ((status = rad_hicache_prefetch_progress(r->cache, &ticket, &key, &came)) == RAD_AGAIN)
        (void)hi_pump(r->cache, 0);
    CHECK_OK(status);
    CHECK_OK(rad_cache_check(r->cache, NULL));
    return came;
}

/* The window record of a page of the key goes; or, `full`, the other one. */
static void lose(hrig *r, const hreq *q, uint32_t page, bool full)
{
    hiradix_cache *hi = hiradix_of(r->cache);
    rad_page_hash hashes[HRIG_ROW_TOKENS];
    rad_storage_key name;
    rad_key key = hreq_key(q, (page + 1) * r->ps);
    CHECK_OK(radix_journal_hash_key(hi->tree->journal, hi->tree, &key, 0, page + 1, NULL, hashes));
    const page_store *s = full ? &hi->store : &hi->window_store;
    CHECK_OK(rad_storage_key_of(&s->fingerprint, &hashes[page], &name));
    uint32_t before = r->store.count;
    CHECK_OK(r->opened.ops->remove(r->opened.self, &name, NULL));
    CHECK(r->store.count == before - 1);
}

TEST(a_prompt_comes_back_from_storage_with_its_window)
{
    for (uint32_t ps = 1; ps <= 4; ps *= 2)
        for (int only = 0; only < 2; only++) {
            hrig r;
            hreq q;
            hrig_options o = stored(ps, only);
            hrig_start(&r, &o, NULL);
            CHECK(serve(&r, &q, 101, 5) == 0);
            rad_hicache_stats s = hrig_stats(&r);
            CHECK(s.backed_up_window_tokens == WINDOW + ps);
            CHECK(s.backed_up_tokens == (only ? 0 : 101 / ps * ps));
            hrig_restart(&r);
            CHECK(fetch(&r, &q, 100) == 100);
            s = hrig_stats(&r);
            CHECK(s.fetched_tokens == 100 && s.fetched_window_tokens == WINDOW);
            CHECK(look(&r, &q, 100).host_hit_tokens == 100);
            CHECK(serve(&r, &q, 101, 5) == 100);
            CHECK(hrig_stats(&r).backed_up_window_tokens <= ps); /* it knows what is stored */
            hrig_end(&r);
        }
}

/* Missing, or torn: the last window that is whole is where it goes on. */
TEST(a_window_record_that_is_gone_makes_the_end_earlier)
{
    for (int only = 0; only < 2; only++)
        for (uint32_t gone = 0; gone < WINDOW / 2; gone++) {
            hrig r;
            hreq q, longer;
            hrig_options o = stored(2, only);
            hrig_start(&r, &o, NULL);
            CHECK(serve(&r, &q, 40, 5) == 0);
            CHECK(serve(&r, &longer, 200, 5) == 40);
            hrig_restart(&r);
            lose(&r, &longer, 99 - gone, false);
            uint32_t left = gone ? 40 : 198; /* a page more than the window was stored */
            CHECK(fetch(&r, &longer, 200) == left);
            CHECK(look(&r, &longer, 200).host_hit_tokens == left);
            CHECK(serve(&r, &longer, 200, 5) == left);
            hrig_settle(&r);
            hrig_restart(&r); /* computed and stored anew */
            CHECK(fetch(&r, &longer, 200) == 200);
            hrig_end(&r);
        }
}

/* A full page that is gone: all that is behind it is, windows or not. */
TEST(a_page_that_is_gone_makes_the_end_earlier)
{
    hrig r;
    hreq q, longer;
    hrig_options o = stored(2, false);
    hrig_start(&r, &o, NULL);
    CHECK(serve(&r, &q, 40, 5) == 0);
    CHECK(serve(&r, &longer, 200, 5) == 40);
    hrig_restart(&r);
    lose(&r, &longer, 60, true);
    CHECK(fetch(&r, &longer, 200) == 40);
    lose(&r, &longer, 10, true);
    hrig_restart(&r);
    CHECK(fetch(&r, &longer, 200) == 0);
    CHECK(hrig_stats(&r).host_used_tokens == 0 && hrig_stats(&r).host_window_used_tokens == 0);
    hrig_end(&r);
}

static storage_fate spoil_windows(void *user, storage_call call, uint64_t number)
{
    (void)user, (void)number;
    return call == STORAGE_GET ? STORAGE_TORN : STORAGE_WELL;
}

TEST(torn_window_records_are_misses)
{
    for (int only = 0; only < 2; only++) {
        hrig r;
        hreq q;
        hrig_options o = stored(2, only);
        hrig_start(&r, &o, NULL);
        CHECK(serve(&r, &q, 101, 5) == 0);
        hrig_restart(&r);
        r.store.script = spoil_windows;
        CHECK(fetch(&r, &q, 100) == 0);
        CHECK(hrig_stats(&r).bad_pages == 1 && hrig_stats(&r).host_window_used_tokens == 0);
        r.store.script = NULL;
        CHECK(serve(&r, &q, 101, 5) == 0);
        hrig_end(&r);
    }
}

/* The host has lost the window and has the pages: the window comes back, the pages stay. */
TEST(storage_brings_back_a_window_that_the_host_has_lost)
{
    hrig r;
    hreq q;
    hrig_options o = stored(2, false);
    hrig_start(&r, &o, NULL);
    CHECK(serve(&r, &q, 101, 5) == 0);
    leave_device(&r);
    CHECK(evict_host_windows(&r, 1000) == WINDOW + 2);
    CHECK(look(&r, &q, 100).host_hit_tokens == 0);
    CHECK(fetch(&r, &q, 100) == 100);
    CHECK(look(&r, &q, 100).host_hit_tokens == 100);
    rad_hicache_stats s = hrig_stats(&r);
    CHECK(s.fetched_window_tokens == WINDOW && s.host_cached_tokens == 100);
    CHECK(serve(&r, &q, 101, 5) == 100);
    hrig_end(&r);
}

/* A store that loses a page loses its window as well: when that is noticed of the page, both go
 * there again, while requests come by. */
TEST(a_window_that_storage_has_lost_is_stored_anew_with_its_page)
{
    hrig r;
    hreq q;
    hrig_options o = stored(2, false);
    o.tiers.recheck_ns = 4;
    hrig_start(&r, &o, NULL);
    CHECK(serve(&r, &q, 101, 5) == 0);
    for (uint32_t page = 46; page < 50; page++) {
        lose(&r, &q, page, true);
        lose(&r, &q, page, false);
    }
    for (int i = 0; i < 4; i++)
        CHECK(serve(&r, &q, 101, 5) == 100);
    rad_hicache_stats s = hrig_stats(&r);
    CHECK(s.stored_anew_tokens == 8 && s.backed_up_window_tokens == WINDOW + 2 + 8);
    hrig_restart(&r);
    CHECK(fetch(&r, &q, 100) == 100);
    hrig_end(&r);
}

/* What a cache keeps in one pool and another in two are different records, whatever their
 * identities say. */
TEST(records_with_windows_and_without_are_not_taken_for_each_other)
{
    hrig r;
    hreq q;
    hrig_options o = stored(2, false);
    hrig_start(&r, &o, NULL);
    CHECK(serve(&r, &q, 101, 5) == 0);
    hrig_check_idle(&r);
    hrig_stop(&r, true);
    hrig old = r;
    o.window = o.window_pages = o.host_window_pages = 0;
    size_t room = old.store.record_bytes;
    hrig_start(&r, &o, &old);
    CHECK(fetch(&r, &q, 100) == 0 && r.store.record_bytes == room);
    CHECK(serve(&r, &q, 101, 5) == 0);
    hrig_restart(&r);
    CHECK(fetch(&r, &q, 100) == 100);
    CHECK(hrig_stats(&r).bad_pages == 0);
    hrig_end(&r);
}

/* write_back copies nothing ahead here: what the device gives up is copied by the one who asks, the
 * window first, with the pages that it needs. */
TEST(write_back_copies_a_window_before_the_device_loses_it)
{
    for (int only = 0; only < 2; only++) {
        hrig r;
        hreq q, other;
        hrig_options o = windowed(2, 200);
        o.window_only = only;
        o.tiers.write_policy = RAD_WRITE_BACK;
        hrig_start(&r, &o, NULL);
        CHECK(serve(&r, &q, 101, 5) == 0);
        CHECK(serve(&r, &other, 61, 1000) == 0);
        CHECK(hrig_stats(&r).host_cached_tokens == 0);
        CHECK_OK(rad_cache_evict_window(r.cache, 100000, NULL));
        CHECK(rad_cache_window_evictable_size(r.cache) == 0);
        rad_hicache_stats s = hrig_stats(&r);
        CHECK(s.host_cached_tokens == 160 && s.host_window_cached_tokens == 2 * (WINDOW + 2));
        leave_device(&r);
        CHECK(serve(&r, &q, 101, 5) == 100 && serve(&r, &other, 61, 1000) == 60);
        CHECK(hrig_stats(&r).dropped_window_tokens == 0);
        hrig_end(&r);
    }
}

TEST(tiers_are_cleared_with_their_windows)
{
    for (uint32_t tiers = 1; tiers <= 3; tiers++) {
        hrig r;
        hreq q;
        hrig_options o = windowed(2, 200);
        hrig_start(&r, &o, NULL);
        CHECK(serve(&r, &q, 61, 5) == 0);
        CHECK_OK(rad_hicache_clear(r.cache, tiers, NULL));
        hrig_check_idle(&r);
        CHECK(!(tiers & RAD_TIER_DEVICE) == !!rad_cache_total_size(r.cache));
        CHECK(!(tiers & RAD_TIER_HOST) == !!hrig_stats(&r).host_window_cached_tokens);
        rad_match m = look(&r, &q, 60);
        CHECK(m.prefix_tokens == (tiers & RAD_TIER_DEVICE ? 0 : 60));
        CHECK(m.host_hit_tokens == (tiers == RAD_TIER_DEVICE ? 60 : 0));
        hrig_end(&r);
    }
}

static rad_status create(hrig *r, rad_hicache_params params, rad_error *err)
{
    rad_cache *cache = NULL;
    rad_status status = rad_hicache_create(NULL, &params, &cache, err);
    CHECK(!cache == (status != RAD_OK));
    rad_cache_destroy(cache);
    (void)r;
    return status;
}

TEST(what_does_not_go_together_is_refused_in_words)
{
    hrig r;
    rad_error err = {0};
    hrig_options o = windowed(2, 200);
    hrig_start(&r, &o, NULL);
    rad_cache_destroy(r.cache);
    rad_cache_params tree = {.struct_size = sizeof tree,
                             .page_size = 2,
                             .window_tokens = WINDOW,
                             .kv_allocator = r.kv,
                             .req_to_token_pool = r.rows};
    rad_hicache_params p = {.struct_size = sizeof p,
                            .cache = &tree,
                            .host_pool = r.host,
                            .window_host_pool = r.window_host,
                            .deterministic = 1};
    CHECK_OK(create(&r, p, &err));
    p.window_host_pool = NULL;
    CHECK(create(&r, p, &err) == RAD_E_INVAL && strstr(err.text, "no host pool for it"));
    p.window_host_pool = r.window_host;
    tree.window_tokens = 0;
    CHECK(create(&r, p, &err) == RAD_E_INVAL && strstr(err.text, "a window of 0 tokens"));
    tree.window_tokens = WINDOW;
    rad_storage_identity identity = {.struct_size = sizeof identity, .model = "m", .page_size = 2};
    p.identity = &identity;
    CHECK_OK(create(&r, p, &err));
    p.identity = NULL;
    p.host_pool = p.window_host_pool = NULL;
    CHECK(create(&r, p, &err) == RAD_E_INVAL && strstr(err.text, "a host pool"));
    p.host_pool = r.host;
    p.window_host_pool = r.window_host;
    CHECK_OK(rad_hicache_create(NULL, &p, &r.cache, &err));
    hrig_end(&r);
}

TEST(create_survives_every_allocation_failing)
{
    for (int only = 0; only < 2; only++) {
        test_env t;
        hrig r;
        hrig_options o = windowed(2, 40);
        o.window_only = only;
        o.storage = true;
        hrig_start(&r, &o, NULL);
        hrig_create_failing(&r, &t);
        hrig_stop(&r, false);
        CHECK(t.bytes == 0);
    }
}

TEST_MAIN()
