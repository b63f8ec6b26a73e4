/* bench_speed.c - prefill, decode and mixed steps. */
#include "cli/bench.h"

#include <stdio.h>

/* So long a prompt takes many steps, and needs no run before it that warms up. */
enum { LONG_TOKENS = 16384 };

static double seconds_between(uint64_t before_ns, uint64_t after_ns)
{
    return (double)(after_ns - before_ns) * 1e-9;
}

static void add_steps(const step_log *log, shape_result *out)
{
    for (uint32_t i = 0; i < log->count; i++) {
        const step_info *step = &log->steps[i];
        if (step->prefill_tokens) {
            out->prefill_s += (double)step->forward_ns * 1e-9;
            out->prefilled += step->prefill_tokens;
        }
    }
}

rad_status bench_run_shapes(bench_plan *plan, const shape *shapes, uint32_t count, uint32_t seed,
                            shape_result *out, rad_error *err)
{
    bench_engine *b = &plan->engine;
    workload w;
    run_result run;
    engine_stats before = {0}, after = {0};
    uint32_t calls = 0;
    workload_init(&w, &plan->env, "speed", "");
    for (uint32_t s = 0; s < count; s++)
        for (uint32_t i = 0; i < shapes[s].calls; i++) {
            uint32_t prompt = workload_add_segment(&w, shapes[s].tokens);
            workload_add_call(&w, calls++, &prompt, 1, shapes[s].out, NULL, 0);
        }
    rad_status status = w.nomem ? rad_fail(err, RAD_E_NOMEM, "no memory") : RAD_OK;
    for (uint32_t pass = shapes[0].tokens > LONG_TOKENS; pass < 2 && status == RAD_OK; pass++) {
        /* Alike calls shall decode at one time; of others, some shall decode when others come. */
        run_params params = {.concurrency = calls, .seed = seed * 2 + pass, .together = count == 1};
        status = engine_flush_cache(b->e);
        if (status != RAD_OK) break;
        step_log_clear(&b->log);
        engine_get_stats(b->e, &before);
        status = workload_run(b->e, &w, &params, &run, err);
        engine_get_stats(b->e, &after);
    }
    workload_fini(&w);
    if (status != RAD_OK) return status;

    *out = (shape_result){
        .ttft_s = run.ttft_p50_s,
        .longest_s = run.longest_gap_s,
        .wall_s = run.wall_s,
        .total_tokens = run.prompt_tokens + run.output_tokens,
        .forward_s = seconds_between(before.sched.forward_ns, after.sched.forward_ns),
        .sample_s = seconds_between(before.sched.sample_ns, after.sched.sample_ns),
        .schedule_s = seconds_between(before.sched.schedule_ns, after.sched.schedule_ns)};
    add_steps(&b->log, out);
    const step_info *mid = step_log_median(&b->log, 0, calls);
    if (mid) out->decode = *mid;
    out->decode_s = (double)out->decode.forward_ns * 1e-9;
    return RAD_OK;
}

/* What does not fit is named, in the table or, with --json, beside it. */
static void left_out(const bench_plan *plan, const char *what, uint32_t n, uint64_t tokens,
                     const engine_info *info)
{
    fprintf(
        plan->json ? stderr : stdout,
        "  %-7s %5u %s left out: it takes %llu tokens; the context has %u, the pool %llu, and %u "
        "requests run at one time\n",
        what, n, !strcmp(what, "prefill") ? "tokens" : "at a time", (unsigned long long)tokens,
        info->context_length, (unsigned long long)info->max_total_tokens,
        info->max_running_requests);
}

enum {
    DECODE_OUT = 32,
    MIXED_DECODES = 8,
    MIXED_PROMPTS = 4,
    MIXED_TOKENS = 64,
    MIXED_OUT = 96,
    FEW = 8
};

/* Calls side by side: what each may take of the pool at most, in whole pages. */
static uint64_t tokens_of(const engine_info *info, uint32_t calls, uint32_t tokens)
{
    return (uint64_t)calls * ((tokens + info->page_size - 1) / info->page_size * info->page_size);
}

static rad_status speed_of_mixed(bench_plan *plan, uint32_t most, rad_error *err)
{
    const engine_info *info = engine_get_info(plan->engine.e);
    uint32_t tokens = RAD_MIN(1024u, most - FEW - 1);
    uint64_t need = tokens_of(info, MIXED_DECODES, MIXED_TOKENS + MIXED_OUT) +
                    tokens_of(info, 1, tokens + FEW); /* the others may wait */
    if (most < MIXED_TOKENS + MIXED_OUT || need > info->max_total_tokens ||
        info->max_running_requests <= MIXED_DECODES) {
        left_out(plan, "mixed", MIXED_DECODES + MIXED_PROMPTS, need, info);
        return RAD_OK;
    }
    shape_result r;
    const shape mixed[] = {{MIXED_DECODES, MIXED_TOKENS, MIXED_OUT}, {MIXED_PROMPTS, tokens, FEW}};
    rad_status status = bench_run_shapes(plan, mixed, 2, 3, &r, err);
    if (status != RAD_OK) return status;
    if (plan->json)
        printf("{\"bench\":\"mixed\",\"tokens_per_s\":%.1f,\"longest_gap_s\":%.6f}\n",
               (double)r.total_tokens / r.wall_s, r.longest_s);
    else
        printf(
            "  mixed: 8 decode while 4 prompts of %u arrive: %.1f tokens/s, longest gap %.1f ms\n",
            tokens, (double)r.total_tokens / r.wall_s, r.longest_s * 1e3);
    return RAD_OK;
}

rad_status bench_speed(bench_plan *plan, rad_error *err)
{
    static const uint32_t prompts[] = {128, 512, 2048, 8192}, batches[] = {1, 8, 32};
    rad_status status = bench_engine_make(plan, 0, err);
    if (status != RAD_OK) return status;
    const engine_info *info = engine_get_info(plan->engine.e);
    uint32_t most = (uint32_t)RAD_MIN((uint64_t)info->context_length, info->max_total_tokens);
    if (most < 2 * DECODE_OUT)
        return rad_fail(err, RAD_E_INVAL,
                        "speed: prompts and answers of %d tokens are the least that is measured; "
                        "the context has %u, the pool %llu",
                        2 * DECODE_OUT, info->context_length,
                        (unsigned long long)info->max_total_tokens);
    shape_result r;
    if (!plan->json)
        printf("%s, %s, %s, %s\n", info->model_name, info->dtype, info->attn_backend,
               info->computes_on);
    for (size_t i = 0; i < RAD_COUNT(prompts) && status == RAD_OK; i++) {
        if (tokens_of(info, 1, prompts[i] + 1) > most) {
            left_out(plan, "prefill", prompts[i], prompts[i] + 1, info);
            continue;
        }
        status = bench_run_shapes(plan, &(shape){1, prompts[i], 1}, 1, prompts[i], &r, err);
        if (status != RAD_OK) break;
        double rate = (double)r.prefilled / r.prefill_s;
        if (plan->json)
            printf("{\"bench\":\"prefill\",\"tokens\":%u,\"tokens_per_s\":%.1f}\n", prompts[i],
                   rate);
        else
            printf("  prefill %5u tokens        %10.1f tokens/s\n", prompts[i], rate);
    }
    for (size_t i = 0; i < RAD_COUNT(batches) && status == RAD_OK; i++) {
        uint32_t tokens = RAD_MIN(512u, most - DECODE_OUT - 1);
        uint64_t need = tokens_of(info, batches[i], tokens + DECODE_OUT);
        r.decode_s = 0;
        if (batches[i] <= info->max_running_requests && need <= info->max_total_tokens)
            status = bench_run_shapes(plan, &(shape){batches[i], tokens, DECODE_OUT}, 1, batches[i],
                                      &r, err);
        if (status != RAD_OK) break;
        if (r.decode_s <= 0)
            left_out(plan, "decode", batches[i], need, info);
        else if (plan->json)
            printf("{\"bench\":\"decode\",\"batch\":%u,\"context\":%u,\"tokens_per_s\":%.1f}\n",
                   batches[i], tokens, batches[i] / r.decode_s);
        else
            printf("  decode  %5u at a time     %10.1f tokens/s   %8.2f ms a step, context %u\n",
                   batches[i], batches[i] / r.decode_s, r.decode_s * 1e3, tokens);
    }
    return status == RAD_OK ? speed_of_mixed(plan, most, err) : status;
}
