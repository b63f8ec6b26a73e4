/* bench_gemm.c - GFLOP/s of gemm_run, and GB/s of weights read where M is small.
 *
 *     bench_gemm [-t threads] [-i isa] [-w type] [-s seconds per line] [--no-dnnl]
 *
 * "of limit": the larger of reading the weight's bytes (rate of a buffer of 64 MB, measured
 * in the same run) and its operations at the rate of the instructions on registers alone that
 * the kernel multiplies by (instruction_peak.h), divided by the time it took. `-i` caps all
 * instructions, as RADISH_ISA does. oneDNN gets its weight from the cache and, for int8, is
 * spared the scales.
 *
 * Each shape is run over several copies of the weight, 64 MB of them at least, as a
 * model's layers follow one another: nothing is found in the cache that a real step
 * would not find there. Above the table: the rate at which the same threads read. Below it:
 * quantised products by tiles of AMX against VNNI. */
#include "bench.h"
#include "bench_product.h"
#include "dnnl_yardstick.h"
#include "instruction_peak.h"
#include "model/gemm.h"

/* What this machine can do, measured first. */
typedef struct limits {
    double read, peak[PEAK_NUM_KINDS]; /* GB/s; GFLOP/s */
} limits;

static dnnl_kind dnnl_kind_of(gemm_type type)
{
    return type == GEMM_F32 || type == GEMM_BF16W || type == GEMM_F16W ? DNNL_KIND_F32
           : type == GEMM_BF16                                         ? DNNL_KIND_BF16
                                                                       : DNNL_KIND_INT8;
}

static void bench_shape(gemm_type type, uint32_t n, uint32_t k, const gemm_isa *isa,
                        compute_pool *pool, const limits *l, double budget, bool dnnl)
{
    static const uint32_t batch[] = {1, 8, 32, 128, 512};
    bench_product j = {.type = type, .m = 512, .n = n, .k = k, .pool = pool};
    size_t bytes = gemm_weight_bytes(type, n, k);
    product_begin(&j, isa, PRODUCT_MOST_COPIES);
    for (size_t b = 0; b < sizeof batch / sizeof *batch; b++) {
        j.m = batch[b];
        bench_times t = bench_measure(product_run, &j, budget);
        double gflop = 2e-9 * j.m * n * k;
        double peak = l->peak[peak_kind_of(type)], limit = (double)bytes * 1e-9 / l->read;
        if (peak > 0 && gflop / peak > limit) limit = gflop / peak;
        printf("%-4s %6u x %5u  M %4u  %8.1f us (p10 %.1f, p90 %.1f)  %7.1f GFLOP/s  %5.1f GB/s"
               "  %3.0f%% of limit",
               gemm_type_name(type), n, k, j.m, t.p50 * 1e6, t.p10 * 1e6, t.p90 * 1e6,
               gflop / t.p50, (double)bytes / t.p50 * 1e-9, 100 * limit / t.p50);
        double other = dnnl ? dnnl_yardstick(j.m, n, k, dnnl_kind_of(type), budget) : 0;
        if (other > 0) printf("  oneDNN (weight in cache) %7.1f GFLOP/s", gflop / other);
        printf("\n");
    }
    product_end(&j);
}

/* The same product by both in turn, so that the machine's moods strike both. */
static void bench_int8_tiles(compute_pool *pool, double budget)
{
    static const uint32_t batch[] = {24, 32, 128, 512};
    static const gemm_type types[] = {GEMM_Q8_0, GEMM_Q4_0, GEMM_Q4_K};
    enum { N = 2048, K = 768 };
    const gemm_isa *isas[2] = {gemm_isa_find("avx512vnni"), gemm_isa_find("amx")};
    const char *why = gemm_amx_int8_refusal();
    if (!isas[1] || !amx_int8_permitted(NULL) || why) {
        printf("# int8 by tiles: not measured, %s\n", why ? why : "this CPU has no AMX-INT8");
        return;
    }
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t b = 0; b < sizeof batch / sizeof *batch; b++) {
            double seconds[2];
            for (int i = 0; i < 2; i++) {
                bench_product j = {.type = types[t], .m = batch[b], .n = N, .k = K, .pool = pool};
                product_begin(&j, isas[i], 1);
                seconds[i] = bench_measure(product_run, &j, budget).p50;
                product_end(&j);
            }
            double gflop = 2e-9 * batch[b] * N * K;
            printf("%-4s %6u x %5u  M %4u  tiles %7.1f GFLOP/s, VNNI %7.1f: %.2f times\n",
                   gemm_type_name(types[t]), N, K, batch[b], gflop / seconds[1], gflop / seconds[0],
                   seconds[0] / seconds[1]);
        }
}

int main(int argc, char **argv)
{
    uint32_t threads = 0;
    const char *isa_name = NULL;
    const char *only = NULL;
    double budget = 0.2;
    bool dnnl = true;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-t") == 0 && i + 1 < argc)
            threads = (uint32_t)atoi(argv[++i]);
        else if (strcmp(argv[i], "-i") == 0 && i + 1 < argc)
            isa_name = argv[++i];
        else if (strcmp(argv[i], "-w") == 0 && i + 1 < argc)
            only = argv[++i];
        else if (strcmp(argv[i], "-s") == 0 && i + 1 < argc)
            budget = atof(argv[++i]);
        else if (strcmp(argv[i], "--no-dnnl") == 0)
            dnnl = false;
        else
            return fprintf(stderr, "usage: bench_gemm [-t threads] [-i isa] [-w type] [-s seconds] "
                                   "[--no-dnnl]\n"),
                   2;
    }
    /* A cap: so the limits are of these instructions, too. Nobody has asked for it yet. */
    if (isa_name) setenv("RADISH_ISA", isa_name, 1);
    const gemm_isa *isa = gemm_isa_find(isa_name);
    if (!isa) return fprintf(stderr, "this CPU has no %s\n", isa_name), 1;
    compute_pool *pool;
    rad_error err;
    if (compute_pool_create(NULL, threads, &pool, &err) != RAD_OK)
        return fprintf(stderr, "%s\n", err.text), 1;
    bench_print_machine(pool);
    printf("# kernels: %s\n", gemm_isa_name(isa));
    static const uint32_t shapes[][2] = {
        {768, 768}, {2048, 768}, {768, 2048}, {1024, 3072}, {32000, 768}};
    limits l = {.read = bench_read_rate((size_t)64 << 20, pool)};
    for (int kind = 0; kind < PEAK_NUM_KINDS; kind++)
        l.peak[kind] = instruction_peak_gflops((peak_kind)kind, pool);
    printf("# reading memory: %.1f GB/s of 64 MB, %.1f GB/s of 512 MB\n", l.read,
           bench_read_rate((size_t)512 << 20, pool));
    printf("# instructions alone: f32 %.0f, bf16 %.0f, int8 %.0f, integers of up to six bits %.0f"
           " GFLOP/s\n",
           l.peak[PEAK_F32], l.peak[PEAK_BF16], l.peak[PEAK_INT8], l.peak[PEAK_SMALL_INT]);
    printf(
        "# with the scales of blocks of 32: int8 %.0f, integers of up to six bits %.0f GFLOP/s\n",
        l.peak[PEAK_INT8_SCALED], l.peak[PEAK_SMALL_INT_SCALED]);
    for (int type = 0; type < GEMM_NUM_TYPES; type++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            if (!only || strcmp(only, gemm_type_name((gemm_type)type)) == 0)
                bench_shape((gemm_type)type, shapes[s][0], shapes[s][1], isa, pool, &l, budget,
                            dnnl);
    bench_int8_tiles(pool, budget);
    compute_pool_destroy(pool);
    return 0;
}
