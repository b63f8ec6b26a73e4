/* test_server_limits.c - connections that are slow, silent, half closed, too many, or that
 * send what is no request: each gets the right status in JSON or is let go of in time, and
 * others are served meanwhile. */
#include "server_rig.h"

#include "server/api_keys.h"

#include <poll.h>

#define HOST "Host: x\r\n"

static bool say(int fd, const char *text)
{
    size_t len = strlen(text);
    return send(fd, text, len, MSG_NOSIGNAL) == (ssize_t)len;
}

/* The status, and that the body is a JSON error with `words` in its message; NULL: none. */
static void expect_error(const char *reply, int status, const char *words)
{
    const char *body = strstr(reply, "\r\n\r\n");
    CHECKF(body && atoi(reply + 9) == status, "wanted %d: %s\n", status, reply);
    CHECKF(strstr(reply, "Content-Type: application/json"), "%s\n", reply);
    CHECKF(strstr(reply, "Connection: close"), "%s\n", reply);
    if (!words) { /* to HEAD */
        CHECKF(!body[4], "%s\n", reply);
        return;
    }
    json_t *json = json_loads(body + 4, 0, NULL);
    const char *message =
        json_string_value(json_object_get(json_object_get(json, "error"), "message"));
    CHECKF(message && strstr(message, words), "no '%s' in: %s\n", words, reply);
    json_decref(json);
}

static void expect_health(const struct fixture *f)
{
    const char *reply = exchange(f, "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    CHECKF(strstr(reply, "200 OK") && strstr(reply, "\"ok\""), "%s\n", reply);
}

TEST(what_is_no_request_is_refused_in_json)
{
    static char long_header[20000], long_line[20000];
    memset(long_header, 'h', sizeof long_header - 1);
    memset(long_line, 'l', sizeof long_line - 1);
    memcpy(long_header, "GET /health HTTP/1.1\r\nA: ", 25);
    memcpy(long_line, "GET /", 5);
    const struct {
        const char *bytes;
        int status;
        const char *words;
    } cases[] = {
        {"hello\r\n\r\n", 400, "HTTP/1.1"},
        {"GET\r\n\r\n", 400, "HTTP/1.1"},
        {"GET / HTTP/9\r\n\r\n", 400, "HTTP/1.1"},
        {"GET / HTTP/99999.1\r\n\r\n", 400, "HTTP/1.1"},
        {"GET / HTTP/4294967295.1\r\nConnection: close\r\n\r\n", 400, "HTTP/1.1"},
        {"GET / HTTP/2.0\r\n\r\n", 505, "HTTP/1.1"},
        {"GET /health HTTP/1.1\r\nno colon\r\n\r\n", 400, "colon"},
        {"GET /health HTTP/1.1\r\n\r\n", 400, "Host"},
        {"GET /health HTTP/1.1\r\n" HOST HOST "\r\n", 400, "Host"},
        {"GET /health HTTP/1.1\r\n" HOST "A : b\r\n\r\n", 400, "colon"},
        {"GET /health HTTP/1.1\r\n" HOST "A: b\x01\r\n\r\n", 400, "control"},
        {"GET //x/health HTTP/1.1\r\n" HOST "\r\n", 404, "//"},
        {"BREW /health HTTP/1.1\r\n" HOST "\r\n", 501, "method"},
        {"HEAD /health HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\n", 400, NULL},
        {"TRACE /health HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\n", 400, "no body"},
        {"GET /health HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\n", 400, "no body"},
        {"POST /generate HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\n", 400, "number"},
        {"POST /generate HTTP/1.1\r\n" HOST "Content-Length: +1\r\n\r\n", 400, "number"},
        {"POST /generate HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400,
         "more than one"},
        {"POST /generate HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999999\r\n\r\n", 413,
         ""},
        {"POST /generate HTTP/1.1\r\n" HOST "Content-Length: 1000001\r\n\r\n", 413,
         "1000000 bytes"},
        {"POST /generate HTTP/1.1\r\n" HOST "Content-Length: 1099511627776\r\n\r\n", 413,
         "1000000"},
        {"POST /generate HTTP/1.1\r\n" HOST
         "Content-Length: 1000001\r\nExpect: 100-continue\r\n\r\n",
         413, "1000000 bytes"},
        {"POST /generate HTTP/1.1\r\n" HOST "Content-Length: 5\r\nExpect: wonders\r\n\r\n", 417,
         "100"},
        {"POST /generate HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400,
         "chunk"},
        {"POST /generate HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0x1\r\n", 400,
         "chunk"},
        {"POST /generate HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nf4241\r\n", 413,
         "1000000"},
        {long_header, 431, "16384 bytes"},
        {long_line, 431, "16384 bytes"},
    };
    struct fixture f;
    start_with(&f, (server_params){.max_body_bytes = 1000000});
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fd = dial(&f);
        CHECK(say(fd, cases[i].bytes));
        expect_error(hear(fd), cases[i].status, cases[i].words);
        close(fd);
        expect_health(&f);
    }
    stop(&f);
}

/* It is sent to the end by a client that does not look, and the answer is there for it. */
TEST(a_refused_body_that_comes_all_the_same_does_not_hide_the_answer)
{
    static char part[1 << 16];
    struct fixture f;
    start_with(&f, (server_params){.max_body_bytes = 1000000});
    int fd = dial(&f);
    CHECK(say(fd, "POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n"));
    for (int sent = 0; sent < 300; sent++)
        CHECK(send(fd, part, sizeof part, MSG_NOSIGNAL) == sizeof part);
    expect_error(hear(fd), 413, "1000000 bytes");
    close(fd);
    expect_health(&f);
    stop(&f);
}

/* Bytes said, one now and then, until there is an answer or 1000 were. */
static int trickle(int fd)
{
    struct pollfd answer = {.fd = fd, .events = POLLIN};
    int bytes = 0;
    while (poll(&answer, 1, 20) == 0 && bytes < 1000)
        bytes += say(fd, "x");
    return bytes;
}

/* A byte now and then is not enough: the deadline is the request's, not the byte's. */
TEST_IF(a_request_that_trickles_gets_408, !rig_is_short())
{
    static const char *const heads[] = {
        "GET /health HTTP/1.1\r\nX: ",
        "POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"text\"",
        "POST /generate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n{"};
    struct fixture f;
    start_with(&f, (server_params){.request_timeout_ms = 700});
    for (int i = 0; i < 3; i++) {
        /* On a busy machine the deadline may be over before this thread says its first byte. */
        for (int bytes = 0, tries = 0; bytes == 0 && tries < 10; tries++) {
            int fd = dial(&f);
            CHECK(say(fd, heads[i]));
            bytes = trickle(fd);
            CHECKF(bytes < 1000 && (bytes || tries < 9), "%d bytes\n", bytes);
            expect_error(hear(fd), 408, "seconds");
            close(fd);
        }
    }
    stop(&f);
}

TEST(a_request_may_come_byte_by_byte)
{
    const char *text = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                       "Content-Length: 30\r\n\r\n{\"prompt\":\"a\",\"max_tokens\":3} ";
    struct fixture f;
    int one = 1;
    start_with(&f, (server_params){0});
    int fd = dial(&f);
    setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof one);
    for (const char *p = text; *p; p++)
        CHECK(send(fd, p, 1, MSG_NOSIGNAL) == 1);
    const char *reply = hear(fd);
    CHECKF(strstr(reply, "200 OK") && strstr(reply, "t2 "), "%s\n", reply);
    close(fd);
    stop(&f);
}

/* Before a request and between two: closed without a word, but not while one is answered. */
TEST_IF(a_silent_connection_is_closed, !rig_is_short())
{
    struct fixture f;
    char byte;
    start_with(&f, (server_params){.keep_alive_ms = 1500});
    int never = dial(&f), between = dial(&f), busy = dial(&f);
    CHECK(say(between, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"));
    CHECK(say(busy, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                    "Content-Length: 34\r\n\r\n{\"prompt\":\"slow\",\"max_tokens\":99}  "));
    CHECK(recv_some(never, &byte, 1) == 0);
    const char *reply = hear(between);
    CHECKF(strstr(reply, "200 OK"), "%s\n", reply);
    reply = hear(busy); /* takes 2 s */
    CHECKF(strstr(reply, "t98 "), "%s\n", reply);
    close(never), close(between), close(busy);
    stop(&f);
}

/* Those who hold connections without asking for anything cannot keep others out. */
TEST_IF(when_all_places_are_taken_the_idle_ones_make_room, !rig_is_short())
{
    enum { PLACES = 20, MANY = 100 };
    int fds[MANY];
    struct fixture f;
    start_with(&f, (server_params){.max_connections = PLACES});
    int busy = dial(&f);
    CHECK(say(busy, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                    "Content-Length: 34\r\n\r\n{\"prompt\":\"slow\",\"max_tokens\":20}  "));
    for (int i = 0; i < MANY; i++) {
        fds[i] = dial(&f);
        if (i % 2) say(fds[i], "POST /generate HTTP/1.1\r\nHos");
        if (i % 10 == 0) expect_health(&f);
    }
    const char *reply = hear(busy);
    CHECKF(strstr(reply, "t19 "), "%s\n", reply);
    int open = 0;
    for (int i = 0; i < MANY; i++) {
        char byte;
        open += recv(fds[i], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
        close(fds[i]);
    }
    CHECKF(open <= PLACES, "%d are open\n", open);
    expect_health(&f);
    close(busy);
    stop(&f);
}

/* With all places busy the next ones wait until one is free, and then are served. */
TEST_IF(when_all_are_busy_the_others_wait, !rig_is_short())
{
    enum { PLACES = 4, MANY = 12 };
    static const char silent[] = "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                                 "Content-Length: 19\r\n\r\n{\"prompt\":\"silent\"}";
    static const char slow[] = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                               "Content-Length: 33\r\n\r\n{\"prompt\":\"slow\",\"max_tokens\":4}  ";
    int fds[MANY];
    struct fixture f;
    start_with(&f, (server_params){.max_connections = PLACES});
    for (int i = 0; i < MANY; i++) {
        fds[i] = dial(&f);
        CHECK(say(fds[i], i < PLACES ? silent : slow));
        engine_stats stats = {0}; /* a place is busy before the next one asks for room */
        for (int wait = 0; i < PLACES && stats.requests.num_requests <= (uint64_t)i; wait++) {
            CHECK(wait < 20000);
            usleep(1000);
            engine_get_stats(f.engine, &stats);
        }
    }
    for (int i = 0; i < PLACES; i++)
        close(fds[i]);
    for (int i = PLACES; i < MANY; i++) {
        const char *reply = hear(fds[i]);
        CHECKF(strstr(reply, "t3 "), "%d: %s\n", i, reply);
        close(fds[i]);
    }
    stop(&f);
}

/* An unfinished request has no answer, and nothing waits for its end. */
TEST(a_half_closed_connection_without_a_request_is_let_go)
{
    static const char *const heads[] = {
        "", "GET /hea", "POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"};
    struct fixture f;
    start_with(&f, (server_params){0});
    for (int i = 0; i < 3; i++) {
        int fd = dial(&f);
        CHECK(say(fd, heads[i]) || !*heads[i]);
        usleep(20000);
        shutdown(fd, SHUT_WR);
        CHECK(!*hear(fd)); /* an end, long before any timeout */
        close(fd);
    }
    stop(&f);
}

/* printf ... | nc -N: the client shuts down its side and waits. What it asked for, all of it, it
 * gets, plain and as a stream, in time or after a while. */
TEST(a_half_closed_client_gets_its_answers)
{
    static const struct {
        const char *bytes, *want, *end;
    } cases[] = {
        {"GET /health HTTP/1.0\r\n\r\n", "HTTP/1.0 200", "\"ok\"}"},
        {"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
         "HTTP/1.1 200", "\"list\""},
        {"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 33\r\n\r\n"
         "{\"prompt\":\"slow\",\"max_tokens\":9}  ",
         "HTTP/1.1 200", "t8 "},
        {"POST /v1/completions HTTP/1.0\r\nContent-Length: 48\r\n\r\n"
         "{\"prompt\":\"slow\",\"max_tokens\":9,\"stream\":true}  ",
         "HTTP/1.0 200", "[DONE]"},
        {"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 34\r\n\r\n"
         "{\"prompt\":\"slow\",\"max_tokens\":5}  "
         "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\nGET /heal",
         "HTTP/1.1 200", "/v1/models"},
    };
    struct fixture f;
    start_with(&f, (server_params){0});
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fd = dial(&f);
        CHECK(say(fd, cases[i].bytes));
        shutdown(fd, SHUT_WR);
        const char *reply = hear(fd);
        CHECKF(strncmp(reply, cases[i].want, 12) == 0 && strstr(reply, cases[i].end), "%s: %s\n",
               cases[i].bytes, reply);
        close(fd);
    }
    stop(&f);
}

/* Shutting down and closing look alike at first; who closed is not computed for. */
TEST(a_client_that_closes_is_noticed_before_its_answer)
{
    struct fixture f;
    engine_stats stats = {0};
    start_with(&f, (server_params){0});
    for (int i = 0; i < 2; i++) {
        int fd = dial(&f);
        CHECK(say(fd, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 19\r\n\r\n"
                      "{\"prompt\":\"silent\"}"));
        if (i) shutdown(fd, SHUT_WR), usleep(100000); /* it is probed before it goes */
        close(fd);
    }
    for (int wait = 0; wait < 20000 && stats.requests.num_aborted < 2; wait++) {
        usleep(1000);
        engine_get_stats(f.engine, &stats);
    }
    CHECK(stats.requests.num_aborted == 2);
    stop(&f);
}

/* A stream of hours on a connection that takes in so many bytes unread. */
static int start_stream(const struct fixture *f, int receive_bytes)
{
    static const char body[] =
        "{\"text\":\"a\",\"stream\":true,\"sampling_params\":{\"max_new_tokens\":100000000}}";
    int fd = dial(f);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    send_request(fd, "POST", "/generate", body, sizeof body - 1);
    return fd;
}

/* A stream that is not read is dropped in time, and its request aborted. */
TEST(a_stream_that_nobody_reads_is_dropped)
{
    struct fixture f;
    engine_stats stats;
    start_with(&f, (server_params){.send_timeout_ms = 300});
    int fd = start_stream(&f, 4096);
    for (int wait = 0; wait < 10000; wait++) {
        engine_get_stats(f.engine, &stats);
        if (stats.requests.num_aborted) break;
        usleep(1000);
    }
    CHECK(stats.requests.num_aborted == 1);
    close(fd);
    stop(&f);
}

/* A client that takes a little of its answer now and then used to hold its place for ever: each bit
 * gave it the whole time anew. Here it takes what the write timeout asks for, a tenth of what the
 * whole answer's time does. */
TEST_IF(a_stream_that_is_read_too_slowly_is_dropped, !rig_is_short())
{
    struct fixture f;
    engine_stats stats = {0};
    static char some[4096];
    start_with(&f, (server_params){.send_timeout_ms = 1000, .min_bytes_per_s = 4 << 20});
    int fd = start_stream(&f, 8192);
    for (int wait = 0; wait < 2000 && !stats.requests.num_aborted; wait++) {
        recv(fd, some, sizeof some, MSG_DONTWAIT);
        usleep(10000);
        engine_get_stats(f.engine, &stats);
    }
    CHECK(stats.requests.num_aborted == 1);
    close(fd);
    stop(&f);
}

/* A ping is in the buffer at the tick that writes it. That is no lag: a client that takes each of
 * them used to be dropped after send_timeout_ms' worth of ticks. */
TEST_IF(a_silent_stream_whose_client_reads_goes_on, !rig_is_short())
{
    struct fixture f;
    static char some[4096];
    start_with(&f,
               (server_params){.send_timeout_ms = 500, .min_bytes_per_s = 1 << 30, .ping_ms = 1});
    int fd = dial(&f);
    CHECK(say(fd, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 33\r\n\r\n"
                  "{\"prompt\":\"silent\",\"stream\":true}"));
    size_t pings = 0;
    while (pings < 12) { /* one a tick of 100 ms */
        ssize_t n = recv_some(fd, some, sizeof some - 1);
        CHECKF(n > 0, "the end after %zu pings", pings);
        some[n] = 0;
        for (const char *at = some; (at = strstr(at, ": ping")); at++)
            pings++;
    }
    close(fd);
    stop(&f);
}

/* ---- one client ---- */

static api_keys *two_keys(void)
{
    api_keys *keys;
    CHECK_OK(api_keys_create(&keys, NULL));
    CHECK_OK(api_keys_add(keys, "ann", false, NULL));
    CHECK_OK(api_keys_add(keys, "bob", false, NULL));
    return keys;
}

static int post(const struct fixture *f, const char *key, const char *path, const char *body)
{
    char text[600];
    int fd = dial(f);
    snprintf(text, sizeof text,
             "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nx-api-key: %s\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             path, key, strlen(body), body);
    CHECK(say(fd, text));
    return fd;
}

/* What comes for it has both. */
static void expect(int fd, const char *want, const char *also)
{
    const char *reply = hear(fd);
    CHECKF(strstr(reply, want) && strstr(reply, also), "no '%s', '%s' in: %s\n", want, also, reply);
    close(fd);
}

static void await_running(const struct fixture *f, uint32_t count)
{
    engine_stats stats;
    for (int wait = 0; engine_get_stats(f->engine, &stats), stats.sched.num_running != count;
         wait++) {
        CHECK(wait < 20000);
        usleep(1000);
    }
}

/* One request of many on the connection. */
static void ask_health(int fd)
{
    char some[600];
    size_t len = 0;
    CHECK(say(fd, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"));
    do {
        ssize_t n = recv_some(fd, some + len, sizeof some - 1 - len);
        CHECK(n > 0);
        len += (size_t)n;
        some[len] = 0;
    } while (!strstr(some, "\"ok\"}"));
}

static const char SILENT[] = "{\"prompt\":\"silent\"}",
                  SHORT[] = "{\"prompt\":\"a\",\"max_tokens\":2}";

TEST(a_client_has_only_so_many_connections)
{
    struct fixture f;
    int fds[4];
    char byte;
    start_with(&f, (server_params){.per_client.connections = 2});
    for (int i = 0; i < 4; i++) { /* whoever came first makes room */
        fds[i] = dial(&f);
        ask_health(fds[i]);
    }
    CHECK(recv_some(fds[0], &byte, 1) == 0 && recv_some(fds[1], &byte, 1) == 0);
    ask_health(fds[2]);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    for (int i = 0; i < 2; i++)
        fds[i] = post(&f, "", "/v1/completions", SILENT);
    await_running(&f, 2);
    expect(post(&f, "", "/v1/messages", "{}"), " 429 ", "rate_limit_error");
    expect(post(&f, "", "/v1/completions", SHORT), "Retry-After: 1", "too_many_connections");
    expect_health(&f); /* of whom asks nothing else */
    close(fds[0]);
    await_running(&f, 1);
    expect(post(&f, "", "/v1/completions", SHORT), " 200 OK", "t1 ");
    close(fds[1]);
    stop(&f);
}

TEST(a_key_has_only_so_many_connections)
{
    struct fixture f;
    api_keys *keys = two_keys();
    start_with(&f, (server_params){.per_client.connections = 2, .api_keys = keys});
    int fds[] = {post(&f, "ann", "/v1/completions", SILENT),
                 post(&f, "ann", "/v1/completions", SILENT), dial(&f), dial(&f), dial(&f)};
    await_running(&f, 2);
    expect(post(&f, "ann", "/v1/completions", SHORT), " 429 ", "--max-connections-per-client");
    expect(post(&f, "bob", "/v1/completions", SHORT), " 200 OK", "t1 ");
    expect(post(&f, "eve", "/v1/completions", SHORT), " 401 ", "API key");
    for (int i = 0; i < 5; i++)
        close(fds[i]);
    await_running(&f, 0);
    expect(post(&f, "ann", "/v1/completions", SHORT), " 200 OK", "t1 ");
    stop(&f);
    api_keys_destroy(keys);
}

TEST_IF(a_client_has_only_so_many_prompts_that_wait, !rig_is_short())
{
    static const char two[] = "{\"prompt\":[\"silent\",\"silent\"]}";
    static const char three[] = "{\"prompt\":[\"a\",\"b\",\"c\"],\"max_tokens\":2}";
    struct fixture f;
    api_keys *keys = two_keys();
    start_with(&f, (server_params){.per_client.queued = 2, .api_keys = keys});
    expect(post(&f, "ann", "/v1/completions", three), " 429 ", "with these this client");
    int talks = post(&f, "ann", "/v1/completions", /* it has its first token: it does not wait */
                     "{\"prompt\":\"slow\",\"max_tokens\":20,\"stream\":true}");
    struct pollfd first = {.fd = talks, .events = POLLIN};
    CHECK(poll(&first, 1, TEST_HANG_S * 1000) == 1);
    int waits = post(&f, "ann", "/v1/completions", two);
    await_running(&f, 3);
    expect(post(&f, "ann", "/v1/completions", SHORT), " 429 ", "--max-queued-per-client");
    expect(post(&f, "ann", "/v1/messages",
                "{\"model\":\"fake \\\"model\\\"\",\"max_tokens\":2,\"messages\":[{\"role\":"
                "\"user\",\"content\":\"a\"}]}"),
           " 429 ", "\"type\":\"rate_limit_error\"");
    expect(post(&f, "bob", "/v1/completions", SHORT), " 200 OK", "t1 ");
    close(waits);
    expect(talks, "t19 ", "[DONE]");
    await_running(&f, 0);
    expect(post(&f, "ann", "/v1/completions", SHORT), " 200 OK", "t1 ");
    stop(&f);
    api_keys_destroy(keys);
}

TEST_IF(a_client_has_only_so_many_tokens_a_minute, !rig_is_short())
{
    struct fixture f;
    api_keys *keys = two_keys();
    start_with(&f, (server_params){.per_client.tokens_per_minute = 30, .api_keys = keys});
    /* More than a minute's: it is answered to its end. */
    expect(post(&f, "ann", "/v1/completions", "{\"prompt\":\"abcdefghij\",\"max_tokens\":300}"),
           " 200 OK", "t299 ");
    expect(post(&f, "ann", "/v1/completions", SHORT), " 429 ", "\r\nRetry-After: 56");
    expect(post(&f, "ann", "/v1/completions", SHORT), "rate_limit_exceeded",
           "--max-tokens-per-minute");
    expect(post(&f, "ann", "/v1/messages", SHORT), " 429 ", "\"type\":\"rate_limit_error\"");
    expect(post(&f, "ann", "/tokenize", "{\"prompt\":\"a\"}"), " 200 OK", "\"count\"");
    for (int i = 0; i < 9; i++) /* what was guessed by a body's length is given back */
        expect(post(&f, "bob", "/v1/completions", SHORT), " 200 OK", "t1 ");
    stop(&f);
    api_keys_destroy(keys);
}

TEST_MAIN()
