/* record_cache.c - see the header. */
#include "replay/record_cache.h"

#include "hicache/completion.h"
#include "mem/host_kv_pool.h"

#include <radish/hicache.h>
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

/* ---- a host tier ---- */

/* Pools of numbers that nobody reads: a token is 2 bytes. */
static rad_status make_host(record_cache *c, const record_head *h, rad_error *err)
{
    const rad_token_to_kv_pool_params device = {.struct_size = sizeof device,
                                                .num_pages = c->num_pages,
                                                .page_size = (uint32_t)h->page_size,
                                                .num_layers = 1,
                                                .num_kv_heads = 1,
                                                .head_dim = 1,
                                                .dtype = RAD_F8_E5M2};
    rad_host_kv_pool_params host = {.struct_size = sizeof host};
    const uint64_t pages = h->host_tokens / h->page_size;
    if (!pages || pages > INT32_MAX / h->page_size)
        return rad_fail(err, RAD_E_FORMAT, "its head says host_tokens=%llu",
                        (unsigned long long)h->host_tokens);
    rad_status status = rad_token_to_kv_pool_create(&c->env, &device, &c->numbers, err);
    if (status != RAD_OK) return status;
    host.device_pool = c->numbers;
    host.bytes = (pages + 1) * h->page_size * 2; /* and a dummy page */
    status = rad_host_kv_pool_create(&c->env, &host, &c->host, err);
    if (status == RAD_OK && host_kv_pool_num_pages(c->host) != pages)
        return rad_fail(err, RAD_E_FORMAT, "a host tier of %llu pages cannot be made",
                        (unsigned long long)pages);
    if (status != RAD_OK) return status;
    c->kept = rad_alloc(&c->env, rad_mul(c->num_pages, sizeof *c->kept));
    return c->kept ? RAD_OK : rad_fail(err, RAD_E_NOMEM, "no memory for %u pages", c->num_pages);
}

static rad_status make_tiers(record_cache *c, const record_head *h, const rad_cache_params *tree,
                             rad_error *err)
{
    /* Of a server that could attach a store, pages are hashed. */
    const rad_storage_identity identity = {.struct_size = sizeof identity, .model = "a replay"};
    const rad_hicache_params p = {.struct_size = sizeof p,
                                  .cache = tree,
                                  .host_pool = c->host,
                                  .write_policy = (uint32_t)h->write_policy,
                                  .load_back_threshold = (uint32_t)h->load_back_threshold,
                                  .max_transfers = (uint32_t)h->max_transfers,
                                  .demote_tokens = h->demote_tokens,
                                  .prefetch_tokens = h->prefetch_tokens,
                                  .host_max_pinned_tokens = h->host_max_pinned_tokens,
                                  .host_eviction = {(uint32_t)h->host_policy,
                                                    (uint32_t)h->host_protected_threshold,
                                                    (uint32_t)h->host_cost_half_life_percent,
                                                    (uint32_t)h->host_cost_attention_tokens},
                                  .deterministic = 1,
                                  .identity = &identity};
    rad_status status = rad_hicache_create(&c->clock, &p, &c->cache, err);
    if (status != RAD_OK) return status;
    c->tiers = c->cache;
    status = hi_begin_script(c->tiers);
    return status ? rad_fail(err, status, "no memory for transfers") : RAD_OK;
}

bool record_cache_keep(record_cache *c, uint64_t free_pages)
{
    const uint32_t have = rad_kv_available_pages(c->alloc);
    if (have > free_pages) {
        const uint32_t more = (uint32_t)(have - free_pages);
        if (rad_kv_alloc(c->alloc, c->kept + c->num_kept, more) != RAD_OK) return false;
        c->num_kept += more;
        return true;
    }
    record_cache_make_room(c, (uint32_t)RAD_MIN(free_pages, (uint64_t)c->num_pages));
    return rad_kv_available_pages(c->alloc) == free_pages;
}

void record_cache_make_room(record_cache *c, uint32_t count)
{
    const uint32_t have = rad_kv_available_pages(c->alloc);
    const uint32_t fewer = have < count ? RAD_MIN(count - have, c->num_kept) : 0;
    if (!fewer) return;
    c->num_kept -= fewer;
    (void)rad_kv_free(c->alloc, c->kept + c->num_kept, fewer, NULL);
}

/* ---- the whole ---- */

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
    c->num_pages = a.num_pages;
    /* Windows and states of a tier are not replayed: then there is only the device. */
    const bool tiers = h->host_tokens && !h->window_tokens && !h->states && !h->chunk;
    rad_status status = rad_kv_allocator_create(&c->env, &a, &c->alloc, err);
    if (status == RAD_OK) status = rad_req_to_token_pool_create(&c->env, &r, &c->rows, err);
    const rad_state_pool_params states = {
        .struct_size = sizeof states, .state_bytes = 1, .num_states = (uint32_t)h->states};
    if (status == RAD_OK && h->states)
        status = rad_state_pool_create(&c->env, &states, &c->states, err);
    if (status == RAD_OK && tiers) status = make_host(c, h, err);
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
    status = tiers ? make_tiers(c, h, &params, err)
                   : rad_cache_create(&c->clock, &params, &c->cache, err);
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
    rad_host_kv_pool_destroy(c->host);
    rad_token_to_kv_pool_destroy(c->numbers);
    rad_free(&c->env, c->kept, c->num_pages * sizeof *c->kept);
    rad_req_to_token_pool_destroy(c->rows);
    rad_kv_allocator_destroy(c->alloc);
    rad_state_pool_destroy(c->states);
}
