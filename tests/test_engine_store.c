/* test_engine_store.c - a store that takes its time holds up nobody but who asked for it.
 *
 * The store here has a gate: its clear and its figures wait until the test opens it. What is
 * counted meanwhile is whole requests, from their first token to their last. */
#include "engine/kv_queue.h"
#include "engine_rig.h"

#include <sched.h>
#include <unistd.h>

enum { PROMPT = 96, DEADLINE_S = TEST_HANG_S };

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool shut;
    uint32_t inside; /* calls that wait */
    uint32_t clears, looks, closed;
    uint64_t sets; /* records stored */
    rad_status clear_status;
} gate;

static void gate_init(gate *g)
{
    *g = (gate){0};
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->moved, NULL);
}

static void gate_fini(gate *g)
{
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->moved);
}

static void gate_shut(gate *g, bool shut)
{
    pthread_mutex_lock(&g->lock);
    g->shut = shut;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

static void gate_pass(gate *g)
{
    g->inside++;
    pthread_cond_broadcast(&g->moved);
    while (g->shut)
        pthread_cond_wait(&g->moved, &g->lock);
    g->inside--;
}

static void await_inside(gate *g)
{
    pthread_mutex_lock(&g->lock);
    while (!g->inside)
        pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static uint64_t sets_of(gate *g)
{
    pthread_mutex_lock(&g->lock);
    uint64_t sets = g->sets;
    pthread_mutex_unlock(&g->lock);
    return sets;
}

static rad_status gate_exists(void *self, const rad_storage_batch *b, uint32_t *present,
                              rad_error *err)
{
    (void)self, (void)b, (void)err;
    *present = 0;
    return RAD_OK;
}

static rad_status gate_get(void *self, const rad_storage_batch *b, rad_error *err)
{
    (void)self, (void)b, (void)err;
    return RAD_OK;
}

static rad_status gate_set(void *self, const rad_storage_batch *b, rad_error *err)
{
    (void)err;
    gate *g = self;
    pthread_mutex_lock(&g->lock);
    g->sets += b->count;
    pthread_mutex_unlock(&g->lock);
    memset(b->done, 1, b->count);
    return RAD_OK;
}

static rad_status gate_clear(void *self, rad_error *err)
{
    gate *g = self;
    pthread_mutex_lock(&g->lock);
    g->clears++;
    gate_pass(g);
    rad_status status = g->clear_status;
    pthread_mutex_unlock(&g->lock);
    return status ? rad_fail(err, status, "gate: it fails, as was asked for") : RAD_OK;
}

static void gate_stats(void *self, rad_storage_stats *stats)
{
    gate *g = self;
    pthread_mutex_lock(&g->lock);
    g->looks++;
    gate_pass(g);
    *stats = (rad_storage_stats){.sets = g->sets, .pages = g->looks};
    pthread_mutex_unlock(&g->lock);
}

static void gate_close(void *self)
{
    gate *g = self;
    pthread_mutex_lock(&g->lock);
    g->closed++;
    pthread_mutex_unlock(&g->lock);
}

/* What clears goes on, in an error. */
static void gate_end_clear(void *self)
{
    gate *g = self;
    pthread_mutex_lock(&g->lock);
    g->clear_status = RAD_E_IO;
    pthread_mutex_unlock(&g->lock);
    gate_shut(g, false);
}

static const rad_storage_ops gate_ops = {.struct_size = sizeof gate_ops,
                                         .name = "gate",
                                         .batch_exists = gate_exists,
                                         .batch_get = gate_get,
                                         .batch_set = gate_set,
                                         .clear = gate_clear,
                                         .get_stats = gate_stats,
                                         .close = gate_close,
                                         .end_clear = gate_end_clear};

/* The engine opens its stores here (-Wl,--wrap, see CMakeLists.txt). */
static gate *the_gate;

rad_status __real_engine_store_open(const rad_env *env, const engine_store_words *words,
                                    rad_storage *out, rad_error *err);
rad_status __wrap_engine_store_open(const rad_env *env, const engine_store_words *words,
                                    rad_storage *out, rad_error *err);
rad_status __wrap_engine_store_open(const rad_env *env, const engine_store_words *words,
                                    rad_storage *out, rad_error *err)
{
    if (strcmp(words->spec, "gate:") != 0) return __real_engine_store_open(env, words, out, err);
    *out = (rad_storage){.ops = &gate_ops, .self = the_gate};
    return RAD_OK;
}

static engine *start_with(gate *g)
{
    rad_error err = {0};
    engine_params params = erig_params();
    params.page_size = 16;
    params.enable_hierarchical_cache = true;
    engine *e = erig_start(params, 0);
    the_gate = g;
    if (g) CHECK_OK(engine_attach_storage(e, "gate:", NULL, &err));
    return e;
}

/* One request, answered from begin to end; prompts of one seed are the same. */
static void serve(engine *e, uint64_t seed)
{
    rad_token ids[PROMPT];
    answer a;
    uint64_t id;
    answer_init(&a);
    erig_prompt(e, ids, PROMPT, seed);
    engine_request q = erig_request(&a, ids, PROMPT, 20);
    erig_submit(e, &q, &id);
    answer_wait(&a);
    CHECK(a.finish == ENGINE_FINISH_LENGTH && a.num_ids == 20);
    CHECK(erig_is_oracle(e, &a, ids, PROMPT));
    answer_fini(&a);
}

/* All copies are through. */
static void settle(engine *e)
{
    engine_stats st;
    for (int i = 0; i < DEADLINE_S * 1000; i++) {
        engine_get_stats(e, &st);
        if (!st.sched.tiers.tickets) return;
        usleep(1000);
    }
    CHECK(false);
}

static rad_status await(engine *e, uint64_t ticket, rad_error *err)
{
    rad_status status = RAD_OK;
    for (int i = 0; !engine_store_ended(e, ticket, &status, err); i++) {
        CHECK(i < DEADLINE_S * 1000);
        usleep(1000);
    }
    return status;
}

static const engine_store_change clear_storage = {.kind = ENGINE_STORE_CLEAR,
                                                  .tiers = RAD_TIER_STORAGE};

TEST(requests_are_answered_while_a_store_is_being_cleared)
{
    gate g;
    rad_error err = {0};
    gate_init(&g);
    engine *e = start_with(&g);
    serve(e, 1);
    settle(e);
    uint64_t stored = sets_of(&g), ticket, other;
    CHECK(stored >= PROMPT / 16);
    serve(e, 1); /* it is there: not stored again */
    settle(e);
    CHECK(sets_of(&g) == stored);

    gate_shut(&g, true);
    CHECK_OK(engine_store_begin(e, &clear_storage, &ticket, &err));
    await_inside(&g);
    engine_stats before, after;
    engine_get_stats(e, &before);
    for (int i = 0; i < 3; i++)
        serve(e, 2);
    settle(e); /* what is copied to the host, too */
    engine_get_stats(e, &after);
    CHECK(after.sched.forward_steps >= before.sched.forward_steps + 60);
    rad_status status;
    CHECK(!engine_store_ended(e, ticket, &status, &err));
    CHECK(sets_of(&g) == stored); /* the store is left alone meanwhile */
    CHECK(after.sched.tiers.dropped_backup_tokens > 0 &&
          after.sched.tiers.prefetches == before.sched.tiers.prefetches);

    CHECK(engine_store_begin(e, &clear_storage, &other, &err) == RAD_FULL && other == 0);
    CHECK(engine_detach_storage(e, &err) == RAD_FULL);
    engine_storage_status s;
    engine_get_storage_status(e, &s);
    CHECK(s.attached && s.busy == ENGINE_STORE_CLEAR && strcmp(s.spec, "gate:") == 0);
    uint64_t look = engine_store_look(e);
    CHECK(!engine_store_looked(e, look));

    gate_shut(&g, false);
    CHECK_OK(await(e, ticket, &err));
    for (int i = 0; !engine_store_looked(e, look) && i < DEADLINE_S * 1000; i++)
        usleep(1000);
    engine_get_storage_status(e, &s);
    CHECK(s.busy == 0 && s.store.sets == stored && g.clears == 1);

    serve(e, 1); /* what was there is not any more, what was dropped never was */
    serve(e, 2);
    settle(e);
    CHECK(sets_of(&g) >= stored + 2 * (PROMPT / 16));
    erig_stop(e);
    CHECK(g.closed == 1);
    gate_fini(&g);
}

TEST(requests_are_answered_while_a_store_is_asked_for_its_figures)
{
    gate g;
    rad_error err = {0};
    gate_init(&g);
    engine *e = start_with(&g);
    gate_shut(&g, true);
    uint64_t look = engine_store_look(e), ticket;
    await_inside(&g);
    serve(e, 1);
    engine_storage_status s;
    engine_get_storage_status(e, &s);
    CHECK(s.attached && !s.busy && s.store.pages == 0 && !engine_store_looked(e, look));
    /* A change takes its turn behind it, a second one does not queue. */
    settle(e);
    CHECK_OK(
        engine_store_begin(e,
                           &(engine_store_change){.kind = ENGINE_STORE_DETACH,
                                                  .wait_ns = (uint64_t)DEADLINE_S * 1000000000},
                           &ticket, &err));
    CHECK(engine_store_begin(e, &clear_storage, &ticket, &err) == RAD_FULL);
    engine_get_storage_status(e, &s);
    CHECK(s.attached && s.busy == ENGINE_STORE_DETACH && g.closed == 0);
    gate_shut(&g, false);
    for (int i = 0; s.busy && i < DEADLINE_S * 1000; i++) {
        usleep(1000);
        engine_get_storage_status(e, &s);
    }
    CHECK(!s.busy && !s.attached && !s.spec[0] && g.closed == 1 && engine_store_looked(e, look));
    engine_destroy(e);
    CHECK(g.closed == 1);
    gate_fini(&g);
}

TEST(a_change_says_what_became_of_it)
{
    gate g;
    rad_error err = {0};
    rad_status status;
    uint64_t first, ticket;
    gate_init(&g);
    engine *e = start_with(&g);
    CHECK(engine_attach_storage(e, "gate:", NULL, &err) == RAD_AGAIN && g.closed == 0);
    g.clear_status = RAD_E_IO;
    CHECK_OK(engine_store_begin(e, &clear_storage, &first, &err));
    CHECK(await(e, first, &err) == RAD_E_IO && strstr(err.text, "as was asked for"));
    g.clear_status = RAD_OK;
    serve(e, 1);
    settle(e);
    CHECK_OK(engine_flush_tiers(e, RAD_TIER_DEVICE | RAD_TIER_HOST | RAD_TIER_STORAGE, &err));
    engine_stats st;
    engine_get_stats(e, &st);
    CHECK(st.sched.available_tokens == st.sched.max_total_tokens &&
          st.sched.tiers.host_cached_tokens == 0);
    for (int i = 0; i < STORE_RESULTS; i++) {
        CHECK_OK(engine_store_begin(e, &clear_storage, &ticket, &err));
        CHECK_OK(await(e, ticket, &err));
    }
    CHECK(engine_store_ended(e, first, &status, &err) && status == RAD_NONE);
    CHECK(engine_store_ended(e, 0, &status, &err) && status == RAD_NONE);
    CHECK_OK(engine_detach_storage(e, &err));
    CHECK(engine_detach_storage(e, &err) == RAD_NONE && g.closed == 1);
    CHECK(engine_flush_tiers(e, RAD_TIER_STORAGE, &err) == RAD_E_UNSUPPORTED);
    CHECK(engine_attach_storage(e, "nothing:", NULL, &err) == RAD_E_INVAL);
    CHECK(engine_attach_storage(e, NULL, NULL, &err) == RAD_E_INVAL);
    CHECK(engine_attach_storage(e, "file:/proc/none", NULL, &err) < 0);
    engine_destroy(e);
    gate_fini(&g);

    e = erig_start(erig_params(), 0); /* no tiers, no thread */
    CHECK(engine_flush_tiers(e, RAD_TIER_STORAGE, &err) == RAD_E_UNSUPPORTED);
    CHECK(engine_attach_storage(e, "file:/tmp", NULL, &err) == RAD_E_UNSUPPORTED);
    CHECK(engine_store_looked(e, engine_store_look(e)));
    engine_destroy(e);
}

/* A store that is never done with a clear: the engine ends all the same, since it says so. */
TEST(an_end_does_not_wait_for_a_clear)
{
    gate g;
    rad_error err = {0};
    uint64_t ticket;
    gate_init(&g);
    engine *e = start_with(&g);
    gate_shut(&g, true);
    engine_store_change clear = {.kind = ENGINE_STORE_CLEAR, .tiers = RAD_TIER_STORAGE};
    CHECK_OK(engine_store_begin(e, &clear, &ticket, &err));
    await_inside(&g);
    engine_destroy(e);
    CHECK(g.clears == 1 && g.closed == 1 && !g.inside);
    gate_fini(&g);
}

/* A busy server: other tiers wait for what runs, the store alone does not. */
TEST(what_is_in_the_way_is_waited_for_and_no_longer)
{
    gate g;
    rad_error err = {0};
    rad_token ids[PROMPT];
    answer a;
    uint64_t id, ticket;
    gate_init(&g);
    engine *e = start_with(&g);
    answer_init(&a);
    erig_prompt(e, ids, PROMPT, 7);
    engine_request q = erig_request(&a, ids, PROMPT, ERIG_MOST_OUT - 100);
    erig_submit(e, &q, &id);
    engine_store_change both = {.kind = ENGINE_STORE_CLEAR,
                                .tiers = RAD_TIER_DEVICE | RAD_TIER_STORAGE,
                                .wait_ns = (uint64_t)DEADLINE_S * 1000000000};
    CHECK_OK(engine_store_begin(e, &both, &ticket, &err));
    rad_status status = await(e, ticket, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    answer_wait(&a); /* came first, whichever of the two was seen first */
    CHECK(a.num_ids == ERIG_MOST_OUT - 100 && erig_is_oracle(e, &a, ids, PROMPT));
    answer_fini(&a);
    settle(e);
    CHECK_OK(engine_flush_tiers(e, RAD_TIER_STORAGE, &err));
    engine_destroy(e);
    gate_fini(&g);
}

TEST(a_model_file_is_digested_for_the_first_store_and_must_be_the_one_that_was_loaded)
{
    for (int changed = 0; changed < 2; changed++) {
        char dir[] = "/tmp/radish-store-XXXXXX", path[64], store[64], command[1200];
        rad_error err = {0};
        CHECK(mkdtemp(dir) != NULL);
        snprintf(path, sizeof path, "%s/model.gguf", dir);
        snprintf(store, sizeof store, "file:%s/store", dir);
        snprintf(command, sizeof command, "cp %s %s", erig_model(), path);
        CHECK(system(command) == 0);
        engine_params params = erig_params();
        params.enable_hierarchical_cache = true;
        params.hicache_storage_mode = "0640";
        engine_parts parts = erig_parts(0);
        rad_env env = rad_env_or_default(NULL);
        gguf_file *file;
        snprintf(command, sizeof command, "touch -d '1 hour ago' %s", path); /* not just written */
        CHECK(system(command) == 0);
        CHECK_OK(gguf_open(NULL, path, &file, &err));
        CHECK_OK(gguf_source_create(&env, file, false, &parts.source, &err));
        gguf_close(file);
        engine *e = NULL;
        CHECK_OK(engine_create_with(NULL, &params, &parts, &e, &err));
        CHECK(!e->tiers.identified); /* nobody has asked for it yet */
        if (changed) {
            snprintf(command, sizeof command, "printf x >> %s", path);
            CHECK(system(command) == 0);
            CHECK(engine_attach_storage(e, store, NULL, &err) == RAD_E_IO);
            CHECK(strstr(err.text, "has been changed") && !e->tiers.has_store);
        } else {
            snprintf(command, sizeof command, "rm %s", path); /* a name only */
            CHECK(system(command) == 0);
            CHECK_OK(engine_attach_storage(e, store, NULL, &err));
            CHECK(e->tiers.identified && strncmp(e->tiers.model, "xxh3-128:", 9) == 0);
            snprintf(command, sizeof command, "test \"$(stat -c %%a %s/store/lock)\" = 640", dir);
            CHECK(system(command) == 0);
        }
        engine_destroy(e);
        snprintf(command, sizeof command, "rm -rf %s", dir);
        CHECK(system(command) == 0);
    }
}

/* An option that would be ignored in silence is an error that names what is missing; what asks
 * for nothing but the default is none. */
TEST(options_of_the_tiers_want_the_tiers)
{
    rad_error err = {0};
    const engine_params idle[] = {{.hicache_ratio = 6},
                                  {.hicache_size = 1},
                                  {.hicache_write_policy = "write_back"},
                                  {.hicache_mem_layout = "layer_first"},
                                  {.hicache_eviction_policy = "slru"},
                                  {.hicache_storage_prefetch_policy = "best_effort"},
                                  {.hicache_storage_backend = "file:/tmp/x"},
                                  {.hicache_storage_mode = "0660"},
                                  {.hicache_storage_backend_extra_config = "{}"},
                                  {.hicache_load_back_threshold = 11},
                                  {.hicache_prefetch_threshold = 1},
                                  {.hicache_max_transfers = 8},
                                  {.hicache_copy_threads = 2},
                                  {.hicache_store_threads = 1},
                                  {.hicache_pin_memory = true}};
    const engine_params usual[] = {{.hicache_ratio = 2},
                                   {.hicache_write_policy = "write_through"},
                                   {.hicache_mem_layout = "page_first"},
                                   {.hicache_eviction_policy = "lru"},
                                   {.hicache_storage_prefetch_policy = "timeout"},
                                   {.hicache_storage_mode = "0600"},
                                   {.hicache_load_back_threshold = 10,
                                    .hicache_prefetch_threshold = 256,
                                    .hicache_max_transfers = 256,
                                    .hicache_copy_threads = 1,
                                    .hicache_store_threads = 2},
                                   {0}};
    for (size_t i = 0; i < RAD_COUNT(idle); i++) {
        engine_params p = idle[i];
        CHECK(engine_tiers_check(&p, &err) == RAD_E_INVAL);
        CHECKF(strstr(err.text, "needs enable_hierarchical_cache"), "%s\n", err.text);
        p.enable_hierarchical_cache = true;
        CHECK_OK(engine_tiers_check(&p, &err));
    }
    for (size_t i = 0; i < RAD_COUNT(usual); i++)
        CHECK_OK(engine_tiers_check(&usual[i], &err));
    engine_params wrong = {.enable_hierarchical_cache = true, .hicache_eviction_policy = "clock"};
    CHECK(engine_tiers_check(&wrong, &err) == RAD_E_INVAL && strstr(err.text, "slru"));
    wrong.hicache_eviction_policy = NULL;
    wrong.hicache_storage_mode = "0666";
    CHECK(engine_tiers_check(&wrong, &err) == RAD_E_INVAL && strstr(err.text, "0660"));
    wrong.hicache_storage_mode = "640";
    CHECK_OK(engine_tiers_check(&wrong, &err));
    wrong.hicache_eviction_policy = "user";
    CHECK(engine_tiers_check(&wrong, &err) == RAD_E_INVAL);
}

/* Each number arrives where the tiers read it; two that say the same thing are refused. */
TEST(numbers_of_the_tiers_arrive)
{
    rad_error err = {0};
    engine_tiers t;
    engine_params p = {.enable_hierarchical_cache = true,
                       .hicache_load_back_threshold = 3,
                       .hicache_prefetch_threshold = 4,
                       .hicache_max_transfers = 5,
                       .hicache_copy_threads = 6,
                       .hicache_store_threads = 7,
                       .hicache_pin_memory = true};
    CHECK_OK(engine_tiers_init(&t, NULL, &p, NULL, "a model", "as promised", &err));
    CHECK(t.hicache.load_back_threshold == 3 && t.hicache.prefetch_threshold == 4);
    CHECK(t.hicache.max_transfers == 5 && t.hicache.copy_threads == 6);
    CHECK(t.hicache.store_threads == 7 && t.host_pool.pinned == 1);
    engine_tiers_fini(&t);

    p.hicache_storage_backend_extra_config = "{\"prefetch_threshold\": 9}";
    CHECK(engine_tiers_init(&t, NULL, &p, NULL, "a model", "as promised", &err) == RAD_E_INVAL);
    CHECKF(strstr(err.text, "say it once"), "%s\n", err.text);
    engine_tiers_fini(&t);
    p.hicache_prefetch_threshold = 0;
    CHECK_OK(engine_tiers_init(&t, NULL, &p, NULL, "a model", "as promised", &err));
    CHECK(t.hicache.prefetch_threshold == 9);
    engine_tiers_fini(&t);

    p.hicache_copy_threads = 65;
    CHECK(engine_tiers_check(&p, &err) == RAD_E_INVAL && strstr(err.text, "64 at most"));
    p.hicache_copy_threads = 64;
    p.hicache_max_transfers = 65536;
    CHECK(engine_tiers_check(&p, &err) == RAD_E_INVAL && strstr(err.text, "65535 at most"));
}

/* ---- batches of KV events on their way to another thread ---- */

enum { BATCHES = 20000 };

static void *pop_batches(void *arg)
{
    kv_queue *q = arg;
    uint64_t next = 0;
    while (next < BATCHES) {
        kv_batch *b = kv_queue_pop(q);
        if (!b) {
            sched_yield(); /* the other one may be waiting for this CPU */
            continue;
        }
        CHECK(b->seq == next && b->len == next % 100 + 1);
        for (size_t i = 0; i < b->len; i++)
            CHECK(b->bytes[i] == (uint8_t)next);
        next++;
        kv_batch_free(b);
    }
    return NULL;
}

TEST(batches_of_events_pass_to_another_thread_in_order_and_bounded)
{
    uint8_t bytes[100];
    kv_queue q;
    pthread_t thread;
    CHECK_OK(kv_queue_init(&q, NULL, 8, 300));
    memset(bytes, 1, sizeof bytes);
    for (uint64_t i = 0; i < 3; i++)
        CHECK(kv_queue_push(&q, i, bytes, 100));
    CHECK(!kv_queue_push(&q, 3, bytes, 1)); /* of bytes there are enough */
    for (uint64_t i = 0; i < 3; i++)
        kv_batch_free(kv_queue_pop(&q));
    for (uint64_t i = 0; i < 8; i++)
        CHECK(kv_queue_push(&q, i, bytes, 1));
    CHECK(!kv_queue_push(&q, 8, bytes, 1) && kv_queue_count(&q) == 8); /* and of batches */
    kv_queue_fini(&q);

    CHECK_OK(kv_queue_init(&q, NULL, 8, 300));
    CHECK(pthread_create(&thread, NULL, pop_batches, &q) == 0);
    for (uint64_t i = 0; i < BATCHES; i++) {
        memset(bytes, (int)(i & 255), sizeof bytes);
        while (!kv_queue_push(&q, i, bytes, i % 100 + 1))
            sched_yield();
    }
    pthread_join(thread, NULL);
    CHECK(!kv_queue_count(&q) && !kv_queue_pop(&q));
    kv_queue_fini(&q);
}

TEST_MAIN()
