/* process_figures.h - what the kernel says of this process: Prometheus's usual process_* metrics.
 */
#ifndef SERVER_PROCESS_FIGURES_H
#define SERVER_PROCESS_FIGURES_H

#include <stdint.h>

typedef struct process_figures { /* 0: the kernel does not say */
    double cpu_s, start_unix_s;
    uint64_t resident_bytes, virtual_bytes;
    uint64_t open_fds, max_fds, threads;
} process_figures;

void process_figures_get(process_figures *out);

#endif
