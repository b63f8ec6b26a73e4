/* test_bigram_keys.c - EAGLE's keys: n tokens are n - 1 pairs.
 *
 * SGLang's vectors: [1 2 3 4] is (1 2)(2 3)(3 4), fewer than two
 * tokens are an empty key, the match length is min(common tokens - 1, both lengths),
 * then rounded down to pages, and a finished request keeps the slot of its last token. */
#include "cache_literals.h"
#include "test.h"

#include <radish/explain.h>
#include <radish/match_handle.h>
#include <radish/retention.h>

static rad_cache *make(uint32_t page_size)
{
    rad_cache_params params = {.struct_size = sizeof params, .page_size = page_size, .is_eagle = 1};
    rad_cache *cache = NULL;
    CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
    return cache;
}

/* Slots are whole pages from `first` on, one per pair. */
static uint32_t insert(rad_cache *cache, const rad_key *key, rad_slot first)
{
    rad_slot slots[64];
    rad_error err = {0};
    rad_inserted in;
    for (uint32_t i = 0; i < key->num_tokens; i++)
        slots[i] = first + (rad_slot)i;
    CHECK_OK(rad_cache_insert(cache, key, slots, NULL, &in, NULL));
    CHECKF(rad_cache_check(cache, &err) == RAD_OK, "%s", err.text);
    return in.prefix_tokens;
}

static uint32_t matched(rad_cache *cache, const rad_key *key, rad_slot *slots)
{
    rad_match peek, m;
    rad_error err = {0};
    CHECK_OK(rad_cache_lookup(cache, key, &peek));
    CHECK_OK(rad_cache_match_prefix(cache, key, slots, &m, NULL));
    CHECK(peek.prefix_tokens == m.prefix_tokens);
    CHECKF(rad_cache_check(cache, &err) == RAD_OK, "%s", err.text);
    return m.prefix_tokens;
}

TEST(n_tokens_are_n_minus_one_pairs)
{
    rad_cache *cache = make(1);
    rad_slot slots[8];
    CHECK(insert(cache, &(rad_key){0}, 1) == 0);
    CHECK(insert(cache, KEY(1), 1) == 0);
    CHECK(rad_cache_total_size(cache) == 0);
    CHECK(insert(cache, KEY(1, 2, 3, 4), 10) == 0);
    CHECK(rad_cache_total_size(cache) == 3);
    CHECK(matched(cache, KEY(1, 2, 3, 4), slots) == 3);
    CHECK(slots[0] == 10 && slots[1] == 11 && slots[2] == 12);
    CHECK(matched(cache, KEY(1, 2, 3), NULL) == 2);
    CHECK(matched(cache, KEY(1, 2), NULL) == 1);
    CHECK(matched(cache, KEY(1), NULL) == 0);
    CHECK(matched(cache, &(rad_key){0}, NULL) == 0);
    CHECK(matched(cache, KEY(1, 2, 3, 9), NULL) == 2); /* (3 9) is another pair than (3 4) */
    CHECK(matched(cache, KEY(1, 9), NULL) == 0);
    CHECK(matched(cache, KEY(9, 2, 3, 4), NULL) == 0); /* (9 2) */
    CHECK(matched(cache, KEY(2, 3, 4), NULL) == 0);
    rad_cache_destroy(cache);
}

/* A key may come without any tokens: nothing is computed from its pointer. */
TEST(no_tokens_are_no_place_to_look)
{
    rad_cache_params params = {
        .struct_size = sizeof params, .is_eagle = 1, .retention = 1, .explain_pages = 8};
    rad_cache *cache = NULL;
    rad_key none = {0};
    rad_explanation e;
    uint32_t count = 9;
    rad_match_handle h;
    CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
    insert(cache, KEY(1, 2, 3), 1);
    CHECK_OK(rad_cache_explain(cache, &none, &e));
    CHECK(e.prefix_tokens == 0);
    CHECK_OK(rad_cache_match_handle(cache, &none, &h));
    CHECK(h.num_tokens == 0 && matched(cache, &none, NULL) == 0);
    CHECK_OK(rad_cache_retain_prefix(cache, &none, 5, 1000, &count));
    CHECK(count == 0 && insert(cache, &none, 5) == 0);
    rad_cache_destroy(cache);
}

TEST(first_tokens_keep_prompts_apart)
{
    rad_cache *cache = make(2);
    rad_slot slots[8];
    /* Equal from the second token on: only the lead tells them apart. */
    for (rad_token lead = 0; lead < 20; lead++)
        CHECK(insert(cache, KEY(lead, 5, 6, 7, 8), 4 + lead * 4) == 0);
    CHECK(rad_cache_total_size(cache) == 80);
    for (rad_token lead = 0; lead < 20; lead++) {
        CHECK(matched(cache, KEY(lead, 5, 6, 7, 8, 9), slots) == 4);
        CHECK(slots[0] == 4 + lead * 4 && slots[3] == 7 + lead * 4);
        CHECK(matched(cache, KEY(lead, 5, 6, 7), NULL) == 2); /* three pairs, one page */
    }
    CHECK(matched(cache, KEY(20, 5, 6, 7, 8), NULL) == 0);
    CHECK(insert(cache, KEY(3, 5, 6, 1, 2), 204) == 2); /* a split below a lead */
    CHECK(matched(cache, KEY(3, 5, 6, 7, 8), slots) == 4 && slots[2] == 18);
    CHECK(matched(cache, KEY(3, 5, 6, 1, 2), slots) == 4 && slots[2] == 206);
    rad_cache_destroy(cache);
}

static void collect(void *user, rad_ref node, uint32_t depth, const rad_token *tokens,
                    const rad_slot *slots, uint32_t num_tokens, uint32_t lock_ref,
                    uint32_t hit_count)
{
    char *text = user;
    (void)node, (void)slots, (void)lock_ref, (void)hit_count;
    sprintf(text + strlen(text), "%u", depth);
    for (uint32_t i = 0; i < num_tokens; i++)
        sprintf(text + strlen(text), "(%d %d)", tokens[i], tokens[i + 1]);
}

TEST(a_walk_shows_whole_pairs)
{
    rad_cache *cache = make(1);
    char text[256] = "";
    insert(cache, KEY(1, 2, 3, 4), 10);
    insert(cache, KEY(1, 2, 3, 5, 6), 20);
    CHECK_OK(rad_cache_walk(cache, collect, text));
    CHECKF(strstr(text, "1(1 2)(2 3)") == text, "%s", text);
    CHECKF(strstr(text, "2(3 4)") && strstr(text, "2(3 5)(5 6)"), "%s", text);
    rad_cache_destroy(cache);
}

TEST(eviction_and_merge_keep_the_lead)
{
    rad_cache *cache = make(1);
    uint64_t done;
    insert(cache, KEY(7, 1, 2, 3, 4), 10);
    insert(cache, KEY(8, 1, 2, 3, 4), 20);
    insert(cache, KEY(7, 1, 2, 9), 30);
    CHECK_OK(rad_cache_evict(cache, 3, &done, NULL)); /* from (8 ..), which was used least */
    CHECK(done == 3 && matched(cache, KEY(8, 1, 2, 3, 4), NULL) <= 4);
    CHECK_OK(rad_cache_evict(cache, 1000, &done, NULL));
    CHECK(rad_cache_total_size(cache) == 0 && matched(cache, KEY(7, 1), NULL) == 0);

    /* With few nodes the tree merges what splits made; leads stay right. */
    rad_cache_destroy(cache);
    rad_cache_params params = {
        .struct_size = sizeof params, .is_eagle = 1, .max_nodes = 6, .max_tokens = 64};
    CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
    uint64_t seed = test_seed(), state = seed;
    for (int i = 0; i < 3000; i++) {
        rad_token tokens[12];
        for (int k = 0; k < 12; k++)
            tokens[k] = (rad_token)(test_random(&state) % 2);
        rad_key key = {.tokens = tokens, .num_tokens = 2 + (uint32_t)(test_random(&state) % 11)};
        insert(cache, &key, 1);
        CHECKF(matched(cache, &key, NULL) == key.num_tokens - 1, "seed %llu",
               (unsigned long long)seed);
    }
    rad_cache_stats stats;
    rad_cache_get_stats(cache, &stats);
    CHECK(stats.merges > 0);
    rad_cache_destroy(cache);
}

/* Two requests with the same prompt: the pairs of the first are published, the slot of
 * its last token stays its own; the second's duplicates are freed and its row remapped. */
TEST(requests_keep_the_slot_of_their_last_token)
{
    rad_kv_allocator *kv;
    rad_req_to_token_pool *rows;
    rad_cache *cache;
    CHECK_OK(rad_kv_allocator_create(
        NULL, &(rad_kv_allocator_params){sizeof(rad_kv_allocator_params), 20, 2}, &kv, NULL));
    CHECK_OK(rad_req_to_token_pool_create(
        NULL, &(rad_req_to_token_pool_params){sizeof(rad_req_to_token_pool_params), 4, 32}, &rows,
        NULL));
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = 2,
                               .is_eagle = 1,
                               .kv_allocator = kv,
                               .req_to_token_pool = rows};
    CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
    rad_token tokens[7] = {1, 2, 3, 4, 5, 6, 7};
    rad_req_kv req[2] = {0};
    rad_error err = {0};
    for (int i = 0; i < 2; i++) {
        uint32_t from = 0, to = 6;
        rad_slot last = -1;
        req[i].key = (rad_key){.tokens = tokens, .num_tokens = 7};
        CHECK_OK(rad_req_to_token_alloc(rows, &req[i].row));
        CHECK_OK(rad_kv_alloc_extend(kv, 1, &from, &to, &last,
                                     rad_req_to_token_row(rows, req[i].row), NULL));
        req[i].committed_len = req[i].allocated_len = 6;
    }
    CHECK(rad_kv_available_pages(kv) == 14);
    const rad_req_kv *both[2] = {&req[0], &req[1]};
    for (int i = 0; i < 2; i++) { /* 6 positions are 5 pairs are 2 pages */
        CHECK_OK(rad_cache_unfinished_req(cache, &req[i], 0, NULL));
        CHECK(req[i].protected_len == 4 && rad_cache_total_size(cache) == 4);
        CHECKF(rad_cache_check_ownership(cache, both, 2, &err) == RAD_OK, "%s", err.text);
    }
    CHECK(rad_kv_available_pages(kv) == 16); /* 2 cached, 1 partial page each */
    CHECK(memcmp(rad_req_to_token_row(rows, req[0].row), rad_req_to_token_row(rows, req[1].row),
                 4 * sizeof(rad_slot)) == 0);
    CHECK_OK(rad_cache_finished_req(cache, &req[0], 1, NULL));
    CHECK(rad_cache_total_size(cache) == 4 && rad_kv_available_pages(kv) == 17);
    CHECK_OK(rad_cache_finished_req(cache, &req[1], 1, NULL));
    CHECK(rad_kv_available_pages(kv) == 18 && rad_cache_protected_size(cache) == 0);

    /* One token more makes the sixth pair, and with it the third page. */
    rad_slot slots[8];
    rad_match m;
    rad_key key = {.tokens = tokens, .num_tokens = 7};
    CHECK_OK(rad_cache_match_prefix(cache, &key, slots, &m, NULL));
    CHECK(m.prefix_tokens == 4);
    rad_req_kv third = {.key = key, .protected_len = 4, .committed_len = 7, .allocated_len = 7};
    CHECK_OK(rad_cache_inc_lock_ref(cache, m.last_node, &third.lock, NULL));
    CHECK_OK(rad_req_to_token_alloc(rows, &third.row));
    rad_slot *row = rad_req_to_token_row(rows, third.row);
    memcpy(row, slots, 4 * sizeof *slots);
    CHECK_OK(rad_kv_alloc_extend(kv, 1, (uint32_t[]){4}, (uint32_t[]){7}, &row[3], row + 4, NULL));
    CHECK_OK(rad_cache_finished_req(cache, &third, 1, NULL));
    CHECK(rad_cache_total_size(cache) == 6 && rad_kv_available_pages(kv) == 17);
    CHECK_OK(rad_cache_check_ownership(cache, NULL, 0, &err));
    rad_cache_destroy(cache);
    rad_req_to_token_pool_destroy(rows);
    rad_kv_allocator_destroy(kv);
}

TEST_MAIN()
