/* test_replay.c - traces are read without trust, and the simulation finds what theory says. */
#include "replay/simulate.h"
#include "replay/trace_budget.h"
#include "test.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

static void temp_file(char *path, const void *bytes, size_t size)
{
    strcpy(path, "/tmp/radish-trace-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK(write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}

static rad_status load(const void *bytes, size_t size, trace **t, rad_error *err)
{
    char path[64];
    temp_file(path, bytes, size);
    rad_status status = trace_load(NULL, path, t, err);
    unlink(path);
    return status;
}

static const char two_chats[] =
    "{\"timestamp\": 0, \"input_length\": 1030, \"output_length\": 5, \"hash_ids\": [1, 2, 3]}\n"
    "{\"timestamp\": 5, \"input_length\": 1500, \"output_length\": 5, \"hash_ids\": [1, 2, 4]}\n"
    "\n"
    "{\"timestamp\": 9, \"input_length\": 1100, \"output_length\": 5, \"hash_ids\": [1, 2, 3]}";

TEST(a_mooncake_trace_is_read_line_by_line)
{
    trace *t = NULL;
    CHECK_OK(load(two_chats, sizeof two_chats - 1, &t, NULL));
    CHECK(strcmp(trace_format(t), "mooncake") == 0);
    CHECK(trace_num_requests(t) == 3 && trace_tokens_per_element(t) == 512);
    CHECK(trace_longest(t) == 3 && trace_capacity_tokens(t) == 0);
    trace_request r;
    rad_token scratch[8];
    trace_get(t, 1, scratch, &r);
    CHECK(r.num_elements == 3 && r.num_prompt == 3 && r.prompt_tokens == 1500);
    CHECK(r.elements[0] == 1 && r.elements[2] == 4 && r.timestamp_ms == 5);
    trace_free(t);
}

TEST(the_simulation_counts_blocks_and_the_tokens_in_them)
{
    trace *t = NULL;
    simulate_result r;
    CHECK_OK(load(two_chats, sizeof two_chats - 1, &t, NULL));
    simulate_params p = {.capacity_elements = 10};
    CHECK_OK(simulate(NULL, t, &p, &r, NULL));
    /* nothing; 2 blocks; 3 blocks, of which the last is partial: 1100 tokens */
    CHECK(r.requests == 3 && r.hit_blocks == 5 && r.hit_tokens == 2 * 512 + 1100);
    CHECK(r.prompt_blocks == 9 && r.prompt_tokens == 1030 + 1500 + 1100);
    CHECK(r.too_large == 0 && r.evicted_elements == 0);

    /* Three blocks: the second request evicts exactly the tail of the first. */
    p.capacity_elements = 3;
    CHECK_OK(simulate(NULL, t, &p, &r, NULL));
    CHECK(r.hit_blocks == 4 && r.evicted_elements == 2);

    p.capacity_elements = 2; /* none fits */
    CHECK_OK(simulate(NULL, t, &p, &r, NULL));
    CHECK(r.hit_blocks == 0 && r.too_large == 3);

    p.capacity_elements = 0;
    CHECK(simulate(NULL, t, &p, &r, NULL) == RAD_E_INVAL);
    p = (simulate_params){.capacity_elements = 10, .policy = "clairvoyant"};
    CHECK(simulate(NULL, t, &p, &r, NULL) == RAD_E_INVAL);
    trace_free(t);
}

TEST(a_bad_line_is_named)
{
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"", "no request"},
        {"\n\n", "no request"},
        {"{\"input_length\": 5, \"hash_ids\": [1]}\nhello\n", "line 2"},
        {"[1, 2]\n", "line 1"},
        {"{\"hash_ids\": [1]}\n", "input_length"},
        {"{\"input_length\": 5}\n", "hash_ids"},
        {"{\"input_length\": -5, \"hash_ids\": [1]}\n", "input_length"},
        {"{\"input_length\": 513, \"hash_ids\": [1]}\n", "fit"},
        {"{\"input_length\": 5, \"hash_ids\": [-1]}\n", "hash_ids[0]"},
        {"{\"input_length\": 5, \"hash_ids\": [99999999999]}\n", "hash_ids[0]"},
        {"{\"input_length\": 5, \"hash_ids\": [\"a\"]}\n", "hash_ids[0]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        trace *t = NULL;
        rad_error err = {0};
        CHECK(load(cases[i].text, strlen(cases[i].text), &t, &err) == RAD_E_FORMAT && !t);
        CHECKF(strstr(err.text, cases[i].word), "case %zu: %s", i, err.text);
    }
}

/* A small RXTRACE1: two segments of 2 and 3 tokens, two requests. */
static size_t build_rxtrace(uint8_t *b)
{
    static const uint64_t offsets[] = {0, 2, 5};
    static const int32_t tokens[] = {7, 8, 9, 10, 11};
    static const uint32_t requests[] = {0, 0, 0, 0, 1, 2, 0, 0, 1, 0, 2, 2};
    static const uint32_t refs[] = {0, 1};
    uint32_t small[] = {2, 2, 100, 50}; /* segments, requests, capacity, vocabulary */
    uint64_t large[] = {5, 2};          /* tokens, references */
    uint8_t *p = b;
    memcpy(p, "RXTRACE1\1\0\0\0\0\0\0\0", 16), p += 16;
    memcpy(p, small, sizeof small), p += sizeof small;
    memcpy(p, large, sizeof large), p += sizeof large;
    memcpy(p, offsets, sizeof offsets), p += sizeof offsets;
    memcpy(p, tokens, sizeof tokens), p += sizeof tokens;
    memcpy(p, requests, sizeof requests), p += sizeof requests;
    memcpy(p, refs, sizeof refs), p += sizeof refs;
    return (size_t)(p - b);
}

TEST(an_rxtrace_is_put_together_from_its_segments)
{
    uint8_t b[256];
    trace *t = NULL;
    trace_request r;
    rad_token scratch[8];
    CHECK_OK(load(b, build_rxtrace(b), &t, NULL));
    CHECK(trace_num_requests(t) == 2 && trace_capacity_tokens(t) == 100);
    trace_get(t, 0, scratch, &r);
    CHECK(r.num_elements == 5 && r.num_prompt == 2 && r.prompt_tokens == 2);
    CHECK(r.elements[0] == 7 && r.elements[4] == 11);
    trace_get(t, 0, NULL, &r);
    CHECK(r.num_elements == 5 && r.num_prompt == 2 && !r.elements);
    trace_get(t, 1, scratch, &r);
    CHECK(r.num_prompt == 5 && r.prompt_tokens == 5);
    trace_free(t);
}

TEST(a_damaged_rxtrace_is_refused_or_read_but_never_crashes)
{
    uint8_t b[256], c[256];
    size_t size = build_rxtrace(b);
    trace *t = NULL;
    for (size_t len = 8; len < size; len++)
        CHECK(load(b, len, &t, NULL) == RAD_E_FORMAT && !t);
    uint64_t seed = test_seed(), dice = seed;
    for (int i = 0; i < 300; i++) {
        memcpy(c, b, size);
        for (int k = 0; k < 3; k++)
            c[8 + test_random(&dice) % (size - 8)] = (uint8_t)test_random(&dice);
        if (load(c, size, &t, NULL) == RAD_OK) {
            simulate_result r;
            simulate_params p = {.capacity_elements = 64};
            CHECK_OK(simulate(NULL, t, &p, &r, NULL));
            trace_free(t);
        }
    }
}

/* ---- what a stranger's file may cost ---- */

/* `times` pieces of text, compressed, loaded with at most this much memory. */
static rad_status load_packed(const char *text, uint64_t times, uint64_t memory, uint64_t *packed,
                              rad_error *err)
{
    char path[64];
    temp_file(path, "", 0);
    gzFile f = gzopen(path, "wb");
    CHECK(f != NULL);
    for (uint64_t i = 0; i < times; i++)
        CHECK(gzwrite(f, text, (unsigned)strlen(text)) > 0);
    CHECK(gzclose(f) == Z_OK);
    FILE *there = fopen(path, "rb");
    CHECK(there && fseek(there, 0, SEEK_END) == 0);
    *packed = (uint64_t)ftell(there);
    fclose(there);
    trace_budget b;
    rad_env env = trace_budget_env(&b, NULL, memory);
    trace *t = NULL;
    rad_status status = trace_load(&env, path, &t, err);
    CHECK((status == RAD_OK) == (t != NULL));
    trace_free(t);
    CHECK(b.used == 0);
    unlink(path);
    return status;
}

TEST(a_bomb_does_not_go_off)
{
    static char zeros[1 << 20];
    static const char line[] = "{\"input_length\": 1030, \"hash_ids\": [1, 2, 3]}\n";
    uint64_t packed;
    rad_error err = {0};
    memset(zeros, ' ', sizeof zeros - 1);
    CHECK(load_packed(zeros, 128, 1ull << 40, &packed, &err) == RAD_E_LIMIT);
    CHECKF(strstr(err.text, "unpack") && packed < 1 << 18, "%s\n", err.text);
    CHECK(load_packed(zeros, 32, 16 << 20, &packed, &err) == RAD_E_NOMEM);
    CHECKF(strstr(err.text, "no memory for more than"), "%s\n", err.text);
    /* A trace that says the same again and again packs as well, and is one. */
    CHECKF(load_packed(line, 20000, 16 << 20, &packed, &err) == RAD_OK, "%s\n", err.text);
    CHECK(20000 * (sizeof line - 1) / packed > 100);
}

/* Nobody knows how large what comes through a pipe is; its error spoke of '0 bytes'. */
TEST(a_bomb_in_a_pipe_does_not_go_off)
{
    static char spaces[1 << 20];
    char path[64];
    rad_error err = {0};
    trace *t;
    memset(spaces, ' ', sizeof spaces);
    temp_file(path, "", 0);
    CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    pid_t child = fork();
    if (!child) {
        gzFile f = gzopen(path, "wb1");
        for (int i = 0; f && i < 100; i++)
            (void)!gzwrite(f, spaces, sizeof spaces);
        if (f) (void)gzclose(f);
        _exit(0);
    }
    CHECK(child > 0 && trace_load(NULL, path, &t, &err) == RAD_E_LIMIT && !t);
    CHECKF(strstr(err.text, "through a pipe may unpack to 64 MiB"), "%s\n", err.text);
    CHECK(waitpid(child, NULL, 0) == child);
    unlink(path);
}

/* gzread calls the end of a file that was cut its end: half of a trace was replayed as if it were
 * all, where the cut fell between two lines. */
TEST(a_compressed_trace_that_was_cut_is_refused)
{
    static const char line[] = "{\"input_length\": 1030, \"hash_ids\": [1, 2, 3]}\n";
    char path[64];
    rad_error err = {0};
    trace *t;
    temp_file(path, "", 0);
    gzFile f = gzopen(path, "wb");
    CHECK(f && gzwrite(f, line, sizeof line - 1) > 0 && gzclose(f) == Z_OK);
    CHECK_OK(trace_load(NULL, path, &t, &err));
    trace_free(t);
    FILE *whole = fopen(path, "rb");
    CHECK(whole && fseek(whole, 0, SEEK_END) == 0);
    long bytes = ftell(whole);
    fclose(whole);
    for (long cut = 1; cut <= bytes - 12; cut++) { /* its sums, and then its data */
        CHECK(truncate(path, bytes - cut) == 0);
        CHECKF(trace_load(NULL, path, &t, &err) == RAD_E_FORMAT && !t, "%ld\n", cut);
        CHECKF(strstr(err.text, "compressed data"), "%s\n", err.text);
    }
    unlink(path);
}

TEST(a_line_is_not_longer_than_a_line)
{
    size_t size = TRACE_LINE_BYTES + 100;
    char *text = malloc(size);
    trace *t;
    rad_error err = {0};
    CHECK(text != NULL);
    for (int over = 0; over < 2; over++) {
        int at = snprintf(text, size,
                          "{\"input_length\":1,\"hash_ids\":[1]}\n{\"input_length\":1,"
                          "\"hash_ids\":[7");
        int head = (int)(strchr(text, '\n') - text) + 1;
        memset(text + at, ' ', size - (size_t)at);
        size_t end = (size_t)head + TRACE_LINE_BYTES + (size_t)over;
        memcpy(text + end - 2, "]}", 2);
        rad_status status = load(text, end, &t, &err);
        CHECKF(status == (over ? RAD_E_LIMIT : RAD_OK), "%s\n", err.text);
        if (over) CHECKF(strstr(err.text, "line 2 has 1048577 bytes"), "%s\n", err.text);
        trace_free(t);
    }
    free(text);
}

/* 8 KB in which one request has two million tokens, since it names the same segment again and
 * again; and every other trace, at every limit: no, or all of it. */
TEST(memory_has_a_limit_and_comes_back)
{
    uint8_t b[256], *big = calloc(1, 20000);
    char path[64];
    rad_error err = {0};
    trace *t = NULL;
    trace_budget budget;
    CHECK(big != NULL);
    enum { TOKENS = 1000, REFS = 2000 };
    const uint32_t small[] = {1, 1, 100, 50}, request[] = {0, 0, 0, 0, REFS, REFS};
    const uint64_t large[] = {TOKENS, REFS}, ends[] = {0, TOKENS};
    memcpy(big, "RXTRACE1", 8);
    memcpy(big + 16, small, 16);
    memcpy(big + 32, large, 16);
    memcpy(big + 48, ends, 16);
    memcpy(big + 64 + 4 * TOKENS, request, 24);
    temp_file(path, big, 64 + 4 * TOKENS + 24 + 4 * REFS);
    rad_env env = trace_budget_env(&budget, NULL, 1 << 20);
    CHECK_OK(trace_load(&env, path, &t, &err));
    simulate_result r;
    simulate_params p = {.capacity_elements = 100};
    CHECK(trace_longest(t) == 2000000 && simulate(&env, t, &p, &r, &err) == RAD_E_NOMEM);
    trace_free(t);
    CHECK(budget.used == 0);
    env = trace_budget_env(&budget, NULL, 1000);
    CHECK(trace_load(&env, path, &t, &err) == RAD_E_NOMEM && !t && budget.used == 0);
    env = trace_budget_env(&budget, NULL, 16 << 20);
    CHECK_OK(trace_load(&env, path, &t, &err));
    p.capacity_elements = 1 << 30; /* what a file's header may ask for */
    CHECK(simulate(&env, t, &p, &r, &err) == RAD_E_NOMEM && err.text[0]);
    trace_free(t);
    CHECK(budget.used == 0);
    unlink(path);
    free(big);

    for (int mooncake = 0; mooncake < 2; mooncake++) {
        size_t size = mooncake ? sizeof two_chats - 1 : build_rxtrace(b);
        temp_file(path, mooncake ? (const void *)two_chats : b, size);
        test_env counted;
        rad_status status = RAD_E_NOMEM;
        for (long n = 0; status; n++) {
            rad_env failing = test_env_failing_at(&counted, n);
            status = trace_load(&failing, path, &t, &err);
            CHECK(status == RAD_OK || (status == RAD_E_NOMEM && !t && counted.bytes == 0));
        }
        trace_free(t);
        CHECK(counted.bytes == 0);
        unlink(path);
    }
}

/* The conversation trace: block hit rates as an independent simulation gives them, with
 * one block evicted at a time and hits counted as radix_publish.c does. */
TEST_WITH_DATA(the_conversation_trace_has_the_hit_rates_of_theory,
               "traces/conversation_trace.jsonl.gz")
{
    static const struct {
        const char *policy;
        uint64_t blocks;
        const char *rate;
    } cells[] = {
        {NULL, 10000, "0.2116"},   {"lru", 30000, "0.3257"},      {"lru", 100000, "0.3637"},
        {"lfu", 10000, "0.1317"},  {"lfu", 30000, "0.2760"},      {"lfu", 100000, "0.3631"},
        {"slru", 10000, "0.1820"}, {"slru", 30000, "0.3193"},     {"slru", 100000, "0.3636"},
        {"fifo", 10000, "0.2109"}, {"priority", 10000, "0.2116"}, /* all have the same */
    };
    char path[1024], rate[16];
    snprintf(path, sizeof path, "%s/traces/conversation_trace.jsonl.gz", test_data());
    trace *t = NULL;
    CHECK_OK(trace_load(NULL, path, &t, NULL));
    CHECK(trace_num_requests(t) == 12031);
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        simulate_params p = {.capacity_elements = cells[i].blocks, .policy = cells[i].policy};
        simulate_result r;
        CHECK_OK(simulate(NULL, t, &p, &r, NULL));
        snprintf(rate, sizeof rate, "%.4f", (double)r.hit_blocks / (double)r.prompt_blocks);
        CHECKF(strcmp(rate, cells[i].rate) == 0, "%s, %llu blocks: %s, not %s",
               cells[i].policy ? cells[i].policy : "the default",
               (unsigned long long)cells[i].blocks, rate, cells[i].rate);
    }
    trace_free(t);
}

TEST_MAIN()
