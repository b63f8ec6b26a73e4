/* test_server.c - HTTP in, events out: the server against a scripted engine.
 *
 * Every test starts a server on a free port of 127.0.0.1 with an engine that has no model
 * (fake_engine.h) and talks to it over plain sockets, so that what is tested is what a
 * client sees. Every test ends with a stop, which returns only when nothing is left over. */
#include "test.h"

#include "fake_engine.h"
#include "server/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

__attribute__((constructor)) static void limit_buffers(void)
{
    server_limit_buffers(64 << 20);
}

struct fixture {
    engine *engine;
    server *server;
    pthread_t thread;
    rad_status result;
};

static void *run_server(void *arg)
{
    struct fixture *f = arg;
    f->result = server_run(f->server, false, NULL);
    return NULL;
}

static void start(struct fixture *f, uint32_t ping_ms)
{
    server_params params = {.max_body_bytes = 1 << 20, .ping_ms = ping_ms, .drain_ms = 500};
    signal(SIGPIPE, SIG_IGN); /* a client of ours may write to a closed connection */
    CHECK_OK(engine_create(NULL, NULL, &f->engine, NULL));
    CHECK_OK(server_create(NULL, f->engine, &params, &f->server, NULL));
    CHECK(server_port(f->server) != 0);
    CHECK(pthread_create(&f->thread, NULL, run_server, f) == 0);
}

static void stop(struct fixture *f)
{
    server_stop(f->server);
    pthread_join(f->thread, NULL);
    CHECK_OK(f->result);
    server_destroy(f->server);
    engine_destroy(f->engine);
}

/* ---- a client ---- */

static int dial(const struct fixture *f)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(server_port(f->server)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval patience = {.tv_sec = 20};
    CHECK(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

static void send_all(int fd, const char *bytes, size_t len)
{
    while (len) {
        ssize_t n = write(fd, bytes, len);
        if (n <= 0) return; /* the server has hung up; its answer is still to be read */
        bytes += n;
        len -= (size_t)n;
    }
}

static void send_request(int fd, const char *method, const char *path, const char *body, size_t len)
{
    char head[512];
    int n = snprintf(head, sizeof head,
                     "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                     "Content-Length: %zu\r\n\r\n",
                     method, path, len);
    send_all(fd, head, (size_t)n);
    send_all(fd, body, len);
}

/* Reads to the end; the caller frees. Undoes chunked encoding; *status gets the code. */
static char *read_reply(int fd, int *status)
{
    size_t cap = 64 << 20, len = 0;
    char *raw = malloc(cap + 1);
    CHECK(raw != NULL);
    for (ssize_t n; len < cap && (n = read(fd, raw + len, cap - len)) > 0;)
        len += (size_t)n;
    raw[len] = 0;
    close(fd);
    *status = 0;
    sscanf(raw, "HTTP/1.%*d %d", status);
    char *body = strstr(raw, "\r\n\r\n");
    if (!body) {
        raw[0] = 0;
        return raw;
    }
    bool chunked = false;
    char *field = strstr(raw, "Transfer-Encoding: chunked");
    if (field && field < body) chunked = true;
    body += 4;
    char *out = raw;
    if (!chunked) {
        memmove(out, body, len - (size_t)(body - raw) + 1);
        return raw;
    }
    for (;;) {
        char *end;
        unsigned long n = strtoul(body, &end, 16);
        if (end == body || !n) break;
        body = end + 2;
        if (n > len - (size_t)(body - raw)) break;
        memmove(out, body, n);
        out += n;
        body += n + 2;
    }
    *out = 0;
    return raw;
}

static char *ask_raw(const struct fixture *f, const char *method, const char *path,
                     const char *body, int *status)
{
    int fd = dial(f);
    send_request(fd, method, path, body, strlen(body));
    return read_reply(fd, status);
}

static json_t *ask(const struct fixture *f, const char *method, const char *path, const char *body,
                   int want_status)
{
    int status;
    char *text = ask_raw(f, method, path, body, &status);
    CHECKF(status == want_status, "%s %s: status %d: %s", path, body, status, text);
    json_t *json = json_loads(text, 0, NULL);
    CHECKF(json != NULL, "not JSON: %s", text);
    free(text);
    return json;
}

static const char *error_message(const json_t *json)
{
    const char *text =
        json_string_value(json_object_get(json_object_get(json, "error"), "message"));
    CHECK(text != NULL);
    return text;
}

/* The n-th "data:" line as JSON, or NULL when there are fewer (or it is [DONE]). */
static json_t *event_at(const char *stream, int n)
{
    const char *at = stream;
    while ((at = strstr(at, "data: ")) != NULL) {
        at += 6;
        if (n-- == 0) return json_loads(at, JSON_DISABLE_EOF_CHECK, NULL);
    }
    return NULL;
}

static int count_events(const char *stream)
{
    int n = 0;
    while ((stream = strstr(stream, "data: ")) != NULL) {
        n++;
        stream += 6;
    }
    return n;
}

static json_int_t number(const json_t *json, const char *key)
{
    json_t *value = json_object_get(json, key);
    CHECKF(json_is_integer(value), "no number '%s'", key);
    return json_integer_value(value);
}

static const char *text_of(const json_t *json, const char *key)
{
    const char *value = json_string_value(json_object_get(json, key));
    CHECKF(value != NULL, "no text '%s'", key);
    return value;
}

static json_t *choice_of(const json_t *json, size_t i)
{
    return json_array_get(json_object_get(json, "choices"), i);
}

static json_int_t cached_of(const json_t *json)
{
    json_t *usage = json_object_get(json, "usage");
    return number(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
}

/* ---- completions ---- */

TEST(a_completion_carries_text_ids_and_usage)
{
    struct fixture f;
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/v1/completions",
                       "{\"prompt\":[1,2,3],\"max_tokens\":3,\"temperature\":0,\"seed\":5,"
                       "\"return_token_ids\":true,\"extra_key\":\"k\",\"cache_salt\":\"s\"}",
                       200);
    CHECK(strcmp(text_of(choice_of(json, 0), "text"), "t0 t1 t2 ") == 0);
    CHECK(strcmp(text_of(choice_of(json, 0), "finish_reason"), "length") == 0);
    CHECK(strcmp(text_of(json, "object"), "text_completion") == 0);
    CHECK(strcmp(text_of(json, "model"), "fake \"model\"") == 0);
    json_t *ids = json_object_get(choice_of(json, 0), "token_ids");
    CHECK(json_array_size(ids) == 3 && json_integer_value(json_array_get(ids, 2)) == 102);
    CHECK(number(json_object_get(json, "usage"), "prompt_tokens") == 3);
    CHECK(number(json_object_get(json, "usage"), "total_tokens") == 6);
    CHECK(cached_of(json) == FAKE_CACHED);
    CHECK(f.engine->last.sampling.temperature == 0 && f.engine->last.sampling.seed == 5);
    CHECK(f.engine->last.has_seed && f.engine->last.sampling.top_p == 1);
    CHECK(strcmp(f.engine->last_words, "k|s") == 0);
    json_decref(json);
    stop(&f);
}

TEST(defaults_are_openais)
{
    struct fixture f;
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/v1/completions", "{\"prompt\":\"hello\"}", 200);
    CHECK(number(json_object_get(json, "usage"), "completion_tokens") == 16);
    CHECK(json_object_get(choice_of(json, 0), "token_ids") == NULL);
    CHECK(f.engine->last.sampling.temperature == 1 && !f.engine->last.has_seed);
    json_decref(json);
    stop(&f);
}

TEST(a_batch_answers_by_index_and_sums_its_usage)
{
    struct fixture f;
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/v1/completions",
                       "{\"prompt\":[\"ab\",\"slow\",\"abcdef\"],\"max_tokens\":2}", 200);
    CHECK(json_array_size(json_object_get(json, "choices")) == 3);
    for (size_t i = 0; i < 3; i++)
        CHECK(number(choice_of(json, i), "index") == (json_int_t)i);
    CHECK(number(json_object_get(json, "usage"), "prompt_tokens") == 12);
    CHECK(number(json_object_get(json, "usage"), "completion_tokens") == 6);
    CHECK(cached_of(json) == 3 * FAKE_CACHED);
    json_decref(json);
    json = ask(&f, "POST", "/v1/completions", "{\"prompt\":[[1],[2,3]],\"max_tokens\":1}", 200);
    CHECK(json_array_size(json_object_get(json, "choices")) == 2);
    json_decref(json);
    stop(&f);
}

TEST(a_stream_adds_up_and_ends_with_usage_when_asked)
{
    struct fixture f;
    int status;
    start(&f, 0);
    char *text = ask_raw(&f, "POST", "/v1/completions",
                         "{\"prompt\":[1,2],\"max_tokens\":40,\"stream\":true,"
                         "\"return_token_ids\":true,\"stream_options\":{\"include_usage\":true}}",
                         &status);
    CHECK(status == 200);
    char all[1024] = "";
    size_t ids = 0;
    int n = count_events(text), finishes = 0;
    for (int i = 0; i < n - 2; i++) {
        json_t *json = event_at(text, i);
        CHECK(json_is_null(json_object_get(json, "usage")));
        strcat(all, text_of(choice_of(json, 0), "text"));
        ids += json_array_size(json_object_get(choice_of(json, 0), "token_ids"));
        finishes += json_is_string(json_object_get(choice_of(json, 0), "finish_reason"));
        json_decref(json);
    }
    CHECK(ids == 40 && finishes == 1);
    CHECK(strncmp(all, "t0 t1 t2 ", 9) == 0 && strcmp(all + strlen(all) - 4, "t39 ") == 0);
    json_t *usage = event_at(text, n - 2);
    CHECK(json_array_size(json_object_get(usage, "choices")) == 0);
    CHECK(cached_of(usage) == FAKE_CACHED);
    CHECK(number(json_object_get(usage, "usage"), "completion_tokens") == 40);
    CHECK(strcmp(text + strlen(text) - 14, "data: [DONE]\n\n") == 0);
    json_decref(usage);
    free(text);

    text = ask_raw(&f, "POST", "/v1/completions", "{\"prompt\":\"a\",\"stream\":true}", &status);
    CHECK(status == 200 && strstr(text, "usage") == NULL && strstr(text, "[DONE]") != NULL);
    free(text);
    stop(&f);
}

TEST(a_stop_string_says_so)
{
    struct fixture f;
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/v1/completions", "{\"prompt\":\"a\",\"stop\":[\"END\"]}", 200);
    CHECK(strcmp(text_of(choice_of(json, 0), "finish_reason"), "stop") == 0);
    CHECK(strcmp(text_of(choice_of(json, 0), "stop_reason"), "END") == 0);
    json_decref(json);
    stop(&f);
}

/* ---- chat ---- */

TEST(chat_takes_parts_and_streams_the_role_first)
{
    struct fixture f;
    int status;
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/v1/chat/completions",
                       "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
                       "\"text\":\"ab\"},{\"type\":\"text\",\"text\":\"cd\"}]}],"
                       "\"max_completion_tokens\":2}",
                       200);
    CHECK(strcmp(f.engine->last_words, "user:abcd") == 0);
    json_t *message = json_object_get(choice_of(json, 0), "message");
    CHECK(strcmp(text_of(message, "content"), "t0 t1 ") == 0);
    CHECK(strcmp(text_of(message, "role"), "assistant") == 0);
    CHECK(cached_of(json) == FAKE_CACHED);
    json_decref(json);

    char *text = ask_raw(&f, "POST", "/v1/chat/completions",
                         "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true}",
                         &status);
    json = event_at(text, 0);
    CHECK(strcmp(text_of(json_object_get(choice_of(json, 0), "delta"), "role"), "assistant") == 0);
    CHECK(strcmp(text_of(json, "object"), "chat.completion.chunk") == 0);
    json_decref(json);
    char all[1024] = "";
    for (int i = 0; i < count_events(text) - 1; i++) {
        json = event_at(text, i);
        const char *piece = json_string_value(
            json_object_get(json_object_get(choice_of(json, 0), "delta"), "content"));
        if (piece) strcat(all, piece);
        json_decref(json);
    }
    CHECK(strcmp(all + strlen(all) - 8, "t28 t29 ") == 0 && strncmp(all, "t0 t1 ", 6) == 0);
    free(text);
    stop(&f);
}

/* Choices lie prompt by prompt; a prompt counts once, however many answers it gets. */
TEST(n_gives_choices_with_their_index_in_every_dialect)
{
    struct fixture f;
    int status;
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/v1/completions",
                       "{\"prompt\":[\"a\",\"bcd\"],\"n\":3,\"max_tokens\":2}", 200);
    CHECK(json_array_size(json_object_get(json, "choices")) == 6);
    for (int i = 0; i < 6; i++)
        CHECK(number(choice_of(json, i), "index") == i);
    json_t *usage = json_object_get(json, "usage");
    CHECK(number(usage, "prompt_tokens") == 1 + 3 && number(usage, "completion_tokens") == 12);
    CHECK(cached_of(json) == 2 * FAKE_CACHED);
    json_decref(json);

    const char *chat = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"n\":2,"
                       "\"max_tokens\":3%s}";
    char body[200];
    snprintf(body, sizeof body, chat, "");
    json = ask(&f, "POST", "/v1/chat/completions", body, 200);
    CHECK(json_array_size(json_object_get(json, "choices")) == 2);
    json_t *second = json_object_get(choice_of(json, 1), "message");
    CHECK(number(choice_of(json, 1), "index") == 1);
    CHECK(strcmp(text_of(second, "content"), "t0 t1 t2 ") == 0);
    CHECK(number(json_object_get(json, "usage"), "prompt_tokens") == 20);
    json_decref(json);

    snprintf(body, sizeof body, chat, ",\"stream\":true");
    char *text = ask_raw(&f, "POST", "/v1/chat/completions", body, &status);
    int roles[2] = {0}, ends[2] = {0};
    for (int i = 0; i < count_events(text) - 1; i++) {
        json = event_at(text, i);
        int index = (int)number(choice_of(json, 0), "index");
        CHECK(index == 0 || index == 1);
        roles[index] += json_object_get(json_object_get(choice_of(json, 0), "delta"), "role") != 0;
        ends[index] += json_is_string(json_object_get(choice_of(json, 0), "finish_reason"));
        json_decref(json);
    }
    CHECK(roles[0] == 1 && roles[1] == 1 && ends[0] == 1 && ends[1] == 1);
    free(text);

    json = ask(&f, "POST", "/generate",
               "{\"text\":\"a\",\"sampling_params\":{\"n\":2,\"max_new_tokens\":1}}", 200);
    CHECK(json_array_size(json) == 2 && number(json_array_get(json, 1), "index") == 1);
    json_decref(json);

    /* One of them fails: the call does, and names the prompt, not the choice. */
    json = ask(&f, "POST", "/v1/completions", "{\"prompt\":[\"a\",\"error\"],\"n\":2}", 400);
    CHECKF(strstr(error_message(json), "prompt 1: ") != NULL, "%s", error_message(json));
    json_decref(json);
    json = ask(&f, "POST", "/v1/completions", "{\"prompt\":\"error\",\"n\":2}", 400);
    CHECKF(strstr(error_message(json), "prompt 0") == NULL, "%s", error_message(json));
    json_decref(json);
    stop(&f);
}

/* What current OpenAI clients call the system message. */
TEST(a_developer_message_is_a_system_message)
{
    struct fixture f;
    start(&f, 0);
    json_decref(ask(&f, "POST", "/v1/chat/completions",
                    "{\"messages\":[{\"role\":\"developer\",\"content\":\"be brief\"},"
                    "{\"role\":\"user\",\"content\":\"hi\"}]}",
                    200));
    CHECKF(strcmp(f.engine->last_words, "system:be brief") == 0, "%s", f.engine->last_words);
    stop(&f);
}

/* ---- generate ---- */

TEST(generate_answers_in_sglangs_form)
{
    struct fixture f;
    int status;
    start(&f, 0);
    json_t *json = ask(&f, "POST", "/generate",
                       "{\"input_ids\":[5,6,7],\"sampling_params\":{\"max_new_tokens\":2}}", 200);
    json_t *meta = json_object_get(json, "meta_info");
    CHECK(strcmp(text_of(json, "text"), "t0 t1 ") == 0);
    CHECK(json_array_size(json_object_get(json, "output_ids")) == 2);
    CHECK(number(meta, "prompt_tokens") == 3 && number(meta, "cached_tokens") == FAKE_CACHED);
    CHECK(strcmp(text_of(json_object_get(meta, "finish_reason"), "type"), "length") == 0);
    CHECK(number(json_object_get(meta, "finish_reason"), "length") == 2);
    CHECK(json_real_value(json_object_get(meta, "e2e_latency")) == 0.5);
    json_decref(json);

    json = ask(&f, "POST", "/generate",
               "{\"text\":[\"a\",\"b\"],\"sampling_params\":[{\"max_new_tokens\":1},"
               "{\"max_new_tokens\":3,\"stop_token_ids\":[9]}]}",
               200);
    CHECK(json_array_size(json) == 2);
    json_t *reason =
        json_object_get(json_object_get(json_array_get(json, 1), "meta_info"), "finish_reason");
    CHECK(number(reason, "matched") == 9);
    json_decref(json);

    char *text = ask_raw(&f, "POST", "/generate", "{\"text\":\"a\",\"stream\":true}", &status);
    int n = count_events(text);
    size_t before = 0;
    for (int i = 0; i < n - 1; i++) {
        json = event_at(text, i);
        size_t ids = json_array_size(json_object_get(json, "output_ids"));
        CHECK(ids > before || i == n - 2);
        before = ids;
        if (i == n - 2) CHECK(ids == 128 && strncmp(text_of(json, "text"), "t0 t1", 5) == 0);
        json_decref(json);
    }
    CHECK(strstr(text, "data: [DONE]\n\n") != NULL);
    free(text);
    stop(&f);
}

/* ---- errors ---- */

TEST(bad_requests_get_words)
{
    static const struct {
        const char *path, *body;
        int status;
        const char *words;
    } cases[] = {
        {"/v1/completions", "", 400, "empty"},
        {"/v1/completions", "{", 400, "line 1"},
        {"/v1/completions", "[]", 400, "object"},
        {"/v1/completions", "{\"prompt\":\"\xff\"}", 400, "byte"},
        {"/v1/completions", "{\"prompt\":\"a\",\"prompt\":\"b\"}", 400, "duplicate"},
        {"/v1/completions", "{\"prompt\":\"a\"} x", 400, "end of file"},
        {"/v1/completions", "{}", 400, "prompt"},
        {"/v1/completions", "{\"prompt\":[]}", 400, "empty"},
        {"/v1/completions", "{\"prompt\":[[]]}", 400, "empty"},
        {"/v1/completions", "{\"prompt\":[1,\"a\"]}", 400, "token 1"},
        {"/v1/completions", "{\"prompt\":[-1]}", 400, "-1"},
        {"/v1/completions", "{\"prompt\":[99999999999]}", 400, "token 0"},
        {"/v1/completions", "{\"prompt\":{}}", 400, "prompt"},
        {"/v1/completions", "{\"prompt\":\"a\",\"n\":-1}", 400, "between 1"},
        {"/v1/completions", "{\"prompt\":\"a\",\"n\":129}", 400, "between 1"},
        {"/v1/completions", "{\"prompt\":\"a\",\"best_of\":2}", 400, "best_of"},
        {"/v1/completions", "{\"prompt\":\"a\",\"echo\":true}", 400, "echo"},
        {"/v1/completions", "{\"prompt\":\"a\",\"logprobs\":21}", 400, "logprobs"},
        {"/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":-2}", 400, "max_tokens"},
        {"/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1.5}", 400, "integer"},
        {"/v1/completions", "{\"prompt\":\"a\",\"temperature\":\"hot\"}", 400, "temperature"},
        {"/v1/completions", "{\"prompt\":\"a\",\"stop\":[\"\"]}", 400, "stop"},
        {"/v1/completions", "{\"prompt\":\"a\",\"cache_salt\":\"\"}", 400, "cache_salt"},
        {"/v1/completions", "{\"prompt\":\"a\",\"stream\":1}", 400, "stream"},
        {"/v1/completions", "{\"prompt\":\"invalid\"}", 400, "top_p"},
        {"/v1/completions", "{\"prompt\":\"error\"}", 400, "too long"},
        {"/v1/completions", "{\"prompt\":\"error\",\"stream\":true}", 400, "too long"},
        {"/v1/completions", "{\"prompt\":[\"a\",\"error\"]}", 400, "prompt 1: "},
        {"/v1/completions", "{\"prompt\":\"full\"}", 429, "full"},
        {"/v1/completions", "{\"prompt\":[\"silent\",\"full\"]}", 429, "prompt 1"},
        {"/v1/chat/completions", "{\"messages\":[]}", 400, "messages"},
        {"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\"}]}", 400, "content"},
        {"/v1/chat/completions", "{\"messages\":[7]}", 400, "messages[0]"},
        {"/generate", "{\"text\":\"a\",\"input_ids\":[1]}", 400, "either"},
        {"/generate", "{\"sampling_params\":{}}", 400, "either"},
        {"/generate", "{\"text\":\"a\",\"sampling_params\":[]}", 400, "0 entries"},
        {"/generate", "{\"text\":\"a\",\"return_logprob\":2}", 400, "return_logprob"},
        {"/nowhere", "{}", 404, "path"},
        {"/health", "{}", 405, "GET"},
    };
    struct fixture f;
    start(&f, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *json = ask(&f, "POST", cases[i].path, cases[i].body, cases[i].status);
        CHECKF(strstr(error_message(json), cases[i].words) != NULL, "%s: %s", cases[i].body,
               error_message(json));
        CHECK(json_is_string(json_object_get(json_object_get(json, "error"), "type")));
        json_decref(json);
    }
    json_decref(ask(&f, "GET", "/v1/completions", "", 405));
    json_decref(ask(&f, "OPTIONS", "/health", "", 405));
    json_decref(ask(&f, "POST", "/v1/completions", "{\"prompt\":\"still here\"}", 200));
    stop(&f);
}

TEST(errors_name_the_parameter)
{
    static const struct {
        const char *path, *body, *param;
    } cases[] = {
        {"/v1/completions", "{\"prompt\":\"a\",\"temperature\":-1}", "temperature"},
        {"/v1/completions", "{\"prompt\":\"a\",\"top_p\":0}", "top_p"},
        {"/v1/completions", "{\"prompt\":\"error\"}", "prompt"},
        {"/v1/completions", "{\"prompt\":[\"a\",\"error\"]}", "prompt"},
        {"/v1/chat/completions",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"min_p\":2}", "min_p"},
        {"/generate", "{\"text\":\"error\"}", "text"},
        {"/generate", "{\"text\":\"a\",\"sampling_params\":{\"temperature\":-1}}", "temperature"},
    };
    struct fixture f;
    start(&f, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *json = ask(&f, "POST", cases[i].path, cases[i].body, 400);
        const char *param = text_of(json_object_get(json, "error"), "param");
        CHECKF(strcmp(param, cases[i].param) == 0, "%s: %s", cases[i].body, param);
        json_decref(json);
    }
    stop(&f);
}

TEST(depth_and_number_of_values_are_bounded)
{
    struct fixture f;
    int status;
    start(&f, 0);
    char deep[600];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    json_t *json = ask(&f, "POST", "/generate", deep, 400);
    CHECK(strstr(error_message(json), "nested") != NULL);
    json_decref(json);

    size_t len = 3 << 20; /* past the 1 MiB this server takes */
    char *big = malloc(len);
    CHECK(big != NULL);
    memset(big, ' ', len);
    int fd = dial(&f);
    send_request(fd, "POST", "/generate", big, len);
    free(read_reply(fd, &status));
    CHECKF(status == 413, "status %d", status);
    free(big);
    json_decref(ask(&f, "GET", "/health", "", 200));
    stop(&f);
}

TEST(an_error_after_the_first_token_ends_the_stream_in_words)
{
    struct fixture f;
    int status;
    start(&f, 0);
    char *text =
        ask_raw(&f, "POST", "/v1/completions", "{\"prompt\":\"late\",\"stream\":true}", &status);
    bool in_stream = status == 200 && strstr(text, "data: {\"error\"") != NULL;
    bool merged = status == 400; /* all events came before the first was sent */
    CHECKF(in_stream || merged, "status %d: %s", status, text);
    free(text);
    stop(&f);
}

TEST(large_bodies_are_parsed_elsewhere_and_answered_alike)
{
    enum { WORDS = 100000 };
    struct fixture f;
    start(&f, 0);
    char *body = malloc(WORDS * 2 + 200), *at = body;
    CHECK(body != NULL);
    at += sprintf(at, "{\"max_tokens\":2,\"prompt\":[");
    for (int i = 0; i < WORDS; i++)
        at += sprintf(at, "%s%d", i ? "," : "", i % 10);
    strcpy(at, "]}");
    json_t *json = ask(&f, "POST", "/v1/completions", body, 200);
    CHECK(number(json_object_get(json, "usage"), "prompt_tokens") == WORDS);
    json_decref(json);
    strcpy(at, "],\"stream\":true}");
    int status;
    char *text = ask_raw(&f, "POST", "/v1/completions", body, &status);
    CHECK(status == 200 && strstr(text, "data: [DONE]\n\n") != NULL);
    free(text);
    strcpy(at, "}");
    json = ask(&f, "POST", "/v1/completions", body, 400);
    CHECK(strstr(error_message(json), "invalid JSON") != NULL);
    json_decref(json);
    for (int i = 0; i < 20; i++) { /* gone before, while or after it is parsed */
        int fd = dial(&f);
        send_request(fd, "POST", "/generate", body, strlen(body));
        usleep((useconds_t)(i * 200));
        close(fd);
    }
    json_decref(ask(&f, "GET", "/health", "", 200));
    free(body);
    stop(&f);
}

/* ---- clients that misbehave ---- */

static uint32_t running(struct fixture *f)
{
    engine_stats stats;
    engine_get_stats(f->engine, &stats);
    return stats.num_running;
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
        for (int wait = 0; !running(&f) && wait < 2000; wait++)
            usleep(1000);
        CHECK(running(&f) > 0);
        close(fd);
        for (int wait = 0; running(&f) && wait < 2000; wait++)
            usleep(1000);
        CHECKF(running(&f) == 0, "body %zu", i);
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
        ssize_t n = read(fd, seen + len, sizeof seen - 1 - len);
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
    enum { MANY = 1000 };
    static int fds[MANY];
    struct fixture f;
    start(&f, 0);
    const char *body = "{\"prompt\":\"a\",\"max_tokens\":5}";
    for (int i = 0; i < MANY; i++)
        fds[i] = dial(&f);
    for (int i = 0; i < MANY; i++)
        send_request(fds[i], "POST", "/v1/completions", body, strlen(body));
    for (int i = 0; i < MANY; i++) {
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
    for (int wait = 0; !dropped && wait < 1000; wait++) { /* until it has read so far */
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
        CHECK(tries < 100);
        free(ask_raw(&f, "POST", "/v1/completions", big, &status));
        if (status != 200) usleep(10000);
    }
    free(big);
    free(part);
    stop(&f);
}

/* ---- admin ---- */

TEST(admin_endpoints_answer)
{
    struct fixture f;
    int status;
    start(&f, 0);
    json_t *json = ask(&f, "GET", "/v1/models", "", 200);
    json_t *model = json_array_get(json_object_get(json, "data"), 0);
    CHECK(strcmp(text_of(model, "id"), "fake \"model\"") == 0);
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
    int fd = dial(&f);
    const char *body = "{\"prompt\":\"silent\"}";
    send_request(fd, "POST", "/v1/completions", body, strlen(body));
    for (int wait = 0; !running(&f) && wait < 2000; wait++)
        usleep(1000);
    json_decref(ask(&f, "POST", "/flush_cache?timeout=0.05", "", 400));
    int waiting = dial(&f);
    send_request(waiting, "POST", "/flush_cache?timeout=30", "", 0);
    json_decref(ask(&f, "GET", "/server_info", "", 200)); /* does not wait for the flush */
    close(fd);
    free(read_reply(waiting, &status));
    CHECK(status == 200);
    json_decref(ask(&f, "POST", "/flush_cache?timeout=5", "", 200));
    stop(&f);
}

TEST(a_stop_ends_running_requests)
{
    struct fixture f;
    int status;
    start(&f, 0);
    int fd = dial(&f);
    const char *body = "{\"prompt\":\"silent\"}";
    send_request(fd, "POST", "/v1/completions", body, strlen(body));
    for (int wait = 0; !running(&f) && wait < 2000; wait++)
        usleep(1000);
    stop(&f);
    char *text = read_reply(fd, &status);
    CHECKF(status == 200 && strstr(text, "\"abort\"") != NULL, "%s", text);
    free(text);
}

TEST(a_stop_lets_what_runs_finish)
{
    struct fixture f;
    int status;
    start(&f, 0);
    int fd = dial(&f);
    const char *body = "{\"prompt\":\"slow\",\"max_tokens\":4}";
    send_request(fd, "POST", "/v1/completions", body, strlen(body));
    for (int wait = 0; !running(&f) && wait < 2000; wait++)
        usleep(1000);
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
    start(&f, 0);
    int old = dial(&f), fd = dial(&f);
    const char *body = "{\"prompt\":\"silent\"}";
    usleep(20000); /* `old` is accepted */
    send_request(fd, "POST", "/v1/completions", body, strlen(body));
    for (int wait = 0; !running(&f) && wait < 2000; wait++)
        usleep(1000);
    server_stop(f.server);

    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(server_port(f.server)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    bool refused = false;
    for (int wait = 0; !refused && wait < 300; wait++) { /* the stop is seen by another thread */
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
 * often it was asked: what was held back for the reader had nobody to go on with it. */
TEST(a_stop_does_not_wait_for_a_client_that_does_not_read)
{
    struct fixture f;
    char body[1 << 15];
    size_t len = (size_t)snprintf(body, sizeof body, "{\"stream\":true,\"input_ids\":[");
    for (int i = 0; i < 64; i++)
        len += (size_t)snprintf(body + len, sizeof body - len, "%s[%d]", i ? "," : "", i + 1);
    len += (size_t)snprintf(body + len, sizeof body - len,
                            "],\"sampling_params\":{\"max_new_tokens\":2000}}");
    start(&f, 0);
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

    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    stop(&f); /* drain_ms is 500 */
    clock_gettime(CLOCK_MONOTONIC, &to);
    CHECKF(to.tv_sec - from.tv_sec < 10, "the stop took %ld s", (long)(to.tv_sec - from.tv_sec));
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

TEST_MAIN()
