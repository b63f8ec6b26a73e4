/* scheduler_rig.h - a scheduler over runner_fake whose every answer is compared with
 * the oracle, and whose ownership is checked after every step. */
#ifndef TESTS_SCHEDULER_RIG_H
#define TESTS_SCHEDULER_RIG_H

#include "test.h"

#include "gear/runner_fake.h"
#include "sched/scheduler_impl.h"

enum { RIG_VOCAB = 256, RIG_MOST_OUT = 512 };

typedef struct rig_req {
    req r;
    rad_token out[RIG_MOST_OUT];
    uint32_t num_out;
    uint32_t cached_tokens;
    uint32_t admissions;
    req_finish finish;
} rig_req;

typedef struct rig {
    runner *runner;
    scheduler *s;
    rad_token end_token; /* -1: none */
    uint64_t steps;
} rig;

/* From now on also those are said that do not pay to read once. */
static inline void say_all_groups(rig *g)
{
    g->s->groups.member_cost = g->s->groups.token_cost = 0;
}

/* What the runner is but for fail_every; a test may give it a window before it starts. */
static runner_fake_params rig_fake = {.vocab_size = RIG_VOCAB};

static inline void rig_on_output(void *user, const req_output *outputs, uint32_t count)
{
    (void)user;
    for (uint32_t i = 0; i < count; i++) {
        const req_output *o = &outputs[i];
        rig_req *q = o->req->user;
        CHECK(q->finish == REQ_FINISH_NONE); /* nothing comes after the end */
        if (o->token >= 0) q->out[q->num_out++] = o->token;
        CHECK(o->completion_tokens == q->num_out);
        CHECK(o->token >= 0 || o->finish != REQ_FINISH_NONE || o->num_prompt_logprobs);
        CHECK(o->hits.fetched <= o->hits.loaded && o->hits.loaded <= o->hits.cached);
        q->cached_tokens = o->hits.cached;
        q->finish = o->finish;
        if (o->finish) { /* before its last output a request has given everything back */
            CHECK(o->req->state == REQ_FINISHED);
            CHECK(o->req->kv.row == 0 && o->req->kv.allocated_len == 0);
        }
    }
}

static inline void rig_on_admit(void *user, req *r)
{
    (void)user;
    ((rig_req *)r->user)->admissions++;
}

static inline bool rig_is_end_token(void *user, rad_token token)
{
    return token == ((rig *)user)->end_token;
}

static inline scheduler_params rig_params(uint64_t tokens, uint32_t page_size, uint32_t chunk)
{
    return (scheduler_params){.page_size = page_size,
                              .max_total_tokens = tokens,
                              .max_running_requests = 8,
                              .max_queued_requests = 64,
                              .chunked_prefill_size = chunk};
}

static inline void rig_start_on(rig *g, const rad_env *env, scheduler_params params,
                                uint32_t fail_every)
{
    *g = (rig){.end_token = -1};
    runner_fake_params fake = rig_fake;
    rad_error err = {0};
    fake.fail_every = fail_every;
    CHECK_OK(runner_fake_create(NULL, &fake, &g->runner, &err));
    params.runner = g->runner;
    params.on_output = rig_on_output;
    params.on_admit = rig_on_admit;
    params.is_end_token = rig_is_end_token;
    params.user = g;
    rad_status status = scheduler_create(env, &params, &g->s, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
}

static inline void rig_start_failing(rig *g, scheduler_params params, uint32_t fail_every)
{
    rig_start_on(g, NULL, params, fail_every);
}

static inline void rig_start(rig *g, scheduler_params params)
{
    rig_start_failing(g, params, 0);
}

/* Fails the 1st allocation of create, then the 2nd, ... until it succeeds. */
static inline void rig_create_failing(scheduler_params params)
{
    runner *fake = NULL;
    CHECK_OK(runner_fake_create(NULL, &rig_fake, &fake, NULL));
    params.runner = fake;
    params.on_output = rig_on_output;
    scheduler *s = NULL;
    for (long n = 0; !s; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_error err = {0};
        rad_status status = scheduler_create(&env, &params, &s, &err);
        CHECKF(status == (s ? RAD_OK : RAD_E_NOMEM), "allocation %ld: %s\n", n, err.text);
        scheduler_destroy(s);
        CHECK(t.bytes == 0);
        CHECK(n < 1000);
    }
    runner_destroy(fake);
}

static inline scheduler_stats rig_stats(const rig *g)
{
    scheduler_stats st;
    scheduler_get_stats(g->s, &st);
    return st;
}

static inline void rig_check(rig *g)
{
    rad_error err = {0};
    rad_status status = scheduler_check(g->s, &err);
    CHECKF(status == RAD_OK, "after step %llu: %s\n", (unsigned long long)g->steps, err.text);
}

static inline bool rig_step(rig *g)
{
    bool busy = scheduler_step(g->s);
    g->steps++;
    rig_check(g);
    return busy;
}

static inline void rig_run(rig *g)
{
    uint64_t most = g->steps + 100000;
    while (!scheduler_is_idle(g->s)) {
        CHECK(rig_step(g)); /* work is waiting, so every step does some */
        CHECK(g->steps < most);
    }
}

/* Idle: nothing is held, free + cached == all. */
static inline void rig_stop(rig *g)
{
    scheduler_stats st;
    scheduler_get_stats(g->s, &st);
    CHECK(scheduler_is_idle(g->s));
    CHECK(st.available_tokens + st.evictable_tokens == st.max_total_tokens);
    CHECK(st.protected_tokens == 0 && st.held_tokens == 0 && st.kv_errors == 0);
    CHECK(st.window_available_tokens + st.window_evictable_tokens == st.window_total_tokens);
    CHECK(st.window_protected_tokens == 0 && st.window_held_tokens == 0);
    CHECK(st.states_available + st.states_evictable == st.states_total);
    CHECK(st.states_protected == 0 && st.states_held == 0);
    CHECK_OK(scheduler_flush_cache(g->s));
    scheduler_get_stats(g->s, &st);
    CHECK(st.available_tokens == st.max_total_tokens);
    CHECK(st.window_available_tokens == st.window_total_tokens);
    CHECK(st.states_available == st.states_total);
    scheduler_destroy(g->s);
    runner_destroy(g->runner);
}

static inline void rig_req_init(rig_req *q, const rad_token *ids, uint32_t n, uint32_t max_new)
{
    memset(q, 0, sizeof *q);
    req_params p = {
        .ids = ids, .num_ids = n, .max_new_tokens = max_new, .user = q, .sampling = {.top_p = 1}};
    CHECK_OK(req_init(&q->r, NULL, &p, NULL));
}

/* With all that `p` asks for; its `user` is the request that is returned. */
static inline rig_req *rig_add_as(rig *g, req_params p)
{
    rig_req *q = calloc(1, sizeof *q);
    rad_error err = {0};
    p.user = q;
    CHECK_OK(req_init(&q->r, NULL, &p, NULL));
    rad_status status = scheduler_add(g->s, &q->r, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    return q;
}

static inline rig_req *rig_add(rig *g, const rad_token *ids, uint32_t n, uint32_t max_new)
{
    return rig_add_as(
        g, (req_params){
               .ids = ids, .num_ids = n, .max_new_tokens = max_new, .sampling = {.top_p = 1}});
}

static inline void rig_drop(rig_req *q)
{
    req_fini(&q->r);
    free(q);
}

/* Every output id is what the oracle gives without any cache. */
static inline void rig_check_answer(const rig_req *q)
{
    rad_token *ids = malloc((q->r.num_input + q->num_out) * sizeof *ids);
    memcpy(ids, q->r.fill_ids, q->r.num_input * sizeof *ids);
    for (uint32_t i = 0; i < q->num_out; i++) {
        rad_token want = runner_fake_next_of(&rig_fake, ids, q->r.num_input + i);
        CHECKF(q->out[i] == want, "request %llu (%u ids): output %u is %d, not %d\n",
               (unsigned long long)q->r.arrival, q->r.num_input, i, q->out[i], want);
        ids[q->r.num_input + i] = q->out[i];
    }
    free(ids);
}

/* Finished by length with all tokens, and right. */
static inline void rig_expect(rig_req *q, uint32_t num_out)
{
    CHECKF(q->finish == REQ_FINISH_LENGTH && q->num_out == num_out, "finish %d, %u outputs: %s\n",
           q->finish, q->num_out, q->r.error.text);
    CHECK(q->admissions == 1);
    rig_check_answer(q);
    rig_drop(q);
}

static inline void rig_prompt(rad_token *ids, uint32_t n, uint64_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (rad_token)(test_random(&seed) % RIG_VOCAB);
}

#endif
