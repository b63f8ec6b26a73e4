/* page_runs.h - the pages of a node, in the room of one number for each.
 *
 * An edge of `count` pages has a region of `count` numbers. There they stand one by one, or,
 * where they are few runs of neighbours, as these; the first number tells which:
 *
 *     plain   | 7 | 3 | 9 | 4 | 5 | 6 |           pages are never negative
 *     runs    | -2 | 7 1 | 12 5 |  .  |           7, then 12 13 14 15 16
 *
 * A prompt of a thousand one-token pages is mostly a dozen runs, so what a match, an
 * eviction and an insert read and write of it is two cache lines and not sixty. Runs are
 * kept only where they fit (1 + 2 * runs <= count) and are at most PAGE_RUNS; every change
 * of an edge's length writes the region anew in the form that fits. Plain always fits, so
 * the bounds of memory are those of plain pages.
 *
 * Nobody else reads a region's numbers: ask page_runs_at(), or have it made plain. */
#ifndef CACHE_PAGE_RUNS_H
#define CACHE_PAGE_RUNS_H

#include <radish/types.h>

#include "base/base.h"
#include "mem/kv_runs.h"

enum { PAGE_RUNS = 256 }; /* in one node: two kilobytes of stack where they are rewritten */

/* 0: the region is plain. */
static inline uint32_t page_runs_count(const rad_page *region)
{
    return region[0] < 0 ? 0u - (uint32_t)region[0] : 0;
}

static inline kv_run page_runs_get(const rad_page *region, uint32_t i)
{
    kv_run run;
    memcpy(&run, region + 1 + 2 * (size_t)i, sizeof run);
    return run;
}

/* Page number i of the region. `env` is for the panic, where the runs end before it. O(runs). */
static inline rad_page page_runs_at(const rad_env *env, const rad_page *region, uint32_t i)
{
    uint32_t n = page_runs_count(region);
    if (!n) return region[i];
    for (uint32_t k = 0;; k++) {
        RAD_ASSERT_ENV(env, k < n);
        kv_run run = page_runs_get(region, k);
        if (i < run.count) return run.first + (rad_page)i;
        i -= run.count;
    }
}

/* The runs of slots[0..num_pages * page_size) in pages, at most PAGE_RUNS. 0: there are more,
 * or the slots are no whole pages. */
uint32_t page_runs_find(const rad_slot *slots, uint32_t num_pages, uint32_t page_size,
                        kv_run runs[PAGE_RUNS]);

/* Writes runs of `count` pages in all, in the form that fits. */
void page_runs_put(rad_page *region, uint32_t count, const kv_run *runs, uint32_t num_runs);

/* The runs behind the first `kept` pages, 0 when the region is plain. */
uint32_t page_runs_tail(const rad_page *region, uint32_t kept, kv_run runs[PAGE_RUNS]);

/* The region keeps its first `kept` > 0 pages, and as many numbers. */
void page_runs_cut(rad_page *region, uint32_t kept);

/* Cuts a region of `count` pages in two, behind the first `at`. */
void page_runs_split(rad_page *region, uint32_t count, uint32_t at);

/* Makes one region of two that lie side by side. */
void page_runs_join(rad_page *region, uint32_t upper, uint32_t lower);

/* Moves the border between two regions that lie side by side: the first keeps its first `kept`
 * pages, the second gets the others in front of its own. */
void page_runs_shift(rad_page *region, uint32_t upper, uint32_t lower, uint32_t kept);

/* Page i is region[i] from now on, until the region is changed. O(count). */
void page_runs_make_plain(rad_page *region, uint32_t count);

/* Moves the regions that lie side by side in from[0..count) down to `to`; the places may
 * overlap. Of a region with runs only these are touched. */
void page_runs_move(const rad_env *env, rad_page *to, const rad_page *from, uint32_t count);

/* Calls visit for each of the region's `count` pages. */
void page_runs_visit(const rad_page *region, uint32_t count,
                     void (*visit)(void *user, rad_page page), void *user);

/* Whether the region says of itself `count` pages, none negative. O(count). */
bool page_runs_check(const rad_page *region, uint32_t count);

/* slots[0..num_pages * page_size) of the region's pages from `from` on. */
void page_runs_expand(const rad_page *region, uint32_t from, uint32_t num_pages, uint32_t page_size,
                      rad_slot *slots);

/* The same by tokens, which may begin and end within a page: slots[0..count) of the region's
 * tokens from `from` on. */
void page_runs_expand_part(const rad_env *env, const rad_page *region, uint32_t from,
                           uint32_t count, uint32_t page_size, rad_slot *slots);

#endif
