/* test_gemm_amx.c - where the CPU has AMX, its instructions compute what the emulation
 * does. (The kernels' own tests are test_gemm.c and test_gemm_quant.c, over either.) */
#include "gear/amx_gear.h"
#include "guarded.h"
#include "test.h"
#include "wrong_dp.h"

#include "model/gemm.h"

/* TDPBSSD of a CPU that has one rule wrong. */
typedef enum wrong_int8 {
    INT8_RIGHT,
    LEFT_IS_UNSIGNED,
    RIGHT_IS_UNSIGNED,
    SATURATES_PAIRS,
    SWAPS_FACTORS,
    STARTS_AT_ZERO_LATE,
    LEAVES_THE_LAST_ROW,
    LEAVES_THE_LAST_COLUMN,
    LEAVES_THE_LAST_FOUR,
    READS_FOURS_BACKWARDS,
    NUM_WRONG_INT8
} wrong_int8;
static wrong_int8 is_wrong_int8;

static int32_t saturated(int32_t v)
{
    return v > INT16_MAX ? INT16_MAX : v < INT16_MIN ? INT16_MIN : v;
}

static void wrong_dp_int8(int c, int a, int b)
{
    const amx_config *shape = &amx_thread.config;
    uint32_t rows = shape->rows[c], columns = shape->row_bytes[c] / 4u, depth = shape->rows[b];
    if (is_wrong_int8 == LEAVES_THE_LAST_ROW) rows--;
    if (is_wrong_int8 == LEAVES_THE_LAST_COLUMN) columns--;
    if (is_wrong_int8 == LEAVES_THE_LAST_FOUR) depth--;
    for (uint32_t m = 0; m < rows; m++)
        for (uint32_t n = 0; n < columns; n++) {
            int32_t sum, pair = 0;
            memcpy(&sum, &amx_thread.tile[c][m][n], sizeof sum);
            if (is_wrong_int8 == STARTS_AT_ZERO_LATE) sum += (int32_t)n;
            for (uint32_t k = 0; k < 4 * depth; k++) {
                uint8_t left, right;
                uint32_t i = is_wrong_int8 == READS_FOURS_BACKWARDS ? 3 - k % 4 : k % 4;
                memcpy(&left, (const char *)amx_thread.tile[a][m] + k, 1);
                memcpy(&right, (const char *)amx_thread.tile[b][k / 4] + 4 * n + i, 1);
                if (is_wrong_int8 == SWAPS_FACTORS && k % 4 == 3) right = left;
                int32_t x = is_wrong_int8 == LEFT_IS_UNSIGNED ? left : (int8_t)left;
                int32_t w = is_wrong_int8 == RIGHT_IS_UNSIGNED ? right : (int8_t)right;
                pair += x * w;
                if (k % 2 == 0) continue;
                sum += is_wrong_int8 == SATURATES_PAIRS ? saturated(pair) : pair;
                pair = 0;
            }
            memcpy(&amx_thread.tile[c][m][n], &sum, sizeof sum);
        }
}

#undef AMX_DP_INT8
#define AMX_DP_INT8(c, a, b) wrong_dp_int8(c, a, b)
#include "model/gemm_amx_body.h"
#include "model/gemm_amx_int8_body.h"

/* What a CPU could have wrong shows in the products that it is checked by. */
TEST(the_check_finds_each_broken_rule)
{
    const gemm_isa isa = {.name = "wrong", .bf16_block = amx_block, .round_row = amx_round_row};
    for (int w = 0; w < NUM_WRONG; w++) {
        is_wrong = (wrong_rule)w;
        CHECKF(gemm_amx_agrees(&isa) == (w == NOTHING_WRONG), "rule %d\n", w);
    }
}

TEST(the_check_of_integers_finds_each_broken_rule)
{
    for (int w = 0; w < NUM_WRONG_INT8; w++) {
        is_wrong_int8 = (wrong_int8)w;
        CHECKF(gemm_amx_int8_agrees(amx_int8_block) == (w == INT8_RIGHT), "rule %d\n", w);
    }
    is_wrong_int8 = INT8_RIGHT;
    CHECK(gemm_amx_int8_agrees(gemm_amx_emulated_int8_block));
}

/* `block` for any rows and columns against the plain kernels: x of blocks that may be NaN,
 * steps of any bits, so any scale. */
static void check_block(gemm_quant_block *block, gemm_type type, uint32_t rows, uint32_t columns,
                        uint32_t depth, bool fresh, uint64_t *seed)
{
    uint32_t per_step = type == GEMM_Q4_K ? GEMM_K_GROUPS : 1, blocks = depth * per_step;
    size_t step = type == GEMM_Q8_0   ? sizeof(gemm_q8_0_step)
                  : type == GEMM_Q4_0 ? sizeof(gemm_q4_0_step)
                                      : sizeof(gemm_q4_k_step);
    guarded gx = guarded_alloc(rows * blocks * sizeof(gemm_xblock));
    guarded gw = guarded_alloc(depth * step);
    guarded gc = guarded_alloc(((rows - 1) * GEMM_PANEL + columns) * sizeof(float));
    gemm_xblock *x = gx.data;
    float *c = gc.data, *want = malloc((size_t)rows * GEMM_PANEL * sizeof *want), row[32];
    for (size_t i = 0; i < depth * step; i++)
        ((uint8_t *)gw.data)[i] = (uint8_t)(test_random(seed) >> 11);
    for (uint32_t i = 0; i < rows * blocks; i++) {
        fill(row, 32, seed);
        if (test_random(seed) % 64 == 0) row[5] = NAN;
        gemm_round_to_blocks(row, 32, x + i);
    }
    for (uint32_t r = 0; r < rows; r++) {
        fill(want + r * GEMM_PANEL, GEMM_PANEL, seed);
        memcpy(c + r * GEMM_PANEL, want + r * GEMM_PANEL, columns * sizeof *c);
    }
    gemm_tile t = {.rows = rows,
                   .depth = depth,
                   .x = x,
                   .ldx = blocks,
                   .w = gw.data,
                   .c = want,
                   .ldc = GEMM_PANEL,
                   .ahead = gw.data,
                   .fresh = fresh};
    gemm_kernel *judge = type == GEMM_Q8_0   ? gemm_quant_scalar.q8_0
                         : type == GEMM_Q4_0 ? gemm_quant_scalar.q4_0
                                             : gemm_quant_scalar.q4_k;
    judge(&t);
    t.c = c;
    block(type, &t, columns);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t n = 0; n < columns; n++) {
            float got = c[r * GEMM_PANEL + n], is = want[r * GEMM_PANEL + n];
            CHECKF(memcmp(&got, &is, sizeof got) == 0 || (isnan(got) && isnan(is)),
                   "type %d rows %u columns %u depth %u: [%u][%u] %a, not %a\n", (int)type, rows,
                   columns, depth, r, n, (double)got, (double)is);
        }
    guarded_free(&gx);
    guarded_free(&gw);
    guarded_free(&gc);
    free(want);
}

/* The kernel of integers in plain C, and with AVX-512 around the emulated tiles: every height,
 * blocks of more rows than are opened for at a time, any width, chunks of k and rests. */
TEST(blocks_of_integers_have_the_bits_of_the_plain_kernels)
{
    static const gemm_type types[] = {GEMM_Q8_0, GEMM_Q4_0, GEMM_Q4_K};
    bool wide = false;
#if defined(__x86_64__)
    wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#endif
    if (!wide) print_message("this CPU has no AVX-512\n");
    uint64_t seed = test_told_seed();
    for (int kind = 0; kind <= wide; kind++) {
        gemm_quant_block *block = kind ? gemm_amx_emulated_int8_block_avx512
                                       : gemm_amx_emulated_int8_block;
        for (size_t i = 0; i < RAD_COUNT(types); i++) {
            for (uint32_t rows = 1; rows <= 38; rows++)
                check_block(block, types[i], rows,
                            rows % 3 ? GEMM_PANEL : 1 + (uint32_t)(test_random(&seed) % GEMM_PANEL),
                            types[i] == GEMM_Q4_K ? 1 : 1 + rows % 5, rows % 2, &seed);
            check_block(block, types[i], 13, 50, types[i] == GEMM_Q4_K ? 5 : 37, true, &seed);
            check_block(block, types[i], 109, 33, types[i] == GEMM_Q4_K ? 1 : 3, false, &seed);
        }
    }
}

/* One product by the instructions and by the C, any shape, any number of rows, on one
 * thread or two. */
static void compare(gemm_type type, uint32_t n, uint32_t k, uint32_t m, bool accumulate,
                    compute_pool *pool, uint64_t *seed)
{
    float *rows = malloc((size_t)n * k * sizeof *rows), *x = malloc((size_t)m * k * sizeof *x);
    float *out[2];
    fill(rows, (size_t)n * k, seed);
    fill(x, (size_t)m * k, seed);
    for (size_t i = 0; i < (size_t)m * k; i += 5)
        x[i] *= 0x1p-70f;
    for (size_t i = 0; i < (size_t)n * k; i += 7)
        rows[i] *= 0x1p-66f;
    for (int i = 0; i < 2; i++) {
        gemm_weight *w;
        const gemm_isa *isa = gear_gemm_isa(i ? "amx-emulated" : "amx");
        CHECK_OK(gemm_weight_create(NULL, type, n, k, isa, &w, NULL));
        gemm_weight_set_rows(w, 0, n, rows, k);
        guarded scratch = guarded_alloc(gemm_scratch_bytes(w, m));
        out[i] = malloc((size_t)m * n * sizeof **out);
        for (size_t j = 0; j < (size_t)m * n; j++)
            out[i][j] = (float)(j % 97) - 48;
        gemm_run(w, x, k, m, out[i], n, accumulate, pool, scratch.data);
        guarded_free(&scratch);
        gemm_weight_destroy(w);
    }
    CHECKF(memcmp(out[0], out[1], (size_t)m * n * sizeof **out) == 0, "%s n %u k %u m %u\n",
           gemm_type_name(type), n, k, m);
    free(out[0]);
    free(out[1]);
    free(rows);
    free(x);
}

TEST(the_instructions_compute_what_the_emulation_does)
{
    SKIP_UNLESS(amx_permitted(NULL), "no AMX, or the system does not let us use it");
    const char *why = gemm_amx_refusal();
    CHECKF(!why, "this CPU has AMX, but %s\n", why);
    why = amx_int8_permitted(NULL) ? gemm_amx_int8_refusal() : NULL;
    CHECKF(!why, "this CPU has AMX, but %s\n", why);
    SKIP_UNLESS(gear_gemm_isa("amx"), "this CPU has no AMX");
    CHECK(gear_gemm_isa("amx") == &gemm_amx || !amx_int8_permitted(NULL));
    CHECK(gear_gemm_isa(NULL) == gear_gemm_isa("amx"));
    CHECK(gemm_amx_agrees(&gemm_amx));
    if (amx_int8_permitted(NULL)) CHECK(gemm_amx_int8_agrees(gemm_amx_int8_block));
    uint64_t seed = test_told_seed();
    compute_pool *pool;
    CHECK_OK(compute_pool_create(NULL, 2, &pool, NULL));
    for (uint32_t m = 1; m <= 40; m++) {
        compare(GEMM_BF16, 64, 64, m, m % 2, m % 3 ? NULL : pool, &seed);
        compare(GEMM_Q8_0, 64, 64, m, m % 2, m % 3 ? NULL : pool, &seed);
    }
    for (uint64_t i = 0; i < test_scale(20, 400); i++)
        compare(i % 2 ? GEMM_Q8_0 : GEMM_BF16, 1 + (uint32_t)(test_random(&seed) % 200),
                1 + (uint32_t)(test_random(&seed) % 700), 1 + (uint32_t)(test_random(&seed) % 110),
                i % 2, i % 3 ? pool : NULL, &seed);
    compute_pool_destroy(pool);
}

TEST_MAIN()
