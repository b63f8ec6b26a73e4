/* test_engine_memory.c - what requests hold while they wait is shared where it is the same,
 * counted, bounded, and given back to the last byte. */
#include "engine_rig.h"

#include "base/memory_budget.h"

enum { BATCH = 256, STOPS = 64, STOP_BYTES = 1000, MANY = 40 };

/* With the shipped model's vocabulary. */
static engine *start_engine(memory_budget *budget)
{
    engine_params params = erig_params();
    params.max_queued_requests = 2 * BATCH;
    params.request_memory = budget;
    return erig_start_with(params, erig_parts_of(RADISH_SOURCE_DIR "/models/radish-tiny.gguf", 0));
}

static char stop_words[STOPS][STOP_BYTES + 1];
static const char *stop_list[STOPS];
static logit_bias all_bias[ENGINE_MAX_LOGIT_BIAS];

/* As many and as long stop strings as a request may have, all different. */
static void add_stops(engine_request *q)
{
    for (int i = 0; i < STOPS; i++) {
        memset(stop_words[i], 's', STOP_BYTES);
        stop_words[i][0] = (char)('0' + i);
        stop_list[i] = stop_words[i];
    }
    q->stop = stop_list;
    q->num_stop = STOPS;
}

static void add_bias(engine_request *q)
{
    for (int i = 0; i < ENGINE_MAX_LOGIT_BIAS; i++)
        all_bias[i] = (logit_bias){(rad_token)(i % 100), 0};
    q->sampling.bias = all_bias;
    q->sampling.num_bias = ENGINE_MAX_LOGIT_BIAS;
}

/* Asks MANY times at once, while nothing runs, then lets all run to their ends; returns how many
 * were taken. The others were refused with RAD_FULL, the last one with `err`. `differs`: a byte
 * that no two requests have the same, or NULL. */
static int play_until_full(engine *e, engine_request q, char *differs, rad_error *err)
{
    static answer answers[MANY];
    int sent = 0;
    engine_pause(e);
    for (int i = 0; i < MANY; i++) {
        if (differs) *differs = (char)('0' + i);
        answer_init(&answers[sent]);
        q.user = &answers[sent];
        rad_status status = engine_submit(e, &q, NULL, err);
        CHECKF(status == RAD_OK || status == RAD_FULL, "%s", err->text);
        if (status == RAD_OK)
            sent++;
        else
            answer_fini(&answers[sent]);
    }
    engine_continue(e);
    for (int i = 0; i < sent; i++) {
        answer_wait(&answers[i]);
        answer_fini(&answers[i]);
    }
    return sent;
}

/* 256 choices of one long prompt with 64 long stop strings and a bias for every fourth token
 * cost a copy of each, not 256: before, 64 MB of stop strings alone. */
TEST(what_a_batch_has_in_common_is_copied_once)
{
    static char text[2000];
    static answer answers[BATCH];
    memory_budget budget = {.limit = 64 << 20};
    engine *e = start_engine(&budget);
    for (size_t i = 0; i < sizeof text - 1; i++)
        text[i] = i % 6 == 5 ? ' ' : 'w';
    engine_share share = {0};
    engine_request q = erig_request(NULL, NULL, 0, 3);
    q.text = text;
    q.text_len = sizeof text - 1;
    add_stops(&q);
    add_bias(&q);
    q.share = &share;
    engine_pause(e); /* all of them wait at once */
    for (int i = 0; i < BATCH; i++) {
        answer_init(&answers[i]);
        q.user = &answers[i];
        erig_submit(e, &q, NULL);
    }
    engine_share_end(&share);
    engine_continue(e);
    for (int i = 0; i < BATCH; i++) {
        answer_wait(&answers[i]);
        CHECKF(answers[i].finish == ENGINE_FINISH_LENGTH, "%s", answers[i].message);
        CHECK(answers[i].prompt_tokens == answers[0].prompt_tokens);
        CHECK(memcmp(answers[i].ids, answers[0].ids, 3 * sizeof(rad_token)) == 0);
        answer_fini(&answers[i]);
    }
    uint64_t each = sizeof(engine_job) + 4 * sizeof text + 4 * STOPS + 2048;
    CHECKF(budget.peak < BATCH * each + 100000, "%llu bytes", (unsigned long long)budget.peak);
    erig_check_idle(e);
    engine_destroy(e);
    CHECKF(budget.used == 0, "%llu bytes are left", (unsigned long long)budget.used);
}

/* Sharing is about memory only: each request of a mixed batch gets its own prompt and stops. */
TEST(a_batch_whose_parts_differ_is_not_mixed_up)
{
    enum { MIXED = 24 };
    static answer shared[MIXED], alone[MIXED];
    memory_budget budget = {.limit = 64 << 20};
    engine *e = start_engine(&budget);
    rad_token prompts[3][20];
    for (int i = 0; i < 3; i++)
        erig_prompt(e, prompts[i], 20, (uint64_t)i + 1);
    logit_bias bias[2] = {{5, -100}, {9, 3}};
    const char *stops[2] = {"never in this text, never", "nor this"};
    for (int pass = 0; pass < 2; pass++) {
        engine_share share = {0};
        answer *a = pass ? alone : shared;
        for (int i = 0; i < MIXED; i++) {
            answer_init(&a[i]);
            engine_request q = erig_request(&a[i], prompts[i / 4 % 3], i % 3 ? 20u : 10u, 5);
            q.stop = stops + i % 2;
            q.num_stop = i % 5 ? 1 : 0;
            q.sampling.bias = bias;
            q.sampling.num_bias = (uint32_t)(i / 2 % 3);
            q.share = pass ? NULL : &share;
            erig_submit(e, &q, NULL);
        }
        engine_share_end(&share);
        for (int i = 0; i < MIXED; i++)
            answer_wait(&a[i]);
    }
    for (int i = 0; i < MIXED; i++) {
        CHECK(shared[i].num_ids == 5 && shared[i].prompt_tokens == (i % 3 ? 20u : 10u));
        CHECK(memcmp(shared[i].ids, alone[i].ids, 5 * sizeof(rad_token)) == 0);
        CHECK(strcmp(shared[i].text, alone[i].text) == 0);
        answer_fini(&shared[i]);
        answer_fini(&alone[i]);
    }
    erig_stop(e);
    CHECK(budget.used == 0);
}

/* What does not fit now is refused with RAD_FULL in words and holds nothing; later it fits. Biases
 * are held until a request ends, and none ends while the engine is paused: 8 KB each, so at most 12
 * requests fit, however quickly their texts are encoded and given back. */
TEST(past_the_limit_requests_are_refused_and_nothing_is_lost)
{
    memory_budget budget = {.limit = 100000};
    engine *e = start_engine(&budget);
    engine_request q = erig_request(NULL, NULL, 0, 2);
    q.text = "what is held";
    q.text_len = strlen(q.text);
    add_bias(&q);
    for (int round = 0; round < 3; round++) {
        rad_error err = {0};
        int sent = play_until_full(e, q, NULL, &err), full = MANY - sent;
        CHECKF(full >= 28 && sent > 3, "%d sent, %d full", sent, full);
        CHECKF(strstr(err.text, "memory") && strstr(err.text, "100000"), "%s", err.text);
    }
    engine_destroy(e);
    CHECK(budget.used == 0 && budget.peak <= budget.limit);
}

/* Requests with stop strings of their own share nothing, and all of it counts while they wait. */
TEST(stop_strings_that_differ_are_counted)
{
    memory_budget budget = {.limit = 2 << 20};
    engine *e = start_engine(&budget);
    rad_error err = {0};
    engine_request q = erig_request(NULL, NULL, 0, 2); /* of 190 KB */
    q.text = "word";
    q.text_len = 4;
    add_stops(&q);
    int sent = play_until_full(e, q, &stop_words[0][0], &err);
    CHECKF(sent > 5 && sent <= 10, "%d of %d sent", sent, MANY);
    CHECKF(strstr(err.text, "stop strings") && strstr(err.text, "2097152"), "%s", err.text);
    engine_destroy(e);
    CHECK(budget.used == 0 && budget.peak <= budget.limit);
}

TEST_MAIN()
