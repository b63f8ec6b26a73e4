/* test_hicache_faults.c - one by one: copies that fail, are torn, end in any order or not at all,
 * and memory that is not there. */
#include "hicache_plain.h"

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
        hrig_options o = hrig_plain(16);
        o.tiers.write_policy = RAD_WRITE_BACK;
        if (how == 0) o.host_pages = 6; /* too few for the prompt */
        hrig_start(&r, &o, NULL);
        hrig_serve_from(&r, 112, 1000);
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
            hrig_serve_from(&r, 112, 3000);
            CHECK_OK(rad_cache_evict(r.cache, 48, NULL, NULL));
            CHECK_OK(rad_kv_free(host_kv_pool_allocator(r.host), all, left, NULL));
            CHECK(hrig_look(&r, 112, 3000).prefix_tokens == 64);
            CHECK(hrig_look(&r, 112, 3000).host_hit_tokens == 0);
        } else {
            CHECK_OK(rad_cache_evict(r.cache, 48, NULL, NULL));
            CHECK(hrig_look(&r, 112, 1000).prefix_tokens == 64);
            CHECK(hrig_look(&r, 112, 1000).host_hit_tokens == 0);
        }
        CHECK(hrig_stats(&r).dropped_write_tokens == 48);
        CHECK(hrig_stats(&r).failed_writes == (how == 1 ? 1u : 0u));
        if (how == 2) hi_unlock_host(hiradix_of(r.cache), &hold);
        r.sim.script = NULL;
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
            hrig_options o = hrig_plain(16);
            hrig_start(&r, &o, NULL);
            int64_t which = torn ? -at : at;
            r.sim.script = fails_at;
            r.sim.user = &which;
            hrig_serve_from(&r, 64, 1000);
            hrig_settle(&r);
            rad_hicache_stats s = hrig_stats(&r);
            CHECK(s.written_tokens == (s.failed_writes ? 0 : 64));
            CHECK(s.dropped_write_tokens == (s.failed_writes ? 64 : 0));
            CHECK_OK(rad_cache_evict(r.cache, 1000, NULL, NULL));
            uint32_t cached = hrig_serve_from(&r, 65, 1000);
            s = hrig_stats(&r);
            CHECK(s.failed_writes + s.failed_loads <= 1);
            CHECK(cached == (s.failed_writes + s.failed_loads ? 0 : 64));
            hrig_settle(&r);
            copies = atomic_load(&r.sim.copies);
            CHECK(hrig_serve_from(&r, 65, 1000) == 64); /* whatever failed before */
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
        hrig_options o = hrig_plain(16);
        hrig_start(&r, &o, NULL);
        hrig_serve_from(&r, 112, 1000);
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
        CHECK(hrig_look(&r, 130, 1000).prefix_tokens == 0);
        CHECK(hrig_serve_from(&r, 130, 1000) == 112); /* the host's copy is what it was */
        hrig_end(&r);
    }
}

TEST(writes_that_end_in_any_order_hang_in_theirs)
{
    hrig r;
    hrig_options o = hrig_plain(1);
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
        hrig_options o = hrig_plain(16);
        o.storage = true;
        hrig_start(&r, &o, NULL);
        hrig_serve_from(&r, 112, 1000);
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
        CHECK(hrig_serve_from(&r, 112, 1000) == 0);
        hrig_end(&r);
    }
}

TEST(create_survives_every_allocation_failing)
{
    hrig r;
    hrig_options o = hrig_plain(16);
    o.storage = true;
    o.layout = RAD_HOST_LAYER_FIRST;
    hrig_start(&r, &o, NULL);
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
    hrig_options o = hrig_plain(16);
    hrig_start(&r, &o, NULL);
    hiradix_cache *c = hiradix_of(r.cache);
    clock_ns = 1000;
    c->base.env.now_ns = test_now;
    c->base.env.log = test_log;
    hrig_serve_from(&r, 112, 1000);
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

TEST_MAIN()
