/* test_engine_model.c - promise P1 on real weights, and on random ones of other architectures:
 * requests with shared prefixes, many at once, through a pool that is too small, with chunks,
 * retractions and aborts; every answer is identical to the same request alone, without a radix
 * cache. */
#include "engine_rig.h"
#include "tiny_models.h"

#include <jansson.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { MOST_REQS = 60 }; /* they slow the arithmetic down twentyfold */
#else
enum { MOST_REQS = 500 }; /* for each page size and dtype */
#endif
enum { FLIGHTS = 24, NUM_DOCS = 6, DOC_TOKENS = 110, MOST_NEW = 12 };

typedef struct job {
    rad_token ids[160];
    uint32_t num_ids;
    int64_t max_new;
    sampling_params sampling;
    bool aborted;
    rad_token plain[MOST_NEW];
    uint32_t num_plain;
    uint64_t id;
    answer a;
} job;

static uint32_t below(uint64_t *rng, uint32_t n)
{
    return (uint32_t)(test_random(rng) % n);
}

static engine *load(const char *path, engine_params params)
{
    rad_error err = {0};
    engine *e = NULL;
    params.model_path = path;
    params.num_threads = 2;
    params.context_length = 256;
    rad_status status = engine_create(NULL, &params, &e, &err);
    CHECKF(status == RAD_OK, "%s: %s\n", path, err.text);
    return e;
}

static int num_reqs = MOST_REQS;

static void make_jobs(const engine *e, job *jobs, uint64_t *rng)
{
    rad_token docs[NUM_DOCS][DOC_TOKENS];
    for (int d = 0; d < NUM_DOCS; d++)
        erig_prompt(e, docs[d], DOC_TOKENS, 1000 + (d < 3 ? 0 : d)); /* three are one */
    for (int i = 0; i < num_reqs; i++) {
        job *j = &jobs[i];
        memset(j, 0, sizeof *j);
        uint32_t shared = below(rng, DOC_TOKENS + 1), own = 1 + below(rng, 20);
        memcpy(j->ids, docs[below(rng, NUM_DOCS)], shared * sizeof *j->ids);
        erig_prompt(e, j->ids + shared, own, test_random(rng));
        j->num_ids = shared + own;
        j->max_new = 1 + below(rng, MOST_NEW);
        j->aborted = below(rng, 10) == 0;
        j->sampling = (sampling_params){.top_p = 1};
        if (below(rng, 3) == 0)
            j->sampling = (sampling_params){
                .temperature = 0.8f, .top_p = 0.9f, .top_k = 40, .seed = test_random(rng)};
        if (below(rng, 3) == 0) { /* what was said counts, also after a retraction */
            j->sampling.frequency_penalty = 1.5f;
            j->sampling.repetition_penalty = 1.2f;
        }
    }
}

static void submit(engine *e, job *j)
{
    answer_init(&j->a);
    engine_request q = erig_request(&j->a, j->ids, j->num_ids, j->max_new);
    q.sampling = j->sampling;
    q.has_seed = true;
    erig_submit(e, &q, &j->id);
}

static void run_plain(const char *path, rad_dtype dtype, job *jobs, uint64_t *rng)
{
    engine *e = load(path, (engine_params){.dtype = dtype,
                                           .max_total_tokens = 1024,
                                           .max_running_requests = 1,
                                           .disable_radix_cache = true});
    make_jobs(e, jobs, rng);
    for (int i = 0; i < num_reqs; i++) {
        job *j = &jobs[i];
        submit(e, j);
        answer_wait(&j->a);
        CHECK(j->a.finish == ENGINE_FINISH_LENGTH && j->a.num_ids == j->max_new);
        CHECK(j->a.cached_tokens == 0);
        memcpy(j->plain, j->a.ids, j->a.num_ids * sizeof *j->plain);
        j->num_plain = j->a.num_ids;
        answer_fini(&j->a);
    }
    engine_destroy(e);
}

static void finish(job *j, int number)
{
    answer_wait(&j->a);
    bool cut = j->a.finish == ENGINE_FINISH_ABORT;
    CHECK(cut ? j->aborted : j->a.finish == ENGINE_FINISH_LENGTH);
    CHECK(cut ? j->a.num_ids <= j->num_plain : j->a.num_ids == j->num_plain);
    CHECKF(memcmp(j->a.ids, j->plain, j->a.num_ids * sizeof *j->plain) == 0,
           "request %d (%u ids, %u cached) differs from its answer alone\n", number, j->num_ids,
           j->a.cached_tokens);
    answer_fini(&j->a);
}

static void run_shared(const char *path, rad_dtype dtype, uint32_t page_size, job *jobs,
                       uint64_t *rng)
{
    engine *e = load(path, (engine_params){.dtype = dtype,
                                           .page_size = page_size,
                                           .max_total_tokens = 640,
                                           .max_running_requests = 8,
                                           .chunked_prefill_size = 48,
                                           .test_retract_every = 9});
    for (int i = 0; i < num_reqs + FLIGHTS; i++) {
        if (i >= FLIGHTS) finish(&jobs[i - FLIGHTS], i - FLIGHTS);
        if (i >= num_reqs) continue;
        submit(e, &jobs[i]);
        job *j = &jobs[i - (int)below(rng, RAD_MIN(i + 1, FLIGHTS - 1))];
        if (j->aborted) engine_abort(e, j->id);
    }
    engine_stats st;
    engine_get_stats(e, &st);
    print_message("  %s page %u: %llu of %llu prompt tokens cached, %llu evicted, %llu retracted, "
                  "%llu aborted\n",
                  engine_get_info(e)->dtype, page_size, (unsigned long long)st.cached_tokens,
                  (unsigned long long)st.prompt_tokens, (unsigned long long)st.evicted_tokens,
                  (unsigned long long)st.num_retractions, (unsigned long long)st.num_aborted);
    CHECK(st.cached_tokens > 0 && st.evicted_tokens > 0 && st.num_retractions > 0);
    erig_check_idle(e);
    engine_destroy(e);
}

/* The host tier and a store in a directory below a pool of a fraction of the prompts; then the
 * same again after a restart, with a smaller host. */
static void run_tiers(const char *path, rad_dtype dtype, uint32_t page_size, const char *policy,
                      job *jobs, uint64_t *rng)
{
    enum { AT_A_TIME = 6 };
    int jobs_now = RAD_MIN(num_reqs, 100);
    char dir[] = "/tmp/radish-tiers-XXXXXX", store[64], command[64];
    CHECK(mkdtemp(dir) != NULL);
    snprintf(store, sizeof store, "file:%s", dir);
    uint64_t loaded = 0, fetched = 0;
    for (int life = 0; life < 2; life++) {
        engine_params params = {.dtype = dtype,
                                .page_size = page_size,
                                .max_total_tokens = 512,
                                .max_running_requests = 3,
                                .chunked_prefill_size = 48,
                                .test_retract_every = 9,
                                .enable_hierarchical_cache = true,
                                .hicache_ratio = life ? 1 : 4,
                                .hicache_write_policy = policy,
                                .hicache_storage_backend = store,
                                .hicache_storage_prefetch_policy = "wait_complete",
                                .hicache_storage_backend_extra_config =
                                    "{\"prefetch_threshold\": 32, \"max_size\": 100000000}"};
        engine *e = load(path, params);
        for (int i = 0; i < jobs_now + AT_A_TIME; i++) {
            if (i >= AT_A_TIME) finish(&jobs[i - AT_A_TIME], i - AT_A_TIME);
            if (i >= jobs_now) continue;
            submit(e, &jobs[i]);
            job *j = &jobs[i - (int)below(rng, RAD_MIN(i + 1, AT_A_TIME - 1))];
            if (j->aborted) engine_abort(e, j->id);
        }
        engine_stats st;
        for (int i = 0; i < 5000; i++) {
            engine_get_stats(e, &st);
            if (!st.tiers.tickets) break;
            usleep(2000);
        }
        CHECK(st.tiers.tickets == 0 && st.tiers.bad_pages == 0 && st.lost_loads == 0);
        loaded += st.loaded_tokens;
        fetched += st.fetched_tokens;
        erig_check_idle(e);
        engine_destroy(e);
    }
    print_message("  %s: %llu prompt tokens from the host, %llu of them from the store\n", policy,
                  (unsigned long long)loaded, (unsigned long long)fetched);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    CHECK(system(command) == 0);
    CHECK(loaded > 0);
}

static void check_model(const char *path)
{
    static const char *const policies[] = {"write_through", "write_through_selective", "write_back",
                                           "write_through"};
    uint64_t seed = test_seed(), rng = seed;
    print_message("%s RADISH_TEST_SEED=%llu\n", path, (unsigned long long)seed);
    job *jobs = calloc(num_reqs, sizeof *jobs);
    for (int k = 0; k < 4; k++) {
        rad_dtype dtype = k < 2 ? RAD_F32 : RAD_BF16;
        run_plain(path, dtype, jobs, &rng);
        run_shared(path, dtype, k % 2 ? 16 : 1, jobs, &rng);
        run_tiers(path, dtype, k % 2 ? 16 : 1, policies[k], jobs, &rng);
    }
    free(jobs);
}

TEST(stories260k_answers_the_same_shared_and_alone)
{
    SKIP_UNLESS(erig_has_model(), "no models/stories260K.gguf");
    check_model(erig_model());
}

/* Written to a file, since that is what an engine opens. */
static void check_tiny(tiny_model m)
{
    uint64_t state = 1;
    tiny_writer w;
    char path[512];
    const char *tmp = getenv("TMPDIR");
    m.vocab = TINY_BPE_TOKENS, m.with_vocab = true, m.context = 256;
    tiny_model_write(&w, &m, &state);
    snprintf(path, sizeof path, "%s/radish-test-%ld-%s.gguf", tmp ? tmp : "/tmp", (long)getpid(),
             m.arch);
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(w.b.bytes, 1, w.b.len, file) == w.b.len && fclose(file) == 0);
    tiny_model_fini(&w);
    num_reqs = RAD_MIN(MOST_REQS, 150);
    check_model(path);
    num_reqs = MOST_REQS;
    unlink(path);
}

/* Half of the layers see 40 tokens; prompts have up to 130, chunks 48. */
TEST(a_gemma2_answers_the_same_shared_and_alone)
{
    check_tiny((tiny_model){.arch = "gemma2",
                            .layers = 3,
                            .dim = 32,
                            .ffn = 64,
                            .heads = 4,
                            .kv_heads = 2,
                            .head_dim = 16,
                            .v_head_dim = 16,
                            .rope_dim = 16,
                            .window = 40,
                            .attn_cap = 5,
                            .final_cap = 10,
                            .tied = true});
}

TEST(a_qwen2_with_yarn_answers_the_same_shared_and_alone)
{
    check_tiny((tiny_model){.arch = "qwen2",
                            .layers = 2,
                            .dim = 32,
                            .ffn = 64,
                            .heads = 6,
                            .kv_heads = 2,
                            .head_dim = 8,
                            .v_head_dim = 8,
                            .rope_dim = 8,
                            .rope_type = "yarn",
                            .rope_factor = 4,
                            .original_context = 64});
}

TEST(the_shipped_model_answers_the_same_shared_and_alone)
{
    const char *path = RADISH_SOURCE_DIR "/models/radish-tiny.gguf";
    SKIP_UNLESS(access(path, R_OK) == 0, "no models/radish-tiny.gguf");
    check_model(path);
}

/* The engine on top of it all, cold and out of the cache: the published answer. */
TEST(stories260k_tells_the_golden_story)
{
    SKIP_UNLESS(erig_has_model(), "no models/stories260K.gguf");
    char path[1024];
    snprintf(path, sizeof path, "%s/models/stories260K.golden.json", test_data());
    json_t *golden = json_load_file(path, 0, NULL);
    SKIP_UNLESS(golden != NULL, "no stories260K.golden.json");
    engine *e = load(erig_model(), (engine_params){.dtype = RAD_F32, .max_total_tokens = 2048});

    size_t i;
    json_t *story;
    json_array_foreach(json_object_get(golden, "cases"), i, story)
    {
        json_t *prompt = json_object_get(story, "prompt_ids");
        json_t *greedy = json_object_get(story, "greedy_ids");
        rad_token ids[64];
        uint32_t n = (uint32_t)json_array_size(prompt), want = (uint32_t)json_array_size(greedy);
        CHECK(n <= 64 && want <= 220);
        for (uint32_t k = 0; k < n; k++)
            ids[k] = (rad_token)json_integer_value(json_array_get(prompt, k));
        for (int again = 0; again < 2; again++) {
            answer a;
            answer_init(&a);
            engine_request q = erig_request(&a, ids, n, want);
            erig_submit(e, &q, NULL);
            answer_wait(&a);
            CHECK(a.num_ids == want && a.cached_tokens == (again ? n - 1 : 0));
            for (uint32_t k = 0; k < want; k++)
                CHECK(a.ids[k] == json_integer_value(json_array_get(greedy, k)));
            answer_fini(&a);
        }
        CHECK_OK(engine_flush_cache(e));
    }
    json_decref(golden);
    engine_destroy(e);
}

TEST(a_model_that_does_not_fit_says_what_would)
{
    SKIP_UNLESS(erig_has_model(), "no models/stories260K.gguf");
    rad_error err = {0};
    engine *e;
    engine_params params = {.model_path = erig_model(), .max_total_tokens = 1u << 30};
    CHECK(engine_create(NULL, &params, &e, &err) == RAD_E_NOMEM && !e);
    CHECKF(strstr(err.text, "enough for") != NULL, "%s\n", err.text);
    params = (engine_params){.model_path = erig_model(), .mem_fraction_static = 1e-7};
    CHECK(engine_create(NULL, &params, &e, &err) == RAD_E_NOMEM && !e);
    CHECKF(strstr(err.text, "mem_fraction_static") != NULL, "%s\n", err.text);
    params.mem_fraction_static = 1.5;
    CHECK(engine_create(NULL, &params, &e, &err) == RAD_E_INVAL && !e);
}

TEST_MAIN()
