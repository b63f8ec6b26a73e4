/* test_scheduler_tiers_cases.c - the scheduler over a cache with tiers, case by case: what the host
 * brings, what a request is told of it, restarts, cancels, flushes. */
#include "tiers_rig.h"

#include <radish/retention.h>

/* Of two states one is brought by the load, and the one at the match on the device, which is behind
 * then, makes room for the request's own. */
TEST(two_states_are_enough_for_what_the_host_brings)
{
    static rad_token docs[NUM_DOCS][DOC_TOKENS];
    tiers_docs(docs, 15);
    rig_fake.states = 1;
    tiers_rig t = {.tiers = {.deterministic = 1, .load_back_threshold = 1}, .host = {.ratio = 6}};
    scheduler_params params = rig_params(400, 16, 0);
    params.max_states = 2;
    tiers_start(&t, params, false);
    const uint32_t tokens[] = {DOC_TOKENS, 40, DOC_TOKENS};
    for (int i = 0; i < 3; i++) {
        if (i == 2) /* the long one's end is on the host alone */
            CHECK_OK(rad_cache_evict(t.g.s->pools.tree_cache, 112, NULL, NULL));
        rig_req *q = rig_add(&t.g, docs[0], tokens[i], 1);
        rig_run(&t.g);
        tiers_settle(&t);
        CHECK(q->r.hits.loaded == (i == 2 ? 112 : 0) && q->r.hits.cached == (i == 2 ? 144 : 0));
        rig_expect(q, 1);
    }
    tiers_stop(&t);
    rig_fake.states = 0;
}

/* Three states are three copies on their way to the host: who can do without one gets none and
 * leaves the copies alone, who cannot gets the newest's. */
TEST(no_copy_to_the_host_is_given_up_for_a_spare)
{
    static rad_token docs[NUM_DOCS][DOC_TOKENS];
    tiers_docs(docs, 16);
    rig_fake.states = 1;
    tiers_rig t = {.tiers = {.deterministic = 1}, .host = {.ratio = 6}};
    scheduler_params params = rig_params(1024, 16, 0);
    params.max_states = 4;
    tiers_start(&t, params, false);
    rad_state_pool *pool = t.g.s->pools.states.pool;
    rad_cache *cache = t.g.s->pools.tree_cache;
    rig_req *q = rig_add(&t.g, docs[0], DOC_TOKENS, 1);
    rig_run(&t.g);
    rig_expect(q, 1);
    rad_state free[4], state = 0;
    uint32_t n = 0;
    while (rad_state_alloc(pool, &free[n]) == RAD_OK)
        n++;
    CHECK(n < 4 && rad_cache_state_evictable_size(cache) == 0);
    CHECK(!state_take_spare(&t.g.s->pools.states, cache, &state) && !state);
    CHECK(rig_stats(&t.g).tiers.dropped_states == 0);
    CHECK(state_take(&t.g.s->pools.states, cache, &state) && state);
    CHECK(rig_stats(&t.g).tiers.dropped_states == 1);
    CHECK_OK(rad_state_free(pool, state));
    while (n)
        CHECK_OK(rad_state_free(pool, free[--n]));
    tiers_stop(&t);
    rig_fake.states = 0;
}

/* With pages of one token nobody has a spare: who loads needs a state for what comes beside its
 * own, and waits until the one that runs has given its back. */
TEST(a_load_does_not_take_the_state_that_its_request_works_with)
{
    static rad_token docs[NUM_DOCS][DOC_TOKENS];
    tiers_docs(docs, 17);
    rig_fake.states = 1;
    tiers_rig t = {.tiers = {.deterministic = 1, .load_back_threshold = 1}, .host = {.ratio = 6}};
    scheduler_params params = rig_params(1024, 1, 0);
    params.max_states = 2;
    tiers_start(&t, params, false);
    rig_req *q = rig_add(&t.g, docs[0], DOC_TOKENS, 1);
    rig_run(&t.g);
    rig_expect(q, 1);
    tiers_settle(&t);
    CHECK_OK(rad_cache_evict(t.g.s->pools.tree_cache, 1000, NULL, NULL));
    rig_req *busy = rig_add(&t.g, docs[2], 30, 12);
    rig_step(&t.g);
    q = rig_add(&t.g, docs[0], DOC_TOKENS, 1);
    rig_run(&t.g);
    tiers_settle(&t);
    CHECK(q->r.hits.loaded == DOC_TOKENS - 1);
    rad_hicache_stats st = rig_stats(&t.g).tiers;
    CHECKF(st.refused_loads[RAD_LOAD_TAKEN] == 1 && st.loaded_states == 1,
           "%llu loads, %llu states\n", (unsigned long long)st.refused_loads[RAD_LOAD_TAKEN],
           (unsigned long long)st.loaded_states);
    rig_expect(busy, 12);
    rig_expect(q, 1);
    tiers_stop(&t);
    rig_fake.states = 0;
}

/* What only the host has counts as cached for the order, too: the newer request, most of whose
 * prompt left the device for the host, goes before the older one that has a little on the
 * device. */
TEST(lpm_knows_what_the_host_has)
{
    static rad_token docs[NUM_DOCS][DOC_TOKENS];
    tiers_docs(docs, 15);
    tiers_rig t = {.tiers = {.deterministic = 1}, .host = {.ratio = 6}};
    scheduler_params params = rig_params(400, 16, 0);
    params.max_running_requests = 1;
    tiers_start(&t, params, false);
    for (int d = 0; d < 6; d++) {
        rig_req *q = rig_add(&t.g, docs[d], DOC_TOKENS, 1);
        for (int i = 0; i < 100 && tiers_has_work(t.g.s); i++)
            rig_step(&t.g);
        rig_drop(q);
    }
    rad_key key = {.tokens = docs[0], .num_tokens = DOC_TOKENS};
    rad_match match;
    CHECK_OK(rad_cache_lookup(t.g.s->pools.tree_cache, &key, &match));
    CHECK(match.prefix_tokens <= 48 && match.prefix_tokens + match.host_hit_tokens >= 144);
    memcpy(docs[8], docs[4], 64 * sizeof docs[8][0]);
    rig_req *busy = rig_add(&t.g, docs[4], 20, 4), *other, *demoted;
    rig_step(&t.g);
    other = rig_add(&t.g, docs[8], DOC_TOKENS, 1);
    demoted = rig_add(&t.g, docs[0], DOC_TOKENS, 1);
    for (int i = 0; i < 100 && !demoted->finish; i++)
        rig_step(&t.g);
    CHECK(busy->finish && demoted->finish && !other->finish);
    CHECK(demoted->r.hits.loaded >= 80);
    rig_run(&t.g);
    rig_expect(busy, 4);
    rig_expect(other, 1);
    rig_expect(demoted, 1);
    tiers_stop(&t);
}

/* A tier is flushed between two turns of a streaming session: the session keeps nothing of what
 * went, and the pages that it had are another's now. */
TEST(a_flush_leaves_idle_sessions_nothing_that_is_gone)
{
    static rad_token docs[NUM_DOCS][DOC_TOKENS];
    tiers_docs(docs, 29);
    for (uint32_t tiers = 1; tiers <= (RAD_TIER_DEVICE | RAD_TIER_HOST); tiers++) {
        tiers_rig t = {.tiers = {.deterministic = 1}, .host = {.ratio = 6}};
        scheduler_params params = rig_params(256, 16, 48);
        params.max_sessions = 1;
        params.streaming_sessions = true;
        tiers_start(&t, params, false);
        tiers_talk k = {0};
        rad_error err = {0};
        CHECK_OK(scheduler_session_open(t.g.s, &k.session, &err));
        memcpy(k.said, docs[0], 90 * sizeof *k.said);
        k.len = 90;
        for (int turn = 0; turn < 3; turn++) {
            tiers_add_turn(&t, &k, 10, 0, 0);
            rig_run(&t.g);
            tiers_end_turn(&k);
            tiers_settle(&t);
            if (turn == 1) {
                CHECK(rad_hicache_clear(t.g.s->pools.inner_cache, tiers, &err) ==
                      (tiers & RAD_TIER_DEVICE ? RAD_AGAIN : RAD_OK));
                CHECK_OK(scheduler_flush_tiers(t.g.s, tiers, &err));
                rig_check(&t.g);
                CHECK(!rig_stats(&t.g).sessions.held == !!(tiers & RAD_TIER_DEVICE));
                rig_req *q =
                    rig_add(&t.g, docs[2], DOC_TOKENS, 4); /* takes pages that are free now */
                rig_run(&t.g);
                rig_expect(q, 4);
            }
            rig_prompt(k.said + k.len, 20, 7);
            k.len += 20;
        }
        CHECK_OK(scheduler_session_close(t.g.s, k.session, &err));
        tiers_stop(&t);
    }
}

/* A prompt takes what is left of the pool while the next turn of a session waits that begins with
 * what the tree has. To be looked at and not admitted leaves nothing behind: no idle session that
 * locks what the prompt needs, no pin, and no copy to the host that would have to be waited for;
 * every one of them fails here, so that it would be begun again and again. */
TEST(a_turn_that_is_not_admitted_is_in_nobodys_way)
{
    static rad_token docs[NUM_DOCS][DOC_TOKENS];
    tiers_docs(docs, 23);
    for (int pinned = 0; pinned < 2; pinned++) {
        tiers_rig t = {.tiers = {.deterministic = 1}, .host = {.ratio = 6}};
        scheduler_params params = rig_params(256, 16, 48);
        params.max_sessions = 1;
        params.streaming_sessions = true;
        params.max_pinned_tokens = 256;
        tiers_start(&t, params, false);
        tiers_talk k = {0};
        rad_error err = {0};
        CHECK_OK(scheduler_session_open(t.g.s, &k.session, &err));
        t.fault_every = 1;
        memcpy(k.said, docs[0], 96 * sizeof *k.said);
        k.len = 96;
        tiers_add_turn(&t, &k, 20, 0, 0);
        rig_run(&t.g);
        tiers_end_turn(&k);
        tiers_settle(&t);
        rig_req *q = rig_add(&t.g, docs[2], DOC_TOKENS, 100);
        rig_step(&t.g);
        rig_prompt(k.said + k.len, 20, 7);
        k.len += 20;
        tiers_add_turn(&t, &k, 20, pinned ? UINT64_MAX / 4 : 0, 0);
        while (!q->finish) {
            rig_step(&t.g);
            CHECK(t.g.steps < 2000 && t.g.s->tiers.releases < 200);
        }
        CHECK(!rad_cache_pinned_size(t.g.s->pools.tree_cache));
        rig_expect(q, 100);
        rig_run(&t.g);
        tiers_end_turn(&k);
        CHECK_OK(scheduler_session_close(t.g.s, k.session, &err));
        tiers_stop(&t);
    }
}

/* One at a time, a pool of a quarter of what comes back: the tier below makes up for it. */
TEST(the_host_makes_up_for_a_small_pool)
{
    static rad_token docs[NUM_DOCS][DOC_TOKENS];
    uint64_t cached[2];
    tiers_docs(docs, 5);
    for (int with_host = 0; with_host < 2; with_host++) {
        tiers_rig t = {.tiers = {.deterministic = 1}, .host = {.ratio = 6}};
        if (with_host)
            tiers_start(&t, rig_params(400, 16, 0), false);
        else
            rig_start(&t.g, rig_params(400, 16, 0));
        for (int i = 0; i < 60; i++) {
            rig_req *q = rig_add(&t.g, docs[i % NUM_DOCS], DOC_TOKENS, 4);
            rig_run(&t.g);
            tiers_settle(&t);
            rig_expect(q, 4);
        }
        scheduler_stats st;
        scheduler_get_stats(t.g.s, &st);
        cached[with_host] = st.cached_tokens - st.copied_tokens;
        if (with_host) CHECK(tiers_stop(&t).loaded_tokens == st.loaded_tokens);
        if (!with_host) rig_stop(&t.g);
    }
    CHECK(cached[1] == 144 * 50 + 48 * 5); /* all that came before, and the shared 48 */
    CHECK(cached[0] < cached[1] / 2);
}

/* Where window memory is short, too: a prompt comes back from the host with the window before its
 * end, and no more of the window side than that. */
TEST(the_host_brings_windows_back)
{
    enum { OWN = 32, PAGE = 4 };
    static rad_token docs[NUM_DOCS][DOC_TOKENS];
    tiers_docs(docs, 5);
    for (uint32_t only = 0; only < 2; only++) {
        rig_fake.window = OWN;
        rig_fake.window_only = only;
        tiers_rig t = {.tiers = {.deterministic = 1}, .host = {.ratio = 6}};
        scheduler_params params = rig_params(400, PAGE, 48);
        params.window_total_tokens = 120;
        tiers_start(&t, params, false);
        uint64_t loaded = 0, near = 0;
        for (int i = 0; i < 40; i++) {
            rig_req *q = rig_add(&t.g, docs[i % NUM_DOCS], DOC_TOKENS, 4);
            rig_run(&t.g);
            tiers_settle(&t);
            rad_hicache_stats st = rig_stats(&t.g).tiers;
            uint64_t brought = st.loaded_tokens - loaded;
            CHECKF(i < NUM_DOCS || (q->cached_tokens == 148 && brought >= 96),
                   "%u cached, %llu loaded\n", q->cached_tokens, (unsigned long long)brought);
            rig_expect(q, 4);
            CHECK(st.loaded_window_tokens - near == RAD_MIN(brought, (uint64_t)OWN));
            loaded = st.loaded_tokens;
            near = st.loaded_window_tokens;
        }
        rad_hicache_stats st = tiers_stop(&t);
        CHECK(st.host_window_tokens == 6 * 120 && st.host_window_cached_tokens);
        CHECK(st.dropped_window_tokens == 0);
    }
    rig_fake.window = rig_fake.window_only = 0;
}

/* So many bytes on the host are shared out as those on the device are. */
TEST(host_memory_is_shared_between_pages_and_windows)
{
    rig_fake.window = 32;
    tiers_rig t = {.host = {.bytes = 1 << 20}};
    scheduler_params params = rig_params(512, 16, 48);
    params.window_total_tokens = 128;
    tiers_start(&t, params, false);
    rad_token ids[100];
    rig_prompt(ids, 100, 3);
    rig_req *q = rig_add(&t.g, ids, 100, 4);
    rig_run(&t.g);
    rig_expect(q, 4);
    rad_hicache_stats st = rig_stats(&t.g).tiers;
    double parts = (double)st.host_tokens / (double)st.host_window_tokens;
    CHECKF(parts > 3 && parts < 4.5, "%llu, %llu\n", (unsigned long long)st.host_tokens,
           (unsigned long long)st.host_window_tokens);
    tiers_stop(&t);
    rig_fake.window = 0;
}

/* Served to its end, transfers and all; the caller drops it. */
static rig_req *served(tiers_rig *t, const rad_token *doc, uint32_t tokens)
{
    t->g.s->cost.most_prompt_tokens = 0;
    rig_req *q = rig_add(&t->g, doc, tokens, 4);
    rig_run(&t->g);
    tiers_settle(t);
    rig_check_answer(q);
    CHECK(q->r.why.known && q->r.why.has_tiers);
    return q;
}

TEST(a_request_knows_why_no_more_of_it_was_cached)
{
    static rad_token docs[NUM_DOCS][DOC_TOKENS];
    tiers_docs(docs, 21);
    tiers_rig t = {.tiers = {.prefetch_policy = RAD_PREFETCH_WAIT_COMPLETE,
                             .prefetch_threshold = 32,
                             .deterministic = 1},
                   .host = {.ratio = 2}};
    CHECK_OK(storage_mem_init(&t.store, NULL, 4096, tiers_record_bytes(16)));
    tiers_start(&t, rig_params(400, 16, 0), true);
    rig_req *q = served(&t, docs[0], DOC_TOKENS);
    CHECK(q->r.why.device.why == RAD_END_NEVER_SEEN && q->r.why.host.why == RAD_END_NEVER_SEEN);
    CHECK(q->r.why.load == RAD_LOAD_NOTHING && q->r.why.prefetch == RAD_PREFETCH_MISSED);
    CHECK(q->r.why.asked_tokens == 144 && q->r.why.present_tokens == 0);
    rig_drop(q);
    q = served(&t, docs[0], DOC_TOKENS);
    CHECK(q->cached_tokens == 144 && q->r.why.device.why == RAD_END_PAGE_ROUNDING);
    CHECK(q->r.why.prefetch == RAD_PREFETCH_TOO_SHORT);
    rig_drop(q);
    for (int d = 2; d < 8; d += 2)
        rig_drop(served(&t, docs[d], DOC_TOKENS));
    q = served(&t, docs[0], DOC_TOKENS); /* demoted */
    CHECK(q->r.why.device.why == RAD_END_EVICTED && q->r.why.device.evicted_tokens >= 80);
    CHECK(!strcmp(q->r.why.device.policy, "lru") && q->r.why.host_tokens >= 80);
    CHECK(q->r.why.load == RAD_LOAD_TAKEN && q->r.hits.loaded == q->r.why.host_tokens);
    rig_drop(q);

    rig_drop(served(&t, docs[8], DOC_TOKENS));
    t.fault_every = 1; /* a load is taken and fails: its tokens are computed */
    q = served(&t, docs[2], DOC_TOKENS);
    CHECK(q->r.why.load_failed && q->r.why.load == RAD_LOAD_TAKEN && !q->r.hits.loaded);
    CHECK(q->cached_tokens == q->r.hits.cached && q->cached_tokens + q->r.why.host_tokens == 144);
    rig_drop(q);
    t.fault_every = 0;

    for (int d = 1; d < 10; d += 2)
        rig_drop(served(&t, docs[d], DOC_TOKENS));
    q = served(&t, docs[4], DOC_TOKENS); /* out of both, and back from storage */
    CHECK(q->r.why.device.why == RAD_END_EVICTED && q->r.why.prefetch == RAD_PREFETCH_ALL);
    CHECK(q->r.hits.fetched && q->cached_tokens == 144);
    rig_drop(q);
    tiers_stop(&t);
    storage_mem_fini(&t.store);
}

TEST(without_tiers_a_request_knows_about_the_device)
{
    static rad_token docs[NUM_DOCS][DOC_TOKENS];
    tiers_docs(docs, 22);
    rig g;
    rig_start(&g, rig_params(400, 16, 0));
    for (int i = 0; i < 5; i++) {
        rig_req *q = rig_add(&g, docs[i % 4], DOC_TOKENS, 1);
        rig_run(&g);
        const req_why *w = &q->r.why;
        CHECK(w->known && !w->has_tiers);
        CHECK(w->device.why == (i == 4 ? RAD_END_EVICTED : RAD_END_NEVER_SEEN));
        CHECK(!w->device.policy == (i < 4));
        rig_drop(q);
    }
    rig_stop(&g);
}

TEST(what_was_served_before_a_restart_comes_from_storage)
{
    static rad_token docs[NUM_DOCS][DOC_TOKENS];
    tiers_docs(docs, 7);
    for (int threads = 0; threads < 2; threads++) {
        tiers_rig t = {.tiers = {.prefetch_policy = RAD_PREFETCH_WAIT_COMPLETE,
                                 .prefetch_threshold = 32,
                                 .deterministic = !threads},
                       .host = {.layout = RAD_HOST_PAGE_FIRST, .ratio = 4}};
        CHECK_OK(storage_mem_init(&t.store, NULL, 4096, tiers_record_bytes(16)));
        for (int life = 0; life < 2; life++) {
            tiers_start(&t, rig_params(2048, 16, 0), true);
            for (int i = 0; i < NUM_DOCS; i++) {
                /* A fake model computes faster than anything can be fetched. */
                t.g.s->cost.most_prompt_tokens = 0;
                rig_req *q = rig_add(&t.g, docs[i], DOC_TOKENS, 4);
                rig_run(&t.g);
                if (life) CHECK(q->cached_tokens == 144);
                rig_expect(q, 4);
            }
            scheduler_stats st;
            scheduler_get_stats(t.g.s, &st);
            /* The five that share 48 tokens fetch them once. */
            if (life) CHECK(st.fetched_tokens == 144 * 10 - 48 * 5);
            tiers_stop(&t);
        }
        storage_mem_fini(&t.store);
    }
}

TEST(a_request_that_is_cancelled_while_it_fetches_gives_all_back)
{
    static rad_token docs[NUM_DOCS][DOC_TOKENS];
    tiers_docs(docs, 9);
    tiers_rig t = {.tiers = {.prefetch_policy = RAD_PREFETCH_WAIT_COMPLETE,
                             .prefetch_threshold = 32,
                             .deterministic = 1}};
    CHECK_OK(storage_mem_init(&t.store, NULL, 4096, tiers_record_bytes(16)));
    tiers_start(&t, rig_params(512, 16, 0), true);
    rig_req *q = rig_add(&t.g, docs[0], DOC_TOKENS, 4), *other = rig_add(&t.g, docs[2], 20, 4);
    scheduler_stats st;
    scheduler_get_stats(t.g.s, &st);
    CHECK(st.num_waiting == 2 && t.g.s->tiers.num_fetching == 1 && !scheduler_is_idle(t.g.s));
    scheduler_cancel(t.g.s, &q->r, REQ_FINISH_ABORT);
    rig_run(&t.g);
    CHECK(q->finish == REQ_FINISH_ABORT && q->num_out == 0);
    rig_expect(other, 4);
    rig_drop(q);
    q = rig_add(&t.g, docs[0], DOC_TOKENS, 4); /* and one is left behind at the end */
    CHECK(t.g.s->tiers.num_fetching == 1);
    scheduler_destroy(t.g.s);
    runner_destroy(t.g.runner);
    rig_drop(q);
    storage_mem_fini(&t.store);
}

TEST(tiers_are_flushed_one_by_one_and_stores_change_while_idle)
{
    static rad_token docs[NUM_DOCS][DOC_TOKENS];
    rad_error err = {0};
    tiers_docs(docs, 11);
    tiers_rig t = {.tiers = {.prefetch_threshold = 32, .deterministic = 1}};
    scheduler_params params = rig_params(512, 16, 0);
    params.max_draft_tokens = 4;
    params.draft_sources = draft_bit(DRAFT_RECENT);
    params.draft_recent_tokens = RECENT_LEAST;
    CHECK_OK(storage_mem_init(&t.store, NULL, 4096, tiers_record_bytes(16)));
    tiers_start(&t, params, true);
    rig_req *q = rig_add(&t.g, docs[0], DOC_TOKENS, 4);
    CHECK(scheduler_flush_tiers(t.g.s, RAD_TIER_DEVICE, &err) == RAD_AGAIN);
    CHECK(scheduler_detach_storage(t.g.s, NULL, &err) == RAD_AGAIN);
    rig_run(&t.g);
    rig_expect(q, 4);
    tiers_settle(&t);
    CHECK(t.g.s->drafts.recent.filled);
    CHECK_OK(scheduler_flush_tiers(t.g.s, RAD_TIER_DEVICE, &err));
    CHECK(!t.g.s->drafts.recent.filled); /* the answers go with what was cached */
    const size_t used = scheduler_used_slots(t.g.s);
    q = rig_add(&t.g, docs[0], DOC_TOKENS, 4);
    rig_run(&t.g);
    CHECK(scheduler_used_slots(t.g.s) == used); /* from the first page again */
    CHECK(q->cached_tokens == 144 && q->r.hits.loaded == 144 && q->r.hits.fetched == 0);
    rig_expect(q, 4);
    tiers_settle(&t);
    CHECK_OK(scheduler_detach_storage(t.g.s, NULL, &err));
    CHECK(scheduler_flush_tiers(t.g.s, RAD_TIER_STORAGE, &err) == RAD_E_UNSUPPORTED);
    CHECK_OK(scheduler_attach_storage(t.g.s, &t.opened, &err));
    CHECK_OK(scheduler_flush_tiers(t.g.s, RAD_TIER_STORAGE | RAD_TIER_HOST, &err));
    CHECK(t.g.s->drafts.recent.filled);
    CHECK(t.store.count == 0);
    tiers_stop(&t);
    storage_mem_fini(&t.store);
}

TEST_MAIN()
