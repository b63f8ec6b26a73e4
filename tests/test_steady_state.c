/* test_steady_state.c - after create, nothing allocates.
 *
 * An engine that sized its cache at the start may rely on it: whatever mix of requests
 * comes, no call but create, destroy and the checkers asks the env for memory or gives it
 * back, and none goes to malloc behind the env. The linker sends the calls of malloc and
 * its kin here (-Wl,--wrap, see CMakeLists.txt), where they are counted while `watching`. */
#include "test.h"

#include <limits.h>
#include <openssl/crypto.h>
#include <radish/radish.h>

#include "hicache_rig.h"

enum { PAGES = 256, ROWS = 8, LONGEST = 300, OPERATIONS = 10000 };

static bool watching;
static long heap_calls;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
int __real_posix_memalign(void **out, size_t alignment, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes);
void __wrap_free(void *memory);

void *__wrap_malloc(size_t bytes)
{
    heap_calls += watching;
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    heap_calls += watching;
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    heap_calls += watching;
    return __real_realloc(memory, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    heap_calls += watching;
    return __real_aligned_alloc(alignment, bytes);
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes)
{
    heap_calls += watching;
    return __real_posix_memalign(out, alignment, bytes);
}

void __wrap_free(void *memory)
{
    heap_calls += watching;
    __real_free(memory);
}

/* libcrypto is a library of its own, and not linked with --wrap: it is given these. */
static void *crypto_malloc(size_t bytes, const char *file, int line)
{
    (void)file, (void)line;
    return malloc(bytes);
}

static void *crypto_realloc(void *memory, size_t bytes, const char *file, int line)
{
    (void)file, (void)line;
    return realloc(memory, bytes);
}

static void crypto_free(void *memory, const char *file, int line)
{
    (void)file, (void)line;
    free(memory);
}

/* The env counts in test_env.allocs, which only counts when it may fail: never, here. */
static rad_env counting_env(test_env *t)
{
    return test_env_failing_at(t, LONG_MAX);
}

typedef struct req {
    rad_req_kv kv;
    rad_token tokens[LONGEST];
    bool live;
} req;

typedef struct world {
    test_env t;
    uint32_t kind, ps;
    uint32_t window; /* tokens; 0: there are none */
    bool keeps;      /* pins and retention */
    rad_kv_allocator *kv;
    rad_req_to_token_pool *rows;
    rad_cache *cache;
    req reqs[ROWS];
    uint64_t seed, state;
    long did[8]; /* operations that really happened, by kind */
} world;

static uint32_t random_below(world *w, uint32_t n)
{
    return (uint32_t)(test_random(&w->state) % n);
}

/* Prompts branch off a few common ones at random places, in three namespaces. */
static uint32_t random_prompt(world *w, rad_token *tokens, rad_key *key)
{
    static const char *const salts[] = {NULL, "alice", "bob"};
    uint32_t len = 2 + random_below(w, LONGEST - 60), common = random_below(w, len);
    rad_token family = (rad_token)random_below(w, 4) * 1000;
    for (uint32_t i = 0; i < len; i++)
        tokens[i] = i < common ? family + (rad_token)i : (rad_token)random_below(w, 50);
    *key = (rad_key){.tokens = tokens, .num_tokens = len, .cache_salt = salts[random_below(w, 3)]};
    return len;
}

static bool reserve(world *w, req *r, uint32_t len)
{
    rad_slot *row = rad_req_to_token_row(w->rows, r->kv.row);
    uint32_t from = r->kv.allocated_len;
    rad_slot last = from ? row[from - 1] : -1;
    if (rad_kv_alloc_extend(w->kv, 1, &from, &len, &last, row + from, NULL) == RAD_FULL) {
        CHECK_OK(rad_cache_evict(w->cache, len - from + w->ps, NULL, NULL));
        if (rad_kv_alloc_extend(w->kv, 1, &from, &len, &last, row + from, NULL)) return false;
    }
    r->kv.allocated_len = len;
    return true;
}

static void finish(world *w, req *r, int is_insert)
{
    CHECK_OK(rad_cache_finished_req(w->cache, &r->kv, is_insert, NULL));
    r->live = false;
    w->did[0]++;
}

static void start(world *w, req *r)
{
    rad_key look;
    rad_match match, looked;
    *r = (req){.live = true};
    look.num_tokens = random_prompt(w, r->tokens, &r->kv.key);
    look = r->kv.key;
    look.num_tokens--;
    CHECK_OK(rad_req_to_token_alloc(w->rows, &r->kv.row));
    rad_slot *row = rad_req_to_token_row(w->rows, r->kv.row);
    rad_explanation why;
    rad_status told = rad_cache_explain(w->cache, &look, &why);
    CHECK(told == (w->kind == RAD_CACHE_CHUNK ? RAD_E_UNSUPPORTED : RAD_OK));
    CHECK_OK(rad_cache_lookup(w->cache, &look, &looked));
    CHECK_OK(rad_cache_match_prefix(w->cache, &look, row, &match, NULL));
    CHECK(looked.prefix_tokens == match.prefix_tokens);
    CHECK_OK(rad_cache_inc_lock_ref(w->cache, match.last_node, &r->kv.lock, NULL));
    r->kv.protected_len = r->kv.committed_len = r->kv.allocated_len = match.prefix_tokens;
    w->did[1]++;
}

/* A chunk of the prompt, or a token behind it. */
static void step(world *w, req *r)
{
    uint32_t len = r->kv.key.num_tokens, left = len - r->kv.committed_len;
    uint32_t to = r->kv.committed_len + (left > 1 ? 1 + random_below(w, left) : left);
    if (to == r->kv.committed_len || !reserve(w, r, to)) {
        finish(w, r, random_below(w, 2) != 0);
        return;
    }
    r->kv.committed_len = to;
    if (left > 1 || random_below(w, 4) == 0) {
        rad_status status = rad_cache_unfinished_req(w->cache, &r->kv, to < len, NULL);
        CHECK(status == RAD_OK || status == RAD_FULL);
        w->did[2] += status == RAD_OK;
    }
    if (to == len && len < LONGEST) {
        r->tokens[len] = (rad_token)random_below(w, 50);
        r->kv.key.num_tokens++;
    }
}

/* Pages from outside, as a tier would bring them: what the tree had is given back. */
static void insert(world *w)
{
    rad_token tokens[LONGEST];
    rad_slot slots[LONGEST];
    rad_page pages[LONGEST];
    rad_key key;
    uint32_t len = random_prompt(w, tokens, &key) / w->ps * w->ps;
    key.num_tokens = len;
    if (!len || rad_kv_alloc(w->kv, pages, len / w->ps)) return;
    for (uint32_t i = 0; i < len; i++)
        slots[i] = pages[i / w->ps] * (rad_slot)w->ps + (rad_slot)(i % w->ps);
    rad_insert_params params = {.priority = (int32_t)random_below(w, 3)};
    rad_inserted in;
    rad_status status = rad_cache_insert(w->cache, &key, slots, &params, &in, NULL);
    CHECK(status == RAD_OK || status == RAD_FULL ||
          (status == RAD_E_UNSUPPORTED && w->kind == RAD_CACHE_CHUNK));
    uint32_t had = status ? len : in.prefix_tokens;
    CHECK_OK(rad_kv_free_group_begin(w->kv));
    CHECK_OK(rad_kv_free_slots(w->kv, slots, had, NULL));
    CHECK_OK(rad_kv_free_group_end(w->kv));
    w->did[3] += status == RAD_OK;
}

/* Wishes to keep a prefix, where the cache was told at create that there may be any. */
static void keep(world *w)
{
    rad_token tokens[LONGEST];
    rad_key key;
    uint32_t pinned = 0, retained = 0;
    random_prompt(w, tokens, &key);
    rad_status status = rad_cache_pin_prefix(w->cache, &key, random_below(w, 3) * 500, &pinned);
    CHECK(status == (w->keeps ? RAD_OK : RAD_E_UNSUPPORTED));
    status = rad_cache_retain_prefix(w->cache, &key, (int32_t)random_below(w, 100), 500, &retained);
    CHECK(status == (w->keeps ? RAD_OK : RAD_E_UNSUPPORTED));
    w->did[7] += pinned && retained;
}

/* A speculative step whose tokens are all refused: its pages come back together. */
static void speculate(world *w)
{
    rad_page pages[4];
    uint32_t before = rad_kv_available_pages(w->kv);
    if (rad_kv_alloc(w->kv, pages, 4) == RAD_OK) {
        w->did[4]++;
        CHECK_OK(rad_kv_free(w->kv, pages, 4, NULL));
    }
    CHECK(rad_kv_available_pages(w->kv) == before);
}

static void operation(world *w)
{
    req *r = &w->reqs[random_below(w, ROWS)];
    uint64_t evicted = 0;
    rad_cache_stats stats;
    switch (random_below(w, 16)) {
    case 0: insert(w); break;
    case 1: speculate(w); break;
    case 2:
        CHECK_OK(rad_cache_evict(w->cache, random_below(w, 3 * w->ps + 1), &evicted, NULL));
        w->did[5] += evicted > 0;
        if (w->window) CHECK_OK(rad_cache_evict_window(w->cache, random_below(w, 40), NULL));
        break;
    case 3:
        CHECK_OK(rad_cache_poll(w->cache));
        rad_cache_get_stats(w->cache, &stats);
        CHECK(rad_cache_evictable_size(w->cache) + rad_cache_protected_size(w->cache) ==
              rad_cache_total_size(w->cache));
        break;
    case 4:
        if (random_below(w, 20) == 0) { /* everybody leaves, everything is forgotten */
            for (int i = 0; i < ROWS; i++)
                if (w->reqs[i].live) finish(w, &w->reqs[i], 1);
            CHECK_OK(rad_cache_reset(w->cache));
            CHECK(rad_kv_available_pages(w->kv) == PAGES);
            w->did[6]++;
            break;
        }
        /* fall through */
    case 5:
        if (random_below(w, 4) == 0) {
            keep(w);
            break;
        }
        /* fall through */
    default:
        if (!r->live)
            start(w, r);
        else
            step(w, r);
        if (w->window && r->live && r->kv.committed_len > w->window)
            CHECK_OK(
                rad_cache_release_window(w->cache, &r->kv, r->kv.committed_len - w->window, NULL));
    }
}

static void run(rad_cache_params params, uint32_t need_sort)
{
    uint32_t kind = params.kind, ps = params.page_size;
    static world w;
    w = (world){.kind = kind,
                .ps = ps,
                .window = params.window_tokens,
                .keeps = params.retention,
                .seed = test_seed()};
    w.state = w.seed;
    rad_env env = counting_env(&w.t);
    rad_kv_allocator_params kv = {.struct_size = sizeof kv,
                                  .num_pages = PAGES,
                                  .page_size = ps,
                                  .need_sort = need_sort,
                                  .swa_num_pages = params.window_tokens ? PAGES : 0};
    rad_req_to_token_pool_params rows = {sizeof rows, ROWS, LONGEST};
    CHECK_OK(rad_kv_allocator_create(&env, &kv, &w.kv, NULL));
    CHECK_OK(rad_req_to_token_pool_create(&env, &rows, &w.rows, NULL));
    params.struct_size = sizeof params;
    params.kv_allocator = w.kv;
    params.req_to_token_pool = w.rows;
    CHECK_OK(rad_cache_create(&env, &params, &w.cache, NULL));

    long allocs = w.t.allocs, calls = heap_calls;
    size_t bytes = w.t.bytes;
    CHECK(allocs > 0 && bytes > 0); /* the count counts */
    watching = true;
    for (int i = 0; i < OPERATIONS && w.t.allocs == allocs && heap_calls == calls; i++)
        operation(&w);
    watching = false;
    CHECKF(w.t.allocs == allocs && w.t.bytes == bytes, "%ld allocations, %zd bytes; seed %llu\n",
           w.t.allocs - allocs, (ssize_t)(w.t.bytes - bytes), (unsigned long long)w.seed);
    CHECKF(heap_calls == calls, "%ld calls of malloc or free behind the env; seed %llu\n",
           heap_calls - calls, (unsigned long long)w.seed);

    /* It was a mix, and it ended in good order. */
    CHECKF(!w.keeps == !w.did[7], "%ld kept, seed %llu\n", w.did[7], (unsigned long long)w.seed);
    for (int i = 0; i < 7; i++)
        CHECKF(w.did[i] > 0 || (kind == RAD_CACHE_CHUNK && i != 0 && i != 1),
               "nothing of kind %d, "
               "seed %llu\n",
               i, (unsigned long long)w.seed);
    for (int i = 0; i < ROWS; i++)
        if (w.reqs[i].live) finish(&w, &w.reqs[i], 1);
    rad_error err = {0};
    CHECKF(rad_cache_check_ownership(w.cache, NULL, 0, &err) == RAD_OK, "%s, seed %llu\n", err.text,
           (unsigned long long)w.seed);
    rad_cache_destroy(w.cache);
    rad_req_to_token_pool_destroy(w.rows);
    rad_kv_allocator_destroy(w.kv);
    CHECK(w.t.bytes == 0);
}

TEST(requests_through_a_radix_cache)
{
    for (uint32_t ps = 1; ps <= 16; ps *= 4)
        for (uint32_t need_sort = 0; need_sort < 2; need_sort++)
            run((rad_cache_params){.page_size = ps}, need_sort);
}

/* Metadata so short that nodes are merged and evicted for it all the time. */
TEST(requests_through_a_radix_cache_with_few_nodes)
{
    run((rad_cache_params){.page_size = 4, .max_nodes = 24}, 0);
}

static uint64_t youngest_first(void *user, const rad_evict_facts *facts)
{
    (void)user;
    return UINT64_MAX - facts->created;
}

TEST(every_policy_with_pins_and_retention)
{
    for (uint32_t policy = RAD_EVICT_LRU; policy <= RAD_EVICT_USER; policy++)
        run((rad_cache_params){.page_size = 4,
                               .eviction = {.policy = policy},
                               .evict_key = policy == RAD_EVICT_USER ? youngest_first : NULL,
                               .max_pinned_tokens = 200,
                               .retention = 1},
            0);
}

/* Names are hashed where pages of a namespace come and go; prompts have them. */
TEST(hashes_events_and_explanations)
{
    CHECK(CRYPTO_set_mem_functions(crypto_malloc, crypto_realloc, crypto_free) == 1);
    for (uint32_t ps = 1; ps <= 16; ps *= 4)
        run((rad_cache_params){.page_size = ps,
                               .enable_page_hashes = 1,
                               .enable_kv_events = ps > 1,
                               .explain_pages = 100,
                               .explain_namespaces = 1},
            0);
    run((rad_cache_params){.page_size = 1, .explain_pages = 100}, 0);

    /* It is counted: this takes memory in libcrypto. */
    rad_storage_identity id = {.struct_size = sizeof id, .model = "m"};
    rad_storage_fingerprint print;
    rad_storage_key key;
    rad_page_hash page = {{7}};
    long calls = heap_calls;
    watching = true;
    rad_status status = rad_storage_fingerprint_of(&id, &print, NULL);
    long taken = heap_calls - calls;
    calls = heap_calls;
    if (!status) status = rad_storage_key_of(&print, &page, &key);
    watching = false;
    CHECK(!status && taken > 0 && heap_calls == calls);
}

TEST(requests_through_a_radix_cache_with_windows)
{
    for (uint32_t ps = 1; ps <= 16; ps *= 4)
        run((rad_cache_params){.page_size = ps, .window_tokens = 20}, ps == 4);
    run((rad_cache_params){.page_size = 4, .window_tokens = 20, .max_nodes = 24}, 0);
}

TEST(requests_through_a_chunk_cache)
{
    run((rad_cache_params){.kind = RAD_CACHE_CHUNK, .page_size = 4}, 0);
}

TEST(a_window_allocator_and_its_pool)
{
    enum { PAGE = 8, LEN = 64, LAYERS = 2, WIDTH = 32 };
    test_env t;
    rad_env env = counting_env(&t);
    rad_kv_allocator_params params = {
        .struct_size = sizeof params, .num_pages = 64, .page_size = PAGE, .swa_num_pages = 32};
    rad_kv_allocator *a = NULL;
    CHECK_OK(rad_kv_allocator_create(&env, &params, &a, NULL));
    for (uint32_t dtype = RAD_F32; dtype <= RAD_I8; dtype++) {
        rad_token_to_kv_pool_params kv = {.struct_size = sizeof kv,
                                          .num_pages = 64,
                                          .page_size = PAGE,
                                          .num_layers = LAYERS,
                                          .num_kv_heads = 2,
                                          .head_dim = WIDTH / 2,
                                          .dtype = dtype};
        rad_token_to_kv_pool *pool = NULL;
        CHECK_OK(rad_token_to_kv_pool_create(&env, &kv, &pool, NULL));
        size_t page_bytes = PAGE * rad_kv_pool_bytes_per_token(&kv);
        unsigned char *copy = malloc(page_bytes);
        CHECK(copy);

        long allocs = t.allocs, calls = heap_calls;
        size_t bytes = t.bytes;
        watching = true;
        for (int i = 0; i < 300; i++) {
            uint32_t prefix = 0, len = LEN;
            rad_slot last = -1, slots[LEN + 1];
            float k[LEN * WIDTH], v[LEN * WIDTH];
            CHECK_OK(rad_kv_alloc_extend(a, 1, &prefix, &len, &last, slots, NULL));
            for (int n = 0; n < LEN * WIDTH; n++)
                k[n] = v[n] = (float)(n + i) / 64.0f;
            for (uint32_t layer = 0; layer < LAYERS; layer++) {
                rad_kv_pool_set_kv_buffer(pool, layer, slots, LEN, k, v);
                CHECK_OK(rad_kv_pool_get_kv(pool, layer, slots, LEN, k, v));
            }
            rad_page page = slots[0] / PAGE;
            CHECK_OK(rad_kv_pool_get_page(pool, page, copy, page_bytes));
            CHECK_OK(rad_kv_pool_set_page(pool, page, copy, page_bytes));
            CHECK_OK(rad_kv_free_window(a, &page, 1, NULL));
            CHECK(!rad_kv_has_window(a, page) && rad_kv_has_window(a, slots[PAGE] / PAGE));
            len = LEN + 1;
            CHECK_OK(rad_kv_alloc_decode(a, 1, &len, &slots[LEN - 1], &slots[LEN], NULL));
            CHECK_OK(rad_kv_free_slots(a, slots, LEN + 1, NULL));
        }
        watching = false;
        CHECK(t.allocs == allocs && t.bytes == bytes && heap_calls == calls);
        free(copy);
        rad_token_to_kv_pool_destroy(pool);
    }
    rad_kv_allocator_destroy(a);
    CHECK(t.bytes == 0);
}

/* Over two tiers: written, evicted, loaded, cancelled, whatever the order. */
TEST(pages_that_go_to_the_host_and_come_back)
{
    uint64_t rng = 4;
    for (uint32_t page = 1; page <= 16; page += 15) {
        static hrig r;
        static hreq q;
        hrig_options o = {.page_size = page,
                          .device_pages = 320 / page,
                          .host_pages = 640 / page,
                          .no_threads = true,
                          .layout = page > 1};
        o.tiers.write_policy = page > 1 ? RAD_WRITE_BACK : RAD_WRITE_THROUGH;
        hrig_start(&r, &o, NULL);
        uint64_t loaded = 0;
        for (int i = 0; i < 600; i++) {
            long calls = heap_calls;
            uint32_t len = 20 + (uint32_t)(test_random(&rng) % 200);
            q = (hreq){0};
            hreq_ask(&q, 0, len, 1000 * (rad_token)(test_random(&rng) % 12));
            watching = true;
            bool leaves = test_random(&rng) % 5 == 0;
            rad_status status = leaves ? hreq_admit(&r, &q) : RAD_OK;
            if (leaves && !status) {
                CHECK_OK(rad_hicache_ready_to_load(r.cache));
                hreq_finish(&r, &q, false);
            } else if (!leaves) {
                hrig_serve(&r, &q);
            }
            (void)hi_pump(r.cache, test_random(&rng));
            CHECK_OK(rad_cache_poll(r.cache));
            watching = false;
            CHECK(heap_calls == calls);
            loaded = hrig_stats(&r).loaded_tokens;
        }
        CHECK(loaded > 0);
        hrig_end(&r);
    }
}

/* The watch sees what it is there to see: a checker may use scratch memory, and does. */
TEST(the_watch_is_awake)
{
    test_env t;
    rad_env env = counting_env(&t);
    rad_kv_allocator_params params = {sizeof params, 10, 1, 0, 0};
    rad_kv_allocator *a = NULL;
    CHECK_OK(rad_kv_allocator_create(NULL, &params, &a, NULL));
    long calls = heap_calls;
    watching = true;
    rad_status status = rad_kv_check(a, NULL); /* malloc and free, through the default env */
    watching = false;
    CHECK(status == RAD_OK && heap_calls == calls + 2);
    rad_kv_allocator_destroy(a);
    CHECK_OK(rad_kv_allocator_create(&env, &params, &a, NULL));
    long allocs = t.allocs;
    CHECK_OK(rad_kv_check(a, NULL));
    CHECK(t.allocs == allocs + 1);
    rad_kv_allocator_destroy(a);
}

TEST_MAIN()
