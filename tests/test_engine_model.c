/* test_engine_model.c - promise P1 on real weights, and on random ones of other architectures:
 * requests with shared prefixes, many at once, through a pool that is too small, with chunks,
 * retractions and aborts; every answer is identical to the same request alone, without a radix
 * cache. */
#define _XOPEN_SOURCE 700 /* nftw; with _GNU_SOURCE there is another group_member */
#define _DEFAULT_SOURCE
#include "below.h"
#include "engine_rig.h"
#include "gear/retract.h"
#include "one_cpu.h"
#include "redis_rig.h"
#include "tiny_models.h"

#include <jansson.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { MOST_REQS = 60, BRIEF = 40, CELLS = 2 }; /* they slow the arithmetic down twentyfold */
#else
enum { MOST_REQS = 500, BRIEF = MOST_REQS, CELLS = 4 };
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

static int num_reqs;

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
    gear_retract_every(9);
    engine *e = load(path, (engine_params){.dtype = dtype,
                                           .page_size = page_size,
                                           .max_total_tokens = 640,
                                           .max_running_requests = 8,
                                           .chunked_prefill_size = 48});
    for (int i = 0; i < num_reqs + FLIGHTS; i++) {
        if (i >= FLIGHTS) finish(&jobs[i - FLIGHTS], i - FLIGHTS);
        if (i >= num_reqs) continue;
        submit(e, &jobs[i]);
        job *j = &jobs[i - (int)below(rng, RAD_MIN(i + 1, FLIGHTS - 1))];
        if (j->aborted) engine_abort(e, j->id);
    }
    engine_stats st;
    engine_get_stats(e, &st);
    print_message(
        "  %s page %u: %llu of %llu prompt tokens cached, %llu evicted, %llu retracted, "
        "%llu aborted\n",
        engine_get_info(e)->dtype, page_size, (unsigned long long)st.sched.cached_tokens,
        (unsigned long long)st.sched.prompt_tokens, (unsigned long long)st.sched.evicted_tokens,
        (unsigned long long)st.sched.num_retractions, (unsigned long long)st.requests.num_aborted);
    CHECK(st.sched.cached_tokens > 0 && st.sched.evicted_tokens > 0 &&
          st.sched.num_retractions > 0);
    erig_stop(e);
    gear_retract_every(0);
}

/* ---- tiers ---- */

enum { AT_A_TIME = 6, FRACTION = 8 };

typedef struct tier_cell {
    const char *policy, *store; /* "" is the host alone, "file", "redis" */
} tier_cell;

static redis_server servers[6];

static void end_servers(void)
{
    if (servers[0].pid) cluster_end(servers);
}

/* Distinct tokens of the prompts and of what is said to them. */
static uint64_t working_set(const job *jobs, int count)
{
    uint64_t tokens = 0;
    for (int i = 0; i < count; i++) {
        uint32_t most = 0, n;
        for (int k = 0; k < i; k++) {
            for (n = 0; n < jobs[i].num_ids && n < jobs[k].num_ids; n++)
                if (jobs[i].ids[n] != jobs[k].ids[n]) break;
            most = RAD_MAX(most, n);
        }
        tokens += jobs[i].num_ids - most + jobs[i].num_plain;
    }
    return tokens;
}

/* A call is followed by a step, which may begin to demote what became free with the last one. */
static void wait_for_tiers(engine *e, engine_stats *st)
{
    enum { QUIET = 5 };
    int quiet = 0;
    for (int i = 0; i < TEST_HANG_S * 500 && quiet < QUIET; i++) {
        engine_get_stats(e, st);
        quiet = st->sched.tiers.tickets ? 0 : quiet + 1;
        if (!quiet) usleep(2000);
    }
    CHECK(quiet == QUIET);
}

/* On its own, so that nothing is aborted and everything that is stored is waited for. */
static uint32_t run_longest(engine *e, job *jobs, int count)
{
    int longest = 0;
    for (int i = 0; i < count; i++)
        if (!jobs[i].aborted && jobs[i].num_ids > jobs[longest].num_ids) longest = i;
    submit(e, &jobs[longest]);
    finish(&jobs[longest], longest);
    return jobs[longest].a.cached_tokens;
}

/* The tiers below a pool of an eighth of the working set; then the same again after a restart,
 * with a smaller host. */
static void run_tiers(const char *path, rad_dtype dtype, uint32_t page_size, tier_cell cell,
                      job *jobs, uint64_t *rng)
{
    int jobs_now = RAD_MIN(num_reqs, 100);
    bool stored = cell.store[0], file = strcmp(cell.store, "file") == 0;
    char dir[64], store[96];
    rig_dir(dir);
    snprintf(store, sizeof store, "file:%s", dir);
    if (stored && !file) {
        if (!servers[0].pid) {
            cluster_start(servers);
            atexit(end_servers);
        }
        snprintf(store, sizeof store, "redis:127.0.0.1:%d", servers[below(rng, 3)].port);
        for (int i = 0; i < 3; i++)
            CHECK(redis_says(servers[i].port, "FLUSHALL", "OK"));
    }
    uint64_t tokens = working_set(jobs, jobs_now), loaded = 0, fetched = 0, first = 0;
    for (int life = 0; life < 2; life++) {
        engine_params params = {.dtype = dtype,
                                .page_size = page_size,
                                .max_total_tokens = RAD_MAX(tokens / FRACTION, (uint64_t)160),
                                .max_running_requests = 3,
                                .chunked_prefill_size = 48,
                                .enable_hierarchical_cache = true,
                                .hicache_ratio = life ? 2 : 5,
                                .hicache_write_policy = cell.policy,
                                .hicache_storage_backend = stored ? store : NULL,
                                .hicache_storage_prefetch_policy = stored ? "wait_complete" : NULL,
                                .hicache_storage_backend_extra_config =
                                    !stored ? NULL
                                    : file ? "{\"prefetch_threshold\": 32, \"max_size\": 100000000}"
                                           : "{\"prefetch_threshold\": 32, \"timeout_ms\": 20000, "
                                             "\"connect_timeout_ms\": 20000}"};
        gear_retract_every(9);
        if (below(rng,
                  2)) { /* the model itself: K/V of its own, which no tier has, are never wrong */
            params.speculative_draft_model_path = path;
            params.speculative_num_draft_tokens = 1 + below(rng, 6);
        }
        engine *e = load(path, params);
        e->scheduler->drafts.at_any_price = true;
        engine_stats st;
        if (life && stored) first = run_longest(e, jobs, jobs_now);
        for (int i = 0; i < jobs_now + AT_A_TIME; i++) {
            if (i >= AT_A_TIME) finish(&jobs[i - AT_A_TIME], i - AT_A_TIME);
            if (i >= jobs_now) continue;
            submit(e, &jobs[i]);
            job *j = &jobs[i - (int)below(rng, RAD_MIN(i + 1, AT_A_TIME - 1))];
            if (j->aborted) engine_abort(e, j->id);
        }
        wait_for_tiers(e, &st);
        for (int again = 0; again < 2 && stored; again++) { /* it has a copy now, for sure */
            (void)run_longest(e, jobs, jobs_now);
            wait_for_tiers(e, &st);
        }
        CHECK(st.sched.tiers.bad_pages == 0 && st.sched.lost_loads == 0);
        const draft_stats *drafts = &st.sched.drafts;
        CHECK(drafts->accepted[DRAFT_MODEL] == drafts->proposed[DRAFT_MODEL]);
        CHECK(!params.speculative_draft_model_path == !drafts->proposed[DRAFT_MODEL]);
        loaded += st.sched.loaded_tokens;
        fetched += st.sched.fetched_tokens;
        erig_stop(e);
    }
    gear_retract_every(0);
    print_message("  page %u, %s, %s: pool %llu of %llu tokens, %llu prompt tokens from the host, "
                  "%llu of them from the store, %llu of the first after a restart\n",
                  page_size, cell.policy, stored ? cell.store : "host only",
                  (unsigned long long)tokens / FRACTION, (unsigned long long)tokens,
                  (unsigned long long)loaded, (unsigned long long)fetched,
                  (unsigned long long)first);
    rig_remove_dir(dir);
    CHECK(loaded > 0);
    CHECK(!stored || strcmp(cell.policy, "write_back") == 0 || (first > 0 && fetched > 0));
}

/* One cell that moves on with the seed, in long runs all of them. */
static void run_tier_cells(const char *path, rad_dtype dtype, uint32_t page_size, job *jobs,
                           uint64_t *rng)
{
    static const char *const policies[] = {"write_through", "write_through_selective",
                                           "write_back"};
    static const char *const stores[] = {"", "file", "redis"};
    static uint32_t turn;
    bool all = test_scale(0, 1) != 0;
    uint32_t one = (uint32_t)((test_random(rng) + 4 * turn++) % 9);
    for (uint32_t i = 0; i < 9; i++) {
        tier_cell cell = {policies[i / 3], stores[i % 3]};
        if (!all && i != one) continue;
        if (i % 3 == 2 && !redis_is_installed()) {
            print_message("  no redis-server: files instead\n");
            cell.store = "file";
        }
        run_tiers(path, dtype, page_size, cell, jobs, rng);
    }
}

/* With so many requests for each page size and dtype, but for long runs. */
static void check_model(const char *path, int brief)
{
    num_reqs = (int)test_scale((uint64_t)RAD_MIN(brief, BRIEF), MOST_REQS);
    uint64_t seed = test_seed(), rng = seed;
    print_message("%s RADISH_TEST_SEED=%llu\n", path, (unsigned long long)seed);
    job *jobs = calloc(num_reqs, sizeof *jobs);
    for (uint64_t k = 0; k < test_scale(CELLS, 4); k++) { /* two have both types and both sizes */
        rad_dtype dtype = k % 2 ? RAD_BF16 : RAD_F32;
        uint32_t page_size = (k + k / 2 + seed) % 2 ? 16 : 1;
        run_plain(path, dtype, jobs, &rng);
        run_shared(path, dtype, page_size, jobs, &rng);
        run_tier_cells(path, dtype, page_size, jobs, &rng);
    }
    free(jobs);
}

TEST(a_story_model_answers_the_same_shared_and_alone)
{
    check_model(erig_model(), 200);
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
    check_model(path, 150);
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
    check_model(RADISH_SOURCE_DIR "/models/radish-tiny.gguf", 120);
}

/* The engine on top of it all, cold and out of the cache: what another program answers. */
static void check_golden(const char *model, const char *said)
{
    json_t *golden = json_load_file(said, 0, NULL);
    CHECKF(json_array_size(json_object_get(golden, "cases")) > 1, "%s\n", said);
    engine *e = load(model, (engine_params){.dtype = RAD_F32, .max_total_tokens = 2048});

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
            engine_request q = erig_ask(&a, ids, n, want);
            erig_serve(e, &q);
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

TEST(a_story_model_tells_numpys_story)
{
    char said[1024];
    snprintf(said, sizeof said, "%s", test_made("story.golden.json"));
    check_golden(erig_model(), said);
}

TEST_WITH_DATA(stories260k_tells_the_golden_story, "models/stories260K.golden.json")
{
    char model[1024], said[1024];
    snprintf(model, sizeof model, "%s/models/stories260K.gguf", test_data());
    snprintf(said, sizeof said, "%s/models/stories260K.golden.json", test_data());
    check_golden(model, said);
}

TEST(a_model_that_does_not_fit_says_what_would)
{
    rad_error err = {0};
    engine *e;
    engine_params params = {.model_path = erig_model(), .mem_fraction_static = 1e-7};
    CHECK(engine_create(NULL, &params, &e, &err) == RAD_E_NOMEM && !e);
    CHECKF(strstr(err.text, "mem_fraction_static") != NULL, "%s\n", err.text);
    params.mem_fraction_static = 1.5;
    CHECK(engine_create(NULL, &params, &e, &err) == RAD_E_INVAL && !e);
}

TEST_MAIN()
