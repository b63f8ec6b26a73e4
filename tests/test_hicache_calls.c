/* test_hicache_calls.c - calls of tiers by an engine that keeps its requests itself: what it
 * inserts from where a match ended goes down too, and the host gives up what it is
 * asked for. */
#include "hicache_plain.h"

#include <radish/match_handle.h>

TEST(what_is_inserted_through_a_handle_is_copied_too)
{
    hrig r;
    hrig_options o = hrig_plain(16);
    hrig_start(&r, &o, NULL);
    hreq q = {0};
    rad_slot slots[96];
    uint32_t lens[2] = {0, 96};
    hreq_ask(&q, 0, 96, 1000);
    rad_key key = hreq_key(&q, 96);
    CHECK_OK(rad_kv_alloc_extend(r.kv, 1, &lens[0], &lens[1], (rad_slot[]){-1}, slots, NULL));
    for (uint32_t i = 0; i < 96; i++)
        hrig_write(&r, slots[i], hreq_digest(&q, i));
    rad_match_handle at = {0};
    rad_inserted in;
    CHECK_OK(rad_cache_insert_from(r.cache, &at, &key, slots, NULL, &in, NULL));
    CHECK(in.evictable_change == 0); /* all of it is being copied */
    hrig_settle(&r);
    CHECK(hrig_stats(&r).written_tokens == 96 && rad_cache_evictable_size(r.cache) == 96);
    CHECK(hrig_on_host(&r, &key, NULL) == 96);
    rad_insert_params chunk = {.chunked = 1};
    hreq_ask(&q, 0, 96, 2000);
    key = hreq_key(&q, 96);
    CHECK_OK(rad_kv_alloc_extend(r.kv, 1, &lens[0], &lens[1], (rad_slot[]){-1}, slots, NULL));
    for (uint32_t i = 0; i < 96; i++)
        hrig_write(&r, slots[i], hreq_digest(&q, i));
    at = (rad_match_handle){0};
    CHECK_OK(rad_cache_insert_from(r.cache, &at, &key, slots, &chunk, &in, NULL));
    CHECK(in.evictable_change == 96 && hrig_stats(&r).tickets == 0);
    hrig_end(&r);
}

TEST(the_host_gives_up_what_it_is_asked_for)
{
    hrig r;
    hrig_options o = hrig_plain(16);
    uint64_t evicted;
    hreq q = {0};
    hrig_start(&r, &o, NULL);
    hreq_ask(&q, 0, 96, 1000);
    hrig_serve(&r, &q);
    hrig_settle(&r);
    CHECK_OK(rad_cache_evict(r.cache, 48, NULL, NULL));
    CHECK_OK(rad_hicache_evict_host(r.cache, 17, &evicted));
    CHECK(evicted == 32);
    rad_key key = hreq_key(&q, 96);
    rad_match match;
    CHECK_OK(rad_cache_lookup(r.cache, &key, &match));
    CHECK(match.prefix_tokens == 48 && match.host_hit_tokens == 16);
    hrig_check_idle(&r);
    CHECK_OK(rad_hicache_evict_host(r.cache, 0, &evicted));
    CHECK(evicted == 0);
    CHECK_OK(rad_hicache_evict_host(r.cache, UINT64_MAX, &evicted));
    CHECK(evicted == 64 && hrig_stats(&r).host_used_tokens == 0);
    CHECK_OK(rad_cache_lookup(r.cache, &key, &match));
    CHECK(match.prefix_tokens == 48 && match.host_hit_tokens == 0);
    CHECK(rad_hicache_evict_host(r.cache->inner, 16, &evicted) == RAD_E_UNSUPPORTED);
    hrig_check_idle(&r);
    hrig_end(&r);
}

TEST_MAIN()
