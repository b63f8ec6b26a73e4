/* record_cache.c - see the header. */
#include "replay/record_cache.h"

#include <radish/retention.h>
#include <radish/session.h>

/* ---- the record's time ---- */

static uint64_t record_now(void *user)
{
    return ((const record_cache *)user)->now_us * 1000;
}

static void *clock_alloc(void *user, size_t bytes)
{
    const record_cache *c = user;
    return c->env.alloc(c->env.user, bytes);
}

static void clock_free(void *user, void *memory, size_t bytes)
{
    const record_cache *c = user;
    c->env.free(c->env.user, memory, bytes);
}

static void clock_panic(void *user, const char *message)
{
    const record_cache *c = user;
    c->env.panic(c->env.user, message);
}

/* ---- life ---- */

/* What rows must have room for: the longest request, and as many as are there at one time. */
static rad_status measure(record_reader *r, uint64_t *longest, uint64_t *most_rows, rad_error *err)
{
    record_op op;
    uint64_t running = 0, most = 0;
    rad_status status;
    while ((status = record_next(r, &op, err)) == RAD_OK) {
        const bool tells = op.kind == RECORD_ARRIVE || op.kind == RECORD_GROW ||
                           op.kind == RECORD_UNFINISHED || op.kind == RECORD_FINISHED ||
                           op.kind == RECORD_WINDOW;
        if (tells) *longest = RAD_MAX(*longest, op.field[op.kind == RECORD_ARRIVE ? 4 : 1]);
        if (op.kind == RECORD_ARRIVE) most = RAD_MAX(most, ++running);
        if (op.kind == RECORD_LEAVE && running) running--;
    }
    const record_head *h = record_get_head(r);
    *longest = RAD_MIN(*longest, h->row_tokens) + 1;
    *most_rows = RAD_MIN(most, h->max_rows) + h->max_sessions + 1;
    return status == RAD_NONE ? RAD_OK : status;
}

static rad_status make(record_cache *c, const record_head *h, uint64_t num_rows, rad_error *err)
{
    const uint32_t page_size = (uint32_t)h->page_size;
    const rad_kv_allocator_params a = {
        .struct_size = sizeof a,
        .num_pages = (uint32_t)(h->max_total_tokens / h->page_size),
        .page_size = page_size,
        .swa_num_pages = (uint32_t)(h->window_tokens / h->page_size)};
    const rad_req_to_token_pool_params r = {
        .struct_size = sizeof r, .num_rows = (uint32_t)num_rows, .row_tokens = c->room};
    rad_status status = rad_kv_allocator_create(&c->env, &a, &c->alloc, err);
    if (status == RAD_OK) status = rad_req_to_token_pool_create(&c->env, &r, &c->rows, err);
    const rad_state_pool_params states = {
        .struct_size = sizeof states, .state_bytes = 1, .num_states = (uint32_t)h->states};
    if (status == RAD_OK && h->states)
        status = rad_state_pool_create(&c->env, &states, &c->states, err);
    if (status != RAD_OK) return status;
    const rad_cache_params params = {
        .struct_size = sizeof params,
        .kind = h->chunk ? RAD_CACHE_CHUNK : RAD_CACHE_RADIX,
        .page_size = page_size,
        .kv_allocator = c->alloc,
        .req_to_token_pool = c->rows,
        .window_tokens = h->window_tokens ? (uint32_t)h->window : 0,
        .state_pool = c->states,
        .max_namespaces = (uint32_t)h->max_namespaces,
        .eviction = {(uint32_t)h->policy, (uint32_t)h->protected_threshold,
                     (uint32_t)h->cost_half_life_percent, (uint32_t)h->cost_attention_tokens},
        .max_pinned_tokens = h->max_pinned_tokens,
        .retention = (uint32_t)h->retention,
        .max_sessions = h->streaming_sessions ? 0 : (uint32_t)h->max_sessions};
    status = rad_cache_create(&c->clock, &params, &c->cache, err);
    if (status != RAD_OK || !h->streaming_sessions) return status;
    const rad_streaming_cache_params s = {
        .struct_size = sizeof s, .inner = c->cache, .max_sessions = (uint32_t)h->max_sessions};
    rad_cache *wrapper;
    status = rad_streaming_cache_create(&c->clock, &s, &wrapper, err);
    if (status == RAD_OK) c->cache = wrapper;
    return status;
}

rad_status record_cache_init(record_cache *c, const rad_env *env, const void *bytes, uint64_t size,
                             rad_error *err)
{
    record_reader *r;
    uint64_t longest = 0, num_rows = 0;
    *c = (record_cache){.env = *env, .clock = *env};
    c->clock.user = c;
    c->clock.alloc = clock_alloc;
    c->clock.free = clock_free;
    c->clock.now_ns = record_now;
    c->clock.panic = clock_panic;
    c->clock.log = NULL;
    rad_status status = record_open(env, bytes, size, &r, err);
    if (status != RAD_OK) return status;
    const record_head head = *record_get_head(r);
    status = measure(r, &longest, &num_rows, err);
    record_close(r);
    c->room = (uint32_t)longest + 1;
    return status == RAD_OK ? make(c, &head, num_rows, err) : status;
}

void record_cache_fini(record_cache *c)
{
    rad_cache_destroy(c->cache);
    rad_req_to_token_pool_destroy(c->rows);
    rad_kv_allocator_destroy(c->alloc);
    rad_state_pool_destroy(c->states);
}
