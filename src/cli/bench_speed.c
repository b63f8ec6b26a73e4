/* bench_speed.c - prefill, decode and mixed steps, and how they grow. */
#include "cli/bench.h"

#include <stdio.h>

/* Calls of one shape, side by side: `tokens` of prompt, `out` generated. */
typedef struct shape {
    uint32_t calls, tokens, out;
} shape;

typedef struct shape_result {
    double prefill_s;   /* forward time of the steps that computed prompts */
    double decode_s;    /* median step in which all calls decode */
    double longest_s;   /* longest step with a decoding request in it */
    double ttft_s;      /* of the median call */
    uint64_t prefilled; /* tokens */
    double wall_s;
    uint64_t total_tokens;
} shape_result;

/* So long a prompt takes many steps, and needs no run before it that warms up. */
enum { LONG_TOKENS = 16384 };

/* Runs shapes beside each other, each twice: the first run warms up. */
static rad_status run_shapes(bench_plan *plan, const shape *shapes, uint32_t count, uint32_t seed,
                             shape_result *out, rad_error *err)
{
    bench_engine *b = &plan->engines[BENCH_ON];
    workload w;
    run_result run;
    uint32_t calls = 0;
    workload_init(&w, &plan->env, "speed", "");
    for (uint32_t s = 0; s < count; s++)
        for (uint32_t i = 0; i < shapes[s].calls; i++) {
            uint32_t prompt = workload_add_segment(&w, shapes[s].tokens);
            workload_add_call(&w, calls++, &prompt, 1, shapes[s].out, NULL, 0);
        }
    rad_status status = w.nomem ? rad_fail(err, RAD_E_NOMEM, "no memory") : RAD_OK;
    for (uint32_t pass = shapes[0].tokens > LONG_TOKENS; pass < 2 && status == RAD_OK; pass++) {
        run_params params = {.concurrency = calls, .seed = seed * 2 + pass};
        engine_stats barrier;
        status = engine_flush_cache(b->e);
        if (status != RAD_OK) break;
        step_log_clear(&b->log);
        status = workload_run(b->e, &w, &params, &run, err);
        engine_get_stats(b->e, &barrier);
    }
    workload_fini(&w);
    if (status != RAD_OK) return status;

    *out = (shape_result){.ttft_s = run.ttft_p50_s,
                          .wall_s = run.wall_s,
                          .total_tokens = run.prompt_tokens + run.output_tokens};
    for (uint32_t i = 0; i < b->log.count; i++) {
        const step_info *step = &b->log.steps[i];
        if (step->prefill_tokens) {
            out->prefill_s += (double)step->forward_ns * 1e-9;
            out->prefilled += step->prefill_tokens;
        }
        if (step->decode_tokens) {
            double seconds = (double)step->forward_ns * 1e-9;
            out->longest_s = RAD_MAX(out->longest_s, seconds);
        }
    }
    const step_info *mid = step_log_median(&b->log, 0, calls);
    if (mid) out->decode_s = (double)mid->forward_ns * 1e-9;
    return RAD_OK;
}

rad_status bench_speed(bench_plan *plan, rad_error *err)
{
    static const uint32_t prompts[] = {128, 512, 2048, 8192}, batches[] = {1, 8, 32};
    rad_status status = bench_engine_make(plan, BENCH_ON, err);
    if (status != RAD_OK) return status;
    const engine_info *info = engine_get_info(plan->engines[BENCH_ON].e);
    shape_result r;
    if (!plan->json)
        printf("%s, %s, %s, %u threads\n", info->model_name, info->dtype, info->attn_backend,
               info->num_threads);
    for (size_t i = 0; i < RAD_COUNT(prompts) && status == RAD_OK; i++) {
        if (prompts[i] + 1 > info->context_length || prompts[i] + 1 > info->max_total_tokens)
            continue;
        status = run_shapes(plan, &(shape){1, prompts[i], 1}, 1, prompts[i], &r, err);
        if (status != RAD_OK) break;
        double rate = (double)r.prefilled / r.prefill_s;
        if (plan->json)
            printf("{\"bench\":\"prefill\",\"tokens\":%u,\"tokens_per_s\":%.1f}\n", prompts[i],
                   rate);
        else
            printf("  prefill %5u tokens        %10.1f tokens/s\n", prompts[i], rate);
    }
    for (size_t i = 0; i < RAD_COUNT(batches) && status == RAD_OK; i++) {
        uint32_t tokens = RAD_MIN(512u, info->context_length - 33);
        if (batches[i] > info->max_running_requests) continue;
        status = run_shapes(plan, &(shape){batches[i], tokens, 32}, 1, batches[i], &r, err);
        if (status != RAD_OK || r.decode_s <= 0) break;
        if (plan->json)
            printf("{\"bench\":\"decode\",\"batch\":%u,\"context\":%u,\"tokens_per_s\":%.1f}\n",
                   batches[i], tokens, batches[i] / r.decode_s);
        else
            printf("  decode  %5u at a time     %10.1f tokens/s   %8.2f ms a step, context %u\n",
                   batches[i], batches[i] / r.decode_s, r.decode_s * 1e3, tokens);
    }
    const shape mixed[] = {{8, 64, 96}, {4, RAD_MIN(1024u, info->context_length - 9), 8}};
    if (status == RAD_OK) status = run_shapes(plan, mixed, 2, 3, &r, err);
    if (status != RAD_OK) return status;
    if (plan->json)
        printf("{\"bench\":\"mixed\",\"tokens_per_s\":%.1f,\"longest_step_s\":%.6f}\n",
               (double)r.total_tokens / r.wall_s, r.longest_s);
    else
        printf(
            "  mixed: 8 decode while 4 prompts of %u arrive: %.1f tokens/s, longest gap %.1f ms\n",
            mixed[1].tokens, (double)r.total_tokens / r.wall_s, r.longest_s * 1e3);
    return RAD_OK;
}

static void print_grown(const bench_plan *plan, const char *what, uint32_t n, double first,
                        double second)
{
    bool contexts = !strcmp(what, "context");
    if (plan->json)
        printf("{\"bench\":\"scaling\",\"%s\":%u,\"%s\":%.6f,\"%s\":%.3f}\n", what, n,
               contexts ? "first_token_s" : "step_s", first,
               contexts ? "decode_tokens_per_s" : "tokens_per_s", second);
    else if (contexts)
        printf("  context %7u   first token %9.1f ms   decode %9.1f tokens/s\n", n, first * 1e3,
               second);
    else
        printf("  running %7u   a step %9.2f ms         %9.1f tokens/s\n", n, first * 1e3, second);
    fflush(stdout);
}

/* A shape with all of its calls decoding in some step. Calls are submitted one after the other
 * while a small model already runs, so the first may have ended when the last one starts:
 * then they shall generate more. */
static rad_status run_grown(bench_plan *plan, shape s, uint32_t seed, shape_result *r,
                            rad_error *err)
{
    for (int i = 0; i < 4; i++, s.out *= 2) {
        rad_status status = run_shapes(plan, &s, 1, seed, r, err);
        if (status != RAD_OK || r->decode_s > 0) return status;
    }
    return rad_fail(err, RAD_E_LIMIT, "scaling: %u requests of %u tokens never decoded at one time",
                    s.calls, s.tokens);
}

/* Attention's share of a long prompt grows with its square, so most of the time is the longest
 * one's: --context-length N stops earlier. */
rad_status bench_scaling(bench_plan *plan, rad_error *err)
{
    enum { PROMPT = 64, OUT = 32, PROMPTS_A_STEP = 16 };
    rad_status status = bench_engine_make(plan, BENCH_ON, err);
    if (status != RAD_OK) return status;
    const engine_info *info = engine_get_info(plan->engines[BENCH_ON].e);
    uint64_t most = RAD_MIN((uint64_t)info->context_length, info->max_total_tokens);
    shape_result r;
    for (uint32_t n = 1024; n <= most && status == RAD_OK; n *= 2) {
        status = run_grown(plan, (shape){1, n - 16, 16}, n, &r, err);
        if (status == RAD_OK) print_grown(plan, "context", n, r.ttft_s, 1 / r.decode_s);
    }
    for (uint32_t n = 1; n <= info->max_running_requests && status == RAD_OK; n *= 2) {
        /* The first must still decode when the last one's prompt is done. */
        uint32_t out = OUT + n / PROMPTS_A_STEP;
        if ((uint64_t)n * (PROMPT + out + 8) > info->max_total_tokens) break;
        status = run_grown(plan, (shape){n, PROMPT, out}, n, &r, err);
        if (status == RAD_OK) print_grown(plan, "running", n, r.decode_s, n / r.decode_s);
    }
    return status;
}
