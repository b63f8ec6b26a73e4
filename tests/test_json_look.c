/* test_json_look.c - what JSON is said to cost, beside what the parser really takes. */
#include "test.h"

#include "base/json_look.h"
#include "base/memory_budget.h"

#include <jansson.h>
#include <malloc.h>

/* ---- what jansson holds, as malloc rounds it ---- */

static size_t held, peak;

static void *counted_malloc(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory) held += malloc_usable_size(memory) + sizeof(size_t);
    if (held > peak) peak = held;
    return memory;
}

static void counted_free(void *memory)
{
    if (memory) held -= malloc_usable_size(memory) + sizeof(size_t);
    free(memory);
}

/* Bytes at the peak of parsing; *parsed says whether it is JSON. */
static size_t real_cost(const char *text, size_t len, bool *parsed)
{
    json_error_t where;
    json_set_alloc_funcs(counted_malloc, counted_free);
    held = peak = 0;
    json_t *json = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
    *parsed = json != NULL;
    json_decref(json);
    json_set_alloc_funcs(malloc, free);
    return peak;
}

static double check_cost(const char *text, size_t len)
{
    json_look look;
    bool parsed;
    json_look_at(&look, text, len);
    uint64_t said = json_look_bytes(&look);
    size_t real = real_cost(text, len, &parsed);
#ifndef __SANITIZE_ADDRESS__ /* its malloc rounds to other sizes */
    CHECKF(said >= real, "%.60s (%zu bytes): said %llu, took %zu", text, len,
           (unsigned long long)said, real);
#endif
    return (double)said / (double)(real + 4096);
}

TEST(no_text_costs_more_than_is_said)
{
    static const char *const units[] = {"{}",
                                        "[]",
                                        "0",
                                        "\"\"",
                                        "\"a\"",
                                        "[[]]",
                                        "{\"\":0}",
                                        "null",
                                        "1.5e3",
                                        "[0]",
                                        "\"12345678\"",
                                        "\"123456789012345678901234\"",
                                        "{\"a\":{\"b\":[]}}",
                                        "\"\\u00e9\\n\\\"\"",
                                        "[{},{},{}]",
                                        "{\"k\":\"v\",\"l\":1}",
                                        "-1",
                                        " 1 ",
                                        "true"};
    static const int counts[] = {0, 1, 2, 7, 8, 9, 16, 17, 1000, 4095, 4097, 20000};
    size_t cap = 1 << 20;
    char *text = malloc(cap);
    CHECK(text != NULL);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            size_t len = 1;
            text[0] = '[';
            for (int i = 0; i < counts[c]; i++)
                len += (size_t)snprintf(text + len, cap - len, "%s%s", i ? "," : "", units[u]);
            text[len++] = ']';
            double ratio = check_cost(text, len);
            CHECKF(counts[c] < 1000 || ratio < 3, "%s: %g times too dear", units[u], ratio);
        }
    }
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) { /* members with short names */
        size_t len = 1;
        text[0] = '{';
        for (int i = 0; i < counts[c]; i++)
            len += (size_t)snprintf(text + len, cap - len, "%s\"%x\":{}", i ? "," : "", i);
        text[len++] = '}';
        check_cost(text, len);
    }
    for (size_t len = 1; len < cap; len = len * 5 / 2 + 1) { /* one long string */
        memset(text, 's', len);
        memcpy(text, "[\"", 2);
        if (len > 5) memcpy(text + len - 2, "\"]", 2);
        check_cost(text, len);
    }
    for (size_t len = 8; len < cap; len = len * 5 / 2 + 1) { /* one long number, one long word */
        memset(text, '1', len);
        memcpy(text, "[0.", 3);
        text[len - 1] = ']';
        check_cost(text, len);
        memset(text + 1, 'n', len - 2);
        check_cost(text, len);
    }
    free(text);
}

static size_t put_value(char *text, size_t len, size_t cap, uint64_t *seed, int depth)
{
    static const char *const plain[] = {
        "0",           "-17",  "2.5e7",    "true",
        "null",        "\"\"", "\"word\"", "\"a longer text, with [ { : in it\"",
        "\"\\\\\\\"\""};
    uint64_t kind = test_random(seed) % 4;
    if (cap - len < 400) return len;
    if (depth == 12 || kind < 2)
        return len + (size_t)sprintf(text + len, "%s",
                                     plain[test_random(seed) % (sizeof plain / sizeof *plain)]);
    text[len++] = kind == 2 ? '[' : '{';
    for (uint64_t i = 0, n = test_random(seed) % 12; i < n && cap - len > 500; i++) {
        if (i) text[len++] = ',';
        if (kind == 3) len += (size_t)sprintf(text + len, "\"k%llu\" : ", (unsigned long long)i);
        size_t before = len;
        len = put_value(text, len, cap, seed, depth + 1);
        if (len == before) text[len++] = '0';
    }
    text[len++] = kind == 2 ? ']' : '}';
    return len;
}

TEST(random_trees_and_what_is_left_of_them_cost_no_more)
{
    static char text[8192];
    uint64_t seed = test_told_seed();
    for (uint64_t round = 0; round < test_scale(1000, 200000); round++) {
        size_t len = put_value(text, 0, sizeof text, &seed, 0);
        check_cost(text, len);
        for (int i = 0; i < 3; i++)
            text[test_random(&seed) % len] = (char)test_random(&seed);
        check_cost(text, test_random(&seed) % (len + 1));
    }
}

TEST(values_and_depth_are_counted)
{
    static const char text[] = " {\"a\" : [1, 22,\"x\\\"y,[{\", {}, []], \"b\":true} ";
    json_look look;
    json_look_at(&look, text, strlen(text));
    CHECK(look.objects == 2 && look.arrays == 2 && look.numbers == 2 && look.words == 1 &&
          look.strings == 3);
    CHECK(look.members == 2 && look.depth == 3 && text[look.deepest_at] == '{');
    CHECK(look.string_bytes == 1 + 7 + 1 && look.longest == 7);
    CHECK(json_look_values(&look) == 10);
    json_look_at(&look, "\"ab\\", 4); /* cut off inside an escape */
    CHECK(look.strings == 1 && look.string_bytes <= 3);
    json_look_at(&look, "\"", 1);
    CHECK(look.strings == 1 && look.string_bytes == 0);
    json_look_at(&look, "]]]}", 4);
    CHECK(json_look_values(&look) == 0 && look.depth == 0);
}

TEST(a_budget_gives_no_more_than_it_has)
{
    memory_budget b = {.limit = 100};
    CHECK(memory_budget_take(&b, 60) && !memory_budget_take(&b, 41) && memory_budget_take(&b, 40));
    CHECK(!memory_budget_take(&b, 1) && !memory_budget_take(&b, UINT64_MAX));
    memory_budget_give(&b, 60);
    CHECK(b.used == 40 && b.peak == 100 && memory_budget_take(&b, 0));
    CHECK(memory_budget_take(NULL, UINT64_MAX));
    memory_budget_give(NULL, 1);
}

TEST_MAIN()
