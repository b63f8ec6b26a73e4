/* buffer_limit.c - one limit for what all connections together may have sent us.
 *
 * Each body is bounded, and so are the connections, but their product is 256 GiB. evhttp
 * has no hook that sees a body grow, so the limit sits where every one of its buffers
 * comes from: libevent's allocator. Past the limit a large piece (they are what bodies
 * and answers are made of) is refused; libevent then drops the connection that wanted it.
 * Small pieces always pass, so that connections, errors and short answers go on working.
 *
 * `held` counts what libevent has, in usable bytes as malloc rounds them. */
#include "server/server.h"

#include <errno.h>
#include <event2/event.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { LARGE = 2048 };

static _Atomic size_t held;
static size_t limit;

static bool refuse(size_t bytes)
{
    if (bytes < LARGE || (bytes <= limit && atomic_load(&held) <= limit - bytes)) return false;
    errno = ENOMEM; /* what libevent looks at when a read fails */
    return true;
}

static void *limited_malloc(size_t bytes)
{
    void *memory = refuse(bytes) ? NULL : malloc(bytes);
    if (memory) atomic_fetch_add(&held, malloc_usable_size(memory));
    return memory;
}

static void limited_free(void *memory)
{
    if (memory) atomic_fetch_sub(&held, malloc_usable_size(memory));
    free(memory);
}

static void *limited_realloc(void *memory, size_t bytes)
{
    size_t before = memory ? malloc_usable_size(memory) : 0;
    if (bytes > before && refuse(bytes - before)) return NULL;
    void *now = realloc(memory, bytes);
    if (now) {
        atomic_fetch_sub(&held, before);
        atomic_fetch_add(&held, malloc_usable_size(now));
    }
    return now;
}

void server_limit_buffers(uint64_t bytes)
{
    limit = bytes > SIZE_MAX ? SIZE_MAX : (size_t)bytes;
    event_set_mem_functions(limited_malloc, limited_realloc, limited_free);
}
