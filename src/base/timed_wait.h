/* timed_wait.h - conditions that are waited for until a moment of the monotonic clock, so that
 * setting the machine's time neither ends a wait nor prolongs it. */
#ifndef BASE_TIMED_WAIT_H
#define BASE_TIMED_WAIT_H

#include "base/base.h"

#include <pthread.h>
#include <time.h>

static inline uint64_t monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* The moment `ns` from now; centuries ahead if that is more. */
static inline uint64_t monotonic_in(uint64_t ns)
{
    return monotonic_ns() + RAD_MIN(ns, (uint64_t)INT64_MAX / 2);
}

/* A condition that wait_until takes; it ends with pthread_cond_destroy. */
static inline void cond_init_monotonic(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

/* As pthread_cond_wait; false: the moment has come. */
static inline bool wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t at_ns)
{
    const struct timespec at = {.tv_sec = (time_t)(at_ns / 1000000000),
                                .tv_nsec = (long)(at_ns % 1000000000)};
    return pthread_cond_timedwait(cond, lock, &at) == 0;
}

#endif
