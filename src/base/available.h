/* available.h - what this process may use: what the machine has, or less where a control group of
 * it (a container's, a service's), or one above, grants less. Linux; elsewhere what is known. */
#ifndef BASE_AVAILABLE_H
#define BASE_AVAILABLE_H

#include "base/base.h"

/* Bytes that can be taken without swapping; 0 = unknown. Reads a few small files. */
uint64_t memory_available(void);

/* CPUs, at least 1: those of the affinity, or a quota of CPU time in CPUs, rounded up. */
uint32_t cpus_available(void);

/* For tests: other folders than /proc and where control groups are mounted, /sys/fs/cgroup. */
uint64_t memory_available_by(const char *proc, const char *groups);
uint64_t cpus_granted_by(const char *proc, const char *groups); /* UINT64_MAX: no quota */

#endif
