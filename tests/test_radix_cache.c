/* test_radix_cache.c - what SGLang's own tests ask of a radix cache; the rest is in
 * test_sglang_cases.c.
 *
 * Where radish differs from SGLang:
 *   - eviction frees exactly what is asked, from the tail, never a whole leaf more;
 *   - a new node has hit_count 0, SGLang's has 1;
 *   - a split inherits the creation time;
 *   - with page_size > 1 slots must be whole pages. */
#include "cache_failing.h"
#include "radix_rig.h"

#include "cache/radix_cache.h"

/* Inserts with token ids times ten as slots. */
static uint32_t insert10(rad_cache *cache, const rad_key *key)
{
    rad_slot slots[64];
    for (uint32_t i = 0; i < key->num_tokens; i++)
        slots[i] = key->tokens[i] * 10;
    return insert(cache, key, slots);
}

static uint64_t evict(rad_cache *cache, uint64_t tokens)
{
    uint64_t done = 99999;
    CHECK_OK(rad_cache_evict(cache, tokens, &done, NULL));
    check(cache);
    return done;
}

TEST(insert_then_match)
{
    rad_cache *cache = make(1);
    CHECK(insert10(cache, KEY(1, 2, 3)) == 0);
    CHECK(rad_cache_total_size(cache) == 3 && rad_cache_evictable_size(cache) == 3);
    CHECK(matches(cache, KEY(1, 2, 3), SLOTS(10, 20, 30), 3));
    CHECK(matches(cache, KEY(1, 2), SLOTS(10, 20), 2));
    CHECK(matches(cache, KEY(1, 2, 3, 4), SLOTS(10, 20, 30), 3));
    CHECK(match(cache, KEY(2), NULL).prefix_tokens == 0);
    insert10(cache, KEY(4, 5));
    CHECK(rad_cache_total_size(cache) == 5);
    rad_cache_destroy(cache);
}

TEST(an_empty_key_and_a_miss_name_the_root)
{
    rad_cache *cache = make(1);
    rad_key empty = {0};
    rad_match m = match(cache, &empty, NULL);
    CHECK(m.prefix_tokens == 0 && m.last_node.index == 0 && m.last_node.generation == 0);
    CHECK(insert(cache, &empty, NULL) == 0);
    insert10(cache, KEY(1, 2));
    m = match(cache, KEY(9), NULL);
    CHECK(m.prefix_tokens == 0 && m.last_node.index == 0);
    rad_receipt receipt;
    CHECK_OK(rad_cache_inc_lock_ref(cache, m.last_node, &receipt, NULL));
    CHECK(receipt.held == 1 && rad_cache_protected_size(cache) == 0);
    CHECK_OK(rad_cache_dec_lock_ref(cache, &receipt, NULL));
    CHECK(rad_cache_dec_lock_ref(cache, &receipt, NULL) == RAD_E_STATE);
    rad_cache_destroy(cache);
}

TEST(reset_forgets_and_makes_names_stale)
{
    rad_cache *cache = make(1);
    insert10(cache, KEY(1, 2, 3));
    rad_match m = match(cache, KEY(1, 2, 3), NULL);
    rad_receipt receipt;
    CHECK_OK(rad_cache_inc_lock_ref(cache, m.last_node, &receipt, NULL));
    CHECK_OK(rad_cache_reset(cache));
    check(cache);
    CHECK(rad_cache_total_size(cache) == 0 && rad_cache_evictable_size(cache) == 0 &&
          rad_cache_protected_size(cache) == 0);
    CHECK(match(cache, KEY(1, 2, 3), NULL).prefix_tokens == 0);
    CHECK(rad_cache_dec_lock_ref(cache, &receipt, NULL) == RAD_E_STATE);
    CHECK(rad_cache_inc_lock_ref(cache, m.last_node, &receipt, NULL) == RAD_E_STATE);
    CHECK(insert10(cache, KEY(1, 2, 3)) == 0);
    rad_cache_destroy(cache);
}

/* Pages in runs cost a publication a few instructions each, single ones ten times as many. */
TEST(a_reset_pool_hands_out_pages_in_their_order)
{
    enum { PAGES = 1000 };
    rad_kv_allocator_params pool = {.struct_size = sizeof pool, .num_pages = PAGES, .page_size = 1};
    rad_kv_allocator *kv = NULL;
    CHECK_OK(rad_kv_allocator_create(NULL, &pool, &kv, NULL));
    rad_cache_params params = {.struct_size = sizeof params, .page_size = 1, .kv_allocator = kv};
    rad_cache *cache = NULL;
    CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
    static rad_token tokens[PAGES];
    static rad_page pages[PAGES]; /* of one token: slots, too */
    for (uint32_t i = 0; i < PAGES; i++)
        tokens[i] = (rad_token)i;
    for (int round = 0; round < 3; round++) {
        CHECK_OK(rad_kv_alloc(kv, pages, PAGES));
        for (uint32_t i = 1; i < PAGES; i++)
            CHECK(pages[i] == pages[i - 1] + 1);
        insert(cache, &(rad_key){.tokens = tokens, .num_tokens = PAGES}, pages);
        CHECK_OK(rad_cache_reset(cache));
        check(cache);
    }
    rad_cache_destroy(cache);
    rad_kv_allocator_destroy(kv);
}

TEST(namespaces_do_not_meet)
{
    rad_cache *cache = make(1);
    const char *names[] = {NULL, "", "key1", "key2", "\xff\x01"};
    rad_key key = *KEY(1, 2, 3);
    for (int e = 0; e < 5; e++)
        for (int s = 0; s < 5; s++) {
            key.extra_key = names[e];
            key.cache_salt = names[s];
            rad_slot base = (e * 5 + s) * 10;
            CHECK(insert(cache, &key, SLOTS(base, base + 1, base + 2)) == 0);
        }
    for (int e = 0; e < 5; e++)
        for (int s = 0; s < 5; s++) {
            key.extra_key = names[e];
            key.cache_salt = names[s];
            rad_slot base = (e * 5 + s) * 10;
            CHECK(matches(cache, &key, SLOTS(base, base + 1, base + 2), 3));
        }
    key.extra_key = "key";
    key.cache_salt = "1key1";
    CHECK(match(cache, &key, NULL).prefix_tokens == 0);
    rad_cache_stats stats;
    rad_cache_get_stats(cache, &stats);
    CHECK(stats.num_namespaces == 25);
    CHECK(evict(cache, 3) == 3); /* the root goes with its last child */
    rad_cache_get_stats(cache, &stats);
    CHECK(stats.num_namespaces == 24 && stats.num_nodes == 24);
    rad_cache_destroy(cache);
}

TEST(more_namespaces_than_fit_give_up_the_least_useful)
{
    rad_cache_params params = {.struct_size = sizeof params, .max_namespaces = 4};
    rad_cache *cache = NULL;
    CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
    char salt[600];
    rad_key key = *KEY(1, 2, 3);
    key.cache_salt = salt;
    for (int i = 0; i < 1000; i++) {
        snprintf(salt, sizeof salt, "salt %d", i);
        CHECK(insert(cache, &key, SLOTS(1, 2, 3)) == 0);
        CHECK(rad_cache_total_size(cache) == 3 * (i < 4 ? i + 1u : 4));
        CHECK(match(cache, &key, NULL).prefix_tokens == 3); /* the new one is in */
        snprintf(salt, sizeof salt, "salt 0");              /* and one that is used stays */
        CHECK(match(cache, &key, NULL).prefix_tokens == 3);
    }
    rad_namespace_stats stats = {.struct_size = sizeof stats};
    CHECK_OK(rad_cache_get_namespace_stats(cache, &stats));
    CHECK(stats.most == 4 && stats.used == 4 && stats.given_up == 996 && !stats.host_most);
    stats.struct_size = 8;
    CHECK(rad_cache_get_namespace_stats(cache, &stats) == RAD_E_INVAL);
    /* All four in use: no room, and no change. */
    rad_receipt receipts[4];
    for (int i = 0, k = 0; k < 4; i++) {
        CHECK(i < 1000);
        snprintf(salt, sizeof salt, "salt %d", i);
        rad_match m = match(cache, &key, NULL);
        if (!m.prefix_tokens) continue;
        CHECK_OK(rad_cache_inc_lock_ref(cache, m.last_node, &receipts[k++], NULL));
    }
    snprintf(salt, sizeof salt, "another");
    CHECK(rad_cache_insert(cache, &key, SLOTS(1, 2, 3), NULL, NULL, NULL) == RAD_FULL);
    CHECK(rad_cache_protected_size(cache) == 12);
    check(cache);
    for (int k = 0; k < 4; k++)
        CHECK_OK(rad_cache_dec_lock_ref(cache, &receipts[k], NULL));
    CHECK(insert(cache, &key, SLOTS(1, 2, 3)) == 0);

    memset(salt, 'x', sizeof salt - 1);
    salt[sizeof salt - 1] = 0; /* longer than can be interned: never cached */
    CHECK(rad_cache_insert(cache, &key, SLOTS(1, 2, 3), NULL, NULL, NULL) == RAD_E_LIMIT);
    CHECK(match(cache, &key, NULL).prefix_tokens == 0);
    rad_cache_destroy(cache);
}

TEST(match_and_evict_say_why_they_refuse)
{
    rad_kv_allocator_params pages = {.struct_size = sizeof pages, .num_pages = 8};
    rad_kv_allocator *kv;
    CHECK_OK(rad_kv_allocator_create(NULL, &pages, &kv, NULL));
    rad_cache_params params = {.struct_size = sizeof params, .kv_allocator = kv};
    rad_cache *cache;
    CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
    rad_match m;
    rad_error err = {0};
    CHECK(rad_cache_match_prefix(cache, KEY(1, 2), NULL, NULL, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "no place for the answer"));
    CHECK(rad_cache_match_prefix(cache, NULL, NULL, &m, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "no key"));
    rad_key key = {.num_tokens = 3};
    CHECK(rad_cache_match_prefix(cache, &key, NULL, &m, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "3 tokens without the tokens"));
    rad_token token = 1;
    key = (rad_key){.tokens = &token, .num_tokens = UINT32_MAX};
    CHECK(rad_cache_match_prefix(cache, &key, NULL, &m, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "a key of 4294967295 tokens"));

    rad_slot slots[2];
    CHECK_OK(rad_kv_alloc(kv, slots, 2));
    CHECK(insert(cache, KEY(1, 2), slots) == 0);
    rad_kv_clear(kv); /* under the cache */
    uint64_t evicted;
    CHECK(rad_cache_evict(cache, 2, &evicted, &err) == RAD_E_STATE && evicted == 2);
    CHECKF(strstr(err.text, "2 of 2 tokens went, but the allocator"), "%s\n", err.text);
    rad_cache_destroy(cache);
    rad_kv_allocator_destroy(kv);
}

TEST(a_cache_of_all_numbers_is_too_large)
{
    rad_cache *cache;
    for (uint32_t ps = 1; ps <= 64; ps *= 4) {
        rad_cache_params params = {
            .struct_size = sizeof params, .page_size = ps, .max_tokens = UINT64_MAX};
        CHECK(rad_cache_create(NULL, &params, &cache, NULL) == RAD_E_LIMIT && !cache);
    }
}

TEST(locks_move_tokens_between_the_sizes)
{
    rad_cache *cache = make(1);
    insert10(cache, KEY(1, 2, 3));
    rad_receipt receipt, copy;
    rad_ref node = match(cache, KEY(1, 2, 3), NULL).last_node;
    CHECK_OK(rad_cache_inc_lock_ref(cache, node, &receipt, NULL));
    CHECK(rad_cache_protected_size(cache) == 3 && rad_cache_evictable_size(cache) == 0);
    copy = receipt;
    CHECK_OK(rad_cache_dec_lock_ref(cache, &receipt, NULL));
    CHECK(rad_cache_protected_size(cache) == 0 && rad_cache_evictable_size(cache) == 3);
    CHECK(rad_cache_dec_lock_ref(cache, &copy, NULL) == RAD_E_STATE); /* below zero */
    check(cache);
    node.generation += 2;
    CHECK(rad_cache_inc_lock_ref(cache, node, &receipt, NULL) == RAD_E_STATE);
    node.index = 1u << 30;
    CHECK(rad_cache_inc_lock_ref(cache, node, &receipt, NULL) == RAD_E_STATE);
    rad_cache_destroy(cache);
}

/* Whether the refusal says which node of which generation it is about. */
static bool names(const rad_error *err, rad_ref node)
{
    char want[64];
    snprintf(want, sizeof want, "node %u (generation %u)", node.index, node.generation);
    return err->status == RAD_E_STATE && strstr(err->text, want);
}

TEST(a_refused_lock_names_the_node)
{
    rad_cache *cache = make(1);
    insert10(cache, KEY(1, 2, 3));
    rad_receipt receipt, copy;
    rad_error err = {0};
    rad_ref node = match(cache, KEY(1, 2, 3), NULL).last_node;
    CHECK(rad_cache_inc_lock_ref(cache, node, NULL, &err) == RAD_E_INVAL);
    CHECK(rad_cache_dec_lock_ref(cache, NULL, &err) == RAD_E_INVAL);
    CHECK_OK(rad_cache_inc_lock_ref(cache, node, &receipt, &err));
    copy = receipt;
    CHECK_OK(rad_cache_dec_lock_ref(cache, &receipt, &err));
    CHECK(rad_cache_dec_lock_ref(cache, &copy, &err) == RAD_E_STATE && names(&err, node));
    CHECK(strstr(err.text, "given back"));
    CHECK(rad_cache_dec_lock_ref(cache, &receipt, &err) == RAD_E_STATE); /* cleared */
    CHECK(names(&err, (rad_ref){0, 0}));

    CHECK(evict(cache, 3) == 3); /* now the name is stale */
    CHECK(rad_cache_inc_lock_ref(cache, node, &receipt, &err) == RAD_E_STATE && names(&err, node));
    CHECK(strstr(err.text, "stale"));
    CHECK(rad_cache_dec_lock_ref(cache, &copy, &err) == RAD_E_STATE && names(&err, node));
    rad_ref never = {1u << 30, 7};
    CHECK(rad_cache_inc_lock_ref(cache, never, &receipt, &err) == RAD_E_STATE);
    CHECK(names(&err, never));
    check(cache);
    rad_cache_destroy(cache);
}

/* The lock of a node below holds the one above too, but is not its to give back. */
TEST(a_copied_receipt_cannot_take_a_lock_of_the_node_below)
{
    rad_cache *cache = make(1);
    insert10(cache, KEY(1, 2));
    insert10(cache, KEY(1, 2, 3, 4));
    rad_receipt upper, lower, copy;
    CHECK_OK(rad_cache_inc_lock_ref(cache, match(cache, KEY(1, 2), NULL).last_node, &upper, NULL));
    CHECK_OK(
        rad_cache_inc_lock_ref(cache, match(cache, KEY(1, 2, 3, 4), NULL).last_node, &lower, NULL));
    copy = upper;
    CHECK_OK(rad_cache_dec_lock_ref(cache, &upper, NULL));
    CHECK(rad_cache_dec_lock_ref(cache, &copy, NULL) == RAD_E_STATE);
    check(cache);
    CHECK(rad_cache_protected_size(cache) == 4 && evict(cache, 100) == 0);
    CHECK_OK(rad_cache_dec_lock_ref(cache, &lower, NULL));
    CHECK(evict(cache, 100) == 4);
    rad_cache_destroy(cache);
}

TEST(locks_with_a_shared_prefix)
{
    rad_cache *cache = make(1);
    insert10(cache, KEY(1, 2, 3, 4));
    CHECK(insert10(cache, KEY(1, 2, 5, 6)) == 2);
    rad_receipt a, b;
    CHECK_OK(
        rad_cache_inc_lock_ref(cache, match(cache, KEY(1, 2, 3, 4), NULL).last_node, &a, NULL));
    CHECK(rad_cache_evictable_size(cache) == 2 && rad_cache_protected_size(cache) == 4);
    CHECK_OK(
        rad_cache_inc_lock_ref(cache, match(cache, KEY(1, 2, 5, 6), NULL).last_node, &b, NULL));
    CHECK(rad_cache_evictable_size(cache) == 0 && rad_cache_protected_size(cache) == 6);
    CHECK(evict(cache, 100) == 0);
    CHECK_OK(rad_cache_dec_lock_ref(cache, &a, NULL));
    CHECK(rad_cache_evictable_size(cache) == 2 && rad_cache_protected_size(cache) == 4);
    CHECK(evict(cache, 100) == 2);
    CHECK_OK(rad_cache_dec_lock_ref(cache, &b, NULL));
    CHECK(rad_cache_evictable_size(cache) == 4 && rad_cache_protected_size(cache) == 0);
    CHECK(evict(cache, 1) == 1);
    CHECK(matches(cache, KEY(1, 2, 5, 6), SLOTS(10, 20, 50), 3));
    CHECK(evict(cache, 100) == 3);
    CHECK(rad_cache_total_size(cache) == 0);
    rad_cache_destroy(cache);
}

TEST(eviction_frees_what_is_asked_from_the_tail)
{
    rad_cache *cache = make(1);
    insert10(cache, KEY(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
    CHECK(evict(cache, 1) == 1);
    CHECK(matches(cache, KEY(1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
                  SLOTS(10, 20, 30, 40, 50, 60, 70, 80, 90), 9));
    CHECK(evict(cache, 0) == 0);
    CHECK(evict(cache, 5) == 5);
    CHECK(rad_cache_total_size(cache) == 4);
    CHECK(insert10(cache, KEY(1, 2, 3, 4, 5, 6)) == 4);
    CHECK(evict(cache, 100) == 6);
    CHECK(rad_cache_total_size(cache) == 0);

    rad_cache_destroy(cache);
    cache = make(4);
    CHECK(insert(cache, KEY(1, 2, 3, 4, 5, 6, 7, 8), SLOTS(4, 5, 6, 7, 12, 13, 14, 15)) == 0);
    CHECK(evict(cache, 1) == 4); /* rounded up to a page */
    CHECK(matches(cache, KEY(1, 2, 3, 4, 5, 6, 7, 8), SLOTS(4, 5, 6, 7), 4));
    rad_cache_destroy(cache);
}

TEST(the_least_recently_used_leaf_goes_first)
{
    rad_cache *cache = make(1);
    insert10(cache, KEY(1, 11));
    insert10(cache, KEY(2, 12));
    insert10(cache, KEY(3, 13));
    insert10(cache, KEY(1, 11));
    insert10(cache, KEY(1, 11));
    insert10(cache, KEY(2, 12));
    match(cache, KEY(3, 13), NULL);
    CHECK(evict(cache, 2) == 2 && match(cache, KEY(1, 11), NULL).prefix_tokens == 0);
    CHECK(evict(cache, 2) == 2 && match(cache, KEY(2, 12), NULL).prefix_tokens == 0);
    CHECK(evict(cache, 2) == 2 && match(cache, KEY(3, 13), NULL).prefix_tokens == 0);
    rad_cache_destroy(cache);
}

TEST(lookup_neither_touches_nor_splits)
{
    rad_cache *cache = make(1);
    insert10(cache, KEY(1, 2, 3, 4));
    insert10(cache, KEY(5, 6, 7, 8));
    rad_cache_stats before, after;
    rad_cache_get_stats(cache, &before);
    rad_match m;
    CHECK_OK(rad_cache_lookup(cache, KEY(1, 2, 9), &m));
    CHECK(m.prefix_tokens == 2 && m.last_node.index != 0);
    rad_cache_get_stats(cache, &after);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    CHECK(evict(cache, 4) == 4); /* 1 2 3 4 is still the older one */
    CHECK(match(cache, KEY(1, 2), NULL).prefix_tokens == 0);
    rad_cache_destroy(cache);
}

TEST(matches_are_whole_pages)
{
    for (uint32_t ps = 1; ps <= 16; ps = ps < 4 ? ps + 1 : ps * 2)
        for (uint32_t n = 0; n <= 3 * ps + 1; n++) {
            rad_cache *cache = make(ps);
            rad_token tokens[64];
            rad_slot slots[64], got[64];
            for (uint32_t i = 0; i < 64; i++) {
                tokens[i] = (rad_token)(i * 7 % 5);
                slots[i] = (rad_slot)(3 * ps + i);
            }
            rad_key key = {.tokens = tokens, .num_tokens = n};
            CHECK(insert(cache, &key, slots) == 0);
            CHECK(rad_cache_total_size(cache) == n / ps * ps);
            for (uint32_t ask = 0; ask <= 3 * ps + 1; ask++) {
                key.num_tokens = ask;
                rad_match m = match(cache, &key, got);
                CHECK(m.prefix_tokens == (ask < n ? ask : n) / ps * ps);
                CHECK(memcmp(got, slots, m.prefix_tokens * sizeof *got) == 0);
            }
            CHECK(evict(cache, 1000) == n / ps * ps);
            rad_cache_destroy(cache);
        }
}

TEST(node_splits)
{
    rad_cache *cache = make(1);
    CHECK(insert10(cache, KEY(1, 2, 3, 4, 5, 6, 7, 8)) == 0);
    CHECK(insert(cache, KEY(1, 2, 9, 10), SLOTS(10, 20, 90, 100)) == 2);
    CHECK(rad_cache_total_size(cache) == 10);
    CHECK(matches(cache, KEY(1, 2, 3, 4, 999, 1000), SLOTS(10, 20, 30, 40), 4));
    CHECK(rad_cache_total_size(cache) == 10);
    CHECK(matches(cache, KEY(1, 2, 3, 4, 5, 6, 7, 8), SLOTS(10, 20, 30, 40, 50, 60, 70, 80), 8));
    CHECK(matches(cache, KEY(1, 2, 3, 4, 5, 6, 777, 888), SLOTS(10, 20, 30, 40, 50, 60), 6));
    CHECK(matches(cache, KEY(1, 2, 9, 10), SLOTS(10, 20, 90, 100), 4));
    rad_cache_destroy(cache);

    cache = make(2);
    CHECK(insert(cache, KEY(1, 2, 3, 4, 5, 6, 7, 8), SLOTS(10, 11, 20, 21, 30, 31, 40, 41)) == 0);
    CHECK(insert(cache, KEY(1, 2, 9, 10), SLOTS(10, 11, 90, 91)) == 2);
    CHECK(rad_cache_total_size(cache) == 10);
    CHECK(matches(cache, KEY(1, 2, 3, 4, 5, 777), SLOTS(10, 11, 20, 21), 4));
    CHECK(match(cache, KEY(1, 2, 3), NULL).prefix_tokens == 2);
    CHECK(match(cache, KEY(1), NULL).prefix_tokens == 0);
    CHECK(matches(cache, KEY(1, 2, 9, 10), SLOTS(10, 11, 90, 91), 4));
    rad_cache_destroy(cache);
}

typedef struct dump {
    char text[4096];
    uint32_t nodes;
} dump;

static void dump_node(void *user, rad_ref node, uint32_t depth, const rad_token *tokens,
                      const rad_slot *slots, uint32_t num_tokens, uint32_t lock_ref,
                      uint32_t hit_count)
{
    dump *d = user;
    (void)node, (void)slots;
    size_t at = strlen(d->text);
    at += (size_t)sprintf(d->text + at, "%u[", depth);
    for (uint32_t i = 0; i < num_tokens; i++)
        at += (size_t)sprintf(d->text + at, "%s%d", i ? " " : "", tokens[i]);
    sprintf(d->text + at, "]r%uh%u;", lock_ref, hit_count);
    d->nodes++;
}

static const char *dumped(const rad_cache *cache, dump *d)
{
    *d = (dump){0};
    CHECK_OK(rad_cache_walk(cache, dump_node, d));
    return d->text;
}

TEST(the_tree_has_the_reference_shape)
{
    rad_cache *cache = make(1);
    dump d;
    CHECK(insert10(cache, KEY(1, 2, 3)) == 0);
    CHECK(insert10(cache, KEY(1, 2, 3)) == 3);
    CHECK(insert10(cache, KEY(1, 2, 4, 5)) == 2);
    CHECK(insert10(cache, KEY(1, 2, 4, 5, 6, 7)) == 4);
    CHECK(insert10(cache, KEY(8, 9, 10, 11, 12)) == 0);
    CHECK(rad_cache_total_size(cache) == 12);
    dumped(cache, &d);
    CHECK(d.nodes == 5);
    CHECKF(strstr(d.text, "1[1 2]r0h3;") && strstr(d.text, "2[3]r0h1;") &&
               strstr(d.text, "2[4 5]r0h1;3[6 7]r0h0;") && strstr(d.text, "1[8 9 10 11 12]r0h0;"),
           "%s", d.text);
    rad_match m = match(cache, KEY(1, 2, 3, 13, 14), NULL);
    CHECK(m.prefix_tokens == 3);
    rad_receipt receipt;
    CHECK_OK(rad_cache_inc_lock_ref(cache, m.last_node, &receipt, NULL));
    CHECK(strstr(dumped(cache, &d), "2[3]r1h1;") && strstr(d.text, "1[1 2]r1h3;"));
    rad_cache_destroy(cache);
}

/* Not public: seen through the node. */
static int32_t priority_of(const rad_cache *cache, const rad_key *key)
{
    rad_match m;
    CHECK_OK(rad_cache_lookup(cache, key, &m));
    CHECK(m.prefix_tokens == key->num_tokens);
    return ((const radix_cache *)cache)->tree.nodes[m.last_node.index].priority;
}

TEST(a_chunked_insert_counts_no_hit_and_priority_is_the_maximum)
{
    rad_cache *cache = make(1);
    dump d;
    insert10(cache, KEY(1, 2));
    rad_insert_params params = {.chunked = 1, .priority = 7};
    CHECK_OK(rad_cache_insert(cache, KEY(1, 2, 3), SLOTS(10, 20, 30), &params, NULL, NULL));
    CHECK(strcmp(dumped(cache, &d), "1[1 2]r0h0;2[3]r0h0;") == 0);
    params = (rad_insert_params){.chunked = 1, .priority = -3};
    CHECK_OK(rad_cache_insert(cache, KEY(1, 2, 4), SLOTS(10, 20, 40), &params, NULL, NULL));
    CHECK(priority_of(cache, KEY(1, 2)) == 7 && priority_of(cache, KEY(1, 2, 3)) == 7);
    CHECK(priority_of(cache, KEY(1, 2, 4)) == -3);
    params.priority = 9;
    CHECK_OK(rad_cache_insert(cache, KEY(1, 2), SLOTS(10, 20), &params, NULL, NULL));
    CHECK(priority_of(cache, KEY(1, 2)) == 9 && priority_of(cache, KEY(1, 2, 3)) == 7);
    rad_cache_destroy(cache);
}

TEST(a_lock_survives_a_split_of_its_node)
{
    rad_cache *cache = make(1);
    insert10(cache, KEY(1, 2, 3, 4, 5, 6));
    rad_receipt receipt;
    CHECK_OK(rad_cache_inc_lock_ref(cache, match(cache, KEY(1, 2, 3, 4, 5, 6), NULL).last_node,
                                    &receipt, NULL));
    insert10(cache, KEY(1, 2, 7));
    CHECK(rad_cache_protected_size(cache) == 6 && rad_cache_evictable_size(cache) == 1);
    CHECK(evict(cache, 100) == 1);
    CHECK(rad_cache_total_size(cache) == 6);
    CHECK_OK(rad_cache_dec_lock_ref(cache, &receipt, NULL));
    check(cache);
    CHECK(rad_cache_protected_size(cache) == 0);
    CHECK(evict(cache, 100) == 6);
    rad_cache_destroy(cache);
}

TEST(what_a_split_made_of_one_node_becomes_one_again)
{
    rad_cache *cache = make(1);
    dump d;
    insert10(cache, KEY(1, 2, 3, 4));
    insert10(cache, KEY(1, 2, 9));
    CHECK_OK(rad_cache_insert(cache, KEY(1, 2, 3, 4), SLOTS(10, 20, 30, 40),
                              &(rad_insert_params){.chunked = 1}, NULL, NULL));
    /* [1 2] has a hit that [3 4] has not: they stay apart. */
    CHECK(evict(cache, 1) == 1);
    CHECK(dumped(cache, &d) && d.nodes == 2);
    rad_cache_destroy(cache);

    cache = make(1);
    insert10(cache, KEY(1, 2, 3, 4));
    match(cache, KEY(1, 2), NULL);
    CHECK_OK(rad_cache_insert(cache, KEY(1, 2, 9), SLOTS(10, 20, 90),
                              &(rad_insert_params){.chunked = 1}, NULL, NULL));
    match(cache, KEY(1, 2, 3, 4), NULL);
    CHECK(evict(cache, 1) == 1);
    CHECK(strcmp(dumped(cache, &d), "1[1 2 3 4]r0h0;") == 0);
    CHECK(matches(cache, KEY(1, 2, 3, 4), SLOTS(10, 20, 30, 40), 4));
    rad_cache_destroy(cache);
}

TEST(slots_that_are_no_pages_are_refused)
{
    rad_cache *cache = make(4);
    CHECK(rad_cache_insert(cache, KEY(1, 2, 3, 4), SLOTS(5, 6, 7, 8), NULL, NULL, NULL) ==
          RAD_E_INVAL);
    rad_error err = {0};
    CHECK(rad_cache_insert(cache, KEY(1, 2, 3, 4), SLOTS(4, 5, 7, 6), NULL, NULL, &err) ==
          RAD_E_INVAL);
    CHECK(strstr(err.text, "slot 7 at position 2 "));
    CHECK(rad_cache_insert(cache, KEY(1, 2, 3, 4), SLOTS(-4, -3, -2, -1), NULL, NULL, NULL) ==
          RAD_E_INVAL);
    CHECK(rad_cache_insert(cache, KEY(1, 2, 3, 4), NULL, NULL, NULL, NULL) == RAD_E_INVAL);
    CHECK(rad_cache_total_size(cache) == 0);
    check(cache);
    rad_cache_destroy(cache);

    /* The last slot of the last page would be 2^31, with few runs of pages and with many. */
    enum { MANY = 300 };
    rad_token tokens[3 * MANY];
    rad_slot slots[3 * MANY];
    cache = make(3);
    for (uint32_t i = 0; i < 3 * MANY; i++) {
        tokens[i] = (rad_token)i;
        slots[i] = (rad_slot)(i / 3 * 6 + i % 3);
    }
    for (uint32_t i = 0; i < 3; i++)
        slots[3 * MANY - 3 + i] = (rad_slot)(2147483646u + i);
    rad_key key = {.tokens = tokens, .num_tokens = 3 * MANY};
    CHECK(rad_cache_insert(cache, &key, slots, NULL, NULL, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "slot 2147483646 at position 897 "));
    key.num_tokens = 3;
    CHECK(rad_cache_insert(cache, &key, slots + 3 * MANY - 3, NULL, NULL, NULL) == RAD_E_INVAL);
    check(cache);
    rad_cache_destroy(cache);
}

/* Pages of this process that are in memory, 0 where nobody says. */
static long resident_pages(void)
{
    long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%ld %ld", &size, &resident) != 2) resident = 0;
    fclose(file);
    return resident;
}

/* Sequences that keep cutting the same few at new points: neither the number of nodes nor
 * the resident memory grows with history. */
TEST(metadata_is_bounded_by_its_limits)
{
    enum { NODES = 32, TOKENS = 500 };
    rad_cache_params params = {
        .struct_size = sizeof params, .max_nodes = NODES, .max_tokens = TOKENS};
    rad_cache *cache = NULL;
    CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
    uint64_t seed = test_seed(), state = seed;
    rad_cache_stats stats;
    uint64_t rounds = test_scale(100000, 10000000);
    long resident = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        if (i == rounds / 10) resident = resident_pages();
        rad_token tokens[60];
        rad_slot slots[60];
        uint32_t n = 1 + (uint32_t)(test_random(&state) % 60);
        uint32_t same = (uint32_t)(test_random(&state) % 60);
        for (uint32_t k = 0; k < n; k++) {
            tokens[k] = k < same ? 1 : (rad_token)(test_random(&state) % 1000);
            slots[k] = (rad_slot)(k + 1);
        }
        rad_key key = {.tokens = tokens, .num_tokens = n};
        rad_match m;
        CHECK_OK(rad_cache_insert(cache, &key, slots, NULL, NULL, NULL));
        CHECK_OK(rad_cache_match_prefix(cache, &key, slots, &m, NULL));
        CHECKF(m.prefix_tokens == n, "seed %llu", (unsigned long long)seed);
        rad_cache_get_stats(cache, &stats);
        CHECK(stats.num_nodes <= NODES && rad_cache_total_size(cache) <= TOKENS);
        if (i % 64 == 0) check(cache);
    }
    /* Where CPUs are many, Linux counts pages for each and tells the sum late. */
    CHECKF(resident_pages() <= resident + 1024, "%ld pages, then %ld", resident, resident_pages());
    CHECK(stats.merges > 0 && stats.splits > 0);
    rad_cache_destroy(cache);
}

/* The leaf that the key shares a front with is the only thing that could go. */
TEST(one_node_is_enough)
{
    rad_cache_params params = {.struct_size = sizeof params, .max_nodes = 1};
    rad_cache *cache = NULL;
    CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
    CHECK(insert(cache, KEY(1, 2, 3), SLOTS(10, 20, 30)) == 0);
    CHECK(insert(cache, KEY(1, 2, 9), SLOTS(11, 21, 91)) == 0);
    CHECK(matches(cache, KEY(1, 2, 9), SLOTS(11, 21, 91), 3));
    CHECK(insert(cache, KEY(1, 2, 9, 4), SLOTS(12, 22, 92, 42)) == 0);
    CHECK(matches(cache, KEY(1, 2, 9, 4), SLOTS(12, 22, 92, 42), 4));
    CHECK(insert(cache, KEY(7), SLOTS(70)) == 0);
    CHECK(insert(cache, KEY(7), SLOTS(71)) == 1);

    rad_receipt receipt; /* in use: no room, and no change */
    CHECK_OK(rad_cache_inc_lock_ref(cache, match(cache, KEY(7), NULL).last_node, &receipt, NULL));
    CHECK(rad_cache_insert(cache, KEY(7, 8), SLOTS(70, 80), NULL, NULL, NULL) == RAD_FULL);
    CHECK(matches(cache, KEY(7, 8), SLOTS(70), 1));
    CHECK_OK(rad_cache_dec_lock_ref(cache, &receipt, NULL));
    CHECK(rad_cache_total_size(cache) == 1);
    rad_cache_destroy(cache);
}

TEST(bad_arguments_are_refused)
{
    rad_error err;
    rad_cache *cache = NULL;
    rad_cache_params params = {.struct_size = sizeof params, .kind = 9};
    CHECK(rad_cache_create(NULL, &params, &cache, &err) == RAD_E_INVAL && !cache);
    params = (rad_cache_params){.struct_size = sizeof params, .max_tokens = 1ull << 40};
    CHECK(rad_cache_create(NULL, &params, &cache, &err) == RAD_E_LIMIT && !cache);
    cache = make(1);
    rad_key key = {.num_tokens = 3};
    rad_match m;
    CHECK(rad_cache_match_prefix(cache, &key, NULL, &m, NULL) == RAD_E_INVAL);
    CHECK(rad_cache_lookup(cache, NULL, &m) == RAD_E_INVAL);
    CHECK(rad_cache_match_prefix(cache, KEY(1), NULL, NULL, NULL) == RAD_E_INVAL);
    rad_req_kv req = {0};
    CHECK(rad_cache_finished_req(cache, &req, 1, &err) == RAD_E_UNSUPPORTED);
    CHECK(rad_cache_inc_lock_ref(cache, (rad_ref){0, 0}, NULL, NULL) == RAD_E_INVAL);
    rad_cache_destroy(cache);
    rad_cache_destroy(NULL);
}

TEST(create_survives_every_allocation_failing)
{
    for (uint32_t kind = RAD_CACHE_RADIX; kind <= RAD_CACHE_CHUNK; kind++) {
        rad_cache_params params = {.struct_size = sizeof params, .kind = kind, .max_tokens = 1000};
        test_env t;
        rad_cache *cache = cache_after_every_failure(&params, &t);
        if (kind == RAD_CACHE_RADIX) {
            CHECK(metadata_bytes(cache) == t.bytes);
            long allocs = t.allocs;
            insert10(cache, KEY(1, 2, 3));
            t.fail_at = 0; /* from here on no memory: none is needed */
            CHECK_OK(rad_cache_insert(cache, KEY(1, 2, 4), SLOTS(10, 20, 40), NULL, NULL, NULL));
            CHECK(t.allocs == allocs);
        }
        rad_cache_destroy(cache);
        CHECK(t.bytes == 0);
    }
}

TEST_MAIN()
