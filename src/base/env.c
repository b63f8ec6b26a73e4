/* env.c - the default surroundings: malloc, the monotonic clock, stderr for a
 * panic. A caller's env replaces any of them. */
#include "base/base.h"
#include "base/log_text.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static void *default_alloc(void *user, size_t bytes)
{
    (void)user;
    size_t rounded = (bytes + 63) & ~(size_t)63; /* aligned_alloc wants a multiple */
    return rounded < bytes ? NULL : aligned_alloc(64, rounded);
}

static void default_free(void *user, void *memory, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(memory);
}

static uint64_t default_now_ns(void *user)
{
    (void)user;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void default_log(void *user, rad_log_level level, const char *message)
{
    (void)user;
    (void)level;
    (void)message;
}

static void default_panic(void *user, const char *message)
{
    (void)user;
    fprintf(stderr, "radish: %s\n", message);
    abort();
}

rad_env rad_env_or_default(const rad_env *env)
{
    rad_env full = {.struct_size = sizeof full};
    if (env && env->struct_size >= offsetof(rad_env, free)) {
        size_t known = RAD_MIN(env->struct_size, sizeof full); /* whole members of it */
        memcpy(&full, env, known - known % sizeof(void (*)(void)));
        full.struct_size = sizeof full;
    }
    if (!full.alloc || !full.free) {
        full.alloc = default_alloc;
        full.free = default_free;
    }
    if (!full.now_ns) full.now_ns = default_now_ns;
    if (!full.log) full.log = default_log;
    if (!full.panic) full.panic = default_panic;
    return full;
}

void *rad_alloc(const rad_env *env, size_t bytes)
{
    if (!bytes) return NULL;
    void *memory = env->alloc(env->user, bytes);
    if (memory) memset(memory, 0, bytes);
    return memory;
}

void rad_free(const rad_env *env, void *memory, size_t bytes)
{
    if (memory) env->free(env->user, memory, bytes);
}

/* Pages that the kernel makes at the first write, in place of memory that is cleared now. */
static bool is_mapped(const rad_env *env, size_t bytes)
{
    return bytes >= (size_t)1 << 20 && env->alloc == default_alloc;
}

/* Tables that all began where a page does would have what is used together, the first of each, in
 * the same few sets of the CPU's cache: each begins some lines further, by its size. */
enum { PAGE = 4096, LINE = 64 };

static size_t first_line(size_t bytes)
{
    return (bytes / LINE * 29 + 7) % (PAGE / LINE) * LINE;
}

void *rad_alloc_sparse(const rad_env *env, size_t bytes)
{
    if (!is_mapped(env, bytes)) return rad_alloc(env, bytes);
    if (bytes > SIZE_MAX - PAGE) return NULL;
    char *memory = mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory + first_line(bytes);
}

void rad_free_sparse(const rad_env *env, void *memory, size_t bytes)
{
    if (!is_mapped(env, bytes))
        rad_free(env, memory, bytes);
    else if (memory)
        munmap((char *)memory - first_line(bytes), bytes + PAGE);
}

void rad_log(const rad_env *env, rad_log_level level, const char *fmt, ...)
{
    char line[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    log_text_clean(line);
    env->log(env->user, level, line);
}

void rad_panic(const rad_env *env, const char *file, int line, const char *what)
{
    char message[512];
    snprintf(message, sizeof message, "%s:%d: broken assertion: %s", file, line, what);
    rad_env full = rad_env_or_default(env);
    full.panic(full.user, message);
}
