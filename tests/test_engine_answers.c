/* test_engine_answers.c - promise P1 end to end: the cache never changes an answer.
 *
 * Random requests that share prefixes run several at once through a small pool that
 * forces eviction, chunked prefill and retraction; some are aborted on the way. Every
 * answer must equal the one that the same model gives with the cache off, one request
 * at a time. Afterwards every slot is free or cached. */
#include "engine_client.h"

enum { MOST_PROMPT = 220, MOST_OUT = 24, IN_FLIGHT = 12 };

typedef struct request {
    rad_token ids[MOST_PROMPT];
    uint32_t num_ids;
    uint32_t max_new;
    bool abort;
} request;

/* Prompts grow out of earlier ones: a random cut of an earlier prompt (0 = from
 * nothing), then random tokens. So prefixes of all lengths are shared. */
static void make_requests(request *r, uint32_t count, uint32_t vocab, uint64_t *seed)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t cut = 0;
        if (i && test_random(seed) % 8) {
            const request *from = &r[test_random(seed) % i];
            cut = (uint32_t)(test_random(seed) % (from->num_ids + 1));
            memcpy(r[i].ids, from->ids, cut * sizeof(rad_token));
        }
        uint32_t more = 1 + (uint32_t)(test_random(seed) % 60);
        if (cut + more > MOST_PROMPT) cut = MOST_PROMPT - more;
        for (uint32_t k = 0; k < more; k++)
            r[i].ids[cut + k] = 3 + (rad_token)(test_random(seed) % (vocab - 16));
        r[i].num_ids = cut + more;
        r[i].max_new = 1 + (uint32_t)(test_random(seed) % MOST_OUT);
        r[i].abort = test_random(seed) % 16 == 0;
    }
}

static engine *start(const char *model, engine_params p)
{
    rad_error err = {0};
    engine *e = NULL;
    p.model_path = model;
    p.dtype = RAD_F32;
    p.num_threads = 2;
    rad_status status = engine_create(NULL, &p, &e, &err);
    CHECKF(status == RAD_OK, "%s: %s", model, err.text);
    return e;
}

static answer *run_alone(const char *model, const request *r, uint32_t count)
{
    engine *e = start(model, (engine_params){.disable_radix_cache = true,
                                             .max_running_requests = 1,
                                             .max_total_tokens = 1024});
    answer *answers = calloc(count, sizeof *answers);
    for (uint32_t i = 0; i < count; i++) {
        answer_init(&answers[i]);
        CHECK_OK(answer_ask(e, &answers[i], r[i].ids, r[i].num_ids, r[i].max_new, true));
        answer_wait(&answers[i]);
        CHECK(answers[i].finish == ENGINE_FINISH_LENGTH && answers[i].num_ids == r[i].max_new);
        CHECK(answers[i].cached_tokens == 0);
    }
    check_idle(e);
    engine_destroy(e);
    return answers;
}

static void compare(const answer *got, const answer *want, const request *r, uint32_t i,
                    uint64_t seed)
{
    CHECKF(got->finish == ENGINE_FINISH_LENGTH || (r->abort && got->finish == ENGINE_FINISH_ABORT),
           "request %u ended with %d (%s), seed %llu", i, got->finish, got->message,
           (unsigned long long)seed);
    CHECKF(got->num_ids == want->num_ids || got->finish == ENGINE_FINISH_ABORT,
           "request %u gave %u tokens, alone %u, seed %llu", i, got->num_ids, want->num_ids,
           (unsigned long long)seed);
    CHECK(got->num_ids <= want->num_ids);
    for (uint32_t k = 0; k < got->num_ids; k++)
        CHECKF(got->ids[k] == want->ids[k],
               "request %u (prompt %u, cached %u), token %u: %d, alone %d, seed %llu", i,
               r->num_ids, got->cached_tokens, k, got->ids[k], want->ids[k],
               (unsigned long long)seed);
}

static void run_together(const char *model, uint32_t page_size, const request *r, uint32_t count,
                         const answer *want, uint64_t seed)
{
    engine *e = start(model, (engine_params){.page_size = page_size,
                                             .max_running_requests = IN_FLIGHT,
                                             .chunked_prefill_size = 64,
                                             .max_total_tokens = 1024,
                                             .test_retract_every = 17});
    answer *window = calloc(count, sizeof *window);
    uint64_t dice = seed;
    for (uint32_t i = 0; i < count + IN_FLIGHT; i++) {
        if (i < count) {
            answer_init(&window[i]);
            CHECK_OK(answer_ask(e, &window[i], r[i].ids, r[i].num_ids, r[i].max_new, true));
            if (r[i].abort && test_random(&dice) % 2) engine_abort(e, window[i].id);
        }
        if (i < IN_FLIGHT) continue;
        uint32_t old = i - IN_FLIGHT;
        if (r[old].abort) engine_abort(e, window[old].id);
        answer_wait(&window[old]);
        compare(&window[old], &want[old], &r[old], old, seed);
    }
    engine_stats s;
    engine_get_stats(e, &s);
    check_idle(e);
    print_message("page size %u: %llu of %llu prompt tokens cached, %llu retractions, "
                  "%llu tokens evicted, %llu aborted\n",
                  page_size, (unsigned long long)s.cached_tokens,
                  (unsigned long long)s.prompt_tokens, (unsigned long long)s.num_retractions,
                  (unsigned long long)s.evicted_tokens, (unsigned long long)s.num_aborted);
    /* The test is only worth something when all of it happened. */
    CHECK(s.cached_tokens > 0 && s.num_retractions > 0 && s.evicted_tokens > 0);
    engine_destroy(e);
    for (uint32_t i = 0; i < count; i++)
        answer_fini(&window[i]);
    free(window);
}

static void run_model(const char *model)
{
    FILE *there = fopen(model, "rb");
    SKIP_UNLESS(there, model);
    fclose(there);
    uint64_t seed = test_seed(), dice = seed;
    uint32_t count = (uint32_t)test_scale(500, 5000);
    request *r = calloc(count, sizeof *r);
    make_requests(r, count, 500, &dice);
    answer *want = run_alone(model, r, count);
    run_together(model, 1, r, count, want, seed);
    run_together(model, 16, r, count, want, seed);
    for (uint32_t i = 0; i < count; i++)
        answer_fini(&want[i]);
    free(want);
    free(r);
}

TEST(stories260K_answers_do_not_depend_on_the_cache)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/models/stories260K.gguf", test_data());
    run_model(path);
}

TEST(the_shipped_models_answers_do_not_depend_on_the_cache)
{
    run_model(RADISH_SOURCE_DIR "/models/radish-tiny.gguf");
}

TEST_MAIN()
