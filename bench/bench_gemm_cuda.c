/* bench_gemm_cuda.c - products on a GPU: bytes of weights a second for few tokens, beside what this
 * GPU reads at most.
 *
 *     bench_gemm_cuda [--ptx DIR] [--bench-ptx DIR] [--json FILE] [--shape TEXT] [--kind q8_0]
 *                     [--pool MB] [--quick] [--free-order]
 *
 * Every shape is measured with the plan that the runner takes and with others: rows and stages of a
 * block, blocks of a multiprocessor, tokens kept in shared memory or not. --free-order adds other
 * ranges of k than the order of sums that P1 fixes, of which the fastest shows what the promise
 * costs. Weights rotate through a pool larger than the L2. A dependent launch begins before
 * the one before it has ended, as in a runner's step. --quick measures the runner's plan alone. */
#include "cuda_bench.h"
#include "cuda_products.h"

#include "cuda/gemm_plan.h"
#include "cuda/quant_pack.h"

#include <math.h>

static const uint32_t tokens_of[] = {1, 8, 32, 64};

static const struct {
    const char *name;
    gemm_type type;
} kinds[CUDA_GEMM_KINDS] = {[CUDA_GEMM_BF16] = {"bf16", GEMM_BF16},
                            [CUDA_GEMM_Q8_0] = {"q8_0", GEMM_Q8_0},
                            [CUDA_GEMM_Q4_K] = {"q4_k", GEMM_Q4_K},
                            [CUDA_GEMM_Q6_K] = {"q6_k", GEMM_Q6_K},
                            [CUDA_GEMM_MXFP4] = {"mxfp4", GEMM_MXFP4}};

enum { OUT_BYTES = 64 * 151936 * 4, MOST_SPLITS = 16 };

/* A product as it is launched. */
typedef struct product {
    const struct shape *shape;
    cuda_gemm_kind kind;
    uint32_t tokens, splits;
    cuda_gemm_plan plan;
    cuda_function kernel;
    cuda_ptr x, out;
} product;

typedef struct bench {
    cuda_bench gpu;
    struct {
        const char *name;
        cuda_function kernel;
    } kernels[24];
    cuda_ptr x, out;
    FILE *json;
    uint32_t num_rows;
} bench;

static size_t weight_bytes(const product *p)
{
    const struct shape *s = p->shape;
    if (p->kind == CUDA_GEMM_BF16) return (size_t)s->n * s->k * 2;
    return cuda_quant_bytes(kinds[p->kind].type, s->n, s->k);
}

static void launch_product(const cuda_bench *b, const void *of, uint32_t i, bool dependent)
{
    const product *p = of;
    const struct shape *s = p->shape;
    const size_t bytes = weight_bytes(p), copies = RAD_MAX(b->pool_bytes / bytes, (size_t)1);
    const void *w = (const void *)(b->pool + i % copies * bytes);
    const gemm_args args = {.w = w,
                            .x = (const void *)p->x,
                            .out = (void *)p->out,
                            .n = s->n,
                            .n_out = s->n,
                            .k = s->k,
                            .tokens = p->tokens,
                            .splits = p->splits,
                            .ld_out = s->epilogue == GEMM_SWIGLU ? s->n / 2 : s->n,
                            .epilogue = s->epilogue,
                            .warps = p->plan.warps,
                            .stages = p->plan.stages};
    const gemm_quant_args quant_args = {.w = w,
                                        .x = (const void *)p->x,
                                        .scales = (const void *)p->x,
                                        .out = (void *)p->out,
                                        .n = s->n,
                                        .n_out = s->n,
                                        .k = s->k,
                                        .tokens = p->tokens,
                                        .ld_tokens = (p->tokens + 3) / 4 * 4,
                                        .ld_out = s->n,
                                        .warps = p->plan.warps,
                                        .stages = p->plan.stages};
    const bool quantised = p->kind != CUDA_GEMM_BF16;
    const uint32_t grid[3] = {p->plan.grid, 1, 1};
    rad_error err;
    cuda_bench_ok(cuda_launch(&b->cu, p->kernel, grid, p->plan.threads, p->plan.shared_bytes,
                              b->stream, dependent, quantised ? (const void *)&quant_args : &args,
                              quantised ? sizeof quant_args : sizeof args, &err),
                  &err);
}

/* Seconds of a launch; graphs last about a millisecond. */
static double measure(bench *b, product *p, bool dependent, uint32_t repeats)
{
    const double guess = (double)weight_bytes(p) / b->gpu.read_rate + 2e-6;
    const uint32_t count = (uint32_t)fmin(fmax(1e-3 / guess, 4), 200);
    for (size_t i = 0; i < RAD_COUNT(b->kernels); i++)
        if (strcmp(b->kernels[i].name, p->plan.kernel) == 0) p->kernel = b->kernels[i].kernel;
    return cuda_bench_seconds(&b->gpu, (cuda_launcher){launch_product, p}, count, repeats,
                              dependent);
}

static void report(bench *b, const product *p, const char *what, double seconds, double alone)
{
    const double rate = (double)weight_bytes(p) / seconds;
    printf("%-13s %3u  %-10s %-16s warps %u stages %u grid %4u splits %2u  %7.2f us (alone %7.2f)"
           " %6.2f TB/s %3.0f%%\n",
           p->shape->name, p->tokens, what, p->plan.kernel, p->plan.warps, p->plan.stages,
           p->plan.grid, p->splits, seconds * 1e6, alone * 1e6, rate * 1e-12,
           100 * rate / b->gpu.read_rate);
    fflush(stdout);
    if (!b->json) return;
    fprintf(b->json,
            "%s\n  {\"shape\": \"%s\", \"n\": %u, \"k\": %u, \"tokens\": %u, \"weights\": \"%s\", "
            "\"what\": \"%s\", "
            "\"kernel\": \"%s\", \"warps\": %u, \"stages\": %u, \"grid\": %u, \"splits\": %u, "
            "\"seconds\": %.4g, \"seconds_alone\": %.4g, \"bytes_per_second\": %.5g, "
            "\"of_ceiling\": %.4f}",
            b->num_rows++ ? "," : "", p->shape->name, p->shape->n, p->shape->k, p->tokens,
            kinds[p->kind].name, what, p->plan.kernel, p->plan.warps, p->plan.stages, p->plan.grid,
            p->splits, seconds, alone, rate, rate / b->gpu.read_rate);
}

/* The fastest plan with these ranges, of those that keep tokens, or those that do not. INFINITY:
 * there is none. */
static double search(bench *b, product p, uint32_t splits, bool kept, product *best)
{
    static const uint32_t stages[] = {3, 4, 6, 8};
    const cuda_gemm_room room = {(uint32_t)b->gpu.gpu.multiprocessors,
                                 (uint32_t)b->gpu.gpu.shared_bytes};
    double fastest = INFINITY;
    p.splits = splits;
    for (uint32_t warps = 1; warps <= 8; warps++)
        for (size_t s = 0; s < RAD_COUNT(stages); s++)
            for (uint32_t blocks = 1; blocks <= 2; blocks++) {
                const cuda_gemm_choice choice = {warps, stages[s], blocks, kept};
                if (!cuda_gemm_few_plan_of(p.kind, p.shape->n, p.shape->k, p.tokens, splits, room,
                                           choice, &p.plan) ||
                    (blocks > 1 && (p.plan.grid <= room.multiprocessors * (blocks - 1) ||
                                    p.plan.shared_bytes * blocks > room.shared_bytes)))
                    continue;
                const double seconds = measure(b, &p, true, 3);
                if (seconds < fastest) fastest = seconds, *best = p;
            }
    return fastest;
}

/* "free order": the ranges of k that suit these tokens best, where P1 has cuda_splits for all. */
static void bench_shape(bench *b, const struct shape *shape, cuda_gemm_kind kind, uint32_t tokens,
                        bool quick, bool free_order)
{
    const cuda_gemm_room room = {(uint32_t)b->gpu.gpu.multiprocessors,
                                 (uint32_t)b->gpu.gpu.shared_bytes};
    const uint32_t splits = shape->epilogue == GEMM_SWIGLU || kind != CUDA_GEMM_BF16
                                ? 1
                                : cuda_splits(shape->n, shape->k);
    product p = {
        .shape = shape, .kind = kind, .tokens = tokens, .splits = splits, .x = b->x, .out = b->out};
    product best;
    p.plan = cuda_gemm_few_plan(kind, shape->n, shape->k, tokens, splits, room);
    report(b, &p, "plan", measure(b, &p, true, 7), measure(b, &p, false, 7));
    if (quick) return;
    static const char *const forms[] = {"best", "best kept"};
    for (int kept = 0; kept < 2; kept++)
        if (search(b, p, splits, kept, &best) < INFINITY)
            report(b, &best, forms[kept], measure(b, &best, true, 7), measure(b, &best, false, 7));
    if (!free_order || shape->epilogue == GEMM_SWIGLU || shape->n > 100000 ||
        kind != CUDA_GEMM_BF16)
        return;

    product any, other;
    double fastest = INFINITY;
    for (uint32_t s = 1; s <= MOST_SPLITS; s *= 2) {
        if (shape->k % (s * 64) || shape->k / s < 128) continue;
        for (int kept = 0; kept < 2; kept++) {
            const double seconds = search(b, p, s, kept, &other);
            if (seconds < fastest) fastest = seconds, any = other;
        }
    }
    if (fastest < INFINITY)
        report(b, &any, "free order", measure(b, &any, true, 7), measure(b, &any, false, 7));
}

int main(int argc, char **argv)
{
    const char *only = NULL, *only_kind = NULL, *pool = "2560"; /* lm_head of the 8B: twice */
    bool quick = false, free_order = false;
    const cuda_bench_option options[] = {{"--shape", "TEXT", .value = &only},
                                         {"--kind", "q8_0", .value = &only_kind},
                                         {"--pool", "MB", .value = &pool},
                                         {"--quick", .flag = &quick},
                                         {"--free-order", .flag = &free_order}};
    const cuda_bench_words words = cuda_bench_read_words(argc, argv, options, RAD_COUNT(options));

    static bench b;
    cuda_bench_open(&b.gpu, &words, strtoull(pool, NULL, 10) << 20);
    static const char *const names[] = {
        "gemm_few_8",      "gemm_few_16",      "gemm_few_32",      "gemm_few_64",
        "gemm_few_8_kept", "gemm_few_16_kept", "gemm_few_32_kept", "gemm_few_64_kept",
        "gemm_q8_0_8",     "gemm_q8_0_16",     "gemm_q8_0_32",     "gemm_q8_0_64",
        "gemm_q4_k_8",     "gemm_q4_k_16",     "gemm_q4_k_32",     "gemm_q4_k_64",
        "gemm_q6_k_8",     "gemm_q6_k_16",     "gemm_q6_k_32",     "gemm_q6_k_64",
        "gemm_mxfp4_8",    "gemm_mxfp4_16",    "gemm_mxfp4_32",    "gemm_mxfp4_64"};
    const cuda_module few = cuda_bench_load(&b.gpu, words.ptx, "gemm_few");
    const cuda_module quant = cuda_bench_load(&b.gpu, words.ptx, "gemm_quant");
    for (size_t i = 0; i < RAD_COUNT(names); i++) {
        b.kernels[i].name = names[i];
        b.kernels[i].kernel = cuda_bench_kernel(&b.gpu, i < 8 ? few : quant, names[i],
                                                i < 8 ? sizeof(gemm_args) : sizeof(gemm_quant_args),
                                                (uint32_t)b.gpu.gpu.shared_bytes);
    }
    cuda_bench_did(&b.gpu, b.gpu.cu.mem_alloc(&b.out, OUT_BYTES), "memory");
    b.x = b.gpu.pool; /* random numbers as good as any */
    b.json = cuda_bench_json_begin(&b.gpu, &words);
    if (b.json) fprintf(b.json, ", \"products\": [");
    for (int kind = CUDA_GEMM_BF16; kind < CUDA_GEMM_KINDS; kind++)
        for (size_t s = 0; s < RAD_COUNT(shapes); s++)
            for (size_t t = 0; t < RAD_COUNT(tokens_of); t++)
                if ((!only || strstr(shapes[s].name, only)) &&
                    (!only_kind || strstr(kinds[kind].name, only_kind)))
                    bench_shape(&b, &shapes[s], (cuda_gemm_kind)kind, tokens_of[t], quick,
                                free_order);
    cuda_bench_json_end(b.json);
    b.gpu.cu.mem_free(b.out);
    cuda_bench_close(&b.gpu);
    return 0;
}
