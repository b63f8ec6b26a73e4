/* test_hicache_storage.c - the third tier: what outlives the process, what a prefetch brings,
 * and what a store that fails, lies or sleeps costs: a miss. */
#include "hicache_rig.h"

static hrig_options stored(uint32_t page_size)
{
    return hrig_stored(page_size, 512 / page_size, 1024 / page_size);
}

/* Arrives, waits for its prefetch as long as the policy says, and is served. */
static uint32_t serve(hrig *r, hreq *q)
{
    rad_key key = hreq_key(q, q->num_tokens - 1);
    q->prefetched = 0;
    rad_status status = rad_hicache_prefetch_start(r->cache, &key, 0, &q->prefetch);
    CHECK(status == RAD_OK || status == RAD_NONE || status == RAD_FULL);
    CHECK((status == RAD_OK) == (q->prefetch != 0));
    for (int i = 0; i < 1000; i++) {
        status = rad_hicache_prefetch_progress(r->cache, &q->prefetch, &key, &q->prefetched);
        if (status != RAD_AGAIN) break;
        if (r->params.deterministic)
            (void)hi_pump(r->cache, 0);
        else
            (void)nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    CHECK_OK(status);
    CHECK(q->prefetch == 0);
    return hrig_serve(r, q);
}

static uint32_t serve_new(hrig *r, uint32_t tokens, rad_token first, hreq *q)
{
    *q = (hreq){0};
    hreq_ask(q, 0, tokens, first);
    return serve(r, q);
}

static void start(hrig *r, uint32_t page_size)
{
    hrig_options o = stored(page_size);
    hrig_start(r, &o, NULL);
}

TEST(what_was_served_before_a_restart_is_a_hit_after_it)
{
    for (uint32_t ps = 1; ps <= 16; ps += 15)
        for (uint32_t layout = 0; layout < 2; layout++)
            for (int mla = 0; mla < 2; mla++)
                for (int threads = 0; threads < 2; threads++) {
                    hrig r;
                    hreq q;
                    hrig_options o = stored(ps);
                    o.layout = layout;
                    o.mla = mla;
                    o.dtype = mla ? RAD_I8 : RAD_BF16;
                    o.no_threads = !threads;
                    hrig_start(&r, &o, NULL);
                    CHECK(serve_new(&r, 200, 1000, &q) == 0);
                    hrig_settle(&r);
                    CHECK(hrig_stats(&r).backed_up_tokens == 200 / ps * ps);
                    CHECK(r.store.count == 200 / ps);
                    hrig_restart(&r);
                    CHECK(serve_new(&r, 200, 1000, &q) == 199 / ps * ps);
                    CHECK(q.prefetched == 199 / ps * ps && q.loaded.storage_tokens == q.prefetched);
                    CHECK_OK(rad_cache_evict(r.cache, 1000, NULL, NULL));
                    CHECK(serve_new(&r, 200, 1000, &q) == 199 / ps * ps);
                    CHECK(q.prefetched == 0 && q.loaded.storage_tokens == 0); /* the host's now */
                    hrig_settle(&r);
                    CHECK(hrig_stats(&r).backed_up_tokens <= ps); /* it is there already */
                    hrig_end(&r);
                }
}

TEST(another_model_or_name_finds_nothing)
{
    hrig r;
    hreq q = {.cache_salt = "tenant a"};
    start(&r, 16);
    hreq_ask(&q, 0, 200, 1000);
    CHECK(serve(&r, &q) == 0);
    hrig_restart(&r);
    const char *others[] = {NULL, "", "tenant b"};
    for (int i = 0; i < 3; i++) {
        hreq other = {.cache_salt = others[i]};
        hreq_ask(&other, 0, 200, 1000);
        CHECK(serve(&r, &other) == 0 && other.prefetched == 0);
    }
    hreq key_of_same_name = {.extra_key = "tenant a"};
    hreq_ask(&key_of_same_name, 0, 200, 1000);
    CHECK(serve(&r, &key_of_same_name) == 0);
    r.o.model = "another model";
    hrig_restart(&r);
    hreq_ask(&q, 0, 200, 1000);
    CHECK(serve(&r, &q) == 0 && q.prefetched == 0);
    r.o.model = NULL;
    hrig_restart(&r);
    CHECK(serve(&r, &q) == 192 && q.prefetched == 192);
    hrig_end(&r);
}

TEST(a_prefetch_brings_what_host_and_device_lack)
{
    hrig r;
    hreq q;
    start(&r, 16);
    serve_new(&r, 400, 1000, &q);
    hrig_restart(&r);
    serve_new(&r, 100, 1000, &q); /* the first 96 */
    CHECK(q.prefetched == 96);
    CHECK(serve_new(&r, 400, 1000, &q) == 384);
    CHECK(q.prefetched == 384 - 96 && q.match.prefix_tokens == 96);
    hrig_settle(&r);
    CHECK(hrig_stats(&r).fetched_tokens == 384);

    /* Too little to bother, and nothing at all. */
    rad_prefetch ticket;
    hreq_ask(&q, 384, 410, 9000);
    rad_key key = hreq_key(&q, 410);
    CHECK(rad_hicache_prefetch_start(r.cache, &key, 0, &ticket) == RAD_NONE && !ticket);
    CHECK(serve_new(&r, 100, 70000, &q) == 0 && q.prefetched == 0);
    CHECK(hrig_stats(&r).revoked_prefetches == 1);
    hrig_end(&r);
}

typedef struct mishap {
    storage_call call;
    storage_fate fate;
    uint64_t at, seen;
} mishap;

static storage_fate happens(void *user, storage_call call, uint64_t number)
{
    mishap *m = user;
    (void)number;
    return call == m->call && m->seen++ == m->at ? m->fate : STORAGE_WELL;
}

TEST(whatever_the_store_does_once_a_prefix_before_it_is_what_there_is)
{
    for (storage_call call = STORAGE_EXISTS; call <= STORAGE_SET; call++)
        for (storage_fate fate = STORAGE_MISSING; fate <= STORAGE_CUT; fate++)
            for (uint64_t at = 0; at < 12; at++) {
                hrig r;
                hreq q;
                hrig_options o = stored(16);
                o.layout = at % 2;
                hrig_start(&r, &o, NULL);
                mishap m = {.call = call, .fate = fate, .at = at};
                r.store.script = happens;
                r.store.user = &m;
                serve_new(&r, 200, 1000, &q);
                hrig_settle(&r);
                m.seen = call == STORAGE_SET ? 1000 : 0;
                hrig_restart(&r);
                r.store.script = happens;
                r.store.user = &m;
                bool damaged = fate == STORAGE_TORN || fate == STORAGE_CUT;
                uint32_t cached = serve_new(&r, 201, 1000, &q);
                CHECK(cached % 16 == 0 && cached <= 192);
                bool matters = call != STORAGE_EXISTS || !damaged; /* else nothing to damage */
                bool seen_short = call != STORAGE_GET && !damaged; /* and so not fetched */
                if (!matters)
                    CHECK(cached == 192);
                else if (call == STORAGE_EXISTS && fate == STORAGE_FAILS)
                    CHECK(cached == 0);
                else
                    CHECK(cached == (at * 16 < 32 && seen_short ? 0 : at * 16));
                if (damaged && matters) CHECK(hrig_stats(&r).bad_pages == 1);
                hrig_settle(&r); /* and what was computed is stored again */
                hrig_restart(&r);
                CHECK(serve_new(&r, 201, 1000, &q) == 192);
                hrig_end(&r);
            }
}

TEST(one_flipped_bit_anywhere_is_never_served)
{
    hrig r;
    hreq q;
    start(&r, 16);
    serve_new(&r, 200, 1000, &q);
    uint64_t rng = 3;
    for (int round = 0; round < 30; round++) {
        hrig_restart(&r);
        uint32_t page = (uint32_t)(test_random(&rng) % 12);
        size_t payload = r.store.record_bytes - RAD_STORAGE_HEADER_BYTES;
        storage_mem_spoil(&r.store, page, test_random(&rng) % payload);
        CHECK(serve_new(&r, 201, 1000, &q) < 192);
        hrig_settle(&r);
        CHECK(hrig_stats(&r).bad_pages == 1);
    }
    hrig_end(&r);
}

/* ---- time ---- */

static uint64_t now_of_test;

static uint64_t test_now(void *user)
{
    (void)user;
    return now_of_test;
}

/* The store answers `calls` calls, each after `each_ns`, and then nothing more: after what time
 * is the request admitted, and with how many tokens? Five pages come with a call. */
static uint64_t admitted_after(rad_prefetch_policy policy, uint64_t recompute_ns, int calls,
                               uint64_t each_ns, uint32_t *came)
{
    enum { STEP = 1000 };
    hrig r;
    hreq q;
    start(&r, 16);
    serve_new(&r, 401, 1000, &q);
    r.o.tiers.prefetch_policy = policy;
    hrig_restart(&r);
    hiradix_cache *c = hiradix_of(r.cache);
    c->base.env.now_ns = test_now;
    now_of_test = 0;
    rad_key key = hreq_key(&q, 400);
    CHECK_OK(rad_hicache_prefetch_start(r.cache, &key, recompute_ns, &q.prefetch));
    hi_op *op = (hi_op *)tickets_find(&c->out, q.prefetch);
    uint64_t next = each_ns;
    *came = 0;
    while (rad_hicache_prefetch_progress(r.cache, &q.prefetch, &key, NULL) == RAD_AGAIN) {
        now_of_test += STEP;
        CHECK(now_of_test < 1000000000);
        for (; calls > 0 && now_of_test >= next; calls--, next += each_ns) {
            if (!op->k.gets) {
                CHECK_OK(hi_pump(r.cache, 0)); /* it says what there is */
                CHECK_OK(rad_cache_poll(r.cache));
                continue;
            }
            *came += 80;
            atomic_store(&op->fetched, *came / 16);                           /* as a worker does */
            if (*came == 400) controller_cancel(c->out.controller, &op->k.t); /* it has ended */
        }
    }
    uint64_t after = now_of_test;
    c->base.env.now_ns = rad_env_or_default(NULL).now_ns;
    CHECK_OK(rad_cache_reset(r.cache)); /* what was hung has no bytes */
    hrig_stop(&r, false);
    return after;
}

TEST(a_slow_or_dead_store_costs_an_eighth_at_most)
{
    uint32_t came = 0;
    uint64_t each = 10000, all = 400 * each; /* what computing the prompt takes */
    for (rad_prefetch_policy p = RAD_PREFETCH_WAIT_COMPLETE; p <= RAD_PREFETCH_TIMEOUT; p++) {
        CHECK(admitted_after(p, each, 0, 0, &came) <= all / 8 + 2000 && came == 0); /* dead */
        for (int calls = 1; calls < 6; calls++)
            for (uint64_t ns = 1000; ns < all; ns = ns * 3) {
                uint64_t after = admitted_after(p, each, calls, ns, &came);
                CHECKF(after + (400 - came) * each <= all + all / 8 + 2000,
                       "after %llu ns with %u tokens\n", (unsigned long long)after, came);
            }
        CHECK(admitted_after(p, each, 6, 1000, &came) <= 7000 && came == 400); /* quick */
    }
    CHECK(admitted_after(RAD_PREFETCH_BEST_EFFORT, each, 0, 0, &came) == 0);
}

/* ---- words ---- */

static uint32_t num_told;
static char told[512];

static void keep_words(void *user, rad_log_level level, const char *message)
{
    (void)user;
    num_told += level == RAD_LOG_WARN;
    snprintf(told, sizeof told, "%s", message);
}

static storage_fate always_fails(void *user, storage_call call, uint64_t number)
{
    (void)user;
    (void)call;
    (void)number;
    return STORAGE_FAILS;
}

/* They went nowhere once: a full disk was a number in the metrics, and nothing in the log. */
TEST(a_store_that_fails_is_told_in_words_but_not_with_every_page)
{
    hrig r;
    hreq q;
    hrig_options o = stored(16);
    num_told = 0;
    hrig_start(&r, &o, NULL);
    hiradix_cache *c = hiradix_of(r.cache);
    c->base.env.log = keep_words;
    c->base.env.now_ns = test_now;
    now_of_test = 0;
    serve_new(&r, 200, 1000, &q);
    hrig_settle(&r);
    CHECK(num_told == 0);
    r.store.script = always_fails;
    for (int i = 1; i < 5; i++) {
        serve_new(&r, 200, 1000 * (i + 1), &q);
        hrig_settle(&r);
        CHECK(hrig_stats(&r).storage_errors >= (uint64_t)i && num_told == 1);
    }
    CHECKF(strstr(told, "hicache: the store fails") && strstr(told, "storage_mem"), "%s", told);
    now_of_test += 31000000000;
    serve_new(&r, 200, 9000, &q);
    hrig_settle(&r);
    CHECK(num_told == 2);
    r.store.script = NULL;
    r.store.capacity = r.store.count; /* no room, and nothing can go */
    now_of_test += 31000000000;
    serve_new(&r, 200, 10000, &q);
    hrig_settle(&r);
    CHECKF(num_told == 3 && strstr(told, "full"), "%s", told);
    c->base.env.now_ns = rad_env_or_default(NULL).now_ns;
    hrig_end(&r);
}

TEST(a_request_may_go_at_any_moment_of_its_prefetch)
{
    for (int pumps = 0; pumps < 4; pumps++)
        for (int how = 0; how < 2; how++) {
            hrig r;
            hreq q;
            start(&r, 16);
            serve_new(&r, 200, 1000, &q);
            if (how) r.o.tiers.prefetch_policy = RAD_PREFETCH_BEST_EFFORT;
            hrig_restart(&r);
            rad_key key = hreq_key(&q, 199);
            CHECK_OK(rad_hicache_prefetch_start(r.cache, &key, 0, &q.prefetch));
            for (int i = 0; i < pumps; i++) {
                (void)hi_pump(r.cache, 0);
                if (i % 2 == 0) CHECK_OK(rad_cache_poll(r.cache));
            }
            rad_prefetch copy = q.prefetch;
            if (how) {
                CHECK_OK(rad_hicache_prefetch_progress(r.cache, &q.prefetch, &key, &q.prefetched));
                CHECK(q.prefetched == (pumps > 1 ? 192 : 0));
            } else {
                CHECK_OK(rad_hicache_prefetch_revoke(r.cache, &q.prefetch));
            }
            CHECK(q.prefetch == 0);
            CHECK(rad_hicache_prefetch_revoke(r.cache, &copy) == RAD_E_STATE);
            CHECK_OK(rad_hicache_prefetch_revoke(r.cache, &copy)); /* 0: there is none */
            hrig_end(&r);
        }
}

TEST(another_key_cannot_take_what_was_fetched)
{
    hrig r;
    hreq q, other;
    start(&r, 16);
    serve_new(&r, 200, 1000, &q);
    hrig_restart(&r);
    other = q;
    other.tokens[0]++;
    rad_key key = hreq_key(&q, 199), wrong = hreq_key(&other, 199);
    CHECK_OK(rad_hicache_prefetch_start(r.cache, &key, 0, &q.prefetch));
    CHECK_OK(hi_pump(r.cache, 0));
    CHECK_OK(rad_cache_poll(r.cache));
    CHECK_OK(hi_pump(r.cache, 0));
    CHECK(rad_hicache_prefetch_progress(r.cache, &q.prefetch, &wrong, NULL) == RAD_E_STATE);
    hrig_end(&r);
}

TEST(prefetches_keep_to_their_budget)
{
    hrig r;
    hreq q[3];
    hrig_options o = stored(16);
    o.tiers.prefetch_tokens = 288;
    hrig_start(&r, &o, NULL);
    for (int i = 0; i < 3; i++) {
        q[i] = (hreq){0};
        hreq_ask(&q[i], 0, 200, 1000 * (i + 1));
        serve(&r, &q[i]);
        hrig_settle(&r);
    }
    hrig_restart(&r);
    rad_key keys[3];
    for (int i = 0; i < 3; i++) {
        keys[i] = hreq_key(&q[i], 199);
        rad_status status = rad_hicache_prefetch_start(r.cache, &keys[i], 0, &q[i].prefetch);
        CHECK(status == (i < 2 ? RAD_OK : RAD_FULL));
    }
    CHECK(hrig_stats(&r).prefetch_reserved_tokens == 288);
    CHECK_OK(rad_hicache_prefetch_revoke(r.cache, &q[0].prefetch));
    CHECK(hrig_stats(&r).prefetch_reserved_tokens == 96);
    CHECK_OK(rad_hicache_prefetch_start(r.cache, &keys[2], 0, &q[2].prefetch));
    CHECK_OK(rad_hicache_prefetch_revoke(r.cache, &q[1].prefetch));
    CHECK_OK(rad_hicache_prefetch_revoke(r.cache, &q[2].prefetch));
    hrig_end(&r);
}

TEST(a_store_can_come_and_go_while_nothing_runs)
{
    hrig r;
    hreq q;
    rad_error err = {0};
    rad_storage was;
    start(&r, 16);
    CHECK(rad_hicache_attach_storage(r.cache, &r.opened, &err) == RAD_AGAIN);
    CHECK_OK(rad_hicache_detach_storage(r.cache, &was, &err));
    CHECK(was.self == &r.store && !hrig_stats(&r).storage_attached);
    serve_new(&r, 200, 1000, &q);
    hrig_settle(&r);
    CHECK(r.store.count == 0);
    CHECK_OK(rad_hicache_attach_storage(r.cache, &r.opened, &err));
    serve_new(&r, 200, 1000, &q); /* comes by again: now it is stored */
    CHECK(rad_hicache_detach_storage(r.cache, &was, &err) == RAD_AGAIN);
    hrig_settle(&r);
    CHECK(r.store.count == 12);
    CHECK_OK(rad_hicache_clear(r.cache, RAD_TIER_HOST | RAD_TIER_STORAGE, &err));
    CHECK(r.store.count == 0 && hrig_stats(&r).host_cached_tokens == 0);
    CHECK(serve_new(&r, 200, 1000, &q) == 192); /* the device's */
    hrig_check_idle(&r);
    CHECK_OK(rad_hicache_clear(r.cache, RAD_TIER_DEVICE, &err));
    CHECK(serve_new(&r, 200, 1000, &q) == 192); /* the host's again */
    hrig_end(&r);
    CHECK(r.store.closed == 0); /* whoever opened it closes it */
}

/* A backend compiled before there was anything behind batch_set: what would stand there is not
 * its own. */
TEST(a_short_table_of_calls_is_not_read_beyond_its_end)
{
    hrig r;
    hreq q;
    rad_error err = {0};
    rad_storage was;
    start(&r, 16);
    CHECK_OK(rad_hicache_detach_storage(r.cache, &was, &err));
    rad_storage_ops old = *was.ops; /* calls that must not be made are there all the same */
    old.struct_size = offsetof(rad_storage_ops, remove);
    rad_storage opened = {.ops = &old, .self = was.self};
    CHECK_OK(rad_hicache_attach_storage(r.cache, &opened, &err));
    serve_new(&r, 200, 1000, &q);
    hrig_settle(&r);
    CHECK(r.store.count == 12);
    CHECK(rad_hicache_clear(r.cache, RAD_TIER_STORAGE, &err) == RAD_E_UNSUPPORTED);
    CHECK(r.store.count == 12);
    CHECK_OK(rad_hicache_detach_storage(r.cache, NULL, &err));
    hrig_stop(&r, false);
}

/* Somebody else works on the store: it is neither read nor written, and what should have gone
 * there goes when it next comes by. */
TEST(a_held_store_is_left_alone)
{
    hrig r;
    hreq q;
    rad_error err = {0};
    rad_storage held;
    start(&r, 16);
    serve_new(&r, 200, 1000, &q);
    CHECK_OK(hi_pump(r.cache, 0)); /* it is on the host, and on its way to the store */
    CHECK(rad_hicache_hold_storage(r.cache, &held, &err) == RAD_AGAIN);
    hrig_settle(&r);
    CHECK(r.store.count == 12);
    CHECK_OK(rad_hicache_hold_storage(r.cache, &held, &err));
    CHECK(held.self == &r.store);
    CHECK(rad_hicache_clear(r.cache, RAD_TIER_STORAGE, &err) == RAD_AGAIN);
    uint64_t calls = r.store.calls;
    serve_new(&r, 200, 3000, &q);
    hreq other = {0};
    hreq_ask(&other, 0, 200, 5000);
    rad_key key = hreq_key(&other, 199);
    CHECK(rad_hicache_prefetch_start(r.cache, &key, 0, &other.prefetch) == RAD_NONE);
    hrig_settle(&r);
    CHECK(r.store.count == 12 && r.store.calls == calls);
    CHECK_OK(held.ops->clear(held.self, &err));
    CHECK_OK(rad_hicache_release_storage(r.cache, 1));
    serve_new(&r, 200, 1000, &q); /* was there, was cleared */
    serve_new(&r, 200, 3000, &q); /* was dropped */
    hrig_settle(&r);
    CHECK(r.store.count == 24);
    hrig_check_idle(&r);
    CHECK(rad_hicache_identify(r.cache, NULL, &err) == RAD_AGAIN);
    CHECK_OK(rad_hicache_hold_storage(r.cache, NULL, &err));
    CHECK_OK(rad_hicache_detach_storage(r.cache, NULL, &err)); /* ends the hold */
    CHECK(rad_hicache_hold_storage(r.cache, NULL, &err) == RAD_NONE);
    CHECK(rad_hicache_identify(r.cache, NULL, &err) == RAD_E_INVAL);
    rad_storage_identity another = {.struct_size = sizeof another, .model = "another"};
    CHECK_OK(rad_hicache_identify(r.cache, &another, &err));
    CHECK_OK(rad_hicache_attach_storage(r.cache, &r.opened, &err));
    serve_new(&r, 200, 1000, &q); /* under other keys */
    hrig_settle(&r);
    CHECK(r.store.count == 36);
    hrig_end(&r);
}

TEST(bigram_keys_find_theirs)
{
    hrig r;
    hreq q;
    hrig_options o = stored(16);
    o.eagle = true;
    hrig_start(&r, &o, NULL);
    rad_page pages[12];
    rad_slot slots[192];
    q = (hreq){0};
    hreq_ask(&q, 0, 193, 1000);
    CHECK_OK(rad_kv_alloc(r.kv, pages, 12));
    for (int i = 0; i < 192; i++)
        slots[i] = pages[i / 16] * 16 + i % 16;
    rad_key key = hreq_key(&q, 193);
    CHECK_OK(rad_cache_insert(r.cache, &key, slots, NULL, NULL, NULL));
    hrig_settle(&r);
    CHECK(hrig_host_size(&r) == 192 && r.store.count == 12);
    CHECK_OK(rad_hicache_clear(r.cache, RAD_TIER_DEVICE | RAD_TIER_HOST, NULL));
    CHECK_OK(rad_hicache_prefetch_start(r.cache, &key, 0, &q.prefetch));
    while (rad_hicache_prefetch_progress(r.cache, &q.prefetch, &key, &q.prefetched) == RAD_AGAIN)
        CHECK_OK(hi_pump(r.cache, 0));
    CHECK(q.prefetched == 192 && hrig_host_size(&r) == 192);
    q.tokens[0]++; /* the first half of the first pair */
    CHECK(hrig_on_host(&r, &key, NULL) == 0);
    hrig_stop(&r, false);
}

TEST_MAIN()
