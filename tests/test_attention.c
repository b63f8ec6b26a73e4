/* test_attention.c - every backend is right against a softmax in double precision, and
 * keeps promise P1: a query's bits depend on its own context alone.
 *
 * The pool is filled with NaN before it is used, and pages lie in random order: a key
 * that a query must not see, or that was not written yet, would show at once. */
#include "below.h"
#include "gear/amx_gear.h"
#include "test.h"

#include "attn/attn_backend.h"
#include "attn/attn_kernels.h"
#include "base/bf16.h"
#include "mem/kv_codec.h"

#include <math.h>

static const char *const isa_names[] = {"avx512",     "avx2", "neon",        "scalar",
                                        "avx512bf16", "amx",  "amx-emulated"};

typedef struct shape {
    uint32_t num_heads, num_kv_heads, head_dim, v_head_dim, page_size;
    rad_dtype dtype;
    float logit_cap;
    int32_t window;
    bool sinks;
} shape;

enum { MOST_REQS = 6, LAYERS = 2, LAYER = 1 };
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SLOWER = 3 }; /* so many times fewer rounds: they slow the arithmetic down twentyfold */
#else
enum { SLOWER = 1 };
#endif

/* A pool, rows, and what the requests in it consist of. */
typedef struct world {
    shape s;
    radix_attention layer;
    rad_token_to_kv_pool *kv;
    rad_req_to_token_pool *rows;
    uint32_t num_reqs;
    float sinks[32]; /* of the heads */
    uint32_t len[MOST_REQS];
    rad_row row[MOST_REQS];
    float *q[MOST_REQS], *k[MOST_REQS], *v[MOST_REQS]; /* per position */
} world;

static float random_float(uint64_t *seed)
{
    return ((float)(test_random(seed) >> 40) * 0x1p-24f - 0.5f) * 4;
}

static float *random_floats(size_t count, uint64_t *seed)
{
    float *x = malloc(count * sizeof *x);
    for (size_t i = 0; i < count; i++)
        x[i] = random_float(seed);
    return x;
}

/* As a pool of narrow numbers would give them back, a head at a time. */
static void make_narrow(uint32_t dtype, float *x, size_t count, uint32_t dim)
{
    const kv_codec *codec = kv_codec_for("plain");
    uint8_t codes[256];
    for (size_t i = 0; i < count; i += dim) {
        float scale = 1;
        if (dtype == RAD_I8)
            scale = codec->encode_i8((int8_t *)codes, x + i, dim);
        else
            codec->encode(dtype, codes, x + i, dim, scale);
        codec->decode(dtype, x + i, codes, dim, scale);
    }
}

static void world_init(world *w, const shape *s, const uint32_t *len, uint32_t num_reqs,
                       uint64_t *seed)
{
    *w = (world){.s = *s, .num_reqs = num_reqs};
    w->layer = (radix_attention){.layer_id = LAYER,
                                 .num_heads = s->num_heads,
                                 .num_kv_heads = s->num_kv_heads,
                                 .head_dim = s->head_dim,
                                 .v_head_dim = s->v_head_dim,
                                 .scaling = 1 / sqrtf((float)s->head_dim),
                                 .logit_cap = s->logit_cap,
                                 .sliding_window = s->window};
    for (uint32_t h = 0; s->sinks; h++) { /* about as large as scores, some far above or below */
        if (h == s->num_heads) break;
        w->sinks[h] = random_float(seed) * (below(seed, 4) ? 1 : 60);
        w->layer.sinks = w->sinks;
    }
    uint32_t num_pages = 0, longest = 0, v_dim = s->v_head_dim ? s->v_head_dim : s->head_dim;
    for (uint32_t i = 0; i < num_reqs; i++) {
        num_pages += (len[i] + s->page_size - 1) / s->page_size;
        if (len[i] > longest) longest = len[i];
    }
    rad_token_to_kv_pool_params kv = {.struct_size = sizeof kv,
                                      .num_pages = num_pages + 3,
                                      .page_size = s->page_size,
                                      .num_layers = LAYERS,
                                      .num_kv_heads = s->num_kv_heads,
                                      .head_dim = s->head_dim,
                                      .v_head_dim = s->v_head_dim,
                                      .dtype = s->dtype};
    CHECK_OK(rad_token_to_kv_pool_create(NULL, &kv, &w->kv, NULL));
    size_t slots = (size_t)(kv.num_pages + 1) * s->page_size;
    rad_kv_buffers b;
    CHECK_OK(rad_kv_pool_get_buffers(w->kv, LAYER, &b));
    memset(b.k, 0xff, slots * b.k_stride);
    memset(b.v, 0xff, slots * b.v_stride);
    if (s->dtype == RAD_I8) { /* its codes are numbers: the scales are none */
        memset(b.k_scale, 0xff, slots * b.k_scale_stride);
        memset(b.v_scale, 0xff, slots * b.v_scale_stride);
    }

    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = num_reqs, .row_tokens = longest};
    CHECK_OK(rad_req_to_token_pool_create(NULL, &rows, &w->rows, NULL));
    uint32_t *pages = malloc(num_pages * sizeof *pages);
    for (uint32_t i = 0; i < num_pages; i++) { /* a random permutation of 1..num_pages */
        uint32_t at = below(seed, i + 1);
        pages[i] = pages[at];
        pages[at] = i + 1;
    }
    for (uint32_t i = 0, used = 0; i < num_reqs; i++) {
        w->len[i] = len[i];
        CHECK_OK(rad_req_to_token_alloc(w->rows, &w->row[i]));
        rad_slot *slot = rad_req_to_token_row(w->rows, w->row[i]);
        for (uint32_t t = 0; t < len[i]; t++)
            slot[t] = (rad_slot)(pages[used + t / s->page_size] * s->page_size + t % s->page_size);
        used += (len[i] + s->page_size - 1) / s->page_size;
        w->q[i] = random_floats((size_t)len[i] * s->num_heads * s->head_dim, seed);
        w->k[i] = random_floats((size_t)len[i] * s->num_kv_heads * s->head_dim, seed);
        w->v[i] = random_floats((size_t)len[i] * s->num_kv_heads * v_dim, seed);
        if (s->dtype < RAD_F8_E4M3) continue;
        make_narrow(s->dtype, w->k[i], (size_t)len[i] * s->num_kv_heads * s->head_dim, s->head_dim);
        make_narrow(s->dtype, w->v[i], (size_t)len[i] * s->num_kv_heads * v_dim, v_dim);
    }
    free(pages);
}

static void world_fini(world *w)
{
    for (uint32_t i = 0; i < w->num_reqs; i++) {
        free(w->q[i]);
        free(w->k[i]);
        free(w->v[i]);
    }
    rad_token_to_kv_pool_destroy(w->kv);
    rad_req_to_token_pool_destroy(w->rows);
}

static uint32_t v_dim_of(const world *w)
{
    return w->s.v_head_dim ? w->s.v_head_dim : w->s.head_dim;
}

static size_t out_line(const world *w)
{
    return (size_t)w->s.num_heads * v_dim_of(w);
}

/* Runs tokens [done[i], done[i] + fresh[i]) of each request (fresh 0: not in the batch)
 * through the layer, K/V included; results go to out[i], per position. */
static void run_batch(world *w, const attn_backend *backend, const uint32_t *done,
                      const uint32_t *fresh, float *const *out, compute_pool *pool)
{
    uint32_t num_reqs = 0, num_tokens = 0, which[MOST_REQS];
    uint32_t seq[MOST_REQS], prefix[MOST_REQS], extend[MOST_REQS], start[MOST_REQS];
    rad_row rows[MOST_REQS];
    for (uint32_t i = 0; i < w->num_reqs; i++) {
        if (!fresh[i]) continue;
        which[num_reqs] = i;
        rows[num_reqs] = w->row[i];
        prefix[num_reqs] = done[i];
        extend[num_reqs] = fresh[i];
        seq[num_reqs] = done[i] + fresh[i];
        start[num_reqs++] = num_tokens;
        num_tokens += fresh[i];
    }
    size_t q_line = (size_t)w->s.num_heads * w->s.head_dim;
    size_t k_line = (size_t)w->s.num_kv_heads * w->s.head_dim;
    size_t v_line = (size_t)w->s.num_kv_heads * v_dim_of(w);
    float *q = calloc(num_tokens, q_line * 4), *k = calloc(num_tokens, k_line * 4);
    float *v = calloc(num_tokens, v_line * 4), *o = malloc(num_tokens * out_line(w) * 4);
    rad_slot *loc = malloc(num_tokens * sizeof *loc);
    for (uint32_t r = 0; r < num_reqs; r++) {
        uint32_t i = which[r];
        memcpy(q + start[r] * q_line, w->q[i] + done[i] * q_line, fresh[i] * q_line * 4);
        memcpy(k + start[r] * k_line, w->k[i] + done[i] * k_line, fresh[i] * k_line * 4);
        memcpy(v + start[r] * v_line, w->v[i] + done[i] * v_line, fresh[i] * v_line * 4);
        memcpy(loc + start[r], rad_req_to_token_row(w->rows, rows[r]) + done[i],
               fresh[i] * sizeof *loc);
    }
    forward_batch batch = {.num_reqs = num_reqs,
                           .num_tokens = num_tokens,
                           .out_cache_loc = loc,
                           .req_pool_indices = rows,
                           .seq_lens = seq,
                           .extend_prefix_lens = prefix,
                           .extend_seq_lens = extend,
                           .extend_start_loc = start,
                           .req_to_token_pool = w->rows,
                           .token_to_kv_pool = w->kv};
    rad_error err;
    rad_status status =
        radix_attention_forward(&w->layer, backend, &batch, q, k, v, 1, o, pool, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    for (uint32_t r = 0; r < num_reqs; r++)
        memcpy(out[which[r]] + done[which[r]] * out_line(w), o + start[r] * out_line(w),
               fresh[which[r]] * out_line(w) * 4);
    free(q);
    free(k);
    free(v);
    free(o);
    free(loc);
}

static void outs_alloc(const world *w, float **out)
{
    for (uint32_t i = 0; i < w->num_reqs; i++)
        out[i] = malloc(w->len[i] * out_line(w) * 4);
}

static void outs_free(const world *w, float **out)
{
    for (uint32_t i = 0; i < w->num_reqs; i++)
        free(out[i]);
}

/* Everything from nothing, each request by itself in one piece. */
static void run_whole(world *w, const attn_backend *backend, float *const *out, compute_pool *pool)
{
    for (uint32_t i = 0; i < w->num_reqs; i++) {
        uint32_t done[MOST_REQS] = {0}, fresh[MOST_REQS] = {0};
        fresh[i] = w->len[i];
        run_batch(w, backend, done, fresh, out, pool);
    }
}

/* Random chunks of random requests together, until all are done. */
static void run_in_pieces(world *w, const attn_backend *backend, float *const *out,
                          compute_pool *pool, uint32_t most, uint64_t *seed)
{
    uint32_t done[MOST_REQS] = {0};
    for (;;) {
        uint32_t fresh[MOST_REQS] = {0}, any = 0, left = 0;
        for (uint32_t i = 0; i < w->num_reqs; i++) {
            uint32_t rest = w->len[i] - done[i];
            if (rest && below(seed, 4)) {
                fresh[i] = below(seed, 3) ? 1 + below(seed, most) : 1;
                if (fresh[i] > rest) fresh[i] = rest;
            }
            any |= fresh[i];
            left |= rest;
        }
        if (!left) return;
        if (any) run_batch(w, backend, done, fresh, out, pool);
        for (uint32_t i = 0; i < w->num_reqs; i++)
            done[i] += fresh[i];
    }
}

/* The best backend, and every other round AMX by its emulation, over what it is for. */
static const attn_backend *best_or_emulated(uint64_t round, shape *s)
{
    const attn_backend *emulated = round % 2 ? gear_attn_cpu("amx-emulated") : NULL;
    if (!emulated) return gear_attn_cpu(NULL);
    if (s->dtype == RAD_F32) s->dtype = RAD_BF16;
    return emulated;
}

/* Whether a backend rounds q and weights to bf16 as well (attn_kernels.h, pairs). */
static bool rounds(const world *w, const char *name)
{
    return w->s.dtype != RAD_F32 &&
           (strcmp(name, "cpu-avx512bf16") == 0 || strncmp(name, "cpu-amx", 7) == 0);
}

static double stored(const world *w, float x)
{
    return w->s.dtype == RAD_BF16 ? bf16_to_f32(bf16_from_f32(x)) : x;
}

/* One query in double precision over all keys at once. Writes the result, and returns
 * how far off the worst of roundings may bring a backend. */
static double naive(const world *w, const char *name, uint32_t req, uint32_t pos, uint32_t head,
                    double *out)
{
    const shape *s = &w->s;
    uint32_t v_dim = v_dim_of(w), kv_head = head / (s->num_heads / s->num_kv_heads);
    uint32_t first = s->window > 0 && pos + 1 > (uint32_t)s->window ? pos + 1 - s->window : 0;
    const float *q = w->q[req] + ((size_t)pos * s->num_heads + head) * s->head_dim;
    double *score = malloc((pos + 1) * sizeof *score), max = -INFINITY, sum = 0, size = 0,
           v_max = 0;
    for (uint32_t j = first; j <= pos; j++) {
        const float *k = w->k[req] + ((size_t)j * s->num_kv_heads + kv_head) * s->head_dim;
        double dot = 0, abs = 0;
        for (uint32_t d = 0; d < s->head_dim; d++) {
            dot += q[d] * stored(w, k[d]);
            abs += fabs(q[d] * stored(w, k[d]));
        }
        score[j] = dot * w->layer.scaling;
        if (s->logit_cap > 0) score[j] = s->logit_cap * tanh(score[j] / s->logit_cap);
        max = fmax(max, score[j]);
        size = fmax(size, abs * w->layer.scaling);
    }
    for (uint32_t d = 0; d < v_dim; d++)
        out[d] = 0;
    for (uint32_t j = first; j <= pos; j++) {
        const float *v = w->v[req] + ((size_t)j * s->num_kv_heads + kv_head) * v_dim;
        double weight = exp(score[j] - max);
        sum += weight;
        for (uint32_t d = 0; d < v_dim; d++) {
            out[d] += weight * stored(w, v[d]);
            v_max = fmax(v_max, fabs(stored(w, v[d])));
        }
    }
    if (s->sinks) sum += exp(w->sinks[head] - max);
    for (uint32_t d = 0; d < v_dim; d++)
        out[d] /= sum;
    free(score);
    double score_error = (s->head_dim + 8) * 0x1p-24 * size + 8 * 0x1p-24 * fabs(max);
    if (!rounds(w, name)) return v_max * (4 * score_error + 1e-5);
    return v_max * (2 * (score_error + size * 0x1p-9) + 0x1p-7);
}

static void check_naive(const world *w, const char *name, float *const *out, uint32_t every,
                        uint64_t *seed)
{
    double want[256], off = 0, all = 0;
    for (uint32_t i = 0; i < w->num_reqs; i++)
        for (uint32_t t = below(seed, every); t < w->len[i]; t += every)
            for (uint32_t h = 0; h < w->s.num_heads; h++) {
                double bound = naive(w, name, i, t, h, want);
                const float *got = out[i] + t * out_line(w) + (size_t)h * v_dim_of(w);
                for (uint32_t d = 0; d < v_dim_of(w); d++) {
                    off += (got[d] - want[d]) * (got[d] - want[d]);
                    all += want[d] * want[d];
                    CHECKF(fabs(got[d] - want[d]) <= bound,
                           "%s: request %u position %u head %u [%u]: %g, not %g (bound %g)\n", name,
                           i, t, h, d, got[d], want[d], bound);
                }
            }
    CHECKF(sqrt(off) <= (rounds(w, name) ? 1e-2 : 1e-4) * sqrt(all), "%s: off by %g\n", name,
           sqrt(off / all));
}

static void check_same(const world *w, const char *what, float *const *a, float *const *b)
{
    for (uint32_t i = 0; i < w->num_reqs; i++)
        for (uint32_t t = 0; t < w->len[i]; t++)
            CHECKF(memcmp(a[i] + t * out_line(w), b[i] + t * out_line(w), out_line(w) * 4) == 0,
                   "%s: request %u of %u tokens differs at position %u\n", what, i, w->len[i], t);
}

static shape random_shape(uint64_t *seed)
{
    static const uint32_t dims[] = {8, 32, 64, 80, 128};
    static const uint32_t pages[] = {1, 1, 16, 5};
    static const rad_dtype dtypes[] = {RAD_F32,  RAD_F32,     RAD_BF16,    RAD_BF16,
                                       RAD_BF16, RAD_F8_E4M3, RAD_F8_E5M2, RAD_I8};
    shape s = {.num_kv_heads = 1 + below(seed, 3),
               .head_dim = dims[below(seed, 5)],
               .page_size = pages[below(seed, 4)],
               .dtype = dtypes[below(seed, RAD_COUNT(dtypes))],
               .logit_cap = below(seed, 4) ? 0 : 5,
               .window = below(seed, 3) ? -1 : 1 + (int32_t)below(seed, 200)};
    s.num_heads = s.num_kv_heads * (1 + below(seed, 8));
    if (!below(seed, 4)) s.v_head_dim = dims[below(seed, 5)];
    s.sinks = !below(seed, 3);
    return s;
}

static void random_lens(uint32_t *len, uint32_t num_reqs, uint32_t most, uint64_t *seed)
{
    for (uint32_t i = 0; i < num_reqs; i++)
        len[i] = 1 + below(seed, below(seed, 2) ? most : 70);
}

TEST(every_backend_agrees_with_double_precision)
{
    uint64_t seed = test_told_seed();
    compute_pool *pool;
    CHECK_OK(compute_pool_create(NULL, 2, &pool, NULL));
    for (uint64_t round = 0; round < test_scale(20 / SLOWER, 300); round++) {
        shape s = random_shape(&seed);
        uint32_t len[3];
        random_lens(len, 3, 400, &seed);
        if (round % 8 == 0) len[0] = 700;
        const attn_backend *backend = best_or_emulated(round, &s);
        world w;
        float *out[MOST_REQS];
        world_init(&w, &s, len, 3, &seed);
        outs_alloc(&w, out);
        run_in_pieces(&w, backend, out, pool, 300, &seed);
        check_naive(&w, backend->name, out, 23, &seed);
        if (round % 5 == 0) {
            run_in_pieces(&w, attn_ref(), out, pool, 300, &seed);
            check_naive(&w, "ref", out, 23, &seed);
        }
        outs_free(&w, out);
        world_fini(&w);
    }
    compute_pool_destroy(pool);
}

TEST(instruction_sets_agree_bit_by_bit_and_with_the_judge)
{
    uint64_t seed = test_told_seed();
    for (uint64_t round = 0; round < test_scale(8 / SLOWER, 100); round++) {
        shape s = random_shape(&seed);
        uint32_t len[2];
        random_lens(len, 2, 150, &seed);
        world w;
        float *out[MOST_REQS], *first[MOST_REQS];
        world_init(&w, &s, len, 2, &seed);
        outs_alloc(&w, out);
        outs_alloc(&w, first);
        run_whole(&w, gear_attn_cpu("scalar"), first, NULL);
        check_naive(&w, "cpu-scalar", first, 11, &seed);
        for (int i = 0; i < 2; i++) {
            const attn_backend *backend = gear_attn_cpu(isa_names[i]);
            if (!backend) {
                print_message("this CPU lacks %s\n", isa_names[i]);
                continue;
            }
            run_whole(&w, backend, out, NULL);
            check_same(&w, backend->name, first, out);
        }
        run_whole(&w, attn_ref(), out, NULL);
        for (uint32_t i = 0; i < 2; i++)
            for (size_t j = 0; j < len[i] * out_line(&w); j++)
                CHECKF(fabsf(out[i][j] - first[i][j]) < 1e-4f, "%g, the judge says %g\n",
                       first[i][j], out[i][j]);
        outs_free(&w, out);
        outs_free(&w, first);
        world_fini(&w);
    }
    CHECK(gear_attn_cpu("mmx") == NULL);
}

TEST(amx_computes_what_its_emulation_does)
{
    const attn_backend *amx = gear_attn_cpu("amx"), *emulated = gear_attn_cpu("amx-emulated");
    SKIP_UNLESS(amx && emulated, "this CPU has no AMX");
    uint64_t seed = test_told_seed();
    for (uint64_t round = 0; round < test_scale(10 / SLOWER, 200); round++) {
        shape s = random_shape(&seed);
        if (s.dtype == RAD_F32) s.dtype = RAD_BF16;
        uint32_t len[2];
        random_lens(len, 2, 150, &seed);
        world w;
        float *out[MOST_REQS], *want[MOST_REQS];
        world_init(&w, &s, len, 2, &seed);
        outs_alloc(&w, out);
        outs_alloc(&w, want);
        run_whole(&w, amx, out, NULL);
        run_whole(&w, emulated, want, NULL);
        check_same(&w, "instructions and C", out, want);
        outs_free(&w, out);
        outs_free(&w, want);
        world_fini(&w);
    }
}

/* P1: each request alone in one piece, against random chunks in random company, against
 * one token after the other, on 1 to 3 threads. */
TEST(a_query_has_the_same_bits_however_it_is_computed)
{
    uint64_t seed = test_told_seed();
    compute_pool *pools[3] = {NULL};
    for (uint32_t t = 1; t < 3; t++)
        CHECK_OK(compute_pool_create(NULL, t + 1, &pools[t], NULL));
    for (uint64_t round = 0; round < test_scale(15 / SLOWER, 200); round++) {
        shape s = random_shape(&seed);
        uint32_t len[4];
        random_lens(len, 4, 300, &seed);
        const attn_backend *backend = round % 5 ? NULL : gear_attn_cpu("avx2");
        if (!backend) backend = best_or_emulated(round, &s);
        world w, again;
        float *whole[MOST_REQS], *out[MOST_REQS];
        uint64_t same_seed = seed;
        world_init(&w, &s, len, 4, &seed);
        outs_alloc(&w, whole);
        outs_alloc(&w, out);
        run_whole(&w, backend, whole, pools[below(&seed, 3)]);
        /* A pool of NaN again: what a chunk may not see yet is not there. */
        world_init(&again, &s, len, 4, &same_seed);
        run_in_pieces(&again, backend, out, pools[round % 3], round % 2 ? 1 : 90, &seed);
        check_same(&w, "whole and in pieces", whole, out);
        outs_free(&w, whole);
        outs_free(&w, out);
        world_fini(&again);
        world_fini(&w);
    }
    for (uint32_t t = 1; t < 3; t++)
        compute_pool_destroy(pools[t]);
}

/* Decoding has a layout of its own (attn_strip.h) where heads are whole and few share a KV head. */
TEST(a_token_alone_has_the_bits_that_it_has_among_many)
{
    static const uint32_t dims[] = {32, 64, 96, 128, 160, 256};
    static const struct {
        rad_dtype dtype;
        const char *isa; /* NULL: the best */
    } kinds[] = {{RAD_BF16, NULL},   {RAD_F32, "avx2"}, {RAD_BF16, NULL}, {RAD_F8_E4M3, NULL},
                 {RAD_BF16, "avx2"}, {RAD_F16, "avx2"}, {RAD_F16, NULL},  {RAD_F8_E5M2, NULL},
                 {RAD_F32, NULL},    {RAD_I8, NULL}};
    uint64_t seed = test_told_seed();
    for (uint32_t round = 0; round < test_scale(24 / SLOWER, 720); round++) {
        const attn_backend *backend = gear_attn_cpu(kinds[round % RAD_COUNT(kinds)].isa);
        if (!backend) continue;
        shape s = {.num_kv_heads = 1 + below(&seed, 5),
                   .head_dim = dims[below(&seed, RAD_COUNT(dims))],
                   .page_size = round % 3 ? 1 : 16,
                   .dtype = kinds[round % RAD_COUNT(kinds)].dtype,
                   .logit_cap = below(&seed, 4) ? 0 : 5,
                   .window = below(&seed, 2) ? -1 : 1 + (int32_t)below(&seed, 130)};
        s.num_heads = s.num_kv_heads * (1 + round % 9);
        uint32_t len[2] = {1 + below(&seed, 200), 150};
        world w;
        float *whole[MOST_REQS], *out[MOST_REQS];
        world_init(&w, &s, len, 2, &seed);
        outs_alloc(&w, whole);
        outs_alloc(&w, out);
        /* No numbers, and infinite ones, which some see and some do not. */
        for (uint32_t d = 0; d < s.num_kv_heads * s.head_dim && round % 4 == 0; d++) {
            w.k[1][90 * s.num_kv_heads * s.head_dim + d] = d % 3 ? 1 : NAN;
            w.v[1][70 * s.num_kv_heads * s.head_dim + d] = d % 3 ? 1 : INFINITY;
        }
        run_whole(&w, backend, whole, NULL);
        for (uint32_t t = 0; t < 200; t++) {
            uint32_t done[MOST_REQS] = {t, t}, fresh[MOST_REQS] = {t < len[0], t < len[1]};
            if (fresh[0] || fresh[1]) run_batch(&w, backend, done, fresh, out, NULL);
        }
        for (uint32_t i = 0; i < 2; i++)
            for (size_t at = 0; at < len[i] * out_line(&w); at++)
                CHECKF(memcmp(&whole[i][at], &out[i][at], sizeof(float)) == 0 ||
                           (isnan(whole[i][at]) && isnan(out[i][at])),
                       "request %u, position %zu: %g, among others %g\n", i, at / out_line(&w),
                       out[i][at], whole[i][at]);
        outs_free(&w, whole);
        outs_free(&w, out);
        world_fini(&w);
    }
}

/* Few rows over long contexts: blocks are spread over the threads, in several waves. */
TEST(spreading_a_long_context_over_threads_changes_no_bit)
{
    uint64_t seed = test_told_seed();
    static const rad_dtype dtypes[] = {RAD_F32, RAD_BF16, RAD_BF16, RAD_F8_E4M3, RAD_I8, RAD_BF16};
    for (uint32_t round = 0; round < RAD_COUNT(dtypes); round++) {
        shape s = {.num_heads = round % 2 ? 32 : 6,
                   .num_kv_heads = 2,
                   .head_dim = 128,
                   .page_size = 16,
                   .dtype = dtypes[round],
                   .window = round == 5 ? 1500 : -1};
        const attn_backend *backend = best_or_emulated(round % 3, &s);
        uint32_t len[2] = {2600 + below(&seed, 600), 1 + below(&seed, 900)};
        world w;
        float *alone[MOST_REQS], *out[MOST_REQS];
        world_init(&w, &s, len, 2, &seed);
        outs_alloc(&w, alone);
        outs_alloc(&w, out);
        for (uint32_t i = 0; i < 2; i++)
            rad_kv_pool_set_kv_buffer(w.kv, LAYER, rad_req_to_token_row(w.rows, w.row[i]), len[i],
                                      w.k[i], w.v[i]);
        uint32_t done[MOST_REQS] = {len[0] - 1 - round % 2, len[1] - 1};
        uint32_t last[MOST_REQS] = {1 + round % 2, round % 3 == 0};
        run_batch(&w, backend, done, last, alone, NULL);
        for (uint32_t threads = 2; threads < 5; threads++) {
            compute_pool *pool;
            CHECK_OK(compute_pool_create(NULL, threads, &pool, NULL));
            run_batch(&w, backend, done, last, out, pool);
            for (uint32_t i = 0; i < 2; i++)
                CHECKF(memcmp(out[i] + done[i] * out_line(&w), alone[i] + done[i] * out_line(&w),
                              last[i] * out_line(&w) * 4) == 0,
                       "request %u on %u threads\n", i, threads);
            compute_pool_destroy(pool);
        }
        double want[128];
        for (uint32_t h = 0; h < s.num_heads; h++) {
            double bound = naive(&w, backend->name, 0, len[0] - 1, h, want);
            const float *got = alone[0] + (len[0] - 1) * out_line(&w) + h * 128;
            for (uint32_t d = 0; d < 128; d++)
                CHECK(fabs(got[d] - want[d]) <= bound);
        }
        outs_free(&w, alone);
        outs_free(&w, out);
        world_fini(&w);
    }
}

/* Numbers that are no numbers stay with whoever may see them. */
TEST(a_later_nan_does_not_reach_earlier_queries)
{
    static const rad_dtype dtypes[] = {RAD_F32, RAD_BF16, RAD_F8_E4M3, RAD_F8_E5M2, RAD_I8};
    uint64_t seed = 11;
    for (size_t i = 0; i < RAD_COUNT(isa_names) * RAD_COUNT(dtypes); i++) {
        const attn_backend *backend = gear_attn_cpu(isa_names[i / RAD_COUNT(dtypes)]);
        if (!backend) continue;
        shape s = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 32, .page_size = 1, .window = -1};
        s.dtype = dtypes[i % RAD_COUNT(dtypes)];
        uint32_t len[1] = {100};
        world w;
        float *clean[MOST_REQS], *out[MOST_REQS];
        world_init(&w, &s, len, 1, &seed);
        outs_alloc(&w, clean);
        outs_alloc(&w, out);
        run_whole(&w, backend, clean, NULL);
        for (uint32_t d = 0; d < 2 * 32; d++)
            w.k[0][90 * 64 + d] = w.v[0][90 * 64 + d] = NAN;
        run_whole(&w, backend, out, NULL);
        CHECK(memcmp(clean[0], out[0], 90 * out_line(&w) * 4) == 0);
        for (size_t d = 90 * out_line(&w); d < 100 * out_line(&w); d++)
            CHECK(isnan(out[0][d]));
        outs_free(&w, clean);
        outs_free(&w, out);
        world_fini(&w);
    }
}

TEST(a_swapped_slot_changes_the_answer)
{
    uint64_t seed = 5;
    shape s = {.num_heads = 4,
               .num_kv_heads = 2,
               .head_dim = 64,
               .page_size = 1,
               .dtype = RAD_BF16,
               .window = -1};
    uint32_t len[2] = {200, 150};
    const attn_backend *backends[] = {attn_ref(), gear_attn_cpu(NULL), gear_attn_cpu("scalar"),
                                      gear_attn_cpu("amx-emulated")};
    for (size_t b = 0; b < RAD_COUNT(backends); b++) {
        if (!backends[b]) continue;
        world w;
        float *right[MOST_REQS], *wrong[MOST_REQS];
        world_init(&w, &s, len, 2, &seed);
        outs_alloc(&w, right);
        outs_alloc(&w, wrong);
        run_whole(&w, backends[b], right, NULL);
        rad_slot *one = rad_req_to_token_row(w.rows, w.row[0]) + 77;
        rad_slot *other = rad_req_to_token_row(w.rows, w.row[1]) + 13;
        rad_slot keep = *one;
        *one = *other;
        *other = keep;
        uint32_t done[MOST_REQS] = {199, 149}, fresh[MOST_REQS] = {1, 1};
        run_batch(&w, backends[b], done, fresh, wrong, NULL);
        for (uint32_t i = 0; i < 2; i++)
            CHECK(memcmp(right[i] + done[i] * out_line(&w), wrong[i] + done[i] * out_line(&w),
                         out_line(&w) * 4) != 0);
        outs_free(&w, right);
        outs_free(&w, wrong);
        world_fini(&w);
    }
}

TEST(exp_is_near_and_the_same_everywhere)
{
    const attn_kernels *isas[] = {&attn_isa_avx512.f32, &attn_isa_avx2.f32, &attn_isa_neon.f32};
    const attn_kernels *scalar = &attn_isa_scalar.f32;
    uint64_t seed = test_seed();
    CHECK(scalar->exp(0) == 1 && scalar->exp(-INFINITY) == 0);
    CHECK(scalar->exp(-1000) == 0 && isnan(scalar->exp(NAN)));
    for (int i = 0; i < 200000; i++) {
        float x = -90 * (float)(test_random(&seed) >> 40) * 0x1p-24f;
        if (i % 3 == 0) x /= 1000;
        float y = scalar->exp(x);
        double want = x < -86 ? 0 : exp(x);
        CHECKF(fabs(y - want) <= 4 * 0x1p-24 * want, "exp(%a) = %a, not %a\n", x, y, want);
        for (size_t j = 0; j < RAD_COUNT(isas); j++)
            if (gear_attn_cpu(isa_names[j]))
                CHECKF(isas[j]->exp(x) == y, "%s %a\n", isa_names[j], x);
    }
}

TEST(a_layer_that_does_not_fit_is_refused_in_words)
{
    uint64_t seed = 3;
    shape s = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 16, .page_size = 1, .window = -1};
    uint32_t len[1] = {4};
    world w;
    world_init(&w, &s, len, 1, &seed);
    rad_slot *slots = rad_req_to_token_row(w.rows, w.row[0]);
    uint32_t four = 4, zero = 0;
    forward_batch batch = {.num_reqs = 1,
                           .num_tokens = 4,
                           .out_cache_loc = slots,
                           .req_pool_indices = &w.row[0],
                           .seq_lens = &four,
                           .extend_prefix_lens = &zero,
                           .extend_seq_lens = &four,
                           .extend_start_loc = &zero,
                           .req_to_token_pool = w.rows,
                           .token_to_kv_pool = w.kv};
    float out[4 * 4 * 16];
#define REFUSED(change, word)                                                                      \
    do {                                                                                           \
        radix_attention layer = w.layer;                                                           \
        forward_batch b = batch;                                                                   \
        rad_error err = {0};                                                                       \
        change;                                                                                    \
        CHECK(radix_attention_forward(&layer, attn_ref(), &b, w.q[0], w.k[0], w.v[0], 1, out,      \
                                      NULL, &err) < 0);                                            \
        CHECKF(strstr(err.text, word), "%s\n", err.text);                                          \
    } while (0)
    uint32_t five = 5;
    rad_row no_row = 77;
    REFUSED(layer.layer_id = 2, "layer 2");
    REFUSED(layer.num_kv_heads = 1, "KV heads");
    REFUSED(layer.num_heads = 3, "3 heads");
    REFUSED(layer.num_heads = 0, "heads");
    REFUSED(layer.head_dim = 8, "heads of 8");
    REFUSED(layer.v_head_dim = 8, "heads of 16 and 8");
    REFUSED(layer.scaling = NAN, "scaling");
    REFUSED(layer.logit_cap = -1, "cap");
    REFUSED(layer.sliding_window = 0, "window");
    REFUSED(b.seq_lens = &five, "request 0");
    REFUSED(b.num_tokens = 5, "tokens in the batch");
    REFUSED(b.req_pool_indices = &no_row, "row 77");

    rad_token_to_kv_pool_params odd = *rad_kv_pool_params(w.kv);
    rad_token_to_kv_pool *later;
    odd.start_layer = 5;
    CHECK_OK(rad_token_to_kv_pool_create(NULL, &odd, &later, NULL));
    REFUSED(b.token_to_kv_pool = later, "from 5 on");
    rad_token_to_kv_pool_destroy(later);
    rad_error err = {0};
    CHECK(radix_attention_forward(&w.layer, attn_ref(), &batch, w.q[0], w.k[0], NULL, 1, out, NULL,
                                  &err) == RAD_E_INVAL);
    /* Absent K and V: what the pool holds is used, here what the run before wrote. */
    float again[4 * 4 * 16];
    CHECK_OK(radix_attention_forward(&w.layer, attn_ref(), &batch, w.q[0], w.k[0], w.v[0], 1, out,
                                     NULL, NULL));
    CHECK_OK(radix_attention_forward(&w.layer, attn_ref(), &batch, w.q[0], NULL, NULL, 1, again,
                                     NULL, NULL));
    CHECK(memcmp(out, again, sizeof out) == 0);
    world_fini(&w);
}

TEST_MAIN()
