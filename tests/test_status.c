/* test_status.c - statuses have names, errors carry words, envs fill their gaps. */
#include "test.h"

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
