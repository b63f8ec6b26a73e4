/* Experts whose matrices are quantised: rounding to places, and products by tiles, have the CPU's
 * bits for every row, whichever places and neighbours it has. */
#include "cuda_rig.h"

#include "base/bf16.h"
#include "cuda/gemm_plan.h"
#include "cuda/kernels/experts_quant_args.h"
#include "cuda/quant_pack.h"
#include "emulator.h"
#include "model/gemm_quant.h"
#include "model/ops.h"

#include <math.h>

static uint64_t state;
static const cuda_gemm_room small_gpu = {3, 227 << 10};

static uint32_t less(uint32_t n)
{
    return (uint32_t)(test_random(&state) % n);
}

static float number(void)
{
    const float v = 1 + (float)less(128) / 128;
    return ldexpf(less(2) ? v : -v, -(int)less(16));
}

static bool same(float a, float b)
{
    return f32_bits(a) == f32_bits(b) || (isnan(a) && isnan(b));
}

/* ---- which tokens are where ---- */

/* Places as experts_args.h has them, of tokens that use experts at random: some use none of them
 * (they fill up a graph), some experts are used by nobody and some by many. */
typedef struct placing {
    uint32_t tokens, count, places, num_tiles;
    expert_tiles by;
    expert_tile *tiles;
    uint32_t *row_of;
} placing;

static placing make_placing(cuda_rig *rig, uint32_t tokens, uint32_t used, uint32_t count,
                            uint32_t width)
{
    placing p = {.tokens = tokens, .count = count};
    const uint32_t most = experts_most_tiles(tokens, used, count, width);
    p.places = most * width;
    p.tiles = rig_alloc(rig, most * sizeof *p.tiles);
    p.row_of = rig_alloc(rig, p.places * sizeof *p.row_of);
    uint32_t *num = rig_alloc(rig, sizeof *num);
    bool *uses = calloc((size_t)tokens * count, sizeof *uses);
    for (uint32_t t = 0; t + 1 < tokens || t == 0; t++)
        for (uint32_t r = 0; r < used; r++)
            uses[t * count + (less(2) ? less(count) : less(2))] = true;
    for (uint32_t e = 0; e < count; e++) {
        expert_tile *tile = NULL;
        for (uint32_t t = 0; t < tokens; t++) {
            if (!uses[t * count + e]) continue;
            if (!tile || tile->count == width) {
                tile = &p.tiles[p.num_tiles++];
                *tile = (expert_tile){e, 0};
                for (uint32_t i = 0; i < width; i++)
                    p.row_of[(p.num_tiles - 1) * width + i] = EXPERTS_NONE;
            }
            p.row_of[(p.num_tiles - 1) * width + tile->count++] = t;
        }
    }
    free(uses);
    *num = p.num_tiles;
    p.by = (expert_tiles){.tiles = p.tiles, .num_tiles = num, .row_of = p.row_of, .width = width};
    return p;
}

static uint32_t expert_of(const placing *p, uint32_t place)
{
    return p->tiles[place / p->by.width].expert;
}

/* ---- rounding ---- */

static void quantise(cuda_rig *rig, const placing *p, const quantise_places_args *args)
{
    rig_launch(rig, "quantise_rows",
               (emulation){.kernel = "quantise_places",
                           .grid = {p->places, quantise_blocks(args->padded_k), 1},
                           .threads = QUANTISE_THREADS,
                           .args = args,
                           .order = less(4)},
               sizeof *args);
}

static bool untouched(const void *memory, size_t bytes)
{
    for (const unsigned char *at = memory; bytes; at++, bytes--)
        if (*at != 0xa5) return false;
    return true;
}

/* What a place has to say, by the CPU's operations. */
static void row_of_place(const placing *p, const quantise_places_args *a, uint32_t place,
                         float *gate, float *up)
{
    const uint32_t row = a->gathered ? p->row_of[place] : place;
    for (uint32_t i = 0; i < a->k; i++) {
        const size_t at = (size_t)row * a->ldx + i;
        if (a->from == QUANTISE_BF16) {
            gate[i] = bf16_to_f32(((const uint16_t *)a->x)[at]);
            continue;
        }
        gate[i] = ((const float *)a->x)[at];
        if (a->from == QUANTISE_F32) continue;
        up[i] = ((const float *)a->x)[at + a->k];
        if (!a->bias) continue;
        gate[i] += a->bias[(size_t)expert_of(p, place) * 2 * a->k + i];
        up[i] += a->bias[(size_t)expert_of(p, place) * 2 * a->k + a->k + i];
    }
    if (a->from == QUANTISE_SWIGLU) model_ops_find(NULL)->swiglu(gate, up, a->k);
    if (a->from == QUANTISE_SWIGLU_CLAMPED) model_ops_find(NULL)->swiglu_clamped(gate, up, a->k);
}

static void check_place(const placing *p, const quantise_places_args *a, uint32_t place)
{
    float gate[512], up[512];
    gemm_xblock want[16];
    const uint32_t blocks = a->padded_k / 32;
    const int8_t *q = a->q + (size_t)place * a->padded_k;
    if (p->row_of[place] == EXPERTS_NONE) {
        CHECK(untouched(q, a->padded_k) && (!a->act || untouched(a->act + place * a->padded_k, 2)));
        return;
    }
    row_of_place(p, a, place, gate, up);
    for (uint32_t i = 0; a->act && i < a->padded_k; i++)
        CHECK(a->act[place * a->padded_k + i] == (i < a->k ? bf16_from_f32(gate[i]) : 0));
    if (a->act) return;
    gemm_round_to_blocks(gate, a->k, want);
    for (uint32_t b = 0; b < blocks; b++) {
        const float d = a->scales[b * a->ld_places + place];
        const float sum = a->scales[(blocks + b) * a->ld_places + place];
        for (uint32_t i = 0; i < 32; i++)
            CHECK(q[b * 32 + i] == (b * 32 < a->k ? want[b].q[i] : 0));
        CHECK(b * 32 < a->k ? same(d, want[b].d) && same(sum, want[b].sum) : d == 0 && sum == 0);
    }
}

TEST(places_have_what_the_cpu_makes_of_their_rows)
{
    state = test_told_seed();
    for (uint32_t round = 0; round < test_scale(12, 120); round++) {
        cuda_rig rig = rig_open();
        const placing p = make_placing(&rig, 1 + less(9), 1 + less(3), 2 + less(5), 8u << less(4));
        const uint32_t from = round % 4, k = 32 * (1 + less(10)), ldx = 2 * k + less(4);
        quantise_places_args a = {.by = p.by,
                                  .k = k,
                                  .padded_k = cuda_quant_k(k),
                                  .ldx = ldx,
                                  .ld_places = p.places,
                                  .from = from,
                                  .gathered = from == QUANTISE_F32 || less(2)};
        const uint32_t rows = a.gathered ? p.tokens : p.places;
        float *x = rig_alloc(&rig, sizeof(float) * rows * ldx);
        for (size_t i = 0; i < (size_t)rows * ldx; i++) {
            x[i] = number() * (less(3) ? 1 : 16);
            if (less(200) == 0) x[i] = less(2) ? NAN : INFINITY;
        }
        float *bias = rig_alloc(&rig, sizeof(float) * p.count * 2 * k);
        for (uint32_t i = 0; i < p.count * 2 * k; i++)
            bias[i] = number();
        a.x = x;
        a.bias = less(2) ? bias : NULL;
        a.q = rig_alloc(&rig, (size_t)p.places * a.padded_k);
        a.scales = rig_alloc(&rig, sizeof(float) * 2 * a.padded_k / 32 * a.ld_places);
        if (round % 3 == 2) a.act = rig_alloc(&rig, (size_t)p.places * a.padded_k * 2);
        quantise(&rig, &p, &a);
        for (uint32_t place = 0; place < p.num_tiles * p.by.width; place++)
            check_place(&p, &a, place);
        CHECK(untouched(a.q + (size_t)p.num_tiles * p.by.width * a.padded_k,
                        (size_t)(p.places - p.num_tiles * p.by.width) * a.padded_k));
        rig_close(&rig);
    }
}

/* ---- products ---- */

/* An expert's blocks as a file has them: any bits as integers, scales up to 2^-4, some odd. */
static void random_blocks(gemm_type type, uint8_t *blocks, size_t bytes)
{
    const uint32_t block = type == GEMM_Q8_0    ? 34
                           : type == GEMM_MXFP4 ? 17
                           : type == GEMM_Q4_K  ? 144
                                                : 210;
    for (size_t i = 0; i < bytes; i++)
        blocks[i] = (uint8_t)less(256);
    for (uint8_t *b = blocks; b < blocks + bytes; b += block) {
        if (type == GEMM_MXFP4) b[0] = (uint8_t)(118 + less(8));
        for (uint32_t s = 0; type != GEMM_MXFP4 && s < (type == GEMM_Q4_K ? 2u : 1u); s++) {
            const uint16_t d = (uint16_t)(less(0x2c00) | less(2) << 15);
            memcpy(b + (type == GEMM_Q6_K ? 208 : 2 * s), &d, 2);
        }
    }
}

static size_t row_bytes(gemm_type type, uint32_t k)
{
    return type == GEMM_Q8_0    ? k / 32 * 34
           : type == GEMM_MXFP4 ? k / 32 * 17
           : type == GEMM_Q4_K  ? k / 256 * 144
                                : k / 256 * 210;
}

/* want[token][expert][n], of all pairs. */
static float *multiply_all(gemm_type type, const uint8_t *blocks, uint32_t count, uint32_t n,
                           uint32_t k, const float *x, uint32_t tokens)
{
    float *want = malloc(sizeof(float) * tokens * count * n);
    const size_t pitch = row_bytes(type, k);
    for (uint32_t e = 0; e < count; e++) {
        gemm_weight *w;
        CHECK_OK(gemm_weight_create(NULL, type, n, k, gemm_isa_find("scalar"), &w, NULL));
        gemm_weight_set_blocks(w, 0, n, blocks + e * n * pitch, pitch);
        void *scratch = aligned_alloc(64, (gemm_scratch_bytes(w, tokens) + 63) / 64 * 64);
        gemm_run(w, x, k, tokens, want + e * n, (size_t)count * n, false, NULL, scratch);
        free(scratch);
        gemm_weight_destroy(w);
    }
    return want;
}

static void check_product(gemm_type type, uint32_t width, uint32_t tokens, uint32_t used,
                          uint32_t count, uint32_t n, uint32_t k)
{
    cuda_rig rig = rig_open();
    const placing p = make_placing(&rig, tokens, used, count, width);
    const size_t pitch = row_bytes(type, k), w_bytes = cuda_quant_bytes(type, n, k) + 256;
    uint8_t *blocks = malloc(count * n * pitch), *w = rig_alloc(&rig, count * w_bytes);
    random_blocks(type, blocks, count * n * pitch);
    memset(w, 0, count * w_bytes);
    for (uint32_t r = 0; r < count * n; r++)
        cuda_quant_pack(type, w + r / n * w_bytes, k, r % n, blocks + r * pitch);
    float *x = rig_alloc(&rig, sizeof(float) * tokens * k);
    for (size_t i = 0; i < (size_t)tokens * k; i++)
        x[i] = number();
    if (tokens > 2) x[2 * k + 5] = NAN; /* says so, and no other token does */
    float *want = multiply_all(type, blocks, count, n, k, x, tokens);

    const uint32_t padded_k = cuda_quant_k(k), ld_out = n + less(3);
    const quantise_places_args rounding = {
        .x = x,
        .q = rig_alloc(&rig, (size_t)p.places * padded_k),
        .scales = rig_alloc(&rig, (size_t)padded_k / 32 * 8 * p.places),
        .by = p.by,
        .k = k,
        .padded_k = padded_k,
        .ldx = k,
        .ld_places = p.places,
        .from = QUANTISE_F32,
        .gathered = 1};
    quantise(&rig, &p, &rounding);
    gemm_quant_experts_args args = {.w = w,
                                    .w_bytes = w_bytes,
                                    .x = rounding.q,
                                    .scales = rounding.scales,
                                    .out = rig_alloc(&rig, sizeof(float) * p.places * ld_out),
                                    .by = p.by,
                                    .n = (n + 15) / 16 * 16,
                                    .n_out = n,
                                    .k = padded_k,
                                    .ld_places = p.places,
                                    .ld_out = ld_out,
                                    .last_bytes = cuda_quant_last_bytes(type, k)};
    cuda_gemm_plan plan;
    cuda_gemm_choice choice;
    do
        choice = (cuda_gemm_choice){1 + less(4), 3 + less(6), 1 + less(2), false};
    while (!cuda_gemm_tiles_plan_of(cuda_gemm_kind_of(type), args.n, padded_k, width,
                                    p.places / width, small_gpu, choice, &plan));
    args.warps = plan.warps, args.stages = plan.stages;
    rig_launch(&rig, "gemm_quant_experts",
               (emulation){.kernel = plan.kernel,
                           .grid = {plan.grid, 1, 1},
                           .threads = plan.threads,
                           .shared_bytes = plan.shared_bytes,
                           .args = &args,
                           .order = less(4)},
               sizeof args);
    for (uint32_t place = 0; place < p.places; place++) {
        const float *row = args.out + (size_t)place * ld_out;
        const bool taken = place / width < p.num_tiles && p.row_of[place] != EXPERTS_NONE;
        if (!taken) CHECK(untouched(row, ld_out * sizeof *row));
        for (uint32_t r = 0; taken && r < n; r++) {
            const float by_cpu = want[(p.row_of[place] * count + expert_of(&p, place)) * n + r];
            CHECKF(same(row[r], by_cpu),
                   "%s n %u k %u: place %u of %u tiles of %u, row %u: %a, by "
                   "the CPU %a\n",
                   gemm_type_name(type), n, k, place, p.num_tiles, width, r, row[r], by_cpu);
        }
        CHECK(untouched(row + n, (ld_out - n) * sizeof *row));
    }
    free(blocks);
    free(want);
    rig_close(&rig);
}

TEST(products_by_tiles_have_the_bits_of_the_cpu)
{
    static const gemm_type types[] = {GEMM_Q8_0, GEMM_MXFP4, GEMM_Q4_K, GEMM_Q6_K};
    state = test_told_seed();
    for (size_t i = 0; i < RAD_COUNT(types); i++)
        for (uint32_t width = 8; width <= 64; width *= 2) {
            const bool of_k = types[i] == GEMM_Q4_K || types[i] == GEMM_Q6_K;
            const uint32_t k = of_k ? 256 * (1 + less(2)) : 32 * (1 + less(20));
            check_product(types[i], width, width / 2 + less(width), 1 + less(2), 2 + less(3),
                          1 + less(60), k);
        }
    for (uint32_t i = 0; i < test_scale(0, 60); i++) {
        const gemm_type type = types[i % RAD_COUNT(types)];
        check_product(type, 8u << less(4), 1 + less(100), 1 + less(4), 2 + less(8), 1 + less(100),
                      256 * (1 + less(4)) - (i % 4 < 2 ? 32 * less(8) : 0));
    }
}

/* On small and large GPUs, for few tiles and many. */
TEST(a_plan_by_tiles_fits_the_gpu)
{
    const cuda_gemm_room rooms[] = {
        {1, 99 << 10}, {20, 99 << 10}, {108, 163 << 10}, {132, 227 << 10}};
    const uint32_t rows[] = {16, 48, 1024, 5760}, tiles[] = {1, 4, 33, 400};
    for (size_t g = 0; g < RAD_COUNT(rooms); g++)
        for (int kind = CUDA_GEMM_BF16; kind < CUDA_GEMM_KINDS; kind++)
            for (size_t i = 0; i < RAD_COUNT(rows) * RAD_COUNT(tiles); i++)
                for (uint32_t width = 8; width <= 64; width *= 2) {
                    const uint32_t n = rows[i / RAD_COUNT(tiles)],
                                   most = tiles[i % RAD_COUNT(tiles)];
                    const cuda_gemm_plan p =
                        cuda_gemm_tiles_plan((cuda_gemm_kind)kind, n, 3072, width, most, rooms[g]);
                    CHECK(p.shared_bytes <= rooms[g].shared_bytes && p.threads <= 320);
                    CHECK(p.grid >= 1 && p.grid <= rooms[g].multiprocessors && p.warps >= 1);
                    CHECK(p.grid <= most * ((n + 16 * p.warps - 1) / (16 * p.warps)));
                    CHECK(strstr(p.kernel, "gemm_experts_") == p.kernel);
                }
}

TEST_MAIN()
