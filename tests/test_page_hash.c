/* test_page_hash.c - the chain against known bytes (SGLang's, and others computed with
 * Python's hashlib from the recipe), and the seeds of namespaces. */
#include "test.h"

#include <radish/page_hash.h>

static rad_page_hasher *make(void)
{
    rad_page_hasher *h;
    CHECK_OK(rad_page_hasher_create(NULL, &h, NULL));
    return h;
}

static bool is(const rad_page_hash *hash, const char *hex)
{
    char text[65];
    for (int i = 0; i < 32; i++)
        snprintf(text + 2 * i, 3, "%02x", hash->bytes[i]);
    return strcmp(text, hex) == 0;
}

TEST(the_default_namespace_has_sglangs_bytes)
{
    rad_page_hasher *h = make();
    rad_page_hash a, b;
    rad_token page[] = {1, 2, 3, 4};
    CHECK_OK(rad_page_hash_tokens(h, NULL, page, 4, &a));
    CHECK(is(&a, "cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72"));
    CHECK(rad_page_hash_event(&a) == -3488128144981237669);
    CHECK_OK(rad_page_hash_tokens(h, &a, page, 4, &b));
    CHECK(is(&b, "7f29db81043ea2c317c918f43cf6998ee32bec7b82c5818c20d5e81d453c483d"));
    CHECK(rad_page_hash_event(&b) == 9163096264030462659);
    CHECK_OK(rad_page_hash_bigrams(h, NULL, 1, page + 1, 3, &a));
    CHECK(is(&a, "928a7f8cab7207fc7ba8ba57c48d7e2b6cb8e80a3f6e6b64b775ef1687c77767"));
    rad_page_hasher_destroy(h);
}

/* Pages longer than the buffer that they are gathered in. */
TEST(long_pages_have_the_same_recipe)
{
    rad_page_hasher *h = make();
    rad_page_hash a, b;
    rad_token page[1000];
    for (int i = 0; i < 1000; i++)
        page[i] = (rad_token)(i * 2147483LL % 151936);
    CHECK_OK(rad_page_hash_tokens(h, NULL, page, 1000, &a));
    CHECK(is(&a, "62395b01a6c729d3b73b29b47a9cbac7d1d5166f8c39e36560c58a99f700781e"));
    CHECK_OK(rad_page_hash_tokens(h, &a, page, 57, &b));
    CHECK(is(&b, "a731ba42334496d7949a336b5f22a33667f3e32ea58bb5986b7fe9420414c1a2"));
    rad_page_hasher_destroy(h);
}

TEST(seeds_tell_namespaces_apart)
{
    static const char *const names[][2] = {
        {NULL, NULL}, {"", NULL},  {NULL, ""},  {"", ""},    {"a", NULL},    {NULL, "a"},
        {"a", "bc"},  {"ab", "c"}, {"abc", ""}, {"", "abc"}, {"key1", NULL}, {"key2", NULL}};
    enum { COUNT = sizeof names / sizeof names[0] };
    rad_page_hash seeds[COUNT];
    rad_page_hasher *h = make();
    for (int i = 0; i < COUNT; i++) {
        rad_status status = rad_page_hash_seed(h, names[i][0], names[i][1], &seeds[i]);
        CHECK(status == (i ? RAD_OK : RAD_NONE));
        for (int k = 0; k < i; k++)
            CHECK(memcmp(&seeds[i], &seeds[k], sizeof seeds[i]) != 0);
    }
    CHECK(is(
        &seeds[6],
        "97a3eb71237e1557343a822acb5eae7d7e981f341820ccd6cb9932b7bd665d77")); /* ("a", "bc"): stored
                                                                                 pages depend on
                                                                                 these bytes */
    rad_page_hasher_destroy(h);
}

TEST(bad_arguments_are_refused)
{
    rad_page_hasher *h = make();
    rad_page_hash hash;
    rad_token token = 1;
    CHECK(rad_page_hash_tokens(h, NULL, NULL, 1, &hash) == RAD_E_INVAL);
    CHECK(rad_page_hash_tokens(h, NULL, &token, 0, &hash) == RAD_E_INVAL);
    CHECK(rad_page_hash_tokens(NULL, NULL, &token, 1, &hash) == RAD_E_INVAL);
    CHECK(rad_page_hash_bigrams(h, NULL, 1, &token, 1, NULL) == RAD_E_INVAL);
    CHECK(rad_page_hash_seed(h, "a", NULL, NULL) == RAD_E_INVAL);
    static char name[65536 + 2];
    memset(name, 'x', sizeof name - 1);
    CHECK(rad_page_hash_seed(h, name, NULL, &hash) == RAD_E_LIMIT);
    name[65536] = 0;
    CHECK_OK(rad_page_hash_seed(h, name, NULL, &hash));
    rad_page_hasher_destroy(h);
    rad_page_hasher_destroy(NULL);
    CHECK(rad_page_hasher_create(NULL, NULL, NULL) == RAD_E_INVAL);

    test_env t;
    rad_env env = test_env_failing_at(&t, 0);
    CHECK(rad_page_hasher_create(&env, &h, NULL) == RAD_E_NOMEM && !h);
    CHECK(t.bytes == 0);
}

TEST_MAIN()
