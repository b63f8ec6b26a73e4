/* env.h - what radish needs from its surroundings: memory, time, a log, and
 * somebody to tell when our own code is wrong.
 *
 * Every create function takes a `const rad_env *` and copies it; NULL means the
 * default (malloc, CLOCK_MONOTONIC, no log, panic prints and aborts). Single
 * members may be NULL too and then mean the same default. So two caches in one
 * process, or a thousand in one test, do not share anything. */
#ifndef RADISH_ENV_H
#define RADISH_ENV_H

#include <radish/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rad_log_level {
    RAD_LOG_ERROR = 0,
    RAD_LOG_WARN = 1,
    RAD_LOG_INFO = 2,
    RAD_LOG_DEBUG = 3
} rad_log_level;

typedef struct rad_env {
    size_t struct_size; /* sizeof(rad_env) */
    void *user;         /* handed to every function below */

    /* Memory aligned to 64 bytes, or NULL. `free` gets the size back. Called
     * from the thread that owns the object, and from create and destroy. */
    void *(*alloc)(void *user, size_t bytes);
    void (*free)(void *user, void *memory, size_t bytes);

    uint64_t (*now_ns)(void *user); /* monotonic nanoseconds */
    void (*log)(void *user, rad_log_level level, const char *message);

    /* Our own code is wrong. May not return to a caller that goes on: abort,
     * or leave by longjmp or by ending the thread. */
    void (*panic)(void *user, const char *message);
} rad_env;

#ifdef __cplusplus
}
#endif
#endif
