/* redis_rig.h - redis-server processes of a test's own: on loopback, on free ports, with their
 * files in a directory of the test, and gone when the test is. */
#ifndef TESTS_REDIS_RIG_H
#define TESTS_REDIS_RIG_H

#include "storage_rig.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <pthread.h>
#include <radish/storage_redis.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

typedef struct redis_server {
    pid_t pid; /* 0: not running */
    int port;
    char dir[96];
} redis_server;

/* Version 7 or later: earlier ones do not know CLUSTER ADDSLOTSRANGE. */
static inline bool redis_is_installed(void)
{
    return system("redis-server --version 2>/dev/null | grep -Eq 'v=([7-9]|[1-9][0-9])'") == 0;
}

static inline bool port_is_free(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool is_free = bind(fd, (struct sockaddr *)&a, sizeof a) == 0;
    close(fd);
    return is_free;
}

/* The cluster's own talk is on the port + 10000: below those that connections are given. */
static inline int free_port(void)
{
    static uint64_t random;
    if (!random) random = test_seed() ^ (uint64_t)getpid();
    for (;;) {
        int port = 20000 + (int)(test_random(&random) % 2768);
        if (port_is_free(port) && port_is_free(port + 10000)) return port;
    }
}

/* An answer, or NULL when there is nobody. */
static inline redisReply *redis_say(int port, const char *command)
{
    redisContext *c = redisConnectWithTimeout("127.0.0.1", port, (struct timeval){TEST_HANG_S, 0});
    redisReply *r = NULL;
    if (c && !c->err) {
        redisSetTimeout(c, (struct timeval){TEST_HANG_S, 0});
        r = redisCommand(c, command);
    }
    if (c) redisFree(c);
    return r;
}

/* The answer contains these words. */
static inline bool redis_says(int port, const char *command, const char *words)
{
    redisReply *r = redis_say(port, command);
    bool yes = r && r->str && strstr(r->str, words);
    if (r) freeReplyObject(r);
    return yes;
}

static inline long long redis_number(int port, const char *command)
{
    redisReply *r = redis_say(port, command);
    long long n = r && r->type == REDIS_REPLY_INTEGER ? r->integer : -1;
    if (r) freeReplyObject(r);
    return n;
}

static inline void redis_launch(redis_server *s, const char *const *options)
{
    char port[16];
    const char *argv[48] = {"redis-server", "--port", port,    "--bind", "127.0.0.1", "--save", "",
                            "--appendonly", "no",     "--dir", s->dir,   "--logfile", "log"};
    int n = 13;
    snprintf(port, sizeof port, "%d", s->port);
    for (int i = 0; options && options[i]; i++)
        argv[n++] = options[i];
    s->pid = fork();
    if (!s->pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execvp("redis-server", (char *const *)(uintptr_t)argv);
        _exit(127);
    }
}

/* False: it has ended, as one does whose port was taken meanwhile. */
static inline bool redis_wait_ready(redis_server *s, const char *words)
{
    bool ended = false;
    AWAIT(redis_says(s->port, "PING", words) || (ended = waitpid(s->pid, NULL, WNOHANG) == s->pid));
    if (ended) s->pid = 0;
    return !ended;
}

/* `options`: pairs of words, ending with NULL. */
static inline void redis_start(redis_server *s, const char *const *options, const char *ready)
{
    char dir[64];
    rig_dir(dir);
    CHECK(mkdir(dir, 0777) == 0);
    snprintf(s->dir, sizeof s->dir, "%s", dir);
    int tries = 0;
    do {
        CHECKF(++tries <= 10, "redis-server ends at once, see %s/log", dir);
        s->port = free_port();
        redis_launch(s, options);
    } while (!redis_wait_ready(s, ready));
}

static inline void redis_kill(redis_server *s)
{
    if (!s->pid) return;
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    s->pid = 0;
}

static inline void redis_end(redis_server *s)
{
    redis_kill(s);
    rig_remove_dir(s->dir);
}

/* From now on a node that is silent for so long is taken for dead. */
static inline void cluster_doubts_after(const redis_server servers[6], int ms)
{
    char command[80];
    snprintf(command, sizeof command, "CONFIG SET cluster-node-timeout %d", ms);
    for (int i = 0; i < 6; i++)
        CHECK(redis_says(servers[i].port, command, "OK"));
}

/* A cluster of 3 masters, each with a replica: servers[i] and servers[i + 3]. All of them
 * know all slots, and no node doubts another before cluster_doubts_after says otherwise. */
static inline void cluster_start(redis_server servers[6])
{
    static const char *const options[] = {"--cluster-enabled",
                                          "yes",
                                          "--cluster-node-timeout",
                                          "1500", /* they tell each other often */
                                          "--cluster-require-full-coverage",
                                          "no",
                                          "--repl-diskless-sync-delay",
                                          "0",
                                          NULL};
    char command[200];
    for (int i = 0; i < 6; i++)
        redis_start(&servers[i], options, "PONG");
    for (int i = 0; i < 6; i++) {
        snprintf(command, sizeof command, "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
        CHECK(redis_says(servers[i].port, command, "OK"));
        if (i < 3) {
            snprintf(command, sizeof command, "CLUSTER ADDSLOTSRANGE %d %d", i * 5461,
                     i == 2 ? 16383 : i * 5461 + 5460);
            CHECK(redis_says(servers[i].port, command, "OK"));
        }
        snprintf(command, sizeof command, "CLUSTER MEET 127.0.0.1 %d", servers[0].port);
        if (i) CHECK(redis_says(servers[i].port, command, "OK"));
    }
    for (int i = 0; i < 6; i++)
        AWAIT(redis_says(servers[i].port, "CLUSTER INFO", "cluster_known_nodes:6"));
    for (int i = 3; i < 6; i++) {
        redisReply *id = redis_say(servers[i - 3].port, "CLUSTER MYID");
        CHECK(id && id->str);
        snprintf(command, sizeof command, "CLUSTER REPLICATE %s", id->str);
        freeReplyObject(id);
        AWAIT(redis_says(servers[i].port, command, "OK")); /* it knows its master then */
    }
    for (int i = 0; i < 6; i++) {
        AWAIT(redis_says(servers[i].port, "CLUSTER INFO", "cluster_state:ok"));
        AWAIT(redis_says(servers[i].port, "CLUSTER INFO", "cluster_slots_ok:16384"));
        if (i >= 3) AWAIT(redis_says(servers[i].port, "INFO replication", "master_link_status:up"));
    }
    cluster_doubts_after(servers, 60000);
}

static inline void cluster_end(redis_server servers[6])
{
    for (int i = 0; i < 6; i++)
        redis_end(&servers[i]);
}

/* ---- what plays a server: a thread of the test's ---- */

typedef struct redis_double {
    int listener, port, stop[2]; /* a pipe, readable when the thread is to end */
    pthread_t thread;
} redis_double;

/* Listens on a free port of `address`; `run` gets `arg`, of which `d` is a part. */
static inline void double_start(redis_double *d, const char *address, void *(*run)(void *),
                                void *arg)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof a;
    CHECK(inet_pton(AF_INET, address, &a.sin_addr) == 1);
    d->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(!bind(d->listener, (struct sockaddr *)&a, sizeof a) && !listen(d->listener, 64));
    CHECK(!getsockname(d->listener, (struct sockaddr *)&a, &len) && !pipe(d->stop));
    d->port = ntohs(a.sin_port);
    CHECK(!pthread_create(&d->thread, NULL, run, arg));
}

static inline void double_stop(redis_double *d)
{
    CHECK(write(d->stop[1], "x", 1) == 1);
    pthread_join(d->thread, NULL);
    close(d->stop[0]);
    close(d->stop[1]);
    close(d->listener);
}

/* Waits for bytes, a client or the stop; whether it goes on. What was sent before a stop is heard
 * where `to_the_end`. */
static inline bool double_waits(redis_double *d, int fd, bool to_the_end)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = d->stop[0], .events = POLLIN}};
    poll(fds, 2, -1);
    return !fds[1].revents || (to_the_end && fds[0].revents);
}

typedef struct log_lines {
    char text[4096];
} log_lines;

static inline void keep_log(void *user, rad_log_level level, const char *message)
{
    log_lines *log = user;
    size_t at = strlen(log->text);
    snprintf(log->text + at, sizeof log->text - at, "%d %s\n", (int)level, message);
}

static inline rad_storage redis_open(int port, rad_storage_redis_params params, log_lines *log)
{
    char nodes[64];
    rad_env env = {.struct_size = sizeof env, .user = log, .log = log ? keep_log : NULL};
    rad_storage store;
    rad_error err = {0};
    snprintf(nodes, sizeof nodes, "127.0.0.1:%d", port);
    params.struct_size = sizeof params;
    params.nodes = nodes;
    rad_status status = rad_storage_redis_open(&env, &params, &store, &err);
    CHECKF(status == RAD_OK, "%s", err.text);
    return store;
}

#endif
