/* bench_scan.c - the recurrences of linear attention alone, beside what the machine can do.
 *
 *     bench_scan [-t threads] [-n prompt tokens] [-s seconds per line]
 *
 * A layer of Qwen3.6-35B-A3B (delta rule) and one of Granite 4 h tiny (Mamba 2): all heads of one
 * request, a prompt and then one token. The delta rule does four operations of a vector for a
 * sum and token (one product, three fma), Mamba three; the limit is those at the rate of fma on
 * registers (of the instructions that this process chooses, up to RADISH_ISA), or, for one token,
 * reading and writing the state at the rate at which this machine reads a buffer of that size. */
#include "bench.h"
#include "instruction_peak.h"

#include "model/scan.h"

enum { TOKENS_AT_A_TIME = 32 }; /* as block_state.c has it */

typedef struct shape {
    const char *name;
    bool delta;
    uint32_t heads, groups, key, value;
} shape;

typedef struct job {
    const shape *s;
    scan_run *run;
    compute_pool *pool;
    uint32_t tokens;
    float *rows, *gates, *out, *state;
} job;

static uint32_t row_floats(const shape *s)
{
    return 2 * s->groups * s->key + s->heads * s->value;
}

static size_t head_floats(const shape *s)
{
    return (size_t)s->key * ((s->value + STATE_STRIP - 1) / STATE_STRIP) * STATE_STRIP;
}

static void head_tile(void *arg, uint32_t head, uint32_t thread)
{
    (void)thread;
    const job *j = arg;
    const shape *s = j->s;
    const uint32_t ld = row_floats(s), keys = s->groups * s->key, gates = 3 * s->heads;
    for (uint32_t t = 0; t < j->tokens; t += TOKENS_AT_A_TIME)
        for (uint32_t at = 0; at < s->value; at += STATE_STRIP) {
            const float *row = j->rows + (size_t)t * ld;
            float *state = j->state + head * head_floats(s) + (size_t)at * s->key;
            const scan_job one = {.tokens = RAD_MIN(j->tokens - t, (uint32_t)TOKENS_AT_A_TIME),
                                  .rows = s->key,
                                  .columns = RAD_MIN(s->value - at, (uint32_t)STATE_STRIP),
                                  .query = row + head % s->groups * s->key,
                                  .key = row + keys + head % s->groups * s->key,
                                  .key_ld = ld,
                                  .value = row + 2 * (size_t)keys + (size_t)head * s->value + at,
                                  .value_ld = ld,
                                  .decay = j->gates + (size_t)t * gates + head,
                                  .weight = j->gates + (size_t)t * gates + s->heads + head,
                                  .product = j->gates + (size_t)t * gates + 2 * s->heads + head,
                                  .gate_ld = gates,
                                  .out = j->out + ((size_t)t * s->heads + head) * s->value + at,
                                  .out_ld = (size_t)s->heads * s->value,
                                  .from = state,
                                  .to = state};
            j->run(&one);
        }
}

static void run_layer(void *arg)
{
    job *j = arg;
    compute_pool_run(j->pool, j->s->heads, head_tile, j);
}

static void measure(job *j, uint32_t tokens, double fma_rate, double read_rate, double budget)
{
    const shape *s = j->s;
    j->tokens = tokens;
    const bench_times t = bench_measure(run_layer, j, budget);
    const double sums = (double)s->heads * s->key * s->value;
    /* An instruction counts as two operations, as the peak counts them. */
    const double compute = 2 * (s->delta ? 4 : 3) * sums * tokens / fma_rate;
    const double memory = 2 * 4 * sums / read_rate;
    const double limit = compute > memory ? compute : memory;
    printf("  %-22s %5u tokens  %9.2f us a token and layer (p10 %.2f, p90 %.2f, %d runs)", s->name,
           tokens, t.p50 / tokens * 1e6, t.p10 / tokens * 1e6, t.p90 / tokens * 1e6, t.runs);
    if (fma_rate > 0) printf("   limit %.2f, %.0f%%", limit / tokens * 1e6, 100 * limit / t.p50);
    printf("\n");
}

static void fill(float *x, size_t n, float middle, float spread)
{
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        x[i] = middle + spread * ((float)(state >> 8) / (1 << 23) - 1);
    }
}

static float *floats(size_t n)
{
    float *x = aligned_alloc(64, (n * sizeof *x + 63) / 64 * 64);
    if (!x) abort();
    memset(x, 0, n * sizeof *x);
    return x;
}

static void bench_shape(const shape *s, scan_run *run, compute_pool *pool, uint32_t prompt,
                        double budget)
{
    job j = {.s = s,
             .run = run,
             .pool = pool,
             .rows = floats((size_t)prompt * row_floats(s)),
             .gates = floats((size_t)prompt * 3 * s->heads),
             .out = floats((size_t)prompt * s->heads * s->value),
             .state = floats(s->heads * head_floats(s))};
    fill(j.rows, (size_t)prompt * row_floats(s), 0, 0.15f);
    fill(j.gates, (size_t)prompt * 3 * s->heads, 0.5f, 0.3f);
    const double fma_rate = instruction_peak_gflops(PEAK_F32, pool) * 1e9;
    const double read_rate =
        bench_read_rate(s->heads * head_floats(s) * sizeof(float) >> 16 << 16, pool) * 1e9;
    measure(&j, prompt, fma_rate, read_rate, budget);
    measure(&j, 1, fma_rate, read_rate, budget);
    free(j.rows), free(j.gates), free(j.out), free(j.state);
}

int main(int argc, char **argv)
{
    static const shape shapes[] = {{"qwen3.6-35b-a3b", true, 32, 16, 128, 128},
                                   {"granite-4-h-tiny", false, 48, 1, 128, 64}};
    uint32_t threads = 0, prompt = 512;
    double budget = 1;
    const scan_isa *isa = scan_find(NULL);
    int i = 1;
    for (; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "-t"))
            threads = (uint32_t)atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "-n"))
            prompt = (uint32_t)atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "-s"))
            budget = atof(argv[i + 1]);
        else
            break;
    }
    if (i < argc || !prompt)
        return fprintf(stderr, "usage: bench_scan [-t threads] [-n prompt tokens] [-s seconds]\n"),
               2;
    rad_error err;
    compute_pool *pool;
    if (compute_pool_create(NULL, threads, &pool, &err) != RAD_OK)
        return fprintf(stderr, "%s\n", err.text), 1;
    bench_print_machine(pool);
    printf("scan %s\n", isa->name);
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++)
        bench_shape(&shapes[k], shapes[k].delta ? isa->delta : isa->mamba, pool, prompt, budget);
    compute_pool_destroy(pool);
    return 0;
}
