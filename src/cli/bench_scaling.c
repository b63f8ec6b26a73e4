/* bench_scaling.c - contexts that grow, and requests that run at one time: as the work grows,
 * no faster.
 *
 * Each figure stands beside its bound (bench_bound.h), which is measured with it: from 64 to 512
 * running requests of a small model the K/V of a step leaves the CPU's last cache, so the bound of
 * a step grows faster than the requests. */
#include "cli/bench.h"
#include "cli/bench_bound.h"

#include <stdio.h>

enum {
    PROMPT = 64,
    OUT = 48,
    PROMPTS_A_STEP = 16,
    CONTEXT = 96, /* of a request in the steps that are shown, lest rows differ in that too */
    WITHIN = 8
};

/* A shape, all of whose calls decode in some step. */
static rad_status run_shape(bench_plan *plan, shape s, uint32_t seed, shape_result *r,
                            rad_error *err)
{
    rad_status status = bench_run_shapes(plan, &s, 1, seed, r, err);
    if (status != RAD_OK || r->decode_s > 0) return status;
    return rad_fail(err, RAD_E_LIMIT, "scaling: %u requests of %u tokens never decoded at one time",
                    s.calls, s.tokens);
}

/* Of all steps of the run; the rest is the forward pass and choosing tokens. */
static double schedule_share(const shape_result *r)
{
    double all = r->forward_s + r->sample_s + r->schedule_s;
    return all > 0 ? r->schedule_s / all : 0;
}

static double sample_share(const shape_result *r)
{
    double all = r->forward_s + r->sample_s + r->schedule_s;
    return all > 0 ? r->sample_s / all : 0;
}

static rad_status context_row(bench_plan *plan, bench_bound *bound, uint32_t n, rad_error *err)
{
    shape_result r;
    rad_status status = run_shape(plan, (shape){1, n - 16, 16}, n, &r, err);
    if (status != RAD_OK) return status;
    const step_log *log = &plan->engine.log;
    double first = 0, step = bench_bound_of(bound, &r.decode);
    for (uint32_t i = 0; i < log->count; i++)
        if (log->steps[i].prefill_tokens) first += bench_bound_of(bound, &log->steps[i]);
    if (plan->json)
        printf("{\"bench\":\"scaling\",\"context\":%u,\"first_token_s\":%.6f,"
               "\"first_token_bound_s\":%.6f,\"decode_tokens_per_s\":%.3f,"
               "\"decode_bound_tokens_per_s\":%.3f,\"schedule_share\":%.6f}\n",
               n, r.ttft_s, first, 1 / r.decode_s, step > 0 ? 1 / step : 0, schedule_share(&r));
    else
        printf("  %7u %9.1f ms %9.1f ms %4.0f%% %9.1f/s %9.1f/s %4.0f%% %7.3f%%\n", n,
               r.ttft_s * 1e3, first * 1e3, 100 * first / r.ttft_s, 1 / r.decode_s,
               step > 0 ? 1 / step : 0, 100 * step / r.decode_s, 100 * schedule_share(&r));
    fflush(stdout);
    return RAD_OK;
}

static rad_status running_row(bench_plan *plan, bench_bound *bound, uint32_t n, uint32_t out,
                              rad_error *err)
{
    shape_result r;
    rad_status status = run_shape(plan, (shape){n, PROMPT, out}, n, &r, err);
    if (status != RAD_OK) return status;
    const step_info *alike = step_log_median_behind(&plan->engine.log, n, CONTEXT, WITHIN);
    if (alike) {
        r.decode = *alike;
        r.decode_s = (double)alike->forward_ns * 1e-9;
    }
    double step = bench_bound_of(bound, &r.decode), kv = bench_bound_kv_bytes(bound, &r.decode);
    double rate = bench_bound_read_rate(bound, kv);
    double context = (double)r.decode.decode_context / n;
    if (plan->json)
        printf("{\"bench\":\"scaling\",\"running\":%u,\"step_s\":%.6f,\"step_bound_s\":%.6f,"
               "\"tokens_per_s\":%.3f,\"request_context\":%.1f,\"kv_bytes\":%.0f,"
               "\"kv_read_rate\":%.0f,\"sample_share\":%.6f,\"schedule_share\":%.6f}\n",
               n, r.decode_s, step, n / r.decode_s, context, kv, rate, sample_share(&r),
               schedule_share(&r));
    else
        printf("  %7u %9.2f ms %9.2f ms %4.0f%% %9.1f/s %8.1f %8.1f MB %6.1f GB/s %7.2f%% "
               "%7.3f%%\n",
               n, r.decode_s * 1e3, step * 1e3, 100 * step / r.decode_s, n / r.decode_s, context,
               kv * 1e-6, rate * 1e-9, 100 * sample_share(&r), 100 * schedule_share(&r));
    fflush(stdout);
    return RAD_OK;
}

/* Attention's share of a long prompt grows with its square, so most of the time is the longest
 * one's: --context-length N stops earlier. */
rad_status bench_scaling(bench_plan *plan, rad_error *err)
{
    bench_bound bound;
    rad_status status = bench_engine_make(plan, 0, err);
    if (status != RAD_OK) return status;
    const engine_info *info = engine_get_info(plan->engine.e);
    if (info->device_bytes)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "scaling: its bounds are what this CPU's memory and instructions reach: "
                        "--device cpu");
    status = bench_bound_init(&bound, &plan->env, info, plan->model->model, err);
    if (status != RAD_OK) return status;
    uint64_t most = RAD_MIN((uint64_t)info->context_length, info->max_total_tokens);
    if (!plan->json)
        printf("%s, %s, %s KV, %s, %u threads: %.1f MB of weights\n"
               "  context  first token        bound  of it      decode       bound  of it  "
               "schedule\n",
               info->model_name, info->dtype, info->kv_cache_dtype, info->attn_backend,
               info->num_threads, bound.weight_bytes * 1e-6);
    for (uint32_t n = 1024; n <= most && status == RAD_OK; n *= 2)
        status = context_row(plan, &bound, n, err);
    if (!plan->json && status == RAD_OK)
        printf("  running       a step        bound  of it      tokens   context  K/V a step"
               "   it reads at   sample schedule\n");
    for (uint32_t n = 1; n <= info->max_running_requests && status == RAD_OK; n *= 2) {
        /* The first must still decode when the last one's prompt is done. */
        uint32_t out = OUT + n / PROMPTS_A_STEP;
        if ((uint64_t)n * (PROMPT + out + 8) > info->max_total_tokens) break;
        status = running_row(plan, &bound, n, out, err);
    }
    bench_bound_fini(&bound);
    return status;
}
