/* draft_budget.c - see the header. */
#include "sched/draft_budget.h"

/* Others may have had the core meanwhile: what asking took counts for no more than this. */
static const double MOST_ASKING = 0.125;

void draft_budget_init(draft_budget *b)
{
    *b = (draft_budget){.left = BUDGET_MOST};
}

bool draft_budget_step(draft_budget *b)
{
    draft_budget_spend(b, -BUDGET_SHARE);
    b->waited++;
    return b->left > BUDGET_LOW || b->waited * BUDGET_SHARE / 2 >= b->asking;
}

void draft_budget_asked(draft_budget *b, double steps)
{
    b->asking = RAD_MIN(steps, MOST_ASKING);
    b->waited = 0;
    draft_budget_spend(b, b->asking);
}

uint32_t draft_budget_rows(const draft_budget *b, uint32_t rows, double steps)
{
    if (!(b->left > 0)) return 0;
    return rows * steps <= b->left ? rows : (uint32_t)(b->left / steps);
}
