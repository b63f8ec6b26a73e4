/* draft_tries.c - see the header. */
#include "sched/draft_tries.h"

static const double SAME = 1.3, MUCH_CHEAPER = 0.7;

/* The k-th smallest of the newest. */
static double smallest(const draft_tries *t, uint32_t k)
{
    double sorted[TRIES_NEWEST];
    const uint32_t n = RAD_MIN(t->count, (uint32_t)TRIES_NEWEST);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at && sorted[at - 1] > t->newest[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = t->newest[i];
    }
    return sorted[k];
}

void draft_tries_add(draft_tries *t, double ns)
{
    if (t->doubted && ns < MUCH_CHEAPER * t->price) *t = (draft_tries){0};
    t->doubted = false;
    t->newest[t->count % TRIES_NEWEST] = ns;
    t->count++;
    t->price = smallest(t, t->count > TRIES_SURE ? 1 : 0);
}

bool draft_tries_sure(const draft_tries *t)
{
    if (t->doubted || t->count < 2) return false;
    return t->count >= TRIES_SURE || smallest(t, 1) <= SAME * smallest(t, 0);
}

double draft_tries_owe(draft_tries *t, double units, double planned, double step)
{
    t->units += units;
    t->charged += planned;
    const double owed = t->units * t->price / step - t->charged;
    t->charged += owed;
    return owed;
}

void draft_tries_doubt(draft_tries *t)
{
    t->doubted = true;
    t->units = t->charged = 0;
}

bool draft_tries_refuse(draft_tries *t, uint32_t steps)
{
    t->wait = RAD_MAX(t->wait, (uint32_t)TRY_AGAIN);
    t->refused += steps;
    if (t->refused < t->wait) return false;
    t->refused = 0;
    t->wait = RAD_MIN(2 * t->wait, (uint32_t)TRY_AGAIN_MOST);
    draft_tries_doubt(t);
    return true;
}
