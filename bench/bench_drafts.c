/* bench_drafts.c - what drafts do to the time of answers, beside the same answers without.
 *
 * One model, two schedulers: one drafts from the tree and from each request's own text, one does
 * not. Each answer is made by both, in turn, and must be the same. Cases, for 1, 4 and 32 requests
 * at a time:
 *
 *     greedy   prompts nobody asked before, temperature 0: a small model repeats itself soon
 *     drawn    the same at temperature 1: nothing repeats, so nothing should be lost
 *     again    prompts that were asked before, temperature 0
 *
 * ratio: the median over the rounds of (time without / time with), of decoding alone; tokens a
 * step: of a request, with drafts.
 *
 * With BENCH_CPU_TIME in the environment one thread computes, and CPU time counts.
 *
 * usage: bench_drafts MODEL.gguf [tokens of an answer, 192] [rounds, 7] */
#include "bench.h"

#include "base/mix64.h"
#include "model/model_runner.h"
#include "sched/scheduler_impl.h"

enum { MOST_REQS = 32, PROMPT = 48, MOST_NEW = 4096, MOST_ROUNDS = 99, DRAFTS = 8 };

typedef enum kind { GREEDY, DRAWN, AGAIN, NUM_KINDS } kind;
static const char *const kind_names[NUM_KINDS] = {"greedy", "drawn", "again"};

typedef struct answer {
    req r;
    uint32_t count;
    rad_token ids[MOST_NEW];
} answer;

typedef struct server {
    scheduler *s;
    answer *answers; /* [MOST_REQS] */
    uint32_t started, ended;
    double from; /* when the last request got its first token */
} server;

static uint32_t num_new, num_rounds, vocab_size;

static void must(rad_status status, const rad_error *err)
{
    if (status == RAD_OK) return;
    fprintf(stderr, "bench_drafts: %s\n", err->text);
    exit(1);
}

static void on_output(void *user, const req_output *outputs, uint32_t count)
{
    server *v = user;
    for (uint32_t i = 0; i < count; i++) {
        const req_output *o = &outputs[i];
        answer *a = o->req->user;
        if (o->finish == REQ_FINISH_ERROR) must(RAD_E_STATE, &o->req->error);
        if (o->token >= 0 && !a->count) {
            v->started++;
            v->from = bench_now();
        }
        if (o->token >= 0) a->ids[a->count++] = o->token;
        v->ended += o->finish != REQ_FINISH_NONE;
    }
}

/* The scheduler prices steps by the clock that they are measured with. */
static uint64_t now_ns(void *user)
{
    (void)user;
    return (uint64_t)(bench_now() * 1e9);
}

static void start(runner *model, bool drafts, server *v)
{
    rad_error err = {0};
    rad_env env = rad_env_or_default(NULL);
    env.now_ns = now_ns;
    const scheduler_params p = {.runner = model,
                                .page_size = 1,
                                .max_total_tokens = 4ull * MOST_REQS * (PROMPT + num_new) + 16384,
                                .max_running_requests = MOST_REQS,
                                .max_queued_requests = MOST_REQS,
                                .chunked_prefill_size = 2048,
                                .context_length = PROMPT + num_new,
                                .max_draft_tokens = drafts ? DRAFTS : 0,
                                .draft_sources = draft_bit(DRAFT_TREE) | draft_bit(DRAFT_NGRAM),
                                .on_output = on_output,
                                .user = v};
    v->answers = calloc(MOST_REQS, sizeof *v->answers);
    if (!v->answers) exit(1);
    must(scheduler_create(&env, &p, &v->s, &err), &err);
}

/* Seconds of decoding `n` answers to the prompts of `seed` at one time. */
static double run(server *v, kind k, uint32_t n, uint64_t seed)
{
    rad_error err = {0};
    v->started = v->ended = 0;
    for (uint32_t i = 0; i < n; i++) {
        rad_token ids[PROMPT];
        answer *a = &v->answers[i];
        uint64_t state = seed * MOST_REQS + i + 1;
        for (uint32_t t = 0; t < PROMPT; t++)
            ids[t] = (rad_token)((state = mix64(state + t)) % vocab_size);
        const req_params p = {
            .ids = ids,
            .num_ids = PROMPT,
            .max_new_tokens = num_new,
            .sampling = {.temperature = k == DRAWN ? 1 : 0, .top_p = 1, .seed = seed + i},
            .user = a};
        memset(a, 0, offsetof(answer, ids));
        must(req_init(&a->r, NULL, &p, &err), &err);
        must(scheduler_add(v->s, &a->r, &err), &err);
    }
    while (v->ended < n)
        scheduler_step(v->s);
    const double seconds = bench_now() - v->from;
    for (uint32_t i = 0; i < n; i++)
        req_fini(&v->answers[i].r);
    return seconds;
}

static void compare(const server *a, const server *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (a->answers[i].count != b->answers[i].count ||
            memcmp(a->answers[i].ids, b->answers[i].ids, a->answers[i].count * sizeof(rad_token))) {
            fprintf(stderr, "bench_drafts: answer %u is another one with drafts\n", i);
            exit(1);
        }
}

static uint64_t total(const uint64_t *of)
{
    uint64_t sum = 0;
    for (int k = 0; k < DRAFT_KINDS; k++)
        sum += of[k];
    return sum;
}

static void run_case(server *with, server *without, kind k, uint32_t n)
{
    double ratios[MOST_ROUNDS];
    scheduler_stats before, after;
    static uint64_t seed;
    uint64_t fixed = seed += num_rounds + 1;
    if (k == AGAIN) {
        run(with, k, n, fixed);
        run(without, k, n, fixed);
    }
    scheduler_get_stats(with->s, &before);
    for (uint32_t round = 0; round < num_rounds; round++) {
        const uint64_t which = k == AGAIN ? fixed : seed++;
        double on = 0, off = 0;
        for (int turn = 0; turn < 2; turn++)
            if ((turn + round) % 2)
                on = run(with, k, n, which);
            else
                off = run(without, k, n, which);
        compare(with, without, n);
        ratios[round] = off / on;
    }
    scheduler_get_stats(with->s, &after);
    qsort(ratios, num_rounds, sizeof *ratios, bench_compare);
    const uint64_t proposed = total(after.drafts.proposed) - total(before.drafts.proposed);
    const uint64_t accepted = total(after.drafts.accepted) - total(before.drafts.accepted);
    const uint64_t steps = after.drafts.req_steps - before.drafts.req_steps;
    printf(
        "%-7s %2u requests  ratio %5.2f (%.2f to %.2f)  %6llu drafts, %3.0f%% right  %.2f tokens "
        "a step\n",
        kind_names[k], n, ratios[num_rounds / 2], ratios[0], ratios[num_rounds - 1],
        (unsigned long long)proposed, proposed ? 100.0 * (double)accepted / (double)proposed : 0,
        1 + (double)accepted / (double)steps);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    rad_error err = {0};
    gguf_file *file;
    runner *model;
    num_new = argc > 2 ? (uint32_t)atoi(argv[2]) : 192;
    num_rounds = argc > 3 ? (uint32_t)atoi(argv[3]) : 7;
    if (argc < 2 || argc > 4 || num_new < 8 || num_new > MOST_NEW || num_rounds < 1 ||
        num_rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: bench_drafts MODEL.gguf [tokens of an answer] [rounds]\n");
        return 2;
    }
    must(gguf_open(NULL, argv[1], &file, &err), &err);
    const model_runner_params params = {.dtype = RAD_BF16,
                                        .kv_dtype = RAD_BF16,
                                        .set_kv_dtype = true,
                                        .max_batch_tokens = 2048 + 3 * MOST_REQS,
                                        .max_batch_logits = scheduler_max_batch_logits(MOST_REQS),
                                        .context_length = PROMPT + num_new,
                                        .attn = attn_cpu(NULL),
                                        .num_threads = getenv("BENCH_CPU_TIME") ? 1 : 0};
    must(model_runner_create(NULL, file, &params, &model, &err), &err);
    gguf_close(file);
    vocab_size = model->info.vocab_size;
    server with = {0}, without = {0};
    start(model, true, &with);
    start(model, false, &without);
    printf("%s, %u new tokens, %u rounds in turn\n", argv[1], num_new, num_rounds);
    static const uint32_t sizes[] = {1, 4, MOST_REQS};
    for (size_t i = 0; i < RAD_COUNT(sizes); i++)
        for (int k = 0; k < NUM_KINDS; k++)
            run_case(&with, &without, (kind)k, sizes[i]);
    scheduler_destroy(with.s);
    scheduler_destroy(without.s);
    free(with.answers);
    free(without.answers);
    runner_destroy(model);
    return 0;
}
