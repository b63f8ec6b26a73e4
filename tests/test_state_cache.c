/* test_state_cache.c - snapshots of recurrent states in the tree: where a match ends, in which
 * order they go, what locks, requests and sessions do with them.
 *
 * That each one stays with the prefix that it was put behind, whatever the tree does, is
 * test_radix_model.c. */
#include "cache_failing.h"
#include "radix_rig.h"
#include "req_rig.h"

#include "base/base.h"

enum { STATES = 8 };

static rad_state_pool *make_pool(uint32_t states)
{
    rad_state_pool_params p = {.struct_size = sizeof p, .state_bytes = 64, .num_states = states};
    rad_state_pool *pool = NULL;
    CHECK_OK(rad_state_pool_create(NULL, &p, &pool, NULL));
    return pool;
}

static rad_cache *make_cache(rad_state_pool *pool, rad_cache_params params)
{
    rad_cache *cache = NULL;
    params.struct_size = sizeof params;
    params.state_pool = pool;
    CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
    return cache;
}

static rad_state take(rad_state_pool *pool)
{
    rad_state state;
    CHECK_OK(rad_state_alloc(pool, &state));
    return state;
}

/* Inserts the key, whose slots are its own, and puts a snapshot behind its first `depth` tokens; 0:
 * none. Returns it, or 0 where there was one. */
static rad_state add(rad_cache *cache, rad_state_pool *pool, const rad_key *key, uint32_t depth)
{
    static rad_slot next = 1000;
    rad_slot slots[64];
    rad_inserted in;
    for (uint32_t i = 0; i < key->num_tokens; i++)
        slots[i] = next++;
    CHECK_OK(rad_cache_insert(cache, key, slots, NULL, &in, NULL));
    if (!depth) return 0;
    rad_state state = take(pool);
    CHECK_OK(rad_cache_put_state(cache, in.node, depth, state, NULL));
    check(cache);
    return rad_state_is_taken(pool, state) ? state : 0;
}

static void finis(rad_cache *cache, rad_state_pool *pool)
{
    CHECK(rad_cache_state_protected_size(cache) == 0);
    CHECK(rad_cache_state_evictable_size(cache) + rad_state_available(pool) ==
          rad_state_pool_num_states(pool));
    CHECK_OK(rad_cache_reset(cache));
    CHECK(rad_state_available(pool) == rad_state_pool_num_states(pool));
    rad_cache_destroy(cache);
    rad_state_pool_destroy(pool);
}

TEST(a_match_ends_at_a_snapshot)
{
    rad_state_pool *pool = make_pool(STATES);
    rad_cache *cache = make_cache(pool, (rad_cache_params){.page_size = 1});
    rad_slot slots[16];
    CHECK(add(cache, pool, KEY(1, 2, 3, 4, 5, 6), 0) == 0);
    rad_match m = match(cache, KEY(1, 2, 3, 4, 5, 6), slots);
    CHECK(m.prefix_tokens == 0 && m.state == 0 && m.seen_tokens == 6 && !m.last_node.index);
    rad_state four = add(cache, pool, KEY(1, 2, 3, 4, 5, 6), 4);
    CHECK(four && add(cache, pool, KEY(1, 2, 3, 4, 5, 6), 4) == 0);
    m = match(cache, KEY(1, 2, 3, 4, 5, 6), slots);
    CHECK(m.prefix_tokens == 4 && m.state == four && m.seen_tokens == 6);
    rad_node_info info = {.struct_size = sizeof info};
    CHECK_OK(rad_cache_get_node_info(cache, m.last_node, &info, NULL));
    CHECK(info.state == four && info.depth_tokens == 4 && !info.state_lock_ref && !info.host_state);
    /* Who parts from it behind the snapshot sees how far it shared more. */
    m = match(cache, KEY(1, 2, 3, 4, 5, 9, 9), slots);
    CHECK(m.prefix_tokens == 4 && m.state == four && m.seen_tokens == 5);
    m = match(cache, KEY(1, 2, 3, 9), slots);
    CHECK(m.prefix_tokens == 0 && m.state == 0 && m.seen_tokens == 3);
    rad_state six = add(cache, pool, KEY(1, 2, 3, 4, 5, 6), 6);
    m = match(cache, KEY(1, 2, 3, 4, 5, 6, 7), slots);
    CHECK(m.prefix_tokens == 6 && m.state == six && m.seen_tokens == 6);

    /* The tail goes, and with it what stood behind it. */
    CHECK_OK(rad_cache_evict(cache, 1, NULL, NULL));
    m = match(cache, KEY(1, 2, 3, 4, 5, 6), slots);
    CHECK(m.prefix_tokens == 4 && m.state == four && m.seen_tokens == 5);
    rad_cache_stats s;
    rad_cache_get_stats(cache, &s);
    CHECK(s.states_put == 2 && s.states_dropped == 1 && s.states_evicted == 0);
    finis(cache, pool);
}

/* Two chats and a page of a prompt that both begin with. */
TEST(what_was_gone_on_from_goes_first_and_a_fork_stays)
{
    rad_state_pool *pool = make_pool(STATES);
    rad_cache *cache = make_cache(pool, (rad_cache_params){.page_size = 1});
    rad_slot slots[16];
    rad_state fork = add(cache, pool, KEY(1, 2, 3, 10, 11), 3);
    add(cache, pool, KEY(1, 2, 3, 20, 21), 0);
    rad_state a1 = add(cache, pool, KEY(1, 2, 3, 10, 11), 5);
    rad_state b1 = add(cache, pool, KEY(1, 2, 3, 20, 21), 5);
    rad_state a2 = add(cache, pool, KEY(1, 2, 3, 10, 11, 12), 6);
    rad_state order[] = {a1, fork, b1, a2};
    /* b1 was not gone on from; the fork came before it, and nobody has used it since. */
    uint64_t done;
    for (int i = 0; i < 4; i++) {
        CHECK_OK(rad_cache_evict_state(cache, 1, &done));
        CHECK(done == 1);
        for (int k = 0; k < 4; k++)
            CHECK(rad_state_is_taken(pool, order[k]) == (k > i));
        check(cache);
    }
    CHECK_OK(rad_cache_evict_state(cache, 1, &done));
    CHECK(done == 0);

    /* The same, and somebody comes to the fork and somebody edits his first turn. */
    fork = add(cache, pool, KEY(1, 2, 3, 10, 11), 3);
    a1 = add(cache, pool, KEY(1, 2, 3, 10, 11), 5);
    b1 = add(cache, pool, KEY(1, 2, 3, 20, 21), 5);
    a2 = add(cache, pool, KEY(1, 2, 3, 10, 11, 12), 6);
    CHECK(match(cache, KEY(1, 2, 3, 30), slots).state == fork);
    CHECK(match(cache, KEY(1, 2, 3, 10, 11, 99), slots).state == a1);
    rad_state again[] = {b1, a2, fork, a1};
    for (int i = 0; i < 4; i++) {
        CHECK_OK(rad_cache_evict_state(cache, 1, NULL));
        for (int k = 0; k < 4; k++)
            CHECK(rad_state_is_taken(pool, again[k]) == (k > i));
    }
    finis(cache, pool);
}

/* What is kept longer keeps its snapshots, too, and loses that with what it was kept by. */
TEST(pins_sessions_and_priorities_stand_above)
{
    rad_state_pool *pool = make_pool(STATES);
    rad_cache *cache =
        make_cache(pool, (rad_cache_params){.page_size = 1,
                                            .max_pinned_tokens = 100,
                                            .max_sessions = 4,
                                            .eviction = {.policy = RAD_EVICT_PRIORITY}});
    rad_session session;
    rad_slot slots[] = {501, 502};
    CHECK_OK(rad_session_open(cache, &session));
    rad_state pinned = add(cache, pool, KEY(1, 2), 2);
    CHECK_OK(rad_cache_pin_prefix(cache, KEY(1, 2), 1u << 30, NULL));
    rad_state chat = add(cache, pool, KEY(2, 2), 2);
    rad_key again = *KEY(2, 2);
    again.session = session;
    CHECK_OK(rad_cache_insert(cache, &again, slots, NULL, NULL, NULL));
    rad_state dear = add(cache, pool, KEY(3, 2), 2);
    rad_insert_params how = {.priority = 5};
    CHECK_OK(rad_cache_insert(cache, KEY(3, 2), slots, &how, NULL, NULL));
    rad_state plain = add(cache, pool, KEY(4, 2), 2);
    CHECK_OK(rad_session_close(cache, session)); /* the chat's is the oldest of the plain ones */
    rad_state order[] = {chat, plain, dear, pinned};
    for (int i = 0; i < 4; i++) {
        check(cache);
        CHECK_OK(rad_cache_evict_state(cache, 1, NULL));
        for (int k = 0; k < 4; k++)
            CHECK(rad_state_is_taken(pool, order[k]) == (k > i));
    }
    finis(cache, pool);
}

TEST(a_lock_keeps_the_snapshot_that_it_found)
{
    rad_state_pool *pool = make_pool(STATES);
    rad_cache *cache = make_cache(pool, (rad_cache_params){.page_size = 1});
    rad_slot slots[16];
    rad_error err;
    uint64_t done;
    rad_state there = add(cache, pool, KEY(1, 2, 3, 4), 4);
    rad_receipt found, empty;
    rad_match m = match(cache, KEY(1, 2, 3, 4), slots);
    CHECK_OK(rad_cache_inc_lock_ref(cache, m.last_node, &found, NULL));
    CHECK(found.state_held == 1 && rad_cache_state_protected_size(cache) == 1);
    CHECK_OK(rad_cache_evict_state(cache, 9, &done));
    CHECK(done == 0 && rad_state_is_taken(pool, there));
    /* Receipts are the caller's memory. */
    for (uint32_t held = 0; held < 3; held += 2) {
        rad_receipt bent = found;
        bent.state_held = held;
        CHECK(rad_cache_dec_lock_ref(cache, &bent, &err) == RAD_E_STATE && *err.text);
        check(cache);
    }
    /* One that comes where a lock is, is not that lock's. */
    CHECK_OK(rad_cache_dec_lock_ref(cache, &found, NULL));
    CHECK_OK(rad_cache_evict_state(cache, 9, &done));
    CHECK(done == 1);
    CHECK_OK(rad_cache_inc_lock_ref(cache, m.last_node, &empty, NULL));
    CHECK(empty.state_held == 0);
    there = add(cache, pool, KEY(1, 2, 3, 4), 4);
    CHECK(there && rad_cache_state_protected_size(cache) == 0);
    CHECK_OK(rad_cache_inc_lock_ref(cache, m.last_node, &found, NULL));
    CHECK(found.state_held == 1);
    CHECK_OK(rad_cache_dec_lock_ref(cache, &empty, NULL));
    CHECK_OK(rad_cache_evict_state(cache, 9, &done));
    CHECK(done == 0);
    CHECK_OK(rad_cache_dec_lock_ref(cache, &found, NULL));
    finis(cache, pool);
}

TEST(misuse_is_refused_and_the_state_stays_the_callers)
{
    rad_state_pool *pool = make_pool(STATES);
    rad_cache *cache = make_cache(pool, (rad_cache_params){.page_size = 2});
    rad_error err;
    rad_inserted in;
    rad_state mine = take(pool), *m = &mine;
    CHECK_OK(rad_cache_insert(cache, KEY(1, 2, 3, 4), SLOTS(2, 3, 4, 5), NULL, &in, NULL));
    rad_ref stale = {in.node.index, in.node.generation + 1};
    CHECK(rad_cache_put_state(cache, in.node, 0, *m, &err) == RAD_E_INVAL && *err.text);
    CHECK(rad_cache_put_state(cache, in.node, 3, *m, &err) == RAD_E_INVAL);
    CHECK(rad_cache_put_state(cache, stale, 2, *m, &err) == RAD_E_STATE);
    CHECK(rad_cache_put_state(cache, (rad_ref){0, 0}, 2, *m, &err) == RAD_E_STATE);
    CHECK(rad_cache_put_state(cache, in.node, 2, mine + 1, &err) == RAD_E_STATE);
    CHECK(rad_cache_put_state(cache, in.node, 2, 0, &err) == RAD_E_STATE);
    CHECK(rad_state_is_taken(pool, mine));
    CHECK_OK(rad_cache_put_state(cache, in.node, 6, mine, &err)); /* it ends before */
    CHECK(!rad_state_is_taken(pool, mine));
    mine = take(pool);
    CHECK_OK(rad_cache_put_state(cache, in.node, 2, mine, NULL));
    CHECK(rad_cache_put_state(cache, in.node, 4, mine, &err) == RAD_E_STATE); /* it is there */
    check(cache);
    /* Somebody frees it under the cache: that is noticed, and told once. */
    CHECK_OK(rad_state_free(pool, mine));
    CHECK(rad_cache_check(cache, &err) == RAD_E_CORRUPT);
    CHECK(rad_cache_evict_state(cache, 1, NULL) == RAD_E_STATE);
    check(cache);
    finis(cache, pool);

    rad_cache *plain = make(1);
    CHECK(rad_cache_put_state(plain, in.node, 1, 1, &err) == RAD_E_UNSUPPORTED);
    CHECK(rad_cache_evict_state(plain, 1, NULL) == RAD_E_UNSUPPORTED);
    rad_cache_destroy(plain);
    pool = make_pool(1);
    rad_cache_params p = {.struct_size = sizeof p, .state_pool = pool, .is_eagle = 1};
    CHECK(rad_cache_create(NULL, &p, &plain, &err) == RAD_E_INVAL && strstr(err.text, "eagle"));
    p = (rad_cache_params){.struct_size = sizeof p, .state_pool = pool, .kind = RAD_CACHE_CHUNK};
    CHECK_OK(rad_cache_create(NULL, &p, &plain, NULL));
    mine = take(pool);
    CHECK_OK(rad_cache_put_state(plain, (rad_ref){0, 0}, 1, mine, NULL)); /* it keeps nothing */
    CHECK(rad_state_available(pool) == 1);
    finis(plain, pool);
}

/* With no node to cut with the snapshot goes back, and the tree stays sound. */
TEST(a_snapshot_without_a_node_goes_back)
{
    rad_state_pool *pool = make_pool(STATES);
    rad_cache *cache = make_cache(pool, (rad_cache_params){.page_size = 1, .max_nodes = 1});
    CHECK(add(cache, pool, KEY(1, 2, 3), 2) == 0 && rad_state_available(pool) == STATES);
    CHECK(add(cache, pool, KEY(1, 2, 3), 3) != 0);
    finis(cache, pool);
}

static rad_status append(void *user, const char *text, size_t bytes)
{
    strncat(user, text, bytes);
    return RAD_OK;
}

TEST(explanations_and_dumps_know_snapshots)
{
    rad_state_pool *pool = make_pool(STATES);
    rad_cache *cache = make_cache(pool, (rad_cache_params){.page_size = 1});
    rad_explanation e;
    add(cache, pool, KEY(1, 2, 3, 4, 5), 3);
    CHECK_OK(rad_cache_explain(cache, KEY(1, 2, 3, 4, 5), &e));
    CHECK(e.prefix_tokens == 3 && e.why == RAD_END_STATE && e.num_nodes == 1);
    CHECK_OK(rad_cache_explain(cache, KEY(1, 2, 3, 9), &e));
    CHECK(e.prefix_tokens == 3 && e.why == RAD_END_NEVER_SEEN);
    add(cache, pool, KEY(1, 2, 3, 4, 5), 5);
    CHECK_OK(rad_cache_explain(cache, KEY(1, 2, 3, 4, 5), &e));
    CHECK(e.prefix_tokens == 5 && e.why == RAD_END_COMPLETE);
    char text[512] = "";
    CHECK_OK(rad_cache_dump(cache, RAD_CACHE_DUMP_TEXT, append, text));
    CHECK(strcmp(text, "3 [1, 2, 3] r=0 s=1\n  2 [4, 5] r=0 s=2\n#tokens: 5\n") == 0);
    *text = 0;
    CHECK_OK(rad_cache_dump(cache, RAD_CACHE_DUMP_JSON, append, text));
    CHECK(strstr(text, "\"state\":1,") && strstr(text, "\"state\":2,"));
    finis(cache, pool);
}

/* --- requests --- */

typedef struct life {
    world w;
    rad_state_pool *pool;
} life;

static void life_init(life *l, uint32_t ps, bool streaming)
{
    l->pool = make_pool(STATES);
    world_make(&l->w, (rad_cache_params){.page_size = ps, .state_pool = l->pool}, 40, 0);
    rad_streaming_cache_params p = {.struct_size = sizeof p, .inner = l->w.cache};
    if (streaming) CHECK_OK(rad_streaming_cache_create(NULL, &p, &l->w.cache, NULL));
}

static void life_fini(life *l)
{
    CHECK(rad_cache_state_protected_size(l->w.cache) == 0);
    CHECK(rad_cache_state_evictable_size(l->w.cache) + rad_state_available(l->pool) == STATES);
    world_fini(&l->w);
    CHECK(rad_state_available(l->pool) == STATES);
    rad_state_pool_destroy(l->pool);
}

/* A request with these tokens, matched, locked and begun; returns the match. */
static rad_match begin(life *l, int i, const char *text, rad_session session)
{
    req *r = &l->w.reqs[i];
    rad_slot slots[MOST_LEN];
    rad_match m;
    *r = (req){.len = (uint32_t)strlen(text), .live = true};
    for (uint32_t k = 0; k < r->len; k++)
        r->tokens[k] = text[k];
    r->kv.key = (rad_key){.tokens = r->tokens, .num_tokens = r->len - 1, .session = session};
    CHECK_OK(rad_cache_match_prefix(l->w.cache, &r->kv.key, slots, &m, NULL));
    r->kv.key.num_tokens = r->len;
    CHECK_OK(rad_cache_inc_lock_ref(l->w.cache, m.last_node, &r->kv.lock, NULL));
    CHECK_OK(rad_session_begin(l->w.cache, &r->kv, NULL));
    if (!r->kv.row) take_row(&l->w, r, slots, m.prefix_tokens);
    if (!r->kv.state) r->kv.state = take(l->pool);
    world_check(&l->w);
    return m;
}

/* Computes up to `len`; its state goes along. */
static void go_on(life *l, int i, uint32_t len)
{
    req *r = &l->w.reqs[i];
    CHECK_OK(extend(&l->w, r, len));
    commit(&l->w, r, len);
    r->kv.state_len = len;
    world_check(&l->w);
}

static void finish(life *l, int i, int is_insert)
{
    CHECK_OK(rad_cache_finished_req(l->w.cache, &l->w.reqs[i].kv, is_insert, NULL));
    CHECK(!l->w.reqs[i].kv.state && !l->w.reqs[i].kv.spare_state);
    l->w.reqs[i].live = false;
    world_check(&l->w);
}

/* Of what a request leaves becomes a snapshot what has seen most of the whole pages. */
TEST(a_request_leaves_its_state_where_it_stands)
{
    static const struct {
        uint32_t committed, state, spare; /* 0: has seen nothing of use */
        int is_insert;
        uint32_t snapshot;
    } cases[] = {{12, 12, 8, 1, 12}, {12, 12, 0, 1, 12}, {11, 11, 8, 1, 8}, {11, 11, 0, 1, 0},
                 {12, 8, 12, 1, 12}, {11, 0, 4, 1, 4},   {12, 0, 0, 1, 0},  {12, 12, 8, 0, 0},
                 {3, 3, 0, 1, 0},    {12, 10, 6, 1, 0},  {12, 10, 4, 1, 4}};
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        static life l;
        life_init(&l, 4, false);
        CHECK(begin(&l, 0, "twelve chars and more", 0).prefix_tokens == 0);
        rad_req_kv *kv = &l.w.reqs[0].kv;
        go_on(&l, 0, cases[i].committed);
        kv->state_len = cases[i].state;
        kv->spare_state = take(l.pool);
        kv->spare_len = cases[i].spare;
        rad_state left = cases[i].snapshot == cases[i].state ? kv->state : kv->spare_state;
        finish(&l, 0, cases[i].is_insert);
        rad_match m;
        rad_key key = {.tokens = l.w.reqs[0].tokens, .num_tokens = 13};
        CHECK_OK(rad_cache_lookup(l.w.cache, &key, &m));
        CHECK(m.prefix_tokens == cases[i].snapshot && m.state == (m.prefix_tokens ? left : 0));
        life_fini(&l);
    }
}

TEST(a_running_request_holds_its_own_states_alone)
{
    static life l;
    life_init(&l, 2, false);
    begin(&l, 0, "something to be shared", 0);
    go_on(&l, 0, 20);
    rad_req_kv *kv = &l.w.reqs[0].kv;
    CHECK_OK(rad_cache_unfinished_req(l.w.cache, kv, 0, NULL));
    rad_state snapshot = take(l.pool);
    CHECK_OK(rad_cache_put_state(l.w.cache, kv->lock.node, 16, snapshot, NULL));
    world_check(&l.w);
    CHECK(rad_cache_state_protected_size(l.w.cache) == 0);

    /* The next one holds what it reads until it has gone on from there. */
    rad_match m = begin(&l, 1, "something to be shared", 0);
    CHECK(m.prefix_tokens == 16 && m.state == snapshot && m.seen_tokens == 20);
    CHECK(rad_cache_state_protected_size(l.w.cache) == 1);
    go_on(&l, 1, 20);
    CHECK_OK(rad_cache_unfinished_req(l.w.cache, &l.w.reqs[1].kv, 0, NULL));
    CHECK(rad_cache_state_protected_size(l.w.cache) == 0);
    world_check(&l.w);
    uint64_t done;
    CHECK_OK(rad_cache_evict_state(l.w.cache, 5, &done));
    CHECK(done == 1);
    finish(&l, 0, 1);
    finish(&l, 1, 0);
    life_fini(&l);
}

TEST(wrong_records_are_refused_in_words)
{
    static life l;
    life_init(&l, 2, false);
    begin(&l, 0, "first", 0);
    go_on(&l, 0, 4);
    begin(&l, 1, "second", 0);
    go_on(&l, 1, 4);
    rad_req_kv *kv = &l.w.reqs[0].kv, good = *kv;
    const rad_req_kv *held[] = {kv, &l.w.reqs[1].kv};
    rad_error err;
    struct {
        rad_state state, spare;
        uint32_t len, spare_len;
        rad_status status;
    } cases[] = {{good.state, good.state, 4, 0, RAD_E_STATE},
                 {7, 0, 4, 0, RAD_E_STATE},
                 {99, 0, 4, 0, RAD_E_STATE},
                 {-1, 0, 4, 0, RAD_E_STATE},
                 {good.state, 0, 5, 0, RAD_E_INVAL},
                 {good.state, 0, 4, 2, RAD_E_INVAL}};
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        kv->state = cases[i].state;
        kv->state_len = cases[i].len;
        kv->spare_state = cases[i].spare;
        kv->spare_len = cases[i].spare_len;
        CHECK(rad_cache_unfinished_req(l.w.cache, kv, 0, &err) == cases[i].status && *err.text);
        CHECK(rad_cache_finished_req(l.w.cache, kv, 1, &err) == cases[i].status);
        CHECK(rad_cache_check_ownership(l.w.cache, held, 2, &err) == RAD_E_CORRUPT);
    }
    *kv = good;
    /* Another's, and nobody's: told state by state. */
    kv->state = l.w.reqs[1].kv.state;
    CHECK(rad_cache_check_ownership(l.w.cache, held, 2, &err) == RAD_E_CORRUPT);
    CHECK(strstr(err.text, "state 2 is held by request 0 and by request 1"));
    *kv = good;
    rad_state lost = take(l.pool);
    CHECK(rad_cache_check_ownership(l.w.cache, held, 2, &err) == RAD_E_CORRUPT);
    CHECK(strstr(err.text, "state 3 is lost"));
    CHECK_OK(rad_state_free(l.pool, lost));
    finish(&l, 0, 1);
    finish(&l, 1, 1);
    life_fini(&l);
}

/* --- streaming sessions --- */

TEST(a_session_goes_on_from_the_state_that_it_kept)
{
    static life l;
    rad_session session;
    life_init(&l, 2, true);
    CHECK_OK(rad_session_open(l.w.cache, &session));
    begin(&l, 0, "hello, and the answer", session);
    go_on(&l, 0, 6);
    rad_req_kv *kv = &l.w.reqs[0].kv;
    CHECK_OK(rad_cache_unfinished_req(l.w.cache, kv, 0, NULL));
    kv->spare_state = take(l.pool);
    kv->spare_len = 16;
    rad_state state = kv->state, spare = kv->spare_state;
    CHECK_OK(extend(&l.w, &l.w.reqs[0], 19));
    commit(&l.w, &l.w.reqs[0], 19);
    kv->state_len = 19;
    finish(&l, 0, 1);
    CHECK(rad_cache_state_evictable_size(l.w.cache) == 2);

    /* The next turn goes on where the last one ended, within a page; */
    rad_match m = begin(&l, 1, "hello, and the answer, and more", session);
    kv = &l.w.reqs[1].kv;
    CHECK(m.prefix_tokens == 19 && m.state == state && kv->state == state && kv->state_len == 19 &&
          kv->spare_state == spare && kv->spare_len == 16 && kv->committed_len == 19);
    finish(&l, 1, 1);
    /* one that says the last words anew goes on from the other; */
    m = begin(&l, 2, "hello, and the anXXXX", session);
    kv = &l.w.reqs[2].kv;
    CHECK(m.prefix_tokens == 16 && m.state == spare && kv->state == spare && kv->state_len == 16 &&
          kv->spare_state == state && kv->spare_len == 0 && kv->committed_len == 16);
    rad_state own = take(l.pool);
    CHECK_OK(rad_cache_put_state(l.w.cache, kv->lock.node, 18, own, NULL)); /* nowhere to be put */
    CHECK(!rad_state_is_taken(l.pool, own));
    go_on(&l, 2, 20);
    kv->spare_len = 18;
    finish(&l, 2, 1);
    /* and before both there is nothing to go on from. */
    m = begin(&l, 3, "hello, but", session);
    CHECK(m.prefix_tokens == 0 && l.w.reqs[3].kv.state_len == 0);
    finish(&l, 3, 0);

    /* What was left went into the tree when the session began anew. */
    m = begin(&l, 4, "hello, and the anXXXX!", 0);
    CHECK(m.prefix_tokens == 20 && m.state == spare);
    finish(&l, 4, 0);
    CHECK_OK(rad_session_close(l.w.cache, session));
    life_fini(&l);
}

TEST(idle_sessions_give_their_states_to_who_needs_them)
{
    static life l;
    rad_session session;
    uint64_t done;
    life_init(&l, 2, true);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rad_session_open(l.w.cache, &session));
        begin(&l, i, i ? "the second talk" : "the first talk", session);
        go_on(&l, i, 12);
        finish(&l, i, 1);
    }
    CHECK(rad_state_available(l.pool) == STATES - 2);
    CHECK_OK(rad_cache_evict_state(l.w.cache, 1, &done));
    CHECK(done == 1 && rad_state_available(l.pool) == STATES - 1);
    world_check(&l.w);
    CHECK_OK(rad_cache_evict_state(l.w.cache, 5, &done));
    CHECK(done == 1 && rad_state_available(l.pool) == STATES);
    life_fini(&l);
}

/* A turn that comes with a state of its own would lose one of the two. */
TEST(a_turn_that_goes_on_brings_no_state)
{
    static life l;
    rad_session session;
    rad_error err;
    life_init(&l, 2, true);
    CHECK_OK(rad_session_open(l.w.cache, &session));
    begin(&l, 0, "a first turn", session);
    go_on(&l, 0, 11);
    finish(&l, 0, 1);
    req *r = &l.w.reqs[0];
    rad_match m;
    rad_req_kv kv = {.key = {.tokens = r->tokens, .num_tokens = 12, .session = session}};
    CHECK_OK(rad_cache_match_prefix(l.w.cache, &kv.key, NULL, &m, NULL));
    CHECK_OK(rad_cache_inc_lock_ref(l.w.cache, m.last_node, &kv.lock, NULL));
    kv.state = take(l.pool);
    CHECK(rad_session_begin(l.w.cache, &kv, &err) == RAD_E_INVAL && strstr(err.text, "keeps"));
    CHECK_OK(rad_state_free(l.pool, kv.state));
    kv.state = 0;
    CHECK_OK(rad_cache_dec_lock_ref(l.w.cache, &kv.lock, NULL));
    CHECK_OK(rad_session_close(l.w.cache, session)); /* frees it */
    CHECK(rad_state_available(l.pool) == STATES);
    life_fini(&l);
}

TEST(create_survives_every_allocation_failing)
{
    rad_state_pool *pool = make_pool(STATES);
    rad_kv_allocator *kv = NULL;
    rad_req_to_token_pool *rows = NULL;
    CHECK_OK(rad_kv_allocator_create(
        NULL, &(rad_kv_allocator_params){.struct_size = sizeof(rad_kv_allocator_params), 20, 1},
        &kv, NULL));
    CHECK_OK(rad_req_to_token_pool_create(
        NULL, &(rad_req_to_token_pool_params){sizeof(rad_req_to_token_pool_params), 4, 20}, &rows,
        NULL));
    rad_cache_params params = {.struct_size = sizeof params,
                               .kv_allocator = kv,
                               .req_to_token_pool = rows,
                               .state_pool = pool};
    test_env t;
    rad_cache_params alone = {.struct_size = sizeof alone, .state_pool = pool};
    rad_cache *cache = cache_after_every_failure(&alone, &t);
    CHECK(metadata_bytes(cache) == t.bytes);
    rad_cache_destroy(cache);
    cache = cache_after_every_failure(&params, &t);
    rad_streaming_cache_params streaming = {
        .struct_size = sizeof streaming, .inner = cache, .max_sessions = 2};
    rad_cache *outer = NULL;
    for (long n = 0; !outer; n++) {
        test_env s;
        rad_env env = test_env_failing_at(&s, n);
        rad_status status = rad_streaming_cache_create(&env, &streaming, &outer, NULL);
        CHECK(status == (outer ? RAD_OK : RAD_E_NOMEM));
        CHECK(outer || s.bytes == 0);
        if (!outer) continue;
        rad_cache_destroy(outer);
        CHECK(s.bytes == 0 && t.bytes == 0);
    }
    rad_kv_allocator_destroy(kv);
    rad_req_to_token_pool_destroy(rows);
    rad_state_pool_destroy(pool);
}

TEST_MAIN()
