/* base.h - what every room uses: memory through the env, assertions, time. */
#ifndef BASE_BASE_H
#define BASE_BASE_H

#include <radish/env.h>
#include <stdbool.h>
#include <string.h>

/* A complete copy of `env` (or of the default for NULL): no member is NULL. */
rad_env rad_env_or_default(const rad_env *env);

/* Zeroed memory, aligned to 64 bytes; NULL when there is none or `bytes` is 0.
 * `env` must come from rad_env_or_default. */
void *rad_alloc(const rad_env *env, size_t bytes);
void rad_free(const rad_env *env, void *memory, size_t bytes); /* NULL is fine */

/* The same for a table of which mostly a small part is ever used: under the default allocator what
 * was not written takes no memory, where the table is large. Not to be mixed with the pair above.
 */
void *rad_alloc_sparse(const rad_env *env, size_t bytes);
void rad_free_sparse(const rad_env *env, void *memory, size_t bytes);

/* count * size, or 0 when that does not fit: rad_alloc then says no. */
static inline size_t rad_mul(size_t count, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? 0 : bytes;
}

/* To env->log as one line without controls, see log_text.h; longer ones are cut at 1023 bytes. */
void rad_log(const rad_env *env, rad_log_level level, const char *fmt, ...) RAD_PRINTF(3, 4);

/* Our own code is wrong: reports through env->panic, in release builds too. */
void rad_panic(const rad_env *env, const char *file, int line, const char *what);

/* For code that has an env at hand; RAD_ASSERT is for code that has none and uses
 * the default env's panic. */
#define RAD_ASSERT_ENV(env, condition)                                                             \
    ((condition) ? (void)0 : rad_panic((env), __FILE__, __LINE__, #condition))
#define RAD_ASSERT(condition) RAD_ASSERT_ENV(NULL, condition)

#define RAD_MIN(a, b)    ((a) < (b) ? (a) : (b))
#define RAD_MAX(a, b)    ((a) > (b) ? (a) : (b))
#define RAD_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Before a function whose loops should become vectors also where -O2 is careful. */
#if defined(__GNUC__) && !defined(__clang__)
#define RAD_VECTORIZE __attribute__((optimize("O3")))
#else
#define RAD_VECTORIZE
#endif

#endif
