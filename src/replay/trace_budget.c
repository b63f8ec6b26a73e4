/* trace_budget.c - see the header. */
#include "replay/trace_budget.h"

#include "base/available.h"

static void *budget_alloc(void *user, size_t bytes)
{
    trace_budget *b = user;
    const uint64_t before = atomic_fetch_add(&b->used, bytes);
    void *memory = before <= b->limit && bytes <= b->limit - before
                       ? b->inner.alloc(b->inner.user, bytes)
                       : NULL;
    if (!memory) atomic_fetch_sub(&b->used, bytes);
    return memory;
}

static void budget_free(void *user, void *memory, size_t bytes)
{
    trace_budget *b = user;
    if (memory) atomic_fetch_sub(&b->used, bytes);
    b->inner.free(b->inner.user, memory, bytes);
}

static uint64_t budget_now(void *user)
{
    trace_budget *b = user;
    return b->inner.now_ns(b->inner.user);
}

static void budget_panic(void *user, const char *message)
{
    trace_budget *b = user;
    b->inner.panic(b->inner.user, message);
}

static void budget_log(void *user, rad_log_level level, const char *message)
{
    trace_budget *b = user;
    if (b->inner.log) b->inner.log(b->inner.user, level, message);
}

rad_env trace_budget_env(trace_budget *b, const rad_env *inner, uint64_t limit_bytes)
{
    *b = (trace_budget){.inner = rad_env_or_default(inner), .limit = limit_bytes};
    rad_env env = b->inner;
    env.user = b;
    env.alloc = budget_alloc;
    env.free = budget_free;
    env.now_ns = budget_now;
    env.panic = budget_panic;
    env.log = budget_log;
    return env;
}

uint64_t trace_budget_default(void)
{
    uint64_t available = memory_available();
    return available ? available / 2 : 8ull << 30;
}
