/* draft_tries.h - a price of which a few measurements are all that is known.
 *
 * Others may have the core while something is measured: that makes it dearer, never cheaper. So the
 * price is the least of the first measurements, and the second least of the newest ones; and it is
 * not believed before several were taken, or two say the same. Until then whoever asks may try
 * although it seems too dear, within his budget:
 *
 *     measured   31        5        5       5 | 6  5  40  5      ns
 *     price      31        5        5       5 | 5 ...
 *     sure       no, try   no, try  yes: two say the same
 *
 * What tries cost is taken from the budget as what they are believed to have cost by then: the rest
 * of a disturbed one comes back with the next.
 *
 * What was too dear is tried again some time (doubt): once, and if it is much cheaper now, anew. */
#ifndef SCHED_DRAFT_TRIES_H
#define SCHED_DRAFT_TRIES_H

#include "base/base.h"

enum { TRIES_NEWEST = 8, TRIES_SURE = 4, TRY_AGAIN = 32, TRY_AGAIN_MOST = 1 << 14 };

typedef struct draft_tries {
    double price; /* ns of one; 0: nothing is known */
    double newest[TRIES_NEWEST];
    double charged; /* steps' time that measured ones were taken for, while it was not sure */
    double units;   /* of these */
    uint32_t count; /* of measurements */
    uint32_t refused,
        wait; /* so often it was too dear since; that is the end of it after so many */
    bool doubted;
} draft_tries;

/* One took ns. */
void draft_tries_add(draft_tries *t, double ns);

/* Whether the price is to be believed. */
bool draft_tries_sure(const draft_tries *t);

/* So many more were measured, for which `planned` steps' time was taken already: what is to be
 * taken for them now, negative: comes back. step: ns. */
double draft_tries_owe(draft_tries *t, double units, double planned, double step);

/* It may be another now: it is to be tried once. */
void draft_tries_doubt(draft_tries *t);

/* It was too dear, so many steps. True: long enough to doubt it, and it does. */
bool draft_tries_refuse(draft_tries *t, uint32_t steps);

/* It was not. */
static inline void draft_tries_accept(draft_tries *t)
{
    t->refused = t->wait = 0;
}

#endif
