/* test_hicache_states.c - snapshots of states on the host and in storage: what is copied of them,
 * how far a load reaches with them, what a restart finds. Random histories are
 * test_hicache_model.c's. */
#include "hicache_rig.h"

#include <radish/hicache_explain.h>

#include "cache/radix_journal.h"

static hrig_options stateful(uint32_t page_size, uint32_t pages)
{
    return (hrig_options){.page_size = page_size,
                          .device_pages = pages,
                          .host_pages = 2 * pages,
                          .states = 12,
                          .host_states = 12,
                          .no_threads = true,
                          .layout = RAD_HOST_PAGE_FIRST,
                          .demote_tokens = UINT64_MAX,
                          .tiers = {.load_back_threshold = 1,
                                    .prefetch_policy = RAD_PREFETCH_WAIT_COMPLETE,
                                    .prefetch_threshold = 2}};
}

/* A prompt of so many tokens is computed, and all transfers end. Returns how many were cached. */
static uint32_t serve(hrig *r, hreq *q, uint32_t tokens, rad_token first)
{
    *q = (hreq){0};
    hreq_ask(q, 0, tokens, first);
    uint32_t cached = hrig_serve(r, q);
    hrig_settle(r);
    hrig_check(r, NULL, 0);
    return cached;
}

static void leave_device(hrig *r)
{
    CHECK_OK(rad_cache_evict(r->cache, 100000, NULL, NULL));
    CHECK(rad_cache_total_size(r->cache) == 0 && rad_cache_state_evictable_size(r->cache) == 0);
}

static rad_match look(hrig *r, const hreq *q, uint32_t tokens)
{
    rad_match m;
    rad_key key = hreq_key(q, tokens);
    CHECK_OK(rad_cache_lookup(r->cache, &key, &m));
    return m;
}

/* The pages and the snapshot at the end of what a later match can use come back; and then both are
 * the device's. */
TEST(a_load_brings_the_snapshot_at_its_end)
{
    for (uint32_t ps = 1; ps <= 4; ps *= 4) {
        static hrig r;
        static hreq q;
        hrig_options o = stateful(ps, 128 / ps);
        hrig_start(&r, &o, NULL);
        CHECK(serve(&r, &q, 32, 0) == 0);
        uint32_t end = 31 / ps * ps; /* all but the last token */
        CHECK(hrig_stats(&r).written_states == 2 && hrig_stats(&r).host_cached_states == 2);
        leave_device(&r);
        rad_match m = look(&r, &q, 31);
        CHECK(m.prefix_tokens == 0 && m.host_hit_tokens == end && m.seen_tokens == end && !m.state);
        CHECK(serve(&r, &q, 32, 0) == end);
        CHECK(q.loaded.tokens == end && hrig_stats(&r).loaded_states == 1);
        m = look(&r, &q, 31);
        CHECK(m.prefix_tokens == end && m.host_hit_tokens == 0 && m.state);
        CHECK(serve(&r, &q, 32, 0) == end && hrig_stats(&r).loaded_states == 1);
        hrig_end(&r);
    }
}

/* The device had no place for it any more, but has the pages: the state comes alone. */
TEST(a_snapshot_comes_alone_where_the_pages_are)
{
    static hrig r;
    static hreq q;
    hrig_options o = stateful(2, 64);
    hrig_start(&r, &o, NULL);
    CHECK(serve(&r, &q, 32, 0) == 0);
    CHECK_OK(rad_cache_evict_state(r.cache, 9, NULL));
    rad_match m = look(&r, &q, 31);
    CHECK(m.prefix_tokens == 0 && m.host_hit_tokens == 30 && m.seen_tokens == 30);
    uint64_t loaded = hrig_stats(&r).loaded_tokens;
    CHECK(serve(&r, &q, 32, 0) == 30 && q.loaded.tokens == 30);
    CHECK(hrig_stats(&r).loaded_tokens == loaded && hrig_stats(&r).loaded_states == 1);
    CHECK(look(&r, &q, 31).prefix_tokens == 30);

    /* A longer prompt of which the host alone has the end: the rest of the pages comes with it. */
    CHECK(serve(&r, &q, 48, 0) == 32);
    CHECK_OK(rad_cache_evict(r.cache, 10, NULL, NULL));
    CHECK_OK(rad_cache_evict_state(r.cache, 9, NULL));
    m = look(&r, &q, 47);
    CHECK(m.prefix_tokens == 0 && m.host_hit_tokens == 46);
    loaded = hrig_stats(&r).loaded_tokens;
    CHECK(serve(&r, &q, 48, 0) == 46);
    CHECK(hrig_stats(&r).loaded_tokens == loaded + 8); /* 38 of 46 were there */
    hrig_end(&r);
}

/* What was loaded and not published yet goes with its request, wherever the load is. */
TEST(a_request_that_goes_leaves_no_state_behind)
{
    for (int point = 0; point < 4; point++) {
        static hrig r;
        static hreq q;
        hrig_options o = stateful(2, 64);
        hrig_start(&r, &o, NULL);
        CHECK(serve(&r, &q, 32, 0) == 0);
        leave_device(&r);
        q = (hreq){0};
        hreq_ask(&q, 0, 32, 0);
        CHECK_OK(hreq_admit(&r, &q));
        CHECK(q.loaded.tokens == 30 && q.kv.spare_state && q.kv.spare_len == 30);
        hrig_check(&r, (hreq *[]){&q}, 1);
        if (point >= 1) CHECK_OK(rad_hicache_ready_to_load(r.cache));
        if (point >= 2) CHECK_OK(hi_pump(r.cache, 0));
        if (point >= 3) CHECK_OK(rad_cache_poll(r.cache));
        hrig_check(&r, (hreq *[]){&q}, 1);
        hreq_finish(&r, &q, point % 2);
        hrig_check(&r, NULL, 0);
        hrig_end(&r);
    }
}

static sim_fate fails(void *user, uint64_t copy)
{
    (void)user, (void)copy;
    return SIM_FAIL;
}

/* Who did not look whether the load came has a state that stands behind it, and nothing at the end
 * of what the device had. */
TEST(a_load_that_failed_leaves_no_snapshot)
{
    static hrig r;
    static hreq q;
    hrig_options o = stateful(2, 64);
    hrig_start(&r, &o, NULL);
    CHECK(serve(&r, &q, 48, 0) == 0);
    CHECK_OK(rad_cache_evict(r.cache, 10, NULL, NULL)); /* of the pages only the end, */
    CHECK_OK(rad_cache_evict_state(r.cache, 9, NULL));  /* and of the snapshots all */
    CHECK_OK(hreq_admit(&r, &q));
    CHECK(q.kv.protected_len == 38 && q.kv.committed_len == 46);
    CHECK_OK(hreq_extend(&r, &q));
    r.sim.script = fails;
    CHECK(hreq_forward(&r, &q) == RAD_E_IO);
    r.sim.script = NULL;
    hrig_write_state(&r, q.kv.state, hreq_digest(&q, 47));
    q.kv.committed_len = q.kv.state_len = 48; /* as one who did not look */
    hreq_finish(&r, &q, true);
    CHECK(look(&r, &q, 47).prefix_tokens == 0);
    hrig_settle(&r);
    hrig_check(&r, NULL, 0);
    hrig_end(&r);
}

/* write_back: a snapshot that is evicted, alone or with its pages, is on the host by then. */
TEST(write_back_saves_a_snapshot_at_the_last_moment)
{
    for (int alone = 0; alone < 2; alone++) {
        static hrig r;
        static hreq q;
        hrig_options o = stateful(2, 64);
        o.tiers.write_policy = RAD_WRITE_BACK;
        hrig_start(&r, &o, NULL);
        CHECK(serve(&r, &q, 32, 0) == 0);
        CHECK(hrig_stats(&r).written_states == 0);
        if (alone) CHECK_OK(rad_cache_evict_state(r.cache, 9, NULL));
        hrig_check(&r, NULL, 0);
        leave_device(&r);
        CHECK(hrig_stats(&r).written_states == 2);
        CHECK(look(&r, &q, 31).host_hit_tokens == 30);
        CHECK(serve(&r, &q, 32, 0) == 30);
        hrig_end(&r);
    }
}

/* The host has fewer places than the device: the live ones stay. */
TEST(a_host_that_is_short_keeps_what_is_of_use)
{
    static hrig r;
    static hreq q;
    hrig_options o = stateful(2, 128);
    o.host_states = 3; /* for four */
    hrig_start(&r, &o, NULL);
    CHECK(serve(&r, &q, 32, 0) == 0);
    CHECK(serve(&r, &q, 32, 100) == 0);
    CHECK(hrig_stats(&r).host_cached_states == 3);
    leave_device(&r);
    hreq_ask(&q, 0, 33, 0);
    CHECK(look(&r, &q, 32).host_hit_tokens == 32); /* behind its end, not a page before */
    hreq_ask(&q, 0, 33, 100);
    CHECK(look(&r, &q, 32).host_hit_tokens == 32);
    hrig_end(&r);
}

/* A snapshot of another place in the text is noticed by whoever goes on from it, on all tiers. */
TEST(a_snapshot_at_the_wrong_position_is_noticed)
{
    static hrig r;
    static hreq q;
    hrig_options o = stateful(2, 64);
    for (int from_host = 0; from_host < 2; from_host++) {
        hrig_start(&r, &o, NULL);
        q = (hreq){0};
        hreq_ask(&q, 0, 32, 0);
        CHECK_OK(hreq_admit(&r, &q));
        CHECK_OK(hreq_extend(&r, &q));
        CHECK_OK(hreq_forward(&r, &q));
        hrig_write_state(&r, q.saved, hreq_digest(&q, q.saved_len - 2)); /* a token before */
        CHECK_OK(rad_cache_unfinished_req(r.cache, &q.kv, 0, NULL));
        hreq_put_state(&r, &q);
        hreq_finish(&r, &q, true);
        hrig_settle(&r);
        if (from_host) leave_device(&r);
        CHECK_OK(hreq_admit(&r, &q));
        CHECK(q.kv.committed_len == 30);
        CHECK_OK(rad_hicache_ready_to_load(r.cache));
        (void)rad_state_address(r.states, 0);
        CHECK(!hreq_state_is_right(&r, &q));
        hreq_finish(&r, &q, false);
        hrig_settle(&r);
        hrig_check(&r, NULL, 0);
        hrig_stop(&r, false);
    }
}

static uint32_t fetch(hrig *r, hreq *q, uint32_t tokens, rad_token first)
{
    *q = (hreq){0};
    hreq_ask(q, 0, tokens, first);
    rad_key key = hreq_key(q, tokens - 1);
    uint32_t came = 0;
    rad_status status = rad_hicache_prefetch_start(r->cache, &key, 0, &q->prefetch);
    CHECK(status == RAD_OK || status == RAD_NONE);
    do {
        (void)hi_pump(r->cache, 0);
        CHECK_OK(rad_cache_poll(r->cache));
        status = rad_hicache_prefetch_progress(r->cache, &q->prefetch, &key, &came);
    } while (status == RAD_AGAIN);
    CHECK(status == RAD_OK);
    hrig_check(r, NULL, 0);
    return came;
}

/* A restart: pages and the last snapshot that a later match can use, out of the store. */
TEST(a_restart_finds_snapshots_in_the_store)
{
    for (uint32_t ps = 1; ps <= 4; ps *= 4) {
        static hrig r;
        static hreq q;
        hrig_options o = stateful(ps, 1024 / ps);
        o.storage = true;
        hrig_start(&r, &o, NULL);
        CHECK(serve(&r, &q, 400, 0) == 0); /* more than a call asks for */
        CHECK(serve(&r, &q, 30, 500) == 0);
        CHECK(hrig_stats(&r).backed_up_states == (ps == 1 ? 4 : 3));
        hrig_restart(&r);
        uint32_t end = 399 / ps * ps;
        CHECK(fetch(&r, &q, 400, 0) == end);
        CHECK(hrig_stats(&r).fetched_states == 1 && hrig_stats(&r).host_cached_states == 1);
        CHECK(look(&r, &q, 399).host_hit_tokens == end);
        CHECK(serve(&r, &q, 400, 0) == end);
        CHECK(fetch(&r, &q, 30, 500) == 29 / ps * ps);
        CHECK(serve(&r, &q, 30, 500) == 29 / ps * ps);
        CHECK(fetch(&r, &q, 30, 500) == 0); /* it is there */
        hrig_end(&r);
    }
}

/* The host has the first pages still, but not the snapshot: of the store it wants that, and the
 * pages behind them. */
TEST(a_fetch_gets_no_pages_that_the_host_has)
{
    for (uint32_t ps = 1; ps <= 4; ps *= 4) {
        for (uint32_t first = 200; first <= 400; first += 200) {
            static hrig r;
            static hreq q;
            hrig_options o = stateful(ps, 1024 / ps);
            o.storage = true;
            hrig_start(&r, &o, NULL);
            CHECK(serve(&r, &q, 200, 0) == 0);
            CHECK(serve(&r, &q, 400, 0) > 0);
            hrig_restart(&r);
            const uint32_t had = (first - 1) / ps * ps, end = 399 / ps * ps;
            CHECK(fetch(&r, &q, first, 0) == had);
            CHECK(hrig_stats(&r).fetched_tokens == had && hrig_stats(&r).fetched_states == 1);
            CHECK(radix_state_evict(hiradix_of(r.cache)->tree, RADIX_HOST, 9) == 1);
            CHECK(look(&r, &q, first - 1).host_hit_tokens == 0);
            CHECK(fetch(&r, &q, 400, 0) == end);
            CHECK(hrig_stats(&r).fetched_tokens == end && hrig_stats(&r).fetched_states == 2);
            CHECK(look(&r, &q, 399).host_hit_tokens == end);
            CHECK(serve(&r, &q, 400, 0) == end);
            hrig_end(&r);
        }
    }
}

/* What is stored anew is not fetched twice, and what the store lost of a snapshot is a miss whose
 * mark goes. */
TEST(a_mark_without_a_snapshot_goes)
{
    static hrig r;
    static hreq q;
    hrig_options o = stateful(4, 64);
    o.storage = true;
    hrig_start(&r, &o, NULL);
    CHECK(serve(&r, &q, 42, 0) == 0); /* one snapshot, at 40 */
    CHECK(hrig_stats(&r).backed_up_states == 1);
    hiradix_cache *c = hiradix_of(r.cache);
    uint32_t node;
    rad_key key = hreq_key(&q, 40);
    CHECK(hrig_on_host(&r, &key, &node) == 40);
    const rad_page_hash *hash = radix_journal_hash(
        c->tree->journal, radix_path_unit(c->tree, node, radix_depth(c->tree, node), 9));
    rad_storage_key name, mark;
    CHECK_OK(rad_storage_key_of(&c->state_store.fingerprint, hash, &name));
    CHECK_OK(rad_storage_key_of(&c->mark_store.fingerprint, hash, &mark));
    CHECK(memcmp(&name, &mark, sizeof name) != 0);
    CHECK_OK(r.opened.ops->remove(r.opened.self, &name, NULL));
    uint32_t present = 0;
    rad_storage_batch marks = {
        .keys = &mark, .record_bytes = c->mark_store.record_bytes, .count = 1};
    CHECK_OK(r.opened.ops->batch_exists(r.opened.self, &marks, &present, NULL));
    CHECK(present == 1);
    hrig_restart(&r);
    CHECK(fetch(&r, &q, 42, 0) == 0);
    CHECK_OK(r.opened.ops->batch_exists(r.opened.self, &marks, &present, NULL));
    CHECK(present == 0 && hrig_stats(&r).fetched_states == 0);
    CHECK(serve(&r, &q, 42, 0) == 0); /* computed, and stored anew */
    CHECK(hrig_stats(&r).backed_up_states == 1);
    hrig_restart(&r);
    CHECK(fetch(&r, &q, 42, 0) == 40 && serve(&r, &q, 42, 0) == 40);
    hrig_end(&r);
}

TEST(explanations_say_that_a_snapshot_is_missing)
{
    static hrig r;
    static hreq q;
    hrig_options o = stateful(2, 64);
    hrig_start(&r, &o, NULL);
    CHECK(serve(&r, &q, 32, 0) == 0);
    CHECK(radix_state_evict(hiradix_of(r.cache)->tree, RADIX_HOST, 9) == 2);
    CHECK_OK(rad_cache_evict_state(r.cache, 9, NULL));
    rad_tier_explanation e = {.struct_size = sizeof e};
    rad_key key = hreq_key(&q, 31);
    CHECK_OK(rad_hicache_explain(r.cache, &key, &e));
    CHECK(e.device_why == RAD_END_STATE && e.host_why == RAD_END_STATE);
    leave_device(&r);
    CHECK(look(&r, &q, 31).host_hit_tokens == 0 && look(&r, &q, 31).seen_tokens == 30);
    hrig_end(&r);
}

TEST(create_survives_every_allocation_failing)
{
    static hrig r;
    rad_error err;
    hrig_options o = stateful(2, 16);
    o.storage = true;
    hrig_start(&r, &o, NULL);
    test_env t;
    hrig_create_failing(&r, &t);
    rad_cache_destroy(r.cache);
    CHECK(t.bytes == 0);

    rad_state_pool *other = NULL, *host = r.params.host_states;
    rad_state_pool_params p = {
        .struct_size = sizeof p, .state_bytes = 64, .num_states = 2, .on_host = 1};
    CHECK_OK(rad_state_pool_create(NULL, &p, &other, NULL));
    r.params.host_states = other; /* of another size */
    CHECK(rad_hicache_create(NULL, &r.params, &r.cache, &err) == RAD_E_INVAL && *err.text);
    r.params.host_states = host;
    rad_state taken;
    CHECK_OK(rad_state_alloc(host, &taken));
    CHECK(rad_hicache_create(NULL, &r.params, &r.cache, &err) == RAD_E_INVAL && *err.text);
    CHECK_OK(rad_state_free(host, taken));
    r.tree.state_pool = NULL;
    CHECK(rad_hicache_create(NULL, &r.params, &r.cache, &err) == RAD_E_INVAL && *err.text);
    r.tree.state_pool = r.states;
    CHECK_OK(rad_hicache_create(NULL, &r.params, &r.cache, NULL));
    rad_state_pool_destroy(other);
    hrig_end(&r);
}

TEST_MAIN()
