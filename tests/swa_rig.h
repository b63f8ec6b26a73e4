/* swa_rig.h - a sliding-window cache with tiers over real memory, and requests that know what every
 * one of their bytes must be.
 *
 * What a token stores is what runner_fake computes for it, which follows from all tokens up to
 * it, mixed with its namespace, its side and its layer. So a page that is found under a key it
 * does not belong to, on the wrong side, or not all there, shows at once. */
#ifndef TESTS_SWA_RIG_H
#define TESTS_SWA_RIG_H

#include "test.h"

#include <radish/mla_kv_pool.h>
#include <radish/swa_hicache.h>

#include "base/mix64.h"
#include "device/device_sim.h"
#include "hicache/storage_mem.h"
#include "hicache/swa_hi_impl.h"
#include "mem/host_kv_pool.h"
#include "mem/kv_pool.h"
#include "model/runner_fake.h"

enum { SRIG_ROWS = 8, SRIG_ROW_TOKENS = 400, SRIG_PAGE_BYTES = 8192, SRIG_LAYERS = 4 };

typedef struct srig_options {
    uint32_t page_size, window;
    uint32_t pages[2], host_pages[2]; /* of the full and the window side */
    uint32_t layout, dtype;
    bool storage, no_threads, mla; /* mla: the full side is latent rows */
    rad_storage both;              /* this store for both sides instead of two of the rig's */
    rad_swa_hicache_params tiers;  /* policies and thresholds */
} srig_options;

/* Both sides with a host pool of twice their size; a transfer runs when a test says so. */
static inline srig_options srig_small(uint32_t page_size, uint32_t write_policy)
{
    return (srig_options){.page_size = page_size,
                          .window = 20,
                          .pages = {320 / page_size, 160 / page_size},
                          .host_pages = {640 / page_size, 320 / page_size},
                          .no_threads = true,
                          .tiers = {.write_policy = write_policy, .prefetch_threshold = 16}};
}

/* The same with stores below the host. */
static inline srig_options srig_stored(uint32_t page_size, uint32_t write_policy)
{
    srig_options o = srig_small(page_size, write_policy);
    o.storage = true;
    return o;
}

typedef struct srig {
    srig_options o;
    uint32_t ps;
    rad_token_to_kv_pool *pool[2], *want[2]; /* `want`: a page to write what is expected into */
    rad_host_kv_pool *host[2];
    rad_swa_allocator *kv;
    rad_req_to_token_pool *rows;
    rad_swa_hicache *tiers;
    rad_swa_cache *device;
    device_sim sim;
    storage_mem *store; /* [2] or NULL */
    rad_storage opened[2];
    uint64_t seed;
} srig;

static const uint32_t srig_layers[2] = {2, SRIG_LAYERS};

static inline rad_token_to_kv_pool *srig_pool(const srig *r, int side, uint32_t pages)
{
    rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                     .num_pages = pages,
                                     .page_size = r->ps,
                                     .num_layers = srig_layers[side],
                                     .start_layer = side ? 3 : 0,
                                     .num_kv_heads = 1,
                                     .head_dim = 8,
                                     .dtype = r->o.dtype};
    rad_token_to_kv_pool *pool;
    if (r->o.mla && side == 0) {
        rad_mla_kv_pool_params m = {.struct_size = sizeof m,
                                    .num_pages = pages,
                                    .page_size = p.page_size,
                                    .num_layers = p.num_layers,
                                    .start_layer = p.start_layer,
                                    .kv_lora_rank = 8,
                                    .rope_dim = 8,
                                    .dtype = p.dtype};
        CHECK_OK(rad_mla_kv_pool_create(NULL, &m, &pool, NULL));
        return pool;
    }
    CHECK_OK(rad_token_to_kv_pool_create(NULL, &p, &pool, NULL));
    return pool;
}

static inline void srig_tiers(srig *r)
{
    rad_swa_cache_params cache = {.struct_size = sizeof cache,
                                  .window_tokens = r->o.window,
                                  .allocator = r->kv,
                                  .req_to_token_pool = r->rows};
    rad_storage_identity identity = {.struct_size = sizeof identity, .model = "runner_fake"};
    rad_swa_hicache_params p = r->o.tiers;
    p.struct_size = sizeof p;
    p.cache = &cache;
    p.host_pool = r->host[0];
    p.swa_host_pool = r->host[1];
    p.deterministic = r->o.no_threads;
    if (r->o.storage) {
        p.identity = &identity;
        p.storage = &r->opened[0];
        p.swa_storage = &r->opened[1];
    }
    rad_error err = {0};
    CHECKF(rad_swa_hicache_create(NULL, &p, &r->tiers, &err) == RAD_OK, "%s\n", err.text);
    r->device = rad_swa_hicache_device(r->tiers);
}

/* The stores go on when given: a restart. */
static inline void srig_start(srig *r, const srig_options *o, storage_mem *stores)
{
    *r = (srig){.o = *o, .ps = o->page_size, .store = stores};
    device_sim_init(&r->sim, NULL);
    for (int s = 0; s < 2; s++) {
        r->pool[s] = srig_pool(r, s, o->pages[s]);
        r->want[s] = srig_pool(r, s, 1);
        rad_host_kv_pool_params host = {.struct_size = sizeof host,
                                        .device_pool = r->pool[s],
                                        .ratio = (double)o->host_pages[s] / o->pages[s] + 1e-9,
                                        .layout = o->layout};
        CHECK_OK(rad_host_kv_pool_create(NULL, &host, &r->host[s], NULL));
        CHECK(rad_host_kv_pool_num_pages(r->host[s]) == o->host_pages[s]);
        CHECK(rad_host_kv_pool_page_bytes(r->host[s]) <= SRIG_PAGE_BYTES);
        host_kv_pool_set_device(r->host[s], &r->sim.base);
    }
    rad_swa_allocator_params kv = {sizeof kv, o->pages[0], o->pages[1], o->page_size};
    CHECK_OK(rad_swa_allocator_create(NULL, &kv, &r->kv, NULL));
    rad_req_to_token_pool_params rows = {sizeof rows, SRIG_ROWS, SRIG_ROW_TOKENS};
    CHECK_OK(rad_req_to_token_pool_create(NULL, &rows, &r->rows, NULL));
    if (o->storage && !stores && !o->both.ops) {
        r->store = calloc(2, sizeof *r->store);
        for (int s = 0; s < 2; s++)
            CHECK_OK(storage_mem_init(&r->store[s], NULL, 8192,
                                      RAD_STORAGE_HEADER_BYTES +
                                          rad_host_kv_pool_page_bytes(r->host[s])));
    }
    for (int s = 0; s < 2 && o->storage; s++)
        r->opened[s] = r->store ? storage_mem_open(&r->store[s]) : o->both;
    srig_tiers(r);
}

static inline storage_mem *srig_stop(srig *r, bool keep_stores)
{
    rad_swa_hicache_destroy(r->tiers);
    for (int s = 0; s < 2; s++) {
        rad_host_kv_pool_destroy(r->host[s]);
        rad_token_to_kv_pool_destroy(r->pool[s]);
        rad_token_to_kv_pool_destroy(r->want[s]);
        if (r->store && !keep_stores) storage_mem_fini(&r->store[s]);
    }
    rad_swa_allocator_destroy(r->kv);
    rad_req_to_token_pool_destroy(r->rows);
    if (keep_stores) return r->store;
    free(r->store);
    return NULL;
}

static inline rad_swa_hicache_stats srig_stats(const srig *r)
{
    rad_swa_hicache_stats stats;
    CHECK_OK(rad_swa_hicache_get_stats(r->tiers, &stats));
    return stats;
}

/* ---- what must be where ---- */

static inline uint64_t srig_name(const char *extra_key, const char *cache_salt)
{
    uint64_t digest = 0;
    for (int i = 0; i < 2; i++) {
        const char *name = i ? cache_salt : extra_key;
        digest = mix64(2 * digest + (name != NULL));
        for (; name && *name; name++)
            digest = mix64(digest + (uint8_t)*name);
    }
    return digest;
}

static inline void srig_store(rad_token_to_kv_pool *pool, int side, rad_slot slot, uint64_t value)
{
    for (uint32_t layer = 0; layer < srig_layers[side]; layer++)
        runner_fake_store(pool, pool->params.start_layer + layer, slot,
                          mix64(value + 16 * (uint64_t)side + layer));
}

/* Whether `count` slots of one page hold these values; not past the gate. */
static inline bool srig_holds(const srig *r, int side, rad_slot first, const uint64_t *values,
                              uint32_t count)
{
    static uint8_t want[SRIG_PAGE_BYTES], got[SRIG_PAGE_BYTES];
    rad_token_to_kv_pool *pool = r->pool[side];
    rad_slot ours[64], theirs[64];
    size_t bytes = count * pool->token_bytes;
    CHECK(count <= 64);
    for (uint32_t i = 0; i < count; i++) {
        theirs[i] = first + (rad_slot)i;
        ours[i] = (rad_slot)(r->ps + i);
        srig_store(r->want[side], side, ours[i], values[i]);
    }
    void (*wait)(void *, uint32_t) = pool->params.wait_layer;
    pool->params.wait_layer = NULL;
    CHECK_OK(rad_kv_pool_get_cpu_copy(pool, theirs, count, got, bytes));
    pool->params.wait_layer = wait;
    CHECK_OK(rad_kv_pool_get_cpu_copy(r->want[side], ours, count, want, bytes));
    return memcmp(want, got, bytes) == 0;
}

static inline bool srig_host_holds(const srig *r, int side, rad_page page, const uint64_t *values)
{
    static uint8_t want[SRIG_PAGE_BYTES], got[SRIG_PAGE_BYTES];
    size_t bytes = rad_host_kv_pool_page_bytes(r->host[side]);
    for (uint32_t i = 0; i < r->ps; i++)
        srig_store(r->want[side], side, (rad_slot)(r->ps + i), values[i]);
    CHECK_OK(rad_kv_pool_get_page(r->want[side], 1, want, bytes));
    CHECK_OK(rad_host_kv_pool_get_page(r->host[side], page, got, bytes));
    return memcmp(want, got, bytes) == 0;
}

/* Everything that could be found on a tier has the bytes of its key, on both sides. Returns the
 * pages that were compared. */
static inline uint64_t srig_check_tier(const srig *r, bool host)
{
    const rad_swa_cache *c = host ? r->tiers->host : r->tiers->device;
    const rad_page *windows = rad_swa_page_map(c->kv);
    const radix_tree *t = &c->tree;
    rad_token tokens[SRIG_ROW_TOKENS];
    uint64_t values[SRIG_ROW_TOKENS], compared = 0;
    uint32_t ends[SRIG_ROW_TOKENS], depth, ps = r->ps;
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));) {
        const radix_node *n = &t->nodes[id];
        const namespace_entry *e = &t->names.entries[n->ns];
        uint64_t name =
            srig_name(e->has_extra ? e->text : NULL, e->has_salt ? e->text + e->salt_at : NULL);
        uint32_t at = depth > 1 ? ends[depth - 1] : 0;
        ends[depth] = at + n->pages * ps;
        CHECK(ends[depth] <= SRIG_ROW_TOKENS);
        memcpy(tokens + at, radix_tokens(t, n), n->pages * ps * sizeof *tokens);
        runner_fake_values(tokens, ends[depth], values);
        for (uint32_t i = at; i < ends[depth]; i++)
            values[i] ^= name;
        for (uint32_t i = 0; i < n->pages; i++)
            for (int s = 0; s < 2; s++) {
                rad_page page = t->regions[n->at + i];
                const uint64_t *want = values + at + i * ps;
                if (s) page = windows[page];
                if (!page) continue;
                CHECKF(host ? srig_host_holds(r, s, page, want)
                            : srig_holds(r, s, page * (rad_slot)ps, want, ps),
                       "%s, %s side, page %d at position %u, RADISH_TEST_SEED=%llu\n",
                       host ? "host" : "device", s ? "window" : "full", page, at + i * ps,
                       (unsigned long long)r->seed);
                compared++;
            }
    }
    return compared;
}

static inline uint64_t srig_check_bytes(const srig *r)
{
    return srig_check_tier(r, false) + srig_check_tier(r, true);
}

/* Writes nonsense over every page that is free, on both sides and tiers: who uses one shows. */
static inline void srig_poison(srig *r)
{
    static uint8_t nonsense[SRIG_PAGE_BYTES];
    memset(nonsense, 0x5b, sizeof nonsense);
    for (int tier = 0; tier < 2; tier++) {
        const rad_swa_allocator *kv = tier ? r->tiers->host_kv : r->kv;
        const rad_page *windows = rad_swa_page_map(kv);
        static bool taken[2][1024];
        memset(taken, 0, sizeof taken);
        for (uint32_t page = 1; page <= rad_swa_num_pages(kv); page++) {
            taken[0][page] = rad_swa_is_taken(kv, (rad_page)page);
            taken[1][windows[page]] = true;
        }
        for (int s = 0; s < 2; s++) {
            uint32_t pages = tier ? r->o.host_pages[s] : r->o.pages[s];
            size_t bytes = rad_host_kv_pool_page_bytes(r->host[s]);
            CHECK(pages < 1024);
            for (rad_page page = 1; page <= (rad_page)pages; page++) {
                if (taken[s][page]) continue;
                if (tier)
                    CHECK_OK(rad_host_kv_pool_set_page(r->host[s], page, nonsense, bytes));
                else
                    CHECK_OK(rad_kv_pool_set_page(r->pool[s], page, nonsense, bytes));
            }
        }
    }
}

/* ---- requests ---- */

typedef struct sreq {
    bool live;
    rad_swa_req kv;
    rad_token tokens[SRIG_ROW_TOKENS];
    uint32_t num_tokens;
    const char *extra_key, *cache_salt;
    rad_match match;
    rad_load_result loaded;
    rad_prefetch prefetch;
} sreq;

static inline rad_key sreq_key(const sreq *q, uint32_t num_tokens)
{
    return (rad_key){.tokens = q->tokens,
                     .num_tokens = num_tokens,
                     .extra_key = q->extra_key,
                     .cache_salt = q->cache_salt};
}

/* Tokens [from, to) are `first`, first + 1, ... */
static inline void sreq_ask(sreq *q, uint32_t from, uint32_t to, rad_token first)
{
    for (uint32_t i = from; i < to; i++)
        q->tokens[i] = first + (rad_token)(i - from);
    q->num_tokens = to;
}

/* Matches, locks and loads, as a scheduler does. RAD_FULL: no row. */
static inline rad_status sreq_admit(srig *r, sreq *q)
{
    rad_row row;
    rad_slot slots[SRIG_ROW_TOKENS];
    if (rad_req_to_token_alloc(r->rows, &row) != RAD_OK) return RAD_FULL;
    rad_key key = sreq_key(q, q->num_tokens - 1);
    q->live = true;
    q->loaded = (rad_load_result){0};
    q->kv = (rad_swa_req){.row = row, .key = sreq_key(q, q->num_tokens)};
    CHECK_OK(rad_swa_hicache_match_prefix(r->tiers, &key, slots, &q->match));
    CHECK_OK(rad_swa_cache_inc_lock_ref(r->device, q->match.last_node, &q->kv.lock, NULL));
    uint32_t have = q->match.prefix_tokens;
    memcpy(rad_req_to_token_row(r->rows, row), slots, have * sizeof *slots);
    q->kv.protected_len = q->kv.committed_len = q->kv.allocated_len = have;
    if (q->match.host_hit_tokens) {
        rad_status status =
            rad_swa_hicache_load_back(r->tiers, &q->kv, &key, UINT64_MAX, &q->loaded);
        CHECK(status == (q->loaded.tokens ? RAD_OK : RAD_NONE));
        CHECK(!q->loaded.tokens || q->loaded.tokens == q->match.host_hit_tokens);
        CHECK(!q->loaded.tokens == (q->loaded.why != RAD_LOAD_TAKEN));
    }
    return RAD_OK;
}

/* Slots for `want` tokens, evicting. RAD_FULL: not enough. */
static inline rad_status sreq_extend(srig *r, sreq *q, uint32_t want)
{
    rad_slot *row = rad_req_to_token_row(r->rows, q->kv.row);
    uint32_t have = q->kv.allocated_len;
    if (have >= want) return RAD_OK;
    rad_slot last = have ? row[have - 1] : -1;
    uint64_t need = ((want + r->ps - 1) / r->ps - (have + r->ps - 1) / r->ps) * r->ps;
    uint64_t full = rad_swa_full_available_size(r->kv), swa = rad_swa_swa_available_size(r->kv);
    if (full < need || swa < need)
        CHECK_OK(rad_swa_hicache_evict(r->tiers, full < need ? need - full : 0,
                                       swa < need ? need - swa : 0, NULL));
    rad_status status = rad_swa_alloc_extend(r->kv, 1, &have, &want, &last, row + have);
    if (!status) q->kv.allocated_len = want;
    return status;
}

/* The committed positions hold what they must: all on the full side, the last window on both. */
static inline void sreq_check(const srig *r, const sreq *q)
{
    const rad_slot *row = rad_req_to_token_row(r->rows, q->kv.row);
    rad_slot windows[SRIG_ROW_TOKENS];
    uint64_t values[SRIG_ROW_TOKENS], name = srig_name(q->extra_key, q->cache_salt);
    uint32_t end = q->kv.committed_len, n;
    runner_fake_values(q->tokens, end, values);
    CHECK_OK(rad_swa_translate(r->kv, row, end, windows));
    for (uint32_t i = 0; i < end; i++)
        values[i] ^= name;
    for (uint32_t at = 0; at < end; at += n) {
        n = RAD_MIN(r->ps, end - at);
        CHECKF(srig_holds(r, 0, row[at], values + at, n),
               "full side at %u of %u, RADISH_TEST_SEED=%llu\n", at, end,
               (unsigned long long)r->seed);
        if (at + n + r->o.window <= end) continue;
        CHECKF(windows[at] && srig_holds(r, 1, windows[at], values + at, n),
               "window side at %u of %u, RADISH_TEST_SEED=%llu\n", at, end,
               (unsigned long long)r->seed);
    }
}

/* The forward pass: waits for each layer, then everything in front must be what it is to be.
 * RAD_E_IO: its load failed. */
static inline rad_status sreq_forward(srig *r, sreq *q)
{
    CHECK_OK(rad_swa_hicache_ready_to_load(r->tiers));
    for (uint32_t layer = 0; layer < SRIG_LAYERS; layer++)
        for (int s = 0; s < 2; s++)
            if (layer < srig_layers[s])
                (void)rad_kv_pool_key_buffer(r->pool[s], r->pool[s]->params.start_layer + layer);
    rad_status status = rad_swa_hicache_load_status(r->tiers, &q->kv);
    CHECK(status == RAD_OK || status == RAD_E_IO);
    if (status) return status;
    sreq_check(r, q);
    const rad_slot *row = rad_req_to_token_row(r->rows, q->kv.row);
    rad_slot windows[SRIG_ROW_TOKENS];
    uint64_t values[SRIG_ROW_TOKENS], name = srig_name(q->extra_key, q->cache_salt);
    uint32_t end = q->kv.allocated_len;
    runner_fake_values(q->tokens, end, values);
    CHECK_OK(rad_swa_translate(r->kv, row, end, windows));
    for (uint32_t i = q->kv.committed_len; i < end; i++) {
        CHECK(windows[i]);
        srig_store(r->pool[0], 0, row[i], values[i] ^ name);
        srig_store(r->pool[1], 1, windows[i], values[i] ^ name);
    }
    q->kv.committed_len = end;
    return RAD_OK;
}

static inline void sreq_slide(srig *r, sreq *q)
{
    rad_error err = {0};
    rad_status status = rad_swa_cache_free_out_of_window(r->device, &q->kv, &err);
    CHECKF(status == (q->kv.load ? RAD_E_STATE : RAD_OK), "%s\n", err.text);
}

static inline void sreq_finish(srig *r, sreq *q, bool is_insert)
{
    rad_error err = {0};
    rad_status status = rad_swa_hicache_finished_req(r->tiers, &q->kv, is_insert, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    q->live = false;
}

/* A whole life; returns how many tokens were cached, all tiers. */
static inline uint32_t srig_serve(srig *r, sreq *q)
{
    rad_error err = {0};
    CHECK_OK(sreq_admit(r, q));
    uint32_t cached = q->kv.allocated_len;
    CHECK_OK(sreq_extend(r, q, q->num_tokens));
    if (sreq_forward(r, q) != RAD_OK) {
        sreq_finish(r, q, false);
        return 0;
    }
    rad_status status = rad_swa_hicache_unfinished_req(r->tiers, &q->kv, 0, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    sreq_finish(r, q, true);
    return cached;
}

static inline void srig_check(const srig *r, sreq *const *reqs, uint32_t count)
{
    rad_error err = {0};
    const rad_swa_req *records[64];
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        if (reqs[i]->live) records[n++] = &reqs[i]->kv;
    rad_status status = rad_swa_hicache_check(r->tiers, records, n, &err);
    CHECKF(status == RAD_OK, "%s, RADISH_TEST_SEED=%llu\n", err.text, (unsigned long long)r->seed);
}

/* Runs or awaits all that is under way, until nothing is. */
static inline void srig_settle(srig *r)
{
    CHECK_OK(rad_swa_hicache_poll(r->tiers)); /* what is to be demoted is under way then */
    for (int i = 0; i < 10000 && srig_stats(r).tickets; i++) {
        if (r->o.no_threads)
            (void)rad_swa_hicache_pump(r->tiers, 0);
        else
            (void)rad_swa_hicache_wait(r->tiers, 1000000000);
        CHECK_OK(rad_swa_hicache_poll(r->tiers));
    }
}

/* Nothing runs: no ticket is out, and every page of both sides and tiers is free or cached. */
static inline void srig_check_idle(srig *r)
{
    char text[2048];
    srig_settle(r);
    srig_check(r, NULL, 0);
    rad_swa_hicache_stats s = srig_stats(r);
    CHECK_OK(rad_swa_hicache_describe(r->tiers, text, sizeof text));
    CHECKF(s.tickets == 0 && s.prefetch_reserved_tokens == 0, "%u tickets\n%s", s.tickets, text);
    rad_swa_cache_sizes d = rad_swa_cache_get_sizes(r->device);
    CHECK(d.full_protected == 0 && d.swa_protected == 0);
    CHECK(rad_swa_full_available_size(r->kv) + d.full_evictable == (uint64_t)r->o.pages[0] * r->ps);
    CHECK(rad_swa_swa_available_size(r->kv) + d.swa_evictable == (uint64_t)r->o.pages[1] * r->ps);
    for (int i = 0; i < 2; i++)
        CHECK(s.host_used_tokens[i] == s.host_cached_tokens[i]);
    (void)srig_check_bytes(r);
}

/* By the options in r->o, which may have been changed: everything is in the stores, and nothing
 * anywhere else. */
static inline void srig_restart(srig *r)
{
    srig_options o = r->o;
    srig_check_idle(r);
    storage_mem *stores = srig_stop(r, true);
    srig_start(r, &o, stores);
}

/* The end of a test. */
static inline void srig_end(srig *r)
{
    srig_check_idle(r);
    (void)srig_stop(r, false);
}

#endif
