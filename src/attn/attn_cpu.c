/* attn_cpu.c - attention over the paged pool, block by block of 64 positions.
 *
 * Up to MOST_ROWS / heads consecutive tokens of a request are a chunk. Its rows (a head
 * of a token) that share a KV head are a side: they use the same keys and values.
 *
 *     keys of the block, transposed  ->  scores  ->  softmax  ->  weighted values
 *     (once for all rows of a side)     [rows][64]   max, sum     [rows][v_dim]
 *
 * A unit of work takes a chunk over its blocks, and in each block over several sides,
 * since their keys are neighbours in memory. Each block is merged into the rows'
 * totals, which live in `out` until they are divided by their sums. A unit's memory is
 * a `workspace` on its thread's stack.
 *
 * When there are few chunks and contexts are long (decoding a few requests), the
 * blocks of a chunk are spread over threads too. Each block's (max, sum, values) is
 * then stored, and merged afterwards in the same ascending order. The memory for that
 * is bounded, so it goes in waves of blocks:
 *
 *     wave 0: blocks 0..w-1 in parallel, merge   wave 1: blocks w..2w-1, merge ...
 *
 * Invariant (P1): a block's result for a row is a function of the row and of the keys
 * it sees; the total is a fold over ascending blocks. Which rows came along, who
 * computed which block and when does not enter. */
#include "attn/attn_kernels.h"

#include <math.h>

enum {
    MOST_ROWS = 48,            /* of a side: enough to pay for transposing the keys */
    MOST_SIDES = 32,           /* of a unit */
    BLOCK_BYTES = 512 << 10,   /* of the K and V of a unit's block */
    PIECE_BLOCKS = 4,          /* of a unit, when blocks are spread over threads */
    PARTIAL_FLOATS = 128 << 10 /* of all partial results of a wave: 512 KiB of stack */
};

typedef struct attn_job {
    const attn_isa *isa;
    const radix_attention *layer;
    const forward_batch *batch;
    const char *keys, *values; /* of this KV layer */
    bool bf16;
    uint32_t v_dim;
    const float *q;
    float *out;

    uint32_t sharing;    /* heads per KV head */
    uint32_t heads;      /* per side; less than `sharing` when those are very many */
    uint32_t parts;      /* sides per KV head */
    uint32_t tokens;     /* per chunk, at most */
    uint32_t num_chunks; /* over all requests; some are empty */
    uint32_t sides;      /* per unit */
    uint32_t num_strips; /* units per chunk: all sides, `sides` at a time */

    /* A wave of blocks, when they are spread over threads. */
    uint32_t wave_begin, wave_end; /* blocks */
    uint32_t wave_blocks;          /* room for so many per row */
    uint32_t num_pieces;
    float *partials; /* [token * num_heads + head][block of the wave][max, sum, values] */
    float *states;   /* [token * num_heads + head][max, sum], all blocks so far */
} attn_job;

/* What a unit works on: tokens of a request, sides, and the blocks that any token sees. */
typedef struct attn_group {
    const rad_slot *slots;
    size_t first_token; /* in the batch */
    uint32_t num_tokens;
    uint32_t position; /* of the first token */
    uint32_t side_begin, side_end;
    uint32_t first_block, end_block;
} attn_group;

/* The rows of one side, positions ascending. */
typedef struct attn_rows {
    uint32_t count;
    uint32_t position[MOST_ROWS];
    size_t line[MOST_ROWS]; /* token * num_heads + head: in q, out and states */
} attn_rows;

typedef struct workspace {
    rad_slot slots[ATTN_BLOCK], next_slots[ATTN_BLOCK]; /* of the block, and to prefetch */
    attn_rows rows;
    _Alignas(64) float kt[ATTN_MOST_DIM * ATTN_BLOCK];
    _Alignas(64) float weights[MOST_ROWS * ATTN_BLOCK];
    _Alignas(64) float parts[MOST_ROWS * ATTN_MOST_DIM];
    float max[MOST_ROWS], sum[MOST_ROWS]; /* of the block */
} workspace;

/* Chunks of the requests before request i: start_loc / tokens + i, one or none too
 * many for each. So a chunk's request is found without a table. */
static uint32_t first_chunk(const attn_job *job, uint32_t i)
{
    uint32_t start = i < job->batch->num_reqs ? job->batch->extend_start_loc[i]
                                              : job->batch->num_tokens;
    return start / job->tokens + i;
}

static uint32_t request_of_chunk(const attn_job *job, uint32_t chunk)
{
    uint32_t low = 0, high = job->batch->num_reqs;
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (first_chunk(job, mid) <= chunk)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* Fills in group `index`; false for an empty one. Long contexts (a prefill's last
 * chunks) come first, so that short ones fill the end. */
static bool find_group(const attn_job *job, uint32_t index, attn_group *g)
{
    const forward_batch *batch = job->batch;
    uint32_t chunk = job->num_chunks - 1 - index / job->num_strips;
    uint32_t request = request_of_chunk(job, chunk);
    uint32_t begin = (chunk - first_chunk(job, request)) * job->tokens;
    uint32_t fresh = batch->extend_seq_lens[request];
    if (begin >= fresh) return false;
    g->slots = rad_req_to_token_row(batch->req_to_token_pool, batch->req_pool_indices[request]);
    g->first_token = (size_t)batch->extend_start_loc[request] + begin;
    g->num_tokens = RAD_MIN(fresh - begin, job->tokens);
    g->position = batch->extend_prefix_lens[request] + begin;
    g->side_begin = index % job->num_strips * job->sides;
    g->side_end = RAD_MIN(g->side_begin + job->sides, job->layer->num_kv_heads * job->parts);
    g->first_block = attn_first_key(job->layer, g->position) / ATTN_BLOCK;
    g->end_block = (g->position + g->num_tokens - 1) / ATTN_BLOCK + 1;
    return true;
}

static void find_rows(const attn_job *job, const attn_group *g, uint32_t side, attn_rows *rows)
{
    uint32_t in_kv_head = side % job->parts * job->heads;
    uint32_t first_head = side / job->parts * job->sharing + in_kv_head;
    uint32_t heads = RAD_MIN(job->heads, job->sharing - in_kv_head);
    rows->count = 0;
    for (uint32_t t = 0; t < g->num_tokens; t++)
        for (uint32_t h = 0; h < heads; h++) {
            rows->position[rows->count] = g->position + t;
            rows->line[rows->count++] = (g->first_token + t) * job->layer->num_heads + first_head +
                                        h;
        }
}

/* The keys of `block` that a row sees: [begin, end) within the block; false: none. */
static bool visible(const attn_job *job, uint32_t position, uint32_t block, uint32_t *begin,
                    uint32_t *end)
{
    uint32_t base = block * ATTN_BLOCK, first = attn_first_key(job->layer, position);
    if (position < base || first >= base + ATTN_BLOCK) return false;
    *begin = first > base ? first - base : 0;
    *end = RAD_MIN(position - base + 1, ATTN_BLOCK);
    return true;
}

/* Steps through the blocks of a group, and in each through its sides. */
typedef struct attn_walk {
    uint32_t block, side, end_block;
} attn_walk;

static size_t element_bytes(const attn_job *job)
{
    return job->bf16 ? 2 : 4;
}

/* The slots of a block. Places behind the last position that the group sees repeat the
 * block's first one: keys there are loaded, and never looked at. */
static void copy_slots(const attn_group *g, uint32_t block, rad_slot *slots)
{
    const rad_slot *from = g->slots + (size_t)block * ATTN_BLOCK;
    uint32_t there = g->position + g->num_tokens - block * ATTN_BLOCK;
    for (uint32_t j = 0; j < ATTN_BLOCK; j++)
        slots[j] = from[j < there ? j : 0];
}

static attn_walk walk_begin(const attn_group *g, uint32_t begin, uint32_t end, workspace *ws)
{
    copy_slots(g, begin, ws->slots);
    if (begin + 1 < end) copy_slots(g, begin + 1, ws->next_slots);
    return (attn_walk){begin, g->side_begin, end};
}

static bool walk_step(const attn_group *g, attn_walk *walk, workspace *ws)
{
    if (++walk->side < g->side_end) return true;
    walk->side = g->side_begin;
    if (++walk->block == walk->end_block) return false;
    memcpy(ws->slots, ws->next_slots, sizeof ws->slots);
    if (walk->block + 1 < walk->end_block) copy_slots(g, walk->block + 1, ws->next_slots);
    return true;
}

/* The step's part of a buffer, and what to prefetch: the same of the next step, which
 * mostly lies just behind it. */
static attn_rows_at step_rows(const attn_job *job, const attn_group *g, const attn_walk *walk,
                              const workspace *ws, const char *buffer, uint32_t dim)
{
    size_t head_bytes = dim * element_bytes(job);
    attn_rows_at at = {.base = buffer + walk->side / job->parts * head_bytes,
                       .slots = ws->slots,
                       .stride = head_bytes * job->layer->num_kv_heads};
    at.next_base = at.base;
    at.next_slots = at.slots;
    if (walk->side + 1 < g->side_end) {
        at.next_base = buffer + (walk->side + 1) / job->parts * head_bytes;
    } else if (walk->block + 1 < walk->end_block) {
        at.next_base = buffer + g->side_begin / job->parts * head_bytes;
        at.next_slots = ws->next_slots;
    }
    return at;
}

/* Up to ATTN_TILE_ROWS rows over the values, each over the keys that it sees: what all
 * see together, what only some see row by row before and behind it. */
static void weigh_values(const attn_job *job, workspace *ws, const attn_rows_at *values,
                         uint32_t row, uint32_t rows, const uint32_t *begin, const uint32_t *end)
{
    const attn_isa *isa = job->isa;
    const float *p = ws->weights + (size_t)row * ATTN_BLOCK;
    float *acc = ws->parts + (size_t)row * job->v_dim;
    uint32_t from = 0, to = ATTN_BLOCK, least = ATTN_BLOCK;
    for (uint32_t r = 0; r < rows; r++) {
        from = RAD_MAX(from, begin[r]);
        least = RAD_MIN(least, begin[r]);
        to = RAD_MIN(to, end[r]);
    }
    bool together = from < to, fresh = from == least;
    for (uint32_t r = 0; r < rows && !(together && fresh); r++)
        isa->values[job->bf16](1, job->v_dim, p + r * ATTN_BLOCK, values, begin[r],
                               together ? from : end[r], acc + (size_t)r * job->v_dim, job->v_dim,
                               true);
    if (!together) return;
    isa->values[job->bf16](rows, job->v_dim, p, values, from, to, acc, job->v_dim, fresh);
    for (uint32_t r = 0; r < rows; r++)
        if (end[r] > to)
            isa->values[job->bf16](1, job->v_dim, p + r * ATTN_BLOCK, values, to, end[r],
                                   acc + (size_t)r * job->v_dim, job->v_dim, false);
}

/* (max, sum, values) of the walk's step for the rows that see any of it, into ws.
 * Those are [*first, *end). */
static void compute_step(const attn_job *job, const attn_group *g, workspace *ws,
                         const attn_walk *walk, uint32_t *first, uint32_t *end)
{
    const radix_attention *layer = job->layer;
    const attn_rows *all = &ws->rows;
    uint32_t key_begin[MOST_ROWS], key_end[MOST_ROWS];
    find_rows(job, g, walk->side, &ws->rows);
    *first = all->count;
    *end = 0;
    for (uint32_t r = 0; r < all->count; r++)
        if (visible(job, all->position[r], walk->block, &key_begin[r], &key_end[r])) {
            *first = RAD_MIN(*first, r);
            *end = r + 1;
        }
    if (*first >= *end) return;

    attn_rows_at keys = step_rows(job, g, walk, ws, job->keys, layer->head_dim);
    attn_rows_at values = step_rows(job, g, walk, ws, job->values, job->v_dim);
    job->isa->load_keys[job->bf16](&keys, layer->head_dim, ws->kt);
    uint32_t count = *end - *first, tiles = (count + ATTN_TILE_ROWS - 1) / ATTN_TILE_ROWS;
    uint32_t low = count / tiles, taller = count % tiles, rows;
    for (uint32_t tile = 0, r = *first; tile < tiles; tile++, r += rows) {
        rows = low + (tile < taller);
        const float *q[ATTN_TILE_ROWS];
        for (uint32_t i = 0; i < rows; i++)
            q[i] = job->q + all->line[r + i] * layer->head_dim;
        float *s = ws->weights + (size_t)r * ATTN_BLOCK;
        job->isa->scores(rows, layer->head_dim, q, ws->kt, s);
        for (uint32_t i = 0; i < rows; i++)
            ws->sum[r + i] = job->isa->softmax(s + i * ATTN_BLOCK, key_begin[r + i], key_end[r + i],
                                               layer->scaling, layer->logit_cap, &ws->max[r + i]);
        weigh_values(job, ws, &values, r, rows, key_begin + r, key_end + r);
        values.next_base = values.base; /* fetched once is enough */
        values.next_slots = values.slots;
    }
}

/* Folds a block into what a row has so far. exp(0) is 1, so the larger of the two
 * maxima needs no exp. */
static void merge_row(const attn_job *job, float *max, float *sum, float *total, float block_max,
                      float block_sum, const float *part)
{
    float scale = 1, block_scale = 1;
    if (block_max > *max) {
        scale = job->isa->exp(*max - block_max);
        *max = block_max;
    } else {
        block_scale = job->isa->exp(block_max - *max);
    }
    *sum = fmaf(block_sum, block_scale, *sum * scale);
    job->isa->merge(job->v_dim, total, scale, part, block_scale);
}

static float *out_row(const attn_job *job, size_t line)
{
    return job->out + line * job->v_dim;
}

/* A group, all blocks. */
static void group_unit(void *arg, uint32_t unit, uint32_t thread)
{
    const attn_job *job = arg;
    attn_group g;
    workspace ws;
    float max[MOST_SIDES][MOST_ROWS], sum[MOST_SIDES][MOST_ROWS];
    (void)thread;
    if (!find_group(job, unit, &g)) return;
    for (uint32_t side = g.side_begin; side < g.side_end; side++) {
        find_rows(job, &g, side, &ws.rows);
        for (uint32_t r = 0; r < ws.rows.count; r++) {
            max[side - g.side_begin][r] = -INFINITY;
            sum[side - g.side_begin][r] = 0;
            memset(out_row(job, ws.rows.line[r]), 0, job->v_dim * sizeof(float));
        }
    }
    attn_walk walk = walk_begin(&g, g.first_block, g.end_block, &ws);
    do {
        uint32_t first, end, i = walk.side - g.side_begin;
        compute_step(job, &g, &ws, &walk, &first, &end);
        for (uint32_t r = first; r < end; r++)
            merge_row(job, &max[i][r], &sum[i][r], out_row(job, ws.rows.line[r]), ws.max[r],
                      ws.sum[r], ws.parts + (size_t)r * job->v_dim);
    } while (walk_step(&g, &walk, &ws));
    for (uint32_t side = g.side_begin; side < g.side_end; side++) {
        find_rows(job, &g, side, &ws.rows);
        for (uint32_t r = 0; r < ws.rows.count; r++)
            job->isa->divide(job->v_dim, out_row(job, ws.rows.line[r]),
                             sum[side - g.side_begin][r]);
    }
}

static float *partial(const attn_job *job, size_t line, uint32_t block)
{
    size_t index = line * job->wave_blocks + (block - job->wave_begin);
    return job->partials + index * (job->v_dim + 2);
}

/* PIECE_BLOCKS blocks of a group, stored. */
static void piece_unit(void *arg, uint32_t unit, uint32_t thread)
{
    const attn_job *job = arg;
    attn_group g;
    workspace ws;
    (void)thread;
    if (!find_group(job, unit / job->num_pieces, &g)) return;
    uint32_t begin = job->wave_begin + unit % job->num_pieces * PIECE_BLOCKS;
    uint32_t stop = RAD_MIN(RAD_MIN(begin + PIECE_BLOCKS, job->wave_end), g.end_block);
    begin = RAD_MAX(begin, g.first_block);
    if (begin >= stop) return;
    attn_walk walk = walk_begin(&g, begin, stop, &ws);
    do {
        uint32_t first, end;
        compute_step(job, &g, &ws, &walk, &first, &end);
        for (uint32_t r = first; r < end; r++) {
            float *to = partial(job, ws.rows.line[r], walk.block);
            to[0] = ws.max[r];
            to[1] = ws.sum[r];
            memcpy(to + 2, ws.parts + (size_t)r * job->v_dim, job->v_dim * sizeof *to);
        }
    } while (walk_step(&g, &walk, &ws));
}

/* The wave's blocks of a group, merged in order. */
static void merge_unit(void *arg, uint32_t unit, uint32_t thread)
{
    const attn_job *job = arg;
    attn_group g;
    attn_rows rows;
    (void)thread;
    if (!find_group(job, unit, &g)) return;
    uint32_t begin = RAD_MAX(job->wave_begin, g.first_block), unused[2];
    uint32_t end = RAD_MIN(job->wave_end, g.end_block);
    for (uint32_t side = g.side_begin; side < g.side_end; side++) {
        find_rows(job, &g, side, &rows);
        for (uint32_t r = 0; r < rows.count; r++) {
            float *state = job->states + 2 * rows.line[r], *total = out_row(job, rows.line[r]);
            for (uint32_t b = begin; b < end; b++) {
                if (!visible(job, rows.position[r], b, &unused[0], &unused[1])) continue;
                const float *from = partial(job, rows.line[r], b);
                merge_row(job, &state[0], &state[1], total, from[0], from[1], from + 2);
            }
        }
    }
}

/* Blocks spread over threads, wave by wave. False when that is not worth it, or when
 * there are too many rows for the memory: then nothing was done. */
static bool forward_spread(attn_job *job, compute_pool *pool)
{
    enum { MOST_LINES = 512 };
    const forward_batch *batch = job->batch;
    uint32_t threads = compute_pool_num_threads(pool);
    size_t lines = (size_t)batch->num_tokens * job->layer->num_heads;
    if (threads == 1 || job->num_chunks >= 2 * threads || lines > MOST_LINES) return false;
    size_t room = PARTIAL_FLOATS / (lines * (job->v_dim + 2));
    uint32_t first_block = UINT32_MAX, end_block = 0;
    for (uint32_t i = 0; i < batch->num_reqs; i++) {
        uint32_t first = attn_first_key(job->layer, batch->extend_prefix_lens[i]);
        first_block = RAD_MIN(first_block, first / ATTN_BLOCK);
        end_block = RAD_MAX(end_block, (batch->seq_lens[i] - 1) / ATTN_BLOCK + 1);
    }
    if (room < 2 * PIECE_BLOCKS || end_block - first_block < 4 * PIECE_BLOCKS) return false;

    float partials[PARTIAL_FLOATS], states[2 * MOST_LINES];
    job->partials = partials;
    job->states = states;
    job->wave_blocks = (uint32_t)room / PIECE_BLOCKS * PIECE_BLOCKS;
    for (size_t line = 0; line < lines; line++) {
        states[2 * line] = -INFINITY;
        states[2 * line + 1] = 0;
    }
    memset(job->out, 0, lines * job->v_dim * sizeof *job->out);
    for (uint32_t b = first_block; b < end_block; b += job->wave_blocks) {
        job->wave_begin = b;
        job->wave_end = RAD_MIN(end_block, b + job->wave_blocks);
        job->num_pieces = (job->wave_end - b + PIECE_BLOCKS - 1) / PIECE_BLOCKS;
        uint32_t num_groups = job->num_chunks * job->num_strips;
        compute_pool_run(pool, num_groups * job->num_pieces, piece_unit, job);
        compute_pool_run(pool, num_groups, merge_unit, job);
    }
    for (size_t line = 0; line < lines; line++)
        job->isa->divide(job->v_dim, out_row(job, line), states[2 * line + 1]);
    return true;
}

typedef struct attn_cpu_backend {
    attn_backend base;
    const attn_isa *isa;
} attn_cpu_backend;

static void set_sides(attn_job *job, uint32_t sides)
{
    uint32_t all = job->layer->num_kv_heads * job->parts;
    job->sides = RAD_MIN(sides, RAD_MIN(all, MOST_SIDES));
    job->num_strips = (all + job->sides - 1) / job->sides;
}

static void cpu_forward(const attn_backend *self, const radix_attention *layer,
                        const forward_batch *batch, const float *q, float *out, compute_pool *pool)
{
    if (batch->num_tokens == 0) return;
    rad_token_to_kv_pool *kv = batch->token_to_kv_pool;
    uint32_t sharing = layer->num_heads / layer->num_kv_heads;
    attn_job job = {.isa = ((const attn_cpu_backend *)self)->isa,
                    .layer = layer,
                    .batch = batch,
                    .keys = rad_kv_pool_key_buffer(kv, layer->layer_id),
                    .values = rad_kv_pool_value_buffer(kv, layer->layer_id),
                    .bf16 = rad_kv_pool_params(kv)->dtype == RAD_BF16,
                    .v_dim = attn_v_dim(layer),
                    .q = q,
                    .out = out,
                    .sharing = sharing,
                    .heads = RAD_MIN(sharing, MOST_ROWS)};
    job.parts = (sharing + job.heads - 1) / job.heads;
    job.tokens = MOST_ROWS / job.heads;
    job.num_chunks = first_chunk(&job, batch->num_reqs);
    /* What is prefetched for a block must find room in the L2 cache. */
    size_t side_bytes = ATTN_BLOCK * (layer->head_dim + job.v_dim) * element_bytes(&job);
    set_sides(&job, (uint32_t)RAD_MAX(1, RAD_MIN(MOST_SIDES, BLOCK_BYTES / side_bytes)));
    if (forward_spread(&job, pool)) return;
    /* Whole strips read memory best; but every thread should have some of them. */
    uint32_t threads = compute_pool_num_threads(pool);
    while (threads > 1 && job.sides > 1 && job.num_chunks * job.num_strips < 4 * threads)
        set_sides(&job, job.sides / 2);
    compute_pool_run(pool, job.num_chunks * job.num_strips, group_unit, &job);
}

static bool cpu_has(const attn_isa *isa)
{
    if (!isa->scores) return false; /* compiled for another architecture */
    if (isa == &attn_isa_scalar) return true;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (isa == &attn_isa_avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (isa == &attn_isa_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#endif
    return false;
}

const attn_backend *attn_cpu(const char *isa)
{
    static const attn_cpu_backend best_first[] = {
        {{"cpu-avx512", cpu_forward}, &attn_isa_avx512},
        {{"cpu-avx2", cpu_forward}, &attn_isa_avx2},
        {{"cpu-scalar", cpu_forward}, &attn_isa_scalar},
    };
    for (size_t i = 0; i < RAD_COUNT(best_first); i++) {
        const attn_cpu_backend *b = &best_first[i];
        if ((!isa || strcmp(isa, b->base.name + strlen("cpu-")) == 0) && cpu_has(b->isa))
            return &b->base;
    }
    return NULL;
}
