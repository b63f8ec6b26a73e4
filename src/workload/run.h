/* run.h - a workload on an engine in this process: when calls start, what they took.
 *
 * Calls start in their order as soon as the calls they wait for have ended, at most
 * `concurrency` at a time. Text segments are filled with tokens drawn from the seed; the
 * answers are greedy and of fixed length, so every run of a workload computes the same
 * thing, and two runs can be compared by a digest of all their answers (promise P1). */
#ifndef WORKLOAD_RUN_H
#define WORKLOAD_RUN_H

#include "engine/engine.h"
#include "workload/workload.h"

typedef struct run_params {
    uint32_t concurrency; /* >= 1 */
    uint32_t seed;
    bool together; /* no step begins before all that can start at first is there */
} run_params;

typedef struct run_result {
    double wall_s;
    uint64_t prompt_tokens;
    uint64_t output_tokens;
    uint64_t cached_tokens; /* of the prompts */
    double ttft_p50_s;      /* from submission to the first token, or to the end of a call
                             * that generates none */
    double ttft_p99_s;
    double latency_p50_s;
    double latency_p99_s;
    double longest_gap_s; /* between two tokens of a call as its caller gets them; 0: no two */
    uint64_t digest;      /* of all answers */
    uint32_t calls;
    uint32_t reserved;
} run_result;

/* Sorts seconds in place; the median is values[count / 2]. */
void sort_seconds(double *values, uint32_t count);

/* Runs all of it. RAD_E_INVAL in words when the model's context is too short for a call,
 * RAD_E_NOMEM; an error of a call ends the run with its words. One run at a time on an
 * engine; the cache is left as it is. */
rad_status workload_run(engine *e, const workload *w, const run_params *params, run_result *out,
                        rad_error *err);

#endif
