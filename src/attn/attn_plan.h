/* attn_plan.h - what attn_cpu.c and attn_waves.c cut the work with. */
#ifndef ATTN_ATTN_PLAN_H
#define ATTN_ATTN_PLAN_H

#include "attn/attn_unit.h"

static inline uint32_t attn_div_up(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

static inline uint32_t attn_end_block(uint32_t seq_len)
{
    return attn_div_up(seq_len, ATTN_BLOCK);
}

/* The sides of a strip when each has up to `rows` rows (0: not even one fits). What is
 * fetched for a block must find room in the L2 cache. */
uint32_t attn_strip_sides(const attn_call *call, uint32_t rows);

/* Makes `block` what will be read next, the unit's sides of its rows: `slots` of them, and
 * where their lines are. */
void attn_look_ahead(const attn_call *call, const attn_unit *u, uint32_t block, rad_slot *slots,
                     attn_ahead *ahead);

/* Units of many rows, where the kernels have a wide layout and the rows fit its workspace. */
bool attn_wide_takes(const attn_call *call, const attn_unit *u);
void attn_wide_run(const attn_call *call, const attn_unit *u);

/* A batch of few rows, its blocks spread over threads wave by wave. False when that is not
 * worth it, or when there are too many rows for the memory: then nothing was done. */
bool attn_forward_waves(attn_call *call, compute_pool *pool);

#endif
