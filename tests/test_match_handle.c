/* test_match_handle.c - matches as values, inserts from a cursor, spans, partial pages,
 * dumps. */
#include "radix_rig.h"

#include "cache/radix_cache.h"

#include <radish/cache_dump.h>
#include <radish/match_handle.h>
#include <radish/partial_page.h>

static rad_match_handle handle_of(rad_cache *cache, const rad_key *key)
{
    rad_match_handle h;
    CHECK_OK(rad_cache_match_handle(cache, key, &h));
    return h;
}

static uint64_t num_nodes(const rad_cache *cache)
{
    rad_cache_stats stats;
    rad_cache_get_stats(cache, &stats);
    return stats.num_nodes;
}

TEST(a_handle_splits_nothing_and_reads_its_slots)
{
    rad_cache *cache = make(1);
    insert(cache, KEY(1, 2, 3, 4), SLOTS(10, 20, 30, 40));
    insert(cache, KEY(1, 2, 5, 6), SLOTS(10, 20, 50, 60));
    rad_match_handle h = handle_of(cache, KEY(1, 2, 3, 9));
    rad_slot slots[4] = {0};
    CHECK(h.num_tokens == 3 && num_nodes(cache) == 3);
    CHECK_OK(rad_match_handle_slots(cache, &h, 0, 3, slots));
    CHECK(slots[0] == 10 && slots[1] == 20 && slots[2] == 30);
    CHECK_OK(rad_match_handle_slots(cache, &h, 1, 1, slots));
    CHECK(slots[0] == 20);
    CHECK_OK(rad_match_handle_slots(cache, &h, 3, 0, NULL));
    CHECK(rad_match_handle_slots(cache, &h, 3, 1, slots) == RAD_E_INVAL);
    CHECK(rad_match_handle_slots(cache, &h, 1, UINT32_MAX, slots) == RAD_E_INVAL);

    rad_match_handle other = handle_of(cache, KEY(1, 2, 5, 6)), none = {0};
    uint32_t common = 99;
    CHECK_OK(rad_match_handle_common(cache, &h, &other, &common));
    CHECK(common == 2);
    CHECK_OK(rad_match_handle_common(cache, &h, &h, &common));
    CHECK(common == 3);
    CHECK_OK(rad_match_handle_common(cache, &h, &none, &common));
    CHECK(common == 0);
    rad_key salted = *KEY(1, 2, 3);
    salted.cache_salt = "x";
    insert(cache, &salted, SLOTS(1, 2, 3));
    other = handle_of(cache, &salted);
    CHECK_OK(rad_match_handle_common(cache, &h, &other, &common));
    CHECK(common == 0);
    rad_cache_destroy(cache);
}

TEST(a_locked_handle_stays_good_and_an_evicted_one_is_stale)
{
    rad_cache *cache = make(1);
    insert(cache, KEY(1, 2, 3, 4), SLOTS(10, 20, 30, 40));
    rad_match_handle h = handle_of(cache, KEY(1, 2, 3, 4)), shorter = handle_of(cache, KEY(1, 2));
    rad_receipt receipt;
    rad_slot slots[4];
    uint64_t done;
    CHECK_OK(rad_match_handle_lock(cache, &h, &receipt, NULL));
    insert(cache, KEY(1, 9), SLOTS(10, 90)); /* splits; h keeps the deep half */
    CHECK_OK(rad_cache_evict(cache, 100, &done, NULL));
    CHECK(done == 1);
    CHECK_OK(rad_match_handle_slots(cache, &h, 0, 4, slots));
    CHECK(slots[0] == 10 && slots[3] == 40);
    CHECK_OK(rad_cache_dec_lock_ref(cache, &receipt, NULL));

    CHECK_OK(rad_cache_evict(cache, 1, &done, NULL)); /* the tail is gone, the rest is not */
    CHECK(rad_match_handle_slots(cache, &h, 0, 1, slots) == RAD_E_STATE);
    CHECK(rad_match_handle_lock(cache, &h, &receipt, NULL) == RAD_E_STATE);
    CHECK_OK(rad_match_handle_slots(cache, &shorter, 0, 2, slots));
    CHECK(slots[0] == 10 && slots[1] == 20);
    CHECK_OK(rad_cache_evict(cache, 100, &done, NULL));
    CHECK(rad_match_handle_slots(cache, &shorter, 0, 2, slots) == RAD_E_STATE);
    insert(cache, KEY(7, 8), SLOTS(70, 80)); /* in the same place of the slab, perhaps */
    CHECK(rad_match_handle_slots(cache, &shorter, 0, 2, slots) == RAD_E_STATE);
    uint32_t common;
    CHECK(rad_match_handle_common(cache, &h, &shorter, &common) == RAD_E_STATE);
    rad_cache_destroy(cache);
}

TEST(an_insert_goes_on_where_the_last_one_ended)
{
    rad_cache *cache = make(2);
    rad_token tokens[40];
    rad_slot slots[40];
    rad_inserted in;
    for (int i = 0; i < 40; i++) {
        tokens[i] = i;
        slots[i] = 100 + i;
    }
    rad_match_handle at = {0};
    for (uint32_t n = 1; n <= 40; n += 3) {
        rad_key key = {.tokens = tokens, .num_tokens = n};
        uint32_t from = at.num_tokens;
        uint64_t before = rad_cache_evictable_size(cache);
        CHECK_OK(rad_cache_insert_from(cache, &at, &key, slots + from, NULL, &in, NULL));
        CHECK(in.prefix_tokens == from && at.num_tokens == n / 2 * 2);
        CHECK(memcmp(&in.node, &at.node, sizeof at.node) == 0);
        CHECK((uint64_t)in.evictable_change == rad_cache_evictable_size(cache) - before);
        check(cache);
    }
    rad_match m;
    rad_slot got[40];
    CHECK_OK(rad_cache_match_prefix(cache, &(rad_key){.tokens = tokens, .num_tokens = 40}, got, &m,
                                    NULL));
    CHECK(m.prefix_tokens == 40 && memcmp(got, slots, sizeof slots) == 0);

    /* From inside a node, with others' tokens behind the cursor: a duplicate is told. */
    at = handle_of(cache, KEY(0, 1));
    at.num_tokens = 2;
    CHECK_OK(rad_cache_insert_from(cache, &at, KEY(0, 1, 2, 3, 7, 7), SLOTS(8, 9, 10, 11), NULL,
                                   &in, NULL));
    CHECK(in.prefix_tokens == 4 && at.num_tokens == 6 && in.evictable_change == 2);
    check(cache);
    CHECK_OK(rad_match_handle_slots(cache, &at, 0, 6, got));
    CHECK(got[0] == 100 && got[3] == 103 && got[4] == 10 && got[5] == 11);
    rad_cache_destroy(cache);
}

TEST(a_wrong_cursor_is_refused)
{
    rad_cache *cache = make(1);
    insert(cache, KEY(1, 2, 3, 4), SLOTS(10, 20, 30, 40));
    rad_match_handle at = handle_of(cache, KEY(1, 2, 3)), copy = at;
    rad_slot slots[] = {50, 60};
    rad_error err = {0};
    char node[64];
    snprintf(node, sizeof node, "node %u (generation %u)", at.node.index, at.node.generation);
    CHECK(rad_cache_insert_from(cache, &at, KEY(1, 2, 9, 5), slots, NULL, NULL, &err) ==
          RAD_E_STATE);
    CHECK(strstr(err.text, node) && strstr(err.text, "not on the key's path"));
    CHECK(rad_cache_insert_from(cache, &at, KEY(1, 2), slots, NULL, NULL, NULL) == RAD_E_STATE);
    rad_key salted = *KEY(1, 2, 3, 5);
    salted.cache_salt = "x";
    CHECK(rad_cache_insert_from(cache, &at, &salted, slots, NULL, NULL, NULL) == RAD_E_STATE);
    CHECK(rad_cache_insert_from(cache, NULL, KEY(1), slots, NULL, NULL, NULL) == RAD_E_INVAL);
    CHECK(rad_cache_insert_from(cache, &at, KEY(1, 2, 3, 5), NULL, NULL, NULL, NULL) ==
          RAD_E_INVAL);
    at.num_tokens = 5; /* deeper than its node */
    CHECK(rad_cache_insert_from(cache, &at, KEY(1, 2, 3, 4, 5, 6), slots, NULL, NULL, NULL) ==
          RAD_E_STATE);
    at = copy;
    CHECK_OK(rad_cache_evict(cache, 2, NULL, NULL));
    CHECK(rad_cache_insert_from(cache, &at, KEY(1, 2, 3, 5), slots, NULL, NULL, &err) ==
          RAD_E_STATE);
    CHECK(strstr(err.text, node) && strstr(err.text, "stale"));
    CHECK(memcmp(&at, &copy, sizeof at) == 0 && rad_cache_total_size(cache) == 2);
    check(cache);
    rad_cache_destroy(cache);
}

TEST(spans_are_runs_of_pages)
{
    rad_cache *cache = make(2);
    rad_page_span spans[8];
    uint32_t count;
    rad_match m;
    insert(cache, KEY(1, 2, 3, 4, 5, 6), SLOTS(2, 3, 6, 7, 4, 5));
    CHECK_OK(rad_cache_match_spans(cache, KEY(1, 2, 3, 4, 9, 9), spans, 8, &count, &m));
    CHECK(m.prefix_tokens == 4 && count == 1 && num_nodes(cache) == 2); /* it splits */
    CHECK(spans[0].num_pages == 2 && spans[0].first_token == 0);
    CHECK(spans[0].pages[0] == 1 && spans[0].pages[1] == 3);
    CHECK_OK(rad_cache_match_spans(cache, KEY(1, 2, 3, 4, 5, 6), spans, 8, &count, &m));
    CHECK(m.prefix_tokens == 6 && count == 1); /* two halves lie side by side */
    insert(cache, KEY(50, 50), SLOTS(30, 31)); /* something between */
    insert(cache, KEY(1, 2, 3, 4, 7, 7, 8, 8), SLOTS(2, 3, 6, 7, 10, 11, 12, 13));
    insert(cache, KEY(1, 2, 3, 4, 7, 7, 8, 8, 9, 9), SLOTS(2, 3, 6, 7, 10, 11, 12, 13, 14, 15));
    CHECK_OK(rad_cache_match_spans(cache, KEY(1, 2, 3, 4, 7, 7, 8, 8, 9, 9), spans, 8, &count, &m));
    CHECK(m.prefix_tokens == 10);
    uint32_t at = 0;
    rad_page want[] = {1, 3, 5, 6, 7};
    for (uint32_t i = 0; i < count; i++) {
        CHECK(spans[i].first_token == at * 2);
        for (uint32_t k = 0; k < spans[i].num_pages; k++)
            CHECK(spans[i].pages[k] == want[at++]);
    }
    CHECK(at == 5);
    uint32_t all = count;
    CHECK_OK(rad_cache_match_spans(cache, KEY(1, 2, 3, 4, 7, 7), NULL, 0, &count, &m));
    CHECK(m.prefix_tokens == 6 && count == 2 && all >= 2);
    CHECK_OK(rad_cache_match_spans(cache, KEY(9), spans, 8, &count, &m));
    CHECK(count == 0);
    CHECK(rad_cache_match_spans(cache, KEY(9), NULL, 8, &count, &m) == RAD_E_INVAL);
    rad_cache_destroy(cache);
}

/* --- partial pages --- */

typedef struct pool {
    int content[4096];
    rad_status answer;
    uint32_t calls;
} pool;

static rad_status copy_slots(void *user, rad_slot from, rad_slot to, uint32_t count)
{
    pool *p = user;
    p->calls++;
    if (p->answer) return p->answer;
    memcpy(p->content + to, p->content + from, count * sizeof *p->content);
    return RAD_OK;
}

typedef struct rig {
    pool pool;
    rad_kv_allocator *kv;
    rad_req_to_token_pool *rows;
    rad_cache *cache;
} rig;

static void rig_init(rig *r, uint32_t ps, uint32_t pages, uint32_t is_eagle)
{
    *r = (rig){0};
    CHECK_OK(rad_kv_allocator_create(
        NULL, &(rad_kv_allocator_params){sizeof(rad_kv_allocator_params), pages, ps}, &r->kv,
        NULL));
    CHECK_OK(rad_req_to_token_pool_create(
        NULL, &(rad_req_to_token_pool_params){sizeof(rad_req_to_token_pool_params), 4, 64},
        &r->rows, NULL));
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = ps,
                               .kv_allocator = r->kv,
                               .req_to_token_pool = r->rows,
                               .is_eagle = is_eagle,
                               .max_sessions = 2,
                               .copy_slots = copy_slots,
                               .copy_user = &r->pool};
    CHECK_OK(rad_cache_create(NULL, &params, &r->cache, NULL));
}

static void rig_fini(rig *r)
{
    CHECK_OK(rad_cache_reset(r->cache));
    CHECK(rad_kv_available_pages(r->kv) == rad_kv_num_pages(r->kv));
    rad_cache_destroy(r->cache);
    rad_req_to_token_pool_destroy(r->rows);
    rad_kv_allocator_destroy(r->kv);
}

/* Computes all of a key and gives it to the tree; content is the token itself. */
static void compute(rig *r, const rad_key *key, uint32_t ps)
{
    rad_page page;
    rad_slot slots[64];
    rad_inserted in;
    for (uint32_t i = 0; i < key->num_tokens; i++) {
        if (i % ps == 0) CHECK_OK(rad_kv_alloc(r->kv, &page, 1));
        slots[i] = page * (rad_slot)ps + (rad_slot)(i % ps);
        r->pool.content[slots[i]] = key->tokens[i];
    }
    CHECK_OK(rad_cache_insert(r->cache, key, slots, NULL, &in, NULL));
    for (uint32_t i = 0; i < in.prefix_tokens; i += ps)
        CHECK_OK(rad_kv_free_slots(r->kv, slots + i, ps, NULL));
    check(r->cache);
}

TEST(the_front_of_a_page_is_copied)
{
    static rig r;
    rig_init(&r, 4, 10, 0);
    rad_slot slots[16], mine[4];
    rad_match m, peek;
    uint32_t count;
    compute(&r, KEY(1, 2, 3, 4, 5, 6, 7, 8), 4);
    compute(&r, KEY(1, 2, 3, 4, 5, 6, 9, 9), 4);
    const rad_key *key = KEY(1, 2, 3, 4, 5, 6, 7, 99, 100);
    CHECK_OK(rad_cache_lookup(r.cache, key, &peek));
    CHECK_OK(rad_cache_match_prefix(r.cache, key, slots, &m, NULL));
    CHECK(m.prefix_tokens == 4 && m.partial_tokens == 3 && peek.partial_tokens == 3);
    uint32_t free_pages = rad_kv_available_pages(r.kv);
    CHECK_OK(rad_cache_reuse_partial(r.cache, key, &m, mine, &count));
    CHECK(count == 3 && rad_kv_available_pages(r.kv) == free_pages - 1 && mine[0] % 4 == 0);
    for (uint32_t i = 0; i < 3; i++)
        CHECK(mine[i] == mine[0] + (rad_slot)i && r.pool.content[mine[i]] == key->tokens[4 + i]);
    CHECK(rad_cache_total_size(r.cache) == 12); /* private: the tree knows nothing of it */

    /* The request computes the rest of the page and publishes it like any other. */
    rad_req_kv req = {.key = *key, .protected_len = 4, .committed_len = 8, .allocated_len = 8};
    CHECK_OK(rad_cache_inc_lock_ref(r.cache, m.last_node, &req.lock, NULL));
    CHECK_OK(rad_req_to_token_alloc(r.rows, &req.row));
    rad_slot *row = rad_req_to_token_row(r.rows, req.row);
    memcpy(row, slots, 4 * sizeof *row);
    memcpy(row + 4, mine, 3 * sizeof *row);
    CHECK_OK(
        rad_kv_alloc_extend(r.kv, 1, (uint32_t[]){7}, (uint32_t[]){8}, &row[6], row + 7, NULL));
    CHECK(row[7] == mine[0] + 3);
    const rad_req_kv *reqs[] = {&req};
    rad_error err = {0};
    CHECKF(!rad_cache_check_ownership(r.cache, reqs, 1, &err), "%s", err.text);
    CHECK_OK(rad_cache_finished_req(r.cache, &req, 1, NULL));
    CHECK(rad_cache_total_size(r.cache) == 16);
    CHECK_OK(rad_cache_match_prefix(r.cache, key, slots, &m, NULL));
    CHECK(m.prefix_tokens == 8 && m.partial_tokens == 0 && slots[4] == mine[0]);

    /* In the first page, from the root; inside an edge; nothing in common. */
    CHECK_OK(rad_cache_match_prefix(r.cache, KEY(1, 2), slots, &m, NULL));
    CHECK(m.prefix_tokens == 0 && m.partial_tokens == 2);
    CHECK_OK(rad_cache_reuse_partial(r.cache, KEY(1, 2), &m, mine, &count));
    CHECK(count == 2 && r.pool.content[mine[1]] == 2);
    CHECK_OK(rad_kv_free_slots(r.kv, mine, 2, NULL));
    CHECK_OK(rad_cache_match_prefix(r.cache, KEY(2, 2), slots, &m, NULL));
    CHECK(m.partial_tokens == 0);
    CHECK_OK(rad_cache_reuse_partial(r.cache, KEY(2, 2), &m, mine, &count));
    CHECK(count == 0);
    rig_fini(&r);
}

TEST(a_partial_page_evicts_for_its_place_but_never_its_source)
{
    static rig r;
    rig_init(&r, 4, 4, 0);
    rad_slot mine[4];
    rad_match m;
    uint32_t count;
    compute(&r, KEY(1, 2, 3, 4, 5, 6, 7, 8), 4);
    compute(&r, KEY(9, 9, 9, 9, 8, 8, 8, 8), 4); /* full, and used later */
    const rad_key *key = KEY(1, 2, 3, 4, 5, 6, 0);
    CHECK_OK(rad_cache_lookup(r.cache, key, &m)); /* does not touch: the source is coldest */
    CHECK(m.prefix_tokens == 4 && m.partial_tokens == 2);
    CHECK_OK(rad_cache_reuse_partial(r.cache, key, &m, mine, &count));
    CHECK(count == 2 && r.pool.content[mine[0]] == 5 && r.pool.content[mine[1]] == 6);
    CHECK(rad_cache_total_size(r.cache) == 12 && rad_cache_protected_size(r.cache) == 0);
    check(r.cache);
    CHECK_OK(rad_kv_free_slots(r.kv, mine, 1, NULL));

    /* A copy that fails: the page goes back. No page to be had: so it is said. */
    r.pool.answer = RAD_E_IO;
    uint32_t free_pages = rad_kv_available_pages(r.kv);
    CHECK(rad_cache_reuse_partial(r.cache, key, &m, mine, &count) == RAD_E_IO && count == 0);
    CHECK(rad_kv_available_pages(r.kv) == free_pages);
    r.pool.answer = RAD_OK;
    rad_match a, b;
    rad_receipt locks[2];
    CHECK_OK(rad_cache_match_prefix(r.cache, KEY(9, 9, 9, 9, 8, 8, 8, 8), NULL, &a, NULL));
    CHECK_OK(rad_cache_match_prefix(r.cache, KEY(1, 2, 3, 4, 5, 6, 7, 8), NULL, &b, NULL));
    CHECK_OK(rad_cache_inc_lock_ref(r.cache, a.last_node, &locks[0], NULL));
    CHECK_OK(rad_cache_inc_lock_ref(r.cache, b.last_node, &locks[1], NULL));
    rad_page rest[4];
    uint32_t num = rad_kv_available_pages(r.kv);
    CHECK_OK(rad_kv_alloc(r.kv, rest, num));
    CHECK_OK(rad_cache_lookup(r.cache, key, &m));
    CHECK(rad_cache_reuse_partial(r.cache, key, &m, mine, &count) == RAD_FULL && count == 0);
    CHECK_OK(rad_kv_free(r.kv, rest, num, NULL));
    CHECK_OK(rad_cache_dec_lock_ref(r.cache, &locks[0], NULL));
    CHECK_OK(rad_cache_dec_lock_ref(r.cache, &locks[1], NULL));
    CHECK_OK(rad_cache_evict(r.cache, 100, NULL, NULL));
    CHECK(rad_cache_reuse_partial(r.cache, key, &m, mine, &count) == RAD_E_STATE);
    check(r.cache);
    rig_fini(&r);

    rad_cache *plain = make(4);
    CHECK_OK(rad_cache_match_prefix(plain, key, NULL, &m, NULL));
    CHECK(rad_cache_reuse_partial(plain, key, &m, mine, &count) == RAD_E_UNSUPPORTED);
    rad_cache_destroy(plain);
}

/* A replay knows nothing of copied pages, and demotion goes by places in the heap of leaves: once a
 * copy filed its source anew, and a server began a write one step before its replay. */
TEST(a_copy_into_a_free_page_moves_no_leaf)
{
    static rig r;
    rig_init(&r, 4, 10, 0);
    for (rad_token i = 1; i <= 4; i++)
        compute(&r, KEY(i, i, i, i), 4);
    heap *leaves = &radix_cache_of(r.cache)->tree.leaves;
    heap_entry before[4];
    rad_slot slots[4], mine[4];
    rad_match m;
    uint32_t count;
    CHECK_OK(rad_cache_match_prefix(r.cache, KEY(1, 1, 1, 1), slots, &m, NULL));
    CHECK(leaves->count == 4); /* filed as it was before that match */
    memcpy(before, leaves->entries, sizeof before);
    CHECK_OK(rad_cache_lookup(r.cache, KEY(1, 1, 1, 9), &m));
    CHECK_OK(rad_cache_reuse_partial(r.cache, KEY(1, 1, 1, 9), &m, mine, &count));
    CHECK(count == 3 && r.pool.content[mine[0]] == 1);
    CHECK(leaves->count == 4 && memcmp(before, leaves->entries, sizeof before) == 0);
    CHECK_OK(rad_kv_free_slots(r.kv, mine, 1, NULL));
    rig_fini(&r);
}

TEST(partial_pages_of_pairs)
{
    static rig r;
    rig_init(&r, 4, 10, 1);
    rad_match m;
    rad_slot slots[8] = {4, 5, 6, 7}, mine[4];
    uint32_t count;
    rad_page page;
    CHECK_OK(rad_kv_alloc(r.kv, &page, 1));
    for (int i = 0; i < 4; i++)
        slots[i] = page * 4 + i;
    CHECK_OK(rad_cache_insert(r.cache, KEY(1, 2, 3, 4, 5), slots, NULL, NULL, NULL));
    CHECK_OK(rad_cache_match_prefix(r.cache, KEY(1, 2, 3, 9, 9), slots, &m, NULL));
    CHECK(m.prefix_tokens == 0 && m.partial_tokens == 2); /* (1 2)(2 3) */
    CHECK_OK(rad_cache_reuse_partial(r.cache, KEY(1, 2, 3, 9, 9), &m, mine, &count));
    CHECK(count == 2);
    CHECK_OK(rad_kv_free_slots(r.kv, mine, 2, NULL));
    CHECK_OK(rad_cache_match_prefix(r.cache, KEY(7, 2, 3, 4, 5), slots, &m, NULL));
    CHECK(m.partial_tokens == 0);
    CHECK_OK(rad_cache_match_prefix(r.cache, KEY(1), slots, &m, NULL));
    CHECK(m.partial_tokens == 0);
    rig_fini(&r);
}

/* --- dumps --- */

typedef struct sink {
    char text[4096];
    size_t used;
    uint32_t calls;
    rad_status answer;
} sink;

static rad_status gather(void *user, const char *text, size_t bytes)
{
    sink *s = user;
    s->calls++;
    CHECK(s->used + bytes < sizeof s->text);
    memcpy(s->text + s->used, text, bytes);
    s->used += bytes;
    return s->answer;
}

TEST(dumps_show_everything)
{
    rad_cache *cache = make(1);
    static sink s;
    s = (sink){0};
    CHECK_OK(rad_cache_dump(cache, RAD_CACHE_DUMP_TEXT, gather, &s));
    CHECK(strcmp(s.text, "#tokens: 0\n") == 0);
    insert(cache, KEY(1, 2, 3), SLOTS(10, 20, 30));
    rad_match_handle h = handle_of(cache, KEY(1, 2));
    insert(cache, KEY(1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14),
           SLOTS(10, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12));
    rad_receipt receipt;
    CHECK_OK(rad_match_handle_lock(cache, &h, &receipt, NULL)); /* the deep half: [3] */
    s = (sink){0};
    CHECK_OK(rad_cache_dump(cache, RAD_CACHE_DUMP_TEXT, gather, &s));
    CHECKF(strcmp(s.text, "2 [1, 2] r=1\n"
                          "  11 [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, ...] r=0\n"
                          "  1 [3] r=1\n"
                          "#tokens: 14\n") == 0,
           "%s", s.text);
    CHECK_OK(rad_cache_dec_lock_ref(cache, &receipt, NULL));

    rad_key named = *KEY(5);
    named.extra_key = "lo\"ra\\\n";
    insert(cache, &named, SLOTS(99));
    s = (sink){0};
    CHECK_OK(rad_cache_dump(cache, RAD_CACHE_DUMP_JSON, gather, &s));
    CHECKF(strstr(s.text, "{\"page_size\":1,\"is_eagle\":false,\"total_tokens\":15,") == s.text,
           "%s", s.text);
    CHECK(strstr(s.text, "\"num_tokens\":2,\"tokens\":[1,2],\"pages\":[10,20],\"lock_ref\":0,"));
    CHECKF(strstr(s.text, "\"extra_key\":\"lo\\u0022ra\\u005c\\u000a\",\"cache_salt\":null"), "%s",
           s.text);
    s = (sink){.answer = RAD_E_IO};
    CHECK(rad_cache_dump(cache, RAD_CACHE_DUMP_JSON, gather, &s) == RAD_E_IO && s.calls == 1);
    CHECK(rad_cache_dump(cache, 7, gather, &s) == RAD_E_INVAL);

    rad_slot slots[16];
    uint64_t count;
    CHECK_OK(rad_cache_all_values_flatten(cache, NULL, 0, &count));
    CHECK(count == 15);
    CHECK_OK(rad_cache_all_values_flatten(cache, slots, 16, &count));
    uint64_t seen = 0;
    for (uint64_t i = 0; i < count; i++)
        seen += (uint64_t)slots[i];
    CHECK(seen == 10 + 20 + 30 + 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9 + 11 + 12 + 99);
    rad_cache_destroy(cache);
}

TEST(a_node_says_what_it_is)
{
    rad_cache *cache = make(2);
    rad_node_info info = {.struct_size = sizeof info}, up = info;
    rad_insert_params how = {.priority = 7};
    rad_inserted in, fork;
    rad_receipt lock;
    rad_error err = {0};
    CHECK_OK(rad_cache_insert(cache, KEY(1, 2, 3, 4, 5, 6, 7), SLOTS(2, 3, 4, 5, 6, 7, 8), &how,
                              &in, NULL));
    CHECK_OK(rad_cache_insert(cache, KEY(1, 2, 9, 9), SLOTS(2, 3, 8, 9), NULL, &fork, NULL));
    CHECK_OK(rad_cache_inc_lock_ref(cache, in.node, &lock, NULL));
    CHECK_OK(rad_cache_get_node_info(cache, in.node, &info, NULL));
    CHECK(info.num_tokens == 4 && info.depth_tokens == 6 && info.num_children == 0);
    CHECK(info.on_device && !info.on_host && !info.is_evictable && info.lock_ref == 1);
    CHECK(info.priority == 7 && info.hit_count == 0 && info.created && !info.window_tokens);
    CHECK_OK(rad_cache_get_node_info(cache, info.parent, &up, NULL));
    CHECK(up.num_tokens == 2 && up.depth_tokens == 2 && up.num_children == 2 && up.lock_ref == 1);
    CHECK(up.hit_count == 1 && up.last_access > info.last_access && up.created == info.created);
    CHECK(!up.parent.index && !up.parent.generation && !up.is_evictable);
    CHECK_OK(rad_cache_get_node_info(cache, fork.node, &up, NULL));
    CHECK(up.is_evictable && memcmp(&up.parent, &info.parent, sizeof up.parent) == 0);
    CHECK_OK(rad_cache_get_node_info(cache, (rad_ref){0, 0}, &up, NULL)); /* the root */
    CHECK(!up.depth_tokens && !up.parent.index && !up.lock_ref && up.struct_size == sizeof up);

    CHECK_OK(rad_cache_dec_lock_ref(cache, &lock, NULL));
    CHECK_OK(rad_cache_evict(cache, 100, NULL, NULL));
    CHECK(rad_cache_get_node_info(cache, in.node, &info, &err) == RAD_E_STATE);
    CHECK(strstr(err.text, "node_info: node ") && strstr(err.text, "stale"));
    CHECK(info.num_tokens == 4); /* untouched */
    CHECK(rad_cache_get_node_info(cache, (rad_ref){1u << 31, 1}, &info, NULL) == RAD_E_STATE);
    info.struct_size = 8;
    CHECK(rad_cache_get_node_info(cache, (rad_ref){0, 0}, &info, NULL) == RAD_E_INVAL);
    CHECK(rad_cache_get_node_info(cache, (rad_ref){0, 0}, NULL, NULL) == RAD_E_INVAL);
    rad_cache_destroy(cache);
}

/* The second key splits what the first one found: as single matches in this order. */
TEST(a_batch_answers_as_single_matches_do)
{
    rad_cache *cache = make(1);
    rad_match m[3];
    rad_slot a[4] = {0}, c[4] = {0}, *slots[] = {a, NULL, c};
    rad_error err = {0};
    insert(cache, KEY(1, 2, 3, 4), SLOTS(10, 20, 30, 40));
    rad_key keys[] = {*KEY(1, 2, 3, 4), *KEY(1, 2, 9), *KEY(7)};
    CHECK_OK(rad_cache_match_batch(cache, keys, 3, slots, m, NULL));
    check(cache);
    CHECK(m[0].prefix_tokens == 4 && m[1].prefix_tokens == 2 && m[2].prefix_tokens == 0);
    CHECK(a[3] == 40 && c[0] == 0 && m[0].last_node.index && m[1].last_node.index);
    CHECK(m[0].last_node.index != m[1].last_node.index && !m[2].last_node.index);
    CHECK_OK(rad_cache_match_batch(cache, keys, 3, NULL, m, NULL));
    CHECK_OK(rad_cache_match_batch(cache, NULL, 0, NULL, NULL, NULL));

    rad_node_info before = {.struct_size = sizeof before}, after = before;
    CHECK_OK(rad_cache_get_node_info(cache, m[0].last_node, &before, NULL));
    keys[2].tokens = NULL; /* found wrong before anything is touched */
    CHECK(rad_cache_match_batch(cache, keys, 3, NULL, m, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "key 2 of 3"));
    CHECK(rad_cache_match_batch(cache, keys, 3, NULL, NULL, NULL) == RAD_E_INVAL);
    CHECK_OK(rad_cache_get_node_info(cache, m[0].last_node, &after, NULL));
    CHECK(after.last_access == before.last_access);
    rad_cache_destroy(cache);
}

TEST(a_disabled_cache_never_caches)
{
    rad_cache_params params = {.struct_size = sizeof params, .disable = 1};
    rad_cache *cache = NULL;
    rad_match m;
    CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
    CHECK(rad_cache_insert(cache, KEY(1, 2, 3), SLOTS(1, 2, 3), NULL, NULL, NULL) ==
          RAD_E_UNSUPPORTED);
    CHECK_OK(rad_cache_match_prefix(cache, KEY(1, 2, 3), NULL, &m, NULL));
    CHECK(m.prefix_tokens == 0 && rad_cache_total_size(cache) == 0);
    rad_match_handle h = handle_of(cache, KEY(1, 2, 3)), other = {.node = {3, 3}, .num_tokens = 1};
    rad_receipt receipt;
    rad_page_span span;
    uint32_t count;
    uint64_t all;
    CHECK(h.num_tokens == 0);
    CHECK_OK(rad_match_handle_lock(cache, &h, &receipt, NULL));
    CHECK_OK(rad_cache_dec_lock_ref(cache, &receipt, NULL));
    CHECK(rad_match_handle_lock(cache, &other, &receipt, NULL) == RAD_E_STATE);
    CHECK_OK(rad_cache_match_spans(cache, KEY(1, 2), &span, 1, &count, &m));
    CHECK(count == 0);
    CHECK(rad_cache_insert_from(cache, &h, KEY(1), SLOTS(1), NULL, NULL, NULL) ==
          RAD_E_UNSUPPORTED);
    CHECK_OK(rad_cache_all_values_flatten(cache, NULL, 0, &all));
    CHECK(all == 0);
    CHECK(rad_cache_get_node_info(cache, (rad_ref){0, 0},
                                  &(rad_node_info){.struct_size = sizeof(rad_node_info)},
                                  NULL) == RAD_E_UNSUPPORTED);
    static sink s;
    s = (sink){0};
    CHECK_OK(rad_cache_dump(cache, RAD_CACHE_DUMP_JSON, gather, &s));
    CHECK(strstr(s.text, "\"nodes\":[]}"));
    rad_cache_destroy(cache);
}

TEST(finished_requests_can_be_kept_out)
{
    for (uint32_t keep_out = 0; keep_out < 2; keep_out++) {
        rad_kv_allocator *kv;
        rad_req_to_token_pool *rows;
        rad_cache *cache;
        CHECK_OK(rad_kv_allocator_create(
            NULL, &(rad_kv_allocator_params){sizeof(rad_kv_allocator_params), 9, 1}, &kv, NULL));
        CHECK_OK(rad_req_to_token_pool_create(
            NULL, &(rad_req_to_token_pool_params){sizeof(rad_req_to_token_pool_params), 1, 8},
            &rows, NULL));
        rad_cache_params params = {.struct_size = sizeof params,
                                   .kv_allocator = kv,
                                   .req_to_token_pool = rows,
                                   .disable_finished_insert = keep_out};
        CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
        rad_req_kv req = {.key = *KEY(1, 2, 3), .committed_len = 3, .allocated_len = 3};
        CHECK_OK(rad_req_to_token_alloc(rows, &req.row));
        CHECK_OK(rad_kv_alloc(kv, rad_req_to_token_row(rows, req.row), 3));
        CHECK_OK(rad_cache_finished_req(cache, &req, 1, NULL));
        CHECK(rad_cache_total_size(cache) == (keep_out ? 0 : 3));
        CHECK_OK(rad_cache_check_ownership(cache, NULL, 0, NULL));
        rad_cache_destroy(cache);
        rad_req_to_token_pool_destroy(rows);
        rad_kv_allocator_destroy(kv);
    }
}

TEST_MAIN()
