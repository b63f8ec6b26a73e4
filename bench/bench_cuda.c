/* bench_cuda.c - whole models on a GPU: what steps take beside what the GPU can do, and whether a
 * row of logits is the same in every batch. Weights are drawn there, of real shapes, in bf16 or
 * q8_0.
 *
 *     bench_cuda [--figures] [--p1 N [--seconds X]] [--shape NAME]... [--dtype bf16|q8_0]
 *                [--kv bf16|fp8_e4m3|fp8_e5m2] [--json FILE] [--library PATH] [--gpu N]
 *                [--read-gb-s X] [--mma-tflops X] [--wgmma-tflops X] [--no-graphs]
 *                [--no-dependent] [--small]
 *
 * --figures (default):
 *     decode     ms of a step at 1, 8 and 32 requests behind contexts: a step, its tokens chosen on
 *                the GPU. Bytes are those that it must read: weights and K/V.
 *     prefill    2,048 and 8,192 tokens, the operations of its products and of attention
 *     tree       32 requests behind one prefix of 8,192 tokens, its K/V read once or by each
 *     load       an 8,192-token prompt's K/V from pinned host memory, beside computing them
 * --p1 N: N compositions, or as many as X seconds allow, put together at random (cut prompts,
 * cached prefixes, prefixes that come back from pinned memory into other slots, groups, steps that
 * only decode and go by graphs); each row of logits must be the one that its text gets alone, bit
 * by bit.
 * --shape: one of cuda_shapes.h. Without it figures are those of qwen3-0.6b and llama-8b, in q8_0
 * also of a mixture of experts, qwen3-30b-a3b; P1 is shown with qwen3-0.6b and a small mixture.
 * What a step reads of a mixture is what is expected of it where each token's experts are any.
 * --small: toy shapes and short contexts, to see that it runs.
 *
 * X are this GPU's ceilings (bench_cuda_ceilings), for the shares that are told. */
#define XXH_INLINE_ALL
#include "bench.h"
#include "cuda/cuda_runner.h"
#include "cuda_shapes.h"
#include "mem/host_kv_pool.h"
#include "mem/kv_codec.h"

#include <jansson.h>
#include <xxhash.h>

enum { MOST_REQS = 32, RUNS = 5, MOST_STEPS = 64, CHUNK = 2048 };

typedef struct bench {
    const cuda_shape *shape;
    runner *model;
    rad_req_to_token_pool *rows;
    rad_token_to_kv_pool *kv;
    rad_row row[MOST_REQS];
    uint32_t len[MOST_REQS]; /* tokens whose K/V a row has */
    uint32_t row_tokens, slots, next_slot;
    uint32_t max_tokens;
    bool small;
    const char *dtype, *kv_dtype; /* of weights; of K and V */
    double read_gb_s, mma_tflops, wgmma_tflops;
    json_t *json, *rows_found; /* all of it, and rows of it */
    const char *path;          /* where it is written as it comes: a run may be cut off */
    double p1_seconds;

    /* A batch. */
    rad_token *ids;
    uint32_t *positions;
    rad_slot *loc;
    rad_row batch_rows[MOST_REQS];
    uint32_t seq_lens[MOST_REQS], prefix[MOST_REQS], extend[MOST_REQS], start[MOST_REQS];
    uint32_t logits[MOST_REQS], reqs[MOST_REQS];
    forward_group group;
    forward_batch batch;
} bench;

static void must(rad_status status, const rad_error *err, const char *what)
{
    if (status >= 0) return;
    fprintf(stderr, "bench_cuda: %s: %s %s\n", what, rad_status_name(status), err->text);
    exit(1);
}

static uint64_t random_state = 1;

static uint32_t below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % n);
}

/* ---- a model, its pool and rows ---- */

/* What a step of so many tokens reads of a shape's; all of them: of INFINITY. */
static double weight_bytes(const bench *b, const cuda_shape *shape, double tokens)
{
    const double each = strcmp(b->dtype, "q8_0") ? 2 : 34.0 / 32;
    return each * (cuda_shape_layers_read(shape, tokens) + cuda_shape_head(shape));
}

static void open_model(bench *b, const cuda_runner_params *params, uint32_t slots,
                       uint32_t row_tokens)
{
    rad_error err = {0};
    static model_config config;
    must(cuda_shape_config(b->shape, &config, &err), &err, b->shape->name);
    const double begin = bench_now();
    cuda_runner_params p = *params;
    p.model.dtype = RAD_BF16;
    p.model.weights = strcmp(b->dtype, "q8_0") ? WEIGHTS_AS_DTYPE : WEIGHTS_AS_Q8_0;
    p.model.set_kv_dtype = kv_dtype_find(b->kv_dtype, &p.model.kv_dtype);
    p.model.max_batch_tokens = b->max_tokens;
    p.model.max_batch_logits = MOST_REQS;
    p.max_requests = MOST_REQS;
    must(cuda_runner_create_random(NULL, &config, 7, &p, &b->model, &err), &err, "model");
    b->slots = slots;
    b->row_tokens = row_tokens;
    must(runner_create_pool(b->model, NULL, RUNNER_ALL_LAYERS, slots, 1, &b->kv, &err), &err,
         "pool");
    const rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = MOST_REQS, .row_tokens = row_tokens};
    must(rad_req_to_token_pool_create(NULL, &rows, &b->rows, &err), &err, "rows");
    for (uint32_t i = 0; i < MOST_REQS; i++)
        must(rad_req_to_token_alloc(b->rows, &b->row[i]), &err, "row");
    b->ids = calloc(b->max_tokens, sizeof *b->ids);
    b->positions = calloc(b->max_tokens, sizeof *b->positions);
    b->loc = calloc(b->max_tokens, sizeof *b->loc);
    if (!b->ids || !b->positions || !b->loc) exit(1);
    printf("%s: %.2f GB of layers and head in %s, ready after %.1f s\n", b->shape->name,
           1e-9 * weight_bytes(b, b->shape, INFINITY), b->model->info.weights, bench_now() - begin);
}

static void close_model(bench *b)
{
    free(b->ids);
    free(b->positions);
    free(b->loc);
    rad_req_to_token_pool_destroy(b->rows);
    rad_token_to_kv_pool_destroy(b->kv);
    runner_destroy(b->model);
    b->rows = NULL, b->kv = NULL, b->model = NULL;
}

/* Slots lie scattered as a server leaves them: an odd step through all of them. */
static rad_slot take_slot(bench *b)
{
    const uint32_t n = b->slots;
    b->next_slot = (b->next_slot + 1) % n;
    const uint32_t run = 16; /* neighbours, as an allocator hands them out */
    const uint32_t block = b->next_slot / run, blocks = n / run;
    if (block >= blocks) return (rad_slot)(b->next_slot + 1);
    const uint32_t step = 10007 % blocks ? 10007 : 10009;
    return (rad_slot)((uint64_t)block * step % blocks * run + b->next_slot % run + 1);
}

/* All rows empty, all slots free. */
static void empty(bench *b)
{
    memset(b->len, 0, sizeof b->len);
    b->next_slot = 0;
}

/* ---- batches ---- */

static void begin_batch(bench *b)
{
    b->batch = (forward_batch){.input_ids = b->ids,
                               .positions = b->positions,
                               .out_cache_loc = b->loc,
                               .req_pool_indices = b->batch_rows,
                               .seq_lens = b->seq_lens,
                               .extend_prefix_lens = b->prefix,
                               .extend_seq_lens = b->extend,
                               .extend_start_loc = b->start,
                               .logits_indices = b->logits,
                               .req_to_token_pool = b->rows,
                               .token_to_kv_pool = b->kv};
}

/* `count` more tokens of request i; a row of logits behind the last one. */
static void add_tokens(bench *b, uint32_t i, const rad_token *ids, uint32_t count)
{
    forward_batch *batch = &b->batch;
    const uint32_t at = batch->num_tokens, r = batch->num_reqs;
    rad_slot *line = rad_req_to_token_row(b->rows, b->row[i]);
    for (uint32_t t = 0; t < count; t++) {
        b->ids[at + t] = ids ? ids[t] : (rad_token)below(b->model->info.vocab_size);
        b->positions[at + t] = b->len[i] + t;
        b->loc[at + t] = line[b->len[i] + t] = take_slot(b);
    }
    b->batch_rows[r] = b->row[i];
    b->prefix[r] = b->len[i];
    b->extend[r] = count;
    b->seq_lens[r] = b->len[i] += count;
    b->start[r] = at;
    b->logits[batch->num_logits++] = at + count - 1;
    b->reqs[r] = r;
    batch->num_reqs++;
    batch->num_tokens += count;
}

/* The first `tokens` positions of all requests of the batch are the same slots. */
static void add_group(bench *b, uint32_t tokens)
{
    b->group = (forward_group){.end = tokens / 64 * 64, .count = b->batch.num_reqs};
    b->batch.num_groups = 1;
    b->batch.groups = &b->group;
    b->batch.group_reqs = b->reqs;
}

/* The step, and its tokens. */
static void step(bench *b)
{
    static const sampling_params greedy = {.top_p = 1};
    runner_sample rows[MOST_REQS];
    rad_token tokens[MOST_REQS];
    rad_error err = {0};
    must(runner_forward(b->model, &b->batch, NULL, &err), &err, "forward");
    for (uint32_t i = 0; i < b->batch.num_logits; i++)
        rows[i] = (runner_sample){.params = &greedy, .position = b->seq_lens[i]};
    must(b->model->ops->sample(b->model, rows, b->batch.num_logits, tokens, &err), &err, "sample");
}

static void prefill(bench *b, uint32_t i, uint32_t tokens)
{
    while (tokens) {
        const uint32_t now = RAD_MIN(tokens, b->max_tokens);
        begin_batch(b);
        add_tokens(b, i, NULL, now);
        step(b);
        tokens -= now;
    }
}

/* ---- figures ---- */

static void save(const bench *b)
{
    if (!b->path || json_dump_file(b->json, b->path, JSON_INDENT(1)) == 0) return;
    fprintf(stderr, "bench_cuda: cannot write %s\n", b->path);
    exit(1);
}

static void keep(bench *b, const char *kind, json_t *row)
{
    json_object_set_new(row, "shape", json_string(b->shape->name));
    json_object_set_new(row, "what", json_string(kind));
    json_object_set_new(row, "dtype", json_string(b->dtype));
    json_object_set_new(row, "kv", json_string(b->kv_dtype));
    json_array_append_new(b->rows_found, row);
    fflush(stdout);
    save(b);
}

static double kv_bytes(const bench *b) /* of a position, all layers */
{
    return (double)b->model->info.full_token_bytes;
}

/* Steps of `reqs` requests that hold `context` tokens each; the rows keep what they had. */
static double decode_seconds(bench *b, uint32_t reqs, uint32_t shared)
{
    double seconds[MOST_STEPS];
    const int steps = b->small ? 3 : MOST_STEPS / 2;
    uint32_t len[MOST_REQS];
    const uint32_t next_slot = b->next_slot;
    memcpy(len, b->len, sizeof len);
    for (int s = -3; s < steps; s++) {
        begin_batch(b);
        for (uint32_t i = 0; i < reqs; i++)
            add_tokens(b, i, NULL, 1);
        if (shared) add_group(b, shared);
        const double begin = bench_now();
        step(b);
        if (s >= 0) seconds[s] = bench_now() - begin;
    }
    memcpy(b->len, len, sizeof len);
    b->next_slot = next_slot;
    return bench_median(seconds, steps);
}

static void decode(bench *b, uint32_t reqs, uint32_t context)
{
    empty(b);
    for (uint32_t i = 0; i < reqs; i++)
        prefill(b, i, context);
    const double seconds = decode_seconds(b, reqs, 0);
    const double bytes = weight_bytes(b, b->shape, reqs) + kv_bytes(b) * reqs * context;
    const double rate = 1e-9 * bytes / seconds;
    printf("  decode %2u x %5u: %8.3f ms, %9.1f tokens/s, %7.1f GB/s", reqs, context, seconds * 1e3,
           reqs / seconds, rate);
    if (b->read_gb_s > 0) printf(", %.0f%% of reading", 100 * rate / b->read_gb_s);
    putchar('\n');
    keep(b, "decode",
         json_pack("{s:i, s:i, s:f, s:f, s:f, s:f}", "requests", (int)reqs, "context", (int)context,
                   "ms", seconds * 1e3, "bytes", bytes, "gb_s", rate, "of_read",
                   b->read_gb_s > 0 ? rate / b->read_gb_s : 0.0));
}

static double prefill_seconds(bench *b, uint32_t tokens)
{
    double seconds[RUNS];
    const int runs = b->small ? 1 : RUNS;
    for (int r = -1; r < runs; r++) {
        empty(b);
        const double begin = bench_now();
        prefill(b, 0, tokens);
        if (r >= 0) seconds[r] = bench_now() - begin;
    }
    return bench_median(seconds, runs);
}

static double measure_prefill(bench *b, uint32_t tokens)
{
    const double seconds = prefill_seconds(b, tokens);
    const double products = 2 * cuda_shape_layers(b->shape) * tokens;
    const double attention = 2.0 * b->shape->layers * b->shape->heads * b->shape->head_dim *
                             tokens * (double)tokens;
    const double rate = 1e-12 * (products + attention) / seconds;
    printf("  prefill %5u:     %8.3f ms, %9.0f tokens/s, %7.1f TFLOP/s", tokens, seconds * 1e3,
           tokens / seconds, rate);
    if (b->mma_tflops > 0) printf(", %.0f%% of mma.sync", 100 * rate / b->mma_tflops);
    if (b->wgmma_tflops > 0) printf(", %.0f%% of wgmma", 100 * rate / b->wgmma_tflops);
    putchar('\n');
    keep(b, "prefill",
         json_pack("{s:i, s:f, s:f, s:f, s:f, s:f}", "tokens", (int)tokens, "ms", seconds * 1e3,
                   "tflops", rate, "tokens_s", tokens / seconds, "of_mma",
                   b->mma_tflops > 0 ? rate / b->mma_tflops : 0.0, "of_wgmma",
                   b->wgmma_tflops > 0 ? rate / b->wgmma_tflops : 0.0));
    return seconds;
}

/* All requests behind the first one's prefix, each with a few tokens of its own. */
static void measure_tree(bench *b, uint32_t reqs, uint32_t shared)
{
    enum { OWN = 16 };
    empty(b);
    prefill(b, 0, shared);
    const rad_slot *first = rad_req_to_token_row(b->rows, b->row[0]);
    for (uint32_t i = 1; i < reqs; i++) {
        memcpy(rad_req_to_token_row(b->rows, b->row[i]), first, shared * sizeof *first);
        b->len[i] = shared;
    }
    for (uint32_t i = 0; i < reqs; i++)
        prefill(b, i, OWN);
    const double each = decode_seconds(b, reqs, 0), once = decode_seconds(b, reqs, shared);
    printf("  %u behind a shared %u: %.3f ms, %.3f ms with groups: %.1f times as fast\n", reqs,
           shared, each * 1e3, once * 1e3, each / once);
    keep(b, "tree",
         json_pack("{s:i, s:i, s:f, s:f, s:f}", "requests", (int)reqs, "shared", (int)shared, "ms",
                   each * 1e3, "ms_with_groups", once * 1e3, "times", each / once));
}

/* Pinned memory for so many tokens, and its pages. */
static rad_host_kv_pool *make_host(const bench *b, uint32_t tokens, rad_page **pages)
{
    rad_error err = {0};
    rad_host_kv_pool *host = NULL;
    const rad_host_kv_pool_params params = {.struct_size = sizeof params,
                                            .device_pool = b->kv,
                                            .bytes = (uint64_t)(kv_bytes(b) * (tokens + 2)),
                                            .layout = RAD_HOST_LAYER_FIRST};
    must(rad_host_kv_pool_create(NULL, &params, &host, &err), &err, "host pool");
    *pages = calloc(tokens, sizeof **pages);
    if (!*pages) exit(1);
    for (uint32_t i = 0; i < tokens; i++)
        (*pages)[i] = (rad_page)i + 1;
    return host;
}

/* Layer by layer, as tiers do it. */
static void load_from_host(bench *b, rad_host_kv_pool *host, const rad_page *pages,
                           const rad_slot *slots, uint32_t tokens)
{
    rad_error err = {0};
    for (uint32_t layer = 0; layer < b->model->info.num_layers; layer++)
        must(host_kv_pool_load_layer(host, layer, pages, slots, tokens), &err, "from the host");
}

/* The prompt's pages into pinned memory and back. */
static void measure_load(bench *b, uint32_t tokens, double computed)
{
    rad_error err = {0};
    rad_page *pages;
    empty(b);
    prefill(b, 0, tokens);
    rad_host_kv_pool *host = make_host(b, tokens, &pages);
    const rad_slot *slots = rad_req_to_token_row(b->rows, b->row[0]);
    must(host_kv_pool_backup(host, slots, pages, tokens), &err, "to the host");
    double seconds[RUNS];
    const int runs = b->small ? 1 : RUNS;
    for (int r = 0; r < runs; r++) {
        const double begin = bench_now();
        load_from_host(b, host, pages, slots, tokens);
        seconds[r] = bench_now() - begin;
    }
    const double loaded = bench_median(seconds, runs), bytes = kv_bytes(b) * tokens;
    printf("  %u tokens from pinned memory: %.2f ms (%.1f GB/s), computed: %.2f ms: %.1f times as "
           "fast\n",
           tokens, loaded * 1e3, 1e-9 * bytes / loaded, computed * 1e3, computed / loaded);
    keep(b, "load",
         json_pack("{s:i, s:f, s:f, s:f, s:f}", "tokens", (int)tokens, "ms", loaded * 1e3, "gb_s",
                   1e-9 * bytes / loaded, "computed_ms", computed * 1e3, "times",
                   computed / loaded));
    free(pages);
    rad_host_kv_pool_destroy(host);
}

static void figures(bench *b, const cuda_runner_params *params)
{
    const uint32_t shared = b->small ? 128 : 8192, context = b->small ? 40 : 2048;
    b->max_tokens = b->small ? 128 : CHUNK;
    open_model(b, params, b->small ? 4096 : 32 * (2048 + 128) + 64, shared + 256);
    static const uint32_t reqs[] = {1, 8, 32};
    for (size_t i = 0; i < RAD_COUNT(reqs); i++)
        decode(b, b->small ? RAD_MIN(reqs[i], 3u) : reqs[i], context);
    if (!b->small) decode(b, 1, 8192);
    measure_prefill(b, b->small ? 48 : 2048);
    const double computed = measure_prefill(b, shared);
    measure_tree(b, b->small ? 4 : MOST_REQS, shared);
    measure_load(b, shared, computed);
    const cuda_runner_stats s = cuda_runner_get_stats(b->model);
    printf("  %llu steps, %llu by graphs (%llu made), %.1f KB uploaded a step\n",
           (unsigned long long)s.steps, (unsigned long long)s.graph_steps,
           (unsigned long long)s.captured, 1e-3 * (double)s.uploaded_bytes / (double)s.steps);
    close_model(b);
}

/* ---- P1 ---- */

/* Texts, of which so many begin alike; their logits are known behind each so many tokens, and at
 * their end. */
enum { TEXTS = 24, FAMILY = 4, KNOWN = 16 };

typedef struct p1_text {
    rad_token *ids;
    uint32_t len, common; /* so many tokens at its beginning are those of its family's first */
    uint64_t *digest;     /* of the logits behind so many tokens, where known */
} p1_text;

static uint64_t digest_of(const bench *b, const float *logits)
{
    return XXH3_64bits(logits, b->model->info.vocab_size * sizeof *logits) | 1;
}

/* Alone and cold: the text in one prefill, or what the buffers hold of it at a time. */
static uint64_t alone(bench *b, const p1_text *t, uint32_t len)
{
    const float *logits = NULL;
    rad_error err = {0};
    empty(b);
    for (uint32_t at = 0; at < len; at += RAD_MIN(len - at, b->max_tokens)) {
        begin_batch(b);
        add_tokens(b, 0, t->ids + at, RAD_MIN(len - at, b->max_tokens));
        must(runner_forward(b->model, &b->batch, &logits, &err), &err, "alone");
    }
    return digest_of(b, logits);
}

static void make_texts(bench *b, p1_text *texts, uint32_t longest)
{
    for (uint32_t i = 0; i < TEXTS; i++) {
        p1_text *t = &texts[i];
        t->len = longest / 4 + below(longest * 3 / 4);
        t->ids = calloc(longest, sizeof *t->ids);
        t->digest = calloc(longest + 1, sizeof *t->digest);
        if (!t->ids || !t->digest) exit(1);
        for (uint32_t k = 0; k < t->len; k++)
            t->ids[k] = (rad_token)below(b->model->info.vocab_size);
        t->common = t->len;
        if (i % FAMILY == 0) continue;
        const p1_text *base = &texts[i - i % FAMILY];
        const uint32_t most = RAD_MIN(t->len, base->len);
        t->common = most - below(most / 2 + 1);
        memcpy(t->ids, base->ids, t->common * sizeof *t->ids);
    }
}

/* The requests of a family in the batch as a group, as far as whole blocks of their prefixes lie in
 * the same slots. */
static bool group_family(bench *b, const uint32_t *who, uint32_t family)
{
    uint32_t count = 0, at = 0, same = ~0u;
    const rad_slot *first = NULL;
    for (uint32_t r = 0; r < b->batch.num_reqs; r++) {
        if (who[r] / FAMILY != family || b->prefix[r] < 64) continue;
        const rad_slot *line = rad_req_to_token_row(b->rows, b->batch_rows[r]);
        if (!first) first = line;
        same = RAD_MIN(same, b->prefix[r]);
        uint32_t common = 0;
        while (common < same && line[common] == first[common])
            common++;
        if (common < 64) continue; /* its own copy */
        same = common;
        b->reqs[count++] = r;
    }
    if (count < 2) {
        for (uint32_t r = 0; r < b->batch.num_reqs; r++)
            b->reqs[r] = r;
        return false;
    }
    at = count;
    for (uint32_t r = 0; r < b->batch.num_reqs; r++) {
        bool is_in = false;
        for (uint32_t i = 0; i < count; i++)
            is_in |= b->reqs[i] == r;
        if (!is_in) b->reqs[at++] = r;
    }
    add_group(b, same);
    b->group.count = count;
    return true;
}

/* Some texts in some order, each up to a length drawn anew. */
typedef struct composition {
    p1_text *texts;
    uint32_t order[TEXTS], target[TEXTS], n;
    uint32_t who[TEXTS]; /* of the requests of the batch */
    uint32_t rows, wrong;
    uint32_t loaded; /* tokens that came from the host */
    bool grouped;
    rad_host_kv_pool *host;
    const rad_page *pages; /* of it, as many as a text has tokens */
} composition;

static void draw(composition *c, uint32_t num_texts)
{
    c->n = 1 + below(num_texts);
    for (uint32_t i = 0; i < num_texts; i++)
        c->order[i] = i;
    for (uint32_t i = num_texts - 1; i > 0; i--) {
        const uint32_t k = below(i + 1), x = c->order[i];
        c->order[i] = c->order[k];
        c->order[k] = x;
    }
    for (uint32_t i = 0; i < c->n; i++) { /* lengths behind which the logits are known */
        const uint32_t len = c->texts[c->order[i]].len, drawn = below(len) / KNOWN * KNOWN + KNOWN;
        c->target[i] = RAD_MIN(drawn, len);
    }
}

/* A text's prefix goes to the host and comes back, into slots that had others' K and V. */
static void pass_by_host(bench *b, rad_host_kv_pool *host, uint32_t text, const rad_page *pages)
{
    rad_error err = {0};
    rad_slot *line = rad_req_to_token_row(b->rows, b->row[text]);
    const uint32_t tokens = b->len[text];
    must(host_kv_pool_backup(host, line, pages, tokens), &err, "to the host");
    for (uint32_t i = 0; i < tokens; i++)
        line[i] = take_slot(b);
    load_from_host(b, host, pages, line, tokens);
}

/* What is cached before: of some texts a prefix, computed in a batch of its own; and texts of a
 * family go on in each other's slots. */
static void compute_prefixes(bench *b, composition *c)
{
    const float *logits; /* waited for, so K and V are there when they are copied */
    rad_error err = {0};
    for (uint32_t i = 0; i < c->n; i++) {
        const uint32_t x = c->order[i], want = below(c->target[i]);
        if (!want || below(3) == 0) continue;
        begin_batch(b);
        add_tokens(b, x, c->texts[x].ids, RAD_MIN(want, b->max_tokens));
        must(runner_forward(b->model, &b->batch, &logits, &err), &err, "prefix");
        if (below(3)) continue;
        pass_by_host(b, c->host, x, c->pages);
        c->loaded += b->len[x];
    }
    for (uint32_t i = 0; i < c->n; i++) {
        const uint32_t x = c->order[i], first = x - x % FAMILY;
        for (uint32_t m = first; m < first + FAMILY; m++) {
            const uint32_t alike = RAD_MIN(c->texts[x].common, c->texts[m].common);
            const uint32_t have = RAD_MIN(RAD_MIN(alike, b->len[m]), c->target[i] - 1);
            if (m == x || have <= b->len[x]) continue;
            memcpy(rad_req_to_token_row(b->rows, b->row[x]),
                   rad_req_to_token_row(b->rows, b->row[m]), have * sizeof(rad_slot));
            b->len[x] = have;
        }
    }
}

/* A batch of what is missing, cut where it falls; one in three only decodes. False: nothing is. */
static bool fill_batch(bench *b, composition *c)
{
    const bool decodes = below(3) == 0;
    uint32_t room = 1 + below(b->max_tokens);
    bool left = false;
    begin_batch(b);
    for (uint32_t i = 0; i < c->n; i++) {
        const uint32_t x = c->order[i], more = c->target[i] - RAD_MIN(c->target[i], b->len[x]);
        if (!more) continue;
        left = true;
        const uint32_t most = RAD_MIN(decodes ? 1 : more, room), drawn = 1 + below(more);
        const uint32_t count = below(3) ? RAD_MIN(most, drawn) : most;
        if (!count) continue;
        c->who[b->batch.num_reqs] = x;
        add_tokens(b, x, c->texts[x].ids + b->len[x], count);
        room -= count;
    }
    for (uint32_t f = below(TEXTS / FAMILY), k = 0; k < TEXTS / FAMILY && below(8); k++)
        if (group_family(b, c->who, (f + k) % (TEXTS / FAMILY))) {
            c->grouped = true;
            break;
        }
    return left;
}

static void compose(bench *b, composition *c, uint32_t num_texts)
{
    const float *logits = NULL;
    rad_error err = {0};
    empty(b);
    draw(c, num_texts);
    compute_prefixes(b, c);
    while (fill_batch(b, c)) {
        must(runner_forward(b->model, &b->batch, &logits, &err), &err, "batch");
        for (uint32_t r = 0; r < b->batch.num_reqs; r++) {
            const p1_text *t = &c->texts[c->who[r]];
            const uint64_t known = t->digest[b->seq_lens[r]];
            if (!known) continue;
            c->rows++;
            c->wrong += known != digest_of(b, logits + (size_t)r * b->model->info.vocab_size);
        }
    }
}

/* What was found so far. */
typedef struct p1_found {
    uint32_t count, with_groups, rows, wrong, wrong_compositions, loaded;
    bool kept; /* it has its place in the JSON */
} p1_found;

static void keep_p1(const bench *b, p1_found *f)
{
    json_t *all = json_object_get(b->json, "p1"); /* one for each shape */
    if (!all) json_object_set_new(b->json, "p1", all = json_array());
    json_t *one = json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "shape",
                            b->shape->name, "dtype", b->dtype, "kv", b->kv_dtype, "compositions",
                            (int)f->count, "with_groups", (int)f->with_groups, "rows", (int)f->rows,
                            "differ", (int)f->wrong, "wrong_compositions",
                            (int)f->wrong_compositions, "loaded_tokens", (int)f->loaded,
                            "graph_steps", (int)cuda_runner_get_stats(b->model).graph_steps);
    if (f->kept)
        json_array_set_new(all, json_array_size(all) - 1, one);
    else
        json_array_append_new(all, one);
    f->kept = true;
    save(b);
}

static int p1(bench *b, const cuda_runner_params *params, uint32_t most)
{
    const uint32_t longest = b->small ? 120 : 900, num_texts = b->small ? 2 * FAMILY : TEXTS;
    p1_text texts[TEXTS] = {0};
    b->max_tokens = b->small ? 64 : 1024;
    open_model(b, params, 2 * TEXTS * longest + 64, longest + 8); /* twice: see pass_by_host */
    random_state = 12345;
    make_texts(b, texts, longest);
    for (uint32_t i = 0; i < num_texts; i++)
        for (uint32_t len = 1; len <= texts[i].len; len++)
            if (len == texts[i].len || len % KNOWN == 0)
                texts[i].digest[len] = alone(b, &texts[i], len);
    rad_page *pages;
    rad_host_kv_pool *host = make_host(b, longest, &pages);
    p1_found f = {0};
    const double begin = bench_now();
    double saved = begin;
    while (f.count < most && (b->p1_seconds == 0 || bench_now() - begin < b->p1_seconds)) {
        composition c = {.texts = texts, .host = host, .pages = pages};
        compose(b, &c, num_texts);
        f.count++;
        f.rows += c.rows;
        f.wrong += c.wrong;
        f.loaded += c.loaded;
        f.wrong_compositions += c.wrong > 0;
        f.with_groups += c.grouped;
        if (bench_now() - saved < 2) continue;
        keep_p1(b, &f);
        saved = bench_now();
    }
    printf("  P1: %u compositions (%u with groups), %u rows of logits, %u differ from those alone, "
           "in %u compositions; %llu steps in graphs, %u tokens from the host; %.1f s\n",
           f.count, f.with_groups, f.rows, f.wrong, f.wrong_compositions,
           (unsigned long long)cuda_runner_get_stats(b->model).graph_steps, f.loaded,
           bench_now() - begin);
    keep_p1(b, &f);
    rad_host_kv_pool_destroy(host);
    free(pages);
    for (uint32_t i = 0; i < TEXTS; i++) {
        free(texts[i].ids);
        free(texts[i].digest);
    }
    close_model(b);
    return f.wrong || !f.rows ? 1 : 0;
}

/* Whether a GPU with so much free has room for the shape, its pool and the buffers. */
static bool fits(const bench *b, const cuda_shape *shape, uint64_t free_bytes)
{
    const double room = 10e9; /* the largest pool of the figures is llama-8b's, 9.1 GB */
    if (b->small || weight_bytes(b, shape, INFINITY) + room < (double)free_bytes) return true;
    printf("%s: left out, this GPU has no room for it\n", shape->name);
    return false;
}

/* Dense shapes, and a mixture of experts where it says something of its own: fp8 is about K and V
 * alone, and figures are those of a large one, which has room in q8_0. The first is always tried,
 * so that a GPU too small for any is an error. Returns how many. */
static uint32_t usual_shapes(const bench *b, bool p1, uint64_t free_bytes, const cuda_shape **out)
{
    const bool q8_0 = !strcmp(b->dtype, "q8_0"), bf16_kv = !strcmp(b->kv_dtype, "bf16");
    const struct {
        const char *name;
        bool wanted;
    } usual[] = {{"toy", b->small && !q8_0}, /* one is enough to see that it runs */
                 {"toy-moe", b->small && q8_0},
                 {"qwen3-0.6b", !b->small},
                 {"moe-0.7b", !b->small && bf16_kv && p1},
                 {"llama-8b", !b->small && !p1},
                 {"qwen3-30b-a3b", !b->small && bf16_kv && !p1 && q8_0}};
    uint32_t count = 0;
    for (size_t i = 0; i < RAD_COUNT(usual); i++) {
        const cuda_shape *shape = cuda_shape_find(usual[i].name);
        if (usual[i].wanted && (!count || fits(b, shape, free_bytes))) out[count++] = shape;
    }
    return count;
}

static int usage(FILE *to)
{
    fputs("usage: bench_cuda [--figures] [--p1 N [--seconds X]] [--shape NAME]... [--dtype TYPE]\n"
          "                  [--kv TYPE] [--json FILE] [--library PATH] [--gpu N] [--read-gb-s X] "
          "[--mma-tflops X] [--wgmma-tflops X]\n"
          "                  [--no-graphs] [--no-dependent] [--small]\n",
          to);
    return to == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
    bench b = {.dtype = "bf16", .kv_dtype = "bf16"};
    cuda_runner_params params = {0};
    const cuda_shape *shapes[RAD_COUNT(cuda_shapes)];
    uint32_t num_shapes = 0, compositions = 0;
    bool wants_figures = false;
    rad_dtype kv;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        const struct {
            const char *name;
            bool *flag;
        } flags[] = {{"--figures", &wants_figures},
                     {"--small", &b.small},
                     {"--no-graphs", &params.no_graphs},
                     {"--no-dependent", &params.no_dependent}};
        bool is_flag = false;
        if (!strcmp(word, "--help")) return usage(stdout);
        for (size_t f = 0; f < RAD_COUNT(flags); f++)
            if (!strcmp(word, flags[f].name)) is_flag = *flags[f].flag = true;
        if (is_flag) continue;
        if (!value) return usage(stderr);
        i++;
        const cuda_shape *shape = cuda_shape_find(value);
        if (!strcmp(word, "--p1"))
            compositions = (uint32_t)atoi(value);
        else if (!strcmp(word, "--shape") && shape && num_shapes < RAD_COUNT(shapes))
            shapes[num_shapes++] = shape;
        else if (!strcmp(word, "--dtype") && (!strcmp(value, "bf16") || !strcmp(value, "q8_0")))
            b.dtype = value;
        else if (!strcmp(word, "--kv") && kv_dtype_find(value, &kv))
            b.kv_dtype = value;
        else if (!strcmp(word, "--json"))
            b.path = value;
        else if (!strcmp(word, "--library"))
            params.library = value;
        else if (!strcmp(word, "--gpu"))
            params.ordinal = (uint32_t)atoi(value);
        else if (!strcmp(word, "--seconds"))
            b.p1_seconds = atof(value);
        else if (!strcmp(word, "--read-gb-s"))
            b.read_gb_s = atof(value);
        else if (!strcmp(word, "--mma-tflops"))
            b.mma_tflops = atof(value);
        else if (!strcmp(word, "--wgmma-tflops"))
            b.wgmma_tflops = atof(value);
        else
            return usage(stderr);
    }
    rad_error err = {0};
    cuda_gpu_info gpu;
    must(cuda_gpu_look(params.library, params.ordinal, &gpu, &err), &err, "GPU");
    printf("%s, arithmetic of sm_%u, %u multiprocessors, %.1f of %.1f GB free\n", gpu.name,
           gpu.arch, gpu.multiprocessors, (double)gpu.free_bytes * 1e-9,
           (double)gpu.total_bytes * 1e-9);
    if (!num_shapes) num_shapes = usual_shapes(&b, compositions > 0, gpu.free_bytes, shapes);
    b.json = json_pack("{s:s, s:[]}", "gpu", gpu.name, "rows");
    b.rows_found = json_object_get(b.json, "rows");
    int code = 0;
    for (uint32_t i = 0; i < num_shapes; i++) {
        b.shape = shapes[i];
        if (wants_figures || !compositions) figures(&b, &params);
        if (compositions) code |= p1(&b, &params, compositions);
    }
    json_decref(b.json);
    return code;
}
