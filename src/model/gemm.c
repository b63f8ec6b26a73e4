/* gemm.c - weights in panels, and tiles of work over them.
 *
 * A panel is 64 rows of W side by side, so that one step of k is contiguous (here
 * f32; bf16 interleaves two k, [K/2][64][2]):
 *
 *     panel 0:  k=0 | w0 w1 ... w63 |  k=1 | w0 w1 ... w63 |  ...
 *     panel 1:  k=0 | w64 ...  w127 |  ...
 *
 * Of a quantised weight a step is 32 or 256 k (gemm_quant.h).
 *
 * A unit of work is one panel x a block of rows of x. In it k advances in chunks
 * small enough for the chunk of the panel to stay in the L1 cache while all rows
 * of the block go over it, 6 at a time; the sums wait in `out` between chunks.
 *
 * A gated unit (gemm_run_glu) is a panel of gates and the panel of their ups x a block of
 * rows: the sums stay in the thread's cache, and only glu(gate, up), rounded, leaves it.
 *
 * Few rows are a matter of reading W. Each thread goes over a range of panels of its own,
 * in order, and fetches one chunk ahead of what it works on: at the end of its range the
 * first of its range in the weight that runs next. So memory is not idle while threads
 * wait for each other, nor during the little that is done between two products.
 *
 * Invariant (P1): an output's chain is k = 0, 1, ... K-1 in its own lane of its own
 * accumulator. Blocks, chunks and threads decide when a link is added, never in
 * which order. */
#include "model/gemm.h"

#include "base/base.h"
#include "model/gemm_kernels.h"

#include <sys/mman.h>

enum {
    CHUNK_BYTES = 32 << 10,     /* of a panel: most of an L1 cache */
    ONE_TILE_BYTES = 128 << 10, /* of a panel that is read once: what may be fetched ahead */
    BLOCK_ROWS = 96,            /* of x per unit of work; whole tiles */
    HIGH_TILE = 32,             /* rows that bf16_block likes at a time */
    ROUND_ROWS = 8,             /* rows rounded per unit of work */
    PACK_ROWS = 16,             /* rows packed together: one line of output each step */
    TAIL = GEMM_TILE_ROWS * GEMM_PANEL
};

struct gemm_weight {
    rad_env env;
    const gemm_isa *isa;
    gemm_type type;
    uint32_t n, k;
    uint32_t num_panels;
    uint32_t depth; /* steps per panel */
    size_t bytes;
    void *data;
    const gemm_weight *next; /* what runs after it, or NULL */
};

static bool cpu_has(const gemm_isa *isa)
{
    if (!isa->f32) return false; /* compiled for another architecture */
    if (isa == &gemm_scalar || isa == &gemm_amx_emulated) return true;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (isa == &gemm_avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (isa == &gemm_avx512) return avx512;
    bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
    if (isa == &gemm_avx512vnni) return vnni;
    if (isa == &gemm_avx512bf16) return vnni && __builtin_cpu_supports("avx512bf16");
    if (isa == &gemm_amx) return vnni && gemm_amx_usable(NULL);
#endif
    return false;
}

const gemm_isa *gemm_isa_find(const char *name)
{
    static const gemm_isa *const best_first[] = {
        &gemm_amx,  &gemm_avx512bf16, &gemm_avx512vnni,  &gemm_avx512,
        &gemm_avx2, &gemm_scalar,     &gemm_amx_emulated};
    for (size_t i = 0; i < RAD_COUNT(best_first); i++)
        if ((!name || strcmp(name, best_first[i]->name) == 0) && cpu_has(best_first[i]))
            return best_first[i];
    return NULL;
}

const char *gemm_isa_name(const gemm_isa *isa)
{
    return isa->name;
}

const char *gemm_amx_refusal(void)
{
    const char *why;
    return gemm_amx_usable(&why) ? NULL : why;
}

/* How a panel's step looks: values of k in it, and bytes for all GEMM_PANEL rows. */
static const struct {
    const char *name;
    uint32_t values, bytes;
} types[GEMM_NUM_TYPES] = {
    [GEMM_F32] = {"f32", 1, GEMM_PANEL * 4},
    [GEMM_BF16] = {"bf16", 2, GEMM_PANEL * 4},
    [GEMM_Q8_0] = {"q8_0", 32, sizeof(gemm_q8_0_step)},
    [GEMM_Q4_0] = {"q4_0", 32, sizeof(gemm_q4_0_step)},
    [GEMM_Q4_K] = {"q4_K", 256, sizeof(gemm_q4_k_step)},
};

const char *gemm_type_name(gemm_type type)
{
    return type < GEMM_NUM_TYPES ? types[type].name : "unknown";
}

static bool quantised(gemm_type type)
{
    return type >= GEMM_Q8_0;
}

static size_t step_bytes(const gemm_weight *w)
{
    return types[w->type].bytes;
}

static uint32_t depth_of(gemm_type type, uint32_t k)
{
    return k / types[type].values + (k % types[type].values != 0);
}

static uint32_t num_panels_of(uint32_t n)
{
    return n / GEMM_PANEL + (n % GEMM_PANEL != 0);
}

size_t gemm_weight_bytes(gemm_type type, uint32_t n, uint32_t k)
{
    size_t panel_bytes = rad_mul(depth_of(type, k), types[type].bytes);
    return rad_mul(num_panels_of(n), panel_bytes);
}

/* Before the first touch, or it comes too late. A wish; what does not fit is no loss. */
static void ask_for_huge_pages(void *data, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    uintptr_t huge = 2 << 20, begin = ((uintptr_t)data + huge - 1) & -huge;
    uintptr_t end = ((uintptr_t)data + bytes) & -huge;
    if (begin < end) madvise((void *)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)data, (void)bytes;
#endif
}

/* What nobody will set: rows behind n, and a half-filled last step of k. */
static void zero_padding(gemm_weight *w)
{
    size_t panel_bytes = w->bytes / w->num_panels, from = w->bytes;
    if (w->n % GEMM_PANEL) from -= panel_bytes;
    if (w->k % types[w->type].values) from = 0;
    memset((char *)w->data + from, 0, w->bytes - from);
}

rad_status gemm_weight_create(const rad_env *env, gemm_type type, uint32_t n, uint32_t k,
                              const gemm_isa *isa, gemm_weight **out, rad_error *err)
{
    *out = NULL;
    if (n == 0 || k == 0) return rad_fail(err, RAD_E_INVAL, "gemm: a weight of %u x %u", n, k);
    if ((unsigned)type >= GEMM_NUM_TYPES)
        return rad_fail(err, RAD_E_INVAL, "gemm: weights of type %d are unknown", (int)type);
    if (type == GEMM_Q4_K && k % types[type].values)
        return rad_fail(err, RAD_E_INVAL, "gemm: rows of %u in %s", k, types[type].name);
    rad_env full = rad_env_or_default(env);
    size_t bytes = gemm_weight_bytes(type, n, k);
    gemm_weight *w = bytes ? rad_alloc(&full, sizeof *w) : NULL;
    if (!w) goto nomem;
    *w = (gemm_weight){.env = full,
                       .isa = isa ? isa : gemm_isa_find(NULL),
                       .type = type,
                       .n = n,
                       .k = k,
                       .num_panels = num_panels_of(n),
                       .depth = depth_of(type, k),
                       .bytes = bytes};
    w->data = full.alloc(full.user, bytes);
    if (!w->data) goto nomem;
    ask_for_huge_pages(w->data, bytes);
    zero_padding(w);
    *out = w;
    return RAD_OK;

nomem:
    gemm_weight_destroy(w);
    return rad_fail(err, RAD_E_NOMEM, "gemm: no memory for a weight of %u x %u, %zu bytes", n, k,
                    bytes);
}

void gemm_weight_destroy(gemm_weight *w)
{
    if (!w) return;
    rad_env env = w->env;
    rad_free(&env, w->data, w->bytes);
    rad_free(&env, w, sizeof *w);
}

uint32_t gemm_weight_n(const gemm_weight *w)
{
    return w->n;
}
uint32_t gemm_weight_k(const gemm_weight *w)
{
    return w->k;
}

gemm_type gemm_weight_type(const gemm_weight *w)
{
    return w->type;
}

void gemm_weight_set_next(gemm_weight *w, const gemm_weight *next)
{
    w->next = next;
}

static char *panel_start(const gemm_weight *w, uint32_t panel)
{
    return (char *)w->data + (size_t)panel * w->depth * step_bytes(w);
}

/* The first element of row n: f32 elements follow at GEMM_PANEL, pairs of bf16 at
 * 2 * GEMM_PANEL. */
static void *row_start(const gemm_weight *w, uint32_t n)
{
    return panel_start(w, n / GEMM_PANEL) + n % GEMM_PANEL * sizeof(float);
}

/* `count` <= PACK_ROWS rows that lie in one panel. k is the outer loop, so that
 * whole lines are written; the rows read meanwhile are few enough to stay cached. */
static void pack_rows(gemm_weight *w, uint32_t first, uint32_t count, const float *rows, size_t ldr)
{
    if (quantised(w->type)) {
        RAD_ASSERT_ENV(&w->env, w->type == GEMM_Q8_0);
        for (uint32_t r = 0; r < count; r++)
            gemm_quant_round_row(panel_start(w, first / GEMM_PANEL), (first + r) % GEMM_PANEL, w->k,
                                 rows + r * ldr);
        return;
    }
    if (w->type == GEMM_F32) {
        float *dst = row_start(w, first);
        for (uint32_t k = 0; k < w->k; k++, dst += GEMM_PANEL)
            for (uint32_t r = 0; r < count; r++)
                dst[r] = rows[r * ldr + k];
        return;
    }
    uint16_t *dst = row_start(w, first);
    for (uint32_t k = 0; k < w->k; k += 2, dst += 2 * GEMM_PANEL)
        for (uint32_t r = 0; r < count; r++) {
            dst[2 * r] = bf16_from_f32(rows[r * ldr + k]);
            dst[2 * r + 1] = k + 1 < w->k ? bf16_from_f32(rows[r * ldr + k + 1]) : 0;
        }
}

void gemm_weight_set_rows(gemm_weight *w, uint32_t first, uint32_t count, const float *rows,
                          size_t ldr)
{
    RAD_ASSERT_ENV(&w->env, first <= w->n && count <= w->n - first);
    while (count) {
        uint32_t some = RAD_MIN(count, PACK_ROWS - first % PACK_ROWS);
        pack_rows(w, first, some, rows, ldr);
        first += some;
        count -= some;
        rows += some * ldr;
    }
}

/* Pairs of bf16 from a file's rows, as pack_rows. */
static void pack_bf16(gemm_weight *w, uint32_t first, uint32_t count, const char *from,
                      size_t pitch)
{
    uint32_t *dst = row_start(w, first);
    for (uint32_t pair = 0; pair < w->depth; pair++, dst += GEMM_PANEL, from += sizeof *dst)
        for (uint32_t r = 0; r < count; r++)
            memcpy(dst + r, from + r * pitch, sizeof *dst);
}

void gemm_weight_set_blocks(gemm_weight *w, uint32_t first, uint32_t count, const void *rows,
                            size_t pitch)
{
    RAD_ASSERT_ENV(&w->env, first <= w->n && count <= w->n - first);
    RAD_ASSERT_ENV(&w->env, w->type != GEMM_F32 && w->k % types[w->type].values == 0);
    const char *from = rows;
    while (count) {
        uint32_t some = RAD_MIN(count, PACK_ROWS - first % PACK_ROWS);
        if (w->type == GEMM_BF16)
            pack_bf16(w, first, some, from, pitch);
        else
            gemm_quant_pack(w->type, panel_start(w, first / GEMM_PANEL), first % GEMM_PANEL, some,
                            w->depth, from, pitch);
        first += some;
        count -= some;
        from += some * pitch;
    }
}

void gemm_weight_get_row(const gemm_weight *w, uint32_t n, float *row)
{
    RAD_ASSERT_ENV(&w->env, n < w->n);
    if (quantised(w->type)) {
        gemm_quant_get_row(w->type, panel_start(w, n / GEMM_PANEL), n % GEMM_PANEL, w->k, row);
        return;
    }
    if (w->type == GEMM_F32) {
        const float *src = row_start(w, n);
        for (uint32_t k = 0; k < w->k; k++)
            row[k] = src[(size_t)k * GEMM_PANEL];
        return;
    }
    const uint16_t *src = row_start(w, n);
    for (uint32_t k = 0; k < w->k; k++)
        row[k] = bf16_to_f32(src[(size_t)(k / 2) * 2 * GEMM_PANEL + k % 2]);
}

/* Bytes from one rounded row of x to the next: not a multiple of 512, lest the rows of
 * a tile compete for the same few places of the cache. */
static size_t rounded_pitch(const gemm_weight *w, gemm_type type)
{
    if (type == GEMM_F32) return 0;
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
    char *then_rounded;      /* and where */
} gemm_job;

/* `count` values of a row from column `first` on, for rows of scratch memory that begin at
 * `row`. first and count are whole steps, unless they end the row. */
static void round_part(const gemm_weight *w, const float *x, uint32_t first, uint32_t count,
                       char *row)
{
    if (quantised(w->type))
        w->isa->quant->round_row(x, count, gemm_quant_offset(w->type),
                                 (gemm_xblock *)row + first / GEMM_XBLOCK);
    else
        w->isa->round_row(x, count,
                          row + first * (w->isa->widens ? sizeof(float) : sizeof(uint16_t)));
}

void gemm_round_row(const gemm_weight *w, const float *x, uint32_t row, void *scratch)
{
    if (w->type == GEMM_F32) return; /* read as it is */
    round_part(w, x, 0, w->k, (char *)scratch + row * rounded_pitch(w, w->type));
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
    for (uint32_t r = 0; r < t->rows && !t->fresh; r++)
        memcpy(sums + r * GEMM_PANEL, t->c + r * t->ldc, columns * sizeof *sums);
    gemm_tile beside = *t;
    beside.c = sums;
    beside.ldc = GEMM_PANEL;
    kernel(&beside);
    for (uint32_t r = 0; r < t->rows; r++)
        memcpy(t->c + r * t->ldc, sums + r * GEMM_PANEL, columns * sizeof *sums);
}

/* Steps of k per chunk: as many for each, since a tile fetches as much of what comes next
 * as it reads. Two tiles alone are done with a chunk before memory is; half as large, it
 * and the next one are in the L1 cache together. */
static uint32_t chunk_depth(const gemm_weight *w, uint32_t rows)
{
    uint32_t bytes = rows <= GEMM_TILE_ROWS ? ONE_TILE_BYTES : CHUNK_BYTES;
    bool two_tiles = rows > GEMM_TILE_ROWS && rows <= 2 * GEMM_TILE_ROWS;
    if (two_tiles && !quantised(w->type)) bytes /= 2;
    uint32_t most = bytes / (uint32_t)step_bytes(w), chunks = (w->depth + most - 1) / most;
    return (w->depth + chunks - 1) / chunks;
}

/* One chunk of k of one panel for rows [begin, end): tiles of nearly equal height,
 * since low ones have too few sums in flight. Each tile prefetches its share of the
 * chunk that `next` points to. `c` is where the first of the rows goes. */
static void run_chunk(const gemm_job *job, uint32_t panel, uint32_t begin, uint32_t end, uint32_t k,
                      uint32_t depth, const char *next, float *c, size_t ldc)
{
    const gemm_weight *w = job->w;
    uint32_t columns = RAD_MIN(GEMM_PANEL, w->n - panel * GEMM_PANEL);
    uint32_t tiles = (end - begin + GEMM_TILE_ROWS - 1) / GEMM_TILE_ROWS;
    uint32_t low = (end - begin) / tiles, taller = (end - begin) % tiles;
    gemm_tile t = {.depth = depth,
                   .ldx = job->in_ld,
                   .w = panel_start(w, panel) + k * step_bytes(w),
                   .ldc = ldc,
                   .ahead_stride = step_bytes(w) / tiles,
                   .fresh = k == 0 && !job->accumulate};
    for (uint32_t tile = 0, i = begin; tile < tiles; tile++, i += t.rows) {
        t.rows = low + (tile < taller);
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
    return gated ? w->num_panels / 2 : w->num_panels;
}

/* A guess, and no more depends on it than what is fetched ahead. */
static bool probably_gated(const gemm_weight *w)
{
    return w->next && w->n == 2 * (uint64_t)w->next->k && w->next->k % GEMM_PANEL == 0;
}

/* What this thread will probably read after unit `unit`, whose number is its panel's. */
static const char *after_unit(const gemm_job *job, uint32_t unit, uint32_t thread)
{
    const gemm_weight *w = job->w, *next = w->next;
    uint32_t units = num_units(w, job->glu), threads = job->num_threads;
    if (job->num_blocks > 1) return panel_start(w, RAD_MIN(unit + threads, units - 1));
    uint32_t begin = compute_pool_near(units, threads, thread);
    uint32_t end = compute_pool_near(units, threads, thread + 1);
    if (unit < begin || unit >= end) return panel_start(w, unit ? unit - 1 : 0); /* taken over */
    if (unit + 1 < end) return panel_start(w, unit + 1);
    if (!next) return panel_start(w, begin);
    units = num_units(next, probably_gated(next));
    return panel_start(next, RAD_MIN(compute_pool_near(units, threads, thread), units - 1));
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
    w->isa->bf16_block(&t, RAD_MIN(GEMM_PANEL, w->n - panel * GEMM_PANEL));
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
        run_chunk(job, panel, begin, end, k, depth, next, c, ldc);
    }
}

static void gemm_unit(void *arg, uint32_t unit, uint32_t thread)
{
    const gemm_job *job = arg;
    uint32_t panel = unit / job->num_blocks;
    uint32_t begin = unit % job->num_blocks * job->block_rows;
    uint32_t end = RAD_MIN(job->m, begin + job->block_rows);
    run_panel(job, panel, begin, end, after_unit(job, panel, thread),
              job->out + begin * job->ldo + (size_t)panel * GEMM_PANEL, job->ldo);
}

/* One row of gates beside their ups, `count` of each from column `first` on, becomes what
 * `then` reads. */
static void glu_part(const gemm_job *job, uint32_t row, uint32_t first, uint32_t count, float *gate,
                     const float *up)
{
    const gemm_weight *then = job->then;
    job->glu(gate, up, count);
    if (then->type != GEMM_F32)
        round_part(then, gate, first, count,
                   job->then_rounded + row * rounded_pitch(then, then->type));
    else if (gate != job->out + row * job->ldo + first)
        memcpy(job->out + row * job->ldo + first, gate, count * sizeof *gate);
}

static void glu_unit(void *arg, uint32_t unit, uint32_t thread)
{
    const gemm_job *job = arg;
    _Alignas(64) float sums[BLOCK_ROWS][2][GEMM_PANEL];
    uint32_t gates = job->w->num_panels / 2, panel = unit / job->num_blocks;
    uint32_t begin = unit % job->num_blocks * job->block_rows;
    uint32_t end = RAD_MIN(job->m, begin + job->block_rows);
    run_panel(job, panel, begin, end, panel_start(job->w, panel + gates), sums[0][0],
              2 * GEMM_PANEL);
    run_panel(job, panel + gates, begin, end, after_unit(job, panel, thread), sums[0][1],
              2 * GEMM_PANEL);
    for (uint32_t i = begin; i < end; i++)
        glu_part(job, i, panel * GEMM_PANEL, GEMM_PANEL, sums[i - begin][0], sums[i - begin][1]);
}

/* The same for gates that do not fill whole panels: whole rows, once all are there. */
static void glu_rows(void *arg, uint32_t tile, uint32_t thread)
{
    const gemm_job *job = arg;
    (void)thread;
    uint32_t end = RAD_MIN(job->m, (tile + 1) * ROUND_ROWS), count = job->w->n / 2;
    for (uint32_t i = tile * ROUND_ROWS; i < end; i++) {
        float *gate = job->out + i * job->ldo;
        glu_part(job, i, 0, count, gate, gate + count);
    }
}

/* NULL: bf16_block instead. */
static gemm_kernel *find_kernel(const gemm_weight *w)
{
    switch (w->type) {
    case GEMM_F32: return w->isa->f32;
    case GEMM_BF16: return w->isa->bf16;
    case GEMM_Q8_0: return w->isa->quant->q8_0;
    case GEMM_Q4_0: return w->isa->quant->q4_0;
    default: return w->isa->quant->q4_k;
    }
}

/* What the kernels read, and how far it reaches per row and per step. */
static void find_input(gemm_job *job, void *scratch)
{
    const gemm_weight *w = job->w;
    if (w->type == GEMM_F32) {
        job->in = (const char *)job->x;
        job->in_pitch = job->ldx * sizeof *job->x;
        job->in_step = sizeof *job->x;
        job->in_ld = job->ldx;
        return;
    }
    job->in = job->rounded = scratch;
    job->in_pitch = rounded_pitch(w, w->type);
    if (quantised(w->type)) {
        job->in_step = types[w->type].values / GEMM_XBLOCK * sizeof(gemm_xblock);
        job->in_ld = job->in_pitch / sizeof(gemm_xblock);
    } else {
        job->in_step = 2 * (w->isa->widens ? sizeof(float) : sizeof(uint16_t));
        job->in_ld = job->in_pitch / 4; /* f32, or pairs of bf16 */
    }
}

static gemm_job make_job(const gemm_weight *w, const float *x, size_t ldx, uint32_t m, float *out,
                         size_t ldo, compute_pool *pool, void *scratch)
{
    gemm_job job = {.w = w,
                    .kernel = find_kernel(w),
                    .x = x,
                    .ldx = ldx,
                    .m = m,
                    .out = out,
                    .ldo = ldo,
                    .num_threads = compute_pool_num_threads(pool)};
    find_input(&job, scratch);
    /* Blocks of about equal height, whole tiles each. */
    uint32_t tile_rows = job.kernel ? GEMM_TILE_ROWS : HIGH_TILE;
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
    RAD_ASSERT_ENV(&w->env, w->n == 2 * (uint64_t)then->k);
    if (m == 0) return;
    gemm_job job = make_job(w, x, ldx, m, out, ldo, pool, scratch);
    job.then = then;
    job.then_rounded = then_scratch;
    if (then->k % GEMM_PANEL == 0) {
        job.glu = glu;
        run_units(&job, pool, glu_unit);
    } else {
        run_units(&job, pool, gemm_unit);
        job.glu = glu;
        compute_pool_run(pool, (m + ROUND_ROWS - 1) / ROUND_ROWS, glu_rows, &job);
    }
}
