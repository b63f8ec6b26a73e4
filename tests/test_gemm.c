/* test_gemm.c - the packed GEMM is right on every instruction set, keeps promise P1
 * (a row's bits do not depend on its batch), and stays inside its buffers. */
#include "gear/amx_gear.h"
#include "gemm_rig.h"

#include "base/bf16.h"
#include "base/minifloat.h"

static const char *const isa_names[] = {"amx",     "amx-emulated", "avx512bf16", "avx512vnni",
                                        "avx512",  "avxvnni",      "avx2",       "i8mm",
                                        "dotprod", "neon",         "scalar"};
enum { NUM_ISAS = RAD_COUNT(isa_names) };
enum { NUM_PAIRS = 3 }; /* the first have bf16 arithmetic of their own */
static const gemm_type floats[] = {GEMM_F32, GEMM_BF16, GEMM_BF16W, GEMM_F16W};

/* The last two have even k alone. */
static bool in_pairs(gemm_type type)
{
    return type == GEMM_BF16W || type == GEMM_F16W;
}

/* What a weight of the type holds of a number. */
static float rounded_to(gemm_type type, float value)
{
    if (type == GEMM_F16W) return f16_to_f32(f16_from_f32(value));
    return type == GEMM_F32 ? value : bf16_to_f32(bf16_from_f32(value));
}

/* Sets the rows in pieces of odd sizes. */
static void set_rows_in_pieces(gemm_weight *w, const float *rows, uint32_t n, uint32_t k,
                               uint64_t *seed)
{
    for (uint32_t first = 0; first < n;) {
        uint32_t count = 1 + (uint32_t)(test_random(seed) % 40);
        count = RAD_MIN(count, n - first);
        gemm_weight_set_rows(w, first, count, rows + (size_t)first * k, k);
        first += count;
    }
}

static gemm_weight *make_weight(gemm_type dtype, uint32_t n, uint32_t k, const gemm_isa *isa,
                                const float *rows, uint64_t *seed)
{
    gemm_weight *w;
    CHECK_OK(gemm_weight_create(NULL, dtype, n, k, isa, &w, NULL));
    CHECK(gemm_weight_n(w) == n && gemm_weight_k(w) == k);
    set_rows_in_pieces(w, rows, n, k, seed);
    return w;
}

TEST(rounding_to_bf16_is_to_nearest_even)
{
    static const struct {
        uint32_t in;
        uint16_t out;
    } cases[] = {
        {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81},
        {0x3f807fff, 0x3f80}, {0x80000000, 0x8000}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80},
        {0x7f7fffff, 0x7f80}, {0x00000001, 0x0000}, {0x00018000, 0x0002}, {0x007fffff, 0x0080},
    };
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        float value;
        memcpy(&value, &cases[i].in, 4);
        CHECKF(bf16_from_f32(value) == cases[i].out, "%08x\n", cases[i].in);
    }
    CHECK(isnan(bf16_to_f32(bf16_from_f32(NAN))));
    uint32_t low_nan = 0x7f800001;
    float value;
    memcpy(&value, &low_nan, 4);
    CHECK(isnan(bf16_to_f32(bf16_from_f32(value))));
}

/* One shape on one ISA, against sums in double precision. Each link of a chain may be
 * off by half a unit of its sum (VDPBF16PS: two links a pair), hence the bound. */
static void check_against_double(gemm_type dtype, const gemm_isa *isa, uint32_t n, uint32_t k,
                                 uint32_t m, bool accumulate, compute_pool *pool, uint64_t *seed)
{
    operands o = operands_alloc(n, k, m, seed);
    float *rows = malloc((size_t)n * k * sizeof *rows);
    fill(rows, (size_t)n * k, seed);
    operands_fill(&o, seed);

    gemm_weight *w = make_weight(dtype, n, k, isa, rows, seed);
    guarded scratch = guarded_alloc(gemm_scratch_bytes(w, m));
    gemm_run(w, o.x, o.ldx, m, o.out, o.ldo, accumulate, pool, scratch.data);

    for (size_t i = 0; i < (size_t)n * k; i++)
        rows[i] = rounded_to(dtype, rows[i]);
    for (uint32_t i = 0; i < m; i++)
        for (uint32_t j = 0; j < n; j++) {
            double sum = accumulate ? o.before[i * o.ldo + j] : 0, size = fabs(sum);
            for (uint32_t l = 0; l < k; l++) {
                float a = o.x[i * o.ldx + l], b = rows[(size_t)j * k + l];
                if (dtype == GEMM_BF16) a = bf16_to_f32(bf16_from_f32(a));
                sum += (double)a * b;
                size += fabs((double)a * b);
            }
            double bound = (k + 2) * 0x1p-24 * size * (dtype == GEMM_BF16 ? 2 : 1) + 1e-30;
            double error = fabs(o.out[i * o.ldo + j] - sum);
            CHECKF(error <= bound, "%s %s n %u k %u m %u: [%u][%u] off by %g, bound %g\n",
                   gemm_isa_name(isa), gemm_type_name(dtype), n, k, m, i, j, error, bound);
        }
    operands_check_between(&o);
    gemm_weight_destroy(w);
    guarded_free(&scratch);
    operands_free(&o);
    free(rows);
}

TEST(every_isa_agrees_with_double_precision)
{
    uint64_t seed = test_told_seed();
    compute_pool *pool;
    CHECK_OK(compute_pool_create(NULL, 2, &pool, NULL));
    static const uint32_t shapes[][3] = {
        /* n, k, m */
        {1, 1, 1},     {1, 2, 3},      {3, 1, 7},   {64, 64, 6},    {65, 33, 13},  {63, 129, 5},
        {128, 257, 2}, {200, 300, 12}, {5, 700, 1}, {129, 511, 98}, {64, 128, 97},
    };
    for (int i = 0; i < NUM_ISAS; i++) {
        const gemm_isa *isa = gear_gemm_isa(isa_names[i]);
        if (!isa) {
            print_message("this CPU lacks %s\n", isa_names[i]);
            continue;
        }
        CHECK(strcmp(gemm_isa_name(isa), isa_names[i]) == 0);
        for (size_t s = 0; s < RAD_COUNT(shapes); s++)
            for (size_t t = 0; t < RAD_COUNT(floats); t++)
                if (!in_pairs(floats[t]) || shapes[s][1] % 2 == 0)
                    check_against_double(floats[t], isa, shapes[s][0], shapes[s][1], shapes[s][2],
                                         s % 2, s % 3 ? pool : NULL, &seed);
    }
    CHECK(gear_gemm_isa("mmx") == NULL && gear_gemm_isa(NULL) != NULL);
    compute_pool_destroy(pool);
}

/* f32 has the same bits on all instruction sets; bf16 on all that widen. */
TEST(instruction_sets_agree_bit_by_bit)
{
    uint64_t seed = test_told_seed();
    enum { N = 150, K = 333, M = 17 };
    float *rows = malloc(N * K * sizeof *rows), *x = malloc(M * K * sizeof *x);
    float *judge = malloc(M * N * sizeof *judge), *out = malloc(M * N * sizeof *out);
    fill(rows, N * K, &seed);
    fill(x, M * K, &seed);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        for (int i = NUM_ISAS - 1; i >= bf16 * NUM_PAIRS; i--) {
            const gemm_isa *isa = gear_gemm_isa(isa_names[i]);
            if (!isa) continue;
            gemm_weight *w = make_weight(bf16 ? GEMM_BF16 : GEMM_F32, N, K, isa, rows, &seed);
            guarded scratch = guarded_alloc(gemm_scratch_bytes(w, M));
            float *result = i == NUM_ISAS - 1 ? judge : out;
            gemm_run(w, x, K, M, result, N, false, NULL, scratch.data);
            CHECKF(memcmp(result, judge, M * N * sizeof *out) == 0, "%s bf16 %d\n", isa_names[i],
                   bf16);
            guarded_free(&scratch);
            gemm_weight_destroy(w);
        }
    }
    free(rows);
    free(x);
    free(judge);
    free(out);
}

/* bf16 that is widened has the bits of f32 with the same numbers: everywhere, at every height. */
static void check_widened(gemm_type type)
{
    uint64_t seed = test_told_seed();
    enum { N = 150, K = 334, M = 19 };
    float *rows = malloc(N * K * sizeof *rows), *x = malloc(M * K * sizeof *x);
    float *judge = malloc(M * N * sizeof *judge), *out = malloc(M * N * sizeof *out);
    fill(rows, N * K, &seed);
    fill(x, M * K, &seed);
    for (int i = 0; i < N * K; i++)
        rows[i] = rounded_to(type, rows[i]);
    gemm_weight *f32 = make_weight(GEMM_F32, N, K, gemm_isa_find("scalar"), rows, &seed);
    gemm_run(f32, x, K, M, judge, N, false, NULL, NULL);
    for (int i = 0; i < NUM_ISAS; i++) {
        if (!gear_gemm_isa(isa_names[i])) continue;
        gemm_weight *w = make_weight(type, N, K, gear_gemm_isa(isa_names[i]), rows, &seed);
        CHECK(gemm_weight_reads_x(w) &&
              gemm_weight_bytes(type, N, K) * 2 == gemm_weight_bytes(GEMM_F32, N, K));
        for (uint32_t m = 1; m <= M; m++) {
            memset(out, 0xff, M * N * sizeof *out);
            gemm_run(w, x, K, m, out, N, false, NULL, NULL);
            CHECKF(memcmp(out, judge, (size_t)m * N * sizeof *out) == 0, "%s, %u rows\n",
                   isa_names[i], m);
        }
        gemm_weight_destroy(w);
    }
    gemm_weight_destroy(f32);
    free(rows);
    free(x);
    free(judge);
    free(out);
}

TEST(widened_numbers_of_16_bits_are_f32)
{
    check_widened(GEMM_BF16W);
    check_widened(GEMM_F16W);
}

/* What is said to run next, much smaller than what it follows, is only fetched. */
static void check_batches(gemm_type dtype, const gemm_isa *isa, uint32_t n, uint32_t k,
                          compute_pool *const pools[3], uint64_t *seed)
{
    float *rows = malloc((size_t)n * k * sizeof *rows);
    float *known = malloc((size_t)KNOWN_ROWS * k * sizeof *known);
    fill(rows, (size_t)n * k, seed);
    fill(known, (size_t)KNOWN_ROWS * k, seed);
    gemm_weight *w = make_weight(dtype, n, k, isa, rows, seed);
    gemm_weight *next = make_weight(dtype, 5, 4, isa, rows, seed);
    check_batches_of(w, next, gemm_isa_name(isa), known,
                     (batches){.rounds = test_scale(8, 100), .few = 70}, pools, seed);
    gemm_weight_destroy(w);
    gemm_weight_destroy(next);
    free(rows);
    free(known);
}

TEST(a_row_has_the_same_bits_in_every_batch)
{
    uint64_t seed = test_told_seed();
    compute_pool *pools[3];
    start_pools(pools);
    static const uint32_t shapes[][2] = {{64, 256}, {130, 301}, {40, 900}, {200, 64}};
    for (int i = 0; i < NUM_ISAS; i++) {
        const gemm_isa *isa = gear_gemm_isa(isa_names[i]);
        for (size_t s = 0; isa && s < RAD_COUNT(shapes); s++)
            for (size_t t = 0; t < RAD_COUNT(floats); t++)
                if (!in_pairs(floats[t]) || shapes[s][1] % 2 == 0)
                    check_batches(floats[t], isa, shapes[s][0], shapes[s][1], pools, &seed);
    }
    stop_pools(pools);
}

/* down . glu(gate_up . x), with rows rounded one by one, against the same in three steps. */
static void check_gated(const gemm_weight *gate_up, const gemm_weight *down, uint32_t m,
                        compute_pool *pool, uint64_t *seed)
{
    uint32_t k = gemm_weight_k(gate_up), ffn = gemm_weight_k(down), n = gemm_weight_n(down);
    size_t ldx = k + test_random(seed) % 3, ldo = 2 * ffn + test_random(seed) % 3;
    float *x = malloc(m * ldx * sizeof *x), *wide = malloc(m * ldo * sizeof *wide);
    float *want = malloc((size_t)m * n * sizeof *want), *out = malloc((size_t)m * n * sizeof *out);
    guarded scratch = guarded_alloc(gemm_scratch_bytes(gate_up, m));
    guarded then = guarded_alloc(gemm_scratch_bytes(down, m));
    guarded gated = guarded_alloc(((m - 1) * ldo + 2 * ffn) * sizeof(float));
    fill(x, m * ldx, seed);
    fill(want, (size_t)m * n, seed);
    memcpy(out, want, (size_t)m * n * sizeof *out);

    gemm_run(gate_up, x, ldx, m, wide, ldo, false, NULL, scratch.data);
    for (uint32_t i = 0; i < m; i++)
        some_glu(wide + i * ldo, wide + i * ldo + ffn, ffn);
    gemm_run(down, wide, ldo, m, want, n, true, NULL, then.data);

    memset(scratch.data, 0xff, gemm_scratch_bytes(gate_up, m));
    memset(then.data, 0xff, gemm_scratch_bytes(down, m));
    for (uint32_t i = m; i-- > 0;)
        gemm_round_row(gate_up, x + i * ldx, i, scratch.data);
    gemm_run_glu(gate_up, x, ldx, m, some_glu, gated.data, ldo, down, then.data, pool,
                 scratch.data);
    gemm_run_rounded(down, gated.data, ldo, m, out, n, true, pool, then.data);
    CHECKF(memcmp(out, want, (size_t)m * n * sizeof *out) == 0,
           "%s behind %s, k %u ffn %u n %u m %u: gated in one step differs\n",
           gemm_type_name(gemm_weight_type(down)), gemm_type_name(gemm_weight_type(gate_up)), k,
           ffn, n, m);
    guarded_free(&scratch);
    guarded_free(&then);
    guarded_free(&gated);
    free(x);
    free(wide);
    free(want);
    free(out);
}

TEST(a_gated_layer_in_one_step_has_the_bits_of_three)
{
    uint64_t seed = test_told_seed();
    compute_pool *pool;
    CHECK_OK(compute_pool_create(NULL, 2, &pool, NULL));
    static const uint32_t shapes[][3] = {
        /* k, ffn, n: whole panels of gates, and others */
        {64, 64, 64}, {100, 192, 65}, {33, 128, 5}, {96, 100, 70}, {31, 33, 3}, {5, 1, 1},
    };
    static const gemm_type dtypes[] = {GEMM_F32, GEMM_BF16, GEMM_Q8_0, GEMM_BF16W};
    static float rows[400 * 200];
    for (int isa = 0; isa < NUM_ISAS; isa++) {
        if (!gear_gemm_isa(isa_names[isa])) continue;
        for (size_t s = 0; s < RAD_COUNT(shapes); s++)
            for (int types = 0; types < 16; types++) {
                const uint32_t *at = shapes[s];
                if ((types / 4 == 3 && at[0] % 2) || (types % 4 == 3 && at[1] % 2)) continue;
                fill(rows, RAD_COUNT(rows), &seed);
                gemm_weight *gate_up = make_weight(dtypes[types / 4], 2 * at[1], at[0],
                                                   gear_gemm_isa(isa_names[isa]), rows, &seed);
                gemm_weight *down = make_weight(dtypes[types % 4], at[2], at[1],
                                                gear_gemm_isa(isa_names[isa]), rows, &seed);
                uint32_t m = 1 + (uint32_t)(test_random(&seed) % (types == 5 ? 210 : 20));
                check_gated(gate_up, down, m, (isa + types) % 2 ? pool : NULL, &seed);
                gemm_weight_destroy(gate_up);
                gemm_weight_destroy(down);
            }
    }
    compute_pool_destroy(pool);
}

TEST(get_row_gives_back_what_was_set)
{
    uint64_t seed = 7;
    enum { N = 70, K = 31 };
    float rows[N * K], row[K];
    fill(rows, N * K, &seed);
    for (size_t t = 0; t < RAD_COUNT(floats); t++) {
        const uint32_t k_of = in_pairs(floats[t]) ? K - 1 : K;
        gemm_weight *w = make_weight(floats[t], N, k_of, NULL, rows, &seed);
        for (uint32_t n = 0; n < N; n++) {
            gemm_weight_get_row(w, n, row);
            for (uint32_t k = 0; k < k_of; k++) {
                const float want = rounded_to(floats[t], rows[n * k_of + k]);
                CHECK(row[k] == want);
            }
        }
        gemm_weight_destroy(w);
    }
}

TEST(no_rows_and_bad_shapes)
{
    gemm_weight *w = NULL;
    rad_error err = {0};
    CHECK(gemm_weight_create(NULL, GEMM_F32, 0, 5, NULL, &w, &err) == RAD_E_INVAL && !w);
    CHECK(gemm_weight_create(NULL, GEMM_F32, 5, 0, NULL, &w, &err) == RAD_E_INVAL && !w);
    CHECK(gemm_weight_create(NULL, GEMM_BF16W, 5, 5, NULL, &w, &err) == RAD_E_INVAL && !w);
    CHECK(gemm_weight_create(NULL, GEMM_F16W, 5, 5, NULL, &w, &err) == RAD_E_INVAL && !w);
    CHECK(gemm_weight_create(NULL, GEMM_NUM_TYPES, 5, 5, NULL, &w, &err) == RAD_E_INVAL && !w);
    CHECK(gemm_weight_create(NULL, GEMM_F32, UINT32_MAX, UINT32_MAX, NULL, &w, &err) ==
              RAD_E_NOMEM &&
          !w);
    CHECK_OK(gemm_weight_create(NULL, GEMM_F32, 5, 5, NULL, &w, &err));
    gemm_run(w, NULL, 5, 0, NULL, 5, false, NULL, NULL);
    gemm_run_rounded(w, NULL, 5, 0, NULL, 5, false, NULL, NULL);
    gemm_weight_destroy(w);
    gemm_weight_destroy(NULL);
}

TEST(create_survives_every_allocation_failing)
{
    gemm_weight *w = NULL;
    for (long n = 0; !w; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_status status = gemm_weight_create(&env, GEMM_BF16, 100, 100, NULL, &w, NULL);
        CHECK(status == (w ? RAD_OK : RAD_E_NOMEM));
        gemm_weight_destroy(w);
        CHECK(t.bytes == 0);
    }
}

TEST_MAIN()
