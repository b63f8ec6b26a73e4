/* amx_peak.h - TDPBF16PS and TDPBSSD on registers alone, for instruction_peak.h. */
#ifndef BENCH_AMX_PEAK_H
#define BENCH_AMX_PEAK_H

#include "base/amx_tiles.h"

enum { AMX_PEAK_ROUNDS = 500, AMX_PEAK_OPS = AMX_PEAK_ROUNDS * 4 * 2 * 16 * 16 * 32 };

#if defined(__x86_64__)
/* Four sums from two tiles by two, as the kernel does it. */
static inline void amx_peak(void *arg, uint32_t tile, uint32_t thread)
{
    (void)arg, (void)tile, (void)thread;
    amx_config c = {.palette = 1};
    for (int t = 0; t < AMX_TILES; t++)
        c.rows[t] = AMX_ROWS, c.row_bytes[t] = AMX_ROW_BYTES;
    AMX_CONFIGURE(&c);
    for (int i = 0; i < AMX_PEAK_ROUNDS; i++) {
        AMX_DP(0, 4, 6);
        AMX_DP(1, 4, 7);
        AMX_DP(2, 5, 6);
        AMX_DP(3, 5, 7);
    }
    AMX_RELEASE();
}

/* As many operations: of the weight 8 rows are used, since q8_0 has a scale for every 32 k. */
static inline void amx_peak_int8(void *arg, uint32_t tile, uint32_t thread)
{
    (void)arg, (void)tile, (void)thread;
    amx_config c = {.palette = 1};
    for (int t = 0; t < AMX_TILES; t++) {
        c.rows[t] = t < 6 ? AMX_ROWS : 8;
        c.row_bytes[t] = t == 4 || t == 5 ? 32 : AMX_ROW_BYTES;
    }
    AMX_CONFIGURE(&c);
    for (int i = 0; i < AMX_PEAK_ROUNDS; i++) {
        AMX_DP_INT8(0, 4, 6);
        AMX_DP_INT8(1, 4, 7);
        AMX_DP_INT8(2, 5, 6);
        AMX_DP_INT8(3, 5, 7);
    }
    AMX_RELEASE();
}
#endif

#endif
