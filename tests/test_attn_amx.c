/* test_attn_amx.c - attention by tiles: what holds the instructions against the emulation, and
 * answers against VDPBF16PS. (The kernel's other tests are test_attention.c, test_attn_pools.c
 * and test_attn_wide.c, over the emulation wherever there is AVX512_BF16.) */
#include "gear/amx_gear.h"
#include "test.h"
#include "wrong_dp.h"

#include "attn/attn_amx_multiply.h"
#include "attn/attn_wide.h"

static bool has_emulation(void)
{
    if (gear_attn_cpu("amx-emulated")) return true;
    print_message("this CPU lacks avx512bf16\n");
    return false;
}

TEST(the_check_finds_each_broken_rule)
{
    if (!has_emulation()) return;
    for (int w = 0; w < TAKES_DENORMAL_SUMS; w++) {
        is_wrong = (wrong_rule)w;
        CHECKF(attn_amx_agrees(multiply_alone, &attn_tiles_emulated) == (w == NOTHING_WRONG),
               "rule %d\n", w);
    }
}

/* Right products in a kernel that is not the same: here either layout of another arithmetic. */
TEST(the_check_looks_at_both_layouts)
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
    SKIP_UNLESS(amx_permitted(NULL), "no AMX, or the system does not let us use it");
    const char *why = attn_amx_refusal();
    CHECKF(!why, "this CPU has AMX, but %s\n", why);
    SKIP_UNLESS(gear_attn_cpu("amx"), "AMX and no AVX512_BF16");
    CHECK(gear_attn_cpu(NULL) == gear_attn_cpu("amx"));
    CHECK(attn_amx_agrees(attn_amx_multiply_tiles, &attn_tiles_amx));
}

TEST_MAIN()
