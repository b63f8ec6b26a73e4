/* redis_link.h - a connection to one node: commands out, answers in, never past a deadline.
 *
 * Commands are queued with their caller's buffers and go out while answers come in, so
 * neither side waits for the other. Answers are parsed by hiredis into a small struct and
 * straight into the caller's memory. Whatever is not what was asked for (another type,
 * another length, more than expected, nothing until the deadline) fails the link: it is
 * closed, since what comes next on it cannot be told from the answer of an earlier command. */
#ifndef STORAGE_REDIS_LINK_H
#define STORAGE_REDIS_LINK_H

#include <hiredis/hiredis.h>

#include "base/base.h"

#include <stdatomic.h>

#include <sys/uio.h>

enum { REDIS_CHUNK = 32, REDIS_TEXT = 256, REDIS_MOST_NESTED = 40000 };

/* One answer. Strings of more than REDIS_TEXT - 1 bytes are here only as their length. */
typedef struct redis_answer {
    int type; /* REDIS_REPLY_... */
    int64_t integer;
    size_t len;
    bool taken; /* it is in `target` */
    char text[REDIS_TEXT];
} redis_answer;

typedef struct redis_link {
    redisContext *ctx;                /* NULL: closed */
    redisReplyObjectFunctions *plain; /* hiredis's own, which build trees */
    redisReplyObjectFunctions functions;
    struct iovec out[REDIS_CHUNK * 3];
    uint64_t number; /* of the node (redis_map) that it was opened to */
    uint32_t out_at, out_count;
    uint32_t expected; /* answers still to come */
    size_t most;       /* bytes that an answer may have */
    uint32_t nested;   /* elements of the tree that is being read */
    void *target;      /* a string of exactly target_bytes goes here */
    size_t target_bytes;
    redis_answer answer;
    const atomic_bool *stop; /* redis_link_ask fails when this is set; or NULL */
    char why[128];           /* it failed */
} redis_link;

/* Connects, and authenticates where there is a password; false with `why`. */
bool redis_link_open(redis_link *l, const rad_env *env, const char *host, uint16_t port,
                     const char *user, const char *password, uint32_t timeout_ms);
void redis_link_close(redis_link *l); /* closed is fine */

/* Queues bytes that stay where they are until they are written; at most REDIS_CHUNK * 3. */
void redis_link_queue(redis_link *l, const void *bytes, size_t count);

/* Takes the next answer into l->answer: 1; 0: it is not there yet; -1: the link failed and
 * is closed. */
int redis_link_next(redis_link *l);

/* Waits until one of the links can go on, and moves bytes; false when the deadline passed. */
bool redis_links_move(const rad_env *env, redis_link **links, uint32_t count, uint64_t deadline_ns);

/* Sends one command and builds its answer as hiredis does, at most `most` bytes and
 * REDIS_MOST_NESTED elements; NULL with `why`, and the link is closed. freeReplyObject. */
redisReply *redis_link_ask(redis_link *l, const rad_env *env, uint64_t deadline_ns, size_t most,
                           int argc, const char *const *argv);

#endif
