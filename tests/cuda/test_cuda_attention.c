/* Attention's kernels, emulated: what they compute is attention, and a query's bits depend on the
 * query and its context alone. */
#include "../test.h"
#include "base/base.h"
#include "cuda_rig.h"

#include <math.h>

/* A kernel that leaves out its barrier number `left_out`, of those that its source has. */
static unsigned left_out = ~0u;
#include "device/kernels/dialect.h"
#undef SYNC_BLOCK
#define SYNC_BLOCK()                                                                               \
    do {                                                                                           \
        if (left_out != __COUNTER__ - FIRST_BARRIER) emulated_sync_block(EMULATED_HERE);           \
    } while (0)
enum { FIRST_BARRIER = __COUNTER__ + 1 };
#include "cuda/kernels/attention.h"
enum { BARRIERS = __COUNTER__ - FIRST_BARRIER };

KERNEL(attention_torn_32, ATTN_THREADS, attention_args)
{
    SHARED_DYNAMIC(u8, shared);
    attention(&a, shared, 32);
}

KERNEL(attention_torn_64, ATTN_THREADS, attention_args)
{
    SHARED_DYNAMIC(u8, shared);
    attention(&a, shared, 64);
}

KERNEL(attention_torn_256, ATTN_THREADS, attention_args)
{
    SHARED_DYNAMIC(u8, shared);
    attention(&a, shared, 256);
}

#include "cuda/attention_plan.h"

/* A pool of K and V, and rows of slots over it. Row r has the content of row 0 up to
 * `shared[r]` and its own behind; its slots are any. */
enum { ROWS = 4, LD = 1280 };
typedef struct world {
    cuda_attention_shape shape;
    float scale, cap;
    const float *sinks;
    uint32_t page;         /* slots that lie side by side */
    uint32_t shared[ROWS]; /* positions that a row has in common with row 0: the same slots */
    uint64_t seed;
    cuda_rig *rig;
    uint32_t num_slots;
    int32_t *slots; /* [ROWS][LD] */
    uint16_t *k, *v;
} world;

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31, x *= 0x7fb5d329728ea185ull;
    x ^= x >> 27, x *= 0x81dadef4bc2dd44dull;
    return x ^ x >> 33;
}

static uint16_t number(uint64_t seed, uint64_t what, uint64_t i, float size)
{
    float f = (float)((double)mix(seed ^ mix(what ^ mix(i))) / 0x1p63 - 1) * size;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return (uint16_t)(bits >> 16);
}

static double bf16(uint16_t bits)
{
    uint32_t u = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* Slots of another seed are others; what stands in them is not. Slots nobody has are NaN. */
static void world_create(world *w, uint64_t slots_seed)
{
    uint32_t dim = w->shape.head_dim, width = w->shape.kv_heads * dim;
    w->num_slots = (ROWS * LD + 16);
    w->slots = malloc(sizeof *w->slots * ROWS * LD);
    w->k = rig_alloc(w->rig, (size_t)w->num_slots * width * 2);
    w->v = rig_alloc(w->rig, (size_t)w->num_slots * width * 2);
    if (w->sinks) {
        float *sinks = rig_alloc(w->rig, sizeof(float) * w->shape.heads);
        memcpy(sinks, w->sinks, sizeof(float) * w->shape.heads);
        w->sinks = sinks;
    }
    memset(w->k, 0xff, (size_t)w->num_slots * width * 2);
    memset(w->v, 0xff, (size_t)w->num_slots * width * 2);
    uint32_t pages = ROWS * LD / w->page, *order = malloc(sizeof *order * pages);
    for (uint32_t i = 0; i < pages; i++) {
        uint32_t j = (uint32_t)(mix(slots_seed ^ i) % (i + 1));
        order[i] = order[j], order[j] = i;
    }
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t p = 0; p < LD; p++) {
            uint32_t from = r && p < w->shared[r] ? 0 : r, at = from * LD + p;
            uint32_t slot = order[at / w->page] * w->page + at % w->page + 16;
            w->slots[r * LD + p] = (int32_t)slot;
            for (uint32_t i = 0; i < width; i++) {
                w->k[slot * width + i] = number(w->seed, 1 + from, p * width + i, 2);
                w->v[slot * width + i] = number(w->seed, 99 + from, p * width + i, 1);
            }
        }
    free(order);
}

static void world_destroy(world *w)
{
    free(w->slots);
    rig_free(w->rig, 0);
}

/* A step: requests of rows with so many positions before their new tokens, and how it is run. */
typedef struct step {
    uint32_t num_reqs, row[8], prefix[8], tokens[8];
    uint32_t num_groups, group_reqs[8];
    forward_group groups[4];
    uint32_t max_parts, grid, shared_bytes;
    const char *kernel; /* NULL: the plan's */
    uint64_t order;
    tensor_core_model model;
    /* what came of it */
    uint32_t num_units, num_parts;
    uint32_t long_units; /* that leave parts of several spans */
} step;

static uint32_t first_seen(const world *w, uint32_t position)
{
    uint32_t window = w->shape.window;
    return window && position >= window ? position - window + 1 : 0;
}

static uint16_t *make_q(const world *w, uint32_t row, uint32_t position, uint16_t *to)
{
    uint32_t n = w->shape.heads * w->shape.head_dim;
    uint32_t from = row && position < w->shared[row] ? 0 : row;
    for (uint32_t i = 0; i < n; i++)
        *to++ = number(w->seed, 7 + from, position * n + i, 2);
    return to;
}

/* Kernels of this file are emulated alone. */
static void launch(const world *w, const char *name, const step *s, emulation e, size_t args_bytes)
{
    e.kernel = s->kernel ? s->kernel : name;
    e.order = s->order;
    e.model = s->model;
    if (!s->kernel || strcmp(name, "attention_merge") == 0) {
        e.kernel = name;
        rig_launch(w->rig, name, e, args_bytes);
        return;
    }
    const char *wrong = emulate(&e);
    CHECKF(!wrong, "%s\n", wrong);
}

/* [tokens][heads][head_dim] bf16, to be freed. */
static uint16_t *run(const world *w, step *s)
{
    const cuda_attention_shape *shape = &w->shape;
    uint32_t width = shape->heads * shape->head_dim, kv = shape->kv_heads * shape->head_dim * 2;
    uint32_t start[8], ends[8], num_tokens = 0, *positions;
    rad_row rows[8];
    const uint32_t keep = w->rig->num_buffers;
    positions = rig_alloc(w->rig, 4 * LD);
    for (uint32_t i = 0; i < s->num_reqs; i++) {
        start[i] = num_tokens;
        rows[i] = (rad_row)s->row[i];
        ends[i] = s->prefix[i] + s->tokens[i];
        for (uint32_t t = 0; t < s->tokens[i]; t++)
            positions[num_tokens++] = s->prefix[i] + t;
    }
    uint16_t *q = rig_alloc(w->rig, num_tokens * width * 2), *at = q;
    for (uint32_t i = 0; i < s->num_reqs; i++)
        for (uint32_t t = 0; t < s->tokens[i]; t++)
            at = make_q(w, s->row[i], s->prefix[i] + t, at);
    forward_batch batch = {.num_reqs = s->num_reqs,
                           .num_tokens = num_tokens,
                           .positions = positions,
                           .req_pool_indices = rows,
                           .seq_lens = ends,
                           .extend_prefix_lens = s->prefix,
                           .extend_seq_lens = s->tokens,
                           .extend_start_loc = start,
                           .num_groups = s->num_groups,
                           .groups = s->groups,
                           .group_reqs = s->group_reqs};
    cuda_attention_launch l = cuda_attention_launch_of(
        shape, s->grid ? s->grid : 3, s->shared_bytes ? s->shared_bytes : 227 << 10);
    CHECK(l.kernel);
    uint32_t parts = s->max_parts;
    cuda_attention_plan plan = {
        .units = rig_alloc(w->rig,
                           sizeof(attention_unit) * cuda_attention_most_units(num_tokens, parts)),
        .unit_tokens = rig_alloc(w->rig, 4 * cuda_attention_most_unit_tokens(num_tokens)),
        .parts_at = rig_alloc(w->rig, 4 * num_tokens),
        .scratch = malloc(cuda_attention_scratch_bytes(num_tokens, s->num_reqs, parts)),
        .max_tokens = num_tokens,
        .max_requests = s->num_reqs,
        .max_parts = parts};
    cuda_attention_plan_make(&plan, &batch, shape, &l);
    s->num_units = plan.num_units;
    s->num_parts = plan.num_parts;
    s->long_units = 0;
    for (uint32_t i = 0; i < plan.num_units; i++)
        s->long_units += !plan.units[i].direct &&
                         plan.units[i].begin / ATTN_SPAN != (plan.units[i].end - 1) / ATTN_SPAN;

    /* What no token of a row sees has slots of NaN. */
    int32_t *slots = rig_alloc(w->rig, sizeof *slots * ROWS * LD);
    memset(slots, 0, sizeof *slots * ROWS * LD);
    for (uint32_t i = 0; i < s->num_reqs; i++)
        for (uint32_t p = first_seen(w, s->prefix[i]); p < ends[i]; p++)
            slots[s->row[i] * LD + p] = w->slots[s->row[i] * LD + p];

    uint32_t *num_units = rig_alloc(w->rig, 4);
    *num_units = plan.num_units;
    uint16_t *out = rig_alloc(w->rig, num_tokens * width * 2);
    memset(out, 0xff, num_tokens * width * 2);
    float *part_v = rig_alloc(w->rig, cuda_attention_part_v_bytes(shape, plan.num_parts) + 8);
    float *part_ms = rig_alloc(w->rig, cuda_attention_part_ms_bytes(shape, plan.num_parts) + 8);
    attention_args a = {.q = q,
                        .k = (const u8 *)w->k,
                        .v = (const u8 *)w->v,
                        .k_stride = kv,
                        .v_stride = kv,
                        .slots = slots,
                        .units = plan.units,
                        .num_units = num_units,
                        .unit_tokens = plan.unit_tokens,
                        .positions = positions,
                        .parts_at = plan.parts_at,
                        .part_v = part_v,
                        .part_ms = part_ms,
                        .sinks = w->sinks,
                        .out = out,
                        .heads = shape->heads,
                        .kv_heads = shape->kv_heads,
                        .head_dim = shape->head_dim,
                        .v_head_dim = shape->head_dim,
                        .slots_ld = LD,
                        .out_ld = width,
                        .window = shape->window,
                        .scale = w->scale,
                        .cap = w->cap,
                        .stages = l.stages};
    attention_merge_args m = {.part_v = part_v,
                              .part_ms = part_ms,
                              .positions = positions,
                              .parts_at = plan.parts_at,
                              .sinks = w->sinks,
                              .out = out,
                              .tokens = num_tokens,
                              .heads = shape->heads,
                              .v_head_dim = shape->head_dim,
                              .out_ld = width,
                              .window = shape->window,
                              .scale = w->scale,
                              .cap = w->cap};
    launch(w, l.kernel, s,
           (emulation){.grid = {l.grid, 1, 1},
                       .threads = l.threads,
                       .shared_bytes = l.shared_bytes,
                       .args = &a},
           sizeof a);
    if (plan.num_parts)
        launch(w, "attention_merge", s,
               (emulation){.grid = {num_tokens, shape->heads, 1},
                           .threads = cuda_attention_merge_threads(shape->head_dim),
                           .args = &m},
               sizeof m);
    uint16_t *left = malloc(num_tokens * width * 2);
    memcpy(left, out, num_tokens * width * 2);
    free(plan.scratch);
    rig_free(w->rig, keep);
    return left;
}

/* One head of a query, in double. */
static void reference(const world *w, uint32_t row, uint32_t position, uint32_t head, double *out)
{
    uint32_t dim = w->shape.head_dim, width = w->shape.kv_heads * dim;
    uint32_t kv = head / (w->shape.heads / w->shape.kv_heads) * dim;
    uint32_t first = first_seen(w, position);
    uint16_t *q = malloc(w->shape.heads * dim * 2);
    double scores[LD], max = -INFINITY, sum = 0;
    make_q(w, row, position, q);
    for (uint32_t p = first; p <= position; p++) {
        const uint16_t *k = w->k + (size_t)w->slots[row * LD + p] * width + kv;
        double s = 0;
        for (uint32_t d = 0; d < dim; d++)
            s += bf16(q[head * dim + d]) * bf16(k[d]);
        s *= w->scale;
        scores[p] = w->cap > 0 ? w->cap * tanh(s / w->cap) : s;
        max = fmax(max, scores[p]);
    }
    for (uint32_t d = 0; d < dim; d++)
        out[d] = 0;
    for (uint32_t p = first; p <= position; p++) {
        const uint16_t *v = w->v + (size_t)w->slots[row * LD + p] * width + kv;
        double weight = exp(scores[p] - max);
        sum += weight;
        for (uint32_t d = 0; d < dim; d++)
            out[d] += weight * bf16(v[d]);
    }
    if (w->sinks) sum += exp(w->sinks[head] - max);
    for (uint32_t d = 0; d < dim; d++)
        out[d] /= sum;
    free(q);
}

/* The largest error of a step's numbers, in parts of the largest of a head's. */
static double error_of(const world *w, const step *s, const uint16_t *out)
{
    double worst = 0, want[256];
    uint32_t dim = w->shape.head_dim;
    for (uint32_t i = 0; i < s->num_reqs; i++)
        for (uint32_t t = 0; t < s->tokens[i]; t++)
            for (uint32_t head = 0; head < w->shape.heads; head++, out += dim) {
                double size = 0;
                reference(w, s->row[i], s->prefix[i] + t, head, want);
                for (uint32_t d = 0; d < dim; d++)
                    size = fmax(size, fabs(want[d]));
                for (uint32_t d = 0; d < dim; d++) {
                    double e = fabs(bf16(out[d]) - want[d]) / size;
                    worst = e > worst || e != e ? e : worst;
                    if (e != e) return INFINITY;
                }
            }
    return worst;
}

static world plain(uint32_t heads, uint32_t kv_heads, uint32_t dim, uint32_t window)
{
    world w = {.shape = {heads, kv_heads, dim, window},
               .scale = 1 / sqrtf((float)dim),
               .page = 1,
               .shared = {0, 704, 512, 100},
               .seed = 5};
    return w;
}

TEST(numbers_are_those_of_attention)
{
    cuda_rig rig = rig_open();
    static const float sinks[8] = {0.5f, -3, 9, 0, 1, 2, 3, 4};
    static const struct {
        uint32_t heads, kv_heads, dim, window, sinks;
        float cap;
    } cases[] = {{4, 2, 16, 0, 0, 0}, {8, 2, 32, 0, 0, 0},    {2, 1, 64, 0, 0, 0},
                 {3, 1, 96, 0, 0, 0}, {4, 1, 128, 300, 1, 0}, {2, 1, 256, 0, 0, 30},
                 {4, 2, 32, 70, 1, 5}};
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        world w = plain(cases[i].heads, cases[i].kv_heads, cases[i].dim, cases[i].window);
        w.cap = cases[i].cap;
        w.sinks = cases[i].sinks ? sinks : NULL;
        w.rig = &rig;
        world_create(&w, 1);
        for (uint32_t parts = 0; parts <= 100; parts += 100) {
            step s = {.num_reqs = 3,
                      .row = {0, 1, 2},
                      .prefix = {600, 0, 300},
                      .tokens = {1, 70, 7},
                      .max_parts = parts,
                      .shared_bytes = (parts ? 163 : 227) << 10, /* an A100's, an H100's */
                      .model = TENSOR_CORE_SM90};
            uint16_t *out = run(&w, &s);
            double error = error_of(&w, &s, out);
            CHECKF(error < 6e-3, "dim %u, %u parts: %g\n", cases[i].dim, s.num_parts, error);
            free(out);
        }
        world_destroy(&w);
    }
    rig_close(&rig);
}

/* A token's numbers in a step's, or NULL. */
static const uint16_t *of_token(const world *w, const step *s, const uint16_t *out, uint32_t row,
                                uint32_t position)
{
    uint32_t width = w->shape.heads * w->shape.head_dim;
    for (uint32_t i = 0; i < s->num_reqs; i++) {
        if (s->row[i] == row && position - s->prefix[i] < s->tokens[i])
            return out + (position - s->prefix[i]) * width;
        out += s->tokens[i] * width;
    }
    return NULL;
}

/* How many tokens of two steps have other bits; each that both have is looked at. */
static uint32_t tokens_that_differ(const world *w, const step *a, const uint16_t *x, const step *b,
                                   const uint16_t *y)
{
    uint32_t differ = 0, common = 0, bytes = w->shape.heads * w->shape.head_dim * 2;
    for (uint32_t i = 0; i < a->num_reqs; i++)
        for (uint32_t t = 0; t < a->tokens[i]; t++) {
            uint32_t row = a->row[i], position = a->prefix[i] + t;
            const uint16_t *other = of_token(w, b, y, row, position);
            if (!other) continue;
            common++;
            differ += memcmp(of_token(w, a, x, row, position), other, bytes) != 0;
        }
    CHECK(common);
    return differ;
}

/* Prompts, with and without parts, beside others, alone, in groups, token by token; other blocks,
 * stages, schedules and slots. */
TEST(bits_are_of_a_query_and_its_context)
{
    cuda_rig rig = rig_open();
    static const float sinks[4] = {0.5f, -3, 9, 0};
    uint32_t long_units = 0;
    for (uint32_t variant = 0; variant < test_scale(3, 12); variant++) {
        world w = plain(4, variant % 3 == 2 ? 1 : 2, variant % 4 == 3 ? 96 : 32,
                        variant % 2 ? 200 + 37 * variant : 0);
        w.cap = variant == 1 ? 4 : 0;
        w.sinks = variant == 1 ? sinks : NULL;
        w.seed = variant;
        w.rig = &rig;
        world_create(&w, 1);
        tensor_core_model model = variant == 2 ? TENSOR_CORE_SM80 : TENSOR_CORE_SM90;
        step prompt = {.num_reqs = 2,
                       .row = {0, 2},
                       .prefix = {630, 590},
                       .tokens = {120, 40},
                       .model = model};
        uint16_t *want = run(&w, &prompt);
        CHECK(prompt.num_parts == 0);

        world other = w;
        other.page = 16;
        world_create(&other, 2);
        step cuts[] = {
            {.num_reqs = 2,
             .row = {2, 0},
             .prefix = {590, 630},
             .tokens = {40, 120},
             .max_parts = 2000,
             .grid = 400,
             .order = 1},
            {.num_reqs = 1, .row = {0}, .prefix = {749}, .tokens = {1}, .max_parts = 9, .order = 7},
            {.num_reqs = 3,
             .row = {0, 2, 1},
             .prefix = {639, 600, 704},
             .tokens = {1, 5, 2},
             .max_parts = 90,
             .grid = 300,
             .shared_bytes = 99 << 10},
            {.num_reqs = 3,
             .row = {2, 0, 1},
             .prefix = {629, 710, 707},
             .tokens = {1, 3, 1},
             .max_parts = 90,
             .grid = 2,
             .num_groups = 2,
             .group_reqs = {2, 1, 0},
             .groups = {{0, 512, 0, 3}, {512, 704, 0, 2}}},
            {.num_reqs = 3,
             .row = {0, 1, 2},
             .prefix = {704, 704, 592},
             .tokens = {40, 20, 14},
             .max_parts = 900,
             .grid = 99,
             .num_groups = 1,
             .group_reqs = {1, 0, 2},
             .groups = {{0, 512, 0, 3}}},
        };
        for (size_t i = 0; i < RAD_COUNT(cuts); i++) {
            cuts[i].model = model;
            uint16_t *out = run(i % 2 ? &other : &w, &cuts[i]);
            CHECK(cuts[i].num_parts || i == 1 ||
                  w.shape.window); /* or this would compare a way with itself */
            long_units += cuts[i].long_units;
            CHECKF(tokens_that_differ(&w, &cuts[i], out, &prompt, want) == 0,
                   "variant %u, cut %zu\n", variant, i);
            free(out);
        }
        free(want);
        world_destroy(&w);
        world_destroy(&other);
    }
    CHECK(long_units);
    rig_close(&rig);
}

/* Each barrier is needed, where warps share a tile or where not: without it some order of the warps
 * gives other numbers. */
TEST(a_barrier_that_is_left_out_shows)
{
    cuda_rig rig = {0};
    static const struct {
        const char *name;
        uint32_t dim;
    } kernels[] = {
        {"attention_torn_32", 32}, {"attention_torn_64", 64}, {"attention_torn_256", 256}};
    bool shows[BARRIERS] = {false};
    CHECK(BARRIERS == 10);
    if (getenv("RADISH_TEST_GPU")) return; /* emulated alone: a driver has nothing to add */
    for (size_t k = 0; k < RAD_COUNT(kernels); k++) {
        world w = plain(8, 1, kernels[k].dim, 0);
        w.rig = &rig;
        world_create(&w, 1);
        step s = {.num_reqs = 3,
                  .row = {0, 1, 2},
                  .prefix = {70, 130, 600},
                  .tokens = {17, 3, 1},
                  .max_parts = 40,
                  .grid = 1,
                  .kernel = kernels[k].name};
        uint16_t *want = run(&w, &s);
        for (left_out = 0; left_out < BARRIERS; left_out++)
            for (s.order = 0; s.order < 12 && !shows[left_out]; s.order++) {
                uint16_t *out = run(&w, &s);
                shows[left_out] = tokens_that_differ(&w, &s, out, &s, want) != 0;
                free(out);
            }
        left_out = ~0u;
        free(want);
        world_destroy(&w);
    }
    for (uint32_t i = 0; i < BARRIERS; i++)
        CHECKF(shows[i], "barrier %u\n", i);
}

/* ---- plans alone ---- */
enum { MOST_REQS = 24, MOST_NEW = 2000, MOST_PARTS = 4000 };
typedef struct made_batch {
    forward_batch batch;
    uint32_t prefix[MOST_REQS], tokens[MOST_REQS], ends[MOST_REQS], start[MOST_REQS];
    uint32_t members[MOST_REQS], row_of[MOST_NEW], positions[MOST_NEW];
    rad_row rows[MOST_REQS];
    forward_group groups[MOST_REQS];
} made_batch;

/* Requests of any length, some of which share prefixes: all of them one, and halves another. */
static void make_batch(made_batch *b, uint64_t *seed)
{
    uint32_t n = 1 + (uint32_t)(test_random(seed) % MOST_REQS), at = 0, first_end = 0, num = 0;
    bool decode = test_random(seed) % 2;
    if (n > 2 && test_random(seed) % 2) first_end = (uint32_t)(test_random(seed) % 40) * 64;
    uint32_t half = n / 2, second_end = first_end + (uint32_t)(test_random(seed) % 20) * 64;
    for (uint32_t i = 0; i < n; i++) {
        b->tokens[i] = decode ? 1 : 1 + (uint32_t)(test_random(seed) % (MOST_NEW / n));
        b->prefix[i] = second_end + (uint32_t)(test_random(seed) % 3000);
        b->ends[i] = b->prefix[i] + b->tokens[i];
        b->start[i] = at;
        b->rows[i] = (rad_row)(100 + i);
        b->members[i] = i;
        for (uint32_t t = 0; t < b->tokens[i]; t++, at++) {
            b->row_of[at] = i;
            b->positions[at] = b->prefix[i] + t;
        }
    }
    if (first_end) b->groups[num++] = (forward_group){0, first_end, 0, n};
    if (first_end < second_end && half > 1)
        b->groups[num++] = (forward_group){first_end, second_end, 0, half};
    b->batch = (forward_batch){.num_reqs = n,
                               .num_tokens = at,
                               .positions = b->positions,
                               .req_pool_indices = b->rows,
                               .seq_lens = b->ends,
                               .extend_prefix_lens = b->prefix,
                               .extend_seq_lens = b->tokens,
                               .extend_start_loc = b->start,
                               .num_groups = num,
                               .groups = b->groups,
                               .group_reqs = b->members};
}

/* Whether two requests have the same slots at [begin, end). */
static bool same_slots(const made_batch *b, uint32_t x, uint32_t y, uint32_t begin, uint32_t end)
{
    bool same = x == y;
    for (; !same && begin < end; begin++) {
        bool here = false;
        for (uint32_t i = 0; i < b->batch.num_groups; i++) {
            const forward_group *g = &b->groups[i];
            here |= begin >= g->begin && begin < g->end && x < g->count && y < g->count;
        }
        if (!here) return false;
    }
    return true;
}

/* Every token's every span has one unit with its slots, and nothing is planned that no token sees.
 */
TEST(plans_have_each_span_of_a_token_once)
{
    uint64_t seed = test_seed();
    if (getenv("RADISH_TEST_GPU")) return;
    static made_batch b;
    static uint8_t seen[MOST_NEW][64];
    for (uint32_t round = 0; round < test_scale(150, 3000); round++) {
        cuda_attention_shape shape = {8, 2, 64, round % 3 == 2 ? 700 : 0};
        cuda_attention_launch l = cuda_attention_launch_of(&shape, round % 2 ? 132 : 8, 227 << 10);
        make_batch(&b, &seed);
        uint32_t tokens = b.batch.num_tokens, parts = round % 5 ? MOST_PARTS : round;
        cuda_attention_plan plan = {
            .units = malloc(sizeof(attention_unit) * cuda_attention_most_units(tokens, parts)),
            .unit_tokens = malloc(4 * cuda_attention_most_unit_tokens(tokens)),
            .parts_at = malloc(4 * tokens),
            .scratch = malloc(cuda_attention_scratch_bytes(tokens, MOST_REQS, parts)),
            .max_tokens = tokens,
            .max_requests = MOST_REQS,
            .max_parts = parts};
        cuda_attention_plan_make(&plan, &b.batch, &shape, &l);
        CHECK(plan.num_parts <= parts);
        CHECK(plan.num_units <= cuda_attention_most_units(tokens, parts));
        CHECK(plan.num_unit_tokens <= cuda_attention_most_unit_tokens(tokens));

        memset(seen, 0, sizeof seen);
        for (uint32_t i = 0; i < plan.num_units; i++) {
            const attention_unit *u = &plan.units[i];
            uint32_t least = UINT32_MAX, most = 0;
            CHECK(u->count && u->count * 4 <= l.unit_rows && u->begin < u->end);
            CHECK(u->first + u->count <= plan.num_unit_tokens);
            for (uint32_t t = 0; t < u->count; t++) {
                uint32_t token = plan.unit_tokens[u->first + t], last = b.positions[token];
                uint32_t low = shape.window && last >= shape.window ? last - shape.window + 1 : 0;
                least = RAD_MIN(least, low), most = RAD_MAX(most, last);
                CHECK((plan.parts_at[token] == UINT32_MAX) == (u->direct != 0));
                CHECK(same_slots(&b, b.row_of[token], u->slot_row - 100, u->begin, u->end));
                for (uint32_t span = low / ATTN_SPAN; span <= last / ATTN_SPAN; span++) {
                    uint32_t begin = RAD_MAX(low, span * ATTN_SPAN);
                    uint32_t end = RAD_MIN(last + 1, (span + 1) * ATTN_SPAN);
                    if (u->end <= begin || u->begin >= end) continue;
                    CHECK(u->begin <= begin && u->end >= end);
                    seen[token][span]++;
                }
            }
            CHECK(u->begin >= least && u->end <= most + 1);
        }
        for (uint32_t token = 0; token < tokens; token++) {
            uint32_t last = b.positions[token];
            uint32_t low = shape.window && last >= shape.window ? last - shape.window + 1 : 0;
            for (uint32_t span = low / ATTN_SPAN; span <= last / ATTN_SPAN; span++)
                CHECKF(seen[token][span] == 1, "seed %llu\n", (unsigned long long)seed);
        }
        free(plan.units), free(plan.unit_tokens), free(plan.parts_at), free(plan.scratch);
    }
}

TEST_MAIN()
