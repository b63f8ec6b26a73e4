/* test_access.c - every request leaves one line in the log, whatever became of it, under a name
 * that its answer carries; failures are counted; nobody can forge a line. */
#include "server_rig.h"

#include "base/log_text.h"
#include "server/trace_context.h"

static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;
static char **lines; /* all of them: who waits for something asks /metrics again and again */
static size_t num_lines;

static void keep_line(void *user, rad_log_level level, const char *message)
{
    (void)user;
    (void)level;
    pthread_mutex_lock(&lines_lock);
    lines = realloc(lines, (num_lines + 1) * sizeof *lines);
    if (!lines || !(lines[num_lines++] = strdup(message))) abort();
    pthread_mutex_unlock(&lines_lock);
}

static void forget_lines(void)
{
    while (num_lines)
        free(lines[--num_lines]);
    free(lines);
    lines = NULL;
}

static void start_logged(struct fixture *f)
{
    rad_env env = {.struct_size = sizeof env, .log = keep_line};
    forget_lines();
    start_in(f, &env, (server_params){.max_body_bytes = 1 << 20, .max_header_bytes = 4096});
}

static size_t lines_with(const char *a, const char *b)
{
    size_t found = 0;
    pthread_mutex_lock(&lines_lock);
    for (size_t i = 0; i < num_lines; i++)
        found += strstr(lines[i], a) && strstr(lines[i], b);
    pthread_mutex_unlock(&lines_lock);
    return found;
}

/* The lines that were written by the end. */
static void show_lines(void)
{
    for (size_t i = 0; i < num_lines; i++)
        print_error("  %s\n", lines[i]);
}

#define CHECK_LINE(a, b)                                                                           \
    do {                                                                                           \
        if (lines_with(a, b) != 1) show_lines();                                                   \
        CHECKF(lines_with(a, b) == 1, "%zu lines with '%s' and '%s'\n", lines_with(a, b), a, b);   \
    } while (0)

static json_int_t metric(const struct fixture *f, const char *name)
{
    int status;
    char *text = ask_raw(f, "GET", "/metrics", "", &status), key[100];
    snprintf(key, sizeof key, "\n%s{", name);
    char *at = strstr(text, key);
    CHECKF(at != NULL, "no %s\n", name);
    json_int_t value = atoll(strchr(at, '}') + 1);
    free(text);
    return value;
}

TEST(every_status_leaves_one_line_and_failures_count)
{
    struct fixture f;
    int status;
    start_logged(&f);
    free(ask_raw(&f, "POST", "/v1/completions", "{\"prompt\":\"abc\",\"max_tokens\":2}", &status));
    free(ask_raw(&f, "GET", "/health", "", &status));
    CHECK(metric(&f, "radish_num_failed_requests_total") == 0);
    free(ask_raw(&f, "GET", "/nothing?secret=1", "", &status));    /* 404 */
    free(ask_raw(&f, "GET", "/generate", "", &status));            /* 405 */
    free(ask_raw(&f, "POST", "/generate", "{\"text\":", &status)); /* 400, unparsed */
    free(ask_raw(&f, "POST", "/v1/completions", "{\"prompt\":\"full\"}", &status));  /* 429 */
    free(ask_raw(&f, "POST", "/v1/completions", "{\"prompt\":\"error\"}", &status)); /* 400, late */
    free(ask_raw(&f, "POST", "/v1/chat/completions",
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"model\":\"x\"}",
                 &status));
    free(ask_late(&f, &status)); /* 200, then an error */
    CHECK(strstr(exchange(&f, "GET / HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n"), " 400 "));
    char *large = malloc(60000);
    if (!large) abort();
    snprintf(large, 60000, "{\"prompt\":\"%50000d\",\"max_tokens\":1,\"wrong\":1}", 1);
    free(ask_raw(&f, "POST", "/generate", large, &status)); /* 400 from a worker */
    CHECK(status == 400);
    snprintf(large, 60000, "{\"prompt\":\"%50000d\",\"max_tokens\":1}", 1);
    free(ask_raw(&f, "POST", "/v1/completions", large, &status)); /* 200 by way of a worker */
    CHECK(status == 200);
    free(large);
    CHECK(metric(&f, "radish_num_failed_requests_total") == 9);
    CHECK(metric(&f, "radish_num_http_requests_total") == 15);
    stop(&f);

    CHECK_LINE("POST /v1/completions 200 ", ": 3 prompt tokens, 7 cached, 2 out");
    CHECK_LINE("POST /v1/completions 200 ", ": 50000 prompt tokens, 7 cached, 1 out");
    CHECK_LINE("GET /health 200 ", "from 127.0.0.1");
    CHECK_LINE("GET /nothing 404 ", "");
    CHECK_LINE("GET /generate 405 ", "");
    CHECK(lines_with("POST /generate 400 ", "") == 2);
    CHECK_LINE("POST /v1/completions 429 ", "");
    CHECK_LINE("POST /v1/completions 400 ", "");
    CHECK_LINE("POST /v1/chat/completions 404 ", "");
    CHECK_LINE("POST /v1/completions 200 failed ", "");
    CHECK_LINE(" 400 ", "refused before it was read");
    CHECK(lines_with("GET /metrics 200 ", "") == 3);
    CHECK(lines_with("request ", " s, ") == 15 && lines_with("secret", "") == 0);
    forget_lines();
}

TEST(a_client_that_leaves_leaves_a_line)
{
    struct fixture f;
    start_logged(&f);
    int fd = dial(&f);
    const char *body = "{\"prompt\":\"silent\"}";
    send_request(fd, "POST", "/v1/completions", body, strlen(body));
    while (metric(&f, "sglang:num_running_reqs") == 0)
        usleep(1000);
    for (int i = 0; i < 100; i++) /* as many lines as a busy machine makes of these waits */
        metric(&f, "sglang:num_running_reqs");
    close(fd);
    while (metric(&f, "sglang:num_aborted_requests_total") == 0)
        usleep(1000);
    stop(&f);
    CHECK_LINE("POST /v1/completions - (the client left) ", "");
    forget_lines();
}

TEST(a_request_is_called_what_its_header_says_or_by_a_number)
{
    static const struct {
        const char *header, *want; /* NULL: a number of ours */
    } cases[] = {
        {"X-Request-Id: Root=1-67891233;a/b:c\r\n", "Root=1-67891233;a/b:c"},
        {"", NULL},
        {"X-Request-Id: two words\r\n", NULL},
        {"X-Request-Id: \x1b[2J\r\n", NULL},
        {"X-Request-Id: caf\xc3\xa9\r\n", NULL},
        {"X-Request-Id: a\"b\r\n", NULL},
        {"X-Request-Id:\r\n", NULL},
    };
    struct fixture f;
    start_logged(&f);
    char asked[600], before[200] = "";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(asked, sizeof asked,
                 "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n", cases[i].header);
        char *at = strstr(exchange(&f, asked), "X-Request-Id: "), id[200];
        CHECK(at && sscanf(at, "X-Request-Id: %199s", id) == 1);
        CHECKF(!cases[i].want || !strcmp(id, cases[i].want), "%s\n", id);
        CHECKF(cases[i].want || (strlen(id) == 16 && strspn(id, "0123456789abcdef") == 16), "%s\n",
               id);
        CHECK(strcmp(id, before) != 0);
        strcpy(before, id);
    }
    char longest[129] = "", line[200];
    memset(longest, 'x', 128);
    for (int extra = 0; extra < 2; extra++) {
        snprintf(asked, sizeof asked,
                 "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: "
                 "14\r\n"
                 "X-Request-Id: %s%s\r\n\r\n{\"prompt\":\"a\"}",
                 longest, extra ? "y" : "");
        snprintf(line, sizeof line, "X-Request-Id: %s\r\n", longest);
        CHECK((strstr(exchange(&f, asked), line) != NULL) == !extra);
    }
    /* What is refused before it is read has a name of its own. */
    CHECK(strstr(exchange(&f, "GET / HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\nbad\r\n\r\n"),
                 "X-Request-Id: "));
    stop(&f);
    CHECK_LINE("request Root=1-67891233;a/b:c, from", "GET /health 200");
    CHECK_LINE(longest, "POST /v1/completions 200");
    forget_lines();
}

TEST(a_name_of_the_clients_stays_on_its_line)
{
    struct fixture f;
    int status;
    start_logged(&f);
    free(ask_raw(&f, "POST", "/generate",
                 "{\"text\":\"a\",\"rid\":\"x\\\": 9 out\\nradish: error: \\u001b[31m\\u0085\\u009b"
                 "\\u202egnp\\u2028\\u2066\\u200f\\u061c\"}",
                 &status));
    CHECK(status == 200);
    stop(&f);
    CHECK_LINE("\"x': 9 out radish: error: ?[31m???gnp????\": 1 prompt tokens", "");
    forget_lines();
}

TEST(what_moves_the_cursor_or_turns_the_text_is_taken_out)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
         "plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"a\nb\tc\rd\x1b[0m\x7f", "a b c?d?[0m?"},
        {"\xc2\x80\xc2\x9f\xc2\xa0", "??\xc2\xa0"},
        {"\xd8\x9c\xe2\x80\x8e\xe2\x80\x8f\xe2\x80\x8d", "???\xe2\x80\x8d"},
        {"\xe2\x80\xa7\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa\xe2\x80\xae\xe2\x80\xaf",
         "\xe2\x80\xa7????\xe2\x80\xaf"},
        {"\xe2\x81\xa5\xe2\x81\xa6\xe2\x81\xa9\xe2\x81\xaa", "\xe2\x81\xa5??\xe2\x81\xaa"},
        {"\xff\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xe2\x82", "???????????"
                                                             "?"},
        {"cut \xe2\x82", "cut ??"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[100];
        strcpy(line, cases[i].in);
        log_text_clean(line);
        CHECKF(!strcmp(line, cases[i].out), "%zu: '%s'\n", i, line);
    }
}

TEST(a_trace_is_read_as_the_header_has_it_or_not_at_all)
{
#define TRACE  "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"
    static const struct {
        const char *header;
        bool fine, sampled;
    } cases[] = {{"00-" TRACE "-" PARENT "-01", true, true},
                 {"00-" TRACE "-" PARENT "-00", true, false},
                 {"00-" TRACE "-" PARENT "-03", true, true},
                 {"cc-" TRACE "-" PARENT "-01-what comes later", true, true},
                 {"cc-" TRACE "-" PARENT "-01.", false, false},
                 {"00-" TRACE "-" PARENT "-01-", false, false},
                 {"ff-" TRACE "-" PARENT "-01", false, false},
                 {"00-" TRACE "-" PARENT "-0", false, false},
                 {"00-" TRACE "-" PARENT "-0g", false, false},
                 {"00-00000000000000000000000000000000-" PARENT "-01", false, false},
                 {"00-" TRACE "-0000000000000000-01", false, false},
                 {"00-0AF7651916CD43DD8448EB211C80319C-" PARENT "-01", false, false},
                 {"00_" TRACE "-" PARENT "-01", false, false},
                 {"", false, false},
                 {NULL, false, false}};
    trace_context t, other;
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        const bool fine = trace_context_read(cases[i].header, &t);
        CHECKF(fine == cases[i].fine && t.sampled == cases[i].sampled, "%s\n", cases[i].header);
        CHECK(!strcmp(t.trace_id, fine ? TRACE : "") && !strcmp(t.parent_id, fine ? PARENT : ""));
        CHECK(strlen(t.span_id) == (fine ? SPAN_ID_DIGITS : 0));
    }
    trace_context_begin(&t);
    trace_context_begin(&other);
    CHECK(strlen(t.trace_id) == TRACE_ID_DIGITS && strlen(t.span_id) == SPAN_ID_DIGITS &&
          t.sampled);
    CHECK(strcmp(t.trace_id, other.trace_id) != 0 && !t.parent_id[0]);
}

TEST_MAIN()
