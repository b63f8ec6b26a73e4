/* test_req_to_token_pool.c - rows leave once, come back once. */
#include "test.h"

#include <radish/req_to_token_pool.h>

static rad_req_to_token_pool *make(uint32_t rows, uint32_t tokens)
{
    rad_req_to_token_pool_params params = {
        .struct_size = sizeof params, .num_rows = rows, .row_tokens = tokens};
    rad_req_to_token_pool *pool = NULL;
    CHECK_OK(rad_req_to_token_pool_create(NULL, &params, &pool, NULL));
    return pool;
}

TEST(rows_are_handed_out_once_and_never_row_zero)
{
    rad_req_to_token_pool *pool = make(3, 10);
    rad_row rows[3], extra = 77;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(rad_req_to_token_alloc(pool, &rows[i]));
        CHECK(rows[i] == (rad_row)i + 1);
    }
    CHECK(rad_req_to_token_alloc(pool, &extra) == RAD_FULL && extra == 77);
    CHECK(rad_req_to_token_free(pool, 0) == RAD_E_STATE);
    CHECK(rad_req_to_token_free(pool, 4) == RAD_E_STATE);
    CHECK_OK(rad_req_to_token_free(pool, rows[1]));
    CHECK(rad_req_to_token_free(pool, rows[1]) == RAD_E_STATE);
    CHECK(!rad_req_to_token_is_taken(pool, rows[1]) && rad_req_to_token_is_taken(pool, rows[0]));
    CHECK(rad_req_to_token_available(pool) == 1);
    CHECK_OK(rad_req_to_token_check(pool, NULL));
    rad_req_to_token_pool_destroy(pool);
}

TEST(rows_do_not_overlap_and_the_dummy_row_is_there)
{
    rad_req_to_token_pool *pool = make(4, 7);
    for (rad_row row = 0; row <= 4; row++)
        for (int i = 0; i < 7; i++)
            rad_req_to_token_row(pool, row)[i] = (rad_slot)(row * 100) + i;
    for (rad_row row = 0; row <= 4; row++)
        for (int i = 0; i < 7; i++)
            CHECK(rad_req_to_token_row(pool, row)[i] == (rad_slot)(row * 100) + i);
    CHECK(rad_req_to_token_row(pool, 5) == NULL);
    CHECK(rad_req_to_token_num_rows(pool) == 4 && rad_req_to_token_row_tokens(pool) == 7);
    rad_req_to_token_pool_destroy(pool);
}

TEST(random_rows_agree_with_a_set)
{
    uint64_t seed = test_seed(), state = seed;
    rad_req_to_token_pool *pool = make(20, 1);
    bool out[22] = {false};
    uint32_t num_out = 0;
    for (uint64_t step = 0; step < test_scale(5000, 500000); step++) {
        rad_row row = (rad_row)(test_random(&state) % 22);
        if (test_random(&state) & 1) {
            rad_status status = rad_req_to_token_alloc(pool, &row);
            CHECKF(status == (num_out == 20 ? RAD_FULL : RAD_OK), "seed %llu",
                   (unsigned long long)seed);
            if (status) continue;
            CHECKF(row >= 1 && row <= 20 && !out[row], "seed %llu", (unsigned long long)seed);
            out[row] = true;
            num_out++;
        } else {
            bool was = row <= 20 && out[row];
            CHECK(rad_req_to_token_free(pool, row) == (was ? RAD_OK : RAD_E_STATE));
            if (was) out[row] = false, num_out--;
        }
        CHECK(rad_req_to_token_available(pool) == 20 - num_out);
        CHECK_OK(rad_req_to_token_check(pool, NULL));
    }
    rad_req_to_token_pool_destroy(pool);
}

TEST(create_survives_every_allocation_failing)
{
    rad_req_to_token_pool_params params = {
        .struct_size = sizeof params, .num_rows = 5, .row_tokens = 9};
    rad_req_to_token_pool *pool = NULL;
    for (long n = 0; !pool; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_status status = rad_req_to_token_pool_create(&env, &params, &pool, NULL);
        CHECK(status == (pool ? RAD_OK : RAD_E_NOMEM));
        rad_req_to_token_pool_destroy(pool);
        CHECK(t.bytes == 0);
    }
    rad_error err;
    params.row_tokens = 0;
    CHECK(rad_req_to_token_pool_create(NULL, &params, &pool, &err) == RAD_E_INVAL && !pool);
}

TEST_MAIN()
