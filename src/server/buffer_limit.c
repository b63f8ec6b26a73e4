/* buffer_limit.c - one limit for what all connections together may have sent us.
 *
 * Each body is bounded, and so are the connections, but their product is 256 GiB. evhttp
 * has no hook that sees a body grow, so the limit sits where every one of its buffers
 * comes from: libevent's allocator. Past the limit a large piece (they are what bodies
 * and answers are made of) is refused; libevent then drops the connection that wanted it.
 * Small pieces always pass, so that connections, errors and short answers go on working; those
 * that malloc itself refuses come from a reserve (memory_reserve.h).
 *
 * `held` counts what libevent has, in usable bytes as malloc rounds them. */
#include "server/memory_reserve.h"
#include "server/server.h"

#include <errno.h>
#include <event2/event.h>
#include <jansson.h>
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

/* The reserve's is held anyway. */
static size_t held_by(void *memory)
{
    return memory && !memory_reserve_owns(memory) ? malloc_usable_size(memory) : 0;
}

/* A large piece is a buffer's, and where there is none for it libevent says so. */
static void *limited_malloc(size_t bytes)
{
    void *memory = NULL;
    if (!refuse(bytes))
        memory = bytes > MEMORY_RESERVE_PIECE ? malloc(bytes) : memory_reserve_malloc(bytes);
    atomic_fetch_add(&held, held_by(memory));
    return memory;
}

static void limited_free(void *memory)
{
    atomic_fetch_sub(&held, held_by(memory));
    memory_reserve_free(memory);
}

static void *limited_realloc(void *memory, size_t bytes)
{
    size_t before = held_by(memory);
    if (bytes > before && refuse(bytes - before)) return NULL;
    void *now = memory_reserve_realloc(memory, bytes);
    if (now) {
        atomic_fetch_sub(&held, before);
        atomic_fetch_add(&held, held_by(now));
    }
    return now;
}

void server_limit_buffers(uint64_t bytes)
{
    limit = bytes > SIZE_MAX ? SIZE_MAX : (size_t)bytes;
    (void)memory_reserve_fill(); /* else an allocation that fails is what it was before */
    event_set_mem_functions(limited_malloc, limited_realloc, limited_free);
    json_set_alloc_funcs(memory_reserve_malloc, memory_reserve_free);
}
