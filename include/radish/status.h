/* status.h - how radish says yes, no, and why.
 *
 * Zero is success. A positive status is a planned answer: the caller has a
 * plan for it (evict and ask again, wait and ask again). A negative status is
 * an error; the state is as it was before the call, and `rad_error`, where the
 * caller gave one, holds a sentence for a person to read. */
#ifndef RADISH_STATUS_H
#define RADISH_STATUS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define RAD_API              __attribute__((visibility("default")))
#define RAD_PRINTF(fmt, arg) __attribute__((format(printf, fmt, arg)))
#else
#define RAD_API
#define RAD_PRINTF(fmt, arg)
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t rad_status;

enum {
    RAD_OK = 0,
    RAD_FULL = 1,  /* no room now; nothing changed hands */
    RAD_AGAIN = 2, /* not ready yet; ask later */
    RAD_NONE = 3,  /* there is no such thing */

    RAD_E_INVAL = -1,       /* an argument or input is wrong */
    RAD_E_NOMEM = -2,       /* the allocator of the env said no */
    RAD_E_STATE = -3,       /* misuse: double free, stale ref, lock below zero */
    RAD_E_IO = -4,          /* the world is wrong: file, socket, disk */
    RAD_E_FORMAT = -5,      /* bytes from outside do not follow their format */
    RAD_E_UNSUPPORTED = -6, /* well formed, but not something we do */
    RAD_E_LIMIT = -7,       /* past a limit set at start */
    RAD_E_CORRUPT = -8      /* a check found our own structures wrong */
};

/* Words for a failed call. The caller owns it; it is only written on failure. */
typedef struct rad_error {
    rad_status status;
    char text[508];
} rad_error;

/* The name of a status, for logs: "RAD_FULL". Never NULL. Any thread; O(1). */
RAD_API const char *rad_status_name(rad_status status);

/* Fills `err` (may be NULL) and returns `status`, so that a failing function
 * ends in `return rad_fail(err, RAD_E_..., "...", ...)`. Words that do not fit are cut
 * off. Any thread; does not touch the heap. */
RAD_API rad_status rad_fail(rad_error *err, rad_status status, const char *fmt, ...)
    RAD_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif
#endif
