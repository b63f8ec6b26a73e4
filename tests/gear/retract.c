/* retract.c - retracts before every n-th step; see the header. */
#include "gear/retract.h"

#include <stdatomic.h>

static atomic_uint every, steps;

bool __real_scheduler_step(scheduler *s);
bool __wrap_scheduler_step(scheduler *s);

void gear_retract_every(uint32_t n)
{
    atomic_store(&steps, 0);
    atomic_store(&every, n);
}

bool __wrap_scheduler_step(scheduler *s)
{
    uint32_t n = atomic_load(&every);
    bool decodes = false;
    for (uint32_t i = 0; n && i < s->num_running; i++)
        decodes |= s->running[i]->state == REQ_DECODE;
    if (decodes && (atomic_fetch_add(&steps, 1) + 1) % n == 0) scheduler_retract_one(s);
    return __real_scheduler_step(s);
}
