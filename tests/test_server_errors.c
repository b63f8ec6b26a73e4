/* test_server_errors.c - which words a bad request gets, and what is not lost with one; against a
 * scripted engine. */
#include "server_rig.h"

__attribute__((constructor)) static void limit_buffers(void)
{
    server_limit_buffers(64 << 20);
}

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
        {"/v1/completions", "{\"prompt\":\"a\",\"n\":3,\"best_of\":2}", 400, "best_of"},
        {"/v1/completions", "{\"prompt\":\"a\",\"echo\":1}", 400, "echo"},
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
    char *text = ask_late(&f, &status);
    CHECKF(status == 200 && strstr(text, "data: {\"error\"") != NULL, "status %d: %s", status,
           text);
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

/* They used to be a sum of the clock and one constant, so that each told the next. */
TEST(ids_tell_nothing_about_each_other)
{
    enum { COUNT = 16 };
    uint64_t high[COUNT], low[COUNT];
    struct fixture f;
    start(&f, 0);
    for (int i = 0; i < COUNT; i++) {
        json_t *json =
            ask(&f, "POST", "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1}", 200);
        const char *id = text_of(json, "id");
        unsigned long long a = 0, b = 0;
        CHECKF(strlen(id) == 37 && sscanf(id, "cmpl-%16llx%16llx", &a, &b) == 2, "%s", id);
        high[i] = a, low[i] = b;
        json_decref(json);
        for (int j = 0; j < i; j++)
            CHECK(high[i] != high[j] && low[i] != low[j]);
        CHECKF(i < 2 || (high[i] - high[i - 1] != high[i - 1] - high[i - 2] &&
                         low[i] - low[i - 1] != low[i - 1] - low[i - 2]),
               "%s", id);
    }
    stop(&f);
}

TEST_MAIN()
