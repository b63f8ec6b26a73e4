/* Attention over K and V of fp8, emulated: what it computes is attention over what the codes stand
 * for, and a query's bits depend on the query and its context alone. */
#include "attention_rig.h"

#include "device/kernels/dialect.h"

#include "cuda/kernels/f8.h"
#include "mem/kv_codec.h"

/* ---- codes ---- */

/* What a word of codes is widened to, in the words' order. */
static void widen(uint32_t kv, uint32_t word, uint16_t to[4])
{
    const uint32_t even = f8_even(kv, word), odd = f8_odd(kv, word);
    to[0] = (uint16_t)even, to[1] = (uint16_t)odd;
    to[2] = (uint16_t)(even >> 16), to[3] = (uint16_t)(odd >> 16);
}

static float of_code(uint32_t kv, uint32_t code)
{
    return kv == ATTN_KV_E4M3 ? e4m3_to_f32((uint8_t)code) : e5m2_to_f32((uint8_t)code);
}

/* Each code at each place of a word, beside any others. */
TEST(every_code_is_widened_exactly)
{
    uint64_t state = test_told_seed();
    if (getenv("RADISH_TEST_GPU")) return;
    for (uint32_t kv = ATTN_KV_E4M3; kv <= ATTN_KV_E5M2; kv++)
        for (uint32_t code = 0; code < 256; code++)
            for (uint32_t place = 0; place < 4; place++) {
                uint32_t word = (uint32_t)test_random(&state);
                uint16_t to[4];
                word = (word & ~(255u << 8 * place)) | code << 8 * place;
                widen(kv, word, to);
                for (uint32_t i = 0; i < 4; i++) {
                    const float want = of_code(kv, word >> 8 * i & 255);
                    const float got = f32_of_bits((uint32_t)to[i] << 16);
                    CHECKF(isnan(want) ? isnan(got) : f32_bits(got) == f32_bits(want),
                           "type %u, code %02x: %g, not %g\n", kv, word >> 8 * i & 255, (double)got,
                           (double)want);
                }
            }
}

/* Floats from all over, those next to each code and next to the middle of two, and what has no
 * code: each becomes what the pool's codec makes of it. */
TEST(floats_become_the_codes_of_the_pool)
{
    enum { AROUND = 3 };
    static const float scales[] = {1, 0.3f, 1e-3f, 77};
    uint64_t state = test_told_seed();
    const kv_codec *codec = kv_codec_for("plain");
    if (getenv("RADISH_TEST_GPU")) return;
    for (uint32_t n = 0; n < test_scale(1u << 20, 1u << 28); n++) {
        const uint32_t kv = 1 + n % 2, code = n / 2 % 256, around = n / 512 % (2 * AROUND + 1);
        const float scale = scales[n % 7 < 4 ? 0 : n % 7 - 3];
        float f = f32_of_bits((uint32_t)test_random(&state));
        if (n % 3 == 1) f = of_code(kv, code);
        if (n % 3 == 2) f = (of_code(kv, code) + of_code(kv, (code + 1) % 256)) / 2;
        if (n % 3) f = f32_of_bits(f32_bits(f * scale) + around - AROUND);
        uint8_t want;
        codec->encode(kv == ATTN_KV_E4M3 ? RAD_F8_E4M3 : RAD_F8_E5M2, &want, &f, 1, scale);
        const uint32_t got = f8_of(kv, f, scale);
        CHECKF(got == want, "type %u, %a / %g: %02x, not %02x\n", kv, (double)f, (double)scale, got,
               want);
    }
}

/* ---- attention ---- */

static world world_of(uint32_t heads, uint32_t kv_heads, uint32_t dim, uint32_t window, uint32_t kv)
{
    world w = plain(heads, kv_heads, dim, window);
    w.shape.kv = kv;
    return w;
}

TEST(numbers_are_those_of_attention)
{
    cuda_rig rig = rig_open();
    static const float sinks[8] = {0.5f, -3, 9, 0, 1, 2, 3, 4};
    static const struct {
        uint32_t heads, kv_heads, dim, window, sinks;
        float cap, k_scale, v_scale;
    } cases[] = {{4, 2, 16, 0, 0, 0, 1, 1},      {8, 2, 32, 70, 1, 5, 0.3f, 1},
                 {2, 1, 64, 0, 0, 0, 1, 0.007f}, {3, 1, 96, 0, 0, 0, 0.01f, 3},
                 {4, 1, 128, 300, 1, 0, 1, 1},   {2, 1, 256, 0, 0, 30, 0.02f, 0.03f}};
    static const uint32_t shared[] = {227, 163, 99}; /* an H100's, an A100's, others' */
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        world w = world_of(cases[i].heads, cases[i].kv_heads, cases[i].dim, cases[i].window,
                           i % 2 ? ATTN_KV_E5M2 : ATTN_KV_E4M3);
        w.cap = cases[i].cap;
        w.sinks = cases[i].sinks ? sinks : NULL;
        w.k_scale = cases[i].k_scale, w.v_scale = cases[i].v_scale;
        w.rig = &rig;
        world_create(&w, 1);
        for (uint32_t n = 0; n < 3; n++) {
            step s = {.num_reqs = 3,
                      .row = {0, 1, 2},
                      .prefix = {300, 0, 250},
                      .tokens = {1, 40, 7},
                      .max_parts = n == 1 ? 100 : 0,
                      .shared_bytes = (w.shape.head_dim > 128 && n == 2 ? 163 : shared[n]) << 10,
                      .model = TENSOR_CORE_SM90};
            if (n && !test_scale(n == 1 + i % 2, 1)) continue;
            uint16_t *out = run(&w, &s);
            double error = error_of(&w, &s, out);
            CHECKF(error < 6e-3, "dim %u, %u parts: %g\n", cases[i].dim, s.num_parts, error);
            free(out);
        }
        world_destroy(&w);
    }
    rig_close(&rig);
}

/* A prompt, token by token, beside others, in groups; other blocks, stages and slots. */
TEST(bits_are_of_a_query_and_its_context)
{
    cuda_rig rig = rig_open();
    static const float sinks[4] = {0.5f, -3, 9, 0};
    static const uint32_t dims[] = {32, 64, 128, 16, 96, 256};
    for (uint32_t variant = 0; variant < test_scale(3, 12); variant++) {
        world w = world_of(4, variant % 3 == 2 ? 1 : 2, dims[variant % 6],
                           variant % 2 ? 200 + 37 * variant : 0, 1 + variant % 2);
        w.sinks = variant == 1 ? sinks : NULL;
        w.k_scale = 0.25f + 0.3f * (float)variant, w.v_scale = 0.7f;
        w.seed = variant;
        w.rig = &rig;
        world_create(&w, 1);
        const tensor_core_model model = variant == 2 ? TENSOR_CORE_SM80 : TENSOR_CORE_SM90;
        step prompt = {
            .num_reqs = 2, .row = {0, 2}, .prefix = {230, 490}, .tokens = {60, 40}, .model = model};
        uint16_t *want = run(&w, &prompt);
        CHECK(prompt.num_parts == 0);

        world other = w;
        other.page = 16;
        world_create(&other, 2);
        step cuts[] = {
            {.num_reqs = 2,
             .row = {2, 0},
             .prefix = {490, 230},
             .tokens = {40, 60},
             .max_parts = 2000,
             .grid = 400,
             .shared_bytes = (w.shape.head_dim > 128 ? 163 : 99) << 10,
             .order = 1},
            {.num_reqs = 1, .row = {0}, .prefix = {289}, .tokens = {1}, .max_parts = 9, .order = 7},
            {.num_reqs = 3,
             .row = {0, 2, 1},
             .prefix = {239, 500, 283},
             .tokens = {1, 5, 2},
             .grid = 300,
             .shared_bytes = 163 << 10},
            {.num_reqs = 3,
             .row = {2, 0, 1},
             .prefix = {512, 270, 280},
             .tokens = {18, 20, 1},
             .max_parts = 90,
             .grid = 2,
             .num_groups = 1,
             .group_reqs = {2, 1, 0},
             .groups = {{0, 256, 0, 3}}},
        };
        for (size_t i = 0; i < RAD_COUNT(cuts); i++) {
            cuts[i].model = model;
            uint16_t *out = run(i % 2 ? &other : &w, &cuts[i]);
            CHECKF(tokens_that_differ(&w, &cuts[i], out, &prompt, want) == 0,
                   "variant %u, cut %zu\n", variant, i);
            free(out);
        }
        free(want);
        world_destroy(&w);
        world_destroy(&other);
    }
    rig_close(&rig);
}

/* NaN in a slot that a query sees: of K it is a key without weight, of V the answer is NaN. */
TEST(nan_codes_stay_nan)
{
    cuda_rig rig = {0};
    if (getenv("RADISH_TEST_GPU")) return;
    for (uint32_t kv = ATTN_KV_E4M3; kv <= ATTN_KV_E5M2; kv++)
        for (uint32_t tokens = 1; tokens <= 20; tokens += 19) {
            world w = world_of(1, 1, 32, 0, kv);
            w.rig = &rig;
            world_create(&w, 1);
            step s = {.num_reqs = 1,
                      .row = {0},
                      .prefix = {70},
                      .tokens = {tokens},
                      .model = TENSOR_CORE_SM90};
            w.v[(size_t)w.slots[40] * 32 + 5] = kv == ATTN_KV_E4M3 ? 0xff : 0xfd;
            uint16_t *out = run(&w, &s);
            for (uint32_t i = 0; i < tokens * 32; i++)
                CHECK(isnan(bf16(out[i])) == (i % 32 == 5));
            free(out);
            w.v[(size_t)w.slots[40] * 32 + 5] = 0;
            w.k[(size_t)w.slots[40] * 32 + 5] = 0x7f;
            out = run(&w, &s);
            for (uint32_t i = 0; i < tokens * 32; i++)
                CHECK(!isnan(bf16(out[i])));
            free(out);
            world_destroy(&w);
        }
}

TEST_MAIN()
