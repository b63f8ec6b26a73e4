/* test_minifloat.c - f16, e4m3 and e5m2 against a list of all their numbers.
 *
 * The judge knows nothing of bits: it lists the values of all codes from the formula
 * (1 + m / 2^M) * 2^(e - bias) in double, and takes the nearer neighbour of an input, the
 * one with the even code on a tie. */
#include "test.h"

#include "base/bf16.h"
#include "base/minifloat.h"

#include <math.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

typedef struct format {
    const char *name;
    uint32_t mant, bias, num_finite; /* codes 0..num_finite-1 are finite */
    uint32_t sign, inf, nan;         /* code of the sign bit; of +inf (0: none); a NaN's */
    double values[32768];
} format;

static format f16 = {"f16", 10, 15, 0x7c00, 0x8000, 0x7c00, 0x7e00, {0}};
static format bf16 = {"bf16", 7, 127, 0x7f80, 0x8000, 0x7f80, 0x7fc0, {0}};
static format e5m2 = {"e5m2", 2, 15, 0x7c, 0x80, 0x7c, 0x7e, {0}};
static format e4m3 = {"e4m3", 3, 7, 0x7f, 0x80, 0, 0x7f, {0}};
static format *const formats[] = {&f16, &bf16, &e5m2, &e4m3};

static void list_values(format *f)
{
    for (uint32_t code = 0; code < f->num_finite; code++) {
        int e = (int)(code >> f->mant);
        double m = code & ((1u << f->mant) - 1), units = (double)(1u << f->mant);
        f->values[code] = e ? ldexp(1 + m / units, e - (int)f->bias)
                            : ldexp(m / units, 1 - (int)f->bias);
    }
}

static uint32_t encode(const format *f, float x)
{
    return f == &f16    ? f16_from_f32(x)
           : f == &bf16 ? bf16_from_f32(x)
           : f == &e5m2 ? e5m2_from_f32(x)
                        : e4m3_from_f32(x);
}

static float decode(const format *f, uint32_t code)
{
    return f == &f16    ? f16_to_f32((uint16_t)code)
           : f == &bf16 ? bf16_to_f32((uint16_t)code)
           : f == &e5m2 ? e5m2_to_f32((uint8_t)code)
                        : e4m3_to_f32((uint8_t)code);
}

/* The code that a finite or infinite number must get. */
static uint32_t nearest(const format *f, float x)
{
    double size = fabs((double)x);
    uint32_t low = 0, high = f->num_finite - 1, sign = signbit(x) ? f->sign : 0;
    if (size > f->values[high]) {
        double step = f->values[high] - f->values[high - 1];
        if (!f->inf) return sign | high;
        /* The largest code is odd, so the tie goes up, to inf. */
        return sign | (size - f->values[high] >= step / 2 ? f->inf : high);
    }
    while (high - low > 1) { /* values[low] <= size <= values[high] */
        uint32_t mid = (low + high) / 2;
        if (f->values[mid] <= size)
            low = mid;
        else
            high = mid;
    }
    double down = size - f->values[low], up = f->values[high] - size;
    bool take_high = up < down || (up == down && high % 2 == 0);
    return sign | (take_high ? high : low);
}

static void check_bits(const format *f, uint32_t bits)
{
    float x = f32_of_bits(bits);
    uint32_t got = encode(f, x);
    if (isnan(x)) {
        CHECKF(isnan(decode(f, got)) && (got & f->sign) == (signbit(x) ? f->sign : 0),
               "%s of NaN %08x is %x\n", f->name, bits, got);
        return;
    }
    uint32_t want = nearest(f, x);
    CHECKF(got == want, "%s of %08x (%a) is %x, should be %x\n", f->name, bits, (double)x, got,
           want);
}

TEST(every_code_means_what_the_formula_says_and_comes_back)
{
    for (size_t i = 0; i < 4; i++) {
        format *f = formats[i];
        list_values(f);
        for (uint32_t code = 0; code < 2 * f->sign; code++) {
            uint32_t size = code & (f->sign - 1);
            bool negative = code & f->sign;
            float x = decode(f, code);
            if (size < f->num_finite) {
                CHECKF((double)x == (negative ? -f->values[size] : f->values[size]),
                       "%s code %x is %a\n", f->name, code, (double)x);
                CHECK(!signbit(x) == !negative);
                CHECKF(encode(f, x) == code, "%s code %x\n", f->name, code);
            } else if (f->inf && size == f->inf) {
                CHECK(isinf(x) && !signbit(x) == !negative && encode(f, x) == code);
            } else {
                CHECK(isnan(x) && !signbit(x) == !negative);
                CHECK((encode(f, x) & f->sign) == (negative ? f->sign : 0));
            }
        }
    }
}

/* All upper halves of an f32, each with the lower halves at which anything changes. */
TEST(rounding_goes_to_the_nearest_and_ties_to_even)
{
    const uint32_t low[] = {0,      1,      0x0fff, 0x1000, 0x1001, 0x2fff,
                            0x3000, 0x7fff, 0x8000, 0x8001, 0xefff, 0xffff};
    for (size_t i = 0; i < 4; i++) {
        list_values(formats[i]);
        for (uint32_t high = 0; high < 65536; high++)
            for (size_t l = 0; l < sizeof low / sizeof *low; l++)
                check_bits(formats[i], high << 16 | low[l]);
    }
}

/* Halfway between every two neighbours, and one step of an f32 to either side. */
TEST(midpoints_and_their_neighbours)
{
    for (size_t i = 0; i < 4; i++) {
        format *f = formats[i];
        list_values(f);
        for (uint32_t code = 0; code + 1 < f->num_finite; code++) {
            float mid = (float)((f->values[code] + f->values[code + 1]) / 2);
            for (uint32_t sign = 0; sign < 2; sign++)
                for (int32_t d = -1; d <= 1; d++)
                    check_bits(f, ((f32_bits(mid) + (uint32_t)d) & 0x7fffffff) | sign << 31);
        }
    }
}

/* RADISH_TEST_LONG=1: 253 million of each, spread evenly over all there are. */
TEST(random_numbers)
{
    uint64_t seed = test_seed(), state = seed;
    for (size_t i = 0; i < 4; i++) {
        list_values(formats[i]);
        if (test_scale(0, 1))
            for (uint64_t bits = seed % 17; bits <= UINT32_MAX; bits += 17)
                check_bits(formats[i], (uint32_t)bits);
        else
            for (int n = 0; n < 300000; n++)
                check_bits(formats[i], (uint32_t)test_random(&state));
    }
}

#if defined(__SSE__)
/* A thread that flushes subnormals (as inference engines do) stores and reads the same. */
TEST(flushing_f32_subnormals_changes_nothing)
{
    uint32_t (*volatile enc)(const format *, float) = encode; /* called each time, not moved */
    float (*volatile dec)(const format *, uint32_t) = decode;
    unsigned normal = _mm_getcsr();
    for (size_t i = 0; i < 4; i++)
        for (uint32_t n = 0; n < 65536 * 4; n++) {
            uint32_t bits = n << 14 | (n & 0x3fff);
            uint32_t kept = enc(formats[i], f32_of_bits(bits));
            uint32_t widened = f32_bits(dec(formats[i], kept));
            _mm_setcsr(normal | 0x8040); /* FTZ and DAZ */
            uint32_t flushed = enc(formats[i], f32_of_bits(bits));
            uint32_t again = f32_bits(dec(formats[i], kept));
            _mm_setcsr(normal);
            CHECKF(kept == flushed && widened == again, "%s %08x\n", formats[i]->name, bits);
        }
}
#endif

TEST(the_edges_by_hand)
{
    CHECK(e4m3_from_f32(448) == 0x7e && e4m3_from_f32(-448) == 0xfe);
    CHECK(e4m3_from_f32(464) == 0x7e && e4m3_from_f32(1e30f) == 0x7e);
    CHECK(e4m3_from_f32(INFINITY) == 0x7e && e4m3_from_f32(-INFINITY) == 0xfe);
    CHECK(e4m3_from_f32(NAN) == 0x7f && e4m3_from_f32(0x1p-10f) == 0); /* a tie, 0 is even */
    CHECK(e4m3_from_f32(0x1.8p-9f) == 2 && e4m3_from_f32(-0.0f) == 0x80);
    CHECK(e5m2_from_f32(57344) == 0x7b && e5m2_from_f32(61439) == 0x7b);
    CHECK(e5m2_from_f32(61440) == 0x7c && e5m2_from_f32(-INFINITY) == 0xfc);
    CHECK(e5m2_from_f32(0x1p-17f) == 0 && e5m2_from_f32(0x1.8p-16f) == 2);
    CHECK(f16_from_f32(65504) == 0x7bff && f16_from_f32(65519) == 0x7bff);
    CHECK(f16_from_f32(65520) == 0x7c00 && f16_from_f32(0x1p-24f) == 1);
    CHECK(f16_from_f32(0x1p-25f) == 0 && f16_from_f32(f32_of_bits(1)) == 0);
    CHECK(f16_from_f32(f32_of_bits(0x7f800001)) == 0x7e00);
}

TEST_MAIN()
