/* test_hicache_pages.c - pages of MHA and MLA pools on their way through the tiers, byte for byte.
 *
 * runner_fake computes prompts; what it stores for a token follows from the tokens alone. So for
 * every page that any tier has, the test knows each byte: it is compared on the device, on the
 * host after demotion, on the device after load_back, in the store, and again on both after a
 * fetch into tiers that were forgotten. */
#include "test.h"

#include <radish/hicache.h>

#include "cache/radix_cache.h"
#include "gear/runner_fake.h"
#include "gear/storage_mem.h"
#include "hicache/hiradix_impl.h"
#include "mem/host_kv_pool.h"

enum { TOKENS = 200, ROW_TOKENS = 256, VOCAB = 100, PROMPTS = 3, PAGE_BYTES = 4096 };

typedef struct world {
    runner *fake;
    rad_token_to_kv_pool *pool, *want; /* `want`: a page to write what is expected into */
    rad_kv_allocator *kv;
    rad_req_to_token_pool *rows;
    rad_host_kv_pool *host;
    storage_mem store;
    rad_storage opened;
    rad_cache *cache;
    uint32_t ps;
    rad_token prompts[PROMPTS][TOKENS + 1];
    uint64_t compared;
} world;

static rad_token_to_kv_pool *make_pool(const world *w, uint32_t pages)
{
    rad_token_to_kv_pool *pool;
    CHECK_OK(runner_create_pool(w->fake, NULL, RUNNER_ALL_LAYERS, pages, w->ps, &pool, NULL));
    return pool;
}

static void world_init(world *w, bool mla, rad_dtype dtype, uint32_t ps, uint32_t layout,
                       uint32_t policy)
{
    *w = (world){.ps = ps};
    uint32_t device_pages = 800 / ps;
    runner_fake_params fake = {.vocab_size = VOCAB, .mla = mla, .kv_dtype = dtype};
    CHECK_OK(runner_fake_create(NULL, &fake, &w->fake, NULL));
    w->pool = make_pool(w, device_pages);
    w->want = make_pool(w, 1);
    rad_kv_allocator_params kv = {
        .struct_size = sizeof kv, .num_pages = device_pages, .page_size = ps};
    CHECK_OK(rad_kv_allocator_create(NULL, &kv, &w->kv, NULL));
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = 2, .row_tokens = ROW_TOKENS};
    CHECK_OK(rad_req_to_token_pool_create(NULL, &rows, &w->rows, NULL));
    rad_host_kv_pool_params host = {
        .struct_size = sizeof host, .device_pool = w->pool, .layout = layout};
    CHECK_OK(rad_host_kv_pool_create(NULL, &host, &w->host, NULL));
    size_t page_bytes = host_kv_pool_page_bytes(w->host);
    CHECK(page_bytes <= PAGE_BYTES);
    CHECK_OK(storage_mem_init(&w->store, NULL, 1024, RAD_STORAGE_HEADER_BYTES + page_bytes));
    w->opened = storage_mem_open(&w->store);
    rad_storage_identity identity = {.struct_size = sizeof identity,
                                     .model = "runner_fake",
                                     .dtype = dtype,
                                     .kind = mla ? RAD_KV_MLA : RAD_KV_MHA,
                                     .page_size = ps,
                                     .num_layers = 1};
    rad_cache_params tree = {.struct_size = sizeof tree,
                             .page_size = ps,
                             .kv_allocator = w->kv,
                             .req_to_token_pool = w->rows};
    rad_hicache_params p = {.struct_size = sizeof p,
                            .cache = &tree,
                            .host_pool = w->host,
                            .write_policy = policy,
                            .prefetch_policy = RAD_PREFETCH_WAIT_COMPLETE,
                            .prefetch_threshold = 1,
                            .load_back_threshold = 1,
                            .deterministic = 1,
                            .demote_tokens = 1u << 20,
                            .identity = &identity,
                            .storage = &w->opened};
    rad_error err = {0};
    CHECKF(rad_hicache_create(NULL, &p, &w->cache, &err) == RAD_OK, "%s\n", err.text);
    uint64_t state = 11;
    for (int i = 0; i < PROMPTS; i++)
        for (int t = 0; t <= TOKENS; t++)
            w->prompts[i][t] = i && t < TOKENS / 2 ? w->prompts[0][t]
                                                   : (rad_token)(test_random(&state) % VOCAB);
}

static void world_fini(world *w)
{
    CHECK_OK(rad_cache_check(w->cache, NULL));
    rad_cache_destroy(w->cache);
    storage_mem_fini(&w->store);
    rad_host_kv_pool_destroy(w->host);
    rad_kv_allocator_destroy(w->kv);
    rad_req_to_token_pool_destroy(w->rows);
    rad_token_to_kv_pool_destroy(w->pool);
    rad_token_to_kv_pool_destroy(w->want);
    runner_destroy(w->fake);
}

/* The bytes of a page whose first token is tokens[at]. */
static void expected(world *w, const rad_token *tokens, uint32_t at, uint8_t *bytes, size_t size)
{
    uint64_t values[ROW_TOKENS];
    runner_fake_values(tokens, at + w->ps, values);
    for (uint32_t i = 0; i < w->ps; i++)
        runner_fake_store(w->want, 0, (rad_slot)(w->ps + i), values[at + i]);
    CHECK_OK(rad_kv_pool_get_page(w->want, 1, bytes, size));
}

typedef struct walk {
    world *w;
    bool on_host;
    uint32_t ends[16]; /* tokens up to the end of the node of each depth */
    rad_token tokens[ROW_TOKENS];
} walk;

static void compare(void *user, rad_ref node, uint32_t depth, const rad_token *tokens,
                    const rad_slot *slots, uint32_t num_tokens, uint32_t lock_ref,
                    uint32_t hit_count)
{
    walk *k = user;
    world *w = k->w;
    uint32_t at = depth > 1 ? k->ends[depth - 1] : 0;
    size_t size = host_kv_pool_page_bytes(w->host);
    uint8_t want[PAGE_BYTES], got[PAGE_BYTES];
    (void)node;
    (void)lock_ref;
    (void)hit_count;
    CHECK(depth < 16 && at + num_tokens <= ROW_TOKENS);
    memcpy(k->tokens + at, tokens, num_tokens * sizeof *tokens);
    for (uint32_t i = 0; i < num_tokens; i += w->ps) {
        rad_page page = slots[i] / (rad_slot)w->ps;
        expected(w, k->tokens, at + i, want, size);
        if (k->on_host)
            CHECK_OK(host_kv_pool_get_page(w->host, page, got, size));
        else
            CHECK_OK(rad_kv_pool_get_page(w->pool, page, got, size));
        CHECKF(memcmp(want, got, size) == 0, "%s page %d, position %u\n",
               k->on_host ? "host" : "device", page, at + i);
        w->compared++;
    }
    k->ends[depth] = at + num_tokens;
}

/* Each page of both tiers; returns the tokens that the host has. */
static uint64_t compare_all(world *w)
{
    walk k = {.w = w};
    CHECK_OK(rad_cache_walk(hiradix_of(w->cache)->device, compare, &k));
    k.on_host = true;
    CHECK_OK(radix_cache_walk_host(hiradix_of(w->cache)->nodes, compare, &k));
    rad_hicache_stats s;
    CHECK_OK(rad_hicache_get_stats(w->cache, &s));
    return s.host_cached_tokens;
}

static void settle(world *w)
{
    rad_hicache_stats s;
    do {
        CHECK_OK(rad_cache_poll(w->cache));
        (void)hi_pump(w->cache, 0);
        CHECK_OK(rad_hicache_get_stats(w->cache, &s));
    } while (s.tickets);
    CHECK_OK(rad_cache_check(w->cache, NULL));
}

/* Serves a prompt; says how many of its tokens came from where. */
static void serve(world *w, int prompt, uint32_t *device, uint32_t *host)
{
    rad_token *tokens = w->prompts[prompt], next = 0;
    uint32_t n = TOKENS + 1, start = 0, positions[ROW_TOKENS];
    rad_slot loc[ROW_TOKENS];
    rad_match match;
    rad_load_result loaded = {0};
    rad_prefetch ticket;
    rad_key key = {.tokens = tokens, .num_tokens = TOKENS};
    if (rad_hicache_prefetch_start(w->cache, &key, 0, &ticket) == RAD_OK)
        while (rad_hicache_prefetch_progress(w->cache, &ticket, &key, NULL) == RAD_AGAIN)
            CHECK_OK(hi_pump(w->cache, 0));
    rad_req_kv req = {.key = {.tokens = tokens, .num_tokens = n}};
    CHECK_OK(rad_req_to_token_alloc(w->rows, &req.row));
    rad_slot *row = rad_req_to_token_row(w->rows, req.row);
    CHECK_OK(rad_cache_match_prefix(w->cache, &key, row, &match, NULL));
    CHECK_OK(rad_cache_inc_lock_ref(w->cache, match.last_node, &req.lock, NULL));
    req.protected_len = req.committed_len = req.allocated_len = match.prefix_tokens;
    if (match.host_hit_tokens)
        CHECK_OK(rad_hicache_load_back(w->cache, &req, &key, UINT64_MAX, &loaded));
    CHECK(loaded.tokens == match.host_hit_tokens);
    CHECK_OK(rad_hicache_ready_to_load(w->cache));
    uint32_t have = req.allocated_len, extend = n - have, last_token = extend - 1;
    rad_slot last = have ? row[have - 1] : -1;
    CHECK_OK(rad_kv_alloc_extend(w->kv, 1, &have, &n, &last, loc, NULL));
    memcpy(row + have, loc, extend * sizeof *loc);
    for (uint32_t i = 0; i < extend; i++)
        positions[i] = have + i;
    forward_batch batch = {.num_reqs = 1,
                           .num_tokens = extend,
                           .input_ids = tokens + have,
                           .positions = positions,
                           .out_cache_loc = loc,
                           .req_pool_indices = &req.row,
                           .seq_lens = &n,
                           .extend_prefix_lens = &have,
                           .extend_seq_lens = &extend,
                           .extend_start_loc = &start,
                           .num_logits = 1,
                           .logits_indices = &last_token,
                           .req_to_token_pool = w->rows,
                           .token_to_kv_pool = w->pool};
    const float *logits;
    rad_error err = {0};
    CHECKF(runner_forward(w->fake, &batch, &logits, &err) == RAD_OK, "%s\n", err.text);
    for (uint32_t i = 1; i < VOCAB; i++)
        if (logits[i] > logits[next]) next = (rad_token)i;
    CHECK(next == runner_fake_next(VOCAB, tokens, n));
    CHECK_OK(rad_hicache_load_status(w->cache, &req));
    req.committed_len = req.allocated_len = n;
    CHECK_OK(rad_cache_unfinished_req(w->cache, &req, 0, NULL));
    CHECK_OK(rad_cache_finished_req(w->cache, &req, 1, NULL));
    *device = match.prefix_tokens;
    *host = loaded.tokens;
}

/* All prompts, each of which must come from the host as far as it has pages. */
static void served_from_host(world *w)
{
    uint32_t device, host, whole = TOKENS / w->ps * w->ps;
    for (int i = 0; i < PROMPTS; i++) {
        serve(w, i, &device, &host);
        CHECK(device + host == whole && host >= whole / 2 / w->ps * w->ps);
    }
    compare_all(w);
    settle(w);
}

static void through_the_tiers(bool mla, rad_dtype dtype, uint32_t ps, uint32_t layout,
                              uint32_t policy)
{
    static world w;
    uint32_t device, host;
    world_init(&w, mla, dtype, ps, layout, policy);
    for (int times = 0; times < 2; times++) /* write_through_selective wants a hit */
        for (int i = 0; i < PROMPTS; i++)
            serve(&w, i, &device, &host);
    settle(&w);
    uint64_t cached = rad_cache_total_size(w.cache), evicted;
    CHECK(cached >= (PROMPTS + 1) * (uint64_t)(TOKENS / 2 / ps * ps));
    CHECK_OK(rad_cache_evict(w.cache, UINT32_MAX, &evicted, NULL));
    uint64_t on_host = compare_all(&w);
    CHECKF(evicted == cached && on_host >= cached - (uint64_t)PROMPTS * ps, "%llu on the host\n",
           (unsigned long long)on_host);
    served_from_host(&w);

    uint64_t stored = w.store.stats.sets;
    CHECK(stored >= on_host / ps);
    CHECK_OK(rad_hicache_clear(w.cache, RAD_TIER_DEVICE | RAD_TIER_HOST, NULL));
    CHECK(rad_cache_total_size(w.cache) == 0 && compare_all(&w) == 0);
    served_from_host(&w); /* by way of the store */
    rad_hicache_stats s;
    CHECK_OK(rad_hicache_get_stats(w.cache, &s));
    CHECK(s.fetched_tokens + PROMPTS * ps >= on_host && s.bad_pages + s.failed_loads == 0);
    CHECK(w.compared > on_host / ps * 3);
    world_fini(&w);
}

static void all_ways(bool mla)
{
    for (uint32_t policy = RAD_WRITE_THROUGH; policy <= RAD_WRITE_BACK; policy++)
        for (uint32_t ps = 1; ps <= 16; ps *= 16)
            for (uint32_t layout = RAD_HOST_LAYER_FIRST; layout <= RAD_HOST_PAGE_FIRST; layout++)
                for (rad_dtype dtype = RAD_F32; dtype <= RAD_BF16; dtype++)
                    through_the_tiers(mla, dtype, ps, layout, policy);
}

TEST(pages_of_an_mla_pool_are_the_same_on_every_tier)
{
    all_ways(true);
}

TEST(pages_of_an_mha_pool_are_the_same_on_every_tier)
{
    all_ways(false);
}

TEST_MAIN()
