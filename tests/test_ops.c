/* test_ops.c - RMS norm, SwiGLU and RoPE against doubles, and equal bits everywhere. */
#include "test.h"

#include "base/minifloat.h"
#include "model/ops.h"
#include "model/rope.h"
#include "model/scan.h"
#include "model/tensor_rows.h"

#include <math.h>

enum { MOST = 300 };
static const char *const isas[] = {"portable", "avx2", "avx512"};

static float number(uint64_t *state)
{
    return (float)((double)(test_random(state) >> 11) * 0x1p-53 * 8 - 4);
}

static void fill(float *x, uint32_t n, uint64_t *state)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = number(state);
}

static const rope_scaling plain = {.factor = 1};

TEST(the_best_ops_are_found_and_unknown_ones_are_not)
{
    CHECK(model_ops_find(NULL) && model_ops_find("portable"));
    CHECK(!model_ops_find("abacus"));
}

TEST(rms_norm_is_what_doubles_say)
{
    uint64_t state = 1;
    for (uint32_t n = 1; n < MOST; n += 7) {
        float x[MOST], w[MOST], y[MOST];
        fill(x, n, &state), fill(w, n, &state);
        double sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += (double)x[i] * (double)x[i];
        double scale = 1 / sqrt(sum / n + 1e-5);
        model_ops_find(NULL)->rms_norm(y, x, w, n, 1e-5f);
        for (uint32_t i = 0; i < n; i++)
            CHECK(fabs((double)y[i] - (double)x[i] * scale * (double)w[i]) < 1e-5);
        model_ops_find(NULL)->rms_norm(x, x, w, n, 1e-5f); /* in place */
        CHECK(memcmp(x, y, n * sizeof *x) == 0);
    }
}

TEST(swiglu_is_what_doubles_say)
{
    for (int i = -4000; i <= 4000; i++) {
        float gate = (float)i / 40, up = 3, before = gate;
        model_ops_find(NULL)->swiglu(&gate, &up, 1);
        double want = (double)before / (1 + exp(-(double)before)) * 3;
        CHECKF(fabs((double)gate - want) <= 4e-7 * fabs(want) + 1e-34,
               "silu(%g)*3: %g, expected %g\n", (double)before, (double)gate, want);
    }
    float strange[] = {NAN, INFINITY, -1e30f}, up[] = {1, 1, 1};
    model_ops_find(NULL)->swiglu(strange, up, 3);
    CHECK(isnan(strange[0]) && isinf(strange[1]) && fabsf(strange[2]) < 1e-6f);
}

TEST(exps_are_what_doubles_say)
{
    for (int i = -8600; i <= 8600; i++) {
        float x = (float)i / 100, y;
        model_ops_find(NULL)->exps(&y, &x, 1);
        double want = exp((double)x);
        CHECKF(fabs((double)y - want) <= 2.4e-7 * want, "e^%g: %g, expected %g\n", (double)x,
               (double)y, want);
    }
    float x[] = {0, NAN, -1000}, y[3];
    model_ops_find(NULL)->exps(y, x, 3);
    CHECK(y[0] == 1 && isnan(y[1]) && y[2] > 0 && y[2] < 1e-37f);
}

TEST(softplus_and_sigmoids_are_what_doubles_say)
{
    const model_ops *ops = model_ops_find(NULL);
    for (int i = -8600; i <= 8600; i++) {
        const float x = (float)i / 100;
        float plus = x, sigmoid;
        ops->softplus(&plus, 1), ops->sigmoids(&sigmoid, &x, 1);
        double want = log1p(exp((double)x));
        CHECKF(fabs((double)plus - want) <= 4.8e-7 * want, "softplus(%g): %g, expected %g\n",
               (double)x, (double)plus, want);
        want = 1 / (1 + exp(-(double)x));
        CHECKF(fabs((double)sigmoid - want) <= 4e-7 * want, "sigmoid(%g): %g, expected %g\n",
               (double)x, (double)sigmoid, want);
    }
    float x[] = {NAN, INFINITY, -INFINITY, 1e30f};
    ops->softplus(x, 4);
    CHECK(isnan(x[0]) && isinf(x[1]) && x[2] >= 0 && x[2] < 1e-30f && x[3] == 1e30f);
    float y[] = {NAN, 3, -3, 0};
    ops->relu2(y, 4);
    CHECK(isnan(y[0]) && y[1] == 9 && y[2] == 0 && y[3] == 0);
}

TEST(convolutions_and_dots_are_what_doubles_say)
{
    uint64_t state = 1;
    for (uint32_t n = 1; n < MOST; n += 9) {
        float rows[4][MOST], weight[4 * MOST], bias[MOST], out[MOST];
        for (int t = 0; t < 4; t++)
            fill(rows[t], n, &state);
        fill(weight, 4 * n, &state), fill(bias, n, &state);
        model_ops_find(NULL)->convolve(out, (const float *[]){rows[0], rows[1], rows[2], rows[3]},
                                       weight, n % 2 ? bias : NULL, 4, n);
        double dot = 0;
        for (uint32_t i = 0; i < n; i++) {
            double want = n % 2 ? (double)bias[i] : 0;
            for (uint32_t t = 0; t < 4; t++)
                want += (double)rows[t][i] * (double)weight[t * n + i];
            CHECK(fabs((double)out[i] - want) < 2e-5);
            dot += (double)rows[0][i] * (double)rows[1][i];
        }
        CHECK(fabs((double)model_ops_find(NULL)->dot(rows[0], rows[1], n) - dot) < 1e-3);
    }
}

/* ---- scan.h ---- */

enum { SCAN_TOKENS = 9, SCAN_ROWS = 21 };

typedef struct scan_case {
    float key[SCAN_TOKENS][64], query[SCAN_TOKENS][64], value[SCAN_TOKENS][64];
    float gates[SCAN_TOKENS][8];
    _Alignas(64) float from[SCAN_ROWS * STATE_STRIP];
} scan_case;

static void scan_run_cut(const scan_case *c, scan_run *run, uint32_t columns, uint32_t cut,
                         float *state, float (*out)[64])
{
    for (uint32_t t = 0; t < SCAN_TOKENS; t += cut) {
        const scan_job job = {.tokens = SCAN_TOKENS - t < cut ? SCAN_TOKENS - t : cut,
                              .rows = SCAN_ROWS,
                              .columns = columns,
                              .key = c->key[t],
                              .query = c->query[t],
                              .key_ld = 64,
                              .value = c->value[t],
                              .value_ld = 64,
                              .decay = &c->gates[t][0],
                              .weight = &c->gates[t][1],
                              .product = &c->gates[t][2],
                              .gate_ld = 8,
                              .out = out[t],
                              .out_ld = 64,
                              .from = t ? state : c->from,
                              .to = state};
        run(&job);
    }
}

/* As the papers have it, a column at a time. */
static void scan_in_doubles(const scan_case *c, bool delta, uint32_t column, double *state,
                            double *out)
{
    for (uint32_t i = 0; i < SCAN_ROWS; i++)
        state[i] = (double)c->from[i * STATE_STRIP + column];
    for (uint32_t t = 0; t < SCAN_TOKENS; t++) {
        double seen = 0;
        out[t] = 0;
        for (uint32_t i = 0; i < SCAN_ROWS; i++) {
            state[i] *= (double)c->gates[t][0];
            seen += (double)c->key[t][i] * state[i];
        }
        const double u = (double)c->gates[t][1] *
                         ((double)c->value[t][column] - (delta ? seen : 0));
        for (uint32_t i = 0; i < SCAN_ROWS; i++) {
            state[i] += (double)c->key[t][i] * u;
            out[t] += (double)c->query[t][i] * state[i];
        }
    }
}

static void scan_check(const scan_case *c, bool delta, const float *state, float (*out)[64],
                       uint32_t columns)
{
    for (uint32_t column = 0; column < columns; column++) {
        double sums[SCAN_ROWS], said[SCAN_TOKENS];
        scan_in_doubles(c, delta, column, sums, said);
        for (uint32_t i = 0; i < SCAN_ROWS; i++)
            CHECK(fabs((double)state[i * STATE_STRIP + column] - sums[i]) < 2e-5);
        for (uint32_t t = 0; t < SCAN_TOKENS; t++)
            CHECK(fabs((double)out[t][column] - said[t]) < 1e-4);
    }
}

TEST(scans_say_what_doubles_say_wherever_they_are_cut_on_every_instruction_set)
{
    static const char *const names[] = {"scalar", "avx2", "avx512", "neon"};
    uint64_t seed = test_seed(), state = seed;
    for (uint32_t columns = 1; columns <= STATE_STRIP; columns += columns % 8 == 0 ? 1 : 7) {
        static scan_case c;
        _Alignas(64) float want[SCAN_ROWS * STATE_STRIP], got[SCAN_ROWS * STATE_STRIP];
        float said[SCAN_TOKENS][64] = {0}, again[SCAN_TOKENS][64] = {0};
        fill(c.from, SCAN_ROWS * STATE_STRIP, &state);
        for (uint32_t t = 0; t < SCAN_TOKENS; t++) {
            fill(c.key[t], 64, &state), fill(c.query[t], 64, &state), fill(c.value[t], 64, &state);
            double product = 0;
            for (uint32_t i = 0; i < SCAN_ROWS; i++) {
                c.key[t][i] /= 16;
                product += (double)c.key[t][i] * (double)c.query[t][i];
            }
            c.gates[t][0] = 0.9f, c.gates[t][1] = 0.5f, c.gates[t][2] = (float)product;
        }
        for (int delta = 0; delta < 2; delta++)
            for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
                const scan_isa *isa = scan_find(names[k]);
                if (!isa) continue;
                scan_run *run = delta ? isa->delta : isa->mamba;
                if (k == 0) {
                    scan_run_cut(&c, run, columns, SCAN_TOKENS, want, said);
                    scan_check(&c, delta, want, said, columns);
                }
                for (uint32_t cut = 1; cut <= SCAN_TOKENS; cut++) {
                    scan_run_cut(&c, run, columns, cut, got, again);
                    CHECKF(!memcmp(got, want, sizeof got) && !memcmp(again, said, sizeof said),
                           "%s, delta %d, %u columns, cut at %u, seed %llu\n", names[k], delta,
                           columns, cut, (unsigned long long)seed);
                }
            }
    }
    CHECK(scan_find(NULL) && !scan_find("abacus"));
}

TEST(max_and_scale_logits_cope_with_strange_numbers)
{
    const model_ops *ops = model_ops_find(NULL);
    float x[40], y[40];
    for (uint32_t n = 1; n <= 40; n++) {
        for (uint32_t i = 0; i < n; i++)
            x[i] = i % 3 ? -(float)i : NAN;
        x[n / 2] = 7;
        CHECK(ops->max(x, n) == 7);
        ops->scale_logits(y, x, 7, 0.5f, n);
        for (uint32_t i = 0; i < n; i++)
            CHECK(isnan(x[i]) ? isnan(y[i]) : y[i] == (x[i] - 7) / 0.5f);
    }
    CHECK(ops->max((float[]){NAN, NAN}, 2) == -INFINITY);
    ops->scale_logits(y, (float[]){INFINITY, 1, -INFINITY}, INFINITY, 1, 3);
    CHECK(y[0] == 0 && y[1] == -INFINITY && y[2] == -INFINITY);
}

TEST(picked_are_those_whose_bits_are_set_on_every_instruction_set)
{
    enum { BEHIND = 12345 };
    uint64_t seed = test_seed(), state = seed;
    for (uint32_t run = 0; run < 500; run++) {
        float x[MOST], want[MOST], got[MOST + 1];
        uint32_t bits[(MOST + 31) / 32], n = (uint32_t)(test_random(&state) % (MOST + 1)),
                                         count = 0;
        for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
            bits[i] = run % 3 ? (uint32_t)test_random(&state) : i % 2 ? 0 : UINT32_MAX;
        for (uint32_t i = 0; i < n; i++) {
            x[i] = (float)i;
            if (bits[i / 32] >> i % 32 & 1) want[count++] = x[i];
        }
        for (size_t k = 0; k < sizeof isas / sizeof isas[0]; k++) {
            const model_ops *ops = model_ops_find(isas[k]);
            if (!ops) continue;
            got[n] = BEHIND;
            CHECKF(ops->pick(got, x, bits, n) == count && !memcmp(got, want, count * sizeof *got) &&
                       got[n] == BEHIND,
                   "%s, n %u, seed %llu\n", isas[k], n, (unsigned long long)seed);
        }
    }
}

TEST(geglu_cap_and_limits_are_what_doubles_say)
{
    const model_ops *ops = model_ops_find(NULL);
    for (int i = -4000; i <= 4000; i++) {
        double g = i / 200.0 + 1e-3, up = 1.5;
        float gate = (float)g, value = (float)up;
        ops->geglu(&gate, &value, 1);
        double want = 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * up;
        CHECKF(fabs((double)gate - want) <= 1e-6 * fabs(g) * up, "gelu(%g): %g, expected %g\n", g,
               (double)gate, want);
        float x = (float)(g * 10);
        ops->cap(&x, 1, 30);
        want = 30 * tanh((double)(float)(g * 10) / 30);
        CHECKF(fabs((double)x - want) <= 1e-6 * fabs(want), "cap(%g): %g, expected %g\n", g * 10,
               (double)x, want);
    }
    for (int i = -2000; i <= 2000; i++) {
        float gate = (float)i / 100, up = (float)(i * 7 % 2000) / 100;
        double g = fmin((double)gate, 7), u = fmax(fmin((double)up, 7), -7);
        double want = g / (1 + exp(-1.702 * g)) * (u + 1);
        ops->swiglu_clamped(&gate, &up, 1);
        CHECKF(fabs((double)gate - want) <= 1e-6 * (fabs(want) + fabs(g)), "%g, expected %g\n",
               (double)gate, want);
    }
    float x[] = {0, NAN, INFINITY, -INFINITY, 1e30f};
    ops->cap(x, 5, 30);
    CHECK(x[0] == 0 && isnan(x[1]) && x[2] == 30 && x[3] == -30 && x[4] == 30);
}

/* Llama 3.1's own numbers: what its divisors are made from, and what YaRN's ends are. */
TEST(stretched_rotations_keep_the_fast_and_slow_the_slow)
{
    double plain_freqs[64], freqs[64];
    float divisors[64];
    rope_freqs(plain_freqs, 10000, 128, &plain, NULL);
    for (int i = 0; i < 64; i++)
        divisors[i] = i < 32 ? 1.0f : 8.0f;
    rope_freqs(freqs, 10000, 128, &plain, divisors);
    for (int i = 0; i < 64; i++)
        CHECK(freqs[i] == plain_freqs[i] / (i < 32 ? 1 : 8));

    rope_scaling linear = {.factor = 4};
    rope_freqs(freqs, 10000, 128, &linear, NULL);
    for (int i = 0; i < 64; i++)
        CHECK(fabs(freqs[i] / plain_freqs[i] - 0.25) < 1e-15);

    /* The paper's Llama 2 case: 32 turns in 4096 positions end at rotation 20.9, one turn at
     * 45.03; so [0, 20] stays and [46, 63] is slowed by all of the factor. */
    rope_scaling yarn = {.factor = 16,
                         .yarn = true,
                         .ext_factor = 1,
                         .beta_fast = 32,
                         .beta_slow = 1,
                         .original_context = 4096};
    rope_freqs(freqs, 10000, 128, &yarn, NULL);
    for (int i = 0; i < 64; i++) {
        double kept = i <= 20 ? 1 : i >= 46 ? 0 : 1 - (i - 20) / 26.0;
        CHECKF(fabs(freqs[i] / plain_freqs[i] - (kept + (1 - kept) / 16)) < 1e-12, "%d\n", i);
    }
}

TEST(rope_rotates_its_pairs_and_nothing_else)
{
    for (uint32_t dim = 2; dim <= 128; dim += 2)
        for (int kind = 0; kind < 2; kind++) {
            uint64_t state = dim;
            float head[160], before[160], table[2 * 128];
            double freqs[64];
            fill(head, 160, &state);
            memcpy(before, head, sizeof head);
            uint32_t position = 40000 + dim;
            rope_freqs(freqs, 10000, dim, &plain, NULL);
            rope_fill((rope_kind)kind, table, position, freqs, dim, 1);
            model_ops_find(NULL)->rope((rope_kind)kind, head, table, dim);
            for (uint32_t i = 0; i < dim / 2; i++) {
                uint32_t a = kind == ROPE_NEOX ? i : 2 * i,
                         b = kind == ROPE_NEOX ? i + dim / 2 : a + 1;
                double angle = position * pow(10000, -2.0 * i / dim), c = cos(angle),
                       s = sin(angle);
                double want_a = (double)before[a] * c - (double)before[b] * s;
                double want_b = (double)before[b] * c + (double)before[a] * s;
                CHECK(fabs((double)head[a] - want_a) < 2e-6 &&
                      fabs((double)head[b] - want_b) < 2e-6);
            }
            CHECK(memcmp(head + dim, before + dim, (160 - dim) * sizeof *head) == 0);
        }
}

TEST(every_instruction_set_gives_the_same_bits)
{
    const model_ops *base = model_ops_find("portable");
    uint64_t seed = test_seed(), state = seed;
    for (uint32_t n = 2; n < MOST; n += 2)
        for (size_t k = 1; k < sizeof isas / sizeof isas[0]; k++) {
            const model_ops *ops = model_ops_find(isas[k]);
            if (!ops) continue;
            float x[MOST], w[MOST], table[2 * MOST], a[MOST], b[MOST];
            double freqs[MOST];
            fill(x, n, &state), fill(w, n, &state);
            base->rms_norm(a, x, w, n, 1e-6f), ops->rms_norm(b, x, w, n, 1e-6f);
            CHECKF(!memcmp(a, b, n * sizeof *a), "%s, n %u, seed %llu\n", isas[k], n,
                   (unsigned long long)seed);
            memcpy(a, x, sizeof a), memcpy(b, x, sizeof b);
            base->swiglu(a, w, n), ops->swiglu(b, w, n);
            CHECKF(!memcmp(a, b, n * sizeof *a), "%s, n %u, seed %llu\n", isas[k], n,
                   (unsigned long long)seed);
            memcpy(a, x, sizeof a), memcpy(b, x, sizeof b);
            base->geglu(a, w, n), ops->geglu(b, w, n);
            base->cap(a, n, 0.7f), ops->cap(b, n, 0.7f);
            base->add(a, w, n), ops->add(b, w, n);
            base->swiglu_clamped(a, x, n), ops->swiglu_clamped(b, x, n);
            base->add_scaled(a, w, 0.3f, n), ops->add_scaled(b, w, 0.3f, n);
            CHECKF(!memcmp(a, b, n * sizeof *a), "%s, n %u, seed %llu\n", isas[k], n,
                   (unsigned long long)seed);
            base->mul(a, w, n), ops->mul(b, w, n);
            base->silu(a, n), ops->silu(b, n);
            base->relu2(a, n), ops->relu2(b, n);
            base->softplus(a, n), ops->softplus(b, n);
            CHECKF(!memcmp(a, b, n * sizeof *a), "%s, n %u, seed %llu\n", isas[k], n,
                   (unsigned long long)seed);
            base->sigmoids(a, x, n), ops->sigmoids(b, x, n);
            CHECKF(!memcmp(a, b, n * sizeof *a), "%s, n %u, seed %llu\n", isas[k], n,
                   (unsigned long long)seed);
            base->convolve(a, (const float *[]){x, w}, x, w, 2, n / 2);
            ops->convolve(b, (const float *[]){x, w}, x, w, 2, n / 2);
            CHECKF(!memcmp(a, b, n * sizeof *a), "%s, n %u, seed %llu\n", isas[k], n,
                   (unsigned long long)seed);
            const float dot = base->dot(x, w, n), same = ops->dot(x, w, n);
            CHECK(!memcmp(&dot, &same, sizeof dot));
            base->exps(a, x, n), ops->exps(b, x, n);
            CHECKF(!memcmp(a, b, n * sizeof *a), "%s, n %u, seed %llu\n", isas[k], n,
                   (unsigned long long)seed);
            rope_freqs(freqs, 1e6f, n, &plain, NULL);
            for (int kind = 0; kind < 2; kind++) {
                rope_fill((rope_kind)kind, table, n * 31, freqs, n, 1);
                memcpy(a, x, sizeof a), memcpy(b, x, sizeof b);
                base->rope((rope_kind)kind, a, table, n), ops->rope((rope_kind)kind, b, table, n);
                CHECKF(!memcmp(a, b, n * sizeof *a), "%s, n %u, seed %llu\n", isas[k], n,
                       (unsigned long long)seed);
            }
        }
}

TEST(halves_become_floats_exactly)
{
    CHECK(f16_to_f32(0x3c00) == 1.0f && f16_to_f32(0xc000) == -2.0f);
    CHECK(f16_to_f32(0x7bff) == 65504.0f && f16_to_f32(0x0400) == 0x1p-14f);
    CHECK(f16_to_f32(0x0001) == 0x1p-24f && f16_to_f32(0x83ff) == -0x1.ff8p-15f);
    CHECK(f16_to_f32(0) == 0 && signbit(f16_to_f32(0x8000)));
    CHECK(isinf(f16_to_f32(0x7c00)) && f16_to_f32(0xfc00) == -INFINITY &&
          isnan(f16_to_f32(0x7e00)));
}

TEST(tensor_rows_of_every_type_are_exact)
{
    float out[64];
    uint8_t bytes[1 + 2 * 64 * 4]; /* one past, so that nothing is aligned */
    uint8_t *data = bytes + 1;
    gguf_tensor t = {.num_dims = 2, .dims = {32, 2, 1, 1}, .data = data};

    t.type = GGML_F32;
    float f = -1.5f;
    memcpy(data + (32 + 3) * 4, &f, 4);
    tensor_row(&t, 1, out);
    CHECK(out[3] == -1.5f);

    t.type = GGML_BF16;
    memcpy(data + (32 + 5) * 2, &(uint16_t){0xc020}, 2);
    tensor_row(&t, 1, out);
    CHECK(out[5] == -2.5f);

    t.type = GGML_F16;
    memcpy(data + (32 + 7) * 2, &(uint16_t){0x4100}, 2);
    tensor_row(&t, 1, out);
    CHECK(out[7] == 2.5f);

    t.type = GGML_Q8_0;
    memcpy(data + 34, &(uint16_t){0x3800}, 2); /* 0.5 */
    data[34 + 2] = (uint8_t)-128;
    data[34 + 2 + 31] = 127;
    tensor_row(&t, 1, out);
    CHECK(out[0] == -64 && out[31] == 63.5f);
}

TEST_MAIN()
