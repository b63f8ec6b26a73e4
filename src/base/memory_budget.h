/* memory_budget.h - one limit for memory that many take from.
 *
 * Who is about to use much asks first, and gives back what it no longer holds. It counts what it
 * is told: estimates or bytes. Any threads; NULL is a budget without a limit. */
#ifndef BASE_MEMORY_BUDGET_H
#define BASE_MEMORY_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct memory_budget {
    uint64_t limit; /* bytes; constant */
    _Atomic uint64_t used;
    _Atomic uint64_t peak; /* of used */
} memory_budget;

/* False: that is more than is left, and nothing was taken. */
static inline bool memory_budget_take(memory_budget *b, uint64_t bytes)
{
    if (!b) return true;
    uint64_t used = atomic_load(&b->used), now;
    do {
        if (used > b->limit || bytes > b->limit - used) return false;
        now = used + bytes;
    } while (!atomic_compare_exchange_weak(&b->used, &used, now));
    uint64_t peak = atomic_load(&b->peak);
    while (now > peak && !atomic_compare_exchange_weak(&b->peak, &peak, now))
        ;
    return true;
}

static inline void memory_budget_give(memory_budget *b, uint64_t bytes)
{
    if (b) atomic_fetch_sub(&b->used, bytes);
}

#endif
