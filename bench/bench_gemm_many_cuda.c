/* bench_gemm_many_cuda.c - products for 16 to 8,192 tokens on a GPU: operations a second, beside
 * loops of nothing but mma.sync and nothing but wgmma; quantised ones, too.
 *
 *     bench_gemm_many_cuda [--ptx DIR] [--bench-ptx DIR] [--json FILE] [--shape TEXT] [--all]
 *
 * Each shape is measured with the plan that the runner takes, and with the best one without wgmma;
 * --all: with every kernel that is for it. Then quantised weights, with up to 2,048 tokens, beside
 * a loop of nothing but mma.sync of int8. Weights rotate through a pool larger than the L2. */
#include "cuda_bench.h"
#include "cuda_products.h"

#include "cuda/gemm_many_plan.h"
#include "cuda/quant_many_plan.h"
#include "cuda/quant_pack.h"
#include "kernels/bench_ceilings_args.h"

#include <math.h>

static const uint32_t tokens_of[] = {16, 32, 64, 128, 512, 2048, 8192};

enum { MOST_TOKENS = 8192, MOST_K = 14336, OUT_BYTES = 256 << 20, PART_ROWS = 2048, KERNELS = 32 };

typedef struct product {
    const struct shape *shape;
    uint32_t tokens, splits;
    cuda_gemm_many_plan plan;
    cuda_function kernel;
    cuda_ptr x, out;
    const tensor_map *w_maps; /* for each copy of W */
    tensor_map x_map;
} product;

typedef struct bench {
    cuda_bench gpu;
    cuda_gemm_many_room room;
    cuda_module many, wgmma, quant, quant_many;
    struct {
        const char *name;
        cuda_function function;
    } kernels[KERNELS];
    cuda_ptr out;
    double mma, mma_i8, wgmma_rate; /* operations a second of bare loops */
    FILE *json;
    uint32_t num_rows;
} bench;

static uint32_t copies_of(const cuda_bench *b, const struct shape *s)
{
    return (uint32_t)RAD_MIN(b->pool_bytes / ((size_t)s->n * s->k * 2), (size_t)64);
}

static cuda_ptr copy_of(const product *p, const cuda_bench *b, uint32_t i)
{
    return b->pool + i % copies_of(b, p->shape) * ((size_t)p->shape->n * p->shape->k * 2);
}

static void launch_product(const cuda_bench *b, const void *of, uint32_t i, bool dependent)
{
    const product *p = of;
    const uint32_t grid[3] = {p->plan.grid, 1, 1};
    const bool glu = p->shape->epilogue == GEMM_SWIGLU;
    const uint32_t ld = glu ? p->shape->n / 2 : p->shape->n;
    const gemm_args args = {.w = (const void *)copy_of(p, b, i),
                            .x = (const void *)p->x,
                            .out = (void *)p->out,
                            .n = p->shape->n,
                            .n_out = p->shape->n,
                            .k = p->shape->k,
                            .tokens = p->tokens,
                            .splits = p->splits,
                            .ld_out = ld,
                            .epilogue = p->shape->epilogue};
    gemm_wgmma_args maps = {.out = (void *)p->out,
                            .n = p->shape->n,
                            .n_out = p->shape->n,
                            .k = p->shape->k,
                            .tokens = p->tokens,
                            .splits = p->splits,
                            .ld_out = ld,
                            .epilogue = p->shape->epilogue};
    rad_error err;
    if (p->plan.wgmma) {
        maps.w = p->w_maps[i % copies_of(b, p->shape)];
        maps.x = p->x_map;
    }
    cuda_bench_ok(cuda_launch(&b->cu, p->kernel, grid, p->plan.threads, p->plan.shared_bytes,
                              b->stream, dependent,
                              p->plan.wgmma ? (const void *)&maps : (const void *)&args,
                              p->plan.wgmma ? sizeof maps : sizeof args, &err),
                  &err);
}

static cuda_function kernel_of(bench *b, const cuda_gemm_many_plan *plan)
{
    uint32_t i = 0;
    while (b->kernels[i].name && strcmp(b->kernels[i].name, plan->kernel) != 0)
        i++;
    if (!b->kernels[i].name) {
        b->kernels[i].name = plan->kernel;
        b->kernels[i].function = cuda_bench_kernel(
            &b->gpu, plan->wgmma ? b->wgmma : b->many, plan->kernel,
            plan->wgmma ? sizeof(gemm_wgmma_args) : sizeof(gemm_args), plan->shared_bytes);
    }
    return b->kernels[i].function;
}

static double measure(bench *b, product *p)
{
    const double guess = 2.0 * p->tokens * p->shape->n * p->shape->k / 500e12 + 5e-6;
    const uint32_t count = (uint32_t)fmin(fmax(2e-3 / guess, 3), 200);
    rad_error err;
    p->kernel = kernel_of(b, &p->plan);
    if (p->plan.wgmma)
        cuda_bench_ok(cuda_matrix_map(&b->gpu.cu, p->x, MOST_TOKENS, p->shape->k, p->plan.x_box,
                                      &p->x_map, &err),
                      &err);
    return cuda_bench_seconds(&b->gpu, (cuda_launcher){launch_product, p}, count, 5, true);
}

static void report(bench *b, const product *p, const char *what, double seconds)
{
    const double rate = 2.0 * p->tokens * p->shape->n * p->shape->k / seconds;
    const double ceiling = p->plan.wgmma ? b->wgmma_rate : b->mma;
    printf(
        "%-13s %4u  %-12s %-19s grid %5u parts %u  %8.2f us  %6.1f TFLOP/s  %3.0f%% of the loop\n",
        p->shape->name, p->tokens, what, p->plan.kernel, p->plan.grid, p->plan.parts, seconds * 1e6,
        rate * 1e-12, 100 * rate / ceiling);
    fflush(stdout);
    if (!b->json) return;
    fprintf(b->json,
            "%s\n  {\"shape\": \"%s\", \"n\": %u, \"k\": %u, \"tokens\": %u, \"what\": \"%s\", "
            "\"kernel\": \"%s\", \"grid\": %u, \"parts\": %u, \"seconds\": %.4g, "
            "\"flops_per_second\": %.5g, \"of_loop\": %.4f}",
            b->num_rows++ ? "," : "", p->shape->name, p->shape->n, p->shape->k, p->tokens, what,
            p->plan.kernel, p->plan.grid, p->plan.parts, seconds, rate, rate / ceiling);
}

static void bench_shape(bench *b, const struct shape *shape, uint32_t tokens, bool all)
{
    const uint32_t splits = shape->epilogue == GEMM_SWIGLU ? 1 : cuda_splits(shape->n, shape->k);
    static tensor_map w_maps[64];
    product p = {.shape = shape,
                 .tokens = tokens,
                 .splits = splits,
                 .x = b->gpu.pool, /* random numbers as good as any */
                 .out = b->out,
                 .w_maps = w_maps};
    rad_error err;
    if (b->room.wgmma) {
        for (uint32_t i = 0; i < copies_of(&b->gpu, shape); i++)
            cuda_bench_ok(cuda_matrix_map(&b->gpu.cu, copy_of(&p, &b->gpu, i), shape->n, shape->k,
                                          64, &w_maps[i], &err),
                          &err);
    }
    cuda_gemm_many_room room = b->room;
    p.plan = cuda_gemm_many_plan_make(shape->n, shape->k, tokens, splits, room);
    report(b, &p, "plan", measure(b, &p));
    if (room.wgmma) {
        room.wgmma = false;
        p.plan = cuda_gemm_many_plan_make(shape->n, shape->k, tokens, splits, room);
        report(b, &p, "by mma.sync", measure(b, &p));
    }
    for (uint32_t i = 0; all; i++) {
        bool fits = cuda_gemm_many_plan_of(i, shape->n, shape->k, tokens, splits, b->room, &p.plan);
        if (!p.plan.kernel) break;
        if (fits) report(b, &p, "kernel", measure(b, &p));
    }
}

/* ---- quantised ---- */

static const struct {
    const char *name;
    gemm_type type;
} quantised[] = {
    {"q8_0", GEMM_Q8_0}, {"mxfp4", GEMM_MXFP4}, {"q4_k", GEMM_Q4_K}, {"q6_k", GEMM_Q6_K}};

enum { MOST_QUANT_TOKENS = 2048, SCALES_AT = 64 << 20 };

typedef struct quant_product {
    const struct shape *shape;
    gemm_type type;
    uint32_t tokens;
    cuda_gemm_plan plan;
    cuda_function kernel;
    cuda_ptr out;
} quant_product;

static void launch_quant(const cuda_bench *b, const void *of, uint32_t i, bool dependent)
{
    const quant_product *p = of;
    const size_t bytes = cuda_quant_bytes(p->type, p->shape->n, p->shape->k);
    const gemm_quant_args args = {
        .w = (const void *)(b->pool + i % RAD_MAX(b->pool_bytes / bytes, (size_t)1) * bytes),
        .x = (const void *)b->pool,
        .scales = (const void *)(b->pool + SCALES_AT),
        .out = (void *)p->out,
        .n = p->shape->n,
        .n_out = p->shape->n,
        .k = p->shape->k,
        .tokens = p->tokens,
        .ld_tokens = p->tokens,
        .ld_out = p->shape->n,
        .warps = p->plan.warps,
        .stages = p->plan.stages};
    const uint32_t grid[3] = {p->plan.grid, 1, 1};
    rad_error err;
    cuda_bench_ok(cuda_launch(&b->cu, p->kernel, grid, p->plan.threads, p->plan.shared_bytes,
                              b->stream, dependent, &args, sizeof args, &err),
                  &err);
}

static void report_quant(bench *b, quant_product *p, const char *weights, const char *what)
{
    const bool few = !strstr(p->plan.kernel, "_many_");
    const double operations = 2.0 * p->tokens * p->shape->n * p->shape->k;
    const uint32_t count = (uint32_t)fmin(fmax(2e-3 / (operations / 300e12 + 5e-6), 3), 200);
    p->kernel = cuda_bench_kernel(&b->gpu, few ? b->quant : b->quant_many, p->plan.kernel,
                                  sizeof(gemm_quant_args), p->plan.shared_bytes);
    const double seconds =
        cuda_bench_seconds(&b->gpu, (cuda_launcher){launch_quant, p}, count, 5, true);
    const double rate = operations / seconds;
    printf("%-13s %4u  %-12s %-19s grid %5u warps %u  %8.2f us  %6.1f TOP/s  %3.0f%% of the loop\n",
           p->shape->name, p->tokens, what, p->plan.kernel, p->plan.grid, p->plan.warps,
           seconds * 1e6, rate * 1e-12, 100 * rate / b->mma_i8);
    fflush(stdout);
    if (!b->json) return;
    fprintf(
        b->json,
        "%s\n  {\"shape\": \"%s\", \"n\": %u, \"k\": %u, \"tokens\": %u, \"what\": \"%s\", "
        "\"weights\": \"%s\", \"kernel\": \"%s\", \"grid\": %u, \"warps\": %u, \"seconds\": %.4g, "
        "\"flops_per_second\": %.5g, \"of_loop\": %.4f}",
        b->num_rows++ ? "," : "", p->shape->name, p->shape->n, p->shape->k, p->tokens, what,
        weights, p->plan.kernel, p->plan.grid, p->plan.warps, seconds, rate, rate / b->mma_i8);
}

/* What the runner takes, and the kernel for few tokens beside it; `all`: every tile. */
static void bench_quantised(bench *b, const struct shape *shape, uint32_t tokens, bool all)
{
    const cuda_gemm_room room = {b->room.multiprocessors, b->room.shared_bytes - 1024};
    for (size_t i = 0; i < RAD_COUNT(quantised); i++) {
        const cuda_gemm_kind kind = cuda_gemm_kind_of(quantised[i].type);
        quant_product p = {
            .shape = shape, .type = quantised[i].type, .tokens = tokens, .out = b->out};
        p.plan = cuda_quant_many_plan(kind, shape->n, shape->k, tokens, room);
        if (p.plan.kernel) report_quant(b, &p, quantised[i].name, "quantised");
        p.plan = cuda_gemm_few_plan(kind, shape->n, shape->k, tokens, 1, room);
        report_quant(b, &p, quantised[i].name, "as for few");
        for (uint32_t tile = 64; all && tile <= 128; tile *= 2)
            for (uint32_t warps = 1; warps <= 4; warps *= 2)
                if (cuda_quant_many_plan_of(kind, shape->n, tokens, room, tile, warps, &p.plan))
                    report_quant(b, &p, quantised[i].name, "tile");
    }
}

typedef struct bare {
    cuda_function kernel;
    cuda_ptr to;
    uint32_t grid, threads, shared_bytes, rounds;
} bare;

static void launch_bare(const cuda_bench *b, const void *of, uint32_t i, bool dependent)
{
    const bare *l = of;
    const ceiling_args args = {.to = (void *)l->to, .rounds = l->rounds};
    const uint32_t grid[3] = {l->grid, 1, 1};
    rad_error err;
    (void)i;
    cuda_bench_ok(cuda_launch(&b->cu, l->kernel, grid, l->threads, l->shared_bytes, b->stream,
                              dependent, &args, sizeof args, &err),
                  &err);
}

/* Operations a second of loops of one instruction. */
static void bench_loops(bench *b, const char *bench_ptx)
{
    const uint32_t cores = (uint32_t)b->gpu.gpu.multiprocessors;
    const cuda_module module = cuda_bench_load(&b->gpu, bench_ptx, "bench_ceilings");
    bare l = {.kernel = cuda_bench_kernel(&b->gpu, module, "mma_loop", sizeof(ceiling_args), 0),
              .to = b->out,
              .grid = cores * 2,
              .threads = CEILING_MMA_THREADS,
              .rounds = 8000};
    double s = cuda_bench_seconds(&b->gpu, (cuda_launcher){launch_bare, &l}, 2, 5, false);
    b->mma = ceiling_mma_flops(l.grid, l.rounds) / s;
    printf("a loop of mma.sync: %.1f TFLOP/s\n", b->mma * 1e-12);
    l.kernel = cuda_bench_kernel(&b->gpu, module, "mma_i8_loop", sizeof(ceiling_args), 0);
    s = cuda_bench_seconds(&b->gpu, (cuda_launcher){launch_bare, &l}, 2, 5, false);
    b->mma_i8 = 2 * ceiling_mma_flops(l.grid, l.rounds) / s;
    printf("a loop of mma.sync of int8: %.1f TOP/s\n", b->mma_i8 * 1e-12);
    if (!b->room.wgmma) return;
    l = (bare){.kernel = cuda_bench_kernel(&b->gpu, module, "wgmma_loop", sizeof(ceiling_args),
                                           CEILING_WGMMA_SHARED),
               .to = b->out,
               .grid = cores,
               .threads = CEILING_WGMMA_THREADS,
               .shared_bytes = CEILING_WGMMA_SHARED,
               .rounds = 1000};
    s = cuda_bench_seconds(&b->gpu, (cuda_launcher){launch_bare, &l}, 2, 5, false);
    b->wgmma_rate = ceiling_wgmma_flops(l.grid, l.rounds) / s;
    printf("a loop of wgmma: %.1f TFLOP/s\n", b->wgmma_rate * 1e-12);
}

int main(int argc, char **argv)
{
    const char *only = NULL;
    bool all = false;
    const cuda_bench_option options[] = {{"--shape", "TEXT", .value = &only},
                                         {"--all", .flag = &all}};
    const cuda_bench_words words = cuda_bench_read_words(argc, argv, options, RAD_COUNT(options));

    static bench b;
    cuda_bench_open(&b.gpu, &words, (size_t)1 << 30); /* gate_up of the 8B: four times */
    b.room = (cuda_gemm_many_room){.multiprocessors = (uint32_t)b.gpu.gpu.multiprocessors,
                                   .shared_bytes = (uint32_t)b.gpu.gpu.shared_bytes,
                                   .wgmma = b.gpu.gpu.capability == 90 && b.gpu.cu.tensor_map_tiled,
                                   .part_rows = PART_ROWS};
    b.many = cuda_bench_load(&b.gpu, words.ptx, "gemm_many");
    b.quant = cuda_bench_load(&b.gpu, words.ptx, "gemm_quant");
    b.quant_many = cuda_bench_load(&b.gpu, words.ptx, "gemm_quant_many");
    if (b.room.wgmma) b.wgmma = cuda_bench_load(&b.gpu, words.ptx, "gemm_wgmma");
    cuda_bench_did(&b.gpu, b.gpu.cu.mem_alloc(&b.out, OUT_BYTES), "memory");
    bench_loops(&b, words.bench_ptx);
    b.json = cuda_bench_json_begin(&b.gpu, &words);
    if (b.json)
        fprintf(b.json,
                ", \"mma_flops_per_second\": %.5g, \"mma_i8_per_second\": %.5g, "
                "\"wgmma_flops_per_second\": %.5g, \"products\": [",
                b.mma, b.mma_i8, b.wgmma_rate);
    for (size_t s = 0; s < LAYER_PRODUCTS; s++)
        for (size_t t = 0; t < RAD_COUNT(tokens_of); t++)
            if (!only || strstr(shapes[s].name, only))
                bench_shape(&b, &shapes[s], tokens_of[t], all);
    for (size_t s = 0; s < LAYER_PRODUCTS; s++)
        for (size_t t = 0; t < RAD_COUNT(tokens_of); t++)
            if (tokens_of[t] > GEMM_FEW_TOKENS && tokens_of[t] <= MOST_QUANT_TOKENS &&
                (!only || strstr(shapes[s].name, only)))
                bench_quantised(&b, &shapes[s], tokens_of[t], all);
    cuda_bench_json_end(b.json);
    b.gpu.cu.mem_free(b.out);
    cuda_bench_close(&b.gpu);
    return 0;
}
