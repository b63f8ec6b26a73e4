/* bench_suite.c - the paper's workloads, with the cache on and off in turn.
 *
 * One engine runs all three modes, switched between two runs, so that they read and write the
 * same memory, and a pair of runs is as close in time as it can be: what else happens on the
 * machine meets both. The bound is priced from the steps that really ran (workload/step_price.h),
 * so it knows the batch sizes and contexts of both runs; with prices measured right before and
 * right after the pair, since a machine's memory may give half as much again a minute later. Where
 * they differ by too much the pair is run again: the gain would be one memory's, and the bound
 * another's. */
#include "cli/bench.h"

#include <stdio.h>

enum {
    MOST_AT_ONCE = 1024, /* an engine's queue has room for more */
    MOST_PAIRS = 128     /* no more are asked for */
};

static const double MOST_DRIFT = 1.1; /* of prices, by which a pair still counts */

bool bench_is_chosen(const bench_plan *plan, const char *name)
{
    for (uint32_t i = 0; i < plan->workloads.count; i++)
        if (!strcmp(plan->workloads.texts[i], name)) return true;
    return plan->workloads.count == 0;
}

static bool suite_has(const char *name)
{
    uint32_t k = 0;
    while (workload_suite_name(k) && strcmp(workload_suite_name(k), name))
        k++;
    return workload_suite_name(k);
}

rad_status bench_suite_check(const bench_plan *plan, bool suite, bool drafts, rad_error *err)
{
    for (uint32_t i = 0; i < plan->workloads.count; i++) {
        const char *name = plan->workloads.texts[i];
        if ((suite && suite_has(name)) || (drafts && bench_drafts_has(name))) continue;
        return rad_fail(err, RAD_E_INVAL, "there is no workload '%s'%s%s%s%s", name,
                        suite ? " (radish help bench; e.g. " : "",
                        suite ? workload_suite_name(0) : "", suite ? ")" : "",
                        drafts ? "; of drafts: " BENCH_DRAFTS_NAMES : "");
    }
    return RAD_OK;
}

static double median(const double *values, uint32_t count)
{
    double sorted[MOST_PAIRS];
    memcpy(sorted, values, count * sizeof *sorted);
    sort_seconds(sorted, count);
    return sorted[count / 2];
}

/* Calls that share nothing come all at once, and the engine runs `concurrency` of them: so which
 * call is in which step does not depend on when threads wake up. Else two runs would differ by a
 * tenth in their number of steps, and by more in time than what is looked for. */
static run_params params_of(const bench_plan *plan, const bench_row *row)
{
    bool shares = row->sums.cached_tokens > 0;
    return (run_params){
        .concurrency = shares ? plan->concurrency : MOST_AT_ONCE, .seed = 7, .together = !shares};
}

/* Leaves the steps in *log. */
static rad_status run_mode(bench_plan *plan, const workload *w, bench_mode mode, bench_row *row,
                           step_log *log, double *schedule_share, rad_error *err)
{
    bench_engine *b = &plan->engine;
    run_result *out = &row->runs[mode];
    engine_stats before, after;
    rad_status status = bench_engine_mode(plan, mode, err);
    if (status != RAD_OK) return status;
    engine_get_stats(b->e, &before);
    step_log_clear(&b->log);
    run_params params = params_of(plan, row);
    status = workload_run(b->e, w, &params, out, err);
    engine_get_stats(b->e, &after);
    *schedule_share = (double)(after.sched.schedule_ns - before.sched.schedule_ns) * 1e-9 /
                      out->wall_s;
    step_log steps = b->log;
    b->log = *log;
    *log = steps;
    return status;
}

static rad_status measure_costs(bench_plan *plan, step_costs *out, rad_error *err)
{
    bench_engine *b = &plan->engine;
    rad_status status = bench_engine_mode(plan, BENCH_ON, err);
    if (status != RAD_OK) return status;
    return step_costs_measure(b->e, &b->log, plan->concurrency, out, err);
}

typedef struct pair_price {
    double bound;
    double drift;               /* by what factor the price changed from before to after, >= 1 */
    double priced[BENCH_MODES]; /* what the steps should have taken / what they took */
} pair_price;

/* Of the pair that ran last. Leaves the costs after it in *costs, where those before it were. */
static rad_status price_pair(bench_plan *plan, const workload_sums *sums, const step_log *logs,
                             step_costs *costs, pair_price *out, rad_error *err)
{
    const step_log *on = &logs[BENCH_ON], *off = &logs[BENCH_OFF];
    step_costs before = *costs;
    rad_status status = measure_costs(plan, costs, err);
    if (status != RAD_OK) return status;
    step_costs mean = step_costs_mean(&before, costs);
    uint64_t computed = 0;
    for (uint32_t i = 0; i < on->count; i++)
        computed += on->steps[i].prefill_tokens;
    double scale = computed ? (double)sums->least_computed / (double)computed : 1;
    double off_price = step_log_cost(&mean, off, 1);
    out->bound = off_price / step_log_cost(&mean, on, RAD_MIN(scale, 1));
    out->priced[BENCH_OFF] = off_price / step_log_seconds(off);
    out->priced[BENCH_ON] = step_log_cost(&mean, on, 1) / step_log_seconds(on);
    double change = (step_log_cost(costs, off, 1) + step_log_cost(costs, on, 1)) /
                    (step_log_cost(&before, off, 1) + step_log_cost(&before, on, 1));
    out->drift = RAD_MAX(change, 1 / change);
    return RAD_OK;
}

/* What the pairs of a row gave. */
typedef struct pair_values {
    double walls[BENCH_MODES][MOST_PAIRS], scheduling[MOST_PAIRS];
    double gains[MOST_PAIRS], tree_gains[MOST_PAIRS];
    double bounds[MOST_PAIRS], priced[BENCH_MODES][MOST_PAIRS];
    uint32_t pairs, prices;
} pair_values;

/* One more pair, which does not count yet. */
static rad_status run_pair(bench_plan *plan, const workload *w, step_log *logs, bench_row *row,
                           pair_values *v, rad_error *err)
{
    const uint32_t p = v->pairs;
    for (uint32_t i = 0; i < BENCH_MODES; i++) {
        bench_mode mode = (bench_mode)((i + p) % BENCH_MODES); /* nobody is always first */
        double share;
        rad_status status = run_mode(plan, w, mode, row, &logs[mode], &share, err);
        if (status != RAD_OK) return status;
        if (mode == BENCH_ON) v->scheduling[p] = share;
        v->walls[mode][p] = row->runs[mode].wall_s;
    }
    v->gains[p] = v->walls[BENCH_OFF][p] / v->walls[BENCH_ON][p];
    v->tree_gains[p] = v->walls[BENCH_NO_TREE][p] / v->walls[BENCH_ON][p];
    return RAD_OK;
}

static void take_medians(const pair_values *v, bench_row *row)
{
    for (int i = 0; i < BENCH_MODES; i++)
        row->runs[i].wall_s = median(v->walls[i], v->pairs);
    row->speedup = median(v->gains, v->pairs);
    row->tree_speedup = median(v->tree_gains, v->pairs);
    row->bound = median(v->bounds, v->prices);
    row->on_priced = median(v->priced[BENCH_ON], v->prices);
    row->off_priced = median(v->priced[BENCH_OFF], v->prices);
    row->schedule_share = median(v->scheduling, v->pairs);
}

static rad_status run_row(bench_plan *plan, step_costs *costs, const workload *w, step_log *logs,
                          bench_row *row, rad_error *err)
{
    pair_values v = {.pairs = 0};
    rad_status status = workload_sum(w, &row->sums, err);
    bool shares = row->sums.cached_tokens > 0;
    row->pairs = plan->pairs;
    if (!shares) row->pairs = RAD_MAX(row->pairs, (uint32_t)BENCH_LEAST_PAIRS_OF_NO_REUSE);
    while (v.pairs < row->pairs && status == RAD_OK) {
        status = run_pair(plan, w, logs, row, &v, err);
        if (status != RAD_OK) break;
        if (!shares && v.pairs + 1 < row->pairs) { /* a bound of 1 need not be priced so often */
            v.pairs++;
            continue;
        }
        pair_price price = {0};
        status = price_pair(plan, &row->sums, logs, costs, &price, err);
        if (shares && price.drift > MOST_DRIFT && row->pairs_again < plan->pairs) {
            row->pairs_again++;
            continue;
        }
        row->price_drift = RAD_MAX(row->price_drift, price.drift);
        v.bounds[v.prices] = price.bound;
        v.priced[BENCH_ON][v.prices] = price.priced[BENCH_ON];
        v.priced[BENCH_OFF][v.prices++] = price.priced[BENCH_OFF];
        v.pairs++;
    }
    if (status == RAD_OK) take_medians(&v, row);
    return status;
}

rad_status bench_suite(bench_plan *plan, bench_table *table, rad_error *err)
{
    step_costs costs;
    step_log logs[BENCH_MODES]; /* of the last run of each mode */
    rad_status status = bench_engine_make(plan, plan->concurrency, err);
    if (status != RAD_OK) return status;
    for (int i = 0; i < BENCH_MODES; i++)
        step_log_init(&logs[i], &plan->env);
    const engine_info *info = engine_get_info(plan->engine.e);
    table->model_name = info->model_name;
    table->dtype = info->dtype;
    table->attn_backend = info->attn_backend;
    table->computes_on = info->computes_on;
    table->page_size = info->page_size;
    table->concurrency = plan->concurrency;
    if (!plan->quiet) fprintf(stderr, "measuring what steps cost ...\r");
    status = measure_costs(plan, &costs, err);
    for (uint32_t i = 0; workload_suite_name(i) && status == RAD_OK; i++) {
        workload w;
        if (!bench_is_chosen(plan, workload_suite_name(i))) continue;
        if (!plan->quiet) fprintf(stderr, "\033[K%s ...\r", workload_suite_name(i));
        bench_row *row = &table->rows[table->num_rows];
        status = workload_suite_make(&plan->env, i, plan->paper_size, &w, err);
        if (status != RAD_OK) break;
        row->name = w.name;
        row->note = w.note;
        status = run_row(plan, &costs, &w, logs, row, err);
        workload_fini(&w);
        if (status != RAD_OK) break;
        table->num_rows++;
        if (!plan->json) bench_print_row(row, table->num_rows == 1);
    }
    if (!plan->quiet) fputs("\033[K", stderr);
    for (int i = 0; i < BENCH_MODES; i++)
        step_log_fini(&logs[i]);
    return status;
}
