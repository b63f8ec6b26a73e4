/* test.h - TEST and CHECK, a thin layer over cmocka.
 *
 *     TEST(a_split_shares_the_span) { ... CHECK(x == y); ... }
 *     TEST_MAIN()
 *
 * A test registers itself; TEST_MAIN runs all of the file, or those whose name
 * contains the first argument. Seeds come from RADISH_TEST_SEED, else from the clock,
 * and are printed by whoever fails.
 *
 * What a test needs lies in the repository or is made by tests/made/make.py (test_made). Data
 * beside the repository only adds tests (TEST_WITH_DATA): without it they are not there, which
 * is no skip. What this machine cannot do (an instruction set, a kernel's call) is a skip
 * (SKIP_UNLESS): it is named, and counted in the last line of tools/run-tests.sh. */
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include <radish/env.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { TEST_MOST = 256 };
static struct CMUnitTest test_list[TEST_MOST];
static size_t test_count;
static const char *test_program = "?", *test_running = "?"; /* for test_note_skip */

static inline void test_register(const char *name, CMUnitTestFunction fn)
{
    if (test_count == TEST_MOST) abort();
    test_list[test_count++] = (struct CMUnitTest){.name = name, .test_func = fn};
}

#define TEST(name) TEST_IF(name, true)

/* Registered only if `condition`, which is asked before main, holds. */
#define TEST_IF(name, condition)                                                                   \
    static void name(void);                                                                        \
    static void run_##name(void **state_)                                                          \
    {                                                                                              \
        (void)state_;                                                                              \
        test_running = #name;                                                                      \
        name();                                                                                    \
    }                                                                                              \
    __attribute__((constructor)) static void register_##name(void)                                 \
    {                                                                                              \
        if (condition) test_register(#name, run_##name);                                           \
    }                                                                                              \
    static void name(void)

/* One more test where the data beside the repository has this file. */
#define TEST_WITH_DATA(name, path) TEST_IF(name, test_has_data(path))

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) fail_msg("CHECK failed: %s", #condition);                                \
    } while (0)

/* With words: CHECKF(a == b, "a %d, b %d, seed %llu", a, b, seed) */
#define CHECKF(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            print_error(__VA_ARGS__);                                                              \
            fail_msg(" <- CHECK failed: %s", #condition);                                          \
        }                                                                                          \
    } while (0)

#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        rad_status check_status_ = (call);                                                         \
        if (check_status_ != RAD_OK)                                                               \
            fail_msg("%s gave %s", #call, rad_status_name(check_status_));                         \
    } while (0)

#define SKIP_UNLESS(condition, why)                                                                \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            test_note_skip(why);                                                                   \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

/* Waits for what another thread or process is about to do. No test says how long something takes:
 * the limit is one for what never comes, however busy the machine is. */
enum { TEST_HANG_S = 300 };
#define AWAIT(condition)                                                                           \
    for (time_t begun_ = time(NULL); !(condition); usleep(1000))                                   \
    if (time(NULL) - begun_ > TEST_HANG_S) fail_msg("waited in vain for %s", #condition)

#define TEST_MAIN()                                                                                \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        test_program = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];                \
        if (argc > 1) {                                                                            \
            static char pattern[256]; /* cmocka keeps the pointer */                               \
            snprintf(pattern, sizeof pattern, "*%s*", argv[1]);                                    \
            cmocka_set_test_filter(pattern);                                                       \
        }                                                                                          \
        return _cmocka_run_group_tests(argv[0], test_list, test_count, NULL, NULL);                \
    }

/* Says why the running test ends here, and adds a line to the file of skips, if there is one: a
 * program that skips half of its tests passes, and nobody reads what it printed. */
static inline void test_note_skip(const char *why)
{
    print_message("skipped: %s\n", why);
    const char *path = getenv("RADISH_TEST_SKIPS");
    FILE *file = path && *path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%s %s: %s\n", test_program, test_running, why);
    fclose(file);
}

/* Where test data outside the repository is: RADISH_TESTDATA, else what CMake was told. */
static inline const char *test_data(void)
{
    const char *dir = getenv("RADISH_TESTDATA");
#ifdef RADISH_TESTDATA_DEFAULT
    if (!dir) dir = RADISH_TESTDATA_DEFAULT;
#endif
    return dir ? dir : "../shared/data";
}

static inline bool test_has_data(const char *path)
{
    char full[1024];
    snprintf(full, sizeof full, "%s/%s", test_data(), path);
    return access(full, R_OK) == 0;
}

/* The path of a file that tests/made/make.py made, to be copied before the next call: of
 * RADISH_TESTMADE, else of the build. */
static inline const char *test_made(const char *name)
{
    static char path[1024];
    const char *dir = getenv("RADISH_TESTMADE");
#ifdef RADISH_TESTMADE_DEFAULT
    if (!dir) dir = RADISH_TESTMADE_DEFAULT;
#endif
    snprintf(path, sizeof path, "%s/%s", dir ? dir : "build/release/testmade", name);
    if (access(path, R_OK) != 0)
        print_error("%s is not there: tests/made/make.py %s makes it\n", path,
                    dir ? dir : "build/release/testmade");
    return path;
}

static inline uint64_t test_seed(void)
{
    const char *text = getenv("RADISH_TEST_SEED");
    if (text) return strtoull(text, NULL, 0);
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_nsec ^ ((uint64_t)t.tv_sec << 20);
}

/* The same, printed before anything can fail. */
static inline uint64_t test_told_seed(void)
{
    uint64_t seed = test_seed();
    print_message("seed: RADISH_TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

/* Longer runs: RADISH_TEST_LONG=1 (make test-long) multiplies what a test does. */
static inline uint64_t test_scale(uint64_t brief, uint64_t thorough)
{
    const char *text = getenv("RADISH_TEST_LONG");
    return text && *text && *text != '0' ? thorough : brief;
}

/* splitmix64: small, and the same everywhere. */
static inline uint64_t test_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* An env that counts bytes and can fail its n-th allocation. */
typedef struct test_env {
    long fail_at; /* fails allocation number fail_at (from 0) and all later ones; -1: never */
    long allocs;
    size_t bytes; /* outstanding */
    size_t most;  /* outstanding at once, since a test last set it */
    uint64_t now; /* returned by now_ns, +1 per call */
    int panics;
} test_env;

static inline void *test_env_alloc(void *user, size_t bytes)
{
    test_env *t = user;
    if (t->fail_at >= 0 && t->allocs++ >= t->fail_at) return NULL;
    void *memory = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (memory) t->bytes += bytes;
    if (t->bytes > t->most) t->most = t->bytes;
    return memory;
}

static inline void test_env_free(void *user, void *memory, size_t bytes)
{
    test_env *t = user;
    t->bytes -= bytes;
    free(memory);
}

static inline uint64_t test_env_now(void *user) { return ((test_env *)user)->now++; }

static inline rad_env test_env_failing_at(test_env *t, long n)
{
    *t = (test_env){.fail_at = n};
    return (rad_env){.struct_size = sizeof(rad_env), .user = t, .alloc = test_env_alloc,
                     .free = test_env_free, .now_ns = test_env_now};
}

static inline rad_env test_env_init(test_env *t) { return test_env_failing_at(t, -1); }

#endif
