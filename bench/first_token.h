/* first_token.h - the time to the first token of a long prompt, by where its K/V are, with a real
 * model in a real engine: from submit to the first event that has a token.
 *
 *     recompute   nobody has it
 *     device      it was there a moment ago
 *     host        the device has forgotten it
 *     store       host and device have
 *
 * What was cached, and on which tier, is checked by what the event says. */
#ifndef BENCH_FIRST_TOKEN_H
#define BENCH_FIRST_TOKEN_H

#include "bench.h"

#include "engine/engine.h"

#include <unistd.h>

enum { FIRST_RUNS = 3, FIRST_MARGIN = 64 };

typedef struct first_token {
    engine *e;
    rad_token *ids;
    uint32_t tokens;
    uint64_t rng;
    double seconds; /* of the last ask */
    double began;
    uint32_t cached, loaded, fetched;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool told, done;
} first_token;

static void first_must(rad_status status, const rad_error *err, const char *what)
{
    if (status == RAD_OK) return;
    fprintf(stderr, "%s: %s\n", what, err && err->text[0] ? err->text : rad_status_name(status));
    exit(1);
}

static void first_on_event(void *user, const engine_event *event)
{
    first_token *f = user;
    pthread_mutex_lock(&f->lock);
    if (!f->told && (event->num_ids || event->finish)) {
        f->seconds = bench_now() - f->began;
        f->told = true;
    }
    f->cached = event->hits.cached;
    f->loaded = event->hits.loaded;
    f->fetched = event->hits.fetched;
    if (event->finish == ENGINE_FINISH_ERROR) {
        fprintf(stderr, "a request failed: %s\n", event->message ? event->message : "");
        exit(1);
    }
    f->done = event->finish != ENGINE_FINISH_NONE;
    pthread_cond_signal(&f->cond);
    pthread_mutex_unlock(&f->lock);
}

/* Nothing is being copied any more. */
static void first_settle(first_token *f)
{
    engine_stats stats;
    for (;;) {
        engine_get_stats(f->e, &stats);
        if (!stats.sched.tiers.tickets && !stats.sched.num_running) return;
        usleep(2000);
    }
}

static void first_ask(first_token *f)
{
    rad_error err = {0};
    uint64_t id;
    engine_request q = {.ids = f->ids,
                        .num_ids = f->tokens,
                        .ignore_eos = true,
                        .max_new_tokens = 1,
                        .sampling = {.top_p = 1},
                        .on_event = first_on_event,
                        .user = f};
    f->told = f->done = false;
    f->began = bench_now();
    first_must(engine_submit(f->e, &q, &id, &err), &err, "submit");
    pthread_mutex_lock(&f->lock);
    while (!f->done)
        pthread_cond_wait(&f->cond, &f->lock);
    pthread_mutex_unlock(&f->lock);
    first_settle(f);
}

static void first_forget(first_token *f, uint32_t tiers)
{
    rad_error err = {0};
    first_must(engine_flush_tiers(f->e, tiers, &err), &err, "flush");
}

static void first_new_prompt(first_token *f)
{
    uint32_t vocab = engine_get_info(f->e)->vocab_size;
    for (uint32_t i = 0; i < f->tokens; i++) {
        f->rng = f->rng * 6364136223846793005u + 1442695040888963407u;
        f->ids[i] = (rad_token)((f->rng >> 33) % vocab);
    }
}

/* The median; `part` is how much of the prompt came from where it was to come from. */
static double first_line(const char *what, double *seconds, uint32_t part, uint32_t whole)
{
    const double median = bench_median(seconds, FIRST_RUNS);
    printf("  first token, %-21s %8.1f ms", what, 1e3 * median);
    if (whole) printf("   (%u of %u tokens from there)", part, whole);
    printf("\n");
    return median;
}

/* From the store that is attached: the host has the prompt, and the store has it, or gets it
 * now. */
static double first_from_store(first_token *f, const char *what)
{
    double seconds[FIRST_RUNS];
    first_ask(f);
    for (int i = 0; i < FIRST_RUNS; i++) {
        first_forget(f, RAD_TIER_DEVICE | RAD_TIER_HOST);
        first_ask(f);
        seconds[i] = f->seconds;
    }
    return first_line(what, seconds, f->fetched, f->tokens);
}

/* `redis`: a port, or 0. The pages go to `dir` and to Redis. */
static void first_token_times(const char *model, uint32_t tokens, uint32_t page_size,
                              const char *dir, int redis)
{
    rad_error err = {0};
    char store[600], node[64];
    snprintf(store, sizeof store, "file:%s/first-token", dir);
    snprintf(node, sizeof node, "redis:127.0.0.1:%d", redis);
    tokens -= tokens % page_size;
    engine_params params = {.model_path = model,
                            .dtype = RAD_BF16, /* weights that are not quantised, and KV */
                            .page_size = page_size,
                            .max_total_tokens = tokens + 2 * page_size + FIRST_MARGIN,
                            .max_running_requests = 1,
                            .enable_hierarchical_cache = true,
                            .hicache_ratio = 2.5, /* prefetches may use half */
                            .hicache_storage_backend = store,
                            .hicache_storage_prefetch_policy = "wait_complete"};
    first_token f = {.rng = 1};
    pthread_mutex_init(&f.lock, NULL);
    pthread_cond_init(&f.cond, NULL);
    first_must(engine_create(NULL, &params, &f.e, &err), &err, "engine");
    const engine_info *info = engine_get_info(f.e);
    /* The last token is always computed: so the others are whole pages. */
    tokens = RAD_MIN(tokens, (info->context_length - 2) / page_size * page_size) + 1;
    f.ids = calloc(tokens, sizeof *f.ids);
    printf("# %s: %s weights, %s KV, %u tokens of prompt; medians of %d, each measured\n",
           info->model_name, info->dtype, info->kv_cache_dtype, tokens, FIRST_RUNS);

    double seconds[FIRST_RUNS], all[3];
    f.tokens = RAD_MIN(tokens, 64u); /* the first step is no measure */
    first_new_prompt(&f);
    first_ask(&f);
    f.tokens = tokens;
    for (int i = 0; i < FIRST_RUNS; i++) {
        first_forget(&f, RAD_TIER_DEVICE | RAD_TIER_HOST | RAD_TIER_STORAGE);
        first_new_prompt(&f);
        first_ask(&f);
        seconds[i] = f.seconds;
    }
    all[0] = first_line("computed", seconds, 0, 0);
    for (int i = 0; i < FIRST_RUNS; i++) {
        first_ask(&f);
        seconds[i] = f.seconds;
    }
    first_line("from the device", seconds, f.cached - f.loaded, f.tokens);
    for (int i = 0; i < FIRST_RUNS; i++) {
        first_forget(&f, RAD_TIER_DEVICE);
        first_ask(&f);
        seconds[i] = f.seconds;
    }
    all[1] = first_line("from the host", seconds, f.loaded - f.fetched, f.tokens);
    all[2] = first_from_store(&f, "from the file");
    printf("  computed costs %.0f times the host hit, %.1f times the file hit", all[0] / all[1],
           all[0] / all[2]);
    if (redis > 0) {
        printf("\n");
        first_must(engine_detach_storage(f.e, &err), &err, "detach");
        first_must(engine_attach_storage(f.e, node, NULL, &err), &err, "attach");
        double far = first_from_store(&f, "from Redis");
        printf("  and %.1f times the Redis hit", all[0] / far);
    }
    printf("\n");
    engine_destroy(f.e);
    free(f.ids);
    pthread_cond_destroy(&f.cond);
    pthread_mutex_destroy(&f.lock);
}

#endif
