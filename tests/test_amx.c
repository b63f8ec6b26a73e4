/* test_amx.c - the arithmetic that stands in for AMX where there is none rounds and
 * flushes as the manual says. */
#include "test.h"

#include "gear/amx_check.h"
#include "gear/amx_emulated.h"

#define TINY 0x1p-126f /* the smallest normal number */

static float from_bits(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static uint32_t to_bits(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* c + the products of `depth` pairs, by one tile of one row and column. */
static float one_cell(float c, const float a[][2], const float b[][2], uint32_t depth)
{
    uint16_t x[AMX_ROWS][2] = {{0}}, w[AMX_ROWS][2] = {{0}};
    for (uint32_t k = 0; k < depth; k++)
        for (int half = 0; half < 2; half++) {
            x[k][half] = bf16_from_f32(a[k][half]);
            w[k][half] = bf16_from_f32(b[k][half]);
        }
    amx_config shape = {.palette = 1};
    shape.rows[0] = shape.rows[1] = 1;
    shape.rows[2] = (uint8_t)depth;
    shape.row_bytes[0] = shape.row_bytes[2] = 4;
    shape.row_bytes[1] = (uint16_t)(4 * depth);
    AMX_CONFIGURE(&shape);
    AMX_LOAD(0, &c, 4);
    AMX_LOAD(1, x, 4 * depth);
    AMX_LOAD(2, w, 4);
    AMX_DP(0, 1, 2);
    AMX_STORE(0, &c, 4);
    AMX_RELEASE();
    return c;
}

/* Sums by hand, each of which comes out otherwise if one rule is left out. */
TEST(products_round_as_the_manual_says)
{
    /* Even and odd halves have sums of their own: 2^24 and 1 + 1 + ... meet at the end. In
     * one chain each 1 would be lost beside 2^24. */
    float ones[6][2] = {{0x1p24f, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}};
    float by_one[6][2] = {{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
    CHECK(one_cell(0, ones, by_one, 6) == 0x1p24f + 6);

    /* The destination comes last: what the sums lack in bits it does not give. */
    float pair[1][2] = {{1, 1}}, minus[2][2] = {{0x1p24f, 0}, {-0x1p24f, 0}};
    CHECK(one_cell(0x1p24f, pair, by_one, 1) == 0x1p24f + 2);
    CHECK(one_cell(1, minus, by_one, 2) == 1);

    /* A product is neither rounded nor flushed before it is added. */
    float far[2][2] = {{0x1p24f, 0}, {0x1.02p0f, 0}}, factor[2][2] = {{1, 0}, {0x1.02p0f, 0}};
    CHECK(one_cell(0, far, factor, 2) == 0x1p24f + 2); /* 2^24 + 1.0157 */
    float small[2][2] = {{TINY, 0}, {0x1p-70f, 0}}, smaller[2][2] = {{1, 0}, {0x1p-70f, 0}};
    CHECK(one_cell(0, small, smaller, 2) == TINY * (1 + 0x1p-14f));

    /* Denormals are zero: in either factor, and in the destination. */
    float low[1][2] = {{TINY / 2, 0}}, high[1][2] = {{0x1p100f, 0}};
    CHECK(to_bits(one_cell(0, low, high, 1)) == 0 && to_bits(one_cell(0, high, low, 1)) == 0);
    CHECK(one_cell(TINY / 2, high, by_one, 1) == 0x1p100f);
    CHECK(to_bits(one_cell(TINY / 2, pair, (const float[][2]){{0, 0}}, 1)) == 0);

    /* So are results: of a product, of the sum of the halves, of the sum with c. */
    float root[1][2] = {{0x1p-64f, 0}};
    CHECK(to_bits(one_cell(0, root, root, 1)) == 0);
    float near[1][2] = {{TINY * 1.5f, -TINY}};
    CHECK(to_bits(one_cell(0, near, by_one, 1)) == 0);
    CHECK(to_bits(one_cell(-TINY, (const float[][2]){{TINY * 1.5f, 0}}, by_one, 1)) == 0);
    CHECK(to_bits(one_cell(TINY, (const float[][2]){{TINY * -1.5f, 0}}, by_one, 1)) == 0x80000000);
    CHECK(one_cell(TINY, (const float[][2]){{TINY, 0}}, by_one, 1) == 2 * TINY);

    CHECK(isnan(one_cell(0, (const float[][2]){{INFINITY, 0}}, (const float[][2]){{0, 0}}, 1)));
    CHECK(one_cell(1, (const float[][2]){{INFINITY, 0}}, by_one, 1) == INFINITY);
}

/* Just below the smallest normal number there are results that round to it with the bits
 * that denormals have, and to less with all 24. The CPU looks at the latter. */
TEST(what_is_too_small_is_seen_before_denormals_round)
{
    float c = from_bits(0x00800001), below = -0x1p-75f, half = 0x1p-76f;
    CHECK(amx_fma(below, 0x1p-75f, c) == TINY);       /* TINY * (1 + 2^-23) - 2^-150: a tie */
    CHECK(amx_fma(below, 0x1p-75f, TINY) == 0);       /* 24 bits hold it: too small */
    CHECK(amx_fma(half, -0x1p-75f, TINY) == TINY);    /* 25 bits: a tie, to even */
    CHECK(amx_fma(half, -0x1.02p-75f, TINY) == 0);    /* a hair more */
    CHECK(amx_fma(half, -0x1.fep-76f, TINY) == TINY); /* a hair less */
    CHECK(to_bits(amx_fma(-half, -0x1.02p-75f, -TINY)) == 0x80000000);
}

#if defined(__x86_64__)
#include <immintrin.h>

/* The scalar fma of this CPU with the same two modes switched on. */
__attribute__((target("fma"))) static float cpu_fma(float a, float b, float c)
{
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* results, then inputs: denormals are zero */
    volatile float va = a, vb = b, vc = c;
    __m128 sum = _mm_fmadd_ss(_mm_set_ss(va), _mm_set_ss(vb), _mm_set_ss(vc));
    volatile float result = _mm_cvtss_f32(sum);
    _mm_setcsr(before);
    return result;
}

/* A bf16 whose exponent lies within `spread` above `from`, or zero, or denormal. */
static float random_half(uint64_t *seed, int from, int spread)
{
    uint64_t r = test_random(seed);
    uint32_t exponent = (uint32_t)(from + (int)(r >> 32) % spread);
    if (r % 16 == 0) exponent = 0;
    return from_bits((uint32_t)(r & 0x80000000) | exponent << 23 | (uint32_t)(r & 0x7f0000));
}

TEST(an_fma_flushes_as_the_cpu_does)
{
    SKIP_UNLESS(__builtin_cpu_supports("fma"), "this CPU has no fma");
    uint64_t seed = test_told_seed();
    for (uint64_t i = 0; i < test_scale(1000000, 50000000); i++) {
        float a = amx_flush(random_half(&seed, 40, 24)), b = amx_flush(random_half(&seed, 40, 24));
        float c = amx_flush(from_bits((uint32_t)test_random(&seed) & 0x81ffffff));
        if (i % 4 == 0) c = from_bits(0x00800000 + (uint32_t)(test_random(&seed) % 3));
        if (i % 8 == 0) c = -c;
        float got = amx_fma(a, b, c), want = cpu_fma(a, b, c);
        CHECKF(to_bits(got) == to_bits(want), "%a * %a + %a: %a, the CPU says %a\n", (double)a,
               (double)b, (double)c, (double)got, (double)want);
    }
}
#endif

/* A reason is given only where there is something to refuse. */
TEST(permission_is_the_same_each_time)
{
    const char *why = "", *again = "";
    bool permitted = amx_permitted(&why);
    CHECK(amx_permitted(&again) == permitted && why == again);
    CHECK(!permitted || !why);
    print_message("%s\n", permitted ? "permitted" : why ? why : "this CPU has no AMX");
    bool of_bytes = amx_int8_permitted(&why);
    CHECK(amx_int8_permitted(NULL) == of_bytes && (!of_bytes || !why));
}

/* Signed bytes times signed bytes, of any shape, added to what was there, in 32 bits that
 * wrap; beyond the shape nothing is touched. */
TEST(products_of_bytes_are_exact)
{
    uint64_t seed = test_told_seed();
    for (uint64_t round = 0; round < test_scale(200, 5000); round++) {
        uint32_t rows = 1 + (uint32_t)(test_random(&seed) % AMX_ROWS);
        uint32_t depth = 1 + (uint32_t)(test_random(&seed) % AMX_ROWS);
        uint32_t columns = 1 + (uint32_t)(test_random(&seed) % AMX_ROWS);
        int8_t a[AMX_ROWS][AMX_ROW_BYTES], b[AMX_ROWS][AMX_ROW_BYTES];
        int32_t c[AMX_ROWS][AMX_ROWS], want[AMX_ROWS][AMX_ROWS];
        for (uint32_t i = 0; i < AMX_ROWS; i++)
            for (uint32_t j = 0; j < AMX_ROW_BYTES; j++) {
                uint64_t r = test_random(&seed);
                a[i][j] = (int8_t)(round % 4 ? r >> 8 : 0x80);
                b[i][j] = (int8_t)(round % 4 ? r >> 16 : round % 8 ? 0x80 : 0x7f);
                c[i][j / 4] = round % 3 ? (int32_t)(r >> 32) : 0;
            }
        memcpy(want, c, sizeof want);
        for (uint32_t m = 0; m < rows; m++)
            for (uint32_t n = 0; n < columns; n++) {
                int64_t sum = c[m][n];
                for (uint32_t k = 0; k < 4 * depth; k++)
                    sum += (int64_t)a[m][k] * b[k / 4][4 * n + k % 4];
                want[m][n] = (int32_t)(uint32_t)(uint64_t)sum;
            }
        amx_config shape = {.palette = 1};
        shape.rows[0] = shape.rows[1] = (uint8_t)rows;
        shape.rows[2] = (uint8_t)depth;
        shape.row_bytes[0] = shape.row_bytes[2] = (uint16_t)(4 * columns);
        shape.row_bytes[1] = (uint16_t)(4 * depth);
        AMX_CONFIGURE(&shape);
        AMX_LOAD(0, c, sizeof c[0]);
        AMX_LOAD(1, a, sizeof a[0]);
        AMX_LOAD(2, b, sizeof b[0]);
        AMX_DP_INT8(0, 1, 2);
        AMX_STORE(0, c, sizeof c[0]);
        AMX_RELEASE();
        CHECKF(memcmp(c, want, sizeof c) == 0, "%u x %u x %u\n", rows, columns, depth);
    }
}

TEST_MAIN()
