/* bench_attention.c - decode in GB/s of K and V read, prefill in GFLOP/s, groups in bytes.
 *
 *     bench_attention [-t threads] [-i isa] [-s seconds per line] [-c words of a line's name]
 *
 * Every figure stands beside its limit, measured in turn with it:
 *
 *     decode    all K and V of the contexts are read once; the limit is plainly reading the
 *               layer's K and V buffers (of as many bytes) with the same threads. Beside it, the
 *               faster of two ways to touch each line of the contexts' rows where they lie,
 *               asked for once before, and nothing else: gathering. It is no limit (asking more
 *               often may read more, docs/kernels.md). MLA has many heads for each number that
 *               is read: its limit is reading or the GEMM's, whichever is the longer time
 *     prefill   4 operations per head dimension and pair of positions that is not masked;
 *               the limit is a GEMM of the same dtype (256 x 1024 x 1024)
 *     groups    decoding behind a shared prefix; the limit is the same batch without groups,
 *               and the bytes that arithmetic predicts
 *
 * Slots: page 16 in random order, page 1 as a server leaves them or in random order
 * (bench_slots.h). At least 128 MB of layers, so that none is in the cache when it comes. */
#include "attn/attn_backend.h"
#include "bench.h"
#include "bench_slots.h"
#include "mem/kv_codec.h"
#include "model/gemm.h"

#include <math.h>
#include <radish/mla_kv_pool.h>

typedef struct shape {
    rad_dtype dtype;
    uint32_t heads, kv_heads, head_dim, v_head_dim; /* v_head_dim: MLA */
    uint32_t page_size;
    slots_kind slots;
    uint32_t num_reqs, context, fresh;
    uint32_t shared; /* leading positions that all requests share */
} shape;

typedef struct bench {
    const attn_backend *backend;
    compute_pool *pool;
    double budget;
    const char *only;
    uint64_t sums[256];
} bench;

enum { MOST_REQS = 64, READ_WORDS = 4096 };

/* A pool, rows and a batch over them. */
typedef struct world {
    shape s;
    size_t layer_bytes; /* K and V of all contexts, what is shared once */
    uint32_t num_layers, next;
    double run_length; /* neighbouring slots, on average */
    rad_token_to_kv_pool *kv;
    rad_req_to_token_pool *rows;
    uint32_t seq[MOST_REQS], prefix[MOST_REQS], extend[MOST_REQS], start[MOST_REQS];
    uint32_t members[MOST_REQS];
    rad_row row[MOST_REQS];
    forward_group group;
    attn_kv_reads reads;
    radix_attention layer;
    forward_batch batch;
    float *q, *out;
} world;

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

static void make_pool(world *w, uint32_t num_pages)
{
    const shape *s = &w->s;
    rad_error err;
    rad_mla_kv_pool_params mla = {.struct_size = sizeof mla,
                                  .num_pages = num_pages,
                                  .page_size = s->page_size,
                                  .num_layers = w->num_layers,
                                  .kv_lora_rank = s->v_head_dim,
                                  .rope_dim = s->head_dim - s->v_head_dim,
                                  .dtype = s->dtype};
    rad_token_to_kv_pool_params kv = {.struct_size = sizeof kv,
                                      .num_pages = num_pages,
                                      .page_size = s->page_size,
                                      .num_layers = w->num_layers,
                                      .num_kv_heads = s->kv_heads,
                                      .head_dim = s->head_dim,
                                      .dtype = s->dtype};
    must_ok(s->v_head_dim ? rad_mla_kv_pool_create(NULL, &mla, &w->kv, &err)
                          : rad_token_to_kv_pool_create(NULL, &kv, &w->kv, &err),
            &err);
    /* Small numbers, also as scales: 0x3c.. is one in every dtype. */
    for (uint32_t l = 0; l < w->num_layers; l++) {
        rad_kv_buffers b;
        must_ok(rad_kv_pool_get_buffers(w->kv, l, &b), &err);
        size_t slots = (size_t)(num_pages + 1) * s->page_size;
        memset(b.k, 0x3c, slots * b.k_stride);
        if (b.v != b.k) memset(b.v, 0x3c, slots * b.v_stride);
        if (b.k_scale) memset(b.k_scale, 0x3c, slots * b.k_scale_stride);
        if (b.v_scale && b.v != b.k) memset(b.v_scale, 0x3c, slots * b.v_scale_stride);
    }
}

/* Request 0's pages first; the shared ones are used by all. */
static void make_rows(world *w, uint32_t num_pages)
{
    const shape *s = &w->s;
    uint32_t per_req = (s->context + s->page_size - 1) / s->page_size;
    uint64_t runs = 0;
    rad_error err;
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = s->num_reqs, .row_tokens = s->context};
    must_ok(rad_req_to_token_pool_create(NULL, &rows, &w->rows, &err), &err);
    rad_page *pages[MOST_REQS];
    for (uint32_t i = 0; i < s->num_reqs; i++)
        pages[i] = must(malloc(per_req * sizeof *pages[i]));
    slots_make(s->slots, num_pages, pages, s->num_reqs, per_req);
    for (uint32_t i = 0; i < s->num_reqs; i++) {
        must_ok(rad_req_to_token_alloc(w->rows, &w->row[i]), &err);
        rad_slot *slots = rad_req_to_token_row(w->rows, w->row[i]);
        for (uint32_t t = 0; t < s->context; t++) {
            rad_page page = pages[t < s->shared ? 0 : i][t / s->page_size];
            slots[t] = page * (rad_slot)s->page_size + (rad_slot)(t % s->page_size);
            runs += t == 0 || slots[t] != slots[t - 1] + 1;
        }
        w->seq[i] = s->context;
        w->extend[i] = s->fresh;
        w->prefix[i] = s->context - s->fresh;
        w->start[i] = i * s->fresh;
        w->members[i] = i;
    }
    w->run_length = (double)s->num_reqs * s->context / (double)runs;
    for (uint32_t i = 0; i < s->num_reqs; i++)
        free(pages[i]);
}

static void world_init(world *w, const shape *s)
{
    static const size_t bytes_of[] = {4, 2, 2, 1, 1, 1};
    uint32_t per_req = (s->context + s->page_size - 1) / s->page_size;
    uint32_t num_pages = s->num_reqs * per_req * 5 / 4 + 1;
    size_t token = s->v_head_dim ? s->head_dim : (size_t)2 * s->kv_heads * s->head_dim;
    token = token * bytes_of[s->dtype] + (s->dtype == RAD_I8 ? 8 * s->kv_heads : 0);
    *w = (world){.s = *s};
    w->layer_bytes = token * (s->num_reqs * (size_t)(s->context - s->shared) + s->shared);
    w->num_layers = (uint32_t)(((size_t)128 << 20) / (token * s->num_reqs * s->context)) + 2;
    if (s->fresh > 1 || w->num_layers > 64) w->num_layers = s->fresh > 1 ? 2 : 64;
    make_pool(w, num_pages);
    make_rows(w, num_pages);
    size_t floats = (size_t)s->num_reqs * s->fresh * s->heads * s->head_dim;
    w->q = must(malloc(floats * 4));
    w->out = must(malloc(floats * 4));
    for (size_t i = 0; i < floats; i++)
        w->q[i] = (float)(i % 17) / 17 - 0.5f;
    w->group = (forward_group){.end = s->shared / 64 * 64, .count = s->num_reqs};
    w->layer = (radix_attention){.num_heads = s->heads,
                                 .num_kv_heads = s->kv_heads,
                                 .head_dim = s->head_dim,
                                 .v_head_dim = s->v_head_dim,
                                 .scaling = 1 / sqrtf((float)s->head_dim),
                                 .sliding_window = -1};
    w->batch = (forward_batch){.num_reqs = s->num_reqs,
                               .num_tokens = s->num_reqs * s->fresh,
                               .req_pool_indices = w->row,
                               .seq_lens = w->seq,
                               .extend_prefix_lens = w->prefix,
                               .extend_seq_lens = w->extend,
                               .extend_start_loc = w->start,
                               .groups = &w->group,
                               .group_reqs = w->members,
                               .req_to_token_pool = w->rows,
                               .token_to_kv_pool = w->kv,
                               .kv_reads = &w->reads};
}

static void world_fini(world *w)
{
    free(w->q);
    free(w->out);
    rad_token_to_kv_pool_destroy(w->kv);
    rad_req_to_token_pool_destroy(w->rows);
}

static double run_layer(const bench *b, world *w, bool grouped)
{
    w->layer.layer_id = w->next++ % w->num_layers;
    w->batch.num_groups = grouped;
    w->reads = (attn_kv_reads){0};
    double t = bench_now();
    b->backend->forward(b->backend, &w->layer, &w->batch, w->q, w->out, b->pool);
    return bench_now() - t;
}

/* Reads as many bytes as lie in the contexts, in order, half of them of V. */
static double read_layer(bench *b, world *w)
{
    rad_kv_buffers kv;
    rad_error err;
    must_ok(rad_kv_pool_get_buffers(w->kv, w->next++ % w->num_layers, &kv), &err);
    uint32_t sides = kv.v == kv.k ? 1 : 2;
    size_t words = w->layer_bytes / sides / 8 / READ_WORDS * READ_WORDS;
    double t = bench_now();
    for (uint32_t side = 0; side < sides; side++) {
        bench_reader r = {
            .words = side ? kv.v : kv.k, .count = words, .per_tile = READ_WORDS, .pool = b->pool};
        bench_read_all(&r);
        b->sums[0] += r.sums[0];
    }
    return (bench_now() - t) * (double)w->layer_bytes / ((double)words * 8 * sides);
}

/* Touches every line of the contexts' rows, K and V of a block in turn: row by row, or a line of
 * 16 rows after the other, and what comes 16 rows later is asked for. Scales and the last rows of
 * a context that are no 16 are left out, and reckoned as if they took as long. */
typedef struct gather_job {
    world *w;
    rad_kv_buffers kv;
    size_t row_bytes;
    uint32_t blocks;
    bool by_line;
} gather_job;

enum { GATHER_ROWS = 16, BLOCK_ROWS = 64 };

/* Nothing is done with what is read: an addition that waits for its line keeps the core from
 * coming to those behind it, and a sum of 8 bytes a line reads a tenth less. */
static void touch(const char *line, const char *soon)
{
    __builtin_prefetch(soon, 0, 3);
    (void)*(const volatile uint64_t *)line;
}

static void gather_block(void *arg, uint32_t tile, uint32_t thread)
{
    const gather_job *g = arg;
    const world *w = g->w;
    (void)thread;
    const char *rows[2 * BLOCK_ROWS + GATHER_ROWS];
    uint32_t request = tile / g->blocks, first = tile % g->blocks * BLOCK_ROWS, count = 0;
    const rad_slot *slots = rad_req_to_token_row(w->rows, w->row[request]);
    uint32_t end = first + BLOCK_ROWS < w->s.context ? first + BLOCK_ROWS : w->s.context;
    end -= (end - first) % GATHER_ROWS;
    for (uint32_t t = first; t < end; t++)
        rows[count++] = (const char *)g->kv.k + (size_t)slots[t] * g->kv.k_stride;
    for (uint32_t t = first; t < end && g->kv.v != g->kv.k; t++)
        rows[count++] = (const char *)g->kv.v + (size_t)slots[t] * g->kv.v_stride;
    for (uint32_t i = 0; i < GATHER_ROWS; i++) {
        uint32_t t = end + i < w->s.context ? end + i : first;
        rows[count + i] = (const char *)g->kv.k + (size_t)slots[t] * g->kv.k_stride;
    }
    for (uint32_t i = 0; i < count; i += GATHER_ROWS) {
        const char **at = rows + i;
        for (size_t k = 0; k < g->row_bytes && g->by_line; k += 64)
            for (uint32_t j = 0; j < GATHER_ROWS; j++)
                touch(at[j] + k, at[j + GATHER_ROWS] + k);
        for (uint32_t j = 0; j < GATHER_ROWS && !g->by_line; j++)
            for (size_t k = 0; k < g->row_bytes; k += 64)
                touch(at[j] + k, at[j + GATHER_ROWS] + k);
    }
}

static double gather_layer(bench *b, world *w, bool by_line)
{
    gather_job g = {.w = w, .by_line = by_line};
    rad_error err = {.text = ""};
    must_ok(rad_kv_pool_get_buffers(w->kv, w->next++ % w->num_layers, &g.kv), &err);
    const rad_token_to_kv_pool_params *p = rad_kv_pool_params(w->kv);
    uint32_t sides = g.kv.v == g.kv.k ? 1 : 2;
    g.row_bytes = (size_t)p->num_kv_heads * p->head_dim * kv_dtype_bytes(p->dtype);
    g.blocks = (w->s.context + BLOCK_ROWS - 1) / BLOCK_ROWS;
    size_t rows = w->s.context - w->s.context % GATHER_ROWS;
    double t = bench_now();
    compute_pool_run_near(b->pool, w->s.num_reqs * g.blocks, gather_block, &g);
    return (bench_now() - t) * (double)w->layer_bytes /
           (double)(w->s.num_reqs * rows * sides * g.row_bytes);
}

typedef struct gemm_job {
    gemm_weight *w;
    float *x, *out;
    void *scratch;
    compute_pool *pool;
} gemm_job;

enum { GEMM_M = 256, GEMM_N = 1024 };

static gemm_job gemm_job_make(rad_dtype dtype, compute_pool *pool)
{
    gemm_job j = {.pool = pool};
    rad_error err;
    must_ok(gemm_weight_create(NULL, dtype == RAD_F32 ? GEMM_F32 : GEMM_BF16, GEMM_N, GEMM_N, NULL,
                               &j.w, &err),
            &err);
    j.x = must(calloc(GEMM_M * GEMM_N, 4));
    j.out = must(calloc(GEMM_M * GEMM_N, 4));
    j.scratch = must(aligned_alloc(64, (gemm_scratch_bytes(j.w, GEMM_M) + 127) / 64 * 64));
    return j;
}

static double run_gemm(gemm_job *j)
{
    double t = bench_now();
    gemm_run(j->w, j->x, GEMM_N, GEMM_M, j->out, GEMM_N, false, j->pool, j->scratch);
    return bench_now() - t;
}

static void gemm_job_free(gemm_job *j)
{
    gemm_weight_destroy(j->w);
    free(j->x);
    free(j->out);
    free(j->scratch);
}

/* Two things in turn, so that whatever else this machine does meets both. */
typedef struct pair {
    bench_times times;
    double other;  /* median */
    double gemm;   /* of MLA's decode: the GEMM, beside reading */
    double gather; /* decode */
} pair;

static pair in_turn(bench *b, world *w, gemm_job *gemm)
{
    enum { MOST = 1000 };
    double mine[MOST], other[MOST], third[MOST] = {0}, by_row[MOST] = {0}, by_line[MOST] = {0};
    bool reads = !w->s.shared && w->s.fresh == 1;
    int runs = -1; /* the first is a warm-up */
    for (double start = bench_now(); runs < MOST && (runs < 5 || bench_now() - start < b->budget);
         runs++) {
        uint32_t first = w->next % w->num_layers;
        double a = run_layer(b, w, w->s.shared > 0);
        double c = reads ? read_layer(b, w) : gemm ? run_gemm(gemm) : run_layer(b, w, false);
        double d = reads && gemm ? run_gemm(gemm) : 0;
        double e = reads ? gather_layer(b, w, false) : 0, f = reads ? gather_layer(b, w, true) : 0;
        w->next += w->next % w->num_layers == first; /* else each always reads the same layer */
        if (runs < 0) continue;
        mine[runs] = a, other[runs] = c, third[runs] = d, by_row[runs] = e, by_line[runs] = f;
    }
    pair p = {.other = bench_median(other, runs), .gemm = bench_median(third, runs)};
    double p50 = bench_median(mine, runs), row = bench_median(by_row, runs),
           line = bench_median(by_line, runs);
    p.times = (bench_times){mine[runs / 10], p50, mine[runs * 9 / 10], runs};
    p.gather = row < line ? row : line;
    return p;
}

static void print_groups(const bench *b, world *w, const pair *p)
{
    uint64_t token = w->layer_bytes / (w->s.num_reqs * (w->s.context - w->s.shared) + w->s.shared);
    run_layer(b, w, true);
    printf("%.1f times faster than %.0f us without; reads %.2f MB (predicted %.2f), without %.2f "
           "(predicted %.2f)\n",
           p->other / p->times.p50, p->other * 1e6, (double)w->reads.bytes * 1e-6,
           (double)w->layer_bytes * 1e-6, (double)w->reads.unshared_bytes * 1e-6,
           (double)(token * w->s.num_reqs * w->s.context) * 1e-6);
}

/* Beside a GEMM that took so long. */
static void print_rate(const shape *s, double seconds, double gemm_seconds)
{
    double pairs = (double)s->num_reqs * s->fresh * (s->context - (s->fresh - 1) / 2.0);
    uint32_t dims = s->head_dim + (s->v_head_dim ? s->v_head_dim : s->head_dim);
    double rate = 2e-9 * pairs * s->heads * dims / seconds;
    double limit = 2e-9 * GEMM_M * GEMM_N * GEMM_N / gemm_seconds;
    printf("%6.1f GFLOP/s, %3.0f%% of GEMM's %.1f", rate, 100 * rate / limit, limit);
}

static void bench_case(bench *b, shape s)
{
    static const char *const dtypes[] = {"f32", "bf16", "f16", "e4m3", "e5m2", "int8"};
    char name[160];
    snprintf(name, sizeof name, "%-4s heads %2u/%2u x %3u%s  page %2u %-8s  %s %2u x %5u",
             dtypes[s.dtype], s.heads, s.kv_heads, s.head_dim, s.v_head_dim ? " MLA" : "",
             s.page_size, s.slots == SLOTS_SERVED ? "served" : "shuffled",
             s.shared      ? "groups "
             : s.fresh > 1 ? "prefill"
                           : "decode ",
             s.num_reqs, s.context);
    if (b->only && !strstr(name, b->only)) return;
    world w;
    world_init(&w, &s);
    gemm_job gemm;
    bool codes = strcmp(attn_name(b->backend, s.dtype), b->backend->name) != 0;
    bool by_gemm = s.fresh > 1 || s.v_head_dim;
    if (by_gemm) gemm = gemm_job_make(s.dtype == RAD_BF16 || codes ? RAD_BF16 : RAD_F32, b->pool);
    pair p = in_turn(b, &w, by_gemm ? &gemm : NULL);
    printf("%s  runs of %5.1f  %9.1f us (p10 %.1f, p90 %.1f)  ", name, w.run_length,
           p.times.p50 * 1e6, p.times.p10 * 1e6, p.times.p90 * 1e6);
    if (s.shared) {
        print_groups(b, &w, &p);
    } else if (s.fresh > 1) {
        print_rate(&s, p.times.p50, p.other);
        printf("\n");
    } else {
        printf("%6.1f GB/s, %3.0f%% of reading's %.1f, %3.0f%% of gathering's %.1f",
               (double)w.layer_bytes / p.times.p50 * 1e-9, 100 * p.other / p.times.p50,
               (double)w.layer_bytes / p.other * 1e-9, 100 * p.gather / p.times.p50,
               (double)w.layer_bytes / p.gather * 1e-9);
        if (by_gemm) {
            printf("; ");
            print_rate(&s, p.times.p50, p.gemm);
        }
        printf("\n");
    }
    if (by_gemm) gemm_job_free(&gemm);
    world_fini(&w);
}

static void bench_model(bench *b, rad_dtype dtype, uint32_t heads, uint32_t kv_heads, uint32_t dim)
{
    shape s = {.dtype = dtype, .heads = heads, .kv_heads = kv_heads, .head_dim = dim, .fresh = 1};
    static const struct {
        uint32_t page, reqs, context, fresh;
        slots_kind slots;
    } cases[] = {{16, 1, 2048, 1, SLOTS_SHUFFLED},    {16, 1, 8192, 1, SLOTS_SHUFFLED},
                 {16, 32, 2048, 1, SLOTS_SHUFFLED},   {1, 32, 2048, 1, SLOTS_SERVED},
                 {1, 32, 2048, 1, SLOTS_SHUFFLED},    {16, 1, 128, 128, SLOTS_SHUFFLED},
                 {16, 1, 2048, 2048, SLOTS_SHUFFLED}, {1, 1, 8192, 512, SLOTS_SERVED}};
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        s.page_size = cases[i].page;
        s.num_reqs = cases[i].reqs;
        s.context = cases[i].context;
        s.fresh = cases[i].fresh;
        s.slots = cases[i].slots;
        bench_case(b, s);
    }
}

int main(int argc, char **argv)
{
    bench b = {.budget = 0.3};
    uint32_t threads = 0;
    const char *isa = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "-t") == 0) threads = (uint32_t)atoi(argv[i + 1]);
        if (strcmp(argv[i], "-i") == 0) isa = argv[i + 1];
        if (strcmp(argv[i], "-s") == 0) b.budget = atof(argv[i + 1]);
        if (strcmp(argv[i], "-c") == 0) b.only = argv[i + 1];
    }
    b.backend = attn_cpu(isa);
    if (!b.backend) return fprintf(stderr, "this CPU has no %s\n", isa), 1;
    rad_error err;
    must_ok(compute_pool_create(NULL, threads, &b.pool, &err), &err);
    bench_print_machine(b.pool);
    printf("# backend: %s\n", b.backend->name);
    for (int dtype = RAD_BF16; dtype >= RAD_F32; dtype--) {
        bench_model(&b, (rad_dtype)dtype, 12, 4, 64);  /* llama-110m */
        bench_model(&b, (rad_dtype)dtype, 16, 8, 128); /* qwen3-0.6b */
    }
    shape s = {.dtype = RAD_BF16,
               .heads = 12,
               .kv_heads = 4,
               .head_dim = 64,
               .page_size = 1,
               .num_reqs = 32,
               .context = 8192 + 128,
               .fresh = 1,
               .shared = 8192};
    bench_case(&b, s);
    s.shared = 0, s.context = 2048;
    for (int dtype = RAD_F16; dtype <= RAD_I8; dtype++) {
        s.dtype = (rad_dtype)dtype;
        s.page_size = 1, s.num_reqs = 32, s.fresh = 1;
        bench_case(&b, s);
        s.page_size = 16, s.slots = SLOTS_SHUFFLED;
        bench_case(&b, s);
        s.num_reqs = 1, s.fresh = s.context;
        bench_case(&b, s);
        s.slots = SLOTS_SERVED;
    }
    s = (shape){.dtype = RAD_BF16,
                .heads = 16,
                .kv_heads = 1,
                .head_dim = 576,
                .v_head_dim = 512,
                .page_size = 1,
                .num_reqs = 16,
                .context = 2048,
                .fresh = 1};
    bench_case(&b, s);
    s.dtype = RAD_F8_E4M3;
    bench_case(&b, s);
    s.dtype = RAD_I8;
    bench_case(&b, s);
    compute_pool_destroy(b.pool);
    return 0;
}
