/* bench_bound.h - the least time that a forward pass can take on this machine, by rates that
 * are measured beside it. No step of the engine is looked at: what one costs as it is, measured or
 * learned, is in workload/step_price.h and sched/step_cost.h.
 *
 *     bound = max(weight bytes / read rate of a buffer of that size, FLOP / products' rate at M)
 *             + K/V bytes / read rate of a buffer of that size
 *
 * M is the step's tokens. FLOP are two per token and weight, and two per value of q and of the
 * output for each position that a token sees; the latter at the rate of many rows. A buffer
 * that fits into a CPU's own cache is read ten times as fast as one that fits nowhere, so
 * "of that size" is what matters: as requests come, their K/V moves from one to the other. */
#ifndef CLI_BENCH_BOUND_H
#define CLI_BENCH_BOUND_H

#include "base/compute_pool.h"
#include "engine/engine.h"
#include "model/gemm.h"

enum { BOUND_RATES = 48 };

typedef struct bound_rate {
    uint64_t at; /* bytes, or rows */
    double rate; /* bytes or operations a second */
} bound_rate;

typedef struct bench_bound {
    rad_env env;
    compute_pool *pool;
    double weight_bytes;                  /* of all matrices that a step reads */
    double layer_weights, output_weights; /* numbers in them */
    double attention;                     /* operations for each position that a token sees */
    double kv_bytes;                      /* of a token, all layers */
    gemm_type type;                       /* of the largest matrix */
    gemm_type attention_type;             /* what attention's arithmetic is like */
    uint32_t columns;                     /* of the matrices whose rate stands for all */
    uint32_t num_reads, num_products;
    bound_rate reads[BOUND_RATES], products[BOUND_RATES];
} bench_bound;

/* For the model that `info` describes, whose file is at `path`. Errors of opening the file, or
 * RAD_E_NOMEM, in words; then there is nothing to fini. */
rad_status bench_bound_init(bench_bound *b, const rad_env *env, const engine_info *info,
                            const char *path, rad_error *err);
void bench_bound_fini(bench_bound *b);

/* Bytes a second at which all threads read a buffer of about so many bytes again and again;
 * 0 without memory for it. The first question for a size takes some 50 ms, the next none. */
double bench_bound_read_rate(bench_bound *b, double bytes);

/* Seconds; 0 without memory to measure the rates with. One prompt at most is computed in the
 * step, nothing in it is shared, and logits are wanted for each request. */
double bench_bound_of(bench_bound *b, const step_info *step);

/* K/V that such a step reads. */
double bench_bound_kv_bytes(const bench_bound *b, const step_info *step);

#endif
