/* test_req_to_token_pool.c - rows leave once, come back once; and states (state_pool.h) likewise.
 */
#include "gear/device_guarded.h"
#include "gear/device_sim.h"
#include "test.h"

#include "mem/state_pool.h"
#include <radish/req_to_token_pool.h>
#include <radish/state_pool.h>

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

static rad_state_pool *make_states(uint32_t states, uint32_t on_host, rad_device *device)
{
    rad_state_pool_params params = {.struct_size = sizeof params,
                                    .state_bytes = 100,
                                    .num_states = states,
                                    .on_host = on_host,
                                    .device = device};
    rad_state_pool *pool = NULL;
    CHECK_OK(rad_state_pool_create(NULL, &params, &pool, NULL));
    return pool;
}

TEST(random_states_agree_with_a_set)
{
    uint64_t seed = test_seed(), dice = seed;
    rad_state_pool *pool = make_states(20, 0, NULL);
    bool out[23] = {false};
    uint32_t num_out = 0;
    for (uint64_t step = 0; step < test_scale(5000, 500000); step++) {
        rad_state state = (rad_state)(test_random(&dice) % 23) - 1;
        if (test_random(&dice) & 1) {
            rad_state was = state;
            rad_status status = rad_state_alloc(pool, &state);
            CHECKF(status == (num_out == 20 ? RAD_FULL : RAD_OK), "seed %llu",
                   (unsigned long long)seed);
            CHECK(!status || state == was);
            if (status) continue;
            CHECKF(state >= 1 && state <= 20 && !out[state], "seed %llu", (unsigned long long)seed);
            out[state] = true;
            num_out++;
        } else {
            bool was = state >= 0 && out[state];
            CHECK(rad_state_is_taken(pool, state) == was);
            CHECK(rad_state_free(pool, state) == (was ? RAD_OK : RAD_E_STATE));
            if (was) out[state] = false, num_out--;
        }
        CHECK(rad_state_available(pool) == 20 - num_out);
        CHECK_OK(rad_state_pool_check(pool, NULL));
    }
    rad_state_pool_destroy(pool);
}

/* Who takes some in each step has the same ones all the time, whoever keeps how many meanwhile, as
 * long as there are others that nobody has had. */
TEST(ready_states_stay_with_those_who_give_them_back)
{
    enum { STATES = 40, READY = 4 };
    uint64_t dice = test_seed();
    rad_state_pool *pool = make_states(STATES, 0, NULL);
    bool had[STATES + 1] = {0};
    rad_state kept, mine[READY];
    CHECK_OK(rad_state_alloc(pool, &kept));
    had[kept] = true;
    state_pool_make_ready(pool, READY);
    CHECK(rad_state_available(pool) == STATES - 1);
    CHECK_OK(rad_state_pool_check(pool, NULL));
    for (int step = 0; rad_state_available(pool) > READY; step++) {
        const uint32_t count = (uint32_t)(test_random(&dice) % READY) + 1;
        for (uint32_t i = 0; i < count; i++) {
            CHECK_OK(state_pool_alloc_ready(pool, &mine[i]));
            CHECK(mine[i] >= 2 && mine[i] < 2 + READY);
        }
        if (test_random(&dice) % 2) {
            CHECK_OK(rad_state_alloc(pool, &kept));
            CHECK(kept >= 2 + READY && !had[kept]);
            had[kept] = true;
        }
        for (uint32_t i = 0; i < count; i++)
            CHECK_OK(rad_state_free(pool, mine[i]));
        CHECK_OK(rad_state_pool_check(pool, NULL));
    }
    for (int i = 0; i < READY; i++) /* nobody else's are left */
        CHECK_OK(rad_state_alloc(pool, &kept));
    CHECK(state_pool_alloc_ready(pool, &kept) == RAD_FULL);
    CHECK(rad_state_alloc(pool, &kept) == RAD_FULL);
    CHECK_OK(rad_state_pool_check(pool, NULL));
    rad_state_pool_destroy(pool);
}

TEST(states_are_lines_of_their_own_and_the_first_is_zeros)
{
    rad_state_pool *pool = make_states(3, 0, NULL);
    static const char zeros[128];
    CHECK(rad_state_bytes(pool) == 128 && rad_state_pool_num_states(pool) == 3);
    for (rad_state s = 1; s <= 3; s++) {
        CHECK((uintptr_t)rad_state_address(pool, s) % 64 == 0);
        memset(rad_state_address(pool, s), s, 128);
    }
    CHECK(!rad_state_address(pool, 4) && !rad_state_address(pool, -1));
    CHECK_OK(rad_state_copy(pool, 2, 3));
    CHECK(memcmp(rad_state_address(pool, 3), rad_state_address(pool, 2), 128) == 0);
    CHECK_OK(rad_state_copy(pool, 0, 2));
    CHECK(memcmp(rad_state_address(pool, 2), zeros, 128) == 0);
    CHECK(memcmp(rad_state_address(pool, 0), zeros, 128) == 0);
    CHECK(*(char *)rad_state_address(pool, 1) == 1 && *(char *)rad_state_address(pool, 3) == 2);
    CHECK_OK(rad_state_copy(pool, 1, 1));
    CHECK(rad_state_copy(pool, 1, 0) == RAD_E_INVAL && rad_state_copy(pool, 1, 4) == RAD_E_INVAL &&
          rad_state_copy(pool, -1, 1) == RAD_E_INVAL && rad_state_copy(pool, 4, 1) == RAD_E_INVAL);
    rad_state_pool_destroy(pool);
}

/* Memory that only its device may touch, and host memory of such a device. */
TEST(states_of_a_device_are_copied_by_its_table)
{
    static device_guarded gpu;
    device_guarded_init(&gpu);
    rad_state_pool *pool = make_states(3, 0, &gpu.base), *host = make_states(2, 1, &gpu.base);
    CHECK(rad_state_pool_device(pool) == &gpu.base && gpu.pinned_bytes == 3 * 256);
    CHECK_OK(rad_state_copy(pool, 0, 1));
    CHECK_OK(rad_state_copy(pool, 1, 3));
    CHECK(gpu.rows == 2 && gpu.fences == 2);
    memset(rad_state_address(host, 1), 7, 128);
    CHECK_OK(rad_state_copy(host, 1, 2));
    CHECK(*(char *)rad_state_address(host, 2) == 7);
    rad_state_pool_destroy(pool);
    rad_state_pool_destroy(host);
    CHECK(gpu.bytes == 0 && gpu.pinned_bytes == 0);
}

static sim_fate always_fails(void *user, uint64_t copy)
{
    (void)user, (void)copy;
    return SIM_FAIL;
}

TEST(a_state_that_could_not_be_copied_is_told)
{
    device_sim sim;
    device_sim_init(&sim, NULL);
    rad_state_pool *pool = make_states(3, 0, &sim.base);
    CHECK_OK(rad_state_copy(pool, 1, 2));
    sim.script = always_fails;
    CHECK(rad_state_copy(pool, 1, 2) == RAD_E_IO);
    rad_state_pool_destroy(pool);
}

TEST(a_pool_of_states_survives_every_allocation_failing)
{
    static _Alignas(64) char memory[6 * 128];
    rad_state_pool_params params = {
        .struct_size = sizeof params, .state_bytes = 100, .num_states = 5};
    rad_state_pool *pool = NULL;
    for (int own = 0; own < 2; own++, pool = NULL) {
        params.memory = own ? NULL : memory;
        for (long n = 0; !pool; n++) {
            test_env t;
            rad_env env = test_env_failing_at(&t, n);
            rad_status status = rad_state_pool_create(&env, &params, &pool, NULL);
            CHECK(status == (pool ? RAD_OK : RAD_E_NOMEM));
            CHECK(!pool || own || rad_state_address(pool, 1) == memory + 128);
            rad_state_pool_destroy(pool);
            CHECK(t.bytes == 0);
        }
    }
    rad_error err;
    rad_state_pool_params bad[] = {params, params, params, params, params};
    bad[0].state_bytes = 0;
    bad[1].num_states = 0;
    bad[2].memory = memory + 1;
    bad[3].num_states = INT32_MAX;
    bad[4].state_bytes = SIZE_MAX / 4;
    for (int i = 0; i < 5; i++)
        CHECK(rad_state_pool_create(NULL, &bad[i], &pool, &err) == (i < 3    ? RAD_E_INVAL
                                                                    : i == 3 ? RAD_E_LIMIT
                                                                             : RAD_E_NOMEM) &&
              !pool && *err.text);
    rad_state_pool_destroy(NULL);
}

TEST_MAIN()
