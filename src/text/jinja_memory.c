/* jinja_memory.c - the arena, the limits, and the one way out for errors.
 *
 *     chunks  [ small ]<-[ larger ]<-[ larger still | free ....... ]
 *                                                   ^ used
 *
 * Chunks grow up to a megabyte, so that a small template costs a few kilobytes and a long
 * conversation few calls. What is larger than a quarter of a chunk gets one of its own.
 *
 * Invariant: memory = the bytes of all chunks <= max_memory. */
#include "text/jinja_value.h"

#include <stdarg.h>
#include <stdio.h>

enum { FIRST_CHUNK = 4096, LARGEST_CHUNK = 1 << 20, ALIGN = 16 };

typedef struct jchunk {
    struct jchunk *next;
    size_t bytes, used; /* of the whole allocation, this header included */
} jchunk;

void jctx_init(jctx *c, const rad_env *env, const jinja_limits *limits, rad_error *err)
{
    *c = (jctx){.env = *env, .err = err, .line = 1};
    c->max_memory = limits->memory ? limits->memory : (size_t)512 << 20;
    c->max_string = limits->output ? limits->output : (size_t)128 << 20;
    c->max_string = RAD_MIN(c->max_string, (size_t)UINT32_MAX / 2);
    c->max_steps = limits->steps ? limits->steps : 20 * 1000 * 1000;
    c->steps = c->max_steps;
}

void jctx_fini(jctx *c)
{
    while (c->chunks) {
        jchunk *chunk = c->chunks;
        c->chunks = chunk->next;
        rad_free(&c->env, chunk, chunk->bytes);
    }
}

_Noreturn void jinja_fail(jctx *c, rad_status status, const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    c->status = status;
    if (c->raised)
        rad_fail(c->err, status, "%s", text);
    else
        rad_fail(c->err, status, "chat template, line %u: %s", c->line, text);
    longjmp(c->out, 1);
}

static jchunk *add_chunk(jctx *c, size_t bytes)
{
    if (bytes > c->max_memory - c->memory)
        jinja_fail(c, RAD_E_LIMIT, "rendering takes more than %zu MiB", c->max_memory >> 20);
    jchunk *chunk = rad_alloc(&c->env, bytes);
    if (!chunk) jinja_fail(c, RAD_E_NOMEM, "no memory");
    c->memory += bytes;
    chunk->bytes = bytes;
    chunk->used = (sizeof *chunk + ALIGN - 1) / ALIGN * ALIGN;
    return chunk;
}

void *jalloc(jctx *c, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 4)
        jinja_fail(c, RAD_E_LIMIT, "a value is too large");
    bytes = (RAD_MAX(bytes, 1) + ALIGN - 1) / ALIGN * ALIGN;
    jwork(c, JINJA_CALL + 4 * (uint64_t)bytes); /* it is zeroed, and mostly new to the cache */
    jchunk *chunk = c->chunks;
    if (!chunk || bytes > chunk->bytes - chunk->used) {
        size_t next = chunk ? RAD_MIN(chunk->bytes * 2, (size_t)LARGEST_CHUNK) : FIRST_CHUNK;
        next = RAD_MAX(next, (size_t)FIRST_CHUNK);
        bool alone = bytes > next / 4;
        chunk = add_chunk(c, alone ? bytes + 2 * ALIGN + sizeof *chunk : next);
        if (alone && c->chunks) { /* the one in use stays in front */
            chunk->next = c->chunks->next;
            c->chunks->next = chunk;
        } else {
            chunk->next = c->chunks;
            c->chunks = chunk;
        }
    }
    void *p = (char *)chunk + chunk->used;
    chunk->used += bytes;
    return p;
}

void jsteps(jctx *c, uint64_t n)
{
    if (n > c->steps)
        jinja_fail(c, RAD_E_LIMIT,
                   "rendering takes too many steps, more than %llu; work on long texts and lists "
                   "counts, too",
                   (unsigned long long)c->max_steps);
    c->steps -= n;
}

void jwork(jctx *c, uint64_t parts)
{
    parts += c->parts;
    c->parts = parts % JINJA_STEP;
    jsteps(c, parts / JINJA_STEP);
}

void jenter(jctx *c)
{
    if (++c->depth > JINJA_MAX_DEPTH)
        jinja_fail(c, RAD_E_LIMIT, "nested deeper than %d levels", JINJA_MAX_DEPTH);
    jsteps(c, 1);
}
