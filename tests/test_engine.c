/* test_engine.c - the threads around the scheduler: submits from everywhere, stop strings,
 * aborts, a full queue, an end in the middle of it all. Also run under tsan. How large its pools
 * are is in test_engine_sizes.c. */
#include "below.h"
#include "engine_rig.h"
#include "gear/retract.h"

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

TEST_MAIN()
