/* bench_tree.c - requests that decode behind one prefix, with its K/V read once a step for
 * all of them (tree attention), and by each for itself.
 *
 * Both runs share the prefix in the cache; only the reading differs. What a step should
 * read is arithmetic: the prefix once, or once for each request, and every request's own
 * tokens. */
#include "cli/bench.h"

#include <stdio.h>

enum { REQUESTS = 32, OWN = 16, OUT = 48, LEAST = 64, LONGEST = 8192 };

typedef struct tree_result {
    double step_s;               /* median step in which all decode */
    double read_mb, unshared_mb; /* of that step */
    double predicted_mb;
    uint64_t digest;
} tree_result;

/* K/V of the contexts, `shared` tokens of them once; of layers with window memory what a window
 * sees, whose part of those is shared likewise. All contexts are about as long as one another. */
static double predicted_mb(const engine_info *info, const step_info *step, uint64_t shared)
{
    uint64_t context = step->decode_context / REQUESTS;
    uint64_t seen = RAD_MIN(context, (uint64_t)info->sliding_window), first = context - seen;
    uint64_t twice = shared > first ? shared - first : 0;
    double full = (double)(step->decode_context - (REQUESTS - 1) * shared);
    double window = (double)(REQUESTS * seen - (REQUESTS - 1) * twice);
    return (full * (double)info->kv_bytes_per_token +
            window * (double)info->window_kv_bytes_per_token) *
           1e-6;
}

static rad_status run(bench_plan *plan, bench_mode mode, uint32_t prefix, tree_result *out,
                      rad_error *err)
{
    bench_engine *b = &plan->engine;
    workload w;
    run_result r;
    engine_stats barrier;
    workload_init(&w, &plan->env, "tree", "");
    uint32_t prompt[2] = {workload_add_segment(&w, prefix)};
    workload_add_call(&w, 0, prompt, 1, 0, NULL, 0); /* the others wait for what it computes */
    for (uint32_t i = 0; i < REQUESTS; i++) {
        prompt[1] = workload_add_segment(&w, OWN);
        workload_add_call(&w, i, prompt, 2, OUT, NULL, 0);
    }
    rad_status status = w.nomem ? rad_fail(err, RAD_E_NOMEM, "no memory") : RAD_OK;
    if (status == RAD_OK) status = bench_engine_mode(plan, mode, err);
    step_log_clear(&b->log);
    run_params params = {.concurrency = REQUESTS + 1, .seed = 5, .together = true};
    if (status == RAD_OK) status = workload_run(b->e, &w, &params, &r, err);
    engine_get_stats(b->e, &barrier);
    workload_fini(&w);
    if (status != RAD_OK) return status;

    const step_info *mid = step_log_median(&b->log, 0, REQUESTS);
    if (!mid) return rad_fail(err, RAD_E_LIMIT, "%d requests never decoded at one time", REQUESTS);
    uint64_t shared = mode == BENCH_ON ? prefix / 64 * 64 : 0;
    *out = (tree_result){.step_s = (double)mid->forward_ns * 1e-9,
                         .read_mb = (double)mid->kv_read_bytes * 1e-6,
                         .unshared_mb = (double)mid->kv_unshared_bytes * 1e-6,
                         .predicted_mb = predicted_mb(engine_get_info(b->e), mid, shared),
                         .digest = r.digest};
    return RAD_OK;
}

rad_status bench_tree(bench_plan *plan, rad_error *err)
{
    static const bench_mode modes[] = {BENCH_ON, BENCH_NO_TREE};
    tree_result r[BENCH_MODES];
    rad_status status = bench_engine_make(plan, 0, err);
    if (status != RAD_OK) return status;
    const engine_info *info = engine_get_info(plan->engine.e);
    if (info->context_length < LEAST + OWN + OUT)
        return rad_fail(
            err, RAD_E_INVAL,
            "tree: a context of %u tokens is too short: a prefix of %d, %d own tokens and "
            "%d generated ones are the least",
            info->context_length, LEAST, OWN, OUT);
    uint32_t prefix = RAD_MIN((uint32_t)LONGEST, info->context_length - OWN - OUT);
    if (info->max_total_tokens < prefix + REQUESTS * (OWN + OUT) ||
        info->max_running_requests < REQUESTS)
        return rad_fail(err, RAD_E_LIMIT,
                        "tree: a pool of %u tokens and %d running requests are "
                        "needed (--max-total-tokens)",
                        prefix + REQUESTS * (OWN + OUT), REQUESTS);
    for (int pass = 0; pass < 2; pass++) /* the first one warms up */
        for (size_t i = 0; i < RAD_COUNT(modes) && status == RAD_OK; i++)
            status = run(plan, modes[i], prefix, &r[modes[i]], err);
    if (status != RAD_OK) return status;
    const tree_result *on = &r[BENCH_ON], *off = &r[BENCH_NO_TREE];
    if (on->digest != off->digest)
        return rad_fail(err, RAD_E_CORRUPT, "the answers differ between tree attention on and off");
    if (plan->json) {
        printf("{\"bench\":\"tree\",\"requests\":%d,\"prefix\":%u,\"on_tokens_per_s\":%.1f,"
               "\"off_tokens_per_s\":%.1f,\"speedup\":%.3f,\"on_read_mb\":%.3f,"
               "\"on_predicted_mb\":%.3f,\"off_read_mb\":%.3f,\"off_predicted_mb\":%.3f}\n",
               REQUESTS, prefix, REQUESTS / on->step_s, REQUESTS / off->step_s,
               off->step_s / on->step_s, on->read_mb, on->predicted_mb, off->read_mb,
               off->predicted_mb);
        return RAD_OK;
    }
    printf("  %d requests decode behind a shared prefix of %u tokens, the same answers:\n",
           REQUESTS, prefix);
    printf("    tree attention on   %9.1f tokens/s, %8.2f ms a step, reads %8.1f MB of K/V "
           "(predicted %.1f)\n",
           REQUESTS / on->step_s, on->step_s * 1e3, on->read_mb, on->predicted_mb);
    printf("    tree attention off  %9.1f tokens/s, %8.2f ms a step, reads %8.1f MB of K/V "
           "(predicted %.1f)   %.2fx\n",
           REQUESTS / off->step_s, off->step_s * 1e3, off->read_mb, off->predicted_mb,
           off->step_s / on->step_s);
    return RAD_OK;
}
