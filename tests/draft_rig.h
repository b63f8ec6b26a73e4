/* draft_rig.h - drafts of a source that is right as often as a test says, at prices that it says:
 * the clock moves by what each forward pass costs, and not else. */
#ifndef TESTS_DRAFT_RIG_H
#define TESTS_DRAFT_RIG_H

#include "scheduler_rig.h"

enum { IDS = 40 }; /* tokens of a prompt */

typedef struct draft_script {
    uint32_t num_reqs; /* at one time */
    uint32_t rounds;   /* so often, 0: once */
    uint32_t num_new;
    double step, row;    /* ns: a step of one row, and what a further one adds; 0: 4 ms */
    uint32_t wrong_from; /* of a proposal: tokens from there on are wrong; */
    uint32_t permille;   /* others are right so often: 0: always; */
    uint32_t moods;      /* in turn so many proposals are right and wrong; 0: all are as above */
    double asking;       /* ns that a proposal takes */
} draft_script;

/* What is run, and what came of it. */
static struct {
    draft_script of;
    uint64_t forwards, rows, asked, rng;
    test_env clock;
    const runner_ops *real;
    runner_ops ops;
} script;

static inline rad_status scripted_forward(runner *self, const forward_batch *b,
                                          const float **logits, rad_error *err)
{
    script.forwards++;
    script.rows += b->num_tokens;
    script.clock.now += (uint64_t)(script.of.step + script.of.row * (b->num_tokens - 1.0));
    return script.real->forward(self, b, logits, err);
}

/* Before its runner computes anything; whose clock it is is the caller's to say. */
static inline void script_begin(const draft_script *s, runner *r)
{
    const test_env clock = script.clock;
    memset(&script, 0, sizeof script);
    script.clock = clock;
    script.of = *s;
    if (!s->step) script.of.step = 4e6;
    script.rng = 1;
    script.real = r->ops;
    script.ops = *script.real;
    script.ops.forward = scripted_forward;
    r->ops = &script.ops;
}

static inline uint32_t oracle(void *user, const req *r, rad_token *out, uint32_t room)
{
    (void)user;
    static rad_token ids[4096];
    const draft_script *s = &script.of;
    uint32_t n = req_num_fill(r);
    const bool wrong = s->moods && script.asked / s->moods % 2;
    memcpy(ids, r->fill_ids, n * sizeof *ids);
    for (uint32_t i = 0; i < room; i++, n++) {
        ids[n] = runner_fake_next_of(&rig_fake, ids, n);
        const bool missed = s->permille && test_random(&script.rng) % 1000 >= s->permille;
        out[i] = wrong || missed || i >= s->wrong_from ? (ids[n] + 1) % RIG_VOCAB : ids[n];
    }
    script.asked++;
    script.clock.now += (uint64_t)s->asking;
    return room;
}

/* Returns the decode steps that it took. */
static inline uint64_t run_script(const draft_script *s, draft_stats *drafts)
{
    rig g = {.end_token = -1};
    rig_req *q[DRAFT_FULL];
    rad_token ids[IDS];
    const uint32_t rounds = RAD_MAX(s->rounds, 1u);
    CHECK_OK(runner_fake_create(NULL, &rig_fake, &g.runner, NULL));
    script_begin(s, g.runner);
    rad_env env = test_env_init(&script.clock);
    scheduler_params params = rig_params(20000, 1, 0);
    params.max_running_requests = DRAFT_FULL;
    params.runner = g.runner;
    params.on_output = rig_on_output;
    params.is_end_token = rig_is_end_token;
    params.user = &g;
    params.max_draft_tokens = 8;
    params.draft_given.propose = oracle;
    CHECK_OK(scheduler_create(&env, &params, &g.s, NULL));
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < s->num_reqs; i++) {
            rig_prompt(ids, IDS, round * DRAFT_FULL + i);
            q[i] = rig_add(&g, ids, IDS, s->num_new);
        }
        rig_run(&g);
        for (uint32_t i = 0; i < s->num_reqs; i++) {
            CHECK(q[i]->finish == REQ_FINISH_LENGTH && q[i]->num_out == s->num_new);
            rig_check_answer(q[i]);
            rig_drop(q[i]);
        }
    }
    *drafts = rig_stats(&g).drafts;
    rig_stop(&g);
    CHECK(drafts->req_steps + drafts->accepted[DRAFT_GIVEN] ==
          (uint64_t)rounds * s->num_reqs * (s->num_new - 1));
    return script.forwards - rounds;
}

#endif
