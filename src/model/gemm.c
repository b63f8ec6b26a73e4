/* gemm.c - tiles of work over the panels of a weight (gemm_weight.h).
 *
 * A unit of work is one panel x a block of rows of x. In it k advances in chunks
 * small enough for the chunk of the panel (or of one side of it, if the kernel computes half
 * of the outputs at a time) to stay in the L1 cache while all rows of the block go over
 * it, 6 at a time; the sums wait in `out` between chunks.
 *
 * A gated unit (gemm_run_glu) is a panel of gates and the panel of their ups x a block of
 * rows: the sums stay in the thread's cache, and only glu(gate, up), rounded, leaves it.
 *
 * A stack of parts of different types is one product: its panels are counted through, and a
 * unit begins with finding the part that has its panel.
 *
 * Several products that run together (gemm_run_items: the experts of a mixture) are one region,
 * their units counted through; which weight and rows a unit has is looked up when it begins.
 *
 * Few rows are a matter of reading W. Each thread goes over a range of panels of its own,
 * in order, and fetches ahead of what it works on, a few KB or a chunk: at the end of its range
 * the first of its range in the weight that runs next. So the next product begins with what
 * memory brought while threads waited for each other.
 *
 * Invariant (P1): an output's chain is k = 0, 1, ... K-1 in its own lane of its own
 * accumulator. Blocks, chunks and threads decide when a link is added, never in
 * which order. */
#include "model/gemm_weight.h"

enum {
    CHUNK_BYTES = 32 << 10,         /* of a panel: most of an L1 cache */
    SIDE_BYTES = 36 << 10,          /* of one of its two sides: 32 steps of q8_0 */
    ONE_TILE_BYTES = 128 << 10,     /* of a panel that is read once, in order */
    IN_TURN_BYTES = 16 << 10,       /* of one whose sides a single tile takes in turn */
    BLOCK_ROWS = 96,                /* of x per unit of work; whole tiles */
    HIGH_TILE = 32,                 /* rows that bf16_block likes at a time; */
    INT8_TILE = GEMM_AMX_INT8_ROWS, /* that quant_block does */
    ROUND_ROWS = 8,                 /* rows rounded per unit of work */
    TAIL = GEMM_TILE_ROWS * GEMM_PANEL
};

/* Bytes from one rounded row of x to the next: not a multiple of 512, lest the rows of
 * a tile compete for the same few places of the cache. */
static size_t rounded_pitch(const gemm_weight *w, gemm_type type)
{
    if (reads_x(type)) return 0;
    if (quantised(type)) {
        size_t blocks = ((size_t)w->k + GEMM_XBLOCK - 1) / GEMM_XBLOCK;
        size_t pitch = blocks * sizeof(gemm_xblock);
        return pitch % 512 ? pitch : pitch + sizeof(gemm_xblock);
    }
    size_t pairs = (size_t)w->k / 2 + w->k % 2;
    size_t bytes = pairs * 2 * (w->isa->widens ? sizeof(float) : sizeof(uint16_t));
    size_t pitch = (bytes + 63) & ~(size_t)63; /* whole lines */
    return pitch % 512 ? pitch : pitch + 64;
}

size_t gemm_scratch_bytes(const gemm_weight *w, uint32_t m)
{
    return m * RAD_MAX(rounded_pitch(w, GEMM_BF16), rounded_pitch(w, GEMM_Q8_0));
}

typedef struct gemm_job {
    const gemm_weight *w;
    gemm_kernel *kernel;
    const float *x;
    size_t ldx;
    uint32_t m;
    uint32_t num_blocks; /* of rows of x */
    uint32_t block_rows;
    uint32_t num_threads;
    const char *in;           /* what the kernels read: x, or x rounded */
    size_t in_pitch, in_step; /* bytes per row, and per step of depth */
    size_t in_ld;             /* in_pitch in the kernels' unit */
    char *rounded;
    float *out;
    size_t ldo;
    bool accumulate;
    gemm_glu *glu;           /* gated units only, as are: */
    const gemm_weight *then; /* what reads glu(gate, up), */
    char *then_rounded;      /* and where, */
    const float *bias;       /* and what is added before, or NULL */
    const char *after;       /* of one among several: what comes next */
} gemm_job;

/* `count` values of a row from column `first` on, for rows of scratch memory that begin at
 * `row`. first and count are whole steps, unless they end the row. */
static void round_part(const gemm_weight *w, const float *x, uint32_t first, uint32_t count,
                       char *row)
{
    if (quantised(w->type))
        w->isa->quant->round_row(x, count, (gemm_xblock *)row + first / GEMM_XBLOCK);
    else
        w->isa->round_row(x, count,
                          row + first * (w->isa->widens ? sizeof(float) : sizeof(uint16_t)));
}

void gemm_round_row(const gemm_weight *w, const float *x, uint32_t row, void *scratch)
{
    if (reads_x(w->type)) return; /* read as it is */
    round_part(w, x, 0, w->k, (char *)scratch + row * rounded_pitch(w, w->type));
}

void gemm_copy_rounded(const gemm_weight *w, uint32_t from, uint32_t to, void *scratch)
{
    const size_t pitch = rounded_pitch(w, w->type);
    if (pitch) memcpy((char *)scratch + to * pitch, (char *)scratch + from * pitch, pitch);
}

static void round_unit(void *arg, uint32_t tile, uint32_t thread)
{
    const gemm_job *job = arg;
    (void)thread;
    uint32_t end = RAD_MIN(job->m, (tile + 1) * ROUND_ROWS);
    for (uint32_t i = tile * ROUND_ROWS; i < end; i++)
        gemm_round_row(job->w, job->x + i * job->ldx, i, job->rounded);
}

/* The last panel when N is not a multiple of GEMM_PANEL: kernels write whole
 * panels, so they write beside `out`, and what belongs there is copied. */
static void run_tail(gemm_kernel *kernel, const gemm_tile *t, uint32_t columns)
{
    float sums[TAIL] = {0};
    for (uint32_t r = 0; r < t->rows && (!t->fresh || t->side); r++) /* side 0 wrote its own */
        memcpy(sums + r * GEMM_PANEL, t->c + r * t->ldc, columns * sizeof *sums);
    gemm_tile beside = *t;
    beside.c = sums;
    beside.ldc = GEMM_PANEL;
    kernel(&beside);
    for (uint32_t r = 0; r < t->rows; r++)
        memcpy(t->c + r * t->ldc, sums + r * GEMM_PANEL, columns * sizeof *sums);
}

/* In how many calls the kernel computes a tile of more than GEMM_LOW_ROWS rows. */
static uint32_t num_sides(const gemm_weight *w)
{
    return quantised(w->type) && w->isa->quant->two_sides ? 2 : 1;
}

/* Steps of k per chunk. All chunks of a panel are about equally deep: while a tile reads one
 * chunk it prefetches an equal share of the next. */
static uint32_t chunk_depth(const gemm_weight *w, uint32_t rows)
{
    uint32_t bytes = rows <= GEMM_TILE_ROWS ? ONE_TILE_BYTES : CHUNK_BYTES;
    /* One tile that alternates between the two sides of a panel: both sides of this chunk and both
     * of the next have to fit into L1. */
    if (rows > GEMM_LOW_ROWS && rows <= GEMM_TILE_ROWS && num_sides(w) == 2) bytes = IN_TURN_BYTES;
    /* Many rows: each side gets the bytes that a whole panel has otherwise. The tiles then load and
     * store their partial sums half as often. */
    if (rows > 4 * GEMM_TILE_ROWS && num_sides(w) == 2) bytes = 2 * SIDE_BYTES;
    /* Two tiles finish a chunk sooner than memory delivers the next one. With half the bytes, this
     * chunk and the next are in L1 together. */
    bool two_tiles = rows > GEMM_TILE_ROWS && rows <= 2 * GEMM_TILE_ROWS;
    if (two_tiles && !quantised(w->type)) bytes /= 2;
    uint32_t most = bytes / (uint32_t)step_bytes(w), chunks = (w->depth + most - 1) / most;
    return (w->depth + chunks - 1) / chunks;
}

/* One chunk of k of one side of a panel for rows [begin, end): tiles of nearly equal height,
 * since low ones have too few sums in flight. Each tile prefetches its share of the
 * chunk that `next` points to. `c` is where the first of the rows goes. */
static void run_side(const gemm_job *job, uint32_t panel, uint32_t begin, uint32_t end, uint32_t k,
                     uint32_t depth, uint32_t side, const char *next, float *c, size_t ldc)
{
    const gemm_weight *w = job->w;
    uint32_t columns = RAD_MIN(GEMM_PANEL, w->n - panel * GEMM_PANEL);
    uint32_t tiles = (end - begin + GEMM_TILE_ROWS - 1) / GEMM_TILE_ROWS;
    uint32_t low = (end - begin) / tiles, taller = (end - begin) % tiles;
    gemm_tile t = {.depth = depth,
                   .side = side,
                   .ldx = job->in_ld,
                   .w = panel_start(w, panel) + k * step_bytes(w),
                   .ldc = ldc,
                   .ahead_stride = step_bytes(w) / tiles,
                   .fresh = k == 0 && !job->accumulate};
    for (uint32_t tile = 0, i = begin; tile < tiles; tile++, i += t.rows) {
        t.rows = low + (tile < taller);
        if (side && t.rows <= GEMM_LOW_ROWS) continue; /* done with side 0 */
        t.x = job->in + i * job->in_pitch + k * job->in_step;
        t.c = c + (i - begin) * ldc;
        t.ahead = next + (size_t)tile * depth * t.ahead_stride;
        if (columns == GEMM_PANEL)
            job->kernel(&t);
        else
            run_tail(job->kernel, &t, columns);
    }
}

/* Units that a product of one block of rows goes over: a gate's panel takes its up's along. */
static uint32_t num_units(const gemm_weight *w, bool gated)
{
    uint32_t panels = 0;
    for (; w; w = w->beside)
        panels += w->num_panels;
    return gated ? panels / 2 : panels;
}

/* Whether w's outputs are gates and ups of what `then` reads, panel by panel: both begin
 * with a panel, in every part of a stack. */
static bool gates_by_panel(const gemm_weight *w, const gemm_weight *then)
{
    uint32_t gates = then->k / GEMM_PANEL;
    return then->k % GEMM_PANEL == 0 && gemm_weight_n(w) == 2 * (uint64_t)then->k &&
           num_units(w, false) == 2 * (uint64_t)gates;
}

/* A guess, and no more depends on it than what is fetched ahead. */
static bool probably_gated(const gemm_weight *w)
{
    return w->next && gates_by_panel(w, w->next);
}

/* Where unit `unit` of a weight begins. */
static const char *unit_start(const gemm_weight *w, uint32_t unit)
{
    const gemm_weight *part = part_of_panel(w, &unit);
    return panel_start(part, unit);
}

/* What this thread will probably read after unit `unit`, whose number is its panel's. */
static const char *after_unit(const gemm_job *job, uint32_t unit, uint32_t thread)
{
    const gemm_weight *w = job->w, *next = w->next;
    uint32_t units = num_units(w, job->glu), threads = job->num_threads;
    if (job->after) return job->after;
    if (job->num_blocks > 1) return unit_start(w, RAD_MIN(unit + threads, units - 1));
    uint32_t begin = compute_pool_near(units, threads, thread);
    uint32_t end = compute_pool_near(units, threads, thread + 1);
    if (unit < begin || unit >= end) return unit_start(w, unit ? unit - 1 : 0); /* taken over */
    if (unit + 1 < end) return unit_start(w, unit + 1);
    if (!next) return unit_start(w, begin);
    units = num_units(next, probably_gated(next));
    return unit_start(next, RAD_MIN(compute_pool_near(units, threads, thread), units - 1));
}

/* All of k at once, for kernels that have their own way through it. */
static void run_block(const gemm_job *job, uint32_t panel, uint32_t begin, uint32_t end,
                      const char *after, float *c, size_t ldc)
{
    const gemm_weight *w = job->w;
    gemm_tile t = {.rows = end - begin,
                   .depth = w->depth,
                   .x = job->in + begin * job->in_pitch,
                   .ldx = job->in_ld,
                   .w = panel_start(w, panel),
                   .c = c,
                   .ldc = ldc,
                   .ahead = after,
                   .fresh = !job->accumulate};
    uint32_t columns = RAD_MIN(GEMM_PANEL, w->n - panel * GEMM_PANEL);
    if (quantised(w->type))
        w->isa->quant_block(w->type, &t, columns);
    else
        w->isa->bf16_block(&t, columns);
}

/* A panel for rows [begin, end), all of k. `after`: what this thread will probably read
 * next. `c` is where the first of the rows goes. */
static void run_panel(const gemm_job *job, uint32_t panel, uint32_t begin, uint32_t end,
                      const char *after, float *c, size_t ldc)
{
    const gemm_weight *w = job->w;
    if (!job->kernel) {
        run_block(job, panel, begin, end, after, c, ldc);
        return;
    }
    uint32_t most = chunk_depth(w, end - begin);
    for (uint32_t k = 0, depth; k < w->depth; k += depth) {
        depth = RAD_MIN(most, w->depth - k);
        const char *next =
            k + depth < w->depth ? panel_start(w, panel) + (k + depth) * step_bytes(w) : after;
        for (uint32_t side = 0; side < num_sides(w); side++)
            run_side(job, panel, begin, end, k, depth, side, next, c, ldc);
    }
}

static uint32_t part_job(const gemm_job **job, uint32_t *panel, gemm_job *part);

static void gemm_unit(void *arg, uint32_t unit, uint32_t thread)
{
    const gemm_job *job = arg;
    uint32_t panel = unit / job->num_blocks;
    uint32_t begin = unit % job->num_blocks * job->block_rows;
    uint32_t end = RAD_MIN(job->m, begin + job->block_rows);
    const char *after = after_unit(job, panel, thread);
    gemm_job part;
    size_t column = part_job(&job, &panel, &part); /* of the part; then of the panel */
    column += (size_t)panel * GEMM_PANEL;
    run_panel(job, panel, begin, end, after, job->out + begin * job->ldo + column, job->ldo);
}

/* One row of gates beside their ups, `count` of each from column `first` on, becomes what
 * `then` reads. */
static void glu_part(const gemm_job *job, uint32_t row, uint32_t first, uint32_t count, float *gate,
                     float *up)
{
    const gemm_weight *then = job->then;
    for (uint32_t i = 0; job->bias && i < count; i++) {
        gate[i] += job->bias[first + i];
        up[i] += job->bias[then->k + first + i];
    }
    job->glu(gate, up, count);
    if (!reads_x(then->type))
        round_part(then, gate, first, count,
                   job->then_rounded + row * rounded_pitch(then, then->type));
    else if (gate != job->out + row * job->ldo + first)
        memcpy(job->out + row * job->ldo + first, gate, count * sizeof *gate);
}

/* Of gates or ups. */
static void run_any_panel(const gemm_job *job, uint32_t panel, uint32_t begin, uint32_t end,
                          const char *after, float *sums)
{
    gemm_job part;
    part_job(&job, &panel, &part);
    run_panel(job, panel, begin, end, after, sums, 2 * GEMM_PANEL);
}

static void glu_unit(void *arg, uint32_t unit, uint32_t thread)
{
    const gemm_job *job = arg;
    _Alignas(64) float sums[BLOCK_ROWS][2][GEMM_PANEL];
    uint32_t gates = num_units(job->w, true), panel = unit / job->num_blocks;
    uint32_t begin = unit % job->num_blocks * job->block_rows;
    uint32_t end = RAD_MIN(job->m, begin + job->block_rows);
    run_any_panel(job, panel, begin, end, unit_start(job->w, panel + gates), sums[0][0]);
    run_any_panel(job, panel + gates, begin, end, after_unit(job, panel, thread), sums[0][1]);
    for (uint32_t i = begin; i < end; i++)
        glu_part(job, i, panel * GEMM_PANEL, GEMM_PANEL, sums[i - begin][0], sums[i - begin][1]);
}

/* The same for gates that do not fill whole panels: whole rows, once all are there. */
static void glu_rows(void *arg, uint32_t tile, uint32_t thread)
{
    const gemm_job *job = arg;
    (void)thread;
    uint32_t end = RAD_MIN(job->m, (tile + 1) * ROUND_ROWS), count = job->then->k;
    for (uint32_t i = tile * ROUND_ROWS; i < end; i++) {
        float *gate = job->out + i * job->ldo;
        glu_part(job, i, 0, count, gate, gate + count);
    }
}

/* Which rows go by quant_block and which do not is a matter of time: the bits are equal. */
static bool by_quant_block(const gemm_weight *w, uint32_t m)
{
    return w->isa->quant_block && m > GEMM_FEW_ROWS &&
           (w->type == GEMM_Q8_0 || w->type == GEMM_Q4_0 || w->type == GEMM_Q4_K);
}

/* NULL: bf16_block or quant_block instead. */
static gemm_kernel *find_kernel(const gemm_weight *w, uint32_t m)
{
    if (by_quant_block(w, m)) return NULL;
    switch (w->type) {
    case GEMM_F32: return w->isa->f32;
    case GEMM_BF16: return w->isa->bf16;
    case GEMM_BF16W: return w->isa->bf16w;
    case GEMM_F16W: return w->isa->f16w;
    case GEMM_Q8_0: return w->isa->quant->q8_0;
    case GEMM_Q4_0: return w->isa->quant->q4_0;
    case GEMM_Q4_1: return w->isa->quant->q4_1;
    case GEMM_Q5_0: return w->isa->quant->q5_0;
    case GEMM_Q5_1: return w->isa->quant->q5_1;
    case GEMM_IQ4_NL: return w->isa->quant->iq4_nl;
    case GEMM_MXFP4: return w->isa->quant->mxfp4;
    case GEMM_Q2_K: return w->isa->quant->q2_k;
    case GEMM_Q3_K: return w->isa->quant->q3_k;
    case GEMM_Q4_K: return w->isa->quant->q4_k;
    case GEMM_Q5_K: return w->isa->quant->q5_k;
    case GEMM_IQ4_XS: return w->isa->quant->iq4_xs;
    default: return w->isa->quant->q6_k;
    }
}

/* What the kernels read, and how far it reaches per row and per step. */
static void find_input(gemm_job *job, void *scratch)
{
    const gemm_weight *w = job->w;
    if (reads_x(w->type)) {
        job->in = (const char *)job->x;
        job->in_pitch = job->ldx * sizeof *job->x;
        job->in_step = gemm_steps[w->type].values * sizeof *job->x;
        job->in_ld = job->ldx;
        return;
    }
    job->in = job->rounded = scratch;
    job->in_pitch = rounded_pitch(w, w->type);
    if (quantised(w->type)) {
        job->in_step = gemm_steps[w->type].values / GEMM_XBLOCK * sizeof(gemm_xblock);
        job->in_ld = job->in_pitch / sizeof(gemm_xblock);
    } else {
        job->in_step = 2 * (w->isa->widens ? sizeof(float) : sizeof(uint16_t));
        job->in_ld = job->in_pitch / 4; /* f32, or pairs of bf16 */
    }
}

/* Of a stack: *job becomes that of the part with panel *panel, which becomes its number there.
 * Returns the rows of the weight that lie before the part. */
static uint32_t part_job(const gemm_job **job, uint32_t *panel, gemm_job *part)
{
    const gemm_weight *all = (*job)->w, *w = part_of_panel(all, panel);
    if (!all->beside) return 0;
    *part = **job;
    part->w = w;
    part->kernel = find_kernel(w, part->m);
    find_input(part, part->rounded);
    *job = part;
    uint32_t rows = 0;
    for (; all != w; all = all->beside)
        rows += all->n;
    return rows;
}

static gemm_job make_job(const gemm_weight *w, const float *x, size_t ldx, uint32_t m, float *out,
                         size_t ldo, compute_pool *pool, void *scratch)
{
    gemm_job job = {.w = w,
                    .kernel = find_kernel(w, m),
                    .x = x,
                    .ldx = ldx,
                    .m = m,
                    .out = out,
                    .ldo = ldo,
                    .num_threads = compute_pool_num_threads(pool)};
    find_input(&job, scratch);
    /* Blocks of about equal height, whole tiles each. */
    uint32_t tile_rows = job.kernel ? GEMM_TILE_ROWS : quantised(w->type) ? INT8_TILE : HIGH_TILE;
    uint32_t tiles = (m + tile_rows - 1) / tile_rows;
    uint32_t most = BLOCK_ROWS / tile_rows;
    uint32_t blocks = (tiles + most - 1) / most;
    job.block_rows = (tiles + blocks - 1) / blocks * tile_rows;
    job.num_blocks = (m + job.block_rows - 1) / job.block_rows;
    return job;
}

/* Few rows: each thread has a range of its own, see the top. */
static void run_units(gemm_job *job, compute_pool *pool, compute_fn unit)
{
    uint32_t units = num_units(job->w, job->glu);
    if (job->num_blocks == 1)
        compute_pool_run_near(pool, units, unit, job);
    else
        compute_pool_run(pool, units * job->num_blocks, unit, job);
}

void gemm_run_rounded(const gemm_weight *w, const float *x, size_t ldx, uint32_t m, float *out,
                      size_t ldo, bool accumulate, compute_pool *pool, void *scratch)
{
    if (m == 0) return;
    gemm_job job = make_job(w, x, ldx, m, out, ldo, pool, scratch);
    job.accumulate = accumulate;
    run_units(&job, pool, gemm_unit);
}

void gemm_run(const gemm_weight *w, const float *x, size_t ldx, uint32_t m, float *out, size_t ldo,
              bool accumulate, compute_pool *pool, void *scratch)
{
    if (m == 0) return;
    gemm_job job = make_job(w, x, ldx, m, out, ldo, pool, scratch);
    if (job.rounded) compute_pool_run(pool, (m + ROUND_ROWS - 1) / ROUND_ROWS, round_unit, &job);
    gemm_run_rounded(w, x, ldx, m, out, ldo, accumulate, pool, scratch);
}

void gemm_run_glu(const gemm_weight *w, const float *x, size_t ldx, uint32_t m, gemm_glu *glu,
                  float *out, size_t ldo, const gemm_weight *then, void *then_scratch,
                  compute_pool *pool, void *scratch)
{
    RAD_ASSERT_ENV(&w->env, gemm_weight_n(w) == 2 * (uint64_t)then->k);
    if (m == 0) return;
    gemm_job job = make_job(w, x, ldx, m, out, ldo, pool, scratch);
    job.then = then;
    job.then_rounded = then_scratch;
    if (gates_by_panel(w, then)) {
        job.glu = glu;
        run_units(&job, pool, glu_unit);
    } else {
        run_units(&job, pool, gemm_unit);
        job.glu = glu;
        compute_pool_run(pool, (m + ROUND_ROWS - 1) / ROUND_ROWS, glu_rows, &job);
    }
}

/* ---- several products at once ---- */

typedef struct items_job {
    gemm_item *items;
    uint32_t num_items, num_units;
    size_t ldx, ldo;
    gemm_glu *glu; /* NULL: not gated */
    bool by_panel; /* gates beside their ups */
    char *scratch, *then_scratch;
    compute_pool *pool;
} items_job;

static gemm_job job_of_item(const items_job *all, const gemm_item *item)
{
    const gemm_weight *w = item->w, *then = item->then;
    gemm_job job = make_job(w, item->x, all->ldx, item->rows, item->out, all->ldo, all->pool,
                            all->scratch + item->first * rounded_pitch(w, w->type));
    if (!all->glu) return job;
    job.then = then;
    job.then_rounded = all->then_scratch + item->first * rounded_pitch(then, then->type);
    job.bias = item->bias;
    if (all->by_panel) job.glu = all->glu;
    return job;
}

/* The item that has the unit: the last one that begins at it or before. */
static const gemm_item *item_of_unit(const items_job *all, uint32_t unit)
{
    uint32_t low = 0, high = all->num_items;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (all->items[middle].unit <= unit)
            low = middle;
        else
            high = middle;
    }
    return &all->items[low];
}

static void item_unit(void *arg, uint32_t unit, uint32_t thread)
{
    const items_job *all = arg;
    const gemm_item *item = item_of_unit(all, unit), *next = item;
    gemm_job job = job_of_item(all, item);
    uint32_t panel = unit + 1 - item->unit;
    if (next + 1 < all->items + all->num_items && (next + 1)->unit == unit + 1) {
        next++;
        panel = 0;
    }
    panel = RAD_MIN(panel / job.num_blocks, num_units(next->w, job.glu) - 1);
    job.after = unit_start(next->w, panel);
    (job.glu ? glu_unit : gemm_unit)(&job, unit - item->unit, thread);
}

/* Of gates that do not fill whole panels; see glu_rows. */
static void item_glu_rows(void *arg, uint32_t index, uint32_t thread)
{
    const items_job *all = arg;
    gemm_job job = job_of_item(all, &all->items[index]);
    job.glu = all->glu;
    for (uint32_t tile = 0; tile * ROUND_ROWS < job.m; tile++)
        glu_rows(&job, tile, thread);
}

/* Neighbouring units are one thread's: an expert of few rows is read in order. */
static void run_items(items_job *all)
{
    for (uint32_t i = 0; i < all->num_items; i++) {
        gemm_item *item = &all->items[i];
        gemm_job job = job_of_item(all, item);
        item->unit = all->num_units;
        all->num_units += num_units(item->w, job.glu) * job.num_blocks;
    }
    compute_pool_run_near(all->pool, all->num_units, item_unit, all);
}

void gemm_run_items(gemm_item *items, uint32_t num_items, size_t ldx, size_t ldo,
                    compute_pool *pool, void *scratch)
{
    items_job all = {.items = items,
                     .num_items = num_items,
                     .ldx = ldx,
                     .ldo = ldo,
                     .scratch = scratch,
                     .pool = pool};
    run_items(&all);
}

void gemm_run_items_glu(gemm_item *items, uint32_t num_items, size_t ldx, size_t ldo, gemm_glu *glu,
                        void *then_scratch, compute_pool *pool, void *scratch)
{
    items_job all = {.items = items,
                     .num_items = num_items,
                     .ldx = ldx,
                     .ldo = ldo,
                     .glu = glu,
                     .scratch = scratch,
                     .then_scratch = then_scratch,
                     .pool = pool};
    if (!num_items) return;
    all.by_panel = gates_by_panel(items[0].w, items[0].then);
    run_items(&all);
    if (!all.by_panel) compute_pool_run(pool, num_items, item_glu_rows, &all);
}
