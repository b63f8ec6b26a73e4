/* The emulator of CUDA kernels: what it computes is what hardware does, and what a kernel forgot
 * shows. */
#include "../test.h"
#include "toy_kernels.h"

#include <math.h>

static const char *run(const char *kernel, u32 blocks, u32 threads, u32 shared, const void *args,
                       u64 order)
{
    emulation launch = {.kernel = kernel,
                        .grid = {blocks, 1, 1},
                        .threads = threads,
                        .shared_bytes = shared,
                        .args = args,
                        .order = order};
    return emulate(&launch);
}

static const u64 orders[] = {0, 1, 7, 12345};

TEST(schedules_give_one_result_and_a_forgotten_barrier_another)
{
    u32 from[1024], to[4][1024];
    for (u32 i = 0; i < 1024; i++)
        from[i] = i * 2654435761u;
    for (int variant = WHOLE; variant <= NO_BARRIER; variant++) {
        int wrong = 0;
        for (int i = 0; i < 4; i++) {
            toy_args args = {from, to[i], (u32)variant};
            CHECK(!run("toy_reverse", 4, 256, 0, &args, orders[i]));
            for (u32 j = 0; j < 1024; j++)
                wrong += to[i][j] != from[j / 256 * 256 + 255 - j % 256];
        }
        CHECKF((wrong != 0) == (variant == NO_BARRIER), "variant %d: %d wrong", variant, wrong);
    }
}

TEST(lanes_talk_and_what_they_may_not_do_is_told_with_lines)
{
    static const char *const complaints[] = {
        NULL,
        "warp 1: its lanes diverge: lane 0 waits in a shuffle at ",
        "warp 1: its lanes diverge: lane 0 waits in a shuffle at ",
        "deadlock: thread 0 waits in SYNC_BLOCK at ",
        "barrier divergence: thread 0 waits in",
        "a copy of 16 bytes is not aligned at "};
    u32 from[64], to[64];
    for (u32 i = 0; i < 64; i++)
        from[i] = i * 77;
    for (u32 variant = TALK; variant <= MISALIGNED; variant++)
        for (int i = 0; i < 4; i++) {
            toy_args args = {from, to, variant};
            const char *wrong = run("toy_talk", 1, 64, 0, &args, orders[i]);
            const char *wanted = complaints[variant];
            CHECKF(wanted ? wrong && strstr(wrong, wanted) && strstr(wrong, ".c:") : !wrong,
                   "variant %u, order %d: %s", variant, i, wrong ? wrong : "no complaint");
        }
    toy_args args = {from, to, TALK};
    CHECK(!run("toy_talk", 1, 64, 0, &args, 3));
    u32 sums[64];
    for (u32 i = 0; i < 64; i++)
        sums[i] = from[i / 32 * 32 + 31 - i % 32] + from[i / 32 * 32 + 31 - (i % 32 ^ 1)];
    for (u32 i = 0; i < 64; i++) {
        u32 votes = 0;
        for (u32 lane = 0; lane < 32; lane++)
            votes |= (sums[i / 32 * 32 + lane] & 1) << lane;
        CHECK(to[i] == (sums[i] ^ votes));
    }
}

TEST(a_launch_that_no_gpu_would_take_is_refused)
{
    toy_args args = {0};
    CHECK(strstr(run("no_such_kernel", 1, 32, 0, &args, 0), "there is no kernel no_such_kernel"));
    CHECK(strstr(run("toy_talk", 1, 96, 0, &args, 0), "96 threads a block"));
    CHECK(strstr(run("toy_talk", 0, 32, 0, &args, 0), "no grid is 0 x 1 x 1"));
    CHECK(strstr(run("toy_talk", 1, 32, 228 << 10, &args, 0), "bytes of shared memory"));
}

TEST(a_product_is_its_chain_and_copies_land_when_they_are_waited_for)
{
    enum { K = 64 };
    u16 x[16][K] __attribute__((aligned(16))), y[8][K] __attribute__((aligned(16)));
    uint64_t state = test_told_seed();
    for (int k = 0; k < K; k++) {
        for (int m = 0; m < 16; m++)
            x[m][k] =
                (u16)(0x3f80 + test_random(&state) % 256 - (test_random(&state) & 1) * 0x8000);
        for (int n = 0; n < 8; n++)
            y[n][k] = (u16)(0x3f80 + test_random(&state) % 256);
    }
    float wanted[16][8] = {{0}}, got[16][8];
    for (int k = 0; k < K; k += 16) {
        u16 left[16][16], right[8][16];
        for (int i = 0; i < 16; i++)
            memcpy(left[i], &x[i][k], 32);
        for (int i = 0; i < 8; i++)
            memcpy(right[i], &y[i][k], 32);
        tensor_core_bf16(TENSOR_CORE_SM90, wanted, left, right);
    }
    for (u32 too_early = 0; too_early < 2; too_early++)
        for (int i = 0; i < 4; i++) {
            toy_product_args args = {x[0], y[0], got[0], K, too_early};
            CHECK(!run("toy_product", 1, 32, 2 * 24 * 16 * 2, &args, orders[i]));
            CHECK((memcmp(got, wanted, sizeof got) != 0) == too_early);
        }
}

TEST(boxes_land_and_wgmma_ends_when_they_are_waited_for)
{
    static const char *const complaints[] = {
        [OPERAND_OVERWRITTEN] = "shared memory changed under ",
        [TOO_MANY_BYTES] = "deadlock: thread 0 waits in barrier_wait at "};
    enum { N = 64 };
    static u16 x[N][N] __attribute__((aligned(16))), y[N][N] __attribute__((aligned(16)));
    static float wanted[N][N], got[N][N];
    uint64_t state = test_told_seed();
    for (int i = 0; i < N * N; i++) {
        x[i / N][i % N] = (u16)(0x3f80 + test_random(&state) % 256);
        y[i / N][i % N] = (u16)(0x3f80 + test_random(&state) % 256 - (i & 1) * 0x8000);
    }
    for (int row = 0; row < N; row += 16)
        for (int column = 0; column < N; column += 8) {
            float d[16][8] = {{0}};
            for (int k = 0; k < N; k += 16) {
                u16 left[16][16], right[8][16];
                for (int i = 0; i < 16; i++)
                    memcpy(left[i], &x[row + i][k], 32);
                for (int i = 0; i < 8; i++)
                    memcpy(right[i], &y[column + i][k], 32);
                tensor_core_bf16(TENSOR_CORE_SM90, d, left, right);
            }
            for (int i = 0; i < 16; i++)
                memcpy(&wanted[row + i][column], d[i], sizeof d[i]);
        }
    toy_wgmma_args args = {.d = got[0]};
    CHECK(emulator_tensor_map(args.x, x, N, N, N * 2, 64, 64));
    CHECK(emulator_tensor_map(args.y, y, N, N, N * 2, 64, 64));
    CHECK(!emulator_tensor_map(args.y, (char *)y + 2, N, N, N * 2, 64, 64));
    CHECK(emulator_tensor_map(args.y, y, N, N, N * 2, 64, 64));
    for (u32 variant = NOTHING; variant <= TOO_MANY_BYTES; variant++)
        for (int i = 0; i < 4; i++) {
            args.variant = variant;
            const char *wrong = run("sm90:toy_wgmma", 1, 128, 2 * 8192, &args, orders[i]);
            bool same = memcmp(got, wanted, sizeof got) == 0;
            const char *wanted_words = complaints[variant];
            bool found = variant == NOTHING ? !wrong && same
                         : wanted_words     ? wrong && strstr(wrong, wanted_words)
                                            : wrong || !same;
            if (variant == BOX_NOT_AWAITED && i >= 2) continue; /* it may come in time */
            CHECKF(found, "variant %u, order %d: %s", variant, i, wrong ? wrong : "no complaint");
        }
}

/* ---- the sums of matrix instructions ---- */

/* The definition in tensor_core.h, in doubles, which hold each of its steps exactly. */
static int exponent_of(float x)
{
    return fabsf(x) < 0x1p-126f ? -126 : ilogbf(x);
}

static float fused_sum(float c, const float *x, const float *y, int terms, int bits)
{
    double special = c;
    for (int k = 0; k < terms; k++)
        special += (double)x[k] * y[k];
    if (!isfinite(special)) return (float)special;
    int most = c != 0 ? exponent_of(c) : -300;
    for (int k = 0; k < terms; k++) {
        int e = exponent_of(x[k]) + exponent_of(y[k]);
        if (x[k] * (double)y[k] != 0 && e > most) most = e;
    }
    double sum = trunc(ldexp(c, bits - most));
    for (int k = 0; k < terms; k++)
        sum += trunc(ldexp((double)x[k] * y[k], bits - most));
    sum = ldexp(sum, most - bits);
    if (sum == 0) return 0;
    int ulp = (fabs(sum) < 0x1p-126 ? -126 : ilogb(sum)) - 23;
    return (float)ldexp(trunc(ldexp(sum, -ulp)), ulp);
}

/* Numbers of one kind: near one another, far apart, denormal, cancelling, special. */
static u16 random_bf16(uint64_t *state, int kind)
{
    u32 r = (u32)test_random(state), sign = r & 0x8000, fraction = r & 0x7f;
    if (r >> 28 == 0) return (u16)sign;
    switch (kind) {
    case 0: return (u16)(sign | (120 + (r >> 16) % 12) << 7 | fraction);
    case 1: return (u16)(sign | (1 + (r >> 16) % 254) << 7 | fraction);
    case 2: return (u16)(sign | ((r >> 16) % 70) << 7 | fraction);
    case 3: return (u16)(sign | (127 << 7) | (fraction & 1));
    default:
        return (u16)(sign | ((r >> 16) % 8 ? 254u - (r >> 20) % 2 : 255u) << 7 |
                     ((r >> 24) % 4 ? 0 : fraction));
    }
}

TEST(matrix_sums_are_as_defined)
{
    uint64_t state = test_told_seed();
    uint64_t rounds = test_scale(400, 20000);
    for (uint64_t round = 0; round < rounds; round++) {
        int kind = (int)(round % 5);
        u16 a[16][16], b[8][16];
        float c[16][8], got[16][8];
        for (int k = 0; k < 16; k++) {
            for (int m = 0; m < 16; m++)
                a[m][k] = random_bf16(&state, kind);
            for (int n = 0; n < 8; n++)
                b[n][k] = random_bf16(&state, kind);
        }
        for (int m = 0; m < 16; m++)
            for (int n = 0; n < 8; n++) {
                u32 bits = (u32)random_bf16(&state, kind) << 16 | (test_random(&state) & 0xffff);
                c[m][n] = bits_float(bits);
                if (kind == 3) c[m][n] = -bf16_float(a[m][0]) * bf16_float(b[n][0]);
            }
        for (int model = TENSOR_CORE_SM90; model <= TENSOR_CORE_SM80; model++) {
            memcpy(got, c, sizeof got);
            tensor_core_bf16((tensor_core_model)model, got, a, b);
            for (int m = 0; m < 16; m++)
                for (int n = 0; n < 8; n++) {
                    float x[16], y[16], wanted = c[m][n];
                    for (int k = 0; k < 16; k++) {
                        x[k] = bf16_float(a[m][k]);
                        y[k] = bf16_float(b[n][k]);
                    }
                    if (model == TENSOR_CORE_SM90) {
                        wanted = fused_sum(wanted, x, y, 16, 25);
                    } else {
                        wanted = fused_sum(wanted, x, y, 8, 24);
                        wanted = fused_sum(wanted, x + 8, y + 8, 8, 24);
                    }
                    u32 bits = isnan(wanted) ? 0x7fffffff : float_bits(wanted);
                    CHECKF(float_bits(got[m][n]) == bits, "model %d, kind %d: %a, wanted %a", model,
                           kind, (double)got[m][n], (double)wanted);
                }
        }
    }
}

TEST_MAIN()
