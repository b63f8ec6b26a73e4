/* draft_price.c - four terms by least squares.
 *
 * A core that others use as well makes some steps take several times as long. So a step counts for
 * no more than some times the usual difference from what was expected of it. Of the first ones
 * nothing is expected yet: they are kept until it is known what the least disturbed of them took,
 * and count for little more than that. */
#include "sched/draft_price.h"

#include <math.h>

enum { FIRST_PLAIN = TRIES_SURE /* they lie where first rows do */ };
static const double SCALE[DRAFT_PRICE_TERMS] = {1, 1.0 / (1 << 14), 1.0 / 8, 1.0 / (1 << 16)};
static const double KEEP = 0.98, LEAST_LIMIT = 0.2, SPREADS = 2;
enum { SPREAD_OF = 16 };

void draft_prices_init(draft_prices *p)
{
    *p = (draft_prices){0};
    for (int i = 0; i < DRAFT_PRICES; i++)
        ls_init(&p->of[i].ls, DRAFT_PRICE_TERMS, 2, KEEP);
}

/* What is near what it is expected to be. */
static double within(double ns, double expected, double limit)
{
    return expected + RAD_MAX(RAD_MIN(ns - expected, limit), -limit);
}

static void keep_first(draft_first *first, const double *x, double ns)
{
    memcpy(first->x, x, sizeof first->x);
    first->ns = ns;
}

/* A step without rows, of the first. */
static void observe_first(struct draft_prices_of *of, const double *x, double ns)
{
    keep_first(&of->first[of->plain++], x, ns);
    if (of->plain < FIRST_PLAIN) return;
    double least = ns;
    for (int i = 0; i < FIRST_PLAIN; i++)
        least = RAD_MIN(least, of->first[i].ns);
    for (int i = 0; i < FIRST_PLAIN; i++)
        ls_observe(&of->ls, of->first[i].x, within(of->first[i].ns, least, LEAST_LIMIT * least));
}

/* A step with rows whose price is not sure. */
static void observe_tries(struct draft_prices_of *of, const double *x, double ns, uint32_t rows)
{
    const double plain[] = {x[0], x[1], 0, 0}, base = ls_at(&of->ls, plain);
    const bool again = of->row.doubted;
    if (of->with) of->row.price = RAD_MAX(ls_at(&of->ls, x) - base, 0) / rows;
    draft_tries_add(&of->row, RAD_MAX(ns - base, 0) / rows);
    if (again && of->row.count > 1) return; /* as dear as it was */
    if (again) of->with = 0;
    keep_first(&of->first[(of->row.count - 1) % TRIES_SURE], x, ns);
    if (!draft_tries_sure(&of->row)) return;
    ls_forget(&of->ls, 2);
    ls_forget(&of->ls, 3);
    for (uint32_t i = 0; i < RAD_MIN(of->row.count, (uint32_t)TRIES_SURE); i++, of->with++) {
        const draft_first *f = &of->first[i];
        const double all = f->x[2] / SCALE[2] * of->row.price;
        const double without[] = {f->x[0], f->x[1], 0, 0};
        ls_observe(&of->ls, f->x, within(f->ns, ls_at(&of->ls, without) + all, all / 2));
    }
}

void draft_prices_observe(draft_prices *p, const step_work *work, double ns)
{
    const uint32_t rows = work->draft_rows;
    struct draft_prices_of *of = &p->of[draft_price_bucket(work->num_decodes)];
    if (!work->num_decodes || (rows && of->plain < FIRST_PLAIN)) return;
    const double x[] = {SCALE[0], SCALE[1] * (work->pairs - work->draft_pairs), SCALE[2] * rows,
                        SCALE[3] * work->draft_pairs};
    if (of->plain < FIRST_PLAIN) {
        observe_first(of, x, ns);
        return;
    }
    if (rows && !draft_tries_sure(&of->row)) {
        observe_tries(of, x, ns, rows);
        return;
    }
    const double expected = ls_at(&of->ls, x);
    ns = within(ns, expected, RAD_MAX(LEAST_LIMIT * expected, SPREADS * of->spread));
    of->spread += (fabs(ns - expected) - of->spread) / SPREAD_OF;
    ls_observe(&of->ls, x, ns);
    of->with += rows > 0;
    of->plain += !rows;
}

bool draft_prices_get(const draft_prices *p, uint32_t num_decodes, double pairs, draft_price *out)
{
    const struct draft_prices_of *of = &p->of[draft_price_bucket(num_decodes)];
    const double *theta = of->ls.theta;
    *out = (draft_price){.step = theta[0] * SCALE[0] + theta[1] * SCALE[1] * pairs,
                         .row = of->with ? theta[2] * SCALE[2] : of->row.price,
                         .row_at = of->with ? theta[3] * SCALE[3] : 0,
                         .guessed = !of->row.count,
                         .unsure = !draft_tries_sure(&of->row)};
    return of->plain >= FIRST_PLAIN;
}

uint32_t draft_price_pays(const draft_price *p, uint32_t positions, double right, uint32_t count,
                          double *ns, double *tokens)
{
    const double row = draft_price_of_row(p, positions);
    double likely = right;
    uint32_t n = 0;
    for (; n < count && likely * *ns > DRAFT_MARGIN * row * *tokens; n++) {
        *ns += row;
        *tokens += likely;
        likely *= right;
    }
    return n;
}

void draft_prices_doubt_rows(draft_prices *p, uint32_t num_decodes)
{
    draft_tries_doubt(draft_prices_row(p, num_decodes));
}
