/* head_double.h - a scheduler over a model and a head of which there is nothing but what they take
 * and how often the head is right, on a clock that they alone move: thousands of steps a second.
 *
 * Two clocks go: the scheduler sees `clock`, on which others may have the core now and then; `took`
 * has what the work itself takes, which is what guesses are to be judged by. */
#ifndef TESTS_HEAD_DOUBLE_H
#define TESTS_HEAD_DOUBLE_H

#include "gear/runner_fake.h"
#include "test.h"

#include "base/mix64.h"
#include "sched/scheduler_impl.h"

enum { HEAD_VOCAB = 64, HEAD_PROMPT = 20, HEAD_MOST_NEW = 200 };

typedef struct head_story {
    uint32_t num_reqs, num_new; /* at one time, and tokens of each one's answer */
    double step, request, row;  /* ns of a step, a further request in it and a row of drafts */
    double pass, guess;         /* of a pass of the head, and of each of its tokens */
    double entry;               /* of entries that are written in a step, or before it */
    uint32_t right;             /* of 1000 guesses */
    uint32_t noise;             /* so many passes and steps of 1000 take up to `times` as long */
    uint32_t dear;              /* the first so many passes and steps with rows do */
    double times;
    uint64_t seed;
} head_story;

typedef struct head_double {
    head_story of;
    runner *fake;
    runner_ops ops;
    scheduler *s;
    test_env clock;
    double took;
    uint64_t rng, ended, steps, dear_passes, dear_rows;
    req reqs[DRAFT_FULL];
    rad_token told[DRAFT_FULL][HEAD_MOST_NEW];
} head_double;

static head_double *now_doubled;

/* Work of so many ns is done; `*dear`: of its kind so many were, that are slow at first. */
static inline void double_works(double ns, uint64_t *dear)
{
    head_double *d = now_doubled;
    const bool noisy = (dear && (*dear)++ < d->of.dear) ||
                       test_random(&d->rng) % 1000 < d->of.noise;
    const double times = (double)(test_random(&d->rng) % 1024) / 1024 * (d->of.times - 1) + 1;
    d->took += ns;
    d->clock.now += (uint64_t)(noisy ? ns * times : ns);
}

static inline rad_status double_forward(runner *self, const forward_batch *b, const float **logits,
                                        rad_error *err)
{
    head_double *d = now_doubled;
    const head_story *of = &d->of;
    const uint32_t rows = b->num_logits - RAD_MIN(b->num_logits, b->num_reqs);
    bool writes = false;
    (void)self, (void)err;
    for (uint32_t i = 0; b->next_ids && i < b->num_reqs; i++)
        writes |= b->next_ids[i] >= 0 || b->extend_seq_lens[i] > 1;
    if (logits) *logits = NULL;
    d->steps++;
    double_works(of->step + of->request * (b->num_reqs - 1.0) + of->row * rows +
                     (writes ? of->entry : 0),
                 rows ? &d->dear_rows : NULL);
    return RAD_OK;
}

static inline rad_status double_guess(runner *self, const forward_batch *b, const uint32_t *from,
                                      const uint32_t *to, const float **logits, rad_error *err)
{
    head_double *d = now_doubled;
    (void)self, (void)from, (void)to, (void)err;
    if (logits) *logits = NULL;
    if (!b->num_logits) {
        double_works(d->of.entry, NULL);
        return RAD_OK;
    }
    double_works(d->of.pass + d->of.guess * (b->num_reqs - 1.0), &d->dear_passes);
    return RAD_OK;
}

static inline void double_keep_hidden(runner *self, uint32_t row, uint32_t place)
{
    (void)self, (void)row;
    CHECK(place < RUNNER_PLACES);
}

/* Of an answer only the head's guess is looked at, since it is told. */
static inline rad_status double_sample(runner *self, const runner_sample *rows, uint32_t num_rows,
                                       rad_token *tokens, rad_error *err)
{
    head_double *d = now_doubled;
    (void)self, (void)err;
    for (uint32_t i = 0; i < num_rows; i++) {
        if (!rows[i].params) continue;
        const uint32_t at = RAD_MIN(rows[i].position - HEAD_PROMPT, HEAD_MOST_NEW - 1u);
        const uint64_t who = rows[i].params->seed;
        const uint32_t draw = (uint32_t)(mix64(d->of.seed ^ (who << 32) ^ at) % 1000);
        const rad_token token = d->told[who % DRAFT_FULL][at];
        tokens[i] = draw < d->of.right ? token : (token + 1) % HEAD_VOCAB;
    }
    return RAD_OK;
}

static inline void double_on_output(void *user, const req_output *outputs, uint32_t count)
{
    head_double *d = user;
    for (uint32_t i = 0; i < count; i++)
        d->ended += outputs[i].finish != REQ_FINISH_NONE;
}

static inline void double_open(head_double *d, const head_story *of, bool with)
{
    const runner_fake_params fake = {.vocab_size = HEAD_VOCAB, .chooses = 1};
    *d = (head_double){.of = *of, .rng = mix64(of->seed + 1)};
    now_doubled = d;
    CHECK_OK(runner_fake_create(NULL, &fake, &d->fake, NULL));
    d->ops = *d->fake->ops;
    d->ops.forward = double_forward;
    d->ops.guess = double_guess;
    d->ops.sample = double_sample;
    d->ops.keep_hidden = double_keep_hidden;
    d->fake->ops = &d->ops;
    d->fake->info.nextn_layers = 1;
    d->fake->info.num_layers++;
    const rad_env env = test_env_init(&d->clock);
    const scheduler_params p = {.runner = d->fake,
                                .page_size = 1,
                                .max_total_tokens = 8192,
                                .max_running_requests = DRAFT_FULL,
                                .max_queued_requests = DRAFT_FULL,
                                .context_length = HEAD_PROMPT + HEAD_MOST_NEW,
                                .max_draft_tokens = with ? 8 : 0,
                                .draft_sources = with ? draft_bit(DRAFT_NEXTN) : 0,
                                .on_output = double_on_output,
                                .user = d};
    CHECK_OK(scheduler_create(&env, &p, &d->s, NULL));
}

/* A round of its answers; what they took, ns. */
static inline double double_round(head_double *d, uint32_t round)
{
    const head_story *of = &d->of;
    const double from = d->took;
    d->ended = 0;
    for (uint32_t i = 0; i < of->num_reqs; i++) {
        const uint64_t seed = (uint64_t)round * DRAFT_FULL + i;
        rad_token ids[HEAD_PROMPT];
        for (uint32_t t = 0; t < HEAD_PROMPT; t++)
            ids[t] = (rad_token)(mix64(seed * HEAD_PROMPT + t) % HEAD_VOCAB);
        for (uint32_t t = 0; t < of->num_new; t++)
            d->told[i][t] = (rad_token)(mix64(~seed * HEAD_MOST_NEW + t) % HEAD_VOCAB);
        const req_params p = {.ids = ids,
                              .num_ids = HEAD_PROMPT,
                              .max_new_tokens = of->num_new,
                              .told = d->told[i],
                              .num_told = of->num_new,
                              .sampling = {.top_p = 1, .seed = seed},
                              .user = d};
        CHECK_OK(req_init(&d->reqs[i], NULL, &p, NULL));
        CHECK_OK(scheduler_add(d->s, &d->reqs[i], NULL));
    }
    while (d->ended < of->num_reqs)
        scheduler_step(d->s);
    for (uint32_t i = 0; i < of->num_reqs; i++)
        req_fini(&d->reqs[i]);
    return d->took - from;
}

static inline void double_close(head_double *d)
{
    scheduler_destroy(d->s);
    runner_destroy(d->fake);
}

#endif
