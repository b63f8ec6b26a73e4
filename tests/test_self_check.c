/* test_self_check.c - promise P2 while it runs: an idle engine looks at itself, tells what is
 * wrong in words, counts and gauges, and goes on serving. */
#include "engine_rig.h"
#include "scheduler_rig.h"

#include "sched/scheduler_impl.h"
#include "server/server_priv.h"

#include <stdatomic.h>

enum { MOST_LOGGED = 1 << 14 };

typedef struct heard {
    rad_env real;
    pthread_mutex_t lock;
    char text[MOST_LOGGED];
    uint64_t now; /* of clock_by_hand */
    bool no_memory;
} heard;

static void *hear_alloc(void *user, size_t bytes)
{
    const heard *h = user;
    return h->no_memory ? NULL : h->real.alloc(h->real.user, bytes);
}

static void hear_free(void *user, void *memory, size_t bytes)
{
    const rad_env *env = &((heard *)user)->real;
    env->free(env->user, memory, bytes);
}

static uint64_t hear_now(void *user)
{
    const rad_env *env = &((heard *)user)->real;
    return env->now_ns(env->user);
}

static uint64_t clock_by_hand(void *user)
{
    return ((heard *)user)->now;
}

static void hear_log(void *user, rad_log_level level, const char *message)
{
    heard *h = user;
    if (level > RAD_LOG_WARN) return;
    pthread_mutex_lock(&h->lock);
    size_t len = strlen(h->text);
    snprintf(h->text + len, sizeof h->text - len, "%s\n", message);
    pthread_mutex_unlock(&h->lock);
}

static bool heard_says(heard *h, const char *words)
{
    pthread_mutex_lock(&h->lock);
    bool found = strstr(h->text, words) != NULL;
    pthread_mutex_unlock(&h->lock);
    return found;
}

/* What is said again and again fills the text. */
static void forget(heard *h)
{
    pthread_mutex_lock(&h->lock);
    h->text[0] = 0;
    pthread_mutex_unlock(&h->lock);
}

static rad_env hear(heard *h)
{
    *h = (heard){.real = rad_env_or_default(NULL), .now = 1};
    pthread_mutex_init(&h->lock, NULL);
    rad_env env = h->real;
    env.user = h;
    env.alloc = hear_alloc;
    env.free = hear_free;
    env.now_ns = hear_now;
    env.log = hear_log;
    return env;
}

/* ---- what may go wrong, done on purpose ---- */

static rad_page lost_page;

/* Taken from the allocator, and nobody has it. */
static void lose_page(engine *e, void *user)
{
    (void)user;
    CHECK_OK(rad_kv_alloc(e->scheduler->pools.kv_allocator, &lost_page, 1));
}

static void find_page(engine *e, void *user)
{
    (void)user;
    CHECK_OK(rad_kv_free(e->scheduler->pools.kv_allocator, &lost_page, 1, NULL));
}

static rad_page shared_page;

static void note_page(void *user, rad_ref node, uint32_t depth, const rad_token *tokens,
                      const rad_slot *slots, uint32_t num_tokens, uint32_t lock_ref,
                      uint32_t hit_count)
{
    (void)user, (void)node, (void)depth, (void)tokens, (void)lock_ref, (void)hit_count;
    if (num_tokens) shared_page = slots[0];
}

/* Page size 1: a page that the tree has is given back behind its back. */
static void give_away_page(engine *e, void *user)
{
    (void)user;
    CHECK_OK(rad_cache_walk(e->scheduler->pools.tree_cache, note_page, NULL));
    CHECK(shared_page > 0);
    CHECK_OK(rad_kv_free(e->scheduler->pools.kv_allocator, &shared_page, 1, NULL));
}

/* The next pages that are handed out are kept until it comes again; the others go back. */
static void take_page_again(engine *e, void *user)
{
    (void)user;
    rad_kv_allocator *kv = e->scheduler->pools.kv_allocator;
    uint32_t count = rad_kv_available_pages(kv);
    rad_page *pages = calloc(count, sizeof *pages);
    CHECK_OK(rad_kv_alloc(kv, pages, count));
    for (uint32_t i = 0; i < count; i++)
        if (pages[i] != shared_page) CHECK_OK(rad_kv_free(kv, &pages[i], 1, NULL));
    free(pages);
}

/* ---- */

static engine_stats wait_for(engine *e, uint64_t checks, uint64_t violations)
{
    engine_stats st;
    AWAIT((engine_get_stats(e, &st), st.sched.self_check.num_checks >= checks &&
                                         st.sched.self_check.num_violations >= violations));
    return st;
}

static void ask(engine *e, uint64_t seed)
{
    rad_token ids[50];
    answer a;
    erig_prompt(e, ids, 50, seed);
    engine_request q = erig_ask(&a, ids, 50, 5);
    erig_serve(e, &q);
    CHECK(a.finish == ENGINE_FINISH_LENGTH && erig_is_oracle(e, &a, ids, 50));
    answer_fini(&a);
}

static double gauge(engine *e, const engine_stats *st, const char *metric)
{
    server_figures f = {.engine = *st};
    struct evbuffer *out = evbuffer_new();
    figures_derive(&f);
    prometheus_write(out, engine_get_info(e), &f, &(answer_counts){0}, false); /* no secret of anybody's */
    evbuffer_add(out, "", 1);
    const char *at = strstr((char *)evbuffer_pullup(out, -1), metric);
    while (at && at[strlen(metric)] != '{')
        at = strstr(at + 1, metric);
    CHECKF(at, "no %s\n", metric);
    double value = strtod(strchr(at, '}') + 1, NULL);
    evbuffer_free(out);
    return value;
}

TEST(an_idle_engine_finds_what_is_wrong_and_goes_on)
{
    heard h;
    rad_env env = hear(&h);
    engine_params params = erig_params();
    engine_parts parts = erig_parts(0);
    engine *e = NULL;
    params.self_check_interval_s = 0.001;
    CHECK_OK(engine_create_with(&env, &params, &parts, &e, NULL));

    ask(e, 1);
    engine_stats st = wait_for(e, 2, 0);
    CHECK(st.sched.self_check.num_violations == 0 && h.text[0] == 0);
    CHECK(gauge(e, &st, "radish_self_checks_total") >= 2);
    CHECK(gauge(e, &st, "radish_self_check_violations_total") == 0);
    CHECK(gauge(e, &st, "radish_kv_errors_total") == 0);
    CHECK(gauge(e, &st, "radish_self_check_longest_seconds") > 0);

    CHECK_OK(engine_run_on_scheduler(e, lose_page, NULL));
    st = wait_for(e, 0, 1);
    CHECK(heard_says(&h, "is lost: taken, and neither cached nor held by a request"));
    CHECK(gauge(e, &st, "radish_self_check_violations_total") >= 1);
    ask(e, 2);
    CHECK_OK(engine_run_on_scheduler(e, find_page, NULL));
    forget(&h);

    CHECK_OK(engine_run_on_scheduler(e, give_away_page, NULL));
    AWAIT(heard_says(&h, "is free, and held by the cache"));
    CHECK_OK(engine_run_on_scheduler(e, take_page_again, NULL));

    CHECK_OK(engine_check(e, NULL)); /* whole again: the count stays from here on */
    engine_get_stats(e, &st);
    st = wait_for(e, st.sched.self_check.num_checks + 2, 0);
    uint64_t before = st.sched.self_check.num_violations;
    st = wait_for(e, st.sched.self_check.num_checks + 2, 0);
    CHECK(st.sched.self_check.num_violations == before);
    erig_stop(e);
    pthread_mutex_destroy(&h.lock);
}

/* ---- a scheduler with a clock by hand ---- */

static void start_by_hand(rig *g, heard *h, uint64_t self_check_ns)
{
    rad_env env = hear(h);
    env.now_ns = clock_by_hand;
    scheduler_params params = rig_params(256, 4, 0);
    params.self_check_ns = self_check_ns;
    rig_start_on(g, &env, params, 0);
}

static void stop_by_hand(rig *g, heard *h)
{
    rig_stop(g);
    pthread_mutex_destroy(&h->lock);
}

/* A piece at a time, each only after a while without requests; between two the request that
 * came is served, and the round goes on behind it. */
TEST(requests_go_before_the_pieces_of_a_check)
{
    enum { PIECES = 4 };
    const uint64_t second = 1000000000;
    heard h;
    rig g;
    start_by_hand(&g, &h, 60 * second);

    CHECK(scheduler_self_check_due_ns(g.s) == 60 * second);
    scheduler_self_check(g.s); /* not due: nothing happens */
    h.now += 61 * second;
    scheduler_stats st;
    rig_req q;
    rad_token ids[30] = {1, 2, 3};
    for (int i = 0; i < PIECES; i++) {
        CHECK(scheduler_self_check_due_ns(g.s) == 0);
        scheduler_self_check(g.s);
        scheduler_get_stats(g.s, &st);
        CHECK(st.self_check.num_checks == (i == PIECES - 1));
        if (i != 1) continue;
        rig_req_init(&q, ids, 30, 5);
        CHECK_OK(scheduler_add(g.s, &q.r, NULL));
        CHECK(scheduler_self_check_due_ns(g.s) == UINT64_MAX); /* first the request */
        rig_run(&g);
        CHECK(q.finish == REQ_FINISH_LENGTH);
        uint64_t due = scheduler_self_check_due_ns(g.s);
        CHECK(due > 0 && due < second); /* and a moment in which another may come */
        scheduler_self_check(g.s);
        h.now += due;
        req_fini(&q.r);
    }
    CHECK(st.self_check.num_violations == 0 && st.self_check.age_ns == 0);
    CHECK(scheduler_self_check_due_ns(g.s) == 60 * second);
    h.now += 7;
    scheduler_get_stats(g.s, &st);
    CHECK(st.self_check.age_ns == 7);

    g.s->params.self_check_ns = 0;
    h.now += 1000 * second;
    CHECK(scheduler_self_check_due_ns(g.s) == UINT64_MAX);
    stop_by_hand(&g, &h);
}

/* Each page that is lost is told, up to a screenful, and all of them are counted. */
TEST(every_lost_slot_is_told_with_its_place)
{
    heard h;
    rig g;
    start_by_hand(&g, &h, 1);
    rad_kv_allocator *kv = g.s->pools.kv_allocator;
    rad_page lost[20];
    CHECK_OK(rad_kv_alloc(kv, lost, 20));
    scheduler_stats st = {0};
    while (!st.self_check.num_checks) {
        h.now += 2;
        scheduler_self_check(g.s);
        scheduler_get_stats(g.s, &st);
    }
    CHECK(st.self_check.num_violations == 20);
    CHECK(heard_says(&h, "self-check: page 1 (slots 4..7) is lost"));
    CHECK(heard_says(&h, "self-check: page 16 (slots 64..67) is lost"));
    CHECK(!heard_says(&h, "page 17 ") && heard_says(&h, "and 4 more"));
    CHECK_OK(rad_kv_free(kv, lost, 20, NULL));
    stop_by_hand(&g, &h);
}

/* Memory that is short is no violation: the round does not count, the next one may. */
TEST(a_check_without_memory_is_tried_again)
{
    heard h;
    rig g;
    start_by_hand(&g, &h, 1);
    for (int round = 0; round < 2; round++) {
        h.no_memory = round == 0;
        for (int i = 0; i < 4; i++) {
            h.now += 2;
            scheduler_self_check(g.s);
        }
        scheduler_stats st;
        scheduler_get_stats(g.s, &st);
        CHECK(st.self_check.num_checks == (uint64_t)round && st.self_check.num_violations == 0);
    }
    CHECK(heard_says(&h, "tried again later"));
    stop_by_hand(&g, &h);
}

TEST_MAIN()
