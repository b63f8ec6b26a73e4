/* test_sched_queue.c - the order of the waiting queue under each policy, its fairness, and
 * that a step's work does not grow with the queue. */
#include "gear/retract.h"
#include "scheduler_rig.h"

#include "sched/wait_queue.h"

typedef struct wish { /* what a request of these tests differs in */
    uint32_t max_new;
    int32_t priority;
} wish;

static rig_req *add(rig *g, const rad_token *ids, uint32_t n, wish w)
{
    return rig_add_as(g, (req_params){.ids = ids,
                                      .num_ids = n,
                                      .max_new_tokens = w.max_new,
                                      .priority = w.priority,
                                      .sampling = {.top_p = 1}});
}

static scheduler_params one_at_a_time(schedule_policy policy)
{
    scheduler_params params = rig_params(2048, 1, 512);
    params.policy = policy;
    params.max_running_requests = 1;
    return params;
}

/* Runs until all have been admitted; order[i] is the index of the i-th. */
static void admission_order(rig *g, rig_req **q, uint32_t n, uint32_t *order)
{
    bool seen[64] = {0};
    for (uint32_t done = 0; done < n;) {
        CHECK(rig_step(g));
        for (uint32_t i = 0; i < n; i++)
            if (q[i]->admissions && !seen[i]) {
                seen[i] = true;
                order[done++] = i;
            }
    }
    rig_run(g);
    for (uint32_t i = 0; i < n; i++)
        rig_expect(q[i], q[i]->r.max_new_tokens);
}

static void expect_order(const uint32_t *order, const uint32_t *want, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        CHECKF(order[i] == want[i], "place %u: request %u, not %u\n", i, order[i], want[i]);
}

/* Five unrelated prompts. */
static void run_unrelated(scheduler_params params, const wish wishes[5], uint32_t order[5])
{
    rig g;
    rad_token ids[5][20];
    rig_req *q[5];
    rig_start(&g, params);
    for (int i = 0; i < 5; i++) {
        rig_prompt(ids[i], 20, 500 + i);
        ids[i][0] = i;
        q[i] = add(&g, ids[i], 20, wishes[i]);
    }
    admission_order(&g, q, 5, order);
    rig_stop(&g);
}

TEST(fcfs_goes_by_arrival_and_lof_by_the_longest_output)
{
    static const wish wishes[5] = {{3, 0}, {7, 0}, {7, 0}, {1, 0}, {9, 0}};
    uint32_t order[5];
    run_unrelated(one_at_a_time(SCHEDULE_FCFS), wishes, order);
    expect_order(order, (uint32_t[]){0, 1, 2, 3, 4}, 5);
    run_unrelated(one_at_a_time(SCHEDULE_LPM), wishes, order); /* nothing is cached */
    expect_order(order, (uint32_t[]){0, 1, 2, 3, 4}, 5);
    run_unrelated(one_at_a_time(SCHEDULE_LOF), wishes, order);
    expect_order(order, (uint32_t[]){4, 1, 2, 0, 3}, 5);
}

TEST(priority_goes_first_alone_or_before_another_order)
{
    static const wish wishes[5] = {{3, -5}, {2, 7}, {4, 0}, {9, 7}, {1, INT32_MIN}};
    uint32_t order[5];
    run_unrelated(one_at_a_time(SCHEDULE_PRIORITY), wishes, order);
    expect_order(order, (uint32_t[]){1, 3, 2, 0, 4}, 5);
    scheduler_params params = one_at_a_time(SCHEDULE_PRIORITY);
    params.schedule_low_priority_values_first = true;
    run_unrelated(params, wishes, order);
    expect_order(order, (uint32_t[]){4, 0, 2, 1, 3}, 5);
    params = one_at_a_time(SCHEDULE_LOF);
    params.enable_priority_scheduling = true;
    run_unrelated(params, wishes, order);
    expect_order(order, (uint32_t[]){3, 1, 2, 0, 4}, 5);
}

TEST(random_is_a_shuffle_that_the_seed_decides)
{
    static const wish wishes[5] = {{2, 0}, {2, 0}, {2, 0}, {2, 0}, {2, 0}};
    uint32_t first[5], order[5];
    bool differs = false, first_varies = false;
    for (uint64_t seed = 0; seed < 8; seed++) {
        scheduler_params params = one_at_a_time(SCHEDULE_RANDOM);
        params.random_seed = seed;
        run_unrelated(params, wishes, order);
        run_unrelated(params, wishes, first);
        CHECK(memcmp(order, first, sizeof order) == 0);
        first_varies |= order[0] != 0;
        for (uint32_t i = 0; i < 5; i++)
            differs |= order[i] != i;
    }
    CHECK(differs && first_varies);
}

/* 100 tokens of a and 60 of b are cached. */
TEST(longest_prefix_first_goes_by_what_is_cached)
{
    rig g;
    rad_token a[120], b[120], ids[5][120];
    uint32_t order[5];
    rig_req *q[5];
    rig_prompt(a, 120, 510);
    rig_prompt(b, 120, 511);
    rig_start(&g, one_at_a_time(SCHEDULE_LPM));
    rig_expect((rig_run(&g), q[0] = add(&g, a, 100, (wish){1, 0}), rig_run(&g), q[0]), 1);
    rig_expect((q[0] = add(&g, b, 60, (wish){1, 0}), rig_run(&g), q[0]), 1);
    static const struct {
        bool of_a;
        uint32_t shared;
    } prompts[5] = {{false, 0}, {true, 30}, {false, 60}, {true, 95}, {true, 61}};
    for (int i = 0; i < 5; i++) {
        memcpy(ids[i], prompts[i].of_a ? a : b, prompts[i].shared * sizeof *ids[i]);
        for (uint32_t k = prompts[i].shared; k < 110; k++)
            ids[i][k] = (rad_token)((k * 7 + (uint32_t)i * 13 + 1) % RIG_VOCAB);
        ids[i][prompts[i].shared] = (prompts[i].of_a ? a : b)[prompts[i].shared] ^ (1 + i);
        q[i] = add(&g, ids[i], 110, (wish){1, 0});
    }
    admission_order(&g, q, 5, order);
    expect_order(order, (uint32_t[]){3, 4, 2, 1, 0}, 5);
    rig_stop(&g);
}

/* What becomes cached while it waits moves a request up. */
TEST(a_waiting_request_follows_the_cache)
{
    rig g;
    rad_token doc[200], other[200];
    rig_prompt(doc, 200, 520);
    rig_prompt(other, 200, 521);
    rig_start(&g, one_at_a_time(SCHEDULE_LPM));
    rig_req *first = add(&g, doc, 150, (wish){1, 0});
    rig_req *cold = add(&g, other, 40, (wish){1, 0});
    rig_req *warm = add(&g, doc, 180, (wish){1, 0}); /* its prefix is computed by `first` */
    rig_step(&g);
    CHECK(first->finish && !cold->admissions && !warm->admissions);
    rig_step(&g);
    CHECK(warm->admissions && warm->cached_tokens == 150 && !cold->admissions);
    rig_run(&g);
    rig_expect(first, 1);
    rig_expect(cold, 1);
    rig_expect(warm, 1);
    rig_stop(&g);
}

/* Cached: a stem of 20 with branches x and y of 20 each. Three wait in y, two in x, one at
 * the stem and one nowhere: y, then x, then the stem's, then the stranger. */
TEST(dfs_weight_stays_in_a_branch_and_begins_where_most_wait)
{
    rig g;
    rad_token stem[20], x[40], y[40], ids[7][60];
    uint32_t order[7];
    rig_req *q[7];
    rig_prompt(stem, 20, 530);
    rig_prompt(x, 40, 531);
    rig_prompt(y, 40, 532);
    memcpy(x, stem, sizeof stem);
    memcpy(y, stem, sizeof stem);
    y[20] = x[20] ^ 1;
    rig_start(&g, one_at_a_time(SCHEDULE_DFS_WEIGHT));
    rig_expect((q[0] = add(&g, x, 40, (wish){1, 0}), rig_run(&g), q[0]), 1);
    rig_expect((q[0] = add(&g, y, 40, (wish){1, 0}), rig_run(&g), q[0]), 1);
    static const int at[7] = {-1, 0, 1, 2, 2, 1, 2}; /* nowhere, stem, x, y, y, x, y */
    for (int i = 0; i < 7; i++) {
        rig_prompt(ids[i], 60, 540 + i);
        uint32_t shared = at[i] < 0 ? 0 : at[i] == 0 ? 20 : 40;
        memcpy(ids[i], at[i] == 2 ? y : x, shared * sizeof *ids[i]);
        if (at[i] < 0) ids[i][0] = stem[0] ^ 1;
        if (at[i] == 0) ids[i][20] = x[20] ^ 2;
        if (at[i] > 0) ids[i][40] = i;
        q[i] = add(&g, ids[i], 60, (wish){1, 0});
    }
    admission_order(&g, q, 7, order);
    expect_order(order, (uint32_t[]){3, 4, 6, 2, 5, 1, 0}, 7);
    rig_stop(&g);
}

/* Fairness: requests that the policy likes better come without end. The victim and who came
 * before it go all the same, within the bound of schedule_policy.h. */
TEST(no_policy_passes_anybody_over_for_ever)
{
    for (uint32_t policy = 0; policy < SCHEDULE_NUM_POLICIES; policy++) {
        rig g;
        rad_token warm[64], cold[3][64];
        rig_prompt(warm, 64, 550);
        scheduler_params params = one_at_a_time(policy);
        params.random_seed = 5;
        rig_start(&g, params);
        rig_req *done = add(&g, warm, 64, (wish){1, 0});
        rig_run(&g);
        rig_expect(done, 1);

        rig_req *victims[3], *busy[128], *pair[2];
        for (int i = 0; i < 3; i++) {
            rig_prompt(cold[i], 64, 560 + i);
            cold[i][0] = warm[0] ^ (1 + i);
            victims[i] = add(&g, cold[i], 64, (wish){1, 0});
        }
        uint32_t n = 0, most = 3 * (SCHEDULE_MAX_PASSED_OVER + 1);
        for (int i = 0; i < 2; i++)
            pair[i] = add(&g, warm, 64, (wish){2, 9});
        while (!victims[2]->finish) {
            rig_step(&g);
            for (int i = 0; i < 2; i++)
                if (pair[i]->finish) {
                    CHECKF(n < most, "%s: %u went before it\n", schedule_policy_name(policy), n);
                    busy[n++] = pair[i];
                    pair[i] = add(&g, warm, 64, (wish){2, 9});
                }
        }
        bool reorders = policy != SCHEDULE_FCFS && policy != SCHEDULE_RANDOM;
        CHECK(!reorders || n >= 3 * SCHEDULE_MAX_PASSED_OVER - 1);
        rig_run(&g);
        for (int i = 0; i < 3; i++)
            rig_expect(victims[i], 1);
        for (uint32_t i = 0; i < n; i++)
            rig_expect(busy[i], 2);
        for (int i = 0; i < 2; i++)
            rig_expect(pair[i], 2);
        rig_stop(&g);
    }
}

/* A retracted request keeps its place: whoever comes later does not get in between for ever
 * and its answer is what it would have been. */
TEST(a_retracted_request_keeps_its_arrival)
{
    rig g;
    rad_token ids[2][30];
    rig_prompt(ids[0], 30, 570);
    rig_prompt(ids[1], 30, 571);
    scheduler_params params = one_at_a_time(SCHEDULE_FCFS);
    gear_retract_every(3);
    rig_start(&g, params);
    rig_req *a = add(&g, ids[0], 30, (wish){20, 0}), *b = add(&g, ids[1], 30, (wish){2, 0});
    rig_run(&g);
    CHECK(a->r.num_retractions > 3 && b->r.num_retractions == 0);
    gear_retract_every(0);
    rig_expect(a, 20);
    rig_expect(b, 2);
    rig_stop(&g);
}

/* ---- the queue alone, over an index-only cache, against brute force ---- */

enum { MODEL_REQS = 48, MODEL_IDS = 40 };

static uint32_t cached_of(const rad_cache *cache, const req *r)
{
    rad_key key = req_key(r, req_num_fill(r) - 1);
    rad_match match = {0};
    if (key.num_tokens) rad_cache_lookup(cache, &key, &match);
    return match.prefix_tokens;
}

static void check_queue(const wait_queue *q)
{
    rad_error err = {0};
    rad_status status = wait_queue_check(q, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
}

/* Few different ids and tree-like prompts, so that everything forks everywhere. */
static void model_req(req *r, uint64_t *rng, uint64_t *arrival)
{
    static const char *const salts[] = {NULL, "", "a"};
    rad_token ids[MODEL_IDS];
    uint32_t n = 1 + (uint32_t)(test_random(rng) % MODEL_IDS);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = test_random(rng) % 6 ? 0 : (rad_token)(test_random(rng) % 3);
    req_params p = {.ids = ids,
                    .num_ids = n,
                    .max_new_tokens = 1,
                    .cache_salt = salts[test_random(rng) % 8 ? 0 : test_random(rng) % 3]};
    CHECK_OK(req_init(r, NULL, &p, NULL));
    r->arrival = ++*arrival;
}

TEST(the_longest_prefix_is_found_as_brute_force_finds_it)
{
    uint64_t seed = test_told_seed(), rng = seed, operations = test_scale(6000, 200000);
    rad_env env = rad_env_or_default(NULL);
    for (uint32_t page = 1; page <= 4; page += 3) {
        rad_cache_params tree = {.struct_size = sizeof tree, .page_size = page};
        rad_cache *cache;
        CHECK_OK(rad_cache_create(NULL, &tree, &cache, NULL));
        wait_queue_params params = {.policy = SCHEDULE_LPM,
                                    .shares = true,
                                    .page_size = page,
                                    .max_waiting = MODEL_REQS,
                                    .max_running = 2};
        wait_queue q;
        CHECK_OK(wait_queue_init(&q, &env, &params, cache));
        req *reqs = calloc(MODEL_REQS, sizeof *reqs);
        uint64_t arrival = 0;
        rad_slot slots[MODEL_IDS];
        for (uint32_t i = 0; i < MODEL_IDS; i++)
            slots[i] = (rad_slot)i;
        for (uint64_t op = 0; op < operations; op++) {
            req *r = &reqs[test_random(&rng) % MODEL_REQS];
            uint64_t what = test_random(&rng) % 16;
            if (!r->wait_node && what < 9) {
                req_fini(r);
                model_req(r, &rng, &arrival);
                wait_queue_add(&q, r);
            } else if (r->wait_node && what < 2) {
                wait_queue_remove(&q, r);
            } else if (what == 14) {
                rad_cache_evict(cache, test_random(&rng) % 20, NULL, NULL);
            } else if (what >= 11 && q.count) {
                q.passed_over = 0; /* the policy's choice only */
                req *next = NULL;
                for (uint32_t i = 0; i < MODEL_REQS; i++) /* each corrects a few after evictions */
                    next = wait_queue_next(&q);
                CHECK(next != NULL);
                uint32_t most = 0;
                for (uint32_t i = 0; i < MODEL_REQS; i++)
                    if (reqs[i].wait_node) most = RAD_MAX(most, cached_of(cache, &reqs[i]));
                CHECKF(cached_of(cache, next) == most, "%u cached, not %u: seed %llu, op %llu\n",
                       cached_of(cache, next), most, (unsigned long long)seed,
                       (unsigned long long)op);
                next->kv.protected_len = next->kv.committed_len = most;
                wait_queue_admitted(&q, next);
                check_queue(&q);
                uint32_t whole = req_num_fill(next) / page * page;
                rad_key key = req_key(next, whole);
                if (whole) CHECK_OK(rad_cache_insert(cache, &key, slots, NULL, NULL, NULL));
                if (what == 11) wait_queue_remove(&q, next); /* published after it left */
                wait_queue_published(&q, next, whole);
                check_queue(&q);
                wait_queue_remove(&q, next);
            }
            if (op % 8 == 0) check_queue(&q);
        }
        for (uint32_t i = 0; i < MODEL_REQS; i++) {
            wait_queue_remove(&q, &reqs[i]);
            req_fini(&reqs[i]);
        }
        CHECK(q.count == 0 && q.tree.children.count == 0);
        wait_queue_fini(&q, &env);
        rad_cache_destroy(cache);
        free(reqs);
    }
}

/* ---- who is held back behind leaders ---- */

enum { HELD_IDS = 80 };

typedef struct held_queue {
    rad_env env;
    rad_cache *cache;
    wait_queue q;
    uint64_t arrival;
} held_queue;

static void held_start(held_queue *h, schedule_policy policy)
{
    *h = (held_queue){.env = rad_env_or_default(NULL)};
    rad_cache_params tree = {.struct_size = sizeof tree, .page_size = 1};
    CHECK_OK(rad_cache_create(NULL, &tree, &h->cache, NULL));
    wait_queue_params params = {.policy = policy,
                                .by_priority = true,
                                .shares = true,
                                .page_size = 1,
                                .max_waiting = 8,
                                .max_running = 2};
    CHECK_OK(wait_queue_init(&h->q, &h->env, &params, h->cache));
}

static void held_end(held_queue *h)
{
    CHECK(h->q.count == 0);
    wait_queue_fini(&h->q, &h->env);
    rad_cache_destroy(h->cache);
}

/* A prompt that all of one family share but for its last ids. */
static void held_add(held_queue *h, req *r, uint64_t family, int32_t priority)
{
    rad_token ids[HELD_IDS];
    rig_prompt(ids, HELD_IDS, family);
    ids[0] = (rad_token)family;
    ids[HELD_IDS - 2] = (rad_token)h->arrival;
    req_params p = {.ids = ids, .num_ids = HELD_IDS, .max_new_tokens = 1, .priority = priority};
    CHECK_OK(req_init(r, NULL, &p, NULL));
    r->arrival = ++h->arrival;
    wait_queue_add(&h->q, r);
    check_queue(&h->q);
}

static void held_drop(held_queue *h, req *r)
{
    wait_queue_remove(&h->q, r);
    check_queue(&h->q);
    req_fini(r);
}

/* Leader after leader computes what the oldest request wants and ends without publishing it:
 * when it is the oldest one's turn, it waits for so many of them and no more. */
TEST(the_oldest_does_not_wait_for_one_leader_after_the_other)
{
    for (uint32_t policy = 0; policy < SCHEDULE_NUM_POLICIES; policy++) {
        held_queue h;
        req oldest, leader;
        held_start(&h, policy);
        held_add(&h, &oldest, 1, 0);
        uint32_t waits = SCHEDULE_MAX_PASSED_OVER - 1 + SCHEDULE_MAX_HOLDS;
        for (uint32_t i = 0; i <= waits; i++) {
            held_add(&h, &leader, 1, 9);
            wait_queue_admitted(&h.q, &leader);
            check_queue(&h.q);
            for (int again = 0; again < 3; again++) { /* one leader counts once */
                const req *next = wait_queue_next(&h.q);
                CHECKF(next == (i < waits ? NULL : &oldest), "%s, leader %u\n",
                       schedule_policy_name(policy), i);
            }
            held_drop(&h, &leader);
        }
        held_drop(&h, &oldest);
        held_end(&h);
    }
}

/* The turn of the oldest is not lost to the policy's favourite while those before it wait for a
 * leader: the first of them that does not has it. */
TEST(the_oldest_that_is_not_held_takes_the_turn)
{
    for (uint32_t policy = 0; policy < SCHEDULE_NUM_POLICIES; policy++)
        for (uint32_t held = 0; held < 4; held++) {
            held_queue h;
            req leader, siblings[3], stranger, favourite;
            held_start(&h, policy);
            held_add(&h, &leader, 1, 9);
            for (uint32_t i = 0; i < held; i++)
                held_add(&h, &siblings[i], 1, 0);
            held_add(&h, &stranger, 2, 0);
            held_add(&h, &favourite, 3, 9);
            CHECK(wait_queue_next(&h.q) == &leader || policy == SCHEDULE_RANDOM ||
                  policy == SCHEDULE_DFS_WEIGHT);
            wait_queue_admitted(&h.q, &leader);
            check_queue(&h.q);
            h.q.passed_over = SCHEDULE_MAX_PASSED_OVER - 1;
            CHECK(wait_queue_next(&h.q) == &favourite || policy == SCHEDULE_DFS_WEIGHT);
            h.q.passed_over = SCHEDULE_MAX_PASSED_OVER;
            CHECKF(wait_queue_next(&h.q) == &stranger, "%s, %u held\n",
                   schedule_policy_name(policy), held);
            for (uint32_t i = 0; i < held; i++)
                held_drop(&h, &siblings[i]);
            held_drop(&h, &leader);
            held_drop(&h, &stranger);
            held_drop(&h, &favourite);
            held_end(&h);
        }
}

static void ignore_outputs(void *user, const req_output *outputs, uint32_t count)
{
    (void)user, (void)outputs, (void)count;
}

/* 10,000 wait: what a step compares is bounded by what it admits, under every policy and
 * also while the cache evicts all the time. */
TEST(a_step_compares_no_more_when_ten_thousand_wait)
{
    enum { WAITING = 10000, GROUPS = 40, SHARED = 96, PROMPT = 120 };
    static rad_token ids[WAITING][PROMPT];
    static req reqs[WAITING];
    for (uint32_t i = 0; i < WAITING; i++) {
        rig_prompt(ids[i], SHARED, 600 + i % GROUPS);
        rig_prompt(ids[i] + SHARED, PROMPT - SHARED, 100000 + i);
    }
    for (uint32_t policy = 0; policy < SCHEDULE_NUM_POLICIES; policy++) {
        rig g;
        scheduler_params params = rig_params(3000, 1, 256);
        params.policy = policy;
        params.max_queued_requests = WAITING;
        g = (rig){.end_token = -1};
        CHECK_OK(runner_fake_create(NULL, &(runner_fake_params){.vocab_size = RIG_VOCAB}, &g.runner,
                                    NULL));
        params.runner = g.runner;
        params.on_output = ignore_outputs;
        CHECK_OK(scheduler_create(NULL, &params, &g.s, NULL));
        for (uint32_t i = 0; i < WAITING; i++) {
            req_params p = {.ids = ids[i], .num_ids = PROMPT, .max_new_tokens = 4};
            CHECK_OK(req_init(&reqs[i], NULL, &p, NULL));
            CHECK_OK(scheduler_add(g.s, &reqs[i], NULL));
        }
        scheduler_stats st;
        scheduler_get_stats(g.s, &st);
        uint64_t before = st.tokens_compared, prompts = st.prompt_tokens;
        for (int step = 0; step < 300; step++) {
            for (uint32_t i = 0; i < 8; i++)
                CHECK(scheduler_step(g.s));
            scheduler_get_stats(g.s, &st);
            uint64_t admitted = (st.prompt_tokens - prompts) / PROMPT;
            uint64_t compared = st.tokens_compared - before;
            CHECKF(compared <= (admitted + 8) * 12 * PROMPT, "%s: %llu tokens, %llu admitted\n",
                   schedule_policy_name(policy), (unsigned long long)compared,
                   (unsigned long long)admitted);
            before = st.tokens_compared;
            prompts = st.prompt_tokens;
        }
        CHECK(st.num_waiting > WAITING / 2);
        scheduler_destroy(g.s);
        runner_destroy(g.runner);
        for (uint32_t i = 0; i < WAITING; i++)
            req_fini(&reqs[i]);
    }
}

TEST(names_are_read_back)
{
    for (uint32_t p = 0; p < SCHEDULE_NUM_POLICIES; p++) {
        schedule_policy out;
        CHECK_OK(schedule_policy_parse(schedule_policy_name(p), &out, NULL));
        CHECK(out == p && schedule_policy_about(p)[0]);
    }
    schedule_policy out;
    rad_error err;
    CHECK(schedule_policy_parse("hrrn", &out, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "there are lpm, fcfs, dfs-weight, lof, priority and random"));
    CHECK(schedule_policy_parse("", &out, NULL) == RAD_E_INVAL);
}

TEST_MAIN()
