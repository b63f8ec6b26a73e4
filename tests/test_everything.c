/* test_everything.c - all that a radix cache can do, switched on at once.
 *
 * Each feature has tests of its own; here they share one tree: namespaces, events, hashes,
 * explanations, pins, retention, tagged sessions, handles, cursors, partial pages, requests
 * and a limit of nodes low enough that nodes are merged all the time.
 *
 * The K/V of a page are played by a number, the hash of the namespace and of all tokens that
 * the page's K/V would depend on. Whoever computes a page writes its number; whoever is
 * given a page by the cache compares it (P1, P3, P4). After every operation the cache
 * checks itself, each page has one owner (P2), and a consumer of the events has the same
 * hashes as the tree has pages (P5: the ring is never longer than it was made). */
#include "test.h"

#include <radish/explain.h>
#include <radish/kv_events.h>
#include <radish/match_handle.h>
#include <radish/partial_page.h>
#include <radish/retention.h>
#include <radish/session.h>

enum { PAGES = 96, MOST = 96, REQS = 4, HANDLES = 4, SESSIONS = 3, EXTRA = 8 };

typedef struct live {
    bool used;
    rad_token tokens[MOST];
    rad_req_kv kv;
} live;

typedef struct kept {
    rad_match_handle handle;
    rad_receipt lock;
    rad_token tokens[MOST];
    rad_key key;
} kept;

typedef struct world {
    rad_kv_allocator *kv;
    rad_req_to_token_pool *rows;
    rad_cache *cache;
    uint32_t ps, eagle;
    uint64_t state, content[(PAGES + 1) * 16];
    live reqs[REQS];
    kept handles[HANDLES];
    rad_session sessions[SESSIONS];
    int64_t seen[PAGES + 1];
    uint32_t num_seen;
    bool lost;
} world;

static uint64_t below(world *w, uint64_t n)
{
    return test_random(&w->state) % n;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t s = a * 31 + b;
    return test_random(&s);
}

/* What the K/V at `position` depend on. */
static uint64_t content_of(const world *w, const rad_key *key, uint32_t position)
{
    uint64_t h = mix(key->extra_key ? (uint64_t)key->extra_key[0] + 1 : 0,
                     key->cache_salt ? (uint64_t)key->cache_salt[0] + 1 : 0);
    for (uint32_t i = 0; i <= position + w->eagle; i++)
        h = mix(h, (uint64_t)key->tokens[i]);
    return h;
}

static uint32_t length_of(const world *w, const rad_key *key)
{
    return key->num_tokens > w->eagle ? key->num_tokens - w->eagle : 0;
}

static void compute(world *w, const rad_key *key, const rad_slot *slots, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        w->content[slots[i]] = i < length_of(w, key) ? content_of(w, key, i) : 0;
}

static void expect(const world *w, const rad_key *key, const rad_slot *slots, uint32_t from,
                   uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        CHECK(w->content[slots[i - from]] == content_of(w, key, i));
}

static rad_status copy_slots(void *user, rad_slot from, rad_slot to, uint32_t count)
{
    world *w = user;
    CHECK(from != to);
    memcpy(w->content + to, w->content + from, count * sizeof *w->content);
    return below(w, 8) ? RAD_OK : RAD_E_IO;
}

static uint64_t user_key(void *user, const rad_evict_facts *f)
{
    (void)user;
    return mix(f->last_access / 4, f->num_tokens) >> (f->depth_tokens % 64);
}

static void make_key(world *w, rad_token *tokens, rad_key *key)
{
    static const char *const names[] = {NULL, NULL, "", "a"};
    uint32_t num = (uint32_t)below(w, MOST), variants = (uint32_t)below(w, 2) ? 9 : 30;
    for (uint32_t i = 0; i < num; i++)
        tokens[i] = below(w, variants) ? (rad_token)(i & 1) : (rad_token)below(w, 3);
    *key = (rad_key){.tokens = tokens, .num_tokens = num};
    key->extra_key = names[below(w, 4)];
    key->cache_salt = below(w, 4) ? NULL : names[below(w, 4)];
    if (below(w, 2)) key->session = w->sessions[below(w, SESSIONS)];
}

/* Pages for `count` tokens in slots; false when the pool is held. */
static bool take(world *w, rad_slot *slots, uint32_t count)
{
    rad_page pages[MOST];
    uint32_t n = (count + w->ps - 1) / w->ps;
    if (rad_kv_alloc(w->kv, pages, n)) {
        uint64_t short_of = (n - rad_kv_available_pages(w->kv)) * (uint64_t)w->ps;
        CHECK_OK(rad_cache_evict(w->cache, short_of, NULL, NULL));
        if (rad_kv_alloc(w->kv, pages, n)) return false;
    }
    for (uint32_t i = 0; i < n * w->ps && i < count; i++)
        slots[i] = pages[i / w->ps] * (rad_slot)w->ps + (rad_slot)(i % w->ps);
    return true;
}

static void free_pages(world *w, const rad_slot *slots, uint32_t count)
{
    if (count) CHECK_OK(rad_kv_free_slots(w->kv, slots, count, NULL));
}

/* A raw insert; from a handle's position when there is one. */
static void insert(world *w, const rad_key *key, rad_match_handle *at)
{
    rad_slot slots[MOST];
    uint32_t start = at ? at->num_tokens : 0, end = length_of(w, key) / w->ps * w->ps;
    if (end < start || !take(w, slots + start, end - start)) return;
    compute(w, key, slots, start, end);
    rad_insert_params how = {.priority = (int32_t)below(w, 3), .chunked = (uint32_t)below(w, 2)};
    rad_inserted in;
    rad_status status =
        at ? rad_cache_insert_from(w->cache, at, key, slots + start, &how, &in, NULL)
           : rad_cache_insert(w->cache, key, slots, &how, &in, NULL);
    CHECK(status == RAD_OK || status == RAD_FULL || (at && status == RAD_E_STATE));
    uint32_t mine = status ? end : in.prefix_tokens; /* what is still ours */
    if (mine > start) free_pages(w, slots + start, mine - start);
}

static void begin(world *w, live *r)
{
    rad_match match;
    rad_key key;
    make_key(w, r->tokens, &key);
    if (key.num_tokens < 2) return;
    r->kv = (rad_req_kv){.key = key, .priority = (int32_t)below(w, 3)};
    if (rad_req_to_token_alloc(w->rows, &r->kv.row)) return;
    rad_slot *row = rad_req_to_token_row(w->rows, r->kv.row);
    CHECK_OK(rad_cache_match_prefix(w->cache, &key, row, &match, NULL));
    expect(w, &key, row, 0, match.prefix_tokens);
    CHECK_OK(rad_cache_inc_lock_ref(w->cache, match.last_node, &r->kv.lock, NULL));
    uint32_t have = match.prefix_tokens, partial = 0;
    r->kv.protected_len = r->kv.committed_len = r->kv.allocated_len = have;
    r->used = true;
    if (w->ps > 1 && below(w, 2)) {
        rad_status status = rad_cache_reuse_partial(w->cache, &key, &match, row + have, &partial);
        CHECK(status == RAD_OK || status == RAD_FULL || status == RAD_E_IO);
        if (status) partial = 0;
        CHECK(partial < w->ps || length_of(w, &key) == have + partial);
        expect(w, &key, row + have, have, have + partial);
        r->kv.committed_len = r->kv.allocated_len = have + partial;
    }
}

/* Computes some more tokens of a request. */
static void go_on(world *w, live *r)
{
    rad_req_kv *kv = &r->kv;
    rad_slot *row = rad_req_to_token_row(w->rows, kv->row);
    uint32_t left = kv->key.num_tokens - kv->allocated_len, add = (uint32_t)below(w, left + 1);
    uint32_t whole = (kv->allocated_len + w->ps - 1) / w->ps * w->ps, to = kv->allocated_len + add;
    for (uint32_t i = kv->allocated_len; i < whole && i < to; i++)
        row[i] = row[i - 1] + 1;
    if (to > whole && !take(w, row + whole, to - whole)) to = whole < to ? whole : to;
    if (to < kv->allocated_len) to = kv->allocated_len;
    kv->allocated_len = to;
    uint32_t old = kv->committed_len;
    kv->committed_len = to - (uint32_t)below(w, to - old + 1);
    compute(w, &kv->key, row, old, kv->committed_len);
}

static void publish(world *w, live *r)
{
    rad_error err = {0};
    rad_req_kv *kv = &r->kv;
    rad_status status = rad_cache_unfinished_req(w->cache, kv, (int)below(w, 2), &err);
    CHECKF(status == RAD_OK || status == RAD_FULL, "%s\n", err.text);
    expect(w, &kv->key, rad_req_to_token_row(w->rows, kv->row), 0, kv->protected_len);
}

static void end(world *w, live *r)
{
    rad_error err = {0};
    rad_status status = rad_cache_finished_req(w->cache, &r->kv, below(w, 4) != 0, &err);
    CHECKF(status == RAD_OK, "%s: %s\n", rad_status_name(status), err.text);
    r->used = false;
}

/* --- the consumer of events --- */

static void on_event(void *user, const rad_kv_event *e)
{
    world *w = user;
    CHECK(!w->lost);
    if (e->type == RAD_KV_CLEARED) w->num_seen = 0;
    if (e->type == RAD_KV_LOST) w->lost = true;
    for (uint32_t i = 0; i < e->num_blocks; i++) {
        uint32_t at = 0, parent = 0;
        int64_t prior = i ? e->block_hashes[i - 1] : e->parent_block_hash;
        while (at < w->num_seen && w->seen[at] != e->block_hashes[i])
            at++;
        if (e->type == RAD_KV_STORED) {
            CHECK(at == w->num_seen && at < PAGES);
            while (parent < w->num_seen && w->seen[parent] != prior)
                parent++;
            CHECK((!i && !e->has_parent) || parent < w->num_seen);
            w->seen[w->num_seen++] = e->block_hashes[i];
        } else {
            CHECK(at < w->num_seen);
            w->seen[at] = w->seen[--w->num_seen];
        }
    }
}

static void follow_events(world *w)
{
    CHECK_OK(rad_cache_take_events(w->cache, on_event, w));
    if (w->lost || !below(w, 50)) {
        w->lost = false;
        CHECK_OK(rad_cache_snapshot_events(w->cache, on_event, w));
    }
    CHECK(!w->lost && (uint64_t)w->num_seen * w->ps == rad_cache_total_size(w->cache));
}

/* Looks at a key from all sides; they agree. */
static void look(world *w, const rad_key *key)
{
    rad_match match, again;
    rad_explanation why;
    rad_page_hash hashes[MOST];
    rad_page_span spans[MOST];
    rad_slot slots[MOST];
    uint32_t count, runs, at = 0;
    CHECK_OK(rad_cache_lookup(w->cache, key, &match));
    CHECK_OK(rad_cache_explain(w->cache, key, &why));
    CHECK_OK(rad_cache_get_page_hashes(w->cache, key, hashes, MOST, &count));
    CHECK(why.prefix_tokens == match.prefix_tokens && count * w->ps == match.prefix_tokens);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t known = 0;
        while (known < w->num_seen && w->seen[known] != rad_page_hash_event(&hashes[i]))
            known++;
        CHECK(known < w->num_seen);
    }
    if (!key->num_tokens) return;
    CHECK_OK(rad_cache_match_spans(w->cache, key, spans, MOST, &runs, &again));
    for (uint32_t i = 0; i < runs; i++)
        for (uint32_t k = 0; k < spans[i].num_pages * w->ps; k++)
            slots[at++] = spans[i].pages[k / w->ps] * (rad_slot)w->ps + (rad_slot)(k % w->ps);
    CHECK(at == match.prefix_tokens && again.prefix_tokens == at);
    expect(w, key, slots, 0, at);
}

static void use_handle(world *w, kept *h)
{
    rad_slot slots[MOST];
    uint64_t op = below(w, 6);
    if (op == 0) {
        if (h->lock.held) CHECK_OK(rad_cache_dec_lock_ref(w->cache, &h->lock, NULL));
        make_key(w, h->tokens, &h->key);
        h->handle = (rad_match_handle){0};
        if (h->key.num_tokens) CHECK_OK(rad_cache_match_handle(w->cache, &h->key, &h->handle));
    } else if (op == 1 && !h->lock.held) {
        rad_status status = rad_match_handle_lock(w->cache, &h->handle, &h->lock, NULL);
        CHECK(status == RAD_OK || status == RAD_E_STATE);
    } else if (op == 2 && h->lock.held) {
        CHECK_OK(rad_cache_dec_lock_ref(w->cache, &h->lock, NULL));
    } else if (op == 3 && h->key.num_tokens) {
        rad_match_handle at = h->handle;
        if (h->key.session && !below(w, 3)) h->key.session = 0;
        insert(w, &h->key, &at);
    } else {
        rad_status status =
            rad_match_handle_slots(w->cache, &h->handle, 0, h->handle.num_tokens, slots);
        CHECK(status == RAD_OK || (status == RAD_E_STATE && !h->lock.held));
        if (!status) expect(w, &h->key, slots, 0, h->handle.num_tokens);
    }
}

static void check(world *w)
{
    rad_error err = {0};
    const rad_req_kv *held[REQS];
    uint32_t n = 0;
    for (int i = 0; i < REQS; i++)
        if (w->reqs[i].used) held[n++] = &w->reqs[i].kv;
    CHECKF(rad_cache_check(w->cache, &err) == RAD_OK, "%s\n", err.text);
    CHECKF(rad_cache_check_ownership(w->cache, held, n, &err) == RAD_OK, "%s\n", err.text);
    follow_events(w);
}

static void step(world *w)
{
    rad_token tokens[MOST];
    rad_key key;
    make_key(w, tokens, &key);
    uint64_t op = below(w, 24);
    live *r = &w->reqs[below(w, REQS)];
    uint32_t got;
    if (op < 4) {
        insert(w, &key, NULL);
    } else if (op < 10) {
        if (!r->used)
            begin(w, r);
        else if (below(w, 3))
            go_on(w, r);
        else if (below(w, 3))
            publish(w, r);
        else
            end(w, r);
    } else if (op < 14) {
        use_handle(w, &w->handles[below(w, HANDLES)]);
    } else if (op == 14) {
        CHECK_OK(rad_cache_pin_prefix(w->cache, &key, below(w, 4) ? 1 + below(w, 4000) : 0, &got));
    } else if (op == 15) {
        uint64_t idle = below(w, 2) ? below(w, 4000) : 0;
        CHECK_OK(rad_cache_retain_prefix(w->cache, &key, (int32_t)below(w, 120), idle, &got));
    } else if (op == 16) {
        uint64_t gone, most = below(w, 4) ? below(w, 12) : below(w, 2000);
        uint64_t could = rad_cache_evictable_size(w->cache);
        uint64_t want = (most + w->ps - 1) / w->ps * w->ps;
        CHECK_OK(rad_cache_evict(w->cache, most, &gone, NULL));
        CHECK(gone == (want < could ? want : could)); /* nothing soft is an obstacle */
    } else if (op == 17) {
        uint32_t i = (uint32_t)below(w, SESSIONS);
        CHECK_OK(rad_session_close(w->cache, w->sessions[i]));
        CHECK_OK(rad_session_open(w->cache, &w->sessions[i]));
    } else {
        look(w, &key);
    }
    check(w);
}

static rad_cache_stats totals; /* of all runs: that everything happened */

static void run(uint32_t ps, uint32_t eagle, uint32_t policy, uint32_t max_nodes, uint64_t steps)
{
    static world w;
    uint64_t seed = test_seed();
    test_env clock = {.fail_at = -1};
    rad_env env = {.struct_size = sizeof env, .user = &clock, .now_ns = test_env_now};
    w = (world){.ps = ps, .eagle = eagle, .state = seed};
    print_message("page_size %u, eagle %u, policy %s, %u nodes, seed %llu\n", ps, eagle,
                  rad_eviction_policy_name(policy), max_nodes, (unsigned long long)seed);
    rad_kv_allocator_params pool = {
        .struct_size = sizeof pool, .num_pages = PAGES, .page_size = ps};
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = REQS, .row_tokens = MOST + EXTRA};
    CHECK_OK(rad_kv_allocator_create(NULL, &pool, &w.kv, NULL));
    CHECK_OK(rad_req_to_token_pool_create(NULL, &rows, &w.rows, NULL));
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = ps,
                               .kv_allocator = w.kv,
                               .req_to_token_pool = w.rows,
                               .max_nodes = max_nodes,
                               .max_namespaces = 5,
                               .max_tokens = policy % 2 ? 80 * ps : 0,
                               .eviction.policy = policy,
                               .evict_key = user_key,
                               .max_pinned_tokens = 24 * ps,
                               .retention = 1,
                               .max_sessions = SESSIONS,
                               .is_eagle = eagle,
                               .copy_slots = copy_slots,
                               .copy_user = &w,
                               .enable_kv_events = 1,
                               .kv_event_pages = 48,
                               .enable_page_hashes = 1,
                               .explain_pages = 40,
                               .explain_namespaces = 1};
    CHECK_OK(rad_cache_create(&env, &params, &w.cache, NULL));
    for (int i = 0; i < SESSIONS; i++)
        CHECK_OK(rad_session_open(w.cache, &w.sessions[i]));
    for (uint64_t i = 0; i < steps; i++)
        step(&w);
    for (int i = 0; i < REQS; i++)
        if (w.reqs[i].used) end(&w, &w.reqs[i]);
    for (int i = 0; i < HANDLES; i++)
        if (w.handles[i].lock.held)
            CHECK_OK(rad_cache_dec_lock_ref(w.cache, &w.handles[i].lock, NULL));
    CHECK(rad_cache_protected_size(w.cache) == 0);
    CHECK_OK(rad_cache_evict(w.cache, UINT64_MAX, NULL, NULL)); /* pins, tags and all */
    CHECK(rad_cache_total_size(w.cache) == 0 && rad_kv_available_pages(w.kv) == PAGES);
    check(&w);
    CHECK(w.num_seen == 0);
    rad_cache_stats stats;
    rad_cache_get_stats(w.cache, &stats);
    CHECK(stats.num_nodes == 0 && stats.num_namespaces == 0);
    totals.splits += stats.splits;
    totals.merges += stats.merges;
    totals.evicted_tokens += stats.evicted_tokens;
    rad_cache_destroy(w.cache);
    rad_req_to_token_pool_destroy(w.rows);
    rad_kv_allocator_destroy(w.kv);
}

TEST(everything_at_once)
{
    static const uint32_t sizes[] = {1, 2, 4};
    for (uint32_t policy = RAD_EVICT_LRU; policy <= RAD_EVICT_USER; policy++)
        for (uint32_t i = 0; i < 3; i++)
            for (uint32_t eagle = 0; eagle < 2; eagle++)
                run(sizes[i], eagle, policy, 6 + 11 * ((policy + i) % 3), test_scale(3000, 400000));
}

TEST_MAIN()
