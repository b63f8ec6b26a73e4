/* attn_amx_check.c - what attention by AMX must compute like the emulated kernel: first
 * products, of all shapes that attention asks for and of numbers that reach every rule of the
 * arithmetic; then one block of attention in either layout, each row with its own edge. */
#include "attn/attn_wide.h"
#include "base/amx.h"
#include "base/mix64.h"
#include "gear/amx_check.h"
#include "gear/amx_gear.h"

#include <math.h>

enum {
    STEPS = 3,
    DEPTH = STEPS * AMX_ROWS, /* pairs */
    MOST = 2 * AMX_ROWS,      /* rows, columns */
    DIM = 71,                 /* no whole steps, no whole pairs */
    V_DIM = 37,               /* two tiles and one */
    DIM_ROOM = 96,
    V_ROOM = 48,
    ROWS = ATTN_WIDE_TILE * ATTN_LANES
};

static bool products_agree(attn_amx_multiply *multiply, uint32_t rows, uint32_t tiles)
{
    uint32_t a[MOST][DEPTH], b[DEPTH][MOST];
    float c[2][MOST][MOST];
    attn_amx_multiply *by[2] = {multiply, attn_amx_multiply_emulated};
    for (uint32_t i = 0; i < MOST; i++)
        for (uint32_t k = 0; k < DEPTH; k++) {
            a[i][k] = amx_check_pair(true, i, k);
            b[k][i] = amx_check_pair(false, i, k);
        }
    memset(c, 0, sizeof c);
    for (int i = 0; i < 2; i++)
        by[i](&(attn_amx_product){.rows = rows,
                                  .tiles = tiles,
                                  .steps = STEPS,
                                  .a = a,
                                  .a_pitch = sizeof a[0],
                                  .b = b,
                                  .b_pitch = sizeof b[0],
                                  .b_next = AMX_ROW_BYTES,
                                  .c = c[i][0],
                                  .c_pitch = sizeof c[i][0]});
    return memcmp(c[0], c[1], sizeof c[0]) == 0;
}

/* A block and the rows that attend to it. */
typedef struct check {
    radix_attention layer;
    uint16_t k[ATTN_BLOCK][DIM], v[ATTN_BLOCK][V_DIM];
    rad_slot slots[ATTN_BLOCK];
    float q[ROWS][DIM];
    int32_t begin[ROWS], end[ROWS];
    attn_ahead none;
} check;

/* What becomes of it; all that is compared. */
typedef struct check_result {
    _Alignas(64) float total[ROWS * V_ROOM];
    _Alignas(64) float max[ROWS];
    _Alignas(64) float sum[ROWS];
} check_result;

static float check_number(uint32_t which, uint32_t i, uint32_t j)
{
    int64_t bits = (int64_t)mix64((uint64_t)which << 40 | (uint64_t)i << 20 | j);
    return (float)(bits >> 40) * 0x1p-22f;
}

static void make_check(check *c, bool edges)
{
    memset(c, 0, sizeof *c);
    c->layer = (radix_attention){.num_heads = 1,
                                 .num_kv_heads = 1,
                                 .head_dim = DIM,
                                 .v_head_dim = V_DIM,
                                 .scaling = 0.125f,
                                 .logit_cap = edges ? 5 : 0};
    for (uint32_t j = 0; j < ATTN_BLOCK; j++) {
        c->slots[j] = (rad_slot)(j * 37 % ATTN_BLOCK);
        for (uint32_t d = 0; d < DIM; d++)
            c->k[j][d] = bf16_from_f32(check_number(0, j, d));
        for (uint32_t d = 0; d < V_DIM; d++)
            c->v[j][d] = bf16_from_f32(check_number(1, j, d));
    }
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t d = 0; d < DIM; d++)
            c->q[r][d] = check_number(2, r, d);
        c->begin[r] = edges ? (int32_t)(r % 5) : 0;
        c->end[r] = edges ? (int32_t)(ATTN_BLOCK - r) : ATTN_BLOCK;
    }
    c->none.left = UINT32_MAX;
}

static attn_rows_at rows_at(const check *c, bool values)
{
    if (values) return (attn_rows_at){(const char *)c->v, c->slots, sizeof c->v[0]};
    return (attn_rows_at){(const char *)c->k, c->slots, sizeof c->k[0]};
}

static void run_narrow(const attn_kernels *kernels, check *c, uint32_t rows, check_result *to)
{
    _Alignas(64) float q[ATTN_TILE_ROWS][DIM_ROOM], keys[DIM_ROOM * ATTN_BLOCK];
    _Alignas(64) float values[V_ROOM * ATTN_BLOCK];
    attn_rows_at k = rows_at(c, false), v = rows_at(c, true);
    kernels->load_keys(&k, DIM, keys, &c->none);
    kernels->load_values(&v, V_DIM, values, &c->none);
    attn_tile t = {.rows = rows,
                   .dim = DIM,
                   .v_dim = V_DIM,
                   .keys = keys,
                   .values = values,
                   .scaling = c->layer.scaling,
                   .logit_cap = c->layer.logit_cap,
                   .part = to->total,
                   .part_ld = V_ROOM};
    for (uint32_t r = 0; r < rows; r++) {
        kernels->prepare_q(&c->layer, c->q[r], q[r]);
        t.q[r] = q[r];
        t.begin[r] = (uint32_t)c->begin[r];
        t.end[r] = (uint32_t)c->end[r];
    }
    kernels->attend(&t);
    memcpy(to->max, t.max, rows * sizeof *t.max);
    memcpy(to->sum, t.sum, rows * sizeof *t.sum);
}

static void run_wide(const attn_wide_kernels *kernels, check *c, uint32_t groups, bool all,
                     check_result *to)
{
    _Alignas(64) uint32_t q[ATTN_WIDE_TILE * DIM_ROOM / 2 * ATTN_LANES];
    _Alignas(64) uint32_t values[V_ROOM * ATTN_BLOCK / 2];
    _Alignas(64) uint16_t keys[ATTN_BLOCK * DIM_ROOM];
    _Alignas(64) int32_t begin[ROWS], end[ROWS];
    attn_rows_at k = rows_at(c, false), v = rows_at(c, true);
    attn_wide_ahead nothing = {.next = ATTN_BLOCK};
    kernels->load_keys(&k, DIM, keys);
    kernels->load_values(&v, V_DIM, values, &c->none);
    memcpy(begin, c->begin, sizeof begin);
    memcpy(end, c->end, sizeof end);
    for (uint32_t r = 0; r < ROWS; r++)
        to->max[r] = -INFINITY;
    for (uint32_t g = 0; g < groups; g++) {
        const float *rows[ATTN_LANES];
        for (uint32_t i = 0; i < ATTN_LANES; i++)
            rows[i] = c->q[g * ATTN_LANES + i];
        kernels->pack_q(&c->layer, rows, q + g * attn_wide_q_pairs(DIM) * ATTN_LANES);
    }
    kernels->attend(&(attn_wide_tile){.groups = groups,
                                      .dim = DIM,
                                      .v_dim = V_DIM,
                                      .q = q,
                                      .keys = keys,
                                      .values = values,
                                      .all = all,
                                      .begin = begin,
                                      .end = end,
                                      .logit_cap = c->layer.logit_cap,
                                      .max = to->max,
                                      .sum = to->sum,
                                      .total = to->total,
                                      .ahead = &nothing});
}

static bool layouts_agree(const attn_kernels *kernels, bool edges)
{
    const attn_kernels *by[2] = {kernels, &attn_tiles_emulated};
    check c;
    make_check(&c, edges);
    for (uint32_t rows = 1; rows <= ATTN_TILE_ROWS; rows += ATTN_TILE_ROWS - 1) {
        check_result result[2] = {{{0}, {0}, {0}}};
        for (int i = 0; i < 2; i++)
            run_narrow(by[i], &c, rows, &result[i]);
        if (memcmp(&result[0], &result[1], sizeof result[0]) != 0) return false;
    }
    for (uint32_t groups = 1; groups <= ATTN_WIDE_TILE; groups++) {
        check_result result[2] = {{{0}, {0}, {0}}};
        for (int i = 0; i < 2; i++)
            run_wide(by[i]->wide, &c, groups, !edges, &result[i]);
        if (memcmp(&result[0], &result[1], sizeof result[0]) != 0) return false;
    }
    return true;
}

bool attn_amx_agrees(attn_amx_multiply *multiply, const attn_kernels *kernels)
{
    for (uint32_t tiles = 1; tiles <= 2; tiles++) {
        for (uint32_t rows = 1; rows <= ATTN_TILE_ROWS; rows++)
            if (!products_agree(multiply, rows, tiles)) return false;
        if (!products_agree(multiply, AMX_ROWS, tiles)) return false;
        if (!products_agree(multiply, 2 * AMX_ROWS, tiles)) return false;
    }
    return layouts_agree(kernels, false) && layouts_agree(kernels, true);
}
