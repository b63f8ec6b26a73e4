/* test_hicache_room.c - one by one: what each tier gives up, and for whom: evictions in need,
 * write_back and what is demoted before, the host's order, nodes that two tiers share. */
#include "hicache_plain.h"

TEST(an_eviction_in_need_gives_up_what_waits_to_be_copied)
{
    hrig r;
    hrig_options o = hrig_plain(16);
    hrig_start(&r, &o, NULL);
    hrig_serve_from(&r, 160, 1000);
    CHECK(hrig_stats(&r).queued[TRANSFER_WRITE] == 1);
    uint64_t evicted;
    CHECK_OK(rad_cache_evict(r.cache, 96, &evicted, NULL));
    CHECK(evicted == 96 && hrig_stats(&r).tickets == 0);
    CHECK(hrig_stats(&r).dropped_write_tokens == 160 && hrig_stats(&r).failed_writes == 0);
    CHECK(hrig_look(&r, 160, 1000).prefix_tokens == 64);
    CHECK(rad_hicache_wait(r.cache, 0) == RAD_NONE);
    hrig_end(&r);
}

TEST(write_back_copies_the_coldest_before_they_go)
{
    hrig r;
    hrig_options o = hrig_plain(16);
    o.tiers.write_policy = RAD_WRITE_BACK;
    o.demote_tokens = 96;
    hrig_start(&r, &o, NULL);
    hrig_serve_from(&r, 112, 1000);
    hrig_settle(&r);
    CHECK(hrig_stats(&r).written_tokens == 0); /* 144 are free */
    hrig_serve_from(&r, 96, 3000);
    CHECK_OK(rad_cache_poll(r.cache)); /* 48 are free: the first goes next */
    CHECK(hrig_stats(&r).queued[TRANSFER_WRITE] == 1);
    hrig_settle(&r);
    CHECK(hrig_stats(&r).written_tokens == 112);
    hrig_serve_from(&r, 144, 5000);
    CHECK(hrig_look(&r, 112, 1000).prefix_tokens < 112);
    CHECK(hrig_serve_from(&r, 113, 1000) == 112);
    hrig_end(&r);
}

/* All prompts once, then all again: how many of their tokens the second round finds. */
static uint64_t found_again(uint32_t device_tokens, uint64_t demote_tokens, uint32_t policy,
                            rad_hicache_stats *stats)
{
    hrig r;
    hrig_options o = hrig_plain(16);
    o.device_pages = device_tokens / 16;
    o.host_pages = 4 * o.device_pages;
    o.demote_tokens = demote_tokens;
    o.tiers.write_policy = policy;
    hrig_start(&r, &o, NULL);
    uint32_t prompts = 3 * device_tokens / 112;
    uint64_t found = 0;
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t i = 0; i < prompts; i++) {
            uint32_t cached = hrig_serve_from(&r, 113, (rad_token)(1000 * (1 + i)));
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

/* Many small leaves: those at the top of the heap have their copies soon, and the pages behind
 * them will be wanted as well. */
TEST(demotion_reaches_as_far_as_it_is_asked_to)
{
    enum { PROMPTS = 150, TOKENS = 3, ROOM = 350 };
    for (int held = 0; held < 2; held++) {
        hrig r;
        hrig_options o = hrig_plain(1);
        o.device_pages = 600;
        o.host_pages = 4000;
        o.demote_tokens = ROOM;
        o.tiers.write_policy = RAD_WRITE_BACK;
        hrig_start(&r, &o, NULL);
        hreq q = {0};
        rad_receipt locks[70];
        for (int i = 0; i < PROMPTS; i++) {
            hrig_serve_from(&r, TOKENS, 1000 * (1 + i));
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
            rad_match match = hrig_look(&r, TOKENS, 1000 * (1 + i));
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
    hrig_options o = hrig_plain(1);
    o.device_pages = 600;
    o.host_pages = 4000;
    o.demote_tokens = 500;
    o.tiers.write_policy = RAD_WRITE_BACK;
    o.tiers.max_transfers = 16;
    hrig_start(&r, &o, NULL);
    for (int i = 0; i < PROMPTS; i++)
        hrig_serve_from(&r, TOKENS, 1000 * (1 + i));
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
    hrig_options o = hrig_plain(1);
    o.device_pages = 60;
    o.host_pages = 20;
    o.demote_tokens = UINT64_MAX;
    hrig_start(&r, &o, NULL);
    hrig_serve_from(&r, 8, 1000);
    hrig_settle(&r);
    hrig_serve_from(&r, 10, 2000); /* its copy has its pages, and waits */
    hrig_serve_from(&r, 15, 3000);
    CHECK(hrig_stats(&r).dropped_write_tokens > 0);
    CHECK(hrig_stats(&r).host_evicted_tokens == 0 && hrig_stats(&r).host_cached_tokens == 8);
    hrig_settle(&r);
    hrig_serve_from(&r, 15, 3000); /* now there is room */
    hrig_settle(&r);
    CHECK(hrig_stats(&r).host_cached_tokens == 20 && hrig_stats(&r).host_evicted_tokens == 13);
    hrig_end(&r);
}

TEST(the_device_gives_up_nothing_for_a_load_that_does_not_fit_anyway)
{
    hrig r;
    hrig_options o = hrig_plain(1);
    o.device_pages = 60;
    o.host_pages = 100;
    o.demote_tokens = UINT64_MAX;
    hrig_start(&r, &o, NULL);
    hrig_serve_from(&r, 40, 1000);
    hrig_settle(&r);
    CHECK_OK(rad_cache_evict(r.cache, 40, NULL, NULL));
    hrig_serve_from(&r, 20, 2000);
    hrig_settle(&r);
    rad_page held[25];
    CHECK_OK(rad_kv_alloc(r.kv, held, 25)); /* 15 are free, 20 could be evicted */
    hreq q = {0};
    hreq_ask(&q, 0, 41, 1000);
    CHECK_OK(hreq_admit(&r, &q));
    CHECK(q.loaded.why == RAD_LOAD_NO_DEVICE_PAGES);
    CHECK(hrig_look(&r, 20, 2000).prefix_tokens == 20);
    hreq_finish(&r, &q, false);
    CHECK_OK(rad_kv_free(r.kv, held, 25, NULL));
    CHECK(hrig_serve_from(&r, 41, 1000) == 40 && hrig_look(&r, 20, 2000).prefix_tokens < 20);
    hrig_end(&r);
}

TEST(a_pinned_prefix_is_demoted_whatever_the_policy)
{
    hrig r;
    hrig_options o = hrig_plain(16);
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
    hrig_options o = hrig_plain(16);
    o.host_pages = 12; /* 192 tokens, less than the device */
    hrig_start(&r, &o, NULL);
    hrig_serve_from(&r, 112, 1000);
    hrig_settle(&r);
    hrig_serve_from(&r, 112, 3000);
    hrig_settle(&r);
    CHECK(hrig_look(&r, 112, 1000).prefix_tokens == 112); /* on the device both */
    CHECK(hrig_look(&r, 112, 3000).prefix_tokens == 112);
    rad_hicache_stats s = hrig_stats(&r);
    CHECK(s.written_tokens == 224 && s.host_cached_tokens == 192 && s.host_evicted_tokens == 32);
    CHECK_OK(rad_cache_evict(r.cache, 1000, NULL, NULL));
    CHECK(hrig_look(&r, 112, 1000).host_hit_tokens == 80);
    CHECK(hrig_look(&r, 112, 3000).host_hit_tokens == 112);
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
            hrig_options o = hrig_plain(16);
            o.host_pages = 12; /* 192 tokens */
            o.tiers.host_eviction.policy = policies[i];
            o.tiers.host_eviction.cost_half_life_percent = 1000;
            hrig_start(&r, &o, NULL);
            for (int k = 0; k < 3; k++) { /* 64 tokens, and two hits */
                CHECK(hrig_serve_from(&r, 65, 1000) == (k ? 64 : 0));
                hrig_settle(&r);
                if (by_load) CHECK_OK(rad_cache_evict(r.cache, 1000, NULL, NULL));
            }
            for (rad_token first = 3000; first < 8000; first += 1000) {
                hrig_serve_from(&r, 64, first);
                hrig_settle(&r);
            }
            CHECK_OK(rad_cache_evict(r.cache, 1000, NULL, NULL));
            bool counts_here = policies[i] != RAD_EVICT_LRU;
            CHECKF(hrig_look(&r, 64, 1000).host_hit_tokens == (counts_here ? 64 : 0),
                   "policy %u, %d: %u", policies[i], by_load,
                   hrig_look(&r, 64, 1000).host_hit_tokens);
            CHECK(hrig_look(&r, 64, 7000).host_hit_tokens == 64); /* what came last */
            hrig_end(&r);
        }
}

/* One node, and one for each page of the host; a second insert of a key is a hit, which copies. */
static hrig_options few_nodes(void)
{
    hrig_options o = hrig_plain(1);
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
    CHECK_OK(hrig_put(&r, 4, 1000));
    CHECK_OK(hrig_put(&r, 4, 1000)); /* a hit: it gets its copy */
    hrig_settle(&r);
    CHECK(hrig_host_size(&r) == 4);
    CHECK_OK(hrig_put(&r, 1, 2000));
    CHECK_OK(hrig_put(&r, 1, 3000));
    CHECK_OK(hrig_put(&r, 2, 4000));
    CHECK_OK(hrig_put(&r, 1, 5000));
    rad_cache_stats stats;
    rad_cache_get_stats(r.cache, &stats);
    CHECK(stats.num_nodes <= 5);
    CHECK_OK(rad_cache_check(r.cache, NULL));
    CHECK(hrig_look(&r, 1, 5000).prefix_tokens == 1);
    hrig_end(&r);
}

/* The coldest leaf of the device has more behind it on the host: that goes, and not some node that
 * was used since. */
TEST(for_a_node_the_coldest_of_the_host_goes)
{
    hrig r;
    hrig_options o = few_nodes();
    hrig_start(&r, &o, NULL);
    CHECK_OK(hrig_put(&r, 1, 2000));
    CHECK_OK(hrig_put(&r, 4, 1000));
    CHECK_OK(hrig_put(&r, 4, 1000)); /* a hit: it gets its copy */
    hrig_settle(&r);
    hreq q = {0};
    hreq_ask(&q, 0, 1, 2000);
    rad_key key = hreq_key(&q, 1);
    rad_match match;
    CHECK_OK(rad_cache_match_prefix(r.cache, &key, NULL, &match, NULL));
    CHECK_OK(rad_cache_evict(r.cache, 2, NULL, NULL));
    CHECK(hrig_look(&r, 4, 1000).prefix_tokens == 2 && hrig_look(&r, 4, 1000).host_hit_tokens == 2);
    for (rad_token first = 3000; first <= 5000; first += 1000)
        CHECK_OK(hrig_put(&r, 1, first)); /* the last one's node is had */
    CHECK(hrig_look(&r, 1, 2000).prefix_tokens == 1);
    CHECK(hrig_look(&r, 4, 1000).host_hit_tokens == 0);
    hrig_end(&r);
}

TEST_MAIN()
