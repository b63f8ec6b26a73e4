/* attn_cpu.c - attention over the paged pool, block by block of 64 positions, spread over
 * threads.
 *
 * Arithmetic. One per store dtype and CPU (attn_kernels.h), the same in prefill, in decode
 * and in groups: a bf16 pool, and one of fp8 or int8 (attn_codes.h), uses `tiles` on a CPU with
 * AMX, `pairs` on one with AVX512_BF16; everything else uses `chain`. A block gives each row (max,
 * sum, weighted V); blocks are folded in ascending order. So how the work is cut never shows in a
 * bit (P1):
 *
 *     a request's new tokens   -> chunks of up to 192 rows per KV head, 384 where rows lie
 *                                 in the lanes (attn_wide.h)
 *     its KV heads             -> one by one for many rows (arithmetic bound), strips of
 *                                 neighbours for few (memory bound: whole token rows)
 *     groups (forward_batch.h) -> the members' rows together over the slots they share
 *
 * With groups the passes follow each other; a row's state waits in `states` and `out`:
 *
 *     level 0:   [root group: all members, blocks 0..31]
 *     level 1:   [child A, blocks 32..47]   [child B, blocks 32..39]
 *     private:   what is left of each request
 *
 * Without groups, few rows over long contexts (decoding a few requests) are spread over
 * threads by blocks too (attn_waves.c). */
#include "attn/attn_amx.h"
#include "attn/attn_plan.h"
#include "base/amx.h"
#include "base/cpu.h"

#include <math.h>

enum {
    CHUNK_ROWS = 192,                 /* of a side: enough to pay for packing keys and values */
    WIDE_CHUNK_ROWS = 384,            /* where a row costs less */
    LEAST_CHUNK_ROWS = 48,            /* when threads would have nothing to do */
    FEW_ROWS = 12,                    /* of a side: up to so many, memory is the limit */
    MOST_REQS = ATTN_MOST_GROUP_REQS, /* planned at a time */
    MOST_GROUPS = 1024,               /* further ones are not looked at */
    STATE_LINES = 64 << 10            /* rows of a batch with groups */
};

/* Private parts of requests [first_req, first_req + num_reqs). */
typedef struct attn_pass {
    const attn_call *call;
    uint32_t first_req, num_reqs;
    uint32_t sides;                          /* of a unit, for requests of few rows */
    uint32_t tokens;                         /* of a chunk */
    bool final;                              /* results, not states */
    uint32_t from[MOST_REQS], to[MOST_REQS]; /* blocks */
    bool started[MOST_REQS];                 /* some blocks are done */
    uint32_t first_unit[MOST_REQS + 1];
    bool near;        /* a thread's units follow each other: */
    attn_walks walks; /* so the next one is known */
} attn_pass;

/* The largest i < count with first_unit[i] <= unit. */
static uint32_t owner_of(const uint32_t *first_unit, uint32_t count, uint32_t unit)
{
    uint32_t low = 0, high = count;
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (first_unit[mid] <= unit)
            low = mid;
        else
            high = mid;
    }
    return low;
}

static bool has_few_rows(const attn_pass *pass, uint32_t fresh)
{
    return fresh * pass->call->heads <= FEW_ROWS;
}

static uint32_t chunk_tokens(const attn_call *call, uint32_t rows)
{
    return RAD_MAX(1, RAD_MIN(rows, call->most_rows) / call->heads);
}

static uint32_t sides_of(const attn_pass *pass, uint32_t fresh)
{
    return has_few_rows(pass, fresh) ? pass->sides : 1;
}

/* Numbers the units; 0 for a request whose range is empty, unless its result is wanted. */
static uint32_t number_units(attn_pass *pass)
{
    const attn_call *call = pass->call;
    uint32_t units = 0, tokens = pass->tokens;
    for (uint32_t i = 0; i < pass->num_reqs; i++) {
        uint32_t fresh = call->batch->extend_seq_lens[pass->first_req + i];
        pass->first_unit[i] = units;
        if (pass->final || pass->from[i] < pass->to[i])
            units += attn_div_up(fresh, tokens) *
                     attn_div_up(call->num_sides, sides_of(pass, fresh));
    }
    pass->first_unit[pass->num_reqs] = units;
    return units;
}

/* Unit `index` but for its tokens; the first of them, and how many. */
static uint32_t private_range(const attn_pass *pass, uint32_t index, attn_unit *u)
{
    const attn_call *call = pass->call;
    const forward_batch *batch = call->batch;
    uint32_t i = owner_of(pass->first_unit, pass->num_reqs, index), request = pass->first_req + i;
    uint32_t fresh = batch->extend_seq_lens[request], sides = sides_of(pass, fresh);
    uint32_t strips = attn_div_up(call->num_sides, sides), tokens = pass->tokens;
    /* Units of a request: chunk by chunk, and within a chunk strip by strip of KV heads. So units
     * that follow each other read the same slots. */
    uint32_t at = index - pass->first_unit[i];
    /* Long contexts (the last chunks) come first, so that short ones fill the end. */
    uint32_t begin = (attn_div_up(fresh, tokens) - 1 - at / strips) * tokens;
    uint32_t position = batch->extend_prefix_lens[request] + begin;
    u->num_tokens = RAD_MIN(fresh - begin, tokens);
    u->slots = rad_req_to_token_row(batch->req_to_token_pool, batch->req_pool_indices[request]);
    u->num_slots = position + u->num_tokens; /* what the chunk's last token sees, itself included */
    /* Groups have done the blocks before `from`; the window of the first token begins the rest. */
    u->first_block = RAD_MAX(pass->from[i], attn_first_key(call->layer, position) / ATTN_BLOCK);
    u->end_block = RAD_MIN(pass->to[i], attn_end_block(u->num_slots));
    u->side_begin = at % strips * sides;
    u->side_end = RAD_MIN(u->side_begin + sides, call->num_sides);
    u->first = !pass->started[i]; /* else it goes on from the states of the pass before */
    u->last = pass->final;
    u->partials = NULL;
    u->position[0] = position;
    return batch->extend_start_loc[request] + begin;
}

static void private_unit(void *arg, uint32_t index, uint32_t thread)
{
    attn_pass *pass = arg;
    attn_unit u, next;
    attn_walk alone = {.ready = false}, *walk = &alone;
    uint32_t token = private_range(pass, index, &u), then = pass->first_unit[pass->num_reqs];
    for (uint32_t t = 0; t < u.num_tokens; t++) {
        u.token[t] = token + t;
        u.position[t] = u.position[0] + t;
    }
    if (pass->near) walk = attn_walk_at(&pass->walks, index, thread, &alone, &then);
    const bool more = then < pass->first_unit[pass->num_reqs];
    if (more) private_range(pass, then, &next);
    attn_unit_run(pass->call, &u, walk, more ? &next : NULL);
}

static void run_pass(attn_pass *pass, compute_pool *pool)
{
    /* Whole strips read memory best; but every thread should have some of them. */
    const attn_call *call = pass->call;
    uint32_t threads = compute_pool_num_threads(pool);
    pass->sides = attn_unit_sides(call, RAD_MAX(FEW_ROWS, call->heads));
    uint32_t rows = call->kernels->wide ? WIDE_CHUNK_ROWS : CHUNK_ROWS;
    pass->tokens = chunk_tokens(call, rows);
    uint32_t units = number_units(pass);
    while (threads > 1 && units < 4 * threads && (pass->sides > 1 || rows > LEAST_CHUNK_ROWS)) {
        pass->sides = attn_div_up(pass->sides, 2);
        rows = RAD_MAX(rows / 2, LEAST_CHUNK_ROWS);
        pass->tokens = chunk_tokens(call, rows);
        units = number_units(pass);
    }
    pass->near = true;
    for (uint32_t i = 0; i < pass->num_reqs; i++) /* else the long ones come first */
        pass->near &= has_few_rows(pass, call->batch->extend_seq_lens[pass->first_req + i]);
    attn_walks_begin(&pass->walks, units, threads);
    if (pass->near)
        compute_pool_run_near(pool, units, private_unit, pass);
    else
        compute_pool_run(pool, units, private_unit, pass);
}

static void plain_pass(attn_pass *pass, compute_pool *pool)
{
    const forward_batch *batch = pass->call->batch;
    pass->final = true;
    for (uint32_t r = 0; r < batch->num_reqs; r += pass->num_reqs) {
        pass->first_req = r;
        pass->num_reqs = RAD_MIN(batch->num_reqs - r, MOST_REQS);
        for (uint32_t i = 0; i < pass->num_reqs; i++) {
            pass->from[i] = 0;
            pass->to[i] = attn_end_block(batch->seq_lens[r + i]);
            pass->started[i] = false;
        }
        run_pass(pass, pool);
    }
}

/* The groups of one level: no two have a member in common. */
typedef struct attn_level {
    const attn_call *call;
    uint32_t num_groups;
    uint32_t group[MOST_GROUPS];
    uint32_t tokens[MOST_GROUPS]; /* of a unit */
    uint32_t first_unit[MOST_GROUPS + 1];
} attn_level;

static uint32_t group_tokens(const forward_batch *batch, const forward_group *g)
{
    uint32_t tokens = 0;
    for (uint32_t m = 0; m < g->count; m++)
        tokens += batch->extend_seq_lens[batch->group_reqs[g->first + m]];
    return tokens;
}

static void group_unit(void *arg, uint32_t index, uint32_t thread)
{
    const attn_level *level = arg;
    const attn_call *call = level->call;
    const forward_batch *batch = call->batch;
    uint32_t i = owner_of(level->first_unit, level->num_groups, index);
    const forward_group *g = &batch->groups[level->group[i]];
    uint32_t at = index - level->first_unit[i], tokens = level->tokens[i];
    uint32_t skip = at / call->num_sides * tokens;
    uint32_t first_key = UINT32_MAX, reader = 0;
    (void)thread;

    attn_unit u;
    u.num_tokens = 0;
    u.first = g->begin == 0; /* else all members have blocks before it */
    for (uint32_t m = 0; m < g->count && u.num_tokens < tokens; m++) {
        uint32_t request = batch->group_reqs[g->first + m];
        uint32_t fresh = batch->extend_seq_lens[request], t = RAD_MIN(skip, fresh);
        skip -= t;
        for (; t < fresh && u.num_tokens < tokens; t++, u.num_tokens++) {
            uint32_t position = batch->extend_prefix_lens[request] + t;
            u.token[u.num_tokens] = batch->extend_start_loc[request] + t;
            u.position[u.num_tokens] = position;
            uint32_t first = attn_first_key(call->layer, position);
            if (first < first_key) reader = request;
            first_key = RAD_MIN(first_key, first);
        }
    }
    /* All members have the same slots here, but in window memory each only where it sees: the row
     * of the token that sees furthest back has them all. */
    u.slots = rad_req_to_token_row(batch->req_to_token_pool, batch->req_pool_indices[reader]);
    u.num_slots = g->end;
    u.first_block = RAD_MAX(g->begin, first_key) / ATTN_BLOCK;
    u.end_block = g->end / ATTN_BLOCK;
    u.side_begin = at % call->num_sides;
    u.side_end = u.side_begin + 1;
    u.last = false;
    u.partials = NULL;
    attn_walk walk = {.ready = false};
    attn_unit_run(call, &u, &walk, NULL);
}

/* One unit per side reads a block once; more only where rows do not fit, or where threads
 * would have nothing to do. */
static void run_level(attn_level *level, compute_pool *pool)
{
    const attn_call *call = level->call;
    const forward_batch *batch = call->batch;
    uint32_t most = call->most_rows / call->heads, units = 0;
    uint32_t threads = compute_pool_num_threads(pool);
    uint32_t slices = attn_div_up(threads, level->num_groups * call->num_sides);
    for (uint32_t i = 0; i < level->num_groups; i++) {
        uint32_t all = group_tokens(batch, &batch->groups[level->group[i]]);
        level->first_unit[i] = units;
        level->tokens[i] = attn_div_up(all, RAD_MAX(slices, attn_div_up(all, most)));
        units += attn_div_up(all, level->tokens[i]) * call->num_sides;
    }
    level->first_unit[level->num_groups] = units;
    compute_pool_run(pool, units, group_unit, level);
}

/* The members' private blocks before the level's groups, mostly none; then the groups. */
static void level_pass(attn_pass *pass, attn_level *level, compute_pool *pool)
{
    const forward_batch *batch = level->call->batch;
    bool gap = false;
    for (uint32_t i = 0; i < pass->num_reqs; i++)
        pass->to[i] = pass->from[i];
    for (uint32_t i = 0; i < level->num_groups; i++) {
        const forward_group *g = &batch->groups[level->group[i]];
        for (uint32_t m = 0; m < g->count; m++) {
            uint32_t r = batch->group_reqs[g->first + m];
            pass->to[r] = g->begin / ATTN_BLOCK;
            gap |= pass->from[r] < pass->to[r];
        }
    }
    if (gap) {
        run_pass(pass, pool);
        for (uint32_t i = 0; i < pass->num_reqs; i++)
            pass->started[i] |= pass->from[i] < pass->to[i];
    }
    run_level(level, pool);
    for (uint32_t i = 0; i < level->num_groups; i++) {
        const forward_group *g = &batch->groups[level->group[i]];
        for (uint32_t m = 0; m < g->count; m++) {
            uint32_t r = batch->group_reqs[g->first + m];
            pass->from[r] = g->end / ATTN_BLOCK;
            pass->started[r] = true;
        }
    }
}

/* How deep each group lies: how many groups of its members come before it. */
static uint32_t find_levels(const forward_batch *batch, uint32_t num_groups, uint32_t *level_of)
{
    uint32_t depth[MOST_REQS] = {0}, levels = 0;
    for (uint32_t i = 0; i < num_groups; i++) {
        const forward_group *g = &batch->groups[i];
        uint32_t level = 0;
        for (uint32_t m = 0; m < g->count; m++)
            level = RAD_MAX(level, depth[batch->group_reqs[g->first + m]]);
        level_of[i] = level;
        for (uint32_t m = 0; m < g->count; m++)
            depth[batch->group_reqs[g->first + m]] = level + 1;
        levels = RAD_MAX(levels, level + 1);
    }
    return levels;
}

__attribute__((noinline)) static void grouped_passes(attn_call *call, attn_pass *pass,
                                                     compute_pool *pool)
{
    const forward_batch *batch = call->batch;
    float states[2 * STATE_LINES];
    uint32_t level_of[MOST_GROUPS], num_groups = RAD_MIN(batch->num_groups, MOST_GROUPS);
    uint32_t levels = find_levels(batch, num_groups, level_of);
    call->states = states;
    pass->num_reqs = batch->num_reqs;
    for (uint32_t i = 0; i < pass->num_reqs; i++) {
        pass->from[i] = 0;
        pass->started[i] = false;
    }
    for (uint32_t l = 0; l < levels; l++) {
        attn_level level = {.call = call};
        for (uint32_t i = 0; i < num_groups; i++)
            if (level_of[i] == l) level.group[level.num_groups++] = i;
        level_pass(pass, &level, pool);
    }
    for (uint32_t i = 0; i < pass->num_reqs; i++)
        pass->to[i] = attn_end_block(batch->seq_lens[i]);
    pass->final = true;
    run_pass(pass, pool);
}

/* Groups pay when their units can keep the threads busy, and fit into the plan's tables. */
static bool takes_groups(const attn_call *call, uint32_t threads)
{
    const forward_batch *batch = call->batch;
    return batch->num_groups > 0 && batch->num_reqs <= MOST_REQS &&
           call->num_sides * 2 >= threads &&
           (size_t)batch->num_tokens * call->layer->num_heads <= STATE_LINES;
}

void attn_cpu_forward(const attn_backend *self, const radix_attention *layer,
                      const forward_batch *batch, const float *q, float *out, compute_pool *pool)
{
    if (batch->num_tokens == 0) return;
    const attn_cpu_backend *b = (const attn_cpu_backend *)self;
    const rad_token_to_kv_pool_params *kv = rad_kv_pool_params(batch->token_to_kv_pool);
    const attn_kernels *kernels = &b->isa->f32;
    const attn_codes *codes = NULL;
    if (b->bf16 && attn_codes_take(kv, layer->layer_id)) codes = attn_codes_of_cpu();
    if (kv->dtype == RAD_BF16 || codes) kernels = b->bf16 ? b->bf16 : &b->isa->bf16;
    attn_call call = attn_call_of(kernels, codes, layer, batch, q, out);
    bool grouped = takes_groups(&call, compute_pool_num_threads(pool));
    forward_batch_count_reads(batch, attn_window(layer),
                              grouped ? RAD_MIN(batch->num_groups, MOST_GROUPS) : 0,
                              call.kv.token_bytes);
    attn_pass pass;
    pass.call = &call;
    pass.first_req = 0;
    pass.final = false;
    if (grouped)
        grouped_passes(&call, &pass, pool);
    else if (!attn_forward_waves(&call, pool))
        plain_pass(&pass, pool);
}

static bool amx_usable(const char **why)
{
    *why = NULL;
    return attn_tiles_amx.attend && amx_permitted(why);
}

static bool usable(const attn_cpu_backend *b)
{
    const char *why;
    if (!b->isa->f32.attend) return false; /* compiled for another architecture */
    if (b->isa == &attn_isa_scalar) return true;
    if (b->isa == &attn_isa_avx2) return cpu_has(CPU_AVX2);
    if (b->isa == &attn_isa_neon) return cpu_has(CPU_NEON);
    if (!b->bf16) return cpu_has(CPU_AVX512);
    return b->bf16->attend && cpu_has(CPU_AVX512BF16) &&
           (b->bf16 != &attn_tiles_amx || amx_usable(&why));
}

const attn_backend *attn_cpu(const char *isa)
{
    static const attn_cpu_backend best_first[] = {
        {{"cpu-amx", attn_cpu_forward}, &attn_isa_avx512, &attn_tiles_amx, "cpu-amx-codes"},
        {{"cpu-avx512bf16", attn_cpu_forward},
         &attn_isa_avx512,
         &attn_pairs_avx512bf16,
         "cpu-avx512bf16-codes"},
        {{"cpu-avx512", attn_cpu_forward}, &attn_isa_avx512, NULL, NULL},
        {{"cpu-avx2", attn_cpu_forward}, &attn_isa_avx2, NULL, NULL},
        {{"cpu-neon", attn_cpu_forward}, &attn_isa_neon, NULL, NULL},
        {{"cpu-scalar", attn_cpu_forward}, &attn_isa_scalar, NULL, NULL},
    };
    for (size_t i = 0; i < RAD_COUNT(best_first); i++) {
        const attn_cpu_backend *b = &best_first[i];
        if ((!isa || strcmp(isa, b->base.name + strlen("cpu-")) == 0) && usable(b)) return &b->base;
    }
    return NULL;
}

const char *attn_name(const attn_backend *backend, uint32_t kv_dtype)
{
    if (backend->forward != attn_cpu_forward) return backend->name;
    const attn_cpu_backend *b = (const attn_cpu_backend *)backend;
    bool narrow = kv_dtype == RAD_I8 || kv_dtype_is_fp8(kv_dtype);
    return narrow && b->bf16 && attn_codes_of_cpu() ? b->name_of_codes : backend->name;
}

const char *attn_amx_refusal(void)
{
    const char *why = NULL;
    if (!cpu_has(CPU_AVX512BF16)) return NULL; /* the rest of the kernel needs it */
    return amx_usable(&why) ? NULL : why;
}
