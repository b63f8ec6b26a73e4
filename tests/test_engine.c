/* test_engine.c - the threads around the scheduler: submits from everywhere, stop strings,
 * aborts, a full queue, an end in the middle of it all. Also run under tsan. */
#include "engine_rig.h"
#include "gear/retract.h"

#include "base/available.h"

#include <stdatomic.h>

TEST(the_events_of_a_request_add_up)
{
    engine *e = erig_start(erig_params(), 0);
    rad_token ids[100];
    erig_prompt(e, ids, 100, 1);
    for (int i = 0; i < 2; i++) {
        answer a;
        engine_request q = erig_ask(&a, ids, 100, 50);
        uint64_t id = 0;
        erig_submit(e, &q, &id);
        answer_wait(&a);
        CHECK(a.id == id && a.finish == ENGINE_FINISH_LENGTH && a.matched_token == -1);
        CHECK(a.prompt_tokens == 100 && a.completion_tokens == 50 && a.num_ids == 50);
        CHECK(a.cached_tokens == (i ? 99 : 0));
        CHECK(erig_is_oracle(e, &a, ids, 100));
        char *text = erig_decode(e, a.ids, a.num_ids);
        CHECK(strcmp(text, a.text) == 0);
        free(text);
        answer_fini(&a);
    }
    engine_stats st;
    engine_get_stats(e, &st);
    CHECK(st.requests.num_requests == 2 && st.requests.num_finished == 2 &&
          st.sched.generated_tokens == 100);
    CHECK(st.sched.prompt_tokens == 200 && st.sched.cached_tokens == 99 &&
          st.sched.prefill_tokens == 101);
    erig_stop(e);
}

typedef struct sender {
    engine *e;
    pthread_t thread;
    uint64_t rng;
    uint32_t wrong, full;
} sender;

enum { SENDERS = 4, SENDS = 30, FLIGHTS = 6 };

static uint32_t below(uint64_t *rng, uint32_t n)
{
    return (uint32_t)(test_random(rng) % n);
}

/* Sends shared-prefix requests, FLIGHTS at a time, and aborts some of them. */
static void *send_requests(void *arg)
{
    sender *s = arg;
    for (int round = 0; round < SENDS / FLIGHTS; round++) {
        answer a[FLIGHTS];
        rad_token ids[FLIGHTS][120];
        uint32_t n[FLIGHTS];
        uint64_t id[FLIGHTS] = {0};
        bool sent[FLIGHTS], aborted[FLIGHTS];
        for (int i = 0; i < FLIGHTS; i++) {
            uint32_t shared = below(&s->rng, 100);
            n[i] = shared + 1 + below(&s->rng, 20);
            erig_prompt(s->e, ids[i], shared, 7 + below(&s->rng, 3));
            erig_prompt(s->e, ids[i] + shared, n[i] - shared, test_random(&s->rng));
            answer_init(&a[i]);
            engine_request q = erig_request(&a[i], ids[i], n[i], 1 + below(&s->rng, 20));
            rad_status status = engine_submit(s->e, &q, &id[i], NULL);
            sent[i] = status == RAD_OK;
            s->full += status == RAD_FULL;
            s->wrong += status != RAD_OK && status != RAD_FULL;
            aborted[i] = below(&s->rng, 5) == 0;
            if (aborted[i] && below(&s->rng, 2)) sched_yield();
            if (aborted[i]) engine_abort(s->e, id[i]);
        }
        for (int i = 0; i < FLIGHTS; i++) {
            if (sent[i]) {
                answer_wait(&a[i]);
                bool fine = a[i].finish == ENGINE_FINISH_LENGTH ||
                            (aborted[i] && a[i].finish == ENGINE_FINISH_ABORT);
                s->wrong += !fine || !erig_is_oracle(s->e, &a[i], ids[i], n[i]) ||
                            a[i].completion_tokens != a[i].num_ids;
                engine_abort(s->e, id[i]); /* long gone: fine */
            }
            answer_fini(&a[i]);
        }
    }
    return NULL;
}

TEST(many_threads_get_right_answers_from_a_small_pool)
{
    uint64_t seed = test_told_seed();
    for (uint32_t run = 0; run < 3; run++) {
        engine_params params = erig_params();
        params.page_size = run == 1 ? 16 : 1;
        params.max_total_tokens = 512;
        params.chunked_prefill_size = run == 2 ? -1 : 32;
        params.max_queued_requests = run == 2 ? 4 : 64;
        gear_retract_every(run ? 7 : 0);
        engine *e = erig_start(params, 0);
        sender s[SENDERS];
        for (int i = 0; i < SENDERS; i++) {
            s[i] = (sender){.e = e, .rng = seed + 100 * run + i};
            CHECK(pthread_create(&s[i].thread, NULL, send_requests, &s[i]) == 0);
        }
        uint32_t full = 0;
        for (int i = 0; i < SENDERS; i++) {
            engine_stats st; /* looking inside in the middle of it is fine */
            engine_get_stats(e, &st);
            CHECK_OK(engine_check(e, NULL));
            pthread_join(s[i].thread, NULL);
            CHECKF(s[i].wrong == 0, "sender %d: %u wrong\n", i, s[i].wrong);
            full += s[i].full;
        }
        CHECK(run == 2 || full == 0);
        erig_stop(e);
    }
    gear_retract_every(0);
}

/* Where the first `stop` begins in `text`. */
static size_t find(const char *text, const char *stop)
{
    const char *at = strstr(text, stop);
    return at ? (size_t)(at - text) : strlen(text);
}

/* Pieces of the plain answer as stop strings, from the middle of one token to the middle
 * of another: never a part of one comes out, and all runs end at the same token. */
TEST(a_stop_string_cuts_the_same_place_every_time)
{
    engine *e = erig_start(erig_params(), 0);
    rad_token ids[40];
    erig_prompt(e, ids, 40, 3);
    answer plain;
    engine_request q = erig_ask(&plain, ids, 40, 120);
    erig_serve(e, &q);

    for (int trial = 0; trial < 24; trial++) {
        char stop[8] = {0};
        size_t from = 8 + 7 * (size_t)trial % (plain.text_len - 16);
        while (((unsigned char)plain.text[from] & 0xc0) == 0x80)
            from++; /* stop strings begin with a whole character */
        size_t len = 1 + trial % 6;
        while (((unsigned char)plain.text[from + len] & 0xc0) == 0x80)
            len--;
        if (!len) continue;
        memcpy(stop, plain.text + from, len);
        const char *stops[2] = {"no such thing", stop};
        size_t cut = find(plain.text, stop);
        uint32_t completion = 0;
        for (int run = 0; run < 4; run++) {
            answer a, noise;
            q = erig_ask(&a, ids, 40, 120);
            q.stop = stops;
            q.num_stop = 2;
            q.no_stop_trim = run == 3;
            erig_submit(e, &q, NULL);
            q = erig_ask(&noise, ids, 20 + run, 10);
            erig_submit(e, &q, NULL);
            answer_wait(&a);
            answer_wait(&noise);
            CHECK(a.finish == ENGINE_FINISH_STOP && strcmp(a.matched_stop, stop) == 0);
            CHECKF(a.text_len == cut + (run == 3 ? len : 0), "stop <%s>: %zu bytes, not %zu\n",
                   stop, a.text_len, cut);
            CHECK(memcmp(a.text, plain.text, a.text_len) == 0);
            CHECK(a.completion_tokens == a.num_ids && a.num_ids <= 120);
            CHECK(memcmp(a.ids, plain.ids, a.num_ids * sizeof *a.ids) == 0);
            CHECK(!run || completion == a.completion_tokens);
            completion = a.completion_tokens;
            answer_fini(&a);
            answer_fini(&noise);
        }
    }
    answer_fini(&plain);
    erig_stop(e);
}

TEST(an_unfulfilled_stop_string_holds_nothing_back_in_the_end)
{
    engine *e = erig_start(erig_params(), 0);
    rad_token ids[40];
    erig_prompt(e, ids, 40, 4);
    answer plain, a;
    engine_request q = erig_ask(&plain, ids, 40, 30);
    erig_serve(e, &q);
    char stop[64]; /* begins with the answer's last five bytes and goes on */
    snprintf(stop, sizeof stop, "%s and on", plain.text + plain.text_len - 5);
    const char *stops[1] = {stop};
    q = erig_ask(&a, ids, 40, 30);
    q.stop = stops;
    q.num_stop = 1;
    erig_serve(e, &q);
    CHECK(a.finish == ENGINE_FINISH_LENGTH && strcmp(a.text, plain.text) == 0);
    answer_fini(&plain);
    answer_fini(&a);
    engine_destroy(e);
}

TEST(an_end_token_is_counted_and_not_shown)
{
    engine *e = erig_start(erig_params(), 0);
    rad_token ids[40];
    erig_prompt(e, ids, 40, 5);
    answer plain;
    engine_request q = erig_ask(&plain, ids, 40, 30);
    erig_serve(e, &q);
    uint32_t at = 10;
    for (uint32_t i = 10; i-- > 0;)
        if (plain.ids[i] == plain.ids[10]) at = i;
    for (int show = 0; show < 2; show++) {
        answer a;
        q = erig_ask(&a, ids, 40, 30);
        q.stop_token_ids = &plain.ids[10];
        q.num_stop_token_ids = 1;
        q.no_stop_trim = show;
        erig_serve(e, &q);
        CHECK(a.finish == ENGINE_FINISH_STOP && a.matched_token == plain.ids[10]);
        CHECK(a.completion_tokens == at + 1 && a.num_ids == at + 1);
        char *text = erig_decode(e, a.ids, at + show);
        CHECK(strcmp(text, a.text) == 0);
        free(text);
        answer_fini(&a);
    }
    answer_fini(&plain);
    engine_destroy(e);
}

TEST(a_full_queue_says_so_and_empties)
{
    engine_params params = erig_params();
    params.max_running_requests = 1;
    params.max_queued_requests = 3;
    engine *e = erig_start(params, 0);
    rad_token ids[200];
    erig_prompt(e, ids, 200, 6);
    for (int round = 0; round < 3; round++) {
        answer a[40];
        uint32_t sent = 0, full = 0;
        rad_error err = {0};
        for (uint32_t i = 0; i < 40; i++) {
            answer_init(&a[sent]);
            engine_request q = erig_request(&a[sent], ids, 200, 300);
            rad_status status = engine_submit(e, &q, NULL, &err);
            CHECK(status == RAD_OK || status == RAD_FULL);
            if (status == RAD_OK)
                sent++;
            else
                full++, answer_fini(&a[sent]);
        }
        CHECKF(full > 0 && sent >= 3, "%u sent, %u full\n", sent, full);
        CHECK(strstr(err.text, "full") != NULL);
        for (uint32_t i = 0; i < sent; i++) {
            answer_wait(&a[i]);
            CHECK(a[i].finish == ENGINE_FINISH_LENGTH && a[i].num_ids == 300);
            answer_fini(&a[i]);
        }
    }
    erig_stop(e);
}

TEST(destroying_a_busy_engine_ends_every_request)
{
    for (int round = 0; round < 6; round++) {
        engine *e = erig_start(erig_params(), 0);
        rad_token ids[200];
        erig_prompt(e, ids, 200, 7);
        answer a[24];
        for (int i = 0; i < 24; i++) {
            answer_init(&a[i]);
            engine_request q = erig_request(&a[i], ids, 100 + i, 400);
            erig_submit(e, &q, NULL);
        }
        if (round) { /* somewhere in the middle */
            struct timespec t = {.tv_nsec = round * 1000000};
            nanosleep(&t, NULL);
        }
        engine_destroy(e);
        for (int i = 0; i < 24; i++) {
            CHECK(a[i].done);
            CHECK(a[i].finish == ENGINE_FINISH_ABORT || a[i].finish == ENGINE_FINISH_LENGTH);
            answer_fini(&a[i]);
        }
    }
    engine_destroy(NULL);
}

TEST(an_abort_from_inside_an_event_is_fine)
{
    engine *e = erig_start(erig_params(), 0);
    rad_token ids[30];
    erig_prompt(e, ids, 30, 8);
    for (uint32_t after = 1; after < 6; after++) {
        answer a;
        answer_init(&a);
        a.abort_in = e;
        a.abort_after = after;
        engine_request q = erig_request(&a, ids, 30, 500);
        erig_serve(e, &q);
        CHECK(a.finish == ENGINE_FINISH_ABORT || a.num_ids == 500);
        CHECK(a.num_ids >= after && erig_is_oracle(e, &a, ids, 30));
        answer_fini(&a);
    }
    erig_stop(e);
}

TEST(a_failing_model_gives_error_events_and_the_engine_goes_on)
{
    engine *e = erig_start(erig_params(), 5);
    rad_token ids[30];
    uint32_t failed = 0, fine = 0;
    for (int i = 0; i < 20; i++) {
        erig_prompt(e, ids, 30, 100 + i);
        answer a;
        engine_request q = erig_ask(&a, ids, 30, 3);
        erig_serve(e, &q);
        CHECK(erig_is_oracle(e, &a, ids, 30));
        if (a.finish == ENGINE_FINISH_ERROR) {
            failed++;
            CHECK(a.status == RAD_E_IO && a.message[0]);
        } else {
            fine++;
        }
        answer_fini(&a);
    }
    CHECK(failed > 0 && fine > 0);
    erig_stop(e);
}

TEST(bad_requests_are_refused_in_words)
{
    engine *e = erig_start(erig_params(), 0);
    answer a;
    answer_init(&a);
    rad_token ids[5000];
    for (int i = 0; i < 5000; i++)
        ids[i] = 5;
    const char *empty_stop[1] = {""};
    chat_message message = {.role = "user", .content = "hi", .content_len = 2};
    rad_token outside[2] = {1, 512}, negative[2] = {1, -1};

    engine_request good = erig_request(&a, ids, 4, 4), q;
    rad_error err;
#define REFUSED(change, want, word)                                                                \
    q = good;                                                                                      \
    change;                                                                                        \
    err.text[0] = 0;                                                                               \
    CHECK(engine_submit(e, &q, NULL, &err) == (want));                                             \
    CHECKF(strstr(err.text, word) != NULL, "<%s> does not say <%s>\n", err.text, word)

    REFUSED(q.num_ids = 0, RAD_E_INVAL, "empty");
    REFUSED(q.ids = NULL, RAD_E_INVAL, "one of them");
    REFUSED(q.text = "x"; q.text_len = 1, RAD_E_INVAL, "one of them");
    REFUSED(q.ids = NULL; q.text = "", RAD_E_INVAL, "empty");
    REFUSED(q.num_ids = 4097, RAD_E_LIMIT, "4097");
    REFUSED(q.ids = outside; q.num_ids = 2, RAD_E_INVAL, "512");
    REFUSED(q.ids = negative; q.num_ids = 2, RAD_E_INVAL, "-1");
    REFUSED(q.max_new_tokens = -2, RAD_E_INVAL, "max_new_tokens");
    REFUSED(q.sampling.temperature = -1, RAD_E_INVAL, "temperature");
    REFUSED(q.stop = empty_stop; q.num_stop = 1, RAD_E_INVAL, "stop string");
    REFUSED(q.ids = NULL; q.messages = &message; q.num_messages = 1, RAD_E_UNSUPPORTED, "chat");
    REFUSED(q.on_event = NULL, RAD_E_INVAL, "on_event");
    CHECK(a.num_events == 0);

    /* What only the tokenizer can know comes as an event. */
    char *text = malloc(100001);
    memset(text, 'z', 100000);
    text[100000] = 0;
    q = good;
    q.ids = NULL;
    q.text = text;
    q.text_len = 100000;
    erig_serve(e, &q);
    CHECK(a.finish == ENGINE_FINISH_ERROR && a.status == RAD_E_LIMIT);
    CHECKF(strstr(a.message, "4096") != NULL, "%s\n", a.message);
    free(text);
    answer_fini(&a);

    engine_stats st;
    engine_get_stats(e, &st);
    CHECK(st.requests.num_requests == 1 && st.requests.num_failed == 1);
    erig_stop(e);
}

TEST(a_text_is_encoded_and_answered)
{
    engine *e = erig_start(erig_params(), 0);
    const char *text = "Once upon a time, there was a radish.";
    token_buf ids = {0};
    CHECK_OK(tokenizer_encode(engine_tokenizer(e), text, strlen(text),
                              TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_BOS, 0, &ids, NULL));
    answer a;
    engine_request q = erig_ask(&a, NULL, 0, 20);
    q.text = text;
    q.text_len = strlen(text);
    erig_serve(e, &q);
    CHECK(a.prompt_tokens == ids.len && a.num_ids == 20);
    CHECK(erig_is_oracle(e, &a, ids.ids, ids.len));
    answer_fini(&a);
    token_buf_fini(&ids);
    engine_destroy(e);
}

TEST(no_new_tokens_and_a_full_context_end_by_length)
{
    engine_params params = erig_params();
    params.context_length = 128;
    engine *e = erig_start(params, 0);
    rad_token ids[128];
    erig_prompt(e, ids, 128, 9);
    static const struct {
        uint32_t prompt;
        int64_t max_new;
        uint32_t want;
    } cases[] = {{100, 0, 0}, {100, -1, 28}, {100, 1000, 28}, {128, -1, 0}, {127, 5, 1}};
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        answer a;
        engine_request q = erig_ask(&a, ids, cases[i].prompt, cases[i].max_new);
        erig_serve(e, &q);
        CHECK(a.finish == ENGINE_FINISH_LENGTH && a.num_ids == cases[i].want);
        CHECK(a.completion_tokens == cases[i].want && a.prompt_tokens == cases[i].prompt);
        answer_fini(&a);
    }
    erig_check_idle(e);
    CHECK_OK(engine_flush_cache(e));
    engine_stats st;
    engine_get_stats(e, &st);
    CHECK(st.sched.available_tokens == st.sched.max_total_tokens);
    engine_destroy(e);
}

typedef struct peeker {
    engine *e;
    uint32_t steps;
} peeker;

/* Amid a step, on the thread that runs it: who waited for that thread here would wait for ever. */
static void peek_amid_a_step(void *user, const step_info *step)
{
    peeker *p = user;
    engine_stats st;
    (void)step;
    if (!p->e) return;
    engine_peek_stats(p->e, &st);
    CHECK(st.sched.max_total_tokens && st.sched.num_finished == p->steps / 5);
    p->steps++;
}

/* Whoever has an answer finds it counted, however soon he looks. */
TEST(figures_are_told_amid_a_step_and_count_every_answer)
{
    peeker p = {0};
    engine_params params = erig_params();
    params.on_step = peek_amid_a_step;
    params.step_user = &p;
    engine *e = p.e = erig_start(params, 0);
    rad_token ids[20];
    latency_histogram first, all;
    for (uint32_t i = 0; i < 20; i++) {
        answer a;
        engine_stats st;
        erig_prompt(e, ids, 20, 100 + i);
        engine_request q = erig_ask(&a, ids, 20, 5);
        erig_serve(e, &q);
        engine_peek_stats(e, &st);
        CHECK(st.sched.num_finished == i + 1 && st.requests.num_finished == i + 1);
        CHECK(st.sched.generated_tokens == 5 * (i + 1) && !st.sched.num_running);
        answer_fini(&a);
    }
    engine_get_latency(e, LATENCY_FIRST_TOKEN, &first);
    engine_get_latency(e, LATENCY_END_TO_END, &all);
    CHECK(p.steps == 100 && first.count == 20 && all.count == 20);
    engine_destroy(e);
}

/* A model's name is any bytes of its file. It goes into every answer, and JSON is UTF-8:
 * one bad byte used to make all of them a 503. */
TEST(names_are_made_printable)
{
    engine_parts parts = erig_parts(0);
    parts.model_name = "a\xffz \xc3\xa9\x1b[2J\xc3";
    parts.model_path = "/tmp/\xe2\x82.gguf";
    engine_params params = erig_params();
    engine *e = NULL;
    CHECK_OK(engine_create_with(NULL, &params, &parts, &e, NULL));
    CHECK(strcmp(engine_get_info(e)->model_name, "a?z \xc3\xa9?[2J?") == 0);
    CHECK(strcmp(engine_get_info(e)->model_path, "/tmp/??.gguf") == 0);
    engine_destroy(e);
}

TEST(create_survives_every_allocation_failing)
{
    engine_params params = erig_params();
    params.served_model_name = "somebody";
    params.random_seed = 1;
    engine *e = NULL;
    for (long n = 0; !e; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        engine_parts parts = erig_parts(0);
        rad_error err = {0};
        rad_status status = engine_create_with(&env, &params, &parts, &e, &err);
        CHECKF(status == (e ? RAD_OK : RAD_E_NOMEM), "allocation %ld: %s\n", n, err.text);
        engine_destroy(e);
        CHECK(t.bytes == 0);
    }
}

/* Memory that runs out while requests come in: shared by all threads, hence atomic. */
typedef struct thin_memory {
    atomic_long left; /* allocations that succeed; negative: no limit */
    atomic_long bytes;
} thin_memory;

static void *thin_alloc(void *user, size_t bytes)
{
    thin_memory *t = user;
    long left = atomic_load(&t->left);
    if (left == 0 || (left > 0 && atomic_fetch_sub(&t->left, 1) <= 0)) return NULL;
    atomic_fetch_add(&t->bytes, (long)bytes);
    return aligned_alloc(64, (bytes + 63) & ~(size_t)63);
}

static void thin_free(void *user, void *memory, size_t bytes)
{
    atomic_fetch_sub(&((thin_memory *)user)->bytes, (long)bytes);
    free(memory);
}

TEST(a_request_without_memory_fails_and_the_next_one_does_not)
{
    thin_memory memory = {.left = -1};
    rad_env env = {
        .struct_size = sizeof env, .user = &memory, .alloc = thin_alloc, .free = thin_free};
    engine_params params = erig_params();
    engine_parts parts = erig_parts(0);
    engine *e;
    CHECK_OK(engine_create_with(&env, &params, &parts, &e, NULL));
    rad_token ids[30];
    erig_prompt(e, ids, 30, 11);
    const char *stops[2] = {"never so", "never more"};
    uint32_t refused = 0, failed = 0;
    bool fine = false;
    for (long n = 0; !fine; n++) {
        answer a;
        engine_request q = erig_ask(&a, ids, 30, 200);
        q.stop = stops;
        q.num_stop = 2;
        q.stop_token_ids = ids;
        q.extra_key = "adapter";
        q.cache_salt = "tenant";
        atomic_store(&memory.left, n);
        rad_status status = engine_submit(e, &q, NULL, NULL);
        if (status == RAD_OK) {
            answer_wait(&a);
            fine = a.finish == ENGINE_FINISH_LENGTH;
            CHECK(fine || (a.finish == ENGINE_FINISH_ERROR && a.status == RAD_E_NOMEM));
            CHECK(fine || a.message[0]);
            CHECK(erig_is_oracle(e, &a, ids, 30));
            failed += !fine;
        } else {
            CHECK(status == RAD_E_NOMEM);
            refused++;
        }
        answer_fini(&a);
        CHECK(n < 100);
    }
    CHECK(refused >= 5 && failed >= 2);
    atomic_store(&memory.left, -1);
    erig_stop(e);
    CHECK(atomic_load(&memory.bytes) == 0);
}

TEST(params_that_cannot_work_are_refused_in_words)
{
    static const struct {
        uint32_t context;
        int32_t chunk;
        uint64_t tokens;
        const char *word;
        uint32_t policy;
    } cases[] = {{1u << 20, 0, 4096, "context_length", 0},
                 {0, -2, 4096, "chunked_prefill_size", 0},
                 {0, 0, 0, "max_total_tokens", 0},
                 {0, 0, 7, "page", 0},
                 {0, 0, 4096, "eviction policy 99", 99}}; /* said by the cache itself */
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        engine_params params = {.context_length = cases[i].context,
                                .chunked_prefill_size = cases[i].chunk,
                                .max_total_tokens = cases[i].tokens,
                                .page_size = 16,
                                .eviction = {.policy = cases[i].policy}};
        engine_parts parts = {.model_name = "fake"};
        gguf_file *file;
        CHECK_OK(gguf_open(NULL, erig_model(), &file, NULL));
        CHECK_OK(tokenizer_create(NULL, file, &parts.tok, NULL));
        gguf_close(file);
        CHECK_OK(runner_fake_create(NULL, &(runner_fake_params){0}, &parts.runner, NULL));
        engine *e;
        rad_error err = {0};
        CHECK(engine_create_with(NULL, &params, &parts, &e, &err) == RAD_E_INVAL && !e);
        CHECKF(strstr(err.text, cases[i].word) != NULL, "%s\n", err.text);
    }
    engine *e;
    rad_error err = {0};
    engine_params params = {.model_path = "/no/such/model.gguf"};
    CHECK(engine_create(NULL, &params, &e, &err) == RAD_E_IO && !e);
    CHECK(strstr(err.text, "/no/such/model.gguf") != NULL);
}

static rad_status size_pool(const rad_env *env, const engine_params *params,
                            const runner_info *model, uint64_t available, uint64_t *tokens,
                            rad_error *err)
{
    kv_sizes sizes = {0};
    rad_status status =
        size_kv_pool(env, params, model, available, memory_available(), 0, &sizes, err);
    CHECK(!sizes.window_tokens); /* the models here have no window */
    *tokens = sizes.tokens;
    return status;
}

/* The fraction is of what there was before the model was loaded, whatever others do meanwhile. */
TEST(memory_that_others_gave_back_is_not_the_pools)
{
    SKIP_UNLESS(memory_available() > 1000000, "nothing says how much memory there is");
    const runner_info model = {.context_length = 1024, .full_token_bytes = 2048};
    const engine_params params = {.page_size = 1, .mem_fraction_static = 0.5};
    const rad_env env = rad_env_or_default(NULL);
    rad_error err = {0};
    uint64_t tokens = 0;
    CHECK_OK(size_pool(&env, &params, &model, 1000000, &tokens, &err));
    CHECKF(tokens > 200 && tokens < 500000 / 2048, "%llu\n", (unsigned long long)tokens);
    CHECK(size_pool(&env, &params, &model, 100000, &tokens, &err) == RAD_E_NOMEM);
    CHECK(strstr(err.text, "mem_fraction_static 0.50") != NULL);
}

static char last_warning[512];

static void keep_warning(void *user, rad_log_level level, const char *message)
{
    (void)user;
    if (level == RAD_LOG_WARN) snprintf(last_warning, sizeof last_warning, "%s", message);
}

/* 2 KiB of K/V a token, as in memory_that_others_gave_back_is_not_the_pools. */
static const runner_info small_model = {.context_length = 16, .full_token_bytes = 2048};

TEST(a_pool_larger_than_what_fits_is_a_warning_and_the_smaller)
{
    SKIP_UNLESS(memory_available() > 1000000, "nothing says how much memory there is");
    const rad_env env =
        rad_env_or_default(&(rad_env){.struct_size = sizeof env, .log = keep_warning});
    engine_params params = {
        .page_size = 16, .mem_fraction_static = 0.5, .max_total_tokens = 1ull << 40};
    uint64_t tokens = 0;
    rad_error err = {0};
    last_warning[0] = 0;
    CHECK_OK(size_pool(&env, &params, &small_model, 1000000, &tokens, &err));
    CHECKF(tokens > 200 && tokens < 500000 / 2048 && tokens % 16 == 0, "%llu\n",
           (unsigned long long)tokens);
    CHECKF(strstr(last_warning, "max_total_tokens 1099511627776 is more"), "%s\n", last_warning);
    last_warning[0] = 0;
    params.max_total_tokens = 128;
    CHECK_OK(size_pool(&env, &params, &small_model, 1000000, &tokens, &err));
    CHECK(tokens == 128 && !last_warning[0]);
    CHECK(size_pool(&env, &params, &small_model, 100000, &tokens, &err) == RAD_E_NOMEM);
}

/* A node for each page is 188 bytes that a model with a small K/V would feel. */
TEST(the_pool_leaves_room_for_a_node_to_each_page)
{
    SKIP_UNLESS(memory_available() > 1000000, "nothing says how much memory there is");
    const rad_env env = rad_env_or_default(NULL);
    uint64_t one = 0, sixteen = 0;
    rad_error err = {0};
    engine_params params = {.page_size = 1, .mem_fraction_static = 0.5};
    CHECK_OK(size_pool(&env, &params, &small_model, 1000000, &one, &err));
    params.page_size = 16;
    CHECK_OK(size_pool(&env, &params, &small_model, 1000000, &sixteen, &err));
    CHECKF(one * (2048 + 188) <= 500000 && one < sixteen, "%llu and %llu\n",
           (unsigned long long)one, (unsigned long long)sixteen);
}

TEST(only_where_nothing_is_said_of_memory_64_contexts_are_enough)
{
    SKIP_UNLESS(memory_available() > 64 << 20, "nothing says how much memory there is");
    const rad_env env = rad_env_or_default(NULL);
    engine_params params = {.page_size = 1};
    uint64_t tokens = 0;
    rad_error err = {0};
    CHECK_OK(size_pool(&env, &params, &small_model, 32 << 20, &tokens, &err));
    CHECK(tokens == 64 * 16);
    params.max_running_requests = 100;
    CHECK_OK(size_pool(&env, &params, &small_model, 32 << 20, &tokens, &err));
    CHECK(tokens == 100 * 16);
    params.mem_fraction_static = 0.8;
    CHECK_OK(size_pool(&env, &params, &small_model, 32 << 20, &tokens, &err));
    CHECKF(tokens > 10000, "%llu\n", (unsigned long long)tokens);
}

/* K/V of a token: 8 KiB in 8 layers. Every other one has a window of 4096, or all of them have. */
static runner_info window_model(uint32_t context, uint32_t window_layers)
{
    runner_info info = {.context_length = context,
                        .num_layers = 8,
                        .num_kv_heads = 2,
                        .head_dim = 64,
                        .v_head_dim = 64,
                        .kv_dtype = RAD_F32,
                        .window_layers = window_layers,
                        .sliding_window = 4096};
    return runner_with_token_bytes(info);
}

enum { WINDOW_MEMORY = 1 << 29, WINDOW_PAGE = 16, INDEX = 32 + 188 / 16, WINDOW_INDEX = 16 };

static kv_sizes size_windows(const engine_params *params, const runner_info *model)
{
    const rad_env env = rad_env_or_default(NULL);
    kv_sizes sizes = {0};
    rad_error err = {0};
    rad_status status = size_kv_pool(&env, params, model, 2 * (uint64_t)WINDOW_MEMORY,
                                     memory_available(), 0, &sizes, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    return sizes;
}

/* The arithmetic of engine_size.c, for half of 1 GiB: a token costs 4 KiB on each side and its
 * index; the window side has W / C of the tokens and a chunk of 2048. Both pools together are the
 * memory, and hold so much more than one pool that masks. */
TEST(memory_is_divided_between_the_pools_as_full_contexts_need_it)
{
    SKIP_UNLESS(memory_available() > 1 << 30, "there is not 1 GiB to divide");
    static const struct {
        uint32_t context, window_layers;
        double gain;
    } cases[] = {{32768, 4, 1.7}, {8192, 4, 1.3}, {32768, 8, 5}, {8192, 8, 1.9}};
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        const runner_info model = window_model(cases[i].context, cases[i].window_layers);
        const uint64_t window_bytes = 1024 * (uint64_t)cases[i].window_layers + WINDOW_INDEX;
        const uint64_t full_bytes = 8192 - 1024 * (uint64_t)cases[i].window_layers + INDEX;
        engine_params p = {.page_size = WINDOW_PAGE, .mem_fraction_static = 0.5};
        const kv_sizes apart = size_windows(&p, &model);
        const double ratio = (4096.0 + WINDOW_PAGE) / cases[i].context;
        const double want = (WINDOW_MEMORY - 2048.0 * (double)window_bytes) /
                            ((double)full_bytes + ratio * (double)window_bytes);
        CHECKF(apart.tokens % WINDOW_PAGE == 0 && (double)apart.tokens <= want &&
                   (double)apart.tokens > want - 2 * WINDOW_PAGE,
               "%zu: %llu tokens, not %g\n", i, (unsigned long long)apart.tokens, want);
        CHECK(apart.window_tokens == (uint64_t)(ratio * (double)apart.tokens) + 2048);
        CHECK(apart.tokens * full_bytes + apart.window_tokens * window_bytes <= WINDOW_MEMORY);

        p.disable_hybrid_swa_memory = true;
        const kv_sizes masked = size_windows(&p, &model);
        CHECK(masked.window_tokens == 0 && masked.tokens <= WINDOW_MEMORY / (8192 + INDEX));
        CHECKF((double)apart.tokens > cases[i].gain * (double)masked.tokens,
               "%zu: %llu tokens, masked %llu\n", i, (unsigned long long)apart.tokens,
               (unsigned long long)masked.tokens);
        print_message("  contexts of %u, %u of 8 layers with a window of 4096: %llu and %llu "
                      "tokens in 512 MiB, masked %llu\n",
                      cases[i].context, cases[i].window_layers, (unsigned long long)apart.tokens,
                      (unsigned long long)apart.window_tokens, (unsigned long long)masked.tokens);
    }
}

TEST(the_window_side_is_as_large_as_was_asked_and_never_too_small_for_a_request)
{
    SKIP_UNLESS(memory_available() > 1 << 30, "there is not 1 GiB to divide");
    const runner_info model = window_model(32768, 4);
    engine_params p = {.page_size = 1, .max_total_tokens = 20000, .swa_full_tokens_ratio = 0.6};
    kv_sizes s = size_windows(&p, &model);
    CHECK(s.tokens == 20000 && s.window_tokens == 12000 + 2048);
    p.swa_full_tokens_ratio = 1; /* never more than the other side */
    s = size_windows(&p, &model);
    CHECK(s.tokens == 20000 && s.window_tokens == 20000);
    p.swa_full_tokens_ratio = 0; /* an eighth is less than a request holds, 64 not given back yet */
    s = size_windows(&p, &model);
    CHECKF(s.tokens == 20000 && s.window_tokens == 4096 + 64 + 3 + 2048, "%llu\n",
           (unsigned long long)s.window_tokens);
    p.max_total_tokens = 5000; /* a pool that even the least does not fit in */
    s = size_windows(&p, &model);
    CHECK(s.tokens == 5000 && s.window_tokens == 5000);
    /* Nothing is said of memory, and there is more than 64 contexts need: no ratio is needed. */
    const runner_info small = {.context_length = 256,
                               .full_token_bytes = 128,
                               .window_token_bytes = 128,
                               .num_layers = 2,
                               .window_layers = 1,
                               .sliding_window = 64};
    p = (engine_params){.page_size = 1};
    s = size_windows(&p, &small);
    CHECK(s.tokens == 64 * 256 && s.window_tokens == s.tokens);
    /* What a context never reaches is no window memory. */
    p.context_length = 64;
    CHECK(size_windows(&p, &small).window_tokens == 0);
    /* Over tiers there are both sides, too. */
    p = (engine_params){.page_size = 1, .enable_hierarchical_cache = true};
    s = size_windows(&p, &small);
    CHECK(s.window_tokens > 64 && s.window_tokens <= s.tokens);
    p = (engine_params){.swa_full_tokens_ratio = 1.5};
    rad_error err = {0};
    const rad_env env = rad_env_or_default(NULL);
    CHECK(size_kv_pool(&env, &p, &small, 1 << 29, memory_available(), 0, &s, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "swa_full_tokens_ratio 1.5") != NULL);
}

/* 512 MiB, K/V of 4 KiB a token, and a state as large as so many tokens' of them. */
static kv_sizes size_states(const engine_params *params, uint32_t state_tokens, rad_error *err)
{
    const runner_info model = {.context_length = 8192,
                               .full_token_bytes = 4096,
                               .num_layers = 4,
                               .state_layers = 12,
                               .state_bytes = (size_t)state_tokens * 4096};
    const rad_env env = rad_env_or_default(NULL);
    kv_sizes sizes = {0};
    rad_status status = size_kv_pool(&env, params, &model, 2 * (uint64_t)WINDOW_MEMORY,
                                     memory_available(), 0, &sizes, err);
    CHECKF(status == RAD_OK || status == RAD_E_NOMEM, "%s\n", err->text);
    return sizes;
}

TEST(states_get_their_part_of_the_memory_as_far_as_there_is_use_for_them)
{
    SKIP_UNLESS(memory_available() > 1 << 30, "there is not 1 GiB to divide");
    rad_error err = {0};
    const uint64_t token = 4096 + 32 + 188;
    engine_params p = {.page_size = 1, .mem_fraction_static = 0.5};
    kv_sizes s = size_states(&p, 1024, &err); /* large ones: by the ratio */
    const double share = (double)WINDOW_MEMORY * 0.9 / 1.9;
    CHECKF(s.states == (uint64_t)(share / (1024 * 4096.0)), "%llu\n", (unsigned long long)s.states);
    CHECK(s.tokens == (WINDOW_MEMORY - s.states * 1024 * 4096) / token);
    CHECK(rows_for(&s) == s.states / 3);

    s = size_states(&p, 4, &err); /* small ones: as many as are of use */
    CHECKF(s.states == 2 + 3 * 242 + 124391 / 256, "%llu states\n", (unsigned long long)s.states);
    CHECK(rows_for(&s) == default_max_running(s.tokens));

    p.mamba_full_memory_ratio = 0.25;
    s = size_states(&p, 1024, &err);
    CHECK(s.states == WINDOW_MEMORY / 5 / (1024 * 4096));
    p.max_mamba_cache_size = 10;
    s = size_states(&p, 1024, &err);
    CHECK(s.states == 10 && s.tokens == (WINDOW_MEMORY - 10 * 1024 * 4096) / token);
    CHECK(rows_for(&s) == 3);
    p.max_mamba_cache_size = 1000;
    size_states(&p, 1024, &err);
    CHECKF(strstr(err.text, "max_mamba_cache_size 1000"), "%s\n", err.text);

    p = (engine_params){.page_size = 1, .mem_fraction_static = 0.5, .max_total_tokens = 100000};
    s = size_states(&p, 1024, &err); /* the tokens that were asked for come first */
    CHECKF(s.tokens == 100000 && s.states == (WINDOW_MEMORY - 100000 * token) / (1024 * 4096),
           "%llu tokens, %llu states\n", (unsigned long long)s.tokens,
           (unsigned long long)s.states);
    p.max_total_tokens = 0;
    s = size_states(&p, 16384, &err); /* and one context does: 64 MiB a state */
    CHECKF(s.states == 4, "%llu states\n", (unsigned long long)s.states);
    CHECK(s.tokens == (WINDOW_MEMORY - 4ull * 16384 * 4096) / token);
}

TEST(rows_follow_the_pool_and_memory_up_to_4096)
{
    const struct {
        uint64_t tokens;
        double fraction;
        uint32_t running;
        uint64_t row_bytes, available;
        uint32_t want;
    } cases[] = {
        {4096, 0, 0, 1 << 10, 1ull << 33, 64},          /* a pool for few */
        {1 << 20, 0, 0, 1 << 10, 1ull << 33, 2048},     /* a row for 512 tokens */
        {1ull << 40, 0, 0, 1 << 10, 1ull << 40, 4096},  /* never more */
        {1ull << 40, 0, 0, 1 << 20, 1ull << 33, 256},   /* rows of 1 MiB: a 32nd of 0.8 * 8 GiB */
        {1ull << 40, 0, 0, 1 << 20, 1ull << 35, 819},   /* and of 32 GiB */
        {1ull << 40, 0.4, 0, 1 << 20, 1ull << 36, 819}, /* half the part of twice the memory */
        {0, 0, 0, 1 << 10, 1ull << 33, 64},             /* 64 contexts of 16 */
        {0, 0.8, 0, 1 << 10, 1ull << 33, 4096},         /* all that fits */
        {0, 0.8, 0, 1 << 10, 1ull << 30, 739},          /* 0.8 GiB of 2,268 bytes a token */
        {1 << 20, 0, 0, 1 << 10, 0, 256},               /* nobody knows */
        {1 << 20, 0, 7, 1 << 20, 1ull << 33, 7},        /* what is asked for */
        {1 << 20, 9, 0, 1 << 10, 1ull << 33, 64},       /* refused later */
    };
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        engine_params p = {.page_size = 1,
                           .max_total_tokens = cases[i].tokens,
                           .mem_fraction_static = cases[i].fraction,
                           .max_running_requests = cases[i].running};
        uint32_t rows = rows_to_load_for(&p, &small_model, cases[i].row_bytes, cases[i].available);
        CHECKF(rows == cases[i].want, "%zu: %u rows, not %u\n", i, rows, cases[i].want);
    }
    CHECK(default_max_running(0) == 64 && default_max_running(300 * 512) == 300);
    CHECK(default_max_running(UINT64_MAX) == 4096);
}

TEST_MAIN()
