/* bench_bound.c - counts a step's bytes and operations, and measures the machine's rates.
 *
 * Rates are medians and kept: the machine's own changes between two rows of a table are noise
 * here, as they are in what is measured. */
#include "cli/bench_bound.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/read_words.h"
#include "gguf/gguf.h"
#include "model/tensor_rows.h"
#include "model/weights_pack.h"
#include "workload/run.h"

enum {
    REPEATS = 11,
    MANY_ROWS = 512,             /* where products run at their best */
    MOST_ROWS = 2048,            /* measured; more are no faster */
    PRODUCT_BYTES = 4 << 20,     /* of the weight and of the results: both stay in a cache */
    READ_BYTES_A_RUN = 32 << 20, /* small buffers are read several times in a run */
    FLOP_A_RUN = 50 * 1000 * 1000,
    MOST_READ = 512 << 20, /* larger buffers are beyond every cache as well */
    LEAST_TILE = 4 << 10,
    MOST_TILE = 64 << 10,
    HUGE_PAGE = 2 << 20
};

static double now_s(const bench_bound *b)
{
    return (double)b->env.now_ns(b->env.user) * 1e-9;
}

/* ---- what the model has ---- */

/* What a matrix is held as: its file's type where the engine keeps that, else the dtype. */
static gemm_type held_as(const gguf_tensor *t, const char *dtypes)
{
    const gemm_type native = weights_native_type(t->type);
    if (native < GEMM_NUM_TYPES && strstr(dtypes, gemm_type_name(native))) return native;
    for (int type = 0; type < GEMM_NUM_TYPES; type++)
        if (strstr(dtypes, gemm_type_name((gemm_type)type))) return (gemm_type)type;
    return GEMM_F32;
}

/* All matrices but embedding tables of their own, of which a token reads one row. */
static void count_weights(bench_bound *b, const gguf_file *file, const engine_info *info)
{
    const gguf_tensor *table = gguf_find_tensor(file, "token_embd.weight");
    const gguf_tensor *output = gguf_find_tensor(file, "output.weight");
    const gguf_tensor *second = gguf_find_tensor(file, "per_layer_token_embd.weight");
    const gguf_tensor *q = gguf_find_tensor(file, "blk.0.attn_q.weight");
    const gguf_tensor *attn_out = gguf_find_tensor(file, "blk.0.attn_output.weight");
    uint64_t most = 0, num_layers = 0;
    for (uint64_t i = 0; i < gguf_num_tensors(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        static const char attn_norm[] = ".attn_norm.weight";
        size_t tail = sizeof attn_norm - 1;
        num_layers += t->name.len > tail &&
                      !memcmp(t->name.data + t->name.len - tail, attn_norm, tail);
        if (t->num_dims < 2 || (output && t == table) || t == second) continue;
        gemm_type type = held_as(t, info->dtype);
        uint64_t count = t->dims[0] * t->dims[1];
        const double matrices = (double)t->dims[2] * tensor_share(file, t);
        b->weight_bytes +=
            matrices * (double)gemm_weight_bytes(type, (uint32_t)t->dims[1], (uint32_t)t->dims[0]);
        *(t == (output ? output : table) ? &b->output_weights : &b->layer_weights) += matrices *
                                                                                      (double)count;
        if (count <= most) continue;
        most = count;
        b->type = type;
        b->columns = (uint32_t)t->dims[0];
    }
    /* A file that has Q, K and V in one leaves it out: the bound is lower then. */
    if (q && attn_out)
        b->attention = 2.0 * (double)(q->dims[1] + attn_out->dims[0]) * (double)num_layers;
    b->kv_bytes = (double)info->kv_bytes_per_token;
    b->attention_type = strcmp(info->kv_cache_dtype, "bf16") ? GEMM_F32 : GEMM_BF16;
}

rad_status bench_bound_init(bench_bound *b, const rad_env *env, const engine_info *info,
                            const char *path, rad_error *err)
{
    gguf_file *file;
    *b = (bench_bound){.env = rad_env_or_default(env)};
    rad_status status = gguf_open(env, path, &file, err);
    if (status != RAD_OK) return status;
    count_weights(b, file, info);
    gguf_close(file);
    return compute_pool_create(env, info->num_threads, &b->pool, err);
}

void bench_bound_fini(bench_bound *b)
{
    compute_pool_destroy(b->pool);
    b->pool = NULL;
}

/* ---- reading ---- */

typedef struct read_job {
    const uint64_t *words;
    uint32_t tiles; /* of the buffer, which is read again and again */
    size_t words_a_tile;
    uint64_t sums[256];
} read_job;

static void read_tile(void *arg, uint32_t tile, uint32_t thread)
{
    read_job *job = arg;
    const uint64_t *p = job->words + tile % job->tiles * job->words_a_tile;
    job->sums[thread] ^= read_words(p, job->words_a_tile);
}

static double measure_read(bench_bound *b, uint64_t bytes)
{
    uint32_t threads = compute_pool_num_threads(b->pool);
    uint64_t tile = RAD_MIN(RAD_MAX(bytes / threads, (uint64_t)LEAST_TILE), (uint64_t)MOST_TILE);
    tile = tile / LEAST_TILE * LEAST_TILE;
    uint64_t tiles = (bytes + tile - 1) / tile, room = tiles * tile;
    uint64_t *words = aligned_alloc(HUGE_PAGE, (room + HUGE_PAGE - 1) & ~(uint64_t)(HUGE_PAGE - 1));
    if (!words) return 0;
#ifdef MADV_HUGEPAGE
    madvise(words, room, MADV_HUGEPAGE); /* as weights and the KV pool are */
#endif
    memset(words, 1, room);
    read_job job = {.words = words, .tiles = (uint32_t)tiles, .words_a_tile = tile / sizeof *words};
    uint64_t passes = RAD_MAX(READ_BYTES_A_RUN / room, (uint64_t)1);
    double seconds[REPEATS];
    for (int i = -1; i < REPEATS; i++) { /* the first one fills the caches */
        double start = now_s(b);
        if (passes > 1) /* from the caches, whoever takes which tile */
            compute_pool_run(b->pool, (uint32_t)(tiles * passes), read_tile, &job);
        else
            compute_pool_run_near(b->pool, (uint32_t)tiles, read_tile, &job);
        if (i >= 0) seconds[i] = now_s(b) - start;
    }
    volatile uint64_t sink = job.sums[0];
    (void)sink;
    free(words);
    sort_seconds(seconds, REPEATS);
    return (double)(room * passes) / seconds[REPEATS / 2];
}

/* ---- products ---- */

static float *aligned_floats(uint64_t count)
{
    float *p = aligned_alloc(64, (count * sizeof *p + 63) & ~(uint64_t)63);
    for (uint64_t i = 0; p && i < count; i++)
        p[i] = (float)(i % 13) * 0.01f - 0.06f;
    return p;
}

/* Operations a second of `rows` rows times a matrix as wide as the model's largest. */
static double measure_product(bench_bound *b, gemm_type type, uint32_t rows)
{
    uint32_t k = b->columns;
    /* Rows are rounded to q8_0 here, but not to the 4-bit types, whose kernels are alike. */
    type = RAD_MIN(type, GEMM_Q8_0);
    uint64_t n = RAD_MIN(PRODUCT_BYTES / ((uint64_t)k * (type == GEMM_F32 ? 4 : 2)),
                         PRODUCT_BYTES / ((uint64_t)rows * 4));
    n = RAD_MAX(n / GEMM_PANEL, 4) * GEMM_PANEL;
    gemm_weight *w;
    if (gemm_weight_create(&b->env, type, (uint32_t)n, k, NULL, &w, NULL) != RAD_OK) return 0;
    float *x = aligned_floats(RAD_MAX(rows, n) * k); /* also the weight's rows */
    float *out = aligned_floats(rows * n);
    float *scratch = aligned_floats(gemm_scratch_bytes(w, rows) / sizeof *scratch + 1);
    double rate = 0;
    if (x && out && scratch) {
        gemm_weight_set_rows(w, 0, (uint32_t)n, x, k);
        double flop = 2.0 * rows * k * (double)n, seconds[REPEATS];
        uint32_t runs = (uint32_t)RAD_MIN(RAD_MAX(FLOP_A_RUN / flop, 1.0), 1000.0);
        for (int i = -1; i < REPEATS; i++) {
            double start = now_s(b);
            for (uint32_t r = 0; r < runs; r++)
                gemm_run(w, x, k, rows, out, n, false, b->pool, scratch);
            if (i >= 0) seconds[i] = now_s(b) - start;
        }
        sort_seconds(seconds, REPEATS);
        rate = flop * runs / seconds[REPEATS / 2];
    }
    free(x);
    free(out);
    free(scratch);
    gemm_weight_destroy(w);
    return rate;
}

/* ---- bounds ---- */

static double *known(bound_rate *rates, uint32_t *count, uint64_t at, bool *fresh)
{
    for (uint32_t i = 0; i < *count; i++)
        if (rates[i].at == at) {
            *fresh = false;
            return &rates[i].rate;
        }
    uint32_t i = *count < BOUND_RATES ? (*count)++ : BOUND_RATES - 1; /* the last is forgotten */
    rates[i].at = at;
    *fresh = true;
    return &rates[i].rate;
}

double bench_bound_read_rate(bench_bound *b, double bytes)
{
    bool fresh;
    /* Sizes within a sixteenth of each other are one. */
    int exponent;
    double size = RAD_MIN(RAD_MAX(bytes, (double)LEAST_TILE), (double)MOST_READ);
    double part = frexp(size, &exponent);
    uint64_t at = (uint64_t)ldexp(ceil(part * 32) / 32, exponent);
    double *rate = known(b->reads, &b->num_reads, at, &fresh);
    if (fresh) *rate = measure_read(b, at);
    return *rate;
}

static double product_rate(bench_bound *b, gemm_type type, uint32_t rows)
{
    bool fresh;
    double *rate = known(b->products, &b->num_products, (uint64_t)type << 32 | rows, &fresh);
    if (fresh) *rate = measure_product(b, type, rows);
    return *rate;
}

/* Positions in the cache before a prompt's piece of `fresh` tokens that sees so many in all. */
static double prefix_of(uint64_t context, uint32_t fresh)
{
    return ((double)context - 0.5 * fresh * (fresh + 1.0)) / fresh;
}

double bench_bound_kv_bytes(const bench_bound *b, const step_info *step)
{
    double positions = (double)step->decode_context;
    if (step->prefill_tokens)
        positions += prefix_of(step->prefill_context, step->prefill_tokens) + step->prefill_tokens;
    return positions * b->kv_bytes;
}

double bench_bound_of(bench_bound *b, const step_info *step)
{
    uint32_t rows = step->prefill_tokens + step->decode_tokens + step->draft_tokens;
    double kv = bench_bound_kv_bytes(b, step);
    double read_weights = bench_bound_read_rate(b, b->weight_bytes);
    double read_kv = bench_bound_read_rate(b, kv);
    double products = product_rate(b, b->type, RAD_MIN(rows, (uint32_t)MOST_ROWS));
    double many = product_rate(b, b->attention_type, MANY_ROWS);
    if (!rows || read_weights <= 0 || read_kv <= 0 || products <= 0 || many <= 0) return 0;
    uint32_t logits = step->decode_tokens + step->draft_tokens + (step->prefill_tokens > 0);
    double flop = 2 * (rows * b->layer_weights + logits * b->output_weights);
    double attention = b->attention *
                       (double)(step->prefill_context + step->decode_context + step->draft_context);
    double compute = flop / products + attention / many;
    return RAD_MAX(b->weight_bytes / read_weights, compute) + kv / read_kv;
}
