/* hicache_rig.h - a cache with tiers over real memory, and requests that know what every one
 * of their bytes must be.
 *
 * The K/V of a position are a hash of all tokens up to it and of the namespace, so any page
 * that is found under a key it does not belong to, or is not all there, shows at once. */
#ifndef TESTS_HICACHE_RIG_H
#define TESTS_HICACHE_RIG_H

#include "gear/kv_buffers.h"
#include "test.h"

#include <radish/device_cuda.h>
#include <radish/hicache.h>
#include <radish/mla_kv_pool.h>
#include <radish/retention.h>

#include "base/mix64.h"
#include "gear/device_guarded.h"
#include "gear/device_sim.h"
#include "gear/storage_mem.h"
#include "hicache/hiradix_impl.h"
#include "mem/host_kv_pool.h"
#include "mem/kv_pool.h"

enum { HRIG_LAYERS = 3, HRIG_ROWS = 8, HRIG_ROW_TOKENS = 512, HRIG_TOKEN_BYTES = 512 };
enum { HRIG_WINDOW_LAYERS = 5 }; /* that see a window, where some do */
enum { HRIG_STATE_BYTES = 192 };

typedef struct hrig_options {
    uint32_t page_size, device_pages, host_pages, layout, dtype;
    bool mla, storage, no_threads, eagle;
    uint64_t demote_tokens;
    uint64_t pinned_tokens;
    uint32_t max_nodes, eviction; /* of the tree, and on the device; 0: the defaults */
    uint32_t cached_pages;        /* that the tree may have; 0: as many as there are */
    const char *model;
    bool events; /* of all tiers where tiers.tier_events is set */
    uint32_t window; /* tokens that some layers see; 0: none do */
    uint32_t window_pages, host_window_pages;
    bool window_only; /* all layers do */
    uint32_t states, host_states; /* snapshots and working copies; 0: no recurrent layers */
    uint32_t event_pages, explain_pages;
    rad_token_to_kv_pool *pool; /* to be used, and another's; NULL: one of its own */
    rad_hicache_params tiers;   /* policies and thresholds */
} hrig_options;

/* A store below the host; a transfer runs when a test says so. */
static inline hrig_options hrig_stored(uint32_t page_size, uint32_t device_pages,
                                       uint32_t host_pages)
{
    return (hrig_options){
        .page_size = page_size,
        .device_pages = device_pages,
        .host_pages = host_pages,
        .no_threads = true,
        .storage = true,
        .layout = RAD_HOST_PAGE_FIRST,
        .demote_tokens = UINT64_MAX,
        .tiers = {.prefetch_policy = RAD_PREFETCH_WAIT_COMPLETE, .prefetch_threshold = 32}};
}

typedef struct hrig {
    hrig_options o;
    rad_token_to_kv_pool *pool;
    rad_kv_allocator *kv;
    rad_req_to_token_pool *rows;
    rad_host_kv_pool *host;
    rad_cache *cache;
    device_sim sim;
    device_guarded guarded; /* if device_guarded_asked: where K/V lie, and what only it may touch */
    rad_device *gpu; /* with RADISH_TEST_CUDA in the environment, the same: RADISH_LIBCUDA's */
    storage_mem store;
    bool has_store;
    uint32_t ps;
    size_t token_bytes; /* 0: all layers see a window */
    rad_token_to_kv_pool *window_pool;
    rad_host_kv_pool *window_host;
    size_t window_bytes; /* of a token */
    rad_state_pool *states, *host_states;
    char *state_memory; /* of state 0 on the device; asking the pool waits for loads */
    rad_hicache_params params;
    rad_cache_params tree; /* params.cache */
    rad_storage_identity identity;
    rad_storage opened;
} hrig;

static inline void hrig_make_windows(hrig *r, const hrig_options *o)
{
    if (!o->window) return;
    rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                     .num_pages = o->window_pages,
                                     .page_size = o->page_size,
                                     .num_layers = HRIG_WINDOW_LAYERS,
                                     .num_kv_heads = 1,
                                     .head_dim = 8,
                                     .dtype = o->dtype,
                                     .start_layer = 2,
                                     .device = r->sim.inner};
    CHECK_OK(rad_token_to_kv_pool_create(NULL, &p, &r->window_pool, NULL));
    rad_host_kv_pool_params host = {.struct_size = sizeof host,
                                    .device_pool = r->window_pool,
                                    .ratio = (double)o->host_window_pages / o->window_pages + 1e-9,
                                    .layout = o->layout,
                                    .device = &r->sim.base};
    CHECK_OK(rad_host_kv_pool_create(NULL, &host, &r->window_host, NULL));
    r->window_bytes = rad_kv_pool_bytes_per_token(rad_kv_pool_params(r->window_pool));
    CHECK(r->window_bytes <= HRIG_TOKEN_BYTES);
}

static inline void hrig_make_states(hrig *r, const hrig_options *o)
{
    if (!o->states) return;
    rad_state_pool_params p = {.struct_size = sizeof p,
                               .state_bytes = HRIG_STATE_BYTES,
                               .num_states = o->states,
                               .device = r->sim.inner};
    CHECK_OK(rad_state_pool_create(NULL, &p, &r->states, NULL));
    r->state_memory = rad_state_address(r->states, 0);
    p.num_states = o->host_states;
    p.on_host = 1;
    p.device = &r->sim.base;
    if (o->host_states) CHECK_OK(rad_state_pool_create(NULL, &p, &r->host_states, NULL));
}

static inline void hrig_make_pool(hrig *r, const hrig_options *o)
{
    if (o->mla) {
        rad_mla_kv_pool_params p = {.struct_size = sizeof p,
                                    .num_pages = o->device_pages,
                                    .page_size = o->page_size,
                                    .num_layers = HRIG_LAYERS,
                                    .start_layer = 5,
                                    .kv_lora_rank = 6,
                                    .rope_dim = 2,
                                    .dtype = o->dtype,
                                    .device = r->sim.inner};
        CHECK_OK(rad_mla_kv_pool_create(NULL, &p, &r->pool, NULL));
        return;
    }
    rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                     .num_pages = o->device_pages,
                                     .page_size = o->page_size,
                                     .num_layers = HRIG_LAYERS,
                                     .num_kv_heads = 2,
                                     .head_dim = 4,
                                     .v_head_dim = 2,
                                     .dtype = o->dtype,
                                     .start_layer = 5,
                                     .device = r->sim.inner};
    CHECK_OK(rad_token_to_kv_pool_create(NULL, &p, &r->pool, NULL));
}

/* The store of `keep`, when given, goes on: a restart. */
static inline void hrig_start(hrig *r, const hrig_options *o, hrig *keep)
{
    rad_error err = {0};
    storage_mem kept;
    if (keep) kept = keep->store;
    *r = (hrig){.o = *o, .ps = o->page_size};
    device_sim_init(&r->sim, NULL);
    if (device_guarded_asked()) {
        device_guarded_init(&r->guarded);
        r->sim.inner = &r->guarded.base;
    }
    if (getenv("RADISH_TEST_CUDA") && !o->pool) {
        rad_device_cuda_params gpu = {.struct_size = sizeof gpu};
        CHECKF(!rad_device_cuda_create(NULL, &gpu, &r->gpu, &err), "%s\n", err.text);
        r->sim.inner = r->gpu;
    }
    r->pool = o->pool;
    if (r->pool) r->sim.inner = r->pool->device;
    hrig_make_windows(r, o);
    hrig_make_states(r, o);
    if (!r->pool && !o->window_only) hrig_make_pool(r, o);
    if (r->pool) {
        const rad_token_to_kv_pool_params *pool = rad_kv_pool_params(r->pool);
        r->token_bytes = rad_kv_pool_bytes_per_token(pool);
        CHECK(r->token_bytes <= HRIG_TOKEN_BYTES);
    }
    rad_kv_allocator_params pages = {.struct_size = sizeof pages,
                                     .num_pages = o->device_pages,
                                     .page_size = o->page_size,
                                     .swa_num_pages = o->window_pages};
    CHECK_OK(rad_kv_allocator_create(NULL, &pages, &r->kv, NULL));
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = HRIG_ROWS, .row_tokens = HRIG_ROW_TOKENS};
    CHECK_OK(rad_req_to_token_pool_create(NULL, &rows, &r->rows, NULL));
    rad_host_kv_pool_params host = {.struct_size = sizeof host,
                                    .device_pool = r->pool,
                                    .ratio = (double)o->host_pages / o->device_pages + 1e-9,
                                    .layout = o->layout,
                                    .device = &r->sim.base};
    if (!o->window_only) {
        CHECK_OK(rad_host_kv_pool_create(NULL, &host, &r->host, NULL));
        CHECK(host_kv_pool_num_pages(r->host) == o->host_pages);
    }

    r->tree = (rad_cache_params){.struct_size = sizeof r->tree,
                                 .page_size = o->page_size,
                                 .kv_allocator = r->kv,
                                 .req_to_token_pool = r->rows,
                                 .window_tokens = o->window,
                                 .max_pinned_tokens = o->pinned_tokens,
                                 .max_nodes = o->max_nodes,
                                 .max_tokens = (uint64_t)o->cached_pages * o->page_size,
                                 .eviction = {.policy = o->eviction},
                                 .enable_kv_events = o->events,
                                 .kv_event_pages = o->event_pages,
                                 .explain_pages = o->explain_pages,
                                 .state_pool = r->states,
                                 .is_eagle = o->eagle};
    r->params = o->tiers;
    r->params.struct_size = sizeof r->params;
    r->params.cache = &r->tree;
    r->params.host_pool = r->host;
    r->params.window_host_pool = r->window_host;
    r->params.host_states = r->host_states;
    r->params.deterministic = o->no_threads;
    r->params.demote_tokens = o->demote_tokens;
    if (o->storage) {
        r->identity = (rad_storage_identity){.struct_size = sizeof r->identity,
                                             .model = o->model ? o->model : "a model",
                                             .dtype = o->dtype,
                                             .page_size = o->page_size,
                                             .num_layers = HRIG_LAYERS};
        r->params.identity = &r->identity;
        r->has_store = true;
        if (keep)
            r->store = kept;
        else
            CHECK_OK(storage_mem_init(&r->store, NULL, 4096,
                                      RAD_STORAGE_HEADER_BYTES +
                                          RAD_MAX(r->ps * RAD_MAX(r->token_bytes, r->window_bytes),
                                                  (size_t)HRIG_STATE_BYTES)));
        r->opened = storage_mem_open(&r->store);
        r->params.storage = &r->opened;
    }
    rad_status status = rad_hicache_create(NULL, &r->params, &r->cache, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
}

/* Makes the cache again, with r->params: fails the 1st allocation of create, then the 2nd, ...
 * until it succeeds. Whatever breaks, create says so and gives every byte back. `t` counts its
 * memory. */
static inline void hrig_create_failing(hrig *r, test_env *t)
{
    rad_cache_destroy(r->cache);
    r->cache = NULL;
    for (long n = 0; !r->cache; n++) {
        rad_env env = test_env_failing_at(t, n);
        rad_status status = rad_hicache_create(&env, &r->params, &r->cache, NULL);
        CHECK(status == (r->cache ? RAD_OK : RAD_E_NOMEM));
        CHECK(r->cache || t->bytes == 0);
    }
}

static inline void hrig_stop(hrig *r, bool keep_store)
{
    rad_cache_destroy(r->cache);
    rad_host_kv_pool_destroy(r->host);
    rad_host_kv_pool_destroy(r->window_host);
    rad_token_to_kv_pool_destroy(r->window_pool);
    rad_state_pool_destroy(r->states);
    rad_state_pool_destroy(r->host_states);
    rad_kv_allocator_destroy(r->kv);
    rad_req_to_token_pool_destroy(r->rows);
    if (!r->o.pool) rad_token_to_kv_pool_destroy(r->pool);
    CHECK(r->guarded.bytes == 0 || r->o.pool);
    rad_device_cuda_destroy(r->gpu);
    if (r->has_store && !keep_store) storage_mem_fini(&r->store);
}

static inline rad_hicache_stats hrig_stats(const hrig *r)
{
    rad_hicache_stats stats;
    CHECK_OK(rad_hicache_get_stats(r->cache, &stats));
    rad_cache_stats on_device;
    rad_cache_get_stats(r->cache, &on_device);
    CHECK(on_device.host_evicted_tokens == stats.host_evicted_tokens);
    return stats;
}

/* ---- what must be where ---- */

static inline uint64_t hrig_start_digest(const char *extra_key, const char *cache_salt)
{
    uint64_t digest = 7;
    for (int i = 0; i < 2; i++) {
        const char *name = i ? cache_salt : extra_key;
        digest = mix64(digest + (name != NULL));
        for (; name && *name; name++)
            digest = mix64(digest + (uint8_t)*name);
    }
    return digest;
}

static inline uint64_t hrig_digest(uint64_t digest, rad_token token)
{
    return mix64(digest ^ mix64((uint32_t)token + 1));
}

static inline void fill_bytes(uint64_t digest, uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i += 8) {
        uint64_t word = mix64(digest + i);
        memcpy(bytes + i, &word, RAD_MIN((size_t)8, count - i));
    }
}

/* Those of window layers are others. */
static inline uint64_t window_digest(uint64_t digest)
{
    return mix64(digest ^ 0x77696e646f77);
}

static inline void pool_write(rad_token_to_kv_pool *pool, rad_slot slot, uint64_t digest,
                              size_t count)
{
    uint8_t bytes[HRIG_TOKEN_BYTES];
    fill_bytes(digest, bytes, count);
    CHECK_OK(rad_kv_pool_load_cpu_copy(pool, &slot, 1, bytes, count));
}

static inline bool pool_has(rad_token_to_kv_pool *pool, rad_slot slot, uint64_t digest,
                            size_t count)
{
    uint8_t want[HRIG_TOKEN_BYTES], got[HRIG_TOKEN_BYTES];
    fill_bytes(digest, want, count);
    const uint32_t waiters = pool->num_waiters;
    pool->num_waiters = 0;
    CHECK_OK(rad_kv_pool_get_cpu_copy(pool, &slot, 1, got, count));
    pool->num_waiters = waiters;
    return memcmp(want, got, count) == 0;
}

/* What recurrent layers carry behind a position, too. Digests are of all tokens up to it, so a
 * snapshot of another place shows. */
static inline uint64_t state_digest(uint64_t digest)
{
    return mix64(digest ^ 0x7374617465);
}

static inline void hrig_move_state(const hrig *r, rad_state state, void *bytes, bool write)
{
    char *there = r->state_memory + (size_t)state * HRIG_STATE_BYTES;
    rad_device_rows dst = {write ? there : bytes, HRIG_STATE_BYTES, NULL};
    rad_device_rows src = {write ? bytes : there, HRIG_STATE_BYTES, NULL};
    if (!r->sim.inner) {
        memcpy(dst.base, src.base, HRIG_STATE_BYTES);
        return;
    }
    CHECK_OK(device_copy_rows(r->sim.inner, dst, src, HRIG_STATE_BYTES, 1));
    CHECK_OK(device_fence(r->sim.inner, RAD_OK));
}

static inline void hrig_write_state(const hrig *r, rad_state state, uint64_t digest)
{
    uint8_t bytes[HRIG_STATE_BYTES];
    fill_bytes(state_digest(digest), bytes, sizeof bytes);
    hrig_move_state(r, state, bytes, true);
}

static inline bool hrig_state_is(const hrig *r, rad_state state, uint64_t digest)
{
    uint8_t want[HRIG_STATE_BYTES], got[HRIG_STATE_BYTES];
    fill_bytes(state_digest(digest), want, sizeof want);
    hrig_move_state(r, state, got, false);
    return state && memcmp(want, got, sizeof want) == 0;
}

static inline bool hrig_host_state_is(const hrig *r, rad_state state, uint64_t digest)
{
    uint8_t want[HRIG_STATE_BYTES];
    fill_bytes(state_digest(digest), want, sizeof want);
    return memcmp(want, rad_state_address(r->host_states, state), sizeof want) == 0;
}

/* Where the window layers of a slot lie; 0: nowhere. */
static inline rad_slot hrig_window_slot(const hrig *r, rad_slot slot)
{
    rad_page page = rad_kv_window_page_map(r->kv)[slot / (rad_slot)r->ps];
    return page ? page * (rad_slot)r->ps + slot % (rad_slot)r->ps : 0;
}

static inline void hrig_write(const hrig *r, rad_slot slot, uint64_t digest)
{
    if (r->pool) pool_write(r->pool, slot, digest, r->token_bytes);
    if (!r->window_pool) return;
    CHECK(hrig_window_slot(r, slot));
    pool_write(r->window_pool, hrig_window_slot(r, slot), window_digest(digest), r->window_bytes);
}

/* Slot by slot out of pool memory, not past the gate. */
static inline bool hrig_is_written(const hrig *r, rad_slot slot, uint64_t digest)
{
    return !r->pool || pool_has(r->pool, slot, digest, r->token_bytes);
}

static inline bool hrig_window_is_written(const hrig *r, rad_slot slot, uint64_t digest)
{
    rad_slot at = hrig_window_slot(r, slot);
    return at && pool_has(r->window_pool, at, window_digest(digest), r->window_bytes);
}

/* Whether the t-th token of a host page has these bytes. A page's lie layer by layer. */
static inline bool host_has(const rad_host_kv_pool *host, rad_page page, uint32_t t,
                            uint64_t digest, size_t count)
{
    static uint8_t bytes[64 * HRIG_TOKEN_BYTES];
    uint8_t want[HRIG_TOKEN_BYTES], got[HRIG_TOKEN_BYTES], *out = got;
    const rad_token_to_kv_pool *pool = host_kv_pool_device_pool(host);
    uint32_t ps = pool->params.page_size;
    const kv_side *side = pool->side;
    const uint8_t *from = bytes;
    CHECK_OK(host_kv_pool_get_page(host, page, bytes, ps * count));
    for (uint32_t layer = 0; layer < pool->params.num_layers; layer++)
        for (uint32_t s = 0; s < pool->num_sides; s++)
            for (int scales = 0; scales < 2; scales++) {
                size_t row = scales ? side[s].scale_bytes : side[s].code_bytes;
                memcpy(out, from + t * row, row);
                from += ps * row;
                out += row;
            }
    fill_bytes(digest, want, count);
    return memcmp(want, got, count) == 0;
}

/* ---- what the host alone is asked ---- */

static inline const radix_tree *hrig_tree(const hrig *r)
{
    return hiradix_of(r->cache)->tree;
}

static inline uint64_t hrig_host_size(const hrig *r)
{
    return (hrig_tree(r)->host.evictable + hrig_tree(r)->host.locked) * r->ps;
}

/* How many tokens of the key the host has, from the first on, and in which node they end. */
static inline uint32_t hrig_on_host(const hrig *r, const rad_key *key, uint32_t *node)
{
    radix_pos pos =
        hi_follow(hiradix_of(r->cache), key, hi_key_pages(hiradix_of(r->cache), key), 0, 0, 0);
    if (pos.node) radix_to_tier(hrig_tree(r), &pos, RADIX_HOST);
    if (node) *node = pos.child ? pos.child : pos.node;
    return pos.pages * r->ps;
}

typedef struct hrig_walk {
    const hrig *r;
    bool on_host;
    uint64_t digests[64]; /* at the end of the node of each depth */
    const hiradix_cache *hi;
    uint64_t tokens;
    uint64_t windows; /* tokens of the host's that have a window side */
} hrig_walk;

static inline void hrig_visit(void *user, rad_ref node, uint32_t depth, const rad_token *tokens,
                              const rad_slot *slots, uint32_t num_tokens, uint32_t lock_ref,
                              uint32_t hit_count)
{
    hrig_walk *w = user;
    const hrig *r = w->r;
    rad_node_info info = {.struct_size = sizeof info};
    uint32_t windows = 0;
    CHECK_OK(rad_cache_get_node_info(r->cache, node, &info, NULL));
    CHECK(info.num_tokens == num_tokens && info.hit_count == hit_count);
    CHECK(w->on_host ? info.on_host : info.on_device);
    CHECK((w->on_host ? info.host_lock_ref : info.lock_ref) == lock_ref);
    CHECK(info.on_host || !(info.host_lock_ref | info.host_window_tokens));
    CHECK(info.on_device || !(info.lock_ref | info.window_tokens | info.is_evictable));
    CHECK(depth < 64);
    const radix_tree *tree = w->hi->tree;
    const namespace_entry *e = &tree->names.entries[tree->nodes[node.index].ns];
    uint64_t digest = depth == 1 ? hrig_start_digest(namespace_extra_key(&e->name),
                                                     namespace_cache_salt(&e->name))
                                 : w->digests[depth - 1];
    for (uint32_t i = 0; i < num_tokens; i++) {
        digest = hrig_digest(digest, tokens[i]);
        rad_page page = slots[i] / (rad_slot)r->ps;
        if (!w->on_host) {
            CHECK(hrig_is_written(r, slots[i], digest));
            if (!rad_kv_has_window(r->kv, page)) continue;
            windows++;
            CHECK(hrig_window_is_written(r, slots[i], digest));
            continue;
        }
        CHECK(!r->host || host_has(r->host, page, i % r->ps, digest, r->token_bytes));
        if (!rad_kv_has_window(w->hi->host_pages, page)) continue;
        windows++;
        CHECK(host_has(r->window_host, rad_kv_window_page_map(w->hi->host_pages)[page], i % r->ps,
                       window_digest(digest), r->window_bytes));
    }
    CHECK((w->on_host ? info.host_window_tokens : info.window_tokens) == windows);
    CHECK(w->on_host || !info.state || hrig_state_is(r, info.state, digest));
    CHECK(!w->on_host || !info.host_state || hrig_host_state_is(r, info.host_state, digest));
    CHECK(info.on_device || !info.state);
    CHECK(info.on_host || !info.host_state);
    w->windows += w->on_host ? windows : 0;
    w->digests[depth] = digest;
    w->tokens += num_tokens;
}

/* Everything that could be found, on both tiers, has the bytes of its key. */
static inline void hrig_check_bytes(const hrig *r)
{
    hrig_walk w = {.r = r, .hi = hiradix_of(r->cache)};
    CHECK_OK(rad_cache_walk(w.hi->device, hrig_visit, &w));
    w.on_host = true;
    CHECK_OK(radix_cache_walk_host(w.hi->nodes, hrig_visit, &w));
}

/* ---- requests ---- */

typedef struct hreq {
    bool live;
    rad_req_kv kv;
    rad_token tokens[HRIG_ROW_TOKENS];
    uint32_t num_tokens;
    const char *extra_key, *cache_salt;
    rad_match match;
    rad_load_result loaded;
    rad_prefetch prefetch;
    uint32_t prefetched;
    rad_state saved; /* behind saved_len tokens, to be hung in once it has published; 0: none */
    uint32_t saved_len;
} hreq;

static inline rad_key hreq_key(const hreq *q, uint32_t num_tokens)
{
    return (rad_key){.tokens = q->tokens,
                     .num_tokens = num_tokens,
                     .extra_key = q->extra_key,
                     .cache_salt = q->cache_salt};
}

static inline uint64_t hreq_digest(const hreq *q, uint32_t position)
{
    uint64_t digest = hrig_start_digest(q->extra_key, q->cache_salt);
    for (uint32_t i = 0; i <= position; i++)
        digest = hrig_digest(digest, q->tokens[i]);
    return digest;
}

/* Tokens [from, to) are `first`, first + 1, ... */
static inline void hreq_ask(hreq *q, uint32_t from, uint32_t to, rad_token first)
{
    for (uint32_t i = from; i < to; i++)
        q->tokens[i] = first + (rad_token)(i - from);
    q->num_tokens = to;
}

/* A state, evicting if need be; 0: all are held. */
static inline rad_state hrig_take_state(hrig *r)
{
    rad_state state = 0;
    if (!rad_state_available(r->states)) CHECK_OK(rad_cache_evict_state(r->cache, 1, NULL));
    (void)rad_state_alloc(r->states, &state);
    return state;
}

/* The state that the request goes on from has seen just its committed tokens. */
static inline bool hreq_state_is_right(const hrig *r, const hreq *q)
{
    const rad_req_kv *kv = &q->kv;
    uint32_t len = kv->committed_len;
    if (!len) return true;
    rad_state state = kv->state_len == len   ? kv->state
                      : kv->spare_len == len ? kv->spare_state
                                             : q->match.state;
    return hrig_state_is(r, state, hreq_digest(q, len - 1));
}

/* Goes on to allocated_len: what it works with, the last whole page that a later match can end at,
 * and the last one of all. */
static inline void hreq_run_state(hrig *r, hreq *q)
{
    rad_req_kv *kv = &q->kv;
    uint32_t end = kv->allocated_len, save = (end - 1) / r->ps * r->ps, last = end / r->ps * r->ps;
    CHECKF(hreq_state_is_right(r, q), "state at %u of %u\n", kv->committed_len, end);
    if (save > kv->committed_len && !q->saved && rad_state_alloc(r->states, &q->saved) == RAD_OK) {
        q->saved_len = save;
        hrig_write_state(r, q->saved, hreq_digest(q, save - 1));
    }
    if (last > kv->committed_len && !kv->spare_len &&
        (kv->spare_state || rad_state_alloc(r->states, &kv->spare_state) == RAD_OK)) {
        kv->spare_len = last;
        hrig_write_state(r, kv->spare_state, hreq_digest(q, last - 1));
    }
    kv->state_len = end;
    hrig_write_state(r, kv->state, hreq_digest(q, end - 1));
}

/* Behind unfinished_req: what it saved is hung in, or goes back where it did not publish so much.
 */
static inline void hreq_put_state(hrig *r, hreq *q)
{
    if (!q->saved) return;
    if (q->kv.lock.held && q->kv.protected_len >= q->saved_len)
        CHECK_OK(rad_cache_put_state(r->cache, q->kv.lock.node, q->saved_len, q->saved, NULL));
    else
        CHECK_OK(rad_state_free(r->states, q->saved));
    q->saved = 0;
}

/* Matches, locks and loads, as a scheduler does. RAD_FULL: no row, or no state. */
static inline rad_status hreq_admit(hrig *r, hreq *q)
{
    rad_row row;
    if (rad_req_to_token_alloc(r->rows, &row) != RAD_OK) return RAD_FULL;
    rad_key key = hreq_key(q, q->num_tokens - 1);
    q->live = true;
    q->loaded = (rad_load_result){0};
    q->kv = (rad_req_kv){.row = row, .key = hreq_key(q, q->num_tokens)};
    CHECK_OK(rad_cache_match_prefix(r->cache, &key, rad_req_to_token_row(r->rows, row), &q->match,
                                    NULL));
    CHECK_OK(rad_cache_inc_lock_ref(r->cache, q->match.last_node, &q->kv.lock, NULL));
    q->kv.protected_len = q->kv.committed_len = q->kv.allocated_len = q->match.prefix_tokens;
    CHECK(q->kv.lock.state_held == (q->match.state != 0));
    if (r->states && !(q->kv.state = hrig_take_state(r))) {
        CHECK_OK(rad_cache_finished_req(r->cache, &q->kv, 0, NULL));
        q->live = false;
        return RAD_FULL;
    }
    if (q->match.host_hit_tokens) {
        rad_status status = rad_hicache_load_back(r->cache, &q->kv, &key, UINT64_MAX, &q->loaded);
        CHECK(status == (q->loaded.tokens ? RAD_OK : RAD_NONE));
        CHECK(!q->loaded.tokens || q->loaded.tokens == q->match.host_hit_tokens);
        CHECK(!q->loaded.tokens == (q->loaded.why != RAD_LOAD_TAKEN));
    }
    return RAD_OK;
}

/* Slots for all its tokens, evicting. RAD_FULL: not enough. */
static inline rad_status hreq_extend(hrig *r, hreq *q)
{
    rad_slot *row = rad_req_to_token_row(r->rows, q->kv.row);
    uint32_t have = q->kv.allocated_len, want = q->num_tokens;
    if (have == want) return RAD_OK;
    rad_slot last = have ? row[have - 1] : -1, slots[HRIG_ROW_TOKENS];
    uint64_t pages = (want + r->ps - 1) / r->ps - (have + r->ps - 1) / r->ps;
    uint64_t room = rad_kv_available_pages(r->kv);
    if (room < pages) CHECK_OK(rad_cache_evict(r->cache, (pages - room) * r->ps, NULL, NULL));
    room = rad_kv_window_available_pages(r->kv);
    if (r->o.window && room < pages)
        CHECK_OK(rad_cache_evict_window(r->cache, (pages - room) * r->ps, NULL));
    rad_status status = rad_kv_alloc_extend(r->kv, 1, &have, &want, &last, slots, NULL);
    if (status) return status;
    memcpy(row + have, slots, (want - have) * sizeof *slots);
    q->kv.allocated_len = want;
    return RAD_OK;
}

/* The forward pass: waits for each layer, then everything in front must be what it is to be.
 * RAD_E_IO: its load failed. */
static inline rad_status hreq_forward(hrig *r, hreq *q)
{
    CHECK_OK(rad_hicache_ready_to_load(r->cache));
    if (r->states) (void)rad_state_address(r->states, 0); /* waits */
    for (uint32_t layer = 0; r->pool && layer < HRIG_LAYERS; layer++)
        (void)kv_key_buffer(r->pool, 5 + layer);
    for (uint32_t layer = 0; r->window_pool && layer < HRIG_WINDOW_LAYERS; layer++)
        (void)kv_key_buffer(r->window_pool, 2 + layer);
    rad_status status = rad_hicache_load_status(r->cache, &q->kv);
    CHECK(status == RAD_OK || status == RAD_E_IO);
    if (status) return status;
    const rad_slot *row = rad_req_to_token_row(r->rows, q->kv.row);
    uint64_t digest = hrig_start_digest(q->extra_key, q->cache_salt);
    for (uint32_t i = 0; i < q->kv.allocated_len; i++) {
        digest = hrig_digest(digest, q->tokens[i]);
        if (i >= q->kv.committed_len) {
            hrig_write(r, row[i], digest);
            continue;
        }
        CHECKF(hrig_is_written(r, row[i], digest), "position %u of %u\n", i, q->num_tokens);
        if (r->window_pool && i + r->o.window >= q->kv.committed_len)
            CHECKF(hrig_window_is_written(r, row[i], digest), "window at %u of %u\n", i,
                   q->num_tokens);
    }
    if (r->states) hreq_run_state(r, q);
    q->kv.committed_len = q->kv.allocated_len;
    return RAD_OK;
}

static inline void hreq_finish(hrig *r, hreq *q, bool is_insert)
{
    rad_error err = {0};
    if (q->saved) CHECK_OK(rad_state_free(r->states, q->saved));
    q->saved = 0;
    rad_status status = rad_cache_finished_req(r->cache, &q->kv, is_insert, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    q->live = false;
}

/* A whole life; returns how many tokens were cached, all tiers. */
static inline uint32_t hrig_serve(hrig *r, hreq *q)
{
    rad_error err = {0};
    CHECK_OK(hreq_admit(r, q));
    uint32_t cached = q->kv.allocated_len;
    CHECK_OK(hreq_extend(r, q));
    rad_status status = hreq_forward(r, q);
    if (status) {
        hreq_finish(r, q, false);
        return 0;
    }
    status = rad_cache_unfinished_req(r->cache, &q->kv, 0, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    hreq_put_state(r, q);
    hreq_finish(r, q, true);
    return cached;
}

static inline void hrig_check(const hrig *r, hreq *const *reqs, uint32_t count)
{
    rad_error err = {0};
    const rad_req_kv *records[64];
    uint32_t n = 0;
    rad_req_kv saved[64]; /* what a request is about to hang in it holds, too */
    for (uint32_t i = 0; i < count; i++) {
        if (!reqs[i]->live) continue;
        records[n++] = &reqs[i]->kv;
        if (!reqs[i]->saved) continue;
        saved[n] = (rad_req_kv){.state = reqs[i]->saved};
        records[n] = &saved[n];
        n++;
    }
    rad_status status = rad_cache_check(r->cache, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    status = rad_cache_check_ownership(r->cache, records, n, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
}

/* Runs or awaits all that is under way, until nothing is. */
static inline void hrig_settle(hrig *r)
{
    for (int i = 0; i < 10000 && hrig_stats(r).tickets; i++) {
        if (r->params.deterministic)
            (void)hi_pump(r->cache, 0);
        else
            (void)rad_hicache_wait(r->cache, 1000000000); /* a fetch of nobody's too */
        CHECK_OK(rad_cache_poll(r->cache));
    }
}

/* Nothing runs: no ticket is out, and every page is free or cached. */
static inline void hrig_check_idle(hrig *r)
{
    hrig_settle(r);
    hrig_check(r, NULL, 0);
    rad_hicache_stats s = hrig_stats(r);
    char text[2048];
    CHECK_OK(hi_describe(r->cache, text, sizeof text));
    CHECKF(s.tickets == 0 && s.prefetch_reserved_tokens == 0, "%u tickets\n%s", s.tickets, text);
    CHECK(s.host_used_tokens == s.host_cached_tokens);
    CHECK(s.host_window_used_tokens == s.host_window_cached_tokens);
    CHECK(s.host_used_states == s.host_cached_states);
    CHECK(rad_cache_state_protected_size(r->cache) == 0);
    CHECK(!r->states || rad_state_available(r->states) + rad_cache_state_evictable_size(r->cache) ==
                            rad_state_pool_num_states(r->states));
    CHECK(rad_cache_window_protected_size(r->cache) == 0);
    CHECK(rad_kv_window_available_pages(r->kv) * (uint64_t)r->ps +
              rad_cache_window_evictable_size(r->cache) ==
          (uint64_t)rad_kv_window_num_pages(r->kv) * r->ps);
    CHECK(rad_cache_protected_size(r->cache) == 0);
    CHECK(rad_kv_available_size(r->kv) + rad_cache_total_size(r->cache) ==
          (uint64_t)rad_kv_num_pages(r->kv) * r->ps);
    hrig_check_bytes(r);
}

/* The end of a test. */
static inline void hrig_end(hrig *r)
{
    hrig_check_idle(r);
    hrig_stop(r, false);
}

/* By the options in r->o, which may have been changed: everything is in the store, and nothing
 * anywhere else. */
static inline void hrig_restart(hrig *r)
{
    hrig_check_idle(r);
    hrig_stop(r, true);
    hrig old = *r;
    hrig_start(r, &old.o, &old);
}

#endif
