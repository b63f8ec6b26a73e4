/* test_mla_kv_pool.c - one latent + rope row per token, whose head is the value. */
#include "gear/kv_buffers.h"
#include "test.h"

#include <math.h>
#include <radish/mla_kv_pool.h>

enum { PAGES = 3, PAGE = 2, SLOTS = (PAGES + 1) * PAGE, LAYERS = 2, LORA = 24, ROPE = 10 };
enum { ROW = LORA + ROPE };

static const uint32_t dtype_size[] = {4, 2, 2, 1, 1, 1};

static rad_mla_kv_pool_params params_for(uint32_t dtype)
{
    return (rad_mla_kv_pool_params){.struct_size = sizeof(rad_mla_kv_pool_params),
                                    .num_pages = PAGES,
                                    .page_size = PAGE,
                                    .num_layers = LAYERS,
                                    .start_layer = 4,
                                    .kv_lora_rank = LORA,
                                    .rope_dim = ROPE,
                                    .dtype = dtype};
}

static rad_token_to_kv_pool *make(const rad_mla_kv_pool_params *p)
{
    rad_token_to_kv_pool *pool = NULL;
    CHECK_OK(rad_mla_kv_pool_create(NULL, p, &pool, NULL));
    return pool;
}

static void random_numbers(float *out, size_t count, uint64_t *state)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (float)((double)test_random(state) / 1e19 - 0.9);
}

TEST(a_row_is_stored_whole_and_its_head_is_the_value)
{
    uint64_t state = 11;
    for (uint32_t dtype = RAD_F32; dtype <= RAD_I8; dtype++) {
        rad_mla_kv_pool_params p = params_for(dtype);
        rad_token_to_kv_pool *pool = make(&p);
        const rad_token_to_kv_pool_params *general = rad_kv_pool_params(pool);
        size_t token = LAYERS * (ROW * dtype_size[dtype] + (dtype == RAD_I8 ? 8 : 0));
        CHECK(general->kind == RAD_KV_MLA && general->num_kv_heads == 1);
        CHECK(general->head_dim == ROW && general->v_head_dim == LORA);
        CHECK(rad_kv_pool_bytes_per_token(general) == token);
        CHECK(rad_kv_pool_size_bytes(pool) == SLOTS * token);
        CHECK(!rad_kv_pool_is_packed(pool));
        CHECK(kv_key_buffer(pool, 5) == kv_value_buffer(pool, 5));
        rad_kv_buffers b;
        CHECK_OK(rad_kv_pool_get_buffers(pool, 4, &b));
        CHECK(b.k == b.v && b.k_stride == ROW * dtype_size[dtype] && b.v_stride == b.k_stride);
        CHECK(dtype == RAD_I8 ? b.k_scale == b.v_scale && b.k_scale_stride == 8 : !b.k_scale);

        rad_slot loc[3] = {6, 2, 5};
        float latent[3][LORA], rope[3][ROPE], rows[3][ROW], k[3][ROW], v[3][LORA];
        random_numbers(latent[0], 3 * LORA, &state);
        random_numbers(rope[0], 3 * ROPE, &state);
        for (int i = 0; i < 3; i++) {
            for (int j = 0; j < ROPE; j++)
                rope[i][j] *= 100; /* of another magnitude than the latent */
            memcpy(rows[i], latent[i], sizeof latent[i]);
            memcpy(rows[i] + LORA, rope[i], sizeof rope[i]);
        }
        rad_kv_pool_set_kv_buffer(pool, 4, loc, 3, rows[0], NULL);
        rad_mla_kv_pool_set_kv_buffer(pool, 5, loc, 3, latent[0], rope[0]);
        char copy[SLOTS * 400];
        CHECK_OK(rad_kv_pool_get_cpu_copy(pool, loc, 3, copy, 3 * token));
        CHECK(memcmp(copy, copy + 3 * token / 2, 3 * token / 2) == 0); /* layer 4 is layer 5 */
        CHECK_OK(rad_kv_pool_get_kv(pool, 5, loc, 3, k[0], v[0]));
        const double off[] = {0, 0x1p-8, 0x1p-11, 0x1p-4, 0x1p-3, 0};
        for (int i = 0; i < 3; i++) {
            CHECK(memcmp(k[i], v[i], sizeof v[i]) == 0);
            for (int j = 0; j < ROW; j++) {
                double most = dtype == RAD_I8 ? (j < LORA ? 1.0 : 100.0) / 253
                                              : fabs((double)rows[i][j]) * off[dtype] + 0x1p-10;
                CHECKF(fabs((double)k[i][j] - (double)rows[i][j]) <= most, "dtype %u: %g is %g\n",
                       dtype, (double)rows[i][j], (double)k[i][j]);
            }
        }
        /* One part alone leaves the other as it is. */
        float other[LORA];
        random_numbers(other, LORA, &state);
        rad_mla_kv_pool_set_kv_buffer(pool, 5, loc, 1, other, NULL);
        float after[ROW];
        CHECK_OK(rad_kv_pool_get_kv(pool, 5, loc, 1, after, NULL));
        CHECK(memcmp(after + LORA, k[0] + LORA, ROPE * sizeof(float)) == 0);
        CHECK(memcmp(after, k[0], LORA * sizeof(float)) != 0);
        rad_mla_kv_pool_set_kv_buffer(pool, 5, loc, 1, NULL, rope[1]);
        CHECK_OK(rad_kv_pool_get_kv(pool, 5, loc, 1, k[0], NULL));
        CHECK(memcmp(after, k[0], LORA * sizeof(float)) == 0);
        CHECK(memcmp(k[0] + LORA, k[1] + LORA, ROPE * sizeof(float)) == 0);

        /* Pages and slots move as in any pool. */
        char page[PAGE * 400];
        CHECK_OK(rad_kv_pool_get_page(pool, 3, page, PAGE * token));
        CHECK_OK(rad_kv_pool_set_page(pool, 2, page, PAGE * token));
        CHECK_OK(rad_kv_pool_get_kv(pool, 4, (rad_slot[]){6, 4}, 2, k[0], NULL));
        CHECK(memcmp(k[0], k[1], sizeof k[0]) == 0);
        rad_token_to_kv_pool_destroy(pool);
    }
}

TEST(a_layers_scale_is_for_the_whole_row)
{
    const float scales[LAYERS] = {1, 0.5f};
    rad_mla_kv_pool_params p = params_for(RAD_F8_E4M3);
    p.scales = scales;
    rad_token_to_kv_pool *pool = make(&p);
    CHECK(rad_kv_pool_params(pool)->k_scales[1] == 0.5f && !rad_kv_pool_params(pool)->v_scales);
    float row[ROW], k[ROW], v[LORA];
    for (int i = 0; i < ROW; i++)
        row[i] = 300; /* 300 / 0.5 saturates at 448 */
    rad_slot slot = 2;
    rad_kv_pool_set_kv_buffer(pool, 5, &slot, 1, row, NULL);
    CHECK_OK(rad_kv_pool_get_kv(pool, 5, &slot, 1, k, v));
    for (int i = 0; i < ROW; i++)
        CHECK(k[i] == 224 && (i >= LORA || v[i] == 224));
    rad_token_to_kv_pool_destroy(pool);
}

TEST(the_callers_memory_and_a_pool_without_rope)
{
    static float memory[LAYERS][SLOTS][ROW + 6];
    rad_kv_buffers buffers[LAYERS] = {{.k = memory[0], .k_stride = sizeof memory[0][0]},
                                      {.k = memory[1], .k_stride = sizeof memory[0][0]}};
    rad_mla_kv_pool_params p = params_for(RAD_F32);
    p.buffers = buffers;
    rad_token_to_kv_pool *pool = make(&p);
    float latent[LORA], rope[ROPE];
    uint64_t state = 1;
    random_numbers(latent, LORA, &state);
    random_numbers(rope, ROPE, &state);
    rad_slot slot = 7;
    rad_mla_kv_pool_set_kv_buffer(pool, 5, &slot, 1, latent, rope);
    CHECK(memcmp(memory[1][7], latent, sizeof latent) == 0);
    CHECK(memcmp(memory[1][7] + LORA, rope, sizeof rope) == 0 && memory[1][7][ROW] == 0);
    rad_token_to_kv_pool_destroy(pool);

    rad_error err;
    buffers[1].v = memory[0];
    CHECK(rad_mla_kv_pool_create(NULL, &p, &pool, &err) == RAD_E_INVAL && !pool);
    CHECK(strstr(err.text, "one buffer a layer") != NULL);

    p = params_for(RAD_I8);
    p.rope_dim = 0;
    pool = make(&p);
    CHECK(rad_kv_pool_bytes_per_token(rad_kv_pool_params(pool)) == LAYERS * (LORA + 4));
    float k[LORA], v[LORA];
    rad_mla_kv_pool_set_kv_buffer(pool, 4, &slot, 1, latent, rope); /* rope of no numbers */
    CHECK_OK(rad_kv_pool_get_kv(pool, 4, &slot, 1, k, v));
    CHECK(memcmp(k, v, sizeof k) == 0 && fabs((double)k[3] - (double)latent[3]) < 0.005);
    rad_token_to_kv_pool_destroy(pool);
}

TEST(create_refuses_nonsense_and_survives_every_allocation_failing)
{
    rad_error err;
    rad_token_to_kv_pool *pool = NULL;
    rad_mla_kv_pool_params p = params_for(RAD_F32);
    p.kv_lora_rank = 0;
    CHECK(rad_mla_kv_pool_create(NULL, &p, &pool, &err) == RAD_E_INVAL && !pool);
    p.kv_lora_rank = UINT32_MAX;
    CHECK(rad_mla_kv_pool_create(NULL, &p, &pool, &err) == RAD_E_INVAL && !pool);
    CHECK(rad_mla_kv_pool_create(NULL, &p, NULL, &err) == RAD_E_INVAL);
    CHECK(rad_mla_kv_pool_create(NULL, NULL, &pool, &err) == RAD_E_INVAL);
    rad_token_to_kv_pool_params general = {.struct_size = sizeof general,
                                           .num_pages = 1,
                                           .num_layers = 1,
                                           .num_kv_heads = 2,
                                           .head_dim = 8,
                                           .v_head_dim = 4,
                                           .kind = RAD_KV_MLA};
    CHECK(rad_token_to_kv_pool_create(NULL, &general, &pool, &err) == RAD_E_INVAL);
    general.num_kv_heads = 1;
    general.v_head_dim = 9;
    CHECK(rad_token_to_kv_pool_create(NULL, &general, &pool, &err) == RAD_E_INVAL);
    general.kind = 2;
    CHECK(rad_token_to_kv_pool_create(NULL, &general, &pool, &err) == RAD_E_UNSUPPORTED);

    p = params_for(RAD_I8);
    for (long n = 0; !pool; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_status status = rad_mla_kv_pool_create(&env, &p, &pool, NULL);
        CHECK(status == (pool ? RAD_OK : RAD_E_NOMEM));
        rad_token_to_kv_pool_destroy(pool);
        CHECK(t.bytes == 0);
    }
}

TEST_MAIN()
