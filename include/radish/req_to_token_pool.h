/* req_to_token_pool.h - one row per running request: position -> slot.
 *
 * A matrix of int32 slots, (num_rows + 1) x row_tokens. Row 0 is a dummy for
 * padded batch members and is never handed out.
 *
 * One thread owns a pool. Nothing blocks or touches the heap after create. */
#ifndef RADISH_REQ_TO_TOKEN_POOL_H
#define RADISH_REQ_TO_TOKEN_POOL_H

#include <radish/env.h>
#include <radish/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rad_req_to_token_pool rad_req_to_token_pool;

typedef struct rad_req_to_token_pool_params {
    size_t struct_size;  /* sizeof(rad_req_to_token_pool_params) */
    uint32_t num_rows;   /* requests that may run at once, dummy row not counted */
    uint32_t row_tokens; /* longest request, in tokens */
} rad_req_to_token_pool_params;

/* Memory: 4 bytes per row and token, all taken and zeroed here. RAD_E_INVAL or RAD_E_NOMEM
 * in words; *out is NULL then. */
RAD_API rad_status rad_req_to_token_pool_create(const rad_env *env,
                                                const rad_req_to_token_pool_params *params,
                                                rad_req_to_token_pool **out, rad_error *err);
RAD_API void rad_req_to_token_pool_destroy(rad_req_to_token_pool *pool); /* NULL is fine */

/* Takes a row. RAD_FULL when none is left. O(1). */
RAD_API rad_status rad_req_to_token_alloc(rad_req_to_token_pool *pool, rad_row *row);

/* Gives a row back. RAD_E_STATE when it is not handed out. O(1). */
RAD_API rad_status rad_req_to_token_free(rad_req_to_token_pool *pool, rad_row row);

/* The slots of a row, row_tokens of them. The pointer stays valid as long as
 * the pool does. NULL for a row that does not exist. */
RAD_API rad_slot *rad_req_to_token_row(const rad_req_to_token_pool *pool, rad_row row);
/* 1 when the row is handed out. O(1), like the next three. */
RAD_API int rad_req_to_token_is_taken(const rad_req_to_token_pool *pool, rad_row row);

RAD_API uint32_t rad_req_to_token_available(const rad_req_to_token_pool *pool); /* rows */
RAD_API uint32_t rad_req_to_token_num_rows(const rad_req_to_token_pool *pool);
RAD_API uint32_t rad_req_to_token_row_tokens(const rad_req_to_token_pool *pool);

/* RAD_E_CORRUPT with words when a row is neither free nor taken, or both; RAD_E_NOMEM without
 * scratch memory (a bit per row). O(rows). */
RAD_API rad_status rad_req_to_token_check(const rad_req_to_token_pool *pool, rad_error *err);

#ifdef __cplusplus
}
#endif
#endif
