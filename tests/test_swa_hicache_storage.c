/* test_swa_hicache_storage.c - both sides of a sliding-window cache in storage: what one process
 * put there is another's hit, byte for byte; each side is found as what it is; and a store that
 * fails, lies or hangs is a miss. */
#define _GNU_SOURCE /* nftw, in storage_rig.h */
#include "storage_rig.h"
#include "swa_rig.h"

static void start(srig *r, uint32_t ps)
{
    srig_options o = srig_stored(ps, RAD_WRITE_THROUGH);
    srig_start(r, &o, NULL);
}

/* What a prefetch of the first `tokens` brings to the host. */
static uint32_t fetch(srig *r, sreq *q, uint32_t tokens)
{
    rad_key key = sreq_key(q, tokens);
    uint32_t came = 0;
    rad_status status = rad_swa_hicache_prefetch_start(r->tiers, &key, 0, &q->prefetch);
    if (status) {
        CHECK(status == RAD_NONE && !q->prefetch);
        return 0;
    }
    while ((status = rad_swa_hicache_prefetch_progress(r->tiers, &q->prefetch, &key, &came)) ==
           RAD_AGAIN)
        CHECK_OK(rad_swa_hicache_pump(r->tiers, 0));
    CHECK(status == RAD_OK && !q->prefetch);
    return came;
}

/* Fetches and serves tokens that begin with `first`; lets all transfers end. */
static uint32_t serve(srig *r, rad_token first, uint32_t tokens)
{
    sreq q = {0};
    sreq_ask(&q, 0, tokens, first);
    uint32_t came = fetch(r, &q, tokens - 1), cached = srig_serve(r, &q);
    CHECK(q.loaded.storage_tokens <= came && q.loaded.storage_tokens <= q.loaded.tokens);
    CHECK(q.loaded.tokens < came || q.loaded.storage_tokens == came);
    srig_check_idle(r);
    return cached;
}

TEST(pages_of_both_sides_survive_a_restart_byte_for_byte)
{
    for (uint32_t policy = RAD_WRITE_THROUGH; policy <= RAD_WRITE_BACK; policy++)
        for (uint32_t i = 0; i < 8; i++) {
            srig r;
            srig_options o = srig_stored(i & 1 ? 16 : 1, policy);
            o.layout = i >> 1 & 1;
            o.dtype = i >> 2;
            o.tiers.demote_tokens = 1 << 20;
            srig_start(&r, &o, NULL);
            uint32_t whole = 120 / r.ps * r.ps;
            (void)serve(&r, 1000, 121);
            (void)serve(&r, 1000, 121); /* selective wants it used again */
            CHECK(r.store[0].count >= whole / r.ps && r.store[1].count >= 20 / r.ps);
            srig_restart(&r);
            CHECK(serve(&r, 1000, 121) == whole);
            rad_swa_hicache_stats s = srig_stats(&r);
            CHECK(s.fetched_tokens[0] == whole && s.loaded_tokens[0] == whole);
            CHECK(s.fetched_tokens[1] == (20 + r.ps - 1) / r.ps * r.ps); /* the last window */
            CHECK(s.bad_pages == 0 && s.storage_errors == 0 && s.revoked_prefetches == 0);
            CHECK(s.backed_up_tokens[0] + s.backed_up_tokens[1] < whole); /* it is there already */
            CHECK(serve(&r, 1000, 121) == whole);                         /* from the device */
            CHECK(srig_stats(&r).prefetches == 1);
            (void)srig_stop(&r, false);
        }
}

/* A directory takes records of both sizes, so that it can be both stores. */
TEST(one_directory_keeps_both_sides)
{
    for (uint32_t layout = 0; layout < 2; layout++) {
        srig r;
        char dir[64];
        srig_options o = srig_stored(16, RAD_WRITE_THROUGH);
        o.layout = layout;
        o.both = rig_open(rig_dir(dir), 0);
        srig_start(&r, &o, NULL);
        (void)serve(&r, 1000, 121);
        (void)serve(&r, 5000, 101);
        CHECK(rig_stats(o.both).pages == 2 * (112 / 16 + 96 / 16));
        srig_check_idle(&r);
        (void)srig_stop(&r, true);
        o.both.ops->close(o.both.self);
        o.both = rig_open(dir, 0);
        srig_start(&r, &o, NULL);
        CHECK(serve(&r, 1000, 121) == 112 && serve(&r, 5000, 101) == 96);
        rad_swa_hicache_stats s = srig_stats(&r);
        CHECK(s.fetched_tokens[0] == 112 + 96 && s.fetched_tokens[1] == 32 + 32);
        CHECK(s.bad_pages == 0 && s.storage_errors == 0);
        (void)srig_stop(&r, true);
        o.both.ops->close(o.both.self);
        rig_remove_dir(dir);
    }
}

/* The key of a page's record on a side. */
static rad_storage_key key_of(const srig *r, int side, const rad_token *tokens, uint32_t page)
{
    rad_page_hasher *hasher;
    rad_page_hash hash, prior;
    rad_storage_key key;
    CHECK_OK(rad_page_hasher_create(NULL, &hasher, NULL));
    for (uint32_t i = 0; i <= page; i++, prior = hash)
        CHECK_OK(rad_page_hash_tokens(hasher, i ? &prior : NULL, tokens + i * r->ps, r->ps, &hash));
    CHECK_OK(rad_storage_key_of(&r->tiers->side[side].store.fingerprint, &hash, &key));
    rad_page_hasher_destroy(hasher);
    return key;
}

static void lose(srig *r, int side, const rad_token *tokens, uint32_t page)
{
    rad_storage_key key = key_of(r, side, tokens, page);
    uint32_t had = r->store[side].count;
    CHECK_OK(r->opened[side].ops->remove(r->opened[side].self, &key, NULL));
    CHECK(r->store[side].count == had - 1);
}

/* A fetch ends where both sides allow it, as a match does. */
TEST(a_fetch_ends_where_its_window_is_whole)
{
    srig r;
    start(&r, 2);
    sreq q = {0};
    sreq_ask(&q, 0, 81, 1000);
    (void)srig_serve(&r, &q);
    srig_check_idle(&r);
    lose(&r, SIDE_SWA, q.tokens, 35); /* of the last window, [60, 80) */
    srig_restart(&r);
    CHECK(fetch(&r, &q, 80) == 70);
    srig_check_idle(&r);
    srig_restart(&r);
    lose(&r, SIDE_SWA, q.tokens, 27); /* and [50, 70) has lost one too */
    CHECK(fetch(&r, &q, 80) == 54);
    srig_restart(&r);
    lose(&r, SIDE_FULL, q.tokens, 20);
    CHECK(fetch(&r, &q, 80) == 40);
    srig_restart(&r);
    lose(&r, SIDE_FULL, q.tokens, 3); /* too little is left */
    CHECK(fetch(&r, &q, 80) == 0);
    CHECK(serve(&r, 1000, 81) == 0);
    srig_restart(&r);
    CHECK(serve(&r, 1000, 81) == 80); /* what was lost was stored again */
    CHECK_OK(r.opened[SIDE_SWA].ops->clear(r.opened[SIDE_SWA].self, NULL));
    srig_restart(&r);
    CHECK(serve(&r, 1000, 81) == 0);
    (void)srig_stop(&r, false);
}

/* What the host has of a prompt already is not fetched again, and the rest goes behind it. */
TEST(a_fetch_goes_on_from_what_the_host_has)
{
    srig r;
    start(&r, 1);
    (void)serve(&r, 1000, 121);
    srig_restart(&r);
    (void)serve(&r, 1000, 61);
    rad_swa_hicache_stats s = srig_stats(&r);
    CHECK(s.fetched_tokens[0] == 60 && s.fetched_tokens[1] == 20);
    rad_swa_evicted e; /* the device's window goes, so that it is the host's that counts */
    CHECK_OK(rad_swa_hicache_evict(r.tiers, 0, UINT32_MAX, &e));
    CHECK(serve(&r, 1000, 121) == 120);
    s = srig_stats(&r);
    /* The front of 60 and the token after it are on the host, [101, 120) is the window's rest. */
    CHECK(s.fetched_tokens[0] == 119 && s.fetched_tokens[1] == 40);
    (void)srig_stop(&r, false);
}

/* Stores come and go while the tiers live; what another store has not is stored there when a prompt
 * comes back. */
TEST(stores_are_attached_and_detached)
{
    srig r;
    start(&r, 4);
    (void)serve(&r, 1000, 81);
    uint32_t had[2] = {r.store[0].count, r.store[1].count};
    rad_storage was[2] = {{0}};
    rad_error err;
    sreq q = {0};
    sreq_ask(&q, 0, 81, 5000);
    rad_key key = sreq_key(&q, 80);
    CHECK(rad_swa_hicache_attach_storage(r.tiers, &r.opened[0], &r.opened[1], &err) == RAD_AGAIN);
    CHECK_OK(rad_swa_hicache_prefetch_start(r.tiers, &key, 0, &q.prefetch));
    CHECK(rad_swa_hicache_detach_storage(r.tiers, was, &err) == RAD_AGAIN && !was[0].ops);
    CHECK_OK(rad_swa_hicache_prefetch_revoke(r.tiers, &q.prefetch));
    CHECK_OK(rad_swa_hicache_detach_storage(r.tiers, was, &err));
    CHECK(was[0].self == r.opened[0].self && was[1].self == r.opened[1].self);
    CHECK(rad_swa_hicache_clear(r.tiers, RAD_TIER_STORAGE, &err) == RAD_E_UNSUPPORTED);
    (void)serve(&r, 5000, 81);
    CHECK(r.store[0].count == had[0]); /* nothing goes to a store that is gone */
    for (int s = 0; s < 2; s++)
        CHECK_OK(was[s].ops->clear(was[s].self, NULL));
    CHECK(rad_swa_hicache_attach_storage(r.tiers, &was[0], NULL, &err) == RAD_E_INVAL);
    CHECK_OK(rad_swa_hicache_attach_storage(r.tiers, &was[0], &was[1], &err));
    (void)serve(&r, 1000, 81);
    (void)serve(&r, 5000, 81);
    CHECK(r.store[0].count == 2 * had[0] && r.store[1].count == 2 * had[1]);
    srig_restart(&r);
    CHECK(serve(&r, 1000, 81) == 80 && serve(&r, 5000, 81) == 80);
    (void)srig_stop(&r, false);
}

/* A host page that is used anew has nothing in storage yet, whatever it held before. */
TEST(pages_used_again_are_stored_again)
{
    srig r;
    start(&r, 1);
    for (uint32_t i = 1; i <= 3; i++) {
        (void)serve(&r, (rad_token)(1000 * i), 81);
        CHECK(r.store[0].count == 81 * i && r.store[1].count == 81 * i);
        CHECK_OK(rad_swa_hicache_clear(r.tiers, RAD_TIER_HOST | RAD_TIER_DEVICE, NULL));
    }
    (void)srig_stop(&r, false);
}

TEST(another_model_another_salt_and_the_other_side_find_nothing)
{
    srig r;
    start(&r, 4);
    sreq q = {.cache_salt = "mine"};
    sreq_ask(&q, 0, 81, 1000);
    (void)srig_serve(&r, &q);
    srig_check_idle(&r);
    srig_restart(&r);
    q.cache_salt = "yours";
    CHECK(fetch(&r, &q, 80) == 0);
    q.cache_salt = NULL;
    CHECK(fetch(&r, &q, 80) == 0);
    q.cache_salt = "mine";
    r.tiers->side[SIDE_FULL].store.fingerprint.bytes[5] ^= 1; /* as another model's */
    CHECK(fetch(&r, &q, 80) == 0);
    r.tiers->side[SIDE_FULL].store.fingerprint.bytes[5] ^= 1;
    CHECK(fetch(&r, &q, 80) == 80);
    rad_storage_fingerprint *prints[2] = {&r.tiers->side[0].store.fingerprint,
                                          &r.tiers->side[1].store.fingerprint};
    CHECK(memcmp(prints[0], prints[1], sizeof *prints[0]) != 0);
    for (int s = 0; s < 2; s++) { /* nor is it what a plain pool of the same shape is */
        const rad_token_to_kv_pool_params *p = rad_kv_pool_params(r.pool[s]);
        rad_storage_identity as = {.struct_size = sizeof as,
                                   .model = "runner_fake",
                                   .dtype = p->dtype,
                                   .page_size = p->page_size,
                                   .num_layers = p->num_layers,
                                   .start_layer = p->start_layer,
                                   .num_kv_heads = p->num_kv_heads,
                                   .head_dim = p->head_dim,
                                   .v_head_dim = p->v_head_dim};
        rad_storage_fingerprint plain_print;
        CHECK_OK(rad_storage_fingerprint_of(&as, &plain_print, NULL));
        CHECK(memcmp(prints[s], &plain_print, sizeof plain_print) != 0);
    }
    (void)srig_stop(&r, false);
}

/* ---- faults ---- */

typedef struct nth {
    uint64_t at, calls;
    storage_fate fate;
} nth;

static storage_fate go_wrong(void *user, storage_call call, uint64_t number)
{
    nth *n = user;
    (void)call;
    (void)number;
    return n->calls++ == n->at ? n->fate : STORAGE_WELL;
}

/* Each record of each call goes wrong once: a miss, and never a wrong byte. */
TEST(every_call_of_a_store_going_wrong_once_is_a_miss)
{
    for (int fate = STORAGE_MISSING; fate <= STORAGE_CUT; fate++)
        for (uint64_t at = 0, calls = 1; at < calls; at++) {
            srig r;
            srig_options o = srig_stored(16, RAD_WRITE_THROUGH);
            o.layout = (uint32_t)(at & 1);
            srig_start(&r, &o, NULL);
            nth n = {.at = at, .fate = (storage_fate)fate};
            for (int s = 0; s < 2; s++) {
                r.store[s].script = go_wrong;
                r.store[s].user = &n;
            }
            (void)serve(&r, 1000, 97);
            srig_restart(&r);
            uint32_t cached = serve(&r, 1000, 97);
            CHECK(cached == 96 || cached <= 80);
            calls = n.calls;
            for (int s = 0; s < 2; s++)
                r.store[s].script = NULL;
            srig_restart(&r);
            (void)serve(&r, 1000, 97); /* what was torn is found out and written anew */
            srig_restart(&r);
            CHECK(serve(&r, 1000, 97) == 96);
            (void)srig_stop(&r, false);
        }
}

static void count_words(void *user, rad_log_level level, const char *text)
{
    (void)level;
    *(int *)user += strstr(text, "it fails, as was asked for") != NULL;
}

/* A store that is down fails with every page, and says so once in half a minute. */
TEST(what_a_store_says_when_it_fails_is_logged_once)
{
    srig r;
    start(&r, 16);
    int words = 0;
    nth n = {.fate = STORAGE_FAILS};
    r.tiers->env.log = count_words;
    r.tiers->env.user = &words;
    r.store[0].script = go_wrong;
    r.store[0].user = &n;
    for (int i = 0; i < 3; i++) {
        n.at = n.calls;
        (void)serve(&r, 1000 + 1000 * i, 97);
    }
    CHECK(words == 1 && srig_stats(&r).storage_errors == 3);
    (void)srig_stop(&r, false);
}

TEST(a_bit_that_flips_in_a_store_is_a_miss)
{
    for (int side = 0; side < 2; side++) {
        srig r;
        start(&r, 16);
        (void)serve(&r, 1000, 97);
        for (uint32_t i = 0; i < r.store[side].count; i++)
            storage_mem_spoil(&r.store[side], i, 100 + i);
        srig_restart(&r);
        CHECK(serve(&r, 1000, 97) == 0);
        CHECK(srig_stats(&r).bad_pages == 1 && r.store[side].stats.quarantined == 1);
        (void)srig_stop(&r, false);
    }
}

TEST(a_store_that_does_not_answer_is_not_waited_for)
{
    srig r;
    srig_options o = srig_stored(4, RAD_WRITE_THROUGH);
    o.tiers.timeout_max_ns = 1000000;
    srig_start(&r, &o, NULL);
    sreq q = {0};
    sreq_ask(&q, 0, 81, 1000);
    for (int how = 0; how < 2; how++) { /* too long at all, and longer than it is worth */
        rad_key key = sreq_key(&q, 80);
        uint32_t came = 1;
        rad_status status;
        r.tiers->params.timeout_max_ns = how ? 60000000000 : 1000000;
        CHECK_OK(rad_swa_hicache_prefetch_start(r.tiers, &key, how ? 10000 : 0, &q.prefetch));
        while ((status = rad_swa_hicache_prefetch_progress(r.tiers, &q.prefetch, &key, &came)) ==
               RAD_AGAIN) {
        }
        CHECK(status == RAD_OK && came == 0);
        srig_check_idle(&r);
    }
    CHECK(srig_stats(&r).revoked_prefetches == 2);
    (void)srig_stop(&r, false);
}

TEST(a_fetch_can_be_left_at_any_point)
{
    for (int point = 0; point < 5; point++) {
        srig r;
        start(&r, 4);
        (void)serve(&r, 1000, 81);
        srig_restart(&r);
        sreq q = {0};
        sreq_ask(&q, 0, 81, 1000);
        rad_key key = sreq_key(&q, 80);
        CHECK_OK(rad_swa_hicache_prefetch_start(r.tiers, &key, 0, &q.prefetch));
        for (int i = 0; i < point / 2; i++) {
            CHECK_OK(rad_swa_hicache_pump(r.tiers, 0)); /* it asked, then it got */
            CHECK_OK(rad_swa_hicache_poll(r.tiers));
        }
        rad_prefetch stale = q.prefetch;
        srig_check(&r, NULL, 0);
        if (point % 2)
            CHECK_OK(rad_swa_hicache_reset(r.tiers));
        else
            CHECK_OK(rad_swa_hicache_prefetch_revoke(r.tiers, &q.prefetch));
        srig_check_idle(&r);
        CHECK(rad_swa_hicache_prefetch_progress(r.tiers, &stale, &key, NULL) == RAD_E_STATE);
        CHECK(srig_stats(&r).host_cached_tokens[0] == 0);
        (void)srig_stop(&r, false);
    }
}

TEST(prefetches_keep_their_budget_and_another_key_takes_nothing)
{
    srig r;
    srig_options o = srig_stored(4, RAD_WRITE_THROUGH);
    o.tiers.prefetch_tokens = 100;
    srig_start(&r, &o, NULL);
    (void)serve(&r, 1000, 81);
    srig_restart(&r);
    sreq a = {0}, b = {0};
    sreq_ask(&a, 0, 81, 1000);
    sreq_ask(&b, 0, 81, 5000);
    rad_key key = sreq_key(&a, 80), other = sreq_key(&b, 80);
    rad_prefetch second;
    CHECK_OK(rad_swa_hicache_prefetch_start(r.tiers, &key, 0, &a.prefetch));
    CHECK(srig_stats(&r).prefetch_reserved_tokens == 80);
    b.num_tokens = 81;
    rad_status status = rad_swa_hicache_prefetch_start(r.tiers, &other, 0, &second);
    CHECK(status == RAD_OK && srig_stats(&r).prefetch_reserved_tokens == 100);
    CHECK_OK(rad_swa_hicache_prefetch_revoke(r.tiers, &second));
    rad_status full = RAD_OK;
    rad_prefetch third;
    CHECK_OK(rad_swa_hicache_prefetch_start(r.tiers, &other, 0, &second));
    full = rad_swa_hicache_prefetch_start(r.tiers, &other, 0, &third);
    CHECK(full == RAD_FULL && !third);
    CHECK_OK(rad_swa_hicache_prefetch_revoke(r.tiers, &second));
    for (int i = 0; i < 4; i++) {
        (void)rad_swa_hicache_pump(r.tiers, 0);
        CHECK_OK(rad_swa_hicache_poll(r.tiers));
    }
    uint32_t came = 1;
    CHECK(rad_swa_hicache_prefetch_progress(r.tiers, &a.prefetch, &other, &came) == RAD_E_STATE);
    CHECK(came == 0 && !a.prefetch);
    srig_check_idle(&r);
    CHECK(srig_stats(&r).host_cached_tokens[0] == 0);
    rad_error err;
    CHECK_OK(rad_swa_hicache_clear(r.tiers, RAD_TIER_STORAGE, &err));
    CHECK(r.store[0].count == 0 && r.store[1].count == 0);
    CHECK(rad_swa_hicache_clear(r.tiers, 8, &err) == RAD_E_INVAL);
    (void)srig_stop(&r, false);
}

TEST_MAIN()
