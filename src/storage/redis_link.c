/* redis_link.c - one non-blocking socket with hiredis's parser behind it; see redis_link.h. */
#define _GNU_SOURCE
#include "storage/redis_link.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#if HIREDIS_MAJOR == 0
typedef int element_count;
#else
typedef size_t element_count;
#endif

static redis_link *link_of(const redisReadTask *task)
{
    return task->privdata;
}

/* The answer of a command on pages: one flat thing. */
static void *flat_string(const redisReadTask *task, char *text, size_t len)
{
    redis_link *l = link_of(task);
    redis_answer *a = &l->answer;
    *a = (redis_answer){.type = task->type, .len = len};
    if (task->type == REDIS_REPLY_STRING && l->target && len == l->target_bytes) {
        memcpy(l->target, text, len);
        a->taken = true;
    } else if (len < REDIS_TEXT)
        memcpy(a->text, text, len);
    return a;
}

static void *flat_integer(const redisReadTask *task, long long value)
{
    redis_link *l = link_of(task);
    l->answer = (redis_answer){.type = REDIS_REPLY_INTEGER, .integer = value};
    return &l->answer;
}

static void *flat_nil(const redisReadTask *task)
{
    redis_link *l = link_of(task);
    l->answer = (redis_answer){.type = REDIS_REPLY_NIL};
    return &l->answer;
}

static void *no_array(const redisReadTask *task, element_count count)
{
    (void)task;
    (void)count;
    return NULL; /* hiredis calls it an error then */
}

static void nothing_to_free(void *object)
{
    (void)object;
}

/* The answer of CLUSTER SLOTS and the like: a tree, but not any tree. */
static void *bounded_array(const redisReadTask *task, element_count count)
{
    redis_link *l = link_of(task);
    if (count > 0 && (uint64_t)count > REDIS_MOST_NESTED - l->nested) return NULL;
    if (count > 0) l->nested += (uint32_t)count;
    return l->plain->createArray(task, count);
}

static void parse_flat(redis_link *l)
{
    l->functions = (redisReplyObjectFunctions){.createString = flat_string,
                                               .createArray = no_array,
                                               .createInteger = flat_integer,
                                               .createNil = flat_nil,
                                               .freeObject = nothing_to_free};
}

static void parse_tree(redis_link *l)
{
    l->functions = *l->plain;
    l->functions.createArray = bounded_array;
    l->nested = 0;
}

static void RAD_PRINTF(2, 3) fail(redis_link *l, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(l->why, sizeof l->why, fmt, args);
    va_end(args);
    redis_link_close(l);
}

void redis_link_close(redis_link *l)
{
    if (l->ctx) redisFree(l->ctx);
    l->ctx = NULL;
    l->out_at = l->out_count = 0;
    l->expected = 0;
    l->target = NULL;
}

static bool authenticate(redis_link *l, const rad_env *env, const char *user, const char *password,
                         uint64_t deadline_ns)
{
    const char *argv[3] = {"AUTH", user ? user : password, password};
    redisReply *reply = redis_link_ask(l, env, deadline_ns, 4096, user ? 3 : 2, argv);
    bool ok = reply && reply->type == REDIS_REPLY_STATUS;
    if (reply && !ok) fail(l, "AUTH: %.100s", reply->str ? reply->str : "a strange answer");
    if (reply) freeReplyObject(reply);
    return ok;
}

bool redis_link_open(redis_link *l, const rad_env *env, const char *host, uint16_t port,
                     const char *user, const char *password, uint32_t timeout_ms)
{
    struct timeval limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    uint64_t deadline = env->now_ns(env->user) + timeout_ms * 1000000ull;
    redis_link_close(l);
    l->ctx = redisConnectWithTimeout(host, port, limit);
    if (!l->ctx || l->ctx->err) {
        fail(l, "%.100s", l->ctx ? l->ctx->errstr : "no memory");
        return false;
    }
    int one = 1;
    (void)setsockopt(l->ctx->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (fcntl(l->ctx->fd, F_SETFL, fcntl(l->ctx->fd, F_GETFL) | O_NONBLOCK) ||
        fcntl(l->ctx->fd, F_SETFD, FD_CLOEXEC)) {
        fail(l, "%s", strerror(errno));
        return false;
    }
    l->plain = l->ctx->reader->fn;
    l->ctx->reader->fn = &l->functions;
    l->ctx->reader->privdata = l;
    l->ctx->reader->maxbuf = 0; /* keep the buffer: `most` bounds it */
    l->most = 65536;
    parse_flat(l);
    return !password || authenticate(l, env, user, password, deadline);
}

void redis_link_queue(redis_link *l, const void *bytes, size_t count)
{
    RAD_ASSERT(l->out_count < RAD_COUNT(l->out));
    l->out[l->out_count++] = (struct iovec){(void *)(uintptr_t)bytes, count};
}

int redis_link_next(redis_link *l)
{
    void *answer = NULL;
    if (!l->ctx) return -1;
    if (redisReaderGetReply(l->ctx->reader, &answer) != REDIS_OK) {
        fail(l, "what came is no answer: %.80s", l->ctx->reader->errstr);
        return -1;
    }
    if (!answer) {
        if (l->ctx->reader->len - l->ctx->reader->pos <= l->most) return 0;
        fail(l, "an answer of more than %zu bytes", l->most);
        return -1;
    }
    if (!l->expected) {
        fail(l, "an answer that nobody asked for");
        return -1;
    }
    l->expected--;
    return 1;
}

static void write_some(redis_link *l)
{
    while (l->out_at < l->out_count) {
        struct msghdr message = {.msg_iov = l->out + l->out_at,
                                 .msg_iovlen = l->out_count - l->out_at};
        ssize_t n = sendmsg(l->ctx->fd, &message, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n < 0) {
            fail(l, "cannot write: %s", strerror(errno));
            return;
        }
        while (n > 0) {
            struct iovec *v = &l->out[l->out_at];
            size_t part = RAD_MIN((size_t)n, v->iov_len);
            v->iov_base = (char *)v->iov_base + part;
            v->iov_len -= part;
            n -= (ssize_t)part;
            if (!v->iov_len) l->out_at++;
        }
    }
    l->out_at = l->out_count = 0;
}

/* One piece: the caller parses between two, so that the buffer stays as small as an answer. */
static void read_some(redis_link *l)
{
    char piece[65536];
    ssize_t n = recv(l->ctx->fd, piece, sizeof piece, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0)
        fail(l, "cannot read: %s", strerror(errno));
    else if (n == 0)
        fail(l, "closed by the other side");
    else if (redisReaderFeed(l->ctx->reader, piece, (size_t)n) != REDIS_OK)
        fail(l, "no memory for an answer");
}

bool redis_links_move(const rad_env *env, redis_link **links, uint32_t count, uint64_t deadline_ns)
{
    struct pollfd fds[128];
    uint64_t now = env->now_ns(env->user);
    if (now >= deadline_ns) return false;
    count = RAD_MIN(count, (uint32_t)RAD_COUNT(fds));
    for (uint32_t i = 0; i < count; i++) {
        bool open = links[i]->ctx != NULL, writing = links[i]->out_at < links[i]->out_count;
        fds[i] = (struct pollfd){.fd = open ? links[i]->ctx->fd : -1,
                                 .events = (short)(POLLIN | (writing ? POLLOUT : 0))};
    }
    uint64_t ms = (deadline_ns - now) / 1000000u + 1;
    /* Not long: the clock may be a test's, and a question may be to end. */
    int ready = poll(fds, count, (int)RAD_MIN(ms, 100u));
    for (uint32_t i = 0; ready > 0 && i < count; i++) {
        if (links[i]->ctx && fds[i].revents & POLLOUT) write_some(links[i]);
        if (links[i]->ctx && fds[i].revents & (POLLIN | POLLHUP | POLLERR)) read_some(links[i]);
    }
    return true;
}

redisReply *redis_link_ask(redis_link *l, const rad_env *env, uint64_t deadline_ns, size_t most,
                           int argc, const char *const *argv)
{
    char command[2048];
    int len = snprintf(command, sizeof command, "*%d\r\n", argc);
    for (int i = 0; i < argc && len < (int)sizeof command; i++)
        len += snprintf(command + len, sizeof command - (size_t)len, "$%zu\r\n%s\r\n",
                        strlen(argv[i]), argv[i]);
    if (len >= (int)sizeof command) {
        fail(l, "a command that is too long");
        return NULL;
    }
    size_t usual = l->most;
    void *reply = NULL;
    parse_tree(l);
    l->most = most;
    l->expected = 1;
    redis_link_queue(l, command, (size_t)len);
    while (l->ctx && !reply) {
        if (l->stop && atomic_load(l->stop))
            fail(l, "cancelled");
        else if (!redis_links_move(env, &l, 1, deadline_ns))
            fail(l, "no answer in time");
        else if (l->ctx && redisReaderGetReply(l->ctx->reader, &reply) != REDIS_OK)
            fail(l, "what came is no answer: %.80s", l->ctx->reader->errstr);
        else if (l->ctx && !reply && l->ctx->reader->len - l->ctx->reader->pos > most)
            fail(l, "an answer of more than %zu bytes", most);
    }
    l->expected = 0;
    l->most = usual;
    if (l->ctx && l->out_at < l->out_count) fail(l, "an answer before the question");
    parse_flat(l);
    return reply;
}
