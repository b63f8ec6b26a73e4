/* gemm_amx_check.c - the proof that AMX has to give before a process relies on it.
 *
 * Few of the machines that this is built on have AMX. So a process first multiplies a
 * small matrix: rows, columns and depth that reach every line of the kernel, numbers
 * that reach every rule of the arithmetic. One bit beside what the same source computes
 * in C, and the instructions are not used. (Not compiled for AMX: any CPU asks.) */
#include "base/amx.h"
#include "base/mix64.h"
#include "model/gemm_kernels.h"

#include <pthread.h>

enum {
    STEP = 16, /* pairs; the panel below has two such steps and some */
    CHECK_ROWS = 37,
    CHECK_PAIRS = 2 * STEP + 5,
    CHECK_X = 3 * STEP /* whole steps, as round_row leaves them */
};

/* Rows of x and columns of w in four kinds: two ordinary ones, where a chain's order shows
 * in the last bit; denormals against large numbers; and numbers whose products lie around
 * the smallest normal one. */
static uint32_t check_pair(bool of_x, uint32_t line, uint32_t k)
{
    uint64_t bits = mix64((uint64_t)of_x << 40 | (uint64_t)line << 20 | k);
    uint32_t signs_and_fractions = (uint32_t)bits & 0x807f807f, from, spread;
    switch (line % 4) {
    case 2: from = of_x ? 0 : 187, spread = of_x ? 1 : 8; break;
    case 3: from = 62, spread = 4; break;
    default: from = 122, spread = 8; break;
    }
    uint32_t low = from + (uint32_t)(bits >> 32) % spread;
    uint32_t high = from + (uint32_t)(bits >> 48) % spread;
    return signs_and_fractions | high << 23 | low << 7;
}

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
            x[r][k] = check_pair(true, r, k);
    for (uint32_t k = 0; k < CHECK_PAIRS; k++)
        for (uint32_t n = 0; n < GEMM_PANEL; n++)
            w[k][n] = check_pair(false, n, k);
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

static bool usable;
static const char *refusal;

static void find_out(void)
{
    if (!gemm_amx.bf16_block || !amx_permitted(&refusal)) return;
    usable = gemm_amx_agrees(&gemm_amx);
    if (!usable) refusal = "a product by its instructions differs from the same in plain C";
}

bool gemm_amx_usable(const char **why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_out);
    if (why) *why = refusal;
    return usable;
}
