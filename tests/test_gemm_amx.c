/* test_gemm_amx.c - where the CPU has AMX, its instructions compute what the emulation
 * does. (The kernel's own tests are test_gemm.c, over either.) */
#include "guarded.h"
#include "test.h"

#include "base/amx_emulated.h"
#include "model/gemm.h"

/* TDPBF16PS of a CPU that has one rule wrong. */
typedef enum wrong {
    NOTHING_WRONG,
    TAKES_DENORMALS,
    TAKES_DENORMAL_SUMS,
    GIVES_DENORMALS,
    ADDS_PAIRS_IN_ONE_CHAIN,
    ADDS_TO_THE_DESTINATION_FIRST,
    GOES_DOWN_IN_K,
    FORGETS_THE_LAST_ROW,
    NUM_WRONG
} wrong;
static wrong is_wrong;

static void wrong_dp(int c, int a, int b)
{
    const amx_config *shape = &amx_thread.config;
    uint32_t columns = shape->row_bytes[c] / 4, depth = shape->rows[b], rows = shape->rows[c];
    if (is_wrong == FORGETS_THE_LAST_ROW && rows == AMX_ROWS) rows--;
    for (uint32_t m = 0; m < rows; m++)
        for (uint32_t n = 0; n < columns; n++) {
            float *to = &amx_thread.tile[c][m][n], sum[2] = {0, 0};
            float before = is_wrong == TAKES_DENORMAL_SUMS ? *to : amx_flush(*to);
            if (is_wrong == ADDS_TO_THE_DESTINATION_FIRST) sum[0] = before, before = 0;
            for (uint32_t i = 0; i < depth; i++) {
                uint32_t k = is_wrong == GOES_DOWN_IN_K ? depth - 1 - i : i;
                uint16_t x[2], w[2];
                memcpy(x, &amx_thread.tile[a][m][k], 4);
                memcpy(w, &amx_thread.tile[b][k][n], 4);
                for (int half = 0; half < 2; half++) {
                    float p = bf16_to_f32(x[half]), q = bf16_to_f32(w[half]);
                    if (is_wrong != TAKES_DENORMALS) p = amx_flush(p), q = amx_flush(q);
                    float *chain = &sum[is_wrong == ADDS_PAIRS_IN_ONE_CHAIN ? 0 : half];
                    *chain = is_wrong == GIVES_DENORMALS ? fmaf(p, q, *chain)
                                                         : amx_fma(p, q, *chain);
                }
            }
            float both = sum[0] + sum[1];
            *to = is_wrong == GIVES_DENORMALS ? before + both : amx_flush(before + amx_flush(both));
        }
}

#undef AMX_DP
#define AMX_DP(c, a, b) wrong_dp(c, a, b)
#include "model/gemm_amx_body.h"

/* What a CPU could have wrong shows in the product that it has to make at start. */
TEST(the_check_at_start_finds_each_broken_rule)
{
    const gemm_isa isa = {.name = "wrong", .bf16_block = amx_block, .round_row = amx_round_row};
    for (int w = 0; w < NUM_WRONG; w++) {
        is_wrong = (wrong)w;
        CHECKF(gemm_amx_agrees(&isa) == (w == NOTHING_WRONG), "rule %d\n", w);
    }
}

/* One product by the instructions and by the C, any shape, any number of rows, on one
 * thread or two. */
static void compare(uint32_t n, uint32_t k, uint32_t m, bool accumulate, compute_pool *pool,
                    uint64_t *seed)
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
        const gemm_isa *isa = gemm_isa_find(i ? "amx-emulated" : "amx");
        CHECK_OK(gemm_weight_create(NULL, GEMM_BF16, n, k, isa, &w, NULL));
        gemm_weight_set_rows(w, 0, n, rows, k);
        guarded scratch = guarded_alloc(gemm_scratch_bytes(w, m));
        out[i] = malloc((size_t)m * n * sizeof **out);
        for (size_t j = 0; j < (size_t)m * n; j++)
            out[i][j] = (float)(j % 97) - 48;
        gemm_run(w, x, k, m, out[i], n, accumulate, pool, scratch.data);
        guarded_free(&scratch);
        gemm_weight_destroy(w);
    }
    CHECKF(memcmp(out[0], out[1], (size_t)m * n * sizeof **out) == 0, "n %u k %u m %u\n", n, k, m);
    free(out[0]);
    free(out[1]);
    free(rows);
    free(x);
}

TEST(the_instructions_compute_what_the_emulation_does)
{
    const char *why = gemm_amx_refusal();
    CHECKF(!why, "this CPU has AMX, but %s\n", why);
    SKIP_UNLESS(gemm_isa_find("amx"), "this CPU has no AMX");
    CHECK(gemm_isa_find(NULL) == gemm_isa_find("amx"));
    uint64_t seed = test_seed();
    print_message("seed %llu\n", (unsigned long long)seed);
    compute_pool *pool;
    CHECK_OK(compute_pool_create(NULL, 2, &pool, NULL));
    for (uint32_t m = 1; m <= 40; m++)
        compare(64, 64, m, m % 2, m % 3 ? NULL : pool, &seed);
    for (uint64_t i = 0; i < test_scale(20, 400); i++)
        compare(1 + (uint32_t)(test_random(&seed) % 200), 1 + (uint32_t)(test_random(&seed) % 700),
                1 + (uint32_t)(test_random(&seed) % 110), i % 2, i % 3 ? pool : NULL, &seed);
    compute_pool_destroy(pool);
}

TEST_MAIN()
