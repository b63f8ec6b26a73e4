/* state_pool.c - states in one block, a stack of free ones and a bit per state.
 *
 *     memory    | 0: zeros | 1 | 2 | 3 | ...       stride = state_bytes, whole cache lines
 *     on_host   |h| zeros  |h| 1 |h| 2 | ...       records, with room for their headers
 *     free[]    | 3 | 1 |                          the state freed last leaves first
 *
 * State 0 is there in memory, so that a runner reads the beginning of a text as any other state
 * and a copy from it is a copy. Memory of the pool's own is zeroed by whoever gives it, mostly
 * without being touched: a state that was never used takes no room.
 *
 * Invariant, verified by rad_state_pool_check():
 *   each state 1..num_states is on the stack or taken, never both. */
#include "mem/state_pool.h"

#include <radish/storage.h>

#include "base/bits.h"
#include "base/params.h"
#include "device/device.h"

enum { STATE_ALIGN = 64, DISK_ALIGN = 4096, LARGE_RECORD = 16 * DISK_ALIGN };

struct rad_state_pool {
    rad_env env;
    device_cpu own;
    rad_device *device; /* `own`, or the caller's */
    char *memory;
    size_t state_bytes;
    size_t header; /* before each state; 0: none */
    size_t stride;
    uint32_t num_states;
    uint32_t num_free;
    rad_state *free; /* [num_states] */
    uint64_t *taken; /* a bit for each of 0..num_states */
    bool owns_memory;
    bool pinned; /* memory of the device's, but the host's */
    bool on_host;
    state_wait_fn wait; /* NULL: nobody brings anything */
    void *wait_user;
};

/* 0: that does not fit. */
static size_t memory_bytes(const rad_state_pool *pool)
{
    return rad_mul((size_t)pool->num_states + 1, pool->stride);
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
    if ((uintptr_t)p->memory % STATE_ALIGN || (p->memory && p->on_host))
        return rad_fail(err, RAD_E_INVAL,
                        "state_pool: memory that is not aligned to %d bytes, or on_host, where the "
                        "pool has its own",
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
    pool->header = p.on_host ? RAD_STORAGE_HEADER_BYTES : 0;
    pool->stride = pool->header + pool->state_bytes;
    if (p.on_host && pool->stride >= LARGE_RECORD) /* a disk past the page cache wants blocks */
        pool->stride = (pool->stride + DISK_ALIGN - 1) / DISK_ALIGN * DISK_ALIGN;
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

static rad_device_rows rows_of(const rad_state_pool *pool, const rad_state *state)
{
    return (rad_device_rows){pool->memory + pool->header, pool->stride, state};
}

rad_status rad_state_copy(rad_state_pool *pool, rad_state from, rad_state to)
{
    if (!is_state(pool, from) || !is_state(pool, to) || !to) return RAD_E_INVAL;
    if (from == to) return RAD_OK;
    if (pool->wait) pool->wait(pool->wait_user);
    rad_device_rows src = rows_of(pool, &from), dst = rows_of(pool, &to);
    rad_status status = device_copy_rows(pool->device, dst, src, pool->state_bytes, 1);
    return device_fence(pool->device, status);
}

void *rad_state_address(const rad_state_pool *pool, rad_state state)
{
    if (!is_state(pool, state)) return NULL;
    if (pool->wait) pool->wait(pool->wait_user);
    return pool->memory + (size_t)state * pool->stride + pool->header;
}

rad_status state_pool_move(const rad_state_pool *host, rad_state host_state,
                           const rad_state_pool *device, rad_state device_state, bool to_device)
{
    rad_device_rows here = rows_of(host, &host_state), there = rows_of(device, &device_state);
    rad_status status =
        device_move_rows(host->device, there, here, host->state_bytes, 1, to_device);
    return device_fence(host->device, status);
}

void *state_pool_record(const rad_state_pool *host, rad_state state)
{
    return host->memory + (size_t)state * host->stride;
}

size_t state_pool_record_bytes(const rad_state_pool *host)
{
    return host->header + host->state_bytes;
}

rad_status state_pool_set_wait(rad_state_pool *pool, state_wait_fn wait, void *user, rad_error *err)
{
    if (pool->wait)
        return rad_fail(err, RAD_E_LIMIT, "state_pool: somebody else brings states into it");
    pool->wait = wait;
    pool->wait_user = user;
    return RAD_OK;
}

void state_pool_drop_wait(rad_state_pool *pool, void *user)
{
    if (!pool || pool->wait_user != user) return;
    pool->wait = NULL;
    pool->wait_user = NULL;
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
