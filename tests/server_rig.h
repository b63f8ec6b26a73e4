/* server_rig.h - a server on a free port of 127.0.0.1 over an engine that has no model
 * (fake_engine.h), and a client that talks to it over plain sockets, so that what is tested is
 * what a client sees. A stop returns only when nothing is left over.
 *
 * With RADISH_TEST_TLS=1 the server speaks TLS, and the client's sockets reach it through a relay
 * (tls_rig.h): the same tests, over TLS. */
#ifndef TESTS_SERVER_RIG_H
#define TESTS_SERVER_RIG_H

#include "test.h"

#include "fake_engine.h"
#include "server/server.h"
#include "tls_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct fixture {
    engine *engine;
    server *server;
    pthread_t thread;
    rad_status result;
    struct relay *relay; /* NULL: there is none */
};

static inline void *run_server(void *arg)
{
    struct fixture *f = arg;
    f->result = server_run(f->server, NULL);
    return NULL;
}

static inline bool rig_by_tls(void)
{
    const char *wanted = getenv("RADISH_TEST_TLS");
    return wanted && *wanted == '1';
}

/* What takes seconds, or does not look at the bytes of a connection, is tested in the clear, and over
 * TLS with RADISH_TEST_LONG=1. */
static inline bool rig_is_short(void)
{
    return rig_by_tls() && !test_scale(0, 1);
}

static struct tls_id rig_id; /* one for the whole program */
static char rig_dir[] = "/tmp/radish-test-XXXXXX";

static inline void rig_forget(void)
{
    tls_id_free(&rig_id);
    rmdir(rig_dir);
}

static inline tls_files rig_certificate(void)
{
    if (!rig_id.cert) {
        CHECK(mkdtemp(rig_dir) && atexit(rig_forget) == 0);
        tls_id_make(&rig_id, rig_dir, "server", NULL, -1, 1, NULL);
    }
    return (tls_files){.certificate = rig_id.cert_path, .key = rig_id.key_path};
}

/* `env` is the server's: NULL for the usual one. */
static inline void start_in(struct fixture *f, const rad_env *env, server_params params)
{
    static const char *const names[] = {"x"}; /* what most requests of the tests have as Host */
    if (!params.drain_ms) params.drain_ms = 500;
    if (!params.ping_ms) params.ping_ms = 1000; /* so that the tick is 100 ms */
    if (!params.num_allow_hosts) params.allow_hosts = names, params.num_allow_hosts = 1;
    signal(SIGPIPE, SIG_IGN); /* a client of ours may write to a closed connection */
    if (rig_by_tls() && !params.tls.certificate) params.tls = rig_certificate();
    CHECK_OK(engine_create(NULL, NULL, &f->engine, NULL));
    CHECK_OK(server_create(env, f->engine, &params, &f->server, NULL));
    CHECK(server_port(f->server) != 0);
    CHECK(pthread_create(&f->thread, NULL, run_server, f) == 0);
    f->relay = rig_by_tls() ? relay_start(server_port(f->server)) : NULL;
}

static inline void start_with(struct fixture *f, server_params params)
{
    start_in(f, NULL, params);
}

static inline void start(struct fixture *f, uint32_t ping_ms)
{
    start_with(f, (server_params){.max_body_bytes = 1 << 20,
                                  .ping_ms = ping_ms,
                                  .storage_admin = true,
                                  .storage_timeout_ms = 40});
}

static inline void stop(struct fixture *f)
{
    server_stop(f->server);
    pthread_join(f->thread, NULL);
    CHECK_OK(f->result);
    if (f->relay) relay_stop(f->relay);
    server_destroy(f->server);
    engine_destroy(f->engine);
}

/* ---- a client ---- */

static inline int dial(const struct fixture *f)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons(f->relay ? f->relay->port : server_port(f->server)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval patience = {.tv_sec = TEST_HANG_S};
    CHECK(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

static inline void send_all(int fd, const char *bytes, size_t len)
{
    while (len) {
        ssize_t n = write(fd, bytes, len);
        if (n <= 0) return; /* the server has hung up; its answer is still to be read */
        bytes += n;
        len -= (size_t)n;
    }
}

static inline void send_request(int fd, const char *method, const char *path, const char *body,
                                size_t len)
{
    char head[512];
    int n = snprintf(head, sizeof head,
                     "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                     "Content-Length: %zu\r\n\r\n",
                     method, path, len);
    send_all(fd, head, (size_t)n);
    send_all(fd, body, len);
}

/* Also where a debugger or a container's pause interrupts it. */
static inline ssize_t recv_some(int fd, char *bytes, size_t len)
{
    ssize_t n;
    do
        n = recv(fd, bytes, len, 0);
    while (n < 0 && errno == EINTR);
    return n;
}

/* All there is until the end, as it came; a reset is an end too. Until the next call. */
static inline const char *hear(int fd)
{
    static char reply[1 << 16];
    size_t len = 0;
    for (ssize_t n;
         len < sizeof reply - 1 && (n = recv_some(fd, reply + len, sizeof reply - 1 - len)) > 0;)
        len += (size_t)n;
    reply[len] = 0;
    return reply;
}

/* What comes for these bytes on a connection of their own; as long as hear's. */
static inline const char *exchange(const struct fixture *f, const char *bytes)
{
    int fd = dial(f);
    send_all(fd, bytes, strlen(bytes));
    const char *reply = hear(fd);
    close(fd);
    return reply;
}

/* Reads to the end; the caller frees. Undoes chunked encoding; *status gets the code. */
static inline char *read_reply(int fd, int *status)
{
    size_t most = 64 << 20, room = 0, len = 0;
    char *raw = NULL;
    ssize_t got;
    do {
        /* Most answers are short, and AddressSanitizer goes over all of a block. */
        if (len == room) {
            room = RAD_MIN(most, RAD_MAX(2 * room, (size_t)16 << 10));
            raw = realloc(raw, room + 1);
            CHECK(raw != NULL);
        }
        got = recv_some(fd, raw + len, room - len);
        if (got > 0) len += (size_t)got;
    } while (got > 0 && len < most);
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

static inline char *ask_raw(const struct fixture *f, const char *method, const char *path,
                            const char *body, int *status)
{
    int fd = dial(f);
    send_request(fd, method, path, body, strlen(body));
    return read_reply(fd, status);
}

/* The stream of the prompt "late", whose error comes when its first bytes are there. */
static inline char *ask_late(const struct fixture *f, int *status)
{
    const char *body = "{\"prompt\":\"late\",\"stream\":true}";
    char first;
    atomic_store(&fake_late_waits, true);
    int fd = dial(f);
    send_request(fd, "POST", "/v1/completions", body, strlen(body));
    CHECK(recv(fd, &first, 1, MSG_PEEK) == 1);
    atomic_store(&fake_late_waits, false);
    return read_reply(fd, status);
}

static inline json_t *ask(const struct fixture *f, const char *method, const char *path,
                          const char *body, int want_status)
{
    int status;
    char *text = ask_raw(f, method, path, body, &status);
    CHECKF(status == want_status, "%s %s: status %d: %s", path, body, status, text);
    json_t *json = json_loads(text, 0, NULL);
    CHECKF(json != NULL, "not JSON: %s", text);
    free(text);
    return json;
}

static inline const char *error_message(const json_t *json)
{
    const char *text =
        json_string_value(json_object_get(json_object_get(json, "error"), "message"));
    CHECK(text != NULL);
    return text;
}

/* The n-th "data:" line as JSON, or NULL when there are fewer (or it is [DONE]). */
static inline json_t *event_at(const char *stream, int n)
{
    const char *at = stream;
    while ((at = strstr(at, "data: ")) != NULL) {
        at += 6;
        if (n-- == 0) return json_loads(at, JSON_DISABLE_EOF_CHECK, NULL);
    }
    return NULL;
}

static inline int count_events(const char *stream)
{
    int n = 0;
    while ((stream = strstr(stream, "data: ")) != NULL) {
        n++;
        stream += 6;
    }
    return n;
}

static inline json_int_t number(const json_t *json, const char *key)
{
    json_t *value = json_object_get(json, key);
    CHECKF(json_is_integer(value), "no number '%s'", key);
    return json_integer_value(value);
}

static inline const char *text_of(const json_t *json, const char *key)
{
    const char *value = json_string_value(json_object_get(json, key));
    CHECKF(value != NULL, "no text '%s'", key);
    return value;
}

static inline bool says(const json_t *json, const char *key, const char *want)
{
    return strcmp(text_of(json, key), want) == 0;
}

static inline json_t *choice_of(const json_t *json, size_t i)
{
    return json_array_get(json_object_get(json, "choices"), i);
}

static inline json_int_t cached_of(const json_t *json)
{
    json_t *usage = json_object_get(json, "usage");
    return number(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
}

#endif
