/* least_squares.h - costs of a few things that always come together, learned from their sums.
 *
 *     y = theta[0] * x[0] + theta[1] * x[1] + ...           of which x and y are seen
 *
 * Recursive least squares with forgetting, so that what was seen long ago counts less. Forgetting
 * lets the covariance of what does not happen grow without end (nobody sends a prompt for an hour),
 * and then the first time would be believed entirely. So it stops at what a fresh estimate has.
 * Terms are to be scaled so that they are about 1.
 *
 * Nothing costs less than nothing. A term that comes out negative is set to 0 the way that an
 * observation of it would do: the others take over what it stood for, so that sums stay as they
 * were seen. (Where one thing never comes without another, only their sum is known; cutting the one
 * to 0 would let the sum be anything.) */
#ifndef SCHED_LEAST_SQUARES_H
#define SCHED_LEAST_SQUARES_H

#include "base/base.h"

enum { LS_MOST = 6 };

typedef struct least_squares {
    uint32_t terms;
    uint32_t reserved;
    double keep;                /* of what is known, at each observation */
    double theta[LS_MOST];      /* none is negative */
    double p[LS_MOST][LS_MOST]; /* their covariance, up to a factor */
} least_squares;

/* Of `known` terms, the first so many, something is to be learned from now on; of the others from
 * ls_forget on. */
void ls_init(least_squares *l, uint32_t terms, uint32_t known, double keep);

/* Of this term nothing is known any more. */
void ls_forget(least_squares *l, uint32_t term);

void ls_observe(least_squares *l, const double *x, double y);
double ls_at(const least_squares *l, const double *x);

#endif
