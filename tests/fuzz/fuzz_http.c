/* fuzz_http.c - any bytes on a connection: an answer in HTTP or none, errors as JSON, and the
 * server goes on.
 *
 * A whole server over a scripted engine runs in a thread of its own; each input is one
 * connection. The first byte says how the rest is cut in two writes and whether we listen
 * before we close our side. */
#include "fake_engine.h"
#include "server/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

static server *the_server;

static void *serve(void *arg)
{
    if (server_run(arg, NULL) != RAD_OK) abort();
    return NULL;
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    static const char *const names[] = {"x", "http://x"};
    server_params params = {.max_body_bytes = 1 << 16,
                            .max_header_bytes = 4096,
                            .ping_ms = 100,
                            .num_allow_hosts = 1,
                            .allow_hosts = names,
                            .num_allow_origins = 1,
                            .allow_origins = names + 1};
    engine *e;
    pthread_t thread;
    signal(SIGPIPE, SIG_IGN);
    server_limit_buffers(64 << 20);
    if (engine_create(NULL, NULL, &e, NULL) != RAD_OK ||
        server_create(NULL, e, &params, &the_server, NULL) != RAD_OK ||
        pthread_create(&thread, NULL, serve, the_server) != 0)
        abort();
    return 0;
}

static int dial(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(server_port(the_server)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct linger reset = {.l_onoff = 1}; /* else ports run out */
    int fd = socket(AF_INET, SOCK_STREAM, 0), tries = 0;
    if (fd < 0) abort();
    /* They do all the same where the server hangs up first, some hundred connections a second for
     * minutes: each such port is free again after one of them. */
    while (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        if (errno != EADDRNOTAVAIL || ++tries == 500) abort();
        usleep(10000);
    }
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    return fd;
}

/* What has come within `ms`, or until the end or a ping, which others may follow for ever; false: no
 * end. */
static bool hear(int fd, char *reply, size_t room, size_t *len, int ms)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    static char rest[1 << 16];
    while (poll(&ready, 1, ms) > 0) {
        bool full = *len == room;
        ssize_t n = recv(fd, full ? rest : reply + *len, full ? sizeof rest : room - *len, 0);
        if (n <= 0) return true;
        if (full) continue;
        *len += (size_t)n;
        reply[*len] = 0;
        if (strstr(reply, "\n: ping")) return true;
    }
    return false;
}

static void check_health(void)
{
    char reply[4096] = "";
    size_t len = 0;
    const char ask[] = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    int fd = dial();
    if (send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL) != sizeof ask - 1) abort();
    if (!hear(fd, reply, sizeof reply - 1, &len, 10000) || !strstr(reply, " 200 OK")) abort();
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned count;
    char reply[4096];
    size_t len = 0;
    if (!size) return 0;
    uint8_t how = *data++;
    size_t first = --size * (how >> 1) / 127;
    int fd = dial();
    ssize_t sent = send(fd, data, first, MSG_NOSIGNAL); /* it may have hung up already */
    if (sent >= 0) sent = send(fd, data + first, size - first, MSG_NOSIGNAL);
    bool ended = how & 1 && hear(fd, reply, sizeof reply - 1, &len, 2);
    shutdown(fd, SHUT_WR);
    if (!ended && !hear(fd, reply, sizeof reply - 1, &len, 8000)) abort();
    close(fd);
    reply[len] = 0;
    if (len >= 9 && strncmp(reply, "HTTP/1.", 7) != 0) abort();
    char *body = strstr(reply, "\r\n\r\n");
    if (body) *body = 0;
    if (strstr(reply, "text/html")) abort();
    if (++count % 256 == 0) check_health();
    return 0;
}
