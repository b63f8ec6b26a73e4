/* least_squares.c - see least_squares.h. */
#include "sched/least_squares.h"

static const double FRESH = 1e4;

void ls_init(least_squares *l, uint32_t terms, uint32_t known, double keep)
{
    *l = (least_squares){.terms = terms, .keep = keep};
    for (uint32_t i = 0; i < known; i++)
        l->p[i][i] = FRESH;
}

void ls_forget(least_squares *l, uint32_t term)
{
    for (uint32_t i = 0; i < l->terms; i++)
        l->p[i][term] = l->p[term][i] = 0;
    l->p[term][term] = FRESH;
    l->theta[term] = 0;
}

double ls_at(const least_squares *l, const double *x)
{
    double y = 0;
    for (uint32_t i = 0; i < l->terms; i++)
        y += l->theta[i] * x[i];
    return y;
}

/* Sets negative terms to 0, one after the other, and takes the rest along as they vary with it;
 * what was set to 0 stays there. */
static void set_negative_to_0(least_squares *l)
{
    const size_t n = l->terms;
    double p[LS_MOST][LS_MOST];
    memcpy(p, l->p, sizeof p);
    for (size_t round = 0; round < n; round++) {
        size_t least = 0;
        for (size_t i = 1; i < n; i++)
            if (l->theta[i] < l->theta[least]) least = i;
        const double below = l->theta[least], own = p[least][least];
        double with[LS_MOST];
        if (!(below < 0)) return;
        for (size_t i = 0; i < n; i++)
            with[i] = own > 0 ? p[i][least] / own : 0;
        for (size_t i = 0; i < n; i++)
            l->theta[i] -= with[i] * below;
        l->theta[least] = 0;
        for (size_t i = 0; i < n; i++) {
            const double row = p[i][least];
            for (size_t k = 0; k < n; k++)
                p[i][k] -= row * with[k];
        }
        for (size_t i = 0; i < n; i++)
            p[i][least] = p[least][i] = 0;
    }
    for (size_t i = 0; i < n; i++)
        l->theta[i] = RAD_MAX(l->theta[i], 0);
}

void ls_observe(least_squares *l, const double *x, double y)
{
    const size_t n = l->terms;
    double px[LS_MOST], xpx = l->keep, error = y - ls_at(l, x), trace = 0;
    for (size_t i = 0; i < n; i++) {
        px[i] = 0;
        for (size_t k = 0; k < n; k++)
            px[i] += l->p[i][k] * x[k];
    }
    for (size_t i = 0; i < n; i++)
        xpx += x[i] * px[i];
    for (size_t i = 0; i < n; i++) {
        l->theta[i] += px[i] / xpx * error;
        for (size_t k = 0; k < n; k++)
            l->p[i][k] -= px[i] * px[k] / xpx;
        trace += l->p[i][i];
    }
    for (size_t i = 0; i < n && trace < FRESH; i++)
        for (size_t k = 0; k < n; k++)
            l->p[i][k] /= l->keep;
    set_negative_to_0(l);
}
