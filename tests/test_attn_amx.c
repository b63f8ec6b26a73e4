/* test_attn_amx.c - attention by tiles: what makes a process believe the instructions, and its
 * answers against VDPBF16PS. (The kernel's other tests are test_attention.c, test_attn_pools.c
 * and test_attn_wide.c, over the emulation wherever there is AVX512_BF16.) */
#include "test.h"

#include "attn/attn_wide.h"
#include "base/amx_emulated.h"

/* TDPBF16PS of a CPU that has one rule wrong. */
typedef enum wrong {
    NOTHING_WRONG,
    TAKES_DENORMALS,
    GIVES_DENORMALS,
    ADDS_PAIRS_IN_ONE_CHAIN,
    ADDS_TO_THE_DESTINATION_FIRST,
    GOES_DOWN_IN_K,
    FORGETS_THE_LAST_ROW,
    MIXES_UP_TWO_TILES,
    NUM_WRONG
} wrong;
static wrong is_wrong;

static void wrong_dp(int c, int a, int b)
{
    const amx_config *shape = &amx_thread.config;
    uint32_t columns = shape->row_bytes[c] / 4, depth = shape->rows[b], rows = shape->rows[c];
    if (is_wrong == FORGETS_THE_LAST_ROW) rows--;
    if (is_wrong == MIXES_UP_TWO_TILES && b == 7) b = 6;
    for (uint32_t m = 0; m < rows; m++)
        for (uint32_t n = 0; n < columns; n++) {
            float *to = &amx_thread.tile[c][m][n], sum[2] = {0, 0}, before = amx_flush(*to);
            if (is_wrong == ADDS_TO_THE_DESTINATION_FIRST) sum[0] = before, before = 0;
            for (uint32_t i = 0; i < depth; i++) {
                uint32_t k = is_wrong == GOES_DOWN_IN_K ? depth - 1 - i : i;
                uint16_t x[2], y[2];
                memcpy(x, &amx_thread.tile[a][m][k], 4);
                memcpy(y, &amx_thread.tile[b][k][n], 4);
                for (int half = 0; half < 2; half++) {
                    float p = bf16_to_f32(x[half]), q = bf16_to_f32(y[half]);
                    float *chain = &sum[is_wrong == ADDS_PAIRS_IN_ONE_CHAIN ? 0 : half];
                    if (is_wrong != TAKES_DENORMALS) p = amx_flush(p), q = amx_flush(q);
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
#include "attn/attn_amx_multiply.h"

static bool has_emulation(void)
{
    if (attn_cpu("amx-emulated")) return true;
    print_message("this CPU lacks avx512bf16\n");
    return false;
}

TEST(the_check_at_start_finds_each_broken_rule)
{
    if (!has_emulation()) return;
    for (int w = 0; w < NUM_WRONG; w++) {
        is_wrong = (wrong)w;
        CHECKF(attn_amx_agrees(multiply_alone, &attn_tiles_emulated) == (w == NOTHING_WRONG),
               "rule %d\n", w);
    }
}

/* Right products in a kernel that is not the same: here either layout of another arithmetic. */
TEST(the_check_at_start_looks_at_both_layouts)
{
    if (!has_emulation()) return;
    attn_kernels narrow = attn_pairs_avx512bf16, wide = attn_tiles_emulated;
    CHECK(attn_amx_agrees(attn_amx_multiply_emulated, &wide));
    attn_wide_kernels other = *attn_tiles_emulated.wide;
    narrow.wide = attn_tiles_emulated.wide;
    other.load_values = attn_pairs_avx512bf16.wide->load_values;
    other.attend = attn_pairs_avx512bf16.wide->attend;
    wide.wide = &other;
    CHECK(!attn_amx_agrees(attn_amx_multiply_emulated, &narrow));
    CHECK(!attn_amx_agrees(attn_amx_multiply_emulated, &wide));
}

TEST(a_cpu_with_amx_attends_by_it_or_says_why_not)
{
    const char *why = attn_amx_refusal();
    CHECKF(!why, "this CPU has AMX, but %s\n", why);
    CHECK(strcmp(attn_cpu(NULL)->name, "cpu-amx-emulated") != 0);
    SKIP_UNLESS(attn_cpu("amx"), "this CPU has no AMX");
    CHECK(attn_cpu(NULL) == attn_cpu("amx"));
}

TEST_MAIN()
