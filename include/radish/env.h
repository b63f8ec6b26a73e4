/* env.h - what radish needs from its surroundings: memory, time, a log, and
 * somebody to tell when our own code is wrong.
 *
 * Every create function takes a `const rad_env *` and copies it; NULL means the
 * default (malloc, CLOCK_MONOTONIC, no log, panic prints and aborts). Single
 * members may be NULL too and then mean the same default. So two caches in one
 * process, or a thousand in one test, do not share anything.
 *
 * The struct only grows at its end, and struct_size says how much of it the caller knows: members
 * behind that mean the default, and what a newer caller has behind our last one is not looked at.
 * A struct_size that ends before `alloc` does (0 among them) is an env of defaults. */
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

    /* The key of the hash tables that are filled from what users send (tokens, names, bytes of
     * text). 0: each object draws its own from the system's random numbers, so that nobody can
     * choose what collides. Anything else: keys made of it, the same in each run, for a replay
     * or a test that counts. No answer depends on it, only how long a lookup takes. */
    uint64_t hash_seed;
} rad_env;

#ifdef __cplusplus
}
#endif
#endif
