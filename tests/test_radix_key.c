/* test_radix_key.c - two keys agree exactly as far as their tokens do. */
#include "test.h"

#include "cache/radix_key.h"

/* Buffers of exactly the length, so that ASan sees a read behind the end. */
static rad_token *some_tokens(uint32_t count)
{
    rad_token *tokens = malloc(count ? count * sizeof *tokens : 1);
    CHECK(tokens != NULL);
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = (rad_token)(i * 2654435761u >> 8);
    return tokens;
}

TEST(a_difference_is_found_wherever_it_is)
{
    for (uint32_t count = 0; count < 700; count += count < 70 ? 1 : 37) {
        rad_token *a = some_tokens(count), *b = some_tokens(count);
        CHECK(key_match_len(a, b, count) == count);
        for (uint32_t at = 0; at < count; at++) {
            for (int bit = 0; bit < 32; bit += 8) {
                b[at] ^= (rad_token)(1u << bit);
                CHECKF(key_match_len(a, b, count) == at, "count %u, at %u\n", count, at);
                b[at] ^= (rad_token)(1u << bit);
            }
        }
        free(a);
        free(b);
    }
}

TEST(long_keys_agree_up_to_the_first_of_several_differences)
{
    uint64_t seed = test_seed(), state = seed;
    enum { COUNT = 100000 };
    rad_token *a = some_tokens(COUNT), *b = some_tokens(COUNT);
    CHECK(key_match_len(a, b, COUNT) == COUNT);
    for (uint64_t round = 0; round < test_scale(300, 30000); round++) {
        uint32_t at[3], first = COUNT;
        for (int i = 0; i < 3; i++) {
            at[i] = (uint32_t)(test_random(&state) % COUNT);
            b[at[i]] = -1;
            if (at[i] < first) first = at[i];
        }
        CHECKF(key_match_len(a, b, COUNT) == first, "seed %llu", (unsigned long long)seed);
        for (int i = 0; i < 3; i++)
            b[at[i]] = a[at[i]];
    }
    free(a);
    free(b);
}

static hash_key some_key(void)
{
    rad_env env = rad_env_or_default(NULL);
    hash_key key;
    env.hash_seed = test_told_seed() | 1;
    hash_key_init(&key, &env);
    return key;
}

TEST(hashes_tell_parents_pages_and_namespaces_apart)
{
    hash_key key = some_key();
    rad_token page[16] = {1, 2, 3}, other[16] = {1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    CHECK(key_child_hash(&key, 1, page, 1) != key_child_hash(&key, 2, page, 1));
    CHECK(key_child_hash(&key, 1, page, 16) != key_child_hash(&key, 2, page, 16));
    CHECK(key_child_hash(&key, 1, page, 16) != key_child_hash(&key, 1, other, 16));
    CHECK(key_child_hash(&key, 1, page, 1) == key_child_hash(&key, 1, other, 1));
    const char *names[] = {NULL, "", "a", "b", "ab"};
    for (int i = 0; i < 25; i++)
        for (int k = 0; k < i; k++)
            CHECK(key_namespace_hash(&key, names[i / 5], names[i % 5]) !=
                  key_namespace_hash(&key, names[k / 5], names[k % 5]));
}

/* The low bits choose the slot: 100,000 children of few parents must not crowd. */
TEST(hashes_spread_over_the_table)
{
    enum { SLOTS = 1 << 16 };
    uint8_t *load = calloc(SLOTS, 1);
    CHECK(load != NULL);
    hash_key key = some_key();
    uint32_t most = 0;
    for (rad_token token = 0; token < 100000; token++) {
        uint32_t slot = key_child_hash(&key, 1 + (uint32_t)token % 3, &token, 1) % SLOTS;
        if (++load[slot] > most) most = load[slot];
    }
    CHECKF(most < 14, "%u in one slot", most); /* about 9 when it is like chance */
    free(load);
}

TEST_MAIN()
