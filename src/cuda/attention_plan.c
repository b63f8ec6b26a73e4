/* attention_plan.c - cuts a step's attention into units.
 *
 * Every request is either direct, in tiles of tokens that go through all of their positions, or it
 * leaves parts, in units of one or more spans. Direct units write and read nothing between; but a
 * GPU whose multiprocessors wait for a few long ones is idle. So the time of the step is estimated
 * for some bounds on the length of what is direct and for some lengths of the other units, and the
 * best is taken: by figures of an H100, in which a block of 64 positions takes some 1.6 us with few
 * rows and 2.6 with many, and beginning and ending a unit about 1 us and 4. A request is also
 * direct when it has one span alone or parts have no room, and never when a group reads spans for
 * it.
 *
 * Units of parts are made in ascending order of a request's spans: `next` is the first span that
 * has none yet. A group takes all of its members up to its first span, then its own spans once
 * for all of them:
 *
 *     request 0   |  group A  |  group B  | own |
 *     request 1   |  group A  |    own    |           next ->
 */
#include "cuda/attention_plan.h"

#include "base/base.h"

#include <string.h>

enum { NO_PARTS = UINT32_MAX, GROUP_LISTS = 4 /* lists of groups: so many times max_tokens */ };
enum { SIZES = 320, SORT_KEYS = 2 * SIZES, MOST_GRID = 512, MOST_CHUNK = 32 };

typedef struct request {
    uint32_t row, first_token, num_tokens, prefix, end;
    uint32_t unit_tokens; /* where its list begins */
    uint32_t next;        /* span */
    uint32_t longest;     /* blocks of 64 that its longest tile sees */
    uint32_t direct;
    uint32_t grouped; /* blocks that groups read for it */
} request;

/* Units of a step by size: [few][size_of(blocks)]. */
typedef struct sizes {
    uint32_t of[2][SIZES];
    uint32_t most; /* the largest that there is */
} sizes;

typedef struct planner {
    cuda_attention_plan *plan;
    const forward_batch *batch;
    const cuda_attention_shape *shape;
    uint32_t unit_tokens; /* of a unit at most */
    uint32_t group, span, grid;
    sizes of_groups; /* their tiles */
    uint32_t chunk;  /* spans of a unit that leaves parts */
    request *requests;
    attention_unit *units; /* before they are sorted */
    uint32_t num_units;
} planner;

const char *cuda_attention_kernel(uint32_t head_dim, uint32_t kv)
{
    static const struct {
        uint32_t head_dim;
        const char *bf16, *f8;
    } kernels[] = {
        {16, "attention_d16", "attention_d16_f8"},    {32, "attention_d32", "attention_d32_f8"},
        {64, "attention_d64", "attention_d64_f8"},    {96, "attention_d96", "attention_d96_f8"},
        {128, "attention_d128", "attention_d128_f8"}, {256, "attention_d256", "attention_d256_f8"}};
    for (size_t i = 0; i < RAD_COUNT(kernels); i++)
        if (kernels[i].head_dim == head_dim)
            return kv == ATTN_KV_BF16 ? kernels[i].bf16 : kernels[i].f8;
    return NULL;
}

/* attention_many.h's shared memory: stages of K and V, as many rows of Q as find room behind the
 * fewest of them, and of fp8 the blocks of bf16 that stages are widened to: two where that leaves
 * room for as many rows. */
typedef struct many_room {
    uint32_t stages, rows, blocks, bytes;
} many_room;

static uint32_t many_bytes(const cuda_attention_shape *shape, many_room m)
{
    const uint32_t exchange = shape->head_dim > 128 ? ATTN_EXCHANGE_BYTES : 0;
    const uint32_t stage = ATTN_KEYS * 2 * shape->head_dim; /* times bytes of a number */
    return exchange + m.blocks * stage * 2 + m.stages * stage * attention_kv_bytes(shape->kv) +
           m.rows * shape->head_dim * 2;
}

static void fit_stages(const cuda_attention_shape *shape, uint32_t shared_bytes, many_room *m)
{
    const uint32_t fewest = m->blocks ? 1 : 2;
    m->stages = 4;
    while (m->stages > fewest && many_bytes(shape, *m) > shared_bytes)
        m->stages--;
}

static many_room many_room_of(const cuda_attention_shape *shape, uint32_t shared_bytes)
{
    const bool f8 = shape->kv != ATTN_KV_BF16;
    many_room m = {.rows = shape->head_dim > 128 ? 64 : 128, .blocks = f8 ? 2 : 0};
    fit_stages(shape, shared_bytes, &m);
    if (f8 && many_bytes(shape, m) > shared_bytes) {
        m.blocks = 1;
        fit_stages(shape, shared_bytes, &m);
    }
    while (m.rows > 16 && many_bytes(shape, m) > shared_bytes)
        m.rows -= 16;
    m.bytes = many_bytes(shape, m);
    return m;
}

cuda_attention_launch cuda_attention_launch_of(const cuda_attention_shape *shape,
                                               uint32_t multiprocessors, uint32_t shared_bytes)
{
    cuda_attention_launch launch = {.kernel = cuda_attention_kernel(shape->head_dim, shape->kv),
                                    .threads = ATTN_THREADS,
                                    .grid = multiprocessors,
                                    .span = ATTN_SPAN};
    const uint32_t group = shape->heads / shape->kv_heads;
    const many_room many = many_room_of(shape, shared_bytes);

    /* attention_few.h: granules of 128 rows of K or V. */
    const uint32_t q = 16 * shape->head_dim * 2;
    const uint32_t granule = 128 * shape->head_dim * attention_kv_bytes(shape->kv);
    uint32_t granules = 6;
    while (granules > 2 && ATTN_FEW_BYTES + q + granules * granule > shared_bytes)
        granules--;
    const uint32_t few = ATTN_FEW_BYTES + q + granules * granule;

    launch.stages = many.stages | granules << 8 | many.rows << 16 | many.blocks << 24;
    launch.shared_bytes = RAD_MAX(many.bytes, few);
    launch.unit_rows = many.rows;
    if (launch.shared_bytes > shared_bytes || group > many.rows) launch.kernel = NULL;
    return launch;
}

uint32_t cuda_attention_most_units(uint32_t max_tokens, uint32_t max_parts)
{
    return max_tokens + max_parts; /* a unit has a token of its own or a part of its own */
}

uint32_t cuda_attention_most_unit_tokens(uint32_t max_tokens)
{
    return max_tokens * (1 + GROUP_LISTS);
}

size_t cuda_attention_scratch_bytes(uint32_t max_tokens, uint32_t max_requests, uint32_t max_parts)
{
    return (size_t)max_requests * sizeof(request) +
           (size_t)cuda_attention_most_units(max_tokens, max_parts) * sizeof(attention_unit);
}

uint32_t cuda_attention_parts(uint32_t requests, uint32_t context)
{
    uint64_t parts = (uint64_t)requests * (context / ATTN_SPAN + 1);
    return parts < UINT32_MAX / 2 ? (uint32_t)parts : UINT32_MAX / 2;
}

size_t cuda_attention_part_v_bytes(const cuda_attention_shape *shape, uint32_t parts)
{
    return (size_t)parts * shape->heads * shape->head_dim * sizeof(float);
}

size_t cuda_attention_part_ms_bytes(const cuda_attention_shape *shape, uint32_t parts)
{
    return (size_t)parts * shape->heads * 2 * sizeof(float);
}

static uint32_t first_seen(const planner *p, uint32_t position)
{
    return forward_first_key(p->shape->window, position);
}

static void add_unit(planner *p, attention_unit unit)
{
    RAD_ASSERT(p->num_units < cuda_attention_most_units(p->plan->max_tokens, p->plan->max_parts));
    p->units[p->num_units++] = unit;
}

/* One list of tokens over the spans [begin, end) of a row of slots, cut where the tile is full.
 * low and high: what is seen of them. */
static void add_spans(planner *p, uint32_t row, uint32_t first, uint32_t count, uint32_t begin,
                      uint32_t end, uint32_t low, uint32_t high)
{
    for (uint32_t i = 0; i < count; i += p->unit_tokens)
        for (uint32_t span = begin; span < end; span += p->chunk)
            add_unit(
                p, (attention_unit){.first = first + i,
                                    .count = RAD_MIN(count - i, p->unit_tokens),
                                    .slot_row = row,
                                    .begin = RAD_MAX(low, span * p->span),
                                    .end = RAD_MIN(high, RAD_MIN(end, span + p->chunk) * p->span)});
}

/* The request's own spans up to `end`. A tile of its tokens sees other positions than the next. */
static void add_own(planner *p, request *r, uint32_t end)
{
    for (uint32_t i = 0; i < r->num_tokens; i += p->unit_tokens) {
        uint32_t count = RAD_MIN(r->num_tokens - i, p->unit_tokens);
        uint32_t low = first_seen(p, r->prefix + i), high = r->prefix + i + count;
        add_spans(p, r->row, r->unit_tokens + i, count, RAD_MAX(r->next, low / p->span),
                  RAD_MIN(end, (high - 1) / p->span + 1), low, high);
    }
    r->next = RAD_MAX(r->next, end);
}

static void add_direct(planner *p, const request *r)
{
    for (uint32_t i = 0; i < r->num_tokens; i += p->unit_tokens) {
        uint32_t count = RAD_MIN(r->num_tokens - i, p->unit_tokens);
        add_unit(p, (attention_unit){.first = r->unit_tokens + i,
                                     .count = count,
                                     .slot_row = r->row,
                                     .begin = first_seen(p, r->prefix + i),
                                     .end = r->prefix + i + count,
                                     .direct = 1});
    }
}

/* The spans that all members of a group see whole and that none has a unit of yet. */
static void add_group(planner *p, const forward_group *g)
{
    cuda_attention_plan *plan = p->plan;
    const uint32_t *members = p->batch->group_reqs + g->first;
    uint32_t begin = (g->begin + p->span - 1) / p->span, end = g->end / p->span;
    uint32_t first = plan->num_unit_tokens, count = 0, readers = 0, row = 0;
    for (uint32_t i = 0; i < g->count; i++) {
        const request *r = &p->requests[members[i]];
        if (r->direct) continue;
        uint32_t low = first_seen(p, r->end - 1);
        begin = RAD_MAX(begin, RAD_MAX(r->next, (low + p->span - 1) / p->span));
        end = RAD_MIN(end, r->prefix / p->span);
        count += r->num_tokens;
        row = r->row;
        readers++;
    }
    if (readers < 2 || begin >= end ||
        count > cuda_attention_most_unit_tokens(plan->max_tokens) - first)
        return;
    for (uint32_t i = 0; i < g->count; i++) {
        request *r = &p->requests[members[i]];
        if (r->direct) continue;
        for (uint32_t t = 0; t < r->num_tokens; t++)
            plan->unit_tokens[plan->num_unit_tokens++] = r->first_token + t;
        add_own(p, r, begin);
        r->next = end;
    }
    add_spans(p, row, first, count, begin, end, 0, UINT32_MAX);
}

static uint32_t blocks_of(uint32_t begin, uint32_t end)
{
    return (end + ATTN_KEYS - 1) / ATTN_KEYS - begin / ATTN_KEYS;
}

static uint32_t size_of(uint32_t blocks)
{
    return blocks < 64 ? blocks : 64 + RAD_MIN((blocks - 64) / 16, SIZES - 65);
}

/* Parts of a request's tokens, each one from its own first span. */
static uint64_t parts_of(const planner *p, const request *r)
{
    uint64_t parts = 0;
    for (uint32_t t = 0; t < r->num_tokens; t++) {
        uint32_t position = r->prefix + t;
        parts += position / p->span - first_seen(p, position) / p->span + 1;
    }
    return parts;
}

static uint32_t tile_blocks(const planner *p, const request *r, uint32_t first)
{
    uint32_t count = RAD_MIN(r->num_tokens - first, p->unit_tokens);
    return blocks_of(first_seen(p, r->prefix + first), r->prefix + first + count);
}

static uint32_t tile_is_few(const planner *p, const request *r, uint32_t first)
{
    uint32_t count = RAD_MIN(r->num_tokens - first, p->unit_tokens);
    return count * p->group <= ATTN_FEW_ROWS;
}

/* Estimates, in quarters of the time of a block of 64 positions with few rows. */
enum { MERGE_TIME = 12 };
static uint64_t unit_time(uint64_t blocks, uint32_t few)
{
    return few ? blocks * 4 + 3 : blocks * 7 + 10;
}

static bool is_direct(const planner *p, const request *r, uint64_t bound)
{
    uint32_t low = first_seen(p, r->prefix);
    return low / p->span == (r->end - 1) / p->span || (!r->grouped && r->longest <= bound);
}

static void count_size(sizes *s, uint32_t few, uint32_t blocks)
{
    uint32_t size = size_of(blocks);
    s->of[few][size]++;
    s->most = RAD_MAX(s->most, size);
}

static uint64_t blocks_of_size(uint32_t size)
{
    return size < 64 ? size : 64 + (size - 64) * 16;
}

/* What the last multiprocessor takes for these units, dealt out as the kernel does. */
static uint64_t direct_time(const planner *p, const sizes *units)
{
    uint64_t load[MOST_GRID], longest = 0;
    uint32_t at = 0;
    memset(load, 0, p->grid * sizeof *load);
    for (uint32_t few = 0; few < 2; few++)
        for (uint32_t size = units->most + 1; size-- > 0;)
            for (uint32_t n = units->of[few][size] * p->shape->kv_heads; n > 0; n--, at++) {
                uint32_t round = at / p->grid, place = at % p->grid;
                load[round & 1 ? p->grid - 1 - place : place] +=
                    unit_time(blocks_of_size(size), few);
            }
    for (uint32_t i = 0; i < p->grid; i++)
        longest = RAD_MAX(longest, load[i]);
    return longest;
}

/* The same of what leaves parts, in units of `chunk` spans. */
static uint64_t parts_time(const planner *p, const sizes *tiles, uint32_t chunk)
{
    uint64_t in_unit = (uint64_t)chunk * p->span / ATTN_KEYS, all = 0, units = 0, longest = 0;
    for (uint32_t few = 0; few < 2; few++)
        for (uint32_t size = 0; size <= tiles->most; size++) {
            uint64_t blocks = blocks_of_size(size), n = tiles->of[few][size];
            uint64_t cut = (blocks + in_unit - 1) / in_unit;
            if (!n || !blocks) continue;
            units += n * cut;
            all += n * (unit_time(blocks, few) + (cut - 1) * unit_time(0, few));
            longest = RAD_MAX(longest, unit_time(RAD_MIN(blocks, in_unit), few));
        }
    if (!units) return 0;
    uint64_t even = all * p->shape->kv_heads / p->grid + longest;
    uint64_t rounds = (units * p->shape->kv_heads + p->grid - 1) / p->grid;
    return RAD_MIN(even, rounds * longest) + MERGE_TIME;
}

/* Requests are direct when no tile of theirs is longer than *bound; units of parts are of `chunk`
 * spans. */
static void find_best(planner *p, uint64_t *bound)
{
    uint64_t share = 0, least = UINT64_MAX;
    uint32_t tile = p->unit_tokens;
    for (uint32_t i = 0; i < p->batch->num_reqs; i++)
        for (uint32_t t = 0; t < p->requests[i].num_tokens; t += tile)
            share += tile_blocks(p, &p->requests[i], t);
    share = share * p->shape->kv_heads / p->grid;
    const uint64_t bounds[] = {UINT32_MAX, share * 2, share, share / 2, share / 4, 0};
    for (size_t i = 0; i < RAD_COUNT(bounds); i++) {
        sizes direct = {0}, parts = p->of_groups;
        for (uint32_t j = 0; j < p->batch->num_reqs; j++) {
            const request *r = &p->requests[j];
            sizes *to = is_direct(p, r, bounds[i]) ? &direct : &parts;
            for (uint32_t t = 0; t < r->num_tokens; t += tile) {
                uint32_t blocks = tile_blocks(p, r, t);
                blocks -= RAD_MIN(blocks, r->grouped);
                count_size(to, tile_is_few(p, r, t), blocks);
            }
        }
        uint64_t time = direct_time(p, &direct);
        for (uint32_t chunk = 1; chunk <= MOST_CHUNK; chunk *= 2) {
            uint64_t both = time + parts_time(p, &parts, chunk);
            if (both < least) least = both, *bound = bounds[i], p->chunk = chunk;
        }
    }
}

/* Members whose tokens make one tile, of groups that have whole spans, and tiles of the groups. */
static void find_grouped(planner *p)
{
    for (uint32_t i = 0; i < p->batch->num_groups; i++) {
        const forward_group *g = &p->batch->groups[i];
        uint32_t begin = (g->begin + p->span - 1) / p->span, end = g->end / p->span, tokens = 0;
        if (begin >= end) continue;
        uint32_t blocks = (end - begin) * (p->span / ATTN_KEYS);
        for (uint32_t m = 0; m < g->count; m++) {
            request *r = &p->requests[p->batch->group_reqs[g->first + m]];
            if (r->num_tokens > p->unit_tokens) continue;
            r->grouped += blocks;
            tokens += r->num_tokens;
        }
        for (uint32_t t = 0; t < tokens; t += p->unit_tokens) {
            uint32_t rows = RAD_MIN(tokens - t, p->unit_tokens) * p->group;
            count_size(&p->of_groups, rows <= ATTN_FEW_ROWS, blocks);
        }
    }
}

/* Decides whether a request is direct; else its tokens are given parts. */
static void choose(planner *p, request *r, uint64_t bound)
{
    cuda_attention_plan *plan = p->plan;
    r->direct = is_direct(p, r, bound);
    if (!r->direct && parts_of(p, r) > plan->max_parts - plan->num_parts) r->direct = 1;
    for (uint32_t t = 0; t < r->num_tokens; t++) {
        uint32_t position = r->prefix + t;
        plan->parts_at[r->first_token + t] = r->direct ? NO_PARTS : plan->num_parts;
        if (!r->direct)
            plan->num_parts += position / p->span - first_seen(p, position) / p->span + 1;
    }
    r->next = first_seen(p, r->prefix) / p->span;
}

/* Units of many rows first: they take longest, and a block computes both kinds one after the other.
 * Then the largest. */
static uint32_t sort_key(const planner *p, const attention_unit *unit)
{
    uint32_t size = size_of(blocks_of(unit->begin, unit->end));
    uint32_t few = unit->count * p->group <= ATTN_FEW_ROWS;
    return few * SIZES + SIZES - 1 - size;
}

/* Units by size, those of a size as they were made: neighbours read what lies side by side. */
static void sort_units(planner *p)
{
    uint32_t at[SORT_KEYS + 1] = {0};
    for (uint32_t i = 0; i < p->num_units; i++)
        at[sort_key(p, &p->units[i]) + 1]++;
    for (uint32_t key = 1; key <= SORT_KEYS; key++)
        at[key] += at[key - 1];
    for (uint32_t i = 0; i < p->num_units; i++)
        p->plan->units[at[sort_key(p, &p->units[i])]++] = p->units[i];
    p->plan->num_units = p->num_units;
}

void cuda_attention_plan_make(cuda_attention_plan *plan, const forward_batch *batch,
                              const cuda_attention_shape *shape,
                              const cuda_attention_launch *launch)
{
    planner p = {.plan = plan,
                 .batch = batch,
                 .shape = shape,
                 .group = shape->heads / shape->kv_heads,
                 .unit_tokens = launch->unit_rows / (shape->heads / shape->kv_heads),
                 .span = launch->span,
                 .grid = RAD_MIN(launch->grid, MOST_GRID),
                 .requests = plan->scratch};
    RAD_ASSERT(batch->num_tokens <= plan->max_tokens && batch->num_reqs <= plan->max_requests);
    p.units = (attention_unit *)(p.requests + plan->max_requests);
    plan->num_units = plan->num_unit_tokens = plan->num_parts = 0;

    for (uint32_t i = 0; i < batch->num_reqs; i++) {
        request *r = &p.requests[i];
        *r = (request){.row = batch->req_pool_indices[i],
                       .first_token = batch->extend_start_loc[i],
                       .num_tokens = batch->extend_seq_lens[i],
                       .prefix = batch->extend_prefix_lens[i],
                       .end = batch->seq_lens[i],
                       .unit_tokens = plan->num_unit_tokens};
        for (uint32_t t = 0; t < r->num_tokens; t++)
            plan->unit_tokens[plan->num_unit_tokens++] = r->first_token + t;
        for (uint32_t t = 0; t < r->num_tokens; t += p.unit_tokens)
            r->longest = RAD_MAX(r->longest, tile_blocks(&p, r, t));
    }
    find_grouped(&p);
    uint64_t bound = 0;
    find_best(&p, &bound);
    for (uint32_t i = 0; i < batch->num_reqs; i++)
        choose(&p, &p.requests[i], bound);
    for (uint32_t i = 0; i < batch->num_groups; i++)
        add_group(&p, &batch->groups[i]);
    for (uint32_t i = 0; i < batch->num_reqs; i++)
        if (p.requests[i].direct)
            add_direct(&p, &p.requests[i]);
        else
            add_own(&p, &p.requests[i], UINT32_MAX);
    sort_units(&p);
}
