/* run.c - the calls of a workload as requests of an engine.
 *
 * The caller's thread submits; the engine's detokenizer thread reports through on_event.
 * Between them: one lock, and a condition for "a call has ended". */
#include "workload/run.h"

#include "base/mix64.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct running_call {
    struct running *run;
    rad_token *prompt; /* while it runs */
    rad_token *ids;    /* its answer */
    uint32_t num_prompt;
    uint32_t num_ids;
    uint32_t missing; /* calls that must still end before it starts */
    bool started, ended;
    uint32_t cached;
    uint64_t start_ns, first_ns, end_ns;
    uint64_t token_ns, longest_gap_ns; /* when the last token came; between two of them */
} running_call;

typedef struct running {
    const workload *w;
    engine *e;
    rad_env env;
    run_params params;
    running_call *calls;
    pthread_mutex_t lock;
    pthread_cond_t some_ended;
    uint32_t in_flight, num_ended;
    rad_status status; /* of the first call that failed */
    rad_error err;
} running;

static void on_event(void *user, const engine_event *event)
{
    running_call *c = user;
    running *run = c->run;
    uint64_t now = run->env.now_ns(run->env.user);
    uint32_t room = run->w->calls[c - run->calls].out;
    pthread_mutex_lock(&run->lock);
    for (uint32_t i = 0; i < event->num_ids && c->num_ids < room; i++)
        c->ids[c->num_ids++] = event->ids[i];
    if (event->num_ids) {
        if (c->token_ns) c->longest_gap_ns = RAD_MAX(c->longest_gap_ns, now - c->token_ns);
        c->token_ns = now;
    }
    if (!c->first_ns && (event->num_ids || event->finish)) c->first_ns = now;
    if (event->finish) {
        c->cached = event->hits.cached;
        c->end_ns = now;
        c->ended = true;
        run->in_flight--;
        run->num_ended++;
        if (event->finish != ENGINE_FINISH_LENGTH && run->status == RAD_OK) {
            run->status = event->status ? event->status : RAD_E_STATE;
            rad_fail(&run->err, run->status, "call %td of %s ended early: %s", c - run->calls,
                     run->w->name, event->message ? event->message : "no reason given");
        }
        pthread_cond_signal(&run->some_ended);
    }
    pthread_mutex_unlock(&run->lock);
}

/* Token `i` of a text segment. The first ones differ between segments as long as there are
 * ids for it. */
static rad_token text_token(const running *run, uint32_t segment, uint32_t i)
{
    enum { FIRST = 3 }; /* ids below are special in most vocabularies */
    uint32_t ids = engine_get_info(run->e)->vocab_size - FIRST;
    if (i == 0) return (rad_token)(FIRST + segment % ids);
    uint64_t draw = mix64(((uint64_t)run->params.seed << 52) ^ ((uint64_t)segment << 20) ^ i);
    return (rad_token)(FIRST + draw % ids);
}

static rad_status fill_prompt(running *run, uint32_t index, rad_error *err)
{
    const workload *w = run->w;
    const workload_call *call = &w->calls[index];
    running_call *c = &run->calls[index];
    c->num_prompt = workload_prompt_tokens(w, index);
    c->prompt = rad_alloc(&run->env, c->num_prompt * sizeof *c->prompt);
    c->ids = rad_alloc(&run->env, RAD_MAX(call->out, 1u) * sizeof *c->ids);
    if (!c->prompt || !c->ids) return rad_fail(err, RAD_E_NOMEM, "no memory for a prompt");
    rad_token *to = c->prompt;
    for (uint32_t s = 0; s < call->num_segs; s++) {
        uint32_t segment = w->prompts[call->segs_at + s];
        uint32_t tokens = w->segments[segment].tokens, from = w->segments[segment].output_of;
        for (uint32_t i = 0; i < tokens; i++)
            *to++ = from ? run->calls[from - 1].ids[i] : text_token(run, segment, i);
    }
    return RAD_OK;
}

/* Under the lock on entry and on return. */
static rad_status start_call(running *run, uint32_t index, rad_error *err)
{
    running_call *c = &run->calls[index];
    rad_status status = fill_prompt(run, index, err);
    if (status != RAD_OK) return status;
    c->run = run;
    c->started = true;
    c->start_ns = run->env.now_ns(run->env.user);
    run->in_flight++;
    pthread_mutex_unlock(&run->lock); /* submit may call nobody, but it may wait */
    const engine_request request = {
        .ids = c->prompt,
        .num_ids = c->num_prompt,
        .sampling = {.top_p = 1},
        .ignore_eos = true,
        .max_new_tokens = run->w->calls[index].out,
        .on_event = on_event,
        .user = c,
    };
    uint64_t id;
    status = engine_submit(run->e, &request, &id, err);
    pthread_mutex_lock(&run->lock);
    if (status != RAD_OK) run->in_flight--;
    return status;
}

/* What has ended since `seen` lets others start. */
static void count_down(running *run)
{
    const workload *w = run->w;
    for (uint32_t i = 0; i < w->num_calls; i++) {
        uint32_t missing = 0;
        if (run->calls[i].started) continue;
        for (uint32_t a = 0; a < w->calls[i].num_after; a++)
            missing += !run->calls[w->afters[w->calls[i].after_at + a]].ended;
        run->calls[i].missing = missing;
    }
}

static rad_status run_all(running *run, rad_error *err)
{
    rad_status status = RAD_OK;
    uint32_t counted = UINT32_MAX;
    bool paused = run->params.together;
    if (paused) engine_pause(run->e);
    pthread_mutex_lock(&run->lock);
    while (run->num_ended < run->w->num_calls && status == RAD_OK && run->status == RAD_OK) {
        if (counted != run->num_ended) {
            counted = run->num_ended;
            count_down(run);
        }
        uint32_t next = 0;
        while (next < run->w->num_calls && (run->calls[next].started || run->calls[next].missing))
            next++;
        if (next < run->w->num_calls && run->in_flight < run->params.concurrency)
            status = start_call(run, next, err);
        else {
            if (paused) engine_continue(run->e);
            paused = false;
            pthread_cond_wait(&run->some_ended, &run->lock);
        }
    }
    if (paused) engine_continue(run->e);
    while (run->in_flight) /* after a failure: let the others end */
        pthread_cond_wait(&run->some_ended, &run->lock);
    pthread_mutex_unlock(&run->lock);
    if (status == RAD_OK && run->status != RAD_OK)
        status = rad_fail(err, run->status, "%s", run->err.text);
    return status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sort_seconds(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, by_value);
}

static void percentiles(double *times, uint32_t count, double *p50, double *p99)
{
    sort_seconds(times, count);
    *p50 = times[count / 2];
    *p99 = times[(uint32_t)((uint64_t)count * 99 / 100)];
}

static rad_status sum_up(const running *run, run_result *out, rad_error *err)
{
    uint32_t n = run->w->num_calls;
    double *times = rad_alloc(&run->env, n * sizeof *times);
    if (!times) return rad_fail(err, RAD_E_NOMEM, "no memory to sort %u times", n);
    uint64_t digest = 0;
    for (uint32_t i = 0; i < n; i++) {
        const running_call *c = &run->calls[i];
        out->prompt_tokens += c->num_prompt;
        out->output_tokens += c->num_ids;
        out->cached_tokens += c->cached;
        for (uint32_t k = 0; k < c->num_ids; k++)
            digest = mix64(digest ^ (uint64_t)(uint32_t)c->ids[k] ^ (uint64_t)i << 32);
        times[i] = (double)(c->first_ns - c->start_ns) * 1e-9;
        out->longest_gap_s = RAD_MAX(out->longest_gap_s, (double)c->longest_gap_ns * 1e-9);
    }
    out->digest = digest;
    out->calls = n;
    percentiles(times, n, &out->ttft_p50_s, &out->ttft_p99_s);
    for (uint32_t i = 0; i < n; i++)
        times[i] = (double)(run->calls[i].end_ns - run->calls[i].start_ns) * 1e-9;
    percentiles(times, n, &out->latency_p50_s, &out->latency_p99_s);
    rad_free(&run->env, times, n * sizeof *times);
    return RAD_OK;
}

rad_status workload_run(engine *e, const workload *w, const run_params *params, run_result *out,
                        rad_error *err)
{
    *out = (run_result){0};
    workload_sums sums;
    rad_status status = workload_sum(w, &sums, err);
    if (status != RAD_OK) return status;
    if (sums.longest > engine_get_info(e)->context_length)
        return rad_fail(err, RAD_E_INVAL, "%s has calls of %u tokens, the context is %u", w->name,
                        sums.longest, engine_get_info(e)->context_length);
    running run = {.w = w,
                   .e = e,
                   .env = w->env,
                   .params = *params,
                   .lock = PTHREAD_MUTEX_INITIALIZER,
                   .some_ended = PTHREAD_COND_INITIALIZER};
    run.calls = rad_alloc(&run.env, rad_mul(w->num_calls, sizeof *run.calls));
    if (!run.calls) return rad_fail(err, RAD_E_NOMEM, "no memory for %u calls", w->num_calls);
    uint64_t start = run.env.now_ns(run.env.user);
    status = run_all(&run, err);
    out->wall_s = (double)(run.env.now_ns(run.env.user) - start) * 1e-9;
    if (status == RAD_OK) status = sum_up(&run, out, err);
    for (uint32_t i = 0; i < w->num_calls; i++) {
        rad_free(&run.env, run.calls[i].prompt, run.calls[i].num_prompt * sizeof(rad_token));
        rad_free(&run.env, run.calls[i].ids, RAD_MAX(w->calls[i].out, 1u) * sizeof(rad_token));
    }
    rad_free(&run.env, run.calls, w->num_calls * sizeof *run.calls);
    pthread_mutex_destroy(&run.lock);
    pthread_cond_destroy(&run.some_ended);
    return status;
}
