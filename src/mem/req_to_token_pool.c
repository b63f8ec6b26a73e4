/* req_to_token_pool.c - a matrix of slots and a stack of free rows.
 *
 * Rows are handed out from a stack, lowest first at the start. A bit per row says whether it
 * is handed out: it catches a row freed twice.
 *
 * Invariant, verified by rad_req_to_token_check():
 *   each row 1..num_rows is on the stack or taken, never both. */
#include <radish/req_to_token_pool.h>

#include "base/bits.h"
#include "base/params.h"

struct rad_req_to_token_pool {
    rad_env env;
    uint32_t num_rows;
    uint32_t row_tokens;
    uint32_t num_free;
    uint32_t reserved;
    rad_slot *slots; /* [num_rows + 1][row_tokens] */
    uint64_t *taken; /* a bit for each of 0..num_rows */
    rad_row *free;   /* [num_rows] */
};

static size_t slots_bytes(const rad_req_to_token_pool *pool)
{
    return rad_mul(rad_mul((size_t)pool->num_rows + 1, pool->row_tokens), sizeof(rad_slot));
}

static size_t taken_bytes(const rad_req_to_token_pool *pool)
{
    return bits_words((size_t)pool->num_rows + 1) * sizeof *pool->taken;
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
    pool->taken = rad_alloc(&full, taken_bytes(pool));
    pool->free = rad_alloc(&full, (size_t)p.num_rows * sizeof *pool->free);
    if (!pool->slots || !pool->taken || !pool->free) goto nomem;
    for (uint32_t i = 0; i < p.num_rows; i++)
        pool->free[i] = p.num_rows - i; /* row 1 leaves first */
    pool->num_free = p.num_rows;
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
    rad_free(&env, pool->taken, taken_bytes(pool));
    rad_free(&env, pool->free, (size_t)pool->num_rows * sizeof *pool->free);
    rad_free(&env, pool, sizeof *pool);
}

static bool is_out(const rad_req_to_token_pool *pool, rad_row row)
{
    return row >= 1 && row <= pool->num_rows && bits_get(pool->taken, row);
}

rad_status rad_req_to_token_alloc(rad_req_to_token_pool *pool, rad_row *row)
{
    if (!pool->num_free) return RAD_FULL;
    *row = pool->free[--pool->num_free];
    RAD_ASSERT_ENV(&pool->env, !is_out(pool, *row));
    bits_set(pool->taken, *row);
    return RAD_OK;
}

rad_status rad_req_to_token_free(rad_req_to_token_pool *pool, rad_row row)
{
    if (!is_out(pool, row)) return RAD_E_STATE;
    bits_clear(pool->taken, row);
    pool->free[pool->num_free++] = row;
    return RAD_OK;
}

rad_slot *rad_req_to_token_row(const rad_req_to_token_pool *pool, rad_row row)
{
    return row <= pool->num_rows ? pool->slots + (size_t)row * pool->row_tokens : NULL;
}

int rad_req_to_token_is_taken(const rad_req_to_token_pool *pool, rad_row row)
{
    return is_out(pool, row);
}

uint32_t rad_req_to_token_available(const rad_req_to_token_pool *pool)
{
    return pool->num_free;
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
    size_t bytes = bits_words((size_t)pool->num_rows + 1) * sizeof(uint64_t);
    uint64_t *seen = rad_alloc(&pool->env, bytes);
    rad_status status = RAD_OK;
    if (!seen) return rad_fail(err, RAD_E_NOMEM, "req_to_token_check: no scratch memory");
    for (uint32_t i = 0; i < pool->num_free && !status; i++) {
        rad_row row = pool->free[i];
        if (!row || row > pool->num_rows || bits_get(seen, row))
            status = rad_fail(err, RAD_E_CORRUPT,
                              "req_to_token: row %u on the free stack is not a row or stands twice",
                              row);
        else
            bits_set(seen, row);
    }
    for (rad_row row = 1; row <= pool->num_rows && !status; row++)
        if (bits_get(seen, row) == is_out(pool, row))
            status = rad_fail(err, RAD_E_CORRUPT, "req_to_token: row %u is %s", row,
                              is_out(pool, row) ? "free and taken" : "neither free nor taken");
    rad_free(&pool->env, seen, bytes);
    return status;
}
