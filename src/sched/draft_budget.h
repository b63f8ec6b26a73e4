/* draft_budget.h - what guesses may cost that come to nothing.
 *
 * Whether drafts pay is only known by trying: rows are computed in vain, and whoever is asked takes
 * time. A budget bounds both. It is counted in steps, that is in times that a step without drafts
 * takes now:
 *
 *     + BUDGET_SHARE       with each step
 *     + 1 / requests       for each draft that was right: a token, which their step brings one of
 *                          for each of them
 *     - rows' prices       of drafts, when they are planned; they are cut to what is left
 *     - asking             what it took
 *
 * It begins full, with BUDGET_MOST, and never holds more. So whatever the texts, N steps with
 * guesses take no longer than the tokens would have taken without, and
 *
 *     BUDGET_SHARE * N + BUDGET_MOST      steps
 *
 * as far as prices are right (draft_price.h). While a row's price is not sure it counts for
 * BUDGET_ROW at most. What more it took, BUDGET_MOST at most, is taken off afterwards, and comes
 * back where the next try says that this was somebody else's doing (draft_tries.h): by so much a
 * price's first tries can exceed the bound.
 *
 * A second one (drafter.computed) is for sources that compute their guesses: from it their passes
 * are paid, and their rows once more, and into it comes what they were right about. So what passes
 * cost in vain is bounded as well. (What a small model catches up with is not in it: it is paid
 * with what is to come, see draft_model.c.)
 *
 * Below BUDGET_LOW all that is asked is spread over steps so that asking takes half of the share:
 * the rest is for rows, or nobody could ever show that he is right. */
#ifndef SCHED_DRAFT_BUDGET_H
#define SCHED_DRAFT_BUDGET_H

#include "base/base.h"

static const double BUDGET_SHARE = 0.01, BUDGET_MOST = 4, BUDGET_LOW = 1, BUDGET_ROW = 0.5;

typedef struct draft_budget {
    double left;
    double asking; /* what it took last, */
    double waited; /* steps ago */
} draft_budget;

void draft_budget_init(draft_budget *b);

/* A step begins that may have drafts. Returns whether those who guess may be asked in it. */
bool draft_budget_step(draft_budget *b);

/* They were, and it took so many steps' time. */
void draft_budget_asked(draft_budget *b, double steps);

/* How many of `rows` rows it pays for that take so many steps' time each. */
uint32_t draft_budget_rows(const draft_budget *b, uint32_t rows, double steps);

/* Negative: drafts were right. */
static inline void draft_budget_spend(draft_budget *b, double steps)
{
    b->left = RAD_MIN(b->left - steps, BUDGET_MOST);
}

#endif
