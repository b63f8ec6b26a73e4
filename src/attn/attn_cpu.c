/* attn_cpu.c - attention over the paged pool, block by block of 64 positions.
 *
 * The heads that share a KV head, of up to GROUP_ROWS / heads consecutive tokens of a
 * request, are one group of rows. A unit of work takes a group over its blocks:
 *
 *     keys of the block, transposed  ->  scores  ->  softmax  ->  weighted values
 *     (once for all rows)                 [rows][64]  max, sum     [rows][v_dim]
 *
 * and merges each block into the rows' totals, which live in `out` until they are
 * divided by their sums. A unit's memory is a `workspace` on its thread's stack.
 *
 * When there are few groups and contexts are long (decoding a few requests), the
 * blocks of a group are spread over threads too. Each block's (max, sum, values) is
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
    GROUP_ROWS = 48,           /* enough to pay for transposing the keys */
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

    /* Groups: heads of one KV head (in parts when they are many) x tokens. */
    uint32_t heads;      /* per group */
    uint32_t parts;      /* groups side by side per KV head */
    uint32_t tokens;     /* per group, at most */
    uint32_t num_chunks; /* of tokens, over all requests; some are empty */
    uint32_t num_groups; /* chunks x KV heads x parts */

    /* A wave of blocks, when they are spread over threads. */
    uint32_t wave_begin, wave_end; /* blocks */
    uint32_t wave_blocks;          /* room for so many per row */
    uint32_t num_pieces;
    float *partials; /* [token * num_heads + head][block of the wave][max, sum, values] */
    float *states;   /* [token * num_heads + head][max, sum], all blocks so far */
} attn_job;

/* The rows of one group, and the blocks that any of them sees. */
typedef struct attn_group {
    uint32_t num_rows;
    uint32_t kv_head;
    const rad_slot *slots;
    uint32_t first_block, end_block;
    uint32_t position[GROUP_ROWS]; /* ascending */
    size_t line[GROUP_ROWS];       /* token * num_heads + head: in q, out and states */
} attn_group;

typedef struct workspace {
    const void *keys[2][ATTN_BLOCK], *values[2][ATTN_BLOCK]; /* this block and the next */
    _Alignas(64) float kt[ATTN_MOST_DIM * ATTN_BLOCK];
    _Alignas(64) float weights[GROUP_ROWS * ATTN_BLOCK];
    _Alignas(64) float parts[GROUP_ROWS * ATTN_MOST_DIM];
    float max[GROUP_ROWS], sum[GROUP_ROWS]; /* of the block */
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

/* Fills in group `index`; false for an empty one. The heads of a chunk lie next to
 * each other in the order, so that threads read neighbouring memory at one time; long
 * contexts (a prefill's last chunks) come first, so that the short ones fill the end. */
static bool find_group(const attn_job *job, uint32_t index, attn_group *g)
{
    const forward_batch *batch = job->batch;
    const radix_attention *layer = job->layer;
    uint32_t side = layer->num_kv_heads * job->parts;
    uint32_t chunk = job->num_chunks - 1 - index / side;
    uint32_t request = request_of_chunk(job, chunk);
    uint32_t begin = (chunk - first_chunk(job, request)) * job->tokens;
    uint32_t fresh = batch->extend_seq_lens[request];
    if (begin >= fresh) return false;
    uint32_t end = RAD_MIN(fresh, begin + job->tokens);

    uint32_t sharing = layer->num_heads / layer->num_kv_heads;
    g->kv_head = index % side / job->parts;
    uint32_t first_head = index % side % job->parts * job->heads;
    uint32_t end_head = RAD_MIN(sharing, first_head + job->heads);
    g->slots = rad_req_to_token_row(batch->req_to_token_pool, batch->req_pool_indices[request]);
    g->num_rows = 0;
    for (uint32_t t = begin; t < end; t++)
        for (uint32_t h = first_head; h < end_head; h++) {
            size_t token = (size_t)batch->extend_start_loc[request] + t;
            g->position[g->num_rows] = batch->extend_prefix_lens[request] + t;
            g->line[g->num_rows++] = token * layer->num_heads + g->kv_head * sharing + h;
        }
    g->first_block = attn_first_key(layer, g->position[0]) / ATTN_BLOCK;
    g->end_block = g->position[g->num_rows - 1] / ATTN_BLOCK + 1;
    return g->num_rows > 0;
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

/* Where the keys and values of a block lie. Places behind the last position that the
 * group sees repeat the first one: they are loaded, and never looked at. */
static void locate(const attn_job *job, const attn_group *g, uint32_t block, const void **keys,
                   const void **values)
{
    const radix_attention *layer = job->layer;
    size_t size = job->bf16 ? 2 : 4;
    size_t k_head = layer->head_dim * size, v_head = job->v_dim * size;
    uint32_t base = block * ATTN_BLOCK, last = g->position[g->num_rows - 1];
    for (uint32_t j = 0; j < ATTN_BLOCK; j++) {
        size_t slot = (size_t)g->slots[base + j <= last ? base + j : base];
        size_t head = slot * layer->num_kv_heads + g->kv_head;
        keys[j] = job->keys + head * k_head;
        values[j] = job->values + head * v_head;
    }
}

/* Up to ATTN_TILE_ROWS rows over the values, each over the keys that it sees: what all
 * see together, what only some see row by row before and behind it. */
static void weigh_values(const attn_job *job, workspace *ws, uint32_t row, uint32_t rows,
                         const uint32_t *begin, const uint32_t *end, const void *const *values,
                         const void *const *next)
{
    const attn_isa *isa = job->isa;
    uint32_t from = 0, to = ATTN_BLOCK;
    for (uint32_t r = 0; r < rows; r++) {
        from = RAD_MAX(from, begin[r]);
        to = RAD_MIN(to, end[r]);
    }
    const float *p = ws->weights + (size_t)row * ATTN_BLOCK;
    float *acc = ws->parts + (size_t)row * job->v_dim;
    bool together = from < to, fresh = true;
    for (uint32_t r = 0; r < rows; r++) {
        uint32_t stop = together ? from : end[r];
        isa->values[job->bf16](1, job->v_dim, p + r * ATTN_BLOCK, values, next, begin[r], stop,
                               acc + (size_t)r * job->v_dim, job->v_dim, fresh);
    }
    if (!together) return;
    isa->values[job->bf16](rows, job->v_dim, p, values, next, from, to, acc, job->v_dim, false);
    for (uint32_t r = 0; r < rows; r++)
        if (end[r] > to)
            isa->values[job->bf16](1, job->v_dim, p + r * ATTN_BLOCK, values, next, to, end[r],
                                   acc + (size_t)r * job->v_dim, job->v_dim, false);
}

/* (max, sum, values) of one block for the rows of the group that see it, into ws.
 * Those are [*first, *end). `at` says which half of ws->keys holds the block. */
static void compute_block(const attn_job *job, const attn_group *g, workspace *ws, uint32_t block,
                          uint32_t at, uint32_t *first, uint32_t *end)
{
    const radix_attention *layer = job->layer;
    uint32_t key_begin[GROUP_ROWS], key_end[GROUP_ROWS];
    *first = g->num_rows;
    *end = 0;
    for (uint32_t r = 0; r < g->num_rows; r++)
        if (visible(job, g->position[r], block, &key_begin[r], &key_end[r])) {
            *first = RAD_MIN(*first, r);
            *end = r + 1;
        }
    if (*first >= *end) return;

    job->isa->load_keys[job->bf16](ws->keys[at], ws->keys[!at], layer->head_dim, ws->kt);
    uint32_t count = *end - *first, tiles = (count + ATTN_TILE_ROWS - 1) / ATTN_TILE_ROWS;
    uint32_t low = count / tiles, taller = count % tiles, rows;
    for (uint32_t tile = 0, r = *first; tile < tiles; tile++, r += rows) {
        rows = low + (tile < taller);
        const float *q[ATTN_TILE_ROWS];
        for (uint32_t i = 0; i < rows; i++)
            q[i] = job->q + g->line[r + i] * layer->head_dim;
        float *s = ws->weights + (size_t)r * ATTN_BLOCK;
        job->isa->scores(rows, layer->head_dim, q, ws->kt, s);
        for (uint32_t i = 0; i < rows; i++)
            ws->sum[r + i] = job->isa->softmax(s + i * ATTN_BLOCK, key_begin[r + i], key_end[r + i],
                                               layer->scaling, layer->logit_cap, &ws->max[r + i]);
        /* Only the first tile has the next block's values fetched. */
        weigh_values(job, ws, r, rows, key_begin + r, key_end + r, ws->values[at],
                     ws->values[tile ? at : !at]);
    }
}

/* Folds a block into what a row has so far. */
static void merge_row(const attn_job *job, float *max, float *sum, float *total, float block_max,
                      float block_sum, const float *part)
{
    float larger = block_max > *max ? block_max : *max;
    float scale = job->isa->exp(*max - larger), block_scale = job->isa->exp(block_max - larger);
    *max = larger;
    *sum = fmaf(block_sum, block_scale, *sum * scale);
    job->isa->merge(job->v_dim, total, scale, part, block_scale);
}

static float *out_row(const attn_job *job, size_t line)
{
    return job->out + line * job->v_dim;
}

/* A whole group, all blocks. */
static void group_unit(void *arg, uint32_t unit, uint32_t thread)
{
    const attn_job *job = arg;
    attn_group g;
    workspace ws;
    float max[GROUP_ROWS], sum[GROUP_ROWS] = {0};
    (void)thread;
    if (!find_group(job, unit, &g)) return;
    for (uint32_t r = 0; r < g.num_rows; r++) {
        max[r] = -INFINITY;
        memset(out_row(job, g.line[r]), 0, job->v_dim * sizeof(float));
    }
    uint32_t at = 0;
    locate(job, &g, g.first_block, ws.keys[0], ws.values[0]);
    for (uint32_t block = g.first_block; block < g.end_block; block++, at = !at) {
        uint32_t first, end;
        locate(job, &g, RAD_MIN(block + 1, g.end_block - 1), ws.keys[!at], ws.values[!at]);
        compute_block(job, &g, &ws, block, at, &first, &end);
        for (uint32_t r = first; r < end; r++)
            merge_row(job, &max[r], &sum[r], out_row(job, g.line[r]), ws.max[r], ws.sum[r],
                      ws.parts + (size_t)r * job->v_dim);
    }
    for (uint32_t r = 0; r < g.num_rows; r++)
        job->isa->divide(job->v_dim, out_row(job, g.line[r]), sum[r]);
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
    uint32_t at = 0;
    locate(job, &g, begin, ws.keys[0], ws.values[0]);
    for (uint32_t block = begin; block < stop; block++, at = !at) {
        uint32_t first, end;
        locate(job, &g, RAD_MIN(block + 1, stop - 1), ws.keys[!at], ws.values[!at]);
        compute_block(job, &g, &ws, block, at, &first, &end);
        for (uint32_t r = first; r < end; r++) {
            float *to = partial(job, g.line[r], block);
            to[0] = ws.max[r];
            to[1] = ws.sum[r];
            memcpy(to + 2, ws.parts + (size_t)r * job->v_dim, job->v_dim * sizeof *to);
        }
    }
}

/* The wave's blocks of a group, merged in order. */
static void merge_unit(void *arg, uint32_t unit, uint32_t thread)
{
    const attn_job *job = arg;
    attn_group g;
    (void)thread;
    if (!find_group(job, unit, &g)) return;
    for (uint32_t r = 0; r < g.num_rows; r++) {
        float *state = job->states + 2 * g.line[r], *total = out_row(job, g.line[r]);
        uint32_t unused[2], last = RAD_MIN(job->wave_end, g.end_block);
        for (uint32_t b = RAD_MAX(job->wave_begin, g.first_block); b < last; b++) {
            if (!visible(job, g.position[r], b, &unused[0], &unused[1])) continue;
            const float *from = partial(job, g.line[r], b);
            merge_row(job, &state[0], &state[1], total, from[0], from[1], from + 2);
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
    if (threads == 1 || job->num_groups >= 3 * threads || lines > MOST_LINES) return false;
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
        compute_pool_run(pool, job->num_groups * job->num_pieces, piece_unit, job);
        compute_pool_run(pool, job->num_groups, merge_unit, job);
    }
    for (size_t line = 0; line < lines; line++)
        job->isa->divide(job->v_dim, out_row(job, line), states[2 * line + 1]);
    return true;
}

typedef struct attn_cpu_backend {
    attn_backend base;
    const attn_isa *isa;
} attn_cpu_backend;

static void cpu_forward(const attn_backend *self, const radix_attention *layer,
                        const forward_batch *batch, const float *q, float *out, compute_pool *pool)
{
    rad_token_to_kv_pool *kv = batch->token_to_kv_pool;
    uint32_t sharing = layer->num_heads / layer->num_kv_heads;
    if (batch->num_tokens == 0) return;
    attn_job job = {.isa = ((const attn_cpu_backend *)self)->isa,
                    .layer = layer,
                    .batch = batch,
                    .keys = rad_kv_pool_key_buffer(kv, layer->layer_id),
                    .values = rad_kv_pool_value_buffer(kv, layer->layer_id),
                    .bf16 = rad_kv_pool_params(kv)->dtype == RAD_BF16,
                    .v_dim = attn_v_dim(layer),
                    .q = q,
                    .out = out,
                    .heads = RAD_MIN(sharing, GROUP_ROWS)};
    job.parts = (sharing + job.heads - 1) / job.heads;
    job.tokens = GROUP_ROWS / job.heads;
    job.num_chunks = first_chunk(&job, batch->num_reqs);
    job.num_groups = job.num_chunks * layer->num_kv_heads * job.parts;
    if (!forward_spread(&job, pool)) compute_pool_run(pool, job.num_groups, group_unit, &job);
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
