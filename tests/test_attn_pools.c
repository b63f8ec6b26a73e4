/* test_attn_pools.c - attention over every kind of pool and every way to batch it.
 *
 * A world is a tree of shared prefixes: some trunk of slots, branches that continue it, and
 * requests that end in slots of their own. Each backend is held against attn_ref, and a
 * batch with groups against the same batch without: bit for bit. */
#include "below.h"
#include "gear/amx_gear.h"
#include "test.h"

#include "attn/attn_backend.h"
#include "attn/attn_kv.h"
#include "attn/attn_plan.h"
#include "mem/kv_codec.h"

#include <math.h>
#include <radish/mla_kv_pool.h>

static const char *const isa_names[] = {"avx512bf16", "amx",  "amx-emulated", "avx512",
                                        "avx2",       "neon", "scalar"};

enum { MOST_REQS = 12, MOST_GROUPS = 24, LAYER = 1 };
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { LONG = 20001, SLOWER = 3 }; /* they slow the arithmetic down twentyfold */
#else
enum { LONG = 100001, SLOWER = 1 };
#endif

typedef struct shape {
    uint32_t heads, kv_heads, head_dim, v_head_dim, dtype;
    bool mla, strided;
    float logit_cap;
    int32_t window;
} shape;

typedef struct world {
    shape s;
    radix_attention layer;
    rad_token_to_kv_pool *kv;
    rad_req_to_token_pool *rows;
    char *memory; /* of a strided pool */
    uint32_t num_reqs, num_tokens;
    uint32_t seq[MOST_REQS], prefix[MOST_REQS], fresh[MOST_REQS], start[MOST_REQS];
    rad_row row[MOST_REQS];
    forward_group groups[MOST_GROUPS];
    uint32_t num_groups, order[MOST_REQS];
    attn_kv_reads reads;
    forward_batch batch;
    float *q;
} world;

static void random_floats(float *x, size_t count, uint64_t *seed)
{
    for (size_t i = 0; i < count; i++)
        x[i] = ((float)(test_random(seed) >> 40) * 0x1p-24f - 0.5f) * 4;
}

static size_t out_floats(const world *w)
{
    return (size_t)w->num_tokens * w->s.heads * (w->s.v_head_dim ? w->s.v_head_dim : w->s.head_dim);
}

/* Two layers; a strided one keeps K and V of both layers of a token side by side. */
static void make_pool(world *w, uint32_t num_pages, uint64_t *seed)
{
    static const float scales[] = {0.5f, 0.0125f};
    const shape *s = &w->s;
    uint32_t v_dim = s->v_head_dim ? s->v_head_dim : s->head_dim;
    rad_kv_buffers b[2] = {{0}};
    if (s->strided) {
        size_t number = kv_dtype_bytes(s->dtype), k = s->kv_heads * s->head_dim * number;
        size_t v = s->mla ? 0 : s->kv_heads * v_dim * number;
        size_t scale = s->dtype == RAD_I8 ? 4 * (size_t)RAD_MAX(s->kv_heads, 2) : 0;
        size_t k_room = (k + 7) & ~(size_t)7, v_room = (v + 7) & ~(size_t)7;
        size_t stride = 2 * (k_room + v_room + 2 * scale) + 24;
        w->memory = malloc((num_pages + 1) * stride);
        memset(w->memory, 0xff, (num_pages + 1) * stride);
        char *at = w->memory;
        for (int l = 0; l < 2; l++) {
            b[l].k = at;
            b[l].v = s->mla ? NULL : at + k_room;
            if (scale) b[l].k_scale = (float *)(void *)(at + k_room + v_room);
            if (scale && !s->mla) b[l].v_scale = (float *)(void *)(at + k_room + v_room + scale);
            b[l].k_stride = stride;
            b[l].v_stride = s->mla ? 0 : stride;
            b[l].k_scale_stride = scale ? stride : 0;
            b[l].v_scale_stride = scale && !s->mla ? stride : 0;
            at += k_room + v_room + 2 * scale;
        }
    }
    rad_error err = {0};
    bool fp8 = s->dtype == RAD_F8_E4M3 || s->dtype == RAD_F8_E5M2;
    rad_status status;
    if (s->mla) {
        rad_mla_kv_pool_params p = {.struct_size = sizeof p,
                                    .num_pages = num_pages,
                                    .num_layers = 2,
                                    .kv_lora_rank = s->v_head_dim,
                                    .rope_dim = s->head_dim - s->v_head_dim,
                                    .dtype = s->dtype,
                                    .scales = fp8 ? scales : NULL,
                                    .buffers = s->strided ? b : NULL};
        status = rad_mla_kv_pool_create(NULL, &p, &w->kv, &err);
    } else {
        rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                         .num_pages = num_pages,
                                         .num_layers = 2,
                                         .num_kv_heads = s->kv_heads,
                                         .head_dim = s->head_dim,
                                         .v_head_dim = s->v_head_dim,
                                         .dtype = s->dtype,
                                         .k_scales = fp8 ? scales : NULL,
                                         .v_scales = fp8 ? scales : NULL,
                                         .buffers = s->strided ? b : NULL};
        status = rad_token_to_kv_pool_create(NULL, &p, &w->kv, &err);
    }
    CHECKF(status == RAD_OK, "%s\n", err.text);
    float *k = malloc(s->kv_heads * s->head_dim * sizeof *k);
    float *v = malloc(s->kv_heads * v_dim * sizeof *v);
    for (rad_slot slot = 1; slot <= (rad_slot)num_pages; slot++) {
        random_floats(k, s->kv_heads * s->head_dim, seed);
        random_floats(v, s->kv_heads * v_dim, seed);
        rad_kv_pool_set_kv_buffer(w->kv, LAYER, &slot, 1, k, s->mla ? NULL : v);
    }
    free(k);
    free(v);
}

/* Rows are long enough for what `grow` makes, and a private tail. */
enum { MOST_SHARED = 1000, ROW_TOKENS = MOST_SHARED + 64 * (4 + 2 + 4) + 400, SLOTS = 40000 };

/* A node of the tree: requests [first, first + count) share [begin, end). Its children
 * divide them, or some of them; at the leaves the slots are a request's own. */
static void grow(world *w, uint32_t begin, uint32_t first, uint32_t count, uint32_t *most_shared,
                 uint32_t *used, uint64_t *seed)
{
    uint32_t end = begin + 64 * (1 + below(seed, 4));
    if (w->num_groups < MOST_GROUPS)
        w->groups[w->num_groups++] = (forward_group){begin, end, first, count};
    for (uint32_t t = begin; t < end; t++) {
        rad_slot slot = (rad_slot)(1 + (*used)++);
        for (uint32_t m = first; m < first + count; m++)
            rad_req_to_token_row(w->rows, w->row[w->order[m]])[t] = slot;
    }
    for (uint32_t m = first; m < first + count; m++)
        most_shared[w->order[m]] = end;
    while (count >= 2 && begin < MOST_SHARED && below(seed, 4)) {
        uint32_t some = 2 + below(seed, count - 1);
        uint32_t gap = below(seed, 4) ? 0 : 64 * (1 + below(seed, 2));
        for (uint32_t m = first; m < first + some && gap; m++) /* private ones in between */
            for (uint32_t t = end; t < end + gap; t++)
                rad_req_to_token_row(w->rows, w->row[w->order[m]])[t] = (rad_slot)(1 + (*used)++);
        grow(w, end + gap, first, some, most_shared, used, seed);
        first += some;
        count -= some;
    }
}

static void world_init(world *w, const shape *s, uint32_t num_reqs, uint32_t most_fresh,
                       uint64_t *seed)
{
    *w = (world){.s = *s, .num_reqs = num_reqs};
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = num_reqs, .row_tokens = ROW_TOKENS};
    CHECK_OK(rad_req_to_token_pool_create(NULL, &rows, &w->rows, NULL));
    uint32_t used = 0, shared[MOST_REQS] = {0};
    for (uint32_t i = 0; i < num_reqs; i++) {
        CHECK_OK(rad_req_to_token_alloc(w->rows, &w->row[i]));
        uint32_t at = below(seed, i + 1);
        w->order[i] = w->order[at];
        w->order[at] = i;
    }
    /* Some requests share nothing with anyone. */
    uint32_t first = below(seed, 3) == 0;
    for (uint32_t count; first + 1 < num_reqs; first += count) {
        count = 2 + below(seed, num_reqs - first - 1);
        grow(w, 0, first, count, shared, &used, seed);
    }
    for (uint32_t i = 0; i < num_reqs; i++) {
        uint32_t own = below(seed, 130);
        w->fresh[i] = below(seed, 3) ? 1 : 1 + below(seed, most_fresh);
        w->prefix[i] = shared[i] + own;
        w->seq[i] = w->prefix[i] + w->fresh[i];
        w->start[i] = w->num_tokens;
        w->num_tokens += w->fresh[i];
        for (uint32_t t = shared[i]; t < w->seq[i]; t++)
            rad_req_to_token_row(w->rows, w->row[i])[t] = (rad_slot)(1 + used++);
    }
    CHECK(used < SLOTS);
    /* Slots in random order. */
    rad_slot *names = malloc((used + 1) * sizeof *names);
    for (uint32_t i = 0; i < used; i++) {
        uint32_t at = below(seed, i + 1);
        names[i + 1] = i == at ? (rad_slot)(i + 1) : names[at + 1];
        names[at + 1] = (rad_slot)(i + 1);
    }
    for (uint32_t i = 0; i < num_reqs; i++) {
        rad_slot *row = rad_req_to_token_row(w->rows, w->row[i]);
        for (uint32_t t = 0; t < w->seq[i]; t++)
            row[t] = names[row[t]];
    }
    free(names);
    make_pool(w, used, seed);
    size_t floats = (size_t)w->num_tokens * s->heads * s->head_dim;
    w->q = malloc(floats * sizeof *w->q);
    random_floats(w->q, floats, seed);
    w->layer = (radix_attention){.layer_id = LAYER,
                                 .num_heads = s->heads,
                                 .num_kv_heads = s->kv_heads,
                                 .head_dim = s->head_dim,
                                 .v_head_dim = s->v_head_dim,
                                 .scaling = 1 / sqrtf((float)s->head_dim),
                                 .logit_cap = s->logit_cap,
                                 .sliding_window = s->window};
    w->batch = (forward_batch){.num_reqs = num_reqs,
                               .num_tokens = w->num_tokens,
                               .req_pool_indices = w->row,
                               .seq_lens = w->seq,
                               .extend_prefix_lens = w->prefix,
                               .extend_seq_lens = w->fresh,
                               .extend_start_loc = w->start,
                               .groups = w->groups,
                               .group_reqs = w->order,
                               .req_to_token_pool = w->rows,
                               .token_to_kv_pool = w->kv,
                               .kv_reads = &w->reads};
}

static void world_fini(world *w)
{
    rad_token_to_kv_pool_destroy(w->kv);
    rad_req_to_token_pool_destroy(w->rows);
    free(w->memory);
    free(w->q);
}

/* The caller frees what comes back. */
static float *run(world *w, const attn_backend *backend, bool grouped, compute_pool *pool)
{
    float *out = malloc(out_floats(w) * sizeof *out);
    rad_error err = {0};
    w->batch.num_groups = grouped ? w->num_groups : 0;
    w->reads = (attn_kv_reads){0};
    rad_status status = radix_attention_forward(&w->layer, backend, &w->batch, w->q, NULL, NULL, 0,
                                                out, pool, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    return out;
}

static bool same(const world *w, const float *a, const float *b)
{
    return memcmp(a, b, out_floats(w) * sizeof *a) == 0;
}

/* By how much a result is off, of its size. */
static double off(const world *w, const float *got, const float *want)
{
    double wrong = 0, all = 0;
    for (size_t i = 0; i < out_floats(w); i++) {
        wrong += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        all += (double)want[i] * want[i];
    }
    return sqrt(wrong / all);
}

static shape random_shape(uint64_t *seed)
{
    static const uint32_t dims[] = {16, 64, 64, 72, 128, 33};
    shape s = {.kv_heads = 1 + below(seed, 3),
               .head_dim = dims[below(seed, 6)],
               .dtype = below(seed, 3) ? below(seed, 6) : RAD_BF16,
               .strided = !below(seed, 3),
               .logit_cap = below(seed, 4) ? 0 : 5,
               .window = below(seed, 3) ? -1 : 1 + (int32_t)below(seed, 600)};
    s.heads = s.kv_heads * (1 + below(seed, 5));
    if (!below(seed, 3)) s.v_head_dim = dims[below(seed, 6)];
    if (!below(seed, 4)) {
        s.mla = true;
        s.kv_heads = 1;
        s.heads = 1 + below(seed, 40);
        s.head_dim = below(seed, 2) ? 576 : 80;
        s.v_head_dim = s.head_dim - (below(seed, 2) ? 64 : 16);
    }
    return s;
}

static double limit_of(const world *w, const attn_backend *backend)
{
    bool narrow = w->s.dtype == RAD_BF16 || w->s.dtype >= RAD_F8_E4M3;
    bool rounds = narrow && (strcmp(backend->name, "cpu-avx512bf16") == 0 ||
                             strncmp(backend->name, "cpu-amx", 7) == 0);
    return rounds ? 1e-2 : 1e-5;
}

static void check_reads(const world *w, bool grouped)
{
    uint64_t all = 0, saved = 0, token = rad_kv_pool_bytes_per_token(rad_kv_pool_params(w->kv)) / 2;
    uint32_t first[MOST_REQS];
    for (uint32_t i = 0; i < w->num_reqs; i++) {
        int64_t window = w->s.window;
        first[i] = window > 0 && w->prefix[i] + 1 > window ? w->prefix[i] + 1 - (uint32_t)window
                                                           : 0;
        all += w->seq[i] - first[i];
    }
    for (uint32_t g = 0; grouped && g < w->num_groups; g++)
        for (uint32_t t = w->groups[g].begin; t < w->groups[g].end; t++) {
            uint32_t readers = 0;
            for (uint32_t m = 0; m < w->groups[g].count; m++)
                readers += t >= first[w->order[w->groups[g].first + m]];
            saved += readers ? readers - 1 : 0;
        }
    CHECKF(w->reads.unshared_bytes == all * token && w->reads.bytes == (all - saved) * token,
           "%llu and %llu bytes, not %llu and %llu\n", (unsigned long long)w->reads.bytes,
           (unsigned long long)w->reads.unshared_bytes, (unsigned long long)((all - saved) * token),
           (unsigned long long)(all * token));
}

TEST(groups_change_no_bit_on_any_instruction_set_and_the_judge_agrees)
{
    uint64_t seed = test_told_seed();
    compute_pool *pools[3] = {NULL};
    for (uint32_t t = 1; t < 3; t++)
        CHECK_OK(compute_pool_create(NULL, t + 1, &pools[t], NULL));
    for (uint64_t round = 0; round < test_scale(12 / SLOWER, 120); round++) {
        shape s = random_shape(&seed);
        world w;
        world_init(&w, &s, 2 + below(&seed, MOST_REQS - 1), round % 3 ? 6 : 90, &seed);
        float *judge = run(&w, attn_ref(), true, pools[1]);
        check_reads(&w, false);
        for (size_t i = 0; i < RAD_COUNT(isa_names); i++) {
            const attn_backend *backend = gear_attn_cpu(isa_names[i]);
            if (!backend || (i > 0 && (round + i) % 3)) continue; /* the best one always */
            float *plain = run(&w, backend, false, pools[round % 3]);
            double wrong = off(&w, plain, judge);
            CHECKF(wrong <= limit_of(&w, backend), "%s, dtype %u: off by %g\n", backend->name,
                   s.dtype, wrong);
            check_reads(&w, false);
            uint32_t threads = 1 + below(&seed, 3);
            float *grouped = run(&w, backend, true, pools[threads - 1]);
            CHECKF(same(&w, plain, grouped), "%s: %u groups of %u requests, dtype %u, window %d\n",
                   backend->name, w.num_groups, w.num_reqs, s.dtype, s.window);
            check_reads(&w, 2 * s.kv_heads >= threads);
            free(plain);
            free(grouped);
        }
        free(judge);
        world_fini(&w);
    }
    for (uint32_t t = 1; t < 3; t++)
        compute_pool_destroy(pools[t]);
}

/* Positions that a request's new tokens do not see lead to slot 0, which holds NaN: what window
 * memory is at its worst. */
static void forget_what_nobody_sees(world *w)
{
    float *nan = malloc(w->s.kv_heads * 1024 * sizeof *nan);
    for (uint32_t i = 0; i < w->s.kv_heads * 1024; i++)
        nan[i] = NAN;
    rad_kv_pool_set_kv_buffer(w->kv, LAYER, &(rad_slot){0}, 1, nan, w->s.mla ? NULL : nan);
    for (uint32_t i = 0; i < w->num_reqs; i++) {
        rad_slot *row = rad_req_to_token_row(w->rows, w->row[i]);
        for (uint32_t t = 0; t + (uint32_t)w->s.window < w->prefix[i] + 1; t++)
            row[t] = 0;
    }
    free(nan);
}

TEST(what_lies_before_a_window_is_never_read)
{
    uint64_t seed = test_told_seed();
    compute_pool *pool;
    CHECK_OK(compute_pool_create(NULL, 2, &pool, NULL));
    for (uint64_t round = 0; round < test_scale(12 / SLOWER, 120); round++) {
        shape s = random_shape(&seed);
        s.window = 1 + (int32_t)below(&seed, round % 2 ? 600 : 130);
        world w;
        world_init(&w, &s, 2 + below(&seed, MOST_REQS - 1), round % 3 ? 6 : 90, &seed);
        const attn_backend *backends[RAD_COUNT(isa_names) + 1] = {attn_ref()};
        float *masked[RAD_COUNT(backends)] = {run(&w, attn_ref(), false, pool)};
        for (size_t i = 0; i < RAD_COUNT(isa_names); i++)
            if ((backends[i + 1] = gear_attn_cpu(isa_names[i])) && (!i || (round + i) % 3 == 0))
                masked[i + 1] = run(&w, backends[i + 1], false, pool);
        forget_what_nobody_sees(&w);
        for (size_t i = 0; i < RAD_COUNT(backends); i++) {
            if (!masked[i]) continue;
            for (int grouped = 0; grouped < 2; grouped++) {
                float *window = run(&w, backends[i], grouped, round % 3 ? pool : NULL);
                CHECKF(same(&w, masked[i], window),
                       "%s, %s, window %d%s: another answer without what lies before\n",
                       backends[i]->name, kv_dtype_name(s.dtype), s.window,
                       grouped ? ", groups" : "");
                free(window);
            }
            free(masked[i]);
        }
        world_fini(&w);
    }
    compute_pool_destroy(pool);
}

/* Decoding reads a block's heads 16 tokens after the other (attn_strip.h), and the blocks between
 * and behind groups go on from the states that those left, several KV heads at a time. */
TEST(decoding_goes_on_from_what_groups_left)
{
    static const uint32_t dims[] = {32, 64, 96, 128};
    static const uint32_t dtypes[] = {RAD_BF16, RAD_F8_E4M3, RAD_F8_E5M2, RAD_I8};
    uint64_t seed = test_told_seed();
    compute_pool *pool;
    CHECK_OK(compute_pool_create(NULL, 2, &pool, NULL));
    for (uint32_t round = 0; round < test_scale(12 / SLOWER, 120); round++) {
        shape s = {.kv_heads = 1 + below(&seed, 7),
                   .head_dim = dims[below(&seed, RAD_COUNT(dims))],
                   .dtype = dtypes[round / 2 % RAD_COUNT(dtypes)],
                   .strided = round % 2,
                   .logit_cap = round % 4 ? 0 : 5,
                   .window = round % 3 ? -1 : 65 + (int32_t)below(&seed, 600)};
        s.heads = s.kv_heads * (1 + round % 8);
        if (round % 5 == 4) s.v_head_dim = dims[below(&seed, RAD_COUNT(dims))]; /* no strips */
        world w;
        world_init(&w, &s, 2 + below(&seed, MOST_REQS - 1), 1, &seed);
        float *judge = run(&w, attn_ref(), true, pool);
        for (size_t i = 0; i < RAD_COUNT(isa_names); i++) {
            const attn_backend *backend = gear_attn_cpu(isa_names[i]);
            if (!backend || (i > 0 && (round + i) % 6)) continue;
            float *plain = run(&w, backend, false, round % 2 ? pool : NULL);
            float *grouped = run(&w, backend, true, pool);
            CHECKF(off(&w, plain, judge) <= limit_of(&w, backend), "%s: off by %g\n", backend->name,
                   off(&w, plain, judge));
            CHECKF(same(&w, plain, grouped), "%s: %u groups of %u requests, %u heads of %u\n",
                   backend->name, w.num_groups, w.num_reqs, s.heads, s.kv_heads);
            free(plain);
            free(grouped);
        }
        free(judge);
        world_fini(&w);
    }
    compute_pool_destroy(pool);
}

/* Between the blocks that a unit's rows see there may be some that none does: a tile whose end
 * was put off (attn_wide.c) still has its values then, and their scales. */
static void check_gaps(uint32_t dtype, uint32_t window)
{
    enum { HEADS = 16, DIM = 64, GAPS = 9, TOKENS = 4, FLOATS = TOKENS * HEADS * DIM };
    const attn_codes *codes = dtype == RAD_BF16 ? NULL : attn_codes_of_cpu();
    if (dtype != RAD_BF16 && !codes) return;
    uint64_t seed = 11;
    uint32_t len = window + 64 * GAPS;
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = 1, .row_tokens = len};
    world w = {.s = {.heads = HEADS, .kv_heads = 1, .head_dim = DIM, .dtype = dtype}};
    CHECK_OK(rad_req_to_token_pool_create(NULL, &rows, &w.rows, NULL));
    CHECK_OK(rad_req_to_token_alloc(w.rows, &w.row[0]));
    make_pool(&w, len, &seed);
    float q[FLOATS], out[FLOATS], alone[FLOATS];
    random_floats(q, FLOATS, &seed);
    rad_slot *slots = rad_req_to_token_row(w.rows, w.row[0]);
    for (uint32_t t = 0; t < len; t++)
        slots[t] = (rad_slot)(1 + t);
    w.layer = (radix_attention){LAYER, HEADS, 1, DIM, 0, 0.125f, 0, (int32_t)window};
    w.batch = (forward_batch){.num_reqs = 1, .num_tokens = TOKENS, .token_to_kv_pool = w.kv};
    for (uint32_t gap = 0; gap < GAPS; gap++) {
        attn_call call = attn_call_of(&attn_pairs_avx512bf16, codes, &w.layer, &w.batch, q, out);
        attn_unit u = {.slots = slots,
                       .num_slots = window + 64 * gap,
                       .end_block = window / 64 + gap,
                       .side_end = 1,
                       .num_tokens = TOKENS,
                       .first = true,
                       .last = true};
        uint32_t position[TOKENS];
        attn_walk walk = {.ready = false};
        for (uint32_t t = 0; t < TOKENS; t++) {
            u.token[t] = t;
            position[t] = u.position[t] = window - 1 + (t < TOKENS / 2 ? 0 : 64 * gap);
        }
        attn_unit_run(&call, &u, &walk, NULL);
        call.out = alone;
        u.num_tokens = 1;
        for (uint32_t t = 0; t < TOKENS; t++) {
            u.token[0] = t;
            u.position[0] = position[t];
            attn_unit_run(&call, &u, &walk, NULL);
        }
        CHECKF(memcmp(out, alone, sizeof out) == 0, "%s, window %u, %u blocks further on\n",
               kv_dtype_name(dtype), window, gap);
    }
    rad_token_to_kv_pool_destroy(w.kv);
    rad_req_to_token_pool_destroy(w.rows);
}

TEST(a_unit_may_have_blocks_that_nobody_sees)
{
    SKIP_UNLESS(gear_attn_cpu("avx512bf16"), "this CPU has no AVX512_BF16");
    for (uint32_t window = 64; window <= 256; window += 64) {
        check_gaps(RAD_BF16, window);
        check_gaps(RAD_I8, window);
    }
}

/* What the tests above would notice: a member whose shared slots are not the group's, and
 * blocks folded in another order. */
TEST(a_planted_fault_in_a_group_shows)
{
    uint64_t seed = 7;
    for (uint32_t dtype = RAD_F32; dtype <= RAD_BF16; dtype++) {
        shape s = {.heads = 4, .kv_heads = 2, .head_dim = 64, .dtype = dtype, .window = -1};
        world w;
        do {
            world_init(&w, &s, 6, 4, &seed);
            if (w.num_groups && w.groups[0].end - w.groups[0].begin >= 128) break;
            world_fini(&w);
        } while (true);
        float *right = run(&w, gear_attn_cpu(NULL), true, NULL);
        /* The group reads through its first member: swap there, and compare all. */
        rad_slot *row = rad_req_to_token_row(w.rows, w.row[w.order[w.groups[0].first]]);
        rad_slot keep = row[70];
        row[70] = row[w.seq[w.order[w.groups[0].first]] - 1];
        float *swapped = run(&w, gear_attn_cpu(NULL), true, NULL);
        row[70] = keep;
        CHECK(!same(&w, right, swapped));
        /* Two blocks in the other order: the same set of keys, other bits. */
        for (uint32_t m = 0; m < w.groups[0].count; m++) {
            row = rad_req_to_token_row(w.rows, w.row[w.order[w.groups[0].first + m]]);
            for (uint32_t t = 0; t < 64; t++) {
                keep = row[t];
                row[t] = row[64 + t];
                row[64 + t] = keep;
            }
        }
        float *turned = run(&w, gear_attn_cpu(NULL), true, NULL);
        CHECK(!same(&w, right, turned) && off(&w, turned, right) < 1e-2);
        free(right);
        free(swapped);
        free(turned);
        world_fini(&w);
    }
}

TEST(a_row_reads_as_the_pool_says)
{
    uint64_t seed = test_told_seed();
    for (uint32_t round = 0; round < 24; round++) {
        shape s = random_shape(&seed);
        s.dtype = round % 6;
        world w = {.s = s};
        make_pool(&w, 20, &seed);
        uint32_t v_dim = s.v_head_dim ? s.v_head_dim : s.head_dim;
        float k[3 * 1024], v[3 * 1024], got[1024];
        attn_kv kv = attn_kv_of(w.kv, LAYER);
        for (rad_slot slot = 1; slot <= 20; slot++) {
            CHECK_OK(rad_kv_pool_get_kv(w.kv, LAYER, &slot, 1, k, v));
            for (uint32_t h = 0; h < s.kv_heads; h++) {
                attn_kv_read(&kv, ATTN_K, slot, h, got);
                CHECK(memcmp(got, k + h * s.head_dim, s.head_dim * sizeof *got) == 0);
                attn_kv_read(&kv, ATTN_V, slot, h, got);
                CHECK(memcmp(got, v + h * v_dim, v_dim * sizeof *got) == 0);
            }
        }
        rad_token_to_kv_pool_destroy(w.kv);
        free(w.memory);
    }
}

/* One long context and its last token, on one thread and spread over three (and two). */
static void check_100k(uint32_t dtype, uint32_t head_dim, int32_t window)
{
    uint64_t seed = 3;
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = 1, .row_tokens = LONG};
    world w = {
        .s = {.heads = 2, .kv_heads = 1, .head_dim = head_dim, .dtype = dtype, .window = window}};
    CHECK_OK(rad_req_to_token_pool_create(NULL, &rows, &w.rows, NULL));
    CHECK_OK(rad_req_to_token_alloc(w.rows, &w.row[0]));
    rad_slot *row = rad_req_to_token_row(w.rows, w.row[0]);
    make_pool(&w, 5000, &seed);
    for (uint32_t t = 0; t < LONG; t++)
        row[t] = (rad_slot)(1 + below(&seed, 5000));
    float q[2 * 128];
    random_floats(q, 2 * head_dim, &seed);
    w.q = q;
    w.num_reqs = w.num_tokens = w.fresh[0] = 1;
    w.seq[0] = LONG;
    w.prefix[0] = LONG - 1;
    w.layer = (radix_attention){LAYER, 2, 1, head_dim, 0, 1 / sqrtf((float)head_dim), 0, window};
    w.batch = (forward_batch){.num_reqs = 1,
                              .num_tokens = 1,
                              .req_pool_indices = w.row,
                              .seq_lens = w.seq,
                              .extend_prefix_lens = w.prefix,
                              .extend_seq_lens = w.fresh,
                              .extend_start_loc = w.start,
                              .req_to_token_pool = w.rows,
                              .token_to_kv_pool = w.kv};
    bool wide = dtype == RAD_F32 || dtype == RAD_F16; /* no kernel computes these in bf16 */
    float *judge = run(&w, attn_ref(), false, NULL);
    for (size_t i = 0; i < RAD_COUNT(isa_names); i++) {
        const attn_backend *backend = gear_attn_cpu(isa_names[i]);
        if (!backend) continue;
        float *alone = run(&w, backend, false, NULL);
        /* The judge adds 100,000 numbers in f32 one after the other. */
        CHECKF(off(&w, alone, judge) <= (i < 3 && !wide ? 1e-2 : 1e-4),
               "%s, %s, head_dim %u, window %d: off by %g\n", backend->name, kv_dtype_name(dtype),
               head_dim, window, off(&w, alone, judge));
        for (uint32_t threads = (uint32_t)test_scale(3, 2); threads < 4; threads++) {
            compute_pool *pool;
            CHECK_OK(compute_pool_create(NULL, threads, &pool, NULL));
            float *spread = run(&w, backend, false, pool);
            CHECKF(same(&w, alone, spread), "%s on %u threads\n", backend->name, threads);
            free(spread);
            compute_pool_destroy(pool);
        }
        free(alone);
    }
    free(judge);
    rad_token_to_kv_pool_destroy(w.kv);
    rad_req_to_token_pool_destroy(w.rows);
}

/* Every store, and windows: most of it, all but two tokens, one block. */
TEST(a_context_of_100k_tokens)
{
    static const rad_dtype stores[] = {RAD_F32,     RAD_BF16,    RAD_F16,
                                       RAD_F8_E4M3, RAD_F8_E5M2, RAD_I8};
    for (size_t i = 0; i < RAD_COUNT(stores); i++)
        check_100k(stores[i], 64, -1);
    check_100k(RAD_BF16, 64, LONG / 10 * 7);
    check_100k(RAD_F32, 128, LONG - 2);
    check_100k(RAD_F32, 33, 64);
    check_100k(RAD_BF16, 16, -1);
}

TEST(groups_that_contradict_themselves_are_refused_in_words)
{
    uint64_t seed = 5;
    shape s = {.heads = 2, .kv_heads = 1, .head_dim = 16, .window = -1};
    world w;
    world_init(&w, &s, 4, 3, &seed);
    float *out = malloc(out_floats(&w) * sizeof *out);
    for (uint32_t i = 0; i < 4; i++) {
        w.prefix[i] = 100;
        w.seq[i] = 100 + w.fresh[i];
    }
    const forward_group good = {0, 64, 0, 2};
#define REFUSED(change, word)                                                                      \
    do {                                                                                           \
        forward_group g[2] = {good, good};                                                         \
        uint32_t order[4] = {0, 1, 2, 3};                                                          \
        forward_batch b = w.batch;                                                                 \
        rad_error err = {0};                                                                       \
        b.groups = g;                                                                              \
        b.group_reqs = order;                                                                      \
        b.num_groups = 1;                                                                          \
        change;                                                                                    \
        CHECK(radix_attention_forward(&w.layer, gear_attn_cpu(NULL), &b, w.q, NULL, NULL, 0, out,  \
                                      NULL, &err) == RAD_E_INVAL);                                 \
        CHECKF(strstr(err.text, word), "%s\n", err.text);                                          \
    } while (0)
    REFUSED(b.groups = NULL, "not given");
    REFUSED(b.group_reqs = NULL, "not given");
    REFUSED(order[1] = 0, "twice");
    REFUSED(order[3] = 4, "not in the batch");
    REFUSED(g[0].begin = 64, "positions 64 to 64");
    REFUSED(g[0].end = 65, "0 to 65");
    REFUSED(g[0].begin = 1, "1 to 64");
    REFUSED(g[0].count = 1, "1 requests");
    REFUSED(g[0].count = 5, "5 requests");
    REFUSED((g[0].first = 3, g[0].count = 2), "from 3 on");
    REFUSED(g[0].end = 64 * 1000, "old ones");
    REFUSED(b.num_groups = 2, "groups up to 64");
    free(out);
    world_fini(&w);
}

TEST_MAIN()
