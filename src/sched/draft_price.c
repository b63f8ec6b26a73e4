/* draft_price.c - four terms by least squares.
 *
 * A core that others use as well makes some steps take several times as long. So a step counts for
 * no more than some times the usual difference from what was expected of it; the first ones with
 * rows, of which nothing is expected yet, for some times a step. */
#include "sched/draft_price.h"

#include <math.h>

enum { FIRST_PLAIN = 4, FIRST_WITH = 4 };
static const double SCALE[DRAFT_PRICE_TERMS] = {1, 1.0 / (1 << 14), 1.0 / 8, 1.0 / (1 << 16)};
static const double KEEP = 0.98, LEAST_LIMIT = 0.2, LIMIT_AT_FIRST = 2, SPREADS = 4;
enum { SPREAD_OF = 16 };

void draft_prices_init(draft_prices *p)
{
    *p = (draft_prices){0};
    for (int i = 0; i < DRAFT_PRICES; i++)
        ls_init(&p->of[i].ls, DRAFT_PRICE_TERMS, 2, KEEP);
}

void draft_prices_observe(draft_prices *p, const step_work *work, double ns)
{
    const uint32_t i = draft_price_bucket(work->num_decodes), rows = work->draft_rows;
    if (!work->num_decodes || (rows && p->of[i].plain < FIRST_PLAIN)) return;
    if (rows && !p->of[i].with) draft_prices_forget_rows(p, work->num_decodes);
    const double x[] = {SCALE[0], SCALE[1] * (work->pairs - work->draft_pairs), SCALE[2] * rows,
                        SCALE[3] * work->draft_pairs};
    const double expected = ls_at(&p->of[i].ls, x), error = ns - expected;
    double limit = RAD_MAX(LEAST_LIMIT * expected, SPREADS * p->of[i].spread);
    if (rows && p->of[i].with < FIRST_WITH) limit = LIMIT_AT_FIRST * expected;
    if (p->of[i].plain >= FIRST_PLAIN) {
        ns = expected + RAD_MAX(RAD_MIN(error, limit), -limit);
        p->of[i].spread += (fabs(ns - expected) - p->of[i].spread) / SPREAD_OF;
    }
    ls_observe(&p->of[i].ls, x, ns);
    if (rows)
        p->of[i].with++;
    else
        p->of[i].plain++;
}

bool draft_prices_get(const draft_prices *p, uint32_t num_decodes, double pairs, draft_price *out)
{
    const uint32_t i = draft_price_bucket(num_decodes);
    const double *theta = p->of[i].ls.theta;
    *out = (draft_price){.step = theta[0] * SCALE[0] + theta[1] * SCALE[1] * pairs,
                         .row = theta[2] * SCALE[2],
                         .row_at = theta[3] * SCALE[3],
                         .guessed = !p->of[i].with};
    return p->of[i].plain >= FIRST_PLAIN;
}

void draft_prices_forget_rows(draft_prices *p, uint32_t num_decodes)
{
    const uint32_t i = draft_price_bucket(num_decodes);
    p->of[i].with = 0;
    ls_forget(&p->of[i].ls, 2);
    ls_forget(&p->of[i].ls, 3);
}
