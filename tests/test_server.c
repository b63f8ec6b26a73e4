/* test_server.c - clients that vanish, are slow or come in thousands, admin endpoints, and
 * stopping: the server against a scripted engine. What requests and answers say is in
 * test_server_api.c and test_server_errors.c, hostile connections in test_server_limits.c. */
#include "server_rig.h"

#include <poll.h>
#include <sys/resource.h>

__attribute__((constructor)) static void limit_buffers(void)
{
    server_limit_buffers(64 << 20);
}

/* ---- clients that misbehave ---- */

static uint32_t running(struct fixture *f)
{
    engine_stats stats;
    engine_get_stats(f->engine, &stats);
    return stats.sched.num_running;
}

enum { MOST_WAIT_MS = TEST_HANG_S * 1000 };

/* Until a request runs, or this connection's was answered before that was seen. */
static void until_running(struct fixture *f, int fd)
{
    struct pollfd answer = {.fd = fd, .events = POLLIN};
    for (int wait = 0; !running(f) && poll(&answer, 1, 1) == 0 && wait < MOST_WAIT_MS; wait++)
        ;
}

/* A request that says nothing until it is aborted, and runs; its connection. */
static int run_silent(struct fixture *f)
{
    static const char body[] = "{\"prompt\":\"silent\"}";
    int fd = dial(f);
    send_request(fd, "POST", "/v1/completions", body, sizeof body - 1);
    until_running(f, fd);
    return fd;
}

TEST(a_client_that_vanishes_aborts_its_request)
{
    static const char *const bodies[] = {
        "{\"prompt\":\"silent\"}",
        "{\"prompt\":\"silent\",\"stream\":true}",
        "{\"prompt\":\"slow\",\"stream\":true,\"max_tokens\":100000}",
        "{\"prompt\":[\"silent\",\"slow\",\"silent\"],\"max_tokens\":100000}",
    };
    struct fixture f;
    start(&f, 0);
    for (size_t i = 0; i < 4; i++) {
        int fd = dial(&f);
        send_request(fd, "POST", "/v1/completions", bodies[i], strlen(bodies[i]));
        until_running(&f, fd);
        CHECK(running(&f) > 0);
        close(fd);
        AWAIT(running(&f) == 0);
    }
    stop(&f);
}

TEST(a_slow_reader_gets_everything_and_holds_up_nobody)
{
    struct fixture f;
    int status;
    start(&f, 0);
    const char *body = "{\"text\":\"slow reader\",\"stream\":true,"
                       "\"sampling_params\":{\"max_new_tokens\":1500}}";
    int fd = dial(&f), small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    send_request(fd, "POST", "/generate", body, strlen(body));
    for (int i = 0; i < 5; i++)
        json_decref(ask(&f, "POST", "/v1/completions", "{\"prompt\":\"a\"}", 200));
    usleep(200000); /* by now its buffer is full and the rest is merged */
    small = 1 << 20;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    char *text = read_reply(fd, &status);
    CHECK(status == 200 && strstr(text, "data: [DONE]\n\n") != NULL);
    json_t *last = event_at(text, count_events(text) - 2);
    CHECK(json_array_size(json_object_get(last, "output_ids")) == 1500);
    json_decref(last);
    free(text);
    stop(&f);
}

TEST(a_silent_stream_is_pinged)
{
    struct fixture f;
    start(&f, 200);
    int fd = dial(&f);
    const char *body = "{\"prompt\":\"silent\",\"stream\":true}";
    send_request(fd, "POST", "/v1/completions", body, strlen(body));
    char seen[4096];
    size_t len = 0;
    while (len < sizeof seen - 1) {
        ssize_t n = recv_some(fd, seen + len, sizeof seen - 1 - len);
        CHECK(n > 0);
        len += (size_t)n;
        seen[len] = 0;
        if (strstr(seen, ": ping\n\n")) break;
    }
    CHECK(strstr(seen, "text/event-stream") != NULL);
    close(fd);
    stop(&f);
}

TEST(pipelined_requests_are_answered_in_order)
{
    struct fixture f;
    int status;
    start(&f, 0);
    int fd = dial(&f);
    const char *one = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 17\r\n\r\n"
                      "{\"prompt\":\"slow\"}";
    const char *two = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    send_all(fd, one, strlen(one));
    usleep(30000); /* while the first is being answered */
    send_all(fd, two, strlen(two));
    char *text = read_reply(fd, &status);
    const char *first = strstr(text, "t15 "), *second = strstr(text, "\"status\":\"ok\"");
    CHECKF(first && second && first < second, "%s", text);
    free(text);
    stop(&f);
}

TEST(a_thousand_connections_at_once_are_served)
{
    enum { MOST = 1000 };
    static int fds[MOST];
    struct fixture f;
    struct rlimit files; /* the server raises it; both ends are in this process */
    start(&f, 0);
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur >= 256);
    const int many = (int)RAD_MIN((files.rlim_cur - 64) / 2, (rlim_t)MOST);
    const char *body = "{\"prompt\":\"a\",\"max_tokens\":5}";
    for (int i = 0; i < many; i++)
        fds[i] = dial(&f);
    for (int i = 0; i < many; i++)
        send_request(fds[i], "POST", "/v1/completions", body, strlen(body));
    for (int i = 0; i < many; i++) {
        int status;
        free(read_reply(fds[i], &status));
        CHECKF(status == 200, "connection %d: %d", i, status);
    }
    stop(&f);
}

TEST(garbage_instead_of_http_is_survived)
{
    struct fixture f;
    uint64_t seed = test_seed(), state = seed;
    start(&f, 0);
    for (int i = 0; i < 50; i++) {
        char bytes[512];
        int fd = dial(&f), status;
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (char)test_random(&state);
        memcpy(bytes, "POST /generate HTTP/1.1\r\n", i % 2 ? 25 : 0);
        send_all(fd, bytes, sizeof bytes);
        shutdown(fd, SHUT_WR);
        free(read_reply(fd, &status));
    }
    json_decref(ask(&f, "GET", "/health", "", 200));
    stop(&f);
}

/* 300 clients send most of a body of 900 KB and then nothing: 270 MB, were there no limit.
 * Some are dropped, the server goes on, and when they are gone everything is as before. */
TEST(bodies_together_are_bounded)
{
    enum { MANY = 300, PART = 800 << 10 };
    static int fds[MANY];
    struct fixture f;
    char *part = calloc(1, PART);
    uint32_t dropped = 0;
    CHECK(part != NULL);
    start(&f, 0);
    for (int i = 0; i < MANY; i++) {
        char head[] = "POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n";
        struct timeval brief = {.tv_usec = 200000};
        fds[i] = dial(&f);
        setsockopt(fds[i], SOL_SOCKET, SO_SNDTIMEO, &brief, sizeof brief);
        send_all(fds[i], head, sizeof head - 1);
        send_all(fds[i], part, PART);
    }
    json_decref(ask(&f, "GET", "/health", "", 200));
    for (int wait = 0; !dropped && wait < MOST_WAIT_MS / 5; wait++) { /* until it has read so far */
        usleep(5000);
        for (int i = 0; i < MANY; i++) {
            char byte;
            ssize_t n = recv(fds[i], &byte, 1, MSG_DONTWAIT);
            dropped += n == 0 || (n < 0 && errno != EAGAIN);
        }
    }
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
    CHECKF(dropped > 0 && dropped < MANY, "%u dropped", dropped);
    json_decref(ask(&f, "POST", "/v1/completions", "{\"prompt\":\"a\"}", 200));
    char *big = malloc(1 << 20);
    CHECK(big != NULL);
    memset(big, 'x', 1 << 20);
    memcpy(big, "{\"prompt\":\"", 11);
    strcpy(big + 900000, "\",\"max_tokens\":1}");
    for (int tries = 0, status = 0; status != 200; tries++) { /* once their buffers are free */
        CHECK(tries < MOST_WAIT_MS / 10);
        free(ask_raw(&f, "POST", "/v1/completions", big, &status));
        if (status != 200) usleep(10000);
    }
    free(big);
    free(part);
    stop(&f);
}

/* ---- admin ---- */

static uint32_t num_flushes(const struct fixture *f)
{
    pthread_mutex_lock(&f->engine->lock);
    uint32_t n = f->engine->num_flushes;
    pthread_mutex_unlock(&f->engine->lock);
    return n;
}

TEST(admin_endpoints_answer)
{
    struct fixture f;
    int status;
    start(&f, 0);
    json_t *json = ask(&f, "GET", "/v1/models", "", 200);
    json_t *model = json_array_get(json_object_get(json, "data"), 0);
    CHECK(says(model, "id", "fake \"model\""));
    CHECK(number(model, "max_model_len") == 4096);
    json_decref(json);
    json_decref(ask(&f, "GET", "/v1/models/fake%20%22model%22", "", 200));
    json_decref(ask(&f, "GET", "/v1/models/other", "", 404));
    json = ask(&f, "GET", "/get_model_info", "", 200);
    CHECK(json_is_true(json_object_get(json, "is_generation")));
    json_decref(json);
    json = ask(&f, "GET", "/server_info", "", 200);
    CHECK(number(json, "max_total_num_tokens") == 10000);
    CHECK(number(json_array_get(json_object_get(json, "internal_states"), 0), "available_tokens") ==
          10000);
    json_decref(json);
    char *text = ask_raw(&f, "GET", "/metrics", "", &status);
    CHECK(strstr(text, "sglang:num_requests_total{model_name=\"fake \\\"model\\\"\"} 0\n") != NULL);
    free(text);
    json_decref(ask(&f, "POST", "/flush_cache", "", 200));
    /* A query that cannot be read is not one that names nothing, which empties all of memory. */
    json_decref(ask(&f, "POST", "/flush_cache?tiers", "", 400));
    json_decref(ask(&f, "POST", "/flush_cache?tiers=host&=1", "", 400));
    CHECK(num_flushes(&f) == 1);
    int fd = run_silent(&f);
    json_decref(ask(&f, "POST", "/flush_cache?timeout=0.05", "", 400));
    int waiting = dial(&f);
    send_request(waiting, "POST", "/flush_cache?timeout=60", "", 0);
    json_decref(ask(&f, "GET", "/server_info", "", 200)); /* does not wait for the flush */
    close(fd);
    free(read_reply(waiting, &status));
    CHECK(status == 200);
    json_decref(ask(&f, "POST", "/flush_cache?timeout=60", "", 200));
    stop(&f);
}

/* What a store takes its time for is answered in time all the same, and nobody else waits. */
TEST(a_slow_store_is_a_504_and_the_next_change_a_409)
{
    static const char path[] = "/hicache/storage-backend";
    struct fixture f;
    start(&f, 0);
    json_decref(ask(&f, "POST", "/flush_cache?tiers=storage", "", 400)); /* there is none */
    json_decref(ask(&f, "PUT", path, "{\"hicache_storage_backend\":\"bad\"}", 400));
    json_decref(ask(&f, "PUT", path, "{\"hicache_storage_backend\":\"slow\"}", 200));
    json_t *json = ask(&f, "GET", path, "", 200);
    CHECK(json_is_true(json_object_get(json, "attached")) && number(json, "pages") == 5);
    CHECK(!json_object_get(json, "under_way"));
    json_decref(json);
    json = ask(&f, "POST", "/flush_cache?tiers=storage,host", "", 504);
    const char *words = text_of(json_object_get(json, "error"), "message");
    CHECKF(strstr(words, "still at it (clear)") != NULL, "%s", words);
    json_decref(json);
    json_decref(ask(&f, "DELETE", path, "", 409));
    json_decref(ask(&f, "POST", "/flush_cache?tiers=storage", "", 409));
    json_decref(ask(&f, "POST", "/flush_cache?tiers=device", "", 200));
    int fd = dial(&f), status;
    send_request(fd, "GET", path, "", 0); /* gives up on fresh figures after a while */
    json_decref(ask(&f, "GET", "/server_info", "", 200));
    char *text = read_reply(fd, &status);
    CHECKF(status == 200 && strstr(text, "\"under_way\":\"clear\"") != NULL, "%s", text);
    free(text);
    pthread_mutex_lock(&f.engine->lock);
    f.engine->store_go = true;
    f.engine->store_busy = 0;
    pthread_mutex_unlock(&f.engine->lock);
    json_decref(ask(&f, "POST", "/flush_cache?tiers=storage", "", 200));
    json_decref(ask(&f, "DELETE", path, "", 200));
    json_decref(ask(&f, "DELETE", path, "", 200)); /* none is as it should be */
    stop(&f);
}

/* ---- what one turn of the loop may do ---- */

static char *many(const char *head, const char *item, size_t count, const char *tail)
{
    char *out = malloc(strlen(head) + count * (strlen(item) + 1) + strlen(tail) + 1), *at = out;
    CHECK(out != NULL);
    at = stpcpy(at, head);
    for (size_t i = 0; i < count; i++)
        at += sprintf(at, "%s%s", i ? "," : "", item);
    strcpy(at, tail);
    return out;
}

/* Values are counted where they are read and written: bodies and answers of hundreds of thousands,
 * or many small ones at once, are a worker's, and the answers are what they would have been. */
TEST(no_turn_of_the_loop_does_much)
{
    enum { AT_ONCE = 40 };
    struct fixture f;
    int status, fds[AT_ONCE];
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/v1/completions",
                       "{\"prompt\":\"burst\",\"n\":128,\"logprobs\":20,\"max_tokens\":60}", 200);
    CHECK(json_array_size(json_object_get(json, "choices")) == 128);
    for (size_t i = 0; i < 128; i++) {
        const json_t *choice = choice_of(json, i), *logprobs = json_object_get(choice, "logprobs");
        CHECK((size_t)number(choice, "index") == i);
        CHECK(json_array_size(json_object_get(logprobs, "top_logprobs")) == 60);
    }
    CHECK(number(json_object_get(json, "usage"), "completion_tokens") == 128 * 60);
    json_decref(json);

    char *text = ask_raw(&f, "POST", "/generate",
                         "{\"text\":\"burst\",\"return_logprob\":true,\"top_logprobs_num\":20,"
                         "\"stream\":true,\"sampling_params\":{\"n\":64,\"max_new_tokens\":100}}",
                         &status);
    CHECKF(status == 200 && count_events(text) == 65, "%d events", count_events(text));
    json = event_at(text, 63);
    CHECK(json_array_size(json_object_get(json, "output_ids")) == 100);
    CHECK(json_array_size(
              json_object_get(json_object_get(json, "meta_info"), "output_top_logprobs")) == 100);
    json_decref(json);
    CHECK(strstr(text, "data: [DONE]\n\n") != NULL);
    free(text);

    text = many("{\"prompt\":[", "1", 300000, "],\"max_tokens\":2}");
    json_decref(ask(&f, "POST", "/v1/completions", text, 200));
    free(text);
    text = many("{\"prompt\":[", "[1]", 1024, "],\"max_tokens\":1}");
    json = ask(&f, "POST", "/v1/completions", text, 200);
    CHECK(json_array_size(json_object_get(json, "choices")) == 1024);
    json_decref(json);
    free(text);

    text = many("{\"prompt\":[", "1", 12000, "],\"max_tokens\":2}");
    for (int i = 0; i < AT_ONCE; i++) {
        fds[i] = dial(&f);
        send_request(fds[i], "POST", "/v1/completions", text, strlen(text));
    }
    free(text);
    for (int i = 0; i < AT_ONCE; i++) {
        text = read_reply(fds[i], &status);
        CHECKF(status == 200, "%d %s", status, text);
        free(text);
    }
    server_stop(f.server);
    pthread_join(f.thread, NULL);
    uint64_t most = server_most_per_turn(f.server);
    CHECKF(most > 1000 && most <= SERVER_TURN_UNITS + 100, "%llu", (unsigned long long)most);
    server_destroy(f.server);
    engine_destroy(f.engine);
}

/* A client that leaves while a worker has its request, or its answer, takes nothing with it. */
TEST(a_client_may_leave_while_a_worker_is_at_it)
{
    memory_budget budget = {.limit = 64 << 20};
    struct fixture f;
    uint64_t seed = test_told_seed();
    start_with(&f, (server_params){.max_body_bytes = 1 << 20, .request_memory = &budget});
    char *ids = many("{\"prompt\":[", "1", 200000, "],\"max_tokens\":2}");
    static const char *const bodies[] = {
        "{\"prompt\":\"burst\",\"n\":128,\"logprobs\":20,\"max_tokens\":40}",
        "{\"prompt\":\"burst\",\"n\":64,\"logprobs\":20,\"max_tokens\":40,\"stream\":true}",
        "{\"prompt\":\"a\",\"n\":64,\"logprobs\":20,\"max_tokens\":40,\"stream\":true}"};
    for (int i = 0; i < 40; i++) {
        const char *body = i % 4 ? bodies[i % 4 - 1] : ids;
        int fd = dial(&f);
        send_request(fd, "POST", "/v1/completions", body, strlen(body));
        usleep((useconds_t)(test_random(&seed) % 20000));
        close(fd);
    }
    free(ids);
    json_decref(ask(&f, "POST", "/v1/completions", "{\"prompt\":\"a\"}", 200));
    stop(&f); /* returns when all calls are gone */
    CHECKF(budget.used == 0, "%llu bytes", (unsigned long long)budget.used);
}

/* What answers gather counts too: past the budget a request fails in words, others go on. */
TEST(answers_that_outgrow_the_budget_are_an_error)
{
    memory_budget budget = {.limit = 3 << 20};
    struct fixture f;
    start_with(&f, (server_params){.max_body_bytes = 1 << 20, .request_memory = &budget});
    json_t *json = ask(&f, "POST", "/v1/completions",
                       "{\"prompt\":\"burst\",\"n\":128,\"logprobs\":20,\"max_tokens\":400}", 503);
    CHECKF(strstr(error_message(json), "memory"), "%s", error_message(json));
    json_decref(json);
    char *ids = many("{\"prompt\":[", "1", 100000, "]}");
    json = ask(&f, "POST", "/v1/completions", ids, 413);
    CHECKF(strstr(error_message(json), "3145728"), "%s", error_message(json));
    json_decref(json);
    free(ids);
    json_decref(ask(&f, "POST", "/v1/completions", "{\"prompt\":\"a\"}", 200));
    stop(&f);
    CHECKF(budget.used == 0, "%llu bytes", (unsigned long long)budget.used);
}

enum { WAITERS = 100 };

/* All flushes from number n on wait, until another number is given; 0: none waits. */
static void let_flushes_go(const struct fixture *f, uint32_t n)
{
    pthread_mutex_lock(&f->engine->lock);
    f->engine->flushes_let_go = n;
    pthread_mutex_unlock(&f->engine->lock);
}

/* Many calls that wait for a flush behind a request that runs, whose connection is returned: the
 * fourth time that they try hangs. */
static int hang_flushes(struct fixture *f, int fds[WAITERS])
{
    int busy = run_silent(f);
    let_flushes_go(f, 3);
    for (int i = 0; i < WAITERS; i++) {
        fds[i] = dial(f);
        send_request(fds[i], "POST", "/flush_cache?timeout=60", "", 0);
    }
    AWAIT(num_flushes(f) == 4);
    return busy;
}

/* Who waits for a flush does not stand before figures; and what one flush did counts for all who
 * asked before it, so many of them cost as many questions to the scheduler as one. */
TEST(those_who_wait_for_a_flush_hold_up_nobody)
{
    struct fixture f;
    int status, fds[WAITERS];
    start(&f, 0);
    int busy = hang_flushes(&f, fds);
    for (int i = 0; i < 20; i++) {
        json_decref(ask(&f, "GET", "/server_info", "", 200));
        free(ask_raw(&f, "GET", "/metrics", "", &status));
        CHECK(status == 200);
    }
    CHECK(num_flushes(&f) == 4);
    close(busy);
    AWAIT(running(&f) == 0);
    let_flushes_go(&f, 0);
    for (int i = 0; i < WAITERS; i++) {
        char *text = read_reply(fds[i], &status);
        CHECKF(status == 200, "%d: %d %s", i, status, text);
        free(text);
    }
    CHECKF(num_flushes(&f) < WAITERS, "%u flushes for %d waiters", num_flushes(&f), WAITERS);
    stop(&f);
}

/* When a stop is in a hurry, what waits is answered without asking the engine once more each. */
TEST(a_stop_does_not_try_for_those_who_wait)
{
    struct fixture f;
    int status, fds[WAITERS];
    start(&f, 0);
    int busy = hang_flushes(&f, fds);
    server_stop(f.server);
    char *text = read_reply(busy, &status); /* it is aborted when the stop is in a hurry */
    CHECKF(status == 200 && strstr(text, "\"abort\"") != NULL, "%s", text);
    free(text);
    let_flushes_go(&f, 0);
    for (int i = 0; i < WAITERS; i++) {
        text = read_reply(fds[i], &status);
        CHECKF(status == 400 || status == 503 || status == 200, "%d: %d %s", i, status, text);
        free(text);
    }
    CHECKF(num_flushes(&f) == 4, "%u flushes", num_flushes(&f));
    stop(&f);
}

TEST(a_stop_ends_running_requests)
{
    struct fixture f;
    int status;
    start(&f, 0);
    int fd = run_silent(&f);
    stop(&f);
    char *text = read_reply(fd, &status);
    CHECKF(status == 200 && strstr(text, "\"abort\"") != NULL, "%s", text);
    free(text);
}

static bool held(const struct fixture *f)
{
    pthread_mutex_lock(&f->engine->lock);
    bool is = f->engine->held;
    pthread_mutex_unlock(&f->engine->lock);
    return is;
}

static void hold_info(const struct fixture *f, bool hold)
{
    pthread_mutex_lock(&f->engine->lock);
    f->engine->hold_info = hold;
    pthread_mutex_unlock(&f->engine->lock);
}

/* What a stop cannot abort, because a worker is writing what it said so far, it aborts later. */
TEST(a_stop_ends_a_stream_that_is_being_written)
{
    struct fixture f;
    int status;
    start(&f, 0);
    int other = run_silent(&f), fd = dial(&f);
    const char *half = "{\"text\":[\"burst\",\"silent\"],\"stream\":true,\"return_logprob\":true,"
                       "\"top_logprobs_num\":20,\"sampling_params\":{\"max_new_tokens\":400}}";
    hold_info(&f, true);
    send_request(fd, "POST", "/generate", half, strlen(half));
    AWAIT(held(&f)); /* the worker has the stream; its second prompt would go on for ever */
    server_stop(f.server);
    char *text = read_reply(other, &status); /* all that can be aborted has been */
    CHECKF(status == 200 && strstr(text, "\"abort\"") != NULL, "%s", text);
    free(text);
    CHECK(held(&f));
    hold_info(&f, false);
    text = read_reply(fd, &status);
    CHECKF(status == 200 && strstr(text, "\"abort\"") && strstr(text, "[DONE]"), "%zu bytes",
           strlen(text));
    free(text);
    stop(&f);
}

TEST(a_stop_lets_what_runs_finish)
{
    struct fixture f;
    int status;
    start_with(&f, (server_params){.drain_ms = 60000});
    int fd = dial(&f);
    const char *body = "{\"prompt\":\"slow\",\"max_tokens\":4}";
    send_request(fd, "POST", "/v1/completions", body, strlen(body));
    until_running(&f, fd);
    stop(&f);
    char *text = read_reply(fd, &status);
    CHECKF(status == 200 && strstr(text, "t3 ") != NULL, "%s", text);
    free(text);
}

/* Whoever comes while a stop waits for others is told so at once: refused, or 503 on a
 * connection from before. */
TEST(a_stopping_server_takes_no_new_requests)
{
    struct fixture f;
    int status;
    start_with(&f, (server_params){.drain_ms = 60000});
    int old = dial(&f);
    static const char health[] = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
    char first[4096]; /* `old` is accepted, and its first answer read */
    size_t len = 0;
    send_all(old, health, sizeof health - 1);
    for (first[0] = 0; !strchr(first, '}'); first[len] = 0) {
        ssize_t n = recv_some(old, first + len, sizeof first - 1 - len);
        CHECK(n > 0);
        len += (size_t)n;
    }
    int fd = run_silent(&f);
    server_stop(f.server);

    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(server_port(f.server)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    bool refused = false;
    for (int wait = 0; !refused && wait < MOST_WAIT_MS;
         wait++) { /* the stop is seen by another thread */
        int late = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(late >= 0);
        bool failed = connect(late, (struct sockaddr *)&address, sizeof address) != 0;
        refused = failed && errno == ECONNREFUSED;
        /* One that comes in the very moment of closing is reset; the next is refused. */
        CHECKF(!failed || refused || errno == ECONNRESET, "%s", strerror(errno));
        close(late);
        usleep(1000);
    }
    CHECK(refused && running(&f));
    send_request(old, "GET", "/health", "", 0);
    char *text = read_reply(old, &status);
    CHECKF(status == 503 && strstr(text, "stopping") != NULL, "%d %s", status, text);
    free(text);
    stop(&f);
    text = read_reply(fd, &status);
    CHECKF(status == 200 && strstr(text, "\"abort\"") != NULL, "%s", text);
    free(text);
}

/* Streams that nobody reads used to keep a stopping server until the write timeout, however
 * often it was asked: what was held back for the reader had nobody to go on with it. Here that
 * timeout is longer than any test may take. */
TEST(a_stop_does_not_wait_for_a_client_that_does_not_read)
{
    struct fixture f;
    char body[1 << 15];
    size_t len = (size_t)snprintf(body, sizeof body, "{\"stream\":true,\"input_ids\":[");
    for (int i = 0; i < 64; i++)
        len += (size_t)snprintf(body + len, sizeof body - len, "%s[%d]", i ? "," : "", i + 1);
    len += (size_t)snprintf(body + len, sizeof body - len,
                            "],\"sampling_params\":{\"max_new_tokens\":2000}}");
    start_with(&f, (server_params){.drain_ms = 500, .send_timeout_ms = 6 * 3600 * 1000});
    int small = 2048, fd = dial(&f);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    send_request(fd, "POST", "/generate", body, len);
    for (bool all = false; !all;) { /* until what 64 requests said waits for the client */
        usleep(20000);
        json_t *info = ask(&f, "GET", "/server_info", "", 200);
        json_t *figures = json_array_get(json_object_get(info, "internal_states"), 0);
        all = number(figures, "num_requests") == 64 && !number(figures, "num_running_reqs");
        json_decref(info);
    }

    stop(&f);
    close(fd);
}

/* libevent sends the body of an answer to HEAD; on a connection that stays open it would be
 * the beginning of the next answer. */
TEST(head_gets_no_body)
{
    static const char *const paths[] = {"/v1/models", "/server_info", "/metrics", "/nothing"};
    struct fixture f;
    start(&f, 0);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        int status;
        char *body = ask_raw(&f, "HEAD", paths[i], "", &status);
        CHECKF(status == (i < 3 ? 200 : 404) && !*body, "%s: %d %s", paths[i], status, body);
        free(body);
    }
    stop(&f);
}

TEST(an_address_in_use_is_an_error_in_words)
{
    struct fixture f;
    start(&f, 0);
    server *other;
    rad_error err;
    server_params params = {.port = server_port(f.server)};
    CHECK(server_create(NULL, f.engine, &params, &other, &err) == RAD_E_IO && !other);
    CHECK(strstr(err.text, "cannot listen") != NULL);
    CHECKF(strstr(err.text, "in use; try --port 0") != NULL, "%s", err.text);
    params = (server_params){.host = "not an address"};
    CHECK(server_create(NULL, f.engine, &params, &other, &err) == RAD_E_INVAL);
    stop(&f);
}

/* Whatever has become of it: no answer yet, a stream that is silent, one that goes on. Each dialect
 * has its words. */
TEST(a_request_that_takes_too_long_ends_with_an_error)
{
    static const struct {
        const char *path, *body, *want, *also;
    } cases[] = {
        {"/v1/completions", "{\"prompt\":\"silent\"}", "HTTP/1.1 504 ", "x-should-retry: false"},
        {"/v1/completions", "{\"prompt\":[\"a\",\"silent\"],\"stream\":true,\"max_tokens\":2}",
         " 200 OK", "data: {\"error\":{\"message\":\"the request took longer"},
        {"/v1/completions", "{\"prompt\":\"slow\",\"max_tokens\":500,\"stream\":true}", "t1 ",
         "timeout_error"},
        {"/generate", "{\"text\":\"silent\",\"stream\":true}", "HTTP/1.1 504 ",
         "--request-timeout"},
    };
    struct fixture f;
    engine_stats stats = {0};
    int fds[4];
    start_with(&f, (server_params){.answer_timeout_ms = 150});
    for (int i = 0; i < 4; i++) {
        fds[i] = dial(&f);
        send_request(fds[i], "POST", cases[i].path, cases[i].body, strlen(cases[i].body));
    }
    for (int i = 0; i < 4; i++) {
        const char *reply = hear(fds[i]);
        CHECKF(strstr(reply, cases[i].want) && strstr(reply, cases[i].also), "%d: %s\n", i, reply);
        close(fds[i]);
    }
    json_t *quick = ask(&f, "POST", "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":3}", 200);
    json_decref(quick);
    for (int wait = 0; stats.requests.num_aborted < 4 && wait < 20000; wait++) {
        usleep(1000);
        engine_get_stats(f.engine, &stats);
    }
    CHECKF(stats.requests.num_aborted == 4, "%llu aborted\n",
           (unsigned long long)stats.requests.num_aborted);
    stop(&f);
}

TEST_MAIN()
