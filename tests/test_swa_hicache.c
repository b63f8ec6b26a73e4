/* test_swa_hicache.c - what is evicted from a sliding-window cache is found on the host and in
 * storage, both sides of it, byte for byte; and whatever goes wrong is a miss. */
#include "swa_rig.h"

static void start(srig *r, uint32_t ps)
{
    srig_options o = srig_small(ps, RAD_WRITE_THROUGH);
    srig_start(r, &o, NULL);
}

/* Only the policy says what is written. */
static void start_never_demoting(srig *r, uint32_t ps, uint32_t policy)
{
    srig_options o = srig_small(ps, policy);
    o.tiers.demote_tokens = UINT64_MAX;
    srig_start(r, &o, NULL);
}

/* Serves `tokens` tokens that begin with `first`, and lets all transfers end. */
static uint32_t serve(srig *r, rad_token first, uint32_t tokens)
{
    sreq q = {0};
    sreq_ask(&q, 0, tokens, first);
    uint32_t cached = srig_serve(r, &q);
    srig_check_idle(r);
    return cached;
}

/* Nothing stays on the device. */
static void empty_device(srig *r)
{
    rad_swa_evicted e;
    CHECK_OK(rad_swa_hicache_evict(r->tiers, UINT32_MAX, UINT32_MAX, &e));
    rad_swa_cache_sizes d = rad_swa_cache_get_sizes(r->device);
    CHECK(d.full_evictable == 0 && d.swa_evictable == 0);
    srig_check_idle(r);
}

/* Demoted, evicted, loaded back: every write policy, page sizes 1 and 16, both host layouts, f32
 * and bf16. srig_check_idle compares each page on each side of each tier with what runner_fake
 * stores. */
TEST(pages_of_both_sides_come_back_from_the_host_byte_for_byte)
{
    for (uint32_t policy = RAD_WRITE_THROUGH; policy <= RAD_WRITE_BACK; policy++)
        for (uint32_t i = 0; i < 8; i++) {
            srig r;
            srig_options o = srig_small(i & 1 ? 16 : 1, policy);
            o.layout = i >> 1 & 1;
            o.dtype = i >> 2;
            o.tiers.demote_tokens = 1 << 20;
            srig_start(&r, &o, NULL);
            uint32_t whole = 120 / r.ps * r.ps;
            CHECK(serve(&r, 1000, 121) == 0);
            CHECK(serve(&r, 1000, 121) == whole); /* selective wants it used again */
            empty_device(&r);
            rad_swa_hicache_stats s = srig_stats(&r);
            CHECK(s.host_cached_tokens[0] >= whole && s.host_cached_tokens[1] >= 20);
            CHECK(srig_check_tier(&r, false) == 0 && srig_check_tier(&r, true) >= 2 * whole / r.ps);
            CHECK(serve(&r, 1000, 121) == whole);
            s = srig_stats(&r);
            CHECK(s.loaded_tokens[0] == whole);
            CHECK(s.loaded_tokens[1] == (20 + r.ps - 1) / r.ps * r.ps); /* the last window only */
            CHECK(s.refused_loads[RAD_LOAD_TAKEN] == 1 && s.failed_loads == 0);
            (void)srig_stop(&r, false);
        }
}

/* A working set of four times the device's pool, again and again: without a host all of it would be
 * computed anew each time, with one it is copied. (lru keeps nothing of a round on the device.) */
TEST(a_pool_that_is_too_small_costs_a_copy)
{
    for (uint32_t policy = RAD_WRITE_THROUGH; policy <= RAD_WRITE_BACK; policy++) {
        srig r;
        srig_options o = srig_small(4, policy);
        o.host_pages[0] = 1600 / 4;
        o.host_pages[1] = 1600 / 4;
        srig_start(&r, &o, NULL);
        uint64_t asked = 0, cached = 0;
        for (uint32_t i = 0; i < 60; i++) {
            sreq q = {0};
            sreq_ask(&q, 0, 101, 1000 * (1 + (rad_token)(i % 12)));
            if (policy == RAD_WRITE_THROUGH_SELECTIVE) { /* each comes back once, at once */
                (void)srig_serve(&r, &q);
                srig_settle(&r);
                sreq_ask(&q, 0, 101, 1000 * (1 + (rad_token)(i % 12)));
            }
            uint32_t had = srig_serve(&r, &q);
            srig_settle(&r);
            asked += i >= 12 ? 100 : 0;
            cached += i >= 12 ? had : 0;
        }
        srig_check_idle(&r);
        CHECKF(cached == asked, "policy %u: %llu of %llu tokens\n", policy,
               (unsigned long long)cached, (unsigned long long)asked);
        (void)srig_stop(&r, false);
    }
}

TEST(selective_copies_what_is_come_back_to_and_nothing_else)
{
    srig r;
    start_never_demoting(&r, 4, RAD_WRITE_THROUGH_SELECTIVE);
    (void)serve(&r, 1000, 81);
    (void)serve(&r, 5000, 81);
    CHECK(srig_stats(&r).written_tokens[0] == 0);
    CHECK(serve(&r, 1000, 101) == 80);
    CHECK(srig_stats(&r).written_tokens[0] == 80);
    (void)srig_stop(&r, false);
}

/* A window side that the host has lost: the hit ends where a window is whole, and publishing the
 * prompt again brings it back. */
TEST(a_hit_ends_where_the_hosts_window_is_whole)
{
    srig r;
    start_never_demoting(&r, 2, RAD_WRITE_THROUGH);
    (void)serve(&r, 1000, 81);
    rad_swa_evicted e;
    /* A front of the host's window side goes: nobody needs it who comes for all of the prompt. */
    CHECK_OK(rad_swa_cache_evict(r.tiers->host, 0, 40, &e));
    CHECK(e.swa_tokens == 40 && e.full_tokens == 0);
    empty_device(&r);
    CHECK(serve(&r, 1000, 81) == 80);
    empty_device(&r);
    sreq q = {0};
    sreq_ask(&q, 0, 51, 1000); /* its window [30, 50) is not all there, nor any before */
    CHECK(srig_serve(&r, &q) == 0);
    srig_check_idle(&r);
    empty_device(&r);
    CHECK(serve(&r, 1000, 51) == 50); /* its last window was written anew */
    CHECK(srig_stats(&r).host_cached_tokens[0] == 80);
    /* All of the window side goes: there is nothing to go on from. */
    CHECK_OK(rad_swa_cache_evict(r.tiers->host, 0, UINT32_MAX, &e));
    empty_device(&r);
    sreq_ask(&q, 0, 81, 1000);
    rad_match m;
    rad_key key = sreq_key(&q, 80);
    rad_slot slots[SRIG_ROW_TOKENS];
    CHECK_OK(rad_swa_hicache_match_prefix(r.tiers, &key, slots, &m));
    CHECK(m.prefix_tokens == 0 && m.host_hit_tokens == 0);
    (void)srig_stop(&r, false);
}

/* The device has the window in front of what it matched: the host need not have it. */
TEST(a_window_may_lie_across_the_tiers)
{
    srig r;
    srig_options o = srig_small(1, RAD_WRITE_THROUGH);
    o.tiers.demote_tokens = UINT64_MAX;
    o.tiers.load_back_threshold = 1;
    srig_start(&r, &o, NULL);
    (void)serve(&r, 1000, 81);
    rad_swa_evicted e;
    CHECK_OK(rad_swa_cache_evict(r.device, 10, 0, &e)); /* the tail */
    CHECK(e.full_tokens == 10);
    CHECK_OK(rad_swa_cache_evict(r.tiers->host, 0, 70, &e)); /* what is before it */
    CHECK(serve(&r, 1000, 81) == 80);
    rad_swa_hicache_stats s = srig_stats(&r);
    CHECK(s.loaded_tokens[0] == 9 && s.loaded_tokens[1] == 9);
    (void)srig_stop(&r, false);
}

TEST(loads_are_refused_for_a_reason)
{
    srig r;
    start_never_demoting(&r, 1, RAD_WRITE_THROUGH);
    (void)serve(&r, 1000, 101);
    empty_device(&r);
    rad_load_result result;
    sreq q = {0};
    sreq_ask(&q, 0, 101, 1000);
    rad_key key = sreq_key(&q, 100), little = sreq_key(&q, 5);
    q.live = true;
    q.kv.key = sreq_key(&q, 101);
    CHECK(rad_swa_hicache_load_back(r.tiers, &q.kv, &key, 1000, &result) == RAD_E_STATE);
    CHECK_OK(rad_req_to_token_alloc(r.rows, &q.kv.row));
    CHECK(rad_swa_hicache_load_back(r.tiers, &q.kv, &key, 1000, NULL) == RAD_E_INVAL);
    CHECK(rad_swa_hicache_load_back(r.tiers, &q.kv, &key, 99, &result) == RAD_NONE);
    CHECK(result.why == RAD_LOAD_OVER_QUOTA);
    CHECK(rad_swa_hicache_load_back(r.tiers, &q.kv, &little, 99, &result) == RAD_NONE);
    CHECK(result.why == RAD_LOAD_BELOW_THRESHOLD);
    rad_page all[320];
    CHECK_OK(rad_swa_alloc_tail(r.kv, all, 300, 10));
    CHECK(rad_swa_hicache_load_back(r.tiers, &q.kv, &key, 1000, &result) == RAD_NONE);
    CHECK(result.why == RAD_LOAD_NO_DEVICE_PAGES);
    CHECK_OK(rad_swa_free(r.kv, all, 300, NULL));
    CHECK_OK(rad_swa_alloc(r.kv, all, 141)); /* full pages enough, but 19 of the window side */
    CHECK(rad_swa_hicache_load_back(r.tiers, &q.kv, &key, 1000, &result) == RAD_NONE);
    CHECK(result.why == RAD_LOAD_NO_DEVICE_PAGES && srig_stats(&r).tickets == 0);
    CHECK_OK(rad_swa_free(r.kv, all, 141, NULL));
    CHECK_OK(rad_swa_hicache_load_back(r.tiers, &q.kv, &key, 1000, &result));
    CHECK(q.kv.swa_evicted_len == 80 && q.kv.committed_len == 100);
    srig_check(&r, (sreq *[]){&q}, 1);
    CHECK(rad_swa_hicache_load_back(r.tiers, &q.kv, &key, 1000, &result) == RAD_E_STATE);
    /* The device's own calls leave it alone while it is loaded. */
    rad_swa_req copy = q.kv;
    CHECK(rad_swa_cache_finished_req(r.device, &copy, 0, NULL) == RAD_E_STATE);
    CHECK(rad_swa_cache_unfinished_req(r.device, &copy, NULL) == RAD_E_STATE);
    CHECK(rad_swa_hicache_unfinished_req(r.tiers, &q.kv, 0, NULL) == RAD_AGAIN);
    sreq_finish(&r, &q, true); /* gone before it was begun */
    srig_check_idle(&r);
    CHECK(srig_stats(&r).loaded_tokens[0] == 0);
    (void)srig_stop(&r, false);
}

/* A request that goes while its load is queued leaves the pages to the load. */
TEST(a_request_may_go_while_it_is_loaded)
{
    for (int how = 0; how < 3; how++) {
        srig r;
        start(&r, 2);
        (void)serve(&r, 1000, 101);
        empty_device(&r);
        sreq q = {0};
        sreq_ask(&q, 0, 101, 1000);
        CHECK_OK(sreq_admit(&r, &q));
        CHECK(q.loaded.tokens == 100);
        CHECK_OK(sreq_extend(&r, &q, 101));
        CHECK_OK(rad_swa_hicache_ready_to_load(r.tiers));
        if (how == 1) CHECK_OK(rad_swa_hicache_pump(r.tiers, 0)); /* it has arrived */
        if (how == 2) CHECK_OK(rad_swa_hicache_reset(r.tiers));
        srig_check(&r, (sreq *[]){&q}, 1);
        sreq_finish(&r, &q, true);
        srig_end(&r);
    }
}

/* A prompt that is published in chunks is a chain of nodes; a lock of its end keeps the last
 * window only, but a write or a load in flight needs the window side of all its pages. */
TEST(what_is_being_copied_keeps_its_window_side)
{
    srig r;
    start_never_demoting(&r, 1, RAD_WRITE_THROUGH);
    sreq q = {0};
    rad_swa_evicted e;
    sreq_ask(&q, 0, 100, 1000);
    CHECK_OK(sreq_admit(&r, &q));
    for (uint32_t end = 30; end <= 120; end += 30) {
        CHECK_OK(sreq_extend(&r, &q, RAD_MIN(end, 100u)));
        CHECK_OK(sreq_forward(&r, &q));
        CHECK_OK(rad_swa_hicache_unfinished_req(r.tiers, &q.kv, end < 100, NULL));
        CHECK((srig_stats(&r).queued[TRANSFER_WRITE] != 0) == (end > 100));
    }
    sreq_finish(&r, &q, true);
    CHECK_OK(rad_swa_cache_evict(r.device, 0, 1000, &e));
    CHECK(e.swa_tokens == 0);
    srig_poison(&r);
    srig_check_idle(&r);
    CHECK(srig_stats(&r).written_tokens[1] == 100);

    for (uint32_t end = 30; end <= 120; end += 30) /* the host's nodes end here */
        (void)serve(&r, 5000, RAD_MIN(end, 100u));
    empty_device(&r);
    sreq_ask(&q, 0, 71, 5000);
    CHECK_OK(sreq_admit(&r, &q));
    CHECK(q.loaded.tokens == 70);
    CHECK_OK(rad_swa_cache_evict(r.tiers->host, 0, 1000, &e));
    CHECK(e.swa_tokens ==
          100 + 30 + 10); /* the other prompt, what is before the window, and behind */
    srig_poison(&r);
    CHECK_OK(sreq_extend(&r, &q, 71));
    CHECK_OK(sreq_forward(&r, &q));
    sreq_finish(&r, &q, true);
    srig_end(&r);
}

TEST(what_is_being_written_is_not_written_again)
{
    srig r;
    start_never_demoting(&r, 1, RAD_WRITE_THROUGH);
    sreq a = {0}, b = {0};
    sreq_ask(&a, 0, 101, 1000);
    sreq_ask(&b, 0, 50, 1000);
    sreq_ask(&b, 50, 101, 7000);
    (void)srig_serve(&r, &a);
    CHECK(srig_stats(&r).queued[TRANSFER_WRITE] == 1);
    (void)srig_serve(&r, &b); /* the path forks where nothing is written yet */
    CHECK(srig_stats(&r).queued[TRANSFER_WRITE] == 2);
    srig_check_idle(&r);
    CHECK(srig_stats(&r).written_tokens[0] == 152 && srig_stats(&r).dropped_write_tokens == 0);
    empty_device(&r);
    CHECK(srig_serve(&r, &a) == 100 && srig_serve(&r, &b) == 100);
    srig_end(&r);
}

/* ---- faults ---- */

typedef struct nth {
    uint64_t at;
    sim_fate fate;
} nth;

static sim_fate fail_nth(void *user, uint64_t copy)
{
    const nth *n = user;
    return copy == n->at ? n->fate : SIM_COPY;
}

/* Each copy of a whole life fails once, or is torn: never a wrong byte, never a page lost. */
TEST(every_copy_failing_once_costs_a_miss_and_nothing_else)
{
    for (uint32_t ps = 1; ps <= 16; ps *= 16)
        for (int fate = SIM_FAIL; fate <= SIM_TORN; fate++)
            for (uint64_t at = 0, copies = 1; at < copies; at += ps == 1 ? 7 : 1) {
                srig r;
                srig_options o = srig_small(ps, RAD_WRITE_THROUGH);
                o.layout = (uint32_t)(at & 1);
                srig_start(&r, &o, NULL);
                nth n = {.at = at, .fate = (sim_fate)fate};
                r.sim.script = fail_nth;
                r.sim.user = &n;
                (void)serve(&r, 1000, 97);
                (void)serve(&r, 1000, 60);
                empty_device(&r);
                (void)serve(&r, 1000, 97); /* from the host, or again */
                rad_swa_hicache_stats s = srig_stats(&r);
                CHECK(s.failed_writes + s.failed_loads == 1);
                copies = atomic_load(&r.sim.copies);
                r.sim.script = NULL;
                uint32_t whole = 96 / ps * ps;
                empty_device(&r);
                (void)serve(&r, 1000, 97);
                empty_device(&r);
                CHECK(serve(&r, 1000, 97) == whole);
                (void)srig_stop(&r, false);
            }
}

/* Eviction never waits for a copy: what is needed at once is lost, and its write given up. */
TEST(who_needs_pages_does_not_wait_for_writes)
{
    srig r;
    start(&r, 1);
    sreq q = {0};
    sreq_ask(&q, 0, 150, 1000);
    (void)srig_serve(&r, &q);
    CHECK(srig_stats(&r).queued[TRANSFER_WRITE] > 0);
    rad_swa_evicted e;
    CHECK_OK(rad_swa_hicache_evict(r.tiers, 0, 150, &e));
    CHECK(e.swa_tokens == 150);
    CHECK(srig_stats(&r).tickets == 0);
    srig_check_idle(&r);
    CHECK(srig_stats(&r).host_cached_tokens[0] == 0);
    (void)srig_stop(&r, false);
}

static void *no_more(void *user, size_t bytes)
{
    (void)bytes;
    ++*(int *)user;
    return NULL;
}

TEST(nothing_touches_the_heap_after_create)
{
    srig r;
    start(&r, 4);
    int asked = 0;
    void *(*alloc)(void *, size_t) = r.tiers->env.alloc;
    rad_env *envs[] = {&r.tiers->env, &r.device->env, &r.tiers->host->env, &r.device->tree.env,
                       &r.tiers->host->tree.env};
    for (uint32_t i = 0; i < 40; i++) { /* both tiers overflow, on both sides */
        sreq q = {0};
        for (size_t e = 0; e < RAD_COUNT(envs); e++) {
            envs[e]->alloc = no_more;
            envs[e]->user = &asked;
        }
        sreq_ask(&q, 0, 61 + 4 * (i % 8), 1000 + 1000 * (rad_token)(i % 5 ? i % 4 : i));
        (void)srig_serve(&r, &q);
        srig_settle(&r);
        for (size_t e = 0; e < RAD_COUNT(envs); e++)
            envs[e]->alloc = alloc;
        srig_check_idle(&r);
    }
    CHECK(asked == 0);
    CHECK(srig_stats(&r).loaded_tokens[0] > 0);
    (void)srig_stop(&r, false);
}

TEST(create_refuses_nonsense_and_survives_every_allocation_failing)
{
    srig r;
    rad_error err;
    srig_options o = srig_small(4, RAD_WRITE_THROUGH);
    o.storage = true;
    srig_start(&r, &o, NULL);
    rad_swa_hicache_destroy(r.tiers);
    rad_swa_hicache_destroy(NULL);
    rad_swa_hicache *c = NULL;
    rad_swa_cache_params cache = {.struct_size = sizeof cache,
                                  .window_tokens = 20,
                                  .allocator = r.kv,
                                  .req_to_token_pool = r.rows};
    rad_storage_identity identity = {.struct_size = sizeof identity, .model = "a model"};
    rad_swa_hicache_params good = {.struct_size = sizeof good,
                                   .cache = &cache,
                                   .host_pool = r.host[0],
                                   .swa_host_pool = r.host[1],
                                   .identity = &identity,
                                   .storage = &r.opened[0],
                                   .swa_storage = &r.opened[1]},
                           bad;
#define REFUSED(want, ...)                                                                         \
    do {                                                                                           \
        bad = good;                                                                                \
        err.text[0] = 0;                                                                           \
        __VA_ARGS__;                                                                               \
        CHECK(rad_swa_hicache_create(NULL, &bad, &c, &err) == (want) && !c);                       \
        CHECK(strlen(err.text) > 10);                                                              \
    } while (0)
    REFUSED(RAD_E_INVAL, bad.cache = NULL);
    REFUSED(RAD_E_INVAL, bad.swa_host_pool = NULL);
    REFUSED(RAD_E_INVAL, bad.swa_host_pool = r.host[0]);
    REFUSED(RAD_E_INVAL, bad.swa_storage = NULL);
    REFUSED(RAD_E_INVAL, bad.identity = NULL);
    REFUSED(RAD_E_INVAL, bad.write_policy = 3);
    REFUSED(RAD_E_LIMIT, bad.max_transfers = 65536);
    REFUSED(RAD_E_INVAL, bad.host_pool = r.host[1]; bad.swa_host_pool = r.host[0]);
    rad_page page;
    CHECK_OK(rad_kv_alloc(rad_host_kv_pool_allocator(r.host[1]), &page, 1));
    REFUSED(RAD_E_INVAL, (void)0); /* somebody else uses the pool */
    CHECK_OK(rad_kv_free(rad_host_kv_pool_allocator(r.host[1]), &page, 1, NULL));
#undef REFUSED
    for (long n = 0; !c; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        CHECK(rad_swa_hicache_create(&env, &good, &c, &err) == (c ? RAD_OK : RAD_E_NOMEM));
        CHECK(n < 200 && (c || t.bytes == 0));
        CHECK(c || !r.pool[0]->params.wait_layer);
        if (c) rad_swa_hicache_destroy(c);
        CHECK(t.bytes == 0);
    }
    CHECK(rad_kv_available_pages(rad_host_kv_pool_allocator(r.host[0])) == o.host_pages[0]);
    srig_tiers(&r);
    srig_end(&r);
}

TEST_MAIN()
