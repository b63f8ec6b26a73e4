/* bench_ops_cuda.c - what stands between the products of a step on a GPU, and sampling: us of a
 * launch in a graph, behind the launch before (alone) and beginning beside it (dependent), as in a
 * runner's step.
 *
 *     bench_ops_cuda [--ptx DIR] [--bench-ptx DIR] [--json FILE] [--quick]
 *
 * --quick tries everything once with few rows, for a driver that is emulated.
 * Buffers are those of the launch before, so those of few tokens lie in the L2, as in a step. */
#include "cuda_bench.h"

#include "base/mix64.h"
#include "cuda/sample_plan.h"

#include <math.h>

enum { VOCAB = 151936, ROWS = 32, MOST_TOKENS = 2048, WIDEST = 28672, LAUNCHES = 100 };

typedef struct shape {
    const char *name;
    uint32_t dim, heads, kv_heads, head_dim, ffn;
    bool qk_norm;
} shape;
static const shape shapes[] = {{"0.6b", 1024, 16, 8, 128, 3072, true},
                               {"8b", 4096, 32, 8, 128, 14336, false}};

typedef struct bench {
    cuda_bench gpu;
    cuda_function embed, add_norm, add_norm_many, qkv, glu, adjust, count, choose;
    cuda_ptr x, y, act, weights, tables, kv;
    FILE *json;
    uint32_t num_results;
    bool quick;
} bench;

/* One kernel, or the three of sampling. */
typedef struct work {
    cuda_function kernels[3];
    uint32_t grid[3], threads, num_kernels;
    const void *args;
    size_t args_bytes;
} work;

static void launch(const cuda_bench *b, const void *of, uint32_t i, bool dependent)
{
    const work *w = of;
    (void)i;
    for (uint32_t k = 0; k < w->num_kernels; k++) {
        rad_error err;
        cuda_bench_ok(cuda_launch(&b->cu, w->kernels[k], w->grid, w->threads, 0, b->stream,
                                  dependent, w->args, w->args_bytes, &err),
                      &err);
    }
}

static void measure(bench *b, const char *what, const char *of, uint32_t rows, const work *w,
                    double bytes)
{
    const cuda_launcher l = {launch, w};
    const double beside =
        cuda_bench_seconds(&b->gpu, l, b->quick ? 2 : LAUNCHES, b->quick ? 1 : 9, true);
    const double alone =
        cuda_bench_seconds(&b->gpu, l, b->quick ? 2 : LAUNCHES, b->quick ? 1 : 9, false);
    printf("%-28s %-5s %5u  %8.2f us dependent %8.2f us alone  %6.2f TB/s\n", what, of, rows,
           beside * 1e6, alone * 1e6, bytes / beside * 1e-12);
    fflush(stdout);
    if (b->json)
        fprintf(b->json,
                "%s\n  {\"what\": \"%s\", \"shape\": \"%s\", \"rows\": %u, \"seconds\": %.4g, "
                "\"seconds_alone\": %.4g, \"bytes\": %.0f}",
                b->num_results++ ? "," : "", what, of, rows, beside, alone, bytes);
}

static cuda_ptr alloc(const bench *b, size_t bytes)
{
    cuda_ptr memory;
    cuda_bench_did(&b->gpu, b->gpu.cu.mem_alloc(&memory, bytes), "memory");
    cuda_bench_did(&b->gpu, b->gpu.cu.set_bytes(memory, 0, bytes, b->gpu.stream), "zeros");
    return memory;
}

static void upload(const bench *b, cuda_ptr to, const void *from, size_t bytes)
{
    cuda_bench_did(&b->gpu, b->gpu.cu.copy_to_device(to, from, bytes, b->gpu.stream), "upload");
    cuda_bench_did(&b->gpu, b->gpu.cu.stream_synchronize(b->gpu.stream), "upload");
}

/* ---- between the products ---- */

static void bench_shape(bench *b, const shape *s, uint32_t tokens)
{
    const bool few = tokens <= 64; /* products leave their ranges to whoever reads them */
    const double t = tokens, dim = s->dim;
    const uint32_t q_dim = s->heads * s->head_dim, kv_dim = s->kv_heads * s->head_dim;
    const uint32_t n = q_dim + 2 * kv_dim;

    const embed_args embed = {.table = (void *)b->gpu.pool,
                              .ids = (void *)b->tables,
                              .x = (void *)b->x,
                              .tokens = tokens,
                              .dim = s->dim,
                              .ld = s->dim,
                              .scale = 1};
    const work embeds = {{b->embed}, {tokens, 1, 1}, EMBED_THREADS, 1, &embed, sizeof embed};
    measure(b, "embed", s->name, tokens, &embeds, t * dim * 6);

    const uint32_t counts[] = {1, few ? cuda_splits(s->dim, q_dim) : 1};
    for (int i = 0; i < 1 + (counts[1] > 1); i++) {
        const double parts = counts[i];
        char what[64];
        snprintf(what, sizeof what, "add_norm, %u parts", counts[i]);
        const add_norm_args norm = {.x = (void *)b->x,
                                    .y = (void *)b->y,
                                    .weight = (void *)b->weights,
                                    .out = (void *)b->act,
                                    .count = tokens,
                                    .dim = s->dim,
                                    .ld = s->dim,
                                    .ldy = s->dim,
                                    .parts = counts[i],
                                    .y_tokens = tokens,
                                    .store = 1,
                                    .eps = 1e-6f,
                                    .scale = 1};
        const work norms = {{b->add_norm}, {tokens, 1, 1}, add_norm_threads(s->dim), 1,
                            &norm,         sizeof norm};
        measure(b, what, s->name, tokens, &norms, t * dim * (4 + 4 * parts + 4 + 2));
        if (few) continue;
        work many = norms;
        many.kernels[0] = b->add_norm_many;
        measure(b, "add_norm_many", s->name, tokens, &many, t * dim * (4 + 4 * parts + 4 + 2));
    }

    const uint32_t parts_of[] = {1, few ? cuda_splits(n, s->dim) : 1};
    for (int i = 0; i < 1 + (parts_of[1] > 1); i++) {
        char what[64];
        snprintf(what, sizeof what, "qkv, %u parts", parts_of[i]);
        const float *norm = s->qk_norm ? (void *)b->weights : NULL;
        const qkv_args qkv = {.y = (void *)b->y,
                              .q_norm = norm,
                              .k_norm = norm,
                              .rope = (void *)b->gpu.pool,
                              .positions = (void *)b->tables,
                              .slots = (void *)b->tables,
                              .q = (void *)b->act,
                              .k = (void *)b->kv,
                              .v = (void *)(b->kv + (size_t)MOST_TOKENS * kv_dim * 2),
                              .k_stride = kv_dim * 2,
                              .v_stride = kv_dim * 2,
                              .tokens = tokens,
                              .heads = s->heads,
                              .kv_heads = s->kv_heads,
                              .head_dim = s->head_dim,
                              .v_head_dim = s->head_dim,
                              .rope_dim = s->head_dim,
                              .parts = parts_of[i],
                              .ldy = n,
                              .eps = 1e-6f};
        const work qkvs = {{b->qkv},    {tokens, qkv_blocks(s->heads + 2 * s->kv_heads), 1},
                           QKV_THREADS, 1,
                           &qkv,        sizeof qkv};
        measure(b, what, s->name, tokens, &qkvs, t * n * (4.0 * parts_of[i] + 2));
    }

    const glu_args glu = {.y = (void *)b->y,
                          .out = (void *)b->act,
                          .tokens = tokens,
                          .dim = s->ffn,
                          .ld = s->ffn,
                          .ldy = 2 * s->ffn,
                          .parts = 1};
    const work glus = {{b->glu}, {tokens, glu_blocks(s->ffn), 1}, GLU_THREADS, 1, &glu, sizeof glu};
    measure(b, "glu", s->name, tokens, &glus, t * s->ffn * 10.0);
}

/* ---- sampling ---- */

/* Near to what models say: a bell, and a few that stand out. */
static void fill_logits(float *logits)
{
    uint64_t state = 1;
    for (size_t i = 0; i < (size_t)ROWS * VOCAB; i++) {
        double sum = 0;
        for (int k = 0; k < 4; k++)
            sum += (double)(mix64(state++) >> 40) * 0x1p-24;
        logits[i] = (float)((sum - 2) * 5);
    }
    for (uint32_t i = 0; i < ROWS * 40; i++)
        logits[i / 40 * VOCAB + mix64(state++) % VOCAB] += 8 + (float)(i % 5);
}

static void bench_sampling(bench *b)
{
    static const struct {
        const char *name;
        sampling_params p;
    } cases[] = {
        {"sample, greedy", {.top_p = 1}},
        {"sample, T 0.7", {.temperature = 0.7f, .top_p = 1}},
        {"sample, T 0.7 top_p 0.9", {.temperature = 0.7f, .top_p = 0.9f}},
        {"sample, T 0.6 top_k 20 p 0.95", {.temperature = 0.6f, .top_p = 0.95f, .top_k = 20}},
        {"sample, T 1 min_p 0.05", {.temperature = 1, .top_p = 1, .min_p = 0.05f}},
        {"sample, T 1.5 top_p 0.95", {.temperature = 1.5f, .top_p = 0.95f}},
        {"sample, penalties of 500", {.temperature = 0.7f, .top_p = 0.9f, .presence_penalty = 1}},
    };
    const cuda_sample_limits limits = cuda_sample_limits_of(VOCAB, VOCAB, 4096, ROWS);
    const size_t bytes = (size_t)ROWS * VOCAB * sizeof(float);
    size_t zero;
    float *logits = malloc(bytes);
    void *block = malloc(cuda_sample_block_bytes(&limits));
    rad_token output[500];
    fill_logits(logits);
    for (int i = 0; i < 500; i++)
        output[i] = i * 7;
    const cuda_ptr device_logits = alloc(b, bytes);
    const cuda_ptr device_block = alloc(b, cuda_sample_block_bytes(&limits));
    const cuda_ptr scratch = alloc(b, cuda_sample_scratch_bytes(&limits, &zero));
    const cuda_ptr tokens = alloc(b, ROWS * 4);
    upload(b, device_logits, logits, bytes);
    for (size_t c = 0; c < RAD_COUNT(cases); c++)
        for (uint32_t num_rows = 1; num_rows <= (b->quick ? 1 : ROWS); num_rows *= ROWS) {
            runner_sample rows[ROWS];
            rad_error err;
            cuda_sample_pack pack;
            for (uint32_t i = 0; i < num_rows; i++)
                rows[i] = (runner_sample){
                    .params = &cases[c].p, .output = output, .num_output = 500, .position = i};
            cuda_bench_ok(cuda_sample_fill(&limits, rows, num_rows, 0, block, &pack, &err), &err);
            upload(b, device_block, block, pack.bytes);
            const sample_args args = cuda_sample_args(&limits, (void *)device_logits,
                                                      (void *)device_block, (void *)scratch,
                                                      (void *)tokens, num_rows);
            const work w = {{b->adjust, b->count, b->choose},
                            {sample_chunks(VOCAB), num_rows, 1},
                            SAMPLE_THREADS,
                            pack.num_drawn ? 3 : 1,
                            &args,
                            sizeof args};
            measure(b, cases[c].name, "", num_rows, &w, 4.0 * VOCAB * num_rows);

            rad_token chosen[ROWS];
            cuda_bench_did(&b->gpu,
                           b->gpu.cu.copy_to_host(chosen, tokens, num_rows * 4, b->gpu.stream),
                           "tokens");
            cuda_bench_did(&b->gpu, b->gpu.cu.stream_synchronize(b->gpu.stream), "tokens");
            void *cpu = malloc(sampler_scratch_bytes(VOCAB));
            for (uint32_t i = 0; i < num_rows; i++) {
                const runner_sample *r = &rows[i];
                const rad_token want = sampler_next(logits + (size_t)i * VOCAB, VOCAB, r->params,
                                                    output, 500, i, NULL, cpu);
                if (chosen[i] != want)
                    printf("WRONG: row %u has token %d, on the CPU %d\n", i, chosen[i], want);
            }
            free(cpu);
        }
    free(logits);
    free(block);
    b->gpu.cu.mem_free(device_logits);
    b->gpu.cu.mem_free(device_block);
    b->gpu.cu.mem_free(scratch);
    b->gpu.cu.mem_free(tokens);
}

int main(int argc, char **argv)
{
    static bench b;
    const cuda_bench_option options[] = {{"--quick", .flag = &b.quick}};
    const cuda_bench_words words = cuda_bench_read_words(argc, argv, options, RAD_COUNT(options));
    cuda_bench_open(&b.gpu, &words, (size_t)256 << 20);
    const cuda_module embed = cuda_bench_load(&b.gpu, words.ptx, "embed");
    const cuda_module norm = cuda_bench_load(&b.gpu, words.ptx, "norm");
    const cuda_module qkv = cuda_bench_load(&b.gpu, words.ptx, "qkv");
    const cuda_module glu = cuda_bench_load(&b.gpu, words.ptx, "glu");
    const cuda_module sample = cuda_bench_load(&b.gpu, words.ptx, "sample");
    b.embed = cuda_bench_kernel(&b.gpu, embed, "embed", sizeof(embed_args), 0);
    b.add_norm = cuda_bench_kernel(&b.gpu, norm, "add_norm", sizeof(add_norm_args), 0);
    b.add_norm_many = cuda_bench_kernel(&b.gpu, norm, "add_norm_many", sizeof(add_norm_args), 0);
    b.qkv = cuda_bench_kernel(&b.gpu, qkv, "qkv", sizeof(qkv_args), 0);
    b.glu = cuda_bench_kernel(&b.gpu, glu, "glu", sizeof(glu_args), 0);
    b.adjust = cuda_bench_kernel(&b.gpu, sample, "sample_adjust", sizeof(sample_args), 0);
    b.count = cuda_bench_kernel(&b.gpu, sample, "sample_count", sizeof(sample_args), 0);
    b.choose = cuda_bench_kernel(&b.gpu, sample, "sample_choose", sizeof(sample_args), 0);
    b.x = alloc(&b, (size_t)MOST_TOKENS * 4096 * 4);
    b.y = alloc(&b, (size_t)MOST_TOKENS * WIDEST * 4);
    b.act = alloc(&b, (size_t)MOST_TOKENS * WIDEST * 2);
    b.kv = alloc(&b, (size_t)MOST_TOKENS * 1024 * 2 * 2);
    b.weights = alloc(&b, 4096 * 4);
    b.tables = alloc(&b, MOST_TOKENS * 4);
    uint32_t table[MOST_TOKENS];
    for (uint32_t i = 0; i < MOST_TOKENS; i++)
        table[i] = i;
    upload(&b, b.tables, table, sizeof table);
    cuda_bench_did(
        &b.gpu,
        b.gpu.cu.copy_on_device(b.y, b.gpu.pool, (size_t)MOST_TOKENS * WIDEST * 4, b.gpu.stream),
        "numbers");
    b.json = cuda_bench_json_begin(&b.gpu, &words);
    if (b.json) fprintf(b.json, ", \"launches\": [");
    static const uint32_t tokens[] = {1, 32, MOST_TOKENS};
    for (size_t s = 0; s < RAD_COUNT(shapes); s++)
        for (size_t t = 0; t < (b.quick ? 1 : RAD_COUNT(tokens)); t++)
            bench_shape(&b, &shapes[s], tokens[t]);
    bench_sampling(&b);
    cuda_bench_json_end(b.json);
    const cuda_ptr all[] = {b.x, b.y, b.act, b.weights, b.tables, b.kv};
    for (size_t i = 0; i < RAD_COUNT(all); i++)
        b.gpu.cu.mem_free(all[i]);
    cuda_bench_close(&b.gpu);
    return 0;
}
