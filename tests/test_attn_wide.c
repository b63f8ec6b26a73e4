/* test_attn_wide.c - the wide layout of an arithmetic gives the narrow one's bits: for every
 * row, whatever rows lie beside it, and whatever part of the block each of them sees.
 *
 * Keys and values that no row sees are NaN, and sometimes one that some rows see: those rows
 * become NaN, the others must not. So are their scales, where they have some. */
#include "attn_ahead_lines.h"
#include "below.h"
#include "gear/amx_gear.h"
#include "test.h"

#include "attn/attn_amx.h"
#include "attn/attn_wide.h"
#include "base/bf16.h"

#include <math.h>

enum { MOST_GROUPS = 5, MOST_DIM = 160, MOST_ROWS = MOST_GROUPS * ATTN_LANES };
enum { CAUSAL, WINDOW }; /* a third kind: each row as it likes */

/* A block of keys and values, and rows that have gone through some blocks before. */
typedef struct world {
    radix_attention layer;
    uint32_t groups, v_dim;
    uint16_t k[ATTN_BLOCK * MOST_DIM], v[ATTN_BLOCK * MOST_DIM];
    rad_slot slots[ATTN_BLOCK];
    attn_rows_at keys, values;
    bool scaled; /* keys and values, each with a scale (attn_codes.h) */
    _Alignas(64) float key_scales[ATTN_BLOCK];
    _Alignas(64) float value_scales[ATTN_BLOCK];
    float q[MOST_ROWS][MOST_DIM];
    int32_t begin[MOST_ROWS], end[MOST_ROWS];
    float max[MOST_ROWS], sum[MOST_ROWS], total[MOST_ROWS][MOST_DIM];
    attn_ahead none;
} world;

static float random_float(float size, uint64_t *seed)
{
    return ((float)(test_random(seed) >> 40) * 0x1p-24f - 0.5f) * 2 * size;
}

static void random_world(world *w, bool all, uint64_t *seed)
{
    static const uint32_t dims[] = {1, 7, 16, 31, 32, 33, 64, 80, 96, 128, 160};
    uint32_t dim = dims[below(seed, RAD_COUNT(dims))], low = ATTN_BLOCK, high = 0;
    uint32_t kind = below(seed, 3), edge = below(seed, ATTN_BLOCK);
    memset(w, 0, sizeof *w);
    if (all && below(seed, 2)) dim = 64 << below(seed, 2); /* done in parts */
    w->v_dim = below(seed, 2) ? dim : dims[below(seed, RAD_COUNT(dims))];
    w->layer = (radix_attention){
        .num_heads = 1, .num_kv_heads = 1, .head_dim = dim, .v_head_dim = w->v_dim};
    w->layer.scaling = 1 / sqrtf((float)dim);
    if (!all && below(seed, 3) == 0) w->layer.logit_cap = 5;
    w->groups = 1 + below(seed, all ? MOST_GROUPS : ATTN_WIDE_TILE);
    for (uint32_t r = 0; r < w->groups * ATTN_LANES; r++) {
        uint32_t a = below(seed, ATTN_BLOCK + 1), b = below(seed, ATTN_BLOCK + 1);
        uint32_t near = edge + below(seed, 12);
        near = RAD_MIN(near, ATTN_BLOCK);
        if (kind == CAUSAL) a = 0, b = near;
        if (kind == WINDOW) a = near, b = ATTN_BLOCK;
        if (all || (r == 0 && a == b)) a = 0, b = ATTN_BLOCK;
        w->begin[r] = (int32_t)RAD_MIN(a, b);
        w->end[r] = (int32_t)RAD_MAX(a, b);
        if (w->begin[r] < w->end[r]) {
            low = RAD_MIN(low, (uint32_t)w->begin[r]);
            high = RAD_MAX(high, (uint32_t)w->end[r]);
        }
        bool fresh = below(seed, 3) == 0;
        w->max[r] = fresh ? -INFINITY : random_float(30, seed);
        w->sum[r] = fresh ? 0 : 1 + random_float(1, seed);
        for (uint32_t d = 0; d < MOST_DIM; d++) {
            w->q[r][d] = random_float(8, seed);
            w->total[r][d] = fresh ? 0 : random_float(2, seed);
        }
    }
    uint32_t odd_one = all ? ATTN_BLOCK : below(seed, 2 * ATTN_BLOCK);
    w->scaled = below(seed, 3) == 0;
    for (uint32_t j = 0; j < ATTN_BLOCK; j++) {
        bool seen = j >= low && j < high && j != odd_one;
        w->slots[j] = (rad_slot)(j * 37 % ATTN_BLOCK);
        w->key_scales[j] = seen ? random_float(2, seed) : NAN;
        w->value_scales[j] = seen ? random_float(2, seed) : NAN;
        for (uint32_t d = 0; d < MOST_DIM; d++) {
            size_t at = (size_t)w->slots[j] * MOST_DIM + d;
            w->k[at] = bf16_from_f32(seen ? random_float(2, seed) : NAN);
            w->v[at] = bf16_from_f32(seen ? random_float(2, seed) : NAN);
        }
    }
    w->keys = (attn_rows_at){(const char *)w->k, w->slots, MOST_DIM * 2};
    w->values = (attn_rows_at){(const char *)w->v, w->slots, MOST_DIM * 2};
    w->none.left = UINT32_MAX;
}

/* What the narrow layout makes of row `r` alone. */
static void narrow_row(const attn_kernels *k, world *w, uint32_t r, float *max, float *sum,
                       float *total)
{
    static _Alignas(64) float keys[ATTN_BLOCK * MOST_DIM], values[ATTN_BLOCK * MOST_DIM];
    static _Alignas(64) float q[MOST_DIM], part[MOST_DIM];
    float maxs[ATTN_FOLD_ROWS] = {w->max[r]}, sums[ATTN_FOLD_ROWS] = {w->sum[r]};
    float scale[ATTN_FOLD_ROWS], block_scale[ATTN_FOLD_ROWS];
    *max = w->max[r];
    *sum = w->sum[r];
    memcpy(total, w->total[r], w->v_dim * sizeof *total);
    if (w->begin[r] == w->end[r]) return;
    k->prepare_q(&w->layer, w->q[r], q);
    k->load_keys(&w->keys, w->layer.head_dim, keys, &w->none);
    k->load_values(&w->values, w->v_dim, values, &w->none);
    attn_tile tile = {.rows = 1,
                      .dim = w->layer.head_dim,
                      .v_dim = w->v_dim,
                      .q = {q},
                      .begin = {(uint32_t)w->begin[r]},
                      .end = {(uint32_t)w->end[r]},
                      .keys = keys,
                      .values = values,
                      .scaling = w->layer.scaling,
                      .logit_cap = w->layer.logit_cap,
                      .key_scales = {w->scaled ? w->key_scales : NULL},
                      .value_scales = {w->scaled ? w->value_scales : NULL},
                      .part = part,
                      .part_ld = MOST_DIM};
    k->attend(&tile);
    memset(tile.max + 1, 0, sizeof tile.max - sizeof *tile.max);
    memset(tile.sum + 1, 0, sizeof tile.sum - sizeof *tile.sum);
    k->fold(maxs, sums, tile.max, tile.sum, scale, block_scale);
    k->merge(w->v_dim, total, scale[0], part, block_scale[0]);
    *max = maxs[0];
    *sum = sums[0];
}

/* Tiles in parts where the kernels do that, each other's scores made on the way. */
static void wide_tiles(const attn_wide_kernels *k, const attn_wide_tile *tile, uint32_t count)
{
    static attn_wide_work work;
    const attn_wide_tile *open = NULL;
    for (uint32_t i = 0; i <= count; i++) {
        bool parts = i < count && k->in_parts && k->in_parts(&tile[i]);
        if (open)
            k->finish(open, parts ? &tile[i] : NULL, &work);
        else if (parts)
            k->scores(&tile[i], &work);
        open = parts ? &tile[i] : NULL;
        if (!parts && i < count) k->attend(&tile[i]);
    }
}

/* A block that tiles load on their way lies as if it had been loaded at once. */
static void check_loaded(const attn_wide_kernels *k, const world *w, attn_wide_ahead *ahead,
                         const uint16_t *keys, const uint32_t *values)
{
    const uint32_t dim = w->layer.head_dim;
    if (!ahead->keys) return;
    k->load_ahead(ahead, dim, w->v_dim);
    CHECK(ahead->next >= ATTN_BLOCK + ahead->lag);
    CHECK(memcmp(ahead->keys, keys, ATTN_BLOCK * ((dim + 31u) & ~31u) * sizeof *keys) == 0);
    CHECK(memcmp(ahead->values, values,
                 ATTN_BLOCK / 2 * ((w->v_dim + 15u) & ~15u) * sizeof *values) == 0);
}

/* All rows in the wide layout, in place. */
static void wide_rows(const attn_wide_kernels *k, world *w, bool all)
{
    static _Alignas(64) uint32_t q[MOST_ROWS * MOST_DIM / 2];
    static _Alignas(64) uint16_t keys[ATTN_BLOCK * MOST_DIM];
    static _Alignas(64) uint32_t values[ATTN_BLOCK / 2 * MOST_DIM];
    static _Alignas(64) float total[MOST_ROWS * MOST_DIM], max[MOST_ROWS], sum[MOST_ROWS];
    static _Alignas(64) int32_t begin[MOST_ROWS], end[MOST_ROWS];
    size_t q_words = (size_t)attn_wide_q_pairs(w->layer.head_dim) * ATTN_LANES;
    size_t total_floats = (size_t)(w->v_dim + 15) / 16 * 16 * ATTN_LANES;
    static uint16_t _Alignas(64) keys_ahead[ATTN_BLOCK * MOST_DIM];
    static uint32_t _Alignas(64) values_ahead[ATTN_BLOCK / 2 * MOST_DIM];
    attn_wide_tile tile[MOST_GROUPS];
    uint32_t tiles = 0;
    /* The same block again, to elsewhere. */
    attn_wide_ahead ahead = {.rows = {w->keys, w->values},
                             .lines = {1, 2},
                             .step = 2 + 2 * (w->layer.head_dim % 3 + w->groups % 2)};
    ahead.lag = ahead.step * (w->groups % 4);
    if (k->load_ahead) ahead.keys = keys_ahead, ahead.values = values_ahead;
    memset(keys_ahead, 0xa5, sizeof keys_ahead);
    memset(values_ahead, 0xa5, sizeof values_ahead);
    for (uint32_t g = 0; g < w->groups; g++) {
        const float *q_rows[ATTN_LANES];
        float *rows[ATTN_LANES];
        for (uint32_t i = 0; i < ATTN_LANES; i++) {
            q_rows[i] = w->q[g * ATTN_LANES + i];
            rows[i] = w->total[g * ATTN_LANES + i];
        }
        k->pack_q(&w->layer, q_rows, q + g * q_words);
        k->load_rows(w->v_dim, (const float *const *)rows, total + g * total_floats);
    }
    k->load_keys(&w->keys, w->layer.head_dim, keys);
    k->load_values(&w->values, w->v_dim, values, &w->none);
    memcpy(max, w->max, sizeof max);
    memcpy(sum, w->sum, sizeof sum);
    memcpy(begin, w->begin, sizeof begin);
    memcpy(end, w->end, sizeof end);
    for (uint32_t g = 0; g < w->groups; g += ATTN_WIDE_TILE)
        tile[tiles++] = (attn_wide_tile){.groups = RAD_MIN(w->groups - g, ATTN_WIDE_TILE),
                                         .dim = w->layer.head_dim,
                                         .v_dim = w->v_dim,
                                         .q = q + g * q_words,
                                         .keys = keys,
                                         .values = values,
                                         .all = all,
                                         .begin = begin + g * ATTN_LANES,
                                         .end = end + g * ATTN_LANES,
                                         .logit_cap = w->layer.logit_cap,
                                         .key_scales = w->scaled ? w->key_scales : NULL,
                                         .value_scales = w->scaled ? w->value_scales : NULL,
                                         .max = max + g * ATTN_LANES,
                                         .sum = sum + g * ATTN_LANES,
                                         .total = total + g * total_floats,
                                         .ahead = &ahead};
    wide_tiles(k, tile, tiles);
    check_loaded(k, w, &ahead, keys, values);
    memcpy(w->max, max, sizeof max);
    memcpy(w->sum, sum, sizeof sum);
    for (uint32_t g = 0; g < w->groups; g++) {
        float *rows[ATTN_LANES];
        for (uint32_t i = 0; i < ATTN_LANES; i++)
            rows[i] = w->total[g * ATTN_LANES + i];
        k->store_rows(w->v_dim, total + g * total_floats, NULL, rows);
    }
}

static bool same(const float *a, const float *b, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]))) return false;
    return true;
}

static void compare_layouts(const attn_kernels *k, uint64_t rounds)
{
    static world w;
    static float max[MOST_ROWS], sum[MOST_ROWS], total[MOST_ROWS][MOST_DIM];
    uint64_t seed = test_told_seed();
    for (uint64_t round = 0; round < rounds; round++) {
        bool all = round % 3 == 0;
        random_world(&w, all, &seed);
        uint32_t rows = w.groups * ATTN_LANES;
        for (uint32_t r = 0; r < rows; r++)
            narrow_row(k, &w, r, &max[r], &sum[r], total[r]);
        wide_rows(k->wide, &w, all);
        for (uint32_t r = 0; r < rows; r++)
            CHECKF((isnan(sum[r]) || same(&max[r], &w.max[r], 1)) && same(&sum[r], &w.sum[r], 1) &&
                       same(total[r], w.total[r], w.v_dim),
                   "round %llu, row %u of %u sees %d..%d: sum %a, not %a\n",
                   (unsigned long long)round, r, rows, w.begin[r], w.end[r], w.sum[r], sum[r]);
    }
}

TEST(a_row_has_the_bits_of_the_narrow_layout)
{
    if (gear_attn_cpu("avx512bf16"))
        compare_layouts(&attn_pairs_avx512bf16, test_scale(300, 20000));
    else
        print_message("this CPU lacks avx512bf16\n");
}

TEST(so_it_has_by_tiles)
{
    if (gear_attn_cpu("amx-emulated")) compare_layouts(&attn_tiles_emulated, test_scale(100, 5000));
    if (gear_attn_cpu("amx")) compare_layouts(&attn_tiles_amx, test_scale(300, 20000));
}

/* Rows go to the lanes and back, divided or not; places without a row are left alone. */
TEST(rows_come_back_from_the_lanes)
{
    static _Alignas(64) float total[MOST_DIM * ATTN_LANES], sum[ATTN_LANES];
    static float in[ATTN_LANES][MOST_DIM], out[ATTN_LANES][MOST_DIM];
    const attn_wide_kernels *k = attn_pairs_avx512bf16.wide;
    uint64_t seed = 7;
    if (!gear_attn_cpu("avx512bf16")) return;
    for (uint32_t v_dim = 1; v_dim <= 130; v_dim += 3) {
        const float *from[ATTN_LANES] = {NULL};
        float *to[ATTN_LANES] = {NULL};
        for (uint32_t i = 0; i < ATTN_LANES; i++) {
            sum[i] = 3 + (float)i;
            if (i % 5) from[i] = in[i], to[i] = out[i];
            for (uint32_t d = 0; d < MOST_DIM; d++)
                in[i][d] = random_float(2, &seed), out[i][d] = 99;
        }
        k->load_rows(v_dim, from, total);
        k->store_rows(v_dim, total, v_dim % 2 ? sum : NULL, to);
        for (uint32_t i = 0; i < ATTN_LANES; i++)
            for (uint32_t d = 0; d < MOST_DIM; d++) {
                float want = v_dim % 2 ? in[i][d] / sum[i] : in[i][d];
                CHECK(out[i][d] == (i % 5 && d < v_dim ? want : 99));
            }
    }
}

/* Every line of what comes next once, in whatever portions it is asked for. */
TEST(all_lines_ahead_are_counted_and_fetched_once)
{
    uint64_t seed = 3;
    rad_slot slots[ATTN_BLOCK];
    for (int i = 0; i < ATTN_BLOCK; i++)
        slots[i] = i;
    for (uint32_t round = 0; round < 200; round++) {
        attn_ahead a = {.count = 1 + below(&seed, ATTN_BLOCK),
                        .sides = 1 + round % 2,
                        .slots = slots,
                        .bytes = {1 + below(&seed, 300), 1 + below(&seed, 300)}};
        uint32_t want = a.count * attn_lines_of(a.bytes[0]), got = 0;
        if (a.sides == 2) want += a.count * attn_lines_of(a.bytes[1]);
        attn_ahead_row(&a);
        while (a.step) {
            uint32_t left = attn_ahead_lines(&a), some = 1 + below(&seed, 9);
            CHECKF(left == want - got, "%u lines left, not %u\n", left, want - got);
            attn_ahead_fetch(&a, some);
            got += RAD_MIN(some, left);
        }
        CHECK(got == want && attn_ahead_lines(&a) == 0);
        attn_ahead_fetch(&a, 1000);
        CHECK(a.step == 0);
    }
}

TEST_MAIN()
