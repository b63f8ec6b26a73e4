/* step_price.h - what a forward pass of a given shape costs on this machine, measured.
 *
 * One of three answers to three questions, which share no arithmetic: sched/step_cost.h guesses the
 * next step's time from the steps before it, in a few nanoseconds and on a machine that changes;
 * cli/bench_bound.h says what no program could beat, from bytes and operations alone; this one
 * prices steps that ran, with lines measured by experiments that a server could not make.
 *
 * With these costs a workload's best possible gain can be computed: the bound of `radish
 * bench` is the time of the steps that ran without a cache, over the time of the steps
 * that ran with it, each priced by its shape, the latter as if no token had been computed
 * that an unbounded cache would have had.
 *
 *     cost(step) = prefill(p + d) + max(0, decode(r) - prefill(r))      p prompt tokens,
 *                  + prefill_context * a                                d decoding requests,
 *                  + decode_context * (b * read + s * (1 - read))       r rows of logits
 *
 * prefill() and decode() are lines between measured points. A decode step of n requests computes
 * n tokens and n rows of logits, a prefill of n tokens n and one: so decode(r) - prefill(r) is
 * what r rows of logits cost. A step without prompts costs decode(d). Requests that share a
 * prefix read it once (tree attention): `read` is the part of their K/V that a step really read,
 * s what a position costs that another request of the step has read.
 *
 * The rate of a machine's memory moves by half within minutes when others use it. So costs are
 * measured before and after what they shall price, and the mean of both is taken. */
#ifndef WORKLOAD_STEP_PRICE_H
#define WORKLOAD_STEP_PRICE_H

#include "workload/run.h"

/* Steps as they happen; give step_log_add to the engine as on_step. The engine's thread
 * writes: read it only while the engine is idle (engine_get_stats waits for that). */
typedef struct step_log {
    rad_env env;
    step_info *steps;
    uint32_t count, cap;
    uint64_t lost; /* for want of memory */
} step_log;

void step_log_init(step_log *log, const rad_env *env);
void step_log_fini(step_log *log);
void step_log_clear(step_log *log);
void step_log_add(void *log, const step_info *step);

/* The step of the median forward time among those with `prefill` prompt tokens and `decode`
 * decoding requests; NULL: there is none. Sorts the log by time. */
const step_info *step_log_median(step_log *log, uint32_t prefill, uint32_t decode);

/* Likewise among those in which `decode` requests and no prompt ran, each behind `context`
 * positions, more or less up to `within` of them (the mean of the requests). */
const step_info *step_log_median_behind(step_log *log, uint32_t decode, uint32_t context,
                                        uint32_t within);

enum { COST_POINTS = 16 };

typedef struct cost_line {
    uint32_t count;
    uint32_t at[COST_POINTS]; /* ascending */
    double seconds[COST_POINTS];
} cost_line;

typedef struct step_costs {
    cost_line prefill, decode;
    double prefill_context_s; /* for each position that a prompt token attends to */
    double decode_context_s;  /* for each position that a decoding request reads */
    double decode_spared_s;   /* likewise, when it is read for another one anyway */
} step_costs;

/* Runs small workloads on an engine with its cache on, whose on_step writes to `log`; the
 * cache is emptied before and after. Batches of up to `most_decodes` requests. Computes about
 * 13,000 prompt tokens and 150 decode steps: 3 s for a model of 100M parameters that prefills
 * 5,000 tokens a second. RAD_E_INVAL in words: the context is too short. */
rad_status step_costs_measure(engine *e, step_log *log, uint32_t most_decodes, step_costs *out,
                              rad_error *err);

/* The mean of two measurements of one engine. */
step_costs step_costs_mean(const step_costs *a, const step_costs *b);

/* Seconds. */
double step_cost(const step_costs *c, const step_info *step);

/* The same with the prompt tokens' part multiplied by `prefill_scale`, over all steps. */
double step_log_cost(const step_costs *c, const step_log *log, double prefill_scale);

/* What the steps took. */
double step_log_seconds(const step_log *log);

#endif
