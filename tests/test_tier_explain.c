/* test_tier_explain.c - a match over the tiers says where it ends and why, and a prefetch what
 * became of it. test_tier_events.c has random histories of the former. */
#include "hicache_rig.h"

#include <radish/hicache_explain.h>

static hrig_options plain(void)
{
    return (hrig_options){.page_size = 4,
                          .device_pages = 40,
                          .host_pages = 20,
                          .no_threads = true,
                          .explain_pages = 256,
                          .demote_tokens = UINT64_MAX,
                          .tiers = {.prefetch_threshold = 8}};
}

static hreq q;

static void serve(hrig *r, uint32_t tokens, rad_token first)
{
    q = (hreq){0};
    hreq_ask(&q, 0, tokens, first);
    hrig_serve(r, &q);
    hrig_settle(r);
}

static rad_tier_explanation explain(hrig *r, uint32_t tokens, rad_token first)
{
    rad_tier_explanation e = {.struct_size = sizeof e};
    q = (hreq){0};
    hreq_ask(&q, 0, tokens, first);
    rad_key key = hreq_key(&q, tokens);
    CHECK_OK(rad_hicache_explain(r->cache, &key, &e));
    return e;
}

TEST(what_was_demoted_is_on_the_host_and_would_be_loaded)
{
    hrig r;
    hrig_options o = plain();
    hrig_start(&r, &o, NULL);
    rad_tier_explanation e = explain(&r, 40, 100);
    CHECK(e.device_why == RAD_END_NEVER_SEEN && e.host_why == RAD_END_NEVER_SEEN);
    CHECK(e.load == RAD_LOAD_NOTHING && !e.device_tokens && !e.host_end);
    serve(&r, 40, 100);
    e = explain(&r, 43, 100);
    CHECK(e.device_tokens == 40 && e.device_why == RAD_END_PAGE_ROUNDING);
    CHECK(e.host_end == 40 && e.host_tokens == 0 && e.load == RAD_LOAD_NOTHING);

    CHECK_OK(rad_cache_evict(r.cache, 8, NULL, NULL));
    e = explain(&r, 40, 100);
    CHECK(e.device_tokens == 32 && e.host_tokens == 8 && e.load == RAD_LOAD_BELOW_THRESHOLD);
    CHECK(e.device_why == RAD_END_EVICTED && e.device_evicted_tokens == 8);
    CHECK(!strcmp(e.device_eviction.policy, "lru"));
    CHECK(e.host_why == RAD_END_COMPLETE);
    CHECK_OK(rad_cache_evict(r.cache, 8, NULL, NULL));
    e = explain(&r, 40, 100);
    CHECK(e.host_tokens == 16 && e.load == RAD_LOAD_TAKEN && e.fetched_tokens == 0);
    hrig_stop(&r, false);
}

TEST(what_the_host_evicted_says_when_and_by_what)
{
    hrig r;
    hrig_options o = plain();
    hrig_start(&r, &o, NULL);
    serve(&r, 40, 100); /* 10 of the host's 20 pages */
    serve(&r, 40, 200);
    serve(&r, 16, 300); /* 4 more */
    CHECK_OK(rad_cache_evict(r.cache, 1000, NULL, NULL));
    rad_tier_explanation e = explain(&r, 40, 100);
    CHECK(e.device_tokens == 0 && e.device_why == RAD_END_EVICTED && e.host_tokens == 24);
    CHECK(e.device_evicted_tokens == 40 && e.host_why == RAD_END_EVICTED);
    CHECK(e.host_evicted_tokens == 16);
    CHECK(e.host_eviction.cause == RAD_EVICTION_ASKED && e.host_eviction.time_ns);
    CHECK(!strcmp(e.host_eviction.policy, "lru"));
    hrig_stop(&r, false);
}

TEST(what_never_got_a_copy_was_never_on_the_host)
{
    hrig r;
    hrig_options o = plain();
    o.tiers.write_policy = RAD_WRITE_THROUGH_SELECTIVE;
    hrig_start(&r, &o, NULL);
    serve(&r, 40, 100);
    CHECK_OK(rad_cache_evict(r.cache, 40, NULL, NULL));
    rad_tier_explanation e = explain(&r, 40, 100);
    CHECK(e.device_why == RAD_END_EVICTED && e.host_why == RAD_END_NEVER_SEEN && !e.host_end);
    hrig_stop(&r, false);
}

TEST(structs_of_another_age_get_what_they_know)
{
    hrig r;
    hrig_options o = plain();
    hrig_start(&r, &o, NULL);
    serve(&r, 40, 100);
    struct {
        rad_tier_explanation e;
        uint64_t newer;
    } big = {.e.struct_size = sizeof big, .newer = 9};
    rad_key key = hreq_key(&q, 40);
    CHECK_OK(rad_hicache_explain(r.cache, &key, &big.e));
    CHECK(big.e.device_tokens == 40 && big.newer == 0 && big.e.struct_size == sizeof big);
    rad_tier_explanation old = {.struct_size = offsetof(rad_tier_explanation, host_tokens),
                                .host_tokens = 1234};
    CHECK_OK(rad_hicache_explain(r.cache, &key, &old));
    CHECK(old.device_tokens == 40 && old.host_tokens == 1234);
    old.struct_size = 0;
    CHECK(rad_hicache_explain(r.cache, &key, &old) == RAD_E_INVAL);
    CHECK(rad_hicache_explain(r.cache, &key, NULL) == RAD_E_INVAL);
    CHECK(rad_hicache_explain(hiradix_of(r.cache)->device, &key, &big.e) == RAD_E_UNSUPPORTED);
    rad_prefetch_report report = {0};
    CHECK(rad_hicache_last_prefetch(r.cache, &report) == RAD_E_INVAL);
    hrig_stop(&r, false);
}

/* ---- prefetches ---- */

static storage_call fails_at = STORAGE_REMOVE;

static storage_fate fate(void *user, storage_call call, uint64_t number)
{
    (void)user;
    (void)number;
    return call == fails_at ? STORAGE_FAILS : STORAGE_WELL;
}

static rad_prefetch_report report(const hrig *r)
{
    rad_prefetch_report p = {.struct_size = sizeof p};
    CHECK_OK(rad_hicache_last_prefetch(r->cache, &p));
    return p;
}

static rad_status ask(hrig *r, uint32_t tokens, rad_token first)
{
    q = (hreq){0};
    hreq_ask(&q, 0, tokens, first);
    rad_key key = hreq_key(&q, tokens);
    return rad_hicache_prefetch_start(r->cache, &key, 0, &q.prefetch);
}

/* The store answers `calls` times, then the request is admitted. */
static rad_prefetch_report fetch(hrig *r, uint32_t tokens, rad_token first, int calls)
{
    CHECK_OK(ask(r, tokens, first));
    CHECK(report(r).why == RAD_PREFETCH_UNDER_WAY);
    for (int i = 0; i < calls; i++) {
        (void)hi_pump(r->cache, 0);
        CHECK_OK(rad_cache_poll(r->cache));
    }
    rad_key key = hreq_key(&q, tokens);
    CHECK_OK(rad_hicache_prefetch_progress(r->cache, &q.prefetch, &key, NULL));
    hrig_settle(r);
    return report(r);
}

/* 40 tokens from 100 on and 4 from 500 on are in the store and nowhere else. */
static void start_with_store(hrig *r, uint32_t max_transfers)
{
    hrig_options o = plain();
    o.storage = true;
    o.tiers.prefetch_tokens = 72;
    o.tiers.max_transfers = max_transfers;
    fails_at = STORAGE_REMOVE;
    hrig_start(r, &o, NULL);
    r->store.script = fate;
    serve(r, 40, 100);
    serve(r, 4, 500);
    CHECK_OK(rad_hicache_clear(r->cache, RAD_TIER_DEVICE | RAD_TIER_HOST, NULL));
}

TEST(a_prefetch_says_what_came_of_it)
{
    hrig r;
    start_with_store(&r, 0);
    rad_prefetch_report p = fetch(&r, 40, 100, 2);
    CHECK(p.why == RAD_PREFETCH_ALL && p.asked_tokens == 40 && p.present_tokens == 40);
    CHECK(p.tokens == 40);
    rad_tier_explanation e = explain(&r, 40, 100);
    CHECK(e.host_tokens == 40 && e.fetched_tokens == 40 && e.load == RAD_LOAD_TAKEN);
    CHECK(ask(&r, 40, 100) == RAD_NONE && report(&r).why == RAD_PREFETCH_TOO_SHORT);
    CHECK(ask(&r, 2, 100) == RAD_NONE && report(&r).why == RAD_PREFETCH_TOO_SHORT);

    CHECK_OK(rad_hicache_clear(r.cache, RAD_TIER_HOST, NULL));
    p = fetch(&r, 60, 100, 2);
    CHECK(p.why == RAD_PREFETCH_MISSED && p.asked_tokens == 60 && p.present_tokens == 40);
    CHECK(p.tokens == 40);
    p = fetch(&r, 60, 900, 2);
    CHECK(p.why == RAD_PREFETCH_MISSED && p.asked_tokens == 60 && !p.present_tokens && !p.tokens);
    p = fetch(&r, 40, 500, 2);
    CHECK(p.why == RAD_PREFETCH_TOO_LITTLE && p.present_tokens == 4 && !p.tokens);

    rad_storage was;
    CHECK_OK(rad_hicache_detach_storage(r.cache, &was, NULL));
    CHECK(ask(&r, 40, 700) == RAD_NONE && report(&r).why == RAD_PREFETCH_NOT_ASKED);
    hrig_stop(&r, false);
}

TEST(a_prefetch_that_was_not_waited_for_is_late_or_revoked)
{
    hrig r;
    start_with_store(&r, 0);
    for (int calls = 0; calls < 2; calls++) {
        rad_prefetch_report p = fetch(&r, 40, 100, calls);
        CHECK(p.why == RAD_PREFETCH_LATE && p.asked_tokens == 40 && !p.tokens);
        CHECK(p.present_tokens == (calls ? 40u : 0u));
    }
    CHECK_OK(ask(&r, 40, 100));
    CHECK_OK(rad_hicache_prefetch_revoke(r.cache, &q.prefetch));
    CHECK(report(&r).why == RAD_PREFETCH_REVOKED && report(&r).asked_tokens == 40);
    hrig_settle(&r);
    hrig_stop(&r, false);
}

TEST(a_prefetch_says_when_the_store_is_to_blame)
{
    hrig r;
    start_with_store(&r, 0);
    fails_at = STORAGE_EXISTS;
    CHECK(fetch(&r, 40, 100, 2).why == RAD_PREFETCH_STORE_FAILED);
    fails_at = STORAGE_GET;
    rad_prefetch_report p = fetch(&r, 40, 100, 2);
    CHECK(p.why == RAD_PREFETCH_STORE_FAILED && p.present_tokens == 40 && !p.tokens);
    fails_at = STORAGE_REMOVE;
    storage_mem_spoil(&r.store, 6, 3);
    p = fetch(&r, 40, 100, 2);
    CHECK(p.why == RAD_PREFETCH_BAD_PAGE && p.present_tokens == 40 && p.tokens < 40);
    hrig_stop(&r, false);
}

TEST(a_prefetch_says_what_was_short)
{
    hrig r;
    start_with_store(&r, 1);
    CHECK_OK(ask(&r, 40, 100));
    rad_prefetch first = q.prefetch;
    CHECK(ask(&r, 20, 700) == RAD_FULL && report(&r).why == RAD_PREFETCH_NO_TICKET);
    CHECK_OK(rad_hicache_prefetch_revoke(r.cache, &first));
    hrig_stop(&r, false);

    start_with_store(&r, 0);
    CHECK_OK(ask(&r, 72, 100));
    first = q.prefetch;
    CHECK(ask(&r, 20, 700) == RAD_FULL && report(&r).why == RAD_PREFETCH_OVER_BUDGET);
    CHECK_OK(rad_hicache_prefetch_revoke(r.cache, &first));
    hrig_settle(&r);

    serve(&r, 68, 1000); /* 17 of 20 host pages, and somebody holds them */
    hiradix_cache *c = hiradix_of(r.cache);
    rad_key key = hreq_key(&q, 68);
    uint32_t node;
    CHECK(hrig_on_host(&r, &key, &node) == 68);
    hi_hold lock = hi_lock_host(c, node, 17);
    rad_prefetch_report p = fetch(&r, 40, 100, 2);
    CHECK(p.why == RAD_PREFETCH_NO_HOST_PAGES && p.present_tokens == 40 && p.tokens == 12);
    p = fetch(&r, 40, 100, 2);
    CHECK(p.why == RAD_PREFETCH_NO_HOST_PAGES && p.tokens == 0);
    hi_unlock_host(c, &lock);
    hrig_stop(&r, false);
}

TEST_MAIN()
