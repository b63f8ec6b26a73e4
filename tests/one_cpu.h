/* one_cpu.h - this process believes that it may use one CPU: CMake links the tests that include
 * this with --wrap.
 *
 * A pool of two threads then sleeps where it would spin (compute_pool.c). The same tiles run on the
 * same threads, but of a machine whose CPUs all run tests nobody takes a third to look whether
 * another thread, which waits for that CPU, is done. */
#ifndef TESTS_ONE_CPU_H
#define TESTS_ONE_CPU_H

#include "base/available.h"

uint32_t __wrap_cpus_available(void);

uint32_t __wrap_cpus_available(void)
{
    return 1;
}

#endif
