/* test_scheduler_random.c - many requests with shared prefixes, many at once, through
 * pools that are too small for them: whatever is evicted, chunked, retracted or aborted
 * on the way, every answer is the oracle's, and the same as without a tree one at a
 * time (promise P1); after each step every slot has one owner (P2). */
#include "below.h"
#include "gear/retract.h"
#include "hash_rule.h"
#include "scheduler_rig.h"

enum { NUM_REQS = 160, NUM_DOCS = 5, DOC_TOKENS = 120, MOST_PROMPT = 160, MOST_NEW = 40 };

typedef struct job {
    rad_token ids[MOST_PROMPT + MOST_NEW];
    uint32_t num_ids;
    uint32_t max_new;
    bool aborted;
    sampling_params sampling;
    const char *salt;
    int32_t priority;
    uint64_t rule_seed; /* 0: it may say anything */
    hash_rule rule;
    rig_req *q;
    rad_token plain[MOST_NEW]; /* the answer without a tree, one at a time */
    uint32_t num_plain;
} job;

/* A piece of a document (sometimes of two), then some ids of its own. */
static void make_job(job *j, rad_token docs[NUM_DOCS][DOC_TOKENS], uint64_t *rng)
{
    memset(j, 0, sizeof *j);
    uint32_t shared = below(rng, DOC_TOKENS + 1);
    memcpy(j->ids, docs[below(rng, NUM_DOCS)], shared * sizeof *j->ids);
    uint32_t own = 1 + below(rng, 30);
    for (uint32_t i = 0; i < own; i++)
        j->ids[shared + i] = (rad_token)below(rng, RIG_VOCAB);
    j->num_ids = shared + own;
    j->max_new = below(rng, 8) ? 1 + below(rng, MOST_NEW) : 0;
    j->aborted = below(rng, 10) == 0;
    j->salt = below(rng, 6) ? NULL : below(rng, 2) ? "tenant a" : "tenant b";
    j->priority = (int32_t)below(rng, 5) - 2;
    j->sampling = (sampling_params){.top_p = 1};
    if (below(rng, 4) == 0)
        j->sampling = (sampling_params){
            .temperature = 1, .top_p = 0.95f, .top_k = 50, .seed = test_random(rng)};
    if (below(rng, 4) == 0) j->rule_seed = 1 + test_random(rng) / 2;
}

static void start_job(rig *g, job *j)
{
    j->q = malloc(sizeof *j->q);
    memset(j->q, 0, sizeof *j->q);
    req_params p = {.ids = j->ids,
                    .num_ids = j->num_ids,
                    .max_new_tokens = j->max_new,
                    .sampling = j->sampling,
                    .cache_salt = j->salt,
                    .priority = j->priority,
                    .user = j->q};
    if (j->rule_seed) p.rule = hash_rule_init(&j->rule, j->rule_seed, RIG_VOCAB, UINT32_MAX, -1);
    CHECK_OK(req_init(&j->q->r, NULL, &p, NULL));
    CHECK_OK(scheduler_add(g->s, &j->q->r, NULL));
}

static void run_plain(job *jobs, uint32_t n)
{
    rig g;
    scheduler_params params = rig_params(1024, 1, 0);
    params.cache_kind = RAD_CACHE_CHUNK;
    params.max_running_requests = 1;
    rig_start(&g, params);
    for (uint32_t i = 0; i < n; i++) {
        start_job(&g, &jobs[i]);
        rig_run(&g);
        CHECK(jobs[i].q->finish == REQ_FINISH_LENGTH && jobs[i].q->num_out == jobs[i].max_new);
        if (jobs[i].sampling.temperature == 0 && !jobs[i].rule_seed) rig_check_answer(jobs[i].q);
        if (jobs[i].rule_seed)
            CHECK(hash_rule_allows_all(&jobs[i].rule, jobs[i].q->out, jobs[i].q->num_out));
        memcpy(jobs[i].plain, jobs[i].q->out, sizeof jobs[i].plain);
        jobs[i].num_plain = jobs[i].q->num_out;
        rig_drop(jobs[i].q);
    }
    rig_stop(&g);
}

/* Time passes, erratically, as somebody looks at the clock: the seed decides what max_itl_ns cuts,
 * so that a failure comes back with its seed. */
static uint64_t erratic_now(void *user)
{
    uint64_t *now = user, state = *now;
    return *now += 1 + test_random(&state) % 30000;
}

/* Drafts what the request is going to say, as it did without a tree; now and then something else,
 * and nonsense behind its end. */
static struct {
    const job *jobs;
    uint32_t num_jobs, wrong; /* one of so many tokens; 0: none */
    uint64_t rng;
} guess;

static uint32_t guess_tokens(void *user, const req *r, rad_token *out, uint32_t room)
{
    (void)user;
    const job *j = guess.jobs;
    while (j->q != r->user)
        j++;
    uint32_t n = below(&guess.rng, room + 1);
    for (uint32_t i = 0, at = r->num_output; i < n; i++, at++) {
        bool right = at < j->num_plain && (!guess.wrong || below(&guess.rng, guess.wrong));
        out[i] = right ? j->plain[at] : (rad_token)below(&guess.rng, RIG_VOCAB + 2) - 1;
    }
    return n;
}

/* Of a third of all rounds nothing is drafted; else a little or much, mostly right or not at all.
 */
static void draw_drafts(scheduler_params *params, uint64_t *rng)
{
    static const uint32_t most[] = {1, 3, 8, DRAFT_MOST};
    if (below(rng, 3) == 0) return;
    params->max_draft_tokens = most[below(rng, RAD_COUNT(most))];
    params->draft_sources = below(rng, 1u << DRAFT_KINDS);
    params->draft_recent_tokens = below(rng, 4);
    guess.wrong = below(rng, 4) ? 2 + below(rng, 12) : 0;
    if (below(rng, 4)) params->draft_given.propose = guess_tokens;
}

/* A draft model that is the model but for recurrent layers, now and then: where it has none, it is
 * right about every token, unless K/V of its own are not those of the text in their slots. */
static runner *draw_small(scheduler_params *params, uint64_t *rng)
{
    runner_fake_params small = rig_fake;
    if (!params->max_draft_tokens || below(rng, 2)) return NULL;
    small.states = 0;
    small.chooses = below(rng, 2);
    CHECK_OK(runner_fake_create(NULL, &small, &params->draft_runner, NULL));
    return params->draft_runner;
}

static uint64_t run_shared(job *jobs, uint32_t n, scheduler_params params, uint64_t *rng)
{
    rig g;
    guess.jobs = jobs;
    guess.rng = *rng;
    uint64_t now = 0, right = 0, guessed = 0;
    runner *small = draw_small(&params, rng);
    rad_env env = rad_env_or_default(NULL);
    env.user = &now;
    env.now_ns = erratic_now;
    rig_start_on(&g, &env, params, 0);
    g.s->drafts.at_any_price = below(rng, 4); /* else as the erratic clock will have it */
    uint32_t added = 0;
    while (added < n || !scheduler_is_idle(g.s)) {
        uint32_t burst = below(rng, 8) ? below(rng, 4) : 12;
        for (uint32_t k = burst; k > 0 && added < n; k--)
            start_job(&g, &jobs[added++]);
        rig_step(&g);
        job *j = &jobs[below(rng, added ? added : 1)];
        if (added && j->aborted && !j->q->finish && below(rng, 3) == 0)
            scheduler_cancel(g.s, &j->q->r, REQ_FINISH_ABORT);
        CHECK(g.steps < 200000);
    }
    while (scheduler_has_background(g.s))
        rig_step(&g);
    scheduler_stats st;
    scheduler_get_stats(g.s, &st);
    CHECK(st.verify.num_mismatches == 0 && st.verify.num_pending == 0);
    CHECK(!params.verify_rate || st.verify.num_verified);
    for (uint32_t i = 0; i < n; i++) {
        job *j = &jobs[i];
        bool cut = j->q->finish == REQ_FINISH_ABORT;
        CHECKF(cut ? j->aborted : j->q->finish == REQ_FINISH_LENGTH, "request %u: %d %s\n", i,
               j->q->finish, j->q->r.error.text);
        CHECK(cut ? j->q->num_out <= j->num_plain : j->q->num_out == j->num_plain);
        CHECKF(memcmp(j->q->out, j->plain, j->q->num_out * sizeof(rad_token)) == 0,
               "request %u differs from its answer without a tree\n", i);
        rig_drop(j->q);
    }
    uint64_t proposed = 0, accepted = 0;
    for (int kind = 0; kind < DRAFT_KINDS; kind++) {
        proposed += st.drafts.proposed[kind];
        accepted += st.drafts.accepted[kind];
        CHECK(st.drafts.accepted[kind] <= st.drafts.proposed[kind]);
    }
    CHECK(params.max_draft_tokens || !proposed);
    guessed = st.drafts.proposed[DRAFT_MODEL];
    right = st.drafts.accepted[DRAFT_MODEL];
    CHECK(small || !guessed);
    CHECKF(right == guessed || rig_fake.states,
           "%llu of %llu tokens of the draft model are wrong\n",
           (unsigned long long)(guessed - right), (unsigned long long)guessed);
    print_message("  page %2u chunk %3u pool %4llu rows %u: %llu steps, %llu of %llu drafts right "
                  "(%llu of the model's), "
                  "%llu of %llu prompt tokens cached, %llu evicted, %llu retracted, %llu held "
                  "back\n",
                  params.page_size, params.chunked_prefill_size,
                  (unsigned long long)params.max_total_tokens, params.max_running_requests,
                  (unsigned long long)g.steps, (unsigned long long)accepted,
                  (unsigned long long)proposed, (unsigned long long)guessed,
                  (unsigned long long)st.cached_tokens, (unsigned long long)st.prompt_tokens,
                  (unsigned long long)st.evicted_tokens, (unsigned long long)st.num_retractions,
                  (unsigned long long)st.num_held_back);
    CHECK(st.num_aborted + st.num_finished == n);
    rig_stop(&g);
    runner_destroy(small);
    return st.num_retractions;
}

/* Of states there are enough for one request, or for some and their snapshots. */
static uint32_t draw_states(uint64_t *rng)
{
    return below(rng, 3) ? 4 + below(rng, 60) : STATE_LEAST;
}

/* `window`: the runner has layers that see so many tokens, and they have memory of their own. */
static void run_rounds(uint64_t rounds, uint32_t window)
{
    uint64_t seed = test_told_seed(), rng = seed;
    static job jobs[NUM_REQS];
    static rad_token docs[NUM_DOCS][DOC_TOKENS];
    for (uint64_t round = 0; round < rounds; round++) {
        for (uint32_t d = 0; d < NUM_DOCS; d++) /* documents share beginnings as well */
            for (uint32_t i = 0; i < DOC_TOKENS; i++)
                docs[d][i] = d && i < 20 * d ? docs[d - 1][i] : (rad_token)below(&rng, RIG_VOCAB);
        for (uint32_t i = 0; i < NUM_REQS; i++)
            make_job(&jobs[i], docs, &rng);
        run_plain(jobs, NUM_REQS);

        static const uint32_t chunks[] = {0, 7, 16, 33, 100};
        uint32_t page_size = round % 2 ? 16 : 1;
        scheduler_params params =
            rig_params(192 + below(&rng, round % 3 ? 100 : 600), page_size, chunks[below(&rng, 5)]);
        params.max_running_requests = 2 + below(&rng, 12);
        params.max_queued_requests = NUM_REQS;
        params.policy = below(&rng, SCHEDULE_NUM_POLICIES);
        params.enable_priority_scheduling = below(&rng, 2);
        params.schedule_low_priority_values_first = below(&rng, 2);
        params.random_seed = round;
        params.verify_rate = round % 2 ? 0.5 : 0;
        params.max_itl_ns = round % 3 ? 0 : 100000; /* chunks as the clock will have them */
        gear_retract_every(below(&rng, 2) ? 0 : 3 + below(&rng, 10));
        params.cache_kind = round % 8 == 7 ? RAD_CACHE_CHUNK : RAD_CACHE_RADIX;
        if (window)
            params.window_total_tokens = 2 * window + window / 16 + 5 * page_size +
                                         below(&rng, 100);
        if (rig_fake.states) {
            params.max_states = draw_states(&rng);
            params.state_interval = 1 + below(&rng, 64);
            params.turn_token = below(&rng, 2) ? (rad_token)below(&rng, RIG_VOCAB) : 0;
        }
        draw_drafts(&params, &rng);
        run_shared(jobs, NUM_REQS, params, &rng);
        gear_retract_every(0);
    }
}

TEST(every_answer_is_the_same_whatever_happened_on_the_way)
{
    run_rounds(test_scale(8, 80), 0);
}

/* One kind of layer or both, in window memory for two or three requests at a time: what is cached
 * and what others need push each other out on both sides. The plain runs mask. */
TEST(window_memory_gives_the_answers_of_a_mask)
{
    for (uint32_t only = 0; only < 2; only++) {
        static const uint32_t windows[] = {1, 5, 33, 64};
        for (size_t i = 0; i < RAD_COUNT(windows); i++) {
            rig_fake.window = windows[i];
            rig_fake.window_only = only;
            run_rounds(test_scale(2, 20), windows[i]);
        }
    }
    rig_fake.window = rig_fake.window_only = 0;
}

/* A recurrent layer besides: what a request goes on from is a snapshot of exactly that prefix, and
 * there are few of them. */
TEST(states_give_the_answers_of_a_text_computed_at_once)
{
    rig_fake.states = 1;
    run_rounds(test_scale(4, 80), 0);
    rig_fake.window = 33;
    run_rounds(test_scale(1, 20), 33);
    rig_fake.window = rig_fake.states = 0;
}

/* Conversations: each turn's prompt is the whole history, and every turn after the first
 * finds it, as long as the pool can keep it. */
TEST(each_turn_finds_the_one_before)
{
    for (uint32_t page = 1; page <= 16; page += 15) {
        rig g;
        uint64_t rng = 99;
        rig_start(&g, rig_params(4096, page, 64));
        rad_token ids[800];
        uint32_t n = 0;
        for (int turn = 0; turn < 12; turn++) {
            uint32_t before = n;
            for (int i = 0; i < 20; i++)
                ids[n++] = (rad_token)below(&rng, RIG_VOCAB);
            rig_req *q = rig_add(&g, ids, n, 30);
            rig_run(&g);
            uint32_t want = before ? before - 1 : 0; /* the last id had no K/V yet */
            CHECK(q->cached_tokens == want / page * page);
            memcpy(ids + n, q->out, 30 * sizeof *ids);
            n += 30;
            rig_expect(q, 30);
        }
        rig_stop(&g);
    }
}

TEST_MAIN()
