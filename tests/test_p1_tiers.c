/* test_p1_tiers.c - promise P1 with tiers: every row of logits is, bit by bit, the one of a run
 * without a cache, when the device pool holds an eighth of the working set and the rest comes
 * back from the host, from files or from a Redis Cluster, across a restart.
 *
 *     cells    write policy (3) x page size 1, 16 x f32, bf16 x host only, file, cluster
 *     plan     a forest of prompts; its distinct tokens are the working set
 *     cell     all of the plan once, then any of it, and forks of what was answered
 *              -> everything ends, conservation on all tiers
 *              -> scheduler, pools and store closed; the same again over what is stored
 *
 * make test runs a third of the cells, each pair of values of two axes among them; which third
 * follows from the seed. make test-long runs all of them, longer.
 *
 * Two faults are planted to see the test fail: a byte of a page altered after its load, and
 * one altered in the store under a checksum that fits. */
#define _XOPEN_SOURCE 700 /* nftw; with _GNU_SOURCE there is another group_member */
#define _DEFAULT_SOURCE
#include "gear/kv_buffers.h"
#include "p1_rig.h"
#include "redis_rig.h"

enum { NUM_POLICIES = 3, MOST_PROMPTS = 256, MOST_PROMPT = CONTEXT - MOST_NEW - 1 };
enum { FRACTION = 8 }; /* of the working set, that the device pool has */

typedef enum store_kind { STORE_NONE, STORE_FILE, STORE_CLUSTER, NUM_STORES } store_kind;

static const char *const policy_names[] = {"write_through", "write_through_selective",
                                           "write_back"};
static const char *const store_names[] = {"host only", "file", "redis cluster"};

typedef enum fault { FAULT_NONE, FAULT_LOADED, FAULT_STORED, FAULT_SPOILT } fault;

typedef struct cell {
    uint32_t policy, page_size;
    rad_dtype dtype;
    store_kind store;
    uint32_t window; /* tokens that some or all layers see; 0: none do */
} cell;

/* ---- the plan ---- */

static struct {
    rad_token ids[MOST_PROMPTS][CONTEXT];
    uint32_t len[MOST_PROMPTS];
    uint32_t count;
    uint32_t next; /* not asked yet */
    uint64_t tokens;
} plan;

static uint32_t shared_with_earlier(uint32_t i)
{
    uint32_t most = 0;
    for (uint32_t k = 0; k < i; k++) {
        uint32_t n = 0;
        while (n < plan.len[i] && n < plan.len[k] && plan.ids[i][n] == plan.ids[k][n])
            n++;
        most = RAD_MAX(most, n);
    }
    return most;
}

/* Documents, and forks of any of them at any point, until there are so many distinct tokens. */
static void make_plan(uint64_t tokens)
{
    const uint32_t vocab = w.model->info.vocab_size;
    plan.count = plan.next = 0;
    plan.tokens = 0;
    for (; plan.tokens < tokens && plan.count < MOST_PROMPTS; plan.count++) {
        rad_token *ids = plan.ids[plan.count];
        uint32_t n = 0, from = plan.count ? below(plan.count) : 0;
        if (plan.count && below(4)) {
            n = 1 + below(RAD_MIN(plan.len[from], (uint32_t)MOST_PROMPT - 1));
            memcpy(ids, plan.ids[from], n * sizeof *ids);
        }
        uint32_t own = n ? 1 + below(MOST_PROMPT - n) : 100 + below(MOST_PROMPT - 100);
        for (uint32_t end = n + own; n < end; n++)
            ids[n] = (rad_token)below(vocab);
        plan.len[plan.count] = n;
        plan.tokens += n - shared_with_earlier(plan.count);
    }
}

static uint32_t make_prompt(rad_token *ids)
{
    /* Tiny models compute faster than anything is fetched: with nothing known of what a token
     * costs, a request waits for all that is stored. */
    w.s->cost.most_prompt_tokens = 0;
    if (plan.next >= plan.count && below(4) == 0) { /* an answer and what is said to it */
        uint32_t from = below(KEPT), n = RAD_MIN(w.kept_len[from], (uint32_t)MOST_PROMPT - 4);
        memcpy(ids, w.kept[from], n * sizeof *ids);
        for (uint32_t i = 0; i < 4; i++)
            ids[n++] = (rad_token)below(w.model->info.vocab_size);
        return n;
    }
    uint32_t i = plan.next < plan.count ? plan.next++ : below(plan.count);
    memcpy(ids, plan.ids[i], plan.len[i] * sizeof *ids);
    return plan.len[i];
}

/* ---- stores ---- */

static redis_server servers[6];
static bool has_cluster;

static bool cluster_is_there(void)
{
    if (!redis_is_installed()) return false;
    if (!has_cluster) cluster_start(servers);
    has_cluster = true;
    return true;
}

/* A store around the real one, which alters what it reads. */
typedef struct liar {
    rad_storage real;
    fault fault;
    atomic_uint gets, lies;
} liar;

static rad_status liar_exists(void *self, const rad_storage_batch *b, uint32_t *present,
                              rad_error *err)
{
    liar *l = self;
    return l->real.ops->batch_exists(l->real.self, b, present, err);
}

static rad_status liar_get(void *self, const rad_storage_batch *b, rad_error *err)
{
    liar *l = self;
    rad_status status = l->real.ops->batch_get(l->real.self, b, err);
    for (uint32_t i = 0; i < b->count; i++) {
        uint32_t number = atomic_fetch_add(&l->gets, 1);
        if (!b->done[i] || number % 12) continue;
        rad_storage_record about;
        uint8_t *record = b->records[i];
        CHECK_OK(rad_storage_peek(record, &about, NULL));
        record[RAD_STORAGE_HEADER_BYTES + number % about.payload_bytes] ^= 0x80;
        if (l->fault == FAULT_STORED) rad_storage_seal(record, &about);
        atomic_fetch_add(&l->lies, 1);
    }
    return status;
}

static rad_status liar_set(void *self, const rad_storage_batch *b, rad_error *err)
{
    liar *l = self;
    return l->real.ops->batch_set(l->real.self, b, err);
}

static void liar_close(void *self)
{
    liar *l = self;
    l->real.ops->close(l->real.self);
}

static const rad_storage_ops liar_ops = {.struct_size = sizeof liar_ops,
                                         .name = "liar",
                                         .batch_exists = liar_exists,
                                         .batch_get = liar_get,
                                         .batch_set = liar_set,
                                         .close = liar_close};

/* ---- a page altered after its load ---- */

/* Waits for the load of a request of this step as its attention would, then flips a bit: a sign, an
 * exponent's or a mantissa's, but nothing that makes it infinite. */
static void spoil_loaded(forward_batch *b)
{
    for (uint32_t i = 0; i < b->num_reqs; i++) {
        const req *r = w.s->batch.reqs[i];
        if (!r->kv.load || !r->hits.loaded) continue; /* a later admission loads uncounted */
        rad_token_to_kv_pool *pool = w.s->pools.token_to_kv_pool;
        const rad_token_to_kv_pool_params *p = rad_kv_pool_params(pool);
        for (uint32_t layer = 0; layer < p->num_layers; layer++)
            (void)kv_key_buffer(pool, p->start_layer + layer);
        uint8_t bytes[4096];
        size_t size = rad_kv_pool_bytes_per_token(p);
        CHECK(size <= sizeof bytes);
        uint32_t end = r->kv.committed_len, at = end - 1 - below(r->hits.loaded);
        rad_slot slot = rad_req_to_token_row(w.s->pools.req_to_token_pool, r->kv.row)[at];
        CHECK_OK(rad_kv_pool_get_cpu_copy(pool, &slot, 1, bytes, size));
        bytes[below((uint32_t)size)] ^= 0x80;
        CHECK_OK(rad_kv_pool_load_cpu_copy(pool, &slot, 1, bytes, size));
        w.faults++;
        return;
    }
}

/* ---- a cell ---- */

typedef struct cell_run {
    cell cell;
    fault fault;
    uint32_t histories; /* in each life, besides the plan */
    char dir[64];       /* of the file store */
    char prefix[64];    /* of the cluster's names */
    liar liar;
    rad_storage store;
    uint64_t pages_stored;
    scheduler_params params;
    rad_host_kv_pool_params host;
    rad_hicache_params tiers;
    rad_storage_identity identity;

    uint64_t loaded[2], fetched[2], bad_pages; /* in the first life, after it */
    uint64_t windows;                          /* loaded of the window side */
    uint64_t states;                           /* and of states */
} cell_run;

static void open_store(cell_run *c)
{
    c->tiers.storage = NULL;
    if (c->cell.store == STORE_NONE) return;
    if (c->cell.store == STORE_FILE)
        c->store = rig_open(c->dir, (uint64_t)1 << 30);
    else
        c->store = redis_open(servers[below(3)].port,
                              (rad_storage_redis_params){.prefix = c->prefix,
                                                         .timeout_ms = 20000,
                                                         .connect_timeout_ms = 20000},
                              NULL);
    if (c->fault == FAULT_STORED || c->fault == FAULT_SPOILT) {
        c->liar = (liar){.real = c->store, .fault = c->fault};
        c->store = (rad_storage){.ops = &liar_ops, .self = &c->liar};
    }
    c->tiers.storage = &c->store;
}

static void check_is_0(const char *what, uint64_t count)
{
    CHECKF(count == 0, "%s, seed %llu: %llu %s\n", w.what, (unsigned long long)w.seed,
           (unsigned long long)count, what);
}

/* On each tier what is there is free or cached, and nothing is held. */
static void check_conservation(cell_run *c)
{
    rad_hicache_stats t;
    scheduler_stats s;
    for (int i = 0; i < 20000 && scheduler_has_background(w.s); i++)
        scheduler_step(w.s);
    CHECK_OK(rad_hicache_drain(w.s->pools.tree_cache, (uint64_t)20 * 1000000000));
    CHECK(!scheduler_has_background(w.s));
    rad_error err = {0};
    rad_status status = scheduler_check(w.s, &err);
    CHECKF(status == RAD_OK, "%s: %s\n", w.what, err.text);
    scheduler_get_stats(w.s, &s);
    check_is_0("calls of the cache that failed", s.kv_errors);
    check_is_0("tokens held", s.held_tokens);
    check_is_0("tokens protected", s.protected_tokens);
    check_is_0("loads lost", s.lost_loads);
    CHECK(s.available_tokens + s.evictable_tokens == s.max_total_tokens);
    CHECK(s.window_available_tokens + s.window_evictable_tokens == s.window_total_tokens);
    CHECK(!s.window_total_tokens == !c->cell.window);
    t = s.tiers;
    CHECK(t.tickets == 0 && t.prefetch_reserved_tokens == 0 && t.device_holds == 0);
    CHECK(t.host_used_tokens == t.host_cached_tokens && t.host_cached_tokens <= t.host_tokens);
    CHECK(t.host_window_used_tokens == t.host_window_cached_tokens);
    CHECK(t.host_used_states == t.host_cached_states);
    CHECK(s.states_available + s.states_evictable == s.states_total);
    c->states += t.loaded_states;
    c->windows += t.loaded_window_tokens;
    CHECK(t.storage_errors == 0 && t.failed_loads == 0 && t.failed_writes == 0);
    CHECK(c->fault == FAULT_SPOILT || t.bad_pages == 0);
    c->bad_pages += t.bad_pages;
    if (c->cell.store != STORE_FILE || c->fault >= FAULT_STORED) return;
    rad_storage_stats st = rig_stats(c->store); /* what it acknowledged is what it has */
    CHECK(st.errors == 0 && st.evicted == 0 && st.quarantined == 0);
    CHECK(st.pages == c->pages_stored + st.sets);
    const uint64_t of_states = 2 * t.backed_up_states; /* each a record and a mark */
    CHECK(st.sets * c->cell.page_size <= t.backed_up_tokens + t.backed_up_window_tokens +
                                             of_states * c->cell.page_size);
    c->pages_stored = st.pages;
}

static void live(cell_run *c, int life)
{
    open_store(c);
    if (c->cell.store == STORE_FILE && c->fault < FAULT_STORED)
        CHECK(rig_stats(c->store).pages == c->pages_stored);
    witness_scheduler(&c->params);
    memset(w.kept_len, 0, sizeof w.kept_len);
    plan.next = 0;
    for (uint32_t left = plan.count + c->histories, n; left; left -= n) {
        n = 1 + below(12); /* few at a time, and at times none */
        n = RAD_MIN(n, left);
        run_histories(n);
    }
    check_conservation(c);
    scheduler_stats st;
    scheduler_get_stats(w.s, &st);
    CHECK(st.evicted_tokens > 0);
    c->loaded[life] += st.loaded_tokens;
    c->fetched[life] += st.fetched_tokens;
    scheduler_destroy(w.s);
    if (c->tiers.storage) c->store.ops->close(c->store.self);
}

/* Whether all has been seen that a cell is there for. */
static bool came_about(const cell_run *c)
{
    if (c->cell.window && !c->windows) return false;
    if (w.states && !c->states) return false;
    if (c->fault == FAULT_SPOILT && !c->bad_pages) return false;
    if (c->fault != FAULT_SPOILT && c->cell.store && !c->fetched[1]) return false;
    if (w.wrong_is_meant && !w.wrong) return false;
    return c->loaded[0] + c->loaded[1] > 0;
}

static void run_cell(const gguf_file *file, const char *model, cell what, fault f,
                     uint32_t histories)
{
    static uint32_t number;
    cell_run c = {.cell = what, .fault = f, .histories = histories};
    witness_start(file, model, what.dtype, what.dtype);
    snprintf(w.what, sizeof w.what, "%s %s page %u %s %s", model, policy_names[what.policy],
             what.page_size, kv_dtype_name(what.dtype), store_names[what.store]);
    w.make_prompt = make_prompt;
    w.drafts = below(4) == 0 || witness_nextn;
    w.abort_every = 200; /* steps that wait for a fetch are many */
    w.wrong_is_meant = f == FAULT_LOADED || f == FAULT_STORED;
    if (f == FAULT_LOADED) w.before = spoil_loaded;
    make_plan(FRACTION * (CONTEXT + 32 + below(CONTEXT)));
    rig_dir(c.dir);
    snprintf(c.prefix, sizeof c.prefix, "p1-%ld-%u:", (long)getpid(), number++);

    c.identity = (rad_storage_identity){.struct_size = sizeof c.identity,
                                        .model = w.what,
                                        .dtype = what.dtype,
                                        .page_size = what.page_size};
    c.host = (rad_host_kv_pool_params){.struct_size = sizeof c.host,
                                       .layout = below(2),
                                       /* a store gets what a small host cannot keep */
                                       .ratio = what.store ? 1.5 + below(3) : 3 + below(6)};
    c.tiers = (rad_hicache_params){.struct_size = sizeof c.tiers,
                                   .write_policy = what.policy,
                                   .prefetch_policy = RAD_PREFETCH_WAIT_COMPLETE,
                                   .prefetch_threshold = 32,
                                   .recheck_ns = below(2) ? 1000000 : 0};
    if (what.store) c.tiers.identity = &c.identity;
    c.params = witness_params(what.page_size, plan.tokens / FRACTION);
    c.params.hicache = &c.tiers;
    c.params.host_pool = &c.host;
    if (what.window) c.params.window_total_tokens = 3 * what.window + 100 + below(200);
    enum { MOST_LIVES = 30 }; /* a few histories may all find on the device what they want */
    for (int i = 0; i < 2 || (i < MOST_LIVES && !came_about(&c)); i++)
        live(&c, i > 0);

    print_message("  %s%s: pool %llu of %llu tokens, %llu rows of logits, %llu differ; loaded %llu "
                  "and %llu, of them from the store %llu and %llu\n",
                  w.what,
                  f == FAULT_LOADED   ? ", loads altered"
                  : f == FAULT_STORED ? ", records forged"
                  : f == FAULT_SPOILT ? ", records spoilt"
                                      : "",
                  (unsigned long long)c.params.max_total_tokens, (unsigned long long)plan.tokens,
                  (unsigned long long)w.rows_checked, (unsigned long long)w.wrong,
                  (unsigned long long)c.loaded[0], (unsigned long long)c.loaded[1],
                  (unsigned long long)c.fetched[0], (unsigned long long)c.fetched[1]);
    CHECK(!what.window || c.windows > 0);
    CHECK(!w.states == !c.states);
    CHECKF(c.loaded[0] + c.loaded[1] > 0, "%s, seed %llu: nothing was loaded\n", w.what,
           (unsigned long long)w.seed);
    CHECKF(!what.store || f == FAULT_SPOILT || c.fetched[1] > 0,
           "%s, seed %llu: nothing of what was stored came back after the restart\n", w.what,
           (unsigned long long)w.seed);
    if (f == FAULT_STORED || f == FAULT_SPOILT) w.faults = atomic_load(&c.liar.lies);
    CHECK(!f == !w.faults);
    if (f == FAULT_SPOILT) CHECK(c.bad_pages > 0);
    if (w.wrong_is_meant)
        CHECKF(w.wrong > 0, "%s, seed %llu: %llu altered pages were not noticed\n", w.what,
               (unsigned long long)w.seed, (unsigned long long)w.faults);
    else
        CHECK(w.wrong == 0);
    rig_remove_dir(c.dir);
    witness_end();
}

/* ---- the cross ---- */

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SLOW = 1 }; /* twentyfold: a cell of each store, and of each fault */
#else
enum { SLOW = 0 };
#endif

static uint32_t num_histories(void)
{
    return SLOW ? 2 : (uint32_t)test_scale(16, 600);
}

/* One for the whole run: which cells it has follows from it. */
static uint64_t fix_seed(void)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)test_seed());
    setenv("RADISH_TEST_SEED", text, 0);
    print_message("RADISH_TEST_SEED=%s\n", getenv("RADISH_TEST_SEED"));
    return test_seed();
}

/* The cells of a store. In a third of them each value of an axis meets each of another. */
static void run_cross(store_kind store)
{
    static const rad_dtype dtypes[] = {RAD_F32, RAD_BF16};
    uint64_t seed = fix_seed();
    bool all = !SLOW && test_scale(0, 1) != 0;
    for (int m = 0; m < 2; m++) {
        tiny_writer writer;
        gguf_file *file = p1_open(m ? &p1_qwen3 : &p1_llama, &writer);
        for (uint32_t i = 0; i < NUM_POLICIES * 4; i++) {
            cell what = {.policy = i / 4,
                         .page_size = i % 2 ? 16 : 1,
                         .dtype = dtypes[i / 2 % 2],
                         .store = store};
            uint32_t sum = what.policy + i % 2 + i / 2 % 2 + (uint32_t)store;
            if (!all && (sum % 3 != seed % 3 || (int)(i % 2) != m)) continue;
            if (SLOW && i % 2 != (uint32_t)store % 2) continue;
            if (SLOW && i / 2 % 2 != seed / 3 % 2) continue;
            run_cell(file, m ? "qwen3" : "llama", what, FAULT_NONE, num_histories());
        }
        gguf_close(file);
        tiny_model_fini(&writer);
    }
}

TEST(the_host_gives_back_the_bits_of_no_cache)
{
    run_cross(STORE_NONE);
}

/* Half of the layers see a window, or all of them: of each model a policy, a page size and a dtype,
 * or all of them. */
static void run_windows(store_kind store)
{
    static const rad_dtype dtypes[] = {RAD_F32, RAD_BF16};
    uint64_t seed = fix_seed();
    bool all = !SLOW && test_scale(0, 1) != 0;
    for (uint32_t m = 0; m < RAD_COUNT(p1_windowed); m++) {
        if (SLOW && !test_scale(0, 1) && (m + seed + (uint32_t)store) % RAD_COUNT(p1_windowed) > 1)
            continue;
        tiny_writer writer;
        gguf_file *file = p1_open(&p1_windowed[m], &writer);
        for (uint32_t i = 0; i < NUM_POLICIES * 4; i++) {
            cell what = {.policy = i / 4,
                         .page_size = i % 2 ? 16 : 1,
                         .dtype = dtypes[i / 2 % 2],
                         .store = store,
                         .window = p1_windowed[m].window};
            if (all || i % 12 == (seed + 5 * m) % 12 || (!store && i % 12 == (seed + m) % 12))
                run_cell(file, p1_windowed[m].arch, what, FAULT_NONE,
                         SLOW ? 4 : (uint32_t)test_scale(34, 300));
        }
        gguf_close(file);
        tiny_model_fini(&writer);
    }
}

/* What recurrent layers carry, with a policy, page size and dtype of each model, or all of them. */
static void run_recurrent(store_kind store)
{
    uint64_t seed = fix_seed();
    bool all = !SLOW && test_scale(0, 1) != 0;
    for (uint32_t m = 0; m < RAD_COUNT(p1_recurrent); m++) {
        const uint32_t every = all ? 1 : SLOW && !test_scale(0, 1) ? RAD_COUNT(p1_recurrent) : 2;
        if ((m + seed + (uint32_t)store) % every) continue;
        tiny_writer writer;
        tiny_model model = p1_recurrent[m];
        model.nextn_knows = tiny_is(&model, "qwen35 qwen35moe");
        model.nextn = model.nextn_knows;
        gguf_file *file = p1_open(&model, &writer);
        for (uint32_t i = 0; i < NUM_POLICIES * 2; i++) {
            cell what = {.policy = i / 2,
                         .page_size = (i + m + seed) % 2 ? 16 : 1,
                         .dtype = (i + seed / 2) % 2 ? RAD_BF16 : RAD_F32,
                         .store = store};
            witness_nextn = model.nextn && i % 2;
            if (all || i % 6 == (seed + m) % 6)
                run_cell(file, model.arch, what, FAULT_NONE,
                         SLOW ? 4 : (uint32_t)test_scale(34, 300));
        }
        witness_nextn = false;
        gguf_close(file);
        tiny_model_fini(&writer);
    }
}

TEST(the_host_gives_states_back_as_they_were)
{
    run_recurrent(STORE_NONE);
}

TEST(files_give_states_back_after_a_restart)
{
    run_recurrent(STORE_FILE);
}

TEST(the_host_gives_windows_back_as_they_were)
{
    run_windows(STORE_NONE);
}

TEST(files_give_windows_back_after_a_restart)
{
    run_windows(STORE_FILE);
}

/* One row for all heads, which has no V of its own: to the host, to files, and back. With the layer
 * of a head that guesses, in half of the cells. */
TEST(latent_rows_come_back_as_they_were)
{
    static const store_kind stores[] = {STORE_NONE, STORE_FILE};
    uint64_t seed = fix_seed();
    tiny_writer writer;
    tiny_model model = p1_latent;
    model.nextn = model.nextn_knows = true;
    gguf_file *file = p1_open(&model, &writer);
    for (uint32_t i = 0; i < NUM_POLICIES * 2; i++) {
        if (SLOW && !test_scale(0, 1) && i % NUM_POLICIES != seed % NUM_POLICIES) continue;
        cell what = {.policy = i / 2,
                     .page_size = (i + seed) % 2 ? 16 : 1,
                     .dtype = i % 2 ? RAD_BF16 : RAD_F32,
                     .store = stores[(i + seed / 2) % 2]};
        witness_nextn = (i + seed / 4) % 2;
        run_cell(file, p1_latent.arch, what, FAULT_NONE, SLOW ? 4 : (uint32_t)test_scale(34, 300));
    }
    witness_nextn = false;
    gguf_close(file);
    tiny_model_fini(&writer);
}

TEST(files_give_back_the_bits_of_no_cache_after_a_restart)
{
    run_cross(STORE_FILE);
}

TEST(a_redis_cluster_gives_back_the_bits_of_no_cache_after_a_restart)
{
    SKIP_UNLESS(cluster_is_there(), "no redis-server");
    run_cross(STORE_CLUSTER);
    cluster_end(servers);
    has_cluster = false;
}

/* ---- faults ---- */

static void run_fault(fault f, store_kind store)
{
    fix_seed();
    tiny_writer writer;
    gguf_file *file = p1_open(&p1_llama, &writer);
    for (uint32_t i = 0; i < 2 - SLOW; i++)
        run_cell(file, "llama",
                 (cell){.page_size = i ? 1 : 16, .dtype = i ? RAD_BF16 : RAD_F32, .store = store},
                 f, RAD_MAX(num_histories(), 12u));
    gguf_close(file);
    tiny_model_fini(&writer);
}

TEST(one_byte_of_a_loaded_page_altered_is_noticed)
{
    run_fault(FAULT_LOADED, STORE_NONE);
}

TEST(one_byte_altered_under_a_checksum_that_fits_is_noticed)
{
    run_fault(FAULT_STORED, STORE_FILE);
}

/* Under the old checksum: then it is a miss, and no answer differs. */
TEST(one_byte_of_a_stored_page_altered_costs_a_miss)
{
    run_fault(FAULT_SPOILT, STORE_FILE);
}

TEST_MAIN()
