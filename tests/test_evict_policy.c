/* test_evict_policy.c - the order of eviction: policies, pins, retention.
 *
 * The orders of SGLang's tests, with radish's values where it differs:
 *
 *   hits       A new node has 0 hits here, 1 in SGLang, and a request counts once. So after
 *              the inserts of its test A, B, C have 2, 1, 0 hits (SGLang: 3, 2, 1), and what its
 *              threshold 2 does (C, A, B) is done by threshold 1. Threshold 2 gives B, C, A.
 *   exact size Evicting 2 of 10 tokens frees 2; SGLang frees the whole leaf.
 *   retention  Stands above the policy's key and is an argument of its own; in its branch it
 *              is the request's priority. When idle time has passed it is over for good. */
#include "cache_failing.h"
#include "test.h"

#include <math.h>
#include <radish/retention.h>

#include "cache/radix_tree.h"

static rad_cache *new_cache(const rad_env *env, rad_cache_params params)
{
    rad_cache *cache;
    params.struct_size = sizeof params;
    CHECK_OK(rad_cache_create(env, &params, &cache, NULL));
    return cache;
}

/* A key is `len` times the same token, and so are its slots. */
static rad_key key_of(rad_token *tokens, rad_token token, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        tokens[i] = token;
    return (rad_key){.tokens = tokens, .num_tokens = len};
}

static void insert(rad_cache *cache, rad_token token, uint32_t len, int32_t priority)
{
    rad_token tokens[64];
    rad_slot slots[64];
    rad_key key = key_of(tokens, token, len);
    rad_insert_params params = {.priority = priority};
    for (uint32_t i = 0; i < len; i++)
        slots[i] = (rad_slot)(100 * (uint32_t)token + i);
    CHECK_OK(rad_cache_insert(cache, &key, slots, &params, NULL, NULL));
}

static void match(rad_cache *cache, rad_token token, uint32_t len)
{
    rad_token tokens[64];
    rad_key key = key_of(tokens, token, len);
    rad_match m;
    CHECK_OK(rad_cache_match_prefix(cache, &key, NULL, &m, NULL));
}

static uint32_t cached(rad_cache *cache, rad_token token)
{
    rad_token tokens[64];
    rad_key key = key_of(tokens, token, 64);
    rad_match m;
    CHECK_OK(rad_cache_lookup(cache, &key, &m));
    return m.prefix_tokens;
}

static uint32_t pin(rad_cache *cache, rad_token token, uint32_t len, uint64_t ttl)
{
    rad_token tokens[64];
    rad_key key = key_of(tokens, token, len);
    uint32_t pinned = 77;
    CHECK_OK(rad_cache_pin_prefix(cache, &key, ttl, &pinned));
    return pinned;
}

static uint32_t retain(rad_cache *cache, rad_token token, uint32_t len, int32_t priority,
                       uint64_t idle)
{
    rad_token tokens[64];
    rad_key key = key_of(tokens, token, len);
    uint32_t retained = 77;
    CHECK_OK(rad_cache_retain_prefix(cache, &key, priority, idle, &retained));
    return retained;
}

/* Evicts token by token; the order in which the keys of the tokens 1..9 disappear. */
static const char *order_of(rad_cache *cache)
{
    static char order[10];
    size_t len = 0;
    uint32_t before[10];
    for (rad_token k = 1; k <= 9; k++)
        before[k] = cached(cache, k);
    for (uint64_t done = 1; done;) {
        CHECK_OK(rad_cache_evict(cache, 1, &done, NULL));
        CHECK_OK(rad_cache_check(cache, NULL));
        for (rad_token k = 1; k <= 9; k++) {
            uint32_t now = cached(cache, k);
            if (before[k] && !now) order[len++] = (char)('A' + k - 1);
            before[k] = now;
        }
    }
    order[len] = 0;
    CHECK(rad_cache_total_size(cache) == 0);
    return order;
}

static uint64_t by_priority_backwards(void *user, const rad_evict_facts *f)
{
    ++*(uint32_t *)user;
    return (uint64_t)(1000 - f->priority);
}

TEST(each_policy_has_its_order)
{
    static const struct {
        rad_eviction_options eviction;
        const char *order;
    } cases[] = {
        {{.policy = RAD_EVICT_LRU}, "ABC"},   {{.policy = RAD_EVICT_LFU}, "CBA"},
        {{.policy = RAD_EVICT_FIFO}, "ABC"},  {{.policy = RAD_EVICT_MRU}, "CBA"},
        {{.policy = RAD_EVICT_FILO}, "CBA"},  {{.policy = RAD_EVICT_PRIORITY}, "ACB"},
        {{.policy = RAD_EVICT_SLRU}, "BCA"},  {{RAD_EVICT_SLRU, 1, 0, 0}, "CAB"},
        {{RAD_EVICT_SLRU, 100, 0, 0}, "ABC"}, {{.policy = RAD_EVICT_USER}, "BCA"},
        {{.policy = RAD_EVICT_COST}, "CBA"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t asked = 0;
        rad_cache *cache = new_cache(NULL, (rad_cache_params){.eviction = cases[i].eviction,
                                                              .max_tokens = 200,
                                                              .evict_key = by_priority_backwards,
                                                              .evict_user = &asked});
        insert(cache, 1, 2, 0);
        insert(cache, 2, 2, 5);
        insert(cache, 3, 2, 1);
        insert(cache, 1, 2, 0);
        insert(cache, 1, 2, 0);
        insert(cache, 2, 2, 5);
        match(cache, 3, 2);
        CHECK_OK(rad_cache_check(cache, NULL));
        const char *order = order_of(cache);
        CHECKF(strcmp(order, cases[i].order) == 0, "case %zu (%s): %s, not %s", i,
               rad_eviction_policy_name(cases[i].eviction.policy), order, cases[i].order);
        CHECK((asked > 0) == (cases[i].eviction.policy == RAD_EVICT_USER));
        rad_cache_destroy(cache);
    }
}

/* Nodes with given facts, the keys compared. */
static heap_key key_for(rad_eviction_options eviction, uint64_t used, uint64_t created,
                        uint32_t hits, int32_t priority)
{
    radix_node nodes[2] = {{0}, {.last_access = used, .hit_count = hits, .priority = priority}};
    radix_cold cold[2] = {{0}, {.created = created}};
    if (!eviction.protected_threshold) eviction.protected_threshold = 2;
    radix_tree t = {.nodes = nodes, .cold = cold, .limits = {.eviction = eviction}};
    return evict_policy_of(eviction.policy)->key(&t, 1, &t.limits.eviction);
}

TEST(keys_order_as_sglangs_do)
{
    rad_eviction_options lru = {.policy = RAD_EVICT_LRU}, lfu = {.policy = RAD_EVICT_LFU},
                         fifo = {.policy = RAD_EVICT_FIFO}, mru = {.policy = RAD_EVICT_MRU},
                         filo = {.policy = RAD_EVICT_FILO}, prio = {.policy = RAD_EVICT_PRIORITY},
                         slru = {.policy = RAD_EVICT_SLRU}, slru5 = {RAD_EVICT_SLRU, 5, 0, 0};
    CHECK(key_for(lru, 42, 1, 1, 1) == 42 && key_for(fifo, 1, 7, 1, 1) == 7);
    CHECK(key_for(lfu, 9, 0, 1, 0) < key_for(lfu, 3, 0, 5, 0)); /* fewer hits though newer */
    CHECK(key_for(lfu, 3, 0, 5, 0) < key_for(lfu, 4, 0, 5, 0));
    CHECK(key_for(mru, 5, 0, 0, 0) < key_for(mru, 4, 0, 0, 0));
    CHECK(key_for(filo, 0, 3, 0, 0) < key_for(filo, 0, 2, 0, 0));
    CHECK(key_for(prio, 9, 0, 0, 1) < key_for(prio, 4, 0, 0, 2));
    CHECK(key_for(prio, 9, 0, 0, -1) < key_for(prio, 4, 0, 0, 0));
    CHECK(key_for(prio, 9, 0, 0, INT32_MIN) < key_for(prio, 4, 0, 0, INT32_MIN + 1));
    CHECK(key_for(prio, 4, 0, 0, INT32_MAX) < key_for(prio, 5, 0, 0, INT32_MAX));
    CHECK(key_for(slru, 5, 0, 1, 0) == 5 && key_for(slru, 5, 0, 0, 0) == 5);
    CHECK(key_for(slru, 5, 0, 2, 0) == key_for(slru, 5, 0, 100, 0));
    CHECK(key_for(slru, 5, 0, 1, 0) < key_for(slru, 1, 0, 2, 0));
    CHECK(key_for(slru5, 9, 0, 4, 0) < key_for(slru5, 1, 0, 5, 0));
    heap_key ordered[] = {key_for(slru, 2, 0, 0, 0), key_for(slru, 10, 0, 0, 0),
                          key_for(slru, 1, 0, 5, 0), key_for(slru, 8, 0, 3, 0)};
    for (int i = 0; i < 3; i++)
        CHECK(ordered[i] < ordered[i + 1]);
    /* The policy's part never reaches what stands above it. */
    uint64_t late = (UINT64_C(1) << EVICT_TIME_BITS) - 1;
    CHECK(key_for(lfu, late, 0, UINT32_MAX, 0) >> EVICT_POLICY_BITS == 0);
    CHECK(key_for(prio, late, 0, 0, INT32_MAX) >> EVICT_POLICY_BITS == 0);
}

TEST(policies_have_names)
{
    uint32_t policy = 99;
    for (uint32_t i = 0; i <= RAD_EVICT_USER; i++) {
        CHECK_OK(rad_eviction_policy_parse(rad_eviction_policy_name(i), &policy, NULL));
        CHECK(policy == i);
    }
    CHECK(!rad_eviction_policy_name(RAD_EVICT_USER + 1));
    rad_error err = {0};
    CHECK(rad_eviction_policy_parse("LRU", &policy, &err) == RAD_E_INVAL &&
          policy == RAD_EVICT_USER);
    CHECK(strstr(err.text, "slru") && strstr(err.text, "'LRU'"));
    CHECK(rad_eviction_policy_parse(NULL, &policy, &err) == RAD_E_INVAL);
    CHECK(rad_eviction_policy_parse("lru", NULL, &err) == RAD_E_INVAL);
    rad_cache *cache;
    rad_cache_params params = {.struct_size = sizeof params, .eviction = {.policy = 9}};
    CHECK(rad_cache_create(NULL, &params, &cache, &err) == RAD_E_INVAL);
    params.eviction.policy = RAD_EVICT_USER;
    CHECK(rad_cache_create(NULL, &params, &cache, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "evict_key"));
}

/* Heat against real numbers. */
TEST(heat_is_the_logarithm_of_decayed_uses)
{
    uint64_t seed = test_seed(), dice = seed;
    const double one = (double)(1 << EVICT_HEAT_BITS);
    for (int i = 0; i < 2000; i++) {
        uint64_t half_life = 1 + test_random(&dice) % 100000, clock = 0, heat = 0;
        double sum = 0, at = 0;
        for (int uses = 0; uses < 10; uses++) {
            uint64_t step = test_random(&dice) % (half_life * 3);
            clock += step;
            sum = sum * exp2(-(double)step / (double)half_life) + 1;
            uint64_t now = evict_heat_at(clock, half_life);
            heat = uses ? evict_heat_add(heat, now) : now;
            at = (double)clock / (double)half_life + log2(sum);
            CHECKF(fabs((double)heat / one - at) < 0.003, "%f, not %f, seed %llu",
                   (double)heat / one, at, (unsigned long long)seed);
        }
        uint64_t tokens = test_random(&dice) % 2000000;
        uint32_t attention = 1 + (uint32_t)(test_random(&dice) % 100000);
        double cost = log2(1 + (double)tokens / attention);
        CHECK(fabs((double)evict_cost(tokens, attention) / one - cost) < 0.003);
    }
    CHECK(evict_heat_add(5, 5) == evict_heat_add(0, 0) + 5);
    CHECK(evict_heat_add(0, UINT64_C(1) << 60) == UINT64_C(1) << 60); /* ages ago */
}

/* Hits are forgotten as fast as the half-life says. */
TEST(hits_decay)
{
    static const char *const orders[] = {"AB", "BA"};
    for (uint32_t i = 0; i < 2; i++) {
        rad_cache_params params = {
            .max_tokens = 1000,
            .eviction = {.policy = RAD_EVICT_COST, .cost_half_life_percent = i ? 1000 : 1}};
        rad_cache *cache = new_cache(NULL, params);
        for (int k = 0; k < 5; k++)
            insert(cache, 1, 2, 0);
        insert(cache, 2, 60, 0); /* six half-lives of 10 tokens */
        const char *order = order_of(cache);
        CHECKF(strcmp(order, orders[i]) == 0, "%s", order);
        rad_cache_destroy(cache);
    }
}

/* Of two leaves that were used alike, the one deep in its context stays. */
TEST(what_costs_more_to_compute_stays_longer)
{
    rad_cache_params params = {.max_tokens = 100000, .eviction = {RAD_EVICT_COST, 0, 0, 10}};
    rad_cache *cache = new_cache(NULL, params);
    insert(cache, 1, 40, 0);
    insert(cache, 2, 10, 0); /* younger, but cheap */
    uint64_t done;
    CHECK_OK(rad_cache_evict(cache, 10, &done, NULL));
    CHECK(cached(cache, 1) == 40 && cached(cache, 2) == 0);
    insert(cache, 2, 10, 0);
    CHECK_OK(rad_cache_evict(cache, 35, &done, NULL)); /* a leaf that is cut gets cheaper */
    CHECK(done == 35 && cached(cache, 1) == 15 && cached(cache, 2) == 0);
    rad_cache_destroy(cache);
}

/* What a user's function is told, and that a fickle one does no harm. */
typedef struct witness {
    rad_evict_facts last;
    uint64_t dice;
    bool fickle;
} witness;

static uint64_t ask_witness(void *user, const rad_evict_facts *facts)
{
    witness *w = user;
    w->last = *facts;
    return w->fickle ? test_random(&w->dice) : facts->last_access;
}

TEST(a_users_function_is_told_the_facts)
{
    witness w = {.dice = test_seed()};
    rad_cache_params params = {.eviction = {.policy = RAD_EVICT_USER},
                               .evict_key = ask_witness,
                               .evict_user = &w,
                               .page_size = 2};
    rad_cache *cache = new_cache(NULL, params);
    rad_token tokens[] = {1, 1, 1, 1, 2, 2, 2, 2};
    rad_slot slots[] = {0, 1, 2, 3, 4, 5, 6, 7};
    rad_key key = {.tokens = tokens, .num_tokens = 4};
    rad_insert_params how = {.priority = -3};
    CHECK_OK(rad_cache_insert(cache, &key, slots, &how, NULL, NULL));
    CHECK(w.last.num_tokens == 4 && w.last.depth_tokens == 4 && w.last.priority == -3);
    CHECK(w.last.hit_count == 0 && w.last.page_size == 2);
    CHECK(w.last.last_access == w.last.created && w.last.created > 0);
    key.num_tokens = 8;
    CHECK_OK(rad_cache_insert(cache, &key, slots, &how, NULL, NULL));
    CHECK(w.last.num_tokens == 4 && w.last.depth_tokens == 8);
    CHECK_OK(rad_cache_insert(cache, &key, slots, &how, NULL, NULL));
    CHECK(w.last.hit_count == 1 && w.last.last_access > w.last.created);
    CHECK_OK(rad_cache_evict(cache, 2, NULL, NULL));
    CHECK(w.last.num_tokens == 2 && w.last.depth_tokens == 6);
    w.fickle = true;
    for (int i = 0; i < 200; i++) {
        insert(cache, 1 + i % 9, 2 + (uint32_t)i % 20, 0);
        match(cache, 1 + i % 7, 8);
        if (i % 3 == 0) CHECK_OK(rad_cache_evict(cache, 5, NULL, NULL));
        CHECK_OK(rad_cache_check(cache, NULL));
    }
    uint64_t all = rad_cache_total_size(cache), done;
    CHECK_OK(rad_cache_evict(cache, 1 << 20, &done, NULL));
    CHECK(done == all);
    rad_cache_destroy(cache);
}

TEST(pins_hold_until_they_end)
{
    test_env t;
    rad_env env = test_env_failing_at(&t, -1);
    rad_cache *cache = new_cache(&env, (rad_cache_params){.max_pinned_tokens = 100});
    for (rad_token k = 1; k <= 3; k++)
        insert(cache, k, 10, 0);
    t.now = 1000;
    CHECK(pin(cache, 1, 10, 1000) == 10 && rad_cache_pinned_size(cache) == 10);
    CHECK(pin(cache, 9, 10, 1000) == 0); /* not cached */
    CHECK(strcmp(order_of(cache), "BCA") == 0);
    CHECK(rad_cache_pinned_size(cache) == 0); /* evicted last, but evicted */

    for (rad_token k = 1; k <= 3; k++)
        insert(cache, k, 10, 0);
    t.now = 3000;
    CHECK(pin(cache, 1, 10, 1000) == 10 && pin(cache, 2, 10, 5000) == 10);
    t.now = 5000; /* the first has ended: an old leaf like others */
    CHECK(strcmp(order_of(cache), "ACB") == 0);

    for (rad_token k = 1; k <= 3; k++)
        insert(cache, k, 10, 0);
    t.now = 10000;
    CHECK(pin(cache, 1, 10, 1000) == 10);
    t.now = 10900;
    match(cache, 1, 10); /* a hit starts the time anew */
    insert(cache, 2, 10, 0);
    t.now = 11800;
    CHECK(strcmp(order_of(cache), "CBA") == 0);

    insert(cache, 1, 10, 0);
    insert(cache, 2, 10, 0);
    CHECK(pin(cache, 1, 10, 1000) == 10 && pin(cache, 1, 10, 0) == 10); /* unpinned */
    CHECK(rad_cache_pinned_size(cache) == 0 && strcmp(order_of(cache), "AB") == 0);
    rad_cache_destroy(cache);
    CHECK(t.bytes == 0);
}

TEST(pins_keep_to_their_budget)
{
    rad_cache *cache = new_cache(NULL, (rad_cache_params){.max_pinned_tokens = 15, .page_size = 1});
    const uint64_t hour = 3600000000000u;
    insert(cache, 1, 10, 0);
    insert(cache, 2, 10, 0);
    CHECK(pin(cache, 1, 10, hour) == 10);
    CHECK(pin(cache, 1, 10, hour) == 10 && rad_cache_pinned_size(cache) == 10); /* once */
    CHECK(pin(cache, 2, 10, hour) == 5 && rad_cache_pinned_size(cache) == 15);  /* its front */
    CHECK_OK(rad_cache_check(cache, NULL));
    CHECK(pin(cache, 2, 10, hour) == 5 && rad_cache_pinned_size(cache) == 15);
    uint64_t done;
    CHECK_OK(rad_cache_evict(cache, 5, &done, NULL));
    CHECK(cached(cache, 2) == 5 && cached(cache, 1) == 10);
    match(cache, 1, 4); /* a split changes nothing about it */
    CHECK(rad_cache_pinned_size(cache) == 15);
    CHECK_OK(rad_cache_check(cache, NULL));
    CHECK(pin(cache, 1, 3, 0) == 3 && rad_cache_pinned_size(cache) == 12);
    CHECK_OK(rad_cache_check(cache, NULL));
    CHECK_OK(rad_cache_evict(cache, 15, &done, NULL)); /* nothing wedges */
    CHECK(done == 15 && rad_cache_pinned_size(cache) == 0);
    insert(cache, 1, 10, 0);
    CHECK(pin(cache, 1, 10, UINT64_MAX) == 10); /* no wrap around */
    CHECK_OK(rad_cache_reset(cache));
    CHECK(rad_cache_pinned_size(cache) == 0);
    CHECK_OK(rad_cache_check(cache, NULL));
    rad_cache_destroy(cache);
}

TEST(retention_decays_and_the_stronger_stays)
{
    const uint64_t s = 1000000000;
    test_env t;
    rad_env env = test_env_failing_at(&t, -1);
    rad_cache *cache = new_cache(&env, (rad_cache_params){.retention = 1});
    for (rad_token k = 1; k <= 6; k++)
        insert(cache, k, 4, 0);
    CHECK(retain(cache, 1, 4, 500, 10 * s) == 4); /* cut to 99 */
    CHECK(retain(cache, 2, 4, 50, 10 * s) == 4);
    CHECK(retain(cache, 3, 4, 99, 300 * s) == 4);
    CHECK(retain(cache, 4, 4, 50, 0) == 4); /* for good */
    CHECK(retain(cache, 5, 4, -7, 0) == 4); /* cut to 0: not at all */
    CHECK_OK(rad_cache_check(cache, NULL));
    CHECK(strcmp(order_of(cache), "EFBDAC") == 0); /* within a priority the policy decides */

    for (rad_token k = 1; k <= 6; k++)
        insert(cache, k, 4, 0);
    t.now = 0;
    retain(cache, 1, 4, 50, 10 * s);
    retain(cache, 2, 4, 50, 10 * s);
    retain(cache, 3, 4, 50, 0);
    t.now = 95 * s / 10;
    match(cache, 2, 4); /* used: begins anew */
    t.now = 15 * s;
    CHECK(strcmp(order_of(cache), "ADEFCB") == 0); /* A was idle for 15 s, B for 5.5 */

    insert(cache, 1, 4, 0);
    insert(cache, 2, 4, 0);
    t.now = 100 * s;
    retain(cache, 1, 4, 50, 300 * s);
    retain(cache, 1, 4, 99, 1 * s); /* the stronger, though shorter */
    retain(cache, 2, 4, 60, 300 * s);
    retain(cache, 2, 4, 50, 0); /* the weaker changes nothing */
    t.now = 100 * s + s / 2;
    CHECK(strcmp(order_of(cache), "BA") == 0);

    insert(cache, 2, 4, 0);
    insert(cache, 1, 4, 0);
    t.now = 200 * s;
    retain(cache, 1, 4, 50, 0);
    retain(cache, 1, 4, 50, 10 * s); /* a tie: for good is the longer */
    retain(cache, 2, 4, 50, 10 * s);
    retain(cache, 2, 4, 50, 20 * s);
    t.now = 215 * s;
    CHECK(strcmp(order_of(cache), "BA") == 0); /* both hold still: least recently used */
    insert(cache, 2, 4, 0);
    insert(cache, 1, 4, 0);
    retain(cache, 1, 4, 50, 0);
    retain(cache, 1, 4, 0, 0); /* ends it */
    retain(cache, 2, 4, 1, 0);
    CHECK(strcmp(order_of(cache), "AB") == 0);

    keep_record r = {.retention = 50, .idle_ns = 300 * s};
    CHECK(keep_is_stronger(99, 1 * s, &r) && !keep_is_stronger(50, 10 * s, &r));
    CHECK(keep_is_stronger(50, 301 * s, &r) && keep_is_stronger(50, 0, &r));
    r.idle_ns = 0;
    CHECK(!keep_is_stronger(50, 10 * s, &r) && !keep_is_stronger(50, 0, &r));
    rad_cache_destroy(cache);
}

TEST(who_has_no_budget_is_told_so)
{
    rad_token tokens[4];
    rad_key key = key_of(tokens, 1, 4);
    uint32_t n = 7;
    rad_cache *cache = new_cache(NULL, (rad_cache_params){0});
    insert(cache, 1, 4, 0);
    CHECK(rad_cache_pin_prefix(cache, &key, 5, &n) == RAD_E_UNSUPPORTED && n == 0);
    CHECK(rad_cache_retain_prefix(cache, &key, 5, 5, NULL) == RAD_E_UNSUPPORTED);
    CHECK(rad_cache_pin_prefix(cache, NULL, 5, &n) == RAD_E_INVAL);
    CHECK(rad_cache_retain_prefix(cache, &(rad_key){.num_tokens = 3}, 5, 5, &n) == RAD_E_INVAL);
    CHECK(rad_cache_pinned_size(cache) == 0);
    rad_cache_destroy(cache);
    cache = new_cache(NULL, (rad_cache_params){.kind = RAD_CACHE_CHUNK});
    CHECK(rad_cache_pin_prefix(cache, &key, 5, &n) == RAD_E_UNSUPPORTED);
    CHECK(rad_cache_retain_prefix(cache, &key, 5, 5, &n) == RAD_E_UNSUPPORTED);
    CHECK(rad_cache_pinned_size(cache) == 0);
    rad_cache_destroy(cache);
}

TEST(create_survives_every_allocation_failing)
{
    rad_cache_params params = {.struct_size = sizeof params,
                               .max_tokens = 100,
                               .eviction = {.policy = RAD_EVICT_COST},
                               .max_pinned_tokens = 10};
    test_env t;
    rad_cache *cache = cache_after_every_failure(&params, &t);
    CHECK(metadata_bytes(cache) == t.bytes);
    rad_cache_destroy(cache);
    CHECK(t.bytes == 0);
}

/* Under any policy nodes that run short are merged; what is kept stays within its budget. */
TEST(a_merge_keeps_the_budget)
{
    test_env t;
    rad_env env = test_env_failing_at(&t, -1);
    rad_cache *cache = new_cache(
        &env, (rad_cache_params){.max_nodes = 4, .max_pinned_tokens = 12, .retention = 1});
    uint64_t seed = test_seed(), dice = seed;
    for (uint64_t i = 0; i < test_scale(5000, 200000); i++) {
        rad_token k = 1 + (rad_token)(test_random(&dice) % 3);
        uint32_t len = 1 + (uint32_t)(test_random(&dice) % 20);
        switch (test_random(&dice) % 5) {
        case 0: insert(cache, k, len, 0); break;
        case 1: match(cache, k, len); break;
        case 2: CHECK(pin(cache, k, len, test_random(&dice) % 50) <= len); break;
        case 3:
            retain(cache, k, len, (int32_t)(test_random(&dice) % 3), test_random(&dice) % 50);
            break;
        default: CHECK_OK(rad_cache_evict(cache, len / 4, NULL, NULL));
        }
        rad_error err = {0};
        CHECKF(rad_cache_check(cache, &err) == RAD_OK, "%s, seed %llu", err.text,
               (unsigned long long)seed);
    }
    rad_cache_destroy(cache);
}

TEST_MAIN()
