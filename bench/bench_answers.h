/* bench_answers.h - a scheduler over a real model that decodes answers: what bench_forms and
 * bench_draft_model measure two of in turn.
 *
 * Decoding alone is timed, from the last request's first token on. With BENCH_CPU_TIME in the
 * environment one thread computes, and CPU time counts. What fails ends the program. */
#ifndef BENCH_BENCH_ANSWERS_H
#define BENCH_BENCH_ANSWERS_H

#include "bench.h"

#include "base/mix64.h"
#include "model/model_runner.h"
#include "sched/grammar_rule.h"
#include "sched/scheduler_impl.h"

enum { MOST_REQS = 32, MOST_NEW = 4096, MOST_ROUNDS = 99, DRAFTS = 8 };

typedef struct answer {
    req r;
    grammar_rule rule;
    uint32_t count;
    rad_token ids[MOST_NEW];
} answer;

typedef struct server {
    scheduler *s;
    answer *answers; /* [MOST_REQS] */
    uint32_t started, ended;
    double begun;   /* when the first request was asked, */
    double from;    /* when the last one got its first token, */
    double prompts; /* and how long that had taken in the last run, s */
} server;

static inline void must(rad_status status, const rad_error *err)
{
    if (status == RAD_OK) return;
    fprintf(stderr, "bench: %s\n", err->text);
    exit(1);
}

static inline void *need(void *p)
{
    if (!p) must(RAD_E_NOMEM, &(rad_error){.text = "no memory"});
    return p;
}

static inline _Noreturn void show_usage(const char *usage)
{
    fprintf(stderr, "usage: %s\n", usage);
    exit(2);
}

/* The argument at `i`, or what is usual. */
static inline uint32_t number_of(int argc, char **argv, int i, uint32_t usual, uint32_t least,
                                 uint32_t most, const char *usage)
{
    const long n = i < argc ? atol(argv[i]) : (long)usual;
    if (n < (long)least || n > (long)most) show_usage(usage);
    return (uint32_t)n;
}

static inline void answers_on_output(void *user, const req_output *outputs, uint32_t count)
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
static inline uint64_t answers_now_ns(void *user)
{
    (void)user;
    return (uint64_t)(bench_now() * 1e9);
}

/* bf16, for answers behind so many tokens each. `beside`: whose threads it has; NULL: its own. nextn:
 * with the file's head that guesses. */
static inline runner *answers_model(const gguf_file *file, uint32_t context, uint32_t max_tokens,
                                    uint32_t max_logits, const runner *beside, bool nextn)
{
    rad_error err = {0};
    runner *model;
    const model_runner_params params = {.dtype = RAD_BF16,
                                        .kv_dtype = RAD_BF16,
                                        .set_kv_dtype = true,
                                        .max_batch_tokens = max_tokens,
                                        .max_batch_logits = max_logits,
                                        .context_length = context,
                                        .attn = attn_cpu(NULL),
                                        .num_threads = getenv("BENCH_CPU_TIME") ? 1 : 0,
                                        .threads_of = beside,
                                        .nextn = nextn};
    must(model_runner_create(NULL, file, &params, &model, &err), &err);
    return model;
}

/* Of `p`: who drafts, and what else is not the same for all. */
static inline void server_start(server *v, runner *model, uint32_t context, scheduler_params p)
{
    enum { CHUNK = 2048 };
    rad_error err = {0};
    rad_env env = rad_env_or_default(NULL);
    env.now_ns = answers_now_ns;
    p.runner = model;
    p.page_size = 1;
    p.max_total_tokens = 2ull * MOST_REQS * context + 16384;
    p.max_running_requests = p.max_queued_requests = MOST_REQS;
    p.chunked_prefill_size = CHUNK;
    p.context_length = context;
    p.on_output = answers_on_output;
    p.user = v;
    *v = (server){.answers = need(calloc(MOST_REQS, sizeof *v->answers))};
    must(scheduler_create(&env, &p, &v->s, &err), &err);
}

static inline void server_stop(server *v)
{
    scheduler_destroy(v->s);
    free(v->answers);
    *v = (server){0};
}

/* One of the next run's, with a prompt of `num_ids` tokens drawn by `seed`; form: NULL: any text.
 */
static inline void server_ask(server *v, uint32_t i, uint32_t num_ids, uint64_t seed, grammar *form,
                              req_params p)
{
    enum { MOST_PROMPT = 512 };
    rad_error err = {0};
    if (i == 0) v->begun = bench_now();
    rad_token ids[MOST_PROMPT];
    answer *a = &v->answers[i];
    uint64_t state = seed * MOST_REQS + i + 1;
    RAD_ASSERT(num_ids <= MOST_PROMPT);
    for (uint32_t t = 0; t < num_ids; t++)
        ids[t] = (rad_token)((state = mix64(state + t)) % v->s->params.runner->info.vocab_size);
    memset(a, 0, offsetof(answer, ids));
    p.ids = ids;
    p.num_ids = num_ids;
    p.user = a;
    if (form) {
        must(grammar_rule_init(&a->rule, form, &err), &err);
        p.rule = &a->rule.base;
    }
    must(req_init(&a->r, NULL, &p, &err), &err);
    must(scheduler_add(v->s, &a->r, &err), &err);
}

/* Seconds of decoding the `n` answers that were asked for, to their ends. */
static inline double server_run(server *v, uint32_t n)
{
    while (v->ended < n)
        scheduler_step(v->s);
    const double seconds = bench_now() - v->from;
    v->prompts = v->from - v->begun;
    for (uint32_t i = 0; i < n; i++) {
        req_fini(&v->answers[i].r);
        if (v->answers[i].rule.matcher) grammar_rule_fini(&v->answers[i].rule);
    }
    v->started = v->ended = 0;
    return seconds;
}

/* Drafts change no answer. */
static inline void compare_answers(const server *a, const server *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (a->answers[i].count != b->answers[i].count ||
            memcmp(a->answers[i].ids, b->answers[i].ids, a->answers[i].count * sizeof(rad_token))) {
            fprintf(stderr, "bench: answer %u is another one with drafts\n", i);
            exit(1);
        }
}

/* What one source guessed between two looks at the figures. */
static inline void print_drafts(const draft_stats *before, const draft_stats *after,
                                draft_kind kind)
{
    const uint64_t proposed = after->proposed[kind] - before->proposed[kind];
    const uint64_t accepted = after->accepted[kind] - before->accepted[kind];
    const uint64_t steps = after->req_steps - before->req_steps;
    printf("%6llu drafts, %3.0f%% right  %.2f tokens a step", (unsigned long long)proposed,
           proposed ? 100.0 * (double)accepted / (double)proposed : 0,
           steps ? 1 + (double)accepted / (double)steps : 0);
}

#endif
