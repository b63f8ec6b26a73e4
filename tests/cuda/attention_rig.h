/* attention_rig.h - attention's kernels for tests: a pool of K and V of any type, steps over it on
 * the emulator, and the same in double. */
#ifndef TESTS_CUDA_ATTENTION_RIG_H
#define TESTS_CUDA_ATTENTION_RIG_H

#include "../test.h"
#include "base/base.h"
#include "base/minifloat.h"
#include "cuda_rig.h"

#include "cuda/attention_plan.h"

#include <math.h>

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
    uint8_t *k, *v; /* as shape.kv says, times k_scale and v_scale */
    float k_scale, v_scale;
} world;

static inline uint64_t mix(uint64_t x)
{
    x ^= x >> 31, x *= 0x7fb5d329728ea185ull;
    x ^= x >> 27, x *= 0x81dadef4bc2dd44dull;
    return x ^ x >> 33;
}

static inline uint16_t number(uint64_t seed, uint64_t what, uint64_t i, float size)
{
    float f = (float)((double)mix(seed ^ mix(what ^ mix(i))) / 0x1p63 - 1) * size;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return (uint16_t)(bits >> 16);
}

static inline double bf16(uint16_t bits)
{
    uint32_t u = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* Number i of a buffer of the pool, and the number that stands there. */
static inline void put_number(const world *w, uint8_t *pool, size_t i, uint16_t bits, float scale)
{
    const float f = f32_of_bits((uint32_t)bits << 16) / scale;
    if (w->shape.kv == ATTN_KV_BF16)
        memcpy(pool + i * 2, &bits, 2);
    else
        pool[i] = w->shape.kv == ATTN_KV_E4M3 ? e4m3_from_f32(f) : e5m2_from_f32(f);
}

static inline double pool_number(const world *w, const uint8_t *pool, size_t i, float scale)
{
    uint16_t bits;
    memcpy(&bits, pool + i * 2 * (w->shape.kv == ATTN_KV_BF16), 2);
    return w->shape.kv == ATTN_KV_BF16   ? bf16(bits)
           : w->shape.kv == ATTN_KV_E4M3 ? (double)e4m3_to_f32(pool[i]) * (double)scale
                                         : (double)e5m2_to_f32(pool[i]) * (double)scale;
}

static inline size_t slot_bytes(const world *w)
{
    return (size_t)w->shape.kv_heads * w->shape.head_dim * attention_kv_bytes(w->shape.kv);
}

/* Slots of another seed are others; what stands in them is not. Slots nobody has are NaN. */
static inline void world_create(world *w, uint64_t slots_seed)
{
    uint32_t dim = w->shape.head_dim, width = w->shape.kv_heads * dim;
    w->num_slots = (ROWS * LD + 16);
    w->slots = malloc(sizeof *w->slots * ROWS * LD);
    w->k = rig_alloc(w->rig, w->num_slots * slot_bytes(w));
    w->v = rig_alloc(w->rig, w->num_slots * slot_bytes(w));
    if (w->sinks) {
        float *sinks = rig_alloc(w->rig, sizeof(float) * w->shape.heads);
        memcpy(sinks, w->sinks, sizeof(float) * w->shape.heads);
        w->sinks = sinks;
    }
    memset(w->k, 0xff, w->num_slots * slot_bytes(w));
    memset(w->v, 0xff, w->num_slots * slot_bytes(w));
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
                put_number(w, w->k, slot * width + i, number(w->seed, 1 + from, p * width + i, 2),
                           w->k_scale);
                put_number(w, w->v, slot * width + i, number(w->seed, 99 + from, p * width + i, 1),
                           w->v_scale);
            }
        }
    free(order);
}

static inline void world_destroy(world *w)
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

static inline uint32_t first_seen(const world *w, uint32_t position)
{
    uint32_t window = w->shape.window;
    return window && position >= window ? position - window + 1 : 0;
}

static inline uint16_t *make_q(const world *w, uint32_t row, uint32_t position, uint16_t *to)
{
    uint32_t n = w->shape.heads * w->shape.head_dim;
    uint32_t from = row && position < w->shared[row] ? 0 : row;
    for (uint32_t i = 0; i < n; i++)
        *to++ = number(w->seed, 7 + from, position * n + i, 2);
    return to;
}

/* As attention over fp8 reads Q: the even ones of each 16 numbers, then the odd ones. */
static inline void turn_q(uint16_t *q, uint32_t n)
{
    uint16_t of[16];
    for (uint32_t at = 0; at < n; at += 16) {
        memcpy(of, q + at, sizeof of);
        for (uint32_t i = 0; i < 16; i++)
            q[at + i % 2 * 8 + i / 2] = of[i];
    }
}

/* Kernels of a test's file are emulated alone. */
static inline void launch(const world *w, const char *name, const step *s, emulation e,
                          size_t args_bytes)
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
static inline uint16_t *run(const world *w, step *s)
{
    const cuda_attention_shape *shape = &w->shape;
    uint32_t width = shape->heads * shape->head_dim;
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
    if (shape->kv != ATTN_KV_BF16) turn_q(q, num_tokens * width);
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
                        .k = w->k,
                        .v = w->v,
                        .k_stride = slot_bytes(w),
                        .v_stride = slot_bytes(w),
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
                        .scale = w->scale * w->k_scale,
                        .cap = w->cap,
                        .stages = l.stages,
                        .kv = shape->kv,
                        .v_scale = w->v_scale};
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
                              .scale = a.scale,
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
static inline void reference(const world *w, uint32_t row, uint32_t position, uint32_t head,
                             double *out)
{
    uint32_t dim = w->shape.head_dim, width = w->shape.kv_heads * dim;
    uint32_t kv = head / (w->shape.heads / w->shape.kv_heads) * dim;
    uint32_t first = first_seen(w, position);
    uint16_t *q = malloc(w->shape.heads * dim * 2);
    double scores[LD], max = -INFINITY, sum = 0;
    make_q(w, row, position, q);
    for (uint32_t p = first; p <= position; p++) {
        const size_t k = (size_t)w->slots[row * LD + p] * width + kv;
        double s = 0;
        for (uint32_t d = 0; d < dim; d++)
            s += bf16(q[head * dim + d]) * pool_number(w, w->k, k + d, w->k_scale);
        s *= w->scale;
        scores[p] = w->cap > 0 ? w->cap * tanh(s / w->cap) : s;
        max = fmax(max, scores[p]);
    }
    for (uint32_t d = 0; d < dim; d++)
        out[d] = 0;
    for (uint32_t p = first; p <= position; p++) {
        const size_t v = (size_t)w->slots[row * LD + p] * width + kv;
        double weight = exp(scores[p] - max);
        sum += weight;
        for (uint32_t d = 0; d < dim; d++)
            out[d] += weight * pool_number(w, w->v, v + d, w->v_scale);
    }
    if (w->sinks) sum += exp(w->sinks[head] - max);
    for (uint32_t d = 0; d < dim; d++)
        out[d] /= sum;
    free(q);
}

/* The largest error of a step's numbers, in parts of the largest of a head's. */
static inline double error_of(const world *w, const step *s, const uint16_t *out)
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

static inline world plain(uint32_t heads, uint32_t kv_heads, uint32_t dim, uint32_t window)
{
    world w = {.shape = {.heads = heads, .kv_heads = kv_heads, .head_dim = dim, .window = window},
               .scale = 1 / sqrtf((float)dim),
               .page = 1,
               .k_scale = 1,
               .v_scale = 1,
               .shared = {0, 704, 512, 100},
               .seed = 5};
    return w;
}

/* A token's numbers in a step's, or NULL. */
static inline const uint16_t *of_token(const world *w, const step *s, const uint16_t *out,
                                       uint32_t row, uint32_t position)
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
static inline uint32_t tokens_that_differ(const world *w, const step *a, const uint16_t *x,
                                          const step *b, const uint16_t *y)
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

#endif
