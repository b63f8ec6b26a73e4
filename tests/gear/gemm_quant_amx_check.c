/* gemm_quant_amx_check.c - small products of all types by tiles of integers, at heights and
 * widths that reach every line of the kernel, against the plain kernels. Integers are exact, so
 * what could be wrong is which bytes meet, their signs, and what of a tile is used. */
#include "base/mix64.h"
#include "gear/amx_gear.h"

enum {
    MOST_ROWS = 2 * GEMM_AMX_INT8_ROWS + 1, /* three tiles, one taller */
    STEPS = 17,                             /* of 32 k: a chunk, and one more */
    K_STEPS = 3,                            /* of 256 */
    X_BLOCKS = K_STEPS * GEMM_K_GROUPS
};

/* One type's panel and the rows that meet it. */
typedef struct check {
    gemm_type type;
    uint32_t depth;
    gemm_xblock x[MOST_ROWS][X_BLOCKS];
    union {
        gemm_q8_0_step q8_0[STEPS];
        gemm_q4_0_step q4_0[STEPS];
        gemm_q4_k_step q4_k[K_STEPS];
        uint8_t bytes[STEPS * sizeof(gemm_q8_0_step)];
    } panel;
} check;

/* Between 2^-5 and 2: sums stay finite. */
static void set_scales(uint16_t d[GEMM_PANEL], uint32_t step)
{
    for (uint32_t n = 0; n < GEMM_PANEL; n++)
        d[n] = (uint16_t)(0x2800 + mix64((uint64_t)step << 8 | n) % 0x1800);
}

/* The largest of either sign. */
static void set_extremes(gemm_q8_0_step *step, uint32_t s)
{
    for (uint32_t g = 0; g < 8; g++)
        for (uint32_t n = 3; n < GEMM_PANEL; n += 4)
            step->q[g][n] = (uint32_t)(mix64((uint64_t)s << 16 | g << 8 | n) >> 5 & 0x01010101) *
                            255;
}

/* Any bytes; every fourth row of x and column of q8_0 has the largest ones. */
static void make_check(check *c, gemm_type type)
{
    c->type = type;
    c->depth = type == GEMM_Q4_K ? K_STEPS : STEPS;
    for (uint32_t i = 0; i < sizeof c->panel; i++)
        c->panel.bytes[i] = (uint8_t)(mix64(i) >> 17);
    for (uint32_t s = 0; s < c->depth; s++) {
        if (type == GEMM_Q8_0) {
            set_scales(c->panel.q8_0[s].d, s);
            set_extremes(&c->panel.q8_0[s], s);
        }
        if (type == GEMM_Q4_0) set_scales(c->panel.q4_0[s].d, s);
        if (type != GEMM_Q4_K) continue;
        set_scales(c->panel.q4_k[s].d, s);
        set_scales(c->panel.q4_k[s].dmin, s + STEPS);
    }
    for (uint32_t r = 0; r < MOST_ROWS; r++)
        for (uint32_t b = 0; b < X_BLOCKS; b++) {
            gemm_xblock *x = &c->x[r][b];
            int32_t half[2] = {0, 0};
            for (uint32_t i = 0; i < GEMM_XBLOCK; i++) {
                uint64_t bits = mix64((uint64_t)r << 32 | b << 8 | i);
                x->q[i] = (int8_t)(r % 4 < 3  ? (int)(bits >> 40 & 255) - 128
                                   : bits & 1 ? 127
                                              : -128);
                half[i / (GEMM_XBLOCK / 2)] += x->q[i];
            }
            x->d = (float)(1 + (r * 7 + b * 3) % 11) * 0.03f;
            gemm_finish_block(x, half[0], half[1]);
        }
}

static gemm_kernel *judge_of(gemm_type type)
{
    return type == GEMM_Q8_0   ? gemm_quant_scalar.q8_0
           : type == GEMM_Q4_0 ? gemm_quant_scalar.q4_0
                               : gemm_quant_scalar.q4_k;
}

/* The last columns belong to somebody else and stay. */
static bool agree(gemm_quant_block *block, const check *c, uint32_t rows, uint32_t columns)
{
    float sums[2][MOST_ROWS][GEMM_PANEL];
    gemm_tile t = {.rows = rows,
                   .depth = c->depth,
                   .x = c->x,
                   .ldx = X_BLOCKS,
                   .w = &c->panel,
                   .ldc = GEMM_PANEL,
                   .ahead = (const char *)&c->panel,
                   .fresh = rows % 2};
    for (uint32_t r = 0; r < MOST_ROWS; r++)
        for (uint32_t n = 0; n < GEMM_PANEL; n++)
            sums[0][r][n] = sums[1][r][n] = (float)r - (float)n * 0.25f;
    t.c = sums[0][0];
    judge_of(c->type)(&t);
    t.c = sums[1][0];
    block(c->type, &t, columns);
    for (uint32_t r = 0; r < MOST_ROWS; r++)
        for (uint32_t n = 0; n < GEMM_PANEL; n++) {
            if (r < rows && n >= columns) sums[0][r][n] = (float)r - (float)n * 0.25f;
            if (memcmp(&sums[0][r][n], &sums[1][r][n], sizeof(float)) != 0) return false;
        }
    return true;
}

bool gemm_amx_int8_agrees(gemm_quant_block *block)
{
    static const struct {
        gemm_type type;
        uint32_t rows, columns;
    } products[] = {{GEMM_Q8_0, MOST_ROWS, GEMM_PANEL},
                    {GEMM_Q8_0, 1, GEMM_PANEL - 11},
                    {GEMM_Q4_0, GEMM_AMX_INT8_ROWS + 2, 20},
                    {GEMM_Q4_K, GEMM_AMX_INT8_ROWS + 3, GEMM_PANEL}};
    for (size_t i = 0; i < RAD_COUNT(products); i++) {
        check c;
        make_check(&c, products[i].type);
        if (!agree(block, &c, products[i].rows, products[i].columns)) return false;
    }
    return true;
}
