/* bench_attention.c - decode in GB/s of K and V read, prefill in GFLOP/s.
 *
 *     bench_attention [-t threads] [-i isa] [-s seconds per line]
 *
 * Pages lie in random order, as after hours of serving. A decode step reads every K and
 * V of its contexts once for all heads that share them, so memory bounds it: the rate
 * at which the same threads just read is printed below. Prefill counts 4 operations per
 * head dimension and pair of positions that is not masked. */
#include "attn/attn_backend.h"
#include "bench.h"

#include <math.h>

typedef struct job {
    radix_attention layer;
    forward_batch batch;
    const attn_backend *backend;
    const float *q;
    float *out;
    compute_pool *pool;
    uint32_t num_layers, next;
} job;

static void run_one(void *arg)
{
    job *j = arg;
    j->layer.layer_id = j->next++ % j->num_layers;
    j->backend->forward(j->backend, &j->layer, &j->batch, j->q, j->out, j->pool);
}

static void *must(void *memory)
{
    if (!memory) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    return memory;
}

static void must_ok(rad_status status, const rad_error *err)
{
    if (status == RAD_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

/* `num_reqs` requests of `context` tokens, of which the last `fresh` are computed. */
static void bench_case(const attn_backend *backend, compute_pool *pool, rad_dtype dtype,
                       uint32_t heads, uint32_t kv_heads, uint32_t head_dim, uint32_t page_size,
                       uint32_t num_reqs, uint32_t context, uint32_t fresh, double budget)
{
    enum { MOST_REQS = 64 };
    rad_error err;
    size_t element = dtype == RAD_F32 ? 4 : 2;
    size_t layer_bytes = (size_t)num_reqs * context * kv_heads * head_dim * 2 * element;
    /* At least 128 MB over all layers, so that no layer is in the cache when it comes. */
    uint32_t layers = (uint32_t)(((size_t)128 << 20) / layer_bytes) + 1;
    if (fresh > 1 || layers > 64) layers = fresh > 1 ? 2 : 64;
    uint32_t pages_per_req = (context + page_size - 1) / page_size;
    rad_token_to_kv_pool_params kv = {.struct_size = sizeof kv,
                                      .num_pages = num_reqs * pages_per_req,
                                      .page_size = page_size,
                                      .num_layers = layers,
                                      .num_kv_heads = kv_heads,
                                      .head_dim = head_dim,
                                      .dtype = dtype};
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = num_reqs, .row_tokens = context};
    rad_token_to_kv_pool *kv_pool;
    rad_req_to_token_pool *row_pool;
    must_ok(rad_token_to_kv_pool_create(NULL, &kv, &kv_pool, &err), &err);
    must_ok(rad_req_to_token_pool_create(NULL, &rows, &row_pool, &err), &err);
    for (uint32_t l = 0; l < layers; l++) { /* small numbers: 0x3c.. is one in both dtypes */
        size_t bytes = (size_t)(kv.num_pages + 1) * page_size * kv_heads * head_dim * element;
        memset(rad_kv_pool_key_buffer(kv_pool, l), 0x3c, bytes);
        memset(rad_kv_pool_value_buffer(kv_pool, l), 0x3c, bytes);
    }

    uint32_t *pages = must(malloc(kv.num_pages * sizeof *pages));
    uint64_t random = 1;
    for (uint32_t i = 0; i < kv.num_pages; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint32_t at = (uint32_t)((random >> 33) % (i + 1));
        pages[i] = pages[at];
        pages[at] = i + 1;
    }
    uint32_t seq[MOST_REQS], prefix[MOST_REQS], extend[MOST_REQS], start[MOST_REQS];
    rad_row row[MOST_REQS];
    for (uint32_t i = 0; i < num_reqs; i++) {
        must_ok(rad_req_to_token_alloc(row_pool, &row[i]), &err);
        rad_slot *slots = rad_req_to_token_row(row_pool, row[i]);
        for (uint32_t t = 0; t < context; t++)
            slots[t] =
                (rad_slot)(pages[i * pages_per_req + t / page_size] * page_size + t % page_size);
        seq[i] = context;
        extend[i] = fresh;
        prefix[i] = context - fresh;
        start[i] = i * fresh;
    }
    size_t floats = (size_t)num_reqs * fresh * heads * head_dim;
    float *q = must(malloc(floats * 4)), *out = must(malloc(floats * 4));
    for (size_t i = 0; i < floats; i++)
        q[i] = (float)(i % 17) / 17 - 0.5f;
    job j = {.layer = {.num_heads = heads,
                       .num_kv_heads = kv_heads,
                       .head_dim = head_dim,
                       .scaling = 1 / sqrtf((float)head_dim),
                       .sliding_window = -1},
             .batch = {.num_reqs = num_reqs,
                       .num_tokens = num_reqs * fresh,
                       .req_pool_indices = row,
                       .seq_lens = seq,
                       .extend_prefix_lens = prefix,
                       .extend_seq_lens = extend,
                       .extend_start_loc = start,
                       .req_to_token_pool = row_pool,
                       .token_to_kv_pool = kv_pool},
             .backend = backend,
             .q = q,
             .out = out,
             .pool = pool,
             .num_layers = layers};
    bench_times t = bench_measure(run_one, &j, budget);
    double pairs = (double)num_reqs * fresh * (context - (fresh - 1) / 2.0);
    printf("%-4s heads %2u/%2u x %3u  page %2u  %s %2u x %5u  %9.1f us (p10 %.1f, p90 %.1f)",
           dtype == RAD_F32 ? "f32" : "bf16", heads, kv_heads, head_dim, page_size,
           fresh == 1 ? "decode " : "prefill", num_reqs, context, t.p50 * 1e6, t.p10 * 1e6,
           t.p90 * 1e6);
    if (fresh == 1)
        printf("  %6.1f GB/s\n", (double)layer_bytes / t.p50 * 1e-9);
    else
        printf("  %6.1f GFLOP/s\n", 4e-9 * pairs * heads * head_dim / t.p50);
    free(q);
    free(out);
    free(pages);
    rad_token_to_kv_pool_destroy(kv_pool);
    rad_req_to_token_pool_destroy(row_pool);
}

int main(int argc, char **argv)
{
    uint32_t threads = 0;
    const char *isa = NULL;
    double budget = 0.2;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "-t") == 0) threads = (uint32_t)atoi(argv[i + 1]);
        if (strcmp(argv[i], "-i") == 0) isa = argv[i + 1];
        if (strcmp(argv[i], "-s") == 0) budget = atof(argv[i + 1]);
    }
    const attn_backend *backend = attn_cpu(isa);
    if (!backend) return fprintf(stderr, "this CPU has no %s\n", isa), 1;
    compute_pool *pool;
    rad_error err;
    must_ok(compute_pool_create(NULL, threads, &pool, &err), &err);
    bench_print_machine(pool);
    printf("# backend: %s\n", backend->name);
    static const struct {
        uint32_t heads, kv_heads, head_dim;
    } models[] = {{12, 12, 64}, {16, 8, 128}};
    for (int bf16 = 1; bf16 >= 0; bf16--)
        for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
            rad_dtype dtype = bf16 ? RAD_BF16 : RAD_F32;
            uint32_t h = models[m].heads, k = models[m].kv_heads, d = models[m].head_dim;
            bench_case(backend, pool, dtype, h, k, d, 1, 1, 2048, 1, budget);
            bench_case(backend, pool, dtype, h, k, d, 16, 1, 2048, 1, budget);
            bench_case(backend, pool, dtype, h, k, d, 16, 1, 8192, 1, budget);
            bench_case(backend, pool, dtype, h, k, d, 1, 32, 2048, 1, budget);
            bench_case(backend, pool, dtype, h, k, d, 16, 32, 2048, 1, budget);
            bench_case(backend, pool, dtype, h, k, d, 16, 1, 128, 128, budget);
            bench_case(backend, pool, dtype, h, k, d, 16, 1, 2048, 2048, budget);
        }
    printf("reading memory: %.1f GB/s of 64 MB, %.1f GB/s of 512 MB\n",
           bench_read_rate((size_t)64 << 20, pool), bench_read_rate((size_t)512 << 20, pool));
    compute_pool_destroy(pool);
    return 0;
}
