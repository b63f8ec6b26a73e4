/* kv_runs.h - pages that follow each other, named by the first one and their number.
 *
 * Whoever takes and gives pages back in the order in which they were handed out has mostly
 * a few runs of them, whatever their number: checking and marking a run is a matter of
 * words of bits and not of pages. */
#ifndef MEM_KV_RUNS_H
#define MEM_KV_RUNS_H

#include <radish/kv_allocator.h>

typedef struct kv_run {
    rad_page first;
    uint32_t count; /* > 0 */
} kv_run;

/* As rad_kv_free for the pages of all the runs in their order. O(runs + pages / 64), and
 * writing each page to the free list. */
rad_status kv_free_runs(rad_kv_allocator *a, const kv_run *runs, uint32_t num_runs, rad_error *err);

#endif
