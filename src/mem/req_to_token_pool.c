/* req_to_token_pool.c - a matrix of slots and a stack of free rows.
 *
 * Rows are handed out lowest first at the start (id_stack.h), which rad_req_to_token_check()
 * checks. */
#include <radish/req_to_token_pool.h>

#include "base/params.h"
#include "mem/id_stack.h"

struct rad_req_to_token_pool {
    rad_env env;
    uint32_t num_rows;
    uint32_t row_tokens;
    rad_slot *slots; /* [num_rows + 1][row_tokens] */
    id_stack rows;
};

static size_t slots_bytes(const rad_req_to_token_pool *pool)
{
    return rad_mul(rad_mul((size_t)pool->num_rows + 1, pool->row_tokens), sizeof(rad_slot));
}

rad_status rad_req_to_token_pool_create(const rad_env *env,
                                        const rad_req_to_token_pool_params *params,
                                        rad_req_to_token_pool **out, rad_error *err)
{
    rad_req_to_token_pool_params p;
    if (!out) return rad_fail(err, RAD_E_INVAL, "req_to_token_pool: no place for the result");
    *out = NULL;
    rad_status status = rad_params_read(&p, sizeof p, params, "req_to_token_pool", err);
    if (status) return status;
    if (!p.num_rows || !p.row_tokens || p.num_rows == UINT32_MAX)
        return rad_fail(err, RAD_E_INVAL, "req_to_token_pool: %u rows of %u tokens", p.num_rows,
                        p.row_tokens);

    rad_env full = rad_env_or_default(env);
    rad_req_to_token_pool *pool = rad_alloc(&full, sizeof *pool);
    if (!pool) goto nomem;
    pool->env = full;
    pool->num_rows = p.num_rows;
    pool->row_tokens = p.row_tokens;
    pool->slots = rad_alloc(&full, slots_bytes(pool));
    if (!pool->slots || !id_stack_init(&pool->rows, &full, p.num_rows)) goto nomem;
    *out = pool;
    return RAD_OK;
nomem:
    rad_req_to_token_pool_destroy(pool);
    return rad_fail(err, RAD_E_NOMEM, "req_to_token_pool: no memory for %u rows of %u tokens",
                    p.num_rows, p.row_tokens);
}

void rad_req_to_token_pool_destroy(rad_req_to_token_pool *pool)
{
    if (!pool) return;
    rad_env env = pool->env;
    rad_free(&env, pool->slots, slots_bytes(pool));
    id_stack_fini(&pool->rows, &env);
    rad_free(&env, pool, sizeof *pool);
}

rad_status rad_req_to_token_alloc(rad_req_to_token_pool *pool, rad_row *row)
{
    rad_row taken = id_stack_take(&pool->rows, &pool->env);
    if (!taken) return RAD_FULL;
    *row = taken;
    return RAD_OK;
}

rad_status rad_req_to_token_free(rad_req_to_token_pool *pool, rad_row row)
{
    return id_stack_give(&pool->rows, row) ? RAD_OK : RAD_E_STATE;
}

rad_slot *rad_req_to_token_row(const rad_req_to_token_pool *pool, rad_row row)
{
    return row <= pool->num_rows ? pool->slots + (size_t)row * pool->row_tokens : NULL;
}

int rad_req_to_token_is_taken(const rad_req_to_token_pool *pool, rad_row row)
{
    return id_stack_is_out(&pool->rows, row);
}

uint32_t rad_req_to_token_available(const rad_req_to_token_pool *pool)
{
    return pool->rows.num_free;
}

uint32_t rad_req_to_token_num_rows(const rad_req_to_token_pool *pool)
{
    return pool->num_rows;
}

uint32_t rad_req_to_token_row_tokens(const rad_req_to_token_pool *pool)
{
    return pool->row_tokens;
}

rad_status rad_req_to_token_check(const rad_req_to_token_pool *pool, rad_error *err)
{
    return id_stack_check(&pool->rows, &pool->env, "req_to_token", "row", err);
}
