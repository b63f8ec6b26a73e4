/* test_sglang_cases.c - what SGLang's own tests ask of a radix cache, those of them that are not
 * among test_radix_cache.c, test_req_life.c, test_page_hash.c and test_kv_events.c; and the
 * tree's shape as a simulation of SGLang gives it.
 *
 * Where radish differs from SGLang, these tests expect radish's values:
 *   - eviction frees exactly what is asked, from the tail: "insert 10 tokens, evict(1)"
 *     frees 1, not 10, and 1 of [5, 6], not 2;
 *   - hit_count: a new node has 0 (SGLang 1), so the hits of the tree's shape are 3, 1, 1, 0, 0
 *     instead of 4, 2, 2, 1, 1;
 *   - with page_size > 1 the slots of a page must be a page;
 *   - a disabled cache refuses a raw insert (RAD_E_UNSUPPORTED) instead of answering 0;
 *   - an insert without values does not exist: the token ids are passed. */
#include "radix_rig.h"

#include <radish/cache_dump.h>

static uint32_t insert_ids(rad_cache *cache, const rad_key *key)
{
    return insert(cache, key, key->tokens);
}

TEST(case_8_and_10_disabled)
{
    rad_cache_params params = {.struct_size = sizeof params, .page_size = 4, .disable = 1};
    rad_cache *cache = NULL;
    rad_match m;
    CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
    CHECK(rad_cache_insert(cache, KEY(1, 2, 3, 4), SLOTS(4, 5, 6, 7), NULL, NULL, NULL) ==
          RAD_E_UNSUPPORTED);
    CHECK_OK(rad_cache_match_prefix(cache, KEY(1, 2, 3, 4), NULL, &m, NULL));
    CHECK(m.prefix_tokens == 0 && rad_cache_total_size(cache) == 0);
    rad_cache_destroy(cache);
}

TEST(cases_11_12_19)
{
    rad_cache *cache = make(1);
    rad_slot slots[8];
    uint64_t count, sum = 0;
    insert_ids(cache, KEY(1, 2, 3));
    CHECK(rad_cache_total_size(cache) == 3);
    insert_ids(cache, KEY(4, 5));
    CHECK(rad_cache_total_size(cache) == 5);
    rad_cache_destroy(cache);

    cache = make(1);
    insert(cache, KEY(1, 2), SLOTS(10, 20));
    insert(cache, KEY(3, 4), SLOTS(30, 40));
    CHECK_OK(rad_cache_all_values_flatten(cache, slots, 8, &count));
    for (uint64_t i = 0; i < count; i++)
        sum += UINT64_C(1) << slots[i];
    CHECK(count == 4 && sum == (1ull << 10 | 1ull << 20 | 1ull << 30 | 1ull << 40));
    rad_cache_destroy(cache);
}

TEST(case_15_namespaces)
{
    rad_cache *cache = make(1);
    const char *names[] = {"key1", "key2", NULL};
    rad_key key = *KEY(1, 2, 3);
    for (int i = 0; i < 3; i++) {
        key.extra_key = names[i];
        CHECK(insert(cache, &key, SLOTS(10 * i + 1, 10 * i + 2, 10 * i + 3)) == 0);
    }
    for (int i = 0; i < 3; i++) {
        key.extra_key = names[i];
        CHECK(matches(cache, &key, SLOTS(10 * i + 1, 10 * i + 2, 10 * i + 3), 3));
    }
    key.extra_key = "nonexistent";
    CHECK(matches(cache, &key, SLOTS(0), 0));
    rad_cache_destroy(cache);
}

TEST(case_18_page_alignment)
{
    static const uint32_t cases[][2] = {{1, 5}, {2, 5}, {4, 6}};
    for (int i = 0; i < 3; i++) {
        uint32_t ps = cases[i][0], n = cases[i][1];
        rad_cache *cache = make(ps);
        rad_slot slots[8];
        rad_match m;
        for (uint32_t k = 0; k < 8; k++)
            slots[k] = (rad_slot)(ps + k);
        rad_key key = *KEY(1, 2, 3, 4, 5, 6);
        key.num_tokens = n;
        insert(cache, &key, slots);
        CHECK_OK(rad_cache_match_prefix(cache, &key, NULL, &m, NULL));
        CHECK(m.prefix_tokens == n / ps * ps && m.prefix_tokens > 0);
        rad_cache_destroy(cache);
    }
}

/* 10,000 sequences of 10,000 shared and 100 own tokens: what is cached is the tokens that
 * differ, and the metadata was allocated once. */
TEST(case_25_memory)
{
    enum { SHARED = 10000, OWN = 100 };
    uint32_t num = (uint32_t)test_scale(500, 10000);
    test_env t;
    rad_env env = test_env_init(&t);
    rad_cache_params params = {.struct_size = sizeof params,
                               .max_tokens = SHARED + (uint64_t)num * OWN};
    rad_cache *cache = NULL;
    CHECK_OK(rad_cache_create(&env, &params, &cache, NULL));
    size_t bytes = t.bytes;
    static rad_token tokens[SHARED + OWN];
    static rad_slot slots[SHARED + OWN];
    for (int i = 0; i < SHARED; i++)
        tokens[i] = slots[i] = i;
    for (uint32_t i = 0; i < num; i++) {
        for (uint32_t k = 0; k < OWN; k++) {
            tokens[SHARED + k] = (rad_token)(i * OWN + k);
            slots[SHARED + k] = (rad_slot)(SHARED + i * OWN + k);
        }
        rad_key key = {.tokens = tokens, .num_tokens = SHARED + OWN};
        rad_inserted in;
        CHECK_OK(rad_cache_insert(cache, &key, slots, NULL, &in, NULL));
        CHECK(in.prefix_tokens == (i ? SHARED : 0));
    }
    CHECK(rad_cache_total_size(cache) == SHARED + (uint64_t)num * OWN);
    CHECK(t.bytes == bytes);
    if (num == 10000) CHECK(bytes < 2 * 8 * rad_cache_total_size(cache));
    rad_cache_destroy(cache);
}

typedef struct text {
    char bytes[1024];
    size_t used;
} text;

static rad_status gather(void *user, const char *piece, size_t bytes)
{
    text *t = user;
    if (t->used + bytes >= sizeof t->bytes) return RAD_E_LIMIT;
    memcpy(t->bytes + t->used, piece, bytes);
    t->used += bytes;
    return RAD_OK;
}

TEST(vectors_of_11_2)
{
    rad_cache *cache = make(1);
    text t = {0};
    CHECK(insert_ids(cache, KEY(1, 2, 3)) == 0);
    CHECK(insert_ids(cache, KEY(1, 2, 3)) == 3);
    CHECK(insert_ids(cache, KEY(1, 2, 4, 5)) == 2);
    CHECK(insert_ids(cache, KEY(1, 2, 4, 5, 6, 7)) == 4);
    CHECK(insert_ids(cache, KEY(8, 9, 10, 11, 12)) == 0);
    CHECK(rad_cache_total_size(cache) == 12);
    CHECK(matches(cache, KEY(1, 2, 3, 13, 14), SLOTS(1, 2, 3), 3));
    CHECK_OK(rad_cache_dump(cache, RAD_CACHE_DUMP_TEXT, gather, &t));
    CHECKF(strstr(t.bytes, "2 [1, 2] r=0\n") && strstr(t.bytes, "  1 [3] r=0\n") &&
               strstr(t.bytes, "  2 [4, 5] r=0\n    2 [6, 7] r=0\n") &&
               strstr(t.bytes, "5 [8, 9, 10, 11, 12] r=0\n") && strstr(t.bytes, "#tokens: 12\n"),
           "%s", t.bytes);
    rad_cache_destroy(cache);

    cache = make(1);
    uint64_t done;
    insert_ids(cache, KEY(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
    CHECK_OK(rad_cache_evict(cache, 1, &done, NULL));
    CHECK(done == 1 && rad_cache_total_size(cache) == 9);
    rad_cache_destroy(cache);
}

TEST(a_full_hit_leaves_one_token_or_a_page_to_compute)
{
    for (uint32_t ps = 1; ps <= 4; ps *= 2) {
        rad_cache *cache = make(ps);
        rad_match m;
        rad_key key = *KEY(1, 2, 3, 4, 5, 6, 7, 8);
        insert(cache, &key, SLOTS(4, 5, 6, 7, 8, 9, 10, 11));
        key.num_tokens--; /* the last token is always computed */
        CHECK_OK(rad_cache_match_prefix(cache, &key, NULL, &m, NULL));
        CHECK(m.prefix_tokens == 8 - ps);
        rad_cache_destroy(cache);
    }
}

/* A node and its only child become one when lock, hits, times and
 * priority agree; in each of these cases one of them does not, and they stay two. */
TEST(a_merge_needs_everything_to_agree)
{
    for (int what = 0; what < 5; what++) {
        rad_cache *cache = make(1);
        rad_insert_params chunk = {.chunked = 1};
        rad_match m;
        rad_receipt receipt = {0};
        rad_cache_stats stats;
        insert(cache, KEY(1, 2, 3, 4), SLOTS(1, 2, 3, 4));
        CHECK_OK(rad_cache_insert(cache, KEY(1, 2, 9), SLOTS(1, 2, 9), &chunk, NULL, NULL));
        CHECK_OK(rad_cache_match_prefix(cache, KEY(1, 2, 3, 4), NULL, &m, NULL));
        if (what == 1) insert(cache, KEY(1, 2), SLOTS(1, 2)); /* hits, and times */
        if (what == 2)
            CHECK_OK(rad_cache_match_prefix(cache, KEY(1, 2), NULL, &m, NULL)); /* times */
        if (what == 3) { /* a lock on the upper one only */
            rad_match upper;
            CHECK_OK(rad_cache_lookup(cache, KEY(1, 2), &upper));
            CHECK_OK(rad_cache_inc_lock_ref(cache, upper.last_node, &receipt, NULL));
        }
        if (what == 4) { /* priority */
            chunk.priority = 3;
            CHECK_OK(rad_cache_insert(cache, KEY(1, 2), SLOTS(1, 2), &chunk, NULL, NULL));
        }
        if (what != 0 && what != 3) /* the branch stays the coldest; only a lock is no use */
            CHECK_OK(rad_cache_lookup(cache, KEY(1, 2, 9), &m));
        CHECK_OK(rad_cache_evict(cache, 1, NULL, NULL)); /* [9] goes */
        rad_cache_get_stats(cache, &stats);
        CHECKF(stats.num_nodes == (what == 0 ? 1u : 2u), "case %d: %llu nodes", what,
               (unsigned long long)stats.num_nodes);
        CHECK(stats.merges == (what == 0));
        if (receipt.held) CHECK_OK(rad_cache_dec_lock_ref(cache, &receipt, NULL));
        CHECK(matches(cache, KEY(1, 2, 3, 4), SLOTS(1, 2, 3, 4), 4));
        CHECK_OK(rad_cache_check(cache, NULL));
        rad_cache_destroy(cache);
    }
}

TEST_MAIN()
