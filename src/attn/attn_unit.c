/* attn_unit.c - walks a unit's blocks, and in each its sides and tiles of rows. Units of many
 * rows may take another layout (attn_wide.c), and so may those of one token (attn_strip.c).
 *
 *     block b:   which tokens see any of it, and what (causal, window)
 *       side:    keys and values of the KV head   -> packed in the workspace
 *         tile:  six rows: attend (max, sum, values of the block), fold into the rows'
 *
 * While a block is worked on, the next one's rows are fetched, all sides of a token at a
 * time: whole rows in order are what memory likes, and a strip of heads within them is not.
 * The next of a unit's last block is the first one of the thread's next unit: many requests
 * have a block or two of their own, and would wait for each.
 *
 * Invariant (P1): attend's result for a row is a function of the row and the keys it sees,
 * and blocks are folded in ascending order. */
#include "attn/attn_plan.h"

enum { ROWS_AT_ONCE = 8 /* decoded, then some of the next block's are fetched */ };

typedef struct workspace {
    _Alignas(64) char q[ATTN_Q_BYTES];                     /* [row][attn_q_bytes] */
    _Alignas(64) float keys[ATTN_MOST_DIM * ATTN_BLOCK];   /* as the kernel loads them */
    _Alignas(64) float values[ATTN_MOST_DIM * ATTN_BLOCK]; /* likewise, or decoded rows */
    _Alignas(64) float part[ATTN_TILE_ROWS * ATTN_MOST_DIM];
    attn_scales scales;                                  /* of the block, the unit's KV heads */
    float max[ATTN_MOST_ROWS], sum[ATTN_MOST_ROWS];      /* rows' so far, [side][token][head] */
    uint32_t active[ATTN_MOST_ROWS];                     /* tokens that see any of this block */
    uint32_t begin[ATTN_MOST_ROWS], end[ATTN_MOST_ROWS]; /* what they see */
    uint32_t num_active;
    attn_walk *walk;
} workspace;

/* Where a side's rows begin in the workspace. */
static uint32_t side_row(const attn_call *call, const attn_unit *u, uint32_t side)
{
    return (side - u->side_begin) * u->num_tokens * call->heads;
}

static size_t line_of(const attn_call *call, const attn_unit *u, uint32_t token, uint32_t head)
{
    return (size_t)u->token[token] * call->layer->num_heads + head;
}

/* Calls for every row of the unit. */
typedef void row_fn(const attn_call *call, const attn_unit *u, workspace *ws, uint32_t row,
                    size_t line);

static void each_row(const attn_call *call, const attn_unit *u, workspace *ws, row_fn *fn)
{
    for (uint32_t side = u->side_begin; side < u->side_end; side++) {
        uint32_t head, heads = attn_side_heads(call, side, &head);
        uint32_t row = side_row(call, u, side);
        for (uint32_t t = 0; t < u->num_tokens; t++, row += call->heads)
            for (uint32_t h = 0; h < heads; h++)
                fn(call, u, ws, row + h, line_of(call, u, t, head + h));
    }
}

static void open_row(const attn_call *call, const attn_unit *u, workspace *ws, uint32_t row,
                     size_t line)
{
    size_t bytes = attn_q_bytes(call->kernels, call->layer->head_dim);
    attn_open_row(call, u, line, ws->q + row * bytes, &ws->max[row], &ws->sum[row]);
}

static void close_row(const attn_call *call, const attn_unit *u, workspace *ws, uint32_t row,
                      size_t line)
{
    attn_close_row(call, u, line, ws->max[row], ws->sum[row]);
}

static void look_ahead(const attn_call *call, const attn_unit *u, attn_walk *walk, uint32_t block)
{
    attn_look_ahead(call, u, block, walk->slots[!walk->turn], &walk->ahead);
    if (call->scaled) walk->ahead.sides = call->mla ? 1 : 2; /* fetch_scales has the scales */
}

/* What comes after `block`. */
static void look_behind(const attn_call *call, const attn_unit *u, attn_walk *walk, uint32_t block,
                        const attn_unit *next)
{
    walk->ready = block + 1 == u->end_block && next && next->first_block < next->end_block;
    if (walk->ready)
        look_ahead(call, next, walk, next->first_block);
    else if (block + 1 < u->end_block)
        look_ahead(call, u, walk, block + 1);
    else
        walk->ahead = (attn_ahead){.left = UINT32_MAX};
}

static bool find_active(const attn_call *call, const attn_unit *u, workspace *ws, uint32_t block)
{
    ws->num_active = 0;
    for (uint32_t t = 0; t < u->num_tokens; t++) {
        uint32_t n = ws->num_active;
        ws->active[n] = t;
        ws->num_active += attn_sees(call->layer, u->position[t], block, &ws->begin[n], &ws->end[n]);
    }
    return ws->num_active > 0;
}

/* The block's rows of a KV head as they lie in the pool, or decoded into ws->values. */
static attn_rows_at rows_at(const attn_call *call, workspace *ws, attn_kv_side side,
                            uint32_t kv_head, const rad_slot *slots)
{
    const attn_kv_plane *p = &call->kv.plane[side];
    if (!call->decoded) return (attn_rows_at){p->base + kv_head * p->head_bytes, slots, p->stride};
    uint32_t lines = ROWS_AT_ONCE * attn_lines_of(p->head_bytes) / (p->scales ? 1 : 2);
    for (uint32_t j = 0; j < ATTN_BLOCK; j += ROWS_AT_ONCE) {
        attn_ahead_fetch(&ws->walk->ahead, lines);
        attn_kv_read_rows(&call->kv, side, slots, j, ROWS_AT_ONCE, kv_head,
                          ws->values + (size_t)j * p->dim);
    }
    return (attn_rows_at){(const char *)ws->values, attn_in_order, p->dim * sizeof(float)};
}

/* Keys and values as bf16. MLA's rows are read once: its values are their beginning. They wait
 * in the half of `keys` that pairs leave free. */
static void load_code_side(const attn_call *call, workspace *ws, uint32_t kv_head,
                           const rad_slot *slots)
{
    const uint32_t dim = call->layer->head_dim, dtype = call->kv.dtype;
    attn_ahead *ahead = &ws->walk->ahead;
    const size_t ld = (dim + 31) & ~(size_t)31;
    if (call->mla) {
        uint16_t *rows = (uint16_t *)(ws->keys + ATTN_MOST_DIM / 2 * ATTN_BLOCK);
        attn_rows_of_codes(call, ATTN_K, slots, kv_head, rows, ld);
        attn_rows_at at = {(const char *)rows, attn_in_order, ld * sizeof *rows};
        call->kernels->load_keys(&at, dim, ws->keys, ahead);
        call->kernels->load_values(&at, call->v_dim, ws->values, ahead);
    } else {
        kv_rows keys = attn_kv_rows(&call->kv, ATTN_K, slots, kv_head);
        kv_rows values = attn_kv_rows(&call->kv, ATTN_V, slots, kv_head);
        call->codes->load_keys(dtype, &keys, dim, ws->keys, ahead);
        call->codes->load_values(dtype, &values, call->v_dim, ws->values, ahead);
    }
}

static void load_keys(const attn_call *call, workspace *ws, uint32_t kv_head, const rad_slot *slots)
{
    attn_ahead none = {.left = UINT32_MAX};
    if (call->decoded && call->kernels->load_codes && attn_kv_has_one_scale(&call->kv, ATTN_K)) {
        kv_rows codes = attn_kv_rows(&call->kv, ATTN_K, slots, kv_head);
        if (call->kernels->load_codes(call->kv.dtype, &codes, call->layer->head_dim, ws->keys,
                                      &ws->walk->ahead))
            return;
    }
    attn_rows_at keys = rows_at(call, ws, ATTN_K, kv_head, slots);
    call->kernels->load_keys(&keys, call->layer->head_dim, ws->keys,
                             call->decoded ? &none : &ws->walk->ahead);
}

/* Keys transposed, then values, of a KV head. */
static attn_rows_at load_side(const attn_call *call, workspace *ws, uint32_t kv_head,
                              const rad_slot *slots)
{
    if (call->codes) {
        load_code_side(call, ws, kv_head, slots);
        return (attn_rows_at){0}; /* read from where they were loaded */
    }
    load_keys(call, ws, kv_head, slots);
    attn_rows_at values = rows_at(call, ws, ATTN_V, kv_head, slots);
    if (call->kernels->load_values)
        call->kernels->load_values(&values, call->v_dim, ws->values, &ws->walk->ahead);
    return values;
}

static void fold_tile(const attn_call *call, workspace *ws, const attn_tile *tile,
                      const uint32_t *row, const size_t *line)
{
    float max[ATTN_FOLD_ROWS] = {0}, sum[ATTN_FOLD_ROWS] = {0};
    float scale[ATTN_FOLD_ROWS], block_scale[ATTN_FOLD_ROWS];
    for (uint32_t i = 0; i < tile->rows; i++) {
        max[i] = ws->max[row[i]];
        sum[i] = ws->sum[row[i]];
    }
    call->kernels->fold(max, sum, tile->max, tile->sum, scale, block_scale);
    for (uint32_t i = 0; i < tile->rows; i++) {
        ws->max[row[i]] = max[i];
        ws->sum[row[i]] = sum[i];
        call->kernels->merge(call->v_dim, call->out + line[i] * call->v_dim, scale[i],
                             tile->part + i * tile->part_ld, block_scale[i]);
    }
}

/* A part of the scales that the next block has, between two sides of this one. */
static void fetch_scales(const attn_call *call, const attn_unit *u, const attn_ahead *next,
                         uint32_t side)
{
    const uint32_t parts = u->side_end - u->side_begin, part = side - u->side_begin;
    attn_fetch_scales(call, u, next->slots, next->count * part / parts,
                      next->count * (part + 1) / parts);
}

/* The active tokens' rows of a side whose keys and values are loaded. */
static void run_side(const attn_call *call, const attn_unit *u, workspace *ws, uint32_t side,
                     uint32_t block, const attn_rows_at *values)
{
    uint32_t head, heads = attn_side_heads(call, side, &head), first_row = side_row(call, u, side);
    uint32_t head_of_unit = side / call->parts - u->side_begin / call->parts;
    size_t q_bytes = attn_q_bytes(call->kernels, call->layer->head_dim);
    attn_tile tile = {.dim = call->layer->head_dim,
                      .v_dim = call->v_dim,
                      .keys = ws->keys,
                      .values = ws->values,
                      .values_at = values,
                      .ahead = &ws->walk->ahead,
                      .ahead_bytes = call->decoded ? kv_dtype_bytes(call->kv.dtype) / 2
                                                   : kv_dtype_bytes(call->kv.dtype),
                      .scaling = call->layer->scaling,
                      .logit_cap = call->layer->logit_cap,
                      .part = ws->part,
                      .part_ld = (call->v_dim + 15) & ~15u};
    uint32_t count = ws->num_active * heads, tiles = (count + ATTN_TILE_ROWS - 1) / ATTN_TILE_ROWS;
    uint32_t low = count / tiles, taller = count % tiles, a = 0, h = 0;
    for (uint32_t n = 0; n < tiles; n++) {
        uint32_t row[ATTN_TILE_ROWS];
        size_t line[ATTN_TILE_ROWS];
        tile.rows = low + (n < taller);
        for (uint32_t i = 0; i < tile.rows; i++) {
            uint32_t t = ws->active[a];
            row[i] = first_row + t * call->heads + h;
            line[i] = line_of(call, u, t, head + h);
            tile.q[i] = ws->q + row[i] * q_bytes;
            if (call->scaled) {
                tile.key_scales[i] = ws->scales.of[ATTN_K][head_of_unit];
                tile.value_scales[i] = ws->scales.of[ATTN_V][head_of_unit];
            }
            tile.begin[i] = ws->begin[a];
            tile.end[i] = ws->end[a];
            if (++h == heads) h = 0, a++;
        }
        call->kernels->attend(&tile);
        tile.ahead = NULL; /* fetched once is enough */
        if (!u->partials) {
            fold_tile(call, ws, &tile, row, line);
            continue;
        }
        for (uint32_t i = 0; i < tile.rows; i++)
            attn_store_partial(call, u, line[i], block, tile.max[i], tile.sum[i],
                               tile.part + i * tile.part_ld);
    }
}

static __attribute__((noinline)) void run_narrow(const attn_call *call, const attn_unit *u,
                                                 attn_walk *walk, const attn_unit *next)
{
    workspace ws;
    ws.walk = walk;
    each_row(call, u, &ws, open_row);
    if (next) attn_fetch_slots(next, next->first_block);
    if (u->first_block < u->end_block) {
        if (!walk->ready) look_ahead(call, u, walk, u->first_block);
        while (walk->ahead.step)
            attn_ahead_fetch(&walk->ahead, 1);
    }
    for (uint32_t block = u->first_block; block < u->end_block; block++) {
        walk->turn = !walk->turn;
        look_behind(call, u, walk, block, next);
        if (!find_active(call, u, &ws, block)) continue;
        uint32_t loaded = UINT32_MAX, first = u->side_begin / call->parts;
        attn_rows_at values;
        if (call->scaled)
            attn_scales_of(call, walk->slots[walk->turn], first,
                           (u->side_end - 1) / call->parts + 1 - first, &ws.scales);
        for (uint32_t side = u->side_begin; side < u->side_end; side++) {
            if (call->scaled) fetch_scales(call, u, &walk->ahead, side);
            if (side / call->parts != loaded) {
                loaded = side / call->parts;
                values = load_side(call, &ws, loaded, walk->slots[walk->turn]);
            }
            run_side(call, u, &ws, side, block, &values);
        }
    }
    if (!u->partials) each_row(call, u, &ws, close_row);
}

void attn_unit_run(const attn_call *call, const attn_unit *u, attn_walk *walk,
                   const attn_unit *next)
{
    if (attn_wide_takes(call, u)) {
        walk->ready = false;
        attn_wide_run(call, u);
    } else if (attn_strip_takes(call, u)) {
        walk->ready = false;
        attn_strip_run(call, u, next);
    } else {
        run_narrow(call, u, walk, next);
    }
}

void attn_merge_partials(const attn_call *call, const attn_partials *partials, uint32_t position,
                         size_t line, uint32_t rows, uint32_t first, uint32_t end)
{
    float max[ATTN_FOLD_ROWS] = {0}, sum[ATTN_FOLD_ROWS] = {0};
    float block_max[ATTN_FOLD_ROWS] = {0}, block_sum[ATTN_FOLD_ROWS] = {0};
    float scale[ATTN_FOLD_ROWS], block_scale[ATTN_FOLD_ROWS];
    for (uint32_t i = 0; i < rows; i++) {
        max[i] = call->states[2 * (line + i)];
        sum[i] = call->states[2 * (line + i) + 1];
    }
    for (uint32_t b = first; b < end; b++) {
        uint32_t unused[2];
        if (!attn_sees(call->layer, position, b, &unused[0], &unused[1])) continue;
        for (uint32_t i = 0; i < rows; i++) {
            const float *from = attn_partial(partials, call->v_dim, line + i, b);
            block_max[i] = from[0];
            block_sum[i] = from[1];
        }
        call->kernels->fold(max, sum, block_max, block_sum, scale, block_scale);
        for (uint32_t i = 0; i < rows; i++)
            call->kernels->merge(call->v_dim, call->out + (line + i) * call->v_dim, scale[i],
                                 attn_partial(partials, call->v_dim, line + i, b) + 2,
                                 block_scale[i]);
    }
    for (uint32_t i = 0; i < rows; i++) {
        call->states[2 * (line + i)] = max[i];
        call->states[2 * (line + i) + 1] = sum[i];
    }
}
