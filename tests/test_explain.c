/* test_explain.c - why a match ended: each reason, the ring's bound, and that nothing is
 * claimed about what was never there. And the copy of the tree that people look at (tree_look.h):
 * it is what the tree is, and what was evicted last stands in it. */
#include "cache/tree_look.h"
#include "cache_literals.h"
#include "test.h"

#include <radish/explain.h>

static rad_cache *make_keyed(test_env *t, uint32_t page_size, uint32_t explain_pages,
                             bool namespaces, bool is_eagle)
{
    rad_env env = test_env_init(t);
    rad_cache *cache;
    CHECK_OK(rad_cache_create(&env,
                              &(rad_cache_params){.struct_size = sizeof(rad_cache_params),
                                                  .page_size = page_size,
                                                  .max_tokens = 4096,
                                                  .max_namespaces = 3,
                                                  .is_eagle = is_eagle,
                                                  .explain_pages = explain_pages,
                                                  .explain_namespaces = namespaces},
                              &cache, NULL));
    return cache;
}

static rad_cache *make(test_env *t, uint32_t page_size, uint32_t explain_pages, bool namespaces)
{
    return make_keyed(t, page_size, explain_pages, namespaces, false);
}

static void insert(rad_cache *cache, const rad_key *key)
{
    rad_slot slots[256];
    CHECK(key->num_tokens <= 256);
    for (uint32_t i = 0; i < key->num_tokens; i++)
        slots[i] = (rad_slot)i;
    CHECK_OK(rad_cache_insert(cache, key, slots, NULL, NULL, NULL));
    rad_error err = {0};
    CHECKF(rad_cache_check(cache, &err) == RAD_OK, "%s", err.text);
}

static rad_explanation explain(const rad_cache *cache, const rad_key *key)
{
    rad_explanation e;
    rad_match match;
    CHECK_OK(rad_cache_explain(cache, key, &e));
    CHECK_OK(rad_cache_lookup(cache, key, &match));
    CHECK(e.prefix_tokens == match.prefix_tokens);
    uint32_t tokens = 0, kept = e.num_nodes < RAD_EXPLAIN_NODES ? e.num_nodes : RAD_EXPLAIN_NODES;
    for (uint32_t i = 0; i < kept; i++)
        tokens += e.nodes[i].tokens;
    if (e.num_nodes <= RAD_EXPLAIN_NODES) CHECK(tokens == e.prefix_tokens);
    if (kept) CHECK(e.nodes[kept - 1].node.index == match.last_node.index);
    return e;
}

TEST(complete_rounded_and_never_seen)
{
    test_env t;
    rad_cache *cache = make(&t, 4, 16, false);
    CHECK(explain(cache, KEY(1, 2, 3, 4)).why == RAD_END_NEVER_SEEN);
    insert(cache, KEY(1, 2, 3, 4, 5, 6, 7, 8));
    insert(cache, KEY(1, 2, 3, 4, 9, 9, 9, 9));
    rad_explanation e = explain(cache, KEY(1, 2, 3, 4, 5, 6, 7, 8));
    CHECK(e.why == RAD_END_COMPLETE && e.prefix_tokens == 8 && e.num_nodes == 2);
    CHECK(e.nodes[0].tokens == 4 && e.nodes[1].tokens == 4);
    e = explain(cache, KEY(1, 2, 3, 4, 5, 6));
    CHECK(e.why == RAD_END_PAGE_ROUNDING && e.prefix_tokens == 4 && e.rounded_tokens == 2);
    e = explain(cache, KEY(1, 2, 3, 4, 5, 6, 7, 7));
    CHECK(e.why == RAD_END_NEVER_SEEN && e.prefix_tokens == 4 && e.rounded_tokens == 3);
    CHECK(explain(cache, KEY(0)).why == RAD_END_PAGE_ROUNDING);
    CHECK(explain(cache, &(rad_key){0}).why == RAD_END_COMPLETE);
    rad_cache_destroy(cache);
    CHECK(t.bytes == 0);
}

TEST(evicted_when_and_by_what)
{
    test_env t;
    rad_cache *cache = make(&t, 2, 16, false);
    insert(cache, KEY(1, 2, 3, 4, 5, 6));
    uint64_t before = t.now;
    CHECK_OK(rad_cache_evict(cache, 4, NULL, NULL));
    rad_explanation e = explain(cache, KEY(1, 2, 3, 4, 5, 6, 7, 8));
    CHECK(e.why == RAD_END_EVICTED && e.prefix_tokens == 2 && e.evicted_tokens == 4);
    CHECK(e.eviction.cause == RAD_EVICTION_ASKED);
    CHECK(e.eviction.time_ns >= before && e.eviction.time_ns < t.now);
    CHECK(e.eviction.operation == 1 && strcmp(e.eviction.policy, "lru") == 0);
    e = explain(cache, KEY(1, 2, 3, 5, 5, 6)); /* another page than the evicted one */
    CHECK(e.why == RAD_END_NEVER_SEEN && !e.evicted_tokens && !e.eviction.policy);

    /* Evicted to the root: the namespace is gone, its past is not. The latest counts. */
    insert(cache, KEY(1, 2, 3, 4));
    before = t.now;
    CHECK_OK(rad_cache_evict(cache, 100, NULL, NULL));
    e = explain(cache, KEY(1, 2, 3, 4));
    CHECK(e.why == RAD_END_EVICTED && e.evicted_tokens == 4 && e.eviction.time_ns >= before);
    insert(cache, KEY(1, 2, 3, 4));
    CHECK(explain(cache, KEY(1, 2, 3, 4)).why == RAD_END_COMPLETE);
    CHECK_OK(rad_cache_reset(cache));
    CHECK(explain(cache, KEY(1, 2, 3, 4)).why == RAD_END_NEVER_SEEN);
    rad_cache_destroy(cache);
}

TEST(pairs_complete_rounded_and_never_seen)
{
    test_env t;
    rad_cache *cache = make_keyed(&t, 4, 16, false, true);
    CHECK(explain(cache, KEY(1, 2, 3, 4, 5)).why == RAD_END_NEVER_SEEN);
    insert(cache, KEY(1, 2, 3, 4, 5, 6, 7, 8, 9));
    insert(cache, KEY(1, 2, 3, 4, 5, 9, 9, 9, 9));
    rad_explanation e = explain(cache, KEY(1, 2, 3, 4, 5, 6, 7, 8, 9));
    CHECK(e.why == RAD_END_COMPLETE && e.prefix_tokens == 8 && e.num_nodes == 2);
    CHECK(e.nodes[0].tokens == 4 && e.nodes[1].tokens == 4);
    e = explain(cache, KEY(1, 2, 3, 4, 5, 6, 7));
    CHECK(e.why == RAD_END_PAGE_ROUNDING && e.prefix_tokens == 4 && e.rounded_tokens == 2);
    e = explain(cache, KEY(1, 2, 3, 4, 5, 6, 7, 8, 8));
    CHECK(e.why == RAD_END_NEVER_SEEN && e.prefix_tokens == 4 && e.rounded_tokens == 3);

    /* The first pairs differ in their first halves, so nothing behind them is shared. */
    e = explain(cache, KEY(0, 2, 3, 4, 5));
    CHECK(e.why == RAD_END_NEVER_SEEN && !e.prefix_tokens && !e.rounded_tokens);
    insert(cache, KEY(0, 2, 3, 4, 9));
    CHECK(explain(cache, KEY(0, 2, 3, 4, 5)).rounded_tokens == 3);
    CHECK(explain(cache, KEY(1, 2, 3, 9, 9)).rounded_tokens == 2);
    CHECK(explain(cache, KEY(7, 2, 3, 4, 5)).rounded_tokens == 0);

    /* One token is no pair yet. */
    e = explain(cache, KEY(1, 2));
    CHECK(e.why == RAD_END_PAGE_ROUNDING && e.rounded_tokens == 1);
    e = explain(cache, KEY(1));
    CHECK(e.why == RAD_END_COMPLETE && !e.rounded_tokens);
    CHECK(explain(cache, &(rad_key){0}).why == RAD_END_COMPLETE);
    rad_cache_destroy(cache);
    CHECK(t.bytes == 0);
}

TEST(evicted_pairs_are_told_apart_by_the_first_token)
{
    test_env t;
    rad_cache *cache = make_keyed(&t, 2, 16, false, true);
    insert(cache, KEY(1, 2, 3, 4, 5, 6, 7));
    CHECK_OK(rad_cache_evict(cache, 4, NULL, NULL));
    rad_explanation e = explain(cache, KEY(1, 2, 3, 4, 5, 6, 7, 8, 9));
    CHECK(e.why == RAD_END_EVICTED && e.prefix_tokens == 2 && e.evicted_tokens == 4);
    CHECK(explain(cache, KEY(1, 2, 3, 4, 4)).why == RAD_END_NEVER_SEEN);
    CHECK_OK(rad_cache_evict(cache, 100, NULL, NULL));
    e = explain(cache, KEY(1, 2, 3, 4, 5, 6, 7));
    CHECK(e.why == RAD_END_EVICTED && !e.prefix_tokens && e.evicted_tokens == 6);
    e = explain(cache, KEY(8, 2, 3, 4, 5, 6, 7));
    CHECK(e.why == RAD_END_NEVER_SEEN && !e.evicted_tokens && !e.eviction.policy);
    insert(cache, KEY(8, 2, 3)); /* now the namespace has a root again */
    e = explain(cache, KEY(1, 2, 3, 4));
    CHECK(e.why == RAD_END_EVICTED && e.evicted_tokens == 2);
    CHECK(explain(cache, KEY(8, 2, 3)).why == RAD_END_COMPLETE);
    CHECK(explain(cache, KEY(8, 2, 3, 4, 5)).why == RAD_END_NEVER_SEEN);
    CHECK(explain(cache, KEY(0, 2, 3)).why == RAD_END_NEVER_SEEN);
    rad_cache_destroy(cache);
    CHECK(t.bytes == 0);
}

TEST(pairs_in_other_namespaces)
{
    test_env t;
    rad_cache *cache = make_keyed(&t, 2, 16, true, true);
    rad_key a = *KEY(1, 2, 3, 4, 5), b = a, c = *KEY(9, 2, 3, 4, 5);
    a.cache_salt = "a";
    insert(cache, &a);
    b.cache_salt = c.cache_salt = "b";
    rad_explanation e = explain(cache, &b);
    CHECK(e.why == RAD_END_OTHER_NAMESPACE && e.other_namespace_tokens == 4);
    e = explain(cache, &c);
    CHECK(e.why == RAD_END_NEVER_SEEN && !e.other_namespace_tokens);
    CHECK_OK(rad_cache_evict(cache, 100, NULL, NULL));
    CHECK(explain(cache, &a).why == RAD_END_EVICTED);
    CHECK(explain(cache, &b).why == RAD_END_NEVER_SEEN);
    rad_cache_destroy(cache);
    CHECK(t.bytes == 0);
}

TEST(an_insert_that_needs_a_namespace_is_a_cause)
{
    test_env t;
    rad_cache *cache = make(&t, 1, 16, false);
    const char *salts[] = {"a", "b", "c", "d"};
    rad_key key = *KEY(1, 2);
    for (int i = 0; i < 4; i++) { /* there is room for three */
        key.cache_salt = salts[i];
        insert(cache, &key);
    }
    key.cache_salt = "c"; /* none was hit: the youngest went */
    rad_explanation e = explain(cache, &key);
    CHECK(e.why == RAD_END_EVICTED && e.evicted_tokens == 2);
    CHECK(e.eviction.cause == RAD_EVICTION_ROOM);
    rad_cache_destroy(cache);
}

/* P4: what happened in one namespace explains nothing in another, unless it was asked for. */
TEST(namespaces_do_not_explain_each_other)
{
    for (int allowed = 0; allowed < 2; allowed++) {
        test_env t;
        rad_cache *cache = make(&t, 1, 16, allowed);
        rad_key a = *KEY(1, 2, 3, 4), b = a, c = a;
        a.cache_salt = "a";
        b.cache_salt = "b";
        c.extra_key = "a";
        insert(cache, &a);
        rad_explanation e = explain(cache, &b);
        CHECK(e.why == (allowed ? RAD_END_OTHER_NAMESPACE : RAD_END_NEVER_SEEN));
        CHECK(e.other_namespace_tokens == (allowed ? 4 : 0) && !e.rounded_tokens);
        CHECK_OK(rad_cache_evict(cache, 2, NULL, NULL));
        CHECK(explain(cache, &a).why == RAD_END_EVICTED);
        e = explain(cache, &c);
        CHECK(e.why != RAD_END_EVICTED && !e.evicted_tokens);
        CHECK_OK(rad_cache_evict(cache, 2, NULL, NULL));
        CHECK(explain(cache, &b).why == RAD_END_NEVER_SEEN);
        CHECK(explain(cache, &c).why == RAD_END_NEVER_SEEN);
        c.extra_key = NULL;
        CHECK(explain(cache, &c).why == RAD_END_NEVER_SEEN);
        CHECK(explain(cache, &a).why == RAD_END_EVICTED);
        rad_cache_destroy(cache);
    }
}

TEST(the_ring_forgets_the_oldest)
{
    test_env t;
    rad_cache *cache = make(&t, 1, 8, false);
    for (rad_token i = 0; i < 100; i++) {
        insert(cache, KEY(1000 + i));
        CHECK_OK(rad_cache_evict(cache, 1, NULL, NULL));
        insert(cache, KEY(5)); /* the same page over and over takes one place, not all */
        CHECK_OK(rad_cache_evict(cache, 1, NULL, NULL));
    }
    for (rad_token i = 0; i < 100; i++) /* of 8 places the last 5 pass are: 4 here, 4 retired */
        CHECK(explain(cache, KEY(1000 + i)).why ==
              (i >= 96 ? RAD_END_EVICTED : RAD_END_NEVER_SEEN));
    CHECK(explain(cache, KEY(5)).why == RAD_END_EVICTED);
    rad_cache_destroy(cache);
}

TEST(deep_paths_show_their_end)
{
    test_env t;
    rad_cache *cache = make(&t, 1, 0, false);
    rad_token tokens[100];
    for (rad_token i = 0; i < 100; i++)
        tokens[i] = i;
    for (uint32_t i = 1; i <= 100; i++)
        insert(cache, &(rad_key){.tokens = tokens, .num_tokens = i});
    rad_explanation e = explain(cache, &(rad_key){.tokens = tokens, .num_tokens = 100});
    CHECK(e.num_nodes == 100 && e.prefix_tokens == 100 && e.nodes[31].tokens == 1);
    rad_cache_destroy(cache);
}

/* With 1,024 of 2^64 fingerprints known, none of a million strangers is taken for one. And
 * explaining changes nothing. */
TEST(strangers_are_not_taken_for_evicted_pages)
{
    uint64_t seed = test_seed(), state = seed;
    test_env t;
    rad_cache *cache = make(&t, 1, 1024, false);
    for (int i = 0; i < 3000; i++) {
        insert(cache, KEY((rad_token)(test_random(&state) % 100000), 1));
        CHECK_OK(rad_cache_evict(cache, i % 4, NULL, NULL));
    }
    rad_cache_stats stats, after;
    rad_cache_get_stats(cache, &stats);
    for (uint64_t i = 0; i < test_scale(100000, 1000000); i++) {
        rad_explanation e;
        rad_token token = (rad_token)(100000 + test_random(&state) % 1000000);
        CHECK_OK(rad_cache_explain(cache, KEY(token, 1), &e));
        CHECKF(e.why == RAD_END_NEVER_SEEN, "seed %llu token %d\n", (unsigned long long)seed,
               token);
    }
    rad_cache_get_stats(cache, &after);
    CHECK(memcmp(&stats, &after, sizeof stats) == 0);
    rad_cache_destroy(cache);
}

TEST(bad_input_and_caches_without_a_tree)
{
    test_env t;
    rad_cache *cache = make(&t, 1, 0, false);
    rad_explanation e;
    rad_key key = {.num_tokens = 3};
    CHECK(rad_cache_explain(cache, &key, &e) == RAD_E_INVAL);
    CHECK(rad_cache_explain(cache, NULL, &e) == RAD_E_INVAL);
    CHECK(rad_cache_explain(cache, KEY(1), NULL) == RAD_E_INVAL);
    CHECK(rad_cache_explain(NULL, KEY(1), &e) == RAD_E_INVAL);
    static char name[600];
    memset(name, 'x', sizeof name - 1);
    key = *KEY(1);
    key.cache_salt = name;
    CHECK_OK(rad_cache_explain(cache, &key, &e));
    CHECK(e.why == RAD_END_TOO_LONG_NAME && !e.prefix_tokens);
    insert(cache, KEY(1, 2));
    CHECK_OK(rad_cache_evict(cache, 1, NULL, NULL));
    CHECK(explain(cache, KEY(1, 2)).why == RAD_END_NEVER_SEEN); /* explanations are off */
    rad_cache_destroy(cache);

    rad_cache_params params = {.struct_size = sizeof params, .kind = RAD_CACHE_CHUNK};
    CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
    CHECK(rad_cache_explain(cache, KEY(1), &e) == RAD_E_UNSUPPORTED);
    rad_cache_destroy(cache);
}

/* All slices, with the keys. */
static void look_at_all(const rad_cache *cache, tree_look *l)
{
    uint32_t slices = 0;
    while (!l->done) {
        tree_look_slice(cache, l);
        slices++;
    }
    CHECK(slices == (l->most_id + TREE_LOOK_SLICE - 1) / TREE_LOOK_SLICE);
}

TEST(a_look_is_what_the_tree_is)
{
    enum { TREES = 2100, ROOM = 3 * TREES + 100 };
    test_env t;
    rad_env env = test_env_init(&t);
    rad_cache *cache;
    CHECK_OK(rad_cache_create(&env,
                              &(rad_cache_params){.struct_size = sizeof(rad_cache_params),
                                                  .page_size = 2,
                                                  .max_tokens = 8 * ROOM},
                              &cache, NULL));
    rad_key salted = *KEY(1, 2, 3, 4);
    salted.cache_salt = "s";
    insert(cache, &salted);
    for (rad_token i = 0; i < TREES; i++) {
        rad_slot slots[6] = {0, 1, 2, 3, 4, 5};
        CHECK_OK(rad_cache_insert(cache, KEY(i, 1, 2, 3, 4, 5), slots, NULL, NULL, NULL));
        CHECK_OK(rad_cache_insert(cache, KEY(i, 1, 2, 3, 9, 9), slots, NULL, NULL, NULL));
    }
    rad_match match;
    rad_receipt receipt;
    CHECK_OK(rad_cache_match_prefix(cache, KEY(7, 1, 2, 3), NULL, &match, NULL));
    CHECK_OK(rad_cache_inc_lock_ref(cache, match.last_node, &receipt, NULL));

    static tree_node_look nodes[ROOM];
    static rad_token tokens[16 * TREES];
    tree_look l = {.nodes = nodes, .room = ROOM, .tokens = tokens, .token_room = 16 * TREES};
    look_at_all(cache, &l);
    rad_cache_stats stats;
    rad_cache_get_stats(cache, &stats);
    CHECK(l.count == stats.num_nodes && l.count == 3 * TREES + 1 && !l.cut);
    CHECK(l.num_tokens == rad_cache_total_size(cache));
    uint32_t locked = 0, evictable = 0, salted_nodes = 0;
    for (uint32_t i = 0; i < l.count; i++) {
        const tree_node_look *n = &nodes[i];
        rad_node_info info = {.struct_size = sizeof info};
        rad_ref ref = {.index = n->id, .generation = n->generation};
        CHECK_OK(rad_cache_get_node_info(cache, ref, &info, NULL));
        CHECK(info.num_tokens == n->num_tokens && info.num_children == n->num_children);
        CHECK(info.parent.index == n->parent && info.parent.generation == n->parent_generation);
        CHECK(info.lock_ref == n->lock_ref && info.hit_count == n->hit_count);
        CHECK(info.last_access == n->last_access && info.is_evictable == n->is_evictable);
        locked += n->lock_ref;
        evictable += n->is_evictable;
        salted_nodes += !n->in_default_namespace;
        rad_token own[8];
        uint32_t count = 8, total;
        CHECK_OK(tree_look_tokens(cache, ref, 0, own, &count, &total));
        CHECK(count == n->num_tokens && total == count);
        CHECK(memcmp(own, tokens + n->tokens_at, count * sizeof *own) == 0);
    }
    CHECK(locked == 1 && salted_nodes == 1 && evictable == 2 * TREES + 1);

    /* The order in which they go is the one that is told. */
    uint32_t first = 0;
    for (uint32_t i = 1; i < l.count; i++)
        if (nodes[i].is_evictable &&
            (!nodes[first].is_evictable || nodes[i].order[0] < nodes[first].order[0] ||
             (nodes[i].order[0] == nodes[first].order[0] &&
              nodes[i].order[1] < nodes[first].order[1])))
            first = i;
    rad_ref coldest = {.index = nodes[first].id, .generation = nodes[first].generation};
    rad_node_info info = {.struct_size = sizeof info};
    CHECK_OK(rad_cache_evict(cache, nodes[first].num_tokens, NULL, NULL));
    CHECK(rad_cache_get_node_info(cache, coldest, &info, NULL) == RAD_E_STATE);
    uint32_t count = 1, total;
    CHECK(tree_look_tokens(cache, coldest, 0, tokens, &count, &total) == RAD_E_STATE);

    l = (tree_look){.nodes = nodes, .room = 10};
    while (!l.done)
        tree_look_slice(cache, &l);
    CHECK(l.cut && l.count == 10);
    CHECK_OK(rad_cache_dec_lock_ref(cache, &receipt, NULL));
    rad_cache_destroy(cache);
    CHECK(t.bytes == 0);
}

TEST(what_went_last_is_noted)
{
    test_env t;
    rad_cache *cache = make(&t, 2, 16, false);
    insert(cache, KEY(1, 2, 3, 4, 5, 6));
    insert(cache, KEY(9, 8));
    CHECK_OK(rad_cache_evict(cache, 2, NULL, NULL));
    CHECK_OK(rad_cache_evict(cache, 2, NULL, NULL));
    const eviction_notes *notes = tree_look_evictions(cache);
    CHECK(notes->count == 1 && notes->last[0].tokens == 4 && !notes->last[0].whole);
    CHECK(notes->tokens[0][RAD_EVICTION_ASKED] == 4 && !notes->tokens[0][RAD_EVICTION_ROOM]);
    CHECK_OK(rad_cache_evict(cache, 4, NULL, NULL));
    CHECK(notes->count == 2 && notes->last[0].whole && notes->last[0].tokens == 6);
    CHECK(notes->last[1].tokens == 2 && notes->last[1].node != notes->last[0].node);
    for (rad_token i = 0; i < 2 * EVICTION_NOTES; i++) {
        insert(cache, KEY(i, i));
        CHECK_OK(rad_cache_evict(cache, 2, NULL, NULL));
    }
    CHECK(notes->count <= 2 + 2 * EVICTION_NOTES);
    CHECK(notes->tokens[0][RAD_EVICTION_ASKED] == 8 + 4 * EVICTION_NOTES);
    rad_cache_destroy(cache);
    rad_cache *none = make(&t, 2, 0, false);
    CHECK(!tree_look_evictions(none));
    rad_cache_destroy(none);
    CHECK(t.bytes == 0);
}

TEST_MAIN()
