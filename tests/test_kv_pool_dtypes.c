/* test_kv_pool_dtypes.c - what a number becomes in each store dtype, and what is read back.
 *
 * The judges are the scalar functions of base/minifloat.h (which have a test of their own)
 * and a few lines of double arithmetic for int8. */
#include "gear/kv_buffers.h"
#include "kv_numbers.h"
#include "test.h"

#include <float.h>
#include <math.h>

static const uint32_t dtypes[] = {RAD_F32, RAD_BF16, RAD_F16, RAD_F8_E4M3, RAD_F8_E5M2, RAD_I8};

static rad_token_to_kv_pool *make(uint32_t dtype, uint32_t heads, uint32_t dim, uint32_t v_dim,
                                  const float *k_scale, const float *v_scale)
{
    rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                     .num_pages = 2,
                                     .num_layers = 1,
                                     .num_kv_heads = heads,
                                     .head_dim = dim,
                                     .v_head_dim = v_dim,
                                     .dtype = dtype,
                                     .k_scales = k_scale,
                                     .v_scales = v_scale};
    rad_token_to_kv_pool *pool = NULL;
    CHECK_OK(rad_token_to_kv_pool_create(NULL, &p, &pool, NULL));
    return pool;
}

static bool same(float a, float b)
{
    return f32_bits(a) == f32_bits(b);
}

/* All 16-bit codes, and the 8-bit ones 256 times: decoded as the formula says; and what was
 * decoded goes back to the same code. */
TEST(every_code_is_read_back_exactly_and_stored_as_itself)
{
    enum { ALL = 65536 };
    static uint16_t codes[ALL];
    static float k[ALL], v[ALL];
    const float two = 0.5f, one = 1;
    for (uint32_t dtype = RAD_BF16; dtype <= RAD_F8_E5M2; dtype++) {
        bool fp8 = dtype >= RAD_F8_E4M3;
        rad_token_to_kv_pool *pool = make(dtype, 1, ALL, 0, fp8 ? &two : NULL, fp8 ? &one : NULL);
        rad_slot slot = 1;
        char *row = (char *)kv_key_buffer(pool, 0) + (size_t)ALL * kv_dtype_bytes(dtype);
        char *v_row = (char *)kv_value_buffer(pool, 0) + (size_t)ALL * kv_dtype_bytes(dtype);
        for (uint32_t i = 0; i < ALL; i++)
            if (fp8)
                row[i] = v_row[i] = (char)i;
            else
                codes[i] = (uint16_t)i;
        if (!fp8) memcpy(row, codes, sizeof codes), memcpy(v_row, codes, sizeof codes);
        CHECK_OK(rad_kv_pool_get_kv(pool, 0, &slot, 1, k, v));
        for (uint32_t i = 0; i < ALL; i++) {
            uint32_t code = fp8 ? i & 255 : i;
            float want = decode(dtype, code);
            CHECKF(same(v[i], want), "dtype %u code %x is %a\n", dtype, code, (double)v[i]);
            CHECK(isnan(want) ? isnan(k[i]) : same(k[i], fp8 ? want * two : want));
        }
        memset(row, 0x55, (size_t)ALL * kv_dtype_bytes(dtype));
        memset(v_row, 0x55, (size_t)ALL * kv_dtype_bytes(dtype));
        rad_kv_pool_set_kv_buffer(pool, 0, &slot, 1, k, v);
        for (uint32_t i = 0; i < ALL; i++) {
            uint32_t code = fp8 ? i & 255 : i, got = code_at(dtype, v_row, i);
            if (isnan(v[i]))
                CHECK(isnan(decode(dtype, got)));
            else
                CHECKF(got == code && code_at(dtype, row, i) == code, "dtype %u code %x -> %x\n",
                       dtype, code, got);
        }
        rad_token_to_kv_pool_destroy(pool);
    }
}

/* The loops of the pool against the scalar function, for all upper halves of an f32 and
 * rows of every length around the width of a vector. */
TEST(rows_are_rounded_like_single_numbers)
{
    static const uint16_t low[] = {0, 1, 0x1000, 0x7fff, 0x8000, 0x8001, 0xffff};
    static float k[65536 + 64];
    for (uint32_t dtype = RAD_F32; dtype <= RAD_F8_E5M2; dtype++) {
        rad_slot slot = 2;
        rad_token_to_kv_pool *pool = make(dtype, 1, 65536, 0, NULL, NULL);
        for (size_t l = 0; l < sizeof low / sizeof *low; l++) {
            for (uint32_t i = 0; i < 65536; i++)
                k[i] = f32_of_bits(i << 16 | low[l]);
            rad_kv_pool_set_kv_buffer(pool, 0, &slot, 1, k, NULL);
            const char *row = (char *)kv_key_buffer(pool, 0) +
                              2 * (size_t)65536 * kv_dtype_bytes(dtype);
            for (uint32_t i = 0; i < 65536; i++)
                CHECKF(code_at(dtype, row, i) == encode(dtype, k[i]), "dtype %u, %08x\n", dtype,
                       f32_bits(k[i]));
        }
        rad_token_to_kv_pool_destroy(pool);
        for (uint32_t dim = 1; dim <= 67; dim++) {
            pool = make(dtype, 1, dim, 0, NULL, NULL);
            slot = 1;
            rad_kv_pool_set_kv_buffer(pool, 0, &slot, 1, k + 16200, k + 1);
            const void *row = (char *)kv_key_buffer(pool, 0) + (size_t)dim * kv_dtype_bytes(dtype);
            for (uint32_t i = 0; i < dim; i++)
                CHECK(code_at(dtype, row, i) == encode(dtype, k[16200 + i]));
            for (uint32_t i = 0; i < dim; i++) /* the slots before and behind are untouched */
                CHECK(!code_at(dtype, kv_key_buffer(pool, 0), i) && !code_at(dtype, row, dim + i));
            rad_token_to_kv_pool_destroy(pool);
        }
    }
}

TEST(fp8_divides_by_the_layers_scale_and_multiplies_when_read)
{
    uint64_t seed = test_seed(), state = seed;
    enum { DIM = 77 };
    const float k_scales[3] = {0.25f, 0.0371f, 3}, v_scales[3] = {1, 17.25f, 0.001f};
    for (uint32_t dtype = RAD_F8_E4M3; dtype <= RAD_F8_E5M2; dtype++) {
        rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                         .num_pages = 4,
                                         .num_layers = 3,
                                         .num_kv_heads = 1,
                                         .head_dim = DIM,
                                         .dtype = dtype,
                                         .k_scales = k_scales,
                                         .v_scales = v_scales};
        rad_token_to_kv_pool *pool = NULL;
        CHECK_OK(rad_token_to_kv_pool_create(NULL, &p, &pool, NULL));
        CHECK(rad_kv_pool_params(pool)->k_scales != k_scales &&
              rad_kv_pool_params(pool)->v_scales[1] == 17.25f);
        for (uint32_t layer = 0; layer < 3; layer++) {
            float k[DIM], v[DIM], k_back[DIM], v_back[DIM];
            for (int i = 0; i < DIM; i++) {
                k[i] = (float)ldexp((double)(int64_t)test_random(&state), -61);
                v[i] = k[i] * 100;
            }
            rad_slot slot = 3;
            rad_kv_pool_set_kv_buffer(pool, layer, &slot, 1, k, v);
            CHECK_OK(rad_kv_pool_get_kv(pool, layer, &slot, 1, k_back, v_back));
            for (int i = 0; i < DIM; i++) {
                float want_k = decode(dtype, encode(dtype, k[i] / k_scales[layer]));
                float want_v = decode(dtype, encode(dtype, v[i] / v_scales[layer]));
                CHECKF(same(k_back[i], want_k * k_scales[layer]) &&
                           same(v_back[i], want_v * v_scales[layer]),
                       "seed %llu", (unsigned long long)seed);
            }
        }
        rad_token_to_kv_pool_destroy(pool);
    }
}

/* One head of int8, done in the open. */
static void naive_i8(const float *src, size_t n, int8_t *codes, float *scale)
{
    float most = 0;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        finite = finite && isfinite(src[i]);
        if (fabsf(src[i]) > most) most = fabsf(src[i]);
    }
    *scale = finite ? most / 127 : NAN;
    if (finite && *scale < FLT_MIN) *scale = FLT_MIN;
    while (finite && !isfinite(*scale * 127))
        *scale = nextafterf(*scale, 0);
    for (size_t i = 0; i < n; i++)
        codes[i] = finite ? (int8_t)nearbyint((double)(src[i] / *scale)) : 0;
}

TEST(int8_has_a_scale_per_token_and_head)
{
    uint64_t seed = test_seed(), state = seed;
    enum { HEADS = 3, DIM = 21, V_DIM = 16, SLOTS = 3 };
    rad_token_to_kv_pool *pool = make(RAD_I8, HEADS, DIM, V_DIM, NULL, NULL);
    CHECK(rad_kv_pool_bytes_per_token(rad_kv_pool_params(pool)) == HEADS * (DIM + 4 + V_DIM + 4));
    CHECK(rad_kv_pool_size_bytes(pool) == SLOTS * HEADS * (DIM + 4 + V_DIM + 4));
    rad_kv_buffers at;
    CHECK_OK(rad_kv_pool_get_buffers(pool, 0, &at));
    CHECK(at.k_stride == HEADS * DIM && at.v_stride == HEADS * V_DIM);
    CHECK(at.k_scale_stride == HEADS * 4 && at.v_scale_stride == HEADS * 4);

    for (int round = 0; round < 2000; round++) {
        float k[HEADS * DIM], v[HEADS * V_DIM], k_back[HEADS * DIM], v_back[HEADS * V_DIM];
        rad_slot slot = round % SLOTS;
        for (int h = 0; h < HEADS; h++) {
            int exponent = (int)(test_random(&state) % 260) - 200; /* each head its own size */
            for (int i = 0; i < DIM; i++)
                k[h * DIM + i] = (float)ldexp((double)(int64_t)test_random(&state), exponent);
            for (int i = 0; i < V_DIM; i++)
                v[h * V_DIM + i] =
                    (float)ldexp((double)(int64_t)test_random(&state), -exponent - 150);
        }
        if (round % 7 == 3) k[5] = round % 2 ? INFINITY : NAN;
        if (round % 7 == 4) memset(v, 0, sizeof v);
        if (round % 7 == 5) k[30] = FLT_MAX;
        if (round % 7 == 6) k[2] = f32_of_bits(1);
        rad_kv_pool_set_kv_buffer(pool, 0, &slot, 1, k, v);
        CHECK_OK(rad_kv_pool_get_kv(pool, 0, &slot, 1, k_back, v_back));
        for (int h = 0; h < HEADS; h++) {
            int8_t codes[DIM];
            float scale;
            naive_i8(k + h * DIM, DIM, codes, &scale);
            CHECKF(memcmp(codes, (char *)at.k + (size_t)slot * at.k_stride + h * DIM, DIM) == 0,
                   "seed %llu round %d", (unsigned long long)seed, round);
            float got = at.k_scale[slot * HEADS + h];
            CHECK(isnan(scale) ? isnan(got) : same(got, scale));
            for (int i = 0; i < DIM; i++) {
                float back = k_back[h * DIM + i];
                CHECK(isnan(scale) ? isnan(back) : same(back, (float)codes[i] * scale));
                CHECK(isnan(scale) || (isfinite(back) && fabs((double)back - k[h * DIM + i]) <=
                                                             (0.5 + 0x1p-16) * (double)scale));
            }
            naive_i8(v + h * V_DIM, V_DIM, codes, &scale);
            CHECK(memcmp(codes, (char *)at.v + (size_t)slot * at.v_stride + h * V_DIM, V_DIM) == 0);
            for (int i = 0; i < V_DIM; i++)
                CHECK(isnan(scale) ? isnan(v_back[h * V_DIM + i])
                                   : same(v_back[h * V_DIM + i], (float)codes[i] * scale));
        }
    }
    rad_token_to_kv_pool_destroy(pool);
}

TEST(a_fresh_pool_reads_as_zero_in_every_dtype)
{
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        rad_token_to_kv_pool *pool = make(dtypes[d], 2, 5, 3, NULL, NULL);
        float k[30], v[18];
        memset(k, 1, sizeof k);
        memset(v, 1, sizeof v);
        CHECK_OK(rad_kv_pool_get_kv(pool, 0, (rad_slot[]){0, 2, 1}, 3, k, v));
        for (int i = 0; i < 30; i++)
            CHECK(same(k[i], 0));
        for (int i = 0; i < 18; i++)
            CHECK(same(v[i], 0));
        CHECK(rad_kv_pool_is_packed(pool));
        rad_token_to_kv_pool_destroy(pool);
    }
}

TEST(a_side_that_is_null_stays_as_it_is)
{
    rad_token_to_kv_pool *pool = make(RAD_BF16, 1, 2, 2, NULL, NULL);
    rad_slot slot = 1;
    const float first[2] = {1, 2}, second[2] = {3, 4};
    float k[2], v[2];
    rad_kv_pool_set_kv_buffer(pool, 0, &slot, 1, first, first);
    rad_kv_pool_set_kv_buffer(pool, 0, &slot, 1, second, NULL);
    CHECK_OK(rad_kv_pool_get_kv(pool, 0, &slot, 1, k, v));
    CHECK(k[0] == 3 && v[0] == 1);
    rad_kv_pool_set_kv_buffer(pool, 0, &slot, 1, NULL, second);
    CHECK_OK(rad_kv_pool_get_kv(pool, 0, &slot, 1, NULL, v));
    CHECK(v[1] == 4);
    k[0] = 9;
    CHECK(rad_kv_pool_get_kv(pool, 1, &slot, 1, k, v) == RAD_E_INVAL);
    CHECK(rad_kv_pool_get_kv(pool, 0, (rad_slot[]){1, 3}, 2, k, v) == RAD_E_INVAL);
    CHECK(rad_kv_pool_get_kv(pool, 0, (rad_slot[]){-1}, 1, k, v) == RAD_E_INVAL && k[0] == 9);
    rad_token_to_kv_pool_destroy(pool);
}

TEST(scales_are_for_fp8_and_must_be_numbers)
{
    rad_error err;
    rad_token_to_kv_pool *pool = NULL;
    float scales[2] = {1, 1};
    rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                     .num_pages = 1,
                                     .num_layers = 2,
                                     .num_kv_heads = 1,
                                     .head_dim = 4,
                                     .dtype = RAD_I8,
                                     .v_scales = scales,
                                     .start_layer = 10};
    CHECK(rad_token_to_kv_pool_create(NULL, &p, &pool, &err) == RAD_E_INVAL && !pool);
    p.dtype = RAD_F8_E4M3;
    const float wrong[] = {0, -1, NAN, INFINITY, FLT_MIN / 2, -0.0f};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        scales[1] = wrong[i];
        CHECK(rad_token_to_kv_pool_create(NULL, &p, &pool, &err) == RAD_E_INVAL && !pool);
        CHECK(strstr(err.text, "V scale of layer 11") != NULL);
    }
    p.dtype = RAD_I8 + 1;
    CHECK(rad_token_to_kv_pool_create(NULL, &p, &pool, &err) == RAD_E_UNSUPPORTED);
    CHECK(rad_kv_pool_bytes_per_token(&p) == 0 && rad_kv_pool_bytes_per_token(NULL) == 0);
    p.dtype = RAD_F16;
    CHECK(rad_kv_pool_bytes_per_token(&p) == 2 * (4 + 4) * 2);
    p.head_dim = p.num_kv_heads = p.num_layers = UINT32_MAX;
    CHECK(rad_kv_pool_bytes_per_token(&p) == 0); /* does not fit */
}

TEST_MAIN()
