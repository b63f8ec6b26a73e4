/* test_attn_codes.c - codes that attention reads past the codec are the codec's numbers, bit by
 * bit: keys decoded and transposed at once, and keys, values and rows as words of bf16. Every
 * code, any number of dimensions, rows in any order, nothing read behind the last. */
#include "attn_ahead_lines.h"
#include "gear/amx_gear.h"
#include "guarded.h"
#include "test.h"

#include "attn/attn_codes.h"
#include "base/bf16.h"

#include <math.h>

enum { MOST_DIM = 150, ROOM = 7 };
#define UNTOUCHED 0x55555555u

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Codes counted through, so that all come, 0 and NaN too; each row with its scale behind it. */
typedef struct pool {
    guarded memory;
    rad_slot slots[ATTN_BLOCK];
    kv_rows rows;
} pool;

static pool make_pool(uint32_t dtype, uint32_t dim, float scale, uint64_t *seed)
{
    const size_t bytes = (size_t)dim * kv_dtype_bytes(dtype);
    const size_t scaled = (bytes + 3) / 4 * 4 + 4, room = 4 * (test_random(seed) % ROOM);
    const size_t stride = (dtype == RAD_I8 ? scaled : bytes) + room;
    pool p = {.memory = guarded_alloc(ATTN_BLOCK * stride - room)};
    char *base = p.memory.data;
    uint32_t code = (uint32_t)test_random(seed);
    for (uint32_t i = 0; i < ATTN_BLOCK; i++) {
        char *row = base + i * stride;
        for (uint32_t d = 0; d < dim; d++, code += dtype == RAD_F16 ? 7 : 1)
            memcpy(row + (size_t)d * kv_dtype_bytes(dtype), &code, kv_dtype_bytes(dtype));
        float own = (float)(1 + test_random(seed) % 999) / 333;
        if (dtype == RAD_I8) memcpy(row + scaled - 4, &own, sizeof own);
        p.slots[i] = (rad_slot)(test_random(seed) % ATTN_BLOCK);
    }
    p.rows = (kv_rows){.base = base, .stride = stride, .scale = scale};
    if (dtype == RAD_I8) {
        p.rows.scales = base + scaled - 4;
        p.rows.scale_stride = stride;
    }
    return p;
}

static void check_keys(const attn_kernels *kernels, uint32_t dtype, uint32_t dim, float scale,
                       uint64_t *seed)
{
    static _Alignas(64) float got[(MOST_DIM + 1) * ATTN_BLOCK];
    float want[MOST_DIM];
    attn_ahead none = {.left = UINT32_MAX};
    pool p = make_pool(dtype, dim, scale, seed);
    p.rows.slots = p.slots;
    memset(got, 0x55, sizeof got);
    bool done = kernels->load_codes(dtype, &p.rows, dim, got, &none);
    CHECK(done == (dtype != RAD_F8_E4M3 || scale < 0x1p120f));
    for (uint32_t j = 0; j < ATTN_BLOCK; j++) {
        kv_codec_for("plain")->decode_rows(dtype, want, dim, &p.rows, j, 1, dim);
        for (uint32_t d = 0; d < dim && done; d++) {
            float number = got[d * ATTN_BLOCK + j];
            if (isnan(want[d]))
                CHECK(isnan(number));
            else
                CHECKF(bits_of(number) == bits_of(want[d]), "%s, %u dims: %a, not %a at %u\n",
                       kv_dtype_name(dtype), dim, (double)number, (double)want[d], d);
        }
        CHECK(bits_of(got[dim * ATTN_BLOCK + j]) == UNTOUCHED);
        CHECK(done || bits_of(got[j]) == UNTOUCHED);
    }
    guarded_free(&p.memory);
}

static bool cpu_has_avx512(void)
{
    const kv_codec *codec = kv_codec_for(NULL);
    return !strcmp(codec->name, "avx512");
}

TEST(keys_from_codes_are_what_the_codec_says)
{
    const attn_kernels *kernels = &attn_isa_avx512.f32;
    if (!cpu_has_avx512() || !kernels->load_codes) {
        print_message("skipped: this CPU has no AVX-512\n");
        return;
    }
    uint64_t seed = test_told_seed();
    for (uint32_t dtype = RAD_F16; dtype <= RAD_I8; dtype++) {
        for (uint32_t dim = 1; dim <= MOST_DIM; dim++)
            check_keys(kernels, dtype, dim, dtype == RAD_F16 ? 1 : 0.37f, &seed);
        for (uint32_t n = 0; n < 20; n++) { /* 64 x 150 codes of 65536, 7 apart */
            float scale = n % 3 == 0 ? 0x1.8p125f : n % 3 == 1 ? 1 : 0x1p-110f;
            check_keys(kernels, dtype, MOST_DIM, dtype == RAD_F16 ? 1 : scale, &seed);
        }
    }
    kv_rows none = {.scale = 1};
    attn_ahead ahead = {.left = UINT32_MAX};
    CHECK(!kernels->load_codes(RAD_BF16, &none, 16, NULL, &ahead));
}

/* Room for whole steps of dimensions, filled with what no loader writes. */
typedef struct words {
    _Alignas(64) uint16_t at[(MOST_DIM + 95) / 32 * 32 * ATTN_BLOCK];
} words;

static void clear(words *w)
{
    for (size_t i = 0; i < RAD_COUNT(w->at); i++)
        w->at[i] = 0x5555;
}

static uint32_t up_to(uint32_t count, uint32_t step)
{
    return (count + step - 1) / step * step;
}

/* Word of a number, 0 behind the last; `want` is NULL there. */
static void check_word(uint16_t word, const float *want, const char *what, uint32_t dtype)
{
    if (!want)
        CHECKF(word == 0, "%s of %s: %x for nothing\n", what, kv_dtype_name(dtype), word);
    else if (isnan(*want))
        CHECK(isnan(bf16_to_f32(word)));
    else
        CHECKF(bits_of(bf16_to_f32(word)) == bits_of(*want), "%s of %s: %a, not %a\n", what,
               kv_dtype_name(dtype), (double)bf16_to_f32(word), (double)*want);
}

static void check_words(const attn_codes *codes, uint32_t dtype, uint32_t dim, uint64_t *seed)
{
    static words keys, values, rows;
    static float want[ATTN_BLOCK][MOST_DIM];
    const uint32_t key_dims = up_to(dim, 32), value_dims = up_to(dim, 16);
    attn_ahead none = {.left = UINT32_MAX};
    pool p = make_pool(dtype, dim, 1, seed);
    p.rows.slots = p.slots;
    clear(&keys);
    clear(&values);
    clear(&rows);
    codes->load_keys(dtype, &p.rows, dim, keys.at, &none);
    codes->load_values(dtype, &p.rows, dim, values.at, &none);
    codes->load_rows(dtype, &p.rows, dim, rows.at, key_dims);
    kv_rows unscaled = p.rows; /* the scales are somebody else's */
    unscaled.scales = NULL;
    kv_codec_for("plain")->decode_rows(dtype, want[0], MOST_DIM, &unscaled, 0, ATTN_BLOCK, dim);
    for (uint32_t j = 0; j < ATTN_BLOCK; j++)
        for (uint32_t d = 0; d < key_dims; d++) {
            const float *number = d < dim ? &want[j][d] : NULL;
            check_word(keys.at[(d / 2 * ATTN_BLOCK + j) * 2 + d % 2], number, "key", dtype);
            check_word(rows.at[j * key_dims + d], number, "row", dtype);
            if (d >= value_dims) continue;
            check_word(values.at[(j / 2 * value_dims + d) * 2 + j % 2], number, "value", dtype);
        }
    CHECK(keys.at[key_dims * ATTN_BLOCK] == 0x5555 && rows.at[key_dims * ATTN_BLOCK] == 0x5555);
    CHECK(values.at[value_dims * ATTN_BLOCK] == 0x5555);
    guarded_free(&p.memory);
}

TEST(words_of_codes_are_what_the_codec_says)
{
    const attn_codes *codes = attn_codes_of_cpu();
    if (!codes) {
        print_message("skipped: this CPU has no AVX512_VBMI with AVX512_BF16\n");
        return;
    }
    uint64_t seed = test_told_seed();
    for (uint32_t dtype = RAD_F8_E4M3; dtype <= RAD_I8; dtype++)
        for (uint32_t dim = 1; dim <= MOST_DIM; dim++) /* at 64 x 4 all codes have come */
            check_words(codes, dtype, dim, &seed);
}

TEST(rounded_rows_are_the_nearest_of_what_the_codec_says)
{
    static words rows;
    static float want[ATTN_BLOCK][MOST_DIM];
    const attn_codes *codes = attn_codes_of_cpu();
    uint64_t seed = test_told_seed();
    for (uint32_t dim = 1; dim <= MOST_DIM && codes; dim++) {
        const uint32_t room = dim + dim % 5, ld = up_to(room + dim % 3, 32);
        pool p = make_pool(RAD_I8, dim, 1, &seed);
        p.rows.slots = p.slots;
        clear(&rows);
        codes->round_rows(&p.rows, dim, rows.at, ld, room);
        kv_codec_for("plain")->decode_rows(RAD_I8, want[0], MOST_DIM, &p.rows, 0, ATTN_BLOCK, dim);
        for (uint32_t j = 0; j < ATTN_BLOCK; j++)
            for (uint32_t d = 0; d < ld; d++) {
                uint16_t word = d < dim ? bf16_from_f32(want[j][d]) : d < room ? 0 : 0x5555;
                CHECK(rows.at[j * ld + d] == word);
            }
        guarded_free(&p.memory);
    }
}

TEST(scales_of_many_heads_are_sorted_by_head)
{
    enum { MOST_HEADS = 32 };
    static _Alignas(64) float got[(MOST_HEADS + 1) * ATTN_BLOCK];
    const attn_codes *codes = attn_codes_of_cpu();
    uint64_t seed = 9;
    for (uint32_t heads = 1; heads <= MOST_HEADS && codes; heads++) {
        const size_t stride = (heads + heads % 3) * sizeof *got;
        guarded memory = guarded_alloc((ATTN_BLOCK - 1) * stride + heads * sizeof *got);
        char *base = memory.data;
        rad_slot slots[ATTN_BLOCK];
        for (uint32_t i = 0; i < ATTN_BLOCK; i++) {
            slots[i] = (rad_slot)(test_random(&seed) % ATTN_BLOCK);
            for (uint32_t h = 0; h < heads; h++) {
                float scale = (float)(i * MOST_HEADS + h);
                memcpy(base + i * stride + h * sizeof scale, &scale, sizeof scale);
            }
        }
        memset(got, 0x55, sizeof got);
        kv_rows rows = {.slots = slots, .scales = base, .scale_stride = stride};
        codes->load_scales(&rows, heads, got);
        for (uint32_t h = 0; h < heads; h++)
            for (uint32_t j = 0; j < ATTN_BLOCK; j++)
                CHECK(got[h * ATTN_BLOCK + j] == (float)((uint32_t)slots[j] * MOST_HEADS + h));
        CHECK(bits_of(got[heads * ATTN_BLOCK]) == UNTOUCHED);
        guarded_free(&memory);
    }
}

/* K's scale goes into q, V's into the sums: one that could take them out of a float's range is
 * left to the codec. A scale of a token is not: it meets a score, or a weight of at most 1. */
TEST(only_scales_that_leave_room_are_taken_out)
{
    static const struct {
        float k, v;
        bool taken;
    } cases[] = {{1, 1, true},       {0.0125f, 448, true}, {0x1p-64f, 0x1p64f, true},
                 {1e-30f, 1, false}, {1, 1e30f, false},    {0x1.8p125f, 1, false}};
    for (size_t i = 0; i < RAD_COUNT(cases); i++)
        for (uint32_t dtype = 0; dtype <= RAD_I8; dtype++) {
            const float k[] = {0.5f, cases[i].k}, v[] = {0.5f, cases[i].v};
            rad_token_to_kv_pool_params p = {
                .dtype = (rad_dtype)dtype, .start_layer = 3, .num_layers = 2};
            bool fp8 = kv_dtype_is_fp8(dtype);
            if (fp8) p.k_scales = k, p.v_scales = v;
            CHECK(attn_codes_take(&p, 3) == (fp8 || dtype == RAD_I8));
            CHECK(attn_codes_take(&p, 4) == ((fp8 && cases[i].taken) || dtype == RAD_I8));
            p.k_scales = p.v_scales = NULL;
            CHECK(attn_codes_take(&p, 4) == (fp8 || dtype == RAD_I8));
        }
}

/* Two arithmetics have two names, so that stored pages of one are never read by the other. */
TEST(answers_over_codes_are_filed_under_a_name_of_their_own)
{
    static const char *const isas[] = {"amx", "amx-emulated", "avx512bf16", "avx512", "scalar"};
    for (size_t i = 0; i < RAD_COUNT(isas); i++) {
        const attn_backend *backend = gear_attn_cpu(isas[i]);
        if (!backend) continue;
        const bool bf16 = i < 3 && attn_codes_of_cpu();
        for (uint32_t dtype = 0; dtype <= RAD_I8; dtype++) {
            const char *name = attn_name(backend, dtype);
            bool own = bf16 && dtype >= RAD_F8_E4M3;
            CHECK(strncmp(name, backend->name, strlen(backend->name)) == 0);
            CHECK((strcmp(name, backend->name) != 0) == own);
        }
    }
    for (uint32_t dtype = 0; dtype <= RAD_I8; dtype++)
        CHECK(strcmp(attn_name(attn_ref(), dtype), "ref") == 0);
}

/* Every line of what is to come is fetched once: K, V, and their scales behind them. */
TEST(what_lies_ahead_is_walked_line_by_line)
{
    static char memory[4][8 * 640];
    rad_slot slots[] = {5, 0, 3};
    for (uint32_t sides = 1; sides <= 4; sides++) {
        attn_ahead a = {.count = 3, .sides = sides, .slots = slots};
        for (uint32_t s = 0; s < sides; s++) {
            a.base[s] = memory[s];
            a.stride[s] = 640;
            a.bytes[s] = s < 2 ? 512 : 16;
        }
        attn_ahead_row(&a);
        uint32_t total = 0;
        for (uint32_t s = 0; s < sides; s++)
            total += s < 2 ? 3 * 8 : 3;
        for (uint32_t s = 0; s < sides; s++)
            for (uint32_t t = 0; t < 3; t++)
                for (uint32_t line = 0; line < (s < 2 ? 8 : 1); line++) {
                    CHECK(attn_ahead_lines(&a) == total--);
                    CHECK(a.step && a.next == memory[s] + slots[t] * 640 + line * 64);
                    attn_ahead_fetch(&a, 1);
                }
        CHECK(attn_ahead_lines(&a) == 0 && a.step == 0);
        attn_ahead_fetch(&a, 10);
    }
}

TEST_MAIN()
