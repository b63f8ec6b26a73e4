/* test_token_to_kv_pool.c - numbers lie where the header says, rounded once. */
#include "gear/kv_buffers.h"
#include "test.h"

#include <math.h>
#include <radish/token_to_kv_pool.h>

enum { PAGES = 5, PAGE = 4, LAYERS = 3, HEADS = 2, DIM = 8, V_DIM = 6 };

static rad_token_to_kv_pool_params params_for(uint32_t dtype)
{
    return (rad_token_to_kv_pool_params){.struct_size = sizeof(rad_token_to_kv_pool_params),
                                         .num_pages = PAGES,
                                         .page_size = PAGE,
                                         .num_layers = LAYERS,
                                         .num_kv_heads = HEADS,
                                         .head_dim = DIM,
                                         .v_head_dim = V_DIM,
                                         .dtype = dtype};
}

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (isnan(x)) return (uint16_t)(bits >> 16 | 0x40);
    /* The naive way: the nearer of the two neighbours, the even one on a tie. */
    uint32_t low = bits & 0xffff, high = bits >> 16;
    if (low > 0x8000 || (low == 0x8000 && (high & 1))) high++;
    return (uint16_t)high;
}

TEST(tokens_are_stored_where_the_header_says)
{
    for (uint32_t dtype = RAD_F32; dtype <= RAD_BF16; dtype++) {
        rad_token_to_kv_pool_params p = params_for(dtype);
        rad_token_to_kv_pool *pool = NULL;
        CHECK_OK(rad_token_to_kv_pool_create(NULL, &p, &pool, NULL));
        size_t size = dtype == RAD_F32 ? 4 : 2;
        CHECK(rad_kv_pool_bytes_per_token(&p) == LAYERS * HEADS * (DIM + V_DIM) * size);

        rad_slot loc[3] = {21, 4, 23};
        float k[3][HEADS * DIM], v[3][HEADS * V_DIM];
        uint64_t state = 7;
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            for (int t = 0; t < 3; t++) {
                for (int i = 0; i < HEADS * DIM; i++)
                    k[t][i] = (float)((double)test_random(&state) / 1e18 - 9.0);
                for (int i = 0; i < HEADS * V_DIM; i++)
                    v[t][i] = (float)((double)test_random(&state) / 1e18 - 9.0);
            }
            rad_kv_pool_set_kv_buffer(pool, layer, loc, 3, k[0], v[0]);
            for (int t = 0; t < 3; t++) {
                for (int i = 0; i < HEADS * DIM; i++) {
                    size_t at = (size_t)loc[t] * HEADS * DIM + (size_t)i;
                    if (dtype == RAD_F32)
                        CHECK(((float *)kv_key_buffer(pool, layer))[at] == k[t][i]);
                    else
                        CHECK(((uint16_t *)kv_key_buffer(pool, layer))[at] == bf16_of(k[t][i]));
                }
                for (int i = 0; i < HEADS * V_DIM; i++) {
                    size_t at = (size_t)loc[t] * HEADS * V_DIM + (size_t)i;
                    if (dtype == RAD_F32)
                        CHECK(((float *)kv_value_buffer(pool, layer))[at] == v[t][i]);
                    else
                        CHECK(((uint16_t *)kv_value_buffer(pool, layer))[at] == bf16_of(v[t][i]));
                }
            }
            /* Nobody else's slot was touched: a fresh pool is zero. */
            const char *bytes = kv_key_buffer(pool, layer);
            for (size_t i = 0; i < 4 * HEADS * DIM * size; i++)
                CHECK(bytes[i] == 0);
        }
        rad_token_to_kv_pool_destroy(pool);
    }
}

TEST(bf16_rounds_to_nearest_even_also_at_the_edges)
{
    rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                     .num_pages = 1,
                                     .num_layers = 1,
                                     .num_kv_heads = 1,
                                     .head_dim = 16,
                                     .dtype = RAD_BF16};
    rad_token_to_kv_pool *pool = NULL;
    CHECK_OK(rad_token_to_kv_pool_create(NULL, &p, &pool, NULL));
    CHECK(rad_kv_pool_params(pool)->v_head_dim == 16 && rad_kv_pool_params(pool)->page_size == 1);
    const uint32_t bits[16] = {0x00000000, 0x80000000, 0x3f800000, 0x3f808000,
                               0x3f818000, 0x3f808001, 0x3f807fff, 0x7f800000,
                               0xff800000, 0x7f7fffff, 0x7f800001, 0xffc00001,
                               0x00000001, 0x00008000, 0x00018000, 0x7fffffff};
    float k[16];
    memcpy(k, bits, sizeof k);
    rad_slot loc = 1;
    rad_kv_pool_set_kv_buffer(pool, 0, &loc, 1, k, k);
    const uint16_t *got = (uint16_t *)kv_value_buffer(pool, 0) + 16;
    for (int i = 0; i < 16; i++)
        CHECKF(got[i] == bf16_of(k[i]), "%08x gave %04x", bits[i], got[i]);
    CHECK(got[3] == 0x3f80 && got[4] == 0x3f82 && got[9] == 0x7f80);
    CHECK((got[10] & 0x7fff) > 0x7f80); /* NaN stays NaN */
    rad_token_to_kv_pool_destroy(pool);
}

TEST(a_page_goes_out_and_comes_back)
{
    rad_token_to_kv_pool_params p = params_for(RAD_F32);
    rad_token_to_kv_pool *pool = NULL;
    CHECK_OK(rad_token_to_kv_pool_create(NULL, &p, &pool, NULL));
    float k[HEADS * DIM], v[HEADS * V_DIM];
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (rad_slot slot = 2 * PAGE; slot < 3 * PAGE; slot++) {
            for (int i = 0; i < HEADS * DIM; i++)
                k[i] = (float)(layer * 1000) + (float)(slot * 20 + i);
            for (int i = 0; i < HEADS * V_DIM; i++)
                v[i] = -k[i];
            rad_kv_pool_set_kv_buffer(pool, layer, &slot, 1, k, v);
        }
    enum { BYTES = PAGE * LAYERS * HEADS * (DIM + V_DIM) * 4 };
    static char page[BYTES], again[BYTES];
    CHECK_OK(rad_kv_pool_get_page(pool, 2, page, BYTES));
    float first_v;
    memcpy(&first_v, page + PAGE * HEADS * DIM * 4, 4); /* layer by layer, K then V */
    CHECK(first_v == -(float)(2 * PAGE * 20));
    CHECK_OK(rad_kv_pool_set_page(pool, 5, page, BYTES));
    CHECK_OK(rad_kv_pool_get_page(pool, 5, again, BYTES));
    CHECK(memcmp(page, again, BYTES) == 0);
    CHECK(((float *)kv_key_buffer(pool, 1))[5 * PAGE * HEADS * DIM] == 1000 + 160);

    CHECK(rad_kv_pool_get_page(pool, 6, page, BYTES) == RAD_E_INVAL);
    CHECK(rad_kv_pool_get_page(pool, -1, page, BYTES) == RAD_E_INVAL);
    CHECK(rad_kv_pool_set_page(pool, 1, page, BYTES - 1) == RAD_E_INVAL);
    rad_token_to_kv_pool_destroy(pool);
}

static void count_wait(void *user, uint32_t layer)
{
    ((int *)user)[layer]++;
}

TEST(reading_a_layer_waits_for_it_first)
{
    int waits[LAYERS] = {0};
    rad_token_to_kv_pool_params p = params_for(RAD_BF16);
    rad_token_to_kv_pool *pool = NULL;
    CHECK_OK(rad_token_to_kv_pool_create(NULL, &p, &pool, NULL));
    CHECK_OK(rad_kv_pool_add_wait(pool, count_wait, waits, NULL));
    kv_key_buffer(pool, 1);
    kv_value_buffer(pool, 1);
    kv_key_buffer(pool, 2);
    CHECK(waits[0] == 0 && waits[1] == 2 && waits[2] == 1);
    rad_token_to_kv_pool_destroy(pool);
}

/* Who waits comes and goes in any order, and nobody else is forgotten. */
TEST(those_who_wait_are_registered_one_by_one)
{
    int waits[RAD_KV_WAITERS + 1][LAYERS] = {0};
    rad_token_to_kv_pool_params p = params_for(RAD_BF16);
    rad_token_to_kv_pool *pool = NULL;
    rad_error err = {0};
    CHECK_OK(rad_token_to_kv_pool_create(NULL, &p, &pool, NULL));
    for (int i = 0; i < RAD_KV_WAITERS; i++)
        CHECK_OK(rad_kv_pool_add_wait(pool, count_wait, waits[i], &err));
    CHECK(rad_kv_pool_add_wait(pool, count_wait, waits[RAD_KV_WAITERS], &err) == RAD_E_LIMIT);
    CHECKF(strstr(err.text, "4 wait"), "%s\n", err.text);
    CHECK(rad_kv_pool_add_wait(pool, count_wait, waits[1], &err) == RAD_E_STATE && err.text[0]);
    CHECK(rad_kv_pool_add_wait(pool, NULL, waits[1], &err) == RAD_E_INVAL);
    kv_key_buffer(pool, 0);
    CHECK_OK(rad_kv_pool_remove_wait(pool, count_wait, waits[1])); /* from the middle */
    CHECK(rad_kv_pool_remove_wait(pool, count_wait, waits[1]) == RAD_E_STATE);
    kv_key_buffer(pool, 1);
    CHECK_OK(rad_kv_pool_remove_wait(pool, count_wait, waits[0])); /* the first */
    CHECK_OK(rad_kv_pool_add_wait(pool, count_wait, waits[RAD_KV_WAITERS], &err));
    kv_key_buffer(pool, 2);
    static const int want[RAD_KV_WAITERS + 1][3] = {
        {1, 1, 0}, {1, 0, 0}, {1, 1, 1}, {1, 1, 1}, {0, 0, 1}};
    for (int i = 0; i <= RAD_KV_WAITERS; i++)
        for (int layer = 0; layer < 3; layer++)
            CHECK(waits[i][layer] == want[i][layer]);
    rad_token_to_kv_pool_destroy(pool);
}

TEST(create_refuses_what_makes_no_sense_and_survives_failing_memory)
{
    rad_error err;
    rad_token_to_kv_pool *pool = NULL;
    rad_token_to_kv_pool_params p = params_for(RAD_I8 + 1);
    CHECK(rad_token_to_kv_pool_create(NULL, &p, &pool, &err) == RAD_E_UNSUPPORTED);
    p = params_for(RAD_F32);
    p.num_layers = 0;
    CHECK(rad_token_to_kv_pool_create(NULL, &p, &pool, &err) == RAD_E_INVAL);
    p = params_for(RAD_F32);
    p.num_pages = UINT32_MAX;
    CHECK(rad_token_to_kv_pool_create(NULL, &p, &pool, &err) == RAD_E_LIMIT);
    p = params_for(RAD_F32);
    p.num_kv_heads = p.head_dim = p.v_head_dim = UINT32_MAX;
    CHECK(rad_token_to_kv_pool_create(NULL, &p, &pool, &err) == RAD_E_NOMEM && !pool);

    p = params_for(RAD_F32);
    for (long n = 0; !pool; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_status status = rad_token_to_kv_pool_create(&env, &p, &pool, NULL);
        CHECK(status == (pool ? RAD_OK : RAD_E_NOMEM));
        rad_token_to_kv_pool_destroy(pool);
        CHECK(t.bytes == 0);
    }
}

TEST_MAIN()
