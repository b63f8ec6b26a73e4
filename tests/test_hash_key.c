/* test_hash_key.c - tables that users fill cannot be made slow by choosing what goes in.
 *
 * The tables had fixed hashes: of a hundred million tokens, pages, names or pairs anybody could
 * pick thousands that fall into a few places, and each lookup walked them all (8,000 such prompts
 * made an insert 27 times slower). Here the sets that were bad for those hashes are put in, and
 * sets with patterns, and the places that lookups look at are counted. */
#include "test.h"

#include "base/hash_key.h"
#include "base/mix64.h"
#include "cache/radix_cache.h"
#include "text/bpe.h"
#include "text/vocab.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- the hashes that were, to choose by ---- */

static uint32_t old_token_hash(uint32_t parent, rad_token token)
{
    uint64_t h = ((uint64_t)parent << 32 | (uint32_t)token) * 0x9e3779b97f4a7c15u;
    return (uint32_t)((h ^ h >> 29) * 0xbf58476d1ce4e5b9u >> 32);
}

static uint32_t old_page_hash(uint32_t parent, const rad_token *page, uint32_t page_size)
{
    return (uint32_t)XXH3_64bits_withSeed(page, page_size * sizeof *page, parent);
}

static uint32_t old_salt_hash(const char *salt)
{
    uint64_t h = XXH3_64bits_withSeed(salt, strlen(salt), 3); /* no extra_key */
    return (uint32_t)(h ^ h >> 32);
}

static uint32_t old_word_hash(uint64_t word) /* of eight bytes */
{
    const uint64_t k = 0x9e3779b97f4a7c15u;
    uint64_t h = (8 * k ^ word) * k;
    h = (h ^ h >> 32) * k;
    return (uint32_t)((h ^ h >> 29) * k >> 32);
}

static uint32_t old_pair_hash(uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
    return (uint32_t)(h * 0xd6e8feb86659fd93u >> 20);
}

/* One place of a thousand, of the tables below. */
static bool is_crowded(uint32_t hash)
{
    return (hash & 0xffff) < 64;
}

/* ---- counting ---- */

/* Places that a lookup looks at until it finds its entry, on average over all entries. */
static double looks(const map *m)
{
    uint64_t sum = 0, count = 0;
    for (uint32_t at = 0; at <= m->mask; at++) {
        if (!m->entries[at].id) continue;
        sum += ((at - m->entries[at].hash) & m->mask) + 1;
        count++;
    }
    CHECK(count == m->count);
    return count ? (double)sum / (double)count : 0;
}

/* Linear probing at most two thirds full: 2 on average where places are like chance. */
static void is_like_chance(const char *what, double places)
{
    CHECKF(places < 4, "%s: %.1f places for a lookup\n", what, places);
}

enum { MANY = 8000 };

static rad_cache *make_cache(uint32_t page_size, uint64_t hash_seed)
{
    rad_env env = {.struct_size = sizeof env, .hash_seed = hash_seed};
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = page_size,
                               .max_tokens = 4 * MANY * page_size,
                               .max_namespaces = MANY};
    rad_cache *cache;
    CHECK_OK(rad_cache_create(&env, &params, &cache, NULL));
    return cache;
}

static void put(rad_cache *cache, const rad_token *tokens, uint32_t count, const char *salt)
{
    rad_slot slots[32];
    for (uint32_t i = 0; i < count; i++)
        slots[i] = (rad_slot)i; /* index-only: nobody looks */
    rad_key key = {.tokens = tokens, .num_tokens = count, .cache_salt = salt};
    CHECK_OK(rad_cache_insert(cache, &key, slots, NULL, NULL, NULL));
}

static const radix_tree *tree_of(const rad_cache *cache)
{
    return &radix_cache_of(cache)->tree;
}

/* ---- the tree ---- */

TEST(prompts_that_met_under_the_old_hash_of_a_token_do_not_meet)
{
    rad_cache *cache = make_cache(1, 0);
    put(cache, (rad_token[]){1}, 1, NULL);
    uint32_t root = tree_of(cache)->names.entries[1].root;
    rad_token token = 2;
    for (int n = 0; n < MANY; token++) {
        if (!is_crowded(old_token_hash(root, token))) continue;
        put(cache, &token, 1, NULL);
        n++;
    }
    CHECK(tree_of(cache)->children.count == MANY + 1);
    is_like_chance("tokens", looks(&tree_of(cache)->children));
    rad_cache_destroy(cache);
}

TEST(prompts_that_met_under_the_old_hash_of_a_page_do_not_meet)
{
    enum { PS = 16, FEWER = 4000 };
    rad_cache *cache = make_cache(PS, 0);
    rad_token page[PS] = {1};
    put(cache, page, PS, NULL);
    uint32_t root = tree_of(cache)->names.entries[1].root;
    for (int n = 0; n < FEWER; page[PS - 1]++) {
        if (!is_crowded(old_page_hash(root, page, PS))) continue;
        put(cache, page, PS, NULL);
        n++;
    }
    is_like_chance("pages", looks(&tree_of(cache)->children));
    rad_cache_destroy(cache);
}

TEST(salts_that_met_under_the_old_hash_do_not_meet)
{
    enum { FEWER = 2000 };
    rad_cache *cache = make_cache(1, 0);
    char salt[32];
    for (uint64_t i = 0, n = 0; n < FEWER; i++) {
        snprintf(salt, sizeof salt, "%llu", (unsigned long long)i);
        if (!is_crowded(old_salt_hash(salt))) continue;
        put(cache, (rad_token[]){1}, 1, salt);
        n++;
    }
    CHECK(tree_of(cache)->names.by_name.count == FEWER);
    is_like_chance("salts", looks(&tree_of(cache)->names.by_name));
    rad_cache_destroy(cache);
}

/* Tokens in a row, with steps of powers of two, and with equal low or high halves; at several
 * depths, so that parents follow a pattern too. */
TEST(patterns_of_tokens_are_spread_like_chance)
{
    for (int pattern = 0; pattern < 5; pattern++)
        for (uint32_t ps = 1; ps <= 16; ps *= 4) {
            rad_cache *cache = make_cache(ps, 0);
            for (uint32_t i = 0; i < MANY / 2; i++) {
                rad_token tokens[32] = {0};
                uint32_t low = i % 64, high = i / 64;
                const uint32_t values[] = {i, i << 4, i << 14, low << 20 | high, i * 0x9e37u};
                tokens[0] = (rad_token)(i % 50);
                tokens[2 * ps - 1] = (rad_token)(values[pattern] & INT32_MAX);
                put(cache, tokens, 2 * ps, NULL);
            }
            is_like_chance("a pattern", looks(&tree_of(cache)->children));
            rad_cache_destroy(cache);
        }
}

/* ---- what the hashes are made of ---- */

TEST(each_object_draws_its_own_key_and_a_seed_makes_it_again)
{
    rad_env env = rad_env_or_default(NULL);
    hash_key a, b;
    hash_key_init(&a, &env);
    hash_key_init(&b, &env);
    CHECK(memcmp(&a, &b, sizeof a) != 0 && (a.odd[0] & a.odd[1] & 1));
    env.hash_seed = 42;
    hash_key_init(&a, &env);
    hash_key_init(&b, &env);
    CHECK(memcmp(&a, &b, sizeof a) == 0 && (a.odd[0] & a.odd[1] & 1));
    env.hash_seed = 43;
    hash_key_init(&b, &env);
    CHECK(memcmp(&a, &b, sizeof a) != 0);
}

/* The vector form of the hash of words is the plain one, and reads no word behind the last. */
TEST(a_hash_of_words_is_the_sum_of_products_that_it_says)
{
    uint64_t seed = test_told_seed();
    rad_env env = rad_env_or_default(NULL);
    hash_key k;
    hash_key_init(&k, &env);
    for (uint32_t count = 1; count < HASH_SECRET_WORDS; count++) {
        int32_t *words = malloc(count * sizeof *words);
        uint64_t want = 0;
        for (uint32_t i = 0; i < count; i++)
            words[i] = (int32_t)test_random(&seed);
        for (uint32_t i = 0; i < count; i += 2) {
            uint32_t a = (uint32_t)words[i] + k.secret[i];
            uint32_t b = (i + 1 < count ? (uint32_t)words[i + 1] : 0) + k.secret[i + 1];
            want += (uint64_t)a * b;
        }
        CHECK(hash_words(&k, words, count) == want);
        free(words);
    }
}

/* The same calls fill the same places, so a run that counts or times can be made again. */
TEST(a_seed_in_the_env_makes_a_tree_the_same_in_each_run)
{
    rad_cache *a = make_cache(4, 7), *b = make_cache(4, 7), *c = make_cache(4, 8);
    rad_cache *all[] = {a, b, c};
    for (int i = 0; i < 3; i++)
        for (rad_token k = 0; k < 500; k++)
            put(all[i], (rad_token[]){1, 2, 3, 4, k, k, k, k}, 8, k % 3 ? NULL : "salt");
    const map *ma = &tree_of(a)->children, *mb = &tree_of(b)->children;
    const map *mc = &tree_of(c)->children;
    size_t bytes = ((size_t)ma->mask + 1) * sizeof *ma->entries;
    CHECK(ma->mask == mb->mask && memcmp(ma->entries, mb->entries, bytes) == 0);
    CHECK(ma->mask == mc->mask && memcmp(ma->entries, mc->entries, bytes) != 0);
    for (int i = 0; i < 3; i++)
        rad_cache_destroy(all[i]);
}

/* ---- the vocabulary ---- */

TEST(symbols_that_met_under_the_old_hash_do_not_meet)
{
    vocab v = {.env = rad_env_or_default(NULL)};
    uint32_t symbol;
    for (uint64_t i = 0, n = 0; n < MANY; i++) {
        uint64_t word = mix64(i);
        if (!is_crowded(old_word_hash(word))) continue;
        CHECK_OK(vocab_intern(&v, (const char *)&word, sizeof word, &symbol));
        CHECK(vocab_find(&v, (const char *)&word, sizeof word) == symbol);
        n++;
    }
    uint64_t sum = 0;
    for (size_t at = 0; at < v.num_slots; at++)
        if (v.slots[at].symbol_plus_1) sum += ((at - v.slots[at].hash) & (v.num_slots - 1)) + 1;
    is_like_chance("symbols", (double)sum / MANY);
    vocab_fini(&v);
}

TEST(pairs_that_met_under_the_old_hash_do_not_meet)
{
    bpe b = {.env = rad_env_or_default(NULL)};
    uint32_t n = 0;
    for (uint32_t right = 0; n < MANY; right++) {
        if (!is_crowded(old_pair_hash(77, right))) continue;
        CHECK(bpe_add(&b, 77, right, n, n));
        n++;
    }
    uint64_t sum = 0;
    for (size_t at = 0; at < b.num_pairs; at++) {
        const bpe_pair *p = &b.pairs[at];
        if (p->left == NO_SYMBOL) continue;
        size_t home = hash_mix(&b.key, (uint64_t)p->left << 32 | p->right);
        sum += ((at - home) & (b.num_pairs - 1)) + 1;
    }
    is_like_chance("pairs", (double)sum / MANY);
    bpe_fini(&b);
}

TEST_MAIN()
