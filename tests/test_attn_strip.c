/* test_attn_strip.c - a token that decodes has the same bits in strips (attn_strip.h) as in the
 * narrow walk, for every store that has strips, whatever the shape, the codes and the place of the
 * slots; and nothing is read behind a pool's last byte. */
#include "below.h"
#include "gear/amx_gear.h"
#include "guarded.h"
#include "test.h"

#include "attn/attn_plan.h"
#include "attn/attn_strip.h"

#include <math.h>

enum {
    MOST_KV = 12,
    MOST_DIM = 256,
    SLOTS = 400,
    FLOATS = MOST_KV * 8 * MOST_DIM,
    BUFFERS = 4 /* K, V, their scales */
};

/* What strips there are: of a dtype, by `pairs` or by `chain`. */
typedef struct kind {
    uint32_t dtype;
    bool chain;
} kind;

typedef struct world {
    bool chain;
    uint32_t dtype, kv_heads, sharing, dim, len;
    guarded memory[BUFFERS];
    size_t bytes[BUFFERS], slot_bytes[BUFFERS];
    rad_token_to_kv_pool *pool;
    rad_slot slots[SLOTS];
    radix_attention layer;
    forward_batch batch;
    float *q, *out;
} world;

/* Numbers, below 2 in fp8. `odd`: of 600 values one may be any bits, those of an infinity or of
 * no number too; keys have none such, or all that comes of them would be no number. */
static void fill_memory(world *w, bool odd, uint64_t *seed)
{
    const uint32_t number = kv_dtype_bytes(w->dtype);
    for (uint32_t b = 0; b < BUFFERS; b++) {
        uint8_t *bytes = w->memory[b].data;
        for (size_t i = 0; b >= 2 && i < w->bytes[b] / sizeof(float); i++)
            ((float *)w->memory[b].data)[i] = (float)(500 + test_random(seed) % 500) / 33300;
        for (size_t i = 0; b < 2 && i < w->bytes[b]; i += number) {
            uint32_t bits = (uint32_t)test_random(seed);
            const float f = random_float(seed);
            if (w->dtype == RAD_F32) memcpy(&bits, &f, sizeof bits);
            if (w->dtype == RAD_BF16) bits = bf16_from_f32(f);
            if (w->dtype == RAD_F16) bits &= 0xbfff; /* below 2 */
            if (kv_dtype_is_fp8(w->dtype)) bits &= 0xbf;
            if (odd && b == 1 && test_random(seed) % 600 == 0) {
                const uint64_t any = test_random(seed);
                bits = any % 2                ? (uint32_t)(any >> 8)
                       : w->dtype == RAD_F32  ? 0x7f800000
                       : w->dtype == RAD_BF16 ? 0x7f80
                       : w->dtype == RAD_F16  ? 0x7c00
                                              : 0x7c;
            }
            memcpy(bytes + i, &bits, number);
        }
    }
}

static void world_init(world *w, kind k, uint64_t *seed)
{
    static const float k_scale = 1.25f, v_scale = 0.5f;
    const uint32_t dtype = k.dtype;
    *w = (world){.dtype = dtype, .chain = k.chain};
    w->kv_heads = 1 + below(seed, MOST_KV); /* in turn, or a seed would be a compiler's own */
    w->sharing = 1 + below(seed, 8);
    w->dim = 32 * (1 + below(seed, MOST_DIM / 32));
    w->len = 1 + below(seed, SLOTS - 1);
    const uint32_t number = kv_dtype_bytes(dtype), row = w->kv_heads * w->dim * number;
    for (uint32_t b = 0; b < BUFFERS; b++) {
        w->slot_bytes[b] = b < 2 ? row : dtype == RAD_I8 ? w->kv_heads * sizeof(float) : 0;
        w->bytes[b] = SLOTS * w->slot_bytes[b];
        w->memory[b] = guarded_alloc(w->bytes[b]);
    }
    fill_memory(w, below(seed, 3) == 0, seed);
    const rad_kv_buffers buffers = {.k = w->memory[0].data,
                                    .v = w->memory[1].data,
                                    .k_scale = dtype == RAD_I8 ? w->memory[2].data : NULL,
                                    .v_scale = dtype == RAD_I8 ? w->memory[3].data : NULL,
                                    .k_stride = row,
                                    .v_stride = row,
                                    .k_scale_stride = w->slot_bytes[2],
                                    .v_scale_stride = w->slot_bytes[3]};
    const bool fp8 = kv_dtype_is_fp8(dtype);
    const rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                           .num_pages = SLOTS - 1,
                                           .num_layers = 1,
                                           .num_kv_heads = w->kv_heads,
                                           .head_dim = w->dim,
                                           .dtype = (rad_dtype)dtype,
                                           .k_scales = fp8 ? &k_scale : NULL,
                                           .v_scales = fp8 ? &v_scale : NULL,
                                           .buffers = &buffers};
    rad_error err = {0};
    rad_status status = rad_token_to_kv_pool_create(NULL, &p, &w->pool, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    /* In order, in pages of random order, or all in random order; the last slot is among them. */
    const uint32_t page = (uint32_t[]){SLOTS, 16, 1}[below(seed, 3)];
    const uint32_t pages = SLOTS / page, turn = below(seed, pages);
    for (uint32_t t = 0; t < SLOTS; t++)
        w->slots[t] = (rad_slot)((t / page * 7 + turn) % pages * page + t % page);
    w->layer = (radix_attention){.num_heads = w->kv_heads * w->sharing,
                                 .num_kv_heads = w->kv_heads,
                                 .head_dim = w->dim,
                                 .scaling = 1 / sqrtf((float)w->dim)};
    w->layer.logit_cap = below(seed, 4) ? 0 : 5;
    w->layer.sliding_window = below(seed, 3) ? -1 : 1 + (int32_t)below(seed, w->len + 9);
    w->batch = (forward_batch){.num_reqs = 1, .num_tokens = 1, .token_to_kv_pool = w->pool};
    w->q = calloc(FLOATS, sizeof *w->q);
    fill(w->q, FLOATS, seed);
}

static void world_fini(world *w)
{
    rad_token_to_kv_pool_destroy(w->pool);
    for (uint32_t b = 0; b < BUFFERS; b++)
        guarded_free(&w->memory[b]);
    free(w->q);
}

static bool has_codes(uint32_t dtype)
{
    return dtype == RAD_I8 || kv_dtype_is_fp8(dtype);
}

static const attn_kernels *kernels_of(const world *w)
{
    if (!w->chain) return &attn_pairs_avx512bf16;
    return w->dtype == RAD_BF16 ? &attn_isa_avx2.bf16 : &attn_isa_avx2.f32;
}

/* The last token's row of some KV heads, in two units: [0, split) blocks, and what follows. */
static void run(const world *w, bool strips, uint32_t first, uint32_t end, uint32_t split,
                float *out)
{
    static float states[2 * MOST_KV * 8];
    attn_kernels kernels = *kernels_of(w);
    if (!strips) kernels.strip = NULL;
    attn_call call = attn_call_of(&kernels, has_codes(w->dtype) ? attn_codes_of_cpu() : NULL,
                                  &w->layer, &w->batch, w->q, out);
    call.states = states;
    const uint32_t blocks = attn_end_block(w->len);
    attn_walk walk = {.ready = false};
    attn_unit u = {.slots = w->slots,
                   .num_slots = w->len,
                   .end_block = RAD_MIN(split, blocks),
                   .side_begin = first,
                   .side_end = end,
                   .num_tokens = 1,
                   .first = true};
    u.position[0] = w->len - 1;
    CHECK(attn_strip_takes(&call, &u) == strips);
    u.last = u.end_block == blocks;
    attn_unit_run(&call, &u, &walk, NULL);
    if (u.last) return;
    u.first = false;
    u.last = true;
    u.first_block = u.end_block;
    u.end_block = blocks;
    attn_unit_run(&call, &u, &walk, NULL);
}

/* Numbers to the bit; any NaN for another one. */
static bool same(const float *a, const float *b)
{
    for (uint32_t i = 0; i < FLOATS; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]))) return false;
    return true;
}

static bool has_strips(kind k)
{
    if (k.chain) return gear_attn_cpu("avx2") != NULL;
    return gear_attn_cpu("avx512bf16") && (!has_codes(k.dtype) || attn_codes_of_cpu());
}

static const kind kinds[] = {{RAD_BF16, false},    {RAD_F32, true},  {RAD_F8_E4M3, false},
                             {RAD_F8_E5M2, false}, {RAD_BF16, true}, {RAD_I8, false},
                             {RAD_F16, true}};

TEST(strips_have_the_bits_of_the_narrow_walk)
{
    static float narrow[FLOATS], strip[FLOATS];
    uint64_t seed = test_told_seed();
    for (uint64_t round = 0; round < test_scale(120, 6000); round++) {
        world w;
        const kind k = kinds[round % RAD_COUNT(kinds)];
        if (!has_strips(k)) continue;
        world_init(&w, k, &seed);
        const uint32_t first = below(&seed, w.kv_heads);
        const uint32_t end = first + 1 + below(&seed, w.kv_heads - first);
        const uint32_t split = 1 + below(&seed, 8);
        memset(narrow, 0, sizeof narrow);
        memset(strip, 0, sizeof strip);
        run(&w, false, first, end, split, narrow);
        run(&w, true, first, end, split, strip);
        CHECKF(same(narrow, strip), "%s%s, %u tokens, heads %u..%u of %u, %u to each, of %u\n",
               kv_dtype_name(k.dtype), k.chain ? " by chain" : "", w.len, first, end, w.kv_heads,
               w.sharing, w.dim);
        world_fini(&w);
    }
}

/* The key at `slot` takes the signs of its KV heads' first queries. Its scores there are far from
 * 0, and change with it: one of nearly 0 would have nearly the same weight after any change. */
static void key_agrees_with_queries(world *w, rad_slot slot)
{
    const uint32_t number = kv_dtype_bytes(w->dtype);
    uint8_t *row = (uint8_t *)w->memory[0].data + (size_t)slot * w->slot_bytes[0];
    for (uint32_t h = 0; h < w->kv_heads; h++)
        for (uint32_t d = 0; d < w->dim; d++) {
            uint8_t *sign = row + (size_t)(h * w->dim + d + 1) * number - 1;
            const bool negative = signbit(w->q[(size_t)h * w->sharing * w->dim + d]) != 0;
            *sign = (uint8_t)((*sign & 0x7f) | (negative ? 0x80 : 0));
        }
}

/* One bit of a number or of a scale that is seen is noticed; none of what is not. */
TEST(strips_see_what_they_should_and_nothing_else)
{
    static float before[FLOATS], after[FLOATS];
    uint64_t seed = test_told_seed();
    for (uint64_t round = 0; round < test_scale(48, 1200); round++) {
        world w;
        const kind k = kinds[round % RAD_COUNT(kinds)];
        if (!has_strips(k)) continue;
        world_init(&w, k, &seed);
        fill_memory(&w, false, &seed);
        w.layer.sliding_window = round % 3 ? -1 : 40;
        const uint32_t start = round % 3 || w.len < 40 ? 0 : w.len - 40;
        const uint32_t b = below(&seed, k.dtype == RAD_I8 ? BUFFERS : 2);
        const uint32_t seen = start + below(&seed, w.len - start);
        uint8_t *bytes = w.memory[b].data;
        key_agrees_with_queries(&w, w.slots[seen]);
        memset(before, 0, sizeof before);
        memset(after, 0, sizeof after);
        run(&w, true, 0, w.kv_heads, 9, before);
        for (uint32_t t = 0; t < SLOTS; t++) /* no numbers, most of them */
            if (t < start || t >= w.len)
                memset(bytes + (size_t)w.slots[t] * w.slot_bytes[b], 0xff, w.slot_bytes[b]);
        run(&w, true, 0, w.kv_heads, 9, after);
        CHECKF(same(before, after), "%s: sees %u..%u, and more\n", kv_dtype_name(k.dtype), start,
               w.len);
        uint8_t *row = bytes + (size_t)w.slots[seen] * w.slot_bytes[b];
        const uint32_t number = kv_dtype_bytes(k.dtype);
        for (uint32_t i = 0; i < w.slot_bytes[b]; i++) /* all heads' signs, or scales */
            if (b >= 2 ? i % 4 == 2 : (i + 1) % number == 0) row[i] ^= b >= 2 ? 0x40 : 0x80;
        run(&w, true, 0, w.kv_heads, 9, after);
        CHECKF(!same(before, after) || (b % 2 == 0 && w.len - start == 1),
               "%s: does not see %u of %u..%u\n", kv_dtype_name(k.dtype), seen, start, w.len);
        world_fini(&w);
    }
}

#if defined(__x86_64__) /* elsewhere there are no such kernels */
static void check_asking(void (*kernel)(attn_strip *), uint32_t dtype, uint32_t sharing,
                         uint32_t kv_heads, uint32_t dim, uint32_t tokens)
{
    enum { ROWS = ATTN_STRIP_ROWS };
    static _Alignas(64) char row[ATTN_MOST_SIDES * ATTN_STRIP_DIM * sizeof(float)];
    static _Alignas(64) char q[ROWS * ATTN_STRIP_DIM * sizeof(float)];
    static _Alignas(64) float weights[ROWS * ATTN_BLOCK], part[ROWS * ATTN_STRIP_DIM];
    static const float scales[ATTN_MOST_SIDES * ATTN_BLOCK];
    const bool codes = has_codes(dtype);
    attn_strip s = {.kv_heads = kv_heads,
                    .sharing = sharing,
                    .dim = dim,
                    .dtype = dtype,
                    .q = q,
                    .q_bytes = dim * sizeof(float),
                    .step = codes ? ATTN_STRIP_CODE_TOKENS : ATTN_STRIP_TOKENS,
                    .ahead = codes ? ATTN_STRIP_CODE_AHEAD : ATTN_STRIP_AHEAD,
                    .tokens = tokens,
                    .end = tokens,
                    .head_bytes = (size_t)dim * kv_dtype_bytes(dtype),
                    .key_scales = scales,
                    .value_scales = scales,
                    .weights = weights,
                    .part = part};
    for (uint32_t i = 0; i < RAD_COUNT(s.rows); i++)
        s.rows[i] = row;
    kernel(&s);
    CHECKF(s.ask_row > 2 * tokens && s.ask_row < 2 * tokens + s.ahead,
           "%s, %u heads of %u, %u to each, %u tokens: asked for row %u\n", kv_dtype_name(dtype),
           kv_heads, dim, sharing, tokens, s.ask_row);
}
#endif

/* What comes next is asked for by the end of a block, and nothing beyond what is known. */
TEST(strips_ask_for_no_row_that_is_not_known)
{
#if defined(__x86_64__)
    static const uint32_t sharings[] = {1, 4, 5, 7}; /* each is cut in another way */
    const bool pairs = has_strips((kind){RAD_I8, false}), chain = has_strips((kind){RAD_F32, true});
    for (uint32_t i = 0; i < RAD_COUNT(sharings); i++)
        for (uint32_t heads = 1, sharing = sharings[i];
             heads <= RAD_MIN((uint32_t)ATTN_MOST_SIDES, ATTN_STRIP_ROWS / sharing); heads++)
            for (uint32_t dim = 32; dim <= ATTN_STRIP_DIM; dim += dim < 128 ? 32 : 64)
                for (uint32_t tokens = 32; tokens <= ATTN_BLOCK; tokens += 32) {
                    if (chain && heads % 3 == 1) {
                        check_asking(attn_strip_avx2_f32, RAD_F32, sharing, heads, dim, tokens);
                        check_asking(attn_strip_avx2_bf16, RAD_BF16, sharing, heads, dim,
                                     tokens - 16);
                    }
                    if (!pairs) continue;
                    check_asking(attn_strip_avx512bf16, RAD_BF16, sharing, heads, dim, tokens);
                    check_asking(attn_strip_avx512bf16, RAD_BF16, sharing, heads, dim, tokens - 16);
                    check_asking(attn_strip_avx512vbmi, RAD_I8, sharing, heads, dim, tokens);
                }
#endif
}

/* What strips have no room for goes on as before. */
TEST(strips_leave_what_they_cannot)
{
    uint64_t seed = 3;
    for (uint32_t i = 0; i < RAD_COUNT(kinds); i++) {
        world w;
        if (!has_strips(kinds[i])) continue;
        world_init(&w, kinds[i], &seed);
        float *out = calloc(FLOATS, sizeof *out);
        attn_call call = attn_call_of(kernels_of(&w),
                                      has_codes(w.dtype) ? attn_codes_of_cpu() : NULL, &w.layer,
                                      &w.batch, w.q, out);
        attn_unit u = {.side_end = 1, .num_tokens = 1};
        CHECK(attn_strip_takes(&call, &u));
        u.num_tokens = 2;
        CHECK(!attn_strip_takes(&call, &u));
        u.num_tokens = 1;
        radix_attention odd = w.layer;
        call.layer = &odd;
        odd.head_dim = call.v_dim = 48;
        CHECK(!attn_strip_takes(&call, &u));
        odd.head_dim = call.v_dim = 288;
        CHECK(!attn_strip_takes(&call, &u));
        odd.head_dim = call.v_dim = 96;
        CHECK(attn_strip_takes(&call, &u));
        call.v_dim = 64;
        CHECK(!attn_strip_takes(&call, &u));
        call.v_dim = 96;
        call.heads = ATTN_STRIP_SHARING + 1;
        CHECK(!attn_strip_takes(&call, &u));
        call.heads = ATTN_STRIP_SHARING;
        const attn_call before = call;
        call.decoded = true;
        call.kv.dtype = RAD_I8;
        CHECK(!attn_strip_takes(&call, &u));
        call = before;
        u.side_end = ATTN_STRIP_ROWS / ATTN_STRIP_SHARING + 1;
        CHECK(!attn_strip_takes(&call, &u));
        free(out);
        world_fini(&w);
    }
}

TEST_MAIN()
