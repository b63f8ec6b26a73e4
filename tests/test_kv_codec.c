/* test_kv_codec.c - every instruction set gives the bits of the scalar functions. */
#include "kv_numbers.h"
#include "test.h"

#include <math.h>

static const char *const isas[] = {"plain", "avx2", "avx512"};
enum { ALL = 65536 };
static float numbers[ALL + 64], back[ALL + 64];
static uint32_t stored[ALL + 64];

static bool same(float a, float b)
{
    return isnan(b) ? isnan(a) : f32_bits(a) == f32_bits(b);
}

TEST(encoding_has_the_same_bits_on_every_instruction_set)
{
    static const uint16_t low[] = {0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (size_t a = 0; a < 3; a++) {
        const kv_codec *codec = kv_codec_for(isas[a]);
        if (!codec) continue; /* this CPU lacks it */
        CHECK(!strcmp(codec->name, isas[a]));
        for (uint32_t dtype = RAD_F32; dtype <= RAD_F8_E5M2; dtype++)
            for (size_t l = 0; l < 2 * sizeof low / sizeof *low; l++) {
                float scale = l % 2 && kv_dtype_is_fp8(dtype) ? 0.37f : 1;
                for (uint32_t i = 0; i < ALL; i++)
                    numbers[i] = f32_of_bits(i << 16 | low[l / 2]);
                codec->encode(dtype, stored, numbers, ALL, scale);
                for (uint32_t i = 0; i < ALL; i++) {
                    uint32_t got = code_at(dtype, stored, i);
                    uint32_t want = encode(dtype, numbers[i] / scale);
                    if (isnan(numbers[i])) /* dividing may choose another NaN */
                        CHECK(isnan(decode(dtype, got)));
                    else
                        CHECKF(got == want, "%s dtype %u scale %g: %a is %x\n", isas[a], dtype,
                               (double)scale, (double)numbers[i], got);
                }
            }
    }
}

TEST(decoding_has_the_same_bits_on_every_instruction_set)
{
    for (size_t a = 0; a < 3; a++) {
        const kv_codec *codec = kv_codec_for(isas[a]);
        for (uint32_t dtype = RAD_F32; codec && dtype <= RAD_I8; dtype++) {
            uint32_t size = kv_dtype_bytes(dtype);
            for (uint32_t i = 0; i < ALL; i++)
                for (uint32_t byte = 0; byte < size; byte++)
                    ((uint8_t *)stored)[(size_t)i * size + byte] =
                        (uint8_t)(size == 4 ? i * 40503u >> byte : i >> (8 * byte));
            /* The last ones leave the range of f32, at one end and at the other. */
            static const float scales[] = {0.37f, 1, 3e-39f, 0x1p-119f, 0x1.8p118f, 0x1.1p125f};
            bool scaled = kv_dtype_is_fp8(dtype) || dtype == RAD_I8;
            for (size_t n = 0; n < (scaled ? RAD_COUNT(scales) : 1); n++) {
                float scale = scaled ? scales[n] : 1;
                codec->decode(dtype, back, stored, ALL, scale);
                for (uint32_t i = 0; i < ALL; i++)
                    CHECKF(same(back[i], decode(dtype, code_at(dtype, stored, i)) * scale),
                           "%s dtype %u: %x times %a is %a\n", isas[a], dtype,
                           code_at(dtype, stored, i), (double)scale, (double)back[i]);
            }
        }
    }
}

/* Which NaN of f16 it was, and its sign, can be seen in f32: all the same everywhere. */
TEST(a_nan_keeps_what_it_says)
{
    for (size_t a = 0; a < 3; a++) {
        const kv_codec *codec = kv_codec_for(isas[a]);
        for (uint32_t dtype = RAD_F16; codec && dtype <= RAD_F8_E5M2; dtype++) {
            uint32_t codes = dtype == RAD_F16 ? ALL : 256;
            for (uint32_t i = 0; i < codes; i++)
                if (dtype == RAD_F16)
                    ((uint16_t *)stored)[i] = (uint16_t)i;
                else
                    ((uint8_t *)stored)[i] = (uint8_t)i;
            codec->decode(dtype, back, stored, codes, 1);
            for (uint32_t i = 0; i < codes; i++)
                CHECK(f32_bits(back[i]) == f32_bits(decode(dtype, i)));
        }
    }
}

/* Rows in any order with room between them, and each with a scale of its own. */
TEST(rows_that_lie_apart_read_like_each_alone)
{
    enum { ROWS = 23, ROOM = 400, LD = 140 };
    static uint8_t memory[ROWS * ROOM];
    static float got[ROWS * LD + 1], want[LD];
    uint64_t seed = test_seed(), state = seed;
    for (size_t i = 0; i < sizeof memory; i++)
        memory[i] = (uint8_t)(test_random(&state) >> 20);
    float scales[ROWS];
    rad_slot slots[ROWS];
    for (uint32_t i = 0; i < ROWS; i++) {
        scales[i] = (float)(test_random(&state) % 1000) / 77;
        slots[i] = (rad_slot)(test_random(&state) % ROWS);
    }
    for (size_t a = 0; a < 3; a++) {
        const kv_codec *codec = kv_codec_for(isas[a]);
        for (uint32_t dtype = RAD_F32; codec && dtype <= RAD_I8; dtype++)
            for (uint32_t round = 0; round < 200; round++) {
                uint32_t size = kv_dtype_bytes(dtype), first = test_random(&state) % ROWS;
                uint32_t count = test_random(&state) % (ROWS - first + 1);
                size_t stride = ROOM - 4 * (test_random(&state) % 8);
                size_t dim = 1 + test_random(&state) % RAD_MIN(LD - 1, stride / size - 4);
                kv_rows rows = {.base = (const char *)memory + size * (test_random(&state) % 4),
                                .slots = slots,
                                .stride = stride,
                                .scale = dtype == RAD_F8_E4M3 || dtype == RAD_F8_E5M2 ? 0.37f : 1,
                                .scales = dtype == RAD_I8 ? (const char *)scales : NULL,
                                .scale_stride = sizeof *scales};
                memset(got, 0x55, sizeof got);
                codec->decode_rows(dtype, got, LD, &rows, first, count, dim);
                for (uint32_t i = 0; i < count; i++) {
                    rad_slot slot = slots[first + i];
                    kv_codec_for("plain")->decode(dtype, want, rows.base + slot * stride, dim,
                                                  rows.scales ? scales[slot] : rows.scale);
                    for (size_t d = 0; d < dim; d++)
                        CHECKF(same(got[i * LD + d], want[d]), "%s dtype %u seed %llu", isas[a],
                               dtype, (unsigned long long)seed);
                    CHECK(f32_bits(got[i * LD + dim]) == 0x55555555);
                }
                CHECK(f32_bits(got[count * LD]) == 0x55555555);
            }
    }
}

/* Lengths around the width of a vector, each beside a guard that must stay. */
TEST(rows_of_any_length_end_where_they_should)
{
    uint64_t seed = test_seed(), state = seed;
    for (uint32_t i = 0; i < 200; i++)
        numbers[i] = (float)((double)test_random(&state) / 1e18 - 9);
    for (size_t a = 0; a < 3; a++) {
        const kv_codec *codec = kv_codec_for(isas[a]);
        for (uint32_t dtype = RAD_F32; codec && dtype <= RAD_I8; dtype++)
            for (size_t n = 1; n <= 150; n++) {
                size_t from = test_random(&state) % 20;
                float scale = kv_dtype_is_fp8(dtype) ? 0.37f : 1;
                memset(stored, 0xa5, (n + 4) * 4);
                if (dtype == RAD_I8)
                    scale = codec->encode_i8((int8_t *)stored, numbers + from, n);
                else
                    codec->encode(dtype, stored, numbers + from, n, scale);
                for (size_t i = 0; i < n; i++) {
                    uint32_t want = dtype == RAD_I8 ? (uint8_t)(int8_t)nearbyint(
                                                          (double)(numbers[from + i] / scale))
                                                    : encode(dtype, numbers[from + i] / scale);
                    CHECKF(code_at(dtype, stored, i) == want, "%s seed %llu", isas[a],
                           (unsigned long long)seed);
                }
                CHECK(((uint8_t *)stored)[n * kv_dtype_bytes(dtype)] == 0xa5);
                back[n] = 77;
                codec->decode(dtype, back, stored, n, scale);
                for (size_t i = 0; i < n; i++)
                    CHECK(same(back[i], decode(dtype, code_at(dtype, stored, i)) * scale));
                CHECK(back[n] == 77);
            }
    }
}

/* The largest magnitude decides the scale wherever it stands, and inf or NaN poisons. */
TEST(the_scale_of_int8_sees_every_number)
{
    for (size_t a = 0; a < 3; a++) {
        const kv_codec *codec = kv_codec_for(isas[a]);
        for (size_t n = 1; codec && n <= 70; n++)
            for (size_t at = 0; at < n; at++) {
                for (size_t i = 0; i < n; i++)
                    numbers[i] = i % 2 ? 1 : -1;
                numbers[at] = -254;
                CHECK(codec->encode_i8((int8_t *)stored, numbers, n) == 2);
                CHECK(((int8_t *)stored)[at] == -127);
                numbers[at] = at % 2 ? -INFINITY : NAN;
                CHECK(isnan(codec->encode_i8((int8_t *)stored, numbers, n)));
                for (size_t i = 0; i < n; i++)
                    CHECK(((int8_t *)stored)[i] == 0);
            }
    }
}

TEST(an_unknown_instruction_set_is_none)
{
    CHECK(kv_codec_for("avx1024") == NULL && kv_codec_for(NULL) != NULL);
    CHECK(kv_dtype_bytes(RAD_I8 + 1) == 0);
}

TEST_MAIN()
