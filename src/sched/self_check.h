/* self_check.h - promise P2 while the server runs: an idle scheduler looks at itself.
 *
 *     free + cached + held by requests == all       slot by slot, and every structure's *_check
 *
 * A round goes over everything, in four pieces: rows, the cache with its allocators and tiers,
 * the queue, ownership. Requests are served between two pieces, so a request waits for one piece
 * at most: `longest_ns`, some 10 to 20 ns for each page of the device and host pools (1 ms for
 * 100,000 pages, 21 ms for a million). A piece begins only when nothing has run or waited for a
 * fifth of a second; the check's age says when a server is never that idle.
 *
 * A violation is logged with the slots and their owners, and counted; the server goes on. */
#ifndef SCHED_SELF_CHECK_H
#define SCHED_SELF_CHECK_H

#include "base/base.h"
#include "sched/scheduler_stats.h"

/* Where the round is. */
typedef struct self_check {
    uint32_t next_piece; /* 0: no round is under way */
    bool incomplete;     /* a piece of this round had no memory */
    uint64_t last_ns;    /* the end of the last round, or create */
    uint64_t quiet_ns;   /* the end of the last step that had something to do */
} self_check;

#endif
