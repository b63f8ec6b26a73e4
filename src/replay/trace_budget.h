/* trace_budget.h - memory up to a limit: an env whose alloc gives no more than that, all together.
 *
 * A trace is a stranger's file; what it may cost is said before it is read. Any thread. */
#ifndef REPLAY_TRACE_BUDGET_H
#define REPLAY_TRACE_BUDGET_H

#include "base/base.h"

#include <stdatomic.h>

typedef struct trace_budget {
    rad_env inner;
    uint64_t limit;
    _Atomic uint64_t used;
} trace_budget;

/* `b` must live as long as the env that is returned. `inner` NULL: the default. */
rad_env trace_budget_env(trace_budget *b, const rad_env *inner, uint64_t limit_bytes);

/* Half of what the machine (or its control group) has to give now; 8 GiB where that is unknown. */
uint64_t trace_budget_default(void);

#endif
