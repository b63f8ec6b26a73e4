/* bench_owner.c - what a prompt costs the thread that owns a cache with a host tier: the CPU time
 * of its calls alone, without the copies, which are the workers'.
 *
 *     bench_owner [TOKENS [PAGE_SIZE [ROW]]]     32768, pages of 1 and of 16, all rows
 *
 *     once      published in one piece, written through to the host
 *     chunks    in chunks of 2,048 tokens, as a scheduler computes it
 *     turns     in eight turns of a chat, each a request of its own
 *     store     as turns, with a store that takes everything: hashes of pages, too
 *     evict     the device loses it, 64 tokens at a time; the host has it
 *     load      it comes back from the host
 *
 * K/V is a few bytes a token, so that a prompt of any length fits. For instructions rather than
 * time: valgrind --tool=callgrind --separate-threads=yes --collect-atstart=no with
 * --toggle-collect='call_*', for load --toggle-collect=call_load, divided by the RUNS. */
#include "bench.h"

#include <radish/hicache.h>

enum { CHUNK = 2048, TURNS = 8, EVICTED = 64, RUNS = 7 };

typedef struct owner {
    rad_token_to_kv_pool *pool;
    rad_kv_allocator *kv;
    rad_req_to_token_pool *rows;
    rad_host_kv_pool *host;
    rad_cache *cache;
    uint32_t tokens, page_size;
    rad_token *prompt;
    rad_page *pages;
    double seconds; /* in calls of the cache */
} owner;

static void must(rad_status status, const rad_error *err, const char *what)
{
    if (status >= 0) return;
    fprintf(stderr, "%s: %s %s\n", what, rad_status_name(status), err ? err->text : "");
    exit(1);
}

/* ---- a store that takes everything and has nothing ---- */

static rad_status store_set(void *self, const rad_storage_batch *batch, rad_error *err)
{
    (void)self;
    (void)err;
    memset(batch->done, 1, batch->count);
    return RAD_OK;
}

static rad_status store_get(void *self, const rad_storage_batch *batch, rad_error *err)
{
    (void)self;
    (void)err;
    memset(batch->done, 0, batch->count);
    return RAD_OK;
}

static rad_status store_exists(void *self, const rad_storage_batch *batch, uint32_t *present,
                               rad_error *err)
{
    (void)self;
    (void)batch;
    (void)err;
    *present = 0;
    return RAD_OK;
}

static const rad_storage_ops store_ops = {.struct_size = sizeof store_ops,
                                          .name = "nothing",
                                          .batch_get = store_get,
                                          .batch_set = store_set,
                                          .batch_exists = store_exists};

/* ---- the cache and its pools ---- */

static void start(owner *o, bool stored)
{
    rad_error err = {0};
    uint32_t pages = o->tokens / o->page_size + 4;
    rad_token_to_kv_pool_params pool = {.struct_size = sizeof pool,
                                        .num_pages = pages,
                                        .page_size = o->page_size,
                                        .num_layers = 1,
                                        .num_kv_heads = 1,
                                        .head_dim = 16,
                                        .dtype = RAD_BF16};
    rad_kv_allocator_params ids = {
        .struct_size = sizeof ids, .num_pages = pages, .page_size = o->page_size};
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = 2, .row_tokens = o->tokens + 16};
    must(rad_token_to_kv_pool_create(NULL, &pool, &o->pool, &err), &err, "pool");
    must(rad_kv_allocator_create(NULL, &ids, &o->kv, &err), &err, "allocator");
    must(rad_req_to_token_pool_create(NULL, &rows, &o->rows, &err), &err, "rows");
    rad_host_kv_pool_params host = {.struct_size = sizeof host, .device_pool = o->pool, .ratio = 1};
    must(rad_host_kv_pool_create(NULL, &host, &o->host, &err), &err, "host pool");
    rad_cache_params tree = {.struct_size = sizeof tree,
                             .page_size = o->page_size,
                             .kv_allocator = o->kv,
                             .req_to_token_pool = o->rows};
    rad_storage_identity identity = {.struct_size = sizeof identity,
                                     .model = "bench",
                                     .dtype = RAD_BF16,
                                     .page_size = o->page_size};
    rad_storage store = {.ops = &store_ops};
    rad_hicache_params tiers = {.struct_size = sizeof tiers,
                                .cache = &tree,
                                .host_pool = o->host,
                                .demote_tokens = UINT64_MAX,
                                .identity = stored ? &identity : NULL,
                                .storage = stored ? &store : NULL};
    must(rad_hicache_create(NULL, &tiers, &o->cache, &err), &err, "cache");
}

static void stop(owner *o)
{
    rad_cache_destroy(o->cache);
    rad_host_kv_pool_destroy(o->host);
    rad_req_to_token_pool_destroy(o->rows);
    rad_kv_allocator_destroy(o->kv);
    rad_token_to_kv_pool_destroy(o->pool);
}

/* ---- what a scheduler does ---- */

#define CALL __attribute__((noinline)) static /* can be told apart by a profiler */

/* A request for the first `tokens` of the prompt, with what is cached of them locked; returns how
 * many more the host has. */
CALL uint32_t call_come(owner *o, rad_req_kv *req, uint32_t tokens)
{
    rad_match match;
    rad_row row;
    rad_key key = {.tokens = o->prompt, .num_tokens = tokens};
    must(rad_req_to_token_alloc(o->rows, &row), NULL, "row");
    *req = (rad_req_kv){.row = row, .key = key};
    must(rad_cache_match_prefix(o->cache, &key, rad_req_to_token_row(o->rows, row), &match, NULL),
         NULL, "match");
    must(rad_cache_inc_lock_ref(o->cache, match.last_node, &req->lock, NULL), NULL, "lock");
    req->protected_len = req->committed_len = req->allocated_len = match.prefix_tokens;
    return match.host_hit_tokens;
}

/* The tokens up to `end` are computed. */
static void compute(owner *o, rad_req_kv *req, uint32_t end)
{
    uint32_t ps = o->page_size, from = req->allocated_len;
    rad_slot *row = rad_req_to_token_row(o->rows, req->row);
    must(rad_kv_alloc(o->kv, o->pages, (end - from) / ps), NULL, "pages");
    for (uint32_t i = 0; i < end - from; i += ps)
        for (uint32_t k = 0; k < ps; k++)
            row[from + i + k] = o->pages[i / ps] * (rad_slot)ps + (rad_slot)k;
    req->committed_len = req->allocated_len = end;
}

CALL void call_publish(owner *o, rad_req_kv *req, int chunked)
{
    rad_error err = {0};
    must(rad_cache_unfinished_req(o->cache, req, chunked, &err), &err, "publish");
    must(rad_cache_poll(o->cache), NULL, "poll");
}

CALL void call_leave(owner *o, rad_req_kv *req)
{
    rad_error err = {0};
    must(rad_cache_finished_req(o->cache, req, 1, &err), &err, "finish");
    must(rad_hicache_drain(o->cache, 60000000000), NULL, "drain");
}

CALL void call_evict(owner *o)
{
    for (uint32_t i = 0; i < o->tokens; i += EVICTED)
        rad_cache_evict(o->cache, EVICTED, NULL, NULL);
}

CALL void call_load(owner *o)
{
    rad_req_kv req;
    rad_load_result loaded = {0};
    if (call_come(o, &req, o->tokens) != o->tokens)
        must(RAD_E_STATE, NULL, "the host lacks the prompt");
    must(rad_hicache_load_back(o->cache, &req, &req.key, UINT64_MAX, &loaded), NULL, "load");
    must(rad_hicache_ready_to_load(o->cache), NULL, "start");
    while (rad_hicache_load_status(o->cache, &req) == RAD_AGAIN)
        rad_hicache_wait(o->cache, 1000000000);
    call_publish(o, &req, 0);
    call_leave(o, &req);
}

/* One request, computed in chunks. */
static void request(owner *o, uint32_t tokens, uint32_t chunk)
{
    rad_req_kv req;
    double begin = bench_thread_now();
    call_come(o, &req, tokens);
    o->seconds += bench_thread_now() - begin;
    while (req.committed_len < tokens) {
        compute(o, &req, RAD_MIN(req.committed_len + chunk, tokens));
        begin = bench_thread_now();
        call_publish(o, &req, req.committed_len < tokens);
        o->seconds += bench_thread_now() - begin;
    }
    begin = bench_thread_now();
    call_leave(o, &req);
    o->seconds += bench_thread_now() - begin;
}

static void row_once(owner *o)
{
    request(o, o->tokens, o->tokens);
}

static void row_chunks(owner *o)
{
    request(o, o->tokens, CHUNK);
}

static void row_turns(owner *o)
{
    for (uint32_t turn = 1; turn <= TURNS; turn++)
        request(o, o->tokens / TURNS / o->page_size * o->page_size * turn, o->tokens);
}

static void row_evict(owner *o)
{
    double begin = bench_thread_now();
    call_evict(o);
    o->seconds += bench_thread_now() - begin;
}

static void row_load(owner *o)
{
    double begin = bench_thread_now();
    call_load(o);
    o->seconds += bench_thread_now() - begin;
}

/* ---- rows ---- */

typedef struct bench_row {
    const char *name;
    void (*before)(owner *o); /* or NULL */
    void (*before_too)(owner *o);
    void (*run)(owner *o);
    bool stored;
} bench_row;

static const bench_row rows[] = {
    {"once", NULL, NULL, row_once, false},       {"chunks", NULL, NULL, row_chunks, false},
    {"turns", NULL, NULL, row_turns, false},     {"store", NULL, NULL, row_turns, true},
    {"evict", row_once, NULL, row_evict, false}, {"load", row_once, row_evict, row_load, false},
};

static void measure(owner *o, const bench_row *row)
{
    double seconds[RUNS];
    for (int i = 0; i < RUNS; i++) {
        start(o, row->stored);
        if (row->before) row->before(o);
        if (row->before_too) row->before_too(o);
        o->seconds = 0;
        row->run(o);
        seconds[i] = o->seconds;
        stop(o);
    }
    const double median = bench_median(seconds, RUNS);
    printf("  page %-3u %-8s %9.1f us   (%.1f ns a token)\n", o->page_size, row->name, 1e6 * median,
           1e9 * median / o->tokens);
}

int main(int argc, char **argv)
{
    owner o = {.tokens = argc > 1 ? (uint32_t)atoi(argv[1]) : 32768};
    uint32_t only_page = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;
    const char *only = argc > 3 ? argv[3] : NULL;
    const uint32_t page_sizes[] = {1, 16};
    if (o.tokens < CHUNK || only_page > CHUNK) return 1;
    o.prompt = calloc(o.tokens, sizeof *o.prompt);
    o.pages = calloc(o.tokens, sizeof *o.pages);
    if (!o.prompt || !o.pages) return 1;
    for (uint32_t i = 0; i < o.tokens; i++)
        o.prompt[i] = (rad_token)(i * 2654435761u >> 8);
    bench_print_machine(NULL);
    printf("# %u tokens, CPU time of the owner's thread; medians of %d\n", o.tokens, RUNS);
    for (uint32_t i = 0; i < (only_page ? 1 : RAD_COUNT(page_sizes)); i++) {
        o.page_size = only_page ? only_page : page_sizes[i];
        for (uint32_t k = 0; k < RAD_COUNT(rows); k++)
            if (!only || strcmp(only, rows[k].name) == 0) measure(&o, &rows[k]);
    }
    free(o.prompt);
    free(o.pages);
    return 0;
}
