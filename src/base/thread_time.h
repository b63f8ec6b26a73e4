/* thread_time.h - CPU time of the calling thread: what others do on the machine meanwhile hardly
 * counts. */
#ifndef BASE_THREAD_TIME_H
#define BASE_THREAD_TIME_H

#include <stdint.h>
#include <time.h>

static inline uint64_t thread_time_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

#endif
