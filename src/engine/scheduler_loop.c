/* scheduler_loop.c - the thread that owns the scheduler, and how others reach it.
 *
 * Between two steps it takes what came in: new requests, and calls (statistics, checks,
 * a flush) that others want done where nobody else touches the tree. With nothing to do
 * it sleeps in the ring, and checks itself now and then (sched/self_check.h); while it is
 * paused it only sleeps. */
#include "cuda/cuda_runner.h"
#include "engine/engine_impl.h"

/* A function that another thread wants run here; the caller waits. */
typedef struct engine_call {
    void (*fn)(engine *e, struct engine_call *call);
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;

    rad_status status;
    rad_error *err;
    engine_stats *stats;
    uint32_t *session;
    void (*run)(engine *e, void *user);
    void *user;
    bool no_cache, no_tree;
    const rad_key *key;
    uint64_t ttl_ns;
    uint32_t num_tokens;
} engine_call;

static void run_call(engine *e, engine_call *call)
{
    call->fn(e, call);
    engine_note_stats(e, true); /* who has called finds what he did */
    pthread_mutex_lock(&call->lock);
    call->done = true;
    pthread_cond_signal(&call->cond);
    pthread_mutex_unlock(&call->lock);
}

static void add_job(engine *e, engine_job *job)
{
    job->early_status = scheduler_add(e->scheduler, &job->r, &job->error);
    if (job->early_status == RAD_OK) return;
    detok_message message = {.job = job, .token = -1, .finish = REQ_FINISH_ERROR};
    message_ring_push(&e->to_detokenizer, &message, 1);
}

static void tell_use(engine *e)
{
    const bool idle = scheduler_is_idle(e->scheduler);
    engine_populate_follow(&e->populate, scheduler_used_slots(e->scheduler), idle);
    engine_populate_follow(&e->populate_window, scheduler_used_window_slots(e->scheduler), idle);
}

void *scheduler_loop(void *arg)
{
    engine *e = arg;
    sched_message messages[64];
    for (;;) {
        bool idle = scheduler_is_idle(e->scheduler);
        bool rest = idle && !e->paused && !scheduler_has_background(e->scheduler);
        /* Asked before the pop: what was pushed before the ring was closed is in it then. */
        bool closed = message_ring_is_closed(&e->to_scheduler);
        if (rest || e->paused) {
            tell_use(e);
            engine_note_stats(e, true);
        }
        uint64_t wait_ns = rest        ? scheduler_self_check_due_ns(e->scheduler)
                           : e->paused ? RING_FOR_EVER
                                       : 0;
        uint32_t n = message_ring_pop(&e->to_scheduler, messages, RAD_COUNT(messages), wait_ns);
        if (idle && !n && closed) return NULL; /* everything is done */
        if (rest && !n) {
            scheduler_self_check(e->scheduler);
            continue;
        }
        for (uint32_t i = 0; i < n; i++) {
            if (messages[i].job)
                add_job(e, messages[i].job);
            else if (messages[i].call)
                run_call(e, messages[i].call);
            else
                e->paused = false;
        }
        tell_use(e);
        if (!e->paused) scheduler_step(e->scheduler);
        engine_publish_events(e);
        engine_record_step(e);
        engine_note_stats(e, false);
    }
}

void engine_on_output(void *user, const req_output *outputs, uint32_t count)
{
    engine *e = user;
    detok_message messages[64];
    const uint64_t now_ns = e->env.now_ns(e->env.user);
    bool ends = false;
    for (uint32_t i = 0; i < count; i++)
        ends = ends || outputs[i].finish;
    engine_note_stats(e, ends); /* before anybody has the answer */
    for (uint32_t done = 0; done < count;) {
        uint32_t n = RAD_MIN(count - done, (uint32_t)RAD_COUNT(messages));
        for (uint32_t i = 0; i < n; i++) {
            const req_output *o = &outputs[done + i];
            messages[i] = (detok_message){.job = o->req->user,
                                          .token = o->token,
                                          .completion_tokens = o->completion_tokens,
                                          .hits = o->hits,
                                          .finish = o->finish,
                                          .logprobs = o->logprobs,
                                          .prompt_logprobs = o->prompt_logprobs,
                                          .num_prompt_logprobs = o->num_prompt_logprobs,
                                          .made_ns = now_ns};
        }
        message_ring_push(&e->to_detokenizer, messages, n);
        done += n;
    }
}

void engine_on_admit(void *user, req *r)
{
    engine *e = user;
    engine_job *job = r->user;
    /* One that was retracted comes here again. */
    if (!engine_leave_queue(e, job)) return;
    job->admitted_ns = e->env.now_ns(e->env.user);
    latency_add(&e->latency, LATENCY_QUEUE, job->admitted_ns - job->submitted_ns);
}

/* ---- calls ---- */

static rad_status call(engine *e, engine_call *c)
{
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->cond, NULL);
    sched_message message = {.call = c};
    if (message_ring_push(&e->to_scheduler, &message, 1)) {
        pthread_mutex_lock(&c->lock);
        while (!c->done)
            pthread_cond_wait(&c->cond, &c->lock);
        pthread_mutex_unlock(&c->lock);
    } else {
        c->status = RAD_E_STATE;
    }
    pthread_cond_destroy(&c->cond);
    pthread_mutex_destroy(&c->lock);
    return c->status;
}

void engine_fill_stats(engine *e, engine_stats *s)
{
    scheduler_get_stats(e->scheduler, &s->sched);
    if (e->publisher) kv_publisher_get_stats(e->publisher, &s->kv_events);
    if (e->params.on_gpu &&
        cuda_runner_memory(e->runner, &s->gpu_free_bytes, &s->gpu_total_bytes) != RAD_OK)
        s->gpu_free_bytes = s->gpu_total_bytes = 0;
}

static void do_stats(engine *e, engine_call *c)
{
    engine_fill_stats(e, c->stats);
}

void engine_add_stats(engine *e, engine_stats *stats)
{
    /* Its thread goes on while the scheduler sleeps. */
    if (e->recorder) recorder_get_stats(e->recorder, &stats->record);
    stats->kv_populated_bytes = engine_populate_bytes(&e->populate) +
                                engine_populate_bytes(&e->populate_window);
    stats->sched.num_waiting += message_ring_count(&e->to_tokenizer);
    pthread_mutex_lock(&e->lock);
    stats->requests = e->counts;
    pthread_mutex_unlock(&e->lock);
}

void engine_get_stats(engine *e, engine_stats *stats)
{
    *stats = (engine_stats){0};
    engine_call c = {.fn = do_stats, .stats = stats};
    call(e, &c);
    engine_add_stats(e, stats);
}

static void do_check(engine *e, engine_call *c)
{
    c->status = scheduler_check(e->scheduler, c->err);
}

rad_status engine_check(engine *e, rad_error *err)
{
    engine_call c = {.fn = do_check, .err = err};
    return call(e, &c);
}

static void do_session_open(engine *e, engine_call *c)
{
    c->status = scheduler_session_open(e->scheduler, c->session, c->err);
}

rad_status engine_session_open(engine *e, uint32_t *session, rad_error *err)
{
    engine_call c = {.fn = do_session_open, .session = session, .err = err};
    return call(e, &c);
}

static void do_session_close(engine *e, engine_call *c)
{
    c->status = scheduler_session_close(e->scheduler, *c->session, c->err);
}

rad_status engine_session_close(engine *e, uint32_t session, rad_error *err)
{
    engine_call c = {.fn = do_session_close, .session = &session, .err = err};
    return call(e, &c);
}

static void do_pin(engine *e, engine_call *c)
{
    c->status = scheduler_pin_prefix(e->scheduler, c->key, c->ttl_ns, &c->num_tokens, c->err);
}

rad_status engine_pin_prefix(engine *e, const rad_key *key, uint64_t ttl_ns, uint32_t *num_tokens,
                             rad_error *err)
{
    engine_call c = {.fn = do_pin, .err = err, .key = key, .ttl_ns = ttl_ns};
    rad_status status = call(e, &c);
    *num_tokens = c.num_tokens;
    return status;
}

static void do_flush(engine *e, engine_call *c)
{
    c->status = scheduler_flush_cache(e->scheduler);
}

rad_status engine_flush_cache(engine *e)
{
    engine_call c = {.fn = do_flush};
    return call(e, &c);
}

static void do_pause(engine *e, engine_call *c)
{
    e->paused = true;
    c->status = RAD_OK;
}

void engine_pause(engine *e)
{
    engine_call c = {.fn = do_pause};
    call(e, &c);
}

void engine_continue(engine *e)
{
    engine_job *none = NULL;
    message_ring_push(&e->to_tokenizer, &none, 1);
}

static void do_set_cache(engine *e, engine_call *c)
{
    uint32_t kind = c->no_cache ? RAD_CACHE_CHUNK : RAD_CACHE_RADIX;
    c->status = scheduler_set_cache(e->scheduler, kind, !c->no_tree, c->err);
}

rad_status engine_set_cache(engine *e, bool disable_radix_cache, bool disable_tree_attention,
                            rad_error *err)
{
    engine_call c = {.fn = do_set_cache,
                     .err = err,
                     .no_cache = disable_radix_cache,
                     .no_tree = disable_tree_attention};
    return call(e, &c);
}

static void do_run(engine *e, engine_call *c)
{
    c->run(e, c->user);
}

rad_status engine_run_on_scheduler(engine *e, void (*fn)(engine *e, void *user), void *user)
{
    engine_call c = {.fn = do_run, .run = fn, .user = user};
    return call(e, &c);
}

static void do_set_drafts(engine *e, void *on)
{
    scheduler_set_drafts(e->scheduler, *(const bool *)on);
}

void engine_set_drafts(engine *e, bool on)
{
    (void)engine_run_on_scheduler(e, do_set_drafts, &on);
}
