/* state_pool.c - states in one block, handed out by an id_stack.
 *
 *     memory    | 0: zeros | 1 | 2 | 3 | ...       stride = state_bytes, whole cache lines
 *     on_host   |h| zeros  |h| 1 |h| 2 | ...       records, with room for their headers
 *
 * State 0 is there in memory, so that a runner reads the beginning of a text as any other state
 * and a copy from it is a copy. Memory of the pool's own is zeroed by whoever gives it, mostly
 * without being touched: a state that was never used takes no room. */
#include "mem/state_pool.h"

#include <radish/storage.h>

#include "base/params.h"
#include "device/device.h"
#include "mem/id_stack.h"

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
    id_stack states;
    bool owns_memory;
    bool pinned; /* memory of the device's, but the host's */
    bool on_host;
    bool keeps_ready; /* what was given back is for state_pool_alloc_ready */
    state_wait_fn wait; /* NULL: nobody brings anything */
    void *wait_user;
};

/* 0: that does not fit. */
static size_t memory_bytes(const rad_state_pool *pool)
{
    return rad_mul((size_t)pool->num_states + 1, pool->stride);
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
    if (!pool->memory || !id_stack_init(&pool->states, &full, p.num_states)) goto nomem;
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
    id_stack_fini(&pool->states, &env);
    rad_free(&env, pool, sizeof *pool);
}

static bool is_state(const rad_state_pool *pool, rad_state state)
{
    return state >= 0 && (uint32_t)state <= pool->num_states;
}

int rad_state_is_taken(const rad_state_pool *pool, rad_state state)
{
    return state >= 0 && id_stack_is_out(&pool->states, (uint32_t)state);
}

static rad_status alloc_state(rad_state_pool *pool, bool fresh, rad_state *state)
{
    const uint32_t taken = fresh ? id_stack_take_fresh(&pool->states, &pool->env)
                                 : id_stack_take(&pool->states, &pool->env);
    if (!taken) return RAD_FULL;
    *state = (rad_state)taken;
    return RAD_OK;
}

rad_status rad_state_alloc(rad_state_pool *pool, rad_state *state)
{
    return alloc_state(pool, pool->keeps_ready, state);
}

rad_status state_pool_alloc_ready(rad_state_pool *pool, rad_state *state)
{
    return alloc_state(pool, false, state);
}

void state_pool_make_ready(rad_state_pool *pool, uint32_t count)
{
    const uint32_t end = pool->states.num_fresh; /* taken from there, and given back */
    count = RAD_MIN(count, end);
    pool->keeps_ready = true;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t state = pool->states.free[end - 1 - i];
        (void)device_populate(pool->device, pool->memory + state * pool->stride, pool->stride);
    }
    pool->states.num_fresh = end - count;
}

rad_status rad_state_free(rad_state_pool *pool, rad_state state)
{
    return state >= 0 && id_stack_give(&pool->states, (uint32_t)state) ? RAD_OK : RAD_E_STATE;
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
    return pool->states.num_free;
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
    return id_stack_check(&pool->states, &pool->env, "state_pool", "state", err);
}
