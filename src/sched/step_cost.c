/* step_cost.c - six terms by least squares (least_squares.h), scaled to be about 1 in a usual step.
 *
 * The covariance of drafts begins with the first of them: on most servers there are none, and what
 * never happens would look like what is not known yet, for the sake of which nothing is forgotten.
 */
#include "sched/step_cost.h"

#include <math.h>

static const double SCALE[STEP_COST_TERMS] = {1,        1.0 / 16, 1.0 / 256, 1.0 / (1 << 18),
                                              1.0 / 16, 1.0 / 16};
static const double KEEP = 0.98;
enum { FIRST_TOKENS = 64, FIRST_ENDS = 8, DRAFTS = STEP_COST_TERMS - 1 };

void step_cost_init(step_cost *c)
{
    *c = (step_cost){0};
    ls_init(&c->ls, STEP_COST_TERMS, DRAFTS, KEEP);
}

static void terms_of(const step_work *w, double x[STEP_COST_TERMS])
{
    x[0] = SCALE[0];
    x[1] = SCALE[1] * w->num_decodes;
    x[2] = SCALE[2] * w->prompt_tokens;
    x[3] = SCALE[3] * w->pairs;
    x[4] = SCALE[4] * w->prompt_ends;
    x[DRAFTS] = SCALE[DRAFTS] * w->draft_rows;
}

void step_cost_observe(step_cost *c, const step_work *work, double ns)
{
    double x[STEP_COST_TERMS];
    terms_of(work, x);
    if (work->draft_rows && !c->drafts_seen) {
        c->drafts_seen = true;
        ls_forget(&c->ls, DRAFTS);
    }
    ls_observe(&c->ls, x, ns);
    c->most_prompt_tokens = RAD_MAX(c->most_prompt_tokens, work->prompt_tokens);
    c->most_prompt_ends = RAD_MAX(c->most_prompt_ends, work->prompt_ends);
}

static double coefficient(const step_cost *c, int i)
{
    return c->ls.theta[i] * SCALE[i];
}

double step_cost_ns(const step_cost *c, const step_work *w)
{
    double x[STEP_COST_TERMS];
    terms_of(w, x);
    return ls_at(&c->ls, x);
}

double step_cost_prompt_ns(const step_cost *c, uint32_t context, uint32_t tokens)
{
    return coefficient(c, 2) * tokens + coefficient(c, 3) * step_pairs(context, tokens);
}

double step_cost_prompt_end_ns(const step_cost *c)
{
    return coefficient(c, 4);
}

/* n * (token + pair * (context + 1/2)) + n^2 * pair / 2 <= ns */
uint32_t step_cost_fit(const step_cost *c, uint32_t context, bool sampled, double ns)
{
    double pair = coefficient(c, 3), linear = coefficient(c, 2) + pair * (context + 0.5);
    if (sampled) linear += coefficient(c, 4);
    if (!(ns > 0)) return 0;
    double n = 2 * ns / (linear + sqrt(linear * linear + 2 * pair * ns));
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX; /* also when nothing costs anything */
}

uint32_t step_cost_trusted_tokens(const step_cost *c)
{
    uint64_t tokens = 2 * (uint64_t)c->most_prompt_tokens;
    return (uint32_t)RAD_MAX(RAD_MIN(tokens, (uint64_t)UINT32_MAX), (uint64_t)FIRST_TOKENS);
}

uint32_t step_cost_trusted_ends(const step_cost *c)
{
    uint64_t ends = 2 * (uint64_t)c->most_prompt_ends;
    return (uint32_t)RAD_MAX(RAD_MIN(ends, (uint64_t)UINT32_MAX), (uint64_t)FIRST_ENDS);
}
