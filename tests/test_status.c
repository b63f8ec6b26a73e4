/* test_status.c - statuses have names, errors carry words, envs fill their gaps. */
#include "test.h"

#include <radish/kv_allocator.h>

#include "base/base.h"

TEST(every_status_has_a_name)
{
    for (rad_status s = RAD_E_CORRUPT; s <= RAD_NONE; s++)
        CHECK(strncmp(rad_status_name(s), "RAD_", 4) == 0);
    CHECK(strcmp(rad_status_name(99), "unknown status") == 0);
}

TEST(fail_fills_the_error_and_returns_the_status)
{
    rad_error err = {0};
    CHECK(rad_fail(&err, RAD_E_IO, "no %s", "disk") == RAD_E_IO);
    CHECK(err.status == RAD_E_IO && strcmp(err.text, "no disk") == 0);
    CHECK(rad_fail(NULL, RAD_FULL, "nobody listens") == RAD_FULL);
}

TEST(a_long_message_is_cut_and_stays_terminated)
{
    rad_error err;
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    rad_fail(&err, RAD_E_INVAL, "%s", text);
    CHECK(strlen(err.text) == sizeof err.text - 1);
}

TEST(an_env_with_gaps_gets_the_defaults)
{
    rad_env env = rad_env_or_default(NULL);
    CHECK(env.alloc && env.free && env.now_ns && env.log && env.panic);
    uint64_t before = env.now_ns(env.user);
    CHECK(env.now_ns(env.user) >= before);

    char *memory = rad_alloc(&env, 100);
    CHECK(memory && ((uintptr_t)memory & 63) == 0);
    for (int i = 0; i < 100; i++)
        CHECK(memory[i] == 0);
    rad_free(&env, memory, 100);
    CHECK(rad_alloc(&env, 0) == NULL);
    CHECK(rad_alloc(&env, rad_mul(SIZE_MAX / 2, 3)) == NULL);
}

static void *some_alloc(void *user, size_t bytes)
{
    (void)user;
    return malloc(bytes);
}
static void some_free(void *user, void *memory, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(memory);
}

/* A program of an older age hands over a shorter struct, whose memory ends there; a newer one a
 * longer one. (All of it was copied, whatever struct_size said.) */
TEST(an_env_is_read_as_far_as_it_says)
{
    rad_env all = {.user = &all, .alloc = some_alloc, .free = some_free, .hash_seed = 5};
    for (size_t size = 0; size <= sizeof all; size++) {
        char *memory = malloc(size ? size : sizeof(size_t)); /* guarded under ASan */
        all.struct_size = size;
        memcpy(memory, &all, size >= sizeof(size_t) ? size : sizeof(size_t) * !size);
        if (size && size < sizeof(size_t)) { /* not even a size: cannot be read */
            free(memory);
            continue;
        }
        rad_env env = rad_env_or_default((const rad_env *)(const void *)memory);
        bool has_free = size >= offsetof(rad_env, now_ns);
        CHECK(env.struct_size == sizeof env);
        CHECK(env.now_ns && env.log && env.panic && env.alloc && env.free);
        CHECK((env.alloc == some_alloc) == has_free && (env.free == some_free) == has_free);
        CHECK(env.user == (size >= offsetof(rad_env, free) ? &all : NULL));
        CHECK(env.hash_seed == (size == sizeof all ? 5 : 0));
        free(memory);
    }
    struct {
        rad_env known;
        uint64_t more;
    } newer = {.known = all, .more = 1};
    newer.known.struct_size = sizeof newer;
    rad_env env = rad_env_or_default(&newer.known);
    CHECK(env.struct_size == sizeof env && env.alloc == some_alloc && env.hash_seed == 5);
}

/* An env of 32 bytes, as the struct once may have been, makes and serves a cache. */
TEST(an_env_of_an_older_age_makes_a_cache)
{
    rad_env all = {.struct_size = 32, .alloc = some_alloc, .free = some_free};
    void *old = malloc(32);
    memcpy(old, &all, 32);
    rad_kv_allocator_params params = {.struct_size = sizeof params, .num_pages = 8};
    rad_kv_allocator *kv;
    CHECK_OK(rad_kv_allocator_create(old, &params, &kv, NULL));
    rad_kv_allocator_destroy(kv);
    free(old);
}

static void count_panic(void *user, const char *message)
{
    CHECK(strstr(message, "1 == 2") != NULL);
    ++*(int *)user;
}

TEST(an_assertion_reports_through_the_env)
{
    int panics = 0;
    rad_env env = {.struct_size = sizeof env, .user = &panics, .panic = count_panic};
    RAD_ASSERT_ENV(&env, 1 == 1);
    RAD_ASSERT_ENV(&env, 1 == 2);
    CHECK(panics == 1);
}

TEST_MAIN()
