/* cmocka.h - as much of cmocka as tests/test.h uses, for a C library that Debian has no cmocka for. */
#ifndef TESTS_MUSL_CMOCKA_H
#define TESTS_MUSL_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef void (*CMUnitTestFunction)(void **state);
struct CMUnitTest {
    const char *name;
    CMUnitTestFunction test_func;
};

enum { MUSL_FAILED = 1, MUSL_SKIPPED = 2 };
static jmp_buf musl_test_out;
static const char *musl_test_filter;

__attribute__((format(printf, 1, 2))) static inline void print_error(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
}

#define print_message(...) printf(__VA_ARGS__)
#define skip()             longjmp(musl_test_out, MUSL_SKIPPED)
#define fail_msg(...)                                                                              \
    do {                                                                                           \
        print_error(__VA_ARGS__);                                                                  \
        print_error(" (%s:%d)\n", __FILE__, __LINE__);                                             \
        longjmp(musl_test_out, MUSL_FAILED);                                                       \
    } while (0)

static inline void cmocka_set_test_filter(const char *pattern)
{
    musl_test_filter = pattern;
}

static inline int _cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests,
                                          size_t count, void *setup, void *teardown)
{
    static volatile size_t i;
    static volatile int failed;
    (void)setup, (void)teardown;
    for (i = 0; i < count; i++) {
        void *state = NULL;
        const int how = setjmp(musl_test_out);
        if (!how) tests[i].test_func(&state);
        failed += how == MUSL_FAILED;
        if (how) printf("%s %s\n", how == MUSL_FAILED ? "FAILED " : "skipped", tests[i].name);
    }
    printf("%s: %zu tests, %d failed\n", name, count, failed);
    return failed;
}

#endif
