/* test_sched_steady.c - in the steady state a step takes no memory: not for the queue, not
 * for the batch, its groups, its samples, not for the tree. */
#include "gear/retract.h"
#include "sched/scheduler_impl.h"
#include "scheduler_rig.h"

#include <limits.h>

enum { REQS = 40 };

static scheduler *start_counting(test_env *t, runner *run, rig *g, schedule_policy policy,
                                 uint32_t retract_every)
{
    rad_env env = test_env_init(t);
    scheduler_params params = rig_params(1500, 16, 64);
    params.runner = run;
    params.policy = policy;
    params.window_total_tokens = rig_fake.window ? 400 : 0;
    params.max_itl_ns = 50;
    gear_retract_every(retract_every);
    params.on_output = rig_on_output;
    params.on_admit = rig_on_admit;
    params.user = g;
    scheduler *s = NULL;
    CHECK_OK(scheduler_create(&env, &params, &s, NULL));
    t->fail_at = LONG_MAX; /* never, but from now on it counts */
    t->allocs = 0;
    return s;
}

static void run_policies(void)
{
    for (uint32_t policy = 0; policy < SCHEDULE_NUM_POLICIES; policy++) {
        rig g = {.end_token = -1};
        test_env t;
        CHECK_OK(runner_fake_create(NULL, &rig_fake, &g.runner, NULL));
        g.s = start_counting(&t, g.runner, &g, policy, policy % 2 ? 9 : 0);
        size_t bytes = t.bytes;
        static rig_req q[REQS];
        for (int i = 0; i < REQS; i++) { /* their own memory is not the scheduler's */
            rad_token ids[200];
            rig_prompt(ids, 140, 950 + i / 10);
            rig_prompt(ids + 140, 60, 960 + i);
            rig_req_init(&q[i], ids, 200, 1 + i);
            if (i % 2)
                q[i].r.sampling =
                    (sampling_params){.temperature = 1, .top_p = 0.9f, .top_k = 40, .seed = i};
            CHECK_OK(scheduler_add(g.s, &q[i].r, NULL));
            scheduler_step(g.s);
            if (i % 16 == 15) scheduler_cancel(g.s, &q[i - 3].r, REQ_FINISH_ABORT);
        }
        while (!scheduler_is_idle(g.s))
            scheduler_step(g.s);
        CHECKF(t.allocs == 0 && t.bytes == bytes, "%s: %ld allocations\n",
               schedule_policy_name(policy), t.allocs);
        for (int i = 0; i < REQS; i++) {
            if (i % 2 == 0) rig_check_answer(&q[i]);
            req_fini(&q[i].r);
        }
        scheduler_destroy(g.s);
        CHECK(t.bytes == 0);
        runner_destroy(g.runner);
    }
    gear_retract_every(0);
}

TEST(no_step_takes_memory_whatever_the_policy)
{
    for (rig_fake.chooses = 0; rig_fake.chooses < 2; rig_fake.chooses++)
        for (rig_fake.window = 0; rig_fake.window < 96; rig_fake.window += 48)
            run_policies();
    rig_fake.chooses = rig_fake.window = 0;
}

/* What was computed for a request that is retracted stays in the tree: not the request
 * alone, anybody finds it, and the answer goes on as it was. */
TEST(retraction_keeps_what_is_published)
{
    for (uint32_t page = 1; page <= 16; page += 15) {
        rig g;
        rad_token ids[300];
        rig_prompt(ids, 300, 980);
        scheduler_params params = rig_params(2048, page, 512);
        params.max_running_requests = 2;
        rig_start(&g, params);
        rad_token more[20]; /* it has more outputs, so the other one is retracted */
        rig_prompt(more, 20, 981);
        rig_req *other = rig_add(&g, more, 20, 120);
        for (int i = 0; i < 20; i++)
            rig_step(&g);
        rig_req *q = rig_add(&g, ids, 200, 60);
        while (q->num_out < 30)
            rig_step(&g);
        scheduler_retract_one(g.s);
        CHECK(q->r.state == REQ_WAITING && q->r.kv.row == 0);
        memcpy(ids + 200, q->out, 30 * sizeof *ids);
        rad_key key = {.tokens = ids, .num_tokens = 230};
        rad_match match = {0};
        CHECK_OK(rad_cache_lookup(g.s->pools.tree_cache, &key, &match));
        CHECK(match.prefix_tokens == 229 / page * page); /* the last output has no K/V yet */

        scheduler_stats before, after;
        scheduler_get_stats(g.s, &before);
        rig_step(&g);
        scheduler_get_stats(g.s, &after);
        CHECK(after.prefill_tokens - before.prefill_tokens == 230 - 229 / page * page);
        rig_run(&g);
        rig_expect(q, 60);
        rig_expect(other, 120);
        rig_stop(&g);
    }
}

TEST_MAIN()
