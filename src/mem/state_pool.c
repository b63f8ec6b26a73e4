/* state_pool.c - states in one block, a stack of free ones and a bit per state.
 *
 *     memory   | 0: zeros | 1 | 2 | 3 | ...        stride = state_bytes, whole cache lines
 *     free[]   | 3 | 1 |                           the state freed last leaves first
 *
 * State 0 is there in memory, so that a runner reads the beginning of a text as any other state
 * and a copy from it is a copy. Memory of the pool's own is zeroed by whoever gives it, mostly
 * without being touched: a state that was never used takes no room.
 *
 * Invariant, verified by rad_state_pool_check():
 *   each state 1..num_states is on the stack or taken, never both. */
#include <radish/state_pool.h>

#include "base/bits.h"
#include "base/params.h"
#include "device/device.h"

enum { STATE_ALIGN = 64 };

struct rad_state_pool {
    rad_env env;
    device_cpu own;
    rad_device *device; /* `own`, or the caller's */
    char *memory;
    size_t state_bytes;
    uint32_t num_states;
    uint32_t num_free;
    rad_state *free; /* [num_states] */
    uint64_t *taken; /* a bit for each of 0..num_states */
    bool owns_memory;
    bool pinned; /* memory of the device's, but the host's */
    bool on_host;
};

/* 0: that does not fit. */
static size_t memory_bytes(const rad_state_pool *pool)
{
    return rad_mul((size_t)pool->num_states + 1, pool->state_bytes);
}

static size_t taken_bytes(const rad_state_pool *pool)
{
    return bits_words((size_t)pool->num_states + 1) * sizeof *pool->taken;
}

static rad_status read_params(const rad_state_pool_params *params, rad_state_pool_params *p,
                              rad_error *err)
{
    rad_status status = rad_params_read(p, sizeof *p, params, "state_pool", err);
    if (!status) status = device_check(p->device, err);
    if (status) return status;
    if (!p->state_bytes || !p->num_states || p->on_host > 1)
        return rad_fail(err, RAD_E_INVAL, "state_pool: %u states of %zu bytes, on_host %u",
                        p->num_states, p->state_bytes, p->on_host);
    if ((uintptr_t)p->memory % STATE_ALIGN)
        return rad_fail(err, RAD_E_INVAL, "state_pool: memory that is not aligned to %d bytes",
                        STATE_ALIGN);
    if (p->num_states >= INT32_MAX || p->state_bytes > SIZE_MAX / 2)
        return rad_fail(err, RAD_E_LIMIT, "state_pool: %u states of %zu bytes", p->num_states,
                        p->state_bytes);
    return RAD_OK;
}

static char *take_memory(rad_state_pool *pool)
{
    size_t bytes = memory_bytes(pool);
    if (pool->pinned) return pool->device->ops->alloc_pinned(pool->device, bytes);
    return device_alloc(pool->on_host ? &pool->own.base : pool->device, bytes);
}

rad_status rad_state_pool_create(const rad_env *env, const rad_state_pool_params *params,
                                 rad_state_pool **out, rad_error *err)
{
    rad_state_pool_params p;
    if (!out) return rad_fail(err, RAD_E_INVAL, "state_pool: no place for the result");
    *out = NULL;
    rad_status status = read_params(params, &p, err);
    if (status) return status;

    rad_env full = rad_env_or_default(env);
    rad_state_pool *pool = rad_alloc(&full, sizeof *pool);
    if (!pool) goto nomem;
    pool->env = full;
    device_cpu_init(&pool->own, &full);
    pool->device = p.device ? p.device : &pool->own.base;
    pool->state_bytes = (p.state_bytes + STATE_ALIGN - 1) / STATE_ALIGN * STATE_ALIGN;
    pool->num_states = p.num_states;
    pool->owns_memory = !p.memory;
    pool->on_host = p.on_host;
    pool->pinned = p.on_host && !p.memory && device_pins(pool->device);
    if (!memory_bytes(pool)) goto nomem;
    pool->memory = p.memory ? p.memory : take_memory(pool);
    pool->free = rad_alloc(&full, rad_mul(p.num_states, sizeof *pool->free));
    pool->taken = rad_alloc(&full, taken_bytes(pool));
    if (!pool->memory || !pool->free || !pool->taken) goto nomem;
    for (uint32_t i = 0; i < p.num_states; i++)
        pool->free[i] = (rad_state)(p.num_states - i); /* state 1 leaves first */
    pool->num_free = p.num_states;
    *out = pool;
    return RAD_OK;
nomem:
    rad_state_pool_destroy(pool);
    return rad_fail(err, RAD_E_NOMEM, "state_pool: no memory for %u states of %zu bytes",
                    p.num_states, p.state_bytes);
}

void rad_state_pool_destroy(rad_state_pool *pool)
{
    if (!pool) return;
    rad_env env = pool->env;
    size_t bytes = memory_bytes(pool);
    if (pool->memory && pool->pinned)
        pool->device->ops->free_pinned(pool->device, pool->memory, bytes);
    else if (pool->memory && pool->owns_memory)
        device_free(pool->on_host ? &pool->own.base : pool->device, pool->memory, bytes);
    rad_free(&env, pool->free, (size_t)pool->num_states * sizeof *pool->free);
    rad_free(&env, pool->taken, taken_bytes(pool));
    rad_free(&env, pool, sizeof *pool);
}

static bool is_state(const rad_state_pool *pool, rad_state state)
{
    return state >= 0 && (uint32_t)state <= pool->num_states;
}

int rad_state_is_taken(const rad_state_pool *pool, rad_state state)
{
    return is_state(pool, state) && bits_get(pool->taken, (size_t)state);
}

rad_status rad_state_alloc(rad_state_pool *pool, rad_state *state)
{
    if (!pool->num_free) return RAD_FULL;
    *state = pool->free[--pool->num_free];
    RAD_ASSERT_ENV(&pool->env, !rad_state_is_taken(pool, *state));
    bits_set(pool->taken, (size_t)*state);
    return RAD_OK;
}

rad_status rad_state_free(rad_state_pool *pool, rad_state state)
{
    if (!rad_state_is_taken(pool, state)) return RAD_E_STATE;
    bits_clear(pool->taken, (size_t)state);
    pool->free[pool->num_free++] = state;
    return RAD_OK;
}

rad_status rad_state_copy(rad_state_pool *pool, rad_state from, rad_state to)
{
    if (!is_state(pool, from) || !is_state(pool, to) || !to) return RAD_E_INVAL;
    if (from == to) return RAD_OK;
    rad_device_rows src = {pool->memory, pool->state_bytes, &from};
    rad_device_rows dst = {pool->memory, pool->state_bytes, &to};
    rad_status status = device_copy_rows(pool->device, dst, src, pool->state_bytes, 1);
    return device_fence(pool->device, status);
}

void *rad_state_address(const rad_state_pool *pool, rad_state state)
{
    return is_state(pool, state) ? pool->memory + (size_t)state * pool->state_bytes : NULL;
}

uint32_t rad_state_available(const rad_state_pool *pool)
{
    return pool->num_free;
}

uint32_t rad_state_pool_num_states(const rad_state_pool *pool)
{
    return pool->num_states;
}

size_t rad_state_bytes(const rad_state_pool *pool)
{
    return pool->state_bytes;
}

rad_device *rad_state_pool_device(const rad_state_pool *pool)
{
    return pool->device;
}

rad_status rad_state_pool_check(const rad_state_pool *pool, rad_error *err)
{
    size_t bytes = taken_bytes(pool);
    uint64_t *seen = rad_alloc(&pool->env, bytes);
    rad_status status = RAD_OK;
    if (!seen) return rad_fail(err, RAD_E_NOMEM, "state_pool_check: no scratch memory");
    for (uint32_t i = 0; i < pool->num_free && !status; i++) {
        rad_state state = pool->free[i];
        if (!state || !is_state(pool, state) || bits_get(seen, (size_t)state))
            status = rad_fail(err, RAD_E_CORRUPT,
                              "state_pool: state %d on the free stack is none or stands twice",
                              state);
        else
            bits_set(seen, (size_t)state);
    }
    for (rad_state state = 1; (uint32_t)state <= pool->num_states && !status; state++)
        if (bits_get(seen, (size_t)state) == bits_get(pool->taken, (size_t)state))
            status = rad_fail(err, RAD_E_CORRUPT, "state_pool: state %d is %s", state,
                              bits_get(seen, (size_t)state) ? "free and taken"
                                                            : "neither free nor taken");
    rad_free(&pool->env, seen, bytes);
    return status;
}
