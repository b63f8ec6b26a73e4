/* bench_attention_cuda.c - attention on a GPU: bytes of K and V a second where requests decode,
 * products a second where prompts are computed, and what is gained where prefixes are shared.
 *
 *     bench_attention_cuda [--ptx DIR] [--bench-ptx DIR] [--json FILE] [--case TEXT] [--span N]
 *                          [--stages N] [--pool-mb N] [--check]
 *
 * A step's attention is one launch and, where it leaves parts, one of the merge; both are dependent
 * launches inside a graph that goes through as many layers as its memory is larger than the L2.
 * Bytes are those of positions that are seen, each counted once where a group shares it; they stand
 * beside what this GPU reads at most. Slots are pages of `page` neighbours, anywhere in the pool.
 *
 * --stages N: stages and granules << 8, as attention_args has them, no more than fit.
 * --span N: kernels of DIR were made with -DATTN_SPAN=N, an order of sums other than the one that
 * P1 fixes; the fastest one of a case shows what the promise costs. --check compares the bits of
 * plans with and without parts and groups. */
#include "cuda_bench.h"

#include "cuda/attention_plan.h"

#include <assert.h>
#include <math.h>

enum { MOST_REQUESTS = 256, MOST_PARTS = 65536 };

typedef struct attention_case {
    const char *name;
    uint32_t heads, kv_heads, head_dim, window;
    uint32_t requests, prefix, tokens; /* each request's */
    uint32_t shared;                   /* positions of the prefix that all have in common */
    uint32_t grouped;                  /* and the plan knows it */
    uint32_t page;
    uint32_t mixed; /* prefixes from 1/8 of `prefix` to `prefix` */
    uint32_t kv;    /* attention_kv: what the pool's numbers are */
} attention_case;

static const attention_case cases[] = {
    {"small", 4, 2, 64, 0, 3, 700, 5, 600, 1, 1, 0},
    {"small e4m3", 4, 2, 64, 0, 3, 700, 5, 600, 1, 1, 0, ATTN_KV_E4M3},
    {"small e5m2", 4, 2, 64, 0, 3, 700, 5, 600, 1, 1, 0, ATTN_KV_E5M2},
    {"decode 0.6b 1x2048", 16, 8, 128, 0, 1, 2047, 1, 0, 0, 1, 0},
    {"decode 0.6b 1x8192", 16, 8, 128, 0, 1, 8191, 1, 0, 0, 1, 0},
    {"decode 0.6b 8x2048", 16, 8, 128, 0, 8, 2047, 1, 0, 0, 1, 0},
    {"decode 0.6b 32x2048", 16, 8, 128, 0, 32, 2047, 1, 0, 0, 1, 0},
    {"decode 0.6b 32x2048 page 16", 16, 8, 128, 0, 32, 2047, 1, 0, 0, 16, 0},
    {"decode 0.6b 32x2048 page 2048", 16, 8, 128, 0, 32, 2047, 1, 0, 0, 2048, 0},
    {"decode 0.6b 32 mixed to 4096", 16, 8, 128, 0, 32, 4095, 1, 0, 0, 1, 1},
    {"decode 0.6b 128x1024", 16, 8, 128, 0, 128, 1023, 1, 0, 0, 1, 0},
    {"decode 0.6b 1x8192 e4m3", 16, 8, 128, 0, 1, 8191, 1, 0, 0, 1, 0, ATTN_KV_E4M3},
    {"decode 0.6b 32x2048 e4m3", 16, 8, 128, 0, 32, 2047, 1, 0, 0, 1, 0, ATTN_KV_E4M3},
    {"decode 0.6b 32x2048 e5m2", 16, 8, 128, 0, 32, 2047, 1, 0, 0, 1, 0, ATTN_KV_E5M2},
    {"decode 0.6b 128x1024 e4m3", 16, 8, 128, 0, 128, 1023, 1, 0, 0, 1, 0, ATTN_KV_E4M3},
    {"decode 8b 1x2048", 32, 8, 128, 0, 1, 2047, 1, 0, 0, 1, 0},
    {"decode 8b 32x2048", 32, 8, 128, 0, 32, 2047, 1, 0, 0, 1, 0},
    {"decode 8b 1x32768", 32, 8, 128, 0, 1, 32767, 1, 0, 0, 1, 0},
    {"decode 8b 32x2048 e4m3", 32, 8, 128, 0, 32, 2047, 1, 0, 0, 1, 0, ATTN_KV_E4M3},
    {"decode 8b 1x32768 e4m3", 32, 8, 128, 0, 1, 32767, 1, 0, 0, 1, 0, ATTN_KV_E4M3},
    {"decode 8b 1x32768 e5m2", 32, 8, 128, 0, 1, 32767, 1, 0, 0, 1, 0, ATTN_KV_E5M2},
    {"decode d64 32x2048", 32, 8, 64, 0, 32, 2047, 1, 0, 0, 1, 0},
    {"decode d256 32x2048", 8, 4, 256, 0, 32, 2047, 1, 0, 0, 1, 0},
    {"decode d64 32x2048 e4m3", 32, 8, 64, 0, 32, 2047, 1, 0, 0, 1, 0, ATTN_KV_E4M3},
    {"decode d256 32x2048 e4m3", 8, 4, 256, 0, 32, 2047, 1, 0, 0, 1, 0, ATTN_KV_E4M3},
    {"decode window 1024 32x8192", 16, 8, 128, 1024, 32, 8191, 1, 0, 0, 1, 0},
    {"tree 0.6b 32 behind 8192, tree", 16, 8, 128, 0, 32, 8192 + 127, 1, 8192, 1, 1, 0},
    {"tree 0.6b 32 behind 8192, none", 16, 8, 128, 0, 32, 8192 + 127, 1, 8192, 0, 1, 0},
    {"tree 0.6b 32 behind 8192, tree, e4m3", 16, 8, 128, 0, 32, 8192 + 127, 1, 8192, 1, 1, 0,
     ATTN_KV_E4M3},
    {"tree 8b 32 behind 8192, tree", 32, 8, 128, 0, 32, 8192 + 127, 1, 8192, 1, 1, 0},
    {"tree 8b 32 behind 8192, none", 32, 8, 128, 0, 32, 8192 + 127, 1, 8192, 0, 1, 0},
    {"prefill 0.6b 2048", 16, 8, 128, 0, 1, 0, 2048, 0, 0, 1, 0},
    {"prefill 0.6b 8192", 16, 8, 128, 0, 1, 0, 8192, 0, 0, 1, 0},
    {"prefill 8b 2048", 32, 8, 128, 0, 1, 0, 2048, 0, 0, 1, 0},
    {"prefill 8b 8192", 32, 8, 128, 0, 1, 0, 8192, 0, 0, 1, 0},
    {"prefill 8b 512 behind 8192", 32, 8, 128, 0, 1, 8192, 512, 0, 0, 1, 0},
    {"prefill 8b 16 behind 8192", 32, 8, 128, 0, 1, 8192, 16, 0, 0, 1, 0},
    {"prefill 8b 4x512", 32, 8, 128, 0, 4, 0, 512, 0, 0, 1, 0},
    {"prefill 8b 8192 e4m3", 32, 8, 128, 0, 1, 0, 8192, 0, 0, 1, 0, ATTN_KV_E4M3},
    {"prefill 8b 16 behind 8192 e4m3", 32, 8, 128, 0, 1, 8192, 16, 0, 0, 1, 0, ATTN_KV_E4M3},
    {"prefill d64 8192", 32, 8, 64, 0, 1, 0, 8192, 0, 0, 1, 0},
    {"prefill d256 8192", 8, 4, 256, 0, 1, 0, 8192, 0, 0, 1, 0},
};

typedef struct attention_run {
    const attention_case *c;
    cuda_attention_launch l;
    cuda_attention_plan plan;
    cuda_function attention, merge;
    attention_args a;
    attention_merge_args m;
    cuda_ptr memory; /* all tables of the step */
    size_t layer_bytes;
    uint32_t layers, num_tokens;
    bool alone; /* without the merge, to tell what it takes */
    uint32_t prefix[MOST_REQUESTS];
    double bytes, flops;
} attention_run;

typedef struct bench {
    cuda_bench gpu;
    cuda_function kernels[13];
    FILE *json;
    uint32_t num_rows, span, stages;
} bench;

static cuda_function kernel_of(bench *b, const char *name)
{
    static const char *const names[] = {
        "attention_d16",    "attention_d32",    "attention_d64",     "attention_d96",
        "attention_d128",   "attention_d256",   "attention_d16_f8",  "attention_d32_f8",
        "attention_d64_f8", "attention_d96_f8", "attention_d128_f8", "attention_d256_f8",
        "attention_merge"};
    static_assert(RAD_COUNT(names) == RAD_COUNT(((bench *)0)->kernels), "");
    size_t i = 0;
    while (strcmp(names[i], name) != 0)
        i++;
    const bool merge = i + 1 == RAD_COUNT(names);
    if (!b->kernels[i])
        b->kernels[i] =
            cuda_bench_kernel(&b->gpu, cuda_bench_load(&b->gpu, b->gpu.ptx, name), name,
                              merge ? sizeof(attention_merge_args) : sizeof(attention_args),
                              merge ? 0 : (uint32_t)b->gpu.gpu.shared_bytes);
    return b->kernels[i];
}

static void launch_attention(const cuda_bench *b, const void *of, uint32_t i, bool dependent)
{
    const attention_run *r = of;
    attention_args a = r->a;
    rad_error err;
    a.k += i % r->layers * r->layer_bytes;
    a.v += i % r->layers * r->layer_bytes;
    const uint32_t grid[3] = {r->l.grid, 1, 1}, rows[3] = {r->m.tokens, r->m.heads, 1};
    cuda_bench_ok(cuda_launch(&b->cu, r->attention, grid, r->l.threads, r->l.shared_bytes,
                              b->stream, dependent, &a, sizeof a, &err),
                  &err);
    if (r->plan.num_parts && !r->alone)
        cuda_bench_ok(cuda_launch(&b->cu, r->merge, rows,
                                  cuda_attention_merge_threads(r->m.v_head_dim), 0, b->stream, true,
                                  &r->m, sizeof r->m, &err),
                      &err);
}

static void *room(size_t bytes)
{
    void *memory = calloc(1, bytes + 64);
    if (!memory) exit(1);
    return memory;
}

/* Puts `bytes` behind what is there already; where it is on the GPU. */
static void *put(const cuda_bench *b, cuda_ptr memory, size_t *at, const void *from, size_t bytes)
{
    const cuda_ptr to = memory + *at;
    *at += (bytes + 255) / 256 * 256;
    if (from) cuda_bench_did(b, b->cu.copy_to_device(to, from, bytes, b->stream), "upload");
    cuda_bench_did(b, b->cu.stream_synchronize(b->stream), "upload");
    return (void *)to;
}

static void run_open(bench *b, attention_run *r, const attention_case *c, uint32_t max_parts)
{
    const cuda_attention_shape shape = {c->heads, c->kv_heads, c->head_dim, c->window, c->kv};
    const uint32_t n = c->requests, ld = c->prefix + c->tokens, total = n * c->tokens;
    const size_t slot_bytes = (size_t)c->kv_heads * c->head_dim * attention_kv_bytes(c->kv);
    *r = (attention_run){.c = c, .num_tokens = total};
    r->l = cuda_attention_launch_of(&shape, (uint32_t)b->gpu.gpu.multiprocessors,
                                    (uint32_t)b->gpu.gpu.shared_bytes);
    if (!r->l.kernel) {
        fprintf(stderr, "%s: no kernel\n", c->name);
        exit(1);
    }
    r->l.span = b->span;
    if (b->stages) {
        r->l.stages = (r->l.stages & 0xffff0000) | b->stages; /* Q's rows and fp8's blocks stay */
    }
    r->attention = kernel_of(b, r->l.kernel);
    r->merge = kernel_of(b, "attention_merge");

    /* Slots: pages of a permutation, dealt out to the rows; a shared prefix is row 0's. */
    const uint32_t num_slots = (n * ld / c->page + 1) * c->page, pages = num_slots / c->page;
    uint32_t *order = room(pages * sizeof *order), next = 0, seed = 12345;
    int32_t *slots = room((size_t)n * ld * sizeof *slots);
    for (uint32_t i = 0; i < pages; i++) {
        seed = seed * 1664525 + 1013904223;
        const uint32_t j = (uint32_t)((uint64_t)seed * (i + 1) >> 32);
        order[i] = order[j], order[j] = i;
    }
    for (uint32_t row = 0; row < n; row++)
        for (uint32_t p = 0; p < ld; p++) {
            if (row && p < c->shared) {
                slots[row * ld + p] = slots[p];
                continue;
            }
            slots[row * ld + p] = (int32_t)(order[next / c->page] * c->page + next % c->page);
            next++;
        }
    r->layer_bytes = num_slots * slot_bytes * 2;
    r->layers = (uint32_t)RAD_MAX(1, RAD_MIN(16, b->gpu.pool_bytes / r->layer_bytes));

    uint32_t start[MOST_REQUESTS], ends[MOST_REQUESTS], counts[MOST_REQUESTS];
    uint32_t *positions = room(total * 4), members[MOST_REQUESTS], at = 0;
    rad_row rows[MOST_REQUESTS];
    uint64_t seen = 0, pairs = 0;
    for (uint32_t i = 0; i < n; i++) {
        members[i] = i, rows[i] = (rad_row)i, start[i] = at, counts[i] = c->tokens;
        r->prefix[i] = c->mixed ? c->prefix / 8 + c->prefix / 8 * 7 * i / (n - 1) : c->prefix;
        ends[i] = r->prefix[i] + c->tokens;
        for (uint32_t t = 0; t < c->tokens; t++) {
            const uint32_t p = r->prefix[i] + t;
            positions[at++] = p;
            pairs += c->window && p >= c->window ? c->window : p + 1;
        }
        const uint32_t low = c->window && r->prefix[i] >= c->window ? r->prefix[i] - c->window + 1
                                                                    : 0;
        seen += ends[i] - (c->grouped && i ? c->shared : low);
    }
    r->bytes = (double)seen * (double)slot_bytes * 2;
    r->flops = 4.0 * (double)pairs * c->heads * c->head_dim;
    const forward_group group = {0, c->shared, 0, n};
    const forward_batch batch = {.num_reqs = n,
                                 .num_tokens = total,
                                 .positions = positions,
                                 .req_pool_indices = rows,
                                 .seq_lens = ends,
                                 .extend_prefix_lens = r->prefix,
                                 .extend_seq_lens = counts,
                                 .extend_start_loc = start,
                                 .num_groups = c->grouped,
                                 .groups = &group,
                                 .group_reqs = members};
    cuda_attention_plan *plan = &r->plan;
    plan->max_tokens = total, plan->max_requests = n, plan->max_parts = max_parts;
    plan->units = room(cuda_attention_most_units(total, max_parts) * sizeof(attention_unit));
    plan->unit_tokens = room(cuda_attention_most_unit_tokens(total) * 4);
    plan->parts_at = room(total * 4);
    plan->scratch = room(cuda_attention_scratch_bytes(total, n, max_parts));
    const double begin = bench_now();
    cuda_attention_plan_make(plan, &batch, &shape, &r->l);
    const double planned = bench_now() - begin;

    const size_t width = (size_t)c->heads * c->head_dim, slots_bytes = (size_t)n * ld * 4;
    const size_t part_v = cuda_attention_part_v_bytes(&shape, plan->num_parts);
    const size_t part_ms = cuda_attention_part_ms_bytes(&shape, plan->num_parts);
    size_t used = 0;
    cuda_bench_did(&b->gpu,
                   b->gpu.cu.mem_alloc(&r->memory, slots_bytes + part_v + part_ms +
                                                       total * (width * 2 + 8) +
                                                       plan->num_units * sizeof(attention_unit) +
                                                       plan->num_unit_tokens * 4 + 16 * 256),
                   "memory");
    attention_args *a = &r->a;
    *a = (attention_args){.q = (const u16 *)b->gpu.pool,
                          .k = (const u8 *)b->gpu.pool,
                          .v = (const u8 *)b->gpu.pool + num_slots * slot_bytes,
                          .k_stride = slot_bytes,
                          .v_stride = slot_bytes,
                          .heads = c->heads,
                          .kv_heads = c->kv_heads,
                          .head_dim = c->head_dim,
                          .v_head_dim = c->head_dim,
                          .slots_ld = ld,
                          .out_ld = (uint32_t)width,
                          .window = c->window,
                          .scale = 4,
                          .stages = r->l.stages,
                          .kv = c->kv,
                          .v_scale = 1};
#define PUT(from, bytes) put(&b->gpu, r->memory, &used, from, bytes)
    a->slots = PUT(slots, slots_bytes);
    a->units = PUT(plan->units, plan->num_units * sizeof(attention_unit));
    a->num_units = PUT(&plan->num_units, 4);
    a->unit_tokens = PUT(plan->unit_tokens, plan->num_unit_tokens * 4);
    a->positions = PUT(positions, total * 4);
    a->parts_at = PUT(plan->parts_at, total * 4);
    a->part_v = PUT(NULL, part_v);
    a->part_ms = PUT(NULL, part_ms);
    a->out = PUT(NULL, total * width * 2);
    r->m = (attention_merge_args){.part_v = a->part_v,
                                  .part_ms = a->part_ms,
                                  .positions = a->positions,
                                  .parts_at = a->parts_at,
                                  .out = a->out,
                                  .tokens = total,
                                  .heads = c->heads,
                                  .v_head_dim = c->head_dim,
                                  .out_ld = (uint32_t)width,
                                  .window = c->window,
                                  .scale = a->scale};
    printf("%-38s units %5u parts %6u planned %4.0f us", c->name, plan->num_units, plan->num_parts,
           planned * 1e6);
    free(order), free(slots), free(positions);
}

static void run_close(bench *b, attention_run *r)
{
    free(r->plan.units), free(r->plan.unit_tokens), free(r->plan.parts_at), free(r->plan.scratch);
    b->gpu.cu.mem_free(r->memory);
}

static void bench_case(bench *b, const attention_case *c)
{
    attention_run r;
    run_open(b, &r, c, MOST_PARTS);
    const double guess = r.bytes / b->gpu.read_rate + r.flops / 300e12 + 5e-6;
    const uint32_t count = (uint32_t)fmin(fmax(2e-3 / guess, r.layers), 200);
    const double s =
        cuda_bench_seconds(&b->gpu, (cuda_launcher){launch_attention, &r}, count, 7, true);
    r.alone = true;
    const double alone =
        cuda_bench_seconds(&b->gpu, (cuda_launcher){launch_attention, &r}, count, 7, true);
    const double rate = r.bytes / s;
    printf(" %9.2f us (merge %5.2f)  %5.2f TB/s %3.0f%%  %6.1f TFLOP/s\n", s * 1e6,
           (s - alone) * 1e6, rate * 1e-12, 100 * rate / b->gpu.read_rate, r.flops / s * 1e-12);
    fflush(stdout);
    if (b->json)
        fprintf(b->json,
                "%s\n  {\"case\": \"%s\", \"heads\": %u, \"kv_heads\": %u, \"head_dim\": %u, "
                "\"requests\": %u, \"prefix\": %u, \"tokens\": %u, \"shared\": %u, \"tree\": %u, "
                "\"page\": %u, \"window\": %u, \"kv\": %u, \"span\": %u, \"stages\": %u, "
                "\"units\": %u, "
                "\"parts\": %u, \"seconds\": %.4g, \"bytes_per_second\": %.4g, "
                "\"of_ceiling\": %.4f, \"flops_per_second\": %.4g}",
                b->num_rows++ ? "," : "", c->name, c->heads, c->kv_heads, c->head_dim, c->requests,
                c->prefix, c->tokens, c->shared, c->grouped, c->page, c->window, c->kv, b->span,
                r.l.stages, r.plan.num_units, r.plan.num_parts, s, rate, rate / b->gpu.read_rate,
                r.flops / s);
    run_close(b, &r);
}

/* The bits of a case, to be freed. */
static uint16_t *bits_of(bench *b, const attention_case *c, uint32_t max_parts, size_t *bytes)
{
    attention_run r;
    run_open(b, &r, c, max_parts);
    printf("\n");
    *bytes = (size_t)r.num_tokens * c->heads * c->head_dim * 2;
    uint16_t *out = room(*bytes);
    cuda_bench_did(&b->gpu, b->gpu.cu.set_bytes((cuda_ptr)r.a.out, 0xff, *bytes, b->gpu.stream),
                   "set");
    launch_attention(&b->gpu, &r, 0, false);
    cuda_bench_did(&b->gpu, b->gpu.cu.copy_to_host(out, (cuda_ptr)r.a.out, *bytes, b->gpu.stream),
                   "copy");
    cuda_bench_did(&b->gpu, b->gpu.cu.stream_synchronize(b->gpu.stream), "running");
    run_close(b, &r);
    return out;
}

static int check_case(bench *b, const attention_case *c)
{
    size_t bytes, nans = 0;
    attention_case alone = *c;
    alone.grouped = 0;
    uint16_t *direct = bits_of(b, &alone, 0, &bytes);
    uint16_t *parts = bits_of(b, &alone, MOST_PARTS, &bytes);
    uint16_t *groups = bits_of(b, c, MOST_PARTS, &bytes);
    for (size_t i = 0; i < bytes / 2; i++)
        nans += (direct[i] & 0x7f80) == 0x7f80;
    const int wrong = memcmp(direct, parts, bytes) != 0 || memcmp(direct, groups, bytes) != 0;
    printf("%-38s %s, %zu of %zu numbers are none, the first %04x %04x %04x\n", c->name,
           wrong ? "BITS DIFFER" : "same bits", nans, bytes / 2, direct[0], direct[1], direct[2]);
    free(direct), free(parts), free(groups);
    return wrong || nans;
}

int main(int argc, char **argv)
{
    const char *only = NULL, *span = NULL, *stages = NULL, *mb = "5120";
    bool check = false;
    const cuda_bench_option options[] = {{"--case", "TEXT", .value = &only},
                                         {"--span", "N", .value = &span},
                                         {"--stages", "N", .value = &stages},
                                         {"--pool-mb", "N", .value = &mb},
                                         {"--check", .flag = &check}};
    const cuda_bench_words words = cuda_bench_read_words(argc, argv, options, RAD_COUNT(options));

    static bench b;
    int wrong = 0;
    cuda_bench_open(&b.gpu, &words, (size_t)atoi(mb) << 20);
    b.span = span ? (uint32_t)atoi(span) : ATTN_SPAN;
    b.stages = stages ? (uint32_t)atoi(stages) : 0;
    b.json = cuda_bench_json_begin(&b.gpu, &words);
    if (b.json) fprintf(b.json, ", \"attention\": [");
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        if (only && !strstr(cases[i].name, only)) continue;
        if (check)
            wrong += check_case(&b, &cases[i]);
        else
            bench_case(&b, &cases[i]);
    }
    cuda_bench_json_end(b.json);
    cuda_bench_close(&b.gpu);
    return wrong != 0;
}
