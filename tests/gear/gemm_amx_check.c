/* gemm_amx_check.c - a small matrix that a kernel for AMX multiplies like the emulated one: rows,
 * columns and depth reach every line of the kernel, numbers every rule of the arithmetic. */
#include "gear/amx_check.h"
#include "gear/amx_gear.h"

enum {
    STEP = 16, /* pairs; the panel below has two such steps and some */
    CHECK_ROWS = 37,
    CHECK_PAIRS = 2 * STEP + 5,
    CHECK_X = 3 * STEP /* whole steps, as round_row leaves them */
};

/* What the products are added to: ordinary, or denormal where they are small too. */
static float check_sum(uint32_t row, uint32_t column)
{
    float sum = (float)row - (float)column * 0.25f;
    return row % 4 < 2 ? sum : sum * 0x1p-132f;
}

static bool agree(const gemm_isa *isa, uint32_t rows, uint32_t columns)
{
    uint32_t x[CHECK_ROWS][CHECK_X] = {{0}}, w[CHECK_PAIRS][GEMM_PANEL];
    float sums[2][CHECK_ROWS][GEMM_PANEL];
    for (uint32_t r = 0; r < CHECK_ROWS; r++)
        for (uint32_t k = 0; k < CHECK_PAIRS; k++)
            x[r][k] = amx_check_pair(true, r, k);
    for (uint32_t k = 0; k < CHECK_PAIRS; k++)
        for (uint32_t n = 0; n < GEMM_PANEL; n++)
            w[k][n] = amx_check_pair(false, n, k);
    const gemm_isa *isas[2] = {isa, &gemm_amx_emulated};
    for (int i = 0; i < 2; i++) {
        for (uint32_t r = 0; r < CHECK_ROWS; r++)
            for (uint32_t n = 0; n < GEMM_PANEL; n++)
                sums[i][r][n] = check_sum(r, n);
        gemm_tile t = {.rows = rows,
                       .depth = CHECK_PAIRS,
                       .x = x,
                       .ldx = CHECK_X,
                       .w = w,
                       .c = sums[i][0],
                       .ldc = GEMM_PANEL,
                       .ahead = (const char *)w,
                       .fresh = rows % 2};
        isas[i]->bf16_block(&t, columns);
    }
    return memcmp(sums[0], sums[1], sizeof sums[0]) == 0;
}

bool gemm_amx_agrees(const gemm_isa *isa)
{
    return agree(isa, CHECK_ROWS, GEMM_PANEL) && agree(isa, STEP + 4, GEMM_PANEL - 11) &&
           agree(isa, 1, GEMM_PANEL);
}
