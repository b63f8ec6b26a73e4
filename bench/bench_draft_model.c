/* bench_draft_model.c - what a draft model does to the time of answers, by how often it is right.
 *
 * Two schedulers over one model: one has a draft model besides, one has not. Answers are told
 * (req_params.told), and so is what the small model says: with a chance the next token of the
 * answer, else another. It computes all the same, prompts that are caught up with included. So what
 * is measured is what it costs and what it wins, for any pair of shapes, random weights or not.
 *
 * ratio: the median over the rounds of (time without / time with), of decoding alone, in turn;
 * tokens a step: of a request, with drafts.
 *
 * With BENCH_CPU_TIME in the environment one thread computes, and CPU time counts.
 *
 * usage: bench_draft_model MODEL.gguf SMALL.gguf [tokens of an answer, 192] [rounds, 5] */
#include "bench.h"

#include "base/mix64.h"
#include "model/model_runner.h"
#include "sched/scheduler_impl.h"

enum { MOST_REQS = 32, PROMPT = 256, MOST_NEW = 4096, MOST_ROUNDS = 99, DRAFTS = 8 };

typedef struct answer {
    req r;
    uint32_t count;
    rad_token told[MOST_NEW];
} answer;

typedef struct server {
    scheduler *s;
    uint32_t started, ended;
    double from; /* when the last request got its first token */
} server;

static uint32_t num_new, num_rounds, vocab_size;
static answer *answers; /* [MOST_REQS] one server's at a time */
static double right;    /* how often the small model is */
static const runner_ops *real_small;

static void must(rad_status status, const rad_error *err)
{
    if (status == RAD_OK) return;
    fprintf(stderr, "bench_draft_model: %s\n", err->text);
    exit(1);
}

static void on_output(void *user, const req_output *outputs, uint32_t count)
{
    server *v = user;
    for (uint32_t i = 0; i < count; i++) {
        const req_output *o = &outputs[i];
        answer *a = o->req->user;
        if (o->finish == REQ_FINISH_ERROR) must(RAD_E_STATE, &o->req->error);
        if (o->token >= 0 && !a->count++) {
            v->started++;
            v->from = bench_now();
        }
        v->ended += o->finish != REQ_FINISH_NONE;
    }
}

/* The scheduler prices steps by the clock that they are measured with. */
static uint64_t now_ns(void *user)
{
    (void)user;
    return (uint64_t)(bench_now() * 1e9);
}

/* Chooses as it would, so that it takes the time, and says something else. A request's seed is its
 * number; whether a position is guessed right is the same each time. */
static rad_status told_sample(runner *self, const runner_sample *rows, uint32_t num_rows,
                              rad_token *tokens, rad_error *err)
{
    const rad_status status = real_small->sample(self, rows, num_rows, tokens, err);
    for (uint32_t i = 0; i < num_rows; i++) {
        const uint32_t at = rows[i].position - PROMPT;
        const rad_token next = answers[rows[i].params->seed].told[at];
        const double draw = (double)(mix64(next + ((uint64_t)rows[i].position << 32)) >> 11) /
                            (1ull << 53);
        tokens[i] = draw < right ? next : (rad_token)((uint32_t)(next + 1) % vocab_size);
    }
    return status;
}

static void start(runner *model, runner *small, server *v)
{
    rad_error err = {0};
    rad_env env = rad_env_or_default(NULL);
    env.now_ns = now_ns;
    const scheduler_params p = {.runner = model,
                                .page_size = 1,
                                .max_total_tokens = 2ull * MOST_REQS * (PROMPT + num_new) + 16384,
                                .max_running_requests = MOST_REQS,
                                .max_queued_requests = MOST_REQS,
                                .chunked_prefill_size = 2048,
                                .context_length = PROMPT + num_new,
                                .max_draft_tokens = small ? DRAFTS : 0,
                                .draft_runner = small,
                                .on_output = on_output,
                                .user = v};
    must(scheduler_create(&env, &p, &v->s, &err), &err);
}

/* Seconds of decoding `n` answers at one time. */
static double run(server *v, uint32_t n, uint64_t seed)
{
    rad_error err = {0};
    v->started = v->ended = 0;
    for (uint32_t i = 0; i < n; i++) {
        rad_token ids[PROMPT];
        answer *a = &answers[i];
        uint64_t state = seed * MOST_REQS + i + 1;
        for (uint32_t t = 0; t < PROMPT; t++)
            ids[t] = (rad_token)((state = mix64(state + t)) % vocab_size);
        for (uint32_t t = 0; t < num_new; t++)
            a->told[t] = (rad_token)((state = mix64(state + t)) % vocab_size);
        const req_params p = {.ids = ids,
                              .num_ids = PROMPT,
                              .max_new_tokens = num_new,
                              .told = a->told,
                              .num_told = num_new,
                              .sampling = {.top_p = 1, .seed = i},
                              .user = a};
        memset(a, 0, offsetof(answer, told));
        must(req_init(&a->r, NULL, &p, &err), &err);
        must(scheduler_add(v->s, &a->r, &err), &err);
    }
    while (v->ended < n)
        scheduler_step(v->s);
    const double seconds = bench_now() - v->from;
    for (uint32_t i = 0; i < n; i++)
        req_fini(&answers[i].r);
    return seconds;
}

static void run_case(server *with, server *without, uint32_t n)
{
    double ratios[MOST_ROUNDS];
    scheduler_stats before, after;
    static uint64_t seed;
    scheduler_get_stats(with->s, &before);
    for (uint32_t round = 0; round < num_rounds; round++, seed++) {
        double on = 0, off = 0;
        for (int turn = 0; turn < 2; turn++)
            if ((turn + round) % 2)
                on = run(with, n, seed);
            else
                off = run(without, n, seed);
        ratios[round] = off / on;
    }
    scheduler_get_stats(with->s, &after);
    qsort(ratios, num_rounds, sizeof *ratios, bench_compare);
    const draft_stats *a = &after.drafts, *b = &before.drafts;
    const uint64_t proposed = a->proposed[DRAFT_MODEL] - b->proposed[DRAFT_MODEL];
    const uint64_t accepted = a->accepted[DRAFT_MODEL] - b->accepted[DRAFT_MODEL];
    const uint64_t steps = a->req_steps - b->req_steps;
    printf("%3.0f%% right %2u requests  ratio %5.2f (%.2f to %.2f)  %6llu drafts, %3.0f%% right  "
           "%.2f tokens a step  %.1f ms for guesses\n",
           100 * right, n, ratios[num_rounds / 2], ratios[0], ratios[num_rounds - 1],
           (unsigned long long)proposed, proposed ? 100.0 * (double)accepted / (double)proposed : 0,
           1 + (double)accepted / (double)steps, (double)(a->prepare_ns - b->prepare_ns) * 1e-6);
    fflush(stdout);
}

static runner *load(const char *path, uint32_t max_tokens, uint32_t max_logits,
                    const runner *beside)
{
    rad_error err = {0};
    gguf_file *file;
    runner *model;
    const model_runner_params params = {.dtype = RAD_BF16,
                                        .kv_dtype = RAD_BF16,
                                        .set_kv_dtype = true,
                                        .max_batch_tokens = max_tokens,
                                        .max_batch_logits = max_logits,
                                        .context_length = PROMPT + num_new,
                                        .attn = attn_cpu(NULL),
                                        .num_threads = getenv("BENCH_CPU_TIME") ? 1 : 0,
                                        .threads_of = beside};
    must(gguf_open(NULL, path, &file, &err), &err);
    must(model_runner_create(NULL, file, &params, &model, &err), &err);
    gguf_close(file);
    return model;
}

int main(int argc, char **argv)
{
    num_new = argc > 3 ? (uint32_t)atoi(argv[3]) : 192;
    num_rounds = argc > 4 ? (uint32_t)atoi(argv[4]) : 5;
    if (argc < 3 || argc > 5 || num_new < 8 || num_new > MOST_NEW || num_rounds < 1 ||
        num_rounds > MOST_ROUNDS) {
        fprintf(stderr,
                "usage: bench_draft_model MODEL.gguf SMALL.gguf [tokens of an answer] [rounds]\n");
        return 2;
    }
    runner *model = load(argv[1], 2048 + MOST_REQS + draft_max_rows(DRAFTS),
                         scheduler_max_batch_logits(MOST_REQS), NULL);
    runner *small = load(argv[2], DRAFT_MODEL_TOKENS, DRAFT_MODEL_LOGITS, model);
    vocab_size = model->info.vocab_size;
    if (small->info.vocab_size != vocab_size) {
        fprintf(stderr, "bench_draft_model: %u tokens and %u\n", vocab_size,
                small->info.vocab_size);
        return 2;
    }
    real_small = small->ops;
    runner_ops told = *real_small;
    told.sample = told_sample;
    small->ops = &told;
    answers = calloc(MOST_REQS, sizeof *answers);
    if (!answers) return 1;
    printf("%s and %s, %u new tokens, %u rounds in turn\n", argv[1], argv[2], num_new, num_rounds);
    static const double rights[] = {0.9, 0.7, 0.5, 0};
    static const uint32_t sizes[] = {1, 4, MOST_REQS};
    for (size_t i = 0; i < RAD_COUNT(rights); i++)
        for (size_t k = 0; k < RAD_COUNT(sizes); k++) {
            server with = {0}, without = {0}; /* what was learned of one rate is not another's */
            right = rights[i];
            start(model, small, &with);
            start(model, NULL, &without);
            run_case(&with, &without, sizes[k]);
            scheduler_destroy(with.s);
            scheduler_destroy(without.s);
        }
    free(answers);
    small->ops = real_small;
    runner_destroy(small);
    runner_destroy(model);
    return 0;
}
