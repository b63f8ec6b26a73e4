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

/* The sides of a unit when each has up to `rows` rows (0: not even one fits). What is
 * fetched for a block must find room in the L2 cache. */
uint32_t attn_unit_sides(const attn_call *call, uint32_t rows);

/* Makes `block` what will be read next, the unit's sides of its rows: `slots` of them, and
 * where their lines are. */
void attn_look_ahead(const attn_call *call, const attn_unit *u, uint32_t block, rad_slot *slots,
                     attn_ahead *ahead);

/* Slots are read a block at a time, too seldom to be in the cache: these will be soon. */
void attn_fetch_slots(const attn_unit *u, uint32_t block);

/* scaled: asks for the scales of slots [begin, end), of the unit's KV heads: a line or two of a
 * token, for which a walk from row to row would be most of the work. */
void attn_fetch_scales(const attn_call *call, const attn_unit *u, const rad_slot *slots,
                       uint32_t begin, uint32_t end);

/* The walks of a region's threads, when each takes neighbouring units (compute_pool_run_near);
 * of further threads nothing is known. */
enum { ATTN_MOST_WALKS = 64 };
typedef struct attn_walks {
    uint32_t num_units, num_threads;
    attn_walk of[ATTN_MOST_WALKS];
} attn_walks;

static inline void attn_walks_begin(attn_walks *w, uint32_t num_units, uint32_t num_threads)
{
    w->num_units = num_units;
    w->num_threads = num_threads;
    for (uint32_t i = 0; i < RAD_MIN(num_threads, ATTN_MOST_WALKS); i++)
        w->of[i].ready = false;
}

/* The walk with which a thread comes to unit `index`, `alone` where it has none. *next is the
 * unit that it will take then, unless another thread does first and it was fetched for
 * nothing; num_units: none. */
static inline attn_walk *attn_walk_at(attn_walks *w, uint32_t index, uint32_t thread,
                                      attn_walk *alone, uint32_t *next)
{
    *next = w->num_units;
    alone->ready = false;
    if (thread >= ATTN_MOST_WALKS) return alone;
    attn_walk *walk = &w->of[thread];
    walk->ready = walk->ready && walk->unit == index;
    walk->unit = index + 1;
    if (walk->unit < compute_pool_near(w->num_units, w->num_threads, thread + 1))
        *next = walk->unit;
    return walk;
}

/* A row of q, prepared to `q`, and what the row has so far: nothing, or what the units before
 * left. Not that where blocks are stored one by one. */
void attn_open_row(const attn_call *call, const attn_unit *u, size_t line, void *q, float *max,
                   float *sum);

/* Makes `out` the row's result, or leaves what it has so far to the units that come; nothing
 * to be called for where blocks are stored one by one. */
float attn_sum_with_sink(const attn_call *call, size_t line, float max, float sum);
void attn_close_row(const attn_call *call, const attn_unit *u, size_t line, float max, float sum);

/* A block's result for a row, v_dim numbers at `part`: merged later. */
void attn_store_partial(const attn_call *call, const attn_unit *u, size_t line, uint32_t block,
                        float max, float sum, const float *part);

/* Units of many rows, where the kernels have a wide layout and the rows fit its workspace. */
bool attn_wide_takes(const attn_call *call, const attn_unit *u);
void attn_wide_run(const attn_call *call, const attn_unit *u);

/* Units of one token, where the kernels have strips and its rows fit their workspace. */
bool attn_strip_takes(const attn_call *call, const attn_unit *u);
void attn_strip_run(const attn_call *call, const attn_unit *u, const attn_unit *next);

/* A batch of few rows, its blocks spread over threads wave by wave. False when that is not
 * worth it, or when there are too many rows for the memory: then nothing was done. */
bool attn_forward_waves(attn_call *call, compute_pool *pool);

#endif
