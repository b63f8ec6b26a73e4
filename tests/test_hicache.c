/* test_hicache.c - one by one: what goes to the host and to storage, what comes back, and what
 * happens when it does not. */
#include "hicache_rig.h"

#include <radish/session.h>

static hrig_options plain(uint32_t page_size)
{
    return (hrig_options){.page_size = page_size,
                          .device_pages = 256 / page_size,
                          .host_pages = 1024 / page_size,
                          .no_threads = true,
                          .layout = RAD_HOST_PAGE_FIRST,
                          .demote_tokens = UINT64_MAX};
}

static uint32_t serve(hrig *r, uint32_t tokens, rad_token first)
{
    hreq q = {0};
    hreq_ask(&q, 0, tokens, first);
    return hrig_serve(r, &q);
}

static rad_match look(const hrig *r, uint32_t tokens, rad_token first)
{
    hreq q = {0};
    rad_match match;
    hreq_ask(&q, 0, tokens, first);
    rad_key key = hreq_key(&q, tokens);
    CHECK_OK(rad_cache_lookup(r->cache, &key, &match));
    return match;
}

TEST(what_the_device_evicts_comes_back_from_the_host)
{
    for (uint32_t ps = 1; ps <= 16; ps += 15)
        for (uint32_t layout = 0; layout < 2; layout++) {
            hrig r;
            hrig_options o = plain(ps);
            o.layout = layout;
            hrig_start(&r, &o, NULL);
            CHECK(serve(&r, 160, 1000) == 0);
            CHECK(look(&r, 160, 1000).host_hit_tokens == 0);
            hrig_settle(&r);
            CHECK(hrig_stats(&r).written_tokens == 160);
            CHECK_OK(rad_cache_evict(r.cache, 96, NULL, NULL));
            rad_match match = look(&r, 160, 1000);
            CHECK(match.prefix_tokens == 64 && match.host_hit_tokens == 96);
            CHECK(serve(&r, 161, 1000) == 160);
            CHECK(hrig_stats(&r).loaded_tokens == 96);
            CHECK_OK(rad_cache_evict(r.cache, 1000, NULL, NULL));
            CHECK(serve(&r, 161, 1000) == 160); /* all of it */
            CHECK(look(&r, 160, 1000).prefix_tokens == 160);
            hrig_end(&r);
        }
}

/* The first of two over one pool may go first: loads of the other one are still waited for. */
TEST(caches_over_one_pool_come_and_go_in_any_order)
{
    for (int first = 0; first < 2; first++) {
        hrig r[2];
        hrig_options o = plain(16);
        hrig_start(&r[0], &o, NULL);
        o.pool = r[0].pool;
        hrig_start(&r[1], &o, NULL);
        CHECK(r[0].pool->num_waiters == 2);
        hrig *stays = &r[!first];
        rad_cache_destroy(r[first].cache);
        r[first].cache = NULL;
        CHECK(r[0].pool->num_waiters == 1);
        CHECK(serve(stays, 160, 1000) == 0);
        hrig_settle(stays);
        CHECK_OK(rad_cache_evict(stays->cache, 1000, NULL, NULL));
        CHECK(serve(stays, 161, 1000) == 160);
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
    hrig_options o = plain(16);
    test_env t;
    rad_error err = {0};
    char waiters[RAD_KV_WAITERS];
    hrig_start(&r, &o, NULL);
    rad_cache_params tree = {.struct_size = sizeof tree,
                             .page_size = 16,
                             .kv_allocator = r.kv,
                             .req_to_token_pool = r.rows};
    r.params.cache = &tree;
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
    hrig_options o = plain(1);
    o.host_pages = 120;
    hrig_start(&r, &o, NULL);
    serve(&r, 100, 1000);
    hrig_settle(&r);
    for (uint32_t gone = 1; gone < 100; gone++) {
        CHECK_OK(rad_cache_evict(r.cache, 1, NULL, NULL));
        rad_match match = look(&r, 100, 1000);
        CHECK(match.prefix_tokens == 100 - gone && match.host_hit_tokens == gone);
        rad_cache_stats stats;
        rad_cache_get_stats(r.cache, &stats);
        CHECK(stats.num_nodes == 2 && stats.merges == 0);
        if (gone % 9 == 0) hrig_check(&r, NULL, 0);
    }
    CHECK(serve(&r, 101, 1000) == 100);
    for (uint32_t tokens = 1; tokens < 60; tokens++) { /* the same on the host */
        serve(&r, tokens, 5000);
        hrig_settle(&r);
        rad_match match = look(&r, 100, 1000);
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
    hrig_options o = plain(16);
    hrig_start(&r, &o, NULL);
    serve(&r, 160, 1000);
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
    hrig_options o = plain(16);
    hrig_start(&r, &o, NULL);
    serve(&r, 160, 1000);
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

TEST(an_eviction_in_need_gives_up_what_waits_to_be_copied)
{
    hrig r;
    hrig_options o = plain(16);
    hrig_start(&r, &o, NULL);
    serve(&r, 160, 1000);
    CHECK(hrig_stats(&r).queued[TRANSFER_WRITE] == 1);
    uint64_t evicted;
    CHECK_OK(rad_cache_evict(r.cache, 96, &evicted, NULL));
    CHECK(evicted == 96 && hrig_stats(&r).tickets == 0);
    CHECK(hrig_stats(&r).dropped_write_tokens == 160 && hrig_stats(&r).failed_writes == 0);
    CHECK(look(&r, 160, 1000).prefix_tokens == 64);
    CHECK(rad_hicache_wait(r.cache, 0) == RAD_NONE);
    hrig_end(&r);
}

TEST(selective_writes_what_was_hit)
{
    hrig r;
    hrig_options o = plain(16);
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

TEST(write_back_copies_the_coldest_before_they_go)
{
    hrig r;
    hrig_options o = plain(16);
    o.tiers.write_policy = RAD_WRITE_BACK;
    o.demote_tokens = 96;
    hrig_start(&r, &o, NULL);
    serve(&r, 112, 1000);
    hrig_settle(&r);
    CHECK(hrig_stats(&r).written_tokens == 0); /* 144 are free */
    serve(&r, 96, 3000);
    CHECK_OK(rad_cache_poll(r.cache)); /* 48 are free: the first goes next */
    CHECK(hrig_stats(&r).queued[TRANSFER_WRITE] == 1);
    hrig_settle(&r);
    CHECK(hrig_stats(&r).written_tokens == 112);
    serve(&r, 144, 5000);
    CHECK(look(&r, 112, 1000).prefix_tokens < 112);
    CHECK(serve(&r, 113, 1000) == 112);
    hrig_end(&r);
}

/* All prompts once, then all again: how many of their tokens the second round finds. */
static uint64_t found_again(uint32_t device_tokens, uint64_t demote_tokens, uint32_t policy,
                            rad_hicache_stats *stats)
{
    hrig r;
    hrig_options o = plain(16);
    o.device_pages = device_tokens / 16;
    o.host_pages = 4 * o.device_pages;
    o.demote_tokens = demote_tokens;
    o.tiers.write_policy = policy;
    hrig_start(&r, &o, NULL);
    uint32_t prompts = 3 * device_tokens / 112;
    uint64_t found = 0;
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t i = 0; i < prompts; i++) {
            uint32_t cached = serve(&r, 113, (rad_token)(1000 * (1 + i)));
            found += round ? cached : 0;
            if (policy == RAD_WRITE_THROUGH) hrig_settle(&r); /* so that it loses nothing either */
            (void)hi_pump(r.cache, 0); /* what demotion has begun is under way */
            CHECK_OK(rad_cache_poll(r.cache));
        }
    CHECK(found <= (uint64_t)prompts * 112);
    *stats = hrig_stats(&r);
    hrig_end(&r);
    return found;
}

/* An eviction gave away what demotion had not come to: with a small pool nearly everything. */
TEST(write_back_loses_nothing)
{
    for (uint32_t tokens = 256; tokens <= 4096; tokens *= 4)
        for (int ahead = 0; ahead < 2; ahead++) {
            rad_hicache_stats s;
            uint64_t demote = ahead ? 0 : UINT64_MAX;
            uint64_t through = found_again(tokens, demote, RAD_WRITE_THROUGH, &s);
            uint64_t back = found_again(tokens, demote, RAD_WRITE_BACK, &s);
            CHECKF(through == 3 * tokens / 112 * 112, "%u: %llu\n", tokens,
                   (unsigned long long)through);
            CHECKF(back == through, "%u tokens, demoted ahead %d: %llu of %llu\n", tokens, ahead,
                   (unsigned long long)back, (unsigned long long)through);
            CHECK(s.dropped_write_tokens == 0 && s.failed_writes == 0);
        }
}

static sim_fate always_torn(void *user, uint64_t copy)
{
    (void)user, (void)copy;
    return SIM_TORN;
}

/* What write_back cannot copy when it is evicted is counted, and nothing of it is found. */
TEST(what_write_back_cannot_copy_is_counted)
{
    for (int how = 0; how < 3; how++) {
        hrig r;
        hrig_options o = plain(16);
        o.tiers.write_policy = RAD_WRITE_BACK;
        if (how == 0) o.host_pages = 6; /* too few for the prompt */
        hrig_start(&r, &o, NULL);
        serve(&r, 112, 1000);
        hi_hold hold = {0};
        if (how == 1) r.sim.script = always_torn;
        if (how == 2) { /* all of the host is in use */
            CHECK_OK(rad_cache_evict(r.cache, 112, NULL, NULL));
            hreq q = {0};
            hreq_ask(&q, 0, 112, 1000);
            rad_key key = hreq_key(&q, 112);
            uint32_t node;
            CHECK(hrig_on_host(&r, &key, &node) == 112);
            hold = hi_lock_host(hiradix_of(r.cache), node, 7);
            rad_page all[1024 / 16];
            uint32_t left = 1024 / 16 - 7;
            CHECK_OK(rad_kv_alloc(host_kv_pool_allocator(r.host), all, left));
            serve(&r, 112, 3000);
            CHECK_OK(rad_cache_evict(r.cache, 48, NULL, NULL));
            CHECK_OK(rad_kv_free(host_kv_pool_allocator(r.host), all, left, NULL));
            CHECK(look(&r, 112, 3000).prefix_tokens == 64);
            CHECK(look(&r, 112, 3000).host_hit_tokens == 0);
        } else {
            CHECK_OK(rad_cache_evict(r.cache, 48, NULL, NULL));
            CHECK(look(&r, 112, 1000).prefix_tokens == 64);
            CHECK(look(&r, 112, 1000).host_hit_tokens == 0);
        }
        CHECK(hrig_stats(&r).dropped_write_tokens == 48);
        CHECK(hrig_stats(&r).failed_writes == (how == 1 ? 1u : 0u));
        if (how == 2) hi_unlock_host(hiradix_of(r.cache), &hold);
        r.sim.script = NULL;
        hrig_end(&r);
    }
}

/* Many small leaves: those at the top of the heap have their copies soon, and the pages behind
 * them will be wanted as well. */
TEST(demotion_reaches_as_far_as_it_is_asked_to)
{
    enum { PROMPTS = 150, TOKENS = 3, ROOM = 350 };
    for (int held = 0; held < 2; held++) {
        hrig r;
        hrig_options o = plain(1);
        o.device_pages = 600;
        o.host_pages = 4000;
        o.demote_tokens = ROOM;
        o.tiers.write_policy = RAD_WRITE_BACK;
        hrig_start(&r, &o, NULL);
        hreq q = {0};
        rad_receipt locks[70];
        for (int i = 0; i < PROMPTS; i++) {
            serve(&r, TOKENS, 1000 * (1 + i));
            if (!held || i >= 70) continue; /* the top of the heap is in use */
            hreq_ask(&q, 0, TOKENS, 1000 * (1 + i));
            rad_key key = hreq_key(&q, TOKENS);
            rad_match match;
            CHECK_OK(rad_cache_lookup(r.cache, &key, &match));
            CHECK_OK(rad_cache_inc_lock_ref(r.cache, match.last_node, &locks[i], NULL));
        }
        uint64_t missing = ROOM - rad_kv_available_pages(r.kv), before = 0;
        for (int i = 0; i < 1000; i++) {
            CHECK_OK(rad_cache_poll(r.cache));
            rad_hicache_stats s = hrig_stats(&r);
            CHECK(s.written_tokens + s.queued[TRANSFER_WRITE] * TOKENS - before <= 24 * TOKENS);
            hrig_settle(&r);
            before = hrig_stats(&r).written_tokens;
        }
        CHECKF(before >= missing && before <= 2 * missing + 64 * TOKENS, "%llu of %llu\n",
               (unsigned long long)before, (unsigned long long)missing);
        CHECK_OK(rad_cache_evict(r.cache, missing, NULL, NULL));
        uint64_t lost = 0;
        for (int i = 0; i < PROMPTS; i++) {
            rad_match match = look(&r, TOKENS, 1000 * (1 + i));
            lost += TOKENS - match.prefix_tokens - match.host_hit_tokens;
        }
        CHECKF(lost == 0, "%llu tokens\n", (unsigned long long)lost);
        for (int i = 0; held && i < 70; i++)
            CHECK_OK(rad_cache_dec_lock_ref(r.cache, &locks[i], NULL));
        hrig_end(&r);
    }
}

/* What demotion finds no room for it looks at again with every poll, that is with every step. That
 * was counted as dropped each time. */
TEST(what_waits_for_room_to_be_demoted_is_not_counted_with_every_poll)
{
    enum { PROMPTS = 150, TOKENS = 3 };
    hrig r;
    hrig_options o = plain(1);
    o.device_pages = 600;
    o.host_pages = 4000;
    o.demote_tokens = 500;
    o.tiers.write_policy = RAD_WRITE_BACK;
    o.tiers.max_transfers = 16;
    hrig_start(&r, &o, NULL);
    for (int i = 0; i < PROMPTS; i++)
        serve(&r, TOKENS, 1000 * (1 + i));
    for (int i = 0; i < 10; i++) /* until all tickets for writes are out */
        CHECK_OK(rad_cache_poll(r.cache));
    uint64_t dropped = hrig_stats(&r).dropped_write_tokens;
    CHECK(hrig_stats(&r).queued[TRANSFER_WRITE] == 12);
    for (int i = 0; i < 1000; i++)
        CHECK_OK(rad_cache_poll(r.cache));
    CHECK(hrig_stats(&r).dropped_write_tokens == dropped);
    for (int i = 0; i < 100; i++) {
        CHECK_OK(rad_cache_poll(r.cache));
        hrig_settle(&r);
    }
    CHECK(hrig_stats(&r).written_tokens >= 500 - 150);
    hrig_end(&r);
}

TEST(the_host_gives_up_nothing_for_what_does_not_fit_anyway)
{
    hrig r;
    hrig_options o = plain(1);
    o.device_pages = 60;
    o.host_pages = 20;
    o.demote_tokens = UINT64_MAX;
    hrig_start(&r, &o, NULL);
    serve(&r, 8, 1000);
    hrig_settle(&r);
    serve(&r, 10, 2000); /* its copy has its pages, and waits */
    serve(&r, 15, 3000);
    CHECK(hrig_stats(&r).dropped_write_tokens > 0);
    CHECK(hrig_stats(&r).host_evicted_tokens == 0 && hrig_stats(&r).host_cached_tokens == 8);
    hrig_settle(&r);
    serve(&r, 15, 3000); /* now there is room */
    hrig_settle(&r);
    CHECK(hrig_stats(&r).host_cached_tokens == 20 && hrig_stats(&r).host_evicted_tokens == 13);
    hrig_end(&r);
}

TEST(the_device_gives_up_nothing_for_a_load_that_does_not_fit_anyway)
{
    hrig r;
    hrig_options o = plain(1);
    o.device_pages = 60;
    o.host_pages = 100;
    o.demote_tokens = UINT64_MAX;
    hrig_start(&r, &o, NULL);
    serve(&r, 40, 1000);
    hrig_settle(&r);
    CHECK_OK(rad_cache_evict(r.cache, 40, NULL, NULL));
    serve(&r, 20, 2000);
    hrig_settle(&r);
    rad_page held[25];
    CHECK_OK(rad_kv_alloc(r.kv, held, 25)); /* 15 are free, 20 could be evicted */
    hreq q = {0};
    hreq_ask(&q, 0, 41, 1000);
    CHECK_OK(hreq_admit(&r, &q));
    CHECK(q.loaded.why == RAD_LOAD_NO_DEVICE_PAGES);
    CHECK(look(&r, 20, 2000).prefix_tokens == 20);
    hreq_finish(&r, &q, false);
    CHECK_OK(rad_kv_free(r.kv, held, 25, NULL));
    CHECK(serve(&r, 41, 1000) == 40 && look(&r, 20, 2000).prefix_tokens < 20);
    hrig_end(&r);
}

TEST(a_pinned_prefix_is_demoted_whatever_the_policy)
{
    hrig r;
    hrig_options o = plain(16);
    o.tiers.write_policy = RAD_WRITE_BACK;
    o.pinned_tokens = 128;
    hrig_start(&r, &o, NULL);
    hreq q = {0};
    hreq_ask(&q, 0, 96, 1000);
    hrig_serve(&r, &q);
    CHECK(hrig_stats(&r).tickets == 0);
    uint32_t pinned = 0;
    rad_key key = hreq_key(&q, 96);
    CHECK_OK(rad_cache_pin_prefix(r.cache, &key, UINT64_MAX / 4, &pinned));
    CHECK(pinned == 96);
    hrig_settle(&r);
    CHECK(hrig_stats(&r).written_tokens == 96);
    CHECK(hrig_tree(&r)->keep.pinned[RADIX_HOST] * r.ps == 96);
    CHECK_OK(rad_cache_evict(r.cache, 1000, NULL, NULL));
    CHECK(hrig_serve(&r, &q) == 80); /* the last token is computed */
    hrig_end(&r);
}

TEST(host_copies_of_what_the_device_has_make_room)
{
    hrig r;
    hrig_options o = plain(16);
    o.host_pages = 12; /* 192 tokens, less than the device */
    hrig_start(&r, &o, NULL);
    serve(&r, 112, 1000);
    hrig_settle(&r);
    serve(&r, 112, 3000);
    hrig_settle(&r);
    CHECK(look(&r, 112, 1000).prefix_tokens == 112); /* on the device both */
    CHECK(look(&r, 112, 3000).prefix_tokens == 112);
    rad_hicache_stats s = hrig_stats(&r);
    CHECK(s.written_tokens == 224 && s.host_cached_tokens == 192 && s.host_evicted_tokens == 32);
    CHECK_OK(rad_cache_evict(r.cache, 1000, NULL, NULL));
    CHECK(look(&r, 112, 1000).host_hit_tokens == 80);
    CHECK(look(&r, 112, 3000).host_hit_tokens == 112);
    hrig_end(&r);
}

/* What came back, on the device or from the host, outlives what came once and later; under lru it
 * is the other way round. */
TEST(the_host_evicts_by_the_policy_it_is_given)
{
    static const uint32_t policies[] = {RAD_EVICT_LRU, RAD_EVICT_LFU, RAD_EVICT_SLRU,
                                        RAD_EVICT_COST};
    for (size_t i = 0; i < RAD_COUNT(policies); i++)
        for (int by_load = 0; by_load < 2; by_load++) {
            hrig r;
            hrig_options o = plain(16);
            o.host_pages = 12; /* 192 tokens */
            o.tiers.host_eviction.policy = policies[i];
            o.tiers.host_eviction.cost_half_life_percent = 1000;
            hrig_start(&r, &o, NULL);
            for (int k = 0; k < 3; k++) { /* 64 tokens, and two hits */
                CHECK(serve(&r, 65, 1000) == (k ? 64 : 0));
                hrig_settle(&r);
                if (by_load) CHECK_OK(rad_cache_evict(r.cache, 1000, NULL, NULL));
            }
            for (rad_token first = 3000; first < 8000; first += 1000) {
                serve(&r, 64, first);
                hrig_settle(&r);
            }
            CHECK_OK(rad_cache_evict(r.cache, 1000, NULL, NULL));
            bool counts_here = policies[i] != RAD_EVICT_LRU;
            CHECKF(look(&r, 64, 1000).host_hit_tokens == (counts_here ? 64 : 0),
                   "policy %u, %d: %u", policies[i], by_load, look(&r, 64, 1000).host_hit_tokens);
            CHECK(look(&r, 64, 7000).host_hit_tokens == 64); /* what came last */
            hrig_end(&r);
        }
}

TEST(loads_are_refused_for_a_reason)
{
    hrig r;
    hrig_options o = plain(4);
    o.tiers.max_transfers = 1;
    hrig_start(&r, &o, NULL);
    serve(&r, 100, 1000);
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
        hrig_options o = plain(16);
        hrig_start(&r, &o, NULL);
        serve(&r, 112, 1000);
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
        CHECK(look(&r, 112, 1000).prefix_tokens == (moment > 1 ? 112 : 0));
        hrig_end(&r);
    }
}

static sim_fate fails_at(void *user, uint64_t copy)
{
    int64_t at = *(int64_t *)user; /* negative: torn */
    return copy != (uint64_t)(at < 0 ? -at : at) ? SIM_COPY : at < 0 ? SIM_TORN : SIM_FAIL;
}

TEST(every_copy_failing_once_is_a_miss_and_nothing_worse)
{
    for (int torn = 0; torn < 2; torn++) {
        uint64_t copies = 0;
        for (int64_t at = 1; at == 1 || (uint64_t)at <= copies; at++) {
            hrig r;
            hrig_options o = plain(16);
            hrig_start(&r, &o, NULL);
            int64_t which = torn ? -at : at;
            r.sim.script = fails_at;
            r.sim.user = &which;
            serve(&r, 64, 1000);
            hrig_settle(&r);
            rad_hicache_stats s = hrig_stats(&r);
            CHECK(s.written_tokens == (s.failed_writes ? 0 : 64));
            CHECK(s.dropped_write_tokens == (s.failed_writes ? 64 : 0));
            CHECK_OK(rad_cache_evict(r.cache, 1000, NULL, NULL));
            uint32_t cached = serve(&r, 65, 1000);
            s = hrig_stats(&r);
            CHECK(s.failed_writes + s.failed_loads <= 1);
            CHECK(cached == (s.failed_writes + s.failed_loads ? 0 : 64));
            hrig_settle(&r);
            copies = atomic_load(&r.sim.copies);
            CHECK(serve(&r, 65, 1000) == (s.failed_loads ? 64 : 64));
            hrig_end(&r);
        }
        CHECK(copies > 20);
    }
}

TEST(a_load_that_failed_is_never_published)
{
    for (int how = 0; how < 2; how++) {
        hrig r;
        rad_error err = {0};
        hrig_options o = plain(16);
        hrig_start(&r, &o, NULL);
        serve(&r, 112, 1000);
        hrig_settle(&r);
        CHECK_OK(rad_cache_evict(r.cache, 1000, NULL, NULL));
        hreq q = {0};
        hreq_ask(&q, 0, 130, 1000);
        CHECK_OK(hreq_admit(&r, &q));
        CHECK_OK(hreq_extend(&r, &q));
        int64_t next = -(int64_t)atomic_load(&r.sim.copies); /* torn */
        r.sim.script = fails_at;
        r.sim.user = &next;
        CHECK(hreq_forward(&r, &q) == RAD_E_IO);
        q.kv.committed_len = 130; /* as one who did not look */
        if (how) CHECK(rad_cache_unfinished_req(r.cache, &q.kv, 0, &err) == RAD_E_IO);
        hreq_finish(&r, &q, true);
        CHECK(look(&r, 130, 1000).prefix_tokens == 0);
        CHECK(serve(&r, 130, 1000) == 112); /* the host's copy is what it was */
        hrig_end(&r);
    }
}

TEST(writes_that_end_in_any_order_hang_in_theirs)
{
    hrig r;
    hrig_options o = plain(1);
    o.device_pages = 400;
    o.host_pages = 1000;
    hrig_start(&r, &o, NULL);
    hreq q = {0}, *reqs[1] = {&q};
    hreq_ask(&q, 0, 50, 1000);
    CHECK_OK(hreq_admit(&r, &q));
    for (uint32_t end = 50; end <= 350; end += 100) { /* four writes, each behind the last */
        for (uint32_t i = q.kv.allocated_len; i < end; i++)
            q.tokens[i] = 1000 + (rad_token)i;
        q.num_tokens = end;
        q.kv.key = hreq_key(&q, end);
        CHECK_OK(hreq_extend(&r, &q));
        CHECK_OK(hreq_forward(&r, &q));
        CHECK_OK(rad_cache_unfinished_req(r.cache, &q.kv, 0, NULL));
    }
    CHECK(hrig_stats(&r).tickets == 4);
    CHECK_OK(hi_pump(r.cache, 3));
    CHECK_OK(hi_pump(r.cache, 1));
    CHECK_OK(rad_cache_poll(r.cache));
    CHECK(hrig_stats(&r).written_tokens == 0);
    CHECK_OK(hi_pump(r.cache, 0));
    CHECK_OK(rad_cache_poll(r.cache));
    CHECK(hrig_stats(&r).written_tokens == 150);
    hrig_check(&r, reqs, 1);
    hreq_finish(&r, &q, true);
    hrig_settle(&r);
    CHECK(hrig_stats(&r).written_tokens == 350);
    hrig_end(&r);
}

TEST(a_reset_ends_whatever_is_under_way)
{
    for (int pumps = 0; pumps < 4; pumps++) {
        hrig r;
        hrig_options o = plain(16);
        o.storage = true;
        hrig_start(&r, &o, NULL);
        serve(&r, 112, 1000);
        for (int i = 0; i < pumps; i++) {
            (void)hi_pump(r.cache, 0);
            CHECK_OK(rad_cache_poll(r.cache));
        }
        rad_error err = {0};
        if (hrig_stats(&r).tickets)
            CHECK(rad_hicache_clear(r.cache, RAD_TIER_HOST, &err) == RAD_AGAIN);
        CHECK_OK(rad_cache_reset(r.cache));
        rad_hicache_stats s = hrig_stats(&r);
        CHECK(s.tickets == 0 && s.host_used_tokens == 0 && rad_cache_total_size(r.cache) == 0);
        hrig_check_idle(&r);
        CHECK(serve(&r, 112, 1000) == 0);
        hrig_end(&r);
    }
}

TEST(create_survives_every_allocation_failing)
{
    hrig r;
    hrig_options o = plain(16);
    o.storage = true;
    o.layout = RAD_HOST_LAYER_FIRST;
    hrig_start(&r, &o, NULL);
    rad_cache_params tree = {.struct_size = sizeof tree,
                             .page_size = 16,
                             .kv_allocator = r.kv,
                             .req_to_token_pool = r.rows};
    r.params.cache = &tree;
    test_env t;
    for (int threads = 0; threads < 2; threads++) {
        r.params.deterministic = !threads;
        hrig_create_failing(&r, &t);
        rad_cache_destroy(r.cache);
        r.cache = NULL;
        CHECK(t.bytes == 0);
    }
    CHECK_OK(rad_hicache_create(NULL, &r.params, &r.cache, NULL));
    hrig_stop(&r, false);
}

static uint64_t clock_ns;
static char said[2048];

static uint64_t test_now(void *user)
{
    (void)user;
    return clock_ns;
}

static void test_log(void *user, rad_log_level level, const char *message)
{
    (void)user;
    (void)level;
    snprintf(said, sizeof said, "%s", message);
}

TEST(a_transfer_that_does_not_end_is_complained_of_once)
{
    hrig r;
    hrig_options o = plain(16);
    hrig_start(&r, &o, NULL);
    hiradix_cache *c = hiradix_of(r.cache);
    clock_ns = 1000;
    c->base.env.now_ns = test_now;
    c->base.env.log = test_log;
    serve(&r, 112, 1000);
    clock_ns += 59000000000;
    CHECK_OK(rad_cache_poll(r.cache));
    CHECK(!said[0]);
    clock_ns += 2000000000;
    CHECK_OK(rad_cache_poll(r.cache));
    CHECK(strstr(said, "write: 1 queued") && strstr(said, "ticket 1: write of 7 pages"));
    said[0] = 0;
    clock_ns += 200000000000;
    CHECK_OK(rad_cache_poll(r.cache));
    CHECK(!said[0]);
    hrig_end(&r);
}

TEST(a_streaming_cache_in_front_passes_polls_on)
{
    hrig r;
    hrig_options o = plain(16);
    rad_cache *front = NULL;
    hrig_start(&r, &o, NULL);
    rad_cache *behind = r.cache;
    rad_streaming_cache_params p = {.struct_size = sizeof p, .inner = behind};
    CHECK_OK(rad_streaming_cache_create(NULL, &p, &front, NULL));
    serve(&r, 112, 1000);
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
    hrig_options o = plain(16);
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

/* A key of `count` tokens from `first` on enters the tree. */
static rad_status put(hrig *r, uint32_t count, rad_token first)
{
    hreq q = {0};
    rad_slot slots[16];
    rad_inserted in;
    hreq_ask(&q, 0, count, first);
    rad_key key = hreq_key(&q, count);
    CHECK_OK(rad_kv_alloc(r->kv, slots, count));
    for (uint32_t i = 0; i < count; i++)
        hrig_write(r, slots[i], hreq_digest(&q, i));
    uint64_t before = rad_cache_evictable_size(r->cache);
    rad_status status = rad_cache_insert(r->cache, &key, slots, NULL, &in, NULL);
    CHECK((uint64_t)in.evictable_change == rad_cache_evictable_size(r->cache) - before);
    CHECK_OK(rad_kv_free(r->kv, slots, status ? count : in.prefix_tokens, NULL));
    return status;
}

/* One node, and one for each page of the host; a second insert of a key is a hit, which copies. */
static hrig_options few_nodes(void)
{
    hrig_options o = plain(1);
    o.device_pages = 16;
    o.host_pages = 4;
    o.max_nodes = 1;
    o.tiers.write_policy = RAD_WRITE_THROUGH_SELECTIVE;
    return o;
}

/* There is a node for the new key, and its page is had by evicting a part of what the host has: the
 * cut must not take that node, for there would be more nodes than the limit then. */
TEST(a_cut_between_tiers_takes_nobodys_node)
{
    hrig r;
    hrig_options o = few_nodes();
    o.cached_pages = 8;
    hrig_start(&r, &o, NULL);
    CHECK_OK(put(&r, 4, 1000));
    CHECK_OK(put(&r, 4, 1000)); /* a hit: it gets its copy */
    hrig_settle(&r);
    CHECK(hrig_host_size(&r) == 4);
    CHECK_OK(put(&r, 1, 2000));
    CHECK_OK(put(&r, 1, 3000));
    CHECK_OK(put(&r, 2, 4000));
    CHECK_OK(put(&r, 1, 5000));
    rad_cache_stats stats;
    rad_cache_get_stats(r.cache, &stats);
    CHECK(stats.num_nodes <= 5);
    CHECK_OK(rad_cache_check(r.cache, NULL));
    CHECK(look(&r, 1, 5000).prefix_tokens == 1);
    hrig_end(&r);
}

/* The coldest leaf of the device has more behind it on the host: that goes, and not some node that
 * was used since. */
TEST(for_a_node_the_coldest_of_the_host_goes)
{
    hrig r;
    hrig_options o = few_nodes();
    hrig_start(&r, &o, NULL);
    CHECK_OK(put(&r, 1, 2000));
    CHECK_OK(put(&r, 4, 1000));
    CHECK_OK(put(&r, 4, 1000)); /* a hit: it gets its copy */
    hrig_settle(&r);
    hreq q = {0};
    hreq_ask(&q, 0, 1, 2000);
    rad_key key = hreq_key(&q, 1);
    rad_match match;
    CHECK_OK(rad_cache_match_prefix(r.cache, &key, NULL, &match, NULL));
    CHECK_OK(rad_cache_evict(r.cache, 2, NULL, NULL));
    CHECK(look(&r, 4, 1000).prefix_tokens == 2 && look(&r, 4, 1000).host_hit_tokens == 2);
    for (rad_token first = 3000; first <= 5000; first += 1000)
        CHECK_OK(put(&r, 1, first)); /* the last one's node is had */
    CHECK(look(&r, 1, 2000).prefix_tokens == 1);
    CHECK(look(&r, 4, 1000).host_hit_tokens == 0);
    hrig_end(&r);
}

/* A threshold that no prompt reaches is a way to say no, and is added to what is there already. */
TEST(the_highest_prefetch_threshold_asks_for_nothing)
{
    hrig r;
    hrig_options o = hrig_stored(1, 64, 64);
    o.tiers.prefetch_threshold = UINT32_MAX;
    hrig_start(&r, &o, NULL);
    CHECK_OK(put(&r, 4, 1000));
    hreq q = {0};
    hreq_ask(&q, 0, 8, 1000);
    rad_key key = hreq_key(&q, 8);
    rad_prefetch ticket;
    CHECK(rad_hicache_prefetch_start(r.cache, &key, 0, &ticket) == RAD_NONE);
    hrig_end(&r);
}

TEST_MAIN()
