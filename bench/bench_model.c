/* bench_model.c - load time, prefill and decode tokens/s of a GGUF model.
 *
 *     bench_model [-t threads] [-n prompt tokens] [-s seconds per line] [--f32]
 *                 [--weights file|dtype|q8_0] [--attn ref|avx512|avx2|scalar|none] FILE...
 *
 * Prefill: one prompt in one batch, logits of its last token. Decode: 1, 8 and 32 requests,
 * one token each, behind prompts of that length. `--attn none` leaves attention out (the
 * answers are then wrong), which shows what the rest costs.
 *
 * A step reads every matrix once and does two operations per token and weight, and attention two
 * per value of q and of the output and position seen, so its bound is the larger of the matrices'
 * (and recurrent states') bytes at the rate at which this machine reads a buffer of that size and
 * of those operations at the instructions' rates (those that the process chooses, so up to
 * RADISH_ISA), and the K/V bytes of all contexts at the former rate; all rates are measured in the
 * same run. "With the scales": products at the rate of all that a block of 32 needs, not of its
 * products alone (instruction_peak.h). A mixture's matrices count as far as the step's tokens have
 * chosen their experts.
 *
 * "products alone": every matrix of the model in turn, times as many rows as it has in the prefill,
 * an expert's counted as if each token's `used` were dense matrices that all tokens go through:
 * what of the prefill is not the products' own time. */
#include "bench.h"
#include "bench_product.h"
#include "instruction_peak.h"

#include "model/gemm.h"
#include "model/model_runner.h"
#include "model/tensor_rows.h"
#include "model/weights_pack.h"

enum { MOST_REQS = 32 };

typedef struct job {
    runner *model;
    rad_req_to_token_pool *rows;
    rad_token_to_kv_pool *kv;
    rad_state_pool *states; /* NULL: the model has none; */
    rad_state state[MOST_REQS];
    rad_token *ids;
    uint32_t *positions;
    rad_slot *loc;
    uint32_t prompt;   /* tokens in every row */
    uint32_t num_reqs; /* of the batch that is measured */
    uint32_t extend;   /* new tokens of each */
    /* For the bound: */
    double expert_bytes, experts_used; /* of one expert in a layer, and of weight_bytes: how many */
    double weight_bytes, layer_weights, output_weights; /* a step's; numbers in matrices */
    double q_dim;                                       /* num_heads * v_head_dim */
    double read_rate, flop_rate, attn_rate;             /* bytes and operations a second */
    double scaled_rate; /* operations with what the scales of blocks need; 0: there are none */
    compute_pool *pool; /* that measures them */
} job;

static void must(rad_status status, const rad_error *err)
{
    if (status == RAD_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static void no_attention(const attn_backend *self, const radix_attention *layer,
                         const forward_batch *batch, const float *q, float *out, compute_pool *pool)
{
    (void)self, (void)q, (void)pool;
    memset(out, 0, (size_t)batch->num_tokens * layer->num_heads * layer->v_head_dim * sizeof *out);
}

static const attn_backend none = {"none", no_attention};

/* Each request's last `extend` tokens. */
static void run_batch(void *arg)
{
    const job *j = arg;
    rad_row rows[MOST_REQS];
    rad_state before[MOST_REQS];
    uint32_t seq_lens[MOST_REQS], prefix[MOST_REQS], extend[MOST_REQS], start[MOST_REQS],
        last[MOST_REQS];
    uint32_t n = 0;
    for (uint32_t r = 0; r < j->num_reqs; r++) {
        rows[r] = r + 1, seq_lens[r] = j->prompt, extend[r] = j->extend, start[r] = n;
        prefix[r] = j->prompt - j->extend;
        before[r] = prefix[r] ? j->state[r] : 0; /* whatever stands there: it takes as long */
        for (uint32_t i = 0; i < j->extend; i++, n++) {
            j->positions[n] = prefix[r] + i;
            j->loc[n] = rad_req_to_token_row(j->rows, rows[r])[prefix[r] + i];
        }
        last[r] = n - 1;
    }
    const forward_batch batch = {.num_reqs = j->num_reqs,
                                 .num_tokens = n,
                                 .input_ids = j->ids,
                                 .positions = j->positions,
                                 .out_cache_loc = j->loc,
                                 .req_pool_indices = rows,
                                 .seq_lens = seq_lens,
                                 .extend_prefix_lens = prefix,
                                 .extend_seq_lens = extend,
                                 .extend_start_loc = start,
                                 .num_logits = j->num_reqs,
                                 .logits_indices = last,
                                 .req_to_token_pool = j->rows,
                                 .token_to_kv_pool = j->kv,
                                 .state_pool = j->states,
                                 .state_in = before,
                                 .state_out = j->state};
    const float *logits;
    rad_error err;
    must(runner_forward(j->model, &batch, &logits, &err), &err);
}

/* Seconds that the step cannot do without where products go at `flop_rate`; see the top. */
static double bound_of(const job *j, double flop_rate)
{
    const runner_info *info = &j->model->info;
    double tokens = (double)j->num_reqs * j->extend;
    double flop = 2 * (tokens * j->layer_weights + j->num_reqs * j->output_weights);
    uint32_t kv_size = info->kv_dtype == RAD_F32 ? 4 : 2; /* as params.dtype: f32 or bf16 */
    double kv = kv_size * (double)info->num_layers * info->num_kv_heads *
                (info->head_dim + info->v_head_dim) * j->num_reqs * j->prompt;
    double positions = j->prompt - 0.5 * (j->extend - 1.0); /* that a token sees */
    double attention = 2 * j->q_dim * (1 + (double)info->v_head_dim / info->head_dim) *
                       info->num_layers * tokens * positions;
    const double chosen = (double)model_runner_experts_read(j->model);
    const double weights = j->weight_bytes +
                           (chosen > 0 ? (chosen - j->experts_used) * j->expert_bytes : 0);
    double states = 2.0 * (double)info->state_bytes * j->num_reqs; /* read and written */
    double read = (weights + states) / j->read_rate;
    double compute = flop / flop_rate + attention / j->attn_rate;
    return (read > compute ? read : compute) + kv / j->read_rate;
}

/* Bytes a second of a buffer as large as the step's weights. Others use the machine's memory, too:
 * the better of the rates before and after a line is what its bound is made of. */
static double read_rate_of(const job *j)
{
    return bench_read_rate((size_t)j->weight_bytes >> 16 << 16, j->pool) * 1e9;
}

static double measure(job *j, const char *what, uint32_t num_reqs, uint32_t extend, double budget)
{
    j->num_reqs = num_reqs, j->extend = extend;
    const double before = read_rate_of(j);
    bench_times t = bench_measure(run_batch, j, budget);
    const double after = read_rate_of(j);
    j->read_rate = RAD_MAX(before, after);
    double tokens = (double)num_reqs * extend;
    printf("  %-24s %9.1f tokens/s   %8.2f ms a step (p10 %.2f, p90 %.2f, %d runs)", what,
           tokens / t.p50, t.p50 * 1e3, t.p10 * 1e3, t.p90 * 1e3, t.runs);
    double bound = bound_of(j, j->flop_rate);
    if (j->flop_rate > 0) printf("   bound %.2f ms, %.0f%%", bound * 1e3, 100 * bound / t.p50);
    if (j->scaled_rate > 0)
        printf(", with the scales %.0f%%", 100 * bound_of(j, j->scaled_rate) / t.p50);
    printf("   (%.1f GB/s)\n", j->read_rate * 1e-9);
    return t.p50;
}

static void make_pools(job *j)
{
    rad_error err;
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = MOST_REQS, .row_tokens = j->prompt};
    must(rad_req_to_token_pool_create(NULL, &rows, &j->rows, &err), &err);
    must(runner_create_pool(j->model, NULL, RUNNER_ALL_LAYERS, MOST_REQS * j->prompt, 1, &j->kv,
                            &err),
         &err);
    must(runner_create_state_pool(j->model, NULL, MOST_REQS, &j->states, &err), &err);
    for (uint32_t r = 0; j->states && r < MOST_REQS; r++) {
        must(rad_state_alloc(j->states, &j->state[r]), &err);
        memset(rad_state_address(j->states, j->state[r]), 0, j->model->info.state_bytes);
    }
    for (rad_row row = 1; row <= MOST_REQS; row++)
        for (uint32_t p = 0; p < j->prompt; p++)
            rad_req_to_token_row(j->rows, row)[p] = (rad_slot)((row - 1) * j->prompt + p + 1);
}

static gemm_type type_of(const gguf_tensor *t, const model_runner_params *p)
{
    if (p->weights == WEIGHTS_AS_Q8_0) return GEMM_Q8_0;
    const gemm_type native = weights_native_type(t->type);
    if (p->weights == WEIGHTS_AS_FILE && native < GEMM_NUM_TYPES) return native;
    if (p->weights == WEIGHTS_AS_FILE && p->dtype == RAD_F32 && t->type == GGML_BF16)
        return GEMM_BF16W; /* but for odd columns */
    if (p->weights == WEIGHTS_AS_FILE && p->dtype == RAD_F32 && t->type == GGML_F16)
        return GEMM_F16W;
    return p->dtype == RAD_F32 ? GEMM_F32 : GEMM_BF16;
}

static bool ends_with(const gguf_tensor *t, const char *tail)
{
    const size_t len = strlen(tail);
    return t->name.len >= len && !memcmp(t->name.data + t->name.len - len, tail, len);
}

/* The first layer's that has one. */
static const gguf_tensor *first_of(const gguf_file *file, const char *tail)
{
    for (uint64_t i = 0; i < gguf_num_tensors(file); i++)
        if (ends_with(gguf_tensor_at(file, i), tail)) return gguf_tensor_at(file, i);
    return NULL;
}

/* Counts the matrices that a step reads: all but an embedding table of its own, of which it
 * reads one row a token. Returns what the largest one is held as. */
static gemm_type count_weights(const gguf_file *file, const model_runner_params *p, job *j)
{
    bool own_table = gguf_find_tensor(file, "output.weight") != NULL;
    const gguf_tensor *table = gguf_find_tensor(file, "token_embd.weight");
    const gguf_tensor *output = own_table ? gguf_find_tensor(file, "output.weight") : table;
    const gguf_tensor *q = first_of(file, ".attn_output.weight");
    if (!first_of(file, ".attn_q.weight")) q = NULL;
    gemm_type main_type = GEMM_F32;
    uint64_t most = 0;
    double expert_bytes = 0, experts = 0;  /* of all, and how many, over all layers */
    j->q_dim = q ? (double)q->dims[0] : 0; /* no such tensor: attention is not in the bound */
    for (uint64_t i = 0; i < gguf_num_tensors(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        if (t->num_dims < 2 || (own_table && t == table)) continue;
        uint64_t count = t->dims[0] * t->dims[1];
        const double matrices = (double)t->dims[2] * tensor_share(file, t);
        const double bytes =
            (double)gemm_weight_bytes(type_of(t, p), (uint32_t)t->dims[1], (uint32_t)t->dims[0]);
        j->weight_bytes += matrices * bytes;
        if (t->dims[2] > 1) expert_bytes += (double)t->dims[2] * bytes;
        if (ends_with(t, ".ffn_down_exps.weight"))
            experts += (double)t->dims[2], j->experts_used += matrices;
        *(t == output ? &j->output_weights : &j->layer_weights) += matrices * (double)count;
        if (count > most) most = count, main_type = type_of(t, p);
    }
    if (experts > 0) j->expert_bytes = expert_bytes / experts;
    return main_type;
}

/* ---- products alone ---- */

enum { MOST_SHAPES = 64, MOST_COPIES = 64 };

typedef struct shape {
    bench_product product;
    double times; /* in a step */
} shape;

static bool is_same(const bench_product *a, const bench_product *b)
{
    return a->type == b->type && a->m == b->m && a->n == b->n && a->k == b->k;
}

static double product_seconds(bench_product *p, double budget)
{
    product_begin(p, NULL, MOST_COPIES);
    const double seconds = bench_measure(product_run, p, budget).p50;
    product_end(p);
    return seconds;
}

/* All of a prefill's, seconds. */
static double products_seconds(const gguf_file *file, const model_runner_params *params,
                               compute_pool *pool, uint32_t tokens, double budget)
{
    shape all[MOST_SHAPES];
    uint32_t num = 0;
    bool own_table = gguf_find_tensor(file, "output.weight") != NULL;
    for (uint64_t i = 0; i < gguf_num_tensors(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        const bool table = ends_with(t, "token_embd.weight"),
                   output = ends_with(t, "output.weight");
        if (t->num_dims < 2 || t->dims[0] < 32 || (own_table && table)) continue;
        const bench_product p = {.type = type_of(t, params),
                                 .m = table || (output && !ends_with(t, "_output.weight")) ? 1
                                                                                           : tokens,
                                 .n = (uint32_t)t->dims[1],
                                 .k = (uint32_t)t->dims[0],
                                 .pool = pool};
        uint32_t at = 0;
        while (at < num && !is_same(&all[at].product, &p))
            at++;
        if (at == MOST_SHAPES) return 0;
        if (at == num) all[num++] = (shape){.product = p};
        all[at].times += (double)t->dims[2] * tensor_share(file, t);
    }
    double seconds = 0;
    for (uint32_t i = 0; i < num; i++)
        seconds += all[i].times * product_seconds(&all[i].product, budget);
    return seconds;
}

/* `pool` measures what the machine can do. */
static void bench_file(const char *path, model_runner_params params, compute_pool *pool,
                       uint32_t prompt, double budget)
{
    rad_error err;
    gguf_file *file;
    double t = bench_now();
    must(gguf_open(NULL, path, &file, &err), &err);
    params.max_batch_tokens = prompt > MOST_REQS ? prompt : MOST_REQS;
    params.max_batch_logits = MOST_REQS;
    job j = {.prompt = prompt};
    must(model_runner_create(NULL, file, &params, &j.model, &err), &err);
    gemm_type type = count_weights(file, &params, &j);
    printf("%s, %s, attention %s: loaded in %.2f s\n", path, gemm_type_name(type),
           params.attn ? params.attn->name : "default", bench_now() - t);
    j.pool = pool;
    const peak_kind kind = peak_kind_of(type);
    j.flop_rate = instruction_peak_gflops(kind, pool) * 1e9;
    if (kind == PEAK_INT8 || kind == PEAK_SMALL_INT)
        j.scaled_rate = 1e9 * instruction_peak_gflops(kind == PEAK_INT8 ? PEAK_INT8_SCALED
                                                                        : PEAK_SMALL_INT_SCALED,
                                                      pool);
    bool pairs = j.model->info.kv_dtype == RAD_BF16 && kind != PEAK_F32;
    j.attn_rate = instruction_peak_gflops(pairs ? PEAK_BF16 : PEAK_F32, pool) * 1e9;
    printf("  a step reads %.1f MB of weights; instructions %.0f GFLOP/s\n", j.weight_bytes * 1e-6,
           j.flop_rate * 1e-9);

    make_pools(&j);
    size_t most = params.max_batch_tokens;
    j.ids = calloc(most, sizeof *j.ids);
    j.positions = calloc(most, sizeof *j.positions);
    j.loc = calloc(most, sizeof *j.loc);
    if (!j.ids || !j.positions || !j.loc) abort();
    for (size_t i = 0; i < most; i++)
        j.ids[i] = (rad_token)(i * 7919 % j.model->info.vocab_size);

    char what[64];
    snprintf(what, sizeof what, "prefill %u", prompt);
    const double prefill = measure(&j, what, 1, prompt, budget);
    const double alone = products_seconds(file, &params, pool, prompt, budget / 8);
    gguf_close(file);
    if (alone > 0)
        printf("  products alone           %9.1f tokens/s   %8.2f ms   %.0f%% of the prefill\n",
               prompt / alone, alone * 1e3, 100 * alone / prefill);
    measure(&j, "decode, 1 request", 1, 1, budget);
    measure(&j, "decode, 8 requests", 8, 1, budget);
    measure(&j, "decode, 32 requests", 32, 1, budget);

    free(j.ids), free(j.positions), free(j.loc);
    rad_token_to_kv_pool_destroy(j.kv);
    rad_state_pool_destroy(j.states);
    rad_req_to_token_pool_destroy(j.rows);
    runner_destroy(j.model);
}

static const attn_backend *find_attention(const char *name)
{
    if (!strcmp(name, "none")) return &none;
    if (!strcmp(name, "ref")) return attn_ref();
    const attn_backend *attn = attn_cpu(name);
    if (!attn) fprintf(stderr, "this CPU has no %s\n", name), exit(1);
    return attn;
}

static weights_policy find_policy(const char *name)
{
    if (!strcmp(name, "file")) return WEIGHTS_AS_FILE;
    if (!strcmp(name, "q8_0")) return WEIGHTS_AS_Q8_0;
    if (strcmp(name, "dtype")) fprintf(stderr, "no weights '%s'\n", name), exit(2);
    return WEIGHTS_AS_DTYPE;
}

int main(int argc, char **argv)
{
    uint32_t threads = 0, prompt = 512;
    double budget = 1;
    model_runner_params params = {.weights = WEIGHTS_AS_FILE};
    params.dtype = cpu_has(CPU_AVX512BF16) ? RAD_BF16
                                           : RAD_F32; /* as --dtype auto of the program */
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (!strcmp(argv[i], "-t") && i + 1 < argc)
            threads = (uint32_t)atoi(argv[++i]);
        else if (!strcmp(argv[i], "-n") && i + 1 < argc)
            prompt = (uint32_t)atoi(argv[++i]);
        else if (!strcmp(argv[i], "-s") && i + 1 < argc)
            budget = atof(argv[++i]);
        else if (!strcmp(argv[i], "--f32"))
            params.dtype = RAD_F32;
        else if (!strcmp(argv[i], "--weights") && i + 1 < argc)
            params.weights = find_policy(argv[++i]);
        else if (!strcmp(argv[i], "--attn") && i + 1 < argc)
            params.attn = find_attention(argv[++i]);
        else
            break;
    }
    if (i >= argc || argv[i][0] == '-' || !prompt)
        return fprintf(stderr, "usage: bench_model [-t threads] [-n prompt tokens] [-s seconds] "
                               "[--f32] [--weights file|dtype|q8_0] [--attn NAME] FILE...\n"),
               2;
    rad_error err;
    compute_pool *pool;
    must(compute_pool_create(NULL, threads, &pool, &err), &err);
    params.num_threads = threads;
    bench_print_machine(pool);
    for (; i < argc; i++)
        bench_file(argv[i], params, pool, prompt, budget);
    compute_pool_destroy(pool);
    return 0;
}
