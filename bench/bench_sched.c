/* bench_sched.c - what a step of the scheduler costs beside its forward pass.
 *
 * The runner here computes nothing, so all that is timed is tree, queue and batch:
 *   1. N requests wait (groups of 100 share 1,024 tokens), 32 run, and whenever one ends
 *      another arrives. Per policy: a step, and what taking one request in costs.
 *   2. 32 requests decode over a shared prefix: the groups of a step.
 *   3. The same of a model in which a layer sees 4,096 tokens and has window memory.
 *   4. What guessing takes where nothing is ever guessed right: two schedulers, one that drafts and
 *      one that does not, answer the same in turn. The forward pass reads 64 MB, as a model reads
 *      its weights, so that each step finds cold caches. CPU time of this thread without that: what
 *      others do on the machine meanwhile hardly counts.
 *
 * usage: bench_sched [waiting, default 10000; 0: 4. alone] */
#include "bench.h"

#include "sched/scheduler_impl.h"

enum { SHARED = 1024, OWN = 32, GROUP = 100, RUNNING = 32, STEPS = 2000, VOCAB = 4096 };

typedef struct nothing {
    runner base;
    float logits[512];
} nothing;

static float zeros[512 * VOCAB];

static rad_status nothing_forward(runner *self, const forward_batch *batch, const float **logits,
                                  rad_error *err)
{
    (void)self, (void)batch, (void)err;
    *logits = zeros;
    return RAD_OK;
}

static void nothing_destroy(runner *self)
{
    (void)self;
}

static rad_status nothing_pool(runner *self, const rad_env *env, const runner_pool_params *params,
                               rad_token_to_kv_pool **out, rad_error *err)
{
    return runner_make_pool(&self->info, NULL, env, params, out, err);
}

static const runner_ops nothing_ops = {
    .forward = nothing_forward, .create_pool = nothing_pool, .destroy = nothing_destroy};

typedef struct bench {
    scheduler *s;
    req *reqs;
    uint32_t num_reqs, num_ended;
    req **ended;
} bench;

static void on_output(void *user, const req_output *outputs, uint32_t count)
{
    bench *b = user;
    for (uint32_t i = 0; i < count; i++)
        if (outputs[i].finish) b->ended[b->num_ended++] = outputs[i].req;
}

static uint64_t rng = 1;
static uint32_t random_below(uint32_t n)
{
    rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
    return (uint32_t)(rng % n);
}

static void add_one(bench *b, req *r, uint32_t groups)
{
    static rad_token ids[SHARED + OWN];
    uint64_t group = random_below(groups);
    for (uint32_t i = 0; i < SHARED; i++)
        ids[i] = (rad_token)((group * 2654435761u + i * 40503u) % VOCAB);
    for (uint32_t i = 0; i < OWN; i++)
        ids[SHARED + i] = (rad_token)random_below(VOCAB);
    req_params p = {.ids = ids,
                    .num_ids = SHARED + OWN,
                    .max_new_tokens = 4 + random_below(24),
                    .priority = (int32_t)random_below(4),
                    .sampling = {.top_p = 1}};
    if (req_init(r, NULL, &p, NULL) != RAD_OK || scheduler_add(b->s, r, NULL) != RAD_OK) abort();
}

static void make(bench *b, runner *run, scheduler_params p)
{
    rad_error err = {0};
    p.runner = run;
    p.on_output = on_output;
    p.user = b;
    if (scheduler_create(NULL, &p, &b->s, &err) != RAD_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
}

static void bench_policy(runner *run, schedule_policy policy, uint32_t waiting)
{
    bench b = {.num_reqs = waiting + RUNNING};
    uint32_t groups = RAD_MAX(1u, waiting / GROUP);
    b.reqs = calloc(b.num_reqs, sizeof *b.reqs);
    b.ended = calloc(b.num_reqs, sizeof *b.ended);
    make(&b, run,
         (scheduler_params){.max_total_tokens = 40000, /* some 30 prefixes: it evicts */
                            .max_running_requests = RUNNING,
                            .max_queued_requests = b.num_reqs,
                            .chunked_prefill_size = 2048,
                            .policy = policy});
    double start = bench_now();
    for (uint32_t i = 0; i < b.num_reqs; i++)
        add_one(&b, &b.reqs[i], groups);
    double add_us = (bench_now() - start) / b.num_reqs * 1e6;

    static double ms[STEPS];
    scheduler_stats before, after;
    for (uint32_t i = 0; i < 200; i++) { /* warm */
        scheduler_step(b.s);
        for (; b.num_ended; add_one(&b, b.ended[b.num_ended], groups))
            req_fini(b.ended[--b.num_ended]);
    }
    scheduler_get_stats(b.s, &before);
    for (uint32_t i = 0; i < STEPS; i++) {
        start = bench_now();
        scheduler_step(b.s);
        ms[i] = (bench_now() - start) * 1e3;
        for (; b.num_ended; add_one(&b, b.ended[b.num_ended], groups))
            req_fini(b.ended[--b.num_ended]);
    }
    scheduler_get_stats(b.s, &after);
    qsort(ms, STEPS, sizeof *ms, bench_compare);
    double prompts = (double)(after.prompt_tokens - before.prompt_tokens);
    printf("%-10s %6u waiting: a step p50 %.3f ms, p99 %.3f, max %.3f (limit 1.000); add %.1f us; "
           "hit rate %.2f, %.1f admitted a step\n",
           schedule_policy_name(policy), after.num_waiting, ms[STEPS / 2], ms[STEPS * 99 / 100],
           ms[STEPS - 1], add_us, (double)(after.cached_tokens - before.cached_tokens) / prompts,
           prompts / (SHARED + OWN) / STEPS);
    scheduler_destroy(b.s);
    for (uint32_t i = 0; i < b.num_reqs; i++)
        req_fini(&b.reqs[i]);
    free(b.reqs);
    free(b.ended);
}

/* 32 and 256 decode over a shared prefix of 8,192 tokens, in pairs that share 512 more. */
static void bench_groups(runner *run, uint32_t running)
{
    enum { CONTEXT = 8192, PAIR = 512, ROUNDS = 1000 };
    static rad_token ids[CONTEXT + PAIR + 8];
    static double us[3][ROUNDS];
    uint32_t groups = 0;
    uint64_t tokens = 0, distinct = 0;
    for (uint32_t off = 0; off < 2; off++) {
        bench b = {.num_reqs = running};
        b.reqs = calloc(running, sizeof *b.reqs);
        b.ended = calloc(running, sizeof *b.ended);
        make(&b, run,
             (scheduler_params){.max_total_tokens = 2000000,
                                .window_total_tokens = run->info.window_layers ? 2000000 : 0,
                                .max_running_requests = running,
                                .max_queued_requests = running,
                                .chunked_prefill_size = 16384,
                                .disable_tree_attention = off});
        for (uint32_t i = 0; i < running; i++) {
            for (uint32_t k = 0; k < CONTEXT + PAIR + 8; k++)
                ids[k] = (rad_token)((k * 40503u + (k >= CONTEXT ? i / 2 * 77 : 0)) % VOCAB);
            ids[CONTEXT + PAIR] = (rad_token)i;
            req_params p = {.ids = ids,
                            .num_ids = CONTEXT + PAIR + 8,
                            .max_new_tokens = 4 * ROUNDS,
                            .sampling = {.top_p = 1}};
            if (req_init(&b.reqs[i], NULL, &p, NULL) || scheduler_add(b.s, &b.reqs[i], NULL))
                abort();
        }
        while (b.reqs[running - 1].num_output == 0 || b.reqs[running - 2].num_output == 0)
            scheduler_step(b.s);
        scheduler_stats before, after;
        scheduler_get_stats(b.s, &before);
        for (uint32_t i = 0; i < ROUNDS; i++) {
            double start = bench_now();
            scheduler_step(b.s);
            us[off][i] = (bench_now() - start) * 1e6;
        }
        scheduler_get_stats(b.s, &after);
        if (!off) {
            tokens = (after.context_tokens - before.context_tokens) / ROUNDS;
            distinct = (after.distinct_context_tokens - before.distinct_context_tokens) / ROUNDS;
            schedule_batch *batch = &b.s->batch;
            for (uint32_t i = 0; i < ROUNDS; i++) {
                double start = bench_now();
                b.s->groups.num_reqs = UINT32_MAX; /* as if the batch had changed */
                batch_groups_update(&b.s->groups, batch, &b.s->pools, &b.s->forward);
                us[2][i] = (bench_now() - start) * 1e6;
            }
            groups = b.s->groups.num_groups;
        }
        scheduler_destroy(b.s);
        for (uint32_t i = 0; i < running; i++)
            req_fini(&b.reqs[i]);
        free(b.reqs);
        free(b.ended);
    }
    for (int i = 0; i < 3; i++)
        qsort(us[i], ROUNDS, sizeof **us, bench_compare);
    static double draw[ROUNDS];
    for (uint32_t i = 0; i < ROUNDS; i++) {
        const sampling_params greedy = {.top_p = 1};
        double start = bench_now();
        for (uint32_t k = 0; k < running; k++)
            sampler_sample(zeros + (size_t)k * VOCAB, VOCAB, &greedy, 0, NULL);
        draw[i] = (bench_now() - start) * 1e6;
    }
    qsort(draw, ROUNDS, sizeof *draw, bench_compare);
    printf("%-10s %6u decoding over %u tokens: a step p50 %.1f us (choosing tokens %.1f), "
           "without groups %.1f; all made "
           "anew p50 %.1f, p99 %.1f; %u groups, %llu of %llu tokens to read\n",
           run->info.window_layers ? "windows" : "groups", running, CONTEXT + PAIR,
           us[0][ROUNDS / 2], draw[ROUNDS / 2], us[1][ROUNDS / 2], us[2][ROUNDS / 2],
           us[2][ROUNDS * 99 / 100], groups, (unsigned long long)distinct,
           (unsigned long long)tokens);
}

/* ---- guesses that nobody needs ---- */

static uint64_t *weights;
static double forward_seconds; /* that reading them has taken */

static rad_status reading_forward(runner *self, const forward_batch *batch, const float **logits,
                                  rad_error *err)
{
    enum { BYTES = 64 << 20 };
    const double start = bench_thread_now();
    if (!weights) {
        weights = malloc(BYTES);
        if (!weights) return rad_fail(err, RAD_E_NOMEM, "no memory");
        memset(weights, 1, BYTES);
    }
    volatile uint64_t sink = read_words(weights, BYTES / sizeof *weights);
    (void)sink;
    forward_seconds += bench_thread_now() - start;
    return nothing_forward(self, batch, logits, err);
}

static const runner_ops reading_ops = {
    .forward = reading_forward, .create_pool = nothing_pool, .destroy = nothing_destroy};

typedef struct guessing {
    bench b;
    double seconds, forward; /* beside forward passes, and of these */
    double us[STEPS];
    uint32_t steps;
} guessing;

/* `running` answers of ANSWER tokens, told, no token of which stood there before. */
static void answer_once(guessing *g, uint32_t running, uint32_t round)
{
    enum { PROMPT = 64, ANSWER = 128 };
    static rad_token text[RUNNING][PROMPT + ANSWER];
    g->b.num_ended = 0;
    for (uint32_t i = 0; i < running; i++) {
        const uint32_t step = 2 * (round * RUNNING + i) + 1;
        for (uint32_t k = 0; k < PROMPT + ANSWER; k++)
            text[i][k] = (rad_token)((k * step + i) % VOCAB);
        const req_params p = {.ids = text[i],
                              .num_ids = PROMPT,
                              .max_new_tokens = ANSWER,
                              .told = text[i] + PROMPT,
                              .num_told = ANSWER,
                              .sampling = {.top_p = 1}};
        if (req_init(&g->b.reqs[i], NULL, &p, NULL) || scheduler_add(g->b.s, &g->b.reqs[i], NULL))
            abort();
    }
    scheduler_step(g->b.s); /* prompts */
    while (g->b.num_ended < running) {
        const double before = forward_seconds, start = bench_thread_now();
        scheduler_step(g->b.s);
        const double forward = forward_seconds - before,
                     seconds = bench_thread_now() - start - forward;
        g->seconds += seconds;
        g->forward += forward;
        if (g->steps < STEPS) g->us[g->steps++] = seconds * 1e6;
    }
    for (uint32_t i = 0; i < running; i++)
        req_fini(&g->b.reqs[i]);
}

static void bench_guesses(runner *run, uint32_t running)
{
    enum { ROUNDS = 6 };
    static guessing sides[2];
    scheduler_stats st;
    for (int on = 0; on < 2; on++) {
        guessing *g = &sides[on];
        *g = (guessing){.b = {.num_reqs = running}};
        g->b.reqs = calloc(running, sizeof *g->b.reqs);
        g->b.ended = calloc(running, sizeof *g->b.ended);
        make(&g->b, run,
             (scheduler_params){.max_total_tokens = 40000,
                                .max_running_requests = RUNNING,
                                .max_queued_requests = RUNNING,
                                .chunked_prefill_size = 4096,
                                .max_draft_tokens = on ? 32 : 0,
                                .draft_sources = draft_bit(DRAFT_TREE) | draft_bit(DRAFT_NGRAM) |
                                                 draft_bit(DRAFT_RECENT),
                                .draft_recent_tokens = 1 << 19});
    }
    for (uint32_t round = 0; round <= ROUNDS; round++)
        for (int turn = 0; turn < 2; turn++) {
            guessing *g = &sides[(turn + round) % 2];
            if (round == 1)
                g->seconds = g->forward = g->steps = 0; /* indexes have their memory now */
            answer_once(g, running, round);
        }
    scheduler_get_stats(sides[1].b.s, &st);
    double each[2], p50[2];
    for (int on = 0; on < 2; on++) {
        guessing *g = &sides[on];
        each[on] = g->seconds * 1e6 / g->steps;
        p50[on] = bench_median(g->us, g->steps);
        scheduler_destroy(g->b.s);
        free(g->b.reqs);
        free(g->b.ended);
    }
    const double forward = sides[1].forward * 1e6 / sides[1].steps;
    uint64_t rows = 0;
    for (int kind = 0; kind < DRAFT_KINDS; kind++)
        rows += st.drafts.proposed[kind];
    printf("guesses    %6u decoding, none right: a step %.1f us of CPU time (p50 %.1f), without "
           "guesses %.1f (%.1f): %+.2f us, %.3f a token, %.3f%% of the step (%.1f ms); %llu rows\n",
           running, each[1], p50[1], each[0], p50[0], each[1] - each[0],
           (each[1] - each[0]) / running, 100 * (each[1] - each[0]) / forward, forward * 1e-3,
           (unsigned long long)rows);
}

int main(int argc, char **argv)
{
    static const uint32_t at_once[] = {1, 4, 16, RUNNING - 1, RUNNING};
    const uint32_t waiting = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 10000;
    nothing run = {.base = {.ops = &nothing_ops,
                            .info = {.vocab_size = VOCAB,
                                     .context_length = 16384,
                                     .num_layers = 1,
                                     .num_kv_heads = 1,
                                     .head_dim = 8,
                                     .v_head_dim = 8,
                                     .kv_dtype = RAD_F32}}};
    compute_pool *pool = NULL;
    compute_pool_create(NULL, 1, &pool, NULL);
    bench_print_machine(pool);
    compute_pool_destroy(pool);
    run.base.ops = &reading_ops;
    for (size_t i = 0; i < RAD_COUNT(at_once); i++)
        bench_guesses(&run.base, at_once[i]);
    run.base.ops = &nothing_ops;
    if (!waiting) return 0;
    for (uint32_t policy = 0; policy < SCHEDULE_NUM_POLICIES; policy++)
        bench_policy(&run.base, policy, waiting);
    bench_groups(&run.base, 32);
    bench_groups(&run.base, 256);
    run.base.info.num_layers = 2;
    run.base.info.window_layers = 1;
    run.base.info.sliding_window = 4096;
    bench_groups(&run.base, 32);
    bench_groups(&run.base, 256);
    return 0;
}
