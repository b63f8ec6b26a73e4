/* test_hicache.c - one by one: what goes to the host and to storage, and what comes back. Who makes
 * room for it is in test_hicache_room.c, what happens when it does not come in
 * test_hicache_faults.c. */
#include "hicache_plain.h"

#include <radish/session.h>

TEST(what_the_device_evicts_comes_back_from_the_host)
{
    for (uint32_t ps = 1; ps <= 16; ps += 15)
        for (uint32_t layout = 0; layout < 2; layout++) {
            hrig r;
            hrig_options o = hrig_plain(ps);
            o.layout = layout;
            hrig_start(&r, &o, NULL);
            CHECK(hrig_serve_from(&r, 160, 1000) == 0);
            CHECK(hrig_look(&r, 160, 1000).host_hit_tokens == 0);
            hrig_settle(&r);
            CHECK(hrig_stats(&r).written_tokens == 160);
            CHECK_OK(rad_cache_evict(r.cache, 96, NULL, NULL));
            rad_match match = hrig_look(&r, 160, 1000);
            CHECK(match.prefix_tokens == 64 && match.host_hit_tokens == 96);
            CHECK(hrig_serve_from(&r, 161, 1000) == 160);
            CHECK(hrig_stats(&r).loaded_tokens == 96);
            CHECK_OK(rad_cache_evict(r.cache, 1000, NULL, NULL));
            CHECK(hrig_serve_from(&r, 161, 1000) == 160); /* all of it */
            CHECK(hrig_look(&r, 160, 1000).prefix_tokens == 160);
            hrig_end(&r);
        }
}

/* The first of two over one pool may go first: loads of the other one are still waited for. */
TEST(caches_over_one_pool_come_and_go_in_any_order)
{
    for (int first = 0; first < 2; first++) {
        hrig r[2];
        hrig_options o = hrig_plain(16);
        hrig_start(&r[0], &o, NULL);
        o.pool = r[0].pool;
        hrig_start(&r[1], &o, NULL);
        CHECK(r[0].pool->num_waiters == 2);
        hrig *stays = &r[!first];
        rad_cache_destroy(r[first].cache);
        r[first].cache = NULL;
        CHECK(r[0].pool->num_waiters == 1);
        CHECK(hrig_serve_from(stays, 160, 1000) == 0);
        hrig_settle(stays);
        CHECK_OK(rad_cache_evict(stays->cache, 1000, NULL, NULL));
        CHECK(hrig_serve_from(stays, 161, 1000) == 160);
        CHECK(hrig_stats(stays).loaded_tokens == 160);
        hrig_check_idle(stays);
        hrig_stop(&r[1], false); /* takes what there is */
        CHECK(r[0].pool->num_waiters == (first ? 1 : 0));
        hrig_stop(&r[0], false);
    }
}

static void wait_for_nothing(void *user, uint32_t layer)
{
    (void)user, (void)layer;
}

/* Nobody else's are given up for one more that cannot be waited for. */
TEST(a_pool_that_too_many_wait_for_takes_no_tiers)
{
    hrig r;
    hrig_options o = hrig_plain(16);
    test_env t;
    rad_error err = {0};
    char waiters[RAD_KV_WAITERS];
    hrig_start(&r, &o, NULL);
    rad_cache_destroy(r.cache);
    for (uint32_t i = 0; i < RAD_KV_WAITERS; i++)
        CHECK_OK(rad_kv_pool_add_wait(r.pool, wait_for_nothing, &waiters[i], NULL));
    rad_env env = test_env_init(&t);
    CHECK(rad_hicache_create(&env, &r.params, &r.cache, &err) == RAD_E_LIMIT);
    CHECKF(!r.cache && t.bytes == 0 && strstr(err.text, "wait for its layers"), "%s\n", err.text);
    hrig_stop(&r, false);
}

/* Where a tier ends within a prompt a node is cut; the cut moves, and there is one at most. */
TEST(an_eviction_token_by_token_makes_no_nodes)
{
    hrig r;
    hrig_options o = hrig_plain(1);
    o.host_pages = 120;
    hrig_start(&r, &o, NULL);
    hrig_serve_from(&r, 100, 1000);
    hrig_settle(&r);
    for (uint32_t gone = 1; gone < 100; gone++) {
        CHECK_OK(rad_cache_evict(r.cache, 1, NULL, NULL));
        rad_match match = hrig_look(&r, 100, 1000);
        CHECK(match.prefix_tokens == 100 - gone && match.host_hit_tokens == gone);
        rad_cache_stats stats;
        rad_cache_get_stats(r.cache, &stats);
        CHECK(stats.num_nodes == 2 && stats.merges == 0);
        if (gone % 9 == 0) hrig_check(&r, NULL, 0);
    }
    CHECK(hrig_serve_from(&r, 101, 1000) == 100);
    for (uint32_t tokens = 1; tokens < 60; tokens++) { /* the same on the host */
        hrig_serve_from(&r, tokens, 5000);
        hrig_settle(&r);
        rad_match match = hrig_look(&r, 100, 1000);
        CHECK(match.prefix_tokens == 100 && hrig_stats(&r).host_cached_tokens <= 120);
        rad_cache_stats stats;
        rad_cache_get_stats(r.cache, &stats);
        CHECK(stats.num_nodes <= 2 + tokens + 2);
        hrig_check(&r, NULL, 0);
    }
    CHECK(hrig_stats(&r).host_evicted_tokens > 30);
    hrig_end(&r);
}

TEST(a_copy_is_found_only_when_it_is_complete)
{
    hrig r;
    hrig_options o = hrig_plain(16);
    hrig_start(&r, &o, NULL);
    hrig_serve_from(&r, 160, 1000);
    CHECK(hrig_stats(&r).tickets == 1 && hrig_stats(&r).queued[TRANSFER_WRITE] == 1);
    CHECK_OK(hi_pump(r.cache, 0)); /* copied, not acknowledged */
    rad_key key = {0};
    hreq q = {0};
    hreq_ask(&q, 0, 160, 1000);
    key = hreq_key(&q, 160);
    CHECK(hrig_on_host(&r, &key, NULL) == 0);
    CHECK(rad_cache_protected_size(r.cache) == 160); /* what is copied stays until then */
    uint64_t evicted;
    CHECK_OK(rad_cache_poll(r.cache));
    CHECK(hrig_on_host(&r, &key, NULL) == 160);
    CHECK_OK(rad_cache_evict(r.cache, 1000, &evicted, NULL));
    CHECK(evicted == 160);
    hrig_end(&r);
}

TEST(a_streaming_wrapper_polls_the_tiers_behind_it)
{
    hrig r;
    hrig_options o = hrig_plain(16);
    hrig_start(&r, &o, NULL);
    hrig_serve_from(&r, 160, 1000);
    CHECK_OK(hi_pump(r.cache, 0));
    rad_streaming_cache_params p = {.struct_size = sizeof p, .inner = r.cache};
    rad_cache *wrapper = NULL;
    CHECK_OK(rad_streaming_cache_create(NULL, &p, &wrapper, NULL));
    CHECK(rad_cache_protected_size(wrapper) == 160);
    CHECK_OK(rad_cache_poll(wrapper));
    CHECK(rad_cache_protected_size(wrapper) == 0 && hrig_stats(&r).tickets == 0);
    hrig_check_idle(&r);
    r.cache = wrapper; /* destroys what it wraps */
    hrig_stop(&r, false);
}

TEST(selective_writes_what_was_hit)
{
    hrig r;
    hrig_options o = hrig_plain(16);
    o.tiers.write_policy = RAD_WRITE_THROUGH_SELECTIVE;
    hrig_start(&r, &o, NULL);
    hreq q = {0};
    hreq_ask(&q, 0, 96, 1000);
    hrig_serve(&r, &q);
    CHECK(hrig_stats(&r).tickets == 0);
    hreq_ask(&q, 64, 160, 5000); /* comes back to the first 64 */
    CHECK(hrig_serve(&r, &q) == 64);
    hrig_settle(&r);
    CHECK(hrig_stats(&r).written_tokens == 64);
    hrig_end(&r);
}

TEST(loads_are_refused_for_a_reason)
{
    hrig r;
    hrig_options o = hrig_plain(4);
    o.tiers.max_transfers = 1;
    hrig_start(&r, &o, NULL);
    hrig_serve_from(&r, 100, 1000);
    hrig_settle(&r);
    CHECK_OK(rad_cache_evict(r.cache, 8, NULL, NULL));
    hreq q = {0}, other = {0};
    hreq_ask(&q, 0, 101, 1000);
    CHECK_OK(hreq_admit(&r, &q));
    CHECK(q.match.host_hit_tokens == 8 && q.loaded.why == RAD_LOAD_BELOW_THRESHOLD);
    hreq_finish(&r, &q, false);
    CHECK_OK(rad_cache_evict(r.cache, 1000, NULL, NULL));

    CHECK_OK(hreq_admit(&r, &q));
    CHECK(q.loaded.tokens == 100);
    hreq_ask(&other, 0, 101, 1000);
    CHECK_OK(hreq_admit(&r, &other));
    CHECK(other.loaded.why == RAD_LOAD_NO_TICKET && other.kv.allocated_len == 0);
    hreq_finish(&r, &other, false);
    rad_load_result again;
    rad_key key = hreq_key(&q, 100);
    CHECK(rad_hicache_load_back(r.cache, &q.kv, &key, 1000, &again) == RAD_E_STATE);
    hreq_finish(&r, &q, false);

    q = (hreq){0};
    hreq_ask(&q, 0, 101, 1000);
    rad_row row;
    CHECK_OK(rad_req_to_token_alloc(r.rows, &row));
    q.kv = (rad_req_kv){.row = row, .key = hreq_key(&q, 101)};
    CHECK(rad_hicache_load_back(r.cache, &q.kv, &key, 99, &again) == RAD_NONE);
    CHECK(again.why == RAD_LOAD_OVER_QUOTA);
    rad_page all[64];
    CHECK_OK(rad_kv_alloc(r.kv, all, 64));
    CHECK(rad_hicache_load_back(r.cache, &q.kv, &key, 100, &again) == RAD_NONE);
    CHECK(again.why == RAD_LOAD_NO_DEVICE_PAGES);
    CHECK_OK(rad_kv_free(r.kv, all, 64, NULL));
    key.num_tokens = 3;
    CHECK(rad_hicache_load_back(r.cache, &q.kv, &key, 100, &again) == RAD_NONE);
    CHECK(again.why == RAD_LOAD_NOTHING);
    for (int why = RAD_LOAD_TAKEN; why <= RAD_LOAD_NO_TICKET; why++)
        CHECK(hrig_stats(&r).refused_loads[why] == 1);
    CHECK_OK(rad_cache_finished_req(r.cache, &q.kv, 0, NULL));
    hrig_end(&r);
}

TEST(a_request_may_go_at_any_moment_of_its_load)
{
    for (int moment = 0; moment < 4; moment++) {
        hrig r;
        hrig_options o = hrig_plain(16);
        hrig_start(&r, &o, NULL);
        hrig_serve_from(&r, 112, 1000);
        hrig_settle(&r);
        CHECK_OK(rad_cache_evict(r.cache, 1000, NULL, NULL));
        hreq q = {0}, *reqs[1] = {&q};
        hreq_ask(&q, 0, 130, 1000);
        CHECK_OK(hreq_admit(&r, &q));
        CHECK(q.loaded.tokens == 112);
        CHECK_OK(hreq_extend(&r, &q));
        hrig_check(&r, reqs, 1);
        if (moment > 0) CHECK_OK(rad_hicache_ready_to_load(r.cache));
        if (moment > 1) CHECK_OK(hi_pump(r.cache, 0));
        if (moment > 2) CHECK_OK(rad_cache_poll(r.cache));
        rad_error err;
        if (moment == 1) CHECK(rad_cache_unfinished_req(r.cache, &q.kv, 0, &err) == RAD_AGAIN);
        hreq_finish(&r, &q, true);
        hrig_check(&r, NULL, 0);
        /* Only what had arrived may be published. */
        CHECK(hrig_look(&r, 112, 1000).prefix_tokens == (moment > 1 ? 112 : 0));
        hrig_end(&r);
    }
}

TEST(a_streaming_cache_in_front_passes_polls_on)
{
    hrig r;
    hrig_options o = hrig_plain(16);
    rad_cache *front = NULL;
    hrig_start(&r, &o, NULL);
    rad_cache *behind = r.cache;
    rad_streaming_cache_params p = {.struct_size = sizeof p, .inner = behind};
    CHECK_OK(rad_streaming_cache_create(NULL, &p, &front, NULL));
    hrig_serve_from(&r, 112, 1000);
    CHECK_OK(hi_pump(behind, 0));
    CHECK(hrig_stats(&r).written_tokens == 0);
    CHECK_OK(rad_cache_poll(front));
    CHECK(hrig_stats(&r).written_tokens == 112);
    CHECK_OK(rad_cache_check(front, NULL));
    r.cache = front; /* it owns the one behind */
    hrig_stop(&r, false);
}

TEST(misuse_is_refused_in_words)
{
    hrig r;
    rad_error err = {0};
    hrig_options o = hrig_plain(16);
    hrig_start(&r, &o, NULL);
    rad_cache *second = NULL;
    rad_hicache_params p = r.params;
    rad_cache_params tree = {.struct_size = sizeof tree, .page_size = 16};
    p.cache = &tree;
    CHECK(rad_hicache_create(NULL, &p, &second, &err) == RAD_E_INVAL && !second);
    tree.kv_allocator = r.kv;
    tree.req_to_token_pool = r.rows;
    p.write_policy = 3;
    CHECK(rad_hicache_create(NULL, &p, &second, &err) == RAD_E_INVAL && !second);
    p = r.params;
    p.cache = &tree;
    p.host_pool = NULL;
    CHECK(rad_hicache_create(NULL, &p, &second, &err) == RAD_E_INVAL && !second);
    p.host_pool = r.host;
    p.max_transfers = 70000;
    CHECK(rad_hicache_create(NULL, &p, &second, &err) == RAD_E_LIMIT && !second);
    p.max_transfers = 0;
    rad_storage none = {0};
    p.storage = &none;
    CHECK(rad_hicache_create(NULL, &p, &second, &err) == RAD_E_INVAL && !second);
    CHECK(rad_hicache_attach_storage(r.cache, &none, &err) == RAD_E_UNSUPPORTED);
    CHECK(rad_hicache_clear(r.cache, 8, &err) == RAD_E_INVAL);
    CHECK(rad_hicache_clear(r.cache, RAD_TIER_STORAGE, &err) == RAD_E_UNSUPPORTED);

    rad_cache *one_tier = NULL;
    CHECK_OK(
        rad_cache_create(NULL, &(rad_cache_params){.struct_size = sizeof tree}, &one_tier, NULL));
    rad_hicache_stats stats;
    rad_req_kv req = {0};
    rad_load_result result;
    rad_key key = {0};
    CHECK(rad_hicache_get_stats(one_tier, &stats) == RAD_E_UNSUPPORTED);
    CHECK(rad_hicache_load_back(one_tier, &req, &key, 1, &result) == RAD_E_UNSUPPORTED);
    CHECK(rad_hicache_load_status(one_tier, &req) == RAD_OK);
    CHECK(rad_hicache_drain(one_tier, 0) == RAD_E_UNSUPPORTED);
    rad_cache_destroy(one_tier);
    char text[512];
    CHECK_OK(hi_describe(r.cache, text, sizeof text));
    CHECK(strstr(text, "load: 0 queued, 0 running") != NULL);
    hrig_stop(&r, false);
}

/* A threshold that no prompt reaches is a way to say no, and is added to what is there already. */
TEST(the_highest_prefetch_threshold_asks_for_nothing)
{
    hrig r;
    hrig_options o = hrig_stored(1, 64, 64);
    o.tiers.prefetch_threshold = UINT32_MAX;
    hrig_start(&r, &o, NULL);
    CHECK_OK(hrig_put(&r, 4, 1000));
    hreq q = {0};
    hreq_ask(&q, 0, 8, 1000);
    rad_key key = hreq_key(&q, 8);
    rad_prefetch ticket;
    CHECK(rad_hicache_prefetch_start(r.cache, &key, 0, &ticket) == RAD_NONE);
    hrig_end(&r);
}

TEST_MAIN()
