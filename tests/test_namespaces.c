/* test_namespaces.c - many users and many short branches in a pool that holds them: each is found
 * again; and where places for namespaces are fewer than users, who keeps one. */
#include "test.h"

#include "cache/radix_cache.h"

typedef struct pool {
    rad_kv_allocator *kv;
    rad_cache *cache;
    uint32_t ps;
} pool;

static pool make_pool(uint32_t page_size, uint32_t num_pages, uint32_t max_namespaces)
{
    pool p = {.ps = page_size};
    rad_kv_allocator_params pages = {
        .struct_size = sizeof pages, .num_pages = num_pages, .page_size = page_size};
    CHECK_OK(rad_kv_allocator_create(NULL, &pages, &p.kv, NULL));
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = page_size,
                               .kv_allocator = p.kv,
                               .max_namespaces = max_namespaces};
    CHECK_OK(rad_cache_create(NULL, &params, &p.cache, NULL));
    return p;
}

static void end_pool(pool *p)
{
    rad_error err = {0};
    CHECKF(rad_cache_check(p->cache, &err) == RAD_OK, "%s\n", err.text);
    rad_cache_destroy(p->cache);
    rad_kv_allocator_destroy(p->kv);
}

/* What a request of this key does; returns the tokens it found. */
static uint32_t serve(pool *p, const rad_key *key)
{
    enum { MOST = 64 };
    rad_slot slots[MOST], fresh[MOST];
    rad_match m;
    rad_inserted in;
    uint32_t prefix;
    CHECK(key->num_tokens <= MOST && key->num_tokens % p->ps == 0);
    CHECK_OK(rad_cache_match_prefix(p->cache, key, slots, &m, NULL));
    prefix = m.prefix_tokens;
    uint64_t want = key->num_tokens - prefix, there = rad_kv_available_size(p->kv);
    if (want > there) CHECK_OK(rad_cache_evict(p->cache, want - there, NULL, NULL));
    rad_slot last = prefix ? slots[prefix - 1] : -1;
    CHECK_OK(rad_kv_alloc_extend(p->kv, 1, &prefix, &key->num_tokens, &last, fresh, NULL));
    memcpy(slots + prefix, fresh, want * sizeof *slots);
    CHECK_OK(rad_cache_insert(p->cache, key, slots, NULL, &in, NULL));
    CHECK(in.prefix_tokens == prefix);
    return prefix;
}

static uint32_t serve_user(pool *p, uint32_t user, uint32_t num_tokens)
{
    rad_token tokens[64];
    char salt[32];
    for (uint32_t i = 0; i < num_tokens; i++)
        tokens[i] = (rad_token)i; /* everybody asks the same: the salt keeps them apart */
    snprintf(salt, sizeof salt, "user %u", user);
    return serve(p, &(rad_key){.tokens = tokens, .num_tokens = num_tokens, .cache_salt = salt});
}

static rad_namespace_stats stats_of(const pool *p)
{
    rad_namespace_stats stats = {.struct_size = sizeof stats};
    CHECK_OK(rad_cache_get_namespace_stats(p->cache, &stats));
    return stats;
}

/* The limit was 256 whatever the pool, and past it everybody was pushed out in turn. */
TEST(as_many_users_as_the_pool_holds_are_all_found)
{
    enum { USERS = 2000 };
    for (uint32_t ps = 1; ps <= 16; ps *= 16) {
        pool p = make_pool(ps, USERS * 16 / ps, 0);
        for (uint32_t user = 0; user < USERS; user++)
            CHECK(serve_user(&p, user, 16) == 0);
        for (uint32_t user = 0; user < USERS; user++)
            CHECK(serve_user(&p, user, 16) == 16);
        rad_namespace_stats stats = stats_of(&p);
        CHECK(stats.used == USERS && stats.most >= USERS && !stats.given_up);
        end_pool(&p);
    }
}

/* Nodes were a 32nd of the tokens: of these prompts 4,095 were found. */
TEST(short_branches_in_a_pool_that_holds_them_are_all_found)
{
    enum { PROMPTS = 8000, SHARED = 20, OWN = 12, TOKENS = 131072 };
    pool p = make_pool(1, TOKENS, 0);
    rad_token tokens[SHARED + OWN];
    for (int round = 0; round < 2; round++)
        for (uint32_t prompt = 0; prompt < PROMPTS; prompt++) {
            for (uint32_t i = 0; i < SHARED + OWN; i++)
                tokens[i] = (rad_token)(i < SHARED ? i : 1000 + prompt * OWN + i);
            uint32_t found = serve(&p, &(rad_key){.tokens = tokens, .num_tokens = SHARED + OWN});
            CHECK(found == (round ? SHARED + OWN : prompt ? SHARED : 0));
        }
    end_pool(&p);
}

/* A branch at each token: a node for each page is enough, and never too few. */
TEST(branches_of_one_page_fill_the_pool)
{
    enum { PAGES = 3000 };
    pool p = make_pool(1, PAGES, 0);
    rad_token tokens[2] = {7, 0};
    for (int round = 0; round < 2; round++)
        for (rad_token i = 0; i < PAGES - 1; i++) {
            tokens[1] = i;
            uint32_t found = serve(&p, &(rad_key){.tokens = tokens, .num_tokens = 2});
            CHECK(found == (round ? 2 : i ? 1 : 0));
        }
    CHECK(rad_kv_available_pages(p.kv) == 0);
    end_pool(&p);
}

/* 300 users in turn, 256 places: by last use each would find its own place just given away. */
TEST(users_in_turn_who_are_more_than_fit_mostly_keep_their_places)
{
    enum { USERS = 300, PLACES = 256 };
    pool p = make_pool(1, USERS * 8, PLACES);
    for (int round = 0; round < 6; round++) {
        uint32_t found = 0;
        for (uint32_t user = 0; user < USERS; user++)
            found += serve_user(&p, user, 8) == 8;
        CHECKF(round ? found >= 200 : !found, "round %d: %u\n", round, found);
        CHECK(stats_of(&p).used <= PLACES);
    }
    CHECK(stats_of(&p).given_up > 0);
    end_pool(&p);
}

/* A flood of names that come once leaves those alone who come back. */
TEST(a_flood_of_new_names_does_not_push_out_who_comes_back)
{
    enum { REGULARS = 100, PLACES = 256, FLOOD = 10000 };
    pool p = make_pool(1, 4096, PLACES);
    for (int round = 0; round < 3; round++)
        for (uint32_t user = 0; user < REGULARS; user++)
            serve_user(&p, user, 8);
    for (uint32_t i = 0; i < FLOOD; i++) {
        serve_user(&p, 1000 + i, 8);
        if (i % 4 == 0) CHECK(serve_user(&p, i / 4 % REGULARS, 8) == 8);
    }
    end_pool(&p);
}

/* What was useful once does not stay for ever. */
TEST(old_users_make_room_for_new_ones)
{
    enum { PLACES = 64 };
    pool p = make_pool(1, 4096, PLACES);
    for (int round = 0; round < 300; round++)
        for (uint32_t user = 0; user < PLACES; user++)
            serve_user(&p, user, 8);
    uint32_t found = 0;
    for (int round = 0; round < 8; round++) {
        found = 0;
        for (uint32_t user = 0; user < PLACES; user++)
            found += serve_user(&p, 1000 + user, 8) == 8;
    }
    CHECKF(found == PLACES, "%u of the new ones found\n", found);
    end_pool(&p);
}

/* One that was in use and is worth little goes after others that were worth more: the age stays, or
 * what is used next would be worth less than what is not used any more. */
TEST(the_age_does_not_fall_behind_one_that_was_in_use)
{
    pool p = make_pool(1, 1024, 2);
    rad_token tokens[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    rad_key first = {.tokens = tokens, .num_tokens = 8, .cache_salt = "user 0"};
    rad_match m;
    rad_receipt held;
    serve_user(&p, 0, 8);
    CHECK_OK(rad_cache_lookup(p.cache, &first, &m));
    CHECK_OK(rad_cache_inc_lock_ref(p.cache, m.last_node, &held, NULL));
    for (int i = 0; i < 11; i++)
        serve_user(&p, 1, 8);
    CHECK(serve_user(&p, 2, 8) == 0); /* in place of user 1, who had 10 hits */
    CHECK_OK(rad_cache_dec_lock_ref(p.cache, &held, NULL));
    CHECK(serve_user(&p, 3, 8) == 0); /* in place of user 0, who had none */
    CHECK(serve_user(&p, 2, 8) == 8);
    for (int i = 0; i < 3; i++)
        CHECK(serve_user(&p, 3, 8) == 8);
    CHECK(serve_user(&p, 4, 8) == 0); /* in place of user 2: one hit, user 3 has three */
    CHECK(serve_user(&p, 3, 8) == 8);
    end_pool(&p);
}

/* A namespace in use is not given up, and is again once it is free. */
TEST(namespaces_in_use_are_passed_over)
{
    enum { PLACES = 8 };
    pool p = make_pool(1, 1024, PLACES);
    rad_receipt held[PLACES];
    rad_token tokens[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    char salt[32];
    for (uint32_t user = 0; user < PLACES; user++) {
        rad_match m;
        serve_user(&p, user, 8);
        snprintf(salt, sizeof salt, "user %u", user);
        CHECK_OK(rad_cache_lookup(
            p.cache, &(rad_key){.tokens = tokens, .num_tokens = 8, .cache_salt = salt}, &m));
        CHECK_OK(rad_cache_inc_lock_ref(p.cache, m.last_node, &held[user], NULL));
    }
    rad_slot slots[8];
    rad_key another = {.tokens = tokens, .num_tokens = 8, .cache_salt = "another"};
    CHECK_OK(rad_kv_alloc(p.kv, slots, 8));
    CHECK(rad_cache_insert(p.cache, &another, slots, NULL, NULL, NULL) == RAD_FULL);
    CHECK_OK(rad_kv_free(p.kv, slots, 8, NULL));
    CHECK(stats_of(&p).used == PLACES && !stats_of(&p).given_up);
    CHECK_OK(rad_cache_dec_lock_ref(p.cache, &held[3], NULL));
    CHECK(serve_user(&p, 99, 8) == 0 && serve_user(&p, 99, 8) == 8);
    for (uint32_t user = 0; user < PLACES; user++)
        if (user != 3) CHECK(serve_user(&p, user, 8) == 8);
    for (uint32_t user = 0; user < PLACES; user++)
        if (user != 3) CHECK_OK(rad_cache_dec_lock_ref(p.cache, &held[user], NULL));
    CHECK(serve_user(&p, 3, 8) == 0 && stats_of(&p).given_up == 2);
    end_pool(&p);
}

TEST_MAIN()
