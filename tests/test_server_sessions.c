/* test_server_sessions.c - SGLang's sessions over HTTP: whose turns go on from the ids of their
 * requests, branch, are cut and refused, against a scripted engine; and that their histories are
 * those of a naive tree. */
#include "server_rig.h"

#include "server/sessions.h"

__attribute__((constructor)) static void limit_buffers(void)
{
    server_limit_buffers(64 << 20);
}

/* Opens one that is called `id`. */
static void open_session(const struct fixture *f, const char *id, const char *more)
{
    char body[200];
    snprintf(body, sizeof body, "{\"session_id\":\"%s\"%s}", id, more);
    int status;
    char *told = ask_raw(f, "POST", "/open_session", body, &status);
    CHECKF(status == 200 && told[0] == '"' && !strncmp(told + 1, id, strlen(id)), "%d %s", status,
           told);
    free(told);
}

/* A turn with those ids and as many tokens of output; the whole answer. */
static json_t *take_turn(const struct fixture *f, const char *rid, const char *params,
                         const char *ids, int out, int want)
{
    char body[400];
    snprintf(body, sizeof body,
             "{\"rid\":\"%s\",\"input_ids\":[%s],\"session_params\":{%s},"
             "\"sampling_params\":{\"max_new_tokens\":%d}}",
             rid, ids, params, out);
    return ask(f, "POST", "/generate", body, want);
}

/* The prompt that the engine got is `want`, numbers with spaces. */
static void check_prompt(const struct fixture *f, const char *want)
{
    char got[400] = "";
    for (uint32_t i = 0; i < f->engine->last.num_ids; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", i ? " " : "",
                 f->engine->last_ids[i]);
    CHECKF(strcmp(got, want) == 0, "got %s, wanted %s\n", got, want);
}

static void check_step(json_t *answer, const char *step, json_int_t history, json_int_t left,
                       json_int_t own)
{
    json_t *meta = json_object_get(answer, "meta_info");
    json_t *told = json_object_get(json_object_get(meta, "cache_explanation"), "session");
    CHECKF(says(told, "step", step) && number(told, "history_tokens") == history &&
               number(told, "left_tokens") == left && number(told, "new_tokens") == own,
           "%s\n", json_dumps(told, 0));
    json_decref(answer);
}

TEST(a_session_goes_on_from_the_ids_of_its_requests)
{
    struct fixture f;
    fake_why = (req_why){.known = true};
    start(&f, 0);
    open_session(&f, "s", ",\"capacity_of_str_len\":1000");
    check_step(take_turn(&f, "a", "\"id\":\"s\"", "1,2,3", 2, 200), "begin", 0, 0, 3);
    CHECK(f.engine->last.session == 1);
    check_step(take_turn(&f, "b", "\"id\":\"s\",\"rid\":\"a\"", "4", 3, 200), "append", 5, 0, 1);
    check_prompt(&f, "1 2 3 100 101 4");
    check_step(take_turn(&f, "c", "\"id\":\"s\",\"rid\":\"b\"", "5,6", 1, 200), "append", 9, 0, 2);
    check_prompt(&f, "1 2 3 100 101 4 100 101 102 5 6");
    check_step(take_turn(&f, "d", "\"id\":\"s\",\"rid\":\"a\"", "7", 1, 200), "branch", 5, 0, 1);
    check_prompt(&f, "1 2 3 100 101 7");
    check_step(take_turn(&f, "e", "\"id\":\"s\",\"rid\":\"b\",\"offset\":7", "8", 1, 200), "offset",
               7, 2, 1);
    check_prompt(&f, "1 2 3 100 101 4 100 8");
    check_step(take_turn(&f, "f", "\"id\":\"s\",\"rid\":\"c\",\"offset\":-11", "9", 1, 200),
               "offset", 1, 11, 1);
    check_prompt(&f, "1 9");
    check_step(
        take_turn(&f, "g", "\"id\":\"s\",\"rid\":\"b\",\"drop_previous_output\":true", "9", 1, 200),
        "drop_previous_output", 6, 3, 1);
    check_prompt(&f, "1 2 3 100 101 4 9");

    /* b again: c, e and g are gone with it, d is not */
    check_step(take_turn(&f, "h", "\"id\":\"s\",\"rid\":\"b\",\"replace\":true", "10", 1, 200),
               "replace", 9, 0, 1);
    check_prompt(&f, "1 2 3 100 101 4 100 101 102 10");
    json_decref(take_turn(&f, "x", "\"id\":\"s\",\"rid\":\"c\"", "1", 1, 400));
    json_decref(take_turn(&f, "i", "\"id\":\"s\",\"rid\":\"d\"", "1", 1, 200));
    check_prompt(&f, "1 2 3 100 101 7 100 1");
    check_step(take_turn(&f, "j", "\"id\":\"s\",\"replace\":true", "1", 1, 200), "replace", 0, 0,
               1);
    json_decref(take_turn(&f, "x", "\"id\":\"s\",\"rid\":\"d\"", "1", 1, 400));

    /* by the id of a chat's answer; a stream too */
    json_t *json = ask(&f, "POST", "/v1/completions",
                       "{\"prompt\":[5],\"max_tokens\":2,\"session_params\":{\"id\":\"s\"}}", 200);
    char params[200];
    snprintf(params, sizeof params, "\"id\":\"s\",\"rid\":\"%s\"", text_of(json, "id"));
    json_decref(json);
    json_decref(take_turn(&f, "k", params, "6", 1, 200));
    check_prompt(&f, "5 100 101 6");
    stop(&f);
    fake_why = (req_why){0};
}

TEST(a_turn_that_a_session_cannot_take_is_refused_in_words)
{
    static const struct {
        const char *params, *words;
    } bad[] = {{"\"rid\":\"a\"", "has no 'id'"},
               {"\"id\":\"t\"", "'t' is not open"},
               {"\"id\":\"s\",\"rid\":\"z\"", "no request 'z'"},
               {"\"id\":\"s\",\"offset\":\"1\"", "offset"},
               {"\"id\":\"s\",\"ofset\":1", "'ofset' is not known in session_params"}};
    struct fixture f;
    start(&f, 0);
    open_session(&f, "s", "");
    json_decref(take_turn(&f, "a", "\"id\":\"s\"", "1", 1, 200));
    for (size_t i = 0; i < RAD_COUNT(bad); i++) {
        json_t *json = take_turn(&f, "b", bad[i].params, "1", 1, 400);
        CHECKF(strstr(error_message(json), bad[i].words), "%s\n", error_message(json));
        json_decref(json);
    }
    json_t *json = take_turn(&f, "a", "\"id\":\"s\"", "1", 1, 400);
    CHECK(strstr(error_message(json), "a request 'a' already"));
    json_decref(json);
    json = ask(&f, "POST", "/generate",
               "{\"input_ids\":[[1],[2]],\"session_params\":{\"id\":\"s\"}}", 400);
    CHECK(strstr(error_message(json), "one prompt with one answer"));
    json_decref(json);
    /* one that failed is not there to be gone on from */
    CHECK(FAKE_ERROR_ID == 991);
    json_decref(take_turn(&f, "e", "\"id\":\"s\"", "991", 1, 400));
    json_decref(take_turn(&f, "b", "\"id\":\"s\",\"rid\":\"e\"", "1", 1, 400));

    json_decref(ask(&f, "POST", "/open_session", "{\"session_id\":\"s\"}", 400));
    json = ask(&f, "POST", "/open_session", "{\"streaming\":true}", 400);
    CHECK(strstr(error_message(json), "--enable-streaming-session"));
    json_decref(json);
    json_decref(ask(&f, "POST", "/open_session", "{\"timeout\":0}", 400));
    json_decref(ask(&f, "POST", "/open_session", "{\"session_id\":\"\"}", 400));
    open_session(&f, "t", "");
    open_session(&f, "u", "");
    json = ask(&f, "POST", "/open_session", "{}", 429);
    CHECK(strstr(error_message(json), "--max-sessions"));
    json_decref(json);
    json_decref(ask(&f, "POST", "/close_session", "{\"session_id\":\"t\"}", 200));
    json_decref(ask(&f, "POST", "/close_session", "{\"session_id\":\"t\"}", 404));
    json_decref(ask(&f, "POST", "/close_session", "{}", 400));
    open_session(&f, "t", "");
    stop(&f);
}

static uint64_t newest_request(const struct fixture *f)
{
    pthread_mutex_lock(&f->engine->lock);
    uint64_t id = f->engine->next_id;
    pthread_mutex_unlock(&f->engine->lock);
    return id;
}

/* Sends a turn that says nothing until it is aborted; the connection. */
static int begin_silent_turn(const struct fixture *f, const char *rid, const char *params)
{
    char body[300];
    int fd = dial(f);
    uint64_t before = newest_request(f);
    snprintf(body, sizeof body, "{\"rid\":\"%s\",\"input_ids\":[1,%d],\"session_params\":{%s}}",
             rid, FAKE_SILENT_ID, params);
    send_request(fd, "POST", "/generate", body, strlen(body));
    while (newest_request(f) == before)
        usleep(1000);
    return fd;
}

static uint32_t engine_sessions(const struct fixture *f)
{
    pthread_mutex_lock(&f->engine->lock);
    uint32_t open = f->engine->sessions_open;
    pthread_mutex_unlock(&f->engine->lock);
    return open;
}

TEST(a_turn_that_runs_is_waited_for_replaced_or_outlives_its_session)
{
    struct fixture f;
    int status;
    start(&f, 0);
    open_session(&f, "s", "");
    int fd = begin_silent_turn(&f, "a", "\"id\":\"s\"");
    json_t *json = take_turn(&f, "b", "\"id\":\"s\",\"rid\":\"a\"", "5", 1, 400);
    CHECK(strstr(error_message(json), "has not finished"));
    json_decref(json);
    json_decref(take_turn(&f, "b", "\"id\":\"s\",\"rid\":\"a\",\"replace\":true", "5", 1, 200));
    check_prompt(&f, "1 990 5");
    free(read_reply(fd, &status)); /* it was aborted, or would never end */
    CHECK(status == 200);

    fd = begin_silent_turn(&f, "c", "\"id\":\"s\",\"rid\":\"b\"");
    json_decref(ask(&f, "POST", "/close_session", "{\"session_id\":\"s\"}", 200));
    json_decref(take_turn(&f, "d", "\"id\":\"s\"", "5", 1, 400));
    CHECK(engine_sessions(&f) == 1); /* until its turn has ended */
    json_decref(ask(&f, "POST", "/abort_request", "{\"rid\":\"c\"}", 200));
    free(read_reply(fd, &status));
    while (engine_sessions(&f))
        usleep(1000);
    stop(&f);
}

TEST(a_streaming_session_only_goes_on)
{
    static const char *const bad[] = {"replace\":true", "offset\":2",
                                      "drop_previous_output\":true"};
    struct fixture f;
    int status;
    fake_info.streaming_sessions = true;
    start(&f, 0);
    open_session(&f, "s", ",\"streaming\":true");
    json_decref(take_turn(&f, "a", "\"id\":\"s\"", "1", 2, 200));
    CHECK(f.engine->last.session != 0);
    for (size_t i = 0; i < RAD_COUNT(bad); i++) {
        char params[100];
        snprintf(params, sizeof params, "\"id\":\"s\",\"rid\":\"a\",\"%s", bad[i]);
        json_t *json = take_turn(&f, "b", params, "2", 1, 400);
        CHECKF(strstr(error_message(json), "only goes on"), "%s\n", error_message(json));
        json_decref(json);
    }
    json_decref(take_turn(&f, "b", "\"id\":\"s\"", "2", 1, 200)); /* from the last, named or not */
    check_prompt(&f, "1 100 101 2");
    json_decref(take_turn(&f, "c", "\"id\":\"s\",\"rid\":\"a\"", "2", 1, 400));
    json_decref(take_turn(&f, "c", "\"id\":\"s\",\"rid\":\"b\"", "991", 1, 400));
    int fd = begin_silent_turn(&f, "d", "\"id\":\"s\"");
    json_t *json = take_turn(&f, "e", "\"id\":\"s\"", "2", 1, 400);
    CHECK(strstr(error_message(json), "already has an active request"));
    json_decref(json);
    json_decref(ask(&f, "POST", "/abort_request", "{\"rid\":\"d\"}", 200));
    free(read_reply(fd, &status));
    json_decref(take_turn(&f, "f", "\"id\":\"s\"", "3", 1, 200)); /* as if c and d had never been */
    check_prompt(&f, "1 100 101 2 100 3");

    open_session(&f, "t", ""); /* an ordinary one beside it has none of the engine's */
    json_decref(take_turn(&f, "a", "\"id\":\"t\"", "1", 1, 200));
    CHECK(f.engine->last.session == 0 && engine_sessions(&f) == 1);
    stop(&f);
    fake_info.streaming_sessions = false;
}

TEST(sessions_end_when_they_are_idle_or_others_need_the_room)
{
    struct fixture f;
    start_with(&f, (server_params){.session_history_bytes = 6000});
    open_session(&f, "brief", ",\"timeout\":0.001");
    for (int status = 200; status == 200; usleep(1000))
        free(ask_raw(&f, "POST", "/generate",
                     "{\"input_ids\":[1],\"session_params\":{\"id\":\"brief\"},"
                     "\"sampling_params\":{\"max_new_tokens\":1}}",
                     &status));
    while (engine_sessions(&f))
        usleep(1000);

    open_session(&f, "old", "");
    open_session(&f, "new", "");
    json_decref(take_turn(&f, "a", "\"id\":\"old\"", "1", 800, 200));
    json_decref(take_turn(&f, "a", "\"id\":\"new\"", "1", 800, 200));
    json_decref(take_turn(&f, "b", "\"id\":\"old\"", "1", 1, 400)); /* it made room */
    json_decref(take_turn(&f, "b", "\"id\":\"new\",\"rid\":\"a\"", "2", 800, 200));
    json_decref(take_turn(&f, "c", "\"id\":\"new\",\"rid\":\"b\"", "3", 1, 400)); /* did not fit */
    json_decref(take_turn(&f, "c", "\"id\":\"new\",\"rid\":\"a\"", "3", 1, 200));
    CHECK(f.engine->last.num_ids == 802);
    stop(&f);
}

/* What a session should know of its requests, obviously: each with its whole history. */
enum { NAIVE_MOST = 400, NAIVE_TOKENS = 400 };
typedef struct naive_request {
    char rid[16];
    rad_token ids[NAIVE_TOKENS];
    uint32_t len, input_end;
    int parent; /* -1: none */
    bool there, has_children;
    session_turn *turn; /* while it runs */
} naive_request;

typedef struct naive_session {
    naive_request all[NAIVE_MOST];
    int count;
} naive_session;

static bool naive_descends(const naive_session *n, int i, int from)
{
    while (i >= 0 && i != from)
        i = n->all[i].parent;
    return i == from;
}

/* The next request: whether the session takes it, and its history in out[]. */
static bool naive_begin(naive_session *n, const api_session *ask, int parent, rad_token *out,
                        uint32_t *len)
{
    naive_request *p = parent < 0 ? NULL : &n->all[parent];
    if (p && (!p->there || (p->turn && !ask->replace))) return false;
    for (int i = 0; ask->replace && i < n->count; i++)
        if (i != parent && (parent < 0 || naive_descends(n, i, parent))) n->all[i].there = false;
    int64_t end = !p ? 0 : ask->drop_previous_output ? p->input_end : p->len;
    if (ask->offset > 0) end = RAD_MIN(end, ask->offset);
    if (ask->offset < 0) end = RAD_MAX(end + ask->offset, 0);
    if (end) memcpy(out, p->ids, (size_t)end * sizeof *out);
    *len = (uint32_t)end;
    if (p) p->has_children = true;
    return true;
}

/* It says up to six ids more, in two pieces, and may end. */
static void naive_go_on(naive_request *r, uint64_t *rng, bool ends)
{
    static const engine_finish finishes[] = {ENGINE_FINISH_STOP, ENGINE_FINISH_LENGTH,
                                             ENGINE_FINISH_ABORT, ENGINE_FINISH_ERROR};
    for (int piece = 0; piece < 2; piece++) {
        for (uint64_t i = test_random(rng) % 4; i; i--)
            r->ids[r->len++] = (rad_token)(test_random(rng) % 1000);
        session_turn_heard(r->turn, r->ids + r->input_end, r->len - r->input_end);
    }
    if (!ends) return;
    engine_finish finish = finishes[test_random(rng) % RAD_COUNT(finishes)];
    session_turn_end(r->turn, finish);
    session_turn_free(r->turn);
    r->turn = NULL;
    if (finish == ENGINE_FINISH_ERROR && !r->has_children) r->there = false;
}

static void naive_round(sessions *s, naive_session *n, uint64_t *rng)
{
    int parent = n->count && test_random(rng) % 4 ? (int)(test_random(rng) % (uint64_t)n->count)
                                                  : -1;
    naive_request *r = &n->all[n->count], *p = parent < 0 ? NULL : &n->all[parent];
    api_session ask = {.id = "s", .rid = p ? p->rid : NULL};
    ask.replace = test_random(rng) % 40 == 0;
    ask.drop_previous_output = test_random(rng) % 6 == 0;
    if (test_random(rng) % 3 == 0) ask.offset = (int64_t)(test_random(rng) % 60) - 30;
    if (p && p->len > NAIVE_TOKENS / 2) ask.offset = 7;
    snprintf(r->rid, sizeof r->rid, "r%d", n->count);
    token_buf history = {0};
    api_error err;
    r->turn = sessions_begin(s, NULL, &ask, r->rid, &history, &err);
    bool taken = naive_begin(n, &ask, parent, r->ids, &r->len);
    CHECKF(taken == (r->turn != NULL), "%d from %d: %s\n", n->count, parent,
           r->turn ? "taken" : err.message);
    if (taken) {
        CHECK(history.len == r->len && r->turn->history_tokens == r->len);
        CHECK(!r->len || memcmp(history.ids, r->ids, r->len * sizeof *r->ids) == 0);
        uint32_t own = 1 + (uint32_t)(test_random(rng) % 5), first = r->len;
        for (uint32_t i = 0; i < own; i++)
            r->ids[r->len++] = (rad_token)(test_random(rng) % 1000);
        CHECK(session_turn_input(r->turn, r->ids + first, own, &err));
        r->input_end = r->len;
        r->parent = parent;
        r->there = true;
        n->count++;
        naive_go_on(r, rng, test_random(rng) % 3 != 0);
    }
    token_buf_fini(&history);
    naive_request *other = &n->all[test_random(rng) % (uint64_t)RAD_MAX(n->count, 1)];
    if (n->count && other->turn) naive_go_on(other, rng, test_random(rng) % 2);
}

TEST(histories_are_those_of_a_naive_tree)
{
    uint64_t seed = test_seed(), rng = seed;
    for (uint32_t run = 0; run < test_scale(40, 400); run++) {
        engine *e = NULL;
        sessions *s = NULL;
        api_error err;
        char name[SESSION_ID_BYTES];
        CHECK_OK(engine_create(NULL, NULL, &e, NULL));
        const sessions_params p = {
            .engine = e, .max_sessions = 2, .idle_ns = UINT64_MAX / 2, .max_bytes = 64 << 20};
        CHECK_OK(sessions_create(&p, &s));
        CHECK(sessions_open(s, NULL, "s", false, 0, name, &err));
        naive_session *n = calloc(1, sizeof *n);
        CHECK(n != NULL);
        while (n->count < 60 && n->count < NAIVE_MOST)
            naive_round(s, n, &rng);
        if (run % 2) CHECK(sessions_close(s, NULL, "s", &err)); /* while some run */
        for (int i = 0; i < n->count; i++)
            if (n->all[i].turn) naive_go_on(&n->all[i], &rng, true);
        if (run % 2 == 0) CHECK(sessions_close(s, NULL, "s", &err));
        CHECKF(sessions_bytes(s) == 0, "seed %llu: %llu bytes are left\n", (unsigned long long)seed,
               (unsigned long long)sessions_bytes(s));
        sessions_destroy(s);
        CHECK(e->sessions_open == 0);
        engine_destroy(e);
        free(n);
    }
}

TEST_MAIN()
