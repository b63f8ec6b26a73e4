/* What stands between the products: kernels of embed.cu, norm.cu, qkv.cu, glu.cu and cap.cu on the
 * emulator against what the CPU computes. Bit by bit, but for add_norm's sums of squares, whose
 * order is their own (norm.cu): that is computed here by its words, and held against the CPU's
 * within roundings. */
#include "cuda_rig.h"

#include "base/bf16.h"
#include "cuda/kernels/kernel_args.h"
#include "mem/kv_codec.h"
#include "model/ops.h"
#include "model/rope.h"

#include <math.h>

static uint64_t state;
static cuda_rig rig;

static float number(void)
{
    return (float)((double)(test_random(&state) % 2000001) / 1e6 - 1);
}

/* `off` shifts them from a multiple of 16 bytes. */
typedef struct numbers {
    float *at;
} numbers;

static numbers some(size_t count, bool off)
{
    numbers n = {(float *)rig_alloc(&rig, (count + off) * sizeof(float)) + off};
    for (size_t i = 0; i < count; i++)
        n.at[i] = number() * 3;
    return n;
}

static uint32_t less(uint32_t n)
{
    return (uint32_t)(test_random(&state) % n);
}

static bool often(void)
{
    return less(4) != 0;
}

static void run(const char *file, const char *kernel, uint32_t x, uint32_t y, uint32_t threads,
                const void *args, size_t args_bytes)
{
    const emulation launch = {
        .kernel = kernel, .grid = {x, y, 1}, .threads = threads, .args = args, .order = less(6)};
    rig_launch(&rig, file, launch, args_bytes);
}

/* ((y[0] + y[1]) + ...) + bias */
static float sum_of(const float *y, uint32_t parts, size_t step, const float *bias, uint32_t i)
{
    float sum = y[i];
    for (uint32_t p = 1; p < parts; p++)
        sum += y[p * step + i];
    return bias ? sum + bias[i] : sum;
}

/* ---- embed ---- */

TEST(a_row_of_the_table_times_the_scale)
{
    state = test_told_seed();
    rig = rig_open();
    for (int round = 0; round < 40; round++) {
        const uint32_t dim = 1 + less(round % 8 ? 300 : 3000), vocab = 1 + less(5),
                       tokens = 1 + less(3);
        const bool wide = often(), off = !often();
        const uint32_t ld = wide ? (dim + 63) / 64 * 64 : dim + less(3);
        numbers table = some((size_t)vocab * ld, false), x = some((size_t)tokens * dim, off);
        u16 *halves = rig_alloc(&rig, (size_t)vocab * ld * 2);
        for (size_t i = 0; i < (size_t)vocab * ld; i++)
            halves[i] = bf16_from_f32(table.at[i]);
        i32 *ids = rig_alloc(&rig, tokens * sizeof *ids);
        for (uint32_t t = 0; t < tokens; t++)
            ids[t] = (i32)less(vocab);
        const bool is_f32 = less(2);
        embed_args args = {.table = is_f32 ? (void *)table.at : halves,
                           .ids = ids,
                           .x = x.at,
                           .tokens = tokens,
                           .dim = dim,
                           .ld = ld,
                           .is_f32 = is_f32,
                           .scale = often() ? 1 : 5.5f};
        run("embed", "embed", tokens, 1, EMBED_THREADS, &args, sizeof args);
        for (uint32_t t = 0; t < tokens; t++)
            for (uint32_t i = 0; i < dim; i++) {
                const size_t at = (size_t)ids[t] * ld + i;
                const float v = is_f32 ? table.at[at] : bf16_to_f32(halves[at]);
                CHECK(x.at[(size_t)t * dim + i] == args.scale * v);
            }
        rig_free(&rig, 0);
    }
    rig_close(&rig);
}

/* ---- add_norm ---- */

static float tree(float *v, uint32_t n, bool halves)
{
    for (; n > 1; n /= 2)
        for (uint32_t i = 0; i < n / 2; i++)
            v[i] = halves ? v[i] + v[i + n / 2] : v[2 * i] + v[2 * i + 1];
    return v[0];
}

static float sum_over(const float *x, uint32_t n, uint32_t threads)
{
    float sums[ADD_NORM_THREADS] = {0}, warps[ADD_NORM_THREADS / 32] = {0};
    for (uint32_t at = 0; at < n; at += 4) {
        float v[4] = {0};
        for (uint32_t e = 0; e < 4 && at + e < n; e++)
            v[e] = x[at + e];
        sums[at / 4 % threads] += (v[0] * v[0] + v[1] * v[1]) + (v[2] * v[2] + v[3] * v[3]);
    }
    for (uint32_t w = 0; w < threads / 32; w++)
        warps[w] = tree(sums + 32 * w, 32, true);
    return tree(warps, ADD_NORM_THREADS / 32, false);
}

static float sum_of_squares(const float *x, uint32_t n)
{
    return sum_over(x, n, add_norm_threads(n));
}

static float rms_factor(const float *x, uint32_t n, float eps)
{
    return 1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps);
}

/* What the parts of a row come to, with its bias, and its norm where it has one. */
static void added_row(const add_norm_args *a, size_t t, float *sum)
{
    for (uint32_t i = 0; i < a->dim; i++)
        sum[i] = sum_of(a->y + t * a->ldy, a->parts, (size_t)a->y_tokens * a->ldy, a->bias, i);
    if (!a->post) return;
    const float by = rms_factor(sum, a->dim, a->eps);
    for (uint32_t i = 0; i < a->dim; i++)
        sum[i] = sum[i] * by * a->post[i];
}

/* post: what is added may have a norm, too, and the row none. */
static void run_norms(bool post)
{
    state = test_told_seed();
    rig = rig_open();
    const model_ops *ops = model_ops_find(NULL);
    static const uint32_t dims[] = {1,    2,    63,   64,   128,  1023, 1024, 1025, 1028,
                                    2048, 2560, 3001, 4096, 4092, 4096, 4100, 16384};
    for (uint32_t round = 0; round < (post ? 40 : 60); round++) {
        const uint32_t n = round < RAD_COUNT(dims) ? dims[round]
                           : round % 3             ? 4 * (1 + less(400))
                                                   : 1 + less(600);
        const uint32_t tokens = 1 + less(3), count = 1 + less(tokens), ld = (n + 63) / 64 * 64;
        const uint32_t parts = less(4) == 0 ? 0 : 1u << less(4),
                       ldy = n + (often() ? 0 : 1 + less(4));
        const bool off = !often();
        numbers x = some((size_t)tokens * n, off),
                y = some((size_t)RAD_MAX(parts, 1u) * tokens * ldy, false);
        numbers bias = some(n, false), weight = some(n, off && less(2));
        numbers behind = some(n, false);
        const bool normed = !post || often();
        numbers exact = some((size_t)count * n, false);
        numbers was = {malloc((size_t)tokens * n * sizeof(float))};
        memcpy(was.at, x.at, (size_t)tokens * n * sizeof(float));
        u16 *out = rig_alloc(&rig, (size_t)count * ld * 2);
        u32 *rows = rig_alloc(&rig, count * sizeof *rows);
        bool with_rows = less(2), with_bias = less(2), store = less(2);
        for (uint32_t r = 0; r < count; r++)
            rows[r] = with_rows ? (r + 1) % tokens : r;
        add_norm_args args = {.x = x.at,
                              .y = y.at,
                              .bias = with_bias ? bias.at : NULL,
                              .weight = normed ? weight.at : NULL,
                              .post = post && often() ? behind.at : NULL,
                              .rows = with_rows ? rows : NULL,
                              .out = out,
                              .out_f32 = exact.at,
                              .count = count,
                              .dim = n,
                              .ld = ld,
                              .ldy = ldy,
                              .parts = parts,
                              .y_tokens = tokens,
                              .store = store,
                              .eps = 1e-6f,
                              .scale = often() ? 1 : 0.22f};
        const bool wide = n > ADD_NORM_DIM || !often();
        const bool many = add_norm_whole(n, ldy, ld) && !off && less(2);
        static const char *const names[2][3] = {
            {"add_norm", "add_norm_many", "add_norm_wide"},
            {"add_norm_post", "add_norm_post_many", "add_norm_post_wide"}};
        run("norm", names[post][wide ? 2 : many], count, 1, add_norm_threads(n), &args,
            sizeof args);
        float *sum = malloc(n * sizeof *sum), *cpu = malloc(n * sizeof *cpu);
        float *more = malloc(n * sizeof *more);
        for (uint32_t r = 0; r < count; r++) {
            const size_t t = rows[r];
            if (parts) added_row(&args, t, more);
            for (uint32_t i = 0; i < n; i++) {
                sum[i] = was.at[t * n + i];
                if (parts) sum[i] += args.scale * more[i];
                CHECK(x.at[t * n + i] == (store && parts ? sum[i] : was.at[t * n + i]));
            }
            memcpy(cpu, sum, n * sizeof *cpu);
            if (normed) ops->rms_norm(cpu, sum, weight.at, n, args.eps);
            const float by = rms_factor(sum, n, args.eps);
            for (uint32_t i = 0; i < n; i++) {
                const float want = normed ? sum[i] * by * weight.at[i] : sum[i];
                const float got = exact.at[(size_t)r * n + i];
                CHECKF(got == want, "dim %u row %u: %.9g, not %.9g\n", n, r, (double)got,
                       (double)want);
                CHECK(fabsf(got - cpu[i]) <= 1e-6f * fabsf(cpu[i]));
                CHECK(out[(size_t)r * ld + i] == bf16_from_f32(want));
            }
            for (uint32_t i = n; i < ld; i++)
                CHECK(out[(size_t)r * ld + i] == 0);
        }
        free(sum), free(cpu), free(more), free(was.at);
        rig_free(&rig, 0);
    }
    rig_close(&rig);
}

TEST(norms_of_rows_that_products_are_added_to)
{
    run_norms(false);
}

TEST(norms_of_what_is_added_and_of_the_row)
{
    run_norms(true);
}

/* ---- q, k and v ---- */

/* In place; `by`: what the kernel says that its numbers are multiplied by. */
static void norm_heads(float *x, const float *weight, uint32_t n, float eps, float by)
{
    const float want = 1.0f / sqrtf(sum_over(x, n, ROW_SCALES_THREADS) / (float)n + eps);
    CHECKF(by == want, "%u numbers: %.9g, not %.9g\n", n, (double)by, (double)want);
    for (uint32_t i = 0; i < n; i++)
        x[i] = x[i] * by * weight[i];
}

/* `rows`: norms of all heads together, whose sums of squares have an order of their own. */
static void run_qkv(bool rows)
{
    enum { CONTEXT = 50, SLOTS = 9, STRIDE = 4096 };
    state = test_told_seed();
    rig = rig_open();
    const model_ops *ops = model_ops_find(NULL);
    for (uint32_t round = 0; round < (rows ? 30 : 60); round++) {
        static const uint32_t widths[] = {8, 64, 80, 128, 192, 256, 30, 6};
        const uint32_t d = widths[round % 8], vd = often() ? d : widths[less(8)];
        const uint32_t rope = often() ? d : 2 * (1 + less(d / 2));
        const uint32_t kv_heads = 1 + less(2), heads = kv_heads * (1 + less(3)),
                       tokens = 1 + less(3);
        const uint32_t q_dim = heads * d, k_dim = kv_heads * d, v_dim = kv_heads * vd;
        const uint32_t parts = 1 + (often() ? 0 : less(8)),
                       ldy = q_dim + k_dim + v_dim + (often() ? 0 : 3);
        const bool interleaved = less(2), normed = rows || less(2), with_bias = less(2);
        const bool rotates = often(), warm = less(2);
        numbers y = some((size_t)parts * tokens * ldy, !often()), bias = some(ldy, false);
        numbers q_norm = some(rows ? q_dim : d, false), k_norm = some(rows ? k_dim : d, false);
        numbers scales = some(2 * (size_t)tokens, false), factors = some(CONTEXT, false);
        numbers pairs = some((size_t)CONTEXT * rope, false), table = some(2 * (size_t)rope, false);
        double freqs[128];
        rope_scaling none = {.factor = 1};
        rope_freqs(freqs, 10000, rope, &none, NULL);
        const rope_kind kind = interleaved ? ROPE_INTERLEAVED : ROPE_NEOX;
        for (uint32_t p = 0; p < CONTEXT; p++) {
            rope_fill(ROPE_NEOX, table.at, p, freqs, rope, 1.25f);
            for (uint32_t i = 0; i < rope / 2; i++) {
                pairs.at[(size_t)p * rope + 2 * i] = table.at[i];
                pairs.at[(size_t)p * rope + 2 * i + 1] = table.at[rope + i];
            }
        }
        u32 *positions = rig_alloc(&rig, tokens * sizeof *positions);
        i32 *slots = rig_alloc(&rig, tokens * sizeof *slots);
        for (uint32_t t = 0; t < tokens; t++) {
            positions[t] = less(CONTEXT);
            slots[t] = (i32)(t * 2 + less(2));
        }
        u16 *q = rig_alloc(&rig, (size_t)tokens * q_dim * 2);
        u8 *k = rig_alloc(&rig, SLOTS * STRIDE), *v = rig_alloc(&rig, SLOTS * STRIDE);
        memset(k, 0x77, SLOTS * STRIDE), memset(v, 0x77, SLOTS * STRIDE);
        qkv_args args = {.y = y.at,
                         .bias = with_bias ? bias.at : NULL,
                         .q_norm = normed ? q_norm.at : NULL,
                         .k_norm = normed ? k_norm.at : NULL,
                         .row_scales = rows ? scales.at : NULL,
                         .rope = rotates ? pairs.at : NULL,
                         .q_factors = warm ? factors.at : NULL,
                         .positions = positions,
                         .slots = slots,
                         .q = q,
                         .k = k,
                         .v = v,
                         .k_stride = STRIDE,
                         .v_stride = STRIDE,
                         .tokens = tokens,
                         .heads = heads,
                         .kv_heads = kv_heads,
                         .head_dim = d,
                         .v_head_dim = vd,
                         .rope_dim = rope,
                         .interleaved = interleaved,
                         .parts = parts,
                         .ldy = ldy,
                         .eps = 1e-5f};
        const row_scales_args sums = {y.at,  args.bias, scales.at, tokens,  q_dim,
                                      k_dim, ldy,       parts,     args.eps};
        if (rows) run("norm", "row_scales", tokens, 2, ROW_SCALES_THREADS, &sums, sizeof sums);
        const bool wide = d > QKV_HEAD_DIM || vd > QKV_HEAD_DIM || less(2);
        run("qkv", wide ? "qkv_wide" : "qkv", tokens, qkv_blocks(heads + 2 * kv_heads), QKV_THREADS,
            &args, sizeof args);
        float *row = malloc(ldy * sizeof *row);
        size_t touched = 0;
        for (uint32_t t = 0; t < tokens; t++) {
            for (uint32_t i = 0; i < q_dim + k_dim + v_dim; i++)
                row[i] = sum_of(y.at + (size_t)t * ldy, parts, (size_t)tokens * ldy, args.bias, i);
            rope_fill(kind, table.at, positions[t], freqs, rope, 1.25f);
            if (rows) {
                norm_heads(row, q_norm.at, q_dim, args.eps, scales.at[2 * t]);
                norm_heads(row + q_dim, k_norm.at, k_dim, args.eps, scales.at[2 * t + 1]);
            }
            for (uint32_t h = 0; h < heads + kv_heads; h++) {
                float *head = row + (size_t)h * d;
                if (normed && !rows)
                    ops->rms_norm(head, head, h < heads ? q_norm.at : k_norm.at, d, args.eps);
                if (rotates) ops->rope(kind, head, table.at, rope);
            }
            for (uint32_t i = 0; warm && i < q_dim; i++)
                row[i] *= factors.at[positions[t]];
            const u16 *at[3] = {q + (size_t)t * q_dim, (u16 *)(k + slots[t] * STRIDE),
                                (u16 *)(v + slots[t] * STRIDE)};
            const uint32_t many[3] = {q_dim, k_dim, v_dim};
            const float *want = row;
            for (int part = 0; part < 3; part++)
                for (uint32_t i = 0; i < many[part]; i++, want++)
                    CHECKF(at[part][i] == bf16_from_f32(*want),
                           "round %u, token %u, part %d, number %u: %04x, not %04x\n", round, t,
                           part, i, at[part][i], bf16_from_f32(*want));
            touched += 2 * (k_dim + v_dim);
        }
        size_t untouched = 0;
        for (size_t i = 0; i < SLOTS * STRIDE; i++)
            untouched += (k[i] == 0x77) + (v[i] == 0x77);
        CHECK(untouched >= 2 * SLOTS * STRIDE - touched);
        free(row);
        rig_free(&rig, 0);
    }
    rig_close(&rig);
}

TEST(q_k_and_v_have_the_bits_of_the_cpu)
{
    run_qkv(false);
}

TEST(q_and_k_may_be_normed_over_all_heads)
{
    run_qkv(true);
}

/* ---- caps ---- */

TEST(capped_rows_have_the_bits_of_the_cpu)
{
    state = test_told_seed();
    rig = rig_open();
    const model_ops *ops = model_ops_find(NULL);
    for (uint32_t round = 0; round < 20; round++) {
        const uint32_t n = round % 2 ? 4 * (1 + less(600)) : 1 + less(2000), rows = 1 + less(3);
        const uint32_t ld = often() ? (n + 15) / 16 * 16 : n + less(2);
        numbers x = some((size_t)rows * ld, !often());
        for (uint32_t i = 0; i < rows * ld; i++)
            x.at[i] *= i % 7 ? 1 : 100;
        const size_t bytes = (size_t)rows * ld * sizeof(float);
        float *want = malloc(bytes);
        memcpy(want, x.at, bytes);
        const cap_args args = {x.at, rows, n, ld, often() ? 30 : 2};
        run("cap", "cap_rows", rows, cap_blocks(n), CAP_THREADS, &args, sizeof args);
        for (uint32_t r = 0; r < rows; r++)
            ops->cap(want + (size_t)r * ld, n, args.cap);
        CHECKF(!memcmp(x.at, want, bytes), "round %u: %u rows of %u\n", round, rows, n);
        free(want);
        rig_free(&rig, 0);
    }
    rig_close(&rig);
}

/* ---- fp8 ---- */

/* K and V as they come, for a pool of fp8: the codes of its codec, whatever the number; and Q in
 * the order in which attention over it reads. */
TEST(k_and_v_of_fp8_are_the_codes_of_the_pool)
{
    enum { SLOTS = 5, STRIDE = 1024 };
    static const uint32_t odd[] = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc12345,
                                   0xff800001, 1,          0x43e00000, 0x43e00001, 0x47700000,
                                   0x476fffff, 0x3a800000, 0x3a7fffff, 0x37000000, 0x36ffffff};
    state = test_told_seed();
    rig = rig_open();
    const kv_codec *codec = kv_codec_for("plain");
    for (uint32_t round = 0; round < 40; round++) {
        static const uint32_t widths[] = {16, 64, 96, 128, 256};
        const uint32_t d = widths[round % 5], vd = often() ? d : 1 + less(256);
        const uint32_t kv_heads = 1 + less(2), heads = kv_heads * (1 + less(3)), tokens = 2;
        const uint32_t q_dim = heads * d, k_dim = kv_heads * d, v_dim = kv_heads * vd;
        const uint32_t ldy = q_dim + k_dim + v_dim, kv = 1 + less(2);
        const rad_dtype dtype = kv == ATTN_KV_E4M3 ? RAD_F8_E4M3 : RAD_F8_E5M2;
        numbers y = some((size_t)tokens * ldy, !often());
        for (uint32_t i = 0; i < tokens * ldy; i++)
            if (less(3) == 0) {
                const uint32_t bits = less(2) ? odd[less(15)] : (uint32_t)test_random(&state);
                memcpy(&y.at[i], &bits, 4);
            }
        u32 *positions = rig_alloc(&rig, tokens * sizeof *positions);
        i32 *slots = rig_alloc(&rig, tokens * sizeof *slots);
        for (uint32_t t = 0; t < tokens; t++)
            positions[t] = t, slots[t] = (i32)(t * 2 + less(2));
        u16 *q = rig_alloc(&rig, (size_t)tokens * q_dim * 2);
        u8 *k = rig_alloc(&rig, SLOTS * STRIDE), *v = rig_alloc(&rig, SLOTS * STRIDE);
        qkv_args args = {.y = y.at,
                         .positions = positions,
                         .slots = slots,
                         .q = q,
                         .k = k,
                         .v = v,
                         .k_stride = STRIDE,
                         .v_stride = STRIDE,
                         .tokens = tokens,
                         .heads = heads,
                         .kv_heads = kv_heads,
                         .head_dim = d,
                         .v_head_dim = vd,
                         .parts = 1,
                         .ldy = ldy,
                         .eps = 1e-5f,
                         .kv = kv,
                         .k_scale = often() ? 1 : 0.11f,
                         .v_scale = often() ? 1 : 3.7f};
        run("qkv", RAD_MAX(d, vd) > QKV_HEAD_DIM ? "qkv_wide" : "qkv", tokens,
            qkv_blocks(heads + 2 * kv_heads), QKV_THREADS, &args, sizeof args);
        for (uint32_t t = 0; t < tokens; t++) {
            const float *row = y.at + (size_t)t * ldy;
            uint8_t want[512];
            for (uint32_t i = 0; i < q_dim; i++)
                CHECK(q[t * q_dim + i / 16 * 16 + i % 2 * 8 + i % 16 / 2] == bf16_from_f32(row[i]));
            codec->encode(dtype, want, row + q_dim, k_dim, args.k_scale);
            CHECK(!memcmp(want, k + slots[t] * STRIDE, k_dim));
            CHECK(k[slots[t] * STRIDE + k_dim] == 0xa5);
            codec->encode(dtype, want, row + q_dim + k_dim, v_dim, args.v_scale);
            CHECK(!memcmp(want, v + slots[t] * STRIDE, v_dim));
            CHECK(v[slots[t] * STRIDE + v_dim] == 0xa5);
        }
        rig_free(&rig, 0);
    }
    rig_close(&rig);
}

/* ---- gated units ---- */

TEST(gated_units_have_the_bits_of_the_cpu)
{
    state = test_told_seed();
    rig = rig_open();
    const model_ops *ops = model_ops_find(NULL);
    for (uint32_t round = 0; round < 60; round++) {
        const uint32_t n = round % 3 ? 4 * (1 + less(300)) : 1 + less(600), tokens = 1 + less(3);
        const uint32_t parts = 1 + (often() ? 0 : less(8)), ldy = 2 * n + (often() ? 0 : 2);
        const uint32_t ld = (n + 63) / 64 * 64, kind = round % 3;
        numbers y = some((size_t)parts * tokens * ldy, !often()), bias = some(2 * n, false);
        for (uint32_t i = 0; i < 2 * n; i++)
            y.at[i] *= round % 5 ? 1 : 50;
        u16 *out = rig_alloc(&rig, (size_t)tokens * ld * 2);
        glu_args args = {.y = y.at,
                         .bias = less(2) ? bias.at : NULL,
                         .out = out,
                         .tokens = tokens,
                         .dim = n,
                         .ld = ld,
                         .ldy = ldy,
                         .parts = parts,
                         .kind = kind};
        run("glu", "glu", tokens, glu_blocks(ld), GLU_THREADS, &args, sizeof args);
        float *row = malloc(2 * n * sizeof *row);
        for (uint32_t t = 0; t < tokens; t++) {
            for (uint32_t i = 0; i < 2 * n; i++)
                row[i] = sum_of(y.at + (size_t)t * ldy, parts, (size_t)tokens * ldy, args.bias, i);
            (kind == GLU_SWIGLU           ? ops->swiglu
             : kind == GLU_SWIGLU_CLAMPED ? ops->swiglu_clamped
                                          : ops->geglu)(row, row + n, n);
            for (uint32_t i = 0; i < ld; i++)
                CHECKF(out[(size_t)t * ld + i] == (i < n ? bf16_from_f32(row[i]) : 0),
                       "kind %u, token %u, number %u of %u\n", kind, t, i, n);
        }
        free(row);
        rig_free(&rig, 0);
    }
    rig_close(&rig);
}

TEST_MAIN()
