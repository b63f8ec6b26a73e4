/* wrong_dp.h - TDPBF16PS of a CPU that has one rule wrong, in place of amx_emulated.h's: what
 * checks the instructions has to find every one. Include it behind what multiplies right,
 * and before the body that is to multiply wrong. */
#ifndef TESTS_WRONG_DP_H
#define TESTS_WRONG_DP_H

#include "gear/amx_emulated.h"

typedef enum wrong_rule {
    NOTHING_WRONG,
    TAKES_DENORMALS,
    GIVES_DENORMALS,
    ADDS_PAIRS_IN_ONE_CHAIN,
    ADDS_TO_THE_DESTINATION_FIRST,
    GOES_DOWN_IN_K,
    FORGETS_THE_LAST_ROW,
    MIXES_UP_TWO_TILES,
    TAKES_DENORMAL_SUMS, /* the last: it does not matter to sums that begin at 0 */
    NUM_WRONG
} wrong_rule;
static wrong_rule is_wrong;

static void wrong_dp(int c, int a, int b)
{
    const amx_config *shape = &amx_thread.config;
    uint32_t columns = shape->row_bytes[c] / 4, depth = shape->rows[b], rows = shape->rows[c];
    if (is_wrong == FORGETS_THE_LAST_ROW && rows == AMX_ROWS) rows--;
    if (is_wrong == MIXES_UP_TWO_TILES && b == 7) b = 6;
    for (uint32_t m = 0; m < rows; m++)
        for (uint32_t n = 0; n < columns; n++) {
            float *to = &amx_thread.tile[c][m][n], sum[2] = {0, 0};
            float before = is_wrong == TAKES_DENORMAL_SUMS ? *to : amx_flush(*to);
            if (is_wrong == ADDS_TO_THE_DESTINATION_FIRST) sum[0] = before, before = 0;
            for (uint32_t i = 0; i < depth; i++) {
                uint32_t k = is_wrong == GOES_DOWN_IN_K ? depth - 1 - i : i;
                uint16_t x[2], w[2];
                memcpy(x, &amx_thread.tile[a][m][k], 4);
                memcpy(w, &amx_thread.tile[b][k][n], 4);
                for (int half = 0; half < 2; half++) {
                    float p = bf16_to_f32(x[half]), q = bf16_to_f32(w[half]);
                    if (is_wrong != TAKES_DENORMALS) p = amx_flush(p), q = amx_flush(q);
                    float *chain = &sum[is_wrong == ADDS_PAIRS_IN_ONE_CHAIN ? 0 : half];
                    *chain = is_wrong == GIVES_DENORMALS ? fmaf(p, q, *chain)
                                                         : amx_fma(p, q, *chain);
                }
            }
            float both = sum[0] + sum[1];
            *to = is_wrong == GIVES_DENORMALS ? before + both : amx_flush(before + amx_flush(both));
        }
}

#undef AMX_DP
#define AMX_DP(c, a, b) wrong_dp(c, a, b)

#endif
