/* runner_rig.h - models on the emulated GPU, for tests: tiny ones, beside the CPU's, and crowds of
 * requests whose logits must be those of one cold prefill. */
#ifndef TESTS_CUDA_RUNNER_RIG_H
#define TESTS_CUDA_RUNNER_RIG_H

#include "fake_rig.h"
#include "model_bench.h"
#include "tiny_models.h"

#include "cuda/cuda_runner.h"
#include "device/cuda_driver.h"

#include <math.h>
#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

typedef struct model {
    tiny_writer w;
    gguf_file *file;
} model;

static inline void make_model(model *m, const tiny_model *shape, uint64_t seed)
{
    uint64_t state = seed;
    m->file = tiny_model_open(&m->w, shape, &state);
}

static inline void end_model(model *m)
{
    gguf_close(m->file);
    tiny_model_fini(&m->w);
}

static inline void start_gpu_of(int driver, int capability)
{
    the_fake()->fake_cuda_reset();
    the_fake()->fake_cuda_machine(driver, capability, 1, CUDA_OK);
}

static inline void start_gpu(int capability)
{
    start_gpu_of(12040, capability);
}

static inline cuda_runner_params params_of(uint32_t tokens, uint32_t logits, uint32_t requests)
{
    return (cuda_runner_params){.model = {.dtype = RAD_BF16,
                                          .max_batch_tokens = tokens,
                                          .max_batch_logits = logits,
                                          .num_threads = 1},
                                .max_requests = requests,
                                .library = RADISH_LIBCUDA_EMULATED};
}

static inline runner *make_runner(const gguf_file *file, const cuda_runner_params *params)
{
    runner *r;
    rad_error err = {0};
    rad_status status = cuda_runner_create(NULL, file, params, &r, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    return r;
}

#define NEAR_SIZES                                                                                 \
    .vocab = 83, .layers = 2, .dim = 64, .ffn = 96, .heads = 4, .kv_heads = 2, .head_dim = 16,     \
    .v_head_dim = 16, .rope_dim = 16, .context = BENCH_ROW_TOKENS

/* None of which a kernel's tile is made for. */
#define ODD_SIZES                                                                                  \
    .vocab = 70, .layers = 3, .dim = 72, .ffn = 100, .heads = 2, .kv_heads = 1, .head_dim = 32,    \
    .v_head_dim = 32, .rope_dim = 20, .context = BENCH_ROW_TOKENS

/* The GPU holds what was measured, to the byte. Returns how many bytes that is. */
static inline size_t check_device_bytes(const model_sizes *sizes)
{
    size_t device_bytes, pinned_bytes, objects;
    the_fake()->fake_cuda_live(&device_bytes, &pinned_bytes, &objects);
    const size_t ours = sizes->weights_bytes + sizes->buffers_bytes;
    CHECKF(device_bytes == ours, "%zu of %zu\n", device_bytes, ours);
    return ours;
}

/* The logits of a row's `count` tokens: of the first `begin` in one batch, the others' in the next.
 */
static inline void run_cut(bench *b, const rad_token *ids, uint32_t begin, uint32_t count,
                           float *logits)
{
    bench_run(b, &(piece){1, ids, 0, begin}, 1, &logits);
    logits += (size_t)begin * b->model->info.vocab_size;
    bench_run(b, &(piece){1, ids, begin, count}, 1, &logits);
}

/* The worst difference, in units of what logits are large. */
static inline double distance(const float *a, const float *b, size_t n)
{
    double worst = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
        size = fmax(size, fabs((double)a[i]));
    }
    return worst / size;
}

/* ---- crowds ---- */

enum { MANY = 64, DECODED = 24, TEXT = 80 };

/* Up to MANY requests, each with a text of its own; row i + 1 has slots of its own. */
typedef struct crowd {
    runner *r;
    rad_req_to_token_pool *rows;
    rad_token_to_kv_pool *kv;
    rad_token text[MANY][TEXT];
    uint64_t cold[MANY][TEXT]; /* digests of the logits behind each token */
    uint32_t done[MANY];
} crowd;

/* Requests `who` go on by `counts` tokens each; all of their logits are compared with the cold
 * ones, or are those. */
static inline void go_on(crowd *c, const uint32_t *who, const uint32_t *counts, uint32_t n,
                         bool cold)
{
    enum { MOST = MANY * TEXT };
    static rad_token ids[MOST];
    static uint32_t positions[MOST], at[MOST];
    static rad_slot loc[MOST];
    rad_row rows[MANY];
    uint32_t lens[MANY], prefix[MANY], start[MANY], tokens = 0;
    for (uint32_t i = 0; i < n; i++) {
        rows[i] = (rad_row)who[i] + 1;
        prefix[i] = c->done[who[i]], lens[i] = prefix[i] + counts[i], start[i] = tokens;
        for (uint32_t p = prefix[i]; p < lens[i]; p++, tokens++) {
            ids[tokens] = c->text[who[i]][p];
            positions[tokens] = p;
            loc[tokens] = rad_req_to_token_row(c->rows, rows[i])[p];
            at[tokens] = tokens;
        }
    }
    const forward_batch batch = {.num_reqs = n,
                                 .num_tokens = tokens,
                                 .input_ids = ids,
                                 .positions = positions,
                                 .out_cache_loc = loc,
                                 .req_pool_indices = rows,
                                 .seq_lens = lens,
                                 .extend_prefix_lens = prefix,
                                 .extend_seq_lens = counts,
                                 .extend_start_loc = start,
                                 .num_logits = tokens,
                                 .logits_indices = at,
                                 .req_to_token_pool = c->rows,
                                 .token_to_kv_pool = c->kv};
    const float *logits;
    rad_error err = {0};
    rad_status status = runner_forward(c->r, &batch, &logits, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    const uint32_t vocab = c->r->info.vocab_size;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t p = prefix[i]; p < lens[i]; p++, logits += vocab) {
            const uint64_t digest = XXH3_64bits(logits, vocab * sizeof *logits);
            if (cold) c->cold[who[i]][p] = digest;
            CHECKF(digest == c->cold[who[i]][p], "request %u of %u at position %u differs\n",
                   who[i], n, p);
        }
        c->done[who[i]] = cold ? 0 : lens[i];
    }
}

/* Crowds of any size that decode: in graphs of their own number, padded, and without. */
static inline void run_crowd_kv(const tiny_model *shape, weights_policy weights, rad_dtype kv,
                                int capability, uint32_t requests, bool early)
{
    static crowd c;
    uint64_t state = test_seed();
    const uint64_t seed = state;
    model m;
    memset(&c, 0, sizeof c);
    start_gpu(capability);
    the_fake()->fake_cuda_order(seed);
    make_model(&m, shape, 21);
    const uint32_t most = RAD_MAX(8 * requests, (uint32_t)TEXT);
    cuda_runner_params params = params_of(most, most, requests);
    params.model.weights = weights;
    params.model.set_kv_dtype = true;
    params.model.kv_dtype = kv;
    c.r = make_runner(m.file, &params);
    the_fake()->fake_cuda_early(early);
    CHECK_OK(runner_create_pool(c.r, NULL, RUNNER_ALL_LAYERS, MANY * TEXT, 1, &c.kv, NULL));
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = MANY, .row_tokens = TEXT};
    CHECK_OK(rad_req_to_token_pool_create(NULL, &rows, &c.rows, NULL));
    for (uint32_t i = 0; i < requests; i++)
        for (uint32_t p = 0; p < TEXT; p++) {
            c.text[i][p] = (rad_token)(test_random(&state) % shape->vocab);
            rad_req_to_token_row(c.rows, (rad_row)i + 1)[p] = (rad_slot)(1 + p * MANY + i);
        }
    print_message("  seed %llu\n", (unsigned long long)seed);
    for (uint32_t i = 0; i < requests; i++)
        go_on(&c, &i, &(uint32_t){TEXT - 1}, 1, true);

    uint32_t all[MANY], counts[MANY];
    for (uint32_t i = 0; i < requests; i++) {
        all[i] = i, counts[i] = 1 + (uint32_t)(test_random(&state) % 7);
    }
    go_on(&c, all, counts, requests, false);
    for (uint32_t i = 0; i < requests; i++)
        counts[i] = 1;
    for (uint32_t step = 0; step < DECODED; step++) {
        uint32_t who[MANY], n = 0;
        const uint64_t of = 1 + test_random(&state) % 4;
        for (uint32_t i = 0; i < requests; i++)
            if (step == 0 || test_random(&state) % of == 0) who[n++] = i;
        if (n) go_on(&c, who, counts, n, false);
    }
    const cuda_runner_stats stats = cuda_runner_get_stats(c.r);
    /* A step of nobody is none, and one of all may be padded past what the runner has rows for. */
    CHECK(stats.graph_steps >= DECODED / 4 && stats.captured > 1);
    rad_req_to_token_pool_destroy(c.rows);
    rad_token_to_kv_pool_destroy(c.kv);
    runner_destroy(c.r);
    end_model(&m);
    nothing_is_left();
}

static inline void run_crowd(const tiny_model *shape, weights_policy weights, int capability,
                             uint32_t requests, bool early)
{
    run_crowd_kv(shape, weights, RAD_BF16, capability, requests, early);
}

#endif
