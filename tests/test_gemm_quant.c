/* test_gemm_quant.c - weights in quantised types: the same bits on every instruction set
 * and in every batch, near the product in double precision, inside their buffers. */
#include "gear/amx_gear.h"
#include "gemm_rig.h"

#include "base/minifloat.h"
#include "gguf/quant.h"

#include <assert.h>

static const char *const isa_names[] = {"scalar",  "amx",     "avx512bf16",  "avx512vnni",
                                        "avx512",  "avxvnni", "avx2",        "i8mm",
                                        "dotprod", "neon",    "amx-emulated"};

/* Where f16 scales (and minima) and integers lie in a block; MXFP4's scale is its first byte. */
static const struct quant {
    gemm_type type;
    uint32_t ggml, values, bytes, num_halves, halves, integers, end;
} quants[] = {{GEMM_Q8_0, GGML_Q8_0, 32, 34, 1, 0, 2, 34},
              {GEMM_Q4_0, GGML_Q4_0, 32, 18, 1, 0, 2, 18},
              {GEMM_Q4_1, GGML_Q4_1, 32, 20, 2, 0, 4, 20},
              {GEMM_Q5_0, GGML_Q5_0, 32, 22, 1, 0, 2, 22},
              {GEMM_Q5_1, GGML_Q5_1, 32, 24, 2, 0, 4, 24},
              {GEMM_IQ4_NL, GGML_IQ4_NL, 32, 18, 1, 0, 2, 18},
              {GEMM_MXFP4, GGML_MXFP4, 32, 17, 0, 0, 1, 17},
              {GEMM_Q2_K, GGML_Q2_K, 256, 84, 2, 80, 16, 80},
              {GEMM_Q3_K, GGML_Q3_K, 256, 110, 1, 108, 0, 96},
              {GEMM_Q4_K, GGML_Q4_K, 256, 144, 2, 0, 16, 144},
              {GEMM_Q5_K, GGML_Q5_K, 256, 176, 2, 0, 16, 176},
              {GEMM_Q6_K, GGML_Q6_K, 256, 210, 1, 208, 0, 192},
              {GEMM_IQ4_XS, GGML_IQ4_XS, 256, 136, 1, 0, 8, 136}};
static_assert(RAD_COUNT(quants) == GEMM_NUM_TYPES - GEMM_Q8_0, "all of them");

static bool has_min(const struct quant *q)
{
    return q->num_halves == 2;
}

/* Random blocks; scales up to 2^-4 lest sums run away. `odd`: any bits as scales at times. */
static uint8_t *random_blocks(const struct quant *q, uint32_t n, uint32_t k, bool odd,
                              uint64_t *seed)
{
    size_t blocks = (size_t)n * (k / q->values);
    uint8_t *bytes = malloc(blocks * q->bytes);
    for (size_t i = 0; i < blocks * q->bytes; i++)
        bytes[i] = (uint8_t)(test_random(seed) >> 13);
    for (size_t b = 0; b < blocks; b++) {
        uint8_t *block = bytes + b * q->bytes;
        if (q->type == GEMM_MXFP4 && (!odd || test_random(seed) % 4))
            block[0] %= 124; /* a power of two, 2^-4 at most */
        for (uint32_t s = 0; s < q->num_halves; s++) {
            uint16_t d = (uint16_t)(test_random(seed) % 0x2c00);
            if (odd && test_random(seed) % 4 == 0) d = (uint16_t)test_random(seed);
            memcpy(block + q->halves + 2 * s, &d, 2);
        }
    }
    return bytes;
}

static gemm_weight *make(const struct quant *q, uint32_t n, uint32_t k, const char *isa_name,
                         const uint8_t *blocks, uint64_t *seed)
{
    gemm_weight *w;
    size_t pitch = (size_t)k / q->values * q->bytes;
    CHECK_OK(gemm_weight_create(NULL, q->type, n, k, gear_gemm_isa(isa_name), &w, NULL));
    CHECK(gemm_weight_type(w) == q->type);
    for (uint32_t first = 0; first < n;) { /* in pieces of odd sizes */
        uint32_t count = 1 + (uint32_t)(test_random(seed) % 40);
        count = RAD_MIN(count, n - first);
        gemm_weight_set_blocks(w, first, count, blocks + first * pitch, pitch);
        first += count;
    }
    return w;
}

static void decode_rows(const struct quant *q, const uint8_t *blocks, uint32_t n, uint32_t k,
                        float *rows)
{
    ggml_decode(q->ggml, blocks, (uint64_t)n * k, rows);
}

static bool same(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(a + i, b + i, 4) != 0 && !(isnan(a[i]) && isnan(b[i]))) return false;
    return true;
}

TEST(rows_come_back_as_the_file_defines_them)
{
    uint64_t seed = test_told_seed();
    enum { N = 131, K = 768 };
    float *rows = malloc(sizeof(float[N * K])), row[K];
    for (size_t t = 0; t < RAD_COUNT(quants); t++) {
        uint8_t *blocks = random_blocks(&quants[t], N, K, true, &seed);
        gemm_weight *w = make(&quants[t], N, K, NULL, blocks, &seed);
        decode_rows(&quants[t], blocks, N, K, rows);
        for (uint32_t n = 0; n < N; n++) {
            gemm_weight_get_row(w, n, row);
            CHECKF(same(row, rows + (size_t)n * K, K), "%s row %u\n",
                   gemm_type_name(quants[t].type), n);
        }
        gemm_weight_destroy(w);
        free(blocks);
    }
    free(rows);
}

/* Floats become q8_0 with at most half a step and the f16 of the scale as error; a weight
 * made so equals one made from the blocks of the same numbers. Any k. */
TEST(floats_are_rounded_to_q8_0)
{
    uint64_t seed = test_told_seed();
    enum { N = 70, K = 77 };
    float rows[N * K], row[K];
    fill(rows, N * K, &seed);
    memset(rows, 0, 32 * sizeof *rows);
    rows[K + 3] = NAN, rows[2 * K + 40] = -INFINITY, rows[3 * K] = 1e30f;
    gemm_weight *w;
    CHECK_OK(gemm_weight_create(NULL, GEMM_Q8_0, N, K, NULL, &w, NULL));
    gemm_weight_set_rows(w, 0, N, rows, K);
    for (uint32_t n = 0; n < N; n++) {
        gemm_weight_get_row(w, n, row);
        for (uint32_t k = 0; k < K; k++) {
            uint32_t block = k / 32 * 32;
            float most = 0, want = rows[n * K + k];
            for (uint32_t i = block; i < RAD_MIN(block + 32, (uint32_t)K); i++)
                most = isfinite(rows[n * K + i]) ? fmaxf(most, fabsf(rows[n * K + i])) : NAN;
            bool broken = (n == 1 && block == 0) || (n == 2 && block == 32);
            if (broken || (n == 3 && block == 0)) /* 1e30: its scale is no f16 */
                CHECK(!isfinite(row[k]) || n == 3);
            else
                CHECKF(fabsf(row[k] - want) <= most * (0.51f / 127 + 0x1p-11f), "[%u][%u]\n", n, k);
        }
    }
    gemm_weight_destroy(w);
}

/* One shape against doubles. What rounding x to int8 costs is bounded by 1% of |x| |w|, and
 * is far less for most; what the chain costs by a few units a block. */
static void check_against_double(const struct quant *q, const char *isa, uint32_t n, uint32_t k,
                                 uint32_t m, bool accumulate, compute_pool *pool, uint64_t *seed)
{
    operands o = operands_alloc(n, k, m, seed);
    float *rows = malloc((size_t)n * k * 4);
    uint8_t *blocks = random_blocks(q, n, k, false, seed);
    decode_rows(q, blocks, n, k, rows);
    operands_fill(&o, seed);
    /* Every other row of x lies on its grid: then only the chain rounds. */
    for (uint32_t i = 0; i < m; i += 2)
        for (uint32_t l = 0; l < k; l++)
            o.x[i * o.ldx + l] = l % 32 == 5 ? 127 : (float)((int)(test_random(seed) % 255) - 127);

    gemm_weight *w = make(q, n, k, isa, blocks, seed);
    guarded scratch = guarded_alloc(gemm_scratch_bytes(w, m));
    gemm_run(w, o.x, o.ldx, m, o.out, o.ldo, accumulate, pool, scratch.data);
    for (uint32_t i = 0; i < m; i++)
        for (uint32_t j = 0; j < n; j++) {
            double sum = accumulate ? o.before[i * o.ldo + j] : 0, size = fabs(sum), xx = 0, ww = 0;
            for (uint32_t l = 0; l < k; l++) {
                double a = o.x[i * o.ldx + l], b = rows[(size_t)j * k + l];
                sum += a * b, size += fabs(a * b), xx += a * a, ww += b * b;
            }
            /* d * q and min are added apart; each may be larger than their difference. */
            double chain = (k / 32 + 8) * 0x1p-23 * size * (has_min(q) ? 8 : 1);
            double bound = i % 2 ? 0.01 * sqrt(xx) * sqrt(ww) + chain : chain + 1e-3 * chain;
            double error = fabs(o.out[i * o.ldo + j] - sum);
            CHECKF(error <= bound, "%s %s n %u k %u m %u: [%u][%u] off by %g, bound %g\n", isa,
                   gemm_type_name(q->type), n, k, m, i, j, error, bound);
        }
    operands_check_between(&o);
    gemm_weight_destroy(w);
    guarded_free(&scratch);
    operands_free(&o);
    free(blocks);
    free(rows);
}

TEST(products_are_near_double_precision)
{
    uint64_t seed = test_told_seed();
    compute_pool *pool;
    CHECK_OK(compute_pool_create(NULL, 2, &pool, NULL));
    static const uint32_t shapes[][3] = {{1, 256, 1}, {65, 256, 13}, {64, 768, 6}, {200, 512, 98}};
    for (size_t i = 0; i < RAD_COUNT(isa_names); i++)
        for (size_t t = 0; gear_gemm_isa(isa_names[i]) && t < RAD_COUNT(quants); t++)
            for (size_t s = 0; s < RAD_COUNT(shapes); s++) {
                /* The widest by turns; all agree bit by bit, as is tested below. */
                if (s == 3 && (i + t) % test_scale(RAD_COUNT(isa_names), 1)) continue;
                check_against_double(&quants[t], isa_names[i], shapes[s][0], shapes[s][1],
                                     shapes[s][2], s % 2, s % 3 ? pool : NULL, &seed);
            }
    compute_pool_destroy(pool);
}

/* Numbers of x that are hard to round: zeros, halves of a step, subnormals, the largest. */
static void fill_hard(float *x, size_t count, uint64_t *seed)
{
    static const float odd[] = {0,      -0.0f,   0.5f,    1.5f,  -2.5f,     127,       1e-38f,
                                1e-45f, -1e-30f, 3.4e38f, 1e30f, 0x1p-100f, 0x1p-101f, 63.5f};
    fill(x, count, seed);
    for (size_t i = 0; i < count; i++) {
        uint64_t r = test_random(seed);
        if (r % 16 == 0) x[i] = odd[(r >> 8) % RAD_COUNT(odd)];
        if (r % 4096 == 1) x[i] = r >> 20 & 1 ? NAN : INFINITY;
        if (i / 32 % 3 == 0) x[i] = (float)((int)(r >> 9 & 255) - 127) * 0.5f;
        if (i / 32 % 7 == 1) x[i] *= 1e-37f;
    }
}

TEST(instruction_sets_agree_bit_by_bit)
{
    uint64_t seed = test_told_seed();
    enum { N = 150, K = 768, M = 23 };
    float *x = malloc(sizeof(float[M * K]));
    float *judge = malloc(sizeof(float[M * N])), *out = malloc(sizeof(float[M * N]));
    float *start = malloc(sizeof(float[M * N]));
    fill_hard(x, M * K, &seed);
    fill(start, M * N, &seed);
    for (size_t t = 0; t < RAD_COUNT(quants); t++) {
        uint8_t *blocks = random_blocks(&quants[t], N, K, true, &seed);
        size_t judged = 0;
        for (size_t i = 0; i < RAD_COUNT(isa_names); i++) {
            if (!gear_gemm_isa(isa_names[i])) continue;
            gemm_weight *w = make(&quants[t], N, K, isa_names[i], blocks, &seed);
            guarded scratch = guarded_alloc(gemm_scratch_bytes(w, M));
            float *result = i ? out : judge;
            memcpy(result, start, sizeof(float[M * N]));
            gemm_run(w, x, K, M, result, N, true, NULL, scratch.data);
            CHECKF(same(result, judge, M * N), "%s %s\n", isa_names[i],
                   gemm_type_name(quants[t].type));
            for (size_t j = 0; j < M * N; j++)
                judged += isfinite(judge[j]) && judge[j] != start[j];
            guarded_free(&scratch);
            gemm_weight_destroy(w);
        }
        CHECK(judged > M * N / 10); /* not everything was NaN */
        free(blocks);
    }
    free(x);
    free(judge);
    free(out);
    free(start);
}

/* The largest products there are, all of one sign or of both: where a kernel adds some of them up
 * in 16 bits, they just fit. */
TEST(the_largest_products_fit)
{
    uint64_t seed = test_told_seed();
    enum { N = 64, K = 512, M = 8 };
    static const uint8_t bytes[] = {0xff, 0x00, 0x80, 0x7f, 0x77, 0xf0, 0x0f, 0x81};
    float *x = malloc(sizeof(float[M * K]));
    float *judge = malloc(sizeof(float[M * N])), *out = malloc(sizeof(float[M * N]));
    for (size_t i = 0; i < M * K; i++) /* 127, -127, in turn, in pairs, by fours ... */
        x[i] = i / K < 2 ? 1 : i % K >> (i / K - 2) & 1 ? 1 : -1;
    for (size_t i = 0; i < K; i++)
        x[K + i] = -1;
    for (size_t t = 0; t < RAD_COUNT(quants); t++) {
        const struct quant *q = &quants[t];
        uint8_t *blocks = random_blocks(q, N, K, false, &seed);
        for (size_t b = 0; b < N * K / q->values; b++)
            memset(blocks + b * q->bytes + q->integers, bytes[b % RAD_COUNT(bytes)],
                   q->end - q->integers);
        for (size_t i = 0; i < RAD_COUNT(isa_names); i++) {
            if (!gear_gemm_isa(isa_names[i])) continue;
            gemm_weight *w = make(q, N, K, isa_names[i], blocks, &seed);
            guarded scratch = guarded_alloc(gemm_scratch_bytes(w, M));
            for (uint32_t m = 1; m <= M; m++) { /* all heights of a tile */
                float *result = i ? out : judge;
                gemm_run(w, x, K, m, result, N, false, NULL, scratch.data);
                CHECKF(same(result, judge, (size_t)m * N), "%s %s, %u rows\n", isa_names[i],
                       gemm_type_name(q->type), m);
            }
            guarded_free(&scratch);
            gemm_weight_destroy(w);
        }
        free(blocks);
    }
    free(x);
    free(judge);
    free(out);
}

static void check_batches(const struct quant *q, const char *isa, uint32_t n, uint32_t k,
                          compute_pool *const pools[3], uint64_t *seed)
{
    /* Seven is the one number that makes a tile of four and one of three. */
    const batches b = {.rounds = test_scale(4, 100), .few = 40, .first = 7};
    float *known = malloc((size_t)KNOWN_ROWS * k * sizeof *known);
    uint8_t *blocks = random_blocks(q, n, k, false, seed);
    fill(known, (size_t)KNOWN_ROWS * k, seed);
    gemm_weight *w = make(q, n, k, isa, blocks, seed);
    check_batches_of(w, NULL, isa, known, b, pools, seed);
    gemm_weight_destroy(w);
    free(blocks);
    free(known);
}

TEST(a_row_has_the_same_bits_in_every_batch)
{
    uint64_t seed = test_told_seed();
    compute_pool *pools[3];
    start_pools(pools);
    static const uint32_t shapes[][2] = {{64, 256}, {130, 512}, {40, 1024}};
    for (size_t i = 1; i < RAD_COUNT(isa_names); i++) /* scalar agrees with these; it is slow */
        for (size_t t = 0; gear_gemm_isa(isa_names[i]) && t < RAD_COUNT(quants); t++)
            for (size_t s = 0; s < RAD_COUNT(shapes); s++)
                check_batches(&quants[t], isa_names[i], shapes[s][0], shapes[s][1], pools, &seed);
    stop_pools(pools);
}

TEST(shapes_that_do_not_fit_blocks)
{
    gemm_weight *w = NULL;
    for (gemm_type type = GEMM_Q2_K; type < GEMM_NUM_TYPES; type++)
        CHECK(gemm_weight_create(NULL, type, 5, 128, NULL, &w, NULL) == RAD_E_INVAL && !w);
    CHECK_OK(gemm_weight_create(NULL, GEMM_Q8_0, 5, 33, NULL, &w, NULL));
    CHECK(gemm_weight_bytes(GEMM_Q8_0, 5, 33) == 2 * 34 * 64);
    gemm_weight_destroy(w);
}

TEST_MAIN()
